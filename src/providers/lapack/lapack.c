/* lapack.c: the provider of linear algebra on the host, on OpenBLAS or another LAPACK that is opened at run time. */
#include "providers/lapack/lapack.h"

#include "base/allocator.h"
#include "base/integer.h"
#include "core/ops/op.h"

enum { ALIGNMENT = 64 };
/* Of one matrix: below this, LAPACK's own threads, which poll for work on cores that others need, cost more than they
 * save. */
static const double THREADS_FLOPS = 1e9;
static const double PART_FLOPS = 2e5; /* of a part of a right-hand side: less does not justify a worker */

const void *hr__lapack_one(int kind) {
  static const float single[2] = {1, 0};
  static const double twice[2] = {1, 0};
  return (kind & 1) != 0 ? (const void *)twice : (const void *)single;
}

const void *hr__lapack_zero(int kind) {
  static const double zero[2] = {0, 0};
  (void)kind;
  return zero;
}

static const hr__library_row rows[] = {
    {HR_OP_MATMUL, hr__lapack_gemm_supports, NULL, hr__lapack_gemm, NULL},
    {HR_OP_CONV, hr__lapack_conv_supports, hr__lapack_conv_scratch, hr__lapack_conv, NULL},
    {HR_OP_CONV_BACKWARD_DATA, hr__lapack_conv_supports, hr__lapack_conv_scratch, hr__lapack_conv, NULL},
    {HR_OP_CONV_BACKWARD_WEIGHT, hr__lapack_conv_supports, hr__lapack_conv_scratch, hr__lapack_conv, NULL},
    {HR_OP_CHOLESKY, hr__lapack_supports, NULL, hr__lapack_cholesky, NULL},
    {HR_OP_CHOLESKY_INVERSE, hr__lapack_supports, NULL, hr__lapack_cholesky_inverse, NULL},
    {HR_OP_CHOLESKY_SOLVE, hr__lapack_supports, NULL, hr__lapack_cholesky_solve, NULL},
    {HR_OP_LU, hr__lapack_supports, NULL, hr__lapack_lu, NULL},
    {HR_OP_LU_SOLVE, hr__lapack_supports, NULL, hr__lapack_lu_solve, NULL},
    {HR_OP_LDL, hr__lapack_supports, NULL, hr__lapack_ldl, NULL},
    {HR_OP_LDL_SOLVE, hr__lapack_supports, NULL, hr__lapack_ldl_solve, NULL},
    {HR_OP_QR, hr__lapack_supports, NULL, hr__lapack_qr, NULL},
    {HR_OP_QR_PIVOTED, hr__lapack_supports, NULL, hr__lapack_qr_pivoted, NULL},
    {HR_OP_REFLECTORS, hr__lapack_supports, NULL, hr__lapack_reflectors, NULL},
    {HR_OP_REFLECT, hr__lapack_supports, NULL, hr__lapack_reflect, NULL},
    {HR_OP_TRIANGULAR_SOLVE, hr__lapack_supports, NULL, hr__lapack_triangular_solve, NULL},
    {HR_OP_TRIDIAGONAL_SOLVE, hr__lapack_supports, NULL, hr__lapack_tridiagonal_solve, NULL},
    {HR_OP_LEAST_SQUARES, hr__lapack_supports, NULL, hr__lapack_least_squares, NULL},
    {HR_OP_SVD, hr__lapack_supports, NULL, hr__lapack_svd, NULL},
    {HR_OP_EIGH, hr__lapack_supports, NULL, hr__lapack_eigh, NULL},
    {HR_OP_EIG, hr__lapack_supports, NULL, hr__lapack_eig, NULL},
    {HR_OP_SCHUR, hr__lapack_supports, NULL, hr__lapack_schur, NULL},
    {HR_OP_HESSENBERG, hr__lapack_supports, NULL, hr__lapack_hessenberg, NULL},
    {HR_OP_TRIDIAGONAL, hr__lapack_supports, NULL, hr__lapack_tridiagonal, NULL},
    {HR_OP_MATRIX_EXP, hr__lapack_supports, NULL, hr__lapack_matrix_exp, NULL},
    {HR_OP_NONE, NULL, NULL, NULL, NULL},
};

/* ---- work ---- */

hr_status hr__work_begin(hr__work *work, size_t bytes) {
  *work = (hr__work){.bytes = bytes + 16 * ALIGNMENT};
  work->block = hr_aligned_malloc(work->bytes, ALIGNMENT);
  return work->block != NULL ? HR_OK
                             : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for %zu bytes", bytes);
}

void *hr__work_take(hr__work *work, size_t bytes) {
  void *piece = work->block + work->used;
  work->used += hr_align_up(bytes, ALIGNMENT);
  return piece;
}

void hr__work_end(hr__work *work) {
  hr_aligned_free(work->block);
}

