/* convolution.c: the cuDNN provider: convolutions of one or two spatial dims and their gradients, in f32, f64, f16 and bf16, on
 * NVIDIA GPUs.
 *
 * All three operands lie in one format, dense: channels first or channels last. What lies otherwise is copied by loops around the
 * node, and bias is added by one (core/dress.c), which fuses with what follows. One spatial dim is two, of height 1.
 *
 * f32 may round its factors to TF32, as PyTorch's convolutions do, unless HEADRACE_TF32=off; narrow factors are summed in f32.
 *
 * Only algorithms that multiply and sum what each output element is made of are taken: Winograd's and Fourier's spread infinity and
 * NaN over their tiles, and round more. And only those that the library calls deterministic, unless it has none for a gradient, as
 * of some dilated windows: then atomic additions, whose order may change the last bits from run to run.
 */
#include <string.h>

#include "base/allocator.h"
#include "base/env.h"
#include "base/log.h"
#include "core/dtype.h"
#include "core/op.h"
#include "providers/cudnn/cudnn_api.h"
#include "providers/provider.h"

enum { DIMS = 4, CHOICES = 16, WORKSPACE_MOST = 256 << 20 };
/* The workspace that we get is aligned to the first, the library's to the second. */
enum { GIVEN_ALIGNMENT = 64, WORKSPACE_ALIGNMENT = 256, WORKSPACE_SLACK = WORKSPACE_ALIGNMENT - GIVEN_ALIGNMENT };
/* What its fastest kernels read at a time. */
enum { OPERAND_ALIGNMENT = 16 };

typedef enum role { ROLE_X, ROLE_W, ROLE_Y, ROLES } role;

/* A node in the library's terms. */
typedef struct shape {
  hr_op op;
  hr_dtype dtype;
  int format;
  int dims[ROLES][DIMS];
  int args[ROLES];        /* of the node */
  int64_t offsets[ROLES]; /* bytes */
  int groups, padding[2], stride[2], dilation[2];
} shape;

struct hr_prepared {
  shape shape;
  cudnn_tensor x, y;
  cudnn_filter w;
  cudnn_convolution desc;
  int algorithm;
  size_t workspace_bytes;
};

/* ---- nodes ---- */

static void operands_of(const hr_node *node, const hr_operand *out_operands[ROLES], int out_args[ROLES]) {
  static const role inputs[][2] = {{ROLE_X, ROLE_W}, {ROLE_Y, ROLE_W}, {ROLE_X, ROLE_Y}};
  static const role outputs[] = {ROLE_Y, ROLE_X, ROLE_W};
  int kind = node->op == HR_OP_CONV ? 0 : node->op == HR_OP_CONV_BACKWARD_DATA ? 1 : 2;
  for (int i = 0; i < 2; ++i) {
    out_operands[inputs[kind][i]] = &node->inputs[i];
    out_args[inputs[kind][i]] = i;
  }
  out_operands[outputs[kind]] = &node->outputs[0];
  out_args[outputs[kind]] = node->input_count;
}

static bool has_form(const hr_node *node) {
  bool is_convolution =
      node->op == HR_OP_CONV || node->op == HR_OP_CONV_BACKWARD_DATA || node->op == HR_OP_CONV_BACKWARD_WEIGHT;
  bool has_bias = node->input_count > 2 && node->inputs[2].kind != HR_OPERAND_NONE;
  return is_convolution && !has_bias && node->post_count == 0 && node->int_count >= 1 &&
         (node->ints[0] == 1 || node->ints[0] == 2) && node->int_count >= 2 + 3 * (int)node->ints[0];
}

/* Whether the operand is dense with its dims in this order, the outermost first; strides of dims of 1 are free. */
static bool lies_in(const hr_operand *x, bool channels_last) {
  int64_t expected = 1;
  for (int i = x->rank - 1; i >= 0; --i) {
    int d = !channels_last || i == 0 ? i : i == x->rank - 1 ? 1 : i + 1;
    if (x->dims[d] != 1 && x->strides[d] != expected) {
      return false;
    }
    expected *= x->dims[d];
  }
  return expected <= INT32_MAX;
}

