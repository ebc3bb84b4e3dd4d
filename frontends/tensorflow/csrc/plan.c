/* plan.c: the order and levels of a graph's nodes, the loops that are inside, and clusters.
 *
 * A plan begins again without a loop that turns out not to be inside.
 */
#include "plan.h"

#include <stdlib.h>

enum { CLUSTER_LEAST = 2 }; /* operations: fewer stay kernels */

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

bool htf_plan_add_edge(htf_edge **edges, int *count, htf_edge edge) {
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

htf_edge htf_plan_variable(const htf_plan *plan, htf_edge edge) {
  while (htf_is_op(plan, edge.node, "Identity") && plan->graph->nodes[edge.node].data_count == 1) {
    edge = plan->graph->nodes[edge.node].inputs[0];
  }
  return edge;
}

/* ---- order ---- */

/* The edge back into a loop orders nothing. */
static bool is_back(const htf_plan *plan, htf_edge edge) {
  return htf_is_op(plan, edge.node, "NextIteration");
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
      node->kind = htf_plan_kind(plan, place);
      are_members = node->kind != HTF_OTHER;
    }
    for (int place = begin; place < end && are_members; ++place) {
      int node = plan->order[place];
      if (htf_is_op(plan, node, "Merge") && plan->nodes[node].is_host && !htf_is_known(plan, merged(plan, node).node)) {
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
      plan->nodes[plan->order[place]].kind = htf_plan_kind(plan, place);
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

/* Fails if an edge between members and pure nodes has no output, or one of another type than the input. */
static hr_status check_edge(const htf_plan *plan, int node, int index) {
  const htf_edge edge = plan->graph->nodes[node].inputs[index];
  const htf_plan_node *from = &plan->nodes[edge.node], *to = &plan->nodes[node];
  const hr__span name = plan->graph->nodes[edge.node].name;
  if (from->kind != HTF_OTHER && edge.port >= from->output_count) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                          "headrace: a damaged graph: output %d of %.*s is used, which has %d", edge.port,
                          (int)name.size, (const char *)name.data, from->output_count);
  }
  if (from->kind != HTF_OTHER && to->kind != HTF_OTHER &&
      ((plan->types[from->output_types + edge.port] ^ plan->types[to->input_types + index]) & HTF_TYPE_MASK) != 0) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED,
                          "headrace: output %d of %.*s has another dtype than its user expects", edge.port,
                          (int)name.size, (const char *)name.data);
  }
  return HR_OK;
}

static hr_status check_edges(const htf_plan *plan) {
  for (int node = 0; node < plan->graph->count; ++node) {
    for (int i = 0; i < plan->graph->nodes[node].data_count; ++i) {
      HR_RETURN_IF_ERROR(check_edge(plan, node, i));
    }
  }
  return HR_OK;
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
  return !htf_is_op(plan, node, "NoOp") && !htf_is_op(plan, node, "Identity") &&
         !htf_is_op(plan, node, "ReadVariableOp") && !htf_is_op(plan, node, "StopGradient") &&
         !plan->nodes[node].has_host_rule && !plan->nodes[node].is_silent;
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

/* The variables that a cluster updates, or gathers elements of, are its first ones. */
static bool add_updated(htf_plan *plan, int node) {
  const htf_node_def *def = &plan->graph->nodes[node];
  bool has_memory = true;
  for (int i = 0; i < def->data_count && plan->nodes[node].cluster >= 0 && !htf_is_op(plan, node, "ReadVariableOp");
       ++i) {
    htf_plan_cluster *cluster = &plan->clusters[plan->nodes[node].cluster];
    if ((plan->types[plan->nodes[node].input_types + i] & HTF_TYPE_MASK) == TF_RESOURCE) {
      htf_edge variable = htf_plan_variable(plan, def->inputs[i]);
      has_memory = has_memory && htf_plan_add_edge(&cluster->variables, &cluster->variable_count, variable);
    }
  }
  return has_memory;
}

/* True if one cluster may be all of a function without loops, which Python can call without the graph (direct.h). */
static bool may_be_whole(const htf_plan *plan) {
  bool is_whole = plan->cluster_count == 1 && !plan->has_feeds;
  for (int i = 0; i < plan->graph->count && is_whole; ++i) {
    bool is_edge = htf_is_op(plan, i, "_Arg") || htf_is_op(plan, i, "_Retval") || htf_is_op(plan, i, "NoOp");
    is_whole = htf_loop_of(&plan->loops, i) < 0 && (is_edge || plan->nodes[i].kind != HTF_OTHER);
  }
  return is_whole;
}

/* Small clusters are left to kernels, and so are reads of variables that a cluster only reads, unless it is all of the
 * function: a handle gives the variable for an update, or for a gather. */
static hr_status leave_kernels(htf_plan *plan) {
  const bool keeps_reads = may_be_whole(plan);
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
    bool is_lone_read = !keeps_reads && htf_is_op(plan, i, "ReadVariableOp") && !node->follows_member &&
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
  HR_RETURN_IF_ERROR(check_edges(plan));
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
    is_found = htf_is_op(plan, i, "_Arg") || htf_is_op(plan, i, "_Retval");
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
    has_memory = !plan->clusters[i].is_made || htf_plan_add_needs(plan, i);
  }
  return has_memory && htf_plan_add_outside(plan) ? HR_OK : no_memory();
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
  htf_plan_forget_definitions(plan);
  free(plan->contexts);
  free(plan->nodes);
  free(plan->order);
  free(plan->types);
  *plan = (htf_plan){0};
}
