// Conversions between types, and integer arithmetic as eager has it: the second part of cpp_math.h, in the same form.
//
// Takes the base section of cpp_math.h. Gives md_<from>_to_<to> and md_<op>_<integer type>. Refuses undefined behaviour:
// what C++ leaves open (overflow, wide shifts, conversions out of range, division by zero) has one answer here.

//@ md_bf16_to_f32 :
MD_INLINE float md_bf16_to_f32(uint16_t h) { return md_float((uint32_t)h << 16); }
//@ md_f32_to_bf16 :
MD_INLINE uint16_t md_f32_to_bf16(float x) {
  uint32_t b = md_bits(x);
  uint32_t rounded = (b + 0x7fffu + ((b >> 16) & 1)) >> 16;
  return (uint16_t)(x != x ? 0x7fc0u : rounded);
}
//@ md_f32_held_bf16 :
// of a value that bfloat16 holds: nothing is rounded
MD_INLINE uint16_t md_f32_held_bf16(float x) { return (uint16_t)(md_bits(x) >> 16); }

//@ md_f16_to_f32 :
MD_INLINE float md_f16_to_f32(uint16_t h) {
  uint32_t b = (uint32_t)(h & 0x7fff) << 13;
  // adding 2**-14 below and subtracting it again normalises a denormal
  float small = md_float(b + 0x38800000u) - 0x1p-14f;
  uint32_t normal = b + (b >= 0x0f800000u ? 0x70000000u : 0x38000000u);
  return md_float((b < 0x00800000u ? md_bits(small) : normal) | (uint32_t)(h & 0x8000) << 16);
}
//@ md_f32_to_f16 :
MD_INLINE uint16_t md_f32_to_f16(float x) {
  uint32_t b = md_bits(x) & 0x7fffffffu;
  // below 2**-14: adding 0.5 leaves the value in units of 2**-24, rounded to even
  uint32_t small = md_bits(md_float(b) + 0.5f) - 0x3f000000u;
  uint32_t finite = b < 0x47800000u ? b : 0x47800000u;  // from 2**16 on infinity; a choice of three stays scalar
  uint32_t normal = (finite - 0x38000000u + 0xfffu + ((finite >> 13) & 1)) >> 13;
  uint32_t y = (b < 0x38800000u ? small : normal) | (uint32_t)(b > 0x7f800000u) << 9;
  return (uint16_t)(y | (md_bits(x) >> 16 & 0x8000u));
}
//@ md_f16_load md_f16_store : md_f16_to_f32 md_f32_to_f16
// A strip of neighbours at once: with the processor's own conversions, where it has them.
#if defined(__AVX512F__)
#define MD_STRIP 16
#define MD_WIDEN(x) __builtin_ia32_vcvtph2ps512_mask(x, (md_strip_f32){}, (uint16_t)-1, 4)
#define MD_NARROW(x) __builtin_ia32_vcvtps2ph512_mask(x, 8, (md_strip_f16){}, (uint16_t)-1)
#elif defined(__F16C__)
#define MD_STRIP 8
#define MD_WIDEN(x) __builtin_ia32_vcvtph2ps256(x)
#define MD_NARROW(x) __builtin_ia32_vcvtps2ph256(x, 0)
#endif
#ifdef MD_STRIP
typedef float md_strip_f32 __attribute__((vector_size(4 * MD_STRIP), aligned(4), may_alias));
typedef int16_t md_strip_f16 __attribute__((vector_size(2 * MD_STRIP), aligned(2), may_alias));
#if defined(__AVX512BW__) && defined(__AVX512VL__) && !defined(__clang__)  // which spells the pointer otherwise
MD_INLINE md_strip_f16 md_strip_rest(const uint16_t* in, int count) {
  return __builtin_ia32_loaddquhi256_mask((const short*)in, (md_strip_f16){}, (uint16_t)((1u << count) - 1));
}
MD_INLINE void md_strip_store_rest(md_strip_f16 rest, int count, uint16_t* out) {
  __builtin_ia32_storedquhi256_mask((short*)out, rest, (uint16_t)((1u << count) - 1));
}
#else
MD_INLINE md_strip_f16 md_strip_rest(const uint16_t* in, int count) {
  md_strip_f16 rest = {};
  __builtin_memcpy(&rest, in, 2 * count);
  return rest;
}
MD_INLINE void md_strip_store_rest(md_strip_f16 rest, int count, uint16_t* out) { __builtin_memcpy(out, &rest, 2 * count); }
#endif
// `out` has space for a multiple of 16 elements; what lies past the count becomes 0
MD_INLINE void md_f16_load(const uint16_t* in, int count, float* out) {
  int l = 0;
#pragma GCC unroll 8
  for (; l + MD_STRIP <= count; l += MD_STRIP) *(md_strip_f32*)(out + l) = MD_WIDEN(*(const md_strip_f16*)(in + l));
  if (l < count) *(md_strip_f32*)(out + l) = MD_WIDEN(md_strip_rest(in + l, count - l));
}
MD_INLINE void md_f16_store(const float* in, int count, uint16_t* out) {
  int l = 0;
#pragma GCC unroll 8
  for (; l + MD_STRIP <= count; l += MD_STRIP) *(md_strip_f16*)(out + l) = MD_NARROW(*(const md_strip_f32*)(in + l));
  if (l < count) md_strip_store_rest(MD_NARROW(*(const md_strip_f32*)(in + l)), count - l, out + l);
}
#else
MD_INLINE void md_f16_load(const uint16_t* in, int count, float* out) {
#pragma omp simd
  for (int l = 0; l < count; ++l) out[l] = md_f16_to_f32(in[l]);
}
MD_INLINE void md_f16_store(const float* in, int count, uint16_t* out) {
#pragma omp simd
  for (int l = 0; l < count; ++l) out[l] = md_f32_to_f16(in[l]);
}
#endif

