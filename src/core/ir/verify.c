/* The verifier checks the invariants of program.h. It assumes nothing unchecked, so it accepts programs parsed from any
 * text. Messages name the node, its operation and the operand. */
#include <stdarg.h>
#include <stdio.h>

#include "core/ir/program.h"
#include "core/ops/op.h"

typedef __int128 wide; /* sums of products of 64-bit numbers can't overflow */

typedef struct verifier {
  const hr_program *program;
  const hr_node *node;
  int number;
  uint32_t *made; /* value form: the last version written of each buffer */
} verifier;

static hr_status broken(const verifier *v, const char *format, ...) HR_PRINTF(2, 3);

static hr_status broken(const verifier *v, const char *format, ...) {
  char message[256];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  return hr_status_make(HR_STATUS_INTERNAL, "node %d (%s): %s", v->number, hr_op_table(v->node->op)->name, message);
}

/* ---- operands ---- */

typedef struct range {
  wide min, max;
} range;

static range add_reach(range r, wide stride, wide count) {
  wide reach = (count - 1) * stride;
  if (reach < 0) {
    r.min += reach;
  } else {
    r.max += reach;
  }
  return r;
}

/* The elements that the operand can reach. A bound limits the dims along which it moves if the address is proportional
 * to it (padding, windows). False if a bound is of another kind or admits no element. */
static bool reach_of(const hr_operand *x, range *out_range) {
  range r = {x->offset, x->offset};
  uint32_t done = 0;
  for (int i = 0; i < x->bound_count; ++i) {
    const hr_bound *bound = &x->bounds[i];
    uint32_t dims = 0;
    int64_t address = 0, coordinate = 0;
    range c = {bound->offset, bound->offset};
    for (int d = 0; d < x->rank; ++d) {
      if (bound->strides[d] != 0 && x->dims[d] > 1) {
        dims |= 1u << d;
        c = add_reach(c, bound->strides[d], x->dims[d]);
        if (coordinate == 0) {
          address = x->strides[d], coordinate = bound->strides[d];
        } else if ((wide)x->strides[d] * coordinate != (wide)bound->strides[d] * address) {
          return false;
        }
      }
    }
    c.min = c.min > 0 ? c.min : 0;
    c.max = c.max < bound->extent - 1 ? c.max : bound->extent - 1;
    if ((dims & done) != 0 || c.min > c.max) {
      return false;
    }
    done |= dims;
    if (coordinate != 0) { /* address = offset + (coordinate - bound->offset) * address / coordinate */
      wide a = (c.min - bound->offset) * address / coordinate, b = (c.max - bound->offset) * address / coordinate;
      r.min += a < b ? a : b;
      r.max += a < b ? b : a;
    }
  }
  for (int d = 0; d < x->rank; ++d) {
    if ((done >> d & 1u) == 0) {
      r = add_reach(r, x->strides[d], x->dims[d]);
    }
  }
  for (int i = 0; i < x->term_count; ++i) {
    r = add_reach(r, x->terms[i].stride, x->terms[i].extent);
  }
  *out_range = r;
  return true;
}

static bool has_elements(const hr_operand *x) {
  for (int d = 0; d < x->rank; ++d) {
    if (x->dims[d] == 0) {
      return false;
    }
  }
  for (int i = 0; i < x->term_count; ++i) {
    if (x->terms[i].extent == 0) {
      return false;
    }
  }
  return true;
}

static hr_status verify_reach(const verifier *v, const hr_operand *x, const char *side, int i) {
  range r;
  if (!has_elements(x) || !reach_of(x, &r)) {
    return HR_OK;
  }
  size_t bytes = v->program->buffers[x->index].bytes;
  wide elements = (wide)(bytes / hr_dtype_size(x->dtype));
  if (r.min < 0 || r.max >= elements) {
    return broken(v, "%s %d reaches elements %lld to %lld of buffer %u, which has %lld of %s", side, i,
                  (long long)r.min, (long long)r.max, x->index, (long long)elements, hr_dtype_name(x->dtype));
  }
  return HR_OK;
}

