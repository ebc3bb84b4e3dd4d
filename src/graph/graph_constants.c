/* graph_constants.c: values of a graph whose elements are known without a stream: numbers, and triangular matrices.
 *
 * Dims may depend on symbols. A dim of a shape is known if it is the same at all points of the graph; numbers below 2
 * are not, as a size of 0 or 1 may be that of the points alone (minimum(n, 1), slices behind the end).
 */
#include <math.h>
#include <string.h>

#include "core/ir/dtype.h"
#include "graph/graph_attention.h"

enum {
  VISITS_MAX = 1024, /* of nodes for a value, and in a row */
  DEPTH_MAX = 64,
  EXACT_MAX = 1 << 24 /* integers up to here are exact in f32 */
};

static const hr__fact *fact_at(const hr_graph *graph, hr_value value, int point) {
  const hr__graph_value *v = hr__graph_value_of(graph, value);
  return &v->facts[(v->varies ? point : 0) * v->stride];
}

int hr__graph_rank(const hr_graph *graph, hr_value value) {
  for (int p = 0; p < HR__GRAPH_SMALL; ++p) {
    if (fact_at(graph, value, p)->is_set) {
      return fact_at(graph, value, p)->rank;
    }
  }
  return -1;
}

bool hr__graph_same_dims(const hr_graph *graph, hr_value x, int x_first, hr_value y, int y_first, int count) {
  int points = 0;
  for (int p = 0; p < HR__GRAPH_SMALL; ++p) {
    const hr__fact *a = fact_at(graph, x, p), *b = fact_at(graph, y, p);
    if (!a->is_set || !b->is_set) {
      continue;
    }
    ++points;
    if (x_first + count > a->rank || y_first + count > b->rank ||
        memcmp(a->dims + x_first, b->dims + y_first, (size_t)count * sizeof *a->dims) != 0) {
      return false;
    }
  }
  return points > 0;
}

/* ---- numbers ---- */

/* False: the search has become too long. */
static bool visit(hr__known *known, int depth) {
  return depth < DEPTH_MAX && known->steps > 0 && known->steps-- > 0 && known->visits++ < VISITS_MAX;
}

/* Functions that move elements. */
static bool is_moving(const hr__node *node) {
  static const hr_functional moving[] = {HR_FUNCTIONAL_TAKE,        HR_FUNCTIONAL_SLICE,   HR_FUNCTIONAL_SQUEEZE,
                                         HR_FUNCTIONAL_EXPAND_DIMS, HR_FUNCTIONAL_RESHAPE, HR_FUNCTIONAL_ASTYPE,
                                         HR_FUNCTIONAL_CONCAT,      HR_FUNCTIONAL_STACK};
  for (size_t i = 0; node->kind == HR__NODE_CALL && i < sizeof moving / sizeof *moving; ++i) {
    if (node->function == moving[i]) {
      return true;
    }
  }
  return false;
}

/* True if the elements are dims of shapes and numbers of constants. */
static bool has_dims(hr__known *known, hr_value value, int depth) {
  const hr__node *node = hr__graph_node_of(known->graph, value);
  bool is_right = is_moving(node) && visit(known, depth);
  for (int i = 0; is_right && i < node->input_count; ++i) {
    is_right = node->inputs[i] != 0 && has_dims(known, node->inputs[i], depth + 1);
  }
  return is_right || node->kind == HR__NODE_SHAPE || node->kind == HR__NODE_CONSTANT || node->kind == HR__NODE_NUMBER;
}

/* A dim that no symbol influences. */
static bool known_dim(hr__known *known, hr_value value, double *out_number) {
  const hr_graph *graph = known->graph;
  const int64_t *first = NULL;
  for (int p = 0; p < HR__GRAPH_POINTS; ++p) {
    const hr__fact *fact = fact_at(graph, value, p);
    if (!fact->is_set && p == HR__GRAPH_SMALL) {
      continue;
    }
    int64_t count = 1;
    for (int d = 0; fact->is_set && d < fact->rank; ++d) {
      count *= fact->dims[d];
    }
    if (!fact->is_set || fact->numbers == NULL || count != 1 || (first != NULL && *fact->numbers != *first)) {
      return false;
    }
    first = fact->numbers;
  }
  *out_number = (double)*first;
  return !hr__graph_value_of(graph, value)->varies || (*first >= 2 && has_dims(known, value, 0));
}

