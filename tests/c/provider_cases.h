/* provider_cases.h: runs nodes built by hand through a provider's supports, prepare and run, and compares them with
 * plain loops in double precision.
 *
 * Every element of a buffer outside of its view is a canary: NaN around inputs, which would show in the result, and a
 * byte pattern around outputs and the workspace, which must be unchanged. Each prepared object runs twice, on other
 * addresses and other numbers. A failure prints its program, which `hr_program_parse` reads.
 */
#ifndef HEADRACE_TESTS_PROVIDER_CASES_H_
#define HEADRACE_TESTS_PROVIDER_CASES_H_

#include "hr_test.h"
#include "plain_loops.h"
#include "providers/provider.h"

enum { OPERANDS = 4, GUARD = 19, CANARY = 0xA5 }; /* GUARD: elements on each side; odd, so alignment is poor */

/* ---- tensors ---- */

static uint64_t random_state;

static inline double random_number(void) { /* in [-1, 1) */
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (double)(int32_t)(random_state >> 32) / 2147483648.0;
}

static inline int random_below(int count) {
  return (int)((random_number() + 1) / 2 * count);
}

/* [-1, 1) becomes [-200, 200), wrapped; NaN becomes a number that would show. */
static inline void write_integer(const tensor *t, int64_t at, double value) {
  int64_t integer = isnan(value) ? 12345 : (int64_t)(value * 200);
  size_t size = hr_dtype_size(t->dtype);
  memcpy(t->bytes + (size_t)at * size, &integer, size);
}

static inline void write_element(const tensor *t, int64_t at, double value) {
  uint16_t *half = (uint16_t *)(void *)t->bytes + at;
  if (hr_dtype_is_integer(t->dtype)) {
    write_integer(t, at, value);
  } else if (t->dtype == HR_DTYPE_F32) {
    ((float *)(void *)t->bytes)[at] = (float)value;
  } else if (t->dtype == HR_DTYPE_F64) {
    ((double *)(void *)t->bytes)[at] = value;
  } else {
    *half = t->dtype == HR_DTYPE_BF16 ? hr_f32_to_bf16((float)value) : hr_f32_to_f16((float)value);
  }
}

/* The offset and length that the view needs in the buffer. */
static inline void tensor_place(tensor *t, int64_t guard) {
  int64_t low = 0, high = 0;
  for (int d = 0; d < t->rank; ++d) {
    int64_t reach = (t->dims[d] - 1) * t->strides[d];
    low += reach < 0 ? reach : 0, high += reach > 0 ? reach : 0;
  }
  t->is_present = true;
  t->offset = guard - low;
  t->length = high - low + 1 + 2 * guard;
}

/* Element number i, row-major. */
static inline void tensor_put(const tensor *t, int64_t i, double value) {
  write_element(t, tensor_at(t, i), value);
}

static inline void tensor_fill_input(tensor *t) {
  for (int64_t i = 0; i < t->length; ++i) {
    write_element(t, i, NAN);
  }
  int64_t count = tensor_count(t);
  for (int64_t i = 0; i < count; ++i) {
    write_element(t, tensor_at(t, i), random_number());
  }
}

/* ---- providers ---- */

/* Opens the provider, once per process, and resets the random numbers; skips the test if the provider is unavailable.
 */
static inline void cases_begin(const hr_provider *provider) {
  enum { PROVIDERS = 8, REASON = 512 };
  static const hr_provider *opened[PROVIDERS];
  static char reasons[PROVIDERS][REASON];
  int i = 0;
  while (opened[i] != NULL && opened[i] != provider) {
    ++i;
  }
  HR_ASSERT(i < PROVIDERS - 1);
  if (opened[i] == NULL) {
    hr_status status = hr__provider_open(provider);
    snprintf(reasons[i], REASON, "%s", status != HR_OK ? hr_status_message(status) : "");
    hr_status_ignore(status);
    opened[i] = provider;
  }
  random_state = 7;
  if (reasons[i][0] != 0) {
    HR_SKIP(reasons[i]);
  }
}

/* ---- programs of one node ---- */

