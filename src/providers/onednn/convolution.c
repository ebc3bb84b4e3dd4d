/* convolution.c: convolutions and their two gradients by oneDNN, computed channels-last.
 *
 * On AVX-512 machines oneDNN's channels-last kernels beat the blocked layouts in all three directions, for any number
 * of channels; activations in other layouts are reordered before and after. Weights are packed into the primitive's
 * layout. Windows of one element run as matrix products if that saves a reorder (pointwise.c).
 *
 * Epilogues of forward convolutions run as post-ops, except for whole tensors (a residual). On ResNet-50 those take 1.8
 * ms as a binary post-op, and 1.4 ms in a loop after the convolution.
 */
#include <string.h>

#include "core/ir/dtype.h"
#include "providers/onednn/pipe.h"

enum { SPATIAL_MAX = 3, RANK_MAX = SPATIAL_MAX + 3 };

typedef struct conv {
  int spatial;
  int64_t groups;
  int64_t strides[SPATIAL_MAX], dilates[SPATIAL_MAX], padding_l[SPATIAL_MAX], padding_r[SPATIAL_MAX];
  const hr_operand *x, *w, *y; /* or their gradients */
  int x_arg, w_arg, y_arg;
} conv;

static void conv_operands(const hr_node *node, conv *c) {
  int out = node->input_count;
  if (node->op == HR_OP_CONV) {
    c->x = &node->inputs[0], c->w = &node->inputs[1], c->y = &node->outputs[0];
    c->x_arg = 0, c->w_arg = 1, c->y_arg = out;
  } else if (node->op == HR_OP_CONV_BACKWARD_DATA) {
    c->y = &node->inputs[0], c->w = &node->inputs[1], c->x = &node->outputs[0];
    c->y_arg = 0, c->w_arg = 1, c->x_arg = out;
  } else {
    c->x = &node->inputs[0], c->y = &node->inputs[1], c->w = &node->outputs[0];
    c->x_arg = 0, c->y_arg = 1, c->w_arg = out;
  }
}

static void conv_init(const hr_node *node, conv *c) {
  const int64_t *ints = node->ints;
  c->spatial = (int)ints[0];
  conv_operands(node, c);
  for (int d = 0; d < c->spatial; ++d) {
    c->strides[d] = ints[1 + d];
    c->padding_l[d] = ints[1 + c->spatial + d];
    int64_t dilation = ints[1 + 2 * c->spatial + d];
    c->dilates[d] = dilation - 1;
    int64_t reach = (c->w->dims[2 + d] - 1) * dilation + 1;
    c->padding_r[d] = (c->y->dims[2 + d] - 1) * c->strides[d] + reach - c->x->dims[2 + d] - c->padding_l[d];
  }
  c->groups = ints[1 + 3 * c->spatial];
}

static bool has_bias(const hr_node *node) {
  return node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE;
}

/* A gradient of weights that is a product may be scaled, for example to the average of several processes. */
static bool has_epilogues(const hr_node *node) {
  bool is_scaled_product = node->op == HR_OP_CONV_BACKWARD_WEIGHT && hr__onednn_can_be_product(node) &&
                           node->epilogue_count == 1 && node->epilogues[0].op == HR_OP_MUL;
  return (node->op == HR_OP_CONV || is_scaled_product) && hr__onednn_has_epilogues(node, 1, false);
}

bool hr__onednn_supports_conv(const hr_node *node) {
  if (node->int_count < 1 || node->ints[0] < 1 || node->ints[0] > SPATIAL_MAX) {
    return false;
  }
  conv c;
  conv_operands(node, &c);
  hr_dtype dtype = c.w->dtype;
  /* Gradients of data may be wider: a bias is added before they are rounded. */
  bool is_wide = node->op == HR_OP_CONV_BACKWARD_DATA && c.x->dtype == HR_DTYPE_F32 && dtype == HR_DTYPE_BF16;
  if (hr__dnnl_dtype(dtype) == 0 || (c.x->dtype != dtype && !is_wide) || c.y->dtype != dtype ||
      c.x->kind != HR_OPERAND_VALUE || c.w->kind != HR_OPERAND_VALUE || c.y->kind != HR_OPERAND_VALUE) {
    return false;
  }
  for (int d = 0; d < c.x->rank; ++d) {
    if (c.x->dims[d] == 0 || c.y->dims[d] == 0 || c.w->dims[d] == 0) {
      return false;
    }
  }
  if (node->epilogue_count > 0 && !has_epilogues(node)) {
    return false;
  }
  if (!has_bias(node) || is_wide) {
    return !has_bias(node);
  }
  const hr_operand *bias = &node->inputs[2];
  bool dense = bias->kind == HR_OPERAND_VALUE && bias->rank == 1 && (bias->strides[0] == 1 || bias->dims[0] == 1);
  return dense && bias->dtype == dtype && (node->op == HR_OP_CONV || dtype == HR_DTYPE_F32);
}

