# golden  tests/e2e/test_mutants.py::test_row_sums_on_a_gpu   target=interpret  view=kernel  level=canonical  form=2
# facts   kernels=1  block_accesses=2  tiles=1  bytes=16160  peak=160

# aten.exp.default: exp
# aten.sum.dim_IntList: sum_1
# aten.add.Tensor: add
@triton.jit
def fused_exp_sum_add_0(in0, out1, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    i0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    i0_mask = i0 < 40
    i1 = tl.arange(0, R0_BLOCK)[None, :]
    i1_mask = i1 < 100
    x0 = tl.load(in0 + 100 * i0 + i1, i0_mask & i1_mask)
    x1 = libdevice.exp(x0)
    x2 = tl.sum(tl.where(i1_mask, x1, 0.0), 1, keep_dims=True)
    x3 = x2 + 1.0
    tl.store(out1 + i0, x3, i0_mask)

# end of golden
