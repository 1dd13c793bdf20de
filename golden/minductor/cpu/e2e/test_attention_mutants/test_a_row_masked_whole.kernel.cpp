// golden  tests/e2e/test_attention_mutants.py::test_a_row_masked_whole   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  externs=1  block_accesses=2  bytes=184320  peak=251904

// aten.bitwise_not.default: bitwise_not
// aten.zeros_like.default: zeros_like
// aten.masked_fill.Scalar: masked_fill
// aten.amax.default: amax
// aten.eq.Scalar: eq
// aten.scalar_tensor.default: scalar_tensor
// aten.where.self: where
extern "C" int64_t fused_bitwise_not_zeros_like_eq_scalar_tensor_where_0(const uint8_t* __restrict in0, float* __restrict out1, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i0_start = 0; i0_start < 192; i0_start += 8) {
    const int64_t i0_end = i0_start + 8;
    float max0_row[8];
    uint8_t x1_row[8];
    for (int64_t i0 = i0_start; i0 < i0_end; ++i0) {
      float max0_lanes[64];
      for (int l = 0; l < 64; ++l) max0_lanes[l] = -MD_INF;
      md_lanes<64>(0, 192, [&](int64_t i1, int l) MD_LAMBDA {
        const bool x2 = in0[192 * i0 + i1] != 0;
        const bool x3 = !x2;
        const float x4 = x3 ? -MD_INF : 0.0f;
        max0_lanes[l] = md_maximum_f32(max0_lanes[l], x4);
      });
      md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
        max0_lanes[a] = md_maximum_f32(max0_lanes[a], max0_lanes[b]);
      });
      const float max0 = max0_lanes[0];
      max0_row[i0 - i0_start] = max0;
    }
#pragma omp simd
    for (int64_t i0 = i0_start; i0 < i0_end; ++i0) {
      const float max0_kept = max0_row[i0 - i0_start];
      const bool x1 = max0_kept == -MD_INF;
      x1_row[i0 - i0_start] = x1;
    }
    for (int64_t i0 = i0_start; i0 < i0_end; ++i0) {
#pragma omp simd
      for (int64_t i1 = 0; i1 < 192; ++i1) {
        const bool x2 = in0[192 * i0 + i1] != 0;
        const bool x3 = !x2;
        const float x4 = x3 ? -MD_INF : 0.0f;
        const bool x1_kept = x1_row[i0 - i0_start];
        const float x5 = x1_kept ? MD_NAN : x4;
        out1[192 * i0 + i1] = x5;
      }
    }
  }
  return 0;
}

// end of golden
