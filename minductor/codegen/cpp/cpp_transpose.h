// Transposes a block in registers: what a loop that reads along one axis and writes along another cannot do in order.
//
// A tile of N x N values, N as wide as the machine's vectors, is transposed by swapping its off-diagonal halves, then
// those of its quarters, and so on. Elements at the rims are copied one by one. A part of cpp_math.h, in the same form.

//@ md_transpose :
#if defined(__AVX512F__)
#define MD_TILE 16
#elif defined(__AVX__)
#define MD_TILE 8
#else
#define MD_TILE 4
#endif
typedef int32_t md_tile_row __attribute__((vector_size(4 * MD_TILE)));
typedef int32_t md_tile_row_in_memory __attribute__((vector_size(4 * MD_TILE), aligned(4), may_alias));
typedef uint16_t md_tile_bf16 __attribute__((vector_size(2 * MD_TILE), aligned(2), may_alias));
typedef uint32_t md_tile_bits __attribute__((vector_size(4 * MD_TILE)));
// what a bfloat16 is computed in; other values have four bytes already
template <class T> MD_INLINE T md_wide(T x) { return x; }
MD_INLINE float md_wide(uint16_t x) { return md_float((uint32_t)x << 16); }
template <class T> MD_INLINE md_tile_row md_wide_row(const T* in) { return *(const md_tile_row_in_memory*)in; }
MD_INLINE md_tile_row md_wide_row(const uint16_t* in) {
  return (md_tile_row)(__builtin_convertvector(*(const md_tile_bf16*)in, md_tile_bits) << 16);
}
// swaps the halves of S elements that lie off the diagonal of rows i and i + S
template <int S> MD_INLINE void md_swap_halves(md_tile_row* row) {
  md_tile_row left, right;
  for (int k = 0; k < MD_TILE; ++k) left[k] = (k & S) ? MD_TILE + k - S : k;
  for (int k = 0; k < MD_TILE; ++k) right[k] = (k & S) ? MD_TILE + k : k + S;
#pragma GCC unroll 16
  for (int i = 0; i < MD_TILE; ++i)
    if (!(i & S)) {
      const md_tile_row a = row[i], b = row[i + S];
      row[i] = __builtin_shuffle(a, b, left);
      row[i + S] = __builtin_shuffle(a, b, right);
    }
  if constexpr (S > 1) md_swap_halves<S / 2>(row);
}
template <class T> MD_INLINE void md_transpose_tile(const T* in, int64_t in_stride, int32_t* out, int64_t out_stride) {
  md_tile_row row[MD_TILE];
#pragma GCC unroll 16
  for (int i = 0; i < MD_TILE; ++i) row[i] = md_wide_row(in + i * in_stride);
  md_swap_halves<MD_TILE / 2>(row);
#pragma GCC unroll 16
  for (int i = 0; i < MD_TILE; ++i) *(md_tile_row_in_memory*)(out + i * out_stride) = row[i];
}
// out[c * out_stride + r] = in[r * in_stride + c] for r in [0, rows) and c in [0, columns): values of four bytes, or
// bfloat16 as float
template <class T, class U>
void md_transpose(const T* in, int64_t in_stride, int64_t rows, int64_t columns, U* out, int64_t out_stride) {
  static_assert(sizeof(md_wide(*in)) == 4 && sizeof(U) == 4, "values of four bytes");
  const int64_t whole_rows = rows - rows % MD_TILE, whole_columns = columns - columns % MD_TILE;
  for (int64_t r = 0; r < whole_rows; r += MD_TILE)
    for (int64_t c = 0; c < whole_columns; c += MD_TILE)
      md_transpose_tile(in + r * in_stride + c, in_stride, (int32_t*)(out + c * out_stride + r), out_stride);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c) out[c * out_stride + r] = md_wide(in[r * in_stride + c]);
}
