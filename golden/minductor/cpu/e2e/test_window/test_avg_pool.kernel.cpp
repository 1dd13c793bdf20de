// golden  tests/e2e/test_window.py::test_avg_pool   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=2  bytes=12544  peak=6272

// aten.avg_pool2d.default: avg_pool2d
extern "C" int64_t avg_pool2d_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t i1 = 0; i1 < 8; ++i1) {
    for (int64_t i2 = 0; i2 < 14; ++i2) {
      const int64_t x0 = i2 - 1;
      const bool x1 = x0 >= 0;
      const int64_t x2 = -i2 + 12;
      const bool x3 = x2 >= 0;
#pragma omp simd
      for (int64_t i3 = 0; i3 < 14; ++i3) {
        const int64_t x4 = i3 - 1;
        const bool x5 = x4 >= 0;
        const bool x6 = x1 & x5;
        float x7 = 0.0f;
        if (x6) {
          const float x8 = in0[196 * i1 + 14 * i2 + i3 - 15];
          x7 = x8;
        }
        const float x9 = x7 + 0.0f;
        float x10 = 0.0f;
        if (x1) {
          const float x11 = in0[196 * i1 + 14 * i2 + i3 - 14];
          x10 = x11;
        }
        const float x12 = x10 + x9;
        const int64_t x13 = -i3 + 12;
        const bool x14 = x13 >= 0;
        const bool x15 = x1 & x14;
        float x16 = 0.0f;
        if (x15) {
          const float x17 = in0[196 * i1 + 14 * i2 + i3 - 13];
          x16 = x17;
        }
        const float x18 = x16 + x12;
        float x19 = 0.0f;
        if (x5) {
          const float x20 = in0[196 * i1 + 14 * i2 + i3 - 1];
          x19 = x20;
        }
        const float x21 = x19 + x18;
        const float x22 = in0[196 * i1 + 14 * i2 + i3];
        const float x23 = x22 + x21;
        float x24 = 0.0f;
        if (x14) {
          const float x25 = in0[196 * i1 + 14 * i2 + i3 + 1];
          x24 = x25;
        }
        const float x26 = x24 + x23;
        const bool x27 = x3 & x5;
        float x28 = 0.0f;
        if (x27) {
          const float x29 = in0[196 * i1 + 14 * i2 + i3 + 13];
          x28 = x29;
        }
        const float x30 = x28 + x26;
        float x31 = 0.0f;
        if (x3) {
          const float x32 = in0[196 * i1 + 14 * i2 + i3 + 14];
          x31 = x32;
        }
        const float x33 = x31 + x30;
        const bool x34 = x3 & x14;
        float x35 = 0.0f;
        if (x34) {
          const float x36 = in0[196 * i1 + 14 * i2 + i3 + 15];
          x35 = x36;
        }
        const float x37 = x35 + x33;
        const float x38 = x37 / 9.0f;
        out1[196 * i1 + 14 * i2 + i3] = x38;
      }
    }
  }
  return 0;
}

// end of golden
