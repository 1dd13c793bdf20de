"""Writes plans as JSON and reads them, for packages and for tools in other processes.

Takes a Plan, or the JSON text of one. Gives the text, or a Plan that equals the one that was written except for its
`kernels`, which the JSON leaves out. Refuses text that is no plan of this schema, with UnreadablePlan.

An instance of a class is an object `{"is": CLASS, FIELD: VALUE, ...}`, and a tuple is a list. An expression is text
over the symbols that the head declares. A value that JSON cannot express is an object with one key: `{"expr": "4*s0"}`,
`{"rel": "s0 < 8"}`, `{"dtype": "f32"}`, `{"float": "inf"}`, `{"complex": "(1+2j)"}`.

>>> from minductor.ir.plan.plan import FreeLine, ReturnLine
>>> text = plan_json(Plan("empty", (), (FreeLine(("buf0",)), ReturnLine(())), ()))
>>> text
'{"schema": 3, "symbols": {}, "plan": {"is": "Plan", "name": "empty", "inputs": [], "lines": [{"is": "FreeLine", \
"names": ["buf0"]}, {"is": "ReturnLine", "values": []}], "guards": [], "regions": [], \
"storages": [], "partitions": []}}'
>>> parse_plan(text).lines
(FreeLine(names=('buf0',)), ReturnLine(values=()))
"""

from __future__ import annotations

import functools
import json
import math
import typing
from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, TypeAlias, Union, cast, get_args, get_origin

from minductor.core.dtypes import DType, by_name
from minductor.core.errors import UnreadablePlan
from minductor.core.expressions.expr import Expr, Kind, Rel, Symbol, symbol
from minductor.core.expressions.expr_parser import parse_expr, parse_rel
from minductor.ir.plan import plan, storage
from minductor.ir.plan.plan import Plan
from minductor.ir.program import nodes
from minductor.ir.program.choices import BySize, Choice
from minductor.ir.program.nodes import symbols_in

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

SCHEMA = 3  # is raised when the meaning of a written plan changes
LEFT_OUT = "kernels"

KINDS: Mapping[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Plan, *get_args(plan.Line), plan.SizeOf, plan.Partition, plan.Barrier, Choice, BySize),
        *(storage.Storage, storage.Name),
        *(nodes.Input, nodes.Guard, nodes.Origin, nodes.Token, nodes.Region),
        *(nodes.Body, nodes.Op, nodes.Index, nodes.Round, nodes.Constant),
    )
}
NAMES: Mapping[type, str] = {kind: name for name, kind in KINDS.items()}


def plan_json(whole: Plan) -> str:
    """The JSON text of a plan, in one line; `print_plan` is for people."""
    symbols: dict[str, list[object]] = {}
    for found in symbols_in(tuple(getattr(whole, field.name) for field in fields(whole) if field.name != LEFT_OUT)):
        facts: list[object] = [found.kind, found.lo, found.hi]
        if symbols.setdefault(found.name, facts) != facts:
            raise ValueError(f"two symbols are called {found.name}")
    return json.dumps({"schema": SCHEMA, "symbols": symbols, "plan": _written(whole)}, allow_nan=False)


def parse_plan(text: str) -> Plan:
    """The plan that `plan_json` wrote; UnreadablePlan for any other text."""
    try:
        read: Json = json.loads(text)
        match read:
            case {"schema": found} if found != SCHEMA:
                raise UnreadablePlan(f"its schema is {found!r}, and this minductor reads {SCHEMA}")
            case {"schema": _, "symbols": dict(symbols), "plan": {"is": "Plan"} as whole}:
                return _read(whole, {name: _symbol(name, facts) for name, facts in symbols.items()})
            case _:
                raise UnreadablePlan("it has no schema, symbols and plan")
    except UnreadablePlan:
        raise
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UnreadablePlan(f"{type(error).__name__}: {error}") from error


def _symbol(name: str, facts: Json) -> Symbol:
    match facts:
        case [kind, int() | None as low, int() | None as high] if _fits(kind, Kind):
            return symbol(name, cast("Kind", kind), low, high)
        case _:
            raise ValueError(f"{name} is no symbol")


def _written(value: object) -> object:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": repr(value)}
        case complex():
            return {"complex": repr(value)}
        case tuple():
            return [_written(item) for item in cast("tuple[object, ...]", value)]
        case Expr():
            return {"expr": str(value)}
        case Rel():
            return {"rel": str(value)}
        case DType():
            return {"dtype": value.name}
        case _ if type(value) in NAMES:
            kept = [field.name for field in fields(cast("Any", value)) if field.name != LEFT_OUT]
            return {"is": NAMES[type(value)], **{name: _written(getattr(value, name)) for name in kept}}
        case _:
            raise TypeError(f"a plan does not hold a {type(value).__name__}")


def _read(value: Json, symbols: Mapping[str, Symbol]) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list():
            return tuple([_read(item, symbols) for item in value])
        case {"is": str(name), **given}:
            return _made(KINDS[name], {field: _read(item, symbols) for field, item in given.items()})
        case {"expr": str(text), **rest} if not rest:
            return parse_expr(text, symbols)
        case {"rel": str(text), **rest} if not rest:
            return parse_rel(text, symbols)
        case {"dtype": str(name), **rest} if not rest:
            return by_name(name)
        case {"float": str(text), **rest} if not rest:
            return float(text)
        case {"complex": str(text), **rest} if not rest:
            return complex(text)
        case _:
            raise ValueError(f"nothing in a plan is written {json.dumps(value)[:80]}")


def _made(kind: type, given: dict[str, Any]) -> Any:
    """An instance of a class with these fields; an error if fields are missing, unknown or of another type."""
    wanted = dict(_annotations(kind))
    if kind is Plan:
        given[LEFT_OUT] = ()
    if given.keys() != wanted.keys():
        raise ValueError(f"the fields of {kind.__name__} are {', '.join(wanted)}, not {', '.join(given)}")
    for name, value in given.items():
        if not _fits(value, wanted[name]):
            raise TypeError(f"{name} of {kind.__name__} cannot be {value!r}"[:200])
    return kind(**given)


@functools.lru_cache(maxsize=64)
def _annotations(kind: type) -> Mapping[str, Any]:
    return MappingProxyType(typing.get_type_hints(kind))


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value has the type that an annotation names."""
    if isinstance(wanted, typing.ForwardRef | str):  # an alias that mentions itself
        wanted = nodes.Argument
    arguments = get_args(wanted)
    match get_origin(wanted):
        case origin if origin in (Union, UnionType):
            return any(_fits(value, one) for one in arguments)
        case origin if origin is Literal:
            return value in arguments
        case origin if origin is tuple and isinstance(value, tuple):
            value = cast("tuple[object, ...]", value)
            if arguments[1:] == (...,):
                return all(_fits(item, arguments[0]) for item in value)
            return len(value) == len(arguments) and all(map(_fits, value, arguments))
        case origin if origin is not None:
            return False
        case _ if wanted in (bool, int, float, complex, str, NoneType, None):
            return type(value) is (NoneType if wanted is None else wanted)
        case _:
            return isinstance(value, wanted)
