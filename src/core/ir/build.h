/* build.h: the builder with which lowerings write programs.
 *
 * A lowering gets a node, whose operands have shapes of their own, and emits loop nodes through a builder. Errors
 * stick: after the first one every call returns an absent operand and emits nothing, and hr_builder_finish reports it.
 * So lowerings need no check after each line. Operands are values: the view functions return changed copies, whose dims
 * and strides are in the program's arena.
 */
#ifndef HEADRACE_CORE_BUILD_H_
#define HEADRACE_CORE_BUILD_H_

#include "core/ir/program.h"
#include "core/ops/op.h"

struct hr_builder {
  hr_program *program;
  hr_status status; /* the first error */
  uint32_t origin;  /* written into each node */
};

static inline bool hr_is_present(hr_operand x) {
  return x.kind != HR_OPERAND_NONE;
}

/* ---- operands ---- */

/* A new contiguous temporary. */
hr_operand hr_build_temp(hr_builder *b, hr_dtype dtype, int rank, const int64_t *dims);
hr_operand hr_build_temp_like(hr_builder *b, hr_operand x, hr_dtype dtype); /* x's dims, contiguous */
/* A copy of x with x's order in memory, without gaps: reductions walk both in the same order. */
hr_operand hr_build_copy(hr_builder *b, hr_operand x);
/* A constant of the lowering. */
hr_operand hr_build_f64(hr_builder *b, double value);
hr_operand hr_build_i64(hr_builder *b, int64_t value);
/* Attribute scalar `i` of the node being lowered, as an operand. */
hr_operand hr_build_attr(hr_builder *b, const hr_node *node, int i);
/* The number offset + sum of strides[d] * index[d], as an i64 operand of the given dims. */
hr_operand hr_build_index(hr_builder *b, int rank, const int64_t *dims, int64_t offset, const int64_t *strides);

/* ---- views of operands (no nodes) ---- */

hr_operand hr_view_broadcast(hr_builder *b, hr_operand x, int rank, const int64_t *dims); /* aligned at the last dim */
hr_operand hr_view_permute(hr_builder *b, hr_operand x, const int *order);
/* Reorders the dims of `mask` among their positions so that x is walked in memory order, large strides outermost.
 * out_order[i] is the dim at position i. False if they are in that order already, or if x has stride 0 along one. */
bool hr_view_memory_order(const hr_operand *x, uint32_t mask, int *out_order);
hr_operand hr_view_insert(hr_builder *b, hr_operand x, int at, int64_t dim); /* a new dim of stride 0 */
hr_operand hr_view_remove(hr_builder *b, hr_operand x, int at);              /* index 0 of a dim */
hr_operand hr_view_slice(hr_builder *b, hr_operand x, int dim, int64_t start, int64_t count, int64_t step);
hr_operand hr_view_split(hr_builder *b, hr_operand x, int dim, int64_t inner); /* dim -> dim/inner, inner */
/* Merges dims [first, first+count) into one. If the strides don't allow it, x is first copied to a temporary. */
hr_operand hr_view_merge(hr_builder *b, hr_operand x, int first, int count);
/* General reshape: a view if strides allow it, else a view of a contiguous copy. */
hr_operand hr_view_reshape(hr_builder *b, hr_operand x, int rank, const int64_t *dims);
hr_operand hr_view_strided(hr_builder *b, hr_operand x, int rank, const int64_t *dims, const int64_t *strides,
                           int64_t offset); /* offset is absolute; drops terms and bounds */
/* Elements of its dims. */
static inline int64_t hr_operand_count(hr_operand x) {
  int64_t count = x.kind != HR_OPERAND_NONE;
  for (int d = 0; d < x.rank; ++d) {
    count *= x.dims[d];
  }
  return count;
}
bool hr_operand_is_contiguous(hr_operand x);
/* x with an index map: adds inputs[input] * stride; see hr_index_term. `input` is a position in the inputs of the node
 * emitted later.
 */
hr_operand hr_view_term(hr_builder *b, hr_operand x, int input, int64_t stride, int64_t extent);
/* x, accessed only where offset + sum strides[d]*index[d] is in [0, extent). */
hr_operand hr_view_bound(hr_builder *b, hr_operand x, int64_t offset, const int64_t *strides, int64_t extent);
hr_operand hr_view_fill(hr_builder *b, hr_operand x, hr_operand scalar); /* the value of loads out of bounds */

/* ---- nodes ---- */

