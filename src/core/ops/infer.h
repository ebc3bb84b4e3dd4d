/* infer.h: helpers of the inference rules (the `infer` column of ops.def).
 *
 * A rule hr__infer_<name> checks operands and attributes and gives the outputs' types (hr__give*). It serves two
 * callers. For hr_op_check the outputs exist: giving a type compares it with their dims and stores nothing. For
 * hr_op_infer the outputs are the caller's choices: giving a type stores it. Rules read no memory and keep no state.
 *
 * Relations (hr__want_*) accept absent views. Messages begin with the row's name and contain the actual and the
 * expected value.
 */
#ifndef HEADRACE_CORE_INFER_H_
#define HEADRACE_CORE_INFER_H_

#include <stdio.h>

#include "core/ops/op.h"

/* One operation under check or inference. */
struct hr__checked {
  hr_op op;
  const hr_op_row *row; /* of op */
  const char *name;
  int input_count, output_count, int_count, scalar_count;
  const hr_view *inputs, *outputs;
  const int64_t *ints;
  const hr_scalar *scalars;
  hr_tensor_type *types; /* inference: the outputs' types, stored by the rule; NULL: a check */
};

#define FAIL(c, format, ...) \
  hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: " format, (c)->name __VA_OPT__(, ) __VA_ARGS__)

/* True if a row takes the floats of one byte: functions of the caller do, whatever their operands are. */
static inline bool hr__takes_stored(const hr_op_row *row) {
  return (row->traits & HR_TRAIT_STORED) != 0 || (row->shapes != NULL && row->shapes[0] == '*');
}

static inline bool hr__view_is_present(const hr_view *view) {
  return view->buffer != NULL || view->scalar != NULL;
}

static inline bool hr__view_is_number(const hr_view *view) {
  return view->scalar != NULL && view->buffer == NULL;
}

static inline int64_t hr__view_count(const hr_view *view) {
  int64_t count = 1;
  for (int d = 0; d < view->rank; ++d) {
    count *= view->dims[d];
  }
  return count;
}

/* "[2,3]" in `text` of at least HR__DIMS_TEXT bytes. */
enum { HR__DIMS_TEXT = 16 * 21 + 3 };
const char *hr__view_dims(const hr_view *view, char *text);

/* Collects a call whose `attrs` may be NULL; the caller adds the outputs or their types. An unknown operation or a
 * negative count is an error. */
HR_MUST_USE hr_status hr__checked_init(hr_op op, const hr_attrs *attrs, int input_count, const hr_view *inputs,
                                       int output_count, hr__checked *out_checked);

/* NULL: absent. */
static inline const hr_view *hr__checked_input(const hr__checked *c, int i) {
  return i < c->input_count && hr__view_is_present(&c->inputs[i]) ? &c->inputs[i] : NULL;
}
static inline const hr_view *hr__checked_output(const hr__checked *c, int i) {
  return i < c->output_count && hr__view_is_present(&c->outputs[i]) ? &c->outputs[i] : NULL;
}
/* An output whose dims the caller chose; NULL if it didn't. */
static inline const hr_view *hr__given_output(const hr__checked *c, int i) {
  const hr_view *output = hr__checked_output(c, i);
  return c->types != NULL && output != NULL && output->rank == 0 ? NULL : output;
}

/* ---- dtypes given by rules: a dtype chosen by the caller stays ---- */

hr_dtype hr__dtype_of(const hr_view *view);     /* NULL gives NONE; a number its default dtype: bool, i64, f32, c64 */
hr_dtype hr__dtype_floating(hr_dtype dtype);    /* f32 of integers */
hr_dtype hr__dtype_real(hr_dtype dtype);        /* of a complex dtype's parts */
hr_dtype hr__dtype_complex(hr_dtype dtype);     /* the complex dtype with such parts */
hr_dtype hr__dtype_statistics(hr_dtype dtype);  /* real; f32 beside narrower ones */
hr_dtype hr__dtype_accumulated(hr_dtype dtype); /* i64 of integers */

/* ---- results of rules; absent outputs get none ---- */

hr_status hr__want_dims(const hr__checked *c, const char *what, const hr_view *view, int rank, const int64_t *dims);
void hr__set_type(const hr__checked *c, int i, hr_dtype dtype, int rank, const int64_t *dims);

