/* execute.c: calls of programs. A call records the program and returns its results at once.
 *
 * Donated inputs are deleted when the program has been recorded: the stream then holds the last reference of their
 * memory, which it may use for results. If the call fails they are as before.
 *
 * The completion event of a program with effects is ready when these have run, of other programs at once.
 */
#include <stdlib.h>
#include <string.h>

#include "executable.h"
#include "profiler.h"

/* Programs of so many inputs and outputs have their lists on the stack. */
enum { SHORT = 16 };

typedef struct call {
  pjrt_executable *executable;
  pjrt_device *device;
  hr_session *session;
  pjrt_buffer *const *arguments;
  const pjrt_execute_options *options;
  const hr_tensor **inputs; /* of the graph */
  hr_tensor *results;       /* of main; those of the graph come first, until spread_results */
  pjrt_buffer **outputs;
  hr_buffer *effects; /* NULL: the program has none */
} call;

static bool is_kept(const call *c, int input) {
  for (size_t i = 0; c->options != NULL && i < c->options->kept_input_count; ++i) {
    if (c->options->kept_inputs[i] == input) {
      return true;
    }
  }
  return false;
}

static void drop_inputs(const call *c, int count) {
  for (int i = 0; i < count; ++i) {
    hrj_buffer_drop(c->arguments[i]);
  }
}

static hr_status hold_inputs(const call *c) {
  for (int i = 0; i < c->executable->main.input_count; ++i) {
    if (!hrj_buffer_hold(c->arguments[i])) {
      drop_inputs(c, i);
      return hr_status_annotate(hrj_buffer_deleted(c->arguments[i], "execute"), "input %d", i);
    }
    int number = c->executable->main.inputs[i];
    if (number != HR_STABLEHLO_TOKEN) {
      c->inputs[number] = &c->arguments[i]->tensor;
    }
  }
  return HR_OK;
}

/* Marks the first `count` donated inputs as they were. */
static void restore_donated(const call *c, int count) {
  for (int i = 0; i < count; ++i) {
    if (!is_kept(c, c->executable->donated[i])) {
      atomic_store(&c->arguments[c->executable->donated[i]]->is_deleted, false);
    }
  }
}

/* Marks donated inputs as deleted; they are held. */
static hr_status mark_donated(const call *c) {
  for (int i = 0; i < c->executable->donated_count; ++i) {
    int input = c->executable->donated[i];
    if (!is_kept(c, input) && atomic_exchange(&c->arguments[input]->is_deleted, true)) {
      restore_donated(c, i);
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                            "Attempt to donate the same buffer twice in Execute(): it is input %d, too", input);
    }
  }
  for (int i = 0, next = 0, count = c->executable->donated_count; count > 0 && i < c->executable->main.input_count;
       ++i) {
    bool is_donor = next < count && c->executable->donated[next] == i;
    next += is_donor;
    if ((!is_donor || is_kept(c, i)) && atomic_load(&c->arguments[i]->is_deleted)) {
      restore_donated(c, count);
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                            "Attempt to donate a buffer which is also used by the same call to Execute(): input %d", i);
    }
  }
  return HR_OK;
}

/* Borrowed ones come last: what uses them runs before they return to their owner, and their memory takes no results.
 * The others are dead then. */
static void drop_donated(const call *c, bool are_borrowed) {
  for (int i = 0; i < c->executable->donated_count; ++i) {
    pjrt_buffer *input = c->arguments[c->executable->donated[i]];
    if (input->is_borrowed == are_borrowed && !is_kept(c, c->executable->donated[i])) {
      hrj_buffer_return(input);
      if (input->is_of_host) {
        hrj_device_note_given(c->device, hrj_buffer_bytes(input));
      }
      hr_buffer_donate(input->tensor.buffer);
      hrj_buffer_drop(input);
    }
  }
}

/* True if a result has the strides of a tensor of the same dims. */
static bool has_strides(const hr_tensor *result, const hr_tensor *wanted) {
  for (int d = 0; d < wanted->rank; ++d) {
    if (result->strides[d] != wanted->strides[d] && wanted->dims[d] != 1) {
      return false;
    }
  }
  return true;
}

/* Replaces a result that is a number, a part of a buffer, or a view with other strides than its layout's by a tensor
 * that fills its own. */
