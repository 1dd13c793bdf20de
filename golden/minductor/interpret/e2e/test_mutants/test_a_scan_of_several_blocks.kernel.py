# golden  tests/e2e/test_mutants.py::test_a_scan_of_several_blocks   target=interpret  view=kernel  level=canonical  form=2
# facts   kernels=1  block_accesses=2  bytes=160000  peak=80000

@triton.jit
def sum_f64(a0, b0):
    x2 = a0 + b0
    return x2


@triton.jit
def end_of_1(end_a, a0, end_b, b0):
    return end_a | end_b, tl.where(end_b, b0, a0)


# aten.cumsum.default: cumsum
@triton.jit
def cumsum_0(in0, out1, R0_BLOCK: tl.constexpr):
    sum2 = tl.full([], 0.0, tl.float64)
    for i0_start in range(0, 20000, R0_BLOCK):
        i0 = i0_start + tl.arange(0, R0_BLOCK)
        i0_mask = i0 < 20000
        x0 = tl.load(in0 + i0, i0_mask)
        x1 = x0.to(tl.float64)
        x2 = tl.associative_scan(tl.where(i0_mask, x1, 0.0), 0, sum_f64)
        x2 = sum_f64(sum2, x2)
        x3 = tl.arange(0, R0_BLOCK) == R0_BLOCK - 1
        x3, sum2 = tl.reduce((tl.broadcast_to(x3, [R0_BLOCK]), x2), 0, end_of_1)
        x4 = x2.to(tl.float32)
        tl.store(out1 + i0, x4, i0_mask)

# end of golden
