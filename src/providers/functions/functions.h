/* functions.h: the node of a call (HR_OP_CALL), for the providers of this folder. */
#ifndef HEADRACE_PROVIDERS_FUNCTIONS_H_
#define HEADRACE_PROVIDERS_FUNCTIONS_H_

#include "providers/provider.h"
#include "runtime/function_table.h"

enum { HR__CALL_KERNEL, HR__CALL_UPDATED, HR__CALL_HAS_EFFECTS, HR__CALL_SIZE, HR__CALL_GROUP = HR__CALL_SIZE + 3 };

/* True for a call whose operands are dense, and whose updated operands are one place each. */
bool hr__call_is_dense(const hr_node *node);
/* The kernel of a call, if the node has its operands; NULL for a closure and for another process's kernel. */
const hr_function *hr__call_kernel(const hr_node *node);
/* All threads of the grid. */
static inline int64_t hr__call_threads(const hr_node *node) {
  const int64_t *size = node->ints + HR__CALL_SIZE;
  return size[0] * size[1] * size[2];
}

#endif
