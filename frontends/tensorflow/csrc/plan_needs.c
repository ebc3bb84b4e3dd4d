/* plan_needs.c: inputs, variables, controls and results of clusters, and the nodes that stay outside. */
#include <stdlib.h>

#include "plan.h"

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
  return htf_plan_add_edge(&cluster->results, &cluster->result_count, edge);
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
    return htf_plan_add_edge(&c->variables, &c->variable_count, htf_plan_variable(plan, edge));
  }
  return htf_is_inside(plan, edge.node, cluster) ||
         (htf_plan_add_edge(&c->inputs, &c->input_count, edge) && add_result(plan, edge));
}

bool htf_plan_add_needs(htf_plan *plan, int cluster) {
  htf_plan_enter(plan, cluster);
  for (int place = 0; place < plan->graph->count; ++place) {
    int node = plan->order[place];
    const htf_node_def *def = &plan->graph->nodes[node];
    /* A constant that enters a loop is in the cluster, but not what is outside of the loop. */
    bool is_here = plan->contexts[node].frame == plan->clusters[cluster].frame &&
                   (!htf_is_op(plan, node, "Enter") || htf_loop_of(&plan->loops, node) >= 0);
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

bool htf_plan_add_outside(htf_plan *plan) {
  bool has_memory = true;
  for (int place = plan->graph->count - 1; place >= 0 && has_memory; --place) {
    int node = plan->order[place];
    const htf_plan_node *planned = &plan->nodes[node];
    const htf_node_def *def = &plan->graph->nodes[node];
    bool stays = htf_stays_outside(planned);
    for (int i = 0; i < def->input_count && stays && has_memory; ++i) {
      htf_plan_node *input = &plan->nodes[def->inputs[i].node];
      input->is_kept = true;
      has_memory = add_result(plan, def->inputs[i]);
    }
  }
  return has_memory;
}
