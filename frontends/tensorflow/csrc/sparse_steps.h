/* sparse_steps.h: optimizers' steps of a row, for one type. ops_sparse.c includes it for each type T, whose functions
 * are NAME(..); SQRT, ABS, POW and SIGN are those of the type.
 *
 * slot[0] is the variable's row, the others are its slots'; n: the numbers in the order of TensorFlow's inputs.
 */

static void NAME(momentum)(T *const *slot, const T *g, const T *n, const step_options *o, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    T sum = slot[1][i] * n[1] + g[i];
    slot[1][i] = sum;
    slot[0][i] -= o->use_nesterov ? g[i] * n[0] + sum * n[1] * n[0] : sum * n[0];
  }
}

static void NAME(keras_momentum)(T *const *slot, const T *g, const T *n, const step_options *o, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    T sum = slot[1][i] * n[1] - g[i] * n[0];
    slot[1][i] = sum;
    slot[0][i] += o->use_nesterov ? sum * n[1] - g[i] * n[0] : sum;
  }
}

/* Numbers: lr, and epsilon of version 2. */
static void NAME(adagrad)(T *const *slot, const T *g, const T *n, const step_options *o, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    T sum = o->update_slots ? slot[1][i] + g[i] * g[i] : slot[1][i];
    slot[1][i] = sum;
    slot[0][i] -= n[0] * g[i] / (o->numbers > 1 ? SQRT(sum) + n[1] : SQRT(sum));
  }
}

/* Slots: accum, accum_update; numbers: lr, rho, epsilon. */
static void NAME(adadelta)(T *const *slot, const T *g, const T *n, const step_options *o, int64_t count) {
  (void)o;
  for (int64_t i = 0; i < count; ++i) {
    T sum = slot[1][i] * n[1] + g[i] * g[i] * (1 - n[1]);
    T change = SQRT(slot[2][i] + n[2]) / SQRT(sum + n[2]) * g[i];
    slot[1][i] = sum;
    slot[0][i] -= change * n[0];
    slot[2][i] = slot[2][i] * n[1] + change * change * (1 - n[1]);
  }
}

/* Slots: ms, mom; numbers: lr, rho, momentum, epsilon. */
static void NAME(rms_prop)(T *const *slot, const T *g, const T *n, const step_options *o, int64_t count) {
  (void)o;
  for (int64_t i = 0; i < count; ++i) {
    T mean = slot[1][i] * n[1] + g[i] * g[i] * (1 - n[1]);
    T moved = slot[2][i] * n[2] + n[0] * g[i] / SQRT(mean + n[3]);
    slot[1][i] = mean, slot[2][i] = moved;
    slot[0][i] -= moved;
  }
}

/* Slots: mg, ms, mom; numbers as above. */
static void NAME(centered_rms_prop)(T *const *slot, const T *g, const T *n, const step_options *o, int64_t count) {
  (void)o;
  for (int64_t i = 0; i < count; ++i) {
    T squares = slot[2][i] * n[1] + g[i] * g[i] * (1 - n[1]);
    T mean = slot[1][i] * n[1] + g[i] * (1 - n[1]);
    T moved = slot[3][i] * n[2] + n[0] * g[i] / SQRT(squares + n[3] - mean * mean);
    slot[1][i] = mean, slot[2][i] = squares, slot[3][i] = moved;
    slot[0][i] -= moved;
  }
}

#ifndef IS_COMPLEX

/* Slots: sums of gradients and of their squares; numbers: lr, l1, l2, global step. */
static void NAME(adagrad_da)(T *const *slot, const T *g, const T *n, const step_options *o, int64_t count) {
  (void)o;
  for (int64_t i = 0; i < count; ++i) {
    T sum = slot[1][i] += g[i], squares = slot[2][i] += g[i] * g[i];
    T size = n[2] * n[3] * n[0] + SQRT(squares);
    slot[0][i] = -n[0] * SHRINK(sum, n[1] * n[3]) / size;
  }
}

/* Numbers: alpha, l1, l2. */
static void NAME(proximal_descent)(T *const *slot, const T *g, const T *n, const step_options *o, int64_t count) {
  (void)o;
  for (int64_t i = 0; i < count; ++i) {
    slot[0][i] = SHRINK(slot[0][i] - g[i] * n[0], n[0] * n[1]) / (1 + n[2] * n[0]);
  }
}

/* Numbers: lr, l1, l2. */
static void NAME(proximal_adagrad)(T *const *slot, const T *g, const T *n, const step_options *o, int64_t count) {
  (void)o;
  for (int64_t i = 0; i < count; ++i) {
    T sum = slot[1][i] += g[i] * g[i];
    T rate = n[0] / SQRT(sum);
    slot[0][i] = SHRINK(slot[0][i] - g[i] * rate, rate * n[1]) / (1 + n[2] * rate);
  }
}

/* Slots: accum, linear; numbers: lr, l1, l2, l2_shrinkage of version 2, lr_power. */
static void NAME(ftrl)(T *const *slot, const T *g, const T *n, const step_options *o, int64_t count) {
  T rate = n[0], power = -n[o->numbers - 1], pull = o->numbers > 4 ? 2 * n[3] : 0;
  T divisor = o->multiply_linear_by_lr ? 1 : rate, factor = o->multiply_linear_by_lr ? rate : 1;
  T bound = n[1] * factor, twice = 2 * n[2] * factor;
  for (int64_t i = 0; i < count; ++i) {
    T before = slot[1][i], sum = before + g[i] * g[i];
    T now = POW(sum, power), shrunk = g[i] + pull * slot[0][i];
    T linear = slot[2][i] + shrunk * factor - (now - POW(before, power)) / divisor * slot[0][i];
    T moved = (linear < 0 ? -bound : bound) - linear;
    slot[0][i] = ABS(linear) > bound ? moved / (now / divisor + twice) : 0;
    slot[1][i] = sum, slot[2][i] = linear;
  }
}

#endif

static const NAME(step) NAME(steps)[STEPS] = {
    [MOMENTUM] = NAME(momentum),
    [KERAS_MOMENTUM] = NAME(keras_momentum),
    [ADAGRAD] = NAME(adagrad),
    [ADADELTA] = NAME(adadelta),
    [RMS_PROP] = NAME(rms_prop),
    [CENTERED_RMS_PROP] = NAME(centered_rms_prop),
#ifndef IS_COMPLEX
    [ADAGRAD_DA] = NAME(adagrad_da),
    [PROXIMAL_DESCENT] = NAME(proximal_descent),
    [PROXIMAL_ADAGRAD] = NAME(proximal_adagrad),
    [FTRL] = NAME(ftrl),
#endif
};

/* The steps of all rows in order; index -1: none is wrong, else the first one that is. */
static int64_t NAME(run)(const rows_plan *p, const hr_function_call *call) {
  T *slots[HTF_SLOTS_MAX] = {NULL}, numbers[NUMBERS_MAX] = {0};
  for (int i = 0; i < p->options.numbers; ++i) {
    numbers[i] = *(const T *)call->inputs[2 + i];
  }
  for (int64_t i = 0; i < p->count; ++i) {
    int64_t row = ((const int64_t *)call->inputs[0])[i];
    if (row < 0 || row >= p->rows) {
      return i;
    }
    for (int s = 0; s < call->output_count; ++s) {
      slots[s] = (T *)call->outputs[s] + row * p->width;
    }
    NAME(steps)[p->step](slots, (const T *)call->inputs[1] + i * p->width, numbers, &p->options, p->width);
  }
  return -1;
}
