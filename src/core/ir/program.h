/* program.h: the intermediate representation, from the recorded stream to the list of loops.
 *
 * A program is a list of nodes in order, on buffers through views. The same structs serve two forms:
 *
 *   stream form   nodes as recorded: composites, contractions, element-wise rows on views of any shape;
 *                 every version is 0.
 *   value form    after hr_expand and hr_versions: each write to a buffer creates a new version of it; every node is
 *                 a loop node, a contraction or a special one. The passes simplify, fuse, plan and lower use it.
 *
 * A **loop node** has one domain: `rank` dims shared by all its operands. An operand's strides give the step of its
 * address along each dim of the domain: 0 broadcasts. Reductions name the reduced dims in `reduce_mask`; their output
 * has stride 0 there. Beside the affine map an operand may have
 *   bounds   affine coordinates that must be in [0, extent). Out of bounds a load returns the operand's fill scalar
 *            (or 0) and a store is skipped: padding, windows at the border;
 *   terms    loaded index * stride, added to the address: gather (inputs) and scatter (outputs).
 * In a scattering node `ordered_mask` has the dims of the domain along which two elements may have the same target.
 * Those run in order, in one thread.
 *
 * A **contraction** may have epilogues: element-wise rows on its result before it is stored, in order. One or more of a
 * row's operands are the value so far. The others are inputs of the node after the contraction's own, broadcast to the
 * output's dims:
 *   %4:f32[8,64,14,14].. = conv(%0.., %1.., _, %2:..{0,1,0,0}+0, %3..) ints(..)
 *                          then(mul,^,3) then(add,^,4) then(relu,^)
 *
 * A loop node with epilogues is a **chain**: several element-wise rows on the same elements, whose results have one
 * dtype. Its first row takes the first inputs of the node. ^ is the result of the row before, ^0 that of the first row.
 * The last row makes the last output; to(0) marks a result that is stored to output 0:
 *   loop %0.1:f32[64].., %2.1:f32[64].. = lerp(%0.., %1.., $0) to(0) then(sqrt,^) then(addcdiv,3,^0,^,4)
 *
 * All memory of a program lives in its arena and is freed at once. Not thread safe; a program belongs to one compile.
 */
#ifndef HEADRACE_CORE_PROGRAM_H_
#define HEADRACE_CORE_PROGRAM_H_

#include <stdbool.h>
#include <string.h>

#include "base/arena.h"
#include "base/text.h"
#include "headrace/stream.h"

typedef enum hr_operand_kind {
  HR_OPERAND_NONE = 0, /* an absent optional operand */
  HR_OPERAND_VALUE,    /* elements of a buffer */
  HR_OPERAND_SCALAR,   /* program->scalars[index] at run time */
  HR_OPERAND_INDEX     /* the number offset + sum of index * stride (i64): iota, row and column numbers */
} hr_operand_kind;

/* Adds inputs[input] (an integer operand of the same loop node) times stride to the address. */
typedef struct hr_index_term {
  int input;
  int64_t stride; /* in elements */
  int64_t extent; /* negative indices count from here: index + extent */
} hr_index_term;

/* offset + sum of index * strides[] must be in [0, extent). */
typedef struct hr_bound {
  int64_t offset, extent;
  const int64_t *strides; /* one for each dim of the domain */
} hr_bound;

typedef struct hr_operand {
  hr_operand_kind kind : 8;
  hr_dtype dtype : 8;
  int16_t rank;
  uint32_t index;   /* VALUE: buffer; SCALAR: scalar */
  uint32_t version; /* VALUE, value form: the version read or written */
  uint32_t fill;    /* loop nodes: scalar that loads return out of bounds, rounded to dtype; HR_NO_SCALAR: 0 */
  int64_t offset;   /* in elements */
  const int64_t *dims, *strides;
  /* loop nodes only */
  const hr_index_term *terms;
  const hr_bound *bounds;
  int16_t term_count, bound_count;
} hr_operand;

_Static_assert(sizeof(hr_operand) <= 64, "the passes walk through all operands again and again: they are a cache line");

enum { HR_NO_SCALAR = UINT32_MAX };

typedef enum hr_store_mode { /* how a scattering store combines with the old element; contiguous with SCATTER's modes */
                             HR_STORE_SET = 0,
                             HR_STORE_ADD,
                             HR_STORE_MUL,
                             HR_STORE_MAX,
                             HR_STORE_MIN
} hr_store_mode;

enum { HR_EPILOGUE_ARITY_MAX = 4, HR_EPILOGUES_MAX = 8, HR_CHAIN_ROWS_MAX = 16, HR_EPILOGUE_VALUE = -1 };
/* The result of row `row` of a chain, as an epilogue's input; and back. */
#define HR_EPILOGUE_ROW(row) (-2 - (row))

