/* sgemm.c: products of f32 matrices by oneDNN's sgemm, which has nothing to prepare.
 *
 * A primitive takes 0.1 to 0.6 ms and 100 KB for each shape. sgemm is one piece of generated code for all shapes, and
 * about as fast: on AVX-512 VMs 0.6 to 1.05 times a primitive's time up to 200 MFLOP, 0.8 to 1.2 times up to 700. So
 * programs whose shapes never repeat prepare no primitives. Larger products with weights are left to them (matmul.c),
 * since they pack a weight once. Programs that repeat time both (engine/autotune.h).
 *
 * The bias and the epilogues are applied row by row, after the product, with the bits of ops.def's rows. An epilogue
 * that reads the output's old contents gets the product from the workspace.
 *
 * On processors with AVX-512 narrow products, and those with a right factor whose columns are dense, run by a loop of
 * our own (panels.h). It has sgemm's bits for most depths, is faster for such matrices, and applies the bias and the
 * epilogues to results that are still in the first cache.
 *
 * Each thread makes and finishes columns or rows of its own, in groups of 16, the last with the rest. sgemm adds in the
 * same order for all of them, but in another one for a single column. Its own threads would need a second parallel loop
 * for the epilogues, and split the columns of a transposed right operand less well.
 *
 * Products of one row are left to gemv, which is faster. Those of two to four rows on large matrices with dense rows
 * run by loops of their own (few_rows.h). sgemm's code is generated when the first other product is prepared (25 ms).
 *
 * Weights are read faster from panels, and those of linear layers, whose columns are long, also transposed. Either copy
 * is cached while the contents stay the same, for products of 16 rows and more. The bits don't depend on it: sgemm adds
 * in the same order for a weight and its transposed copy, and so do panels. Depths for which it may not have panels
 * from the first run on, or no copy.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/integer.h"
#include "base/thread.h"
#include "core/ir/dtype.h"
#include "providers/onednn/dnnl_api.h"
#include "providers/onednn/few_rows.h"
#include "providers/onednn/handed.h"
#include "providers/onednn/onednn.h"
#include "providers/onednn/panels.h"
#include "providers/provider.h"
#include "runtime/cached_weights.h"

enum { BLOCK = 256, SIDE = 16, RECIPE_WORDS = 5, TRANSPOSED = 0x7367656d, PACKED = 0x70616e65 };
enum { COPIED_ROWS_MIN = 16, COPIED_DEPTH_MIN = 128 };
static const int64_t FLOPS_MAX = 700000000; /* with weights, which primitives pack once */

/* rows x columns floats, dense along one of them: `step` elements lie between two lines. */
typedef struct matrix {
  int64_t offset, rows, columns, step;
  bool is_transposed; /* its columns are dense */
} matrix;

/* An operand of an epilogue or the bias, over rows and columns of the result. */
typedef struct addend {
  int arg;
  bool is_number; /* of a scalar */
  int64_t offset, row, column;
} addend;

typedef struct finish {
  hr_op op;
  int count;
  addend operands[2];
} finish;

struct hr_prepared {
  matrix a, b, c;
  int c_arg;
  bool splits_columns;   /* among threads; else rows */
  int64_t groups, grain; /* of SIDE columns or rows, the last with the rest; those that a thread takes at least */
  bool is_aside;         /* the product is made in the workspace */
  bool is_copied;        /* b may be read from a transposed copy */
  bool is_packed;        /* b may be read from packed panels */
  bool is_few;           /* rows, by few_rows.h */
  bool is_panels;        /* by panels.h, as b is stored */
  bool is_handed;        /* over, to a kernel: handed.h */
  uint64_t stamp;
  int finish_count;
  finish finishes[HR_EPILOGUES_MAX + 1]; /* a prepared product has memory for `finish_count` */
};

/* ---- what is supported ---- */

/* Leading dims as one dim of rows; false if they aren't evenly spaced. */
static bool merge(const hr_operand *x, int dims, int64_t *out_count, int64_t *out_stride) {
  *out_count = 1;
  *out_stride = 0;
  for (int d = dims - 1; d >= 0; --d) {
    if (x->dims[d] == 1) {
      continue;
    }
    if (*out_count != 1 && x->strides[d] != *out_stride * *out_count) {
      return false;
    }
    *out_stride = *out_count == 1 ? x->strides[d] : *out_stride;
    *out_count *= x->dims[d];
  }
  return true;
}

