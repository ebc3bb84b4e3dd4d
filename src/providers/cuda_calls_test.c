/* The calls that the providers of CUDA devices make to their libraries, tested without a GPU. Plain loops on host
 * memory stand in for the functions of cuBLASLt and cuDNN, and reject everything that the libraries' documentation
 * forbids. cuda_providers_test.c runs the real libraries.
 */
#include "base/env.h"
#include "epilogue_cases.h"
#include "provider_cases.h"
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

/* The second choice is the suitable one; it carries the requested alignments. */
static int lt_choose(cublaslt_handle handle, cublaslt_matmul_desc desc, cublaslt_layout a, cublaslt_layout b,
                     cublaslt_layout c, cublaslt_layout d, cublaslt_preference preference, int most,
                     cublaslt_heuristic *heuristics, int *count) {
  (void)a, (void)b, (void)c, (void)d;
  if (handle == NULL || most < 2 || preference->reductions != 2 || preference->workspace == 0 ||
      (desc->epilogue == 4 && desc->bias == NULL)) {
    return INVALID;
  }
  memset(heuristics, 0, 2 * sizeof *heuristics);
  heuristics[0].status = CUBLASLT_NOT_SUPPORTED;
  heuristics[1].workspace_bytes = WORKSPACE_BYTES;
  for (int i = 0; i < 4; ++i) {
    heuristics[1].algo.data[i] = preference->alignments[i];
  }
  heuristics[1].algo.data[4] = (uintptr_t)desc->bias;
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
  hr__cublaslt_opened()->device = no_device;
  hr__cublaslt_opened()->table = (hr__cublaslt_table){lt_create,
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

static op_case lt_case(const product *q, hr_dtype dtype, matrix_layout a, matrix_layout b, matrix_layout out,
                       bias_layout bias) {
  op_case t = product_case(&hr__cublaslt_provider, q, dtype, a, b, out, bias);
  t.guard = bias > BIAS_NONE ? 16 : GUARD; /* only bias must be aligned for vectors */
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
      op_case t = lt_case(q, HR_DTYPE_F32, a, b, out, bias);
      bool is_row_major = out == MATRIX_DENSE || out == MATRIX_ROOM || out == MATRIX_BATCH_INSIDE;
      if (is_lt_matrix(a) && is_lt_matrix(b) && is_row_major && bias <= BIAS_EXPANDED && bias != BIAS_ONE) {
        op_case_must_pass(&t);
      } else {
        (void)op_case_check(&t);
      }
    }
  }
}

HR_TEST(cublaslt_multiplies_into_columns) {
  stand_in_for_cublaslt();
  for (int p = 0; p < PRODUCTS; ++p) {
    for (int a = MATRIX_DENSE; a <= MATRIX_TRANSPOSED_ROOM; ++a) {
      op_case t = lt_case(&products[p], HR_DTYPE_F32, (matrix_layout)a, MATRIX_ROOM, MATRIX_TRANSPOSED_ROOM, BIAS_NONE);
      op_case_must_pass(&t);
    }
  }
}

HR_TEST(cublaslt_multiplies_every_float) {
  stand_in_for_cublaslt();
  static const hr_dtype dtypes[] = {HR_DTYPE_F64, HR_DTYPE_F16, HR_DTYPE_BF16};
  for (int i = 0; i < 3 * PRODUCTS; ++i) {
    op_case t = lt_case(&products[i / 3], dtypes[i % 3], MATRIX_ROOM, MATRIX_TRANSPOSED, MATRIX_DENSE,
                        i % 2 == 0 ? BIAS_VECTOR : BIAS_NONE);
    op_case_must_pass(&t);
  }
}

