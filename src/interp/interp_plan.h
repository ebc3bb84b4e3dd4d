/* interp_plan.h: the block interpreter's plan of a kernel form.
 *
 *   kernel --interp_geometry.c--> cut domain --interp_plan.c--> steps --interp_slots.c--> places of registers
 *          --interp_run.c, interp_walk.c--> results
 *
 * **The domain in two dimensions.** Dims of 1 vanish; the others are kept or reduced (ordered dims count as reduced:
 * they are walked in order, too). Adjacent dims that every access can merge are merged. The remaining dims are cut into
 *
 *   batch   dims that no tile spans: one number names the batch
 *   outer x inner   a plane; a tile is a rectangle of it, a block a rectangle of a tile that fits L1
 *
 *   POINTWISE            plane = kept x kept         a tile is one block
 *   ROWS (LANES)         plane = kept x reduced      a tile holds whole rows; long rows are walked block after block
 *   COLUMNS (SEQUENTIAL) plane = reduced x kept      a tile holds whole columns; long ones are walked
 *   scatter              ordered dims innermost: as ROWS; else as COLUMNS, the ordered dims outside
 *
 * **Registers vary** along some of batch, outer and inner. A register that varies along both outer and inner is a
 * matrix with a pitch; along one of them a vector, along none a single element. An instruction runs over the dims along
 * which its result varies, and as rarely as possible: once a run, once a tile, or for each block. So a bias costs
 * nothing per element, and row instructions need no code of their own.
 *
 * **Memory.** A contiguous load of a dtype that is its own class is a pointer, and the last instruction before a
 * contiguous store writes to memory. If that could change data read later, which depends on the addresses (in-place
 * use, memory reused by the planner), each run decides.
 */
#ifndef HEADRACE_INTERP_INTERP_PLAN_H_
#define HEADRACE_INTERP_INTERP_PLAN_H_

#include <string.h>

#include "base/allocator.h"
#include "base/arena.h"
#include "core/ir/kernel_dims.h"
#include "interp/interp.h"
#include "interp/interp_loops.h"

enum { HR__BLOCK = 1024, HR__LEVELS = 5, HR__PHASES_MAX = 64, HR__BOUNDS_MAX = 8 };

/* The dims along which a register, a map or a step varies, as bits. */
enum { HR__OUTER = 1, HR__INNER = 2, HR__BATCH = 4, HR__PLANE = 3 };

/* How often a step runs. */
typedef enum hr__often { HR__EACH_RUN = 0, HR__EACH_TILE, HR__EACH_BLOCK } hr__often;

/* Forms have numbers of 16 bits: they are a third of a cached program's memory. Kernels of more registers or numbers of
 * accesses are refused; fusion makes none of a third (HR_GROUP_ACCESSES_MAX). An instruction needs at most a step and
 * a register of its own, and four broadcasts. */
enum { HR__FORM_MAX = INT16_MAX, HR__INSTR_REGISTERS_MAX = 5 };

typedef enum hr__walk { HR__WALK_NONE = 0, HR__WALK_INNER, HR__WALK_OUTER } hr__walk;

/* ---- the form: what plans of one structure that are cut alike have in common ---- */

/* An access: coordinate 0 is the element's address, the others are bounds' coordinates. Its numbers, among the plan's:
 *
 *   offset[coords], batch strides[coords][batch rank]
 *   outer side: dims[rank - 1], strides[coords][rank]     inner side: the same      (see hr__axes)
 *   extent[coords - 1]                                    of the bounds
 *   stride, extent                                        of each term
 *
 * Maps with equal lists of the first two lines share them: operands mostly have the same strides.
 */
typedef struct hr__map {
  int16_t access; /* of the kernel */
  int16_t arg;    /* -1: INDEX */
  uint8_t outer_rank, inner_rank;
  int16_t offset, outer, inner, extent, terms; /* positions of its numbers */
  int16_t term_count, term_first;              /* in the list of registers of terms */
  int16_t fill;                                /* register, -1: zero */
  int16_t base;                                /* position in the frame of its coordinates for the current batch */
  uint8_t dtype, size;                         /* size: of an element in memory */
  uint8_t vary;                                /* of the affine part */
  uint8_t coords;
} hr__map;

