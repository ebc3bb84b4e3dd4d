/* attention.c: attention and its gradient as one node each, without storing the scores.
 *
 * Supports f32, bf16 and f16 (computed in f32), any strides, broadcast masks of flags or numbers, causal or not, and
 * dropout. Memory beyond the operands: a few blocks for each thread, packed rows of k and v if they need packing, and
 * gradients of q.
 *
 * Rejects: f64, gradients of a mask (they are as large as the scores) or of hidden scores with a probability, and few
 * queries, for which the products and loops of lower_attention.c are better.
 *
 * Numbers: the error is within that of a product by another library. NaN and infinities come out as from those loops,
 * with one exception. Keys that a causal mask hides from a whole group of STEP queries are not read for it, so a NaN in
 * them or in their values doesn't reach these queries, nor a NaN of the queries the gradients of the keys. Bits depend
 * on the shape alone: not on strides, threads or the rest of the recorded program.
 */
#include "providers/attention/attention.h"

#include <math.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "base/thread.h"
#include "core/ir/dtype.h"

enum {
  QUERIES_MIN = 16, /* of f32: fewer leave vectors half empty, and the products of other providers win */
  UNITS_WANTED = 16 /* of the gradient, for the threads of larger machines */
};
static const int64_t SERIAL_MULTIPLIES = 1 << 20; /* about 10 us */

/* ---- supported nodes ---- */

static bool is_narrow_or_f32(hr_dtype dtype) {
  return dtype == HR_DTYPE_F32 || dtype == HR_DTYPE_BF16 || dtype == HR_DTYPE_F16;
}

static bool is_absent_or(const hr_operand *x, hr_dtype dtype) {
  return x->kind == HR_OPERAND_NONE || (x->kind == HR_OPERAND_VALUE && x->dtype == dtype);
}

static bool is_mask(const hr_operand *x) {
  return x->kind == HR_OPERAND_NONE ||
         (x->kind == HR_OPERAND_VALUE && (x->dtype == HR_DTYPE_BOOL || is_narrow_or_f32(x->dtype)));
}

/* Finds the node's operands among the arguments. */
static void find_places(const hr_node *node, hr_prepared *p) {
  static const hr_operand absent = {.kind = HR_OPERAND_NONE};
  static const hr__place none = {&absent, -1};
  int inputs = node->input_count;
#define INPUT(i) ((i) < inputs ? (hr__place){&node->inputs[i], (i)} : none)
#define OUTPUT(i) ((i) < node->output_count ? (hr__place){&node->outputs[i], inputs + (i)} : none)
  p->is_backward = node->op == HR_OP_ATTENTION_BACKWARD;
  int first = p->is_backward;
  p->dy = p->is_backward ? INPUT(0) : none;
  p->q = INPUT(first), p->k = INPUT(first + 1), p->v = INPUT(first + 2), p->mask = INPUT(first + 3);
  p->y = p->is_backward ? INPUT(5) : OUTPUT(0);
  p->lse = p->is_backward ? INPUT(6) : OUTPUT(1);
  p->dq = p->is_backward ? OUTPUT(0) : none;
  p->dk = p->is_backward ? OUTPUT(1) : none;
  p->dv = p->is_backward ? OUTPUT(2) : none;
#undef INPUT
#undef OUTPUT
  p->scalar_arg = inputs + node->output_count;
}

static bool runs(hr_op op) {
  return op == HR_OP_ATTENTION || op == HR_OP_ATTENTION_BACKWARD;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  if (!runs(node->op)) {
    return false;
  }
  hr_prepared p = {0};
  find_places(node, &p);
  const hr__place *places[] = {&p.k, &p.v, &p.y, &p.dy, &p.dq, &p.dk, &p.dv};
  hr_dtype dtype = p.q.x->dtype;
  if ((p.is_backward && node->scalar_count == 2) || p.q.x->kind != HR_OPERAND_VALUE || !is_narrow_or_f32(dtype) ||
      !is_absent_or(p.lse.x, HR_DTYPE_F32) || !is_mask(p.mask.x) ||
      (dtype == HR_DTYPE_F32 && p.q.x->dims[p.q.x->rank - 2] < QUERIES_MIN)) {
    return false;
  }
  for (size_t i = 0; i < sizeof places / sizeof *places; ++i) {
    if (!is_absent_or(places[i]->x, dtype)) {
      return false;
    }
  }
  return !p.is_backward || node->output_count < 4 || node->outputs[3].kind == HR_OPERAND_NONE;
}

/* ---- preparing ---- */

static bool is_dense(const hr_operand *x) {
  int64_t columns = x->dims[x->rank - 1];
  return x->dtype == HR_DTYPE_F32 && (x->strides[x->rank - 1] == 1 || columns == 1) &&
         x->strides[x->rank - 2] == columns;
}

static void find_sizes(const hr_node *node, hr_prepared *p) {
  const hr_operand *q = p->q.x;
  int rank = q->rank;
  p->is_causal = node->ints[0] != 0;
  p->has_mask = p->mask.x->kind != HR_OPERAND_NONE;
  p->has_dropout = node->scalar_count > 3, p->has_hidden = node->scalar_count == 2;
  p->packs_k = !is_dense(p->k.x), p->packs_v = !is_dense(p->v.x);
  p->heads = 1;
  for (int d = 0; d < rank - 2; ++d) {
    p->heads *= q->dims[d];
  }
  p->queries = q->dims[rank - 2], p->width = q->dims[rank - 1];
  p->keys = p->k.x->dims[rank - 2], p->v_width = p->v.x->dims[rank - 1];
  p->blocks = hr_divide_up(p->queries, HR__QUERIES);
  p->parts = 1;
}

