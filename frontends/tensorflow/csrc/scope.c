/* scope.c: the values of a cluster's body. */
#include "scope.h"

#include <stdlib.h>

#include "headrace/part.h"
#include "lists.h"

typedef struct htf_owned_host {
  struct htf_owned_host *next;
  htf_host host;
} htf_owned_host;

static void walk_node(htf_node *node, int index) {
  node->scope->current = &node->scope->body->nodes[index];
  node->kernel = node->scope->current->kernel;
  node->function = node->kernel->row->function;
  node->kernel->row->rule(node);
  hr_capture_origin(node->stream, (uint32_t)index + 1);
  if (htf_has_failed(node)) {
    node->error = hr_status_annotate(node->error, "node %s", node->scope->current->name);
  }
}

/* Forgets what an iteration has left and the next one does not read. */
static void clear_values(htf_scope *scope, const htf_body_loop *loop) {
  for (int i = loop->first; i < loop->first + loop->count; ++i) {
    const htf_body_node *current = &scope->body->nodes[i];
    bool is_read = current->is_invariant || strcmp(current->kernel->row->op, "NextIteration") == 0;
    for (int j = 0; j < current->output_count && !is_read; ++j) {
      scope->values[current->first_output + j] = (htf_scope_value){0};
    }
  }
}

static int compare_hosts(const void *a, const void *b) {
  const htf_host *x = *(const htf_host *const *)a, *y = *(const htf_host *const *)b;
  return (x > y) - (x < y);
}

/* `live` is in order. */
static void free_hosts(htf_scope *scope, const htf_owned_host *mark, size_t count, const htf_host *const *live) {
  for (htf_owned_host **at = &scope->owned; *at != mark;) {
    htf_owned_host *owned = *at;
    const htf_host *host = &owned->host;
    if (bsearch(&host, live, count, sizeof *live, compare_hosts) != NULL) {
      at = &owned->next;
    } else {
      *at = owned->next;
      htf_host_fini(&owned->host);
      free(owned);
    }
  }
}

/* Frees what iterations since the marks have made and nobody needs. */
static void sweep(htf_node *node, const htf_body_loop *loop, htf_chunk *mark, const htf_owned_host *host_mark) {
  htf_scope *scope = node->scope;
  clear_values(scope, loop);
  size_t count = (size_t)scope->body->value_count + htf_lists_sweep(scope, NULL);
  htf_scope_value **live = calloc(count + 1, sizeof *live);
  htf_value **tensors = calloc(count + 1, sizeof *tensors);
  const htf_host **hosts = calloc(count + 1, sizeof *hosts);
  if (live == NULL || tensors == NULL || hosts == NULL) {
    htf_fail(node, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a loop");
  } else {
    for (int i = 0; i < scope->body->value_count; ++i) {
      live[i] = &scope->values[i];
    }
    (void)htf_lists_sweep(scope, live + scope->body->value_count);
    for (size_t i = 0; i < count; ++i) {
      tensors[i] = &live[i]->tensor, hosts[i] = live[i]->host;
    }
    qsort(hosts, count, sizeof *hosts, compare_hosts);
    htf_node_sweep(node, mark, count, tensors);
    free_hosts(scope, host_mark, count, hosts);
  }
  free(hosts);
  free(live);
  free(tensors);
}

/* True for the nodes of the values that leave the loop. They may be behind its condition, if these values come from
 * others that are late. */
static bool is_state(const htf_body_node *node) {
  return strcmp(node->kernel->row->op, "Merge") == 0 || strcmp(node->kernel->row->op, "Enter") == 0;
}

/* Passes over the nodes of a loop until its condition is false. Nodes that don't depend on the iteration are recorded
 * once. */
static void walk_loop(htf_node *node, const htf_body_loop *loop) {
  enum { SWEEP_INTERVAL = 256 };
  htf_scope *scope = node->scope;
  bool goes_on = true, sweeps = scope->passed_most == 0;
  const htf_owned_host *host_mark = scope->owned;
  htf_chunk *mark = sweeps ? htf_node_mark(node) : NULL;
  scope->loop = loop;
  for (scope->iteration = 0; goes_on && !htf_has_failed(node) && !scope->is_too_long; ++scope->iteration) {
    if (sweeps && scope->iteration % SWEEP_INTERVAL == SWEEP_INTERVAL - 1) {
      sweep(node, loop, mark, host_mark);
    }
    for (int i = loop->first; i < loop->first + loop->count && !htf_has_failed(node); ++i) {
      const htf_body_node *current = &scope->body->nodes[i];
      if ((scope->iteration > 0 && current->is_invariant) || (!goes_on && !is_state(current))) {
        continue;
      }
      walk_node(node, i);
      goes_on = goes_on && (!current->is_condition || scope->goes_on);
    }
    scope->passed += loop->count;
    scope->is_too_long = goes_on && scope->passed_most > 0 && scope->passed > scope->passed_most;
  }
  scope->loop = NULL, scope->iteration = 0;
}

void htf_scope_walk(htf_node *node) {
  const htf_body *body = node->scope->body;
  const htf_body_loop *loop = body->loops;
  for (int i = 0; i < body->node_count && !htf_has_failed(node) && !node->scope->is_too_long;) {
    if (loop < body->loops + body->loop_count && loop->first == i) {
      walk_loop(node, loop);
      i += loop->count, ++loop;
    } else {
      walk_node(node, i++);
    }
  }
}

void htf_scope_fini(htf_scope *scope) {
  while (scope->owned != NULL) {
    htf_owned_host *next = scope->owned->next;
    htf_host_fini(&scope->owned->host);
    free(scope->owned);
    scope->owned = next;
  }
  htf_lists_free(scope->lists);
  scope->lists = NULL;
}

/* ---- inputs ---- */

int htf_scope_input_count(const htf_scope *scope) {
  return scope->current->input_count;
}

static htf_scope_value *input_of(htf_node *node, int index) {
  const htf_body_node *current = node->scope->current;
  if (index >= current->input_count) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: input %d is missing", node->kernel->row->op, index);
  }
  return htf_has_failed(node) ? NULL : &node->scope->values[current->inputs[index]];
}

