/* function.c: the table of functions, and calls of them. */

#include <stdio.h>

#include "base/allocator.h"
#include "core/ops/op.h"
#include "functional/functions.h"
#include "headrace/hook.h"

enum { FEW_RESULTS = 4, FEW_INPUTS = 4 }; /* inputs of an element-wise row */

#define INT(name, value) \
  { name, HR_ATTRIBUTE_INT, false, value }
#define FLAG(name, value) \
  { name, HR_ATTRIBUTE_FLAG, false, value }
#define REAL(name, value) \
  { name, HR_ATTRIBUTE_REAL, false, value }
#define AXES(name) \
  { name, HR_ATTRIBUTE_INTS, false, 0 }
#define INTS(name) \
  { name, HR_ATTRIBUTE_INTS, true, 0 }
#define DTYPE(name) \
  { name, HR_ATTRIBUTE_DTYPE, false, 0 }
#define SIZES(name) \
  { name, HR_ATTRIBUTE_INTS, false, 0 }
#define LIST(name) \
  { name, HR_ATTRIBUTE_INTS, false, 0, .is_long = true }
#define REALS(name) \
  { name, HR_ATTRIBUTE_REALS, false, 0 }
#define TEXT(name, word) \
  { name, HR_ATTRIBUTE_TEXT, false, 0, word }
#define EQUATION(name) \
  { name, HR_ATTRIBUTE_TEXT, true, 0 }
#define ATTRIBUTES(...)                       \
  .attributes = (const hr__attribute_row[]) { \
    __VA_ARGS__, {                            \
      NULL, HR_ATTRIBUTE_NONE                 \
    }                                         \
  }
#define NO_ATTRIBUTES                         \
  .attributes = (const hr__attribute_row[]) { \
    { NULL, HR_ATTRIBUTE_NONE }               \
  }
#define RESULTS(...) , .result_count = sizeof(NAMES(__VA_ARGS__)) / sizeof(char *), .results = NAMES(__VA_ARGS__)
#define RESULTS_PER(WHAT) , .results_per = HR__PER_##WHAT
#define NAMES(...)        \
  (const char *const[]) { \
    __VA_ARGS__           \
  }
#define INPUTS(...) .input_count = sizeof(NAMES(__VA_ARGS__)) / sizeof(char *), .inputs = NAMES(__VA_ARGS__)
#define MANY(name) .is_variadic = true, INPUTS(name)
#define NO_INPUTS .input_count = 0

