/* onnx_node.c: what map functions use: attributes and inputs of a node, facts about values, usual functions. */
#include <stdarg.h>

#include "base/text.h"
#include "headrace/array.h"
#include "importers/onnx/onnx_inner.h"
#include "importers/onnx/onnx_integer.h"

/* ---- failures ---- */

bool hr__onnx_failed(const hr__onnx_node *node) {
  return node->graph->failure != HR_OK;
}

hr_value hr__onnx_fail(hr__onnx_node *node, hr_status_code code, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  hr_text_format(text, sizeof text, format, args);
  va_end(args);
  return hr__graph_fail(node->graph, hr_status_make(code, "%s", text));
}

static void keep_failure(hr__onnx_node *node, hr_status status) {
  if (status != HR_OK) {
    hr__graph_fail(node->graph, status);
  }
}

/* ---- attributes ---- */

const hr__onnx_attribute *hr__onnx_find_attribute(const hr__onnx_node *node, const char *name) {
  for (int i = 0; i < node->attribute_count; ++i) {
    if (hr__span_is(node->attributes[i].name, name)) {
      return &node->attributes[i];
    }
  }
  return NULL;
}

int64_t hr__onnx_int(const hr__onnx_node *node, const char *name, int64_t otherwise) {
  const hr__onnx_attribute *attribute = hr__onnx_find_attribute(node, name);
  bool is_real = attribute != NULL && attribute->type == HR__ONNX_FLOAT && attribute->f > -0x1p31f &&
                 attribute->f < 0x1p31f; /* of version 1: p of LpPool */
  return attribute == NULL ? otherwise : is_real ? (int64_t)attribute->f : attribute->i;
}

double hr__onnx_real(const hr__onnx_node *node, const char *name, double otherwise) {
  const hr__onnx_attribute *attribute = hr__onnx_find_attribute(node, name);
  return attribute != NULL ? (double)attribute->f : otherwise;
}

int hr__onnx_word(hr__onnx_node *node, const char *name, int count, const char *const *words) {
  const hr__onnx_attribute *attribute = hr__onnx_find_attribute(node, name);
  for (int i = 0; attribute != NULL && i < count; ++i) {
    if (hr__span_is(attribute->bytes, words[i])) {
      return i;
    }
  }
  if (attribute != NULL) {
    HR__ONNX_WRONG(node, "attribute %s is \"%.64s\", which is none of its words", name,
                   hr__onnx_string(node, attribute->bytes));
    return -1;
  }
  return 0;
}

int hr__onnx_ints(hr__onnx_node *node, const char *name, int64_t *out_numbers) {
  enum { INTS = 8 };
  const hr__onnx_attribute *attribute = hr__onnx_find_attribute(node, name);
  int64_t count = -1;
  if (attribute == NULL) {
    return -1;
  }
  keep_failure(node, hr__onnx_read_ints(attribute->message, INTS, HR_RANK_MAX, out_numbers, &count));
  if (count > HR_RANK_MAX) {
    HR__ONNX_WRONG(node, "attribute %s has %lld integers, expected at most %d", name, (long long)count, HR_RANK_MAX);
    return -1;
  }
  return (int)count;
}

int hr__onnx_reals(hr__onnx_node *node, const char *name, int room, double *out_numbers) {
  enum { FLOATS = 7 };
  const hr__onnx_attribute *attribute = hr__onnx_find_attribute(node, name);
  int64_t count = -1;
  if (attribute == NULL) {
    return -1;
  }
  keep_failure(node, hr__onnx_read_floats(attribute->message, FLOATS, room, out_numbers, &count));
  if (count > room) {
    HR__ONNX_WRONG(node, "attribute %s has %lld numbers, expected at most %d", name, (long long)count, room);
    return -1;
  }
  return (int)count;
}

const char *hr__onnx_string(hr__onnx_node *node, hr__span text) {
  char *copy = hr__span_is_text(text) ? hr_arena_alloc(node->arena, text.size + 1) : NULL;
  if (copy == NULL) {
    return "";
  }
  if (text.size > 0) {
    memcpy(copy, text.data, text.size);
  }
  copy[text.size] = '\0';
  return copy;
}

/* ---- inputs and outputs ---- */

hr_value hr__onnx_input(const hr__onnx_node *node, int index) {
  return index < node->input_count ? node->inputs[index].value : 0;
}

void hr__onnx_set(hr__onnx_node *node, int index, hr_value value) {
  if (index < node->output_count) {
    node->outputs[index].value = value;
  }
}

void hr__onnx_set_like(hr__onnx_node *node, int index, hr_value value) {
  if (index < node->output_count) {
    node->outputs[index] = (hr__onnx_value){.value = value, .data_type = node->inputs[0].data_type};
  }
}

