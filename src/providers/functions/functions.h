/* functions.h: the node of a call (HR_OP_CALL), for the providers of this folder. */
#ifndef HEADRACE_PROVIDERS_FUNCTIONS_H_
#define HEADRACE_PROVIDERS_FUNCTIONS_H_

#include "core/ops/call.h"
#include "providers/provider.h"
#include "runtime/function_table.h"

enum { HR__CALL_OPERANDS_MAX = 64 };

/* True for a call whose operands are dense, and whose updated operands are one place each. */
bool hr__call_is_dense(const hr_node *node);
/* The kernel of a call, if the node has its operands; NULL for a closure and for another process's kernel. */
const hr_function *hr__call_kernel(const hr_node *node);
/* True for a call of a closure. */
bool hr__call_is_closure(const hr_node *node);
/* Runs the closure of a node on its operands: inputs, then outputs, with their offsets. */
HR_MUST_USE hr_status hr__call_run_closure(const hr_node *node, void *const *operands, void *queue);
/* OK if the node has no more operands and numbers than a run has places for. */
HR_MUST_USE hr_status hr__call_check_count(const hr_node *node);
/* The addresses of all operands, with their offsets. */
void hr__call_find_operands(const hr_node *node, void *const *args, void **out_operands);
/* All threads of the grid. */
static inline int64_t hr__call_threads(const hr_node *node) {
  const int64_t *size = node->ints + HR__CALL_SIZE;
  return size[0] * size[1] * size[2];
}

#endif
