/* Helpers of the inference rules (infer.h). */
#include "core/ops/infer.h"

#include <string.h>

#include "base/integer.h"

const char *hr__view_dims(const hr_view *view, char *text) {
  size_t at = (size_t)snprintf(text, HR__DIMS_TEXT, "[");
  for (int d = 0; d < view->rank && d < HR_RANK_MAX; ++d) {
    at += (size_t)snprintf(text + at, HR__DIMS_TEXT - at, d > 0 ? ",%lld" : "%lld", (long long)view->dims[d]);
  }
  snprintf(text + at, HR__DIMS_TEXT - at, "]");
  return text;
}

/* ---- dtypes ---- */

hr_dtype hr__dtype_of(const hr_view *view) {
  if (view == NULL || !hr__view_is_number(view)) {
    return view == NULL ? HR_DTYPE_NONE : view->dtype;
  }
  switch (view->scalar->dtype) {
    case HR_DTYPE_F64:
      return HR_DTYPE_F32;
    case HR_DTYPE_C128:
      return HR_DTYPE_C64;
    default:
      return view->scalar->dtype;
  }
}

hr_dtype hr__dtype_floating(hr_dtype dtype) {
  return hr_dtype_is_integer(dtype) ? HR_DTYPE_F32 : dtype;
}

hr_dtype hr__dtype_real(hr_dtype dtype) {
  return dtype == HR_DTYPE_C64    ? HR_DTYPE_F32
         : dtype == HR_DTYPE_C128 ? HR_DTYPE_F64
         : dtype == HR_DTYPE_C32  ? HR_DTYPE_F16
                                  : dtype;
}

hr_dtype hr__dtype_complex(hr_dtype dtype) {
  return dtype == HR_DTYPE_F32   ? HR_DTYPE_C64
         : dtype == HR_DTYPE_F64 ? HR_DTYPE_C128
         : dtype == HR_DTYPE_F16 ? HR_DTYPE_C32
                                 : dtype;
}

hr_dtype hr__dtype_statistics(hr_dtype dtype) {
  hr_dtype real = hr__dtype_real(hr__dtype_floating(dtype));
  return real == HR_DTYPE_F64 ? HR_DTYPE_F64 : HR_DTYPE_F32;
}

hr_dtype hr__dtype_accumulated(hr_dtype dtype) {
  return hr_dtype_is_integer(dtype) && dtype != HR_DTYPE_U64 ? HR_DTYPE_I64 : dtype;
}

/* ---- results of rules ---- */

void hr__set_type(const hr__checked *c, int i, hr_dtype dtype, int rank, const int64_t *dims) {
  if (i < c->output_count) {
    hr_tensor_type *type = &c->types[i];
    type->dtype = type->dtype == HR_DTYPE_NONE ? dtype : type->dtype;
    type->rank = rank;
    memmove(type->dims, dims, (size_t)rank * sizeof *dims); /* dims may be those that the caller gave */
  }
}

hr_status hr__give_one(const hr__checked *c, int i, const char *what, hr_dtype dtype) {
  if (c->types == NULL) {
    return hr__want_one(c, what, hr__checked_output(c, i));
  }
  hr__set_type(c, i, dtype, 0, (const int64_t[1]){0});
  return HR_OK;
}

hr_status hr__give_none(const hr__checked *c, int i, const char *why) {
  if (c->types == NULL) {
    return hr__checked_output(c, i) == NULL ? HR_OK : FAIL(c, "%s", why);
  }
  if (i < c->output_count) {
    c->types[i] = (hr_tensor_type){.dtype = HR_DTYPE_NONE};
  }
  return HR_OK;
}

static hr_status refuse_reduced(const hr__checked *c, const hr_view *x, const hr_view *out, int64_t mask) {
  char from[HR__DIMS_TEXT], to[HR__DIMS_TEXT];
  return FAIL(c,
              "an output of dims %s for an input of %s: expected 1 in the dims of mask 0x%llx, the input's in the "
              "others",
              hr__view_dims(out, to), hr__view_dims(x, from), (unsigned long long)mask);
}

