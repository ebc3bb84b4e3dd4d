/* gradient_rows.c: gradients that are functions: their records depend on attributes or shapes. */
#include <math.h>

#include "transform/gradients.h"

/* Zeros with the type of an operand. */
static hr_status zeros_like(const hr__backward *b, const hr__operand *like, hr_tensor *out) {
  const hr_tensor zero = hr_tensor_number(hr_scalar_i64(0)), *inputs[1] = {&zero};
  return hr__record_new(&b->call, HR_OP_COPY, NULL, 1, inputs, like->view.dtype, like->view.rank, like->view.dims, out);
}

/* ---- products ---- */

static void transpose(hr_tensor *x) {
  hr__move_dim(x, x->rank - 1, x->rank - 2);
}

static hr_status multiply(const hr__backward *b, const hr_tensor *left, const hr_tensor *right, hr_tensor *out) {
  const hr_tensor *inputs[2] = {left, right};
  return hr__record_one(&b->call, HR_OP_MATMUL, NULL, 2, inputs, HR_DTYPE_NONE, out);
}

/* True if the matrices of a view are column-major. */
static bool is_column_major(const hr_view *view) {
  int last = view->rank - 1;
  return last > 0 && view->dims[last] > 1 && view->dims[last - 1] > 1 && view->strides[last - 1] == 1 &&
         view->strides[last] >= view->dims[last - 1];
}

/* left * right in the layout of `like`, so that it can become the adjoint of its buffer without a copy: linear layers
 * multiply by a transposed weight. */
static hr_status multiply_like(const hr__backward *b, const hr_tensor *left, const hr_tensor *right,
                               const hr_view *like, hr_tensor *out) {
  hr_tensor first, second;
  if (!is_column_major(like)) {
    return multiply(b, left, right, out);
  }
  hr__copy_tensor(right, &first);
  hr__copy_tensor(left, &second);
  transpose(&first);
  transpose(&second);
  HR_RETURN_IF_ERROR(multiply(b, &first, &second, out));
  transpose(out);
  return HR_OK;
}

/* The conjugate transpose of matrices, with a reference. */
static hr_status make_adjoint(const hr__backward *b, const hr_tensor *x, hr_tensor *out) {
  hr_tensor view;
  hr__copy_tensor(x, &view);
  transpose(&view);
  if (!hr_dtype_is_complex(x->dtype)) {
    hr__view_like(&view, out);
    return HR_OK;
  }
  const hr_tensor *inputs[1] = {&view};
  return hr__record_one(&b->call, HR_OP_CONJ, NULL, 1, inputs, HR_DTYPE_NONE, out);
}

/* x with leading dims of size 1 up to this rank, a view without a reference. */
static void widen(const hr_tensor *x, int rank, hr_tensor *out) {
  int added = rank - x->rank;
  hr__copy_tensor(x, out);
  out->rank = rank;
  for (int d = rank - 1; d >= 0; --d) {
    out->dims[d] = d >= added ? x->dims[d - added] : 1;
    out->strides[d] = d >= added ? x->strides[d - added] : 0;
  }
}

/* Batch dims of g in which the matrix is the same, and the other factor x is not: bits. */
static uint32_t find_shared(const hr_tensor *g, const hr_tensor *x, const hr_view *matrix) {
  uint32_t shared = 0;
  for (int d = 0; d < g->rank - 2; ++d) {
    int own = d - (g->rank - matrix->rank);
    bool is_same = own < 0 || matrix->dims[own] == 1 || matrix->strides[own] == 0;
    shared |= is_same && g->dims[d] > 1 && x->dims[d] == g->dims[d] ? 1u << d : 0;
  }
  return shared;
}

/* True if these dims of x and its rows are one dim of a view. */
static bool is_one_dim(const hr_tensor *x, uint32_t mask) {
  int64_t expected = 0;
  for (int d = x->rank - 2; d >= 0; --d) {
    bool is_in = d == x->rank - 2 || (mask >> d & 1u) != 0;
    if (!is_in || x->dims[d] == 1) {
      continue;
    }
    if (expected != 0 && x->strides[d] != expected) {
      return false;
    }
    expected = x->strides[d] * x->dims[d];
  }
  return true;
}

