/* ops_reduce.c: rules of reductions, softmax, losses and products. */
#include <math.h>

#include "lists.h"

/* ---- reductions ---- */

typedef struct axes {
  int64_t axis[HTF_LIST_MAX];
  int count;
  bool keeps_dims;
} axes;

/* The axes of input 1. Bad ones are TensorFlow's InvalidArgumentError. */
static axes read_axes(htf_node *node, htf_value x) {
  axes found = {.keeps_dims = htf_flag(node, "keep_dims")};
  found.count = htf_host_ints(node, 1, found.axis, HTF_LIST_MAX);
  uint32_t seen = 0;
  for (int i = 0; i < found.count; ++i) {
    int64_t axis = found.axis[i] < 0 ? found.axis[i] + x->rank : found.axis[i];
    if (axis < 0 || axis >= x->rank) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: invalid reduction dimension %lld for an input of %d dims",
               node->kernel->row->op, (long long)found.axis[i], x->rank);
      break;
    }
    if ((seen >> axis & 1) != 0) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: Axes contains duplicate dimension: %lld", node->kernel->row->op,
               (long long)axis);
    }
    seen |= 1u << axis;
    found.axis[i] = axis;
  }
  return found;
}

static htf_value reduce(htf_node *node, hr_functional function, htf_value x, const axes *over) {
  bool has_dtype = function == HR_FUNCTIONAL_SUM || function == HR_FUNCTIONAL_PROD;
  return htf_call(node, function, INPUTS(x), 2 + has_dtype,
                  (hr_attribute[]){htf_attr_ints(over->axis, over->count), htf_attr_flag(over->keeps_dims),
                                   htf_attr_dtype(x->dtype)});
}

/* True if elements of the result have none to reduce. */
static bool is_over_nothing(htf_value x, const axes *over) {
  bool is_empty = false;
  for (int i = 0; i < over->count; ++i) {
    is_empty = is_empty || x->dims[over->axis[i]] == 0;
  }
  return is_empty;
}

/* The least or the largest number of a dtype: the maximum or the minimum of nothing. */
static hr_scalar bound_of(hr_dtype dtype, bool is_least) {
  switch (dtype) {
    case HR_DTYPE_I8:
      return hr_scalar_i64(is_least ? INT8_MIN : INT8_MAX);
    case HR_DTYPE_I16:
      return hr_scalar_i64(is_least ? INT16_MIN : INT16_MAX);
    case HR_DTYPE_I32:
      return hr_scalar_i64(is_least ? INT32_MIN : INT32_MAX);
    case HR_DTYPE_I64:
      return hr_scalar_i64(is_least ? INT64_MIN : INT64_MAX);
    case HR_DTYPE_U8:
      return hr_scalar_i64(is_least ? 0 : UINT8_MAX);
    case HR_DTYPE_U16:
      return hr_scalar_i64(is_least ? 0 : UINT16_MAX);
    case HR_DTYPE_U32:
      return hr_scalar_i64(is_least ? 0 : UINT32_MAX);
    case HR_DTYPE_U64:
      return is_least ? hr_scalar_i64(0) : hr_scalar_u64(UINT64_MAX);
    default:
      return hr_scalar_f64(is_least ? -(double)INFINITY : (double)INFINITY);
  }
}

static htf_value extreme_of_nothing(htf_node *node, htf_value x, const axes *over) {
  int64_t dims[HR_RANK_MAX];
  int rank = 0;
  for (int d = 0; d < x->rank; ++d) {
    bool is_reduced = false;
    for (int i = 0; i < over->count; ++i) {
      is_reduced = is_reduced || over->axis[i] == d;
    }
    if (!is_reduced || over->keeps_dims) {
      dims[rank++] = is_reduced ? 1 : x->dims[d];
    }
  }
  hr_scalar bound = bound_of(x->dtype, node->function == HR_FUNCTIONAL_MAX);
  return htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(htf_number_of(node, bound)),
                  ATTRIBUTES(htf_attr_ints(dims, rank), htf_attr_dtype(x->dtype)));
}