static hr_status settle_result(const call *c, int index, hr_tensor *result) {
  const hr_tensor *type = &c->executable->outputs[index];
  size_t bytes = (size_t)hr_tensor_count(type) * hr_dtype_size(type->dtype);
  if (result->buffer != NULL && result->dtype == type->dtype && result->offset == 0 && has_strides(result, type) &&
      hr_buffer_bytes(result->buffer) == bytes) {
    memcpy(result->strides, type->strides, sizeof type->strides); /* also of dims of 1 */
    return HR_OK;
  }
  hr_tensor wanted = *type;
  HR_RETURN_IF_ERROR(hr_buffer_create(c->device->device, bytes, &wanted.buffer));
  hr_view from = hr_tensor_view(result), to = hr_tensor_view(&wanted);
  hr_status status = bytes > 0 ? hr_stream_record(c->device->stream, HR_OP_COPY, NULL, 1, &from, 1, &to) : HR_OK;
  hr_buffer *unused = status == HR_OK ? result->buffer : wanted.buffer;
  if (status == HR_OK) {
    *result = wanted;
  }
  hr_buffer_release(unused);
  return status;
}

static hr_status create_result(const call *c, int index) {
  c->results[index] = c->executable->outputs[index];
  size_t bytes = (size_t)hr_tensor_count(&c->results[index]) * hr_dtype_size(c->results[index].dtype);
  return hr_buffer_create(c->device->device, bytes, &c->results[index].buffer);
}

static void release_results(const call *c, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    hr_buffer_release(c->results[i].buffer);
  }
}

/* Moves the graph's results to the numbers that they have in main, from the last one, and makes those of tokens. */
static hr_status spread_results(call *c) {
  const pjrt_executable *executable = c->executable;
  int held = executable->graph_output_count - executable->has_effects;
  c->effects = executable->has_effects ? c->results[held].buffer : NULL;
  if (held == executable->main.output_count) { /* there are no tokens */
    return HR_OK;
  }
  for (int i = executable->main.output_count - 1; i >= held; --i) {
    if (executable->main.outputs[i] != HR_STABLEHLO_TOKEN) {
      c->results[i] = c->results[--held];
      continue;
    }
    hr_status status = create_result(c, i);
    if (status != HR_OK) {
      release_results(c, 0, held);
      release_results(c, i + 1, executable->main.output_count);
      return status;
    }
  }
  return HR_OK;
}

/* A run that waits reports the failures of earlier work, which are not its own: those are settled before. */
static hr_status run_session(call *c) {
  pjrt_executable *executable = c->executable;
  bool may_wait = atomic_load_explicit(&executable->waits, memory_order_relaxed);
  if (may_wait) {
    hrj_device_settle(c->device);
  }
  bool is_profiled = atomic_load_explicit(&hrj_profiler_is_on, memory_order_relaxed);
  if (is_profiled) {
    hrj_profiler_begin_call(executable);
  }
  hr_status status =
      hr_session_run(c->session, executable->graph_input_count, c->inputs, executable->graph_output_count, c->results);
  if (is_profiled) {
    hrj_profiler_end_call();
  }
  HR_RETURN_IF_ERROR(status);
  if (may_wait) {
    hr_session_stats stats;
    hr_session_stats_read(c->session, sizeof stats, &stats);
    atomic_store(&executable->waits, stats.waits > 0);
  }
  return spread_results(c);
}

static hr_status run(call *c) {
  const pjrt_executable *executable = c->executable;
  if (c->session != NULL) {
    return run_session(c);
  }
  for (int i = 0; i < executable->main.output_count; ++i) {
    hr_status status = create_result(c, i);
    if (status != HR_OK) {
      release_results(c, 0, i);
      return status;
    }
  }
  return HR_OK;
}

/* Results of a call that Ctrl-C has ended; takes over the failure. The call itself must not fail: after one that
 * returns, Python looks for signals and raises KeyboardInterrupt, which an error of the call would hide. */
static hr_status make_interrupted(call *c, hr_status failure) {
  const pjrt_executable *executable = c->executable;
  hr_status status = HR_OK;
  hrj_device_settle(c->device);
  c->effects = NULL;
  for (int i = 0; i < executable->main.output_count && status == HR_OK; ++i) {
    status = create_result(c, i);
    if (status == HR_OK && hr_tensor_count(&c->results[i]) > 0) {
      status = hrj_tensor_fail(c->device, &c->results[i], hr_status_clone(failure));
    }
    if (status != HR_OK) {
      release_results(c, 0, i + 1);
    }
  }
  hrj_device_settle(c->device); /* the results fail now, or the next wait would report their failures */
  hr_status_free(failure);
  return status;
}

