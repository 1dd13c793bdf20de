// golden  tests/e2e/test_reduce.py::test_sum_outer   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=2  bytes=25856  peak=256

// aten.exp.default: exp
// aten.sum.dim_IntList: sum_1
extern "C" int64_t fused_exp_sum_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
  md_call_nothing();  // so that g++ keeps arrays in place
  float sum0[64];
  for (int l = 0; l < 64; ++l) sum0[l] = 0.0f;
  md_groups<8>(0, 100, [&](int64_t i1_group, auto rows) MD_LAMBDA {
#pragma omp simd
    for (int64_t i0 = 0; i0 < 64; ++i0) {
      float sum0_terms[rows];
      md_rows(rows, [&](int r) MD_LAMBDA {
        const int64_t i1 = i1_group + r;
        const float x1 = in0[i0 + 64 * i1];
        const float x2 = md_exp_f32(x1);
        sum0_terms[r] = x2;
      });
      md_join_rows(rows, [&](int a, int b) MD_LAMBDA {
        sum0_terms[a] = sum0_terms[a] + sum0_terms[b];
      });
      sum0[i0] = sum0[i0] + sum0_terms[0];
    }
  });
#pragma omp simd
  for (int64_t i0 = 0; i0 < 64; ++i0) {
    const float sum0_kept = sum0[i0];
    out1[i0] = sum0_kept;
  }
  return 0;
}

// end of golden
