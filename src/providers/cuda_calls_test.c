/* What the providers of CUDA devices ask of their libraries, without a GPU: the functions of cuBLASLt and cuDNN are stood in for by
 * plain loops on host memory, which refuse whatever the libraries' documentation forbids. cuda_providers_test.c runs the real ones.
 */
#include "base/env.h"
#include "provider_trials.h"
#include "providers/cublaslt/cublaslt_api.h"
#include "providers/cublaslt/product.h"
#include "providers/cudnn/cudnn_api.h"

enum { INVALID = 7, WORKSPACE_BYTES = 1000 };

static int no_device(int *out_device) {
  *out_device = 0;
  return 0;
}

static const char *name_status(int status) {
  return status == 0 ? "fine" : "not fine";
}

/* An element of memory as a double, and back. */
static double load(hr_dtype dtype, const void *base, int64_t at) {
  return read_element(&(tensor){.dtype = dtype, .bytes = (unsigned char *)(uintptr_t)base}, at);
}

static void store(hr_dtype dtype, void *base, int64_t at, double value) {
  write_element(&(tensor){.dtype = dtype, .bytes = base}, at, value);
}

static bool is_workspace(const void *workspace, size_t bytes) {
  return workspace != NULL && (uintptr_t)workspace % 256 == 0 && bytes == WORKSPACE_BYTES;
}

/* ---- cuBLASLt ---- */

struct cublaslt_matmul_desc_struct {
  int compute, scale;
  int32_t transposed[2];
  uint32_t epilogue;
  const void *bias;
};
struct cublaslt_layout_struct {
  int dtype;
  int64_t rows, columns, leading, batch_stride;
  int32_t batch;
};
struct cublaslt_preference_struct {
  uint64_t workspace;
  uint32_t reductions, alignments[4];
};

static bool has_algorithm;

static hr_dtype lt_dtype(int dtype) {
  return dtype == 0 ? HR_DTYPE_F32 : dtype == 1 ? HR_DTYPE_F64 : dtype == 2 ? HR_DTYPE_F16 : HR_DTYPE_BF16;
}

static int lt_create(cublaslt_handle *handle) {
  *handle = (cublaslt_handle)(uintptr_t)16;
  return 0;
}
static int lt_desc_create(cublaslt_matmul_desc *desc, int compute, int scale) {
  *desc = calloc(1, sizeof **desc);
  (*desc)->compute = compute, (*desc)->scale = scale;
  return 0;
}
static int lt_desc_destroy(cublaslt_matmul_desc desc) {
  free(desc);
  return 0;
}
static int lt_desc_set(cublaslt_matmul_desc desc, int attribute, const void *value, size_t bytes) {
  void *to = attribute == 3   ? (void *)&desc->transposed[0]
             : attribute == 4 ? (void *)&desc->transposed[1]
             : attribute == 7 ? (void *)&desc->epilogue
                              : (void *)&desc->bias;
  if (attribute > 8 || bytes != (attribute == 8 ? 8 : 4)) {
    return INVALID;
  }
  memcpy(to, value, bytes);
  return 0;
}
static int lt_layout_create(cublaslt_layout *layout, int dtype, uint64_t rows, uint64_t columns, int64_t leading) {
  *layout = calloc(1, sizeof **layout);
  **layout = (struct cublaslt_layout_struct){dtype, (int64_t)rows, (int64_t)columns, leading, 0, 1};
  return leading >= (int64_t)rows ? 0 : INVALID;
}
static int lt_layout_destroy(cublaslt_layout layout) {
  free(layout);
  return 0;
}
static int lt_layout_set(cublaslt_layout layout, int attribute, const void *value, size_t bytes) {
  if ((attribute != 5 && attribute != 6) || bytes != (attribute == 5 ? 4 : 8)) {
    return INVALID;
  }
  memcpy(attribute == 5 ? (void *)&layout->batch : (void *)&layout->batch_stride, value, bytes);
  return 0;
}
static int lt_preference_create(cublaslt_preference *preference) {
  *preference = calloc(1, sizeof **preference);
  return 0;
}
static int lt_preference_destroy(cublaslt_preference preference) {
  free(preference);
  return 0;
}
static int lt_preference_set(cublaslt_preference preference, int attribute, const void *value, size_t bytes) {
  void *to = attribute == 1   ? (void *)&preference->workspace
             : attribute == 3 ? (void *)&preference->reductions
                              : (void *)&preference->alignments[attribute - 5];
  if (bytes != (attribute == 1 ? 8 : 4)) {
    return INVALID;
  }
  memcpy(to, value, bytes);
  return 0;
}

