# golden  tests/e2e/test_mutants.py::test_scatter_add_on_a_gpu   target=sm_90  view=kernel  level=canonical  form=2
# facts   kernels=2  block_accesses=3  tiles=2  bytes=96  peak=12

# aten.zeros.default: zeros
@triton.jit
def zeros_0(out0, XBLOCK: tl.constexpr):
    i0 = tl.arange(0, XBLOCK)
    i0_mask = i0 < 3
    tl.store(out0 + i0, tl.full([], 0.0, tl.float32), i0_mask)

# aten.index_add.default: index_add
@triton.jit
def index_add_1(in0, in1, io2, XBLOCK: tl.constexpr):
    i0 = tl.arange(0, XBLOCK)
    i0_mask = i0 < 6
    x0 = tl.load(in0 + i0, i0_mask)
    v0 = x0
    v0_exists = (v0 >= 0) & (v0 < 3)
    tl.device_assert(v0_exists, 'IndexError: index is out of bounds for dimension 0 with size 3 in aten.index_add.default', mask=i0_mask)
    v0 = tl.where(v0_exists, v0, 0)
    x1 = tl.load(in1 + i0, i0_mask)
    tl.atomic_add(io2 + v0, x1, mask=i0_mask, sem='relaxed')

# end of golden
