/* products.c: sums of products over named dims, as matrix products of views. */
#include "functional/formula.h"

enum { LABELS = 64 }; /* a dim's name is a number below it; a set of names is a mask */

/* A tensor whose dims have names, of which none occurs twice. */
typedef struct labelled {
  const hr_tensor *x;
  int labels[HR_RANK_MAX];
} labelled;

static uint64_t set_of(const labelled *a) {
  uint64_t set = 0;
  for (int d = 0; d < a->x->rank; ++d) {
    set |= UINT64_C(1) << a->labels[d];
  }
  return set;
}

static bool has(uint64_t set, int label) {
  return (set >> label & 1u) != 0;
}

/* Names that occur twice are a diagonal. */
static void take_diagonals(hr__formula *f, labelled *a) {
  hr_tensor *x = hr__view(f, a->x);
  for (int d = 0; x != NULL && d < x->rank; ++d) {
    for (int e = d + 1; e < x->rank; ++e) {
      if (a->labels[d] == a->labels[e]) {
        x->strides[d] += x->strides[e];
        hr__drop_dims(x, 1u << e);
        memmove(a->labels + e, a->labels + e + 1, (size_t)(x->rank - e) * sizeof *a->labels);
        --e;
      }
    }
  }
  a->x = x != NULL ? x : a->x;
}

/* Sums over the dims whose names are not in `wanted`. */
static void sum_others(hr__formula *f, labelled *a, uint64_t wanted) {
  uint32_t mask = 0;
  int rank = 0;
  for (int d = 0; d < a->x->rank; ++d) {
    if (has(wanted, a->labels[d])) {
      a->labels[rank++] = a->labels[d];
    } else {
      mask |= 1u << d;
    }
  }
  if (mask != 0) {
    a->x = hr__without(f, hr__along_as(f, HR_OP_SUM, a->x, mask, a->x->dtype), mask);
  }
}

/* A view with the dims of these names, in this order; those that x lacks have size 1. */
static const hr_tensor *in_order(hr__formula *f, const labelled *a, int rank, const int *labels) {
  hr_tensor *view = hr__view(f, a->x);
  if (view == NULL) {
    return a->x;
  }
  view->rank = rank;
  for (int to = 0; to < rank; ++to) {
    view->dims[to] = 1, view->strides[to] = 0;
    for (int d = 0; d < a->x->rank; ++d) {
      if (a->labels[d] == labels[to]) {
        view->dims[to] = a->x->dims[d], view->strides[to] = a->x->strides[d];
      }
    }
  }
  return view;
}

/* The dims from `first` on, `count` of them, as one. */
static const hr_tensor *joined(hr__formula *f, const hr_tensor *x, int first, int count) {
  int64_t dims[HR_RANK_MAX], size = 1;
  for (int d = first; d < first + count && d < x->rank; ++d) {
    size *= x->dims[d];
  }
  int rank = 0;
  for (int d = 0; d < first; ++d) {
    dims[rank++] = x->dims[d];
  }
  dims[rank++] = size;
  for (int d = first + count; d < x->rank; ++d) {
    dims[rank++] = x->dims[d];
  }
  return hr__formula_failed(f) ? x : hr__as_dims(f, x, rank, dims);
}

