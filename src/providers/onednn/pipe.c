/* pipe.c: building and running the short lists of primitives of pipe.h. */
#include "providers/onednn/pipe.h"

#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "base/thread.h"
#include "core/ir/dtype.h"

enum { ALIGNMENT = 64 };
enum { MEMORY_BYTES = 840 };               /* of the library's object */
static const int64_t COPY_GRAIN = 1 << 16; /* bytes */

int hr__dnnl_dtype(hr_dtype dtype) {
  switch (dtype) {
    case HR_DTYPE_F32:
      return DNNL_F32;
    case HR_DTYPE_BF16:
      return DNNL_BF16;
    case HR_DTYPE_F16:
      return DNNL_F16;
    default:
      return 0;
  }
}

void hr__pipe_refuse(hr_prepared *pipe) {
  if (pipe->status == HR_OK) {
    pipe->status = hr_status_make(HR_STATUS_UNIMPLEMENTED, "oneDNN: no algorithm for this operation");
  }
}

hr_prepared *hr__pipe_create(int64_t flops, bool other_threads, const hr__dnnl_key *key) {
  hr_prepared *pipe = hr_malloc(sizeof *pipe);
  if (pipe == NULL) {
    return NULL;
  }
  memset(pipe, 0, offsetof(hr_prepared, steps)); /* steps are written whole when they are added */
  pipe->kept.arg = -1;
  pipe->key = key;
  pipe->thread_count = (flops < HR_ONEDNN_SERIAL_FLOPS) != other_threads ? 1 : hr_thread_count();
  if (other_threads &&
      (flops < HR_ONEDNN_SERIAL_FLOPS / 8 || flops > 16 * HR_ONEDNN_SERIAL_FLOPS || hr_thread_count() == 1)) {
    hr__pipe_refuse(pipe);
  }
  hr__pipe_check(pipe, hr__dnnl()->stream_create(&pipe->stream, hr__dnnl_engine(), DNNL_STREAM_IN_ORDER), "stream");
  return pipe;
}

static void free_descs(hr_prepared *pipe) {
  for (int i = 0; i < pipe->desc_count; ++i) {
    hr__dnnl()->memory_desc_destroy(pipe->descs[i]);
  }
  pipe->desc_count = 0;
}

static size_t block_bytes(const hr_prepared *pipe) {
  return offsetof(hr_prepared, steps) + (size_t)pipe->step_count * sizeof *pipe->steps;
}

hr_prepared *hr__pipe_finish(hr_prepared *pipe) {
  free_descs(pipe);
  hr_prepared *finished = hr_realloc(pipe, block_bytes(pipe));
  if (finished == NULL) {
    hr__pipe_release(pipe);
  }
  return finished;
}

void hr__pipe_release(hr_prepared *pipe) {
  if (pipe == NULL) {
    return;
  }
  hr__late_claim(&pipe->late);
  for (int i = 0; i < pipe->step_count; ++i) {
    hr__dnnl_primitive_release(pipe->steps[i].shared);
  }
  for (int i = 0; i < pipe->memory_count; ++i) {
    hr__dnnl()->memory_destroy(pipe->memories[i].memory);
  }
  free_descs(pipe);
  if (pipe->stream != NULL) {
    hr__dnnl()->stream_destroy(pipe->stream);
  }
  hr_status_free(pipe->status);
  hr_free(pipe);
}

size_t hr__pipe_footprint(const hr_prepared *pipe) {
  size_t bytes = block_bytes(pipe) + (size_t)pipe->memory_count * MEMORY_BYTES;
  for (int i = 0; i < pipe->step_count; ++i) {
    bytes += pipe->steps[i].shared != NULL ? hr__dnnl_primitive_footprint(pipe->steps[i].shared) : 0;
  }
  return bytes;
}

void hr__pipe_check(hr_prepared *pipe, int code, const char *what) {
  if (pipe->status == HR_OK) {
    pipe->status = hr__dnnl_status(code, what);
  }
}

