/* Checks of one recorded operation: its views are inside their buffers, and its outputs match inference (infer.h).
 * Speed matters: an element-wise operation on a few small views takes about 20 ns. The reason for a failure is searched
 * only after a failure.
 */
#include <stdio.h>

#include "core/ops/infer.h"

enum { INTEGER = HR__INTEGER, REAL = HR__REAL, COMPLEX = HR__COMPLEX, STORED = HR__STORED };

const uint8_t hr__category_of[HR_DTYPE_COUNT] = {
    [HR_DTYPE_BOOL] = INTEGER,      [HR_DTYPE_U8] = INTEGER,        [HR_DTYPE_I8] = INTEGER,
    [HR_DTYPE_U16] = INTEGER,       [HR_DTYPE_I16] = INTEGER,       [HR_DTYPE_U32] = INTEGER,
    [HR_DTYPE_I32] = INTEGER,       [HR_DTYPE_U64] = INTEGER,       [HR_DTYPE_I64] = INTEGER,
    [HR_DTYPE_F16] = REAL,          [HR_DTYPE_BF16] = REAL,         [HR_DTYPE_F32] = REAL,
    [HR_DTYPE_F64] = REAL,          [HR_DTYPE_C64] = COMPLEX,       [HR_DTYPE_C128] = COMPLEX,
    [HR_DTYPE_C32] = COMPLEX,       [HR_DTYPE_F8E4M3FN] = STORED,   [HR_DTYPE_F8E5M2] = STORED,
    [HR_DTYPE_F8E4M3FNUZ] = STORED, [HR_DTYPE_F8E5M2FNUZ] = STORED, [HR_DTYPE_F8E8M0FNU] = STORED,
    [HR_DTYPE_F8E4M3] = STORED,     [HR_DTYPE_F8E3M4] = STORED,     [HR_DTYPE_F8E4M3B11FNUZ] = STORED,
    [HR_DTYPE_F4E2M1FN] = STORED,
};

static const uint8_t size_of[HR_DTYPE_COUNT] = {
    [HR_DTYPE_BOOL] = 1,      [HR_DTYPE_U8] = 1,     [HR_DTYPE_I8] = 1,         [HR_DTYPE_U16] = 2,
    [HR_DTYPE_I16] = 2,       [HR_DTYPE_U32] = 4,    [HR_DTYPE_I32] = 4,        [HR_DTYPE_U64] = 8,
    [HR_DTYPE_I64] = 8,       [HR_DTYPE_F16] = 2,    [HR_DTYPE_BF16] = 2,       [HR_DTYPE_F32] = 4,
    [HR_DTYPE_F64] = 8,       [HR_DTYPE_C64] = 8,    [HR_DTYPE_C128] = 16,      [HR_DTYPE_C32] = 4,
    [HR_DTYPE_F8E4M3FN] = 1,  [HR_DTYPE_F8E5M2] = 1, [HR_DTYPE_F8E4M3FNUZ] = 1, [HR_DTYPE_F8E5M2FNUZ] = 1,
    [HR_DTYPE_F8E8M0FNU] = 1, [HR_DTYPE_F8E4M3] = 1, [HR_DTYPE_F8E3M4] = 1,     [HR_DTYPE_F8E4M3B11FNUZ] = 1,
    [HR_DTYPE_F4E2M1FN] = 1,
};

static inline bool is_dtype(hr_dtype dtype) {
  return (unsigned)dtype - 1u < (unsigned)HR_DTYPE_COUNT - 1u;
}

static inline bool is_scalar_dtype(hr_dtype dtype) {
  return dtype == HR_DTYPE_F64 || dtype == HR_DTYPE_I64 || dtype == HR_DTYPE_BOOL || dtype == HR_DTYPE_C128 ||
         dtype == HR_DTYPE_U64;
}

/* Messages stay out of line, so that a passing check keeps its registers. */
#define HR__COLD __attribute__((noinline, cold))

/* ---- views ---- */

/* Sums over all dims of products of two such numbers fit into 64 bits, and so do bytes of twice as many bits. */
enum { SMALL_BITS = 29 };

/* Fast test: true if a view surely lies inside its buffer. It must be non-empty, without stride 0, with small
 * non-negative sizes and strides. False: the slow test decides. */