#define HR_FUNCTIONAL(NAME, function_name, emitter, OP, input_names, attribute_rows, doc) \
  [HR_FUNCTIONAL_##                                                                       \
      NAME] = {.name = #function_name, .emit = hr__emit_##emitter, .op = HR_OP_##OP, input_names, attribute_rows},
static const hr__function_row rows[HR_FUNCTIONAL_COUNT] = {
#include "functional/functional.def"
};
#undef HR_FUNCTIONAL

const hr__function_row *hr__function_row_of(hr_functional function) {
  return (unsigned)function < HR_FUNCTIONAL_COUNT ? &rows[function] : &rows[HR_FUNCTIONAL_NONE];
}

const char *hr_functional_name(hr_functional function) {
  const char *name = hr__function_row_of(function)->name;
  return name != NULL ? name : "none";
}

hr_functional hr_functional_find(const char *name) {
  for (int i = 1; i < HR_FUNCTIONAL_COUNT; ++i) {
    if (rows[i].name[0] == name[0] && strcmp(rows[i].name, name) == 0) {
      return (hr_functional)i;
    }
  }
  return HR_FUNCTIONAL_NONE;
}

/* ---- the arguments of a call ---- */

static bool is_optional(const char *name) {
  return name[strlen(name) - 1] == '?';
}

/* A tensor with a buffer: check_input finds no fault with it. */
static inline bool is_tensor(const hr_tensor *x) {
  return x != NULL && x->number.dtype == HR_DTYPE_NONE && x->buffer != NULL;
}

/* Element-wise rows read a number as an argument of the run. */
static hr_status check_input(const hr__function_call *c, int i) {
  const char *name = c->row->inputs[c->row->is_variadic ? 0 : i];
  const hr_tensor *x = c->inputs[i];
  if (x == NULL) {
    return is_optional(name) ? HR_OK : HR__CALL_FAIL(c, "input %d (%s) is absent", i, name);
  }
  if (x->number.dtype != HR_DTYPE_NONE) {
    return hr_op_table(c->row->op)->family == HR_FAMILY_POINTWISE
               ? HR_OK
               : HR__CALL_FAIL(c, "input %d (%s) is a number, expected a tensor", i, name);
  }
  return x->buffer != NULL || c->stream == NULL ? HR_OK : HR__CALL_FAIL(c, "input %d (%s) has no buffer", i, name);
}

static hr_status check_inputs(const hr__function_call *c) {
  const hr__function_row *row = c->row;
  if (row->is_variadic ? c->input_count < 1 : c->input_count != row->input_count) {
    return HR__CALL_FAIL(c, "%d inputs, expected %d%s", c->input_count, row->input_count,
                         row->is_variadic ? " or more" : "");
  }
  for (int i = 0; i < c->input_count; ++i) {
    if (!is_tensor(c->inputs[i])) {
      HR_RETURN_IF_ERROR(check_input(c, i));
    }
  }
  return HR_OK;
}

static hr_status check_attributes(const hr__function_call *c) {
  static const char *const kinds[] = {
      [HR_ATTRIBUTE_NONE] = "nothing",  [HR_ATTRIBUTE_INT] = "an integer", [HR_ATTRIBUTE_FLAG] = "a flag",
      [HR_ATTRIBUTE_REAL] = "a number", [HR_ATTRIBUTE_INTS] = "integers",  [HR_ATTRIBUTE_DTYPE] = "a dtype",
      [HR_ATTRIBUTE_TEXT] = "text",     [HR_ATTRIBUTE_REALS] = "numbers"};
  const hr__attribute_row *wanted = c->row->attributes;
  int count = 0;
  for (; wanted[count].name != NULL; ++count) {
    hr_attribute_kind given = count < c->attribute_count ? c->attributes[count].kind : HR_ATTRIBUTE_NONE;
    bool is_default = given == HR_ATTRIBUTE_NONE && !wanted[count].is_required;
    if (!is_default && given != wanted[count].kind) {
      return HR__CALL_FAIL(c, "attribute %s is %s, expected %s", wanted[count].name,
                           (unsigned)given <= HR_ATTRIBUTE_REALS ? kinds[given] : "of no kind",
                           kinds[wanted[count].kind]);
    }
    bool is_list = given == HR_ATTRIBUTE_INTS || given == HR_ATTRIBUTE_REALS;
    int most = wanted[count].is_long ? INT32_MAX : HR_RANK_MAX;
    if (is_list && (c->attributes[count].count < 0 || c->attributes[count].count > most)) {
      return HR__CALL_FAIL(c, "attribute %s has %d %s, expected 0 to %d", wanted[count].name,
                           c->attributes[count].count, given == HR_ATTRIBUTE_INTS ? "integers" : "numbers", most);
    }
    if (given == HR_ATTRIBUTE_TEXT && c->attributes[count].value.text == NULL) {
      return HR__CALL_FAIL(c, "attribute %s is no text", wanted[count].name);
    }
  }
  return c->attribute_count <= count ? HR_OK
                                     : HR__CALL_FAIL(c, "%d attributes, expected %d", c->attribute_count, count);
}

static hr_status check_arguments(const hr__function_call *c) {
  HR_RETURN_IF_ERROR(check_inputs(c));
  return check_attributes(c);
}

/* ---- results ---- */

static hr_status count_results(const hr__function_call *c, int *out_count) {
  int axis = 0;
  switch (c->row->results_per) {
    case HR__PER_INPUT:
      *out_count = c->input_count;
      return HR_OK;
    case HR__PER_SLICE:
      HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 0), c->inputs[0]->rank, &axis));
      *out_count = (int)(c->inputs[0]->dims[axis] < INT32_MAX ? c->inputs[0]->dims[axis] : INT32_MAX);
      return HR_OK;
    case HR__PER_PART:
      return hr__count_parts(c, out_count);
    case HR__PER_MODE:
      return hr__count_quantized(c, out_count);
    default:
      *out_count = c->row->result_count > 0 ? c->row->result_count : 1;
      return HR_OK;
  }
}

hr_status hr_functional_result_count(hr_functional function, int input_count, const hr_tensor *const *inputs,
                                     int attribute_count, const hr_attribute *attributes, int *out_count) {
  const hr__function_call call = {.row = hr__function_row_of(function),
                                  .input_count = input_count,
                                  .inputs = inputs,
                                  .attribute_count = attribute_count,
                                  .attributes = attributes};
  if (call.row->emit == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "there is no function number %d", (int)function);
  }
  HR_RETURN_IF_ERROR(check_arguments(&call));
  return count_results(&call, out_count);
}

static hr_status check_results(const hr__function_call *c) {
  int most = c->row->result_count > 0 ? c->row->result_count : 1;
  if (c->row->results_per != HR__PER_CALL) {
    HR_RETURN_IF_ERROR(count_results(c, &most));
  }
  if (c->output_count < (most > 0) || c->output_count > most) {
    return HR__CALL_FAIL(c, "%d results, expected 1%s%d", c->output_count, most > 1 ? " to " : " or ", most);
  }
  return HR_OK;
}

