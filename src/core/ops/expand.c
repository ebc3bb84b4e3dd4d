/* Expand: turns recorded operations into loops, contractions and special nodes.
 *
 *   stream form   %1:f32[4,8] = softmax(%0:f32[4,8]) ints(1)
 *                 %2:f32[4,8] = add(%1:f32[4,8], %3:f32[8])
 *   expanded      loop %4:f32[4,8]{1,0} = amax(%0:f32[4,8]{8,1}) reduce(0x2)      ... %4.. are dead, fresh temporaries
 *                 loop %2:f32[4,8]{8,1} = add(%1:f32[4,8]{8,1}, %3:f32[4,8]{0,1})
 *
 * Element-wise rows broadcast their inputs to the output's dims, reductions their output to the input's. Composites,
 * and contractions that no provider serves with any packing (pack_operands.c), are lowered. A composite that a provider
 * serves gets the checks of its indices in front. Library rows stay, with dense operands. Buffers and scalars keep
 * their numbers.
 *
 * Order: a recorded operation reads all its inputs before it writes. In a loop this holds only if an input visits the
 * same elements in the same order as the output, or none of them. Otherwise a temporary replaces the output of an
 * element-wise or reduce row, or the inputs of other rows (whose lowerings read them more than once).
 */
#include <string.h>

#include "core/ops/lower.h"

typedef struct expander {
  const hr_program *stream;
  hr_keep_fn keeps;
  void *ctx;
  bool has_loops; /* the stream's loops are in the new program's memory */
  hr_builder builder;
} expander;

/* ---- hazards ---- */

/* True if writing `out` element by element would change an element of `input` before the loop reads it. */
static bool is_hazard(const hr_operand *out, const hr_operand *input) {
  return !hr_operands_are_same_map(out, input) && hr_operands_may_overlap(out, input);
}

static bool is_hazard_to_any(const hr_operand *out, int count, const hr_operand *inputs) {
  for (int i = 0; i < count; ++i) {
    if (is_hazard(out, &inputs[i])) {
      return true;
    }
  }
  return false;
}

/* True if input i of a call is the beginning of output i. */
static bool is_updated(const hr_node *node, int i) {
  return node->op == HR_OP_CALL && i < node->ints[1];
}

/* The new running statistics of batch norm replace the old ones element by element; calls update some operands. */
static bool is_made_in_place(const hr_node *node, int input, int output) {
  bool is_running = node->op == HR_OP_BATCH_NORM && (input == 3 || input == 4);
  return input == output && (is_running || is_updated(node, input)) &&
         hr_operands_are_same_map(&node->inputs[input], &node->outputs[output]);
}

static bool is_overwritten(const hr_node *node, int input) {
  for (int i = 0; i < node->output_count; ++i) {
    if (hr_operands_may_overlap(&node->inputs[input], &node->outputs[i]) && !is_made_in_place(node, input, i)) {
      return true;
    }
  }
  return false;
}

/* A copy of the node whose inputs don't share elements with its outputs; *out_inputs holds its operands. */
static hr_node without_hazards(hr_builder *b, const hr_node *node, hr_operand *out_inputs) {
  hr_node copy = *node;
  copy.inputs = out_inputs;
  for (int i = 0; i < node->input_count; ++i) {
    out_inputs[i] = node->inputs[i];
    if (is_overwritten(node, i)) {
      out_inputs[i] = hr_build_copy(b, node->inputs[i]);
    }
  }
  return copy;
}

/* ---- families ---- */

/* The i-th operand of each of `lists` lists of `count` operands. */
static void pick(const hr_node *node, int lists, int count, int i, hr_operand *out_inputs) {
  for (int list = 0; list < lists; ++list) {
    out_inputs[list] = node->inputs[list * count + i];
  }
}

enum { ARITY_MAX = 4 };

static hr_operand spread_or_same(hr_builder *b, hr_operand input, hr_operand out) {
  return hr_is_present(input) ? hr_view_broadcast(b, input, out.rank, out.dims) : input;
}

