/* graphdef.h: a serialised GraphDef, TensorFlow's graph with its functions: read in place, and copied without an
 * attribute. Any bytes are safe.
 */
#ifndef HEADRACE_TENSORFLOW_GRAPHDEF_H_
#define HEADRACE_TENSORFLOW_GRAPHDEF_H_

#include "base/text.h"
#include "importers/wire.h"

/* The numbers of fields. */
enum { HTF_GRAPH_NODE = 1, HTF_GRAPH_LIBRARY = 2 };
enum { HTF_NODE_NAME = 1, HTF_NODE_OP = 2, HTF_NODE_INPUT = 3, HTF_NODE_DEVICE = 4, HTF_NODE_ATTRIBUTE = 5 };

/* ---- graphs ---- */

/* An input of a node: a result of another one, or its end (port -1). */
typedef struct htf_edge {
  int node, port;
} htf_edge;

typedef struct htf_node_def {
  hr__span message, name, op, device;
  const htf_edge *inputs;
  int input_count; /* those with data come first, then the ends */
  int data_count;
} htf_node_def;

typedef struct htf_graph {
  htf_node_def *nodes;
  int count;
  htf_edge *edges;
  int32_t *slots; /* of a table by name: a node plus 1 */
  uint32_t slot_count;
} htf_graph;

/* Reads the nodes of a graph, which borrows the bytes. INVALID_ARGUMENT for bytes that are no graph,
 * RESOURCE_EXHAUSTED. A failure leaves nothing to free. */
HR_MUST_USE hr_status htf_graph_read(hr__span bytes, htf_graph *out_graph);
void htf_graph_fini(htf_graph *graph);
/* The node of this name; -1: none. */
int htf_graph_find(const htf_graph *graph, hr__span name);

/* ---- attributes ---- */

/* The AttrValue of a node's attribute; false if it has none. */
bool htf_find_attribute(hr__span node, const char *name, hr__span *out_value);
/* The field `number` of a message: the last one that is there. */
bool htf_find_field(hr__span message, uint32_t number, hr__field *out_field);
/* The numbers of a repeated field, packed or not. Returns how many there are; stores at most `most`. */
int htf_read_numbers(hr__span message, uint32_t number, int most, int64_t *out_numbers);

/* ---- copies ---- */

/* Appends a field with these bytes. */
void htf_append_bytes(hr_text *text, unsigned field, hr__span bytes);
/* Appends a copy of a graph (in: 0), or of a field of one (in: its number), without an attribute of its nodes, of its
 * functions and of their nodes. INVALID_ARGUMENT for bytes that are no graph. */
HR_MUST_USE hr_status htf_copy_without(hr__span message, uint32_t in, const char *attribute, hr_text *text);

#endif
