/* Lowerings of optimizers: the arithmetic of torch's fused CPU kernels, one chain of loops for each parameter.
 *
 * Values that depend on numbers alone (1 - beta, corrections by the step, the step size) are computed in double, as
 * vectors with one element for each parameter. Then they are rounded to the type in which the parameter is updated:
 *
 *   corrections[n]  = -lr / (1 - beta1 ^ step[n]), sqrt(1 - beta2 ^ step[n]), ...   small, for all parameters
 *   parameter k     = chain over its dims that reads element k of those
 *
 * float16 and bfloat16 parameters compute in f32 and round on stores. If found_inf is given and not 0, every output
 * keeps its value. Gradients are never written.
 */
#include "core/ops/lower.h"

/* Element k of a vector as an operand without dims. */
static hr_operand element(hr_builder *b, hr_operand vector, int64_t k) {
  return hr_is_present(vector) ? hr_view_remove(b, hr_view_slice(b, vector, 0, k, 1, 1), 0) : vector;
}

/* A tensor of one element and any rank, as an operand without dims. */
static hr_operand as_number(hr_builder *b, hr_operand x) {
  for (int rank = x.rank; hr_is_present(x) && rank > 0; --rank) {
    x = hr_view_remove(b, x, 0);
  }
  return x;
}

/* One parameter's chain: temporaries have the parameter's dims and the type `dtype`. */
typedef struct update {
  hr_builder *b;
  hr_operand like;
  hr_dtype dtype;
  hr_operand skip; /* bool; absent: always update */
} update;

static hr_operand apply(const update *u, hr_op op, int count, const hr_operand *inputs) {
  hr_operand out = hr_build_temp_like(u->b, u->like, u->dtype);
  hr_emit(u->b, op, out, count, inputs);
  return out;
}
static hr_operand apply1(const update *u, hr_op op, hr_operand x) {
  return apply(u, op, 1, &x);
}
static hr_operand apply2(const update *u, hr_op op, hr_operand x, hr_operand y) {
  return apply(u, op, 2, (hr_operand[]){x, y});
}
static hr_operand apply3(const update *u, hr_op op, hr_operand x, hr_operand y, hr_operand z) {
  return apply(u, op, 3, (hr_operand[]){x, y, z});
}
/* The new value of `out`, which is replaced unless the step is skipped. The returned value is not rounded to out's
 * dtype. */
static hr_operand replace(const update *u, hr_operand out, hr_op op, int count, const hr_operand *inputs) {
  if (!hr_is_present(u->skip) && out.dtype == u->dtype) {
    hr_emit(u->b, op, out, count, inputs);
    return out;
  }
  hr_operand value = apply(u, op, count, inputs);
  if (hr_is_present(u->skip)) {
    hr_emit3(u->b, HR_OP_WHERE, out, u->skip, out, value);
  } else {
    hr_emit1(u->b, HR_OP_COPY, out, value);
  }
  return value;
}

/* The gradient, unscaled, and negated for maximisation. */
static hr_operand prepare_gradient(const update *u, hr_operand gradient, hr_operand scale, bool maximize) {
  gradient = hr_is_present(scale) ? apply2(u, HR_OP_DIV, gradient, scale) : gradient;
  return maximize ? apply1(u, HR_OP_NEG, gradient) : gradient;
}

/* Numbers shared by all parameters, or vectors with an element for each. */
typedef struct numbers {
  hr_builder *b;
  int64_t count;
} numbers;

static hr_operand number2(const numbers *s, hr_op op, hr_operand x, hr_operand y) {
  hr_operand out = hr_build_temp(s->b, HR_DTYPE_F64, 1, &s->count);
  hr_emit2(s->b, op, out, x, y);
  return out;
}
static hr_operand one_minus(const numbers *s, hr_operand x) {
  return number2(s, HR_OP_SUB, hr_build_f64(s->b, 1), x);
}
/* Rounds a vector of doubles to the type of the updates. */
static hr_operand rounded(const numbers *s, hr_operand x, hr_dtype dtype) {
  if (dtype == HR_DTYPE_F64 || !hr_is_present(x)) {
    return x;
  }
  hr_operand out = hr_build_temp(s->b, dtype, 1, &s->count);
  hr_emit1(s->b, HR_OP_COPY, out, x);
  return out;
}
/* True if the step is skipped; absent if the caller gave no found_inf. */
static hr_operand skip_of(const numbers *s, hr_operand found_inf) {
  if (!hr_is_present(found_inf)) {
    return found_inf;
  }
  hr_operand out = hr_build_temp(s->b, HR_DTYPE_BOOL, 1, &s->count);
  hr_emit2(s->b, HR_OP_NE, out, as_number(s->b, found_inf), hr_build_f64(s->b, 0));
  return out;
}

