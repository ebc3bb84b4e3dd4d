#include "compiler/occupied.h"

#include <string.h>

#include "base/allocator.h"

enum { BLOCK_SPANS = 16, HALF = BLOCK_SPANS / 2 };

typedef struct range {
  size_t begin, end;
} range;

/* Times apart from ranges: most spans are apart in time from the one that looks for a place. */
struct hr_occupied_block {
  size_t count;
  uint64_t times[BLOCK_SPANS];
  range ranges[BLOCK_SPANS];
};

bool hr_occupied_init(hr_occupied *occupied, size_t count) {
  size_t blocks = count / HALF + 1; /* a block that is split leaves two halves */
  *occupied = (hr_occupied){.blocks = hr_malloc(blocks * sizeof *occupied->blocks),
                            .summaries = hr_malloc(blocks * sizeof *occupied->summaries)};
  return occupied->blocks != NULL && occupied->summaries != NULL;
}

void hr_occupied_fini(hr_occupied *occupied) {
  hr_free(occupied->blocks);
  hr_free(occupied->summaries);
  *occupied = (hr_occupied){0};
}

/* ---- times ---- */

/* First and last group as one word, of which two can be compared by one subtraction: of `latest(a) - earliest(b)` both
 * sign bits stay set if a ends no earlier than b begins, and begins no later than b ends. */
static const uint64_t SIGNS = UINT64_C(0x8000000080000000);

static uint64_t latest(const hr_span *s) {
  return ((uint64_t)s->last << 32 | (uint64_t)(INT32_MAX - s->first)) | SIGNS;
}

static uint64_t earliest(const hr_span *s) {
  return (uint64_t)s->first << 32 | (uint64_t)(INT32_MAX - s->last);
}

static bool meets(uint64_t of_placed, uint64_t of_next) {
  return ((of_placed - of_next) & SIGNS) == SIGNS;
}

static uint64_t wider(uint64_t a, uint64_t b) {
  uint32_t low = (uint32_t)a > (uint32_t)b ? (uint32_t)a : (uint32_t)b;
  uint64_t high = a > b ? a >> 32 : b >> 32;
  return high << 32 | low;
}

static uint64_t narrower(uint64_t a, uint64_t b) {
  uint32_t low = (uint32_t)a < (uint32_t)b ? (uint32_t)a : (uint32_t)b;
  uint64_t high = a < b ? a >> 32 : b >> 32;
  return high << 32 | low;
}

/* ---- blocks ---- */

static size_t gap_between(size_t end, size_t begin) {
  return begin > end ? begin - end : 0;
}

/* Adds a span that lies at or behind all others. */
static void append(hr_occupied_summary *s, uint64_t time, range at) {
  hr_occupied_block *block = s->block;
  bool is_first = block->count == 0;
  size_t gap = is_first ? 0 : gap_between(s->end, at.begin);
  s->widest = is_first ? time : wider(s->widest, time);
  s->narrowest = is_first ? time : narrower(s->narrowest, time);
  s->begin = is_first ? at.begin : s->begin;
  s->gap = is_first || gap > s->gap ? gap : s->gap;
  s->end = is_first || at.end > s->end ? at.end : s->end;
  block->times[block->count] = time;
  block->ranges[block->count++] = at;
}

/* Makes a block of the spans from number `from` on. They may be the block's own. */
static void refill(hr_occupied_summary *s, const hr_occupied_block *other, size_t from, size_t end) {
  s->block->count = 0;
  for (size_t k = from; k < end; ++k) {
    append(s, other->times[k], other->ranges[k]);
  }
}

/* Gaps shrink if a span is put between others: the gap of the summary stays an upper bound. */
static void put(hr_occupied_summary *s, size_t place, uint64_t time, range at) {
  hr_occupied_block *block = s->block;
  size_t behind = block->count - place;
  size_t gap = place == 0 ? gap_between(at.end, s->begin) : 0;
  memmove(&block->times[place + 1], &block->times[place], behind * sizeof *block->times);
  memmove(&block->ranges[place + 1], &block->ranges[place], behind * sizeof *block->ranges);
  block->times[place] = time;
  block->ranges[place] = at;
  ++block->count;
  s->widest = wider(s->widest, time);
  s->narrowest = narrower(s->narrowest, time);
  s->begin = at.begin < s->begin ? at.begin : s->begin;
  s->end = at.end > s->end ? at.end : s->end;
  s->gap = gap > s->gap ? gap : s->gap;
}

