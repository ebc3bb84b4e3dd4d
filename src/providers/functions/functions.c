/* functions.c: functions of the caller on host memory: kernels of modules, whose threads are spread over the team, and
 * closures (closures.c).
 *
 * If HEADRACE_GUARDS is on, a kernel's outputs are copies between guards. Bytes written next to an output are found
 * after the run, and the node fails.
 */
#include "providers/functions/functions.h"

#include <string.h>

#include "base/allocator.h"
#include "base/env.h"
#include "base/integer.h"
#include "base/thread.h"
#include "core/ir/build.h"
#include "core/ir/dtype.h"

enum { ALIGNMENT = 64, GUARD_BYTES = 4096, GUARD = 0xA5 };
/* Traffic that justifies another thread. */
static const int64_t SHARE_BYTES = 1 << 14;

struct hr_prepared {
  const hr_node *node;
  const hr_function *kernel; /* NULL: a closure */
  int64_t bytes;             /* of all operands */
  bool is_guarded;
  size_t *guarded; /* the place of each output in the workspace */
};

/* ---- nodes ---- */

static bool is_dense(const hr_operand *x) {
  return x->kind == HR_OPERAND_VALUE && (hr_operand_count(*x) == 0 || hr_operand_is_contiguous(*x));
}

bool hr__call_is_dense(const hr_node *node) {
  bool is = node->op == HR_OP_CALL && node->int_count == HR__CALL_INTS;
  for (int i = 0; is && i < node->input_count + node->output_count; ++i) {
    is = is_dense(hr_node_operand(node, i));
  }
  for (int i = 0; is && i < node->ints[HR__CALL_UPDATED]; ++i) {
    is = hr_operands_are_same_map(&node->inputs[i], &node->outputs[i]) || hr_operand_count(node->inputs[i]) == 0;
  }
  return is;
}

const hr_function *hr__call_kernel(const hr_node *node) {
  const hr_function *kernel = hr__function_find(node->ints[HR__CALL_NUMBER]);
  bool fits = kernel != NULL && kernel->input_count == node->input_count &&
              kernel->output_count == node->output_count && kernel->scalar_count == node->scalar_count;
  return fits ? kernel : NULL;
}

static bool runs(hr_op op) {
  return op == HR_OP_CALL;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  if (!hr__call_is_dense(node)) {
    return false;
  }
  const hr_function *kernel = hr__call_kernel(node);
  return kernel != NULL ? kernel->run != NULL : hr__call_is_closure(node);
}

static hr_status has(hr_op op) {
  return runs(op) ? HR_OK : hr_status_make(HR_STATUS_NOT_FOUND, "not a row of this provider");
}

/* ---- preparing ---- */

static int64_t bytes_of(const hr_operand *x) {
  return hr_operand_count(*x) * (int64_t)hr_dtype_size(x->dtype);
}

/* Places the outputs between guards. */
static size_t place_guarded(hr_prepared *p) {
  size_t at = 0;
  for (int i = 0; i < p->node->output_count; ++i) {
    p->guarded[i] = at + GUARD_BYTES;
    at += 2 * GUARD_BYTES + hr_align_up((size_t)bytes_of(&p->node->outputs[i]), ALIGNMENT);
  }
  return at;
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)algorithm, (void)queue;
  hr_prepared *p = hr_calloc(1, sizeof *p + (size_t)node->output_count * sizeof *p->guarded);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a call");
  }
  *p = (hr_prepared){.node = node, .kernel = hr__call_kernel(node), .guarded = (size_t *)(p + 1)};
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    p->bytes += bytes_of(hr_node_operand(node, i));
  }
  p->is_guarded = p->kernel != NULL && hr_env_choice(HR_ENV_GUARDS) == HR_ENV_GUARDS_ON;
  *out_workspace_bytes = p->is_guarded ? place_guarded(p) : 0;
  *out_prepared = p;
  return HR_OK;
}

/* Most closures take as long as they take: they run beside the recording thread, as large kernels do. */
static bool needs_team(const hr_prepared *p) {
  return p->kernel == NULL ? p->node->ints[HR__CALL_EFFECTS] != HR_CALL_SHORT : p->bytes > SHARE_BYTES;
}

