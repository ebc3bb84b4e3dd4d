/* ops_linalg.c: rules of linear algebra on the last one or two dims. A matrix that has no result, such as a singular
 * one, is an error of the work, which a wait reports. */
#include <string.h>

#include "node.h"

static bool is_complex(htf_value x) {
  return x->dtype == HR_DTYPE_C64 || x->dtype == HR_DTYPE_C128;
}

/* The last two dims in each other's place, conjugated. */
static htf_value adjoint(htf_node *node, htf_value x) {
  int order[HR_RANK_MAX];
  for (int d = 0; d < x->rank; ++d) {
    order[d] = d < x->rank - 2 ? d : 2 * x->rank - 3 - d;
  }
  htf_value y = htf_transpose(node, x, order);
  return is_complex(x) ? htf_call1(node, HR_FUNCTIONAL_CONJ, y) : y;
}

/* InvalidArgumentError unless the input has matrices. */
static htf_value read_matrices(htf_node *node, int input, bool is_square) {
  htf_value x = htf_input(node, input);
  if (!htf_has_failed(node) && x->rank < 2) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: input %d must have at least 2 dims, it has %d",
             node->kernel->row->op, input, x->rank);
  } else if (!htf_has_failed(node) && is_square && x->dims[x->rank - 1] != x->dims[x->rank - 2]) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Input matrix must be square: %lld != %lld",
             (long long)x->dims[x->rank - 2], (long long)x->dims[x->rank - 1]);
  }
  return x;
}

static htf_value full(htf_node *node, htf_value x, int rank, const int64_t *dims, int64_t number) {
  return htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, hr_scalar_i64(number))),
                  ATTRIBUTES(htf_attr_ints(dims, rank), htf_attr_dtype(x->dtype)));
}

void htf_cholesky(htf_node *node) {
  htf_value x = read_matrices(node, 0, true);
  if (!htf_has_failed(node)) {
    htf_output(node, 0, hr_tensor_count(x) == 0 ? x : htf_call1(node, HR_FUNCTIONAL_CHOLESKY, x));
  }
}

void htf_matrix_inverse(htf_node *node) {
  htf_value x = read_matrices(node, 0, true);
  if (htf_has_failed(node) || hr_tensor_count(x) == 0) {
    htf_output(node, 0, x);
    return;
  }
  htf_output(node, 0, htf_call1(node, HR_FUNCTIONAL_INV, htf_flag(node, "adjoint") ? adjoint(node, x) : x));
}

static void check_rows(htf_node *node, htf_value x, htf_value y) {
  if (!htf_has_failed(node) && x->dims[x->rank - 2] != y->dims[y->rank - 2]) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "Input matrix and rhs are incompatible: they have %lld and %lld rows",
             (long long)x->dims[x->rank - 2], (long long)y->dims[y->rank - 2]);
  }
}

void htf_matrix_solve(htf_node *node) {
  htf_value x = read_matrices(node, 0, true), y = read_matrices(node, 1, false);
  check_rows(node, x, y);
  if (!htf_has_failed(node) &&
      (x->rank != y->rank || memcmp(x->dims, y->dims, sizeof *x->dims * (size_t)(x->rank - 2)) != 0)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "All input tensors must have the same outer dimensions.");
  }
  if (htf_has_failed(node) || hr_tensor_count(y) == 0) {
    htf_output(node, 0, y);
    return;
  }
  htf_output(node, 0, htf_call2(node, HR_FUNCTIONAL_SOLVE, htf_flag(node, "adjoint") ? adjoint(node, x) : x, y));
}

/* The batches are broadcast. */
static htf_value broadcast_batches(htf_node *node, htf_value x, htf_value other) {
  int64_t dims[HR_RANK_MAX];
  int rank = x->rank > other->rank ? x->rank : other->rank;
  for (int d = 0; d < rank - 2; ++d) {
    int at = d - (rank - x->rank), there = d - (rank - other->rank);
    int64_t mine = at < 0 ? 1 : x->dims[at], others = there < 0 ? 1 : other->dims[there];
    dims[d] = mine == 1 ? others : mine;
    if (mine != 1 && others != 1 && mine != others) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: batches of %lld and %lld matrices cannot be broadcast",
               node->kernel->row->op, (long long)mine, (long long)others);
    }
  }
  dims[rank - 2] = x->dims[x->rank - 2], dims[rank - 1] = x->dims[x->rank - 1];
  return htf_call(node, HR_FUNCTIONAL_BROADCAST_TO, INPUTS(x), ATTRIBUTES(htf_attr_ints(dims, rank)));
}

