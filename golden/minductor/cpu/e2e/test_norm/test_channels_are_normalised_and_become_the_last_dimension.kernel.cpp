// golden  tests/e2e/test_norm.py::test_channels_are_normalised_and_become_the_last_dimension   target=cpu  view=kernel  level=skeleton  form=2
// facts   kernels=1  block_accesses=1  bytes=4817664  peak=2408448

// aten.native_layer_norm.default: native_layer_norm
extern "C" int64_t layer_norm_0(const float* __restrict in0, const float* __restrict in1, const float* __restrict in2, float* __restrict out3, int64_t threads) {
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t i0 = 0; i0 < 2; ++i0) {
    for (int64_t i2_start = 0; i2_start < 3136; i2_start += 64) {
      const int64_t i2_end = i2_start + 64;
      float x0_row[64];
      float sum1[64];
      for (int l = 0; l < 64; ++l) sum1[l] = 0.0f;
      for (int64_t i3_start = 0; i3_start < 96; i3_start += 16) {
        const int64_t i3_end = i3_start + 16;
        float sum1_block[64];
        for (int l = 0; l < 64; ++l) sum1_block[l] = 0.0f;
        for (int64_t i3 = i3_start; i3 < i3_end; ++i3) {
#pragma omp simd
          for (int64_t i2 = i2_start; i2 < i2_end; ++i2) {
            const float x2 = in0[301056 * i0 + i2 + 3136 * i3];
            sum1_block[i2 - i2_start] = sum1_block[i2 - i2_start] + x2;
          }
        }
#pragma omp simd
        for (int j = 0; j < 64; ++j) {
          sum1[j] = sum1[j] + sum1_block[j];
        }
      }
      float sum3[64];
      for (int l = 0; l < 64; ++l) sum3[l] = 0.0f;
      float sum4[64];
      for (int l = 0; l < 64; ++l) sum4[l] = 0.0f;
      for (int64_t i3_start = 0; i3_start < 96; i3_start += 16) {
        const int64_t i3_end = i3_start + 16;
        float sum3_block[64];
        for (int l = 0; l < 64; ++l) sum3_block[l] = 0.0f;
        float sum4_block[64];
        for (int l = 0; l < 64; ++l) sum4_block[l] = 0.0f;
        for (int64_t i3 = i3_start; i3 < i3_end; ++i3) {
#pragma omp simd
          for (int64_t i2 = i2_start; i2 < i2_end; ++i2) {
            const float x2 = in0[301056 * i0 + i2 + 3136 * i3];
            const float sum1_kept = sum1[i2 - i2_start];
            const float x5 = sum1_kept / 96.0f;
            const float x6 = x2 - x5;
            sum3_block[i2 - i2_start] = sum3_block[i2 - i2_start] + x6;
            const float x7 = x6 * x6;
            sum4_block[i2 - i2_start] = sum4_block[i2 - i2_start] + x7;
          }
        }
#pragma omp simd
        for (int j = 0; j < 64; ++j) {
          sum3[j] = sum3[j] + sum3_block[j];
        }
#pragma omp simd
        for (int j = 0; j < 64; ++j) {
          sum4[j] = sum4[j] + sum4_block[j];
        }
      }
#pragma omp simd
      for (int64_t i2 = i2_start; i2 < i2_end; ++i2) {
        const float sum3_kept = sum3[i2 - i2_start];
        const float x8 = sum3_kept / 96.0f;
        const float x9 = x8 * sum3_kept;
        const float sum4_kept = sum4[i2 - i2_start];
        const float x10 = sum4_kept - x9;
        const float x11 = md_maximum_f32(0.0f, x10);
        const float x12 = x11 / 96.0f;
        const float x13 = x12 + 1e-05f;
        const float x0 = 1 / __builtin_sqrtf(x13);
        x0_row[i2 - i2_start] = x0;
      }
      for (int64_t i3_start = 0; i3_start < 96; i3_start += 64) {
        const int64_t i3_end = md_index_min(i3_start + 64, 96);
        float x14_row[4096];
        for (int64_t i3 = i3_start; i3 < i3_end; ++i3) {
          const float x15 = in1[i3];
          const float x16 = in2[i3];
#pragma omp simd
          for (int64_t i2 = i2_start; i2 < i2_end; ++i2) {
            const float x2 = in0[301056 * i0 + i2 + 3136 * i3];
            const float sum1_kept = sum1[i2 - i2_start];
            const float x5 = sum1_kept / 96.0f;
            const float sum3_kept = sum3[i2 - i2_start];
            const float x8 = sum3_kept / 96.0f;
            const float x17 = x5 + x8;
            const float x18 = x2 - x17;
            const float x0_kept = x0_row[i2 - i2_start];
            const float x19 = x18 * x0_kept;
            const float x20 = x19 * x15;
            const float x14 = x20 + x16;
            x14_row[(i3 - i3_start) * 64 + i2 - i2_start] = x14;
          }
        }
        md_transpose(x14_row, 64, i3_end - i3_start, i2_end - i2_start, out3 + 301056 * i0 + 96 * i2_start + i3_start, 96);
      }
    }
  }
  return 0;
}

// end of golden
