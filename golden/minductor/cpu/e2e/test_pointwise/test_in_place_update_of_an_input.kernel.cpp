// golden  tests/e2e/test_pointwise.py::test_in_place_update_of_an_input   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=4  bytes=8448  peak=2112

// aten.mul.Tensor: mul, mul_1
// aten.add.Tensor: add
// aten.copy_.default: copy_
extern "C" int64_t fused_mul_add_mul_copy_0(float* __restrict io0, const float* __restrict in1, float* __restrict out2, int64_t threads) {
#pragma omp simd
  for (int64_t i1 = 0; i1 < 528; ++i1) {
    const float x0 = io0[i1];
    const float x1 = x0 * 0.9f;
    const float x2 = in1[i1];
    const float x3 = x2 * 0.1f;
    const float x4 = x1 + x3;
    io0[i1] = x4;
    const float x5 = x4 * 2.0f;
    out2[i1] = x5;
  }
  return 0;
}

// end of golden
