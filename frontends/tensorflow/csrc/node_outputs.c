/* node_outputs.c: the outputs of a call, to TensorFlow's kernel context or the scope of a cluster's body.
 *
 * The buffer of a value that the call has made becomes the output's tensor itself. Others are copied.
 */
#include "scope.h"

#include <string.h>

int htf_output_count(const htf_node *node) {
  return node->scope != NULL ? htf_scope_output_count(node->scope) : tf.NumOutputs(node->context);
}

hr_dtype htf_output_dtype(const htf_node *node, int index) {
  return htf_dtype_of(node->scope != NULL ? htf_scope_output_type(node->scope, index)
                                          : tf.ExpectedOutputDataType(node->context, index));
}

/* True if TensorFlow has a tensor of the buffer: an input, or an output that was set before. */
static bool is_foreign(const htf_node *node, const hr_buffer *buffer) {
  for (const htf_chunk *chunk = node->chunk; chunk != NULL; chunk = chunk->next) {
    for (int i = 0; i < chunk->count; ++i) {
      if (chunk->is_foreign[i] && chunk->values[i].buffer == buffer) {
        return true;
      }
    }
  }
  return false;
}

/* A copy of a value as a new tensor in order. */
static htf_value copy_of(htf_node *node, htf_value value, hr_dtype dtype) {
  htf_value copy = htf_new(node, dtype, value->rank, value->dims);
  if (htf_has_failed(node) || hr_tensor_count(copy) == 0) {
    return copy;
  }
  const hr_view source = hr_tensor_view(value), view = hr_tensor_view(copy);
  (void)htf_keep(node, hr_stream_record(node->stream, HR_OP_COPY, NULL, 1, &source, 1, &view));
  return copy;
}

htf_value htf_settle(htf_node *node, htf_value value, hr_dtype dtype) {
  bool is_settled = value->buffer != NULL && value->dtype == dtype && hr_tensor_is_row_major(value);
  return is_settled || htf_has_failed(node) ? value : copy_of(node, value, dtype);
}

htf_value htf_copy_value(htf_node *node, htf_value value) {
  return copy_of(node, value, value->dtype);
}

/* True if the value can be the tensor: the only use of a buffer that holds its elements in order, and nothing else. */
static bool may_become(const htf_node *node, htf_value value, hr_dtype dtype) {
  size_t bytes = (size_t)hr_tensor_count(value) * hr_dtype_size(dtype);
  return value->buffer != NULL && value->dtype == dtype && value->offset == 0 && bytes > 0 &&
         hr_buffer_bytes(value->buffer) == bytes && hr_tensor_is_row_major(value) && !is_foreign(node, value->buffer);
}

void htf_write(htf_node *node, tf_tensor *target, htf_value value) {
  htf_value place = htf_value_of(node, target);
  if (htf_has_failed(node) || hr_tensor_count(place) == 0) {
    return;
  }
  hr_tensor from = *value, to = *place;
  if (value->number.dtype == HR_DTYPE_NONE) {
    to.rank = value->rank;
    memcpy(to.dims, value->dims, sizeof to.dims);
    hr_tensor_set_row_major(&to);
  }
  const hr_view source = hr_tensor_view(&from), view = hr_tensor_view(&to);
  (void)htf_keep(node, hr_stream_record(node->stream, HR_OP_COPY, NULL, 1, &source, 1, &view));
}

/* TensorFlow's collective operations call kernels whose result has to be in place of their first input. */
static tf_tensor *allocate_output(htf_node *node, int index, int type, htf_value value, size_t bytes) {
  tf_tensor *tensor = tf.AllocateOutput(node->context, index, type, value->dims, value->rank, bytes, node->status);
  if (tensor == NULL && strstr(tf.Message(node->status), "input forwarding required") != NULL) {
    int first = 0, found = 0;
    tensor = tf.ForwardInputOrAllocateOutput(node->context, &first, 1, index, value->dims, value->rank, &found,
                                             node->status);
  }
  return tensor;
}

void htf_output(htf_node *node, int index, htf_value value) {
  if (htf_has_failed(node)) {
    return;
  }
  if (node->scope != NULL) {
    htf_scope_set(node, index, htf_settle(node, value, htf_output_dtype(node, index)));
    return;
  }
  int type = tf.ExpectedOutputDataType(node->context, index);
  hr_dtype dtype = htf_dtype_of(type);
  size_t bytes = (size_t)hr_tensor_count(value) * hr_dtype_size(dtype);
  bool becomes = may_become(node, value, dtype);
  if (becomes) {
    hr_buffer_retain(value->buffer);
    htf_offer_buffer(value->buffer);
    htf_mark_foreign(node, value);
  }
  tf_tensor *tensor = allocate_output(node, index, type, value, bytes);
  htf_offer_buffer(NULL);
  if (htf_has_refused(node)) {
    return;
  }
  if (!becomes || tf.TensorData(tensor) != hr_buffer_handle(value->buffer)) {
    htf_write(node, tensor, value);
  }
  tf.DeleteTensor(tensor);
}

void *htf_new_host_output(htf_node *node, int index, int rank, const int64_t *dims) {
  int type = htf_has_failed(node) ? TF_INT32 : tf.ExpectedOutputDataType(node->context, index);
  size_t bytes = hr_dtype_size(htf_dtype_of(type));
  for (int d = 0; d < rank; ++d) {
    bytes *= (size_t)dims[d];
  }
  if (htf_has_failed(node)) {
    return NULL;
  }
  tf_tensor *tensor = tf.AllocateOutput(node->context, index, type, dims, rank, bytes, node->status);
  if (htf_has_refused(node)) {
    return NULL;
  }
  void *data = tf.TensorData(tensor);
  tf.DeleteTensor(tensor);
  return data;
}

void htf_output_host(htf_node *node, int index, int32_t number) {
  if (htf_has_failed(node)) {
    return;
  }
  if (node->scope != NULL) {
    htf_host *host = htf_scope_new_host(node, index, HR_DTYPE_I32, 0, NULL);
    if (host != NULL) {
      *(int32_t *)host->bytes = number;
    }
    return;
  }
  int32_t *place = htf_new_host_output(node, index, 0, NULL);
  if (place != NULL) {
    *place = number;
  }
}
