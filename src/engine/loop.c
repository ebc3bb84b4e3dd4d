/* loop.c: a program that repeats on one thread, without records, keys or jobs of its own. See headrace/loop.h.
 *
 *   iteration   0            1            2            3
 *   reads       the input    output       spare        output       of a carried value
 *   writes      output       spare        output       spare
 *
 * So there are three lists of arguments: for the first, the odd and the even iterations. Within a run they change in
 * the addresses of slices alone. Kernels that are not worth a second thread are called directly.
 *
 * If the number of iterations is known, and no element depends on another one, a kernel runs all iterations behind the
 * first one in one call (repeated_steps.h).
 *
 * A carried value is updated in place if the body begins with its copy, and nothing reads the old one afterwards. An
 * iteration that writes one row of a long result moves one row.
 */
#include "headrace/loop.h"

#include <string.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "base/log.h"
#include "base/thread.h"
#include "core/ir/dtype.h"
#include "engine/compiled_kernel.h"
#include "engine/instantiate.h"
#include "engine/repeated_steps.h"
#include "engine/run.h"
#include "engine/run_steps.h"
#include "engine/stream.h"

enum { FIRST = 0, ODD, EVEN, PHASES, ALIGNMENT = 64, NONE = -1 };
enum { BLOCK = 256 };                     /* iterations between looks at the compile queue */
enum { COPY_BYTES = 16 << 20 };           /* between looks for interrupts */
enum { KEPT_BYTES = 1 << 20 };            /* memory of a run that a loop keeps for the next one */
enum { STEP_NS = 20, SHORT_NS = 100000 }; /* a step's time beside its work; that of a short loop */

struct hr_loop {
  hr_device *device;
  hr_mutex mutex; /* of a run: libraries' objects have one user */
  hr_instance *instance;
  hr_repeated_steps *repeated; /* NULL: iterations run one after another */
  int carried_count, sequence_count, param_count, result_count, buffer_count;
  int *params, *results; /* numbers of the key's buffers; NONE: no record uses it */
  size_t *param_bytes, *result_bytes;
  bool *is_in_place; /* of each carried value */
  int number, condition;
  int64_t count_max;
  hr_buffer **constants; /* of the key's buffers; a reference, or NULL */
  hr_scalar *scalars;
  size_t scratch_bytes;  /* of kernels, for one thread */
  struct loop_run *kept; /* memory of the last run; NULL: none */
};

static void free_run(struct loop_run *r);

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a loop");
}

/* ---- making ---- */

static int find(const hr_trace *trace, const hr_buffer *buffer) {
  uint32_t local = buffer != NULL ? hr__trace_find(trace, buffer) : UINT32_MAX;
  return local != UINT32_MAX ? (int)local : NONE;
}

static hr_status allocate(hr_loop *loop, const hr_trace *trace, const hr_loop_spec *spec) {
  size_t params = (size_t)spec->param_count + 1, results = (size_t)spec->result_count + 1;
  loop->params = hr_calloc(params, sizeof *loop->params);
  loop->results = hr_calloc(results, sizeof *loop->results);
  loop->param_bytes = hr_calloc(params, sizeof *loop->param_bytes);
  loop->result_bytes = hr_calloc(results, sizeof *loop->result_bytes);
  loop->is_in_place = hr_calloc(results, sizeof *loop->is_in_place);
  loop->constants = hr_calloc(trace->buffers.count + 1, sizeof(hr_buffer *));
  loop->scalars = hr_calloc(trace->scalars.count + 1, sizeof *loop->scalars);
  bool has_all = loop->params != NULL && loop->results != NULL && loop->param_bytes != NULL &&
                 loop->result_bytes != NULL && loop->is_in_place != NULL && loop->constants != NULL &&
                 loop->scalars != NULL;
  return has_all ? HR_OK : no_memory();
}

static void number_buffers(hr_loop *loop, const hr_trace *trace, const hr_loop_spec *spec) {
  for (int i = 0; i < spec->param_count; ++i) {
    loop->params[i] = find(trace, spec->params[i]);
    loop->param_bytes[i] = spec->params[i]->bytes;
  }
  for (int i = 0; i < spec->result_count; ++i) {
    loop->results[i] = find(trace, spec->results[i]);
    loop->result_bytes[i] = spec->results[i]->bytes;
  }
  loop->number = find(trace, spec->number);
  loop->condition = find(trace, spec->condition);
}

