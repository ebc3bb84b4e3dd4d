/* vmap_record.h: what the rules of vmap.def share. */
#ifndef HEADRACE_TRANSFORM_VMAP_RECORD_H_
#define HEADRACE_TRANSFORM_VMAP_RECORD_H_

#include "transform/vmap.h"

/* A view of all examples; it points to its own dims. */
typedef struct hr__lifted {
  hr_view view;
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
} hr__lifted;

/* The examples as a leading dim, before `rank` dims: those of the operand, and dims of size 1 in front of them. */
void hr__lift(const hr__record_of_all *record, const hr__operand_of_all *x, int rank, hr__lifted *out);
/* Moves the dim of the examples from the front behind `count` other dims. */
void hr__move_examples(hr__lifted *lifted, int count);
/* Records a row for all examples, of which the hook's owner sees nothing. */
hr_status hr__pass(const hr__record_of_all *record, hr_op op, const hr_attrs *attrs, int input_count,
                   const hr_view *inputs, int output_count, const hr_view *outputs);
/* Passes the record's row on, with these inputs and outputs behind them. */
hr_status hr__pass_all(const hr__record_of_all *record, const hr_attrs *attrs, const hr_view *views);
static inline bool hr__is_absent(const hr__operand_of_all *x) {
  return x->view.buffer == NULL;
}

/* True if the examples are evenly spaced with dim `at` of an operand: both can be one dim. */
bool hr__is_even(const hr__record_of_all *record, const hr__operand_of_all *x, int at);
/* Records the row with the operands' letters of HR_VMAP_EACH. */
hr_status hr__record_folded(const hr__record_of_all *record, const char *inputs, const char *outputs,
                            bool *out_is_done);

/* The functions of the table's CODE rows. *out_is_done: false to decline; nothing was recorded then. It is true when
 * they are called. The operands have less than HR_RANK_MAX dims. */
#define HR_VMAP_LEAD(ROW)
#define HR_VMAP_MASK(ROW, integer)
#define HR_VMAP_DIM(ROW, integer)
#define HR_VMAP_EACH(ROW, inputs, outputs)
#define HR_VMAP_PLANES(ROW)
#define HR_VMAP_CODE(ROW, function, text) \
  hr_status hr__vmap_##function(const hr__record_of_all *record, bool *out_is_done);
#include "transform/vmap.def"
#undef HR_VMAP_LEAD
#undef HR_VMAP_MASK
#undef HR_VMAP_DIM
#undef HR_VMAP_EACH
#undef HR_VMAP_PLANES
#undef HR_VMAP_CODE

#endif
