#include "engine/autotune.h"

#include <stdatomic.h>

#include "base/allocator.h"
#include "base/context.h"
#include "base/log.h"
#include "base/thread.h"
#include "runtime/cached_weights.h"

enum { RUNS_BEFORE = 2, SAMPLES = 5, SAMPLES_TO_DROP = 2, SHARE = 20, ARGS_MAX = 8 };
enum {
  RUNS_BETWEEN = 64,
  MEMORY = 4
};                                   /* runs of all programs between two of a step, at most; in the mean of so many */
enum { ROUNDS = 4, RUNS_MOST = 30 }; /* of algorithms that are settled before the first run */
static const int64_t NS_MOST = 1000000000, SETTLE_NS_MOST = 1000000000, ROUND_NS = 300000, WARM_NS = 30000000;
static const int64_t HEAVY_NS = 1000000, HEAVY_ROUND_NS = 16000000; /* a device may lower its clocks for longer loads,
                                                                     * because of their power */
static const int64_t PAUSE_NS = 20000000;  /* between two trials of a step: other load on the cores lasts for a while */
static const double SLOW = 1.25;           /* times the best: no longer timed */
static const double BETTER = 0.95;         /* of the step's own time: worth a change */
static const double BETTER_SETTLED = 0.98; /* the same, for algorithms timed in turn before the first run */

typedef struct candidate {
  hr_algorithm algorithm;
  hr_ready ready; /* of candidates other than the step's own, while they are tried */
  bool is_out;
  int sample_count;
  int64_t ns; /* the best */
} candidate;

struct hr_tuning {
  hr_device *device;
  const hr_provider *const *providers;
  const hr_program *program; /* NULL: it is .. */
  const hr_node *node;
  const hr_packed_program *packed; /* .. packed, and the node is that of this number */
  int number, input_count;         /* the latter: the node's */
  hr_tuning_entry *tuning_entry;
  int run_count, candidate_count; /* the first is the step's own */
  int64_t next_ns;                /* no try before */
  int awaited;                    /* samples of the step's own algorithm before the next try */
  int64_t last_run, between;      /* number of the program's last run; MEMORY times the mean runs between two of them */
  bool has_claim, is_over;
  hr_algorithm own;      /* the step's */
  candidate *candidates; /* NULL until they are listed, and afterwards */
  hr_ready settled;      /* runs instead of the step's own */
};

/* ---- budget ---- */

/* A context's. */
typedef struct budget {
  atomic_int_least64_t allowed_ns, spent_ns, run_count;
  hr_mutex settle_mutex; /* guards the fields below; one thread measures at a time */
  int64_t settle_ns;
  bool is_warm; /* an idle device runs slowly at first */
} budget;

static void init_budget(void *part) {
  hr_mutex_init(&((budget *)part)->settle_mutex);
}

static void fini_budget(void *part) {
  hr_mutex_fini(&((budget *)part)->settle_mutex);
}

static budget *budget_of(hr_context *context) {
  static const hr_context_part kind = {.bytes = sizeof(budget), .init = init_budget, .fini = fini_budget};
  return hr__context_part(context, HR_CONTEXT_TUNING_TIME, &kind);
}

void hr__tuning_allow(int64_t ns) {
  budget *time = budget_of(hr__context());
  atomic_fetch_add(&time->allowed_ns, ns / SHARE);
  atomic_fetch_add_explicit(&time->run_count, 1, memory_order_relaxed);
}

static bool may_spend(const hr_device *device) {
  budget *time = budget_of(device->context);
  int64_t spent = atomic_load(&time->spent_ns);
  return spent < NS_MOST && spent < atomic_load(&time->allowed_ns);
}

/* ---- life ---- */

/* True if the step may run twice: it does not read its outputs. */
static bool can_repeat(const hr_node *node) {
  for (int i = 0; i < node->input_count; ++i) {
    for (int k = 0; k < node->output_count; ++k) {
      if (node->inputs[i].kind == HR_OPERAND_VALUE && node->outputs[k].kind == HR_OPERAND_VALUE &&
          node->inputs[i].index == node->outputs[k].index) {
        return false;
      }
    }
  }
  return true;
}

