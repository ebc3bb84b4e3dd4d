/* closures.c: functions of the host of one call each (headrace/function.h), on the host's memory and beside a device's
 * kernels.
 *
 * The closure is the contents of the node's last input: host memory, on devices with memory of their own, too. There a
 * function that needs the host's memory waits for the device's work, and has its operands copied to the host and back.
 */
#include "base/allocator.h"
#include "base/integer.h"
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

/* ---- operands on the host ---- */

/* A call's operands in the device's memory (there) and in the host's (here). */
typedef struct moved {
  const hr_node *node;
  const hr_device *device;
  void *opening; /* the driver's, whose queue has the device's work */
  void *const *there;
  void *here[HR__CALL_OPERANDS_MAX];
} moved;

static size_t bytes_of(const hr_node *node, int i) {
  const hr_operand *x = hr_node_operand(node, i);
  return (size_t)hr_operand_count(*x) * hr_dtype_size(x->dtype);
}

/* The closure itself stays. Returns the block of all others, which the caller frees. */
static void *place(moved *m) {
  enum { ALIGNMENT = 64 };
  int closure = m->node->input_count - 1, count = m->node->input_count + m->node->output_count;
  size_t total = 0, begin[HR__CALL_OPERANDS_MAX] = {0};
  for (int i = 0; i < count; ++i) {
    begin[i] = total;
    total += i != closure ? hr_align_up(bytes_of(m->node, i), ALIGNMENT) : 0;
  }
  char *block = hr_aligned_malloc(total + ALIGNMENT, ALIGNMENT);
  for (int i = 0; i < count && block != NULL; ++i) {
    m->here[i] = i != closure ? block + begin[i] : m->there[i];
  }
  return block;
}

/* Inputs, and the outputs that have contents. The first copy waits for the device's work. */
static hr_status copy_to_host(const moved *m) {
  int updated = (int)m->node->ints[HR__CALL_UPDATED], inputs = m->node->input_count;
  hr_status status = HR_OK;
  for (int i = updated; i < inputs + updated && status == HR_OK; ++i) {
    if (i != inputs - 1) {
      status = m->device->driver->copy_out(m->opening, m->here[i], m->there[i], bytes_of(m->node, i));
    }
  }
  return status;
}

static hr_status copy_to_device(const moved *m) {
  int inputs = m->node->input_count, count = inputs + m->node->output_count;
  hr_status status = HR_OK;
  for (int i = inputs; i < count && status == HR_OK; ++i) {
    status = m->device->driver->copy_in(m->opening, m->there[i], m->here[i], bytes_of(m->node, i));
  }
  return status;
}

static hr_status run_on_host(const hr_node *node, void *const *operands, hr_device *device, const void *queue) {
  moved m = {.node = node, .device = device, .opening = hr__lane_opening(device, queue), .there = operands};
  void *block = m.opening != NULL ? place(&m) : NULL;
  if (block == NULL) {
    return m.opening == NULL ? hr_status_make(HR_STATUS_INTERNAL, "a call on a queue that is none of the device's")
                             : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a call's operands");
  }
  hr_status status = copy_to_host(&m);
  status = status == HR_OK ? hr__call_run_closure(node, m.here, NULL) : status;
  status = status == HR_OK ? copy_to_device(&m) : status;
  hr_aligned_free(block);
  return status;
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)workspace;
  void *operands[HR__CALL_OPERANDS_MAX];
  HR_RETURN_IF_ERROR(hr__call_check_count(p->node));
  hr__call_find_operands(p->node, args, operands);
  const hr__closure *closure = operands[p->node->input_count - 1];
  return closure->device != NULL ? run_on_host(p->node, operands, closure->device, queue)
                                 : hr__call_run_closure(p->node, operands, queue);
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