hr_status hr__give_reduced(const hr__checked *c, int i, hr_dtype dtype, const hr_view *x, int64_t mask) {
  char from[HR__DIMS_TEXT];
  if (mask < 0 || mask >> x->rank != 0) {
    return FAIL(c, "mask 0x%llx names dims past those of %s", (unsigned long long)mask, hr__view_dims(x, from));
  }
  int64_t dims[HR_RANK_MAX];
  const hr_view *out = hr__checked_output(c, i);
  bool is_fit = out == NULL || c->types != NULL || out->rank == x->rank;
  for (int d = 0; d < x->rank; ++d) {
    dims[d] = (mask >> d & 1) != 0 ? 1 : x->dims[d];
  }
  if (c->types != NULL) {
    hr__set_type(c, i, dtype, x->rank, dims);
    return HR_OK;
  }
  for (int d = 0; out != NULL && is_fit && d < x->rank; ++d) {
    is_fit = out->dims[d] == dims[d];
  }
  return is_fit ? HR_OK : refuse_reduced(c, x, out, mask);
}

hr_status hr__refuse_choice(const hr__checked *c, int i) {
  return FAIL(c, "the inputs do not determine the dims of output %d: give them", i);
}

/* ---- relations ---- */

hr_status hr__want_dims(const hr__checked *c, const char *what, const hr_view *view, int rank, const int64_t *dims) {
  if (view == NULL ||
      (view->rank == rank && (rank == 0 || memcmp(view->dims, dims, (size_t)rank * sizeof *dims) == 0))) {
    return HR_OK;
  }
  char found[HR__DIMS_TEXT], wanted[HR__DIMS_TEXT];
  hr_view expected = {.rank = rank, .dims = dims};
  return FAIL(c, "%s has dims %s, expected %s", what, hr__view_dims(view, found), hr__view_dims(&expected, wanted));
}

hr_status hr__want_like(const hr__checked *c, const char *what, const hr_view *view, const hr_view *other) {
  return hr__want_dims(c, what, view, other->rank, other->dims);
}

hr_status hr__want_one(const hr__checked *c, const char *what, const hr_view *view) {
  char found[HR__DIMS_TEXT];
  return view == NULL || hr__view_count(view) == 1
             ? HR_OK
             : FAIL(c, "%s has dims %s, expected one element", what, hr__view_dims(view, found));
}

hr_status hr__refuse_rank(const hr__checked *c, const char *what, const hr_view *view, int min, int max) {
  char found[HR__DIMS_TEXT];
  return min == max ? FAIL(c, "%s has dims %s, expected %d of them", what, hr__view_dims(view, found), min)
                    : FAIL(c, "%s has dims %s, expected %d to %d of them", what, hr__view_dims(view, found), min, max);
}

hr_status hr__want_spread(const hr__checked *c, const char *what, const hr_view *view, int rank, const int64_t *dims) {
  if (view == NULL) {
    return HR_OK;
  }
  bool is_fit = view->rank <= rank;
  for (int d = 0; is_fit && d < view->rank; ++d) {
    is_fit = view->dims[d] == 1 || view->dims[d] == dims[rank - view->rank + d];
  }
  if (is_fit) {
    return HR_OK;
  }
  char found[HR__DIMS_TEXT], wanted[HR__DIMS_TEXT];
  hr_view expected = {.rank = rank, .dims = dims};
  return FAIL(c, "%s of dims %s can't be broadcast to %s", what, hr__view_dims(view, found),
              hr__view_dims(&expected, wanted));
}

hr_status hr__want_integer(const hr__checked *c, const char *what, const hr_view *view) {
  hr_dtype dtype = view == NULL                                   ? HR_DTYPE_I64
                   : view->scalar != NULL && view->buffer == NULL ? view->scalar->dtype
                                                                  : view->dtype;
  return hr_dtype_is_integer(dtype) ? HR_OK : FAIL(c, "%s is %s, expected integers", what, hr_dtype_name(dtype));
}

hr_status hr__want_real(const hr__checked *c, const char *what, const hr_view *view) {
  hr_dtype dtype = hr__dtype_of(view);
  return hr_dtype_is_complex(dtype) ? hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s: %s is %s, expected real numbers",
                                                     c->name, what, hr_dtype_name(dtype))
                                    : HR_OK;
}

hr_status hr__want_small(const hr__checked *c, int count, const int64_t *ints) {
  for (int i = 0; i < count; ++i) {
    if (ints[i] < INT32_MIN || ints[i] > INT32_MAX) {
      return FAIL(c, "int %d is %lld, expected 32 bits", i, (long long)ints[i]);
    }
  }
  return HR_OK;
}

