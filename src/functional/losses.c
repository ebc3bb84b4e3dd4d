/* losses.c: how far predictions are from targets, element by element or as one number. */
#include <math.h>

#include "functional/formula.h"

enum { NONE, MEAN, SUM, REDUCTIONS };
static const char *const reductions[REDUCTIONS] = {"none", "mean", "sum"};

/* The formula, and the reduction, which is the call's attribute `index`. */
static int begin(hr__formula *f, const hr__function_call *c, int index) {
  int which = NONE;
  hr__formula_begin(f, c);
  hr__formula_fail(f, hr__word_attribute(c, index, REDUCTIONS, reductions, &which));
  return which;
}

static hr_status end(hr__formula *f, const hr_tensor *loss, int reduction) {
  if (reduction == NONE || hr__formula_failed(f)) {
    return hr__formula_end(f, loss);
  }
  uint32_t mask = (1u << loss->rank) - 1;
  return hr__formula_end(f, hr__reduced(f, reduction == MEAN ? HR_OP_MEAN : HR_OP_SUM, loss, mask));
}

/* Losses do not broadcast their inputs. */
static void want_same_dims(hr__formula *f, int count) {
  const hr__function_call *c = f->call;
  const hr_tensor *x = c->inputs[0];
  for (int i = 1; i < count; ++i) {
    const hr_tensor *y = c->inputs[i];
    if (y->rank != x->rank || memcmp(y->dims, x->dims, (size_t)x->rank * sizeof *x->dims) != 0) {
      char dims[HR__SHAPE_TEXT], expected[HR__SHAPE_TEXT];
      hr__formula_fail(f, HR__CALL_FAIL(c, "%s have dims %s, %s %s", c->row->inputs[i],
                                        hr__shape_text(y->rank, y->dims, dims), c->row->inputs[0],
                                        hr__shape_text(x->rank, x->dims, expected)));
    }
  }
}

static const hr_tensor *sum_of(hr__formula *f, const hr_tensor *x, int axis) {
  return hr__reduced(f, HR_OP_SUM, x, 1u << axis);
}

static int axis_of(hr__formula *f, int index) {
  int axis = 0;
  hr__formula_fail(f, hr__check_axis(f->call, hr__int_attribute(f->call, index), f->call->inputs[0]->rank, &axis));
  return axis;
}

/* ---- classes ---- */

/* Class indices with a dim of size 1 for the classes. */
static const hr_tensor *with_classes(hr__formula *f, int axis) {
  const hr__function_call *c = f->call;
  const hr_tensor *x = c->inputs[0], *at = c->inputs[1];
  if (!hr__formula_failed(f) && (!hr_dtype_is_integer(at->dtype) || at->dtype == HR_DTYPE_BOOL)) {
    hr__formula_fail(f, HR__CALL_FAIL(c, "targets of %s, expected integers", hr_dtype_name(at->dtype)));
  }
  bool fits = at->rank == x->rank - 1;
  for (int d = 0; fits && d < at->rank; ++d) {
    fits = at->dims[d] == x->dims[d + (d >= axis)];
  }
  if (!fits && !hr__formula_failed(f)) {
    char dims[HR__SHAPE_TEXT], classes[HR__SHAPE_TEXT];
    hr__formula_fail(f, HR__CALL_FAIL(c, "targets of dims %s for %s with classes along axis %d",
                                      hr__shape_text(at->rank, at->dims, dims),
                                      hr__shape_text(x->rank, x->dims, classes), axis));
  }
  return hr__formula_failed(f) ? at : hr__with_dim(f, hr__as_dtype(f, at, HR_DTYPE_I64), axis);
}

static const hr_tensor *element_at(hr__formula *f, const hr_tensor *x, const hr_tensor *at, int axis) {
  const hr_tensor *pair[2] = {x, at};
  return hr__formula_failed(f) ? x : hr__without(f, hr__along_pair(f, HR_OP_GATHER, pair, axis), 1u << axis);
}

hr_status hr__emit_nll(const hr__function_call *c) {
  enum { AXIS, REDUCTION };
  hr__formula f;
  int reduction = begin(&f, c, REDUCTION), axis = axis_of(&f, AXIS);
  const hr_tensor *at = with_classes(&f, axis);
  return end(&f, hr__unary(&f, HR_OP_NEG, element_at(&f, c->inputs[0], at, axis)), reduction);
}