HR_TEST(cublaslt_broadcasts_dims_of_one) {
  stand_in_for_cublaslt();
  for (int turn = 0; turn < 16; ++turn) {
    const product q = {2, {2, 3}, 4, 9, 6};
    op_case t = lt_case(&q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_TRANSPOSED, MATRIX_DENSE, BIAS_VECTOR);
    for (int i = 0; i < 4; ++i) {
      if ((turn >> i & 1) != 0) {
        t.tensors[i / 2].dims[i % 2] = 1;
        t.tensors[i / 2].strides[i % 2] = 1000 * (i % 3); /* must not matter */
      }
    }
    op_case_must_pass(&t);
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
    op_case a = lt_case(&q, HR_DTYPE_F32, layouts[i], MATRIX_DENSE, MATRIX_DENSE, BIAS_NONE);
    op_case b = lt_case(&q, HR_DTYPE_F32, MATRIX_DENSE, layouts[i], MATRIX_DENSE, BIAS_NONE);
    HR_ASSERT(!op_case_check(&a) && !op_case_check(&b));
  }
  for (size_t i = 0; i < sizeof biases / sizeof *biases; ++i) {
    op_case t = lt_case(&q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, biases[i]);
    HR_ASSERT(!op_case_check(&t));
  }
  op_case odd = lt_case(&q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_VECTOR);
  odd.guard = 17;
  HR_ASSERT(!op_case_check(&odd));
}

static cublaslt_product plan_of(op_case *t) {
  cublaslt_product p = {0};
  op_case_node(t);
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
    op_case t = lt_case(&cases[i].q, HR_DTYPE_F32, cases[i].a, cases[i].b, MATRIX_DENSE, BIAS_VECTOR);
    cublaslt_product p = plan_of(&t);
    HR_ASSERT_EQ(p.matrices[PRODUCT_D].columns, cases[i].rows);
    HR_ASSERT_EQ(p.batch, cases[i].batch);
    HR_ASSERT_EQ(p.loop_rank, cases[i].loops);
    op_case_must_pass(&t);
  }
}

HR_TEST(cublaslt_says_that_there_is_no_algorithm) {
  stand_in_for_cublaslt();
  has_algorithm = false;
  const product q = {1, {2}, 3, 8, 5};
  op_case t = lt_case(&q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_VECTOR);
  op_case_node(&t);
  hr_status status =
      t.provider->prepare(&t.program, &t.program.nodes[0], HR_ALGORITHM_OWN, NULL, &t.prepared, &t.workspace_bytes);
  HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_UNIMPLEMENTED);
  HR_ASSERT(strstr(hr_status_message(status), "[5, 3] of 8, batch 2, with bias") != NULL);
  hr_status_free(status);
  hr_program_fini(&t.program);
}

/* ---- cuDNN ---- */

enum { ATTRIBUTES = 12, DNN_VALUES = 8, DNN_SPATIAL = 3, DNN_RANK = DNN_SPATIAL + 2, DNN_ROLES = 3, DNN_EPILOGUES = 3 };

/* A finished graph's description; with fewer than three spatial dims the missing ones are in front. */
typedef struct dnn_graph {
  int kind; /* of the operation */
  int dtype, compute;
  int64_t dims[DNN_ROLES][DNN_RANK], strides[DNN_ROLES][DNN_RANK]; /* x, w, y: by their numbers */
  int64_t padding[DNN_SPATIAL], stride[DNN_SPATIAL], dilation[DNN_SPATIAL];
  int epilogue_count; /* sums and ReLU on y: numbers of the other operands, -1 for ReLU */
  int epilogues[DNN_EPILOGUES];
} dnn_graph;

struct cudnn_descriptor_struct {
  int kind, engine;
  bool is_final;
  int attribute_count;
  struct {
    int name, type;
    int64_t count;
    int64_t values[DNN_VALUES];
  } attributes[ATTRIBUTES];
  dnn_graph graph;
};

static int dnn_create(cudnn_handle *handle) {
  *handle = (cudnn_handle)(uintptr_t)16;
  return 0;
}
static int dnn_set_stream(cudnn_handle handle, void *stream) {
  return handle != NULL && stream == NULL ? 0 : INVALID;
}
static int dnn_create_descriptor(int kind, cudnn_descriptor *descriptor) {
  *descriptor = calloc(1, sizeof **descriptor);
  (*descriptor)->kind = kind;
  return 0;
}
static int dnn_destroy_descriptor(cudnn_descriptor descriptor) {
  free(descriptor);
  return 0;
}

