/* matrices.c: operands of the rows of linear algebra, and the report of failed decompositions. */
#include "functional/matrices.h"

#include "base/allocator.h"
#include "headrace/function.h"

/* ---- operands ---- */

bool hr__has_factors(hr_dtype dtype) {
  return dtype == HR_DTYPE_F32 || dtype == HR_DTYPE_F64 || dtype == HR_DTYPE_C64 || dtype == HR_DTYPE_C128;
}

const hr_tensor *hr__matrices(hr__formula *f, int i) {
  const hr_tensor *x = f->call->inputs[i];
  if (x->rank < 2) {
    hr__formula_fail(f, HR__CALL_FAIL(f->call, "input %d has %d dims, expected at least 2", i, x->rank));
  } else if (!hr_dtype_is_integer(x->dtype) && !hr__has_factors(x->dtype)) {
    hr__formula_fail(f, hr_status_make(HR_STATUS_UNIMPLEMENTED,
                                       "%s: input %d has dtype %s, expected f32, f64, c64 or c128", f->call->row->name,
                                       i, hr_dtype_name(x->dtype)));
  }
  return hr__as_dtype(f, x, hr_dtype_is_integer(x->dtype) ? HR_DTYPE_F32 : x->dtype);
}

const hr_tensor *hr__square_matrices(hr__formula *f, int i) {
  const hr_tensor *x = hr__matrices(f, i);
  if (!hr__formula_failed(f) && x->dims[x->rank - 1] != x->dims[x->rank - 2]) {
    char dims[HR__SHAPE_TEXT];
    hr__formula_fail(f, HR__CALL_FAIL(f->call, "input %d has dims %s, expected square matrices", i,
                                      hr__shape_text(x->rank, x->dims, dims)));
  }
  return x;
}

const hr_tensor *hr__transposed(hr__formula *f, const hr_tensor *x) {
  return hr__formula_failed(f) ? x : hr__moved(f, x, x->rank - 1, x->rank - 2);
}

const hr_tensor *hr__columns(hr__formula *f, const hr_tensor *x) {
  return hr__dense(f, hr__transposed(f, x));
}

const hr_tensor *hr__filled(hr__formula *f, double number, hr_dtype dtype, int rank, const int64_t *dims) {
  return hr__copied(f, hr__real(f, number), dtype, rank, dims);
}

const hr_tensor *hr__identities(hr__formula *f, const hr_tensor *x, int64_t rows, int64_t columns) {
  const hr_attribute sizes[3] = {{.kind = HR_ATTRIBUTE_INT, .value = {.integer = rows}},
                                 {.kind = HR_ATTRIBUTE_INT, .value = {.integer = columns}},
                                 {.kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = x->dtype}}};
  const hr_tensor *one = hr__function(f, HR_FUNCTIONAL_EYE, 0, NULL, 3, sizes);
  if (hr__formula_failed(f)) {
    return one;
  }
  int64_t dims[HR_RANK_MAX];
  hr__copy_dims(x->rank, x->dims, dims);
  dims[x->rank - 2] = rows, dims[x->rank - 1] = columns;
  return hr__copied(f, one, x->dtype, x->rank, dims);
}

int64_t hr__row_count(const hr__formula *f, const hr_tensor *x) {
  return hr__formula_failed(f) ? 0 : x->dims[x->rank - 2];
}

int64_t hr__column_count(const hr__formula *f, const hr_tensor *x) {
  return hr__formula_failed(f) ? 0 : x->dims[x->rank - 1];
}

/* ---- failed decompositions ---- */

typedef struct info_check {
  int64_t count;
  const char *text;
} info_check;

static hr_status check_values(const info_check *check, const int32_t *info) {
  for (int64_t i = 0; i < check->count; ++i) {
    if (info[i] != 0) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "matrix %lld of %lld is %s: pivot %d", (long long)i,
                            (long long)check->count, check->text, info[i]);
    }
  }
  return HR_OK;
}

static hr_status run_check(const hr_function_call *call) {
  return check_values(call->arg, call->inputs[0]);
}

void hr__check_info(hr__formula *f, const hr_tensor *info, const char *text) {
  const hr__function_call *c = f->call;
  if (hr__formula_failed(f) || c->stream == NULL) {
    return;
  }
  info_check *check = hr_malloc(sizeof *check);
  if (check == NULL) {
    hr__formula_fail(f, hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "%s: no memory", c->row->name));
    return;
  }
  *check = (info_check){hr_tensor_count(info), text};
  hr_view view = hr_tensor_view(info);
  hr_function_spec spec = {
      .name = c->row->name, .run = run_check, .arg = check, .release = hr_free, .is_on_host = true};
  hr__formula_fail(f, hr_function_record(c->stream, &spec, 1, &view, 0, NULL));
}
