/* attention_cases.h: attention run by a provider against its lowering, evaluated element by element in f64 (in f32 if
 * random numbers or NaN are compared).
 *
 * Each op_case is one forward and one backward node on tensors of every layout. NaN surround the inputs' views, a byte
 * pattern the outputs' views and the workspace. The gradient gets y and the log-sum-exp of the reference, so that the
 * two are tested separately. A test supplies run_call.
 */
#ifndef HEADRACE_TESTS_ATTENTION_CASES_H_
#define HEADRACE_TESTS_ATTENTION_CASES_H_

#include "core/ir/dtype.h"
#include "lower_testing.h"
#include "providers/provider.h"

enum { RANK = 4, CANARY = 0xA5, ALIGNMENT = 64, BUFFERS = 11, FORWARD_ARGS = 6, BACKWARD_ARGS = 11 };

/* Elements on each side of a view; odd, so alignment is poor, unless a test wants it better. */
static int64_t guard = 19;

/* The tensors of a op_case, in order of both nodes' operands. */
typedef enum role { DY, Q, K, V, MASK, Y, LSE, DQ, DK, DV, ROLES } role;

typedef enum mask_kind {
  NO_MASK,
  FLAGS,            /* [H, L, S] */
  FLAGS_OF_KEYS,    /* [B, 1, 1, S], some batches see nothing */
  FLAGS_OF_QUERIES, /* [L, 1]: a query sees all or nothing */
  ADDED,            /* [L, S] with -infinity in places */
  ADDED_OF_ALL      /* [B, H, L, S] */
} mask_kind;

typedef enum layout_kind { DENSE, HEADS_INSIDE, SPREAD_COLUMNS, TRANSPOSED } layout_kind;

typedef struct problem {
  int64_t batches, heads, queries, keys, width, v_width;
  int causal;
  mask_kind mask;
  layout_kind layout;
  double dropout, scale, hidden; /* hidden: 0: none */
} problem;

typedef struct tensor {
  hr_dtype dtype;
  int rank;
  int64_t dims[RANK], strides[RANK], offset, length;
  unsigned char *bytes;
  double *values; /* row-major: contents of an input, or the expected result */
} tensor;

typedef struct op_case {
  problem of;
  tensor tensors[ROLES];
} op_case;

static uint64_t random_state = 1;

static double random_number(void) { /* in [-1, 1) */
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (double)(int32_t)(random_state >> 32) / 2147483648.0;
}

/* ---- elements ---- */

static double read_as(hr_dtype dtype, const void *bytes, int64_t at) {
  switch (dtype) {
    case HR_DTYPE_BOOL:
      return ((const uint8_t *)bytes)[at];
    case HR_DTYPE_F16:
      return hr_f16_to_f32(((const uint16_t *)bytes)[at]);
    case HR_DTYPE_BF16:
      return hr_bf16_to_f32(((const uint16_t *)bytes)[at]);
    case HR_DTYPE_F64:
      return ((const double *)bytes)[at];
    default:
      return ((const float *)bytes)[at];
  }
}

static void write_as(hr_dtype dtype, void *bytes, int64_t at, double value) {
  switch (dtype) {
    case HR_DTYPE_BOOL:
      ((uint8_t *)bytes)[at] = value != 0;
      return;
    case HR_DTYPE_F16:
      ((uint16_t *)bytes)[at] = hr_f32_to_f16((float)value);
      return;
    case HR_DTYPE_BF16:
      ((uint16_t *)bytes)[at] = hr_f32_to_bf16((float)value);
      return;
    case HR_DTYPE_F64:
      ((double *)bytes)[at] = value;
      return;
    default:
      ((float *)bytes)[at] = (float)value;
  }
}

static int64_t count_of(const tensor *t) {
  int64_t count = 1;
  for (int d = 0; d < t->rank; ++d) {
    count *= t->dims[d];
  }
  return count;
}

