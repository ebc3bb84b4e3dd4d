/* epilogues.c: a contraction's epilogues as oneDNN's post-ops.
 *
 * Supported rows: those with a form that gives the same bits for every number and NaN:
 *
 *   add, sub, mul, div        binary, with a number or a vector along the channels;
 *                             if `whole` is set, with a whole tensor, too
 *   add                       a sum, which must come first, with the output's old contents
 *   add_scaled(b, ^, a)       binary mul by a, binary add of b
 *   leaky_relu                PReLU, whose slope is an operand: it may be a run's argument
 *
 * f32 alone: in bfloat16 and float16 each row of a program rounds, and post-ops don't.
 *
 * Bounds (relu, clamp, hardtanh, maximum) are rejected: oneDNN's drop NaN, and a PReLU of slope 0 makes NaN of
 * -infinity. So are gelu, silu, sigmoid and tanh: oneDNN's differ from ours in their last bits, and then results would
 * depend on the places where the stream was cut.
 */
#include <string.h>

#include "core/ir/dtype.h"
#include "providers/onednn/pipe.h"

typedef enum epilogue_shape { SHAPE_NONE, SHAPE_NUMBER, SHAPE_VECTOR, SHAPE_WHOLE } epilogue_shape;

static epilogue_shape shape_of(const hr_operand *x, const hr_operand *out, int channel) {
  if (x->kind == HR_OPERAND_SCALAR) {
    return x->dtype == HR_DTYPE_C128 ? SHAPE_NONE : SHAPE_NUMBER;
  }
  bool is_vector = true, is_whole = true;
  for (int d = 0; d < out->rank; ++d) {
    if (out->dims[d] > 1) {
      is_whole &= x->strides[d] != 0;
      is_vector &= x->strides[d] == (d == channel ? 1 : 0);
    }
  }
  return is_vector ? SHAPE_VECTOR : is_whole ? SHAPE_WHOLE : SHAPE_NONE;
}

/* True if the operand is the output's memory: oneDNN adds it as a sum, which has to come first. */
static bool is_in_place(const hr_operand *x, const hr_operand *out) {
  return x->kind == HR_OPERAND_VALUE && hr_operands_may_overlap(x, out);
}

/* The operand of a binary row that is not the value so far; -1 if both are. */
static int other_input(const hr_epilogue *epilogue) {
  return epilogue->inputs[0] == HR_EPILOGUE_VALUE ? epilogue->inputs[1] : epilogue->inputs[0];
}

static bool has_operand(const hr_node *node, int input, int channel, bool whole) {
  const hr_operand *out = &node->outputs[0];
  epilogue_shape shape = input == HR_EPILOGUE_VALUE ? SHAPE_NONE : shape_of(&node->inputs[input], out, channel);
  return (shape == SHAPE_WHOLE ? whole : shape != SHAPE_NONE) && !is_in_place(&node->inputs[input], out);
}

static bool has_epilogue(const hr_node *node, int number, int channel, bool whole) {
  const hr_epilogue *epilogue = &node->epilogues[number];
  bool is_first = epilogue->inputs[0] == HR_EPILOGUE_VALUE;
  int other = other_input(epilogue);
  switch (epilogue->op) {
    case HR_OP_LEAKY_RELU:
      return is_first && other != HR_EPILOGUE_VALUE &&
             shape_of(&node->inputs[other], &node->outputs[0], channel) == SHAPE_NUMBER;
    case HR_OP_ADD:
      if (number == 0 && other != HR_EPILOGUE_VALUE && is_in_place(&node->inputs[other], &node->outputs[0])) {
        return node->outputs[0].dtype == HR_DTYPE_F32;
      }
      return has_operand(node, other, channel, whole);
    case HR_OP_MUL:
      return has_operand(node, other, channel, whole);
    case HR_OP_SUB:
    case HR_OP_DIV:
      return is_first && has_operand(node, other, channel, whole);
    case HR_OP_ADD_SCALED:
      return epilogue->inputs[1] == HR_EPILOGUE_VALUE && has_operand(node, epilogue->inputs[0], channel, whole) &&
             has_operand(node, epilogue->inputs[2], channel, whole);
    default:
      return false;
  }
}

bool hr__onednn_has_epilogues(const hr_node *node, int channel, bool whole) {
  for (int i = 0; i < node->epilogue_count; ++i) {
    if (!has_epilogue(node, i, channel, whole) || node->outputs[0].dtype != HR_DTYPE_F32) {
      return false;
    }
  }
  return true;
}

/* ---- making ---- */

typedef struct maker {
  hr_prepared *pipe;
  const hr_node *node;
  int rank, channel; /* of the primitive's output */
  pipe_whole_fn whole;
  void *ctx;
  pipe_epilogues *epilogues;
  int op_count;
} maker;

/* A layout of the primitive's output's rank with 1 in all dims but that of the channels. */
static dnnl_memory_desc vector_desc(maker *m, hr_dtype dtype, int64_t channels) {
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
  for (int d = 0; d < m->rank; ++d) {
    dims[d] = d == m->channel ? channels : 1;
    strides[d] = d < m->channel ? channels : 1;
  }
  return hr__pipe_desc(m->pipe, dtype, m->rank, dims, strides);
}

