"""The manifest of an exported package: the signature of its program, its requirements, and its contents.

Takes the fields of a Manifest, or its JSON. Gives the JSON, or the Manifest. Refuses JSON of another schema or form,
with ValueError. Sizes are index expressions over the package's symbols. The value of each symbol follows from one
input.

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
    """A tensor's dtype (a name of `dtypes.py`), its sizes and strides as expressions, and its device."""

    dtype: str
    size: tuple[str, ...]
    stride: tuple[str, ...]
    device: str = "cpu"

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        return cls(given["dtype"], tuple(given["size"]), tuple(given["stride"]), given["device"])


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of the arguments of a call: a tensor, an integer, or a constant that was exported.

    `value`: the constant, or the integer as an expression. `is_changed`: the program writes the tensor (a mutation).
    `is_fixed`: the tensor cannot be replaced by a copy with another layout, because the program writes it or a result
    is a view of it. `begin`: the offset of the tensor in its storage, in elements, if the program depends on it.
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
    """A symbol of the package and its range, `low` to `high`.

    Leaf number `leaf` is its value; or, if `dim` is not None, the size of that leaf along `dim` is
    `scale * value + shift`.
    """

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
    """A parameter or constant of the package. `offset`: its first byte in the constants. `is_state`: calls write it."""

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
class GpuCode:
    """The machine code that a package has for one kind of GPU, in entries whose names begin with `target` and "_".

    `target`: its name, such as "sm_90". `cuda`: the version of CUDA whose assembler made the code, such as "12.8".
    `c_library`: the library that a program in C loads, which needs torch, or "".
    """

    target: str
    cuda: str
    c_library: str = ""

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        return cls(**given)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of a package.

    `leaves`: the arguments of a call, flattened by `in_spec`. `parameters`: the names of the arguments; the first
    `positional` of them may be given without a keyword. `in_spec`, `out_spec`: pytrees as JSON (see pytree_json.py).

    `interface`: the version of the interface between machine code and loader. `features`: the CPU features that the
    code needs. `needs_torch`: the operators that only torch has. `c_library`: the library that a program in C loads, or
    ""; it is linked with torch if `needs_torch` is not empty. `digests`: the SHA-256 of each other entry of the
    package. `choices`: each choice that was open when the package was compiled, and the option that was taken. `gpus`:
    the kinds of GPU that the program runs on; a program for the CPU has none.
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
    gpus: tuple[GpuCode, ...] = ()

    def text(self) -> str:
        return json.dumps({"schema": SCHEMA, **cast("dict[str, Any]", written(self))}, indent=1, allow_nan=False)

    @classmethod
    def read(cls, text: str) -> Self:
        try:
            given: dict[str, Any] = json.loads(text)
            schema = given.pop("schema")
            if schema != SCHEMA:
                raise ValueError(f"a manifest of schema {schema!r}, and this minductor reads {SCHEMA}")
            given.setdefault("gpus", [])  # packages of earlier versions have none
            kinds = (("leaves", Leaf), ("symbols", SymbolRange), ("weights", Weight), ("gpus", GpuCode))
            for name, kind in kinds:
                given[name] = tuple(kind.read(row) for row in given[name])
            for name in ("features", "parameters", "needs_torch"):
                given[name] = tuple(given[name])
            given["choices"] = tuple((name, taken) for name, taken in given["choices"])
            return cls(**given)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"a manifest of another form: {type(error).__name__}: {error}") from error


def written(value: object) -> object:
    """A record as values that `json.dumps` accepts."""
    if isinstance(value, tuple):
        return [written(item) for item in cast("tuple[object, ...]", value)]
    if is_dataclass(value):
        return {field.name: written(getattr(value, field.name)) for field in fields(value)}
    return value
