// Transposes a block in registers: what a loop that reads along one axis and writes along another cannot do in order.
//
// A tile of N x N values, N as wide as the machine's vectors or the block, is transposed by swapping its off-diagonal
// halves, then those of its quarters, and so on. At the rims a tile overlaps its neighbour, or elements are copied one by
// one. A part of cpp_math.h, in the same form.

//@ md_transpose :
#if defined(__AVX512F__)
#define MD_TILE_BYTES 64
#elif defined(__AVX__)
#define MD_TILE_BYTES 32
#else
#define MD_TILE_BYTES 16
#endif
// the rows and columns of a tile of elements of so many bytes; no instruction swaps one or two bytes across 16 bytes
constexpr int md_tile_side(int bytes) { return (bytes < 4 ? 16 : MD_TILE_BYTES) / bytes; }
template <int N, int BYTES> struct md_tile;
// one by one: g++ ignores may_alias on types that depend on a parameter
#define MD_TILE_OF(N, INTEGER) \
  template <> struct md_tile<N, sizeof(INTEGER)> { \
    typedef INTEGER row __attribute__((vector_size(sizeof(INTEGER) * N))); \
    typedef INTEGER in_memory __attribute__((vector_size(sizeof(INTEGER) * N), aligned(sizeof(INTEGER)), may_alias)); \
    typedef uint32_t bits __attribute__((vector_size(4 * N))); \
    typedef uint16_t bf16 __attribute__((vector_size(2 * N), aligned(2), may_alias)); \
  }
