// Inline, branch-free scalar mathematics for generated CPU kernels; g++ and clang vectorise it inside `omp simd` loops.
//
// Takes nothing: no header is included. Gives md_<op>_<type> functions. Refuses -ffast-math: NaN, infinities and
// signed zeros are relied on. A line `//@ names : needs` opens a section, which runs to the next such line: the names
// it defines, then the names that it uses; after `//@ lines` each line stands alone. cpp_math.py emits the sections
// that a kernel needs, of this header and of those that go on from it. Lines `#define MD_C_...` are written by the fits
// under tests/.

//@ base md_bits md_float md_double md_fma md_where md_poly md_copysign :
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
#define MD_LAMBDA __attribute__((always_inline))
// Stands in a loop that stays scalar: the vector unit gathers elements more slowly than they are loaded one by one.
#define MD_SCALAR asm volatile("")
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
// c ? a : b by masks. Where a or b is a constant, jumps threaded past `?:` in the functions of one expression leave a
// loop with branches, which stays scalar.
MD_INLINE float md_where(bool c, float a, float b) {
  uint32_t mask = 0u - (uint32_t)c;
  return md_float((md_bits(a) & mask) | (md_bits(b) & ~mask));
}
MD_INLINE double md_where(bool c, double a, double b) {
  uint64_t mask = 0u - (uint64_t)c;
  return md_double((md_bits(a) & mask) | (md_bits(b) & ~mask));
}
// c0 + c1 * x + c2 * x**2 + ...
template <class T> MD_INLINE T md_poly(T, T c) { return c; }
template <class T, class... C> MD_INLINE T md_poly(T x, T c, C... rest) { return md_fma(md_poly(x, rest...), x, c); }
MD_INLINE float md_copysign(float x, float s) { return __builtin_copysignf(x, s); }
MD_INLINE double md_copysign(double x, double s) { return __builtin_copysign(x, s); }

//@ MD_CALLED :
// Called for a whole vector. clang has no such functions, and inlines what it defines.
#ifdef __clang__
#define MD_CALLED MD_INLINE
#else
#define MD_CALLED static __attribute__((noinline, unused, simd("notinbranch")))
#endif

//@ md_ldexp_f32 :
// value * 2 ** n, where the low nine bits of `t` are n + 254, for n in [-252, 254]. The factor is applied in halves, so
// that a result below the normal range rounds once.
MD_INLINE float md_ldexp_f32(float value, uint32_t t) {
  uint32_t half = t >> 1;
  return value * md_float(half << 23) * md_float((t - half) << 23);
}

//@ md_exp_parts_f32 :
// Adding 1.5 * 2**23 rounds to the nearest integer and leaves it in the low bits, which costs no conversion. What is
// added besides makes of these bits those of a float: with 127 they are the exponent of 2 ** n.
template <int added> MD_INLINE float md_rounder() { return 0x1.8p23f + (float)added; }
// As an integer, a float below 2**24 is limited in one operation. At most 129: there a float is infinite.
template <int added> MD_INLINE float md_limit_exponent(float t) {
  int32_t b = (int32_t)md_bits(t), most = 0x4b400000 + added + 129;
  return md_float((uint32_t)(b > most ? most : b));
}
#define MD_C_EXP_F32 0.49999994f, 0.16666517f, 0.041668102f, 0.008369193f, 0.0013838912f
// exp(x + low) = (1 + tail) * 2 ** n, where the low bits of `exponent` are n + added
struct md_exp_parts { float tail; uint32_t exponent; };
// -2**21 < x, |low| < 0.05. Above 89, where exp(x) is infinite, n stays 129 and the tail grows to infinity with x. A NaN
// makes the tail a NaN.
template <int added, bool is_limited = true> MD_INLINE md_exp_parts md_exp_parts_f32(float x, float low = -0.0f) {
  float t = md_fma(x, 0x1.715476p+0f, md_rounder<added>());
  if (is_limited) t = md_limit_exponent<added>(t);
  float n = t - md_rounder<added>();
  float r = md_fma(n, -0x1.62e4p-1f, x) + low;
  r = md_fma(n, -0x1.7f7d1cp-20f, r);
  return {md_fma(r * r, md_poly(r, MD_C_EXP_F32), r), md_bits(t)};
}