/* Divides the work into units, by the shape alone, and over the pieces of scratch. */
static void find_units(hr_prepared *p) {
  int64_t chunks = hr_divide_up(p->keys, HR__CHUNK);
  if (p->is_backward && p->heads < UNITS_WANTED / 2) {
    p->parts = hr_divide_up(UNITS_WANTED, p->heads);
    p->parts = p->parts < chunks ? p->parts : chunks;
  }
  p->units = p->heads * (p->is_backward ? p->parts : p->blocks);
  int64_t multiplies = p->heads * p->queries * p->keys * (p->width + p->v_width), threads = hr_thread_count();
  p->slots = multiplies <= SERIAL_MULTIPLIES ? 1 : p->units < threads ? p->units : threads;
  p->slot_floats = hr__slot_init(p, NULL, &(hr__slot){0});
  p->partial_floats = p->parts > 1 ? p->units * p->blocks * p->width * HR__QUERIES : 0;
}

/* Returns the bytes of workspace. */
static size_t plan(const hr_node *node, hr_prepared *p) {
  *p = (hr_prepared){0};
  find_places(node, p);
  find_sizes(node, p);
  find_units(p);
  return (size_t)(p->slots * p->slot_floats + p->partial_floats) * sizeof(float);
}

static bool renumber(hr_prepared *p, const hr_program *program, const hr_node *node, size_t *out_workspace_bytes) {
  if (!supports(program, node)) {
    return false;
  }
  *out_workspace_bytes = plan(node, p);
  return true;
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program, (void)algorithm, (void)queue;
  hr_prepared *p = hr_malloc(sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "attention: no memory for a prepared node");
  }
  *out_workspace_bytes = plan(node, p);
  *out_prepared = p;
  return HR_OK;
}

static bool needs_team(const hr_prepared *p) {
  return p->slots > 1;
}

/* ---- running ---- */

/* The first unit of a slot. */
static int64_t first_unit(const hr_prepared *p, int64_t units, int64_t slot) {
  return units / p->slots * slot + (slot < units % p->slots ? slot : units % p->slots);
}

static hr__slot slot_of(const hr__run *run, int64_t number) {
  hr__slot slot;
  (void)hr__slot_init(run->p, run->workspace + number * run->p->slot_floats, &slot);
  return slot;
}

static void run_slots(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const hr__run *run = arg;
  for (int64_t number = begin; number < end; ++number) {
    hr__slot slot = slot_of(run, number);
    int64_t last = first_unit(run->p, run->p->units, number + 1);
    for (int64_t unit = first_unit(run->p, run->p->units, number); unit < last; ++unit) {
      if (run->p->is_backward) {
        hr__attention_backward(run, &slot, unit);
      } else {
        hr__attention_forward(run, &slot, unit);
      }
    }
  }
}

static void sum_slots(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const hr__run *run = arg;
  const hr_prepared *p = run->p;
  for (int64_t number = begin; number < end; ++number) {
    hr__slot slot = slot_of(run, number);
    int64_t blocks = p->heads * p->blocks, last = first_unit(p, blocks, number + 1);
    for (int64_t i = first_unit(p, blocks, number); i < last; ++i) {
      hr__attention_backward_sum(run, &slot, i / p->blocks, i % p->blocks);
    }
  }
}

static double number_of(const hr__run *run, int i) {
  const hr_scalar *scalar = run->args[run->p->scalar_arg + i];
  return hr_scalar_as_f64(scalar);
}

static uint64_t place_of(const hr__run *run, int i) {
  const hr_scalar *scalar = run->args[run->p->scalar_arg + i];
  return scalar->dtype == HR_DTYPE_F64 ? (uint64_t)(int64_t)scalar->value.f[0] : (uint64_t)scalar->value.i;
}

static hr_status run_prepared(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  hr__run run = {.p = p, .args = args, .workspace = workspace};
  run.scale = (float)number_of(&run, 0);
  run.hidden = p->has_hidden ? (float)number_of(&run, 1) : -INFINITY;
  if (p->has_dropout) {
    run.keep = 1.0f - (float)number_of(&run, 1);
    run.keep_scale = 1.0f / run.keep;
    run.seed = place_of(&run, 2), run.offset = place_of(&run, 3);
  }
  hr_parallel_for(p->slots, 1, run_slots, &run);
  if (p->parts > 1 && p->dq.x->kind != HR_OPERAND_NONE) {
    hr_parallel_for(p->slots, 1, sum_slots, &run);
  }
  return HR_OK;
}

static size_t footprint(const hr_prepared *p) {
  return sizeof *p;
}

const hr_provider HR_CPU_NAME(hr__attention_provider) = {
    .name = "attention",
    .runs = runs,
    .supports = supports,
    .prepare = prepare,
    .renumber = renumber,
    .needs_team = needs_team,
    .run = run_prepared,
    .footprint = footprint,
    .release = hr__provider_release,
};
