# golden  tests/e2e/test_pointwise.py::test_dynamic_sizes   target=sm_90  view=kernel  level=skeleton  form=2
# facts   kernels=1  block_accesses=3  tiles=1  bytes=416

# aten.mul.Tensor: mul
# aten.add.Tensor: add_3
@triton.jit
def fused_mul_add_0(in0, in1, out2, s0, s1, INDEX_BITS: tl.constexpr, XBLOCK: tl.constexpr):
    INDEX: tl.constexpr = tl.int64 if INDEX_BITS == 64 else tl.int32
    program = tl.program_id(0).to(INDEX)
    i1 = program % tl.cdiv(s1, XBLOCK) * XBLOCK + tl.arange(0, XBLOCK).to(INDEX)
    i1_mask = i1 < s1
    program = program // tl.cdiv(s1, XBLOCK)
    i0 = program
    x0 = tl.load(in0 + i0 * s1 + i1, i1_mask)
    x1 = x0 * 2.0
    x2 = tl.load(in1 + i1, i1_mask)
    x3 = x1 + x2
    tl.store(out2 + i0 * s1 + i1, x3, i1_mask)

# end of golden
