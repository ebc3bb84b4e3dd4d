/* plan_kinds.c: the dtypes of a node's inputs and outputs, and its kind: member, pure or other.
 *
 * The kinds of a node's inputs are known before its own.
 */
#include <stdlib.h>
#include <string.h>

#include "op_def.h"
#include "plan.h"
#include "types.h"

/* An operation's definition, which TensorFlow looked up. */
typedef struct htf_op_def {
  struct htf_op_def *next;
  hr__span op;
  tf_buffer *buffer; /* NULL: unknown */
} htf_op_def;

/* ---- dtypes ---- */

static hr__span definition_of(htf_plan *plan, hr__span op) {
  htf_op_def *found = plan->definitions;
  while (found != NULL && !hr__span_equal(found->op, op)) {
    found = found->next;
  }
  if (found == NULL && (found = calloc(1, sizeof *found)) != NULL) {
    char name[96] = "";
    memcpy(name, op.data, op.size < sizeof name ? op.size : 0);
    tf_status *status = tf.NewStatus();
    found->op = op, found->buffer = tf.NewBuffer();
    tf.LookUpOpDef(plan->library, name, found->buffer, status);
    if (tf.GetCode(status) != 0) {
      tf.DeleteBuffer(found->buffer);
      found->buffer = NULL;
    }
    tf.DeleteStatus(status);
    found->next = plan->definitions;
    plan->definitions = found;
  }
  bool is_known = found != NULL && found->buffer != NULL;
  return is_known ? (hr__span){found->buffer->data, found->buffer->size} : (hr__span){NULL, 0};
}

void htf_plan_forget_definitions(htf_plan *plan) {
  while (plan->definitions != NULL) {
    htf_op_def *next = plan->definitions->next;
    if (plan->definitions->buffer != NULL) {
      tf.DeleteBuffer(plan->definitions->buffer);
    }
    free(plan->definitions);
    plan->definitions = next;
  }
}

static bool has_room(htf_plan *plan, int count) {
  if (plan->type_count + count <= plan->type_capacity) {
    return true;
  }
  int capacity = 2 * (plan->type_capacity + count);
  int *grown = realloc(plan->types, (size_t)capacity * sizeof *grown);
  if (grown != NULL) {
    plan->types = grown, plan->type_capacity = capacity;
  }
  return grown != NULL;
}

/* Finds the dtypes of a node's inputs and outputs. */
static bool resolve_types(htf_plan *plan, int node, const htf_row *row) {
  enum { OUTPUTS_MAX = 256 };
  const htf_node_def *def = &plan->graph->nodes[node];
  htf_plan_node *planned = &plan->nodes[node];
  hr__span definition = definition_of(plan, def->op);
  if (definition.data == NULL || !has_room(plan, def->data_count + OUTPUTS_MAX + 1)) {
    return false;
  }
  planned->input_types = plan->type_count;
  int inputs = htf_argument_types(definition, HTF_OP_INPUT, def->message, row->host, HTF_HOST_MEMORY,
                                  def->data_count + 1, plan->types + plan->type_count);
  if (inputs != def->data_count) {
    return false;
  }
  planned->output_types = plan->type_count += inputs;
  planned->output_count =
      htf_argument_types(definition, HTF_OP_OUTPUT, def->message, "", 0, OUTPUTS_MAX, plan->types + plan->type_count);
  plan->type_count += planned->output_count > 0 ? planned->output_count : 0;
  return planned->output_count >= 0;
}

/* ---- kinds ---- */

static bool begins_with(hr__span op, const char *text) {
  return op.size >= strlen(text) && memcmp(op.data, text, strlen(text)) == 0;
}

/* Steps of rows write in place, generators of kernels count their calls, and others read the dims of their results.
 */
static bool stays_kernel(hr__span op, const htf_row *row) {
  static const char *const prefixes[] = {"ResourceSparse",
                                         "Rng",
                                         "Stateful",
                                         "StatelessRandomGetKeyCounterAlg",
                                         "Where",
                                         "Unique",
                                         "DynamicPartition",
                                         "DynamicStitch",
                                         "NonMaxSuppression",
                                         "SparseReshape",
                                         "SparseConcat",
                                         "SparseSlice",
                                         "SparseAdd",
                                         "SparseSparse",
                                         "SparseFillEmptyRows",
                                         "SparseReduce",
                                         "SparseCount",
                                         "SparseToSparse",
                                         "DenseCount",
                                         "Ragged",
                                         "CTCLoss",
                                         "Segment",
                                         "SparseSegment"};
  bool stays = strstr(row->attributes, "seed2:") != NULL;
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !stays; ++i) {
    stays = begins_with(op, prefixes[i]);
  }
  return stays;
}

