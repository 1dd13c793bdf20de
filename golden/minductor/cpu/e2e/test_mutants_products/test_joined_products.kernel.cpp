// golden  tests/e2e/test_mutants_products.py::test_joined_products   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  externs=1  block_accesses=4  bytes=12288  peak=12288

// aten.mul.Tensor: mul
// aten.sub.Tensor: sub
extern "C" int64_t fused_mul_sub_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
  for (int64_t i0 = 0; i0 < 16; ++i0) {
#pragma omp simd
    for (int64_t i1 = 0; i1 < 48; ++i1) {
      const float x0 = in0[144 * i0 + i1];
      const float x1 = in0[144 * i0 + i1 + 48];
      const float x2 = x0 * x1;
      const float x3 = in0[144 * i0 + i1 + 96];
      const float x4 = x2 - x3;
      out1[48 * i0 + i1] = x4;
    }
  }
  return 0;
}

// end of golden
