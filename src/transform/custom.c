/* custom.c: functions with a gradient of their own.
 *
 *   hr_custom_begin   a hook above the tapes, which makes records constant for those below
 *   hr_custom_end     removes it; each tape that the inputs concern keeps one record: the function
 *   hr_tape_gradient  the function's gradient records those of the inputs
 *
 * A tape finds gradients by buffer. So outputs have memory of their own, which nothing else of the tape shows.
 */
#include "base/allocator.h"
#include "transform/gradients.h"
#include "transform/vmap.h"

/* A function that runs. */
struct hr_custom {
  hr_hook hook; /* first */
  hr_stream *stream;
  const void *thread;
  uint64_t first; /* the serial number of a buffer made at the beginning: that of later ones is larger */
};

/* A function on tapes. */
struct hr__custom {
  hr_custom_spec spec;
  int users;
};

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a function with a gradient of its own");
}

/* ---- functions on tapes ---- */

static void release_arg(const hr_custom_spec *spec) {
  if (spec != NULL && spec->release != NULL) {
    spec->release(spec->arg);
  }
}

hr_status hr__custom_create(const hr_custom_spec *spec, hr__custom **out_custom) {
  hr__custom *custom = hr_malloc(sizeof *custom);
  if (custom == NULL) {
    release_arg(spec);
    return no_memory();
  }
  *custom = (hr__custom){*spec, 1};
  *out_custom = custom;
  return HR_OK;
}

const hr_custom_spec *hr__custom_spec(const hr__custom *custom) {
  return &custom->spec;
}

void hr__custom_retain(hr__custom *custom) {
  ++custom->users;
}

void hr__custom_release(hr__custom *custom) {
  if (custom != NULL && --custom->users == 0) {
    release_arg(&custom->spec);
    hr_free(custom);
  }
}

const char *hr__custom_name(const hr__custom *custom) {
  return custom->spec.name != NULL ? custom->spec.name : "custom function";
}

/* ---- running ---- */

static hr_status pass_as_constant(hr_hook *hook, hr_stream *stream, const hr_hook_record *record) {
  const hr_custom *custom = (const hr_custom *)hook;
  hr__tapes_add_constants(hook->below, custom->thread, 1);
  hr_status status = hr_hook_pass(hook, stream, record);
  hr__tapes_add_constants(hook->below, custom->thread, -1);
  return status;
}

hr_status hr_custom_begin(hr_stream *stream, hr_custom **out_custom) {
  hr_custom *custom = hr_calloc(1, sizeof *custom);
  hr_buffer *first = NULL;
  hr_status status = custom != NULL ? hr_buffer_create(hr_stream_device(stream), 1, &first) : no_memory();
  if (status != HR_OK) {
    hr_free(custom);
    return status;
  }
  hr_stream_retain(stream);
  *custom = (hr_custom){
      .hook.record = pass_as_constant, .stream = stream, .thread = hr__tape_thread(), .first = hr_buffer_serial(first)};
  hr_buffer_release(first);
  hr_hook_add(stream, &custom->hook);
  *out_custom = custom;
  return HR_OK;
}

/* ---- the end ---- */

/* True if an output has memory that something else shows: that is older, or an earlier output's. */
static bool is_shared(const hr_custom *custom, int i, hr_tensor *const *outputs) {
  bool is = hr_buffer_serial(outputs[i]->buffer) < custom->first;
  for (int k = 0; k < i; ++k) {
    is = is || outputs[k]->buffer == outputs[i]->buffer;
  }
  return is;
}

/* Copies that are still records of the function. */
static hr_status own_outputs(const hr_custom *custom, int count, hr_tensor *const *outputs) {
  static const hr__function_row row = {.name = "custom function"};
  const hr__function_call call = {.row = &row, .stream = custom->stream};
  for (int i = 0; i < count; ++i) {
    hr_tensor own;
    const hr_tensor *inputs[1] = {outputs[i]};
    if (!is_shared(custom, i, outputs)) {
      continue;
    }
    HR_RETURN_IF_ERROR(hr__record_new(&call, HR_OP_COPY, NULL, 1, inputs, outputs[i]->dtype, outputs[i]->rank,
                                      outputs[i]->dims, &own));
    hr_tensor_release(outputs[i]);
    hr__copy_tensor(&own, outputs[i]);
  }
  return HR_OK;
}

static hr_status check_buffers(const char *what, int count, const hr_tensor *const *tensors) {
  for (int i = 0; i < count; ++i) {
    if (tensors[i] == NULL || tensors[i]->buffer == NULL) {
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "custom function: %s %d has no buffer", what, i);
    }
  }
  return HR_OK;
}

hr_status hr__custom_keep(hr_hook *top, const void *thread, hr__custom *custom, const hr_hook_record *record) {
  for (hr_hook *hook = top; hook != NULL; hook = hook->below) {
    if (hook->record == pass_as_constant && ((hr_custom *)hook)->thread == thread) {
      break;
    }
    if (hr__vmap_concerns(hook, record)) {
      return hr__vmap_keep_custom(hook, thread, custom, record);
    }
    HR_RETURN_IF_ERROR(hr__tape_keep_custom(hook, custom, record));
  }
  return HR_OK;
}

