/* compile.h: compiles a recorded program to a schedule of steps.
 *
 *   stream form --chain, expand-->
 *   value form  --forward, simplify, rename, match, deliver, split products, layout, propagate order-->
 *   value form  --fuse, recompute, wait, hoist, hasten-->
 *   groups      --live, plan, lower--> steps and places
 *
 * Each pass has a file of its own. The compiler never calls a driver: it reads hr_target.
 */
#ifndef HEADRACE_COMPILER_COMPILE_H_
#define HEADRACE_COMPILER_COMPILE_H_

#include "base/vector.h"
#include "core/ir/build.h"
#include "core/ir/kernel.h"
#include "core/ir/program.h"

typedef struct hr_target {
  hr_keep_fn keeps; /* true if a provider runs a contraction with its epilogues, or a composite; NULL: none does */
  void *keeps_ctx;
  bool (*may_keep)(void *keeps_ctx, hr_op op); /* false: `keeps` is, for any node of this row; NULL: unknown */
  bool channels_last;                          /* convolutions run best on channels-last activations */
  bool one_format;                             /* and if all their activations have the same layout */
  bool folds_scales;                           /* scales after convolutions may be folded into their weights */
  size_t row_alignment; /* bytes: best alignment of rows of 16-bit factors and products; 0: any */
  int64_t depth_work;   /* multiplications of a product from which an odd depth is padded with zeros; 0: the compiler's
                         * choice */
  int64_t split_bytes;  /* most bytes of temporaries with which a product of f32 may become one of 16-bit parts; 0: none
                         * does */
  int64_t split_terms;  /* of a sum of these, whatever the product's size; 0: the compiler's choice */
  int64_t resident_row_bytes; /* a row longer than this is not kept between phases */
  int64_t recompute_bytes; /* if all values are smaller than this, none is computed again; 0: the compiler's choice */
  int64_t hoist_bytes;     /* groups that wait for nothing and whose results have at most this size run first */
  int64_t hasten_bytes; /* groups that use up a temporary of at least this size run where it has been made; 0: none */
  bool explains;        /* tell why a kernel is apart from the one that made its input (hr_step.why) */
  bool verify;          /* verify the program after each pass, and the schedule at the end */
} hr_target;

typedef enum hr_step_kind {
  HR_STEP_KERNEL,  /* run `kernel`; its args name program buffers */
  HR_STEP_LIBRARY, /* a provider runs `node` */
  HR_STEP_CHECK    /* CHECK_INDEX: the host reads one i64 and may end the run */
} hr_step_kind;

typedef struct hr_step {
  hr_step_kind kind;
  int like; /* 1 + the number of an earlier step whose kernel differs in buffers and scalars alone; 0: none is known */
  const hr_kernel *kernel;
  const hr_node *node; /* the only one, or the first of a kernel's */
  int node_count;
  const int *nodes; /* of the program, in order */
  const char *why;  /* the reason why a kernel is apart from the one that made its input, for people, if the target
                     * explains;  NULL: none did */
} hr_step;

typedef enum hr_place_kind {
  HR_PLACE_NONE = 0, /* never needs memory: fused away, or unused */
  HR_PLACE_BOUND,    /* the caller's buffer: it must have memory when the run starts */
  HR_PLACE_ARENA     /* offset in the executable's arena */
} hr_place_kind;

enum { HR_PLACE_ALIGNMENT_BITS = 6, HR_PLACE_ALIGNMENT = 1 << HR_PLACE_ALIGNMENT_BITS };

typedef struct hr_place {
  hr_place_kind kind;
  size_t offset, bytes;
  int first, last; /* the groups of steps between which an arena's place is in use */
} hr_place;

/* True if both are in the arena, and share bytes of it. */
static inline bool hr__places_overlap(const hr_place *a, const hr_place *b) {
  return a->kind == HR_PLACE_ARENA && b->kind == HR_PLACE_ARENA && a->offset < b->offset + b->bytes &&
         b->offset < a->offset + a->bytes;
}

typedef struct hr_schedule {
  hr_program program; /* value form; owns the memory of everything below */
  hr_arena forms;     /* of a copy: memory of kernel forms and declined nodes */
  int step_count;
  const hr_step *steps;
  const hr_place *places; /* one for each program buffer */
  size_t arena_bytes;     /* offsets are multiples of HR_PLACE_ALIGNMENT */
  int group_count, elided_count;
  const uint8_t *origins; /* of each step: hr_origin_reader */
  size_t origin_bytes;
  int all_count; /* buffers of the program; a compact schedule's lacks those that no step reads or writes */
  int declined_count;
  const hr_node *declined; /* nodes that no provider runs: they became loops */
  bool is_refused; /* nothing was scheduled: marked buffers of the program must be in the default layout first */
} hr_schedule;

