/* lower_norm.c: layer, group and batch normalisation and their gradients.
 *
 * A *row* here is the set of elements that share one mean. With d = x - mean and n elements in a row
 *
 *   mean = sum(x) / n    rstd = 1 / sqrt(sum(d * d) / n + eps)    y = d * rstd * weight + bias
 *
 * and the gradient of x, with g = dy * weight and h = d * rstd, is rstd * (g - sum(g) / n - h * sum(g * h) / n). Rows
 * of batch norm are long: only values of a whole row are kept between passes, and elements are loaded again.
 */
#include "core/ops/lower.h"

typedef struct moments {
  hr_operand centred; /* x - mean */
  hr_operand mean;
  hr_operand squares; /* sum of centred^2 */
  hr_operand rstd;
} moments;

/* mean_out and rstd_out are the outputs with the reduced dims kept; either may be absent. */
static moments measure(hr_builder *b, hr_operand x, uint32_t mask, double count, hr_operand eps, hr_dtype dtype,
                       hr_operand mean_out, hr_operand rstd_out) {
  moments m;
  hr_operand n = hr_build_f64(b, count);
  hr_operand sum = hr_make_reduce(b, HR_OP_SUM, dtype, x, mask);
  m.mean = hr__result(b, mean_out, dtype, sum);
  hr_emit2(b, HR_OP_DIV, m.mean, sum, n);
  m.centred = hr_make2(b, HR_OP_SUB, dtype, x, m.mean);
  m.squares = hr_make_reduce(b, HR_OP_SUM, dtype, hr_make1(b, HR_OP_SQUARE, dtype, m.centred), mask);
  hr_operand variance = hr_make4(b, HR_OP_ADDCDIV, dtype, eps, m.squares, n, hr_build_f64(b, 1));
  m.rstd = hr__result(b, rstd_out, dtype, m.squares);
  hr_emit1(b, HR_OP_RSQRT, m.rstd, variance);
  return m;
}

static void deliver(hr_builder *b, const moments *m, hr_dtype dtype, hr_operand mean_out, hr_operand rstd_out) {
  hr__deliver(b, mean_out, dtype, m->mean);
  hr__deliver(b, rstd_out, dtype, m->rstd);
}

/* The row value `x`, made dependent on `after`, which is NaN or infinite only where the result is. So for long rows the
 * elements that use it are computed in the last pass, instead of in the first and then stored. */
static hr_operand make_late(hr_builder *b, hr_operand x, hr_operand after, hr_dtype dtype) {
  return hr_make3(b, HR_OP_ADD_SCALED, dtype, x, after, hr_build_f64(b, 0));
}

/* y = centred * rstd * weight + bias; the last two are optional. */
static void emit_affine(hr_builder *b, hr_operand y, hr_operand centred, hr_operand rstd, hr_operand weight,
                        hr_operand bias, hr_dtype dtype) {
  if (hr_is_present(weight) && hr_is_present(bias)) {
    hr_emit4(b, HR_OP_ADDCMUL, y, bias, rstd, weight, centred);
  } else if (hr_is_present(weight)) {
    hr_emit2(b, HR_OP_MUL, y, hr_make2(b, HR_OP_MUL, dtype, centred, rstd), weight);
  } else if (hr_is_present(bias)) {
    hr_emit3(b, HR_OP_ADD_SCALED, y, bias, centred, rstd);
  } else {
    hr_emit2(b, HR_OP_MUL, y, centred, rstd);
  }
}

/* The gradient of x; all operands have the rank of x or broadcast to it. It is emitted after the gradients of weight
 * and bias, if those are wanted. h is recomputed from a copy of the means, in the order below: so it shares a kernel
 * with the rows and not with the columns, which would have to store it for the rows. */
static void emit_row_gradient(hr_builder *b, hr_operand dx, hr_operand dy, hr_operand x, hr_operand mean,
                              hr_operand rstd, hr_operand weight, uint32_t mask, double count, hr_dtype dtype) {
  hr_operand n = hr_build_f64(b, count), own_mean = hr_make1(b, HR_OP_COPY, dtype, mean), g = dy;
  hr_operand h = hr_make2(b, HR_OP_MUL, dtype, hr_make2(b, HR_OP_SUB, dtype, x, own_mean), rstd);
  hr_operand gh = hr_make2(b, HR_OP_MUL, dtype, dy, h);
  if (hr_is_present(weight)) {
    gh = hr_make2(b, HR_OP_MUL, dtype, gh, weight);
    g = hr_make2(b, HR_OP_MUL, dtype, dy, weight);
  }
  hr_operand gh_mean = hr_make2(b, HR_OP_DIV, dtype, hr_make_reduce(b, HR_OP_SUM, dtype, gh, mask), n);
  hr_operand g_mean = hr_make2(b, HR_OP_DIV, dtype, hr_make_reduce(b, HR_OP_SUM, dtype, g, mask), n);
  hr_operand rest = hr_make3(b, HR_OP_SUB_SCALED, dtype, g, h, gh_mean);
  hr_emit2(b, HR_OP_MUL, dx, hr_make2(b, HR_OP_SUB, dtype, rest, g_mean), rstd);
}

