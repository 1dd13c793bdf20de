# golden  tests/e2e/test_mutants.py::test_a_long_row_that_is_read_again   target=interpret  view=kernel  level=canonical  form=2
# facts   kernels=1  block_accesses=2  bytes=2560000  peak=1280000

# aten.sum.dim_IntList: sum_1
# aten.sub.Tensor: sub
@triton.jit
def fused_sum_sub_0(in0, out1, R0_BLOCK: tl.constexpr):
    i0 = tl.program_id(0)
    sum1 = tl.full([R0_BLOCK], 0.0, tl.float32)
    for i1_start in range(0, 5000, R0_BLOCK):
        i1 = i1_start + tl.arange(0, R0_BLOCK)
        i1_mask = i1 < 5000
        x0 = tl.load(in0 + 5000 * i0 + i1, i1_mask, eviction_policy="evict_last")
        sum1 += tl.where(i1_mask, x0, 0.0)
    x1 = tl.sum(sum1, 0)
    for i1_start in range(0, 5000, R0_BLOCK):
        i1 = i1_start + tl.arange(0, R0_BLOCK)
        i1_mask = i1 < 5000
        x2 = tl.load(in0 + 5000 * i0 + i1, i1_mask, eviction_policy="evict_first")
        x3 = x2 - x1
        tl.store(out1 + 5000 * i0 + i1, x3, i1_mask, eviction_policy="evict_first")

# end of golden
