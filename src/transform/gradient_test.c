/* Gradients of rows against central differences in f64, and products of their Jacobians against the gradients. */
#include "core/ops/op.h"
#include "tensor_test.h"
#include "transform/gradients.h"

enum { MOST = 512, OPERANDS = 8 };

static uint64_t seed_state = 1;

/* In [low, high). */
static double uniform(double low, double high) {
  seed_state = seed_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return low + (high - low) * (double)(seed_state >> 11) / 9007199254740992.0;
}

/* ---- tensors ---- */

static void write(const hr_tensor *x, const void *values) {
  hr_view view = hr_tensor_view(x);
  HR_ASSERT_OK(hr_stream_write(stream, &view, values));
}

/* The elements, as they are stored; a complex one is two. */
static void read(const hr_tensor *x, void *values) {
  hr_view view = hr_tensor_view(x);
  HR_ASSERT(hr_tensor_count(x) * (hr_dtype_is_complex(x->dtype) ? 2 : 1) <= MOST);
  HR_ASSERT_OK(hr_stream_read(stream, &view, values));
}

static int parts_of(const hr_tensor *x) {
  return (int)hr_tensor_count(x) * (hr_dtype_is_complex(x->dtype) ? 2 : 1);
}

/* ---- a record under test ---- */

typedef struct operand {
  hr_dtype dtype; /* F64, C128, or one without a gradient */
  int rank;
  int64_t dims[5];
  double low, high; /* of the values; equal: 0.1, 0.9 */
  bool is_absent, is_constant;
  double values[MOST]; /* also of integers */
} operand;

typedef struct trial {
  hr_op op;
  hr_attrs attrs;
  int input_count, output_count;
  operand inputs[OPERANDS];
  int output_rank; /* of output 0, if the caller chooses */
  int64_t output_dims[5];
  uint32_t extra; /* bits of further outputs that are recorded */
  double tolerance;
  int64_t kept, of; /* of each `of` elements of output 0 the first `kept` count; 0: all */
  double seeds[OPERANDS][MOST];
} trial;

static bool has_gradient(const operand *x) {
  return !x->is_absent && !x->is_constant && (x->dtype == HR_DTYPE_F64 || x->dtype == HR_DTYPE_C128);
}

static int64_t size_of(const operand *x) {
  int64_t size = x->dtype == HR_DTYPE_C128 ? 2 : 1;
  for (int d = 0; d < x->rank; ++d) {
    size *= x->dims[d];
  }
  return size;
}

static hr_tensor tensor_of(const operand *x) {
  hr_tensor tensor = new_tensor(x->dtype, x->rank, x->dims);
  int64_t size = size_of(x), whole[MOST];
  uint8_t truth[MOST];
  int32_t places[MOST];
  if (x->dtype == HR_DTYPE_I32) {
    for (int64_t i = 0; i < size; ++i) {
      places[i] = (int32_t)x->values[i];
    }
    write(&tensor, places);
  } else if (x->dtype == HR_DTYPE_I64) {
    for (int64_t i = 0; i < size; ++i) {
      whole[i] = (int64_t)x->values[i];
    }
    write(&tensor, whole);
  } else if (x->dtype == HR_DTYPE_BOOL) {
    for (int64_t i = 0; i < size; ++i) {
      truth[i] = x->values[i] >= 0.5;
    }
    write(&tensor, truth);
  } else {
    write(&tensor, x->values);
  }
  return tensor;
}

static const hr__function_row test_row = {.name = "test"};

/* Records the row on new tensors. */
static void run(const trial *t, hr_tensor *inputs, hr_tensor *outputs) {
  const hr__function_call call = {.row = &test_row, .stream = stream};
  const hr_tensor *in[OPERANDS];
  hr_tensor *out[OPERANDS];
  for (int i = 0; i < t->input_count; ++i) {
    in[i] = t->inputs[i].is_absent ? NULL : &inputs[i];
  }
  for (int o = 0; o < t->output_count; ++o) {
    outputs[o] = (hr_tensor){0};
    out[o] = o == 0 || (t->extra >> o & 1u) != 0 ? &outputs[o] : NULL;
  }
  outputs[0].rank = t->output_rank;
  memcpy(outputs[0].dims, t->output_dims, sizeof t->output_dims);
  HR_ASSERT_OK(hr__record_row(&call, t->op, &t->attrs, t->input_count, in, t->output_count, out));
}

static void release_all(int count, hr_tensor *tensors) {
  for (int i = 0; i < count; ++i) {
    hr_tensor_release(&tensors[i]);
  }
}

/* The sum of seed * output, of all outputs that have gradients. */
static double evaluate(const trial *t) {
  hr_tensor inputs[OPERANDS] = {{0}}, outputs[OPERANDS];
  double sum = 0, values[MOST];
  for (int i = 0; i < t->input_count; ++i) {
    if (!t->inputs[i].is_absent) {
      inputs[i] = tensor_of(&t->inputs[i]);
    }
  }
  run(t, inputs, outputs);
  for (int o = 0; o < t->output_count; ++o) {
    if (outputs[o].buffer != NULL && hr__is_differentiable(outputs[o].dtype)) {
      read(&outputs[o], values);
      for (int k = 0; k < parts_of(&outputs[o]); ++k) {
        sum += t->seeds[o][k] * values[k];
      }
    }
  }
  release_all(t->input_count, inputs);
  release_all(t->output_count, outputs);
  return sum;
}

static void expect_differences(trial *t, int i, const double *gradient) {
  operand *x = &t->inputs[i];
  for (int64_t k = 0; k < size_of(x); ++k) {
    const double h = 1e-6, value = x->values[k];
    x->values[k] = value + h;
    double high = evaluate(t);
    x->values[k] = value - h;
    double low = evaluate(t);
    x->values[k] = value;
    double expected = (high - low) / (2 * h), tolerance = t->tolerance > 0 ? t->tolerance : 2e-7;
    if (!(fabs(gradient[k] - expected) <= tolerance * (1 + fabs(expected)))) {
      HR_FAIL("%s: input %d, element %d at %.17g: gradient %.12g, expected %.12g", hr_op_table(t->op)->name, i, (int)k,
              value, gradient[k], expected);
    }
  }
}

static void draw_values(trial *t) {
  for (int i = 0; i < t->input_count; ++i) {
    operand *x = &t->inputs[i];
    bool is_drawn = x->dtype != HR_DTYPE_I64 && x->dtype != HR_DTYPE_I32;
    for (int k = 0; is_drawn && k < MOST; ++k) {
      x->values[k] = x->low == x->high ? uniform(0.1, 0.9) : uniform(x->low, x->high);
    }
  }
  for (int o = 0; o < OPERANDS; ++o) {
    for (int k = 0; k < MOST; ++k) {
      t->seeds[o][k] = uniform(-1, 1);
    }
  }
  for (int k = 0; t->of > 0 && k < MOST; ++k) {
    t->seeds[0][k] *= k % t->of < t->kept;
  }
}

