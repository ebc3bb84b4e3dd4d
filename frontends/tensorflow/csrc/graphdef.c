/* graphdef.c: GraphDef and NodeDef in the wire format of protocol buffers. */
#include "graphdef.h"

#include <stdlib.h>

#include "base/protobuf.h"

static hr_status damaged(const char *why) {
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "headrace: a damaged graph: %s", why);
}

static hr_status status_of(const hr__wire *wire) {
  return wire->failure == NULL ? HR_OK : damaged(wire->failure);
}

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "headrace: no memory for a graph");
}

/* ---- fields ---- */

bool htf_find_field(hr__span message, uint32_t number, hr__field *out_field) {
  bool is_found = false;
  hr__wire wire = hr__wire_of(message);
  for (hr__field field; hr__wire_next(&wire, &field);) {
    if (field.number == number) {
      *out_field = field;
      is_found = true;
    }
  }
  return is_found && wire.failure == NULL;
}

int htf_read_numbers(hr__span message, uint32_t number, int most, int64_t *out_numbers) {
  int count = 0;
  hr__wire wire = hr__wire_of(message);
  for (hr__field field; hr__wire_next(&wire, &field);) {
    if (field.number != number) {
      continue;
    }
    if (field.type != HR__WIRE_BYTES) {
      if (count < most) {
        out_numbers[count] = (int64_t)field.value;
      }
      ++count;
      continue;
    }
    hr__wire packed = hr__wire_of(field.bytes);
    for (uint64_t value; hr__wire_number(&packed, HR__WIRE_VARINT, &value); ++count) {
      if (count < most) {
        out_numbers[count] = (int64_t)value;
      }
    }
  }
  return count;
}

/* True if an entry of a map has this key, its field 1. */
static bool has_key(hr__span entry, const char *key) {
  hr__field field;
  return htf_find_field(entry, 1, &field) && field.type == HR__WIRE_BYTES && hr__span_is(field.bytes, key);
}

bool htf_find_attribute(hr__span node, const char *name, hr__span *out_value) {
  hr__wire wire = hr__wire_of(node);
  for (hr__field field, value; hr__wire_next(&wire, &field);) {
    if (field.number == HTF_NODE_ATTRIBUTE && field.type == HR__WIRE_BYTES && has_key(field.bytes, name) &&
        htf_find_field(field.bytes, 2, &value) && value.type == HR__WIRE_BYTES) {
      *out_value = value.bytes;
      return true;
    }
  }
  return false;
}

/* ---- names ---- */

static uint32_t hash_of(hr__span name) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < name.size; ++i) {
    hash = (hash ^ name.data[i]) * 16777619u;
  }
  return hash;
}

/* The slot of a name: that of its node, or the free one where it belongs. */
static uint32_t slot_of(const htf_graph *graph, hr__span name) {
  uint32_t slot = hash_of(name) & (graph->slot_count - 1);
  while (graph->slots[slot] != 0 && !hr__span_equal(graph->nodes[graph->slots[slot] - 1].name, name)) {
    slot = (slot + 1) & (graph->slot_count - 1);
  }
  return slot;
}

int htf_graph_find(const htf_graph *graph, hr__span name) {
  return graph->slot_count == 0 ? -1 : graph->slots[slot_of(graph, name)] - 1;
}

static hr_status add_names(htf_graph *graph) {
  for (graph->slot_count = 8; graph->slot_count < 2 * (uint32_t)graph->count;) {
    graph->slot_count *= 2;
  }
  graph->slots = calloc(graph->slot_count, sizeof *graph->slots);
  if (graph->slots == NULL) {
    return no_memory();
  }
  for (int i = 0; i < graph->count; ++i) {
    uint32_t slot = slot_of(graph, graph->nodes[i].name);
    if (graph->slots[slot] != 0) {
      return damaged("two nodes have one name");
    }
    graph->slots[slot] = i + 1;
  }
  return HR_OK;
}

/* ---- inputs ---- */

/* Reads "^name", "name" or "name:port". */
static bool read_input(const htf_graph *graph, hr__span text, htf_edge *out_edge) {
  bool is_end = text.size > 0 && text.data[0] == '^';
  hr__span name = is_end ? (hr__span){text.data + 1, text.size - 1} : text;
  int64_t port = is_end ? -1 : 0, scale = 1;
  size_t digits = 0;
  for (; !is_end && digits < name.size && digits < 8; ++digits, scale *= 10) {
    uint8_t character = name.data[name.size - 1 - digits];
    if (character < '0' || character > '9') {
      break;
    }
    port += scale * (character - '0');
  }
  bool has_port = digits > 0 && digits < name.size && name.data[name.size - 1 - digits] == ':';
  if (!is_end) {
    port = has_port ? port : 0;
    name.size -= has_port ? digits + 1 : 0;
  }
  *out_edge = (htf_edge){htf_graph_find(graph, name), (int)port};
  return out_edge->node >= 0;
}

static hr_status read_inputs(const htf_graph *graph, htf_node_def *node, htf_edge *out_edges) {
  int count = 0;
  node->inputs = out_edges;
  hr__wire wire = hr__wire_of(node->message);
  for (hr__field field; hr__wire_next(&wire, &field);) {
    if (field.number == HTF_NODE_INPUT && field.type == HR__WIRE_BYTES) {
      if (!read_input(graph, field.bytes, &out_edges[count])) {
        return damaged("a node has an input that is no node");
      }
      if (out_edges[count].port >= 0) {
        if (node->data_count != count) {
          return damaged("a node has data behind control inputs");
        }
        ++node->data_count;
      }
      ++count;
    }
  }
  return HR_OK;
}

