"""The devices that minductor can compile for: one record each, and the registry of them.

Takes a kind, or the `Backend` of an out-of-tree device. Gives the record whose parts the driver resolves and calls.
Refuses a kind that is taken, a record made for another version of this API, and names that it cannot tell apart.

>>> find_backend("cpu").wrappers["python"]
'minductor.codegen.wrapper_python:wrapper_python'
>>> find_backend("cpv")
Traceback (most recent call last):
...
minductor.core.errors.BackendError: [MD005] no backend of kind 'cpv'
  hint: did you mean 'cpu'? The kinds are: cpu, interpret, cuda, hip.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from minductor.core.errors import BackendError, suggestion
from minductor.options import OptionRule
from minductor.target import TARGETS, Target, by_name

# What a record is made for. It grows by one when a part's signature changes.
API_VERSION = 1

# A part is a function, or "module:function" for one that is imported when it is used.
Part = str | Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One kind of device: how it is found, how its text is written, and how that text becomes a call."""

    kind: str
    probe: Part  # () -> what this machine has of it
    kernels: Part  # (plan, env) -> the kernels' texts
    wrappers: Mapping[str, Part]  # by language: (plan, env) -> the wrapper's text
    load: Part  # (source, ...) -> a boxed call
    options: Mapping[str, OptionRule] = field(default_factory=dict[str, OptionRule])  # its own, "kind.name"
    passes: tuple[tuple[str, Part], ...] = ()  # (the stage after which it runs, the pass)
    capabilities: tuple[str, ...] = ()  # names that a test may need
    externs: Mapping[str, Part] = field(default_factory=dict[str, Part])  # by ATen op: what to call instead
    targets: tuple[Target, ...] = ()  # those that the table of targets does not have
    api_version: int = API_VERSION


BUILT_IN: Mapping[str, Backend] = MappingProxyType(
    {
        "cpu": Backend(
            kind="cpu",
            probe="minductor.runtime.probe:probe",
            kernels="minductor.codegen.cpp:cpp",
            wrappers=MappingProxyType({"python": "minductor.codegen.wrapper_python:wrapper_python"}),
            load="minductor.runtime.launch:launch",
            capabilities=("bf16", "float64"),
        ),
        **{
            kind: Backend(
                kind=kind,
                probe="minductor.runtime.probe:probe",
                kernels="minductor.codegen.triton:triton",
                wrappers=MappingProxyType({"python": "minductor.codegen.wrapper_python:wrapper_python"}),
                load="minductor.runtime.launch:launch",
                capabilities=("bf16", "float64"),
            )
            for kind in ("interpret", "cuda", "hip")
        },
    }
)

# The one registry: what users added to this process, by kind.
_REGISTERED: dict[str, Backend] = {}


def resolve(part: Part) -> Callable[..., Any]:
    """The function that a part names.

    >>> resolve("math:floor")(2.5)
    2
    """
    if not isinstance(part, str):
        return part
    module, _, name = part.partition(":")
    return getattr(importlib.import_module(module), name)


def kinds() -> tuple[str, ...]:
    """Every kind of device that has a backend, the built-in ones first."""
    return (*BUILT_IN, *_REGISTERED)


def find_backend(kind: str) -> Backend:
    """The backend of a kind."""
    backend = BUILT_IN.get(kind) or _REGISTERED.get(kind)
    if backend is None:
        raise BackendError(
            f"no backend of kind {kind!r}", hint=f"{suggestion(kind, kinds())}The kinds are: {', '.join(kinds())}."
        )
    return backend


def find_target(name: str) -> Target:
    """A target of the table, or one that a registered backend brought."""
    brought = {target.name: target for backend in _REGISTERED.values() for target in backend.targets}
    return by_name(name, {**TARGETS, **brought})


def register_backend(backend: Backend) -> None:
    """Add an out-of-tree device to this process; `unregister_backend` takes it out again."""
    why = _objection(backend)
    # setdefault decides between two threads that register the same kind.
    if not why and _REGISTERED.setdefault(backend.kind, backend) is not backend:
        why = "this kind is registered already"
    if why:
        raise BackendError(f"cannot register backend {backend.kind!r}", why=why)


def unregister_backend(kind: str) -> None:
    """Take out what `register_backend` added."""
    if _REGISTERED.pop(kind, None) is None:
        raise BackendError(f"backend {kind!r} is not registered")


def _objection(backend: Backend) -> str:
    if backend.api_version != API_VERSION:
        return f"it is made for version {backend.api_version} of the backend API, and this is {API_VERSION}"
    if not backend.kind.isidentifier():
        return "a kind is an identifier"
    if backend.kind in BUILT_IN:
        return "this kind is built in"
    for name in backend.options:
        if not name.startswith(f"{backend.kind}."):
            return f"its option {name!r} has to start with '{backend.kind}.'"
    for target in backend.targets:
        if target.kind != backend.kind:
            return f"its target {target.name!r} is of kind {target.kind!r}"
        if target.name in TARGETS or any(target in other.targets for other in _REGISTERED.values()):
            return f"its target {target.name!r} exists already"
    return ""