static bool has_attributes(const htf_row *row, hr__span node) {
  const char *list = row->attributes;
  char word[64];
  hr__span value;
  bool has_all = true;
  while (has_all && htf_next_word(&list, word, sizeof word)) {
    *strchr(word, ':') = '\0';
    has_all = htf_find_attribute(node, word, &value);
  }
  return has_all;
}

/* True if the row has the node's types. `more` are types that it has here, if it has i64. */
static bool has_types(const htf_row *row, hr__span node, uint32_t more) {
  enum { VALUE_TYPE = 6 };
  const char *names = row->type_name;
  const uint32_t types = row->types | ((row->types & T_I64) != 0 ? more : 0);
  bool has_all = true;
  while (has_all && row->types != 0 && *names != '\0') {
    char name[32] = "";
    size_t size = strcspn(names, ",");
    hr__span value;
    hr__field field;
    memcpy(name, names, size < sizeof name ? size : 0);
    has_all = htf_find_attribute(node, name, &value) && htf_find_field(value, VALUE_TYPE, &field) &&
              field.value < TF_DTYPE_COUNT && (types >> field.value & 1) != 0;
    names += size + (names[size] == ',');
  }
  return has_all;
}

static bool is_on_device(hr__span device) {
  static const char type[] = "device:HEADRACE:";
  for (size_t at = 0; at + sizeof type - 1 <= device.size; ++at) {
    if (memcmp(device.data + at, type, sizeof type - 1) == 0) {
      return true;
    }
  }
  return false;
}

/* A node before this one and of its context reads the variable, so that it has a value when this node runs. */
static bool may_assign(const htf_plan *plan, int place) {
  enum { VALUE_FLAG = 5 };
  const htf_node_def *def = &plan->graph->nodes[plan->order[place]];
  hr__span value;
  hr__field flag;
  htf_edge variable = htf_plan_variable(plan, def->inputs[0]);
  const htf_edge read = {variable.node, plan->contexts[plan->order[place]].context};
  return htf_find_attribute(def->message, "validate_shape", &value) && htf_find_field(value, VALUE_FLAG, &flag) &&
         flag.value != 0 && variable.port == 0 && htf_plan_find(plan->reads, plan->read_count, read) >= 0;
}

/* Lists are in clusters if loops are. */
static bool is_list(const htf_plan *plan, int node, int type) {
  return type == TF_VARIANT && plan->nodes[node].kind == HTF_MEMBER && htf_has_loops(&plan->loops);
}

/* True if the inputs are where the row needs them. i32 is on the host unless a member has made it. */
static bool has_inputs(const htf_plan *plan, int node, bool is_view) {
  const htf_node_def *def = &plan->graph->nodes[node];
  bool has_all = true;
  for (int i = 0; i < def->data_count && has_all; ++i) {
    int type = plan->types[plan->nodes[node].input_types + i];
    htf_node_kind kind = plan->nodes[def->inputs[i].node].kind;
    if (type == (TF_RESOURCE | HTF_HOST_MEMORY)) {
      has_all = htf_loop_of(&plan->loops, node) < 0;
    } else if ((type & HTF_HOST_MEMORY) != 0) {
      has_all = htf_is_known(plan, def->inputs[i].node);
    } else if (type == TF_VARIANT) {
      has_all = is_list(plan, def->inputs[i].node, type);
    } else {
      has_all = htf_dtype_of(type) != HR_DTYPE_NONE && (!is_view || type != TF_INT32 || kind != HTF_OTHER);
    }
  }
  return has_all;
}

static bool has_outputs(const htf_plan *plan, int node) {
  const htf_plan_node *planned = &plan->nodes[node];
  bool has_all = true;
  for (int i = 0; i < planned->output_count && has_all; ++i) {
    int type = plan->types[planned->output_types + i];
    has_all = htf_dtype_of(type) != HR_DTYPE_NONE || (type == TF_VARIANT && htf_has_loops(&plan->loops));
  }
  return has_all;
}

