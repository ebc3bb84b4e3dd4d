/* body.c: reads the body of a cluster. */
#include "body.h"

#include <stdio.h>
#include <stdlib.h>

#include "graphdef.h"

/* ---- attributes of a NodeDef ---- */

enum {
  VALUE_LIST = 1,
  VALUE_TEXT = 2,
  VALUE_INT = 3,
  VALUE_FLOAT = 4,
  VALUE_FLAG = 5,
  VALUE_TYPE = 6,
  VALUE_TENSOR = 8
};
enum { LIST_INTS = 3, LIST_REALS = 4 };

static bool read_text(hr__span value, htf_attribute *attribute) {
  hr__field field;
  if (!htf_find_field(value, VALUE_TEXT, &field) || field.bytes.size >= sizeof attribute->text) {
    return false;
  }
  memcpy(attribute->text, field.bytes.data, field.bytes.size);
  attribute->text[field.bytes.size] = '\0';
  return true;
}

static bool read_list(hr__span value, htf_attribute *attribute) {
  hr__field field;
  if (!htf_find_field(value, VALUE_LIST, &field)) {
    return false;
  }
  attribute->count = htf_read_numbers(field.bytes, LIST_INTS, HTF_LIST_MAX, attribute->list);
  return attribute->count <= HTF_LIST_MAX;
}

static bool read_reals(hr__span value, htf_attribute *attribute, tf_status *status) {
  hr__field list, field;
  uint64_t bits;
  int most = (int)(value.size / sizeof(float)), count = 0;
  if (!htf_find_field(value, VALUE_LIST, &list) || !htf_attribute_has_room(attribute, most, status)) {
    return false;
  }
  for (hr__wire wire = hr__wire_of(list.bytes); hr__wire_next(&wire, &field);) {
    hr__wire packed = hr__wire_of(field.type == HR__WIRE_BYTES ? field.bytes : (hr__span){NULL, 0});
    while (field.number == LIST_REALS && count < most && hr__wire_number(&packed, HR__WIRE_FIXED32, &bits)) {
      attribute->reals[count++] = hr__wire_float(bits);
    }
  }
  attribute->count = count;
  return true;
}

static bool read_number(hr__span value, uint32_t number, htf_attribute *attribute) {
  hr__field field;
  bool is_found = htf_find_field(value, number, &field) && field.type != HR__WIRE_BYTES;
  attribute->integer = is_found ? (int64_t)field.value : 0;
  attribute->real = is_found && field.type == HR__WIRE_FIXED32 ? (double)hr__wire_float(field.value) : 0;
  return is_found;
}

static bool read_value(hr__span value, htf_attribute *attribute, tf_status *status) {
  switch (attribute->kind) {
    case 'r':
      return read_reals(value, attribute, status);
    case 's':
      return read_text(value, attribute);
    case 'l':
      return read_list(value, attribute);
    case 'b':
      return read_number(value, VALUE_FLAG, attribute);
    case 'i':
      return read_number(value, VALUE_INT, attribute);
    case 'f':
      return read_number(value, VALUE_FLOAT, attribute);
    default:
      return read_number(value, VALUE_TYPE, attribute);
  }
}

static void read_attribute(void *source, htf_attribute *attribute, tf_status *status) {
  hr__span *node = source, value;
  if (!htf_find_attribute(*node, attribute->name, &value) || !read_value(value, attribute, status)) {
    char text[128];
    snprintf(text, sizeof text, "headrace: a node of a cluster has no attribute %s that can be read", attribute->name);
    tf.SetStatus(status, HR_STATUS_INVALID_ARGUMENT, text);
  }
}

/* ---- nodes ---- */

static hr_status damaged(const char *why) {
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "headrace: a damaged cluster: %s", why);
}

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a cluster");
}

static hr_status read_kernel(hr__span def, bool is_host, htf_body_node *node) {
  hr__field op, name, tensor;
  hr__span value;
  bool takes_dims;
  htf_row_kind kind;
  if (!htf_find_field(def, HTF_NODE_OP, &op) || op.type != HR__WIRE_BYTES ||
      !htf_find_field(def, HTF_NODE_NAME, &name) || name.type != HR__WIRE_BYTES) {
    return damaged("a node has no name or operation");
  }
  const htf_row *row = is_host ? htf_find_host(op.bytes, &takes_dims) : htf_find_inside(op.bytes, &kind);
  node->name = calloc(name.bytes.size + 1, 1);
  if (row == NULL || node->name == NULL) {
    return row == NULL ? damaged("a node has an unknown operation") : no_memory();
  }
  memcpy(node->name, name.bytes.data, name.bytes.size);
  node->is_merge = hr__span_is(op.bytes, "Merge"), node->is_condition = hr__span_is(op.bytes, "LoopCond");
  if (hr__span_is(op.bytes, "Const")) {
    if (!htf_find_attribute(def, "value", &value) || !htf_find_field(value, VALUE_TENSOR, &tensor) ||
        tensor.type != HR__WIRE_BYTES) {
      return damaged("a constant has no value");
    }
    HR_RETURN_IF_ERROR(htf_read_tensor(tensor.bytes, &node->constant));
  }
  tf_status *status = tf.NewStatus();
  node->kernel = htf_kernel_create(row, read_attribute, &def, status);
  hr_status result = htf_status_of(status);
  tf.DeleteStatus(status);
  return result;
}

