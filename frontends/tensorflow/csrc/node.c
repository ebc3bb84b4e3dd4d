/* node.c: a call of an operation on TensorFlow's kernel context: begin and end, errors, values, functions on values. */
#include "scope.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const hr_tensor htf_nothing;

/* ---- begin and end ---- */

/* Hands over the work of the last step when a kernel of another one comes, if that step recorded several. Eager
 * operations are steps of their own; they are left to the stream's limits. */
hr_status htf_note_step(htf_device *device, int64_t step, int kernels) {
  if (atomic_load_explicit(&device->step, memory_order_relaxed) == step) {
    atomic_fetch_add_explicit(&device->step_kernels, kernels, memory_order_relaxed);
    return HR_OK;
  }
  int last_kernels = atomic_exchange(&device->step_kernels, kernels);
  atomic_store(&device->step, step);
  return last_kernels > 1 ? hr_stream_commit(device->stream) : HR_OK;
}

void htf_node_init(htf_node *node, const htf_kernel *kernel, tf_context *context) {
  node->kernel = kernel, node->function = kernel->row->function;
  node->context = context;
  node->status = tf.NewStatus();
  node->error = HR_OK;
  node->chunk = &node->first;
  node->first.next = NULL, node->first.count = 0;
  tf_stream *stream = tf.GetStream(context, node->status);
  node->device = stream != NULL ? stream->device : NULL;
  node->stream = NULL, node->scope = NULL;
  if (!htf_keep(node, htf_status_of(node->status)) && !htf_keep(node, htf_check_process())) {
    node->stream = node->device->stream;
    (void)htf_keep(node, htf_note_step(node->device, tf.StepId(context), 1));
  }
}

void htf_node_open(htf_node *node, const htf_kernel *kernel, htf_device *device, hr_stream *stream, htf_scope *scope) {
  node->kernel = kernel, node->function = HR_FUNCTIONAL_NONE;
  node->context = NULL, node->status = NULL;
  node->device = device, node->stream = stream, node->scope = scope;
  node->error = HR_OK;
  node->chunk = &node->first;
  node->first.next = NULL, node->first.count = 0;
}

static void release_values(htf_chunk *chunk) {
  for (int i = 0; i < chunk->count; ++i) {
    hr_tensor_release(&chunk->values[i]);
  }
}

static void release_chunks(htf_node *node) {
  for (htf_chunk *chunk = node->chunk; chunk != NULL;) {
    htf_chunk *next = chunk->next;
    release_values(chunk);
    if (chunk != &node->first) {
      free(chunk);
    }
    chunk = next;
  }
}

hr_status htf_node_close(htf_node *node) {
  release_chunks(node);
  return node->error;
}

void htf_node_fini(htf_node *node) {
  release_chunks(node);
  if (htf_fails(node->error, node->status)) {
    tf.OpKernelContext_Failure(node->context, node->status);
  }
  tf.DeleteStatus(node->status);
}

/* ---- errors ---- */

bool htf_keep(htf_node *node, hr_status status) {
  if (node->error == HR_OK) {
    node->error = status;
  } else {
    hr_status_ignore(status);
  }
  return node->error != HR_OK;
}

void htf_fail(htf_node *node, hr_status_code code, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  (void)htf_keep(node, hr_status_make(code, "%s", text));
}

bool htf_has_refused(htf_node *node) {
  return tf.GetCode(node->status) != 0 && htf_keep(node, htf_status_of(node->status));
}

/* ---- values ---- */

