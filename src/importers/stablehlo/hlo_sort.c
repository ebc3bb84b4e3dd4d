/* hlo_sort.c: sorts of one or several operands along a dim by any comparator, and the first elements of such an order.
 *
 * A comparator that compares one key after the other becomes stable sorts by row, the last key first. A key is the same
 * expression of the first and of the second element, such as JAX's floats with one zero and one NaN. Any other
 * comparator is called for pairs of a merging network: (log2(n) + 1) log2(n) / 2 steps over whole tensors.
 */
#include "core/ir/dtype.h"
#include "importers/stablehlo/hlo.h"

enum { KEYS_MAX = 64, TOTAL_ORDER = 2 };

typedef struct sort_key {
  const hr__vhlo_value *value; /* of the first element */
  bool is_descending, is_total;
} sort_key;

typedef struct keys {
  const hr__hlo *hlo;
  const hr__vhlo_region *region;
  int count;
  sort_key list[KEYS_MAX];
} keys;

/* ---- comparators that compare keys ---- */

typedef struct comparison {
  enum { EQ, NE, GE, GT, LE, LT } direction;
  bool is_total;
  const hr__vhlo_value *sides[2]; /* of the first and of the second element */
} comparison;

static bool is_op(const hr__vhlo_value *value, const char *name, int operands) {
  return value->op != NULL && strcmp(value->op->name->name, name) == 0 && value->op->operand_count == operands;
}

/* The same expression of the first and the second element; out_turned: the second one stands in front. */
static bool is_one_key(const keys *k, const hr__vhlo_op *op, bool *out_turned) {
  hr_text texts[2] = {{0}, {0}};
  unsigned sides[2] = {0, 0};
  bool is_key = hr__hlo_spell(k->hlo, k->region, op->operands[0], 2, &texts[0], &sides[0]) &&
                hr__hlo_spell(k->hlo, k->region, op->operands[1], 2, &texts[1], &sides[1]) &&
                sides[0] + sides[1] == 3 && sides[0] != 0 && sides[1] != 0 &&
                strcmp(hr_text_chars(&texts[0]), hr_text_chars(&texts[1])) == 0;
  *out_turned = sides[0] == 2;
  hr_text_fini(&texts[0]);
  hr_text_fini(&texts[1]);
  return is_key;
}

static bool read_comparison(const keys *k, const hr__vhlo_value *value, comparison *out) {
  static const int turned[] = {EQ, NE, LE, LT, GE, GT};
  const hr__vhlo_module *module = &k->hlo->import->module;
  int64_t direction = -1, type = 0;
  bool is_turned;
  if (!is_op(value, "compare_v1", 2) ||
      !hr__vhlo_int(module, hr__vhlo_find(module, value->op, "comparison_direction"), &direction) || direction < EQ ||
      direction > LT || !is_one_key(k, value->op, &is_turned)) {
    return false;
  }
  hr__vhlo_int(module, hr__vhlo_find(module, value->op, "compare_type"), &type);
  out->direction = is_turned ? turned[direction] : (int)direction;
  out->is_total = type == TOTAL_ORDER;
  out->sides[0] = value->op->operands[is_turned], out->sides[1] = value->op->operands[!is_turned];
  return true;
}

static bool add_key(keys *k, const comparison *c) {
  if (k->count >= KEYS_MAX || (c->direction != LT && c->direction != GT)) {
    return false;
  }
  k->list[k->count++] = (sort_key){c->sides[0], c->direction == GT, c->is_total};
  return true;
}

static bool is_same_key(const comparison *x, const comparison *y) {
  return x->is_total == y->is_total && x->sides[0] == y->sides[0] && x->sides[1] == y->sides[1];
}

static bool read_keys(keys *k, const hr__vhlo_value *value);

/* x < y, or x == y and the rest, where the two parts may stand in any order. */
static bool read_sum(keys *k, const hr__vhlo_value *less, const hr__vhlo_value *both) {
  comparison first, equal;
  if (!is_op(both, "and_v1", 2) || !read_comparison(k, less, &first)) {
    return false;
  }
  for (int i = 0; i < 2; ++i) {
    if (read_comparison(k, both->op->operands[i], &equal) && equal.direction == EQ && is_same_key(&first, &equal)) {
      return add_key(k, &first) && read_keys(k, both->op->operands[1 - i]);
    }
  }
  return false;
}

