/* Places in memory: each span gets the lowest one, as a search among all spans finds it. */
#include <stdlib.h>

#include "compiler/occupied.h"
#include "hr_test.h"

enum { SPANS_MAX = 2000 };

static hr_span spans[SPANS_MAX];

static bool overlap(const hr_span *a, size_t offset, const hr_span *b) {
  return a->first <= b->last && b->first <= a->last && b->bytes > 0 && a->bytes > 0 && offset < b->offset + b->bytes &&
         b->offset < offset + a->bytes;
}

/* 0, or the end of a placed span: the lowest of these at which the span overlaps none. */
static size_t expected_offset(const hr_span *placed, int count, const hr_span *next) {
  size_t best = SIZE_MAX;
  for (int c = -1; c < count; ++c) {
    size_t offset = c < 0 ? 0 : placed[c].offset + placed[c].bytes;
    bool fits = offset < best;
    for (int k = 0; fits && k < count; ++k) {
      fits = !overlap(next, offset, &placed[k]);
    }
    best = fits ? offset : best;
  }
  return best;
}

static void check_all(int count) {
  hr_occupied occupied;
  HR_ASSERT(hr_occupied_init(&occupied, (size_t)count));
  for (int k = 0; k < count; ++k) {
    hr_occupied_place(&occupied, &spans[k]);
    HR_ASSERT_EQ(spans[k].offset, expected_offset(spans, k, &spans[k]));
  }
  hr_occupied_fini(&occupied);
}

/* Largest first, as the pass does, and in any order. */
HR_TEST(random_spans_get_the_lowest_place) {
  unsigned state = 7;
  for (int round = 0; round < 24; ++round) {
    int count = round % 3 == 0 ? 40 : 400, times = 1 + 10 * round, longest = 1 + round % 8 * 12;
    for (int k = 0; k < count; ++k) {
      int first = rand_r(&state) % times;
      size_t bytes = 64 * (size_t)(1 + (round % 2 == 0 ? (count - k) / 50 : rand_r(&state) % 9));
      spans[k] = (hr_span){(uint32_t)k, first, first + rand_r(&state) % longest, bytes, 0};
    }
    check_all(count);
  }
}

/* Activations of a training step live from their forward cell to its backward one; temporaries die in their cell. */
HR_TEST(nested_spans_of_many_cells_get_the_lowest_place) {
  enum { CELLS = 300 };
  int count = 0;
  for (int size = 3; size >= 1; --size) {
    for (int t = 0; t < CELLS; ++t) {
      spans[count++] = (hr_span){.first = 2 * t, .last = 4 * CELLS - 2 * t, .bytes = 64 * (size_t)size};
      spans[count++] = (hr_span){.first = 4 * CELLS - 2 * t, .last = 4 * CELLS - 2 * t + 1, .bytes = 64 * (size_t)size};
    }
  }
  check_all(count);
}

HR_TEST(one_span_begins_at_zero) {
  spans[0] = (hr_span){.first = 0, .last = 0, .bytes = 64, .offset = 5};
  check_all(1);
  HR_ASSERT_EQ(spans[0].offset, 0);
}