static double dot(int count, const double *a, const double *b) {
  double sum = 0;
  for (int k = 0; k < count; ++k) {
    sum += a[k] * b[k];
  }
  return sum;
}

/* The products with random tangents: their sum with the seeds is that of the tangents with the gradients. */
static void expect_products(const trial *t, hr_tape *tape, int input_count, const hr_tensor *const *inputs,
                            double gradients[][MOST], int output_count, const hr_tensor *const *outputs,
                            const hr_tensor *const *seeds) {
  hr_tensor tangents[OPERANDS], products[OPERANDS];
  const hr_tensor *all[OPERANDS];
  double values[MOST], weights[MOST], expected = 0, actual = 0, size = 1;
  for (int i = 0; i < input_count; ++i) {
    for (int k = 0; k < MOST; ++k) {
      values[k] = uniform(-1, 1);
    }
    tangents[i] = new_tensor(inputs[i]->dtype, inputs[i]->rank, inputs[i]->dims);
    write(&tangents[i], values);
    all[i] = &tangents[i];
    expected += dot(parts_of(inputs[i]), values, gradients[i]);
    size += dot(parts_of(inputs[i]), gradients[i], gradients[i]);
  }
  HR_ASSERT_OK(hr_tape_product(tape, input_count, inputs, all, output_count, outputs, products));
  for (int o = 0; o < output_count; ++o) {
    HR_ASSERT_EQ(products[o].dtype, outputs[o]->dtype);
    read(&products[o], values);
    read(seeds[o], weights);
    actual += dot(parts_of(outputs[o]), values, weights);
  }
  if (!(fabs(actual - expected) <= 1e-10 * size)) {
    HR_FAIL("%s: product %.12g, expected %.12g from gradients", hr_op_table(t->op)->name, actual, expected);
  }
  release_all(input_count, tangents);
  release_all(output_count, products);
}

/* All gradients of the record against differences, and products against gradients. */
static void check(trial *t) {
  hr_tensor inputs[OPERANDS] = {{0}}, outputs[OPERANDS], seeds[OPERANDS] = {{0}}, gradients[OPERANDS];
  const hr_tensor *watched[OPERANDS], *ends[OPERANDS], *starts[OPERANDS];
  double values[OPERANDS][MOST];
  int watched_count = 0, end_count = 0, which[OPERANDS];
  hr_tape *tape;
  open_stream();
  draw_values(t);
  for (int i = 0; i < t->input_count; ++i) {
    if (!t->inputs[i].is_absent) {
      inputs[i] = tensor_of(&t->inputs[i]);
    }
    if (has_gradient(&t->inputs[i])) {
      which[watched_count] = i;
      watched[watched_count++] = &inputs[i];
    }
  }
  HR_ASSERT_OK(hr_tape_begin(stream, &tape));
  HR_ASSERT_OK(hr_tape_watch(tape, watched_count, watched));
  run(t, inputs, outputs);
  hr_tape_end(tape);
  for (int o = 0; o < t->output_count; ++o) {
    if (outputs[o].buffer != NULL && hr__is_differentiable(outputs[o].dtype)) {
      seeds[o] = new_tensor(outputs[o].dtype, outputs[o].rank, outputs[o].dims);
      write(&seeds[o], t->seeds[o]);
      starts[end_count] = &seeds[o];
      ends[end_count++] = &outputs[o];
    }
  }
  HR_ASSERT_OK(hr_tape_gradient(tape, end_count, ends, starts, watched_count, watched, gradients));
  for (int i = 0; i < watched_count; ++i) {
    HR_ASSERT_EQ(gradients[i].dtype, watched[i]->dtype);
    read(&gradients[i], values[i]);
  }
  expect_products(t, tape, watched_count, watched, values, end_count, ends, starts);
  release_all(watched_count, gradients);
  release_all(t->output_count, seeds);
  hr_tape_destroy(tape);
  release_all(t->input_count, inputs);
  release_all(t->output_count, outputs);
  for (int i = 0; i < watched_count; ++i) {
    expect_differences(t, which[i], values[i]);
  }
}

/* ---- element-wise rows ---- */

typedef struct range {
  double low, high;
} range;

static bool begins_with(const char *text, const char *begin) {
  return strncmp(text, begin, strlen(begin)) == 0;
}

/* Domains to draw from: those of the row, or all that most rows are defined on. */
static int ranges_of(const char *name, range *ranges) {
  static const range all[] = {{0.1, 0.9}, {-0.9, -0.1}, {1.1, 2.5}};
  static const char *const positive[] = {"log",
                                         "sqrt",
                                         "rsqrt",
                                         "pow",
                                         "entr",
                                         "xlogy",
                                         "xlog1py",
                                         "lgamma",
                                         "digamma",
                                         "trigamma",
                                         "polygamma",
                                         "igamma",
                                         "igammac",
                                         "modified_bessel_k",
                                         "scaled_modified_bessel_k",
                                         "bessel_y"};
  static const char *const fractions[] = {"asin", "acos", "atanh", "erfinv", "ndtri", "logit", "bce", "lerp"};
  int count = 0;
  if (strcmp(name, "acosh") == 0 || strcmp(name, "zeta") == 0) {
    ranges[count++] = all[2];
    return count;
  }
  for (size_t i = 0; i < sizeof fractions / sizeof *fractions; ++i) {
    if (begins_with(name, fractions[i])) {
      ranges[count++] = all[0];
      return count;
    }
  }
  ranges[count++] = all[0], ranges[count++] = all[2];
  for (size_t i = 0; i < sizeof positive / sizeof *positive; ++i) {
    if (begins_with(name, positive[i]) && strcmp(name, "log_ndtr") != 0 && strcmp(name, "logaddexp") != 0) {
      return count;
    }
  }
  ranges[count++] = all[1];
  return count;
}

/* An input of whole numbers: a degree or an order. */
static bool is_order(const hr_op_row *row, int i) {
  return (i == 1 && strstr(row->name, "polynomial") != NULL) || (i == 0 && strcmp(row->name, "polygamma") == 0);
}

