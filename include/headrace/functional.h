/* functional.h: functions on tensors: what they mean, as records. Generated from src/functional/functional.def by
 * scripts/make_functional.py; do not edit.
 *
 * A function infers the dtype, dims and strides of its result from its inputs, creates a buffer for it, and records
 * operations (op.h) on a stream or a capture (hr_capture_create). Views share their input's buffer and record nothing.
 *
 * Threads: as stream.h. A tensor belongs to one thread at a time.
 */
#ifndef HEADRACE_FUNCTIONAL_H_
#define HEADRACE_FUNCTIONAL_H_

#include "headrace/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum hr_functional {
  HR_FUNCTIONAL_NONE = 0,

  /* ---- arithmetic ---- */

  /* add(x, y): x + y; integers wrap */
  HR_FUNCTIONAL_ADD,
  /* subtract(x, y): x - y */
  HR_FUNCTIONAL_SUBTRACT,
  /* multiply(x, y): x * y */
  HR_FUNCTIONAL_MULTIPLY,
  /* divide(x, y): x / y, true division; f32 for integers */
  HR_FUNCTIONAL_DIVIDE,
  /* floor_divide(x, y): x / y rounded down, of infinities, too; integer x // 0 is 0 */
  HR_FUNCTIONAL_FLOOR_DIVIDE,
  /* remainder(x, y): x - y * (x // y), with y's sign, 0 too; integer x % 0 is 0 */
  HR_FUNCTIONAL_REMAINDER,
  /* fmod(x, y): remainder with the sign of x */
  HR_FUNCTIONAL_FMOD,
  /* pow(x, y): x to the power y */
  HR_FUNCTIONAL_POW,
  /* negative(x): -x */
  HR_FUNCTIONAL_NEGATIVE,
  /* abs(x): absolute value; real for complex x */
  HR_FUNCTIONAL_ABS,
  /* sign(x): -1, 0 or 1; of complex x x / |x|, or 0; NaN for NaN */
  HR_FUNCTIONAL_SIGN,
  /* square(x): x * x */
  HR_FUNCTIONAL_SQUARE,
  /* reciprocal(x): 1 / x */
  HR_FUNCTIONAL_RECIPROCAL,
  /* sqrt(x): square root */
  HR_FUNCTIONAL_SQRT,
  /* rsqrt(x): 1 / sqrt(x) */
  HR_FUNCTIONAL_RSQRT,
  /* maximum(x, y): the larger one; NaN if either is NaN */
  HR_FUNCTIONAL_MAXIMUM,
  /* minimum(x, y): the smaller one; NaN if either is NaN */
  HR_FUNCTIONAL_MINIMUM,
  /* fmax(x, y): the larger one; a number beats NaN */
  HR_FUNCTIONAL_FMAX,
  /* fmin(x, y): the smaller one; a number beats NaN */
  HR_FUNCTIONAL_FMIN,
  /* clip(x, min?, max?): x bounded to [min, max]; NaN stays */
  HR_FUNCTIONAL_CLIP,
  /* hypot(x, y): sqrt(x * x + y * y) without overflow */
  HR_FUNCTIONAL_HYPOT,
  /* copysign(x, y): x with the sign of y */
  HR_FUNCTIONAL_COPYSIGN,
  /* nextafter(x, y): the next representable number after x towards y */
  HR_FUNCTIONAL_NEXTAFTER,
  /* heaviside(x, y): 0 below zero, 1 above, y at zero */
  HR_FUNCTIONAL_HEAVISIDE,
  /* gcd(x, y): greatest common divisor, non-negative */
  HR_FUNCTIONAL_GCD,
  /* lcm(x, y): least common multiple, non-negative */
  HR_FUNCTIONAL_LCM,
  /* lerp(x, y, t): x + t * (y - x) */
  HR_FUNCTIONAL_LERP,
  /* floor(x): rounded down */
  HR_FUNCTIONAL_FLOOR,
  /* ceil(x): rounded up */
  HR_FUNCTIONAL_CEIL,
  /* round(x, decimals=0, ties="even"): rounded to so many decimals, to nearest, ties to even, or away from 0;
   * negative decimals: to tens, hundreds, ... */
  HR_FUNCTIONAL_ROUND,
  /* trunc(x): rounded towards zero */
  HR_FUNCTIONAL_TRUNC,
  /* frac(x): x - trunc(x) */
  HR_FUNCTIONAL_FRAC,
  /* modf(x) -> fraction, whole: frac(x) and trunc(x); infinite x have the fraction 0 */
  HR_FUNCTIONAL_MODF,
  /* divmod(x, y) -> quotient, remainder: floor_divide(x, y) and remainder(x, y) */
  HR_FUNCTIONAL_DIVMOD,
  /* positive(x): x itself, a view */
  HR_FUNCTIONAL_POSITIVE,
  /* cbrt(x): cube root */
  HR_FUNCTIONAL_CBRT,
  /* addcmul(x, y, z, value=1): x + value * y * z */
  HR_FUNCTIONAL_ADDCMUL,
  /* addcdiv(x, y, z, value=1): x + value * y / z */
  HR_FUNCTIONAL_ADDCDIV,
  /* frexp(x) -> mantissa, exponent: x as mantissa * 2^exponent, 0.5 <= |mantissa| < 1; the exponent in i32, 0 if x
   * is not finite */
  HR_FUNCTIONAL_FREXP,
  /* ldexp(x, y): x * 2^y */
  HR_FUNCTIONAL_LDEXP,
  /* degrees(x, factor=57.29577951308232): x * factor, by default radians in degrees */
  HR_FUNCTIONAL_DEGREES,
  /* radians(x, factor=0.017453292519943295): x * factor, by default degrees in radians */
  HR_FUNCTIONAL_RADIANS,
  /* nan_to_num(x, nan=0, posinf=0, neginf=0): numbers for NaN and the infinities; without posinf and neginf the
   * dtype's largest and smallest number */
  HR_FUNCTIONAL_NAN_TO_NUM,

  /* ---- complex numbers ---- */

  /* real(x): real part */
  HR_FUNCTIONAL_REAL,
  /* imag(x): imaginary part */
  HR_FUNCTIONAL_IMAG,
  /* conj(x): complex conjugate */
  HR_FUNCTIONAL_CONJ,
  /* angle(x): angle in the complex plane; pi for x < 0 */
  HR_FUNCTIONAL_ANGLE,
  /* complex(x, y): x + i y for real x and y */
  HR_FUNCTIONAL_COMPLEX,
  /* polar(x, y): the complex number of absolute value x and angle y */
  HR_FUNCTIONAL_POLAR,

  /* ---- exponentials, logarithms, trigonometry; integers become f32 ---- */

  /* exp(x): e to the power x */
  HR_FUNCTIONAL_EXP,
  /* exp2(x): 2 to the power x */
  HR_FUNCTIONAL_EXP2,
  /* expm1(x): exp(x) - 1 */
  HR_FUNCTIONAL_EXPM1,
  /* log(x): natural logarithm */
  HR_FUNCTIONAL_LOG,
  /* log2(x): logarithm to base 2 */
  HR_FUNCTIONAL_LOG2,
  /* log10(x): logarithm to base 10 */
  HR_FUNCTIONAL_LOG10,
  /* log1p(x): log(1 + x) */
  HR_FUNCTIONAL_LOG1P,
  /* logaddexp(x, y): log(exp(x) + exp(y)) */
  HR_FUNCTIONAL_LOGADDEXP,
  /* sin(x): sine */
  HR_FUNCTIONAL_SIN,
  /* cos(x): cosine */
  HR_FUNCTIONAL_COS,
  /* tan(x): tangent */
  HR_FUNCTIONAL_TAN,
  /* asin(x): inverse sine */
  HR_FUNCTIONAL_ASIN,
  /* acos(x): inverse cosine */
  HR_FUNCTIONAL_ACOS,
  /* atan(x): inverse tangent */
  HR_FUNCTIONAL_ATAN,
  /* atan2(x, y): angle of the point (y, x) */
  HR_FUNCTIONAL_ATAN2,
  /* sinh(x): hyperbolic sine */
  HR_FUNCTIONAL_SINH,
  /* cosh(x): hyperbolic cosine */
  HR_FUNCTIONAL_COSH,
  /* tanh(x): hyperbolic tangent */
  HR_FUNCTIONAL_TANH,
  /* asinh(x): inverse hyperbolic sine */
  HR_FUNCTIONAL_ASINH,
  /* acosh(x): inverse hyperbolic cosine */
  HR_FUNCTIONAL_ACOSH,
  /* atanh(x): inverse hyperbolic tangent */
  HR_FUNCTIONAL_ATANH,
  /* erf(x): error function */
  HR_FUNCTIONAL_ERF,
  /* erfc(x): 1 - erf(x) */
  HR_FUNCTIONAL_ERFC,
  /* erfinv(x): inverse of erf */
  HR_FUNCTIONAL_ERFINV,
  /* lgamma(x): logarithm of the absolute value of gamma */
  HR_FUNCTIONAL_LGAMMA,
  /* digamma(x): derivative of lgamma */
  HR_FUNCTIONAL_DIGAMMA,

  /* ---- special functions; integers become f32 ---- */

  /* trigamma(x): derivative of digamma */
  HR_FUNCTIONAL_TRIGAMMA,
  /* polygamma(n, x): n-th derivative of digamma at x */
  HR_FUNCTIONAL_POLYGAMMA,
  /* zeta(x, q): Hurwitz's zeta function of x and q */
  HR_FUNCTIONAL_ZETA,
  /* gammainc(a, x): regularised lower incomplete gamma function */
  HR_FUNCTIONAL_GAMMAINC,
  /* gammaincc(a, x): regularised upper incomplete gamma function */
  HR_FUNCTIONAL_GAMMAINCC,
  /* erfcx(x): exp(x * x) * erfc(x) */
  HR_FUNCTIONAL_ERFCX,
  /* ndtr(x): normal distribution function */
  HR_FUNCTIONAL_NDTR,
  /* ndtri(x): inverse of the normal distribution function */
  HR_FUNCTIONAL_NDTRI,
  /* log_ndtr(x): logarithm of the normal distribution function */
  HR_FUNCTIONAL_LOG_NDTR,
  /* entr(x): -x * log(x) */
  HR_FUNCTIONAL_ENTR,
  /* xlogy(x, y): x * log(y), 0 for x = 0 */
  HR_FUNCTIONAL_XLOGY,
  /* xlog1py(x, y): x * log(1 + y), 0 for x = 0 */
  HR_FUNCTIONAL_XLOG1PY,
  /* logaddexp2(x, y): log2(2^x + 2^y) */
  HR_FUNCTIONAL_LOGADDEXP2,
  /* sinc(x): sin(pi x) / (pi x) */
  HR_FUNCTIONAL_SINC,
  /* logit(x, eps=0): log(x / (1 - x)); with eps x is bounded to [eps, 1 - eps] */
  HR_FUNCTIONAL_LOGIT,
  /* i0(x): modified Bessel function of the first kind, order 0 */
  HR_FUNCTIONAL_I0,
  /* i0e(x): exp(-|x|) * i0(x) */
  HR_FUNCTIONAL_I0E,
  /* i1(x): modified Bessel function of the first kind, order 1 */
  HR_FUNCTIONAL_I1,
  /* i1e(x): exp(-|x|) * i1(x) */
  HR_FUNCTIONAL_I1E,
  /* k0(x): modified Bessel function of the second kind, order 0 */
  HR_FUNCTIONAL_K0,
  /* k0e(x): exp(x) * k0(x) */
  HR_FUNCTIONAL_K0E,
  /* k1(x): modified Bessel function of the second kind, order 1 */
  HR_FUNCTIONAL_K1,
  /* k1e(x): exp(x) * k1(x) */
  HR_FUNCTIONAL_K1E,
  /* j0(x): Bessel function of the first kind, order 0 */
  HR_FUNCTIONAL_J0,
  /* j1(x): Bessel function of the first kind, order 1 */
  HR_FUNCTIONAL_J1,
  /* y0(x): Bessel function of the second kind, order 0 */
  HR_FUNCTIONAL_Y0,
  /* y1(x): Bessel function of the second kind, order 1 */
  HR_FUNCTIONAL_Y1,
  /* spherical_j0(x): sin(x) / x */
  HR_FUNCTIONAL_SPHERICAL_J0,
  /* airy_ai(x): Airy function Ai */
  HR_FUNCTIONAL_AIRY_AI,
  /* chebyshev_t(x, n): Chebyshev polynomial of the first kind, of degree n, at x */
  HR_FUNCTIONAL_CHEBYSHEV_T,
  /* chebyshev_u(x, n): Chebyshev polynomial of the second kind, of degree n, at x */
  HR_FUNCTIONAL_CHEBYSHEV_U,
  /* chebyshev_v(x, n): Chebyshev polynomial of the third kind, of degree n, at x */
  HR_FUNCTIONAL_CHEBYSHEV_V,
  /* chebyshev_w(x, n): Chebyshev polynomial of the fourth kind, of degree n, at x */
  HR_FUNCTIONAL_CHEBYSHEV_W,
  /* shifted_chebyshev_t(x, n): Chebyshev polynomial of the first kind, of degree n, at 2 x - 1 */
  HR_FUNCTIONAL_SHIFTED_CHEBYSHEV_T,
  /* shifted_chebyshev_u(x, n): Chebyshev polynomial of the second kind, of degree n, at 2 x - 1 */
  HR_FUNCTIONAL_SHIFTED_CHEBYSHEV_U,
  /* shifted_chebyshev_v(x, n): Chebyshev polynomial of the third kind, of degree n, at 2 x - 1 */
  HR_FUNCTIONAL_SHIFTED_CHEBYSHEV_V,
  /* shifted_chebyshev_w(x, n): Chebyshev polynomial of the fourth kind, of degree n, at 2 x - 1 */
  HR_FUNCTIONAL_SHIFTED_CHEBYSHEV_W,
  /* hermite_h(x, n): Hermite polynomial (physicists') of degree n at x */
  HR_FUNCTIONAL_HERMITE_H,
  /* hermite_he(x, n): Hermite polynomial (probabilists') of degree n at x */
  HR_FUNCTIONAL_HERMITE_HE,
  /* laguerre(x, n): Laguerre polynomial of degree n at x */
  HR_FUNCTIONAL_LAGUERRE,
  /* legendre(x, n): Legendre polynomial of degree n at x */
  HR_FUNCTIONAL_LEGENDRE,

  /* ---- activations ---- */

  /* sigmoid(x): 1 / (1 + exp(-x)) */
  HR_FUNCTIONAL_SIGMOID,
  /* relu(x): x if x > 0 (or NaN), else 0 */
  HR_FUNCTIONAL_RELU,
  /* silu(x): x * sigmoid(x) */
  HR_FUNCTIONAL_SILU,
  /* gelu(x, approximate="none"): x times the normal distribution function of x; approximate `tanh`: by a tanh,
   * `sigmoid`: x * sigmoid(1.702 x) */
  HR_FUNCTIONAL_GELU,
  /* softshrink(x, bound=0.5): x moved by bound towards 0; 0 inside [-bound, bound] */
  HR_FUNCTIONAL_SOFTSHRINK,
  /* hard_shrink(x, bound=0.5): 0 inside [-bound, bound], else x */
  HR_FUNCTIONAL_HARD_SHRINK,
  /* threshold(x, bound=0, value=0): value if x <= bound, else x */
  HR_FUNCTIONAL_THRESHOLD,
  /* step(x, bound=0): 1 if x > bound, else 0, in x's dtype */
  HR_FUNCTIONAL_STEP,
  /* relu2(x): square(relu(x)) */
  HR_FUNCTIONAL_RELU2,
  /* relu6(x, low=0, high=6): x bounded to [low, high] */
  HR_FUNCTIONAL_RELU6,
  /* leaky_relu(x, slope=0.01): x if x > 0, else slope * x */
  HR_FUNCTIONAL_LEAKY_RELU,
  /* prelu(x, slope): x if x > 0, else slope * x */
  HR_FUNCTIONAL_PRELU,
  /* elu(x, alpha=1): x if x > 0, else alpha * (exp(x) - 1) */
  HR_FUNCTIONAL_ELU,
  /* celu(x, alpha=1): x if x > 0, else alpha * (exp(x / alpha) - 1) */
  HR_FUNCTIONAL_CELU,
  /* selu(x, alpha=1.6732632423543772, gamma=1.0507009873554805): gamma * elu(x, alpha) */
  HR_FUNCTIONAL_SELU,
  /* hard_tanh(x, low=-1, high=1): x bounded to [low, high] */
  HR_FUNCTIONAL_HARD_TANH,
  /* hard_sigmoid(x, alpha=1.0 / 6, beta=0.5): alpha * x + beta bounded to [0, 1] */
  HR_FUNCTIONAL_HARD_SIGMOID,
  /* hardswish(x): x * hard_sigmoid(x) */
  HR_FUNCTIONAL_HARDSWISH,
  /* softplus(x, beta=1, bound=20): log(1 + exp(beta * x)) / beta; x if beta * x > bound */
  HR_FUNCTIONAL_SOFTPLUS,
  /* softsign(x): x / (1 + |x|) */
  HR_FUNCTIONAL_SOFTSIGN,
  /* mish(x): x * tanh(softplus(x)) */
  HR_FUNCTIONAL_MISH,
  /* log_sigmoid(x): log(sigmoid(x)) */
  HR_FUNCTIONAL_LOG_SIGMOID,
  /* glu(x, axis=-1): the first half of x along an axis times the sigmoid of the second half */
  HR_FUNCTIONAL_GLU,

  /* ---- comparison, logic, bits ---- */

  /* equal(x, y): x == y */
  HR_FUNCTIONAL_EQUAL,
  /* not_equal(x, y): x != y */
  HR_FUNCTIONAL_NOT_EQUAL,
  /* less(x, y): x < y */
  HR_FUNCTIONAL_LESS,
  /* less_equal(x, y): x <= y */
  HR_FUNCTIONAL_LESS_EQUAL,
  /* greater(x, y): x > y */
  HR_FUNCTIONAL_GREATER,
  /* greater_equal(x, y): x >= y */
  HR_FUNCTIONAL_GREATER_EQUAL,
  /* isnan(x): true if x, or a part of it, is NaN */
  HR_FUNCTIONAL_ISNAN,
  /* isinf(x): true if x, or a part of it, is infinite */
  HR_FUNCTIONAL_ISINF,
  /* isposinf(x): true if x is +infinity */
  HR_FUNCTIONAL_ISPOSINF,
  /* isneginf(x): true if x is -infinity */
  HR_FUNCTIONAL_ISNEGINF,
  /* isfinite(x): true if x is neither infinite nor NaN */
  HR_FUNCTIONAL_ISFINITE,
  /* signbit(x): true if the sign bit is set */
  HR_FUNCTIONAL_SIGNBIT,
  /* isclose(x, y, rtol=1e-5, atol=1e-8, equal_nan=false): x == y, or |x - y| <= atol + rtol * |y| and y is finite;
   * with equal_nan also if both are NaN */
  HR_FUNCTIONAL_ISCLOSE,
  /* allclose(x, y, rtol=1e-5, atol=1e-8, equal_nan=false): true if isclose is true everywhere */
  HR_FUNCTIONAL_ALLCLOSE,
  /* array_equal(x, y, equal_nan=false): true if x and y have the same dims and elements */
  HR_FUNCTIONAL_ARRAY_EQUAL,
  /* logical_and(x, y): true if both are true */
  HR_FUNCTIONAL_LOGICAL_AND,
  /* logical_or(x, y): true if either is true */
  HR_FUNCTIONAL_LOGICAL_OR,
  /* logical_xor(x, y): true if exactly one is true */
  HR_FUNCTIONAL_LOGICAL_XOR,
  /* logical_not(x): true if x is false */
  HR_FUNCTIONAL_LOGICAL_NOT,
  /* bitwise_and(x, y): bitwise and */
  HR_FUNCTIONAL_BITWISE_AND,
  /* bitwise_or(x, y): bitwise or */
  HR_FUNCTIONAL_BITWISE_OR,
  /* bitwise_xor(x, y): bitwise exclusive or */
  HR_FUNCTIONAL_BITWISE_XOR,
  /* bitwise_invert(x): bitwise not; logical for bool */
  HR_FUNCTIONAL_BITWISE_INVERT,
  /* bitwise_left_shift(x, y): x << y; 0 if y is not below the width */
  HR_FUNCTIONAL_BITWISE_LEFT_SHIFT,
  /* bitwise_right_shift(x, y): x >> y, arithmetic */
  HR_FUNCTIONAL_BITWISE_RIGHT_SHIFT,
  /* popcount(x): the number of bits of an integer that are set, in x's dtype */
  HR_FUNCTIONAL_POPCOUNT,
  /* leading_zeros(x): the number of bits above the highest one that is set, in x's dtype; the dtype's width for 0 */
  HR_FUNCTIONAL_LEADING_ZEROS,
  /* hamming_distance(x, y, dtype=none): the number of bits in which vectors of integers, the last dim, differ; the
   * others are broadcast; u32 without dtype */
  HR_FUNCTIONAL_HAMMING_DISTANCE,
  /* where(condition, x, y): x if condition, else y */
  HR_FUNCTIONAL_WHERE,

  /* ---- reductions ---- */

  /* sum(x, axis=none, keepdims=false, dtype=none): sum; i64 for signed integers and bool, u64 for unsigned ones */
  HR_FUNCTIONAL_SUM,
  /* prod(x, axis=none, keepdims=false, dtype=none): product; of the dtype of sum */
  HR_FUNCTIONAL_PROD,
  /* max(x, axis=none, keepdims=false): largest element; NaN if any is NaN; complex numbers by their real, then by
   * their imaginary parts */
  HR_FUNCTIONAL_MAX,
  /* min(x, axis=none, keepdims=false): smallest element; NaN if any is NaN; complex numbers as of max */
  HR_FUNCTIONAL_MIN,
  /* any(x, axis=none, keepdims=false): true if any element is true */
  HR_FUNCTIONAL_ANY,
  /* all(x, axis=none, keepdims=false): true if all elements are true */
  HR_FUNCTIONAL_ALL,
  /* mean(x, axis=none, keepdims=false): arithmetic mean */
  HR_FUNCTIONAL_MEAN,
  /* logsumexp(x, axis=none, keepdims=false): log(sum(exp(x))) */
  HR_FUNCTIONAL_LOGSUMEXP,
  /* var(x, axis=none, keepdims=false, correction=0): variance: squares of deviations by the number of elements less
   * the correction */
  HR_FUNCTIONAL_VAR,
  /* std(x, axis=none, keepdims=false, correction=0): square root of the variance */
  HR_FUNCTIONAL_STD,
  /* argmax(x, axis=none, keepdims=false): index of the largest element, of one axis or of the flattened x; the first
   * of several; a NaN is the largest */
  HR_FUNCTIONAL_ARGMAX,
  /* argmin(x, axis=none, keepdims=false): index of the smallest element, of one axis or of the flattened x; the
   * first of several; a NaN is the smallest */
  HR_FUNCTIONAL_ARGMIN,
  /* count_nonzero(x, axis=none, keepdims=false): the number of elements that are not 0, in i64 */
  HR_FUNCTIONAL_COUNT_NONZERO,
  /* ptp(x, axis=none, keepdims=false): largest less smallest element; complex numbers as of max */
  HR_FUNCTIONAL_PTP,
  /* median(x, axis=none, keepdims=false): the middle element in order, or the mean of the two; NaN if any is NaN */
  HR_FUNCTIONAL_MEDIAN,
  /* quantile(x, axis=none, keepdims=false, q=0.5): between the neighbours of place q (n - 1) in order; NaN if any is
   * NaN */
  HR_FUNCTIONAL_QUANTILE,
  /* vector_norm(x, axis=none, keepdims=false, ord=2): sum(|x|^ord)^(1 / ord); 0 counts, infinite orders are the
   * largest or smallest |x| */
  HR_FUNCTIONAL_VECTOR_NORM,
  /* nansum(x, axis=none, keepdims=false): sum without NaN */
  HR_FUNCTIONAL_NANSUM,
  /* nanprod(x, axis=none, keepdims=false): product without NaN */
  HR_FUNCTIONAL_NANPROD,
  /* nanmax(x, axis=none, keepdims=false): largest number; NaN if there is none; complex numbers as of max */
  HR_FUNCTIONAL_NANMAX,
  /* nanmin(x, axis=none, keepdims=false): smallest number; NaN if there is none; complex numbers as of max */
  HR_FUNCTIONAL_NANMIN,
  /* nanmean(x, axis=none, keepdims=false): mean without NaN */
  HR_FUNCTIONAL_NANMEAN,
  /* nanvar(x, axis=none, keepdims=false, correction=0): variance without NaN */
  HR_FUNCTIONAL_NANVAR,
  /* nanstd(x, axis=none, keepdims=false, correction=0): standard deviation without NaN */
  HR_FUNCTIONAL_NANSTD,

  /* ---- along one axis ---- */

  /* softmax(x, axis=-1): exp(x) / sum(exp(x)) */
  HR_FUNCTIONAL_SOFTMAX,
  /* log_softmax(x, axis=-1): log(softmax(x)) */
  HR_FUNCTIONAL_LOG_SOFTMAX,
  /* softmin(x, axis=-1): softmax(-x) */
  HR_FUNCTIONAL_SOFTMIN,
  /* cumulative_sum(x, axis=-1, include_initial=false, dtype=none): running sums; include_initial: with a 0 before
   * them; without dtype as sum */
  HR_FUNCTIONAL_CUMULATIVE_SUM,
  /* cumulative_prod(x, axis=-1, include_initial=false, dtype=none): running products; include_initial: with a 1
   * before them */
  HR_FUNCTIONAL_CUMULATIVE_PROD,
  /* cumulative_max(x, axis=-1): running maximum; NaN from the first NaN on */
  HR_FUNCTIONAL_CUMULATIVE_MAX,
  /* cumulative_min(x, axis=-1): running minimum; NaN from the first NaN on */
  HR_FUNCTIONAL_CUMULATIVE_MIN,
  /* logcumsumexp(x, axis=-1): the logarithm of running sums of exp(x) */
  HR_FUNCTIONAL_LOGCUMSUMEXP,
  /* diff(x, n=1, axis=-1): differences of neighbours, n times; of bool whether they differ */
  HR_FUNCTIONAL_DIFF,
  /* trapezoid(x, dx=1, axis=-1): integral along an axis by the trapezoidal rule */
  HR_FUNCTIONAL_TRAPEZOID,

  /* ---- in order; a NaN is the largest ---- */

  /* sort(x, axis=-1, descending=false, stable=true) -> values, indices: x in order along an axis; equal elements
   * keep their order, whatever stable says */
  HR_FUNCTIONAL_SORT,
  /* argsort(x, axis=-1, descending=false, stable=true): the indices of sort */
  HR_FUNCTIONAL_ARGSORT,
  /* topk(x, k=1, axis=-1, largest=true) -> values, indices: the k largest or smallest elements along an axis, in
   * order */
  HR_FUNCTIONAL_TOPK,

  /* ---- products ---- */

  /* matmul(x, y): matrix product of the last two dims; the others are broadcast; a vector is a row on the left, a
   * column on the right */
  HR_FUNCTIONAL_MATMUL,
  /* einsum(x..., equation): sums of products over named dims, as in `ij,jk->ik`; `...` are dims without names, which
   * are broadcast; without an arrow the result has those and the letters that occur once */
  HR_FUNCTIONAL_EINSUM,
  /* tensordot(x, y, x_axes=none, y_axes=none): sum of products over pairs of axes; without axes the last two of x
   * and the first two of y */
  HR_FUNCTIONAL_TENSORDOT,
  /* vecdot(x, y, axis=-1): sum(conj(x) * y) along an axis; the others are broadcast */
  HR_FUNCTIONAL_VECDOT,
  /* inner(x, y): sum of products over the last axes */
  HR_FUNCTIONAL_INNER,
  /* outer(x, y): products of all pairs of elements, flattened */
  HR_FUNCTIONAL_OUTER,
  /* kron(x, y): Kronecker product */
  HR_FUNCTIONAL_KRON,
  /* cross(x, y, axis=-1): cross product of vectors of 3 elements along an axis */
  HR_FUNCTIONAL_CROSS,
  /* trace(x, offset=0, dtype=none): sum of a diagonal of the last two dims */
  HR_FUNCTIONAL_TRACE,
  /* cov(x, correction=1): covariance of the rows of x: products of deviations by the number of columns less the
   * correction */
  HR_FUNCTIONAL_COV,
  /* conv(x, weight, bias?, stride, before, after, dilation, groups=1): convolution (without flipping) of x [N, C,
   * ..] with weight [O, C / groups, ..]; before, after: zeros on each side */
  HR_FUNCTIONAL_CONV,
  /* conv_general(x, weight, bias?, stride=none, before=none, after=none, dilation=none, input_dilation=none,
   * groups=1, batch_groups=1, padding="explicit", layout="", flip=false): conv of any layout, as in bf01,oi01->bf01
   * (b: examples, f: features, o, i: of the weight, 0 to 2: planes), the default; input_dilation: zeros between x's
   * elements; flip: the weight's planes reversed; batch_groups: groups of examples, each with its features of the
   * result; padding as of reduce_window */
  HR_FUNCTIONAL_CONV_GENERAL,
  /* conv_transpose(x, weight, stride, before, after, dilation, groups=1): transposed convolution of x [N, C, ..]
   * with weight [C, O / groups, ..]; before, after: elements of the result that are removed at each side, negative
   * numbers: zeros that are added */
  HR_FUNCTIONAL_CONV_TRANSPOSE,
  /* attention(q, k, v, mask?, causal=false, scale=0, offset=0, soft_cap=0, hidden=0): softmax(scale q k^T + mask) v
   * of q [B, H, L, E], k [B, G, S, E], v [B, G, S, V], H a multiple of G: head h has the keys of h / (H / G); a bool
   * mask selects; without scale 1 / sqrt(E); causal: keys up to the query's number plus offset, the number of keys
   * of earlier calls; soft_cap above 0: scores are soft_cap * tanh(scores / soft_cap); hidden: the score that a bool
   * mask gives, and queries without a visible key give NaN, without it 0 */
  HR_FUNCTIONAL_ATTENTION,

  /* ---- Fourier transforms: sums of x[n] exp(-2 pi i n k / N); norm: which direction has 1 / N ---- */

  /* fft(x, n=none, axis=-1, norm="backward"): along an axis, whose length becomes n by zeros or a cut */
  HR_FUNCTIONAL_FFT,
  /* ifft(x, n=none, axis=-1, norm="backward"): inverse of fft */
  HR_FUNCTIONAL_IFFT,
  /* rfft(x, n=none, axis=-1, norm="backward"): the first n / 2 + 1 results of fft of real x */
  HR_FUNCTIONAL_RFFT,
  /* irfft(x, n=none, axis=-1, norm="backward"): real inverse of rfft with n results; without n an even number */
  HR_FUNCTIONAL_IRFFT,
  /* hfft(x, n=none, axis=-1, norm="backward"): real fft with n results of n / 2 + 1 values with Hermitian symmetry */
  HR_FUNCTIONAL_HFFT,
  /* ihfft(x, n=none, axis=-1, norm="backward"): inverse of hfft */
  HR_FUNCTIONAL_IHFFT,
  /* fftn(x, s=none, axes=none, norm="backward"): fft along several axes, without axes the last of s or all */
  HR_FUNCTIONAL_FFTN,
  /* ifftn(x, s=none, axes=none, norm="backward"): inverse of fftn */
  HR_FUNCTIONAL_IFFTN,
  /* rfftn(x, s=none, axes=none, norm="backward"): rfft along the last of several axes, fft along the others */
  HR_FUNCTIONAL_RFFTN,
  /* irfftn(x, s=none, axes=none, norm="backward"): real inverse of rfftn */
  HR_FUNCTIONAL_IRFFTN,

  /* ---- linear algebra on the last two dims, in f32, f64, c64, c128; integers become f32 ---- */

  /* cholesky(x, upper=false): lower L with L L^H = x, or its adjoint, of the lower triangle of x; a failure if x is
   * not positive-definite */
  HR_FUNCTIONAL_CHOLESKY,
  /* cholesky_ex(x, upper=false) -> factor, info: lower L with L L^H = x of the lower triangle of x, or upper U with
   * U^H U = x of the upper one; info (i32): 0, or the order of the leading minor that is not positive */
  HR_FUNCTIONAL_CHOLESKY_EX,
  /* solve(x, y): z with x z = y; y with one dim is a vector; a failure if x is singular */
  HR_FUNCTIONAL_SOLVE,
  /* solve_triangular(x, y, upper=false, unit_diagonal=false, left=true, transpose="none"): z with x z = y, or
   * without left z x = y, of the lower or upper triangle of x; transpose: none, transpose or adjoint of x; y with
   * one dim is a vector */
  HR_FUNCTIONAL_SOLVE_TRIANGULAR,
  /* inv(x): inverse; a failure if x is singular */
  HR_FUNCTIONAL_INV,
  /* det(x): determinant */
  HR_FUNCTIONAL_DET,
  /* slogdet(x) -> sign, logabsdet: sign (of absolute value 1 or 0) and logarithm of the absolute value of the
   * determinant */
  HR_FUNCTIONAL_SLOGDET,
  /* lu(x) -> permutation, lower, upper: the rows of x in the order `permutation` (i64) are lower @ upper; partial
   * pivoting */
  HR_FUNCTIONAL_LU,
  /* lu_factor(x) -> lu, pivots, info: LAPACK's getrf: U, and L below its diagonal; row i was exchanged with row
   * pivots[i] (i32, from 1); info: 0, or the first zero on the diagonal of U */
  HR_FUNCTIONAL_LU_FACTOR,
  /* lu_permutation(pivots, rows=-1): the order of so many rows (i64) that the exchanges of lu_factor make; without
   * rows as many as pivots */
  HR_FUNCTIONAL_LU_PERMUTATION,
  /* geqrf(x) -> reflectors, tau: LAPACK's geqrf: R above the Householder reflectors of Q, and their factors */
  HR_FUNCTIONAL_GEQRF,
  /* geqp3(x, pivots) -> reflectors, pivots, tau: LAPACK's geqp3: geqrf of x with its columns in another order,
   * pivots (i32, from 1); columns whose pivots are not 0 come first */
  HR_FUNCTIONAL_GEQP3,
  /* householder_product(x, tau): the first columns of the product of the reflectors of geqrf, as many as x has */
  HR_FUNCTIONAL_HOUSEHOLDER_PRODUCT,
  /* ormqr(x, tau, y, left=true, transpose=false): Q y, or without left y Q, with the square Q of the reflectors of
   * geqrf, or with transpose its adjoint */
  HR_FUNCTIONAL_ORMQR,
  /* qr(x, mode="reduced") -> q, r: orthonormal q and upper r with q r = x; mode: reduced, complete */
  HR_FUNCTIONAL_QR,
  /* svd(x, full_matrices=true) -> u, s, vh: u diag(s) vh = x with orthonormal u and vh, s decreasing */
  HR_FUNCTIONAL_SVD,
  /* svd_ex(x, full_matrices=true) -> u, s, vh, info: svd; matrices that do not converge are NaN, and their info
   * (i32) is not 0 */
  HR_FUNCTIONAL_SVD_EX,
  /* svdvals(x): singular values, decreasing */
  HR_FUNCTIONAL_SVDVALS,
  /* eigh(x, UPLO="L") -> eigenvalues, eigenvectors: increasing eigenvalues and vectors (columns) of the Hermitian
   * matrix with x's lower (L) or upper (U) triangle */
  HR_FUNCTIONAL_EIGH,
  /* eigh_ex(x, UPLO="L") -> eigenvalues, eigenvectors, info: eigh, with info as of svd_ex */
  HR_FUNCTIONAL_EIGH_EX,
  /* eigvalsh(x, UPLO="L"): increasing eigenvalues of the Hermitian matrix with x's lower (L) or upper (U) triangle */
  HR_FUNCTIONAL_EIGVALSH,
  /* eig(x) -> eigenvalues, eigenvectors: complex eigenvalues and right vectors (columns) */
  HR_FUNCTIONAL_EIG,
  /* eig_ex(x) -> eigenvalues, right, left, info: eig with the left vectors w, w^H x = value w^H, and with info as of
   * svd_ex */
  HR_FUNCTIONAL_EIG_EX,
  /* schur(x) -> form, vectors, eigenvalues, info: x = vectors form vectors^H with unitary vectors and an upper
   * triangular form, of real x with blocks of 2 x 2 for conjugate eigenvalues; info as of svd_ex */
  HR_FUNCTIONAL_SCHUR,
  /* hessenberg(x, low=1, high=0) -> reflectors, tau: LAPACK's gehrd: the Hessenberg form above its reflectors; x is
   * upper triangular outside of rows low to high, from 1; high 0 is the last one */
  HR_FUNCTIONAL_HESSENBERG,
  /* tridiagonal(x, UPLO="L") -> reflectors, diagonal, beside, tau: LAPACK's sytrd and hetrd: the tridiagonal form of
   * the Hermitian matrix with x's lower (L) or upper (U) triangle, and its reflectors */
  HR_FUNCTIONAL_TRIDIAGONAL,
  /* tridiagonal_solve(below, main, above, y) -> solution, below, main, above, info: LAPACK's gtsv: z with x z = y
   * for matrices with these diagonals, of as many elements each: the first of `below` and the last of `above` do not
   * count; the diagonals of the factors; info: 0, or the first pivot that is zero, and z is NaN */
  HR_FUNCTIONAL_TRIDIAGONAL_SOLVE,
  /* eigvals(x): complex eigenvalues */
  HR_FUNCTIONAL_EIGVALS,

  /* ---- norms ---- */

  /* layer_norm(x, weight?, bias?, dims=1, eps=1e-5): (x - mean) / sqrt(variance + eps) * weight + bias over the last
   * dims */
  HR_FUNCTIONAL_LAYER_NORM,
  /* rms_norm(x, weight?, eps=1e-5): x / sqrt(mean(x * x) + eps) * weight over the last dim */
  HR_FUNCTIONAL_RMS_NORM,
  /* batch_norm(x, mean, var, weight?, bias?, axis=1, eps=1e-5): (x - mean) / sqrt(var + eps) * weight + bias with
   * vectors along an axis */
  HR_FUNCTIONAL_BATCH_NORM,
  /* batch_norm_training(x, weight?, bias?, axis=1, eps=1e-5) -> y, mean, var: batch_norm with x's own mean and
   * variance (by the number of elements) over all other dims */
  HR_FUNCTIONAL_BATCH_NORM_TRAINING,
  /* group_norm(x, weight?, bias?, groups=1, eps=1e-5): (x - mean) / sqrt(variance + eps) of groups of channels of x
   * [N, C, ..], times weight [C], plus bias [C]; as many groups as channels: instance norm */
  HR_FUNCTIONAL_GROUP_NORM,
  /* local_response_norm(x, size=5, alpha=1e-4, beta=0.75, bias=1, axis=1): x / (bias + alpha / size * sum of squares
   * of so many neighbours along an axis)^beta */
  HR_FUNCTIONAL_LOCAL_RESPONSE_NORM,
  /* normalize(x, axis=-1, ord=2, eps=1e-12): x / max(vector_norm(x) along an axis, eps) */
  HR_FUNCTIONAL_NORMALIZE,
  /* rotary(x, cos, sin, interleaved=false, dims=0): pairs (a, b) of the first dims elements (all by default) of x's
   * last dim turned: a cos - b sin, a sin + b cos; pairs are elements i and i + dims / 2, interleaved: 2 i and 2 i +
   * 1; cos, sin [.., dims / 2] are broadcast */
  HR_FUNCTIONAL_ROTARY,

  /* ---- steps of optimizers; rate and step are numbers or tensors without dims ---- */

  /* sgd_update(parameter, gradient, velocity, rate, momentum=0, dampening=0, weight_decay=0, nesterov=false) ->
   * parameter, velocity: v = momentum v + (1 - dampening) g, p - rate v, with g + weight_decay p for g; nesterov: p
   * - rate (g + momentum v) */
  HR_FUNCTIONAL_SGD_UPDATE,
  /* adam_update(parameter, gradient, mean, square, rate, step, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0,
   * decoupled=false, bias_correction=true) -> parameter, mean, square: m = beta1 m + (1 - beta1) g, v = beta2 v + (1
   * - beta2) g^2, p - rate m / (sqrt(v) + eps); bias_correction: of m and v divided by 1 - beta^step, step 1 is the
   * first; g + weight_decay p for g, or decoupled: p (1 - rate weight_decay) for p */
  HR_FUNCTIONAL_ADAM_UPDATE,
  /* adamax_update(parameter, gradient, mean, largest, rate, beta1=0.9, beta2=0.999, eps=1e-8) -> parameter, mean,
   * largest: adam_update with v = max(beta2 v, |g|), and p - rate m / (v + eps) */
  HR_FUNCTIONAL_ADAMAX_UPDATE,
  /* lion_update(parameter, gradient, mean, rate, beta1=0.9, beta2=0.99, weight_decay=0) -> parameter, mean: p - rate
   * (sign(beta1 m + (1 - beta1) g) + weight_decay p), m = beta2 m + (1 - beta2) g */
  HR_FUNCTIONAL_LION_UPDATE,
  /* rmsprop_update(parameter, gradient, square, rate, alpha=0.99, eps=1e-8) -> parameter, square: v = alpha v + (1 -
   * alpha) g^2, p - rate g / (sqrt(v) + eps) */
  HR_FUNCTIONAL_RMSPROP_UPDATE,
  /* adagrad_update(parameter, gradient, square, rate, eps=1e-8) -> parameter, square: v = v + g^2, p - rate g /
   * (sqrt(v) + eps) */
  HR_FUNCTIONAL_ADAGRAD_UPDATE,
  /* adadelta_update(parameter, gradient, square, delta, rate, rho=0.9, eps=1e-6) -> parameter, square, delta: v =
   * rho v + (1 - rho) g^2, d = sqrt(u + eps) / sqrt(v + eps) g, u = rho u + (1 - rho) d^2, p - rate d */
  HR_FUNCTIONAL_ADADELTA_UPDATE,

  /* ---- losses of predictions and targets of the same dims; reduction: none, mean, sum ---- */

  /* cross_entropy(logits, targets, weights?, axis=-1, label_smoothing=0, reduction="none", ignore_index=-100):
   * -log_softmax(logits) at class indices, or times probabilities of as many dims as the logits; weights are
   * broadcast to the losses; indices of ignore_index have the loss 0 and do not count in the mean */
  HR_FUNCTIONAL_CROSS_ENTROPY,
  /* binary_cross_entropy(inputs, targets, weights?, with_logits=true, reduction="mean"): -targets * log(p) - (1 -
   * targets) * log(1 - p), p = sigmoid(inputs), or the inputs, with logarithms of at least -100 */
  HR_FUNCTIONAL_BINARY_CROSS_ENTROPY,
  /* nll_loss(inputs, targets, axis=-1, reduction="none"): -inputs at class indices */
  HR_FUNCTIONAL_NLL_LOSS,
  /* mse_loss(predictions, targets, reduction="mean"): square(predictions - targets) */
  HR_FUNCTIONAL_MSE_LOSS,
  /* l1_loss(predictions, targets, reduction="mean"): abs(predictions - targets) */
  HR_FUNCTIONAL_L1_LOSS,
  /* smooth_l1_loss(predictions, targets, beta=1, reduction="mean"): difference^2 / (2 beta) if |difference| < beta,
   * else |difference| - beta / 2 */
  HR_FUNCTIONAL_SMOOTH_L1_LOSS,
  /* huber_loss(inputs, targets, delta=1, reduction="none"): difference^2 / 2 if |difference| <= delta, else delta *
   * (|difference| - delta / 2) */
  HR_FUNCTIONAL_HUBER_LOSS,
  /* kl_div_loss(inputs, targets, axis=-1, reduction="none"): sum(exp(targets) * (targets - inputs)) along an axis;
   * both are logarithms of probabilities */
  HR_FUNCTIONAL_KL_DIV_LOSS,
  /* hinge_loss(inputs, targets, reduction="none"): max(1 - inputs * targets, 0) */
  HR_FUNCTIONAL_HINGE_LOSS,
  /* log_cosh_loss(inputs, targets, reduction="none"): log(cosh(inputs - targets)) */
  HR_FUNCTIONAL_LOG_COSH_LOSS,
  /* gaussian_nll_loss(inputs, targets, vars, full=false, eps=1e-6, reduction="mean"): (log(v) + square(targets -
   * inputs) / v) / 2, v = max(vars, eps); full: and log(2 pi) / 2 */
  HR_FUNCTIONAL_GAUSSIAN_NLL_LOSS,
  /* triplet_loss(anchors, positives, negatives, axis=-1, p=2, margin=1, eps=1e-6, reduction="none"):
   * max(d(positives) - d(negatives) + margin, 0), d = (sum(|anchors - x|^p) + eps)^(1 / p) along an axis */
  HR_FUNCTIONAL_TRIPLET_LOSS,
  /* margin_ranking_loss(inputs1, inputs2, targets, margin=0, reduction="none"): max(margin - targets * (inputs1 -
   * inputs2), 0) */
  HR_FUNCTIONAL_MARGIN_RANKING_LOSS,
  /* cosine_similarity_loss(x1, x2, axis=1, eps=1e-8, reduction="none"): sum(x1 * x2) / max(norm(x1) * norm(x2), eps)
   * along an axis */
  HR_FUNCTIONAL_COSINE_SIMILARITY_LOSS,

  /* ---- windows on planes, which are the last dims; of up to three dims with one or two others by a row ---- */

  /* max_pool(x, window, stride, padding, after=none, dilation=none, ceil=false): largest element of each window;
   * padding in front, and behind without after; ceil: the last window may be cut */
  HR_FUNCTIONAL_MAX_POOL,
  /* avg_pool(x, window, stride, padding, count_padding=true, after=none, dilation=none, ceil=false): mean of each
   * window */
  HR_FUNCTIONAL_AVG_POOL,
  /* max_pool_places(x, window, stride, padding, after=none, dilation=none, ceil=false, places="plane") -> values,
   * indices: max_pool, and the index of each element: in its plane of x, in the whole tensor, column_major: in the
   * tensor with the elements of planes in column-major order, or in its window */
  HR_FUNCTIONAL_MAX_POOL_PLACES,
  /* max_unpool(x, indices, shape, places="plane", mode="set"): planes of this shape with x's elements at indices in
   * their plane, or in the whole tensor, and zeros; mode: set, add */
  HR_FUNCTIONAL_MAX_UNPOOL,
  /* max_pool_gradient(gradients, indices, shape, window, stride, padding, dilation=none): planes of this shape: for
   * each element the sum of the gradients of windows whose largest element it is; indices in the plane as of
   * max_pool_places */
  HR_FUNCTIONAL_MAX_POOL_GRADIENT,
  /* lp_pool(x, window, stride, padding, p=2, after=none, dilation=none, ceil=false): (sum of |x|^p)^(1 / p) of each
   * window; windows as of max_pool */
  HR_FUNCTIONAL_LP_POOL,
  /* stencil(x, weights, stride=none, before=none, after=none, dilation=none, mode="sum", value=0): windows of x's
   * last dims, as large as weights, times weights; mode: sum, max, min, argmax or argmin (in row-major order) of
   * each; before and after: elements `value` around x */
  HR_FUNCTIONAL_STENCIL,

  /* ---- windows over all dims ---- */

  /* reduce_window(x, window, stride=none, before=none, after=none, dilation=none, input_dilation=none, mode="sum",
   * padding="explicit"): sum, max, min, prod, mean, any or all of each window of x's dtype; before and after:
   * elements around x that do not count, negative numbers crop; input_dilation: the distance of x's elements;
   * padding: explicit, valid, same or same_lower (as many windows as strides in x; an odd element behind, or in
   * front) */
  HR_FUNCTIONAL_REDUCE_WINDOW,

  /* ---- recurrent layers of x [.., L, I], and cells, of x [.., I]; states are zeros without an input ---- */

  /* rnn(x, weight, recurrent, bias?, hidden?, lengths?, activation="tanh", reverse=false, clip=0): h = activation(x
   * weight^T + bias + h recurrent^T) of all steps [.., L, H]. hidden [.., H]: h before the first step; lengths [..]:
   * later steps keep the state; reverse: from the last step to the first; clip: bounds sums to [-clip, clip];
   * activations are tanh, sigmoid, relu, hard_sigmoid, softsign, softplus, elu, linear */
  HR_FUNCTIONAL_RNN,
  /* gru(x, weight, recurrent, bias?, recurrent_bias?, hidden?, lengths?, gate="sigmoid", activation="tanh",
   * reverse=false, reset_before=false, clip=0): h of all steps of gated recurrent units; weights [3 H, I] and [3 H,
   * H] have the parts r, z, n: h = (1 - z) n + z h, n = activation(xn + r * hn); reset_before: r * h is multiplied
   * by the weight */
  HR_FUNCTIONAL_GRU,
  /* lstm(x, weight, recurrent, bias?, hidden?, cell?, peepholes?, lengths?, gate="sigmoid", activation="tanh",
   * output_activation="tanh", reverse=false, coupled=false, clip=0) -> hidden, cell: h and c of all steps of long
   * short-term memory; weights [4 H, I] and [4 H, H] have the parts i, f, g, o: c = f c + i activation(g), h = o
   * output_activation(c); peepholes [3 H]: factors of c in i, f, o; coupled: f = 1 - i */
  HR_FUNCTIONAL_LSTM,
  /* rnn_cell(x, weight, recurrent, bias?, hidden?, activation="tanh", clip=0): h after one step of rnn */
  HR_FUNCTIONAL_RNN_CELL,
  /* gru_cell(x, weight, recurrent, bias?, recurrent_bias?, hidden?, gate="sigmoid", activation="tanh",
   * reset_before=false, clip=0): h after one step of gru */
  HR_FUNCTIONAL_GRU_CELL,
  /* lstm_cell(x, weight, recurrent, bias?, hidden?, cell?, peepholes?, gate="sigmoid", activation="tanh",
   * output_activation="tanh", coupled=false, clip=0) -> hidden, cell: h and c after one step of lstm */
  HR_FUNCTIONAL_LSTM_CELL,

  /* ---- other sizes of dims ---- */

  /* interpolate(x, axes=none, sizes=none, scales=none, mode="nearest", coordinates="half_pixel",
   * rounding="round_prefer_floor", antialias=false, cubic=-0.75, exclude_outside=false, region=none, outside=0): x
   * with these sizes of axes (without axes of all), or scales times their sizes, rounded down. mode: nearest,
   * linear, cubic (with a parameter). coordinates, the place of an element in x: half_pixel, half_pixel_symmetric,
   * pytorch_half_pixel, align_corners, asymmetric, tf_half_pixel_for_nn, tf_crop_and_resize. rounding, of nearest:
   * round_prefer_floor, round_prefer_ceil, floor, ceil. antialias: filters as wide as the distance of elements.
   * exclude_outside: weights outside of x are 0. region: begins of the axes, then their ends, as fractions of x.
   * outside, if given: the value of places outside of x. Names and numbers as in ONNX's Resize */
  HR_FUNCTIONAL_INTERPOLATE,
  /* grid_sample(x, grid, mode="linear", padding="zeros", align_corners=false): x [N, C, plane of n = 2 or 3 dims] at
   * the places of grid [N, .., n]: the last dim first, -1 and 1 are the plane's ends, or with align_corners the
   * centres of its outer elements. mode: linear, nearest, cubic (of two dims); padding: zeros, border, reflection */
  HR_FUNCTIONAL_GRID_SAMPLE,

  /* ---- views: the result shares x's memory ---- */

  /* broadcast_to(x, shape): x repeated to these dims */
  HR_FUNCTIONAL_BROADCAST_TO,
  /* permute_dims(x, axes=none): dim i of the result is dim axes[i] of x; without axes in reverse order */
  HR_FUNCTIONAL_PERMUTE_DIMS,
  /* expand_dims(x, axis): dims of size 1 at these positions of the result */
  HR_FUNCTIONAL_EXPAND_DIMS,
  /* squeeze(x, axis=none): without these dims of size 1; without axis none of size 1 is left */
  HR_FUNCTIONAL_SQUEEZE,
  /* flip(x, axis=none): the order of elements reversed */
  HR_FUNCTIONAL_FLIP,
  /* slice(x, begin, count, step): element i along a dim is x's element begin + i * step, which must exist; step may
   * be negative */
  HR_FUNCTIONAL_SLICE,
  /* moveaxis(x, source=0, destination=-1): a dim at another place, the others in their order */
  HR_FUNCTIONAL_MOVEAXIS,
  /* swapaxes(x, axis1=-2, axis2=-1): two dims in each other's place; without axes the matrices transposed */
  HR_FUNCTIONAL_SWAPAXES,
  /* broadcast_arrays(x...) -> one for each input: each input repeated to the dims that all have in common */
  HR_FUNCTIONAL_BROADCAST_ARRAYS,
  /* meshgrid(x..., indexing="xy") -> one for each input: coordinates of a grid: input i repeated along all dims but
   * i; indexing xy: the first two dims swapped, or ij */
  HR_FUNCTIONAL_MESHGRID,
  /* unstack(x, axis=0) -> one for each slice: the slices of x along an axis, without it */
  HR_FUNCTIONAL_UNSTACK,
  /* array_split(x, axis=0, sections=0, indices=none) -> one for each part: x in parts along an axis: so many
   * sections, of which the first ones may have one element more; or those between indices, negative ones from the
   * end, bounded to x */
  HR_FUNCTIONAL_ARRAY_SPLIT,
  /* diagonal(x, offset=0, axis1=-2, axis2=-1): a diagonal of two dims, as the last dim */
  HR_FUNCTIONAL_DIAGONAL,

  /* ---- views where possible, else copies ---- */

  /* as_strided(x, shape, strides, offset=0): element (i0, i1, ...) is element offset + i0 strides[0] + i1 strides[1]
   * + ... of x in row-major order */
  HR_FUNCTIONAL_AS_STRIDED,
  /* reshape(x, shape, copy=false): the elements in row-major order with other dims; one of them may be -1; shares
   * memory if it can, unless copy */
  HR_FUNCTIONAL_RESHAPE,

  /* ---- copies ---- */

  /* astype(x, dtype=none, copy=true): converted by C's rules; bool: x != 0; without copy x itself, if it has the
   * dtype */
  HR_FUNCTIONAL_ASTYPE,
  /* bitcast(x, dtype=none): the bytes of x's elements as elements of a dtype, which is needed; the last dim changes
   * with their size; no gradient */
  HR_FUNCTIONAL_BITCAST,
  /* concat(x..., axis=0): one after the other along an axis */
  HR_FUNCTIONAL_CONCAT,
  /* stack(x..., axis=0): one after the other along a new axis */
  HR_FUNCTIONAL_STACK,
  /* pad(x, before, after, value=0, interior=none): so many elements `interior` between neighbours, then more on both
   * sides of each dim; negative sides crop */
  HR_FUNCTIONAL_PAD,
  /* pad_reflect(x, before, after): elements mirrored at the first and the last one, again and again if sides are
   * wider; negative sides crop before */
  HR_FUNCTIONAL_PAD_REFLECT,
  /* pad_edge(x, before, after): the first and the last element repeated; sides as of pad_reflect */
  HR_FUNCTIONAL_PAD_EDGE,
  /* pad_symmetric(x, before, after): elements mirrored behind the first and the last one, which occur twice; sides
   * as of pad_reflect */
  HR_FUNCTIONAL_PAD_SYMMETRIC,
  /* pad_wrap(x, before, after, alternate=false): x repeated in both directions; alternate: every second repetition
   * negated; sides as of pad_reflect */
  HR_FUNCTIONAL_PAD_WRAP,
  /* tile(x, repetitions): x repeated so often along each dim; dims are added in front on either side */
  HR_FUNCTIONAL_TILE,
  /* repeat(x, repeats=1, axis=-1): each element so often in a row along an axis */
  HR_FUNCTIONAL_REPEAT,
  /* roll(x, shift=0, axis=0): elements moved along an axis; those that leave one end enter at the other */
  HR_FUNCTIONAL_ROLL,
  /* diag(x, k=0): the matrix with vector x on diagonal k */
  HR_FUNCTIONAL_DIAG,
  /* tril(x, k=0): 0 above diagonal k of the last two dims */
  HR_FUNCTIONAL_TRIL,
  /* triu(x, k=0): 0 below diagonal k of the last two dims */
  HR_FUNCTIONAL_TRIU,
  /* band_part(x, lower=-1, upper=-1): 0 outside of so many diagonals below and above the main one of the last two
   * dims; a negative number: of all */
  HR_FUNCTIONAL_BAND_PART,
  /* space_to_depth(x, blocks, axes=none, depth=1, order="dcr"): the elements inside of blocks of axes (of the last
   * ones by default) as a part of dim depth: in front of it (order dcr), or behind it (crd); with the batch as depth
   * space to batch */
  HR_FUNCTIONAL_SPACE_TO_DEPTH,
  /* depth_to_space(x, blocks, axes=none, depth=1, order="dcr"): inverse of space_to_depth; order crd with the
   * channels as depth is the pixel shuffle */
  HR_FUNCTIONAL_DEPTH_TO_SPACE,
  /* im2col(x, window, stride=none, before=none, after=none, dilation=none): windows of x [N, C, ..] as columns [N, C
   * * elements of a window, windows]; before, after: zeros on each side */
  HR_FUNCTIONAL_IM2COL,
  /* col2im(x, shape, window, stride=none, before=none, after=none, dilation=none): the sum of columns at the places
   * of their windows, in planes of this shape: the adjoint of im2col */
  HR_FUNCTIONAL_COL2IM,

  /* ---- indices; one out of range is an error ---- */

  /* take(x, indices, axis=0, mode="error"): x's elements at these indices of an axis, negative ones from the end;
   * the indices' dims replace the axis; mode clip bounds indices to 0 and the last one, drop gives 0 for negative
   * and other indices out of range */
  HR_FUNCTIONAL_TAKE,
  /* take_along_axis(x, indices, axis=-1, mode="error"): for each index the element of x at its place, with this
   * index along the axis; mode as of take */
  HR_FUNCTIONAL_TAKE_ALONG_AXIS,
  /* index(x..., axes, first=false): x at indices of several axes: inputs x, then one tensor for each axis,
   * broadcast; their dims replace adjacent axes, or come first */
  HR_FUNCTIONAL_INDEX,
  /* index_put(x..., axes, mode="set", first=false): x with values at indices: inputs x, values, then as index; mode:
   * as of put_along_axis */
  HR_FUNCTIONAL_INDEX_PUT,
  /* put_along_axis(x, indices, values, axis=-1, mode="set", bounds="error"): x with values at the places that
   * take_along_axis reads; mode: set, add, multiply, max, min, subtract, divide; bounds drop: negative and other
   * indices out of range write nothing, error: as take */
  HR_FUNCTIONAL_PUT_ALONG_AXIS,
  /* gather_nd(x, indices, batch_dims=0, mode="error"): x's slices at tuples of indices, the last dim, of its first
   * axes behind batch_dims dims that both have; mode as of take */
  HR_FUNCTIONAL_GATHER_ND,
  /* scatter_nd(x, indices, values, batch_dims=0, mode="set", bounds="error"): x with values at the places that
   * gather_nd reads; mode and bounds as of put_along_axis */
  HR_FUNCTIONAL_SCATTER_ND,
  /* gather_slices(x, indices, sizes, map=none, window=none, collapsed=none, x_batch=none, index_batch=none,
   * vector_dim=-1): slices of these sizes that begin at indices, moved into x: component i, along vector_dim, is the
   * index of x's dim map[i]; dims `window` of the result are x's dims but those that are collapsed or x_batch, the
   * others are the indices' dims, of which index_batch are x_batch. XLA's gather */
  HR_FUNCTIONAL_GATHER_SLICES,
  /* scatter_slices(x, indices, values, map=none, window=none, collapsed=none, x_batch=none, index_batch=none,
   * vector_dim=-1, mode="set"): x with values at the slices that gather_slices reads; a slice that is not inside of
   * x writes nothing; mode: as of put_along_axis. XLA's scatter */
  HR_FUNCTIONAL_SCATTER_SLICES,
  /* index_add(x, indices, values, axis=0, alpha=1): x with alpha * values added at the places that take reads */
  HR_FUNCTIONAL_INDEX_ADD,
  /* slice_update(x, values, begin, count, step, mode="set"): x with values in a slice; mode: as of put_along_axis */
  HR_FUNCTIONAL_SLICE_UPDATE,
  /* dynamic_slice(x, start, sizes): the slice of these sizes whose first element is x[start]; start [rank] is
   * bounded so that the slice is inside of x */
  HR_FUNCTIONAL_DYNAMIC_SLICE,
  /* dynamic_slice_update(x, values, start): x with values in the place of dynamic_slice */
  HR_FUNCTIONAL_DYNAMIC_SLICE_UPDATE,
  /* masked_fill(x, mask, value): value if mask, else x, in x's dtype */
  HR_FUNCTIONAL_MASKED_FILL,
  /* masked_scatter(x, mask, source): x with the slices of source's first dim, in order, where the mask of x's first
   * dims is true; the last slice again if there are too few */
  HR_FUNCTIONAL_MASKED_SCATTER,
  /* searchsorted(x, values, side="left"): the places where values keep x, which is in order, in order; side left:
   * before equal elements, right: behind them */
  HR_FUNCTIONAL_SEARCHSORTED,
  /* isin(x, values, invert=false): true if values have an element that equals x; invert: if none does */
  HR_FUNCTIONAL_ISIN,
  /* digitize(x, bins, right=false): the number of the interval of increasing bins in which x is; right: intervals
   * include their upper end */
  HR_FUNCTIONAL_DIGITIZE,
  /* bincount(x, weights?, length=0): how often 0 to length - 1 occur in x, or the sum of their weights; larger x are
   * an error */
  HR_FUNCTIONAL_BINCOUNT,
  /* histogram(x, bins=10, low=0, high=1): how many elements are in each of the bins of equal width between low and
   * high */
  HR_FUNCTIONAL_HISTOGRAM,

  /* ---- results whose dims depend on data: a call waits for the stream; inferences and captures fail ---- */

  /* nonzero(x, size=-1): coordinates [rank, count] of the elements that are not 0; with size so many, without
   * waiting, -1 behind the last */
  HR_FUNCTIONAL_NONZERO,
  /* compress(condition, x, axis=0): x's slices along an axis where the condition is true */
  HR_FUNCTIONAL_COMPRESS,
  /* unique(x) -> values, indices, inverse, counts: the distinct elements in order; the first index of each, the
   * number of each element of x among them, their counts */
  HR_FUNCTIONAL_UNIQUE,
  /* non_max_suppression(boxes, scores, most=-1, overlap=0, least=0, center=false): [n, 3] in i64: batch, class and
   * number of boxes [B, N, 4] (y1, x1, y2, x2, or with center x, y, width, height) that stay: in order of their
   * scores [B, C, N], above least if that is given, of each class up to most, those whose intersection over union
   * with all better ones is at most overlap; computed on the host */
  HR_FUNCTIONAL_NON_MAX_SUPPRESSION,

  /* ---- quantised matrices; src/functional/quantized.h documents the layout ---- */

  /* quantize(w, global_scale?, group_size=0, bits=0, mode="affine") -> words, scales, and biases of mode affine: w
   * [.., K] as u32 words [.., K * bits / 32], and a scale for each group of neighbours; mode affine (group_size 32,
   * 64 or 128, bits 2 to 6 or 8): a bias, too; mxfp4, mxfp8, nvfp4: scales of u8; 0: the mode's default; a global
   * scale f32 for nvfp4 */
  HR_FUNCTIONAL_QUANTIZE,
  /* dequantize(w, scales, biases?, global_scale?, group_size=0, bits=0, mode="affine", dtype=none): the matrix of
   * quantised w; without dtype in that of affine scales, or bf16 */
  HR_FUNCTIONAL_DEQUANTIZE,
  /* quantized_matmul(x, w, scales, biases?, transpose=true, group_size=0, bits=0, mode="affine"): x [.., K] times
   * quantised w [.., N, K], transposed, or [.., K, N]; batch dims are broadcast */
  HR_FUNCTIONAL_QUANTIZED_MATMUL,
  /* gather_mm(a, b, lhs_indices?, rhs_indices?, sorted_indices=false): matrices of a at flat indices of its batch
   * dims, times those of b; the indices are broadcast; without them all */
  HR_FUNCTIONAL_GATHER_MM,
  /* gather_qmm(x, w, scales, biases?, lhs_indices?, rhs_indices?, transpose=true, group_size=0, bits=0,
   * mode="affine", sorted_indices=false): quantized_matmul of matrices at indices, as gather_mm */
  HR_FUNCTIONAL_GATHER_QMM,
  /* qqmm(x, w, scales?, global_scale_x?, global_scale_w?, group_size=0, bits=0, mode="nvfp4"): x [.., K], rounded to
   * quantised numbers, times w [N, K], transposed: quantised if there are scales, else rounded, too; mode nvfp4 or
   * mxfp8 */
  HR_FUNCTIONAL_QQMM,
  /* quantize_linear(x, scale, zero?, axis=1, block=0, bits=0, dtype=none): x / scale rounded to nearest, ties to
   * even, plus zero, bounded to the integers of dtype, or of its first bits; scale and zero: one number, one for
   * each element of an axis, or for each block of so many; without dtype that of zero, or u8 */
  HR_FUNCTIONAL_QUANTIZE_LINEAR,
  /* dequantize_linear(x, scale, zero?, axis=1, block=0, dtype=none): (x - zero) * scale, as of quantize_linear;
   * without dtype in that of scale */
  HR_FUNCTIONAL_DEQUANTIZE_LINEAR,
  /* dynamic_quantize_linear(x) -> y, scale, zero: quantize_linear to u8 with the scale and zero for which x's
   * numbers, and 0, are those of 0 to 255 */
  HR_FUNCTIONAL_DYNAMIC_QUANTIZE_LINEAR,
  /* matmul_integer(x, y, x_zero?, y_zero?): matmul of integers of 8 bits less their zeros, in i32, which wraps;
   * x_zero: a number, or one for each row; y_zero: for each column */
  HR_FUNCTIONAL_MATMUL_INTEGER,
  /* conv_integer(x, weight, x_zero?, weight_zero?, stride, before, after, dilation, groups=1): conv of integers of 8
   * bits less their zeros, in i32, which wraps; x_zero surrounds x; weight_zero: a number, or one for each feature
   * of the result */
  HR_FUNCTIONAL_CONV_INTEGER,
  /* to_fp8(x): floats of one byte (e4m3) as u8; numbers that are too large become 448 */
  HR_FUNCTIONAL_TO_FP8,
  /* from_fp8(x, dtype=none): the numbers of such bytes; bf16 without dtype */
  HR_FUNCTIONAL_FROM_FP8,

  /* ---- sparse matrices; coo: rows and columns of values; csr, csc: the first values of rows or columns ---- */

  /* sparse_matmul(values, rows, columns, y, format="coo", count=-1): a sparse matrix with count rows (needed but for
   * csr) times y [K] or [K, N]; values of one place are added */
  HR_FUNCTIONAL_SPARSE_MATMUL,
  /* sparse_to_dense(values, rows, columns, shape, format="coo"): a sparse matrix of this shape with its zeros */
  HR_FUNCTIONAL_SPARSE_TO_DENSE,

  /* ---- creation ---- */

  /* full(value, shape, dtype=none): a number everywhere; without dtype i64, f32, bool or c64, by the number */
  HR_FUNCTIONAL_FULL,
  /* arange(start=0, stop=0, step=1, dtype=none): start, start + step, ... before stop; without dtype i64 if all
   * three are integers, else f32 */
  HR_FUNCTIONAL_ARANGE,
  /* eye(rows=0, columns=-1, dtype=none, k=0): ones on diagonal k; as many columns as rows by default; f32 without
   * dtype */
  HR_FUNCTIONAL_EYE,
  /* linspace(start=0, stop=1, num=50, endpoint=true, dtype=none): num evenly spaced numbers from start to stop; f32
   * without dtype */
  HR_FUNCTIONAL_LINSPACE,

  /* ---- random numbers of a key u32[2]; src/functional/random.c documents the bits ---- */

  /* key(seed=0): the key with this seed of 64 bits */
  HR_FUNCTIONAL_KEY,
  /* split(key, num=2): independent keys [num, 2] */
  HR_FUNCTIONAL_SPLIT,
  /* fold_in(key, data=0): an independent key for each number */
  HR_FUNCTIONAL_FOLD_IN,
  /* random_bits(key, shape, dtype=none): integers of 8, 16 or 32 random bits; u32 without dtype */
  HR_FUNCTIONAL_RANDOM_BITS,
  /* generator_bits(state, shape, dtype=none, algorithm="philox") -> state, bits: random integers, u32 without dtype,
   * of a generator with a key and a counter, u64[2] or [3], and its next state; algorithm: philox (4x32) or threefry
   * (2x32). XLA's rng_bit_generator */
  HR_FUNCTIONAL_GENERATOR_BITS,
  /* threefry(key, more, x, y) -> first, second: the block of two words that threefry (2x32) makes of the words x and
   * y with a key of two words, all u32 */
  HR_FUNCTIONAL_THREEFRY,
  /* uniform(key, shape, low=0, high=1, dtype=none): uniform in [low, high); f32 without dtype */
  HR_FUNCTIONAL_UNIFORM,
  /* normal(key, shape, loc=0, scale=1, dtype=none): normal distribution; f32 without dtype */
  HR_FUNCTIONAL_NORMAL,
  /* truncated_normal(key, shape, low=-2, high=2, dtype=none): standard normal distribution between two bounds; f32
   * without dtype */
  HR_FUNCTIONAL_TRUNCATED_NORMAL,
  /* bernoulli(key, p, shape): true with probability p */
  HR_FUNCTIONAL_BERNOULLI,
  /* randint(key, shape, low=0, high=1, dtype=none): integers from low to high - 1; i32 without dtype */
  HR_FUNCTIONAL_RANDINT,
  /* gumbel(key, shape, dtype=none): standard Gumbel distribution; f32 without dtype */
  HR_FUNCTIONAL_GUMBEL,
  /* exponential(key, shape, dtype=none): standard exponential distribution; f32 without dtype */
  HR_FUNCTIONAL_EXPONENTIAL,
  /* laplace(key, shape, loc=0, scale=1, dtype=none): Laplace distribution; f32 without dtype */
  HR_FUNCTIONAL_LAPLACE,
  /* categorical(key, logits, axis=-1): an index along an axis, with probabilities softmax(logits) */
  HR_FUNCTIONAL_CATEGORICAL,
  /* permutation(key, x, axis=0): x's slices along an axis in random order */
  HR_FUNCTIONAL_PERMUTATION,
  HR_FUNCTIONAL_COUNT
} hr_functional;

