/* exponential.c: exp of square matrices by scaling and squaring with the Pade approximant of degree 13.
 *
 * N. J. Higham, The scaling and squaring method for the matrix exponential revisited, SIAM J. Matrix Anal. Appl. 26
 * (2005): with A / 2^s of 1-norm at most 5.37, r(A) = (V - U)^-1 (V + U) is exact to double precision, and exp(A) =
 * r^(2^s).
 */
#include <math.h>

#include "core/ops/op.h"
#include "providers/lapack/lapack.h"

enum { POWERS = 4 }; /* I, A^2, A^4, A^6 */
static const double NORM_MAX = 5.371920351148152;
static const double coefficients[14] = {64764752532480000,
                                        32382376266240000,
                                        7771770303897600,
                                        1187353796428800,
                                        129060195264000,
                                        10559470521600,
                                        670442572800,
                                        33522128640,
                                        1323241920,
                                        40840800,
                                        960960,
                                        16380,
                                        182,
                                        1};

/* Matrices of one size in work memory; complex ones are pairs of numbers to the loops below. */
typedef struct bench {
  hr__matrices m;
  void *a, *powers[POWERS], *u, *v, *t;
  int *pivots;
} bench;

static void multiply(const bench *b, const void *left, const void *right, void *out) {
  int n = b->m.rows, kind = b->m.kind;
  hr__lapack()->ALL_gemm[kind]("N", "N", &n, &n, &n, hr__lapack_one(kind), left, &n, right, &n, hr__lapack_zero(kind),
                               out, &n, 1, 1);
}

/* out = sum of weights[i] * powers[i], + out if `adds`. */
static void combine(const bench *b, const double *weights, bool adds, void *out) {
  int64_t count = b->m.count * (b->m.kind >= 2 ? 2 : 1);
#define COMBINE(type)                                            \
  for (int64_t i = 0; i < count; ++i) {                          \
    type sum = adds ? ((type *)out)[i] : 0;                      \
    for (int p = 0; p < POWERS; ++p) {                           \
      sum += (type)weights[p] * ((const type *)b->powers[p])[i]; \
    }                                                            \
    ((type *)out)[i] = sum;                                      \
  }
  if ((b->m.kind & 1) != 0) {
    COMBINE(double)
  } else {
    COMBINE(float)
  }
#undef COMBINE
}

/* out = a * x + b * y */
static void blend(const bench *bench_, double a, const void *x, double b, const void *y, void *out) {
  int64_t count = bench_->m.count * (bench_->m.kind >= 2 ? 2 : 1);
#define BLEND(type)                                                                     \
  for (int64_t i = 0; i < count; ++i) {                                                 \
    ((type *)out)[i] = (type)a * ((const type *)x)[i] + (type)b * ((const type *)y)[i]; \
  }
  if ((bench_->m.kind & 1) != 0) {
    BLEND(double)
  } else {
    BLEND(float)
  }
#undef BLEND
}

static double element_size(const bench *b, int64_t i) {
  switch (b->m.kind) {
    case 0:
      return fabsf(((const float *)b->a)[i]);
    case 1:
      return fabs(((const double *)b->a)[i]);
    case 2:
      return hypot(((const hr_c64 *)b->a)[i].re, ((const hr_c64 *)b->a)[i].im);
    default:
      return hypot(((const hr_c128 *)b->a)[i].re, ((const hr_c128 *)b->a)[i].im);
  }
}

/* The largest sum of a column; NaN if an element is NaN. */
static double norm(const bench *b) {
  double largest = 0;
  for (int64_t column = 0; column < b->m.columns; ++column) {
    double sum = 0;
    for (int64_t row = 0; row < b->m.rows; ++row) {
      sum += element_size(b, column * b->m.rows + row);
    }
    largest = sum > largest || sum != sum ? sum : largest;
    if (largest != largest) {
      break;
    }
  }
  return largest;
}

static void set_identity(const bench *b, void *out) {
  memset(out, 0, (size_t)(b->m.count * b->m.size));
  for (int64_t i = 0; i < b->m.rows; ++i) {
    memcpy((char *)out + i * (b->m.rows + 1) * b->m.size, hr__lapack_one(b->m.kind), (size_t)b->m.size);
  }
}