/* True for dtypes of numbers of rows and columns. */
static bool is_count(hr_dtype dtype) {
  return dtype == HR_DTYPE_I32 || dtype == HR_DTYPE_I64;
}

/* An element of a constant; NaN: it has another dtype, or is a large integer. */
static double element(hr_dtype dtype, const void *bytes, int64_t i) {
  int64_t whole = dtype == HR_DTYPE_I64 ? ((const int64_t *)bytes)[i] : 0;
  if (dtype == HR_DTYPE_I32) {
    whole = ((const int32_t *)bytes)[i];
  }
  bool is_exact = is_count(dtype) && whole >= -EXACT_MAX && whole <= EXACT_MAX;
  return dtype == HR_DTYPE_F32    ? (double)((const float *)bytes)[i]
         : dtype == HR_DTYPE_F64  ? ((const double *)bytes)[i]
         : is_exact               ? (double)whole
         : dtype == HR_DTYPE_BOOL ? (double)(((const uint8_t *)bytes)[i] != 0)
                                  : (double)NAN;
}

static bool known_number(hr__known *known, hr_value value, int depth, double *out_number);

/* Numbers are computed in f64: they serve results that are close, not the same bits. */
static bool computed_number(hr__known *known, const hr__node *node, int depth, double *out_number) {
  double x = 0, y = 0;
  if (node->input_count < 1 || node->input_count > 2 || !known_number(known, node->inputs[0], depth + 1, &x) ||
      (node->input_count == 2 && !known_number(known, node->inputs[1], depth + 1, &y))) {
    return false;
  }
  switch ((int)node->function) {
    case HR_FUNCTIONAL_SQRT:
      *out_number = sqrt(x);
      return true;
    case HR_FUNCTIONAL_RSQRT:
      *out_number = 1 / sqrt(x);
      return true;
    case HR_FUNCTIONAL_RECIPROCAL:
      *out_number = 1 / x;
      return true;
    case HR_FUNCTIONAL_NEGATIVE:
      *out_number = -x;
      return true;
    case HR_FUNCTIONAL_MULTIPLY:
      *out_number = x * y;
      return true;
    case HR_FUNCTIONAL_DIVIDE:
      *out_number = x / y;
      return true;
    case HR_FUNCTIONAL_POW:
      *out_number = pow(x, y);
      return true;
    default:
      return false;
  }
}

static bool is_float(hr_dtype dtype) {
  return dtype == HR_DTYPE_F32 || dtype == HR_DTYPE_F64;
}

static bool known_number(hr__known *known, hr_value value, int depth, double *out_number) {
  const hr_graph *graph = known->graph;
  const hr__node *node = hr__graph_node_of(graph, value);
  hr_dtype dtype = hr__graph_value_of(graph, value)->facts->dtype;
  if (!visit(known, depth) || hr__graph_value_of(graph, value)->is_watched) {
    return false;
  }
  if (node->kind == HR__NODE_NUMBER) {
    *out_number = hr_scalar_as_f64(&node->number);
    return node->number.dtype != HR_DTYPE_C64 && node->number.dtype != HR_DTYPE_C128;
  }
  if (node->kind == HR__NODE_CONSTANT) {
    bool is_one = hr__graph_bytes(node) == hr_dtype_size(node->dtype);
    *out_number = is_one ? element(node->dtype, node->blob->bytes, 0) : (double)NAN;
    return !isnan(*out_number);
  }
  if (known_dim(known, value, out_number)) {
    return true;
  }
  bool is_repeated = node->kind == HR__NODE_CALL &&
                     (node->function == HR_FUNCTIONAL_FULL || node->function == HR_FUNCTIONAL_BROADCAST_TO);
  bool is_moved = (is_moving(node) || is_repeated) && node->input_count == 1 && is_float(dtype);
  return is_moved ? known_number(known, node->inputs[0], depth + 1, out_number)
                  : node->kind == HR__NODE_CALL && is_float(dtype) && computed_number(known, node, depth, out_number);
}

bool hr__graph_known_number(hr__known *known, hr_value value, double *out_number) {
  known->visits = 0;
  return known_number(known, value, 0, out_number) && !isnan(*out_number);
}

/* ---- triangular matrices ---- */

/* Element [.., l, s]. */
typedef enum kind { UNKNOWN, UNIFORM, TRIANGLE, ROWS, COLUMNS } kind; /* ROWS: l; COLUMNS: s */

typedef struct matrix {
  kind kind;
  hr__triangle of;
} matrix;

static matrix matrix_of(hr__known *known, hr_value value, int depth);

