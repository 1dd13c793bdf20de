// Inline, branch-free scalar mathematics for generated CPU kernels; g++ and clang vectorise it inside `omp simd` loops.
//
// Takes nothing: no header is included. Gives md_<op>_<type> functions. Refuses -ffast-math: NaN, infinities and
// signed zeros are relied on. A line `//@ names : needs` opens a section, which runs to the next such line: the names
// it defines, then the names that it uses. minductor/codegen/cpp_math.py emits the sections that a kernel needs.
// Lines `#define MD_C_...` are written by tests/codegen/fit_cpp_math.py.

//@ base :
typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
#define MD_INLINE static inline __attribute__((always_inline))
#define MD_INF __builtin_inff()
#define MD_NAN __builtin_nanf("")
MD_INLINE uint32_t md_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
MD_INLINE uint64_t md_bits(double x) { return __builtin_bit_cast(uint64_t, x); }
MD_INLINE float md_float(uint32_t x) { return __builtin_bit_cast(float, x); }
MD_INLINE double md_double(uint64_t x) { return __builtin_bit_cast(double, x); }
#ifdef __FMA__
MD_INLINE float md_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
MD_INLINE double md_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
MD_INLINE float md_fma(float a, float b, float c) { return a * b + c; }
MD_INLINE double md_fma(double a, double b, double c) { return a * b + c; }
#endif
// c0 + c1 * x + c2 * x**2 + ...
template <class T> MD_INLINE T md_poly(T, T c) { return c; }
template <class T, class... C> MD_INLINE T md_poly(T x, T c, C... rest) { return md_fma(md_poly(x, rest...), x, c); }
MD_INLINE float md_copysign_f32(float x, float s) { return __builtin_copysignf(x, s); }
MD_INLINE double md_copysign_f64(double x, double s) { return __builtin_copysign(x, s); }

// The factor two in `2 ** n` is applied in halves, so that results below the normal range round once.
//@ md_ldexp_f32 :
MD_INLINE float md_ldexp_f32(float p, int32_t n) {
  int32_t half = n >> 1;
  return p * md_float((uint32_t)(half + 127) << 23) * md_float((uint32_t)(n - half + 127) << 23);
}

// Adding 1.5 * 2**23 rounds to the nearest integer and leaves it in the low bits, which costs no conversion.
//@ md_exp_parts_f32 :
#define MD_C_EXP_F32 0.49999994f, 0.16666517f, 0.041668102f, 0.008369193f, 0.0013838912f
struct md_parts_f32 { float value; int32_t exponent; };
// exp(x) = value * 2 ** exponent for |x| < 2**21
MD_INLINE md_parts_f32 md_exp_parts_f32(float x) {
  float t = md_fma(x, 0x1.715476p+0f, 0x1.8p23f);
  float n = t - 0x1.8p23f;
  float r = md_fma(n, -0x1.62e4p-1f, x);
  r = md_fma(n, -0x1.7f7d1cp-20f, r);
  float p = md_fma(r * r, md_poly(r, MD_C_EXP_F32), r) + 1.0f;
  return {p, (int32_t)(md_bits(t) << 9) >> 9};
}

//@ md_exp_f32 : md_exp_parts_f32 md_ldexp_f32
MD_INLINE float md_exp_f32(float x) {
  x = x > 90.0f ? 90.0f : x;
  x = x < -105.0f ? -105.0f : x;
  md_parts_f32 e = md_exp_parts_f32(x);
  return md_ldexp_f32(e.value, e.exponent);
}

//@ md_log_parts_f32 :
#define MD_C_LOG_F32 0.33333334f, -0.24999811f, 0.19999765f, -0.16680087f, 0.14298955f, -0.121878326f, 0.108220235f, -0.12882803f, 0.11728512f
struct md_log_parts { float f, exponent; };
// x = (1 + f) * 2 ** exponent with 1 + f in [2/3, 4/3), for positive finite x
MD_INLINE md_log_parts md_log_parts_f32(float x) {
  bool tiny = x < 0x1p-126f;
  uint32_t b = md_bits(tiny ? x * 0x1p23f : x);
  uint32_t t = b - 0x3f2aaaabu;
  float f = md_float(b - (t & 0xff800000u)) - 1.0f;
  return {f, (float)((int32_t)t >> 23) - (tiny ? 23.0f : 0.0f)};
}
// log(1 + f) - f
MD_INLINE float md_log_rest_f32(float f) {
  float s = f * f;
  return md_fma(s * f, md_poly(f, MD_C_LOG_F32), -0.5f * s);
}
MD_INLINE float md_log_edges_f32(float x, float y) {
  return x > 0.0f ? (x < MD_INF ? y : MD_INF) : (x == 0.0f ? -MD_INF : MD_NAN);
}

