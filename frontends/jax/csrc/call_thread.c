/* call_thread.c: see call_thread.h. */
#include "call_thread.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

typedef struct call {
  void (*function)(void *arg);
  void *arg;
  struct call *next;
} call;

static struct {
  pthread_mutex_t lock;
  pthread_cond_t posted;
  call *first, **end;
  bool is_running;
} thread = {.lock = PTHREAD_MUTEX_INITIALIZER, .posted = PTHREAD_COND_INITIALIZER};

static void *run(void *arg) {
  (void)arg;
  pthread_mutex_lock(&thread.lock);
  for (;;) {
    while (thread.first == NULL) {
      pthread_cond_wait(&thread.posted, &thread.lock);
    }
    call *next = thread.first;
    thread.first = next->next;
    pthread_mutex_unlock(&thread.lock);
    next->function(next->arg);
    free(next);
    pthread_mutex_lock(&thread.lock);
  }
  return NULL;
}

/* The parent's calls are the parent's. */
static void begin_in_child(void) {
  pthread_mutex_init(&thread.lock, NULL);
  pthread_cond_init(&thread.posted, NULL);
  thread.first = NULL, thread.is_running = false;
}

/* With the lock. */
static bool begin(void) {
  static bool is_watched;
  pthread_t id;
  if (!is_watched) {
    is_watched = pthread_atfork(NULL, NULL, begin_in_child) == 0;
  }
  if (!thread.is_running && pthread_create(&id, NULL, run, NULL) == 0) {
    pthread_detach(id);
    thread.is_running = true;
  }
  return thread.is_running;
}

void hrj_call_later(void (*function)(void *arg), void *arg) {
  call *made = malloc(sizeof *made);
  pthread_mutex_lock(&thread.lock);
  bool is_posted = made != NULL && begin();
  if (is_posted) {
    *made = (call){function, arg, NULL};
    if (thread.first == NULL) {
      thread.end = &thread.first;
    }
    *thread.end = made, thread.end = &made->next;
    pthread_cond_signal(&thread.posted);
  }
  pthread_mutex_unlock(&thread.lock);
  if (!is_posted) {
    free(made);
    function(arg);
  }
}
