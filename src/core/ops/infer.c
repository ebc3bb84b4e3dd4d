/* hr_op_infer: the types of an operation's results before it is recorded (include/headrace/op.h). Element-wise rows and
 * reductions are here; the rules of other rows are in infer_*.c.
 */
#include <string.h>

#include "base/allocator.h"
#include "core/ops/infer.h"

/* ---- element-wise rows ---- */

/* The promoted dtype of inputs first, first + step, ... Numbers are weak unless all inputs are numbers. */
static hr_dtype promote_inputs(const hr__checked *c, int first, int step) {
  hr_dtype tensors = HR_DTYPE_NONE, numbers = HR_DTYPE_NONE;
  for (int i = first; i < c->input_count; i += step) {
    const hr_view *x = &c->inputs[i];
    hr_dtype *side = hr__view_is_number(x) ? &numbers : &tensors;
    *side = hr_dtype_promote(*side, hr__dtype_of(x));
  }
  return tensors == HR_DTYPE_NONE ? numbers : hr_dtype_promote_scalar(tensors, numbers);
}

/* The dtype nearest to `dtype` in which the row computes: sqrt of integers is real, polar of real numbers complex. */
static hr_dtype dtype_of_row(const hr_op_row *row, hr_dtype dtype) {
  if (hr__category_of[dtype] == HR__INTEGER && !row->has_integer) {
    dtype = HR_DTYPE_F32;
  }
  return (hr__category_of[dtype] & (HR__REAL | HR__STORED)) != 0 && !row->has_real ? hr__dtype_complex(dtype) : dtype;
}

static hr_dtype dtype_of_pointwise(const hr__checked *c, const hr_op_row *row, int first, int step) {
  switch (row->rule) {
    case HR_RULE_COMPARE:
    case HR_RULE_LOGICAL:
      return HR_DTYPE_BOOL;
    case HR_RULE_SEEDED:
      return row->has_integer ? HR_DTYPE_I64 : HR_DTYPE_F32;
    case HR_RULE_WHERE:
      return promote_inputs(c, first + step, step);
    case HR_RULE_PART:
      return hr__dtype_real(promote_inputs(c, first, step));
    case HR_RULE_CAST:
      return promote_inputs(c, first, step);
    default:
      return dtype_of_row(row, promote_inputs(c, first, step));
  }
}

static hr_status infer_pointwise(const hr__checked *c) {
  const hr_op_row *row = c->row;
  int n = c->output_count;
  if (n < 1 || (int64_t)n * row->arity != c->input_count) {
    return FAIL(c, "%d inputs for %d outputs: %d for each are needed", c->input_count, n, row->arity);
  }
  for (int i = 0; i < n; ++i) {
    int64_t dims[HR_RANK_MAX];
    int rank;
    uint8_t seen = 0;
    for (int j = i; j < c->input_count; j += n) {
      if (hr__checked_input(c, j) == NULL) {
        return FAIL(c, "input %d is absent", j);
      }
      seen |= hr__category_of[hr__dtype_of(&c->inputs[j])];
    }
    HR_RETURN_IF_ERROR(hr__broadcast_inputs(c, i, n, &rank, dims));
    hr__set_type(c, i, dtype_of_pointwise(c, row, i, n), rank, dims);
    if (!hr__is_typed(row, seen, c->types[i].dtype)) {
      return hr__refuse_types(c, i, n, row->arity, c->types[i].dtype);
    }
  }
  return HR_OK;
}

/* ---- reductions ---- */

static hr_status check_places(const hr__checked *c, const hr_view *x) {
  const hr_view *places = hr__checked_input(c, 1);
  HR_RETURN_IF_ERROR(hr__want_spread(c, "input 1", places, x->rank, x->dims));
  return places == NULL || hr_dtype_is_integer(hr__dtype_of(places)) ? HR_OK
                                                                     : hr__refuse_types(c, 0, 1, 2, HR_DTYPE_I64);
}

/* True if the output has elements and each reduces no elements. */
static bool reduces_nothing(const hr_view *x, int64_t mask) {
  int64_t count = 1, kept = 1;
  for (int d = 0; d < x->rank; ++d) {
    count *= x->dims[d];
    kept *= (mask >> d & 1) != 0 ? 1 : x->dims[d];
  }
  return count == 0 && kept != 0;
}

