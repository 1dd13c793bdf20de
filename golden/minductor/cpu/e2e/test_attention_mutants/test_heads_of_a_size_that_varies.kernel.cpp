// golden  tests/e2e/test_attention_mutants.py::test_heads_of_a_size_that_varies   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=3  externs=2  block_accesses=4  bytes=72061992084439040

// aten.clone.default: clone
extern "C" int64_t clone_0(const float* __restrict in0, float* __restrict out1, int64_t s0, int64_t s1, int64_t s2, int64_t s3, int64_t threads) {
#pragma omp parallel for collapse(4) num_threads(s0 * s1 * s2 * s3 > 16384 ? threads : 1)
  for (int64_t i0 = 0; i0 < s0; ++i0) {
    for (int64_t i1 = 0; i1 < s3; ++i1) {
      for (int64_t i2_start = 0; i2_start < s2; i2_start += 64) {
        for (int64_t i3_start = 0; i3_start < s1; i3_start += 64) {
          const int64_t i2_end = md_index_min(i2_start + 64, s2);
          const int64_t i3_end = md_index_min(i3_start + 64, s1);
          md_copy_transposed(in0 + i0 * s1 * s2 + i3_start * s2 + i2_start, s2, i3_end - i3_start, i2_end - i2_start, out1 + i0 * s1 * s2 * s3 + i1 * s1 * s2 + i2_start * s1 + i3_start, s1);
        }
      }
    }
  }
  return 0;
}

// aten.mul.Tensor: mul_65
// aten._softmax.default: _softmax
extern "C" int64_t fused_mul_softmax_1(float* __restrict io0, int64_t s0, int64_t s1, int64_t s3, int64_t threads) {
#pragma omp parallel for num_threads(s0 * s1 * s1 * s3 > 16384 ? threads : 1) firstprivate(io0)
  for (int64_t i2 = 0; i2 < s0 * s1 * s3; ++i2) {
    float max0_lanes[64];
    for (int l = 0; l < 64; ++l) max0_lanes[l] = -MD_INF;
    md_masked_lanes<64, 4>(0, s1, [&](int64_t i3, int l, bool on) MD_LAMBDA {
      const float x1 = (on ? io0[i2 * s1 + i3] : (float)0);
      const float x2 = x1 * 0.25f;
      max0_lanes[l] = on ? md_maximum_f32(max0_lanes[l], x2) : max0_lanes[l];
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      max0_lanes[a] = md_maximum_f32(max0_lanes[a], max0_lanes[b]);
    });
    const float max0 = max0_lanes[0];
    float sum3_whole;
    if (s1 <= 2048) {
      float sum3_lanes[64];
      for (int l = 0; l < 64; ++l) sum3_lanes[l] = 0.0f;
      md_masked_lanes<64, 4>(0, s1, [&](int64_t i3, int l, bool on) MD_LAMBDA {
        const float x1 = (on ? io0[i2 * s1 + i3] : (float)0);
        const float x2 = x1 * 0.25f;
        const float x4 = x2 - max0;
        const float x5 = md_exp_nonpositive_f32(x4);
        if (on) io0[i2 * s1 + i3] = x5;
        sum3_lanes[l] = on ? sum3_lanes[l] + x5 : sum3_lanes[l];
      });
      md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
        sum3_lanes[a] = sum3_lanes[a] + sum3_lanes[b];
      });
      const float sum3 = sum3_lanes[0];
      sum3_whole = sum3;
    }
    else {
      float sum3_lanes[64];
      for (int l = 0; l < 64; ++l) sum3_lanes[l] = 0.0f;
      for (int64_t i3_start = 0; i3_start < s1; i3_start += 2097152) {
        const int64_t i3_end = md_index_min(i3_start + 2097152, s1);
        float sum3_block_lanes[64];
        for (int l = 0; l < 64; ++l) sum3_block_lanes[l] = 0.0f;
        for (int64_t i3_inner_start = i3_start; i3_inner_start < i3_end; i3_inner_start += 65536) {
          const int64_t i3_inner_end = md_index_min(i3_inner_start + 65536, i3_end);
          float sum3_block_block_lanes[64];
          for (int l = 0; l < 64; ++l) sum3_block_block_lanes[l] = 0.0f;
          for (int64_t i3_inner_inner_start = i3_inner_start; i3_inner_inner_start < i3_inner_end; i3_inner_inner_start += 2048) {
            const int64_t i3_inner_inner_end = md_index_min(i3_inner_inner_start + 2048, i3_inner_end);
            float sum3_block_block_block_lanes[64];
            for (int l = 0; l < 64; ++l) sum3_block_block_block_lanes[l] = 0.0f;
            md_masked_lanes<64, 4>(i3_inner_inner_start, i3_inner_inner_end, [&](int64_t i3, int l, bool on) MD_LAMBDA {
              const float x1 = (on ? io0[i2 * s1 + i3] : (float)0);
              const float x2 = x1 * 0.25f;
              const float x4 = x2 - max0;
              const float x5 = md_exp_nonpositive_f32(x4);
              if (on) io0[i2 * s1 + i3] = x5;
              sum3_block_block_block_lanes[l] = on ? sum3_block_block_block_lanes[l] + x5 : sum3_block_block_block_lanes[l];
            });
#pragma omp simd
            for (int j = 0; j < 64; ++j) {
              sum3_block_block_lanes[j] = sum3_block_block_lanes[j] + sum3_block_block_block_lanes[j];
            }
          }
#pragma omp simd
          for (int j = 0; j < 64; ++j) {
            sum3_block_lanes[j] = sum3_block_lanes[j] + sum3_block_block_lanes[j];
          }
        }
#pragma omp simd
        for (int j = 0; j < 64; ++j) {
          sum3_lanes[j] = sum3_lanes[j] + sum3_block_lanes[j];
        }
      }
      md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
        sum3_lanes[a] = sum3_lanes[a] + sum3_lanes[b];
      });
      const float sum3 = sum3_lanes[0];
      sum3_whole = sum3;
    }
    const float sum3 = sum3_whole;
    const float x6 = 1.0f / sum3;
#pragma omp simd
    for (int64_t i3 = 0; i3 < s1; ++i3) {
      const float x5_kept = io0[i2 * s1 + i3];
      const float x7 = x5_kept * x6;
      const float x8 = -(x7);
      const float x9 = md_fma(x8, sum3, x5_kept);
      const float x10 = md_fma(x9, x6, x7);
      io0[i2 * s1 + i3] = x10;
    }
  }
  return 0;
}

// aten.clone.default: clone_1
extern "C" int64_t clone_2(const float* __restrict in0, float* __restrict out1, int64_t s0, int64_t s1, int64_t s2, int64_t s3, int64_t threads) {
#pragma omp parallel for collapse(2) num_threads(s0 * s1 * s2 * s3 > 16384 ? threads : 1)
  for (int64_t i0 = 0; i0 < s0; ++i0) {
    for (int64_t i1 = 0; i1 < s3; ++i1) {
      md_copy_row(out1 + i0 * s1 * s2 * s3 + i1 * s1 * s2, in0 + i0 * s1 * s2, s1 * s2);
    }
  }
  return 0;
}

// end of golden
