// Special functions: the third part of cpp_math.h, in the same form. All work in double; a float result is rounded once.
//
// Takes the functions of cpp_math.h. Gives md_<op>_<type>. Refuses nothing. The tables `MD_C_...` are written by
// tests/codegen/fit_cpp_special.py; what needs a loop of its own or a call of libm stays scalar, and is rare.

//@ md_{i0,i0e,i1,i1e}_{f32,f64} : md_exp_f64
// The power series in x*x/4, whose terms have one sign, and beyond 8 exp(x) / sqrt(x) times a polynomial in 1/x.
#define MD_C_I0 1.0, 1.0, 0.25, 0.027777777777777776, 0.001736111111111111, 6.944444444444444e-05, 1.9290123456790124e-06, 3.936759889140842e-08, 6.151187326782565e-10, 7.594058428126624e-12, 7.594058428126623e-14, 6.276081345559193e-16, 4.358389823304995e-18, 2.5789288895295828e-20, 1.3157800456783586e-22, 5.8479113141260385e-25, 2.2843403570804838e-27, 7.904291893012054e-30, 2.4395962632753253e-32, 6.757884385804225e-35, 1.6894710964510564e-37, 3.8310002187098785e-40, 7.915289708078262e-43, 1.4962740468957016e-45, 2.5976979980828152e-48, 4.156316796932504e-51, 6.14839762859838e-54, 8.434015951438106e-57, 1.0757673407446564e-59, 1.2791526049282477e-62
#define MD_C_I1 1.0, 0.5, 0.08333333333333333, 0.006944444444444444, 0.00034722222222222224, 1.1574074074074073e-05, 2.755731922398589e-07, 4.920949861426052e-09, 6.834652585313961e-11, 7.594058428126623e-13, 6.903689480115112e-15, 5.230067787965994e-17, 3.352607556388458e-19, 1.842092063949702e-21, 8.771866971189057e-24, 3.654944571328774e-26, 1.3437296218120491e-28, 4.391273273895586e-31, 1.2839980333028028e-33, 3.3789421929021126e-36, 8.045100459290744e-39, 1.7413637357772174e-41, 3.4414303078601135e-44, 6.234475195398757e-47, 1.0390791992331261e-49, 1.5985833834355786e-52, 2.2771843068882885e-55, 3.0121485540850376e-58, 3.7095425542919185e-61, 4.263842016427493e-64
#define MD_C_I0_FAR 0.4021765094450081, 0.0033605519836678844, 0.00013621607439240856, 1.1143033788559087e-05, 1.4838475391383468e-06, 2.9735993216471474e-07, 8.872278303607728e-08, 3.9324793517123454e-08, 2.1541699603632043e-08, 7.563107589679047e-09, -6.7023325619894366e-09, -1.3450608319883882e-08, -5.6022211783247e-09, 7.687473295440412e-09, 8.006764881281122e-09, -3.799241020140616e-09, -7.1046429701883025e-09, 1.9518431205146255e-09, 5.2159872385826355e-09, -9.961827005971165e-10, -3.0791787996480336e-09, 4.1991218209463363e-10, 1.3291938884143105e-09, -1.1746991110551324e-10, -3.6353603909526465e-10, 1.556423962829591e-11, 4.655655751294525e-11
#define MD_C_I1_FAR 0.38939845902587233, -0.009749577193235758, -0.00021923576383438729, -1.5038547198351201e-05, -1.8349101048965518e-06, -3.483856445811428e-07, -1.000134929730233e-07, -4.312819645562664e-08, -2.336697227282623e-08, -8.435630024967513e-09, 6.687257309165881e-09, 1.4073201407347145e-08, 6.180080050252965e-09, -7.768471997806944e-09, -8.488549054437278e-09, 3.7003762012994875e-09, 7.441519822394391e-09, -1.842354234931444e-09, -5.438072168110142e-09, 9.265252428334351e-10, 3.2055586346236238e-09, -3.8986710944632543e-10, -1.3834389708637022e-09, 1.0940884042721056e-10, 3.784510012514866e-10, -1.4553819054184817e-11, -4.848238653363404e-11
MD_INLINE double md_i0_near_f64(double x) { return md_poly(0.25 * x * x, MD_C_I0); }
MD_INLINE double md_i1_near_f64(double x) { return 0.5 * x * md_poly(0.25 * x * x, MD_C_I1); }
// what exp(a) is to be multiplied by, for a > 8
MD_INLINE double md_i0_far_f64(double a) { return md_poly(16.0 / a - 1.0, MD_C_I0_FAR) / __builtin_sqrt(a); }
MD_INLINE double md_i1_far_f64(double a) { return md_poly(16.0 / a - 1.0, MD_C_I1_FAR) / __builtin_sqrt(a); }
// half of the exponent at a time: exp(a) overflows before the product does
MD_INLINE double md_by_exp_f64(double a, double factor) {
  double half = md_exp_f64(0.5 * a);
  return half * factor * half;
}
MD_INLINE double md_i0_f64(double x) {
  double a = __builtin_fabs(x), b = a > 8.0 ? 8.0 : a;
  return a > 8.0 ? md_by_exp_f64(a, md_i0_far_f64(a)) : md_i0_near_f64(b);
}
MD_INLINE double md_i0e_f64(double x) {
  double a = __builtin_fabs(x), b = a > 8.0 ? 8.0 : a;
  return a > 8.0 ? md_i0_far_f64(a) : md_exp_f64(-b) * md_i0_near_f64(b);
}
MD_INLINE double md_i1_f64(double x) {
  double a = __builtin_fabs(x), b = a > 8.0 ? 8.0 : a;
  double y = a > 8.0 ? md_by_exp_f64(a, md_i1_far_f64(a)) : md_i1_near_f64(b);
  return x < 0.0 ? -y : y;
}
MD_INLINE double md_i1e_f64(double x) {
  double a = __builtin_fabs(x), b = a > 8.0 ? 8.0 : a;
  double y = a > 8.0 ? md_i1_far_f64(a) : md_exp_f64(-b) * md_i1_near_f64(b);
  return x < 0.0 ? -y : y;
}
MD_INLINE float md_i0_f32(float x) { return (float)md_i0_f64((double)x); }
MD_INLINE float md_i0e_f32(float x) { return (float)md_i0e_f64((double)x); }
MD_INLINE float md_i1_f32(float x) { return (float)md_i1_f64((double)x); }
MD_INLINE float md_i1e_f32(float x) { return (float)md_i1e_f64((double)x); }

