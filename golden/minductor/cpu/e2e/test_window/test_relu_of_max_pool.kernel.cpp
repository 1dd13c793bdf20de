// golden  tests/e2e/test_window.py::test_relu_of_max_pool   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=1  bytes=7840  peak=1568

// aten.max_pool2d_with_indices.default: max_pool2d_with_indices
// aten.relu.default: relu
extern "C" int64_t fused_max_pool2d_with_indices_relu_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
  for (int64_t i1 = 0; i1 < 8; ++i1) {
    for (int64_t i2 = 0; i2 < 7; ++i2) {
#pragma omp simd
      for (int64_t i3 = 0; i3 < 1; ++i3) {
        const float x0 = in0[196 * i1 + 14 * md_index_max(0, 2 * i2 - 1)];
        const float x1 = in0[196 * i1 + 2 * i3 + 14 * md_index_max(0, 2 * i2 - 1)];
        const float x2 = md_maximum_f32(x1, x0);
        const float x3 = in0[196 * i1 + 2 * i3 + 14 * md_index_max(0, 2 * i2 - 1) + 1];
        const float x4 = md_maximum_f32(x3, x2);
        const float x5 = in0[196 * i1 + 28 * i2];
        const float x6 = md_maximum_f32(x5, x4);
        const float x7 = in0[196 * i1 + 28 * i2 + 2 * i3];
        const float x8 = md_maximum_f32(x7, x6);
        const float x9 = in0[196 * i1 + 28 * i2 + 2 * i3 + 1];
        const float x10 = md_maximum_f32(x9, x8);
        const float x11 = in0[196 * i1 + 28 * i2 + 14];
        const float x12 = md_maximum_f32(x11, x10);
        const float x13 = in0[196 * i1 + 28 * i2 + 2 * i3 + 14];
        const float x14 = md_maximum_f32(x13, x12);
        const float x15 = in0[196 * i1 + 28 * i2 + 2 * i3 + 15];
        const float x16 = md_maximum_f32(x15, x14);
        const float x17 = md_relu_f32(x16);
        out1[49 * i1 + 7 * i2 + i3] = x17;
      }
#pragma omp simd
      for (int64_t i3 = 1; i3 < 7; ++i3) {
        const float x0 = in0[196 * i1 + 2 * i3 + 14 * md_index_max(0, 2 * i2 - 1) - 1];
        const float x1 = in0[196 * i1 + 2 * i3 + 14 * md_index_max(0, 2 * i2 - 1)];
        const float x2 = md_maximum_f32(x1, x0);
        const float x3 = in0[196 * i1 + 2 * i3 + 14 * md_index_max(0, 2 * i2 - 1) + 1];
        const float x4 = md_maximum_f32(x3, x2);
        const float x5 = in0[196 * i1 + 28 * i2 + 2 * i3 - 1];
        const float x6 = md_maximum_f32(x5, x4);
        const float x7 = in0[196 * i1 + 28 * i2 + 2 * i3];
        const float x8 = md_maximum_f32(x7, x6);
        const float x9 = in0[196 * i1 + 28 * i2 + 2 * i3 + 1];
        const float x10 = md_maximum_f32(x9, x8);
        const float x11 = in0[196 * i1 + 28 * i2 + 2 * i3 + 13];
        const float x12 = md_maximum_f32(x11, x10);
        const float x13 = in0[196 * i1 + 28 * i2 + 2 * i3 + 14];
        const float x14 = md_maximum_f32(x13, x12);
        const float x15 = in0[196 * i1 + 28 * i2 + 2 * i3 + 15];
        const float x16 = md_maximum_f32(x15, x14);
        const float x17 = md_relu_f32(x16);
        out1[49 * i1 + 7 * i2 + i3] = x17;
      }
    }
  }
  return 0;
}

// end of golden
