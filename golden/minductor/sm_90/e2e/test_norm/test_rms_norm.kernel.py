# golden  tests/e2e/test_norm.py::test_rms_norm   target=sm_90  view=kernel  level=skeleton  form=2
# facts   kernels=1  block_accesses=3  tiles=1  bytes=66560  peak=32768

# aten.pow.Tensor_Scalar: pow_1
# aten.mean.dim: mean
# aten.add.Tensor: add
# aten.rsqrt.default: rsqrt
# aten.mul.Tensor: mul, mul_1
@triton.jit
def fused_pow_mean_add_rsqrt_mul_0(in0, in1, out2, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    i0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i1 = tl.arange(0, R0_BLOCK)[None, :]
    x0 = tl.load(in0 + 256 * i0 + i1)
    x1 = x0 * x0
    x2 = tl.sum(x1, 1, keep_dims=True)
    x3 = tl.div_rn(x2, 256.0)
    x4 = x3 + 1e-05
    x5 = libdevice.rsqrt(x4)
    x6 = x0 * x5
    x7 = tl.load(in1 + i1)
    x8 = x6 * x7
    tl.store(out2 + 256 * i0 + i1, x8)

# end of golden
