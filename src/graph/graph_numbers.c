/* graph_numbers.c: element-wise operations read numbers in place of tensors that have one number everywhere.
 *
 *   before   %1 = full(0.5, shape=[4], dtype=f32)      after   %2 = multiply(%x, 0.5)
 *            %2 = multiply(%x, %1)
 *
 * A number takes the dtype of the other operands, and is an argument of the kernel. The tensor would be a record of its
 * own, in a loop one for each iteration. Only numbers that the dtype has exactly are read so: others are rounded first.
 */
#include <math.h>
#include <string.h>

#include "functional/functions.h"
#include "graph/graph_node.h"

static bool is_call(const hr__node *node, hr_functional function) {
  return node->kind == HR__NODE_CALL && node->function == function;
}

/* The number that a value has everywhere; 0: none is known. */
static hr_value number_of(const hr_graph *graph, hr_value value) {
  const hr__node *node = hr__graph_node_of(graph, value);
  while (is_call(node, HR_FUNCTIONAL_BROADCAST_TO) || is_call(node, HR_FUNCTIONAL_RESHAPE)) {
    node = hr__graph_node_of(graph, node->inputs[0]);
  }
  bool is_full =
      is_call(node, HR_FUNCTIONAL_FULL) && hr__graph_node_of(graph, node->inputs[0])->kind == HR__NODE_NUMBER;
  return is_full ? node->inputs[0] : 0;
}

/* True for a double whose lower `bits` of a float's significand are 0: of f32 0, of bf16 16. */
static bool has_float(double x, uint32_t unused) {
  float single = (float)x;
  uint32_t word;
  memcpy(&word, &single, sizeof word);
  return isnan(x) || ((double)single == x && (word & unused) == 0);
}

static bool has_exactly(hr_dtype dtype, const hr_scalar *number) {
  bool is_real = number->dtype == HR_DTYPE_F64, is_whole = number->dtype == HR_DTYPE_I64;
  switch (dtype) {
    case HR_DTYPE_F64:
      return is_real;
    case HR_DTYPE_F32:
      return is_real && has_float(number->value.f[0], 0);
    case HR_DTYPE_BF16:
      return is_real && has_float(number->value.f[0], 0xffff);
    case HR_DTYPE_I64:
      return is_whole;
    case HR_DTYPE_I32:
      return is_whole && number->value.i >= INT32_MIN && number->value.i <= INT32_MAX;
    case HR_DTYPE_U32:
    case HR_DTYPE_U64:
      return is_whole && number->value.i >= 0 && number->value.i <= INT32_MAX;
    default:
      return false;
  }
}

static const hr__fact *fact_of(const hr_graph *graph, hr_value value) {
  const hr__graph_value *v = hr__graph_value_of(graph, value);
  return v->varies || !v->facts->is_set ? NULL : v->facts;
}

/* True if x is of a dtype that y has, too, and y's dims are those of both together. Dtypes and ranks never vary. */
static bool is_covered(const hr_graph *graph, hr_value x, hr_value y) {
  const hr__fact *a = fact_of(graph, x), *b = hr__graph_value_of(graph, y)->facts;
  bool is_right = a != NULL && b->is_set && a->dtype == b->dtype && a->rank <= b->rank;
  is_right = is_right && (a->rank == 0 || fact_of(graph, y) != NULL);
  for (int d = 0; is_right && d < a->rank; ++d) {
    int64_t dim = a->dims[d];
    is_right = dim == 1 || dim == b->dims[b->rank - a->rank + d];
  }
  return is_right;
}

bool hr__graph_use_numbers(const hr_graph *graph, hr_functional function, int count, hr_value *inputs) {
  bool is_choice = function == HR_FUNCTIONAL_WHERE, has_any = false;
  if (count != 2 + is_choice || function == HR_FUNCTIONAL_POW ||
      hr__function_row_of(function)->emit != hr__emit_pointwise) {
    return false;
  }
  hr_value *x = inputs + is_choice;
  for (int i = 1; i >= 0 && !has_any; --i) {
    hr_value number = number_of(graph, x[i]);
    if (number != 0 && is_covered(graph, x[i], x[1 - i]) &&
        has_exactly(fact_of(graph, x[i])->dtype, &hr__graph_node_of(graph, number)->number)) {
      x[i] = number;
      has_any = true;
    }
  }
  return has_any;
}
