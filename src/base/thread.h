/* Threads: the operating system's, wrapped thinly, and one loop that runs in parallel.
 *
 * The loop runs on a team of our own. Close to calls of libraries that use OpenMP it runs on OpenMP's team, because two
 * teams would compete for the cores. Sanitizer builds, which can't see into libgomp, and compilers without libgomp have
 * only our own team.
 */
#ifndef HEADRACE_BASE_THREAD_H_
#define HEADRACE_BASE_THREAD_H_

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "headrace/status.h"

#define HR_THREADS_MAX 1024

typedef struct hr_mutex {
  pthread_mutex_t native;
} hr_mutex;

#define HR_MUTEX_INITIALIZER \
  { PTHREAD_MUTEX_INITIALIZER }

void hr_mutex_init(hr_mutex *mutex);
void hr_mutex_fini(hr_mutex *mutex);

static inline void hr_mutex_lock(hr_mutex *mutex) {
  pthread_mutex_lock(&mutex->native);
}

static inline bool hr_mutex_try_lock(hr_mutex *mutex) {
  return pthread_mutex_trylock(&mutex->native) == 0;
}

/* False: another thread still had it when hr_clock_ns reached the deadline. Looks every 100 us. */
bool hr__mutex_lock_until(hr_mutex *mutex, int64_t deadline_ns);

static inline void hr_mutex_unlock(hr_mutex *mutex) {
  pthread_mutex_unlock(&mutex->native);
}

/* A condition on the monotonic clock. Waits may wake for no reason: wait in a loop. */
typedef struct hr_cond {
  pthread_cond_t native;
} hr_cond;

void hr_cond_init(hr_cond *cond);
void hr_cond_fini(hr_cond *cond);
void hr_cond_wait(hr_cond *cond, hr_mutex *mutex);
/* False when `hr_clock_ns` has reached `deadline_ns`. */
bool hr_cond_wait_until(hr_cond *cond, hr_mutex *mutex, int64_t deadline_ns);
void hr_cond_signal(hr_cond *cond);
void hr_cond_broadcast(hr_cond *cond);

typedef struct hr_thread_begin hr_thread_begin;

typedef struct hr_thread {
  pthread_t native;
  hr_thread_begin *begin; /* function and argument; hr_thread_join frees it */
  bool started;
} hr_thread;

typedef void (*hr_thread_fn)(void *arg);

/* Starts a thread with all signals blocked, in the context that is current here (context.h). `name` (15 characters are
 * kept) shows in debuggers. */
HR_MUST_USE hr_status hr_thread_start(const char *name, hr_thread_fn fn, void *arg, hr_thread *out_thread);
/* Waits for the thread's end. Does nothing for a zeroed or a joined thread. */
void hr_thread_join(hr_thread *thread);
/* Of the thread itself, as the last use of its struct: nobody joins it. */
void hr_thread_leave(hr_thread *thread);

/* For spin loops: yields the core's resources to its other hardware thread for a moment. */
static inline void hr_thread_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* The system's number of this thread, as other tools show it. */
uint64_t hr_thread_number(void);

/* The processor that this thread runs on; -1 if the system does not tell. */
int hr_thread_processor(void);

/* The processors that a thread might use before it moved. */
typedef struct hr_thread_places {
  bool has_moved;
#ifdef __linux__
  cpu_set_t before;
#endif
} hr_thread_places;

/* Moves this thread to a processor that is none of `avoided`, and keeps it away from these until hr_thread_move_end.
 * False if it may use no other one, or the system refuses. A further move forgets the processors of the one before. */
bool hr_thread_move(const int *avoided, int count, hr_thread_places *places);
/* This thread may use all its processors again. It stays where it is, unless the system moves it. */
void hr_thread_move_end(hr_thread_places *places);

/* Nanoseconds of the monotonic clock. */
int64_t hr_clock_ns(void);

/* Works on units [begin, end). `worker` is below `hr_thread_count()` and used by one thread at a time. */
typedef void (*hr_range_fn)(void *arg, int64_t begin, int64_t end, int worker);

/* Splits [0, units) into one contiguous range for each worker, of at least `grain` units (below 1 counts as 1), and
 * returns when all are done. The ranges depend on the number of threads; results must not. Runs on the caller alone, as
 * worker 0, if there is only one range, or inside a parallel loop. */
void hr_parallel_for(int64_t units, int64_t grain, hr_range_fn fn, void *arg);

/* memcpy by several workers, of at least 256 KB each. */
void hr_parallel_copy(void *to, const void *from, size_t bytes);

/* While true, loops of the calling thread run on it alone. Returns the previous value. */
bool hr_parallel_set_alone(bool is_alone);

/* Work of the calling thread that repeats for long ends early when the number at `until` has reached `number`; NULL: it
 * does not. Returns the previous one. */
typedef struct hr_thread_interrupt {
  const atomic_uint_least64_t *until;
  uint64_t number;
} hr_thread_interrupt;
hr_thread_interrupt hr_thread_interrupt_set(hr_thread_interrupt interrupt);
hr_thread_interrupt hr_thread_interrupt_get(void);
static inline bool hr_thread_interrupt_has_come(const hr_thread_interrupt *interrupt) {
  return interrupt->until != NULL &&
         __builtin_expect(atomic_load_explicit(interrupt->until, memory_order_relaxed) >= interrupt->number, 0);
}

/* Workers of a parallel loop: HEADRACE_THREADS, or this process's share of the cores that it may use. At most
 * HR_THREADS_MAX. */
int hr_thread_count(void);
/* Changes it for later loops; 0 or less restores the default. */
void hr_thread_count_set(int count);
/* Bounds hr_thread_count on the calling thread, and in its loops; 0: no bound. Returns the previous one. */
int hr_thread_limit_set(int limit);
/* Sets the number of threads that a library with OpenMP regions uses when this thread calls it; returns the previous
 * number. Without OpenMP it does nothing and returns `count`. */
int hr_library_threads_set(int count);
/* Call this before a library that opens OpenMP regions of `threads` threads. */
void hr_library_enters(int threads);
/* The most threads of a parallel loop or of a library's call since the last call of this function; 1 if there was none
 * of several threads. It counts all threads of the process. */
int hr_parallel_peak_take(void);
/* Cores that this process may run on. */
int hr_core_count(void);
/* Processes of one job that torchrun has started on this machine, or another launcher that sets LOCAL_WORLD_SIZE; at
 * least 1. */
int hr_local_ranks(void);

#endif /* HEADRACE_BASE_THREAD_H_ */
