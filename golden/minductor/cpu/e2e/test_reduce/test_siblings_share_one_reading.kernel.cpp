// golden  tests/e2e/test_reduce.py::test_siblings_share_one_reading   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=1  bytes=20960  peak=480

// aten.sum.dim_IntList: sum_1
// aten.amax.default: amax
// aten.pow.Tensor_Scalar: pow_1
// aten.mean.dim: mean
extern "C" int64_t fused_sum_amax_pow_mean_0(const float* __restrict in0, float* __restrict out1, float* __restrict out2, float* __restrict out3, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i0 = 0; i0 < 40; ++i0) {
    float sum0_lanes[64];
    for (int l = 0; l < 64; ++l) sum0_lanes[l] = 0.0f;
    float max1_lanes[64];
    for (int l = 0; l < 64; ++l) max1_lanes[l] = -MD_INF;
    float sum2_lanes[64];
    for (int l = 0; l < 64; ++l) sum2_lanes[l] = 0.0f;
    md_lanes<64>(0, 128, [&](int64_t i1, int l) MD_LAMBDA {
      const float x3 = in0[128 * i0 + i1];
      sum0_lanes[l] = sum0_lanes[l] + x3;
      max1_lanes[l] = md_maximum_f32(max1_lanes[l], x3);
      const float x4 = x3 * x3;
      sum2_lanes[l] = sum2_lanes[l] + x4;
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      sum0_lanes[a] = sum0_lanes[a] + sum0_lanes[b];
    });
    const float sum0 = sum0_lanes[0];
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      max1_lanes[a] = md_maximum_f32(max1_lanes[a], max1_lanes[b]);
    });
    const float max1 = max1_lanes[0];
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      sum2_lanes[a] = sum2_lanes[a] + sum2_lanes[b];
    });
    const float sum2 = sum2_lanes[0];
    out1[i0] = sum0;
    out2[i0] = max1;
    const float x5 = sum2 * 0.0078125f;
    out3[i0] = x5;
  }
  return 0;
}

// end of golden