static size_t dnn_size(int type) {
  bool is_int = type == CUDNN_TYPE_DTYPE || type == CUDNN_TYPE_F32 || type == CUDNN_TYPE_CONVOLUTION_MODE ||
                type == CUDNN_TYPE_HEURISTIC_MODE || type == CUDNN_TYPE_NOTE || type == CUDNN_TYPE_POINT_MODE ||
                type == CUDNN_TYPE_NAN_PROPAGATION;
  return type == CUDNN_TYPE_BOOL ? sizeof(bool) : is_int ? 4 : 8;
}

static int dnn_set(cudnn_descriptor d, int name, int type, int64_t count, const void *values) {
  if (d->is_final || d->attribute_count == ATTRIBUTES || count > DNN_VALUES) {
    return INVALID;
  }
  d->attributes[d->attribute_count].name = name;
  d->attributes[d->attribute_count].type = type;
  d->attributes[d->attribute_count].count = count;
  memcpy(d->attributes[d->attribute_count++].values, values, (size_t)count * dnn_size(type));
  return 0;
}

/* The values of an attribute of this type and this number of elements; NULL if it was not set so. */
static const void *dnn_look(cudnn_descriptor d, int name, int type, int64_t count) {
  for (int i = 0; d != NULL && i < d->attribute_count; ++i) {
    if (d->attributes[i].name == name && d->attributes[i].type == type && d->attributes[i].count == count) {
      return d->attributes[i].values;
    }
  }
  return NULL;
}

static int dnn_int(cudnn_descriptor d, int name, int type) {
  const int *value = dnn_look(d, name, type, 1);
  return value != NULL ? *value : -1;
}

static cudnn_descriptor dnn_part(cudnn_descriptor d, int name) {
  const cudnn_descriptor *part = dnn_look(d, name, CUDNN_TYPE_DESCRIPTOR, 1);
  return part != NULL && (*part)->is_final ? *part : NULL;
}

static bool dnn_lay(const int64_t *values, int spatial, int64_t missing, int64_t *out) {
  for (int i = 0; values != NULL && i < DNN_SPATIAL; ++i) {
    out[i] = i < DNN_SPATIAL - spatial ? missing : values[i - (DNN_SPATIAL - spatial)];
  }
  return values != NULL;
}

static bool dnn_read_tensor(cudnn_descriptor t, int spatial, dnn_graph *g) {
  const int64_t *dims = dnn_look(t, CUDNN_TENSOR_DIMS, CUDNN_TYPE_INT64, spatial + 2);
  const int64_t *strides = dnn_look(t, CUDNN_TENSOR_STRIDES, CUDNN_TYPE_INT64, spatial + 2);
  const int64_t *alignment = dnn_look(t, CUDNN_TENSOR_ALIGNMENT, CUDNN_TYPE_INT64, 1);
  const int64_t *id = dnn_look(t, CUDNN_TENSOR_ID, CUDNN_TYPE_INT64, 1);
  bool is_virtual = dnn_look(t, CUDNN_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOL, 1) != NULL;
  if (dims == NULL || strides == NULL || alignment == NULL || *alignment != 16 || id == NULL || *id < 0 ||
      (is_virtual ? *id <= 4 : *id > 2)) {
    return false;
  }
  int dtype = dnn_int(t, CUDNN_TENSOR_DTYPE, CUDNN_TYPE_DTYPE), role = is_virtual ? 2 : (int)*id;
  bool is_same = g->dtype == -1 || g->dtype == dtype;
  g->dtype = dtype;
  memcpy(g->dims[role], dims, 2 * sizeof *dims);
  memcpy(g->strides[role], strides, 2 * sizeof *strides);
  return is_same && dnn_lay(dims + 2, spatial, 1, g->dims[role] + 2) &&
         dnn_lay(strides + 2, spatial, 0, g->strides[role] + 2);
}