/* The second choice is the one to take; it carries the alignments that it was asked for. */
static int lt_choose(cublaslt_handle handle, cublaslt_matmul_desc desc, cublaslt_layout a, cublaslt_layout b,
                     cublaslt_layout c, cublaslt_layout d, cublaslt_preference preference, int most,
                     cublaslt_choice *choices, int *count) {
  (void)a, (void)b, (void)c, (void)d;
  if (handle == NULL || most < 2 || preference->reductions != 2 || preference->workspace == 0 ||
      (desc->epilogue == 4 && desc->bias == NULL)) {
    return INVALID;
  }
  memset(choices, 0, 2 * sizeof *choices);
  choices[0].status = CUBLASLT_NOT_SUPPORTED;
  choices[1].workspace_bytes = WORKSPACE_BYTES;
  for (int i = 0; i < 4; ++i) {
    choices[1].algo.data[i] = preference->alignments[i];
  }
  choices[1].algo.data[4] = (uintptr_t)desc->bias;
  *count = has_algorithm ? 2 : 1;
  return 0;
}

static bool is_aligned(const void *address, uint64_t alignment) {
  return alignment > 0 && (uintptr_t)address % alignment == 0;
}

static bool lt_is_one(int scale, const void *alpha, const void *beta) {
  return scale == 1 ? *(const double *)alpha == 1 && *(const double *)beta == 0
                    : scale == 0 && *(const float *)alpha == 1 && *(const float *)beta == 0;
}

static double lt_element(const struct cublaslt_layout_struct *l, const void *base, bool transposed, int64_t batch,
                         int64_t row, int64_t column) {
  int64_t i = transposed ? column : row, j = transposed ? row : column;
  return load(lt_dtype(l->dtype), base, batch * l->batch_stride + i + j * l->leading);
}

static int lt_matmul(cublaslt_handle handle, cublaslt_matmul_desc desc, const void *alpha, const void *a,
                     cublaslt_layout al, const void *b, cublaslt_layout bl, const void *beta, const void *c,
                     cublaslt_layout cl, void *d, cublaslt_layout dl, const cublaslt_algo *algo, void *workspace,
                     size_t workspace_bytes, void *stream) {
  bool ta = desc->transposed[0] == 1, tb = desc->transposed[1] == 1;
  int64_t m = ta ? al->columns : al->rows, k = ta ? al->rows : al->columns, n = tb ? bl->rows : bl->columns;
  bool is_f64 = dl->dtype == 1;
  if (handle == NULL || stream != NULL || c != d || cl != dl || m != dl->rows || n != dl->columns ||
      k != (tb ? bl->columns : bl->rows) || al->batch != dl->batch || bl->batch != dl->batch ||
      al->dtype != dl->dtype || bl->dtype != dl->dtype || desc->compute != (is_f64 ? 70 : 68) ||
      desc->scale != (is_f64 ? 1 : 0) || !lt_is_one(desc->scale, alpha, beta) || !is_aligned(a, algo->data[0]) ||
      !is_aligned(b, algo->data[1]) || !is_aligned(d, algo->data[2]) || !is_aligned(d, algo->data[3]) ||
      (desc->epilogue == 4 && !is_aligned(desc->bias, algo->data[4])) || !is_workspace(workspace, workspace_bytes)) {
    return INVALID;
  }
  for (int64_t i = 0; i < dl->batch * m * n; ++i) {
    int64_t batch = i / (m * n), row = i % m, column = i / m % n;
    double sum = desc->epilogue == 4 ? load(lt_dtype(dl->dtype), desc->bias, row) : 0;
    for (int64_t j = 0; j < k; ++j) {
      sum += lt_element(al, a, ta, batch, row, j) * lt_element(bl, b, tb, batch, j, column);
    }
    store(lt_dtype(dl->dtype), d, batch * dl->batch_stride + row + column * dl->leading, sum);
  }
  return 0;
}

