"""The package's face: lazy names, and the object that Dynamo takes for a backend."""

import functools
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pytest

import minductor


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """What reaches the default Compiler, which runs the graph as it is."""
    seen: list[dict[str, Any]] = []

    def compiler(gm: Any, inputs: Any, *, mode: Any, options: Any) -> Any:
        seen.append({"mode": mode, "options": options})
        return gm.forward

    monkeypatch.setattr(minductor, "default_compiler", functools.cache(lambda: compiler))
    yield seen


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'compil'"):
        _ = minductor.compil  # pyright: ignore


def test_lazy_names_are_listed_and_found() -> None:
    assert set(minductor.PUBLIC) <= set(dir(minductor))
    from minductor.options import Options

    assert minductor.Options is Options


def test_configuration_is_the_default_options() -> None:
    config = minductor.minductor.get_compiler_config()
    assert config["target"] == "" and set(config) >= {"fuse", "precision"}


def test_dynamo_takes_it_as_a_backend(calls: list[dict[str, Any]]) -> None:
    import torch
    from torch._dynamo.backends.registry import register_backend

    # What Dynamo does with the entry point; it writes an attribute on the object.
    register_backend(minductor.minductor, name="minductor_in_a_test")
    x = torch.ones(3)
    for backend in ("minductor_in_a_test", minductor.minductor):
        torch._dynamo.reset()
        compiled = torch.compile(lambda x: x + 1, backend=backend, options={"fuse": False})
        assert torch.equal(compiled(x), x + 1)
    assert calls == [{"mode": None, "options": {"fuse": False}}] * 2
    torch._dynamo.reset()


def test_installed_entry_points_name_it() -> None:
    points = {point.name: point for point in metadata.entry_points(group="torch_dynamo_backends")}
    assert points["minductor"].load() is minductor.minductor
