/* pointwise.c: convolutions with windows of one element as matrix products.
 *
 * Channels-last activations are matrices, a row for each pixel: X [P, I], Y [P, O]. Stored weights [O, I] are one, too.
 *
 *   forward               Y  = X W^T
 *   gradient of data      dX = dY W
 *   gradient of weights   dW = dY^T X
 *
 * A convolution with a stride above 1 reads some rows of X, which are gathered; the other rows of dX are zeros.
 *
 * oneDNN's convolutions multiply faster, by 3 to 10 %, on weights packed into their own layouts. Reordering 4 bytes of
 * a weight takes as long as some 900 products with it (2-core AVX-512 VM, weights out of the cache). Each weight has P
 * products. So:
 *
 * - Weights that change with each run are used as stored below that number of pixels.
 * - Gradients of weights are always written in the stored layout.
 * - Weights that the program does not write are packed once and cached (pipe.h): they run as convolutions.
 */
#include "core/ir/dtype.h"
#include "providers/onednn/pipe.h"

static const int64_t PIXELS_MAX = 1024;

typedef struct product {
  const hr_operand *x, *w, *y; /* or their gradients */
  int x_arg, w_arg, y_arg;
  int64_t pixels, in, out;
} product;

static void find_product(const hr_node *node, product *p) {
  int out = node->input_count;
  const hr_operand *in = node->inputs;
  switch (node->op) {
    case HR_OP_CONV:
      *p = (product){&in[0], &in[1], &node->outputs[0], 0, 1, out, 1, 1, 1};
      break;
    case HR_OP_CONV_BACKWARD_DATA:
      *p = (product){&node->outputs[0], &in[1], &in[0], out, 1, 0, 1, 1, 1};
      break;
    default:
      *p = (product){&in[0], &node->outputs[0], &in[1], 0, out, 1, 1, 1, 1};
      break;
  }
  p->in = p->w->dims[1];
  p->out = p->w->dims[0];
  for (int d = 0; d < p->y->rank; ++d) {
    p->pixels *= d == 1 ? 1 : p->y->dims[d];
  }
}

/* One element, no padding, one group. */
static bool is_pointwise(const hr_node *node, const product *p) {
  int spatial = (int)node->ints[0];
  bool has_behind = node->int_count > 3 * spatial + 2;
  for (int d = 0; d < spatial; ++d) {
    if (p->w->dims[2 + d] != 1 || node->ints[1 + spatial + d] != 0 ||
        (has_behind && node->ints[2 + 3 * spatial + d] != 0)) {
      return false;
    }
  }
  return node->ints[1 + 3 * spatial] == 1;
}

static bool takes_steps(const hr_node *node) {
  for (int d = 0; d < (int)node->ints[0]; ++d) {
    if (node->ints[1 + d] != 1) {
      return true;
    }
  }
  return false;
}

/* True if the operand is a dense matrix with a column for each index of dim 1, which comes last in memory; else after
 * dim 0. */
static bool is_matrix(const hr_operand *x, bool channels_last) {
  int64_t stride = 1;
  if (channels_last && x->dims[1] != 1 && x->strides[1] != 1) {
    return false;
  }
  stride = channels_last ? x->dims[1] : 1;
  for (int d = x->rank - 1; d >= 0; --d) {
    if (channels_last && d == 1) {
      continue;
    }
    if (x->dims[d] != 1 && x->strides[d] != stride) {
      return false;
    }
    stride *= x->dims[d];
  }
  return true;
}

bool hr__onednn_is_written(const hr_program *program, uint32_t buffer) {
  return hr_program_writes(program, buffer) > 0;
}

static bool has_bias(const hr_node *node) {
  return node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE;
}

bool hr__onednn_can_be_product(const hr_node *node) {
  product p;
  find_product(node, &p);
  return p.x->dtype == HR_DTYPE_F32 && p.w->dtype == HR_DTYPE_F32 && is_pointwise(node, &p) && is_matrix(p.x, true) &&
         is_matrix(p.y, true) && is_matrix(p.w, false) && (node->op != HR_OP_CONV_BACKWARD_DATA || !has_bias(node));
}

bool hr__onednn_is_product(const hr_program *program, const hr_node *node) {
  product p;
  find_product(node, &p);
  if (!hr__onednn_can_be_product(node)) {
    return false;
  }
  if (node->op == HR_OP_CONV_BACKWARD_WEIGHT) {
    return true;
  }
  return p.pixels < PIXELS_MAX && hr__onednn_is_written(program, p.w->index);
}

/* A matrix of rows x columns over an operand; transposed, of columns x rows. */
static dnnl_memory_desc matrix_desc(hr_prepared *pipe, int64_t rows, int64_t columns, bool is_transposed) {
  const int64_t dims[2] = {is_transposed ? columns : rows, is_transposed ? rows : columns};
  const int64_t strides[2] = {is_transposed ? 1 : columns, is_transposed ? columns : 1};
  return hr__pipe_desc(pipe, HR_DTYPE_F32, 2, dims, strides);
}