/* Sums and products of integers are i64. Bit operations, and reductions that pick an element, keep the dtype. */
static hr_dtype dtype_of_reduction(const hr_op_row *row, hr_dtype dtype) {
  if (row->family == HR_FAMILY_ARGREDUCE || row->rule == HR_RULE_LOGICAL) {
    return row->family == HR_FAMILY_ARGREDUCE ? HR_DTYPE_I64 : HR_DTYPE_BOOL;
  }
  bool accumulates = row->has_real && (hr_op_table(row->combine)->traits & HR_TRAIT_PICKS) == 0;
  return accumulates ? hr__dtype_accumulated(dtype) : dtype;
}

hr_status hr__infer_reduction(const hr__checked *c) {
  const hr_op_row *row = c->row;
  bool is_arg = row->family == HR_FAMILY_ARGREDUCE;
  if (c->input_count < 1 || c->input_count > row->arity || c->output_count != 1 || c->int_count != 1) {
    return FAIL(c, "%d inputs, %d outputs, %d ints: expected %d, 1, 1", c->input_count, c->output_count, c->int_count,
                row->arity);
  }
  const hr_view *x = &c->inputs[0];
  hr_dtype from = hr__dtype_of(x);
  HR_RETURN_IF_ERROR(hr__give_reduced(c, 0, dtype_of_reduction(row, from), x, c->ints[0]));
  hr_dtype output = c->types != NULL ? c->types[0].dtype : c->outputs[0].dtype;
  if (!hr__is_reduction_typed(c->op, from, output)) {
    return hr__refuse_types(c, 0, 1, 1, output);
  }
  if (is_arg) {
    HR_RETURN_IF_ERROR(check_places(c, x));
  }
  int64_t identity;
  if (!hr_op_identity(c->op, &identity) && reduces_nothing(x, c->ints[0])) {
    char dims[HR__DIMS_TEXT];
    return FAIL(c, "no elements to reduce in dims %s", hr__view_dims(x, dims));
  }
  return HR_OK;
}

/* ---- layouts ---- */

static void set_row_major(hr_tensor_type *type) {
  int64_t stride = 1;
  for (int d = type->rank - 1; d >= 0; --d) {
    type->strides[d] = stride;
    stride *= type->dims[d] > 1 ? type->dims[d] : 1;
  }
}

/* True if the elements have no gaps and no overlap in memory, in any order of the dims. */
static bool is_dense(int rank, const int64_t *dims, const int64_t *strides) {
  int64_t expected = 1;
  uint32_t seen = 0;
  for (int k = 0; k < rank; ++k) {
    int next = -1;
    for (int d = 0; d < rank; ++d) {
      bool is_counted = dims[d] == 1 || (seen >> d & 1u) != 0;
      next = !is_counted && strides[d] == expected ? d : next;
    }
    if (next < 0) {
      break;
    }
    seen |= 1u << next;
    expected *= dims[next];
  }
  for (int d = 0; d < rank; ++d) {
    if (dims[d] != 1 && (seen >> d & 1u) == 0) {
      return false;
    }
  }
  return true;
}

/* The view's dtype and rank are in range; a number has a dtype and no dims. */
static inline bool is_valid(const hr_view *view) {
  return (unsigned)view->dtype < HR_DTYPE_COUNT && (unsigned)view->rank <= HR_RANK_MAX &&
         !(hr__view_is_number(view) && (view->rank != 0 || view->dtype == HR_DTYPE_NONE));
}

/* An element-wise output gets the strides of its first input that has its dims and is dense. */
static void follow_input(const hr__checked *c, int i) {
  hr_tensor_type *type = &c->types[i];
  for (int j = i; j < c->input_count; j += c->output_count) {
    const hr_view *x = &c->inputs[j];
    bool has_dims = !hr__view_is_number(x) && x->rank == type->rank &&
                    memcmp(x->dims, type->dims, (size_t)x->rank * sizeof *x->dims) == 0;
    if (has_dims && is_dense(x->rank, x->dims, x->strides)) {
      memcpy(type->strides, x->strides, (size_t)x->rank * sizeof *x->strides);
      return;
    }
  }
}

/* ---- the common case ---- */

static bool is_row_major(const hr_view *x) {
  int64_t stride = 1;
  for (int d = x->rank - 1; d >= 0; --d) {
    if (x->dims[d] < 0 || (x->dims[d] != 1 && x->strides[d] != stride)) {
      return false;
    }
    stride *= x->dims[d];
  }
  return true;
}

