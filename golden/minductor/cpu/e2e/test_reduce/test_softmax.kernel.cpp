// golden  tests/e2e/test_reduce.py::test_softmax   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=2  bytes=51200  peak=25600

// aten._softmax.default: _softmax
extern "C" int64_t softmax_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
#pragma omp parallel for num_threads(threads) firstprivate(in0, out1)
  for (int64_t i0 = 0; i0 < 32; ++i0) {
    float x0_row[200];
    float max1_lanes[64];
    for (int l = 0; l < 64; ++l) max1_lanes[l] = -MD_INF;
    md_masked_lanes<64, 4>(0, 200, [&](int64_t i1, int l, bool on) MD_LAMBDA {
      const float x2 = (on ? in0[200 * i0 + i1] : (float)0);
      max1_lanes[l] = on ? md_maximum_f32(max1_lanes[l], x2) : max1_lanes[l];
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      max1_lanes[a] = md_maximum_f32(max1_lanes[a], max1_lanes[b]);
    });
    const float max1 = max1_lanes[0];
    float sum3_lanes[64];
    for (int l = 0; l < 64; ++l) sum3_lanes[l] = 0.0f;
    md_masked_lanes<64, 4>(0, 200, [&](int64_t i1, int l, bool on) MD_LAMBDA {
      const float x2 = (on ? in0[200 * i0 + i1] : (float)0);
      const float x4 = x2 - max1;
      const float x0 = md_exp_nonpositive_f32(x4);
      if (on) x0_row[i1] = x0;
      sum3_lanes[l] = on ? sum3_lanes[l] + x0 : sum3_lanes[l];
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      sum3_lanes[a] = sum3_lanes[a] + sum3_lanes[b];
    });
    const float sum3 = sum3_lanes[0];
    const float x5 = 1.0f / sum3;
#pragma omp simd
    for (int64_t i1 = 0; i1 < 200; ++i1) {
      const float x0_kept = x0_row[i1];
      const float x6 = x0_kept * x5;
      const float x7 = -(x6);
      const float x8 = md_fma(x7, sum3, x0_kept);
      const float x9 = md_fma(x8, x5, x6);
      out1[200 * i0 + i1] = x9;
    }
  }
  return 0;
}

// end of golden
