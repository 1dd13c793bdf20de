// The same in intrinsics: g++ -O2 -mavx2 prints 0 1 1 1 1, g++ -O2 -mavx2 -mavx512vl -mavx512bw prints 1 1 2 3 4.
#include <immintrin.h>
#include <cstdio>

__attribute__((noinline)) __m256i clipped(__m256i x, __m256i one) {
  const __m256i is_at_most = _mm256_cmpeq_epi8(_mm256_max_epu8(one, x), one);
  const __m256i is_more = _mm256_xor_si256(is_at_most, _mm256_set1_epi64x(-1));
  return _mm256_blendv_epi8(x, one, is_more);
}

int main() {
  unsigned char values[32], found[32];
  for (int i = 0; i < 32; ++i) values[i] = i % 5;
  const __m256i x = _mm256_loadu_si256((__m256i*)values);
  _mm256_storeu_si256((__m256i*)found, clipped(x, _mm256_set1_epi8(1)));
  for (int i = 0; i < 5; ++i) std::printf("%d ", found[i]);
  std::puts("");
}
