/* graph_integers.c: small integers on the host: shapes, ranges and slices of them.
 *
 * They decide dims and attributes, so that a run would wait if the device computed them. Results equal those of the
 * functions on a stream: they wrap in their dtype.
 */
#include "base/vector.h"
#include "functional/functions.h"
#include "graph/graph_node.h"

bool hr__is_host_dtype(hr_dtype dtype) {
  return dtype >= HR_DTYPE_BOOL && dtype <= HR_DTYPE_I64 && dtype != HR_DTYPE_U64;
}

#define LOAD(TYPE)                                                                          \
  for (int64_t i = 0; i < count; ++i) {                                                     \
    TYPE element;                                                                           \
    memcpy(&element, (const char *)elements + i * (int64_t)sizeof element, sizeof element); \
    out_numbers[i] = (int64_t)element;                                                      \
  }                                                                                         \
  break
#define STORE(TYPE)                                                                       \
  for (int64_t i = 0; i < count; ++i) {                                                   \
    TYPE element = (TYPE)numbers[i];                                                      \
    memcpy((char *)out_elements + i * (int64_t)sizeof element, &element, sizeof element); \
  }                                                                                       \
  break
#define EACH_DTYPE(DO) \
  case HR_DTYPE_BOOL:  \
  case HR_DTYPE_U8:    \
    DO(uint8_t);       \
  case HR_DTYPE_I8:    \
    DO(int8_t);        \
  case HR_DTYPE_U16:   \
    DO(uint16_t);      \
  case HR_DTYPE_I16:   \
    DO(int16_t);       \
  case HR_DTYPE_U32:   \
    DO(uint32_t);      \
  case HR_DTYPE_I32:   \
    DO(int32_t);       \
  default:             \
    DO(int64_t)

void hr__integers_load(hr_dtype dtype, int64_t count, const void *elements, int64_t *out_numbers) {
  switch (dtype) { EACH_DTYPE(LOAD); }
}

void hr__integers_store(hr_dtype dtype, int64_t count, const int64_t *numbers, void *out_elements) {
  switch (dtype) { EACH_DTYPE(STORE); }
}

static int64_t wrap(hr_dtype dtype, int64_t number) {
  switch (dtype) {
    case HR_DTYPE_BOOL:
      return number != 0;
    case HR_DTYPE_U8:
      return (uint8_t)number;
    case HR_DTYPE_I8:
      return (int8_t)number;
    case HR_DTYPE_U16:
      return (uint16_t)number;
    case HR_DTYPE_I16:
      return (int16_t)number;
    case HR_DTYPE_U32:
      return (uint32_t)number;
    case HR_DTYPE_I32:
      return (int32_t)number;
    default:
      return number;
  }
}

/* ---- the operands of a call ---- */

typedef struct call {
  const hr__node *node;
  const hr_attribute *attributes;
  const hr__fact *const *inputs;
  const hr_tensor *result;
  int64_t count, *numbers; /* of the result */
} call;

static const hr_attribute *given(const call *c, int index) {
  bool is_given = index < c->node->attribute_count && c->attributes[index].kind != HR_ATTRIBUTE_NONE;
  return is_given ? &c->attributes[index] : NULL;
}

static int64_t integer(const call *c, int index, int64_t otherwise) {
  const hr_attribute *attribute = given(c, index);
  return attribute != NULL ? attribute->value.integer : otherwise;
}

static int64_t product(const int64_t *dims, int begin, int end) {
  int64_t count = 1;
  for (int d = begin; d < end; ++d) {
    count *= dims[d];
  }
  return count;
}

/* The place in input `i` of element `at` of the result, by broadcasting. */
static int64_t broadcast_place(const call *c, int i, int64_t at) {
  const hr__fact *x = c->inputs[i];
  int64_t place = 0, stride = 1;
  for (int d = c->result->rank - 1, from = x->rank - 1; from >= 0; --d, --from) {
    int64_t index = at % c->result->dims[d];
    at /= c->result->dims[d];
    place += x->dims[from] == 1 ? 0 : index * stride;
    stride *= x->dims[from];
  }
  return place;
}