/* The memory of a provider's operands, if it is not the host's. */
typedef struct op_case_memory {
  void *ctx, *queue;
  void *(*allocate)(void *ctx, size_t bytes);
  void (*release)(void *ctx, void *address, size_t bytes);
  void (*copy_in)(void *ctx, void *to, const void *host, size_t bytes);
  void (*copy_out)(void *ctx, void *host, const void *from, size_t bytes);
} op_case_memory;

typedef struct op_case {
  const hr_provider *provider;
  const op_case_memory *memory; /* NULL: the host's */
  int guard;                    /* elements around each view; 0: GUARD */
  hr_op op;
  int input_count; /* tensors[input_count] is the output */
  tensor tensors[OPERANDS];
  int int_count;
  int64_t ints[14];
  hr_program program;
  hr_prepared *prepared;
  size_t workspace_bytes;
  bool writes_weights; /* after the node, the program writes operand 1 */
  int algorithm;       /* the provider's algorithms, counted from 1; 0: prepare's own choice */
} op_case;

static inline tensor *op_case_output(op_case *t) {
  return &t->tensors[t->input_count];
}

static inline void op_case_node(op_case *t) {
  hr_operand operands[OPERANDS] = {{0}};
  hr_program_init(&t->program);
  for (int i = 0; i <= t->input_count; ++i) {
    tensor *x = &t->tensors[i];
    if (x->is_present) {
      tensor_place(x, t->guard != 0 ? t->guard : GUARD);
      uint32_t buffer =
          hr_program_add_buffer(&t->program, (size_t)x->length * hr_dtype_size(x->dtype), false, i == t->input_count);
      operands[i] = (hr_operand){.kind = HR_OPERAND_VALUE,
                                 .dtype = x->dtype,
                                 .index = buffer,
                                 .rank = x->rank,
                                 .offset = x->offset,
                                 .dims = x->dims,
                                 .strides = x->strides,
                                 .fill = HR_NO_SCALAR};
    }
  }
  t->program.bound_count = t->program.buffer_count;
  hr_node node = {.op = t->op,
                  .input_count = t->input_count,
                  .inputs = operands,
                  .output_count = 1,
                  .outputs = operands + t->input_count,
                  .int_count = t->int_count,
                  .ints = t->ints};
  HR_ASSERT(hr_program_append(&t->program, &node));
  hr_node write = {.op = HR_OP_NEG,
                   .is_loop = true,
                   .input_count = 1,
                   .inputs = operands + 1,
                   .output_count = 1,
                   .outputs = operands + 1};
  HR_ASSERT(!t->writes_weights || hr_program_append(&t->program, &write));
  HR_ASSERT_OK(hr_program_verify(&t->program));
}

static inline bool op_case_is_supported(const op_case *t) {
  bool is = t->provider->supports(&t->program, &t->program.nodes[0]);
  HR_ASSERT(!is || t->provider->runs == NULL || t->provider->runs(t->op));
  return is;
}

__attribute__((noreturn, format(printf, 2, 3))) static inline void op_case_fail(const op_case *t, const char *format,
                                                                                ...) {
  char what[512];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  hr_text text = {0};
  HR_ASSERT_OK(hr_program_print(&t->program, &text));
  HR_FAIL("%s: %s\n%s", t->provider->name, what, text.data);
}

/* Prepares the node from a copy that is gone afterwards, if the provider may not refer to it. */
static inline hr_status prepare_apart(const hr_provider *provider, const hr_program *program, const hr_node *node,
                                      int algorithm, void *queue, hr_prepared **out_prepared,
                                      size_t *out_workspace_bytes) {
  if (!provider->is_apart) {
    return provider->prepare(program, node, algorithm, queue, out_prepared, out_workspace_bytes);
  }
  size_t bytes = sizeof *node + hr_node_copy_bytes(node);
  hr_node *copy = malloc(bytes);
  HR_ASSERT_NOT_NULL(copy);
  hr_node_copy_to(node, copy + 1, copy);
  hr_status status = provider->prepare(program, copy, algorithm, queue, out_prepared, out_workspace_bytes);
  memset(copy, 0x5a, bytes);
  free(copy);
  return status;
}

static inline hr_status op_case_try_prepare(op_case *t) {
  void *queue = t->memory != NULL ? t->memory->queue : NULL;
  return prepare_apart(t->provider, &t->program, &t->program.nodes[0], t->algorithm + HR_ALGORITHM_OWN, queue,
                       &t->prepared, &t->workspace_bytes);
}

