/* interned_test.c: equal blocks are one, unequal ones are not, and they are freed in any order, by any thread. */
#include "base/interned.h"

#include <string.h>

#include "base/allocator.h"
#include "base/thread.h"
#include "hr_test.h"

HR_TEST(equal_bytes_are_one_block) {
  char a[100] = "steps", b[100] = "steps", c[100] = "steps";
  c[99] = 1;
  const char *first = hr_interned_acquire(a, sizeof a), *second = hr_interned_acquire(b, sizeof b);
  HR_ASSERT(first != NULL && first == second && first != a);
  HR_ASSERT(memcmp(first, a, sizeof a) == 0);
  size_t alone = hr_interned_share(hr_interned_acquire(c, sizeof c)), shared = hr_interned_share(first);
  HR_ASSERT_EQ(shared, alone / 2);
  HR_ASSERT_EQ(hr_interned_count(), 2);
  const char *third = hr_interned_acquire(c, sizeof c), *part = hr_interned_acquire(a, sizeof a - 1);
  HR_ASSERT(third != first && part != first && memcmp(third, c, sizeof c) == 0);
  HR_ASSERT_EQ(hr_interned_count(), 3);
  hr_interned_retain(first);
  hr_interned_release(first);
  hr_interned_release(first);
  HR_ASSERT(memcmp(second, b, sizeof b) == 0);
  hr_interned_release(third);
  hr_interned_release(third);
  hr_interned_release(second);
  hr_interned_release(part);
  hr_interned_release(NULL);
  HR_ASSERT_EQ(hr_interned_count(), 0);
}

HR_TEST(a_block_needs_memory_once) {
  const char bytes[] = "registers";
  for (int fail = 0; fail < 2; ++fail) {
    hr__allocator_fail_after(fail);
    HR_ASSERT_NULL(hr_interned_acquire(bytes, sizeof bytes));
    hr__allocator_fail_after(-1);
    HR_ASSERT_EQ(hr_interned_count(), 0);
  }
  const void *first = hr_interned_acquire(bytes, sizeof bytes);
  hr__allocator_fail_after(0);
  HR_ASSERT(hr_interned_acquire(bytes, sizeof bytes) == first);
  hr__allocator_fail_after(-1);
  hr_interned_release(first);
  hr_interned_release(first);
}

enum { KINDS = 7, ROUNDS = 3000, HELD = 5 };

static void hold_and_release(void *arg, int64_t begin, int64_t end, int worker) {
  (void)arg, (void)worker;
  const int *held[HELD] = {NULL};
  for (int64_t i = begin * ROUNDS; i < end * ROUNDS; ++i) {
    const int words[4] = {(int)(i * 31 % KINDS), 1, 2, 3};
    const int **place = &held[i * 13 % HELD];
    hr_interned_release(*place);
    *place = hr_interned_acquire(words, sizeof words);
    HR_ASSERT(*place != NULL && (*place)[0] == words[0] && hr_interned_share(*place) > 0);
  }
  for (int i = 0; i < HELD; ++i) {
    hr_interned_release(held[i]);
  }
}

HR_TEST(threads_share_blocks) {
  hr_parallel_for(8, 1, hold_and_release, NULL);
  HR_ASSERT_EQ(hr_interned_count(), 0);
}