//@ md_exp_f32 : md_exp_parts_f32 md_ldexp_f32
MD_INLINE float md_exp_f32(float x) {
  md_exp_parts e = md_exp_parts_f32<254>(x);
  float y = md_ldexp_f32(1.0f + e.tail, e.exponent);
  return x < -104.0f ? 0.0f : y;
}

//@ md_exp_nonpositive_f32 : md_exp_parts_f32
// md_exp_f32 bit by bit, for x <= 44 or NaN: 2 ** (n + 64) is a normal number, so that no factor is halved, and the
// last product rounds once.
MD_INLINE float md_exp_nonpositive_f32(float x) {
  md_exp_parts e = md_exp_parts_f32<191, false>(x);
  float y = (1.0f + e.tail) * md_float(e.exponent << 23) * 0x1p-64f;
  return x < -104.0f ? 0.0f : y;
}

//@ md_expm1_f32 : md_exp_parts_f32
// 2 ** n * (1 + tail) - 1; half of each term, so that 2 ** 128 does not occur
MD_INLINE float md_expm1_f32(float x) {
  md_exp_parts e = md_exp_parts_f32<126>(x < -40.0f ? -40.0f : x);
  float half = md_float(e.exponent << 23);
  float y = 2.0f * md_fma(half, e.tail, half - 0.5f);
  return md_copysign(x > 88.8f ? MD_INF : y, x);
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
// y is finite where x is not NaN; added, not chosen, for the reason given at md_where
MD_INLINE float md_log_edges_f32(float x, float y) {
  return y + (x > 0.0f ? (x < MD_INF ? -0.0f : MD_INF) : (x == 0.0f ? -MD_INF : MD_NAN));
}

//@ md_log_f32 : md_log_parts_f32
MD_INLINE float md_log_f32(float x) {
  md_log_parts p = md_log_parts_f32(x);
  float y = md_fma(p.exponent, 0x1.7f7d1cp-20f, md_log_rest_f32(p.f)) + p.f;
  return md_log_edges_f32(x, md_fma(p.exponent, 0x1.62e4p-1f, y));
}

//@ md_log2_f32 : md_log_parts_f32
MD_INLINE float md_log2_f32(float x) {
  md_log_parts p = md_log_parts_f32(x);
  float low = md_fma(md_log_rest_f32(p.f), 0x1.715476p+0f, p.f * 0x1.4ae0cp-26f);
  return md_log_edges_f32(x, md_fma(p.f, 0x1.715476p+0f, low) + p.exponent);
}

//@ md_log10_f32 : md_log_parts_f32
MD_INLINE float md_log10_f32(float x) {
  md_log_parts p = md_log_parts_f32(x);
  float low = md_fma(p.exponent, 0x1.3509f8p-18f, p.f * -0x1.5b235ep-27f);
  low = md_fma(md_log_rest_f32(p.f), 0x1.bcb7b2p-2f, low);
  return md_log_edges_f32(x, md_fma(p.exponent, 0x1.344p-2f, md_fma(p.f, 0x1.bcb7b2p-2f, low)));
}

//@ md_log1p_f32 : md_log_parts_f32
// With k the exponent of 1 + x, x * 2**-k + (2**-k - 1) is the reduced argument: nothing of x is lost.
MD_INLINE float md_log1p_f32(float x) {
  float u = 1.0f + x;
  uint32_t t = (md_bits(u) - 0x3f2aaaabu) & 0xff800000u;
  float quarter = md_float(0x40800000u - t);
  float f = md_fma(0.25f * x, quarter, md_fma(0.25f, quarter, -1.0f));
  float e = (float)((int32_t)t >> 23);
  float y = md_fma(e, 0x1.7f7d1cp-20f, md_log_rest_f32(f)) + f;
  y = md_log_edges_f32(u, md_fma(e, 0x1.62e4p-1f, y));
  return (__builtin_fabsf(x) < 0x1p-25f) | (x == MD_INF) ? x : y;
}

//@ md_tanh_f32 : md_exp_parts_f32
#define MD_C_TANH_F32 -0.33333293f, 0.13331655f, -0.053753957f, 0.020678341f, -0.0057432554f
MD_INLINE float md_tanh_f32(float x) {
  float a = __builtin_fabsf(x), t = x * x;
  float small = md_fma(a * t, md_poly(t, MD_C_TANH_F32), a);
  md_exp_parts e = md_exp_parts_f32<126>(2.0f * a);
  float large = 1.0f - 1.0f / md_fma(1.0f + e.tail, md_float(e.exponent << 23), 0.5f);
  return md_copysign(a < 0.625f ? small : large, x);
}

//@ md_sigmoid_f32 : md_exp_parts_f32
// Half of 2 ** n fits one factor; exp(-x) overflows where eager's does, to sigmoid 0.
MD_INLINE float md_sigmoid_f32(float x) {
  md_exp_parts e = md_exp_parts_f32<126>(-x);
  float y = md_fma(md_fma(e.tail, 2.0f, 2.0f), md_float(e.exponent << 23), 1.0f);
  return 1.0f / (x > 80.0f ? 1.0f : y);
}

//@ md_sinh_f32 md_cosh_f32 : md_exp_parts_f32
// e / 2 and 1 / (2 * e), where e = exp(|x|) may itself overflow: a quarter of 2 ** n never does.
#define MD_C_SINH_F32 0.16666667f, 0.008333307f, 0.00019843873f, 2.7760586e-06f
MD_INLINE float md_half_exp_f32(float a) {
  md_exp_parts e = md_exp_parts_f32<125>(a);
  return 2.0f * ((1.0f + e.tail) * md_float(e.exponent << 23));
}
MD_INLINE float md_sinh_f32(float x) {
  float a = __builtin_fabsf(x), t = x * x;
  float e = md_half_exp_f32(a);
  return md_copysign(a < 1.0f ? md_fma(a * t, md_poly(t, MD_C_SINH_F32), a) : e - 0.25f / e, x);
}
MD_INLINE float md_cosh_f32(float x) {
  float a = __builtin_fabsf(x);
  float e = md_half_exp_f32(a);
  return e + 0.25f / e;
}

//@ md_asinh_f32 : md_log1p_f32
// Arguments beyond 2**30 drop the squares' ones and twos, which leaves log(2 * x).
MD_INLINE float md_asinh_f32(float x) {
  float a = __builtin_fabsf(x), t = a * a;
  bool huge = a > 0x1p30f;
  float y = md_log1p_f32(huge ? a : a + t / (1.0f + __builtin_sqrtf(1.0f + t)));
  return md_copysign(huge ? y + 0x1.62e43p-1f : y, x);
}
//@ md_acosh_f32 : md_log1p_f32
MD_INLINE float md_acosh_f32(float x) {
  float t = x - 1.0f;
  bool huge = x > 0x1p30f;
  float y = md_log1p_f32(huge ? t : t + __builtin_sqrtf(t * (t + 2.0f)));
  y = huge ? y + 0x1.62e43p-1f : y;
  return y + (x < 1.0f ? MD_NAN : -0.0f);
}
//@ md_atanh_f32 : md_log1p_f32
MD_INLINE float md_atanh_f32(float x) {
  float a = __builtin_fabsf(x);
  return md_copysign(0.5f * md_log1p_f32(2.0f * a / (1.0f - a)), x);
}

//@ md_exp2_parts_f32 : md_exp_parts_f32
#define MD_C_EXP2_F32 0.69314724f, 0.24022655f, 0.055502728f, 0.009617063f, 0.0013417688f, 0.0001582538f
// 2 ** x = value * 2 ** n, as md_exp_parts_f32; -2**21 < x
struct md_exp2_parts { float value; uint32_t exponent; };
template <int added> MD_INLINE md_exp2_parts md_exp2_parts_f32(float x) {
  float t = md_limit_exponent<added>(x + md_rounder<added>());
  float r = x - (t - md_rounder<added>());
  return {md_fma(r, md_poly(r, MD_C_EXP2_F32), 1.0f), md_bits(t)};
}

//@ md_exp2_f32 : md_exp2_parts_f32 md_ldexp_f32
MD_INLINE float md_exp2_f32(float x) {
  md_exp2_parts e = md_exp2_parts_f32<254>(x);
  float y = md_ldexp_f32(e.value, e.exponent);
  return x < -151.0f ? 0.0f : y;
}

//@ md_erf_small_f32 :
#define MD_C_ERF_F32 0.12837912f, -0.3761232f, 0.112801135f, -0.026709212f, 0.0049148956f, -0.0005619804f
// erf(a) for 0 <= a < 1
MD_INLINE float md_erf_small_f32(float a) { return md_fma(a, md_poly(a * a, MD_C_ERF_F32), a); }

//@ md_erf_f32 : md_erf_small_f32
// Beyond 1 the complement is a polynomial's fourth power, which takes fewer steps than an exponential. Where erf rounds
// to 1 it has to be that: gelu multiplies by x what 1 + erf leaves.
#define MD_C_ERFROOT_F32 1.003917f, -0.30231014f, -0.07456294f, -0.04005884f, 0.060397077f, -0.020367915f, 0.0029111197f, -0.00015581105f
MD_INLINE float md_erf_f32(float x) {
  float a = __builtin_fabsf(x), small = md_erf_small_f32(a);
  float root = a > 3.9192059f ? 0.0f : md_poly(a, MD_C_ERFROOT_F32), square = root * root;
  return md_copysign(a < 1.0f ? small : md_fma(-square, square, 1.0f), x);
}

//@ md_erfc_f32 : md_exp_parts_f32 md_ldexp_f32 md_erf_small_f32
// exp(-a*a) * polynomial((a - 3) / (a + 3)); the square is split, its rounding would be scaled by itself.
#define MD_C_ERFC_F32 0.17900115f, -0.32623357f, 0.24560367f, -0.15011562f, 0.07166808f, -0.024395745f, 0.0042552585f, 0.0007185167f, -0.0005581923f, 3.7286358e-05f, 1.9964773e-05f, -2.0941494e-05f
MD_INLINE float md_erfc_f32(float x) {
  float a = __builtin_fabsf(x);
  a = a > 10.5f ? 10.5f : a;
  float h = md_float(md_bits(a) & 0xfffff000u);
  md_exp_parts e = md_exp_parts_f32<254>(-(h * h), (h - a) * (h + a));
  float n = a - 3.0f, d = a + 3.0f;
  float p = md_poly(n / d, MD_C_ERFC_F32);
  float y = md_ldexp_f32(md_fma(p, e.tail, p), e.exponent);
  y = a < 0.8f ? 1.0f - md_erf_small_f32(a) : y;
  return x < 0.0f ? 2.0f - y : y;
}

//@ md_erfinv_f32 : md_log_f32
// Polynomials in w = -log(1 - x*x), and in its root where w is large.
#define MD_C_ERFINV_F32 1.5014094f, 0.24664022f, -0.004177802f, -0.0012526072f, 0.00021887133f, -5.0376066e-06f, -3.6964761e-06f, 4.813201e-07f, 6.5528695e-08f, -9.819896e-09f, -2.6768325e-09f
#define MD_C_ERFINVT_F32 2.8329768f, 1.0016748f, 0.009444306f, -0.007634276f, 0.0056949607f, -0.0036108552f, 0.0014653318f, -3.25021e-05f, -0.00029464744f, 9.995962e-05f
MD_INLINE float md_erfinv_f32(float x) {
  float a = __builtin_fabsf(x);
  float w = -md_log_f32((1.0f - a) * (1.0f + a));
  float y = w < 5.0f ? md_poly(w - 2.5f, MD_C_ERFINV_F32) : md_poly(__builtin_sqrtf(w) - 3.0f, MD_C_ERFINVT_F32);
  return a == 1.0f ? x * MD_INF : x * y;
}

//@ md_trig_parts_f32 :
// x * 2/pi to the last bit needed, for every float: x is a multiple of 2**k, so 2/pi modulo 4 / 2**k will do, in two
// doubles, with k by the size of x.
// __builtin_fma and not md_fma: the first product must be exact.
#define MD_C_TURN 0.6366197723675814, -3.935735335036497e-17, -4.119769120791653e-09, 2.8376220177865265e-25, 7.166494911215068e-17, -2.1442872565786008e-33, -5.434184107743751e-25, 3.8858987075186823e-41
#define MD_C_SIN_F32 -0.16666667f, 0.00833337f, -0.00019848433f, 2.7798103e-06f
#define MD_C_COS_F32 0.04166663f, -0.0013886634f, 2.4360568e-05f
struct md_trig_parts { float r; uint32_t quadrant; };
MD_INLINE md_trig_parts md_trig_parts_f32(float x) {
  constexpr double c[] = {MD_C_TURN};
  float a = __builtin_fabsf(x);
  bool k1 = a >= 0x1p50f, k2 = a >= 0x1p77f, k3 = a >= 0x1p104f;
  double y = x;
  double high = k1 ? (k2 ? (k3 ? c[6] : c[4]) : c[2]) : c[0];
  double low = k1 ? (k2 ? (k3 ? c[7] : c[5]) : c[3]) : c[1];
  double t = __builtin_fma(y, high, 0x1.8p52);
  double r = __builtin_fma(y, low, __builtin_fma(y, high, -(t - 0x1.8p52)));
  return {(float)(r * 0x1.921fb54442d18p+0), (uint32_t)md_bits(t)};
}
MD_INLINE float md_sin_part_f32(float r, float t) { return md_fma(r * t, md_poly(t, MD_C_SIN_F32), r); }
MD_INLINE float md_cos_part_f32(float t) { return md_fma(t * t, md_poly(t, MD_C_COS_F32), md_fma(t, -0.5f, 1.0f)); }

//@ md_sin_f32 : md_trig_parts_f32
MD_INLINE float md_sin_f32(float x) {
  md_trig_parts p = md_trig_parts_f32(x);
  float t = p.r * p.r;
  float y = p.quadrant & 1 ? md_cos_part_f32(t) : md_sin_part_f32(p.r, t);
  y = md_float(md_bits(y) ^ (p.quadrant & 2) << 30);
  return x == 0.0f ? x : y;
}

//@ md_cos_f32 : md_trig_parts_f32
MD_INLINE float md_cos_f32(float x) {
  md_trig_parts p = md_trig_parts_f32(x);
  float t = p.r * p.r;
  float y = p.quadrant & 1 ? md_sin_part_f32(p.r, t) : md_cos_part_f32(t);
  return md_float(md_bits(y) ^ ((p.quadrant + 1) & 2) << 30);
}

//@ md_tan_f32 : md_trig_parts_f32
#define MD_C_TAN_F32 0.33333382f, 0.13331325f, 0.05421782f, 0.020474456f, 0.012863039f, -0.002368985f, 0.0055286135f
MD_INLINE float md_tan_f32(float x) {
  md_trig_parts p = md_trig_parts_f32(x);
  float t = p.r * p.r;
  float y = md_fma(p.r * t, md_poly(t, MD_C_TAN_F32), p.r);
  y = p.quadrant & 1 ? -1.0f / y : y;
  return x == 0.0f ? x : y;
}

//@ md_asin_f32 md_acos_f32 :
// Above one half: pi/2 - 2 * asin(sqrt((1 - a) / 2)).
#define MD_C_ASIN_F32 0.16666731f, 0.07495957f, 0.045401495f, 0.024475638f, 0.041715868f
MD_INLINE float md_asin_f32(float x) {
  float a = __builtin_fabsf(x);
  bool high = a > 0.5f;
  float t = high ? md_fma(a, -0.5f, 0.5f) : a * a;
  float s = high ? __builtin_sqrtf(t) : a;
  float p = s * t * md_poly(t, MD_C_ASIN_F32);
  return md_copysign(high ? md_fma(s, -2.0f, 0x1.921fb6p+0f) - md_fma(p, 2.0f, 0x1.777a5cp-25f) : s + p, x);
}
MD_INLINE float md_acos_f32(float x) {
  float a = __builtin_fabsf(x);
  bool high = a > 0.5f;
  float t = high ? md_fma(a, -0.5f, 0.5f) : a * a;
  float s = high ? __builtin_sqrtf(t) : a;
  float p = s * t * md_poly(t, MD_C_ASIN_F32);
  float twice = 2.0f * (s + p);
  float middle = 0x1.921fb6p+0f - md_copysign(s + (p + (x < 0.0f ? -0x1.777a5cp-25f : 0x1.777a5cp-25f)), x);
  return high ? (x < 0.0f ? 0x1.921fb6p+1f - (twice + 0x1.777a5cp-24f) : twice) : middle;
}

//@ md_atan_f32 md_atan2_f32 :
#define MD_C_ATAN_F32 -0.3333331f, 0.1999883f, -0.14266853f, 0.1096446f, -0.08436367f, 0.058482774f, -0.031671092f, 0.01116638f, -0.0018475032f
// for s in [0, 1]
MD_INLINE float md_atan_part_f32(float s) {
  float t = s * s;
  return md_fma(s * t, md_poly(t, MD_C_ATAN_F32), s);
}
MD_INLINE float md_atan_f32(float x) {
  float a = __builtin_fabsf(x);
  float y = md_atan_part_f32(a > 1.0f ? 1.0f / a : a);
  return md_copysign(a > 1.0f ? 0x1.921fb6p+0f - (y + 0x1.777a5cp-25f) : y, x);
}
MD_INLINE float md_atan2_f32(float y, float x) {
  float a = __builtin_fabsf(y), b = __builtin_fabsf(x);
  bool steep = a > b;
  float q = steep ? b / a : a / b;
  q = a == b ? 1.0f : q;  // both infinite
  q = a == 0.0f ? 0.0f : q;  // both zero
  float z = md_atan_part_f32(q);
  z = steep ? 0x1.921fb6p+0f - (z + 0x1.777a5cp-25f) : z;
  z = md_bits(x) >> 31 ? 0x1.921fb6p+1f - (z + 0x1.777a5cp-24f) : z;
  return md_where((x != x) | (y != y), MD_NAN, md_copysign(z, y));
}

//@ md_pow_f32 :
// log2 and exp2 in double: y * log2(x) may reach 150, which leaves a float no digits.
#define MD_C_LOG2_F64P 2.8853900818356855, 0.9617966220419686, 0.5770923066542802, 0.41120788175840484, 0.34837296457034356
#define MD_C_EXP2_F64P 1.0000000005544365, 0.693147205739197, 0.2402264689019859, 0.055503287755994536, 0.009618489016154303, 0.0013399931617717876, 0.00015345794703384335
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
  r += (x < 0.0f) & !whole & (a < MD_INF) ? MD_NAN : -0.0f;
  r = md_where((x != x) | (y != y), MD_NAN, r);
  return md_where((x == 1.0f) | (y == 0.0f), 1.0f, r);
}