MD_TILE_OF(16, int8_t);
MD_TILE_OF(8, int16_t);
MD_TILE_OF(4, int32_t);
MD_TILE_OF(8, int32_t);
MD_TILE_OF(16, int32_t);
MD_TILE_OF(2, int64_t);
MD_TILE_OF(4, int64_t);
MD_TILE_OF(8, int64_t);
// an element as the array holds it: a bfloat16 becomes a float, others are of the same size
template <class U, class T> MD_INLINE U md_wide(T x) {
  if constexpr (sizeof(T) == sizeof(U)) return x;
  else return md_float((uint32_t)x << 16);
}
template <int N, int BYTES, class T> MD_INLINE typename md_tile<N, BYTES>::row md_wide_row(const T* in) {
  typedef md_tile<N, BYTES> tile;
  if constexpr (sizeof(T) == BYTES) return *(const typename tile::in_memory*)in;
  else return (typename tile::row)(__builtin_convertvector(*(const typename tile::bf16*)in, typename tile::bits) << 16);
}
// swaps the halves of S elements that lie off the diagonal of rows i and i + S
template <int N, int BYTES, int S> MD_INLINE void md_swap_halves(typename md_tile<N, BYTES>::row* row) {
  typename md_tile<N, BYTES>::row left, right;
  for (int k = 0; k < N; ++k) left[k] = (k & S) ? N + k - S : k;
  for (int k = 0; k < N; ++k) right[k] = (k & S) ? N + k : k + S;
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i)
    if (!(i & S)) {
      const typename md_tile<N, BYTES>::row a = row[i], b = row[i + S];
      row[i] = __builtin_shuffle(a, b, left);
      row[i + S] = __builtin_shuffle(a, b, right);
    }
  if constexpr (S > 1) md_swap_halves<N, BYTES, S / 2>(row);
}
template <int N, class T, class U> MD_INLINE void md_transpose_tile(const T* in, int64_t in_stride, U* out, int64_t out_stride) {
  typename md_tile<N, sizeof(U)>::row row[N];
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) row[i] = md_wide_row<N, sizeof(U)>(in + i * in_stride);
  md_swap_halves<N, sizeof(U), N / 2>(row);
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) *(typename md_tile<N, sizeof(U)>::in_memory*)(out + i * out_stride) = row[i];
}
// how many of `count` elements tiles of N hold: all, by a last tile that overlaps, unless very few are left over
template <int N> MD_INLINE int64_t md_tiled(int64_t count) { return count % N > N / 8 ? count : count - count % N; }
// out[c * out_stride + r] = in[r * in_stride + c] for r in [0, rows) and c in [0, columns): elements of 1, 2, 4 or 8
// bytes, or bfloat16 as float. `has_next`: a block of the rows behind these may follow.
template <class T, class U, int N = md_tile_side(sizeof(U))>
void md_transpose(
    const T* in, int64_t in_stride, int64_t rows, int64_t columns, U* out, int64_t out_stride, bool has_next = true) {
  static_assert(sizeof(T) == sizeof(U) || (sizeof(T) == 2 && sizeof(U) == 4), "a copy, or bfloat16 as float");
  if constexpr (N * sizeof(U) > 16)
    if (rows < N || columns < N) return md_transpose<T, U, N / 2>(in, in_stride, rows, columns, out, out_stride, has_next);
  const bool is_small = rows < N || columns < N;
  const int64_t tiled_rows = is_small ? 0 : md_tiled<N>(rows), tiled_columns = is_small ? 0 : md_tiled<N>(columns);
  for (int64_t i = 0; i < tiled_rows; i += N)
    for (int64_t j = 0; j < tiled_columns; j += N) {
      const int64_t r = i + N <= rows ? i : rows - N, c = j + N <= columns ? j : columns - N;
      // The next block follows, from memory and not from a staging buffer. Rows 2 KiB apart would drive each other out of
      // the first-level cache.
      if (has_next && in_stride >= out_stride && in_stride * sizeof(T) % 2048 != 0)
#pragma GCC unroll 16
        for (int k = 0; k < N; ++k) __builtin_prefetch(in + (r + k + rows) * in_stride + c);
      md_transpose_tile<N>(in + r * in_stride + c, in_stride, out + c * out_stride + r, out_stride);
    }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = r < tiled_rows ? tiled_columns : 0; c < columns; ++c) out[c * out_stride + r] = md_wide<U>(in[r * in_stride + c]);
}
// As md_transpose, from memory to memory. If rows of `out` are about a multiple of 4 KiB apart, they share few sets of the
// cache, so a line that is written in parts would leave it in between: an array gathers its parts.
//@ md_copy_transposed : md_transpose
template <class T>
void md_copy_transposed(
    const T* in, int64_t in_stride, int64_t rows, int64_t columns, T* out, int64_t out_stride, bool has_next = true) {
  constexpr int64_t SIDE = 64, LINE = 64 / sizeof(T);
  const bool is_crowded = (out_stride + LINE) * (int64_t)sizeof(T) % 4096 <= 128;
  if (!is_crowded || (md_tile_side(sizeof(T)) == LINE && out_stride % LINE == 0))
    return md_transpose(in, in_stride, rows, columns, out, out_stride, has_next);
  T block[SIDE * SIDE];
  for (int64_t row = 0; row < rows; row += SIDE)
    for (int64_t column = 0; column < columns; column += SIDE) {
      const int64_t high = rows - row < SIDE ? rows - row : SIDE, wide = columns - column < SIDE ? columns - column : SIDE;
      md_transpose(in + row * in_stride + column, in_stride, high, wide, block, SIDE);
      for (int64_t c = 0; c < wide; ++c)
        for (int64_t r = 0; r < high; ++r) out[(column + c) * out_stride + row + r] = block[c * SIDE + r];
    }
}
// As md_transpose, from floats to 16 bits: a band of columns at a time becomes rows, which `round(in, count, out)` rounds.
//@ md_transpose_to : md_transpose
template <class F> MD_INLINE void md_transpose_to(
    F round, const float* in, int64_t in_stride, int64_t rows, int64_t columns, uint16_t* out, int64_t out_stride) {
  constexpr int64_t BAND = 16, LENGTH = 128;
  float band[BAND * LENGTH];
  for (int64_t c = 0; c < columns; c += BAND)
    for (int64_t r = 0; r < rows; r += LENGTH) {
      const int64_t wide = columns - c < BAND ? columns - c : BAND, high = rows - r < LENGTH ? rows - r : LENGTH;
      md_transpose(in + r * in_stride + c, in_stride, high, wide, band, LENGTH);
      for (int64_t i = 0; i < wide; ++i) round(band + i * LENGTH, (int)high, out + (c + i) * out_stride + r);
    }
}
//@ md_transpose_rounded : md_transpose md_transpose_to md_f32_to_bf16
static inline void md_transpose_rounded(
    const float* in, int64_t in_stride, int64_t rows, int64_t columns, uint16_t* out, int64_t out_stride) {
  md_transpose_to([](const float* from, int count, uint16_t* to) MD_LAMBDA {
#pragma omp simd
    for (int l = 0; l < count; ++l) to[l] = md_f32_to_bf16(from[l]);
  }, in, in_stride, rows, columns, out, out_stride);
}
// values that are kept as they were loaded
static inline void md_transpose_rounded(
    const uint16_t* in, int64_t in_stride, int64_t rows, int64_t columns, uint16_t* out, int64_t out_stride) {
  md_transpose(in, in_stride, rows, columns, out, out_stride);
}
//@ md_transpose_halved : md_transpose md_transpose_to md_f16_store
static inline void md_transpose_halved(
    const float* in, int64_t in_stride, int64_t rows, int64_t columns, uint16_t* out, int64_t out_stride) {
  md_transpose_to([](const float* from, int count, uint16_t* to) MD_LAMBDA { md_f16_store(from, count, to); },
      in, in_stride, rows, columns, out, out_stride);
}
// As md_transpose, of float16 that becomes float: a band of rows at a time becomes columns, of which each is widened.
//@ md_transpose_widened : md_transpose md_f16_load md_f16_to_f32
static inline void md_transpose_widened(
    const uint16_t* in, int64_t in_stride, int64_t rows, int64_t columns, float* out, int64_t out_stride) {
  constexpr int64_t BAND = 64, LENGTH = 64;
  uint16_t band[BAND * LENGTH];
  for (int64_t r = 0; r < rows; r += BAND)
    for (int64_t c = 0; c < columns; c += LENGTH) {
      const int64_t high = rows - r < BAND ? rows - r : BAND, wide = columns - c < LENGTH ? columns - c : LENGTH;
      md_transpose(in + r * in_stride + c, in_stride, high, wide, band, BAND);
      for (int64_t i = 0; i < wide; ++i) {
        float* row = out + (c + i) * out_stride + r;
        if (out_stride % 16 == 0) md_f16_load(band + i * BAND, (int)high, row);
        else
          for (int64_t k = 0; k < high; ++k) row[k] = md_f16_to_f32(band[i * BAND + k]);
      }
    }
}
