/* context.h: the runtime context, which owns all state that outlives a call.
 *
 * A context holds the snapshot of the environment, the log's settings, the open devices, the caches and the compile
 * queue. Each of these is a *part*: a struct that its module defines, in a slot of the context. A part is created,
 * zeroed, at its first use and destroyed with its context. No module reads another's part.
 *
 * The process has a default context, which exists from the start and is never destroyed. Programs need no other; tests
 * create their own and enter it. Every thread has a current context. It starts as the default one, or, in a thread of
 * hr_thread_start, as the context that was current at that call. Long-lived objects (devices, queues) keep a pointer to
 * their context and public functions enter it, so one thread may use objects of several contexts. The bodies of
 * parallel loops run in the default context and look nothing up.
 *
 * The heap, the thread team, buffer handles and the tables of vendor libraries remain per process. The last are parts
 * of the default context, whichever context is current.
 *
 * Threads: safe from any. Destroy a context only when none of its objects is in use.
 */
#ifndef HEADRACE_BASE_CONTEXT_H_
#define HEADRACE_BASE_CONTEXT_H_

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "headrace/status.h"

typedef struct hr_context hr_context;

/* One for each module with state. */
typedef enum hr_context_slot {
  HR_CONTEXT_ENV,
  HR_CONTEXT_LOG,
  HR_CONTEXT_DEVICES,
  HR_CONTEXT_DERIVED,
  HR_CONTEXT_LATE,
  HR_CONTEXT_PROVIDERS,
  HR_CONTEXT_STREAMS,
  HR_CONTEXT_TUNING,
  HR_CONTEXT_TUNING_TIME,
  HR_CONTEXT_KERNELS,
  HR_CONTEXT_PLANS,
  HR_CONTEXT_HOST_COMPILER,
  HR_CONTEXT_COMPILE_QUEUE,
  HR_CONTEXT_DEVICE_CODE,
  HR_CONTEXT_MACHINE,
  HR_CONTEXT_RECORDS,
  HR_CONTEXT_REPORT,
  HR_CONTEXT_FUNCTIONS,
  HR_CONTEXT_MODULES,
  /* state of the process, in the default context alone */
  HR_CONTEXT_ARENAS,
  HR_CONTEXT_INTERNED,
  HR_CONTEXT_CUDA,
  HR_CONTEXT_CUDA_LIMITS,
  HR_CONTEXT_GPU_MODEL,
  HR_CONTEXT_NVRTC,
  HR_CONTEXT_ONEDNN,
  HR_CONTEXT_LAPACK,
  HR_CONTEXT_CUBLASLT,
  HR_CONTEXT_CUDNN,
  HR_CONTEXT_NCCL,
  HR_CONTEXT_HOLDER,
  HR_CONTEXT_RANGES,
  HR_CONTEXT_LETTERS,
  HR_CONTEXT_SLOTS
} hr_context_slot;

/* A module's part of a context. All functions are optional. */
typedef struct hr_context_part {
  size_t bytes;
  void (*init)(void *part); /* gets zeroed bytes; may look up other modules' parts, which then outlive this one, but not
                               for its own */
  void (*stop)(void *part); /* ends its threads; also called at process exit, perhaps several times */
  void (*begin_fork)(void *part); /* the process forks: waits until its threads hold nothing of it, and locks it */
  void (*end_fork)(void *part, bool is_child); /* unlocks it; in a child forgets the threads, which are gone */
  void (*fini)(void *part);                    /* called after all parts have stopped; parts created later are gone */
} hr_context_part;

enum { HR_CONTEXT_BYTES = 768 << 10 }; /* for all parts together */

struct hr_context {
  atomic_int log_level; /* for log.h; here because every call reads it */
  _Atomic(void *) parts[HR_CONTEXT_SLOTS];
  /* context.c's own */
  pthread_mutex_t mutex; /* recursive; guards the fields below */
  const hr_context_part *kinds[HR_CONTEXT_SLOTS];
  hr_context_slot order[HR_CONTEXT_SLOTS]; /* in which the parts were created */
  int part_count;
  size_t used;
  bool forks[HR_CONTEXT_SLOTS]; /* parts that are locked for a fork */
  hr_context *next;             /* guarded by the list's own lock */
  char *bytes;                  /* HR_CONTEXT_BYTES, aligned to 64 */
};

#if defined(__ELF__)
#define HR__CONTEXT_TLS __attribute__((tls_model("initial-exec")))
#else
#define HR__CONTEXT_TLS
#endif
extern _Thread_local hr_context *hr__context_now HR__CONTEXT_TLS;

/* The current context of this thread; never NULL. */
static inline hr_context *hr__context(void) {
  return hr__context_now;
}

/* Makes a context current on this thread. Returns the previous one, which the caller enters again afterwards. */
static inline hr_context *hr__context_enter(hr_context *context) {
  hr_context *before = hr__context_now;
  hr__context_now = context;
  return before;
}

/* The default context. It holds the state of which the process has one, such as the tables of vendor libraries. */
extern hr_context hr__context_first;

/* A new context, current on no thread. It reads its settings from the environment at their first use.
 */
HR_MUST_USE hr_status hr__context_create(hr_context **out_context);
/* All its objects (streams, buffers, devices) must have been released, and it must be current on no thread. NULL does
 * nothing. */
void hr__context_destroy(hr_context *context);

/* Creates a part; see hr__context_part. */
void *hr__context_make(hr_context *context, hr_context_slot slot, const hr_context_part *kind);

/* The part in a slot, created if it does not exist. Never NULL, always at the same address. All calls pass the same
 * `kind`.
 */
static inline void *hr__context_part(hr_context *context, hr_context_slot slot, const hr_context_part *kind) {
  void *part = atomic_load_explicit(&context->parts[slot], memory_order_acquire);
  return __builtin_expect(part != NULL, 1) ? part : hr__context_make(context, slot, kind);
}

/* Stops all contexts when the process exits, so that work in flight ends before the libraries that run it are torn
 * down. Exit handlers run in reverse order, and some libraries register theirs at first use: call this again after such
 * a use. A forked child inherits the handlers, and stops the threads that it has started itself. */
void hr__contexts_stop_at_exit(void);

/* fork.h's: lock all contexts, and unlock them in both processes. */
void hr__contexts_begin_fork(void);
void hr__contexts_end_fork(bool is_child);

#endif /* HEADRACE_BASE_CONTEXT_H_ */