/* Lets the results of `cat` grow in place, and rewrites all views of buffers whose rows have room (rooms.c). Buffers
 * with views that such a layout doesn't support are marked as refused, and the program is useless. RESOURCE_EXHAUSTED.
 */
HR_MUST_USE hr_status hr_rooms(hr_program *stream);

/* Lets results take over the memory of donated values (donate.c). *out_takes, in the program's arena: of each buffer
 * what its `takes` is to be in the schedule; NULL: nothing is donated. RESOURCE_EXHAUSTED. */
HR_MUST_USE hr_status hr_donate(hr_program *stream, const uint32_t **out_takes);

/* Compiles a program in stream form (not consumed). */
HR_MUST_USE hr_status hr_compile(const hr_program *stream, const hr_target *target, hr_schedule *out_schedule);
/* The same for a program in which cells repeat often: a few of each are compiled, and the others are copies of their
 * steps (repeat.h). The schedule is compact. *out_is false: the program is not such a one, and there is no schedule. */
HR_MUST_USE hr_status hr_compile_repeats(const hr_program *stream, const hr_target *target, hr_schedule *out_schedule,
                                         bool *out_is);
void hr_schedule_fini(hr_schedule *schedule);

/* Gives the buffers of the arena their offsets. RESOURCE_EXHAUSTED. */
HR_MUST_USE hr_status hr_place_buffers(hr_schedule *schedule);

/* A copy of a compact schedule, in memory of its own. RESOURCE_EXHAUSTED. */
HR_MUST_USE hr_status hr_schedule_copy(const hr_schedule *schedule, hr_schedule *out_copy);
/* Moves what runs need into memory of its own and frees the rest: loop nodes and the steps' lists of nodes are gone
 * (`nodes` and a kernel's `node` are NULL), and so are temporary buffers that the steps don't name. On failure
 * RESOURCE_EXHAUSTED, and nothing has changed. */
HR_MUST_USE hr_status hr_schedule_compact(hr_schedule *schedule);
/* The same, but all stays in the memory of the passes: less work for a schedule that is soon packed.
 * RESOURCE_EXHAUSTED: the schedule is useless. */
HR_MUST_USE hr_status hr_schedule_narrow(hr_schedule *schedule);
/* Frees the kernel forms and declined nodes of a copy: a step's `kernel` is NULL. */
void hr_schedule_drop_forms(hr_schedule *schedule);
/* Then frees all but the counts, sizes and origins. False when memory is out, and nothing has changed. */
HR_MUST_USE bool hr_schedule_drop_lists(hr_schedule *schedule);
/* Bytes of host memory that the schedule takes. */
size_t hr_schedule_footprint(const hr_schedule *schedule);

/* Lists the recorded operations that each step computes; an operation may be in several steps. RESOURCE_EXHAUSTED. */
HR_MUST_USE hr_status hr_find_origins(hr_schedule *schedule);

/* Sorts the numbers and drops repeated ones; returns how many are left. */
size_t hr__sort_unique(uint32_t *numbers, size_t count);

/* Reads these lists, step after step: zero it but for `at`, which is schedule->origins. */
typedef struct hr_origin_reader {
  const uint8_t *at;
  uint32_t left, last; /* of the step's list: numbers not read yet, and the last one that was */
} hr_origin_reader;

/* Begins the next step's list; returns its length. All numbers of the list before must have been read. */
uint32_t hr_origins_begin(hr_origin_reader *reader);
/* The list's next number; they ascend. */
uint32_t hr_origins_next(hr_origin_reader *reader);

/* Writes them, step after step; zero it first. The caller frees `bytes`. */
typedef struct hr_origin_writer {
  HR_VECTOR(uint8_t) bytes;
  uint32_t last; /* of the step's list */
  bool failed;   /* out of memory */
} hr_origin_writer;

/* Begins the next step's list, of this length. */
void hr_origins_put_count(hr_origin_writer *writer, uint32_t count);
/* The list's next number; they ascend. */
void hr_origins_put(hr_origin_writer *writer, uint32_t origin);

/* Checks that the steps keep the order of the program's dependencies, and that no store to older memory passes a check.
 * No two buffers in use at the same time may share bytes of the arena. INTERNAL names the nodes, buffers and steps. */
HR_MUST_USE hr_status hr_schedule_verify(const hr_schedule *schedule);

#endif