/* One side of the plane in a map's view: its dims merged further, at least one. The first one's size is not needed. */
typedef struct hr__axes {
  int rank;
  const int64_t *later_dims; /* of dims 1, 2, .. */
  const int64_t *strides;    /* [coords][rank] */
} hr__axes;

static inline hr__axes hr__axes_at(const int64_t *numbers, int rank) {
  return (hr__axes){rank, numbers, numbers + rank - 1};
}
static inline hr__axes hr__outer_axes(const hr__map *map, const int64_t *numbers) {
  return hr__axes_at(numbers + map->outer, map->outer_rank);
}
static inline hr__axes hr__inner_axes(const hr__map *map, const int64_t *numbers) {
  return hr__axes_at(numbers + map->inner, map->inner_rank);
}

typedef enum hr__place {
  HR__PLACE_NONE = 0,
  HR__PLACE_SCALAR, /* converted at each run */
  HR__PLACE_SLOT,   /* in the thread's scratch */
  HR__PLACE_MEMORY  /* at a load's or store's address; also a slot if there is a conflict */
} hr__place;

typedef struct hr__register {
  union {
    int16_t map;    /* MEMORY */
    int16_t scalar; /* SCALAR: of the kernel */
  };
  uint8_t cls : 4; /* hr_class */
  uint8_t often : 2, place : 2;
  uint8_t vary : 3;
  uint8_t is_tile : 1;    /* the slot holds a whole tile: it crosses phases */
  uint8_t size_shift : 4; /* of an element's size, a power of two */
} hr__register;

static inline int hr__register_size(const hr__register *reg) {
  return 1 << reg->size_shift;
}

typedef enum hr__step_kind {
  HR__STEP_LOAD,  /* copies; a pointer load has no step for each block, unless it may conflict */
  HR__STEP_POINT, /* a load that is a pointer, outside blocks */
  HR__STEP_INDEX,
  HR__STEP_LOOP,
  HR__STEP_REDUCE,
  HR__STEP_ARGREDUCE,
  HR__STEP_STORE
} hr__step_kind;

/* The form of an operand in a LOOP. */
enum { HR__SEE_MATRIX = 0, HR__SEE_ROW, HR__SEE_COLUMN, HR__SEE_ONE };

typedef struct hr__step {
  uint8_t kind : 3;  /* hr__step_kind */
  uint8_t space : 2; /* bits of HR__PLANE: the sides that it runs over */
  uint8_t arity : 3;
  uint8_t see; /* two bits for each source (hr__step_see) */
  uint8_t section;
  uint8_t can_flatten : 1; /* all operands are matrices or single elements */
  uint8_t spread_row : 1;  /* SPREAD of a row rather than of elements */
  uint8_t mode : 6;        /* hr_store_mode */
  int16_t dst, src[4];
  union {
    uint16_t loop;  /* LOOP: its number (hr__loop_at) */
    int16_t map;    /* LOAD, POINT, INDEX, STORE */
    int16_t reduce; /* REDUCE, ARGREDUCE */
  };
} hr__step;

static inline unsigned hr__step_see(const hr__step *step, int source) {
  return (unsigned)step->see >> 2 * source & 3;
}

_Static_assert(sizeof(hr__map) == 28 && sizeof(hr__register) == 4 && sizeof(hr__step) == 16, "no padding");

typedef struct hr__reduction {
  int phase, dst, arity; /* arity 2: argreduce */
  int key_size;          /* of an accumulator */
  int64_t is_sum;
  const hr__reduce_loops *loops;
  hr__argreduce_fn better;
} hr__reduction;

/* At run time: if the addresses of the two arguments are equal, the register uses its slot. */
typedef struct hr__conflict {
  int16_t reg, arg_a, arg_b;
} hr__conflict;

/* The head of a block of memory; its lists follow, at `.._at` bytes from its start. */
typedef struct hr__form {
  int chunk;
  uint8_t walk; /* hr__walk */
  uint8_t batch_rank;
  bool has_batches; /* more than one */
  bool is_walked;   /* a tile has several blocks */
  bool is_split;    /* chunks of one row or column are separate units */
  uint8_t times;    /* 1 + the scalar with the iterations of a repeated kernel; 0: each unit runs once */
  uint8_t phase_count, section_count; /* section 0: run; 1 + 2p: tile of phase p; 2 + 2p: its blocks */
  int16_t step_count, register_count, map_count, reduction_count;
  int16_t point_count; /* registers whose pointers move with each block */
  int16_t number_count;
  int coord_count, conflict_count;
  int sections_at, registers_at, maps_at, terms_at, reductions_at, conflicts_at, points_at, name_at;
} hr__form;

