/* function_record.c: records calls of functions of the host, as HR_OP_CALL with a closure (runtime/function_table.h).
 */
#include <stdio.h>

#include "base/allocator.h"
#include "core/ops/call.h"
#include "engine/host_view.h"
#include "engine/stream.h"
#include "headrace/function.h"
#include "module/module_internal.h"

enum { OPERANDS_MAX = HR_FUNCTION_OPERANDS_MAX };

/* ---- the closure ---- */

static void release_closure(void *arg) {
  hr__closure *closure = arg;
  if (closure->release != NULL) {
    closure->release(closure->arg);
  }
  hr_free(closure);
}

/* The closure in a buffer, which releases it when no work needs it any more. */
static hr_status create_closure(hr_stream *stream, const hr_function_spec *spec, hr_buffer **out_buffer) {
  hr__closure *closure = hr_malloc(sizeof *closure);
  if (closure == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a call of a function");
  }
  hr_device *device = spec->is_on_host && !stream->device->properties.is_host ? stream->device : NULL;
  *closure = (hr__closure){spec->run, spec->arg, .device = device}; /* the caller releases it until it has its buffer */
  hr_status status = hr__buffer_adopt(stream->device, sizeof *closure, closure, release_closure, closure, out_buffer);
  if (status != HR_OK) {
    hr_free(closure);
    return status;
  }
  closure->release = spec->release;
  return HR_OK;
}

/* ---- operands ---- */

static hr_status check_view(const hr_stream *stream, const char *what, const hr_view *view) {
  if (view->buffer == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: expected a buffer, found %s", what,
                          view->scalar != NULL ? "a number" : "none");
  }
  if (hr_buffer_device(view->buffer) != stream->device) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: expected a buffer of device \"%s\", found one of \"%s\"",
                          what, hr_device_name(stream->device), hr_device_name(hr_buffer_device(view->buffer)));
  }
  return hr__view_check(what, view);
}

static hr_status check_views(const hr_stream *stream, const char *what, int count, const hr_view *views) {
  for (int i = 0; i < count; ++i) {
    char name[32];
    snprintf(name, sizeof name, "%s %d", what, i);
    HR_RETURN_IF_ERROR(check_view(stream, name, &views[i]));
  }
  return HR_OK;
}

static hr_status check(const hr_stream *stream, const hr_function_spec *spec, int input_count, const hr_view *inputs,
                       int output_count, const hr_view *outputs) {
  int first, second;
  if (input_count < 0 || output_count < 0 || input_count + output_count > OPERANDS_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%d inputs and %d outputs: expected at most %d operands",
                          input_count, output_count, (int)OPERANDS_MAX);
  }
  if (spec->updated_count < 0 || spec->updated_count > output_count) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%d updated outputs: expected 0 to %d", spec->updated_count,
                          output_count);
  }
  HR_RETURN_IF_ERROR(check_views(stream, "input", input_count, inputs));
  HR_RETURN_IF_ERROR(check_views(stream, "output", output_count, outputs));
  return !hr__views_share_memory(output_count, outputs, &first, &second)
             ? HR_OK
             : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "outputs %d and %d share memory", first, second);
}

/* ---- recording ---- */

/* The row's inputs: the updated operands, the others, the closure. */
static hr_status record(hr_stream *stream, const hr_function_spec *spec, hr_buffer *closure, int input_count,
                        const hr_view *inputs, int output_count, const hr_view *outputs) {
  static const int64_t bytes[1] = {sizeof(hr__closure)}, one[1] = {1};
  int64_t ints[HR__CALL_INTS] = {[HR__CALL_UPDATED] = spec->updated_count,
                                 [HR__CALL_EFFECTS] = spec->is_late    ? HR_CALL_LATE
                                                      : spec->is_short ? HR_CALL_SHORT
                                                                       : HR_CALL_ENDLESS};
  HR_RETURN_IF_ERROR(hr__closure_number(spec->name, &ints[HR__CALL_NUMBER]));
  hr_view views[OPERANDS_MAX + 1];
  int count = 0;
  for (int i = 0; i < spec->updated_count; ++i) {
    views[count++] = outputs[i];
  }
  for (int i = 0; i < input_count; ++i) {
    views[count++] = inputs[i];
  }
  views[count++] = (hr_view){.buffer = closure, .dtype = HR_DTYPE_U8, .rank = 1, .dims = bytes, .strides = one};
  const hr_attrs attrs = {.int_count = HR__CALL_INTS, .ints = ints};
  return hr_stream_record(stream, HR_OP_CALL, &attrs, count, views, output_count, outputs);
}

hr_status hr_function_record(hr_stream *stream, const hr_function_spec *spec, int input_count, const hr_view *inputs,
                             int output_count, const hr_view *outputs) {
  if (stream == NULL || spec == NULL || spec->run == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "hr_function_record: NULL argument");
  }
  const char *name = spec->name != NULL ? spec->name : "call";
  hr_buffer *closure = NULL;
  hr_context *before = hr__context_enter(stream->device->context);
  hr_status status = hr_status_annotate(check(stream, spec, input_count, inputs, output_count, outputs), "%s", name);
  status = status != HR_OK ? status : create_closure(stream, spec, &closure);
  if (status != HR_OK && spec->release != NULL) {
    spec->release(spec->arg);
  }
  if (status == HR_OK) {
    status = record(stream, spec, closure, input_count, inputs, output_count, outputs);
  }
  hr_buffer_release(closure);
  (void)hr__context_enter(before);
  return status;
}