//@ lines
MD_INLINE float md_sqrt_f32(float x) { return __builtin_sqrtf(x); }
MD_INLINE float md_rsqrt_f32(float x) { return 1.0f / __builtin_sqrtf(x); }
MD_INLINE float md_reciprocal_f32(float x) { return 1.0f / x; }
MD_INLINE float md_abs_f32(float x) { return __builtin_fabsf(x); }
MD_INLINE float md_floor_f32(float x) { return __builtin_floorf(x); }
MD_INLINE float md_ceil_f32(float x) { return __builtin_ceilf(x); }
MD_INLINE float md_trunc_f32(float x) { return __builtin_truncf(x); }
// half to even: no code here changes the rounding mode
MD_INLINE float md_round_f32(float x) { return __builtin_rintf(x); }
MD_INLINE float md_copysign_f32(float x, float s) { return __builtin_copysignf(x, s); }
//@ md_hypot_f32 :
MD_INLINE float md_hypot_f32(float x, float y) {
  double a = x, b = y;
  float r = (float)__builtin_sqrt(a * a + b * b);
  return __builtin_fabsf(x) == MD_INF || __builtin_fabsf(y) == MD_INF ? MD_INF : r;
}
//@ md_nextafter_f32 :
// the next float up or down is the next integer up or down, counted from zero
MD_INLINE float md_nextafter_f32(float x, float y) {
  uint32_t away = md_bits(x) + 1, back = md_bits(x) - 1;
  bool grows = (y > x) == (x > 0.0f);
  float z = x == 0.0f ? md_float(1 | (md_bits(y) & 0x80000000u)) : md_float(grows ? away : back);
  return md_where((x != x) | (y != y), MD_NAN, x == y ? y : z);
}

