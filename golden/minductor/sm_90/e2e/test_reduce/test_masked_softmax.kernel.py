# golden  tests/e2e/test_reduce.py::test_masked_softmax   target=sm_90  view=kernel  level=skeleton  form=2
# facts   kernels=1  block_accesses=3  tiles=1  bytes=37440  peak=18432

@triton.jit
def max_f32(a0, b0):
    x2 = tl.maximum(a0, b0, tl.PropagateNan.ALL)
    return x2


# aten.div.Tensor: div
# aten.masked_fill.Scalar: masked_fill
# aten._softmax.default: _softmax
@triton.jit
def fused_div_masked_fill_softmax_0(in0, in1, out2, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    i2 = tl.arange(0, XBLOCK)[:, None]
    i2_mask = i2 < 24
    i1 = tl.program_id(0)
    i3 = tl.arange(0, R0_BLOCK)[None, :]
    i3_mask = i3 < 24
    x0 = tl.load(in0 + 24 * i2 + i3, i2_mask & i3_mask)
    x1 = tl.load(in1 + 576 * i1 + 24 * i2 + i3, i2_mask & i3_mask)
    x2 = tl.div_rn(x1, 8.0)
    x3 = tl.where(x0, float("-inf"), x2)
    x4 = tl.reduce(tl.where(i3_mask, x3, float("-inf")), 1, max_f32, keep_dims=True)
    x5 = x3 - x4
    x6 = libdevice.exp(x5)
    x7 = tl.sum(tl.where(i3_mask, x6, 0.0), 1, keep_dims=True)
    x8 = tl.div_rn(x6, x7)
    tl.store(out2 + 576 * i1 + 24 * i2 + i3, x8, i2_mask & i3_mask)

# end of golden