hr_status hr__want_dim(const hr__checked *c, int64_t dim, const hr_view *view) {
  int rank = view->rank > 0 ? view->rank : 1;
  return dim >= 0 && dim < rank ? HR_OK : FAIL(c, "dim %lld of %d", (long long)dim, view->rank);
}

hr_status hr__broadcast_inputs(const hr__checked *c, int first, int step, int *out_rank, int64_t *dims) {
  int rank = 0;
  for (int i = first; i < c->input_count; i += step) {
    const hr_view *x = hr__checked_input(c, i);
    rank = x != NULL && x->rank > rank ? x->rank : rank;
  }
  for (int d = 0; d < rank; ++d) {
    dims[d] = 1;
  }
  for (int i = first; i < c->input_count; i += step) {
    const hr_view *x = hr__checked_input(c, i);
    for (int d = 0; x != NULL && d < x->rank; ++d) {
      int64_t *dim = &dims[rank - x->rank + d];
      if (x->dims[d] != 1 && *dim != 1 && x->dims[d] != *dim) {
        char found[HR__DIMS_TEXT];
        return FAIL(c, "input %d of dims %s can't be broadcast: dim %d is %lld, expected 1 or %lld", i,
                    hr__view_dims(x, found), d, (long long)x->dims[d], (long long)*dim);
      }
      *dim = x->dims[d] != 1 ? x->dims[d] : *dim;
    }
  }
  *out_rank = rank;
  return HR_OK;
}

/* ---- counts ---- */

hr_status hr__checked_init(hr_op op, const hr_attrs *attrs, int input_count, const hr_view *inputs, int output_count,
                           hr__checked *out_checked) {
  static const hr_attrs none;
  const hr_op_row *row = hr_op_table(op);
  attrs = attrs != NULL ? attrs : &none;
  *out_checked = (hr__checked){.op = op,
                               .row = row,
                               .name = row->name,
                               .input_count = input_count,
                               .output_count = output_count,
                               .int_count = attrs->int_count,
                               .scalar_count = attrs->scalar_count,
                               .inputs = inputs,
                               .ints = attrs->ints,
                               .scalars = attrs->scalars};
  if (row->family == HR_FAMILY_NONE || input_count < 0 || output_count < 0 || attrs->int_count < 0 ||
      attrs->scalar_count < 0) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                          "operation %d (%s) with %d inputs, %d outputs, %d ints, %d scalars", (int)op, row->name,
                          input_count, output_count, attrs->int_count, attrs->scalar_count);
  }
  return HR_OK;
}

/* True if there are not too many operands, and all required ones. HR_OPERANDS_ANY is the largest unsigned number. */
static inline bool is_present(int count, const hr_view *views, const hr_op_operands *operands) {
  bool is_fit = (unsigned)count <= (unsigned)operands->max;
  for (uint32_t left = operands->needed; left != 0; left &= left - 1) {
    int i = __builtin_ctz(left);
    is_fit = is_fit && i < count && hr__view_is_present(&views[i]);
  }
  return is_fit;
}

static hr_status refuse_operands(const hr__checked *c, const char *side, int count, const hr_view *views,
                                 const hr_op_operands *operands) {
  if ((unsigned)count > (unsigned)operands->max) {
    return FAIL(c, "%d %ss, expected at most %d", count, side, operands->max);
  }
  int i = 0;
  while ((operands->needed >> i & 1u) == 0 || (i < count && hr__view_is_present(&views[i]))) {
    ++i;
  }
  return FAIL(c, "%s %d is absent", side, i);
}

hr_status hr__infer_operands(const hr__checked *c) {
  const hr_op_row *row = c->row;
  if (__builtin_expect(!is_present(c->input_count, c->inputs, &row->inputs), 0)) {
    return refuse_operands(c, "input", c->input_count, c->inputs, &row->inputs);
  }
  if (__builtin_expect(!is_present(c->output_count, c->outputs, &row->outputs), 0)) {
    return refuse_operands(c, "output", c->output_count, c->outputs, &row->outputs);
  }
  if (c->int_count < row->int_count || c->scalar_count < row->scalar_count) {
    return FAIL(c, "%d ints and %d scalars, expected %d and %d", c->int_count, c->scalar_count, row->int_count,
                row->scalar_count);
  }
  return row->infer(c);
}
