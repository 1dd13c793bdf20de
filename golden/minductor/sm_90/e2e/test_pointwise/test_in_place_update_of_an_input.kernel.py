# golden  tests/e2e/test_pointwise.py::test_in_place_update_of_an_input   target=sm_90  view=kernel  level=skeleton  form=2
# facts   kernels=1  block_accesses=4  tiles=1  bytes=8448  peak=2112

# aten.mul.Tensor: mul, mul_1
# aten.add.Tensor: add
# aten.copy_.default: copy_
@triton.jit
def fused_mul_add_mul_copy_0(io0, in1, out2, XBLOCK: tl.constexpr):
    i1 = tl.arange(0, XBLOCK)
    i1_mask = i1 < 528
    x0 = tl.load(io0 + i1, i1_mask)
    x1 = x0 * 0.9
    x2 = tl.load(in1 + i1, i1_mask)
    x3 = x2 * 0.1
    x4 = x1 + x3
    x5 = x4 * 2.0
    tl.store(out2 + i1, x5, i1_mask)
    tl.store(io0 + i1, x4, i1_mask)

# end of golden