static dnnl_memory_desc keep_desc(hr_prepared *pipe, dnnl_memory_desc desc) {
  if (desc != NULL && pipe->desc_count < PIPE_MEMORIES_MAX) {
    pipe->descs[pipe->desc_count++] = desc;
  }
  return desc;
}

dnnl_memory_desc hr__pipe_desc(hr_prepared *pipe, hr_dtype dtype, int rank, const int64_t *dims,
                               const int64_t *strides) {
  dnnl_memory_desc desc = NULL;
  if (pipe->status == HR_OK) {
    hr__pipe_check(pipe, hr__dnnl()->memory_desc_create_with_strides(&desc, rank, dims, hr__dnnl_dtype(dtype), strides),
                   "memory layout");
  }
  return keep_desc(pipe, desc);
}

dnnl_memory_desc hr__pipe_desc_any(hr_prepared *pipe, hr_dtype dtype, int rank, const int64_t *dims) {
  dnnl_memory_desc desc = NULL;
  if (pipe->status == HR_OK) {
    hr__pipe_check(pipe,
                   hr__dnnl()->memory_desc_create_with_tag(&desc, rank, dims, hr__dnnl_dtype(dtype), DNNL_TAG_ANY),
                   "memory layout");
  }
  return keep_desc(pipe, desc);
}

static int add_memory(hr_prepared *pipe, dnnl_const_memory_desc desc, int arg, int64_t offset) {
  if (pipe->status != HR_OK) {
    return 0;
  }
  if (pipe->memory_count == PIPE_MEMORIES_MAX) {
    pipe->status = hr_status_make(HR_STATUS_INTERNAL, "oneDNN: more than %d memories", PIPE_MEMORIES_MAX);
    return 0;
  }
  pipe_memory *memory = &pipe->memories[pipe->memory_count];
  hr__pipe_check(pipe, hr__dnnl()->memory_create(&memory->memory, desc, hr__dnnl_engine(), NULL), "memory");
  if (pipe->status != HR_OK) {
    return 0;
  }
  memory->arg = arg;
  memory->offset = offset;
  return pipe->memory_count++;
}

static int64_t add_workspace(hr_prepared *pipe, size_t bytes) {
  int64_t offset = (int64_t)pipe->workspace_bytes;
  pipe->workspace_bytes += hr_align_up(bytes, ALIGNMENT);
  return offset;
}

int hr__pipe_operand(hr_prepared *pipe, int arg, const hr_operand *operand, dnnl_const_memory_desc desc) {
  return add_memory(pipe, desc, arg, operand->offset * (int64_t)hr_dtype_size(operand->dtype));
}

int hr__pipe_workspace(hr_prepared *pipe, dnnl_const_memory_desc desc) {
  if (pipe->status != HR_OK) {
    return 0;
  }
  return add_memory(pipe, desc, PIPE_WORKSPACE, add_workspace(pipe, hr__dnnl()->memory_desc_get_size(desc)));
}

int hr__pipe_cached(hr_prepared *pipe, dnnl_const_memory_desc desc) {
  return add_memory(pipe, desc, PIPE_CACHED, 0);
}

int hr__pipe_packed(hr_prepared *pipe, int arg, const hr_operand *operand, dnnl_const_memory_desc desc, bool is_output,
                    pipe_step *out_unpack) {
  int memory = hr__pipe_workspace(pipe, desc);
  if (pipe->status != HR_OK) {
    return 0;
  }
  pipe_step step = {.kind = is_output ? PIPE_UNPACK : PIPE_PACK};
  step.copy.arg = arg;
  step.copy.element_bytes = hr_dtype_size(operand->dtype);
  step.copy.arg_offset = operand->offset * (int64_t)step.copy.element_bytes;
  step.copy.workspace_offset = pipe->memories[memory].offset;
  step.copy.rank = operand->rank;
  memcpy(step.copy.dims, operand->dims, (size_t)operand->rank * sizeof(int64_t));
  memcpy(step.copy.strides, operand->strides, (size_t)operand->rank * sizeof(int64_t));
  if (is_output) {
    *out_unpack = step;
  } else {
    hr__pipe_step(pipe, &step);
  }
  return memory;
}