/* A view of a buffer, with one reference to it; or a number. Zeroed: absent.
 *
 * The position of element (i0, i1, ...) is offset + i0*strides[0] + i1*strides[1] + ..., in elements of dtype from the
 * buffer's start. Strides may be 0 or negative. */
typedef struct hr_tensor {
  hr_buffer *buffer; /* NULL: a number, or a tensor of an inference */
  hr_scalar number;  /* dtype NONE: not a number */
  hr_dtype dtype;    /* of a number: the number's */
  int rank;
  int64_t offset;
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
} hr_tensor;

/* A number of the host: an argument of each run, not a part of the program. Its dtype is weak in promotion. */
static inline hr_tensor hr_tensor_number(hr_scalar number) {
  hr_tensor tensor;
  tensor.buffer = NULL, tensor.number = number, tensor.dtype = number.dtype, tensor.rank = 0, tensor.offset = 0;
  return tensor;
}
/* The tensor as an operand of hr_stream_record, which borrows from it. A number has a scalar instead of a buffer. */
static inline hr_view hr_tensor_view(const hr_tensor *tensor) {
  hr_view view;
  view.buffer = tensor->buffer, view.scalar = tensor->number.dtype != HR_DTYPE_NONE ? &tensor->number : NULL;
  view.dtype = tensor->dtype, view.rank = tensor->rank, view.offset = tensor->offset;
  view.dims = tensor->dims, view.strides = tensor->strides;
  return view;
}
/* The number of elements. */
static inline int64_t hr_tensor_count(const hr_tensor *tensor) {
  int64_t count = 1;
  for (int d = 0; d < tensor->rank; ++d) {
    count *= tensor->dims[d];
  }
  return count;
}
/* Sets the strides of row-major order without gaps; dims of size 0 count as 1. */
static inline void hr_tensor_set_row_major(hr_tensor *tensor) {
  int64_t stride = 1;
  for (int d = tensor->rank - 1; d >= 0; --d) {
    tensor->strides[d] = stride;
    stride *= tensor->dims[d] > 1 ? tensor->dims[d] : 1;
  }
}
/* True if the elements stand in that order. */
static inline bool hr_tensor_is_row_major(const hr_tensor *tensor) {
  int64_t stride = 1;
  for (int d = tensor->rank - 1; d >= 0; --d) {
    if (tensor->dims[d] != 1 && tensor->strides[d] != stride) {
      return false;
    }
    stride *= tensor->dims[d] > 1 ? tensor->dims[d] : 1;
  }
  return true;
}
/* Drops the buffer's reference and zeroes the tensor; NULL and zeroed are fine. */
HR_API void hr_tensor_release(hr_tensor *tensor);