static bool set_operand(shape *s, role r, const hr_operand *x) {
  int64_t elements = 1;
  if (x->kind != HR_OPERAND_VALUE || x->dtype != s->dtype) {
    return false;
  }
  s->offsets[r] = x->offset * (int64_t)hr_dtype_size(x->dtype);
  s->dims[r][2] = 1;
  for (int d = 0; d < x->rank; ++d) {
    if (x->dims[d] <= 0 || x->dims[d] > INT32_MAX / elements) {
      return false;
    }
    elements *= x->dims[d];
    s->dims[r][d < 2 ? d : d + DIMS - x->rank] = (int)x->dims[d];
  }
  return s->offsets[r] % OPERAND_ALIGNMENT == 0;
}

static bool is_small(int64_t n, int64_t least) {
  return n >= least && n <= INT32_MAX / 2;
}

/* The window; false where the output is not as large as the library makes it. */
static bool set_window(shape *s, const int64_t *ints) {
  int spatial = (int)ints[0];
  s->padding[0] = 0, s->stride[0] = s->dilation[0] = 1;
  for (int d = 0; d < spatial; ++d) {
    int64_t stride = ints[1 + d], padding = ints[1 + spatial + d], dilation = ints[1 + 2 * spatial + d];
    if (!is_small(stride, 1) || !is_small(padding, 0) || !is_small(dilation, 1)) {
      return false;
    }
    int at = d + 2 - spatial;
    s->stride[at] = (int)stride, s->padding[at] = (int)padding, s->dilation[at] = (int)dilation;
  }
  for (int d = 0; d < 2; ++d) {
    int64_t reach = ((int64_t)s->dims[ROLE_W][2 + d] - 1) * s->dilation[d] + 1;
    int64_t room = s->dims[ROLE_X][2 + d] + 2 * (int64_t)s->padding[d] - reach;
    if (room < 0 || room / s->stride[d] + 1 != s->dims[ROLE_Y][2 + d]) {
      return false;
    }
  }
  int64_t groups = ints[1 + 3 * spatial];
  s->groups = (int)groups;
  return is_small(groups, 1) && s->dims[ROLE_X][1] == groups * s->dims[ROLE_W][1];
}

static bool shape_of(const hr_node *node, shape *s) {
  const hr_operand *operands[ROLES];
  if (!has_form(node)) {
    return false;
  }
  *s = (shape){.op = node->op, .dtype = node->outputs[0].dtype};
  operands_of(node, operands, s->args);
  bool is_float =
      s->dtype == HR_DTYPE_F32 || s->dtype == HR_DTYPE_F64 || s->dtype == HR_DTYPE_F16 || s->dtype == HR_DTYPE_BF16;
  bool is_first = true, is_last = true;
  for (int r = 0; r < ROLES; ++r) {
    if (!is_float || operands[r]->rank != (int)node->ints[0] + 2 || !set_operand(s, (role)r, operands[r])) {
      return false;
    }
    is_first &= lies_in(operands[r], false);
    is_last &= lies_in(operands[r], true);
  }
  s->format = is_first ? CUDNN_NCHW : CUDNN_NHWC;
  is_last &= s->dtype != HR_DTYPE_F64; /* the library's tables have it with channels first alone */
  return (is_first || is_last) && set_window(s, node->ints);
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  shape s;
  return shape_of(node, &s);
}

/* ---- descriptors ---- */

static int dtype_of(hr_dtype dtype) {
  return dtype == HR_DTYPE_F64    ? CUDNN_F64
         : dtype == HR_DTYPE_F16  ? CUDNN_F16
         : dtype == HR_DTYPE_BF16 ? CUDNN_BF16
                                  : CUDNN_F32;
}