static hr_status wrap_results(call *c) {
  pjrt_executable *executable = c->executable;
  hr_status status = HR_OK;
  int made = 0;
  for (; made < executable->main.output_count && status == HR_OK; ++made) {
    status = settle_result(c, made, &c->results[made]);
    if (status == HR_OK) {
      c->outputs[made] =
          hrj_buffer_create(c->device, hrj_memory_of(c->device, executable->main.output_layouts[made].memory),
                            executable->types[made], executable->output_layouts[made], &c->results[made]);
      if (c->outputs[made] == NULL) {
        status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "execute: no host memory for a buffer");
      }
    }
    if (status != HR_OK) {
      break;
    }
  }
  if (status != HR_OK) {
    for (int i = 0; i < executable->main.output_count; ++i) {
      if (i < made) {
        hrj_Buffer_Destroy(&(pjrt_args_self){.self = c->outputs[i]});
      } else {
        hr_buffer_release(c->results[i].buffer);
      }
    }
  }
  return status;
}

static hr_status run_marked(call *c) {
  hr_status status = run(c);
  if (hr_status_code_of(status) == HR_STATUS_CANCELLED && c->executable->device_count == 1) {
    status = make_interrupted(c, status);
  }
  if (status == HR_OK) {
    status = wrap_results(c);
  }
  if (status == HR_OK) {
    drop_donated(c, false);
  } else {
    restore_donated(c, c->executable->donated_count);
  }
  drop_inputs(c, c->executable->main.input_count);
  if (status == HR_OK) {
    drop_donated(c, true);
  }
  return status;
}

static hr_status execute(call *c) {
  hrj_device_trim(c->device);
  HR_RETURN_IF_ERROR(hold_inputs(c));
  hr_status status = mark_donated(c);
  if (status != HR_OK) {
    drop_inputs(c, c->executable->main.input_count);
  } else if (c->executable->donated_count == 0 && c->device->is_host) {
    status = run_marked(c); /* a program that the host often waits for begins before its results exist */
  } else {
    hr_stream_hint(c->device->stream, HR_HINT_CALL_BEGINS);
    status = run_marked(c);
    hr_stream_hint(c->device->stream, HR_HINT_CALL_ENDS);
  }
  return status;
}

static hr_status check(const pjrt_args_execute *args) {
  const pjrt_executable *executable = args->executable;
  if (atomic_load(&executable->is_deleted)) {
    return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "execute: the program has been deleted");
  }
  bool is_elsewhere = args->device != NULL && (executable->device_count > 1 || args->device != executable->device);
  if (args->device_count != (size_t)executable->device_count || is_elsewhere) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "execute: %zu devices, expected %d, from %s on",
                          args->device_count, executable->device_count, executable->device->name);
  }
  if (args->argument_count != (size_t)executable->main.input_count) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "execute: %zu inputs, expected %d", args->argument_count,
                          executable->main.input_count);
  }
  if (args->options != NULL && (args->options->send_count > 0 || args->options->receive_count > 0)) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "execute: there are no transfers to callbacks of the host");
  }
  return HR_OK;
}

/* Effects tell when they have run, and whether they failed. */
static pjrt_event *completion_of(const call *c) {
  pjrt_event *event = c->effects != NULL ? hrj_event_of(c->device, c->effects) : NULL;
  return event != NULL ? event : hrj_event_done();
}

/* One device's call. */
static hr_status launch(const pjrt_args_execute *args, int number, call *c) {
  pjrt_executable *executable = args->executable;
  const hr_tensor *short_inputs[SHORT];
  hr_tensor short_results[SHORT];
  bool is_long = executable->main.input_count > SHORT || executable->main.output_count >= SHORT;
  *c = (call){.executable = executable,
              .device = executable->devices[number],
              .session = executable->sessions[number],
              .arguments = args->argument_lists[number],
              .options = args->options,
              .inputs = short_inputs,
              .results = short_results,
              .outputs = args->output_lists[number]};
  if (is_long) {
    c->inputs = malloc(((size_t)executable->main.input_count + 1) * sizeof *c->inputs);
    c->results = malloc(((size_t)executable->main.output_count + 1) * sizeof *c->results);
  }
  hr_status status = c->inputs != NULL && c->results != NULL
                         ? execute(c)
                         : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "execute: no host memory for a call");
  if (is_long) {
    free(c->inputs);
    free(c->results);
  }
  return status;
}

/* Programs that others are recorded with fail with them. So those that often fail, which have callbacks, have run when
 * the call returns. */
static void complete(const pjrt_args_execute *args, int number, const call *c) {
  if (c->executable->has_callbacks) {
    hrj_device_settle(c->device);
  }
  if (args->complete_events != NULL) {
    args->complete_events[number] = completion_of(c);
  }
  hr_buffer_release(c->effects);
}

