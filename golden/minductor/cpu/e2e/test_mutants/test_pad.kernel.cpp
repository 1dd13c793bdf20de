// golden  tests/e2e/test_mutants.py::test_pad   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=1  bytes=1984  peak=1024

// aten.constant_pad_nd.default: constant_pad_nd
extern "C" int64_t constant_pad_nd_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
  for (int64_t i0 = 0; i0 < 8; ++i0) {
#pragma omp simd
    for (int64_t i1 = 0; i1 < 32; ++i1) {
      const int64_t x0 = i1 - 1;
      const bool x1 = x0 >= 0;
      const bool x2 = x0 < 30;
      const bool x3 = x1 & x2;
      float x4 = 3.0f;
      if (x3) {
        const float x5 = in0[30 * i0 + i1 - 1];
        x4 = x5;
      }
      out1[32 * i0 + i1] = x4;
    }
  }
  return 0;
}

// end of golden