_Static_assert(sizeof(hr__form) == 24 + 10 * 4, "no padding: equal forms have equal bytes");

#define HR__FORM_LIST(name, type)                                              \
  static inline const type *hr__form_##name(const hr__form *form) {            \
    return (const type *)(const void *)((const char *)form + form->name##_at); \
  }
HR__FORM_LIST(sections, int16_t) /* [section_count + 1]: the first step of each */
HR__FORM_LIST(registers, hr__register)
HR__FORM_LIST(maps, hr__map)
HR__FORM_LIST(terms, int) /* registers */
HR__FORM_LIST(reductions, hr__reduction)
HR__FORM_LIST(conflicts, hr__conflict)
HR__FORM_LIST(points, int16_t)
HR__FORM_LIST(name, char)
#undef HR__FORM_LIST
static inline const hr__step *hr__form_steps(const hr__form *form) {
  return (const hr__step *)(const void *)(form + 1);
}

/* ---- the slots: places of a form's registers in a thread's scratch, for blocks and tiles up to some size ---- */

/* The largest rectangle that slots hold: its sides, and its elements. */
typedef struct hr__room {
  int64_t outer, inner, area;
} hr__room;

typedef struct hr__state {           /* of a reduction */
  int64_t levels;                    /* in scratch: levels, or keys and .. */
  int64_t indices;                   /* .. indices */
  int64_t partials, partial_indices; /* in workspace */
} hr__state;

/* The head of a block of memory. */
typedef struct hr__slots {
  hr__room block_room, tile_room; /* at least what blocks and tiles need */
  int64_t partial_room;           /* results of chunks that the workspace holds */
  int pointers_at, pitches_at, bases_at, slotted_at, offsets_at, row_offsets_at, temp_at; /* in scratch */
  int state_count;
  /* hr__state of each reduction; int: of each register the place in scratch, or -1 */
} hr__slots;

static inline const hr__state *hr__slot_states(const hr__slots *slots) {
  return (const hr__state *)(const void *)(slots + 1);
}
static inline const int *hr__slot_places(const hr__slots *slots) {
  return (const int *)(const void *)(hr__slot_states(slots) + slots->state_count);
}

/* ---- the plan ---- */

/* The plane, its tiles and its blocks. */
typedef struct hr__plane {
  int64_t outer, inner;
  int64_t tile_outer, tile_inner, block_outer, block_inner;
  int64_t tiles_outer, tiles_inner; /* per batch */
} hr__plane;

/* One block of memory. Form and slots are interned: plans of one structure mostly have the same. */
typedef struct hr__plan {
  hr_host_kernel base;
  hr__plane plane;
  int64_t numbers[]; /* dims of the batch, numbers of each map; then the passes */
} hr__plan;

enum { HR__INTERNED_FORM = 0, HR__INTERNED_SLOTS };
static inline const hr__form *hr__form_of(const hr__plan *plan) {
  return plan->base.interned[HR__INTERNED_FORM];
}
static inline const hr__slots *hr__slots_of(const hr__plan *plan) {
  return plan->base.interned[HR__INTERNED_SLOTS];
}

/* ---- building one ---- */

/* The domain. */
typedef struct hr__cut {
  hr_dims kept, reduced, batch, outer, inner;
} hr__cut;

/* A plan while it is built, with lists in an arena. */
typedef struct hr__draft {
  hr_arena *arena;
  hr__cut cut;
  hr__plane plane;
  hr__walk walk;
  int64_t batch_count, row_elements, chunk, chunk_count;
  bool is_walked, is_split;
  uint8_t times;
  int phase_count, section_count;
  int register_count, map_count, step_count, reduction_count, conflict_count, point_count, coord_count;
  int term_count, number_count;
  hr__register *registers;
  hr__map *maps;
  hr__step *steps;
  int16_t *section_begin;
  hr__reduction *reductions;
  hr__conflict *conflicts;
  int16_t *points;
  int *terms;
  int64_t *numbers;
  hr__slots slots;
  int *places;
  hr__state *states;
  size_t scratch_bytes, workspace_bytes;
} hr__draft;