static bool dnn_read_operation(cudnn_descriptor d, dnn_graph *g) {
  int first = d->kind == CUDNN_CONV ? 700 : d->kind == CUDNN_CONV_BACKWARD_DATA ? 706 : 712;
  cudnn_descriptor w = dnn_part(d, first + 2);
  const int64_t *spatial = dnn_look(w, CUDNN_WINDOW_SPATIAL, CUDNN_TYPE_INT64, 1);
  g->kind = d->kind, g->dtype = -1;
  bool ok = spatial != NULL && dnn_int(w, CUDNN_WINDOW_MODE, CUDNN_TYPE_CONVOLUTION_MODE) == 1;
  for (int i = 0; ok && i < DNN_ROLES; ++i) {
    ok = dnn_read_tensor(dnn_part(d, first + 3 + i), (int)*spatial, g);
  }
  if (!ok) {
    return false;
  }
  g->compute = dnn_int(w, CUDNN_WINDOW_COMPUTE, CUDNN_TYPE_DTYPE);
  const int64_t *after = dnn_look(w, CUDNN_WINDOW_PADDING_AFTER, CUDNN_TYPE_INT64, *spatial);
  const int64_t *before = dnn_look(w, CUDNN_WINDOW_PADDING_BEFORE, CUDNN_TYPE_INT64, *spatial);
  bool is_f64 = g->dtype == CUDNN_F64;
  int factor = is_f64 ? CUDNN_TYPE_F64 : CUDNN_TYPE_F32;
  const void *alpha = dnn_look(d, first, factor, 1), *beta = dnn_look(d, first + 1, factor, 1);
  return after != NULL && before != NULL && memcmp(after, before, (size_t)*spatial * sizeof *after) == 0 &&
         alpha != NULL && beta != NULL && lt_is_one(is_f64 ? 1 : 0, alpha, beta) &&
         dnn_lay(before, (int)*spatial, 0, g->padding) &&
         dnn_lay(dnn_look(w, CUDNN_WINDOW_STRIDES, CUDNN_TYPE_INT64, *spatial), (int)*spatial, 1, g->stride) &&
         dnn_lay(dnn_look(w, CUDNN_WINDOW_DILATIONS, CUDNN_TYPE_INT64, *spatial), (int)*spatial, 1, g->dilation);
}

/* A sum with a residual or a bias, in this order, or ReLU. Reads the result of the operation before; returns its own.
 */
static cudnn_descriptor dnn_read_epilogue(cudnn_descriptor d, cudnn_descriptor value, dnn_graph *g) {
  cudnn_descriptor point = dnn_part(d, CUDNN_POINTWISE_POINT), other = dnn_part(d, CUDNN_POINTWISE_OTHER);
  const int64_t *id = other != NULL ? dnn_look(other, CUDNN_TENSOR_ID, CUDNN_TYPE_INT64, 1) : NULL;
  int mode = dnn_int(point, CUDNN_POINT_MODE, CUDNN_TYPE_POINT_MODE),
      last = g->epilogue_count > 0 ? g->epilogues[g->epilogue_count - 1] : 0;
  int epilogue = id != NULL ? (int)*id : -1;
  bool is_right = epilogue == -1 ? last == 4 && mode == CUDNN_RELU
                                 : mode == CUDNN_ADD && (epilogue == 3 || epilogue == 4) && epilogue > last;
  g->epilogues[g->epilogue_count++] = epilogue;
  return is_right && last != -1 && dnn_part(d, CUDNN_POINTWISE_X) == value &&
                 dnn_int(point, CUDNN_POINT_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPAGATION) == CUDNN_PROPAGATE_NAN
             ? dnn_part(d, CUDNN_POINTWISE_Y)
             : NULL;
}

