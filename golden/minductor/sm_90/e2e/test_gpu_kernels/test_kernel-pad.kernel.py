# golden  tests/e2e/test_gpu_kernels.py::test_kernel[pad]   target=sm_90  view=kernel  level=canonical  form=2
# facts   kernels=1  block_accesses=2  tiles=1  bytes=4212772  peak=2115620

# aten.constant_pad_nd.default: constant_pad_nd
# aten.mul.Tensor: mul
@triton.jit
def fused_constant_pad_nd_mul_0(in0, out1, XBLOCK: tl.constexpr):
    program = tl.program_id(0)
    i1 = program % tl.cdiv(1027, XBLOCK) * XBLOCK + tl.arange(0, XBLOCK)
    i1_mask = i1 < 1027
    program = program // tl.cdiv(1027, XBLOCK)
    i0 = program
    x0 = i0 - 3
    x1 = x0 >= 0
    x2 = i1 - 1
    x3 = x2 >= 0
    x4 = x2 < 1024
    x5 = x1 & x3
    x6 = x5 & x4
    x7 = tl.load(in0 + 1024 * i0 + i1 - 3073, i1_mask & x6)
    x8 = tl.where(x6, x7, 1.0)
    x9 = x8 * 2.0
    tl.store(out1 + 1027 * i0 + i1, x9, i1_mask)

# end of golden