static void release(hr_prepared *p) {
  hr_free(p);
}

/* ---- running ---- */

typedef struct run_state {
  const hr_prepared *p;
  void *operands[HR__CALL_OPERANDS_MAX]; /* inputs, then outputs */
  const hr_scalar *scalars[HR__CALL_OPERANDS_MAX];
} run_state;

static void run_range(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const run_state *s = arg;
  const hr_node *node = s->p->node;
  s->p->kernel->run(s->operands, s->operands + node->input_count, s->scalars, node->ints + HR__CALL_SIZE, begin, end);
}

static void run_threads(run_state *s) {
  int64_t threads = hr__call_threads(s->p->node), per_thread = s->p->bytes / (threads > 0 ? threads : 1) + 1;
  int64_t grain = SHARE_BYTES / per_thread + 1;
  if (threads > 0) {
    hr_parallel_for(threads, grain, run_range, s);
  }
}

/* ---- guards ---- */

/* Replaces the outputs by copies between guards. An output that is not updated has contents, too, by then. */
static void begin_guards(run_state *s, char *workspace, void **out_real) {
  const hr_node *node = s->p->node;
  for (int i = 0; i < node->output_count; ++i) {
    size_t bytes = (size_t)bytes_of(&node->outputs[i]);
    char *copy = workspace + s->p->guarded[i];
    void **output = &s->operands[node->input_count + i];
    memset(copy - GUARD_BYTES, GUARD, GUARD_BYTES);
    memcpy(copy, *output, bytes);
    memset(copy + bytes, GUARD, GUARD_BYTES);
    out_real[i] = *output;
    *output = copy;
  }
}

/* The distance of the first damaged byte from its side's beginning, or -1. */
static int64_t find_damage(const char *guard) {
  for (int64_t i = 0; i < GUARD_BYTES; ++i) {
    if ((unsigned char)guard[i] != GUARD) {
      return i;
    }
  }
  return -1;
}

static hr_status check_guards(const run_state *s, int i) {
  const hr_function *kernel = s->p->kernel;
  const hr_operand *y = &s->p->node->outputs[i];
  const char *copy = s->operands[s->p->node->input_count + i];
  int64_t bytes = bytes_of(y), size = (int64_t)hr_dtype_size(y->dtype);
  int64_t before = find_damage(copy - GUARD_BYTES), after = find_damage(copy + bytes);
  if (before < 0 && after < 0) {
    return HR_OK;
  }
  long long element = after >= 0 ? (bytes + after) / size : -((GUARD_BYTES - before + size - 1) / size);
  return hr_status_make(HR_STATUS_OUT_OF_RANGE,
                        "kernel %s writes element %lld of its output %s, which has %lld elements", kernel->name,
                        element, kernel->output_names[i], (long long)hr_operand_count(*y));
}

static hr_status run_guarded(run_state *s, char *workspace) {
  const hr_node *node = s->p->node;
  void *real[HR__CALL_OPERANDS_MAX];
  hr_status status = HR_OK;
  begin_guards(s, workspace, real);
  run_threads(s);
  for (int i = 0; i < node->output_count; ++i) {
    status = status == HR_OK ? check_guards(s, i) : status;
    memcpy(real[i], s->operands[node->input_count + i], (size_t)bytes_of(&node->outputs[i]));
  }
  return status;
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  const hr_node *node = p->node;
  run_state s = {.p = p};
  HR_RETURN_IF_ERROR(hr__call_check_count(node));
  hr__call_find_operands(node, args, s.operands);
  for (int i = 0; i < node->scalar_count; ++i) {
    s.scalars[i] = args[node->input_count + node->output_count + i];
  }
  if (p->kernel == NULL) {
    return hr__call_run_closure(node, s.operands, queue);
  }
  if (p->is_guarded) {
    return run_guarded(&s, workspace);
  }
  run_threads(&s);
  return HR_OK;
}

const hr_provider hr__functions_provider = {
    .name = "functions",
    .has = has,
    .runs = runs,
    .supports = supports,
    .prepare = prepare,
    .needs_team = needs_team,
    .run = run,
    .release = release,
};