static void check_pointwise(hr_op op, hr_dtype dtype, range from) {
  const hr_op_row *row = hr_op_table(op);
  const hr__gradient *gradient = hr__gradient_of(op);
  trial t = {.op = op, .input_count = row->arity, .output_count = 1};
  for (int i = 0; i < row->arity; ++i) {
    operand *x = &t.inputs[i];
    *x = (operand){.dtype = dtype, .rank = 1, .dims = {7}, .low = from.low, .high = from.high};
    const char *rule = gradient->rules[i];
    HR_ASSERT_NOT_NULL(rule);
    x->is_constant = *rule == '?' || *rule == '\0';
    if (row->rule == HR_RULE_WHERE && i == 0) {
      x->dtype = HR_DTYPE_BOOL;
    }
    if (dtype == HR_DTYPE_C128 && op == HR_OP_NAN_TO_NUM && i > 0) {
      x->is_constant = true;
    }
    if (is_order(row, i)) {
      x->dtype = HR_DTYPE_I64;
      for (int k = 0; k < 7; ++k) {
        x->values[k] = k % 4 + 1;
      }
    }
  }
  check(&t);
}

HR_TEST(every_element_wise_row_has_the_gradient_of_differences) {
  int count = 0;
  for (int op = 1; op < HR_OP_COUNT; ++op) {
    const hr_op_row *row = hr_op_table((hr_op)op);
    range ranges[3];
    if (row->family != HR_FAMILY_POINTWISE || hr__gradient_of((hr_op)op)->kind != HR__GRADIENT_TEXT) {
      continue;
    }
    bool is_real = row->has_real && row->rule != HR_RULE_PART;
    int range_count = is_real ? ranges_of(row->name, ranges) : 0;
    for (int r = 0; r < range_count; ++r) {
      check_pointwise((hr_op)op, HR_DTYPE_F64, ranges[r]);
    }
    count += is_real;
  }
  HR_ASSERT(count > 110);
}

HR_TEST(every_complex_row_has_the_gradient_of_differences) {
  static const range ranges[] = {{0.2, 0.8}, {-0.8, -0.2}, {-1.5, 1.5}};
  for (int op = 1; op < HR_OP_COUNT; ++op) {
    const hr_op_row *row = hr_op_table((hr_op)op);
    bool has =
        row->family == HR_FAMILY_POINTWISE && row->has_complex && hr__gradient_of((hr_op)op)->kind == HR__GRADIENT_TEXT;
    for (int r = 0; has && r < 3; ++r) {
      hr_dtype dtype = op == HR_OP_COMPLEX || op == HR_OP_POLAR ? HR_DTYPE_F64 : HR_DTYPE_C128;
      check_pointwise((hr_op)op, dtype, ranges[r]);
    }
  }
}

/* ---- other rows ---- */

#define INTS(...) \
  .attrs = {.int_count = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .ints = (const int64_t[]){__VA_ARGS__}}
#define F64(size, ...) \
  { .dtype = HR_DTYPE_F64, .rank = (size), .dims = {__VA_ARGS__}, .low = -1, .high = 1 }
#define C128(size, ...) \
  { .dtype = HR_DTYPE_C128, .rank = (size), .dims = {__VA_ARGS__}, .low = -1, .high = 1 }

static void check_with(trial t, int scalar_count, const hr_scalar *scalars) {
  t.attrs.scalar_count = scalar_count, t.attrs.scalars = scalars;
  check(&t);
}
#define CHECK(...) check_with((trial){__VA_ARGS__}, 0, NULL)
#define CHECK_WITH(scalar, ...) check_with((trial){__VA_ARGS__}, 1, &(const hr_scalar[]){scalar}[0])

HR_TEST(reductions) {
  static const hr_op ops[] = {HR_OP_SUM, HR_OP_PROD, HR_OP_AMAX, HR_OP_AMIN, HR_OP_MEAN, HR_OP_LOGSUMEXP};
  for (int64_t mask = 0; mask < 8; ++mask) {
    for (size_t i = 0; i < sizeof ops / sizeof *ops; ++i) {
      CHECK(.op = ops[i], INTS(mask), .input_count = 1, .output_count = 1, .inputs = {F64(3, 2, 3, 4)});
    }
  }
  CHECK(.op = HR_OP_SUM, INTS(1), .input_count = 1, .output_count = 1, .inputs = {C128(2, 3, 2)});
  CHECK(.op = HR_OP_PROD, INTS(1), .input_count = 1, .output_count = 1, .inputs = {C128(2, 3, 2)});
}

HR_TEST(statistics) {
  for (int64_t root = 0; root < 2; ++root) {
    for (int64_t mask = 1; mask < 4; ++mask) {
      CHECK_WITH(hr_scalar_i64(1), .op = HR_OP_VAR_MEAN, INTS(mask, root), .input_count = 1, .output_count = 1,
                 .inputs = {F64(2, 3, 4)});
      CHECK_WITH(hr_scalar_i64(0), .op = HR_OP_VAR_MEAN, INTS(mask, root), .input_count = 1, .output_count = 2,
                 .extra = 2, .inputs = {F64(2, 3, 4)});
    }
  }
  static const double powers[] = {0, 1, 2, 3, 1.5, INFINITY, -INFINITY};
  for (size_t i = 0; i < sizeof powers / sizeof *powers; ++i) {
    CHECK_WITH(hr_scalar_f64(powers[i]), .op = HR_OP_NORM, INTS(2), .input_count = 1, .output_count = 1,
               .inputs = {F64(2, 3, 4)});
  }
}

HR_TEST(products) {
  CHECK(.op = HR_OP_MATMUL, .input_count = 2, .output_count = 1, .inputs = {F64(2, 3, 4), F64(2, 4, 2)});
  CHECK(.op = HR_OP_MATMUL, .input_count = 3, .output_count = 1, .inputs = {F64(2, 3, 4), F64(2, 4, 2), F64(1, 2)});
  CHECK(.op = HR_OP_MATMUL, .input_count = 2, .output_count = 1, .inputs = {F64(3, 2, 3, 4), F64(2, 4, 2)});
  CHECK(.op = HR_OP_MATMUL, .input_count = 2, .output_count = 1, .inputs = {F64(3, 2, 3, 4), F64(3, 1, 4, 2)});
  CHECK(.op = HR_OP_MATMUL, .input_count = 2, .output_count = 1, .inputs = {F64(2, 3, 4), F64(3, 2, 4, 2)});
  CHECK(.op = HR_OP_MATMUL, .input_count = 2, .output_count = 1, .inputs = {C128(2, 2, 3), C128(2, 3, 2)});
}

