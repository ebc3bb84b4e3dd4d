/* repeat_find.h: the records that repeat, as they are found. */
#ifndef HEADRACE_COMPILER_REPEAT_FIND_H_
#define HEADRACE_COMPILER_REPEAT_FIND_H_

#include "compiler/repeat.h"

/* The growth of a number from each period to the next: of a buffer or scalar, and of an offset. */
typedef struct hr_found_slot {
  int64_t step, move;
} hr_found_slot;

typedef struct hr_found_repeat {
  int first, length, count; /* records: the first one, those of a period; periods */
  size_t slot_count;
  const hr_found_slot *slots;      /* of each record its operands', inputs first, and its scalars' */
  hr_repeat_span buffers, scalars; /* that a period is the first to use */
} hr_found_repeat;

typedef struct hr_found {
  hr_arena arena;
  int count;
  hr_found_repeat all[HR_REPEATS_MAX]; /* in order */
  uint32_t *buffer_tops, *scalar_tops; /* of each record: buffers and scalars of earlier ones; NULL: no repeat */
} hr_found;

/* False when memory is out. The caller frees the arena in any case. */
bool hr__repeats_search(const hr_program *program, hr_found *out_found);

#endif