/* Programs whose callbacks have no effects have nothing else that would show their failures: the call fails. */
static hr_status failure_of(const call *c) {
  const pjrt_executable *executable = c->executable;
  hr_status status = HR_OK;
  bool is_pure = executable->has_callbacks && !executable->has_effects;
  for (int i = 0; i < executable->main.output_count && is_pure && status == HR_OK; ++i) {
    hr_buffer *buffer = c->outputs[i]->tensor.buffer;
    if (hr_buffer_status(c->device->stream, buffer, &status) == HR_BUFFER_FAILED && status == HR_OK) {
      status = hr_status_make(HR_STATUS_INTERNAL, "execute: a callback has failed");
    }
  }
  for (int i = 0; i < executable->main.output_count && status != HR_OK; ++i) {
    hrj_Buffer_Destroy(&(pjrt_args_self){.self = c->outputs[i]});
  }
  return status;
}

/* ---- several devices ---- */

typedef struct launched {
  const pjrt_args_execute *args;
  int number;
  pthread_t thread;
  bool has_thread;
  call c;
  hr_status status;
} launched;

/* Collectives wait for work of the other devices, so that the work begins at once. */
static void *launch_one(void *arg) {
  launched *l = arg;
  pjrt_executable *executable = l->args->executable;
  l->status = launch(l->args, l->number, &l->c);
  hr_status watched = hrj_meetings_watch(executable->meetings, executable->devices[l->number]->stream);
  if (l->status != HR_OK || watched != HR_OK) {
    hrj_meetings_break(executable->meetings);
  }
  hr_status_ignore(watched); /* the results have that failure */
  return NULL;
}

/* Drops what the devices have made whose calls went well. */
static hr_status give_up(const pjrt_args_execute *args, launched *all) {
  hr_status first = HR_OK;
  for (int i = 0; i < args->executable->device_count; ++i) {
    for (int k = 0; all[i].status == HR_OK && k < args->executable->main.output_count; ++k) {
      hrj_Buffer_Destroy(&(pjrt_args_self){.self = all[i].c.outputs[k]});
    }
    if (all[i].status == HR_OK) {
      hr_buffer_release(all[i].c.effects);
    } else if (first == HR_OK) {
      first = all[i].status;
    } else {
      hr_status_ignore(all[i].status);
    }
  }
  return first;
}

/* A program that waits does so on each device's thread. */
static hr_status launch_threads(const pjrt_args_execute *args, launched *all) {
  int count = args->executable->device_count, failed = 0;
  for (int i = 1; i < count; ++i) {
    all[i] = (launched){.args = args, .number = i};
    all[i].has_thread = pthread_create(&all[i].thread, NULL, launch_one, &all[i]) == 0;
    if (!all[i].has_thread) {
      all[i].status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "execute: no thread for device %d", i);
      hrj_meetings_break(args->executable->meetings);
    }
  }
  all[0] = (launched){.args = args};
  launch_one(&all[0]);
  for (int i = 1; i < count; ++i) {
    if (all[i].has_thread) {
      pthread_join(all[i].thread, NULL);
    }
  }
  for (int i = 0; i < count; ++i) {
    failed += all[i].status != HR_OK;
  }
  return failed > 0 ? give_up(args, all) : HR_OK;
}

/* After a failure, work that waited for others has ended before devices meet again. */
static void mend_meetings(const pjrt_executable *executable) {
  if (hrj_meetings_are_broken(executable->meetings)) {
    for (int i = 0; i < executable->device_count; ++i) {
      hrj_device_settle(executable->devices[i]);
    }
    hrj_meetings_mend(executable->meetings);
  }
}

static hr_status launch_all(const pjrt_args_execute *args) {
  pjrt_executable *executable = args->executable;
  launched *all = calloc((size_t)executable->device_count, sizeof *all);
  if (all == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "execute: no host memory for a call");
  }
  pthread_mutex_lock(&executable->device->client->launching);
  mend_meetings(executable);
  hr_status status = launch_threads(args, all);
  pthread_mutex_unlock(&executable->device->client->launching);
  for (int i = 0; i < executable->device_count && status == HR_OK; ++i) {
    complete(args, i, &all[i].c);
  }
  free(all);
  return status;
}

pjrt_error *hrj_LoadedExecutable_Execute(pjrt_args_execute *args) {
  HRJ_RETURN_IF_ERROR(check(args));
  if (args->executable->device_count > 1) {
    return hrj_error(launch_all(args));
  }
  call c;
  HRJ_RETURN_IF_ERROR(launch(args, 0, &c));
  complete(args, 0, &c);
  return hrj_error(failure_of(&c));
}
