/* session_buckets.c: runs whose dims are rounded up (hr_session_bucket).
 *
 *   x [5, 3]  ->  x [8, 3], rows 5 to 7 of which are row 4  ->  instance  ->  y [8, 4]  ->  y [5, 4], a view
 *
 * The copies are a program of their own, so that the instance's program is the same for all sizes of a bucket. Copies
 * of the last slice fail in no way that the slice itself does not.
 */
#include "core/ops/infer.h"
#include "session/graph_instance.h"

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "session: no host memory for buckets");
}

/* ---- setting ---- */

static hr_status check_sizes(const hr_session_bucket *given) {
  bool is_right = given->symbol != NULL && given->count > 0;
  for (int i = 0; is_right && i < given->count; ++i) {
    is_right = given->sizes[i] > (i > 0 ? given->sizes[i - 1] : 0);
  }
  return is_right ? HR_OK
                  : hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                                   "buckets of \"%.64s\": expected positive sizes in ascending order",
                                   given->symbol != NULL ? given->symbol : "");
}

static hr_status set_bucket(const hr_graph *graph, const hr_session_bucket *given, hr__session_bucket *to) {
  HR_RETURN_IF_ERROR(check_sizes(given));
  to->sizes = hr_calloc((size_t)given->count, sizeof *to->sizes);
  to->inputs = hr_calloc(graph->inputs.count + 1, sizeof *to->inputs);
  to->outputs = hr_calloc(graph->outputs.count + 1, sizeof *to->outputs);
  if (to->sizes == NULL || to->inputs == NULL || to->outputs == NULL) {
    return no_memory();
  }
  to->count = given->count;
  memcpy(to->sizes, given->sizes, (size_t)given->count * sizeof *to->sizes);
  HR_RETURN_IF_ERROR(hr_status_annotate(hr__graph_find_rows(graph, given->symbol, to->inputs, to->outputs),
                                        "buckets of \"%.64s\"", given->symbol));
  while (strcmp(graph->symbols.data[to->symbol], given->symbol) != 0) {
    ++to->symbol;
  }
  return HR_OK;
}

hr_status hr__session_buckets_set(hr_session *session, const hr_session_options *options) {
  session->buckets = hr_calloc((size_t)options->bucket_count + 1, sizeof *session->buckets);
  if (session->buckets == NULL) {
    return no_memory();
  }
  for (int i = 0; i < options->bucket_count; ++i) {
    session->bucket_count = i + 1;
    HR_RETURN_IF_ERROR(set_bucket(session->whole, &options->buckets[i], &session->buckets[i]));
    for (int k = 0; k < i; ++k) {
      if (session->buckets[k].symbol == session->buckets[i].symbol) {
        return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "buckets of \"%.64s\" are given twice",
                              options->buckets[i].symbol);
      }
    }
  }
  return HR_OK;
}

void hr__session_buckets_free(hr_session *session) {
  for (int i = 0; i < session->bucket_count; ++i) {
    hr_free(session->buckets[i].sizes);
    hr_free(session->buckets[i].inputs);
    hr_free(session->buckets[i].outputs);
  }
  hr_free(session->buckets);
}

/* ---- running ---- */

/* The smallest size that has room, or the size itself. */
static int64_t round_up(const hr__session_bucket *bucket, int64_t size) {
  for (int i = 0; size > 0 && i < bucket->count; ++i) {
    if (bucket->sizes[i] >= size) {
      return bucket->sizes[i];
    }
  }
  return size;
}

/* Copies `count` slices of x, from `from` on, to those of y from `to` on; `step` 0: one slice, again and again. */
static hr_status copy_slices(hr_stream *stream, const hr_tensor *x, int axis, int64_t from, int64_t step, hr_tensor *y,
                             int64_t to, int64_t count) {
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
  hr_view source = hr_tensor_view(x), target = hr_tensor_view(y);
  memcpy(dims, x->dims, sizeof dims);
  memcpy(strides, x->strides, sizeof strides);
  dims[axis] = count, strides[axis] *= step;
  source.offset += from * x->strides[axis], source.dims = dims, source.strides = strides;
  target.offset += to * y->strides[axis], target.dims = dims;
  return hr_stream_record(stream, HR_OP_COPY, NULL, 1, &source, 1, &target);
}

/* Replaces a tensor by one with `size` slices, of which the last ones are copies. */
static hr_status pad(hr_stream *stream, int axis, int64_t size, hr_tensor *x) {
  int64_t count = x->dims[axis];
  hr_tensor padded = *x;
  padded.offset = 0, padded.dims[axis] = size;
  hr_tensor_set_row_major(&padded);
  HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(stream), hr__tensor_bytes(&padded), &padded.buffer));
  hr_status status = copy_slices(stream, x, axis, 0, 1, &padded, 0, count);
  status = status == HR_OK ? copy_slices(stream, x, axis, count - 1, 0, &padded, count, size - count) : status;
  if (status != HR_OK) {
    hr_buffer_release(padded.buffer);
    return status;
  }
  hr_tensor_release(x);
  *x = padded;
  return HR_OK;
}