static matrix uniform(double number) {
  return (matrix){isnan(number) ? UNKNOWN : UNIFORM, {number, number}};
}

static double rounded(double x, hr_dtype dtype) {
  return dtype == HR_DTYPE_F32 ? (double)(float)x : x;
}

static double as_dtype(double x, hr_dtype dtype) {
  return dtype == HR_DTYPE_BOOL ? (double)(x != 0) : is_float(dtype) ? rounded(x, dtype) : trunc(x);
}

/* An element of an element-wise function. */
static bool element_of(hr_functional function, hr_dtype dtype, const double *in, double *out) {
  switch ((int)function) {
    case HR_FUNCTIONAL_EQUAL:
      return *out = in[0] == in[1], true;
    case HR_FUNCTIONAL_NOT_EQUAL:
      return *out = in[0] != in[1], true;
    case HR_FUNCTIONAL_LESS:
      return *out = in[0] < in[1], true;
    case HR_FUNCTIONAL_LESS_EQUAL:
      return *out = in[0] <= in[1], true;
    case HR_FUNCTIONAL_GREATER:
      return *out = in[0] > in[1], true;
    case HR_FUNCTIONAL_GREATER_EQUAL:
      return *out = in[0] >= in[1], true;
    case HR_FUNCTIONAL_LOGICAL_NOT:
      return *out = in[0] == 0, true;
    case HR_FUNCTIONAL_BITWISE_AND:
      return *out = in[0] != 0 && in[1] != 0, dtype == HR_DTYPE_BOOL;
    case HR_FUNCTIONAL_LOGICAL_AND:
      return *out = in[0] != 0 && in[1] != 0, true;
    case HR_FUNCTIONAL_WHERE:
      return *out = in[0] != 0 ? in[1] : in[2], true;
    case HR_FUNCTIONAL_MULTIPLY:
      return *out = rounded(in[0] * in[1], dtype), is_float(dtype);
    case HR_FUNCTIONAL_SUBTRACT:
      return *out = rounded(in[0] - in[1], dtype), is_float(dtype);
    case HR_FUNCTIONAL_ADD:
      return *out = rounded(in[0] + in[1], dtype), is_float(dtype);
    case HR_FUNCTIONAL_ASTYPE:
      *out = as_dtype(in[0], dtype);
      return is_float(dtype) || dtype == HR_DTYPE_BOOL || (is_count(dtype) && fabs(in[0]) <= EXACT_MAX);
    default:
      return false;
  }
}

/* A constant, whose elements are compared. */
static matrix constant_matrix(hr__known *known, const hr__node *node) {
  int rank = node->rank;
  int64_t rows = rank >= 2 ? node->dims[rank - 2] : 1, columns = rank >= 1 ? node->dims[rank - 1] : 1;
  size_t bytes = hr__graph_bytes(node), size = hr_dtype_size(node->dtype);
  if (bytes == size) {
    return uniform(element(node->dtype, node->blob->bytes, 0));
  }
  if (rank < 2 || bytes / size != (size_t)(rows * columns) || columns < 2 || bytes == 0) {
    return (matrix){.kind = UNKNOWN};
  }
  hr__triangle t = {element(node->dtype, node->blob->bytes, 0), element(node->dtype, node->blob->bytes, 1)};
  for (int64_t i = 0; i < rows * columns; ++i) {
    if (known->steps-- <= 0 ||
        element(node->dtype, node->blob->bytes, i) != (i % columns <= i / columns ? t.at : t.above)) {
      return (matrix){.kind = UNKNOWN};
    }
  }
  return (matrix){TRIANGLE, t};
}

/* True if an operand of the node has its two last dims. */
static bool keeps_matrix(const hr__known *known, const hr__node *node, int input) {
  int rank = hr__graph_rank(known->graph, node->inputs[input]), own = hr__graph_rank(known->graph, node->first);
  return rank >= 2 && own >= 2 &&
         hr__graph_same_dims(known->graph, node->inputs[input], rank - 2, node->first, own - 2, 2);
}

/* True if an operand of the node has its dim number `back` from the end. */
static bool keeps_dim(const hr__known *known, const hr__node *node, int input, int back) {
  int rank = hr__graph_rank(known->graph, node->inputs[input]), own = hr__graph_rank(known->graph, node->first);
  return rank >= back && own >= back &&
         hr__graph_same_dims(known->graph, node->inputs[input], rank - back, node->first, own - back, 1);
}

