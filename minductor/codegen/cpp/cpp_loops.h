// What generated kernels use beside mathematics: loops with lanes, and index arithmetic that rounds down; a part of
// cpp_math.h, in the same form.
//
// A reduce along a vector loop has W accumulators, one a lane: element e of the loop goes to lane e % W, on every CPU,
// so the count fixes the bits. The compiler turns the arrays into vector registers, since W is a constant.

//@ md_fetch :
// Asks for the lines of memory at `row`, which a loop then reads in an order that the processor does not foresee.
MD_INLINE void md_fetch(const void* row, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch((const char*)row + at);
}

//@ md_fetch_short : md_fetch
// As md_fetch, if the row fits half of a first-level cache and two of `count` reads fall on each of its lines. Few lines
// come by themselves as soon.
MD_INLINE void md_fetch_short(const void* row, int64_t bytes, int64_t count) {
  if (bytes >= 2048 && bytes <= 16384 && bytes <= 32 * count) md_fetch(row, bytes);
}

//@ md_copy_pieces :
// Copies `size` bytes in pieces of B bytes, of which there is at least one. The last piece ends where the row ends, so
// it may copy again what the piece before it has.
template <int B> MD_INLINE void md_copy_pieces(char* out, const char* in, int64_t size) {
  for (int64_t i = 0; i + B < size; i += B) __builtin_memcpy(out + i, in + i, B);
  __builtin_memcpy(out + size - B, in + size - B, B);
}

//@ md_copy_row : md_copy_pieces
// out[i] = in[i] for i in [0, count). The C library copies long rows without reading the memory that it overwrites.
template <class T> MD_INLINE void md_copy_row(T* out, const T* in, int64_t count) {
  const int64_t size = count * (int64_t)sizeof(T);
  if (size >= 2048) {
    __builtin_memcpy(out, in, size);
  } else if (size >= 64) {
    md_copy_pieces<64>((char*)out, (const char*)in, size);
  } else if (size >= 16) {
    md_copy_pieces<16>((char*)out, (const char*)in, size);
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = in[i];
  }
}

//@ md_call_nothing :
// g++ up to 14 may place the arrays of a function that calls nothing at odd multiples of 8 bytes (GCC bug 109780), where
// its moves of 16 bytes fault. A function that calls this one has them in place.
static __attribute__((noinline, unused)) void md_call_nothing() { asm volatile(""); }

//@ md_lanes :
// body(i, l) for i in [begin, end), where l is the lane of i
template <int W, class F> MD_INLINE void md_lanes(int64_t begin, int64_t end, F body) {
  int64_t i = begin;
  for (; i + W <= end; i += W) {
#pragma omp simd
    for (int l = 0; l < W; ++l) body(i + l, l);
  }
  const int rest = (int)(end - i);
#pragma omp simd
  for (int l = 0; l < rest; ++l) body(i + l, l);
}

//@ md_masked_rest :
// body(i + l, l, l < rest) for l in [L, W), in parts of N lanes, up to the part that holds the last of the rest
template <int W, int N, int L = 0, class F> MD_INLINE void md_masked_rest(int64_t i, int rest, F body) {
  if (rest > L) {
#pragma omp simd
    for (int l = L; l < L + N; ++l) body(i + l, l, l < rest);
    if constexpr (L + N < W) md_masked_rest<W, N, L + N>(i, rest, body);
  }
}

//@ md_masked_lanes : md_masked_rest
// As md_lanes, with body(i, l, on): what is left over runs in whole vectors, too, and `on` is whether i lies before the
// end. Accumulators then stay in registers. Vector units that cannot mask elements of so many bytes run the lanes that
// are left over one by one.
#ifdef __AVX2__
#define MD_LEAST_MASKED 4
#endif
#ifdef __AVX512BW__
#undef MD_LEAST_MASKED
#define MD_LEAST_MASKED 1
#endif
#ifndef MD_LEAST_MASKED
#define MD_LEAST_MASKED 16
#endif
template <int W, int BYTES, class F> MD_INLINE void md_masked_lanes(int64_t begin, int64_t end, F body) {
  int64_t i = begin;
  for (; i + W <= end; i += W) {
#pragma omp simd
    for (int l = 0; l < W; ++l) body(i + l, l, true);
  }
  int rest = (int)(end - i);
  if constexpr (BYTES >= MD_LEAST_MASKED) {
    asm("" : "+r"(rest));  // g++ splits a loop at a number that it knows, and then vectorises neither part
    md_masked_rest<W, W % 16 == 0 ? 16 : W>(i, rest, body);
  } else {
#pragma omp simd
    for (int l = 0; l < rest; ++l) body(i + l, l, true);
  }
}

