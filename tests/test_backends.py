"""The registry of backends: what it takes, what it refuses, and that nothing is left behind."""

import importlib
import subprocess
import sys
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path

import pytest
import torch

from minductor import backends
from minductor.backends import (
    API_VERSION,
    BUILT_IN,
    ENTRY_POINTS,
    Backend,
    Part,
    Pass,
    check_backend_options,
    cpp_flags,
    find_backend,
    find_target,
    fingerprint,
    kinds,
    options_for,
    register_backend,
    resolve,
    rewrites_of,
    target_of_device,
    unregister_backend,
)
from minductor.codegen.wrapper.wrapper_cpp import wrapper_cpp
from minductor.core.errors import BackendError, BadOptionValue, BrokenBackend, UnknownOption, UnknownTarget
from minductor.driver import Compiled, Compiler
from minductor.ir.artefact.source import Unit
from minductor.ir.plan.plan import Plan
from minductor.options import OptionRule, Options
from minductor.runtime.store.store import Store
from minductor.target import TARGETS, Env, Target, by_name
from tests.rewrite_rows import SOFTMAX_OF_PRODUCT


@dataclass(frozen=True)
class ToyOptions:
    depth: int = field(default=1, metadata={"rule": OptionRule(int, "how deep", allowed=(1, 2))})
    name: str = "toy"


@dataclass
class Loose:
    depth: int = 1


@dataclass(frozen=True)
class Crowded:
    depths: tuple[int, ...] = (1,)


def nothing(*args: object) -> object:
    return args


TOY = Backend(
    kind="toy",
    api_version=API_VERSION,
    targets=(Target("toy_1", "toy", device="toybox"),),
    probe=lambda: "one toy",
    kernels=nothing,
    build=nothing,
    load=nothing,
    launch=nothing,
    options=ToyOptions(),
)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry without the backends that are installed here."""
    installed = {(point.dist.name, point.value) for point in metadata.entry_points(group=ENTRY_POINTS) if point.dist}
    monkeypatch.setattr(backends, "_REGISTRY", backends._Registry(tried=installed))


@pytest.fixture
def toy() -> Iterator[Backend]:
    register_backend(TOY)
    yield TOY
    unregister_backend("toy")


def test_registered_backend_is_found_with_its_target(toy: Backend) -> None:
    assert find_backend("toy") is toy
    assert find_target("toy_1") is toy.targets[0]
    assert target_of_device("toybox") is toy.targets[0]
    assert kinds() == (*BUILT_IN, "toy")


def test_nothing_is_left_behind() -> None:
    assert kinds() == tuple(BUILT_IN)
    assert target_of_device("toybox") is None
    with pytest.raises(UnknownTarget):
        find_target("toy_1")
    with pytest.raises(BackendError, match="not registered"):
        unregister_backend("toy")
    with pytest.raises(UnknownOption):
        check_backend_options(Options(extra=(("toy.depth", 1),)))


def test_builtin_targets_are_found() -> None:
    assert find_target("cpu").kind == "cpu"


A_PASS = Pass(name="p", after="fuse", function=nothing, fingerprint="1")


@pytest.mark.parametrize(
    ("backend", "why"),
    [
        (
            replace(TOY, api_version=API_VERSION - 1),
            f"made for version {API_VERSION - 1} of .* has version {API_VERSION}",
        ),
        (replace(TOY, api_version=0), "states no version"),
        (replace(TOY, kind="cpu", targets=()), "built in"),
        (replace(TOY, kind="to y"), "identifier"),
        (replace(TOY, targets=(Target("toy_1", "cpu"),)), "is of kind 'cpu'"),
        (replace(TOY, targets=(Target("sm_90", "toy"),)), "exists already"),
        (replace(TOY, targets=(), launch=None), "no targets and no launch"),
        (replace(TOY, options=Options()), "minductor's own"),
        (replace(TOY, options=Options), "minductor's own"),
        (replace(TOY, options=sys.modules["minductor.options"]), "minductor's own"),
        (replace(TOY, options={"depth": 1}), "neither an instance of a dataclass"),
        (replace(TOY, options=ToyOptions), "neither an instance of a dataclass"),
        (replace(TOY, options=Loose()), "not frozen"),
        (replace(TOY, options=Crowded()), "no bool, int, float or str"),
        (replace(TOY, passes=(replace(A_PASS, after="fusion"),)), "the stages are lower, remove_dead_code, inline"),
        (replace(TOY, passes=(replace(A_PASS, fingerprint=""),)), "no fingerprint"),
    ],
)
def test_refused(backend: Backend, why: str) -> None:
    with pytest.raises(BackendError, match=why):
        register_backend(backend)
    assert kinds() == tuple(BUILT_IN)


def test_a_kind_is_registered_once(toy: Backend) -> None:
    with pytest.raises(BackendError, match="registered already"):
        register_backend(replace(toy, targets=(Target("toy_2", "toy"),)))


def test_unknown_kind_says_what_was_meant(toy: Backend) -> None:
    with pytest.raises(BackendError, match="did you mean 'toy'"):
        find_backend("toyy")


# --- options ------------------------------------------------------------------------------------------------------


def test_own_options_are_all_there_and_checked(toy: Backend) -> None:
    given = Options.parse(options={"toy.depth": 2}, environ={})
    check_backend_options(given)
    assert options_for(toy, given).backend_options == {"toy.depth": 2, "toy.name": "toy"}
    assert options_for(BUILT_IN["cpu"], given) == Options(), "another device's options are not in its key"
    with pytest.raises(BadOptionValue, match="one of 1, 2"):
        check_backend_options(Options.parse(options={"toy.depth": 3}, environ={}))
    with pytest.raises(UnknownOption, match=r"did you mean 'toy\.depth'"):
        check_backend_options(Options.parse(options={"toy.depht": 3}, environ={}))


def test_every_field_is_in_the_fingerprint_of_the_options(toy: Backend) -> None:
    base = options_for(toy, Options()).fingerprint()
    for changed in (ToyOptions(depth=2), ToyOptions(name="other")):
        assert options_for(replace(toy, options=changed), Options()).fingerprint() != base
    assert options_for(toy, Options()).fingerprint() == base


CONFIG = """
import sys