//@ md_bf16_round_f32 : md_bf16_to_f32 md_f32_to_bf16
MD_INLINE float md_bf16_round_f32(float x) { return md_bf16_to_f32(md_f32_to_bf16(x)); }
//@ md_f16_round_f32 :
MD_INLINE float md_f16_round_f32(float x) {
  uint32_t b = md_bits(x) & 0x7fffffffu;
  // below 2**-14 float16 has the multiples of 2**-24, as float32 has from 0.5 on
  uint32_t small = md_bits(md_float(b) + 0.5f - 0.5f);
  uint32_t limited = b < 0x477ff000u ? b : 0x7f800000u;  // from the middle of 65504 and 2**16 on infinity
  uint32_t normal = (limited + 0xfffu + ((limited >> 13) & 1)) & ~0x1fffu;
  uint32_t y = (b < 0x38800000u ? small : normal) | (uint32_t)(b > 0x7f800000u) << 22;
  return md_float(y | (md_bits(x) & 0x80000000u));
}

//@ md_{f32,f64}_to_{i8,i16,i32,i64,u8,u16,u32,u64} :
// Out of range and NaN give the smallest integer, as the x86 instructions do; eager narrows from int32, and from int64
// to uint32 and uint8. C++ leaves the conversion itself undefined, hence the choice before it.
MD_INLINE int32_t md_f32_to_i32(float x) { return (int32_t)(x >= -0x1p31f && x < 0x1p31f ? x : -0x1p31f); }
MD_INLINE int64_t md_f32_to_i64(float x) { return (int64_t)(x >= -0x1p63f && x < 0x1p63f ? x : -0x1p63f); }
MD_INLINE int32_t md_f64_to_i32(double x) { return (int32_t)(x > -0x1.00000002p31 && x < 0x1p31 ? x : -0x1p31); }
MD_INLINE int64_t md_f64_to_i64(double x) { return (int64_t)(x >= -0x1p63 && x < 0x1p63 ? x : -0x1p63); }
MD_INLINE uint64_t md_f64_to_u64(double x) {
  uint64_t high = (uint64_t)md_f64_to_i64(x - 0x1p63) ^ 0x8000000000000000u;
  return x >= 0x1p63 ? high : (uint64_t)md_f64_to_i64(x);
}
MD_INLINE uint64_t md_f32_to_u64(float x) { return md_f64_to_u64(x); }
MD_INLINE uint32_t md_f32_to_u32(float x) { return (uint32_t)md_f32_to_i64(x); }
MD_INLINE uint32_t md_f64_to_u32(double x) { return (uint32_t)md_f64_to_i64(x); }
MD_INLINE int16_t md_f32_to_i16(float x) { return (int16_t)md_f32_to_i32(x); }
MD_INLINE int16_t md_f64_to_i16(double x) { return (int16_t)md_f64_to_i32(x); }
MD_INLINE int8_t md_f32_to_i8(float x) { return (int8_t)md_f32_to_i32(x); }
MD_INLINE int8_t md_f64_to_i8(double x) { return (int8_t)md_f64_to_i32(x); }
MD_INLINE uint16_t md_f32_to_u16(float x) { return (uint16_t)md_f32_to_i32(x); }
MD_INLINE uint16_t md_f64_to_u16(double x) { return (uint16_t)md_f64_to_i32(x); }
MD_INLINE uint8_t md_f32_to_u8(float x) { return (uint8_t)md_f32_to_i32(x); }
MD_INLINE uint8_t md_f64_to_u8(double x) { return (uint8_t)md_f64_to_i64(x); }