/* x == y ? the rest : x < y. */
static bool read_choice(keys *k, const hr__vhlo_op *op) {
  comparison first, equal;
  if (!read_comparison(k, op->operands[0], &equal) || (equal.direction != EQ && equal.direction != NE)) {
    return false;
  }
  bool is_equal = equal.direction == EQ;
  return read_comparison(k, op->operands[is_equal ? 2 : 1], &first) && is_same_key(&first, &equal) &&
         add_key(k, &first) && read_keys(k, op->operands[is_equal ? 1 : 2]);
}

static bool read_keys(keys *k, const hr__vhlo_value *value) {
  comparison only;
  if (is_op(value, "or_v1", 2)) {
    int count = k->count;
    if (read_sum(k, value->op->operands[0], value->op->operands[1])) {
      return true;
    }
    k->count = count;
    return read_sum(k, value->op->operands[1], value->op->operands[0]);
  }
  if (is_op(value, "select_v1", 3)) {
    return read_choice(k, value->op);
  }
  return read_comparison(k, value, &only) && add_key(k, &only);
}

/* ---- keys in the order of the row: floats with one zero, NaN behind all others ---- */

static bool is_number(const hr__hlo *hlo, const hr__vhlo_value *value, double number) {
  hr_scalar found;
  return hr__hlo_number_of(hlo, value, &found) && found.dtype == HR_DTYPE_F64 &&
         (found.value.f[0] == number || (found.value.f[0] != found.value.f[0] && number != number));
}

static const hr__vhlo_op *comparison_of(const hr__hlo *hlo, const hr__vhlo_value *value, int64_t wanted) {
  const hr__vhlo_module *module = &hlo->import->module;
  int64_t direction;
  return is_op(value, "compare_v1", 2) &&
                 hr__vhlo_int(module, hr__vhlo_find(module, value->op, "comparison_direction"), &direction) &&
                 direction == wanted
             ? value->op
             : NULL;
}

/* v of x != x ? NaN : x == 0 ? 0 : x; NULL: the value is another one. */
static const hr__vhlo_value *canonical(const hr__hlo *hlo, const hr__vhlo_value *value) {
  if (!is_op(value, "select_v1", 3)) {
    return NULL;
  }
  const hr__vhlo_op *outer = value->op, *is_nan = comparison_of(hlo, outer->operands[0], NE);
  const hr__vhlo_op *inner = is_op(outer->operands[2], "select_v1", 3) ? outer->operands[2]->op : NULL;
  const hr__vhlo_op *is_zero = inner != NULL ? comparison_of(hlo, inner->operands[0], EQ) : NULL;
  if (is_nan == NULL || is_zero == NULL) {
    return NULL;
  }
  const hr__vhlo_value *x = inner->operands[2];
  bool is_canonical = is_nan->operands[0] == x && is_nan->operands[1] == x && is_zero->operands[0] == x &&
                      is_number(hlo, outer->operands[1], __builtin_nan("")) &&
                      is_number(hlo, is_zero->operands[1], 0) && is_number(hlo, inner->operands[1], 0);
  return is_canonical ? x : NULL;
}

/* After the region is inlined over whole tensors. */
static hr_value key_of(hr__hlo *hlo, sort_key *k) {
  hr__vhlo_type type;
  const hr__vhlo_value *plain = k->is_total ? canonical(hlo, k->value) : NULL;
  k->value = plain != NULL ? plain : k->value;
  if (!hr__vhlo_type_of(&hlo->import->module, k->value->type, &type)) {
    return 0;
  }
  hr_value x = k->value->value;
  if (type.dtype == HR_DTYPE_BOOL) {
    return hr__hlo_cast(hlo, x, HR_DTYPE_U8);
  }
  bool is_float = type.dtype >= HR_DTYPE_F16 && !hr_dtype_is_complex(type.dtype);
  return k->is_total && plain == NULL && is_float ? hr__hlo_order_of(hlo, x, type.dtype) : x;
}

/* ---- sorts by row ---- */

static hr_value along(hr__hlo *hlo, hr_value x, hr_value places, int64_t axis) {
  return ADD(hlo, TAKE_ALONG_AXIS, IN(x, places), WITH(hr__with_int("axis", axis)));
}

/* The first result is the values in order, the second one their places. */
static hr_value sorted(hr__hlo *hlo, hr_value x, int64_t axis, bool is_descending) {
  return ADD(hlo, SORT, IN(x), WITH(hr__with_int("axis", axis), hr__with_flag("descending", is_descending)));
}