void hr__pipe_step(hr_prepared *pipe, const pipe_step *step) {
  if (pipe->status != HR_OK) {
    return;
  }
  if (pipe->step_count == PIPE_STEPS_MAX) {
    pipe->status = hr_status_make(HR_STATUS_INTERNAL, "oneDNN: more than %d steps", PIPE_STEPS_MAX);
    return;
  }
  pipe->steps[pipe->step_count++] = *step;
}

void hr__pipe_when(hr_prepared *pipe, pipe_when when) {
  if (pipe->status == HR_OK) {
    pipe->steps[pipe->step_count - 1].when = when;
  }
}

int hr__pipe_number(hr_prepared *pipe, int arg, dnnl_const_memory_desc desc) {
  int memory = hr__pipe_workspace(pipe, desc);
  if (pipe->status == HR_OK) {
    pipe_step step = {.kind = PIPE_NUMBER};
    step.copy.arg = arg;
    step.copy.workspace_offset = pipe->memories[memory].offset;
    hr__pipe_step(pipe, &step);
  }
  return memory;
}

void hr__pipe_zero(hr_prepared *pipe, int arg, const hr_operand *operand) {
  pipe_step step = {.kind = PIPE_ZERO};
  step.copy.arg = arg;
  step.copy.element_bytes = hr_dtype_size(operand->dtype);
  step.copy.arg_offset = operand->offset * (int64_t)step.copy.element_bytes;
  step.copy.rank = operand->rank;
  memcpy(step.copy.dims, operand->dims, (size_t)operand->rank * sizeof(int64_t));
  hr__pipe_step(pipe, &step);
}

dnnl_primitive_attr hr__pipe_attr(hr_prepared *pipe, dnnl_const_post_ops ops) {
  dnnl_primitive_attr attr = NULL;
  hr__pipe_check(pipe, hr__dnnl()->primitive_attr_create(&attr), "attributes");
  if (pipe->status == HR_OK) {
    hr__pipe_check(pipe, hr__dnnl()->primitive_attr_set_scratchpad_mode(attr, DNNL_SCRATCHPAD_USER), "scratchpad mode");
  }
  if (pipe->status == HR_OK && ops != NULL) {
    hr__pipe_check(pipe, hr__dnnl()->primitive_attr_set_post_ops(attr, ops), "post-ops");
  }
  /* Attributes are requested right before a primitive is created, and oneDNN sizes its loops by the thread count, at
   * creation and again at execution. */
  (void)hr_library_threads_set(pipe->thread_count);
  return attr;
}

hr__dnnl_primitive *hr__pipe_known(const hr_prepared *pipe, hr__dnnl_which which) {
  return pipe->status == HR_OK ? hr__dnnl_known_primitive(pipe->key, which) : NULL;
}

/* Consumes the descriptor. */
static hr__dnnl_primitive *primitive_of(hr_prepared *pipe, dnnl_primitive_desc desc) {
  hr__dnnl_primitive *primitive = hr__dnnl_primitive_of(desc);
  hr__pipe_check(pipe, primitive != NULL ? DNNL_SUCCESS : DNNL_OUT_OF_MEMORY, "primitive");
  return primitive;
}

hr__dnnl_primitive *hr__pipe_described(hr_prepared *pipe, hr__dnnl_which which, dnnl_primitive_desc desc) {
  hr__dnnl_primitive *primitive = primitive_of(pipe, desc);
  hr__dnnl_note_primitive(pipe->key, which, primitive);
  return primitive;
}

dnnl_memory_desc hr__pipe_layout(hr_prepared *pipe, const hr__dnnl_primitive *primitive, int what) {
  dnnl_memory_desc layout = pipe->status == HR_OK ? hr__dnnl_primitive_layout(primitive, what) : NULL;
  hr__pipe_check(pipe, layout != NULL ? DNNL_SUCCESS : DNNL_OUT_OF_MEMORY, "memory layout");
  return keep_desc(pipe, layout);
}

