// golden  tests/e2e/test_pointwise.py::test_transposed_read   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=2  bytes=737280  peak=245760

// aten.add.Tensor: add
extern "C" int64_t add_0(const float* __restrict in0, const float* __restrict in1, float* __restrict out2, int64_t threads) {
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t i1_start = 0; i1_start < 320; i1_start += 64) {
    for (int64_t i0_start = 0; i0_start < 192; i0_start += 64) {
      const int64_t i1_end = i1_start + 64;
      const int64_t i0_end = i0_start + 64;
      float x0_row[4096];
      md_transpose(in1 + 320 * i0_start + i1_start, 320, i0_end - i0_start, i1_end - i1_start, x0_row, 64);
      for (int64_t i1 = i1_start; i1 < i1_end; ++i1) {
#pragma omp simd
        for (int64_t i0 = i0_start; i0 < i0_end; ++i0) {
          const float x1 = in0[i0 + 192 * i1];
          const float x0_kept = x0_row[(i1 - i1_start) * 64 + i0 - i0_start];
          const float x2 = x1 + x0_kept;
          out2[i0 + 192 * i1] = x2;
        }
      }
    }
  }
  return 0;
}

// end of golden
