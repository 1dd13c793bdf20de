# golden  tests/e2e/test_gpu_kernels.py::test_adam_step   target=sm_90  view=kernel  level=canonical  form=2
# facts   kernels=2  block_accesses=21  tiles=3  bytes=462336

# aten._foreach_sub.List: _foreach_sub
# aten.full_like.default: full_like, full_like_2
# aten._foreach_addcmul.Scalar: _foreach_addcmul, _foreach_addcmul_1
# aten._foreach_mul.Scalar: _foreach_mul
# aten.copy_.default: copy_, copy__3, copy__6, copy__2, copy__5, copy__8
# aten._foreach_sqrt.default: _foreach_sqrt
# aten._foreach_add.Scalar: _foreach_add
# aten._foreach_addcdiv.Scalar: _foreach_addcdiv
@triton.jit
def fused_foreach_sub_full_like_copy_full_like_copy_0(io0, io1, in2, io3, io4, io5, in6, io7, XBLOCK: tl.constexpr):
    number = tl.program_id(0)
    end0 = tl.cdiv(8192, XBLOCK)
    if number < end0:
        i0 = number * XBLOCK + tl.arange(0, XBLOCK)
        x0 = tl.load(io0 + i0)
        x1 = x0 * 0.999
        x2 = tl.load(io1 + i0)
        x3 = tl.load(in2 + i0)
        x4 = x3 - x2
        x5 = 0.1 * x4
        x6 = x2 + x5
        x7 = tl.load(io3 + i0)
        x8 = x3 * 0.001
        x9 = x8 * x3
        x10 = x1 + x9
        x11 = tl.sqrt_rn(x10)
        x12 = x11 + 1e-08
        x13 = x6 * (-0.001)
        x14 = tl.div_rn(x13, x12)
        x15 = x7 + x14
        tl.store(io3 + i0, x15)
        tl.store(io1 + i0, x6)
        tl.store(io0 + i0, x10)
    end1 = end0 + tl.cdiv(8192, XBLOCK)
    if (number >= end0) & (number < end1):
        i1 = (number - end0) * XBLOCK + tl.arange(0, XBLOCK)
        x16 = tl.load(io4 + i1)
        x17 = x16 * 0.999
        x18 = tl.load(io5 + i1)
        x19 = tl.load(in6 + i1)
        x20 = x19 - x18
        x21 = 0.1 * x20
        x22 = x18 + x21
        x23 = tl.load(io7 + i1)
        x24 = x19 * 0.001
        x25 = x24 * x19
        x26 = x17 + x25
        x27 = tl.sqrt_rn(x26)
        x28 = x27 + 1e-08
        x29 = x22 * (-0.001)
        x30 = tl.div_rn(x29, x28)
        x31 = x23 + x30
        tl.store(io7 + i1, x31)
        tl.store(io5 + i1, x22)
        tl.store(io4 + i1, x26)

# aten._foreach_sub.List: _foreach_sub
# aten.full_like.default: full_like_1
# aten._foreach_addcmul.Scalar: _foreach_addcmul, _foreach_addcmul_1
# aten._foreach_mul.Scalar: _foreach_mul
# aten.copy_.default: copy__1, copy__4, copy__7
# aten._foreach_sqrt.default: _foreach_sqrt
# aten._foreach_add.Scalar: _foreach_add
# aten._foreach_addcdiv.Scalar: _foreach_addcdiv
@triton.jit
def fused_foreach_sub_full_like_foreach_add_foreach_addcdiv_copy_1(io0, io1, in2, io3, XBLOCK: tl.constexpr):
    i0 = tl.arange(0, XBLOCK)
    x0 = tl.load(io0 + i0)
    x1 = x0 * 0.999
    x2 = tl.load(io1 + i0)
    x3 = tl.load(in2 + i0)
    x4 = x3 - x2
    x5 = 0.1 * x4
    x6 = x2 + x5
    x7 = tl.load(io3 + i0)
    x8 = x3 * 0.001
    x9 = x8 * x3
    x10 = x1 + x9
    x11 = tl.sqrt_rn(x10)
    x12 = x11 + 1e-08
    x13 = x6 * (-0.001)
    x14 = tl.div_rn(x13, x12)
    x15 = x7 + x14
    tl.store(io3 + i0, x15)
    tl.store(io1 + i0, x6)
    tl.store(io0 + i0, x10)

# end of golden
