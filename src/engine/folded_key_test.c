/* folded_key_test.c: a folded key fits the key that it was made of, and no other, and gives its lists back. */
#include "engine/folded_key.h"

#include <string.h>

#include "hr_test.h"

#include "base/allocator.h"

enum { WORDS = 300, LOCALS = 90, BUFFERS = 300 };

typedef struct lists {
  uint64_t words[WORDS], shapes[BUFFERS];
  uint32_t locals[LOCALS];
} lists;

/* `largest`: the number of a buffer, and of distinct shapes. */
static hr_key fill(lists *l, uint32_t largest) {
  for (uint32_t i = 0; i < WORDS; ++i) {
    l->words[i] = i % 11 * UINT64_C(0x100000001);
  }
  for (uint32_t i = 0; i < BUFFERS; ++i) {
    l->shapes[i] = hr_shape_word((size_t)(i % (largest < 7 ? 3 : BUFFERS)) << 33, i % 2 == 0, false, true);
  }
  for (uint32_t i = 0; i < LOCALS; ++i) {
    l->locals[i] = i == 40 ? largest : i % 5;
  }
  return (hr_key){.record_count = 5,
                  .word_count = WORDS,
                  .local_count = LOCALS,
                  .buffer_count = BUFFERS,
                  .words = l->words,
                  .locals = l->locals,
                  .shapes = l->shapes};
}

HR_TEST(each_list_counts_and_comes_back) {
  static const uint32_t largest[] = {3, 300, 70000};
  for (size_t k = 0; k < sizeof largest / sizeof *largest; ++k) {
    static lists l;
    hr_key key = fill(&l, largest[k]), other = key;
    hr_folded_key folded;
    HR_ASSERT(hr__folded_key_make(&key, &folded) && hr__folded_key_fits(&folded, &key));
    uint64_t *block = hr__folded_key_unfold(&folded, &other);
    HR_ASSERT_NOT_NULL(block);
    HR_ASSERT(memcmp(other.words, l.words, sizeof l.words) == 0 &&
              memcmp(other.shapes, l.shapes, sizeof l.shapes) == 0 &&
              memcmp(other.locals, l.locals, sizeof l.locals) == 0);
    hr_free(block);
    for (size_t i = 0; i < BUFFERS; ++i) {
      HR_ASSERT_EQ(hr__folded_words_at(folded.shapes, i), l.shapes[i]);
      l.shapes[i] ^= 1;
      HR_ASSERT(!hr__folded_key_fits(&folded, &key));
      l.shapes[i] ^= 1;
    }
    l.locals[LOCALS - 1] ^= UINT32_C(1) << 31;
    HR_ASSERT(!hr__folded_key_fits(&folded, &key));
    l.locals[LOCALS - 1] ^= UINT32_C(1) << 31;
    l.words[WORDS - 1] ^= UINT64_C(1) << 63;
    HR_ASSERT(!hr__folded_key_fits(&folded, &key));
    l.words[WORDS - 1] ^= UINT64_C(1) << 63;
    other = key, other.buffer_count--;
    HR_ASSERT(hr__folded_key_fits(&folded, &key) && !hr__folded_key_fits(&folded, &other));
    hr__folded_key_fini(&folded);
  }
}

HR_TEST(a_folded_key_is_a_part_of_its_size) {
  static lists l;
  hr_key key = fill(&l, 3);
  hr_folded_key folded;
  HR_ASSERT(hr__folded_key_make(&key, &folded));
  HR_ASSERT(hr__folded_key_bytes(&folded) < sizeof l / 8);
  hr__folded_key_fini(&folded);
}

HR_TEST(each_failing_allocation_leaves_none) {
  static lists l;
  hr_key key = fill(&l, 3);
  hr_folded_key folded = {0};
  int64_t before = hr__allocator_live();
  int allowed = 0;
  for (bool made = false; !made; ++allowed) {
    hr__allocator_fail_after(allowed);
    made = hr__folded_key_make(&key, &folded);
    hr__allocator_fail_after(-1);
    HR_ASSERT(made || hr__allocator_live() == before);
  }
  HR_ASSERT(allowed > 3 && hr__folded_key_fits(&folded, &key));
  hr__folded_key_fini(&folded);
  HR_ASSERT_EQ(hr__allocator_live(), before);
}