/* One row on a contraction's result. The value so far has the output's dtype, before and after. */
typedef struct hr_epilogue {
  hr_op op;
  int inputs[HR_EPILOGUE_ARITY_MAX]; /* for each operand of the row: an input of the node, HR_EPILOGUE_VALUE, or
                                      * HR_EPILOGUE_ROW */
  int output;      /* chains: the output to which the value before it is stored; -1: none. Contractions: -1 */
  uint32_t origin; /* the recorded node of the value before it, or HR_NO_ORIGIN; the result's is the contraction's */
} hr_epilogue;
enum { HR_NO_ORIGIN = UINT32_MAX };

typedef struct hr_node {
  hr_op op;
  bool is_loop;   /* has a domain; its operands' dims are the domain's (reduced dims included) */
  bool is_relaid; /* used by the compiler: the layout of an operand has changed */
  int input_count, output_count;
  hr_operand *inputs, *outputs;
  int int_count, scalar_count;
  const int64_t *ints;
  int epilogue_count; /* of contractions and chains */
  int kept_group;     /* used by the compiler: 1 + the group of an earlier fusion in which it stays; 0: none */
  const hr_epilogue *epilogues;
  uint32_t scalar_base; /* attribute scalars are program->scalars[scalar_base ..] */
  /* loop nodes */
  uint32_t reduce_mask, ordered_mask;
  hr_store_mode store_mode;
  uint32_t origin; /* the recorded node that this one came from */
  int home;        /* used by the compiler: shares a kernel only with nodes of the same home; 0: with any */
} hr_node;

/* Row `row` of a chain, or of any loop node, which has row 0 alone: its operation, and operand `k` of it as an
 * epilogue names it. */
static inline hr_op hr_node_row_op(const hr_node *node, int row) {
  return row == 0 ? node->op : node->epilogues[row - 1].op;
}
static inline int hr_node_row_input(const hr_node *node, int row, int k) {
  return row == 0 ? k : node->epilogues[row - 1].inputs[k];
}

/* Operand i of a node: its inputs, then its outputs. */
static inline hr_operand *hr_node_operand(const hr_node *node, int i) {
  return i < node->input_count ? &node->inputs[i] : &node->outputs[i - node->input_count];
}

/* The layout of a buffer of [outer, channels, inner] elements that is stored as [outer, inner, channels]. */
typedef struct hr_buffer_layout {
  size_t element_bytes; /* 1, 2, 4 or 8 */
  int64_t channels, inner;
} hr_buffer_layout;

/* The layout as one word, in which buffers keep it between programs; 0 if it doesn't fit. */
uint64_t hr_layout_pack(const hr_buffer_layout *layout);
hr_buffer_layout hr_layout_unpack(uint64_t word);

/* The layout of a buffer of [outer, rows, inner] elements that is stored as [outer, room, inner]: behind the rows of
 * each outer index is room for more. */
typedef struct hr_rows_layout {
  size_t element_bytes; /* 1, 2, 4 or 8 */
  int64_t outer, inner;
} hr_rows_layout;

/* The same as a word, which is no other layout's; 0 if it doesn't fit. The number of rows that there is room for
 * follows from the size of the memory. */
uint64_t hr_rows_pack(const hr_rows_layout *rows);
hr_rows_layout hr_rows_unpack(uint64_t word);
static inline bool hr_layout_is_rows(uint64_t word) {
  return word >> 63 != 0;
}

/* The result of a `cat` may grow in place (compiler/rooms.c): the permission of a cat whose first piece is a whole
 * buffer that nothing else sees afterwards. */
typedef enum hr_growth {
  HR_GROWTH_NONE = 0,
  HR_GROWTH_NEW,      /* give the result room for more rows */
  HR_GROWTH_IN_PLACE, /* the same, or put the result into the buffer's memory, which has room for it */
  HR_GROWTH_DONATED   /* of any buffer: its memory may become that of a result (compiler/donate.c) */
} hr_growth;

typedef struct hr_program_buffer {
  size_t bytes;
  uint64_t
      layout;    /* hr_layout_pack; 0: the default layout. For a free buffer: the compiler's choice, valid afterwards */
  uint64_t rows; /* hr_rows_pack; 0: the default layout. Of a result with room: the compiler's choice */
  size_t room;   /* bytes of its memory if they are more than a view can reach; 0: just its bytes */
  size_t offered_room; /* bytes that a cat with permission may give it; 0: none */
  hr_growth growth;    /* of a cat whose first piece this is, or DONATED */
  uint32_t takes;      /* 1 + the buffer whose memory this one takes over; 0: none */
  uint32_t versions;   /* value form: versions 1 .. versions are written here; version 0 is the earlier contents */
  bool is_dead;        /* unreachable after the program: its stores may be eliminated */
  bool is_fresh;       /* had no contents before the program */
  bool is_free;        /* fresh, and may be given a layout: later readers check `layout` */
  bool is_refused;     /* its accesses don't support its layout: it must be in the default one before the program */
} hr_program_buffer;

