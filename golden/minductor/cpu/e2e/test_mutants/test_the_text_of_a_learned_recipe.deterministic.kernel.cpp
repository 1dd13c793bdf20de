// golden  tests/e2e/test_mutants.py::test_the_text_of_a_learned_recipe   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  bytes=786432  peak=393216

// aten._softmax.default: _softmax
extern "C" int64_t softmax_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i0_start = 0; i0_start < 4096; i0_start += 16) {
    const int64_t i0_end = i0_start + 16;
    float x0_row[384];
    float x1_row[384];
    float x2_row[16];
    float x3_row[384];
    md_transpose(in0 + 24 * i0_start, 24, i0_end - i0_start, 24, x0_row, 16);
    float max4[256];
    for (int l = 0; l < 256; ++l) max4[l] = -MD_INF;
    for (int64_t i1 = 0; i1 < 24; ++i1) {
      const int64_t i1_lane = i1 % 16;
#pragma omp simd
      for (int64_t i0 = i0_start; i0 < i0_end; ++i0) {
        const float x0_kept = x0_row[(i1) * 16 + i0 - i0_start];
        max4[(i1_lane) * 16 + i0 - i0_start] = md_maximum_f32(max4[(i1_lane) * 16 + i0 - i0_start], x0_kept);
      }
    }
    md_join_lanes<256, 16>([&](int a, int b) MD_LAMBDA {
      max4[a] = md_maximum_f32(max4[a], max4[b]);
    });
    float sum5[256];
    for (int l = 0; l < 256; ++l) sum5[l] = 0.0f;
    for (int64_t i1 = 0; i1 < 24; ++i1) {
      const int64_t i1_lane = i1 % 16;
#pragma omp simd
      for (int64_t i0 = i0_start; i0 < i0_end; ++i0) {
        const float x0_kept = x0_row[(i1) * 16 + i0 - i0_start];
        const float max4_kept = max4[i0 - i0_start];
        const float x6 = x0_kept - max4_kept;
        const float x1 = md_exp_nonpositive_f32(x6);
        x1_row[(i1) * 16 + i0 - i0_start] = x1;
        sum5[(i1_lane) * 16 + i0 - i0_start] = sum5[(i1_lane) * 16 + i0 - i0_start] + x1;
      }
    }
    md_join_lanes<256, 16>([&](int a, int b) MD_LAMBDA {
      sum5[a] = sum5[a] + sum5[b];
    });
#pragma omp simd
    for (int64_t i0 = i0_start; i0 < i0_end; ++i0) {
      const float sum5_kept = sum5[i0 - i0_start];
      const float x2 = 1.0f / sum5_kept;
      x2_row[i0 - i0_start] = x2;
    }
    for (int64_t i1 = 0; i1 < 24; ++i1) {
#pragma omp simd
      for (int64_t i0 = i0_start; i0 < i0_end; ++i0) {
        const float x1_kept = x1_row[(i1) * 16 + i0 - i0_start];
        const float x2_kept = x2_row[i0 - i0_start];
        const float x7 = x1_kept * x2_kept;
        const float x8 = -(x7);
        const float sum5_kept = sum5[i0 - i0_start];
        const float x9 = md_fma(x8, sum5_kept, x1_kept);
        const float x3 = md_fma(x9, x2_kept, x7);
        x3_row[(i1) * 16 + i0 - i0_start] = x3;
      }
    }
    md_transpose(x3_row, 16, 24, i0_end - i0_start, out1 + 24 * i0_start, 24);
  }
  return 0;
}

// end of golden
