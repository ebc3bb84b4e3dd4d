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
/* Replaces the numbers with `count` others, which must be as many as there are; then places buffers and estimates
 * again. INVALID_ARGUMENT: the numbers don't belong to this structure, or reductions would have another order. The
 * schedule is then useless. */
HR_MUST_USE hr_status hr_schedule_renumber(hr_schedule *schedule, size_t count, const int64_t *numbers);

/* The parts of a schedule's numbers: those of its buffers and scalars, of each step, and of its declined nodes. */
static inline size_t hr_schedule_part_count(const hr_schedule *schedule) {
  return (size_t)schedule->step_count + 2;
}
/* The position of each part's first number, and at last the count of all; false when memory is out. */
HR_MUST_USE bool hr_schedule_find_parts(const hr_schedule *schedule, size_t *out_first);
/* As hr_schedule_renumber, for a schedule whose numbers are `before`: only parts that differ are touched. Sets for each
 * part whether it does. */
HR_MUST_USE hr_status hr_schedule_renumber_parts(hr_schedule *schedule, const size_t *first, const int64_t *before,
                                                 const int64_t *numbers, bool *out_changed);

#endif