static bool is_settled(const hr_ready *own) {
  const hr_provider *provider = own->algorithm.provider;
  return provider->is_settled != NULL && own->prepared != NULL && provider->is_settled(own->prepared);
}

hr_tuning *hr__tuning_create(hr_device *device, const hr_provider *const *providers, const hr_program *program,
                             const hr_node *node, const hr_ready *own, hr_tuning_entry *tuning_entry) {
  bool is_worth = hr__tuning_entry_is_open(tuning_entry) && can_repeat(node) && !is_settled(own);
  hr_tuning *tuning = is_worth ? hr_calloc(1, sizeof *tuning) : NULL;
  if (tuning != NULL) {
    *tuning = (hr_tuning){.device = device,
                          .providers = providers,
                          .program = program,
                          .node = node,
                          .input_count = node->input_count,
                          .tuning_entry = tuning_entry,
                          .awaited = SAMPLES,
                          .own = own->algorithm};
  }
  return tuning;
}

void hr__tuning_settle(hr_tuning *tuning, const hr_packed_program *packed, int number) {
  if (tuning != NULL) {
    tuning->packed = packed;
    tuning->number = number;
    tuning->program = NULL, tuning->node = NULL;
  }
}

/* The tuning's node and its program: *own, which the caller frees, if they are packed. */
typedef struct opened {
  hr_program own;
  const hr_program *program;
  const hr_node *node;
} opened;

static hr_status open_node(const hr_tuning *tuning, opened *out_opened) {
  *out_opened = (opened){.program = tuning->program, .node = tuning->node};
  if (tuning->packed != NULL) {
    HR_RETURN_IF_ERROR(hr_program_unpack(tuning->packed, &out_opened->own));
    out_opened->program = &out_opened->own;
    out_opened->node = &out_opened->own.nodes[tuning->number];
  }
  return HR_OK;
}

/* Lists the candidates when they are first needed: listing takes time, and many programs never repeat. False: there is
 * nothing to try. */
static bool list_candidates(hr_tuning *tuning) {
  hr_algorithm algorithms[HR_ALGORITHMS_MAX];
  const hr_algorithm *own = &tuning->own;
  opened node;
  hr_status status = open_node(tuning, &node);
  if (status != HR_OK) {
    hr_status_ignore(status);
    return false;
  }
  int count = hr__algorithms_list(tuning->device, tuning->providers, node.program, node.node, algorithms);
  hr_program_fini(&node.own);
  tuning->candidates = hr_calloc((size_t)count + 1, sizeof *tuning->candidates);
  if (tuning->candidates == NULL) {
    return false;
  }
  tuning->candidates[0].algorithm = *own;
  tuning->candidate_count = 1;
  for (int i = 0; i < count; ++i) {
    if (algorithms[i].provider != own->provider || algorithms[i].number != own->number) {
      tuning->candidates[tuning->candidate_count++].algorithm = algorithms[i];
    }
  }
  return tuning->candidate_count > 1;
}

static void free_candidates(hr_tuning *tuning) {
  hr_free(tuning->candidates);
  tuning->candidates = NULL;
  tuning->candidate_count = 0;
}

static bool claim(hr_tuning *tuning) {
  tuning->has_claim = list_candidates(tuning) && hr__tuning_entry_claim(tuning->tuning_entry);
  if (!tuning->has_claim) {
    free_candidates(tuning);
  }
  return tuning->has_claim;
}

/* Drops the weights that a losing candidate has cached; the step's own algorithm makes its own again. */
static void drop(hr_tuning *tuning, candidate *c, const uint64_t *stamps) {
  c->is_out = true;
  if (c->ready.prepared == NULL) {
    return;
  }
  int kept =
      c->algorithm.provider->keeps != NULL && stamps != NULL ? c->algorithm.provider->keeps(c->ready.prepared) : -1;
  if (kept >= 0 && kept < tuning->input_count && stamps[kept] != 0) {
    hr__cached_weights_forget(tuning->device->context, stamps[kept]);
  }
  hr__ready_fini(&c->ready);
}

