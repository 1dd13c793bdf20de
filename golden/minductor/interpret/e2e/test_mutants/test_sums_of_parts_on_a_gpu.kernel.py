# golden  tests/e2e/test_mutants.py::test_sums_of_parts_on_a_gpu   target=interpret  view=kernel  level=canonical  form=2
# facts   kernels=1  block_accesses=3  bytes=524420  peak=68

# aten.sum.default: sum_1
@triton.jit
def sum_0(in0, out1, out2, counter, R0_BLOCK: tl.constexpr, LAST_R0_BLOCK: tl.constexpr):
    i0 = tl.program_id(0)
    i1 = tl.arange(0, R0_BLOCK)
    x0 = tl.load(in0 + 8192 * i0 + i1)
    x1 = tl.sum(x0, 0)
    tl.store(out1 + i0, x1)
    tl.debug_barrier()
    if tl.atomic_add(counter, 1, sem='acq_rel', scope='gpu') == tl.num_programs(0) - 1:
        tl.store(counter, 0)
        i2 = tl.arange(0, LAST_R0_BLOCK)
        x2 = tl.load(out1 + i2)
        x3 = tl.sum(x2, 0)
        tl.store(out2, x3)

# end of golden