from torch.utils._config_module import install_config_module

depth = 1
names = ["a"]
install_config_module(sys.modules[__name__])
"""


def test_a_config_module_is_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_config.py").write_text(CONFIG)
    monkeypatch.syspath_prepend(tmp_path)
    config = importlib.import_module("toy_config")
    backend = replace(TOY, options=config)
    register_backend(backend)
    try:
        assert options_for(backend, Options()).backend_options == {"toy.depth": 1, "toy.names": "['a']"}
        config.depth = 2
        assert options_for(backend, Options()).backend_options["toy.depth"] == 2
        check_backend_options(Options(extra=(("toy.depth", 3),)))
        with pytest.raises(BadOptionValue):
            check_backend_options(Options(extra=(("toy.depth", "3"),)))
    finally:
        unregister_backend("toy")


# --- the key ------------------------------------------------------------------------------------------------------


def test_fingerprint_tells_backends_apart() -> None:
    base = fingerprint(TOY)
    assert base == fingerprint(TOY)
    others = [
        replace(TOY, probe=lambda: "another toy"),
        replace(TOY, targets=(replace(TOY.targets[0], l2_bytes=1),)),
        replace(TOY, targets=(replace(TOY.targets[0], lacks=frozenset(("exp",))),)),
        replace(TOY, passes=(A_PASS,)),
        replace(TOY, passes=(replace(A_PASS, fingerprint="2"),)),
        replace(TOY, externs={"aten.mm.out": "toy.mm.out"}),
    ]
    assert len({base, *map(fingerprint, others)}) == 1 + len(others)
    assert fingerprint(BUILT_IN["cpu"]) == "", "its sources are minductor's own"


def test_fingerprint_is_of_every_file_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "toy_package"
    (package / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/__init__.py", "inner/kernels.py", "other.py"):
        (package / name).write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    backend = replace(TOY, kernels="toy_package.inner.kernels:print")
    before = fingerprint(backend)
    (package / "other.py").write_text("changed = True\n")
    assert fingerprint(backend) != before


def test_what_has_no_file_is_never_found_again() -> None:
    typed = replace(TOY, probe=types.FunctionType(nothing.__code__, {"__name__": "__main__"}))
    assert fingerprint(typed) != fingerprint(typed)


# --- through the driver -------------------------------------------------------------------------------------------


def twin_wrapper(plan: Plan, env: Env) -> str:
    return wrapper_cpp(plan, replace(env, target=TARGETS["cpu"]))


def twin_build(units: Sequence[Unit], folder: Path, env: Env) -> dict[str, bytes]:
    for unit in units:
        (folder / unit.file).write_text(unit.text)
    command = ["c++", "-std=c++20", "-shared", "-fPIC", "-fopenmp", *(unit.file for unit in units), *cpp_flags()]
    subprocess.run([*command, "-o", "kernels.so"], cwd=folder, check=True)
    return {"kernels.so": (folder / "kernels.so").read_bytes()}


def twin(**capabilities: bool) -> Backend:
    """A backend whose kernels are those of the CPU."""
    return replace(
        TOY,
        kind="twin",
        targets=(replace(TARGETS["cpu"], name="twin_1", kind="twin", **capabilities),),
        kernels="minductor.codegen.cpp.cpp_kernels:cpp",
        build=twin_build,
        wrappers={"cpp": twin_wrapper},
    )


def test_a_wrapper_in_cpp_of_a_backend_on_the_cpus_memory(tmp_path: Path) -> None:
    """A device that has no name in torch is chosen by its target's."""
    seen: list[Compiled] = []
    compiler = Compiler(store=Store(tmp_path), observer=seen.append)
    register_backend(twin())
    try:
        x = torch.linspace(-1, 1, 8)
        for was_hit in (False, True):
            torch._dynamo.reset()
            made = torch.compile(torch.sin, backend=compiler, options={"target": "twin_1", "wrapper": "cpp"})
            torch.testing.assert_close(made(x), x.sin())
            assert "wrapper.cpp" in seen[-1].sources and seen[-1].was_hit == was_hit
        torch._dynamo.reset()
        with pytest.raises(Exception, match="no wrapper in 'python'"):
            torch.compile(torch.sin, backend=compiler, options={"target": "twin_1"})(x)
    finally:
        unregister_backend("twin")


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * 2, -1)