static void sort_by_keys(hr__hlo *hlo, keys *k, int64_t axis, int count, hr_value *x) {
  int last = k->count - 1;
  hr_value values[KEYS_MAX], places = 0, first = 0;
  for (int i = 0; i < k->count; ++i) {
    values[i] = key_of(hlo, &k->list[i]);
  }
  for (int i = last; i >= 0; --i) {
    hr_value key = i == last ? values[i] : along(hlo, values[i], places, axis);
    first = sorted(hlo, key, axis, k->list[i].is_descending);
    if (first == 0) {
      return;
    }
    places = i == last ? first + 1 : along(hlo, places, first + 1, axis);
  }
  for (int i = 0; i < count; ++i) {
    x[i] = x[i] == values[0] ? first : along(hlo, x[i], places, axis);
  }
}

/* ---- any comparator: a merging network ---- */

typedef struct network {
  hr__hlo *hlo;
  const hr__vhlo_region *region;
  int count; /* of values: those of the operands, then their places before */
  int64_t rows, size;
  hr_value values[HR__HLO_OPERANDS_MAX + 1];
} network;

static hr_value compare(const network *n, const hr_value *x, const hr_value *y) {
  hr_value arguments[2 * HR__HLO_OPERANDS_MAX], result = 0;
  for (int i = 0; i < n->count - 1; ++i) {
    arguments[2 * i] = x[i], arguments[2 * i + 1] = y[i];
  }
  hr__hlo_inline(n->hlo, n->region, 2 * (n->count - 1), arguments, 1, &result, false);
  return result;
}

/* True if y comes in front of x. Equal elements have the order of their places, and those behind the end come last. */
static hr_value is_turned(const network *n, const hr_value *x, const hr_value *y) {
  hr__hlo *hlo = n->hlo;
  hr_value here = x[n->count - 1], there = y[n->count - 1], size = hr__hlo_whole(hlo, n->size);
  hr_value is_behind = CALL(hlo, LESS, there, here);
  hr_value is_past = CALL(hlo, GREATER_EQUAL, CALL(hlo, MAXIMUM, here, there), size);
  hr_value is_equal = CALL(hlo, LOGICAL_NOT, compare(n, x, y));
  hr_value is_less = CALL(hlo, LOGICAL_OR, compare(n, y, x), CALL(hlo, LOGICAL_AND, is_equal, is_behind));
  return CALL(hlo, WHERE, is_past, is_behind, is_less);
}

static hr_value reversed(hr__hlo *hlo, hr_value x) {
  return ADD(hlo, FLIP, IN(x), WITH(hr__with_ints("axis", 1, (int64_t[]){3})));
}

/* Pairs `distance` apart, or, in the first step of a merge, from both ends of blocks of twice as many elements. */
static void exchange(network *n, int64_t length, int64_t distance, bool is_first) {
  hr__hlo *hlo = n->hlo;
  hr_value x[HR__HLO_OPERANDS_MAX + 1], y[HR__HLO_OPERANDS_MAX + 1];
  const int64_t dims[4] = {n->rows, length / (2 * distance), 2, distance};
  for (int i = 0; i < n->count; ++i) {
    hr_value all = hr__hlo_reshape(hlo, n->values[i], 4, dims);
    x[i] = hr__hlo_part(hlo, all, 4, dims, 2, 0, 1, 1), y[i] = hr__hlo_part(hlo, all, 4, dims, 2, 1, 1, 1);
    y[i] = is_first ? reversed(hlo, y[i]) : y[i];
  }
  hr_value flag = is_turned(n, x, y);
  for (int i = 0; i < n->count; ++i) {
    hr_value low = CALL(hlo, WHERE, flag, y[i], x[i]), high = CALL(hlo, WHERE, flag, x[i], y[i]);
    high = is_first ? reversed(hlo, high) : high;
    hr_value both = ADD(hlo, CONCAT, IN(low, high), WITH(hr__with_int("axis", 2)));
    n->values[i] = hr__hlo_reshape(hlo, both, 2, (int64_t[]){n->rows, length});
  }
}

/* [rows, length] of an operand, with zeros behind its elements. */
static hr_value as_rows(const network *n, hr_value x, int rank, int axis, int64_t length) {
  x = ADD(n->hlo, MOVEAXIS, IN(x), WITH(hr__with_int("source", axis), hr__with_int("destination", rank - 1)));
  x = hr__hlo_reshape(n->hlo, x, 2, (int64_t[]){n->rows, n->size});
  const int64_t before[2] = {0, 0}, after[2] = {0, length - n->size};
  return ADD(n->hlo, PAD, IN(x), WITH(hr__with_ints("before", 2, before), hr__with_ints("after", 2, after)));
}

