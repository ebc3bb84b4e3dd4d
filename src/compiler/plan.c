/* plan.c: places every buffer.
 *
 * A buffer that the caller can see, or that had contents, is bound to the caller's memory. A buffer that dies inside
 * the program gets an offset in one arena. Largest first, each gets the lowest offset at which it overlaps no buffer
 * that is live at the same time. The same program always gives the same offsets.
 */
#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "compiler/occupied.h"
#include "compiler/passes.h"

static hr_status no_memory(size_t count) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "plan: no memory for %zu buffers", count);
}

/* Sorts by size, largest first; spans of one size keep their order. By digits of the size, from the lowest: comparing
 * sizes would mostly be guessing branches wrong. `spare` has room for as many. */
static void sort_spans(hr_span *spans, hr_span *spare, size_t count) {
  enum { BITS = 6, DIGITS = 1 << BITS };
  size_t most = 0;
  for (size_t k = 0; k < count; ++k) {
    most = spans[k].bytes > most ? spans[k].bytes : most;
  }
  for (int shift = HR_PLACE_ALIGNMENT_BITS; most >> shift != 0; shift += BITS) {
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

static hr_status place_spans(hr_span *spans, size_t count, size_t *out_bytes) {
  hr_occupied occupied;
  bool ok = hr_occupied_init(&occupied, count);
  size_t bytes = 0;
  for (size_t k = 0; ok && k < count; ++k) {
    hr_occupied_place(&occupied, &spans[k]);
    size_t end = spans[k].offset + spans[k].bytes;
    bytes = end > bytes ? end : bytes;
  }
  *out_bytes = bytes;
  hr_occupied_fini(&occupied);
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
  hr_span *spans = hr_malloc((2 * buffers + 1) * sizeof *spans); /* twice: sorting takes a second list */
  if (spans == NULL) {
    return no_memory(buffers);
  }
  for (size_t b = 0; b < buffers; ++b) {
    if (places[b].kind == HR_PLACE_ARENA) {
      size_t bytes = hr_align_up(places[b].bytes, HR_PLACE_ALIGNMENT);
      spans[count++] = (hr_span){(uint32_t)b, places[b].first, places[b].last, bytes, 0};
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