/* Output i has these dims. */
static inline hr_status hr__give(const hr__checked *c, int i, const char *what, hr_dtype dtype, int rank,
                                 const int64_t *dims) {
  if (c->types == NULL) {
    return hr__want_dims(c, what, hr__checked_output(c, i), rank, dims);
  }
  hr__set_type(c, i, dtype, rank, dims);
  return HR_OK;
}
static inline hr_status hr__give_like(const hr__checked *c, int i, const char *what, hr_dtype dtype,
                                      const hr_view *like) {
  return hr__give(c, i, what, dtype, like->rank, like->dims);
}
static inline hr_status hr__give_vector(const hr__checked *c, int i, const char *what, hr_dtype dtype, int64_t count) {
  return hr__give(c, i, what, dtype, 1, &count);
}
/* One element: [], or any other dims in a check. */
hr_status hr__give_one(const hr__checked *c, int i, const char *what, hr_dtype dtype);
/* Output i has the dims of `view`, with which the rule has compared it. */
static inline void hr__keep(const hr__checked *c, int i, hr_dtype dtype, const hr_view *view) {
  if (c->types != NULL) {
    hr__set_type(c, i, dtype, view->rank, view->dims);
  }
}
/* Output i can't be computed from these operands: fails if it is present; absent in an inference. */
hr_status hr__give_none(const hr__checked *c, int i, const char *why);
/* Output i has x's rank, and 1 in the dims of mask. */
hr_status hr__give_reduced(const hr__checked *c, int i, hr_dtype dtype, const hr_view *x, int64_t mask);
/* Fails for dims that the caller must choose. */
hr_status hr__refuse_choice(const hr__checked *c, int i);

/* A view that a rule constructs for an output whose dims are not given. */
typedef struct hr__made {
  hr_view view;
  int64_t dims[HR_RANK_MAX];
} hr__made;
static inline const hr_view *hr__make_like(hr__made *made, const hr_view *like) {
  made->view = (hr_view){.dtype = like->dtype, .rank = like->rank, .dims = made->dims};
  for (int d = 0; d < like->rank; ++d) {
    made->dims[d] = like->dims[d];
  }
  return &made->view;
}

/* ---- relations ---- */

/* The view must have: the dims of another view; one dim; one element. */
hr_status hr__want_like(const hr__checked *c, const char *what, const hr_view *view, const hr_view *other);
static inline hr_status hr__want_vector(const hr__checked *c, const char *what, const hr_view *view, int64_t count) {
  return view == NULL ? HR_OK : hr__want_dims(c, what, view, 1, &count);
}
hr_status hr__want_one(const hr__checked *c, const char *what, const hr_view *view);
/* So many dims. */
hr_status hr__refuse_rank(const hr__checked *c, const char *what, const hr_view *view, int min, int max);
static inline hr_status hr__want_rank(const hr__checked *c, const char *what, const hr_view *view, int min, int max) {
  bool is_fit = view == NULL || (view->rank >= min && view->rank <= max);
  return __builtin_expect(is_fit, 1) ? HR_OK : hr__refuse_rank(c, what, view, min, max);
}
/* The view's dims must broadcast to these. */
hr_status hr__want_spread(const hr__checked *c, const char *what, const hr_view *view, int rank, const int64_t *dims);
hr_status hr__want_integer(const hr__checked *c, const char *what, const hr_view *view);
/* Complex numbers have no order, and no norm of rows as a network's. */
hr_status hr__want_real(const hr__checked *c, const char *what, const hr_view *view);
/* Sizes, strides and paddings must be small enough for sums and products in 64 bits. */
hr_status hr__want_small(const hr__checked *c, int count, const int64_t *ints);
/* `dim` must be a dim of the view, which must be present. */
hr_status hr__want_dim(const hr__checked *c, int64_t dim, const hr_view *view);
/* The broadcast dims of inputs first, first + step, ... */
hr_status hr__broadcast_inputs(const hr__checked *c, int first, int step, int *out_rank, int64_t *dims);

/* ---- callers that have views ---- */

/* hr_op_infer for inputs as views, of which the buffer may be hr__present_buffer(): an input without contents. */
HR_MUST_USE hr_status hr__infer_views(hr_op op, const hr_attrs *attrs, int input_count, const hr_view *inputs,
                                      int output_count, hr_tensor_type *outputs);