static size_t lt_version(void) {
  return 0;
}

static void stand_in_for_cublaslt(void) {
  random_state = 7;
  has_algorithm = true;
  hr__cublaslt_device = no_device;
  hr__cublaslt = (hr__cublaslt_table){lt_create,
                                      lt_version,
                                      name_status,
                                      lt_desc_create,
                                      lt_desc_destroy,
                                      lt_desc_set,
                                      lt_layout_create,
                                      lt_layout_destroy,
                                      lt_layout_set,
                                      lt_preference_create,
                                      lt_preference_destroy,
                                      lt_preference_set,
                                      lt_choose,
                                      lt_matmul};
}

/* ---- matrix products ---- */

static trial lt_trial(const product *q, hr_dtype dtype, matrix_layout a, matrix_layout b, matrix_layout out,
                      bias_layout bias) {
  trial t = product_trial(&hr__cublaslt_provider, q, dtype, a, b, out, bias);
  t.guard = bias > BIAS_NONE ? 16 : GUARD; /* bias starts where vectors can be read; nothing else has to */
  return t;
}

static bool is_lt_matrix(matrix_layout layout) {
  return layout <= MATRIX_TRANSPOSED_ROOM || layout == MATRIX_BATCH_INSIDE || layout == MATRIX_BROADCAST_BATCH ||
         layout == MATRIX_WINDOWS_BATCH;
}

HR_TEST(cublaslt_multiplies_in_every_layout) {
  stand_in_for_cublaslt();
  for (int p = 0; p < PRODUCTS; ++p) {
    const product *q = &products[p];
    for (int turn = 0; turn < MATRIX_LAYOUTS * MATRIX_LAYOUTS; ++turn) {
      matrix_layout a = (matrix_layout)(turn % MATRIX_LAYOUTS), b = (matrix_layout)(turn / MATRIX_LAYOUTS);
      matrix_layout out = (matrix_layout)random_below(MATRIX_OUTPUTS);
      bias_layout bias = (bias_layout)random_below(BIAS_LAYOUTS);
      trial t = lt_trial(q, HR_DTYPE_F32, a, b, out, bias);
      bool is_row_major = out == MATRIX_DENSE || out == MATRIX_ROOM || out == MATRIX_BATCH_INSIDE;
      if (is_lt_matrix(a) && is_lt_matrix(b) && is_row_major && bias <= BIAS_EXPANDED && bias != BIAS_ONE) {
        trial_must_pass(&t);
      } else {
        (void)trial_check(&t);
      }
    }
  }
}

HR_TEST(cublaslt_multiplies_into_columns) {
  stand_in_for_cublaslt();
  for (int p = 0; p < PRODUCTS; ++p) {
    for (int a = MATRIX_DENSE; a <= MATRIX_TRANSPOSED_ROOM; ++a) {
      trial t = lt_trial(&products[p], HR_DTYPE_F32, (matrix_layout)a, MATRIX_ROOM, MATRIX_TRANSPOSED_ROOM, BIAS_NONE);
      trial_must_pass(&t);
    }
  }
}

HR_TEST(cublaslt_multiplies_every_float) {
  stand_in_for_cublaslt();
  static const hr_dtype dtypes[] = {HR_DTYPE_F64, HR_DTYPE_F16, HR_DTYPE_BF16};
  for (int i = 0; i < 3 * PRODUCTS; ++i) {
    trial t = lt_trial(&products[i / 3], dtypes[i % 3], MATRIX_ROOM, MATRIX_TRANSPOSED, MATRIX_DENSE,
                       i % 2 == 0 ? BIAS_VECTOR : BIAS_NONE);
    trial_must_pass(&t);
  }
}

HR_TEST(cublaslt_broadcasts_dims_of_one) {
  stand_in_for_cublaslt();
  for (int turn = 0; turn < 16; ++turn) {
    const product q = {2, {2, 3}, 4, 9, 6};
    trial t = lt_trial(&q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_TRANSPOSED, MATRIX_DENSE, BIAS_VECTOR);
    for (int i = 0; i < 4; ++i) {
      if ((turn >> i & 1) != 0) {
        t.tensors[i / 2].dims[i % 2] = 1;
        t.tensors[i / 2].strides[i % 2] = 1000 * (i % 3); /* must not matter */
      }
    }
    trial_must_pass(&t);
  }
}