/* A scalar of the program: its dtype and, for constants of lowerings, its value. */
typedef struct hr_program_scalar {
  hr_dtype dtype;
  bool is_constant; /* the value is known; else argument `argument` of the run */
  uint32_t argument;
  hr_scalar value;
} hr_program_scalar;

typedef struct hr_program {
  hr_arena arena;
  int node_count, node_capacity;
  hr_node *nodes;
  int buffer_count, buffer_capacity; /* the first `bound_count` are the caller's, the others were added by lowerings */
  int bound_count;
  hr_program_buffer *buffers;
  int scalar_count, scalar_capacity;
  hr_program_scalar *scalars;
  int argument_count; /* scalars passed at run time */
  bool is_value_form;
  bool has_rounds;  /* a lowering made more nodes for larger dims: no other dims have this program's plan */
  bool has_origins; /* stream form: each node's `origin` is right; else it is the node's number */
} hr_program;

void hr_program_init(hr_program *program);
void hr_program_fini(hr_program *program);

/* The functions below return false, UINT32_MAX or NULL when memory is out. */

/* Makes room for as many nodes, buffers and scalars in all: appending them then moves nothing. */
bool hr_program_reserve(hr_program *program, int nodes, int buffers, int scalars);
/* A new buffer; those of lowerings are dead and fresh. */
uint32_t hr_program_add_buffer(hr_program *program, size_t bytes, bool is_dead, bool is_fresh);
/* A scalar of the given kind that each run passes as its next argument. */
uint32_t hr_program_add_argument(hr_program *program, hr_dtype dtype);
/* A scalar whose value is part of the program: constants of lowerings, never numbers that a user passed. */
uint32_t hr_program_add_constant(hr_program *program, hr_scalar value);
/* A copy of a node and of all memory that it points to: one block of hr_node_copy_bytes, aligned to 8. */
size_t hr_node_copy_bytes(const hr_node *node);
void hr_node_copy_to(const hr_node *node, void *block, hr_node *out_copy);
bool hr_node_copy(hr_arena *arena, const hr_node *node, hr_node *out_copy);
/* Appends a node; copies all memory that `node` points to. */
bool hr_program_append(hr_program *program, const hr_node *node);
/* Appends a node without a copy: its operands are in the program's arena, lists of numbers there or where they outlive
 * the program. */
bool hr_program_append_own(hr_program *program, const hr_node *node);

/* The number of operands that write the buffer; exact in stream form, in value form also of eliminated ones. */
uint32_t hr_program_writes(const hr_program *program, uint32_t buffer);

/* The smallest and the largest element that an operand's affine map reaches, without terms; false if it reaches none.
 */
bool hr_operand_range(const hr_operand *operand, int64_t *out_min, int64_t *out_max);
static inline bool hr_operands_have_equal_dims(const hr_operand *a, const hr_operand *b) {
  bool are = a->rank == b->rank;
  for (int d = 0; are && a->dims != b->dims && d < a->rank; ++d) {
    are = a->dims[d] == b->dims[d];
  }
  return are;
}
/* True if two operands of one buffer visit the same elements in the same order. */
bool hr_operands_are_same_map(const hr_operand *a, const hr_operand *b);
/* True if two operands may share an element: exact for views that nest (slices, columns, every other element), true in
 * doubt. Operands with terms may be anywhere in their buffer; bounds are ignored. */
bool hr_operands_may_overlap(const hr_operand *a, const hr_operand *b);

/* The text form, stable and complete:
 *   buffer %0 1024 live
 *   buffer %1 4096 dead fresh
 *   buffer %2 4096 live fresh free
 *   buffer %3 4096 live layout(4,64,4)
 *   scalar $0 f64
 *   scalar $1 f64 = 0.5
 *   %1:f32[4,8]{8,1}+0 = add(%0:f32[4,8]{8,1}+0, $0) ints(1,2) scalars($1) ...
 * Versions print as %1.2. hr_program_parse reads what hr_program_print writes; errors name line and column. */
HR_MUST_USE hr_status hr_program_print(const hr_program *program, hr_text *out_text);
/* "[4,8]", with these signs around the numbers. */
void hr__print_list(hr_text *text, const char *open, int count, const int64_t *items, const char *close);
HR_MUST_USE hr_status hr_program_parse(const char *text, hr_program *out_program);

/* Checks the invariants above: operand counts against the row, ranks, views inside their buffers, masks, terms and
 * bounds. In value form it also checks that versions are written once, in order, before they are read. */
HR_MUST_USE hr_status hr_program_verify(const hr_program *program);

/* Runs a program one element at a time on host memory: the oracle of tests. `memory[b]` is buffer b's bytes for b <
 * bound_count; `arguments` are the run's scalars. Accepts both forms (stream form is expanded first, without
 * providers). Returns OUT_OF_RANGE if a CHECK_INDEX fails. */
HR_MUST_USE hr_status hr_program_evaluate(const hr_program *program, void *const *memory, const hr_scalar *arguments);

#endif