static hr_status check_results(const hr_loop *loop, const hr_loop_spec *spec) {
  for (int i = 0; i < spec->result_count; ++i) {
    bool fits = i >= spec->carried_count || loop->result_bytes[i] == loop->param_bytes[i];
    if (loop->results[i] == NONE || !fits) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "loop: result %d %s", i,
                            fits ? "is written by no record" : "is larger or smaller than the value before");
    }
  }
  return spec->condition == NULL || loop->condition != NONE
             ? HR_OK
             : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "loop: the condition is written by no record");
}

static bool contains(int count, const int *numbers, size_t number) {
  for (int i = 0; i < count; ++i) {
    if (numbers[i] == (int)number) {
      return true;
    }
  }
  return false;
}

/* Parameters have contents, and live on like results and constants; what is left are temporaries. */
static void describe_buffers(const hr_loop *loop, const hr_trace *trace, uint64_t *shapes) {
  for (size_t i = 0; i < trace->buffers.count; ++i) {
    size_t bytes = hr_shape_bytes(shapes[i]);
    bool is_param =
        contains(loop->param_count, loop->params, i) || (int)i == loop->number || loop->constants[i] != NULL;
    bool is_result = contains(loop->result_count, loop->results, i) || (int)i == loop->condition;
    if (is_param || is_result) {
      shapes[i] = hr_shape_word(bytes, false, false, !is_param);
    } else {
      shapes[i] = hr_shape_word(bytes, true, true, true);
    }
  }
}

static hr_status keep_constants(hr_loop *loop, const hr_trace *trace) {
  for (size_t i = 0; i < trace->buffers.count; ++i) {
    hr_buffer *buffer = trace->buffers.data[i];
    if (hr__buffer_address(buffer) != NULL) {
      if (hr__buffer_layout(buffer) != 0) {
        return hr_status_make(HR_STATUS_UNIMPLEMENTED, "loop: a constant is not in the default layout");
      }
      hr_buffer_retain(buffer);
      loop->constants[i] = buffer;
    }
  }
  return HR_OK;
}

/* True if record i is a whole copy from `old` to `renewed`, records before it use only the former, and those behind it
 * only the latter. */
static bool begins_with_copy(const hr_trace *trace, size_t i, uint32_t old, uint32_t renewed) {
  size_t begin = i > 0 ? trace->records.data[i - 1].local_end : 0, end = trace->records.data[i].local_end;
  bool is = end - begin == 2 && trace->locals.data[begin] == old && trace->locals.data[begin + 1] == renewed &&
            hr__trace_is_same_copy(trace, i);
  for (size_t k = 0; is && k < trace->locals.count; ++k) {
    is = k < begin ? trace->locals.data[k] != renewed : k < end || trace->locals.data[k] != old;
  }
  return is;
}

/* Lets the body update a carried value in place, without the copy that it begins with. */
static void update_in_place(hr_loop *loop, hr_trace *trace, int carried) {
  int old = loop->params[carried], renewed = loop->results[carried];
  for (size_t i = 0; old != NONE && i < trace->records.count; ++i) {
    if (begins_with_copy(trace, i, (uint32_t)old, (uint32_t)renewed)) {
      hr__trace_remove(trace, i);
      for (size_t k = 0; k < trace->locals.count; ++k) {
        trace->locals.data[k] = trace->locals.data[k] == (uint32_t)renewed ? (uint32_t)old : trace->locals.data[k];
      }
      loop->results[carried] = old;
      loop->is_in_place[carried] = true;
      return;
    }
  }
}

static size_t larger(size_t bytes, const hr_host_kernel *kernel) {
  return kernel != NULL && kernel->scratch_bytes > bytes ? kernel->scratch_bytes : bytes;
}

/* Of kernels as they were made, and of their code of now, which may need more. */
static size_t largest_scratch(const hr_loop *loop) {
  const hr_instance *instance = loop->instance;
  size_t most = loop->repeated != NULL ? hr__repeated_steps_scratch(loop->repeated) : 0;
  for (int i = 0; i < instance->step_count; ++i) {
    const hr_exec_step *step = &instance->steps[i];
    most = larger(most, hr__step_kernel(step));
    most = larger(most, step->cached != NULL ? hr__kernel_use(step->cached) : NULL);
  }
  return hr_align_up(most, ALIGNMENT);
}

