"""Checks results of calls that torch does not guarantee: custom operators, and operators that call graphs.

Takes the call, and the dtypes of its results while tracing. Gives a list of new tensors of these dtypes. Refuses a
custom operator that returns another dtype, or memory of its arguments: the code around the call was compiled for what
its schema says. (A write to an argument that the schema does not declare cannot be detected.)

>>> x = torch.ones(2)
>>> same, again = call_with_copies("higher_order.cond", lambda x: (x, (x,)), [torch.float32, torch.float32], x)
>>> len({t.data_ptr() for t in (x, same, again)})
3
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from minductor.core.errors import LyingSchema
from minductor.runtime.launch.launch import copied

# one for each result; None for what is no tensor
DTypes: TypeAlias = Sequence[torch.dtype | None]


def call_custom(op: str, function: Callable[..., Any], dtypes: DTypes, *args: Any, **kwargs: Any) -> list[Any]:
    """The results of a call of an operator that is not torch's own, checked."""
    return checked(op, function(*args, **kwargs), dtypes, (*args, *kwargs.values()))


def checked(op: str, made: Any, dtypes: DTypes, arguments: Sequence[Any]) -> list[Any]:
    """The results of such a call as a list. LyingSchema if they are not as traced."""
    results = leaves(made)
    for result in _tensors(results):
        if result.layout is not torch.strided:
            raise LyingSchema(op, "dense results", f"one is of layout {result.layout}")
    given = _storages(arguments)
    if any(result.numel() and _storage(result) in given for result in _tensors(results)):
        raise LyingSchema(op, "that its results are new tensors", "one of them shares memory with an argument")
    if len(results) != len(dtypes):
        raise LyingSchema(op, f"{len(dtypes)} results", f"it gives {len(results)}")
    for result, dtype in zip(results, dtypes, strict=True):
        found = result.dtype if isinstance(result, Tensor) else None
        if dtype is not None and found != dtype:
            raise LyingSchema(op, f"a result of {dtype}", f"it is of {found}")
    return _without_shared_memory(results, set())


def call_with_copies(op: str, function: Callable[..., Any], dtypes: DTypes, *args: Any, **kwargs: Any) -> list[Any]:
    """The results of a call that may return its arguments, or a tensor twice; such results are copied.

    Results beyond those of the traced program are dropped.
    """
    del op
    return separated(function(*args, **kwargs), len(dtypes), (*args, *kwargs.values()))


def separated(made: Any, count: int, arguments: Sequence[Any]) -> list[Any]:
    """The first `count` results of such a call as a list of tensors that share no memory."""
    return _without_shared_memory(leaves(made)[:count], _storages(arguments))


def _without_shared_memory(results: list[Any], seen: set[int]) -> list[Any]:
    """The results; those that share memory with `seen` or with an earlier result are copied."""
    made: list[Any] = []
    for result in results:
        is_shared = isinstance(result, Tensor) and _storage(result) in seen
        made.append(copied(result, result.size(), result.stride()) if is_shared else result)
        seen.update(_storages(result))
    return made


def leaves(value: Any) -> list[Any]:
    """The leaves of nested tuples and lists, in order."""
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, tuple | list) else [value]


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in leaves(value) if isinstance(leaf, Tensor)]


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _storages(value: Any) -> set[int]:
    return {_storage(tensor) for tensor in _tensors(value)}
