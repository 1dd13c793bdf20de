// golden  tests/e2e/test_mutants.py::test_column_sums   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=2  bytes=1400280  peak=280

// aten.sum.dim_IntList: sum_1
extern "C" int64_t sum_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
  float sum0_parts[1470];
#pragma omp parallel for num_threads(threads)
  for (int64_t i1_start = 0; i1_start < 5000; i1_start += 239) {
    const int64_t i1_end = md_index_min(i1_start + 239, 5000);
    float sum0[70];
    for (int l = 0; l < 70; ++l) sum0[l] = 0.0f;
    for (int64_t i1_inner_start = i1_start; i1_inner_start < i1_end; i1_inner_start += 128) {
      const int64_t i1_inner_end = md_index_min(i1_inner_start + 128, i1_end);
      float sum0_block[70];
      for (int l = 0; l < 70; ++l) sum0_block[l] = 0.0f;
      md_groups<8>(i1_inner_start, i1_inner_end, [&](int64_t i1_group, auto rows) MD_LAMBDA {
#pragma omp simd
        for (int64_t i0 = 0; i0 < 70; ++i0) {
          float sum0_terms[rows];
          md_rows(rows, [&](int r) MD_LAMBDA {
            const int64_t i1 = i1_group + r;
            const float x1 = in0[i0 + 70 * i1];
            sum0_terms[r] = x1;
          });
          md_join_rows(rows, [&](int a, int b) MD_LAMBDA {
            sum0_terms[a] = sum0_terms[a] + sum0_terms[b];
          });
          sum0_block[i0] = sum0_block[i0] + sum0_terms[0];
        }
      });
#pragma omp simd
      for (int j = 0; j < 70; ++j) {
        sum0[j] = sum0[j] + sum0_block[j];
      }
    }
    for (int j = 0; j < 70; ++j) sum0_parts[i1_start / 239 * 70 + j] = sum0[j];
  }
  for (int64_t step = 1; step < 21; step *= 2) {
    for (int64_t part = 0; part + step < 21; part += 2 * step) {
#pragma omp simd
      for (int j = 0; j < 70; ++j) {
        sum0_parts[part * 70 + j] = sum0_parts[part * 70 + j] + sum0_parts[(part + step) * 70 + j];
      }
    }
  }
#pragma omp simd
  for (int64_t i0 = 0; i0 < 70; ++i0) {
    const float sum0_kept = sum0_parts[i0];
    out1[i0] = sum0_kept;
  }
  return 0;
}

// end of golden
