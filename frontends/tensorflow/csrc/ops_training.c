/* ops_training.c: rules of optimizers' steps, each a few functions of the variable, its slots and the gradient. */
#include "slots.h"

static htf_value one_minus(htf_node *node, htf_value x) {
  return htf_subtract(node, htf_number(node, 1), x);
}

/* var -= delta * alpha */
void htf_apply_gradient_descent(htf_node *node) {
  htf_slots opened = htf_open_slots(node, 1, htf_flag(node, "use_locking"), false);
  htf_value rate = htf_input(node, 1), gradient = htf_input(node, 2);
  htf_check_slots(node, &opened, gradient);
  if (!htf_has_failed(node)) {
    htf_set_slot(node, &opened, 0, htf_subtract(node, opened.values[0], htf_multiply(node, gradient, rate)));
  }
  htf_close_slots(&opened);
}

/* accum = accum * momentum + grad; var -= accum * lr, with nesterov var -= grad * lr + accum * momentum * lr */
void htf_apply_momentum(htf_node *node) {
  htf_slots opened = htf_open_slots(node, 2, htf_flag(node, "use_locking"), false);
  htf_value rate = htf_input(node, 2), gradient = htf_input(node, 3), momentum = htf_input(node, 4);
  htf_check_slots(node, &opened, gradient);
  if (!htf_has_failed(node)) {
    htf_value accumulated = htf_add(node, htf_multiply(node, opened.values[1], momentum), gradient);
    htf_value step = htf_multiply(node, accumulated, rate);
    if (htf_flag(node, "use_nesterov")) {
      step = htf_add(node, htf_multiply(node, gradient, rate),
                     htf_multiply(node, htf_multiply(node, accumulated, momentum), rate));
    }
    htf_set_slot(node, &opened, 1, accumulated);
    htf_set_slot(node, &opened, 0, htf_subtract(node, opened.values[0], step));
  }
  htf_close_slots(&opened);
}

/* accum = accum * momentum - grad * lr; var += accum, with nesterov var += accum * momentum - grad * lr */
void htf_apply_keras_momentum(htf_node *node) {
  htf_slots opened = htf_open_slots(node, 2, htf_flag(node, "use_locking"), false);
  htf_value rate = htf_input(node, 2), gradient = htf_input(node, 3), momentum = htf_input(node, 4);
  htf_check_slots(node, &opened, gradient);
  if (!htf_has_failed(node)) {
    htf_value scaled = htf_multiply(node, gradient, rate);
    htf_value accumulated = htf_subtract(node, htf_multiply(node, opened.values[1], momentum), scaled);
    htf_value step = accumulated;
    if (htf_flag(node, "use_nesterov")) {
      step = htf_subtract(node, htf_multiply(node, accumulated, momentum), scaled);
    }
    htf_set_slot(node, &opened, 1, accumulated);
    htf_set_slot(node, &opened, 0, htf_add(node, opened.values[0], step));
  }
  htf_close_slots(&opened);
}

/* Inputs: var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad. */
void htf_apply_adam(htf_node *node) {
  htf_slots opened = htf_open_slots(node, 3, htf_flag(node, "use_locking"), false);
  htf_value inputs[7];
  for (int i = 0; i < 7; ++i) {
    inputs[i] = htf_input(node, 3 + i);
  }
  htf_value beta1 = inputs[3], beta2 = inputs[4], epsilon = inputs[5], gradient = inputs[6];
  htf_check_slots(node, &opened, gradient);
  if (!htf_has_failed(node)) {
    htf_value root = htf_call1(node, HR_FUNCTIONAL_SQRT, one_minus(node, inputs[1]));
    htf_value alpha = htf_divide(node, htf_multiply(node, inputs[2], root), one_minus(node, inputs[0]));
    htf_value mean =
        htf_add(node, opened.values[1],
                htf_multiply(node, htf_subtract(node, gradient, opened.values[1]), one_minus(node, beta1)));
    htf_value square = htf_call1(node, HR_FUNCTIONAL_SQUARE, gradient);
    htf_value variance =
        htf_add(node, opened.values[2],
                htf_multiply(node, htf_subtract(node, square, opened.values[2]), one_minus(node, beta2)));
    htf_value numerator = mean;
    if (htf_flag(node, "use_nesterov")) {
      numerator = htf_add(node, htf_multiply(node, gradient, one_minus(node, beta1)), htf_multiply(node, beta1, mean));
    }
    htf_value size = htf_add(node, htf_call1(node, HR_FUNCTIONAL_SQRT, variance), epsilon);
    htf_set_slot(node, &opened, 1, mean);
    htf_set_slot(node, &opened, 2, variance);
    htf_set_slot(node, &opened, 0,
                 htf_subtract(node, opened.values[0], htf_divide(node, htf_multiply(node, numerator, alpha), size)));
  }
  htf_close_slots(&opened);
}

