"""The operators that become kernels or views: one literal table, assembled from the families.

Takes nothing, gives RULES: operator -> rule(ctx, *args, **kwargs). What is not here becomes an extern call.
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
