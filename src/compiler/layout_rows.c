/* Rows of 16-bit matrices that begin at addresses that the library's fast kernels can read. See layout.c.
 *
 *   before   %3:bf16[8192,50257]{50257,1} = matmul(%0, %1)
 *            loop %4:f32[8192,50257]{50257,1} = cast(%3:..)
 *   after    %3:bf16[8192,50257]{50264,1} = matmul(%0, %1)
 *            loop %4:f32[8192,50257]{50257,1} = cast(%3:..{50264,1})
 *
 * The columns of a product's operand are its neighbours in memory; everything else is rows. A row grows by a few
 * elements that no node reads.
 *
 *   before   %5:bf16[8192,768] = matmul(%4:bf16[8192,50257]{50264,1}, %1:bf16[50257,768]{768,1})
 *   after    loop %4:bf16[8192,7]{50264,1}+50257 = copy(0)
 *            loop %6:bf16[50257,768]{768,1} = copy(%1)              loop %6:bf16[7,768]{768,1}+38597376 = copy(0)
 *            %5:bf16[8192,768] = matmul(%4:bf16[8192,50264]{50264,1}, %6:bf16[50264,768]{768,1})
 *
 * The fast kernels also need a depth (the summed dim of a product) that is a multiple of the same number. If a factor
 * has grown along its depth, the new elements become zeros. The other factor gets as many zeros, in a copy if need be,
 * which is small beside a large product. A large product whose result outlives the program, in unaligned rows that
 * can't grow, goes through a copy as well.
 *
 *   after    loop %6:bf16[768,50257]{1,768} = copy(%1)              loop %6:bf16[768,7]{1,768}+38597376 = copy(0)
 *            %4:bf16[8192,50264]{50264,1} = matmul(%0:bf16[8192,768], %6:bf16[768,50264]{1,768})
 *
 * The number of columns must be such a multiple, too: if the rows of the product have room, it fills them. The same
 * holds for the number of rows if the left factor is stored by columns that have grown: the product then goes through a
 * temporary with as many rows.
 */
#include <string.h>

#include "base/integer.h"
#include "compiler/layout_internal.h"
#include "core/ir/build.h"

enum { NARROW_BYTES = 2, SHARE_MOST = 4 /* a row grows by at most 1 / SHARE_MOST */ };
enum { COPY_ROWS = 512 /* a factor is copied if each of its elements is used this often */ };
static const int64_t DEPTH_WORK = INT64_C(1) << 30;

/* The operands of a node that may have longer rows: the factors and the product. */
static uint32_t matrices(const hr_node *node) {
  return !node->is_loop && node->op == HR_OP_MATMUL ? 3u | 1u << node->input_count : 0;
}

static bool takes(const hr__layout *l, const hr_node *node, int operand) {
  (void)l;
  return matrices(node) >> operand & 1;
}

/* The layout of a buffer that an operand walks densely, with longer rows; false if it doesn't, or if they need not be
 * longer. */
static bool layout_of(const hr_program *program, const hr_operand *operand, size_t alignment, hr__layout *out_layout) {
  int columns = hr__layout_next_dim(operand, 1);
  if (columns < operand->rank - 2 || columns < 0 || hr_dtype_size(operand->dtype) != NARROW_BYTES) {
    return false;
  }
  int64_t width = operand->dims[columns], unit = (int64_t)(alignment / NARROW_BYTES), rows = 1;
  for (int d; (d = hr__layout_next_dim(operand, width * rows)) >= 0;) {
    rows *= operand->dims[d];
  }
  int64_t pitch = hr_round_up(width, unit);
  *out_layout = (hr__layout){.dims = {rows, 1, width},
                             .strides = {pitch, pitch, 1},
                             .element_bytes = NARROW_BYTES,
                             .bytes = (size_t)(rows * pitch) * NARROW_BYTES};
  return (size_t)(rows * width) * NARROW_BYTES == program->buffers[operand->index].bytes && pitch != width &&
         rows > 1 && (pitch - width) * SHARE_MOST <= width;
}

