// golden  tests/e2e/test_reduce.py::test_siblings_share_one_reading   target=cpu  view=kernel  level=canonical  form=1
// facts   kernels=1  block_accesses=1  bytes=20960  peak=480

// aten.sum.dim_IntList: sum_1
// aten.amax.default: amax
// aten.pow.Tensor_Scalar: pow_1
// aten.mean.dim: mean
extern "C" int64_t fused_sum_amax_pow_mean_0(const float* __restrict in0, float* __restrict out1, float* __restrict out2, float* __restrict out3, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i0 = 0; i0 < 40; ++i0) {
    float sum0[64];
    for (int l = 0; l < 64; ++l) sum0[l] = 0.0f;
    float max1[64];
    for (int l = 0; l < 64; ++l) max1[l] = -MD_INF;
    float sum2[64];
    for (int l = 0; l < 64; ++l) sum2[l] = 0.0f;
    md_lanes<64>(0, 128, [&](int64_t i1, int l) MD_LAMBDA {
      const float x3 = in0[128 * i0 + i1];
      sum0[l] = sum0[l] + x3;
      max1[l] = md_maximum_f32(max1[l], x3);
      const float x4 = x3 * x3;
      sum2[l] = sum2[l] + x4;
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      sum0[a] = sum0[a] + sum0[b];
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      max1[a] = md_maximum_f32(max1[a], max1[b]);
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      sum2[a] = sum2[a] + sum2[b];
    });
    out1[i0] = sum0[0];
    out2[i0] = max1[0];
    const float x5 = sum2[0] / 128.0f;
    out3[i0] = x5;
  }
  return 0;
}
