/* lapack.h: library rows on matrices: one file a family, one table (lapack.c).
 *
 * Matrices are column-major, dims [.., columns, rows], as LAPACK requires. Inputs are copied into outputs or work
 * memory, since LAPACK overwrites its arguments.
 */
#ifndef HEADRACE_PROVIDERS_LAPACK_LAPACK_H_
#define HEADRACE_PROVIDERS_LAPACK_LAPACK_H_

#include <string.h>

#include "providers/lapack/lapack_api.h"
#include "providers/library.h"

/* One and zero of an element type. */
const void *hr__lapack_one(int kind);
const void *hr__lapack_zero(int kind);

/* Work memory of a share of matrices: pieces of one block. */
typedef struct hr__work {
  char *block;
  size_t used, bytes;
} hr__work;
HR_MUST_USE hr_status hr__work_begin(hr__work *work,
                                     size_t bytes); /* room for pieces of this many bytes, with alignment */
void *hr__work_take(hr__work *work, size_t bytes);
void hr__work_end(hr__work *work);

/* The number of work elements that a query returned. */
int hr__lapack_length(int kind, const void *queried);

/* The matrices of an operand. */
typedef struct hr__matrices {
  int kind, rows, columns;
  int64_t size, count; /* bytes of an element, elements of a matrix */
} hr__matrices;

static inline hr__matrices hr__matrices_of(const hr__tensor *x) {
  hr__matrices m = {.kind = hr__lapack_kind(x->dtype), .rows = (int)hr__dim(x, 0), .columns = (int)hr__dim(x, 1)};
  m.size = (int64_t)hr_dtype_size(x->dtype);
  m.count = (int64_t)m.rows * m.columns;
  return m;
}
/* Copies a matrix to its work memory and returns that address. */
static inline void *hr__matrix_copy(const hr__tensor *from, const hr__tensor *to, int64_t item, const hr__matrices *m) {
  void *out = hr__item(to, item, m->count);
  memcpy(out, hr__item(from, item, m->count), (size_t)(m->count * m->size));
  return out;
}
/* The distance of columns of this many elements. */
static inline int hr__leading(int rows) {
  return rows > 1 ? rows : 1;
}
static inline double hr__cube(const hr__matrices *m) { /* multiplications, about, of a factorisation */
  double least = m->rows < m->columns ? m->rows : m->columns;
  return least * m->rows * m->columns * (m->kind >= 2 ? 4 : 1);
}
/* A negative number is a bug of ours. */
static inline hr_status hr__info_check(const char *what, int info) {
  return info >= 0 ? HR_OK : hr_status_make(HR_STATUS_INTERNAL, "%s: argument %d is wrong", what, -info);
}

/* Some algorithms loop endlessly on numbers that are not finite (eigen.c). */
bool hr__lapack_is_finite(const void *data, int kind, int64_t count);
/* True if the call has an output for LAPACK's info, its last one at `place`. Then a matrix whose info is above 0 has
 * NaN in the other outputs (eigen.c). */
bool hr__lapack_reports(const hr__library_call *call, int place, int64_t item, int info);

/* Runs fn over matrices: many are divided among the workers; for few the library's threads work on each. `flops`: of
 * one matrix. Small matrices of single precision are passed to fn in double precision, as operands of another call. */
HR_MUST_USE hr_status hr__lapack_each(const hr__library_call *call, int64_t items, double flops, hr__items_fn fn);

/* Independent lines of a right-hand side: columns, or rows if the matrix is on the right. */
typedef struct hr__part {
  hr__matrices b; /* the part alone */
  int ld;         /* between columns of x */
  int64_t item;   /* the matrix of its system */
  void *x;        /* in the first output */
} hr__part;

/* hr__lapack_each for right-hand sides: if they are few, their parts are divided among the workers, too. fn's units are
 * parts. */
HR_MUST_USE hr_status hr__lapack_each_part(const hr__library_call *call, const hr__tensor *right, bool by_rows,
                                           double flops, hr__items_fn fn);
/* Copies a part to the first output, to be solved in place. */
hr__part hr__part_copy(const hr__library_call *call, const hr__tensor *right, bool by_rows, int64_t unit);

bool hr__lapack_supports(const hr_node *node);

/* wide.c: true if the call's matrices are small ones of single precision; and hr__library_spread on double precision
 * copies of the operands. */
bool hr__lapack_is_widened(const hr__library_call *call);
HR_MUST_USE hr_status hr__lapack_widened(const hr__library_call *call, int64_t items, int64_t item_ns, hr__items_fn fn);

/* gemm.c */
bool hr__lapack_gemm_supports(const hr_node *node);
hr_status hr__lapack_gemm(const hr__library_call *call);
/* convolve.c */
bool hr__lapack_conv_supports(const hr_node *node);
size_t hr__lapack_conv_scratch(const hr_node *node, int workers);
hr_status hr__lapack_conv(const hr__library_call *call);
/* factor.c */
hr_status hr__lapack_cholesky(const hr__library_call *call);
hr_status hr__lapack_cholesky_inverse(const hr__library_call *call);
hr_status hr__lapack_lu(const hr__library_call *call);
hr_status hr__lapack_ldl(const hr__library_call *call);
hr_status hr__lapack_qr(const hr__library_call *call);
hr_status hr__lapack_qr_pivoted(const hr__library_call *call);
hr_status hr__lapack_reflectors(const hr__library_call *call);
hr_status hr__lapack_reflect(const hr__library_call *call);
/* solve.c */
hr_status hr__lapack_cholesky_solve(const hr__library_call *call);
hr_status hr__lapack_lu_solve(const hr__library_call *call);
hr_status hr__lapack_ldl_solve(const hr__library_call *call);
hr_status hr__lapack_triangular_solve(const hr__library_call *call);
hr_status hr__lapack_tridiagonal_solve(const hr__library_call *call);
hr_status hr__lapack_least_squares(const hr__library_call *call);
/* eigen.c */
hr_status hr__lapack_svd(const hr__library_call *call);
hr_status hr__lapack_eigh(const hr__library_call *call);
hr_status hr__lapack_eig(const hr__library_call *call);
/* condensed.c */
hr_status hr__lapack_schur(const hr__library_call *call);
hr_status hr__lapack_hessenberg(const hr__library_call *call);
hr_status hr__lapack_tridiagonal(const hr__library_call *call);
/* exponential.c */
hr_status hr__lapack_matrix_exp(const hr__library_call *call);

#endif