void htf_triangular_solve(htf_node *node) {
  htf_value x = read_matrices(node, 0, true), y = read_matrices(node, 1, false);
  check_rows(node, x, y);
  if (htf_has_failed(node)) {
    return;
  }
  htf_value matrices = broadcast_batches(node, x, y), sides = broadcast_batches(node, y, x);
  if (htf_has_failed(node) || hr_tensor_count(sides) == 0) {
    htf_output(node, 0, sides);
    return;
  }
  const char *transpose = htf_flag(node, "adjoint") ? "adjoint" : "none";
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_SOLVE_TRIANGULAR, INPUTS(matrices, sides),
                      ATTRIBUTES(htf_attr_flag(!htf_flag(node, "lower")), htf_attr_flag(false), htf_attr_flag(true),
                                 htf_attr_text(transpose))));
}

void htf_qr(htf_node *node) {
  htf_value x = read_matrices(node, 0, false), results[2];
  if (htf_has_failed(node)) {
    return;
  }
  bool is_full = htf_flag(node, "full_matrices");
  int64_t q[HR_RANK_MAX], r[HR_RANK_MAX], rows = x->dims[x->rank - 2], columns = x->dims[x->rank - 1];
  int64_t inner = is_full || rows < columns ? rows : columns;
  if (hr_tensor_count(x) == 0) {
    if (is_full && rows > 0) {
      htf_fail(node, HR_STATUS_UNIMPLEMENTED, "Qr: full matrices of %lld x %lld are not supported", (long long)rows,
               (long long)columns);
      return;
    }
    memcpy(q, x->dims, sizeof q);
    memcpy(r, x->dims, sizeof r);
    q[x->rank - 1] = inner, r[x->rank - 2] = inner;
    results[0] = full(node, x, x->rank, q, 0), results[1] = full(node, x, x->rank, r, 0);
  } else {
    htf_call_many(node, HR_FUNCTIONAL_QR, INPUTS(x), ATTRIBUTES(htf_attr_text(is_full ? "complete" : "reduced")), 2,
                  results);
  }
  htf_output(node, 0, results[0]);
  htf_output(node, 1, results[1]);
}

void htf_determinant(htf_node *node) {
  htf_value x = read_matrices(node, 0, true);
  if (!htf_has_failed(node)) {
    bool is_empty = hr_tensor_count(x) == 0;
    htf_output(node, 0, is_empty ? full(node, x, x->rank - 2, x->dims, 1) : htf_call1(node, HR_FUNCTIONAL_DET, x));
  }
}

void htf_log_determinant(htf_node *node) {
  htf_value x = read_matrices(node, 0, true), results[2];
  if (htf_has_failed(node)) {
    return;
  }
  if (hr_tensor_count(x) == 0) {
    results[0] = full(node, x, x->rank - 2, x->dims, 1), results[1] = full(node, x, x->rank - 2, x->dims, 0);
  } else {
    htf_call_many(node, HR_FUNCTIONAL_SLOGDET, INPUTS(x), NO_ATTRIBUTES, 2, results);
  }
  htf_output(node, 0, results[0]);
  htf_output(node, 1, results[1]);
}

/* The dims of an empty decomposition: the batches of x, then these. */
static htf_value empty_part(htf_node *node, htf_value x, int count, int64_t rows, int64_t columns) {
  int64_t dims[HR_RANK_MAX];
  memcpy(dims, x->dims, sizeof dims);
  dims[x->rank - 2] = rows, dims[x->rank - 1] = columns;
  return full(node, x, x->rank - 2 + count, dims, 0);
}

/* An output that was not asked for has no dims. */
static void output_nothing(htf_node *node, int index, htf_value x) {
  htf_output(node, index, full(node, x, 0, x->dims, 0));
}

