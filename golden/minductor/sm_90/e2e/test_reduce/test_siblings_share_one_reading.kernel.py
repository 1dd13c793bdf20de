# golden  tests/e2e/test_reduce.py::test_siblings_share_one_reading   target=sm_90  view=kernel  level=skeleton  form=2
# facts   kernels=1  block_accesses=4  tiles=1  bytes=20960  peak=480

@triton.jit
def max_f32(a0, b0):
    x2 = tl.maximum(a0, b0, tl.PropagateNan.ALL)
    return x2


# aten.sum.dim_IntList: sum_1
# aten.amax.default: amax
# aten.pow.Tensor_Scalar: pow_1
# aten.mean.dim: mean
@triton.jit
def fused_sum_amax_pow_mean_0(in0, out1, out2, out3, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    i0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i1 = tl.arange(0, R0_BLOCK)[None, :]
    x0 = tl.load(in0 + 128 * i0 + i1)
    x1 = tl.sum(x0, 1, keep_dims=True)
    tl.store(out1 + i0, x1)
    x2 = tl.reduce(x0, 1, max_f32, keep_dims=True)
    tl.store(out2 + i0, x2)
    x3 = x0 * x0
    x4 = tl.sum(x3, 1, keep_dims=True)
    x5 = tl.div_rn(x4, 128.0)
    tl.store(out3 + i0, x5)

# end of golden