static inline bool is_plainly_inside(const hr_view *view) {
  const int64_t *dims = view->dims, *strides = view->strides;
  uint64_t max = (uint64_t)view->offset, bits = max >> SMALL_BITS;
  for (size_t d = 0, rank = (size_t)view->rank; d < rank; ++d) {
    uint64_t last = (uint64_t)dims[d] - 1, stride = (uint64_t)strides[d];
    bits |= last | (stride - 1); /* 0 becomes large */
    max += last * stride;
  }
  bits |= max >> SMALL_BITS; /* so that bytes fit too */
  return bits >> SMALL_BITS == 0 && (max + 1) * size_of[view->dtype] <= hr_buffer_bytes(view->buffer);
}

/* True if any view of a buffer is inside it; an output with elements must also have no stride of 0. */
static bool is_anyhow_inside(const hr_view *view, bool is_output) {
  const int64_t *dims = view->dims, *strides = view->strides;
  int64_t min = view->offset, max = view->offset, reach, end;
  bool is_empty = false, is_repeated = false;
  for (int d = 0, rank = view->rank; d < rank; ++d) {
    int64_t last = dims[d] - 1, stride = strides[d];
    if (last <= 0) {
      if (last < -1) {
        return false;
      }
      is_empty |= last < 0;
    } else if (__builtin_mul_overflow(last, stride, &reach)) {
      return false;
    } else if (stride > 0) {
      if (__builtin_add_overflow(max, reach, &max)) {
        return false;
      }
    } else if (stride == 0) {
      is_repeated = is_output;
    } else if (__builtin_add_overflow(min, reach, &min)) {
      return false;
    }
  }
  if (is_empty) {
    return true;
  }
  int64_t size = size_of[view->dtype];
  return !is_repeated && min >= 0 && !__builtin_mul_overflow(max, size, &end) &&
         (uint64_t)end + (uint64_t)size <= hr_buffer_bytes(view->buffer);
}

static inline bool is_inside(const hr_view *view, bool is_output) {
  if (!is_dtype(view->dtype) || (unsigned)view->rank > HR_RANK_MAX || view->buffer == NULL) {
    return false;
  }
  return is_plainly_inside(view) || is_anyhow_inside(view, is_output);
}

/* True if `view` can be broadcast to `rank` dims. */
static inline bool is_spreadable(const hr_view *view, int rank, const int64_t *dims) {
  int added = rank - view->rank;
  if (added < 0) {
    return false;
  }
  for (int d = 0; d < view->rank; ++d) {
    if (view->dims[d] != dims[added + d] && view->dims[d] != 1) {
      return false;
    }
  }
  return true;
}

static bool has_elements(const hr_view *view) {
  for (int d = 0; d < view->rank; ++d) {
    if (view->dims[d] == 0) {
      return false;
    }
  }
  return true;
}

HR__COLD static hr_status explain_view(const char *name, const char *side, int i, const hr_view *view, bool is_output) {
  char dims[HR__DIMS_TEXT];
  if (view->buffer == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: %s %d is %s", name, side, i,
                          view->scalar == NULL ? "absent"
                          : is_output          ? "a number, not a tensor"
                                               : "a number of a dtype other than bool, i64, u64, f64 and c128");
  }
  if (!is_dtype(view->dtype)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: %s %d has no dtype (%d)", name, side, i, (int)view->dtype);
  }
  if ((unsigned)view->rank > HR_RANK_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: %s %d has %d dims: at most %d", name, side, i, view->rank,
                          HR_RANK_MAX);
  }
  for (int d = 0; d < view->rank; ++d) {
    if (view->dims[d] < 0) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: %s %d has dims %s", name, side, i,
                            hr__view_dims(view, dims));
    }
  }
  for (int d = 0; d < view->rank && is_output && has_elements(view); ++d) {
    if (view->dims[d] > 1 && view->strides[d] == 0) {
      return hr_status_make(
          HR_STATUS_INVALID_ARGUMENT,
          "%s: %s %d of dims %s is expanded along dim %d: more than one element is written to one place", name, side, i,
          hr__view_dims(view, dims), d);
    }
  }
  __int128 min = view->offset, max = view->offset;
  for (int d = 0; d < view->rank; ++d) {
    __int128 reach = (__int128)(view->dims[d] - 1) * view->strides[d];
    *(reach < 0 ? &min : &max) += reach;
  }
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                        "%s: %s %d of dims %s reaches elements %lld to %lld of a buffer of %zu bytes (%zu of %s)", name,
                        side, i, hr__view_dims(view, dims), (long long)min, (long long)max,
                        hr_buffer_bytes(view->buffer), hr_buffer_bytes(view->buffer) / size_of[view->dtype],
                        hr_dtype_name(view->dtype));
}