/* The attribute's integer; false: it is computed, or of another kind. */
static bool integer_attribute(const hr__node *node, int index, int64_t missing, int64_t *out) {
  const hr__node_attribute *a = index < node->attribute_count ? &node->attributes[index] : NULL;
  *out = missing;
  if (a == NULL || a->value.kind == HR_ATTRIBUTE_NONE) {
    return true;
  }
  *out = a->value.value.integer;
  return a->value.kind == HR_ATTRIBUTE_INT && a->values == NULL && a->list == 0;
}

static matrix cut_matrix(hr__known *known, const hr__node *node, int depth) {
  bool is_lower = node->function == HR_FUNCTIONAL_TRIL;
  matrix x = matrix_of(known, node->inputs[0], depth + 1);
  int64_t k = 0;
  bool is_right = integer_attribute(node, 0, 0, &k) && k == !is_lower && (x.kind == UNIFORM || x.kind == TRIANGLE);
  if (!is_right || !keeps_matrix(known, node, 0)) {
    return (matrix){.kind = UNKNOWN};
  }
  return (matrix){TRIANGLE, is_lower ? (hr__triangle){x.of.at, 0} : (hr__triangle){0, x.of.above}};
}

/* arange(n) with start 0 and step 1. */
static matrix counted_matrix(const hr__known *known, const hr__node *node) {
  static const double plain[3] = {0, 0, 1};
  hr_dtype dtype = hr__graph_value_of(known->graph, node->first)->facts->dtype;
  if (!is_count(dtype) && !is_float(dtype)) { /* fewer bits hold no large counts */
    return (matrix){.kind = UNKNOWN};
  }
  for (int i = 0; i < node->attribute_count && i < 3; ++i) {
    const hr__node_attribute *a = &node->attributes[i];
    bool is_stop = i == 1, is_computed = a->values != NULL || a->list != 0;
    if (!is_stop && a->value.kind != HR_ATTRIBUTE_NONE &&
        (is_computed || hr_scalar_as_f64(&a->value.value.number) != plain[i])) {
      return (matrix){.kind = UNKNOWN};
    }
  }
  return (matrix){.kind = COLUMNS};
}

/* A reshaped matrix: dims of 1 in front, or a column of a count. */
static matrix reshaped_matrix(hr__known *known, const hr__node *node, int depth) {
  matrix x = matrix_of(known, node->inputs[0], depth + 1);
  int rank = hr__graph_rank(known->graph, node->inputs[0]), own = hr__graph_rank(known->graph, node->first);
  if (x.kind == COLUMNS && rank >= 1 && own >= 1) {
    if (hr__graph_same_dims(known->graph, node->inputs[0], rank - 1, node->first, own - 1, 1)) {
      return x;
    }
    bool is_column = own >= 2 && node->function != HR_FUNCTIONAL_BROADCAST_TO &&
                     hr__graph_same_dims(known->graph, node->inputs[0], rank - 1, node->first, own - 2, 1);
    return (matrix){.kind = is_column ? ROWS : UNKNOWN};
  }
  if (x.kind == ROWS && node->function == HR_FUNCTIONAL_BROADCAST_TO) {
    return keeps_dim(known, node, 0, 2) ? x : (matrix){.kind = UNKNOWN};
  }
  return x.kind == UNIFORM || keeps_matrix(known, node, 0) ? x : (matrix){.kind = UNKNOWN};
}

static matrix filled_matrix(hr__known *known, const hr__node *node, int depth) {
  matrix x = matrix_of(known, node->inputs[0], depth + 1);
  hr_dtype dtype = hr__graph_value_of(known->graph, node->first)->facts->dtype;
  return x.kind == UNIFORM && element_of(HR_FUNCTIONAL_ASTYPE, dtype, &x.of.at, &x.of.at) ? uniform(x.of.at)
                                                                                          : (matrix){.kind = UNKNOWN};
}

/* Comparisons of the numbers of rows with those of columns. */
static matrix compared_matrix(hr_functional function, kind left) {
  const double below[2] = {left == ROWS ? 1 : 0, left == ROWS ? 0 : 1}, same[2] = {0, 0};
  double at = 0, at_same = 0, above = 0;
  const double beyond[2] = {below[1], below[0]};
  bool is_right = element_of(function, HR_DTYPE_BOOL, below, &at) &&
                  element_of(function, HR_DTYPE_BOOL, same, &at_same) &&
                  element_of(function, HR_DTYPE_BOOL, beyond, &above) && at == at_same;
  bool is_comparison = function == HR_FUNCTIONAL_LESS || function == HR_FUNCTIONAL_LESS_EQUAL ||
                       function == HR_FUNCTIONAL_GREATER || function == HR_FUNCTIONAL_GREATER_EQUAL;
  return is_right && is_comparison ? (matrix){TRIANGLE, {at, above}} : (matrix){.kind = UNKNOWN};
}

