/* clusters.c: writes a graph with clusters in place of their nodes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/protobuf.h"
#include "cluster.h"
#include "plan.h"

/* XLA, which has no such device, is demanded by this mark. */
static const char xla_mark[] = "_XlaMustCompile";

enum { VALUE_LIST = 1, VALUE_TEXT = 2, VALUE_INT = 3, VALUE_TYPE = 6, LIST_INTS = 3, LIST_TYPES = 6 };

/* ---- attributes of new nodes ---- */

static size_t begin_attribute(hr_text *text, const char *name, size_t *out_value) {
  size_t entry = hr_protobuf_begin(text, HTF_NODE_ATTRIBUTE);
  hr_protobuf_string(text, 1, name);
  *out_value = hr_protobuf_begin(text, 2);
  return entry;
}

static void end_attribute(hr_text *text, size_t entry, size_t value) {
  hr_protobuf_end(text, value);
  hr_protobuf_end(text, entry);
}

/* The dtype of a tensor that a cluster takes or gives. */
static int type_of(const htf_plan *plan, int cluster, htf_edge edge, bool is_input) {
  if (!is_input) {
    return plan->types[plan->nodes[edge.node].output_types + edge.port];
  }
  for (int i = 0; i < plan->graph->count; ++i) {
    const htf_node_def *def = &plan->graph->nodes[i];
    int at = htf_is_inside(plan, i, cluster) ? htf_plan_find(def->inputs, def->data_count, edge) : -1;
    if (at >= 0) {
      return plan->types[plan->nodes[i].input_types + at] & HTF_TYPE_MASK;
    }
  }
  return 0;
}

static void append_types(hr_text *text, const char *name, const htf_plan *plan, int cluster, const htf_edge *edges,
                         int count, bool are_inputs) {
  size_t value, entry = begin_attribute(text, name, &value);
  size_t list = hr_protobuf_begin(text, VALUE_LIST);
  for (int i = 0; i < count; ++i) {
    hr_protobuf_int(text, LIST_TYPES, (uint64_t)type_of(plan, cluster, edges[i], are_inputs));
  }
  hr_protobuf_end(text, list);
  end_attribute(text, entry, value);
}

/* ---- bodies ---- */

/* The number of a value in a cluster. */
static int64_t value_of(const htf_plan *plan, int cluster, int type, htf_edge edge) {
  const htf_plan_cluster *c = &plan->clusters[cluster];
  if ((type & HTF_TYPE_MASK) == TF_RESOURCE) {
    return c->input_count + htf_plan_find(c->variables, c->variable_count, htf_plan_variable(plan, edge));
  }
  edge = htf_plan_source(plan, edge);
  if (htf_is_inside(plan, edge.node, cluster)) {
    return plan->nodes[edge.node].first_value + edge.port;
  }
  return htf_plan_find(c->inputs, c->input_count, edge);
}

static void append_body_node(hr_text *text, const htf_plan *plan, int cluster, int node) {
  const htf_node_def *def = &plan->graph->nodes[node];
  const htf_plan_node *planned = &plan->nodes[node];
  size_t message = hr_protobuf_begin(text, HTF_BODY_NODE);
  htf_append_bytes(text, HTF_BODY_NODE_DEF, def->message);
  for (int i = 0; i < def->data_count; ++i) {
    int type = plan->types[planned->input_types + i];
    hr_protobuf_int(text, HTF_BODY_NODE_INPUTS, (uint64_t)value_of(plan, cluster, type, def->inputs[i]));
  }
  for (int i = 0; i < planned->output_count; ++i) {
    hr_protobuf_int(text, HTF_BODY_NODE_TYPES, (uint64_t)plan->types[planned->output_types + i]);
  }
  hr_protobuf_int(text, HTF_BODY_NODE_IS_HOST, planned->kind == HTF_PURE || planned->has_host_rule);
  hr_protobuf_end(text, message);
}

