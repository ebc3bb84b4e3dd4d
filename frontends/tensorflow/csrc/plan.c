/* plan.c: kinds, levels and clusters of a graph's nodes. */
#include "plan.h"

#include <stdlib.h>

#include "op_def.h"
#include "types.h"

enum { CLUSTER_LEAST = 2 }; /* operations: fewer stay kernels */

/* An operation's definition, which TensorFlow looked up. */
typedef struct htf_op_def {
  struct htf_op_def *next;
  hr__span op;
  tf_buffer *buffer; /* NULL: unknown */
} htf_op_def;

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for the clusters of a graph");
}

int htf_plan_find(const htf_edge *edges, int count, htf_edge edge) {
  int at = 0;
  while (at < count && (edges[at].node != edge.node || edges[at].port != edge.port)) {
    ++at;
  }
  return at < count ? at : -1;
}

static bool add_edge(htf_edge **edges, int *count, htf_edge edge) {
  if (htf_plan_find(*edges, *count, edge) >= 0) {
    return true;
  }
  htf_edge *grown = (*count & (*count - 1)) == 0 ? realloc(*edges, (size_t)(2 * *count + 1) * sizeof *grown) : *edges;
  if (grown != NULL) {
    *edges = grown;
    grown[(*count)++] = edge;
  }
  return grown != NULL;
}

/* ---- order ---- */

static bool is_op(const htf_plan *plan, int node, const char *op) {
  return hr__span_is(plan->graph->nodes[node].op, op);
}

/* The edge back into a loop orders nothing. */
static bool is_back(const htf_plan *plan, htf_edge edge) {
  return is_op(plan, edge.node, "NextIteration");
}

/* Inputs first, otherwise as the graph has its nodes. */
static hr_status order_nodes(htf_plan *plan) {
  const htf_graph *graph = plan->graph;
  int *stack = calloc((size_t)graph->count + 1, sizeof *stack), *next = calloc((size_t)graph->count + 1, sizeof *next);
  int count = 0;
  bool has_cycle = stack == NULL || next == NULL;
  for (int root = 0; root < graph->count && !has_cycle; ++root) {
    int depth = 0;
    if (next[root] == 0) {
      stack[depth++] = root, next[root] = 1;
    }
    while (depth > 0 && !has_cycle) {
      int node = stack[depth - 1];
      if (next[node] > graph->nodes[node].input_count) {
        plan->order[count++] = node, plan->nodes[node].is_visited = true, --depth;
        continue;
      }
      htf_edge edge = graph->nodes[node].inputs[next[node]++ - 1];
      if (is_back(plan, edge)) {
        continue;
      }
      if (next[edge.node] == 0) {
        stack[depth++] = edge.node, next[edge.node] = 1;
      } else {
        has_cycle = !plan->nodes[edge.node].is_visited;
      }
    }
  }
  bool has_memory = stack != NULL && next != NULL;
  free(stack);
  free(next);
  return !has_memory ? no_memory()
         : has_cycle ? hr_status_make(HR_STATUS_INVALID_ARGUMENT, "headrace: a damaged graph: its nodes form a cycle")
                     : HR_OK;
}

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

/* Updates of rows write in place, generators of kernels count their calls, and others read the dims of their results.
 */
