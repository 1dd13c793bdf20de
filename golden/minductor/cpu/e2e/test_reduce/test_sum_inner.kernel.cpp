// golden  tests/e2e/test_reduce.py::test_sum_inner   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=1  bytes=25856  peak=256

// aten.mul.Tensor: mul
// aten.sum.dim_IntList: sum_1
extern "C" int64_t fused_mul_sum_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
#pragma omp parallel for num_threads(threads) firstprivate(in0, out1)
  for (int64_t i0 = 0; i0 < 64; ++i0) {
    float sum0_lanes[64];
    for (int l = 0; l < 64; ++l) sum0_lanes[l] = 0.0f;
    md_masked_lanes<64, 4>(0, 100, [&](int64_t i1, int l, bool on) MD_LAMBDA {
      const float x1 = (on ? in0[100 * i0 + i1] : (float)0);
      const float x2 = x1 * 2.0f;
      sum0_lanes[l] = on ? sum0_lanes[l] + x2 : sum0_lanes[l];
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      sum0_lanes[a] = sum0_lanes[a] + sum0_lanes[b];
    });
    const float sum0 = sum0_lanes[0];
    out1[i0] = sum0;
  }
  return 0;
}

// end of golden
