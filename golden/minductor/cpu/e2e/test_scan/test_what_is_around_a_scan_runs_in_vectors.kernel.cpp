// golden  tests/e2e/test_scan.py::test_what_is_around_a_scan_runs_in_vectors   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=2  bytes=512000  peak=256000

// aten.exp.default: exp
// aten.cumsum.default: cumsum
// aten.div.Tensor: div
// aten.tanh.default: tanh
extern "C" int64_t fused_exp_cumsum_div_tanh_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i0 = 0; i0 < 64; ++i0) {
    double sum0 = 0.0;
    for (int64_t i1_start = 0; i1_start < 1000; i1_start += 512) {
      const int64_t i1_end = md_index_min(i1_start + 512, 1000);
      float x1_row[512];
#pragma omp simd
      for (int64_t i1 = i1_start; i1 < i1_end; ++i1) {
        const float x2 = in0[1000 * i0 + i1];
        const float x1 = md_exp_f32(x2);
        x1_row[i1 - i1_start] = x1;
      }
      for (int64_t i1 = i1_start; i1 < i1_end; ++i1) {
        const float x1_kept = x1_row[i1 - i1_start];
        const double x3 = (double)x1_kept;
        sum0 = sum0 + x3;
        const double x4 = sum0;
        const float x5 = (float)x4;
        out1[1000 * i0 + i1] = x5;
      }
#pragma omp simd
      for (int64_t i1 = i1_start; i1 < i1_end; ++i1) {
        const float x5_kept = out1[1000 * i0 + i1];
        const float x6 = x5_kept * 0.125f;
        const float x7 = md_tanh_f32(x6);
        out1[1000 * i0 + i1] = x7;
      }
    }
  }
  return 0;
}

// end of golden
