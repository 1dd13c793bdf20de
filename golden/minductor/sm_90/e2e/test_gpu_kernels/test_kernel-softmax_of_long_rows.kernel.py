# golden  tests/e2e/test_gpu_kernels.py::test_kernel[softmax_of_long_rows]   target=sm_90  view=kernel  level=canonical  form=2
# facts   kernels=1  block_accesses=2  bytes=20480000  peak=10240000

@triton.jit
def max_f32(a0, b0):
    x2 = tl.maximum(a0, b0, tl.PropagateNan.ALL)
    return x2


# aten._softmax.default: _softmax
@triton.jit
def softmax_0(in0, out1, R0_BLOCK: tl.constexpr):
    i0 = tl.program_id(0)
    i1 = tl.arange(0, R0_BLOCK)
    i1_mask = i1 < 10000
    x0 = tl.load(in0 + 10000 * i0 + i1, i1_mask)
    x1 = tl.reduce(tl.where(i1_mask, x0, float("-inf")), 0, max_f32)
    x2 = x0 - x1
    x3 = libdevice.exp(x2)
    x4 = tl.sum(tl.where(i1_mask, x3, 0.0), 0)
    x5 = tl.div_rn(x3, x4)
    tl.store(out1 + 10000 * i0 + i1, x5, i1_mask)

# end of golden
