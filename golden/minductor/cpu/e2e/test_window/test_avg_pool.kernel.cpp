// golden  tests/e2e/test_window.py::test_avg_pool   target=cpu  view=kernel  level=canonical  form=1
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
        float x9 = 0.0f;
        if (x1) {
          const float x10 = in0[196 * i1 + 14 * i2 + i3 - 14];
          x9 = x10;
        }
        const float x11 = x9 + x7;
        const int64_t x12 = -i3 + 12;
        const bool x13 = x12 >= 0;
        const bool x14 = x1 & x13;
        float x15 = 0.0f;
        if (x14) {
          const float x16 = in0[196 * i1 + 14 * i2 + i3 - 13];
          x15 = x16;
        }
        const float x17 = x15 + x11;
        float x18 = 0.0f;
        if (x5) {
          const float x19 = in0[196 * i1 + 14 * i2 + i3 - 1];
          x18 = x19;
        }
        const float x20 = x18 + x17;
        const float x21 = in0[196 * i1 + 14 * i2 + i3];
        const float x22 = x21 + x20;
        float x23 = 0.0f;
        if (x13) {
          const float x24 = in0[196 * i1 + 14 * i2 + i3 + 1];
          x23 = x24;
        }
        const float x25 = x23 + x22;
        const bool x26 = x3 & x5;
        float x27 = 0.0f;
        if (x26) {
          const float x28 = in0[196 * i1 + 14 * i2 + i3 + 13];
          x27 = x28;
        }
        const float x29 = x27 + x25;
        float x30 = 0.0f;
        if (x3) {
          const float x31 = in0[196 * i1 + 14 * i2 + i3 + 14];
          x30 = x31;
        }
        const float x32 = x30 + x29;
        const bool x33 = x3 & x13;
        float x34 = 0.0f;
        if (x33) {
          const float x35 = in0[196 * i1 + 14 * i2 + i3 + 15];
          x34 = x35;
        }
        const float x36 = x34 + x32;
        const float x37 = x36 / 9.0f;
        out1[196 * i1 + 14 * i2 + i3] = x37;
      }
    }
  }
  return 0;
}