static hr_status verify_terms(const verifier *v, const hr_operand *x, const char *side, int i) {
  if (x->term_count > 0 && (!v->node->is_loop || x->kind != HR_OPERAND_VALUE)) {
    return broken(v, "%s %d has index terms, which only values in loops have", side, i);
  }
  for (int t = 0; t < x->term_count; ++t) {
    int input = x->terms[t].input;
    if (input < 0 || input >= v->node->input_count) {
      return broken(v, "%s %d names input %d of %d in a term", side, i, input, v->node->input_count);
    }
    const hr_operand *index = &v->node->inputs[input];
    if (!hr_dtype_is_integer(index->dtype) || index->kind == HR_OPERAND_NONE || index->term_count > 0) {
      return broken(v, "%s %d: input %d of a term is no plain integer", side, i, input);
    }
    if (x->terms[t].extent < 0) {
      return broken(v, "%s %d: a term has extent %lld", side, i, (long long)x->terms[t].extent);
    }
  }
  return HR_OK;
}

static hr_status verify_operand(const verifier *v, const hr_operand *x, const char *side, int i) {
  const hr_program *program = v->program;
  if ((unsigned)x->kind > HR_OPERAND_INDEX || x->rank < 0 || x->rank > HR_RANK_MAX) {
    return broken(v, "%s %d has kind %d and rank %d", side, i, (int)x->kind, x->rank);
  }
  if (x->kind == HR_OPERAND_NONE) {
    return HR_OK;
  }
  for (int d = 0; d < x->rank; ++d) {
    if (x->dims[d] < 0) {
      return broken(v, "%s %d: dim %d is %lld", side, i, d, (long long)x->dims[d]);
    }
  }
  if (hr_dtype_size(x->dtype) == 0 || (x->kind == HR_OPERAND_INDEX && x->dtype != HR_DTYPE_I64)) {
    return broken(v, "%s %d has dtype %s", side, i, hr_dtype_name(x->dtype));
  }
  if (x->fill != HR_NO_SCALAR && x->fill >= (uint32_t)program->scalar_count) {
    return broken(v, "%s %d fills with scalar %u of %d", side, i, x->fill, program->scalar_count);
  }
  HR_RETURN_IF_ERROR(verify_terms(v, x, side, i));
  if (x->bound_count > 0 && !v->node->is_loop) {
    return broken(v, "%s %d has bounds, which only operands of loops have", side, i);
  }
  if (x->kind == HR_OPERAND_SCALAR) {
    if (x->index >= (uint32_t)program->scalar_count || program->scalars[x->index].dtype != x->dtype) {
      return broken(v, "%s %d is scalar %u of %d, or has another dtype", side, i, x->index, program->scalar_count);
    }
    return HR_OK;
  }
  if (x->kind == HR_OPERAND_VALUE) {
    if (x->index >= (uint32_t)program->buffer_count) {
      return broken(v, "%s %d is buffer %u of %d", side, i, x->index, program->buffer_count);
    }
    return verify_reach(v, x, side, i);
  }
  return HR_OK;
}

static hr_status verify_operands(const verifier *v, const char *side, int count, const hr_operand *operands) {
  for (int i = 0; i < count; ++i) {
    HR_RETURN_IF_ERROR(verify_operand(v, &operands[i], side, i));
  }
  return HR_OK;
}

/* ---- loops ---- */

static bool row_has_class(const hr_op_row *row, hr_class cls) {
  switch (cls) {
    case HR_CLASS_B8:
    case HR_CLASS_I32:
    case HR_CLASS_U32:
    case HR_CLASS_I64:
    case HR_CLASS_U64:
      return row->has_integer;
    case HR_CLASS_F32:
    case HR_CLASS_F64:
      return row->has_real;
    case HR_CLASS_C64:
    case HR_CLASS_C128:
      return row->has_complex;
    default:
      return false;
  }
}

static hr_status verify_output_map(const verifier *v, const hr_operand *out) {
  const hr_node *node = v->node;
  for (int d = 0; d < out->rank; ++d) {
    bool is_reduced = (node->reduce_mask >> d & 1u) != 0, is_ordered = (node->ordered_mask >> d & 1u) != 0;
    if (is_reduced && out->strides[d] != 0) {
      return broken(v, "the output moves along dim %d, which is reduced", d);
    }
    if (!is_reduced && !is_ordered && out->term_count == 0 && out->strides[d] == 0 && out->dims[d] > 1) {
      return broken(v, "the output has stride 0 along dim %d, which is neither reduced nor ordered", d);
    }
  }
  return HR_OK;
}

static hr_status verify_hazards(const verifier *v, const hr_operand *out) {
  for (int i = 0; !v->program->is_value_form && i < v->node->input_count; ++i) {
    const hr_operand *input = &v->node->inputs[i];
    if (!hr_operands_are_same_map(out, input) && hr_operands_may_overlap(out, input)) {
      return broken(v, "input %d may overlap the output and is not the same view", i);
    }
  }
  return HR_OK;
}