static int64_t place_of(const tensor *t, int64_t i) {
  int64_t at = t->offset;
  for (int d = t->rank - 1; d >= 0; --d) {
    at += i % t->dims[d] * t->strides[d];
    i /= t->dims[d];
  }
  return at;
}

/* ---- tensors ---- */

/* Strides by the order in which dims step, the last of `order` the fastest. */
static void lay_out(tensor *t, const int *order, int64_t step) {
  for (int i = t->rank - 1; i >= 0; --i) {
    t->strides[order[i]] = step;
    step *= t->dims[order[i]];
  }
}

static void make_tensor(tensor *t, hr_dtype dtype, int rank, const int64_t *dims, layout_kind layout) {
  static const int dense[] = {0, 1, 2, 3}, inside[] = {0, 2, 1, 3}, transposed[] = {0, 1, 3, 2};
  *t = (tensor){.dtype = dtype, .rank = rank};
  memcpy(t->dims, dims, (size_t)rank * sizeof *dims);
  bool is_plain = rank < 4 || layout == DENSE || layout == SPREAD_COLUMNS;
  lay_out(t, is_plain ? dense : layout == HEADS_INSIDE ? inside : transposed, layout == SPREAD_COLUMNS ? 2 : 1);
  t->offset = guard;
  t->length = 2 * guard + 1;
  for (int d = 0; d < rank; ++d) {
    t->length += (dims[d] - 1) * t->strides[d];
  }
  t->bytes = malloc((size_t)t->length * hr_dtype_size(dtype));
  t->values = calloc((size_t)count_of(t), sizeof *t->values);
  HR_ASSERT(t->bytes != NULL && t->values != NULL);
  memset(t->bytes, CANARY, (size_t)t->length * hr_dtype_size(dtype));
}

/* Writes an input's values, rounded to its dtype, among NaN. */
static void write_input(tensor *t) {
  for (int64_t i = 0; i < t->length; ++i) {
    write_as(t->dtype, t->bytes, i, NAN);
  }
  for (int64_t i = 0; i < count_of(t); ++i) {
    write_as(t->dtype, t->bytes, place_of(t, i), t->values[i]);
    t->values[i] = read_as(t->dtype, t->bytes, place_of(t, i));
  }
}

static void make_input(tensor *t, hr_dtype dtype, int64_t b, int64_t h, int64_t rows, int64_t columns,
                       layout_kind layout) {
  make_tensor(t, dtype, 4, (int64_t[]){b, h, rows, columns}, layout);
  for (int64_t i = 0; i < count_of(t); ++i) {
    t->values[i] = random_number();
  }
  write_input(t);
}

static void make_mask(op_case *t, hr_dtype dtype) {
  const problem *p = &t->of;
  tensor *mask = &t->tensors[MASK];
  bool is_flags = p->mask < ADDED;
  int64_t all[4] = {p->batches, p->heads, p->queries, p->keys}, of_keys[4] = {p->batches, 1, 1, p->keys};
  switch (p->mask) {
    case NO_MASK:
      return;
    case FLAGS:
      make_tensor(mask, HR_DTYPE_BOOL, 3, all + 1, DENSE);
      break;
    case FLAGS_OF_KEYS:
      make_tensor(mask, HR_DTYPE_BOOL, 4, of_keys, DENSE);
      break;
    case FLAGS_OF_QUERIES:
      make_tensor(mask, HR_DTYPE_BOOL, 2, (int64_t[]){p->queries, 1}, SPREAD_COLUMNS);
      break;
    case ADDED:
      make_tensor(mask, dtype, 2, all + 2, SPREAD_COLUMNS);
      break;
    case ADDED_OF_ALL:
      make_tensor(mask, dtype, 4, all, HEADS_INSIDE);
      break;
  }
  int64_t columns = mask->dims[mask->rank - 1];
  for (int64_t i = 0; i < count_of(mask); ++i) {
    int64_t row = i / columns;
    bool is_hidden = row % 5 == 3 || (row % 7 == 1 && i % columns < 70) || random_number() > 0.6;
    mask->values[i] = is_flags ? !is_hidden : is_hidden ? -INFINITY : random_number();
  }
  write_input(mask);
}

