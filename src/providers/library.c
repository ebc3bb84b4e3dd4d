/* library.c: see library.h. */
#include "providers/library.h"

#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"

enum { ALIGNMENT = 64 };
static const int64_t WORKER_NS = 30000; /* the work that justifies another thread */
static const int64_t SMALL_BYTES = 16384;

struct hr_prepared {
  const hr__library_row *row;
  const hr_node *node;
  size_t scratch_bytes;
  int workers;
  bool needs_team;
  void *plan;
};

const hr__library_row *hr__library_find(const hr__library_row *rows, hr_op op) {
  for (; rows->op != HR_OP_NONE; ++rows) {
    if (rows->op == op) {
      return rows;
    }
  }
  return NULL;
}

static int64_t count_of(const hr_operand *operand) {
  int64_t count = operand->kind == HR_OPERAND_VALUE ? 1 : 0;
  for (int d = 0; d < operand->rank; ++d) {
    count *= operand->dims[d];
  }
  return count;
}

hr_status hr__library_prepare(const hr__library_row *rows, const hr_node *node, hr_prepared **out_prepared,
                              size_t *out_workspace_bytes) {
  hr_prepared *p = hr_calloc(1, sizeof *p);
  int64_t bytes = 0;
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a library call");
  }
  for (int i = 0; i < node->input_count + node->output_count; ++i) {
    const hr_operand *x = hr_node_operand(node, i);
    bytes += count_of(x) * (int64_t)hr_dtype_size(x->dtype);
  }
  p->row = hr__library_find(rows, node->op);
  p->node = node;
  p->needs_team = bytes > SMALL_BYTES;
  p->workers = p->needs_team ? hr_thread_count() : 1;
  p->scratch_bytes = p->row->scratch != NULL ? p->row->scratch(node, p->workers) : 0;
  p->scratch_bytes = hr_align_up(p->scratch_bytes, ALIGNMENT);
  hr_status status = p->row->plan != NULL ? p->row->plan(node, &p->plan) : HR_OK;
  if (status != HR_OK) {
    hr_free(p);
    return status;
  }
  *out_workspace_bytes = p->scratch_bytes * (size_t)p->workers;
  *out_prepared = p;
  return HR_OK;
}

bool hr__library_needs_team(const hr_prepared *prepared) {
  return prepared->needs_team;
}

static hr__tensor tensor_of(const hr_operand *operand, void *address) {
  if (operand->kind != HR_OPERAND_VALUE) {
    return (hr__tensor){0};
  }
  return (hr__tensor){.data = (char *)address + operand->offset * (int64_t)hr_dtype_size(operand->dtype),
                      .dtype = operand->dtype,
                      .rank = operand->rank,
                      .dims = operand->dims,
                      .count = count_of(operand)};
}

hr_status hr__library_run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  const hr_node *node = p->node;
  hr__library_call call = {
      .node = node, .scratch = workspace, .scratch_bytes = p->scratch_bytes, .workers = p->workers, .plan = p->plan};
  for (int i = 0; i < node->input_count && i < HR__LIBRARY_OPERANDS; ++i) {
    call.inputs[i] = tensor_of(&node->inputs[i], args[i]);
  }
  for (int i = 0; i < node->output_count && i < HR__LIBRARY_OPERANDS; ++i) {
    call.outputs[i] = tensor_of(&node->outputs[i], args[node->input_count + i]);
  }
  for (int i = 0; i < node->scalar_count && i < HR__LIBRARY_SCALARS; ++i) {
    call.scalars[i] = *(const hr_scalar *)args[node->input_count + node->output_count + i];
  }
  return p->row->run(&call);
}

void hr__library_free(hr_prepared *prepared) {
  if (prepared != NULL) {
    hr_free(prepared->plan);
  }
  hr_free(prepared);
}

/* ---- many items ---- */

typedef struct spread {
  const hr__library_call *call;
  hr__items_fn fn;
  int64_t items, shares;
  hr_status status;
  int64_t failed_share;
  hr_mutex mutex;
} spread;

static void run_shares(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  spread *s = arg;
  for (int64_t share = begin; share < end; ++share) {
    hr_status status = s->fn(s->call, s->items * share / s->shares, s->items * (share + 1) / s->shares,
                             (char *)s->call->scratch + (size_t)share * s->call->scratch_bytes);
    if (status == HR_OK) {
      continue;
    }
    hr_mutex_lock(&s->mutex);
    if (s->status == HR_OK || share < s->failed_share) {
      hr_status_ignore(s->status);
      s->status = status;
      s->failed_share = share;
    } else {
      hr_status_ignore(status);
    }
    hr_mutex_unlock(&s->mutex);
  }
}

hr_status hr__library_spread(const hr__library_call *call, int64_t items, int64_t item_ns, hr__items_fn fn) {
  int64_t per_share = WORKER_NS / (item_ns > 0 ? item_ns : 1) + 1, shares = items / per_share;
  shares = shares > call->workers ? call->workers : shares;
  if (shares <= 1) {
    return items > 0 ? fn(call, 0, items, call->scratch) : HR_OK;
  }
  spread s = {.call = call, .fn = fn, .items = items, .shares = shares};
  hr_mutex_init(&s.mutex);
  hr_parallel_for(shares, 1, run_shares, &s);
  hr_mutex_fini(&s.mutex);
  return s.status;
}