/* True if a form can number all that the kernel has (HR__FORM_MAX). */
bool hr__plan_fits_form(const hr_kernel *kernel);
/* Cuts the domain; fills all counts of it. */
void hr__plan_geometry(hr__draft *draft, const hr_kernel *kernel);
/* Room for the numbers and terms of maps of all accesses that instructions have; the batch's dims are there. */
HR_MUST_USE bool hr__plan_reserve(hr__draft *draft, const hr_kernel *kernel);
/* Appends a map of the kernel's access on the cut domain, its numbers and terms. `like`: one whose positions it gets if
 * its numbers allow that; NULL: it may have the positions of the draft's last maps. */
void hr__plan_map(hr__draft *draft, const hr_access *access, const hr__map *like, hr__map *out_map);
/* Decides which registers are pointers, and assigns every register's place. `like`: slots whose rooms the new ones
 * get, too, or NULL. */
HR_MUST_USE hr_status hr__plan_slots(hr__draft *draft, const hr__slots *like, const hr_kernel *kernel);
/* The results of chunks that a split domain has in all tiles; else 0. */
int64_t hr__plan_partials(const hr__draft *draft);
/* Fills the passes, their number in *out_count, and estimates. */
void hr__plan_set_passes(const hr__draft *draft, const hr_kernel *kernel, hr_host_pass passes[2], int *out_count);

/* ---- kernels with a loop of their own (interp_adam.c, interp_gather.c, interp_scatter.c) ---- */

/* A zeroed kernel of `size` bytes, in one block of *out_bytes with its name; NULL: there is no memory. */
static inline void *hr__named_calloc(size_t size, const char *name, const char **out_name, size_t *out_bytes) {
  const char *own = name != NULL ? name : "kernel";
  size_t length = strlen(own);
  char *block = hr_calloc(1, size + length + 1);
  if (block != NULL) {
    *out_name = memcpy(block + size, own, length + 1);
    *out_bytes = size + length + 1;
  }
  return block;
}

/* True if a kernel is a step of Adam on dense operands. */
bool hr__adam_fits(const hr_kernel *kernel);
HR_MUST_USE hr_status hr__adam_create(const hr_kernel *kernel, hr_host_kernel **out_host_kernel);
/* Gives one the numbers of another kernel, while nothing runs it; false: it is none, or the kernel does not fit. */
bool hr__adam_renumber(hr_host_kernel *host_kernel, const hr_kernel *kernel);
/* True if a kernel only copies runs from indexed positions. */
bool hr__gather_fits(const hr_kernel *kernel);
HR_MUST_USE hr_status hr__gather_create(const hr_kernel *kernel, hr_host_kernel **out_host_kernel);
bool hr__gather_renumber(hr_host_kernel *host_kernel, const hr_kernel *kernel); /* as for Adam */
/* True if a kernel only stores loaded elements, or a number, to indexed positions. */
bool hr__scatter_fits(const hr_kernel *kernel);
HR_MUST_USE hr_status hr__scatter_create(const hr_kernel *kernel, hr_host_kernel **out_host_kernel);
bool hr__scatter_renumber(hr_host_kernel *host_kernel, const hr_kernel *kernel); /* as for Adam */

/* ---- execution ---- */

#define HR__DENSE INT64_MIN /* of pitches */

typedef struct hr__frame { /* one thread's state of a run */
  const hr__plan *plan;
  const hr__form *form;
  const hr__register *registers;
  const hr__map *maps;
  const int64_t *numbers;
  int64_t row_elements, chunk_count;
  const hr_host_call *call;
  char *scratch;
  char **pointer;         /* by register */
  int64_t *pitch;         /* by register; HR__DENSE: rows are adjacent (real pitches may be negative) */
  int64_t *base;          /* coordinates of maps for the current batch */
  bool *is_slotted;       /* by register: a MEMORY register that conflicts in this run */
  int64_t tile;           /* number of the tile */
  int64_t o0, i0, on, in; /* the current rectangle of the plane */
} hr__frame;

void hr__plan_run(const hr_host_kernel *kernel, int pass, const hr_host_call *call, int64_t begin, int64_t end);

/* Loads, stores and index numbers over the current rectangle, or the step's part of it. */
void hr__walk_load(hr__frame *frame, const hr__step *step);
void hr__walk_index(hr__frame *frame, const hr__step *step);
void hr__walk_store(hr__frame *frame, const hr__step *step);

#endif
