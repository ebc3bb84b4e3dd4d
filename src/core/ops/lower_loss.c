/* lower_loss.c: negative log likelihood, and the losses that compare a tensor with a target element by element.
 *
 * The gradient of the negative log likelihood is not a scatter. It compares each class with the target over all of dx,
 * which fuses with the gradient of log-softmax and needs no zero fill.
 */
#include "core/ops/lower.h"

enum { REDUCTION_NONE = 0, REDUCTION_MEAN = 1 };

static const hr_operand absent = {.kind = HR_OPERAND_NONE, .fill = HR_NO_SCALAR};

/* ---- negative log likelihood ---- */

/* i64 targets, with `other` in place of ignored ones. */
static hr_operand make_kept_target(hr_builder *b, hr_operand target, hr_operand is_kept, int64_t other) {
  return hr_make3(b, HR_OP_WHERE, HR_DTYPE_I64, is_kept, target, hr_build_i64(b, other));
}

/* table[target] over target's dims; `strides` are those of the table along them, `stride` along the class. */
static hr_operand make_lookup(hr_builder *b, hr_operand table, hr_operand target, const int64_t *strides,
                              int64_t stride, int64_t classes) {
  hr_operand view = hr_view_strided(b, table, target.rank, target.dims, strides, table.offset);
  hr_operand out = hr_build_temp_like(b, target, table.dtype);
  hr_emit_gather(b, out, 2, (hr_operand[]){hr_view_term(b, view, 1, stride, classes), target});
  return out;
}

/* A view of a scalar output for the sum over all of x. */
static hr_operand scalar_row(hr_builder *b, hr_operand out, int rank) {
  for (int d = out.rank; d < rank; ++d) {
    out = hr__ones_before(b, out, 1);
  }
  return out;
}

hr_status hr__lower_nll_loss(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), target = hr_node_input(node, 1), weight = hr_node_input(node, 2);
  hr_operand loss = hr_node_output(node, 0), total_out = hr_node_output(node, 1), ignored = hr_build_attr(b, node, 0);
  int class_dim = x.rank == 1 ? 0 : 1;
  int64_t strides[HR_RANK_MAX] = {0}, no_strides[HR_RANK_MAX] = {0}, classes = x.dims[class_dim];
  for (int d = 0, at = 0; x.rank > 1 && d < x.rank; ++d) {
    if (d != class_dim) {
      strides[at++] = x.strides[d];
    }
  }
  bool has_sum = node->ints[0] != REDUCTION_NONE || x.rank == 1, is_empty = hr_operand_count(target) == 0;
  if (target.rank == 0) {
    target = hr_view_insert(b, target, 0, 1);
  }
  if (b->status != HR_OK) {
    return HR_OK;
  }
  hr_dtype dtype = hr__wide(x.dtype);
  int rank = target.rank;
  hr_operand zero = hr_build_f64(b, 0), is_kept = absent, picked = absent, weights = absent;
  if (is_empty) {
    picked = weights = hr_build_temp_like(b, target, dtype);
  } else {
    hr_emit_check_index(b, target, classes, false, 1, ignored);
    is_kept = hr_make2(b, HR_OP_NE, HR_DTYPE_BOOL, target, ignored);
    hr_operand safe = make_kept_target(b, target, is_kept, 0);
    picked = make_lookup(b, x, safe, strides, x.strides[class_dim], classes);
    if (hr_is_present(weight)) {
      weights = make_lookup(b, weight, safe, no_strides, weight.strides[0], classes);
      picked = hr_make2(b, HR_OP_MUL, dtype, picked, weights);
    }
    weights = hr_is_present(weight) ? hr_make3(b, HR_OP_WHERE, dtype, is_kept, weights, zero) : is_kept;
  }
  if (node->ints[0] == REDUCTION_NONE && !is_empty) {
    hr_operand negative = hr_make1(b, HR_OP_NEG, dtype, picked);
    hr_emit3(b, HR_OP_WHERE, scalar_row(b, loss, rank), is_kept, negative, zero);
  }
  if (!has_sum) {
    if (hr_is_present(total_out)) {
      hr_emit1(b, HR_OP_COPY, total_out, zero);
    }
    return HR_OK;
  }
  uint32_t mask = hr__mask_range(0, rank);
  hr_operand total = hr_make_reduce(b, HR_OP_SUM, dtype, weights, mask);
  if (hr_is_present(total_out)) {
    hr_emit1(b, HR_OP_COPY, scalar_row(b, total_out, rank), total);
  }
  if (node->ints[0] == REDUCTION_NONE) {
    return HR_OK;
  }
  hr_operand kept = is_empty ? picked : hr_make3(b, HR_OP_WHERE, dtype, is_kept, picked, zero);
  hr_operand sum = hr_make_reduce(b, HR_OP_SUM, dtype, kept, mask);
  if (node->ints[0] == REDUCTION_MEAN) {
    hr_emit2(b, HR_OP_DIV, scalar_row(b, loss, rank), hr_make2(b, HR_OP_SUB, dtype, zero, sum), total);
  } else {
    hr_emit2(b, HR_OP_SUB, scalar_row(b, loss, rank), zero, sum);
  }
  return HR_OK;
}

