// golden  tests/e2e/test_mutants.py::test_pointwise   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=2  bytes=14400  peak=4800

// aten.mul.Tensor: mul
// aten.add.Tensor: add
extern "C" int64_t fused_mul_add_0(const float* __restrict in0, const float* __restrict in1, float* __restrict out2, int64_t threads) {
  md_call_nothing();  // so that g++ keeps arrays in place
  for (int64_t i0_start = 0; i0_start < 40; i0_start += 64) {
    const int64_t i0_end = md_index_min(i0_start + 64, 40);
    for (int64_t i1_start = 0; i1_start < 30; i1_start += 64) {
      const int64_t i1_end = md_index_min(i1_start + 64, 30);
      float x0_row[4096];
      md_transpose(in1 + i0_start + 40 * i1_start, 40, i1_end - i1_start, i0_end - i0_start, x0_row, 64);
      for (int64_t i0 = i0_start; i0 < i0_end; ++i0) {
#pragma omp simd
        for (int64_t i1 = i1_start; i1 < i1_end; ++i1) {
          const float x1 = in0[30 * i0 + i1];
          const float x0_kept = x0_row[(i0 - i0_start) * 64 + i1 - i1_start];
          const float x2 = x1 * x0_kept;
          const float x3 = x2 + 1.0f;
          out2[30 * i0 + i1] = x3;
        }
      }
    }
  }
  return 0;
}

// end of golden
