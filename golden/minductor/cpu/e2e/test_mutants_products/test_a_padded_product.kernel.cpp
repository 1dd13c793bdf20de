// golden  tests/e2e/test_mutants_products.py::test_a_padded_product   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=3  externs=1  block_accesses=4  bytes=30344  peak=15792

// aten.constant_pad_nd.default: constant_pad_nd_default
extern "C" int64_t constant_pad_nd_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
  for (int64_t i0 = 0; i0 < 33; ++i0) {
#pragma omp simd
    for (int64_t i1 = 0; i1 < 40; ++i1) {
      const int64_t x0 = i1;
      const bool x1 = x0 < 37;
      float x2 = 0.0f;
      if (x1) {
        const float x3 = in0[37 * i0 + i1];
        x2 = x3;
      }
      out1[40 * i0 + i1] = x2;
    }
  }
  return 0;
}

// aten.constant_pad_nd.default: constant_pad_nd_default_1
extern "C" int64_t constant_pad_nd_1(const float* __restrict in0, float* __restrict out1, int64_t threads) {
  for (int64_t i0 = 0; i0 < 40; ++i0) {
    const int64_t x0 = i0;
    const bool x1 = x0 < 37;
#pragma omp simd
    for (int64_t i1 = 0; i1 < 36; ++i1) {
      const int64_t x2 = i1;
      const bool x3 = x2 < 35;
      const bool x4 = x1 & x3;
      float x5 = 0.0f;
      if (x4) {
        const float x6 = in0[35 * i0 + i1];
        x5 = x6;
      }
      out1[36 * i0 + i1] = x5;
    }
  }
  return 0;
}

// aten.cos.default: cos
extern "C" int64_t cos_2(const float* __restrict in0, float* __restrict out1, int64_t threads) {
  for (int64_t i0 = 0; i0 < 33; ++i0) {
#pragma omp simd
    for (int64_t i1 = 0; i1 < 35; ++i1) {
      const float x0 = in0[36 * i0 + i1];
      const float x1 = md_cos_f32(x0);
      out1[35 * i0 + i1] = x1;
    }
  }
  return 0;
}

// end of golden
