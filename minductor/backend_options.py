"""Reads the options of a backend, `Backend.options`, as rules and as values.

Takes the kind and the record: an instance of a frozen dataclass, whose values are the defaults, or a torch
`ConfigModule`, whose values may change between compiles. Gives each option by its full name, "kind.name". Refuses
records that can change during a compile, and minductor's own options.

>>> @dataclasses.dataclass(frozen=True)
... class ToyOptions:
...     unroll: int = 1
>>> values_of("toy", ToyOptions(unroll=2))
(('toy.unroll', 2),)
>>> objection(Options())
"its options are minductor's own: a backend brings a record of its own"
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from minductor import options as ours
from minductor.options import OptionRule, Options, Value

SIMPLE = (bool, int, float, str)


def objection(record: Any) -> str:
    """A sentence that says why `record` cannot hold a backend's options, or ""."""
    if record is None or hasattr(record, "get_config_copy"):
        return ""
    if record is ours or record is Options or isinstance(record, Options):
        return "its options are minductor's own: a backend brings a record of its own"
    if not dataclasses.is_dataclass(record) or isinstance(record, type):
        return f"its options are {record!r}, and neither an instance of a dataclass nor a torch ConfigModule"
    if not vars(type(record))["__dataclass_params__"].frozen:
        return f"its options {type(record).__name__} are not frozen, and could change while a graph is compiled"
    for name, value in _values(record).items():
        if type(value) not in SIMPLE:
            return f"its option {name!r} is {value!r}, and no bool, int, float or str"
    return ""


def rules_of(kind: str, record: Any) -> Mapping[str, OptionRule]:
    """The rule of each option. A dataclass's field may bring it as metadata {"rule": OptionRule(...)}."""
    given = (
        {f.name: f.metadata.get("rule") for f in dataclasses.fields(record)} if dataclasses.is_dataclass(record) else {}
    )
    return {
        f"{kind}.{name}": given.get(name) or OptionRule(type(value), f"an option of the backend {kind}")
        for name, value in _values(record).items()
        if type(value) in SIMPLE
    }


def values_of(kind: str, record: Any) -> tuple[tuple[str, Value], ...]:
    """Each option's full name and value, in order of name. A value that is not simple, in a ConfigModule, is a repr."""
    values = sorted(_values(record).items())
    return tuple((f"{kind}.{name}", value if type(value) in SIMPLE else repr(value)) for name, value in values)


def _values(record: Any) -> Mapping[str, Any]:
    if record is None:
        return {}
    if dataclasses.is_dataclass(record):
        return {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    return record.get_config_copy()
