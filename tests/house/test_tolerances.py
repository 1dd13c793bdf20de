"""The one table of tolerances says what torch.testing says, and nothing else in the tests of values is looser."""

import pytest
import torch
from torch.testing._comparison import default_tolerances

from pytest_plugin.oracle.tolerances import FLOAT64_OWN_ULPS, PRECISIONS, ULPS, K


@pytest.mark.parametrize("name", PRECISIONS)
def test_the_defaults_are_torch_testings(name: str) -> None:
    row, dtype = PRECISIONS[name], getattr(torch, name)
    assert (row.rtol, row.atol) == default_tolerances(dtype)
    info = torch.finfo(dtype)
    assert (2.0**-row.mantissa, 2.0**row.min_exponent) == (info.eps, info.smallest_normal)


def test_every_floating_dtype_of_the_suites_has_a_row() -> None:
    floats = {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128}
    assert {getattr(torch, name) for name in PRECISIONS} == floats


def test_the_oracle_is_at_most_twice_eagers_error_or_four_units() -> None:
    assert (K, ULPS, FLOAT64_OWN_ULPS) == (2, 4, 4)
