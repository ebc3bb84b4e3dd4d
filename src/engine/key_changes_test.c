/* key_changes_test.c: a key kept as its differences from another one fits the same keys as before. */
#include "engine/key_changes.h"

#include <string.h>

#include "hr_test.h"

#include "base/allocator.h"

enum { WORDS = 9, LOCALS = 2, BUFFERS = 2 };

static const uint64_t base_words[WORDS] = {UINT64_C(1) << 32 | 7, 1, 200, 8, 1, 200, 8, (uint64_t)-8, 5};
static const uint32_t base_locals[LOCALS] = {0, 1};

static hr_key key_of(const uint64_t *words) {
  return (hr_key){.record_count = 1,
                  .word_count = WORDS,
                  .local_count = LOCALS,
                  .buffer_count = BUFFERS,
                  .words = words,
                  .locals = base_locals};
}

HR_TEST(changes_fit_the_key_that_they_were_made_of_and_no_other) {
  uint64_t words[WORDS], other[WORDS], back[WORDS];
  memcpy(words, base_words, sizeof words);
  words[2] = words[5] = 101, words[8] = 0;
  hr_key base = key_of(base_words), key = key_of(words), changed = key_of(other);
  hr_key_changes changes;
  HR_ASSERT(hr__key_changes_make(&base, &key, &changes));
  HR_ASSERT_EQ(changes.count, 3);
  HR_ASSERT(hr__key_changes_fit(&base, &changes, &key));
  HR_ASSERT(!hr__key_changes_fit(&base, &changes, &base));
  for (int i = 0; i < WORDS; ++i) { /* no word is left out, nor half of one */
    for (int bit = 0; bit < 64; bit += 63) {
      memcpy(other, words, sizeof other);
      other[i] ^= UINT64_C(1) << bit;
      HR_ASSERT(!hr__key_changes_fit(&base, &changes, &changed));
    }
  }
  hr__key_changes_apply(&base, &changes, back);
  HR_ASSERT(memcmp(back, words, sizeof back) == 0);
  hr__key_changes_fini(&changes);
}

HR_TEST(equal_keys_have_no_changes) {
  hr_key base = key_of(base_words);
  hr_key_changes changes;
  HR_ASSERT(hr__key_changes_make(&base, &base, &changes));
  HR_ASSERT_EQ(changes.count, 0);
  HR_ASSERT(hr__key_changes_fit(&base, &changes, &base));
  hr__key_changes_fini(&changes);
}

HR_TEST(keys_that_have_no_such_form_stay_whole) {
  static const uint32_t other_locals[LOCALS] = {0, 0};
  uint64_t words[WORDS];
  memcpy(words, base_words, sizeof words);
  hr_key base = key_of(base_words), key = key_of(words);
  hr_key_changes changes;
  words[3] = UINT64_C(1) << 32;
  HR_ASSERT(!hr__key_changes_make(&base, &key, &changes));
  words[3] = 9;
  key.locals = other_locals;
  HR_ASSERT(!hr__key_changes_make(&base, &key, &changes));
  key.locals = base_locals;
  key.buffer_count = 1;
  HR_ASSERT(!hr__key_changes_make(&base, &key, &changes));
  key.buffer_count = BUFFERS;
  hr__allocator_fail_after(0);
  HR_ASSERT(!hr__key_changes_make(&base, &key, &changes));
  hr__allocator_fail_after(-1);
}
