/* The host providers against plain loops in double precision: nodes built by hand go through supports, prepare and run.
 *
 * Every element of a buffer that its view does not reach is a canary: NaN around inputs, which would show in the
 * result, and a byte pattern around outputs and the workspace, which must still be there. Each prepared object runs
 * twice, on other addresses and other numbers. A failure prints its program, which `hr_program_parse` reads.
 */
#include "base/thread.h"
#include "core/dtype.h"
#include "hr_test.h"
#include "providers/provider.h"
#include "runtime/derived.h"

enum {
  RANK = 6,
  OPERANDS = 4,
  GUARD = 19,
  CANARY = 0xA5
}; /* GUARD: elements on each side; odd, so alignment is poor */

/* ---- tensors ---- */

typedef struct tensor {
  bool is_present;
  hr_dtype dtype;
  int rank;
  int64_t dims[RANK], strides[RANK];
  int64_t offset, length; /* elements of the buffer, guards included */
  unsigned char *bytes;
} tensor;

static uint64_t random_state;

static double random_number(void) { /* in [-1, 1) */
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (double)(int32_t)(random_state >> 32) / 2147483648.0;
}

static int random_below(int count) {
  return (int)((random_number() + 1) / 2 * count);
}

static double read_element(const tensor *t, int64_t at) {
  const uint16_t *half = (const uint16_t *)(const void *)t->bytes + at;
  return t->dtype == HR_DTYPE_F32    ? ((const float *)(const void *)t->bytes)[at]
         : t->dtype == HR_DTYPE_BF16 ? hr_bf16_to_f32(*half)
                                     : hr_f16_to_f32(*half);
}

static void write_element(const tensor *t, int64_t at, double value) {
  uint16_t *half = (uint16_t *)(void *)t->bytes + at;
  if (t->dtype == HR_DTYPE_F32) {
    ((float *)(void *)t->bytes)[at] = (float)value;
  } else {
    *half = t->dtype == HR_DTYPE_BF16 ? hr_f32_to_bf16((float)value) : hr_f32_to_f16((float)value);
  }
}

static int64_t tensor_count(const tensor *t) {
  int64_t count = 1;
  for (int d = 0; d < t->rank; ++d) {
    count *= t->dims[d];
  }
  return count;
}

/* Where element number i, row-major, lies in the buffer. */
static int64_t tensor_at(const tensor *t, int64_t i) {
  int64_t at = t->offset;
  for (int d = t->rank - 1; d >= 0; --d) {
    at += i % t->dims[d] * t->strides[d];
    i /= t->dims[d];
  }
  return at;
}

/* Offset and length of the buffer that the view needs. */
static void tensor_place(tensor *t) {
  int64_t low = 0, high = 0;
  for (int d = 0; d < t->rank; ++d) {
    int64_t reach = (t->dims[d] - 1) * t->strides[d];
    low += reach < 0 ? reach : 0, high += reach > 0 ? reach : 0;
  }
  t->is_present = true;
  t->offset = GUARD - low;
  t->length = high - low + 1 + 2 * GUARD;
}

static void tensor_fill_input(tensor *t) {
  for (int64_t i = 0; i < t->length; ++i) {
    write_element(t, i, NAN);
  }
  int64_t count = tensor_count(t);
  for (int64_t i = 0; i < count; ++i) {
    write_element(t, tensor_at(t, i), random_number());
  }
}

/* ---- programs of one node ---- */

typedef struct trial {
  const hr_provider *provider;
  hr_op op;
  int input_count; /* tensors[input_count] is the output */
  tensor tensors[OPERANDS];
  int int_count;
  int64_t ints[11];
  hr_program program;
  hr_prepared *prepared;
  size_t workspace_bytes;
  bool writes_weights; /* behind the node, the program writes operand 1 */
} trial;

static tensor *trial_output(trial *t) {
  return &t->tensors[t->input_count];
}