/* Results may stand where inputs do: they are written at the end. */
static hr_status emit(hr__function_call *c, hr_tensor *results, hr_tensor *out_results) {
  c->output = results;
  HR_RETURN_IF_ERROR(c->row->emit(c));
  for (int i = 0; i < c->output_count; ++i) {
    hr__copy_tensor(&results[i], &out_results[i]);
  }
  return HR_OK;
}

static hr_status emit_many(hr__function_call *c, hr_tensor *out_results) {
  hr_tensor *results = hr_malloc((size_t)c->output_count * sizeof *results);
  if (results == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s: no host memory for %d results", c->row->name,
                          c->output_count);
  }
  hr_status status = emit(c, results, out_results);
  hr_free(results);
  return status;
}

/* Any other call, or one that hr__record_alike does not take. */
__attribute__((noinline)) static hr_status apply(hr_stream *stream, hr_functional function, int input_count,
                                                 const hr_tensor *const *inputs, int attribute_count,
                                                 const hr_attribute *attributes, int result_count,
                                                 hr_tensor *out_results) {
  hr_tensor few[FEW_RESULTS];
  hr__function_call call = {.row = hr__function_row_of(function),
                            .stream = stream,
                            .input_count = input_count,
                            .inputs = inputs,
                            .attribute_count = attribute_count,
                            .attributes = attributes,
                            .output_count = result_count};
  if (call.row->emit == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "there is no function number %d", (int)function);
  }
  HR_RETURN_IF_ERROR(check_arguments(&call));
  HR_RETURN_IF_ERROR(check_results(&call));
  hr_hook *hook = stream != NULL ? hr_hook_of_functions(stream) : NULL;
  if (__builtin_expect(hook != NULL, 0)) {
    const hr_hook_function applied = {function, input_count, attribute_count, result_count,
                                      inputs,   attributes,  out_results};
    return hook->apply(hook, stream, &applied);
  }
  return result_count <= FEW_RESULTS ? emit(&call, few, out_results) : emit_many(&call, out_results);
}

hr_status hr_functional_apply(hr_stream *stream, hr_functional function, int input_count,
                              const hr_tensor *const *inputs, int attribute_count, const hr_attribute *attributes,
                              int result_count, hr_tensor *out_results) {
  const hr__function_row *row = hr__function_row_of(function);
  hr_status status;
  if (row->emit == hr__emit_pointwise && stream != NULL && input_count == row->input_count && attribute_count == 0 &&
      result_count == 1 && hr__record_alike(stream, row->op, input_count, inputs, out_results, &status)) {
    return status;
  }
  return apply(stream, function, input_count, inputs, attribute_count, attributes, result_count, out_results);
}

/* ---- lists ---- */

static hr_status check_lists(const hr__function_call *c, int count) {
  const hr__function_row *row = c->row;
  if (row->emit != hr__emit_pointwise) {
    return HR__CALL_FAIL(c, "it can't be applied to lists, expected a function of one element-wise row");
  }
  if (count < 1 || c->input_count != (int64_t)count * row->input_count) {
    return HR__CALL_FAIL(c, "%d inputs for %d results, expected %d for each", c->input_count, count, row->input_count);
  }
  for (int i = 0; i < c->input_count; ++i) {
    const hr_tensor *x = c->inputs[i];
    if (x == NULL || (x->buffer == NULL && x->number.dtype == HR_DTYPE_NONE && c->stream != NULL)) {
      return HR__CALL_FAIL(c, "input %d of list %d is absent or has no buffer", i % count, i / count);
    }
  }
  return HR_OK;
}

static hr_status emit_each(const hr__function_call *c, int count, hr_tensor *results, hr_tensor **places,
                           hr_tensor *out_results) {
  for (int i = 0; i < count; ++i) {
    results[i].dtype = HR_DTYPE_NONE, results[i].rank = 0, results[i].number.dtype = HR_DTYPE_NONE;
    places[i] = &results[i];
  }
  HR_RETURN_IF_ERROR(hr__record_row(c, c->row->op, NULL, c->input_count, c->inputs, count, places));
  for (int i = 0; i < count; ++i) {
    hr__copy_tensor(&results[i], &out_results[i]);
  }
  return HR_OK;
}

