# golden  tests/e2e/test_gpu_kernels.py::test_kernel[cat]   target=sm_90  view=kernel  level=canonical  form=2
# facts   kernels=2  block_accesses=4  tiles=3  bytes=4603904  peak=2301952

# aten.cat.default: cat
# aten.relu.default: relu
@triton.jit
def fused_cat_relu_0(in0, out1, XBLOCK: tl.constexpr):
    i1 = tl.arange(0, XBLOCK)
    i0 = tl.program_id(0)
    x0 = tl.load(in0 + 1024 * i0 + i1)
    x1 = x0 <= 0.0
    x2 = tl.where(x1, 0.0, x0)
    tl.store(out1 + 1124 * i0 + i1, x2)

# aten.cat.default: cat
# aten.relu.default: relu
@triton.jit
def fused_cat_relu_1(in0, out1, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    i1 = tl.arange(0, XBLOCK)[None, :]
    i1_mask = i1 < 100
    i0 = tl.program_id(0) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    x0 = tl.load(in0 + 100 * i0 + i1, i1_mask)
    x1 = x0 <= 0.0
    x2 = tl.where(x1, 0.0, x0)
    tl.store(out1 + 1124 * i0 + i1 + 1024, x2, i1_mask)

# end of golden