int hr__lapack_length(int kind, const void *queried) {
  double length = (kind & 1) != 0 ? *(const double *)queried : (double)*(const float *)queried;
  int whole = (int)(length * 1.0001) + 1; /* f32 may have rounded it down */
  return whole > 1 ? whole : 1;
}

hr_status hr__lapack_each(const hr__library_call *call, int64_t items, double flops, hr__items_fn fn) {
  if (items < call->workers && flops > THREADS_FLOPS) {
    hr__lapack_threads_begin(call->workers);
    hr_status status = fn(call, 0, items, NULL);
    hr__lapack_threads_end();
    return status;
  }
  int64_t item_ns = (int64_t)(flops / 2) + 500;
  return hr__lapack_is_widened(call) ? hr__lapack_widened(call, items, item_ns, fn)
                                     : hr__library_spread(call, items, item_ns, fn);
}

/* ---- parts of right-hand sides ---- */

/* The number of parts of each right-hand side: more than one if there are fewer of them than workers. */
static int parts_of(const hr__library_call *call, const hr__tensor *right, bool by_rows) {
  hr__matrices b = hr__matrices_of(right);
  int64_t items = hr__items(right, 2), lines = by_rows ? b.rows : b.columns;
  double flops = 2.0 * (double)b.count * (by_rows ? b.columns : b.rows) * (b.kind >= 2 ? 4 : 1);
  int64_t wanted = items > 0 ? hr_divide_up(call->workers, items) : 1;
  int64_t most = flops / PART_FLOPS < (double)lines ? (int64_t)(flops / PART_FLOPS) : lines;
  int64_t parts = wanted < most ? wanted : most;
  return items < call->workers && parts > 1 ? (int)parts : 1;
}

hr__part hr__part_copy(const hr__library_call *call, const hr__tensor *right, bool by_rows, int64_t unit) {
  hr__matrices whole = hr__matrices_of(right);
  int parts = parts_of(call, right, by_rows), at = (int)(unit % parts), lines = by_rows ? whole.rows : whole.columns;
  int first = (int)((int64_t)lines * at / parts), count = (int)((int64_t)lines * (at + 1) / parts) - first;
  hr__part part = {.b = whole, .ld = hr__leading(whole.rows), .item = unit / parts};
  *(by_rows ? &part.b.rows : &part.b.columns) = count;
  part.b.count = (int64_t)part.b.rows * part.b.columns;
  int64_t column = whole.rows * whole.size, skipped = by_rows ? first * whole.size : first * column;
  const char *from = (const char *)hr__item(right, part.item, whole.count) + skipped;
  char *to = (char *)hr__item(&call->outputs[0], part.item, whole.count) + skipped;
  bool is_dense = part.b.rows == whole.rows;
  for (int64_t i = 0; i < (is_dense ? 1 : part.b.columns); ++i) {
    memcpy(to + i * column, from + i * column, (size_t)((is_dense ? part.b.count : part.b.rows) * whole.size));
  }
  part.x = to;
  return part;
}

hr_status hr__lapack_each_part(const hr__library_call *call, const hr__tensor *right, bool by_rows, double flops,
                               hr__items_fn fn) {
  int parts = parts_of(call, right, by_rows);
  int64_t items = hr__items(right, 2);
  return parts == 1 ? hr__lapack_each(call, items, flops, fn)
                    : hr__library_spread(call, items * parts, (int64_t)(flops / parts / 2) + 500, fn);
}

/* ---- the provider ---- */

/* LAPACK uses 32-bit sizes, products for work memory included. */
bool hr__lapack_supports(const hr_node *node) {
  bool is_small = hr__lapack_kind(node->inputs[0].dtype) >= 0;
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    const hr_operand *x = hr_node_operand(node, i);
    for (int d = 0; x->kind == HR_OPERAND_VALUE && d < x->rank; ++d) {
      is_small &= x->dims[d] < 1 << 24 || d < x->rank - 2;
    }
  }
  return is_small;
}

static hr_status has(hr_op op) {
  return op != HR_OP_MATMUL && !hr_op_is_convolution(op) && hr__library_find(rows, op) != NULL
             ? hr__lapack_open()
             : hr_status_make(HR_STATUS_NOT_FOUND, "not a row of this provider");
}

static bool runs(hr_op op) {
  return hr__library_find(rows, op) != NULL;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  const hr__library_row *row = hr__library_find(rows, node->op);
  if (row == NULL || !row->supports(node)) {
    return false;
  }
  hr_status status = hr__lapack_open();
  bool is_there = status == HR_OK;
  hr_status_ignore(status);
  return is_there;
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)algorithm, (void)queue;
  return hr__library_prepare(rows, node, out_prepared, out_workspace_bytes);
}

const hr_provider HR_CPU_NAME(hr__lapack_provider) = {
    .name = "lapack",
    .has_threads = true,
    .has = has,
    .runs = runs,
    .supports = supports,
    .prepare = prepare,
    .needs_team = hr__library_needs_team,
    .run = hr__library_run,
    .release = hr__library_free,
};
