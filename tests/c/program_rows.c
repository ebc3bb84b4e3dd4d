/* program_rows.c: random nodes of element-wise and reduce rows: every row of ops.def, over lists, in place, between
 * shifted views of one tensor. See program_generator.h. */
#include "program_maker.h"

enum { LIST_MAX = 3, ELEMENT_TENSORS_MAX = 6 };

static bool takes_no_complex(const hr_op_row *row) {
  return row->family == HR_FAMILY_POINTWISE && row->rule != HR_RULE_PART && row->rule != HR_RULE_SEEDED &&
         (row->has_integer || row->has_real);
}

/* With a probability of one half one of the rows that are common in programs, otherwise any. */
static hr_op pick_row(hr__maker *m) {
  static const hr_op usual[] = {HR_OP_ADD,     HR_OP_SUB,  HR_OP_MUL,    HR_OP_DIV,        HR_OP_MAXIMUM, HR_OP_EXP,
                                HR_OP_TANH,    HR_OP_SQRT, HR_OP_NEG,    HR_OP_SIGMOID,    HR_OP_RELU,    HR_OP_COPY,
                                HR_OP_ADDCMUL, HR_OP_LERP, HR_OP_CLAMP,  HR_OP_ADD_SCALED, HR_OP_WHERE,   HR_OP_LT,
                                HR_OP_SQUARE,  HR_OP_COPY, HR_OP_ADDCDIV};
  if (hr__chance(m, 2)) {
    return HR__PICK_FROM(m, usual);
  }
  hr_op op;
  do {
    op = (hr_op)(1 + hr__pick(m, HR_OP_COUNT - 1));
  } while (!takes_no_complex(hr_op_table(op)));
  return op;
}

static hr_dtype result_dtype(hr__maker *m, hr_op op) {
  static const hr_dtype integers[] = {HR_DTYPE_I64, HR_DTYPE_I64, HR_DTYPE_I32, HR_DTYPE_U8,
                                      HR_DTYPE_I16, HR_DTYPE_U32, HR_DTYPE_U64, HR_DTYPE_BOOL};
  const hr_op_row *row = hr_op_table(op);
  switch (row->rule) {
    case HR_RULE_COMPARE:
    case HR_RULE_LOGICAL:
      return hr__chance(m, 8) ? HR_DTYPE_F32 : HR_DTYPE_BOOL;
    case HR_RULE_WHERE:
    case HR_RULE_CAST:
      return hr__any_dtype(m);
    default:
      break;
  }
  bool is_integer = row->has_integer && (!row->has_real || hr__chance(m, 5));
  hr_dtype dtype = is_integer ? HR__PICK_FROM(m, integers) : hr__real_dtype(m);
  return dtype == HR_DTYPE_BOOL && (row->traits & HR_TRAIT_NO_BOOL) != 0 ? HR_DTYPE_U8 : dtype;
}

static bool is_integer(const hr__maker *m, const hr_operand *x) {
  return hr_dtype_is_integer(x->kind == HR_OPERAND_SCALAR ? m->g->program.scalars[x->index].dtype : x->dtype);
}

/* Comparisons that have no version for integers get a real operand. */
static void fix_categories(hr__maker *m, hr__draft *draft, int first, int rank, const int64_t *dims) {
  const hr_op_row *row = hr_op_table(draft->op);
  if (row->rule == HR_RULE_COMPARE && !row->has_integer && is_integer(m, &draft->inputs[first])) {
    draft->inputs[first] = hr__real_input(m, rank, dims);
  }
}

/* The dims of a tensor of the pool, mostly of the base. */
static int pick_dims(hr__maker *m, int64_t *out_dims) {
  hr_operand like = hr__any_tensor(m, false, 0);
  if (hr__chance(m, 2)) {
    memcpy(out_dims, m->base, sizeof m->base);
    return 3;
  }
  if (like.rank > 0) {
    memcpy(out_dims, like.dims, (size_t)like.rank * sizeof *like.dims);
  }
  return like.rank;
}