/* For each of the key's buffers, the one with its next value. */
static void find_next(const hr_loop *loop, int *next_of) {
  for (int i = 0; i < loop->buffer_count; ++i) {
    next_of[i] = loop->constants[i] != NULL ? HR_REPEATED_STAYS : HR_REPEATED_OTHER;
  }
  for (int i = 0; i < loop->param_count; ++i) {
    if (loop->params[i] != NONE) {
      next_of[loop->params[i]] = i < loop->carried_count ? loop->results[i] : HR_REPEATED_STAYS;
    }
  }
  for (int i = 0; i < loop->result_count; ++i) {
    next_of[loop->results[i]] = HR_REPEATED_STAYS;
  }
}

/* Makes the repeated form of the steps, if there is one. */
static hr_status repeat(hr_loop *loop) {
  bool is_simple = loop->condition == NONE && loop->number == NONE && loop->sequence_count == 0 &&
                   loop->result_count == loop->carried_count && loop->count_max > 1;
  for (int i = 0; i < loop->carried_count; ++i) {
    is_simple &= !loop->is_in_place[i];
  }
  int *next_of = is_simple ? hr_calloc((size_t)loop->buffer_count + 1, sizeof *next_of) : NULL;
  if (next_of == NULL) {
    return is_simple ? no_memory() : HR_OK;
  }
  find_next(loop, next_of);
  hr_status status =
      hr__repeated_steps_create(loop->instance, loop->device, loop->buffer_count, next_of, &loop->repeated);
  hr_free(next_of);
  if (hr_status_code_of(status) == HR_STATUS_UNIMPLEMENTED) {
    hr_status_ignore(status);
    return HR_OK;
  }
  return status;
}

static hr_status compile(hr_loop *loop, hr_trace *trace) {
  hr_key key;
  HR_RETURN_IF_ERROR(hr__trace_key(trace, false, &key));
  HR_RETURN_IF_ERROR(keep_constants(loop, trace));
  key.layouts = NULL;
  describe_buffers(loop, trace, trace->shapes.data);
  loop->buffer_count = (int)key.buffer_count;
  memcpy(loop->scalars, trace->scalars.data, trace->scalars.count * sizeof *loop->scalars);
  HR_RETURN_IF_ERROR(hr__instance_create(&key, loop->device, loop->scalars, &loop->instance));
  return !loop->instance->plan->schedule.is_refused
             ? repeat(loop)
             : hr_status_make(HR_STATUS_UNIMPLEMENTED, "loop: a layout is refused");
}

static hr_status make(hr_loop *loop, hr_stream *capture, const hr_loop_spec *spec) {
  hr_trace *trace = &capture->pending;
  HR_RETURN_IF_ERROR(allocate(loop, trace, spec));
  loop->carried_count = spec->carried_count, loop->sequence_count = spec->sequence_count;
  loop->param_count = spec->param_count, loop->result_count = spec->result_count;
  loop->count_max = spec->count_max;
  number_buffers(loop, trace, spec);
  HR_RETURN_IF_ERROR(check_results(loop, spec));
  for (int i = 0; i < spec->carried_count; ++i) {
    update_in_place(loop, trace, i);
  }
  return compile(loop, trace);
}

void hr_loop_free(void *arg) {
  hr_loop *loop = arg;
  if (loop == NULL) {
    return;
  }
  free_run(loop->kept);
  hr__repeated_steps_destroy(loop->repeated);
  hr__instance_release(loop->instance);
  for (int i = 0; i < loop->buffer_count; ++i) {
    hr_buffer_release(loop->constants[i]);
  }
  hr_free(loop->params);
  hr_free(loop->results);
  hr_free(loop->param_bytes);
  hr_free(loop->result_bytes);
  hr_free(loop->is_in_place);
  hr_free(loop->constants);
  hr_free(loop->scalars);
  hr_mutex_fini(&loop->mutex);
  hr_device_release(loop->device);
  hr_free(loop);
}

static hr_status create(hr_stream *capture, const hr_loop_spec *spec, hr_loop **out_loop) {
  hr_loop *loop = hr_calloc(1, sizeof *loop);
  if (loop == NULL) {
    return no_memory();
  }
  hr_mutex_init(&loop->mutex);
  hr_device_retain(capture->device);
  loop->device = capture->device;
  hr_mutex_lock(&capture->mutex);
  hr_status status = make(loop, capture, spec);
  hr__trace_clear(&capture->pending);
  hr_mutex_unlock(&capture->mutex);
  if (status != HR_OK) {
    hr_loop_free(loop);
    return status;
  }
  *out_loop = loop;
  return HR_OK;
}

