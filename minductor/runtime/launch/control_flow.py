"""Operators that call graphs (`cond`, `while_loop`, `scan`, ...) as Python functions.

Takes functions of tensors that return tuples, and the arguments of torch's operator of the same name. Gives a tuple of
results. Refuses nothing. A result may be one of the arguments: `result_checks.py` then copies it. Wrappers call these
functions with compiled regions, and the reference evaluator with interpreted ones.

>>> cond(torch.tensor(True), lambda x: (x + 1,), lambda x: (x - 1,), [torch.tensor(1)])
(tensor(2),)
>>> while_loop(lambda n: (n < 5,), lambda n: (n + 2,), [torch.tensor(0)], [])
(tensor(6),)
>>> scan(lambda total, n: (total + n, total * 1), [torch.tensor(0)], [torch.tensor([1, 2, 3])], [])
(tensor(6), tensor([0, 1, 3]))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import torch

Function: TypeAlias = Callable[..., Sequence[Any]]


def cond(predicate: Any, yes: Function, no: Function, operands: Sequence[Any] = ()) -> Sequence[Any]:
    return yes(*operands) if predicate else no(*operands)


def while_loop(going: Function, step: Function, carried: Sequence[Any], extra: Sequence[Any]) -> Sequence[Any]:
    while going(*carried, *extra)[0]:
        carried = step(*carried, *extra)
    return carried


def invoke_subgraph(function: Function, name: str, *operands: Any) -> Sequence[Any]:
    del name
    return function(*operands)


def scan(step: Function, start: Sequence[Any], rows: Sequence[Any], extra: Sequence[Any]) -> Sequence[Any]:
    """The last carried values, then the stacked outputs of all steps. The steps go along the first dimension of
    `rows`.
    """
    carried, made = tuple(start), []
    for n in range(rows[0].shape[0]):
        found = step(*carried, *(row[n] for row in rows), *extra)
        carried = tuple(found[: len(start)])
        made.append(found[len(start) :])
    return (*carried, *(torch.stack(column) for column in zip(*made, strict=True)))


def map_impl(function: Function, rows: Sequence[Any], extra: Sequence[Any]) -> Sequence[Any]:
    made = [function(*(row[n] for row in rows), *extra) for n in range(rows[0].shape[0])]
    return tuple([torch.stack(column) for column in zip(*made, strict=True)])


CONTROL: Mapping[str, Callable[..., Sequence[Any]]] = MappingProxyType(
    {f"higher_order.{operator.__name__}": operator for operator in (cond, while_loop, invoke_subgraph, scan, map_impl)}
)
