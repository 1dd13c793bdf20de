# golden  tests/e2e/test_mutants.py::test_sums_of_columns_on_a_gpu   target=interpret  view=kernel  level=canonical  form=2
# facts   kernels=2  block_accesses=4  tiles=2  bytes=1065472  peak=8704

# aten.sum.dim_IntList: sum_1
@triton.jit
def sum_0(in0, out1, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    program = tl.program_id(0)
    i1 = program % tl.cdiv(128, XBLOCK) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    program = program // tl.cdiv(128, XBLOCK)
    i0 = program
    sum1 = tl.full([XBLOCK, R0_BLOCK], 0.0, tl.float32)
    for i2_start in range(0, 128, R0_BLOCK):
        i2 = i2_start + tl.arange(0, R0_BLOCK)[None, :]
        x0 = tl.load(in0 + 16384 * i0 + i1 + 128 * i2)
        sum1 += x0
    x1 = tl.sum(sum1, 1, keep_dims=True)
    tl.store(out1 + 128 * i0 + i1, x1)

# aten.sum.dim_IntList: sum_1
@triton.jit
def sum_1(in0, out1, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    i0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i1 = tl.arange(0, R0_BLOCK)[None, :]
    x0 = tl.load(in0 + i0 + 128 * i1)
    x1 = tl.sum(x0, 1, keep_dims=True)
    tl.store(out1 + i0, x1)

# end of golden
