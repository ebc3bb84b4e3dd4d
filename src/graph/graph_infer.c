/* graph_infer.c: the facts of a node's results from those of its inputs. */
#include "functional/functions.h"
#include "graph/graph_node.h"

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory for an operation");
}

/* ---- attributes ---- */

static hr_status not_known(const hr__frame *frame, const char *function, const char *attribute, hr_value value) {
  char text[HR__GRAPH_NAME_TEXT];
  return hr_status_make(HR_STATUS_UNIMPLEMENTED,
                        "%s: attribute %s depends on \"%s\", which is not computed on the host: it must be integers "
                        "that follow from shapes and constants",
                        function, attribute, hr__graph_label(frame->graph, value, text));
}

static int64_t count_of(const hr__fact *fact) {
  int64_t count = 1;
  for (int d = 0; d < fact->rank; ++d) {
    count *= fact->dims[d];
  }
  return count;
}

static hr_status find_number(const hr__frame *frame, const char *function, const char *attribute, hr_value value,
                             int64_t *out_number) {
  const hr__fact *fact = hr__frame_fact(frame, value);
  if (fact->numbers == NULL || count_of(fact) != 1) {
    return not_known(frame, function, attribute, value);
  }
  *out_number = fact->numbers[0];
  return HR_OK;
}

static hr_status set_list(const hr__frame *frame, const hr__node *node, const char *name, hr_value list,
                          hr_attribute *to) {
  const char *function = hr_functional_name(node->function);
  const hr__fact *fact = hr__frame_fact(frame, list);
  if (fact->numbers == NULL) {
    return not_known(frame, function, name, list);
  }
  if (fact->rank != 1 || fact->dims[0] > HR_RANK_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                          "%s: attribute %s is a value of %d dims, expected one dim of at "
                          "most %d integers",
                          function, name, fact->rank, HR_RANK_MAX);
  }
  to->count = (int)fact->dims[0], to->value.ints = fact->numbers;
  return HR_OK;
}

/* Sets the elements that are values. */
static hr_status set_elements(const hr__frame *frame, const hr__node *node, const char *name,
                              const hr__node_attribute *from, hr_attribute *to) {
  const char *function = hr_functional_name(node->function);
  int64_t number = 0;
  if (to->kind != HR_ATTRIBUTE_INTS) {
    if (from->values[0] != 0) {
      HR_RETURN_IF_ERROR(find_number(frame, function, name, from->values[0], &number));
      if (to->kind == HR_ATTRIBUTE_REAL) {
        to->value.number = hr_scalar_i64(number);
      } else {
        to->value.integer = number;
      }
    }
    return HR_OK;
  }
  int64_t *ints = hr_arena_dup_words(frame->scratch, from->value.value.ints, to->count);
  for (int i = 0; ints != NULL && i < to->count; ++i) {
    if (from->values[i] != 0) {
      HR_RETURN_IF_ERROR(find_number(frame, function, name, from->values[i], &ints[i]));
    }
  }
  to->value.ints = ints;
  return ints != NULL ? HR_OK : no_memory();
}

hr_status hr__frame_attributes(const hr__frame *frame, const hr__node *node, hr_attribute **out_attributes) {
  const hr__attribute_row *rows = hr__function_row_of(node->function)->attributes;
  hr_attribute *all = HR_ARENA_ARRAY(frame->scratch, hr_attribute, (size_t)node->attribute_count + 1);
  if (all == NULL) {
    return no_memory();
  }
  for (int i = 0; i < node->attribute_count; ++i) {
    const hr__node_attribute *from = &node->attributes[i];
    all[i] = from->value;
    if (from->list != 0) {
      HR_RETURN_IF_ERROR(set_list(frame, node, rows[i].name, from->list, &all[i]));
    } else if (from->values != NULL) {
      HR_RETURN_IF_ERROR(set_elements(frame, node, rows[i].name, from, &all[i]));
    }
  }
  *out_attributes = all;
  return HR_OK;
}

/* ---- types ---- */

bool hr__frame_may_know(const hr__frame *frame, hr_dtype dtype, int64_t count) {
  int64_t bytes = count * (int64_t)sizeof(int64_t);
  if (!hr__is_host_dtype(dtype) || count > HR__GRAPH_HOST_MAX) {
    return false;
  }
  if (count > HR__GRAPH_HOST_FEW) {
    if (*frame->host_bytes + bytes > HR__GRAPH_HOST_BYTES) {
      return false;
    }
    *frame->host_bytes += bytes;
  }
  return true;
}

void hr__frame_type(const hr__frame *frame, hr_value value, hr_tensor *out) {
  const hr__node *node = hr__graph_node_of(frame->graph, value);
  const hr__fact *fact = hr__frame_fact(frame, value);
  if (node->kind == HR__NODE_NUMBER) {
    *out = hr_tensor_number(node->number);
    return;
  }
  *out = (hr_tensor){.dtype = fact->dtype, .rank = fact->rank};
  for (int d = 0; d < fact->rank; ++d) {
    out->dims[d] = fact->dims[d];
  }
  hr_tensor_set_row_major(out);
}