static inline bool is_input(const hr_view *view) {
  if (__builtin_expect(view->scalar != NULL && view->buffer == NULL, 0)) {
    return is_scalar_dtype(view->scalar->dtype) && view->rank == 0;
  }
  return is_inside(view, false);
}

static hr_status check_input(const hr__checked *c, int i) {
  return is_input(&c->inputs[i]) ? HR_OK : explain_view(c->name, "input", i, &c->inputs[i], false);
}

static hr_status check_output(const hr__checked *c, int i) {
  return is_inside(&c->outputs[i], true) ? HR_OK : explain_view(c->name, "output", i, &c->outputs[i], true);
}

/* ---- element-wise rows ---- */

static inline hr_dtype view_dtype(const hr_view *view) {
  return hr__view_is_number(view) ? view->scalar->dtype : view->dtype;
}

hr_status hr__refuse_types(const hr__checked *c, int first, int step, int arity, hr_dtype output) {
  char list[128];
  size_t at = 0;
  list[0] = '\0';
  for (int j = 0; j < arity && at < sizeof list - 16; ++j) {
    at += (size_t)snprintf(list + at, sizeof list - at, j > 0 ? ", %s" : "%s",
                           hr_dtype_name(view_dtype(&c->inputs[first + j * step])));
  }
  return hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s: not for inputs of %s and an output of %s%s", c->name, list,
                        hr_dtype_name(output), c->row == hr_op_table(HR_OP_BIT_NOT) ? " (bool: logical_not)" : "");
}

HR__COLD static hr_status explain_spread(const hr__checked *c, int i, const hr_view *out) {
  char from[HR__DIMS_TEXT], to[HR__DIMS_TEXT];
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: input %d of dims %s can't be broadcast to the output's %s",
                        c->name, i, hr__view_dims(&c->inputs[i], from), hr__view_dims(out, to));
}

/* True if an element-wise operation is valid: n outputs, and n inputs for each of the row's operands, list after list.
 */
static inline bool is_pointwise(const hr_op_row *row, int input_count, const hr_view *inputs, int n,
                                const hr_view *outputs) {
  if (n < 1 || (int64_t)n * row->arity != input_count) {
    return false;
  }
  for (int i = 0; i < n; ++i) {
    const hr_view *out = &outputs[i];
    uint8_t seen = 0;
    if (!is_inside(out, true)) {
      return false;
    }
    for (int j = i; j < input_count; j += n) {
      const hr_view *in = &inputs[j];
      if (!is_input(in) || !is_spreadable(in, out->rank, out->dims)) {
        return false;
      }
      seen |= hr__category_of[view_dtype(in)];
    }
    if (!hr__is_typed(row, seen, out->dtype)) {
      return false;
    }
  }
  return true;
}

/* The same walk; returns the first error. */
HR__COLD static hr_status explain_pointwise(const hr__checked *c, const hr_op_row *row) {
  int n = c->output_count, arity = row->arity;
  if (n < 1 || (int64_t)n * arity != c->input_count) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: %d inputs for %d outputs: %d for each are needed", c->name,
                          c->input_count, n, arity);
  }
  for (int i = 0; i < n; ++i) {
    const hr_view *out = &c->outputs[i];
    uint8_t seen = 0;
    HR_RETURN_IF_ERROR(check_output(c, i));
    for (int j = i; j < c->input_count; j += n) {
      HR_RETURN_IF_ERROR(check_input(c, j));
      if (!is_spreadable(&c->inputs[j], out->rank, out->dims)) {
        return explain_spread(c, j, out);
      }
      seen |= hr__category_of[view_dtype(&c->inputs[j])];
    }
    if (!hr__is_typed(row, seen, out->dtype)) {
      return hr__refuse_types(c, i, n, arity, out->dtype);
    }
  }
  return HR_OK;
}

/* ---- reductions ---- */

bool hr__is_reduction_typed(hr_op op, hr_dtype input, hr_dtype output) {
  const hr_op_row *row = hr_op_table(op);
  uint8_t in = hr__category_of[input], out = hr__category_of[output];
  if (row->family == HR_FAMILY_ARGREDUCE) {
    return (in & hr__row_categories(row)) != 0 && out == INTEGER;
  }
  return row->rule == HR_RULE_LOGICAL || ((out & hr__row_categories(row)) != 0 && (in != COMPLEX || out == COMPLEX));
}

