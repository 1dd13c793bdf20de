# golden  tests/e2e/test_gpu_kernels.py::test_kernel[softmax_of_long_rows]   target=sm_90  view=kernel  level=canonical  form=1
# facts   kernels=1  block_accesses=2  bytes=20480000  peak=10240000

@triton.jit
def softmax_0_max_f32(a0, b0):
    x2 = tl.maximum(a0, b0, tl.PropagateNan.ALL)
    return x2


# aten._softmax.default: _softmax
@triton.jit
def softmax_0(in0, out1, R0_BLOCK: tl.constexpr):
    i0 = tl.program_id(0)
    sum1 = tl.full([R0_BLOCK], float("-inf"), tl.float32)
    for i1_start in range(0, 10000, R0_BLOCK):
        i1 = i1_start + tl.arange(0, R0_BLOCK)
        i1_mask = i1 < 10000
        x0 = tl.load(in0 + 10000 * i0 + i1, i1_mask)
        sum1 = softmax_0_max_f32(sum1, tl.where(i1_mask, x0, float("-inf")))
    x1 = tl.reduce(sum1, 0, softmax_0_max_f32)
    sum4 = tl.full([R0_BLOCK], 0.0, tl.float32)
    for i1_start in range(0, 10000, R0_BLOCK):
        i1 = i1_start + tl.arange(0, R0_BLOCK)
        i1_mask = i1 < 10000
        x2 = tl.load(in0 + 10000 * i0 + i1, i1_mask)
        x3 = x2 - x1
        x4 = libdevice.exp(x3)
        sum4 += tl.where(i1_mask, x4, 0.0)
    x5 = tl.sum(sum4, 0)
    for i1_start in range(0, 10000, R0_BLOCK):
        i1 = i1_start + tl.arange(0, R0_BLOCK)
        i1_mask = i1 < 10000
        x6 = tl.load(in0 + 10000 * i0 + i1, i1_mask)
        x7 = x6 - x1
        x8 = libdevice.exp(x7)
        x9 = tl.div_rn(x8, x5)
        tl.store(out1 + 10000 * i0 + i1, x9, i1_mask)
