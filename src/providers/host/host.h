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
/* select.c */
bool hr__line_supports(const hr_node *node);
size_t hr__line_scratch(const hr_node *node, int workers);
hr_status hr__kth_run(const hr__library_call *call);
hr_status hr__mode_run(const hr__library_call *call);
hr_status hr__cummax_run(const hr__library_call *call);
hr_status hr__cummin_run(const hr__library_call *call);
bool hr__search_supports(const hr_node *node);
hr_status hr__search_run(const hr__library_call *call);
/* scan.c */
bool hr__scan_supports(const hr_node *node);
hr_status hr__scan_run(const hr__library_call *call);
/* segments.c */
bool hr__segments_supports(const hr_node *node);
hr_status hr__segments_run(const hr__library_call *call);
/* unique.c */
bool hr__unique_supports(const hr_node *node);
size_t hr__unique_scratch(const hr_node *node, int workers);
hr_status hr__unique_run(const hr__library_call *call);
/* places.c */
bool hr__places_supports(const hr_node *node);
size_t hr__places_scratch(const hr_node *node, int workers);
hr_status hr__places_run(const hr__library_call *call);
/* permutation.c */
bool hr__permutation_supports(const hr_node *node);
hr_status hr__permutation_run(const hr__library_call *call);
/* fft.c */
bool hr__fft_supports(const hr_node *node);
size_t hr__fft_scratch(const hr_node *node, int workers);
hr_status hr__fft_run(const hr__library_call *call);
hr_status hr__fft_prepare(const hr_node *node, void **out_plan);

#endif
