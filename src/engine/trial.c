#include "engine/trial.h"

#include <stdatomic.h>

#include "base/allocator.h"
#include "base/log.h"
#include "base/thread.h"
#include "runtime/derived.h"

enum { RUNS_BEFORE = 2, SAMPLES = 5, SAMPLES_TO_DROP = 2, SHARE = 20, ARGS_MAX = 8 };
enum { ROUNDS = 4, RUNS_MOST = 30 }; /* of ways that are settled before the first run */
static const int64_t NS_MOST = 1000000000, SETTLE_NS_MOST = 1000000000, ROUND_NS = 300000, WARM_NS = 30000000;
static const int64_t HEAVY_NS = 1000000,
                     HEAVY_ROUND_NS = 16000000; /* what a device's clocks may slow down for, by its power */
static const int64_t PAUSE_NS =
    20000000;                      /* between two tries of a step: when others want the cores, they do for a while */
static const double SLOW = 1.25;   /* times the best: not timed any more */
static const double BETTER = 0.95; /* of the own time: worth a change */
static const double BETTER_SETTLED = 0.98; /* the same, of ways that are timed in turn before the first run */

typedef struct candidate {
  hr_way way;
  hr_ready ready; /* of the others than the step's own, while they are tried */
  bool is_out;
  int sample_count;
  int64_t ns; /* the best */
} candidate;

struct hr_trial {
  hr_device *device;
  const hr_provider *const *providers;
  const hr_program *program;
  const hr_node *node;
  hr_choice *choice;
  int run_count, candidate_count; /* the first is the step's own */
  int64_t next_ns;                /* no try before */
  bool has_claim, is_over;
  candidate candidates[HR_WAYS_MAX];
  hr_ready settled; /* taken instead of the step's own */
};

/* ---- what it may cost ---- */

static atomic_int_least64_t allowed_ns, spent_ns;

void hr__trials_allow(int64_t ns) {
  atomic_fetch_add(&allowed_ns, ns / SHARE);
}

static bool may_spend(void) {
  int64_t spent = atomic_load(&spent_ns);
  return spent < NS_MOST && spent < atomic_load(&allowed_ns);
}

/* ---- life ---- */

/* A way that runs twice must not read what it wrote. */
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

hr_trial *hr__trial_create(hr_device *device, const hr_provider *const *providers, const hr_program *program,
                           const hr_node *node, const hr_way *own, hr_choice *choice) {
  hr_trial *trial = hr__choice_is_open(choice) && can_repeat(node) ? hr_calloc(1, sizeof *trial) : NULL;
  if (trial != NULL) {
    *trial = (hr_trial){device, providers, program, node, choice, .candidate_count = 1};
    trial->candidates[0].way = *own;
  }
  return trial;
}

/* Not before they are needed: asking takes time, and many a program never repeats. False: there is nothing to try. */
static bool list_candidates(hr_trial *trial) {
  hr_way ways[HR_WAYS_MAX];
  const hr_way *own = &trial->candidates[0].way;
  int count = hr__ways_list(trial->providers, trial->program, trial->node, ways);
  for (int i = 0; i < count && trial->candidate_count < HR_WAYS_MAX; ++i) {
    if (ways[i].provider != own->provider || ways[i].number != own->number) {
      trial->candidates[trial->candidate_count++].way = ways[i];
    }
  }
  return trial->candidate_count > 1;
}

static bool claim(hr_trial *trial) {
  trial->has_claim = list_candidates(trial) && hr__choice_claim(trial->choice);
  return trial->has_claim;
}

/* What losers kept of weights is of no more use; the step's own way makes its again. */
static void drop(hr_trial *trial, candidate *c, const uint64_t *stamps) {
  c->is_out = true;
  if (c->ready.prepared == NULL) {
    return;
  }
  int kept = c->way.provider->keeps != NULL && stamps != NULL ? c->way.provider->keeps(c->ready.prepared) : -1;
  if (kept >= 0 && kept < trial->node->input_count && stamps[kept] != 0) {
    hr__derived_forget(hr__context(), stamps[kept]);
  }
  hr__ready_fini(&c->ready);
}