/* ---- Adam ---- */

enum { ADAM_LR = 0, ADAM_BETA1, ADAM_BETA2, ADAM_DECAY, ADAM_EPS };

typedef struct adam {
  bool is_decoupled, maximize, amsgrad;
  hr_operand beta2, decay, eps, scale;
  /* vectors */
  hr_operand weight1, weight2, shrink, step_size, root, skip;
} adam;

/* The steps of all parameters as one vector of doubles. */
static hr_operand gather_steps(const numbers *s, const hr_node *node) {
  hr_operand steps = hr_build_temp(s->b, HR_DTYPE_F64, 1, &s->count);
  for (int64_t k = 0; k < s->count; ++k) {
    hr_emit1(s->b, HR_OP_COPY, element(s->b, steps, k), as_number(s->b, node->inputs[s->count + k]));
  }
  return steps;
}

static adam adam_numbers(const numbers *s, const hr_node *node, hr_dtype dtype) {
  hr_builder *b = s->b;
  int after = (int)(2 * s->count);
  adam a = {.is_decoupled = node->ints[0] != 0, .maximize = node->ints[1] != 0, .amsgrad = node->ints[2] != 0};
  hr_operand lr = hr_node_input(node, after), beta1 = hr_build_attr(b, node, ADAM_BETA1);
  lr = hr_is_present(lr) ? as_number(b, lr) : hr_build_attr(b, node, ADAM_LR);
  a.beta2 = hr_build_attr(b, node, ADAM_BETA2);
  a.decay = hr_build_attr(b, node, ADAM_DECAY), a.eps = hr_build_attr(b, node, ADAM_EPS);
  a.scale = hr_node_input(node, after + 1);
  a.scale = hr_is_present(a.scale) ? as_number(b, a.scale) : a.scale;

  hr_operand steps = gather_steps(s, node);
  hr_operand correction1 = one_minus(s, number2(s, HR_OP_POW, beta1, steps));
  hr_operand correction2 = one_minus(s, number2(s, HR_OP_POW, a.beta2, steps));
  hr_operand step_size = hr_build_temp(b, HR_DTYPE_F64, 1, &s->count),
             root = hr_build_temp_like(b, step_size, HR_DTYPE_F64);
  hr_emit1(b, HR_OP_NEG, step_size, number2(s, HR_OP_DIV, lr, correction1));
  hr_emit1(b, HR_OP_SQRT, root, correction2);
  a.step_size = rounded(s, step_size, dtype), a.root = rounded(s, root, dtype);
  a.weight1 = rounded(s, one_minus(s, beta1), dtype);
  a.weight2 = rounded(s, one_minus(s, a.beta2), dtype);
  if (a.is_decoupled) {
    a.shrink = rounded(s, one_minus(s, number2(s, HR_OP_MUL, lr, a.decay)), dtype);
  }
  a.skip = skip_of(s, hr_node_input(node, after + 2));
  return a;
}

/* One parameter: outputs are p (parameter), m (mean), v (mean square), top (its maximum). */
static void adam_update(hr_builder *b, const adam *a, int64_t k, hr_dtype dtype, hr_operand g, hr_operand p,
                        hr_operand m, hr_operand v, hr_operand top) {
  update u = {.b = b, .like = p, .dtype = dtype, .skip = element(b, a->skip, k)};
  hr_operand old = p;
  g = prepare_gradient(&u, g, a->scale, a->maximize);
  if (a->is_decoupled) {
    old = apply2(&u, HR_OP_MUL, p, element(b, a->shrink, k));
  } else {
    g = apply3(&u, HR_OP_ADD_SCALED, g, p, a->decay);
  }
  hr_operand mean = replace(&u, m, HR_OP_LERP, 3, (hr_operand[]){m, g, element(b, a->weight1, k)});
  hr_operand square = apply2(&u, HR_OP_MUL, v, a->beta2);
  square = replace(&u, v, HR_OP_ADDCMUL, 4, (hr_operand[]){square, g, g, element(b, a->weight2, k)});
  if (a->amsgrad) {
    square = replace(&u, top, HR_OP_MAXIMUM, 2, (hr_operand[]){top, square});
  }
  hr_operand denominator = apply2(&u, HR_OP_DIV, apply1(&u, HR_OP_SQRT, square), element(b, a->root, k));
  denominator = apply2(&u, HR_OP_ADD, denominator, a->eps);
  replace(&u, p, HR_OP_ADDCDIV, 4, (hr_operand[]){old, mean, denominator, element(b, a->step_size, k)});
}