/* dweight = sum(dy * h), dbias = sum(dy) over `mask`; both outputs have the rank of x. */
static void emit_column_gradients(hr_builder *b, hr_operand dweight, hr_operand dbias, hr_operand dy, hr_operand x,
                                  hr_operand mean, hr_operand rstd, uint32_t mask, hr_dtype dtype) {
  if (hr_is_present(dweight)) {
    hr_operand h = hr_make2(b, HR_OP_MUL, dtype, hr_make2(b, HR_OP_SUB, dtype, x, mean), rstd);
    hr_emit_reduce(b, HR_OP_SUM, dweight, hr_make2(b, HR_OP_MUL, dtype, h, dy), mask);
  }
  if (hr_is_present(dbias)) {
    hr_emit_reduce(b, HR_OP_SUM, dbias, dy, mask);
  }
}

/* ---- layer norm ---- */

hr_status hr__lower_layer_norm(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), y = hr_node_output(node, 0);
  hr_operand mean_out = hr_node_output(node, 1), rstd_out = hr_node_output(node, 2);
  int trailing = (int)node->ints[0];
  uint32_t mask = hr__mask_range(x.rank - trailing, trailing);
  hr_dtype dtype = hr__wide(x.dtype);
  moments m =
      measure(b, x, mask, (double)hr__mask_count(x, mask), hr_build_attr(b, node, 0), dtype, mean_out, rstd_out);
  emit_affine(b, y, m.centred, m.rstd, hr_node_input(node, 1), hr_node_input(node, 2), dtype);
  deliver(b, &m, dtype, mean_out, rstd_out);
  return HR_OK;
}

hr_status hr__lower_layer_norm_backward(hr_builder *b, const hr_node *node) {
  hr_operand operands[4], outputs[3];
  int rank = hr_node_input(node, 1).rank, trailing = (int)node->ints[0], grown = rank == trailing;
  for (int i = 0; i < 4; ++i) {
    operands[i] = hr__ones_before(b, hr_node_input(node, i), grown);
  }
  outputs[0] = hr__ones_before(b, hr_node_output(node, 0), grown);
  for (int i = 1; i < 3; ++i) {
    outputs[i] = hr__ones_before(b, hr_node_output(node, i), rank + grown - trailing);
  }
  hr_operand dy = operands[0], x = operands[1], mean = operands[2], rstd = operands[3];
  uint32_t rows = hr__mask_range(rank + grown - trailing, trailing),
           columns = hr__mask_range(0, rank + grown - trailing);
  hr_dtype dtype = hr__wide(x.dtype);
  emit_column_gradients(b, outputs[1], outputs[2], dy, x, mean, rstd, columns, dtype);
  if (hr_is_present(outputs[0])) {
    double count = (double)hr__mask_count(hr_node_input(node, 1), hr__mask_range(rank - trailing, trailing));
    emit_row_gradient(b, outputs[0], dy, x, mean, rstd, hr_node_input(node, 4), rows, count, dtype);
  }
  return HR_OK;
}

/* ---- group norm: [N, C, ..] as [N, G, C/G, ..] ---- */

typedef struct grouping {
  int64_t groups, inner; /* inner: channels of a group */
  int rank;              /* of x, split */
  uint32_t rows, columns;
  double count;
} grouping;

static grouping grouping_of(hr_operand x, int64_t groups) {
  grouping g = {groups, x.dims[1] / groups, x.rank + 1, hr__mask_range(2, x.rank - 1), 0, 0};
  g.columns = 1u | hr__mask_range(3, x.rank - 2);
  g.count = (double)g.inner;
  for (int d = 2; d < x.rank; ++d) {
    g.count *= (double)x.dims[d];
  }
  return g;
}
/* Splits the channels in dim `dim` into groups; without channels each group is empty. */
static hr_operand split_dim(hr_builder *b, const grouping *g, hr_operand x, int dim) {
  return g->inner > 0 ? hr_view_split(b, x, dim, g->inner) : hr_view_insert(b, x, dim, g->groups);
}
static hr_operand split_channels(hr_builder *b, const grouping *g, hr_operand x) {
  return hr_is_present(x) ? split_dim(b, g, x, 1) : x;
}
/* [C] as [1, G, C/G, 1, ..] */
static hr_operand split_vector(hr_builder *b, const grouping *g, hr_operand v) {
  if (!hr_is_present(v)) {
    return v;
  }
  return hr__ones_before(b, hr__ones_after(b, split_dim(b, g, v, 0), g->rank - 3), 1);
}