HR_TEST(cublaslt_leaves_what_it_has_no_words_for) {
  stand_in_for_cublaslt();
  const product q = {1, {2}, 3, 8, 5};
  static const matrix_layout layouts[] = {MATRIX_STEPS,          MATRIX_REVERSED,          MATRIX_REVERSED_ROWS,
                                          MATRIX_BROADCAST_ROWS, MATRIX_BROADCAST_COLUMNS, MATRIX_WINDOWS,
                                          MATRIX_BATCH_INNERMOST};
  static const bias_layout biases[] = {BIAS_ONE, BIAS_NUMBER, BIAS_STEPS, BIAS_CONSTANT, BIAS_COLUMN, BIAS_FULL};
  for (size_t i = 0; i < sizeof layouts / sizeof *layouts; ++i) {
    trial a = lt_trial(&q, HR_DTYPE_F32, layouts[i], MATRIX_DENSE, MATRIX_DENSE, BIAS_NONE);
    trial b = lt_trial(&q, HR_DTYPE_F32, MATRIX_DENSE, layouts[i], MATRIX_DENSE, BIAS_NONE);
    HR_ASSERT(!trial_check(&a) && !trial_check(&b));
  }
  for (size_t i = 0; i < sizeof biases / sizeof *biases; ++i) {
    trial t = lt_trial(&q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, biases[i]);
    HR_ASSERT(!trial_check(&t));
  }
  trial odd = lt_trial(&q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_VECTOR);
  odd.guard = 17;
  HR_ASSERT(!trial_check(&odd));
}

static cublaslt_product plan_of(trial *t) {
  cublaslt_product p = {0};
  trial_node(t);
  HR_ASSERT(hr__cublaslt_product(&t->program.nodes[0], &p));
  hr_program_fini(&t->program);
  return p;
}

/* A weight shared by a batch: one product of all rows. Heads of attention: a batch, and a loop around it. */
HR_TEST(cublaslt_merges_batches) {
  stand_in_for_cublaslt();
  const struct product_dims {
    product q;
    matrix_layout a, b;
    int64_t rows, batch;
    int loops;
  } cases[] = {{{2, {4, 5}, 3, 8, 6}, MATRIX_DENSE, MATRIX_BROADCAST_BATCH, 60, 1, 0},
               {{2, {4, 5}, 3, 8, 6}, MATRIX_DENSE, MATRIX_DENSE, 3, 20, 0},
               {{2, {4, 5}, 3, 8, 6}, MATRIX_BROADCAST_BATCH, MATRIX_DENSE, 3, 20, 0},
               {{2, {4, 5}, 1, 8, 6}, MATRIX_DENSE, MATRIX_BROADCAST_BATCH, 20, 1, 0},
               {{2, {4, 5}, 3, 8, 6}, MATRIX_ROOM, MATRIX_DENSE, 3, 5, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
    trial t = lt_trial(&cases[i].q, HR_DTYPE_F32, cases[i].a, cases[i].b, MATRIX_DENSE, BIAS_VECTOR);
    cublaslt_product p = plan_of(&t);
    HR_ASSERT_EQ(p.matrices[PRODUCT_D].columns, cases[i].rows);
    HR_ASSERT_EQ(p.batch, cases[i].batch);
    HR_ASSERT_EQ(p.loop_rank, cases[i].loops);
    trial_must_pass(&t);
  }
}

HR_TEST(cublaslt_says_that_there_is_no_algorithm) {
  stand_in_for_cublaslt();
  has_algorithm = false;
  const product q = {1, {2}, 3, 8, 5};
  trial t = lt_trial(&q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_VECTOR);
  trial_node(&t);
  hr_status status = t.provider->prepare(&t.program, &t.program.nodes[0], NULL, &t.prepared, &t.workspace_bytes);
  HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_UNIMPLEMENTED);
  HR_ASSERT(strstr(hr_status_message(status), "[5, 3] of 8, batch 2, with bias") != NULL);
  hr_status_free(status);
  hr_program_fini(&t.program);
}

