/* op.h: the operations, and the types of their results. Generated from src/core/ops/ops.def by
 * scripts/make_op_header.py; do not edit. */
#ifndef HEADRACE_OP_H_
#define HEADRACE_OP_H_

#include <stdbool.h>

#include "headrace/dtype.h"
#include "headrace/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HR_RANK_MAX = 16 }; /* dimensions of a tensor at most */

typedef enum hr_op {
  HR_OP_NONE = 0,
  HR_OP_COPY,                           /* a, converted to the output's dtype by C's rules (bool: a != 0) */
  HR_OP_REAL,                           /* real part */
  HR_OP_IMAG,                           /* imaginary part */
  HR_OP_CONJ,                           /* complex conjugate */
  HR_OP_ADD,                            /* a + b; integers wrap */
  HR_OP_SUB,                            /* a - b */
  HR_OP_MUL,                            /* a * b */
  HR_OP_DIV,                            /* a / b, true division */
  HR_OP_DIV_TRUNC,                      /* a / b rounded towards zero; integer a / 0 is 0 */
  HR_OP_DIV_FLOOR,                      /* a / b rounded down, like Python's //; integer a // 0 is 0 */
  HR_OP_REMAINDER,                      /* a - b * (a // b), like Python's %; integer a % 0 is 0 */
  HR_OP_FMOD,                           /* remainder with the sign of a, like C's fmod; integer: 0 for b = 0 */
  HR_OP_POW,                            /* a to the power b; negative powers of integers are truncated */
  HR_OP_ATAN2,                          /* angle of the point (b, a) */
  HR_OP_HYPOT,                          /* sqrt(a*a + b*b) without overflow */
  HR_OP_MAXIMUM,                        /* the larger one; NaN if either is NaN */
  HR_OP_MINIMUM,                        /* the smaller one; NaN if either is NaN */
  HR_OP_FMAX,                           /* the larger one; a number beats NaN */
  HR_OP_FMIN,                           /* the smaller one; a number beats NaN */
  HR_OP_ADD_SCALED,                     /* a + c * b */
  HR_OP_SUB_SCALED,                     /* a - c * b */
  HR_OP_RSUB_SCALED,                    /* b - c * a */
  HR_OP_SCALE_ADD,                      /* c * a + d * b */
  HR_OP_LERP,                           /* a + c * (b - a), from the nearer end */
  HR_OP_ADDCMUL,                        /* a + d * b * c */
  HR_OP_ADDCDIV,                        /* a + d * b / c */
  HR_OP_NEG,                            /* -a */
  HR_OP_ABS,                            /* absolute value */
  HR_OP_ABS_COMPLEX,                    /* absolute value of a complex number */
  HR_OP_ANGLE_COMPLEX,                  /* angle of a complex number */
  HR_OP_SIGN,                           /* -1, 0 or 1; 0 for NaN */
  HR_OP_ANGLE,                          /* pi for negative numbers, else 0 */
  HR_OP_COMPLEX,                        /* a + i b for real a and b */
  HR_OP_POLAR,                          /* the complex number of absolute value a and angle b */
  HR_OP_COPYSIGN,                       /* a with the sign of b */
  HR_OP_NEXTAFTER,                      /* the next representable number after a towards b */
  HR_OP_HEAVISIDE,                      /* 0 below zero, 1 above, b at zero */
  HR_OP_GCD,                            /* greatest common divisor, non-negative */
  HR_OP_LCM,                            /* least common multiple, non-negative */
  HR_OP_NAN_TO_NUM,                     /* b for NaN, c for +infinity, d for -infinity, else a */
  HR_OP_FREXP_MANTISSA,                 /* m in a = m 2^e with 0.5 <= |m| < 1 */
  HR_OP_FREXP_EXPONENT,                 /* e in a = m 2^e; 0 if a is not finite */
  HR_OP_SQUARE,                         /* a * a */
  HR_OP_RECIPROCAL,                     /* 1 / a */
  HR_OP_SQRT,                           /* square root */
  HR_OP_RSQRT,                          /* 1 / sqrt(a) */
  HR_OP_FLOOR,                          /* rounded down */
  HR_OP_CEIL,                           /* rounded up */
  HR_OP_ROUND,                          /* rounded to nearest, ties to even */
  HR_OP_TRUNC,                          /* rounded towards zero */
  HR_OP_FRAC,                           /* a - trunc(a) */
  HR_OP_EXP,                            /* e to the power a */
  HR_OP_EXP2,                           /* 2 to the power a */
  HR_OP_EXPM1,                          /* exp(a) - 1 */
  HR_OP_LOG,                            /* natural logarithm */
  HR_OP_LOG2,                           /* logarithm to base 2 */
  HR_OP_LOG10,                          /* logarithm to base 10 */
  HR_OP_LOG1P,                          /* log(1 + a) */
  HR_OP_SIN,                            /* sine */
  HR_OP_COS,                            /* cosine */
  HR_OP_TAN,                            /* tangent */
  HR_OP_ASIN,                           /* inverse sine */
  HR_OP_ACOS,                           /* inverse cosine */
  HR_OP_ATAN,                           /* inverse tangent */
  HR_OP_SINH,                           /* hyperbolic sine */
  HR_OP_COSH,                           /* hyperbolic cosine */
  HR_OP_TANH,                           /* hyperbolic tangent */
  HR_OP_ASINH,                          /* inverse hyperbolic sine */
  HR_OP_ACOSH,                          /* inverse hyperbolic cosine */
  HR_OP_ATANH,                          /* inverse hyperbolic tangent */
  HR_OP_ERF,                            /* error function */
  HR_OP_ERFC,                           /* 1 - erf(a) */
  HR_OP_SIGMOID,                        /* 1 / (1 + exp(-a)) */
  HR_OP_RELU,                           /* a if a > 0 (or NaN), else 0 */
  HR_OP_THRESHOLD,                      /* c if a <= b, else a */
  HR_OP_THRESHOLD_BACKWARD,             /* g if x > threshold, else 0; inputs g, x, threshold */
  HR_OP_CLAMP,                          /* a bounded to [b, c]; NaN stays */
  HR_OP_LEAKY_RELU,                     /* a if a > 0, else b * a */
  HR_OP_LEAKY_RELU_BACKWARD,            /* inputs g, x, slope */
  HR_OP_ELU,                            /* inputs x, alpha, scale, input scale */
  HR_OP_SOFTSHRINK,                     /* a moved by b towards 0; 0 inside [-b, b] */
  HR_OP_SHRINK_BACKWARD,                /* gradient of softshrink and hardshrink; inputs g, x, lambda */
  HR_OP_HARDSHRINK,                     /* 0 inside [-b, b], else a */
  HR_OP_HARDTANH_BACKWARD,              /* inputs g, x, lower, upper */
  HR_OP_GELU,                           /* a times the normal distribution function of a */
  HR_OP_GELU_TANH,                      /* tanh approximation of gelu */
  HR_OP_GELU_BACKWARD,                  /* inputs g, x */
  HR_OP_GELU_TANH_BACKWARD,             /* inputs g, x */
  HR_OP_SILU,                           /* a * sigmoid(a) */
  HR_OP_SILU_BACKWARD,                  /* inputs g, x */
  HR_OP_SIGMOID_BACKWARD,               /* inputs g, y */
  HR_OP_TANH_BACKWARD,                  /* inputs g, y */
  HR_OP_SOFTPLUS,                       /* inputs x, beta, threshold */
  HR_OP_SOFTPLUS_BACKWARD,              /* inputs g, x, beta, threshold */
  HR_OP_HARDSIGMOID,                    /* (a + 3) / 6 bounded to [0, 1] */
  HR_OP_HARDSIGMOID_BACKWARD,           /* inputs g, x */
  HR_OP_HARDSWISH,                      /* a * hardsigmoid(a) */
  HR_OP_HARDSWISH_BACKWARD,             /* inputs g, x */
  HR_OP_MISH,                           /* a * tanh(softplus(a)) */
  HR_OP_GLU,                            /* a * sigmoid(b) */
  HR_OP_GLU_BACKWARD,                   /* gradient of glu by b; inputs g, a, b */
  HR_OP_BCE,                            /* binary cross entropy of one element, with logarithms of at least -100; inputs
                                         * x, target */
  HR_OP_BCE_BACKWARD,                   /* inputs g, x, target */
  HR_OP_SMOOTH_L1,                      /* inputs x, target, beta */
  HR_OP_HUBER,                          /* inputs x, target, delta */
  HR_OP_EQ,                             /* a == b */
  HR_OP_NE,                             /* a != b */
  HR_OP_LT,                             /* a < b */
  HR_OP_LE,                             /* a <= b */
  HR_OP_GT,                             /* a > b */
  HR_OP_GE,                             /* a >= b */
  HR_OP_IS_NAN,                         /* true if a is NaN */
  HR_OP_IS_INF,                         /* true if a is infinite */
  HR_OP_IS_POSINF,                      /* true if a is +infinity */
  HR_OP_IS_NEGINF,                      /* true if a is -infinity */
  HR_OP_SIGNBIT,                        /* true if the sign bit is set */
  HR_OP_LOGICAL_AND,                    /* true if both are true */
  HR_OP_LOGICAL_OR,                     /* true if either is true */
  HR_OP_LOGICAL_XOR,                    /* true if exactly one is true */
  HR_OP_LOGICAL_NOT,                    /* true if a is false */
  HR_OP_BIT_AND,                        /* bitwise and */
  HR_OP_BIT_OR,                         /* bitwise or */
  HR_OP_BIT_XOR,                        /* bitwise exclusive or */
  HR_OP_BIT_NOT,                        /* bitwise not; bool: use logical_not */
  HR_OP_SHIFT_LEFT,                     /* a << b; 0 if b is not below the width */
  HR_OP_SHIFT_RIGHT,                    /* a >> b, arithmetic; all sign bits if b is not below the width */
  HR_OP_WHERE,                          /* b if a, else c */
  HR_OP_LGAMMA,                         /* logarithm of the absolute value of the gamma function */
  HR_OP_DIGAMMA,                        /* derivative of lgamma */
  HR_OP_TRIGAMMA,                       /* derivative of digamma */
  HR_OP_POLYGAMMA,                      /* a-th derivative of digamma at b */
  HR_OP_ZETA,                           /* Hurwitz's zeta function of a and b */
  HR_OP_IGAMMA,                         /* regularised lower incomplete gamma function */
  HR_OP_IGAMMAC,                        /* regularised upper incomplete gamma function */
  HR_OP_ERFINV,                         /* inverse of erf */
  HR_OP_ERFCX,                          /* exp(a * a) * erfc(a) */
  HR_OP_NDTRI,                          /* inverse of the normal distribution function */
  HR_OP_LOG_NDTR,                       /* logarithm of the normal distribution function */
  HR_OP_ENTR,                           /* -a * log(a) */
  HR_OP_XLOGY,                          /* a * log(b), 0 for a = 0 */
  HR_OP_XLOG1PY,                        /* a * log(1 + b), 0 for a = 0 */
  HR_OP_LOGADDEXP,                      /* log(exp(a) + exp(b)) */
  HR_OP_LOGADDEXP2,                     /* log2(2^a + 2^b) */
  HR_OP_SINC,                           /* sin(pi a) / (pi a) */
  HR_OP_LOGIT,                          /* log(a / (1 - a)) */
  HR_OP_LOGIT_BACKWARD,                 /* inputs g, x, eps, and the gradient outside [eps, 1 - eps] */
  HR_OP_I0,                             /* modified Bessel function of the first kind, order 0 */
  HR_OP_I0E,                            /* exp(-|a|) * i0(a) */
  HR_OP_I1,                             /* modified Bessel function of the first kind, order 1 */
  HR_OP_I1E,                            /* exp(-|a|) * i1(a) */
  HR_OP_MODIFIED_BESSEL_K0,             /* modified Bessel function of the second kind, order 0 */
  HR_OP_MODIFIED_BESSEL_K1,             /* modified Bessel function of the second kind, order 1 */
  HR_OP_SCALED_MODIFIED_BESSEL_K0,      /* exp(a) * modified_bessel_k0(a) */
  HR_OP_SCALED_MODIFIED_BESSEL_K1,      /* exp(a) * modified_bessel_k1(a) */
  HR_OP_BESSEL_J0,                      /* Bessel function of the first kind, order 0 */
  HR_OP_BESSEL_J1,                      /* Bessel function of the first kind, order 1 */
  HR_OP_BESSEL_Y0,                      /* Bessel function of the second kind, order 0 */
  HR_OP_BESSEL_Y1,                      /* Bessel function of the second kind, order 1 */
  HR_OP_SPHERICAL_BESSEL_J0,            /* sin(a) / a */
  HR_OP_AIRY_AI,                        /* Airy function Ai */
  HR_OP_CHEBYSHEV_POLYNOMIAL_T,         /* Chebyshev polynomial of the first kind, of degree b, at a */
  HR_OP_CHEBYSHEV_POLYNOMIAL_U,         /* Chebyshev polynomial of the second kind, of degree b, at a */
  HR_OP_CHEBYSHEV_POLYNOMIAL_V,         /* Chebyshev polynomial of the third kind, of degree b, at a */
  HR_OP_CHEBYSHEV_POLYNOMIAL_W,         /* Chebyshev polynomial of the fourth kind, of degree b, at a */
  HR_OP_SHIFTED_CHEBYSHEV_POLYNOMIAL_T, /* Chebyshev polynomial of the first kind, of degree b, at 2 a - 1 */
  HR_OP_SHIFTED_CHEBYSHEV_POLYNOMIAL_U, /* Chebyshev polynomial of the second kind, of degree b, at 2 a - 1 */
  HR_OP_SHIFTED_CHEBYSHEV_POLYNOMIAL_V, /* Chebyshev polynomial of the third kind, of degree b, at 2 a - 1 */
  HR_OP_SHIFTED_CHEBYSHEV_POLYNOMIAL_W, /* Chebyshev polynomial of the fourth kind, of degree b, at 2 a - 1 */
  HR_OP_HERMITE_POLYNOMIAL_H,           /* Hermite polynomial (physicists') of degree b at a */
  HR_OP_HERMITE_POLYNOMIAL_HE,          /* Hermite polynomial (probabilists') of degree b at a */
  HR_OP_LAGUERRE_POLYNOMIAL_L,          /* Laguerre polynomial of degree b at a */
  HR_OP_LEGENDRE_POLYNOMIAL_P,          /* Legendre polynomial of degree b at a */
  HR_OP_SAMPLE_POISSON,                 /* sample of the Poisson distribution with rate a; b in [0, 1) is its key of 53
                                         * random bits */
  HR_OP_SAMPLE_BINOMIAL,                /* sample of the binomial distribution: successes of a trials with probability
                                         * b; c is the key */
  HR_OP_SAMPLE_GAMMA,                   /* sample of the gamma distribution with shape a and scale 1; b is the key */
  HR_OP_PHILOX_BITS,                    /* 63 random bits */
  HR_OP_PHILOX_WORDS,                   /* word a of Philox 4x32-10 with the key b and the counter c + 2^64 d; in 64
                                         * bits words 2a and, as the upper half, 2a + 1 */
  HR_OP_THREEFRY_FIRST,                 /* the first word of the block that Threefry 2x32-20 makes of the words c and d
                                         * with the key a and b */
  HR_OP_THREEFRY_SECOND,                /* the second word of that block */
  HR_OP_PHILOX_UNIFORM,                 /* uniform in [0, 1): 24 bits (f32), 53 bits (f64) */
  HR_OP_PHILOX_NORMAL,                  /* standard normal, by Box and Muller */
  HR_OP_SUM,                            /* sum; an empty real sum starts from -0 and is stored as 0 */
  HR_OP_PROD,                           /* product */
  HR_OP_AMAX,                           /* largest element; NaN if any is NaN */
  HR_OP_AMIN,                           /* smallest element; NaN if any is NaN */
  HR_OP_ANY,                            /* true if any element is true; computed in bool */
  HR_OP_ALL,                            /* true if all elements are true; computed in bool */
  HR_OP_XOR,                            /* exclusive or of the bits */
  HR_OP_ARGMAX,                         /* index of the largest element */
  HR_OP_ARGMIN,                         /* index of the smallest element */
  HR_OP_MATMUL,                         /* in: a [.., M, K], b [.., K, N], bias? (broadcast to out); out: [.., M, N];
                                         * batch dims equal or broadcast */
  HR_OP_CONV,                           /* in: x [N, C, ..], w [O, C/g, ..], bias? [O]; ints: conv; out: y [N, O, ..] */
  HR_OP_CONV_BACKWARD_DATA,             /* in: dy, w, bias? [C] (a transposed convolution's); ints: conv; out: dx */
  HR_OP_CONV_BACKWARD_WEIGHT,           /* in: x, dy; ints: conv; out: dw */
  HR_OP_QUANTIZED_MATMUL,               /* x times w, transposed, w = scale * number + bias; in: x [B?, M, K], numbers
                                         * u32 [B?, N, K * bits / 32], from the lowest bits on, scales, biases? [B?, N,
                                         * K / group]; ints: bits (2 to 6, 8), group (a multiple of 16, or 32 if bits do
                                         * not divide 32), columns? (0/1: numbers and scales are of w [K, N], which is
                                         * not transposed), floats? (0/1: e2m1 of 4 bits, e4m3 of 8, else integers);
                                         * out: [B?, M, N] */
  HR_OP_MEAN,                           /* in: x; ints: mask; out: like a reduction */
  HR_OP_VAR_MEAN,                       /* in: x; ints: mask, square root (0/1); scalars: correction; out: var or std,
                                         * mean?; like a reduction */
  HR_OP_NORM,                           /* in: x; ints: mask, kind? (0: any p; 1 to 5: p is 0, 1, 2, inf, -inf, which
                                         * are faster); scalars: p; out: like a reduction */
  HR_OP_LOGSUMEXP,                      /* in: x; ints: mask; out: like a reduction */
  HR_OP_SOFTMAX,                        /* in: x; ints: dim; out: y */
  HR_OP_LOG_SOFTMAX,                    /* in: x; ints: dim; out: y */
  HR_OP_SOFTMAX_BACKWARD,               /* in: dy, y; ints: dim; out: dx */
  HR_OP_LOG_SOFTMAX_BACKWARD,           /* in: dy, y; ints: dim; out: dx */
  HR_OP_LAYER_NORM,                     /* in: x, weight?, bias?; ints: number of trailing dims; scalars: eps; out: y,
                                         * mean?, rstd? (trailing dims 1) */
  HR_OP_LAYER_NORM_BACKWARD,            /* in: dy, x, mean, rstd, weight?; ints: number of trailing dims; out: dx?,
                                         * dweight?, dbias? */
  HR_OP_GROUP_NORM,                     /* in: x [N, C, ..], weight? [C], bias? [C]; ints: groups; scalars: eps; out: y,
                                         * mean? [N, G], rstd? [N, G] */
  HR_OP_GROUP_NORM_BACKWARD,            /* in: dy, x, mean, rstd, weight?; ints: groups; out: dx?, dweight?, dbias? */
  HR_OP_BATCH_NORM,                     /* in: x [N, C, ..], weight?, bias?, running mean?, running var?; ints:
                                         * training; scalars: momentum, eps; out: y, mean?, invstd?, running mean?,
                                         * running var? (new values, in place) */
  HR_OP_BATCH_NORM_BACKWARD,            /* in: dy, x, weight?, running mean?, running var?, mean?, invstd?; ints:
                                         * training; scalars: eps; out: dx?, dweight?, dbias? */
  HR_OP_NLL_LOSS,                       /* in: log p [N, C, ..] or [C], target i64 [N, ..], weight? [C]; ints:
                                         * reduction; scalars: ignore index; out: loss, total weight */
  HR_OP_NLL_LOSS_BACKWARD,              /* in: dloss, target, weight?, total weight; ints: reduction; scalars: ignore
                                         * index; out: dx [N, C, ..] or [C] */
  HR_OP_BCE_LOSS,                       /* in: x, target, weight?; ints: reduction; out: loss */
  HR_OP_BCE_LOSS_BACKWARD,              /* in: dloss, x, target, weight?; ints: reduction; out: dx */
  HR_OP_MSE_LOSS,                       /* in: x, target; ints: reduction; out: loss */
  HR_OP_MSE_LOSS_BACKWARD,              /* in: dloss, x, target; ints: reduction; out: dx */
  HR_OP_SMOOTH_L1_LOSS,                 /* in: x, target; ints: reduction; scalars: beta; out: loss */
  HR_OP_SMOOTH_L1_LOSS_BACKWARD,        /* in: dloss, x, target; ints: reduction; scalars: beta; out: dx */
  HR_OP_HUBER_LOSS,                     /* in: x, target; ints: reduction; scalars: delta; out: loss */
  HR_OP_HUBER_LOSS_BACKWARD,            /* in: dloss, x, target; ints: reduction; scalars: delta; out: dx */
  HR_OP_MAX_POOL,                       /* in: x; ints: pool; out: y, index in the plane? (i64) */
  HR_OP_MAX_POOL_BACKWARD,              /* in: dy, index; ints: pool; out: dx */
  HR_OP_AVG_POOL,                       /* in: x; ints: pool, count padding (0/1), divisor (0: the window's size); out:
                                         * y */
  HR_OP_AVG_POOL_BACKWARD,              /* in: dy; ints: as avg_pool; out: dx */
  HR_OP_ADAPTIVE_AVG_POOL,              /* in: x; ints: n; out: y */
  HR_OP_ADAPTIVE_AVG_POOL_BACKWARD,     /* in: dy; ints: n; out: dx */
  HR_OP_ADAPTIVE_MAX_POOL,              /* in: x; ints: n; out: y, index in the plane? (i64) */
  HR_OP_UPSAMPLE_NEAREST2D,             /* in: x; ints: exact (0/1); scalars: scale h, scale w (0: from the sizes); out:
                                         * y */
  HR_OP_UPSAMPLE_NEAREST2D_BACKWARD,    /* in: dy; ints, scalars: as forward; out: dx */
  HR_OP_UPSAMPLE_BILINEAR2D,            /* in: x; ints: align corners; scalars: scale h, scale w (0: from the sizes);
                                         * out: y */
  HR_OP_UPSAMPLE_BILINEAR2D_BACKWARD,   /* in: dy; ints, scalars: as forward; out: dx */
  HR_OP_CAT,                            /* in: any number of x; ints: dim; out: y */
  HR_OP_PAD,                            /* in: x; ints: before[rank], after[rank] (negative crops); scalars: fill; out:
                                         * y */
  HR_OP_PAD_BORDER,                     /* in: x; ints: kind (0 reflect, 1 replicate, 2 symmetric, 3 wrap),
                                         * before[rank], after[rank]; out: y */
  HR_OP_PAD_BORDER_BACKWARD,            /* in: dy; ints: as pad_border; out: dx */
  HR_OP_INDEX_SELECT,                   /* in: x, index (any rank); ints: dim; out: x.dims[:dim] + index.dims +
                                         * x.dims[dim+1:] */
  HR_OP_GATHER,                         /* in: x, index; ints: dim; out: like index */
  HR_OP_SCATTER,                        /* in: index, source (tensor or number); ints: dim, mode (0 set, 1 add, 2
                                         * multiply, 3 max, 4 min), error of an index out of range (0: invalid argument,
                                         * 1: out of range, 2: none, as all are known to be in range); out: y, written
                                         * in place */
  HR_OP_INDEX,                          /* in: x, index of each indexed dim (equal ranks, broadcast); ints: mask of
                                         * indexed dims, position of the index dims in the output; out: y */
  HR_OP_INDEX_PUT,                      /* in: values (broadcast to the selection), index of each indexed dim; ints:
                                         * mask, position, accumulate; out: y, written in place */
  HR_OP_INDEX_ADD,                      /* in: index (rank 1), source; ints: dim; scalars: alpha; out: y, written in
                                         * place */
  HR_OP_EMBEDDING_BACKWARD,             /* in: dy [.., E], index; ints: padding index (-1: none), scale by frequency
                                         * (0/1); out: dweight [V, E] */
  HR_OP_TRI,                            /* in: x [.., R, C]; ints: upper (0/1); scalars: diagonal; out: y */
  HR_OP_ARANGE,                         /* scalars: start, step; out: y (rank 1) */
  HR_OP_EYE,                            /* out: y [R, C] */
  HR_OP_CUMSUM,                         /* in: x; ints: dim; out: y */
  HR_OP_CUMPROD,                        /* in: x; ints: dim; out: y */
  HR_OP_LOGCUMSUMEXP,                   /* in: x; ints: dim; out: y, the log of running sums of exp(x) */
  HR_OP_DROPOUT,                        /* in: x; scalars: p, seed, offset; out: y, mask (bool) */
  HR_OP_UNIFORM,                        /* scalars: from, to, seed, offset; out: y */
  HR_OP_NORMAL,                         /* in: mean?, std? (broadcast to out); scalars: mean, std, seed, offset; out: y
                                         */
  HR_OP_BERNOULLI,                      /* in: p? (tensor or absent); scalars: p, seed, offset; out: y */
  HR_OP_RANDOM_INT,                     /* scalars: from, to (exclusive), seed, offset; out: y */
  HR_OP_EXPONENTIAL,                    /* scalars: lambda, seed, offset; out: y */
  HR_OP_LSTM_CELL,                      /* in: input gates [N, 4H], hidden gates [N, 4H], c [N, H], input bias? [4H],
                                         * hidden bias? [4H]; out: h, c, workspace [N, 4H] (i, f, g, o after activation)
                                         */
  HR_OP_LSTM_CELL_BACKWARD,             /* in: dh?, dc?, c before, c after, workspace; out: dgates [N, 4H], dc before */
  HR_OP_GRU_CELL,                       /* in: input gates [N, 3H], hidden gates [N, 3H], h [N, H], input bias? [3H],
                                         * hidden bias? [3H]; out: h, workspace [N, 5H] (r, z, n, h, hidden n + bias) */
  HR_OP_GRU_CELL_BACKWARD,              /* in: dh, workspace [N, 5H]; out: dinput gates [N, 3H], dhidden gates [N, 3H],
                                         * dh before */
  HR_OP_LSTM,                           /* a layer of lstm_cell over T steps; in: input gates [T, N, 4H] (biases
                                         * included), h, c [N, H], weight [4H, H]; ints: reverse (0/1: from the last
                                         * step to the first); out: h [T, N, H], c? [T, N, H], workspace? [T, N, 4H],
                                         * last h?, last c? [N, H] */
  HR_OP_LSTM_BACKWARD,                  /* in: dh? [T, N, H], of the last h? and c? [N, H], c before [N, H], c [T, N,
                                         * H], workspace, weight; ints: reverse; out: dgates [T, N, 4H], dh before?, dc
                                         * before? */
  HR_OP_GRU,                            /* a layer of gru_cell over T steps; in: input gates [T, N, 3H] (input bias
                                         * included), h [N, H], weight [3H, H], hidden bias? [3H]; ints: reverse (0/1);
                                         * out: h [T, N, H], workspace? [T, N, 5H], last h? */
  HR_OP_GRU_BACKWARD,                   /* in: dh? [T, N, H], of the last h? [N, H], workspace [T, N, 5H], weight; ints:
                                         * reverse; out: dinput gates [T, N, 3H], dhidden gates [T, N, 3H], dh before?
                                         */
  HR_OP_ATTENTION,                      /* in: q [B, H, L, E], k [B, H, S, E], v [B, H, S, V], mask? (bool or added;
                                         * broadcast to [B, H, L, S]); ints: causal; scalars: scale, and with dropout p,
                                         * seed, offset, or the score of what a bool mask hides (then rows of -inf give
                                         * NaN, else 0); out: y, log-sum-exp? [B, H, L] */
  HR_OP_ATTENTION_BACKWARD,             /* in: dy, q, k, v, mask?, y, log-sum-exp; ints: causal; scalars: as attention;
                                         * out: dq?, dk?, dv?, dmask? */
  HR_OP_ADAM,                           /* in: n gradients, n steps (f32, already advanced), lr? tensor, gradient
                                         * scale?, found inf?; ints: decoupled decay (AdamW), maximize, amsgrad;
                                         * scalars: lr, beta1, beta2, weight decay, eps; out, in place: n each of
                                         * parameter, mean, mean square, maximal mean square (amsgrad) */
  HR_OP_SGD,                            /* in: n gradients, lr? tensor, gradient scale?, found inf?; ints: nesterov,
                                         * maximize, first step, with momentum; scalars: weight decay, momentum, lr,
                                         * dampening; out, in place: n parameters, n momentum buffers (with momentum) */
  HR_OP_SORT,                           /* sorted values and their indices, stable; ints: descending (0/1) */
  HR_OP_TOPK,                           /* the K largest or smallest values in order, and their indices; ints: largest
                                         * (0/1) */
  HR_OP_KTH,                            /* the value that has K smaller ones, and its index; ints: kind (0: K as given,
                                         * 1: median, NaN if any is NaN, 2: median without NaN), K */
  HR_OP_MODE,                           /* the most frequent value (the smallest of several), and its last index */
  HR_OP_UNIQUE,                         /* the distinct ones of N rows: the first index of each, the number of each row
                                         * among them, their counts, and how many they are; ints: consecutive (0/1; 0:
                                         * sorted) */
  HR_OP_SEARCH,                         /* the positions of values in ordered boundaries, in i32 or i64; the third input
                                         * is the boundaries' order; ints: after equal ones (0/1) */
  HR_OP_CUMMAX,                         /* the running maximum, and its last index */
  HR_OP_CUMMIN,                         /* the running minimum, and its last index */
  HR_OP_FFT,                            /* of complex numbers; ints: inverse (0/1: the sign is +), number of dims after
                                         * the transformed one; scalars: factor */
  HR_OP_FFT_REAL,                       /* of real numbers, the first N / 2 + 1 results or all N; scalars: factor */
  HR_OP_FFT_HALF,                       /* inverse with a real result, of the first N / 2 + 1 symmetric values; scalars:
                                         * factor */
  HR_OP_CHOLESKY,                       /* factor, info; ints: upper (0/1) */
  HR_OP_CHOLESKY_INVERSE,               /* inverse of the matrix with this factor, info; ints: upper (0/1) */
  HR_OP_CHOLESKY_SOLVE,                 /* in: B, factor; ints: upper (0/1) */
  HR_OP_LU,                             /* both factors, pivots from 1, info; K = min(M, N) */
  HR_OP_LU_SOLVE,                       /* in: factors, pivots, B; ints: solves with A (0), its transpose (1), its
                                         * adjoint (2) */
  HR_OP_LU_PERMUTATION,                 /* the permutation of rows from pivots */
  HR_OP_LDL,                            /* factors of the lower triangle, pivots, info; ints: Hermitian (0/1) */
  HR_OP_LDL_SOLVE,                      /* in: factors, pivots, B; ints: Hermitian (0/1) */
  HR_OP_QR,                             /* R above reflectors, their factors; K = min(M, N) */
  HR_OP_QR_PIVOTED,                     /* in: A, 0 for its free columns, others come first; R above reflectors, the
                                         * numbers of columns from 1, their factors */
  HR_OP_REFLECTORS,                     /* the first N columns of the product of K reflectors */
  HR_OP_REFLECT,                        /* in: reflectors, their factors, C; the product of the reflectors' matrix and
                                         * C; ints: from the left (0/1), adjoint (0/1) */
  HR_OP_TRIANGULAR_SOLVE,               /* in: A, B; ints: upper (0/1), solves with A (0), its transpose (1), its
                                         * adjoint (2), ones on the diagonal (0/1), A on the left (0/1) */
  HR_OP_TRIDIAGONAL_SOLVE,              /* in: diagonal below (the first element does not count), main diagonal,
                                         * diagonal above (the last does not), B; solution, the factors in the
                                         * diagonals' place, info */
  HR_OP_LEAST_SQUARES,                  /* in: A, B; solution in the first N rows of L = max(M, N), rank, singular
                                         * values; ints: LAPACK's gels (0), gelsy (1), gelsd (2), gelss (3); scalars:
                                         * rcond */
  HR_OP_SVD,                            /* U, singular values, V adjoint, info; ints: full (0/1) */
  HR_OP_EIGH,                           /* eigenvalues and vectors of a Hermitian matrix, info; ints: upper (0/1) */
  HR_OP_EIG,                            /* eigenvalues, right and left vectors, info */
  HR_OP_SCHUR,                          /* Schur form, of real matrices with blocks of 2 x 2, its vectors, eigenvalues,
                                         * info */
  HR_OP_HESSENBERG,                     /* H above reflectors, their factors; ints: the first and the last row, from 1,
                                         * outside of which A is upper triangular */
  HR_OP_TRIDIAGONAL,                    /* reflectors beside the tridiagonal form of a Hermitian matrix, its diagonal,
                                         * the one beside it, factors; ints: upper (0/1) */
  HR_OP_MATRIX_EXP,                     /* exponential */
  HR_OP_RESAMPLE,                       /* in: x; ints: dim, kind (0 nearest, 1 nearest exact, 2 linear, 3 cubic,
                                         * antialiased 4 linear, 5 cubic, 6 Lanczos), align corners, taps (of
                                         * antialiased kinds); scalars: scale (0: from the sizes); out: y */
  HR_OP_RESAMPLE_BACKWARD,              /* in: dy; ints: as resample, and the largest number of elements of dy that tap
                                         * one of dx (0: unknown); scalars: as resample; out: dx */
  HR_OP_GRID_SAMPLE,                    /* in: x [N, C, plane of n = 2 or 3 dims], grid [N, .., n] (last dim first, -1
                                         * to 1); ints: mode (0 linear, 1 nearest, 2 cubic), outside (0 zeros, 1 border,
                                         * 2 reflection), align corners; out: y [N, C, ..] */
  HR_OP_GRID_SAMPLE_BACKWARD,           /* in: dy, x, grid; ints: as grid_sample; out: dx?, dgrid? */
  HR_OP_IM2COL,                         /* in: x; ints: pool; out: y [.., kernel[n], windows[n]], 0 outside of the plane
                                         */
  HR_OP_COL2IM,                         /* in: y [.., kernel[n], windows[n]]; ints: pool; out: x, the sum of overlapping
                                         * windows */
  HR_OP_CHECK_INDEX,                    /* in: x (i64, one element: the offending index, or the smallest i64 if there is
                                         * none); ints: lower, upper (exclusive), kind of message (0, 2: index, 1:
                                         * target, 3: division by zero); fails with OUT_OF_RANGE, for kinds 2 and 3 with
                                         * INVALID_ARGUMENT */
  HR_OP_CALL,                           /* a function of the caller; in: its operands; ints: number of the kernel (0 and
                                         * below: the last input is an hr__closure of the host, whose name has this
                                         * number), number U of updated operands (outputs 0 to U - 1 begin as inputs 0
                                         * to U - 1), runs even if nobody needs its outputs (0/1; 2: so, and late; 3:
                                         * so, and short), 3 numbers of threads, 3 sizes of a group; scalars: of the
                                         * kernel */
  HR_OP_PLACES,                         /* the indices of the mask's first M true elements; -1 if there are fewer */
  HR_OP_SEGMENTS,                       /* in: x [N, C], begin [S], end [S], index? [M], factor? [M]; ints: 1 sum, 2
                                         * product, 3 largest, 4 smallest, index to skip (-1: none); scalars: start;
                                         * out: y [S, C]: combines rows begin to end - 1 of x, or of the rows listed by
                                         * index, times their factors; segments are consecutive */
  HR_OP_COUNT
} hr_op;