static bool has_dims_of(const hr_view *x, const hr_view *like) {
  bool is_same = x->rank == like->rank;
  for (int d = 0; is_same && d < x->rank; ++d) {
    is_same = x->dims[d] == like->dims[d];
  }
  return is_same;
}

/* The result's dtype by the rules that read nothing but the promoted dtype; NONE: another rule. */
static hr_dtype dtype_of_promoted(const hr_op_row *row, hr_dtype dtype) {
  switch (row->rule) {
    case HR_RULE_COMPARE:
    case HR_RULE_LOGICAL:
      return HR_DTYPE_BOOL;
    case HR_RULE_SEEDED:
    case HR_RULE_WHERE:
    case HR_RULE_PART:
      return HR_DTYPE_NONE;
    case HR_RULE_CAST:
      return dtype;
    default:
      return dtype_of_row(row, dtype);
  }
}

/* Adds a tensor to those before it: the result is like the first one that has dims. False: another case. */
static inline bool add_like(const hr_view *x, const hr_view **like) {
  if (!is_valid(x) || x->buffer == NULL || (*like != NULL && x->dtype != (*like)->dtype)) {
    return false;
  }
  if (*like == NULL || ((*like)->rank == 0 && x->rank > 0)) {
    *like = x;
    return is_row_major(x);
  }
  return x->rank == 0 || has_dims_of(x, *like);
}

/* Infers an element-wise output whose tensors have one dtype, and one shape or no dims, the first with dims row-major.
 * The rules above give the same; this is a quarter of their time. The inputs are `step` apart. False: another case. */
static bool infer_like_first(const hr_op_row *row, int step, const hr_view *inputs, hr_tensor_type *type) {
  const hr_view *like = NULL;
  hr_dtype numbers = HR_DTYPE_NONE;
  uint8_t seen = 0;
  if (type->dtype != HR_DTYPE_NONE) {
    return false;
  }
  for (int i = 0; i < row->arity; ++i) {
    const hr_view *x = &inputs[i * step];
    if (hr__view_is_number(x)) {
      numbers = hr_dtype_promote(numbers, hr__dtype_of(x));
      seen |= hr__category_of[hr__dtype_of(x)];
    } else if (!add_like(x, &like)) {
      return false;
    }
  }
  if (like == NULL || hr__category_of[like->dtype] == HR__STORED) {
    return false;
  }
  hr_dtype dtype = numbers == HR_DTYPE_NONE ? like->dtype : hr_dtype_promote_scalar(like->dtype, numbers);
  dtype = dtype_of_promoted(row, dtype);
  if (dtype == HR_DTYPE_NONE || !hr__is_typed(row, seen | hr__category_of[like->dtype], dtype)) {
    return false;
  }
  type->dtype = dtype, type->rank = like->rank;
  for (int d = 0; d < like->rank; ++d) {
    type->dims[d] = like->dims[d], type->strides[d] = like->strides[d];
  }
  return true;
}

/* The same for each output of a record over lists. False: another case, and the types are as before. */
static bool infer_all_like_first(const hr_op_row *row, int count, const hr_view *inputs, hr_tensor_type *types) {
  for (int i = 0; i < count; ++i) {
    if (!infer_like_first(row, count, &inputs[i], &types[i])) {
      while (i > 0) {
        types[--i].dtype = HR_DTYPE_NONE, types[i].rank = 0;
      }
      return false;
    }
  }
  return true;
}

/* ---- the common case, checked as well ---- */

enum { PLACE_BITS = 29 }; /* of a place in a buffer: bytes fit 32 bits more */

/* The number of elements of a row-major tensor inside its buffer; 0: another one. */
static inline int64_t count_row_major(const hr_view *x) {
  uint64_t count = 1, differences = 0, bits = (uint64_t)x->offset;
  if (x->buffer == NULL || !is_valid(x)) {
    return 0;
  }
  for (int d = x->rank - 1; d >= 0; --d) {
    differences |= (uint64_t)x->strides[d] ^ count;
    bits |= (uint64_t)x->dims[d] - 1; /* 0 becomes large */
    count *= (uint64_t)x->dims[d];
    bits |= count;
  }
  bool is_small = (bits >> PLACE_BITS | differences) == 0;
  bool is_inside = is_small && ((uint64_t)x->offset + count) * hr_dtype_size(x->dtype) <= hr_buffer_bytes(x->buffer);
  return is_inside ? (int64_t)count : 0;
}