hr_status hr__lower_group_norm(hr_builder *b, const hr_node *node) {
  grouping g = grouping_of(hr_node_input(node, 0), node->ints[0]);
  hr_operand x = split_channels(b, &g, hr_node_input(node, 0)), y = split_channels(b, &g, hr_node_output(node, 0));
  hr_operand mean_out = hr__ones_after(b, hr_node_output(node, 1), g.rank - 2);
  hr_operand rstd_out = hr__ones_after(b, hr_node_output(node, 2), g.rank - 2);
  hr_dtype dtype = hr__wide(x.dtype);
  moments m = measure(b, x, g.rows, g.count, hr_build_attr(b, node, 0), dtype, mean_out, rstd_out);
  hr_operand centred = hr_make2(b, HR_OP_SUB, dtype, x, make_late(b, m.mean, m.rstd, dtype));
  emit_affine(b, y, centred, m.rstd, split_vector(b, &g, hr_node_input(node, 1)),
              split_vector(b, &g, hr_node_input(node, 2)), dtype);
  deliver(b, &m, dtype, mean_out, rstd_out);
  return HR_OK;
}

hr_status hr__lower_group_norm_backward(hr_builder *b, const hr_node *node) {
  grouping g = grouping_of(hr_node_input(node, 1), node->ints[0]);
  hr_operand dy = split_channels(b, &g, hr_node_input(node, 0)), x = split_channels(b, &g, hr_node_input(node, 1));
  hr_operand mean = hr__ones_after(b, hr_node_input(node, 2), g.rank - 2);
  hr_operand rstd = hr__ones_after(b, hr_node_input(node, 3), g.rank - 2);
  hr_operand dx = split_channels(b, &g, hr_node_output(node, 0));
  hr_dtype dtype = hr__wide(x.dtype);
  emit_column_gradients(b, split_vector(b, &g, hr_node_output(node, 1)), split_vector(b, &g, hr_node_output(node, 2)),
                        dy, x, mean, rstd, g.columns, dtype);
  if (hr_is_present(dx)) {
    emit_row_gradient(b, dx, dy, x, mean, rstd, split_vector(b, &g, hr_node_input(node, 4)), g.rows, g.count, dtype);
  }
  return HR_OK;
}

/* ---- batch norm: rows are channels ---- */

static uint32_t all_but_channels(int rank) {
  return hr__mask_range(0, rank) & ~2u;
}

/* y = x * alpha + beta with alpha = rstd * weight, beta = bias - mean * alpha. */
static void emit_channel_affine(hr_builder *b, hr_operand y, hr_operand x, hr_operand mean, hr_operand rstd,
                                hr_operand weight, hr_operand bias, hr_dtype dtype) {
  hr_operand alpha = hr_is_present(weight) ? hr_make2(b, HR_OP_MUL, dtype, rstd, weight) : rstd;
  if (!hr_is_present(bias)) {
    bias = hr_build_f64(b, 0);
  }
  hr_operand beta = hr_make3(b, HR_OP_SUB_SCALED, dtype, bias, mean, alpha);
  hr_emit3(b, HR_OP_ADD_SCALED, y, beta, x, alpha);
}

static hr_operand rstd_of_variance(hr_builder *b, hr_operand variance, hr_operand eps, hr_dtype dtype, hr_operand out) {
  hr_operand shifted = hr_make2(b, HR_OP_ADD, dtype, variance, eps);
  hr_operand rstd = hr__result(b, out, dtype, shifted);
  hr_emit1(b, HR_OP_RSQRT, rstd, shifted);
  return rstd;
}

