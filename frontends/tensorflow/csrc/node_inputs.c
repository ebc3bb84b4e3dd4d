/* node_inputs.c: the inputs and attributes of a call, from TensorFlow's kernel context or the scope of a cluster's
 * body. */
#include "scope.h"

#include <string.h>

#include "headrace/array.h"

/* ---- inputs ---- */

int htf_input_count(htf_node *node) {
  return node->scope != NULL ? htf_scope_input_count(node->scope) : tf.NumInputs(node->context);
}

bool htf_is_list(htf_node *node, int index) {
  return node->scope == NULL && tf.InputDatatype(node->context, index) == TF_VARIANT;
}

static tf_tensor *get_input(htf_node *node, int index) {
  tf_tensor *tensor = NULL;
  if (!htf_has_failed(node)) {
    tf.GetInput(node->context, index, &tensor, node->status);
    (void)htf_has_refused(node);
  }
  return htf_has_failed(node) ? NULL : tensor;
}

htf_value htf_input(htf_node *node, int index) {
  if (node->scope != NULL) {
    return htf_scope_input(node, index);
  }
  tf_tensor *tensor = get_input(node, index);
  if (tensor == NULL) {
    return &htf_nothing;
  }
  htf_value value = htf_value_of(node, tensor);
  tf.DeleteTensor(tensor);
  return value;
}

int64_t htf_int_at(const void *data, hr_dtype dtype, int64_t index) {
  switch (dtype) {
    case HR_DTYPE_I64:
    case HR_DTYPE_U64:
      return ((const int64_t *)data)[index];
    case HR_DTYPE_I16:
      return ((const int16_t *)data)[index];
    case HR_DTYPE_I8:
      return ((const int8_t *)data)[index];
    case HR_DTYPE_U8:
    case HR_DTYPE_BOOL:
      return ((const uint8_t *)data)[index];
    default:
      return ((const int32_t *)data)[index];
  }
}

/* Copies numbers of a tensor in the host's memory. */
static int read_ints(htf_node *node, int index, const void *data, hr_dtype dtype, int64_t count, int64_t *out_values,
                     int most) {
  if (count > most) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: input %d has %lld numbers, at most %d are possible",
             node->kernel->row->op, index, (long long)count, most);
  }
  for (int64_t i = 0; i < count && count <= most; ++i) {
    out_values[i] = htf_int_at(data, dtype, i);
  }
  return htf_has_failed(node) ? 0 : (int)count;
}

int htf_host_ints(htf_node *node, int index, int64_t *out_values, int most) {
  if (node->scope != NULL) {
    const htf_host *host = htf_scope_host(node, index);
    return host != NULL ? read_ints(node, index, host->bytes, host->dtype, host->count, out_values, most) : 0;
  }
  tf_tensor *tensor = get_input(node, index);
  if (tensor == NULL) {
    return 0;
  }
  int count = read_ints(node, index, tf.TensorData(tensor), htf_dtype_of(tf.TensorType(tensor)),
                        tf.TensorElementCount(tensor), out_values, most);
  tf.DeleteTensor(tensor);
  return count;
}

int htf_host_dims(htf_node *node, int index, int64_t dims[HR_RANK_MAX]) {
  if (node->scope != NULL) {
    const htf_host *host = htf_scope_host(node, index);
    for (int d = 0; host != NULL && d < host->rank; ++d) {
      dims[d] = host->dims[d];
    }
    return host != NULL ? host->rank : 0;
  }
  tf_tensor *tensor = get_input(node, index);
  int rank = tensor != NULL ? tf.NumDims(tensor) : 0;
  if (rank > HR_RANK_MAX) {
    htf_fail(node, HR_STATUS_UNIMPLEMENTED, "%s: input %d has %d dims, at most %d are supported", node->kernel->row->op,
             index, rank, HR_RANK_MAX);
    rank = 0;
  }
  for (int d = 0; d < rank; ++d) {
    dims[d] = tf.Dim(tensor, d);
  }
  if (tensor != NULL) {
    tf.DeleteTensor(tensor);
  }
  return rank;
}

void htf_expect_rank(htf_node *node, int index, int rank, const char *error) {
  int64_t dims[HR_RANK_MAX];
  int found = htf_host_dims(node, index, dims);
  if (!htf_has_failed(node) && found != rank) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: %s, input %d has %d dims", node->kernel->row->op, error, index,
             found);
  }
}

int64_t *htf_host_numbers(htf_node *node, int index, int64_t *out_count) {
  int64_t dims[HR_RANK_MAX], count = 1;
  int rank = htf_host_dims(node, index, dims);
  for (int d = 0; d < rank; ++d) {
    count *= dims[d];
  }
  if (count > INT32_MAX) {
    htf_fail(node, HR_STATUS_UNIMPLEMENTED, "%s: input %d has %lld numbers, at most %d are supported",
             node->kernel->row->op, index, (long long)count, INT32_MAX);
  }
  int64_t *numbers = htf_has_failed(node) ? NULL : htf_new_argument(node, (size_t)(count + 1) * sizeof *numbers);
  *out_count = numbers != NULL ? htf_host_ints(node, index, numbers, (int)count) : 0;
  return numbers;
}