/* x [.., R, C] with these batch dims among its rows: [.., D * R, C], with a reference. */
static hr_status join_rows(const hr__backward *b, const hr_tensor *x, uint32_t mask, hr_tensor *out) {
  hr_tensor moved;
  int rank = x->rank, kept = 0;
  int64_t dims[HR_RANK_MAX] = {0}, rows = x->dims[rank - 2];
  if (mask == 0) {
    hr__view_like(x, out);
    return HR_OK;
  }
  hr__copy_tensor(x, &moved);
  for (int d = 0, to = rank - 3; d < rank - 2; ++d) {
    if ((mask >> d & 1u) != 0) {
      rows *= x->dims[d];
      hr__move_dim(&moved, kept, to); /* behind the ones before it */
    } else {
      dims[kept++] = x->dims[d];
    }
  }
  dims[kept] = rows, dims[kept + 1] = x->dims[rank - 1];
  return hr__reshape(&b->call, &moved, kept + 2, dims, out);
}

/* A matrix that a batch shares is the factor of one product of all rows. Else its gradient would be a product for each
 * batch, and a sum of them.
 *
 *   left [.., R, M], right [.., R, K]     the sum of left' * right over rows and shared dims
 *
 * Rows that are no one dim are copied, unless there are many: beside such copies the products are small. */
static bool is_worth_joining(const hr_tensor *left, const hr_tensor *right, uint32_t shared) {
  int last = left->rank - 1;
  double rows = (double)left->dims[last - 1], m = (double)left->dims[last], k = (double)right->dims[last];
  return shared != 0 && ((is_one_dim(left, shared) && is_one_dim(right, shared)) || rows * (m + k) <= m * k);
}

/* left' * right in the layout of `like`, where left is transposed. Takes both references. */
static hr_status multiply_rows(const hr__backward *b, hr_tensor *left, hr_tensor *right, const hr_view *like,
                               hr_tensor *out) {
  transpose(left);
  hr_status status = multiply_like(b, left, right, like, out);
  hr_tensor_release(left);
  hr_tensor_release(right);
  return status;
}

/* The shared dims of the product again, with size 1. */
static void restore_dims(hr_tensor *x, int rank, uint32_t shared) {
  hr_tensor narrow;
  hr__copy_tensor(x, &narrow);
  x->rank = rank;
  for (int d = 0, from = 0; d < rank; ++d) {
    bool is_shared = d < rank - 2 && (shared >> d & 1u) != 0;
    x->dims[d] = is_shared ? 1 : narrow.dims[from];
    x->strides[d] = is_shared ? 0 : narrow.strides[from];
    from += !is_shared;
  }
}

/* Gives the matrix its gradient, which has one for all that share it. Takes the gradient's reference. */
static hr_status give_shared(const hr__backward *b, int i, uint32_t shared, hr_tensor *gradient) {
  hr__operand at = *hr__taped_input(b, i);
  int64_t dims[HR_RANK_MAX];
  int added = gradient->rank - at.view.rank;
  for (int d = 0; d < at.view.rank; ++d) {
    dims[d] = (shared >> (d + added) & 1u) != 0 ? 1 : at.view.dims[d];
  }
  at.view.dims = dims;
  hr_status status = hr__adjoint_add(b->adjoints, &b->call, &at, gradient);
  hr_tensor_release(gradient);
  return status;
}

/* left [.., R, M] and right [.., R, K]: gives input i the sum of left' * right over the batches that share it. */
static hr_status give_product(const hr__backward *b, int i, const hr_tensor *left, const hr_tensor *right,
                              uint32_t shared) {
  const hr_view *matrix = &hr__taped_input(b, i)->view;
  hr_tensor both[2], gradient;
  shared = is_worth_joining(left, right, shared) ? shared : 0;
  HR_RETURN_IF_ERROR(join_rows(b, left, shared, &both[0]));
  hr_status status = join_rows(b, right, shared, &both[1]);
  if (status != HR_OK) {
    hr_tensor_release(&both[0]);
    return status;
  }
  HR_RETURN_IF_ERROR(multiply_rows(b, &both[0], &both[1], matrix, &gradient));
  restore_dims(&gradient, left->rank, shared);
  return give_shared(b, i, shared, &gradient);
}

/* g [.., M, N] of x [.., M, K] @ y [.., K, N]. */
static hr_status give_left(const hr__backward *b, const hr_tensor *g) {
  hr_tensor number, turned, adjoint, wide;
  HR_RETURN_IF_ERROR(make_adjoint(b, hr__value(hr__taped_input(b, 1), &number), &adjoint)); /* [.., N, K] */
  hr__copy_tensor(g, &turned);
  transpose(&turned); /* [.., N, M] */
  widen(&adjoint, g->rank, &wide);
  hr_status status = give_product(b, 0, &turned, &wide, find_shared(g, &wide, &hr__taped_input(b, 0)->view));
  hr_tensor_release(&adjoint);
  return status;
}