bool hr__onnx_wants(const hr__onnx_node *node, int index) {
  return index < node->output_count && node->call->outputs[index].size > 0;
}

/* ---- facts ---- */

/* The fact at the first point where there is one. */
static const hr__fact *fact_of(const hr_graph *graph, hr_value value) {
  const hr__graph_value *v = hr__graph_value_of(graph, value);
  const hr__fact *fact = v->facts;
  for (int p = 0; v->varies && p < HR__GRAPH_POINTS && !fact->is_set; ++p) {
    fact = &v->facts[p * v->stride];
  }
  return fact;
}

int hr__onnx_rank(const hr__onnx_node *node, hr_value value) {
  return value != 0 && !hr__onnx_failed(node) ? fact_of(node->graph, value)->rank : -1;
}

hr_dtype hr__onnx_dtype_of(const hr__onnx_node *node, hr_value value) {
  return hr__onnx_dtype_in(node->graph, value);
}

hr_dtype hr__onnx_dtype_in(const hr_graph *graph, hr_value value) {
  return value != 0 && graph->failure == HR_OK ? fact_of(graph, value)->dtype : HR_DTYPE_NONE;
}

int64_t hr__onnx_dim(const hr__onnx_node *node, hr_value value, int dim) {
  if (dim < 0 || dim >= hr__onnx_rank(node, value)) {
    return -1;
  }
  const hr__graph_value *v = hr__graph_value_of(node->graph, value);
  return v->texts != NULL && v->texts[dim] != NULL ? -1 : fact_of(node->graph, value)->dims[dim];
}

int64_t hr__onnx_known_dim(hr__onnx_node *node, hr_value value, int dim) {
  int64_t size = hr__onnx_dim(node, value, dim);
  if (size < 0 && !hr__onnx_failed(node)) {
    HR__ONNX_REFUSE(node, "dim %d of an input depends on a symbol; give the symbol a size", dim);
  }
  return size;
}

int hr__onnx_axis(hr__onnx_node *node, int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    HR__ONNX_WRONG(node, "axis %lld is out of range for %d dims", (long long)axis, rank);
    return 0;
  }
  return (int)(axis < 0 ? axis + rank : axis);
}

bool hr__onnx_is_float(hr_dtype dtype) {
  return dtype >= HR_DTYPE_F16 && dtype <= HR_DTYPE_F64;
}

/* ---- what the host knows ---- */

bool hr__onnx_host_knows(const hr_graph *graph, hr_value value) {
  const hr__graph_value *v = hr__graph_value_of(graph, value);
  for (int p = 0; p < (v->varies ? HR__GRAPH_POINTS : 1); ++p) {
    const hr__fact *fact = &v->facts[p * v->stride];
    if (fact->is_set && fact->numbers == NULL) {
      return false;
    }
  }
  return true;
}

bool hr__onnx_is_known(const hr_graph *graph, hr_value value) {
  const hr__graph_value *v = hr__graph_value_of(graph, value);
  return value != 0 && !v->varies && v->facts->numbers != NULL;
}

static bool fix_input(hr__onnx_importer *importer, const char *name) {
  for (int i = 0; name != NULL && i < importer->options->constant_count; ++i) {
    if (strcmp(importer->options->constants[i].name, name) == 0 && !importer->is_fixed[i]) {
      importer->is_fixed[i] = importer->wants_fixed = true;
      return true;
    }
  }
  return false;
}

typedef struct ancestry {
  bool *is_needed; /* by value */
} ancestry;

static void need(void *arg, const hr_value *value) {
  ((ancestry *)arg)->is_needed[*value] = true;
}

static bool fix_needed(hr__onnx_importer *importer, const hr_graph *graph, const hr__onnx_inner *inner, ancestry *a);

/* Goes on in the graph around an inner one. Carried values have other numbers in each iteration. */
static bool fix_around(hr__onnx_importer *importer, const hr__onnx_inner *inner, const bool *is_needed) {
  ancestry a = {hr_calloc(inner->outer->values.count, sizeof(bool))};
  for (size_t i = 0; a.is_needed != NULL && i < inner->captured.count; ++i) {
    hr_value input = inner->graph->inputs.data[(size_t)inner->given_count + i];
    a.is_needed[is_needed[input] ? inner->captured.data[i] : 0] = true;
  }
  bool any = a.is_needed != NULL && fix_needed(importer, inner->outer, inner->around, &a);
  hr_free(a.is_needed);
  return any;
}

/* inner: of the graph; NULL: it is the model's. */
static bool fix_needed(hr__onnx_importer *importer, const hr_graph *graph, const hr__onnx_inner *inner, ancestry *a) {
  bool any = false;
  for (hr_value v = (hr_value)graph->values.count - 1; v > 0; --v) {
    const hr__node *from = hr__graph_node_of(graph, v);
    if (a->is_needed[v] && from->kind == HR__NODE_INPUT && inner == NULL) {
      any |= fix_input(importer, hr_graph_value_name(graph, v));
    } else if (a->is_needed[v] && from->kind != HR__NODE_SHAPE) {
      hr__node_each_input(from, need, a);
    }
  }
  return inner != NULL ? fix_around(importer, inner, a->is_needed) : any;
}

