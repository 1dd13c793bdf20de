"""The registry of backends: what it takes, what it refuses, and that nothing is left behind."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from minductor.backends import (
    API_VERSION,
    BUILT_IN,
    Backend,
    Part,
    find_backend,
    find_target,
    kinds,
    register_backend,
    resolve,
    unregister_backend,
)
from minductor.core.errors import BackendError, UnknownTarget
from minductor.options import OptionRule
from minductor.target import Target

TOY = Backend(
    kind="toy",
    probe=lambda: "one toy",
    kernels=lambda plan, env: (),
    wrappers={"python": lambda plan, env: ""},
    load=lambda source: source,
    options={"toy.depth": OptionRule(int, "how deep")},
    targets=(Target("toy_1", "toy"),),
)


@pytest.fixture
def toy() -> Iterator[Backend]:
    register_backend(TOY)
    yield TOY
    unregister_backend("toy")


def test_registered_backend_is_found_with_its_target(toy: Backend) -> None:
    assert find_backend("toy") is toy
    assert find_target("toy_1") is toy.targets[0]
    assert kinds() == (*BUILT_IN, "toy")
    assert resolve(find_backend("toy").probe)() == "one toy"


def test_nothing_is_left_behind() -> None:
    assert kinds() == tuple(BUILT_IN)
    with pytest.raises(UnknownTarget):
        find_target("toy_1")
    with pytest.raises(BackendError, match="not registered"):
        unregister_backend("toy")


def test_builtin_targets_are_found() -> None:
    assert find_target("cpu").kind == "cpu"


@pytest.mark.parametrize(
    ("backend", "why"),
    [
        (replace(TOY, api_version=API_VERSION + 1), "version"),
        (replace(TOY, kind="cpu", options={}, targets=()), "built in"),
        (replace(TOY, kind="to y"), "identifier"),
        (replace(TOY, options={"depth": OptionRule(int, "how deep")}), "start with"),
        (replace(TOY, targets=(Target("toy_1", "cpu"),)), "is of kind 'cpu'"),
        (replace(TOY, targets=(Target("sm_90", "toy"),)), "exists already"),
    ],
)
def test_refused(backend: Backend, why: str) -> None:
    with pytest.raises(BackendError, match=why):
        register_backend(backend)
    assert kinds() == tuple(BUILT_IN)


def test_a_kind_is_registered_once(toy: Backend) -> None:
    with pytest.raises(BackendError, match="registered already"):
        register_backend(replace(toy, targets=()))


def test_unknown_kind_says_what_was_meant(toy: Backend) -> None:
    with pytest.raises(BackendError, match="did you mean 'toy'"):
        find_backend("toyy")


def parts(backend: Backend) -> Iterator[Part]:
    yield from (backend.probe, backend.kernels, backend.load)
    yield from (*backend.wrappers.values(), *backend.externs.values(), *(part for _, part in backend.passes))


@pytest.mark.parametrize("kind", BUILT_IN)
def test_built_in_parts_exist(kind: str) -> None:
    assert BUILT_IN[kind].kind == kind
    for part in parts(BUILT_IN[kind]):
        assert isinstance(part, str), "a wing is imported when it is used"
        module, _, name = part.partition(":")
        text = (Path(__file__).parents[1] / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        assert f"def {name}(" in text, part