/* ---- the reference ---- */

/* The tensor in the reference's dtype (bool is unchanged), dense. */
static hr_operand reference_tensor(bench *b, hr_dtype dtype, const tensor *t) {
  if (t->bytes == NULL) {
    return ABSENT;
  }
  dtype = t->dtype == HR_DTYPE_BOOL ? HR_DTYPE_BOOL : dtype;
  size_t bytes = (size_t)count_of(t) * hr_dtype_size(dtype);
  void *data = malloc(bytes);
  HR_ASSERT_NOT_NULL(data);
  for (int64_t i = 0; i < count_of(t); ++i) {
    write_as(dtype, data, i, t->values[i]);
  }
  return bench_tensor(b, dtype, data, bytes, t->rank, t->dims);
}

static hr_scalar scalars_of(const problem *p, int i) {
  double second = p->hidden != 0 ? p->hidden : p->dropout;
  return i == 0 ? F64(p->scale) : i == 1 ? F64(second) : i == 2 ? I64(77) : I64(5);
}

static int scalar_count(const problem *p) {
  return p->dropout > 0 ? 4 : p->hidden != 0 ? 2 : 1;
}

static void take_result(const bench *b, hr_operand x, tensor *t) {
  for (int64_t i = 0; i < count_of(t); ++i) {
    t->values[i] = read_as(x.dtype, b->memory[x.index], i);
  }
}

static void evaluate(op_case *t, hr_dtype dtype) {
  bench b = bench_begin();
  hr_operand x[ROLES];
  hr_scalar scalars[4];
  for (int i = 0; i < 4; ++i) {
    scalars[i] = scalars_of(&t->of, i);
  }
  for (int r = 0; r < ROLES; ++r) {
    x[r] = reference_tensor(&b, dtype, &t->tensors[r]);
  }
  bench_record(&b, HR_OP_ATTENTION, INPUTS(x[Q], x[K], x[V], x[MASK]), OUTPUTS(x[Y], x[LSE]), INTS(t->of.causal),
               scalar_count(&t->of), scalars);
  bench_record(&b, HR_OP_ATTENTION_BACKWARD, INPUTS(x[DY], x[Q], x[K], x[V], x[MASK], x[Y], x[LSE]),
               OUTPUTS(x[DQ], x[DK], x[DV], ABSENT), INTS(t->of.causal), scalar_count(&t->of), scalars);
  void *memory[BUFFERS];
  int count = b.program.buffer_count;
  memcpy(memory, b.memory, sizeof memory);
  HR_ASSERT_OK(bench_run(&b));
  for (int r = Y; r < ROLES; ++r) {
    take_result(&b, x[r], &t->tensors[r]);
  }
  for (int i = 0; i < count; ++i) {
    free(memory[i]);
  }
}

/* ---- the provider ---- */

static hr_operand operand_of(hr_program *program, const tensor *t) {
  if (t->bytes == NULL) {
    return ABSENT;
  }
  uint32_t buffer = hr_program_add_buffer(program, (size_t)t->length * hr_dtype_size(t->dtype), false, false);
  return (hr_operand){.kind = HR_OPERAND_VALUE,
                      .dtype = t->dtype,
                      .index = buffer,
                      .rank = t->rank,
                      .offset = t->offset,
                      .dims = t->dims,
                      .strides = t->strides,
                      .fill = HR_NO_SCALAR};
}

typedef struct call {
  hr_program program;
  hr_prepared *prepared;
  size_t workspace_bytes;
  void *args[BACKWARD_ARGS + 4];
  hr_scalar scalars[4];
} call;