enum { AXIS, SMOOTHING, REDUCTION, IGNORED };

/* (1 - smoothing) * loss + smoothing * the mean loss of all classes. */
static const hr_tensor *smoothed(hr__formula *f, const hr_tensor *loss, const hr_tensor *logs, int axis) {
  hr_scalar number = hr__real_attribute(f->call, SMOOTHING);
  double smoothing = hr_scalar_as_f64(&number);
  if (!(smoothing >= 0 && smoothing <= 1)) {
    hr__formula_fail(f, HR__CALL_FAIL(f->call, "label_smoothing is %g, expected 0 to 1", smoothing));
  }
  if (smoothing == 0 || hr__formula_failed(f)) {
    return loss;
  }
  const hr_tensor *mean = hr__reduced(f, HR_OP_MEAN, logs, 1u << axis);
  loss = hr__binary(f, HR_OP_MUL, loss, hr__real(f, 1 - smoothing));
  return hr__binary(f, HR_OP_SUB, loss, hr__binary(f, HR_OP_MUL, mean, hr__real(f, smoothing)));
}

/* The loss times the weights, which are broadcast to it. */
static const hr_tensor *weighted(hr__formula *f, const hr_tensor *loss, const hr_tensor *weights) {
  if (weights == NULL || hr__formula_failed(f)) {
    return loss;
  }
  weights = hr__spread(f, weights, loss->rank, loss->dims);
  return hr__formula_failed(f) ? loss : hr__binary(f, HR_OP_MUL, loss, weights);
}

/* The mean counts what is not ignored. */
static hr_status end_without(hr__formula *f, const hr_tensor *loss, const hr_tensor *is_kept, int reduction) {
  loss = hr__ternary(f, HR_OP_WHERE, is_kept, loss, hr__integer(f, 0));
  if (reduction != MEAN || hr__formula_failed(f)) {
    return end(f, loss, reduction);
  }
  uint32_t mask = (1u << loss->rank) - 1;
  const hr_tensor *count = hr__reduced(f, HR_OP_SUM, is_kept, mask);
  const hr_tensor *sum = hr__reduced(f, HR_OP_SUM, loss, mask);
  return hr__formula_end(f, hr__binary(f, HR_OP_DIV, sum, hr__as_dtype(f, count, sum->dtype)));
}

static hr_status of_probabilities(hr__formula *f, const hr_tensor *logs, int axis, int reduction) {
  const hr__function_call *c = f->call;
  want_same_dims(f, 2);
  const hr_tensor *loss = hr__binary(f, HR_OP_MUL, logs, c->inputs[1]);
  loss = hr__formula_failed(f) ? loss : hr__unary(f, HR_OP_NEG, sum_of(f, loss, axis));
  return end(f, weighted(f, smoothed(f, loss, logs, axis), c->inputs[2]), reduction);
}

hr_status hr__emit_cross_entropy(const hr__function_call *c) {
  hr__formula f;
  int reduction = begin(&f, c, REDUCTION), axis = axis_of(&f, AXIS);
  const hr_tensor *logs = hr__along(&f, HR_OP_LOG_SOFTMAX, c->inputs[0], axis);
  if (c->inputs[1]->rank == c->inputs[0]->rank) {
    return of_probabilities(&f, logs, axis, reduction);
  }
  const hr_tensor *at = with_classes(&f, axis);
  const hr_tensor *is_kept = hr__binary(&f, HR_OP_NE, at, hr__integer(&f, hr__int_attribute(c, IGNORED)));
  at = hr__ternary(&f, HR_OP_WHERE, is_kept, at, hr__integer(&f, 0));
  const hr_tensor *loss = hr__unary(&f, HR_OP_NEG, element_at(&f, logs, at, axis));
  loss = weighted(&f, smoothed(&f, loss, logs, axis), c->inputs[2]);
  return end_without(&f, loss, hr__formula_failed(&f) ? is_kept : hr__without(&f, is_kept, 1u << axis), reduction);
}