static void append_loop(hr_text *text, int first, int count) {
  size_t message = hr_protobuf_begin(text, HTF_BODY_LOOP);
  hr_protobuf_int(text, HTF_BODY_LOOP_FIRST, (uint64_t)first);
  hr_protobuf_int(text, HTF_BODY_LOOP_COUNT, (uint64_t)count);
  hr_protobuf_end(text, message);
}

static bool is_written(const htf_plan *plan, int node, int cluster) {
  return htf_is_inside(plan, node, cluster) && !plan->nodes[node].is_silent;
}

/* Gives the results of the nodes numbers. */
static void number_values(htf_plan *plan, int cluster) {
  int values = plan->clusters[cluster].input_count + plan->clusters[cluster].variable_count;
  for (int place = 0; place < plan->graph->count; ++place) {
    int node = plan->order[place];
    if (is_written(plan, node, cluster)) {
      plan->nodes[node].first_value = values;
      values += plan->nodes[node].output_count;
    }
  }
}

/* Returns how many nodes the body has. */
static int append_body(hr_text *text, htf_plan *plan, int cluster) {
  const htf_plan_cluster *c = &plan->clusters[cluster];
  int count = 0, loop = -1, first = 0;
  hr_protobuf_int(text, HTF_BODY_INPUTS, (uint64_t)c->input_count);
  hr_protobuf_int(text, HTF_BODY_VARIABLES, (uint64_t)c->variable_count);
  htf_plan_enter(plan, cluster);
  number_values(plan, cluster);
  for (int place = 0; place <= plan->graph->count; ++place) {
    int node = place < plan->graph->count ? plan->order[place] : -1;
    bool is_here = node >= 0 && is_written(plan, node, cluster);
    int here = node >= 0 && is_here ? htf_loop_of(&plan->loops, node) : -1;
    if ((is_here || node < 0) && here != loop) {
      if (loop >= 0) {
        append_loop(text, first, count - first);
      }
      loop = here, first = count;
    }
    if (is_here) {
      append_body_node(text, plan, cluster, node);
      ++count;
    }
  }
  for (int i = 0; i < c->result_count; ++i) {
    hr_protobuf_int(text, HTF_BODY_RESULTS, (uint64_t)value_of(plan, cluster, 0, c->results[i]));
  }
  return count;
}

/* ---- names ---- */

/* The name is that of the body's text: TensorFlow may share kernels of one name. */
static void name_cluster(htf_plan *plan, int cluster, const hr_text *body) {
  htf_plan_cluster *c = &plan->clusters[cluster];
  uint64_t hash = 14695981039346656037u;
  for (size_t i = 0; i < body->length; ++i) {
    hash = (hash ^ (uint8_t)body->data[i]) * 1099511628211u;
  }
  for (int number = cluster;; number += plan->cluster_count) {
    int size = snprintf(c->name, sizeof c->name, "headrace_cluster_%016" PRIx64 "_%d", hash, number);
    if (htf_graph_find(plan->graph, (hr__span){(const uint8_t *)c->name, (size_t)size}) < 0) {
      return;
    }
  }
}

/* ---- nodes ---- */

static void append_input(hr_text *text, const htf_plan *plan, htf_edge edge) {
  const htf_plan_node *node = &plan->nodes[edge.node];
  const hr__span name = plan->graph->nodes[edge.node].name;
  hr_text input = {0};
  if (node->cluster >= 0 && edge.port < 0) {
    hr_text_printf(&input, "^%s", plan->clusters[node->cluster].name);
  } else if (node->cluster >= 0) {
    hr_text_printf(&input, "%s:%d", plan->clusters[node->cluster].name, htf_plan_result(plan, edge));
  } else {
    hr_text_append(&input, edge.port < 0 ? "^" : "");
    hr_text_append_bytes(&input, (const char *)name.data, name.size);
    if (edge.port > 0) {
      hr_text_printf(&input, ":%d", edge.port);
    }
  }
  hr_protobuf_string(text, HTF_NODE_INPUT, hr_text_chars(&input));
  text->failed = text->failed || input.failed;
  hr_text_fini(&input);
}