static void expand_pointwise(hr_builder *b, const hr_node *node, int arity) {
  if (node->input_count != arity * node->output_count) {
    b->status = hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: %d inputs for %d outputs of %d each",
                               hr_op_table(node->op)->name, node->input_count, node->output_count, arity);
    return;
  }
  for (int i = 0; i < node->output_count && b->status == HR_OK; ++i) {
    hr_operand inputs[ARITY_MAX], out = node->outputs[i];
    pick(node, arity, node->output_count, i, inputs);
    for (int j = 0; j < arity; ++j) {
      inputs[j] = spread_or_same(b, inputs[j], out);
    }
    if (b->status != HR_OK || hr_operand_count(out) == 0) {
      continue;
    }
    bool is_risky = is_hazard_to_any(&out, arity, inputs);
    hr_operand target = is_risky ? hr_build_temp_like(b, out, out.dtype) : out;
    hr_emit(b, node->op, target, arity, inputs);
    if (is_risky) {
      hr_emit1(b, HR_OP_COPY, out, target);
    }
  }
}

static void expand_reduce(hr_builder *b, const hr_node *node) {
  if (node->input_count != 1 || node->output_count != 1 || node->int_count < 1) {
    b->status = hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: one input, one output and a mask are needed",
                               hr_op_table(node->op)->name);
    return;
  }
  hr_operand x = node->inputs[0], out = node->outputs[0];
  uint32_t mask = (uint32_t)node->ints[0];
  if (!is_hazard(&out, &x)) {
    hr_emit_reduce(b, node->op, out, x, mask);
  } else {
    hr_operand target = hr_build_temp_like(b, out, out.dtype);
    hr_emit_reduce(b, node->op, target, x, mask);
    hr_emit1(b, HR_OP_COPY, out, target);
  }
}

/* The index of the best element: by default its row-major number along the reduced dims. */
static void expand_argreduce(hr_builder *b, const hr_node *node) {
  if (node->input_count < 1 || node->output_count != 1 || node->int_count < 1) {
    b->status = hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: a key, an output and a mask are needed",
                               hr_op_table(node->op)->name);
    return;
  }
  hr_operand x = node->inputs[0], index = hr_node_input(node, 1), out = node->outputs[0];
  uint32_t mask = (uint32_t)node->ints[0];
  if (!hr_is_present(index)) {
    int64_t strides[HR_RANK_MAX] = {0}, step = 1;
    for (int d = x.rank - 1; d >= 0; --d) {
      if ((mask >> d & 1u) != 0) {
        strides[d] = step;
        step *= x.dims[d];
      }
    }
    index = hr_build_index(b, x.rank, x.dims, 0, strides);
  }
  if (b->status == HR_OK && (hr_operands_may_overlap(&out, &x) || hr_operands_may_overlap(&out, &index))) {
    hr_operand target = hr_build_temp_like(b, out, out.dtype);
    hr_emit_argreduce(b, node->op, target, x, index, mask);
    hr_emit1(b, HR_OP_COPY, out, target);
  } else {
    hr_emit_argreduce(b, node->op, out, x, index, mask);
  }
}

/* True if the node has work to do; providers get only such nodes. */
static bool has_elements(const hr_node *node) {
  for (int i = 0; i < node->input_count; ++i) {
    if (hr_is_present(node->inputs[i]) && hr_operand_count(node->inputs[i]) == 0) {
      return false;
    }
  }
  for (int i = 0; i < node->output_count; ++i) {
    if (hr_is_present(node->outputs[i]) && hr_operand_count(node->outputs[i]) == 0) {
      return false;
    }
  }
  return true;
}

static void append_by(hr_builder *b, hr_node node, bool (*append)(hr_program *program, const hr_node *node)) {
  node.origin = b->origin;
  if (b->status == HR_OK && !append(b->program, &node)) {
    b->status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a node of the program");
  }
}

static void append(hr_builder *b, hr_node node) {
  append_by(b, node, hr_program_append);
}

/* The same for a node that was in the program before. */
static void append_again(hr_builder *b, hr_node node) {
  append_by(b, node, hr_program_append_own);
}

static void expand_lowered(expander *e, const hr_node *node);

/* Expands each contraction among the nodes that a lowering emitted, from number `first` on. So attention's products go
 * to a provider or become loops, like recorded ones. */