/* The product of a and b, summed over the names that both have and nobody wants. */
static labelled contract(hr__formula *f, labelled a, labelled b, uint64_t wanted) {
  sum_others(f, &a, wanted | set_of(&b));
  sum_others(f, &b, wanted | set_of(&a));
  uint64_t in_a = set_of(&a), in_b = set_of(&b);
  const uint64_t sets[4] = {in_a & in_b & wanted, in_a & ~in_b, in_a & in_b & ~wanted, in_b & ~in_a};
  int labels[4 * HR_RANK_MAX], first[5] = {0}; /* batch, rows, summed, columns */
  for (int s = 0; s < 4; ++s) {
    first[s + 1] = first[s];
    for (int label = 0; label < LABELS; ++label) {
      if (has(sets[s], label)) {
        labels[first[s + 1]++] = label;
      }
    }
  }
  labelled result = {.x = a.x};
  int batch = first[1], rows = first[2] - first[1], summed = first[3] - first[2], columns = first[4] - first[3];
  int rank = batch + rows + columns;
  if (rank > HR_RANK_MAX || batch + rows + summed > HR_RANK_MAX || batch + summed + columns > HR_RANK_MAX) {
    hr__formula_fail(f, HR__CALL_FAIL(f->call, "more than %d dims", HR_RANK_MAX));
    return result;
  }
  memcpy(result.labels, labels, (size_t)first[2] * sizeof *labels);
  memcpy(result.labels + first[2], labels + first[3], (size_t)columns * sizeof *labels);
  if (summed == 0) {
    const hr_tensor *left = in_order(f, &a, rank, result.labels), *right = in_order(f, &b, rank, result.labels);
    result.x = hr__binary(f, HR_OP_MUL, left, right);
    return result;
  }
  int right_labels[2 * HR_RANK_MAX];
  memcpy(right_labels, labels, (size_t)batch * sizeof *labels);
  memcpy(right_labels + batch, labels + first[2], (size_t)(summed + columns) * sizeof *labels);
  const hr_tensor *left = in_order(f, &a, first[3], labels);
  const hr_tensor *right = in_order(f, &b, batch + summed + columns, right_labels);
  int64_t dims[HR_RANK_MAX];
  for (int d = 0; d < rank && !hr__formula_failed(f); ++d) {
    bool is_left = d < first[2];
    dims[d] = is_left ? left->dims[d] : right->dims[d - rows + summed];
  }
  left = joined(f, joined(f, left, batch, rows), batch + 1, summed);
  right = joined(f, joined(f, right, batch, summed), batch + 1, columns);
  const hr_tensor *both[2] = {left, right}, *product = hr__function(f, HR_FUNCTIONAL_MATMUL, 2, both, 0, NULL);
  result.x = hr__formula_failed(f) ? product : hr__as_dims(f, product, rank, dims);
  return result;
}

/* ---- einsum ---- */

static int label_of(char letter) {
  return letter >= 'a' && letter <= 'z' ? letter - 'a' : letter >= 'A' && letter <= 'Z' ? 26 + letter - 'A' : -1;
}

enum { LETTERS = 52 }; /* labels from here on are dims of an ellipsis, of which LABELS - 1 is the last */

static bool is_end(char character) {
  return character == 0 || character == ',' || character == '-';
}

/* The number of letters of a term, and whether it has an ellipsis. */
static int count_letters(const char *term, bool *has_ellipsis) {
  int count = 0;
  for (*has_ellipsis = false; !is_end(*term); ++term) {
    count += label_of(*term) >= 0;
    *has_ellipsis |= *term == '.';
  }
  return count;
}

/* The labels of one term up to a comma, an arrow or the end; -1 for another character, or too many. unnamed: the dims
 * of an ellipsis. */
static int parse_term(const char **text, int unnamed, int *labels) {
  int count = 0;
  bool has_ellipsis = false;
  for (; !is_end(**text); ++*text) {
    if (**text == ' ') {
      continue;
    }
    int label = label_of(**text);
    bool is_ellipsis = label < 0 && !has_ellipsis && strncmp(*text, "...", 3) == 0;
    int more = is_ellipsis ? unnamed : 1;
    if ((label < 0 && !is_ellipsis) || more < 0 || count + more > HR_RANK_MAX || more > LABELS - LETTERS) {
      return -1;
    }
    for (int i = 0; i < more; ++i) {
      labels[count++] = is_ellipsis ? LABELS - unnamed + i : label;
    }
    has_ellipsis |= is_ellipsis;
    *text += is_ellipsis ? 2 : 0;
  }
  return count;
}

enum { OPERANDS = 8 };
typedef struct equation {
  labelled operands[OPERANDS];
  int rank, labels[HR_RANK_MAX]; /* the result's */
  int64_t sizes[LABELS];         /* of each name; -1: does not occur */
  int unnamed;                   /* the most dims of an ellipsis */
} equation;

