# golden  tests/e2e/test_mutants.py::test_a_long_row_on_a_gpu   target=interpret  view=kernel  level=canonical  form=2
# facts   kernels=1  block_accesses=1  bytes=80004  peak=4

# aten.sum.default: sum_1
@triton.jit
def sum_0(in0, out1, R0_BLOCK: tl.constexpr):
    sum1 = tl.full([R0_BLOCK], 0.0, tl.float32)
    for i0_start in range(0, 20000, R0_BLOCK):
        i0 = i0_start + tl.arange(0, R0_BLOCK)
        i0_mask = i0 < 20000
        x0 = tl.load(in0 + i0, i0_mask)
        sum1 += tl.where(i0_mask, x0, 0.0)
    x1 = tl.sum(sum1, 0)
    tl.store(out1, x1)

# end of golden