static hr_status verify_loop(const verifier *v) {
  const hr_node *node = v->node;
  const hr_op_row *row = hr_op_table(node->op);
  bool is_reduction = row->family == HR_FAMILY_REDUCE || row->family == HR_FAMILY_ARGREDUCE;
  if (row->family != HR_FAMILY_POINTWISE && !is_reduction) {
    return broken(v, "is no loop");
  }
  if (node->output_count < 1 || (node->output_count > 1 && node->epilogue_count == 0) ||
      node->outputs[0].kind != HR_OPERAND_VALUE || node->input_count < row->arity ||
      (is_reduction && node->input_count != row->arity)) {
    return broken(v, "a loop of %d inputs and %d outputs", node->input_count, node->output_count);
  }
  const hr_operand *out = &node->outputs[0];
  uint32_t dims = (uint32_t)((UINT64_C(1) << out->rank) - 1);
  if ((node->reduce_mask & ~dims) != 0 || (node->ordered_mask & ~dims) != 0 ||
      (node->reduce_mask != 0) != is_reduction) {
    return broken(v, "masks 0x%x and 0x%x on %d dims", node->reduce_mask, node->ordered_mask, out->rank);
  }
  if ((unsigned)node->store_mode > HR_STORE_MIN || (is_reduction && node->store_mode != HR_STORE_SET)) {
    return broken(v, "store mode %d", (int)node->store_mode);
  }
  for (int i = 0; i < node->input_count; ++i) {
    const hr_operand *input = &node->inputs[i];
    if (input->kind == HR_OPERAND_NONE) {
      return broken(v, "input %d of a loop is absent", i);
    }
    bool is_same = input->kind == HR_OPERAND_SCALAR || input->rank == out->rank;
    for (int d = 0; is_same && input->kind != HR_OPERAND_SCALAR && d < out->rank; ++d) {
      is_same = input->dims[d] == out->dims[d];
    }
    if (!is_same) {
      return broken(v, "input %d does not have the dims of the domain", i);
    }
  }
  hr_class cls = hr_node_compute_class(v->program, node);
  if (!row_has_class(row, cls)) {
    return broken(v, "has no version for class %s", hr_class_name(cls));
  }
  for (int i = 0; i < node->output_count; ++i) {
    HR_RETURN_IF_ERROR(verify_output_map(v, &node->outputs[i]));
    HR_RETURN_IF_ERROR(verify_hazards(v, &node->outputs[i]));
  }
  return HR_OK;
}

/* ---- epilogues ---- */

/* True for element-wise rows that take and make numbers of a dtype. */
static bool is_row_of(const hr_op_row *row, hr_dtype dtype) {
  return row->family == HR_FAMILY_POINTWISE && row->rule == HR_RULE_SAME && row->arity <= HR_EPILOGUE_ARITY_MAX &&
         row_has_class(row, hr_dtype_arithmetic_class(dtype));
}

/* An epilogue is an element-wise row. Its operands are the value so far and extra inputs of the node, which have the
 * output's dims. */
static hr_status verify_epilogue(const verifier *v, int number) {
  const hr_node *node = v->node;
  const hr_epilogue *epilogue = &node->epilogues[number];
  const hr_op_row *row = hr_op_table(epilogue->op);
  const hr_operand *out = &node->outputs[0];
  if (!is_row_of(row, out->dtype)) {
    return broken(v, "epilogue %d (%s) is no element-wise row of %s", number, row->name, hr_dtype_name(out->dtype));
  }
  bool takes_value = false;
  for (int i = 0; i < row->arity; ++i) {
    int input = epilogue->inputs[i];
    if (input == HR_EPILOGUE_VALUE) {
      takes_value = true;
      continue;
    }
    if (input < 3 || input >= node->input_count) {
      return broken(v, "epilogue %d takes input %d of %d, of which the first 3 are the contraction's", number, input,
                    node->input_count);
    }
    const hr_operand *x = &node->inputs[input];
    bool is_number = x->kind == HR_OPERAND_SCALAR;
    if (!is_number && (x->kind != HR_OPERAND_VALUE || x->dtype != out->dtype || !hr_operands_have_equal_dims(x, out))) {
      return broken(v, "epilogue %d: input %d is no %s of the output's dims", number, input, hr_dtype_name(out->dtype));
    }
  }
  return takes_value ? HR_OK : broken(v, "epilogue %d does not take the value so far", number);
}