bool hr__layout_rows(hr__layout_pass *p, size_t alignment) {
  for (int n = 0; n < p->program->node_count; ++n) {
    const hr_node *node = &p->program->nodes[n];
    uint32_t mask = matrices(node);
    for (int i = 0; mask != 0 && i < node->input_count + node->output_count; ++i) {
      const hr_operand *operand = hr_node_operand(node, i);
      hr__layout l;
      if ((mask >> i & 1) && hr__layout_is_open(p, operand) && !p->candidates[operand->index].is_seen &&
          layout_of(p->program, operand, alignment, &l) && !hr__layout_relay(p, operand, &l, takes)) {
        return false;
      }
    }
  }
  return true;
}

/* ---- depth ---- */

/* A product's factors, and the summed dim of each. */
typedef struct product {
  hr_operand factors[2];
  int dims[2];
  bool has_grown[2]; /* along that dim */
  int64_t depth, grown_depth;
} product;

/* True if rows of the factor have grown along the dim, which is a whole row. */
static bool has_grown(const hr__layout_pass *p, const hr_operand *x, int dim) {
  const hr__candidate *c = &p->candidates[x->index];
  return c->is_relaid && !c->is_seen && x->strides[dim] == 1 && x->dims[dim] == c->layout.dims[HR__INNER] &&
         c->layout.dims[HR__CHANNEL] == 1 && c->layout.strides[HR__OUTER] > x->dims[dim] &&
         x->offset % c->layout.strides[HR__OUTER] == 0;
}

static int64_t count_elements(const hr_operand *x) {
  int64_t count = 1;
  for (int d = 0; d < x->rank; ++d) {
    count *= x->dims[d];
  }
  return count;
}

static int64_t work_of(const hr_node *node) {
  return count_elements(&node->outputs[0]) * node->inputs[0].dims[node->inputs[0].rank - 1];
}

/* True if the node is a product of matrices that is worth small kernels beside it. */
static bool is_large(const hr_target *target, const hr_node *node) {
  if (matrices(node) == 0 || node->input_count < 2) {
    return false;
  }
  const hr_operand *operands[3] = {&node->inputs[0], &node->inputs[1], &node->outputs[0]};
  for (int i = 0; i < 3; ++i) {
    if (operands[i]->kind != HR_OPERAND_VALUE || operands[i]->rank < 2 ||
        hr_dtype_size(operands[i]->dtype) != NARROW_BYTES || operands[i]->dtype != operands[0]->dtype) {
      return false;
    }
  }
  return work_of(node) >= (target->depth_work > 0 ? target->depth_work : DEPTH_WORK);
}

/* True if it is worth padding with zeros. */
static bool is_deep(const hr__layout_pass *p, const hr_target *target, const hr_node *node, product *out_product) {
  if (!is_large(target, node)) {
    return false;
  }
  product deep = {.factors = {node->inputs[0], node->inputs[1]}};
  deep.dims[0] = deep.factors[0].rank - 1, deep.dims[1] = deep.factors[1].rank - 2;
  deep.depth = deep.factors[0].dims[deep.dims[0]];
  bool is_worth = true, grows = false;
  for (int i = 0; i < 2; ++i) {
    deep.has_grown[i] = has_grown(p, &deep.factors[i], deep.dims[i]);
    is_worth = is_worth && (deep.has_grown[i] || work_of(node) / count_elements(&deep.factors[i]) >= COPY_ROWS);
    if (deep.has_grown[i]) {
      grows = true;
      deep.grown_depth = p->candidates[deep.factors[i].index].layout.strides[HR__OUTER];
    }
  }
  *out_product = deep;
  return is_worth && grows;
}

static int64_t pitch_of(int64_t width, const hr_target *target) {
  int64_t unit = (int64_t)(target->row_alignment / NARROW_BYTES);
  return hr_round_up(width, unit);
}

