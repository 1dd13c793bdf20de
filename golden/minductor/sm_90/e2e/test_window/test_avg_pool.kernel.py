# golden  tests/e2e/test_window.py::test_avg_pool   target=sm_90  view=kernel  level=skeleton  form=2
# facts   kernels=1  block_accesses=10  tiles=3  bytes=12544  peak=6272

# aten.avg_pool2d.default: avg_pool2d
@triton.jit
def avg_pool2d_0(in0, out1, ZBLOCK: tl.constexpr, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    i3 = tl.arange(0, XBLOCK)[None, None, :]
    i3_mask = i3 < 14
    i2 = tl.arange(0, YBLOCK)[None, :, None]
    i2_mask = i2 < 14
    i1 = tl.program_id(0) * ZBLOCK + tl.arange(0, ZBLOCK)[:, None, None]
    x0 = i2 - 1
    x1 = x0 >= 0
    x2 = i3 - 1
    x3 = x2 >= 0
    x4 = x1 & x3
    x5 = tl.load(in0 + 196 * i1 + 14 * i2 + i3 - 15, i2_mask & i3_mask & x4)
    x6 = tl.where(x4, x5, 0.0)
    x7 = x6 + 0.0
    x8 = tl.load(in0 + 196 * i1 + 14 * i2 + i3 - 14, i2_mask & i3_mask & x1)
    x9 = tl.where(x1, x8, 0.0)
    x10 = x9 + x7
    x11 = -i3 + 12
    x12 = x11 >= 0
    x13 = x1 & x12
    x14 = tl.load(in0 + 196 * i1 + 14 * i2 + i3 - 13, i2_mask & i3_mask & x13)
    x15 = tl.where(x13, x14, 0.0)
    x16 = x15 + x10
    x17 = tl.load(in0 + 196 * i1 + 14 * i2 + i3 - 1, i2_mask & i3_mask & x3)
    x18 = tl.where(x3, x17, 0.0)
    x19 = x18 + x16
    x20 = tl.load(in0 + 196 * i1 + 14 * i2 + i3, i2_mask & i3_mask)
    x21 = x20 + x19
    x22 = tl.load(in0 + 196 * i1 + 14 * i2 + i3 + 1, i2_mask & i3_mask & x12)
    x23 = tl.where(x12, x22, 0.0)
    x24 = x23 + x21
    x25 = -i2 + 12
    x26 = x25 >= 0
    x27 = x26 & x3
    x28 = tl.load(in0 + 196 * i1 + 14 * i2 + i3 + 13, i2_mask & i3_mask & x27)
    x29 = tl.where(x27, x28, 0.0)
    x30 = x29 + x24
    x31 = tl.load(in0 + 196 * i1 + 14 * i2 + i3 + 14, i2_mask & i3_mask & x26)
    x32 = tl.where(x26, x31, 0.0)
    x33 = x32 + x30
    x34 = x26 & x12
    x35 = tl.load(in0 + 196 * i1 + 14 * i2 + i3 + 15, i2_mask & i3_mask & x34)
    x36 = tl.where(x34, x35, 0.0)
    x37 = x36 + x33
    x38 = tl.div_rn(x37, 9.0)
    tl.store(out1 + 196 * i1 + 14 * i2 + i3, x38, i2_mask & i3_mask)

# end of golden
