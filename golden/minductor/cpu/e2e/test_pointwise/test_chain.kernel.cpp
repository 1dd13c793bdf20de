// golden  tests/e2e/test_pointwise.py::test_chain   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=2  bytes=65536  peak=32768

// aten.mul.Tensor: mul
// aten.add.Tensor: add
// aten.gelu.default: gelu
// aten.sub.Tensor: sub
extern "C" int64_t fused_mul_add_gelu_sub_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
#pragma omp simd
  for (int64_t i1 = 0; i1 < 8192; ++i1) {
    const float x0 = in0[i1];
    const float x1 = x0 * 2.0f;
    const float x2 = x1 + 1.0f;
    const float x3 = x2 * 0.5f;
    const float x4 = x2 * 0.70710677f;
    const float x5 = md_erf_f32(x4);
    const float x6 = x5 + 1.0f;
    const float x7 = x3 * x6;
    const float x8 = x7 - 0.5f;
    out1[i1] = x8;
  }
  return 0;
}

// end of golden
