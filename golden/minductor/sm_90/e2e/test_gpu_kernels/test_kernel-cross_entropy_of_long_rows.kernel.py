# golden  tests/e2e/test_gpu_kernels.py::test_kernel[cross_entropy_of_long_rows]   target=sm_90  view=kernel  level=canonical  form=2
# facts   kernels=2  block_accesses=12  tiles=1  bytes=525754370  peak=204802

@triton.jit
def max_f32(a0, b0):
    x2 = tl.maximum(a0, b0, tl.PropagateNan.ALL)
    return x2


# aten._log_softmax.default: _log_softmax
@triton.jit
def log_softmax_0(in0, out1, out2, out3, R0_BLOCK: tl.constexpr):
    program = tl.program_id(0)
    i0 = program % 16
    program = program // 16
    i1 = program
    i2 = tl.arange(0, R0_BLOCK)
    i2_mask = i2 < 8016
    x0 = tl.load(in0 + 8016 * i0 + 128256 * i1 + i2, i2_mask).to(tl.float32)
    x1 = tl.reduce(tl.where(i2_mask, x0, float("-inf")), 0, max_f32)
    x2 = tl.maximum(x1, (-3.4028234663852886e+38), tl.PropagateNan.ALL)
    x3 = tl.minimum(x2, 3.4028234663852886e+38, tl.PropagateNan.ALL)
    x4 = x3 * 0.03125
    x5 = libdevice.nearbyint(x4)
    x6 = x5 * 32.0
    x7 = x0 - x6
    x8 = md_fast_exp(x7)
    x9 = tl.sum(tl.where(i2_mask, x8, 0.0), 0)
    tl.store(out1 + 1024 * i0 + i1, x1)
    tl.store(out2 + 1024 * i0 + i1, x6)
    tl.store(out3 + 1024 * i0 + i1, x9)

@triton.jit
def fast_online_softmax_f32_f32_f32(a0, a1, a2, b0, b1, b2):
    x6 = tl.maximum(a1, b1, tl.PropagateNan.ALL)
    x7 = tl.minimum(a1, b1, tl.PropagateNan.ALL)
    x8 = a1 == b1
    x10 = x7 - x6
    x11 = md_fast_exp(x10)
    x12 = tl.where(x8, 1.0, x11)
    x13 = b1 > a1
    x14 = tl.where(x13, b2, a2)
    x15 = tl.where(x13, a2, b2)
    x16 = tl.maximum(a0, b0, tl.PropagateNan.ALL)
    x17 = x15 * x12
    x18 = x17 + x14
    return x16, x6, x18


# aten._log_softmax.default: _log_softmax
# aten.nll_loss_forward.default: nll_loss_forward
@triton.jit
def fused_log_softmax_nll_loss_forward_1(in0, in1, in2, out3, out4, in5, in6, out7, counter, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr, LAST_R0_BLOCK: tl.constexpr):
    i0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i1 = tl.arange(0, R0_BLOCK)[None, :]
    x0 = tl.load(in0 + i0 + 1024 * i1)
    x1 = tl.load(in1 + i0 + 1024 * i1)
    x2 = tl.load(in2 + i0 + 1024 * i1)
    x3, x4, x5 = tl.reduce((x0, x1, x2), 1, fast_online_softmax_f32_f32_f32, keep_dims=True)
    tl.store(out3 + i0, x3)
    x6 = x4 - x3
    x7 = md_fast_exp(x6)
    x8 = x5 * x7
    tl.store(out4 + i0, x8)
    tl.debug_barrier()
    if tl.atomic_add(counter, 1, sem='acq_rel', scope='gpu') == tl.num_programs(0) - 1:
        tl.store(counter, 0)
        i2 = tl.arange(0, LAST_R0_BLOCK)
        x9 = tl.load(in5 + i2)
        x10 = x9 != (-100)
        x11 = tl.where(x10, x9, 0)
        v0 = x11
        v0_exists = (v0 >= 0) & (v0 < 128256)
        tl.device_assert(v0_exists, 'IndexError: Target is out of bounds. Dimension 1 has size 128256 in aten.nll_loss_forward.default')
        v0 = tl.where(v0_exists, v0, 0)
        x12 = tl.load(in6 + 128256 * i2 + v0).to(tl.float32)
        x13 = tl.load(out3 + i2)
        x14 = tl.load(out4 + i2)
        x15 = x12 - x13
        x16 = tl.log(x14)
        x17 = x15 - x16
        x18 = -x17
        x19 = tl.where(x10, x18, 0.0)
        x20 = tl.sum(x19, 0)
        x21 = tl.where(x10, 1.0, 0.0)
        x22 = tl.sum(x21, 0)
        x23 = x20 / x22
        tl.store(out7, x23)

# end of golden
