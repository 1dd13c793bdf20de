// golden  tests/e2e/test_attention_mutants.py::test_a_row_filled_whole   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  externs=1  block_accesses=2  bytes=184320  peak=251904

// aten.bitwise_not.default: bitwise_not
// aten.zeros_like.default: zeros_like
// aten.masked_fill.Scalar: masked_fill
extern "C" int64_t fused_bitwise_not_zeros_like_masked_fill_0(const uint8_t* __restrict in0, float* __restrict out1, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i1_start = 0; i1_start < 36864; i1_start += 4096) {
    const int64_t i1_end = i1_start + 4096;
#pragma omp simd
    for (int64_t i1 = i1_start; i1 < i1_end; ++i1) {
      const bool x0 = in0[i1] != 0;
      const bool x1 = !x0;
      const float x2 = x1 ? -1.2676506e+30f : 0.0f;
      out1[i1] = x2;
    }
  }
  return 0;
}

// end of golden