@pytest.mark.parametrize(
    ("options", "warned"),
    [({"variant": "rows"}, "forced variants have"), ({"size_hints": (8, 4096)}, "variants by size have")],
    ids=["forced", "by size"],
)
@pytest.mark.parametrize("has_variants", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_target_without_variants_says_so_and_goes_on(
    tmp_path: Path, recwarn: pytest.WarningsRecorder, options: dict[str, object], warned: str, *, has_variants: bool
) -> None:
    seen: list[Compiled] = []
    compiler = Compiler(store=Store(tmp_path), observer=seen.append)
    register_backend(twin(has_variants=has_variants))
    chosen = {"target": "twin_1", "wrapper": "cpp", **options}
    try:
        torch._dynamo.reset()
        run = torch.compile(softmax, backend=compiler, options=chosen, dynamic="size_hints" in options)
        for size in ((4000, 90), (12, 4500)):
            x = torch.randn(size)
            torch.testing.assert_close(run(x), softmax(x))
    finally:
        unregister_backend("twin")
    assert any(by in ("option", "size") for one in seen for _, _, by, _, _ in one.report.variants) == has_variants
    said = {str(note.message).strip() for note in recwarn if "no effect on twin_1" in str(note.message)}
    assert len(said) == (not has_variants) and all(warned in text for text in said)


def test_what_python_cannot_launch_takes_the_default_instead_of_a_measured_variant(tmp_path: Path) -> None:
    """Variants are measured by a wrapper in Python, which the backend does not have."""
    seen: list[Compiled] = []
    compiler = Compiler(store=Store(tmp_path), observer=seen.append)
    register_backend(twin())
    try:
        x, options = torch.randn(12, 40000), {"target": "twin_1", "wrapper": "cpp", "autotune": True}
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(softmax, backend=compiler, options=options)(x), softmax(x))
    finally:
        unregister_backend("twin")
    assert [(by, len(legal) > 1) for _, _, by, legal, _ in seen[0].report.variants][-1] == ("cost", True)
    assert seen[0].report.kernels == 1