/* Strides of dense memory; channels-last for activations. */
static void dense_strides(int rank, const int64_t *dims, bool channels_last, int64_t *strides) {
  int64_t stride = 1;
  if (channels_last) {
    strides[1] = 1;
    stride = dims[1];
  }
  for (int d = rank - 1; d >= 0; --d) {
    if (channels_last && d == 1) {
      continue;
    }
    strides[d] = stride;
    stride *= dims[d];
  }
}

/* True if strides are those of dense memory in some order of dims: a reorder can read and write it. */
static bool is_dense(const hr_operand *operand) {
  int64_t expected = 1;
  bool taken[HR_RANK_MAX] = {false};
  for (int step = 0; step < operand->rank; ++step) {
    int next = -1;
    for (int d = operand->rank - 1; d >= 0; --d) {
      if (!taken[d] && (operand->dims[d] == 1 || operand->strides[d] == expected)) {
        next = d;
        break;
      }
    }
    if (next < 0) {
      return false;
    }
    taken[next] = true;
    expected *= operand->dims[next];
  }
  return true;
}

static bool agree(int rank, const int64_t *dims, const int64_t *a, const int64_t *b) {
  for (int d = 0; d < rank; ++d) {
    if (dims[d] != 1 && a[d] != b[d]) {
      return false;
    }
  }
  return true;
}

/* Weights [O, C/g, k..] in oneDNN's form of groups: [g, O/g, C/g, k..]. */
static int weight_layout(const conv *c, const int64_t *from_strides, int64_t *dims, int64_t *strides) {
  int rank = c->w->rank, at = 0;
  if (c->groups > 1) {
    dims[at] = c->groups;
    strides[at++] = from_strides[0] * (c->w->dims[0] / c->groups);
  }
  for (int d = 0; d < rank; ++d) {
    dims[at] = d == 0 && c->groups > 1 ? c->w->dims[0] / c->groups : c->w->dims[d];
    strides[at++] = from_strides[d];
  }
  return at;
}

typedef struct bound {
  int memory;
  dnnl_memory_desc desc;
  pipe_step unpack; /* kind PIPE_UNPACK if an output was packed */
} bound;

/* An operand in its own memory, or packed dense. */
static bound bind_operand(hr_prepared *pipe, const conv *c, const hr_operand *operand, int arg, bool is_output) {
  bound b = {.unpack = {.kind = PIPE_PRIMITIVE}};
  int64_t dense[RANK_MAX], last[RANK_MAX], dims[RANK_MAX], strides[RANK_MAX];
  bool is_weight = operand == c->w, packed = !is_dense(operand);
  dense_strides(operand->rank, operand->dims, false, dense);
  dense_strides(operand->rank, operand->dims, true, last);
  const int64_t *from = packed ? dense : operand->strides;
  if (!is_weight && agree(operand->rank, operand->dims, from, last)) {
    from = last; /* strides of dims of 1 are free: set them to the values that oneDNN compares with */
  } else if (agree(operand->rank, operand->dims, from, dense)) {
    from = dense;
  }
  int rank = operand->rank;
  memcpy(dims, operand->dims, (size_t)rank * sizeof *dims);
  memcpy(strides, from, (size_t)rank * sizeof *strides);
  if (is_weight) {
    rank = weight_layout(c, from, dims, strides);
  }
  b.desc = hr__pipe_desc(pipe, operand->dtype, rank, dims, strides);
  if (pipe->status == HR_OK) {
    b.memory = packed ? hr__pipe_packed(pipe, arg, operand, b.desc, is_output, &b.unpack)
                      : hr__pipe_operand(pipe, arg, operand, b.desc);
  }
  return b;
}

