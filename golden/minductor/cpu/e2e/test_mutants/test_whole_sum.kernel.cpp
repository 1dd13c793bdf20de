// golden  tests/e2e/test_mutants.py::test_whole_sum   target=cpu  view=kernel  level=canonical  form=2
// facts   kernels=1  block_accesses=1  bytes=1048580  peak=4

// aten.sum.default: sum_1
extern "C" int64_t sum_0(const float* __restrict in0, float* __restrict out1, int64_t threads) {
  float sum0_parts[16];
#pragma omp parallel for num_threads(threads)
  for (int64_t i0_start = 0; i0_start < 262144; i0_start += 16384) {
    const int64_t i0_end = i0_start + 16384;
    float sum0_lanes[64];
    for (int l = 0; l < 64; ++l) sum0_lanes[l] = 0.0f;
    for (int64_t i0_inner_start = i0_start; i0_inner_start < i0_end; i0_inner_start += 2048) {
      const int64_t i0_inner_end = i0_inner_start + 2048;
      float sum0_block_lanes[64];
      for (int l = 0; l < 64; ++l) sum0_block_lanes[l] = 0.0f;
      md_lanes<64>(i0_inner_start, i0_inner_end, [&](int64_t i0, int l) MD_LAMBDA {
        const float x1 = in0[i0];
        sum0_block_lanes[l] = sum0_block_lanes[l] + x1;
      });
#pragma omp simd
      for (int j = 0; j < 64; ++j) {
        sum0_lanes[j] = sum0_lanes[j] + sum0_block_lanes[j];
      }
    }
    md_join_lanes<64>([&](int a, int b) MD_LAMBDA {
      sum0_lanes[a] = sum0_lanes[a] + sum0_lanes[b];
    });
    const float sum0 = sum0_lanes[0];
    sum0_parts[i0_start / 16384] = sum0;
  }
  for (int64_t step = 1; step < 16; step *= 2) {
    for (int64_t part = 0; part + step < 16; part += 2 * step) {
      sum0_parts[part] = sum0_parts[part] + sum0_parts[part + step];
    }
  }
  const float sum0 = sum0_parts[0];
  out1[0] = sum0;
  return 0;
}

// end of golden