/* ---- cuDNN ---- */

struct cudnn_tensor_struct {
  int format, dtype, dims[4];
};
struct cudnn_filter_struct {
  struct cudnn_tensor_struct as;
};
struct cudnn_convolution_struct {
  int padding[2], stride[2], dilation[2], compute, groups, math;
};

static int dnn_create(cudnn_handle *handle) {
  *handle = (cudnn_handle)(uintptr_t)16;
  return 0;
}
static int dnn_set_stream(cudnn_handle handle, void *stream) {
  return handle != NULL && stream == NULL ? 0 : INVALID;
}
static int dnn_tensor_create(cudnn_tensor *desc) {
  *desc = calloc(1, sizeof **desc);
  return 0;
}
static int dnn_tensor_destroy(cudnn_tensor desc) {
  free(desc);
  return 0;
}
static int dnn_tensor_set(cudnn_tensor desc, int format, int dtype, int n, int c, int h, int w) {
  *desc = (struct cudnn_tensor_struct){format, dtype, {n, c, h, w}};
  return 0;
}
static int dnn_filter_create(cudnn_filter *desc) {
  *desc = calloc(1, sizeof **desc);
  return 0;
}
static int dnn_filter_destroy(cudnn_filter desc) {
  free(desc);
  return 0;
}
static int dnn_filter_set(cudnn_filter desc, int dtype, int format, int k, int c, int h, int w) {
  return dnn_tensor_set(&desc->as, format, dtype, k, c, h, w);
}
static int dnn_window_create(cudnn_convolution *desc) {
  *desc = calloc(1, sizeof **desc);
  return 0;
}
static int dnn_window_destroy(cudnn_convolution desc) {
  free(desc);
  return 0;
}
static int dnn_window_set(cudnn_convolution desc, int padding_h, int padding_w, int stride_h, int stride_w,
                          int dilation_h, int dilation_w, int mode, int compute) {
  *desc = (struct cudnn_convolution_struct){
      {padding_h, padding_w}, {stride_h, stride_w}, {dilation_h, dilation_w}, compute, 1, 0};
  return mode == 1 ? 0 : INVALID;
}
static int dnn_set_math(cudnn_convolution desc, int math) {
  desc->math = math;
  return 0;
}
static int dnn_set_groups(cudnn_convolution desc, int groups) {
  desc->groups = groups;
  return 0;
}

/* Winograd's, one that is not deterministic, one that needs too much memory, and one to take. */
static int dnn_rank(int most, int *count, cudnn_choice *choices) {
  static const cudnn_choice ranked[] = {{.algorithm = 6, .is_deterministic = 1},
                                        {.algorithm = 0},
                                        {.algorithm = 1, .status = 3000, .is_deterministic = 1},
                                        {.algorithm = 2, .is_deterministic = 1},
                                        {.algorithm = 1, .is_deterministic = 1}};
  *count = has_algorithm ? 5 : 0;
  memcpy(choices, ranked, sizeof ranked);
  return most >= 5 ? 0 : INVALID;
}
static int dnn_measure(int algorithm, size_t *bytes) {
  *bytes = algorithm == 1 ? WORKSPACE_BYTES : (size_t)1 << 40;
  return has_algorithm ? 0 : 3000;
}

static int dnn_forward_rank(cudnn_handle handle, cudnn_tensor x, cudnn_filter w, cudnn_convolution desc, cudnn_tensor y,
                            int most, int *count, cudnn_choice *choices) {
  (void)handle, (void)x, (void)w, (void)desc, (void)y;
  return dnn_rank(most, count, choices);
}
static int dnn_forward_measure(cudnn_handle handle, cudnn_tensor x, cudnn_filter w, cudnn_convolution desc,
                               cudnn_tensor y, int algorithm, size_t *bytes) {
  (void)handle, (void)x, (void)w, (void)desc, (void)y;
  return dnn_measure(algorithm, bytes);
}
static int dnn_data_rank(cudnn_handle handle, cudnn_filter w, cudnn_tensor dy, cudnn_convolution desc, cudnn_tensor dx,
                         int most, int *count, cudnn_choice *choices) {
  return dnn_forward_rank(handle, dx, w, desc, dy, most, count, choices);
}
static int dnn_data_measure(cudnn_handle handle, cudnn_filter w, cudnn_tensor dy, cudnn_convolution desc,
                            cudnn_tensor dx, int algorithm, size_t *bytes) {
  return dnn_forward_measure(handle, dx, w, desc, dy, algorithm, bytes);
}
static int dnn_filter_rank(cudnn_handle handle, cudnn_tensor x, cudnn_tensor dy, cudnn_convolution desc,
                           cudnn_filter dw, int most, int *count, cudnn_choice *choices) {
  return dnn_forward_rank(handle, x, dw, desc, dy, most, count, choices);
}
static int dnn_filter_measure(cudnn_handle handle, cudnn_tensor x, cudnn_tensor dy, cudnn_convolution desc,
                              cudnn_filter dw, int algorithm, size_t *bytes) {
  return dnn_forward_measure(handle, x, dw, desc, dy, algorithm, bytes);
}

