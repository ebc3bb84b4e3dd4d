/* expression.h: element-wise kernels from a C expression.
 *
 * An expression is text in a subset of C, with a signature of its inputs and outputs:
 *
 *   text       y = x > l ? x - l : (x < -l ? x + l : 0)
 *   signature  float x, float l -> float y
 *
 * It becomes records of the element-wise rows of ops.def, like built-in operations: they fuse with their neighbours,
 * have the same bits in every mode, and compiled programs do not depend on the values of numbers among the inputs.
 *
 * Text: assignments to outputs and temporaries, separated by `;`. Temporaries may have a type in front. `+=`, `-=`,
 * `*=` and `/=` change an output or temporary. Operators and precedence are C's, without `++`, `--`, `,`, pointers.
 * `&&`, `||` and `?:` compute all operands.
 * Types: bool, char, short, int, long (64 bits), their unsigned forms and names with a width (int8_t), half, bfloat16,
 * float, double, and T: one dtype, which each run chooses.
 * Conversions are C's: integers below int compute in int, half and bfloat16 in float, and an assignment to a variable
 * with a type converts. A floating literal without `f` is a double that does not widen a float: in x * 0.5 it has x's
 * type. Functions have one name for all floating types (fabs, not fabsf) and compute integers in double. An integer
 * divided by 0 is 0; `%` is for integers.
 * Names: i is the row-major number of the element, index(d) its index along dim d, size(d) the size of dim d; negative
 * d count from the last dim. INFINITY, NAN, M_PI, M_E, true and false are constants.
 *
 * Inputs are broadcast. The gradient is derived from the expression, or parsed from a second text.
 *
 * Threads: an expression and an instance never change; any thread may use them.
 */
#ifndef HEADRACE_EXPRESSION_H_
#define HEADRACE_EXPRESSION_H_

#include "headrace/part.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HR_EXPRESSION_INPUTS_MAX = 32, HR_EXPRESSION_OUTPUTS_MAX = 32 };

typedef struct hr_expression hr_expression;

/* Parses an expression. The caller owns one reference. INVALID_ARGUMENT names the text, the column (from 1, in
 * characters) and what was expected. Nesting is at most 200 levels deep. */
HR_API HR_MUST_USE hr_status hr_expression_parse(const char *text, const char *signature,
                                                 hr_expression **out_expression);
/* Adds and drops a reference; NULL is fine. */
HR_API void hr_expression_retain(hr_expression *expression);
HR_API void hr_expression_release(hr_expression *expression);

/* An input or output. dtype NONE: T. */
typedef struct hr_expression_variable {
  const char *name; /* lives as long as the expression */
  hr_dtype dtype;
  bool is_used; /* an input that an output depends on; an output that is not always 0 */
} hr_expression_variable;
/* The numbers of inputs and outputs, and one of them: 0 <= index < count. */
HR_API int hr_expression_input_count(const hr_expression *expression);
HR_API int hr_expression_output_count(const hr_expression *expression);
HR_API hr_expression_variable hr_expression_input(const hr_expression *expression, int index);
HR_API hr_expression_variable hr_expression_output(const hr_expression *expression, int index);
/* True if it depends on i, index() or size(). */
HR_API bool hr_expression_has_index(const hr_expression *expression);

/* The gradient. Its inputs are those of `expression`, then the gradient of each floating output y, named gy. Its
 * outputs are the gradients gx of the floating inputs x, in their order; T counts as floating. Dims are those of the
 * forward expression: the caller sums the gradients of broadcast inputs. Comparisons, conditions, rounding and integers
 * have no gradient. text: NULL derives it, and fails with UNIMPLEMENTED for a function without a known derivative.
 * Otherwise the text assigns gx for one or more inputs; it may use all names of the forward text. */
HR_API HR_MUST_USE hr_status hr_expression_gradient(const hr_expression *expression, const char *text,
                                                    hr_expression **out_gradient);

/* Checks the types: UNIMPLEMENTED or INVALID_ARGUMENT if the expression has no meaning with this T (complex numbers,
 * `%` of floating numbers). t: NONE if the signature has no T. */
HR_API HR_MUST_USE hr_status hr_expression_check(const hr_expression *expression, hr_dtype t);

/* Prints the rows that a run records, one a line, to `buffer` (terminated, cut to `bytes`), and gives the length of the
 * whole text; for frontends that run them elsewhere. numbers: bit i: input i is a number. rank, dims: of the outputs.
 *   input N dtype | number N dtype ["negated"] | literal value dtype | place dim (-1: i) | row name dtype line ...
 * and last: outputs line ..., -1 for one that is always 0. Lines count from 0. */
HR_API HR_MUST_USE hr_status hr_expression_print(const hr_expression *expression, hr_dtype t, uint64_t numbers,
                                                 int rank, const int64_t *dims, char *buffer, size_t bytes,
                                                 size_t *out_length);

/* Records the expression on a stream. inputs: views, which are broadcast to the outputs' dims, or numbers. outputs: all
 * of the same dims; those with neither buffer nor dtype are not computed. Outputs have the dtypes of the signature. An
 * output may share memory with inputs: all inputs are read first. */
HR_API HR_MUST_USE hr_status hr_expression_record(hr_stream *stream, const hr_expression *expression, hr_dtype t,
                                                  const hr_view *inputs, const hr_view *outputs);

/* An expression for operands of one form, captured once: a run costs a few nanoseconds a record. */
typedef struct hr_expression_instance hr_expression_instance;

/* Captures an instance. inputs and outputs: as hr_expression_record, without buffers. A number among the inputs has a
 * scalar of the kind that runs pass. The caller owns the instance. */
HR_API HR_MUST_USE hr_status hr_expression_instance_create(hr_device *device, const hr_expression *expression,
                                                           hr_dtype t, const hr_view *inputs, const hr_view *outputs,
                                                           hr_expression_instance **out_instance);
/* Frees an instance; NULL is fine. */
HR_API void hr_expression_instance_destroy(hr_expression_instance *instance);
/* Appends the records to a stream. inputs: a buffer for each view, ignored for numbers. outputs: new buffers, without
 * contents, that are no inputs; NULL if the output is not computed. numbers: by input, ignored for views. */
HR_API HR_MUST_USE hr_status hr_expression_instance_run(hr_stream *stream, const hr_expression_instance *instance,
                                                        hr_buffer *const *inputs, hr_buffer *const *outputs,
                                                        const hr_scalar *numbers);

#ifdef __cplusplus
}
#endif

#endif