/* dx[n, c] = c == target[n] ? -dloss * weight[c] (/ total) : 0 */
hr_status hr__lower_nll_loss_backward(hr_builder *b, const hr_node *node) {
  hr_operand dloss = hr_node_input(node, 0), target = hr_node_input(node, 1), weight = hr_node_input(node, 2);
  hr_operand total = hr_node_input(node, 3), dx = hr_node_output(node, 0);
  hr_dtype dtype = hr__wide(dx.dtype);
  int class_dim = dx.rank == 1 ? 0 : 1;
  if (hr_operand_count(dx) == 0) {
    return HR_OK;
  }
  target = hr_view_insert(b, target, class_dim, 1);
  if (dloss.rank > 0) {
    dloss = dx.rank == 1 ? dloss : hr_view_insert(b, dloss, class_dim, 1);
  }
  hr_operand is_kept = hr_make2(b, HR_OP_NE, HR_DTYPE_BOOL, target, hr_build_attr(b, node, 0));
  hr_operand wanted = make_kept_target(b, target, is_kept, -1);
  hr_operand slope = hr_build_temp_like(b, wanted, dtype), scaled = dloss;
  if (node->ints[0] == REDUCTION_MEAN) {
    scaled = hr_build_temp_like(b, wanted, dtype);
    hr_emit2(b, HR_OP_DIV, scaled, dloss, total);
  }
  hr_emit1(b, HR_OP_NEG, slope, scaled);
  if (hr_is_present(weight)) {
    slope = hr_make2(b, HR_OP_MUL, dtype, slope, hr__ones_after(b, weight, dx.rank - class_dim - 1));
  }
  int64_t strides[HR_RANK_MAX] = {0};
  strides[class_dim] = 1;
  hr_operand number = hr_build_index(b, dx.rank, dx.dims, 0, strides);
  hr_emit3(b, HR_OP_WHERE, dx, hr_make2(b, HR_OP_EQ, HR_DTYPE_BOOL, number, wanted), slope, hr_build_f64(b, 0));
  return HR_OK;
}

/* ---- element by element ---- */

static hr_operand make_loss(hr_builder *b, const hr_node *node, hr_operand x, hr_operand target, hr_dtype dtype) {
  hr_operand weight = hr_node_input(node, 2);
  switch (node->op) {
    case HR_OP_BCE_LOSS: {
      hr_operand loss = hr_make2(b, HR_OP_BCE, dtype, x, target);
      return hr_is_present(weight) ? hr_make2(b, HR_OP_MUL, dtype, loss, weight) : loss;
    }
    case HR_OP_SMOOTH_L1_LOSS:
      return hr_make3(b, HR_OP_SMOOTH_L1, dtype, x, target, hr_build_attr(b, node, 0));
    case HR_OP_HUBER_LOSS:
      return hr_make3(b, HR_OP_HUBER, dtype, x, target, hr_build_attr(b, node, 0));
    default:
      return hr_make1(b, HR_OP_SQUARE, dtype, hr_make2(b, HR_OP_SUB, dtype, x, target));
  }
}