/* True if a large product writes rows that can't grow, for example since they are visible afterwards, and is worth a
 * copy of them. */
static bool has_odd_result(const hr_target *target, const hr_node *node) {
  if (!is_large(target, node)) {
    return false;
  }
  const hr_operand *out = &node->outputs[0];
  int64_t width = out->dims[out->rank - 1], row = out->strides[out->rank - 2];
  return out->strides[out->rank - 1] == 1 && out->dims[out->rank - 2] > 1 && row != pitch_of(row, target) &&
         (pitch_of(width, target) - width) * SHARE_MOST <= width && work_of(node) / count_elements(out) >= COPY_ROWS;
}

/* The operand's place in a temporary whose last two dims are `rows` and `columns`. */
static hr_operand make_result(hr_builder *b, hr_operand out, int64_t rows, int64_t columns) {
  int64_t dims[HR_RANK_MAX];
  for (int d = 0; d < out.rank; ++d) {
    dims[d] = d == out.rank - 1 ? columns : d == out.rank - 2 ? rows : out.dims[d];
  }
  hr_operand temp = hr_build_temp(b, out.dtype, out.rank, dims);
  return hr_is_present(temp) ? hr_view_strided(b, temp, out.rank, out.dims, temp.strides, temp.offset) : temp;
}

/* The operand with its last two dims exchanged. */
static hr_operand turn(hr_builder *b, hr_operand x) {
  int order[HR_RANK_MAX];
  for (int d = 0; d < x.rank; ++d) {
    order[d] = d >= x.rank - 2 ? 2 * x.rank - 3 - d : d;
  }
  return hr_view_permute(b, x, order);
}

/* The operand with `length` elements along a dim, zeros at the end: in its own rows, if they have room, or as a copy
 * with the same order of dims. */
static hr_operand lengthen(hr_builder *b, hr_operand x, int dim, int64_t length, bool has_room) {
  if (!hr_is_present(x)) {
    return x;
  }
  if ((x.strides[dim] == 1) != (dim == x.rank - 1)) {
    return turn(b, lengthen(b, turn(b, x), 2 * x.rank - 3 - dim, length, has_room));
  }
  hr_operand longer;
  int64_t dims[HR_RANK_MAX];
  for (int d = 0; d < x.rank; ++d) {
    dims[d] = d == dim ? length : x.dims[d];
  }
  if (has_room) {
    longer = hr_view_strided(b, x, x.rank, dims, x.strides, x.offset);
  } else {
    longer = hr_build_temp(b, x.dtype, x.rank, dims);
    if (hr_is_present(longer)) {
      hr_emit1(b, HR_OP_COPY, hr_view_slice(b, longer, dim, 0, x.dims[dim], 1), x);
    }
  }
  if (hr_is_present(longer)) {
    hr_emit1(b, HR_OP_COPY, hr_view_slice(b, longer, dim, x.dims[dim], length - x.dims[dim], 1), hr_build_f64(b, 0));
  }
  return longer;
}

/* ---- columns ---- */

/* True if a large product that leaves room at the ends of its rows is worth a copy of the right factor with as many
 * columns. */
static bool is_wide(const hr__layout_pass *p, const hr_target *target, const hr_node *node) {
  if (!is_large(target, node)) {
    return false;
  }
  const hr_operand *out = &node->outputs[0];
  return (has_odd_result(target, node) || has_grown(p, out, out->rank - 1)) &&
         (node->input_count < 3 || node->inputs[2].kind == HR_OPERAND_NONE) &&
         work_of(node) / count_elements(&node->inputs[1]) >= COPY_ROWS;
}