/* ---- steps with one rule of opening, checking and closing: inputs behind the slots are numbers and the gradient ----
 */

/* The tensors that a step reads and writes. */
typedef struct step {
  htf_value slot[HTF_SLOTS_MAX], number[6], gradient;
} step;

typedef void (*movedrule)(htf_node *node, const htf_slots *opened, const step *s);

static void apply(htf_node *node, int slots, int numbers, int gradient, movedrule rule) {
  htf_slots opened = htf_open_slots(node, slots, htf_flag(node, "use_locking"), false);
  step s = {.gradient = htf_input(node, gradient)};
  for (int i = 0, input = slots; i < numbers; ++i, ++input) {
    input += input == gradient;
    s.number[i] = htf_input(node, input);
  }
  htf_check_slots(node, &opened, s.gradient);
  for (int i = 0; i < numbers && !htf_has_failed(node); ++i) {
    if (s.number[i]->rank != 0) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: number %d is not a scalar, it has %d dims", node->kernel->row->op,
               i, s.number[i]->rank);
    }
  }
  if (!htf_has_failed(node) && hr_tensor_count(s.gradient) > 0) {
    for (int i = 0; i < slots; ++i) {
      s.slot[i] = opened.values[i];
    }
    rule(node, &opened, &s);
  }
  htf_close_slots(&opened);
}

static htf_value root(htf_node *node, htf_value x) {
  return htf_call1(node, HR_FUNCTIONAL_SQRT, x);
}

static htf_value square(htf_node *node, htf_value x) {
  return htf_call1(node, HR_FUNCTIONAL_SQUARE, x);
}

static htf_value sign(htf_node *node, htf_value x) {
  return htf_call1(node, HR_FUNCTIONAL_SIGN, x);
}

static htf_value absolute(htf_node *node, htf_value x) {
  return htf_call1(node, HR_FUNCTIONAL_ABS, x);
}

/* mean + (x - mean) * (1 - decay) */
static htf_value average(htf_node *node, htf_value mean, htf_value x, htf_value decay) {
  return htf_add(node, mean, htf_multiply(node, htf_subtract(node, x, mean), one_minus(node, decay)));
}

/* mean * decay + x * (1 - decay) */
static htf_value blend(htf_node *node, htf_value mean, htf_value x, htf_value decay) {
  return htf_add(node, htf_multiply(node, mean, decay), htf_multiply(node, x, one_minus(node, decay)));
}

static void move(htf_node *node, const htf_slots *opened, const step *s, htf_value by) {
  htf_set_slot(node, opened, 0, htf_subtract(node, s->slot[0], by));
}

/* accum += grad^2; the accumulator that the step uses. */
static htf_value accumulate(htf_node *node, const htf_slots *opened, const step *s) {
  if (!htf_flag(node, "update_slots")) {
    return s->slot[1];
  }
  htf_value sum = htf_add(node, s->slot[1], square(node, s->gradient));
  htf_set_slot(node, opened, 1, sum);
  return sum;
}

/* var -= grad * lr / sqrt(accum) */
static void adagrad(htf_node *node, const htf_slots *opened, const step *s) {
  htf_value scaled = htf_multiply(node, s->gradient, s->number[0]);
  htf_value sum = accumulate(node, opened, s);
  move(node, opened, s, htf_multiply(node, scaled, htf_call1(node, HR_FUNCTIONAL_RSQRT, sum)));
}

void htf_apply_adagrad(htf_node *node) {
  apply(node, 2, 1, 3, adagrad);
}