static void make_call(op_case *t, bool is_backward, call *c) {
  static const role forward[] = {Q, K, V, MASK, Y, LSE}, backward[] = {DY, Q, K, V, MASK, Y, LSE, DQ, DK, DV};
  const role *roles = is_backward ? backward : forward;
  int inputs = is_backward ? 7 : 4, count = is_backward ? 10 : FORWARD_ARGS;
  hr_operand operands[BACKWARD_ARGS];
  memset(c, 0, sizeof *c);
  hr_program_init(&c->program);
  for (int i = 0; i < count; ++i) {
    operands[i] = operand_of(&c->program, &t->tensors[roles[i]]);
    c->args[i] = t->tensors[roles[i]].bytes;
  }
  hr_node node = {.op = is_backward ? HR_OP_ATTENTION_BACKWARD : HR_OP_ATTENTION,
                  .input_count = inputs,
                  .inputs = operands,
                  .output_count = count - inputs,
                  .outputs = operands + inputs,
                  .int_count = 1,
                  .ints = (int64_t[]){t->of.causal},
                  .scalar_count = scalar_count(&t->of)};
  for (int i = 0; i < 4; ++i) {
    hr_program_add_argument(&c->program, scalars_of(&t->of, i).dtype);
    c->scalars[i] = scalars_of(&t->of, i);
    c->args[count + i] = &c->scalars[i];
  }
  c->program.bound_count = c->program.buffer_count;
  HR_ASSERT(hr_program_append(&c->program, &node));
  HR_ASSERT_OK(hr_program_verify(&c->program));
}

static void run_call(call *c);

/* ---- cases ---- */

static op_case make_case(const problem *p, hr_dtype dtype) {
  op_case t = {.of = *p};
  int64_t b = p->batches, h = p->heads;
  make_input(&t.tensors[DY], dtype, b, h, p->queries, p->v_width, p->layout);
  make_input(&t.tensors[Q], dtype, b, h, p->queries, p->width, p->layout);
  make_input(&t.tensors[K], dtype, b, h, p->keys, p->width, p->layout);
  make_input(&t.tensors[V], dtype, b, h, p->keys, p->v_width, p->layout);
  make_mask(&t, dtype);
  make_tensor(&t.tensors[Y], dtype, 4, (int64_t[]){b, h, p->queries, p->v_width}, p->layout);
  make_tensor(&t.tensors[LSE], HR_DTYPE_F32, 3, (int64_t[]){b, h, p->queries}, DENSE);
  make_tensor(&t.tensors[DQ], dtype, 4, t.tensors[Q].dims, p->layout);
  make_tensor(&t.tensors[DK], dtype, 4, t.tensors[K].dims, p->layout);
  make_tensor(&t.tensors[DV], dtype, 4, t.tensors[V].dims, p->layout);
  return t;
}

static void free_case(op_case *t) {
  for (int r = 0; r < ROLES; ++r) {
    free(t->tensors[r].bytes);
    free(t->tensors[r].values);
  }
}

/* Checks that expected NaN and infinities agree, numbers are within `tolerance` of the largest (of 0.1 if gradients
 * cancel), and canaries are unchanged. */
static void check_result(const op_case *t, role r, double tolerance) {
  static const char *const names[] = {"dy", "q", "k", "v", "mask", "y", "lse", "dq", "dk", "dv"};
  const tensor *x = &t->tensors[r];
  const problem *p = &t->of;
  double largest = 0;
  int64_t written = 0, size = (int64_t)hr_dtype_size(x->dtype);
  for (int64_t i = 0; i < count_of(x); ++i) {
    largest = isfinite(x->values[i]) ? fmax(largest, fabs(x->values[i])) : largest;
  }
  for (int64_t i = 0; i < count_of(x); ++i) {
    double actual = read_as(x->dtype, x->bytes, place_of(x, i)), expected = x->values[i];
    bool is_same = isfinite(expected) ? fabs(actual - expected) <= tolerance * (0.1 + largest)
                                      : actual == expected || (isnan(actual) && isnan(expected));
    if (!is_same) {
      HR_FAIL("%s[%lld] of b %lld h %lld l %lld s %lld e %lld v %lld causal %d mask %d layout %d: %.9g, expected %.9g",
              names[r], (long long)i, (long long)p->batches, (long long)p->heads, (long long)p->queries,
              (long long)p->keys, (long long)p->width, (long long)p->v_width, p->causal, p->mask, p->layout, actual,
              expected);
    }
  }
  for (int64_t i = 0; i < x->length * size; ++i) {
    written += x->bytes[i] != CANARY;
  }
  HR_ASSERT(written <= count_of(x) * size);
  for (int64_t i = 0; i < guard * size; ++i) {
    HR_ASSERT(x->bytes[i] == CANARY && x->bytes[x->length * size - 1 - i] == CANARY);
  }
}