# --- installed packages -------------------------------------------------------------------------------------------


def install(folder: Path, name: str, value: str, text: str) -> None:
    """What pip leaves of a package that names a backend."""
    (folder / f"{name}.py").write_text(text)
    info = folder / f"{name}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[minductor.backends]\n{name} = {value}\n")


def test_a_broken_package_is_a_warning_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "broken_toy", "broken_toy:BACKEND", "raise RuntimeError('no driver')\n")
    install(tmp_path, "wrong_toy", "wrong_toy:BACKEND", "BACKEND = 3\n")
    good = "import dataclasses\nfrom minductor.backends import Backend\nfrom minductor.target import Target\n"
    good += (
        f"BACKEND = Backend(kind='good', api_version={API_VERSION}, targets=(Target('good_1', 'good'),), probe='a:b',"
    )
    install(tmp_path, "good_toy", "good_toy:BACKEND", good + " kernels='a:b', build='a:b', load='a:b', launch='a:b')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_target("cpu").kind == find_backend("cpu").kind == "cpu"
    assert "good_toy" not in sys.modules, "nobody needed it"
    with pytest.warns(BrokenBackend) as told:
        assert find_target("good_1").kind == "good"
    texts = [str(warning.message) for warning in told]
    assert any("'broken_toy'" in text and "RuntimeError: no driver" in text for text in texts)
    assert any("'wrong_toy'" in text and "is a int and no" in text for text in texts)
    unregister_backend("good")
    assert kinds() == tuple(BUILT_IN), "it is not looked for again, and no warning is repeated"


def parts(backend: Backend) -> Iterator[Part]:
    yield from (backend.kernels, *backend.wrappers.values())


@pytest.mark.parametrize("kind", BUILT_IN)
def test_built_in_parts_exist(kind: str) -> None:
    assert BUILT_IN[kind].kind == kind
    assert resolve("math:floor")(2.5) == 2
    for part in parts(BUILT_IN[kind]):
        assert isinstance(part, str), "a wing is imported when it is used"
        module, _, name = part.partition(":")
        text = (Path(__file__).parents[1] / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        assert f"def {name}(" in text, part


def test_rewrites_are_those_of_the_target_or_of_the_device() -> None:
    own = replace(TOY, rewrites=(SOFTMAX_OF_PRODUCT,))
    register_backend(own)
    try:
        unnamed = Env(Options(), by_name("cpu"))
        assert rewrites_of(unnamed, ["cpu", "toybox"]) == (SOFTMAX_OF_PRODUCT,)
        assert rewrites_of(unnamed, ["cpu"]) == rewrites_of(unnamed, []) == ()
        named = Env(Options.parse(options={"target": "toy_1"}), own.targets[0])
        assert rewrites_of(named, ["cpu"]) == (SOFTMAX_OF_PRODUCT,)
    finally:
        unregister_backend("toy")


@pytest.mark.parametrize(
    ("rewrites", "why"),
    [
        ([SOFTMAX_OF_PRODUCT], "and no tuple of minductor.Rewrite"),
        ((5,), "of its rewrites 5 is no minductor.Rewrite"),
        ((replace(SOFTMAX_OF_PRODUCT, level="late"),), "is none of torch, joint, aten, frozen"),
        ((replace(SOFTMAX_OF_PRODUCT, anchors=("softmax",)),), "are no tuple of names such as 'aten.softmax'"),
    ],
)
def test_rewrites_that_are_none(rewrites: tuple[object, ...], why: str) -> None:
    with pytest.raises(BackendError, match=why):
        register_backend(replace(TOY, rewrites=rewrites))
