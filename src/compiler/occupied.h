/* occupied.h: the ranges of memory that are in use, each for a time, and the lowest free place for another one.
 *
 * Times are numbers of groups, first to last. Spans are kept in order of offset, in blocks of some dozens. A block
 * remembers the times and the gaps of all its spans, so that most blocks are passed in one step: all of their spans are
 * apart in time from the one that looks for a place, or all of them meet it and leave no gap.
 */
#ifndef HEADRACE_COMPILER_OCCUPIED_H_
#define HEADRACE_COMPILER_OCCUPIED_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hr_span {
  uint32_t buffer;
  int first, last; /* both at least 0 */
  size_t bytes, offset;
} hr_span;

typedef struct hr_occupied_block hr_occupied_block;

/* The times and the gaps of a block's spans. */
typedef struct hr_occupied_summary {
  hr_occupied_block *block;
  uint64_t widest;    /* meets each time that one of the spans meets */
  uint64_t narrowest; /* meets the times that all of the spans meet */
  size_t begin, end;  /* of the memory */
  size_t gap;         /* at least the largest one between spans, in bytes */
} hr_occupied_summary;

typedef struct hr_occupied {
  hr_occupied_block *blocks;
  hr_occupied_summary *summaries; /* in order of offset */
  size_t count;
} hr_occupied;

/* With room for `count` spans; false when memory is out. */
bool hr_occupied_init(hr_occupied *occupied, size_t count);
void hr_occupied_fini(hr_occupied *occupied);

/* Places the span at the lowest offset at which it overlaps no placed span that is live at the same time. */
void hr_occupied_place(hr_occupied *occupied, hr_span *span);

#endif