static matrix pointwise_matrix(hr__known *known, const hr__node *node, int depth) {
  enum { INPUTS_MAX = 3 };
  double at[INPUTS_MAX] = {0}, above[INPUTS_MAX] = {0};
  hr__triangle t;
  kind kinds[INPUTS_MAX] = {UNKNOWN};
  bool is_uniform = true, is_known = node->input_count >= 1 && node->input_count <= INPUTS_MAX;
  for (int i = 0; is_known && i < node->input_count; ++i) {
    matrix x = matrix_of(known, node->inputs[i], depth + 1);
    kinds[i] = x.kind, at[i] = x.of.at, above[i] = x.of.above;
    is_uniform &= x.kind == UNIFORM;
    is_known = x.kind == UNIFORM || (x.kind == TRIANGLE && keeps_matrix(known, node, i)) ||
               (x.kind == ROWS && keeps_dim(known, node, i, 2)) || (x.kind == COLUMNS && keeps_dim(known, node, i, 1));
  }
  if (!is_known) {
    return (matrix){.kind = UNKNOWN};
  }
  hr_dtype dtype = hr__graph_value_of(known->graph, node->first)->facts->dtype;
  bool has_counts = kinds[0] == ROWS || kinds[0] == COLUMNS;
  if (has_counts && node->input_count == 1 && node->function == HR_FUNCTIONAL_ASTYPE) {
    return (matrix){.kind = is_count(dtype) ? kinds[0] : UNKNOWN};
  }
  if (has_counts && node->function == HR_FUNCTIONAL_ADD && kinds[1] == UNIFORM && at[1] == 0) {
    return (matrix){.kind = is_count(dtype) ? kinds[0] : UNKNOWN};
  }
  if (has_counts && node->input_count == 2 && kinds[0] + kinds[1] == ROWS + COLUMNS && kinds[0] != kinds[1]) {
    return compared_matrix(node->function, kinds[0]);
  }
  for (int i = 0; i < node->input_count; ++i) {
    if (kinds[i] == ROWS || kinds[i] == COLUMNS) {
      return (matrix){.kind = UNKNOWN};
    }
  }
  bool is_right = element_of(node->function, dtype, at, &t.at) && element_of(node->function, dtype, above, &t.above);
  return is_right ? (matrix){is_uniform ? UNIFORM : TRIANGLE, t} : (matrix){.kind = UNKNOWN};
}

static matrix matrix_of(hr__known *known, hr_value value, int depth) {
  const hr__node *node = value != 0 ? hr__graph_node_of(known->graph, value) : NULL;
  double number = 0;
  if (node == NULL || !visit(known, depth) || hr__graph_value_of(known->graph, value)->is_watched) {
    return (matrix){.kind = UNKNOWN};
  }
  if (node->kind == HR__NODE_CONSTANT) {
    return constant_matrix(known, node);
  }
  if (node->kind == HR__NODE_NUMBER) {
    return known_number(known, value, depth, &number) ? uniform(number) : (matrix){.kind = UNKNOWN};
  }
  if (node->kind != HR__NODE_CALL) {
    return (matrix){.kind = UNKNOWN};
  }
  switch ((int)node->function) {
    case HR_FUNCTIONAL_TRIL:
    case HR_FUNCTIONAL_TRIU:
      return cut_matrix(known, node, depth);
    case HR_FUNCTIONAL_ARANGE:
      return counted_matrix(known, node);
    case HR_FUNCTIONAL_FULL:
      return filled_matrix(known, node, depth);
    case HR_FUNCTIONAL_BROADCAST_TO:
    case HR_FUNCTIONAL_EXPAND_DIMS:
    case HR_FUNCTIONAL_RESHAPE:
      return reshaped_matrix(known, node, depth);
    default:
      return pointwise_matrix(known, node, depth);
  }
}

bool hr__graph_known_triangle(hr__known *known, hr_value value, hr__triangle *out_triangle) {
  known->visits = 0;
  matrix found = matrix_of(known, value, 0);
  *out_triangle = found.of;
  return found.kind == TRIANGLE;
}
