// golden  tests/e2e/test_pointwise.py::test_equal_kernels_are_printed_once   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=3  externs=3  block_accesses=6  bytes=6144  peak=2048

// aten.gelu.default: gelu, gelu_1, gelu_2
extern "C" int64_t gelu_0(float* __restrict io0, int64_t threads) {
#pragma omp simd
  for (int64_t i1 = 0; i1 < 256; ++i1) {
    const float x0 = io0[i1];
    const float x1 = x0 * 0.5f;
    const float x2 = x0 * 0.70710677f;
    const float x3 = md_erf_f32(x2);
    const float x4 = x3 + 1.0f;
    const float x5 = x1 * x4;
    io0[i1] = x5;
  }
  return 0;
}

// end of golden
