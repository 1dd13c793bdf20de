// golden  tests/e2e/test_mutants.py::test_the_text_of_a_learned_recipe   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=2  bytes=786432  peak=393216

// aten._softmax.default: _softmax
extern "C" int64_t softmax_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i0 = 0; i0 < 4096; ++i0) {
    float x0_row[24];
    float max1_lanes[16];
    for (int l = 0; l < 16; ++l) max1_lanes[l] = -MD_INF;
    md_lanes<16>(0, 24, [&](int64_t i1, int l) MD_LAMBDA {
      const float x2 = in0[24 * i0 + i1];
      max1_lanes[l] = md_maximum_f32(max1_lanes[l], x2);
    });
    md_join_lanes<16>([&](int a, int b) MD_LAMBDA {
      max1_lanes[a] = md_maximum_f32(max1_lanes[a], max1_lanes[b]);
    });
    const float max1 = max1_lanes[0];
    float sum3_lanes[16];
    for (int l = 0; l < 16; ++l) sum3_lanes[l] = 0.0f;
    md_lanes<16>(0, 24, [&](int64_t i1, int l) MD_LAMBDA {
      const float x2 = in0[24 * i0 + i1];
      const float x4 = x2 - max1;
      const float x0 = md_exp_nonpositive_f32(x4);
      x0_row[i1] = x0;
      sum3_lanes[l] = sum3_lanes[l] + x0;
    });
    md_join_lanes<16>([&](int a, int b) MD_LAMBDA {
      sum3_lanes[a] = sum3_lanes[a] + sum3_lanes[b];
    });
    const float sum3 = sum3_lanes[0];
    const float x5 = 1.0f / sum3;
#pragma omp simd
    for (int64_t i1 = 0; i1 < 24; ++i1) {
      const float x0_kept = x0_row[i1];
      const float x6 = x0_kept * x5;
      const float x7 = -(x6);
      const float x8 = md_fma(x7, sum3, x0_kept);
      const float x9 = md_fma(x8, x5, x6);
      out1[24 * i0 + i1] = x9;
    }
  }
  return 0;
}

// end of golden
