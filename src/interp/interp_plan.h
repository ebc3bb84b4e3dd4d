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

#include "base/arena.h"
#include "core/ir/kernel_dims.h"
#include "interp/interp.h"
#include "interp/interp_loops.h"

enum { HR__BLOCK = 1024, HR__LEVELS = 5, HR__PHASES_MAX = 64, HR__BOUNDS_MAX = 8 };

/* The dims along which a register, a map or a step varies, as bits. */
enum { HR__OUTER = 1, HR__INNER = 2, HR__BATCH = 4, HR__PLANE = 3 };

/* How often a step runs. */
typedef enum hr__often { HR__EACH_RUN = 0, HR__EACH_TILE, HR__EACH_BLOCK } hr__often;

typedef enum hr__walk { HR__WALK_NONE = 0, HR__WALK_INNER, HR__WALK_OUTER } hr__walk;

/* One side of the plane in a map's view: its dims merged further, at least one. */
typedef struct hr__axes {
  int rank;
  const int64_t *dims;
  const int64_t *strides; /* [coords][rank] */
} hr__axes;

typedef struct hr__term {
  int reg;
  int64_t stride, extent;
} hr__term;

/* An access: coordinate 0 is the element's address, the others are bounds' coordinates. */
typedef struct hr__map {
  int access; /* of the kernel */
  int arg;    /* -1: INDEX */
  hr_dtype dtype;
  int size; /* of an element in memory */
  int coords;
  const int64_t *offset, *extent; /* [coords]; extent[0] is unused */
  const int64_t *batch;           /* strides [coords][batch rank] */
  hr__axes outer, inner;
  unsigned vary; /* of the affine part */
  int term_count;
  const hr__term *terms;
  int fill; /* register, -1: zero */
  int base; /* position in the frame of its coordinates for the current batch */
} hr__map;

typedef enum hr__place {
  HR__PLACE_NONE = 0,
  HR__PLACE_SCALAR, /* converted at each run */
  HR__PLACE_SLOT,   /* in the thread's scratch */
  HR__PLACE_MEMORY  /* at a load's or store's address; also a slot if there is a conflict */
} hr__place;

typedef struct hr__register {
  int64_t offset;      /* in scratch; -1: none */
  int map;             /* MEMORY */
  int scalar;          /* SCALAR: of the kernel */
  uint8_t cls;         /* hr_class */
  uint8_t size;        /* of an element */
  uint8_t vary, often; /* HR__OUTER .., hr__often */
  uint8_t place;       /* hr__place */
  bool is_tile;        /* the slot holds a whole tile: it crosses phases */
  uint8_t def_section, last_section;
  int def, last; /* positions of steps */
} hr__register;

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
  uint8_t kind;  /* hr__step_kind */
  uint8_t space; /* bits of HR__PLANE: the sides that it runs over */
  uint8_t arity;
  uint8_t mode; /* hr_store_mode */
  uint8_t see[4];
  uint8_t section;
  bool can_flatten; /* all operands are matrices or single elements */
  bool spread_row;  /* SPREAD of a row rather than of elements */
  int dst, src[4];
  int map;    /* LOAD, INDEX, STORE */
  int reduce; /* REDUCE, ARGREDUCE */
  hr__loop_fn fn;
} hr__step;

typedef struct hr__reduction {
  int phase, dst, arity; /* arity 2: argreduce */
  int src[2];
  bool is_sum;
  const hr__reduce_loops *loops;
  hr__argreduce_fn better;
  int key_size;  /* of an accumulator */
  int64_t state; /* in scratch: levels, or keys and indices */
  int64_t state_indices;
  int64_t partials; /* in workspace */
  int64_t partial_indices;
} hr__reduction;

/* At run time: if the addresses of the two arguments are equal, the register uses its slot. */
typedef struct hr__conflict {
  int reg, arg_a, arg_b;
} hr__conflict;

/* The largest rectangle that slots hold: its sides, and its elements. */
typedef struct hr__room {
  int64_t outer, inner, area;
} hr__room;

/* The domain, while a plan is built. */
typedef struct hr__cut {
  hr_dims kept, reduced, batch, outer, inner;
} hr__cut;

/* One block of memory with the numbers; all other lists are interned: plans of one structure have the same. */
typedef struct hr__plan {
  hr_host_kernel base;
  const void *structure; /* steps, sections, conflicts, points, name */
  const void *slots;     /* registers, reductions */
  hr_arena *arena;       /* while it is built; then NULL, and .. */
  hr__cut *cut;          /* .. so is this */
  hr__walk walk;
  int batch_rank;
  const int64_t *batch_dims;
  int64_t batch_count, outer_count, inner_count;
  int64_t tile_outer, tile_inner, block_outer, block_inner;
  int64_t tiles_outer, tiles_inner; /* per batch */
  hr__room block_room, tile_room;   /* of slots: at least what blocks and tiles need */
  bool is_walked;                   /* a tile has several blocks */
  bool is_split;                    /* chunks of one row or column are separate units */
  int64_t row_elements, chunk, chunk_count;
  int phase_count, section_count; /* section 0: run; 1 + 2p: tile of phase p; 2 + 2p: its blocks */
  int register_count, map_count, step_count, reduction_count, conflict_count;
  hr__register *registers;
  hr__map *maps;
  hr__step *steps;
  int *section_begin; /* [section_count + 1] */
  hr__reduction *reductions;
  hr__conflict *conflicts;
  int point_count; /* registers whose pointers move with each block */
  int *points;
  int coord_count;
  /* scratch */
  int64_t at_pointers, at_pitches, at_bases, at_slotted, at_scalars, at_offsets, at_row_offsets, at_temp, at_state;
} hr__plan;

/* Cuts the domain; fills all counts of it. */
HR_MUST_USE hr_status hr__plan_geometry(hr__plan *plan, const hr_kernel *kernel);
/* A map of the kernel's access on the cut domain; false when memory is out. */
bool hr__plan_map(hr__plan *plan, const hr_access *access, hr__map *out_map);
/* Decides which registers are pointers, and assigns every register's place. `like`: a plan whose rooms the new one
 * gets, too, or NULL. */
HR_MUST_USE hr_status hr__plan_slots(hr__plan *plan, const hr__plan *like, const hr_kernel *kernel);

/* Fills the units of the passes, and estimates. */
void hr__plan_set_units(hr__plan *plan, const hr_kernel *kernel);

/* ---- kernels with a loop of their own (interp_gather.c, interp_scatter.c) ---- */

/* True if a kernel only copies runs from indexed positions. */
bool hr__gather_fits(const hr_kernel *kernel);
HR_MUST_USE hr_status hr__gather_create(const hr_kernel *kernel, hr_host_kernel **out_host_kernel);
/* True if a kernel only stores loaded elements, or a number, to indexed positions. */
bool hr__scatter_fits(const hr_kernel *kernel);
HR_MUST_USE hr_status hr__scatter_create(const hr_kernel *kernel, hr_host_kernel **out_host_kernel);

/* ---- execution ---- */

#define HR__DENSE INT64_MIN /* of pitches */

typedef struct hr__frame { /* one thread's state of a run */
  const hr__plan *plan;
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
