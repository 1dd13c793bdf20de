// golden  tests/e2e/test_attention_mutants.py::test_a_mask_of_groups_of_heads   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  externs=2  block_accesses=3  bytes=2654208  peak=1277952

// aten.mul.Tensor: mul
// aten.add.Tensor: add
// aten._softmax.default: _softmax
extern "C" int64_t fused_mul_add_softmax_0(float* __restrict io0, const float* __restrict in1, int64_t threads) {
#pragma omp parallel for collapse(4) num_threads(threads)
  for (int64_t i0 = 0; i0 < 2; ++i0) {
    for (int64_t i1 = 0; i1 < 2; ++i1) {
      for (int64_t i2 = 0; i2 < 2; ++i2) {
        for (int64_t i3_start = 0; i3_start < 192; i3_start += 8) {
          const int64_t i3_end = i3_start + 8;
          float x0_row[1536];
          float max1_row[8];
          float x2_row[1536];
          float sum3_row[8];
          float x4_row[8];
          for (int64_t i3 = i3_start; i3 < i3_end; ++i3) {
            float max1_lanes[64];
            for (int l = 0; l < 64; ++l) max1_lanes[l] = -MD_INF;
            md_lanes<64>(0, 192, [&](int64_t i4, int l) MD_LAMBDA {
              const float x5 = io0[147456 * i0 + 73728 * i1 + 36864 * i2 + 192 * i3 + i4];
              const float x6 = x5 * 0.25f;
              const float x7 = in1[36864 * i1 + 192 * i3 + i4];
              const float x0 = x6 + x7;
              x0_row[(i3 - i3_start) * 192 + i4] = x0;
              max1_lanes[l] = md_maximum_f32(max1_lanes[l], x0);
            });
            md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
              max1_lanes[a] = md_maximum_f32(max1_lanes[a], max1_lanes[b]);
            });
            const float max1 = max1_lanes[0];
            max1_row[i3 - i3_start] = max1;
          }
          for (int64_t i3 = i3_start; i3 < i3_end; ++i3) {
            float sum3_lanes[64];
            for (int l = 0; l < 64; ++l) sum3_lanes[l] = 0.0f;
            md_lanes<64>(0, 192, [&](int64_t i4, int l) MD_LAMBDA {
              const float x0_kept = x0_row[(i3 - i3_start) * 192 + i4];
              const float max1_kept = max1_row[i3 - i3_start];
              const float x8 = x0_kept - max1_kept;
              const float x2 = md_exp_nonpositive_f32(x8);
              x2_row[(i3 - i3_start) * 192 + i4] = x2;
              sum3_lanes[l] = sum3_lanes[l] + x2;
            });
            md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
              sum3_lanes[a] = sum3_lanes[a] + sum3_lanes[b];
            });
            const float sum3 = sum3_lanes[0];
            sum3_row[i3 - i3_start] = sum3;
          }
#pragma omp simd
          for (int64_t i3 = i3_start; i3 < i3_end; ++i3) {
            const float sum3_kept = sum3_row[i3 - i3_start];
            const float x4 = 1.0f / sum3_kept;
            x4_row[i3 - i3_start] = x4;
          }
          for (int64_t i3 = i3_start; i3 < i3_end; ++i3) {
#pragma omp simd
            for (int64_t i4 = 0; i4 < 192; ++i4) {
              const float x2_kept = x2_row[(i3 - i3_start) * 192 + i4];
              const float x4_kept = x4_row[i3 - i3_start];
              const float x9 = x2_kept * x4_kept;
              const float x10 = -(x9);
              const float sum3_kept = sum3_row[i3 - i3_start];
              const float x11 = md_fma(x10, sum3_kept, x2_kept);
              const float x12 = md_fma(x11, x4_kept, x9);
              io0[147456 * i0 + 73728 * i1 + 36864 * i2 + 192 * i3 + i4] = x12;
            }
          }
        }
      }
    }
  }
  return 0;
}

// end of golden