static void add_pointwise(hr__maker *m) {
  hr_op op = pick_row(m);
  hr__draft draft = hr__begin(op);
  int64_t dims[HR_RANK_MAX];
  int rank = pick_dims(m, dims), arity = hr_op_table(op)->arity;
  for (int i = 0; i < arity; ++i) {
    hr__in(&draft, hr__spreadable(m, rank, dims));
  }
  fix_categories(m, &draft, 0, rank, dims);
  hr__out(&draft, hr__output(m, result_dtype(m, op), rank, dims));
  hr__end(m, &draft);
}

/* In place on one of the inputs. */
static void add_in_place(hr__maker *m) {
  hr_op op = pick_row(m);
  const hr_op_row *row = hr_op_table(op);
  hr__draft draft = hr__begin(op);
  int64_t dims[HR_RANK_MAX];
  int rank = pick_dims(m, dims), mine = hr__pick(m, row->arity);
  hr_operand x = hr__target(m, result_dtype(m, op), rank, dims);
  for (int i = 0; i < row->arity; ++i) {
    hr__in(&draft, i == mine ? x : hr__spreadable(m, rank, dims));
  }
  fix_categories(m, &draft, 0, rank, dims);
  hr__out(&draft, x);
  hr__end(m, &draft);
}

/* The same row over several tensors: n of the first operand, n of the second, ... */
static void add_list(hr__maker *m) {
  hr_op op = pick_row(m);
  hr__draft draft = hr__begin(op);
  int n = 2 + hr__pick(m, LIST_MAX - 1), arity = hr_op_table(op)->arity, rank[LIST_MAX];
  int64_t dims[LIST_MAX][HR_RANK_MAX];
  for (int i = 0; i < n; ++i) {
    rank[i] = i == 0 || hr__chance(m, 2) ? pick_dims(m, dims[i]) : rank[0];
    if (i > 0 && rank[i] == rank[0]) {
      memcpy(dims[i], dims[0], sizeof dims[0]);
    }
  }
  for (int a = 0; a < arity; ++a) {
    for (int i = 0; i < n; ++i) {
      hr__in(&draft, hr__spreadable(m, rank[i], dims[i]));
    }
  }
  for (int i = 0; i < n; ++i) {
    fix_categories(m, &draft, i, rank[i], dims[i]);
  }
  for (int i = 0; i < n; ++i) {
    hr__out(&draft, hr__new_output(m, result_dtype(m, op), rank[i], dims[i]));
  }
  hr__end(m, &draft);
}

/* Tensors of one element of the lists of a run: those that its operations update, and their results. */
typedef struct element {
  int rank, count;
  int64_t dims[HR_RANK_MAX];
  hr_operand tensors[ELEMENT_TENSORS_MAX];
} element;

/* The second tensor may be a view of the first. No element writes what another one uses in the same operation. */
static void begin_element(hr__maker *m, hr_dtype dtype, element *e) {
  e->rank = pick_dims(m, e->dims);
  e->count = 2;
  e->tensors[0] = hr__apart(m, dtype, e->rank, e->dims, hr__chance(m, 4), false);
  e->tensors[1] = e->rank > 0 && hr__chance(m, 8) ? hr__reverse(m, e->tensors[0], hr__pick(m, e->rank))
                                                  : hr__apart(m, dtype, e->rank, e->dims, hr__chance(m, 4), false);
}

/* One operation of a run, mostly on what the operations before it have made. */
static void add_to_run(hr__maker *m, int n, element *elements, hr_dtype dtype) {
  static const hr_op pool[] = {HR_OP_ADD,        HR_OP_MUL,     HR_OP_SUB,  HR_OP_ADD_SCALED, HR_OP_LERP,
                               HR_OP_ADDCMUL,    HR_OP_NEG,     HR_OP_ABS,  HR_OP_MAXIMUM,    HR_OP_SQRT,
                               HR_OP_SUB_SCALED, HR_OP_MINIMUM, HR_OP_RELU, HR_OP_DIV,        HR_OP_ADDCDIV};
  hr_op op = HR__PICK_FROM(m, pool);
  hr__draft draft = hr__begin(op);
  bool is_in_place = !hr__chance(m, 3);
  int target = hr__pick(m, 2);
  for (int a = 0; a < hr_op_table(op)->arity; ++a) {
    bool is_own = !hr__chance(m, 4);
    for (int i = 0; i < n; ++i) {
      element *e = &elements[i];
      hr__in(&draft, is_own ? e->tensors[hr__pick(m, e->count)] : hr__spreadable(m, e->rank, e->dims));
    }
  }
  for (int i = 0; i < n; ++i) {
    element *e = &elements[i];
    hr_operand out = is_in_place || e->count == ELEMENT_TENSORS_MAX
                         ? e->tensors[target]
                         : (e->tensors[e->count++] = hr__new_output(m, dtype, e->rank, e->dims));
    hr__out(&draft, out);
  }
  hr__end(m, &draft);
}

