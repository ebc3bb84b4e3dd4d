/* graph_svg.h: graphs as pictures. */
#ifndef HEADRACE_TOOLS_GRAPH_SVG_H_
#define HEADRACE_TOOLS_GRAPH_SVG_H_

#include "base/text.h"
#include "headrace/graph.h"

/* Appends an SVG document. UNIMPLEMENTED if the graph is too large for a picture. */
HR_MUST_USE hr_status graph_svg(const hr_graph *graph, hr_text *out);

#endif
