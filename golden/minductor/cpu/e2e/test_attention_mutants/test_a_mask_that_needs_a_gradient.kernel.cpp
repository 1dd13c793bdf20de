// golden  tests/e2e/test_attention_mutants.py::test_a_mask_that_needs_a_gradient   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=3  externs=6  block_accesses=10  bytes=6488064  peak=2408448

// aten.add.Tensor: add
// aten._to_copy.default: _to_copy, _to_copy_1
// aten._softmax.default: _softmax
extern "C" int64_t fused_add_to_copy_softmax_to_copy_0(uint16_t* __restrict io0, const uint16_t* __restrict in1, float* __restrict out2, int64_t threads) {
#pragma omp parallel for collapse(2) num_threads(threads)
  for (int64_t i0 = 0; i0 < 2; ++i0) {
    for (int64_t i2_start = 0; i2_start < 768; i2_start += 8) {
      const int64_t i2_end = i2_start + 8;
      float x0_row[1536];
      float max1_row[8];
      float x2_row[1536];
      float sum3_row[8];
      float x4_row[8];
      for (int64_t i2 = i2_start; i2 < i2_end; ++i2) {
        float max1_lanes[64];
        for (int l = 0; l < 64; ++l) max1_lanes[l] = -MD_INF;
        md_lanes<64>(0, 192, [&](int64_t i3, int l) MD_LAMBDA {
          const float x5 = md_bf16_to_f32(io0[147456 * i0 + 192 * i2 + i3]);
          const float x6 = md_bf16_to_f32(in1[192 * i2 + i3]);
          const float x0 = x5 + x6;
          x0_row[(i2 - i2_start) * 192 + i3] = x0;
          max1_lanes[l] = md_maximum_f32(max1_lanes[l], x0);
        });
        md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
          max1_lanes[a] = md_maximum_f32(max1_lanes[a], max1_lanes[b]);
        });
        const float max1 = max1_lanes[0];
        max1_row[i2 - i2_start] = max1;
      }
      for (int64_t i2 = i2_start; i2 < i2_end; ++i2) {
        float sum3_lanes[64];
        for (int l = 0; l < 64; ++l) sum3_lanes[l] = 0.0f;
        md_lanes<64>(0, 192, [&](int64_t i3, int l) MD_LAMBDA {
          const float x0_kept = x0_row[(i2 - i2_start) * 192 + i3];
          const float max1_kept = max1_row[i2 - i2_start];
          const float x7 = x0_kept - max1_kept;
          const float x2 = md_exp_nonpositive_f32(x7);
          x2_row[(i2 - i2_start) * 192 + i3] = x2;
          sum3_lanes[l] = sum3_lanes[l] + x2;
        });
        md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
          sum3_lanes[a] = sum3_lanes[a] + sum3_lanes[b];
        });
        const float sum3 = sum3_lanes[0];
        sum3_row[i2 - i2_start] = sum3;
      }
#pragma omp simd
      for (int64_t i2 = i2_start; i2 < i2_end; ++i2) {
        const float sum3_kept = sum3_row[i2 - i2_start];
        const float x4 = 1.0f / sum3_kept;
        x4_row[i2 - i2_start] = x4;
      }
      for (int64_t i2 = i2_start; i2 < i2_end; ++i2) {
#pragma omp simd
        for (int64_t i3 = 0; i3 < 192; ++i3) {
          const float x2_kept = x2_row[(i2 - i2_start) * 192 + i3];
          const float x4_kept = x4_row[i2 - i2_start];
          const float x8 = x2_kept * x4_kept;
          const float x9 = -(x8);
          const float sum3_kept = sum3_row[i2 - i2_start];
          const float x10 = md_fma(x9, sum3_kept, x2_kept);
          const float x11 = md_fma(x10, x4_kept, x8);
          out2[147456 * i0 + 192 * i2 + i3] = x11;
          io0[147456 * i0 + 192 * i2 + i3] = md_f32_to_bf16(x11);
        }
      }
    }
  }
  return 0;
}

// aten._to_copy.default: _to_copy_2, _to_copy_3
// aten._softmax_backward_data.default: _softmax_backward_data
// aten.copy.default: copy, copy_1
// aten.clone.default: clone
extern "C" int64_t fused_to_copy_softmax_backward_data_to_copy_copy_clone_copy_0(uint16_t* __restrict io0, const float* __restrict in1, uint16_t* __restrict out2, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i2 = 0; i2 < 1536; ++i2) {
    float sum0_lanes[64];
    for (int l = 0; l < 64; ++l) sum0_lanes[l] = 0.0f;
    md_lanes<64>(0, 192, [&](int64_t i3, int l) MD_LAMBDA {
      const float x1 = md_bf16_to_f32(io0[192 * i2 + i3]);
      const float x2 = in1[192 * i2 + i3];
      const float x3 = x1 * x2;
      sum0_lanes[l] = sum0_lanes[l] + x3;
    });
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      sum0_lanes[a] = sum0_lanes[a] + sum0_lanes[b];
    });
    const float sum0 = sum0_lanes[0];
#pragma omp simd
    for (int64_t i3 = 0; i3 < 192; ++i3) {
      const float x1 = md_bf16_to_f32(io0[192 * i2 + i3]);
      const float x2 = in1[192 * i2 + i3];
      const float x4 = x1 - sum0;
      const float x5 = x4 * x2;
      io0[192 * i2 + i3] = md_f32_to_bf16(x5);
      out2[192 * i2 + i3] = md_f32_to_bf16(x5);
    }
  }
  return 0;
}

// aten.sum.dim_IntList: sum_1
extern "C" int64_t sum_1(const uint16_t* __restrict in0, uint16_t* __restrict out1, int64_t threads) {
#pragma omp parallel for num_threads(threads)
  for (int64_t i2_start = 0; i2_start < 147456; i2_start += 256) {
    const int64_t i2_end = i2_start + 256;
    float sum0[256];
    for (int l = 0; l < 256; ++l) sum0[l] = 0.0f;
    md_groups<2>(0, 2, [&](int64_t i3_group, auto rows) MD_LAMBDA {
#pragma omp simd
      for (int64_t i2 = i2_start; i2 < i2_end; ++i2) {
        float sum0_terms[rows];
        md_rows(rows, [&](int r) MD_LAMBDA {
          const int64_t i3 = i3_group + r;
          const float x1 = md_bf16_to_f32(in0[i2 + 147456 * i3]);
          sum0_terms[r] = x1;
        });
        md_join_rows(rows, [&](int a, int b) MD_LAMBDA {
          sum0_terms[a] = sum0_terms[a] + sum0_terms[b];
        });
        sum0[i2 - i2_start] = sum0[i2 - i2_start] + sum0_terms[0];
      }
    });
#pragma omp simd
    for (int64_t i2 = i2_start; i2 < i2_end; ++i2) {
      const float sum0_kept = sum0[i2 - i2_start];
      out1[i2] = md_f32_to_bf16(sum0_kept);
    }
  }
  return 0;
}

// end of golden
