/* graphdef.h: edits of a serialised GraphDef, TensorFlow's graph with its functions. Any bytes are safe. */
#ifndef HEADRACE_TENSORFLOW_GRAPHDEF_H_
#define HEADRACE_TENSORFLOW_GRAPHDEF_H_

#include <stddef.h>
#include <stdint.h>

#include "headrace/status.h"

/* Copies a graph without an attribute of its nodes, of its functions and of their nodes. `out` has room for `size`
 * bytes, which is enough. INVALID_ARGUMENT for bytes that are no graph. */
HR_MUST_USE hr_status htf_graph_without(const uint8_t *graph, size_t size, const char *attribute, uint8_t *out,
                                        size_t *out_size);

#endif