//@ md_fmod_f32 :
// Exact: each round takes a multiple of b * 2**k from what is left, and every remainder fits a double. Quotients reach
// 2**277. __builtin_fma and not md_fma: the product must not be rounded.
MD_INLINE double md_fmod_round(double r, double b, double inverse, double two) {
  return __builtin_fma(-__builtin_rint(r * (inverse / two)), b * two, r);
}
// a modulo b for finite a >= 0, b > 0
MD_INLINE double md_fmod_part_f32(double a, double b) {
  double inverse = 1.0 / b;
  double r = md_fmod_round(a, b, inverse, 0x1p235);
  r = md_fmod_round(r, b, inverse, 0x1p188);
  r = md_fmod_round(r, b, inverse, 0x1p141);
  r = md_fmod_round(r, b, inverse, 0x1p94);
  r = md_fmod_round(r, b, inverse, 0x1p47);
  r = md_fmod_round(r, b, inverse, 1.0);
  return r < 0.0 ? r + b : r;
}
MD_INLINE float md_fmod_f32(float x, float y) {
  float a = __builtin_fabsf(x), b = __builtin_fabsf(y);
  float r = md_copysign((float)md_fmod_part_f32(a, b), x);
  r = b == MD_INF ? x : r;
  return r + (a < MD_INF && b > 0.0f ? -0.0f : MD_NAN);
}