void hr__trial_release(hr_trial *trial) {
  for (int i = 1; trial != NULL && i < trial->candidate_count; ++i) {
    drop(trial, &trial->candidates[i], NULL);
  }
  if (trial != NULL && trial->has_claim && !trial->is_over) {
    hr__choice_unclaim(trial->choice);
  }
  if (trial != NULL) {
    hr__ready_fini(&trial->settled);
  }
  hr_free(trial);
}

/* ---- the end ---- */

static void write_note(const hr_trial *trial, hr_text *out_note) {
  for (int i = 0; i < trial->candidate_count; ++i) {
    const candidate *c = &trial->candidates[i];
    if (c->sample_count > 0) {
      hr__way_name(&c->way, out_note);
      hr_text_printf(out_note, " %.1f us%s\n", (double)c->ns * 1e-3, i == 0 ? " as it was" : "");
    }
  }
}

typedef void (*close_fn)(hr_choice *choice, const char *way, const char *note);

/* The fastest way that was timed so often; the step's own where no other takes less than this share of its time. */
static candidate *best_of(hr_trial *trial, int samples, double better) {
  candidate *own = &trial->candidates[0], *best = own;
  for (int i = 1; i < trial->candidate_count; ++i) {
    candidate *c = &trial->candidates[i];
    best = c->sample_count >= samples && c->ns < best->ns ? c : best;
  }
  return (double)best->ns < better * (double)own->ns ? best : own;
}

static void close_choice(hr_trial *trial, const candidate *best, close_fn close) {
  hr_text name = {0}, note = {0};
  hr__way_name(&best->way, &name);
  write_note(trial, &note);
  hr_log(HR_LOG_DEVICE, "choice: %s of %s%s", hr_text_chars(&name), hr__choice_key(trial->choice),
         hr_text_chars(&note));
  close(trial->choice, hr_text_chars(&name), hr_text_chars(&note));
  hr_text_fini(&name);
  hr_text_fini(&note);
}

static void finish(hr_trial *trial, const uint64_t *stamps) {
  int tried = 0;
  for (int i = 1; i < trial->candidate_count; ++i) {
    tried += trial->candidates[i].sample_count > 0;
  }
  if (tried > 0) {
    close_choice(trial, best_of(trial, SAMPLES, BETTER), hr__choice_close);
  }
  for (int i = 1; i < trial->candidate_count; ++i) {
    drop(trial, &trial->candidates[i], stamps);
  }
  trial->is_over = true;
}

/* ---- runs ---- */

/* The other way with the fewest samples; NULL when all have enough. */
static candidate *next_candidate(hr_trial *trial) {
  candidate *next = NULL;
  for (int i = 1; i < trial->candidate_count; ++i) {
    candidate *c = &trial->candidates[i];
    if (!c->is_out && c->sample_count < SAMPLES && (next == NULL || c->sample_count < next->sample_count)) {
      next = c;
    }
  }
  return next;
}

static void take(hr_trial *trial, candidate *c, int64_t ns, const uint64_t *stamps) {
  c->ns = c->sample_count++ == 0 || ns < c->ns ? ns : c->ns;
  int64_t best = INT64_MAX;
  for (int i = 0; i < trial->candidate_count; ++i) {
    const candidate *other = &trial->candidates[i];
    best = !other->is_out && other->sample_count > 0 && other->ns < best ? other->ns : best;
  }
  for (int i = 1; i < trial->candidate_count; ++i) {
    candidate *other = &trial->candidates[i];
    if (!other->is_out && other->sample_count >= SAMPLES_TO_DROP && (double)other->ns > SLOW * (double)best) {
      drop(trial, other, stamps);
    }
  }
}

static hr_status flush(hr_device *device) {
  return device->driver->flush != NULL ? device->driver->flush(device->impl) : HR_OK;
}

static hr_status prepare_way(const hr_trial *trial, candidate *c) {
  return c->ready.prepared != NULL ? HR_OK
                                   : hr__way_prepare(trial->device, trial->program, trial->node, &c->way, &c->ready);
}

