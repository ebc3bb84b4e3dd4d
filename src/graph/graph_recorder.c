/* graph_recorder.c: functions applied to a stream, as nodes of a graph. A recorder is a hook of the stream.
 *
 * A tensor is known by its buffer and its view of it. Functions never write to tensors that exist, so that a known one
 * keeps its value, unless something else is recorded: then the graph would be wrong, and is refused.
 */
#include "base/hash.h"
#include "core/ops/op.h"
#include "functional/functions.h"
#include "graph/graph_node.h"
#include "headrace/array.h"
#include "headrace/hook.h"

struct hr_graph_recorder {
  hr_hook hook; /* first */
  hr_stream *stream;
  hr_graph *graph;
  hr_table table;   /* hr_value by tensor */
  hr_table buffers; /* the first hr_value by the buffer's serial number; -1: a constant */
  bool is_inside;   /* of a function, whose records are its own */
  hr_op other;      /* the first operation that no function recorded */
};

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory to record it");
}

/* ---- tensors ---- */

static uint64_t tensor_key(const hr_tensor *x) {
  uint64_t words[4 + 2 * HR_RANK_MAX] = {hr_buffer_serial(x->buffer), (uint64_t)x->dtype, (uint64_t)x->offset,
                                         (uint64_t)x->rank};
  for (int d = 0; d < x->rank; ++d) {
    words[4 + d] = (uint64_t)x->dims[d];
    words[4 + x->rank + d] = x->dims[d] > 1 ? (uint64_t)x->strides[d] : 0;
  }
  return hr_hash_words(HR_HASH_SEED, words, (size_t)(4 + 2 * x->rank));
}

static hr_status note_tensor(hr_graph_recorder *r, const hr_tensor *x, hr_value value) {
  return hr_table_put(&r->table, tensor_key(x), (void *)(intptr_t)value) ? HR_OK : no_memory();
}

static uint64_t buffer_key(const hr_tensor *x) {
  return hr_hash_mix(HR_HASH_SEED, hr_buffer_serial(x->buffer));
}

/* The same, and its buffer's first value: no view of an input's or a result's buffer is a constant. */
static hr_status note_buffer(hr_graph_recorder *r, const hr_tensor *x, hr_value value, bool is_constant) {
  HR_RETURN_IF_ERROR(note_tensor(r, x, value));
  if (hr_table_get(&r->buffers, buffer_key(x)) != NULL) {
    return HR_OK;
  }
  return hr_table_put(&r->buffers, buffer_key(x), (void *)(intptr_t)(is_constant ? -1 : value)) ? HR_OK : no_memory();
}

/* A view that no function made has no value; its elements are those of one run. */
static hr_status refuse_view(const hr_graph_recorder *r, const hr_tensor *x) {
  char label[HR__GRAPH_NAME_TEXT], text[HR__SHAPE_TEXT];
  hr_value value = (hr_value)(intptr_t)hr_table_get(&r->buffers, buffer_key(x));
  if (value <= 0) {
    return HR_OK;
  }
  return hr_status_make(HR_STATUS_UNIMPLEMENTED,
                        "graph: a view %s%s of \"%s\" that no function made: use slice, reshape or another function",
                        hr_dtype_name(x->dtype), hr__shape_text(x->rank, x->dims, text),
                        hr__graph_label(r->graph, value, label));
}

/* A constant of the graph with the same elements; 0: there is none. */
static hr_value find_equal(const hr_graph *graph, const hr_type *type, const void *elements) {
  for (size_t n = 0; n < graph->nodes.count; ++n) {
    const hr__node *node = &graph->nodes.data[n];
    if (node->kind == HR__NODE_CONSTANT && node->dtype == type->dtype && node->rank == type->rank &&
        memcmp(node->dims, type->dims, (size_t)type->rank * sizeof *type->dims) == 0 &&
        memcmp(node->blob->bytes, elements, hr__graph_bytes(node)) == 0) {
      return node->first;
    }
  }
  return 0;
}

static hr_status add_constant(hr_graph_recorder *r, const hr_tensor *x, hr_value *out_value) {
  hr_type type = {.dtype = x->dtype, .rank = x->rank};
  memcpy(type.dims, x->dims, (size_t)x->rank * sizeof *x->dims);
  size_t bytes = (size_t)hr_tensor_count(x) * hr_dtype_size(x->dtype);
  void *elements = hr_malloc(bytes);
  hr_status status = elements != NULL ? hr_array_read(r->stream, x, elements) : no_memory();
  if (status == HR_OK) {
    *out_value = find_equal(r->graph, &type, elements);
    *out_value = *out_value != 0 ? *out_value : hr_graph_constant(r->graph, &type, elements);
    status = hr_graph_status(r->graph);
  }
  hr_free(elements);
  return status == HR_OK ? note_buffer(r, x, *out_value, true)
                         : hr_status_annotate(status, "graph: a tensor as a constant");
}