/* var -= grad * lr / (sqrt(accum) + epsilon) */
static void adagrad_v2(htf_node *node, const htf_slots *opened, const step *s) {
  htf_value scaled = htf_multiply(node, s->gradient, s->number[0]);
  htf_value sum = accumulate(node, opened, s);
  move(node, opened, s, htf_divide(node, scaled, htf_add(node, root(node, sum), s->number[1])));
}

void htf_apply_adagrad_v2(htf_node *node) {
  apply(node, 2, 2, 4, adagrad_v2);
}

/* Slots: accum, accum_update; numbers: lr, rho, epsilon. */
static void adadelta(htf_node *node, const htf_slots *opened, const step *s) {
  htf_value rho = s->number[1], epsilon = s->number[2];
  htf_value sum = blend(node, s->slot[1], square(node, s->gradient), rho);
  htf_value size = htf_multiply(node, root(node, htf_add(node, s->slot[2], epsilon)),
                                htf_call1(node, HR_FUNCTIONAL_RSQRT, htf_add(node, sum, epsilon)));
  htf_value change = htf_multiply(node, size, s->gradient);
  htf_value changes = blend(node, s->slot[2], square(node, change), rho);
  move(node, opened, s, htf_multiply(node, change, s->number[0]));
  htf_set_slot(node, opened, 1, sum);
  htf_set_slot(node, opened, 2, changes);
}

void htf_apply_adadelta(htf_node *node) {
  apply(node, 3, 3, 6, adadelta);
}

/* mom = mom * momentum + grad * lr / sqrt(size); var -= mom. Numbers: lr, rho, momentum, epsilon. */
static void move_by_momentum(htf_node *node, const htf_slots *opened, const step *s, int slot, htf_value size) {
  htf_value scaled = htf_divide(node, htf_multiply(node, s->gradient, s->number[0]), root(node, size));
  htf_value momentum = htf_add(node, htf_multiply(node, s->slot[slot], s->number[2]), scaled);
  move(node, opened, s, momentum);
  htf_set_slot(node, opened, slot, momentum);
}

/* Slots: ms, mom. */
static void rms_prop(htf_node *node, const htf_slots *opened, const step *s) {
  htf_value mean = average(node, s->slot[1], square(node, s->gradient), s->number[1]);
  move_by_momentum(node, opened, s, 2, htf_add(node, mean, s->number[3]));
  htf_set_slot(node, opened, 1, mean);
}

void htf_apply_rms_prop(htf_node *node) {
  apply(node, 3, 4, 7, rms_prop);
}

/* Slots: mg, ms, mom. */
static void centered_rms_prop(htf_node *node, const htf_slots *opened, const step *s) {
  htf_value squares = average(node, s->slot[2], square(node, s->gradient), s->number[1]);
  htf_value mean = average(node, s->slot[1], s->gradient, s->number[1]);
  htf_value variance = htf_subtract(node, squares, square(node, mean));
  move_by_momentum(node, opened, s, 3, htf_add(node, variance, s->number[3]));
  htf_set_slot(node, opened, 1, mean);
  htf_set_slot(node, opened, 2, squares);
}

void htf_apply_centered_rms_prop(htf_node *node) {
  apply(node, 4, 4, 8, centered_rms_prop);
}

/* Slots: m, v; numbers: beta1_power, lr, beta1, beta2, epsilon. */
static void ada_max(htf_node *node, const htf_slots *opened, const step *s) {
  htf_value mean = average(node, s->slot[1], s->gradient, s->number[2]);
  htf_value size =
      htf_call2(node, HR_FUNCTIONAL_MAXIMUM, htf_multiply(node, s->number[3], s->slot[2]), absolute(node, s->gradient));
  htf_value rate = htf_divide(node, s->number[1], one_minus(node, s->number[0]));
  move(node, opened, s, htf_multiply(node, rate, htf_divide(node, mean, htf_add(node, size, s->number[4]))));
  htf_set_slot(node, opened, 1, mean);
  htf_set_slot(node, opened, 2, size);
}

void htf_apply_ada_max(htf_node *node) {
  apply(node, 3, 5, 8, ada_max);
}