static bool dnn_read_graph(cudnn_descriptor d, dnn_graph *g) {
  for (int count = 1; count <= 1 + DNN_EPILOGUES; ++count) {
    const cudnn_descriptor *operations = dnn_look(d, CUDNN_GRAPH_OPERATIONS, CUDNN_TYPE_DESCRIPTOR, count);
    if (operations != NULL) {
      *g = operations[0]->graph;
      cudnn_descriptor value = count > 1 ? dnn_part(operations[0], CUDNN_CONV_ATTRIBUTES + 5) : NULL;
      for (int i = 1; i < count && value != NULL; ++i) {
        value = dnn_read_epilogue(operations[i], value, g);
      }
      const int64_t *id = dnn_look(value, CUDNN_TENSOR_ID, CUDNN_TYPE_INT64, 1);
      return operations[0]->is_final && (count == 1 || (id != NULL && *id == 2 && g->epilogues[0] >= 3));
    }
  }
  return false;
}

/* Engine 3 can't be planned, and engine 4 needs too much memory. */
static int dnn_finalize(cudnn_descriptor d) {
  const cudnn_handle *handle = dnn_look(d, CUDNN_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1);
  cudnn_descriptor part = NULL;
  bool ok = true;
  switch (d->kind) {
    case CUDNN_CONV:
    case CUDNN_CONV_BACKWARD_DATA:
    case CUDNN_CONV_BACKWARD_WEIGHT:
      ok = dnn_read_operation(d, &d->graph);
      break;
    case CUDNN_GRAPH:
      ok = dnn_read_graph(d, &d->graph) && dnn_look(d, CUDNN_GRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1) != NULL;
      break;
    case CUDNN_HEURISTIC:
      part = dnn_part(d, CUDNN_HEURISTIC_GRAPH);
      ok = part != NULL;
      break;
    case CUDNN_PLAN:
      part = dnn_part(d, CUDNN_PLAN_CONFIG);
      ok = part != NULL && handle != NULL && *handle == (cudnn_handle)(uintptr_t)16 && part->engine != 3;
      d->engine = ok ? part->engine : 0;
      break;
    default:
      break;
  }
  if (ok && part != NULL) {
    d->graph = part->graph;
  }
  d->is_final = ok;
  return ok ? 0 : CUDNN_NOT_SUPPORTED;
}

/* Engines: Winograd's, one that is not deterministic, one that is broken, one that needs too much memory, and a
 * suitable one on tensor cores. For epilogues: one that compiles, and one whose ReLU turns NaN into 0. */
static int dnn_notes(int engine, int64_t *count, int *notes) {
  static const int all[][2] = {{-1, -1},
                               {CUDNN_NOTE_WINOGRAD, 6},
                               {CUDNN_NOTE_NONDETERMINISTIC, 0},
                               {0, -1},
                               {0, -1},
                               {CUDNN_NOTE_TENSOR_CORE, -1},
                               {-1, -1},
                               {-1, -1}};
  *count = (all[engine][0] >= 0) + (all[engine][1] >= 0);
  memcpy(notes, all[engine], (size_t)*count * sizeof *notes);
  return 0;
}

static int dnn_propose(cudnn_descriptor d, int64_t most, int64_t *count, cudnn_descriptor *configs) {
  bool is_fallback = dnn_int(d, CUDNN_HEURISTIC_MODE, CUDNN_TYPE_HEURISTIC_MODE) == CUDNN_HEURISTIC_FALLBACK;
  static const int proposed[] = {6, 7, 1, 2, 3, 4};
  int first = d->graph.epilogue_count > 0 ? 0 : 2;
  *count = !has_algorithm ? 0 : is_fallback ? 1 : 6 - first;
  for (int i = 0; i < *count && i < most; ++i) {
    configs[i]->engine = is_fallback ? 5 : proposed[first + i];
    configs[i]->graph = d->graph;
    configs[i]->is_final = true;
  }
  return d->is_final ? 0 : INVALID;
}

