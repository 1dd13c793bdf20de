// golden  tests/e2e/test_mutants.py::test_scatter_add   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=2  block_accesses=1  bytes=96  peak=12

// aten.zeros.default: zeros
extern "C" int64_t zeros_0(float* __restrict out0, int64_t threads) {
#pragma omp simd
  for (int64_t i0 = 0; i0 < 3; ++i0) {
    out0[i0] = 0.0f;
  }
  return 0;
}

// aten.index_add.default: index_add
extern "C" int64_t index_add_1(const int64_t* __restrict in0, const float* __restrict in1, float* __restrict io2, int64_t threads) {
  uint64_t bad1 = 0;
  for (int64_t i0 = 0; i0 < 6; ++i0) {
    const int64_t x0 = in0[i0];
    const int64_t x1 = x0;
    const bool x1_wrong = (x1 < 0) | (x1 >= 3);
    bad1 = x1_wrong ? 1 : bad1;
    const int64_t v0 = md_index(x1_wrong ? 0 : x1);
    const float x2 = in1[i0];
    io2[v0] = io2[v0] + x2;
  }
  if (bad1 != 0) {
    for (int64_t i0 = 0; i0 < 6; ++i0) {
      const int64_t x3 = in0[i0];
      const int64_t x4 = x3;
      if (((x4 < 0) | (x4 >= 3))) return md_failed(1, (uint64_t)x3, 3);
    }
    return md_failed(1, 0, 3);
  }
  return 0;
}

// end of golden