hr_status hr__lower_adam(hr_builder *b, const hr_node *node) {
  int lists = node->ints[2] != 0 ? 4 : 3;
  numbers s = {.b = b, .count = node->output_count / lists};
  if (s.count == 0) {
    return HR_OK;
  }
  hr_dtype dtype = hr__wide(node->outputs[0].dtype);
  adam a = adam_numbers(&s, node, dtype);
  for (int64_t k = 0; k < s.count; ++k) {
    hr_operand p = node->outputs[k], m = node->outputs[s.count + k], v = node->outputs[2 * s.count + k];
    hr_operand top = hr_node_output(node, (int)(3 * s.count + k));
    if (hr_operand_count(p) > 0) {
      adam_update(b, &a, k, hr__wide(p.dtype), node->inputs[k], p, m, v, top);
    }
  }
  return HR_OK;
}

/* ---- SGD ---- */

enum { SGD_DECAY = 0, SGD_MOMENTUM, SGD_LR, SGD_DAMPENING };

typedef struct sgd {
  bool is_nesterov, maximize, is_first, has_momentum;
  hr_operand decay, momentum, lr, scale;
  hr_operand weight, skip; /* vectors of one element */
} sgd;

static sgd sgd_numbers(const numbers *s, const hr_node *node, int after, hr_dtype dtype) {
  hr_builder *b = s->b;
  sgd a = {.is_nesterov = node->ints[0] != 0,
           .maximize = node->ints[1] != 0,
           .is_first = node->ints[2] != 0,
           .has_momentum = node->ints[3] != 0};
  hr_operand lr = hr_node_input(node, after);
  a.lr = hr_is_present(lr) ? as_number(b, lr) : hr_build_attr(b, node, SGD_LR);
  a.decay = hr_build_attr(b, node, SGD_DECAY), a.momentum = hr_build_attr(b, node, SGD_MOMENTUM);
  a.scale = hr_node_input(node, after + 1);
  a.scale = hr_is_present(a.scale) ? as_number(b, a.scale) : a.scale;
  if (a.has_momentum && !a.is_first) {
    a.weight = rounded(s, one_minus(s, hr_build_attr(b, node, SGD_DAMPENING)), dtype);
  }
  a.skip = skip_of(s, hr_node_input(node, after + 2));
  return a;
}

static void sgd_update(hr_builder *b, const sgd *a, hr_dtype dtype, hr_operand g, hr_operand p, hr_operand momentum) {
  update u = {.b = b, .like = p, .dtype = dtype, .skip = element(b, a->skip, 0)};
  g = prepare_gradient(&u, g, a->scale, a->maximize);
  g = apply3(&u, HR_OP_ADD_SCALED, g, p, a->decay);
  if (a->has_momentum) {
    hr_operand inputs[4] = {momentum, g, a->momentum, element(b, a->weight, 0)};
    hr_operand mean =
        a->is_first ? replace(&u, momentum, HR_OP_COPY, 1, &g) : replace(&u, momentum, HR_OP_SCALE_ADD, 4, inputs);
    g = a->is_nesterov ? apply3(&u, HR_OP_ADD_SCALED, g, mean, a->momentum) : mean;
  }
  replace(&u, p, HR_OP_SUB_SCALED, 3, (hr_operand[]){p, g, a->lr});
}

hr_status hr__lower_sgd(hr_builder *b, const hr_node *node) {
  int count = node->ints[3] != 0 ? node->output_count / 2 : node->output_count;
  if (count == 0) {
    return HR_OK;
  }
  numbers s = {.b = b, .count = 1};
  sgd a = sgd_numbers(&s, node, count, hr__wide(node->outputs[0].dtype));
  for (int k = 0; k < count; ++k) {
    hr_operand p = node->outputs[k], momentum = hr_node_output(node, a.has_momentum ? count + k : -1);
    if (hr_operand_count(p) > 0) {
      sgd_update(b, &a, hr__wide(p.dtype), node->inputs[k], p, momentum);
    }
  }
  return HR_OK;
}
