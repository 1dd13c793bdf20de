# golden  tests/e2e/test_mutants.py::test_a_softmax_in_parts   target=interpret  view=kernel  level=canonical  form=2
# facts   kernels=2  block_accesses=13  tiles=4  bytes=482432  peak=160016

@triton.jit
def max_f32(a0, b0):
    x2 = tl.maximum(a0, b0, tl.PropagateNan.ALL)
    return x2


@triton.jit
def online_softmax_f32_f32_f32(a0, a1, a2, b0, b1, b2):
    x6 = tl.maximum(a1, b1, tl.PropagateNan.ALL)
    x7 = tl.minimum(a1, b1, tl.PropagateNan.ALL)
    x8 = a1 == b1
    x10 = x7 - x6
    x11 = libdevice.exp(x10)
    x12 = tl.where(x8, 1.0, x11)
    x13 = b1 > a1
    x14 = tl.where(x13, b2, a2)
    x15 = tl.where(x13, a2, b2)
    x16 = tl.maximum(a0, b0, tl.PropagateNan.ALL)
    x17 = x15 * x12
    x18 = x17 + x14
    return x16, x6, x18


# aten.mul.Tensor: mul
# aten._softmax.default: _softmax
@triton.jit
def fused_mul_softmax_0(in0, out1, out2, out3, out4, out5, counter, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr, LAST_XBLOCK: tl.constexpr, LAST_R0_BLOCK: tl.constexpr):
    i0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[None, :, None]
    i1 = tl.arange(0, YBLOCK)[:, None, None]
    i2 = tl.arange(0, R0_BLOCK)[None, None, :]
    i2_mask = i2 < 400
    x0 = tl.load(in0 + 400 * i0 + 20000 * i1 + i2, i2_mask)
    x1 = x0 * 60.0
    x2 = tl.reduce(tl.where(i2_mask, x1, float("-inf")), 2, max_f32, keep_dims=True)
    x3 = tl.maximum(x2, (-3.4028234663852886e+38), tl.PropagateNan.ALL)
    x4 = tl.minimum(x3, 3.4028234663852886e+38, tl.PropagateNan.ALL)
    x5 = x4 * 0.03125
    x6 = libdevice.nearbyint(x5)
    x7 = x6 * 32.0
    x8 = x1 - x7
    x9 = libdevice.exp(x8)
    x10 = tl.sum(tl.where(i2_mask, x9, 0.0), 2, keep_dims=True)
    tl.store(out1 + 2 * i0 + i1, x2)
    tl.store(out2 + 2 * i0 + i1, x7)
    tl.store(out3 + 2 * i0 + i1, x10)
    tl.debug_barrier()
    if tl.atomic_add(counter, 1, sem='acq_rel', scope='gpu') == tl.num_programs(0) - 1:
        tl.store(counter, 0)
        i3 = tl.arange(0, LAST_XBLOCK)[:, None]
        i4 = tl.arange(0, LAST_R0_BLOCK)[None, :]
        i4_mask = i4 < 50
        x11 = tl.load(out1 + i3 + 2 * i4, i4_mask)
        x12 = tl.load(out2 + i3 + 2 * i4, i4_mask)
        x13 = tl.load(out3 + i3 + 2 * i4, i4_mask)
        x14, x15, x16 = tl.reduce((tl.where(i4_mask, x11, float("-inf")), tl.where(i4_mask, x12, float("-inf")), tl.where(i4_mask, x13, 0.0)), 1, online_softmax_f32_f32_f32, keep_dims=True)
        x17 = x15 - x14
        x18 = libdevice.exp(x17)
        x19 = x16 * x18
        tl.store(out4 + i3, x14)
        tl.store(out5 + i3, x19)

# aten.mul.Tensor: mul
# aten._softmax.default: _softmax
@triton.jit
def fused_mul_softmax_1(in0, in1, in2, out3, XBLOCK: tl.constexpr):
    program = tl.program_id(0)
    i1 = program % tl.cdiv(20000, XBLOCK) * XBLOCK + tl.arange(0, XBLOCK)
    i1_mask = i1 < 20000
    program = program // tl.cdiv(20000, XBLOCK)
    i0 = program
    x0 = tl.load(in0 + 20000 * i0 + i1, i1_mask)
    x1 = x0 * 60.0
    x2 = tl.load(in1 + i0)
    x3 = x1 - x2
    x4 = libdevice.exp(x3)
    x5 = tl.load(in2 + i0)
    x6 = tl.div_rn(x4, x5)
    tl.store(out3 + 20000 * i0 + i1, x6, i1_mask)

# end of golden