static bool is_complex(htf_value x) {
  return x->dtype == HR_DTYPE_C64 || x->dtype == HR_DTYPE_C128;
}

/* The sum over the count, without its fraction; 0 of no elements. */
static htf_value mean_of_integers(htf_node *node, htf_value x, const axes *over) {
  int64_t count = 1;
  for (int i = 0; i < over->count; ++i) {
    count *= x->dims[over->axis[i]];
  }
  htf_value sum = reduce(node, HR_FUNCTIONAL_SUM, x, over);
  return htf_divide_truncated(node, sum, htf_number_of(node, hr_scalar_i64(count > 0 ? count : 1)));
}

/* As in TensorFlow the mean of no complex numbers is 0. */
void htf_reduce(htf_node *node) {
  htf_value x = htf_input(node, 0);
  axes over = read_axes(node, x);
  bool is_extreme = node->function == HR_FUNCTIONAL_MAX || node->function == HR_FUNCTIONAL_MIN;
  if (htf_has_failed(node)) {
    return;
  }
  if (over.count == 0) {
    htf_output(node, 0, x);
  } else if (is_extreme && is_over_nothing(x, &over)) {
    htf_output(node, 0, extreme_of_nothing(node, x, &over));
  } else if (node->function == HR_FUNCTIONAL_MEAN && (x->dtype == HR_DTYPE_I32 || x->dtype == HR_DTYPE_I64)) {
    htf_output(node, 0, mean_of_integers(node, x, &over));
  } else {
    bool is_zero = node->function == HR_FUNCTIONAL_MEAN && is_complex(x) && is_over_nothing(x, &over);
    htf_output(node, 0, reduce(node, is_zero ? HR_FUNCTIONAL_SUM : node->function, x, &over));
  }
}

void htf_euclidean_norm(htf_node *node) {
  htf_value x = htf_input(node, 0);
  axes over = read_axes(node, x);
  bool is_real = htf_has_failed(node) || !is_complex(x);
  htf_value squares = htf_multiply(node, x, is_real ? x : htf_call1(node, HR_FUNCTIONAL_CONJ, x));
  htf_value sum = over.count > 0 ? reduce(node, HR_FUNCTIONAL_SUM, squares, &over) : squares;
  htf_output(node, 0, htf_call1(node, HR_FUNCTIONAL_SQRT, sum));
}

void htf_arg_reduce(htf_node *node) {
  htf_value x = htf_input(node, 0);
  int64_t axis = htf_host_int(node, 1);
  if (!htf_has_failed(node) && (axis < -x->rank || axis >= x->rank)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: dimension %lld is out of range for %d dims", node->kernel->row->op,
             (long long)axis, x->rank);
    return;
  }
  axis += axis < 0 ? x->rank : 0;
  if (!htf_has_failed(node) && x->dims[axis] == 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: Reduction axis %lld is empty in shape %s", node->kernel->row->op,
             (long long)axis, htf_text_of_dims(x->rank, x->dims).text);
  }
  htf_output(node, 0,
             htf_call(node, node->function, INPUTS(x), ATTRIBUTES(htf_attr_ints(&axis, 1), htf_attr_flag(false))));
}

/* ---- running sums and products ---- */

/* The result of `exclusive`: the first element is 0 or 1, or stands for the logarithm of 0, and the last one of x does
 * not count. */
static htf_value shift_in(htf_node *node, htf_value x, int axis) {
  double first = node->function == HR_FUNCTIONAL_CUMULATIVE_PROD ? 1 : 0;
  first = node->function == HR_FUNCTIONAL_LOGCUMSUMEXP ? -(double)INFINITY : first;
  int64_t before[HR_RANK_MAX] = {0}, after[HR_RANK_MAX] = {0};
  before[axis] = 1, after[axis] = -1;
  return htf_call(node, HR_FUNCTIONAL_PAD, INPUTS(x),
                  ATTRIBUTES(htf_attr_ints(before, x->rank), htf_attr_ints(after, x->rank), htf_attr_real(first)));
}