/* The gradient of the other factor. */
static hr_status give_right(const hr__backward *b, const hr_tensor *g) {
  hr_tensor number, conjugate, wide;
  HR_RETURN_IF_ERROR(make_adjoint(b, hr__value(hr__taped_input(b, 0), &number), &conjugate));
  widen(&conjugate, g->rank, &wide);
  transpose(&wide); /* [.., M, K] */
  hr_status status = give_product(b, 1, &wide, g, find_shared(g, &wide, &hr__taped_input(b, 1)->view));
  hr_tensor_release(&conjugate);
  return status;
}

hr_status hr__gradient_matmul(hr__backward *b) {
  const hr_tensor *g = hr__g(b, 0);
  HR_RETURN_IF_ERROR(hr__wants(b, 0) ? give_left(b, g) : HR_OK);
  HR_RETURN_IF_ERROR(hr__wants(b, 1) ? give_right(b, g) : HR_OK);
  return hr__wants(b, 2) ? hr__give_text(b, 2, "g") : HR_OK;
}

/* ---- statistics ---- */

/* x * number */
static hr_status scale(const hr__backward *b, const hr_tensor *x, double number, hr_tensor *out) {
  const hr_tensor factor = hr_tensor_number(hr_scalar_f64(number)), *inputs[2] = {x, &factor};
  return hr__record_one(&b->call, HR_OP_MUL, NULL, 2, inputs, HR_DTYPE_NONE, out);
}

/* Gives g's gradient of `text`, times a number. */
static hr_status give_scaled(const hr__backward *b, const char *text, double number) {
  hr_tensor gradient, scaled;
  HR_RETURN_IF_ERROR(hr__evaluate(b, text, 0, &gradient));
  hr_status status = scale(b, &gradient, number, &scaled);
  hr_tensor_release(&gradient);
  return hr__give_gradient(b, 0, status, &scaled);
}

hr_status hr__gradient_var_mean(hr__backward *b) {
  const hr_attrs *attrs = &b->record->attrs;
  int64_t count = hr__view_count(&hr__taped_output(b, 0)->view);
  double n = count > 0 ? (double)(hr__view_count(&hr__taped_input(b, 0)->view) / count) : 0;
  double degrees = n - hr_scalar_as_f64(&attrs->scalars[0]);
  const hr_tensor *g = hr__g(b, 0), *g1 = hr__g(b, 1);
  if (g != NULL) {
    /* ints[0] is a mask, as sum's; a row without degrees of freedom has the variance infinity or NaN */
    bool has_root = attrs->ints[1] != 0;
    const char *text = has_root ? "d = x0 - sum_over(x0) / n; y == 0 ? 0 : g * (d / y)" : "g * (x0 - sum_over(x0) / n)";
    HR_RETURN_IF_ERROR(give_scaled(b, text, (has_root ? 1 : 2) / (degrees > 0 ? degrees : 0)));
  }
  if (g1 != NULL) {
    hr_tensor gradient;
    HR_RETURN_IF_ERROR(hr__give_gradient(b, 0, scale(b, g1, 1 / n, &gradient), &gradient));
  }
  return HR_OK;
}

enum { NORM_P = 0, NORM_ZERO, NORM_ONE, NORM_TWO, NORM_MAX, NORM_MIN };

/* p of the norm as a kind of its own. */
static int norm_kind(const hr_attrs *attrs, double p) {
  int kind = attrs->int_count > 1 ? (int)attrs->ints[1] : NORM_P;
  return kind != NORM_P ? kind
         : p == 0       ? NORM_ZERO
         : p == 1       ? NORM_ONE
         : p == 2       ? NORM_TWO
         : isinf(p)     ? (p > 0 ? NORM_MAX : NORM_MIN)
                        : NORM_P;
}

