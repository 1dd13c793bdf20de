"""The value that a load would give after a kernel has stored a value, without the load.

Takes a body under construction, a value that it stores, and the storage's dtype. Gives the position of that value,
rounded to the dtype. Refuses nothing. Kernels compute 16-bit and 8-bit floats in float32. A tensor must have one value
only, so a fused kernel goes on with the rounded value, as an unfused one would load it.

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
from minductor.ir.program.exact_in_dtype import is_exact_in_dtype
from minductor.ir.program.nodes import Buffer


def as_stored(b: Builder, value: int, dtype: DType, table: Mapping[str, Buffer]) -> int:
    """The position in `b` of `value` rounded to `dtype`; `value` itself if that changes nothing."""
    is_same = compute_dtype(dtype) == dtype or is_exact_in_dtype(
        value, lambda p: b[p], dtype, lambda name: table[name].dtype
    )
    return value if is_same else b.round_to(value, dtype)