/* Has the options' constants take the place of all inputs on which a value depends. True if there is one. */
static bool fix_ancestors(hr__onnx_node *node, hr_value value) {
  hr__onnx_importer *importer = node->importer;
  ancestry a = {hr_calloc(node->graph->values.count, sizeof(bool))};
  bool any = false;
  if (a.is_needed != NULL && importer->options != NULL && importer->options->constant_count > 0) {
    a.is_needed[value] = true;
    any = fix_needed(importer, node->graph, importer->inner, &a);
  }
  hr_free(a.is_needed);
  return any;
}

static void want_host(hr__onnx_node *node, hr_value value, const char *what) {
  char text[HR__GRAPH_NAME_TEXT];
  bool is_fixed = fix_ancestors(node, value);
  HR__ONNX_REFUSE(node, "%s \"%s\" is computed by the model%s", what, hr__graph_label(node->graph, value, text),
                  is_fixed ? "" : ": it must follow from shapes and constants; give the input it depends on a value");
}

static int64_t element_count(const hr__fact *fact) {
  int64_t count = 1;
  for (int d = 0; d < fact->rank; ++d) {
    count *= fact->dims[d];
  }
  return count;
}

hr_value hr__onnx_on_host(hr__onnx_node *node, hr_value value, const char *what) {
  enum { READ_MAX = 16 };
  if (value == 0 || hr__onnx_failed(node) || hr__onnx_host_knows(node->graph, value)) {
    return value;
  }
  bool varies = false;
  for (int d = 0; d < hr__onnx_rank(node, value); ++d) {
    varies |= hr__onnx_dim(node, value, d) < 0;
  }
  bool can_read = !varies && hr__is_host_dtype(hr__onnx_dtype_of(node, value)) &&
                  element_count(fact_of(node->graph, value)) <= READ_MAX;
  if (!can_read || fix_ancestors(node, value)) {
    want_host(node, value, what);
    return 0;
  }
  return hr_graph_read(node->graph, value);
}

/* The value that has the same numbers without functions that only arrange or widen them. */
static hr_value numbers_behind(const hr__onnx_node *node, hr_value value) {
  for (;;) {
    const hr__node *from = hr__graph_node_of(node->graph, value);
    bool is_call = from->kind == HR__NODE_CALL;
    bool arranges = is_call && (from->function == HR_FUNCTIONAL_RESHAPE || from->function == HR_FUNCTIONAL_POSITIVE ||
                                from->function == HR_FUNCTIONAL_EXPAND_DIMS || from->function == HR_FUNCTIONAL_SQUEEZE);
    bool widens = is_call && from->function == HR_FUNCTIONAL_ASTYPE &&
                  fact_of(node->graph, from->inputs[0])->numbers != NULL &&
                  hr__onnx_is_float(fact_of(node->graph, value)->dtype);
    if (!arranges && !widens) {
      return value;
    }
    value = from->inputs[0];
  }
}

static double number_at(hr_dtype dtype, const char *bytes, int64_t i) {
  hr_scalar number = hr_scalar_of(dtype, bytes + i * (int64_t)hr_dtype_size(dtype));
  return number.dtype == HR_DTYPE_F64   ? number.value.f[0]
         : number.dtype == HR_DTYPE_U64 ? (double)number.value.u
                                        : (double)number.value.i;
}

int hr__onnx_integers(hr__onnx_node *node, hr_value value, const char *what, int room, int64_t *out_numbers) {
  if (value == 0 || hr__onnx_failed(node)) {
    return -1;
  }
  if (!hr__onnx_host_knows(node->graph, value)) {
    want_host(node, value, what);
    return -1;
  }
  const hr__graph_value *v = hr__graph_value_of(node->graph, value);
  const hr__fact *fact = fact_of(node->graph, value);
  int64_t count = element_count(fact);
  if (v->varies || count > room) {
    HR__ONNX_REFUSE(node, v->varies ? "%s depends on a symbol; give the symbol a size" : "%s has more than %d elements",
                    what, room);
    return -1;
  }
  memcpy(out_numbers, fact->numbers, (size_t)count * sizeof *out_numbers);
  return (int)count;
}