hr_status hr__lower_batch_norm(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), in[5], out[5];
  for (int i = 1; i < 5; ++i) {
    in[i] = hr__along(b, hr_node_input(node, i), x.rank, 1);
    out[i] = hr__along(b, hr_node_output(node, i), x.rank, 1);
  }
  hr_dtype dtype = hr__wide(x.dtype);
  uint32_t mask = all_but_channels(x.rank);
  double count = (double)hr__mask_count(x, mask);
  hr_operand momentum = hr_build_attr(b, node, 0), eps = hr_build_attr(b, node, 1);
  moments m;
  if (node->ints[0] != 0) {
    m = measure(b, x, mask, count, eps, dtype, out[1], out[2]);
    if (hr_is_present(in[3]) && hr_is_present(out[3])) {
      hr_emit3(b, HR_OP_LERP, out[3], in[3], m.mean, momentum); /* in place */
    }
    if (hr_is_present(in[4]) && hr_is_present(out[4])) {
      hr_operand unbiased = hr_make2(b, HR_OP_DIV, dtype, m.squares, hr_build_f64(b, count - 1));
      hr_emit3(b, HR_OP_LERP, out[4], in[4], unbiased, momentum);
    }
    deliver(b, &m, dtype, out[1], out[2]);
    m.mean = hr_is_present(out[1]) ? out[1] : m.mean; /* as rounded for the gradient */
    m.rstd = hr_is_present(out[2]) ? out[2] : m.rstd;
  } else {
    m.mean = in[3];
    if (hr_is_present(out[1])) {
      hr_emit1(b, HR_OP_COPY, out[1], in[3]);
    }
    m.rstd = rstd_of_variance(b, in[4], eps, dtype, out[2]);
    hr__deliver(b, out[2], dtype, m.rstd);
  }
  emit_channel_affine(b, hr_node_output(node, 0), x, m.mean, m.rstd, in[1], in[2], dtype);
  return HR_OK;
}

/* dx = alpha * (dy - sum(dy) / n - d * rstd^2 * dot / n) with alpha = rstd * weight, dot = sum(dy * d); without
 * training statistics dx = alpha * dy. dweight = dot * rstd, dbias = sum(dy). */
hr_status hr__lower_batch_norm_backward(hr_builder *b, const hr_node *node) {
  hr_operand dy = hr_node_input(node, 0), x = hr_node_input(node, 1), in[7];
  for (int i = 2; i < 7; ++i) {
    in[i] = hr__along(b, hr_node_input(node, i), x.rank, 1);
  }
  hr_operand dx = hr_node_output(node, 0), dweight = hr__along(b, hr_node_output(node, 1), x.rank, 1);
  hr_operand dbias = hr__along(b, hr_node_output(node, 2), x.rank, 1), none = {0};
  bool is_training = node->ints[0] != 0, has_dx = hr_is_present(dx), needs_sums = has_dx && is_training;
  hr_dtype dtype = hr__wide(x.dtype);
  uint32_t mask = all_but_channels(x.rank);
  hr_operand n = hr_build_f64(b, (double)hr__mask_count(x, mask)), dot = none, sum = none;
  hr_operand mean = is_training ? in[5] : in[3];
  hr_operand rstd = is_training ? in[6] : rstd_of_variance(b, in[4], hr_build_attr(b, node, 0), dtype, none);
  if (needs_sums || hr_is_present(dweight)) {
    hr_operand product = hr_make2(b, HR_OP_MUL, dtype, hr_make2(b, HR_OP_SUB, dtype, x, mean), dy);
    dot = hr_make_reduce(b, HR_OP_SUM, dtype, product, mask);
  }
  if (needs_sums || hr_is_present(dbias)) {
    sum = hr__result(b, dbias, dtype, mean);
    hr_emit_reduce(b, HR_OP_SUM, sum, dy, mask);
  }
  if (hr_is_present(dweight)) {
    hr_emit2(b, HR_OP_MUL, dweight, dot, rstd);
  }
  hr__deliver(b, dbias, dtype, sum);
  if (!has_dx) {
    return HR_OK;
  }
  hr_operand alpha = hr_is_present(in[2]) ? hr_make2(b, HR_OP_MUL, dtype, rstd, in[2]) : rstd;
  if (!is_training) {
    hr_emit2(b, HR_OP_MUL, dx, dy, alpha);
    return HR_OK;
  }
  hr_operand sum_mean = hr_make2(b, HR_OP_DIV, dtype, sum, n), dot_mean = hr_make2(b, HR_OP_DIV, dtype, dot, n);
  hr_operand slope = hr_make2(b, HR_OP_MUL, dtype, hr_make2(b, HR_OP_MUL, dtype, rstd, rstd), dot_mean);
  hr_operand centred = hr_make2(b, HR_OP_SUB, dtype, x, make_late(b, mean, dot, dtype));
  hr_operand rest = hr_make3(b, HR_OP_SUB_SCALED, dtype, dy, centred, slope);
  hr_emit2(b, HR_OP_MUL, dx, hr_make2(b, HR_OP_SUB, dtype, rest, sum_mean), alpha);
  return HR_OK;
}