hr_status hr__lower_pointwise_loss(hr_builder *b, const hr_node *node) {
  hr_operand x = hr_node_input(node, 0), out = hr_node_output(node, 0);
  hr_dtype dtype = hr__wide(out.dtype);
  int64_t reduction = node->ints[0];
  if (reduction != REDUCTION_NONE && x.rank == 0) {
    x = hr_view_insert(b, x, 0, 1);
  }
  hr_operand loss = make_loss(b, node, x, hr_node_input(node, 1), dtype);
  if (reduction == REDUCTION_NONE) {
    hr_emit1(b, HR_OP_COPY, out, loss);
    return HR_OK;
  }
  uint32_t mask = hr__mask_range(0, loss.rank);
  out = scalar_row(b, out, loss.rank);
  if (reduction == REDUCTION_MEAN) {
    hr_operand sum = hr_make_reduce(b, HR_OP_SUM, dtype, loss, mask);
    hr_emit2(b, HR_OP_DIV, out, sum, hr_build_f64(b, (double)hr_operand_count(loss)));
  } else {
    hr_emit_reduce(b, HR_OP_SUM, out, loss, mask);
  }
  return HR_OK;
}

/* The derivative of the loss at d = x - target, without the incoming gradient. */
static hr_operand make_slope(hr_builder *b, const hr_node *node, hr_operand d, hr_dtype dtype) {
  if (node->op == HR_OP_MSE_LOSS_BACKWARD) {
    return d;
  }
  hr_operand limit = hr_build_attr(b, node, 0);
  if (node->op == HR_OP_HUBER_LOSS_BACKWARD) {
    hr_operand upside_down = hr_make1(b, HR_OP_NEG, dtype, hr_make2(b, HR_OP_MINIMUM, dtype, d, limit));
    return hr_make1(b, HR_OP_NEG, dtype, hr_make2(b, HR_OP_MINIMUM, dtype, upside_down, limit));
  }
  hr_operand ratio = hr_make2(b, HR_OP_DIV, dtype, d, limit);
  hr_operand slope = hr_make3(b, HR_OP_CLAMP, dtype, ratio, hr_build_f64(b, -1), hr_build_f64(b, 1));
  hr_operand is_zero = hr_make2(b, HR_OP_EQ, HR_DTYPE_BOOL, d, hr_build_f64(b, 0)); /* 0 / 0 for beta = 0 */
  return hr_make3(b, HR_OP_WHERE, dtype, is_zero, d, slope);
}

hr_status hr__lower_pointwise_loss_backward(hr_builder *b, const hr_node *node) {
  hr_operand dloss = hr_node_input(node, 0), x = hr_node_input(node, 1), target = hr_node_input(node, 2);
  hr_operand weight = hr_node_input(node, 3), dx = hr_node_output(node, 0);
  hr_dtype dtype = hr__wide(dx.dtype);
  bool is_mean = node->ints[0] == REDUCTION_MEAN;
  double count = (double)hr_operand_count(dx);
  if (node->op == HR_OP_BCE_LOSS_BACKWARD) {
    hr_operand value = hr_make3(b, HR_OP_BCE_BACKWARD, dtype, dloss, x, target);
    if (hr_is_present(weight)) {
      value = hr_make2(b, HR_OP_MUL, dtype, value, weight);
    }
    if (is_mean) {
      hr_emit2(b, HR_OP_DIV, dx, value, hr_build_f64(b, count));
    } else {
      hr_emit1(b, HR_OP_COPY, dx, value);
    }
    return HR_OK;
  }
  double norm = (node->op == HR_OP_MSE_LOSS_BACKWARD ? 2.0 : 1.0) / (is_mean ? count : 1.0);
  hr_operand slope = make_slope(b, node, hr_make2(b, HR_OP_SUB, dtype, x, target), dtype);
  if (norm != 1) {
    slope = hr_make2(b, HR_OP_MUL, dtype, slope, hr_build_f64(b, norm));
  }
  hr_emit2(b, HR_OP_MUL, dx, slope, dloss);
  return HR_OK;
}