/* True if the left factor of a large product is stored by columns that have grown, so that it may have as many rows. */
static bool is_tall(const hr__layout_pass *p, const hr_target *target, const hr_node *node) {
  return is_large(target, node) && (node->input_count < 3 || node->inputs[2].kind == HR_OPERAND_NONE) &&
         has_grown(p, &node->inputs[0], node->inputs[0].rank - 2) &&
         work_of(node) / count_elements(&node->outputs[0]) >= COPY_ROWS;
}

/* Makes the product have all rows of its left factor, in a temporary. */
static void heighten(hr_builder *b, hr_node *node) {
  hr_operand *out = &node->outputs[0], *left = &node->inputs[0];
  int64_t dims[HR_RANK_MAX];
  *left = lengthen(b, *left, left->rank - 2, left->strides[left->rank - 1], true);
  if (b->status == HR_OK) {
    memcpy(dims, out->dims, (size_t)out->rank * sizeof *dims);
    dims[out->rank - 2] = left->dims[left->rank - 2];
    *out = hr_view_strided(b, *out, out->rank, dims, out->strides, out->offset);
  }
}

/* Makes the product fill its rows. */
static void widen(hr_builder *b, hr_node *node) {
  hr_operand *out = &node->outputs[0], *right = &node->inputs[1];
  int64_t dims[HR_RANK_MAX], pitch = out->strides[out->rank - 2];
  for (int d = 0; d < out->rank; ++d) {
    dims[d] = d == out->rank - 1 ? pitch : out->dims[d];
  }
  *right = lengthen(b, *right, right->rank - 1, pitch, false);
  *out = hr_view_strided(b, *out, out->rank, dims, out->strides, out->offset);
}

static hr_status no_memory(int count) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "layout: no memory for %d nodes", count);
}

hr_status hr__layout_deepen(const hr__layout_pass *p, const hr_target *target) {
  hr_program *program = p->program;
  int count = program->node_count;
  product deep;
  bool has_work = false;
  for (int n = 0; n < count && !has_work; ++n) {
    const hr_node *node = &program->nodes[n];
    has_work = is_deep(p, target, node, &deep) || has_odd_result(target, node) || is_wide(p, target, node) ||
               is_tall(p, target, node);
  }
  if (!has_work) {
    return HR_OK;
  }
  hr_node *nodes = hr_arena_dup(&program->arena, program->nodes, (size_t)count * sizeof *nodes);
  hr_builder b = {.program = program};
  if (nodes == NULL) {
    return no_memory(count);
  }
  program->node_count = 0;
  for (int n = 0; n < count && b.status == HR_OK; ++n) {
    b.origin = nodes[n].origin;
    bool is = is_deep(p, target, &nodes[n], &deep);
    const hr_operand out = nodes[n].output_count > 0 ? nodes[n].outputs[0] : (hr_operand){0};
    bool is_odd = has_odd_result(target, &nodes[n]), has_room = is_wide(p, target, &nodes[n]);
    bool has_rows = is_tall(p, target, &nodes[n]);
    nodes[n].is_relaid |= is || is_odd || has_room || has_rows;
    for (int i = 0; is && i < 2; ++i) {
      nodes[n].inputs[i] = lengthen(&b, deep.factors[i], deep.dims[i], deep.grown_depth, deep.has_grown[i]);
    }
    hr_operand made = out;
    if (is_odd || has_rows) {
      int64_t rows = out.dims[out.rank - 2], columns = out.dims[out.rank - 1];
      made =
          make_result(&b, out, has_rows ? pitch_of(rows, target) : rows, is_odd ? pitch_of(columns, target) : columns);
      nodes[n].outputs[0] = made;
    }
    if (has_room && b.status == HR_OK) {
      widen(&b, &nodes[n]);
    }
    if (has_rows && b.status == HR_OK) {
      heighten(&b, &nodes[n]);
    }
    if (b.status == HR_OK && !hr_program_append(program, &nodes[n])) {
      return no_memory(count);
    }
    if (is_odd || has_rows) {
      hr_emit1(&b, HR_OP_COPY, out, made);
    }
  }
  return b.status;
}