static bool is_f32_kept(const shape *s) {
  return s->dtype == HR_DTYPE_F32 && hr_env_choice(HR_ENV_TF32) == HR_ENV_TF32_OFF;
}

static int math_of(const shape *s) {
  bool is_narrow = s->dtype == HR_DTYPE_F16 || s->dtype == HR_DTYPE_BF16;
  return is_narrow ? CUDNN_TENSOR_OP_MATH : is_f32_kept(s) ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH;
}

static void release(hr_prepared *p) {
  if (p == NULL) {
    return;
  }
  if (p->x != NULL) {
    (void)hr__cudnn.DestroyTensorDescriptor(p->x);
  }
  if (p->y != NULL) {
    (void)hr__cudnn.DestroyTensorDescriptor(p->y);
  }
  if (p->w != NULL) {
    (void)hr__cudnn.DestroyFilterDescriptor(p->w);
  }
  if (p->desc != NULL) {
    (void)hr__cudnn.DestroyConvolutionDescriptor(p->desc);
  }
  hr_free(p);
}

static int make_tensor(const shape *s, role r, cudnn_tensor *out_desc) {
  const int *dims = s->dims[r];
  int code = hr__cudnn.CreateTensorDescriptor(out_desc);
  return code != CUDNN_SUCCESS ? code
                               : hr__cudnn.SetTensor4dDescriptor(*out_desc, s->format, dtype_of(s->dtype), dims[0],
                                                                 dims[1], dims[2], dims[3]);
}

static int make_filter(const shape *s, cudnn_filter *out_desc) {
  const int *dims = s->dims[ROLE_W];
  int code = hr__cudnn.CreateFilterDescriptor(out_desc);
  return code != CUDNN_SUCCESS ? code
                               : hr__cudnn.SetFilter4dDescriptor(*out_desc, dtype_of(s->dtype), s->format, dims[0],
                                                                 dims[1], dims[2], dims[3]);
}

static int make_window(const shape *s, cudnn_convolution *out_desc) {
  int compute = s->dtype == HR_DTYPE_F64 ? CUDNN_F64 : CUDNN_F32;
  int code = hr__cudnn.CreateConvolutionDescriptor(out_desc);
  if (code == CUDNN_SUCCESS) {
    code = hr__cudnn.SetConvolution2dDescriptor(*out_desc, s->padding[0], s->padding[1], s->stride[0], s->stride[1],
                                                s->dilation[0], s->dilation[1], CUDNN_CROSS_CORRELATION, compute);
  }
  if (code == CUDNN_SUCCESS) {
    code = hr__cudnn.SetConvolutionGroupCount(*out_desc, s->groups);
  }
  return code != CUDNN_SUCCESS ? code : hr__cudnn.SetConvolutionMathType(*out_desc, math_of(s));
}

static hr_status make_descriptors(hr_prepared *p) {
  HR_RETURN_IF_ERROR(hr__cudnn_status(make_tensor(&p->shape, ROLE_X, &p->x), "a tensor's descriptor"));
  HR_RETURN_IF_ERROR(hr__cudnn_status(make_tensor(&p->shape, ROLE_Y, &p->y), "a tensor's descriptor"));
  HR_RETURN_IF_ERROR(hr__cudnn_status(make_filter(&p->shape, &p->w), "a filter's descriptor"));
  return hr__cudnn_status(make_window(&p->shape, &p->desc), "a convolution's descriptor");
}

/* ---- the algorithm ---- */

static bool sums_alone(hr_op op, int algorithm) {
  switch (op) {
    case HR_OP_CONV:
      return algorithm == CUDNN_FORWARD_IMPLICIT_GEMM || algorithm == CUDNN_FORWARD_PRECOMPUTED_GEMM ||
             algorithm == CUDNN_FORWARD_GEMM;
    case HR_OP_CONV_BACKWARD_DATA:
      return algorithm == CUDNN_BACKWARD_DATA_1;
    default:
      return algorithm == CUDNN_BACKWARD_FILTER_1;
  }
}

