/* kernel.h: the kernel form, to which a group of fused loop nodes is lowered; the same for every device.
 *
 * A kernel walks one domain (dims in logical row-major order) and runs straight-line instructions on each element. If
 * some dims are reduced, every index of the kept dims is a *row*, and instructions have a level: ELEMENT instructions
 * run for each element of a row, ROW instructions once for each row. REDUCE reduces an element register to a row
 * register. A kernel has phases: the ROW instructions of phase p run first, then its ELEMENT instructions over the
 * whole row, then its reductions are finished and phase p+1 may use them. Softmax is three phases:
 *
 *     phase 0   r0 = load x            r1 = reduce amax r0
 *     phase 1   r2 = load x            r3 = sub r2, r1      r4 = exp r3      r5 = reduce sum r4
 *     phase 2   r6 = div r4, r5        store y, r6
 *
 * An element register used in a later phase than its own stays resident for the row.
 *
 * The order of a reduction over a row's elements is a function of the shape alone (hr_kernel_order):
 *   SEQUENTIAL  if the innermost dim of more than one element is kept, or at most 32 elements are reduced: in chunks
 *               of 512, one element after another, starting from the identity;
 *   LANES       otherwise: in chunks of 4,096. In a chunk, element i goes to lane i mod 64. Lanes start from the
 *               identity, then lane l is combined with lane l + 32, + 16, ... + 1.
 * The results of several chunks are combined as one more row of the same kind, until one is left.
 *
 * A kernel with `ordered_mask` scatters: elements that differ only in ordered dims run in logical order in one thread.
 *
 * A *repeated* kernel is element-wise and updates its arguments in place. Each element runs as often as the last scalar
 * says, an i64 that no instruction reads. It runs all iterations of a loop, element by element.
 */
#ifndef HEADRACE_CORE_KERNEL_H_
#define HEADRACE_CORE_KERNEL_H_

#include "base/arena.h"
#include "base/vector.h"
#include "core/ir/dtype.h"
#include "core/ir/program.h"

enum { HR_REDUCE_CHUNK = 4096, HR_REDUCE_RUN = 512, HR_REDUCE_LANES = 64, HR_REDUCE_SEQUENTIAL_MAX = 32 };

typedef enum hr_reduce_order { HR_ORDER_NONE = 0, HR_ORDER_SEQUENTIAL, HR_ORDER_LANES } hr_reduce_order;

typedef enum hr_level { HR_LEVEL_ELEMENT = 0, HR_LEVEL_ROW } hr_level;

typedef enum hr_instr_kind {
  HR_INSTR_LOAD,    /* dst = memory through `access` (0 or its fill scalar outside its bounds), widened to its class */
  HR_INSTR_INDEX,   /* dst (i64) = access.offset + sum of index * access.strides */
  HR_INSTR_COMPUTE, /* dst = row `op` on sources, in class `cls` */
  HR_INSTR_CONVERT, /* dst = sources[0], converted to dtype `to` (rounded, wrapped or != 0 where narrow) */
  HR_INSTR_REDUCE,  /* dst (row) = combine of sources[0] (element) */
  HR_INSTR_ARGREDUCE, /* dst (row, i64) = sources[1] (i64) at the best sources[0] */
  HR_INSTR_STORE      /* memory through `access`, mode `mode` = sources[0]; skipped outside the bounds */
} hr_instr_kind;

typedef enum hr_source_kind { HR_SOURCE_NONE = 0, HR_SOURCE_REGISTER, HR_SOURCE_SCALAR } hr_source_kind;

typedef struct hr_source {
  hr_source_kind kind;
  int index; /* register, or index into kernel->scalars; a scalar is converted to the class of its use */
} hr_source;

typedef struct hr_kernel_term { /* adds register * stride; negative values count from extent */
  int reg;                      /* an i64 (or i32) register of the same level */
  int64_t stride, extent;
} hr_kernel_term;

typedef struct hr_access {
  int arg; /* argument whose memory is accessed; -1 for INDEX */
  hr_dtype dtype;
  int64_t offset;         /* elements from the argument's address */
  const int64_t *strides; /* one for each dim of the domain; 0 in reduced dims at ROW level */
  int term_count, bound_count;
  const hr_kernel_term *terms;
  const hr_bound *bounds;
  int fill; /* kernel scalar; -1: 0 */
} hr_access;

