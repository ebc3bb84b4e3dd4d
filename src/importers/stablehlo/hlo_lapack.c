/* hlo_lapack.c: custom calls of matrices: LAPACK's functions as JAX's CPU backend calls them, and XLA's own names.
 *
 * Operands and results are matrices of the last two dims, whatever layouts the call asks for: those are of memory
 * alone.
 */
#include "core/ir/dtype.h"
#include "importers/stablehlo/hlo.h"

/* A number, a flag or a letter of the call's configuration. */
static int64_t config(hr__hlo *hlo, const char *name) {
  int64_t number = 0;
  if (!hr__hlo_setting(hlo, name, &number)) {
    HR__HLO_WRONG(hlo, "its configuration lacks %s", name);
  }
  return number;
}

static bool is_letter(hr__hlo *hlo, const char *name, char letter) {
  return config(hlo, name) == letter;
}

/* The results of a function in another order: place[i] is the function's result that is result i of the call. */
static void set_all(hr__hlo *hlo, hr_value first, int count, const int *places) {
  for (int i = 0; i < count && first != 0; ++i) {
    hr__hlo_set(hlo, i, first + places[i]);
  }
}

/* LAPACK's info of functions that can't fail. */
static void set_zeros(hr__hlo *hlo, int index) {
  hr__vhlo_type type = hr__hlo_result_type(hlo, index);
  hr__hlo_set(hlo, index, hr__hlo_full(hlo, hr_scalar_i64(0), type.dtype, type.rank, type.dims));
}

/* ---- factors ---- */

void hr__hlo_lower_potrf(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 1, 2, 0)) {
    hr_value x =
        ADD(hlo, CHOLESKY_EX, IN(hr__hlo_input(hlo, 0)), WITH(hr__with_flag("upper", is_letter(hlo, "uplo", 'U'))));
    set_all(hlo, x, 2, (int[]){0, 1});
  }
}

void hr__hlo_lower_getrf(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 1, 3, 0)) {
    set_all(hlo, CALL(hlo, LU_FACTOR, hr__hlo_input(hlo, 0)), 3, (int[]){0, 1, 2});
  }
}

/* With pivots from 0, and the permutation that they make. */
void hr__hlo_lower_lu(hr__hlo *hlo) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0);
  if (!hr__hlo_expect(hlo, 1, 3, 0) || x.rank < 2) {
    return;
  }
  hr_value lu = CALL(hlo, LU_FACTOR, hr__hlo_input(hlo, 0));
  if (lu != 0) {
    hr_value order = ADD(hlo, LU_PERMUTATION, IN(lu + 1), WITH(hr__with_int("rows", x.dims[x.rank - 2])));
    hr__hlo_set(hlo, 0, lu);
    hr__hlo_set(hlo, 1, CALL(hlo, SUBTRACT, lu + 1, hr__hlo_whole(hlo, 1)));
    hr__hlo_set(hlo, 2, hr__hlo_cast(hlo, order, HR_DTYPE_I32));
  }
}

/* Of the package headrace-jax: pivots from 0, the attribute `rows`. Negative ones count from the end, as JAX's indices
 * do. */
void hr__hlo_lower_lu_permutation(hr__hlo *hlo) {
  int64_t rows = config(hlo, "rows");
  if (hr__hlo_expect(hlo, 1, 1, 0) && !hr__hlo_failed(hlo)) {
    hr_value from = hr__hlo_cast(hlo, hr__hlo_input(hlo, 0), HR_DTYPE_I32);
    hr_value back = CALL(hlo, ADD, from, hr__hlo_whole(hlo, rows));
    from = CALL(hlo, WHERE, CALL(hlo, LESS, from, hr__hlo_whole(hlo, 0)), back, from);
    hr_value pivots = CALL(hlo, ADD, from, hr__hlo_whole(hlo, 1));
    hr_value order = ADD(hlo, LU_PERMUTATION, IN(pivots), WITH(hr__with_int("rows", rows)));
    hr__hlo_set(hlo, 0, hr__hlo_cast(hlo, order, hr__hlo_result_type(hlo, 0).dtype));
  }
}

void hr__hlo_lower_geqrf(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 1, 2, 0)) {
    set_all(hlo, CALL(hlo, GEQRF, hr__hlo_input(hlo, 0)), 2, (int[]){0, 1});
  }
}

void hr__hlo_lower_geqp3(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 2, 3, 0)) {
    set_all(hlo, CALL(hlo, GEQP3, hr__hlo_input(hlo, 0), hr__hlo_input(hlo, 1)), 3, (int[]){0, 1, 2});
  }
}

void hr__hlo_lower_orgqr(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 2, 1, 0)) {
    hr__hlo_set(hlo, 0, CALL(hlo, HOUSEHOLDER_PRODUCT, hr__hlo_input(hlo, 0), hr__hlo_input(hlo, 1)));
  }
}

void hr__hlo_lower_ormqr(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 3, 1, 0)) {
    hr__hlo_set(hlo, 0,
                ADD(hlo, ORMQR, IN(hr__hlo_input(hlo, 0), hr__hlo_input(hlo, 1), hr__hlo_input(hlo, 2)),
                    WITH(hr__with_flag("left", config(hlo, "left") != 0),
                         hr__with_flag("transpose", config(hlo, "transpose") != 0))));
  }
}

void hr__hlo_lower_gehrd(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 1, 3, 0)) {
    hr_value x = ADD(hlo, HESSENBERG, IN(hr__hlo_input(hlo, 0)),
                     WITH(hr__with_int("low", config(hlo, "low")), hr__with_int("high", config(hlo, "high"))));
    set_all(hlo, x, 2, (int[]){0, 1});
    set_zeros(hlo, 2);
  }
}