/* Runs it so often, and gives the time of one run. */
static hr_status time_runs(const hr_trial *trial, const hr_ready *ready, const hr_trial_call *call, void *workspace,
                           int runs, int64_t *out_ns) {
  hr_status status = flush(trial->device);
  int64_t begin = hr_clock_ns();
  for (int i = 0; i < runs && status == NULL; ++i) {
    status = hr__ready_run(trial->device, ready, call->args, call->stamps, workspace, call->queue);
  }
  if (status == NULL) {
    status = flush(trial->device);
  }
  *out_ns = (hr_clock_ns() - begin) / runs;
  return status;
}

/* Runs it, and gives the time. */
static hr_status time_way(hr_trial *trial, candidate *c, const hr_trial_call *call, int64_t *out_ns) {
  hr_device *device = trial->device;
  hr_block *block = NULL;
  HR_RETURN_IF_ERROR(prepare_way(trial, c));
  void *workspace = call->workspace; /* where it is large enough: it lies in the caches, as for the step itself */
  if (c->ready.workspace_bytes > call->workspace_bytes) {
    HR_RETURN_IF_ERROR(hr_caching_allocator_alloc(&device->allocator, c->ready.workspace_bytes, &block));
    workspace = block->address;
  }
  hr_status status = time_runs(trial, &c->ready, call, workspace, 1, out_ns);
  hr_caching_allocator_free(&device->allocator, block);
  return status;
}

/* False: it is no way. */
static bool try_way(hr_trial *trial, candidate *c, const hr_trial_call *call) {
  int64_t begin = hr_clock_ns(), ns = 0;
  hr_status status = time_way(trial, c, call, &ns);
  bool is_way = status == NULL;
  if (is_way) {
    take(trial, c, ns, call->stamps);
  } else {
    drop(trial, c, call->stamps);
  }
  hr_status_ignore(status);
  atomic_fetch_add(&spent_ns, hr_clock_ns() - begin);
  return is_way;
}

/* Runs another way, where it is time for one. Whether the step's own run is to be timed: always, but behind another way. */
static bool prepare_run(hr_trial *trial, const hr_trial_call *call) {
  if (trial->is_over || ++trial->run_count <= RUNS_BEFORE) {
    return false;
  }
  if (!trial->has_claim && !claim(trial)) {
    trial->is_over = true;
    return false;
  }
  if (trial->candidates[0].sample_count < SAMPLES || hr_clock_ns() < trial->next_ns || !may_spend()) {
    return true;
  }
  candidate *next = next_candidate(trial);
  while (next != NULL && !try_way(trial, next, call)) {
    next = next_candidate(trial);
  }
  if (next == NULL) {
    finish(trial, call->stamps);
  }
  trial->next_ns = hr_clock_ns() + PAUSE_NS;
  return false;
}

/* ---- before the first run ---- */

static hr_mutex settle_mutex = HR_MUTEX_INITIALIZER; /* of what follows, and one at a time measures */
static int64_t settle_ns;

static const hr_ready *ready_of(const hr_trial *trial, const candidate *c, const hr_ready *own) {
  return c == &trial->candidates[0] ? own : &c->ready;
}

/* A device that did nothing runs slowly at first: the step's own way until its clocks are up. */
static hr_status warm_up(const hr_trial *trial, const hr_ready *own, const hr_trial_call *call) {
  static bool is_warm;
  hr_status status = HR_OK;
  int64_t ns = 0;
  for (int64_t begin = hr_clock_ns(); !is_warm && status == NULL && hr_clock_ns() < begin + WARM_NS;) {
    status = time_runs(trial, own, call, call->workspace, 1, &ns);
  }
  is_warm = true;
  return status;
}

/* Whether the way is prepared, fits into the workspace and runs: whatever is made at the first run is made. */
static bool is_ready(const hr_trial *trial, candidate *c, const hr_ready *own, const hr_trial_call *call) {
  int64_t ns = 0;
  hr_status status = c == &trial->candidates[0] ? HR_OK : prepare_way(trial, c);
  if (status == NULL && ready_of(trial, c, own)->workspace_bytes > call->workspace_bytes) {
    return false;
  }
  if (status == NULL) {
    status = time_runs(trial, ready_of(trial, c, own), call, call->workspace, 1, &ns);
  }
  bool is_way = status == NULL;
  hr_status_ignore(status);
  return is_way;
}