static void expand_emitted(expander *e, int first) {
  hr_program *program = e->builder.program;
  int count = program->node_count - first, contractions = 0;
  for (int i = first; i < program->node_count; ++i) {
    contractions += !program->nodes[i].is_loop && hr_op_table(program->nodes[i].op)->family == HR_FAMILY_CONTRACTION;
  }
  if (contractions == 0 || e->builder.status != HR_OK) {
    return;
  }
  hr_node *emitted = hr_arena_dup(&program->arena, program->nodes + first, (size_t)count * sizeof *emitted);
  if (emitted == NULL) {
    e->builder.status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %d nodes of the program", count);
    return;
  }
  program->node_count = first;
  for (int i = 0; i < count; ++i) {
    if (!emitted[i].is_loop && hr_op_table(emitted[i].op)->family == HR_FAMILY_CONTRACTION) {
      expand_lowered(e, &emitted[i]);
    } else {
      append_again(&e->builder, emitted[i]);
    }
  }
}

/* The recorded node of a contraction's value before epilogue `i`; `last` is that of its result. */
static uint32_t origin_of_value(const hr_node *node, int i, uint32_t last) {
  uint32_t origin = i < node->epilogue_count ? node->epilogues[i].origin : last;
  return origin != HR_NO_ORIGIN ? origin : last;
}

/* The contraction alone into a temporary, and a loop for each epilogue. */
static hr_status lower_with_epilogues(hr_builder *b, const hr_node *node) {
  hr_operand out = node->outputs[0], value = hr_build_temp_like(b, out, out.dtype);
  const uint32_t origin = b->origin;
  hr_node plain = *node;
  plain.input_count = node->input_count < 3 ? node->input_count : 3;
  plain.outputs = &value;
  plain.epilogue_count = 0;
  b->origin = origin_of_value(node, 0, origin);
  HR_RETURN_IF_ERROR(hr_op_table(node->op)->lower(b, &plain));
  for (int i = 0; i < node->epilogue_count; ++i) {
    const hr_epilogue *epilogue = &node->epilogues[i];
    b->origin = origin_of_value(node, i + 1, origin);
    hr_operand inputs[HR_EPILOGUE_ARITY_MAX];
    int arity = hr_op_table(epilogue->op)->arity;
    for (int k = 0; k < arity; ++k) {
      inputs[k] = epilogue->inputs[k] == HR_EPILOGUE_VALUE ? value : hr_node_input(node, epilogue->inputs[k]);
    }
    value = i + 1 < node->epilogue_count ? hr_build_temp_like(b, out, out.dtype) : out;
    hr_emit(b, epilogue->op, value, arity, inputs);
  }
  return HR_OK;
}

/* The factors of a product in the rank of its result, as libraries expect them. `factors`: the node's. */
static void spread_factors(hr_builder *b, const hr_node *product, hr_operand factors[2]) {
  const hr_operand *out = &product->outputs[0];
  int64_t dims[HR_RANK_MAX];
  for (int i = 0; i < 2; ++i) {
    if (factors[i].rank < out->rank) {
      memcpy(dims, out->dims, (size_t)out->rank * sizeof *dims);
      memcpy(dims + out->rank - 2, factors[i].dims + factors[i].rank - 2, 2 * sizeof *dims);
      factors[i] = hr_view_broadcast(b, factors[i], out->rank, dims);
    }
  }
}

static void expand_lowered(expander *e, const hr_node *node) {
  hr_builder *b = &e->builder;
  const hr_op_row *row = hr_op_table(node->op);
  hr_operand *inputs = HR_ARENA_ARRAY(&b->program->arena, hr_operand, (size_t)node->input_count);
  if (inputs == NULL) {
    b->status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a node of the program");
    return;
  }
  hr_node safe = without_hazards(b, node, inputs);
  if (node->op == HR_OP_MATMUL) {
    spread_factors(b, node, inputs);
  }
  if (b->status != HR_OK) {
    return;
  }
  if (e->keeps != NULL && has_elements(&safe) && e->keeps(e->ctx, b->program, &safe)) {
    if (safe.op == HR_OP_SEGMENTS) {
      hr__check_segments(b, &safe);
    }
    append(b, safe);
    return;
  }
  if (e->keeps != NULL && row->family == HR_FAMILY_CONTRACTION && has_elements(&safe) &&
      hr__pack_contraction(b, e->keeps, e->ctx, &safe)) {
    return;
  }
  int first = b->program->node_count;
  hr_status status = safe.epilogue_count > 0 ? lower_with_epilogues(b, &safe) : row->lower(b, &safe);
  if (row->family == HR_FAMILY_COMPOSITE) {
    expand_emitted(e, first);
  }
  if (b->status == HR_OK) {
    b->status = hr_status_annotate(status, "%s", row->name);
  } else {
    hr_status_ignore(status);
    b->status = hr_status_annotate(b->status, "%s", row->name);
  }
}