/* Emits a pointwise node into `out`; the domain is out's dims and inputs are broadcast to it. */
void hr_emit(hr_builder *b, hr_op op, hr_operand out, int input_count, const hr_operand *inputs);
void hr_emit1(hr_builder *b, hr_op op, hr_operand out, hr_operand a);
void hr_emit2(hr_builder *b, hr_op op, hr_operand out, hr_operand a, hr_operand c);
void hr_emit3(hr_builder *b, hr_op op, hr_operand out, hr_operand a, hr_operand c, hr_operand d);
void hr_emit4(hr_builder *b, hr_op op, hr_operand out, hr_operand a, hr_operand c, hr_operand d, hr_operand e);
/* The same into a new temporary of `dtype`, whose dims are the inputs' common broadcast. It has `a`'s order in memory
 * if `a` has all dims; a copy is contiguous. */
hr_operand hr_make1(hr_builder *b, hr_op op, hr_dtype dtype, hr_operand a);
hr_operand hr_make2(hr_builder *b, hr_op op, hr_dtype dtype, hr_operand a, hr_operand c);
hr_operand hr_make3(hr_builder *b, hr_op op, hr_dtype dtype, hr_operand a, hr_operand c, hr_operand d);
hr_operand hr_make4(hr_builder *b, hr_op op, hr_dtype dtype, hr_operand a, hr_operand c, hr_operand d, hr_operand e);
/* Emits a reduction over `mask` of x's dims. out has x's rank with 1 in the reduced dims; it is emitted with stride 0
 * there. The reduced dims are walked in x's memory order, so the input's strides determine the order of a sum. */
void hr_emit_reduce(hr_builder *b, hr_op op, hr_operand out, hr_operand x, uint32_t mask);
hr_operand hr_make_reduce(hr_builder *b, hr_op op, hr_dtype dtype, hr_operand x, uint32_t mask); /* keeps dims as 1 */
/* out[..] = index of the best key; key and index share dims. */
void hr_emit_argreduce(hr_builder *b, hr_op op, hr_operand out, hr_operand key, hr_operand index, uint32_t mask);
/* Combines out (with terms) with a source: inputs[0] is the source, inputs[1..] are the indices, which terms name by
 * position. Along the dims of ordered_mask two elements may have the same target. */
void hr_emit_scatter(hr_builder *b, hr_store_mode mode, hr_operand out, int input_count, const hr_operand *inputs,
                     uint32_t ordered_mask);
/* Reads x through its terms: inputs[0] is x, inputs[1..] are the indices (not operands of the row). */
void hr_emit_gather(hr_builder *b, hr_operand out, int input_count, const hr_operand *inputs);
/* A contraction or special node with operands of their own shapes. */
void hr_emit_node(hr_builder *b, hr_op op, int input_count, const hr_operand *inputs, int output_count,
                  const hr_operand *outputs, int int_count, const int64_t *ints);
/* Emits a check that every element of `index` is in [-extent or 0, extent). Message kinds: 0 index, 1 class label, 2
 * gather/scatter index. An element equal to the attribute scalar `except` (if present) passes. */
void hr_emit_check_index(hr_builder *b, hr_operand index, int64_t extent, bool allow_negative, int message,
                         hr_operand except);

/* Input i of a node; NONE past the end, for optional operands. */
hr_operand hr_node_input(const hr_node *node, int i);
hr_operand hr_node_output(const hr_node *node, int i);

#define HR_COMPOSITE(NAME, name, lower, ...) hr_status hr__lower_##lower(hr_builder *b, const hr_node *node);
#define HR_CONTRACTION(NAME, name, ...) hr_status hr__lower_##name(hr_builder *b, const hr_node *node);
#define HR_POINTWISE(...)
#define HR_REDUCE(...)
#define HR_ARGREDUCE(...)
#define HR_LIBRARY(...)
#define HR_SPECIAL(...)
#include "core/ops/ops.def"
#undef HR_COMPOSITE
#undef HR_CONTRACTION
#undef HR_POINTWISE
#undef HR_REDUCE
#undef HR_ARGREDUCE
#undef HR_LIBRARY
#undef HR_SPECIAL

/* Rewrites a program in stream form into loop nodes and special nodes. Contractions and composites for which `keeps`
 * returns true stay, because a provider serves them; with NULL all become loops. Temporaries are dead, fresh buffers.
 */
typedef bool (*hr_keep_fn)(void *ctx, const hr_program *program, const hr_node *node);
HR_MUST_USE hr_status hr_expand(const hr_program *stream, hr_keep_fn keeps, void *ctx, hr_program *out_program);
/* The same for a stream whose loops are in its own arena, which becomes that of the new program. */
HR_MUST_USE hr_status hr_expand_own(hr_program *stream, hr_keep_fn keeps, void *ctx, hr_program *out_program);

/* Checks the contractions of an expanded program whose operands' layouts have changed again (`is_relaid`). One that
 * no provider serves any more gets its operands packed, or is lowered. Versions must be renumbered afterwards. */
HR_MUST_USE hr_status hr_expand_again(hr_program *program, hr_keep_fn keeps, void *ctx);

#endif
