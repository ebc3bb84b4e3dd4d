/* closures.c: functions of the host of one call each (headrace/function.h), on the host's memory and beside a device's
 * kernels.
 *
 * The closure is the contents of the node's last input: host memory, on devices with memory of their own, too.
 */
#include "base/allocator.h"
#include "core/ir/build.h"
#include "core/ir/dtype.h"
#include "providers/functions/functions.h"

struct hr_prepared {
  const hr_node *node;
};

/* ---- nodes ---- */

bool hr__call_is_closure(const hr_node *node) {
  const hr_operand *last = &node->inputs[node->input_count - 1];
  return node->ints[HR__CALL_NUMBER] <= 0 && node->input_count > node->ints[HR__CALL_UPDATED] &&
         last->dtype == HR_DTYPE_U8 && hr_operand_count(*last) == (int64_t)sizeof(hr__closure);
}

hr_status hr__call_check_count(const hr_node *node) {
  int operands = node->input_count + node->output_count;
  return operands <= HR__CALL_OPERANDS_MAX && node->scalar_count <= HR__CALL_OPERANDS_MAX
             ? HR_OK
             : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "a call of %d operands and %d numbers: at most %d each",
                              operands, node->scalar_count, (int)HR__CALL_OPERANDS_MAX);
}

void hr__call_find_operands(const hr_node *node, void *const *args, void **out_operands) {
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    const hr_operand *x = hr_node_operand(node, i);
    out_operands[i] = args[i] != NULL ? (char *)args[i] + x->offset * (int64_t)hr_dtype_size(x->dtype) : NULL;
  }
}

hr_status hr__call_run_closure(const hr_node *node, void *const *operands, void *queue) {
  int updated = (int)node->ints[HR__CALL_UPDATED], inputs = node->input_count - 1;
  const hr__closure *closure = operands[inputs];
  const hr_function_call call = {.arg = closure->arg,
                                 .queue = queue,
                                 .input_count = inputs - updated,
                                 .output_count = node->output_count,
                                 .inputs = operands + updated,
                                 .outputs = operands + node->input_count};
  const char *name = hr__function_name(node->ints[HR__CALL_NUMBER]);
  hr_status status = closure->run(&call);
  return name != NULL ? hr_status_annotate(status, "%s", name) : status;
}

/* ---- beside a device's kernels ---- */

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  return hr__call_is_dense(node) && hr__call_is_closure(node);
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)algorithm, (void)queue;
  hr_prepared *p = hr_calloc(1, sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a call");
  }
  p->node = node;
  *out_prepared = p;
  *out_workspace_bytes = 0;
  return HR_OK;
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)workspace;
  void *operands[HR__CALL_OPERANDS_MAX];
  HR_RETURN_IF_ERROR(hr__call_check_count(p->node));
  hr__call_find_operands(p->node, args, operands);
  return hr__call_run_closure(p->node, operands, queue);
}

static void release(hr_prepared *p) {
  hr_free(p);
}

const hr_provider hr__device_closures_provider = {
    .name = "functions",
    .dialect = HR_DIALECT_CUDA,
    .runs_anew = true,
    .supports = supports,
    .prepare = prepare,
    .run = run,
    .release = release,
};
