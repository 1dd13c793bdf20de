// golden  tests/e2e/test_pointwise.py::test_bfloat16_stays_wide_inside   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=2  bytes=16384  peak=8192

// aten.mul.Tensor: mul, mul_1
// aten.tanh.default: tanh
// aten.add.Tensor: add
extern "C" int64_t fused_mul_tanh_mul_add_0(const uint16_t* __restrict in0, uint16_t* __restrict out1, int64_t threads) {
#pragma omp simd
  for (int64_t i1 = 0; i1 < 4096; ++i1) {
    const float x0 = md_bf16_to_f32(in0[i1]);
    const float x1 = x0 * 3.0f;
    const float x2 = md_tanh_f32(x1);
    const float x3 = x2 * x0;
    const float x4 = x3 + 1.0f;
    out1[i1] = md_f32_to_bf16(x4);
  }
  return 0;
}

// end of golden