//@ md_remainder_f32 : md_fmod_f32
// Python's %: the sign is the divisor's.
MD_INLINE float md_remainder_f32(float x, float y) {
  float r = md_fmod_f32(x, y);
  bool apart = (md_bits(r) ^ md_bits(y)) >> 31;
  return r + (apart & (r != 0.0f) ? y : -0.0f);
}

//@ md_floordiv_f32 : md_fmod_f32
// Eager's steps, one by one: (x - remainder) / y is whole up to its rounding.
MD_INLINE float md_floordiv_f32(float x, float y) {
  float r = md_fmod_f32(x, y);
  bool apart = (md_bits(r) ^ md_bits(y)) >> 31;
  float quotient = x / y, zero = md_copysign(0.0f, quotient);
  float q = (x - r) / y - (apart & (r != 0.0f) ? 1.0f : 0.0f);
  float n = __builtin_floorf(q);
  n = n + (q - n > 0.5f ? 1.0f : 0.0f);
  n = q == 0.0f ? zero : n;
  return y == 0.0f ? quotient : n;
}

//@ md_{maximum,minimum}_{f32,f64} :
// NaN in either argument gives NaN; of two zeros the second is taken. `larger` is one instruction, maxps, which gives b
// where either is NaN; so a NaN in a is added, and adding -0 changes nothing. Where a second `?:` chooses a, g++ joins
// both comparisons, threads jumps past them, and a maximum of a minimum stays scalar.
template <class T> MD_INLINE T md_maximum(T a, T b) {
  T larger = a > b ? a : b;
  return larger + (a != a ? (T)MD_NAN : (T)-0.0);
}
template <class T> MD_INLINE T md_minimum(T a, T b) {
  T smaller = a < b ? a : b;
  return smaller + (a != a ? (T)MD_NAN : (T)-0.0);
}
MD_INLINE float md_maximum_f32(float a, float b) { return md_maximum(a, b); }
MD_INLINE float md_minimum_f32(float a, float b) { return md_minimum(a, b); }
MD_INLINE double md_maximum_f64(double a, double b) { return md_maximum(a, b); }
MD_INLINE double md_minimum_f64(double a, double b) { return md_minimum(a, b); }
//@ md_{fmax,fmin}_{f32,f64} :
// NaN in one argument gives the other; of two zeros the first is taken.
template <class T> MD_INLINE T md_fmax(T a, T b) {
  T larger = b > a ? b : a;
  return a != a ? b : larger;
}
template <class T> MD_INLINE T md_fmin(T a, T b) {
  T smaller = b < a ? b : a;
  return a != a ? b : smaller;
}
MD_INLINE float md_fmax_f32(float a, float b) { return md_fmax(a, b); }
MD_INLINE float md_fmin_f32(float a, float b) { return md_fmin(a, b); }
MD_INLINE double md_fmax_f64(double a, double b) { return md_fmax(a, b); }
MD_INLINE double md_fmin_f64(double a, double b) { return md_fmin(a, b); }
//@ md_{relu,sign}_{f32,f64} :
// relu(-0) is -0 and sign(NaN) is 0, as in eager
MD_INLINE float md_relu_f32(float x) { return md_where(x < 0.0f, 0.0f, x); }
MD_INLINE double md_relu_f64(double x) { return md_where(x < 0.0, 0.0, x); }
MD_INLINE float md_sign_f32(float x) { return md_where(x > 0.0f, 1.0f, md_where(x < 0.0f, -1.0f, 0.0f)); }
MD_INLINE double md_sign_f64(double x) { return md_where(x > 0.0, 1.0, md_where(x < 0.0, -1.0, 0.0)); }
//@ md_{isnan,isinf,signbit}_{f32,f64} :
MD_INLINE bool md_isnan_f32(float x) { return x != x; }
MD_INLINE bool md_isnan_f64(double x) { return x != x; }
MD_INLINE bool md_isinf_f32(float x) { return __builtin_fabsf(x) == MD_INF; }
MD_INLINE bool md_isinf_f64(double x) { return __builtin_fabs(x) == (double)MD_INF; }
MD_INLINE bool md_signbit_f32(float x) { return md_bits(x) >> 31; }
MD_INLINE bool md_signbit_f64(double x) { return md_bits(x) >> 63; }