/* Of complex numbers a stands for the absolute value, and x0 / a for the sign. */
hr_status hr__gradient_norm(hr__backward *b) {
  double p = hr_scalar_as_f64(&b->record->attrs.scalars[0]);
  bool is_complex = hr_dtype_is_complex(hr__taped_input(b, 0)->view.dtype);
  switch (norm_kind(&b->record->attrs, p)) {
    case NORM_ZERO:
      return HR_OK;
    case NORM_ONE:
      return hr__give_text(b, 0, is_complex ? "a = abs_complex(x0); a == 0 ? 0 : g * (x0 / a)" : "g * sign(x0)");
    case NORM_TWO:
      return hr__give_text(b, 0, "y == 0 ? 0 : g * (x0 / y)");
    case NORM_MAX:
    case NORM_MIN:
      return hr__give_text(b, 0,
                           is_complex ? "a = abs_complex(x0); m = a == y; c = sum_over(m); "
                                        "a == 0 ? 0 : m ? g / c * (x0 / a) : 0"
                                      : "m = abs(x0) == y; m ? g * sign(x0) / sum_over(m) : 0");
    default: {
      char text[160];
      if (is_complex) {
        snprintf(text, sizeof text, "a = abs_complex(x0); a == 0 ? 0 : y == 0 ? 0 : g * pow(a / y, %.17g) * (x0 / a)",
                 p - 1);
      } else {
        snprintf(text, sizeof text, "x0 == 0 ? 0 : y == 0 ? 0 : g * sign(x0) * pow(abs(x0) / y, %.17g)", p - 1);
      }
      return hr__give_text(b, 0, text);
    }
  }
}

/* in: dy, x, weight?, running mean?, running var?, mean?, invstd? */
hr_status hr__gradient_batch_norm(hr__backward *b) {
  const hr_attrs *attrs = &b->record->attrs, backward = {attrs->int_count, 1, attrs->ints, attrs->scalars + 1};
  static const int from_inputs[4] = {0, 1, 3, 4};
  hr_tensor outputs[3], numbers[4], *wanted[3] = {NULL, NULL, NULL};
  const hr_tensor *inputs[7] = {hr__g(b, 0)};
  if (inputs[0] == NULL) {
    return HR_OK;
  }
  for (int i = 0; i < 4; ++i) {
    inputs[i + 1] = hr__value(hr__taped_input(b, from_inputs[i]), &numbers[i]);
  }
  inputs[5] = hr__value(hr__taped_output(b, 1), &numbers[0]);
  inputs[6] = hr__value(hr__taped_output(b, 2), &numbers[1]);
  for (int o = 0; o < 3; ++o) {
    outputs[o] = (hr_tensor){0};
    wanted[o] = hr__wants(b, o) ? &outputs[o] : NULL;
  }
  hr_status status = hr__record_row(&b->call, HR_OP_BATCH_NORM_BACKWARD, &backward, 7, inputs, 3, wanted);
  for (int o = 0; o < 3; ++o) {
    if (wanted[o] != NULL) {
      status = hr__give_gradient(b, o, status, &outputs[o]);
    }
  }
  return status;
}

/* ---- index maps ---- */

hr_status hr__gradient_cat(hr__backward *b) {
  int dim = (int)b->record->attrs.ints[0];
  int64_t begin = 0;
  for (int i = 0; hr__taped_input(b, i) != NULL; ++i) {
    int64_t size = hr__taped_input(b, i)->view.dims[dim];
    if (hr__wants(b, i)) {
      hr_tensor part;
      hr__view_like(hr__g(b, 0), &part);
      part.offset += begin * part.strides[dim];
      part.dims[dim] = size;
      HR_RETURN_IF_ERROR(hr__give_gradient(b, i, HR_OK, &part));
    }
    begin += size;
  }
  return HR_OK;
}

/* Elements that were added are cropped; those that were cropped get 0. */
hr_status hr__gradient_pad(hr__backward *b) {
  int64_t ints[2 * HR_RANK_MAX];
  const hr_scalar zero = hr_scalar_i64(0);
  const hr_attrs attrs = {b->record->attrs.int_count, 1, ints, &zero};
  const hr_tensor *inputs[1] = {hr__g(b, 0)};
  hr_tensor gradient;
  for (int i = 0; i < attrs.int_count; ++i) {
    ints[i] = -b->record->attrs.ints[i];
  }
  return hr__give_gradient(b, 0, hr__record_one(&b->call, HR_OP_PAD, &attrs, 1, inputs, HR_DTYPE_NONE, &gradient),
                           &gradient);
}

/* Zeros like input 0, to which `row` adds values at indices. */
static hr_status give_added(const hr__backward *b, hr_op row, const hr_attrs *attrs, int count,
                            const hr_tensor *const *inputs) {
  hr_tensor gradient;
  HR_RETURN_IF_ERROR(zeros_like(b, hr__taped_input(b, 0), &gradient));
  hr_status status = hr__write_row(&b->call, row, attrs, count, inputs, &gradient);
  if (status != HR_OK) {
    hr_tensor_release(&gradient);
  }
  return hr__give_gradient(b, 0, status, &gradient);
}

