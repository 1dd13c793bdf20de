# golden  tests/e2e/test_mutants.py::test_negative_indices_on_a_gpu   target=interpret  view=kernel  level=canonical  form=2
# facts   kernels=1  block_accesses=2  tiles=1  bytes=76  peak=12

# aten.index.Tensor: index
# aten.mul.Tensor: mul
@triton.jit
def fused_index_mul_0(in0, in1, out2, XBLOCK: tl.constexpr):
    i0 = tl.arange(0, XBLOCK)
    i0_mask = i0 < 3
    x0 = tl.load(in0 + i0, i0_mask)
    v0 = tl.where(x0 < 0, x0 + 10, x0)
    v0_exists = (v0 >= 0) & (v0 < 10)
    tl.device_assert(v0_exists, 'IndexError: index is out of bounds for dimension 0 with size 10 in aten.index.Tensor', mask=i0_mask)
    v0 = tl.where(v0_exists, v0, 0)
    x1 = tl.load(in1 + v0, i0_mask)
    x2 = x1 * 2.0
    tl.store(out2 + i0, x2, i0_mask)

# end of golden