static int dnn_get(cudnn_descriptor d, int name, int type, int64_t most, int64_t *count, void *values) {
  *count = 1;
  if (name == CUDNN_HEURISTIC_RESULTS && type == CUDNN_TYPE_DESCRIPTOR) {
    return dnn_propose(d, most, count, values);
  }
  if (name == CUDNN_ENGINE_CONFIG_ENGINE && type == CUDNN_TYPE_DESCRIPTOR) {
    (*(cudnn_descriptor *)values)->engine = d->engine;
    return 0;
  }
  if (name == CUDNN_ENGINE_NOTES && type == CUDNN_TYPE_NOTE && most >= 2) {
    return dnn_notes(d->engine, count, values);
  }
  if (name == CUDNN_ENGINE_BEHAVIORS && type == CUDNN_TYPE_BEHAVIOR && most >= 1) {
    *count = d->engine == 6;
    *(int *)values = CUDNN_BEHAVIOR_COMPILES;
    return 0;
  }
  if (name == CUDNN_PLAN_WORKSPACE && type == CUDNN_TYPE_INT64) {
    *(int64_t *)values = d->engine >= 5 ? WORKSPACE_BYTES : INT64_C(1) << 40;
    return 0;
  }
  return INVALID;
}

static hr_dtype dnn_dtype(int dtype) {
  return dtype == 9 ? HR_DTYPE_BF16 : lt_dtype(dtype);
}

static int64_t dnn_at(const dnn_graph *g, int role, const int64_t *index) {
  int64_t at = 0;
  for (int d = 0; d < DNN_RANK; ++d) {
    at += index[d] * g->strides[role][d];
  }
  return at;
}

static int64_t dnn_count(const int64_t *dims, int rank) {
  int64_t count = 1;
  for (int d = 0; d < rank; ++d) {
    count *= dims[d];
  }
  return count;
}

static void dnn_unravel(int64_t i, const int64_t *dims, int rank, int64_t *index) {
  for (int d = rank - 1; d >= 0; --d) {
    index[d] = i % dims[d];
    i /= dims[d];
  }
}

/* Adds the contributions of one element of y, or of its gradient, and the window under it. */
static void dnn_window(const dnn_graph *g, void *const operands[DNN_ROLES], double *sums, int out, const int64_t *y) {
  const int64_t *wd = g->dims[1];
  int64_t groups = g->dims[0][1] / wd[1], group = y[1] / (wd[0] / groups), at[DNN_ROLES];
  for (int64_t i = 0; i < dnn_count(wd + 1, DNN_RANK - 1); ++i) {
    int64_t w[DNN_RANK] = {y[1]}, x[DNN_RANK] = {y[0]};
    bool is_inside = true;
    dnn_unravel(i, wd + 1, DNN_RANK - 1, w + 1);
    x[1] = group * wd[1] + w[1];
    for (int d = 0; d < DNN_SPATIAL; ++d) {
      x[2 + d] = y[2 + d] * g->stride[d] - g->padding[d] + w[2 + d] * g->dilation[d];
      is_inside &= x[2 + d] >= 0 && x[2 + d] < g->dims[0][2 + d];
    }
    if (is_inside) {
      double term = 1;
      at[0] = dnn_at(g, 0, x), at[1] = dnn_at(g, 1, w), at[2] = dnn_at(g, 2, y);
      for (int r = 0; r < DNN_ROLES; ++r) {
        term *= r == out ? 1 : load(dnn_dtype(g->dtype), operands[r], at[r]);
      }
      sums[at[out]] += term;
    }
  }
}

/* The result's element `i`, channels last. */
static double dnn_epilogue(const dnn_graph *g, void *const *operands, bool drops_nan, double value, int64_t i) {
  for (int k = 0; k < g->epilogue_count; ++k) {
    int epilogue = g->epilogues[k];
    bool is_clipped = epilogue < 0 && (drops_nan ? !(value > 0) : value <= 0);
    value = is_clipped     ? 0
            : epilogue < 0 ? value
                           : value + load(HR_DTYPE_F32, operands[epilogue], epilogue == 3 ? i : i % g->dims[2][1]);
  }
  return value;
}

