/* gradients.h: the table of gradients, and what its rules need: reading values and giving gradients. */
#ifndef HEADRACE_TRANSFORM_GRADIENTS_H_
#define HEADRACE_TRANSFORM_GRADIENTS_H_

#include "transform/adjoint.h"

/* ---- the table (gradients.def) ---- */

enum { HR__RULES_MAX = 5 };

typedef enum hr__gradient_kind {
  HR__GRADIENT_MISSING = 0, /* a gradient that reaches the row is an error, with this reason */
  HR__GRADIENT_NONE,        /* the results do not depend on inputs, or are constant between steps */
  HR__GRADIENT_TEXT,        /* an expression for each input */
  HR__GRADIENT_ROW,         /* another row computes the gradients of all inputs */
  HR__GRADIENT_CODE,        /* a function */
  HR__GRADIENT_LOOPS        /* the tape records the row's loops in its place */
} hr__gradient_kind;

typedef struct hr__backward hr__backward;

typedef struct hr__gradient {
  hr__gradient_kind kind;
  const char *rules[HR__RULES_MAX]; /* TEXT: expressions; CODE: the letters that each input's gradient reads; ROW: the
                                     * inputs of the row that computes it */
  hr_op row;                        /* ROW */
  const char *targets;              /* ROW: for each of its outputs the inputs whose gradient it is */
  hr_status (*code)(hr__backward *backward);
  const char *reason; /* MISSING, NONE */
} hr__gradient;

const hr__gradient *hr__gradient_of(hr_op op);

/* Bits of the operands, and of the outputs' gradients, that rules read. The last bit stands for all from there on. */
typedef struct hr__letters {
  uint64_t inputs, outputs, gradients;
  bool before; /* what output 0 was before the record */
} hr__letters;

static inline bool hr__has_letter(uint64_t letters, int i) {
  return (letters >> (i < 63 ? i : 63) & 1) != 0;
}
/* Those of the rules of active inputs, and of all rules of a row. Rows that change a part of their outputs need theirs
 * in any case. */
hr__letters hr__gradient_letters(const hr__taped *record);
hr__letters hr__row_letters(hr_op op);
/* True if the row has a rule for this input. */
bool hr__has_rule(hr_op op, int input);

/* ---- the gradient of a record ---- */

struct hr__backward {
  hr__function_call call; /* names the row in messages */
  hr__adjoints *adjoints;
  const hr__taped *record;
  const hr_tensor *g; /* of each output of the record; without a buffer: none */
};

/* Operand i; NULL: the record has fewer. */
static inline const hr__operand *hr__taped_input(const hr__backward *b, int i) {
  return i < b->record->input_count ? &b->record->inputs[i] : NULL;
}
static inline const hr__operand *hr__taped_output(const hr__backward *b, int i) {
  return i < b->record->output_count ? &b->record->outputs[i] : NULL;
}
static inline bool hr__wants(const hr__backward *b, int i) {
  return hr__taped_input(b, i) != NULL && hr__taped_input(b, i)->is_active;
}
/* The gradient of output i; NULL: none. */
static inline const hr_tensor *hr__g(const hr__backward *b, int i) {
  return i < b->record->output_count && b->g[i].buffer != NULL ? &b->g[i] : NULL;
}
/* The value of a kept operand, borrowed; of a number in `number`. NULL: absent. */
const hr_tensor *hr__value(const hr__operand *operand, hr_tensor *number);
/* Adds to the gradient of input i, or to what output i was before the record. Releases the tensor. `status`: of what
 * made it; if that is an error, it is returned. */
hr_status hr__give_gradient(const hr__backward *b, int i, hr_status status, hr_tensor *gradient);
hr_status hr__give_before(const hr__backward *b, int i, hr_status status, hr_tensor *gradient);
/* The gradients of a function with its own (custom.c). */
hr_status hr__give_custom(const hr__backward *b);
const char *hr__custom_name(const hr__custom *custom);
/* Evaluates an expression in the language of gradients.def, for input i. */
hr_status hr__evaluate(const hr__backward *b, const char *text, int i, hr_tensor *out);
/* The same, and gives it. */
hr_status hr__give_text(const hr__backward *b, int i, const char *text);

/* The gradient of a scatter that multiplies, or takes the larger or smaller value. */
hr_status hr__gradient_of_combination(const hr__backward *backward);

/* ---- shared by the walks ---- */

/* Gives all gradients of a record by its rule. */
hr_status hr__give_all(hr__backward *b);
hr_status hr__refuse_gradient(const hr__backward *b, int i, const char *reason);
/* True if the record changes a part of its outputs: the rest depends on what was there. */
bool hr__updates(const hr__taped *record);
/* The row's or the function's name, for messages. */
const char *hr__taped_name(const hr__taped *record);
/* True if the operand is this tensor. */
bool hr__is_tensor(const hr__operand *operand, const hr_tensor *x);
void hr__operand_of(const hr_tensor *x, hr__operand *out);
/* Outputs are floating, inputs watched. */
hr_status hr__check_ends(const hr_tape *tape, int output_count, const hr_tensor *const *outputs, int input_count,
                         const hr_tensor *const *inputs);
/* The products of a function that has its own; tangents of inputs without a buffer are 0. */
hr_status hr__custom_product(const hr__backward *b, const hr_tensor *tangents, hr_tensor *products);

/* The functions of the table's CODE rows. */
#define HR_GRADIENT(ROW, ...)
#define HR_GRADIENT_ROW(ROW, BACKWARD, inputs, targets)
#define HR_GRADIENT_CODE(ROW, function, ...) hr_status hr__gradient_##function(hr__backward *backward);
#define HR_GRADIENT_LOOPS(ROW)
#define HR_NO_GRADIENT(ROW, reason)
#define HR_GRADIENT_MISSING(ROW, reason)
#include "transform/gradients.def"
#undef HR_GRADIENT
#undef HR_GRADIENT_ROW
#undef HR_GRADIENT_CODE
#undef HR_GRADIENT_LOOPS
#undef HR_NO_GRADIENT
#undef HR_GRADIENT_MISSING

#endif