/* False: neither rows nor columns are dense, or lines overlap. */
static bool matrix_of(const hr_operand *x, int64_t rows, int64_t row, int64_t column, matrix *out) {
  int64_t columns = x->dims[x->rank - 1];
  *out = (matrix){.offset = x->offset, .rows = rows, .columns = columns};
  if ((column == 1 || columns == 1) && (row >= columns || rows == 1)) {
    out->step = rows == 1 ? columns : row;
    return true;
  }
  out->is_transposed = true;
  out->step = columns == 1 ? rows : column;
  return (row == 1 || rows == 1) && (column >= rows || columns == 1);
}

static bool is_f32(const hr_operand *x) {
  return x->kind == HR_OPERAND_VALUE && x->dtype == HR_DTYPE_F32;
}

/* Reads a factor or the result of [.., rows, columns] as one matrix of all rows. */
static bool tall_matrix(const hr_operand *x, matrix *out) {
  int64_t rows, row;
  return merge(x, x->rank - 1, &rows, &row) && matrix_of(x, rows, row, x->strides[x->rank - 1], out);
}

/* The right factor, which must be one matrix for all of the batch. */
static bool right_matrix(const hr_operand *x, matrix *out) {
  for (int d = 0; d < x->rank - 2; ++d) {
    if (x->dims[d] != 1 && x->strides[d] != 0) {
      return false;
    }
  }
  return matrix_of(x, x->dims[x->rank - 2], x->strides[x->rank - 2], x->strides[x->rank - 1], out);
}

/* An operand of the result's dims, or with dims of stride 0. */
static bool addend_of(const hr_node *node, int input, addend *out) {
  const hr_operand *x = &node->inputs[input], *y = &node->outputs[0];
  *out = (addend){.arg = input, .is_number = x->kind == HR_OPERAND_SCALAR};
  if (out->is_number) {
    return x->dtype != HR_DTYPE_C128;
  }
  int64_t rows;
  out->offset = x->offset;
  out->column = x->rank > 0 && x->dims[x->rank - 1] != 1 ? x->strides[x->rank - 1] : 0;
  return is_f32(x) && x->rank == y->rank && merge(x, x->rank - 1, &rows, &out->row);
}

static bool is_same_view(const hr_operand *x, const hr_operand *y) {
  bool is = x->offset == y->offset && x->rank == y->rank;
  for (int d = 0; is && d < x->rank; ++d) {
    is = x->dims[d] == y->dims[d] && (x->strides[d] == y->strides[d] || x->dims[d] == 1);
  }
  return is;
}

/* Adds an operand of a row; its old contents may be the output's, element for element. */
static bool add_operand(const hr_node *node, int input, hr_prepared *p) {
  finish *f = &p->finishes[p->finish_count];
  if (input == HR_EPILOGUE_VALUE || !addend_of(node, input, &f->operands[f->count])) {
    return false;
  }
  ++f->count;
  const hr_operand *x = &node->inputs[input], *y = &node->outputs[0];
  bool is_in_place = x->kind == HR_OPERAND_VALUE && hr_operands_may_overlap(x, y);
  p->is_aside |= is_in_place;
  return !is_in_place || is_same_view(x, y);
}

static bool add_epilogue(const hr_node *node, const hr_epilogue *epilogue, hr_prepared *p) {
  bool is_first = epilogue->inputs[0] == HR_EPILOGUE_VALUE, is = false;
  int other = is_first ? epilogue->inputs[1] : epilogue->inputs[0];
  p->finishes[p->finish_count] = (finish){.op = epilogue->op};
  switch (epilogue->op) {
    case HR_OP_RELU:
      is = is_first;
      break;
    case HR_OP_ADD:
    case HR_OP_MUL:
      is = add_operand(node, other, p);
      break;
    case HR_OP_SUB:
    case HR_OP_DIV:
    case HR_OP_LEAKY_RELU:
      is = is_first && add_operand(node, other, p);
      break;
    case HR_OP_ADD_SCALED:
      is = epilogue->inputs[1] == HR_EPILOGUE_VALUE && add_operand(node, epilogue->inputs[0], p) &&
           add_operand(node, epilogue->inputs[2], p);
      break;
    default:
      break;
  }
  p->finish_count += is;
  return is;
}