static int operand_memory(maker *m, int input, dnnl_memory_desc *out_desc) {
  const hr_operand *x = &m->node->inputs[input], *out = &m->node->outputs[0];
  switch (shape_of(x, out, m->channel)) {
    case SHAPE_NUMBER:
      *out_desc = vector_desc(m, HR_DTYPE_F32, 1);
      return hr__pipe_number(m->pipe, input, *out_desc);
    case SHAPE_VECTOR:
      *out_desc = vector_desc(m, x->dtype, out->dims[m->channel]);
      return hr__pipe_operand(m->pipe, input, x, *out_desc);
    default:
      return m->whole(m->ctx, m->pipe, input, x, out_desc);
  }
}

/* Makes the operand an argument of the next post-op. */
static void argument(maker *m, int kind, int memory) {
  m->epilogues->args[m->epilogues->arg_count][0] = DNNL_ARG_POST_OP * (m->op_count + 1) | kind;
  m->epilogues->args[m->epilogues->arg_count++][1] = memory;
}

static void binary(maker *m, int algorithm, int input) {
  dnnl_memory_desc desc = NULL;
  int memory = operand_memory(m, input, &desc);
  if (m->pipe->status == HR_OK) {
    hr__pipe_check(m->pipe, hr__dnnl()->post_ops_append_binary(m->epilogues->ops, algorithm, desc), "post-op");
    argument(m, DNNL_ARG_SRC_1, memory);
    ++m->op_count;
  }
}

static void prelu(maker *m, int input) {
  dnnl_memory_desc desc = NULL;
  int memory = operand_memory(m, input, &desc);
  if (m->pipe->status == HR_OK) {
    hr__pipe_check(m->pipe, hr__dnnl()->post_ops_append_prelu(m->epilogues->ops, 0), "post-op");
    argument(m, DNNL_ARG_WEIGHTS, memory);
    ++m->op_count;
  }
}

static void add(maker *m, int input) {
  if (!is_in_place(&m->node->inputs[input], &m->node->outputs[0])) {
    binary(m, DNNL_BINARY_ADD, input);
  } else if (m->pipe->status == HR_OK) {
    hr__pipe_check(m->pipe, hr__dnnl()->post_ops_append_sum(m->epilogues->ops, 1, 0, DNNL_F32), "post-op");
    m->epilogues->is_sum = true;
    ++m->op_count;
  }
}

static void make_epilogue(maker *m, const hr_epilogue *epilogue) {
  switch (epilogue->op) {
    case HR_OP_LEAKY_RELU:
      prelu(m, other_input(epilogue));
      return;
    case HR_OP_ADD:
      add(m, other_input(epilogue));
      return;
    case HR_OP_SUB:
      binary(m, DNNL_BINARY_SUB, other_input(epilogue));
      return;
    case HR_OP_MUL:
      binary(m, DNNL_BINARY_MUL, other_input(epilogue));
      return;
    case HR_OP_DIV:
      binary(m, DNNL_BINARY_DIV, other_input(epilogue));
      return;
    default: /* add_scaled */
      binary(m, DNNL_BINARY_MUL, epilogue->inputs[2]);
      binary(m, DNNL_BINARY_ADD, epilogue->inputs[0]);
      return;
  }
}

void hr__pipe_epilogues(hr_prepared *pipe, const hr_node *node, int rank, int channel, pipe_whole_fn whole, void *ctx,
                        pipe_epilogues *out_epilogues) {
  *out_epilogues = (pipe_epilogues){.ops = NULL};
  if (node->epilogue_count == 0 || pipe->status != HR_OK) {
    return;
  }
  hr__pipe_check(pipe, hr__dnnl()->post_ops_create(&out_epilogues->ops), "post-ops");
  maker m = {pipe, node, rank, channel, whole, ctx, out_epilogues, 0};
  for (int i = 0; i < node->epilogue_count; ++i) {
    make_epilogue(&m, &node->epilogues[i]);
  }
}

void hr__pipe_epilogues_sum(hr_prepared *pipe, const pipe_epilogues *epilogues, const pipe_step *unpack, int from,
                            dnnl_const_memory_desc from_desc, int to, dnnl_const_memory_desc to_desc) {
  if (!epilogues->is_sum || pipe->status != HR_OK) {
    return;
  }
  if (unpack->kind == PIPE_UNPACK) {
    pipe->status = hr_status_make(HR_STATUS_UNIMPLEMENTED, "oneDNN: a sum onto strided memory");
  } else if (from != to) {
    hr__pipe_reorder(pipe, from, from_desc, to, to_desc);
  }
}

void hr__pipe_epilogues_args(pipe_epilogues *epilogues, int count, const int (*args)[2]) {
  for (int i = 0; i < count; ++i) {
    memcpy(epilogues->args[epilogues->arg_count++], args[i], sizeof args[i]);
  }
}

void hr__pipe_epilogues_fini(pipe_epilogues *epilogues) {
  if (epilogues->ops != NULL) {
    hr__dnnl()->post_ops_destroy(epilogues->ops);
  }
}