/* The upper half of a full block becomes one of its own. */
static void split(hr_occupied *o, size_t b) {
  hr_occupied_summary *s = &o->summaries[b];
  memmove(s + 2, s + 1, (o->count - b - 1) * sizeof *s);
  s[1].block = &o->blocks[o->count++];
  refill(&s[1], s->block, HALF, BLOCK_SPANS);
  refill(s, s->block, 0, HALF);
}

/* The last block that begins at or before the offset, or the first one. */
static size_t find_block(const hr_occupied *o, size_t offset) {
  size_t low = 1, end = o->count;
  while (low < end) {
    size_t middle = low + (end - low) / 2;
    if (o->summaries[middle].begin <= offset) {
      low = middle + 1;
    } else {
      end = middle;
    }
  }
  return low - 1;
}

static void insert(hr_occupied *o, uint64_t time, range at) {
  if (o->count == 0) {
    o->summaries[o->count++] = (hr_occupied_summary){.block = o->blocks};
    o->blocks->count = 0;
  }
  size_t b = find_block(o, at.begin);
  if (o->summaries[b].block->count == BLOCK_SPANS) {
    split(o, b);
    b += o->summaries[b + 1].begin <= at.begin;
  }
  hr_occupied_summary *s = &o->summaries[b];
  size_t place = s->block->count;
  while (place > 0 && s->block->ranges[place - 1].begin > at.begin) {
    --place;
  }
  if (place == s->block->count) {
    append(s, time, at);
  } else {
    put(s, place, time, at);
  }
}

/* ---- a place ---- */

/* Raises the offset over the block's spans that meet the time; true if there is a gap before one of them. */
static bool find_gap_in(const hr_occupied_block *block, uint64_t time, size_t bytes, size_t *offset) {
  int met[BLOCK_SPANS];
  size_t count = 0;
  for (size_t k = 0; k < block->count; ++k) { /* whether a span meets it decides no branch */
    met[count] = (int)k;
    count += meets(block->times[k], time);
  }
  for (size_t k = 0; k < count; ++k) {
    const range *other = &block->ranges[met[k]];
    if (other->begin >= *offset + bytes) {
      return true;
    }
    *offset = other->end > *offset ? other->end : *offset;
  }
  return false;
}

static void measure_gap(hr_occupied_summary *s) {
  const hr_occupied_block *block = s->block;
  size_t end = block->ranges[0].end;
  s->gap = 0;
  for (size_t k = 1; k < block->count; ++k) {
    size_t gap = gap_between(end, block->ranges[k].begin);
    s->gap = gap > s->gap ? gap : s->gap;
    end = block->ranges[k].end > end ? block->ranges[k].end : end;
  }
}

/* The lowest offset at which so many bytes are free at the time. */
static size_t find_gap(const hr_occupied *o, uint64_t time, size_t bytes) {
  size_t offset = 0;
  for (size_t b = 0; b < o->count; ++b) {
    hr_occupied_summary *s = &o->summaries[b];
    if (s->begin >= offset + bytes) {
      break;
    }
    if (!meets(s->widest, time)) {
      continue;
    }
    bool is_met = meets(s->narrowest, time);
    if (is_met && s->gap >= bytes) {
      measure_gap(s);
    }
    if (is_met && s->gap < bytes) {
      offset = s->end > offset ? s->end : offset;
    } else if (find_gap_in(s->block, time, bytes, &offset)) {
      break;
    }
  }
  return offset;
}

void hr_occupied_place(hr_occupied *occupied, hr_span *span) {
  span->offset = find_gap(occupied, earliest(span), span->bytes);
  insert(occupied, latest(span), (range){span->offset, span->offset + span->bytes});
}