/* True if x has the dtype, dims and strides of another tensor of `count` elements, and is inside its buffer. */
static inline bool is_alike(const hr_view *x, const hr_view *like, int64_t count) {
  if (x->buffer == NULL || x->dtype != like->dtype || x->rank != like->rank) {
    return false;
  }
  int64_t differences = x->offset >> PLACE_BITS;
  for (int d = 0; d < x->rank; ++d) {
    differences |= (x->dims[d] ^ like->dims[d]) | (x->strides[d] ^ like->strides[d]);
  }
  return differences == 0 && (size_t)(x->offset + count) * hr_dtype_size(x->dtype) <= hr_buffer_bytes(x->buffer);
}

/* The dtype of a row's result for tensors of this dtype and numbers that do not change it; NONE: another case. */
static hr_dtype dtype_of_alike(const hr_op_row *row, hr_dtype dtype) {
  uint8_t category = hr__category_of[dtype];
  bool is_case = row->family == HR_FAMILY_POINTWISE && category != HR__STORED;
  hr_dtype result = is_case ? dtype_of_promoted(row, dtype) : HR_DTYPE_NONE;
  return result != HR_DTYPE_NONE && hr__is_typed(row, category, result) ? result : HR_DTYPE_NONE;
}

/* The category of a number; one above all others if it has no dtype of numbers. */
static inline uint8_t category_of_number(const hr_scalar *number) {
  bool has = number->dtype == HR_DTYPE_F64 || number->dtype == HR_DTYPE_I64 || number->dtype == HR_DTYPE_BOOL ||
             number->dtype == HR_DTYPE_C128 || number->dtype == HR_DTYPE_U64;
  return has ? hr__category_of[number->dtype] : UINT8_MAX;
}

bool hr__infer_alike(hr_op op, int input_count, const hr_view *inputs, hr__alike *out) {
  const hr_view *like = NULL;
  int64_t count = 0;
  uint8_t numbers = 0;
  for (int i = 0; i < input_count; ++i) {
    const hr_view *x = &inputs[i];
    if (hr__view_is_number(x)) {
      uint8_t category = category_of_number(x->scalar);
      numbers = category > numbers ? category : numbers;
    } else if (like == NULL ? (count = count_row_major(like = x)) == 0 : !is_alike(x, like, count)) {
      return false;
    }
  }
  const hr_op_row *row = hr_op_table(op);
  if (like == NULL || input_count != row->arity) {
    return false;
  }
  uint8_t category = hr__category_of[like->dtype];
  if (numbers > category || (numbers != 0 && category == HR__INTEGER)) {
    return false;
  }
  *out = (hr__alike){dtype_of_alike(row, like->dtype), count, like};
  return out->dtype != HR_DTYPE_NONE;
}

/* ---- one operation ---- */

static hr_status refuse_type(const char *name, const char *side, int i, const hr_view *view) {
  if (!is_valid(view)) {
    return hr_status_make(
        HR_STATUS_INVALID_ARGUMENT, "%s: %s %d has dtype %d and %d dims, expected a dtype and 0 to %d%s", name, side, i,
        (int)view->dtype, view->rank, HR_RANK_MAX, hr__view_is_number(view) ? "; a number has none" : "");
  }
  for (int d = 0; d < view->rank; ++d) {
    if (view->dims[d] < 0) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: dim %d of %s %d is %lld", name, d, side, i,
                            (long long)view->dims[d]);
    }
  }
  return HR_OK;
}

static hr_status infer(const hr__checked *c) {
  const hr_op_row *row = c->row;
  switch (row->family) {
    case HR_FAMILY_POINTWISE:
      return infer_pointwise(c);
    case HR_FAMILY_REDUCE:
    case HR_FAMILY_ARGREDUCE:
      return hr__infer_reduction(c);
    case HR_FAMILY_LIBRARY:
      return hr__infer_library(c);
    default:
      return hr__infer_operands(c);
  }
}

/* Floats of one byte are only moved, converted and compared; rows of other families check that with their dtypes. */
static hr_status check_stored(const hr__checked *c) {
  bool takes = hr__takes_stored(c->row);
  for (int i = 0; !takes && i < c->input_count; ++i) {
    if (hr_dtype_is_float8(c->inputs[i].dtype)) {
      return hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s: not for %s, which is converted, compared and moved alone",
                            c->name, hr_dtype_name(c->inputs[i].dtype));
    }
  }
  return HR_OK;
}

