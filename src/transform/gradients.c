/* gradients.c: the table of gradients, and rules that are another row. */
#include "transform/gradients.h"

/* ---- each row of ops.def has one row of gradients.def: else this does not compile ---- */

#define HR_GRADIENT(ROW, ...) enum { HAS_GRADIENT_OF_##ROW = 1 };
#define HR_GRADIENT_ROW(ROW, ...) HR_GRADIENT(ROW)
#define HR_GRADIENT_CODE(ROW, ...) HR_GRADIENT(ROW)
#define HR_GRADIENT_LOOPS(ROW) HR_GRADIENT(ROW)
#define HR_NO_GRADIENT(ROW, reason) HR_GRADIENT(ROW)
#define HR_GRADIENT_MISSING(ROW, reason) HR_GRADIENT(ROW)
#include "transform/gradients.def"
#undef HR_GRADIENT
#undef HR_GRADIENT_ROW
#undef HR_GRADIENT_CODE
#undef HR_GRADIENT_LOOPS
#undef HR_NO_GRADIENT
#undef HR_GRADIENT_MISSING

#define HR_POINTWISE(NAME, ...) _Static_assert(HAS_GRADIENT_OF_##NAME, "gradients.def has no row " #NAME);
#define HR_REDUCE HR_POINTWISE
#define HR_ARGREDUCE HR_POINTWISE
#define HR_LIBRARY HR_POINTWISE
#define HR_CONTRACTION HR_POINTWISE
#define HR_COMPOSITE HR_POINTWISE
#define HR_SPECIAL HR_POINTWISE
#include "core/ops/ops.def"

/* ---- the table ---- */

#define HR_GRADIENT(ROW, ...) [HR_OP_##ROW] = {.kind = HR__GRADIENT_TEXT, .rules = {__VA_ARGS__}},
#define HR_GRADIENT_ROW(ROW, BACKWARD, inputs, outputs) \
  [HR_OP_##ROW] = {.kind = HR__GRADIENT_ROW, .rules = {inputs}, .row = HR_OP_##BACKWARD, .targets = (outputs)},
#define HR_GRADIENT_CODE(ROW, function, ...) \
  [HR_OP_##ROW] = {.kind = HR__GRADIENT_CODE, .rules = {__VA_ARGS__}, .code = hr__gradient_##function},
#define HR_GRADIENT_LOOPS(ROW) [HR_OP_##ROW] = {.kind = HR__GRADIENT_LOOPS},
#define HR_NO_GRADIENT(ROW, why) [HR_OP_##ROW] = {.kind = HR__GRADIENT_NONE, .reason = (why)},
#define HR_GRADIENT_MISSING(ROW, why) [HR_OP_##ROW] = {.kind = HR__GRADIENT_MISSING, .reason = (why)},
static const hr__gradient gradients[HR_OP_COUNT] = {
#include "transform/gradients.def"
};

const hr__gradient *hr__gradient_of(hr_op op) {
  return &gradients[(unsigned)op < HR_OP_COUNT ? op : HR_OP_NONE];
}

/* ---- giving ---- */

static hr_status add_and_release(const hr__backward *b, const hr__operand *to, hr_status status, hr_tensor *gradient) {
  if (status != HR_OK) {
    return status;
  }
  status = hr__adjoint_add(b->adjoints, &b->call, to, gradient);
  hr_tensor_release(gradient);
  return status;
}

hr_status hr__give_gradient(const hr__backward *b, int i, hr_status status, hr_tensor *gradient) {
  return add_and_release(b, hr__taped_input(b, i), status, gradient);
}

hr_status hr__give_before(const hr__backward *b, int i, hr_status status, hr_tensor *gradient) {
  return add_and_release(b, hr__taped_output(b, i), status, gradient);
}

hr_status hr__give_text(const hr__backward *b, int i, const char *text) {
  hr_tensor gradient;
  return hr__give_gradient(b, i, hr__evaluate(b, text, i, &gradient), &gradient);
}