static dnnl_memory_desc activation_desc(hr_prepared *pipe, const hr_operand *operand) {
  int64_t last[RANK_MAX];
  dense_strides(operand->rank, operand->dims, true, last);
  return hr__pipe_desc(pipe, operand->dtype, operand->rank, operand->dims, last);
}

static dnnl_memory_desc weight_desc_any(hr_prepared *pipe, const conv *c) {
  int64_t dims[RANK_MAX], strides[RANK_MAX];
  int rank = weight_layout(c, c->w->strides, dims, strides);
  return hr__pipe_desc_any(pipe, c->w->dtype, rank, dims);
}

static dnnl_primitive_desc forward_desc(hr_prepared *pipe, const conv *c, dnnl_memory_desc x, dnnl_memory_desc w,
                                        dnnl_memory_desc bias, dnnl_memory_desc y, dnnl_const_post_ops ops) {
  dnnl_primitive_desc desc = NULL;
  if (pipe->status == HR_OK) {
    dnnl_primitive_attr attr = hr__pipe_attr(pipe, ops);
    hr__pipe_check(pipe,
                   hr__dnnl()->convolution_forward_primitive_desc_create(
                       &desc, hr__dnnl_engine(), DNNL_FORWARD_TRAINING, DNNL_CONVOLUTION_DIRECT, x, w, bias, y,
                       c->strides, c->dilates, c->padding_l, c->padding_r, attr),
                   "convolution");
    hr__dnnl()->primitive_attr_destroy(attr);
  }
  return desc;
}

/* After the primitive has written `computed` in layout `layout`: copies it to the operand's own memory. */
static void deliver(hr_prepared *pipe, const bound *operand, int computed, dnnl_const_memory_desc layout) {
  if (computed != operand->memory) {
    hr__pipe_reorder(pipe, computed, layout, operand->memory, operand->desc);
  }
  if (operand->unpack.kind == PIPE_UNPACK) {
    hr__pipe_step(pipe, &operand->unpack);
  }
}

/* The primitive's output: the operand's memory if its layout is right, else workspace. */
static int output_memory(hr_prepared *pipe, const bound *operand, dnnl_const_memory_desc layout) {
  if (pipe->status != HR_OK || hr__dnnl()->memory_desc_equal(operand->desc, layout)) {
    return operand->memory;
  }
  return hr__pipe_workspace(pipe, layout);
}

static void prepare_forward(hr_prepared *pipe, const hr_node *node, const conv *c) {
  bound x = bind_operand(pipe, c, c->x, c->x_arg, false), w = bind_operand(pipe, c, c->w, c->w_arg, false);
  bound y = bind_operand(pipe, c, c->y, c->y_arg, true);
  dnnl_memory_desc x_desc = activation_desc(pipe, c->x), y_desc = activation_desc(pipe, c->y), bias_desc = NULL;
  int bias = -1;
  if (has_bias(node)) {
    const int64_t one = 1;
    bias_desc = hr__pipe_desc(pipe, c->x->dtype, 1, node->inputs[2].dims, &one);
    bias = pipe->status == HR_OK ? hr__pipe_operand(pipe, 2, &node->inputs[2], bias_desc) : -1;
  }
  pipe_epilogues epilogues;
  hr__pipe_epilogues(pipe, node, c->y->rank, 1, NULL, NULL, &epilogues);
  hr__dnnl_primitive *forward = hr__pipe_known(pipe, HR__DNNL_STORED);
  if (forward == NULL) {
    forward =
        hr__pipe_described(pipe, HR__DNNL_STORED,
                           forward_desc(pipe, c, x_desc, weight_desc_any(pipe, c), bias_desc, y_desc, epilogues.ops));
  }
  dnnl_const_memory_desc w_desc = hr__pipe_layout(pipe, forward, DNNL_QUERY_WEIGHTS);
  int x_memory = hr__pipe_reordered(pipe, x.memory, x.desc, x_desc);
  int w_memory = hr__pipe_reordered_weight(pipe, c->w_arg, w.memory, w.desc, w_desc);
  int y_memory = output_memory(pipe, &y, y_desc);
  const int args[4][2] = {
      {DNNL_ARG_SRC, x_memory}, {DNNL_ARG_WEIGHTS, w_memory}, {DNNL_ARG_BIAS, bias}, {DNNL_ARG_DST, y_memory}};
  hr__pipe_epilogues_sum(pipe, &epilogues, &y.unpack, y.memory, y.desc, y_memory, y_desc);
  hr__pipe_epilogues_args(&epilogues, 4, args);
  hr__pipe_primitive(pipe, forward, epilogues.arg_count, epilogues.args);
  hr__pipe_epilogues_fini(&epilogues);
  deliver(pipe, &y, y_memory, y_desc);
}