//@ md_digamma_{f32,f64} :
// Recurrence up to 10, then the asymptotic series; negative arguments by reflection. Branches: it stays scalar.
MD_INLINE double md_digamma_f64(double x) {
  if (x == 0.0) return md_copysign((double)MD_INF, -x);
  double y = 0.0;
  if (x < 0.0) {
    double part = x - __builtin_trunc(x);
    if (part == 0.0 || x == (double)-MD_INF) return (double)MD_NAN;
    y = -0x1.921fb54442d18p+1 / __builtin_tan(0x1.921fb54442d18p+1 * part);
    x = 1.0 - x;
  }
  for (; x < 10.0; x += 1.0) y -= 1.0 / x;
  double q = 1.0 / (x * x);
  double series = md_poly(q, 1.0 / 12, -1.0 / 120, 1.0 / 252, -1.0 / 240, 1.0 / 132, -691.0 / 32760, 1.0 / 12);
  return y + __builtin_log(x) - 0.5 / x - q * series;
}
MD_INLINE float md_digamma_f32(float x) { return (float)md_digamma_f64(x); }

//@ md_philox_i64 :
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): the first two words for the key
// `seed` and the counter {low, high, stream, 0}. Words stand in 64-bit lanes, whose products vectorise.
MD_INLINE int64_t md_philox_i64(int64_t seed, int64_t stream, int64_t counter) {
  const uint64_t low = 0xffffffffu;
  uint64_t k0 = (uint64_t)seed & low, k1 = (uint64_t)seed >> 32;
  uint64_t c0 = (uint64_t)counter & low, c1 = (uint64_t)counter >> 32, c2 = (uint64_t)stream & low, c3 = 0;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    uint64_t a = c0 * 0xd2511f53u, b = c2 * 0xcd9e8d57u;
    c0 = (b >> 32) ^ c1 ^ k0;
    c1 = b & low;
    c2 = (a >> 32) ^ c3 ^ k1;
    c3 = a & low;
    k0 = (k0 + 0x9e3779b9u) & low;
    k1 = (k1 + 0xbb67ae85u) & low;
  }
  return (int64_t)(c0 | c1 << 32);
}
