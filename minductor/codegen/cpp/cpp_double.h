// float64 mathematics: the second part of cpp_math.h, in the same form.
//
// Takes the base section of cpp_math.h. Gives md_<op>_f64, and md_lgamma_f32, which works in double. Refuses what
// cpp_math.h refuses. Where a few arguments would need much work, a loop's vectors hold what suits all others, and a
// MD_FAR function of the C library's takes those few.

//@ MD_FAR :
// Called for a whole vector, with what is right nearby as its last argument.
#define MD_FAR static __attribute__((noinline, unused, simd("notinbranch"))) double

//@ md_exp_parts_f64 :
#define MD_C_EXP_F64 0.5000000000000011, 0.16666666666666438, 0.04166666666652576, 0.008333333333473716, 0.0013888888944876467, 0.000198412695606205, 2.4801491723355554e-05, 2.7557530153588424e-06, 2.763076617467132e-07, 2.5020320764244537e-08
struct md_exp_parts_double { double tail; uint64_t exponent; };  // exp(x + low) = (1 + tail) * 2 ** exponent, |x| < 1100
MD_INLINE md_exp_parts_double md_exp_parts_f64(double x, double low = -0.0) {
  double t = md_fma(x, 0x1.71547652b82fep+0, 0x1.8p52);
  double n = t - 0x1.8p52;
  double r = md_fma(n, -0x1.ef35793c76730p-45, md_fma(n, -0x1.62e42fefa3800p-1, x) + low);
  return {md_fma(r * r, md_poly(r, MD_C_EXP_F64), r), md_bits(t)};
}
MD_INLINE double md_limit_f64(double x, double most) {
  double a = __builtin_fabs(x);
  return md_copysign(a > most ? most : a, x);
}

//@ md_ldexp_f64 :
// As md_ldexp_f32, n in [-2048, 2047]; n is made positive, since few machines shift int64 with its sign.
MD_INLINE double md_ldexp_f64(double value, uint64_t t) {
  uint64_t n = (t + 2048) & 0xfff, half = n >> 1;
  return value * md_double((half - 1) << 52) * md_double((n - half - 1) << 52);
}

//@ md_exp_f64 : md_exp_parts_f64 md_ldexp_f64
MD_INLINE double md_exp_f64(double x) {
  md_exp_parts_double e = md_exp_parts_f64(md_limit_f64(x, 800.0));
  return md_ldexp_f64(1.0 + e.tail, e.exponent);
}

//@ md_exp2_f64 : md_exp_parts_f64 md_ldexp_f64
MD_INLINE double md_exp2_f64(double x) {
  x = md_limit_f64(x, 1100.0);
  double t = x + 0x1.8p52, r = x - (t - 0x1.8p52);
  double high = r * 0x1.62e42fefa39efp-1, low = md_fma(r, 0x1.62e42fefa39efp-1, -high) + r * 0x1.abc9e3b39803fp-56;
  double tail = md_fma(high * high, md_poly(high, MD_C_EXP_F64), high + low);
  return md_ldexp_f64(1.0 + tail, md_bits(t));
}

//@ md_expm1_f64 : md_exp_parts_f64
// 2 ** n * (1 + tail) - 1; half of each term, so that 2 ** 1024 does not occur
MD_INLINE double md_expm1_f64(double x) {
  md_exp_parts_double e = md_exp_parts_f64(md_limit_f64(x, 709.9));
  double half = md_double(((e.exponent + 1022) & 0xfff) << 52);
  double y = 2.0 * md_fma(half, e.tail, half - 0.5);
  return md_copysign(x < -40.0 ? -1.0 : y, x);
}

//@ md_sigmoid_f64 : md_exp_parts_f64
MD_INLINE double md_sigmoid_f64(double x) {
  md_exp_parts_double e = md_exp_parts_f64(-md_limit_f64(x, 709.9));
  uint64_t n = (e.exponent + 1022) & 0xfff;
  double half = (1.0 + e.tail) * md_double((n > 2047 ? 0 : n) << 52);
  return 1.0 / md_fma(half, 2.0, 1.0);
}