/* A number for each column, in any number of dims. */
static bool add_bias(const hr_node *node, hr_prepared *p) {
  const hr_operand *bias = node->input_count > 2 ? &node->inputs[2] : NULL;
  if (bias == NULL || bias->kind == HR_OPERAND_NONE) {
    return true;
  }
  for (int d = 0; d < bias->rank - 1; ++d) {
    if (bias->strides[d] != 0 && bias->dims[d] != 1) {
      return false;
    }
  }
  bool is_one = bias->rank == 0 || bias->dims[bias->rank - 1] == 1;
  addend x = {.arg = 2, .offset = bias->offset, .column = is_one ? 0 : bias->strides[bias->rank - 1]};
  p->finishes[p->finish_count++] = (finish){.op = HR_OP_ADD, .count = 1, .operands = {x}};
  return is_f32(bias) && !hr_operands_may_overlap(bias, &node->outputs[0]);
}

static int64_t flops_of(const hr_prepared *p) {
  return 2 * p->a.columns * p->c.rows * p->c.columns;
}

static bool has_product(const hr_node *node, hr_prepared *p) {
  const hr_operand *a = &node->inputs[0], *b = &node->inputs[1], *c = &node->outputs[0];
  return node->op == HR_OP_MATMUL && is_f32(a) && is_f32(b) && is_f32(c) && c->rank >= 2 && a->rank == c->rank &&
         b->rank == c->rank && tall_matrix(a, &p->a) && right_matrix(b, &p->b) && tall_matrix(c, &p->c) &&
         !p->c.is_transposed && p->a.rows == p->c.rows && p->a.columns > 0 && p->c.rows > 1 && p->c.columns > 0;
}

/* A weight outlives the program, which doesn't write it. */
static bool is_weight(const hr_program *program, const hr_node *node) {
  uint32_t index = node->inputs[1].index;
  return !program->buffers[index].is_dead && hr_program_writes(program, index) == 0;
}

/* True if sgemm multiplies faster by a transposed matrix after its columns are copied. */
static bool copying_is_worth(bool is_transposed, int64_t rows, int64_t depth) {
  return is_transposed && rows >= COPIED_ROWS_MIN && depth >= COPIED_DEPTH_MIN;
}

/* The loops that multiply. A weight's panels are worth their memory if its columns are dense, or it is large. Until
 * they exist, panels of the stored weight multiply if sgemm could give other bits. */
static void choose_loop(hr_prepared *p, bool is_weight) {
  int64_t rows = p->c.rows, depth = p->a.columns, columns = p->c.columns;
  bool packs = p->b.is_transposed, is_narrow = hr__panels_are_worth(rows, depth, columns, packs);
  p->is_few = !p->a.is_transposed && !p->b.is_transposed && few_rows_are_worth(rows, depth, columns);
  p->is_packed = is_weight && (packs || !is_narrow) && hr__packed_panels_are_worth(rows, depth, columns, packs);
  p->is_copied = is_weight && !p->is_packed && copying_is_worth(packs, rows, depth) && hr__panels_match(depth);
  p->is_panels = !p->is_few && !p->is_copied && (is_narrow || (p->is_packed && !hr__panels_match(depth)));
  p->is_handed = p->a.is_transposed && !p->b.is_transposed && !p->is_few && !p->is_panels && !p->is_packed &&
                 p->finish_count == 0 && p->c.offset == 0 && p->c.step == columns &&
                 hr__handed_is_worth(rows, depth, columns);
}

static bool plan(const hr_program *program, const hr_node *node, hr_prepared *p) {
  memset(p, 0, offsetof(hr_prepared, finishes));
  p->c_arg = node->input_count;
  bool is = has_product(node, p) && add_bias(node, p);
  for (int i = 0; is && i < node->epilogue_count; ++i) {
    is = add_epilogue(node, &node->epilogues[i], p);
  }
  bool is_constant = is && is_weight(program, node);
  if (is) {
    choose_loop(p, is_constant);
  }
  return is && (!is_constant || p->is_packed || p->is_panels || flops_of(p) <= FLOPS_MAX);
}