static int rank_algorithms(const hr_prepared *p, cudnn_handle handle, int *out_count, cudnn_choice *out_choices) {
  switch (p->shape.op) {
    case HR_OP_CONV:
      return hr__cudnn.GetConvolutionForwardAlgorithm_v7(handle, p->x, p->w, p->desc, p->y, CHOICES, out_count,
                                                         out_choices);
    case HR_OP_CONV_BACKWARD_DATA:
      return hr__cudnn.GetConvolutionBackwardDataAlgorithm_v7(handle, p->w, p->y, p->desc, p->x, CHOICES, out_count,
                                                              out_choices);
    default:
      return hr__cudnn.GetConvolutionBackwardFilterAlgorithm_v7(handle, p->x, p->y, p->desc, p->w, CHOICES, out_count,
                                                                out_choices);
  }
}

static int measure_workspace(const hr_prepared *p, cudnn_handle handle, int algorithm, size_t *out_bytes) {
  switch (p->shape.op) {
    case HR_OP_CONV:
      return hr__cudnn.GetConvolutionForwardWorkspaceSize(handle, p->x, p->w, p->desc, p->y, algorithm, out_bytes);
    case HR_OP_CONV_BACKWARD_DATA:
      return hr__cudnn.GetConvolutionBackwardDataWorkspaceSize(handle, p->w, p->y, p->desc, p->x, algorithm, out_bytes);
    default:
      return hr__cudnn.GetConvolutionBackwardFilterWorkspaceSize(handle, p->x, p->y, p->desc, p->w, algorithm,
                                                                 out_bytes);
  }
}

/* Whether the algorithm works with this math in not too much memory; then it is taken. */
static bool take(hr_prepared *p, cudnn_handle handle, int algorithm, int math) {
  size_t bytes = 0;
  if (hr__cudnn.SetConvolutionMathType(p->desc, math) != CUDNN_SUCCESS ||
      measure_workspace(p, handle, algorithm, &bytes) != CUDNN_SUCCESS || bytes > WORKSPACE_MOST) {
    return false;
  }
  p->algorithm = algorithm;
  p->workspace_bytes = bytes;
  return true;
}

/* The library's ranking first; then whatever of ours it can run at all. */
static hr_status choose(hr_prepared *p, cudnn_handle handle) {
  static const int ours[] = {1, 0, 2};
  cudnn_choice choices[CHOICES];
  int count = 0, code = rank_algorithms(p, handle, &count, choices);
  for (int i = 0; code == CUDNN_SUCCESS && i < count; ++i) {
    const cudnn_choice *c = &choices[i];
    bool is_good = c->status == CUDNN_SUCCESS && c->is_deterministic != 0 && sums_alone(p->shape.op, c->algorithm);
    if (is_good && take(p, handle, c->algorithm, is_f32_kept(&p->shape) ? CUDNN_FMA_MATH : c->math)) {
      return NULL;
    }
  }
  for (size_t i = 0; i < sizeof ours / sizeof *ours; ++i) {
    if (sums_alone(p->shape.op, ours[i]) && take(p, handle, ours[i], math_of(&p->shape))) {
      return NULL;
    }
  }
  if (p->shape.op != HR_OP_CONV && take(p, handle, CUDNN_BACKWARD_ATOMIC, math_of(&p->shape))) {
    hr_log(HR_LOG_DEVICE, "cuDNN: %s has no deterministic algorithm here", hr_op_table(p->shape.op)->name);
    return NULL;
  }
  const int *x = p->shape.dims[ROLE_X], *w = p->shape.dims[ROLE_W];
  return hr_status_make(HR_STATUS_UNIMPLEMENTED,
                        "cuDNN: no algorithm for %s of x %s [%d,%d,%d,%d], w [%d,%d,%d,%d], %s",
                        hr_op_table(p->shape.op)->name, hr_dtype_name(p->shape.dtype), x[0], x[1], x[2], x[3], w[0],
                        w[1], w[2], w[3], p->shape.format == CUDNN_NHWC ? "channels last" : "channels first");
}