static int64_t dnn_at(const struct cudnn_tensor_struct *t, int64_t n, int64_t c, int64_t h, int64_t w) {
  const int *d = t->dims;
  return t->format == 0 ? ((n * d[1] + c) * d[2] + h) * d[3] + w : ((n * d[2] + h) * d[3] + w) * d[1] + c;
}

static int64_t dnn_count(const struct cudnn_tensor_struct *t) {
  return (int64_t)t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
}

static hr_dtype dnn_dtype(int dtype) {
  return dtype == 9 ? HR_DTYPE_BF16 : lt_dtype(dtype);
}

typedef struct dnn_call {
  const struct cudnn_tensor_struct *x, *w, *y;
  const struct cudnn_convolution_struct *desc;
  int out;           /* 0 x, 1 w, 2 y: what is made */
  void *operands[3]; /* x, w, y */
  double *sums;
} dnn_call;

static void dnn_tap(const dnn_call *c, int64_t x, int64_t w, int64_t y) {
  hr_dtype dtype = dnn_dtype(c->x->dtype);
  const int64_t at[3] = {x, w, y};
  double term = 1;
  for (int i = 0; i < 3; ++i) {
    term *= i == c->out ? 1 : load(dtype, c->operands[i], at[i]);
  }
  c->sums[at[c->out]] += term;
}

static void dnn_window(const dnn_call *c, int64_t n, int64_t o, int64_t row, int64_t column) {
  const struct cudnn_convolution_struct *q = c->desc;
  int64_t depth = c->w->dims[1], group = o / (c->w->dims[0] / q->groups);
  for (int64_t i = 0; i < depth * c->w->dims[2] * c->w->dims[3]; ++i) {
    int64_t kw = i % c->w->dims[3], kh = i / c->w->dims[3] % c->w->dims[2], ch = i / c->w->dims[3] / c->w->dims[2];
    int64_t h = row * q->stride[0] - q->padding[0] + kh * q->dilation[0];
    int64_t w = column * q->stride[1] - q->padding[1] + kw * q->dilation[1];
    if (h >= 0 && h < c->x->dims[2] && w >= 0 && w < c->x->dims[3]) {
      dnn_tap(c, dnn_at(c->x, n, group * depth + ch, h, w), dnn_at(c->w, o, ch, kh, kw),
              dnn_at(c->y, n, o, row, column));
    }
  }
}

static int dnn_run(dnn_call c, const void *alpha, const void *beta, int algorithm, const void *workspace,
                   size_t bytes) {
  const struct cudnn_tensor_struct *made = c.out == 0 ? c.x : c.out == 1 ? c.w : c.y;
  hr_dtype dtype = dnn_dtype(c.x->dtype);
  bool is_f64 = dtype == HR_DTYPE_F64;
  if (algorithm != 1 || !is_workspace(workspace, bytes) || c.x->format != c.y->format || c.x->format != c.w->format ||
      c.x->dtype != c.y->dtype || c.x->dtype != c.w->dtype || c.desc->compute != (is_f64 ? 1 : 0) ||
      !lt_is_one(is_f64 ? 1 : 0, alpha, beta) || c.x->dims[1] != c.w->dims[1] * c.desc->groups) {
    return INVALID;
  }
  c.sums = calloc((size_t)dnn_count(made), sizeof *c.sums);
  for (int64_t i = 0; i < dnn_count(c.y); ++i) {
    const int *d = c.y->dims;
    dnn_window(&c, i / d[3] / d[2] / d[1], i / d[3] / d[2] % d[1], i / d[3] % d[2], i % d[3]);
  }
  for (int64_t i = 0; i < dnn_count(made); ++i) {
    store(dtype, c.operands[c.out], i, c.sums[i]);
  }
  free(c.sums);
  return 0;
}