hr_status hr_loop_create(hr_stream *capture, const hr_loop_spec *spec, hr_loop **out_loop) {
  if (capture == NULL || spec == NULL || out_loop == NULL || !capture->is_capture) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "hr_loop_create: %s",
                          capture != NULL && !capture->is_capture ? "the stream is no capture" : "NULL argument");
  }
  if (!capture->device->properties.is_host || !capture->device->properties.has_contents) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "loop: the device is not the host");
  }
  hr_context *before = hr__context_enter(capture->device->context);
  hr_status status = create(capture, spec, out_loop);
  (void)hr__context_enter(before);
  return status;
}

/* About 10 bytes a nanosecond; the time of libraries' calls is not known. */
bool hr_loop_is_short(const hr_loop *loop) {
  const hr_instance *instance = loop->instance;
  double ns = STEP_NS * (double)instance->step_count + (double)instance->plan->bytes / 10;
  return instance->library_count == 0 && ns * (double)loop->count_max <= SHORT_NS;
}

/* ---- a run ---- */

/* A pass of a kernel, or a step of another kind. */
typedef struct turn_call {
  const hr_host_kernel *kernel; /* NULL: a step */
  hr_host_call call;
  int64_t units, grain;
  int pass, step;
  hr_compiled_pass code; /* of a compiled kernel that is not worth a second thread; else NULL */
  const int64_t *extents;
} turn_call;

/* The address of a slice, which changes in each iteration. */
typedef struct moving {
  void **place;
  char *first; /* iteration 0's */
  size_t bytes;
} moving;

typedef struct phase {
  hr_run_scratch scratch;
  hr_run run;
  void **bound; /* of the key's buffers */
  HR_VECTOR(turn_call) calls;
  HR_VECTOR(moving) moving;
} phase;

typedef struct loop_run {
  hr_loop *loop;
  const hr_function_call *call;
  phase phases[PHASES];
  char *block; /* all memory of the run, of these .. */
  size_t bytes;
  char *scratch;   /* of kernels: for each thread */
  char **spare;    /* of each carried value; NULL: it is updated in place */
  int64_t *number; /* of the iteration */
  char *condition;
  bool writes_spare_first; /* in even iterations */
  hr_thread_interrupt interrupt;
  int64_t count;
} loop_run;

static const void *input_of(const loop_run *r, int param) {
  return r->call->inputs[param + (r->loop->condition != NONE)];
}

static size_t take(size_t *at, size_t bytes) {
  size_t begin = *at;
  *at = hr_align_up(begin + bytes, ALIGNMENT);
  return begin;
}

static hr_status allocate_run(loop_run *r) {
  const hr_loop *loop = r->loop;
  size_t at = 0, shared = take(&at, loop->instance->shared_bytes), number = take(&at, sizeof(int64_t));
  size_t condition = take(&at, 1), spares = take(&at, (size_t)loop->carried_count * sizeof(char *));
  size_t bound = take(&at, (size_t)PHASES * (size_t)loop->buffer_count * sizeof(void *));
  int threads = loop->instance->needs_team || loop->repeated != NULL ? hr_thread_count() : 1;
  size_t scratch = take(&at, loop->scratch_bytes * (size_t)threads), values = at;
  for (int i = 0; i < loop->carried_count; ++i) {
    take(&at, loop->is_in_place[i] ? 0 : loop->result_bytes[i]);
  }
  if (r->block == NULL || at > r->bytes) {
    hr_aligned_free(r->block);
    r->block = hr_aligned_malloc(at, ALIGNMENT);
    r->bytes = at;
  }
  if (r->block == NULL) {
    return no_memory();
  }
  r->number = (int64_t *)(r->block + number), r->condition = r->block + condition;
  r->scratch = r->block + scratch, r->spare = (char **)(r->block + spares);
  for (int i = 0; i < loop->carried_count; ++i) {
    r->spare[i] = loop->is_in_place[i] ? NULL : r->block + take(&values, loop->result_bytes[i]);
  }
  for (int p = 0; p < PHASES; ++p) {
    r->phases[p].bound = (void **)(r->block + bound) + p * loop->buffer_count;
    r->phases[p].run = (hr_run){.device = loop->device,
                                .lane = &loop->device->lanes[0],
                                .impl = loop->device->impl,
                                .shared = loop->instance->shared_bytes > 0 ? r->block + shared : NULL,
                                .bound = r->phases[p].bound,
                                .arguments = loop->scalars};
  }
  return HR_OK;
}

