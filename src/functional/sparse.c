/* sparse.c: sparse matrices as their values and the places of those: in coordinates (coo), or in compressed rows (csr)
 * or columns (csc). Compressed indices are expanded by a search: value i is in the last row that begins at or before i.
 */
#include "functional/formula.h"

enum { VALUES, ROWS, COLUMNS, Y };
enum { COO, CSR, CSC, FORMATS };
static const char *const formats[FORMATS] = {"coo", "csr", "csc"};

static hr_status check_places(const hr__function_call *c, int format) {
  const hr_tensor *values = c->inputs[VALUES];
  int compressed = format == CSR ? ROWS : format == CSC ? COLUMNS : VALUES;
  for (int i = VALUES; i <= COLUMNS; ++i) {
    const hr_tensor *x = c->inputs[i];
    bool fits = i == compressed ? x->rank == 1 && x->dims[0] > 0 : x->rank == 1 && x->dims[0] == values->dims[0];
    if (!fits && (i > VALUES || values->rank != 1)) {
      char dims[HR__SHAPE_TEXT];
      return HR__CALL_FAIL(c, "%s has dims %s, expected 1 dim%s", c->row->inputs[i],
                           hr__shape_text(x->rank, x->dims, dims),
                           i == compressed && i > VALUES ? " of the first values and their end" : " as values");
    }
  }
  return HR_OK;
}

/* The row or column of each of `count` values. */
static const hr_tensor *expanded(hr__formula *f, const hr_tensor *first, int64_t count) {
  const hr_attribute side = {.kind = HR_ATTRIBUTE_TEXT, .value = {.text = "right"}};
  const hr_tensor *pair[2] = {hr__places(f, first), hr__counted(f, count, 1, 0)};
  const hr_tensor *behind = hr__function(f, HR_FUNCTIONAL_SEARCHSORTED, 2, pair, 1, &side);
  return hr__binary(f, HR_OP_SUB, behind, hr__integer(f, 1));
}

/* Rows and columns of the values, in i64. */
static void places_of(hr__formula *f, int format, const hr_tensor *out[2]) {
  const hr_tensor *const *in = f->call->inputs;
  int64_t count = in[VALUES]->dims[0];
  out[0] = format == CSR ? expanded(f, in[ROWS], count) : hr__places(f, in[ROWS]);
  out[1] = format == CSC ? expanded(f, in[COLUMNS], count) : hr__places(f, in[COLUMNS]);
}

hr_status hr__emit_sparse_matmul(const hr__function_call *c) {
  enum { FORMAT, COUNT };
  const hr_tensor *const *in = c->inputs, *y = in[Y], *places[2];
  int format;
  HR_RETURN_IF_ERROR(hr__word_attribute(c, FORMAT, FORMATS, formats, &format));
  HR_RETURN_IF_ERROR(check_places(c, format));
  int64_t count = hr__int_attribute(c, COUNT), rows = format == CSR ? in[ROWS]->dims[0] - 1 : count;
  if (y->rank < 1 || y->rank > 2 || rows < 0 || (count >= 0 && count != rows)) {
    return HR__CALL_FAIL(c, "%d dims of y, count %lld, expected 1 or 2 dims, and the number of rows", y->rank,
                         (long long)count);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  places_of(&f, format, places);
  const hr_tensor *both[2] = {y, places[1]}, *values = in[VALUES];
  values = y->rank == 2 ? hr__with_dim(&f, values, 1) : values;
  const hr_tensor *terms = hr__times(&f, values, hr__function(&f, HR_FUNCTIONAL_TAKE, 2, both, 0, NULL));
  if (hr__formula_failed(&f)) {
    return hr__formula_end(&f, terms);
  }
  const int64_t dims[2] = {rows, y->rank == 2 ? y->dims[1] : 1};
  const hr_tensor *added[3] = {hr__copied(&f, hr__integer(&f, 0), terms->dtype, y->rank, dims), places[0], terms};
  return hr__formula_end(&f, hr__function(&f, HR_FUNCTIONAL_INDEX_ADD, 3, added, 0, NULL));
}

hr_status hr__emit_sparse_to_dense(const hr__function_call *c) {
  enum { SHAPE, FORMAT };
  const hr_tensor *places[2], *values = c->inputs[VALUES];
  const hr_attribute *shape = &c->attributes[SHAPE];
  int format;
  HR_RETURN_IF_ERROR(hr__word_attribute(c, FORMAT, FORMATS, formats, &format));
  HR_RETURN_IF_ERROR(check_places(c, format));
  if (shape->count != 2 || shape->value.ints[0] < 0 || shape->value.ints[1] < 0) {
    return HR__CALL_FAIL(c, "%d dims of shape, expected 2, not negative", shape->count);
  }
  hr__formula f;
  hr__formula_begin(&f, c);
  places_of(&f, format, places);
  const hr_tensor *lines[2] = {hr__with_dim(&f, places[0], 1), hr__with_dim(&f, places[1], 1)};
  const int64_t ints[1] = {1};
  hr_attrs attrs = {.int_count = 1, .ints = ints};
  const hr_tensor *tuples = hr__step(&f, HR_OP_CAT, &attrs, 2, lines, HR_DTYPE_NONE);
  const hr_tensor *added[3] = {hr__copied(&f, hr__integer(&f, 0), values->dtype, 2, shape->value.ints), tuples, values};
  const hr_attribute by[2] = {{.kind = HR_ATTRIBUTE_NONE}, {.kind = HR_ATTRIBUTE_TEXT, .value = {.text = "add"}}};
  return hr__formula_end(&f, hr__function(&f, HR_FUNCTIONAL_SCATTER_ND, 3, added, 2, by));
}
