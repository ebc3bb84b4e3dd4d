/* convolution.c: the cuDNN provider: convolutions of one to three spatial dims and their gradients, in f32, f64, f16
 * and bf16, on NVIDIA GPUs.
 *
 * All operands are dense and in one layout: channels first or channels last. Loops around the node copy operands in
 * other layouts, and a loop adds the bias (core/ops/pack_operands.c). One spatial dim is run as two, of height 1.
 *
 * Epilogues in f32 with channels last, if the library has an engine for them (conv_plan.c): a bias for each channel, a
 * residual in the output's layout, ReLU. Bias and ReLU then cost nothing, and a residual costs its reads. The residual
 * is added first, at any position. A per-channel scale is folded into the weights before (compiler/match.c).
 *
 * f32 factors may be rounded to TF32, as in PyTorch's convolutions, unless HEADRACE_TF32=off. conv_plan.c describes
 * which of the library's engines are used.
 */
#include <stdio.h>
#include <string.h>

#include "base/allocator.h"
#include "base/env.h"
#include "base/gpu_model.h"
#include "core/ir/dtype.h"
#include "core/ops/op.h"
#include "providers/cudnn/conv_plan.h"
#include "providers/provider.h"

/* Our workspace is aligned to the first, the library's to the second. */
enum { GIVEN_ALIGNMENT = 64, WORKSPACE_ALIGNMENT = 256, WORKSPACE_SLACK = WORKSPACE_ALIGNMENT - GIVEN_ALIGNMENT };

/* A node in the library's terms. */
typedef struct call {
  hr__conv_shape shape;
  int args[CONV_ROLES];        /* of the node */
  int64_t offsets[CONV_ROLES]; /* bytes */
} call;                        /* for the roles of the shape */

struct hr_prepared {
  call call;
  hr__conv_plan *plan;
  cudnn_descriptor pack;        /* the addresses of the last run in the library's form; NULL before the first */
  void *packed[CONV_ROLES + 1]; /* those addresses, and the workspace's */
};

/* ---- nodes ---- */

static void operands_of(const hr_node *node, const hr_operand *out_operands[CONV_OWN_ROLES], int *out_args) {
  static const hr__conv_role inputs[][2] = {{CONV_X, CONV_W}, {CONV_Y, CONV_W}, {CONV_X, CONV_Y}};
  static const hr__conv_role outputs[] = {CONV_Y, CONV_X, CONV_W};
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
  return is_convolution && !has_bias && node->int_count >= 1 && node->ints[0] >= 1 &&
         node->ints[0] <= CONV_SPATIAL_MOST && node->int_count >= 2 + 3 * (int)node->ints[0];
}

/* True if the operand is dense with its dims in this order, the outermost first; strides of dims of 1 are free. */
static bool has_layout(const hr_operand *x, bool channels_last) {
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

static bool set_operand(call *c, hr__conv_role r, const hr_operand *x) {
  int64_t elements = 1, *dims = c->shape.dims[r];
  c->shape.has_role[r] = true;
  if (x->kind != HR_OPERAND_VALUE || x->dtype != c->shape.dtype) {
    return false;
  }
  c->offsets[r] = x->offset * (int64_t)hr_dtype_size(x->dtype);
  dims[2] = 1;
  for (int d = 0; d < x->rank; ++d) {
    if (x->dims[d] <= 0 || x->dims[d] > INT32_MAX / elements) {
      return false;
    }
    elements *= x->dims[d];
    dims[d < 2 ? d : d + c->shape.spatial + 2 - x->rank] = x->dims[d];
  }
  return c->offsets[r] % CONV_ALIGNMENT == 0;
}

static bool is_small(int64_t n, int64_t least) {
  return n >= least && n <= INT32_MAX / 2;
}

/* Sets the window; false if the output's size differs from the library's. */
static bool set_window(hr__conv_shape *s, const int64_t *ints) {
  int spatial = (int)ints[0];
  s->padding[0] = 0, s->stride[0] = s->dilation[0] = 1;
  for (int d = 0; d < spatial; ++d) {
    int64_t stride = ints[1 + d], padding = ints[1 + spatial + d], dilation = ints[1 + 2 * spatial + d];
    if (!is_small(stride, 1) || !is_small(padding, 0) || !is_small(dilation, 1)) {
      return false;
    }
    int at = d + s->spatial - spatial;
    s->stride[at] = stride, s->padding[at] = padding, s->dilation[at] = dilation;
  }
  for (int d = 0; d < s->spatial; ++d) {
    int64_t reach = (s->dims[CONV_W][2 + d] - 1) * s->dilation[d] + 1;
    int64_t room = s->dims[CONV_X][2 + d] + 2 * s->padding[d] - reach;
    if (room < 0 || room / s->stride[d] + 1 != s->dims[CONV_Y][2 + d]) {
      return false;
    }
  }
  int64_t groups = ints[1 + 3 * spatial];
  return is_small(groups, 1) && s->dims[CONV_X][1] == groups * s->dims[CONV_W][1] && s->dims[CONV_W][0] % groups == 0;
}

/* Dense strides, also of dims of 1: the library guesses the layout from them. */
static void set_strides(hr__conv_shape *s) {
  int rank = s->spatial + 2;
  for (int r = 0; r < CONV_OWN_ROLES; ++r) {
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
      int d = !s->channels_last || i == 0 ? i : i == rank - 1 ? 1 : i + 1;
      s->strides[r][d] = stride;
      stride *= s->dims[r][d];
    }
  }
}