/* The number of elements of a constant; -1 for other nodes. */
static int64_t constant_count(const htf_plan *plan, int node) {
  enum { VALUE_TENSOR = 8 };
  hr__span value;
  hr__field tensor;
  htf_host host;
  hr__span message = plan->graph->nodes[node].message;
  if (!htf_is_op(plan, node, "Const") || !htf_find_attribute(message, "value", &value) ||
      !htf_find_field(value, VALUE_TENSOR, &tensor) || tensor.type != HR__WIRE_BYTES) {
    return -1;
  }
  hr_status status = htf_read_tensor(tensor.bytes, &host);
  int64_t count = status == HR_OK ? host.count : -1;
  if (status == HR_OK) {
    htf_host_fini(&host);
  }
  hr_status_free(status);
  return count;
}

/* True if the dims of all inputs are known when the cluster is recorded. Numbers of i32, and what is on another device,
 * are not worth a copy. */
static bool has_dims(const htf_plan *plan, int node) {
  const htf_node_def *def = &plan->graph->nodes[node];
  bool has_all = true;
  for (int i = 0; i < def->data_count && has_all; ++i) {
    int type = plan->types[plan->nodes[node].input_types + i], input = def->inputs[i].node;
    has_all =
        htf_dtype_of(type) != HR_DTYPE_NONE &&
        (plan->nodes[input].kind != HTF_OTHER || (type != TF_INT32 && is_on_device(plan->graph->nodes[input].device)));
  }
  return has_all;
}

/* True for a node of host.def whose inputs are known when a cluster is recorded. */
static bool has_host_rule(htf_plan *plan, int node) {
  const htf_node_def *def = &plan->graph->nodes[node];
  bool takes_dims;
  const htf_row *row = htf_find_host(def->op, &takes_dims);
  if (row == NULL || !has_types(row, def->message, 0) || !has_attributes(row, def->message)) {
    return false;
  }
  bool has_all = true;
  for (int i = 0; i < def->data_count && has_all && !takes_dims; ++i) {
    has_all = htf_is_known(plan, def->inputs[i].node);
  }
  if (!has_all || !resolve_types(plan, node, row) || (takes_dims && !has_dims(plan, node))) {
    return false;
  }
  if (hr__span_is(def->op, "Enter")) {
    return constant_count(plan, def->inputs[0].node) >= 0;
  }
  bool is_slice = hr__span_is(def->op, "StridedSlice");
  return hr__span_is(def->op, "Const") ? constant_count(plan, node) >= 0
                                       : !is_slice || constant_count(plan, def->inputs[1].node) == 1;
}

/* Numbers of i32 that a member has made stay on the device, although TensorFlow's kernels for them are on the host. */
static uint32_t more_types(const htf_plan *plan, int node) {
  const htf_node_def *def = &plan->graph->nodes[node];
  uint32_t more = 0;
  for (int i = 0; i < def->data_count; ++i) {
    more |= plan->nodes[def->inputs[i].node].kind == HTF_MEMBER ? T_I32 : 0;
  }
  return more;
}

/* A node of lists.def. Integers of i32 in lists are numbers of the host. */
static bool is_list_member(htf_plan *plan, int node, const htf_row *row) {
  enum { VALUE_TYPE = 6 };
  const htf_node_def *def = &plan->graph->nodes[node];
  hr__span value;
  hr__field type = {0};
  bool has_elements = htf_find_attribute(def->message, "element_dtype", &value);
  bool has_type = has_elements && htf_find_field(value, VALUE_TYPE, &type) && htf_dtype_of((int)type.value) != 0;
  bool is_number = has_type && type.value == TF_INT32;
  bool takes_item = htf_is_op(plan, node, "TensorListPushBack") || htf_is_op(plan, node, "TensorListSetItem");
  bool takes_all = htf_is_op(plan, node, "TensorListFromTensor") || htf_is_op(plan, node, "TensorListStack");
  if (!htf_has_loops(&plan->loops) || has_elements != has_type || (is_number && takes_all) ||
      (is_number && takes_item && !htf_is_known(plan, def->inputs[def->data_count - 1].node)) ||
      !has_attributes(row, def->message) || !resolve_types(plan, node, row) || !has_inputs(plan, node, false) ||
      !has_outputs(plan, node)) {
    return false;
  }
  plan->nodes[node].is_host = !has_type || is_number;
  plan->device = def->device;
  return true;
}