//@ md_end_if :
// The end of all numbers if the condition holds, else of none: i < md_end_if(on) is `on` for each i of a loop. g++ 12
// vectorises a loop with this mask, and not one whose mask stays the same. The asm hides that it does.
MD_INLINE int64_t md_end_if(bool on) {
  int64_t end = on ? 0x7fffffffffffffff : 0;
  asm("" : "+r"(end));
  return end;
}

//@ md_strips :
// body(i, count) for strips of W elements in [begin, end), and for what is left over
template <int W, class F> MD_INLINE void md_strips(int64_t begin, int64_t end, F body) {
  int64_t i = begin;
  for (; i + W <= end; i += W) body(i, W);
  if (i < end) body(i, (int)(end - i));
}

//@ md_masked_strips :
// As md_strips, with body(i, count, size): a loop over all W elements of what is left over masks those from `size` on
template <int W, class F> MD_INLINE void md_masked_strips(int64_t begin, int64_t end, F body) {
  int64_t i = begin;
  for (; i + W <= end; i += W) body(i, W, W);
  if (i < end) {
    int size = (int)(end - i);
    asm("" : "+r"(size));  // not a number that g++ knows, as in md_masked_lanes
    body(i, (int)(end - i), size);
  }
}

//@ md_join_lanes :
// joins lane b into lane a, halves first, until lanes 0 to N - 1 hold all of W
template <int W, int N = 1, class F> MD_INLINE void md_join_lanes(F join) {
  if constexpr (W > N) {
#pragma omp simd
    for (int l = 0; l < W / 2; ++l) join(l, l + W / 2);
    md_join_lanes<W / 2, N>(join);
  }
}

//@ md_count :
// how many rows a group has
template <int N> struct md_count {
  constexpr operator int() const { return N; }
};

//@ md_groups : md_count
// body(i, rows) for groups of N rows in [begin, end), and for each row that is left over
template <int N, class F> MD_INLINE void md_groups(int64_t begin, int64_t end, F body) {
  int64_t i = begin;
  for (; i + N <= end; i += N) body(i, md_count<N>());
  for (; i < end; ++i) body(i, md_count<1>());
}

//@ md_rows : md_count
// term(r) for each row of a group
template <int N, class F> MD_INLINE void md_rows(md_count<N>, F term) {
  if constexpr (N > 1) md_rows(md_count<N - 1>(), term);
  term(N - 1);
}

//@ md_join_rows : md_count
// joins row b into row a, halves first, until row 0 holds all of a group
template <int N, int L = 0, class F> MD_INLINE void md_join_rows(md_count<N> rows, F join) {
  constexpr int half = (N + 1) / 2;
  if constexpr (L + half < N) {
    join(L, L + half);
    md_join_rows<N, L + 1>(rows, join);
  } else if constexpr (N > 1) {
    md_join_rows<half>(md_count<half>(), join);
  }
}

//@ md_index :
// An index that data decides. g++ 12 gathers 4-byte elements at an index known to be a comparison's 0 or 1 as if it
// were 0 or -1; behind the barrier it is any number.
MD_INLINE int64_t md_index(int64_t x) {
#ifdef __has_builtin
#if __has_builtin(__builtin_assoc_barrier)
  return __builtin_assoc_barrier(x);
#endif
#endif
  return x;
}

//@ md_Bad :
// what a loop's checks have found: a value for each, or 0
template <int N> struct md_Bad {
  uint64_t value[N];
};

//@ md_failed :
// The status of a kernel that fails. Its caller finds the value that is no index (0 where it is not known) and the size
// of the dimension in `md_failure`, of its thread: runtime/launch/load.py and minductor_call.h declare the same.
#ifndef MD_FAILURE
#define MD_FAILURE
struct md_Failure {
  long long status, value, size;
};
extern "C" {
__attribute__((weak, visibility("hidden"))) __thread md_Failure md_failure = {0, 0, 0};
}
#endif
MD_INLINE int64_t md_failed(int64_t status, uint64_t value, int64_t size) {
  md_failure = {status, (int64_t)value, size};
  return status;
}

//@ lines
MD_INLINE int64_t md_index_min(int64_t a, int64_t b) { return a < b ? a : b; }
MD_INLINE int64_t md_index_max(int64_t a, int64_t b) { return a > b ? a : b; }

//@ md_index_div :
MD_INLINE int64_t md_index_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

//@ md_index_mod : md_index_div
MD_INLINE int64_t md_index_mod(int64_t a, int64_t b) { return a - b * md_index_div(a, b); }