int64_t htf_host_int(htf_node *node, int index) {
  int64_t value = 0;
  if (htf_host_ints(node, index, &value, 1) != 1) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: input %d must have exactly one element", node->kernel->row->op,
             index);
  }
  return value;
}

int64_t htf_host_scalar(htf_node *node, int index) {
  int64_t dims[HR_RANK_MAX];
  int rank = htf_host_dims(node, index, dims);
  if (!htf_has_failed(node) && rank != 0) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: input %d (0-based) must have shape [], not %d dims: Shape must be rank 0 but is rank %d",
             node->kernel->row->op, index, rank, rank);
  }
  return htf_has_failed(node) ? 0 : htf_host_int(node, index);
}

static double real_at(const void *data, hr_dtype dtype) {
  const hr_scalar number = hr_scalar_of(dtype, data);
  return number.dtype == HR_DTYPE_I64 ? (double)number.value.i : number.value.f[0];
}

void htf_host_reals(htf_node *node, int index, double *out_values, int count) {
  const htf_host *host = node->scope != NULL ? htf_scope_host(node, index) : NULL;
  tf_tensor *tensor = node->scope == NULL ? get_input(node, index) : NULL;
  for (int i = 0; i < count; ++i) {
    out_values[i] = 0;
  }
  if (htf_has_failed(node)) {
    return;
  }
  int64_t found = host != NULL ? host->count : tf.TensorElementCount(tensor);
  hr_dtype dtype = host != NULL ? host->dtype : htf_dtype_of(tf.TensorType(tensor));
  const char *bytes = host != NULL ? (const char *)host->bytes : tf.TensorData(tensor);
  if (found != count) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: input %d has %lld numbers, expected %d", node->kernel->row->op,
             index, (long long)found, count);
  }
  for (int i = 0; i < count && found == count; ++i) {
    out_values[i] = real_at(bytes + (size_t)i * hr_dtype_size(dtype), dtype);
  }
  if (tensor != NULL) {
    tf.DeleteTensor(tensor);
  }
}

int htf_read_dims(htf_node *node, int index, int64_t *out_dims) {
  int64_t dims[HR_RANK_MAX];
  if (htf_host_dims(node, index, dims) > 1) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: dims must be a vector, input %d is none", node->kernel->row->op,
             index);
  }
  int rank = htf_host_ints(node, index, out_dims, HR_RANK_MAX);
  for (int d = 0; d < rank; ++d) {
    if (out_dims[d] < 0) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: dim %d is %lld, it must not be negative", node->kernel->row->op,
               d, (long long)out_dims[d]);
    }
  }
  return rank;
}

double htf_host_real(htf_node *node, int index) {
  double value;
  htf_host_reals(node, index, &value, 1);
  return value;
}

/* ---- attributes ---- */

static const htf_attribute *look_up(const htf_node *node, const char *name) {
  const htf_kernel *kernel = node->kernel;
  for (int i = 0; i < kernel->count; ++i) {
    if (strcmp(kernel->attributes[i].name, name) == 0) {
      return &kernel->attributes[i];
    }
  }
  return NULL;
}

static const htf_attribute *find_attribute(const htf_node *node, const char *name) {
  static const htf_attribute absent;
  const htf_attribute *found = look_up(node, name);
  assert(found != NULL && "an attribute that the row of map.def does not list");
  return found != NULL ? found : &absent;
}

bool htf_has_attribute(const htf_node *node, const char *name) {
  return look_up(node, name) != NULL;
}

bool htf_has_flag(const htf_node *node, const char *name) {
  const htf_attribute *found = look_up(node, name);
  return found != NULL && found->integer != 0;
}

bool htf_flag(const htf_node *node, const char *name) {
  return find_attribute(node, name)->integer != 0;
}

int64_t htf_integer(const htf_node *node, const char *name) {
  return find_attribute(node, name)->integer;
}

double htf_real(const htf_node *node, const char *name) {
  return find_attribute(node, name)->real;
}

const char *htf_text(const htf_node *node, const char *name) {
  return find_attribute(node, name)->text;
}

const char *htf_text_or(const htf_node *node, const char *name, const char *otherwise) {
  const htf_attribute *found = look_up(node, name);
  return found != NULL ? found->text : otherwise;
}

hr_dtype htf_dtype(const htf_node *node, const char *name) {
  return htf_dtype_of((int)find_attribute(node, name)->integer);
}

const htf_attribute *htf_list(const htf_node *node, const char *name) {
  return find_attribute(node, name);
}
