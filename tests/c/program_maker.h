/* program_maker.h: helpers shared by the files of the program generator: random choices, tensors, nodes. */
#ifndef HEADRACE_TESTS_PROGRAM_MAKER_H_
#define HEADRACE_TESTS_PROGRAM_MAKER_H_

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/ops/op.h"
#include "program_generator.h"

enum { HR__TENSORS_MAX = 128, HR__COMPLEX_MAX = 6, HR__OPERANDS_MAX = 40 };

typedef struct hr__tensor {
  hr_operand operand;
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
  bool is_writable; /* no element twice */
} hr__tensor;

typedef struct hr__maker {
  uint64_t state;
  generated *g;
  int64_t base[3];
  bool is_sized; /* the base is given, and choices of operations must not depend on the number of elements */
  hr__tensor tensors[HR__TENSORS_MAX];   /* operands point into these: copy before adding the next */
  hr_operand complexes[HR__COMPLEX_MAX]; /* of the base shape; separate, since few rows accept them */
  int tensor_count, complex_count, argument_count;
  hr_status status; /* the first error */
} hr__maker;

/* ---- choices ---- */

uint64_t hr__next(hr__maker *m);
double hr__uniform(hr__maker *m); /* [0, 1) */

static inline int hr__pick(hr__maker *m, int count) {
  return (int)(hr__next(m) % (uint64_t)count);
}
static inline bool hr__chance(hr__maker *m, int of) { /* one in `of` */
  return hr__pick(m, of) == 0;
}
#define HR__PICK_FROM(m, table) ((table)[hr__pick((m), (int)(sizeof(table) / sizeof *(table)))])

hr_dtype hr__any_dtype(hr__maker *m);
hr_dtype hr__real_dtype(hr__maker *m); /* mostly f32 */

/* ---- operands; those with dims are allocated in the program's arena ---- */

static inline hr_operand hr__absent(void) {
  return (hr_operand){.kind = HR_OPERAND_NONE, .fill = HR_NO_SCALAR};
}
int64_t hr__count(const hr_operand *x);
bool hr__has_dims(const hr_operand *x, int rank, const int64_t *dims);

/* An argument of the run: `value`, or one of a few. */
hr_operand hr__number(hr__maker *m, double value);
hr_operand hr__some_number(hr__maker *m);
hr_operand hr__integer(hr__maker *m, int64_t value);

/* A new contiguous tensor with random contents, added to the pool. */
hr_operand hr__new_tensor(hr__maker *m, hr_dtype dtype, int rank, const int64_t *dims);
/* The same with a view that is strided, permuted or reversed. */
hr_operand hr__strange_tensor(hr__maker *m, hr_dtype dtype, int rank, const int64_t *dims);
/* A contiguous tensor outside of the pool, with contents or, if it is fresh, to be written by the next node. */
hr_operand hr__apart(hr__maker *m, hr_dtype dtype, int rank, const int64_t *dims, bool is_dead, bool is_fresh);
/* Integers in [0, extent), rarely one outside; not in the pool. */
hr_operand hr__new_index(hr__maker *m, int rank, const int64_t *dims, int64_t extent);
/* A tensor that the next node writes completely, maybe dead at the end; added to the pool. */
hr_operand hr__new_output(hr__maker *m, hr_dtype dtype, int rank, const int64_t *dims);
/* Adds a view to the pool. */
void hr__add_view(hr__maker *m, const hr_operand *x, bool is_writable);

/* Any tensor of the pool that is real (or of any dtype) and has at least `rank_min` dims. */
hr_operand hr__any_tensor(hr__maker *m, bool is_real, int rank_min);
/* A tensor of these dims: one of the pool, a contiguous one with other dims, or a new one. dtype NONE: any. */
hr_operand hr__input(hr__maker *m, hr_dtype dtype, int rank, const int64_t *dims);
hr_operand hr__real_input(hr__maker *m, int rank, const int64_t *dims);
/* A tensor or number that can be broadcast to these dims. */
hr_operand hr__spreadable(hr__maker *m, int rank, const int64_t *dims);
/* A new output, or a tensor that exists. */
hr_operand hr__output(hr__maker *m, hr_dtype dtype, int rank, const int64_t *dims);
/* A tensor with contents that a node may write to. */
hr_operand hr__target(hr__maker *m, hr_dtype dtype, int rank, const int64_t *dims);

/* Views; the operand's dims and strides are copied. */
hr_operand hr__slice(hr__maker *m, hr_operand x, int dim, int64_t start, int64_t count, int64_t step);
hr_operand hr__permute(hr__maker *m, hr_operand x, const int *order);
hr_operand hr__reverse(hr__maker *m, hr_operand x, int dim);
hr_operand hr__reshape(hr__maker *m, hr_operand x, int rank, const int64_t *dims); /* x is contiguous */
bool hr__is_contiguous(const hr_operand *x);

/* ---- nodes ---- */

typedef struct hr__draft { /* a node in work */
  hr_op op;
  int input_count, output_count, int_count, scalar_count;
  hr_operand inputs[HR__OPERANDS_MAX], outputs[HR__OPERANDS_MAX];
  int64_t ints[24];
  hr_scalar scalars[8];
} hr__draft;

static inline hr__draft hr__begin(hr_op op) {
  hr__draft draft;
  memset(&draft, 0, sizeof draft);
  draft.op = op;
  return draft;
}
static inline void hr__in(hr__draft *d, hr_operand x) {
  d->inputs[d->input_count++] = x;
}
static inline void hr__out(hr__draft *d, hr_operand x) {
  d->outputs[d->output_count++] = x;
}
static inline void hr__int(hr__draft *d, int64_t x) {
  d->ints[d->int_count++] = x;
}
static inline void hr__scalar(hr__draft *d, double x) {
  d->scalars[d->scalar_count++] = hr_scalar_f64(x);
}
static inline void hr__scalar_integer(hr__draft *d, int64_t x) {
  d->scalars[d->scalar_count++] = hr_scalar_i64(x);
}
/* Appends the node if recording would accept it; otherwise does nothing, or returns an error. */
void hr__end(hr__maker *m, hr__draft *draft);

/* One random operation: element-wise and reduce rows, or composites and contractions. */
void hr__add_rows(hr__maker *m);
void hr__add_composite(hr__maker *m);

#endif