/* Rules read views alone. A view without a buffer's contents has this address: a rule may only test if an operand is
 * present. */
hr_buffer *hr__present_buffer(void) {
  static const char present;
  return (hr_buffer *)(uintptr_t)&present;
}

/* outputs: views of c->types, set here. */
static hr_status infer_rules(hr__checked *c, hr_view *outputs) {
  for (int i = 0; i < c->input_count; ++i) {
    HR_RETURN_IF_ERROR(refuse_type(c->name, "input", i, &c->inputs[i]));
  }
  for (int i = 0; i < c->output_count; ++i) {
    const hr_tensor_type *type = &c->types[i];
    outputs[i] = (hr_view){.buffer = hr__present_buffer(),
                           .dtype = type->dtype,
                           .rank = type->rank,
                           .dims = type->dims,
                           .strides = type->strides};
    HR_RETURN_IF_ERROR(refuse_type(c->name, "output", i, &outputs[i]));
  }
  c->outputs = outputs;
  HR_RETURN_IF_ERROR(check_stored(c));
  HR_RETURN_IF_ERROR(infer(c));
  for (int i = 0; i < c->output_count; ++i) {
    set_row_major(&c->types[i]);
    if (c->row->family == HR_FAMILY_POINTWISE) {
      follow_input(c, i);
    }
  }
  return HR_OK;
}

enum { FEW = 24 }; /* enough for all rows except those of lists */

static hr_status no_memory(const hr_op_row *row, size_t count) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s: no memory for %zu operands", row->name, count);
}

__attribute__((noinline)) static hr_status infer_any(hr__checked *c) {
  hr_view few[FEW], *outputs = c->output_count <= FEW ? few : hr_malloc((size_t)c->output_count * sizeof *outputs);
  hr_status status = outputs == NULL ? no_memory(c->row, (size_t)c->output_count) : infer_rules(c, outputs);
  if (c->output_count > FEW) {
    hr_free(outputs);
  }
  return status;
}

hr_status hr__infer_views(hr_op op, const hr_attrs *attrs, int input_count, const hr_view *inputs, int output_count,
                          hr_tensor_type *outputs) {
  const hr_op_row *row = hr_op_table(op);
  bool is_plain = row->family == HR_FAMILY_POINTWISE && attrs == NULL && output_count > 0 &&
                  (int64_t)output_count * row->arity == input_count;
  if (is_plain && infer_all_like_first(row, output_count, inputs, outputs)) {
    return HR_OK;
  }
  hr__checked c;
  HR_RETURN_IF_ERROR(hr__checked_init(op, attrs, input_count, inputs, output_count, &c));
  c.types = outputs;
  return infer_any(&c);
}

static void view_type(hr_view *view, hr_scalar *number, const hr_tensor_type *type) {
  *view = (hr_view){.dtype = type->dtype, .rank = type->rank, .dims = type->dims, .strides = type->strides};
  if (type->is_number) {
    *number = (hr_scalar){.dtype = type->dtype, .value = {.f = {0, 0}}};
    view->scalar = number;
  } else if (type->dtype != HR_DTYPE_NONE) {
    view->buffer = hr__present_buffer();
  }
}

hr_status hr_op_infer(hr_op op, const hr_attrs *attrs, int input_count, const hr_tensor_type *inputs, int output_count,
                      hr_tensor_type *outputs) {
  size_t count = input_count > 0 ? (size_t)input_count : 0;
  hr_view few[FEW], *views = count <= FEW ? few : hr_malloc(count * sizeof *views);
  hr_scalar few_numbers[FEW], *numbers = count <= FEW ? few_numbers : hr_malloc(count * sizeof *numbers);
  bool has_memory = views != NULL && numbers != NULL;
  for (size_t i = 0; has_memory && i < count; ++i) {
    view_type(&views[i], &numbers[i], &inputs[i]);
  }
  hr_status status = has_memory ? hr__infer_views(op, attrs, input_count, views, output_count, outputs)
                                : no_memory(hr_op_table(op), count);
  if (count > FEW) {
    hr_free(views);
    hr_free(numbers);
  }
  return status;
}
