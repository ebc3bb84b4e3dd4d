/* Work that is put off: it is done once, by the thread or not at all, and a claim waits for it. */
#include "hr_test.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/context.h"
#include "base/late.h"
#include "base/thread.h"

typedef struct item {
  hr_late late;
  atomic_int made;
  atomic_bool *gate; /* its making lasts until this is true */
} item;

static void make_item(void *arg) {
  item *i = arg;
  while (i->gate != NULL && !atomic_load(i->gate)) {
    hr_thread_relax();
  }
  atomic_fetch_add(&i->made, 1);
}

HR_TEST(late_work_is_done_once_or_never) {
  enum { ITEMS = 1000 };
  static item items[ITEMS];
  hr_thread_count_set(2);
  for (int i = 0; i < ITEMS; ++i) {
    hr__late_begin(&items[i].late, make_item, &items[i]);
  }
  for (int i = ITEMS - 1; i >= 0; --i) {
    hr__late_claim(&items[i].late);
    int made = atomic_load(&items[i].made);
    HR_ASSERT(made == 0 || made == 1);
    hr__late_claim(&items[i].late); /* again does nothing */
  }
  for (int i = 0; i < ITEMS; ++i) {
    HR_ASSERT(atomic_load(&items[i].made) <= 1);
  }
  hr_thread_count_set(0);
}

HR_TEST(late_claims_wait_for_the_thread) {
  if (hr_core_count() == 1) {
    return;
  }
  atomic_bool gate = false;
  item first = {.gate = &gate}, second = {0};
  hr_late_counts before, after;
  hr_thread_count_set(2);
  hr__late_count(&before);
  hr__late_begin(&first.late, make_item, &first);
  hr__late_begin(&second.late, make_item, &second);
  hr__late_claim(&second.late); /* the thread is busy, or has not begun: it was taken off the list */
  HR_ASSERT_EQ(atomic_load(&second.made), 0);
  atomic_store(&gate, true);
  while (atomic_load(&first.made) == 0) { /* the thread does it without a claim */
    hr_thread_relax();
  }
  hr__late_claim(&first.late);
  hr__late_note(5);
  hr__late_count(&after);
  HR_ASSERT_EQ(atomic_load(&first.made), 1);
  HR_ASSERT(after.made_ns > before.made_ns && after.waited_ns >= before.waited_ns + 5);
  hr_thread_count_set(0);
}

HR_TEST(late_work_waits_for_its_claim_on_one_thread) {
  hr_context *context = NULL;
  HR_ASSERT_OK(hr__context_create(&context));
  hr_context *before = hr__context_enter(context);
  item only = {0};
  hr_thread_count_set(1);
  hr__late_begin(&only.late, make_item, &only);
  hr__late_claim(&only.late);
  HR_ASSERT_EQ(atomic_load(&only.made), 0);
  hr_thread_count_set(0);
  (void)hr__context_enter(before);
  hr__context_destroy(context);
}

HR_TEST(late_work_of_a_context_ends_with_it) {
  hr_context *context = NULL;
  item items[16] = {0};
  HR_ASSERT_OK(hr__context_create(&context));
  hr_context *before = hr__context_enter(context);
  hr_thread_count_set(2);
  for (int i = 0; i < 16; ++i) {
    hr__late_begin(&items[i].late, make_item, &items[i]);
  }
  for (int i = 0; i < 16; ++i) {
    hr__late_claim(&items[i].late);
  }
  hr_thread_count_set(0);
  (void)hr__context_enter(before);
  hr__context_destroy(context);
}

/* A child has no thread: what waits is claimed there, and a new thread starts with new work. */
HR_TEST(late_work_can_be_claimed_in_a_forked_child) {
#ifdef __SANITIZE_THREAD__
  HR_SKIP("the sanitizer lets no child of a process with threads start its own");
#endif
  atomic_bool gate = true;
  item items[8] = {0}, later = {.gate = &gate};
  hr_thread_count_set(2);
  for (int i = 0; i < 8; ++i) {
    hr__late_begin(&items[i].late, make_item, &items[i]);
  }
  pid_t child = fork();
  if (child == 0) {
    for (int i = 0; i < 8; ++i) {
      hr__late_claim(&items[i].late);
    }
    hr__late_begin(&later.late, make_item, &later);
    hr__late_claim(&later.late);
    _exit(0);
  }
  int how = -1;
  HR_ASSERT(child > 0 && waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 0);
  for (int i = 0; i < 8; ++i) {
    hr__late_claim(&items[i].late);
  }
  hr_thread_count_set(0);
}
