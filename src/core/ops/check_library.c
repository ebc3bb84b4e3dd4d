/* Checks of library rows: the one walk over `shapes` (ops.def) that gives each letter its value and compares. */
#include <string.h>

#include "core/ir/dtype.h"
#include "core/ops/check_internal.h"

enum { LETTERS = 26, UNBOUND = -1 };

typedef struct walk {
  const hr__checked *c;
  hr_dtype dtype; /* T */
  int batch_rank; /* of the dims that `..` stands for; UNBOUND before the first operand that has them */
  const int64_t *batch;
  int64_t values[LETTERS];
} walk;

/* One operand of the row: "I?..NM". */
typedef struct pattern {
  char dtype;
  bool is_optional, has_batch;
  int dim_count;
  const char *dims;
} pattern;

static const char *read_pattern(const char *at, pattern *out_pattern) {
  pattern p = {.dtype = *at++};
  if (*at == '?') {
    p.is_optional = true;
    ++at;
  }
  if (*at == '.') {
    p.has_batch = true;
    at += 2;
  }
  p.dims = at;
  while (*at != '\0' && *at != ' ') {
    ++at;
  }
  p.dim_count = (int)(at - p.dims);
  *out_pattern = p;
  return at;
}

static hr_dtype real_of(hr_dtype dtype) {
  return dtype == HR_DTYPE_C64    ? HR_DTYPE_F32
         : dtype == HR_DTYPE_C128 ? HR_DTYPE_F64
         : dtype == HR_DTYPE_C32  ? HR_DTYPE_F16
                                  : dtype;
}

static hr_dtype complex_of(hr_dtype dtype) {
  return dtype == HR_DTYPE_F32   ? HR_DTYPE_C64
         : dtype == HR_DTYPE_F64 ? HR_DTYPE_C128
         : dtype == HR_DTYPE_F16 ? HR_DTYPE_C32
                                 : dtype;
}

static hr_status check_dtype(walk *w, const char *side, int i, const hr_view *view, char letter) {
  hr_dtype wanted = view->dtype;
  switch (letter) {
    case 'T':
      w->dtype = w->dtype == HR_DTYPE_NONE ? view->dtype : w->dtype;
      wanted = w->dtype;
      break;
    case 'R':
      wanted = real_of(w->dtype);
      break;
    case 'C':
      wanted = complex_of(w->dtype);
      break;
    case 'I':
      wanted = HR_DTYPE_I64;
      break;
    case 'J':
      wanted = HR_DTYPE_I32;
      break;
    case 'B':
      wanted = HR_DTYPE_BOOL;
      break;
    default:
      break;
  }
  return view->dtype == wanted ? HR_OK
                               : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: %s %d is %s, expected %s", w->c->name,
                                                side, i, hr_dtype_name(view->dtype), hr_dtype_name(wanted));
}

static bool batch_fits(walk *w, const hr_view *view, int rank) {
  if (w->batch_rank == UNBOUND) {
    w->batch_rank = rank;
    w->batch = view->dims;
  }
  return rank == w->batch_rank && (rank == 0 || memcmp(view->dims, w->batch, (size_t)rank * sizeof *w->batch) == 0);
}

static bool dim_fits(walk *w, char letter, int64_t dim) {
  if (letter == '1') {
    return dim == 1;
  }
  int64_t *value = &w->values[letter - 'A'];
  *value = *value == UNBOUND ? dim : *value;
  return *value == dim;
}

static hr_status check_operand(walk *w, const char *side, int i, const hr_view *view, const pattern *p) {
  if (view->buffer == NULL) {
    return p->is_optional && view->scalar == NULL
               ? HR_OK
               : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: %s %d is %s", w->c->name, side, i,
                                view->scalar == NULL ? "absent" : "a number, not a tensor");
  }
  HR_RETURN_IF_ERROR(check_dtype(w, side, i, view, p->dtype));
  int batch = view->rank - p->dim_count;
  bool fits = p->has_batch ? batch >= 0 && batch_fits(w, view, batch) : batch == 0;
  for (int d = 0; fits && d < p->dim_count; ++d) {
    fits = dim_fits(w, p->dims[d], view->dims[batch + d]);
  }
  char found[HR__DIMS_TEXT];
  return fits ? HR_OK
              : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: %s %d has dims %s, which are no %.*s of '%s'",
                               w->c->name, side, i, hr__view_dims(view, found), p->dim_count + 2 * p->has_batch,
                               p->dims - 2 * p->has_batch, hr_op_table(w->c->op)->shapes);
}

/* Operands that the list leaves out at its end are absent. */
static hr_status check_side(walk *w, const char *side, int count, const hr_view *views, const char **at) {
  static const hr_view absent;
  int i = 0;
  for (; **at != '\0' && **at != '>'; ++i) {
    pattern p;
    *at = read_pattern(*at, &p);
    HR_RETURN_IF_ERROR(check_operand(w, side, i, i < count ? &views[i] : &absent, &p));
    *at += **at == ' ';
  }
  return count <= i ? HR_OK
                    : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: %d %ss, expected at most %d", w->c->name, count,
                                     side, i);
}

hr_status hr__check_library(const hr__checked *c) {
  const hr_op_row *row = hr_op_table(c->op);
  const char *at = row->shapes;
  walk w = {.c = c, .batch_rank = UNBOUND};
  for (int i = 0; i < LETTERS; ++i) {
    w.values[i] = UNBOUND;
  }
  if (c->int_count != row->int_count || c->scalar_count != row->scalar_count) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: %d ints and %d scalars, expected %d and %d", c->name,
                          c->int_count, c->scalar_count, row->int_count, row->scalar_count);
  }
  HR_RETURN_IF_ERROR(check_side(&w, "input", c->input_count, c->inputs, &at));
  at += *at == '>' ? 1 + (at[1] == ' ') : 0;
  return check_side(&w, "output", c->output_count, c->outputs, &at);
}