static inline void op_case_prepare(op_case *t) {
  hr_status status = op_case_try_prepare(t);
  if (status != HR_OK) {
    char message[256];
    snprintf(message, sizeof message, "%s", hr_status_message(status));
    hr_status_ignore(status);
    op_case_fail(t, "prepare: %s", message);
  }
}

/* New buffers, inputs with new numbers. */
static inline void op_case_allocate(op_case *t) {
  for (int i = 0; i <= t->input_count; ++i) {
    tensor *x = &t->tensors[i];
    if (x->is_present) {
      size_t bytes = (size_t)x->length * hr_dtype_size(x->dtype);
      HR_ASSERT_EQ(posix_memalign((void **)&x->bytes, 64, bytes), 0); /* as a driver's blocks are */
      memset(x->bytes, CANARY, bytes);
      if (i < t->input_count) {
        tensor_fill_input(x);
      }
    }
  }
}

static inline void op_case_free(op_case *t) {
  for (int i = 0; i <= t->input_count; ++i) {
    free(t->tensors[i].bytes);
    t->tensors[i].bytes = NULL;
  }
}

/* Makes and prepares the node, and its buffers. */
static inline void op_case_begin(op_case *t) {
  op_case_node(t);
  op_case_prepare(t);
  op_case_allocate(t);
}

/* The tensors' bytes in the provider's memory, before and after a run. */
static inline void op_case_move(const op_case *t, void *args[OPERANDS], bool is_after) {
  const op_case_memory *m = t->memory;
  for (int i = 0; i <= t->input_count; ++i) {
    const tensor *x = &t->tensors[i];
    size_t bytes = (size_t)x->length * hr_dtype_size(x->dtype);
    if (!x->is_present || m == NULL) {
      args[i] = x->bytes;
    } else if (is_after) {
      m->copy_out(m->ctx, x->bytes, args[i], bytes);
      m->release(m->ctx, args[i], bytes);
    } else {
      args[i] = m->allocate(m->ctx, bytes);
      m->copy_in(m->ctx, args[i], x->bytes, bytes);
    }
  }
}

