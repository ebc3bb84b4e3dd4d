/* emit_internal.h: shared by the files of the host emitter.
 *
 *   emit_c.c        the prelude; the choice of a kernel's form; uniform values, scalars
 *   emit_unroll.c   short reductions become element-wise
 *   emit_expr.c     types, functions of rows, one instruction as a statement
 *   emit_access.c   addresses; copies between memory and dense blocks
 *   emit_stage.c    a block: its instructions split into stages, values between stages, loops
 *   emit_points.c   element-wise kernels
 *   emit_rows.c     reductions along rows
 *   emit_nest.c     windows over channels
 *   emit_columns.c  reductions along columns
 *
 * Names in the text: x1 is a number that is not literal, p3 the address of access 3, r5 register 5, t5 its block in
 * scratch, s2_f32 scalar 2 in class f32.
 */
#ifndef HEADRACE_COMPILER_EMIT_INTERNAL_H_
#define HEADRACE_COMPILER_EMIT_INTERNAL_H_

#include "base/arena.h"
#include "compiler/emit.h"
#include "core/ir/kernel_dims.h"
#include "core/ops/op.h"

enum { HR__EMIT_BLOCK = 1024, HR__EMIT_COORDS = 9 };

/* The layout of an access within a block. */
typedef enum hr__lie {
  HR__LIE_UNIFORM, /* one element for the whole block */
  HR__LIE_DIRECT,  /* element k of the block is p[k] */
  HR__LIE_LINEAR,  /* p[k * stride], no bounds */
  HR__LIE_RAGGED   /* anything else: copied to or from a dense block */
} hr__lie;

/* An access over the dims of a block, merged as far as it allows; coordinate 0 is the address, the others are bounds'.
 */
typedef struct hr__emit_axes {
  hr__lie lie;
  int rank, coords;
  int64_t dims[HR_RANK_MAX]; /* dims[0] is not used if the block's first dim is split */
  int64_t strides[HR__EMIT_COORDS][HR_RANK_MAX];
} hr__emit_axes;

typedef struct hr__emit_value { /* of a register */
  hr_class cls;
  int alias;       /* another register, or itself */
  bool is_uniform; /* a variable outside the loops of a block */
  bool has_place;  /* of a load: the sum of its terms is such a variable */
  int stage;       /* the stage that computes it; -1: none */
  int last_stage;  /* the last stage that reads it */
  bool has_block;  /* is in scratch between stages */
  bool is_kept;    /* ... and between phases: the block holds a whole row */
  int64_t offset;  /* of that block, in scratch */
  int reload;      /* the instruction of a load that can be repeated; -1 */
} hr__emit_value;

typedef struct hr__emitter {
  const hr_kernel *kernel;
  const hr_emit_target *target; /* NULL: speed does not matter */
  hr_text *text;
  hr_arena arena;
  hr_dims kept, walked;
  hr__emit_value *values;
  hr__emit_axes *axes; /* by access */
  bool *scalar_used;   /* [scalar][class] */
  hr_dtype *stored_as; /* registers that stores of one dtype alone read: they need no rounding */
  int64_t scratch;     /* bytes so far */
  bool is_nest;        /* the form of emit_nest.c */
  bool has_blocks;     /* a form of stages over blocks, which converts 16-bit floats by whole rows */
  bool is_device;      /* text of emit_device.c */
  bool is_row_walk;    /* blocks run along rows: ragged copies run along the walked dims */
  hr_emission *emission;
  hr_status status; /* the first failure */
} hr__emitter;

#define HR__EMIT(e, ...) hr_text_printf((e)->text, __VA_ARGS__)

/* ---- emit_c.c ---- */