/* True if an earlier control input has the same cluster. */
static bool is_repeated(const htf_plan *plan, const htf_node_def *def, int index) {
  int cluster = plan->nodes[def->inputs[index].node].cluster;
  bool is_found = false;
  for (int i = def->data_count; i < index && cluster >= 0 && !is_found; ++i) {
    is_found = plan->nodes[def->inputs[i].node].cluster == cluster;
  }
  return is_found;
}

/* A node that stays, with inputs from clusters. */
static hr_status append_node(hr_text *text, const htf_plan *plan, int node) {
  const htf_node_def *def = &plan->graph->nodes[node];
  hr_text copy = {0};
  size_t message = hr_protobuf_begin(text, HTF_GRAPH_NODE);
  hr__wire wire = hr__wire_of(def->message);
  const uint8_t *begin = wire.at;
  for (hr__field field; hr__wire_next(&wire, &field); begin = wire.at) {
    if (field.number != HTF_NODE_INPUT) {
      hr_text_append_bytes(&copy, (const char *)begin, (size_t)(wire.at - begin));
    }
  }
  hr__span rest = {(const uint8_t *)hr_text_chars(&copy), copy.length};
  hr_status status = copy.failed ? hr_text_status(&copy) : htf_copy_without(rest, HTF_GRAPH_NODE, xla_mark, text);
  for (int i = 0; i < def->input_count; ++i) {
    if (i < def->data_count || !is_repeated(plan, def, i)) {
      append_input(text, plan, def->inputs[i]);
    }
  }
  hr_protobuf_end(text, message);
  hr_text_fini(&copy);
  return status;
}

/* A preserved node of a cluster keeps its name: a node that does nothing behind the cluster. Functions preserve nodes
 * for their controls alone; their results are nodes of their own. */
static void append_rest(hr_text *text, const htf_plan *plan, int node) {
  const htf_node_def *def = &plan->graph->nodes[node];
  size_t message = hr_protobuf_begin(text, HTF_GRAPH_NODE);
  htf_append_bytes(text, HTF_NODE_NAME, def->name);
  hr_protobuf_string(text, HTF_NODE_OP, "NoOp");
  append_input(text, plan, (htf_edge){node, -1});
  htf_append_bytes(text, HTF_NODE_DEVICE, def->device);
  hr_protobuf_end(text, message);
}

/* ---- clusters that are all of their function ---- */

/* The number of an argument or a result of the function; -1: the node is none. */
static int number_of(const htf_plan *plan, int node, const char *op) {
  hr__span value;
  hr__field field;
  if (!htf_is_op(plan, node, op) || !htf_find_attribute(plan->graph->nodes[node].message, "index", &value)) {
    return -1;
  }
  bool is_found = htf_find_field(value, VALUE_INT, &field) && field.type != HR__WIRE_BYTES;
  return is_found && field.value < INT32_MAX ? (int)field.value : is_found ? -1 : 0;
}

/* True if the cluster has all nodes of the function but its arguments and results. */
static bool is_whole(const htf_plan *plan, int cluster) {
  bool is_alone = !plan->has_feeds;
  for (int i = 0; i < plan->cluster_count; ++i) {
    is_alone = is_alone && plan->clusters[i].is_made == (i == cluster);
  }
  for (int i = 0; i < plan->graph->count && is_alone; ++i) {
    const htf_plan_node *node = &plan->nodes[i];
    bool is_inside = node->kind == HTF_MEMBER || (node->kind == HTF_PURE && !node->is_kept && !node->is_preserved);
    is_alone = is_inside || htf_is_op(plan, i, "_Arg") || htf_is_op(plan, i, "_Retval") || htf_is_op(plan, i, "NoOp");
  }
  return is_alone;
}

/* Finds the arguments that are the cluster's operands and the results of the function among the cluster's, in order.
 * Returns how many places there are; 0: there is more in the function. */