//@ md_{k0,k0e,k1,k1e}_{f32,f64} : md_i0_f64 md_log_f64 md_exp_f64
// Up to 1 the logarithm times I plus a series, beyond it exp(-x) / sqrt(x) times a polynomial in 1/x.
#define MD_C_K0 -0.5772156649015329, 0.42278433509846713, 0.23069608377461678, 0.0348921574564389, 0.0026147876188052093, 0.00011848039364109726, 3.6126241031992037e-06, 7.935096521304209e-08, 1.3167486730385647e-09, 1.709994072705808e-11, 1.785934656987074e-13, 1.5330343403208473e-15
#define MD_C_K1 -0.15443132980306573, 0.6727843350984671, 0.18157516696085563, 0.019182189839330562, 0.001115359491966528, 4.142247689271143e-05, 1.071545914091181e-06, 2.045286003593878e-08, 3.002048746589188e-10, 3.495928729692882e-12, 3.309914735250272e-14, 2.5986411321011286e-16
#define MD_C_K0_FAR 1.1901571834152027, -0.052279011491757815, 0.00806738654837312, -0.001908401486252218, 0.0005692398883533157, -0.00019727982173770137, 7.608265938633077e-05, -3.1814777729702685e-05, 1.4181601626241964e-05, -6.6593892854546756e-06, 3.2659620037591377e-06, -1.6618237813034935e-06, 8.730501363574859e-07, -4.732620885484168e-07, 2.6238209979476375e-07, -1.3825240586336139e-07, 7.802870202109518e-08, -9.459494630497946e-08, 6.390114089384502e-08, 1.3609654574427683e-07, -1.0662591802268815e-07, -4.1460528725147766e-07, 3.155874132652545e-07, 8.215659508749727e-07, -6.27364159899327e-07, -1.2764623132178935e-06, 9.737831674976826e-07, 1.4973373450561978e-06, -1.1420547450681314e-06, -1.3135523490778392e-06, 1.0013672676036861e-06, 8.335985297151244e-07, -6.351540978868998e-07, -3.626929796466174e-07, 2.761543129090134e-07, 9.698231305425992e-08, -7.37778229691045e-08, -1.212207295376576e-08, 9.20875570535756e-09
#define MD_C_K1_FAR 1.4615569735231244, 0.1879789065457187, -0.015852854565984432, 0.003112006645600148, -0.0008443927413826521, 0.0002760388411889706, -0.00010227195368832633, 4.152312900553383e-05, -1.8092789741024504e-05, 8.342980192373344e-06, -4.031076598846821e-06, 2.025686096543095e-06, -1.0529314323262324e-06, 5.653440521071873e-07, -3.1088702722787644e-07, 1.6368915760166383e-07, -9.194941529937819e-08, 1.0611930944345746e-07, -7.11338519943869e-08, -1.4500480343731204e-07, 1.1378622265161011e-07, 4.4643303815453186e-07, -3.394528835526485e-07, -8.836263113466448e-07, 6.742081384051655e-07, 1.3733235398202635e-06, -1.0467790189021053e-06, -1.6110421173333074e-06, 1.227735440532742e-06, 1.41351599559471e-06, -1.0766487359343575e-06, -8.971721877428577e-07, 6.830043023703374e-07, 3.9043580272522915e-07, -2.9701892627887937e-07, -1.0442752976172413e-07, 7.937176569430548e-08, 1.305813090635119e-08, -9.91092802901485e-09
MD_INLINE double md_k0_near_f64(double x) {
  return md_poly(0.25 * x * x, MD_C_K0) - md_log_f64(0.5 * x) * md_i0_near_f64(x);
}
MD_INLINE double md_k1_near_f64(double x) {
  double series = md_log_f64(0.5 * x) * md_i1_near_f64(x) - 0.25 * x * md_poly(0.25 * x * x, MD_C_K1);
  return x == 0.0 ? (double)MD_INF : 1.0 / x + series;
}
MD_INLINE double md_k0_far_f64(double x) { return md_poly(2.0 / x - 1.0, MD_C_K0_FAR) / __builtin_sqrt(x); }
MD_INLINE double md_k1_far_f64(double x) { return md_poly(2.0 / x - 1.0, MD_C_K1_FAR) / __builtin_sqrt(x); }
// 0 gives infinity, less than 0 NaN
MD_INLINE double md_k_edges_f64(double x, double y) { return x < 0.0 ? (double)MD_NAN : y; }
MD_INLINE double md_k0_f64(double x) {
  return md_k_edges_f64(x, x > 1.0 ? md_exp_f64(-x) * md_k0_far_f64(x) : md_k0_near_f64(x));
}
MD_INLINE double md_k0e_f64(double x) {
  return md_k_edges_f64(x, x > 1.0 ? md_k0_far_f64(x) : md_exp_f64(x) * md_k0_near_f64(x));
}
MD_INLINE double md_k1_f64(double x) {
  return md_k_edges_f64(x, x > 1.0 ? md_exp_f64(-x) * md_k1_far_f64(x) : md_k1_near_f64(x));
}
MD_INLINE double md_k1e_f64(double x) {
  return md_k_edges_f64(x, x > 1.0 ? md_k1_far_f64(x) : md_exp_f64(x) * md_k1_near_f64(x));
}
MD_INLINE float md_k0_f32(float x) { return (float)md_k0_f64((double)x); }
MD_INLINE float md_k0e_f32(float x) { return (float)md_k0e_f64((double)x); }
MD_INLINE float md_k1_f32(float x) { return (float)md_k1_f64((double)x); }
MD_INLINE float md_k1e_f32(float x) { return (float)md_k1e_f64((double)x); }

