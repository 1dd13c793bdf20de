# golden  tests/e2e/test_mutants.py::test_a_row_that_a_program_holds   target=interpret  view=kernel  level=canonical  form=2
# facts   kernels=1  block_accesses=2  tiles=1  bytes=6400  peak=3200

# aten.sum.dim_IntList: sum_1
# aten.sub.Tensor: sub
@triton.jit
def fused_sum_sub_0(in0, out1, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    i0 = tl.arange(0, XBLOCK)[:, None]
    i1 = tl.arange(0, R0_BLOCK)[None, :]
    i1_mask = i1 < 100
    x0 = tl.load(in0 + 100 * i0 + i1, i1_mask)
    x1 = tl.sum(tl.where(i1_mask, x0, 0.0), 1, keep_dims=True)
    x2 = x0 - x1
    tl.store(out1 + 100 * i0 + i1, x2, i1_mask)

# end of golden