__attribute__((noinline)) static hr_status check_reduction(const hr__checked *c) {
  for (int i = 0; i < c->input_count; ++i) {
    if (i == 0 || hr__view_is_present(&c->inputs[i])) {
      HR_RETURN_IF_ERROR(check_input(c, i));
    }
  }
  for (int i = 0; i < c->output_count; ++i) {
    HR_RETURN_IF_ERROR(check_output(c, i));
  }
  return hr__infer_reduction(c);
}

/* ---- all others ---- */

static inline bool is_stored_fit(bool takes_stored, hr_dtype dtype) {
  return (hr__category_of[dtype] & STORED) == 0 || takes_stored;
}

HR__COLD static hr_status explain_stored(const hr__checked *c, const hr_view *view) {
  return hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s: not for %s, which is converted, compared and moved alone",
                        c->name, hr_dtype_name(view->dtype));
}

HR__COLD static hr_status refuse_view(const hr__checked *c, int i, bool is_output) {
  const hr_view *view = is_output ? &c->outputs[i] : &c->inputs[i];
  bool is_fit = is_output ? is_inside(view, true) : is_input(view);
  return is_fit ? explain_stored(c, view) : explain_view(c->name, is_output ? "output" : "input", i, view, is_output);
}

static inline hr_status check_views(const hr__checked *c, bool takes_stored) {
  for (int i = 0; i < c->input_count; ++i) {
    const hr_view *in = &c->inputs[i];
    bool is_fit = in->buffer != NULL ? is_inside(in, false) && is_stored_fit(takes_stored, in->dtype)
                                     : in->scalar == NULL || is_input(in);
    if (__builtin_expect(!is_fit, 0)) {
      return refuse_view(c, i, false);
    }
  }
  for (int i = 0; i < c->output_count; ++i) {
    const hr_view *out = &c->outputs[i];
    bool is_fit =
        out->buffer != NULL ? is_inside(out, true) && is_stored_fit(takes_stored, out->dtype) : out->scalar == NULL;
    if (__builtin_expect(!is_fit, 0)) {
      return refuse_view(c, i, true);
    }
  }
  return HR_OK;
}

static hr_status check_scalars(const hr__checked *c) {
  for (int i = 0; i < c->scalar_count; ++i) {
    if (!is_scalar_dtype(c->scalars[i].dtype)) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                            "%s: scalar %d is of dtype %s: expected bool, i64, u64, f64 or c128", c->name, i,
                            hr_dtype_name(c->scalars[i].dtype));
    }
  }
  return HR_OK;
}

static hr_status check_family(const hr__checked *c) {
  switch (c->row->family) {
    case HR_FAMILY_POINTWISE:
      return explain_pointwise(c, c->row);
    case HR_FAMILY_REDUCE:
    case HR_FAMILY_ARGREDUCE:
      return check_reduction(c);
    default:
      HR_RETURN_IF_ERROR(check_views(c, hr__takes_stored(c->row)));
      HR_RETURN_IF_ERROR(check_scalars(c));
      return c->row->family == HR_FAMILY_LIBRARY ? hr__infer_library(c) : hr__infer_operands(c);
  }
}

/* True if every operand that is present is a number or inside its buffer. */
static inline bool are_inputs(int count, const hr_view *inputs) {
  for (int i = 0; i < count; ++i) {
    if (!is_input(&inputs[i])) {
      return false;
    }
  }
  return true;
}

hr_status hr__op_check_inferred(hr_op op, const hr_attrs *attrs, int input_count, const hr_view *inputs,
                                const hr_view *output) {
  bool is_pointwise_row = hr_op_table(op)->family == HR_FAMILY_POINTWISE;
  return is_pointwise_row && are_inputs(input_count, inputs) ? HR_OK
                                                             : hr_op_check(op, attrs, input_count, inputs, 1, output);
}

hr_status hr_op_check(hr_op op, const hr_attrs *attrs, int input_count, const hr_view *inputs, int output_count,
                      const hr_view *outputs) {
  const hr_op_row *row = hr_op_table(op);
  if (row->family == HR_FAMILY_POINTWISE && is_pointwise(row, input_count, inputs, output_count, outputs)) {
    return HR_OK;
  }
  hr__checked c;
  HR_RETURN_IF_ERROR(hr__checked_init(op, attrs, input_count, inputs, output_count, &c));
  c.outputs = outputs;
  return check_family(&c);
}