/* Initializes the arrays and registers of a kernel, and the classes in which scalars are read. */
HR_MUST_USE hr_status hr__emit_begin(hr__emitter *e, const hr_kernel *kernel);
/* The functions of the rows of ops.def that the kernel has. */
void hr__emit_functions(hr__emitter *e);
/* The beginning of a C prelude: types, qualifiers of functions, functions of libm. */
void hr__emit_c_words(hr_text *text);
/* The texts of src/core, in the middle of each prelude. */
void hr__emit_core_text(hr_text *text);
/* "const float s0_f32 = ..." of each scalar that is read, from the array `scalars` of the text. */
void hr__emit_scalars(hr__emitter *e, const char *scalars);

/* ---- emit_expr.c ---- */

const char *hr__emit_type(hr_class cls);
const char *hr__emit_dtype(hr_dtype dtype); /* upper case: F32 */
/* The class of a source of an instruction. */
hr_class hr__emit_source_class(const hr_kernel *kernel, const hr_instr *instr, int s);
/* Records the scalars that an instruction reads, and defines the function of its row. */
bool hr__emit_is_special(const hr_instr *instr); /* true if its expression calls functions of core/math/special.h ... */
bool hr__emit_is_loop(const hr_instr *instr);    /* ... that have loops and branches of their own */
void hr__emit_row_function(hr__emitter *e, const hr_instr *instr);
/* The functions identity and combine of a reduction. */
void hr__emit_reduce_functions(hr__emitter *e, hr_op op, hr_class cls);
/* The functions that update the index of the best element. */
void hr__emit_best_functions(hr__emitter *e, hr_op op, hr_class cls);
/* A source: "r5" or "s2_f32". */
void hr__emit_source(hr__emitter *e, const hr_instr *instr, int s);
/* "const float r5 = ...;" for COMPUTE and CONVERT. */
void hr__emit_statement(hr__emitter *e, const hr_instr *instr);
/* True if its row has a short form for the usual operands (hr__f32_is_near, hr__f32_is_small in core/math/vmath.h);
 * then the statement in that form, and "far |= ...;" for an element that needs the long one. */
bool hr__emit_has_near(const hr_instr *instr);
void hr__emit_near(hr__emitter *e, const hr_instr *instr);
void hr__emit_look(hr__emitter *e, const hr_instr *instr);
/* The cost of an instruction, in cheap operations. */
int hr__emit_weight(const hr_kernel *kernel, const hr_instr *instr);
int hr__emit_resolve(const hr__emitter *e, int reg);

/* ---- emit_access.c ---- */

/* Merges an access over the dims of a block. */
void hr__emit_see(const hr_kernel *kernel, const hr_access *access, int rank, const int64_t *dims, const int *source,
                  bool first_is_cut, hr__emit_axes *out_axes);
/* "offset + c0 * stride + ..." of coordinate c over dims [begin, end) whose places are in the text as PREFIXd. */
void hr__emit_base(hr__emitter *e, const hr_access *access, int c, const hr_dims *dims, int begin, int end,
                   const char *prefix);
/* Reads or writes element `index` (a C expression) of an access as a value of its class. */
void hr__emit_load(hr__emitter *e, int access, const char *index);
void hr__emit_store(hr__emitter *e, const hr_instr *store, const char *index);
/* Emits the value that a store writes to `memory`, from its source. */
void hr__emit_stored(hr__emitter *e, const hr_instr *store, const char *memory);
/* Emits the value of a load out of bounds. */
void hr__emit_fill(hr__emitter *e, const hr_access *access, hr_class cls);
/* "((uint64_t)b3_1 < 28u) & ..." of an access whose bounds are constant here. */
void hr__emit_inside(hr__emitter *e, int access);
/* The element of a uniform access, with bounds checks. */
void hr__emit_uniform_load(hr__emitter *e, const hr_instr *load);
/* Copies a ragged access to its register's block, or from its source's. */
void hr__emit_copy_in(hr__emitter *e, const hr_instr *load);
void hr__emit_copy_out(hr__emitter *e, const hr_instr *store);
/* Declares p3 and the coordinates b3_1 ... of an access; `start` (or NULL): the text of a line's offset. */
void hr__emit_pointer(hr__emitter *e, int access, const hr_dims *dims, int begin, int end, const char *prefix,
                      const char *start);