static hr_value as_operand(const network *n, hr_value x, const hr__vhlo_type *type, int axis, int64_t length) {
  int64_t dims[HR_RANK_MAX];
  int count = 0;
  for (int d = 0; d < type->rank; ++d) {
    if (d != axis) {
      dims[count++] = type->dims[d];
    }
  }
  dims[count] = n->size;
  x = hr__hlo_part(n->hlo, x, 2, (int64_t[]){n->rows, length}, 1, 0, n->size, 1);
  x = hr__hlo_reshape(n->hlo, x, type->rank, dims);
  return ADD(n->hlo, MOVEAXIS, IN(x), WITH(hr__with_int("source", type->rank - 1), hr__with_int("destination", axis)));
}

static void sort_by_network(hr__hlo *hlo, const hr__vhlo_region *region, int axis, int count, hr_value *x) {
  enum { SIZE_MAX_LOG = 40 };
  hr__vhlo_type type = hr__hlo_input_type(hlo, 0);
  if (type.dims[axis] >> SIZE_MAX_LOG != 0) {
    HR__HLO_REFUSE(hlo, "a comparator of its own for %lld elements", (long long)type.dims[axis]);
    return;
  }
  network n = {.hlo = hlo, .region = region, .count = count + 1, .rows = 1, .size = type.dims[axis]};
  int64_t length = 1;
  for (int d = 0; d < type.rank; ++d) {
    n.rows *= d == axis ? 1 : type.dims[d];
  }
  while (length < n.size) {
    length *= 2;
  }
  for (int i = 0; i < count; ++i) {
    n.values[i] = as_rows(&n, x[i], type.rank, axis, length);
  }
  hr_value places =
      ADD(hlo, ARANGE, 0, NULL, WITH(hr__with_real("stop", (double)length), hr__with_dtype("dtype", HR_DTYPE_I64)));
  n.values[count] = hr__hlo_broadcast(hlo, places, 2, (int64_t[]){n.rows, length});
  for (int64_t size = 1; size < length && !hr__hlo_failed(hlo); size *= 2) {
    for (int64_t distance = size; distance > 0; distance /= 2) {
      exchange(&n, length, distance, distance == size);
    }
  }
  for (int i = 0; i < count; ++i) {
    x[i] = as_operand(&n, n.values[i], &type, axis, length);
  }
}

/* ---- operations ---- */

/* The first `count` operands have the same dims, of which `axis` is one. */
static bool check_operands(hr__hlo *hlo, int count, int64_t axis) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0);
  if (count < 1 || count > HR__HLO_OPERANDS_MAX) {
    HR__HLO_REFUSE(hlo, "%d operands, expected 1 to %d", count, HR__HLO_OPERANDS_MAX);
    return false;
  }
  if (axis < 0 || axis >= x.rank) {
    HR__HLO_WRONG(hlo, "dim %lld of %d", (long long)axis, x.rank);
    return false;
  }
  for (int i = 1; i < count; ++i) {
    hr__vhlo_type other = hr__hlo_input_type(hlo, i);
    if (other.rank != x.rank || memcmp(other.dims, x.dims, (size_t)x.rank * sizeof *x.dims) != 0) {
      HR__HLO_WRONG(hlo, "operand %d has other dims than operand 0", i);
      return false;
    }
  }
  return true;
}

static bool has_elements(const hr__vhlo_type *type) {
  for (int d = 0; d < type->rank; ++d) {
    if (type->dims[d] == 0) {
      return false;
    }
  }
  return true;
}

/* Keys are the region's values for x and y that are the operands. */
static bool find_keys(hr__hlo *hlo, const hr__vhlo_region *region, int count, const hr_value *x, keys *k) {
  const hr__vhlo_op *end = hr__hlo_return_op(region);
  hr_value arguments[2 * HR__HLO_OPERANDS_MAX], result;
  *k = (keys){.hlo = hlo, .region = region};
  if (end == NULL || end->operand_count != 1 || !read_keys(k, end->operands[0])) {
    return false;
  }
  for (int i = 0; i < 2 * count; ++i) {
    arguments[i] = x[i / 2];
  }
  return hr__hlo_inline(hlo, region, 2 * count, arguments, 1, &result, false) == 1;
}

