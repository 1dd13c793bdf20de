"""Type promotion against torch.result_type, and the arithmetic of layouts."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from minductor.core.dtypes import TORCH_NAMES
from minductor.core.expressions.expr import as_int, integer
from minductor.frontend.capture.size_formulas import is_row_major, row_major
from minductor.frontend.lowering_context.values import element, promoted, view_like, wrap_dims
from minductor.ir.program.nodes import Ref, View

DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool", "complex64"]
NUMBERS = st.one_of(st.booleans(), st.integers(-5, 5), st.floats(-5, 5))
OPERANDS = st.one_of(NUMBERS, st.tuples(st.sampled_from(DTYPES), st.integers(0, 2)))


@given(OPERANDS, OPERANDS)
def test_promotion_is_torch_s(a: object, b: object) -> None:
    def ours(x):
        return view_like(TORCH_NAMES[x[0]], x[1]) if isinstance(x, tuple) else x

    def theirs(x):
        return torch.ones([1] * x[1], dtype=getattr(torch, x[0])) if isinstance(x, tuple) else x

    expected = torch.result_type(theirs(a), theirs(b))
    assert promoted([ours(a), ours(b)]) == TORCH_NAMES[str(expected).removeprefix("torch.")]


@given(st.lists(st.integers(1, 4), max_size=4))
def test_row_major_strides_are_torch_s(size: list[int]) -> None:
    ours = row_major([integer(n) for n in size])
    assert [as_int(s) for s in ours] == list(torch.empty(size).stride())
    assert is_row_major([integer(n) for n in size], ours)


def test_an_element_s_place_counts_the_offset() -> None:
    view = View(Ref("x", 0), TORCH_NAMES["float32"], (integer(2), integer(3)), (integer(6), integer(2)), integer(5))
    assert as_int(element(view, (integer(1), integer(2)))) == 5 + 6 + 4


def test_dimensions_wrap_and_none_means_all() -> None:
    assert wrap_dims((-1, 0), 3) == (0, 2)
    assert wrap_dims(None, 3) == wrap_dims((), 3) == (0, 1, 2)
    assert wrap_dims(-1, 0) == ()
