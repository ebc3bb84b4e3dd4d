/* context.h: the owner of everything that outlives a call.
 *
 * A context has the environment's snapshot, the log's settings, the open devices, the caches, the compile queue. Each
 * of these is a *part*: a struct of the module that defines it, in a slot of the context. A part is made when it is
 * first asked for, zeroed, and destroyed with its context; modules never see each other's parts.
 *
 * The process has a default context, which needs no creation and is never destroyed: programs need no other. Tests make
 * their own and enter it. Every thread has a current context: the default one at first, or, in a thread that
 * hr_thread_start made, the one that was current there. Devices, queues and whatever else lives long keep a pointer to
 * their context, and public functions enter it, so that a thread may use objects of several contexts in turn. The
 * bodies of parallel loops run with the default context current: they look nothing up.
 *
 * Per process remain the heap, the thread team, the handles of buffers, and the tables of vendors' libraries, which are
 * parts of the default context whichever is current.
 *
 * Threads: all functions may be called from any; a context is destroyed when nothing of it is used any more.
 */
#ifndef HEADRACE_BASE_CONTEXT_H_
#define HEADRACE_BASE_CONTEXT_H_

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "headrace/status.h"

typedef struct hr_context hr_context;

/* One for each module that keeps something. */
typedef enum hr_context_slot {
  HR_CONTEXT_ENV,
  HR_CONTEXT_LOG,
  HR_CONTEXT_DEVICES,
  HR_CONTEXT_DERIVED,
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
  /* the process's: of the default context alone */
  HR_CONTEXT_CUDA,
  HR_CONTEXT_CUDA_LIMITS,
  HR_CONTEXT_NVRTC,
  HR_CONTEXT_ONEDNN,
  HR_CONTEXT_LAPACK,
  HR_CONTEXT_CUBLASLT,
  HR_CONTEXT_CUDNN,
  HR_CONTEXT_HOLDER,
  HR_CONTEXT_SLOTS
} hr_context_slot;

/* What a module keeps in a context. All functions are optional. */
typedef struct hr_context_part {
  size_t bytes;
  void (*init)(void *part); /* of zeroed bytes; may ask for parts of other modules, which then outlive this one, never
                               for its own */
  void (*stop)(void *part); /* ends its threads; also when the process exits, then perhaps several times */
  void (*fini)(void *part); /* all parts have stopped; those that were made later are gone */
} hr_context_part;

enum { HR_CONTEXT_BYTES = 448 << 10 }; /* for all parts together */

struct hr_context {
  atomic_int log_level; /* log.h; here because every call looks at it */
  _Atomic(void *) parts[HR_CONTEXT_SLOTS];
  /* context.c's own */
  pthread_mutex_t mutex; /* recursive; guards what follows */
  const hr_context_part *kinds[HR_CONTEXT_SLOTS];
  hr_context_slot order[HR_CONTEXT_SLOTS]; /* in which the parts were made */
  int part_count;
  size_t used;
  hr_context *next; /* guarded by the list's own lock */
  char *bytes;      /* HR_CONTEXT_BYTES, aligned to 64 */
};

#if defined(__ELF__)
#define HR__CONTEXT_TLS __attribute__((tls_model("initial-exec")))
#else
#define HR__CONTEXT_TLS
#endif
extern _Thread_local hr_context *hr__context_now HR__CONTEXT_TLS;

/* The one that is current on this thread; never NULL. */
static inline hr_context *hr__context(void) {
  return hr__context_now;
}

/* Makes a context current on this thread and gives the one before, which the caller enters again when it is done. */
static inline hr_context *hr__context_enter(hr_context *context) {
  hr_context *before = hr__context_now;
  hr__context_now = context;
  return before;
}

/* The default context: for what the process has once, such as the tables of vendors' libraries. */
extern hr_context hr__context_first;

/* A new context; it is current nowhere. Its settings are those that the environment has when they are first asked for.
 */
HR_MUST_USE hr_status hr__context_create(hr_context **out_context);
/* Everything of it has been released: streams, buffers, devices. It is current on no thread. NULL: nothing. */
void hr__context_destroy(hr_context *context);

/* Makes a part; see hr__context_part. */
void *hr__context_make(hr_context *context, hr_context_slot slot, const hr_context_part *kind);

/* The part in a slot, made now unless it is there; never NULL, always at the same address. `kind` is always the same.
 */
static inline void *hr__context_part(hr_context *context, hr_context_slot slot, const hr_context_part *kind) {
  void *part = atomic_load_explicit(&context->parts[slot], memory_order_acquire);
  return __builtin_expect(part != NULL, 1) ? part : hr__context_make(context, slot, kind);
}

/* When the process exits, all contexts stop: work in flight ends before whatever exists now is torn down. A library
 * that runs it must not lose its memory in the middle. Handlers of exit run in reverse order, and libraries make parts
 * of themselves at first use: call this again after such a use. In a forked child the handlers do nothing, because its
 * contexts have no threads. */
void hr__contexts_stop_at_exit(void);

#endif /* HEADRACE_BASE_CONTEXT_H_ */