//@ md_log_f32 : md_log_parts_f32
MD_INLINE float md_log_f32(float x) {
  md_log_parts p = md_log_parts_f32(x);
  float y = md_fma(p.exponent, 0x1.7f7d1cp-20f, md_log_rest_f32(p.f)) + p.f;
  return md_log_edges_f32(x, md_fma(p.exponent, 0x1.62e4p-1f, y));
}

//@ md_tanh_f32 : md_exp_parts_f32
#define MD_C_TANH_F32 -0.33333293f, 0.13331655f, -0.053753957f, 0.020678341f, -0.0057432554f
MD_INLINE float md_tanh_f32(float x) {
  float a = __builtin_fabsf(x), t = x * x;
  float small = md_fma(a * t, md_poly(t, MD_C_TANH_F32), a);
  md_parts_f32 e = md_exp_parts_f32(a > 10.0f ? 20.0f : 2.0f * a);
  float large = 1.0f - 2.0f / (e.value * md_float((uint32_t)(e.exponent + 127) << 23) + 1.0f);
  return md_copysign_f32(a < 0.625f ? small : large, x);
}

// Half of exp(-x) fits one factor of two; its double overflows where eager's does, to sigmoid 0.
//@ md_sigmoid_f32 : md_exp_parts_f32
MD_INLINE float md_sigmoid_f32(float x) {
  x = x < -89.0f ? -89.0f : x;
  x = x > 87.0f ? 87.0f : x;
  md_parts_f32 e = md_exp_parts_f32(-x);
  return 1.0f / md_fma(e.value * md_float((uint32_t)(e.exponent + 126) << 23), 2.0f, 1.0f);
}

//@ md_exp2_parts_f32 :
#define MD_C_EXP2_F32 0.69314724f, 0.24022655f, 0.055502675f, 0.009617186f, 0.0013420999f, 0.0001575345f
// 2 ** x = value * 2 ** exponent for |x| < 2**21
struct md_parts2_f32 { float value; int32_t exponent; };
MD_INLINE md_parts2_f32 md_exp2_parts_f32(float x) {
  float t = x + 0x1.8p23f;
  float r = x - (t - 0x1.8p23f);
  return {md_fma(r, md_poly(r, MD_C_EXP2_F32), 1.0f), (int32_t)(md_bits(t) << 9) >> 9};
}

//@ md_exp2_f32 : md_exp2_parts_f32 md_ldexp_f32
MD_INLINE float md_exp2_f32(float x) {
  x = x > 130.0f ? 130.0f : x;
  x = x < -151.0f ? -151.0f : x;
  md_parts2_f32 e = md_exp2_parts_f32(x);
  return md_ldexp_f32(e.value, e.exponent);
}

// Beyond 0.9 the tail is 2 ** polynomial: its error counts a fifth and less.
//@ md_erf_f32 : md_exp2_parts_f32
#define MD_C_ERF_F32 0.12837917f, -0.3761263f, 0.11283624f, -0.02685556f, 0.005191753f, -0.0008039751f, 7.943098e-05f
#define MD_C_ERFLOG_F32 0.00024410957f, -1.6295073f, -0.91380435f, -0.15612885f, 0.036183525f, -0.0059961285f, 0.0006223487f, -3.0047206e-05f
MD_INLINE float md_erf_f32(float x) {
  float a = __builtin_fabsf(x), t = x * x;
  float small = md_fma(a, md_poly(t, MD_C_ERF_F32), a);
  float b = a > 4.0f ? 4.0f : a;
  md_parts2_f32 e = md_exp2_parts_f32(md_poly(b, MD_C_ERFLOG_F32));
  float large = 1.0f - e.value * md_float((uint32_t)(e.exponent + 127) << 23);
  return md_copysign_f32(a < 0.9f ? small : large, x);
}

// Rounding to a quarter turn is done in double: exact enough below 2**30 with FMA.
//@ md_trig_parts_f32 :
#define MD_C_SIN_F32 -0.16666667f, 0.008333379f, -0.00019853066f, 2.8325476e-06f
#define MD_C_COS_F32 0.041666646f, -0.001388731f, 2.4432327e-05f
struct md_trig_parts { float r; uint32_t quadrant; };
MD_INLINE md_trig_parts md_trig_parts_f32(float x) {
  double d = x;
  double t = md_fma(d, 0x1.45f306dc9c883p-1, 0x1.8p52);
  double n = t - 0x1.8p52;
  double r = md_fma(n, -0x1.921fb54442d18p+0, d);
  r = md_fma(n, -0x1.1a62633145c07p-54, r);
  return {(float)r, (uint32_t)md_bits(t)};
}
MD_INLINE float md_sin_part_f32(float r, float t) { return md_fma(r * t, md_poly(t, MD_C_SIN_F32), r); }
MD_INLINE float md_cos_part_f32(float t) { return md_fma(t * t, md_poly(t, MD_C_COS_F32), md_fma(t, -0.5f, 1.0f)); }