//@ md_tanh_f64 : md_exp_parts_f64
#define MD_C_TANH_F64 -0.33333333333333315, 0.1333333333332996, -0.05396825396627176, 0.021869488477517206, -0.008863234490347234, 0.0035921160380861655, -0.001455740347864071, 0.0005895168866731832, -0.00023720073309880903, 9.189985550128374e-05, -3.0536761066756336e-05, 6.197461315390641e-06
MD_INLINE double md_tanh_f64(double x) {
  double a = __builtin_fabs(x), t = x * x;
  double small = md_fma(a * t, md_poly(t, MD_C_TANH_F64), a);
  md_exp_parts_double e = md_exp_parts_f64(2.0 * md_limit_f64(a, 22.0));
  double large = 1.0 - 2.0 / ((1.0 + e.tail) * md_double((e.exponent + 1023) << 52) + 1.0);
  return md_copysign(a < 0.625 ? small : large, x);
}

//@ md_log_parts_f64 :
#define MD_C_LOG_F64 0.666666666666666, 0.40000000000056646, 0.2857142855583971, 0.22222224294906717, 0.18181665979729825, 0.15391108323790578, 0.13173662808506448, 0.13842597309973897
struct md_log_parts_double { double f, exponent; };
// the exponent that the bits `t`, less those of 2/3, begin with
MD_INLINE double md_log_exponent_f64(uint64_t t) {
  return md_double(((t + 0x4000000000000000u) >> 52) + 0x4330000000000000u) - (0x1p52 + 1024.0);
}
// x = (1 + f) * 2 ** exponent with 1 + f in [2/3, 4/3), for positive finite x
MD_INLINE md_log_parts_double md_log_parts_f64(double x) {
  bool tiny = x < 0x1p-1022;
  uint64_t b = md_bits(tiny ? x * 0x1p54 : x), t = b - 0x3fe5555555555555u;
  double f = md_double(b - (t & 0xfff0000000000000u)) - 1.0;
  return {f, md_log_exponent_f64(t) - (tiny ? 54.0 : 0.0)};
}
// log(1 + f) - (f - half) for half = f * f / 2, from 2 * atanh(s) for s = f / (2 + f)
MD_INLINE double md_log_tail_f64(double f, double half) {
  double s = f / (2.0 + f), q = s * s;
  return s * md_fma(q, md_poly(q, MD_C_LOG_F64), half);
}
// log(1 + f) + e * log(2), arranged around f, which is exact
MD_INLINE double md_log_sum_f64(double f, double e) {
  double half = 0.5 * f * f;
  double y = md_fma(e, 0x1.ef35793c76730p-45, md_log_tail_f64(f, half));
  return md_fma(e, 0x1.62e42fefa3800p-1, f - (half - y));
}
MD_INLINE double md_log_edges_f64(double x, double y) {
  return y + (x > 0.0 ? (x < (double)MD_INF ? -0.0 : (double)MD_INF) : (x == 0.0 ? (double)-MD_INF : (double)MD_NAN));
}

//@ md_log_f64 : md_log_parts_f64
MD_INLINE double md_log_f64(double x) {
  md_log_parts_double p = md_log_parts_f64(x);
  return md_log_edges_f64(x, md_log_sum_f64(p.f, p.exponent));
}

//@ md_log2_f64 md_log10_f64 : md_log_parts_f64
// log(x) * (unit + unit_low) for log(2) * (unit + unit_low) = two + two_low. The first product is exact: `high` has 21
// bits and `unit` 32; so is the other, of 11 and 42.
MD_INLINE double md_log_scaled_f64(double x, double unit, double unit_low, double two, double two_low) {
  md_log_parts_double p = md_log_parts_f64(x);
  double half = 0.5 * p.f * p.f;
  double high = md_double(md_bits(p.f - half) & 0xffffffff00000000u);
  double low = ((p.f - high) - half) + md_log_tail_f64(p.f, half);
  double whole = p.exponent * two, part = high * unit, sum = whole + part;
  double rest = md_fma(p.exponent, two_low, md_fma(low, unit, (low + high) * unit_low));
  return md_log_edges_f64(x, sum + (((whole - sum) + part) + rest));
}
MD_INLINE double md_log2_f64(double x) {
  return md_log_scaled_f64(x, 0x1.71547652p+0, 0x1.705fc2eefa2p-33, 1.0, 0.0);
}
MD_INLINE double md_log10_f64(double x) {
  return md_log_scaled_f64(x, 0x1.bcb7b152p-2, 0x1.b9438ca9aadd5p-36, 0x1.34413509f78p-2, 0x1.fef311f12b358p-46);
}

