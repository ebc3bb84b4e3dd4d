/* gradient_scatter.c: gradients of scatters that multiply, or take the larger or smaller value.
 *
 * They read the output before the record. Of equal largest or smallest values each has the same part of the gradient,
 * as in PyTorch's index_reduce.
 */
#include "functional/formula.h"
#include "transform/gradients.h"

enum { ADD = 1, MULTIPLY = 2 }; /* modes of the row */

/* The operands of the record. Of a source that is larger than the index: the elements that have one. */
typedef struct scatter {
  int64_t dim;
  const hr_tensor *index, *source, *before, *y, *g;
} scatter;

static const hr_tensor *gathered(hr__formula *f, const scatter *s, const hr_tensor *x) {
  const hr_tensor *inputs[2] = {x, s->index};
  hr_attrs attrs = {.int_count = 1, .ints = &s->dim};
  return hr__step(f, HR_OP_GATHER, &attrs, 2, inputs, HR_DTYPE_NONE);
}

/* A copy of x, broadcast to the output, into which values are scattered. */
static const hr_tensor *scattered(hr__formula *f, const scatter *s, const hr_tensor *x, const hr_tensor *values,
                                  int64_t mode) {
  const int64_t ints[3] = {s->dim, mode, 1};
  const hr_attrs attrs = {.int_count = 3, .ints = ints};
  const hr_tensor *inputs[2] = {s->index, values}, *out = hr__copied(f, x, s->y->dtype, s->y->rank, s->y->dims);
  if (!hr__formula_failed(f)) {
    hr__formula_fail(f, hr__write_row(f->call, HR_OP_SCATTER, &attrs, 2, inputs, out));
  }
  return out;
}

static const hr_tensor *conjugate(hr__formula *f, const hr_tensor *x) {
  return hr_dtype_is_complex(x->dtype) ? hr__unary(f, HR_OP_CONJ, x) : x;
}

static const hr_tensor *times(hr__formula *f, const hr_tensor *x, const hr_tensor *y) {
  return hr__binary(f, HR_OP_MUL, x, y);
}

static void give(hr__formula *f, const hr__backward *b, const hr__operand *to, const hr_tensor *gradient) {
  if (!hr__formula_failed(f)) {
    hr__operand part = *to;
    part.view.dims = gradient->dims;
    hr__formula_fail(f, hr__adjoint_add(b->adjoints, &b->call, &part, gradient));
  }
}

/* The product without the factor: y / factor; of the only 0, that of the others, which is 0 for several. */
static const hr_tensor *others(hr__formula *f, const scatter *s) {
  const hr_tensor *one = hr__integer(f, 1), *zero = hr__integer(f, 0);
  const hr_tensor *is_zero = hr__binary(f, HR_OP_EQ, s->source, zero);
  const hr_tensor *zeros = gathered(f, s, scattered(f, s, zero, hr__as_dtype(f, is_zero, s->y->dtype), ADD));
  const hr_tensor *is_only = hr__binary(f, HR_OP_LOGICAL_AND, is_zero, hr__binary(f, HR_OP_EQ, zeros, one));
  const hr_tensor *kept = hr__ternary(f, HR_OP_WHERE, is_only, one, s->source);
  const hr_tensor *product = scattered(f, s, s->before, kept, MULTIPLY);
  const hr_tensor *divisor = conjugate(f, hr__ternary(f, HR_OP_WHERE, is_zero, one, s->source));
  const hr_tensor *quotient = hr__binary(f, HR_OP_DIV, gathered(f, s, times(f, s->g, conjugate(f, s->y))), divisor);
  return hr__ternary(f, HR_OP_WHERE, is_only, gathered(f, s, times(f, s->g, conjugate(f, product))), quotient);
}

static void give_products(hr__formula *f, const hr__backward *b, const scatter *s) {
  const hr_tensor *factor = scattered(f, s, hr__integer(f, 1), s->source, MULTIPLY);
  give(f, b, hr__taped_output(b, 0), times(f, s->g, conjugate(f, factor)));
  if (hr__wants(b, 1)) {
    give(f, b, hr__taped_input(b, 1), others(f, s));
  }
}

static void give_extremes(hr__formula *f, const hr__backward *b, const scatter *s) {
  const hr_tensor *zero = hr__integer(f, 0), *is_nan = hr__binary(f, HR_OP_NE, s->before, s->before);
  const hr_tensor *stays = hr__binary(f, HR_OP_LOGICAL_OR, hr__binary(f, HR_OP_EQ, s->before, s->y), is_nan);
  const hr_tensor *wins = hr__binary(f, HR_OP_EQ, s->source, gathered(f, s, s->y));
  const hr_tensor *count = hr__as_dtype(f, stays, s->y->dtype);
  count = scattered(f, s, count, hr__as_dtype(f, wins, s->y->dtype), ADD);
  const hr_tensor *part = hr__binary(f, HR_OP_DIV, s->g, count);
  give(f, b, hr__taped_output(b, 0), hr__ternary(f, HR_OP_WHERE, stays, part, zero));
  if (hr__wants(b, 1)) {
    give(f, b, hr__taped_input(b, 1), hr__ternary(f, HR_OP_WHERE, wins, gathered(f, s, part), zero));
  }
}

hr_status hr__gradient_of_combination(const hr__backward *b) {
  hr_tensor numbers[2];
  hr__formula f;
  hr__formula_begin(&f, &b->call);
  scatter s = {.dim = b->record->attrs.ints[0],
               .index = hr__value(hr__taped_input(b, 0), &numbers[0]),
               .source = hr__value(hr__taped_input(b, 1), &numbers[1]),
               .before = &hr__taped_output(b, 0)->before->tensor,
               .y = hr__value(hr__taped_output(b, 0), NULL),
               .g = hr__g(b, 0)};
  for (int d = 0; s.source->buffer != NULL && d < s.source->rank; ++d) {
    s.source = hr__part(&f, s.source, d, 0, s.index->dims[d]);
  }
  if (b->record->attrs.ints[1] == MULTIPLY) {
    give_products(&f, b, &s);
  } else {
    give_extremes(&f, b, &s);
  }
  return hr__formula_finish(&f, 0, NULL);
}