static void trial_node(trial *t) {
  hr_operand operands[OPERANDS] = {{0}};
  hr_program_init(&t->program);
  for (int i = 0; i <= t->input_count; ++i) {
    tensor *x = &t->tensors[i];
    if (x->is_present) {
      tensor_place(x);
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

static bool trial_is_supported(const trial *t) {
  return t->provider->supports(&t->program, &t->program.nodes[0]);
}

__attribute__((noreturn, format(printf, 2, 3))) static void trial_fail(const trial *t, const char *format, ...) {
  char what[512];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof what, format, args);
  va_end(args);
  hr_text text = {0};
  HR_ASSERT_OK(hr_program_print(&t->program, &text));
  HR_FAIL("%s: %s\n%s", t->provider->name, what, text.data);
}

static void trial_prepare(trial *t) {
  hr_status status = t->provider->prepare(&t->program, &t->program.nodes[0], NULL, &t->prepared, &t->workspace_bytes);
  if (status != NULL) {
    char message[256];
    snprintf(message, sizeof message, "%s", hr_status_message(status));
    hr_status_ignore(status);
    trial_fail(t, "prepare: %s", message);
  }
}

/* New buffers, inputs with new numbers. */
static void trial_allocate(trial *t) {
  for (int i = 0; i <= t->input_count; ++i) {
    tensor *x = &t->tensors[i];
    if (x->is_present) {
      size_t bytes = (size_t)x->length * hr_dtype_size(x->dtype);
      x->bytes = malloc(bytes);
      HR_ASSERT_NOT_NULL(x->bytes);
      memset(x->bytes, CANARY, bytes);
      if (i < t->input_count) {
        tensor_fill_input(x);
      }
    }
  }
}

static void trial_free(trial *t) {
  for (int i = 0; i <= t->input_count; ++i) {
    free(t->tensors[i].bytes);
    t->tensors[i].bytes = NULL;
  }
}

static void trial_run(trial *t) {
  void *args[OPERANDS];
  for (int i = 0; i <= t->input_count; ++i) {
    args[i] = t->tensors[i].bytes;
  }
  enum { ALIGNMENT = 64 };
  size_t bytes = (t->workspace_bytes + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  unsigned char *workspace = aligned_alloc(ALIGNMENT, bytes);
  HR_ASSERT_NOT_NULL(workspace);
  memset(workspace, CANARY, bytes);
  HR_ASSERT_OK(t->provider->run(t->prepared, args, workspace, NULL));
  for (size_t i = t->workspace_bytes; i < bytes; ++i) {
    if (workspace[i] != CANARY) {
      trial_fail(t, "byte %zu of %zu of workspace was written", i, t->workspace_bytes);
    }
  }
  free(workspace);
}

static void trial_end(trial *t) {
  t->provider->release(t->prepared);
  hr_program_fini(&t->program);
}

/* ---- the plain loops ---- */

typedef struct expected {
  double *values, *sizes; /* the result and the sum of its terms' magnitudes */
} expected;

static void add_term(expected *e, int64_t i, double term) {
  e->values[i] += term;
  e->sizes[i] += fabs(term);
}

/* The element of x, of batch dims that may be 1, at the batch of element `batch` (row-major) of out. */
static int64_t batch_at(const tensor *x, const tensor *out, int64_t batch) {
  int64_t at = x->offset;
  for (int d = out->rank - 3; d >= 0; --d) {
    int64_t i = batch % out->dims[d];
    batch /= out->dims[d];
    at += x->dims[d] != 1 ? i * x->strides[d] : 0;
  }
  return at;
}

/* bias, broadcast to out, at element number i. */
static double bias_at(const tensor *bias, const tensor *out, int64_t i) {
  int64_t at = bias->offset;
  for (int d = out->rank - 1, b = bias->rank - 1; b >= 0; --d, --b) {
    at += bias->dims[b] != 1 ? i % out->dims[d] * bias->strides[b] : 0;
    i /= out->dims[d];
  }
  return read_element(bias, at);
}

static void evaluate_matmul(const trial *t, expected *e) {
  const tensor *a = &t->tensors[0], *b = &t->tensors[1], *bias = &t->tensors[2], *out = &t->tensors[t->input_count];
  int rank = out->rank;
  int64_t rows = out->dims[rank - 2], columns = out->dims[rank - 1], inner = a->dims[rank - 1];
  int64_t count = tensor_count(out);
  for (int64_t i = 0; i < count; ++i) {
    int64_t column = i % columns, row = i / columns % rows, batch = i / columns / rows;
    int64_t at_a = batch_at(a, out, batch) + row * a->strides[rank - 2];
    int64_t at_b = batch_at(b, out, batch) + column * b->strides[rank - 1];
    for (int64_t k = 0; k < inner; ++k) {
      add_term(e, i,
               read_element(a, at_a + k * a->strides[rank - 1]) * read_element(b, at_b + k * b->strides[rank - 2]));
    }
    if (t->input_count > 2 && bias->is_present) {
      add_term(e, i, bias_at(bias, out, i));
    }
  }
}

/* What pairs up in a convolution: elements of x, w and y, as row-major numbers. */
typedef void (*pair_fn)(const trial *t, expected *e, int64_t x, int64_t w, int64_t y);

static void pair_forward(const trial *t, expected *e, int64_t x, int64_t w, int64_t y) {
  const tensor *s = t->tensors;
  add_term(e, y, read_element(&s[0], tensor_at(&s[0], x)) * read_element(&s[1], tensor_at(&s[1], w)));
}
static void pair_data(const trial *t, expected *e, int64_t x, int64_t w, int64_t y) {
  const tensor *s = t->tensors;
  add_term(e, x, read_element(&s[0], tensor_at(&s[0], y)) * read_element(&s[1], tensor_at(&s[1], w)));
}
static void pair_weight(const trial *t, expected *e, int64_t x, int64_t w, int64_t y) {
  const tensor *s = t->tensors;
  add_term(e, w, read_element(&s[0], tensor_at(&s[0], x)) * read_element(&s[1], tensor_at(&s[1], y)));
}

typedef struct conv_operands {
  int x, w, y; /* numbers of the trial's tensors */
} conv_operands;

static conv_operands conv_operands_of(const trial *t) {
  int out = t->input_count;
  return t->op == HR_OP_CONV                 ? (conv_operands){0, 1, out}
         : t->op == HR_OP_CONV_BACKWARD_DATA ? (conv_operands){out, 1, 0}
                                             : (conv_operands){0, out, 1};
}

/* All taps of one output position `at` of channel `o`, image `n`. */
static void evaluate_window(const trial *t, expected *e, pair_fn pair, int64_t n, int64_t o, int64_t position) {
  conv_operands at = conv_operands_of(t);
  const tensor *x = &t->tensors[at.x], *w = &t->tensors[at.w], *y = &t->tensors[at.y];
  int spatial = x->rank - 2;
  const int64_t *stride = t->ints + 1, *padding = stride + spatial, *dilation = padding + spatial;
  int64_t taps = 1, plane = 1, image = 1, group = o / (w->dims[0] / dilation[spatial]);
  for (int d = 2; d < x->rank; ++d) {
    taps *= w->dims[d], plane *= y->dims[d], image *= x->dims[d];
  }
  for (int64_t tap = 0; tap < taps; ++tap) {
    int64_t rest_tap = tap, rest = position, pixel = 0, scale = 1;
    bool is_inside = true;
    for (int d = spatial - 1; d >= 0; --d) {
      int64_t i = rest % y->dims[2 + d] * stride[d] - padding[d] + rest_tap % w->dims[2 + d] * dilation[d];
      rest /= y->dims[2 + d], rest_tap /= w->dims[2 + d];
      is_inside = is_inside && i >= 0 && i < x->dims[2 + d];
      pixel += i * scale;
      scale *= x->dims[2 + d];
    }
    for (int64_t c = 0; is_inside && c < w->dims[1]; ++c) {
      pair(t, e, (n * x->dims[1] + group * w->dims[1] + c) * image + pixel, (o * w->dims[1] + c) * taps + tap,
           (n * y->dims[1] + o) * plane + position);
    }
  }
}

static void evaluate_conv(const trial *t, expected *e) {
  const tensor *y = &t->tensors[conv_operands_of(t).y], *out = &t->tensors[t->input_count];
  pair_fn pair = t->op == HR_OP_CONV ? pair_forward : t->op == HR_OP_CONV_BACKWARD_DATA ? pair_data : pair_weight;
  int64_t plane = tensor_count(y) / y->dims[0] / y->dims[1];
  for (int64_t i = 0; i < tensor_count(y); ++i) {
    evaluate_window(t, e, pair, i / plane / y->dims[1], i / plane % y->dims[1], i % plane);
  }
  if (t->input_count > 2 && t->tensors[2].is_present) {
    int64_t pixels = tensor_count(out) / out->dims[0] / out->dims[1];
    for (int64_t i = 0; i < tensor_count(out); ++i) {
      add_term(e, i, read_element(&t->tensors[2], tensor_at(&t->tensors[2], i / pixels % out->dims[1])));
    }
  }
}

/* ---- checks ---- */

/* A unit of the dtype's last place for the result, and rounding of f32 sums for its terms. */
static double tolerance(hr_dtype dtype, double value, double size) {
  double unit = dtype == HR_DTYPE_BF16 ? 1.0 / 128 : dtype == HR_DTYPE_F16 ? 1.0 / 1024 : 0;
  return unit * fabs(value) + 2e-6 * size + (dtype == HR_DTYPE_F16 ? 1e-7 : 0);
}

static void check_canaries(const trial *t, const tensor *out) {
  size_t size = hr_dtype_size(out->dtype);
  unsigned char *is_seen = calloc(1, (size_t)out->length);
  HR_ASSERT_NOT_NULL(is_seen);
  for (int64_t i = 0; i < tensor_count(out); ++i) {
    HR_ASSERT(!is_seen[tensor_at(out, i)]);
    is_seen[tensor_at(out, i)] = 1;
  }
  for (size_t i = 0; i < (size_t)out->length * size; ++i) {
    if (!is_seen[i / size] && out->bytes[i] != CANARY) {
      trial_fail(t, "element %zu of the output's buffer, outside the view, was written", i / size);
    }
  }
  free(is_seen);
}

static void check_result(trial *t) {
  const tensor *out = trial_output(t);
  int64_t count = tensor_count(out);
  expected e = {calloc((size_t)count, sizeof(double)), calloc((size_t)count, sizeof(double))};
  HR_ASSERT(e.values != NULL && e.sizes != NULL);
  (t->op == HR_OP_MATMUL ? evaluate_matmul : evaluate_conv)(t, &e);
  for (int64_t i = 0; i < count; ++i) {
    double actual = read_element(out, tensor_at(out, i));
    if (!(fabs(actual - e.values[i]) <= tolerance(out->dtype, e.values[i], e.sizes[i]))) {
      trial_fail(t, "element %lld is %.9g, expected %.9g", (long long)i, actual, e.values[i]);
    }
  }
  check_canaries(t, out);
  free(e.values);
  free(e.sizes);
}

/* Prepares, runs twice and checks a node that is made. */
static void trial_check_node(trial *t) {
  trial_prepare(t);
  for (int run = 0; run < 2; ++run) {
    tensor first[OPERANDS];
    memcpy(first, t->tensors, sizeof first);
    trial_allocate(t); /* while the first run's buffers live: other addresses */
    trial_run(t);
    check_result(t);
    for (int i = 0; run == 1 && i < OPERANDS; ++i) {
      free(first[i].bytes);
    }
  }
  trial_free(t);
  trial_end(t);
}

/* False when the provider does not take the node. */
static bool trial_check(trial *t) {
  trial_node(t);
  if (!trial_is_supported(t)) {
    hr_program_fini(&t->program);
    return false;
  }
  trial_check_node(t);
  return true;
}

static void trial_must_pass(trial *t) {
  if (!trial_check(t)) {
    trial_node(t);
    trial_fail(t, "not supported");
  }
}

/* ---- providers ---- */

static void open_rows(void) {
  random_state = 7;
  HR_ASSERT_OK(hr__rows_provider.open());
}

static void open_lanes(void) {
  random_state = 7;
  hr_status status = hr__lanes_provider.open();
  bool is_there = status == NULL;
  hr_status_ignore(status);
  if (!is_there) {
    HR_SKIP("no vectors of 16 floats");
  }
}

static void open_onednn(void) {
  static enum { UNKNOWN, THERE, MISSING } state;
  static char reason[512];
  random_state = 7;
  if (state == UNKNOWN) {
    hr_status status = hr__onednn_provider.open();
    snprintf(reason, sizeof reason, "%s", hr_status_message(status));
    state = status == NULL ? THERE : MISSING;
    hr_status_ignore(status);
  }
  if (state == MISSING) {
    HR_SKIP(reason);
  }
}

/* ---- layouts ---- */

/* Every `step`-th element of memory with `room` more in each dim; order: dims from the outermost to the innermost. */
static void set_spread(tensor *t, const int *order, int64_t step, int64_t room) {
  int64_t stride = step;
  for (int i = t->rank - 1; i >= 0; --i) {
    int d = order != NULL ? order[i] : i;
    t->strides[d] = stride;
    stride *= t->dims[d] + room;
  }
}

static void set_dense(tensor *t, const int *order) {
  set_spread(t, order, 1, 0);
}

static void set_reversed(tensor *t) {
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

static void set_matrix(tensor *t, matrix_layout layout) {
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

static void set_bias(trial *t, bias_layout layout) {
  const tensor *like = trial_output(t);
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

static trial product_trial(const hr_provider *provider, const product *p, hr_dtype dtype, matrix_layout a,
                           matrix_layout b, matrix_layout out, bias_layout bias) {
  trial t = {.provider = provider, .op = HR_OP_MATMUL, .input_count = 2};
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

static bool is_row_bias(bias_layout bias, int64_t columns) {
  return bias <= BIAS_EXPANDED || (columns == 1 && bias != BIAS_NUMBER && bias < BIAS_COLUMN);
}

HR_TEST(rows_multiplies_single_rows_in_every_layout) {
  open_rows();
  int taken = 0;
  for (int p = 0; p < PRODUCTS; ++p) {
    const product *q = &products[p];
    for (int a = 0; a < MATRIX_LAYOUTS; ++a) {
      for (int b = 0; b < MATRIX_LAYOUTS; ++b) {
        trial t = product_trial(&hr__rows_provider, q, HR_DTYPE_F32, (matrix_layout)a, (matrix_layout)b,
                                (matrix_layout)random_below(MATRIX_OUTPUTS), (bias_layout)random_below(BIAS_LAYOUTS));
        bool is_taken = trial_check(&t);
        HR_ASSERT(!is_taken || q->rows == 1);
        taken += is_taken;
      }
    }
  }
  HR_ASSERT(taken > 400);
}

HR_TEST(rows_takes_what_models_multiply) {
  open_rows();
  const product q = {1, {2}, 1, 70, 530};
  for (int b = MATRIX_DENSE; b <= MATRIX_TRANSPOSED_ROOM; ++b) {
    for (int bias = 0; bias <= BIAS_EXPANDED; ++bias) {
      trial t = product_trial(&hr__rows_provider, &q, HR_DTYPE_F32, MATRIX_ROOM, (matrix_layout)b, MATRIX_STEPS,
                              (bias_layout)bias);
      trial_must_pass(&t);
    }
  }
}

HR_TEST(rows_broadcasts_dims_of_one) {
  open_rows();
  for (int one = 0; one < 2; ++one) {
    const product q = {2, {1, 3}, 1, 35, 20};
    trial t =
        product_trial(&hr__rows_provider, &q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_TRANSPOSED, MATRIX_DENSE, BIAS_VECTOR);
    t.tensors[one].dims[1] = 1;
    t.tensors[one].strides[1] = 1000; /* must not matter */
    trial_must_pass(&t);
  }
}

HR_TEST(rows_leaves_other_products_to_others) {
  open_rows();
  const product row = {0, {0}, 1, 8, 8}, rows = {0, {0}, 2, 8, 8}, batches = {2, {2, 2}, 1, 8, 8};
  trial refused[] = {
      product_trial(&hr__rows_provider, &rows, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT),
      product_trial(&hr__rows_provider, &batches, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT),
      product_trial(&hr__rows_provider, &row, HR_DTYPE_BF16, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT),
      product_trial(&hr__rows_provider, &row, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_STEPS, MATRIX_DENSE, BIAS_ABSENT),
      product_trial(&hr__rows_provider, &row, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_NUMBER),
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; ++i) {
    HR_ASSERT(!trial_check(&refused[i]));
  }
}

/* Large enough for the team. */
static void check_bits_across_threads(matrix_layout b, const product *q) {
  trial t = product_trial(&hr__rows_provider, q, HR_DTYPE_F32, MATRIX_DENSE, b, MATRIX_DENSE, BIAS_VECTOR);
  tensor *out = trial_output(&t);
  trial_node(&t);
  HR_ASSERT(trial_is_supported(&t));
  trial_prepare(&t);
  HR_ASSERT(t.provider->needs_team(t.prepared));
  trial_allocate(&t);
  size_t bytes = (size_t)out->length * sizeof(float);
  unsigned char *alone = malloc(bytes);
  HR_ASSERT_NOT_NULL(alone);
  for (int threads = 1; threads <= 3; ++threads) {
    hr_thread_count_set(threads);
    trial_run(&t);
    check_canaries(&t, out);
    if (threads == 1) {
      memcpy(alone, out->bytes, bytes);
      check_result(&t);
    }
    HR_ASSERT_BYTES_EQ(out->bytes, alone, bytes);
  }
  hr_thread_count_set(0);
  free(alone);
  trial_free(&t);
  trial_end(&t);
}

HR_TEST(rows_gives_the_same_bits_whatever_the_number_of_threads) {
  open_rows();
  const product wide = {0, {0}, 1, 333, 1531}, batch = {1, {5}, 1, 129, 517};
  for (int b = MATRIX_DENSE; b <= MATRIX_TRANSPOSED_ROOM; ++b) {
    check_bits_across_threads((matrix_layout)b, &wide);
    check_bits_across_threads((matrix_layout)b, &batch);
  }
}

HR_TEST(onednn_multiplies_in_every_layout) {
  open_onednn();
  for (int p = 0; p < PRODUCTS; ++p) {
    const product *q = &products[p];
    for (int a = 0; a < MATRIX_LAYOUTS; ++a) {
      for (int b = 0; b < MATRIX_LAYOUTS; ++b) {
        bias_layout bias = (bias_layout)random_below(BIAS_LAYOUTS);
        trial t = product_trial(&hr__onednn_provider, q, HR_DTYPE_F32, (matrix_layout)a, (matrix_layout)b,
                                (matrix_layout)random_below(MATRIX_OUTPUTS), bias);
        if (is_row_bias(bias, q->columns)) {
          trial_must_pass(&t);
        } else {
          (void)trial_check(&t);
        }
      }
    }
  }
}

HR_TEST(onednn_writes_products_into_every_layout) {
  open_onednn();
  for (int p = 0; p < PRODUCTS; ++p) {
    for (int out = 0; out < MATRIX_OUTPUTS; ++out) {
      trial t = product_trial(&hr__onednn_provider, &products[p], HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE,
                              (matrix_layout)out, out % 2 == 0 ? BIAS_VECTOR : BIAS_ABSENT);
      trial_must_pass(&t);
    }
  }
}

HR_TEST(onednn_broadcasts_dims_of_one) {
  open_onednn();
  for (int turn = 0; turn < 32; ++turn) { /* bits: dims of a, dims of b, whether b's other dims have stride 0 */
    const product q = {2, {2, 3}, 4, 9, 6};
    trial t = product_trial(&hr__onednn_provider, &q, HR_DTYPE_F32, MATRIX_DENSE,
                            turn < 16 ? MATRIX_TRANSPOSED : MATRIX_BROADCAST_BATCH, MATRIX_DENSE, BIAS_VECTOR);
    for (int i = 0; i < 4; ++i) {
      bool is_of_both = i >= 2 && (turn >> (i - 2) & 1) != 0;
      if ((turn >> i & 1) != 0 && !is_of_both) {
        t.tensors[i / 2].dims[i % 2] = 1;
        t.tensors[i / 2].strides[i % 2] = 1000 * (i % 3); /* must not matter */
      }
    }
    trial_must_pass(&t);
  }
}

HR_TEST(onednn_multiplies_narrow_numbers) {
  open_onednn();
  for (int dtype = HR_DTYPE_F16; dtype <= HR_DTYPE_BF16; ++dtype) {
    for (int p = 0; p < PRODUCTS; ++p) {
      for (int a = 0; a < MATRIX_LAYOUTS; ++a) {
        trial t = product_trial(&hr__onednn_provider, &products[p], (hr_dtype)dtype, (matrix_layout)a,
                                (matrix_layout)random_below(MATRIX_LAYOUTS),
                                (matrix_layout)random_below(MATRIX_OUTPUTS), (bias_layout)random_below(BIAS_STEPS));
        (void)trial_check(&t); /* not every processor has them */
      }
    }
  }
}

/* ---- convolutions ---- */

typedef struct window {
  int spatial;
  int64_t batch, in, out, groups;
  int64_t dims[3], kernel[3], stride[3], padding[3], dilation[3];
} window;

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

typedef enum image_layout {
  IMAGE_DENSE,
  IMAGE_CHANNELS_LAST,
  IMAGE_SLICED,
  IMAGE_CHANNELS_LAST_SLICED,
  IMAGE_REVERSED,
  IMAGE_TURNED,  /* spatial dims in the other order; odd strides in dims of 1 */
  IMAGE_SWAPPED, /* the first two dims exchanged */
  IMAGE_LAYOUTS,
  IMAGE_BROADCAST = IMAGE_LAYOUTS /* inputs only: one image for all */
} image_layout;

static void set_image(tensor *t, image_layout layout) {
  int rank = t->rank, order[RANK] = {0, 1, 2, 3, 4, 5};
  if (layout == IMAGE_CHANNELS_LAST || layout == IMAGE_CHANNELS_LAST_SLICED) {
    for (int d = 1; d < rank; ++d) {
      order[d] = d == rank - 1 ? 1 : d + 1;
    }
  } else if (layout == IMAGE_TURNED) {
    for (int d = 2; d < rank; ++d) {
      order[d] = rank + 1 - d;
    }
  } else if (layout == IMAGE_SWAPPED) {
    order[0] = 1, order[1] = 0;
  }
  set_dense(t, order);
  if (layout == IMAGE_SLICED) {
    set_spread(t, order, 2, 1);
  } else if (layout == IMAGE_CHANNELS_LAST_SLICED) { /* some channels of more */
    for (int d = 0; d < rank; ++d) {
      t->strides[d] *= d == 1 ? 1 : 2;
    }
  } else if (layout == IMAGE_REVERSED) {
    set_reversed(t);
  } else if (layout == IMAGE_BROADCAST) {
    t->strides[0] = 0;
  }
  for (int d = 0; layout == IMAGE_TURNED && d < rank; ++d) {
    t->strides[d] = t->dims[d] == 1 ? 3 : t->strides[d];
  }
}

static trial window_trial(hr_op op, const window *q, hr_dtype dtype, image_layout x, image_layout w, image_layout y,
                          bool has_bias) {
  trial t = {
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
    int64_t room = q->dims[d] + 2 * q->padding[d] - q->dilation[d] * (q->kernel[d] - 1) - 1;
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

/* Every window with every layout of each operand in turn, the others at random. */
static void check_windows(hr_op op, hr_dtype dtype) {
  open_onednn();
  for (int i = 0; i < WINDOWS; ++i) {
    for (int turn = 0; turn < 3 * IMAGE_LAYOUTS; ++turn) {
      image_layout layouts[3];
      for (int operand = 0; operand < 3; ++operand) {
        layouts[operand] =
            (image_layout)(turn / IMAGE_LAYOUTS == operand ? turn % IMAGE_LAYOUTS : random_below(IMAGE_LAYOUTS));
      }
      bool has_bias = op != HR_OP_CONV_BACKWARD_WEIGHT && turn % 2 == 0;
      trial t = window_trial(op, &windows[i], dtype, layouts[0], layouts[1], layouts[2], has_bias);
      if (dtype == HR_DTYPE_F32) {
        trial_must_pass(&t);
      } else {
        (void)trial_check(&t);
      }
    }
  }
}

HR_TEST(onednn_convolves) {
  check_windows(HR_OP_CONV, HR_DTYPE_F32);
}
HR_TEST(onednn_gives_the_gradient_of_data) {
  check_windows(HR_OP_CONV_BACKWARD_DATA, HR_DTYPE_F32);
}
HR_TEST(onednn_gives_the_gradient_of_weights) {
  check_windows(HR_OP_CONV_BACKWARD_WEIGHT, HR_DTYPE_F32);
}
HR_TEST(onednn_convolves_bf16) {
  check_windows(HR_OP_CONV, HR_DTYPE_BF16);
}
HR_TEST(onednn_gives_the_gradient_of_bf16_data) {
  check_windows(HR_OP_CONV_BACKWARD_DATA, HR_DTYPE_BF16);
}
HR_TEST(onednn_gives_the_gradient_of_bf16_weights) {
  check_windows(HR_OP_CONV_BACKWARD_WEIGHT, HR_DTYPE_BF16);
}

HR_TEST(onednn_convolves_one_image_for_all) {
  open_onednn();
  for (int i = 0; i < WINDOWS; ++i) {
    trial forward =
        window_trial(HR_OP_CONV, &windows[i], HR_DTYPE_F32, IMAGE_BROADCAST, IMAGE_DENSE, IMAGE_DENSE, true);
    trial weight = window_trial(HR_OP_CONV_BACKWARD_WEIGHT, &windows[i], HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE,
                                IMAGE_BROADCAST, false);
    trial_must_pass(&forward);
    trial_must_pass(&weight);
  }
}

/* Windows of one element on matrices as they lie, with weights that the program changes. */
HR_TEST(onednn_multiplies_pixels) {
  static const window pixels[] = {
      {1, 2, 33, 20, 1, {17}, {1}, {1}, {0}, {1}},
      {2, 2, 50, 64, 1, {6, 5}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
      {2, 1, 1, 7, 1, {4, 5}, {1, 1}, {1, 1}, {0, 0}, {3, 2}},
      {2, 3, 16, 1, 1, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
      {2, 1, 5, 6, 1, {40, 40}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
      {2, 2, 16, 16, 1, {8, 7}, {1, 1}, {2, 2}, {0, 0}, {1, 1}},
      {2, 2, 300, 40, 1, {20, 21}, {1, 1}, {3, 2}, {0, 0}, {1, 1}},
      {1, 2, 9, 12, 1, {7}, {1}, {4}, {0}, {1}},
      {3, 2, 9, 1, 1, {5, 3, 4}, {1, 1, 1}, {1, 2, 3}, {0, 0, 0}, {1, 1, 1}},
      {2, 2, 16, 16, 1, {4, 4}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {2, 2, 16, 32, 2, {4, 4}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
      {3, 2, 9, 20, 1, {2, 3, 4}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}},
  };
  open_onednn();
  for (size_t i = 0; i < sizeof pixels / sizeof *pixels; ++i) {
    for (int op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_WEIGHT; ++op) {
      for (int turn = 0; turn < 4; ++turn) {
        bool has_bias = turn % 2 != 0 && op != HR_OP_CONV_BACKWARD_WEIGHT;
        image_layout x = turn < 2 ? IMAGE_CHANNELS_LAST : IMAGE_CHANNELS_LAST_SLICED;
        trial t = window_trial((hr_op)op, &pixels[i], HR_DTYPE_F32, x, IMAGE_DENSE, IMAGE_CHANNELS_LAST, has_bias);
        t.writes_weights = op != HR_OP_CONV_BACKWARD_WEIGHT;
        trial_must_pass(&t);
      }
    }
  }
}

/* ---- convolutions whose lanes are images ---- */

#define LANES_WINDOW(batch, in, out, h, w, kh, kw, ph, pw)      \
  {                                                             \
    2, batch, in, out, 1, {h, w}, {kh, kw}, {1, 1}, {ph, pw}, { \
      1, 1                                                      \
    }                                                           \
  }

static const window lane_windows[] = {
    LANES_WINDOW(64, 20, 50, 4, 3, 5, 5, 2, 2),  LANES_WINDOW(80, 1, 20, 9, 8, 5, 5, 2, 2),
    LANES_WINDOW(16, 3, 17, 6, 7, 3, 3, 0, 1),   LANES_WINDOW(48, 17, 3, 5, 9, 1, 1, 0, 0),
    LANES_WINDOW(16, 50, 100, 2, 3, 5, 5, 2, 2), LANES_WINDOW(1, 1, 1, 1, 1, 1, 1, 0, 0),
    LANES_WINDOW(65, 4, 1, 5, 4, 3, 2, 1, 0),    LANES_WINDOW(130, 2, 6, 4, 5, 2, 3, 1, 2),
    LANES_WINDOW(20, 7, 11, 9, 8, 7, 7, 6, 3),   LANES_WINDOW(64, 5, 4, 8, 3, 7, 1, 0, 0),
    LANES_WINDOW(17, 3, 5, 2, 19, 1, 7, 0, 5),   LANES_WINDOW(63, 6, 13, 2, 2, 3, 3, 4, 3),
    LANES_WINDOW(512, 3, 20, 3, 3, 3, 3, 1, 1),
};

/* Small ones too, which the provider leaves to others because they don't pay. */
static void check_lanes(hr_op op) {
  open_lanes();
  for (size_t i = 0; i < sizeof lane_windows / sizeof *lane_windows; ++i) {
    for (int turn = 0; turn < IMAGE_LAYOUTS; ++turn) {
      image_layout x = (image_layout)turn, y = (image_layout)random_below(IMAGE_LAYOUTS);
      trial t = window_trial(op, &lane_windows[i], HR_DTYPE_F32, turn % 2 == 0 ? x : y,
                             (image_layout)random_below(IMAGE_LAYOUTS), turn % 2 == 0 ? y : x, random_below(2) == 0);
      t.provider = &hr__lanes_provider;
      trial_node(&t);
      trial_check_node(&t);
    }
  }
}

HR_TEST(lanes_convolves) {
  check_lanes(HR_OP_CONV);
}

HR_TEST(lanes_gives_the_gradient_of_data) {
  check_lanes(HR_OP_CONV_BACKWARD_DATA);
}

/* The result, with this layout and number of threads; `infinite`: of an infinite weight and a NaN. */
static float *lane_bits(hr_op op, const window *q, image_layout layout, int threads, bool infinite) {
  hr_thread_count_set(threads);
  trial t = window_trial(op, q, HR_DTYPE_F32, layout, IMAGE_DENSE, layout, true);
  t.provider = &hr__lanes_provider;
  trial_node(&t);
  trial_prepare(&t);
  random_state = 11;
  trial_allocate(&t);
  conv_operands at = conv_operands_of(&t);
  if (infinite) { /* the first row and column of the first kernel, which lie outside of the image at the border */
    tensor *w = &t.tensors[at.w], *x = &t.tensors[0];
    write_element(w, tensor_at(w, 0), INFINITY);
    write_element(x, tensor_at(x, tensor_count(x) - 1), NAN);
  }
  trial_run(&t);
  tensor *out = trial_output(&t);
  float *bits = malloc((size_t)tensor_count(out) * sizeof *bits);
  HR_ASSERT_NOT_NULL(bits);
  for (int64_t i = 0; i < tensor_count(out); ++i) {
    bits[i] = (float)read_element(out, tensor_at(out, i));
  }
  trial_free(&t);
  trial_end(&t);
  hr_thread_count_set(0);
  return bits;
}

HR_TEST(lanes_gives_the_same_bits_with_any_threads_and_layout) {
  open_lanes();
  const window q = LANES_WINDOW(150, 20, 23, 6, 5, 5, 3, 2, 1);
  for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_DATA; ++op) {
    size_t bytes = (size_t)(150 * (op == HR_OP_CONV ? 23 : 20) * 6 * 5) * sizeof(float);
    float *one = lane_bits(op, &q, IMAGE_CHANNELS_LAST, 1, false);
    for (int threads = 1; threads <= 7; threads += 2) {
      for (int layout = 0; layout < IMAGE_LAYOUTS; ++layout) {
        float *other = lane_bits(op, &q, (image_layout)layout, threads, false);
        HR_ASSERT(memcmp(one, other, bytes) == 0);
        free(other);
      }
    }
    free(one);
  }
}

/* An infinite weight touches what it is multiplied with, NaN what its windows see, and nothing else. */
HR_TEST(lanes_skips_what_lies_outside_of_the_image) {
  open_lanes();
  const window q = LANES_WINDOW(70, 2, 3, 4, 5, 3, 3, 1, 1);
  float *y = lane_bits(HR_OP_CONV, &q, IMAGE_CHANNELS_LAST, 2, true);
  for (int64_t i = 0; i < 70 * 3 * 4 * 5; ++i) {
    int64_t column = i % 5, row = i / 5 % 4, channel = i / 20 % 3, image = i / 60;
    bool sees_nan = image == 69 && row >= 2 && column >= 3, is_infinite = channel == 0 && row > 0 && column > 0;
    HR_ASSERT_EQ(isnan(y[i]) != 0, sees_nan);
    HR_ASSERT(sees_nan || (isinf(y[i]) != 0) == is_infinite);
  }
  free(y);
}

HR_TEST(lanes_takes_channels_that_fill_no_vectors) {
  open_lanes();
  static const window taken[] = {LANES_WINDOW(512, 20, 50, 14, 14, 5, 5, 2, 2),
                                 LANES_WINDOW(512, 50, 100, 7, 7, 5, 5, 2, 2),
                                 LANES_WINDOW(64, 20, 20, 14, 14, 3, 3, 1, 1)};
  static const window left[] = {LANES_WINDOW(64, 64, 64, 56, 56, 3, 3, 1, 1),
                                LANES_WINDOW(64, 128, 128, 28, 28, 3, 3, 1, 1),
                                LANES_WINDOW(16, 20, 50, 14, 14, 5, 5, 2, 2),
                                LANES_WINDOW(512, 3, 32, 28, 28, 3, 3, 1, 1),
                                LANES_WINDOW(64, 20, 50, 14, 14, 1, 1, 0, 0),
                                {2, 64, 20, 20, 1, {14, 14}, {3, 3}, {2, 2}, {1, 1}, {1, 1}},
                                {2, 64, 20, 20, 1, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 2}},
                                {2, 64, 40, 40, 2, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
                                {1, 64, 20, 20, 1, {14}, {3}, {1}, {1}, {1}}};
  for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_WEIGHT; ++op) { /* the 3 to 32 channels pay backwards */
    for (size_t i = 0; i < sizeof taken / sizeof *taken + sizeof left / sizeof *left; ++i) {
      bool is_taken = i < sizeof taken / sizeof *taken && op != HR_OP_CONV_BACKWARD_WEIGHT;
      const window *q = i < sizeof taken / sizeof *taken ? &taken[i] : &left[i - sizeof taken / sizeof *taken];
      trial t = window_trial(op, q, HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST, false);
      t.provider = &hr__lanes_provider;
      trial_node(&t);
      bool may_be = op == HR_OP_CONV_BACKWARD_DATA && q->in == 3;
      HR_ASSERT(may_be || trial_is_supported(&t) == is_taken);
      hr_program_fini(&t.program);
    }
  }
  trial t = window_trial(HR_OP_CONV, &taken[2], HR_DTYPE_BF16, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
  t.provider = &hr__lanes_provider;
  trial_node(&t);
  HR_ASSERT(!trial_is_supported(&t));
  hr_program_fini(&t.program);
}

/* Weights have the same stamp exactly while they have the same bytes; 0: nobody knows. Other trials have other stamps. */
static void check_stamps(trial t) {
  static const uint64_t weight_stamps[] = {1, 1, 1, 1, 2, 2, 2, 0, 1, 1, 3, 4};
  static uint64_t base;
  base += 10;
  trial_node(&t);
  HR_ASSERT(trial_is_supported(&t));
  trial_prepare(&t);
  uint64_t start = random_state;
  for (size_t run = 0; run < sizeof weight_stamps / sizeof *weight_stamps; ++run) {
    uint64_t stamp = weight_stamps[run];
    uint64_t stamps[OPERANDS] = {100 + run, stamp != 0 ? base + stamp : 0, 200 + run, 300 + run};
    trial_allocate(&t);
    random_state = start + (stamp != 0 ? stamp : 1000);
    tensor_fill_input(&t.tensors[1]);
    random_state += 77 * run;
    t.provider->stamp(t.prepared, stamps);
    trial_run(&t);
    check_result(&t);
    trial_free(&t);
  }
  trial_end(&t);
}

HR_TEST(onednn_follows_weights_that_change) {
  open_onednn();
  const window q = {2, 2, 20, 50, 1, {7, 6}, {3, 2}, {1, 1}, {1, 0}, {1, 1}};
  for (hr_op op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_DATA; ++op) {
    check_stamps(window_trial(op, &q, HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, true));
  }
  const product p = {1, {3}, 18, 75, 81}, wide = {0, {0}, 5, 1030, 1030};
  check_stamps(product_trial(&hr__onednn_provider, &p, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_BROADCAST_BATCH, MATRIX_DENSE,
                             BIAS_VECTOR));
  check_stamps(product_trial(&hr__onednn_provider, &wide, HR_DTYPE_F32, MATRIX_STEPS, MATRIX_TRANSPOSED, MATRIX_STEPS,
                             BIAS_VECTOR));
  check_stamps(
      product_trial(&hr__onednn_provider, &wide, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT));
  hr__derived_forget_all();
}

/* Runs a product of these dims once for each stamp, always of the same numbers: every run gives the same bits. */
static void run_product(const product *q, int count, const uint64_t *stamps, size_t kept_bytes_after) {
  trial t =
      product_trial(&hr__onednn_provider, q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_TRANSPOSED, MATRIX_DENSE, BIAS_ABSENT);
  trial_node(&t);
  HR_ASSERT(trial_is_supported(&t));
  trial_prepare(&t);
  HR_ASSERT_EQ(t.provider->keeps(t.prepared), 1);
  unsigned char *first = NULL;
  for (int run = 0; run < count; ++run) {
    uint64_t all[OPERANDS] = {0, stamps[run], 0, 0};
    trial_allocate(&t);
    random_state = 99;
    tensor_fill_input(&t.tensors[1]);
    random_state = 5;
    tensor_fill_input(&t.tensors[0]);
    t.provider->stamp(t.prepared, all);
    trial_run(&t);
    check_result(&t);
    tensor *out = trial_output(&t);
    size_t bytes = (size_t)out->length * hr_dtype_size(out->dtype);
    first = first != NULL ? first : memcpy(malloc(bytes), out->bytes, bytes);
    HR_ASSERT(memcmp(first, out->bytes, bytes) == 0);
    trial_free(&t);
  }
  free(first);
  HR_ASSERT_EQ((size_t)hr__derived_bytes() / 1000, kept_bytes_after / 1000);
  trial_end(&t);
}

HR_TEST(onednn_keeps_one_packed_weight_for_products_of_all_heights) {
  open_onednn();
  hr__derived_forget_all();
  const product q[3] = {{0, {0}, 3, 256, 512}, {0, {0}, 40, 256, 512}, {0, {0}, 200, 256, 512}};
  const uint64_t first[] = {900001, 900001, 900001}, changing[] = {900002, 900003, 900004, 0, 0, 0};
  run_product(&q[0], 6, changing, 0);
  run_product(&q[0], 1, first, 0);
  run_product(&q[0], 3, first, 256 * 512 * 4);
  run_product(&q[1], 3, first, 256 * 512 * 4);
  run_product(&q[2], 3, first, 256 * 512 * 4);
  hr__derived_forget(900001);
  HR_ASSERT_EQ(hr__derived_bytes(), 0);
}

HR_TEST(onednn_keeps_nothing_of_what_the_program_writes) {
  open_onednn();
  const product q = {0, {0}, 3, 256, 512};
  trial t =
      product_trial(&hr__onednn_provider, &q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_TRANSPOSED, MATRIX_DENSE, BIAS_ABSENT);
  t.writes_weights = true;
  trial_node(&t);
  trial_prepare(&t);
  HR_ASSERT_EQ(t.provider->keeps(t.prepared), -1);
  trial_end(&t);
}

/* ---- threads and memory ---- */

HR_TEST(onednn_prepares_for_any_number_of_threads) {
  open_onednn();
  const product q = {1, {3}, 70, 65, 81};
  const window conv = {2, 4, 20, 50, 1, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}};
  for (int threads = 1; threads <= 2; ++threads) {
    hr_thread_count_set(threads);
    trial t = product_trial(&hr__onednn_provider, &q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_TRANSPOSED, MATRIX_DENSE,
                            BIAS_VECTOR);
    trial_must_pass(&t);
    for (int op = HR_OP_CONV; op <= HR_OP_CONV_BACKWARD_WEIGHT; ++op) {
      t = window_trial((hr_op)op, &conv, HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_CHANNELS_LAST, false);
      trial_must_pass(&t);
    }
  }
  hr_thread_count_set(0);
}

HR_TEST(onednn_leaves_the_callers_thread_count_alone) {
  open_onednn();
  const product q = {0, {0}, 4, 4, 4};
  trial t =
      product_trial(&hr__onednn_provider, &q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_ABSENT);
  int before = hr_library_threads_set(3);
  trial_must_pass(&t);
  int after = hr_library_threads_set(before);
  HR_ASSERT(after == 3 || after == before); /* `before` in builds without OpenMP, which have none to set */
}

static trial *memory_trial;

static hr_status prepare_and_release(void) {
  trial *t = memory_trial;
  t->prepared = NULL;
  HR_RETURN_IF_ERROR(t->provider->prepare(&t->program, &t->program.nodes[0], NULL, &t->prepared, &t->workspace_bytes));
  t->provider->release(t->prepared);
  return NULL;
}

static void check_memory(trial t) {
  trial_node(&t);
  HR_ASSERT(trial_is_supported(&t));
  memory_trial = &t;
  HR_TEST_OOM(prepare_and_release);
  hr_program_fini(&t.program);
}

static const product small = {0, {0}, 1, 6, 8};

HR_TEST(rows_reports_memory_that_is_out) {
  open_rows();
  check_memory(
      product_trial(&hr__rows_provider, &small, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_VECTOR));
  hr__rows_provider.release(NULL);
}

HR_TEST(lanes_reports_memory_that_is_out) {
  static const window q = LANES_WINDOW(64, 20, 20, 14, 14, 3, 3, 1, 1);
  open_lanes();
  trial t = window_trial(HR_OP_CONV, &q, HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_DENSE, true);
  t.provider = &hr__lanes_provider;
  check_memory(t);
  hr__lanes_provider.release(NULL);
}

HR_TEST(onednn_reports_memory_that_is_out) {
  open_onednn();
  check_memory(
      product_trial(&hr__onednn_provider, &small, HR_DTYPE_F32, MATRIX_STEPS, MATRIX_DENSE, MATRIX_STEPS, BIAS_VECTOR));
  check_memory(window_trial(HR_OP_CONV_BACKWARD_DATA, &windows[5], HR_DTYPE_F32, IMAGE_SLICED, IMAGE_SLICED,
                            IMAGE_SLICED, true));
  hr__onednn_provider.release(NULL);
}
