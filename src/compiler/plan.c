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

enum { ALIGNMENT_BITS = 6, ALIGNMENT = 1 << ALIGNMENT_BITS, PART = 64 };

typedef struct span {
  uint32_t buffer;
  int first, last;
  size_t bytes, offset;
} span;

static hr_status no_memory(size_t count) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "plan: no memory for %zu buffers", count);
}

typedef struct range {
  size_t begin, end;
} range;

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

/* Spans that have their places, in order of offset. The times of all are next to each other: most spans are apart in
 * time from the one that looks for a place. */
typedef struct placed {
  uint64_t *times;
  range *ranges;
  size_t count;
} placed;

/* First and last group as one word, of which two can be compared by one subtraction: of `latest(a) - earliest(b)` both
 * sign bits stay set if a ends no earlier than b begins, and begins no later than b ends. */
static const uint64_t SIGNS = UINT64_C(0x8000000080000000);

static uint64_t latest(const span *s) {
  return ((uint64_t)s->last << 32 | (uint64_t)(INT32_MAX - s->first)) | SIGNS;
}

static uint64_t earliest(const span *s) {
  return (uint64_t)s->first << 32 | (uint64_t)(INT32_MAX - s->last);
}

/* Lists those of the placed spans from number `from` to `end` that meet the span: whether one does decides no branch.
 */
static size_t find_met(const placed *list, size_t from, size_t end, uint64_t time, int *out_met) {
  size_t count = 0;
  for (size_t k = from; k < end; ++k) {
    out_met[count] = (int)k;
    count += ((list->times[k] - time) & SIGNS) == SIGNS;
  }
  return count;
}

/* The lowest offset at which the span fits. */
static size_t find_gap(const placed *list, const span *next) {
  const uint64_t time = earliest(next);
  size_t offset = 0;
  for (size_t from = 0; from < list->count; from += PART) {
    int met[PART];
    size_t end = from + PART < list->count ? from + PART : list->count;
    size_t count = find_met(list, from, end, time, met);
    for (size_t k = 0; k < count; ++k) {
      const range *other = &list->ranges[met[k]];
      if (other->begin >= offset + next->bytes) {
        return offset;
      }
      offset = other->end > offset ? other->end : offset;
    }
  }
  return offset;
}

static void insert(placed *list, const span *next) {
  size_t low = 0, end = list->count;
  while (low < end) {
    size_t middle = low + (end - low) / 2;
    if (list->ranges[middle].begin <= next->offset) {
      low = middle + 1;
    } else {
      end = middle;
    }
  }
  size_t behind = list->count++ - low;
  memmove(&list->times[low + 1], &list->times[low], behind * sizeof *list->times);
  memmove(&list->ranges[low + 1], &list->ranges[low], behind * sizeof *list->ranges);
  list->times[low] = latest(next);
  list->ranges[low] = (range){next->offset, next->offset + next->bytes};
}

static size_t place_all(span *spans, size_t count, placed *list) {
  size_t bytes = 0;
  for (size_t k = 0; k < count; ++k) {
    spans[k].offset = find_gap(list, &spans[k]);
    insert(list, &spans[k]);
    size_t end = spans[k].offset + spans[k].bytes;
    bytes = end > bytes ? end : bytes;
  }
  return bytes;
}

static hr_status place_spans(span *spans, size_t count, size_t *out_bytes) {
  placed list = {.times = hr_malloc((count + 1) * sizeof *list.times),
                 .ranges = hr_malloc((count + 1) * sizeof *list.ranges)};
  bool ok = list.times != NULL && list.ranges != NULL;
  if (ok) {
    *out_bytes = place_all(spans, count, &list);
  }
  hr_free(list.times);
  hr_free(list.ranges);
  return ok ? HR_OK : no_memory(count);
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
  size_t buffers = (size_t)schedule->program.buffer_count, count = 0;
  hr_place *places = (hr_place *)schedule->places;
  span *spans = hr_malloc((2 * buffers + 1) * sizeof *spans); /* twice: sorting takes a second list */
  if (spans == NULL) {
    return no_memory(buffers);
  }
  for (size_t b = 0; b < buffers; ++b) {
    if (places[b].kind == HR_PLACE_ARENA) {
      size_t bytes = hr_align_up(places[b].bytes, ALIGNMENT);
      spans[count++] = (span){(uint32_t)b, places[b].first, places[b].last, bytes, 0};
    }
  }
  sort_spans(spans, spans + count, count);
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
    return no_memory((size_t)program->buffer_count);
  }
  for (int b = 0; b < program->buffer_count; ++b) {
    find_place(program, liveness, b, &places[b]);
    schedule->elided_count += liveness->group_first[b] >= 0 && liveness->is_elided[b];
  }
  schedule->places = places;
  schedule->all_count = program->buffer_count;
  return hr_place_buffers(schedule);
}