hr_status hr__gradient_index_select(hr__backward *b) {
  hr_tensor number;
  int64_t dim = b->record->attrs.ints[0];
  const int64_t ints[3] = {INT64_C(1) << dim, dim, 1};
  const hr_attrs attrs = {.int_count = 3, .ints = ints};
  const hr_tensor *inputs[2] = {hr__g(b, 0), hr__value(hr__taped_input(b, 1), &number)};
  return hr__wants(b, 0) ? give_added(b, HR_OP_INDEX_PUT, &attrs, 2, inputs) : HR_OK;
}

enum { INDICES_MAX = HR_RANK_MAX };

hr_status hr__gradient_index(hr__backward *b) {
  hr_tensor numbers[INDICES_MAX];
  const int64_t ints[3] = {b->record->attrs.ints[0], b->record->attrs.ints[1], 1};
  const hr_attrs attrs = {.int_count = 3, .ints = ints};
  const hr_tensor *inputs[INDICES_MAX + 1] = {hr__g(b, 0)};
  int count = b->record->input_count;
  for (int i = 1; i < count; ++i) {
    inputs[i] = hr__value(hr__taped_input(b, i), &numbers[i - 1]);
  }
  return hr__wants(b, 0) ? give_added(b, HR_OP_INDEX_PUT, &attrs, count, inputs) : HR_OK;
}

enum { SCATTER_ADD = 1 };

static hr_status give_scattered(const hr__backward *b, int64_t dim, const hr_tensor *index, const hr_tensor *g) {
  const int64_t ints[3] = {dim, SCATTER_ADD, 1};
  const hr_attrs attrs = {.int_count = 3, .ints = ints};
  const hr_tensor *inputs[2] = {index, g};
  return give_added(b, HR_OP_SCATTER, &attrs, 2, inputs);
}

hr_status hr__gradient_gather(hr__backward *b) {
  hr_tensor number;
  const hr_tensor *index = hr__value(hr__taped_input(b, 1), &number);
  return hr__wants(b, 0) ? give_scattered(b, b->record->attrs.ints[0], index, hr__g(b, 0)) : HR_OK;
}

/* ---- rows that change a part of their output: the rest keeps its gradient ---- */

/* The numbers 0, 1, 2, ... with these dims. */
static hr_status make_numbers(const hr__backward *b, const hr_tensor *like, hr_tensor *out) {
  const hr_scalar scalars[2] = {hr_scalar_i64(0), hr_scalar_i64(1)};
  const hr_attrs attrs = {.scalar_count = 2, .scalars = scalars};
  int64_t count = 1;
  hr_tensor line;
  for (int d = 0; d < like->rank; ++d) {
    count *= like->dims[d];
  }
  HR_RETURN_IF_ERROR(hr__record_new(&b->call, HR_OP_ARANGE, &attrs, 0, NULL, HR_DTYPE_I64, 1, &count, &line));
  hr_status status = hr__reshape(&b->call, &line, like->rank, like->dims, out);
  hr_tensor_release(&line);
  return status;
}

/* How a row writes to places, and reads from them. */
typedef struct placement {
  hr_op write, read;
  hr_attrs write_attrs, read_attrs;
  bool has_values_first; /* in the inputs of `write` */
  int count;
  const hr_tensor *indices[HR_RANK_MAX];
} placement;

static hr_status read_places(const hr__backward *b, const placement *p, const hr_tensor *x, hr_tensor *out) {
  const hr_tensor *inputs[HR_RANK_MAX + 1] = {x};
  for (int i = 0; i < p->count; ++i) {
    inputs[i + 1] = p->indices[i];
  }
  return hr__record_one(&b->call, p->read, &p->read_attrs, p->count + 1, inputs, HR_DTYPE_NONE, out);
}

static hr_status write_places(const hr__backward *b, const placement *p, const hr_tensor *values, const hr_tensor *to) {
  const hr_tensor *inputs[HR_RANK_MAX + 1];
  inputs[p->has_values_first ? 0 : p->count] = values;
  for (int i = 0; i < p->count; ++i) {
    inputs[i + p->has_values_first] = p->indices[i];
  }
  return hr__write_row(&b->call, p->write, &p->write_attrs, p->count + 1, inputs, to);
}