//@ md_log1p_f64 : md_log_parts_f64
// As md_log1p_f32.
MD_INLINE double md_log1p_f64(double x) {
  double u = 1.0 + x;
  uint64_t t = md_bits(u) - 0x3fe5555555555555u;
  double quarter = md_double(0x4010000000000000u - (t & 0xfff0000000000000u));
  double f = md_fma(0.25 * x, quarter, md_fma(0.25, quarter, -1.0));
  double y = md_log_edges_f64(u, md_log_sum_f64(f, md_log_exponent_f64(t)));
  return (__builtin_fabs(x) < 0x1p-54) | (x == (double)MD_INF) ? x : y;
}

//@ md_sinh_f64 md_cosh_f64 : md_exp_parts_f64
// As md_sinh_f32.
#define MD_C_SINH_F64 0.16666666666666669, 0.008333333333332912, 0.00019841269841593405, 2.755731910676014e-06, 2.5052130997888033e-08, 1.6056659255718164e-10, 7.776596737158025e-13
MD_INLINE double md_half_exp_f64(double a) {
  md_exp_parts_double e = md_exp_parts_f64(md_limit_f64(a, 711.0));
  return 2.0 * ((1.0 + e.tail) * md_double((e.exponent + 1021) << 52));
}
MD_INLINE double md_sinh_f64(double x) {
  double a = __builtin_fabs(x), t = x * x, e = md_half_exp_f64(a);
  return md_copysign(a < 1.0 ? md_fma(a * t, md_poly(t, MD_C_SINH_F64), a) : e - 0.25 / e, x);
}
MD_INLINE double md_cosh_f64(double x) {
  double e = md_half_exp_f64(__builtin_fabs(x));
  return e + 0.25 / e;
}

//@ md_asinh_f64 md_acosh_f64 md_atanh_f64 : md_log1p_f64
// As md_asinh_f32.
MD_INLINE double md_asinh_f64(double x) {
  double a = __builtin_fabs(x), t = a * a;
  bool huge = a > 0x1p60;
  double y = md_log1p_f64(huge ? a : a + t / (1.0 + __builtin_sqrt(1.0 + t)));
  return md_copysign(huge ? y + 0x1.62e42fefa39efp-1 : y, x);
}
MD_INLINE double md_acosh_f64(double x) {
  double t = x - 1.0;
  bool huge = x > 0x1p60;
  double y = md_log1p_f64(huge ? t : t + __builtin_sqrt(t * (t + 2.0)));
  y = huge ? y + 0x1.62e42fefa39efp-1 : y;
  return y + (x < 1.0 ? (double)MD_NAN : -0.0);
}
MD_INLINE double md_atanh_f64(double x) {
  double a = __builtin_fabs(x);
  return md_copysign(0.5 * md_log1p_f64(2.0 * a / (1.0 - a)), x);
}

