# golden  tests/e2e/test_gpu_kernels.py::test_kernel[argmax]   target=sm_90  view=kernel  level=canonical  form=2
# facts   kernels=1  block_accesses=2  bytes=2101248  peak=4096

@triton.jit
def argmax_f32_i64(a0, a1, b0, b1):
    x4 = b0 > a0
    x5 = a0 == b0
    x6 = a0 != a0
    x7 = b0 != b0
    x8 = ~x6
    x9 = x7 & x8
    x10 = x4 | x9
    x11 = x6 & x7
    x12 = x5 | x11
    x13 = b1 < a1
    x14 = x12 & x13
    x15 = x10 | x14
    x16 = tl.where(x15, b0, a0)
    x17 = tl.where(x15, b1, a1)
    return x16, x17


# aten.argmax.default: argmax
@triton.jit
def argmax_0(in0, out1, R0_BLOCK: tl.constexpr):
    i0 = tl.program_id(0)
    i1 = tl.arange(0, R0_BLOCK)
    x0 = tl.load(in0 + 1024 * i0 + i1)
    x1 = i1.to(tl.int64)
    x2, x3 = tl.reduce((x0, x1), 0, argmax_f32_i64)
    tl.store(out1 + i0, x3)

# end of golden