static int find_places(const htf_plan *plan, int cluster, int64_t *places) {
  const htf_plan_cluster *c = &plan->clusters[cluster];
  const int operands = c->input_count + c->variable_count;
  int result_count = 0;
  bool is_good = is_whole(plan, cluster);
  for (int i = 0; i < operands && is_good; ++i) {
    htf_edge edge = i < c->input_count ? c->inputs[i] : c->variables[i - c->input_count];
    places[i] = number_of(plan, edge.node, "_Arg");
    is_good = places[i] >= 0;
  }
  for (int i = 0; i < plan->graph->count && is_good; ++i) {
    const htf_node_def *def = &plan->graph->nodes[i];
    if (htf_is_op(plan, i, "_Retval")) {
      const int number = number_of(plan, i, "_Retval");
      const int at = def->data_count == 1 && number >= 0 && number < plan->graph->count
                         ? htf_plan_result(plan, def->inputs[0])
                         : -1;
      is_good = at >= 0;
      places[operands + (is_good ? number : 0)] = at;
      ++result_count;
    }
  }
  return is_good ? operands + result_count : 0;
}

static void append_places(hr_text *text, const htf_plan *plan, int cluster) {
  const htf_plan_cluster *c = &plan->clusters[cluster];
  const int most = c->input_count + c->variable_count + plan->graph->count;
  int64_t *places = malloc(((size_t)most + 1) * sizeof *places);
  for (int i = 0; i < most && places != NULL; ++i) {
    places[i] = -1;
  }
  const int count = places != NULL ? find_places(plan, cluster, places) : 0;
  size_t value, entry = begin_attribute(text, "places", &value);
  size_t list = hr_protobuf_begin(text, VALUE_LIST);
  for (int i = 0; i < count; ++i) {
    hr_protobuf_int(text, LIST_INTS, (uint64_t)places[i]);
  }
  hr_protobuf_end(text, list);
  end_attribute(text, entry, value);
  text->failed = text->failed || places == NULL;
  free(places);
}

static void append_cluster(hr_text *text, htf_plan *plan, int cluster, const hr_text *body) {
  const htf_plan_cluster *c = &plan->clusters[cluster];
  htf_plan_enter(plan, cluster);
  size_t message = hr_protobuf_begin(text, HTF_GRAPH_NODE), value, entry;
  hr_protobuf_string(text, HTF_NODE_NAME, c->name);
  hr_protobuf_string(text, HTF_NODE_OP, HTF_CLUSTER);
  for (int i = 0; i < c->input_count; ++i) {
    append_input(text, plan, c->inputs[i]);
  }
  for (int i = 0; i < c->variable_count; ++i) {
    append_input(text, plan, c->variables[i]);
  }
  for (int i = 0; i < c->control_count; ++i) {
    if (c->controls[i] >= 0) {
      append_input(text, plan, (htf_edge){c->controls[i], -1});
    } else {
      hr_protobuf_strings(text, HTF_NODE_INPUT, "^", plan->clusters[-1 - c->controls[i]].name);
    }
  }
  htf_append_bytes(text, HTF_NODE_DEVICE, c->device);
  append_types(text, "Tin", plan, cluster, c->inputs, c->input_count, true);
  append_types(text, "Tout", plan, cluster, c->results, c->result_count, false);
  entry = begin_attribute(text, "n", &value);
  hr_protobuf_int(text, VALUE_INT, (uint64_t)c->variable_count);
  end_attribute(text, entry, value);
  entry = begin_attribute(text, "body", &value);
  htf_append_bytes(text, VALUE_TEXT, (hr__span){(const uint8_t *)hr_text_chars(body), body->length});
  end_attribute(text, entry, value);
  append_places(text, plan, cluster);
  hr_protobuf_end(text, message);
}

/* ---- graphs ---- */

/* The writer's lengths have 28 bits, and a node is longer than its parts. */
static hr_status check_size(size_t size) {
  enum { SIZE_MAX_OF_PARTS = 1 << 27 };
  return size < SIZE_MAX_OF_PARTS
             ? HR_OK
             : hr_status_make(HR_STATUS_UNIMPLEMENTED, "headrace: a node of %zu bytes, too long for clusters", size);
}