static bool supports(const hr_program *program, const hr_node *node) {
  hr_prepared p;
  return plan(program, node, &p);
}

/* True if loops of our own will probably multiply so many rows by b, in the first run and with more rows, too: sgemm
 * multiplies more rows by dense columns. */
static bool is_own(const hr_view *b, int64_t rows) {
  int64_t depth = b->dims[b->rank - 2], columns = b->dims[b->rank - 1];
  bool is_transposed = columns > 1 && b->strides[b->rank - 1] != 1;
  return !copying_is_worth(is_transposed, rows, depth) &&
         ((!is_transposed && few_rows_are_worth(rows, depth, columns)) ||
          hr__panels_are_worth(rows, depth, columns, is_transposed));
}

/* The record's product has more than one row and one right factor. */
static bool expects(hr_op op, const hr_view *inputs, const hr_view *output) {
  if (op != HR_OP_MATMUL || output->dtype != HR_DTYPE_F32 || inputs[0].dtype != HR_DTYPE_F32) {
    return false;
  }
  const hr_view *b = &inputs[1];
  int64_t columns = output->dims[output->rank - 1], matrices = 1;
  double count = 1;
  for (int d = 0; d < output->rank; ++d) {
    count *= (double)output->dims[d];
  }
  for (int d = 0; d < b->rank - 2; ++d) {
    matrices *= b->strides[d] != 0 ? b->dims[d] : 1;
  }
  return matrices == 1 && count > (double)columns && !is_own(b, (int64_t)count / columns);
}

static size_t footprint(const hr_prepared *p) {
  return offsetof(hr_prepared, finishes) + (size_t)p->finish_count * sizeof *p->finishes;
}

/* Each thread reads all of one factor: columns are split unless they are few. */
static void divide(hr_prepared *p) {
  bool is_serial = flops_of(p) < HR_ONEDNN_SERIAL_FLOPS || hr_thread_count() == 1;
  p->splits_columns = p->c.columns >= SIDE * hr_thread_count() || p->c.columns >= p->c.rows;
  p->groups = hr_max((p->splits_columns ? p->c.columns : p->c.rows) / SIDE, 1);
  p->grain = is_serial ? p->groups : hr_max(p->groups / hr_thread_count(), 1);
}

/* The products that are made aside; a multiple of 64 bytes. */
static int64_t aside_floats(const hr_prepared *p) {
  return p->is_aside ? hr_round_up(p->c.rows * p->c.columns, SIDE) : 0;
}

static bool packs(const hr_prepared *p) {
  return p->is_panels && p->b.is_transposed;
}

static size_t workspace_of(const hr_prepared *p) {
  int64_t shares = packs(p) ? hr_divide_up(p->groups, p->grain) : 0;
  int64_t panels =
      p->is_handed ? hr__packed_panels_floats(p->b.rows, p->b.columns) : shares * hr__panels_floats(p->b.rows);
  return (size_t)(aside_floats(p) + panels) * sizeof(float);
}

static void make_code(const hr_prepared *p) {
  if (!p->is_few && !p->is_panels) {
    hr__dnnl_generate_sgemm();
  }
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)algorithm, (void)queue;
  hr_prepared p;
  (void)plan(program, node, &p);
  divide(&p);
  *out_workspace_bytes = workspace_of(&p);
  HR_RETURN_IF_ERROR(hr__provider_keep(&p, footprint(&p), "matmul: no memory for a prepared product", out_prepared));
  make_code(&p);
  return HR_OK;
}

static bool renumber(hr_prepared *prepared, const hr_program *program, const hr_node *node,
                     size_t *out_workspace_bytes) {
  hr_prepared p;
  if (!plan(program, node, &p) || p.finish_count != prepared->finish_count) {
    return false;
  }
  divide(&p);
  *out_workspace_bytes = workspace_of(&p);
  memcpy(prepared, &p, footprint(&p));
  make_code(&p);
  return true;
}

/* Loops of our own are chosen by shapes that were measured. */
static bool is_settled(const hr_prepared *p) {
  return p->is_few || p->is_panels || p->is_packed || p->is_handed;
}