hr_status hr__session_round(const hr_session *session, const hr_tensor *const *inputs, hr_tensor *out_types) {
  int64_t symbols[HR_GRAPH_SYMBOLS_MAX];
  const hr_graph *graph = session->whole;
  HR_RETURN_IF_ERROR(hr__graph_bind(graph, (int)graph->inputs.count, inputs, symbols));
  for (size_t i = 0; i < graph->inputs.count; ++i) {
    out_types[i] = *inputs[i];
    out_types[i].buffer = NULL;
    for (int b = 0; b < session->bucket_count; ++b) {
      const hr__session_bucket *bucket = &session->buckets[b];
      if (bucket->inputs[i] >= 0) {
        out_types[i].dims[bucket->inputs[i]] = round_up(bucket, symbols[bucket->symbol]);
      }
    }
  }
  return HR_OK;
}

typedef struct padding {
  hr_tensor *inputs; /* with references */
  const hr_tensor **places;
  int64_t *symbols; /* as they are */
  bool is_needed;
} padding;

static hr_status pad_input(const hr_session *session, padding *p, size_t input) {
  hr_tensor *x = &p->inputs[input];
  for (int b = 0; b < session->bucket_count; ++b) {
    const hr__session_bucket *bucket = &session->buckets[b];
    int axis = bucket->inputs[input];
    int64_t size = round_up(bucket, p->symbols[bucket->symbol]);
    if (axis >= 0 && size > x->dims[axis] && hr_tensor_count(x) > 0) {
      HR_RETURN_IF_ERROR(pad(session->stream, axis, size, x));
    } else if (axis >= 0) {
      x->dims[axis] = size; /* of an empty tensor */
    }
  }
  return HR_OK;
}

static hr_status pad_inputs(hr_session *session, const hr_tensor *const *inputs, padding *p) {
  const hr_graph *graph = session->whole;
  for (size_t i = 0; i < graph->inputs.count; ++i) {
    if (inputs[i]->buffer == NULL) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "input \"%s\" has no buffer",
                            hr_graph_value_name(graph, graph->inputs.data[i]));
    }
    hr__tensor_share(inputs[i], &p->inputs[i]);
    p->places[i] = &p->inputs[i];
    HR_RETURN_IF_ERROR(pad_input(session, p, i));
  }
  return hr_stream_commit(session->stream);
}

static void cut_results(const hr_session *session, const padding *p, hr_tensor *results) {
  for (int b = 0; b < session->bucket_count; ++b) {
    const hr__session_bucket *bucket = &session->buckets[b];
    for (size_t i = 0; i < session->whole->outputs.count; ++i) {
      if (bucket->outputs[i] >= 0) {
        results[i].dims[bucket->outputs[i]] = p->symbols[bucket->symbol];
      }
    }
  }
}

/* Checks the inputs, and if any is padded. */
static hr_status measure(const hr_session *session, const hr_tensor *const *inputs, padding *p) {
  const hr_graph *graph = session->whole;
  HR_RETURN_IF_ERROR(hr__graph_bind(graph, (int)graph->inputs.count, inputs, p->symbols));
  for (int b = 0; b < session->bucket_count; ++b) {
    int64_t size = p->symbols[session->buckets[b].symbol];
    p->is_needed |= round_up(&session->buckets[b], size) != size;
  }
  return HR_OK;
}

hr_status hr__session_run_padded(hr_session *session, const hr_tensor *const *inputs,
                                 hr_status (*run)(hr_session *session, const hr_tensor *const *inputs,
                                                  hr_tensor *out_results),
                                 hr_tensor *out_results) {
  size_t count = session->whole->inputs.count + 1;
  int64_t symbols[HR_GRAPH_SYMBOLS_MAX];
  padding p = {.symbols = symbols};
  HR_RETURN_IF_ERROR(measure(session, inputs, &p));
  if (!p.is_needed) {
    return run(session, inputs, out_results);
  }
  p.inputs = hr_calloc(count, sizeof *p.inputs);
  p.places = hr_calloc(count, sizeof(hr_tensor *));
  hr_status status = p.inputs != NULL && p.places != NULL ? pad_inputs(session, inputs, &p) : no_memory();
  status = status == HR_OK ? run(session, p.places, out_results) : status;
  if (status == HR_OK) {
    cut_results(session, &p, out_results);
    hr_mutex_lock(&session->instances.mutex);
    ++session->stats.padded;
    hr_mutex_unlock(&session->instances.mutex);
  }
  for (size_t i = 0; p.inputs != NULL && i < count; ++i) {
    hr_tensor_release(&p.inputs[i]);
  }
  hr_free(p.inputs);
  hr_free(p.places);
  return status;
}
