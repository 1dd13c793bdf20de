"""The operators that become kernels or views: one literal table, assembled from the families.

Takes nothing, gives RULES: operator -> rule(ctx, *args, **kwargs). What is not here becomes an extern call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from minductor.frontend.rules import (
    batch,
    create,
    foreach,
    index,
    join,
    norm,
    pointwise,
    random,
    reduce,
    scan,
    views,
)
from minductor.frontend.values import Value

RULES: Mapping[str, Callable[..., Value]] = MappingProxyType(
    {
        **views.RULES,
        **pointwise.RULES,
        **reduce.RULES,
        **scan.RULES,
        **norm.RULES,
        **batch.RULES,
        **create.RULES,
        **join.RULES,
        **index.RULES,
        **foreach.RULES,
        **random.RULES,
    }
)