static hr_status append_nodes(hr_text *text, htf_plan *plan) {
  for (int i = 0; i < plan->graph->count; ++i) {
    const htf_plan_node *node = &plan->nodes[i];
    if (node->kind == HTF_MEMBER && node->is_preserved) {
      append_rest(text, plan, i);
    } else if (htf_stays_outside(node)) {
      HR_RETURN_IF_ERROR(check_size(plan->graph->nodes[i].message.size));
      HR_RETURN_IF_ERROR(append_node(text, plan, i));
    }
  }
  return HR_OK;
}

static hr_status append_graph(hr_text *text, htf_plan *plan, hr__span graph, hr_text *bodies) {
  for (int i = 0; i < plan->cluster_count; ++i) {
    if (plan->clusters[i].is_made) {
      int nodes = append_body(&bodies[i], plan, i);
      HR_RETURN_IF_ERROR(hr_text_status(&bodies[i]));
      HR_RETURN_IF_ERROR(check_size(bodies[i].length));
      name_cluster(plan, i, &bodies[i]);
      atomic_fetch_add(&htf_clusters.clusters, 1);
      atomic_fetch_add(&htf_clusters.nodes, nodes);
    }
  }
  HR_RETURN_IF_ERROR(append_nodes(text, plan));
  for (int i = 0; i < plan->cluster_count; ++i) {
    if (plan->clusters[i].is_made) {
      append_cluster(text, plan, i, &bodies[i]);
    }
  }
  hr__wire wire = hr__wire_of(graph);
  const uint8_t *begin = wire.at;
  for (hr__field field; hr__wire_next(&wire, &field); begin = wire.at) {
    if (field.number != HTF_GRAPH_NODE) {
      HR_RETURN_IF_ERROR(htf_copy_without((hr__span){begin, (size_t)(wire.at - begin)}, 0, xla_mark, text));
    }
  }
  return hr_text_status(text);
}

static hr_status rewrite(hr_text *text, htf_plan *plan, hr__span graph) {
  hr_text *bodies = calloc((size_t)plan->cluster_count + 1, sizeof *bodies);
  hr_status status = bodies != NULL ? append_graph(text, plan, graph, bodies)
                                    : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for clusters");
  for (int i = 0; i < plan->cluster_count && bodies != NULL; ++i) {
    hr_text_fini(&bodies[i]);
  }
  free(bodies);
  return status;
}

static hr_status plan_and_rewrite(const tf_buffer *graph, tf_library *library, int count, const hr__span *preserved,
                                  hr_text *text) {
  const hr__span bytes = {graph->data, graph->size};
  htf_graph read;
  htf_plan plan;
  HR_RETURN_IF_ERROR(htf_graph_read(bytes, &read));
  hr_status status = htf_plan_create(&read, library, count, preserved, &plan);
  if (status == HR_OK) {
    bool has_cluster = false;
    for (int i = 0; i < plan.cluster_count; ++i) {
      has_cluster = has_cluster || plan.clusters[i].is_made;
    }
    status = has_cluster ? rewrite(text, &plan, bytes) : HR_OK;
    htf_plan_fini(&plan);
    if (!has_cluster || (status != HR_OK && hr_status_code_of(status) == HR_STATUS_UNIMPLEMENTED)) {
      hr_status_free(status);
      hr_text_clear(text);
      status = htf_copy_without(bytes, 0, xla_mark, text);
    }
  }
  htf_graph_fini(&read);
  return status;
}

hr_status htf_make_clusters(const tf_buffer *graph, int count, const hr__span *preserved, hr_text *text) {
  tf_status *status = tf.NewStatus();
  tf_library *library = tf.NewFunctionLibraryDefinition(graph, status);
  hr_status result = htf_status_of(status);
  tf.DeleteStatus(status);
  if (result == HR_OK) {
    result = plan_and_rewrite(graph, library, count, preserved, text);
    tf.DeleteFunctionLibraryDefinition(library);
  }
  return result;
}