/* Gradients of windows of one element with a stride above 1: the library's deterministic engines for them take 20 times
 * as long as those of a stride of 1. */
static bool skips_elements(const hr__conv_shape *s) {
  bool is_point = s->op != HR_OP_CONV, is_strided = false;
  for (int d = 0; d < s->spatial; ++d) {
    is_point &= s->dims[CONV_W][2 + d] == 1 && s->padding[d] == 0;
    is_strided |= s->stride[d] > 1;
  }
  return is_point && is_strided;
}

/* One number for each channel, at every place. */
static bool is_channels(const hr_operand *x) {
  for (int d = 0; d < x->rank; ++d) {
    if (x->dims[d] != 1 && x->strides[d] != (d == 1)) {
      return false;
    }
  }
  return true;
}

/* A sum with another operand, which becomes the bias or the residual. */
static bool set_sum(call *c, const hr_node *node, const hr_epilogue *epilogue) {
  int input = epilogue->inputs[epilogue->inputs[0] == HR_EPILOGUE_VALUE];
  const hr_operand *x = input == HR_EPILOGUE_VALUE ? NULL : &node->inputs[input], *out = &node->outputs[0];
  if (x == NULL || x->kind != HR_OPERAND_VALUE || x->dtype != HR_DTYPE_F32 || hr_operands_may_overlap(x, out)) {
    return false;
  }
  hr__conv_role role = is_channels(x) ? CONV_B : CONV_Z;
  if (c->shape.has_role[role] || (role == CONV_Z && !has_layout(x, true))) {
    return false;
  }
  c->shape.has_role[role] = true;
  c->args[role] = input;
  c->offsets[role] = x->offset * (int64_t)sizeof(float);
  const int64_t *dims = c->shape.dims[CONV_Y], *strides = c->shape.strides[CONV_Y];
  for (int d = 0; d < c->shape.spatial + 2; ++d) {
    bool is_one = role == CONV_B && d != 1;
    c->shape.dims[role][d] = is_one ? 1 : dims[d];
    c->shape.strides[role][d] = is_one ? dims[1] : strides[d];
  }
  return c->offsets[role] % CONV_ALIGNMENT == 0;
}

static bool set_epilogues(call *c, const hr_node *node) {
  hr__conv_shape *s = &c->shape;
  bool is_ok = node->epilogue_count == 0 || (s->op == HR_OP_CONV && s->dtype == HR_DTYPE_F32 && s->channels_last);
  for (int i = 0; is_ok && i < node->epilogue_count; ++i) {
    const hr_epilogue *epilogue = &node->epilogues[i];
    if (epilogue->op == HR_OP_RELU) {
      s->has_relu = true;
      is_ok = i + 1 == node->epilogue_count;
    } else {
      is_ok = epilogue->op == HR_OP_ADD && set_sum(c, node, epilogue);
    }
  }
  return is_ok && (node->epilogue_count == 0 || s->has_role[CONV_B]);
}

static bool call_of(const hr_node *node, call *c) {
  const hr_operand *operands[CONV_OWN_ROLES];
  memset(c, 0, sizeof *c);
  if (!has_form(node)) {
    return false;
  }
  hr__conv_shape *s = &c->shape;
  s->op = node->op, s->dtype = node->outputs[0].dtype;
  s->spatial = node->ints[0] == 1 ? 2 : (int)node->ints[0];
  s->keeps_f32 = s->dtype == HR_DTYPE_F32 && hr_env_choice(HR_ENV_TF32) == HR_ENV_TF32_OFF;
  operands_of(node, operands, c->args);
  bool is_float =
      s->dtype == HR_DTYPE_F32 || s->dtype == HR_DTYPE_F64 || s->dtype == HR_DTYPE_F16 || s->dtype == HR_DTYPE_BF16;
  bool is_first = true, is_last = s->dtype != HR_DTYPE_F64; /* the library supports it with channels first alone */
  for (int r = 0; r < CONV_OWN_ROLES; ++r) {
    if (!is_float || operands[r]->rank != (int)node->ints[0] + 2 || !set_operand(c, (hr__conv_role)r, operands[r])) {
      return false;
    }
    is_first &= has_layout(operands[r], false);
    is_last &= has_layout(operands[r], true);
  }
  s->channels_last = is_last;
  set_strides(s);
  return (is_first || is_last) && set_window(s, node->ints) && !skips_elements(s) && set_epilogues(c, node);
}