typedef enum hr_attribute_kind {
  HR_ATTRIBUTE_NONE = 0, /* the default */
  HR_ATTRIBUTE_INT,
  HR_ATTRIBUTE_FLAG, /* integer 0 or 1 */
  HR_ATTRIBUTE_REAL,
  HR_ATTRIBUTE_INTS,
  HR_ATTRIBUTE_DTYPE,
  HR_ATTRIBUTE_TEXT,
  HR_ATTRIBUTE_REALS
} hr_attribute_kind;

/* An attribute's value; borrowed for the call. */
typedef struct hr_attribute {
  hr_attribute_kind kind;
  int count; /* INTS, REALS */
  union {
    int64_t integer;
    hr_scalar number;
    hr_dtype dtype;
    const int64_t *ints;
    const char *text;
    const double *reals;
  } value;
} hr_attribute;

/* Applies a function and gives its results, whose buffers' references are the caller's (hr_tensor_release).
 *
 * stream: a stream or a capture. NULL infers: inputs and results have types without buffers, and nothing is recorded.
 * inputs: pointers, in the order of the function's list; NULL: absent. They keep their references.
 * attributes: in the order of the function's list; those at the end may be left out.
 * results: result_count of them, in the order of the function's list; those at the end may be left out, but one.
 *   hr_functional_result_count counts those of any function.
 *
 * Fails with INVALID_ARGUMENT for wrong inputs or attributes, UNIMPLEMENTED for dtypes that the function does not
 * support, and otherwise as hr_stream_record. The message names the function or the recorded row, the actual and the
 * expected value: "sum: axis 3 is out of range for 2 dims". Results are set only on success. */
