/* Wrappers of pthreads. The number of workers is in team.c, the parallel loop in parallel.c. */
#include "base/thread.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#include <time.h>
#include <unistd.h>

#include "base/allocator.h"
#include "base/context.h"
#include "base/env.h"
#include "base/float_mode.h"

void hr_mutex_init(hr_mutex *mutex) {
  int error = pthread_mutex_init(&mutex->native, NULL);
  assert(error == 0);
  (void)error;
}

void hr_mutex_fini(hr_mutex *mutex) {
  pthread_mutex_destroy(&mutex->native);
}

bool hr__mutex_lock_until(hr_mutex *mutex, int64_t deadline_ns) {
  const struct timespec pause = {.tv_nsec = 100000};
  bool has = hr_mutex_try_lock(mutex);
  while (!has && hr_clock_ns() < deadline_ns) {
    (void)nanosleep(&pause, NULL);
    has = hr_mutex_try_lock(mutex);
  }
  return has;
}

void hr_cond_init(hr_cond *cond) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
#ifndef __APPLE__
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
  int error = pthread_cond_init(&cond->native, &attributes);
  assert(error == 0);
  (void)error;
  pthread_condattr_destroy(&attributes);
}

void hr_cond_fini(hr_cond *cond) {
  pthread_cond_destroy(&cond->native);
}

void hr_cond_wait(hr_cond *cond, hr_mutex *mutex) {
  pthread_cond_wait(&cond->native, &mutex->native);
}

static struct timespec to_timespec(int64_t ns) {
  return (struct timespec){.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
}

bool hr_cond_wait_until(hr_cond *cond, hr_mutex *mutex, int64_t deadline_ns) {
#ifdef __APPLE__
  int64_t left = deadline_ns - hr_clock_ns();
  struct timespec span = to_timespec(left > 0 ? left : 0);
  return pthread_cond_timedwait_relative_np(&cond->native, &mutex->native, &span) != ETIMEDOUT;
#else
  struct timespec deadline = to_timespec(deadline_ns > 0 ? deadline_ns : 0);
  return pthread_cond_timedwait(&cond->native, &mutex->native, &deadline) != ETIMEDOUT;
#endif
}

void hr_cond_signal(hr_cond *cond) {
  pthread_cond_signal(&cond->native);
}

void hr_cond_broadcast(hr_cond *cond) {
  pthread_cond_broadcast(&cond->native);
}

struct hr_thread_begin {
  hr_context *context;
  hr_thread_fn fn;
  void *arg;
  char name[16];
};

static void *run_thread(void *opaque) {
  const hr_thread_begin *begin = opaque;
#ifdef __APPLE__
  pthread_setname_np(begin->name);
#else
  pthread_setname_np(pthread_self(), begin->name);
#endif
  (void)hr__context_enter(begin->context);
  (void)hr_float_mode_begin(); /* a new thread has its creator's */
  begin->fn(begin->arg);
  return NULL;
}

hr_status hr_thread_start(const char *name, hr_thread_fn fn, void *arg, hr_thread *out_thread) {
  hr_thread_begin *begin = hr_malloc(sizeof *begin);
  if (begin == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "thread \"%s\": out of memory", name);
  }
  *begin = (hr_thread_begin){.context = hr__context(), .fn = fn, .arg = arg};
  snprintf(begin->name, sizeof begin->name, "%s", name);
  /* Blocks all signals here: the program's own threads handle them. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t native;
  int error = pthread_create(&native, NULL, run_thread, begin);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error != 0) {
    hr_free(begin);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "thread \"%s\": can't start: %s", name, strerror(error));
  }
  *out_thread = (hr_thread){.native = native, .begin = begin, .started = true};
  return HR_OK;
}

void hr_thread_join(hr_thread *thread) {
  if (thread != NULL && thread->started) {
    pthread_join(thread->native, NULL);
    hr_free(thread->begin);
    *thread = (hr_thread){0};
  }
}

void hr_thread_leave(hr_thread *thread) {
  pthread_detach(thread->native);
  hr_free(thread->begin);
  *thread = (hr_thread){0};
}

uint64_t hr_thread_number(void) {
#if defined(__linux__)
  return (uint64_t)syscall(SYS_gettid);
#else
  return (uint64_t)(uintptr_t)pthread_self();
#endif
}

int hr_thread_processor(void) {
#ifdef __linux__
  return sched_getcpu();
#else
  return -1;
#endif
}

bool hr_thread_move(const int *avoided, int count, hr_thread_places *places) {
#ifdef __linux__
  cpu_set_t now;
  if (sched_getaffinity(0, sizeof now, &now) != 0) {
    return false; /* more processors than the set has room for */
  }
  cpu_set_t wanted = places->has_moved ? places->before : now;
  for (int i = 0; i < count; ++i) {
    if (avoided[i] >= 0 && avoided[i] < CPU_SETSIZE) {
      CPU_CLR((size_t)avoided[i], &wanted);
    }
  }
  if (CPU_COUNT(&wanted) == 0 || sched_setaffinity(0, sizeof wanted, &wanted) != 0) {
    return false;
  }
  if (!places->has_moved) {
    *places = (hr_thread_places){.has_moved = true, .before = now};
  }
  return true;
#else
  (void)avoided, (void)count, (void)places;
  return false;
#endif
}

void hr_thread_move_end(hr_thread_places *places) {
#ifdef __linux__
  if (places->has_moved) {
    (void)sched_setaffinity(0, sizeof places->before, &places->before);
  }
#endif
  places->has_moved = false;
}

int64_t hr_clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int hr_core_count(void) {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) {
    return CPU_COUNT(&set);
  }
#endif
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? (int)online : 1;
}

int hr_local_ranks(void) {
  long ranks = strtol(hr_env_system("LOCAL_WORLD_SIZE"), NULL, 10);
  return ranks > 1 && ranks <= HR_THREADS_MAX ? (int)ranks : 1;
}
