/* emit_device_internal.h: shared by the files of the device emitter.
 *
 *   emit_device.c          preludes; the choice of a kernel's form; one thread for each row
 *   emit_device_access.c   the code for an element and for a row
 *   emit_device_numbers.c  shapes and strides: literals or arguments
 *   emit_device_phases.c   rewrites phases for forms that keep values
 *   emit_device_rows.c     one warp or block for each row
 *   emit_device_turns.c    ... that keeps its row, and whose warps take turns at reductions
 *   emit_device_quads.c    ... with four neighbours for each thread
 *   emit_device_passes.c   chunks of rows over the whole device
 *   emit_device_vector.c   element-wise, several neighbours for each thread
 *   emit_device_tiles.c    tiles that are loaded along one dim and stored along another
 *
 * Names in the text: c0, c1, ... are coordinates of kept dims, w0, ... of walked ones; i is the number of an element in
 * its row; l5 is an accumulator of register 5 and m5 its index; r5 is register 5; `call` is the parameter.
 */
#ifndef HEADRACE_COMPILER_EMIT_DEVICE_INTERNAL_H_
#define HEADRACE_COMPILER_EMIT_DEVICE_INTERNAL_H_

#include "compiler/emit_device.h"
#include "compiler/emit_internal.h"

enum { HR__DEVICE_THREADS = 256, HR__DEVICE_LANES = 32 }; /* of a block, of a warp */
enum { HR__AGAIN = -1, HR__OWN = -2 };                    /* computed again; in an array of the thread's */

typedef struct device {
  hr__emitter *e;
  const char *name;
  int64_t rows, elements, chunk, chunks; /* of a row: elements, those of a chunk, chunks */
  bool is_long;                          /* indices need 64 bits */
  int64_t *spills; /* by register: the offset in the workspace of its values of all elements; or one of those below */
  int own;         /* forms of a warp for each row, or of turns: elements of a thread if it keeps their values itself;
                    * else 0 */
  int64_t *parts;  /* by instruction: the offset of results of chunks, and after them of indices */
  int64_t workspace;
  int block_bytes;  /* shared memory available to a block */
  int64_t *in_pool; /* NULL, or by instruction: the place in shared memory of the row's values that it has loaded; -1:
                     * none */
  int phase;        /* the phase whose elements are being emitted */
  /* NULL, or true if element h of four is at the place of the first of them, a multiple of four, plus h. */
  bool (*is_wide)(const struct device *d, const hr_access *access);
  int inner;     /* the dim along which four are neighbours */
  bool is_quads; /* each thread has four neighbours: loads and stores of elements are v5[u][h] and o5[h] */
  bool is_turns; /* warps of a block take turns at reductions, which are phases of their own */
  bool is_ahead; /* loads of the current elements are done: values are v5[u] */
} device;

/* ---- emit_device_access.c ---- */

const char *hr__device_index_type(const device *d);
/* Reserves bytes of the workspace; returns their offset. */
int64_t hr__device_reserve(device *d, int64_t bytes);
bool hr__device_is_reduction(const hr_instr *instr);
bool hr__device_reduces(const hr_kernel *kernel, int phase);
bool hr__device_has_elements(const hr_kernel *kernel, int phase);
/* The head of a pass of blocks of `threads`, which limits their registers. */
void hr__device_head(const device *d, int pass, int threads);
/* Splits `from` (a C expression) into coordinates PREFIX0, ... over dims. */
void hr__device_coordinates(const device *d, const hr_dims *dims, const char *from, const char *prefix);
/* "(offset + c0 * 784 + w1 * 2)": coordinate c of an access (0: the address, others: of bounds). */
void hr__device_place(const device *d, const hr_access *access, int c, hr_level level);
/* Appends "((float *)call.args[2])[...]", the memory of a load or a store, to a text; its address, to the emitter's. */
void hr__device_memory(const device *d, const hr_instr *instr, hr_text *out);
void hr__device_address(const device *d, const hr_instr *instr);
/* "(bounds) & (indices)", or nothing: true if the element exists. Loads clamp their indices instead. */
bool hr__device_condition(const device *d, const hr_instr *instr);
/* Places values of elements that later phases read, if computing them again would be wrong, or, with d->own, if a
 * thread has room. Leaves d->own 0 if nothing is kept so. True if threads keep all such values. */
bool hr__device_place_spills(device *d);
/* Emits one instruction other than a reduction. */
void hr__device_instr(const device *d, const hr_instr *instr);
/* Declares accumulators: one, or two lanes. */
void hr__device_accumulators(const device *d, int phase, bool is_pair);
/* True if an instruction reads a register. */
bool hr__device_reads(const hr_kernel *kernel, const hr_instr *instr, int reg);
/* Emits all instructions of a phase for element i of a row; SUFFIX of accumulators: "[h]" or "". NULL: the reduced
 * value goes to place t of the block's tile. */
void hr__device_element(const device *d, int phase, const char *suffix);
/* Loads several elements in advance. Returns their number, a power of two of at most `count`, and declares v5[count];
 * the second function loads element u of them, whose number is i. Elements then follow with is_ahead. */