static htf_value flip(htf_node *node, htf_value x, int64_t axis) {
  return htf_call(node, HR_FUNCTIONAL_FLIP, INPUTS(x), ATTRIBUTES(htf_attr_ints(&axis, 1)));
}

void htf_cumulative(htf_node *node) {
  htf_value x = htf_input(node, 0);
  htf_expect_rank(node, 1, 0, "axis must be a scalar");
  int64_t axis = htf_host_int(node, 1);
  if (!htf_has_failed(node) && (axis < -x->rank || axis >= x->rank)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: Expected scan axis in the range [%d, %d), it is %lld",
             node->kernel->row->op, -x->rank, x->rank, (long long)axis);
  }
  if (htf_has_failed(node)) {
    return;
  }
  axis += axis < 0 ? x->rank : 0;
  if (hr_tensor_count(x) == 0) {
    htf_output(node, 0, x);
    return;
  }
  bool is_reverse = htf_flag(node, "reverse");
  htf_value y = is_reverse ? flip(node, x, axis) : x;
  y = htf_flag(node, "exclusive") ? shift_in(node, y, (int)axis) : y;
  const hr_attribute attributes[3] = {htf_attr_int(axis), htf_attr_flag(false), htf_attr_dtype(x->dtype)};
  y = htf_call(node, node->function, INPUTS(y), node->function == HR_FUNCTIONAL_LOGCUMSUMEXP ? 1 : 3, attributes);
  htf_output(node, 0, is_reverse ? flip(node, y, axis) : y);
}

/* ---- softmax and losses ---- */

void htf_softmax(htf_node *node) {
  htf_value x = htf_input(node, 0);
  if (!htf_has_failed(node) && x->rank < 1) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: logits must have at least one dim", node->kernel->row->op);
  }
  if (!htf_has_failed(node) && hr_tensor_count(x) == 0) {
    htf_output(node, 0, x);
    return;
  }
  htf_output(node, 0, htf_call(node, node->function, INPUTS(x), ATTRIBUTES(htf_attr_int(-1))));
}

static htf_value sum_of_rows(htf_node *node, htf_value x) {
  static const int64_t last = 1;
  return htf_call(node, HR_FUNCTIONAL_SUM, INPUTS(x),
                  ATTRIBUTES(htf_attr_ints(&last, 1), htf_attr_flag(false), htf_attr_dtype(x->dtype)));
}

static htf_value call_rows(htf_node *node, hr_functional function, htf_value x) {
  return htf_call(node, function, INPUTS(x), ATTRIBUTES(htf_attr_int(1)));
}

/* Sets both outputs of a loss without elements: no rows, or rows of none. */
static void output_empty(htf_node *node, hr_dtype dtype, const int64_t *dims) {
  htf_value zero = htf_number_of(node, hr_scalar_i64(0));
  htf_output(
      node, 0,
      htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(zero), ATTRIBUTES(htf_attr_ints(dims, 1), htf_attr_dtype(dtype))));
  htf_output(
      node, 1,
      htf_call(node, HR_FUNCTIONAL_FULL, INPUTS(zero), ATTRIBUTES(htf_attr_ints(dims, 2), htf_attr_dtype(dtype))));
}

/* Outputs: the losses [N] and their gradient [N, C]. Rows of either input may be broadcast. */
void htf_softmax_cross_entropy(htf_node *node) {
  htf_value logits = htf_input(node, 0), labels = htf_input(node, 1);
  if (!htf_has_failed(node) && (logits->rank != 2 || labels->rank != 2)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: logits and labels must have 2 dims, they have %d and %d",
             node->kernel->row->op, logits->rank, labels->rank);
  }
  if (htf_has_failed(node)) {
    return;
  }
  int64_t dims[2];
  for (int d = 0; d < 2; ++d) {
    dims[d] = logits->dims[d] == 1 ? labels->dims[d] : logits->dims[d];
  }
  logits = htf_broadcast(node, logits, 2, dims), labels = htf_broadcast(node, labels, 2, dims);
  if (!htf_has_failed(node) && dims[0] * dims[1] == 0) {
    output_empty(node, logits->dtype, dims);
    return;
  }
  htf_value terms = htf_multiply(node, labels, call_rows(node, HR_FUNCTIONAL_LOG_SOFTMAX, logits));
  htf_output(node, 0, htf_call1(node, HR_FUNCTIONAL_NEGATIVE, sum_of_rows(node, terms)));
  htf_output(node, 1, htf_subtract(node, call_rows(node, HR_FUNCTIONAL_SOFTMAX, logits), labels));
}

