# golden  tests/e2e/test_counters.py::test_text_of_columns   target=sm_90  view=kernel  level=canonical  form=2
# facts   kernels=1  block_accesses=4  tiles=2  bytes=16910336  peak=67584

# aten.mul.Tensor: mul
# aten.sum.dim_IntList: sum_1
@triton.jit
def fused_mul_sum_0(in0, out1, out2, counter, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr, LAST_XBLOCK: tl.constexpr, LAST_R0_BLOCK: tl.constexpr):
    program = tl.program_id(0)
    i1_block = program % tl.cdiv(512, XBLOCK)
    i1 = i1_block * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    program = program // tl.cdiv(512, XBLOCK)
    i0 = program
    sum2 = tl.full([XBLOCK, R0_BLOCK], 0.0, tl.float32)
    for i2_start in range(0, 256, R0_BLOCK):
        i2 = i2_start + tl.arange(0, R0_BLOCK)[None, :]
        x0 = tl.load(in0 + 131072 * i0 + i1 + 512 * i2)
        x1 = x0 * x0
        sum2 += x1
    x2 = tl.sum(sum2, 1, keep_dims=True)
    tl.store(out1 + 512 * i0 + i1, x2)
    tl.debug_barrier()
    if tl.atomic_add(counter + i1_block, 1, sem='acq_rel', scope='gpu') == tl.num_programs(0) // tl.cdiv(512, XBLOCK) - 1:
        tl.store(counter + i1_block, 0)
        i3 = i1_block * LAST_XBLOCK + tl.arange(0, LAST_XBLOCK)[:, None]
        i4 = tl.arange(0, LAST_R0_BLOCK)[None, :]
        x3 = tl.load(out1 + i3 + 512 * i4)
        x4 = tl.sum(x3, 1, keep_dims=True)
        tl.store(out2 + i3, x4)

# end of golden
