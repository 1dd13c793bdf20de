// golden  tests/e2e/test_attention_mutants.py::test_the_gradient_of_a_row_filled_whole   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=3  externs=2  block_accesses=6  bytes=381504  peak=350400

// aten.bitwise_not.default: bitwise_not
// aten.zeros_like.default: zeros_like
// aten.masked_fill.Scalar: masked_fill
// aten.amax.default: amax
// aten.sub.Tensor: sub
// aten.lt.Scalar: lt
// aten.where.self: where
// aten.le.Scalar: le
extern "C" int64_t fused_bitwise_not_zeros_like_masked_fill_amax_sub_lt_where_le_0(const uint8_t* __restrict in0, float* __restrict out1, uint8_t* __restrict out2, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i0 = 0; i0 < 192; ++i0) {
    float max0_lanes[64];
    for (int l = 0; l < 64; ++l) max0_lanes[l] = -MD_INF;
    md_lanes<64>(0, 192, [&](int64_t i1, int l) MD_LAMBDA {
      const bool x1 = in0[192 * i0 + i1] != 0;
      const bool x2 = !x1;
      const float x3 = x2 ? -1.2676506e+30f : 0.0f;
      max0_lanes[l] = md_maximum_f32(max0_lanes[l], x3);
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      max0_lanes[a] = md_maximum_f32(max0_lanes[a], max0_lanes[b]);
    });
    const float max0 = max0_lanes[0];
    const bool x4 = max0 < -1e+03f;
    const bool x5 = max0 <= -1.2676506e+30f;
    out2[i0] = x5;
#pragma omp simd
    for (int64_t i1 = 0; i1 < 192; ++i1) {
      const bool x1 = in0[192 * i0 + i1] != 0;
      const bool x2 = !x1;
      const float x3 = x2 ? -1.2676506e+30f : 0.0f;
      const float x6 = x3 - max0;
      const float x7 = x4 ? x6 : x3;
      out1[192 * i0 + i1] = x7;
    }
  }
  return 0;
}

// aten.scalar_tensor.default: scalar_tensor
// aten.where.self: where_1
extern "C" int64_t fused_scalar_tensor_where_1(const uint8_t* __restrict in0, const uint16_t* __restrict in1, uint16_t* __restrict out2, int64_t threads) {
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t i1 = 0; i1 < 8; ++i1) {
    for (int64_t i2 = 0; i2 < 192; ++i2) {
      const bool x0 = in0[i2] != 0;
#pragma omp simd
      for (int64_t i3 = 0; i3 < 16; ++i3) {
        const float x1 = md_bf16_to_f32(in1[3072 * i1 + 16 * i2 + i3]);
        const float x2 = x0 ? 0.0f : x1;
        out2[3072 * i1 + 16 * i2 + i3] = md_f32_held_bf16(x2);
      }
    }
  }
  return 0;
}

// aten.scalar_tensor.default: scalar_tensor_1
// aten.where.self: where_2
extern "C" int64_t fused_scalar_tensor_where_0(const uint8_t* __restrict in0, uint16_t* __restrict io1, int64_t threads) {
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t i0 = 0; i0 < 2; ++i0) {
    for (int64_t i2 = 0; i2 < 192; ++i2) {
      const bool x0 = in0[i2] != 0;
#pragma omp simd
      for (int64_t i3 = 0; i3 < 64; ++i3) {
        const float x1 = md_bf16_to_f32(io1[12288 * i0 + 64 * i2 + i3]);
        const float x2 = x0 ? 0.0f : x1;
        io1[12288 * i0 + 64 * i2 + i3] = md_f32_held_bf16(x2);
      }
    }
  }
  return 0;
}

// end of golden