/* True if an instruction is a loop of its own from or to dense blocks: copies of an access, rounding to f16, random
 * numbers. */
bool hr__emit_is_copied(const hr__emitter *e, const hr_instr *instr);
/* True if an instruction makes random numbers of elements that are consecutive within a block, with the same seeds;
 * emits a block of them. */
bool hr__emit_is_run(const hr__emitter *e, const hr_instr *instr);
void hr__emit_run(hr__emitter *e, const hr_instr *instr, const char *count);
/* Rounds a block to f16. */
void hr__emit_round(hr__emitter *e, const hr_instr *convert, const char *count);
/* " + hr_term(r5, 10) * 7" for each indirect term. */
void hr__emit_terms(hr__emitter *e, const hr_access *access);

/* ---- emit_stage.c ---- */

/* The text's expressions for the number of elements of a block and its offset in the row ("b"; NULL: there is one
 * block). */
typedef struct hr__emit_block {
  const char *count;
  const char *start;
  int64_t capacity; /* elements of a block */
  int64_t row;      /* elements of a whole row, for values that cross phases */
  bool is_strip;    /* so few elements that compilers keep them in registers: in arrays local to the function */
} hr__emit_block;

/* Finds registers whose value is the same for a whole block. Call once; instructions in order. */
void hr__emit_find_uniform(hr__emitter *e);
/* True for scalars and such registers. */
bool hr__emit_source_is_uniform(const hr__emitter *e, const hr_source *source);
/* Makes copies, and conversions that change nothing, aliases of a register. */
void hr__emit_find_aliases(hr__emitter *e);
/* Writes the statements of a phase's uniform instructions. */
void hr__emit_uniform(hr__emitter *e, int phase, hr_level level);
/* Writes the stages of a phase over one block. */
void hr__emit_stages(hr__emitter *e, int phase, const hr__emit_block *block);

/* ---- forms ---- */

hr_status hr__emit_unroll(const hr_kernel *kernel, hr_arena *arena, const hr_kernel **out_kernel);
/* True if an element-wise kernel has the form of a nest; the dim that becomes vectors is then the last one kept. */
bool hr__emit_is_nest(hr__emitter *e);
hr_status hr__emit_nest(hr__emitter *e, const char *name, hr_emission *out_emission);
hr_status hr__emit_points(hr__emitter *e, const char *name, hr_emission *out_emission);
hr_status hr__emit_columns(hr__emitter *e, const char *name, hr_emission *out_emission);
hr_status hr__emit_rows(hr__emitter *e, const char *name, hr_emission *out_emission);

int64_t hr__emit_reserve(hr__emitter *e, int64_t bytes);
/* The text's name for a number that is an argument: "x2". Call it before the head is written. */
/* Format of a number in a device's text that need not be a compile-time constant: see emit_device_numbers.c. */
#define HR__FREE "\1%lld\1"

typedef struct hr__emit_extent {
  char text[24];
} hr__emit_extent;
hr__emit_extent hr__emit_runtime(hr__emitter *e, int64_t number);
/* The beginning of a range function: head, scalars. */
void hr__emit_head(hr__emitter *e, const char *name, int pass);
/* The end of the loop from `from` on over a line of literal width: a multiple of 16, 8, 4, 2. gcc then makes a vector
 * of the rest, instead of scalar code of up to 15 elements. */
int64_t hr__emit_cut(int64_t from, int64_t width);
/* True if only reductions run over the elements, so that chunks can be units. */
bool hr__emit_can_split(const hr_kernel *kernel);
/* The number of units worth another thread if one has `elements` elements. */
int64_t hr__emit_grain(const hr_kernel *kernel, int64_t elements);
/* UNIMPLEMENTED for kernels that the interpreter runs faster. */
hr_status hr__emit_worth(const hr__emitter *e, int64_t row);
hr_status hr__emit_unable(const hr_kernel *kernel, const char *what);

#endif