static inline void op_case_run(op_case *t) {
  enum { ALIGNMENT = 64 };
  const op_case_memory *m = t->memory;
  void *args[OPERANDS];
  size_t bytes = (t->workspace_bytes + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  unsigned char *host = aligned_alloc(ALIGNMENT, bytes), *workspace = host;
  HR_ASSERT_NOT_NULL(host);
  memset(host, CANARY, bytes);
  if (m != NULL) {
    workspace = m->allocate(m->ctx, bytes);
    m->copy_in(m->ctx, workspace, host, bytes);
  }
  op_case_move(t, args, false);
  HR_ASSERT_OK(t->provider->run(t->prepared, args, workspace, m != NULL ? m->queue : NULL));
  op_case_move(t, args, true);
  if (m != NULL) {
    m->copy_out(m->ctx, host, workspace, bytes);
    m->release(m->ctx, workspace, bytes);
  }
  for (size_t i = t->workspace_bytes; i < bytes; ++i) {
    if (host[i] != CANARY) {
      op_case_fail(t, "byte %zu of %zu of workspace was written", i, t->workspace_bytes);
    }
  }
  free(host);
}

/* Releases the prepared operation and the node. */
static inline void op_case_end(op_case *t) {
  t->provider->release(t->prepared);
  hr_program_fini(&t->program);
}

/* Runs the prepared and allocated node, frees it, and returns the output's float32 elements; the caller frees them. */
static inline float *op_case_run_once(op_case *t) {
  op_case_run(t);
  tensor *out = op_case_output(t);
  float *values = malloc((size_t)tensor_count(out) * sizeof *values);
  HR_ASSERT_NOT_NULL(values);
  for (int64_t i = 0; i < tensor_count(out); ++i) {
    values[i] = (float)read_element(out, tensor_at(out, i));
  }
  op_case_free(t);
  op_case_end(t);
  return values;
}

/* ---- the expected result ---- */

static inline conv_operands conv_operands_of(const op_case *t) {
  return hr__conv_operands(t->op, t->input_count);
}

static inline void evaluate(const op_case *t, expected *e) {
  hr__plain_loops(t->op, t->tensors, t->input_count, t->ints, e);
}

/* ---- checks ---- */

/* The factor by which a provider's rounding of factors may exceed f32's. */
static double op_case_rounding;

/* A unit of the dtype's last place for the result, and rounding of f32 sums for its terms. */
static inline double tolerance(hr_dtype dtype, double value, double size) {
  double unit = dtype == HR_DTYPE_BF16 ? 1.0 / 128 : dtype == HR_DTYPE_F16 ? 1.0 / 1024 : 0;
  double sums = dtype == HR_DTYPE_F64 ? 1e-14 : 2e-6;
  return unit * fabs(value) + (sums + op_case_rounding) * size + (dtype == HR_DTYPE_F16 ? 1e-7 : 0);
}

static inline void check_canaries(const op_case *t, const tensor *out) {
  size_t size = hr_dtype_size(out->dtype);
  unsigned char *is_seen = calloc(1, (size_t)out->length);
  HR_ASSERT_NOT_NULL(is_seen);
  for (int64_t i = 0; i < tensor_count(out); ++i) {
    HR_ASSERT(!is_seen[tensor_at(out, i)]);
    is_seen[tensor_at(out, i)] = 1;
  }
  for (size_t i = 0; i < (size_t)out->length * size; ++i) {
    if (!is_seen[i / size] && out->bytes[i] != CANARY) {
      op_case_fail(t, "element %zu of the output's buffer, outside the view, was written", i / size);
    }
  }
  free(is_seen);
}

static inline void check_result(op_case *t) {
  const tensor *out = op_case_output(t);
  int64_t count = tensor_count(out);
  expected e = {calloc((size_t)count, sizeof(double)), calloc((size_t)count, sizeof(double))};
  HR_ASSERT(e.values != NULL && e.sizes != NULL);
  evaluate(t, &e);
  for (int64_t i = 0; i < count; ++i) {
    double actual = read_element(out, tensor_at(out, i)), error = fabs(actual - e.values[i]);
    if (hr_dtype_is_integer(out->dtype) ? fmod(error, ldexp(1, 8 * (int)hr_dtype_size(out->dtype))) != 0
                                        : !(error <= tolerance(out->dtype, e.values[i], e.sizes[i]))) {
      op_case_fail(t, "element %lld is %.9g, expected %.9g", (long long)i, actual, e.values[i]);
    }
  }
  check_canaries(t, out);
  free(e.values);
  free(e.sizes);
}

/* Prepares, runs twice and checks a finished node. */
static inline void op_case_check_node(op_case *t) {
  op_case_prepare(t);
  for (int run = 0; run < 2; ++run) {
    tensor first[OPERANDS];
    memcpy(first, t->tensors, sizeof first);
    op_case_allocate(t); /* while the first run's buffers are allocated: other addresses */
    op_case_run(t);
    check_result(t);
    for (int i = 0; run == 1 && i < OPERANDS; ++i) {
      free(first[i].bytes);
    }
  }
  op_case_free(t);
  op_case_end(t);
}

/* True if the provider supports the node, which is neither prepared nor run. */
static inline bool op_case_is_taken(op_case *t) {
  op_case_node(t);
  bool is_taken = op_case_is_supported(t);
  hr_program_fini(&t->program);
  return is_taken;
}

/* False if the provider does not support the node. */
static inline bool op_case_check(op_case *t) {
  op_case_node(t);
  if (!op_case_is_supported(t)) {
    hr_program_fini(&t->program);
    return false;
  }
  op_case_check_node(t);
  return true;
}

/* Checks the node with one of the provider's algorithms; false if it does not have it. */
static inline bool op_case_check_algorithm(op_case *t, int algorithm) {
  t->algorithm = algorithm;
  op_case_node(t);
  hr_status status = op_case_try_prepare(t);
  if (status != HR_OK) {
    HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_UNIMPLEMENTED);
    hr_status_free(status);
    hr_program_fini(&t->program);
    return false;
  }
  t->provider->release(t->prepared);
  op_case_check_node(t);
  return true;
}

static op_case *op_case_out_of_memory;

static inline hr_status op_case_prepare_and_release(void) {
  op_case_out_of_memory->prepared = NULL;
  HR_RETURN_IF_ERROR(op_case_try_prepare(op_case_out_of_memory));
  op_case_out_of_memory->provider->release(op_case_out_of_memory->prepared);
  return HR_OK;
}