/* Operations over lists of one length, one after the other, as an optimizer records them. */
static void add_run(hr__maker *m) {
  element elements[LIST_MAX];
  hr_dtype dtype = hr__real_dtype(m);
  int n = 2 + hr__pick(m, LIST_MAX - 1);
  for (int i = 0; i < n; ++i) {
    begin_element(m, dtype, &elements[i]);
  }
  for (int rows = 2 + hr__pick(m, 6); rows > 0; --rows) {
    add_to_run(m, n, elements, dtype);
  }
}

/* Elements move along a dim of one tensor, or are exchanged: reads must precede writes. */
static void add_shifted(hr__maker *m) {
  static const hr_op pool[] = {HR_OP_COPY, HR_OP_ADD, HR_OP_MAXIMUM, HR_OP_ADD_SCALED};
  hr_op op = HR__PICK_FROM(m, pool);
  hr_operand x = hr__target(m, hr__any_dtype(m), 3, m->base), from = x, to = x;
  int dim = hr__pick(m, 3), algorithm = hr__pick(m, 4);
  int64_t size = x.dims[dim], by = size > 1 ? 1 + hr__pick(m, size > 3 ? 3 : 1) : 0;
  if (algorithm < 2 && by > 0) {
    from = hr__slice(m, x, dim, algorithm == 0 ? 0 : by, size - by, 1);
    to = hr__slice(m, x, dim, algorithm == 0 ? by : 0, size - by, 1);
  } else if (algorithm == 2) {
    from = hr__reverse(m, x, dim);
  } else if (x.dims[0] == x.dims[1]) {
    from = hr__permute(m, x, (int[]){1, 0, 2});
  } else if (x.dims[1] == x.dims[2]) {
    from = hr__permute(m, x, (int[]){0, 2, 1});
  } else if (size > 0) { /* one row for all, which is one of those that are written */
    from = hr__slice(m, x, dim, hr__pick(m, (int)size), size, 0);
  }
  hr__draft draft = hr__begin(op);
  for (int i = 0; i < hr_op_table(op)->arity; ++i) {
    hr__in(&draft, i == 0 ? from : i == 1 && hr__chance(m, 2) ? to : hr__spreadable(m, to.rank, to.dims));
  }
  hr__out(&draft, to);
  hr__end(m, &draft);
}

static hr_operand bytes_like(hr__maker *m, const hr_operand *x) {
  static const hr_dtype formats[] = {HR_DTYPE_F8E4M3FN,   HR_DTYPE_F8E5M2,        HR_DTYPE_F8E4M3FNUZ,
                                     HR_DTYPE_F8E5M2FNUZ, HR_DTYPE_F8E8M0FNU,     HR_DTYPE_F8E4M3,
                                     HR_DTYPE_F8E3M4,     HR_DTYPE_F8E4M3B11FNUZ, HR_DTYPE_F4E2M1FN};
  return hr__apart(m, HR__PICK_FROM(m, formats), x->rank, x->dims, hr__chance(m, 2), true);
}

static void add_copy(hr__maker *m, hr_operand from, hr_operand to) {
  hr__draft draft = hr__begin(HR_OP_COPY);
  hr__in(&draft, from), hr__out(&draft, to);
  hr__end(m, &draft);
}

