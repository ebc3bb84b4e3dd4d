/* target.h: kernels for a kind of machine, made by running a model on this one. */
#ifndef HEADRACE_TOOLS_TARGET_H_
#define HEADRACE_TOOLS_TARGET_H_

#include "model.h"

/* Prepares for kernels of "v2", "v3", "v4" (levels of x86-64) or "sm_90" and the like, before anything else of the
 * library is called; a lower level than the machine's is fine. */
hr_status begin_target(const char *target);
/* Runs the graph until its kernels are compiled and tuned. Sets the time of the system's clock since when the cache has
 * used them. */
hr_status make_kernels(const hr_graph *graph, const char *target, const named_values *sizes, int64_t *out_since_ns);

#endif