static void free_run(loop_run *r) {
  for (int p = 0; r != NULL && p < PHASES; ++p) {
    hr__run_scratch_fini(&r->phases[p].scratch);
    hr_vector_fini(&r->phases[p].calls);
    hr_vector_fini(&r->phases[p].moving);
  }
  if (r != NULL) {
    hr_aligned_free(r->block);
    hr_free(r);
  }
}

static void bind_to(void **bound, int buffer, const void *address) {
  if (buffer != NONE) {
    bound[buffer] = (void *)address;
  }
}

/* The addresses of the first iteration of a phase: slices move on from there. */
static void bind_phase(const loop_run *r, int number) {
  const hr_loop *loop = r->loop;
  void **bound = r->phases[number].bound;
  bool is_spare = (number == ODD) != r->writes_spare_first;
  for (int i = 0; i < loop->buffer_count; ++i) {
    bound[i] = loop->constants[i] != NULL ? hr__buffer_address(loop->constants[i]) : NULL;
  }
  for (int i = 0; i < loop->param_count; ++i) {
    bind_to(bound, loop->params[i], input_of(r, i));
  }
  bind_to(bound, loop->number, r->number);
  bind_to(bound, loop->condition, r->condition);
  for (int i = 0; i < loop->result_count; ++i) {
    char *output = r->call->outputs[i], *other = i < loop->carried_count ? r->spare[i] : NULL;
    if (other != NULL && number != FIRST) {
      bind_to(bound, loop->params[i], is_spare ? output : other);
    }
    bind_to(bound, loop->results[i], other != NULL && is_spare ? other : output);
  }
}

static bool add_moving(phase *p, const hr_loop *loop, int buffer, size_t bytes) {
  bool ok = true;
  for (size_t i = 0; ok && buffer != NONE && i < loop->instance->args->count; ++i) {
    if (hr_narrow_at(loop->instance->args, i) == hr__arg_of_buffer((uint32_t)buffer)) {
      ok = hr_vector_push(&p->moving, (moving){&p->scratch.args.data[i], p->scratch.args.data[i], bytes});
    }
  }
  return ok;
}

static hr_status list_moving(phase *p, const hr_loop *loop) {
  bool ok = true;
  hr_vector_clear(&p->moving);
  for (int i = 0; ok && i < loop->sequence_count; ++i) {
    ok = add_moving(p, loop, loop->params[loop->carried_count + i], loop->param_bytes[loop->carried_count + i]);
  }
  for (int i = loop->carried_count; ok && i < loop->result_count; ++i) {
    ok = add_moving(p, loop, loop->results[i], loop->result_bytes[i]);
  }
  return ok ? HR_OK : no_memory();
}

static turn_call pass_call(const hr_host_launch *launch, int number, int step) {
  const hr_host_pass *pass = &launch->kernel->passes[number];
  turn_call c = {launch->kernel, launch->call, pass->units, pass->grain, number, step, NULL, NULL};
  if (c.units <= c.grain || c.units == 1) {
    c.code = hr__compiled_kernel_pass(c.kernel, number, &c.extents);
  }
  return c;
}

/* The passes of a kernel as calls on this thread's scratch. */
static bool add_passes(phase *p, const loop_run *r, int step) {
  hr_host_launch launch = hr__step_launch(r->loop->instance, &r->loop->instance->steps[step], &p->run, &p->scratch);
  launch.call.scratch = r->scratch;
  if (launch.kernel->scratch_bytes > r->loop->scratch_bytes) { /* code that came after the run began */
    launch.kernel = hr__step_kernel(&r->loop->instance->steps[step]);
  }
  bool ok = true;
  for (int i = 0; ok && i < launch.kernel->pass_count; ++i) {
    ok = launch.kernel->passes[i].units <= 0 || hr_vector_push(&p->calls, pass_call(&launch, i, step));
  }
  return ok;
}

