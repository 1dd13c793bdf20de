// golden  tests/e2e/test_attention_mutants.py::test_where_keeps   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  externs=1  block_accesses=2  bytes=184320  peak=251904

// aten.logical_not.default: logical_not
// aten.zeros_like.default: zeros_like
// aten.masked_fill.Scalar: masked_fill
// aten.amax.default: amax
// aten.eq.Scalar: eq
// aten.scalar_tensor.default: scalar_tensor
// aten.where.self: where
extern "C" int64_t fused_logical_not_zeros_like_eq_scalar_tensor_where_0(const uint8_t* __restrict in0, float* __restrict out1, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i0 = 0; i0 < 192; ++i0) {
    float max0_lanes[64];
    for (int l = 0; l < 64; ++l) max0_lanes[l] = -MD_INF;
    md_lanes<64>(0, 192, [&](int64_t i1, int l) MD_LAMBDA {
      const bool x1 = in0[192 * i0 + i1] != 0;
      const bool x2 = !x1;
      const float x3 = x2 ? -MD_INF : 0.0f;
      max0_lanes[l] = md_maximum_f32(max0_lanes[l], x3);
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      max0_lanes[a] = md_maximum_f32(max0_lanes[a], max0_lanes[b]);
    });
    const float max0 = max0_lanes[0];
    const bool x4 = max0 == -MD_INF;
#pragma omp simd
    for (int64_t i1 = 0; i1 < 192; ++i1) {
      const bool x1 = in0[192 * i0 + i1] != 0;
      const bool x2 = !x1;
      const float x3 = x2 ? -MD_INF : 0.0f;
      const float x5 = x4 ? MD_NAN : x3;
      out1[192 * i0 + i1] = x5;
    }
  }
  return 0;
}

// end of golden