//@ md_erfcx_{f32,f64} : md_exp_f64
// exp(x*x) * erfc(x); the square is split for negative arguments, its rounding would be scaled by itself.
#define MD_C_ERFCX 1.2375126308378275, -0.14024059858554702, 0.00358541548546365, 0.0822767384901511, -0.10880393014170482, 0.09230432116019585, -0.05869339859061565, 0.028362277421555167, -0.009746579546700941, 0.001755625832073351, 0.0002937135873585192, -0.00029015397743035803, 5.164944699794396e-05, 2.238390579387837e-05, -1.1445189904260175e-05, -9.728366639067352e-07, 1.7537976078722853e-06, -5.827661158067996e-08, -2.617803545946053e-07, 2.4286993310494156e-08, 4.1777417591367416e-08, -4.355623876730152e-09, -7.2682548965492625e-09, 4.907907330752242e-10, 1.3470735057700921e-09, 1.140331619787531e-11, -2.5362226203394147e-10, -2.6553417463107008e-11, 4.5494826204902755e-11, 8.696463884418698e-12, -7.1101056082791285e-12, -1.6077935423873146e-12, 8.359746169879999e-13, 1.4107697304395886e-13, -5.36476554189686e-14
MD_INLINE double md_erfcx_f64(double x) {
  double a = __builtin_fabs(x), b = a > 30.0 ? 30.0 : a;
  double t = a < (double)MD_INF ? (a - 3.75) / (a + 3.75) : 1.0;
  double y = md_poly(t, MD_C_ERFCX) / (1.0 + 2.0 * a);
  double h = md_double(md_bits(b) & 0xfffffffff8000000u);
  double mirror = 2.0 * md_exp_f64(h * h) * md_exp_f64((b - h) * (b + h)) - y;
  return x != x ? x : (x < 0.0 ? mirror : y);
}
MD_INLINE float md_erfcx_f32(float x) { return (float)md_erfcx_f64((double)x); }

