/* vmap_record.c: the record of all examples, from that of one.
 *
 *   sum of ints 0b01, x [3, 4] to y [1, 4]   becomes   sum of ints 0b010, X [32, 3, 4] to Y [32, 1, 4]
 *
 * A row without a rule, or whose rule declines, is recorded for each example on views of it. Temporaries that a rule
 * makes belong to the record.
 */
#include "transform/vmap_record.h"

#include <string.h>

#include "base/allocator.h"

/* ---- views of all examples ---- */

void hr__lift(const hr__record_of_all *r, const hr__operand_of_all *x, int rank, hr__lifted *out) {
  int added = rank - x->view.rank;
  out->view = x->view;
  out->view.rank = rank + 1, out->view.dims = out->dims, out->view.strides = out->strides;
  out->dims[0] = r->vmap->size, out->strides[0] = x->stride;
  for (int d = 0; d < rank; ++d) {
    out->dims[1 + d] = d < added ? 1 : x->view.dims[d - added];
    out->strides[1 + d] = d < added ? 0 : x->view.strides[d - added];
  }
}

void hr__move_examples(hr__lifted *lifted, int count) {
  int64_t size = lifted->dims[0], stride = lifted->strides[0];
  for (int d = 0; d < count; ++d) {
    lifted->dims[d] = lifted->dims[d + 1], lifted->strides[d] = lifted->strides[d + 1];
  }
  lifted->dims[count] = size, lifted->strides[count] = stride;
}

hr_status hr__pass(const hr__record_of_all *r, hr_op op, const hr_attrs *attrs, int input_count, const hr_view *inputs,
                   int output_count, const hr_view *outputs) {
  const hr_hook_record record = {op, attrs, input_count, output_count, inputs, outputs, false};
  return hr_hook_pass(&r->vmap->hook, r->vmap->stream, &record);
}

hr_status hr__pass_all(const hr__record_of_all *r, const hr_attrs *attrs, const hr_view *views) {
  return hr__pass(r, r->op, attrs, r->input_count, views, r->output_count, views + r->input_count);
}

/* The dims, without that of the examples, to which a rule lifts operand i (inputs, then outputs); AS_IS: it is the same
 * in all, and the row broadcasts it. */
typedef int (*rank_fn)(const hr__record_of_all *r, int i);
enum { AS_IS = -1 };

static const hr__operand_of_all *operand(const hr__record_of_all *r, int i) {
  return i < r->input_count ? &r->inputs[i] : &r->outputs[i - r->input_count];
}

static int own_rank(const hr__record_of_all *r, int i) {
  return operand(r, i)->view.rank;
}

/* At least one dim: a row with a dim takes a tensor without dims for one of size 1. */
static int rank_with_dim(const hr__record_of_all *r, int i) {
  return own_rank(r, i) > 0 ? own_rank(r, i) : 1;
}

/* Over lists, the inputs of output i are i, i + n, i + 2n, ... */
static int broadcast_rank(const hr__record_of_all *r, int i) {
  if (!operand(r, i)->is_mapped) {
    return AS_IS;
  }
  return r->outputs[i < r->input_count ? i % r->output_count : i - r->input_count].view.rank;
}

static bool fits(const hr__record_of_all *r, rank_fn rank_of) {
  for (int i = 0; i < r->input_count + r->output_count; ++i) {
    if (!hr__is_absent(operand(r, i)) && rank_of(r, i) >= HR_RANK_MAX) {
      return false;
    }
  }
  return true;
}

/* Records the row once, on lifted operands. */
static hr_status record_lifted(const hr__record_of_all *r, const hr_attrs *attrs, rank_fn rank_of) {
  enum { FEW = 6 };
  struct room {
    hr__lifted lifted;
    hr_view view;
  };
  int count = r->input_count + r->output_count;
  hr__lifted few[FEW], *lifted = count <= FEW ? few : hr_malloc((size_t)count * sizeof(struct room));
  hr_view few_views[FEW], *views = count <= FEW ? few_views : (hr_view *)(void *)(lifted + count);
  if (lifted == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "vmap: no host memory for %d operands", count);
  }
  for (int i = 0; i < count; ++i) {
    const hr__operand_of_all *x = operand(r, i);
    int rank = hr__is_absent(x) ? AS_IS : rank_of(r, i);
    if (rank != AS_IS) {
      hr__lift(r, x, rank, &lifted[i]);
    }
    views[i] = rank != AS_IS ? lifted[i].view : x->view;
  }
  hr_status status = hr__pass_all(r, attrs, views);
  if (lifted != few) {
    hr_free(lifted);
  }
  return status;
}

/* ---- one record for each example ---- */

static hr_status record_each(const hr__record_of_all *r) {
  int count = r->input_count + r->output_count;
  hr_view *views = hr_malloc((size_t)count * sizeof *views);
  if (views == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "vmap: no host memory for %d operands", count);
  }
  hr_status status = HR_OK;
  for (int64_t k = 0; k < r->vmap->size && status == HR_OK; ++k) {
    for (int i = 0; i < count; ++i) {
      views[i] = operand(r, i)->view;
      views[i].offset += k * operand(r, i)->stride;
    }
    status = hr__pass_all(r, r->attrs, views);
  }
  hr_free(views);
  return status;
}

