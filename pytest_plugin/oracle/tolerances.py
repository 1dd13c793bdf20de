"""The one table of tolerances: how far a compiled result may be from the float64 truth.

Takes the name of a dtype. Gives its row. Refuses nothing: integers and bools have no row, since they must be equal.

A result passes if its error is at most K times the worst error of eager on the same tensor, or at most ULPS units in
the last place of the result's dtype at the magnitude of the true value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

# Another order of summation is as good as eager's, and its error may be about twice as large by chance.
K = 2.0
# A load, an operation, a transcendental function and a store may each be off by one.
ULPS = 4.0
# The truth is float64, so eager's own error on float64 cannot be measured. It is taken to be this many units in the
# last place of the tensor's largest value: the error of a sum grows with its terms, not with its result.
FLOAT64_OWN_ULPS = 4.0


@dataclass(frozen=True, slots=True)
class Precision:
    """One row of the table.

    Attributes:
        mantissa: The number of stored bits of a normal number's mantissa.
        min_exponent: The exponent of the smallest normal number, to the base 2.
        rtol: The relative tolerance of torch.testing: |result - eager| <= atol + rtol * |eager|. It serves for a result
            that has no float64 truth.
        atol: The absolute tolerance of torch.testing.
    """

    mantissa: int
    min_exponent: int
    rtol: float
    atol: float


PRECISIONS: Mapping[str, Precision] = MappingProxyType(
    {
        "float64": Precision(52, -1022, rtol=1e-7, atol=1e-7),
        "float32": Precision(23, -126, rtol=1.3e-6, atol=1e-5),
        "float16": Precision(10, -14, rtol=1e-3, atol=1e-5),
        "bfloat16": Precision(7, -126, rtol=1.6e-2, atol=1e-5),
        "complex64": Precision(23, -126, rtol=1.3e-6, atol=1e-5),
        "complex128": Precision(52, -1022, rtol=1e-7, atol=1e-7),
    }
)