static hr_tensor *add_value(htf_node *node) {
  if (node->chunk->count == HTF_VALUES_INLINE) {
    htf_chunk *chunk = malloc(sizeof *chunk);
    if (chunk == NULL) {
      htf_fail(node, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for %zu bytes", sizeof *chunk);
      return NULL;
    }
    chunk->next = node->chunk, chunk->count = 0;
    node->chunk = chunk;
  }
  node->chunk->is_foreign[node->chunk->count] = false;
  hr_tensor *value = &node->chunk->values[node->chunk->count++];
  value->buffer = NULL, value->number.dtype = HR_DTYPE_NONE, value->rank = 0;
  return value;
}

htf_value htf_keep_value(htf_node *node, const hr_tensor *tensor) {
  hr_tensor *value = add_value(node);
  if (value == NULL) {
    hr_buffer_release(tensor->buffer);
    return &htf_nothing;
  }
  *value = *tensor;
  return value;
}

/* A second value of the same buffer. */
static hr_tensor *view_of(htf_node *node, htf_value x) {
  hr_tensor *view = htf_has_failed(node) ? NULL : add_value(node);
  if (view != NULL) {
    *view = *x;
    hr_buffer_retain(view->buffer);
  }
  return view;
}

htf_dims_text htf_text_of_dims(int rank, const int64_t *dims) {
  htf_dims_text found = {"["};
  size_t used = 1;
  for (int d = 0; d < rank && used < sizeof found.text; ++d) {
    used += (size_t)snprintf(found.text + used, sizeof found.text - used, d > 0 ? ",%lld" : "%lld", (long long)dims[d]);
  }
  (void)snprintf(found.text + used, sizeof found.text - used, "]");
  return found;
}

htf_chunk *htf_node_mark(htf_node *node) {
  htf_chunk *mark = node->chunk, *chunk = htf_has_failed(node) ? NULL : calloc(1, sizeof *chunk);
  if (chunk == NULL) {
    htf_fail(node, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for %zu bytes", sizeof *chunk);
    return mark;
  }
  chunk->next = mark;
  node->chunk = chunk;
  return mark;
}

static int compare_chunks(const void *a, const void *b) {
  const htf_chunk *x = *(htf_chunk *const *)a, *y = *(htf_chunk *const *)b;
  return (x > y) - (x < y);
}

/* True if one of the chunks, in order of their addresses, has the value. */
static bool is_in(htf_chunk *const *chunks, size_t count, htf_value value) {
  size_t begin = 0, end = count;
  while (begin < end) {
    size_t middle = (begin + end) / 2;
    if ((const void *)chunks[middle] <= (const void *)value) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin > 0 && value < chunks[begin - 1]->values + HTF_VALUES_INLINE;
}

void htf_node_sweep(htf_node *node, htf_chunk *mark, size_t count, htf_value *const *kept) {
  size_t chunk_count = 0;
  for (htf_chunk *chunk = node->chunk; chunk != mark; chunk = chunk->next) {
    ++chunk_count;
  }
  htf_chunk **chunks = calloc(chunk_count + 1, sizeof *chunks);
  if (chunks == NULL) {
    htf_fail(node, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a loop");
    return;
  }
  for (size_t i = 0; i < chunk_count; ++i, node->chunk = node->chunk->next) {
    chunks[i] = node->chunk;
  }
  qsort(chunks, chunk_count, sizeof *chunks, compare_chunks);
  (void)htf_node_mark(node);
  for (size_t i = 0; i < count && !htf_has_failed(node); ++i) {
    *kept[i] = is_in(chunks, chunk_count, *kept[i]) ? view_of(node, *kept[i]) : *kept[i];
  }
  for (size_t i = 0; i < chunk_count; ++i) {
    release_values(chunks[i]);
    free(chunks[i]);
  }
  free(chunks);
}

/* The dims of a tensor of TensorFlow's, and its strides. */
static bool describe(htf_node *node, const tf_tensor *tensor, hr_tensor *value) {
  int rank = tf.NumDims(tensor);
  value->dtype = htf_dtype_of(tf.TensorType(tensor));
  if (rank > HR_RANK_MAX || value->dtype == HR_DTYPE_NONE) {
    htf_fail(node, HR_STATUS_UNIMPLEMENTED,
             "%s: %d dims of TensorFlow's dtype %d; at most %d dims of numbers are supported", node->kernel->row->op,
             rank, tf.TensorType(tensor), HR_RANK_MAX);
    return false;
  }
  value->rank = rank;
  for (int d = 0; d < rank; ++d) {
    value->dims[d] = tf.Dim(tensor, d);
  }
  hr_tensor_set_row_major(value);
  return true;
}

/* Gives a described tensor its buffer. */
static void attach(htf_node *node, const tf_tensor *tensor, hr_tensor *value) {
  size_t offset = 0;
  if (hr_tensor_count(value) == 0) {
    value->buffer = node->device->empty, value->offset = 0;
    hr_buffer_retain(value->buffer);
    return;
  }
  value->buffer = hr_buffer_from_handle(tf.TensorData(tensor), &offset);
  value->offset = (int64_t)(offset / hr_dtype_size(value->dtype));
  if (value->buffer == NULL) {
    htf_fail(node, HR_STATUS_INTERNAL, "%s: a tensor at %p is not in the device's memory", node->kernel->row->op,
             tf.TensorData(tensor));
  }
}

void htf_mark_foreign(htf_node *node, htf_value value) {
  for (htf_chunk *chunk = node->chunk; chunk != NULL; chunk = chunk->next) {
    if (value >= chunk->values && value < chunk->values + HTF_VALUES_INLINE) {
      chunk->is_foreign[value - chunk->values] = true;
      return;
    }
  }
}

htf_value htf_value_of(htf_node *node, tf_tensor *tensor) {
  hr_tensor *value = htf_has_failed(node) ? NULL : add_value(node);
  if (value == NULL || !describe(node, tensor, value)) {
    return &htf_nothing;
  }
  attach(node, tensor, value);
  htf_mark_foreign(node, value);
  return value;
}

htf_value htf_number_of(htf_node *node, hr_scalar number) {
  hr_tensor value = hr_tensor_number(number);
  return htf_keep_value(node, &value);
}

htf_value htf_number(htf_node *node, double number) {
  return htf_number_of(node, hr_scalar_f64(number));
}

htf_value htf_reshape(htf_node *node, htf_value x, int rank, const int64_t *dims) {
  if (!htf_has_failed(node) && rank > HR_RANK_MAX) {
    htf_fail(node, HR_STATUS_UNIMPLEMENTED, "%s: a result of %d dims, at most %d are supported", node->kernel->row->op,
             rank, HR_RANK_MAX);
  }
  if (!hr_tensor_is_row_major(x)) {
    return htf_call(node, HR_FUNCTIONAL_RESHAPE, INPUTS(x), ATTRIBUTES(htf_attr_ints(dims, rank)));
  }
  hr_tensor *view = view_of(node, x);
  if (view == NULL) {
    return &htf_nothing;
  }
  view->rank = rank;
  for (int d = 0; d < rank; ++d) {
    view->dims[d] = dims[d];
  }
  hr_tensor_set_row_major(view);
  return view;
}

htf_value htf_transpose(htf_node *node, htf_value x, const int *order) {
  hr_tensor *view = view_of(node, x);
  if (view == NULL) {
    return &htf_nothing;
  }
  for (int d = 0; d < x->rank; ++d) {
    view->dims[d] = x->dims[order[d]], view->strides[d] = x->strides[order[d]];
  }
  return view;
}

htf_value htf_view(htf_node *node, htf_value x, int rank, const int64_t *dims, const int64_t *strides, int64_t offset) {
  hr_tensor *view = view_of(node, x);
  if (view == NULL) {
    return &htf_nothing;
  }
  view->rank = rank, view->offset = offset;
  for (int d = 0; d < rank; ++d) {
    view->dims[d] = dims[d], view->strides[d] = strides[d];
  }
  return view;
}

int htf_resolve_axis(htf_node *node, htf_value x, int64_t axis) {
  if (!htf_has_failed(node) && (axis < -x->rank || axis >= x->rank)) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: axis %lld is out of range for %d dims", node->kernel->row->op,
             (long long)axis, x->rank);
  }
  return (int)(axis < 0 ? axis + x->rank : axis);
}

/* ---- functions ---- */

/* False, and an error, if an operation has more values than there is room for. */
static bool has_room(htf_node *node, int count, int max) {
  if (!htf_has_failed(node) && count > max) {
    htf_fail(node, HR_STATUS_UNIMPLEMENTED, "%s: an operation on %d values, at most %d are supported",
             node->kernel->row->op, count, max);
  }
  return !htf_has_failed(node);
}

void htf_call_many(htf_node *node, hr_functional function, int input_count, const htf_value *inputs,
                   int attribute_count, const hr_attribute *attributes, int result_count, htf_value *out_results) {
  enum { RESULTS_MAX = 8 };
  hr_tensor results[RESULTS_MAX];
  for (int i = 0; i < result_count; ++i) {
    out_results[i] = &htf_nothing;
  }
  if (!has_room(node, result_count, RESULTS_MAX) ||
      htf_keep(node, hr_functional_apply(node->stream, function, input_count, inputs, attribute_count, attributes,
                                         result_count, results))) {
    return;
  }
  for (int i = 0; i < result_count; ++i) {
    out_results[i] = htf_keep_value(node, &results[i]);
  }
}

htf_value htf_call(htf_node *node, hr_functional function, int input_count, const htf_value *inputs,
                   int attribute_count, const hr_attribute *attributes) {
  hr_tensor *value = htf_has_failed(node) ? NULL : add_value(node);
  if (value == NULL || htf_keep(node, hr_functional_apply(node->stream, function, input_count, inputs, attribute_count,
                                                          attributes, 1, value))) {
    return &htf_nothing;
  }
  return value;
}

htf_value htf_call1(htf_node *node, hr_functional function, htf_value x) {
  return htf_call(node, function, 1, &x, NO_ATTRIBUTES);
}

htf_value htf_call2(htf_node *node, hr_functional function, htf_value x, htf_value y) {
  return htf_call(node, function, INPUTS(x, y), NO_ATTRIBUTES);
}

htf_value htf_cast(htf_node *node, htf_value x, hr_dtype dtype) {
  return x->dtype == dtype ? x : htf_call(node, HR_FUNCTIONAL_ASTYPE, INPUTS(x), ATTRIBUTES(htf_attr_dtype(dtype)));
}

htf_value htf_new(htf_node *node, hr_dtype dtype, int rank, const int64_t *dims) {
  hr_tensor *value = htf_has_failed(node) ? NULL : add_value(node);
  if (value == NULL) {
    return &htf_nothing;
  }
  value->dtype = dtype, value->rank = rank, value->offset = 0;
  for (int d = 0; d < rank; ++d) {
    value->dims[d] = dims[d];
  }
  hr_tensor_set_row_major(value);
  size_t bytes = (size_t)hr_tensor_count(value) * hr_dtype_size(dtype);
  (void)htf_keep(node, hr_buffer_create(node->device->device, bytes, &value->buffer));
  return value;
}

htf_value htf_constant(htf_node *node, hr_dtype dtype, int64_t count, const void *elements) {
  if (node->scope != NULL) {
    return htf_scope_constant(node, dtype, count, elements);
  }
  htf_value value = htf_new(node, dtype, 1, &count);
  const hr_view view = hr_tensor_view(value);
  if (!htf_has_failed(node) && count > 0) {
    (void)htf_keep(node, hr_stream_write(node->stream, &view, elements));
  }
  return value;
}

void htf_record_many(htf_node *node, hr_op op, int int_count, const int64_t *ints, int input_count,
                     const htf_value *inputs, int output_count, const htf_value *outputs) {
  enum { VIEWS_MAX = 10 };
  hr_view views[VIEWS_MAX];
  if (!has_room(node, input_count + output_count, VIEWS_MAX)) {
    return;
  }
  for (int i = 0; i < input_count + output_count; ++i) {
    views[i] = hr_tensor_view(i < input_count ? inputs[i] : outputs[i - input_count]);
  }
  const hr_attrs attrs = {.int_count = int_count, .ints = ints};
  (void)htf_keep(node,
                 hr_stream_record(node->stream, op, &attrs, input_count, views, output_count, views + input_count));
}

void *htf_new_argument(htf_node *node, size_t bytes) {
  void *argument = htf_has_failed(node) ? NULL : calloc(1, bytes);
  if (argument == NULL) {
    htf_fail(node, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for %zu bytes", bytes);
  }
  return argument;
}

void htf_record_function(htf_node *node, hr_function_run run, void *argument, int input_count, const htf_value *inputs,
                         int updated, int output_count, const htf_value *outputs) {
  hr_view views[HR_FUNCTION_OPERANDS_MAX];
  const hr_function_spec spec = {.name = node->kernel->row->op,
                                 .run = run,
                                 .arg = argument,
                                 .release = free,
                                 .updated_count = updated,
                                 .is_on_host = true};
  if (!has_room(node, input_count + output_count, HR_FUNCTION_OPERANDS_MAX)) {
    free(argument);
    return;
  }
  for (int i = 0; i < input_count + output_count; ++i) {
    views[i] = hr_tensor_view(i < input_count ? inputs[i] : outputs[i - input_count]);
  }
  (void)htf_keep(node, hr_function_record(node->stream, &spec, input_count, views, output_count, views + input_count));
}