//@ md_trig_parts_f64 : MD_FAR
// Sine and cosine of x - n * pi/2, for |x| < 2**45. pi/2 is taken in three parts; the difference to the first is exact,
// since it is a multiple of 2**-52. __builtin_fma and not md_fma: the products must not be rounded.
#define MD_C_SIN_F64 -0.16666666666666627, 0.008333333333321128, -0.00019841269828771573, 2.7557313329868437e-06, -2.5050701015700524e-08, 1.5893461964685177e-10
#define MD_C_COS_F64 0.04166666666666659, -0.0013888888888872167, 2.4801587288274776e-05, -2.755731400736792e-07, 2.0875676841087302e-09, -1.1357264442201916e-11
#define MD_NEAR 0x1p45
struct md_trig_parts_double { double sine, cosine; uint64_t quadrant; };
MD_INLINE md_trig_parts_double md_trig_parts_f64(double x) {
  double turns = __builtin_fma(x, 0x1.45f306dc9c883p-1, 0x1.8p52), n = turns - 0x1.8p52;
  double d = __builtin_fma(n, -0x1.921fb54442d18p+0, x);
  double p = n * 0x1.1a62633145c07p-54, r = d - p;
  double low = ((d - r) - p) - __builtin_fma(n, 0x1.1a62633145c07p-54, -p);
  low = md_fma(n, 0x1.f1976b7ed8fbcp-110, low);
  double t = r * r, half = 0.5 * t, most = 1.0 - half;
  double sine = r + md_fma(r * t, md_poly(t, MD_C_SIN_F64), md_fma(-half, low, low));
  double cosine = most + (((1.0 - most) - half) + md_fma(t * t, md_poly(t, MD_C_COS_F64), -r * low));
  return {sine, cosine, md_bits(turns)};
}

//@ md_sin_f64 : md_trig_parts_f64
MD_FAR md_sin_far_f64(double x, double y) { return __builtin_fabs(x) < MD_NEAR ? y : __builtin_sin(x); }
MD_INLINE double md_sin_f64(double x) {
  md_trig_parts_double p = md_trig_parts_f64(x);
  double y = p.quadrant & 1 ? p.cosine : p.sine;
  y = md_double(md_bits(y) ^ (p.quadrant & 2) << 62);
  return md_sin_far_f64(x, x == 0.0 ? x : y);
}

//@ md_cos_f64 : md_trig_parts_f64
MD_FAR md_cos_far_f64(double x, double y) { return __builtin_fabs(x) < MD_NEAR ? y : __builtin_cos(x); }
MD_INLINE double md_cos_f64(double x) {
  md_trig_parts_double p = md_trig_parts_f64(x);
  double y = p.quadrant & 1 ? p.sine : p.cosine;
  return md_cos_far_f64(x, md_double(md_bits(y) ^ ((p.quadrant + 1) & 2) << 62));
}

//@ md_tan_f64 : md_trig_parts_f64
MD_FAR md_tan_far_f64(double x, double y) { return __builtin_fabs(x) < MD_NEAR ? y : __builtin_tan(x); }
MD_INLINE double md_tan_f64(double x) {
  md_trig_parts_double p = md_trig_parts_f64(x);
  bool odd = p.quadrant & 1;
  double y = (odd ? -p.cosine : p.sine) / (odd ? p.sine : p.cosine);
  return md_tan_far_f64(x, x == 0.0 ? x : y);
}

//@ md_asin_f64 md_acos_f64 :
// As md_asin_f32.
#define MD_C_ASIN_F64 0.1666666666666541, 0.07500000000336593, 0.04464285682861242, 0.030381959127145603, 0.02237175825255276, 0.01735970209444317, 0.013885258935395946, 0.012169072588605986, 0.006528523818023861, 0.019526884074244348, -0.016222244741010784, 0.031910986991428934
struct md_asin_parts_double { double s, rest; };  // asin(s) = s + rest, for s = a up to one half, then sqrt((1 - a) / 2)
MD_INLINE md_asin_parts_double md_asin_parts_f64(double a) {
  double t = a > 0.5 ? md_fma(a, -0.5, 0.5) : a * a;
  double s = a > 0.5 ? __builtin_sqrt(t) : a;
  return {s, s * t * md_poly(t, MD_C_ASIN_F64)};
}
MD_INLINE double md_asin_f64(double x) {
  double a = __builtin_fabs(x);
  md_asin_parts_double p = md_asin_parts_f64(a);
  double large = md_fma(p.s, -2.0, 0x1.921fb54442d18p+0) - md_fma(p.rest, 2.0, -0x1.1a62633145c07p-54);
  return md_copysign(a > 0.5 ? large : p.s + p.rest, x);
}
MD_INLINE double md_acos_f64(double x) {
  double a = __builtin_fabs(x);
  md_asin_parts_double p = md_asin_parts_f64(a);
  double twice = 2.0 * (p.s + p.rest);
  double low = x < 0.0 ? 0x1.1a62633145c07p-54 : -0x1.1a62633145c07p-54;
  double middle = 0x1.921fb54442d18p+0 - md_copysign(p.s + (p.rest + low), x);
  double left = 0x1.921fb54442d18p+1 - (twice - 0x1.1a62633145c07p-53);
  return a > 0.5 ? (x < 0.0 ? left : twice) : middle;
}

