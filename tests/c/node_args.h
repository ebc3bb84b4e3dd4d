/* node_args.h: the arguments of a provider's run for a node. */
#ifndef HEADRACE_TESTS_NODE_ARGS_H_
#define HEADRACE_TESTS_NODE_ARGS_H_

#include "core/ir/program.h"

/* The addresses of the node's inputs, then outputs: of its buffers, and of its scalars among the program's arguments.
 */
static inline void hr__node_args(const hr_program *program, const hr_node *node, void *const *buffers,
                                 const hr_scalar *scalars, void **out_args) {
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    const hr_operand *x = hr_node_operand(node, i);
    out_args[i] = x->kind == HR_OPERAND_VALUE    ? buffers[x->index]
                  : x->kind == HR_OPERAND_SCALAR ? (void *)(uintptr_t)&scalars[program->scalars[x->index].argument]
                                                 : NULL;
  }
}

#endif