static bool stays_kernel(hr__span op, const htf_row *row) {
  static const char *const prefixes[] = {"ResourceScatter",
                                         "ResourceSparse",
                                         "ResourceGather",
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

htf_edge htf_plan_variable(const htf_plan *plan, htf_edge edge) {
  while (is_op(plan, edge.node, "Identity") && plan->graph->nodes[edge.node].data_count == 1) {
    edge = plan->graph->nodes[edge.node].inputs[0];
  }
  return edge;
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

/* True if the node's results are known on the host when a cluster is recorded. */
static bool is_known(const htf_plan *plan, int node) {
  return plan->nodes[node].kind == HTF_PURE || plan->nodes[node].is_host;
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
      has_all = is_known(plan, def->inputs[i].node);
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
  bool has_all = !planned->is_preserved || planned->output_count <= 1;
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
  if (!is_op(plan, node, "Const") || !htf_find_attribute(message, "value", &value) ||
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
    has_all = is_known(plan, def->inputs[i].node);
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
  bool takes_item = is_op(plan, node, "TensorListPushBack") || is_op(plan, node, "TensorListSetItem");
  bool takes_all = is_op(plan, node, "TensorListFromTensor") || is_op(plan, node, "TensorListStack");
  if (!htf_has_loops(&plan->loops) || has_elements != has_type || (is_number && takes_all) ||
      (is_number && takes_item && !is_known(plan, def->inputs[def->data_count - 1].node)) ||
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
  if (type == TF_RESOURCE && is_op(plan, node, "Enter")) {
    return HTF_PURE; /* of reads that are outside */
  }
  planned->is_silent = is_op(plan, node, "Switch") || is_op(plan, node, "Exit");
  planned->is_host = is_known(plan, input) && !planned->is_varying && type != TF_VARIANT;
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

static htf_node_kind kind_of(htf_plan *plan, int place) {
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
  bool is_anchor = hr__span_is(def->op, "Identity") && is_op(plan, def->inputs[0].node, "Switch") && !is_inside;
  if (is_anchor || (hr__span_is(def->op, "AssignVariableOp") && !may_assign(plan, place))) {
    return HTF_OTHER;
  }
  if (hr__span_is(def->op, "ReadVariableOp")) {
    const htf_edge read = {htf_plan_variable(plan, def->inputs[0]).node, plan->contexts[node].context};
    if (!add_edge(&plan->reads, &plan->read_count, read)) {
      return HTF_OTHER;
    }
  }
  plan->device = def->device;
  return HTF_MEMBER;
}

/* ---- levels ---- */

static void set_level(htf_plan *plan, int node) {
  const htf_node_def *def = &plan->graph->nodes[node];
  htf_plan_node *planned = &plan->nodes[node];
  bool ends = planned->kind == HTF_OTHER;
  for (int i = 0; i < def->input_count; ++i) {
    const htf_plan_node *input = &plan->nodes[def->inputs[i].node];
    if (is_back(plan, def->inputs[i])) {
      continue;
    }
    bool follows = input->kind == HTF_MEMBER || (input->kind == HTF_PURE && input->follows_member);
    int level = input->level + (ends && follows ? 1 : 0);
    if (level > planned->level) {
      planned->level = level, planned->follows_member = false;
    }
    planned->follows_member = planned->follows_member || (!ends && follows && level == planned->level);
  }
}

/* The nodes of a loop have one level. */
static void set_loop_level(htf_plan *plan, int begin, int end) {
  int level = 0;
  bool follows_member = false;
  for (int place = begin; place < end; ++place) {
    const htf_plan_node *node = &plan->nodes[plan->order[place]];
    follows_member = node->level > level ? node->follows_member : follows_member || node->follows_member;
    level = node->level > level ? node->level : level;
  }
  for (int place = begin; place < end; ++place) {
    htf_plan_node *node = &plan->nodes[plan->order[place]];
    node->level = level, node->follows_member = follows_member;
  }
}

/* ---- loops ---- */

static htf_edge merged(const htf_plan *plan, int node) {
  return plan->graph->nodes[node].inputs[1];
}

/* Finds what is known on the host in all iterations: first what is in the first one. False if a node is no member. */
static bool set_loop_kinds(htf_plan *plan, int begin, int end) {
  bool has_changed = true, are_members = true;
  while (has_changed && are_members) {
    has_changed = false;
    for (int place = begin; place < end && are_members; ++place) {
      htf_plan_node *node = &plan->nodes[plan->order[place]];
      node->kind = kind_of(plan, place);
      are_members = node->kind != HTF_OTHER;
    }
    for (int place = begin; place < end && are_members; ++place) {
      int node = plan->order[place];
      if (is_op(plan, node, "Merge") && plan->nodes[node].is_host && !is_known(plan, merged(plan, node).node)) {
        plan->nodes[node].is_varying = has_changed = true;
      }
    }
  }
  return are_members;
}

static bool may_be_inside(htf_plan *plan, int loop, int begin, int end) {
  bool may_be = set_loop_kinds(plan, begin, end) &&
                plan->nodes[plan->graph->nodes[plan->loops.loops[loop].condition].inputs[0].node].is_host;
  for (int place = begin; place < end && may_be; ++place) {
    may_be = !plan->nodes[plan->order[place]].is_preserved;
  }
  return may_be;
}

/* Finds kinds and levels of all nodes. False: a loop that was to be inside is not, and all begins again. */
static bool set_kinds(htf_plan *plan) {
  for (int place = 0; place < plan->graph->count;) {
    int loop = htf_loop_of(&plan->loops, plan->order[place]), end = place + 1;
    if (loop < 0) {
      plan->nodes[plan->order[place]].kind = kind_of(plan, place);
      set_level(plan, plan->order[place]);
      place = end;
      continue;
    }
    while (end < plan->graph->count && htf_loop_of(&plan->loops, plan->order[end]) == loop) {
      ++end;
    }
    if (!may_be_inside(plan, loop, place, end)) {
      plan->loops.loops[loop].is_outside = true;
      return false;
    }
    for (int i = place; i < end; ++i) {
      set_level(plan, plan->order[i]);
    }
    set_loop_level(plan, place, end);
    place = end;
  }
  return true;
}

/* True if lists, and what is known on the host after a loop, are used in their cluster alone. */
static bool are_whole(const htf_plan *plan) {
  bool are = true;
  for (int node = 0; node < plan->graph->count && are; ++node) {
    const htf_node_def *def = &plan->graph->nodes[node];
    const htf_plan_node *planned = &plan->nodes[node];
    bool is_here = planned->kind == HTF_MEMBER;
    for (int i = 0; i < def->data_count && are; ++i) {
      const htf_plan_node *input = &plan->nodes[def->inputs[i].node];
      int type = input->kind == HTF_MEMBER && def->inputs[i].port < input->output_count
                     ? plan->types[input->output_types + def->inputs[i].port]
                     : 0;
      bool needs_host = input->is_host && is_here &&
                        (planned->has_host_rule || planned->is_host ||
                         (plan->types[planned->input_types + i] & HTF_HOST_MEMORY) != 0);
      bool is_same = is_here && input->cluster == planned->cluster;
      are = is_same || (type != TF_VARIANT && !needs_host);
    }
  }
  return are;
}

htf_edge htf_plan_source(const htf_plan *plan, htf_edge edge) {
  while (edge.port >= 0 && plan->nodes[edge.node].is_silent) {
    edge = (htf_edge){plan->graph->nodes[edge.node].inputs[0].node, 0};
  }
  return edge;
}

/* ---- clusters ---- */

/* Operations that do nothing by themselves. */
static bool is_work(const htf_plan *plan, int node) {
  return !is_op(plan, node, "NoOp") && !is_op(plan, node, "Identity") && !is_op(plan, node, "ReadVariableOp") &&
         !is_op(plan, node, "StopGradient") && !plan->nodes[node].has_host_rule && !plan->nodes[node].is_silent;
}

/* The cluster of a member, which may be new; -1: no memory. */
static int cluster_of(htf_plan *plan, int node) {
  const int level = plan->nodes[node].level;
  const htf_context *where = &plan->contexts[node];
  for (int i = plan->cluster_count - 1; i >= 0; --i) {
    if (plan->clusters[i].level == level && plan->clusters[i].context == where->context &&
        plan->clusters[i].frame == where->frame) {
      return i;
    }
  }
  int count = plan->cluster_count;
  htf_plan_cluster *grown =
      (count & (count - 1)) == 0 ? realloc(plan->clusters, (size_t)(2 * count + 1) * sizeof *grown) : plan->clusters;
  if (grown == NULL) {
    return -1;
  }
  plan->clusters = grown;
  grown[count] =
      (htf_plan_cluster){.device = plan->device, .level = level, .context = where->context, .frame = where->frame};
  return plan->cluster_count++;
}

static hr_status find_clusters(htf_plan *plan) {
  for (int i = 0; i < plan->graph->count; ++i) {
    htf_plan_node *node = &plan->nodes[i];
    node->cluster = node->inner = -1;
    if (node->kind == HTF_MEMBER) {
      node->cluster = cluster_of(plan, i);
      if (node->cluster < 0) {
        return no_memory();
      }
      plan->clusters[node->cluster].work_count += htf_loop_of(&plan->loops, i) >= 0 ? CLUSTER_LEAST : is_work(plan, i);
    }
  }
  return HR_OK;
}

/* The variables that a cluster updates are its first ones. */
static bool add_updated(htf_plan *plan, int node) {
  const htf_node_def *def = &plan->graph->nodes[node];
  bool has_memory = true;
  for (int i = 0; i < def->data_count && plan->nodes[node].cluster >= 0 && !is_op(plan, node, "ReadVariableOp"); ++i) {
    htf_plan_cluster *cluster = &plan->clusters[plan->nodes[node].cluster];
    if ((plan->types[plan->nodes[node].input_types + i] & HTF_TYPE_MASK) == TF_RESOURCE) {
      htf_edge variable = htf_plan_variable(plan, def->inputs[i]);
      has_memory = has_memory && add_edge(&cluster->variables, &cluster->variable_count, variable);
    }
  }
  return has_memory;
}

/* Small clusters are left to kernels, and so are reads of variables that a cluster does not update: a handle gives the
 * variable for an update alone. */
static hr_status leave_kernels(htf_plan *plan) {
  for (int i = 0; i < plan->graph->count; ++i) {
    if (!add_updated(plan, i)) {
      return no_memory();
    }
  }
  for (int i = 0; i < plan->graph->count; ++i) {
    htf_plan_node *node = &plan->nodes[i];
    if (node->cluster < 0) {
      continue;
    }
    const htf_plan_cluster *cluster = &plan->clusters[node->cluster];
    bool is_lone_read = is_op(plan, i, "ReadVariableOp") && !node->follows_member &&
                        htf_plan_find(cluster->variables, cluster->variable_count,
                                      htf_plan_variable(plan, plan->graph->nodes[i].inputs[0])) < 0;
    if (is_lone_read || cluster->work_count < CLUSTER_LEAST) {
      node->kind = HTF_OTHER, node->cluster = -1;
    }
  }
  for (int i = 0; i < plan->cluster_count; ++i) {
    htf_plan_cluster *cluster = &plan->clusters[i];
    cluster->variable_count = cluster->work_count < CLUSTER_LEAST ? 0 : cluster->variable_count;
    cluster->is_made = cluster->work_count >= CLUSTER_LEAST;
  }
  return HR_OK;
}

/* ---- what a cluster needs ---- */

void htf_plan_enter(htf_plan *plan, int cluster) {
  for (int place = plan->graph->count - 1; place >= 0; --place) {
    int node = plan->order[place];
    const htf_node_def *def = &plan->graph->nodes[node];
    for (int i = 0; i < def->data_count && htf_is_inside(plan, node, cluster); ++i) {
      htf_plan_node *input = &plan->nodes[def->inputs[i].node];
      input->inner = input->kind == HTF_PURE ? cluster : input->inner;
    }
  }
}

int htf_plan_result(const htf_plan *plan, htf_edge edge) {
  int cluster = plan->nodes[edge.node].cluster;
  return cluster < 0 ? -1 : htf_plan_find(plan->clusters[cluster].results, plan->clusters[cluster].result_count, edge);
}

/* A member's output that is used outside its cluster. */
static bool add_result(htf_plan *plan, htf_edge edge) {
  const htf_plan_node *node = &plan->nodes[edge.node];
  if (node->kind != HTF_MEMBER || edge.port < 0) {
    return true;
  }
  htf_plan_cluster *cluster = &plan->clusters[node->cluster];
  return add_edge(&cluster->results, &cluster->result_count, edge);
}

/* A node or cluster that must end before the cluster begins. */
static bool add_control(htf_plan *plan, int cluster, int node) {
  htf_plan_cluster *c = &plan->clusters[cluster];
  htf_plan_node *before = &plan->nodes[node];
  if (htf_is_inside(plan, node, cluster) || (before->kind == HTF_PURE && before->follows_member)) {
    return true;
  }
  before->is_kept = before->is_kept || before->kind == HTF_PURE;
  int key = before->kind == HTF_MEMBER ? -1 - before->cluster : node;
  for (int i = 0; i < c->control_count; ++i) {
    if (c->controls[i] == key) {
      return true;
    }
  }
  int *grown = realloc(c->controls, (size_t)(c->control_count + 1) * sizeof *grown);
  if (grown != NULL) {
    c->controls = grown;
    grown[c->control_count++] = key;
  }
  return grown != NULL;
}

static bool add_input(htf_plan *plan, int cluster, int type, htf_edge edge) {
  htf_plan_cluster *c = &plan->clusters[cluster];
  if ((type & HTF_TYPE_MASK) == TF_RESOURCE) {
    return add_edge(&c->variables, &c->variable_count, htf_plan_variable(plan, edge));
  }
  return htf_is_inside(plan, edge.node, cluster) ||
         (add_edge(&c->inputs, &c->input_count, edge) && add_result(plan, edge));
}

static bool add_needs(htf_plan *plan, int cluster) {
  htf_plan_enter(plan, cluster);
  for (int place = 0; place < plan->graph->count; ++place) {
    int node = plan->order[place];
    const htf_node_def *def = &plan->graph->nodes[node];
    /* A constant that enters a loop is in the cluster, but not what is outside of the loop. */
    bool is_here = plan->contexts[node].frame == plan->clusters[cluster].frame &&
                   (!is_op(plan, node, "Enter") || htf_loop_of(&plan->loops, node) >= 0);
    int count = is_here ? def->input_count : def->data_count;
    for (int i = 0; i < count && htf_is_inside(plan, node, cluster); ++i) {
      bool is_added = i < def->data_count
                          ? add_input(plan, cluster, plan->types[plan->nodes[node].input_types + i], def->inputs[i])
                          : add_control(plan, cluster, def->inputs[i].node);
      if (!is_added) {
        return false;
      }
    }
  }
  return true;
}

/* Keeps the pure nodes that others use, and gives others the results that they use. */
static bool add_outside(htf_plan *plan) {
  bool has_memory = true;
  for (int place = plan->graph->count - 1; place >= 0 && has_memory; --place) {
    int node = plan->order[place];
    const htf_plan_node *planned = &plan->nodes[node];
    const htf_node_def *def = &plan->graph->nodes[node];
    if (planned->kind == HTF_MEMBER) {
      bool has_result = planned->is_preserved && planned->output_count == 1;
      has_memory = !has_result || add_result(plan, (htf_edge){node, 0});
      continue;
    }
    bool stays = planned->kind == HTF_OTHER || planned->is_kept || planned->is_preserved;
    for (int i = 0; i < def->input_count && stays && has_memory; ++i) {
      htf_plan_node *input = &plan->nodes[def->inputs[i].node];
      input->is_kept = true;
      has_memory = add_result(plan, def->inputs[i]);
    }
  }
  return has_memory;
}

/* ---- plans ---- */

static void forget_clusters(htf_plan *plan) {
  for (int i = 0; i < plan->cluster_count; ++i) {
    free(plan->clusters[i].inputs);
    free(plan->clusters[i].variables);
    free(plan->clusters[i].controls);
    free(plan->clusters[i].results);
  }
  free(plan->clusters);
  free(plan->reads);
  plan->clusters = NULL, plan->reads = NULL;
  plan->cluster_count = plan->read_count = plan->type_count = 0;
  plan->device = (hr__span){NULL, 0};
  for (int i = 0; i < plan->graph->count; ++i) {
    plan->nodes[i] = (htf_plan_node){.is_preserved = plan->nodes[i].is_preserved, .cluster = -1, .inner = -1};
  }
}

static void leave_loops(htf_plan *plan) {
  for (int i = 0; i < plan->loops.count; ++i) {
    plan->loops.loops[i].is_outside = true;
  }
}

/* Finds the clusters with the loops that are to be inside. A loop that cannot be is outside afterwards. */
static hr_status try_clusters(htf_plan *plan, bool *out_is_done) {
  bool is_ordered;
  forget_clusters(plan);
  HR_RETURN_IF_ERROR(htf_loops_move_reads(plan->graph, &plan->loops));
  HR_RETURN_IF_ERROR(htf_loops_order(plan->graph, &plan->loops, plan->order, &is_ordered));
  if (!is_ordered) {
    leave_loops(plan);
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(htf_find_contexts(plan->graph, plan->order, &plan->loops, plan->contexts));
  if (!set_kinds(plan)) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(find_clusters(plan));
  HR_RETURN_IF_ERROR(leave_kernels(plan));
  *out_is_done = !htf_has_loops(&plan->loops) || are_whole(plan);
  if (!*out_is_done) {
    leave_loops(plan);
  }
  return HR_OK;
}

/* Functions have arguments or results as nodes. */
static bool is_function(const htf_plan *plan) {
  bool is_found = false;
  for (int i = 0; i < plan->graph->count && !is_found; ++i) {
    is_found = is_op(plan, i, "_Arg") || is_op(plan, i, "_Retval");
  }
  return is_found;
}

static hr_status plan_graph(htf_plan *plan, int preserved_count, const hr__span *preserved) {
  const htf_graph *graph = plan->graph;
  plan->nodes = calloc((size_t)graph->count + 1, sizeof *plan->nodes);
  plan->order = calloc((size_t)graph->count + 1, sizeof *plan->order);
  plan->contexts = calloc((size_t)graph->count + 1, sizeof *plan->contexts);
  if (plan->nodes == NULL || plan->order == NULL || plan->contexts == NULL) {
    return no_memory();
  }
  for (int i = 0; i < preserved_count; ++i) {
    int node = htf_graph_find(graph, preserved[i]);
    if (node >= 0) {
      plan->nodes[node].is_preserved = true;
    }
  }
  plan->has_feeds = !is_function(plan);
  HR_RETURN_IF_ERROR(order_nodes(plan));
  HR_RETURN_IF_ERROR(htf_loops_find(graph, plan->order, &plan->loops));
  for (bool is_done = false; !is_done;) {
    hr_status status = try_clusters(plan, &is_done);
    if (status != HR_OK && hr_status_code_of(status) == HR_STATUS_UNIMPLEMENTED) {
      hr_status_free(status);
      forget_clusters(plan);
      return HR_OK;
    }
    HR_RETURN_IF_ERROR(status);
  }
  bool has_memory = true;
  for (int i = 0; i < plan->cluster_count && has_memory; ++i) {
    has_memory = !plan->clusters[i].is_made || add_needs(plan, i);
  }
  return has_memory && add_outside(plan) ? HR_OK : no_memory();
}

hr_status htf_plan_create(htf_graph *graph, tf_library *library, int preserved_count, const hr__span *preserved,
                          htf_plan *out_plan) {
  *out_plan = (htf_plan){.graph = graph, .library = library};
  hr_status status = plan_graph(out_plan, preserved_count, preserved);
  if (status != HR_OK) {
    htf_plan_fini(out_plan);
  }
  return status;
}

void htf_plan_fini(htf_plan *plan) {
  if (plan->nodes != NULL) {
    forget_clusters(plan);
  }
  htf_loops_fini(plan->graph, &plan->loops);
  while (plan->definitions != NULL) {
    htf_op_def *next = plan->definitions->next;
    if (plan->definitions->buffer != NULL) {
      tf.DeleteBuffer(plan->definitions->buffer);
    }
    free(plan->definitions);
    plan->definitions = next;
  }
  free(plan->contexts);
  free(plan->nodes);
  free(plan->order);
  free(plan->types);
  *plan = (htf_plan){0};
}
