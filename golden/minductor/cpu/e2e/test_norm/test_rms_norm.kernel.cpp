// golden  tests/e2e/test_norm.py::test_rms_norm   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=3  bytes=66560  peak=32768

// aten.pow.Tensor_Scalar: pow_1
// aten.mean.dim: mean
// aten.add.Tensor: add
// aten.rsqrt.default: rsqrt
// aten.mul.Tensor: mul, mul_1
extern "C" int64_t fused_pow_mean_add_rsqrt_mul_0(const float* __restrict in0, const float* __restrict in1, float* __restrict out2, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i0 = 0; i0 < 32; ++i0) {
    float sum0_lanes[64];
    for (int l = 0; l < 64; ++l) sum0_lanes[l] = 0.0f;
    md_lanes<64>(0, 256, [&](int64_t i1, int l) MD_LAMBDA {
      const float x1 = in0[256 * i0 + i1];
      const float x2 = x1 * x1;
      sum0_lanes[l] = sum0_lanes[l] + x2;
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      sum0_lanes[a] = sum0_lanes[a] + sum0_lanes[b];
    });
    const float sum0 = sum0_lanes[0];
    const float x3 = sum0 * 0.00390625f;
    const float x4 = x3 + 1e-05f;
    const float x5 = 1 / __builtin_sqrtf(x4);
#pragma omp simd
    for (int64_t i1 = 0; i1 < 256; ++i1) {
      const float x1 = in0[256 * i0 + i1];
      const float x6 = x1 * x5;
      const float x7 = in1[i1];
      const float x8 = x6 * x7;
      out2[256 * i0 + i1] = x8;
    }
  }
  return 0;
}

// end of golden
