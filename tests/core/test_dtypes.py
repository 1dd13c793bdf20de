"""Every fact about a dtype is torch's."""

from __future__ import annotations

import pytest
import torch

from minductor.core.dtypes import (
    BF16,
    C64,
    DTYPES,
    F8E5M2FNUZ,
    F16,
    F32,
    F64,
    I8,
    TORCH_NAMES,
    DType,
    by_name,
    complex_parts,
    compute_dtype,
    promote,
)


def torchs(dtype: DType) -> torch.dtype:
    return getattr(torch, dtype.torch_name)


@pytest.mark.parametrize("a", DTYPES, ids=str)
def test_promotion_is_torchs(a: DType) -> None:
    for b in DTYPES:
        try:
            expected = torch.promote_types(torchs(a), torchs(b))
        except RuntimeError:
            with pytest.raises(TypeError, match="does not promote"):
                promote(a, b)
        else:
            assert torchs(promote(a, b)) == expected, b


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_limits_are_torchs(dtype: DType) -> None:
    theirs = torchs(dtype)
    assert dtype.itemsize == theirs.itemsize and dtype.bits == 8 * theirs.itemsize
    assert (dtype.kind == "float") == theirs.is_floating_point
    assert (dtype.kind == "complex") == theirs.is_complex
    if dtype.kind in ("int", "uint"):
        info = torch.iinfo(theirs)
        assert (dtype.min_value, dtype.max_value) == (info.min, info.max)
    elif dtype.kind != "bool":
        limits = torch.finfo(theirs)
        assert (dtype.min_value, dtype.max_value) == (limits.min, limits.max)
        if dtype is not F8E5M2FNUZ:  # torch says 2**-3, of a format with two fraction bits
            assert dtype.eps == limits.eps


def test_names_lead_to_dtypes() -> None:
    assert by_name("bf16") is BF16 and TORCH_NAMES["bfloat16"] is BF16 and str(BF16) == repr(BF16) == "bf16"
    assert len({dtype.name for dtype in DTYPES}) == len(DTYPES) == len(TORCH_NAMES)
    with pytest.raises(ValueError, match="unknown dtype 'float33'"):
        by_name("float33")


def test_small_floats_are_computed_in_f32() -> None:
    assert compute_dtype(F16) is F32 and compute_dtype(BF16) is F32 and compute_dtype(by_name("f8e5m2")) is F32
    assert compute_dtype(F64) is F64 and compute_dtype(I8) is I8 and compute_dtype(C64) is C64
    assert complex_parts(C64) is F32 and complex_parts(I8) is I8
