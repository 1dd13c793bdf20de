"""What a package says of itself: how it is called, what it needs, what is in it.

Takes the fields, or the JSON of them. Gives the JSON, or a Manifest. Refuses JSON of another schema or form with
ValueError. Sizes are index expressions over the package's symbols, each of which an input tells.

>>> row = Leaf("x", "tensor", Layout("f32", ("s0", "4"), ("4", "1")), value=None, is_fixed=False)
>>> Leaf.read(json.loads(json.dumps(written(row)))) == row
True
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, Self, cast

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Layout:
    """A tensor's dtype by our name, its sizes and strides as expressions, and its device."""

    dtype: str
    size: tuple[str, ...]
    stride: tuple[str, ...]
    device: str = "cpu"

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        return cls(given["dtype"], tuple(given["size"]), tuple(given["stride"]), given["device"])


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of a call's arguments: a tensor, a whole number, or the value that was exported.

    `value`: that, or the number as an expression. `is_fixed`: a tensor that is changed, or that a result or a window on
    memory is a view of, so that a copy of another layout cannot stand in for it. `is_changed`: the first of these.
    `begin`: where the tensor begins in its memory, if the program counts places from the start of that.
    """

    name: str
    kind: Literal["tensor", "number", "value"]
    layout: Layout | None
    value: bool | int | float | str | None
    is_fixed: bool
    is_changed: bool = False
    begin: int | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        layout = None if given["layout"] is None else Layout.read(given["layout"])
        kept = {name: value for name, value in given.items() if name != "layout"}
        return cls(layout=layout, **kept)


@dataclass(frozen=True, slots=True)
class SymbolRange:
    """A number of each call, from `low` to `high`; leaf `leaf` is it, or the size of it in `dim` is
    `scale * number + shift`."""

    name: str
    low: int | None
    high: int | None
    leaf: int
    dim: int | None
    scale: int
    shift: int

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        return cls(**given)


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor of the package's own: where its bytes lie among the constants. The `is_state` ones change."""

    name: str
    layout: Layout
    offset: int
    bytes: int
    is_state: bool

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        layout = Layout.read(given["layout"])
        return cls(given["name"], layout, given["offset"], given["bytes"], given["is_state"])


@dataclass(frozen=True, slots=True)
class Manifest:
    """The whole of it. `leaves` are what the program is called with, flattened by `in_spec`; `parameters` are the names
    of its arguments, the first `positional` of them without a keyword. The specs are trees as JSON (pytree_json.py).

    `interface` is what the machine code and its loader agree on, `features` what the code needs of a processor, and
    `needs_torch` the operators that only torch has. `c_library` is what a host in C loads, if it can: it is
    linked with torch if that is needed.
    `digests`: a SHA-256 of each entry but this one. `choices`: what was open at compile time, and what was taken.
    """

    minductor: str
    interface: str
    torch: str
    machine: str
    features: tuple[str, ...]
    parameters: tuple[str, ...]
    positional: int
    in_spec: Any
    out_spec: Any
    leaves: tuple[Leaf, ...]
    symbols: tuple[SymbolRange, ...]
    weights: tuple[Weight, ...]
    needs_torch: tuple[str, ...]
    c_library: str
    choices: tuple[tuple[str, str], ...]
    digests: Mapping[str, str]

    def text(self) -> str:
        return json.dumps({"schema": SCHEMA, **cast("dict[str, Any]", written(self))}, indent=1, allow_nan=False)

    @classmethod
    def read(cls, text: str) -> Self:
        try:
            given: dict[str, Any] = json.loads(text)
            schema = given.pop("schema")
            if schema != SCHEMA:
                raise ValueError(f"a manifest of schema {schema!r}, and this minductor reads {SCHEMA}")
            for name, kind in (("leaves", Leaf), ("symbols", SymbolRange), ("weights", Weight)):
                given[name] = tuple(kind.read(row) for row in given[name])
            for name in ("features", "parameters", "needs_torch"):
                given[name] = tuple(given[name])
            given["choices"] = tuple((name, taken) for name, taken in given["choices"])
            return cls(**given)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"a manifest of another form: {type(error).__name__}: {error}") from error


def written(value: object) -> object:
    """A record as JSON has it."""
    if isinstance(value, tuple):
        return [written(item) for item in cast("tuple[object, ...]", value)]
    if is_dataclass(value):
        return {field.name: written(getattr(value, field.name)) for field in fields(value)}
    return value