static hr_status set_sizes(const hr__function_call *c, equation *e, int i) {
  const labelled *a = &e->operands[i];
  for (int d = 0; d < a->x->rank; ++d) {
    int64_t *size = &e->sizes[a->labels[d]];
    bool is_one = a->labels[d] >= LETTERS && (*size == 1 || a->x->dims[d] == 1);
    if (*size >= 0 && *size != a->x->dims[d] && !is_one) {
      return HR__CALL_FAIL(c, "dim %d of operand %d has size %lld, expected %lld", d, i, (long long)a->x->dims[d],
                           (long long)*size);
    }
    *size = *size >= 0 && a->x->dims[d] == 1 ? *size : a->x->dims[d];
  }
  return HR_OK;
}

/* Dims of an ellipsis that are broadcast go: products repeat dims that one operand lacks. */
static void drop_ones(hr__formula *f, const int64_t *sizes, labelled *a) {
  uint32_t mask = 0;
  int rank = 0;
  for (int d = 0; d < a->x->rank; ++d) {
    if (a->labels[d] >= LETTERS && a->x->dims[d] != sizes[a->labels[d]]) {
      mask |= 1u << d;
    } else {
      a->labels[rank++] = a->labels[d];
    }
  }
  a->x = mask != 0 ? hr__without(f, a->x, mask) : a->x;
}

/* Without an arrow: the dims of the ellipsis, then the names that occur once, in alphabetical order (A to Z first). */
static void choose_result(equation *e, int count) {
  int times[LABELS] = {0};
  for (int i = 0; i < count; ++i) {
    for (int d = 0; d < e->operands[i].x->rank; ++d) {
      ++times[e->operands[i].labels[d]];
    }
  }
  for (int i = 0; i < e->unnamed; ++i) {
    e->labels[e->rank++] = LABELS - e->unnamed + i;
  }
  for (int i = 0; i < LETTERS; ++i) {
    int label = i < 26 ? 26 + i : i - 26;
    if (times[label] == 1 && e->rank < HR_RANK_MAX) {
      e->labels[e->rank++] = label;
    }
  }
}

static hr_status parse_result(const hr__function_call *c, const char *text, const char *whole, equation *e) {
  e->rank = parse_term(&text, e->unnamed, e->labels);
  uint64_t seen = 0;
  for (int d = 0; d < e->rank; ++d) {
    if (e->sizes[e->labels[d]] < 0 || has(seen, e->labels[d])) {
      return HR__CALL_FAIL(c, "the result of \"%s\" has a letter twice or one of no operand", whole);
    }
    seen |= UINT64_C(1) << e->labels[d];
  }
  return e->rank >= 0 && *text == 0 ? HR_OK : HR__CALL_FAIL(c, "\"%s\" has no result after its arrow", whole);
}

static hr_status parse(const hr__function_call *c, equation *e) {
  const char *whole = hr__text_attribute(c, 0), *text = whole;
  if (c->input_count > OPERANDS) {
    return HR__CALL_FAIL(c, "%d operands, expected at most %d", c->input_count, OPERANDS);
  }
  for (int label = 0; label < LABELS; ++label) {
    e->sizes[label] = -1;
  }
  for (int i = 0; i < c->input_count; ++i) {
    e->operands[i].x = c->inputs[i];
    bool has_ellipsis;
    int unnamed = c->inputs[i]->rank - count_letters(text, &has_ellipsis);
    e->unnamed = has_ellipsis && unnamed > e->unnamed ? unnamed : e->unnamed;
    if (parse_term(&text, unnamed, e->operands[i].labels) != c->inputs[i]->rank) {
      return HR__CALL_FAIL(c, "term %d of \"%s\" has not the %d letters of its operand", i, whole, c->inputs[i]->rank);
    }
    HR_RETURN_IF_ERROR(set_sizes(c, e, i));
    if (i + 1 < c->input_count && *text++ != ',') {
      return HR__CALL_FAIL(c, "\"%s\" has fewer terms than the %d operands", whole, c->input_count);
    }
  }
  if (*text == 0) {
    choose_result(e, c->input_count);
    return HR_OK;
  }
  return text[0] == '-' && text[1] == '>'
             ? parse_result(c, text + 2, whole, e)
             : HR__CALL_FAIL(c, "\"%s\" has more terms than the %d operands", whole, c->input_count);
}

