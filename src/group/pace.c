/* pace.c: slots are written through the caches, or past them into memory.
 *
 * Processors that share a cache exchange data fastest in it. Between others the caches pass each modified line on by
 * itself, several times slower than memory is read. A program can't know which processors share a cache: virtual
 * machines hide that, and move. So some of every few hundred chunks are measured either way. All ranks count the same
 * chunks. */
#include <string.h>

#include "group/segment.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
  PERIOD = 512,   /* chunks from one measurement to the next */
  MEASURED = 4,   /* of each way; the first one still reads what was written the other way */
  SMALL = 4 << 10 /* bytes, for which a cache is always faster */
};

/* Writes past the caches; returns the bytes that were written, from the begin. */
static size_t write_past_caches(char *to, const char *from, size_t bytes) {
  size_t at = 0;
#if defined(__SSE2__)
  if ((uintptr_t)to % sizeof(__m128i) != 0) {
    return 0;
  }
  for (; at + 64 <= bytes; at += 64) {
    const __m128i *in = (const __m128i *)(from + at);
    __m128i *out = (__m128i *)(to + at);
    __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
  _mm_sfence(); /* before the round is posted */
#else
  (void)to, (void)from, (void)bytes;
#endif
  return at;
}

void hr__group_fill(const hr_group *group, void *slot, const void *from, size_t bytes) {
  size_t at = group->pace.is_cached || bytes < SMALL ? 0 : write_past_caches(slot, from, bytes);
  if (at < bytes) {
    memcpy((char *)slot + at, (const char *)from + at, bytes - at);
  }
}

void hr__group_begin_chunk(hr_group *group) {
  hr_group_pace *pace = &group->pace;
  unsigned position = pace->chunks % PERIOD;
  if (position == 0) {
    pace->best_ns[false] = pace->best_ns[true] = INT64_MAX;
  }
  if (position < 2 * MEASURED) {
    pace->is_cached = position < MEASURED;
    pace->begin_ns = hr_clock_ns();
  }
}

void hr__group_end_chunk(hr_group *group, bool is_first) {
  hr_group_pace *pace = &group->pace;
  unsigned position = pace->chunks++ % PERIOD;
  if (position < 2 * MEASURED && position % MEASURED != 0 && !is_first) {
    int64_t ns = hr_clock_ns() - pace->begin_ns, *best = &pace->best_ns[pace->is_cached];
    *best = ns < *best ? ns : *best;
  }
  if (position == 2 * MEASURED - 1) {
    pace->is_cached = pace->best_ns[true] < pace->best_ns[false];
  }
}