//@ md_sin_f32 : md_trig_parts_f32
MD_INLINE float md_sin_f32(float x) {
  md_trig_parts p = md_trig_parts_f32(x);
  float t = p.r * p.r;
  float y = p.quadrant & 1 ? md_cos_part_f32(t) : md_sin_part_f32(p.r, t);
  return md_float(md_bits(y) ^ (p.quadrant & 2) << 30);
}

//@ md_cos_f32 : md_trig_parts_f32
MD_INLINE float md_cos_f32(float x) {
  md_trig_parts p = md_trig_parts_f32(x);
  float t = p.r * p.r;
  float y = p.quadrant & 1 ? md_sin_part_f32(p.r, t) : md_cos_part_f32(t);
  return md_float(md_bits(y) ^ (p.quadrant + 1 & 2) << 30);
}

// log2 and exp2 in double: y * log2(x) may reach 150, which leaves a float no digits.
//@ md_pow_f32 :
#define MD_C_LOG2_F64P 2.8853900818356855, 0.9617966220419686, 0.5770923066542802, 0.41120788175840484, 0.34837296457034356
#define MD_C_EXP2_F64P 1.0000000005544365, 0.693147205739197, 0.2402264689019859, 0.05550328775599444, 0.009618489016153878, 0.0013399931617729362, 0.00015345794703855792
MD_INLINE double md_log2_short_f64(double x) {
  uint64_t b = md_bits(x), t = b - 0x3fe5555555555555u;
  double m = md_double(b - (t & 0xfff0000000000000u));
  double s = (m - 1.0) / (m + 1.0), q = s * s;
  // the exponent, as the low bits of a double with a known high part
  double e = md_double((uint64_t)((int64_t)t >> 52) + 0x4338000000000000u) - 0x1.8p52;
  return md_fma(s, md_poly(q, MD_C_LOG2_F64P), e);
}
MD_INLINE double md_exp2_short_f64(double x) {
  double t = x + 0x1.8p52;
  double r = x - (t - 0x1.8p52);
  return md_double(md_bits(md_poly(r, MD_C_EXP2_F64P)) + (md_bits(t) << 52));
}
MD_INLINE float md_pow_f32(float x, float y) {
  float a = __builtin_fabsf(x);
  double l = md_log2_short_f64((double)a);
  l = a > 0.0f ? (a < MD_INF ? l : (double)MD_INF) : (double)-MD_INF;
  double p = a == 1.0f ? 0.0 : l * (double)y;
  p = p > 300.0 ? 300.0 : p;
  p = p < -300.0 ? -300.0 : p;
  float r = (float)md_exp2_short_f64(p);
  float half = 0.5f * y;
  bool whole = __builtin_floorf(y) == y, odd = whole && __builtin_floorf(half) != half;
  r = md_float(md_bits(r) ^ (odd ? md_bits(x) & 0x80000000u : 0u));
  r = x < 0.0f && !whole && a < MD_INF ? MD_NAN : r;
  r = x != x || y != y ? x + y : r;
  return x == 1.0f || y == 0.0f ? 1.0f : r;
}

//@ md_sqrt_f32 :
MD_INLINE float md_sqrt_f32(float x) { return __builtin_sqrtf(x); }
//@ md_rsqrt_f32 :
MD_INLINE float md_rsqrt_f32(float x) { return 1.0f / __builtin_sqrtf(x); }
//@ md_reciprocal_f32 :
MD_INLINE float md_reciprocal_f32(float x) { return 1.0f / x; }

// NaN in either argument gives NaN; of two zeros the second is taken, as maxps does.
//@ md_maximum_f32 :
MD_INLINE float md_maximum_f32(float a, float b) { return a != a ? a : (a > b ? a : b); }
//@ md_minimum_f32 :
MD_INLINE float md_minimum_f32(float a, float b) { return a != a ? a : (a < b ? a : b); }

//@ md_bf16_to_f32 :
MD_INLINE float md_bf16_to_f32(uint16_t h) { return md_float((uint32_t)h << 16); }
//@ md_f32_to_bf16 :
MD_INLINE uint16_t md_f32_to_bf16(float x) {
  uint32_t b = md_bits(x);
  uint32_t rounded = (b + 0x7fffu + (b >> 16 & 1)) >> 16;
  return (uint16_t)(x != x ? 0x7fc0u : rounded);
}

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
  uint32_t normal = (b - 0x38000000u + 0xfffu + (b >> 13 & 1)) >> 13;
  uint32_t y = b < 0x38800000u ? small : (b < 0x477ff000u ? normal : 0x7c00u);
  y = b > 0x7f800000u ? 0x7e00u : y;
  return (uint16_t)(y | md_bits(x) >> 16 & 0x8000u);
}