HR_API HR_MUST_USE hr_status hr_functional_apply(hr_stream *stream, hr_functional function, int input_count,
                                                 const hr_tensor *const *inputs, int attribute_count,
                                                 const hr_attribute *attributes, int result_count,
                                                 hr_tensor *out_results);

/* Applies a function of one element-wise row (multiply, sqrt) to each of `count` tuples of inputs, in one record: the
 * way to update all parameters of a network at once. Inputs are list after list: input k of tuple i is
 * inputs[k * count + i]. Each tuple has a result, as of a call of its own. Otherwise as hr_functional_apply.
 * INVALID_ARGUMENT: the function is none of one row, or the inputs are no full lists. */
HR_API HR_MUST_USE hr_status hr_functional_apply_each(hr_stream *stream, hr_functional function, int count,
                                                      int input_count, const hr_tensor *const *inputs,
                                                      hr_tensor *out_results);

/* The number of results: it depends on the arguments if docs/functional.md says so. */
HR_API HR_MUST_USE hr_status hr_functional_result_count(hr_functional function, int input_count,
                                                        const hr_tensor *const *inputs, int attribute_count,
                                                        const hr_attribute *attributes, int *out_count);

/* A function's name ("none" for a number that is no function), and the function of a name (NONE: there is none). */
HR_API const char *hr_functional_name(hr_functional function);
HR_API hr_functional hr_functional_find(const char *name);

#ifdef __cplusplus
}
#endif

#endif