static bool hands_over(const hr_prepared *p) {
  return p->is_handed;
}

static bool needs_team(const hr_prepared *p) {
  return p->grain < p->groups;
}

static void stamp(hr_prepared *p, const uint64_t *stamps) {
  p->stamp = stamps[1];
}

static int keeps(const hr_prepared *p) {
  return p->is_copied || p->is_packed ? 1 : -1;
}

/* ---- finishing rows ---- */

typedef struct call {
  const hr_prepared *p;
  void *const *args;
  const float *a, *b;
  matrix right;      /* b, or its transposed copy */
  float *sums, *out; /* the product, and where it belongs */
  int64_t sums_step;
  bool has_panels; /* b is those of the whole right factor */
  float *packed;   /* panels of the right factor, one for each share */
  atomic_int code; /* of a call that failed */
} call;

/* A part of the result: rows [row, row_end), columns [column, column_end). */
typedef struct area {
  int64_t row, row_end, column, column_end;
} area;

/* `count` values of an operand from column `first` of a row: in place if they are dense, else in `buffer`. */
static const float *values_of(const call *c, const addend *x, int64_t row, int64_t first, int64_t count,
                              float buffer[BLOCK]) {
  if (x->is_number) {
    float number = hr_scalar_as_f32(c->args[x->arg]);
    for (int64_t i = 0; i < count; ++i) {
      buffer[i] = number;
    }
    return buffer;
  }
  const float *from = (const float *)c->args[x->arg] + x->offset + row * x->row + first * x->column;
  if (x->column == 1) {
    return from;
  }
  for (int64_t i = 0; i < count; ++i) {
    buffer[i] = from[i * x->column];
  }
  return buffer;
}

/* A row of ops.def, with its bits. */
static inline void apply(hr_op op, float *restrict values, const float *x, const float *y, int64_t count) {
  switch (op) {
    case HR_OP_ADD:
      for (int64_t i = 0; i < count; ++i) {
        values[i] = values[i] + x[i];
      }
      break;
    case HR_OP_SUB:
      for (int64_t i = 0; i < count; ++i) {
        values[i] = values[i] - x[i];
      }
      break;
    case HR_OP_MUL:
      for (int64_t i = 0; i < count; ++i) {
        values[i] = values[i] * x[i];
      }
      break;
    case HR_OP_DIV:
      for (int64_t i = 0; i < count; ++i) {
        values[i] = values[i] / x[i];
      }
      break;
    case HR_OP_RELU:
      for (int64_t i = 0; i < count; ++i) {
        values[i] = values[i] <= 0 ? 0 : values[i];
      }
      break;
    case HR_OP_LEAKY_RELU:
      for (int64_t i = 0; i < count; ++i) {
        values[i] = values[i] > 0 ? values[i] : values[i] * x[i];
      }
      break;
    default: /* add_scaled */
      for (int64_t i = 0; i < count; ++i) {
        float scaled = values[i] * y[i];
        values[i] = x[i] + scaled;
      }
  }
}

/* Applies the rows from number `begin` on. */
static void finish_block(const call *c, int begin, int64_t row, int64_t first, int64_t count) {
  const hr_prepared *p = c->p;
  float buffers[2][BLOCK], *values = c->sums + row * c->sums_step + first;
  for (int i = begin; i < p->finish_count; ++i) {
    const finish *f = &p->finishes[i];
    const float *x[2] = {NULL, NULL};
    for (int k = 0; k < f->count; ++k) {
      x[k] = values_of(c, &f->operands[k], row, first, count, buffers[k]);
    }
    apply(f->op, values, x[0], x[1], count);
  }
  if (p->is_aside) {
    memcpy(c->out + row * p->c.step + first, values, (size_t)count * sizeof *values);
  }
}

static void finish_area(const call *c, const area *x) {
  for (int64_t row = x->row; row < x->row_end; ++row) {
    for (int64_t first = x->column; first < x->column_end; first += BLOCK) {
      finish_block(c, 0, row, first, hr_min(BLOCK, x->column_end - first));
    }
  }
}

/* ---- running ---- */

