/* graph_add_host.c: functions of the host as nodes of a graph. */
#include "graph/graph_node.h"

void hr__host_release(hr__host *host) {
  if (host == NULL || !hr_refcount_release(&host->refcount)) {
    return;
  }
  if (host->spec.release != NULL) {
    host->spec.release(host->spec.arg);
  }
  hr_free((char *)(uintptr_t)host->spec.name);
  hr_free(host->types);
  hr_free(host);
}

static char *copy_name(const char *name) {
  size_t bytes = strlen(name) + 1;
  char *copy = hr_malloc(bytes);
  return copy != NULL ? memcpy(copy, name, bytes) : NULL;
}

/* A block that takes over the spec's `arg`; NULL: no memory, and then it is released. */
static hr__host *create_host(const hr_function_spec *spec, int result_count, const hr_type *types) {
  hr__host *host = hr_calloc(1, sizeof *host);
  if (host == NULL) {
    if (spec->release != NULL) {
      spec->release(spec->arg);
    }
    return NULL;
  }
  hr_refcount_init(&host->refcount);
  host->spec = *spec;
  host->spec.name = spec->name != NULL ? copy_name(spec->name) : NULL;
  host->result_count = result_count;
  host->types = hr_calloc((size_t)result_count + 1, sizeof *host->types);
  if (host->types == NULL || (spec->name != NULL && host->spec.name == NULL)) {
    hr__host_release(host);
    return NULL;
  }
  for (int i = 0; i < result_count; ++i) {
    host->types[i] = types[i];
  }
  return host;
}

static bool check_types(hr_graph *graph, int result_count, const hr_type *types) {
  for (int i = 0; i < result_count; ++i) {
    bool is_right = hr_dtype_size(types[i].dtype) > 0 && types[i].rank >= 0 && types[i].rank <= HR_RANK_MAX;
    for (int d = 0; is_right && d < types[i].rank; ++d) {
      is_right = types[i].dims[d] >= 0;
    }
    if (!is_right) {
      HR__GRAPH_REFUSE(graph, "graph: host: the type of result %d has no dtype, or a dim without a number", i);
      return false;
    }
  }
  return true;
}

hr_value hr__graph_share_host(hr_graph *graph, hr__host *host, int input_count, const hr_value *inputs) {
  hr__node node = {.kind = HR__NODE_HOST, .host = host, .input_count = input_count, .result_count = host->result_count};
  if (!hr__graph_can_change(graph)) {
    return 0;
  }
  for (int i = 0; i < input_count; ++i) {
    if (inputs[i] == 0) {
      return HR__GRAPH_REFUSE(graph, "graph: host: input %d is absent", i);
    }
  }
  node.inputs = hr__graph_copy_values(graph, input_count, inputs);
  if (node.inputs == NULL && input_count > 0) {
    return hr__graph_no_memory(graph, "an operation");
  }
  hr_value first = hr__graph_add_node(graph, &node);
  if (first != 0) {
    hr_refcount_retain(&host->refcount);
  }
  return first;
}

hr_value hr_graph_host(hr_graph *graph, const hr_function_spec *spec, int input_count, const hr_value *inputs,
                       int result_count, const hr_type *types) {
  hr__host *host = create_host(spec, result_count, types);
  if (host == NULL) {
    return hr__graph_no_memory(graph, "a function of the host");
  }
  bool is_right = hr__graph_can_change(graph) && check_types(graph, result_count, types);
  if (is_right && (spec->run == NULL || spec->updated_count != 0 || spec->is_late)) {
    HR__GRAPH_REFUSE(graph, "graph: host: expected a function that updates nothing and is not late");
    is_right = false;
  }
  hr_value first = is_right ? hr__graph_share_host(graph, host, input_count, inputs) : 0;
  hr__host_release(host);
  return first;
}
