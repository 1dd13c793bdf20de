# golden  tests/e2e/test_reduce.py::test_softmax   target=sm_90  view=kernel  level=skeleton  form=2
# facts   kernels=1  block_accesses=2  tiles=1  bytes=51200  peak=25600

@triton.jit
def max_f32(a0, b0):
    x2 = tl.maximum(a0, b0, tl.PropagateNan.ALL)
    return x2


# aten._softmax.default: _softmax
@triton.jit
def softmax_0(in0, out1, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    i0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i1 = tl.arange(0, R0_BLOCK)[None, :]
    i1_mask = i1 < 200
    x0 = tl.load(in0 + 200 * i0 + i1, i1_mask)
    x1 = tl.reduce(tl.where(i1_mask, x0, float("-inf")), 1, max_f32, keep_dims=True)
    x2 = x0 - x1
    x3 = libdevice.exp(x2)
    x4 = tl.sum(tl.where(i1_mask, x3, 0.0), 1, keep_dims=True)
    x5 = tl.div_rn(x3, x4)
    tl.store(out1 + 200 * i0 + i1, x5, i1_mask)

# end of golden