static htf_value tensor_of(htf_node *node, htf_scope_value *value) {
  if (value->tensor == NULL && value->host != NULL) {
    value->tensor = node->scope->place_host(node, node->scope->arg, value->host);
  } else if (value->tensor == NULL && value->is_joined) {
    value->tensor = htf_list_join(node, value->list);
  }
  if (value->tensor == NULL) {
    htf_fail(node, HR_STATUS_INTERNAL, "headrace: a value of a cluster was not set");
  }
  return htf_has_failed(node) ? &htf_nothing : value->tensor;
}

htf_value htf_scope_tensor(htf_node *node, int64_t value) {
  return htf_has_failed(node) ? &htf_nothing : tensor_of(node, &node->scope->values[value]);
}

htf_value htf_scope_input(htf_node *node, int index) {
  htf_scope_value *value = input_of(node, index);
  return value != NULL ? tensor_of(node, value) : &htf_nothing;
}

const htf_host *htf_scope_host(htf_node *node, int index) {
  const htf_scope_value *value = input_of(node, index);
  if (value != NULL && value->host == NULL) {
    htf_fail(node, HR_STATUS_INTERNAL, "%s: input %d is not known on the host", node->kernel->row->op, index);
  }
  return htf_has_failed(node) ? NULL : value->host;
}

int htf_scope_dims(htf_node *node, int index, const int64_t **out_dims) {
  htf_scope_value *value = input_of(node, index);
  if (value == NULL) {
    return -1;
  }
  if (value->host != NULL) {
    *out_dims = value->host->dims;
    return value->host->rank;
  }
  htf_value tensor = tensor_of(node, value);
  *out_dims = tensor->dims;
  return htf_has_failed(node) ? -1 : tensor->rank;
}

bool htf_scope_is_invariant(const htf_scope *scope, int index) {
  const htf_body_loop *loop = scope->loop;
  const htf_body_node *nodes = scope->body->nodes;
  if (loop == NULL || index >= scope->current->input_count) {
    return false;
  }
  int64_t value = scope->current->inputs[index];
  int source = loop->first + loop->count - 1;
  while (source >= loop->first && nodes[source].first_output > value) {
    --source;
  }
  return source < loop->first || nodes[source].is_invariant;
}

bool htf_scope_is_list(htf_node *node, int index) {
  const htf_scope_value *value = input_of(node, index);
  return value != NULL && value->list != NULL && !value->is_joined;
}

const htf_scope_value *htf_scope_value_at(htf_node *node, int index) {
  return input_of(node, index);
}

/* ---- results ---- */