/* ---- the table ---- */

typedef enum rule { RULE_NONE = 0, RULE_LEAD, RULE_MASK, RULE_DIM, RULE_EACH, RULE_PLANES, RULE_CODE } rule;

typedef struct rule_row {
  rule rule;
  int integer;
  const char *inputs, *outputs; /* of EACH */
  hr_status (*code)(const hr__record_of_all *record, bool *out_is_done);
} rule_row;

#define HR_VMAP_LEAD(ROW) [HR_OP_##ROW] = {.rule = RULE_LEAD},
#define HR_VMAP_MASK(ROW, i) [HR_OP_##ROW] = {.rule = RULE_MASK, .integer = i},
#define HR_VMAP_DIM(ROW, i) [HR_OP_##ROW] = {.rule = RULE_DIM, .integer = i},
#define HR_VMAP_EACH(ROW, in, out) [HR_OP_##ROW] = {.rule = RULE_EACH, .inputs = in, .outputs = out},
#define HR_VMAP_PLANES(ROW) [HR_OP_##ROW] = {.rule = RULE_PLANES},
#define HR_VMAP_CODE(ROW, function, text) [HR_OP_##ROW] = {.rule = RULE_CODE, .code = hr__vmap_##function},
static const rule_row rules[HR_OP_COUNT] = {
#include "transform/vmap.def"
};
#undef HR_VMAP_LEAD
#undef HR_VMAP_MASK
#undef HR_VMAP_DIM
#undef HR_VMAP_EACH
#undef HR_VMAP_PLANES
#undef HR_VMAP_CODE

/* True if each operand of a library row has batch dims: "T..N > I?..N". */
static bool has_batch_dims(const char *shapes) {
  bool is_start = true;
  for (const char *at = shapes; *at != '\0' && *at != ';'; ++at) {
    bool is_operand = is_start && *at != ' ' && *at != '>';
    if (is_operand && at[at[1] == '?' ? 2 : 1] != '.') {
      return false;
    }
    is_start = *at == ' ';
  }
  return true;
}

static rule_row rule_of(hr_op op) {
  const hr_op_row *row = hr_op_table(op);
  switch (row->family) {
    case HR_FAMILY_REDUCE:
    case HR_FAMILY_ARGREDUCE:
      return (rule_row){.rule = RULE_MASK};
    case HR_FAMILY_LIBRARY:
      return (rule_row){.rule = has_batch_dims(row->shapes) ? RULE_LEAD : RULE_NONE};
    default:
      return rules[op];
  }
}

/* The record with one int replaced. */
static hr_status record_with_int(const hr__record_of_all *r, int integer, int64_t value, rank_fn rank_of) {
  int64_t ints[3 * HR_RANK_MAX];
  hr_attrs attrs = *r->attrs;
  memcpy(ints, attrs.ints, (size_t)attrs.int_count * sizeof *ints);
  ints[integer] = value;
  attrs.ints = ints;
  return record_lifted(r, &attrs, rank_of);
}

/* The number of the planes' dims. */
static int plane_dims(const hr__record_of_all *r) {
  switch (r->op) {
    case HR_OP_ADAPTIVE_AVG_POOL:
    case HR_OP_ADAPTIVE_AVG_POOL_BACKWARD:
    case HR_OP_ADAPTIVE_MAX_POOL:
      return (int)r->attrs->ints[0];
    case HR_OP_MAX_POOL:
    case HR_OP_MAX_POOL_BACKWARD:
    case HR_OP_AVG_POOL:
    case HR_OP_AVG_POOL_BACKWARD:
      return r->attrs->int_count / 4;
    default:
      return 2;
  }
}

static hr_status record_planes(const hr__record_of_all *r, bool *out_is_done) {
  return r->inputs[0].view.rank == plane_dims(r) + 1 ? record_lifted(r, r->attrs, own_rank)
                                                     : hr__record_folded(r, "ff", "ff", out_is_done);
}

static hr_status record_by_rule(const hr__record_of_all *r, bool *out_is_done) {
  rule_row row = rule_of(r->op);
  bool is_pointwise = hr_op_table(r->op)->family == HR_FAMILY_POINTWISE;
  rank_fn rank_of = is_pointwise ? broadcast_rank : row.rule == RULE_DIM ? rank_with_dim : own_rank;
  *out_is_done = (is_pointwise || row.rule != RULE_NONE) && fits(r, rank_of);
  if (!*out_is_done) {
    return HR_OK;
  }
  switch (row.rule) {
    case RULE_EACH:
      return hr__record_folded(r, row.inputs, row.outputs, out_is_done);
    case RULE_PLANES:
      return record_planes(r, out_is_done);
    case RULE_CODE:
      return row.code(r, out_is_done);
    case RULE_MASK:
      return record_with_int(r, row.integer, r->attrs->ints[row.integer] << 1, rank_of);
    case RULE_DIM:
      return record_with_int(r, row.integer, r->attrs->ints[row.integer] + 1, rank_of);
    default:
      return record_lifted(r, r->attrs, rank_of);
  }
}

hr_status hr__vmap_record(const hr__record_of_all *r) {
  bool is_done;
  hr_status status = record_by_rule(r, &is_done);
  return status == HR_OK && !is_done ? record_each(r) : status;
}
