// golden  tests/e2e/test_pointwise.py::test_broadcast   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=3  bytes=98624  peak=49152

// aten.add.Tensor: add
// aten.sigmoid.default: sigmoid
// aten.mul.Tensor: mul
extern "C" int64_t fused_add_sigmoid_mul_0(const float* __restrict in0, const float* __restrict in1, const float* __restrict in2, float* __restrict out3, int64_t threads) {
  float x0_row[32];
#pragma omp parallel for num_threads(threads)
  for (int64_t i1 = 0; i1 < 32; ++i1) {
    const float x1 = in2[i1];
    const float x0 = md_sigmoid_f32(x1);
    x0_row[i1] = x0;
  }
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t i0 = 0; i0 < 8; ++i0) {
    for (int64_t i1 = 0; i1 < 32; ++i1) {
#pragma omp simd
      for (int64_t i2 = 0; i2 < 48; ++i2) {
        const float x2 = in0[1536 * i0 + 48 * i1 + i2];
        const float x3 = in1[i2];
        const float x4 = x2 + x3;
        const float x0_kept = x0_row[i1];
        const float x5 = x4 * x0_kept;
        out3[1536 * i0 + 48 * i1 + i2] = x5;
      }
    }
  }
  return 0;
}

// end of golden
