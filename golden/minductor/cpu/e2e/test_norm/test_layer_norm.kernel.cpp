// golden  tests/e2e/test_norm.py::test_layer_norm   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=4  bytes=67584  peak=32768

// aten.native_layer_norm.default: native_layer_norm
extern "C" int64_t layer_norm_0(const float* __restrict in0, const float* __restrict in1, const float* __restrict in2, float* __restrict out3, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i0 = 0; i0 < 32; ++i0) {
    float sum0_lanes[64];
    for (int l = 0; l < 64; ++l) sum0_lanes[l] = 0.0f;
    md_lanes<64>(0, 256, [&](int64_t i1, int l) MD_LAMBDA {
      const float x1 = in0[256 * i0 + i1];
      sum0_lanes[l] = sum0_lanes[l] + x1;
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      sum0_lanes[a] = sum0_lanes[a] + sum0_lanes[b];
    });
    const float sum0 = sum0_lanes[0];
    const float x2 = sum0 * 0.00390625f;
    float sum3_lanes[64];
    for (int l = 0; l < 64; ++l) sum3_lanes[l] = 0.0f;
    float sum4_lanes[64];
    for (int l = 0; l < 64; ++l) sum4_lanes[l] = 0.0f;
    md_lanes<64>(0, 256, [&](int64_t i1, int l) MD_LAMBDA {
      const float x1 = in0[256 * i0 + i1];
      const float x5 = x1 - x2;
      const float x6 = x5 * x5;
      sum3_lanes[l] = sum3_lanes[l] + x6;
      sum4_lanes[l] = sum4_lanes[l] + x5;
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      sum3_lanes[a] = sum3_lanes[a] + sum3_lanes[b];
    });
    const float sum3 = sum3_lanes[0];
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      sum4_lanes[a] = sum4_lanes[a] + sum4_lanes[b];
    });
    const float sum4 = sum4_lanes[0];
    const float x7 = sum4 * 0.00390625f;
    const float x8 = x2 + x7;
    const float x9 = x7 * sum4;
    const float x10 = sum3 - x9;
    const float x11 = md_maximum_f32(0.0f, x10);
    const float x12 = x11 * 0.00390625f;
    const float x13 = x12 + 1e-05f;
    const float x14 = 1 / __builtin_sqrtf(x13);
#pragma omp simd
    for (int64_t i1 = 0; i1 < 256; ++i1) {
      const float x1 = in0[256 * i0 + i1];
      const float x15 = in1[i1];
      const float x16 = in2[i1];
      const float x17 = x1 - x8;
      const float x18 = x17 * x14;
      const float x19 = x18 * x15;
      const float x20 = x19 + x16;
      out3[256 * i0 + i1] = x20;
    }
  }
  return 0;
}

// end of golden