/* An updated operand of a call is one operand: the output, with the input's contents. */
static void join_updated(hr_builder *b, hr_node *node) {
  for (int i = 0; is_updated(node, i); ++i) {
    if (!hr_operands_are_same_map(&node->inputs[i], &node->outputs[i]) && hr_operand_count(node->inputs[i]) > 0) {
      hr_emit1(b, HR_OP_COPY, node->outputs[i], node->inputs[i]);
      node->inputs[i] = node->outputs[i];
    }
  }
}

static bool has_effects(const hr_node *node) {
  return node->op == HR_OP_CALL && node->ints[2] != 0;
}

/* Library rows get dense operands: other inputs are copied, and other outputs go through a temporary. */
static void expand_library(expander *e, const hr_node *node) {
  hr_builder *b = &e->builder;
  hr_arena *arena = &b->program->arena;
  hr_operand *inputs = HR_ARENA_ARRAY(arena, hr_operand, (size_t)node->input_count);
  hr_operand *outputs = HR_ARENA_ARRAY(arena, hr_operand, (size_t)node->output_count);
  if (inputs == NULL || outputs == NULL) {
    b->status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a node of the program");
    return;
  }
  hr_node dense = without_hazards(b, node, inputs);
  dense.outputs = outputs;
  int64_t made = 0;
  for (int i = 0; i < node->input_count && b->status == HR_OK; ++i) {
    if (hr_is_present(inputs[i]) && !hr_operand_is_contiguous(inputs[i]) && hr_operand_count(inputs[i]) > 0 &&
        !is_updated(node, i)) {
      inputs[i] = hr_make1(b, HR_OP_COPY, inputs[i].dtype, inputs[i]);
    }
  }
  for (int i = 0; i < node->output_count && b->status == HR_OK; ++i) {
    hr_operand out = outputs[i] = node->outputs[i];
    made += hr_is_present(out) ? hr_operand_count(out) : 0;
    if (hr_is_present(out) && !hr_operand_is_contiguous(out) && hr_operand_count(out) > 0) {
      outputs[i] = hr_build_temp_like(b, out, out.dtype);
    }
  }
  if (b->status != HR_OK || (made == 0 && !has_effects(node))) {
    return;
  }
  join_updated(b, &dense);
  if (e->keeps == NULL || !e->keeps(e->ctx, b->program, &dense)) {
    b->status =
        hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s: no library of this device does it for these dtypes and sizes",
                       hr_op_table(node->op)->name);
    return;
  }
  append(b, dense);
  for (int i = 0; i < node->output_count && b->status == HR_OK; ++i) {
    if (outputs[i].index != node->outputs[i].index && hr_is_present(outputs[i])) {
      hr_emit1(b, HR_OP_COPY, node->outputs[i], outputs[i]);
    }
  }
}

static void expand_node(expander *e, const hr_node *node) {
  hr_builder *b = &e->builder;
  const hr_op_row *row = hr_op_table(node->op);
  if (node->is_loop) {
    append_by(b, *node, e->has_loops ? hr_program_append_own : hr_program_append);
    return;
  }
  switch (row->family) {
    case HR_FAMILY_POINTWISE:
      expand_pointwise(b, node, row->arity);
      return;
    case HR_FAMILY_REDUCE:
      expand_reduce(b, node);
      return;
    case HR_FAMILY_ARGREDUCE:
      expand_argreduce(b, node);
      return;
    case HR_FAMILY_CONTRACTION:
    case HR_FAMILY_COMPOSITE:
      expand_lowered(e, node);
      return;
    case HR_FAMILY_LIBRARY:
      expand_library(e, node);
      return;
    case HR_FAMILY_SPECIAL:
      append(b, *node);
      return;
    case HR_FAMILY_NONE:
      break;
  }
  b->status = hr_status_make(HR_STATUS_INVALID_ARGUMENT, "operation %d is not in the table", (int)node->op);
}