/* The first `count` operands in order; in place. */
static void sort_values(hr__hlo *hlo, const hr__vhlo_region *region, int64_t axis, int count, hr_value *x) {
  hr__vhlo_type type = hr__hlo_input_type(hlo, 0);
  keys k;
  if (!has_elements(&type) || type.dims[axis] == 1) {
    return;
  }
  if (find_keys(hlo, region, count, x, &k)) {
    sort_by_keys(hlo, &k, axis, count, x);
  } else if (!hr__hlo_failed(hlo)) {
    sort_by_network(hlo, region, (int)axis, count, x);
  }
}

static void set_all(hr__hlo *hlo, int count, const hr_value *x) {
  for (int i = 0; i < count && !hr__hlo_failed(hlo); ++i) {
    hr__hlo_set(hlo, i, x[i]);
  }
}

static void read_operands(hr__hlo *hlo, int count, hr_value *out) {
  for (int i = 0; i < count; ++i) {
    out[i] = hr__hlo_input(hlo, i);
  }
}

void hr__hlo_lower_sort(hr__hlo *hlo) {
  hr_value x[HR__HLO_OPERANDS_MAX];
  int count = hlo->op->operand_count;
  int64_t axis = hr__hlo_int(hlo, "dimension", -1);
  axis += axis < 0 ? hr__hlo_input_type(hlo, 0).rank : 0;
  if (hr__hlo_expect(hlo, hlo->op->result_count, -1, 1) && check_operands(hlo, count, axis)) {
    read_operands(hlo, count, x);
    sort_values(hlo, &hlo->op->regions[0], axis, count, x);
    set_all(hlo, count, x);
  }
}

/* The composite chlo.top_k: floats in their total order, the lower index of equal ones first. */
void hr__hlo_lower_top_k(hr__hlo *hlo) {
  hr__vhlo_type type = hr__hlo_input_type(hlo, 0), result = hr__hlo_result_type(hlo, 0);
  int64_t axis = type.rank - 1;
  if (!hr__hlo_expect(hlo, 1, 2, 0) || !check_operands(hlo, 1, axis)) {
    return;
  }
  hr_value x = hr__hlo_input(hlo, 0);
  bool is_float = type.dtype >= HR_DTYPE_F16 && !hr_dtype_is_complex(type.dtype);
  hr_value key = is_float                      ? hr__hlo_order_of(hlo, x, type.dtype)
                 : type.dtype == HR_DTYPE_BOOL ? hr__hlo_cast(hlo, x, HR_DTYPE_U8)
                                               : x;
  hr_value first = ADD(hlo, TOPK, IN(key), WITH(hr__with_int("k", result.dims[axis]), hr__with_int("axis", axis)));
  if (first != 0) {
    hr__hlo_set(hlo, 0, key == x ? first : along(hlo, x, first + 1, axis));
    hr__hlo_set(hlo, 1, hr__hlo_cast(hlo, first + 1, hr__hlo_result_type(hlo, 1).dtype));
  }
}

/* The custom call ApproxTopK: all elements are in order, so that the first ones are exact. Its comparator is a
 * function, and behind the operands are values to begin with. */
void hr__hlo_lower_approx_top_k(hr__hlo *hlo) {
  const hr__vhlo_module *module = &hlo->import->module;
  hr__vhlo_type type = hr__hlo_input_type(hlo, 0), result = hr__hlo_result_type(hlo, 0);
  int count = hlo->op->result_count, callee = -1;
  int64_t axis = -1;
  hr_value x[HR__HLO_OPERANDS_MAX];
  if (!hr__hlo_expect(hlo, 2 * count, -1, 0) || !hr__hlo_setting(hlo, "reduction_dim", &axis) ||
      !check_operands(hlo, count, axis)) {
    HR__HLO_REFUSE(hlo, "ApproxTopK without a dim");
    return;
  }
  int found = hr__vhlo_list(module, hr__vhlo_find(module, hlo->op, "called_computations"), 1, &callee);
  int name = found == 1 ? hr__vhlo_string(module, callee) : -1;
  const hr__vhlo_op *function = name >= 0 ? hlo->import->functions[name] : NULL;
  if (function == NULL || function->region_count != 1 || result.rank != type.rank ||
      result.dims[axis] > type.dims[axis]) {
    HR__HLO_WRONG(hlo, "no comparator, or more results than elements");
    return;
  }
  read_operands(hlo, count, x);
  sort_values(hlo, &function->regions[0], axis, count, x);
  for (int i = 0; i < count; ++i) {
    x[i] = hr__hlo_part(hlo, x[i], type.rank, type.dims, (int)axis, 0, result.dims[axis], 1);
  }
  set_all(hlo, count, x);
}