int hr__device_ahead(const device *d, int phase, int count);
void hr__device_declare_ahead(const device *d, int phase, int count);
void hr__device_load_ahead(const device *d, int phase);
/* The instructions whose loads are made in advance in a phase; NULL: out of memory. */
const bool *hr__device_loads_ahead(const device *d, int phase);
/* True if a phase is the one that loads a load's row into shared memory. */
bool hr__device_is_first(const device *d, int load, int phase);
/* Row instructions of a phase. `barrier` separates the reads of all threads from the store of `first`; NULL: a single
 * thread. */
void hr__device_row(const device *d, int phase, const char *barrier, const char *first);

/* ---- emit_device.c ---- */

/* Accumulators become registers. */
void hr__device_results(const device *d, int phase);

/* ---- emit_device_numbers.c ---- */

/* Appends the struct of the parameter and then the functions, BODY, whose free numbers become literals, or words of the
 * parameter. */
void hr__device_finish(const device *d, const hr_text *body, hr_device_shapes shapes, hr_text *out_text,
                       hr_device_emission *emission);

/* ---- emit_device_phases.c ---- */

/* True if two loads of different phases read the same elements of memory that the kernel does not write. */
bool hr__device_is_same_row(const hr_kernel *kernel, const hr_instr *x, const hr_instr *y);
/* Replaces the emitter's kernel by one whose phases reuse the loads of earlier ones. */
void hr__device_merge_loads(device *d);
/* Replaces it by one in which phase p is phase 2p, and its reductions are phase 2p + 1. */
void hr__device_part_phases(device *d);

/* ---- emit_device_turns.c ---- */

/* True if a block has a row, and its warps take turns. Places the row's values and replaces the emitter's kernel by one
 * of more phases. */
bool hr__device_place_turns(device *d);
void hr__device_turn_rows(const device *d, hr_device_emission *emission);

/* ---- emit_device_rows.c ---- */

/* Elements n of a thread that keeps their values, below `count`, some loaded in advance. Each is number first + 32 n of
 * the row (`first`: a C expression), and exists under `guard`: "" or "if (...) ". */
void hr__device_own_elements(const device *d, int phase, int count, const char *first, const char *guard,
                             const char *suffix);
/* Declares the arrays in which a thread keeps values of its elements. */
void hr__device_declare_own(const device *d);

/* Reserves workspace for results of chunks, and for those of an index of the best. */
void hr__device_place_parts(device *d);
int64_t hr__device_part_indices(const device *d, int k);
/* The lanes of elements [from, to) of a warp's row: thread t has lanes t and t + 32. */
void hr__device_lanes(const device *d, int phase, const char *from, const char *to);
/* Folds the lanes; `at` NULL: into registers, else to the place of chunk `at` (a C expression). */
void hr__device_fold_one(const device *d, int k, const char *at);
void hr__device_fold(const device *d, int phase, const char *at);
/* Combines the results of a row's chunks into registers, by one warp. With `shares` it leaves them for the other warps
 * of the block. */
void hr__device_combine(const device *d, int phase, bool shares);
void hr__device_warp_rows(const device *d, hr_device_emission *emission);
void hr__device_block_rows(device *d, hr_device_emission *emission);
/* True if a kernel walks its rows several times, and they are so many and long that one block for each is best. */
bool hr__device_is_block_rows(const device *d);

/* ---- emit_device_quads.c ---- */

/* True if rows of lanes, or columns, can be read as four neighbours for each thread; sets `inner`. */
bool hr__device_is_quads(device *d);
bool hr__device_is_wide(const device *d, const hr_access *access);
/* The parts of that form: the number of fours loaded in advance, variables for their loads, loads of four u at i,
 * variables for its results, its element h at i, its stores at i. */
int hr__device_step_four(const device *d, int phase);
void hr__device_declare_four(const device *d, int phase, int count);
void hr__device_load_four(const device *d, int phase);
void hr__device_open_four(const device *d, int phase, bool is_whole);
void hr__device_make_four(const device *d, int phase);
void hr__device_store_four(const device *d, int phase);
/* The elements [from, to) of a warp's row, a multiple of four; or all elements, of which threads keep values. */
void hr__device_quads(const device *d, int phase, const char *from, const char *to);
void hr__device_own_quads(const device *d, int phase);

/* ---- emit_device_passes.c ---- */

/* True if a kernel's rows are divided over the whole device, in several passes. */
bool hr__device_has_passes(const device *d);
/* True if one warp for each chunk keeps the device busy. */
bool hr__device_has_many_chunks(const device *d);
void hr__device_passes(device *d, hr_device_emission *emission);

/* ---- emit_device_vector.c ---- */

/* True if a kernel has the form of four neighbours for each thread. */
bool hr__device_is_vector(const device *d);
void hr__device_vectors(const device *d, hr_device_emission *emission);

/* ---- emit_device_tiles.c ---- */

/* True if an element-wise kernel loads along another dim than it stores along. */
bool hr__device_is_tiles(const device *d);
void hr__device_tiles(const device *d, hr_device_emission *emission);

#endif