/* True where the column is the row's label. */
static htf_value find_labels(htf_node *node, htf_value labels, int64_t classes) {
  int64_t dims[2] = {labels->rank == 1 ? labels->dims[0] : 0, 1};
  htf_value columns = htf_call(
      node, HR_FUNCTIONAL_ARANGE, 0, NULL,
      ATTRIBUTES(htf_attr_real(0), htf_attr_real((double)classes), htf_attr_real(1), htf_attr_dtype(labels->dtype)));
  return htf_call2(node, HR_FUNCTIONAL_EQUAL, htf_reshape(node, labels, 2, dims), columns);
}

/* NaN in rows whose label is no class, as on TensorFlow's GPU; else 0. */
static htf_value nan_outside(htf_node *node, htf_value labels, int64_t classes) {
  htf_value is_low = htf_call2(node, HR_FUNCTIONAL_LESS, labels, htf_number_of(node, hr_scalar_i64(0)));
  htf_value is_high = htf_call2(node, HR_FUNCTIONAL_GREATER_EQUAL, labels, htf_number_of(node, hr_scalar_i64(classes)));
  return htf_where(node, htf_call2(node, HR_FUNCTIONAL_LOGICAL_OR, is_low, is_high), htf_number(node, (double)NAN),
                   htf_number(node, 0));
}

void htf_sparse_softmax_cross_entropy(htf_node *node) {
  htf_value logits = htf_input(node, 0), labels = htf_input(node, 1);
  if (!htf_has_failed(node) && (logits->rank != 2 || labels->rank != 1 || labels->dims[0] != logits->dims[0])) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: logits must have 2 dims and labels one of the same size; they have %d and %d dims, %lld labels",
             node->kernel->row->op, logits->rank, labels->rank, (long long)(labels->rank == 1 ? labels->dims[0] : 0));
  }
  if (!htf_has_failed(node) && logits->dims[1] == 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: there must be at least one class", node->kernel->row->op);
  }
  if (htf_has_failed(node)) {
    return;
  }
  if (logits->dims[0] == 0) {
    output_empty(node, logits->dtype, logits->dims);
    return;
  }
  int64_t classes = logits->dims[1], column[2] = {logits->dims[0], 1};
  htf_value is_label = find_labels(node, labels, classes), hot = htf_cast(node, is_label, logits->dtype);
  htf_value outside = htf_cast(node, nan_outside(node, labels, classes), logits->dtype);
  htf_value terms = htf_where(node, is_label, call_rows(node, HR_FUNCTIONAL_LOG_SOFTMAX, logits),
                              htf_number(node, 0)); /* a logit of -infinity elsewhere does no harm */
  htf_value loss = htf_subtract(node, outside, sum_of_rows(node, terms));
  htf_value gradient = htf_subtract(node, call_rows(node, HR_FUNCTIONAL_SOFTMAX, logits), hot);
  htf_output(node, 0, loss);
  htf_output(node, 1, htf_add(node, gradient, htf_reshape(node, outside, 2, column)));
}

/* Half the sum of squares. */
void htf_l2_loss(htf_node *node) {
  htf_value x = htf_input(node, 0);
  htf_value squares = htf_call1(node, HR_FUNCTIONAL_SQUARE, x);
  htf_value sum = htf_call(node, HR_FUNCTIONAL_SUM, INPUTS(squares), NO_ATTRIBUTES);
  htf_output(node, 0, htf_multiply(node, sum, htf_number(node, 0.5)));
}