void hr__hlo_lower_sytrd(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 1, 5, 0)) {
    const char *triangle = is_letter(hlo, "uplo", 'U') ? "U" : "L";
    hr_value x = ADD(hlo, TRIDIAGONAL, IN(hr__hlo_input(hlo, 0)), WITH(hr__with_text("UPLO", triangle)));
    set_all(hlo, x, 4, (int[]){0, 1, 2, 3});
    set_zeros(hlo, 4);
  }
}

/* ---- systems ---- */

void hr__hlo_lower_trsm(hr__hlo *hlo) {
  hr__hlo_triangle t = {.is_upper = is_letter(hlo, "uplo", 'U'),
                        .has_ones = is_letter(hlo, "diag", 'U'),
                        .is_left = is_letter(hlo, "side", 'L'),
                        .transposition = is_letter(hlo, "trans_x", 'T')   ? 1
                                         : is_letter(hlo, "trans_x", 'C') ? 2
                                                                          : 0};
  if (hr__hlo_expect(hlo, 2, 1, 0)) {
    hr_dtype dtype = hr__hlo_result_type(hlo, 0).dtype;
    hr__hlo_set(hlo, 0, hr__hlo_triangular(hlo, hr__hlo_input(hlo, 0), hr__hlo_input(hlo, 1), dtype, &t));
  }
}

void hr__hlo_lower_gtsv(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 4, 5, 0)) {
    hr_value x = CALL(hlo, TRIDIAGONAL_SOLVE, hr__hlo_input(hlo, 0), hr__hlo_input(hlo, 1), hr__hlo_input(hlo, 2),
                      hr__hlo_input(hlo, 3));
    set_all(hlo, x, 5, (int[]){1, 2, 3, 0, 4});
  }
}

/* ---- values ---- */

/* The first result is memory that LAPACK overwrites: here it is the operand. */
void hr__hlo_lower_gesdd(hr__hlo *hlo) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0), u = hr__hlo_result_type(hlo, 2), v = hr__hlo_result_type(hlo, 3);
  if (!hr__hlo_expect(hlo, 1, 5, 0) || x.rank < 2 || u.rank != x.rank || v.rank != x.rank) {
    return;
  }
  int rows = x.rank - 2, columns = x.rank - 1;
  bool is_full = u.dims[columns] == x.dims[rows] && v.dims[rows] == x.dims[columns];
  hr_value parts = ADD(hlo, SVD_EX, IN(hr__hlo_input(hlo, 0)), WITH(hr__with_flag("full_matrices", is_full)));
  set_all(hlo, parts, 5, (int[]){0, 1, 0, 2, 3});
  hr__hlo_set(hlo, 0, hr__hlo_input(hlo, 0));
}

void hr__hlo_lower_syevd(hr__hlo *hlo) {
  if (hr__hlo_expect(hlo, 1, 3, 0)) {
    const char *triangle = is_letter(hlo, "uplo", 'U') ? "U" : "L";
    hr_value x = ADD(hlo, EIGH_EX, IN(hr__hlo_input(hlo, 0)), WITH(hr__with_text("UPLO", triangle)));
    set_all(hlo, x, 3, (int[]){1, 0, 2});
  }
}

/* Eigenvalues, of real matrices as real and imaginary parts, from result `first` on; the number of results. */
static int set_values(hr__hlo *hlo, int first, hr_value values) {
  if (hr_dtype_is_complex(hr__hlo_input_type(hlo, 0).dtype)) {
    hr__hlo_set(hlo, first, values);
    return 1;
  }
  hr__hlo_set(hlo, first, CALL(hlo, REAL, values));
  hr__hlo_set(hlo, first + 1, CALL(hlo, IMAG, values));
  return 2;
}

void hr__hlo_lower_geev(hr__hlo *hlo) {
  enum { VALUES, RIGHT, LEFT, INFO };
  bool is_complex = hr_dtype_is_complex(hr__hlo_input_type(hlo, 0).dtype);
  hr_value x = hr__hlo_expect(hlo, 1, is_complex ? 4 : 5, 0) ? CALL(hlo, EIG_EX, hr__hlo_input(hlo, 0)) : 0;
  if (x != 0) {
    int next = set_values(hlo, 0, x + VALUES);
    hr__hlo_set(hlo, next, x + LEFT);
    hr__hlo_set(hlo, next + 1, x + RIGHT);
    hr__hlo_set(hlo, next + 2, x + INFO);
  }
}

void hr__hlo_lower_gees(hr__hlo *hlo) {
  enum { FORM, VECTORS, VALUES, INFO };
  bool is_complex = hr_dtype_is_complex(hr__hlo_input_type(hlo, 0).dtype);
  if (!hr__hlo_expect(hlo, 1, is_complex ? 5 : 6, 0)) {
    return;
  }
  if (!is_letter(hlo, "sort", 'N')) {
    HR__HLO_REFUSE(hlo, "sorted eigenvalues");
    return;
  }
  hr_value x = CALL(hlo, SCHUR, hr__hlo_input(hlo, 0));
  if (x != 0) {
    hr__hlo_set(hlo, 0, x + FORM);
    hr__hlo_set(hlo, 1, x + VECTORS);
    int next = 2 + set_values(hlo, 2, x + VALUES);
    set_zeros(hlo, next); /* the number of values that were selected */
    hr__hlo_set(hlo, next + 1, x + INFO);
  }
}