/* Rank and dims of both: batches that share one of them, in some dims or in all. */
HR_TEST(products_of_shared_matrices) {
#define PRODUCT(...) CHECK(.op = HR_OP_MATMUL, .input_count = 2, .output_count = 1, .inputs = {__VA_ARGS__})
  PRODUCT(F64(2, 3, 4), F64(3, 2, 4, 1)); /* rows that are one dim */
  PRODUCT(F64(2, 5, 6), F64(3, 3, 6, 2)); /* copied */
  PRODUCT(F64(2, 5, 6), F64(4, 2, 3, 6, 2));
  PRODUCT(F64(3, 1, 5, 6), F64(4, 2, 3, 6, 2));
  PRODUCT(F64(4, 2, 1, 5, 6), F64(4, 2, 3, 6, 2));
  PRODUCT(F64(4, 1, 3, 5, 6), F64(4, 2, 3, 6, 2));
  PRODUCT(F64(3, 3, 5, 6), F64(4, 2, 1, 6, 2)); /* each shares the other's dim */
  PRODUCT(F64(4, 2, 3, 2, 5), F64(4, 2, 1, 5, 6));
  PRODUCT(F64(4, 2, 3, 2, 5), F64(4, 1, 3, 5, 6));
  PRODUCT(F64(2, 1, 4), F64(3, 2, 4, 3));
  PRODUCT(C128(2, 2, 3), C128(3, 2, 3, 1));
  PRODUCT(C128(3, 2, 2, 3), C128(3, 1, 3, 2));
#undef PRODUCT
}

HR_TEST(convolutions) {
  /* x [1, 2, 5], w [2, 1, 3], stride 2, padding 1, groups 2 */
  CHECK(.op = HR_OP_CONV, INTS(1, 2, 1, 1, 2), .input_count = 3, .output_count = 1,
        .inputs = {F64(3, 1, 2, 6), F64(3, 2, 1, 3), F64(1, 2)});
  CHECK(.op = HR_OP_CONV, INTS(2, 1, 1, 1, 1, 1, 1, 1), .input_count = 3, .output_count = 1,
        .inputs = {F64(4, 2, 2, 3, 4), F64(4, 3, 2, 3, 3), F64(1, 3)});
  CHECK(.op = HR_OP_CONV, INTS(2, 1, 1, 1, 1, 1, 1, 1, 0, 2), .input_count = 3, .output_count = 1,
        .inputs = {F64(4, 2, 2, 3, 4), F64(4, 3, 2, 3, 3), F64(1, 3)});
  CHECK(.op = HR_OP_CONV_BACKWARD_DATA, INTS(1, 2, 1, 1, 1), .input_count = 3, .output_count = 1, .output_rank = 3,
        .output_dims = {1, 2, 6}, .inputs = {F64(3, 1, 3, 3), F64(3, 3, 2, 3), F64(1, 2)});
  CHECK(.op = HR_OP_CONV_BACKWARD_WEIGHT, INTS(1, 2, 1, 1, 1), .input_count = 2, .output_count = 1, .output_rank = 3,
        .output_dims = {3, 2, 3}, .inputs = {F64(3, 1, 2, 6), F64(3, 1, 3, 3)});
}

HR_TEST(softmax_and_its_gradients) {
  for (int64_t dim = 0; dim < 2; ++dim) {
    CHECK(.op = HR_OP_SOFTMAX, INTS(dim), .input_count = 1, .output_count = 1, .inputs = {F64(2, 3, 4)});
    CHECK(.op = HR_OP_LOG_SOFTMAX, INTS(dim), .input_count = 1, .output_count = 1, .inputs = {F64(2, 3, 4)});
    CHECK(.op = HR_OP_SOFTMAX_BACKWARD, INTS(dim), .input_count = 2, .output_count = 1,
          .inputs = {F64(2, 3, 4), F64(2, 3, 4)});
    CHECK(.op = HR_OP_LOG_SOFTMAX_BACKWARD, INTS(dim), .input_count = 2, .output_count = 1,
          .inputs = {F64(2, 3, 4), F64(2, 3, 4)});
  }
}

HR_TEST(norms_of_layers) {
  CHECK_WITH(hr_scalar_f64(1e-5), .op = HR_OP_LAYER_NORM, INTS(1), .input_count = 3, .output_count = 1,
             .inputs = {F64(2, 3, 5), F64(1, 5), F64(1, 5)}, .tolerance = 1e-6);
  CHECK_WITH(hr_scalar_f64(1e-5), .op = HR_OP_LAYER_NORM, INTS(2), .input_count = 1, .output_count = 1,
             .inputs = {F64(3, 2, 3, 2)}, .tolerance = 1e-6);
  CHECK_WITH(hr_scalar_f64(1e-5), .op = HR_OP_GROUP_NORM, INTS(2), .input_count = 3, .output_count = 1,
             .inputs = {F64(3, 2, 4, 3), F64(1, 4), F64(1, 4)}, .tolerance = 1e-6);
  static const hr_scalar scalars[2] = {{HR_DTYPE_F64, {.f = {0.1, 0}}}, {HR_DTYPE_F64, {.f = {1e-5, 0}}}};
  for (int64_t training = 0; training < 2; ++training) {
    trial t = {.op = HR_OP_BATCH_NORM,
               INTS(training),
               .input_count = 5,
               .output_count = 1,
               .inputs = {F64(3, 3, 2, 4), F64(1, 2), F64(1, 2), F64(1, 2), F64(1, 2)},
               .tolerance = 1e-6};
    t.inputs[3].is_constant = t.inputs[4].is_constant = true;
    t.inputs[4].low = 0.5;
    t.inputs[3].is_absent = t.inputs[4].is_absent = training != 0;
    check_with(t, 2, scalars);
  }
}

HR_TEST(losses) {
  static const hr_op ops[] = {HR_OP_MSE_LOSS, HR_OP_SMOOTH_L1_LOSS, HR_OP_HUBER_LOSS};
  for (int64_t reduction = 0; reduction < 3; ++reduction) {
    for (int i = 0; i < 3; ++i) {
      trial t = {
          .op = ops[i], INTS(reduction), .input_count = 2, .output_count = 1, .inputs = {F64(2, 3, 4), F64(2, 3, 4)}};
      const hr_scalar half = hr_scalar_f64(0.5);
      check_with(t, i > 0, &half);
    }
    trial t = {.op = HR_OP_BCE_LOSS,
               INTS(reduction),
               .input_count = 3,
               .output_count = 1,
               .inputs = {F64(2, 3, 4), F64(2, 3, 4), F64(2, 3, 4)}};
    t.inputs[0].low = t.inputs[1].low = t.inputs[2].low = 0.2;
    t.inputs[0].high = t.inputs[1].high = t.inputs[2].high = 0.8;
    t.inputs[1].is_constant = t.inputs[2].is_constant = true;
    check(&t);
    trial nll = {
        .op = HR_OP_NLL_LOSS,
        INTS(reduction),
        .input_count = 3,
        .output_count = 1,
        .inputs = {F64(2, 3, 4), {.dtype = HR_DTYPE_I64, .rank = 1, .dims = {3}, .values = {2, 0, 3}}, F64(1, 4)}};
    nll.inputs[2].is_constant = true, nll.inputs[2].low = 0.5;
    const hr_scalar ignored = hr_scalar_i64(-100);
    check_with(nll, 1, &ignored);
  }
}

