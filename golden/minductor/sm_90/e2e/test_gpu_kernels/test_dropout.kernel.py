# golden  tests/e2e/test_gpu_kernels.py::test_dropout   target=sm_90  view=kernel  level=canonical  form=2
# facts   kernels=1  externs=1  block_accesses=2  tiles=1  bytes=4194312  peak=2097160

# aten.native_dropout.default: native_dropout
# aten.mul.Tensor: mul
@triton.jit
def fused_dropout_mul_0(in0, in1, out2, XBLOCK: tl.constexpr):
    i1 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    x0 = i1.to(tl.int64)
    x1 = tl.load(in0)
    x2 = md_philox(x1, tl.full([], 0, tl.int64), x0)
    x3 = x2 & 16777215
    x4 = x3.to(tl.float32)
    x5 = x4 * 5.960464477539063e-08
    x6 = x5 >= 0.2
    x7 = tl.load(in1 + i1)
    x8 = x7 * 1.25
    x9 = tl.where(x6, x8, 0.0)
    x10 = x9 * 2.0
    tl.store(out2 + i1, x10)

# end of golden