hr_status hr__frame_set_fact(const hr__frame *frame, const char *name, hr_dtype dtype, int rank, const int64_t *dims,
                             hr__fact *out) {
  int64_t bytes = (int64_t)hr_dtype_size(dtype);
  for (int d = 0; d < rank; ++d) {
    int64_t size = dims[d] > 0 ? dims[d] : 1;
    if (dims[d] < 0 || __builtin_mul_overflow(bytes, size, &bytes) || bytes > INT64_MAX / 2) {
      char text[HR__SHAPE_TEXT];
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: dims %s are too large", name,
                            hr__shape_text(rank, dims, text));
    }
  }
  int64_t *copy = hr_arena_dup_words(frame->arena, dims, rank);
  if (copy == NULL) {
    return no_memory();
  }
  *out = (hr__fact){.is_set = true, .dtype = dtype, .rank = rank, .dims = copy};
  return HR_OK;
}

static hr_status set_number(const hr__frame *frame, int64_t number, hr__fact *out) {
  out->numbers = hr_arena_dup(frame->arena, &number, sizeof number);
  return out->numbers != NULL ? HR_OK : no_memory();
}

static int64_t symbol_number(const hr__frame *frame, int symbol) {
  return frame->symbols != NULL ? frame->symbols[symbol] : hr__graph_point(frame->point, symbol);
}

static hr_status infer_input(const hr__frame *frame, const hr__node *node, hr__fact *out) {
  int64_t dims[HR_RANK_MAX];
  for (int d = 0; d < node->rank; ++d) {
    dims[d] = node->dims[d] >= 0 ? node->dims[d] : symbol_number(frame, (int)(-1 - node->dims[d]));
  }
  return hr__frame_set_fact(frame, "input", node->dtype, node->rank, dims, out);
}

static hr_status infer_constant(const hr__frame *frame, const hr__node *node, hr__fact *out) {
  HR_RETURN_IF_ERROR(hr__frame_set_fact(frame, "constant", node->dtype, node->rank, node->dims, out));
  int64_t count = count_of(out);
  if (node->kind == HR__NODE_VARIABLE || !hr__frame_may_know(frame, node->dtype, count)) {
    return HR_OK;
  }
  int64_t *numbers = HR_ARENA_ARRAY(frame->arena, int64_t, (size_t)count + 1);
  if (numbers == NULL) {
    return no_memory();
  }
  hr__integers_load(node->dtype, count, node->blob->bytes, numbers);
  out->numbers = numbers;
  return HR_OK;
}

static hr_status infer_shape(const hr__frame *frame, const hr__node *node, hr__fact *out) {
  const hr__fact *x = hr__frame_fact(frame, node->inputs[0]);
  const int64_t dims[1] = {x->rank};
  HR_RETURN_IF_ERROR(hr__frame_set_fact(frame, "shape", HR_DTYPE_I64, 1, dims, out));
  out->numbers = x->dims;
  return HR_OK;
}

/* ---- calls ---- */

typedef struct operands {
  hr_tensor *types;
  const hr_tensor **inputs; /* NULL: absent */
  const hr__fact **facts;
  bool are_known; /* on the host */
} operands;

static hr_status find_operands(const hr__frame *frame, const hr__node *node, operands *out) {
  size_t count = (size_t)node->input_count + 1;
  out->types = hr_arena_alloc(frame->scratch, count * sizeof *out->types);
  out->inputs = HR_ARENA_ARRAY(frame->scratch, const hr_tensor *, count);
  out->facts = HR_ARENA_ARRAY(frame->scratch, const hr__fact *, count);
  if (out->types == NULL || out->inputs == NULL || out->facts == NULL) {
    return no_memory();
  }
  out->are_known = true;
  for (int i = 0; i < node->input_count; ++i) {
    if (node->inputs[i] != 0) {
      hr__frame_type(frame, node->inputs[i], &out->types[i]);
      out->inputs[i] = &out->types[i];
      out->facts[i] = hr__frame_fact(frame, node->inputs[i]);
    }
    out->are_known &= out->facts[i] != NULL && out->facts[i]->numbers != NULL;
  }
  return HR_OK;
}

static hr_status apply_call(const hr__frame *frame, const hr__node *node, const hr_attribute *attributes,
                            const operands *of, hr_tensor *results, hr__fact *out) {
  HR_RETURN_IF_ERROR(hr_functional_apply(NULL, node->function, node->input_count, of->inputs, node->attribute_count,
                                         attributes, node->result_count, results));
  for (int i = 0; i < node->result_count; ++i) {
    HR_RETURN_IF_ERROR(hr__frame_set_fact(frame, hr_functional_name(node->function), results[i].dtype, results[i].rank,
                                          results[i].dims, &out[i]));
  }
  return HR_OK;
}