HR_TEST(windows_and_interpolation) {
  CHECK(.op = HR_OP_MAX_POOL, INTS(3, 2, 1, 1), .input_count = 1, .output_count = 1, .inputs = {F64(3, 1, 2, 7)});
  CHECK(.op = HR_OP_AVG_POOL, INTS(3, 2, 1, 1, 0, 0), .input_count = 1, .output_count = 1, .inputs = {F64(3, 1, 2, 7)});
  CHECK(.op = HR_OP_AVG_POOL_BACKWARD, INTS(3, 2, 1, 1, 1, 0), .input_count = 1, .output_count = 1, .output_rank = 3,
        .output_dims = {1, 2, 7}, .inputs = {F64(3, 1, 2, 4)});
  CHECK(.op = HR_OP_ADAPTIVE_AVG_POOL, INTS(1), .input_count = 1, .output_count = 1, .output_rank = 3,
        .output_dims = {1, 2, 3}, .inputs = {F64(3, 1, 2, 7)});
  CHECK(.op = HR_OP_ADAPTIVE_AVG_POOL_BACKWARD, INTS(1), .input_count = 1, .output_count = 1, .output_rank = 3,
        .output_dims = {1, 2, 7}, .inputs = {F64(3, 1, 2, 3)});
  CHECK(.op = HR_OP_IM2COL, INTS(2, 1, 0, 1), .input_count = 1, .output_count = 1, .inputs = {F64(3, 1, 2, 5)});
  CHECK(.op = HR_OP_COL2IM, INTS(2, 1, 0, 1), .input_count = 1, .output_count = 1, .inputs = {F64(4, 1, 2, 2, 4)});
  static const hr_scalar sizes[2] = {{HR_DTYPE_F64, {.f = {0, 0}}}, {HR_DTYPE_F64, {.f = {0, 0}}}};
  static const hr_op ops[] = {HR_OP_UPSAMPLE_NEAREST2D, HR_OP_UPSAMPLE_NEAREST2D_BACKWARD, HR_OP_UPSAMPLE_BILINEAR2D,
                              HR_OP_UPSAMPLE_BILINEAR2D_BACKWARD};
  for (int i = 0; i < 4; ++i) {
    trial t = {.op = ops[i],
               INTS(0),
               .input_count = 1,
               .output_count = 1,
               .output_rank = 4,
               .output_dims = {1, 2, 4, 6},
               .inputs = {F64(4, 1, 2, 2, 3)}};
    if (i % 2 == 1) {
      t.output_dims[2] = 2, t.output_dims[3] = 3, t.inputs[0].dims[2] = 4, t.inputs[0].dims[3] = 6;
    }
    check_with(t, 2, sizes);
  }
  for (int64_t kind = 0; kind < 4; ++kind) {
    trial t = {.op = HR_OP_RESAMPLE,
               INTS(1, kind, 0, 0),
               .input_count = 1,
               .output_count = 1,
               .output_rank = 2,
               .output_dims = {2, 7},
               .inputs = {F64(2, 2, 4)}};
    check_with(t, 1, sizes);
  }
  CHECK(.op = HR_OP_GRID_SAMPLE, INTS(0, 0, 0), .input_count = 2, .output_count = 1,
        .inputs = {F64(4, 1, 2, 3, 3), F64(4, 1, 2, 2, 2)});
}

HR_TEST(index_maps) {
  CHECK(.op = HR_OP_CAT, INTS(1), .input_count = 3, .output_count = 1,
        .inputs = {F64(2, 2, 3), F64(2, 2, 1), F64(2, 2, 2)});
  CHECK_WITH(hr_scalar_f64(7), .op = HR_OP_PAD, INTS(1, -1, 0, 2), .input_count = 1, .output_count = 1,
             .inputs = {F64(2, 3, 4)});
  for (int64_t kind = 0; kind < 4; ++kind) {
    CHECK(.op = HR_OP_PAD_BORDER, INTS(kind, 0, 2, 0, 1), .input_count = 1, .output_count = 1,
          .inputs = {F64(2, 2, 4)});
  }
  CHECK(.op = HR_OP_INDEX_SELECT, INTS(1), .input_count = 2, .output_count = 1,
        .inputs = {F64(2, 2, 4), {.dtype = HR_DTYPE_I64, .rank = 2, .dims = {2, 2}, .values = {3, 0, 3, 1}}});
  CHECK(.op = HR_OP_GATHER, INTS(1), .input_count = 2, .output_count = 1,
        .inputs = {F64(2, 2, 4), {.dtype = HR_DTYPE_I64, .rank = 2, .dims = {2, 3}, .values = {3, 0, 3, 1, 1, 1}}});
  CHECK(.op = HR_OP_INDEX, INTS(5, 0), .input_count = 3, .output_count = 1,
        .inputs = {F64(3, 2, 3, 4),
                   {.dtype = HR_DTYPE_I64, .rank = 1, .dims = {3}, .values = {1, 0, 1}},
                   {.dtype = HR_DTYPE_I64, .rank = 1, .dims = {3}, .values = {2, 3, 2}}});
  CHECK_WITH(hr_scalar_i64(1), .op = HR_OP_TRI, INTS(1), .input_count = 1, .output_count = 1, .inputs = {F64(2, 3, 4)});
  for (int64_t dim = 0; dim < 2; ++dim) {
    CHECK(.op = HR_OP_CUMSUM, INTS(dim), .input_count = 1, .output_count = 1, .inputs = {F64(2, 3, 4)});
  }
}

HR_TEST(order_and_transforms) {
  CHECK(.op = HR_OP_SORT, INTS(1), .input_count = 1, .output_count = 1, .inputs = {F64(2, 2, 5)});
  CHECK(.op = HR_OP_TOPK, INTS(1), .input_count = 1, .output_count = 2, .extra = 2, .output_rank = 2,
        .output_dims = {2, 3}, .inputs = {F64(2, 2, 5)});
  CHECK(.op = HR_OP_KTH, INTS(0, 2), .input_count = 1, .output_count = 2, .extra = 2, .inputs = {F64(2, 2, 5)});
  CHECK(.op = HR_OP_CUMMAX, .input_count = 1, .output_count = 2, .extra = 2, .inputs = {F64(2, 2, 5)});
  CHECK_WITH(hr_scalar_f64(0.5), .op = HR_OP_FFT, INTS(0, 0), .input_count = 1, .output_count = 1,
             .inputs = {C128(2, 2, 6)});
}