/* Adam whose variance never falls. Slots: m, v, vhat; numbers: beta1_power, beta2_power, lr, beta1, beta2, epsilon. */
static void ams_grad(htf_node *node, const htf_slots *opened, const step *s) {
  htf_value rate = htf_divide(node, htf_multiply(node, s->number[2], root(node, one_minus(node, s->number[1]))),
                              one_minus(node, s->number[0]));
  htf_value mean = average(node, s->slot[1], s->gradient, s->number[3]);
  htf_value variance = average(node, s->slot[2], square(node, s->gradient), s->number[4]);
  htf_value highest = htf_call2(node, HR_FUNCTIONAL_MAXIMUM, s->slot[3], variance);
  move(node, opened, s,
       htf_divide(node, htf_multiply(node, mean, rate), htf_add(node, root(node, highest), s->number[5])));
  htf_set_slot(node, opened, 1, mean);
  htf_set_slot(node, opened, 2, variance);
  htf_set_slot(node, opened, 3, highest);
}

void htf_apply_ams_grad(htf_node *node) {
  apply(node, 4, 6, 10, ams_grad);
}

/* The mean of gradients, and the product of its sign and the gradient's. */
static htf_value agreement(htf_node *node, const htf_slots *opened, const step *s) {
  htf_value mean = blend(node, s->slot[1], s->gradient, s->number[3]);
  htf_set_slot(node, opened, 1, mean);
  return htf_multiply(node, sign(node, s->gradient), sign(node, mean));
}

/* Numbers: lr, alpha, sign_decay, beta. */
static void add_sign(htf_node *node, const htf_slots *opened, const step *s) {
  htf_value factor = htf_add(node, s->number[1], htf_multiply(node, s->number[2], agreement(node, opened, s)));
  move(node, opened, s, htf_multiply(node, htf_multiply(node, s->number[0], factor), s->gradient));
}

void htf_apply_add_sign(htf_node *node) {
  apply(node, 2, 4, 6, add_sign);
}

/* Numbers: lr, logbase, sign_decay, beta. */
static void power_sign(htf_node *node, const htf_slots *opened, const step *s) {
  htf_value power = htf_multiply(node, htf_multiply(node, s->number[1], s->number[2]), agreement(node, opened, s));
  htf_value factor = htf_call1(node, HR_FUNCTIONAL_EXP, power);
  move(node, opened, s, htf_multiply(node, htf_multiply(node, s->number[0], factor), s->gradient));
}

void htf_apply_power_sign(htf_node *node) {
  apply(node, 2, 4, 6, power_sign);
}

/* sign(x) max(|x| - rate l1, 0) / (1 + rate l2) */
static htf_value shrink(htf_node *node, htf_value x, htf_value rate, htf_value l1, htf_value l2) {
  htf_value size = htf_call2(node, HR_FUNCTIONAL_MAXIMUM,
                             htf_subtract(node, absolute(node, x), htf_multiply(node, rate, l1)), htf_number(node, 0));
  return htf_divide(node, htf_multiply(node, sign(node, x), size),
                    htf_add(node, htf_number(node, 1), htf_multiply(node, l2, rate)));
}

/* Numbers: alpha, l1, l2. */
static void proximal_descent(htf_node *node, const htf_slots *opened, const step *s) {
  htf_value moved = htf_subtract(node, s->slot[0], htf_multiply(node, s->gradient, s->number[0]));
  htf_set_slot(node, opened, 0, shrink(node, moved, s->number[0], s->number[1], s->number[2]));
}

void htf_apply_proximal_descent(htf_node *node) {
  apply(node, 1, 3, 4, proximal_descent);
}

/* Numbers: lr, l1, l2. */
static void proximal_adagrad(htf_node *node, const htf_slots *opened, const step *s) {
  htf_value sum = htf_add(node, s->slot[1], square(node, s->gradient));
  htf_value rate = htf_multiply(node, s->number[0], htf_call1(node, HR_FUNCTIONAL_RSQRT, sum));
  htf_value moved = htf_subtract(node, s->slot[0], htf_multiply(node, s->gradient, rate));
  htf_set_slot(node, opened, 0, shrink(node, moved, rate, s->number[1], s->number[2]));
  htf_set_slot(node, opened, 1, sum);
}

