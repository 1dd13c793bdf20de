# golden  tests/e2e/test_gpu_kernels.py::test_kernel[sum_of_columns]   target=sm_90  view=kernel  level=canonical  form=2
# facts   kernels=2  block_accesses=4  tiles=2  bytes=16516000  peak=68000

# aten.sum.dim_IntList: sum_1
@triton.jit
def sum_0(in0, out1, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    program = tl.program_id(0)
    i1 = program % tl.cdiv(1000, XBLOCK) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i1_mask = i1 < 1000
    program = program // tl.cdiv(1000, XBLOCK)
    i0 = program
    sum1 = tl.full([XBLOCK, R0_BLOCK], 0.0, tl.float32)
    for i2_start in range(0, 256, R0_BLOCK):
        i2 = i2_start + tl.arange(0, R0_BLOCK)[None, :]
        x0 = tl.load(in0 + 256000 * i0 + i1 + 1000 * i2, i1_mask)
        sum1 += x0
    x1 = tl.sum(sum1, 1, keep_dims=True)
    tl.store(out1 + 1000 * i0 + i1, x1, i1_mask)

# aten.sum.dim_IntList: sum_1
@triton.jit
def sum_1(in0, out1, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    i0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i0_mask = i0 < 1000
    i1 = tl.arange(0, R0_BLOCK)[None, :]
    x0 = tl.load(in0 + i0 + 1000 * i1, i0_mask)
    x1 = tl.sum(x0, 1, keep_dims=True)
    tl.store(out1 + i0, x1, i0_mask)

# end of golden