HR_TEST(random_masks_are_repeated) {
  static const hr_scalar scalars[3] = {
      {HR_DTYPE_F64, {.f = {0.4, 0}}}, {HR_DTYPE_I64, {.i = 5}}, {HR_DTYPE_I64, {.i = 3}}};
  trial t = {.op = HR_OP_DROPOUT, .input_count = 1, .output_count = 1, .inputs = {F64(2, 4, 5)}};
  check_with(t, 3, scalars);
}

HR_TEST(cells_and_attention) {
  CHECK(.op = HR_OP_LSTM_CELL, .input_count = 5, .output_count = 2, .extra = 2,
        .inputs = {F64(2, 2, 12), F64(2, 2, 12), F64(2, 2, 3), F64(1, 12), F64(1, 12)});
  CHECK(.op = HR_OP_GRU_CELL, .input_count = 5, .output_count = 1,
        .inputs = {F64(2, 2, 9), F64(2, 2, 9), F64(2, 2, 3), F64(1, 9), F64(1, 9)});
  for (int64_t causal = 0; causal < 2; ++causal) {
    CHECK_WITH(hr_scalar_f64(0.7), .op = HR_OP_ATTENTION, INTS(causal), .input_count = 3, .output_count = 1,
               .inputs = {F64(4, 1, 2, 3, 4), F64(4, 1, 2, 3, 4), F64(4, 1, 2, 3, 2)}, .tolerance = 1e-6);
  }
}

/* ---- composites through their loops ---- */

#define I64(size, ...)                                                          \
  {                                                                             \
    .dtype = HR_DTYPE_I64, .rank = 1, .dims = {size}, .values = { __VA_ARGS__ } \
  }
#define POSITIVE(size, ...) \
  { .dtype = HR_DTYPE_F64, .rank = (size), .dims = {__VA_ARGS__}, .low = 0.5, .high = 1.5 }

HR_TEST(gradients_of_norms_through_loops) {
  CHECK(.op = HR_OP_LAYER_NORM_BACKWARD, INTS(1), .input_count = 5, .output_count = 3, .extra = 6,
        .inputs = {F64(2, 3, 4), F64(2, 3, 4), F64(2, 3, 1), POSITIVE(2, 3, 1), F64(1, 4)});
  CHECK(.op = HR_OP_GROUP_NORM_BACKWARD, INTS(2), .input_count = 5, .output_count = 3, .extra = 6,
        .inputs = {F64(3, 2, 4, 3), F64(3, 2, 4, 3), F64(2, 2, 2), POSITIVE(2, 2, 2), F64(1, 4)});
  CHECK_WITH(hr_scalar_f64(1e-5), .op = HR_OP_BATCH_NORM_BACKWARD, INTS(1), .input_count = 7, .output_count = 3,
             .extra = 6,
             .inputs = {F64(3, 3, 2, 4),
                        F64(3, 3, 2, 4),
                        F64(1, 2),
                        {.is_absent = true},
                        {.is_absent = true},
                        F64(1, 2),
                        POSITIVE(1, 2)});
  /* with outputs that may get a gradient */
  CHECK_WITH(hr_scalar_f64(1e-5), .op = HR_OP_LAYER_NORM, INTS(1), .input_count = 3, .output_count = 3, .extra = 6,
             .inputs = {F64(2, 3, 5), F64(1, 5), F64(1, 5)}, .tolerance = 1e-6);
}

HR_TEST(gradients_of_losses_through_loops) {
  static const hr_op ops[] = {HR_OP_MSE_LOSS_BACKWARD, HR_OP_BCE_LOSS_BACKWARD, HR_OP_SMOOTH_L1_LOSS_BACKWARD,
                              HR_OP_HUBER_LOSS_BACKWARD};
  const hr_scalar half = hr_scalar_f64(0.5), ignored = hr_scalar_i64(-100);
  for (int64_t reduction = 0; reduction < 3; ++reduction) {
    for (int i = 0; i < 4; ++i) {
      trial t = {.op = ops[i],
                 INTS(reduction),
                 .input_count = 3,
                 .output_count = 1,
                 .inputs = {F64(2, 3, 4), POSITIVE(2, 3, 4), POSITIVE(2, 3, 4)}};
      t.inputs[1].low = t.inputs[2].low = 0.2, t.inputs[1].high = t.inputs[2].high = 0.8;
      t.inputs[0].rank = reduction == 0 ? 2 : 0;
      check_with(t, i > 1, &half);
    }
    trial t = {.op = HR_OP_BCE_LOSS,
               INTS(reduction),
               .input_count = 3,
               .output_count = 1,
               .inputs = {F64(2, 3, 4), F64(2, 3, 4), F64(2, 3, 4)}};
    for (int i = 0; i < 3; ++i) {
      t.inputs[i].low = 0.2, t.inputs[i].high = 0.8;
    }
    check(&t);
    trial nll = {.op = HR_OP_NLL_LOSS_BACKWARD,
                 INTS(reduction),
                 .input_count = 4,
                 .output_count = 1,
                 .output_rank = 2,
                 .output_dims = {3, 4},
                 .inputs = {F64(1, 3), I64(3, 2, 0, 3), POSITIVE(1, 4), POSITIVE(0, 1)}};
    nll.inputs[0].rank = reduction == 0;
    check_with(nll, 1, &ignored);
  }
}

HR_TEST(gradients_of_windows_through_loops) {
  trial t = {.op = HR_OP_MAX_POOL_BACKWARD,
             INTS(3, 2, 1, 1),
             .input_count = 2,
             .output_count = 1,
             .output_rank = 3,
             .output_dims = {1, 2, 7},
             .inputs = {F64(3, 1, 2, 4), I64(8, 0, 1, 5, 6, 0, 3, 3, 5)}};
  t.inputs[1].rank = 3, t.inputs[1].dims[0] = 1, t.inputs[1].dims[1] = 2, t.inputs[1].dims[2] = 4;
  check(&t);
  CHECK(.op = HR_OP_ADAPTIVE_MAX_POOL, INTS(1), .input_count = 1, .output_count = 1, .output_rank = 3,
        .output_dims = {1, 2, 3}, .inputs = {F64(3, 1, 2, 7)});
}

HR_TEST(gradients_of_grids_through_loops) {
  CHECK(.op = HR_OP_GRID_SAMPLE_BACKWARD, INTS(0, 0, 0), .input_count = 3, .output_count = 2, .extra = 2,
        .inputs = {F64(4, 1, 2, 2, 2), F64(4, 1, 2, 3, 3), F64(4, 1, 2, 2, 2)});
}

