// golden  tests/e2e/test_pointwise.py::test_dynamic_sizes   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=3  bytes=536903680

// aten.mul.Tensor: mul
// aten.add.Tensor: add_3
extern "C" int64_t fused_mul_add_0(const float* __restrict in0, const float* __restrict in1, float* __restrict out2, int64_t s0, int64_t s1, int64_t threads) {
#pragma omp parallel for num_threads(s0 * s1 > 16384 ? threads : 1)
  for (int64_t i0 = 0; i0 < s0; ++i0) {
#pragma omp simd
    for (int64_t i1 = 0; i1 < s1; ++i1) {
      const float x0 = in0[i0 * s1 + i1];
      const float x1 = x0 * 2.0f;
      const float x2 = in1[i1];
      const float x3 = x1 + x2;
      out2[i0 * s1 + i1] = x3;
    }
  }
  return 0;
}

// end of golden
