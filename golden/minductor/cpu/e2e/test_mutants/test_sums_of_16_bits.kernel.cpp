// golden  tests/e2e/test_mutants.py::test_sums_of_16_bits   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=3  block_accesses=4  bytes=40064  peak=24

// aten.index_put.default: index_put
extern "C" int64_t index_put_0(const uint16_t* __restrict in0, float* __restrict out1, int64_t threads) {
#pragma omp simd
  for (int64_t i0 = 0; i0 < 4; ++i0) {
    const float x0 = md_bf16_to_f32(in0[i0]);
    out1[i0] = x0;
  }
  return 0;
}

// aten.index_put.default: index_put
extern "C" int64_t index_put_1(const int64_t* __restrict in0, const uint16_t* __restrict in1, float* __restrict io2, int64_t threads) {
  uint64_t bad1 = 0;
  for (int64_t i0 = 0; i0 < 4000; ++i0) {
    const int64_t x0 = in0[i0];
    const int64_t x1 = (x0 < 0 ? x0 + 4 : x0);
    const bool x1_wrong = (x1 < 0) | (x1 >= 4);
    bad1 = x1_wrong ? 1 : bad1;
    const int64_t v0 = md_index(x1_wrong ? 0 : x1);
    const float x2 = md_bf16_to_f32(in1[i0]);
    io2[v0] = io2[v0] + x2;
  }
  if (bad1 != 0) {
    for (int64_t i0 = 0; i0 < 4000; ++i0) {
      const int64_t x3 = in0[i0];
      const int64_t x4 = x3 < 0 ? x3 + 4 : x3;
      if (((x4 < 0) | (x4 >= 4))) return md_failed(1, (uint64_t)x3, 4);
    }
    return md_failed(1, 0, 4);
  }
  return 0;
}

// aten.index_put.default: index_put
extern "C" int64_t index_put_2(const float* __restrict in0, uint16_t* __restrict out1, int64_t threads) {
#pragma omp simd
  for (int64_t i0 = 0; i0 < 4; ++i0) {
    const float x0 = in0[i0];
    out1[i0] = md_f32_to_bf16(x0);
  }
  return 0;
}

// end of golden