static void add_scratchpad(hr_prepared *pipe, pipe_step *step) {
  dnnl_const_memory_desc scratchpad = hr__pipe_layout(pipe, step->shared, DNNL_QUERY_SCRATCHPAD);
  if (pipe->status == HR_OK && hr__dnnl()->memory_desc_get_size(scratchpad) > 0) {
    step->args[step->arg_count].arg = DNNL_ARG_SCRATCHPAD;
    step->args[step->arg_count++].memory = hr__pipe_workspace(pipe, scratchpad);
  }
}

void hr__pipe_primitive(hr_prepared *pipe, hr__dnnl_primitive *primitive, int count, const int (*args)[2]) {
  pipe_step step = {.kind = PIPE_PRIMITIVE, .shared = primitive};
  for (int i = 0; i < count; ++i) {
    if (args[i][1] >= 0) {
      step.args[step.arg_count].arg = args[i][0];
      step.args[step.arg_count++].memory = args[i][1];
    }
  }
  add_scratchpad(pipe, &step);
  hr__pipe_step(pipe, &step);
  if (pipe->status != HR_OK) {
    hr__dnnl_primitive_release(primitive);
    return;
  }
  pipe->kernel = hr__dnnl_primitive_name(primitive);
}

static hr__dnnl_primitive *new_reorder(hr_prepared *pipe, dnnl_const_memory_desc from, dnnl_const_memory_desc to) {
  dnnl_primitive_desc desc = NULL;
  dnnl_primitive_attr attr = hr__pipe_attr(pipe, NULL);
  hr__pipe_check(pipe,
                 hr__dnnl()->reorder_primitive_desc_create(&desc, from, hr__dnnl_engine(), to, hr__dnnl_engine(), attr),
                 "reorder");
  hr__dnnl()->primitive_attr_destroy(attr);
  hr__dnnl_primitive *reorder = primitive_of(pipe, desc);
  hr__dnnl_note_reorder(reorder, pipe->thread_count);
  return reorder;
}

void hr__pipe_reorder(hr_prepared *pipe, int memory_from, dnnl_const_memory_desc from, int memory_to,
                      dnnl_const_memory_desc to) {
  if (pipe->status != HR_OK) {
    return;
  }
  hr__dnnl_primitive *reorder = hr__dnnl_known_reorder(from, to, pipe->thread_count);
  reorder = reorder != NULL ? reorder : new_reorder(pipe, from, to);
  const int args[2][2] = {{DNNL_ARG_SRC, memory_from}, {DNNL_ARG_DST, memory_to}};
  hr__pipe_primitive(pipe, reorder, 2, args);
}

int hr__pipe_reordered(hr_prepared *pipe, int memory, dnnl_const_memory_desc from, dnnl_const_memory_desc to) {
  if (pipe->status != HR_OK || hr__dnnl()->memory_desc_equal(from, to)) {
    return memory;
  }
  int reordered = hr__pipe_workspace(pipe, to);
  hr__pipe_reorder(pipe, memory, from, reordered, to);
  return reordered;
}

int hr__pipe_reordered_weight(hr_prepared *pipe, int arg, int memory, dnnl_const_memory_desc from,
                              dnnl_const_memory_desc to) {
  int reordered = hr__pipe_reordered(pipe, memory, from, to);
  if (pipe->status == HR_OK && reordered != memory && pipe->memories[memory].arg == arg) {
    hr__pipe_when(pipe, PIPE_UNLESS_CACHED);
    hr__pipe_keep(pipe, arg, pipe->memories[memory].offset, from, reordered, to);
  }
  return reordered;
}

/* ---- run ---- */

typedef struct copy_call {
  const pipe_copy *copy;
  char *strided, *dense;
  bool to_dense;
  int outer; /* leading dims, before those that are dense on both sides */
  int64_t run;
} copy_call;