/* Outputs: singular values, u, v. */
void htf_svd(htf_node *node) {
  htf_value x = read_matrices(node, 0, false), results[3];
  bool has_vectors = htf_flag(node, "compute_uv"), is_full = htf_flag(node, "full_matrices");
  if (htf_has_failed(node)) {
    return;
  }
  int64_t rows = x->dims[x->rank - 2], columns = x->dims[x->rank - 1], inner = rows < columns ? rows : columns;
  if (hr_tensor_count(x) == 0) {
    results[0] = empty_part(node, x, 2, rows, is_full ? rows : inner);
    results[1] = empty_part(node, x, 1, inner, 0);
    results[2] = empty_part(node, x, 2, is_full ? columns : inner, columns);
    if (is_full && has_vectors && rows + columns > 0 && hr_tensor_count(results[0]) + hr_tensor_count(results[2]) > 0) {
      htf_fail(node, HR_STATUS_UNIMPLEMENTED, "Svd: full matrices of %lld x %lld are not supported", (long long)rows,
               (long long)columns);
    }
  } else if (has_vectors) {
    htf_call_many(node, HR_FUNCTIONAL_SVD, INPUTS(x), ATTRIBUTES(htf_attr_flag(is_full)), 3, results);
  } else {
    results[1] = htf_call1(node, HR_FUNCTIONAL_SVDVALS, x);
  }
  htf_output(node, 0, results[1]);
  if (has_vectors) {
    htf_output(node, 1, results[0]);
    htf_output(node, 2, htf_has_failed(node) ? x : adjoint(node, results[2]));
  } else {
    output_nothing(node, 1, x), output_nothing(node, 2, x);
  }
}

/* Outputs: eigenvalues, in x's dtype, and vectors. */
void htf_hermitian_eigen(htf_node *node) {
  htf_value x = read_matrices(node, 0, true), results[2];
  bool has_vectors = htf_flag(node, "compute_v");
  if (htf_has_failed(node)) {
    return;
  }
  if (hr_tensor_count(x) == 0) {
    results[0] = full(node, x, x->rank - 1, x->dims, 0), results[1] = x;
  } else if (has_vectors) {
    htf_call_many(node, HR_FUNCTIONAL_EIGH, INPUTS(x), NO_ATTRIBUTES, 2, results);
  } else {
    results[0] = htf_call1(node, HR_FUNCTIONAL_EIGVALSH, x);
  }
  htf_output(node, 0, results[0]);
  if (has_vectors) {
    htf_output(node, 1, results[1]);
  } else {
    output_nothing(node, 1, x);
  }
}

/* Outputs: both factors in one matrix, and the order of rows. */
void htf_lu(htf_node *node) {
  htf_value x = read_matrices(node, 0, true), results[3];
  if (htf_has_failed(node)) {
    return;
  }
  if (hr_tensor_count(x) == 0) {
    htf_output(node, 0, x);
    htf_output(node, 1, full(node, x, x->rank - 1, x->dims, 0));
    return;
  }
  htf_call_many(node, HR_FUNCTIONAL_LU_FACTOR, INPUTS(x), NO_ATTRIBUTES, 3, results);
  htf_output(node, 0, results[0]);
  htf_output(node, 1, htf_call1(node, HR_FUNCTIONAL_LU_PERMUTATION, results[1]));
}

/* ---- tridiagonal matrices ---- */

/* Row i of the last but one dim, without it. */
static htf_value row_of(htf_node *node, htf_value x, int i) {
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
  memcpy(dims, x->dims, sizeof dims);
  memcpy(strides, x->strides, sizeof strides);
  dims[x->rank - 2] = x->dims[x->rank - 1], strides[x->rank - 2] = x->strides[x->rank - 1];
  return htf_view(node, x, x->rank - 1, dims, strides, x->offset + i * x->strides[x->rank - 2]);
}

static void check_diagonals(htf_node *node, htf_value diagonals, int64_t rows, htf_value y) {
  bool fits = htf_has_failed(node) || (diagonals->rank == y->rank && diagonals->dims[y->rank - 2] == rows &&
                                       diagonals->dims[y->rank - 1] == y->dims[y->rank - 2] &&
                                       memcmp(diagonals->dims, y->dims, sizeof *y->dims * (size_t)(y->rank - 2)) == 0);
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: the diagonals' dims do not fit the right-hand sides",
             node->kernel->row->op);
  }
}

/* Inputs: [.., 3, M] diagonals above, of and below the main one, and right-hand sides [.., M, K]. */
void htf_tridiagonal_solve(htf_node *node) {
  htf_value diagonals = read_matrices(node, 0, false), y = read_matrices(node, 1, false), results[5];
  check_diagonals(node, diagonals, 3, y);
  if (htf_has_failed(node) || hr_tensor_count(y) == 0) {
    htf_output(node, 0, y);
    return;
  }
  htf_call_many(node, HR_FUNCTIONAL_TRIDIAGONAL_SOLVE,
                INPUTS(row_of(node, diagonals, 2), row_of(node, diagonals, 1), row_of(node, diagonals, 0), y),
                NO_ATTRIBUTES, 5, results);
  htf_output(node, 0, results[0]);
}