static void *unconst(const void *p) {
  return (void *)(uintptr_t)p;
}

static int dnn_forward(cudnn_handle handle, const void *alpha, cudnn_tensor xd, const void *x, cudnn_filter wd,
                       const void *w, cudnn_convolution desc, int algorithm, void *workspace, size_t bytes,
                       const void *beta, cudnn_tensor yd, void *y) {
  (void)handle;
  return dnn_run((dnn_call){xd, &wd->as, yd, desc, 2, {unconst(x), unconst(w), y}, NULL}, alpha, beta, algorithm,
                 workspace, bytes);
}
static int dnn_data(cudnn_handle handle, const void *alpha, cudnn_filter wd, const void *w, cudnn_tensor yd,
                    const void *y, cudnn_convolution desc, int algorithm, void *workspace, size_t bytes,
                    const void *beta, cudnn_tensor xd, void *x) {
  (void)handle;
  return dnn_run((dnn_call){xd, &wd->as, yd, desc, 0, {x, unconst(w), unconst(y)}, NULL}, alpha, beta, algorithm,
                 workspace, bytes);
}
static int dnn_filter(cudnn_handle handle, const void *alpha, cudnn_tensor xd, const void *x, cudnn_tensor yd,
                      const void *y, cudnn_convolution desc, int algorithm, void *workspace, size_t bytes,
                      const void *beta, cudnn_filter wd, void *w) {
  (void)handle;
  return dnn_run((dnn_call){xd, &wd->as, yd, desc, 1, {unconst(x), w, unconst(y)}, NULL}, alpha, beta, algorithm,
                 workspace, bytes);
}

static void stand_in_for_cudnn(void) {
  random_state = 7;
  has_algorithm = true;
  hr__cudnn_device = no_device;
  hr__cudnn = (hr__cudnn_table){
      dnn_create,     dnn_set_stream,    lt_version,         name_status,      dnn_tensor_create,   dnn_tensor_destroy,
      dnn_tensor_set, dnn_filter_create, dnn_filter_destroy, dnn_filter_set,   dnn_window_create,   dnn_window_destroy,
      dnn_window_set, dnn_set_math,      dnn_set_groups,     dnn_forward_rank, dnn_forward_measure, dnn_forward,
      dnn_data_rank,  dnn_data_measure,  dnn_data,           dnn_filter_rank,  dnn_filter_measure,  dnn_filter};
}

/* ---- convolutions ---- */

static trial dnn_trial(hr_op op, const window *q, hr_dtype dtype, image_layout x, image_layout w, image_layout y,
                       bool has_bias) {
  trial t = window_trial(op, q, dtype, x, w, y, has_bias);
  t.provider = &hr__cudnn_provider;
  t.guard = 16; /* a view that starts where the library's kernels can read */
  return t;
}

static void check_dnn_windows(hr_op op) {
  stand_in_for_cudnn();
  static const hr_dtype dtypes[] = {HR_DTYPE_F32, HR_DTYPE_F16, HR_DTYPE_BF16, HR_DTYPE_F64};
  for (int i = 0; i < WINDOWS; ++i) {
    for (int turn = 0; turn < 7; ++turn) { /* f64 with channels first alone */
      image_layout layout = turn % 2 == 0 ? IMAGE_DENSE : IMAGE_CHANNELS_LAST;
      trial t = dnn_trial(op, &windows[i], dtypes[turn / 2], layout, layout, layout, false);
      if (windows[i].spatial <= 2) {
        trial_must_pass(&t);
      } else {
        HR_ASSERT(!trial_check(&t));
      }
    }
    for (int turn = 0; turn < IMAGE_LAYOUTS * IMAGE_LAYOUTS; ++turn) {
      trial t = dnn_trial(op, &windows[i], HR_DTYPE_F32, (image_layout)(turn / IMAGE_LAYOUTS),
                          (image_layout)random_below(IMAGE_LAYOUTS), (image_layout)(turn % IMAGE_LAYOUTS), false);
      (void)trial_check(&t);
    }
  }
}

