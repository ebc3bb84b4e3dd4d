/* host.h: kernels of our own for library rows on the host: one file a family, one table (host.c). */
#ifndef HEADRACE_PROVIDERS_HOST_HOST_H_
#define HEADRACE_PROVIDERS_HOST_HOST_H_

#include "providers/library.h"

/* sort.c */
bool hr__sort_supports(const hr_node *node);
size_t hr__sort_scratch(const hr_node *node, int workers);
hr_status hr__sort_run(const hr__library_call *call);
size_t hr__topk_scratch(const hr_node *node, int workers);
hr_status hr__topk_run(const hr__library_call *call);

#endif
