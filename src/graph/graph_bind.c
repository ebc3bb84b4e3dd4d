/* graph_bind.c: the inputs of an application against those of a graph. */
#include <stdio.h>

#include "functional/functions.h"
#include "graph/graph_node.h"

static hr_status refuse_input(const hr_graph *graph, int index, const hr_tensor *x) {
  hr_type type;
  char text[HR__SHAPE_TEXT], wanted[HR__SHAPE_TEXT];
  int length = 0;
  hr_value value = graph->inputs.data[index];
  HR_RETURN_IF_ERROR(hr_graph_type(graph, value, &type));
  for (int d = 0; d < type.rank && length < (int)sizeof wanted - 32; ++d) {
    length += type.symbols[d] != NULL ? snprintf(wanted + length, sizeof wanted - (size_t)length, "%s%.20s",
                                                 d > 0 ? "," : "", type.symbols[d])
                                      : snprintf(wanted + length, sizeof wanted - (size_t)length, "%s%lld",
                                                 d > 0 ? "," : "", (long long)type.dims[d]);
  }
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "input \"%s\" is %s%s, expected %s[%.*s]",
                        hr_graph_value_name(graph, value), hr_dtype_name(x->dtype),
                        hr__shape_text(x->rank, x->dims, text), hr_dtype_name(type.dtype), length, wanted);
}

/* Compares an input's dims, and sets the symbols that it is the first to have. setter: by symbol, the input. */
static hr_status bind_input(const hr_graph *graph, int index, const hr_tensor *x, int64_t *symbols, int *setters) {
  const hr__node *node = hr__graph_node_of(graph, graph->inputs.data[index]);
  if (x->number.dtype != HR_DTYPE_NONE || x->dtype != node->dtype || x->rank != node->rank) {
    return refuse_input(graph, index, x);
  }
  for (int d = 0; d < x->rank; ++d) {
    if (node->dims[d] >= 0) {
      if (x->dims[d] != node->dims[d] && !graph->is_piece) {
        return refuse_input(graph, index, x);
      }
      continue;
    }
    int symbol = (int)(-1 - node->dims[d]);
    if (!graph->is_piece && setters[symbol] >= 0 && symbols[symbol] != x->dims[d]) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                            "input \"%s\": dim %d (%s) is %lld, but input \"%s\" has %s = %lld",
                            hr_graph_value_name(graph, graph->inputs.data[index]), d, graph->symbols.data[symbol],
                            (long long)x->dims[d], hr_graph_value_name(graph, graph->inputs.data[setters[symbol]]),
                            graph->symbols.data[symbol], (long long)symbols[symbol]);
    }
    symbols[symbol] = x->dims[d], setters[symbol] = index;
  }
  return HR_OK;
}

hr_status hr__graph_bind(const hr_graph *graph, int input_count, const hr_tensor *const *inputs, int64_t *out_symbols) {
  int setters[HR_GRAPH_SYMBOLS_MAX];
  if (input_count != (int)graph->inputs.count) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: %d inputs, expected %zu", input_count,
                          graph->inputs.count);
  }
  for (size_t s = 0; s < graph->symbols.count; ++s) {
    setters[s] = -1;
  }
  for (int i = 0; i < input_count; ++i) {
    if (inputs[i] == NULL) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "input \"%s\" is absent",
                            hr_graph_value_name(graph, graph->inputs.data[i]));
    }
    HR_RETURN_IF_ERROR(bind_input(graph, i, inputs[i], out_symbols, setters));
  }
  for (size_t s = 0; s < graph->symbols.count; ++s) {
    if (setters[s] < 0) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: no input has a dim \"%s\"", graph->symbols.data[s]);
    }
  }
  return HR_OK;
}
