// golden  tests/e2e/test_mutants.py::test_views_of_results   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  externs=1  block_accesses=2  bytes=288  peak=288

// aten.mul.Tensor: mul
extern "C" int64_t mul_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
#pragma omp simd
  for (int64_t i1 = 0; i1 < 36; ++i1) {
    const float x0 = in0[i1];
    const float x1 = x0 * 2.0f;
    out1[i1] = x1;
  }
  return 0;
}

// end of golden