/* With logits log(1 + exp(x)) - x * target. */
hr_status hr__emit_binary_cross_entropy(const hr__function_call *c) {
  enum { WITH_LOGITS, REDUCED };
  hr__formula f;
  int reduction = begin(&f, c, REDUCED);
  const hr_tensor *x = c->inputs[0], *target = c->inputs[1], *loss;
  want_same_dims(&f, 2);
  if (hr__int_attribute(c, WITH_LOGITS) != 0) {
    loss = hr__binary(&f, HR_OP_LOGADDEXP, x, hr__integer(&f, 0));
    loss = hr__binary(&f, HR_OP_SUB, loss, hr__binary(&f, HR_OP_MUL, x, target));
  } else {
    loss = hr__binary(&f, HR_OP_BCE, x, target);
  }
  return end(&f, weighted(&f, loss, c->inputs[2]), reduction);
}

hr_status hr__emit_kl_div(const hr__function_call *c) {
  enum { ALONG, REDUCED };
  hr__formula f;
  int reduction = begin(&f, c, REDUCED), axis = axis_of(&f, ALONG);
  want_same_dims(&f, 2);
  const hr_tensor *distance = hr__binary(&f, HR_OP_SUB, c->inputs[1], c->inputs[0]);
  distance = hr__binary(&f, HR_OP_MUL, hr__unary(&f, HR_OP_EXP, c->inputs[1]), distance);
  return end(&f, hr__formula_failed(&f) ? distance : sum_of(&f, distance, axis), reduction);
}

/* ---- differences ---- */

hr_status hr__emit_difference_loss(const hr__function_call *c) {
  hr__formula f;
  int reduction = begin(&f, c, 0);
  want_same_dims(&f, 2);
  return end(&f, hr__unary(&f, c->row->op, hr__binary(&f, HR_OP_SUB, c->inputs[0], c->inputs[1])), reduction);
}

/* Quadratic near 0: the bound is the row's last operand. */
hr_status hr__emit_bounded_loss(const hr__function_call *c) {
  enum { BOUND, REDUCED };
  hr__formula f;
  int reduction = begin(&f, c, REDUCED);
  want_same_dims(&f, 2);
  hr_scalar number = hr__real_attribute(c, BOUND);
  double bound = hr_scalar_as_f64(&number);
  if (!(bound >= 0)) {
    hr__formula_fail(&f, HR__CALL_FAIL(c, "%s is %g, expected at least 0", c->row->attributes[BOUND].name, bound));
  }
  return end(&f, hr__ternary(&f, c->row->op, c->inputs[0], c->inputs[1], hr__real(&f, bound)), reduction);
}

hr_status hr__emit_log_cosh(const hr__function_call *c) {
  hr__formula f;
  int reduction = begin(&f, c, 0);
  want_same_dims(&f, 2);
  const hr_tensor *distance = hr__binary(&f, HR_OP_SUB, c->inputs[0], c->inputs[1]);
  const hr_tensor *loss = hr__binary(&f, HR_OP_LOGADDEXP, distance, hr__unary(&f, HR_OP_NEG, distance));
  return end(&f, hr__binary(&f, HR_OP_SUB, loss, hr__real(&f, 0.69314718055994530942)), reduction);
}

hr_status hr__emit_gaussian_nll(const hr__function_call *c) {
  enum { FULL, EPS, REDUCED };
  hr__formula f;
  int reduction = begin(&f, c, REDUCED);
  want_same_dims(&f, 2);
  const hr_tensor *variance = hr__binary(&f, HR_OP_MAXIMUM, c->inputs[2], hr__number(&f, hr__real_attribute(c, EPS)));
  const hr_tensor *square = hr__unary(&f, HR_OP_SQUARE, hr__binary(&f, HR_OP_SUB, c->inputs[1], c->inputs[0]));
  const hr_tensor *loss =
      hr__binary(&f, HR_OP_ADD, hr__unary(&f, HR_OP_LOG, variance), hr__binary(&f, HR_OP_DIV, square, variance));
  loss = hr__binary(&f, HR_OP_MUL, loss, hr__real(&f, 0.5));
  if (hr__int_attribute(c, FULL) != 0) {
    loss = hr__binary(&f, HR_OP_ADD, loss, hr__real(&f, 0.91893853320467274178)); /* log(2 pi) / 2 */
  }
  return end(&f, loss, reduction);
}

/* ---- margins ---- */

hr_status hr__emit_hinge(const hr__function_call *c) {
  hr__formula f;
  int reduction = begin(&f, c, 0);
  want_same_dims(&f, 2);
  const hr_tensor *product = hr__binary(&f, HR_OP_MUL, c->inputs[0], c->inputs[1]);
  return end(&f, hr__unary(&f, HR_OP_RELU, hr__binary(&f, HR_OP_SUB, hr__integer(&f, 1), product)), reduction);
}