static hr_status list_calls(phase *p, const loop_run *r) {
  const hr_instance *instance = r->loop->instance;
  bool ok = true;
  hr_vector_clear(&p->calls);
  for (int i = 0; ok && i < instance->step_count; ++i) {
    ok = hr__step_has_kernel(&instance->steps[i]) ? add_passes(p, r, i)
                                                  : hr_vector_push(&p->calls, (turn_call){.step = i});
  }
  return ok ? HR_OK : no_memory();
}

static hr_status prepare_phase(loop_run *r, int number) {
  phase *p = &r->phases[number];
  bind_phase(r, number);
  HR_RETURN_IF_ERROR(hr__run_scratch_reserve(&p->scratch, r->loop->instance));
  hr__instance_bind(r->loop->instance, &p->run, &p->scratch);
  HR_RETURN_IF_ERROR(list_moving(p, r->loop));
  return list_calls(p, r);
}

/* ---- iterations ---- */

typedef struct shared_pass {
  const turn_call *c;
  const loop_run *r;
} shared_pass;

static void run_range(void *arg, int64_t begin, int64_t end, int worker) {
  const shared_pass *s = arg;
  hr_host_call call = s->c->call;
  call.scratch = s->r->scratch + (size_t)worker * s->r->loop->scratch_bytes;
  s->c->kernel->run(s->c->kernel, s->c->pass, &call, begin, end);
}

static hr_status run_step(const loop_run *r, phase *p, int step) {
  return hr__run_steps(r->loop->instance, step, step + 1, &p->run, &p->scratch, NULL);
}

static hr_status run_calls(const loop_run *r, phase *p) {
  for (const turn_call *c = p->calls.data, *end = c + p->calls.count; c < end; ++c) {
    if (c->code != NULL) {
      c->code(c->call.args, c->call.scalars, c->extents, c->call.workspace, c->call.scratch, 0, c->units);
    } else if (c->kernel == NULL) {
      HR_RETURN_IF_ERROR(run_step(r, p, c->step));
    } else if (c->units <= c->grain || c->units == 1) {
      c->kernel->run(c->kernel, c->pass, &c->call, 0, c->units);
    } else {
      shared_pass shared = {c, r};
      hr_parallel_for(c->units, c->grain, run_range, &shared);
    }
  }
  return HR_OK;
}

static void move(const phase *p, int64_t iteration) {
  for (const moving *m = p->moving.data, *end = m + p->moving.count; m < end; ++m) {
    *m->place = m->first + (size_t)iteration * m->bytes;
  }
}

/* Adds the time of interpreted kernels, so that they are compiled; lists the calls again if one has been. */
static hr_status look_at_kernels(loop_run *r, int64_t ns) {
  const hr_instance *instance = r->loop->instance;
  bool is_compiled = false;
  for (int i = 0; i < instance->step_count; ++i) {
    const hr_exec_step *step = &instance->steps[i];
    if (step->cached != NULL && hr__kernel_use(step->cached) == hr__kernel_host(step->cached)) {
      hr__kernel_spend(step->cached, ns / instance->step_count);
    }
  }
  for (size_t i = 0; i < r->phases[ODD].calls.count; ++i) {
    const turn_call *c = &r->phases[ODD].calls.data[i];
    is_compiled |= c->kernel != NULL && c->kernel != hr__kernel_use(instance->steps[c->step].cached);
  }
  HR_RETURN_IF_ERROR(is_compiled ? list_calls(&r->phases[ODD], r) : HR_OK);
  return is_compiled ? list_calls(&r->phases[EVEN], r) : HR_OK;
}

/* Iterations from `begin` to `end`, or to the last one; *out_done: so many have run. */
static hr_status iterate_some(loop_run *r, int64_t begin, int64_t end, int64_t *out_done) {
  bool goes_on = true;
  int64_t i = begin;
  for (; goes_on && i < end; ++i) {
    if (hr_thread_interrupt_has_come(&r->interrupt)) {
      return hr_status_make(HR_STATUS_CANCELLED, "interrupted after %lld iterations", (long long)i);
    }
    phase *p = &r->phases[i == 0 ? FIRST : (i & 1) != 0 ? ODD : EVEN];
    move(p, i);
    *r->number = i;
    HR_RETURN_IF_ERROR(run_calls(r, p));
    goes_on = r->loop->condition == NONE || *r->condition != 0;
  }
  *out_done = i;
  if (!goes_on) {
    r->count = i;
  }
  return HR_OK;
}

