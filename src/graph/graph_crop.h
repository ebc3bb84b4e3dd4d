/* graph_crop.h: rows and columns of convolutions that nobody reads. */
#ifndef HEADRACE_GRAPH_GRAPH_CROP_H_
#define HEADRACE_GRAPH_GRAPH_CROP_H_

#include "graph/graph_node.h"

/* Follows a live max pool to the convolution before it, whose last elements along some planes' dims no window reads.
 * True if it has less padding behind then: `after`, one number for each of those dims.
 * reads: for each value of the graph, how often live nodes and outputs read it. */
enum { HR__CROP_DIMS = 3 };
bool hr__graph_find_crop(const hr_graph *graph, const int *reads, const hr__node *pool, const hr__node **out_conv,
                         int64_t after[HR__CROP_DIMS]);

#endif
