/* updates.c: one step of an optimizer: a new parameter and new states. Rates and counts of steps are numbers or tensors
 * without dims. Results have the dtypes of what they replace. */
#include <math.h>

#include "functional/formula.h"

enum { PARAMETER, GRADIENT };

/* The inputs have the parameter's dims; those from `first` on are numbers or have no dims. */
static void begin(hr__formula *f, const hr__function_call *c, int first) {
  const hr_tensor *p = c->inputs[PARAMETER];
  hr__formula_begin(f, c);
  for (int i = GRADIENT; i < c->input_count; ++i) {
    const hr_tensor *x = c->inputs[i];
    int rank = i < first ? p->rank : 0;
    if (x->rank != rank || memcmp(x->dims, p->dims, (size_t)rank * sizeof *x->dims) != 0) {
      char text[HR__SHAPE_TEXT], expected[HR__SHAPE_TEXT];
      hr__formula_fail(f,
                       HR__CALL_FAIL(c, "%s has dims %s, expected %s", c->row->inputs[i],
                                     hr__shape_text(x->rank, x->dims, text), hr__shape_text(rank, p->dims, expected)));
    }
  }
}

static const hr_tensor *attribute(hr__formula *f, int index) {
  return hr__number(f, hr__real_attribute(f->call, index));
}
static double number_of(const hr__formula *f, int index) {
  hr_scalar number = hr__real_attribute(f->call, index);
  return hr_scalar_as_f64(&number);
}
/* 1 - the attribute. */
static const hr_tensor *rest(hr__formula *f, int index) {
  return hr__real(f, 1 - number_of(f, index));
}

static const hr_tensor *minus(hr__formula *f, const hr_tensor *x, const hr_tensor *y) {
  return hr__binary(f, HR_OP_SUB, x, y);
}
static const hr_tensor *by(hr__formula *f, const hr_tensor *x, const hr_tensor *y) {
  return hr__binary(f, HR_OP_DIV, x, y);
}
/* The attribute times x, and its rest times y. */
static const hr_tensor *mixed(hr__formula *f, int index, const hr_tensor *x, const hr_tensor *y) {
  return hr__plus(f, hr__times(f, attribute(f, index), x), hr__times(f, rest(f, index), y));
}

/* A number, or a tensor in the parameter's dtype. */
static const hr_tensor *in_dtype(hr__formula *f, const hr_tensor *x) {
  const hr_tensor *p = f->call->inputs[PARAMETER];
  return x->number.dtype != HR_DTYPE_NONE || hr__formula_failed(f) ? x : hr__as_dtype(f, x, p->dtype);
}

/* The results replace inputs 0, 2, 3, ... */
static hr_status finish(hr__formula *f, int count, const hr_tensor *const *results) {
  const hr_tensor *all[4];
  for (int i = 0; i < count; ++i) {
    const hr_tensor *old = f->call->inputs[i == 0 ? PARAMETER : GRADIENT + i];
    all[i] = hr__formula_failed(f) || old->number.dtype != HR_DTYPE_NONE ? results[i]
                                                                         : hr__as_dtype(f, results[i], old->dtype);
  }
  return hr__formula_finish(f, count, all);
}

/* gradient + weight_decay * parameter */
static const hr_tensor *decayed_gradient(hr__formula *f, int index) {
  const hr_tensor *const *x = f->call->inputs;
  return number_of(f, index) != 0 ? hr__plus(f, x[GRADIENT], hr__times(f, attribute(f, index), x[PARAMETER]))
                                  : x[GRADIENT];
}

hr_status hr__emit_sgd_update(const hr__function_call *c) {
  enum { VELOCITY = 2, RATE, MOMENTUM = 0, DAMPENING, DECAY, NESTEROV };
  hr__formula f;
  begin(&f, c, RATE);
  const hr_tensor *g = decayed_gradient(&f, DECAY), *momentum = attribute(&f, MOMENTUM);
  const hr_tensor *share = number_of(&f, DAMPENING) != 0 ? hr__times(&f, rest(&f, DAMPENING), g) : g;
  const hr_tensor *v = hr__plus(&f, hr__times(&f, momentum, c->inputs[VELOCITY]), share);
  const hr_tensor *step = hr__int_attribute(c, NESTEROV) != 0 ? hr__plus(&f, g, hr__times(&f, momentum, v)) : v;
  const hr_tensor *p = minus(&f, c->inputs[PARAMETER], hr__times(&f, in_dtype(&f, c->inputs[RATE]), step));
  return finish(&f, 2, (const hr_tensor *[]){p, v});
}

/* ---- moments ---- */

enum { BETA1, BETA2, EPS, WEIGHT_DECAY, DECOUPLED, CORRECTION };

/* 1 - beta^step, whose digits a difference in f32 would lose. */
static const hr_tensor *corrected(hr__formula *f, int beta, const hr_tensor *step) {
  const hr_tensor *power = hr__times(f, hr__real(f, log(number_of(f, beta))), step);
  return hr__unary(f, HR_OP_NEG, hr__unary(f, HR_OP_EXPM1, power));
}