/* True if the library has an engine for the node with its epilogues; the device is current on this thread. */
static bool has_engine(const hr__conv_shape *shape) {
  cudnn_handle handle;
  hr__conv_plan *plan = NULL;
  hr_status status = hr__cudnn_lock(NULL, &handle);
  if (status == HR_OK) {
    status = hr__conv_plan_acquire(handle, shape, &plan);
    hr__cudnn_unlock();
  }
  bool has = status == HR_OK;
  hr__conv_plan_release(plan);
  hr_status_ignore(status);
  return has;
}

static bool supports(const hr_program *program, const hr_node *node) {
  (void)program;
  call c;
  return call_of(node, &c) && (node->epilogue_count == 0 || hr__gpu_model() != NULL || has_engine(&c.shape));
}

/* ---- preparing ---- */

static void release(hr_prepared *p) {
  if (p == NULL) {
    return;
  }
  hr__conv_plan_release(p->plan);
  if (p->pack != NULL) {
    (void)hr__cudnn()->BackendDestroyDescriptor(p->pack);
  }
  hr_free(p);
}

static hr_status make(hr_prepared *p, int rank, void *queue) {
  cudnn_handle handle;
  p->call.shape.rank = rank;
  HR_RETURN_IF_ERROR(hr__cudnn_lock(queue, &handle));
  hr_status status = hr__conv_plan_acquire(handle, &p->call.shape, &p->plan);
  hr__cudnn_unlock();
  return status;
}

/* The library's next choices. With epilogues it ranks them worse: for a convolution of 64 to 256 channels the eighth
 * was the fastest. */
enum { ALGORITHMS_WITHOUT_EPILOGUES = 4 };
static const char *const algorithms[] = {"second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", NULL};

static hr_status prepare(const hr_program *program, const hr_node *node, int algorithm, void *queue,
                         hr_prepared **out_prepared, size_t *out_workspace_bytes) {
  (void)program;
  hr_prepared *p = hr_calloc(1, sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "conv: no memory for a prepared convolution");
  }
  bool has_algorithm = algorithm < ALGORITHMS_WITHOUT_EPILOGUES || node->epilogue_count > 0;
  hr_status status = has_algorithm && call_of(node, &p->call)
                         ? make(p, algorithm - HR_ALGORITHM_OWN, queue)
                         : hr_status_make(HR_STATUS_UNIMPLEMENTED, "cuDNN: a convolution that it does not support");
  if (status != HR_OK) {
    release(p);
    return status;
  }
  size_t bytes = hr__conv_plan_workspace(p->plan);
  *out_prepared = p;
  *out_workspace_bytes = bytes > 0 ? bytes + WORKSPACE_SLACK : 0;
  return HR_OK;
}

static const char *version(void) {
  return hr__cudnn_opened()->version;
}

/* ---- running ---- */

static int pack(hr_prepared *p, void *const addresses[CONV_ROLES + 1]) {
  cudnn_descriptor made = NULL;
  int code = hr__conv_pack(&p->call.shape, addresses, addresses[CONV_ROLES], &made);
  if (code == CUDNN_SUCCESS) {
    if (p->pack != NULL) {
      (void)hr__cudnn()->BackendDestroyDescriptor(p->pack);
    }
    p->pack = made;
    memcpy(p->packed, addresses, sizeof p->packed);
  }
  return code;
}

static hr_status run(hr_prepared *p, void *const *args, void *workspace, void *queue) {
  void *addresses[CONV_ROLES + 1] = {NULL};
  for (int r = 0; r < CONV_ROLES; ++r) {
    if (!p->call.shape.has_role[r]) {
      continue;
    }
    addresses[r] = (char *)args[p->call.args[r]] + p->call.offsets[r];
    if ((uintptr_t)addresses[r] % CONV_ALIGNMENT != 0) {
      return hr_status_make(HR_STATUS_INTERNAL, "cuDNN: operand %d is not aligned to %d bytes", p->call.args[r],
                            CONV_ALIGNMENT);
    }
  }
  if (hr__conv_plan_workspace(p->plan) > 0) {
    addresses[CONV_ROLES] = (void *)(((uintptr_t)workspace + WORKSPACE_SLACK) & ~(uintptr_t)(WORKSPACE_ALIGNMENT - 1));
  }
  cudnn_handle handle;
  HR_RETURN_IF_ERROR(hr__cudnn_lock(queue, &handle));
  bool is_packed = p->pack != NULL && memcmp(p->packed, addresses, sizeof addresses) == 0;
  int code = is_packed ? CUDNN_SUCCESS : pack(p, addresses);
  code = code != 0 ? code : hr__cudnn()->BackendExecute(handle, hr__conv_plan_descriptor(p->plan), p->pack);
  hr__cudnn_unlock();
  return hr__cudnn_status(code, hr_op_table(p->call.shape.op)->name);
}

const hr_provider hr__cudnn_provider = {
    .name = "cudnn",
    .dialect = HR_DIALECT_CUDA,
    .channels_last = true,
    .one_format = true,
    .folds_scales = true,
    .open = hr__cudnn_open,
    .supports = supports,
    .prepare = prepare,
    .algorithms = algorithms,
    .version = version,
    .run = run,
    .release = release,
};