/* Reads a node and takes its numbers from `numbers`, which has room for them. */
static hr_status read_node(hr__span message, int value_count, int64_t *numbers, htf_body_node *node) {
  hr__field def, host;
  if (!htf_find_field(message, HTF_BODY_NODE_DEF, &def) || def.type != HR__WIRE_BYTES) {
    return damaged("a node is missing");
  }
  node->first_output = value_count;
  node->inputs = numbers;
  node->input_count = htf_read_numbers(message, HTF_BODY_NODE_INPUTS, INT32_MAX, numbers);
  node->types = numbers + node->input_count;
  node->output_count = htf_read_numbers(message, HTF_BODY_NODE_TYPES, INT32_MAX, numbers + node->input_count);
  for (int i = 0; i < node->output_count; ++i) {
    if (htf_dtype_of((int)node->types[i]) == HR_DTYPE_NONE && node->types[i] != TF_VARIANT) {
      return damaged("a node has a result of another dtype");
    }
  }
  bool is_host = htf_find_field(message, HTF_BODY_NODE_IS_HOST, &host) && host.value != 0;
  return read_kernel(def.bytes, is_host, node);
}

/* Merge of a loop may have a later value as its second input. */
static hr_status check_inputs(const htf_body *body) {
  for (int i = 0; i < body->node_count; ++i) {
    const htf_body_node *node = &body->nodes[i];
    for (int j = 0; j < node->input_count; ++j) {
      int most = node->is_merge && j == 1 ? body->value_count : node->first_output;
      if (node->inputs[j] < 0 || node->inputs[j] >= most) {
        return damaged("a node uses a later value");
      }
    }
  }
  return HR_OK;
}

static unsigned use_of(const char *op) {
  static const char *const in_place[] = {"Update", "Add", "Sub", "Mul", "Max", "Min"};
  static const char gather[] = "ResourceGather", scatter[] = "ResourceScatter";
  bool is_found = false;
  if (strcmp(op, "ReadVariableOp") == 0) {
    return 0;
  }
  if (strncmp(op, gather, sizeof gather - 1) == 0) {
    return HTF_GATHERS;
  }
  for (size_t i = 0; i < sizeof in_place / sizeof *in_place && strncmp(op, scatter, sizeof scatter - 1) == 0; ++i) {
    is_found = is_found || strcmp(op + sizeof scatter - 1, in_place[i]) == 0;
  }
  return is_found ? HTF_SCATTERS : HTF_UPDATES;
}

static hr_status find_uses(htf_body *body) {
  body->uses = calloc((size_t)body->variable_count + 1, sizeof *body->uses);
  if (body->uses == NULL) {
    return no_memory();
  }
  for (int i = 0; i < body->node_count; ++i) {
    const htf_body_node *node = &body->nodes[i];
    for (int j = 0; j < node->input_count; ++j) {
      const int64_t variable = node->inputs[j] - body->input_count;
      if (variable >= 0 && variable < body->variable_count) {
        body->uses[variable] |= (uint8_t)use_of(node->kernel->row->op);
      }
    }
  }
  return HR_OK;
}

/* ---- loops ---- */

/* The nodes of which no input changes with the iterations. */
static void find_invariants(htf_body *body, const htf_body_loop *loop) {
  const int end = loop->first + loop->count, begin_values = body->nodes[loop->first].first_output;
  for (int i = loop->first; i < end; ++i) {
    htf_body_node *node = &body->nodes[i];
    node->is_invariant = !node->is_merge && !node->is_condition;
    for (int j = 0; j < node->input_count && node->is_invariant; ++j) {
      int source = i - 1;
      while (source >= loop->first && body->nodes[source].first_output > node->inputs[j]) {
        --source;
      }
      node->is_invariant = node->inputs[j] < begin_values || body->nodes[source].is_invariant;
    }
  }
}