HR_TEST(gradients_of_cells_through_loops) {
  CHECK(.op = HR_OP_LSTM_CELL_BACKWARD, .input_count = 5, .output_count = 2, .extra = 2,
        .inputs = {F64(2, 2, 3), F64(2, 2, 3), F64(2, 2, 3), F64(2, 2, 3), F64(2, 2, 12)});
  CHECK(.op = HR_OP_GRU_CELL_BACKWARD, .input_count = 2, .output_count = 3, .extra = 6,
        .inputs = {F64(2, 2, 3), F64(2, 2, 15)});
  CHECK(.op = HR_OP_GRU_CELL, .input_count = 5, .output_count = 2, .extra = 2,
        .inputs = {F64(2, 2, 9), F64(2, 2, 9), F64(2, 2, 3), F64(1, 9), F64(1, 9)});
  for (int64_t reverse = 0; reverse < 2; ++reverse) {
    CHECK(.op = HR_OP_LSTM, INTS(reverse), .input_count = 4, .output_count = 5, .extra = 24,
          .inputs = {F64(3, 3, 2, 8), F64(2, 2, 2), F64(2, 2, 2), F64(2, 8, 2)});
    CHECK(.op = HR_OP_GRU, INTS(reverse), .input_count = 4, .output_count = 3, .extra = 4,
          .inputs = {F64(3, 3, 2, 6), F64(2, 2, 2), F64(2, 6, 2), F64(1, 6)});
    CHECK(.op = HR_OP_LSTM_BACKWARD, INTS(reverse), .input_count = 7, .output_count = 3, .extra = 6,
          .inputs = {F64(3, 3, 2, 2), F64(2, 2, 2), F64(2, 2, 2), F64(2, 2, 2), F64(3, 3, 2, 2), F64(3, 3, 2, 8),
                     F64(2, 8, 2)});
    CHECK(.op = HR_OP_GRU_BACKWARD, INTS(reverse), .input_count = 4, .output_count = 3, .extra = 6,
          .inputs = {F64(3, 3, 2, 2), F64(2, 2, 2), F64(3, 3, 2, 10), F64(2, 6, 2)});
  }
}

HR_TEST(gradients_of_attention_through_loops) {
  for (int64_t causal = 0; causal < 2; ++causal) {
    CHECK_WITH(hr_scalar_f64(0.7), .op = HR_OP_ATTENTION, INTS(causal), .input_count = 3, .output_count = 2, .extra = 2,
               .inputs = {F64(4, 1, 2, 3, 4), F64(4, 1, 2, 3, 4), F64(4, 1, 2, 3, 2)}, .tolerance = 1e-6);
    trial t = {.op = HR_OP_ATTENTION_BACKWARD,
               INTS(causal),
               .input_count = 7,
               .output_count = 3,
               .extra = 6,
               .inputs = {F64(4, 1, 2, 3, 2),
                          F64(4, 1, 2, 3, 4),
                          F64(4, 1, 2, 3, 4),
                          F64(4, 1, 2, 3, 2),
                          {.is_absent = true},
                          F64(4, 1, 2, 3, 2),
                          F64(3, 1, 2, 3)},
               .tolerance = 1e-6};
    const hr_scalar scale = hr_scalar_f64(0.7);
    check_with(t, 1, &scale);
  }
}

HR_TEST(gradients_of_scans) {
  for (int64_t dim = 0; dim < 2; ++dim) {
    CHECK(.op = HR_OP_CUMPROD, INTS(dim), .input_count = 1, .output_count = 1, .inputs = {F64(2, 3, 4)});
    CHECK(.op = HR_OP_LOGCUMSUMEXP, INTS(dim), .input_count = 1, .output_count = 1, .inputs = {F64(2, 3, 4)});
  }
}

HR_TEST(gradients_of_segments) {
  CHECK_WITH(hr_scalar_f64(0), .op = HR_OP_SEGMENTS, INTS(1, -1), .input_count = 3, .output_count = 1,
             .inputs = {F64(2, 5, 2), I64(3, 0, 2, 3), I64(3, 2, 3, 5)});
}

/* Loops that are no records: the record works, and its gradient is an error. */
HR_TEST(products_of_segments_have_no_gradient) {
  const hr_scalar start = hr_scalar_f64(1);
  trial t = {.op = HR_OP_SEGMENTS,
             INTS(2, -1),
             .input_count = 3,
             .output_count = 1,
             .inputs = {F64(2, 5, 2), I64(3, 0, 2, 3), I64(3, 2, 3, 5)}};
  hr_tensor inputs[3], y[1], gradient;
  const hr_tensor *x = &inputs[0], *end = &y[0];
  hr_tape *tape;
  t.attrs.scalar_count = 1, t.attrs.scalars = &start;
  open_stream();
  draw_values(&t);
  for (int i = 0; i < 3; ++i) {
    inputs[i] = tensor_of(&t.inputs[i]);
  }
  HR_ASSERT_OK(hr_tape_begin(stream, &tape));
  HR_ASSERT_OK(hr_tape_watch(tape, 1, &x));
  run(&t, inputs, y);
  HR_ASSERT_ERROR(hr_tape_gradient(tape, 1, &end, NULL, 1, &x, &gradient), HR_STATUS_UNIMPLEMENTED,
                  "segments has no gradient by input 0: its loops combine by index");
  hr_tape_destroy(tape);
  release_all(3, inputs);
  release_all(1, y);
}

HR_TEST(gradients_of_embeddings) {
  CHECK(.op = HR_OP_EMBEDDING_BACKWARD, INTS(-1, 0), .input_count = 2, .output_count = 1, .output_rank = 2,
        .output_dims = {4, 3}, .inputs = {F64(2, 3, 3), I64(3, 2, 0, 2)});
  CHECK(.op = HR_OP_EMBEDDING_BACKWARD, INTS(2, 0), .input_count = 2, .output_count = 1, .output_rank = 2,
        .output_dims = {4, 3}, .inputs = {F64(2, 3, 3), I64(3, 2, 0, 2)});
}

HR_TEST(gradients_of_samples) {
  static const hr_scalar scalars[4] = {
      {HR_DTYPE_F64, {.f = {0, 0}}}, {HR_DTYPE_F64, {.f = {1, 0}}}, {HR_DTYPE_I64, {.i = 5}}, {HR_DTYPE_I64, {.i = 3}}};
  trial t = {.op = HR_OP_NORMAL, .input_count = 2, .output_count = 1, .inputs = {F64(2, 2, 3), F64(2, 2, 3)}};
  check_with(t, 4, scalars);
}

/* ---- linear algebra; those of other rows are compared with PyTorch's in test_linalg_gradients.py ---- */