/* True for the values that the record has left in their places: the last ones. */
static hr_status find_winners(const hr__backward *b, const placement *p, const hr_tensor *like, hr_tensor *out) {
  const hr_view *all = &hr__taped_output(b, 0)->view;
  const hr_tensor minus = hr_tensor_number(hr_scalar_i64(-1)), *number = &minus;
  hr_tensor numbers, kept, found;
  HR_RETURN_IF_ERROR(make_numbers(b, like, &numbers));
  hr_status status = hr__record_new(&b->call, HR_OP_COPY, NULL, 1, &number, HR_DTYPE_I64, all->rank, all->dims, &kept);
  if (status == HR_OK) {
    status = write_places(b, p, &numbers, &kept);
    status = status == HR_OK ? read_places(b, p, &kept, &found) : status;
    hr_tensor_release(&kept);
  }
  if (status == HR_OK) {
    const hr_tensor *both[2] = {&found, &numbers};
    status = hr__record_one(&b->call, HR_OP_EQ, NULL, 2, both, HR_DTYPE_NONE, out);
    hr_tensor_release(&found);
  }
  hr_tensor_release(&numbers);
  return status;
}

/* The gradient of values that were set: g in their places, 0 for those that later ones replaced. */
static hr_status gradient_of_set(const hr__backward *b, const placement *p, hr_tensor *out) {
  hr_tensor read, winners;
  const hr_tensor zero = hr_tensor_number(hr_scalar_i64(0)), *three[3] = {&winners, &read, &zero};
  HR_RETURN_IF_ERROR(read_places(b, p, hr__g(b, 0), &read));
  hr_status status = find_winners(b, p, &read, &winners);
  if (status == HR_OK) {
    status = hr__record_one(&b->call, HR_OP_WHERE, NULL, 3, three, HR_DTYPE_NONE, out);
    hr_tensor_release(&winners);
  }
  hr_tensor_release(&read);
  return status;
}

/* The contents before have no gradient in these places. */
static hr_status give_rest(const hr__backward *b, const placement *p) {
  const hr_tensor *g = hr__g(b, 0), *copied[1] = {g};
  hr_tensor rest, sample, zeros = {0};
  HR_RETURN_IF_ERROR(hr__record_new(&b->call, HR_OP_COPY, NULL, 1, copied, g->dtype, g->rank, g->dims, &rest));
  hr_status status = read_places(b, p, g, &sample);
  if (status == HR_OK) {
    const hr_tensor zero = hr_tensor_number(hr_scalar_i64(0)), *number = &zero;
    status = hr__record_new(&b->call, HR_OP_COPY, NULL, 1, &number, g->dtype, sample.rank, sample.dims, &zeros);
    hr_tensor_release(&sample);
  }
  status = status == HR_OK ? write_places(b, p, &zeros, &rest) : status;
  hr_tensor_release(&zeros);
  if (status != HR_OK) {
    hr_tensor_release(&rest);
  }
  return hr__give_before(b, 0, status, &rest);
}

static hr_status give_all_before(const hr__backward *b) {
  hr_tensor all;
  hr__view_like(hr__g(b, 0), &all);
  return hr__give_before(b, 0, HR_OK, &all);
}

/* in: values, index of each indexed dim; ints: mask, position, accumulate */
hr_status hr__gradient_index_put(hr__backward *b) {
  const hr_attrs *attrs = &b->record->attrs;
  hr_tensor numbers[HR_RANK_MAX], gradient;
  placement p = {.write = HR_OP_INDEX_PUT,
                 .read = HR_OP_INDEX,
                 .write_attrs = *attrs,
                 .read_attrs = {.int_count = 2, .ints = attrs->ints},
                 .has_values_first = true,
                 .count = b->record->input_count - 1};
  bool accumulates = attrs->ints[2] != 0;
  for (int i = 0; i < p.count; ++i) {
    p.indices[i] = hr__value(hr__taped_input(b, i + 1), &numbers[i]);
  }
  if (hr__wants(b, 0)) {
    hr_status status = accumulates ? read_places(b, &p, hr__g(b, 0), &gradient) : gradient_of_set(b, &p, &gradient);
    HR_RETURN_IF_ERROR(hr__give_gradient(b, 0, status, &gradient));
  }
  return accumulates ? give_all_before(b) : give_rest(b, &p);
}

/* Adds to the first elements of a source: those that have an index. */
static hr_status give_source(const hr__backward *b, hr_status status, hr_tensor *gradient) {
  HR_RETURN_IF_ERROR(status);
  hr__operand part = *hr__taped_input(b, 1);
  part.view.dims = gradient->dims;
  status = hr__adjoint_add(b->adjoints, &b->call, &part, gradient);
  hr_tensor_release(gradient);
  return status;
}