/* Numbers pass through a format of one byte: they are stored, moved, stored in another one, compared or read again. */
static void add_float8(hr__maker *m) {
  static const hr_op pool[] = {HR_OP_COPY, HR_OP_COPY, HR_OP_EQ, HR_OP_IS_NAN};
  hr_operand x = hr__any_tensor(m, false, 1), bytes = bytes_like(m, &x);
  add_copy(m, x, bytes);
  if (hr__chance(m, 2)) {
    bytes = hr__reverse(m, bytes, hr__pick(m, bytes.rank));
  }
  if (hr__chance(m, 2)) {
    hr_operand others = bytes_like(m, &x);
    add_copy(m, bytes, others);
    bytes = others;
  }
  hr__draft draft = hr__begin(HR__PICK_FROM(m, pool));
  hr__in(&draft, bytes);
  if (draft.op == HR_OP_EQ) {
    hr__in(&draft, hr__some_number(m));
  }
  hr__out(&draft, hr__new_output(m, draft.op == HR_OP_COPY ? hr__any_dtype(m) : HR_DTYPE_BOOL, x.rank, x.dims));
  hr__end(m, &draft);
}

static hr_operand complex_tensor(hr__maker *m) {
  return m->complexes[hr__pick(m, m->complex_count)];
}

/* Rows that have a complex version, on tensors that only these take. */
static void add_complex(hr__maker *m) {
  static const hr_op pool[] = {HR_OP_ADD,  HR_OP_MUL,         HR_OP_SUB,           HR_OP_DIV,  HR_OP_EXP,
                               HR_OP_CONJ, HR_OP_ABS_COMPLEX, HR_OP_ANGLE_COMPLEX, HR_OP_REAL, HR_OP_IMAG,
                               HR_OP_SQRT, HR_OP_EQ,          HR_OP_SUM,           HR_OP_PROD, HR_OP_ADD_SCALED,
                               HR_OP_COPY, HR_OP_NEG,         HR_OP_SQUARE};
  while (m->complex_count < 2) {
    m->complexes[m->complex_count++] =
        hr__apart(m, hr__chance(m, 3) ? HR_DTYPE_C128 : HR_DTYPE_C64, 3, m->base, false, false);
  }
  hr__draft draft = hr__begin(HR__PICK_FROM(m, pool));
  const hr_op_row *row = hr_op_table(draft.op);
  hr_operand like = complex_tensor(m);
  hr_dtype part = like.dtype == HR_DTYPE_C64 ? HR_DTYPE_F32 : HR_DTYPE_F64;
  hr__in(&draft, like);
  for (int i = 1; i < row->arity; ++i) {
    hr__in(&draft, hr__chance(m, 3) ? hr__spreadable(m, 3, m->base) : complex_tensor(m));
  }
  if (row->family == HR_FAMILY_REDUCE) {
    int64_t dims[3], mask = 1 + hr__pick(m, 7);
    for (int d = 0; d < 3; ++d) {
      dims[d] = (mask >> d & 1) != 0 ? 1 : m->base[d];
    }
    hr__int(&draft, mask);
    hr__out(&draft, hr__apart(m, like.dtype, 3, dims, false, true));
  } else if (row->rule == HR_RULE_PART) {
    hr__out(&draft, hr__output(m, part, 3, m->base));
  } else if (row->rule == HR_RULE_COMPARE) {
    hr__out(&draft, hr__output(m, HR_DTYPE_BOOL, 3, m->base));
  } else if (hr__chance(m, 3)) {
    hr__out(&draft, complex_tensor(m));
  } else {
    int at = m->complex_count < HR__COMPLEX_MAX ? m->complex_count++ : hr__pick(m, HR__COMPLEX_MAX);
    m->complexes[at] = hr__apart(m, like.dtype, 3, m->base, hr__chance(m, 2), true);
    hr__out(&draft, m->complexes[at]);
  }
  hr__end(m, &draft);
}

static int reduced_dims(hr__maker *m, const hr_operand *x, int64_t *out_dims) {
  int mask = 1 + hr__pick(m, (1 << x->rank) - 1);
  for (int d = 0; d < x->rank; ++d) {
    out_dims[d] = (mask >> d & 1) != 0 ? 1 : x->dims[d];
  }
  return mask;
}

