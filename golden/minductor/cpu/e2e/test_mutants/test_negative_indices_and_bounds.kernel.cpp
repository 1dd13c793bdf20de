// golden  tests/e2e/test_mutants.py::test_negative_indices_and_bounds   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=2  bytes=76  peak=12

// aten.index.Tensor: index
// aten.mul.Tensor: mul
extern "C" int64_t fused_index_mul_0(const int64_t* __restrict in0, const float* __restrict in1, float* __restrict out2, int64_t threads) {
  uint64_t bad1 = 0;
  for (int64_t i0 = 0; i0 < 3; ++i0) {
    MD_SCALAR;
    const int64_t x0 = in0[i0];
    const int64_t x1 = (x0 < 0 ? x0 + 10 : x0);
    const bool x1_wrong = (x1 < 0) | (x1 >= 10);
    bad1 = x1_wrong ? 1 : bad1;
    const int64_t v0 = md_index(x1_wrong ? 0 : x1);
    const float x2 = in1[v0];
    const float x3 = x2 * 2.0f;
    out2[i0] = x3;
  }
  if (bad1 != 0) {
    for (int64_t i0 = 0; i0 < 3; ++i0) {
      const int64_t x4 = in0[i0];
      const int64_t x5 = x4 < 0 ? x4 + 10 : x4;
      if (((x5 < 0) | (x5 >= 10))) return md_failed(1, (uint64_t)x4, 10);
    }
    return md_failed(1, 0, 10);
  }
  return 0;
}

// end of golden