hr_status hr__emit_adam_update(const hr__function_call *c) {
  enum { MEAN = 2, SQUARE, RATE, STEP };
  hr__formula f;
  begin(&f, c, RATE);
  bool is_decoupled = hr__int_attribute(c, DECOUPLED) != 0, has_decay = number_of(&f, WEIGHT_DECAY) != 0;
  const hr_tensor *p = c->inputs[PARAMETER], *rate = c->inputs[RATE];
  const hr_tensor *g = is_decoupled ? c->inputs[GRADIENT] : decayed_gradient(&f, WEIGHT_DECAY);
  const hr_tensor *m = mixed(&f, BETA1, c->inputs[MEAN], g);
  const hr_tensor *v = mixed(&f, BETA2, c->inputs[SQUARE], hr__unary(&f, HR_OP_SQUARE, g));
  if (is_decoupled && has_decay) {
    p = minus(&f, p, hr__times(&f, in_dtype(&f, hr__times(&f, rate, attribute(&f, WEIGHT_DECAY))), p));
  }
  const hr_tensor *root = hr__unary(&f, HR_OP_SQRT, v);
  if (hr__int_attribute(c, CORRECTION) != 0) {
    rate = by(&f, rate, corrected(&f, BETA1, c->inputs[STEP]));
    root = by(&f, root, in_dtype(&f, hr__unary(&f, HR_OP_SQRT, corrected(&f, BETA2, c->inputs[STEP]))));
  }
  const hr_tensor *step = by(&f, hr__times(&f, in_dtype(&f, rate), m), hr__plus(&f, root, attribute(&f, EPS)));
  return finish(&f, 3, (const hr_tensor *[]){minus(&f, p, step), m, v});
}

hr_status hr__emit_adamax_update(const hr__function_call *c) {
  enum { MEAN = 2, LARGEST, RATE };
  hr__formula f;
  begin(&f, c, RATE);
  const hr_tensor *g = c->inputs[GRADIENT], *m = mixed(&f, BETA1, c->inputs[MEAN], g);
  const hr_tensor *v = hr__binary(&f, HR_OP_MAXIMUM, hr__times(&f, attribute(&f, BETA2), c->inputs[LARGEST]),
                                  hr__unary(&f, HR_OP_ABS, g));
  const hr_tensor *step = by(&f, hr__times(&f, in_dtype(&f, c->inputs[RATE]), m), hr__plus(&f, v, attribute(&f, EPS)));
  return finish(&f, 3, (const hr_tensor *[]){minus(&f, c->inputs[PARAMETER], step), m, v});
}

hr_status hr__emit_lion_update(const hr__function_call *c) {
  enum { MEAN = 2, RATE, DECAY = 2 };
  hr__formula f;
  begin(&f, c, RATE);
  const hr_tensor *p = c->inputs[PARAMETER], *g = c->inputs[GRADIENT], *rate = in_dtype(&f, c->inputs[RATE]);
  const hr_tensor *way = hr__unary(&f, HR_OP_SIGN, mixed(&f, BETA1, c->inputs[MEAN], g));
  const hr_tensor *m = mixed(&f, BETA2, c->inputs[MEAN], g);
  const hr_tensor *step = number_of(&f, DECAY) != 0 ? hr__plus(&f, way, hr__times(&f, attribute(&f, DECAY), p)) : way;
  return finish(&f, 2, (const hr_tensor *[]){minus(&f, p, hr__times(&f, rate, step)), m});
}

/* ---- sums of squares ---- */

/* The parameter less rate * gradient / (sqrt(v) + eps). */
static const hr_tensor *scaled_step(hr__formula *f, const hr_tensor *rate, const hr_tensor *v, int eps) {
  const hr_tensor *const *x = f->call->inputs;
  const hr_tensor *root = hr__plus(f, hr__unary(f, HR_OP_SQRT, v), attribute(f, eps));
  return minus(f, x[PARAMETER], by(f, hr__times(f, in_dtype(f, rate), x[GRADIENT]), root));
}

hr_status hr__emit_rmsprop_update(const hr__function_call *c) {
  enum { SQUARE = 2, RATE, ALPHA = 0, RMS_EPS };
  hr__formula f;
  begin(&f, c, RATE);
  const hr_tensor *v = mixed(&f, ALPHA, c->inputs[SQUARE], hr__unary(&f, HR_OP_SQUARE, c->inputs[GRADIENT]));
  return finish(&f, 2, (const hr_tensor *[]){scaled_step(&f, c->inputs[RATE], v, RMS_EPS), v});
}

hr_status hr__emit_adagrad_update(const hr__function_call *c) {
  enum { SQUARE = 2, RATE };
  hr__formula f;
  begin(&f, c, RATE);
  const hr_tensor *v = hr__plus(&f, c->inputs[SQUARE], hr__unary(&f, HR_OP_SQUARE, c->inputs[GRADIENT]));
  return finish(&f, 2, (const hr_tensor *[]){scaled_step(&f, c->inputs[RATE], v, 0), v});
}

hr_status hr__emit_adadelta_update(const hr__function_call *c) {
  enum { SQUARE = 2, DELTA, RATE, RHO = 0, DELTA_EPS };
  hr__formula f;
  begin(&f, c, RATE);
  const hr_tensor *g = c->inputs[GRADIENT], *eps = attribute(&f, DELTA_EPS), *u = c->inputs[DELTA];
  const hr_tensor *v = mixed(&f, RHO, c->inputs[SQUARE], hr__unary(&f, HR_OP_SQUARE, g));
  const hr_tensor *ratio =
      by(&f, hr__unary(&f, HR_OP_SQRT, hr__plus(&f, u, eps)), hr__unary(&f, HR_OP_SQRT, hr__plus(&f, v, eps)));
  const hr_tensor *step = hr__times(&f, ratio, g);
  u = mixed(&f, RHO, u, hr__unary(&f, HR_OP_SQUARE, step));
  const hr_tensor *p = minus(&f, c->inputs[PARAMETER], hr__times(&f, in_dtype(&f, c->inputs[RATE]), step));
  return finish(&f, 3, (const hr_tensor *[]){p, v, u});
}
