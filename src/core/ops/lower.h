/* lower.h: helpers of lowerings: accumulation dtypes, dims of one, results that may be stored directly to an output.
 *
 * After a builder's first error its views are absent operands. So lowerings read dims and strides from the node's own
 * operands, which are always present.
 */
#ifndef HEADRACE_CORE_LOWER_H_
#define HEADRACE_CORE_LOWER_H_

#include "core/ir/build.h"

/* The dtype in which results of `dtype` are computed and accumulated: f32 for 8- and 16-bit floats, c64 for c32. */
static inline hr_dtype hr__wide(hr_dtype dtype) {
  return hr_dtype_class(dtype) == HR_CLASS_F32 ? HR_DTYPE_F32 : dtype == HR_DTYPE_C32 ? HR_DTYPE_C64 : dtype;
}

static inline hr_dtype hr__real_part(hr_dtype dtype) {
  return dtype == HR_DTYPE_C64    ? HR_DTYPE_F32
         : dtype == HR_DTYPE_C128 ? HR_DTYPE_F64
         : dtype == HR_DTYPE_C32  ? HR_DTYPE_F16
                                  : dtype;
}

/* `count` new dims of 1 after the dims of x, or in front of them. */
static inline hr_operand hr__ones_after(hr_builder *b, hr_operand x, int count) {
  for (int i = 0; i < count && hr_is_present(x); ++i) {
    x = hr_view_insert(b, x, x.rank, 1);
  }
  return x;
}
static inline hr_operand hr__ones_before(hr_builder *b, hr_operand x, int count) {
  for (int i = 0; i < count && hr_is_present(x); ++i) {
    x = hr_view_insert(b, x, 0, 1);
  }
  return x;
}

/* A vector as dim `at` of `rank` dims, the others 1. Absent stays absent. */
static inline hr_operand hr__along(hr_builder *b, hr_operand x, int rank, int at) {
  return hr__ones_before(b, hr__ones_after(b, x, rank - 1 - at), at);
}

/* x with dim `at` as `count` runs of `width` neighbours, in dims `at` and `at` + 1; the term of input 1 gives each
 * run's start. Absent if the rank leaves no room for a dim. */
static inline hr_operand hr__view_neighbours(hr_builder *b, hr_operand x, int at, int64_t count, int64_t width) {
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
  if (!hr_is_present(x) || x.rank == HR_RANK_MAX) {
    return (hr_operand){0};
  }
  for (int d = 0; d < x.rank; ++d) {
    dims[d < at ? d : d + 1] = x.dims[d], strides[d < at ? d : d + 1] = x.strides[d];
  }
  dims[at] = count, dims[at + 1] = width;
  strides[at] = 0, strides[at + 1] = x.strides[at];
  hr_operand view = hr_view_strided(b, x, x.rank + 1, dims, strides, x.offset);
  return hr_view_term(b, view, 1, x.strides[at], x.dims[at] - width + 1);
}

/* A gather: a view with a term of input 1, read at the positions `place`. */
static inline hr_operand hr__make_picked(hr_builder *b, hr_operand view, hr_operand place) {
  if (!hr_is_present(view)) {
    return view;
  }
  hr_operand picked = hr_build_temp(b, view.dtype, view.rank, view.dims);
  hr_emit_gather(b, picked, 2, (hr_operand[]){view, place});
  return picked;
}

/* The operand for a result of `dtype` with the dims of `sample`: the output itself if it is present and has that dtype,
 * else a temporary. */
static inline hr_operand hr__result(hr_builder *b, hr_operand out, hr_dtype dtype, hr_operand sample) {
  return hr_is_present(out) && out.dtype == dtype ? out : hr_build_temp_like(b, sample, dtype);
}
/* Copies the result to its output if hr__result gave a temporary. */
static inline void hr__deliver(hr_builder *b, hr_operand out, hr_dtype dtype, hr_operand value) {
  if (hr_is_present(out) && out.dtype != dtype) {
    hr_emit1(b, HR_OP_COPY, out, value);
  }
}

/* Elements in the dims of `mask`. */
static inline int64_t hr__mask_count(hr_operand x, uint32_t mask) {
  int64_t count = 1;
  for (int d = 0; d < x.rank; ++d) {
    count *= (mask >> d & 1) != 0 ? x.dims[d] : 1;
  }
  return count;
}

/* Bits first, first + 1, ... of `count` dims. */
static inline uint32_t hr__mask_range(int first, int count) {
  return count <= 0 ? 0 : (uint32_t)(((UINT64_C(1) << count) - 1) << first);
}

/* Keys' cubic filter with parameter a at x: the polynomial for 0 <= x <= 1, or the outer one for 1 <= x <= 2. */
hr_operand hr__make_cubic(hr_builder *b, hr_dtype dtype, hr_operand x, double a, bool is_outer);

/* Emits a contraction that `keeps` rejects, with loops around it so that a provider supports it: copies of operands,
 * bias added afterwards (pack_operands.c). False, emitting nothing, if no provider supports it. */
bool hr__pack_contraction(hr_builder *b, hr_keep_fn keeps, void *ctx, const hr_node *node);

/* Emits the checks of a SEGMENTS row's limits and indices: a run that fails then stores nothing behind the row, whoever
 * computes it. */
void hr__check_segments(hr_builder *b, const hr_node *node);

#endif
