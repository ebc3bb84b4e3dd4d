/* repeat.h: cells that repeat inside a program (time steps, layers) are compiled once and instantiated.
 *
 *   stream form --find--> repeats: the same records again and again, on buffers whose numbers grow evenly
 *               --shorten--> the same program with a few periods of each repeat
 *               --compile--> its schedule, compact
 *               --match--> runs: steps that repeat with the records
 *               --build--> the schedule of all periods: the steps of a run once for each period, all others once
 *
 * It is as if a loop of N iterations ran fewer times. Two kinds of periods stay apart: the first `head` ones, and the
 * last ones. A schedule qualifies if the steps of its middle periods are renamings of each other: each number in them
 * (buffer, scalar, offset, record) grows evenly. Everything else is compiled as usual.
 *
 * Buffers, scalars and records are each an *axis* of numbers, on which the periods' own numbers follow one another.
 */
#ifndef HEADRACE_COMPILER_REPEAT_H_
#define HEADRACE_COMPILER_REPEAT_H_

#include "base/vector.h"
#include "compiler/compile.h"

enum { HR_REPEATS_MAX = 16, HR_REPEAT_OUTER = 1 }; /* of the first and of the last periods: may be unlike the others */
enum { HR_REMOVED = UINT32_MAX };

/* Numbers of periods on an axis: period p has first + p * size .. first + (p + 1) * size - 1. */
typedef struct hr_repeat_span {
  uint32_t first, size;
} hr_repeat_span;

typedef enum hr_axis { HR_AXIS_RECORDS, HR_AXIS_BUFFERS, HR_AXIS_SCALARS, HR_AXES } hr_axis;

typedef struct hr_repeat {
  int count; /* periods */
  hr_repeat_span spans[HR_AXES];
} hr_repeat;

/* In order; their spans don't overlap. */
typedef struct hr_repeats {
  int count, dropped, head; /* of each: periods head .. head + dropped - 1 are not in the short program */
  hr_repeat all[HR_REPEATS_MAX];
  /* The buffers of the second repeat that periods of the first one use: in its order (1), backwards (-1); 0: none. */
  int8_t directions[HR_REPEATS_MAX][HR_REPEATS_MAX];
} hr_repeats;

/* A number's place on its axis. */
typedef struct hr_member {
  int repeat; /* -1: no period has it */
  int period;
} hr_member;

/* The periods of a repeat in the short program. */
static inline int hr_repeat_kept(const hr_repeats *repeats, int repeat) {
  return repeats->all[repeat].count - repeats->dropped;
}
/* The period in the whole program of one in the short program. */
static inline int hr_repeat_whole_period(const hr_repeats *repeats, int period) {
  return period < repeats->head ? period : period + repeats->dropped;
}

/* True if the buffers have one size, life and layout. */
bool hr_repeat_buffers_match(const hr_program_buffer *a, const hr_program_buffer *b);

/* The number in the short program of one in the whole program, or HR_REMOVED. */
uint32_t hr_repeat_shorten(const hr_repeats *repeats, hr_axis axis, uint32_t number);
/* And back. */
uint32_t hr_repeat_lengthen(const hr_repeats *repeats, hr_axis axis, uint32_t number);
/* The place of a number of the short program. */
hr_member hr_repeat_find_member(const hr_repeats *repeats, hr_axis axis, uint32_t number);

/* Finds repeats that are worth it, and makes the short program, which shares lists of numbers with `stream`; *out_is:
 * there are any. `has_libraries`: the target has. RESOURCE_EXHAUSTED. */
HR_MUST_USE hr_status hr_repeats_find(const hr_program *stream, bool has_libraries, hr_repeats *out_repeats,
                                      hr_program *out_short, bool *out_is);

/* A number of a run's steps: in repetition w it is first + w * step, or that element of a table. */
typedef struct hr_run_slot {
  int64_t first, step;
  int table; /* -1: none */
} hr_run_slot;

/* Steps that repeat: `count` times `length` of them in the short schedule. */
typedef struct hr_run {
  int first, length, count;
  size_t first_slot; /* those of its steps: hr_step_each_slot's, then origins */
} hr_run;

/* Temporaries that take turns: one is new in each repetition. */
enum { HR_TABLE_MAX = 64, HR_TABLE_MARGIN = 2, HR_TABLE_HEAD = 1 };
typedef struct hr_run_table {
  int repeat;                     /* of whose steps they are the results */
  int low, high;                  /* members low .. high of the short schedule: -HR_TABLE_MARGIN or more, .. */
  uint32_t members[HR_TABLE_MAX]; /* .. from there on: temporaries */
  uint32_t *whole;                /* members low .. high + dropped of the whole schedule */
} hr_run_table;

typedef struct hr_runs {
  hr_arena arena;
  HR_VECTOR(hr_run) all; /* in order */
  HR_VECTOR(hr_run_slot) slots;
  HR_VECTOR(hr_run_table) tables;
  int *tables_of, *members_of; /* of each of the short schedule's buffers: its table and place; -1: none */
  int *origin_first;           /* of each of its steps, and one more: in .. */
  HR_VECTOR(uint32_t) origins; /* records */
} hr_runs;

/* A number that a step contains. */
typedef enum hr_slot_kind { HR_SLOT_BUFFER, HR_SLOT_SCALAR, HR_SLOT_RECORD, HR_SLOT_OFFSET } hr_slot_kind;
/* `place`: an int64_t for an offset, else a uint32_t. */
typedef void (*hr_slot_fn)(void *ctx, hr_slot_kind kind, void *place);
/* Calls fn for each, in an order that steps of one structure share. */
void hr_step_each_slot(const hr_step *step, hr_slot_fn fn, void *ctx);
/* True if two steps differ in these numbers alone; false for checks. */
bool hr_steps_match(const hr_step *a, const hr_step *b);

/* Finds the runs of a short program's schedule; *out_is: it qualifies. RESOURCE_EXHAUSTED. */
HR_MUST_USE hr_status hr_runs_find(const hr_schedule *schedule, const hr_repeats *repeats, hr_runs *out_runs,
                                   bool *out_is);
void hr_runs_fini(hr_runs *runs);

/* *out_is: no records without steps pass values on over many periods, so that the runs tell all. RESOURCE_EXHAUSTED. */
HR_MUST_USE hr_status hr_repeats_check_passed(const hr_program *shortened, const hr_repeats *repeats,
                                              const hr_runs *runs, bool *out_is);

/* Replaces a short program's compact schedule by that of the whole program. *out_is false: a library declines a copy,
 * and the schedule is useless, as after a failure. RESOURCE_EXHAUSTED. */
HR_MUST_USE hr_status hr_runs_build(const hr_program *stream, const hr_target *target, const hr_repeats *repeats,
                                    hr_runs *runs, hr_schedule *schedule, bool *out_is);

#endif
