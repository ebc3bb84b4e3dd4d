/* product.c: converts strides and dims of a matmul node to cuBLASLt's. See product.h. */
#include "providers/cublaslt/product.h"

#include <string.h>

#include "core/ir/dtype.h"

enum { LEFT, RIGHT, OUT, OPERANDS };
enum { BIAS_ALIGNMENT = 16 }; /* bytes */

/* A factor or the output, in the node's own terms. */
typedef struct view {
  int64_t rows, columns, row_stride, column_stride;
} view;

/* A batch dim. */
typedef struct group {
  int64_t count, strides[OPERANDS];
} group;

typedef struct shape {
  view views[OPERANDS];
  int group_count;
  group groups[HR_RANK_MAX]; /* the innermost first */
} shape;

static view transposed(view v) {
  return (view){v.columns, v.rows, v.column_stride, v.row_stride};
}

/* True for dense consecutive rows; strides of dims of 1 are arbitrary. */
static bool is_row_major(view v) {
  return (v.column_stride == 1 || v.columns == 1) && (v.row_stride >= v.columns || v.rows == 1);
}

static bool is_dense(view v) {
  return is_row_major(v) || is_row_major(transposed(v));
}

static bool is_int(int64_t n) {
  return n > 0 && n <= INT32_MAX;
}

/* ---- operands ---- */

static bool has_dtype(const hr_operand *x, hr_dtype dtype) {
  return x->kind == HR_OPERAND_VALUE && x->dtype == dtype;
}

static bool is_float(hr_dtype dtype) {
  return dtype == HR_DTYPE_F32 || dtype == HR_DTYPE_F64 || dtype == HR_DTYPE_F16 || dtype == HR_DTYPE_BF16;
}

/* True for one number per column, dense, at an address that kernels can read as vectors. */
static bool is_row_bias(const hr_operand *bias, const hr_operand *out) {
  int last = bias->rank - 1;
  int64_t columns = out->dims[out->rank - 1];
  for (int d = 0; d < last; ++d) {
    if (bias->strides[d] != 0 && bias->dims[d] != 1) {
      return false;
    }
  }
  bool is_aligned = bias->offset * (int64_t)hr_dtype_size(bias->dtype) % BIAS_ALIGNMENT == 0;
  return is_aligned && last >= 0 && bias->dims[last] == columns && (bias->strides[last] == 1 || columns == 1);
}

static bool has_bias(const hr_node *node) {
  return node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE;
}

static bool has_form(const hr_node *node) {
  const hr_operand *a = &node->inputs[0], *b = &node->inputs[1], *out = &node->outputs[0];
  bool widens = out->dtype == HR_DTYPE_F32 && (a->dtype == HR_DTYPE_F16 || a->dtype == HR_DTYPE_BF16);
  if (node->op != HR_OP_MATMUL || node->epilogue_count > 0 || !is_float(out->dtype) ||
      !has_dtype(a, widens ? a->dtype : out->dtype) || !has_dtype(b, a->dtype) || !has_dtype(out, out->dtype) ||
      (widens && has_bias(node)) || out->rank < 2 || a->rank != out->rank || b->rank != out->rank ||
      !is_int(a->dims[a->rank - 1])) {
    return false;
  }
  for (int d = 0; d < out->rank; ++d) {
    if (!is_int(out->dims[d])) {
      return false;
    }
  }
  return !has_bias(node) || (has_dtype(&node->inputs[2], out->dtype) && is_row_bias(&node->inputs[2], out));
}

/* ---- batches ---- */

static bool add_batch_dim(shape *s, const hr_operand *const operands[OPERANDS], int d) {
  group g = {.count = operands[OUT]->dims[d]};
  for (int i = 0; i < OPERANDS; ++i) {
    g.strides[i] = operands[i]->dims[d] == 1 ? 0 : operands[i]->strides[d];
    if (g.strides[i] < 0 || (i == OUT && g.strides[i] == 0)) {
      return false;
    }
  }
  group *inner = s->group_count > 0 ? &s->groups[s->group_count - 1] : NULL;
  bool is_one = inner != NULL;
  for (int i = 0; is_one && i < OPERANDS; ++i) {
    is_one = g.strides[i] == inner->strides[i] * inner->count;
  }
  if (is_one) {
    inner->count *= g.count;
  } else {
    s->groups[s->group_count++] = g;
  }
  return !is_one || is_int(inner->count);
}