/* True if all inputs can be broadcast to the result. */
static bool are_broadcast(const call *c) {
  for (int i = 0; i < c->node->input_count; ++i) {
    int first = c->result->rank - c->inputs[i]->rank;
    for (int d = 0; first >= 0 && d < c->inputs[i]->rank; ++d) {
      if (c->inputs[i]->dims[d] != 1 && c->inputs[i]->dims[d] != c->result->dims[first + d]) {
        return false;
      }
    }
    if (first < 0) {
      return false;
    }
  }
  return true;
}

/* ---- element by element ---- */

static int64_t divide_floor(int64_t x, int64_t y) {
  if (y == 0 || y == -1) {
    return y == 0 ? 0 : (int64_t)(0 - (uint64_t)x);
  }
  return x / y - (x % y != 0 && (x < 0) != (y < 0));
}

/* Of the sign of y; without a product that may exceed 64 bits. */
static int64_t divide_remainder(int64_t x, int64_t y) {
  int64_t rest = y == 0 || y == -1 ? 0 : x % y;
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

/* Sets false for a function that is none of these. */
static int64_t apply_one(hr_functional function, int64_t x, int64_t y, bool *out_is_known) {
  switch (function) {
    case HR_FUNCTIONAL_ADD:
      return (int64_t)((uint64_t)x + (uint64_t)y);
    case HR_FUNCTIONAL_SUBTRACT:
      return (int64_t)((uint64_t)x - (uint64_t)y);
    case HR_FUNCTIONAL_MULTIPLY:
      return (int64_t)((uint64_t)x * (uint64_t)y);
    case HR_FUNCTIONAL_FLOOR_DIVIDE:
      return divide_floor(x, y);
    case HR_FUNCTIONAL_REMAINDER:
      return divide_remainder(x, y);
    case HR_FUNCTIONAL_MAXIMUM:
      return x > y ? x : y;
    case HR_FUNCTIONAL_MINIMUM:
      return x < y ? x : y;
    case HR_FUNCTIONAL_EQUAL:
      return x == y;
    case HR_FUNCTIONAL_NOT_EQUAL:
      return x != y;
    case HR_FUNCTIONAL_LESS:
      return x < y;
    case HR_FUNCTIONAL_LESS_EQUAL:
      return x <= y;
    case HR_FUNCTIONAL_GREATER:
      return x > y;
    case HR_FUNCTIONAL_GREATER_EQUAL:
      return x >= y;
    case HR_FUNCTIONAL_LOGICAL_AND:
      return x != 0 && y != 0;
    case HR_FUNCTIONAL_LOGICAL_OR:
      return x != 0 || y != 0;
    case HR_FUNCTIONAL_NEGATIVE:
      return (int64_t)(0 - (uint64_t)x);
    case HR_FUNCTIONAL_ABS:
      return x < 0 ? (int64_t)(0 - (uint64_t)x) : x;
    case HR_FUNCTIONAL_LOGICAL_NOT:
      return x == 0;
    default:
      *out_is_known = false;
      return 0;
  }
}

/* Operands in bool have no arithmetic on integers. */
static bool has_bool(const call *c) {
  for (int i = 0; i < c->node->input_count; ++i) {
    if (c->inputs[i]->dtype == HR_DTYPE_BOOL) {
      return true;
    }
  }
  return false;
}

/* True if no promotion of two operands changes their numbers: that of a weak number to the other's dtype may. */
static bool keeps_numbers(const call *c) {
  for (int i = 0; c->node->input_count == 2 && i < 2; ++i) {
    const hr__fact *x = c->inputs[i];
    hr_dtype other = c->inputs[1 - i]->dtype;
    for (int64_t at = 0; x->dtype != other && at < product(x->dims, 0, x->rank); ++at) {
      if (wrap(other, x->numbers[at]) != x->numbers[at]) {
        return false;
      }
    }
  }
  return true;
}

static bool compute_elements(const call *c) {
  hr_functional function = c->node->function;
  bool is_known = c->node->input_count <= 2;
  bool is_logical = function >= HR_FUNCTIONAL_EQUAL && function <= HR_FUNCTIONAL_LOGICAL_NOT;
  if (!is_known || (!is_logical && has_bool(c)) || !keeps_numbers(c) || !are_broadcast(c)) {
    return false;
  }
  (void)apply_one(function, 1, 1, &is_known);
  for (int64_t at = 0; is_known && at < c->count; ++at) {
    int64_t x = c->inputs[0]->numbers[broadcast_place(c, 0, at)];
    int64_t y = c->node->input_count > 1 ? c->inputs[1]->numbers[broadcast_place(c, 1, at)] : 0;
    c->numbers[at] = apply_one(function, x, y, &is_known);
  }
  return is_known;
}

/* Copies the elements of input 0, or of the input that it chooses. */
static bool compute_copy(const call *c) {
  bool is_choice = c->node->function == HR_FUNCTIONAL_WHERE;
  if (!are_broadcast(c)) {
    return false;
  }
  for (int64_t at = 0; at < c->count; ++at) {
    int from = !is_choice ? 0 : c->inputs[0]->numbers[broadcast_place(c, 0, at)] != 0 ? 1 : 2;
    c->numbers[at] = c->inputs[from]->numbers[broadcast_place(c, from, at)];
  }
  return true;
}

/* ---- other functions ---- */

/* The result is a view: its strides are those in the input's elements. */
static void compute_view(const call *c) {
  for (int64_t at = 0; at < c->count; ++at) {
    int64_t place = c->result->offset, rest = at;
    for (int d = c->result->rank - 1; d >= 0; --d) {
      place += rest % c->result->dims[d] * c->result->strides[d];
      rest /= c->result->dims[d];
    }
    c->numbers[at] = c->inputs[0]->numbers[place];
  }
}

static void compute_join(const call *c, bool is_stack) {
  int rank = c->result->rank;
  int64_t given_axis = integer(c, 0, 0);
  int axis = (int)(given_axis < 0 ? given_axis + rank : given_axis);
  int64_t outer = product(c->result->dims, 0, axis), inner = product(c->result->dims, axis + 1, rank);
  int64_t *to = c->numbers;
  for (int64_t o = 0; o < outer; ++o) {
    for (int i = 0; i < c->node->input_count; ++i) {
      int64_t count = (is_stack ? 1 : c->inputs[i]->dims[axis]) * inner;
      memcpy(to, c->inputs[i]->numbers + o * count, (size_t)count * sizeof *to);
      to += count;
    }
  }
}

static bool compute_take(const call *c) {
  const hr__fact *x = c->inputs[0], *indices = c->inputs[1];
  int64_t given_axis = integer(c, 0, 0), count = product(indices->dims, 0, indices->rank);
  int axis = (int)(given_axis < 0 ? given_axis + x->rank : given_axis);
  if (given(c, 1) != NULL) {
    return false; /* another mode than errors */
  }
  int64_t size = x->dims[axis], outer = product(x->dims, 0, axis), inner = product(x->dims, axis + 1, x->rank);
  for (int64_t at = 0; at < outer * count * inner; ++at) {
    int64_t index = indices->numbers[at / inner % count];
    index += index < 0 ? size : 0;
    if (index < 0 || index >= size) {
      return false; /* the stream reports it */
    }
    c->numbers[at] = x->numbers[(at / (count * inner) * size + index) * inner + at % inner];
  }
  return true;
}

static bool compute_arange(const call *c) {
  int64_t numbers[3] = {0, 0, 1};
  for (int i = 0; i < 3; ++i) {
    const hr_attribute *attribute = given(c, i);
    if (attribute != NULL && attribute->value.number.dtype != HR_DTYPE_I64) {
      return false;
    }
    numbers[i] = attribute != NULL ? attribute->value.number.value.i : numbers[i];
  }
  for (int64_t at = 0; at < c->count; ++at) {
    c->numbers[at] = (int64_t)((uint64_t)numbers[0] + (uint64_t)at * (uint64_t)numbers[2]);
  }
  return true;
}

/* Over all elements. */
static bool compute_reduction(const call *c) {
  const hr__fact *x = c->inputs[0];
  int64_t count = product(x->dims, 0, x->rank);
  hr_functional function = c->node->function;
  bool is_best = function == HR_FUNCTIONAL_MAX || function == HR_FUNCTIONAL_MIN;
  if (c->count != 1 || (is_best && count == 0) || (!is_best && c->result->dtype == HR_DTYPE_BOOL)) {
    return false;
  }
  uint64_t result = function == HR_FUNCTIONAL_PROD ? 1 : is_best ? (uint64_t)x->numbers[0] : 0;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t number = (uint64_t)x->numbers[i];
    result = function == HR_FUNCTIONAL_SUM                                            ? result + number
             : function == HR_FUNCTIONAL_PROD                                         ? result * number
             : ((int64_t)number > (int64_t)result) == (function == HR_FUNCTIONAL_MAX) ? number
                                                                                      : result;
  }
  c->numbers[0] = (int64_t)result;
  return true;
}

