/* conv_plan.c: makes cuDNN's plans for convolutions. See conv_plan.h.
 *
 * The library ranks its engines for a graph. The first suitable engine that works here is used, or another one by its
 * rank, which may be faster. An engine is suitable if it meets these conditions:
 *
 * - It multiplies and sums the elements of each output: the engines of Winograd and Fourier spread infinity and NaN
 *   over their tiles, and round more.
 * - It sums narrow factors in f32 and does not narrow factors. f32 may be rounded to TF32 unless the shape forbids it.
 * - The library calls it deterministic. Exception: gradients for which the library has no deterministic engine.
 * - With epilogues, it is compiled already: others take .3 to .7 s each to compile, and are slower.
 * - With a ReLU, it keeps NaN. The plan requests that. But one engine of 9.19 (windows of one element with a bias)
 *   gives 0 all the same, and no attribute reveals it. So each plan runs once, on input of only NaN.
 *
 * Sums have the one order for which the library has compiled engines.
 */
#include "providers/cudnn/conv_plan.h"

#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "base/log.h"
#include "base/thread.h"
#include "core/ir/dtype.h"

enum { CONFIGS_MOST = 32, UNUSED_MOST = 256, WORKSPACE_MOST = 256 << 20 };
enum { EPILOGUES_MOST = 3, PARTS_MOST = CONV_ROLES + 2 + 3 * EPILOGUES_MOST };

struct hr__conv_plan {
  hr__conv_shape shape;
  int device, references, code; /* the library's, of the graph */
  cudnn_descriptor descriptor;  /* NULL: the library has no suitable engine */
  int64_t workspace_bytes;
  hr__conv_plan *next; /* by age, the youngest first */
};

/* ---- descriptors ---- */

static void destroy(cudnn_descriptor descriptor) {
  if (descriptor != NULL) {
    (void)hr__cudnn()->BackendDestroyDescriptor(descriptor);
  }
}

/* A descriptor under construction: after the first error nothing more is set. */
typedef struct filling {
  cudnn_descriptor descriptor;
  int code;
} filling;

static filling begin(int kind) {
  filling f = {0};
  f.code = hr__cudnn()->BackendCreateDescriptor(kind, &f.descriptor);
  return f;
}

static void set(filling *f, int name, int type, int64_t count, const void *values) {
  if (f->code == CUDNN_SUCCESS) {
    f->code = hr__cudnn()->BackendSetAttribute(f->descriptor, name, type, count, values);
  }
}

/* The finished descriptor, or NULL. */
static cudnn_descriptor end(filling *f) {
  if (f->code == CUDNN_SUCCESS) {
    f->code = hr__cudnn()->BackendFinalize(f->descriptor);
  }
  if (f->code != CUDNN_SUCCESS) {
    destroy(f->descriptor);
    f->descriptor = NULL;
  }
  return f->descriptor;
}

static int dtype_of(hr_dtype dtype) {
  return dtype == HR_DTYPE_F64    ? CUDNN_F64
         : dtype == HR_DTYPE_F16  ? CUDNN_F16
         : dtype == HR_DTYPE_BF16 ? CUDNN_BF16
                                  : CUDNN_F32;
}