/* Folds a group over which the right factor stays the same into the rows. */
static bool fold_rows(shape *s, int at) {
  const group *g = &s->groups[at];
  view *left = &s->views[LEFT], *out = &s->views[OUT];
  int64_t rows = left->rows;
  view l = *left, o = *out;
  bool steps_on = rows == 1 || (g->strides[LEFT] == rows * l.row_stride && g->strides[OUT] == rows * o.row_stride);
  if (g->strides[RIGHT] != 0 || !steps_on || !is_int(rows * g->count)) {
    return false;
  }
  if (rows == 1) {
    l.row_stride = g->strides[LEFT], o.row_stride = g->strides[OUT];
  }
  l.rows = o.rows = rows * g->count;
  if (!is_dense(l) || !is_row_major(o)) {
    return false;
  }
  *left = l, *out = o;
  memmove(&s->groups[at], &s->groups[at + 1], (size_t)(s->group_count - at - 1) * sizeof *s->groups);
  --s->group_count;
  return true;
}

static bool shape_of(const hr_node *node, shape *s) {
  const hr_operand *const operands[OPERANDS] = {&node->inputs[0], &node->inputs[1], &node->outputs[0]};
  int rank = operands[OUT]->rank;
  *s = (shape){.group_count = 0};
  for (int i = 0; i < OPERANDS; ++i) {
    const int64_t *dims = operands[i]->dims + rank - 2, *strides = operands[i]->strides + rank - 2;
    s->views[i] = (view){dims[0], dims[1], strides[0], strides[1]};
  }
  for (int d = rank - 3; d >= 0; --d) {
    if (operands[OUT]->dims[d] != 1 && !add_batch_dim(s, operands, d)) {
      return false;
    }
  }
  for (int i = 0; i < s->group_count;) {
    i += !fold_rows(s, i);
  }
  return true;
}

/* The largest group becomes the library's batch, the others become loops. */
static void set_batches(cublaslt_product *p, const shape *s, const int from[PRODUCT_MATRICES]) {
  int largest = 0;
  for (int i = 1; i < s->group_count; ++i) {
    largest = s->groups[i].count > s->groups[largest].count ? i : largest;
  }
  p->batch = s->group_count > 0 ? s->groups[largest].count : 1;
  for (int i = 0; i < s->group_count; ++i) {
    const group *g = &s->groups[i];
    for (int m = 0; m < PRODUCT_MATRICES; ++m) {
      int64_t *stride = i == largest ? &p->matrices[m].batch_stride : &p->matrices[m].loop_strides[p->loop_rank];
      *stride = g->strides[from[m]];
    }
    if (i != largest) {
      p->loop_dims[p->loop_rank++] = g->count;
    }
  }
}

/* ---- matrices ---- */

/* A row-major view is the transposed column-major matrix, as A, B and D are. */
static void set_matrix(product_matrix *m, view v) {
  m->is_transposed = !is_row_major(v);
  v = m->is_transposed ? transposed(v) : v;
  m->rows = v.columns, m->columns = v.rows;
  m->leading = v.rows == 1 ? v.columns : v.row_stride;
}

/* The minimum alignment of a block's address plus these steps. */
static uint32_t alignment_of(hr_dtype dtype, int64_t offset, int count, const int64_t *steps) {
  uint64_t bits = PRODUCT_ALIGNMENT | (uint64_t)offset * hr_dtype_size(dtype);
  for (int i = 0; i < count; ++i) {
    bits |= (uint64_t)steps[i] * hr_dtype_size(dtype);
  }
  return (uint32_t)(bits & -bits);
}

bool hr__cublaslt_product(const hr_node *node, cublaslt_product *out_product) {
  shape s;
  if (!has_form(node) || !shape_of(node, &s)) {
    return false;
  }
  view out = s.views[OUT];
  bool is_mirrored = !is_row_major(out);
  if (!is_dense(s.views[LEFT]) || !is_dense(s.views[RIGHT]) || !is_dense(out) || (is_mirrored && has_bias(node))) {
    return false;
  }
  cublaslt_product p = {.dtype = node->outputs[0].dtype, .has_bias = has_bias(node)};
  const int from[PRODUCT_MATRICES] = {is_mirrored ? LEFT : RIGHT, is_mirrored ? RIGHT : LEFT, OUT};
  set_batches(&p, &s, from);
  for (int i = 0; i < PRODUCT_MATRICES; ++i) {
    product_matrix *m = &p.matrices[i];
    const hr_operand *operand = from[i] == OUT ? &node->outputs[0] : &node->inputs[from[i]];
    m->arg = from[i] == OUT ? node->input_count : from[i];
    m->offset = operand->offset;
    m->dtype = operand->dtype;
    set_matrix(m, is_mirrored ? transposed(s.views[from[i]]) : s.views[from[i]]);
    m->alignment = alignment_of(m->dtype, m->offset, p.loop_rank, m->loop_strides);
  }
  if (p.has_bias) {
    p.bias_offset = node->inputs[2].offset;
    p.bias_alignment = alignment_of(p.dtype, p.bias_offset, 0, NULL);
  }
  *out_product = p;
  return true;
}
