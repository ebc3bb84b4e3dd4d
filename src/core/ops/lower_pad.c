/* lower_pad.c: padding with elements of x: reflected, repeated, or from the other side.
 *
 * The input is copied into the middle of the result. Then one dim after the other gets its two borders, each a copy of
 * a part of the result so far: a slice, read backwards if it reflects, or one of stride 0. So earlier dims supply the
 * corners. The gradient reverses that: a copy of it adds its borders to its middle, dim by dim from the last; the order
 * matters.
 */
#include "core/ops/lower.h"

typedef enum border_kind { REFLECT = 0, REPLICATE, SYMMETRIC, WRAP } border_kind;

typedef struct border {
  border_kind kind;
  int rank;
  const int64_t *before, *after, *in;
} border;

static border border_of(const hr_node *node, hr_operand small) {
  return (border){.kind = (border_kind)node->ints[0],
                  .rank = small.rank,
                  .before = node->ints + 1,
                  .after = node->ints + 1 + small.rank,
                  .in = small.dims};
}

/* The part of the large operand that is complete before dim `dim` gets its borders: the middle of the dims from `dim`
 * on.
 */
static hr_operand ready_part(hr_builder *b, hr_operand large, const border *p, int dim) {
  for (int d = dim; d < p->rank; ++d) {
    large = hr_view_slice(b, large, d, p->before[d], p->in[d], 1);
  }
  return large;
}

/* The place in dim `dim` of the large operand that its first border element shows. */
static int64_t first_shown(const border *p, int dim, bool is_after) {
  int64_t begin = p->before[dim], end = begin + p->in[dim];
  switch (p->kind) {
    case REPLICATE:
      return is_after ? end - 1 : begin;
    case SYMMETRIC:
      return is_after ? end - 1 : 2 * begin - 1;
    case WRAP:
      return is_after ? begin : p->in[dim];
    default:
      return is_after ? end - 2 : 2 * begin;
  }
}

/* One side of dim `dim` of the large operand: the border's view, and the view of its source. Later dims are cut to
 * their middle. */
static void border_views(hr_builder *b, hr_operand large, const border *p, int dim, bool is_after,
                         hr_operand *out_border, hr_operand *out_shown) {
  int64_t count = is_after ? p->after[dim] : p->before[dim], end = p->before[dim] + p->in[dim];
  int step = p->kind == REPLICATE ? 0 : p->kind == WRAP ? 1 : -1;
  hr_operand part = ready_part(b, large, p, dim + 1);
  *out_border = hr_view_slice(b, part, dim, is_after ? end : 0, count, 1);
  *out_shown = hr_view_slice(b, part, dim, first_shown(p, dim, is_after), count, step);
}

hr_status hr__lower_pad_border(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0);
  border p = border_of(node, x);
  if (hr_operand_count(y) == 0) {
    return HR_OK;
  }
  hr_emit1(b, HR_OP_COPY, ready_part(b, y, &p, 0), x);
  for (int d = 0; d < p.rank; ++d) {
    for (int side = 0; side < 2; ++side) {
      hr_operand edge, shown;
      border_views(b, y, &p, d, side == 1, &edge, &shown);
      if (hr_operand_count(edge) > 0) {
        hr_emit1(b, HR_OP_COPY, edge, shown);
      }
    }
  }
  return HR_OK;
}

hr_status hr__lower_pad_border_backward(hr_builder *b, const hr_node *node) {
  hr_operand dy = hr_node_input(node, 0), dx = hr_node_output(node, 0);
  border p = border_of(node, dx);
  if (hr_operand_count(dx) == 0) {
    return HR_OK;
  }
  hr_dtype dtype = hr__wide(dx.dtype);
  hr_operand g = hr_make1(b, HR_OP_COPY, dtype, dy);
  for (int d = p.rank - 1; d >= 0; --d) {
    for (int side = 0; side < 2; ++side) {
      hr_operand edge, shown;
      border_views(b, g, &p, d, side == 1, &edge, &shown);
      if (hr_operand_count(edge) == 0) {
        continue;
      }
      if (p.kind == REPLICATE) {
        edge = hr_make_reduce(b, HR_OP_SUM, dtype, edge, 1u << d);
        shown = hr_view_slice(b, shown, d, 0, 1, 1);
      }
      hr_emit2(b, HR_OP_ADD, shown, shown, edge);
    }
  }
  hr_emit1(b, HR_OP_COPY, dx, ready_part(b, g, &p, 0));
  return HR_OK;
}