hr_status hr__emit_margin_ranking(const hr__function_call *c) {
  enum { MARGIN, REDUCED };
  hr__formula f;
  int reduction = begin(&f, c, REDUCED);
  want_same_dims(&f, 3);
  const hr_tensor *order = hr__binary(&f, HR_OP_SUB, c->inputs[1], c->inputs[0]);
  const hr_tensor *loss = hr__binary(&f, HR_OP_MUL, c->inputs[2], order);
  loss = hr__binary(&f, HR_OP_ADD, loss, hr__number(&f, hr__real_attribute(c, MARGIN)));
  return end(&f, hr__unary(&f, HR_OP_RELU, loss), reduction);
}

enum { TRIPLET_AXIS, POWER, MARGIN, EPS, TRIPLET_REDUCTION };

/* (sum(|anchor - other|^p) + eps)^(1 / p) */
static const hr_tensor *distance_to(hr__formula *f, const hr_tensor *other, int axis) {
  const hr__function_call *c = f->call;
  hr_scalar number = hr__real_attribute(c, POWER);
  double p = hr_scalar_as_f64(&number);
  if (!(p > 0 && p < HUGE_VAL)) {
    hr__formula_fail(f, HR__CALL_FAIL(c, "p is %g, expected a finite number above 0", p));
  }
  const hr_tensor *apart = hr__binary(f, HR_OP_SUB, c->inputs[0], other);
  apart = p == 2 ? hr__unary(f, HR_OP_SQUARE, apart)
                 : hr__binary(f, HR_OP_POW, hr__unary(f, HR_OP_ABS, apart), hr__real(f, p));
  const hr_tensor *sum = hr__formula_failed(f) ? apart : sum_of(f, apart, axis);
  sum = hr__binary(f, HR_OP_ADD, sum, hr__number(f, hr__real_attribute(c, EPS)));
  return p == 2 ? hr__unary(f, HR_OP_SQRT, sum) : hr__binary(f, HR_OP_POW, sum, hr__real(f, 1 / p));
}

hr_status hr__emit_triplet(const hr__function_call *c) {
  hr__formula f;
  int reduction = begin(&f, c, TRIPLET_REDUCTION), axis = axis_of(&f, TRIPLET_AXIS);
  want_same_dims(&f, 3);
  const hr_tensor *near = distance_to(&f, c->inputs[1], axis), *far = distance_to(&f, c->inputs[2], axis);
  const hr_tensor *loss = hr__binary(&f, HR_OP_SUB, near, far);
  loss = hr__binary(&f, HR_OP_ADD, loss, hr__number(&f, hr__real_attribute(c, MARGIN)));
  return end(&f, hr__unary(&f, HR_OP_RELU, loss), reduction);
}

/* The cosine itself: 1 for vectors of one direction. */
hr_status hr__emit_cosine_similarity(const hr__function_call *c) {
  enum { ALONG, LEAST, REDUCED };
  hr__formula f;
  int reduction = begin(&f, c, REDUCED), axis = axis_of(&f, ALONG);
  want_same_dims(&f, 2);
  if (hr__formula_failed(&f)) {
    return hr__formula_end(&f, c->inputs[0]);
  }
  const hr_tensor *x = c->inputs[0], *y = c->inputs[1], *sizes[2];
  for (int i = 0; i < 2; ++i) {
    const int64_t ints[2] = {INT64_C(1) << axis, 3}; /* order 2 */
    const hr_scalar order = hr_scalar_f64(2);
    hr_attrs attrs = {.int_count = 2, .scalar_count = 1, .ints = ints, .scalars = &order};
    sizes[i] = hr__without(&f, hr__step(&f, HR_OP_NORM, &attrs, 1, &c->inputs[i], HR_DTYPE_NONE), 1u << axis);
  }
  const hr_tensor *size = hr__binary(&f, HR_OP_MUL, sizes[0], sizes[1]);
  size = hr__binary(&f, HR_OP_MAXIMUM, size, hr__number(&f, hr__real_attribute(c, LEAST)));
  return end(&f, hr__binary(&f, HR_OP_DIV, sum_of(&f, hr__binary(&f, HR_OP_MUL, x, y), axis), size), reduction);
}