void hr__tuning_release(hr_tuning *tuning) {
  for (int i = 1; tuning != NULL && i < tuning->candidate_count; ++i) {
    drop(tuning, &tuning->candidates[i], NULL);
  }
  if (tuning != NULL && tuning->has_claim && !tuning->is_over) {
    hr__tuning_entry_unclaim(tuning->tuning_entry);
  }
  if (tuning != NULL) {
    hr__ready_fini(&tuning->settled);
    free_candidates(tuning);
  }
  hr_free(tuning);
}

size_t hr__tuning_footprint(const hr_tuning *tuning) {
  return tuning != NULL ? sizeof *tuning : 0;
}

/* ---- the end ---- */

static void write_note(const hr_tuning *tuning, hr_text *out_note) {
  for (int i = 0; i < tuning->candidate_count; ++i) {
    const candidate *c = &tuning->candidates[i];
    if (c->sample_count > 0) {
      hr__algorithm_name(&c->algorithm, out_note);
      hr_text_printf(out_note, " %.1f us%s\n", (double)c->ns * 1e-3, i == 0 ? " as it was" : "");
    }
  }
}

typedef void (*close_fn)(hr_tuning_entry *tuning_entry, const char *algorithm, const char *note);

/* The fastest algorithm with at least this many samples; the step's own if no other takes less than this share of its
 * time. */
static candidate *best_of(hr_tuning *tuning, int samples, double better) {
  candidate *own = &tuning->candidates[0], *best = own;
  for (int i = 1; i < tuning->candidate_count; ++i) {
    candidate *c = &tuning->candidates[i];
    best = c->sample_count >= samples && c->ns < best->ns ? c : best;
  }
  return (double)best->ns < better * (double)own->ns ? best : own;
}

static void close_tuning_entry(hr_tuning *tuning, const candidate *best, close_fn close) {
  hr_text name = {0}, note = {0};
  hr__algorithm_name(&best->algorithm, &name);
  write_note(tuning, &note);
  hr_log(HR_LOG_DEVICE, "choice: %s of %s%s", hr_text_chars(&name), hr__tuning_entry_key(tuning->tuning_entry),
         hr_text_chars(&note));
  close(tuning->tuning_entry, hr_text_chars(&name), hr_text_chars(&note));
  hr_text_fini(&name);
  hr_text_fini(&note);
}

static void finish(hr_tuning *tuning, const uint64_t *stamps) {
  int tried = 0;
  for (int i = 1; i < tuning->candidate_count; ++i) {
    tried += tuning->candidates[i].sample_count > 0;
  }
  if (tried > 0) {
    close_tuning_entry(tuning, best_of(tuning, SAMPLES, BETTER), hr__tuning_entry_close);
  }
  for (int i = 1; i < tuning->candidate_count; ++i) {
    drop(tuning, &tuning->candidates[i], stamps);
  }
  free_candidates(tuning);
  tuning->is_over = true;
}

/* ---- runs ---- */

/* The other algorithm with the fewest samples; NULL when all have enough. */
static candidate *next_candidate(hr_tuning *tuning) {
  candidate *next = NULL;
  for (int i = 1; i < tuning->candidate_count; ++i) {
    candidate *c = &tuning->candidates[i];
    if (!c->is_out && c->sample_count < SAMPLES && (next == NULL || c->sample_count < next->sample_count)) {
      next = c;
    }
  }
  return next;
}

static void take(hr_tuning *tuning, candidate *c, int64_t ns, const uint64_t *stamps) {
  c->ns = c->sample_count++ == 0 || ns < c->ns ? ns : c->ns;
  int64_t best = INT64_MAX;
  for (int i = 0; i < tuning->candidate_count; ++i) {
    const candidate *other = &tuning->candidates[i];
    best = !other->is_out && other->sample_count > 0 && other->ns < best ? other->ns : best;
  }
  for (int i = 1; i < tuning->candidate_count; ++i) {
    candidate *other = &tuning->candidates[i];
    if (!other->is_out && other->sample_count >= SAMPLES_TO_DROP && (double)other->ns > SLOW * (double)best) {
      drop(tuning, other, stamps);
    }
  }
}

