# golden  tests/e2e/test_mutants.py::test_a_product_of_several_blocks   target=interpret  view=kernel  level=canonical  form=2
# facts   kernels=1  block_accesses=3  tiles=2  bytes=29696  peak=4096

# aten.mm.default: mm
@triton.jit
def mm_0(in0, in1, out2, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    i1 = tl.arange(0, XBLOCK)[None, :]
    i0 = tl.arange(0, YBLOCK)[:, None]
    sum3 = tl.full([YBLOCK, XBLOCK], 0.0, tl.float32)
    for i2_start in range(0, 100, R0_BLOCK):
        i2 = i2_start + tl.arange(0, R0_BLOCK)[None, :]
        i2_mask = i2 < 100
        i2_down = i2_start + tl.arange(0, R0_BLOCK)[:, None]
        i2_down_mask = i2_down < 100
        x0 = tl.load(in0 + 100 * i0 + i2, i2_mask, other=0.0)
        x1 = tl.load(in1 + i1 + 32 * i2_down, i2_down_mask, other=0.0)
        sum3 = tl.dot(x0, x1, sum3, input_precision="ieee")
    tl.store(out2 + 32 * i0 + i1, sum3)

# end of golden
