/* Contexts: parts, their order, settings of their own, threads. */
#include "hr_test.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/allocator.h"
#include "base/context.h"
#include "base/env.h"
#include "base/log.h"
#include "base/thread.h"

typedef struct counter {
  int value;
} counter;

/* The calls that this test's parts received, in order. */
typedef struct history {
  char text[64];
} history;

static history happened;

static void note(const char *what) {
  strncat(happened.text, what, sizeof happened.text - strlen(happened.text) - 1);
}

static void init_first(void *part) {
  ((counter *)part)->value = 7;
  note("init1 ");
}

static void stop_first(void *part) {
  (void)part;
  note("stop1 ");
}

static void fini_first(void *part) {
  (void)part;
  note("fini1 ");
}

static const hr_context_part first_kind = {
    .bytes = sizeof(counter), .init = init_first, .stop = stop_first, .fini = fini_first};

/* Uses the first part. */
static void init_second(void *part) {
  counter *first = hr__context_part(hr__context(), HR_CONTEXT_TUNING, &first_kind);
  ((counter *)part)->value = first->value + 1;
  note("init2 ");
}

static void stop_second(void *part) {
  (void)part;
  note("stop2 ");
}

static void fini_second(void *part) {
  (void)part;
  note("fini2 ");
}

static const hr_context_part second_kind = {
    .bytes = sizeof(counter), .init = init_second, .stop = stop_second, .fini = fini_second};

HR_TEST(parts_are_made_once_and_end_in_reverse_order) {
  int64_t live = hr__allocator_live();
  hr_context *context;
  happened.text[0] = 0;
  HR_ASSERT_OK(hr__context_create(&context));
  hr_context *before = hr__context_enter(context);
  counter *second = hr__context_part(context, HR_CONTEXT_KERNELS, &second_kind);
  counter *first = hr__context_part(context, HR_CONTEXT_TUNING, &first_kind);
  HR_ASSERT_EQ(first->value, 7);
  HR_ASSERT_EQ(second->value, 8);
  HR_ASSERT(hr__context_part(context, HR_CONTEXT_KERNELS, &second_kind) == second);
  hr__context_enter(before);
  hr__context_destroy(context);
  HR_ASSERT_STR_EQ(happened.text, "init1 init2 stop2 stop1 fini2 fini1 ");
  HR_ASSERT_EQ(hr__allocator_live(), live);
}

static const hr_context_part large_kind = {.bytes = HR_CONTEXT_BYTES};

/* Release builds end as well: the bytes behind a context hold other state. */
HR_TEST(parts_beyond_the_end_end_the_process) {
  pid_t child = fork();
  if (child == 0) {
    hr_context *context = NULL;
    hr_status_ignore(hr__context_create(&context));
    (void)(context != NULL && hr__context_part(context, HR_CONTEXT_TUNING, &large_kind) != NULL &&
           hr__context_part(context, HR_CONTEXT_KERNELS, &large_kind) != NULL);
    _exit(0);
  }
  int state = 0;
  HR_ASSERT(waitpid(child, &state, 0) == child);
  HR_ASSERT(WIFSIGNALED(state) && WTERMSIG(state) == SIGABRT);
}

HR_TEST(each_context_reads_the_environment_for_itself) {
  hr_context *a, *b;
  hr_context *before = hr__context();
  HR_ASSERT_OK(hr__context_create(&a));
  HR_ASSERT_OK(hr__context_create(&b));
  setenv("HEADRACE_PENDING_OPS", "11", 1);
  setenv("HEADRACE_DEBUG", "2", 1);
  hr__context_enter(a);
  HR_ASSERT_EQ(hr_env_int(HR_ENV_PENDING_OPS), 11);
  HR_ASSERT(hr_log_is_on(HR_LOG_KERNEL));
  setenv("HEADRACE_PENDING_OPS", "22", 1);
  setenv("HEADRACE_DEBUG", "0", 1);
  hr__context_enter(b);
  HR_ASSERT_EQ(hr_env_int(HR_ENV_PENDING_OPS), 22);
  HR_ASSERT(!hr_log_is_on(HR_LOG_KERNEL));
  hr__context_enter(a);
  HR_ASSERT_EQ(hr_env_int(HR_ENV_PENDING_OPS), 11);
  hr__context_enter(before);
  hr__context_destroy(a);
  hr__context_enter(b);
  HR_ASSERT_EQ(hr_env_int(HR_ENV_PENDING_OPS), 22);
  hr__context_enter(before);
  hr__context_destroy(b);
  hr__context_destroy(NULL);
  unsetenv("HEADRACE_PENDING_OPS");
  unsetenv("HEADRACE_DEBUG");
}

static void note_context(void *arg) {
  *(hr_context **)arg = hr__context();
}

HR_TEST(threads_inherit_the_context) {
  hr_context *context, *seen = NULL;
  hr_thread thread;
  HR_ASSERT_OK(hr__context_create(&context));
  hr_context *before = hr__context_enter(context);
  HR_ASSERT(before == &hr__context_first);
  HR_ASSERT_OK(hr_thread_start("context", note_context, &seen, &thread));
  hr_thread_join(&thread);
  HR_ASSERT(seen == context);
  hr__context_enter(before);
  hr__context_destroy(context);
}

HR_TEST(contexts_survive_lack_of_memory) {
  hr_context *context;
  for (int allocations = 0; allocations < 2; ++allocations) {
    hr__allocator_fail_after(allocations);
    hr_status status = hr__context_create(&context);
    hr__allocator_fail_after(-1);
    HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_RESOURCE_EXHAUSTED);
    hr_status_ignore(status);
  }
}