static void add_reduction(hr__maker *m) {
  static const hr_op pool[] = {HR_OP_SUM,  HR_OP_SUM, HR_OP_SUM, HR_OP_AMAX, HR_OP_AMIN, HR_OP_MEAN,
                               HR_OP_PROD, HR_OP_ANY, HR_OP_ALL, HR_OP_MEAN, HR_OP_XOR};
  static const hr_dtype integers[] = {HR_DTYPE_I64, HR_DTYPE_I64, HR_DTYPE_I32, HR_DTYPE_U8};
  hr_op op = HR__PICK_FROM(m, pool);
  bool is_logic = op == HR_OP_ANY || op == HR_OP_ALL, is_real = op == HR_OP_MEAN || hr__chance(m, 2);
  hr_operand x = hr__any_tensor(m, is_real, 1);
  int64_t dims[HR_RANK_MAX];
  op = op == HR_OP_XOR && !hr_dtype_is_integer(x.dtype) ? HR_OP_SUM : op;
  hr__draft draft = hr__begin(op);
  hr__in(&draft, x);
  hr__int(&draft, reduced_dims(m, &x, dims));
  hr_dtype dtype = is_logic                       ? HR_DTYPE_BOOL
                   : hr_dtype_is_integer(x.dtype) ? HR__PICK_FROM(m, integers)
                   : hr__chance(m, 3)             ? x.dtype
                   : x.dtype == HR_DTYPE_F64      ? HR_DTYPE_F64
                                                  : HR_DTYPE_F32;
  hr__out(&draft, hr__output(m, dtype, x.rank, dims));
  hr__end(m, &draft);
}

/* Rows summed up, or numbered, in one of them. */
static void add_inner_reduction(hr__maker *m) {
  static const hr_op pool[] = {HR_OP_SUM, HR_OP_AMAX, HR_OP_ARGMAX};
  int dim = hr__pick(m, 3);
  hr__draft draft = hr__begin(HR__PICK_FROM(m, pool));
  hr_operand x = hr__target(m, draft.op == HR_OP_ARGMAX ? HR_DTYPE_I64 : hr__real_dtype(m), 3, m->base);
  if (x.dims[dim] == 0) {
    return;
  }
  hr__in(&draft, x);
  hr__int(&draft, 1 << dim);
  hr__out(&draft, hr__slice(m, x, dim, hr__pick(m, (int)x.dims[dim]), 1, 1));
  hr__end(m, &draft);
}

/* An index of the best element, and sometimes the element itself. */
static void add_argreduce(hr__maker *m) {
  hr_operand x = hr__any_tensor(m, hr__chance(m, 2), 1);
  int dim = hr__pick(m, x.rank);
  int64_t dims[HR_RANK_MAX];
  memcpy(dims, x.dims, (size_t)x.rank * sizeof *dims);
  hr__draft draft = hr__begin(hr__chance(m, 2) ? HR_OP_ARGMAX : HR_OP_ARGMIN);
  hr__in(&draft, x);
  bool is_one = hr__chance(m, 2);
  hr__int(&draft, is_one ? 1 << dim : reduced_dims(m, &x, dims));
  dims[dim] = is_one ? 1 : dims[dim];
  hr_operand index = hr__new_output(m, HR_DTYPE_I64, x.rank, dims);
  hr__out(&draft, index);
  hr__end(m, &draft);
  if (is_one && hr__chance(m, 2)) {
    hr__draft gather = hr__begin(HR_OP_GATHER);
    hr__in(&gather, x), hr__in(&gather, index);
    hr__int(&gather, dim);
    hr__out(&gather, hr__new_output(m, x.dtype, x.rank, dims));
    hr__end(m, &gather);
  }
}

void hr__add_rows(hr__maker *m) {
  int kind = hr__pick(m, 16);
  if (kind == 0 && hr__chance(m, 3)) {
    for (int n = 1 + hr__pick(m, 4); n > 0; --n) {
      add_complex(m);
    }
  } else if (kind < 7) {
    add_pointwise(m);
  } else if (kind < 10) {
    add_in_place(m);
  } else if (kind < 11) {
    (hr__chance(m, 2) ? add_list : add_run)(m);
  } else if (kind < 12) {
    (hr__chance(m, 4) ? add_float8 : add_shifted)(m);
  } else if (kind < 15) {
    add_reduction(m);
  } else if (hr__chance(m, 3)) {
    add_inner_reduction(m);
  } else {
    add_argreduce(m);
  }
}