/* Row `number` of a chain takes inputs of the node and results of rows before it. */
static hr_status verify_row(const verifier *v, int number) {
  const hr_node *node = v->node;
  const hr_epilogue *epilogue = &node->epilogues[number - 1];
  const hr_op_row *row = hr_op_table(epilogue->op);
  if (!is_row_of(row, node->outputs[0].dtype)) {
    return broken(v, "row %d (%s) is no element-wise row of %s", number, row->name,
                  hr_dtype_name(node->outputs[0].dtype));
  }
  for (int i = 0; i < row->arity; ++i) {
    int input = epilogue->inputs[i];
    if (input >= node->input_count || (input < HR_EPILOGUE_VALUE && HR_EPILOGUE_ROW(input) >= number)) {
      return broken(v, "row %d takes %d of %d inputs and %d rows", number, input, node->input_count, number);
    }
  }
  return HR_OK;
}

static hr_status verify_chain(const verifier *v) {
  const hr_node *node = v->node;
  const hr_op_row *row = hr_op_table(node->op);
  int stored = 0;
  if (node->epilogue_count >= HR_CHAIN_ROWS_MAX || row->family != HR_FAMILY_POINTWISE || row->rule != HR_RULE_SAME ||
      node->ordered_mask != 0 || node->store_mode != HR_STORE_SET) {
    return broken(v, "%d rows after %s, of at most %d", node->epilogue_count, row->name, HR_CHAIN_ROWS_MAX);
  }
  for (int i = 0; i < node->epilogue_count; ++i) {
    HR_RETURN_IF_ERROR(verify_row(v, i + 1));
    if (node->epilogues[i].output >= 0 && node->epilogues[i].output != stored++) {
      return broken(v, "row %d is stored to output %d of %d", i, node->epilogues[i].output, node->output_count);
    }
  }
  bool are_alike = stored == node->output_count - 1;
  for (int i = 0; i < node->output_count; ++i) {
    const hr_operand *out = &node->outputs[i];
    are_alike &= out->kind == HR_OPERAND_VALUE && out->dtype == node->outputs[0].dtype &&
                 hr_operands_have_equal_dims(out, &node->outputs[0]);
  }
  return are_alike ? HR_OK : broken(v, "%d outputs, which are not all stored, or differ", node->output_count);
}

static hr_status verify_epilogues(const verifier *v) {
  const hr_node *node = v->node;
  if (node->epilogue_count == 0) {
    return HR_OK;
  }
  if (node->is_loop) {
    return verify_chain(v);
  }
  if (node->epilogue_count < 0 || node->epilogue_count > HR_EPILOGUES_MAX || node->output_count != 1 ||
      node->outputs[0].kind != HR_OPERAND_VALUE || hr_op_table(node->op)->family != HR_FAMILY_CONTRACTION) {
    return broken(v, "%d epilogues, which only contractions of one output have, at most %d", node->epilogue_count,
                  HR_EPILOGUES_MAX);
  }
  for (int i = 0; i < node->epilogue_count; ++i) {
    HR_RETURN_IF_ERROR(verify_epilogue(v, i));
  }
  return HR_OK;
}

/* ---- nodes as recorded, and versions ---- */

static hr_status verify_recorded(const verifier *v) {
  const hr_node *node = v->node;
  const hr_op_row *row = hr_op_table(node->op);
  if (node->reduce_mask != 0 || node->ordered_mask != 0 || node->store_mode != HR_STORE_SET) {
    return broken(v, "has marks of a loop");
  }
  if (row->family == HR_FAMILY_POINTWISE && node->input_count != row->arity * node->output_count) {
    return broken(v, "%d inputs for %d outputs, %d each", node->input_count, node->output_count, row->arity);
  }
  if ((row->family == HR_FAMILY_REDUCE || row->family == HR_FAMILY_ARGREDUCE) &&
      (node->input_count < 1 || node->input_count > row->arity || node->output_count != 1 || node->int_count != 1)) {
    return broken(v, "%d inputs, %d outputs, %d ints", node->input_count, node->output_count, node->int_count);
  }
  if (node->op == HR_OP_CHECK_INDEX &&
      (node->input_count != 1 || node->int_count != 3 || node->inputs[0].kind != HR_OPERAND_VALUE ||
       node->inputs[0].dtype != HR_DTYPE_I64)) {
    return broken(v, "takes one i64 and three ints");
  }
  for (int i = 0; i < node->output_count; ++i) {
    if (node->outputs[i].kind != HR_OPERAND_VALUE && node->outputs[i].kind != HR_OPERAND_NONE) {
      return broken(v, "output %d is no value", i);
    }
  }
  if (v->program->is_value_form && row->lower == NULL && row->family != HR_FAMILY_SPECIAL &&
      row->family != HR_FAMILY_LIBRARY) {
    return broken(v, "is not a loop in value form");
  }
  return HR_OK;
}