int hr__onnx_numbers(hr__onnx_node *node, hr_value value, const char *what, int room, double *out_numbers) {
  if (value == 0 || hr__onnx_failed(node)) {
    return -1;
  }
  hr_value behind = numbers_behind(node, value);
  const hr__fact *fact = fact_of(node->graph, behind);
  const hr__graph_value *v = hr__graph_value_of(node->graph, behind);
  const hr__node *from = hr__graph_node_of(node->graph, behind);
  const hr__node *constant = from->kind == HR__NODE_CONSTANT ? from : NULL;
  int64_t count = element_count(fact);
  if (v->varies || count > room || (fact->numbers == NULL && constant == NULL)) {
    want_host(node, value, what);
    return -1;
  }
  for (int64_t i = 0; i < count; ++i) {
    out_numbers[i] =
        fact->numbers != NULL ? (double)fact->numbers[i] : number_at(constant->dtype, constant->blob->bytes, i);
  }
  return (int)count;
}

int hr__onnx_ints_of(hr__onnx_node *node, int input, const char *attribute, int64_t *out_numbers) {
  hr_value value = hr__onnx_input(node, input);
  return value != 0 ? hr__onnx_integers(node, value, attribute, HR_RANK_MAX, out_numbers)
                    : hr__onnx_ints(node, attribute, out_numbers);
}

/* ---- functions ---- */

hr_value hr__onnx_add(hr__onnx_node *node, hr_functional function, int input_count, const hr_value *inputs,
                      int attribute_count, const hr_graph_attribute *attributes) {
  return hr_graph_add(node->graph, function, input_count, inputs, attribute_count, attributes);
}

hr_value hr__onnx_number(hr__onnx_node *node, double number) {
  return hr_graph_number(node->graph, hr_scalar_f64(number));
}

hr_value hr__onnx_whole(hr__onnx_node *node, int64_t number) {
  return hr_graph_number(node->graph, hr_scalar_i64(number));
}

hr_value hr__onnx_cast(hr__onnx_node *node, hr_value x, hr_dtype dtype) {
  return hr__onnx_dtype_of(node, x) == dtype ? x : ADD(node, ASTYPE, IN(x), WITH(hr__with_dtype("dtype", dtype)));
}

hr_value hr__onnx_reshape(hr__onnx_node *node, hr_value x, int rank, const int64_t *dims) {
  return ADD(node, RESHAPE, IN(x), WITH(hr__with_ints("shape", rank, dims)));
}

hr_value hr__onnx_permute(hr__onnx_node *node, hr_value x, int rank, const int64_t *axes) {
  return ADD(node, PERMUTE_DIMS, IN(x), WITH(hr__with_ints("axes", rank, axes)));
}

hr_value hr__onnx_expand_dim(hr__onnx_node *node, hr_value x, int64_t axis) {
  return ADD(node, EXPAND_DIMS, IN(x), WITH(hr__with_ints("axis", 1, &axis)));
}

hr_value hr__onnx_squeeze_dim(hr__onnx_node *node, hr_value x, int64_t axis) {
  return ADD(node, SQUEEZE, IN(x), WITH(hr__with_ints("axis", 1, &axis)));
}

hr_value hr__onnx_along(hr__onnx_node *node, hr_value vector, int axis, int rank) {
  int64_t axes[HR_RANK_MAX];
  int count = 0;
  for (int d = 0; d < rank; ++d) {
    if (d != axis) {
      axes[count++] = d;
    }
  }
  return count == 0 ? vector : ADD(node, EXPAND_DIMS, IN(vector), WITH(hr__with_ints("axis", count, axes)));
}

hr_value hr__onnx_vector(hr__onnx_node *node, int count, const int64_t *numbers) {
  const hr_type type = {.dtype = HR_DTYPE_I64, .rank = 1, .dims = {count}};
  return hr_graph_constant(node->graph, &type, numbers);
}

hr_value hr__onnx_floats(hr__onnx_node *node, int rank, const int64_t *dims, const float *numbers) {
  hr_type type = {.dtype = HR_DTYPE_F32, .rank = rank};
  memcpy(type.dims, dims, (size_t)rank * sizeof *dims);
  return hr_graph_constant(node->graph, &type, numbers);
}

hr_value hr__onnx_narrow(hr__onnx_node *node, hr_value x, int axis, int64_t begin, int64_t count) {
  return hr__integer_slice(node, x, axis, hr__integer_of(begin), hr__integer_of(count), 1);
}

hr_value hr__onnx_reduce(hr__onnx_node *node, hr_functional function, hr_value x, int axis_count, const int64_t *axes,
                         bool keeps) {
  hr_graph_attribute with[3] = {hr__with_ints("axis", axis_count, axes), hr__with_flag("keepdims", keeps)};
  int count = 2;
  if (function == HR_FUNCTIONAL_SUM || function == HR_FUNCTIONAL_PROD) {
    with[count++] = hr__with_dtype("dtype", hr__onnx_dtype_of(node, x));
  }
  return hr__onnx_add(node, function, IN(x), count, with);
}
