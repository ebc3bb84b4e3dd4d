/* recurrent.c: layers of LSTM and GRU, and their gradients, as one call each.
 *
 * For each step, the product of the state before it with the weights is followed by the cell, block by block. The
 * weights are packed once for the run, and cached while they stay the same. A layer of many rows is divided by rows:
 * each thread runs all steps of its own. In a layer of few rows and a large step the threads divide each step.
 *
 * Supports f32, with dense columns (gradients of results may have any strides). Everything else is lowered
 * (lower_sequence.c).
 *
 * Numbers: cells have the bits of lower_cell.c; a product adds its terms in order. Bits don't depend on strides,
 * threads, or on how many rows there are.
 */
#include "providers/recurrent/recurrent.h"

#include "base/allocator.h"
#include "base/integer.h"
#include "base/thread.h"
#include "core/ir/dtype.h"
#include "runtime/cached_weights.h"

enum { RECIPE_WORDS = 8, PACKED = 0x7265636e };
enum { SHARE_ROWS_MIN = 8 };                       /* of a thread: fewer rows read the weights too often */
static const int64_t SHARE_MULTIPLIES = 1 << 20;   /* a layer's, for which threads start once: about 20 us */
static const int64_t DIVIDED_MULTIPLIES = 1 << 20; /* a step's, for which threads meet twice */
static const int64_t DIVIDED_FLOATS = 1 << 18;     /* of packed weights */

static bool supports(const hr_program *program, const hr_node *node) {
  hr__place places[HR__ROLES];
  (void)program;
  return hr__find_layer_places(node, places);
}

/* ---- preparing ---- */

/* A weight outlives the program, which doesn't write it. */
static bool is_kept(const hr_program *program, const hr_operand *weight) {
  return !program->buffers[weight->index].is_dead && hr_program_writes(program, weight->index) == 0;
}

static void find_sizes(const hr_program *program, const hr_node *node, hr_prepared *p) {
  const hr_operand *weight = &node->inputs[p->places[WEIGHT].arg], *first = &node->outputs[0]; /* [T, N, ..] */
  p->is_lstm = node->op == HR_OP_LSTM || node->op == HR_OP_LSTM_BACKWARD;
  p->is_backward = node->op == HR_OP_LSTM_BACKWARD || node->op == HR_OP_GRU_BACKWARD;
  p->is_reverse = node->ints[0] != 0;
  p->is_kept = is_kept(program, weight);
  p->steps = first->dims[0], p->batch = first->dims[1], p->hidden = weight->dims[1];
  p->gates = p->is_lstm ? 4 : 3;
  int64_t columns = hr_divide_up(p->hidden, HR__LANES) * HR__LANES;
  p->panels = hr_divide_up(p->hidden, p->is_backward ? HR__PANEL : HR__LANES);
  p->packed_floats = columns * p->gates * p->hidden;
}

static void find_threads(hr_prepared *p) {
  int64_t multiplies = p->batch * p->gates * p->hidden * p->hidden, threads = hr_thread_count();
  p->shares = 1;
  if (threads > 1 && p->batch >= SHARE_ROWS_MIN * threads && p->steps * multiplies >= SHARE_MULTIPLIES) {
    p->shares = (int)threads;
  } else {
    p->has_team = threads > 1 && multiplies >= DIVIDED_MULTIPLIES;
  }
}

/* Returns the bytes of workspace. */
static size_t plan(const hr_program *program, const hr_node *node, hr_prepared *p) {
  *p = (hr_prepared){0};
  (void)hr__find_layer_places(node, p->places);
  find_sizes(program, node, p);
  find_threads(p);
  return (size_t)(p->packed_floats + p->batch * p->hidden) * sizeof(float);
}

static bool renumber(hr_prepared *p, const hr_program *program, const hr_node *node, size_t *out_workspace_bytes) {
  if (!supports(program, node)) {
    return false;
  }
  *out_workspace_bytes = plan(program, node, p);
  return true;
}

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)algorithm, (void)queue;
  hr_prepared *p = hr_malloc(sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "recurrent: no memory for a prepared layer");
  }
  *out_workspace_bytes = plan(program, node, p);
  *out_prepared = p;
  return HR_OK;
}

static size_t footprint(const hr_prepared *p) {
  return sizeof *p;
}

static bool needs_team(const hr_prepared *p) {
  return p->shares > 1 || p->has_team;
}

static void stamp(hr_prepared *p, const uint64_t *stamps) {
  p->stamp = stamps[p->places[WEIGHT].arg];
}

static int keeps(const hr_prepared *p) {
  return p->is_kept ? p->places[WEIGHT].arg : -1;
}

/* ---- weights ---- */

typedef struct packing {
  const hr__run *run;
  float *packed;
} packing;

