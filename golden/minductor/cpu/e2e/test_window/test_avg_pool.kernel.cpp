// golden  tests/e2e/test_window.py::test_avg_pool   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=2  block_accesses=4  bytes=25088  peak=12544

// aten.avg_pool2d.default: avg_pool2d
extern "C" int64_t avg_pool2d_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t i1 = 0; i1 < 8; ++i1) {
    for (int64_t i2 = 0; i2 < 14; ++i2) {
      const int64_t x0 = i2 - 1;
      const bool x1 = x0 >= 0;
      const int64_t x2 = -i2 + 12;
      const bool x3 = x2 >= 0;
      if (x1 & x3) {
#pragma omp simd
        for (int64_t i3 = 0; i3 < 14; ++i3) {
          const float x4 = in0[196 * i1 + 14 * i2 + i3 - 14];
          const float x5 = x4 + 0.0f;
          const float x6 = in0[196 * i1 + 14 * i2 + i3];
          const float x7 = x6 + x5;
          const float x8 = in0[196 * i1 + 14 * i2 + i3 + 14];
          const float x9 = x8 + x7;
          out1[196 * i1 + 14 * i2 + i3] = x9;
        }
      }
      else {
        const int64_t end10 = md_end_if(x1);
        const int64_t end11 = md_end_if(x3);
#pragma omp simd
        for (int64_t i3 = 0; i3 < 14; ++i3) {
          float x12 = 0.0f;
          if (i3 < end10) {
            const float x13 = in0[196 * i1 + 14 * i2 + i3 - 14];
            x12 = x13;
          }
          const float x5 = x12 + 0.0f;
          const float x6 = in0[196 * i1 + 14 * i2 + i3];
          const float x7 = x6 + x5;
          float x14 = 0.0f;
          if (i3 < end11) {
            const float x15 = in0[196 * i1 + 14 * i2 + i3 + 14];
            x14 = x15;
          }
          const float x9 = x14 + x7;
          out1[196 * i1 + 14 * i2 + i3] = x9;
        }
      }
    }
  }
  return 0;
}

// aten.avg_pool2d.default: avg_pool2d
extern "C" int64_t avg_pool2d_1(const float* __restrict in0, float* __restrict out1, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i2 = 0; i2 < 112; ++i2) {
#pragma omp simd
    for (int64_t i3 = 0; i3 < 14; ++i3) {
      const int64_t x0 = i3 - 1;
      const bool x1 = x0 >= 0;
      float x2 = 0.0f;
      if (x1) {
        const float x3 = in0[14 * i2 + i3 - 1];
        x2 = x3;
      }
      const float x4 = x2 + 0.0f;
      const float x5 = in0[14 * i2 + i3];
      const float x6 = x5 + x4;
      const int64_t x7 = -i3 + 12;
      const bool x8 = x7 >= 0;
      float x9 = 0.0f;
      if (x8) {
        const float x10 = in0[14 * i2 + i3 + 1];
        x9 = x10;
      }
      const float x11 = x9 + x6;
      const float x12 = x11 / 9.0f;
      out1[14 * i2 + i3] = x12;
    }
  }
  return 0;
}

// end of golden