//@ md_atan_f64 md_atan2_f64 :
// atan(a / b) for a, b >= 0, by the nearest of 0, pi/4 and pi/2; one division
#define MD_C_ATAN_F64 -0.333333333333332, 0.19999999999953666, -0.14285714280198786, 0.11111110783458658, -0.09090897756712735, 0.07692060199048725, -0.06663104001922561, 0.05847890296115071, -0.05039315972150794, 0.03806502927401856, -0.017907925588972775
MD_INLINE double md_atan_part_f64(double a, double b) {
  bool steep = a > 2.414213562373095 * b, middle = a > 0.41421356237309503 * b;
  double s = (steep ? -b : (middle ? a - b : a)) / (steep ? a : (middle ? a + b : b)), t = s * s;
  double high = steep ? 0x1.921fb54442d18p+0 : (middle ? 0x1.921fb54442d18p-1 : 0.0);
  double low = steep ? 0x1.1a62633145c07p-54 : (middle ? 0x1.1a62633145c07p-55 : 0.0);
  return high + (s + md_fma(s * t, md_poly(t, MD_C_ATAN_F64), low));
}
MD_INLINE double md_atan_f64(double x) { return md_copysign(md_atan_part_f64(__builtin_fabs(x), 1.0), x); }
MD_INLINE double md_atan2_f64(double y, double x) {
  double a = __builtin_fabs(y), b = __builtin_fabs(x);
  double scale = (a > 0x1p1000) | (b > 0x1p1000) ? 0x1p-2 : 1.0;
  bool infinite = (a == (double)MD_INF) & (b == (double)MD_INF);
  double z = md_atan_part_f64(infinite ? 1.0 : a * scale, infinite | (a == 0.0) ? 1.0 : b * scale);
  z = md_bits(x) >> 63 ? 0x1.921fb54442d18p+1 - (z - 0x1.1a62633145c07p-53) : z;
  return md_where((x != x) | (y != y), (double)MD_NAN, md_copysign(z, y));
}

//@ md_erf_small_f64 :
#define MD_C_ERF_F64 0.1283791670955126, -0.3761263890318411, 0.11283791670972042, -0.026866170648261335, 0.005223977655085972, -0.0008548328652788224, 0.00012055388242369966, -1.492683037258289e-05, 1.6477640596373604e-06, -1.6479748417388297e-07, 1.5098533633644617e-08, -1.082553506089683e-09
// erf(a) for 0 <= a < 0.9
MD_INLINE double md_erf_small_f64(double a) { return md_fma(a, md_poly(a * a, MD_C_ERF_F64), a); }