static void add_bias_step(hr_prepared *pipe, const hr_node *node, const conv *c) {
  const hr_operand *bias = &node->inputs[2];
  pipe_step step = {.kind = PIPE_ADD_BIAS};
  step.copy.arg = c->x_arg;
  step.copy.arg_offset = c->x->offset * (int64_t)hr_dtype_size(c->x->dtype);
  step.copy.rank = c->x->rank;
  memcpy(step.copy.dims, c->x->dims, (size_t)c->x->rank * sizeof(int64_t));
  memcpy(step.copy.strides, c->x->strides, (size_t)c->x->rank * sizeof(int64_t));
  step.args[0].arg = 2;
  step.args[0].memory = (int)(bias->offset * (int64_t)hr_dtype_size(bias->dtype));
  hr__pipe_step(pipe, &step);
}

/* The gradient of data; its descriptor is derived from that of the forward convolution. */
static hr__dnnl_primitive *new_backward_data(hr_prepared *pipe, const conv *c, dnnl_memory_desc x, dnnl_memory_desc y) {
  dnnl_memory_desc w = weight_desc_any(pipe, c);
  hr_operand forward_x = *c->x; /* of which x is the gradient, maybe in a wider dtype */
  forward_x.dtype = c->w->dtype;
  dnnl_primitive_desc hint = forward_desc(pipe, c, activation_desc(pipe, &forward_x), w, NULL, y, NULL), desc = NULL;
  if (pipe->status == HR_OK) {
    dnnl_primitive_attr attr = hr__pipe_attr(pipe, NULL);
    hr__pipe_check(pipe,
                   hr__dnnl()->convolution_backward_data_primitive_desc_create(
                       &desc, hr__dnnl_engine(), DNNL_CONVOLUTION_DIRECT, x, w, y, c->strides, c->dilates, c->padding_l,
                       c->padding_r, hint, attr),
                   "convolution, gradient of data");
    hr__dnnl()->primitive_attr_destroy(attr);
  }
  if (hint != NULL) {
    hr__dnnl()->primitive_desc_destroy(hint);
  }
  return hr__pipe_described(pipe, HR__DNNL_STORED, desc);
}

static void prepare_backward_data(hr_prepared *pipe, const hr_node *node, const conv *c) {
  bound y = bind_operand(pipe, c, c->y, c->y_arg, false), w = bind_operand(pipe, c, c->w, c->w_arg, false);
  bound x = bind_operand(pipe, c, c->x, c->x_arg, true);
  dnnl_memory_desc x_desc = activation_desc(pipe, c->x), y_desc = activation_desc(pipe, c->y);
  hr__dnnl_primitive *backward = hr__pipe_known(pipe, HR__DNNL_STORED);
  backward = backward != NULL ? backward : new_backward_data(pipe, c, x_desc, y_desc);
  dnnl_const_memory_desc w_desc = hr__pipe_layout(pipe, backward, DNNL_QUERY_WEIGHTS);
  int y_memory = hr__pipe_reordered(pipe, y.memory, y.desc, y_desc);
  int w_memory = hr__pipe_reordered_weight(pipe, c->w_arg, w.memory, w.desc, w_desc);
  int x_memory = output_memory(pipe, &x, x_desc);
  const int args[3][2] = {{DNNL_ARG_DIFF_DST, y_memory}, {DNNL_ARG_WEIGHTS, w_memory}, {DNNL_ARG_DIFF_SRC, x_memory}};
  hr__pipe_primitive(pipe, backward, 3, args);
  deliver(pipe, &x, x_memory, x_desc);
  if (has_bias(node)) {
    add_bias_step(pipe, node, c);
  }
}