static void need_lapack(void) {
  open_stream();
  const hr__function_call call = {.row = &test_row, .stream = stream};
  hr_tensor x = new_tensor(HR_DTYPE_F64, 2, (int64_t[]){1, 1}), y;
  const hr_tensor *inputs[1] = {&x};
  hr_status status = hr__record_one(&call, HR_OP_MATRIX_EXP, NULL, 1, inputs, HR_DTYPE_NONE, &y);
  bool is_absent = hr_status_code_of(status) == HR_STATUS_UNIMPLEMENTED;
  if (status == HR_OK) {
    hr_tensor_release(&y);
  }
  hr_status_free(status);
  hr_tensor_release(&x);
  if (is_absent) {
    HR_SKIP("no LAPACK");
  }
}

/* Triangles far from singular. */
#define FACTOR(type) \
  { .dtype = HR_DTYPE_##type, .rank = 3, .dims = {2, 3, 3}, .low = 0.4, .high = 1 }

HR_TEST(triangular_systems) {
  need_lapack();
  for (int64_t i = 0; i < 24; ++i) {
    int64_t is_upper = i & 1, has_ones = i >> 1 & 1, is_left = i >> 2 & 1, mode = i >> 3;
    CHECK(.op = HR_OP_TRIANGULAR_SOLVE, INTS(is_upper, mode, has_ones, is_left), .input_count = 2, .output_count = 1,
          .inputs = {FACTOR(F64), F64(3, 2, 3, 3)});
    CHECK(.op = HR_OP_TRIANGULAR_SOLVE, INTS(is_upper, mode, has_ones, is_left), .input_count = 2, .output_count = 1,
          .inputs = {FACTOR(C128), C128(3, 2, 3, 3)}, .tolerance = 1e-6);
  }
}

HR_TEST(systems_of_factors) {
  need_lapack();
  const operand pivots = {.dtype = HR_DTYPE_I32, .rank = 2, .dims = {2, 3}, .values = {3, 2, 3, 2, 3, 3}};
  for (int64_t mode = 0; mode < 3; ++mode) {
    CHECK(.op = HR_OP_LU_SOLVE, INTS(mode), .input_count = 3, .output_count = 1,
          .inputs = {FACTOR(F64), pivots, F64(3, 2, 2, 3)}, .tolerance = 1e-6);
    CHECK(.op = HR_OP_LU_SOLVE, INTS(mode), .input_count = 3, .output_count = 1,
          .inputs = {FACTOR(C128), pivots, C128(3, 2, 2, 3)}, .tolerance = 1e-6);
  }
  for (int64_t is_upper = 0; is_upper < 2; ++is_upper) {
    CHECK(.op = HR_OP_CHOLESKY_SOLVE, INTS(is_upper), .input_count = 2, .output_count = 1,
          .inputs = {F64(3, 2, 2, 3), FACTOR(F64)}, .tolerance = 1e-6);
    CHECK(.op = HR_OP_CHOLESKY_INVERSE, INTS(is_upper), .input_count = 1, .output_count = 2, .extra = 2,
          .inputs = {FACTOR(F64)}, .tolerance = 1e-5);
  }
}

/* Blocks of one row and of two; of complex Hermitian matrices, whose blocks of two need real diagonals, of one. */
HR_TEST(systems_of_symmetric_factors) {
  need_lapack();
  const operand pivots = {.dtype = HR_DTYPE_I32, .rank = 2, .dims = {2, 3}, .values = {1, -3, -3, 2, 2, 3}};
  const operand single = {.dtype = HR_DTYPE_I32, .rank = 2, .dims = {2, 3}, .values = {1, 3, 3, 2, 2, 3}};
  operand real = FACTOR(F64), complex = FACTOR(C128);
  real.is_constant = complex.is_constant = true;
  for (int64_t is_hermitian = 0; is_hermitian < 2; ++is_hermitian) {
    CHECK(.op = HR_OP_LDL_SOLVE, INTS(is_hermitian), .input_count = 3, .output_count = 1,
          .inputs = {real, pivots, F64(3, 2, 2, 3)}, .tolerance = 1e-6);
    CHECK(.op = HR_OP_LDL_SOLVE, INTS(is_hermitian), .input_count = 3, .output_count = 1,
          .inputs = {complex, is_hermitian ? single : pivots, C128(3, 2, 2, 3)}, .tolerance = 1e-6);
  }
}

/* As many reflectors as columns and rows, and fewer; only with the factors of LAPACK's are they orthogonal. */
HR_TEST(products_of_reflectors) {
  need_lapack();
  CHECK(.op = HR_OP_REFLECTORS, .input_count = 2, .output_count = 1, .inputs = {F64(3, 2, 3, 4), F64(2, 2, 3)});
  CHECK(.op = HR_OP_REFLECTORS, .input_count = 2, .output_count = 1, .inputs = {F64(3, 2, 3, 4), F64(2, 2, 1)});
  CHECK(.op = HR_OP_REFLECTORS, .input_count = 2, .output_count = 1, .inputs = {F64(2, 3, 3), F64(1, 2)});
  CHECK(.op = HR_OP_REFLECTORS, .input_count = 2, .output_count = 1, .inputs = {C128(2, 3, 4), C128(1, 3)});
}

/* More equations than unknowns, as many, and fewer; by each of LAPACK's methods. */
HR_TEST(least_squares) {
  need_lapack();
  for (int64_t method = 0; method < 4; ++method) {
    const hr_scalar bound = hr_scalar_f64(1e-12);
    CHECK_WITH(bound, .op = HR_OP_LEAST_SQUARES, INTS(method), .input_count = 2, .output_count = 1,
               .inputs = {F64(3, 2, 2, 4), F64(3, 2, 2, 4)}, .kept = 2, .of = 4, .tolerance = 1e-5);
    CHECK_WITH(bound, .op = HR_OP_LEAST_SQUARES, INTS(method), .input_count = 2, .output_count = 1,
               .inputs = {FACTOR(F64), F64(3, 2, 2, 3)}, .tolerance = 1e-4);
    CHECK_WITH(bound, .op = HR_OP_LEAST_SQUARES, INTS(method), .input_count = 2, .output_count = 1,
               .inputs = {F64(3, 2, 4, 2), F64(3, 2, 2, 2)}, .tolerance = 1e-5);
    CHECK_WITH(bound, .op = HR_OP_LEAST_SQUARES, INTS(method), .input_count = 2, .output_count = 1,
               .inputs = {C128(2, 2, 3), C128(2, 1, 3)}, .kept = 4, .of = 6, .tolerance = 1e-5);
  }
}

HR_TEST(exponentials_of_matrices) {
  need_lapack();
  CHECK(.op = HR_OP_MATRIX_EXP, .input_count = 1, .output_count = 1, .inputs = {F64(3, 2, 3, 3)});
  CHECK(.op = HR_OP_MATRIX_EXP, .input_count = 1, .output_count = 1, .inputs = {C128(2, 3, 3)});
}
