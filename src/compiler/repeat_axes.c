/* repeat_axes.c: numbers of buffers, scalars and records in the whole program and in the short one. */
#include "compiler/repeat.h"

uint32_t hr_repeat_shorten(const hr_repeats *repeats, hr_axis axis, uint32_t number) {
  uint32_t removed = 0;
  for (int r = 0; r < repeats->count; ++r) {
    const hr_repeat_span *span = &repeats->all[r].spans[axis];
    uint32_t begin = span->first + span->size * (uint32_t)repeats->head,
             count = span->size * (uint32_t)repeats->dropped;
    if (number < begin) {
      break;
    }
    if (number < begin + count) {
      return HR_REMOVED;
    }
    removed += count;
  }
  return number - removed;
}

uint32_t hr_repeat_lengthen(const hr_repeats *repeats, hr_axis axis, uint32_t number) {
  for (int r = 0; r < repeats->count; ++r) {
    const hr_repeat_span *span = &repeats->all[r].spans[axis];
    if (number < span->first + span->size * (uint32_t)repeats->head) {
      break;
    }
    number += span->size * (uint32_t)repeats->dropped;
  }
  return number;
}

hr_member hr_repeat_find_member(const hr_repeats *repeats, hr_axis axis, uint32_t number) {
  uint32_t removed = 0;
  for (int r = 0; r < repeats->count; ++r) {
    const hr_repeat_span *span = &repeats->all[r].spans[axis];
    uint32_t first = span->first - removed, count = span->size * (uint32_t)hr_repeat_kept(repeats, r);
    if (number >= first && number < first + count) {
      return (hr_member){r, (int)((number - first) / span->size)};
    }
    removed += span->size * (uint32_t)repeats->dropped;
  }
  return (hr_member){-1, 0};
}

bool hr_repeat_buffers_match(const hr_program_buffer *a, const hr_program_buffer *b) {
  return a->bytes == b->bytes && a->layout == b->layout && a->rows == b->rows && a->room == b->room &&
         a->growth == b->growth && a->takes == b->takes && a->is_dead == b->is_dead && a->is_fresh == b->is_fresh &&
         a->is_free == b->is_free && a->is_refused == b->is_refused;
}