static double tolerance_of(hr_dtype dtype) {
  return dtype == HR_DTYPE_F32 ? 3e-6 : dtype == HR_DTYPE_F16 ? 2e-3 : 1.2e-2;
}

static void check_in(const problem *p, hr_dtype dtype, hr_dtype reference) {
  op_case t = make_case(p, dtype);
  call c;
  evaluate(&t, reference);
  make_call(&t, false, &c);
  run_call(&c);
  check_result(&t, Y, tolerance_of(dtype));
  check_result(&t, LSE, tolerance_of(HR_DTYPE_F32));
  write_input(&t.tensors[Y]), write_input(&t.tensors[LSE]);
  make_call(&t, true, &c);
  run_call(&c);
  for (role r = DQ; r <= DV; ++r) {
    check_result(&t, r, 2 * tolerance_of(dtype));
  }
  free_case(&t);
}

static void check(problem p) {
  p.scale = p.scale != 0 ? p.scale : 0.4;
  check_in(&p, HR_DTYPE_F32, p.dropout > 0 ? HR_DTYPE_F32 : HR_DTYPE_F64);
}

/* ---- NaN and infinities ---- */

typedef void (*spoil_fn)(op_case *t);

static void set(op_case *t, role r, int64_t row, int64_t column, double value) {
  tensor *x = &t->tensors[r];
  x->values[row * x->dims[x->rank - 1] + column] = value;
  write_input(x);
}
static void spoil_query(op_case *t) {
  set(t, Q, 3, 1, NAN);
}
static void spoil_key(op_case *t) {
  set(t, K, 66, 0, NAN);
}
static void spoil_value(op_case *t) {
  set(t, V, 67, 1, INFINITY);
}
static void spoil_with_infinity(op_case *t) {
  set(t, Q, 5, 0, INFINITY);
}
static void spoil_gradient(op_case *t) {
  set(t, DY, 2, 1, NAN);
}
/* Without a mask a row whose scores are all -infinity is NaN. */
static void spoil_whole_row(op_case *t) {
  for (int64_t k = 0; k < t->of.keys; ++k) {
    t->tensors[K].values[k * t->of.width] = 1;
  }
  set(t, K, 0, 0, 1);
  set(t, Q, 7, 0, -INFINITY);
}

/* Attention whose operands hold NaN or infinities somewhere. */
static inline void check_spoiled(problem p) {
  static const spoil_fn spoils[] = {spoil_query,         spoil_key,      spoil_value,
                                    spoil_with_infinity, spoil_gradient, spoil_whole_row};
  for (size_t i = 0; i < sizeof spoils / sizeof *spoils; ++i) {
    if (!hr_test_takes((int64_t)i)) {
      continue;
    }
    op_case t = make_case(&p, HR_DTYPE_F32);
    call c;
    spoils[i](&t);
    evaluate(&t, HR_DTYPE_F32);
    make_call(&t, false, &c);
    run_call(&c);
    check_result(&t, Y, 5e-6), check_result(&t, LSE, 5e-6);
    write_input(&t.tensors[Y]), write_input(&t.tensors[LSE]);
    make_call(&t, true, &c);
    run_call(&c);
    for (role r = DQ; r <= DV; ++r) {
      check_result(&t, r, 1e-5);
    }
    free_case(&t);
  }
}

#endif