static hr_status iterate(loop_run *r) {
  int64_t done = 0;
  while (done < r->count) {
    int64_t begin = hr_clock_ns(), end = r->count - done > BLOCK ? done + BLOCK : r->count;
    HR_RETURN_IF_ERROR(iterate_some(r, done, end, &done));
    HR_RETURN_IF_ERROR(look_at_kernels(r, hr_clock_ns() - begin));
  }
  return HR_OK;
}

/* A copy that an interrupt ends: stacked results have gigabytes, whose pages are new. */
static hr_status copy_value(const loop_run *r, void *to, const void *from, size_t bytes) {
  for (size_t at = 0, count; at < bytes; at += count) {
    count = bytes - at < COPY_BYTES ? bytes - at : COPY_BYTES;
    if (hr_thread_interrupt_has_come(&r->interrupt)) {
      return hr_status_make(HR_STATUS_CANCELLED, "interrupted before the first iteration");
    }
    memcpy((char *)to + at, (const char *)from + at, count);
  }
  return HR_OK;
}

/* Carried values of no iteration, and those that are updated in place. */
static hr_status copy_inputs(const loop_run *r, bool all) {
  for (int i = 0; i < r->loop->carried_count; ++i) {
    if (all || r->loop->is_in_place[i]) {
      HR_RETURN_IF_ERROR(copy_value(r, r->call->outputs[i], input_of(r, i), r->loop->result_bytes[i]));
    }
  }
  return HR_OK;
}

/* The last iteration may have written its values to the spare places. */
static void copy_results(const loop_run *r) {
  bool is_spare = ((r->count - 1) & 1) != 0;
  for (int i = 0; i < r->loop->carried_count && is_spare != r->writes_spare_first; ++i) {
    if (r->spare[i] != NULL) {
      memcpy(r->call->outputs[i], r->spare[i], r->loop->result_bytes[i]);
    }
  }
}

/* The first iteration, then the others by a call for each kernel. */
static hr_status run_repeated(loop_run *r) {
  const hr_loop *loop = r->loop;
  r->writes_spare_first = false;
  HR_RETURN_IF_ERROR(prepare_phase(r, FIRST));
  HR_RETURN_IF_ERROR(run_calls(r, &r->phases[FIRST]));
  return hr__repeated_steps_run(loop->repeated, loop->instance, r->count - 1, &r->phases[FIRST].scratch, r->scratch,
                                loop->scratch_bytes, &r->interrupt);
}

static hr_status run_all(loop_run *r) {
  if (r->loop->repeated != NULL && hr__repeated_steps_are_better(r->loop->repeated, r->loop->instance)) {
    return run_repeated(r);
  }
  for (int p = 0; p < PHASES && (p == FIRST || r->count > 1); ++p) {
    HR_RETURN_IF_ERROR(prepare_phase(r, p));
  }
  HR_RETURN_IF_ERROR(copy_inputs(r, false));
  HR_RETURN_IF_ERROR(iterate(r));
  copy_results(r);
  return HR_OK;
}

/* In the memory of the last run, if it was kept. */
static hr_status run_locked(hr_loop *loop, const hr_function_call *call) {
  loop_run *r = loop->kept != NULL ? loop->kept : hr_calloc(1, sizeof *r);
  loop->kept = r;
  if (r == NULL) {
    return no_memory();
  }
  r->loop = loop, r->call = call, r->interrupt = hr_thread_interrupt_get(), r->count = loop->count_max;
  r->writes_spare_first = loop->condition == NONE && (r->count & 1) == 0;
  loop->scratch_bytes = largest_scratch(loop);
  hr_status status = allocate_run(r);
  status = status == HR_OK ? run_all(r) : status;
  if (r->bytes > KEPT_BYTES) {
    free_run(r);
    loop->kept = NULL;
  }
  return status;
}

hr_status hr_loop_run(const hr_function_call *call) {
  hr_loop *loop = call->arg;
  if (loop->count_max == 0 || (loop->condition != NONE && *(const char *)call->inputs[0] == 0)) {
    return copy_inputs(&(loop_run){.loop = loop, .call = call, .interrupt = hr_thread_interrupt_get()}, true);
  }
  hr_mutex_lock(&loop->mutex);
  hr_status status = run_locked(loop, call);
  hr_mutex_unlock(&loop->mutex);
  return status;
}
