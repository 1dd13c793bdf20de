# golden  tests/e2e/test_gpu_kernels.py::test_kernel[cat_of_odd_parts]   target=sm_90  view=kernel  level=canonical  form=2
# facts   kernels=1  block_accesses=1  tiles=1  bytes=2244608  peak=1122304

# aten.mul.Tensor: mul, mul_1
# aten.cat.default: cat
@triton.jit
def fused_mul_cat_mul_0(in0, in1, out2, XBLOCK: tl.constexpr):
    i0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    x0 = i0 % 1096
    x1 = x0 < 1001
    x2 = tl.load(in0 + 1001 * (i0 // 1096) + i0 % 1096, x1).to(tl.float32)
    x3 = tl.where(x1, x2, 0.0)
    x4 = x3 * 2.0
    x5 = x0 >= 1001
    x6 = tl.load(in1 + 95 * (i0 // 1096) + i0 % 1096 - 1001, x5).to(tl.float32)
    x7 = tl.where(x5, x6, 0.0)
    x8 = x7 * 3.0
    x9 = tl.where(x1, x4, x8)
    tl.store(out2 + i0, x9)

# end of golden