/* An operation's attributes; borrowed for the call. `ints` (dims, kernel sizes, flags, dtypes) are part of the
 * program; `scalars` (eps, momentum, probability, seeds) are arguments of each run. The comments of the rows above
 * give their order. */
typedef struct hr_attrs {
  int int_count, scalar_count;
  const int64_t *ints;
  const hr_scalar *scalars;
} hr_attrs;

/* The type of a tensor: a dtype, and for each of `rank` dims its size and its stride, both in elements. The caller
 * owns it; it points to nothing. A zeroed type is that of an absent operand. */
typedef struct hr_tensor_type {
  hr_dtype dtype; /* HR_DTYPE_NONE: absent (input), or to be inferred (output) */
  bool is_number; /* an input that is a number of the host: rank 0; BOOL, I64, U64, F64 or C128; weak in promotion */
  int rank;
  int64_t dims[HR_RANK_MAX];
  int64_t strides[HR_RANK_MAX]; /* of inputs: only element-wise operations read them */
} hr_tensor_type;

/* Infers the types of an operation's outputs from those of its inputs, for every operation of the list above.
 * Records nothing and keeps no state; any thread may call it.
 *
 * attrs: NULL or the attributes. Values of scalars are read if a size depends on them (scales of resampling).
 * inputs: input_count types, in the order of hr_stream_record's inputs.
 * outputs: output_count types, in the same order, without those at the end that the caller does not want. In and out:
 *   - dtype, on entry: NONE infers the default: PyTorch's promotion of the inputs, with numbers weak; bool for
 *     comparisons; i64 for indices and sums of integers; f32 for functions of real numbers of integers.
 *     Any other dtype is kept. It is checked for element-wise operations, reductions and library calls.
 *   - dims, on entry: rank 0 infers them. If the inputs leave a choice (docs/operators.md, column `dims`), the dims
 *     given here are used: sizes of pools with a partial window, of adaptive pools, random fills, gradients of
 *     strided windows, tensors written in place. Without them the default is used, or the call fails if there is
 *     none. Other operations ignore them.
 *   - on return: dtype, rank, dims and default strides, which are row-major. An element-wise output gets the strides
 *     of the first input that has its dims and is dense. An output that can't be computed from these inputs has
 *     dtype NONE.
 *
 * Fails with INVALID_ARGUMENT for incompatible operands or attributes, and with UNIMPLEMENTED for dtypes that the
 * operation does not support. The message names the operation, the actual and the expected value:
 * "matmul: inner sizes differ: 4 != 5". The outputs' contents are undefined then. */
HR_API HR_MUST_USE hr_status hr_op_infer(hr_op op, const hr_attrs *attrs, int input_count, const hr_tensor_type *inputs,
                                         int output_count, hr_tensor_type *outputs);

#ifdef __cplusplus
}
#endif

#endif