static int operand_memory(hr_prepared *pipe, int arg, const hr_operand *operand, dnnl_const_memory_desc desc) {
  return pipe->status == HR_OK ? hr__pipe_operand(pipe, arg, operand, desc) : -1;
}

/* The pixels of x that a strided convolution reads, as dense rows. For an output: zeros everywhere, and *out_unpack to
 * run last. */
static int stepped_memory(hr_prepared *pipe, const hr_node *node, const product *p, bool is_output,
                          dnnl_const_memory_desc desc, pipe_step *out_unpack) {
  int64_t dims[HR_RANK_MAX], strides[HR_RANK_MAX];
  int rank = p->x->rank;
  for (int d = 0; d < rank - 1; ++d) {
    int from = d == 0 ? 0 : d + 1;
    dims[d] = p->y->dims[from];
    strides[d] = p->x->strides[from] * (d == 0 ? 1 : node->ints[d]);
  }
  dims[rank - 1] = p->in;
  strides[rank - 1] = 1;
  hr_operand rows = *p->x;
  rows.dims = dims, rows.strides = strides;
  if (is_output) {
    hr__pipe_zero(pipe, p->x_arg, p->x);
  }
  return pipe->status == HR_OK ? hr__pipe_packed(pipe, p->x_arg, &rows, desc, is_output, out_unpack) : -1;
}

typedef struct factors {
  dnnl_memory_desc a, b, c;
  int a_memory, b_memory, c_memory;
  pipe_step unpack; /* PIPE_UNPACK if the output is copied to its own memory */
} factors;

static factors make_factors(hr_prepared *pipe, const hr_node *node, const product *p) {
  factors f = {.a = NULL};
  pipe_step unpack = {.kind = PIPE_PRIMITIVE};
  bool is_forward = node->op == HR_OP_CONV, is_weight = node->op == HR_OP_CONV_BACKWARD_WEIGHT;
  dnnl_memory_desc x = matrix_desc(pipe, p->pixels, p->in, false), y = matrix_desc(pipe, p->pixels, p->out, is_weight);
  dnnl_memory_desc w = matrix_desc(pipe, p->out, p->in, is_forward);
  int x_memory = takes_steps(node) ? stepped_memory(pipe, node, p, node->op == HR_OP_CONV_BACKWARD_DATA, x, &unpack)
                                   : operand_memory(pipe, p->x_arg, p->x, x);
  int y_memory = operand_memory(pipe, p->y_arg, p->y, y);
  int w_memory = operand_memory(pipe, p->w_arg, p->w, w);
  if (is_forward) {
    f = (factors){x, w, y, x_memory, w_memory, y_memory, unpack};
  } else if (is_weight) {
    f = (factors){y, x, w, y_memory, x_memory, w_memory, unpack};
  } else {
    f = (factors){y, w, x, y_memory, w_memory, x_memory, unpack};
  }
  return f;
}

void hr__onednn_prepare_product(hr_prepared *pipe, const hr_node *node) {
  product p;
  find_product(node, &p);
  factors f = make_factors(pipe, node, &p);
  dnnl_memory_desc bias_desc = NULL;
  int bias = -1;
  if (node->op == HR_OP_CONV && has_bias(node)) {
    bias_desc = matrix_desc(pipe, 1, p.out, false);
    bias = operand_memory(pipe, 2, &node->inputs[2], bias_desc);
  }
  pipe_epilogues epilogues;
  hr__pipe_epilogues(pipe, node, 2, 1, NULL, NULL, &epilogues);
  hr__dnnl_primitive *primitive = hr__pipe_known(pipe, HR__DNNL_STORED);
  if (pipe->status == HR_OK && primitive == NULL) {
    dnnl_primitive_desc desc = NULL;
    dnnl_primitive_attr attr = hr__pipe_attr(pipe, epilogues.ops);
    hr__pipe_check(pipe,
                   hr__dnnl()->matmul_primitive_desc_create(&desc, hr__dnnl_engine(), f.a, f.b, bias_desc, f.c, attr),
                   "pointwise convolution");
    hr__dnnl()->primitive_attr_destroy(attr);
    primitive = hr__pipe_described(pipe, HR__DNNL_STORED, desc);
  }
  const int args[4][2] = {
      {DNNL_ARG_SRC, f.a_memory}, {DNNL_ARG_WEIGHTS, f.b_memory}, {DNNL_ARG_BIAS, bias}, {DNNL_ARG_DST, f.c_memory}};
  hr__pipe_epilogues_args(&epilogues, 4, args);
  hr__pipe_primitive(pipe, primitive, epilogues.arg_count, epilogues.args);
  hr__pipe_epilogues_fini(&epilogues);
  if (f.unpack.kind == PIPE_UNPACK) {
    hr__pipe_step(pipe, &f.unpack);
  }
}
