// golden  tests/e2e/test_reduce.py::test_masked_softmax   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=3  bytes=37440  peak=18432

// aten.div.Tensor: div
// aten.masked_fill.Scalar: masked_fill
// aten._softmax.default: _softmax
extern "C" int64_t fused_div_masked_fill_softmax_0(const uint8_t* __restrict in0, const float* __restrict in1, float* __restrict out2, int64_t threads) {
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t i1 = 0; i1 < 8; ++i1) {
    for (int64_t i2 = 0; i2 < 24; ++i2) {
      float x0_row[24];
      float x1_row[24];
      float max2_lanes[16];
      for (int l = 0; l < 16; ++l) max2_lanes[l] = -MD_INF;
      md_lanes<16>(0, 24, [&](int64_t i3, int l) MD_LAMBDA {
        const bool x3 = in0[24 * i2 + i3] != 0;
        const float x4 = in1[576 * i1 + 24 * i2 + i3];
        const float x5 = x4 * 0.125f;
        const float x0 = x3 ? -MD_INF : x5;
        x0_row[i3] = x0;
        max2_lanes[l] = md_maximum_f32(max2_lanes[l], x0);
      });
      md_join_lanes<16>([&](int a, int b) MD_LAMBDA {
        max2_lanes[a] = md_maximum_f32(max2_lanes[a], max2_lanes[b]);
      });
      const float max2 = max2_lanes[0];
      float sum6_lanes[16];
      for (int l = 0; l < 16; ++l) sum6_lanes[l] = 0.0f;
      md_lanes<16>(0, 24, [&](int64_t i3, int l) MD_LAMBDA {
        const float x0_kept = x0_row[i3];
        const float x7 = x0_kept - max2;
        const float x1 = md_exp_nonpositive_f32(x7);
        x1_row[i3] = x1;
        sum6_lanes[l] = sum6_lanes[l] + x1;
      });
      md_join_lanes<16>([&](int a, int b) MD_LAMBDA {
        sum6_lanes[a] = sum6_lanes[a] + sum6_lanes[b];
      });
      const float sum6 = sum6_lanes[0];
      const float x8 = 1.0f / sum6;
#pragma omp simd
      for (int64_t i3 = 0; i3 < 24; ++i3) {
        const float x1_kept = x1_row[i3];
        const float x9 = x1_kept * x8;
        const float x10 = -(x9);
        const float x11 = md_fma(x10, sum6, x1_kept);
        const float x12 = md_fma(x11, x8, x9);
        out2[576 * i1 + 24 * i2 + i3] = x12;
      }
    }
  }
  return 0;
}

// end of golden
