/* executable.h: a compiled trace: its key, its steps, and what has to be bound before they run.
 *
 * An executable never changes after it was made (but for its replay, its time and what its weights were, which belong
 * to whoever runs the device's jobs), so any number of runs may be queued. What a run needs (addresses, scalars) is in
 * its hr_run, bound when it is handed over. References: the cache holds one, each queued run another.
 */
#ifndef HEADRACE_ENGINE_EXECUTABLE_H_
#define HEADRACE_ENGINE_EXECUTABLE_H_

#include "base/host_kernel.h"
#include "base/refcount.h"
#include "compiler/describe.h"
#include "engine/autotune.h"
#include "engine/index_source.h"
#include "engine/kernel_cache.h"
#include "engine/trace.h"
#include "runtime/cached_weights.h"

typedef struct hr_exec_step {
  hr_step_kind kind;
  const hr_step *source;
  hr_cached_kernel *cached;       /* KERNEL */
  const hr_host_kernel *kernel;   /* what it holds, interpreted; or the written one */
  hr_ready library;               /* LIBRARY, prepared or */
  hr_host_kernel *written;        /* written, the step's own */
  hr_tuning *tuning;              /* NULL: its way is settled */
  hr_index_source indices;        /* CHECK: what it looks at */
  size_t arg_first, scalar_first; /* in the executable's flat lists */
  int arg_count, scalar_count;
  size_t workspace_bytes, workspace_offset; /* the latter among those of a batch */
  int weight;                               /* of the executable's, that the step makes (weights.h); -1: none */
  int batch; /* how many steps from this one on run in one launch, where it is the first */
  hr_step_cost cost;
} hr_exec_step;

/* What a step makes of the key's buffers (weights.h). */
enum { HR_WEIGHT_SOURCES_MAX = 16, HR_WEIGHT_RESULTS_MAX = 8 };
typedef struct hr_weight {
  int step;
  int source_count, part_count, made_count;
  uint32_t sources[HR_WEIGHT_SOURCES_MAX], made[HR_WEIGHT_RESULTS_MAX]; /* program buffers */
  int parts[HR_WEIGHT_SOURCES_MAX];                                     /* earlier weights that it is made of, too */
  size_t bytes;                                                         /* of all that is made */
  hr_kernel_key
      recipe; /* the kernel, and behind it what it had in the last run: stamps, scalars, serials of its parts */
  size_t kernel_words;
  uint64_t stamp; /* in the last run: the newest of its sources and parts; 0: contents of some were not known */
} hr_weight;

typedef struct hr_executable hr_executable;
typedef struct hr_replay hr_replay; /* replay.h */
struct hr_executable {
  hr_refcount refcount;
  hr_key key; /* its own copy */
  hr_schedule schedule;
  int step_count;
  hr_exec_step *steps;
  HR_VECTOR(uint32_t) args;    /* program buffers, or a library's scalars, step after step */
  HR_VECTOR(uint32_t) scalars; /* program scalars, step after step */
  HR_VECTOR(uint32_t) sources; /* those of the key's buffers of which libraries may keep something */
  HR_VECTOR(hr_weight) weights;
  int *last_write;                 /* of each of the key's buffers: the last step that writes it; -1: none */
  size_t shared_bytes;             /* arena, and behind it the largest workspace */
  bool has_tunings;                /* of steps' ways */
  bool needs_team;                 /* some step is worth more than one thread */
  int kernel_count, library_count; /* launches, and library calls */
  int batch_most;                  /* steps of the longest batch */
  int64_t bytes, flops;            /* of all its steps: read and written; arithmetic */
  int64_t elided_count;
  hr_replay *replay;              /* NULL: each step is given to the device by itself */
  atomic_int_least64_t submit_ns; /* how long the last run took to give its steps to a device beside the host; at first,
                                     and where it waited for the device, INT64_MAX */
  size_t footprint;               /* bytes of host memory, about */
  /* the cache's */
  hr_executable *next_same, *newer, *older;
  hr_executable *follower; /* the one that the stream ran after it the last time, or NULL */
};

