/* small.h: helpers shared by the providers of this folder: our own kernels for CUDA devices, for nodes so small that a
 * library's kernel spends its time dividing the work. Their second operand is weights. */
#ifndef HEADRACE_PROVIDERS_SMALL_SMALL_H_
#define HEADRACE_PROVIDERS_SMALL_SMALL_H_

#include "providers/provider.h"

enum { HR_SMALL_THREADS = 256 }; /* of a block: THREADS in element.text */

/* True if all operands but an absent third have the same dtype: f32, bf16 or f16. */
bool hr__small_has_dtypes(const hr_node *node);
/* True if a product's bias is one number for each column. */
bool hr__small_is_row(const hr_operand *bias, int64_t columns);
/* DTYPE, IS_CONSTANT, ARGS and ARG_Y. */
void hr__small_write_definitions(const hr_program *program, const hr_node *node, hr_text *text);

#endif