/* Runs [begin, end) of the outer dims. */
static void copy_runs(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const copy_call *call = arg;
  const pipe_copy *copy = call->copy;
  int64_t index[HR_RANK_MAX], at = 0, rest = begin;
  size_t bytes = (size_t)call->run * copy->element_bytes;
  for (int d = call->outer - 1; d >= 0; --d) {
    index[d] = rest % copy->dims[d];
    rest /= copy->dims[d];
    at += index[d] * copy->strides[d];
  }
  for (int64_t i = begin; i < end; ++i) {
    char *a = call->strided + at * (int64_t)copy->element_bytes, *b = call->dense + i * (int64_t)bytes;
    memcpy(call->to_dense ? b : a, call->to_dense ? a : b, bytes);
    for (int d = call->outer - 1; d >= 0; --d) {
      at += copy->strides[d];
      if (++index[d] < copy->dims[d]) {
        break;
      }
      at -= copy->strides[d] * copy->dims[d];
      index[d] = 0;
    }
  }
}

static void copy_strided(const pipe_copy *copy, char *strided, char *dense, bool to_dense, bool is_serial) {
  copy_call call = {copy, strided, dense, to_dense, copy->rank, 1};
  while (call.outer > 0 && (copy->strides[call.outer - 1] == call.run || copy->dims[call.outer - 1] == 1)) {
    call.run *= copy->dims[--call.outer];
  }
  int64_t units = 1;
  for (int d = 0; d < call.outer; ++d) {
    units *= copy->dims[d];
  }
  hr_parallel_for(units, is_serial ? units : COPY_GRAIN / (call.run * (int64_t)copy->element_bytes) + 1, copy_runs,
                  &call);
}

static void zero_bytes(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  memset((char *)arg + begin, 0, (size_t)(end - begin));
}

static void zero_operand(const pipe_copy *copy, char *dense, bool is_serial) {
  int64_t bytes = (int64_t)copy->element_bytes;
  for (int d = 0; d < copy->rank; ++d) {
    bytes *= copy->dims[d];
  }
  hr_parallel_for(bytes, is_serial ? bytes : COPY_GRAIN, zero_bytes, dense);
}

/* dx[n, c, ..] += bias[c]: a transposed convolution's bias; copy describes dx, args[0].arg the bias operand. */
static void add_bias(const pipe_step *step, void *const *args) {
  const pipe_copy *copy = &step->copy;
  float *x = (float *)((char *)args[copy->arg] + copy->arg_offset);
  const float *bias = (const float *)((const char *)args[step->args[0].arg] + step->args[0].memory);
  int64_t dims[3] = {1, 1, 1}, strides[3] = {0}; /* spatial */
  for (int d = 2; d < copy->rank; ++d) {
    dims[5 - copy->rank + d - 2] = copy->dims[d];
    strides[5 - copy->rank + d - 2] = copy->strides[d];
  }
  for (int64_t n = 0; n < copy->dims[0]; ++n) {
    for (int64_t c = 0; c < copy->dims[1]; ++c) {
      float *image = x + n * copy->strides[0] + c * copy->strides[1];
      for (int64_t i = 0; i < dims[0] * dims[1]; ++i) {
        float *row = image + i / dims[1] * strides[0] + i % dims[1] * strides[1];
        for (int64_t j = 0; j < dims[2]; ++j) {
          row[j * strides[2]] += bias[c];
        }
      }
    }
  }
}

static float number_of(const hr_scalar *scalar) {
  return hr_scalar_as_f32(scalar);
}

/* Generates the code of a step's primitive, which takes a tenth of a millisecond to several of them. */
static int make_primitive(const hr_prepared *pipe, pipe_step *step) {
  return hr__dnnl_primitive_make(step->shared, pipe->thread_count, &step->primitive);
}

static bool is_missing(const pipe_step *step) {
  return step->shared != NULL && step->primitive == NULL;
}

static void make_steps(hr_prepared *pipe, bool all) {
  for (int i = 0; i < pipe->step_count; ++i) {
    pipe_step *step = &pipe->steps[i];
    bool is_first = step->when == PIPE_ALWAYS || step->when == PIPE_UNLESS_CACHED;
    if (is_missing(step) && (all || is_first)) {
      (void)make_primitive(pipe, step);
    }
  }
}

void hr__pipe_make(void *pipe) {
  make_steps(pipe, false);
}

