// golden  tests/e2e/test_mutants.py::test_what_is_overwritten_is_read_before   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=2  block_accesses=7  bytes=1536  peak=768

// aten.mul.Tensor: mul, mul_1
// aten.flip.default: flip
// aten.add.Tensor: add
// aten.copy.default: copy
extern "C" int64_t fused_mul_flip_add_copy_mul_0(const float* __restrict in0, float* __restrict out1, float* __restrict out2, float* __restrict out3, int64_t threads) {
  for (int64_t i0 = 0; i0 < 8; ++i0) {
#pragma omp simd
    for (int64_t i1 = 0; i1 < 8; ++i1) {
      const float x0 = in0[8 * i0 + i1];
      const float x1 = x0 * 2.0f;
      const float x2 = in0[-8 * i0 + i1 + 56];
      const float x3 = x2 + 1.0f;
      const float x4 = x3 * 3.0f;
      out1[8 * i0 + i1] = x1;
      out2[8 * i0 + i1] = x3;
      out3[8 * i0 + i1] = x4;
    }
  }
  return 0;
}

// aten.copy_.default: copy_
extern "C" int64_t copy_1(const float* __restrict in0, float* __restrict out1, int64_t threads) {
  md_copy_row(out1 + 0, in0 + 0, 64);
  return 0;
}

// end of golden