//@ MD_EACH_INTEGER :
#define MD_BITS(T) (8 * (int)sizeof(T))
// name, type, an unsigned type at least as wide as int, and the type that divides
#define MD_EACH_INTEGER(X) \
  X(i8, int8_t, uint32_t, float) X(i16, int16_t, uint32_t, double) X(i32, int32_t, uint32_t, double) \
  X(i64, int64_t, uint64_t, int64_t) X(u8, uint8_t, uint32_t, float) X(u16, uint16_t, uint32_t, double) \
  X(u32, uint32_t, uint32_t, double) X(u64, uint64_t, uint64_t, uint64_t)

//@ md_{add,sub,mul,neg,abs,sign,maximum,minimum}_{i8,i16,i32,i64,u8,u16,u32,u64} : MD_EACH_INTEGER
// Signed overflow wraps in eager and is undefined in C++: the work is done in an unsigned type at least as wide as int.
#define MD_ARITHMETIC(N, T, U, WIDE) \
  MD_INLINE T md_add_##N(T a, T b) { return (T)((U)a + (U)b); } \
  MD_INLINE T md_sub_##N(T a, T b) { return (T)((U)a - (U)b); } \
  MD_INLINE T md_mul_##N(T a, T b) { return (T)((U)a * (U)b); } \
  MD_INLINE T md_neg_##N(T a) { return (T)(0 - (U)a); } \
  MD_INLINE T md_abs_##N(T a) { return a > 0 ? a : (T)(0 - (U)a); } \
  MD_INLINE T md_sign_##N(T a) { return (T)(a > 0 ? 1 : (a == 0 ? 0 : -1)); } \
  MD_INLINE T md_maximum_##N(T a, T b) { return a > b ? a : b; } \
  MD_INLINE T md_minimum_##N(T a, T b) { return a < b ? a : b; }
MD_EACH_INTEGER(MD_ARITHMETIC)

//@ md_{shl,shr}_{i8,i16,i32,i64,u8,u16,u32,u64} : MD_EACH_INTEGER
// A count outside [0, bits) shifts everything out.
#define MD_SHIFTS(N, T, U, WIDE) \
  MD_INLINE T md_shl_##N(T a, T b) { return b >= 0 && b < MD_BITS(T) ? (T)((U)a << (b & (MD_BITS(T) - 1))) : (T)0; } \
  MD_INLINE T md_shr_##N(T a, T b) { return (T)(b >= 0 && b < MD_BITS(T) ? a >> (b & (MD_BITS(T) - 1)) : (a < 0 ? -1 : 0)); }
MD_EACH_INTEGER(MD_SHIFTS)

//@ md_{truncdiv,floordiv,fmod,remainder}_{i8,i16,i32,i64,u8,u16,u32,u64} : MD_EACH_INTEGER
// Division by zero, for which eager raises, gives 0 here and must be flagged by the caller (b == 0); the smallest
// integer by -1 wraps. Up to 32 bits the quotient of doubles is exact once truncated, and it vectorises.
#define MD_DIVISION(N, T, U, WIDE) \
  MD_INLINE T md_truncdiv_##N(T a, T b) { \
    bool minus = (T)-1 < 0 && b == (T)-1; \
    T q = (T)((WIDE)a / (WIDE)(b == 0 || minus ? (T)1 : b)); \
    return b == 0 ? (T)0 : (minus ? (T)(0 - (U)a) : q); \
  } \
  MD_INLINE T md_fmod_##N(T a, T b) { return b == 0 ? (T)0 : (T)((U)a - (U)md_truncdiv_##N(a, b) * (U)b); } \
  MD_INLINE T md_remainder_##N(T a, T b) { \
    T r = md_fmod_##N(a, b); \
    return r != 0 && (r < 0) != (b < 0) ? (T)((U)r + (U)b) : r; \
  } \
  MD_INLINE T md_floordiv_##N(T a, T b) { \
    T q = md_truncdiv_##N(a, b), r = md_fmod_##N(a, b); \
    return r != 0 && (r < 0) != (b < 0) ? (T)((U)q - 1) : q; \
  }
MD_EACH_INTEGER(MD_DIVISION)

//@ md_pow_{i8,i16,i32,i64,u8,u16,u32,u64} : MD_EACH_INTEGER
// A negative exponent leaves 1, -1 or 0, as eager's.
#define MD_POWER(N, T, U, WIDE) \
  MD_INLINE T md_pow_##N(T a, T b) { \
    uint64_t power = 1, factor = (uint64_t)a; \
    for (uint64_t n = b < 0 ? 0 : (uint64_t)b; n; n >>= 1) { \
      power *= n & 1 ? factor : 1; \
      factor *= factor; \
    } \
    T negative = (T)(a == 1 ? 1 : (a == (T)-1 ? (b & 1 ? -1 : 1) : 0)); \
    return b < 0 ? negative : (T)power; \
  }
MD_EACH_INTEGER(MD_POWER)
