/* functions.h: helpers for the functions that emit the rows of functional.def.
 *
 * An emitting function reads the inputs and attributes of a call, infers the result and records rows of ops.def on
 * views. A call without a stream only infers: results and intermediates have types, but no buffers. A failed call
 * leaves no output and records nothing that anybody can see.
 */
#ifndef HEADRACE_FUNCTIONAL_FUNCTIONS_H_
#define HEADRACE_FUNCTIONAL_FUNCTIONS_H_

#include <string.h>

#include "core/ops/infer.h"
#include "headrace/functional.h"

typedef struct hr__attribute_row {
  const char *name; /* NULL: the end of the list */
  hr_attribute_kind kind;
  bool is_required;
  double value;     /* the default of INT, FLAG and REAL */
  const char *word; /* of TEXT */
  bool is_long;     /* INTS of any number, else at most HR_RANK_MAX */
} hr__attribute_row;

typedef struct hr__function_call hr__function_call;

/* Of what there is one result each. */
typedef enum hr__results_per {
  HR__PER_CALL = 0,
  HR__PER_INPUT,
  HR__PER_SLICE,
  HR__PER_PART,
  HR__PER_MODE
} hr__results_per;

typedef struct hr__function_row {
  const char *name;
  hr_status (*emit)(const hr__function_call *call);
  hr_op op;                  /* of the record, or NONE */
  int input_count;           /* named ones */
  bool is_variadic;          /* any number of the only one, from one on */
  const char *const *inputs; /* their names */
  const hr__attribute_row *attributes;
  int result_count; /* 0: one */
  hr__results_per results_per;
  const char *const *results; /* the names of several */
} hr__function_row;

/* The row of a function; one without `emit` for a number that is none. */
const hr__function_row *hr__function_row_of(hr_functional function);

struct hr__function_call {
  const hr__function_row *row;
  hr_stream *stream; /* NULL: infer */
  int input_count;
  const hr_tensor *const *inputs;
  int attribute_count;
  const hr_attribute *attributes;
  int output_count;  /* at least one */
  hr_tensor *output; /* the first one */
};

#define HR__CALL_FAIL(call, format, ...) \
  hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: " format, (call)->row->name __VA_OPT__(, ) __VA_ARGS__)

/* "[2,3]" in `text` of at least HR__SHAPE_TEXT bytes; returns it. */
enum { HR__SHAPE_TEXT = HR__DIMS_TEXT };
const char *hr__shape_text(int rank, const int64_t *dims, char *text);

/* ---- attributes: the number of one in the row's list ---- */

/* NULL: not given. */
const hr_attribute *hr__given_attribute(const hr__function_call *call, int index);
/* The value of an INT or FLAG, of a REAL and of a DTYPE (NONE: not given). */
int64_t hr__int_attribute(const hr__function_call *call, int index);
hr_scalar hr__real_attribute(const hr__function_call *call, int index);
hr_dtype hr__dtype_attribute(const hr__function_call *call, int index);
/* The dtype of a sum or product: the attribute's, or without it u64 for unsigned integers, NONE (the row's) for others.
 */
hr_dtype hr__sum_dtype(const hr__function_call *call, int attribute);
const char *hr__text_attribute(const hr__function_call *call, int index);
/* The number of a TEXT's word among `count` ones. */
hr_status hr__word_attribute(const hr__function_call *call, int index, int count, const char *const *words,
                             int *out_word);
/* An axis of `rank` dims; negative ones count from the end. */
hr_status hr__check_axis(const hr__function_call *call, int64_t axis, int rank, int *out_axis);
/* AXES or INTS of axes as bits; all dims if they are not given. Fails for one that is given twice. */
hr_status hr__axes_attribute(const hr__function_call *call, int index, int rank, uint32_t *out_mask);

/* ---- views ---- */

/* The number of elements; false if it does not fit 64 bits. */
bool hr__count_elements(int rank, const int64_t *dims, int64_t *out_count);
/* A failure instead of false: views of too many elements need no memory. */
hr_status hr__check_count(const hr__function_call *c, int rank, const int64_t *dims, int64_t *out_count);
/* Copies `rank` dims, or strides, between arrays of HR_RANK_MAX: up to four as one piece, without a call. Both need
 * room for four elements; parts of arrays, and lists of `rank` elements, are copied by memmove. */