static hr_status infer_call(const hr__frame *frame, const hr__node *node, hr__fact *out) {
  hr_attribute *attributes = NULL;
  operands of = {0};
  hr_tensor *results = hr_arena_alloc(frame->scratch, (size_t)node->result_count * sizeof *results);
  if (results == NULL) {
    return no_memory();
  }
  HR_RETURN_IF_ERROR(hr__frame_attributes(frame, node, &attributes));
  HR_RETURN_IF_ERROR(find_operands(frame, node, &of));
  hr_status status = apply_call(frame, node, attributes, &of, results, out);
  if (hr_status_code_of(status) == HR_STATUS_UNIMPLEMENTED && frame->is_typing) {
    bool is_unknown = false;
    hr_status other = hr__frame_infer_unknown(frame, node, attributes, out, &is_unknown);
    if (is_unknown || other != HR_OK) {
      hr_status_free(status);
      return other;
    }
  }
  HR_RETURN_IF_ERROR(status);
  if (of.are_known && node->result_count == 1 && hr__frame_may_know(frame, out->dtype, count_of(out))) {
    return hr__integers_compute(node, attributes, of.facts, results, frame->arena, &out->numbers);
  }
  return HR_OK;
}

static hr_status infer_gradient(const hr__frame *frame, const hr__node *node, hr__fact *out) {
  for (int i = 0; i < node->result_count; ++i) {
    const hr__fact *by = hr__frame_fact(frame, node->inputs[i + 2]);
    HR_RETURN_IF_ERROR(hr__frame_set_fact(frame, "gradient", by->dtype, by->rank, by->dims, &out[i]));
  }
  if (node->inputs[1] == 0) {
    return HR_OK;
  }
  const hr__fact *of = hr__frame_fact(frame, node->inputs[0]);
  hr_tensor seed, ignored;
  hr__frame_type(frame, node->inputs[1], &seed);
  const hr_tensor *inputs[1] = {&seed};
  const hr_attribute shape = {.kind = HR_ATTRIBUTE_INTS, .count = of->rank, .value = {.ints = of->dims}};
  return hr_status_annotate(hr_functional_apply(NULL, HR_FUNCTIONAL_BROADCAST_TO, 1, inputs, 1, &shape, 1, &ignored),
                            "gradient: seed");
}

typedef struct unset {
  const hr__frame *frame;
  hr_value value;
} unset;

static void find_unset(void *arg, const hr_value *value) {
  unset *u = arg;
  if (!hr__frame_fact(u->frame, *value)->is_set) {
    u->value = *value;
  }
}

static hr_status infer_host(const hr__frame *frame, const hr__node *node, hr__fact *out) {
  for (int i = 0; i < node->result_count; ++i) {
    const hr_type *type = &node->host->types[i];
    HR_RETURN_IF_ERROR(hr__frame_set_fact(frame, "host", type->dtype, type->rank, type->dims, &out[i]));
  }
  return HR_OK;
}

hr_status hr__frame_infer(const hr__frame *frame, const hr__node *node, hr__fact *out) {
  unset u = {frame, 0};
  hr__node_each_input(node, find_unset, &u);
  if (u.value != 0) {
    char text[HR__GRAPH_NAME_TEXT];
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "the dims of \"%s\" are valid for other sizes alone",
                          hr__graph_label(frame->graph, u.value, text));
  }
  switch (node->kind) {
    case HR__NODE_INPUT:
      return infer_input(frame, node, out);
    case HR__NODE_CONSTANT:
    case HR__NODE_VARIABLE:
      return infer_constant(frame, node, out);
    case HR__NODE_NUMBER:
      HR_RETURN_IF_ERROR(hr__frame_set_fact(frame, "number", node->number.dtype, 0, NULL, out));
      return hr__is_host_dtype(node->number.dtype) ? set_number(frame, node->number.value.i, out) : HR_OK;
    case HR__NODE_SYMBOL:
      HR_RETURN_IF_ERROR(hr__frame_set_fact(frame, "symbol", HR_DTYPE_I64, 0, NULL, out));
      return set_number(frame, symbol_number(frame, node->symbol), out);
    case HR__NODE_SHAPE:
      return infer_shape(frame, node, out);
    case HR__NODE_CALL:
      return infer_call(frame, node, out);
    case HR__NODE_GRADIENT:
      return infer_gradient(frame, node, out);
    case HR__NODE_READ:
      return hr__frame_infer_read(frame, node, out);
    case HR__NODE_HOST:
      return infer_host(frame, node, out);
    default:
      return hr__frame_infer_control(frame, node, out);
  }
}
