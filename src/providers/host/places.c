/* places.c: the indices of a mask's true elements.
 *
 * Each chunk of the mask is counted, then each writes its places after those of the chunks before it: two passes over
 * the mask, and one over the places, for any number of threads.
 */
#include <string.h>

#include "providers/host/host.h"

enum { CHUNK = 1 << 14, GROUP = 64 };

static int64_t chunks_of(int64_t count) {
  return (count + CHUNK - 1) / CHUNK;
}

bool hr__places_supports(const hr_node *node) {
  (void)node;
  return true;
}

size_t hr__places_scratch(const hr_node *node, int workers) {
  (void)workers;
  return (size_t)chunks_of(hr__operand_dim(&node->inputs[0], 0)) * sizeof(int64_t);
}

static int64_t end_of(int64_t chunk, int64_t count) {
  return (chunk + 1) * CHUNK < count ? (chunk + 1) * CHUNK : count;
}

/* Counts the places of each chunk, in the first worker's scratch. */
static hr_status count_chunks(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  const uint8_t *mask = call->inputs[0].data;
  int64_t *counts = call->scratch;
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    int64_t sum = 0;
    for (int64_t i = chunk * CHUNK; i < end_of(chunk, call->inputs[0].count); ++i) {
      sum += mask[i] != 0;
    }
    counts[chunk] = sum;
  }
  return HR_OK;
}

/* Writes the places of a chunk from `at` on, while there is room. A group's places overwrite each other: no branch
 * depends on data. */
static void write_chunk(const hr__library_call *call, int64_t chunk, int64_t at) {
  const uint8_t *mask = call->inputs[0].data;
  int64_t *places = call->outputs[0].data, room = call->outputs[0].count, end = end_of(chunk, call->inputs[0].count);
  for (int64_t first = chunk * CHUNK; first < end && at < room; first += GROUP) {
    int64_t found[GROUP], here = end - first < GROUP ? end - first : GROUP, count = 0;
    for (int64_t i = 0; i < here; ++i) {
      found[count] = first + i;
      count += mask[first + i] != 0;
    }
    count = count < room - at ? count : room - at;
    memcpy(places + at, found, (size_t)count * sizeof *found);
    at += count;
  }
}

static hr_status write_chunks(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  const int64_t *starts = call->scratch;
  for (int64_t chunk = begin; chunk < end; ++chunk) {
    write_chunk(call, chunk, starts[chunk]);
  }
  return HR_OK;
}

hr_status hr__places_run(const hr__library_call *call) {
  int64_t chunks = chunks_of(call->inputs[0].count), *counts = call->scratch, all = 0;
  HR_RETURN_IF_ERROR(hr__library_spread(call, chunks, CHUNK / 8, count_chunks));
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    int64_t count = counts[chunk];
    counts[chunk] = all;
    all += count;
  }
  for (int64_t i = all; i < call->outputs[0].count; ++i) {
    ((int64_t *)call->outputs[0].data)[i] = -1;
  }
  return hr__library_spread(call, chunks, CHUNK, write_chunks);
}