typedef struct hr_instr {
  hr_instr_kind kind;
  hr_level level; /* of the result; REDUCE and ARGREDUCE count as ELEMENT: they run with the elements */
  int phase;
  hr_op op;
  hr_class cls;
  hr_dtype to;
  int dst; /* register; -1 for STORE */
  int source_count;
  hr_source sources[4];
  int access; /* LOAD, INDEX, STORE; else -1 */
  hr_store_mode mode;
} hr_instr;

/* True if a register is a source of an instruction; terms of its access don't count. */
static inline bool hr_instr_reads(const hr_instr *instr, int reg) {
  for (int s = 0; s < instr->source_count; ++s) {
    if (instr->sources[s].kind == HR_SOURCE_REGISTER && instr->sources[s].index == reg) {
      return true;
    }
  }
  return false;
}

typedef struct hr_register {
  hr_class cls;
  hr_level level;
  int phase, last_phase; /* of its definition and its last use */
} hr_register;

typedef struct hr_kernel_arg {
  uint32_t buffer; /* of the program */
  bool is_read, is_written;
  int64_t bytes_read, bytes_written; /* of distinct elements; for statistics */
} hr_kernel_arg;

typedef struct hr_kernel {
  const char *name; /* made of its operations, for display: "sub_exp_sum" */
  int rank;
  const int64_t *dims;
  uint32_t reduce_mask, ordered_mask;
  bool is_repeated;
  hr_reduce_order order;
  int phase_count;
  int arg_count, scalar_count, access_count, instr_count, register_count;
  const hr_kernel_arg *args;
  const uint32_t *scalars; /* of the program */
  const hr_access *accesses;
  const hr_instr *instrs;
  const hr_register *registers;
  int64_t flops, bytes; /* see core/ir/traffic.h; for statistics and to decide what to compile */
} hr_kernel;

/* True if both accesses surely visit the same elements with the same bounds. False for accesses through indices. */
bool hr_kernel_same_elements(const hr_kernel *kernel, const hr_access *a, const hr_access *b);

/* True if the access visits the elements of the domain one after the other in memory, from its offset on. */
bool hr_kernel_is_dense(const hr_kernel *kernel, const hr_access *access);

/* The order of a reduction over `mask` of a domain. */
hr_reduce_order hr_kernel_order(int rank, const int64_t *dims, uint32_t mask);

/* Elements of a chunk. */
static inline int64_t hr_kernel_chunk(hr_reduce_order order) {
  return order == HR_ORDER_SEQUENTIAL ? HR_REDUCE_RUN : HR_REDUCE_CHUNK;
}

/* Prints a kernel as text, for HEADRACE_DEBUG and tests. */
HR_MUST_USE hr_status hr_kernel_print(const hr_kernel *kernel, hr_text *out_text);

/* A kernel's computation as bytes: kernels with equal keys can share one prepared kernel. The first bytes are those of
 * its structure; then come its numbers: dims, offsets, strides, extents. The key leaves out the buffers and scalars
 * that the kernel is bound to, its name and its estimates. A vector (vector.h). */
typedef struct hr_kernel_key {
  uint8_t *data;
  size_t count, capacity;
  size_t structure_bytes;
} hr_kernel_key;

/* Replaces the key's contents; false when memory is out. The key's block then has room for several times as much. */
HR_MUST_USE bool hr_kernel_make_key(const hr_kernel *kernel, hr_kernel_key *out_key);
/* The kernel of a key's two parts, in an arena: without name and estimates, bound to buffers and scalars 0, 1, ... NULL
 * when memory is out. */
hr_kernel *hr_kernel_from_key(const uint8_t *structure, const uint8_t *numbers, hr_arena *arena);

/* A deep copy in an arena, one block of hr_kernel_copy_bytes; NULL when memory is out. Instructions and registers that
 * are those of `like`, an earlier copy in the arena or NULL, are shared with it. */
size_t hr_kernel_copy_bytes(const hr_kernel *kernel, const hr_kernel *like);
hr_kernel *hr_kernel_copy(const hr_kernel *kernel, const hr_kernel *like, hr_arena *arena);

/* Checks levels, phases, classes, access ranks. */
HR_MUST_USE hr_status hr_kernel_verify(const hr_kernel *kernel);

#endif
