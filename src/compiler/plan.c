/* plan.c: places every buffer.
 *
 * A buffer that the caller can see, or that had contents, is bound to the caller's memory. A buffer that dies inside
 * the program gets an offset in one arena. Largest first, each gets the lowest offset at which it overlaps no buffer
 * that is live at the same time. The same program always gives the same offsets.
 */
#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "compiler/passes.h"

enum { ALIGNMENT_BITS = 6, ALIGNMENT = 1 << ALIGNMENT_BITS };

typedef struct span {
  uint32_t buffer;
  int first, last;
  size_t bytes, offset;
} span;

/* Sorts by size, largest first; spans of one size keep their order. By digits of the size, from the lowest: comparing
 * sizes would mostly be guessing branches wrong. `spare` has room for as many. */
static void sort_spans(span *spans, span *spare, size_t count) {
  enum { BITS = 6, DIGITS = 1 << BITS };
  size_t most = 0;
  for (size_t k = 0; k < count; ++k) {
    most = spans[k].bytes > most ? spans[k].bytes : most;
  }
  for (int shift = ALIGNMENT_BITS; most >> shift != 0; shift += BITS) {
    size_t next[DIGITS + 1] = {0}; /* the place of each digit's next span, largest digits first */
    for (size_t k = 0; k < count; ++k) {
      ++next[DIGITS - (spans[k].bytes >> shift) % DIGITS];
    }
    for (int d = 0; d < DIGITS; ++d) {
      next[d + 1] += next[d];
    }
    for (size_t k = 0; k < count; ++k) {
      spare[next[DIGITS - 1 - (spans[k].bytes >> shift) % DIGITS]++] = spans[k];
    }
    memcpy(spans, spare, count * sizeof *spans);
  }
}

/* A span that has its place. */
typedef struct placed {
  int first, last;
  size_t offset, end;
} placed;

/* The lowest offset at which the span fits. `list` is in order of offset. Most spans in it are apart in time: whether
 * one is decides no branch. */
static size_t find_gap(const placed *list, size_t count, const span *next) {
  size_t offset = 0;
  for (size_t k = 0; k < count; ++k) {
    const placed *other = &list[k];
    bool meets = (other->last >= next->first) & (next->last >= other->first);
    if (meets & (other->offset >= offset + next->bytes)) {
      break;
    }
    size_t end = meets ? other->end : 0;
    offset = end > offset ? end : offset;
  }
  return offset;
}

static void insert(placed *list, size_t count, const span *next) {
  size_t low = 0, end = count;
  while (low < end) {
    size_t middle = low + (end - low) / 2;
    if (list[middle].offset <= next->offset) {
      low = middle + 1;
    } else {
      end = middle;
    }
  }
  memmove(&list[low + 1], &list[low], (count - low) * sizeof *list);
  list[low] = (placed){next->first, next->last, next->offset, next->offset + next->bytes};
}

static hr_status place_spans(span *spans, size_t count, size_t *out_bytes) {
  placed *list = hr_malloc((count + 1) * sizeof *list);
  span *spare = hr_malloc((count + 1) * sizeof *spare);
  if (list == NULL || spare == NULL) {
    hr_free(list);
    hr_free(spare);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "plan: no memory for %zu temporaries", count);
  }
  sort_spans(spans, spare, count);
  *out_bytes = 0;
  for (size_t k = 0; k < count; ++k) {
    spans[k].offset = find_gap(list, k, &spans[k]);
    insert(list, k, &spans[k]);
    size_t end = spans[k].offset + spans[k].bytes;
    *out_bytes = end > *out_bytes ? end : *out_bytes;
  }
  hr_free(list);
  hr_free(spare);
  return HR_OK;
}

static void find_place(const hr_program *program, const hr_liveness *liveness, int b, hr_place *place) {
  const hr_program_buffer *buffer = &program->buffers[b];
  bool is_used = liveness->group_first[b] >= 0 && !liveness->is_elided[b];
  *place = (hr_place){.kind = !is_used                              ? HR_PLACE_NONE
                              : buffer->is_dead && buffer->is_fresh ? HR_PLACE_ARENA
                                                                    : HR_PLACE_BOUND,
                      .first = liveness->group_first[b],
                      .last = liveness->group_last[b],
                      .bytes = buffer->bytes};
}

hr_status hr_place_buffers(hr_schedule *schedule) {
  int buffers = schedule->program.buffer_count;
  hr_place *places = (hr_place *)schedule->places;
  span *spans = hr_malloc(((size_t)buffers + 1) * sizeof *spans);
  if (spans == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "plan: no memory for %d buffers", buffers);
  }
  size_t count = 0;
  for (int b = 0; b < buffers; ++b) {
    if (places[b].kind == HR_PLACE_ARENA) {
      size_t bytes = hr_align_up(places[b].bytes, ALIGNMENT);
      spans[count++] = (span){(uint32_t)b, places[b].first, places[b].last, bytes, 0};
    }
  }
  hr_status status = place_spans(spans, count, &schedule->arena_bytes);
  for (size_t k = 0; status == HR_OK && k < count; ++k) {
    places[spans[k].buffer].offset = spans[k].offset;
  }
  hr_free(spans);
  return status;
}

hr_status hr_plan(hr_program *program, const hr_liveness *liveness, hr_schedule *schedule) {
  hr_place *places = hr_arena_alloc(&program->arena, ((size_t)program->buffer_count + 1) * sizeof *places);
  if (places == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "plan: no memory for %d buffers", program->buffer_count);
  }
  for (int b = 0; b < program->buffer_count; ++b) {
    find_place(program, liveness, b, &places[b]);
    schedule->elided_count += liveness->group_first[b] >= 0 && liveness->is_elided[b];
  }
  schedule->places = places;
  schedule->all_count = program->buffer_count;
  return hr_place_buffers(schedule);
}