//@ md_ndtri_{f32,f64} :
// The lower tail by Newton's method on log(erfc), from its asymptotic form; the middle on erf. Branches: it stays scalar.
MD_INLINE double md_ndtri_f64(double p) {
  if (!(p > 0.0 && p < 1.0)) return p == 0.0 ? (double)-MD_INF : (p == 1.0 ? (double)MD_INF : (double)MD_NAN);
  double q = p > 0.5 ? 1.0 - p : p, y;
  if (q > 0.1) {
    double a = 1.0 - 2.0 * q;
    y = a * 0.9;
    for (int step = 0; step < 6; ++step) {
      double u = (__builtin_erf(y) - a) * __builtin_exp(y * y) * 0x1.c5bf891b4ef6bp-1;
      y -= u / (1.0 + y * u);
    }
  } else {
    double goal = __builtin_log(2.0 * q);
    y = __builtin_sqrt(-goal - 0.5 * __builtin_log(-3.0 * goal));
    for (int step = 0; step < 6; ++step) {
      double tail = __builtin_erfc(y);
      y += (__builtin_log(tail) - goal) * tail * __builtin_exp(y * y) * 0x1.c5bf891b4ef6bp-1;
    }
  }
  return md_copysign(y * 0x1.6a09e667f3bcdp+0, p - 0.5);
}
MD_INLINE float md_ndtri_f32(float p) { return (float)md_ndtri_f64((double)p); }

//@ md_zeta_{f32,f64} :
// Hurwitz: the first terms, then Euler and Maclaurin's formula. Branches: it stays scalar.
MD_INLINE double md_zeta_f64(double s, double q) {
  if (s == 1.0) return (double)MD_INF;
  if (!(s >= 1.0) || q != q) return (double)MD_NAN;
  if (q <= 0.0 && q == __builtin_floor(q)) return (double)MD_INF;
  if (q <= 0.0 && s != __builtin_floor(s)) return (double)MD_NAN;
  double total = 0.0;
  for (int n = 0; n < 12 || q < 12.0; ++n, q += 1.0) {
    double term = __builtin_pow(q, -s);
    total += term;
    if (q > 0.0 && term <= 1e-18 * total && total > 0.0) return total;
  }
  constexpr double bernoulli[] = {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6, -3617.0 / 510};
  double power = __builtin_pow(q, -s), factor = 0.5 * s / q * power;
  total += power * q / (s - 1.0) + 0.5 * power;
  for (int k = 0; k < 8; ++k) {
    total += bernoulli[k] * factor;
    factor *= (s + 2 * k + 1) * (s + 2 * k + 2) / (q * q * ((2 * k + 3) * (2 * k + 4)));
  }
  return total;
}
MD_INLINE float md_zeta_f32(float s, float q) { return (float)md_zeta_f64((double)s, (double)q); }