static hr_status make(hr_prepared *p, void *queue) {
  cudnn_handle handle;
  HR_RETURN_IF_ERROR(make_descriptors(p));
  HR_RETURN_IF_ERROR(hr__cudnn_lock(queue, &handle));
  hr_status status = choose(p, handle);
  hr__cudnn_unlock();
  return status;
}

static hr_status prepare(const hr_program *program, const hr_node *node, void *queue, hr_prepared **out_prepared,
                         size_t *out_workspace_bytes) {
  (void)program;
  hr_prepared *p = hr_calloc(1, sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "conv: no memory for a prepared convolution");
  }
  hr_status status = shape_of(node, &p->shape)
                         ? make(p, queue)
                         : hr_status_make(HR_STATUS_INTERNAL, "cuDNN: a convolution that it does not support");
  if (status != NULL) {
    release(p);
    return status;
  }
  *out_prepared = p;
  *out_workspace_bytes = p->workspace_bytes > 0 ? p->workspace_bytes + WORKSPACE_SLACK : 0;
  return NULL;
}

static bool needs_team(const hr_prepared *p) {
  (void)p;
  return false;
}

/* ---- running ---- */

static int convolve(const hr_prepared *p, cudnn_handle handle, char *const addresses[ROLES], void *workspace) {
  static const float one_f32 = 1, zero_f32 = 0;
  static const double one_f64 = 1, zero_f64 = 0;
  bool is_f64 = p->shape.dtype == HR_DTYPE_F64;
  const void *one = is_f64 ? (const void *)&one_f64 : &one_f32, *zero = is_f64 ? (const void *)&zero_f64 : &zero_f32;
  char *x = addresses[ROLE_X], *w = addresses[ROLE_W], *y = addresses[ROLE_Y];
  switch (p->shape.op) {
    case HR_OP_CONV:
      return hr__cudnn.ConvolutionForward(handle, one, p->x, x, p->w, w, p->desc, p->algorithm, workspace,
                                          p->workspace_bytes, zero, p->y, y);
    case HR_OP_CONV_BACKWARD_DATA:
      return hr__cudnn.ConvolutionBackwardData(handle, one, p->w, w, p->y, y, p->desc, p->algorithm, workspace,
                                               p->workspace_bytes, zero, p->x, x);
    default:
      return hr__cudnn.ConvolutionBackwardFilter(handle, one, p->x, x, p->y, y, p->desc, p->algorithm, workspace,
                                                 p->workspace_bytes, zero, p->w, w);
  }
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  char *addresses[ROLES];
  for (int r = 0; r < ROLES; ++r) {
    addresses[r] = (char *)args[p->shape.args[r]] + p->shape.offsets[r];
    if ((uintptr_t)addresses[r] % OPERAND_ALIGNMENT != 0) {
      return hr_status_make(HR_STATUS_INTERNAL, "cuDNN: operand %d is not aligned to %d bytes", p->shape.args[r],
                            OPERAND_ALIGNMENT);
    }
  }
  if (p->workspace_bytes > 0) {
    workspace = (void *)(((uintptr_t)workspace + WORKSPACE_SLACK) & ~(uintptr_t)(WORKSPACE_ALIGNMENT - 1));
  }
  cudnn_handle handle;
  HR_RETURN_IF_ERROR(hr__cudnn_lock(queue, &handle));
  int code = convolve(p, handle, addresses, p->workspace_bytes > 0 ? workspace : NULL);
  hr__cudnn_unlock();
  return hr__cudnn_status(code, hr_op_table(p->shape.op)->name);
}

const hr_provider hr__cudnn_provider = {
    .name = "cudnn",
    .dialect = HR_DIALECT_CUDA,
    .open = hr__cudnn_open,
    .supports = supports,
    .prepare = prepare,
    .needs_team = needs_team,
    .run = run,
    .release = release,
};