/* ---- the program ---- */

/* Gives the new program the stream's buffers and scalars under the same numbers, and room for what lowerings add. */
static bool copy_declarations(const hr_program *stream, hr_program *program) {
  enum { MORE_SCALARS = 64 };
  int nodes = stream->node_count, buffers = stream->buffer_count, scalars = stream->scalar_count;
  if (!hr_program_reserve(program, 2 * nodes, buffers + nodes, scalars + MORE_SCALARS)) {
    return false;
  }
  if (buffers > 0) {
    memcpy(program->buffers, stream->buffers, (size_t)buffers * sizeof *program->buffers);
  }
  if (scalars > 0) {
    memcpy(program->scalars, stream->scalars, (size_t)scalars * sizeof *program->scalars);
  }
  program->buffer_count = buffers;
  program->scalar_count = scalars;
  program->bound_count = stream->bound_count;
  program->argument_count = stream->argument_count;
  return true;
}

/* `arena`: NULL, or what becomes the new program's memory and has the stream's loops. */
static hr_status expand(const hr_program *stream, hr_arena *arena, hr_keep_fn keeps, void *ctx,
                        hr_program *out_program) {
  hr_program program;
  hr_program_init(&program);
  expander e = {
      .stream = stream, .keeps = keeps, .ctx = ctx, .has_loops = arena != NULL, .builder = {.program = &program}};
  if (arena != NULL) {
    program.arena = *arena;
    hr_arena_init(arena, 0);
  }
  if (!copy_declarations(stream, &program)) {
    hr_program_fini(&program);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a program of %d nodes", stream->node_count);
  }
  for (int i = 0; i < stream->node_count && e.builder.status == HR_OK; ++i) {
    bool has_origin = stream->has_origins || stream->nodes[i].is_loop;
    e.builder.origin = has_origin ? stream->nodes[i].origin : (uint32_t)i;
    expand_node(&e, &stream->nodes[i]);
  }
  if (e.builder.status != HR_OK) {
    hr_program_fini(&program);
    return e.builder.status;
  }
  *out_program = program;
  return HR_OK;
}

hr_status hr_expand(const hr_program *stream, hr_keep_fn keeps, void *ctx, hr_program *out_program) {
  return expand(stream, NULL, keeps, ctx, out_program);
}

hr_status hr_expand_own(hr_program *stream, hr_keep_fn keeps, void *ctx, hr_program *out_program) {
  return expand(stream, &stream->arena, keeps, ctx, out_program);
}

static bool is_open_again(const hr_node *node) {
  return node->is_relaid && hr_op_table(node->op)->family == HR_FAMILY_CONTRACTION;
}

hr_status hr_expand_again(hr_program *program, hr_keep_fn keeps, void *ctx) {
  int first = 0;
  while (first < program->node_count && !is_open_again(&program->nodes[first])) {
    ++first;
  }
  int count = program->node_count - first;
  hr_node *nodes = hr_arena_dup(&program->arena, program->nodes + first, (size_t)count * sizeof *nodes);
  expander e = {.keeps = keeps, .ctx = ctx, .builder = {.program = program}};
  if (nodes == NULL && count > 0) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %d nodes of the program", count);
  }
  program->node_count = first;
  for (int i = 0; i < count && e.builder.status == HR_OK; ++i) {
    e.builder.origin = nodes[i].origin;
    if (is_open_again(&nodes[i])) {
      int made = program->node_count;
      expand_lowered(&e, &nodes[i]);
      for (; made < program->node_count; ++made) {
        program->nodes[made].is_relaid = true;
      }
    } else {
      append_again(&e.builder, nodes[i]);
    }
  }
  return e.builder.status;
}