hr_status hr_graph_recorder_find(hr_graph_recorder *r, const hr_tensor *x, hr_value *out_value) {
  if (x->number.dtype != HR_DTYPE_NONE) {
    *out_value = hr_graph_number(r->graph, x->number);
    return hr_graph_status(r->graph);
  }
  if (x->buffer == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: a tensor without a buffer has no value");
  }
  *out_value = (hr_value)(intptr_t)hr_table_get(&r->table, tensor_key(x));
  if (*out_value != 0) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(refuse_view(r, x));
  return add_constant(r, x, out_value);
}

hr_status hr_graph_recorder_bind(hr_graph_recorder *r, const hr_tensor *tensor, hr_value value) {
  hr_type type;
  HR_RETURN_IF_ERROR(hr_graph_type(r->graph, value, &type));
  if (tensor->buffer == NULL || tensor->dtype != type.dtype || tensor->rank != type.rank) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: a tensor of %s with %d dims%s, expected %s with %d",
                          hr_dtype_name(tensor->dtype), tensor->rank, tensor->buffer == NULL ? " and no buffer" : "",
                          hr_dtype_name(type.dtype), type.rank);
  }
  return note_buffer(r, tensor, value, false);
}

/* ---- functions ---- */

/* The call as a node. */
static hr_status add_node(hr_graph_recorder *r, const hr_hook_function *f, hr_value *inputs, hr_value *out_first) {
  const hr__attribute_row *rows = hr__function_row_of((hr_functional)f->function)->attributes;
  hr_graph_attribute attributes[HR__GRAPH_ATTRIBUTES_MAX];
  int count = 0;
  for (int i = 0; i < f->input_count; ++i) {
    if (f->inputs[i] != NULL) {
      HR_RETURN_IF_ERROR(hr_graph_recorder_find(r, f->inputs[i], &inputs[i]));
    }
  }
  for (int i = 0; i < f->attribute_count && i < HR__GRAPH_ATTRIBUTES_MAX; ++i) {
    if (f->attributes[i].kind != HR_ATTRIBUTE_NONE) {
      attributes[count++] = (hr_graph_attribute){.name = rows[i].name, .value = f->attributes[i]};
    }
  }
  *out_first = hr_graph_add(r->graph, (hr_functional)f->function, f->input_count, inputs, count, attributes);
  return hr_graph_status(r->graph);
}

static hr_status apply_and_note(hr_graph_recorder *r, const hr_hook_function *f, hr_value first) {
  hr_status (*apply)(hr_hook *, hr_stream *, const hr_hook_function *) = r->hook.apply;
  r->hook.apply = NULL, r->is_inside = true;
  hr_status status = hr_functional_apply(r->stream, (hr_functional)f->function, f->input_count, f->inputs,
                                         f->attribute_count, f->attributes, f->result_count, f->results);
  r->hook.apply = apply, r->is_inside = false;
  HR_RETURN_IF_ERROR(status);
  for (int i = 0; i < f->result_count && status == HR_OK; ++i) {
    status = note_buffer(r, &f->results[i], first + i, false);
  }
  for (int i = 0; i < f->result_count && status != HR_OK; ++i) {
    hr_tensor_release(&f->results[i]);
  }
  return status;
}

static hr_status record_function(hr_hook *hook, hr_stream *stream, const hr_hook_function *f) {
  hr_graph_recorder *r = (hr_graph_recorder *)hook;
  (void)stream;
  hr_value *inputs = hr_calloc((size_t)f->input_count + 1, sizeof *inputs), first = 0;
  hr_status status = inputs != NULL ? add_node(r, f, inputs, &first) : no_memory();
  status = status == HR_OK ? apply_and_note(r, f, first) : status;
  hr_free(inputs);
  return status;
}

static hr_status see_record(hr_hook *hook, hr_stream *stream, const hr_hook_record *record) {
  hr_graph_recorder *r = (hr_graph_recorder *)hook;
  if (!r->is_inside && r->other == HR_OP_NONE) {
    r->other = record->op;
  }
  return hr_hook_pass(hook, stream, record);
}

/* ---- recorders ---- */

hr_status hr_graph_recorder_begin(hr_stream *stream, hr_graph *graph, hr_graph_recorder **out_recorder) {
  hr_graph_recorder *r = hr_calloc(1, sizeof *r);
  if (r == NULL) {
    return no_memory();
  }
  hr_stream_retain(stream);
  hr_graph_retain(graph);
  r->stream = stream, r->graph = graph;
  r->hook.record = see_record, r->hook.apply = record_function;
  hr_hook_add(stream, &r->hook);
  *out_recorder = r;
  return HR_OK;
}

hr_status hr_graph_recorder_end(hr_graph_recorder *r) {
  hr_hook_remove(r->stream, &r->hook);
  hr_op other = r->other;
  hr_table_fini(&r->table);
  hr_table_fini(&r->buffers);
  hr_graph_release(r->graph);
  hr_stream_release(r->stream);
  hr_free(r);
  return other == HR_OP_NONE
             ? HR_OK
             : hr_status_make(HR_STATUS_UNIMPLEMENTED, "graph: %s was recorded, which no function did: it has no node",
                              hr_op_table(other)->name);
}
