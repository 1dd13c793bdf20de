// Transposes a block in registers: what a loop that reads along one axis and writes along another cannot do in order.
//
// A tile of N x N values, N as wide as the machine's vectors or the block, is transposed by swapping its off-diagonal
// halves, then those of its quarters, and so on. At the rims a tile overlaps its neighbour, or elements are copied one by
// one. A part of cpp_math.h, in the same form.

//@ md_transpose :
#if defined(__AVX512F__)
#define MD_TILE 16
#elif defined(__AVX__)
#define MD_TILE 8
#else
#define MD_TILE 4
#endif
template <int N> struct md_tile;
// one by one: g++ ignores may_alias on types that depend on a parameter
#define MD_TILE_OF(N) \
  template <> struct md_tile<N> { \
    typedef int32_t row __attribute__((vector_size(4 * N))); \
    typedef int32_t in_memory __attribute__((vector_size(4 * N), aligned(4), may_alias)); \
    typedef uint32_t bits __attribute__((vector_size(4 * N))); \
    typedef uint16_t bf16 __attribute__((vector_size(2 * N), aligned(2), may_alias)); \
  }
MD_TILE_OF(4);
MD_TILE_OF(8);
MD_TILE_OF(16);
// what a bfloat16 is computed in; other values have four bytes already
template <class T> MD_INLINE T md_wide(T x) { return x; }
MD_INLINE float md_wide(uint16_t x) { return md_float((uint32_t)x << 16); }
template <int N, class T> MD_INLINE typename md_tile<N>::row md_wide_row(const T* in) {
  typedef typename md_tile<N>::row row;
  if constexpr (sizeof(T) == 4) return *(const typename md_tile<N>::in_memory*)in;
  else return (row)(__builtin_convertvector(*(const typename md_tile<N>::bf16*)in, typename md_tile<N>::bits) << 16);
}
// swaps the halves of S elements that lie off the diagonal of rows i and i + S
template <int N, int S> MD_INLINE void md_swap_halves(typename md_tile<N>::row* row) {
  typename md_tile<N>::row left, right;
  for (int k = 0; k < N; ++k) left[k] = (k & S) ? N + k - S : k;
  for (int k = 0; k < N; ++k) right[k] = (k & S) ? N + k : k + S;
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i)
    if (!(i & S)) {
      const typename md_tile<N>::row a = row[i], b = row[i + S];
      row[i] = __builtin_shuffle(a, b, left);
      row[i + S] = __builtin_shuffle(a, b, right);
    }
  if constexpr (S > 1) md_swap_halves<N, S / 2>(row);
}
template <int N, class T> MD_INLINE void md_transpose_tile(const T* in, int64_t in_stride, int32_t* out, int64_t out_stride) {
  typename md_tile<N>::row row[N];
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) row[i] = md_wide_row<N>(in + i * in_stride);
  md_swap_halves<N, N / 2>(row);
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) *(typename md_tile<N>::in_memory*)(out + i * out_stride) = row[i];
}
// how many of `count` elements tiles of N hold: all, by a last tile that overlaps, unless very few are left over
template <int N> MD_INLINE int64_t md_tiled(int64_t count) { return count % N > N / 8 ? count : count - count % N; }
// out[c * out_stride + r] = in[r * in_stride + c] for r in [0, rows) and c in [0, columns): values of four bytes, or
// bfloat16 as float
template <int N = MD_TILE, class T, class U>
void md_transpose(const T* in, int64_t in_stride, int64_t rows, int64_t columns, U* out, int64_t out_stride) {
  static_assert(sizeof(md_wide(*in)) == 4 && sizeof(U) == 4, "values of four bytes");
  if constexpr (N > 4)
    if (rows < N || columns < N) return md_transpose<N / 2>(in, in_stride, rows, columns, out, out_stride);
  const bool is_small = rows < N || columns < N;
  const int64_t tiled_rows = is_small ? 0 : md_tiled<N>(rows), tiled_columns = is_small ? 0 : md_tiled<N>(columns);
  for (int64_t i = 0; i < tiled_rows; i += N)
    for (int64_t j = 0; j < tiled_columns; j += N) {
      const int64_t r = i + N <= rows ? i : rows - N, c = j + N <= columns ? j : columns - N;
      // The next block follows, from memory and not from a staging buffer. Rows 2 KiB apart would drive each other out of
      // the first-level cache.
      if (in_stride > out_stride && in_stride * sizeof(T) % 2048 != 0)
#pragma GCC unroll 16
        for (int k = 0; k < N; ++k) __builtin_prefetch(in + (r + k + rows) * in_stride + c);
      md_transpose_tile<N>(in + r * in_stride + c, in_stride, (int32_t*)(out + c * out_stride + r), out_stride);
    }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = r < tiled_rows ? tiled_columns : 0; c < columns; ++c) out[c * out_stride + r] = md_wide(in[r * in_stride + c]);
}