static hr_status read_loops(hr__span bytes, htf_body *body) {
  int end = 0;
  hr__wire wire = hr__wire_of(bytes);
  for (hr__field field, first, count; hr__wire_next(&wire, &field);) {
    if (field.number != HTF_BODY_LOOP || field.type != HR__WIRE_BYTES) {
      continue;
    }
    htf_body_loop *loop = &body->loops[body->loop_count++];
    bool has_both = htf_find_field(field.bytes, HTF_BODY_LOOP_FIRST, &first) &&
                    htf_find_field(field.bytes, HTF_BODY_LOOP_COUNT, &count);
    if (!has_both || first.value < (uint64_t)end || first.value >= (uint64_t)body->node_count || count.value == 0 ||
        count.value > (uint64_t)body->node_count - first.value) {
      return damaged("a loop has nodes that are not there");
    }
    *loop = (htf_body_loop){(int)first.value, (int)count.value};
    end = loop->first + loop->count;
    find_invariants(body, loop);
  }
  return HR_OK;
}

/* ---- bodies ---- */

/* Counts nodes and numbers, which are at least one byte each. */
static hr_status read_header(hr__span bytes, htf_body *body, size_t *out_numbers, int *out_loops) {
  hr__wire wire = hr__wire_of(bytes);
  for (hr__field field; hr__wire_next(&wire, &field);) {
    bool is_message = field.type == HR__WIRE_BYTES;
    if (field.number == HTF_BODY_NODE && is_message) {
      ++body->node_count;
      *out_numbers += (size_t)htf_read_numbers(field.bytes, HTF_BODY_NODE_INPUTS, 0, NULL) +
                      (size_t)htf_read_numbers(field.bytes, HTF_BODY_NODE_TYPES, 0, NULL);
    } else if (field.number == HTF_BODY_LOOP) {
      ++*out_loops;
    } else if ((field.number == HTF_BODY_INPUTS || field.number == HTF_BODY_VARIABLES) && !is_message) {
      int *count = field.number == HTF_BODY_INPUTS ? &body->input_count : &body->variable_count;
      *count = field.value < 1 << 20 ? (int)field.value : 1 << 20;
    }
  }
  return wire.failure == NULL ? HR_OK : damaged(wire.failure);
}

static hr_status read_body(hr__span bytes, htf_body *body) {
  size_t numbers = 0;
  int loops = 0;
  HR_RETURN_IF_ERROR(read_header(bytes, body, &numbers, &loops));
  body->result_count = htf_read_numbers(bytes, HTF_BODY_RESULTS, 0, NULL);
  body->nodes = calloc((size_t)body->node_count + 1, sizeof *body->nodes);
  body->numbers = calloc(numbers + 1, sizeof *body->numbers);
  body->results = calloc((size_t)body->result_count + 1, sizeof *body->results);
  body->loops = calloc((size_t)loops + 1, sizeof *body->loops);
  if (body->nodes == NULL || body->numbers == NULL || body->results == NULL || body->loops == NULL) {
    return no_memory();
  }
  body->value_count = body->input_count + body->variable_count;
  int count = 0;
  int64_t *free_numbers = body->numbers;
  hr__wire wire = hr__wire_of(bytes);
  for (hr__field field; hr__wire_next(&wire, &field);) {
    if (field.number == HTF_BODY_NODE && field.type == HR__WIRE_BYTES) {
      htf_body_node *node = &body->nodes[count++];
      HR_RETURN_IF_ERROR(read_node(field.bytes, body->value_count, free_numbers, node));
      free_numbers += node->input_count + node->output_count;
      body->value_count += node->output_count;
    }
  }
  HR_RETURN_IF_ERROR(check_inputs(body));
  HR_RETURN_IF_ERROR(find_uses(body));
  HR_RETURN_IF_ERROR(read_loops(bytes, body));
  (void)htf_read_numbers(bytes, HTF_BODY_RESULTS, body->result_count, body->results);
  for (int i = 0; i < body->result_count; ++i) {
    if (body->results[i] < 0 || body->results[i] >= body->value_count) {
      return damaged("a result is no value");
    }
  }
  return HR_OK;
}

hr_status htf_body_read(hr__span bytes, htf_body *out_body) {
  *out_body = (htf_body){0};
  hr_status status = read_body(bytes, out_body);
  if (status != HR_OK) {
    htf_body_fini(out_body);
  }
  return status;
}

void htf_body_fini(htf_body *body) {
  for (int i = 0; i < body->node_count && body->nodes != NULL; ++i) {
    free(body->nodes[i].name);
    htf_kernel_destroy(body->nodes[i].kernel);
    htf_host_fini(&body->nodes[i].constant);
  }
  free(body->nodes);
  free(body->loops);
  free(body->uses);
  free(body->numbers);
  free(body->results);
  *body = (htf_body){0};
}