//@ md_erf_f64 md_erfc_f64 : md_exp_parts_f64 md_ldexp_f64 md_erf_small_f64
// erfc(a) = exp(-a*a) / (a + 1) * polynomial((a - 1) / (a + 1)). erfc splits the square, whose rounding would be scaled
// by itself; beyond 0.9 the complement's error counts a fifth and less.
#define MD_C_ERFC_F64 0.855167152311614, -0.2376809068239809, -0.09555647498428033, 0.013908944769841633, 0.02539732825274267, 0.009544508388436072, -0.0012412203060007717, -0.0036628755186765586, -0.0022636408696284057, -0.0005250332096949297, 0.00036610921578478966, 0.0004634897888590282, 0.0005421444511401235, -0.00013878287450484503, -0.0029138913518180205, 0.01827067603770751, -0.06060520117152924, 0.13375221830561568, -0.2118938970454991, 0.24539524929496037, -0.2068093990884197, 0.12360321898851066, -0.04953255116734407, 0.011890054614073076, -0.0012876364589094935
MD_INLINE double md_erfc_part_f64(double a) {
  double r = 1.0 / (a + 1.0);
  return r * md_poly(md_fma(r, -2.0, 1.0), MD_C_ERFC_F64);
}
MD_INLINE double md_erf_f64(double x) {
  double a = __builtin_fabs(x), b = a > 6.0 ? 6.0 : a;
  md_exp_parts_double e = md_exp_parts_f64(-b * b);
  double p = md_erfc_part_f64(b), rest = md_fma(p, e.tail, p) * md_double((e.exponent + 1023) << 52);
  return md_copysign(a < 0.9 ? md_erf_small_f64(a) : 1.0 - rest, x);
}
MD_INLINE double md_erfc_f64(double x) {
  double a = __builtin_fabs(x);
  a = a > 28.0 ? 28.0 : a;
  double h = md_double(md_bits(a) & 0xfffffffff8000000u), p = md_erfc_part_f64(a);
  md_exp_parts_double e = md_exp_parts_f64(-(h * h), (h - a) * (h + a));
  double y = a < 0.8 ? 1.0 - md_erf_small_f64(a) : md_ldexp_f64(md_fma(p, e.tail, p), e.exponent);
  return x < 0.0 ? 2.0 - y : y;
}

//@ md_pow_f64 : md_log_parts_f64 md_exp_parts_f64 md_ldexp_f64
// exp(y * log(x)) in sums of two doubles, so that a power that is a double comes out as that: 5 ** 2 is 25.
// __builtin_fma and not md_fma: the products must not be rounded.
#define MD_C_LOGPAIR_F64 0.4000000000000336, 0.2857142856779876, 0.2222222306619988, 0.18181732718496674, 0.1538912386785533, 0.13204214488967672, 0.13652047233310163
struct md_pair_double { double high, low; };
// log(x) for positive finite x: 2 * s + s**3 * (2/3 + tail) for s = f / (2 + f), and the exponent's part
MD_INLINE md_pair_double md_log_pair_f64(double x) {
  md_log_parts_double p = md_log_parts_f64(x);
  double d = 2.0 + p.f, d_low = p.f - (d - 2.0), inverse = 1.0 / d;
  double s = p.f * inverse, s_low = (__builtin_fma(-s, d, p.f) - s * d_low) * inverse;
  double q = s * s, q_low = __builtin_fma(s, s, -q) + 2.0 * s * s_low;
  double tail = md_fma(q, md_poly(q, MD_C_LOGPAIR_F64), 0x1.5555555555555p-55);
  double c = 0x1.5555555555555p-1 + tail, c_low = (0x1.5555555555555p-1 - c) + tail;
  double r = q * c, r_low = __builtin_fma(q, c, -r) + (q * c_low + q_low * c);
  double t = s * r, t_low = __builtin_fma(s, r, -t) + (s * r_low + s_low * r);
  double n = p.exponent * 0x1.62e42fefa3800p-1;
  double a = n + 2.0 * s, a_low = (n - a) + 2.0 * s;
  double b = a + t, b_low = (a - b) + t;
  double low = md_fma(p.exponent, 0x1.ef35793c76730p-45, (a_low + b_low) + md_fma(s_low, 2.0, t_low));
  double high = b + low;
  return {high, (b - high) + low};
}
// exp(p + low) for |p| < 800
MD_INLINE double md_exp_pair_f64(double p, double low) {
  double t = md_fma(p, 0x1.71547652b82fep+0, 0x1.8p52), n = t - 0x1.8p52;
  double a = md_fma(n, -0x1.62e42fefa3800p-1, p), b = md_fma(n, -0x1.ef35793c76730p-45, low);
  double r = a + b, r_low = (a - r) + b;
  double y = 1.0 + r, y_low = (1.0 - y) + r;
  return md_ldexp_f64(y + md_fma(r * r, md_poly(r, MD_C_EXP_F64), y_low + r_low), md_bits(t));
}
MD_INLINE double md_pow_f64(double x, double y) {
  double a = __builtin_fabs(x);
  md_pair_double l = md_log_pair_f64(a);
  double p = l.high * y, low = __builtin_fma(l.high, y, -p) + l.low * y;
  p = a > 0.0 ? (a < (double)MD_INF ? p : md_copysign(800.0, y)) : -md_copysign(800.0, y);
  low = __builtin_fabs(p) < 760.0 ? low : 0.0;
  double r = md_exp_pair_f64(a == 1.0 ? 0.0 : md_limit_f64(p, 760.0), low);
  bool whole = __builtin_floor(y) == y, odd = whole & (__builtin_floor(0.5 * y) != 0.5 * y);
  r = md_double(md_bits(r) ^ (odd ? md_bits(x) & 0x8000000000000000u : 0u));
  r += (x < 0.0) & !whole & (a < (double)MD_INF) ? (double)MD_NAN : -0.0;
  r = md_where((x != x) | (y != y), (double)MD_NAN, r);
  return md_where((x == 1.0) | (y == 0.0), 1.0, r);
}