static hr__dnnl_primitive *new_backward_weight(hr_prepared *pipe, const conv *c, dnnl_memory_desc x,
                                               dnnl_memory_desc y) {
  dnnl_memory_desc w = weight_desc_any(pipe, c);
  dnnl_primitive_desc hint = forward_desc(pipe, c, x, w, NULL, y, NULL), desc = NULL;
  if (pipe->status == HR_OK) {
    dnnl_primitive_attr attr = hr__pipe_attr(pipe, NULL);
    hr__pipe_check(pipe,
                   hr__dnnl()->convolution_backward_weights_primitive_desc_create(
                       &desc, hr__dnnl_engine(), DNNL_CONVOLUTION_DIRECT, x, w, NULL, y, c->strides, c->dilates,
                       c->padding_l, c->padding_r, hint, attr),
                   "convolution, gradient of weights");
    hr__dnnl()->primitive_attr_destroy(attr);
  }
  if (hint != NULL) {
    hr__dnnl()->primitive_desc_destroy(hint);
  }
  return hr__pipe_described(pipe, HR__DNNL_STORED, desc);
}

static void prepare_backward_weight(hr_prepared *pipe, const conv *c) {
  bound x = bind_operand(pipe, c, c->x, c->x_arg, false), y = bind_operand(pipe, c, c->y, c->y_arg, false);
  bound w = bind_operand(pipe, c, c->w, c->w_arg, true);
  dnnl_memory_desc x_desc = activation_desc(pipe, c->x), y_desc = activation_desc(pipe, c->y);
  hr__dnnl_primitive *backward = hr__pipe_known(pipe, HR__DNNL_STORED);
  backward = backward != NULL ? backward : new_backward_weight(pipe, c, x_desc, y_desc);
  int x_memory = hr__pipe_reordered(pipe, x.memory, x.desc, x_desc);
  int y_memory = hr__pipe_reordered(pipe, y.memory, y.desc, y_desc);
  dnnl_const_memory_desc w_desc = hr__pipe_layout(pipe, backward, DNNL_QUERY_DIFF_WEIGHTS);
  int w_memory = output_memory(pipe, &w, w_desc);
  const int args[3][2] = {{DNNL_ARG_SRC, x_memory}, {DNNL_ARG_DIFF_DST, y_memory}, {DNNL_ARG_DIFF_WEIGHTS, w_memory}};
  hr__pipe_primitive(pipe, backward, 3, args);
  deliver(pipe, &w, w_memory, w_desc);
}

static int64_t conv_flops(const conv *c) {
  int64_t flops = 2;
  for (int d = 0; d < c->y->rank; ++d) {
    flops *= c->y->dims[d];
  }
  for (int d = 1; d < c->w->rank; ++d) {
    flops *= c->w->dims[d];
  }
  return flops;
}

/* True if it is run as a matrix product; rejects algorithms that the node does not have. */
static bool is_product(hr_prepared *pipe, const hr_program *program, const hr_node *node,
                       hr__onednn_algorithm algorithm) {
  bool is_better = hr__onednn_is_product(program, node);
  bool asks_for_other = algorithm == HR_ONEDNN_DIRECT || algorithm == HR_ONEDNN_PRODUCT;
  if ((asks_for_other && is_better == (algorithm == HR_ONEDNN_PRODUCT)) ||
      (algorithm == HR_ONEDNN_PRODUCT && !hr__onednn_can_be_product(node)) ||
      (algorithm == HR_ONEDNN_DIRECT && node->op != HR_OP_CONV && node->epilogue_count > 0)) {
    hr__pipe_refuse(pipe);
  }
  return is_better != asks_for_other;
}

hr_status hr__onednn_prepare_conv(const hr_program *program, const hr_node *node, hr__onednn_algorithm algorithm,
                                  bool probe, const hr__dnnl_key *key, hr_prepared **out_prepared) {
  conv c;
  conv_init(node, &c);
  hr_prepared *pipe = hr__pipe_create(conv_flops(&c), algorithm == HR_ONEDNN_THREADS, key);
  if (pipe == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "conv: no memory for a prepared convolution");
  }
  pipe->is_probe = probe;
  if (is_product(pipe, program, node, algorithm)) {
    hr__onednn_prepare_product(pipe, node);
  } else if (node->op == HR_OP_CONV) {
    prepare_forward(pipe, node, &c);
  } else if (node->op == HR_OP_CONV_BACKWARD_DATA) {
    prepare_backward_data(pipe, node, &c);
  } else {
    prepare_backward_weight(pipe, &c);
  }
  *out_prepared = pipe;
  return HR_OK;
}