/* Prepares the node with each of its allocations failing in turn; a node that was never prepared is released, too. */
static inline void op_case_check_memory(op_case *t) {
  op_case_node(t);
  op_case_out_of_memory = t;
  HR_TEST_OOM(op_case_prepare_and_release);
  hr_program_fini(&t->program);
  t->provider->release(NULL);
}

static inline void op_case_must_pass(op_case *t) {
  if (!op_case_check(t)) {
    op_case_node(t);
    op_case_fail(t, "not supported");
  }
}

/* ---- layouts ---- */

/* Every `step`-th element of memory with `room` more in each dim; order: dims from the outermost to the innermost. */
static inline void set_spread(tensor *t, const int *order, int64_t step, int64_t room) {
  int64_t stride = step;
  for (int i = t->rank - 1; i >= 0; --i) {
    int d = order != NULL ? order[i] : i;
    t->strides[d] = stride;
    stride *= t->dims[d] + room;
  }
}

static inline void set_dense(tensor *t, const int *order) {
  set_spread(t, order, 1, 0);
}

static inline void set_reversed(tensor *t) {
  set_dense(t, NULL);
  for (int d = 0; d < t->rank; ++d) {
    t->strides[d] = -t->strides[d];
  }
}

typedef enum matrix_layout {
  MATRIX_DENSE,
  MATRIX_TRANSPOSED,
  MATRIX_ROOM, /* a block of a larger matrix */
  MATRIX_TRANSPOSED_ROOM,
  MATRIX_STEPS, /* every third column */
  MATRIX_REVERSED,
  MATRIX_REVERSED_ROWS,
  MATRIX_BATCH_INSIDE,    /* [rows, batch.., columns]: heads of attention */
  MATRIX_BATCH_INNERMOST, /* [rows, columns, batch..] */
  MATRIX_OUTPUTS,         /* the layouts below share elements: inputs only */
  MATRIX_BROADCAST_BATCH = MATRIX_OUTPUTS,
  MATRIX_BROADCAST_ROWS,
  MATRIX_BROADCAST_COLUMNS,
  MATRIX_WINDOWS, /* each row starts one element after the one before */
  MATRIX_WINDOWS_BATCH,
  MATRIX_LAYOUTS
} matrix_layout;

static inline void set_matrix(tensor *t, matrix_layout layout) {
  int rank = t->rank, last = rank - 1, rows = rank - 2, order[RANK] = {0, 1, 2, 3, 4, 5};
  switch (layout) {
    case MATRIX_TRANSPOSED_ROOM:
    case MATRIX_TRANSPOSED:
      order[rows] = last, order[last] = rows;
      break;
    case MATRIX_BATCH_INSIDE:
      order[0] = rows;
      for (int d = 0; d < rank - 2; ++d) {
        order[d + 1] = d;
      }
      break;
    case MATRIX_BATCH_INNERMOST:
      for (int d = 0; d < rank; ++d) {
        order[d] = (d + rows) % rank;
      }
      break;
    default:
      break;
  }
  bool has_room = layout == MATRIX_ROOM || layout == MATRIX_TRANSPOSED_ROOM;
  set_spread(t, order, layout == MATRIX_STEPS ? 3 : 1, has_room ? 3 : 0);
  if (layout == MATRIX_REVERSED) {
    set_reversed(t);
  } else if (layout == MATRIX_REVERSED_ROWS) {
    t->strides[rows] = -t->strides[rows];
  } else if (layout == MATRIX_BROADCAST_BATCH) {
    for (int d = 0; d < rows; ++d) {
      t->strides[d] = 0;
    }
  } else if (layout == MATRIX_BROADCAST_ROWS) {
    t->strides[rows] = 0;
  } else if (layout == MATRIX_BROADCAST_COLUMNS) {
    t->strides[last] = 0;
  } else if (layout == MATRIX_WINDOWS) {
    t->strides[rows] = 1;
  } else if (layout == MATRIX_WINDOWS_BATCH) {
    for (int d = 0; d < rows; ++d) {
      t->strides[d] = 1 + d;
    }
  }
}