/* ---- graphs ---- */

static hr_status read_node(hr__span message, htf_node_def *out_node) {
  *out_node = (htf_node_def){.message = message};
  hr__wire wire = hr__wire_of(message);
  for (hr__field field; hr__wire_next(&wire, &field);) {
    if (field.type != HR__WIRE_BYTES) {
      continue;
    }
    switch (field.number) {
      case HTF_NODE_NAME:
        out_node->name = field.bytes;
        break;
      case HTF_NODE_OP:
        out_node->op = field.bytes;
        break;
      case HTF_NODE_DEVICE:
        out_node->device = field.bytes;
        break;
      case HTF_NODE_INPUT:
        ++out_node->input_count;
        break;
      default:
        break;
    }
  }
  return status_of(&wire);
}

static hr_status read_nodes(hr__span bytes, htf_graph *graph, size_t *out_edges) {
  hr__wire wire = hr__wire_of(bytes);
  for (hr__field field; hr__wire_next(&wire, &field);) {
    graph->count += field.number == HTF_GRAPH_NODE && field.type == HR__WIRE_BYTES;
  }
  graph->nodes = calloc((size_t)graph->count + 1, sizeof *graph->nodes);
  if (wire.failure != NULL || graph->nodes == NULL) {
    return wire.failure != NULL ? status_of(&wire) : no_memory();
  }
  int count = 0;
  wire = hr__wire_of(bytes);
  for (hr__field field; hr__wire_next(&wire, &field);) {
    if (field.number == HTF_GRAPH_NODE && field.type == HR__WIRE_BYTES) {
      HR_RETURN_IF_ERROR(read_node(field.bytes, &graph->nodes[count]));
      *out_edges += (size_t)graph->nodes[count++].input_count;
    }
  }
  return HR_OK;
}

static hr_status read_graph(hr__span bytes, htf_graph *graph) {
  size_t edges = 0;
  HR_RETURN_IF_ERROR(read_nodes(bytes, graph, &edges));
  HR_RETURN_IF_ERROR(add_names(graph));
  graph->edges = calloc(edges + 1, sizeof *graph->edges);
  if (graph->edges == NULL) {
    return no_memory();
  }
  edges = 0;
  for (int i = 0; i < graph->count; ++i) {
    HR_RETURN_IF_ERROR(read_inputs(graph, &graph->nodes[i], graph->edges + edges));
    edges += (size_t)graph->nodes[i].input_count;
  }
  return HR_OK;
}

hr_status htf_graph_read(hr__span bytes, htf_graph *out_graph) {
  *out_graph = (htf_graph){0};
  hr_status status = read_graph(bytes, out_graph);
  if (status != HR_OK) {
    htf_graph_fini(out_graph);
  }
  return status;
}

void htf_graph_fini(htf_graph *graph) {
  free(graph->nodes);
  free(graph->edges);
  free(graph->slots);
  *graph = (htf_graph){0};
}

/* ---- copies ---- */

void htf_append_bytes(hr_text *text, unsigned field, hr__span bytes) {
  size_t message = hr_protobuf_begin(text, field);
  hr_text_append_bytes(text, (const char *)bytes.data, bytes.size);
  hr_protobuf_end(text, message);
}

typedef enum kind { OPAQUE = 0, GRAPH, LIBRARY, FUNCTION, NODE, ATTRIBUTE } kind;

/* The messages that matter, by the message that they are in and their number: GraphDef, FunctionDefLibrary, FunctionDef
 * and NodeDef. */
static kind kind_of(kind in, uint32_t number) {
  switch (in) {
    case GRAPH:
      return number == HTF_GRAPH_NODE ? NODE : number == HTF_GRAPH_LIBRARY ? LIBRARY : OPAQUE;
    case LIBRARY:
      return number == 1 ? FUNCTION : OPAQUE;
    case FUNCTION:
      return number == 3 ? NODE : number == 5 ? ATTRIBUTE : OPAQUE;
    case NODE:
      return number == HTF_NODE_ATTRIBUTE ? ATTRIBUTE : OPAQUE;
    default:
      return OPAQUE;
  }
}

/* Copies a message field by field. The depth is that of `kind`. Lengths of 256 MB need five bytes: such a message is
 * copied as it is. */
static hr_status copy_message(hr__span message, kind in, const char *attribute, hr_text *text) {
  enum { LENGTH_MAX = 1 << 28 };
  hr__wire wire = hr__wire_of(message);
  const uint8_t *begin = wire.at;
  for (hr__field field; hr__wire_next(&wire, &field); begin = wire.at) {
    kind inner = field.type == HR__WIRE_BYTES && field.bytes.size < LENGTH_MAX ? kind_of(in, field.number) : OPAQUE;
    if (inner == OPAQUE || (inner == ATTRIBUTE && !has_key(field.bytes, attribute))) {
      hr_text_append_bytes(text, (const char *)begin, (size_t)(wire.at - begin));
    } else if (inner != ATTRIBUTE) {
      size_t copy = hr_protobuf_begin(text, field.number);
      HR_RETURN_IF_ERROR(copy_message(field.bytes, inner, attribute, text));
      hr_protobuf_end(text, copy);
    }
  }
  return status_of(&wire);
}

hr_status htf_copy_without(hr__span message, uint32_t in, const char *attribute, hr_text *text) {
  HR_RETURN_IF_ERROR(copy_message(message, in == 0 ? GRAPH : kind_of(GRAPH, in), attribute, text));
  return hr_text_status(text);
}