hr_buffer *hr__present_buffer(void);
/* The result of an element-wise operation on tensors of one dtype and of the same dims and row-major strides. */
typedef struct hr__alike {
  hr_dtype dtype;
  int64_t count;       /* of elements */
  const hr_view *like; /* a tensor, whose dims and strides are the result's */
} hr__alike;
/* hr_op_infer and hr_op_check for the common case of small arrays: tensors alike that have elements and are inside
 * their buffers, and numbers that do not change their dtype. False: another case. */
bool hr__infer_alike(hr_op op, int input_count, const hr_view *inputs, hr__alike *out);
/* hr_op_check for one output whose type is hr_op_infer's for these operands, in a buffer of its size: of an
 * element-wise operation only the inputs' places are checked. */
HR_MUST_USE hr_status hr__op_check_inferred(hr_op op, const hr_attrs *attrs, int input_count, const hr_view *inputs,
                                            const hr_view *output);

/* ---- families ---- */

/* Counts, attributes and types of a contraction, composite or special row, whose views have been checked. */
hr_status hr__infer_operands(const hr__checked *c);
/* The same for a library row, by its `shapes` in ops.def. */
hr_status hr__infer_library(const hr__checked *c);
/* The same for a reduction or argreduce row. */
hr_status hr__infer_reduction(const hr__checked *c);

/* Categories of dtypes: bits, in order of promotion; the last does not promote. */
enum { HR__INTEGER = 1, HR__REAL = 2, HR__COMPLEX = 4, HR__STORED = 8 };
extern const uint8_t hr__category_of[HR_DTYPE_COUNT] __attribute__((visibility("hidden")));

/* Those in which the row computes. */
static inline uint8_t hr__row_categories(const hr_op_row *row) {
  return (uint8_t)(row->has_integer * HR__INTEGER | row->has_real * HR__REAL | row->has_complex * HR__COMPLEX);
}

/* True if an element-wise row has a version for these dtypes; `inputs` are the categories of all inputs. */
static inline bool hr__is_typed(const hr_op_row *row, uint8_t inputs, hr_dtype output) {
  uint8_t out = hr__category_of[output], allowed = hr__row_categories(row);
  if (((inputs | out) & HR__STORED) != 0) {
    return (row->traits & HR_TRAIT_STORED) != 0 && (row->rule == HR_RULE_CAST || (inputs & HR__COMPLEX) == 0);
  }
  bool is_losing = (inputs & HR__COMPLEX) != 0 && out != HR__COMPLEX; /* an imaginary part would be lost */
  switch (row->rule) {
    case HR_RULE_SAME:
      return (allowed & out) != 0 && !is_losing && !(output == HR_DTYPE_BOOL && (row->traits & HR_TRAIT_NO_BOOL) != 0);
    case HR_RULE_WHERE:
      return !is_losing;
    case HR_RULE_COMPARE: {
      bool is_complex = (inputs & HR__COMPLEX) != 0, is_real = (inputs & HR__REAL) != 0;
      return (allowed & (is_complex ? HR__COMPLEX : is_real ? HR__REAL : HR__INTEGER)) != 0;
    }
    case HR_RULE_PART:
      return out == HR__REAL;
    case HR_RULE_SEEDED:
      return inputs == HR__INTEGER && (allowed & out) != 0;
    default:
      return true;
  }
}

/* True if the row reduces this input dtype to this output dtype. */
bool hr__is_reduction_typed(hr_op op, hr_dtype input, hr_dtype output);
/* UNIMPLEMENTED, with the dtypes of inputs first, first + step, ... */
hr_status hr__refuse_types(const hr__checked *c, int first, int step, int arity, hr_dtype output);

#define HR_POINTWISE(...)
#define HR_REDUCE(...)
#define HR_ARGREDUCE(...)
#define HR_LIBRARY(...)
#define HR_CONTRACTION(NAME, name, infer, ...) hr_status hr__infer_##infer(const hr__checked *c);
#define HR_COMPOSITE(NAME, name, lower, infer, ...) hr_status hr__infer_##infer(const hr__checked *c);
#define HR_SPECIAL(NAME, name, infer, ...) hr_status hr__infer_##infer(const hr__checked *c);
#include "core/ops/ops.def"
#undef HR_POINTWISE
#undef HR_REDUCE
#undef HR_ARGREDUCE
#undef HR_LIBRARY
#undef HR_CONTRACTION
#undef HR_COMPOSITE
#undef HR_SPECIAL

#endif