int htf_scope_output_count(const htf_scope *scope) {
  return scope->current->output_count;
}

int htf_scope_output_type(const htf_scope *scope, int index) {
  return index < scope->current->output_count ? (int)scope->current->types[index] : TF_DTYPE_COUNT;
}

static htf_scope_value *output_of(htf_node *node, int index) {
  const htf_body_node *current = node->scope->current;
  if (index >= current->output_count) {
    htf_fail(node, HR_STATUS_INTERNAL, "%s: result %d is not in the cluster", node->kernel->row->op, index);
  }
  return htf_has_failed(node) ? NULL : &node->scope->values[current->first_output + index];
}

void htf_scope_set(htf_node *node, int index, htf_value value) {
  htf_scope_value *place = output_of(node, index);
  if (place != NULL) {
    *place = (htf_scope_value){.tensor = value};
  }
}

void htf_scope_put(htf_node *node, int index, htf_scope_value value) {
  htf_scope_value *place = output_of(node, index);
  if (place != NULL) {
    *place = value;
  }
}

void htf_scope_set_host(htf_node *node, int index, const htf_host *host) {
  htf_scope_value *place = output_of(node, index);
  if (place != NULL) {
    *place = (htf_scope_value){.host = host};
  }
}

/* A tensor of the host that the scope owns; NULL after a failure. */
static htf_host *new_host(htf_node *node, hr_dtype dtype, int rank, const int64_t *dims) {
  htf_owned_host *owned = htf_has_failed(node) ? NULL : calloc(1, sizeof *owned);
  if (owned == NULL) {
    htf_fail(node, HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for %zu bytes", sizeof *owned);
    return NULL;
  }
  owned->next = node->scope->owned;
  node->scope->owned = owned;
  bool has_failed = htf_keep(node, htf_host_create(dtype, rank, dims, HTF_HOST_BYTES_MAX, &owned->host));
  return has_failed ? NULL : &owned->host;
}

htf_host *htf_scope_new_host(htf_node *node, int index, hr_dtype dtype, int rank, const int64_t *dims) {
  htf_host *host = new_host(node, dtype, rank, dims);
  if (host != NULL) {
    htf_scope_set_host(node, index, host);
  }
  return host;
}

htf_value htf_scope_constant(htf_node *node, hr_dtype dtype, int64_t count, const void *elements) {
  htf_host *host = new_host(node, dtype, 1, &count);
  if (host == NULL) {
    return &htf_nothing;
  }
  memcpy(host->bytes, elements, (size_t)count * hr_dtype_size(dtype));
  return node->scope->place_host(node, node->scope->arg, host);
}

/* ---- variables ---- */

/* The number of the variable that is an input; -1 after a failure. */
static int64_t slot_of(htf_node *node, int index) {
  const htf_body *body = node->scope->body;
  const htf_body_node *current = node->scope->current;
  int64_t slot = index < current->input_count ? current->inputs[index] - body->input_count : -1;
  if (slot < 0 || slot >= body->variable_count) {
    htf_fail(node, HR_STATUS_INTERNAL, "%s: input %d is no variable of the cluster", node->kernel->row->op, index);
  }
  return htf_has_failed(node) ? -1 : node->scope->first_same[slot];
}

unsigned htf_scope_uses(htf_node *node, int index) {
  const htf_scope *scope = node->scope;
  int64_t slot = slot_of(node, index);
  unsigned uses = 0;
  for (int v = 0; v < scope->body->variable_count && slot >= 0; ++v) {
    uses |= scope->first_same[v] == slot ? scope->body->uses[v] : 0u;
  }
  return uses;
}

htf_value htf_scope_variable(htf_node *node, int index) {
  int64_t slot = slot_of(node, index);
  return slot >= 0 ? node->scope->variables[slot] : &htf_nothing;
}

void htf_scope_assign(htf_node *node, int index, htf_value value) {
  int64_t slot = slot_of(node, index);
  if (slot < 0) {
    return;
  }
  htf_value variable = node->scope->variables[slot];
  bool is_same = value->rank == variable->rank;
  for (int d = 0; is_same && d < value->rank; ++d) {
    is_same = value->dims[d] == variable->dims[d];
  }
  if (!is_same) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: the value has other dims than the variable", node->kernel->row->op);
    return;
  }
  node->scope->variables[slot] = htf_settle(node, value, variable->dtype);
}
