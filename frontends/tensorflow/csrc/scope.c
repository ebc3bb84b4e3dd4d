/* scope.c: the values of a cluster's body. */
#include "scope.h"

#include "headrace/part.h"

#include <stdlib.h>

typedef struct htf_owned_host {
  struct htf_owned_host *next;
  htf_host host;
} htf_owned_host;

static const hr_tensor nothing;

void htf_scope_walk(htf_node *node) {
  htf_scope *scope = node->scope;
  for (int i = 0; i < scope->body->node_count && !htf_has_failed(node); ++i) {
    scope->current = &scope->body->nodes[i];
    node->kernel = scope->current->kernel;
    node->function = node->kernel->row->function;
    node->kernel->row->rule(node);
    hr_capture_origin(node->stream, (uint32_t)i + 1);
    if (htf_has_failed(node)) {
      node->error = hr_status_annotate(node->error, "node %s", scope->current->name);
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
  }
  if (value->tensor == NULL) {
    htf_fail(node, HR_STATUS_INTERNAL, "headrace: a value of a cluster was not set");
  }
  return htf_has_failed(node) ? &nothing : value->tensor;
}

htf_value htf_scope_tensor(htf_node *node, int64_t value) {
  return htf_has_failed(node) ? &nothing : tensor_of(node, &node->scope->values[value]);
}

htf_value htf_scope_input(htf_node *node, int index) {
  htf_scope_value *value = input_of(node, index);
  return value != NULL ? tensor_of(node, value) : &nothing;
}

const htf_host *htf_scope_host(htf_node *node, int index) {
  const htf_scope_value *value = input_of(node, index);
  if (value != NULL && value->host == NULL) {
    htf_fail(node, HR_STATUS_INTERNAL, "%s: input %d is not known on the host", node->kernel->row->op, index);
  }
  return htf_has_failed(node) ? NULL : value->host;
}

int htf_scope_dims(htf_node *node, int index, const int64_t **out_dims) {
  const htf_scope_value *value = input_of(node, index);
  if (value == NULL) {
    return -1;
  }
  bool is_host = value->host != NULL;
  *out_dims = is_host ? value->host->dims : value->tensor->dims;
  return is_host ? value->host->rank : value->tensor->rank;
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
    place->tensor = value;
  }
}

void htf_scope_set_host(htf_node *node, int index, const htf_host *host) {
  htf_scope_value *place = output_of(node, index);
  if (place != NULL) {
    place->host = host;
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
    return &nothing;
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

htf_value htf_scope_variable(htf_node *node, int index) {
  int64_t slot = slot_of(node, index);
  return slot >= 0 ? node->scope->variables[slot] : &nothing;
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