static void pack_some(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const packing *pack = arg;
  hr__pack_panels(pack->run, pack->packed, begin, end);
}

static void pack(const hr__run *run, float *packed) {
  const hr_prepared *p = run->p;
  packing all = {run, packed};
  bool is_divided = needs_team(p) && p->packed_floats >= DIVIDED_FLOATS;
  hr_parallel_for(p->panels, is_divided ? 1 : p->panels, pack_some, &all);
}

/* The cached panels, retained; NULL: there are none. */
static hr_cached_weights *cached_panels(hr_prepared *p, const hr__run *run) {
  const hr__place *w = &p->places[WEIGHT];
  const uint64_t recipe[RECIPE_WORDS] = {
      PACKED,           (uint64_t)p->is_backward, (uint64_t)p->gates, (uint64_t)p->hidden, (uint64_t)w->offset,
      (uint64_t)w->row, (uint64_t)w->column,      HR__LANES};
  bool is_new = false;
  size_t bytes = (size_t)p->packed_floats * sizeof(float);
  hr_cached_weights *panels =
      p->is_kept ? hr__cached_weights_get(p->stamp, recipe, RECIPE_WORDS, bytes, &is_new) : NULL;
  if (panels != NULL && is_new) {
    pack(run, hr__cached_weights_data(panels));
    hr__cached_weights_publish(panels);
  }
  return panels;
}

/* ---- running ---- */

static void run_block(const hr__run *run, const hr__block *block) {
  const hr_prepared *p = run->p;
  if (p->is_lstm) {
    (p->is_backward ? hr__lstm_backward_block : hr__lstm_block)(run, block);
  } else {
    (p->is_backward ? hr__gru_backward_block : hr__gru_block)(run, block);
  }
}

/* Rows [first, last) in the columns of one panel, in blocks of about the same size. */
static void run_panel(const hr__run *run, int64_t step, int64_t panel, int64_t first, int64_t last) {
  int64_t count = last - first, blocks = hr_divide_up(count, HR__ROWS);
  for (int64_t i = 0; i < blocks; ++i) {
    int64_t begin = first + count * i / blocks, end = first + count * (i + 1) / blocks;
    hr__block block = {.step = step, .row = begin, .panel = panel, .rows = (int)(end - begin)};
    run_block(run, &block);
  }
}

/* The number of steps; step -1 of a gradient counts if its result is present. */
static int64_t count_steps(const hr__run *run) {
  return run->p->steps + (hr__has(run, DH0) ? 1 : 0);
}
static int64_t step_at(const hr__run *run, int64_t i) {
  return run->p->is_backward ? run->p->steps - 1 - i : i;
}

/* All steps of shares of the rows. */
static void run_shares(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const hr__run *run = arg;
  const hr_prepared *p = run->p;
  for (int64_t share = begin; share < end; ++share) {
    int64_t first = p->batch * share / p->shares, last = p->batch * (share + 1) / p->shares;
    for (int64_t i = 0; i < count_steps(run); ++i) {
      for (int64_t panel = 0; panel < p->panels; ++panel) {
        run_panel(run, step_at(run, i), panel, first, last);
      }
    }
  }
}

typedef struct step {
  const hr__run *run;
  int64_t number;
} step;

static void run_panels(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const step *s = arg;
  for (int64_t panel = begin; panel < end; ++panel) {
    run_panel(s->run, s->number, panel, 0, s->run->p->batch);
  }
}

static void run_steps(const hr__run *run) {
  for (int64_t i = 0; i < count_steps(run); ++i) {
    step s = {run, step_at(run, i)};
    hr_parallel_for(run->p->panels, 1, run_panels, &s);
  }
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  (void)queue;
  float *own = workspace;
  hr__run r = {.p = p, .carried = own + p->packed_floats};
  for (int role = 0; role < HR__ROLES; ++role) {
    const hr__place *at = &p->places[role];
    r.data[role] = at->arg >= 0 ? (float *)args[at->arg] + at->offset : NULL;
  }
  hr_cached_weights *panels = cached_panels(p, &r);
  r.packed = panels != NULL ? hr__cached_weights_data(panels) : own;
  if (panels == NULL) {
    pack(&r, own);
  }
  if (p->has_team) {
    run_steps(&r);
  } else {
    hr_parallel_for(p->shares, 1, run_shares, &r);
  }
  hr__cached_weights_release(panels);
  return HR_OK;
}

const hr_provider HR_CPU_NAME(hr__recurrent_provider) = {
    .name = "recurrent",
    .runs = hr__is_layer,
    .supports = supports,
    .prepare = prepare,
    .renumber = renumber,
    .needs_team = needs_team,
    .stamp = stamp,
    .keeps = keeps,
    .run = run,
    .footprint = footprint,
    .release = hr__provider_release,
};
