// golden  tests/e2e/test_mutants.py::test_rows_that_meet_in_a_scatter   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=2  block_accesses=3  bytes=80320  peak=160

// aten.zeros.default: zeros
extern "C" int64_t zeros_0(float* __restrict out0, int64_t threads) {
#pragma omp simd
  for (int64_t i1 = 0; i1 < 40; ++i1) {
    out0[i1] = 0.0f;
  }
  return 0;
}

// aten.index_add.default: index_add
extern "C" int64_t index_add_1(const int64_t* __restrict in0, const float* __restrict in1, float* __restrict io2, int64_t threads) {
  uint64_t bad1 = 0;
  for (int64_t i0 = 0; i0 < 2000; ++i0) {
    const int64_t x0 = in0[i0];
    const int64_t x1 = x0;
    const bool x1_wrong = (x1 < 0) | (x1 >= 5);
    bad1 = x1_wrong ? 1 : bad1;
    const int64_t v0 = md_index(x1_wrong ? 0 : x1);
#pragma omp simd
    for (int64_t i1 = 0; i1 < 8; ++i1) {
      const float x2 = in1[8 * i0 + i1];
      io2[i1 + 8 * v0] = io2[i1 + 8 * v0] + x2;
    }
  }
  if (bad1 != 0) {
    for (int64_t i0 = 0; i0 < 2000; ++i0) {
      const int64_t x3 = in0[i0];
      const int64_t x4 = x3;
      if (((x4 < 0) | (x4 >= 5))) return md_failed(1, (uint64_t)x3, 5);
    }
    return md_failed(1, 0, 5);
  }
  return 0;
}

// end of golden