//@ lines
// libm, whose calls stay scalar
MD_INLINE double md_lgamma_f64(double x) { return __builtin_lgamma(x); }
MD_INLINE double md_sqrt_f64(double x) { return __builtin_sqrt(x); }
MD_INLINE double md_floor_f64(double x) { return __builtin_floor(x); }
MD_INLINE double md_ceil_f64(double x) { return __builtin_ceil(x); }
MD_INLINE double md_trunc_f64(double x) { return __builtin_trunc(x); }
MD_INLINE double md_round_f64(double x) { return __builtin_rint(x); }
MD_INLINE double md_abs_f64(double x) { return __builtin_fabs(x); }
MD_INLINE double md_copysign_f64(double x, double y) { return __builtin_copysign(x, y); }
MD_INLINE double md_rsqrt_f64(double x) { return 1.0 / __builtin_sqrt(x); }
MD_INLINE double md_reciprocal_f64(double x) { return 1.0 / x; }
//@ md_hypot_f64 :
// Both are scaled by the larger one's power of two, so that no square overflows and none that counts underflows.
MD_INLINE double md_hypot_f64(double x, double y) {
  double a = __builtin_fabs(x), b = __builtin_fabs(y);
  uint64_t e = md_bits(a > b ? a : b) & 0x7ff0000000000000u;
  e = e < 0x0010000000000000u ? 0x0010000000000000u : (e > 0x7fd0000000000000u ? 0x7fd0000000000000u : e);
  double scale = md_double(0x7fe0000000000000u - e), c = a * scale, d = b * scale;
  double r = __builtin_sqrt(md_fma(c, c, d * d)) * md_double(e);
  return (a == (double)MD_INF) | (b == (double)MD_INF) ? (double)MD_INF : r;
}

//@ md_nextafter_f64 :
// As md_nextafter_f32.
MD_INLINE double md_nextafter_f64(double x, double y) {
  uint64_t away = md_bits(x) + 1, back = md_bits(x) - 1;
  bool grows = (y > x) == (x > 0.0);
  double z = x == 0.0 ? md_double(1 | (md_bits(y) & 0x8000000000000000u)) : md_double(grows ? away : back);
  return md_where((x != x) | (y != y), (double)MD_NAN, x == y ? y : z);
}

//@ md_fmod_f64 : MD_FAR
// Exact where the quotient is below 2**48: what is left of it by the nearest multiple fits a double. Elsewhere, and where
// an argument is infinite, r is NaN.
MD_FAR md_fmod_far_f64(double x, double y, double r) { return r == r ? r : __builtin_fmod(x, y); }
MD_INLINE double md_fmod_f64(double x, double y) {
  double a = __builtin_fabs(x), b = __builtin_fabs(y), q = a / b;
  double r = __builtin_fma(-__builtin_rint(q), b, a);
  r = md_copysign(r < 0.0 ? r + b : r, x);
  return md_fmod_far_f64(x, y, md_where(q < 0x1p48, r, (double)MD_NAN));
}

