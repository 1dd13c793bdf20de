// golden  tests/e2e/test_mutants.py::test_row_sums   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=2  bytes=19200  peak=9600

// aten.sum.dim_IntList: sum_1
// aten.mul.Tensor: mul
// aten.add.Tensor: add
extern "C" int64_t fused_sum_mul_add_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
  md_call_nothing();  // so that g++ keeps arrays in place
  for (int64_t i0 = 0; i0 < 8; ++i0) {
    float sum0_lanes[64];
    for (int l = 0; l < 64; ++l) sum0_lanes[l] = 0.0f;
    md_masked_lanes<64, 4>(0, 300, [&](int64_t i1, int l, bool on) MD_LAMBDA {
      const float x1 = (on ? in0[300 * i0 + i1] : (float)0);
      sum0_lanes[l] = on ? sum0_lanes[l] + x1 : sum0_lanes[l];
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      sum0_lanes[a] = sum0_lanes[a] + sum0_lanes[b];
    });
    const float sum0 = sum0_lanes[0];
    const float x2 = sum0 * 0.7071067f;
#pragma omp simd
    for (int64_t i1 = 0; i1 < 300; ++i1) {
      const float x1 = in0[300 * i0 + i1];
      const float x3 = x2 + x1;
      out1[300 * i0 + i1] = x3;
    }
  }
  return 0;
}

// end of golden
