/* instance.h: a plan that is ready to run for one stream, and the state of its runs.
 *
 * Kernels are prepared or loaded, and libraries have chosen their algorithms. Replay, times, tuning and cached weights
 * change while it runs, and belong to the thread that runs the stream's jobs. The rest of a run's state (addresses,
 * scalars) is in its hr_run (run_scratch.h). References: the cache holds one, each queued run another.
 */
#ifndef HEADRACE_ENGINE_INSTANCE_H_
#define HEADRACE_ENGINE_INSTANCE_H_

#include "base/host_kernel.h"
#include "base/refcount.h"
#include "engine/autotune.h"
#include "engine/index_source.h"
#include "engine/kernel_cache.h"
#include "engine/plan.h"
#include "engine/step_args.h"
#include "runtime/cached_weights.h"

enum { HR_WORKSPACE_ALIGNMENT = 64 };

typedef struct hr_exec_step hr_exec_step;

/* A library's call, prepared, or the kernel that its provider has written. Steps that are alike have one
 * (shared_calls.h), except that those with moves have a copy. */
typedef struct hr_step_call {
  hr_ready ready;
  hr_host_kernel *written;   /* NULL: `ready` is prepared; see hr__step_kernel */
  hr_tuning *tuning;         /* NULL: its algorithm is settled */
  const hr_exec_step *first; /* the step that it was prepared for, to which the above belongs */
  int64_t *moves;            /* bytes from that one's arguments to this step's; NULL: all are 0 */
  size_t workspace_bytes;
  bool is_renumbered; /* it got new numbers after it was prepared */
} hr_step_call;

struct hr_exec_step {
  hr_cached_kernel *cached;         /* KERNEL */
  hr_step_call *call;               /* LIBRARY; another step may have it, too */
  uint32_t arg_first, scalar_first; /* in the instance's flat lists, up to those of the next step */
  uint32_t workspace_offset;        /* among those of a batch */
  int weight;                       /* of the instance's, that the step makes (weights.h); -1: none */
  int check;                        /* CHECK: its place in the instance's list */
  uint16_t batch;                   /* for the first step of a launch: the number of steps in it */
  hr_step_kind kind : 8;
  uint8_t taken_beside; /* LIBRARY: not 0 if the next step, in its batch, takes its result (handover.h) */
};

_Static_assert(sizeof(hr_exec_step) <= 40, "cached programs have one for each step");

static inline int hr__step_arg_count(const hr_exec_step *step) {
  return (int)(step[1].arg_first - step->arg_first);
}
static inline int hr__step_scalar_count(const hr_exec_step *step) {
  return (int)(step[1].scalar_first - step->scalar_first);
}
/* The earlier step whose library call this one runs; NULL: there is none. */
static inline const hr_exec_step *hr__step_like(const hr_exec_step *step) {
  return step->call != NULL && step->call->first != step ? step->call->first : NULL;
}
/* The kernel of a step as it was made: interpreted on the host, or the one that its provider has written; NULL: the
 * step runs none. */
static inline const hr_host_kernel *hr__step_kernel(const hr_exec_step *step) {
  return step->cached != NULL ? hr__kernel_host(step->cached) : step->call != NULL ? step->call->written : NULL;
}
static inline bool hr__step_has_kernel(const hr_exec_step *step) {
  return step->cached != NULL || (step->call != NULL && step->call->written != NULL);
}
static inline size_t hr__step_workspace_bytes(const hr_exec_step *step) {
  const hr_host_kernel *kernel = hr__step_kernel(step);
  return kernel != NULL ? kernel->workspace_bytes : step->call != NULL ? step->call->workspace_bytes : 0;
}

/* A step that reads an index on the host, as its node names it. */
typedef struct hr_check {
  hr_index_source source;
  int64_t least, end, offset; /* the index must be in [least, end); bytes */
  int message;
} hr_check;

