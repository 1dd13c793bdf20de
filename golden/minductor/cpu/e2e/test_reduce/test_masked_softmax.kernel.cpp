// golden  tests/e2e/test_reduce.py::test_masked_softmax   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=3  bytes=37440  peak=18432

// aten.div.Tensor: div
// aten.masked_fill.Scalar: masked_fill
// aten._softmax.default: _softmax
extern "C" int64_t fused_div_masked_fill_softmax_0(const uint8_t* __restrict in0, const float* __restrict in1, float* __restrict out2, int64_t threads) {
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t i1 = 0; i1 < 8; ++i1) {
    for (int64_t i2_start = 0; i2_start < 24; i2_start += 32) {
      const int64_t i2_end = md_index_min(i2_start + 32, 24);
      float x0_row[768];
      float max1_row[32];
      float x2_row[768];
      float sum3_row[32];
      float x4_row[32];
      for (int64_t i2 = i2_start; i2 < i2_end; ++i2) {
        float max1_lanes[16];
        for (int l = 0; l < 16; ++l) max1_lanes[l] = -MD_INF;
        md_lanes<16>(0, 24, [&](int64_t i3, int l) MD_LAMBDA {
          const bool x5 = in0[24 * i2 + i3] != 0;
          const float x6 = in1[576 * i1 + 24 * i2 + i3];
          const float x7 = x6 * 0.125f;
          const float x0 = x5 ? -MD_INF : x7;
          x0_row[(i2 - i2_start) * 24 + i3] = x0;
          max1_lanes[l] = md_maximum_f32(max1_lanes[l], x0);
        });
        md_join_lanes<16>([&](int a, int b) MD_LAMBDA {
          max1_lanes[a] = md_maximum_f32(max1_lanes[a], max1_lanes[b]);
        });
        const float max1 = max1_lanes[0];
        max1_row[i2 - i2_start] = max1;
      }
      for (int64_t i2 = i2_start; i2 < i2_end; ++i2) {
        float sum3_lanes[16];
        for (int l = 0; l < 16; ++l) sum3_lanes[l] = 0.0f;
        md_lanes<16>(0, 24, [&](int64_t i3, int l) MD_LAMBDA {
          const float x0_kept = x0_row[(i2 - i2_start) * 24 + i3];
          const float max1_kept = max1_row[i2 - i2_start];
          const float x8 = x0_kept - max1_kept;
          const float x2 = md_exp_nonpositive_f32(x8);
          x2_row[(i2 - i2_start) * 24 + i3] = x2;
          sum3_lanes[l] = sum3_lanes[l] + x2;
        });
        md_join_lanes<16>([&](int a, int b) MD_LAMBDA {
          sum3_lanes[a] = sum3_lanes[a] + sum3_lanes[b];
        });
        const float sum3 = sum3_lanes[0];
        sum3_row[i2 - i2_start] = sum3;
      }
#pragma omp simd
      for (int64_t i2 = i2_start; i2 < i2_end; ++i2) {
        const float sum3_kept = sum3_row[i2 - i2_start];
        const float x4 = 1.0f / sum3_kept;
        x4_row[i2 - i2_start] = x4;
      }
      for (int64_t i2 = i2_start; i2 < i2_end; ++i2) {
#pragma omp simd
        for (int64_t i3 = 0; i3 < 24; ++i3) {
          const float x2_kept = x2_row[(i2 - i2_start) * 24 + i3];
          const float x4_kept = x4_row[i2 - i2_start];
          const float x9 = x2_kept * x4_kept;
          const float x10 = -(x9);
          const float sum3_kept = sum3_row[i2 - i2_start];
          const float x11 = md_fma(x10, sum3_kept, x2_kept);
          const float x12 = md_fma(x11, x4_kept, x9);
          out2[576 * i1 + 24 * i2 + i3] = x12;
        }
      }
    }
  }
  return 0;
}

// end of golden
