"""Parses the schemas of torch's operators.

Takes the text of a schema, as torch prints it. Gives its name, parameters and results. Refuses (ValueError) a text that
is no schema.

>>> sort = parse_schema("aten::sort.stable(Tensor self, *, bool? stable, int dim=-1) -> (Tensor values, Tensor)")
>>> sort.name, sort.overload, sort.returns
('aten::sort', 'stable', ('Tensor', 'Tensor'))
>>> sort.parameters[1], sort.parameters[2].default
(Parameter(name='stable', type='bool?', default='', is_keyword=True, is_written=False), '-1')
>>> parse_schema("aten::relu_(Tensor(a!) self) -> Tensor(a!)").parameters
(Parameter(name='self', type='Tensor', default='', is_keyword=False, is_written=True),)
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

_SCHEMA = re.compile(r"(?P<name>[\w:]+)(?:\.(?P<overload>\w+))?\((?P<given>.*)\) -> (?P<made>.*)")
_ALIAS = re.compile(r"(?<=Tensor)\([^()]*\)")  # Tensor(a!), Tensor(a -> *)[]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `type` has no alias marks: "int[2]", "Tensor?". `default` is text, "" for none.

    `is_written`: the operator changes this tensor, or the tensors of this list.
    """

    name: str
    type: str
    default: str
    is_keyword: bool
    is_written: bool = False


@dataclass(frozen=True, slots=True)
class Schema:
    """An operator; `returns` are the types of its results."""

    name: str
    overload: str
    parameters: tuple[Parameter, ...]
    returns: tuple[str, ...]


@functools.lru_cache(1024)
def parse_schema(text: str) -> Schema:
    """The parts of a schema."""
    found = _SCHEMA.fullmatch(text)
    if found is None:
        raise ValueError(f"not a schema: {text!r}")
    parameters: list[Parameter] = []
    is_keyword = False
    for part in _split(found["given"]):
        if part == "*":
            is_keyword = True
            continue
        declared, _, default = part.partition("=")
        type, _, name = _ALIAS.sub("", declared).rpartition(" ")
        parameters.append(Parameter(name, type, default, is_keyword, is_written="!" in declared))
    made = _ALIAS.sub("", found["made"])
    results = _split(made[1:-1]) if made.startswith("(") else [made]
    returns = tuple(result.split(" ")[0] for result in results)
    return Schema(found["name"], found["overload"] or "", tuple(parameters), returns)


def _split(text: str) -> list[str]:
    """Splits at commas outside of brackets and strings."""
    return [part.strip() for part in re.split(r",(?![^\[]*\])(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)", text) if part.strip()]
