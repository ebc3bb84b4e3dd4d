/* Inference of library rows: one walk over `shapes` (ops.def) that assigns each letter's value and compares. */
#include <string.h>

#include "core/ops/infer.h"

enum { LETTERS = 26, UNBOUND = -1 };

typedef struct walk {
  const hr__checked *c;
  hr_dtype dtype; /* T */
  int batch_rank; /* number of dims that `..` stands for; UNBOUND before the first operand with `..` */
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
  while (*at != '\0' && *at != ' ' && *at != ';') {
    ++at;
  }
  p.dim_count = (int)(at - p.dims);
  *out_pattern = p;
  return at;
}

static hr_dtype dtype_of_letter(const walk *w, char letter) {
  switch (letter) {
    case 'T':
      return w->dtype;
    case 'R':
      return hr__dtype_real(w->dtype);
    case 'C':
      return hr__dtype_complex(w->dtype);
    case 'J':
      return HR_DTYPE_I32;
    case 'B':
      return HR_DTYPE_BOOL;
    default: /* I, A */
      return HR_DTYPE_I64;
  }
}

static hr_status check_dtype(walk *w, const char *side, int i, const hr_view *view, char letter) {
  w->dtype = w->dtype == HR_DTYPE_NONE && letter == 'T' ? view->dtype : w->dtype;
  hr_dtype wanted = letter == 'A' ? view->dtype : dtype_of_letter(w, letter);
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

/* True if the letters match the view's dims: batch dims, then one dim for each letter. */
static bool dims_fit(walk *w, const hr_view *view, const pattern *p) {
  int batch = view->rank - p->dim_count;
  bool fits = p->has_batch ? batch >= 0 && batch_fits(w, view, batch) : batch == 0;
  for (int d = 0; fits && d < p->dim_count; ++d) {
    fits = dim_fits(w, p->dims[d], view->dims[batch + d]);
  }
  return fits;
}

static hr_status refuse_dims(const walk *w, const char *side, int i, const hr_view *view, const pattern *p) {
  char found[HR__DIMS_TEXT];
  return FAIL(w->c, "%s %d has dims %s, which are no %.*s of '%s'", side, i, hr__view_dims(view, found),
              p->dim_count + 2 * p->has_batch, p->dims - 2 * p->has_batch, hr_op_table(w->c->op)->shapes);
}

static hr_status check_operand(walk *w, const char *side, int i, const hr_view *view, const pattern *p) {
  if (view->buffer == NULL) {
    return p->is_optional && view->scalar == NULL
               ? HR_OK
               : FAIL(w->c, "%s %d is %s", side, i, view->scalar == NULL ? "absent" : "a number, not a tensor");
  }
  HR_RETURN_IF_ERROR(check_dtype(w, side, i, view, p->dtype));
  return dims_fit(w, view, p) ? HR_OK : refuse_dims(w, side, i, view, p);
}

/* Assigns letters from the dims that an inference's caller gave. */
static hr_status read_given(walk *w, const char *side, int i, const hr_view *view, const pattern *p) {
  if (i >= w->c->output_count) {
    return HR_OK;
  }
  if (view->dtype != HR_DTYPE_NONE) {
    HR_RETURN_IF_ERROR(check_dtype(w, side, i, view, p->dtype));
  }
  return view->rank == 0 || dims_fit(w, view, p) ? HR_OK : refuse_dims(w, side, i, view, p);
}

static hr_status give_operand(walk *w, const char *side, int i, const hr_view *view, const pattern *p) {
  int64_t dims[HR_RANK_MAX];
  (void)view, (void)side;
  int batch = p->has_batch && w->batch_rank != UNBOUND ? w->batch_rank : 0;
  for (int d = 0; d < batch; ++d) {
    dims[d] = w->batch[d];
  }
  for (int d = 0; d < p->dim_count; ++d) {
    int64_t value = p->dims[d] == '1' ? 1 : w->values[p->dims[d] - 'A'];
    if (value == UNBOUND && i < w->c->output_count) {
      return hr__refuse_choice(w->c, i);
    }
    dims[batch + d] = value;
  }
  hr__set_type(w->c, i, dtype_of_letter(w, p->dtype), batch + p->dim_count, dims);
  return HR_OK;
}

typedef hr_status (*operand_fn)(walk *w, const char *side, int i, const hr_view *view, const pattern *p);

static bool is_end(char letter) {
  return letter == '\0' || letter == '>' || letter == ';';
}

/* Operands missing at the list's end are absent. */
static hr_status walk_side(walk *w, const char *side, int count, const hr_view *views, const char **at, operand_fn fn) {
  static const hr_view absent;
  int i = 0;
  for (; !is_end(**at); ++i) {
    pattern p;
    *at = read_pattern(*at, &p);
    HR_RETURN_IF_ERROR(fn(w, side, i, i < count ? &views[i] : &absent, &p));
    *at += **at == ' ';
  }
  return count <= i ? HR_OK : FAIL(w->c, "%d %ss, expected at most %d", count, side, i);
}

/* ---- values of letters that occur in no input: "K=min(M,N) N~whole(K)" ---- */

typedef struct definition {
  char letter;
  bool is_default;
  int64_t value; /* UNBOUND for a letter without a value */
} definition;

static int64_t value_of(const walk *w, const char *name, int64_t a, int64_t b) {
  if (a == UNBOUND || b == UNBOUND) {
    return UNBOUND;
  }
  if (strncmp(name, "min", 3) == 0) {
    return a < b ? a : b;
  }
  if (strncmp(name, "max", 3) == 0) {
    return a > b ? a : b;
  }
  if (strncmp(name, "full", 4) == 0) {
    return w->c->ints[0] != 0 ? a : b;
  }
  if (strncmp(name, "half", 4) == 0) {
    return a / 2 + 1;
  }
  if (strncmp(name, "less", 4) == 0) {
    return a > 0 ? a - 1 : 0;
  }
  return a > 0 ? 2 * a - 2 : 0; /* whole */
}

static const char *read_definition(const walk *w, const char *at, definition *out_definition) {
  const char *name = at + 2, *letters = strchr(name, '(') + 1, *end = strchr(letters, ')');
  int64_t a = w->values[letters[0] - 'A'], b = letters[1] == ',' ? w->values[letters[2] - 'A'] : a;
  *out_definition = (definition){.letter = at[0], .is_default = at[1] == '~', .value = value_of(w, name, a, b)};
  return end + 1 + (end[1] == ' ');
}

/* Assigns the letters' values; defaults only in an inference without given dims. */
static void define_letters(walk *w, bool with_defaults) {
  const char *at = strchr(hr_op_table(w->c->op)->shapes, ';');
  for (at = at == NULL ? "" : at + 2; *at != '\0';) {
    definition d;
    at = read_definition(w, at, &d);
    int64_t *value = &w->values[d.letter - 'A'];
    if (*value == UNBOUND && (!d.is_default || with_defaults)) {
      *value = d.value;
    }
  }
}

static hr_status infer_outputs(walk *w, const char *outputs) {
  const hr__checked *c = w->c;
  const char *at = outputs;
  HR_RETURN_IF_ERROR(walk_side(w, "output", c->output_count, c->outputs, &at, read_given));
  define_letters(w, true);
  at = outputs;
  return walk_side(w, "output", c->output_count, c->outputs, &at, give_operand);
}

/* ---- the row of any operands ---- */

static hr_status check_updated(const hr__checked *c) {
  int64_t updated = c->ints[1];
  if (updated < 0 || updated > c->input_count || updated > c->output_count) {
    return FAIL(c, "%lld updated operands of %d inputs and %d outputs", (long long)updated, c->input_count,
                c->output_count);
  }
  for (int i = 0; i < updated; ++i) {
    const hr_view *x = &c->inputs[i], *y = &c->outputs[i];
    if (x->dtype != y->dtype) {
      return FAIL(c, "output %d is %s, its input %s", i, hr_dtype_name(y->dtype), hr_dtype_name(x->dtype));
    }
    HR_RETURN_IF_ERROR(hr__want_like(c, "an updated output", y, x));
  }
  return HR_OK;
}

static hr_status infer_any(const hr__checked *c) {
  if (c->int_count != c->row->int_count) {
    return FAIL(c, "%d ints, expected %d", c->int_count, c->row->int_count);
  }
  for (int i = 0; i < c->input_count; ++i) {
    if (c->inputs[i].buffer == NULL) {
      return FAIL(c, "input %d is %s", i, c->inputs[i].scalar == NULL ? "absent" : "a number, not a tensor");
    }
  }
  for (int i = 0; i < c->output_count; ++i) {
    const hr_view *y = &c->outputs[i];
    if (y->buffer == NULL) {
      return FAIL(c, "output %d is absent", i);
    }
    if (c->types != NULL && y->dtype == HR_DTYPE_NONE) {
      return hr__refuse_choice(c, i);
    }
  }
  return check_updated(c);
}

hr_status hr__infer_library(const hr__checked *c) {
  const hr_op_row *row = c->row;
  const char *at = row->shapes;
  if (*at == '*') {
    return infer_any(c);
  }
  walk w = {.c = c, .batch_rank = UNBOUND};
  for (int i = 0; i < LETTERS; ++i) {
    w.values[i] = UNBOUND;
  }
  if (c->int_count != row->int_count || c->scalar_count != row->scalar_count) {
    return FAIL(c, "%d ints and %d scalars, expected %d and %d", c->int_count, c->scalar_count, row->int_count,
                row->scalar_count);
  }
  HR_RETURN_IF_ERROR(walk_side(&w, "input", c->input_count, c->inputs, &at, check_operand));
  define_letters(&w, false);
  at += *at == '>' ? 1 + (at[1] == ' ') : 0;
  return c->types != NULL ? infer_outputs(&w, at)
                          : walk_side(&w, "output", c->output_count, c->outputs, &at, check_operand);
}
