// golden  tests/e2e/test_attention_mutants.py::test_five_axes   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  externs=2  block_accesses=2  bytes=2359296  peak=1277952

// aten.mul.Tensor: mul
// aten._softmax.default: _softmax
extern "C" int64_t fused_mul_softmax_0(float* __restrict io0, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i3_start = 0; i3_start < 1536; i3_start += 8) {
    const int64_t i3_end = i3_start + 8;
    float max0_row[8];
    float x1_row[1536];
    float sum2_row[8];
    float x3_row[8];
    for (int64_t i3 = i3_start; i3 < i3_end; ++i3) {
      float max0_lanes[64];
      for (int l = 0; l < 64; ++l) max0_lanes[l] = -MD_INF;
      md_lanes<64>(0, 192, [&](int64_t i4, int l) MD_LAMBDA {
        const float x4 = io0[192 * i3 + i4];
        const float x5 = x4 * 0.25f;
        max0_lanes[l] = md_maximum_f32(max0_lanes[l], x5);
      });
      md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
        max0_lanes[a] = md_maximum_f32(max0_lanes[a], max0_lanes[b]);
      });
      const float max0 = max0_lanes[0];
      max0_row[i3 - i3_start] = max0;
    }
    for (int64_t i3 = i3_start; i3 < i3_end; ++i3) {
      float sum2_lanes[64];
      for (int l = 0; l < 64; ++l) sum2_lanes[l] = 0.0f;
      md_lanes<64>(0, 192, [&](int64_t i4, int l) MD_LAMBDA {
        const float x4 = io0[192 * i3 + i4];
        const float x5 = x4 * 0.25f;
        const float max0_kept = max0_row[i3 - i3_start];
        const float x6 = x5 - max0_kept;
        const float x1 = md_exp_nonpositive_f32(x6);
        x1_row[(i3 - i3_start) * 192 + i4] = x1;
        sum2_lanes[l] = sum2_lanes[l] + x1;
      });
      md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
        sum2_lanes[a] = sum2_lanes[a] + sum2_lanes[b];
      });
      const float sum2 = sum2_lanes[0];
      sum2_row[i3 - i3_start] = sum2;
    }
#pragma omp simd
    for (int64_t i3 = i3_start; i3 < i3_end; ++i3) {
      const float sum2_kept = sum2_row[i3 - i3_start];
      const float x3 = 1.0f / sum2_kept;
      x3_row[i3 - i3_start] = x3;
    }
    for (int64_t i3 = i3_start; i3 < i3_end; ++i3) {
#pragma omp simd
      for (int64_t i4 = 0; i4 < 192; ++i4) {
        const float x1_kept = x1_row[(i3 - i3_start) * 192 + i4];
        const float x3_kept = x3_row[i3 - i3_start];
        const float x7 = x1_kept * x3_kept;
        const float x8 = -(x7);
        const float sum2_kept = sum2_row[i3 - i3_start];
        const float x9 = md_fma(x8, sum2_kept, x1_kept);
        const float x10 = md_fma(x9, x3_kept, x7);
        io0[192 * i3 + i4] = x10;
      }
    }
  }
  return 0;
}

// end of golden
