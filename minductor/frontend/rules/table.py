"""The table of all lowering rules, put together from the tables of the family files.

Takes nothing. Gives RULES: operator name ("aten.add.Tensor") -> rule(ctx, *args, **kwargs). An operator that has no row
becomes an extern call, that is, a call of ATen's own kernel. Operators on complex tensors have a table of their own in
`complex.py`; higher-order operators and collectives have theirs in `higher_order.py` and `collectives.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from minductor.frontend.lowering_context.values import Value
from minductor.frontend.rules import (
    batch,
    concat,
    create,
    foreach,
    grid_sample,
    index,
    loss,
    matmul,
    norm,
    pad,
    pointwise,
    random,
    reduce,
    scalars,
    scan,
    scatter,
    search,
    special,
    views,
    window,
    window_write,
)

FAMILIES = (
    views,
    window_write,
    window,
    pad,
    grid_sample,
    pointwise,
    loss,
    matmul,
    special,
    reduce,
    scalars,
    scan,
    search,
    norm,
    batch,
    create,
    concat,
    index,
    scatter,
    foreach,
    random,
)

RULES: Mapping[str, Callable[..., Value]] = MappingProxyType(
    {op: rule for family in FAMILIES for op, rule in family.RULES.items()}
)