/* in: index, source (tensor or number); ints: dim, mode, kind of error */
hr_status hr__gradient_scatter(hr__backward *b) {
  const hr_attrs *attrs = &b->record->attrs;
  hr_tensor number, gradient;
  const placement p = {.write = HR_OP_SCATTER,
                       .read = HR_OP_GATHER,
                       .write_attrs = *attrs,
                       .read_attrs = {.int_count = 1, .ints = attrs->ints},
                       .count = 1,
                       .indices = {hr__value(hr__taped_input(b, 0), &number)}};
  bool accumulates = attrs->ints[1] == SCATTER_ADD;
  if (attrs->ints[1] > SCATTER_ADD) {
    return hr__gradient_of_combination(b);
  }
  if (hr__wants(b, 1)) {
    hr_status status = accumulates ? read_places(b, &p, hr__g(b, 0), &gradient) : gradient_of_set(b, &p, &gradient);
    HR_RETURN_IF_ERROR(give_source(b, status, &gradient));
  }
  return accumulates ? give_all_before(b) : give_rest(b, &p);
}

/* in: index (rank 1), source; ints: dim; scalars: alpha */
hr_status hr__gradient_index_add(hr__backward *b) {
  hr_tensor number, read, gradient;
  const hr_attrs attrs = {.int_count = 1, .ints = b->record->attrs.ints};
  const hr_tensor alpha = hr_tensor_number(b->record->attrs.scalars[0]), *both[2] = {&read, &alpha};
  const hr_tensor *inputs[2] = {hr__g(b, 0), hr__value(hr__taped_input(b, 0), &number)};
  if (hr__wants(b, 1)) {
    HR_RETURN_IF_ERROR(hr__record_one(&b->call, HR_OP_INDEX_SELECT, &attrs, 2, inputs, HR_DTYPE_NONE, &read));
    hr_status status = hr__record_one(&b->call, HR_OP_MUL, NULL, 2, both, HR_DTYPE_NONE, &gradient);
    hr_tensor_release(&read);
    HR_RETURN_IF_ERROR(hr__give_gradient(b, 1, status, &gradient));
  }
  return give_all_before(b);
}

/* ---- values of an input that an output names ---- */

/* Adds a dim of one element at the end. */
static void add_dim(const hr_tensor *x, hr_tensor *out) {
  hr__copy_tensor(x, out);
  out->dims[out->rank] = 1, out->strides[out->rank] = 1;
  ++out->rank;
}

/* Values of the last dim that output 1 names. */
hr_status hr__gradient_picked(hr__backward *b) {
  hr_tensor number, index, g;
  const hr_tensor *places = hr__value(hr__taped_output(b, 1), &number), *given = hr__g(b, 0);
  if (given == NULL) {
    return HR_OK;
  }
  if (places == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: its gradient needs the indices, which the record lacks",
                          b->call.row->name);
  }
  int rank = hr__taped_input(b, 0)->view.rank;
  if (places->rank == rank) {
    return give_scattered(b, rank - 1, places, given);
  }
  add_dim(places, &index);
  add_dim(given, &g);
  return give_scattered(b, rank - 1, &index, &g);
}

static void reverse(const hr_tensor *x, int64_t dim, hr_tensor *out) {
  hr__copy_tensor(x, out);
  if (x->dims[dim] > 0) {
    out->offset += (x->dims[dim] - 1) * x->strides[dim];
  }
  out->strides[dim] = -x->strides[dim];
}

/* Running sums from the end. */
hr_status hr__gradient_cumsum(hr__backward *b) {
  hr_tensor from_end, sums, gradient;
  int64_t dim = b->record->attrs.ints[0];
  const hr_tensor *inputs[1] = {&from_end};
  reverse(hr__g(b, 0), dim, &from_end);
  HR_RETURN_IF_ERROR(hr__record_one(&b->call, HR_OP_CUMSUM, &b->record->attrs, 1, inputs, HR_DTYPE_NONE, &sums));
  reverse(&sums, dim, &gradient);
  return hr__give_gradient(b, 0, HR_OK, &gradient);
}

/* ---- transforms and interpolation ---- */

/* The other direction, with the same factor. */
hr_status hr__gradient_fft(hr__backward *b) {
  const hr_attrs *attrs = &b->record->attrs;
  const int64_t ints[2] = {attrs->ints[0] == 0, attrs->ints[1]};
  const hr_attrs other = {2, attrs->scalar_count, ints, attrs->scalars};
  const hr_tensor *inputs[1] = {hr__g(b, 0)};
  hr_tensor gradient, dense;
  HR_RETURN_IF_ERROR(hr__make_dense(&b->call, inputs[0], &dense));
  inputs[0] = &dense;
  hr_status status = hr__record_one(&b->call, HR_OP_FFT, &other, 1, inputs, HR_DTYPE_NONE, &gradient);
  hr_tensor_release(&dense);
  return hr__give_gradient(b, 0, status, &gradient);
}