/* False: the function is none of those that are computed here. */
static bool compute(const call *c) {
  switch (c->node->function) {
    case HR_FUNCTIONAL_POSITIVE:
    case HR_FUNCTIONAL_BROADCAST_TO:
    case HR_FUNCTIONAL_PERMUTE_DIMS:
    case HR_FUNCTIONAL_EXPAND_DIMS:
    case HR_FUNCTIONAL_SQUEEZE:
    case HR_FUNCTIONAL_FLIP:
    case HR_FUNCTIONAL_SLICE:
    case HR_FUNCTIONAL_MOVEAXIS:
    case HR_FUNCTIONAL_SWAPAXES:
    case HR_FUNCTIONAL_RESHAPE:
      compute_view(c);
      return true;
    case HR_FUNCTIONAL_ASTYPE:
    case HR_FUNCTIONAL_FULL:
    case HR_FUNCTIONAL_WHERE:
      return compute_copy(c);
    case HR_FUNCTIONAL_CONCAT:
    case HR_FUNCTIONAL_STACK:
      compute_join(c, c->node->function == HR_FUNCTIONAL_STACK);
      return true;
    case HR_FUNCTIONAL_TAKE:
      return compute_take(c);
    case HR_FUNCTIONAL_ARANGE:
      return compute_arange(c);
    case HR_FUNCTIONAL_SUM:
    case HR_FUNCTIONAL_PROD:
    case HR_FUNCTIONAL_MAX:
    case HR_FUNCTIONAL_MIN:
      return compute_reduction(c);
    default:
      return compute_elements(c);
  }
}

hr_status hr__integers_compute(const hr__node *node, const hr_attribute *attributes, const hr__fact *const *inputs,
                               const hr_tensor *result, hr_arena *arena, const int64_t **out_numbers) {
  int64_t count = product(result->dims, 0, result->rank);
  int64_t *numbers = HR_ARENA_ARRAY(arena, int64_t, (size_t)count + 1);
  if (numbers == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory for integers");
  }
  const call c = {node, attributes, inputs, result, count, numbers};
  if (compute(&c)) {
    for (int64_t at = 0; at < count; ++at) {
      numbers[at] = wrap(result->dtype, numbers[at]);
    }
    *out_numbers = numbers;
  }
  return HR_OK;
}