//@ md_remainder_f64 : md_fmod_f64
MD_INLINE double md_remainder_f64(double x, double y) {
  double r = md_fmod_f64(x, y);
  return (r != 0.0) & ((r < 0.0) != (y < 0.0)) ? r + y : r;
}
//@ md_floordiv_f64 : md_fmod_f64
MD_INLINE double md_floordiv_f64(double x, double y) {
  double r = md_fmod_f64(x, y);
  double q = (x - r) / y;
  q = (r != 0.0) & ((r < 0.0) != (y < 0.0)) ? q - 1.0 : q;
  double n = __builtin_floor(q);
  n = q - n > 0.5 ? n + 1.0 : n;
  n = q == 0.0 ? md_copysign(0.0, x / y) : n;
  return y == 0.0 ? x / y : n;
}

//@ md_erfinv_f64 : md_log_f64 md_erf_f64 md_exp_f64
// A start good to 1e-6, and near 1 to 2e-7, then one of Halley's steps: on the complement where that has more digits.
// What is missed counts exp(y * y) times, which the complement is taken apart by.
#define MD_C_ERFINV_F64 1.501409421668595, 0.2466407261277626, -0.004177707924626129, -0.0012537017863178852, 0.00021859218274215635, -4.397165248548786e-06, -3.5248617802159805e-06, 3.4355820789016e-07, 2.8118759450609025e-08
#define MD_C_ERFINVT_F64 3.839783844811494, 1.00949272055622, 0.0012585255440335048, -0.0008646113031737462, 0.0003265559474359078, -0.00012860318486832006, 4.740295245722656e-05, -2.0645669452463818e-05, 2.3810699480659684e-05, -1.5719628446074683e-05, 1.9032014835821336e-06, 1.6141276813685464e-06, -4.3352818423745634e-07
MD_INLINE double md_erfinv_f64(double x) {
  double a = __builtin_fabs(x), w = -md_log_f64((1.0 - a) * (1.0 + a));
  double y = a * (w < 5.0 ? md_poly(w - 2.5, MD_C_ERFINV_F64) : md_poly(__builtin_sqrt(w) - 4.0, MD_C_ERFINVT_F64));
  double factor = md_exp_f64(y * y);
  double miss = a < 0.75 ? (md_erf_small_f64(y) - a) * factor : (1.0 - a) * factor - md_erfc_part_f64(y);
  double u = miss * 0x1.c5bf891b4ef6bp-1;
  y -= u / md_fma(y, u, 1.0);
  return a == 1.0 ? x * (double)MD_INF : (a < 1.0 ? md_copysign(y, x) : (double)MD_NAN);
}

//@ md_lgamma_f32 : md_log_f64 md_trig_parts_f64
// Stirling's series, to which eight steps of the recurrence lead up from below 8; below one half by reflection. It works
// in double: next to the zeros at 1 and 2 nearly all digits cancel.
MD_INLINE float md_lgamma_f32(float f) {
  double x = f, part = x - __builtin_rint(x);
  bool reflected = x < 0.5;
  double z = reflected ? 1.0 - x : x, t = z * (z + 7.0);
  double w = z < 8.0 ? z + 8.0 : z, q = 1.0 / w, s = q * q;
  double steps = z < 8.0 ? t * (t + 6.0) * ((t + 10.0) * (t + 12.0)) : 1.0;
  double series = md_poly(s, 1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360, 1.0 / 156);
  double high = md_fma(w - 0.5, md_log_f64(w), -w) + md_fma(q, series, 0x1.d67f1c864beb5p-1);
  md_trig_parts_double p = md_trig_parts_f64(0x1.921fb54442d18p+1 * part);
  double sine = __builtin_fabs(p.quadrant & 1 ? p.cosine : p.sine);
  double low = md_log_f64(reflected ? 0x1.921fb54442d18p+1 * steps / sine : steps);
  double y = (x == 1.0) | (x == 2.0) ? 0.0 : (reflected ? low - high : high - low);
  return __builtin_fabsf(f) == MD_INF ? MD_INF : (float)y;
}
