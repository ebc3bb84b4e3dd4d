/* run_scratch.h: the inputs and the scratch arrays of one run of an instance. */
#ifndef HEADRACE_ENGINE_RUN_SCRATCH_H_
#define HEADRACE_ENGINE_RUN_SCRATCH_H_

#include "engine/instance.h"

/* When a launch began and ended, on the host's clock, if a profile is started. */
typedef struct hr_launch_time {
  int64_t begin, end; /* 0: it did not run */
  bool is_compiled;   /* all its kernels were code of a compiler */
} hr_launch_time;

/* The inputs and results of one run. The arrays are the caller's. */
typedef struct hr_run {
  hr_device *device;
  hr_lane *lane;
  void *impl;                /* of the lane: the driver's */
  void *shared;              /* shared_bytes of the instance; NULL when that is 0 */
  void *const *bound;        /* address of each of the key's buffers; NULL if it needs no memory */
  const uint64_t *stamps;    /* contents of each of them; 0: unknown, or written by the run */
  hr_buffer *const *buffers; /* the key's; NULL: unknown */
  const hr_scalar *arguments;
  uint64_t number, ticket;                  /* of the job in its stream, and in its lane */
  const atomic_uint_least64_t *interrupted; /* jobs up to this number end early; NULL: no interrupts */
  const hr_operation_mark *marks;           /* of the first operations; unknown ones are not there */
  size_t mark_count;
  int64_t
      *step_ns; /* NULL, or out: the time of each step that ran; a batch's is shared by the bytes that its steps move */
  hr_launch_time *times; /* NULL, or out: of each launch, at its first step */
  bool has_waited;       /* out: the host waited for a number of the device */
  bool is_compiled;      /* out: the last launch of kernels was code of a compiler */
  int compiled_count;    /* out: launches of compiled code, without libraries and launches that were left out */
  int graph_launches, graph_builds; /* out: graphs that were launched, and those of them that this run built */
  int graph_updates;                /* out: kernels in them whose scalars were updated */
  int failed_step;                  /* out: the step that ended the run early, or step_count */
} hr_run;

/* True if the run has to end before its next step. */
static inline bool hr__run_is_interrupted(const hr_run *run) {
  return run->interrupted != NULL &&
         __builtin_expect(atomic_load_explicit(run->interrupted, memory_order_relaxed) >= run->number, 0);
}

/* The cached result of a weight; NULL: its step runs as all others. */
typedef struct hr_run_weight {
  hr_cached_weights *cached_weights;
  bool is_new; /* this run computes it */
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
HR_MUST_USE hr_status hr__run_scratch_reserve(hr_run_scratch *scratch, const hr_instance *instance);
void hr__run_scratch_fini(hr_run_scratch *scratch);

#endif