static hr_status flush(const hr_tuning *tuning, const hr_tuning_call *call) {
  const hr_driver *driver = tuning->device->driver;
  return driver->flush != NULL ? driver->flush(call->impl) : HR_OK;
}

static int64_t now_ns(const hr_tuning *tuning, const hr_tuning_call *call) {
  const hr_driver *driver = tuning->device->driver;
  return driver->timestamp != NULL ? driver->timestamp(call->impl) : hr_clock_ns();
}

/* Also makes what belongs to no run's time. */
static hr_status prepare_algorithm(const hr_tuning *tuning, candidate *c) {
  if (c->ready.prepared != NULL) {
    return HR_OK;
  }
  opened node;
  HR_RETURN_IF_ERROR(open_node(tuning, &node));
  hr_status status = hr__algorithm_prepare(tuning->device, node.program, node.node, &c->algorithm, &c->ready);
  hr_program_fini(&node.own);
  HR_RETURN_IF_ERROR(status);
  if (c->algorithm.provider->make != NULL) {
    c->algorithm.provider->make(c->ready.prepared);
  }
  return HR_OK;
}

/* Runs it this often, and returns the time of one run. */
static hr_status time_runs(const hr_tuning *tuning, const hr_ready *ready, const hr_tuning_call *call, void *workspace,
                           int runs, int64_t *out_ns) {
  hr_status status = flush(tuning, call);
  int64_t begin = now_ns(tuning, call);
  for (int i = 0; i < runs && status == HR_OK; ++i) {
    status = hr__ready_run(tuning->device->driver, call->impl, ready, call->args, call->stamps, workspace, call->queue);
  }
  if (status == HR_OK) {
    status = flush(tuning, call);
  }
  *out_ns = (now_ns(tuning, call) - begin) / runs;
  return status;
}

/* Runs it, and returns the time. */
static hr_status time_algorithm(hr_tuning *tuning, candidate *c, const hr_tuning_call *call, int64_t *out_ns) {
  hr_device *device = tuning->device;
  hr_block *block = NULL;
  HR_RETURN_IF_ERROR(prepare_algorithm(tuning, c));
  void *workspace = call->workspace; /* used if it is large enough: it is in the caches, as for the step itself */
  if (c->ready.workspace_bytes > call->workspace_bytes) {
    HR_RETURN_IF_ERROR(hr_caching_allocator_alloc(&device->allocator, c->ready.workspace_bytes, &block));
    workspace = block->address;
  }
  hr_status status = time_runs(tuning, &c->ready, call, workspace, 1, out_ns);
  hr_caching_allocator_free(&device->allocator, block);
  return status;
}

/* False: the algorithm can't run. */
static bool try_algorithm(hr_tuning *tuning, candidate *c, const hr_tuning_call *call) {
  int64_t begin = now_ns(tuning, call), ns = 0;
  hr_status status = time_algorithm(tuning, c, call, &ns);
  bool is_algorithm = status == HR_OK;
  if (is_algorithm) {
    take(tuning, c, ns, call->stamps);
  } else {
    drop(tuning, c, call->stamps);
  }
  hr_status_ignore(status);
  atomic_fetch_add(&budget_of(tuning->device->context)->spent_ns, now_ns(tuning, call) - begin);
  return is_algorithm;
}

/* Notes a run. False while many other programs run in between: programs of many sizes in turn would keep candidates of
 * all their steps. */
static bool note_run(hr_tuning *tuning) {
  int64_t run = atomic_load_explicit(&budget_of(tuning->device->context)->run_count, memory_order_relaxed);
  int64_t since = run - tuning->last_run;
  tuning->last_run = run;
  tuning->between = ++tuning->run_count <= 2 ? MEMORY * since : tuning->between + since - tuning->between / MEMORY;
  return tuning->between <= MEMORY * RUNS_BETWEEN;
}