static hr_status keep(const hr_custom *custom, hr__custom *kept, int input_count, const hr_tensor *const *inputs,
                      int output_count, hr_tensor *const *outputs) {
  hr_view *views = hr_malloc(((size_t)input_count + (size_t)output_count + 1) * sizeof *views);
  if (views == NULL) {
    return no_memory();
  }
  for (int i = 0; i < input_count; ++i) {
    views[i] = hr_tensor_view(inputs[i]);
  }
  for (int i = 0; i < output_count; ++i) {
    views[input_count + i] = hr_tensor_view(outputs[i]);
  }
  const hr_hook_record record = {HR_OP_CALL, NULL, input_count, output_count, views, views + input_count, false};
  hr_hook *top = hr_hook_set_top(custom->stream, NULL);
  (void)hr_hook_set_top(custom->stream, top);
  hr_status status = hr__custom_keep(top, custom->thread, kept, &record);
  hr_free(views);
  return status;
}

static hr_status end_on_tapes(hr_custom *custom, const hr_custom_spec *spec, int input_count,
                              const hr_tensor *const *inputs, int output_count, hr_tensor *const *outputs) {
  hr__custom *kept = NULL;
  HR_RETURN_IF_ERROR(hr__custom_create(spec, &kept));
  hr_status status = check_buffers("input", input_count, inputs);
  status = status == HR_OK ? check_buffers("output", output_count, (const hr_tensor *const *)outputs) : status;
  status = status == HR_OK ? own_outputs(custom, output_count, outputs) : status;
  hr_hook_remove(custom->stream, &custom->hook);
  status = status == HR_OK ? keep(custom, kept, input_count, inputs, output_count, outputs) : status;
  hr__custom_release(kept);
  return status;
}

hr_status hr_custom_end(hr_custom *custom, const hr_custom_spec *spec, int input_count, const hr_tensor *const *inputs,
                        int output_count, hr_tensor *const *outputs) {
  hr_status status = spec != NULL ? end_on_tapes(custom, spec, input_count, inputs, output_count, outputs) : HR_OK;
  hr_hook_remove(custom->stream, &custom->hook);
  hr_stream_release(custom->stream);
  hr_free(custom);
  return status;
}

/* ---- the gradient ---- */

static hr_status check_found(const hr__backward *b, const char *what, int i, const hr_view *x, const hr_tensor *found) {
  bool fits = found->rank == x->rank && hr__is_differentiable(found->dtype);
  for (int d = 0; fits && d < x->rank; ++d) {
    fits = found->dims[d] == x->dims[d];
  }
  if (fits) {
    return HR_OK;
  }
  char have[HR__SHAPE_TEXT], want[HR__SHAPE_TEXT];
  return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: the %s %d is %s%s, expected %s%s", b->call.row->name, what, i,
                        hr_dtype_name(found->dtype), hr__shape_text(found->rank, found->dims, have),
                        hr_dtype_name(x->dtype), hr__shape_text(x->rank, x->dims, want));
}

/* Gives those that are wanted, and releases all. */
static hr_status give(const hr__backward *b, hr_status status, hr_tensor *gradients) {
  for (int i = 0; i < b->record->input_count; ++i) {
    hr_tensor *gradient = &gradients[i];
    if (status == HR_OK && hr__wants(b, i) && gradient->buffer != NULL) {
      status = check_found(b, "gradient of input", i, &hr__taped_input(b, i)->view, gradient);
      status = status == HR_OK ? hr__adjoint_add(b->adjoints, &b->call, hr__taped_input(b, i), gradient) : status;
    }
    hr_tensor_release(gradient);
  }
  return status;
}

/* The values of the inputs and outputs; references are the tape's. */
static void take_values(const hr__taped *record, hr_tensor *room) {
  for (int i = 0; i < record->input_count; ++i) {
    hr__copy_tensor(&record->inputs[i].kept->tensor, &room[i]);
  }
  for (int i = 0; i < record->output_count; ++i) {
    hr__copy_tensor(&record->outputs[i].kept->tensor, &room[record->input_count + i]);
  }
}

hr_status hr__give_custom(const hr__backward *b) {
  int inputs = b->record->input_count, outputs = b->record->output_count;
  hr_tensor *room = hr_calloc(2 * (size_t)inputs + (size_t)outputs + 1, sizeof *room);
  if (room == NULL) {
    return no_memory();
  }
  take_values(b->record, room);
  hr_tensor *gradients = room + inputs + outputs;
  const hr_custom_spec *spec = &b->record->custom->spec;
  const hr_custom_call call = {.arg = spec->arg,
                               .stream = b->call.stream,
                               .input_count = inputs,
                               .output_count = outputs,
                               .inputs = room,
                               .outputs = room + inputs,
                               .cotangents = b->g,
                               .gradients = gradients};
  hr_status status = give(b, spec->gradient(&call), gradients);
  hr_free(room);
  return status;
}

hr_status hr__custom_product(const hr__backward *b, const hr_tensor *tangents, hr_tensor *products) {
  int inputs = b->record->input_count, outputs = b->record->output_count;
  hr_tensor *room = hr_calloc((size_t)inputs + (size_t)outputs + 1, sizeof *room);
  if (room == NULL) {
    return no_memory();
  }
  take_values(b->record, room);
  const hr_custom_spec *spec = &b->record->custom->spec;
  const hr_custom_call call = {.arg = spec->arg,
                               .stream = b->call.stream,
                               .input_count = inputs,
                               .output_count = outputs,
                               .inputs = room,
                               .outputs = room + inputs,
                               .tangents = tangents,
                               .products = products};
  hr_status status = spec->product(&call);
  for (int o = 0; status == HR_OK && o < outputs; ++o) {
    const hr_view *y = &b->record->outputs[o].view;
    bool is_set = products[o].buffer != NULL && hr__is_differentiable(y->dtype);
    status = is_set ? check_found(b, "product of output", o, y, &products[o]) : HR_OK;
  }
  hr_free(room);
  return status;
}
