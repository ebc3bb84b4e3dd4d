/* narrow_words_test.c: narrow words are the words that they were made of, and no others. */
#include "engine/narrow_words.h"

#include <string.h>

#include "hr_test.h"

#include "base/allocator.h"

enum { COUNT = 67 };

static void fill(uint64_t *words, uint64_t seed) {
  for (int i = 0; i < COUNT; ++i) {
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    words[i] = seed >> (seed % 5 == 0 ? 0 : 33);
  }
}

HR_TEST(each_word_counts_and_comes_back) {
  uint64_t words[COUNT], other[COUNT];
  for (uint64_t seed = 1; seed < 20; ++seed) {
    fill(words, seed);
    words[COUNT - 1] = seed % 2 == 0 ? UINT64_MAX : 0, words[0] = seed % 3 == 0 ? UINT64_C(1) << 32 : UINT32_MAX;
    hr_narrow_words *narrow = hr__narrow_words_make(COUNT, words);
    HR_ASSERT_NOT_NULL(narrow);
    HR_ASSERT(hr__narrow_words_bytes(narrow) < sizeof words);
    HR_ASSERT(hr__narrow_words_are(narrow, COUNT, words) && !hr__narrow_words_are(narrow, COUNT - 1, words));
    hr__narrow_words_copy(narrow, other);
    HR_ASSERT(memcmp(other, words, sizeof words) == 0);
    for (int i = 0; i < COUNT * 64; ++i) { /* each bit */
      memcpy(other, words, sizeof words);
      other[i / 64] ^= UINT64_C(1) << i % 64;
      HR_ASSERT(!hr__narrow_words_are(narrow, COUNT, other));
    }
    hr_free(narrow);
  }
}

HR_TEST(no_words_are_equal_to_no_words) {
  uint64_t word = 5;
  hr_narrow_words *narrow = hr__narrow_words_make(0, &word);
  HR_ASSERT(hr__narrow_words_are(narrow, 0, &word) && !hr__narrow_words_are(narrow, 1, &word));
  hr_free(narrow);
  hr__allocator_fail_after(0);
  HR_ASSERT_NULL(hr__narrow_words_make(1, &word));
  hr__allocator_fail_after(-1);
}
