"""The numeric oracle: what it lets pass, and what it does not."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_plugin.oracle.accuracy import Policy, WrongResult, check_accuracy
from pytest_plugin.oracle.tolerances import PRECISIONS, ULPS

INF, NAN = math.inf, math.nan


def check(actual: list[float], eager: list[float], exact: list[float], dtype: torch.dtype = torch.float32) -> float:
    return check_accuracy(
        torch.tensor(actual, dtype=dtype), torch.tensor(eager, dtype=dtype), torch.tensor(exact, dtype=torch.float64)
    )


@pytest.mark.parametrize(
    ("actual", "eager", "exact"),
    [
        ([1.0], [1.0], [1.0]),
        ([1.0 + 4 * 2**-23], [1.0], [1.0]),  # 4 ULP
        ([1.0 - 4 * 2**-23], [1.0], [1.0]),
        ([1.02], [1.01], [1.0]),  # twice eager's error
        ([1.02, 5.0], [1.0, 5.01], [1.0, 5.0]),  # of its worst element
        ([NAN], [NAN], [NAN]),
        ([INF, -INF], [INF, -INF], [INF, -INF]),
        ([INF], [INF], [1e300]),  # overflows in eager too
        ([3.4e38], [INF], [3.4e38]),  # better than eager
        ([-0.0], [-0.0], [-0.0]),
        ([-0.0], [-0.0], [0.0]),  # eager's sign
        ([2e-45], [0.0], [1e-45]),  # subnormal: within 4 of the smallest
        ([], [], []),
    ],
)
def test_near_enough(actual: list[float], eager: list[float], exact: list[float]) -> None:
    assert 0 <= check(actual, eager, exact) <= 1 + 1e-4


@pytest.mark.parametrize(
    ("actual", "eager", "exact"),
    [
        ([1.0 + 5 * 2**-23], [1.0], [1.0]),
        ([1.03], [1.01], [1.0]),
        ([NAN], [1.0], [1.0]),
        ([1.0], [NAN], [NAN]),
        ([INF], [1.0], [1.0]),
        ([-INF], [INF], [INF]),
        ([3.4e38], [INF], [INF]),
        ([-0.0], [0.0], [0.0]),
        ([0.0], [-0.0], [-0.0]),
        ([1e-44], [0.0], [0.0]),
    ],
)
def test_too_far(actual: list[float], eager: list[float], exact: list[float]) -> None:
    with pytest.raises(WrongResult, match="1 of 1 elements are wrong"):
        check(actual, eager, exact)


@pytest.mark.parametrize(("error", "is_near"), [(8 * 2**-52, True), (9 * 2**-52, False)])
def test_float64_is_judged_by_the_largest_value(error: float, is_near: bool) -> None:
    truth = [1.0, 1e-9]
    if is_near:
        assert check([1.0, 1e-9 + error], truth, truth, torch.float64) <= 1
    else:
        with pytest.raises(WrongResult):
            check([1.0, 1e-9 + error], truth, truth, torch.float64)


def test_the_worst_element_is_shown() -> None:
    with pytest.raises(WrongResult) as caught:
        check_accuracy(
            {"x": (torch.tensor([[1.0, 2.5], [3.0, 4.0]]),)},
            {"x": (torch.tensor([[1.0, 2.0], [3.0, 4.0]]),)},
            {"x": (torch.tensor([[1.0, 2.0], [3.0, 4.1]]),)},
            what="output",
        )
    text = str(caught.value)
    assert text.startswith("output['x'][0]: 1 of 4 elements are wrong, the worst at [0, 1]")
    assert "compiled  2.5" in text and "eager's error here 0, at worst 0.1" in text


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_integers_and_bools_are_exact(dtype: torch.dtype) -> None:
    right = torch.tensor([0, 1], dtype=dtype)
    assert check_accuracy(right, right, right) == 0
    with pytest.raises(WrongResult, match="1 of 2 elements are wrong, the worst at \\[1\\]"):
        check_accuracy(torch.tensor([0, 0], dtype=dtype), right, right)


def test_integers_too_large_for_a_float_are_exact() -> None:
    with pytest.raises(WrongResult):
        check_accuracy(torch.tensor([2**62 + 1]), torch.tensor([2**62]), torch.tensor([2**62]))


def test_complex_parts_are_compared_by_themselves() -> None:
    right = torch.tensor([1 + 2j])
    assert check_accuracy(right, right, right.to(torch.complex128)) == 0
    with pytest.raises(WrongResult):
        check_accuracy(torch.tensor([1 - 2j]), right, right.to(torch.complex128))


@pytest.mark.parametrize(
    ("actual", "says"),
    [
        (torch.ones(2, 3, dtype=torch.float64), "dtype is torch.float64; in eager it is torch.float32"),
        (torch.ones(3, 2), "shape is"),
        (torch.ones(3, 2).t(), r"stride is \(1, 2\); in eager it is \(3, 1\)"),
        (torch.ones(2, 3, requires_grad=True), "requires_grad is True; in eager it is False"),
        (1.0, "is not a tensor"),
    ],
)
def test_form_is_eagers(actual: object, says: str) -> None:
    with pytest.raises(WrongResult, match=says):
        check_accuracy(actual, torch.ones(2, 3), torch.ones(2, 3, dtype=torch.float64))


def test_strides_of_one_element_are_free_and_all_are_if_asked() -> None:
    row = torch.empty_strided((1, 3), (7, 1)).fill_(1)
    assert check_accuracy(row, torch.ones(1, 3), torch.ones(1, 3, dtype=torch.float64)) == 0
    turned = torch.ones(3, 2).t()
    assert check_accuracy(turned, torch.ones(2, 3), torch.ones(2, 3).double(), policy=Policy(layout=False)) == 0


@pytest.mark.parametrize(("actual", "eager"), [((1,), [1]), (1, 1.0), (2, 1), ("a", "b"), (None, 0), ((1, 2), (1,))])
def test_other_values_are_equal(actual: object, eager: object) -> None:
    with pytest.raises(WrongResult):
        check_accuracy(actual, eager, eager)
    assert check_accuracy(eager, eager, eager) == 0


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.sampled_from([torch.float32, torch.bfloat16]))
def test_a_neighbour_passes_and_a_tenth_neighbour_does_not(value: float, dtype: torch.dtype) -> None:
    x = torch.tensor([value], dtype=dtype)
    bits = torch.int32 if dtype == torch.float32 else torch.int16
    neighbours = [(x.abs().view(bits) + step).view(dtype) for step in (1, 10)]
    if not neighbours[1].isfinite():
        return
    assert check_accuracy(neighbours[0], x.abs(), x.abs().double()) <= 1
    with pytest.raises(WrongResult):
        check_accuracy(neighbours[1], x.abs(), x.abs().double())


# torch's defaults for these are one and two units in the last place, which a rounded input alone may cost.
LAXER = ("float16", "bfloat16")


@pytest.mark.parametrize("name", PRECISIONS)
def test_the_table_is_no_laxer_than_torchs_defaults(name: str) -> None:
    from torch.testing._comparison import default_tolerances

    dtype: torch.dtype = getattr(torch, name)
    info = torch.finfo(dtype)
    assert info.eps == 2.0 ** -PRECISIONS[name].mantissa
    assert info.smallest_normal == 2.0 ** PRECISIONS[name].min_exponent
    rtol, _ = default_tolerances(dtype)
    assert (ULPS * info.eps <= rtol) == (name not in LAXER)


def test_places_of_nan_are_counted() -> None:
    eager = torch.tensor([[1.0, NAN, 3.0], [4.0, 5.0, NAN]])
    found = torch.tensor([[1.0, NAN, NAN], [NAN, 5.0, 6.0]])
    with pytest.raises(WrongResult) as caught:
        check_accuracy(found, eager, eager.double())
    assert str(caught.value).splitlines()[:2] == [
        "result: 3 of 6 elements are wrong, the worst at [0, 2]",
        "  NaN       only compiled has 2, only eager has 1; the first is at [0, 2]",
    ]
    assert "  error     not a number; eager's error here 0" in str(caught.value)
    with pytest.raises(WrongResult) as caught:
        check_accuracy(torch.tensor([INF]), torch.tensor([1.0]), torch.tensor([1.0]).double())
    assert "NaN" not in str(caught.value) and "  error     not a number" in str(caught.value)