/* What one run works on. The arrays are the caller's. */
typedef struct hr_run {
  hr_device *device;
  void *shared;              /* shared_bytes of the executable; NULL when that is 0 */
  void *const *bound;        /* address of each of the key's buffers; NULL where it needs no memory */
  const uint64_t *stamps;    /* contents of each of them; 0: unknown, or written by the run */
  hr_buffer *const *buffers; /* the key's; NULL: nothing is known of them */
  const hr_scalar *arguments;
  uint64_t number;                          /* of the job in its stream */
  const atomic_uint_least64_t *interrupted; /* jobs up to this number end early; NULL: the run always goes to its end */
  int64_t
      *step_ns; /* NULL, or out: the time of each step that ran; a batch's is shared by the bytes that its steps move */
  bool has_waited;    /* out: for a number of the device */
  int compiled_count; /* out: launches of compiled code, a library's apart, and those that were left out */
  int graph_launches, graph_builds; /* out: graphs that were launched, and those of them that were made for it */
  int graph_updates;                /* out: kernels in them that got other scalars */
  int failed_step;                  /* out: the step that ended the run early, or step_count */
} hr_run;

/* True if the run has to end in front of its next step. */
static inline bool hr__run_is_interrupted(const hr_run *run) {
  return run->interrupted != NULL &&
         __builtin_expect(atomic_load_explicit(run->interrupted, memory_order_relaxed) >= run->number, 0);
}

/* Compiles the records of a key for a device. */
HR_MUST_USE hr_status hr__executable_create(const hr_key *key, hr_device *device, const hr_scalar *arguments,
                                            hr_executable **out_executable);
void hr__executable_release(hr_executable *executable);
/* Whether a key is the executable's, word for word. */
bool hr__executable_fits(const hr_executable *executable, const hr_key *key);
/* Whether buffer `local` of the key has to have memory. */
static inline bool hr__executable_needs(const hr_executable *executable, size_t local) {
  return executable->schedule.places[local].kind == HR_PLACE_BOUND;
}
/* Whether buffer `local` of the key has to lie plain before anything can be scheduled. */
static inline bool hr__executable_refuses(const hr_executable *executable, size_t local) {
  return executable->schedule.program.buffers[local].is_refused;
}
/* How buffer `local` lies after a run. */
static inline uint64_t hr__executable_layout(const hr_executable *executable, size_t local) {
  return executable->schedule.program.buffers[local].layout;
}
/* Decides which steps run in one launch (batch.c), and gives the bytes of workspace that the largest batch, or step,
 * needs. */
size_t hr__batch_steps(hr_executable *executable);

/* What is kept of a weight; NULL: its step runs as all others. */
typedef struct hr_run_weight {
  hr_cached_weights *cached_weights;
  bool is_new; /* the run makes it */
} hr_run_weight;

/* Scratch arrays of a run: addresses of all program buffers, flat arguments, scalar values, flat scalars. */
typedef struct hr_run_scratch {
  HR_VECTOR(void *) addresses;
  HR_VECTOR(void *) args;
  HR_VECTOR(hr_scalar) values;
  HR_VECTOR(hr_scalar) scalars;
  HR_VECTOR(hr_host_launch) launches; /* of one batch */
  HR_VECTOR(hr_run_weight) weights;
} hr_run_scratch;
HR_MUST_USE hr_status hr__run_scratch_reserve(hr_run_scratch *scratch, const hr_executable *executable);
void hr__run_scratch_fini(hr_run_scratch *scratch);

/* Runs all steps in order on the calling thread and the device's team. The first failure ends the run: OUT_OF_RANGE
 * from a check, or whatever a provider says. */
HR_MUST_USE hr_status hr__executable_run(const hr_executable *executable, hr_run *run, hr_run_scratch *scratch);

/* Whether a run is worth being begun by a thread of the team, and calls nothing that has threads of its own. */
bool hr__executable_can_submit_early(const hr_executable *executable);

/* For replay.c: the steps [first, end), neither of them inside a batch, when the scratch is bound. `queue` is for
 * libraries; NULL: the device's own. */
HR_MUST_USE hr_status hr__executable_run_steps(const hr_executable *executable, int first, int end, hr_run *run,
                                               hr_run_scratch *scratch, void *queue);
/* What a kernel's step gives to launch. */
hr_host_launch hr__step_launch(const hr_executable *executable, const hr_exec_step *step, const hr_run *run,
                               const hr_run_scratch *scratch);
/* Whether argument `i` of a library's step is a scalar of the program, and which. */
bool hr__step_scalar(const hr_executable *executable, const hr_exec_step *step, int i, uint32_t *out_scalar);

#endif
