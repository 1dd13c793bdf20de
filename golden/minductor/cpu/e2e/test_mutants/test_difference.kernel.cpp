// golden  tests/e2e/test_mutants.py::test_difference   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=3  bytes=480  peak=160

// aten.sin.default: sin
// aten.sub.Tensor: sub
extern "C" int64_t fused_sin_sub_0(const float* __restrict in0, const float* __restrict in1, float* __restrict out2, int64_t threads) {
#pragma omp simd
  for (int64_t i0 = 0; i0 < 40; ++i0) {
    const float x0 = in0[i0];
    const float x1 = md_sin_f32(x0);
    const float x2 = in1[i0];
    const float x3 = x1 - x2;
    out2[i0] = x3;
  }
  return 0;
}

// end of golden
