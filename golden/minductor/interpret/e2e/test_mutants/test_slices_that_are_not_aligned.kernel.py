# golden  tests/e2e/test_mutants.py::test_slices_that_are_not_aligned   target=interpret  view=kernel  level=canonical  form=2
# facts   kernels=1  block_accesses=1  tiles=1  bytes=704  peak=352

# aten.mul.Tensor: mul
# aten.cat.default: cat
@triton.jit
def fused_mul_cat_0(in0, in1, out2, XBLOCK: tl.constexpr):
    i0 = tl.arange(0, XBLOCK)
    i0_mask = i0 < 88
    x0 = i0 % 11
    x1 = x0 < 5
    x2 = tl.load(in0 + 5 * (i0 // 11) + i0 % 11, i0_mask & x1)
    x3 = tl.where(x1, x2, 0.0)
    x4 = x3 * 2.0
    x5 = x0 >= 5
    x6 = tl.load(in1 + 6 * (i0 // 11) + i0 % 11 - 5, i0_mask & x5)
    x7 = tl.where(x5, x6, 0.0)
    x8 = tl.where(x1, x4, x7)
    tl.store(out2 + i0, x8, i0_mask)

# end of golden
