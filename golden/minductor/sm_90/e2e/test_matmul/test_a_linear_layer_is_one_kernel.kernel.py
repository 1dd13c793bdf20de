# golden  tests/e2e/test_matmul.py::test_a_linear_layer_is_one_kernel   target=sm_90  view=kernel  level=skeleton  form=2
# facts   kernels=1  block_accesses=5  tiles=2  bytes=1082368  peak=327680

# aten.add.Tensor: add, add_1
# aten.addmm.default: addmm
# aten.relu.default: relu
@triton.jit
def fused_add_addmm_relu_add_0(in0, in1, in2, in3, out4, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    program = tl.program_id(0)
    i1 = program % tl.cdiv(512, XBLOCK) * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    program = program // tl.cdiv(512, XBLOCK)
    i0 = program * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    sum7 = tl.full([YBLOCK, XBLOCK], 0.0, tl.float32)
    for i2_start in range(0, 256, R0_BLOCK):
        i2 = i2_start + tl.arange(0, R0_BLOCK)[None, :]
        i2_down = i2_start + tl.arange(0, R0_BLOCK)[:, None]
        x0 = tl.load(in0 + 256 * i0 + i2).to(tl.float32)
        x1 = x0 + 1.0
        x2 = tl.load(in1 + 256 * i1 + i2_down)
        sum7 = tl.dot(x1.to(tl.bfloat16), x2, sum7)
    x3 = tl.load(in2 + i1).to(tl.float32)
    x4 = sum7 + x3
    x5 = x4 <= 0.0
    x6 = tl.where(x5, 0.0, x4)
    x7 = tl.load(in3 + 512 * i0 + i1).to(tl.float32)
    x8 = x6 + x7
    tl.store(out4 + 512 * i0 + i1, x8)

# end of golden