/* x, and zeros behind it in the last dim. */
static hr_status extend(const hr__backward *b, const hr_tensor *x, int64_t size, hr_tensor *out) {
  int64_t ints[2 * HR_RANK_MAX] = {0};
  const hr_scalar zero = hr_scalar_i64(0);
  const hr_attrs attrs = {2 * x->rank, 1, ints, &zero};
  ints[2 * x->rank - 1] = size - x->dims[x->rank - 1];
  return hr__record_one(&b->call, HR_OP_PAD, &attrs, 1, &x, HR_DTYPE_NONE, out);
}

/* The real part of the other direction; results that the record leaves out have the gradient 0. */
hr_status hr__gradient_fft_real(hr__backward *b) {
  const hr_attrs *attrs = &b->record->attrs;
  const int64_t ints[2] = {1, 0};
  const hr_attrs inverse = {2, attrs->scalar_count, ints, attrs->scalars};
  const hr_view *x = &hr__taped_input(b, 0)->view;
  hr_tensor all, whole, gradient;
  const hr_tensor *inputs[1] = {&all};
  HR_RETURN_IF_ERROR(extend(b, hr__g(b, 0), x->dims[x->rank - 1], &all));
  hr_status status = hr__record_one(&b->call, HR_OP_FFT, &inverse, 1, inputs, HR_DTYPE_NONE, &whole);
  hr_tensor_release(&all);
  if (status == HR_OK) {
    inputs[0] = &whole;
    status = hr__record_one(&b->call, HR_OP_REAL, NULL, 1, inputs, HR_DTYPE_NONE, &gradient);
    hr_tensor_release(&whole);
  }
  return hr__give_gradient(b, 0, status, &gradient);
}

/* The values that stand for two, in place. */
static hr_status double_middle(const hr__backward *b, const hr_tensor *half, int64_t count) {
  const hr_tensor two = hr_tensor_number(hr_scalar_i64(2));
  int last = half->rank - 1;
  hr_tensor middle;
  hr__copy_tensor(half, &middle);
  middle.offset += middle.strides[last];
  middle.dims[last] = count;
  const hr_tensor *both[2] = {&middle, &two};
  return count > 0 ? hr__write_row(&b->call, HR_OP_MUL, NULL, 2, both, &middle) : HR_OK;
}

/* The other direction, twice where a value stands for two. */
hr_status hr__gradient_fft_half(hr__backward *b) {
  const hr_view *x = &hr__taped_input(b, 0)->view, *y = &hr__taped_output(b, 0)->view;
  hr_tensor dense, gradient;
  const hr_tensor *inputs[1] = {&dense};
  HR_RETURN_IF_ERROR(hr__make_dense(&b->call, hr__g(b, 0), &dense));
  hr_status status =
      hr__record_new(&b->call, HR_OP_FFT_REAL, &b->record->attrs, 1, inputs, x->dtype, x->rank, x->dims, &gradient);
  hr_tensor_release(&dense);
  HR_RETURN_IF_ERROR(status);
  status = double_middle(b, &gradient, (y->dims[y->rank - 1] - 1) / 2);
  if (status != HR_OK) {
    hr_tensor_release(&gradient);
  }
  return hr__give_gradient(b, 0, status, &gradient);
}

/* Its gradient has one int more: the number of taps of an element, here not known. */
hr_status hr__gradient_resample(hr__backward *b) {
  const hr_attrs *attrs = &b->record->attrs;
  const hr_view *like = &hr__taped_input(b, 0)->view;
  const int64_t ints[5] = {attrs->ints[0], attrs->ints[1], attrs->ints[2], attrs->ints[3], 0};
  const hr_attrs backward = {5, attrs->scalar_count, ints, attrs->scalars};
  const hr_tensor *inputs[1] = {hr__g(b, 0)};
  hr_tensor gradient = {.rank = like->rank}, *outputs[1] = {&gradient};
  for (int d = 0; d < like->rank; ++d) {
    gradient.dims[d] = like->dims[d];
  }
  hr_status status = hr__record_row(&b->call, HR_OP_RESAMPLE_BACKWARD, &backward, 1, inputs, 1, outputs);
  return hr__give_gradient(b, 0, status, &gradient);
}
