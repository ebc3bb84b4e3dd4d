/* general_plan.h: one plan for all dims of a structure.
 *
 * Programs of one structure with other dims have plans that differ in numbers alone: dims, strides, offsets, sizes. The
 * first few are compiled. From these *samples* each number is found as a polynomial of the one or two dims that vary
 * (base/polynomial.h). From then on a new plan is a copy of an old one, the *model*, with other numbers:
 *
 *   key [17, 64] ..   compiled                 dims 17, bytes 4352
 *   key [40, 64] ..   compiled                 dims 40, bytes 10240
 *   key [23, 64] ..   compiled, .. compiled    dims n = 23, bytes 256 n: found on three, checked on the fourth
 *   key [31, 64] ..   256 * 31
 *
 * Plans are always compiled, never wrong: polynomials only skip the compilation, and hold where decisions of the
 * compiler can't differ. The guards are
 *
 *   - the structure: which numbers are negative, 0, 1 or more;
 *   - the range of the samples, and half and twice of it (of several plans that hold, the one with the nearest range).
 *     If a program beyond that is compiled to the expected numbers, the plan holds for four times, then eight times;
 *   - powers of two that divide all samples divide the new dim;
 *   - programs whose number of nodes follows from dims, as of sums by doubling, have none (hr_program.has_rounds);
 *   - numbers keep their class. The order of a reduction is derived from its new dims (hr_schedule_renumber).
 *
 * A key that fails one is compiled, and becomes a sample. Structures, samples and models are bounded.
 *
 * Threads: one at a time; the owner locks.
 */
#ifndef HEADRACE_ENGINE_GENERAL_PLAN_H_
#define HEADRACE_ENGINE_GENERAL_PLAN_H_

#include "base/table.h"
#include "compiler/numbers.h"
#include "engine/trace.h"

typedef struct hr_general_structure hr_general_structure;

typedef struct hr_generals {
  hr_table table;               /* of structures, by hash */
  hr_general_structure *newest; /* the list of all */
  hr_general_structure *last;   /* that was found; NULL: it is gone */
  size_t count;
  uint64_t serial; /* the last one */
  void (*retain)(void *model);
  void (*release)(void *model);
} hr_generals;

void hr__generals_fini(hr_generals *generals);

typedef enum hr_general_find {
  HR_GENERAL_UNKNOWN = 0, /* no general plan of the key's structure */
  HR_GENERAL_REFUSED,     /* a guard refuses the key */
  HR_GENERAL_FOUND
} hr_general_find;

/* A general plan, and its numbers for a key. */
typedef struct hr_general_numbers {
  uint64_t serial;   /* of the general plan: never 0, nor that of another one */
  hr_numbers values; /* of its polynomials */
  /* Only if they were wanted: */
  hr_numbers all;            /* of the plan, of which .. */
  hr_number_terms terms;     /* .. these are such values */
  hr_number_terms estimates; /* those that vary; one that is no polynomial has the value HR_GENERAL_NO_VALUE */
} hr_general_numbers;

#define HR_GENERAL_NO_VALUE UINT32_MAX

/* Of a compiled plan, beside the numbers of its schedule: others that must be polynomials as well, and estimates, which
 * may be none. */
typedef struct hr_general_extras {
  size_t count, estimate_count;
  const int64_t *all, *estimates;
} hr_general_extras;

void hr__general_numbers_fini(hr_general_numbers *numbers);

/* The model of a plan for the key, and its numbers; `kind` distinguishes devices whose plans differ. Of several plans
 * the one with the nearest range comes first; `skipped` are passed over, because their numbers were refused. The model
 * is not retained. */
hr_general_find hr__generals_find(hr_generals *generals, hr_key *key, uint64_t kind, int skipped, bool wants_all,
                                  hr_general_numbers *out_numbers, void **out_model);
/* Learns from a compiled plan. Without memory it learns nothing. */
void hr__generals_learn(hr_generals *generals, hr_key *key, uint64_t kind, const hr_schedule *schedule,
                        const hr_general_extras *extras, void *model);

#endif