typedef enum bias_layout {
  BIAS_ABSENT,
  BIAS_NONE, /* an operand that is absent */
  BIAS_VECTOR,
  BIAS_ROW,      /* as many dims as out, 1 but for the last */
  BIAS_EXPANDED, /* out's dims, stride 0 but for the last */
  BIAS_ONE,      /* one element for all */
  BIAS_NUMBER,   /* rank 0 */
  BIAS_STEPS,    /* a vector with gaps */
  BIAS_CONSTANT, /* out's last dim with stride 0 */
  BIAS_COLUMN,   /* one for each row */
  BIAS_FULL,     /* one for each element */
  BIAS_LAYOUTS
} bias_layout;

static inline void set_bias(op_case *t, bias_layout layout) {
  const tensor *like = op_case_output(t);
  tensor out = *like, bias = {.is_present = layout > BIAS_NONE, .dtype = out.dtype, .rank = out.rank};
  int last = out.rank - 1;
  t->input_count = layout == BIAS_ABSENT ? 2 : 3;
  if (layout == BIAS_VECTOR || layout == BIAS_STEPS || layout == BIAS_CONSTANT || layout == BIAS_ONE) {
    bias.rank = 1;
    bias.dims[0] = layout == BIAS_ONE ? 1 : out.dims[last];
    bias.strides[0] = layout == BIAS_STEPS ? 2 : layout == BIAS_CONSTANT ? 0 : 1;
  } else if (layout == BIAS_NUMBER) {
    bias.rank = 0;
  } else {
    for (int d = 0; d < out.rank; ++d) {
      bool is_kept = layout == BIAS_FULL || layout == BIAS_EXPANDED || d == (layout == BIAS_COLUMN ? last - 1 : last);
      bias.dims[d] = is_kept ? out.dims[d] : 1;
    }
    set_dense(&bias, NULL);
    for (int d = 0; d < last && layout == BIAS_EXPANDED; ++d) {
      bias.strides[d] = 0;
    }
  }
  t->tensors[2] = bias;
  t->tensors[t->input_count] = out;
}

/* ---- matrix products ---- */

typedef struct product {
  int batch_rank;
  int64_t batch[2], rows, inner, columns;
} product;

static const product products[] = {
    {0, {0}, 1, 1, 1},     {0, {0}, 1, 7, 5},     {0, {0}, 5, 7, 1},      {0, {0}, 6, 1, 4},    {0, {0}, 1, 1, 9},
    {0, {0}, 9, 1, 1},     {0, {0}, 1, 40, 1},    {0, {0}, 17, 33, 20},   {1, {3}, 1, 37, 21},  {1, {4}, 5, 6, 1},
    {1, {1}, 5, 3, 4},     {1, {3}, 8, 1, 16},    {1, {2}, 12, 16, 1},    {2, {2, 3}, 4, 5, 6}, {2, {1, 3}, 1, 64, 32},
    {2, {3, 1}, 2, 3, 50}, {2, {2, 2}, 1, 20, 3}, {2, {2, 3}, 6, 32, 16}, {0, {0}, 64, 48, 96},
};

enum { PRODUCTS = sizeof products / sizeof *products };

static inline op_case product_case(const hr_provider *provider, const product *p, hr_dtype dtype, matrix_layout a,
                                   matrix_layout b, matrix_layout out, bias_layout bias) {
  op_case t = {.provider = provider, .op = HR_OP_MATMUL, .input_count = 2};
  int rank = p->batch_rank + 2;
  for (int i = 0; i < 3; ++i) {
    tensor *x = &t.tensors[i];
    *x = (tensor){.is_present = true, .dtype = dtype, .rank = rank};
    for (int d = 0; d < p->batch_rank; ++d) {
      x->dims[d] = p->batch[d];
    }
    x->dims[rank - 2] = i == 1 ? p->inner : p->rows;
    x->dims[rank - 1] = i == 0 ? p->inner : p->columns;
    set_matrix(x, i == 0 ? a : i == 1 ? b : out);
  }
  set_bias(&t, bias);
  return t;
}

static inline bool is_row_bias(bias_layout bias, int64_t columns) {
  return bias <= BIAS_EXPANDED || (columns == 1 && bias != BIAS_NUMBER && bias < BIAS_COLUMN);
}

/* ---- convolutions ---- */