/* A tensor of `like`'s dims, identified by `id`. Virtual: it has no memory. */
static filling make_tensor(const hr__conv_shape *s, hr__conv_role like, int64_t id, bool is_virtual) {
  const int64_t alignment = CONV_ALIGNMENT;
  const int dtype = is_virtual ? CUDNN_F32 : dtype_of(s->dtype);
  filling f = begin(CUDNN_TENSOR);
  set(&f, CUDNN_TENSOR_DTYPE, CUDNN_TYPE_DTYPE, 1, &dtype);
  set(&f, CUDNN_TENSOR_DIMS, CUDNN_TYPE_INT64, s->spatial + 2, s->dims[like]);
  set(&f, CUDNN_TENSOR_STRIDES, CUDNN_TYPE_INT64, s->spatial + 2, s->strides[like]);
  set(&f, CUDNN_TENSOR_ID, CUDNN_TYPE_INT64, 1, &id);
  set(&f, CUDNN_TENSOR_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
  if (is_virtual) {
    set(&f, CUDNN_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOL, 1, &is_virtual);
  }
  (void)end(&f);
  return f;
}

static filling make_window(const hr__conv_shape *s) {
  const int64_t spatial = s->spatial;
  const int compute = s->dtype == HR_DTYPE_F64 ? CUDNN_F64 : CUDNN_F32, mode = CUDNN_CROSS_CORRELATION;
  filling f = begin(CUDNN_WINDOW);
  set(&f, CUDNN_WINDOW_COMPUTE, CUDNN_TYPE_DTYPE, 1, &compute);
  set(&f, CUDNN_WINDOW_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  set(&f, CUDNN_WINDOW_SPATIAL, CUDNN_TYPE_INT64, 1, &spatial);
  set(&f, CUDNN_WINDOW_DILATIONS, CUDNN_TYPE_INT64, spatial, s->dilation);
  set(&f, CUDNN_WINDOW_STRIDES, CUDNN_TYPE_INT64, spatial, s->stride);
  set(&f, CUDNN_WINDOW_PADDING_BEFORE, CUDNN_TYPE_INT64, spatial, s->padding);
  set(&f, CUDNN_WINDOW_PADDING_AFTER, CUDNN_TYPE_INT64, spatial, s->padding);
  (void)end(&f);
  return f;
}

/* Attributes of an operation are consecutive: two factors, the window, and the operands w, x, y, gradients or not. */
static filling make_operation(const hr__conv_shape *s, cudnn_descriptor window,
                              const cudnn_descriptor tensors[CONV_OWN_ROLES]) {
  static const hr__conv_role order[] = {CONV_W, CONV_X, CONV_Y};
  static const int kinds[] = {CUDNN_CONV, CUDNN_CONV_BACKWARD_DATA, CUDNN_CONV_BACKWARD_WEIGHT};
  static const int firsts[] = {CUDNN_CONV_ATTRIBUTES, CUDNN_CONV_BACKWARD_DATA_ATTRIBUTES,
                               CUDNN_CONV_BACKWARD_WEIGHT_ATTRIBUTES};
  const int which = s->op == HR_OP_CONV ? 0 : s->op == HR_OP_CONV_BACKWARD_DATA ? 1 : 2;
  const double one_f64 = 1, zero_f64 = 0;
  const float one_f32 = 1, zero_f32 = 0;
  const bool is_f64 = s->dtype == HR_DTYPE_F64;
  const int type = is_f64 ? CUDNN_TYPE_F64 : CUDNN_TYPE_F32;
  filling f = begin(kinds[which]);
  set(&f, firsts[which], type, 1, is_f64 ? (const void *)&one_f64 : &one_f32);
  set(&f, firsts[which] + 1, type, 1, is_f64 ? (const void *)&zero_f64 : &zero_f32);
  set(&f, firsts[which] + 2, CUDNN_TYPE_DESCRIPTOR, 1, &window);
  for (int i = 0; i < CONV_OWN_ROLES; ++i) {
    set(&f, firsts[which] + 3 + i, CUDNN_TYPE_DESCRIPTOR, 1, &tensors[order[i]]);
  }
  (void)end(&f);
  return f;
}

static filling make_point(int mode) {
  const int compute = CUDNN_F32, keeps_nan = CUDNN_PROPAGATE_NAN;
  filling f = begin(CUDNN_POINT);
  set(&f, CUDNN_POINT_MODE, CUDNN_TYPE_POINT_MODE, 1, &mode);
  set(&f, CUDNN_POINT_COMPUTE, CUDNN_TYPE_DTYPE, 1, &compute);
  set(&f, CUDNN_POINT_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPAGATION, 1, &keeps_nan);
  (void)end(&f);
  return f;
}

/* y = x + other, or relu(x) if `other` is NULL. */
static filling make_epilogue(cudnn_descriptor point, cudnn_descriptor x, cudnn_descriptor other, cudnn_descriptor y) {
  filling f = begin(CUDNN_POINTWISE);
  set(&f, CUDNN_POINTWISE_POINT, CUDNN_TYPE_DESCRIPTOR, 1, &point);
  set(&f, CUDNN_POINTWISE_X, CUDNN_TYPE_DESCRIPTOR, 1, &x);
  if (other != NULL) {
    set(&f, CUDNN_POINTWISE_OTHER, CUDNN_TYPE_DESCRIPTOR, 1, &other);
  }
  set(&f, CUDNN_POINTWISE_Y, CUDNN_TYPE_DESCRIPTOR, 1, &y);
  (void)end(&f);
  return f;
}

/* The descriptors of a graph, destroyed when it is finished, and the first error. */
typedef struct parts {
  int code, count, operation_count;
  cudnn_descriptor made[PARTS_MOST], operations[1 + EPILOGUES_MOST];
} parts;

static cudnn_descriptor add_part(parts *p, filling part) {
  p->code = p->code != CUDNN_SUCCESS ? p->code : part.code;
  p->made[p->count++] = part.descriptor;
  return part.descriptor;
}

static void add_operation(parts *p, filling operation) {
  p->operations[p->operation_count++] = add_part(p, operation);
}

/* The operations, each of which reads the result of the one before; the last makes y. */
static void add_operations(parts *p, const hr__conv_shape *s) {
  static const hr__conv_role others[EPILOGUES_MOST] = {CONV_Z, CONV_B, CONV_ROLES /* none: ReLU */};
  const bool is_there[EPILOGUES_MOST] = {s->has_role[CONV_Z], s->has_role[CONV_B], s->has_relu};
  cudnn_descriptor tensors[CONV_ROLES + 1] = {NULL};
  int left = is_there[0] + is_there[1] + is_there[2];
  for (int r = 0; r < CONV_ROLES; ++r) {
    tensors[r] = s->has_role[r] ? add_part(p, make_tensor(s, (hr__conv_role)r, r, false)) : NULL;
  }
  cudnn_descriptor y = tensors[CONV_Y], window = add_part(p, make_window(s));
  cudnn_descriptor value = left > 0 ? add_part(p, make_tensor(s, CONV_Y, CONV_ROLES, true)) : y;
  tensors[CONV_Y] = value;
  add_operation(p, make_operation(s, window, tensors));
  for (int i = 0; i < EPILOGUES_MOST; ++i) {
    if (is_there[i]) {
      cudnn_descriptor point = add_part(p, make_point(others[i] == CONV_ROLES ? CUDNN_RELU : CUDNN_ADD));
      cudnn_descriptor next = --left > 0 ? add_part(p, make_tensor(s, CONV_Y, CONV_ROLES + left, true)) : y;
      add_operation(p, make_epilogue(point, value, tensors[others[i]], next));
      value = next;
    }
  }
}

static filling make_graph(cudnn_handle handle, const hr__conv_shape *s) {
  parts p = {0};
  filling graph = {0};
  add_operations(&p, s);
  graph.code = p.code;
  if (graph.code == CUDNN_SUCCESS) {
    graph = begin(CUDNN_GRAPH);
    set(&graph, CUDNN_GRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set(&graph, CUDNN_GRAPH_OPERATIONS, CUDNN_TYPE_DESCRIPTOR, p.operation_count, p.operations);
    (void)end(&graph);
  }
  while (p.count > 0) {
    destroy(p.made[--p.count]);
  }
  return graph;
}

/* ---- choosing ---- */

static bool allows(const hr__conv_shape *s, int note, bool may_vary) {
  bool is_narrow = s->dtype == HR_DTYPE_F16 || s->dtype == HR_DTYPE_BF16;
  switch (note) {
    case CUDNN_NOTE_TENSOR_CORE:
      return !s->keeps_f32;
    case CUDNN_NOTE_NARROWED_INPUTS:
      return s->dtype == HR_DTYPE_F32 && !s->keeps_f32;
    case CUDNN_NOTE_NARROWED_SUMS:
      return !is_narrow;
    case CUDNN_NOTE_NONDETERMINISTIC:
      return may_vary;
    default:
      return note < CUDNN_NOTE_FOURIER || note > CUDNN_NOTE_WINOGRAD + 3;
  }
}

static bool has_epilogues(const hr__conv_shape *s) {
  return s->has_role[CONV_Z] || s->has_role[CONV_B] || s->has_relu;
}

/* True if an engine is compiled, or need not be. */
static bool behaves(const hr__conv_shape *s, cudnn_descriptor engine) {
  int behaviors[CUDNN_NOTES_MOST];
  int64_t count = 0;
  bool does =
      !has_epilogues(s) || hr__cudnn()->BackendGetAttribute(engine, CUDNN_ENGINE_BEHAVIORS, CUDNN_TYPE_BEHAVIOR,
                                                            CUDNN_NOTES_MOST, &count, behaviors) == CUDNN_SUCCESS;
  for (int64_t i = 0; does && i < count && i < CUDNN_NOTES_MOST; ++i) {
    does = behaviors[i] != CUDNN_BEHAVIOR_COMPILES;
  }
  return does;
}

/* True if the engine of a configuration is suitable (see above). */
static bool is_wanted(const hr__conv_shape *s, cudnn_descriptor config, bool may_vary) {
  int notes[CUDNN_NOTES_MOST];
  int64_t count = 0;
  cudnn_descriptor engine = NULL;
  bool wanted = hr__cudnn()->BackendCreateDescriptor(CUDNN_ENGINE, &engine) == CUDNN_SUCCESS &&
                hr__cudnn()->BackendGetAttribute(config, CUDNN_ENGINE_CONFIG_ENGINE, CUDNN_TYPE_DESCRIPTOR, 1, &count,
                                                 &engine) == CUDNN_SUCCESS &&
                hr__cudnn()->BackendGetAttribute(engine, CUDNN_ENGINE_NOTES, CUDNN_TYPE_NOTE, CUDNN_NOTES_MOST, &count,
                                                 notes) == CUDNN_SUCCESS;
  for (int64_t i = 0; wanted && i < count && i < CUDNN_NOTES_MOST; ++i) {
    wanted = allows(s, notes[i], may_vary);
  }
  wanted = wanted && behaves(s, engine);
  destroy(engine);
  return wanted;
}

static size_t bytes_of(const hr__conv_shape *s, hr__conv_role r) {
  size_t bytes = sizeof(float);
  for (int d = 0; d < s->spatial + 2; ++d) {
    bytes *= (size_t)s->dims[r][d];
  }
  return bytes;
}

int hr__conv_pack(const hr__conv_shape *shape, void *const *addresses, void *workspace, cudnn_descriptor *out_pack) {
  void *pointers[CONV_ROLES];
  int64_t ids[CONV_ROLES], count = 0;
  for (int r = 0; r < CONV_ROLES; ++r) {
    if (shape->has_role[r]) {
      ids[count] = r;
      pointers[count++] = addresses[r];
    }
  }
  filling pack = begin(CUDNN_PACK);
  set(&pack, CUDNN_PACK_POINTERS, CUDNN_TYPE_POINTER, count, pointers);
  set(&pack, CUDNN_PACK_IDS, CUDNN_TYPE_INT64, count, ids);
  set(&pack, CUDNN_PACK_WORKSPACE, CUDNN_TYPE_POINTER, 1, &workspace);
  *out_pack = end(&pack);
  return pack.code;
}

/* Runs the plan with y and its workspace in this memory, and all inputs at its beginning. */
static int run_on(cudnn_handle handle, const hr__conv_plan *plan, uint64_t memory, uint64_t y, uint64_t workspace) {
  void *addresses[CONV_ROLES];
  cudnn_descriptor pack = NULL;
  for (int r = 0; r < CONV_ROLES; ++r) {
    addresses[r] = (void *)(uintptr_t)(r == CONV_Y ? y : memory);
  }
  int code = hr__conv_pack(&plan->shape, addresses, (void *)(uintptr_t)workspace, &pack);
  code = code != CUDNN_SUCCESS ? code : hr__cudnn()->SetStream(handle, NULL);
  code = code != CUDNN_SUCCESS ? code : hr__cudnn()->BackendExecute(handle, plan->descriptor, pack);
  destroy(pack);
  return code;
}

/* True if the first and the last elements of y are NaN. */
static bool is_nan_at_ends(uint64_t y, size_t bytes) {
  enum { LOOK = 1024 };
  float values[LOOK];
  bool is_nan = true;
  size_t part = bytes < sizeof values ? bytes : sizeof values;
  for (int end_of = 0; end_of < 2; ++end_of) {
    is_nan =
        is_nan && hr__cudnn_driver()->MemcpyDtoH_v2(values, end_of != 0 ? y + bytes - part : y, part) == CUDNN_SUCCESS;
    for (size_t i = 0; is_nan && i < part / sizeof *values; ++i) {
      is_nan = values[i] != values[i];
    }
  }
  return is_nan;
}

/* True if a plan makes NaN of NaN; afterwards the handle's queue is the default stream. */
static bool keeps_nan(cudnn_handle handle, const hr__conv_plan *plan) {
  enum { NAN_BYTE = 0xff, ALIGNMENT = 256 };
  const hr__conv_shape *s = &plan->shape;
  size_t inputs = 0, made = bytes_of(s, CONV_Y);
  for (int r = 0; r < CONV_ROLES; ++r) {
    size_t bytes = s->has_role[r] && r != CONV_Y ? bytes_of(s, (hr__conv_role)r) : 0;
    inputs = bytes > inputs ? bytes : inputs;
  }
  inputs = hr_align_up(inputs, ALIGNMENT);
  size_t results = hr_align_up(made, ALIGNMENT), all = inputs + results + (size_t)plan->workspace_bytes;
  uint64_t memory = 0;
  if (hr__cudnn_driver()->MemAlloc_v2(&memory, all) != CUDNN_SUCCESS) {
    return false;
  }
  uint64_t y = memory + inputs;
  bool keeps = hr__cudnn_driver()->MemsetD8_v2(memory, NAN_BYTE, inputs) == CUDNN_SUCCESS &&
               hr__cudnn_driver()->MemsetD8_v2(y, 0, results) == CUDNN_SUCCESS &&
               run_on(handle, plan, memory, y, y + results) == CUDNN_SUCCESS && is_nan_at_ends(y, made);
  (void)hr__cudnn_driver()->MemFree_v2(memory);
  return keeps;
}

static bool make_plan(cudnn_handle handle, cudnn_descriptor config, hr__conv_plan *plan) {
  filling f = begin(CUDNN_PLAN);
  int64_t count = 0;
  set(&f, CUDNN_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  set(&f, CUDNN_PLAN_CONFIG, CUDNN_TYPE_DESCRIPTOR, 1, &config);
  plan->descriptor = end(&f);
  plan->workspace_bytes = 0;
  if (plan->descriptor != NULL &&
      (hr__cudnn()->BackendGetAttribute(plan->descriptor, CUDNN_PLAN_WORKSPACE, CUDNN_TYPE_INT64, 1, &count,
                                        &plan->workspace_bytes) != CUDNN_SUCCESS ||
       plan->workspace_bytes > WORKSPACE_MOST || (plan->shape.has_relu && !keeps_nan(handle, plan)))) {
    destroy(plan->descriptor);
    plan->descriptor = NULL;
  }
  return plan->descriptor != NULL;
}

/* The configurations that the library proposes, best first; returns their number. The caller owns all `CONFIGS_MOST`
 * descriptors. */
static int64_t ask(cudnn_descriptor graph, int mode, cudnn_descriptor *configs) {
  int64_t count = 0;
  int code = CUDNN_SUCCESS;
  filling f = begin(CUDNN_HEURISTIC);
  set(&f, CUDNN_HEURISTIC_GRAPH, CUDNN_TYPE_DESCRIPTOR, 1, &graph);
  set(&f, CUDNN_HEURISTIC_MODE, CUDNN_TYPE_HEURISTIC_MODE, 1, &mode);
  (void)end(&f);
  for (int i = 0; i < CONFIGS_MOST && code == CUDNN_SUCCESS && f.code == CUDNN_SUCCESS; ++i) {
    code = hr__cudnn()->BackendCreateDescriptor(CUDNN_ENGINE_CONFIG, &configs[i]);
  }
  if (f.code != CUDNN_SUCCESS || code != CUDNN_SUCCESS ||
      hr__cudnn()->BackendGetAttribute(f.descriptor, CUDNN_HEURISTIC_RESULTS, CUDNN_TYPE_DESCRIPTOR, CONFIGS_MOST,
                                       &count, configs) != CUDNN_SUCCESS) {
    count = 0;
  }
  destroy(f.descriptor);
  return count < CONFIGS_MOST ? count : CONFIGS_MOST;
}

/* Skips the first *skipped suitable engines. */
static bool choose_in(cudnn_handle handle, cudnn_descriptor graph, int mode, bool may_vary, int *skipped,
                      hr__conv_plan *plan) {
  cudnn_descriptor configs[CONFIGS_MOST] = {NULL};
  int64_t count = ask(graph, mode, configs);
  bool is_found = false;
  for (int64_t i = 0; i < count && !is_found; ++i) {
    if (is_wanted(&plan->shape, configs[i], may_vary)) {
      is_found = *skipped == 0 && make_plan(handle, configs[i], plan);
      *skipped -= *skipped > 0 ? 1 : 0;
    }
  }
  for (int i = 0; i < CONFIGS_MOST; ++i) {
    destroy(configs[i]);
  }
  return is_found;
}

static bool choose(cudnn_handle handle, cudnn_descriptor graph, hr__conv_plan *plan) {
  const bool is_gradient = plan->shape.op != HR_OP_CONV;
  int skipped = plan->shape.rank;
  for (int may_vary = 0; may_vary <= (int)(is_gradient && plan->shape.rank == 0); ++may_vary) {
    if (choose_in(handle, graph, CUDNN_HEURISTIC_INSTANT, may_vary != 0, &skipped, plan) ||
        choose_in(handle, graph, CUDNN_HEURISTIC_FALLBACK, may_vary != 0, &skipped, plan)) {
      if (may_vary != 0) {
        hr_log(HR_LOG_DEVICE, "cuDNN: %s has no deterministic algorithm here", hr_op_table(plan->shape.op)->name);
      }
      return true;
    }
  }
  return false;
}

static hr_status no_engine(const hr__conv_plan *plan) {
  const hr__conv_shape *s = &plan->shape;
  const int64_t *x = s->dims[CONV_X], *w = s->dims[CONV_W];
  return hr_status_make(HR_STATUS_UNIMPLEMENTED,
                        "cuDNN: no algorithm for %s of x %s [%lld,%lld,%lld,%lld], w [%lld,%lld,%lld,%lld], %s: %s",
                        hr_op_table(s->op)->name, hr_dtype_name(s->dtype), (long long)x[0], (long long)x[1],
                        (long long)x[2], (long long)x[3], (long long)w[0], (long long)w[1], (long long)w[2],
                        (long long)w[3], s->channels_last ? "channels last" : "channels first",
                        plan->code != CUDNN_SUCCESS ? hr__cudnn()->GetErrorString(plan->code)
                                                    : "none of its engines will do");
}

static void make(cudnn_handle handle, hr__conv_plan *plan) {
  filling graph = make_graph(handle, &plan->shape);
  plan->code = graph.code;
  if (graph.code == CUDNN_SUCCESS && !choose(handle, graph.descriptor, plan)) {
    plan->descriptor = NULL;
  }
  destroy(graph.descriptor);
}

/* ---- the list of plans ---- */

/* Destroys the oldest unused plan if there are too many of them. */
static void forget_some(void) {
  hr__conv_plan **oldest = NULL;
  int unused = 0;
  for (hr__conv_plan **at = &hr__cudnn_opened()->plans; *at != NULL; at = &(*at)->next) {
    if ((*at)->references == 0) {
      oldest = at;
      ++unused;
    }
  }
  if (unused > UNUSED_MOST) {
    hr__conv_plan *plan = *oldest;
    *oldest = plan->next;
    destroy(plan->descriptor);
    hr_free(plan);
  }
}

static hr__conv_plan *find(int device, const hr__conv_shape *shape) {
  hr__conv_plan *plan = hr__cudnn_opened()->plans;
  while (plan != NULL && (plan->device != device || memcmp(&plan->shape, shape, sizeof *shape) != 0)) {
    plan = plan->next;
  }
  return plan;
}

static hr_status acquire(cudnn_handle handle, int device, const hr__conv_shape *shape, hr__conv_plan **out_plan) {
  hr__conv_plan *plan = find(device, shape);
  if (plan == NULL) {
    forget_some();
    plan = hr_calloc(1, sizeof *plan);
    if (plan == NULL) {
      return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "conv: no memory for a plan");
    }
    plan->shape = *shape;
    plan->device = device;
    make(handle, plan);
    plan->next = hr__cudnn_opened()->plans;
    hr__cudnn_opened()->plans = plan;
  }
  if (plan->descriptor == NULL) {
    return no_engine(plan);
  }
  ++plan->references;
  *out_plan = plan;
  return HR_OK;
}

hr_status hr__conv_plan_acquire(cudnn_handle handle, const hr__conv_shape *shape, hr__conv_plan **out_plan) {
  int device = -1;
  if (hr__cudnn_driver()->CtxGetDevice(&device) != 0) {
    return hr_status_make(HR_STATUS_INTERNAL, "cuDNN: no device is current on this thread");
  }
  hr_mutex_lock(&hr__cudnn_opened()->plans_mutex);
  hr_status status = acquire(handle, device, shape, out_plan);
  hr_mutex_unlock(&hr__cudnn_opened()->plans_mutex);
  return status;
}

void hr__conv_plan_release(hr__conv_plan *plan) {
  if (plan != NULL) {
    hr_mutex_lock(&hr__cudnn_opened()->plans_mutex);
    --plan->references;
    hr_mutex_unlock(&hr__cudnn_opened()->plans_mutex);
  }
}

cudnn_descriptor hr__conv_plan_descriptor(const hr__conv_plan *plan) {
  return plan->descriptor;
}

size_t hr__conv_plan_workspace(const hr__conv_plan *plan) {
  return (size_t)plan->workspace_bytes;
}