HR_TEST(cudnn_convolves) {
  check_dnn_windows(HR_OP_CONV);
}
HR_TEST(cudnn_gives_the_gradient_of_data) {
  check_dnn_windows(HR_OP_CONV_BACKWARD_DATA);
}
HR_TEST(cudnn_gives_the_gradient_of_weights) {
  check_dnn_windows(HR_OP_CONV_BACKWARD_WEIGHT);
}

HR_TEST(cudnn_leaves_mixed_formats_bias_and_odd_addresses) {
  stand_in_for_cudnn();
  const window q = {2, 2, 8, 12, 1, {7, 6}, {3, 2}, {1, 1}, {1, 0}, {1, 1}};
  trial mixed = dnn_trial(HR_OP_CONV, &q, HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST, false);
  trial bias = dnn_trial(HR_OP_CONV, &q, HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, true);
  trial odd = dnn_trial(HR_OP_CONV, &q, HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
  trial larger = dnn_trial(HR_OP_CONV, &q, HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
  odd.guard = 3;
  larger.tensors[2].dims[3] -= 1,
      set_image(&larger.tensors[2], IMAGE_DENSE); /* more padding on the left than on the right */
  HR_ASSERT(!trial_check(&mixed) && !trial_check(&bias) && !trial_check(&odd) && !trial_check(&larger));
}

HR_TEST(cudnn_says_that_there_is_no_algorithm) {
  stand_in_for_cudnn();
  has_algorithm = false;
  trial t = dnn_trial(HR_OP_CONV, &windows[5], HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
  trial_node(&t);
  hr_status status = t.provider->prepare(&t.program, &t.program.nodes[0], NULL, &t.prepared, &t.workspace_bytes);
  HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_UNIMPLEMENTED);
  HR_ASSERT(strstr(hr_status_message(status), "x f32 [2,20,7,6], w [50,20,3,2], channels first") != NULL);
  hr_status_free(status);
  hr_program_fini(&t.program);
}

/* ---- opening, and memory that is out ---- */

static void check_missing(const hr_provider *provider, const char *name) {
  setenv("HEADRACE_CUDA_LIBS", "/nowhere:/neither", 1);
  hr__env_reload();
  hr_status status = provider->open();
  unsetenv("HEADRACE_CUDA_LIBS");
  hr__env_reload();
  bool is_there = status == NULL;
  bool is_said = is_there || (strstr(hr_status_message(status), "/nowhere/") != NULL &&
                              strstr(hr_status_message(status), "HEADRACE_CUDA_LIBS") != NULL &&
                              strstr(hr_status_message(status), name) != NULL &&
                              hr_status_code_of(status) == HR_STATUS_UNAVAILABLE);
  hr_status_ignore(status);
  HR_ASSERT(is_said);
}

HR_TEST(libraries_that_are_missing_are_named) {
  check_missing(&hr__cublaslt_provider, "libcublasLt.so.13");
  check_missing(&hr__cudnn_provider, "libcudnn.so.9");
}

static trial *memory_trial;

static hr_status prepare_and_release(void) {
  trial *t = memory_trial;
  t->prepared = NULL;
  HR_RETURN_IF_ERROR(t->provider->prepare(&t->program, &t->program.nodes[0], NULL, &t->prepared, &t->workspace_bytes));
  t->provider->release(t->prepared);
  return NULL;
}

HR_TEST(memory_that_is_out_is_reported) {
  stand_in_for_cublaslt();
  stand_in_for_cudnn();
  const product q = {0, {0}, 2, 6, 8};
  trial trials[] = {lt_trial(&q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_VECTOR),
                    dnn_trial(HR_OP_CONV, &windows[5], HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false)};
  for (int i = 0; i < 2; ++i) {
    memory_trial = &trials[i];
    trial_node(memory_trial);
    HR_TEST_OOM(prepare_and_release);
    hr_program_fini(&memory_trial->program);
    memory_trial->provider->release(NULL);
  }
}