void hr__pipe_make_all(hr_prepared *pipe) {
  hr__late_claim(&pipe->late);
  make_steps(pipe, true);
}

int hr__pipe_execute(const hr_prepared *pipe, pipe_step *step) {
  dnnl_exec_arg exec[PIPE_ARGS_MAX];
  if (is_missing(step)) {
    int64_t begin = hr_clock_ns();
    int code = make_primitive(pipe, step);
    hr__late_note(hr_clock_ns() - begin);
    if (code != DNNL_SUCCESS) {
      return code;
    }
  }
  for (int i = 0; i < step->arg_count; ++i) {
    exec[i].arg = step->args[i].arg;
    exec[i].memory = pipe->memories[step->args[i].memory].memory;
  }
  return hr__dnnl()->primitive_execute(step->primitive, pipe->stream, step->arg_count, exec);
}

static int run_step(const hr_prepared *pipe, pipe_step *step, void *const *args, char *workspace) {
  switch (step->kind) {
    case PIPE_PACK:
    case PIPE_UNPACK:
      copy_strided(&step->copy, (char *)args[step->copy.arg] + step->copy.arg_offset,
                   workspace + step->copy.workspace_offset, step->kind == PIPE_PACK, pipe->thread_count == 1);
      return DNNL_SUCCESS;
    case PIPE_ZERO:
      zero_operand(&step->copy, (char *)args[step->copy.arg] + step->copy.arg_offset, pipe->thread_count == 1);
      return DNNL_SUCCESS;
    case PIPE_ADD_BIAS:
      add_bias(step, args);
      return DNNL_SUCCESS;
    case PIPE_NUMBER:
      *(float *)(void *)(workspace + step->copy.workspace_offset) =
          step->copy.arg >= 0 ? number_of(args[step->copy.arg]) : 0;
      return DNNL_SUCCESS;
    default:
      return hr__pipe_execute(pipe, step);
  }
}

static bool is_due(pipe_when when, pipe_keeping keeping) {
  switch (when) {
    case PIPE_UNLESS_CACHED:
      return keeping != PIPE_KEEP_USE;
    case PIPE_IF_CACHED:
      return keeping == PIPE_KEEP_USE;
    case PIPE_TO_KEEP:
      return keeping == PIPE_KEEP_MAKE;
    default:
      return true;
  }
}

static void bind(hr_prepared *pipe, void *const *args, char *workspace, const hr_cached_weights *weight) {
  for (int i = 0; i < pipe->memory_count; ++i) {
    const pipe_memory *memory = &pipe->memories[i];
    if (memory->arg != PIPE_CACHED) {
      char *base = memory->arg >= 0 ? args[memory->arg] : workspace;
      hr__dnnl()->memory_set_data_handle(memory->memory, base + memory->offset);
    }
  }
  if (weight != NULL) {
    hr__dnnl()->memory_set_data_handle(pipe->memories[pipe->kept.memory].memory, hr__cached_weights_data(weight));
  }
}

hr_status hr__pipe_run(hr_prepared *pipe, void *const *args, void *workspace, void *queue) {
  (void)queue;
  hr_cached_weights *weight = NULL;
  hr__late_claim(&pipe->late);
  pipe_keeping keeping = hr__pipe_cached_begin(pipe, &weight);
  bind(pipe, args, workspace, weight);
  if (pipe->thread_count > 1) {
    hr_library_enters(pipe->thread_count);
  }
  int threads = hr_library_threads_set(pipe->thread_count), code = DNNL_SUCCESS;
  for (int i = 0; i < pipe->step_count && code == DNNL_SUCCESS; ++i) {
    if (is_due(pipe->steps[i].when, keeping)) {
      code = run_step(pipe, &pipe->steps[i], args, workspace);
    }
  }
  if (code == DNNL_SUCCESS) {
    hr__pipe_cached_end(pipe, keeping, weight);
  }
  hr__cached_weights_release(weight);
  (void)hr_library_threads_set(threads);
  return hr__dnnl_status(code, "execution");
}