/* A node that passes a value into a loop, around it or out of it. */
static htf_node_kind kind_of_passing(htf_plan *plan, int node, const htf_row *row) {
  const htf_node_def *def = &plan->graph->nodes[node];
  htf_plan_node *planned = &plan->nodes[node];
  if (def->data_count == 0 || !resolve_types(plan, node, row)) {
    return HTF_OTHER;
  }
  int type = plan->types[planned->output_types], input = def->inputs[0].node;
  if (type == TF_RESOURCE && htf_is_op(plan, node, "Enter")) {
    return HTF_PURE; /* of reads that are outside */
  }
  planned->is_silent = htf_is_op(plan, node, "Switch") || htf_is_op(plan, node, "Exit");
  planned->is_host = htf_is_known(plan, input) && !planned->is_varying && type != TF_VARIANT;
  bool has_value = type == TF_VARIANT ? is_list(plan, input, type)
                                      : htf_dtype_of(type) != HR_DTYPE_NONE && (planned->is_host || type != TF_INT32 ||
                                                                                plan->nodes[input].kind != HTF_OTHER);
  plan->device = def->device;
  return has_value && !planned->is_preserved ? HTF_MEMBER : HTF_OTHER;
}

static htf_node_kind kind_of_host(htf_plan *plan, int node) {
  const htf_node_def *def = &plan->graph->nodes[node];
  bool is_member = htf_loop_of(&plan->loops, node) >= 0;
  for (int i = 0; i < def->data_count; ++i) {
    is_member = is_member || plan->nodes[def->inputs[i].node].is_host;
  }
  plan->nodes[node].is_host = plan->nodes[node].has_host_rule = is_member;
  return is_member ? HTF_MEMBER : HTF_PURE;
}

htf_node_kind htf_plan_kind(htf_plan *plan, int place) {
  int node = plan->order[place];
  const htf_node_def *def = &plan->graph->nodes[node];
  const bool is_inside = htf_loop_of(&plan->loops, node) >= 0;
  htf_row_kind row_kind;
  bool is_other_device = plan->device.size > 0 && !hr__span_equal(plan->device, def->device);
  const htf_row *row = is_on_device(def->device) && !is_other_device ? htf_find_inside(def->op, &row_kind) : NULL;
  plan->nodes[node].is_host = plan->nodes[node].has_host_rule = false;
  if (is_inside && row != NULL && row_kind == HTF_ROW_LOOP) {
    return kind_of_passing(plan, node, row);
  }
  if (plan->has_feeds && plan->nodes[node].is_preserved) {
    return HTF_OTHER;
  }
  if (has_host_rule(plan, node)) {
    return kind_of_host(plan, node);
  }
  if (row == NULL || row_kind == HTF_ROW_LOOP) {
    return HTF_OTHER;
  }
  if (row_kind == HTF_ROW_LIST) {
    return is_list_member(plan, node, row) ? HTF_MEMBER : HTF_OTHER;
  }
  if (stays_kernel(def->op, row) || !has_types(row, def->message, more_types(plan, node)) ||
      !has_attributes(row, def->message) || !resolve_types(plan, node, row) ||
      !has_inputs(plan, node, row_kind == HTF_ROW_VIEW) || !has_outputs(plan, node)) {
    return HTF_OTHER;
  }
  /* TensorFlow's passes take an Identity behind a Switch as the sign of a branch. */
  bool is_anchor = hr__span_is(def->op, "Identity") && htf_is_op(plan, def->inputs[0].node, "Switch") && !is_inside;
  if (is_anchor || (hr__span_is(def->op, "AssignVariableOp") && !may_assign(plan, place))) {
    return HTF_OTHER;
  }
  if (hr__span_is(def->op, "ReadVariableOp")) {
    const htf_edge read = {htf_plan_variable(plan, def->inputs[0]).node, plan->contexts[node].context};
    if (!htf_plan_add_edge(&plan->reads, &plan->read_count, read)) {
      return HTF_OTHER;
    }
  }
  plan->device = def->device;
  return HTF_MEMBER;
}
