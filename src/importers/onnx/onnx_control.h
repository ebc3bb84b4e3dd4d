/* onnx_control.h: the forms of If, Loop and Scan without inner graphs. */
#ifndef HEADRACE_IMPORTERS_ONNX_ONNX_CONTROL_H_
#define HEADRACE_IMPORTERS_ONNX_ONNX_CONTROL_H_

#include "importers/onnx/onnx_importer.h"

/* The attributes of Scan, of which each list has an element for each scanned input, or output. */
typedef struct hr__onnx_scan {
  int input_count, state_count, output_count; /* scanned ones */
  int64_t *in_axes, *out_axes, *in_reverse, *out_reverse;
} hr__onnx_scan;

/* NULL, with a failure: no memory. */
hr__onnx_value *hr__onnx_new_values(hr__onnx_node *node, int count);
/* Maps a branch in the place of its node. False after a failure. */
bool hr__onnx_run_branch(hr__onnx_node *node, hr__span branch, hr__onnx_value *out_results);
/* An integer or a bool. */
hr_value hr__onnx_single(hr__onnx_node *node, int64_t number, hr_dtype dtype);
/* Result `index` of an unknown condition's branches, each a value of its graph. UNIMPLEMENTED, with both names, if
 * their data types differ; a result that is no tensor is not checked. */
HR_MUST_USE hr_status hr__onnx_check_branches(int index, const hr_graph *then_graph, const hr__onnx_value *x,
                                              const hr_graph *else_graph, const hr__onnx_value *y);
/* Maps both branches, and selects their results. */
void hr__onnx_select_branches(hr__onnx_node *node, hr__span then_branch, hr__span else_branch);
/* Maps the body as often as it runs, which must be known. */
void hr__onnx_unroll_loop(hr__onnx_node *node, hr__span body);
void hr__onnx_unroll_scan(hr__onnx_node *node, hr__span body, const hr__onnx_scan *scan);

#endif