hr_status hr__emit_einsum(const hr__function_call *c) {
  equation e = {.rank = 0};
  HR_RETURN_IF_ERROR(parse(c, &e));
  hr__formula f;
  hr__formula_begin(&f, c);
  uint64_t wanted = 0;
  for (int d = 0; d < e.rank; ++d) {
    wanted |= UINT64_C(1) << e.labels[d];
  }
  for (int i = 0; i < c->input_count; ++i) {
    take_diagonals(&f, &e.operands[i]);
    drop_ones(&f, e.sizes, &e.operands[i]);
  }
  labelled result = e.operands[0];
  for (int i = 1; i < c->input_count && !hr__formula_failed(&f); ++i) {
    uint64_t later = wanted;
    for (int j = i + 1; j < c->input_count; ++j) {
      later |= set_of(&e.operands[j]);
    }
    result = contract(&f, result, e.operands[i], later);
  }
  if (!hr__formula_failed(&f)) {
    sum_others(&f, &result, wanted);
    result.x = in_order(&f, &result, e.rank, e.labels);
  }
  return hr__formula_end(&f, result.x);
}

/* ---- products of two tensors ---- */

/* Sums over `count` pairs of axes: of x and of y. */
static hr_status sum_over(const hr__function_call *c, int count, const int64_t *x_axes, const int64_t *y_axes) {
  const hr_tensor *x = c->inputs[0], *y = c->inputs[1];
  labelled a = {.x = x}, b = {.x = y};
  uint64_t summed = 0;
  for (int d = 0; d < HR_RANK_MAX; ++d) {
    a.labels[d] = d, b.labels[d] = HR_RANK_MAX + d;
  }
  for (int i = 0; i < count; ++i) {
    int from, to;
    HR_RETURN_IF_ERROR(hr__check_axis(c, x_axes[i], x->rank, &from));
    HR_RETURN_IF_ERROR(hr__check_axis(c, y_axes[i], y->rank, &to));
    if (has(summed, from) || b.labels[to] < HR_RANK_MAX) {
      return HR__CALL_FAIL(c, "an axis is given twice");
    }
    if (x->dims[from] != y->dims[to]) {
      return HR__CALL_FAIL(c, "axis %d of x has size %lld, axis %d of y %lld", from, (long long)x->dims[from], to,
                           (long long)y->dims[to]);
    }
    b.labels[to] = from;
    summed |= UINT64_C(1) << from;
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  return hr__formula_end(&f, contract(&f, a, b, ~summed).x);
}

hr_status hr__emit_tensordot(const hr__function_call *c) {
  const hr_attribute *x_axes = hr__given_attribute(c, 0), *y_axes = hr__given_attribute(c, 1);
  static const int64_t two_last[2] = {-2, -1}, two_first[2] = {0, 1};
  if ((x_axes == NULL) != (y_axes == NULL) || (x_axes != NULL && x_axes->count != y_axes->count)) {
    return HR__CALL_FAIL(c, "%d axes of x and %d of y", x_axes != NULL ? x_axes->count : 0,
                         y_axes != NULL ? y_axes->count : 0);
  }
  return x_axes == NULL ? sum_over(c, 2, two_last, two_first)
                        : sum_over(c, x_axes->count, x_axes->value.ints, y_axes->value.ints);
}

hr_status hr__emit_inner(const hr__function_call *c) {
  static const int64_t last[1] = {-1};
  bool has_dims = c->inputs[0]->rank > 0 && c->inputs[1]->rank > 0;
  return has_dims ? sum_over(c, 1, last, last)
                  : hr__record_one(c, HR_OP_MUL, NULL, 2, c->inputs, HR_DTYPE_NONE, c->output);
}

hr_status hr__emit_outer(const hr__function_call *c) {
  hr__formula f;
  hr__formula_begin(&f, c);
  const hr_tensor *both[2];
  for (int i = 0; i < 2; ++i) {
    both[i] = joined(&f, c->inputs[i], 0, c->inputs[i]->rank);
  }
  return hr__formula_end(&f, hr__binary(&f, HR_OP_MUL, hr__with_dim(&f, both[0], 1), both[1]));
}

hr_status hr__emit_kron(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0], *y = c->inputs[1];
  int rank = x->rank > y->rank ? x->rank : y->rank;
  if (2 * rank > HR_RANK_MAX) {
    return HR__CALL_FAIL(c, "%d dims, expected at most %d", rank, HR_RANK_MAX / 2);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  hr_tensor *left = hr__view(&f, x), *right = hr__view(&f, y);
  left->rank = right->rank = 2 * rank;
  int64_t dims[HR_RANK_MAX];
  for (int d = 0; d < rank; ++d) {
    int from = d - (rank - x->rank), at = d - (rank - y->rank);
    left->dims[2 * d] = from >= 0 ? x->dims[from] : 1, left->strides[2 * d] = from >= 0 ? x->strides[from] : 0;
    right->dims[2 * d + 1] = at >= 0 ? y->dims[at] : 1, right->strides[2 * d + 1] = at >= 0 ? y->strides[at] : 0;
    left->dims[2 * d + 1] = right->dims[2 * d] = 1, left->strides[2 * d + 1] = right->strides[2 * d] = 0;
    dims[d] = left->dims[2 * d] * right->dims[2 * d + 1];
  }
  const hr_tensor *product = hr__binary(&f, HR_OP_MUL, left, right);
  return hr__formula_end(&f, hr__formula_failed(&f) ? product : hr__as_dims(&f, product, rank, dims));
}

/* A row of x times a column of y. */
hr_status hr__emit_vecdot(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0], *y = c->inputs[1];
  int axes[2];
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 0), x->rank, &axes[0]));
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 0), y->rank, &axes[1]));
  hr__formula f;
  hr__formula_begin(&f, c);
  x = hr_dtype_is_complex(x->dtype) ? hr__unary(&f, HR_OP_CONJ, x) : x;
  x = hr__moved(&f, x, axes[0], c->inputs[0]->rank - 1);
  y = hr__moved(&f, y, axes[1], c->inputs[1]->rank - 1);
  const hr_tensor *both[2] = {hr__with_dim(&f, x, x->rank > 0 ? x->rank - 1 : 0), hr__with_dim(&f, y, y->rank)};
  const hr_tensor *product = hr__function(&f, HR_FUNCTIONAL_MATMUL, 2, both, 0, NULL);
  uint32_t mask = product->rank >= 2 ? 3u << (product->rank - 2) : 0;
  return hr__formula_end(&f, hr__without(&f, product, mask));
}

