# golden  tests/e2e/test_counters.py::test_text   target=sm_90  view=kernel  level=canonical  form=2
# facts   kernels=1  block_accesses=3  bytes=4202500  peak=4100

# aten.mul.Tensor: mul
# aten.mean.default: mean
@triton.jit
def fused_mul_mean_0(in0, out1, out2, counter, R0_BLOCK: tl.constexpr, LAST_R0_BLOCK: tl.constexpr):
    i0 = tl.program_id(0)
    i1 = tl.arange(0, R0_BLOCK)
    x0 = tl.load(in0 + 1024 * i0 + i1)
    x1 = x0 * x0
    x2 = tl.sum(x1, 0)
    tl.store(out1 + i0, x2)
    tl.debug_barrier()
    if tl.atomic_add(counter, 1, sem='acq_rel', scope='gpu') == tl.num_programs(0) - 1:
        tl.store(counter, 0)
        i2 = tl.arange(0, LAST_R0_BLOCK)
        x3 = tl.load(out1 + i2)
        x4 = tl.sum(x3, 0)
        x5 = x4 * 9.5367431640625e-07
        tl.store(out2, x5)

# end of golden