/* to[k][n] = from[n][k], in blocks that fit the first cache. */
static void transpose(const float *from, const matrix *b, float *restrict to) {
  for (int64_t k = 0; k < b->rows; k += SIDE) {
    for (int64_t n = 0; n < b->columns; n += SIDE) {
      for (int64_t i = k; i < hr_min(k + SIDE, b->rows); ++i) {
        for (int64_t j = n; j < hr_min(n + SIDE, b->columns); ++j) {
          to[i * b->columns + j] = from[j * b->step + i];
        }
      }
    }
  }
}

/* The cached copy of the right factor, retained; NULL: there is none. */
static hr_cached_weights *copy_of(hr_prepared *p, const float *b) {
  const matrix *m = &p->b;
  const uint64_t recipe[RECIPE_WORDS] = {(p->is_packed ? PACKED : TRANSPOSED) + (uint64_t)m->is_transposed,
                                         (uint64_t)m->offset, (uint64_t)m->rows, (uint64_t)m->columns,
                                         (uint64_t)m->step};
  int64_t floats = p->is_packed ? hr__packed_panels_floats(m->rows, m->columns) : m->rows * m->columns;
  bool is_new = false;
  hr_cached_weights *copy =
      keeps(p) < 0 ? NULL
                   : hr__cached_weights_get(p->stamp, recipe, RECIPE_WORDS, (size_t)floats * sizeof(float), &is_new);
  if (copy != NULL && is_new) {
    float *to = hr__cached_weights_data(copy);
    if (p->is_packed) {
      hr__panels_pack(b, m->is_transposed ? 1 : m->step, m->is_transposed ? m->step : 1, m->rows, m->columns, to);
    } else {
      transpose(b, m, to);
    }
    hr__cached_weights_publish(copy);
  }
  return copy;
}

static int multiply(const call *c, const area *x) {
  const matrix *a = &c->p->a, *b = &c->right;
  const float *from_a = c->a + x->row * (a->is_transposed ? 1 : a->step);
  const float *from_b = c->b + x->column * (b->is_transposed ? b->step : 1);
  float *to = c->sums + x->row * c->sums_step + x->column;
  int64_t rows = x->row_end - x->row, columns = x->column_end - x->column;
  if (c->p->is_few) {
    few_rows_run(&(few_rows){rows, a->columns, columns, a->step, b->step, c->sums_step, from_a, from_b, to});
    return DNNL_SUCCESS;
  }
  int threads = hr_library_threads_set(1);
  int code = hr__dnnl()->sgemm(a->is_transposed ? 'T' : 'N', b->is_transposed ? 'T' : 'N', rows, columns, a->columns, 1,
                               from_a, a->step, from_b, b->step, 0, to, c->sums_step);
  (void)hr_library_threads_set(threads);
  return code;
}

/* The operand of row `i` of the finish if panels add it in registers: as a number for each column, or dense rows. */
static const addend *added(const hr_prepared *p, int i, bool is_bias) {
  const addend *x = &p->finishes[i].operands[0];
  bool is_sum = i < p->finish_count && p->finishes[i].op == HR_OP_ADD && !x->is_number;
  return is_sum && (is_bias ? x->row == 0 : x->row != 0 && x->column == 1) ? x : NULL;
}

static const addend *bias_of(const hr_prepared *p) {
  return added(p, 0, true);
}

static const addend *matrix_added(const hr_prepared *p) {
  return added(p, bias_of(p) != NULL, false);
}

/* The rows that panels add. */
static int added_count(const hr_prepared *p) {
  return (bias_of(p) != NULL) + (matrix_added(p) != NULL);
}

static void finish_strip(const void *arg, int64_t row, int64_t row_end, int64_t column, int64_t column_end) {
  const call *c = arg;
  int begin = added_count(c->p);
  for (; row < row_end; ++row) {
    finish_block(c, begin, row, column, column_end - column);
  }
}

