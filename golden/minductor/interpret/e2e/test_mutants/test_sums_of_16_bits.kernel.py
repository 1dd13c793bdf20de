# golden  tests/e2e/test_mutants.py::test_sums_of_16_bits   target=interpret  view=kernel  level=canonical  form=2
# facts   kernels=2  block_accesses=6  tiles=3  bytes=40064  peak=24

# aten.index_put.default: index_put
@triton.jit
def index_put_0(in0, out1, XBLOCK: tl.constexpr):
    i0 = tl.arange(0, XBLOCK)
    x0 = tl.load(in0 + i0).to(tl.float32)
    tl.store(out1 + i0, x0)

# aten.index_put.default: index_put
@triton.jit
def index_put_1(in0, in1, io2, out3, counter, XBLOCK: tl.constexpr, LAST_XBLOCK: tl.constexpr):
    i0 = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    i0_mask = i0 < 4000
    x0 = tl.load(in0 + i0, i0_mask)
    v0 = tl.where(x0 < 0, x0 + 4, x0)
    v0_exists = (v0 >= 0) & (v0 < 4)
    tl.device_assert(v0_exists, 'IndexError: index is out of bounds for dimension 0 with size 4 in aten.index_put.default', mask=i0_mask)
    v0 = tl.where(v0_exists, v0, 0)
    x1 = tl.load(in1 + i0, i0_mask).to(tl.float32)
    tl.atomic_add(io2 + v0, x1, mask=i0_mask, sem='relaxed')
    tl.debug_barrier()
    if tl.atomic_add(counter, 1, sem='acq_rel', scope='gpu') == tl.num_programs(0) - 1:
        tl.store(counter, 0)
        i1 = tl.arange(0, LAST_XBLOCK)
        x2 = tl.load(io2 + i1)
        tl.store(out3 + i1, x2)

# end of golden