/* Runs a candidate if one is due. True if the step's own run is to be timed: always, except right after a candidate. */
static bool prepare_run(hr_tuning *tuning, const hr_tuning_call *call) {
  if (tuning->is_over || !note_run(tuning) || tuning->run_count <= RUNS_BEFORE) {
    return false;
  }
  if (!tuning->has_claim && !claim(tuning)) {
    tuning->is_over = true;
    return false;
  }
  if (tuning->candidates[0].sample_count < tuning->awaited || now_ns(tuning, call) < tuning->next_ns ||
      !may_spend(tuning->device)) {
    return true;
  }
  candidate *next = next_candidate(tuning);
  while (next != NULL && !try_algorithm(tuning, next, call)) {
    next = next_candidate(tuning);
  }
  if (next == NULL) {
    finish(tuning, call->stamps);
    return false;
  }
  tuning->next_ns = now_ns(tuning, call) + PAUSE_NS;
  tuning->awaited = tuning->candidates[0].sample_count + 1;
  return false;
}

/* ---- before the first run ---- */

static const hr_ready *ready_of(const hr_tuning *tuning, const candidate *c, const hr_ready *own) {
  return c == &tuning->candidates[0] ? own : &c->ready;
}

/* Runs the step's own algorithm until the device's clocks are up: an idle device runs slowly at first. */
static hr_status warm_up(const hr_tuning *tuning, const hr_ready *own, const hr_tuning_call *call) {
  budget *time = budget_of(tuning->device->context);
  hr_status status = HR_OK;
  int64_t ns = 0;
  for (int64_t begin = now_ns(tuning, call);
       !time->is_warm && status == HR_OK && now_ns(tuning, call) < begin + WARM_NS;) {
    status = time_runs(tuning, own, call, call->workspace, 1, &ns);
  }
  time->is_warm = true;
  return status;
}

/* True if the algorithm is prepared, fits into the workspace and runs; this run also makes all that a first run
 * makes. */
static bool is_ready(const hr_tuning *tuning, candidate *c, const hr_ready *own, const hr_tuning_call *call) {
  int64_t ns = 0;
  hr_status status = c == &tuning->candidates[0] ? HR_OK : prepare_algorithm(tuning, c);
  if (status == HR_OK && ready_of(tuning, c, own)->workspace_bytes > call->workspace_bytes) {
    return false;
  }
  if (status == HR_OK) {
    status = time_runs(tuning, ready_of(tuning, c, own), call, call->workspace, 1, &ns);
  }
  bool is_algorithm = status == HR_OK;
  hr_status_ignore(status);
  return is_algorithm;
}

/* Runs all remaining algorithms in turn, each often enough for the clock. */
static void run_round(hr_tuning *tuning, const hr_ready *own, const hr_tuning_call *call) {
  for (int i = 0; i < tuning->candidate_count; ++i) {
    candidate *c = &tuning->candidates[i];
    const hr_ready *ready = ready_of(tuning, c, own);
    int64_t ns = 0;
    hr_status status = c->is_out ? HR_OK : time_runs(tuning, ready, call, call->workspace, 1, &ns);
    int64_t round_ns = ns > HEAVY_NS ? HEAVY_ROUND_NS : ROUND_NS;
    int runs = ns > round_ns ? 1 : ns < round_ns / RUNS_MOST ? RUNS_MOST : (int)(round_ns / ns);
    if (!c->is_out && status == HR_OK) {
      status = time_runs(tuning, ready, call, call->workspace, runs, &ns);
    }
    if (status != HR_OK) {
      drop(tuning, c, NULL);
    } else if (!c->is_out) {
      take(tuning, c, ns, NULL);
    }
    hr_status_ignore(status);
  }
}