/* ---- products ---- */

/* The last two dims in each other's place. */
static htf_value adjoint(htf_node *node, htf_value x, bool conjugates) {
  int order[HR_RANK_MAX];
  for (int d = 0; d < x->rank; ++d) {
    order[d] = d < x->rank - 2 ? d : 2 * x->rank - 3 - d;
  }
  htf_value y = htf_transpose(node, x, order);
  return conjugates && is_complex(x) ? htf_call1(node, HR_FUNCTIONAL_CONJ, y) : y;
}

static void multiply_matrices(htf_node *node, htf_value x, htf_value y) {
  if (htf_has_failed(node)) {
    return;
  }
  int64_t columns = x->dims[x->rank - 1], rows = y->dims[y->rank - 2];
  if (columns != rows) {
    htf_value first = htf_input(node, 0), second = htf_input(node, 1);
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "Matrix size-incompatible: In[0]: %s, In[1]: %s: %lld columns, %lld rows",
             htf_text_of_dims(first->rank, first->dims).text, htf_text_of_dims(second->rank, second->dims).text,
             (long long)columns, (long long)rows);
  }
  htf_output(node, 0, htf_call2(node, HR_FUNCTIONAL_MATMUL, x, y));
}

void htf_matmul(htf_node *node) {
  if (node->scope != NULL && htf_list_multiply(node)) {
    return;
  }
  htf_value x = htf_input(node, 0), y = htf_input(node, 1);
  if (!htf_has_failed(node) && (x->rank != 2 || y->rank != 2)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             x->rank != y->rank ? "In[0] and In[1] has different ndims: %d and %d, both must be matrices"
                                : "In[0] ndims must be >= 2: %d and %d, both must be matrices",
             x->rank, y->rank);
  }
  x = htf_flag(node, "transpose_a") ? adjoint(node, x, false) : x;
  y = htf_flag(node, "transpose_b") ? adjoint(node, y, false) : y;
  multiply_matrices(node, x, y);
}

void htf_batch_matmul(htf_node *node) {
  htf_value x = htf_input(node, 0), y = htf_input(node, 1);
  if (!htf_has_failed(node) && (x->rank < 2 || y->rank < 2)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: both inputs must have at least 2 dims; they have %d and %d",
             node->kernel->row->op, x->rank, y->rank);
  }
  x = htf_flag(node, "adj_x") ? adjoint(node, x, true) : x;
  y = htf_flag(node, "adj_y") ? adjoint(node, y, true) : y;
  multiply_matrices(node, x, y);
}

/* Both inputs in the result's dtype. */
void htf_batch_matmul_mixed(htf_node *node) {
  hr_dtype dtype = htf_output_dtype(node, 0);
  htf_value x = htf_input(node, 0), y = htf_input(node, 1);
  if (!htf_has_failed(node) && (x->rank < 2 || y->rank < 2)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: both inputs must have at least 2 dims; they have %d and %d",
             node->kernel->row->op, x->rank, y->rank);
  }
  x = htf_cast(node, x, dtype), y = htf_cast(node, y, dtype);
  x = htf_flag(node, "adj_x") ? adjoint(node, x, true) : x;
  y = htf_flag(node, "adj_y") ? adjoint(node, y, true) : y;
  multiply_matrices(node, x, y);
}

void htf_einsum(htf_node *node) {
  enum { TERMS_MAX = 16 };
  htf_value terms[TERMS_MAX];
  int count = htf_input_count(node);
  if (count > TERMS_MAX) {
    htf_fail(node, HR_STATUS_UNIMPLEMENTED, "Einsum: at most %d inputs are supported, not %d", TERMS_MAX, count);
    return;
  }
  for (int i = 0; i < count; ++i) {
    terms[i] = htf_input(node, i);
  }
  htf_output(node, 0,
             htf_call(node, HR_FUNCTIONAL_EINSUM, count, terms, ATTRIBUTES(htf_attr_text(htf_text(node, "equation")))));
}