/* y moved by a row: row i has row i + by of y, or 0. */
static htf_value move_rows(htf_node *node, htf_value y, int64_t by) {
  int64_t before[HR_RANK_MAX] = {0}, after[HR_RANK_MAX] = {0};
  before[y->rank - 2] = -by, after[y->rank - 2] = by;
  return htf_call(node, HR_FUNCTIONAL_PAD, INPUTS(y),
                  ATTRIBUTES(htf_attr_ints(before, y->rank), htf_attr_ints(after, y->rank)));
}

/* Inputs: the diagonals [.., 1, M] above, of and below the main one, and [.., M, K]. */
void htf_tridiagonal_product(htf_node *node) {
  htf_value y = read_matrices(node, 3, false), sum = NULL;
  for (int i = 0; i < 3; ++i) {
    htf_value diagonal = read_matrices(node, i, false);
    check_diagonals(node, diagonal, 1, y);
    if (htf_has_failed(node) || hr_tensor_count(y) == 0) {
      htf_output(node, 0, y);
      return;
    }
    int order[HR_RANK_MAX];
    for (int d = 0; d < y->rank; ++d) {
      order[d] = d < y->rank - 2 ? d : 2 * y->rank - 3 - d;
    }
    htf_value rows = i == 1 ? y : move_rows(node, y, 1 - i);
    htf_value term = htf_multiply(node, htf_transpose(node, diagonal, order), rows);
    sum = sum == NULL ? term : htf_add(node, sum, term);
  }
  htf_output(node, 0, sum);
}

/* ---- a sparse matrix: places [n, 2], numbers, its dims (of the host), and a dense matrix ---- */

void htf_sparse_product(htf_node *node) {
  htf_value places = htf_input(node, 0), values = htf_input(node, 1), y = htf_input(node, 3);
  int64_t dims[2] = {0, 0};
  int rank = htf_host_ints(node, 2, dims, 2);
  bool is_adjoint = htf_flag(node, "adjoint_a");
  if (!htf_has_failed(node) && (rank != 2 || places->rank != 2 || places->dims[1] != 2 || y->rank != 2)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: places must be pairs, and both operands matrices",
             node->kernel->row->op);
  }
  y = htf_has_failed(node) || !htf_flag(node, "adjoint_b") ? y : adjoint(node, y);
  if (!htf_has_failed(node) && dims[is_adjoint ? 0 : 1] != y->dims[0]) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "Cannot multiply A and B because inner dimension does not match: %lld vs. %lld",
             (long long)dims[is_adjoint ? 0 : 1], (long long)y->dims[0]);
  }
  if (htf_has_failed(node)) {
    return;
  }
  const int64_t out[2] = {dims[is_adjoint ? 1 : 0], y->dims[1]}, count = places->dims[0], stride = places->strides[0];
  if (count == 0 || out[0] * out[1] * y->dims[0] == 0) {
    htf_output(node, 0, full(node, y, 2, out, 0));
    return;
  }
  htf_value row = htf_view(node, places, 1, &count, &stride, places->offset + is_adjoint);
  htf_value column = htf_view(node, places, 1, &count, &stride, places->offset + !is_adjoint);
  values = is_adjoint && is_complex(values) ? htf_call1(node, HR_FUNCTIONAL_CONJ, values) : values;
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_SPARSE_MATMUL, INPUTS(values, row, column, y),
                      ATTRIBUTES(htf_attr_text("coo"), htf_attr_int(out[0]))));
}

void htf_cross(htf_node *node) {
  htf_value x = htf_input(node, 0), y = htf_input(node, 1);
  bool fits = htf_has_failed(node) || (x->rank >= 1 && x->rank == y->rank && x->dims[x->rank - 1] == 3 &&
                                       memcmp(x->dims, y->dims, sizeof *x->dims * (size_t)x->rank) == 0);
  if (!fits) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "Cross-products are only defined for 3-element vectors of the same dims.");
  }
  htf_output(node, 0,
             hr_tensor_count(x) == 0 ? x
                                     : htf_call(node, HR_FUNCTIONAL_CROSS, INPUTS(x, y), ATTRIBUTES(htf_attr_int(-1))));
}