static void settle_algorithms(hr_tuning *tuning, const hr_ready *own, const hr_tuning_call *call) {
  int64_t begin = now_ns(tuning, call);
  hr_status status = warm_up(tuning, own, call);
  for (int i = 0; i < tuning->candidate_count && status == HR_OK; ++i) {
    if (!is_ready(tuning, &tuning->candidates[i], own, call)) {
      drop(tuning, &tuning->candidates[i], NULL);
    }
  }
  for (int i = 0; i < ROUNDS && status == HR_OK; ++i) {
    run_round(tuning, own, call);
  }
  hr_status_ignore(status);
  if (tuning->candidates[0].sample_count == ROUNDS) {
    candidate *best = best_of(tuning, ROUNDS, BETTER_SETTLED);
    close_tuning_entry(tuning, best, hr__tuning_entry_settle);
    tuning->settled = best->ready; /* empty for the step's own */
    best->ready = (hr_ready){.algorithm = best->algorithm};
  }
  for (int i = 1; i < tuning->candidate_count; ++i) {
    drop(tuning, &tuning->candidates[i], NULL);
  }
  budget_of(tuning->device->context)->settle_ns += now_ns(tuning, call) - begin;
}

/* Prepares the algorithm that another step or process found; false: it can't run. */
static bool prepare_called(hr_tuning *tuning, const char *name) {
  opened node;
  hr_status status = open_node(tuning, &node);
  bool is_prepared = status == HR_OK && hr__algorithms_prepare_called(tuning->device, tuning->providers, node.program,
                                                                      node.node, name, &tuning->settled);
  hr_program_fini(&node.own);
  hr_status_ignore(status);
  return is_prepared;
}

/* Finds the algorithm, and prepares it if another step or process found it; after any failure the step keeps its
 * own. */
static void settle(hr_tuning *tuning, const hr_ready *own, const hr_tuning_call *call) {
  budget *time = budget_of(tuning->device->context);
  hr_mutex_lock(&time->settle_mutex);
  if (hr__tuning_entry_is_open(tuning->tuning_entry)) {
    if (time->settle_ns < SETTLE_NS_MOST && list_candidates(tuning)) {
      settle_algorithms(tuning, own, call);
    }
    hr__tuning_entry_leave(tuning->tuning_entry);
  }
  hr_mutex_unlock(&time->settle_mutex);
  const char *name = hr__tuning_entry_algorithm(tuning->tuning_entry);
  if (tuning->settled.prepared == NULL && name[0] != 0 && !hr__algorithm_is_called(&own->algorithm, name) &&
      prepare_called(tuning, name) && tuning->settled.workspace_bytes > call->workspace_bytes) {
    hr__ready_fini(&tuning->settled);
  }
  free_candidates(tuning);
  tuning->is_over = true;
}

hr_status hr__tuning_run_settled(hr_tuning *tuning, const hr_ready *own, const hr_tuning_call *call) {
  if (!tuning->is_over) {
    settle(tuning, own, call);
  }
  const hr_ready *ready = tuning->settled.prepared != NULL ? &tuning->settled : own;
  return hr__ready_run(tuning->device->driver, call->impl, ready, call->args, call->stamps, call->workspace,
                       call->queue);
}

/* ---- while it repeats ---- */

bool hr__tuning_is_over(const hr_tuning *tuning) {
  return tuning->is_over;
}

hr_status hr__tuning_run(hr_tuning *tuning, const hr_ready *own, const hr_tuning_call *call) {
  bool is_timed = prepare_run(tuning, call);
  if (is_timed) {
    HR_RETURN_IF_ERROR(flush(tuning, call));
  }
  int64_t begin = is_timed ? now_ns(tuning, call) : 0;
  HR_RETURN_IF_ERROR(
      hr__ready_run(tuning->device->driver, call->impl, own, call->args, call->stamps, call->workspace, call->queue));
  if (is_timed) {
    HR_RETURN_IF_ERROR(flush(tuning, call));
    take(tuning, &tuning->candidates[0], now_ns(tuning, call) - begin, call->stamps);
  }
  return HR_OK;
}
