// golden  tests/e2e/test_norm.py::test_layer_norm_of_gelu   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=2  bytes=524288  peak=262144

// aten.mul.Tensor: mul
// aten.add.Tensor: add
// aten.gelu.default: gelu
// aten.native_layer_norm.default: native_layer_norm
extern "C" int64_t fused_mul_add_gelu_layer_norm_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i0 = 0; i0 < 64; ++i0) {
    float sum0_lanes[64];
    for (int l = 0; l < 64; ++l) sum0_lanes[l] = 0.0f;
    md_lanes<64>(0, 1024, [&](int64_t i1, int l) MD_LAMBDA {
      const float x1 = in0[1024 * i0 + i1];
      const float x2 = x1 * 2.0f;
      const float x3 = x2 + 1.0f;
      const float x4 = x3 * 0.5f;
      const float x5 = x3 * 0.70710677f;
      const float x6 = md_erf_f32(x5);
      const float x7 = x6 + 1.0f;
      const float x8 = x4 * x7;
      out1[1024 * i0 + i1] = x8;
      sum0_lanes[l] = sum0_lanes[l] + x8;
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      sum0_lanes[a] = sum0_lanes[a] + sum0_lanes[b];
    });
    const float sum0 = sum0_lanes[0];
    const float x9 = sum0 * 0.0009765625f;
    float sum10_lanes[64];
    for (int l = 0; l < 64; ++l) sum10_lanes[l] = 0.0f;
    float sum11_lanes[64];
    for (int l = 0; l < 64; ++l) sum11_lanes[l] = 0.0f;
    md_lanes<64>(0, 1024, [&](int64_t i1, int l) MD_LAMBDA {
      const float x8_kept = out1[1024 * i0 + i1];
      const float x12 = x8_kept - x9;
      const float x13 = x12 * x12;
      sum10_lanes[l] = sum10_lanes[l] + x13;
      sum11_lanes[l] = sum11_lanes[l] + x12;
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      sum10_lanes[a] = sum10_lanes[a] + sum10_lanes[b];
    });
    const float sum10 = sum10_lanes[0];
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      sum11_lanes[a] = sum11_lanes[a] + sum11_lanes[b];
    });
    const float sum11 = sum11_lanes[0];
    const float x14 = sum11 * 0.0009765625f;
    const float x15 = x9 + x14;
    const float x16 = x14 * sum11;
    const float x17 = sum10 - x16;
    const float x18 = md_maximum_f32(0.0f, x17);
    const float x19 = x18 * 0.0009765625f;
    const float x20 = x19 + 1e-05f;
    const float x21 = 1 / __builtin_sqrtf(x20);
#pragma omp simd
    for (int64_t i1 = 0; i1 < 1024; ++i1) {
      const float x8_kept = out1[1024 * i0 + i1];
      const float x22 = x8_kept - x15;
      const float x23 = x22 * x21;
      out1[1024 * i0 + i1] = x23;
    }
  }
  return 0;
}

// end of golden