static int dnn_execute(cudnn_handle handle, cudnn_descriptor plan, cudnn_descriptor pack) {
  const dnn_graph *g = &plan->graph;
  int sums_of_others = 0;
  for (int i = 0; i < g->epilogue_count; ++i) {
    sums_of_others += g->epilogues[i] >= 0;
  }
  const int64_t *ids = dnn_look(pack, CUDNN_PACK_IDS, CUDNN_TYPE_INT64, DNN_ROLES + sums_of_others);
  void *const *given = dnn_look(pack, CUDNN_PACK_POINTERS, CUDNN_TYPE_POINTER, DNN_ROLES + sums_of_others),
              *operands[DNN_ROLES + DNN_EPILOGUES] = {NULL};
  void *const *workspace = dnn_look(pack, CUDNN_PACK_WORKSPACE, CUDNN_TYPE_POINTER, 1);
  if (handle == NULL || !plan->is_final || !pack->is_final || plan->engine < 5 || plan->engine == 6 || ids == NULL ||
      given == NULL || workspace == NULL || !is_workspace(*workspace, WORKSPACE_BYTES) ||
      g->compute != (g->dtype == CUDNN_F64 ? CUDNN_F64 : CUDNN_F32)) {
    return INVALID;
  }
  for (int i = 0; i < DNN_ROLES + sums_of_others; ++i) {
    operands[ids[i]] = given[i];
  }
  int out = g->kind == CUDNN_CONV ? 2 : g->kind == CUDNN_CONV_BACKWARD_DATA ? 0 : 1;
  int64_t made = dnn_count(g->dims[out], DNN_RANK), index[DNN_RANK];
  double *sums = calloc((size_t)made, sizeof *sums); /* dense: as many as the memory has elements */
  for (int64_t i = 0; i < dnn_count(g->dims[2], DNN_RANK); ++i) {
    dnn_unravel(i, g->dims[2], DNN_RANK, index);
    dnn_window(g, operands, sums, out, index);
  }
  for (int64_t i = 0; i < made; ++i) {
    store(dnn_dtype(g->dtype), operands[out], i, dnn_epilogue(g, operands, plan->engine == 7, sums[i], i));
  }
  free(sums);
  return 0;
}

static int dnn_allocate(uint64_t *address, size_t bytes) {
  enum { ALIGNMENT = 256 };
  *address = (uint64_t)(uintptr_t)aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  return 0;
}
static int dnn_free(uint64_t address) {
  free((void *)(uintptr_t)address);
  return 0;
}
static int dnn_fill(uint64_t address, unsigned char value, size_t count) {
  memset((void *)(uintptr_t)address, value, count);
  return 0;
}
static int dnn_copy(void *host, uint64_t address, size_t bytes) {
  memcpy(host, (const void *)(uintptr_t)address, bytes);
  return 0;
}

static void stand_in_for_cudnn(void) {
  random_state = 7;
  has_algorithm = true;
  hr__cudnn_opened()->driver = (hr__cudnn_driver_table){no_device, dnn_allocate, dnn_free, dnn_fill, dnn_copy};
  hr__cudnn_opened()->table = (hr__cudnn_table){
      dnn_create,   dnn_set_stream, lt_version, name_status, dnn_create_descriptor, dnn_destroy_descriptor,
      dnn_finalize, dnn_set,        dnn_get,    dnn_execute};
}

/* ---- convolutions ---- */

static op_case dnn_case(hr_op op, const window *q, hr_dtype dtype, image_layout x, image_layout w, image_layout y,
                        bool has_bias) {
  op_case t = window_case(op, q, dtype, x, w, y, has_bias);
  t.provider = &hr__cudnn_provider;
  t.guard = 16; /* a view at an address that the library's kernels can read */
  return t;
}

