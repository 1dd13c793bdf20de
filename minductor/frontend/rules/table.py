"""The table of all lowering rules, put together from the tables of the family files.

Takes nothing. Gives RULES: operator name ("aten.add.Tensor") -> rule(ctx, *args, **kwargs). An operator that has no row
becomes an extern call, that is, a call of ATen's own kernel. Operators on complex tensors have a table of their own in
`complex.py`; higher-order operators and collectives have theirs in `higher_order.py` and `collectives.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TypeAlias

from minductor.frontend.lowering_context.values import Value

Rule: TypeAlias = Callable[..., Value]

# The files of this folder that have a table, those of the commonest operators first.
FAMILIES = (
    *("pointwise", "views", "reduce", "create", "norm", "matmul", "concat", "index", "scatter", "window", "pad"),
    *("random", "scan", "scalars", "search", "special", "loss", "batch", "window_write", "grid_sample", "foreach"),
)


def family(name: str) -> Mapping[str, Rule]:
    """The rules of one file of FAMILIES."""
    return import_module(f"minductor.frontend.rules.{name}").RULES


class _Rules(Mapping[str, Rule]):
    """All rules by operator. A family is imported when none before it has the operator: a first call needs few."""

    def __getitem__(self, op: str) -> Rule:
        for name in FAMILIES:
            if rule := family(name).get(op):
                return rule
        raise KeyError(op)

    def __iter__(self) -> Iterator[str]:
        return (op for name in FAMILIES for op in family(name))

    def __len__(self) -> int:
        return sum(len(family(name)) for name in FAMILIES)


RULES = _Rules()
