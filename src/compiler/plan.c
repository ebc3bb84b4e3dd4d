/* plan.c: places every buffer.
 *
 * A buffer that the caller can see, or that had contents, is bound to the caller's memory. A buffer that dies inside
 * the program gets an offset in one arena. Largest first, each gets the lowest offset at which it overlaps no buffer
 * that is live at the same time. The same program always gives the same offsets.
 */
#include <stdlib.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "compiler/passes.h"

enum { ALIGNMENT = 64 };

typedef struct span {
  uint32_t buffer;
  int first, last;
  size_t bytes, offset;
} span;

static int compare_spans(const void *a, const void *b) {
  const span *x = a, *y = b;
  if (x->bytes != y->bytes) {
    return x->bytes < y->bytes ? 1 : -1;
  }
  return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

/* Placed spans are kept in order of offset, so that one walk finds the lowest gap. */
static size_t place(span **placed, size_t count, span *next) {
  size_t offset = 0, at = count;
  for (size_t k = 0; k < count; ++k) {
    const span *other = placed[k];
    if (other->last < next->first || next->last < other->first) {
      continue;
    }
    if (other->offset >= offset + next->bytes) {
      break;
    }
    size_t end = other->offset + other->bytes;
    offset = end > offset ? end : offset;
  }
  next->offset = offset;
  while (at > 0 && placed[at - 1]->offset > offset) {
    placed[at] = placed[at - 1];
    --at;
  }
  placed[at] = next;
  return offset + next->bytes;
}

static hr_status place_spans(span *spans, size_t count, size_t *out_bytes) {
  span **placed = hr_malloc((count + 1) * sizeof *placed);
  if (placed == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "plan: no memory for %zu temporaries", count);
  }
  qsort(spans, count, sizeof *spans, compare_spans);
  *out_bytes = 0;
  for (size_t k = 0; k < count; ++k) {
    size_t end = place(placed, k, &spans[k]);
    *out_bytes = end > *out_bytes ? end : *out_bytes;
  }
  hr_free(placed);
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
  hr_place *places = HR_ARENA_ARRAY(&program->arena, hr_place, (size_t)program->buffer_count + 1);
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
