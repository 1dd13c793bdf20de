"""The one table of tolerances: how far a compiled result may be from the float64 truth.

Takes the name of a dtype; gives its row. Integers and bools have none: they are exact. Refuses nothing.

A result passes if its error is at most K times the worst error of eager on the same tensor, or ULPS units in the last
place of the result's own dtype at the true value's magnitude.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

# Another order of a sum is as good as eager's; twice eager's error is what a fair coin between two orders reaches.
K = 2.0
# Each of load, operation, transcendental function and store may cost one.
ULPS = 4.0
# Nothing here is more exact than float64, so on float64 eager's own error cannot be measured: this many units in the
# last place of the tensor's largest value stand for it, since a sum's error has the size of its terms.
FLOAT64_OWN_ULPS = 4.0


@dataclass(frozen=True, slots=True)
class Precision:
    """Bits behind the point of a normal number, the exponent of the smallest normal one, torch.testing's defaults."""

    mantissa: int
    min_exponent: int
    # for a result without a float64 truth: |result - eager| <= atol + rtol * |eager|
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