//@ md_{chebyshev_t,chebyshev_u,chebyshev_v,chebyshev_w,hermite_h,hermite_he,laguerre_l,legendre_p}_{f32,f64} :
// By their recurrences; those of Chebyshev far out by angles. A negative degree gives 0. Loops: they stay scalar.
// next(k, p, q) is the polynomial of degree k + 1, where p and q are those of degrees k and k - 1
template <class F> MD_INLINE double md_recurrence(double n, double first, F next) {
  if (!(n >= 1.0)) return n >= 0.0 ? 1.0 : 0.0;
  double p = first, q = 1.0;
  for (double k = 1.0; k < n && p == p; k += 1.0) {
    double r = next(k, p, q);
    q = p;
    p = r;
  }
  return p;
}
// at 1 and -1 the values are known; `angle` is used for |x| < 1 and degrees that would take long
template <class F>
MD_INLINE double md_chebyshev(double x, double n, double first, double one, double minus, F angle) {
  if (n >= 0.0 && __builtin_fabs(x) == 1.0) return x > 0.0 ? one : (__builtin_fmod(n, 2.0) == 0.0 ? minus : -minus);
  if (n > 64.0 && __builtin_fabs(x) < 1.0) return angle(__builtin_acos(x));
  return md_recurrence(n, first, [&](double, double p, double q) { return 2.0 * x * p - q; });
}
MD_INLINE double md_chebyshev_t_f64(double x, double n) {
  n = __builtin_trunc(n);
  return md_chebyshev(x, n, x, 1.0, 1.0, [&](double a) { return __builtin_cos(n * a); });
}
MD_INLINE double md_chebyshev_u_f64(double x, double n) {
  n = __builtin_trunc(n);
  return md_chebyshev(x, n, 2.0 * x, n + 1.0, n + 1.0, [&](double a) {
    return __builtin_sin((n + 1.0) * a) / __builtin_sin(a);
  });
}
MD_INLINE double md_chebyshev_v_f64(double x, double n) {
  n = __builtin_trunc(n);
  return md_chebyshev(x, n, 2.0 * x - 1.0, 1.0, 2.0 * n + 1.0, [&](double a) {
    return __builtin_cos((n + 0.5) * a) / __builtin_cos(0.5 * a);
  });
}
MD_INLINE double md_chebyshev_w_f64(double x, double n) {
  n = __builtin_trunc(n);
  return md_chebyshev(x, n, 2.0 * x + 1.0, 2.0 * n + 1.0, 1.0, [&](double a) {
    return __builtin_sin((n + 0.5) * a) / __builtin_sin(0.5 * a);
  });
}
MD_INLINE double md_hermite_h_f64(double x, double n) {
  if (n > 512.0) return (double)MD_NAN;  // as eager
  return md_recurrence(__builtin_trunc(n), 2.0 * x, [&](double k, double p, double q) { return 2.0 * (x * p - k * q); });
}
MD_INLINE double md_hermite_he_f64(double x, double n) {
  if (n > 512.0) return (double)MD_NAN;  // as eager
  return md_recurrence(__builtin_trunc(n), x, [&](double k, double p, double q) { return x * p - k * q; });
}
MD_INLINE double md_laguerre_l_f64(double x, double n) {
  return md_recurrence(__builtin_trunc(n), 1.0 - x, [&](double k, double p, double q) {
    return ((2.0 * k + 1.0 - x) * p - k * q) / (k + 1.0);
  });
}
MD_INLINE double md_legendre_p_f64(double x, double n) {
  return md_recurrence(__builtin_trunc(n), x, [&](double k, double p, double q) {
    return ((2.0 * k + 1.0) * x * p - k * q) / (k + 1.0);
  });
}
MD_INLINE float md_chebyshev_t_f32(float x, float n) { return (float)md_chebyshev_t_f64((double)x, (double)n); }
MD_INLINE float md_chebyshev_u_f32(float x, float n) { return (float)md_chebyshev_u_f64((double)x, (double)n); }
MD_INLINE float md_chebyshev_v_f32(float x, float n) { return (float)md_chebyshev_v_f64((double)x, (double)n); }
MD_INLINE float md_chebyshev_w_f32(float x, float n) { return (float)md_chebyshev_w_f64((double)x, (double)n); }
MD_INLINE float md_hermite_h_f32(float x, float n) { return n > 128.0f ? MD_NAN : (float)md_hermite_h_f64((double)x, (double)n); }
MD_INLINE float md_hermite_he_f32(float x, float n) { return n > 128.0f ? MD_NAN : (float)md_hermite_he_f64((double)x, (double)n); }
MD_INLINE float md_laguerre_l_f32(float x, float n) { return (float)md_laguerre_l_f64((double)x, (double)n); }
MD_INLINE float md_legendre_p_f32(float x, float n) { return (float)md_legendre_p_f64((double)x, (double)n); }
