/* folded_words_test.c: folded words are the words that they were made of, and no others. */
#include "engine/folded_words.h"

#include <string.h>

#include "hr_test.h"

#include "base/allocator.h"

enum { COUNT = 267 };

/* New words, copies from near and far, and runs of one word, which overlap their source. */
static void fill(uint64_t *words, size_t count, uint64_t seed) {
  for (size_t i = 0; i < count; ++i) {
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    size_t distance = 1 + (size_t)(seed >> 33) % 9;
    words[i] = i >= distance && seed >> 61 != 0 ? words[i - distance] : seed >> (seed % 5 == 0 ? 0 : 33);
  }
}

HR_TEST(each_word_counts_and_comes_back) {
  uint64_t words[COUNT], other[COUNT];
  for (uint64_t seed = 1; seed < 12; ++seed) {
    fill(words, COUNT, seed);
    words[COUNT - 1] = seed % 2 == 0 ? UINT64_MAX : 0, words[0] = seed % 3 == 0 ? UINT64_C(1) << 32 : UINT32_MAX;
    hr_folded_words *folded = hr__folded_words_make(COUNT, words);
    HR_ASSERT_NOT_NULL(folded);
    HR_ASSERT(hr__folded_words_are(folded, COUNT, words) && !hr__folded_words_are(folded, COUNT - 1, words));
    hr__folded_words_copy(folded, other);
    HR_ASSERT(memcmp(other, words, sizeof words) == 0);
    for (size_t i = 0; i < COUNT; ++i) {
      HR_ASSERT_EQ(hr__folded_words_at(folded, i), words[i]);
    }
    for (int i = 0; i < COUNT * 64; ++i) { /* each bit */
      memcpy(other, words, sizeof words);
      other[i / 64] ^= UINT64_C(1) << i % 64;
      HR_ASSERT(!hr__folded_words_are(folded, COUNT, other));
    }
    hr_free(folded);
  }
}

HR_TEST(runs_longer_than_a_fold_come_back) {
  enum { LONG = 150000 };
  uint64_t *words = hr_malloc(LONG * sizeof *words), *other = hr_malloc(LONG * sizeof *words);
  HR_ASSERT(words != NULL && other != NULL);
  for (int is_new = 0; is_new < 2; ++is_new) {
    for (int i = 0; i < LONG; ++i) {
      words[i] = is_new ? (uint64_t)i * UINT64_C(0x9E3779B97F4A7C15) : 7;
    }
    hr_folded_words *folded = hr__folded_words_make(LONG, words);
    HR_ASSERT_NOT_NULL(folded);
    HR_ASSERT(folded->fold_count <= 4 && folded->new_count == (is_new ? LONG : 1));
    hr__folded_words_copy(folded, other);
    HR_ASSERT(memcmp(other, words, LONG * sizeof *words) == 0);
    for (size_t i = 0; i < LONG; i += 997) {
      HR_ASSERT_EQ(hr__folded_words_at(folded, i), words[i]);
    }
    HR_ASSERT(hr__folded_words_are(folded, LONG, words));
    words[LONG - 1] ^= 1;
    HR_ASSERT(!hr__folded_words_are(folded, LONG, words));
    hr_free(folded);
  }
  hr_free(words);
  hr_free(other);
}

HR_TEST(operands_that_repeat_take_a_tenth) {
  enum { OPERANDS = 500, WORDS = 10 };
  uint64_t words[OPERANDS * WORDS];
  for (int i = 0; i < OPERANDS * WORDS; ++i) {
    words[i] = (uint64_t)(i % WORDS) * 100 + (i % WORDS == 0 ? (uint64_t)(i / WORDS % 5) : 0);
  }
  hr_folded_words *folded = hr__folded_words_make(OPERANDS * WORDS, words);
  HR_ASSERT_NOT_NULL(folded);
  HR_ASSERT(hr__folded_words_bytes(folded) < sizeof words / 10);
  hr_free(folded);
}

HR_TEST(no_words_are_equal_to_no_words) {
  uint64_t word = 5;
  hr_folded_words *folded = hr__folded_words_make(0, &word);
  HR_ASSERT(hr__folded_words_are(folded, 0, &word) && !hr__folded_words_are(folded, 1, &word));
  hr_free(folded);
  for (int allowed = 0; allowed < 2; ++allowed) {
    hr__allocator_fail_after(allowed);
    HR_ASSERT_NULL(hr__folded_words_make(1, &word));
  }
  hr__allocator_fail_after(-1);
}