static void run_panels(const call *c, const area *x, int64_t share) {
  const hr_prepared *p = c->p;
  const matrix *a = &p->a, *b = &p->b;
  hr__panels panels = {.row = x->row,
                       .row_end = x->row_end,
                       .column = x->column,
                       .column_end = x->column_end,
                       .depth = a->columns,
                       .a = c->a,
                       .a_row = a->is_transposed ? 1 : a->step,
                       .a_inner = a->is_transposed ? a->step : 1,
                       .b = c->b,
                       .b_inner = b->is_transposed ? 1 : b->step,
                       .b_column = b->is_transposed ? b->step : 1,
                       .packed_columns = c->has_panels ? b->columns : 0,
                       .c = c->sums,
                       .c_row = c->sums_step,
                       .packed = packs(p) ? c->packed + share * hr__panels_floats(b->rows) : NULL,
                       .arg = c};
  const addend *bias = bias_of(p), *more = matrix_added(p);
  if (bias != NULL) {
    panels.bias = (const float *)c->args[bias->arg] + bias->offset;
    panels.bias_step = bias->column;
  }
  if (more != NULL) {
    panels.more = (const float *)c->args[more->arg] + more->offset;
    panels.more_row = more->row;
  }
  if (p->is_aside || p->finish_count > added_count(p)) {
    panels.finish = finish_strip;
  }
  hr__panels_multiply(&panels);
}

static void run_area(call *c, const area *x, int64_t share) {
  if (c->p->is_panels || c->has_panels) {
    run_panels(c, x, share);
    return;
  }
  int code = multiply(c, x);
  if (code != DNNL_SUCCESS) {
    atomic_store_explicit(&c->code, code, memory_order_relaxed);
  } else if (c->p->finish_count > 0 || c->p->is_aside) {
    finish_area(c, x);
  }
}

/* Groups [begin, end) of the columns, or of the rows. */
static void run_share(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  call *c = arg;
  const matrix *y = &c->p->c;
  area x = {.row_end = y->rows, .column_end = y->columns};
  bool is_last = end == c->p->groups;
  if (c->p->splits_columns) {
    x.column = begin * SIDE, x.column_end = is_last ? y->columns : end * SIDE;
  } else {
    x.row = begin * SIDE, x.row_end = is_last ? y->rows : end * SIDE;
  }
  run_area(c, &x, begin / c->p->grain); /* shares have `grain` groups at least */
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  call c = {.p = p, .args = args, .right = p->b, .out = (float *)args[p->c_arg] + p->c.offset};
  c.a = (const float *)args[0] + p->a.offset, c.b = (const float *)args[1] + p->b.offset;
  c.sums = p->is_aside ? workspace : c.out;
  c.sums_step = p->is_aside ? p->c.columns : p->c.step;
  c.packed = packs(p) ? (float *)workspace + aside_floats(p) : NULL;
  hr_cached_weights *copy = copy_of(p, c.b);
  if (copy != NULL) {
    c.b = hr__cached_weights_data(copy);
    c.has_panels = p->is_packed;
    c.right = (matrix){.rows = p->b.rows, .columns = p->b.columns, .step = p->b.columns};
  }
  hr_parallel_for(p->groups, p->grain, run_share, &c);
  hr__cached_weights_release(copy);
  return hr__dnnl_status(atomic_load_explicit(&c.code, memory_order_relaxed), "sgemm");
}

static bool run_for(hr_prepared *p, void *const *args, void *workspace, const hr_host_taker *taker) {
  return hr__handed_multiply(&(hr__handed){.rows = p->c.rows,
                                           .depth = p->a.columns,
                                           .columns = p->c.columns,
                                           .a = (const float *)args[0] + p->a.offset,
                                           .a_step = p->a.step,
                                           .b = (const float *)args[1] + p->b.offset,
                                           .b_step = p->b.step,
                                           .c = args[p->c_arg],
                                           .panels = workspace,
                                           .taker = taker});
}

const hr_provider HR_CPU_NAME(hr__sgemm_provider) = {
    .name = "sgemm",
    .is_apart = true,
    .has_threads = true,
    .open = hr__onednn_open,
    .runs = hr__provider_runs_products,
    .supports = supports,
    .prepare = prepare,
    .renumber = renumber,
    .expects = expects,
    .generate = hr__dnnl_generate_sgemm,
    .version = hr__onednn_version,
    .is_settled = is_settled,
    .needs_team = needs_team,
    .stamp = stamp,
    .keeps = keeps,
    .hands_over = hands_over,
    .run_for = run_for,
    .run = run,
    .footprint = footprint,
    .release = hr__provider_release,
};