void htf_apply_proximal_adagrad(htf_node *node) {
  apply(node, 2, 3, 5, proximal_adagrad);
}

/* Slots: sums of gradients and of their squares; numbers: lr, l1, l2, global_step. */
static void adagrad_da(htf_node *node, const htf_slots *opened, const step *s) {
  htf_value rate = s->number[0], times = htf_cast(node, s->number[3], s->gradient->dtype);
  htf_value sum = htf_add(node, s->slot[1], s->gradient);
  htf_value squares = htf_add(node, s->slot[2], square(node, s->gradient));
  htf_value excess = htf_subtract(node, absolute(node, sum), htf_multiply(node, s->number[1], times));
  htf_value kept = htf_call2(node, HR_FUNCTIONAL_MAXIMUM, excess, htf_number(node, 0));
  htf_value size =
      htf_add(node, root(node, squares), htf_multiply(node, s->number[2], htf_multiply(node, times, rate)));
  htf_value moved = htf_divide(node, htf_multiply(node, htf_multiply(node, sign(node, sum), kept), rate), size);
  htf_set_slot(node, opened, 0, htf_call1(node, HR_FUNCTIONAL_NEGATIVE, moved));
  htf_set_slot(node, opened, 1, sum);
  htf_set_slot(node, opened, 2, squares);
}

void htf_apply_adagrad_da(htf_node *node) {
  apply(node, 3, 4, 3, adagrad_da);
}

/* Slots: accum, linear. The rate is in the linear slot instead of the quadratic part if the attribute is set. */
static void follow_leader(htf_node *node, const htf_slots *opened, const step *s, htf_value shrunk, htf_value power) {
  bool is_scaled = htf_flag(node, "multiply_linear_by_lr");
  htf_value rate = s->number[0], l1 = s->number[1], l2 = s->number[2];
  htf_value negated = htf_call1(node, HR_FUNCTIONAL_NEGATIVE, power);
  htf_value sum = htf_add(node, s->slot[1], square(node, s->gradient));
  htf_value now = htf_call2(node, HR_FUNCTIONAL_POW, sum, negated);
  htf_value before = htf_call2(node, HR_FUNCTIONAL_POW, s->slot[1], negated);
  htf_value growth = htf_subtract(node, now, before), twice = htf_multiply(node, htf_number(node, 2), l2);
  growth = htf_multiply(node, is_scaled ? growth : htf_divide(node, growth, rate), s->slot[0]);
  htf_value linear =
      htf_add(node, s->slot[2], htf_subtract(node, is_scaled ? htf_multiply(node, shrunk, rate) : shrunk, growth));
  htf_value bound = is_scaled ? htf_multiply(node, l1, rate) : l1;
  htf_value quadratic = is_scaled ? htf_add(node, now, htf_multiply(node, twice, rate))
                                  : htf_add(node, htf_divide(node, now, rate), twice);
  htf_value moved =
      htf_divide(node, htf_subtract(node, htf_multiply(node, bound, sign(node, linear)), linear), quadratic);
  htf_value is_far = htf_call2(node, HR_FUNCTIONAL_GREATER, absolute(node, linear), bound);
  htf_set_slot(node, opened, 0, htf_where(node, is_far, moved, htf_number(node, 0)));
  htf_set_slot(node, opened, 1, sum);
  htf_set_slot(node, opened, 2, linear);
}

/* Numbers: lr, l1, l2, lr_power. */
static void ftrl(htf_node *node, const htf_slots *opened, const step *s) {
  follow_leader(node, opened, s, s->gradient, s->number[3]);
}

void htf_apply_ftrl(htf_node *node) {
  apply(node, 3, 4, 3, ftrl);
}

/* Numbers: lr, l1, l2, l2_shrinkage, lr_power. */
static void ftrl_v2(htf_node *node, const htf_slots *opened, const step *s) {
  htf_value pull = htf_multiply(node, htf_multiply(node, htf_number(node, 2), s->number[3]), s->slot[0]);
  follow_leader(node, opened, s, htf_add(node, s->gradient, pull), s->number[4]);
}

void htf_apply_ftrl_v2(htf_node *node) {
  apply(node, 3, 5, 3, ftrl_v2);
}