/* The cached result of a step that depends on the key's buffers alone (weights.h). */
enum { HR_WEIGHT_SOURCES_MAX = 16, HR_WEIGHT_RESULTS_MAX = 8 };
typedef struct hr_weight {
  int step;
  int source_count, part_count, made_count;
  uint32_t sources[HR_WEIGHT_SOURCES_MAX], made[HR_WEIGHT_RESULTS_MAX]; /* program buffers */
  int parts[HR_WEIGHT_SOURCES_MAX];                                     /* earlier weights that it also reads */
  size_t bytes;                                                         /* of all results, which begin at .. */
  size_t places[HR_WEIGHT_RESULTS_MAX];
  /* The kernel's key, and after it its inputs in the last run: stamps, scalars, serials of its parts. */
  HR_VECTOR(uint64_t) recipe;
  size_t kernel_words;
  uint64_t stamp; /* in the last run: the newest of its sources and parts; 0: some contents were unknown */
} hr_weight;

typedef struct hr_instance hr_instance;
typedef struct hr_replay hr_replay;                   /* replay.h */
typedef struct hr_run_description hr_run_description; /* run_description.h */
struct hr_instance {
  hr_refcount refcount;
  hr_plan *plan;
  bool is_compiled; /* the plan was compiled for this instance */
  int step_count;
  hr_exec_step *steps; /* and one more, where the last one's arguments end */
  hr_narrow *args;     /* program buffers, or a library's scalars (hr__arg_of_buffer ..), step after step */
  hr_narrow *scalars;  /* program scalars, step after step; both may be the plan's */
  HR_VECTOR(hr_check) checks;
  HR_VECTOR(uint32_t) sources; /* the key's buffers of which libraries may cache something */
  HR_VECTOR(hr_weight) weights;
  size_t shared_bytes;             /* arena, and after it the largest workspace */
  bool has_tunings;                /* some steps have a tuning */
  bool needs_team;                 /* some step is worth more than one thread */
  bool is_brief;                   /* a run takes some 40 us on the host, with products */
  bool may_be_endless;             /* some step is a function of the caller's, such as a loop */
  bool waits_for_others;           /* some step is a late function */
  int kernel_count, library_count; /* launches, and library calls; of these .. */
  int short_count;                 /* .. functions that take a short time */
  int batch_most;                  /* steps of the longest batch */
  hr_replay *replay;               /* NULL: each step is launched by itself */
  atomic_int_least64_t submit_ns;  /* host time of the last run's submission to a device beside the host; INT64_MAX at
                                    * first, and after a run that waited for the device */
  size_t footprint;                /* bytes of host memory when it was made, about; shared kernels by their holders */
  bool is_holder;                  /* of its kernels (cached_kernel.h) */
  hr_run_description *description; /* NULL until a run is profiled */
  /* the cache's */
  hr_instance *next_same, *newer, *older;
  bool is_repeated;       /* it was found after it was added */
  uint32_t trims;         /* of the cache, before its last use */
  uint32_t last_use;      /* by the cache's clock */
  hr_instance *successor; /* the instance that the stream ran after it the last time, or NULL */
};

/* The compiled step, before hr__plan_settle. */
static inline const hr_step *hr__step_source(const hr_instance *instance, const hr_exec_step *step) {
  return &instance->plan->schedule.steps[step - instance->steps];
}

/* The number of the step's node among the nodes of a compact program: kernels have none. */
static inline int hr__step_node(const hr_instance *instance, const hr_exec_step *step) {
  int number = 0;
  for (const hr_exec_step *each = instance->steps; each < step; ++each) {
    number += each->kind != HR_STEP_KERNEL;
  }
  return number;
}

/* A step's part in what is found of all steps, for the next time that dims are new. */
typedef struct hr_step_summary {
  size_t workspace;      /* of the batch that begins with it */
  int references;        /* to its kernel, of it and of the steps that share it */
  bool needs_team;       /* it is worth more than one thread */
  bool batch_needs_team; /* the batch is */
} hr_step_summary;

/* Groups steps into launches (batch.c), counts them, and returns the bytes of workspace that the largest batch, or
 * step, needs. */
size_t hr__batch_steps(hr_instance *instance);
/* The same again, if steps that may not differ from the last time are as they were, and temporaries have their places.
 * `may_differ`: NULL if any may. */
size_t hr__batch_steps_again(hr_instance *instance, const bool *may_differ, hr_step_summary *summaries);

#endif
