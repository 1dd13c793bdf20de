# golden  tests/e2e/test_window.py::test_relu_of_max_pool   target=sm_90  view=kernel  level=skeleton  form=2
# facts   kernels=1  block_accesses=5  tiles=3  bytes=7840  peak=1568

# aten.max_pool2d_with_indices.default: max_pool2d_with_indices
# aten.relu.default: relu
@triton.jit
def fused_max_pool2d_with_indices_relu_0(in0, out1, ZBLOCK: tl.constexpr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    i3 = tl.arange(0, XBLOCK)[None, None, :]
    i3_mask = i3 < 7
    i2 = tl.arange(0, YBLOCK)[None, :, None]
    i2_mask = i2 < 7
    i1 = tl.arange(0, ZBLOCK)[:, None, None]
    x0 = tl.load(in0 + 196 * i1 + 14 * tl.maximum(0, 2 * i2 - 1) + tl.maximum(0, 2 * i3 - 1), i2_mask & i3_mask)
    x1 = tl.load(in0 + 196 * i1 + 2 * i3 + 14 * tl.maximum(0, 2 * i2 - 1), i2_mask & i3_mask)
    x2 = tl.maximum(x1, x0, tl.PropagateNan.ALL)
    x3 = tl.load(in0 + 196 * i1 + 2 * i3 + 14 * tl.maximum(0, 2 * i2 - 1) + 1, i2_mask & i3_mask)
    x4 = tl.maximum(x3, x2, tl.PropagateNan.ALL)
    x5 = tl.load(in0 + 196 * i1 + 28 * i2 + tl.maximum(0, 2 * i3 - 1), i2_mask & i3_mask)
    x6 = tl.maximum(x5, x4, tl.PropagateNan.ALL)
    x7 = tl.load(in0 + 196 * i1 + 28 * i2 + 2 * i3, i2_mask & i3_mask)
    x8 = tl.maximum(x7, x6, tl.PropagateNan.ALL)
    x9 = tl.load(in0 + 196 * i1 + 28 * i2 + 2 * i3 + 1, i2_mask & i3_mask)
    x10 = tl.maximum(x9, x8, tl.PropagateNan.ALL)
    x11 = tl.load(in0 + 196 * i1 + 28 * i2 + tl.maximum(0, 2 * i3 - 1) + 14, i2_mask & i3_mask)
    x12 = tl.maximum(x11, x10, tl.PropagateNan.ALL)
    x13 = tl.load(in0 + 196 * i1 + 28 * i2 + 2 * i3 + 14, i2_mask & i3_mask)
    x14 = tl.maximum(x13, x12, tl.PropagateNan.ALL)
    x15 = tl.load(in0 + 196 * i1 + 28 * i2 + 2 * i3 + 15, i2_mask & i3_mask)
    x16 = tl.maximum(x15, x14, tl.PropagateNan.ALL)
    x17 = x16 <= 0.0
    x18 = tl.where(x17, 0.0, x16)
    tl.store(out1 + 49 * i1 + 7 * i2 + i3, x18, i2_mask & i3_mask)

# end of golden