static hr_status verify_versions(const verifier *v) {
  const hr_node *node = v->node;
  const hr_program *program = v->program;
  for (int i = 0; i < node->input_count; ++i) {
    const hr_operand *x = &node->inputs[i];
    if (x->kind == HR_OPERAND_VALUE && x->version > (v->made != NULL ? v->made[x->index] : 0)) {
      return broken(v, "input %d reads version %u of buffer %u before it is made", i, x->version, x->index);
    }
  }
  for (int i = 0; i < node->output_count; ++i) {
    const hr_operand *x = &node->outputs[i];
    if (x->kind != HR_OPERAND_VALUE) {
      continue;
    }
    if (v->made == NULL) {
      if (x->version != 0) {
        return broken(v, "output %d has version %u outside value form", i, x->version);
      }
    } else if (x->version <= v->made[x->index] || x->version > program->buffers[x->index].versions) {
      return broken(v, "output %d makes version %u of buffer %u after version %u of %u", i, x->version, x->index,
                    v->made[x->index], program->buffers[x->index].versions);
    } else {
      v->made[x->index] = x->version;
    }
  }
  return HR_OK;
}

static hr_status verify_node(const verifier *v) {
  const hr_node *node = v->node;
  const hr_program *program = v->program;
  if (hr_op_table(node->op)->family == HR_FAMILY_NONE) {
    return broken(v, "operation %d is not in the table", (int)node->op);
  }
  if (node->input_count < 0 || node->output_count < 0 || node->int_count < 0 || node->scalar_count < 0 ||
      (node->scalar_count > 0 && (int64_t)node->scalar_base + node->scalar_count > (int64_t)program->scalar_count)) {
    return broken(v, "%d attribute scalars from %u of %d", node->scalar_count, node->scalar_base,
                  program->scalar_count);
  }
  HR_RETURN_IF_ERROR(verify_operands(v, "input", node->input_count, node->inputs));
  HR_RETURN_IF_ERROR(verify_operands(v, "output", node->output_count, node->outputs));
  HR_RETURN_IF_ERROR(node->is_loop ? verify_loop(v) : verify_recorded(v));
  HR_RETURN_IF_ERROR(verify_epilogues(v));
  return verify_versions(v);
}

/* A layout's channels must divide the buffer. */
static hr_status verify_layout(const hr_program *program, int b) {
  const hr_program_buffer *buffer = &program->buffers[b];
  hr_buffer_layout layout = hr_layout_unpack(buffer->layout);
  int64_t count = (int64_t)(buffer->bytes / layout.element_bytes);
  bool fits = buffer->layout == 0 ||
              (buffer->bytes % layout.element_bytes == 0 && layout.channels > 0 && count % layout.channels == 0 &&
               layout.inner > 0 && count / layout.channels % layout.inner == 0);
  return fits ? HR_OK
              : hr_status_make(HR_STATUS_INTERNAL,
                               "buffer %d: %zu bytes are no images of %lld channels of %lld elements", b, buffer->bytes,
                               (long long)layout.channels, (long long)layout.inner);
}

hr_status hr_program_verify(const hr_program *program) {
  verifier v = {.program = program};
  hr_arena arena; /* the program's own must not change */
  hr_arena_init(&arena, 0);
  hr_status status = HR_OK;
  if (program->is_value_form) {
    v.made = HR_ARENA_ARRAY(&arena, uint32_t, (size_t)program->buffer_count);
    if (v.made == NULL) {
      status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory to verify %d buffers", program->buffer_count);
    }
  }
  for (int b = 0; status == HR_OK && b < program->buffer_count; ++b) {
    status = verify_layout(program, b);
  }
  for (int i = 0; status == HR_OK && i < program->node_count; ++i) {
    v.node = &program->nodes[i];
    v.number = i;
    status = verify_node(&v);
  }
  hr_arena_fini(&arena);
  return status;
}
