// golden  tests/e2e/test_attention_mutants.py::test_five_axes   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  externs=2  block_accesses=2  bytes=2359296  peak=1277952

// aten.mul.Tensor: mul
// aten._softmax.default: _softmax
extern "C" int64_t fused_mul_softmax_0(float* __restrict io0, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i3 = 0; i3 < 1536; ++i3) {
    float x0_row[192];
    float max1_lanes[64];
    for (int l = 0; l < 64; ++l) max1_lanes[l] = -MD_INF;
    md_lanes<64>(0, 192, [&](int64_t i4, int l) MD_LAMBDA {
      const float x2 = io0[192 * i3 + i4];
      const float x3 = x2 * 0.25f;
      max1_lanes[l] = md_maximum_f32(max1_lanes[l], x3);
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      max1_lanes[a] = md_maximum_f32(max1_lanes[a], max1_lanes[b]);
    });
    const float max1 = max1_lanes[0];
    float sum4_lanes[64];
    for (int l = 0; l < 64; ++l) sum4_lanes[l] = 0.0f;
    md_lanes<64>(0, 192, [&](int64_t i4, int l) MD_LAMBDA {
      const float x2 = io0[192 * i3 + i4];
      const float x3 = x2 * 0.25f;
      const float x5 = x3 - max1;
      const float x0 = md_exp_nonpositive_f32(x5);
      x0_row[i4] = x0;
      sum4_lanes[l] = sum4_lanes[l] + x0;
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      sum4_lanes[a] = sum4_lanes[a] + sum4_lanes[b];
    });
    const float sum4 = sum4_lanes[0];
    const float x6 = 1.0f / sum4;
#pragma omp simd
    for (int64_t i4 = 0; i4 < 192; ++i4) {
      const float x0_kept = x0_row[i4];
      const float x7 = x0_kept * x6;
      const float x8 = -(x7);
      const float x9 = md_fma(x8, sum4, x0_kept);
      const float x10 = md_fma(x9, x6, x7);
      io0[192 * i3 + i4] = x10;
    }
  }
  return 0;
}

// end of golden
