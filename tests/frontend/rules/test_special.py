"""Special functions, frexp, ldexp and rounding to decimals against eager, in the dtypes that they take."""

from __future__ import annotations

import pytest
import torch

from tests.frontend.tracing import integers, lowered, randn

X = torch.cat([randn(20) * 3, torch.tensor([0.0, -0.0, 1.0, -1.0, 8.0, 30.0, torch.inf, -torch.inf, torch.nan])])
POSITIVE, SHARE = X.abs(), torch.linspace(0, 1, 29)
WHOLE = integers(0, 6, 29)
ONE = (
    "i0 i0e i1 i1e modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 erfcx log_ndtr ndtr"
    " scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0"
)
POLYNOMIALS = (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h"
    " hermite_polynomial_he laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t"
    " shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w"
)


@pytest.mark.parametrize("name", ONE.split())
def test_of_one_argument(name: str) -> None:
    for x in (X, X.double(), WHOLE, WHOLE > 2):
        assert not lowered(lambda x: getattr(torch.special, name)(x), x).externs


def test_the_inverse_of_the_normal_distribution() -> None:
    for x in (SHARE, SHARE.double(), WHOLE):
        assert not lowered(torch.special.ndtri, x).externs


@pytest.mark.parametrize("name", POLYNOMIALS.split())
def test_polynomials(name: str) -> None:
    fn = getattr(torch.special, name)
    for x in (randn(29), randn(29).double()):
        assert not lowered(lambda x, n: (fn(x, n), fn(x, 3), fn(0.5, n)), x, WHOLE).externs


def test_zeta_and_polygamma() -> None:
    assert not lowered(lambda s, q: torch.special.zeta(s, q), POSITIVE[:20] + 1.1, POSITIVE[:20] + 0.1).externs
    for order in range(5):
        assert not lowered(lambda x, n=order: torch.polygamma(n, x), X[:20]).externs
        assert not lowered(lambda x, n=order: torch.polygamma(n, x), WHOLE + 1).externs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_mantissa_and_exponent(dtype: torch.dtype) -> None:
    tiny = torch.tensor([torch.finfo(dtype).tiny, torch.finfo(dtype).smallest_normal / 4, -1e-7, 65504.0]).to(dtype)
    assert not lowered(torch.frexp, torch.cat([X.to(dtype), tiny])).externs


def test_a_power_of_two_has_the_dtype_of_its_exponent() -> None:
    for x in (X, X.double(), X.half(), WHOLE):
        for exponent in (WHOLE - 3, (WHOLE - 3).half(), X[:20].round().repeat(2)[:29]):
            assert not lowered(torch.ldexp, x, exponent).externs


@pytest.mark.parametrize("decimals", [0, 3, -1])
def test_rounding_to_decimals(decimals: int) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        assert not lowered(lambda x: x.round(decimals=decimals), (X * 100).to(dtype)).externs


def test_the_angle_of_a_real_number() -> None:
    for x in (X, X.bfloat16(), WHOLE - 3):
        assert not lowered(torch.angle, x).externs
