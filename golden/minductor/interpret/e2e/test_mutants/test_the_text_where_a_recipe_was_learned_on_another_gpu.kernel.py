# golden  tests/e2e/test_mutants.py::test_the_text_where_a_recipe_was_learned_on_another_gpu   target=interpret  view=kernel  level=canonical  form=2
# facts   kernels=1  block_accesses=2  bytes=384000  peak=192000

@triton.jit
def max_f32(a0, b0):
    x2 = tl.maximum(a0, b0, tl.PropagateNan.ALL)
    return x2


# aten._softmax.default: _softmax
@triton.jit
def softmax_0(in0, out1, R0_BLOCK: tl.constexpr):
    i0 = tl.program_id(0)
    i1 = tl.arange(0, R0_BLOCK)
    i1_mask = i1 < 3000
    x0 = tl.load(in0 + 3000 * i0 + i1, i1_mask)
    x1 = tl.reduce(tl.where(i1_mask, x0, float("-inf")), 0, max_f32)
    x2 = x0 - x1
    x3 = libdevice.exp(x2)
    x4 = tl.sum(tl.where(i1_mask, x3, 0.0), 0)
    x5 = tl.div_rn(x3, x4)
    tl.store(out1 + 3000 * i0 + i1, x5, i1_mask)

# end of golden