typedef struct window {
  int spatial;
  int64_t batch, in, out, groups;
  int64_t dims[3], kernel[3], stride[3], padding[3], dilation[3];
  int64_t less[3]; /* by which the padding behind is smaller than that in front */
} window;

/* A gradient of windows of one element with a stride above 1. */
static inline bool window_skips(hr_op op, const window *q) {
  bool is_point = op != HR_OP_CONV, is_strided = false;
  for (int d = 0; d < q->spatial; ++d) {
    is_point &= q->kernel[d] == 1 && q->padding[d] == 0;
    is_strided |= q->stride[d] > 1;
  }
  return is_point && is_strided;
}

static const window windows[] = {
    {1, 2, 3, 20, 1, {17}, {3}, {1}, {1}, {1}},
    {1, 1, 50, 20, 1, {9}, {4}, {2}, {0}, {2}},
    {1, 3, 20, 20, 20, {12}, {3}, {1}, {2}, {1}},
    {1, 1, 1, 1, 1, {1}, {1}, {1}, {0}, {1}},
    {2, 2, 1, 20, 1, {8, 8}, {3, 3}, {1, 1}, {0, 0}, {1, 1}},
    {2, 2, 20, 50, 1, {7, 6}, {3, 2}, {1, 1}, {1, 0}, {1, 1}},
    {2, 1, 3, 1, 1, {9, 10}, {5, 3}, {2, 3}, {2, 1}, {1, 2}},
    {2, 2, 50, 3, 1, {6, 5}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {2, 2, 16, 16, 1, {8, 7}, {1, 1}, {2, 2}, {0, 0}, {1, 1}},
    {2, 1, 20, 40, 4, {6, 6}, {3, 3}, {1, 2}, {1, 1}, {1, 1}},
    {2, 2, 50, 50, 50, {7, 7}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
    {2, 1, 20, 40, 20, {6, 5}, {3, 3}, {1, 1}, {1, 1}, {2, 1}},
    {2, 2, 6, 4, 2, {5, 5}, {2, 2}, {2, 2}, {0, 0}, {1, 1}},
    {2, 1, 3, 20, 1, {6, 1}, {6, 1}, {1, 1}, {0, 0}, {1, 1}},
    {2, 3, 1, 1, 1, {5, 7}, {2, 3}, {3, 1}, {3, 4}, {1, 1}},
    {2, 2, 16, 32, 1, {4, 4}, {4, 4}, {4, 4}, {0, 0}, {1, 1}},
    {3, 2, 3, 20, 1, {5, 6, 4}, {3, 3, 2}, {1, 2, 1}, {1, 1, 0}, {1, 1, 2}},
    {3, 1, 20, 20, 20, {4, 4, 4}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    {3, 1, 6, 9, 3, {4, 3, 5}, {2, 1, 3}, {1, 1, 2}, {0, 1, 1}, {2, 1, 1}},
};

enum { WINDOWS = sizeof windows / sizeof *windows };

/* With other padding behind than in front. */
static const window uneven_windows[] = {
    {1, 2, 3, 20, 1, {17}, {3}, {1}, {1}, {1}, {1}},
    {2, 2, 20, 50, 1, {7, 6}, {3, 2}, {1, 1}, {1, 0}, {1, 1}, {0, -2}},
    {2, 3, 16, 32, 1, {7, 7}, {5, 5}, {1, 1}, {2, 2}, {1, 1}, {1, 1}},
    {2, 1, 3, 16, 1, {9, 10}, {3, 3}, {2, 2}, {0, 1}, {1, 1}, {-1, 1}},
    {2, 2, 16, 16, 1, {8, 7}, {1, 1}, {1, 1}, {0, 0}, {1, 1}, {-1, 0}},
    {3, 2, 3, 20, 1, {5, 6, 4}, {3, 3, 2}, {1, 2, 1}, {1, 1, 0}, {1, 1, 2}, {1, 1, -2}},
};
enum { UNEVEN_WINDOWS = sizeof uneven_windows / sizeof *uneven_windows };

typedef enum image_layout {
  IMAGE_DENSE,
  IMAGE_CHANNELS_LAST,
  IMAGE_SLICED,
  IMAGE_CHANNELS_LAST_SLICED,
  IMAGE_CHANNELS_LAST_CROPPED, /* some columns of more */
  IMAGE_REVERSED,
  IMAGE_TURNED,  /* spatial dims in the other order; odd strides in dims of 1 */
  IMAGE_SWAPPED, /* the first two dims exchanged */
  IMAGE_HWIO,    /* as TensorFlow's weights: spatial dims, the second dim, the first one */
  IMAGE_LAYOUTS,
  IMAGE_BROADCAST = IMAGE_LAYOUTS /* inputs only: one image for all */
} image_layout;

static inline void set_image(tensor *t, image_layout layout) {
  int rank = t->rank, order[RANK] = {0, 1, 2, 3, 4, 5};
  bool is_last = layout == IMAGE_CHANNELS_LAST || layout == IMAGE_CHANNELS_LAST_SLICED;
  if (is_last || layout == IMAGE_CHANNELS_LAST_CROPPED) {
    for (int d = 1; d < rank; ++d) {
      order[d] = d == rank - 1 ? 1 : d + 1;
    }
  } else if (layout == IMAGE_TURNED) {
    for (int d = 2; d < rank; ++d) {
      order[d] = rank + 1 - d;
    }
  } else if (layout == IMAGE_SWAPPED) {
    order[0] = 1, order[1] = 0;
  } else if (layout == IMAGE_HWIO) {
    for (int d = 0; d < rank; ++d) {
      order[d] = d < rank - 2 ? d + 2 : rank - 1 - d;
    }
  }
  set_dense(t, order);
  if (layout == IMAGE_SLICED) {
    set_spread(t, order, 2, 1);
  } else if (layout == IMAGE_CHANNELS_LAST_SLICED) { /* some channels of more */
    set_spread(t, order, 2, 0);
    t->strides[1] = 1;
  } else if (layout == IMAGE_CHANNELS_LAST_CROPPED) {
    t->dims[rank - 1] += 3;
    set_dense(t, order);
    t->dims[rank - 1] -= 3;
  } else if (layout == IMAGE_REVERSED) {
    set_reversed(t);
  } else if (layout == IMAGE_BROADCAST) {
    t->strides[0] = 0;
  }
  for (int d = 0; layout == IMAGE_TURNED && d < rank; ++d) {
    t->strides[d] = t->dims[d] == 1 ? 3 : t->strides[d];
  }
}

static inline op_case window_case(hr_op op, const window *q, hr_dtype dtype, image_layout x, image_layout w,
                                  image_layout y, bool has_bias) {
  op_case t = {
      .provider = &hr__onednn_provider, .op = op, .input_count = has_bias ? 3 : 2, .int_count = 2 + 3 * q->spatial};
  tensor base = {.is_present = true, .dtype = dtype, .rank = q->spatial + 2};
  conv_operands at = conv_operands_of(&t);
  tensor *xs = &t.tensors[at.x], *ws = &t.tensors[at.w], *ys = &t.tensors[at.y];
  *xs = *ws = *ys = base;
  xs->dims[0] = ys->dims[0] = q->batch;
  xs->dims[1] = q->in, ys->dims[1] = ws->dims[0] = q->out, ws->dims[1] = q->in / q->groups;
  t.ints[0] = q->spatial, t.ints[1 + 3 * q->spatial] = q->groups;
  for (int d = 0; d < q->spatial; ++d) {
    xs->dims[2 + d] = q->dims[d], ws->dims[2 + d] = q->kernel[d];
    int64_t room = q->dims[d] + 2 * q->padding[d] - q->less[d] - q->dilation[d] * (q->kernel[d] - 1) - 1;
    t.int_count += q->less[d] != 0 && t.int_count == 2 + 3 * q->spatial ? q->spatial : 0;
    t.ints[2 + 3 * q->spatial + d] = q->padding[d] - q->less[d];
    ys->dims[2 + d] = room / q->stride[d] + 1;
    t.ints[1 + d] = q->stride[d];
    t.ints[1 + q->spatial + d] = q->padding[d];
    t.ints[1 + 2 * q->spatial + d] = q->dilation[d];
  }
  set_image(xs, x), set_image(ws, w), set_image(ys, y);
  if (has_bias) {
    t.tensors[2] = (tensor){.is_present = true, .dtype = dtype, .rank = 1, .strides = {1}};
    t.tensors[2].dims[0] = op == HR_OP_CONV ? q->out : q->in;
  }
  return t;
}

#endif
