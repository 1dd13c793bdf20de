"""The value of what a kernel has stored, for what it computes from it without loading it again.

Takes a body under construction, a value that it stores, and the storage's dtype. Gives the position of the value that a
load would give: kernels compute in float32 what memory holds in 16 or 8 bits, and a tensor has one value, whether a
kernel reads it or has just made it. Gives the value itself where the storage holds it exactly; refuses nothing.

>>> from minductor.core.dtypes import BF16, F32
>>> b = Builder()
>>> zero, third = b.constant(0, F32), b.constant(1 / 3, F32)
>>> [b[as_stored(b, value, BF16, {})].name for value in (zero, b.op("neg", zero), third, b.op("neg", third))]
['constant', 'neg', 'round_to', 'round_to']
"""

from __future__ import annotations

from collections.abc import Mapping

from minductor.core.dtypes import DType, compute_dtype
from minductor.ir.program.build import Builder
from minductor.ir.program.held import is_held
from minductor.ir.program.nodes import Buffer


def as_stored(b: Builder, value: int, dtype: DType, table: Mapping[str, Buffer]) -> int:
    """See above."""
    is_same = compute_dtype(dtype) == dtype or is_held(value, lambda p: b[p], dtype, lambda name: table[name].dtype)
    return value if is_same else b.round_to(value, dtype)
