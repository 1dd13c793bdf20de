// golden  tests/e2e/test_mutants.py::test_a_scan_along_memory   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  bytes=640  peak=320

// aten.cumsum.default: cumsum
extern "C" int64_t cumsum_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
  for (int64_t i0 = 0; i0 < 4; ++i0) {
    double sum0 = 0.0;
    for (int64_t i1 = 0; i1 < 20; ++i1) {
      const float x1 = in0[20 * i0 + i1];
      const double x2 = (double)x1;
      sum0 = sum0 + x2;
      const double x3 = sum0;
      const float x4 = (float)x3;
      out1[20 * i0 + i1] = x4;
    }
  }
  return 0;
}

// end of golden