/* Element i is x[i + 1] y[i + 2] - x[i + 2] y[i + 1], modulo 3. */
hr_status hr__emit_cross(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0], *y = c->inputs[1], *parts[3];
  int axes[2];
  for (int i = 0; i < 2; ++i) {
    HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 0), c->inputs[i]->rank, &axes[i]));
    if (c->inputs[i]->dims[axes[i]] != 3) {
      return HR__CALL_FAIL(c, "axis %d has size %lld, expected 3", axes[i], (long long)c->inputs[i]->dims[axes[i]]);
    }
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  for (int i = 0; i < 3; ++i) {
    int next = (i + 1) % 3, last = (i + 2) % 3;
    const hr_tensor *a = hr__part(&f, x, axes[0], next, 1), *b = hr__part(&f, y, axes[1], last, 1);
    const hr_tensor *d = hr__part(&f, x, axes[0], last, 1), *e = hr__part(&f, y, axes[1], next, 1);
    parts[i] = hr__binary(&f, HR_OP_SUB, hr__binary(&f, HR_OP_MUL, a, b), hr__binary(&f, HR_OP_MUL, d, e));
  }
  int from_end = x->rank - axes[0];
  const int64_t ints[1] = {parts[0]->rank - from_end};
  hr_attrs attrs = {.int_count = 1, .ints = ints};
  return hr__formula_end(&f, hr__step(&f, HR_OP_CAT, &attrs, 3, parts, HR_DTYPE_NONE));
}
