/* numbers.h: the numbers of a schedule, one after the other: all that differs between two schedules whose programs
 * differ in dims alone.
 *
 * *Numbers* are dims, strides, offsets, extents, sizes, ints, and constants that are whole. Everything else is
 * *structure*: kinds, rows, counts, indices. Estimates (traffic, operations) are left out.
 */
#ifndef HEADRACE_COMPILER_NUMBERS_H_
#define HEADRACE_COMPILER_NUMBERS_H_

#include "base/vector.h"
#include "compiler/compile.h"

typedef HR_VECTOR(int64_t) hr_numbers;
typedef HR_VECTOR(uint64_t) hr_words;

/* Appends structure and numbers of a compact schedule, always in the same order; false when memory is out. */
HR_MUST_USE bool hr_schedule_split(const hr_schedule *schedule, hr_words *structure, hr_numbers *numbers);

/* The number at `at` is value `value` of a list. */
typedef struct hr_number_term {
  uint32_t at, value;
} hr_number_term;
typedef HR_VECTOR(hr_number_term) hr_number_terms;

/* A number's form in memory: itself, bytes of a buffer, or a double that is the number or 2 divided by it. */
typedef enum hr_number_form { HR_NUMBER_WORD = 0, HR_NUMBER_BYTES, HR_NUMBER_WHOLE, HR_NUMBER_FRACTION } hr_number_form;
/* A number that is a term: value `value` of the list is at `place`, in `part` of the schedule. */
typedef struct hr_number_place {
  void *place;
  uint32_t value;
  uint32_t part : 30;
  uint32_t form : 2; /* hr_number_form */
} hr_number_place;
/* All numbers of a schedule that vary, in the order of its parts. */
typedef struct hr_number_places {
  HR_VECTOR(hr_number_place) all;
  size_t needed, held; /* bytes of all temporaries, and of their places */
  bool were_moved;     /* the last replacement moved temporaries */
} hr_number_places;

/* Replaces the numbers with `count` others, which must be as many as there are; then places buffers, and derives
 * orders of reductions and estimates again. INVALID_ARGUMENT: the numbers don't belong to this structure, or a dim is
 * below 1. The schedule is then useless. `out_places`: those of the terms, in ascending order; both may be NULL. */
HR_MUST_USE hr_status hr_schedule_renumber(hr_schedule *schedule, size_t count, const int64_t *numbers,
                                           const hr_number_terms *terms, hr_number_places *out_places);

/* The parts of a schedule's numbers: those of its buffers and scalars, of each step, and of its declined nodes. */
static inline size_t hr_schedule_part_count(const hr_schedule *schedule) {
  return (size_t)schedule->step_count + 2;
}
/* The position of each part's first number, and at last the count of all; false when memory is out. */
HR_MUST_USE bool hr_schedule_find_parts(const hr_schedule *schedule, size_t *out_first);
/* As hr_schedule_renumber, at the places of the values that are new, but without estimates. Sets for each part whether
 * it has one. */
HR_MUST_USE hr_status hr_schedule_replace(hr_schedule *schedule, hr_number_places *places, const int64_t *values,
                                          const bool *is_new, bool *out_changed);
/* Estimates a renumbered step again. */
void hr_schedule_count_traffic(const hr_schedule *schedule, const hr_step *step);

#endif