static void check_dnn_windows(hr_op op) {
  stand_in_for_cudnn();
  static const hr_dtype dtypes[] = {HR_DTYPE_F32, HR_DTYPE_F16, HR_DTYPE_BF16, HR_DTYPE_F64};
  for (int i = 0; i < WINDOWS; ++i) {
    for (int turn = 0; turn < 7; ++turn) { /* f64 with channels first alone */
      image_layout layout = turn % 2 == 0 ? IMAGE_DENSE : IMAGE_CHANNELS_LAST;
      op_case t = dnn_case(op, &windows[i], dtypes[turn / 2], layout, layout, layout, false);
      if (window_skips(op, &windows[i])) {
        HR_ASSERT(!op_case_check(&t));
      } else {
        op_case_must_pass(&t);
      }
    }
    for (int turn = 0; turn < IMAGE_LAYOUTS * IMAGE_LAYOUTS; ++turn) {
      op_case t = dnn_case(op, &windows[i], HR_DTYPE_F32, (image_layout)(turn / IMAGE_LAYOUTS),
                           (image_layout)random_below(IMAGE_LAYOUTS), (image_layout)(turn % IMAGE_LAYOUTS), false);
      (void)op_case_check(&t);
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

static void *allocate_here(void *ctx, size_t bytes) {
  uint64_t address;
  (void)ctx;
  HR_ASSERT_EQ(dnn_allocate(&address, bytes), 0);
  return (void *)(uintptr_t)address;
}
static void release_here(void *ctx, void *address, size_t bytes) {
  (void)ctx, (void)bytes;
  free(address);
}
static void copy_here(void *ctx, void *to, const void *from, size_t bytes) {
  (void)ctx;
  memcpy(to, from, bytes);
}

HR_TEST(cudnn_adds_bias_and_residual_and_keeps_nan) {
  const op_case_memory here = {
      .allocate = allocate_here, .release = release_here, .copy_in = copy_here, .copy_out = copy_here};
  stand_in_for_cudnn();
  check_all_epilogues(&hr__cudnn_provider, &here, EPILOGUES_SMALL_WINDOWS, epilogues_small_windows);
}

HR_TEST(cudnn_leaves_mixed_formats_bias_and_odd_addresses) {
  stand_in_for_cudnn();
  const window q = {2, 2, 8, 12, 1, {7, 6}, {3, 2}, {1, 1}, {1, 0}, {1, 1}};
  op_case mixed = dnn_case(HR_OP_CONV, &q, HR_DTYPE_F32, IMAGE_CHANNELS_LAST, IMAGE_DENSE, IMAGE_CHANNELS_LAST, false);
  op_case bias = dnn_case(HR_OP_CONV, &q, HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, true);
  op_case odd = dnn_case(HR_OP_CONV, &q, HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
  op_case larger = dnn_case(HR_OP_CONV, &q, HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
  odd.guard = 3;
  larger.tensors[2].dims[3] -= 1,
      set_image(&larger.tensors[2], IMAGE_DENSE); /* more padding on the left than on the right */
  HR_ASSERT(!op_case_check(&mixed) && !op_case_check(&bias) && !op_case_check(&odd) && !op_case_check(&larger));
}

HR_TEST(cudnn_says_that_there_is_no_algorithm) {
  stand_in_for_cudnn();
  has_algorithm = false;
  const window unseen = {2, 2, 20, 50, 1, {9, 6}, {3, 2}, {1, 1}, {1, 0}, {1, 1}};
  op_case t = dnn_case(HR_OP_CONV, &unseen, HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false);
  op_case_node(&t);
  hr_status status =
      t.provider->prepare(&t.program, &t.program.nodes[0], HR_ALGORITHM_OWN, NULL, &t.prepared, &t.workspace_bytes);
  HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_UNIMPLEMENTED);
  HR_ASSERT(strstr(hr_status_message(status), "x f32 [2,20,9,6], w [50,20,3,2], channels first") != NULL);
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
  bool is_there = status == HR_OK;
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

HR_TEST(memory_that_is_out_is_reported) {
  stand_in_for_cublaslt();
  stand_in_for_cudnn();
  const product q = {0, {0}, 2, 6, 8};
  op_case cases[] = {lt_case(&q, HR_DTYPE_F32, MATRIX_DENSE, MATRIX_DENSE, MATRIX_DENSE, BIAS_VECTOR),
                     dnn_case(HR_OP_CONV, &windows[5], HR_DTYPE_F32, IMAGE_DENSE, IMAGE_DENSE, IMAGE_DENSE, false)};
  for (int i = 0; i < 2; ++i) {
    op_case_check_memory(&cases[i]);
  }
}