/* Runs all ways that are left in turn, each often enough for the clock. */
static void run_round(hr_trial *trial, const hr_ready *own, const hr_trial_call *call) {
  for (int i = 0; i < trial->candidate_count; ++i) {
    candidate *c = &trial->candidates[i];
    const hr_ready *ready = ready_of(trial, c, own);
    int64_t ns = 0;
    hr_status status = c->is_out ? HR_OK : time_runs(trial, ready, call, call->workspace, 1, &ns);
    int64_t round_ns = ns > HEAVY_NS ? HEAVY_ROUND_NS : ROUND_NS;
    int runs = ns > round_ns ? 1 : ns < round_ns / RUNS_MOST ? RUNS_MOST : (int)(round_ns / ns);
    if (!c->is_out && status == NULL) {
      status = time_runs(trial, ready, call, call->workspace, runs, &ns);
    }
    if (status != NULL) {
      drop(trial, c, NULL);
    } else if (!c->is_out) {
      take(trial, c, ns, NULL);
    }
    hr_status_ignore(status);
  }
}

static void settle_ways(hr_trial *trial, const hr_ready *own, const hr_trial_call *call) {
  int64_t begin = hr_clock_ns();
  hr_status status = warm_up(trial, own, call);
  for (int i = 0; i < trial->candidate_count && status == NULL; ++i) {
    if (!is_ready(trial, &trial->candidates[i], own, call)) {
      drop(trial, &trial->candidates[i], NULL);
    }
  }
  for (int i = 0; i < ROUNDS && status == NULL; ++i) {
    run_round(trial, own, call);
  }
  hr_status_ignore(status);
  if (trial->candidates[0].sample_count == ROUNDS) {
    candidate *best = best_of(trial, ROUNDS, BETTER_SETTLED);
    close_choice(trial, best, hr__choice_settle);
    trial->settled = best->ready; /* nothing, of the step's own */
    best->ready = (hr_ready){.way = best->way};
  }
  for (int i = 1; i < trial->candidate_count; ++i) {
    drop(trial, &trial->candidates[i], NULL);
  }
  settle_ns += hr_clock_ns() - begin;
}

/* Finds the way, and prepares it where it was found by another step or process; whatever fails leaves the step its own. */
static void settle(hr_trial *trial, const hr_ready *own, const hr_trial_call *call) {
  hr_mutex_lock(&settle_mutex);
  if (hr__choice_is_open(trial->choice)) {
    if (settle_ns < SETTLE_NS_MOST && list_candidates(trial)) {
      settle_ways(trial, own, call);
    }
    hr__choice_leave(trial->choice);
  }
  hr_mutex_unlock(&settle_mutex);
  const char *name = hr__choice_way(trial->choice);
  if (trial->settled.prepared == NULL && name[0] != 0 && !hr__way_is_called(&own->way, name) &&
      hr__ways_prepare_called(trial->device, trial->providers, trial->program, trial->node, name, &trial->settled) &&
      trial->settled.workspace_bytes > call->workspace_bytes) {
    hr__ready_fini(&trial->settled);
  }
  trial->is_over = true;
}

hr_status hr__trial_run_settled(hr_trial *trial, const hr_ready *own, const hr_trial_call *call) {
  if (!trial->is_over) {
    settle(trial, own, call);
  }
  const hr_ready *ready = trial->settled.prepared != NULL ? &trial->settled : own;
  return hr__ready_run(trial->device, ready, call->args, call->stamps, call->workspace, call->queue);
}

/* ---- while it repeats ---- */

bool hr__trial_is_over(const hr_trial *trial) {
  return trial->is_over;
}

hr_status hr__trial_run(hr_trial *trial, const hr_ready *own, const hr_trial_call *call) {
  bool is_timed = prepare_run(trial, call);
  if (is_timed) {
    HR_RETURN_IF_ERROR(flush(trial->device));
  }
  int64_t begin = is_timed ? hr_clock_ns() : 0;
  HR_RETURN_IF_ERROR(hr__ready_run(trial->device, own, call->args, call->stamps, call->workspace, call->queue));
  if (is_timed) {
    HR_RETURN_IF_ERROR(flush(trial->device));
    take(trial, &trial->candidates[0], hr_clock_ns() - begin, call->stamps);
  }
  return HR_OK;
}