static void set_nan(const bench *b, void *out) {
  int64_t count = b->m.count * (b->m.kind >= 2 ? 2 : 1);
  for (int64_t i = 0; i < count; ++i) {
    if ((b->m.kind & 1) != 0) {
      ((double *)out)[i] = NAN;
    } else {
      ((float *)out)[i] = NAN;
    }
  }
}

/* U = A (A^6 (b13 A^6 + b11 A^4 + b9 A^2) + b7 A^6 + b5 A^4 + b3 A^2 + b1 I); V the same of even degrees without A. */
static void make_sides(const bench *b) {
  const double *c = coefficients;
  combine(b, (const double[]){0, c[9], c[11], c[13]}, false, b->u);
  multiply(b, b->powers[3], b->u, b->t);
  combine(b, (const double[]){c[1], c[3], c[5], c[7]}, true, b->t);
  multiply(b, b->a, b->t, b->u);
  combine(b, (const double[]){0, c[8], c[10], c[12]}, false, b->t);
  multiply(b, b->powers[3], b->t, b->v);
  combine(b, (const double[]){c[0], c[2], c[4], c[6]}, true, b->v);
}

static hr_status exponential(bench *b, void *out) {
  int n = b->m.rows, info = 0;
  double size = norm(b);
  if (!isfinite(size)) {
    set_nan(b, out);
    return HR_OK;
  }
  int squarings = size > NORM_MAX ? (int)ceil(log2(size / NORM_MAX)) : 0;
  blend(b, ldexp(1, -squarings), b->a, 0, b->a, b->a);
  set_identity(b, b->powers[0]);
  multiply(b, b->a, b->a, b->powers[1]);
  multiply(b, b->powers[1], b->powers[1], b->powers[2]);
  multiply(b, b->powers[1], b->powers[2], b->powers[3]);
  make_sides(b);
  blend(b, 1, b->v, -1, b->u, b->t);
  blend(b, 1, b->v, 1, b->u, b->v);
  hr__lapack()->ALL_getrf[b->m.kind](&n, &n, b->t, &n, b->pivots, &info);
  HR_RETURN_IF_ERROR(hr__info_check("getrf", info));
  hr__lapack()->ALL_getrs[b->m.kind]("N", &n, &n, b->t, &n, b->pivots, b->v, &n, &info, 1);
  HR_RETURN_IF_ERROR(hr__info_check("getrs", info));
  for (int i = 0; i < squarings; ++i) {
    void *swap = b->v;
    multiply(b, b->v, b->v, b->u);
    b->v = b->u;
    b->u = swap;
  }
  memcpy(out, b->v, (size_t)(b->m.count * b->m.size));
  return HR_OK;
}

static hr_status exponentials(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  bench b = {.m = hr__matrices_of(&call->inputs[0])};
  size_t bytes = (size_t)(b.m.count * b.m.size);
  void **const places[] = {&b.a, &b.powers[0], &b.powers[1], &b.powers[2], &b.powers[3], &b.u, &b.v, &b.t};
  hr__work work;
  HR_RETURN_IF_ERROR(hr__work_begin(&work, (bytes + 64) * 8 + (size_t)b.m.rows * sizeof(int)));
  for (int i = 0; i < 8; ++i) {
    *places[i] = hr__work_take(&work, bytes);
  }
  b.pivots = hr__work_take(&work, (size_t)b.m.rows * sizeof(int));
  hr_status status = HR_OK;
  for (int64_t item = begin; item < end && status == HR_OK; ++item) {
    memcpy(b.a, hr__item(&call->inputs[0], item, b.m.count), bytes);
    status = exponential(&b, hr__item(&call->outputs[0], item, b.m.count));
  }
  hr__work_end(&work);
  return status;
}

hr_status hr__lapack_matrix_exp(const hr__library_call *call) {
  hr__matrices m = hr__matrices_of(&call->inputs[0]);
  return hr__lapack_each(call, hr__items(&call->inputs[0], 2), hr__cube(&m) * 20, exponentials);
}