static inline void hr__copy_dims(int rank, const int64_t *from, int64_t *to) {
  if (rank <= 4) {
    memmove(to, from, 4 * sizeof *to);
  } else {
    memmove(to, from, (size_t)rank * sizeof *to);
  }
}
/* Copies the fields that are in use: dims and strides up to the rank. */
static inline void hr__copy_tensor(const hr_tensor *from, hr_tensor *to) {
  memcpy(to, from, offsetof(hr_tensor, dims));
  hr__copy_dims(from->rank, from->dims, to->dims);
  hr__copy_dims(from->rank, from->strides, to->strides);
}

/* Another view of x's buffer, with x's type, and a reference of its own. */
void hr__view_like(const hr_tensor *x, hr_tensor *out);
/* Dim `from` at place `to`, the others in their order; in place. */
void hr__move_dim(hr_tensor *x, int from, int to);
/* Without the dims of the mask, whose size is 1; in place. */
void hr__drop_dims(hr_tensor *x, uint32_t mask);
/* x repeated along dims of size 1 and leading ones. */
hr_status hr__broadcast(const hr__function_call *call, const hr_tensor *x, int rank, const int64_t *dims,
                        hr_tensor *out);

/* ---- records ---- */

/* True if convolutions of the device have rows with different padding on two sides (layers.c). */
bool hr__skips_padding(const hr__function_call *c);
/* Infers the outputs of a row, creates and records them. inputs: NULL for absent ones. outputs: NULL for absent ones;
 * on entry their dtype (NONE: inferred), and the rank and dims of those that the row lets the caller choose. */
hr_status hr__record_row(const hr__function_call *call, hr_op op, const hr_attrs *attrs, int input_count,
                         const hr_tensor *const *inputs, int output_count, hr_tensor *const *outputs);
/* Records a row with one output, which exists and has the row's type. At most HR_RANK_MAX + 7 inputs. */
hr_status hr__write_row(const hr__function_call *call, hr_op op, const hr_attrs *attrs, int input_count,
                        const hr_tensor *const *inputs, const hr_tensor *output);
/* hr__record_row for one output without dims. dtype: NONE, or the output's. */
hr_status hr__record_one(const hr__function_call *call, hr_op op, const hr_attrs *attrs, int input_count,
                         const hr_tensor *const *inputs, hr_dtype dtype, hr_tensor *out);
/* hr__record_one for an element-wise row by hr_stream_record_alike; out may be an input. False: nothing is recorded,
 * and hr__record_one decides. */
bool hr__record_alike(hr_stream *stream, hr_op op, int input_count, const hr_tensor *const *inputs, hr_tensor *out,
                      hr_status *out_status);
/* Records into a new row-major tensor of this type. */
hr_status hr__record_new(const hr__function_call *call, hr_op op, const hr_attrs *attrs, int input_count,
                         const hr_tensor *const *inputs, hr_dtype dtype, int rank, const int64_t *dims, hr_tensor *out);
/* x's elements in row-major order without gaps: a view if they are. */
hr_status hr__make_dense(const hr__function_call *call, const hr_tensor *x, hr_tensor *out);
/* x in this dtype: a view if it has it. */
hr_status hr__convert(const hr__function_call *call, const hr_tensor *x, hr_dtype dtype, hr_tensor *out);
/* x's elements in row-major order, with other dims of the same number of elements: a view if strides allow that. */
hr_status hr__reshape(const hr__function_call *call, const hr_tensor *x, int rank, const int64_t *dims, hr_tensor *out);

/* The index by the call's row of one axis, or in the flattened x. */
hr_status hr__emit_argreduce(const hr__function_call *call);
/* Results of array_split. */
hr_status hr__count_parts(const hr__function_call *call, int *out_count);
/* Results of quantize: two, and biases of mode affine. */
hr_status hr__count_quantized(const hr__function_call *call, int *out_count);

#define HR_FUNCTIONAL(NAME, name, emit, ...) hr_status hr__emit_##emit(const hr__function_call *call);
#include "functional/functional.def"
#undef HR_FUNCTIONAL

#endif