/* One call for each tuple, for hooks that get functions. */
static hr_status apply_each_alone(const hr__function_call *c, hr_functional function, int count, hr_tensor *results) {
  for (int i = 0; i < count; ++i) {
    const hr_tensor *inputs[FEW_INPUTS];
    int arity = c->row->input_count;
    for (int k = 0; k < arity; ++k) {
      inputs[k] = c->inputs[k * count + i];
    }
    hr_status status = hr_functional_apply(c->stream, function, arity, inputs, 0, NULL, 1, &results[i]);
    if (status != HR_OK) {
      while (i > 0) {
        hr_tensor_release(&results[--i]);
      }
      return status;
    }
  }
  return HR_OK;
}

hr_status hr_functional_apply_each(hr_stream *stream, hr_functional function, int count, int input_count,
                                   const hr_tensor *const *inputs, hr_tensor *out_results) {
  const hr__function_call call = {
      .row = hr__function_row_of(function), .stream = stream, .input_count = input_count, .inputs = inputs};
  if (call.row->emit == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "there is no function number %d", (int)function);
  }
  HR_RETURN_IF_ERROR(check_lists(&call, count));
  if (stream != NULL && hr_hook_of_functions(stream) != NULL) {
    return apply_each_alone(&call, function, count, out_results);
  }
  hr_tensor *results = hr_malloc((size_t)count * sizeof *results);
  hr_tensor **places = hr_malloc((size_t)count * sizeof *places);
  hr_status status =
      results != NULL && places != NULL
          ? emit_each(&call, count, results, places, out_results)
          : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s: no host memory for %d results", call.row->name, count);
  hr_free(results);
  hr_free(places);
  return status;
}

/* ---- attributes ---- */

const hr_attribute *hr__given_attribute(const hr__function_call *c, int index) {
  bool is_given = index < c->attribute_count && c->attributes[index].kind != HR_ATTRIBUTE_NONE;
  return is_given ? &c->attributes[index] : NULL;
}

int64_t hr__int_attribute(const hr__function_call *c, int index) {
  const hr_attribute *given = hr__given_attribute(c, index);
  return given != NULL ? given->value.integer : (int64_t)c->row->attributes[index].value;
}

hr_scalar hr__real_attribute(const hr__function_call *c, int index) {
  const hr_attribute *given = hr__given_attribute(c, index);
  double value = c->row->attributes[index].value;
  bool is_integer = value == (double)(int64_t)value;
  return given != NULL ? given->value.number : is_integer ? hr_scalar_i64((int64_t)value) : hr_scalar_f64(value);
}

const char *hr__text_attribute(const hr__function_call *c, int index) {
  const hr_attribute *given = hr__given_attribute(c, index);
  return given != NULL ? given->value.text : c->row->attributes[index].word;
}

hr_status hr__word_attribute(const hr__function_call *c, int index, int count, const char *const *words, int *out) {
  const char *text = hr__text_attribute(c, index);
  char list[256];
  int length = 0;
  for (int word = 0; word < count; ++word) {
    if (strcmp(text, words[word]) == 0) {
      *out = word;
      return HR_OK;
    }
    length += snprintf(list + length, sizeof list - (size_t)length, "%s%s", word > 0 ? ", " : "", words[word]);
    length = length < (int)sizeof list ? length : (int)sizeof list - 1;
  }
  return HR__CALL_FAIL(c, "attribute %s is \"%s\", expected one of %s", c->row->attributes[index].name, text, list);
}

hr_dtype hr__dtype_attribute(const hr__function_call *c, int index) {
  const hr_attribute *given = hr__given_attribute(c, index);
  return given != NULL ? given->value.dtype : HR_DTYPE_NONE;
}

hr_status hr__check_axis(const hr__function_call *c, int64_t axis, int rank, int *out_axis) {
  if (axis < -rank || axis >= rank) {
    return HR__CALL_FAIL(c, "axis %lld is out of range for %d dims", (long long)axis, rank);
  }
  *out_axis = (int)(axis < 0 ? axis + rank : axis);
  return HR_OK;
}

hr_status hr__axes_attribute(const hr__function_call *c, int index, int rank, uint32_t *out_mask) {
  const hr_attribute *given = hr__given_attribute(c, index);
  *out_mask = given == NULL ? (1u << rank) - 1 : 0;
  for (int i = 0; given != NULL && i < given->count; ++i) {
    int axis = 0;
    HR_RETURN_IF_ERROR(hr__check_axis(c, given->value.ints[i], rank, &axis));
    if ((*out_mask >> axis & 1u) != 0) {
      return HR__CALL_FAIL(c, "axis %lld is given twice", (long long)given->value.ints[i]);
    }
    *out_mask |= 1u << axis;
  }
  return HR_OK;
}

const char *hr__shape_text(int rank, const int64_t *dims, char *text) {
  hr_view view = {.rank = rank, .dims = dims};
  return hr__view_dims(&view, text);
}
