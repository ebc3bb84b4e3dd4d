/* tape.c: keeps the records of a stream.
 *
 *   record   y = mul(x, w), x and w watched
 *   kept     mul, the views of x, w and y; retains x and w, which the rules of mul read
 *
 * Before a record, values that it overwrites and that a rule will read are copied: those of earlier records, and inputs
 * of this one. If a rule reads an output that the record leaves out (the mean of a layer norm), the output is added. A
 * composite without a rule is replaced by the records of its loops, which are kept. A function with a gradient of its
 * own is one record; those in it are constant: they are kept only where they overwrite what depends on watched tensors.
 * Everything that can fail precedes the record, so that a failure leaves the tape as it was.
 */
#include "transform/tape.h"

#include "base/allocator.h"
#include "core/ops/infer.h"
#include "transform/gradients.h"
#include "transform/loops.h"

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "tape: no host memory for a record");
}

/* ---- positions of views in their buffers ---- */

typedef struct extent {
  int64_t begin, end; /* in bytes */
} extent;

static extent extent_of(const hr_view *view) {
  int64_t size = (int64_t)hr_dtype_size(view->dtype), low = view->offset, high = view->offset;
  for (int d = 0; d < view->rank; ++d) {
    if (view->dims[d] == 0) {
      return (extent){0, 0};
    }
    int64_t reach = (view->dims[d] - 1) * view->strides[d];
    low += reach < 0 ? reach : 0;
    high += reach > 0 ? reach : 0;
  }
  return (extent){low * size, (high + 1) * size};
}

static bool overlap(extent a, extent b) {
  return a.begin < b.end && b.begin < a.end;
}

static bool is_same_view(const hr_view *a, const hr_view *b) {
  bool is_same = a->dtype == b->dtype && a->rank == b->rank && a->offset == b->offset;
  for (int d = 0; is_same && d < a->rank; ++d) {
    is_same = a->dims[d] == b->dims[d] && a->strides[d] == b->strides[d];
  }
  return is_same;
}

static void tensor_of(const hr_view *view, hr_tensor *out) {
  *out = (hr_tensor){.buffer = view->buffer, .dtype = view->dtype, .rank = view->rank, .offset = view->offset};
  for (int d = 0; d < view->rank; ++d) {
    out->dims[d] = view->dims[d], out->strides[d] = view->strides[d];
  }
}

/* ---- kept values ---- */

static void release_kept(hr_tape *tape, hr__kept *kept) {
  if (kept != NULL && --kept->users == 0) {
    if (kept->serial != 0) {
      hr_table_unlink(&tape->kept, kept->serial, kept, offsetof(hr__kept, next));
    }
    hr_tensor_release(&kept->tensor);
    hr_free(kept);
  }
}

/* A new row-major tensor with the elements of a view. The tapes below see the copy. */
static hr_status copy_value(hr_tape *tape, const hr_view *view, hr_tensor *out) {
  hr_tensor copy = {.dtype = view->dtype, .rank = view->rank};
  size_t bytes = hr_dtype_size(view->dtype);
  for (int d = view->rank - 1; d >= 0; --d) {
    copy.dims[d] = view->dims[d], copy.strides[d] = (int64_t)(bytes / hr_dtype_size(view->dtype));
    bytes *= (size_t)(view->dims[d] > 1 ? view->dims[d] : 1);
  }
  HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(tape->stream), bytes, &copy.buffer));
  hr_view target = hr_tensor_view(&copy);
  const hr_hook_record record = {HR_OP_COPY, NULL, 1, 1, view, &target, false};
  /* The copy is none of the functions' records. */
  hr__tapes_add_constants(tape->hook.below, tape->thread, -tape->constants);
  hr_status status = hr_hook_pass(&tape->hook, tape->stream, &record);
  hr__tapes_add_constants(tape->hook.below, tape->thread, tape->constants);
  if (status != HR_OK) {
    hr_tensor_release(&copy);
    return status;
  }
  *out = copy;
  return HR_OK;
}

/* Copies the kept values that a write of this view changes. */
static hr_status protect_from(hr_tape *tape, const hr_view *output) {
  uint64_t serial = hr_buffer_serial(output->buffer);
  for (hr__kept *kept = hr_table_get(&tape->kept, serial), *next; kept != NULL; kept = next) {
    next = kept->next;
    hr_view view = hr_tensor_view(&kept->tensor);
    if (overlap(extent_of(&view), extent_of(output))) {
      hr_tensor copy;
      HR_RETURN_IF_ERROR(copy_value(tape, &view, &copy));
      hr_table_unlink(&tape->kept, serial, kept, offsetof(hr__kept, next));
      hr_tensor_release(&kept->tensor);
      kept->tensor = copy, kept->serial = 0;
    }
  }
  return HR_OK;
}

static hr_status protect(hr_tape *tape, const hr_hook_record *record) {
  for (int i = 0; tape->kept.count > 0 && i < record->output_count; ++i) {
    if (record->outputs[i].buffer != NULL) {
      HR_RETURN_IF_ERROR(protect_from(tape, &record->outputs[i]));
    }
  }
  return HR_OK;
}

static hr__kept *find_kept(const hr_tape *tape, uint64_t serial, const hr_view *view) {
  hr__kept *kept = hr_table_get(&tape->kept, serial);
  for (; kept != NULL; kept = kept->next) {
    hr_view other = hr_tensor_view(&kept->tensor);
    if (is_same_view(&other, view)) {
      return kept;
    }
  }
  return NULL;
}

/* A value in place: a view that the tape retains. */
static hr_status keep_in_place(hr_tape *tape, const hr_view *view, hr__kept **out_kept) {
  uint64_t serial = hr_buffer_serial(view->buffer);
  hr__kept *kept = find_kept(tape, serial, view);
  if (kept == NULL) {
    kept = hr_malloc(sizeof *kept);
    if (kept == NULL) {
      return no_memory();
    }
    *kept = (hr__kept){.serial = serial, .next = hr_table_get(&tape->kept, serial)};
    if (!hr_table_put(&tape->kept, serial, kept)) {
      hr_free(kept);
      return no_memory();
    }
    tensor_of(view, &kept->tensor);
    hr_buffer_retain(view->buffer);
  }
  ++kept->users;
  *out_kept = kept;
  return HR_OK;
}

static hr_status keep_copy(hr_tape *tape, const hr_view *view, hr__kept **out_kept) {
  hr__kept *kept = hr_calloc(1, sizeof *kept);
  if (kept == NULL) {
    return no_memory();
  }
  hr_status status = copy_value(tape, view, &kept->tensor);
  if (status != HR_OK) {
    hr_free(kept);
    return status;
  }
  kept->users = 1;
  *out_kept = kept;
  return HR_OK;
}

/* True if the record changes the input's value. */
static bool overwrites(const hr_hook_record *record, const hr_view *input) {
  for (int i = 0; i < record->output_count; ++i) {
    const hr_view *output = &record->outputs[i];
    if (output->buffer == input->buffer && overlap(extent_of(output), extent_of(input))) {
      return true;
    }
  }
  return false;
}

/* ---- kept records ---- */

static int64_t *describe(const hr_view *view, hr__operand *operand, int64_t *room) {
  *operand = (hr__operand){.view = *view};
  if (view->buffer != NULL) {
    operand->serial = hr_buffer_serial(view->buffer);
    operand->bytes = hr_buffer_bytes(view->buffer);
  } else if (view->scalar != NULL) {
    operand->number = *view->scalar;
    operand->view.dtype = view->scalar->dtype, operand->view.rank = 0;
  }
  size_t bytes = (size_t)operand->view.rank * sizeof *room;
  operand->view.buffer = NULL;
  operand->view.scalar = view->buffer == NULL && view->scalar != NULL ? &operand->number : NULL;
  operand->view.dims = room, operand->view.strides = room + operand->view.rank;
  if (bytes > 0) {
    memcpy(room, view->dims, bytes);
    memcpy(room + operand->view.rank, view->strides, bytes);
  }
  return room + 2 * operand->view.rank;
}

static size_t dims_in(int count, const hr_view *views) {
  size_t dims = 0;
  for (int i = 0; i < count; ++i) {
    dims += views[i].buffer != NULL ? 2 * (size_t)views[i].rank : 0;
  }
  return dims;
}

/* One block: the record, operands, scalars, ints, dims and strides. NULL if memory is out. */
static hr__taped *create_taped(const hr_hook_record *record) {
  static const hr_attrs none;
  const hr_attrs *attrs = record->attrs != NULL ? record->attrs : &none;
  size_t operands = (size_t)record->input_count + (size_t)record->output_count;
  size_t scalars = (size_t)attrs->scalar_count, ints = (size_t)attrs->int_count;
  size_t dims = dims_in(record->input_count, record->inputs) + dims_in(record->output_count, record->outputs);
  hr__taped *taped = hr_malloc(sizeof *taped + operands * sizeof(hr__operand) + scalars * sizeof(hr_scalar) +
                               (ints + dims) * sizeof(int64_t));
  if (taped == NULL) {
    return NULL;
  }
  hr__operand *operand = (hr__operand *)(taped + 1);
  hr_scalar *scalar = (hr_scalar *)(operand + operands);
  int64_t *room = (int64_t *)(scalar + scalars);
  *taped = (hr__taped){.op = record->op,
                       .attrs = {(int)ints, (int)scalars, room, scalar},
                       .input_count = record->input_count,
                       .output_count = record->output_count,
                       .inputs = operand,
                       .outputs = operand + record->input_count};
  for (size_t i = 0; i < scalars; ++i) {
    scalar[i] = attrs->scalars[i];
  }
  for (size_t i = 0; i < ints; ++i) {
    *room++ = attrs->ints[i];
  }
  for (size_t i = 0; i < operands; ++i) {
    size_t inputs = (size_t)record->input_count;
    room = describe(i < inputs ? &record->inputs[i] : &record->outputs[i - inputs], &operand[i], room);
  }
  return taped;
}

static void destroy_taped(hr_tape *tape, hr__taped *taped) {
  for (int i = 0; i < taped->input_count; ++i) {
    release_kept(tape, taped->inputs[i].kept);
  }
  for (int i = 0; i < taped->output_count; ++i) {
    release_kept(tape, taped->outputs[i].kept);
    release_kept(tape, taped->outputs[i].before);
  }
  hr__custom_release(taped->custom);
  hr_free(taped);
}

/* ---- the record that is kept ---- */

static bool is_active(const hr_tape *tape, const hr_view *view) {
  return view->buffer != NULL && hr_table_get(&tape->active, hr_buffer_serial(view->buffer)) != NULL;
}

static bool is_active_input(const hr_tape *tape, const hr_view *view) {
  return tape->constants == 0 && hr__is_differentiable(view->dtype) && is_active(tape, view);
}

static bool has_active_input(const hr_tape *tape, const hr_hook_record *record) {
  for (int i = 0; i < record->input_count; ++i) {
    if (is_active_input(tape, &record->inputs[i])) {
      return true;
    }
  }
  return false;
}

static bool concerns(const hr_tape *tape, const hr_hook_record *record) {
  if (has_active_input(tape, record)) {
    return true;
  }
  for (int i = 0; i < record->output_count; ++i) {
    if (is_active(tape, &record->outputs[i])) {
      return true;
    }
  }
  return false;
}

static void find_active_inputs(const hr_tape *tape, const hr_hook_record *record, hr__taped *taped) {
  for (int i = 0; i < taped->input_count; ++i) {
    taped->inputs[i].is_active = is_active_input(tape, &record->inputs[i]);
  }
}

static hr_status keep_input(hr_tape *tape, const hr_hook_record *record, int i, hr__operand *input) {
  const hr_view *view = &record->inputs[i];
  if (view->buffer == NULL) {
    return HR_OK;
  }
  return overwrites(record, view) ? keep_copy(tape, view, &input->kept) : keep_in_place(tape, view, &input->kept);
}

/* Retains the values that the rules of active inputs read. */
static hr_status keep_values(hr_tape *tape, const hr_hook_record *record, hr__taped *taped) {
  hr__letters letters = hr__gradient_letters(taped);
  for (int i = 0; i < taped->input_count; ++i) {
    if (hr__has_letter(letters.inputs, i)) {
      HR_RETURN_IF_ERROR(keep_input(tape, record, i, &taped->inputs[i]));
    }
  }
  if (letters.before) {
    HR_RETURN_IF_ERROR(keep_copy(tape, &record->outputs[0], &taped->outputs[0].before));
  }
  for (int i = 0; i < taped->output_count; ++i) {
    const hr_view *view = &record->outputs[i];
    if (hr__has_letter(letters.outputs, i) && view->buffer != NULL) {
      HR_RETURN_IF_ERROR(keep_in_place(tape, view, &taped->outputs[i].kept));
    }
  }
  return HR_OK;
}

static hr_status mark_outputs(hr_tape *tape, const hr__taped *taped) {
  for (int i = 0; i < taped->output_count; ++i) {
    const hr__operand *output = &taped->outputs[i];
    if (output->serial != 0 && hr__is_differentiable(output->view.dtype) &&
        !hr_table_put(&tape->active, output->serial, tape)) {
      return no_memory();
    }
  }
  return hr_vector_reserve(&tape->records, tape->records.count + 1) ? HR_OK : no_memory();
}

/* Everything that can fail before the record itself. */
static hr_status prepare(hr_tape *tape, const hr_hook_record *record, hr__taped *taped) {
  find_active_inputs(tape, record, taped);
  HR_RETURN_IF_ERROR(keep_values(tape, record, taped));
  return mark_outputs(tape, taped);
}

static hr_status record_and_keep(hr_tape *tape, const hr_hook_record *record) {
  hr__taped *taped = create_taped(record);
  if (taped == NULL) {
    return no_memory();
  }
  hr_status status = prepare(tape, record, taped);
  status = status == HR_OK ? hr_hook_pass(&tape->hook, tape->stream, record) : status;
  if (status != HR_OK) {
    destroy_taped(tape, taped);
    return status;
  }
  tape->records.data[tape->records.count++] = taped;
  return HR_OK;
}

/* ---- outputs that rules read and that the record leaves out ---- */

enum { OUTPUTS_MAX = 8, HR__ARITY_MAX = 4 };

static void type_of(const hr_view *view, hr_tensor_type *type) {
  *type = (hr_tensor_type){.dtype = view->dtype, .is_number = view->buffer == NULL && view->scalar != NULL};
  type->rank = view->buffer != NULL ? view->rank : 0;
  if (type->is_number) {
    type->dtype = view->scalar->dtype;
  } else if (view->buffer == NULL) {
    type->dtype = HR_DTYPE_NONE;
  }
  for (int d = 0; d < type->rank; ++d) {
    type->dims[d] = view->dims[d], type->strides[d] = view->strides[d];
  }
}

static hr_status infer(const hr_hook_record *record, int count, hr_tensor_type *outputs) {
  hr_tensor_type *inputs = hr_malloc(((size_t)record->input_count + 1) * sizeof *inputs);
  if (inputs == NULL) {
    return no_memory();
  }
  for (int i = 0; i < record->input_count; ++i) {
    type_of(&record->inputs[i], &inputs[i]);
  }
  for (int i = 0; i < count; ++i) {
    outputs[i] = (hr_tensor_type){0};
    if (i < record->output_count && record->outputs[i].buffer != NULL) {
      type_of(&record->outputs[i], &outputs[i]);
    }
  }
  hr_status status = hr_op_infer(record->op, record->attrs, record->input_count, inputs, count, outputs);
  hr_free(inputs);
  return status;
}

static hr_status create_output(hr_tape *tape, const hr_tensor_type *type, hr_view *view) {
  size_t bytes = hr_dtype_size(type->dtype);
  for (int d = 0; d < type->rank; ++d) {
    bytes *= (size_t)type->dims[d];
  }
  *view = (hr_view){.dtype = type->dtype, .rank = type->rank, .dims = type->dims, .strides = type->strides};
  return hr_buffer_create(hr_stream_device(tape->stream), bytes, &view->buffer);
}

/* The number of outputs with those that rules read. */
static int outputs_wanted(const hr_hook_record *record) {
  hr__letters letters = hr__row_letters(record->op);
  int count = record->output_count;
  for (int i = count; i < OUTPUTS_MAX; ++i) {
    count = hr__has_letter(letters.outputs, i) ? i + 1 : count;
  }
  return count;
}

static bool lacks_output(const hr_hook_record *record, hr__letters letters) {
  if (record->output_count > OUTPUTS_MAX) {
    return false;
  }
  for (int i = 0; i < record->output_count; ++i) {
    if (record->outputs[i].buffer == NULL && hr__has_letter(letters.outputs, i)) {
      return true;
    }
  }
  return outputs_wanted(record) > record->output_count;
}

static hr_status record_with_outputs(hr_tape *tape, const hr_hook_record *record, hr__letters letters) {
  hr_tensor_type types[OUTPUTS_MAX];
  hr_view views[OUTPUTS_MAX] = {0};
  hr_hook_record longer = *record;
  longer.outputs = views, longer.output_count = outputs_wanted(record), longer.is_new = false;
  HR_RETURN_IF_ERROR(infer(record, longer.output_count, types));
  hr_status status = HR_OK;
  uint32_t made = 0;
  for (int i = 0; status == HR_OK && i < longer.output_count; ++i) {
    if (i < record->output_count && record->outputs[i].buffer != NULL) {
      views[i] = record->outputs[i];
    } else if (hr__has_letter(letters.outputs, i) && types[i].dtype != HR_DTYPE_NONE) {
      status = create_output(tape, &types[i], &views[i]);
      made |= status == HR_OK ? 1u << i : 0;
    }
  }
  status = status == HR_OK ? record_and_keep(tape, &longer) : status;
  for (int i = 0; i < longer.output_count; ++i) {
    if ((made >> i & 1u) != 0) {
      hr_buffer_release(views[i].buffer);
    }
  }
  return status;
}

/* ---- composites without a rule ---- */

/* True if an input is active that the row has no rule for, or if an output may get a gradient that the rules do not
 * read. */
static bool needs_loops(const hr_tape *tape, const hr_hook_record *record) {
  hr_op_family family = hr_op_table(record->op)->family;
  hr__gradient_kind kind = hr__gradient_of(record->op)->kind;
  bool is_known = true;
  if (family != HR_FAMILY_COMPOSITE || kind == HR__GRADIENT_MISSING || kind == HR__GRADIENT_NONE) {
    return false;
  }
  for (int i = 0; i < record->input_count; ++i) {
    is_known = is_known && (!is_active_input(tape, &record->inputs[i]) || hr__has_rule(record->op, i));
  }
  hr__letters letters = hr__row_letters(record->op);
  for (int i = 1; is_known && i < record->output_count; ++i) {
    const hr_view *output = &record->outputs[i];
    bool may_get = output->buffer != NULL && hr__is_differentiable(output->dtype);
    is_known = !may_get || hr__has_letter(letters.gradients, i);
  }
  return !is_known && has_active_input(tape, record);
}

static hr_status record_single(hr_tape *tape, const hr_hook_record *record) {
  if (needs_loops(tape, record)) {
    bool is_done;
    hr_hook *top = hr_hook_set_top(tape->stream, &tape->hook);
    hr_status status = hr__record_loops(tape->stream, record, &is_done);
    (void)hr_hook_set_top(tape->stream, top);
    if (status != HR_OK || is_done) {
      return status;
    }
  }
  hr__letters letters = hr__row_letters(record->op);
  return lacks_output(record, letters) ? record_with_outputs(tape, record, letters) : record_and_keep(tape, record);
}

/* A record over lists is a record of each of their elements, one after the other. */
static hr_status record_list(hr_tape *tape, const hr_hook_record *record) {
  hr_view inputs[HR__ARITY_MAX];
  int count = record->output_count, arity = hr_op_table(record->op)->arity;
  for (int i = 0; i < count; ++i) {
    for (int k = 0; k < arity; ++k) {
      inputs[k] = record->inputs[k * count + i];
    }
    const hr_hook_record single = {record->op, record->attrs, arity, 1, inputs, &record->outputs[i], false};
    HR_RETURN_IF_ERROR(i > 0 ? protect(tape, &single) : HR_OK);
    HR_RETURN_IF_ERROR(record_single(tape, &single));
  }
  return HR_OK;
}

/* ---- the hook ---- */

static hr_status see_record(hr_hook *hook, hr_stream *stream, const hr_hook_record *record) {
  hr_tape *tape = (hr_tape *)hook;
  if (record->is_new) { /* no value that is kept is in its output */
    HR_RETURN_IF_ERROR(
        hr__op_check_inferred(record->op, record->attrs, record->input_count, record->inputs, record->outputs));
  } else {
    HR_RETURN_IF_ERROR(hr_op_check(record->op, record->attrs, record->input_count, record->inputs, record->output_count,
                                   record->outputs));
    HR_RETURN_IF_ERROR(protect(tape, record));
  }
  if (tape->is_ended || tape->is_paused || !concerns(tape, record)) {
    return hr_hook_pass(hook, stream, record);
  }
  bool is_list = hr_op_table(record->op)->family == HR_FAMILY_POINTWISE && record->output_count > 1;
  return is_list ? record_list(tape, record) : record_single(tape, record);
}

/* ---- functions with a gradient of their own ---- */

const void *hr__tape_thread(void) {
  static _Thread_local char here;
  return &here;
}

void hr__tapes_add_constants(hr_hook *hook, const void *thread, int change) {
  for (; change != 0 && hook != NULL; hook = hook->below) {
    hr_tape *tape = (hr_tape *)hook;
    if (hook->record == see_record && tape->thread == thread) {
      tape->constants += change;
    }
  }
}

/* The gradient may read all inputs and outputs. */
static hr_status keep_operands(hr_tape *tape, const hr_hook_record *record, hr__taped *taped) {
  for (int i = 0; i < record->input_count; ++i) {
    HR_RETURN_IF_ERROR(keep_in_place(tape, &record->inputs[i], &taped->inputs[i].kept));
  }
  for (int i = 0; i < record->output_count; ++i) {
    HR_RETURN_IF_ERROR(keep_in_place(tape, &record->outputs[i], &taped->outputs[i].kept));
  }
  return mark_outputs(tape, taped);
}

hr_status hr__tape_keep_custom(hr_hook *hook, hr__custom *custom, const hr_hook_record *record) {
  hr_tape *tape = (hr_tape *)hook;
  if (hook->record != see_record || tape->is_ended || tape->is_paused || !has_active_input(tape, record)) {
    return HR_OK;
  }
  hr__taped *taped = create_taped(record);
  if (taped == NULL) {
    return no_memory();
  }
  taped->custom = custom;
  hr__custom_retain(custom);
  find_active_inputs(tape, record, taped);
  hr_status status = keep_operands(tape, record, taped);
  if (status != HR_OK) {
    destroy_taped(tape, taped);
    return status;
  }
  tape->records.data[tape->records.count++] = taped;
  return HR_OK;
}

hr_status hr_tape_begin(hr_stream *stream, hr_tape **out_tape) {
  hr_tape *tape = hr_calloc(1, sizeof *tape);
  if (tape == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "tape: no host memory");
  }
  hr_stream_retain(stream);
  tape->stream = stream;
  tape->thread = hr__tape_thread();
  tape->hook.record = see_record;
  hr_hook_add(stream, &tape->hook);
  *out_tape = tape;
  return HR_OK;
}

static hr_status watch(hr_tape *tape, int i, const hr_tensor *tensor) {
  if (tensor == NULL || tensor->buffer == NULL || !hr__is_differentiable(tensor->dtype)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "tape: tensor %d is %s, expected a floating tensor with a buffer",
                          i,
                          tensor == NULL           ? "absent"
                          : tensor->buffer == NULL ? "without a buffer"
                                                   : hr_dtype_name(tensor->dtype));
  }
  hr_view view = hr_tensor_view(tensor);
  const hr_hook_record record = {HR_OP_NONE, NULL, 0, 1, NULL, &view, false};
  hr__taped *taped = create_taped(&record);
  if (taped == NULL) {
    return no_memory();
  }
  hr_status status = mark_outputs(tape, taped);
  if (status != HR_OK) {
    destroy_taped(tape, taped);
    return status;
  }
  tape->records.data[tape->records.count++] = taped;
  return HR_OK;
}

hr_status hr_tape_watch(hr_tape *tape, int count, const hr_tensor *const *tensors) {
  for (int i = 0; i < count; ++i) {
    HR_RETURN_IF_ERROR(watch(tape, i, tensors[i]));
  }
  return HR_OK;
}

void hr_tape_end(hr_tape *tape) {
  tape->is_ended = true;
}

/* Records a copy while the tapes from `hook` on pause. */
static hr_status copy_unseen(hr_hook *hook, hr_stream *stream, const hr_tensor *x, hr_tensor *out) {
  if (hook == NULL) {
    const hr_attribute shape = {.kind = HR_ATTRIBUTE_INTS, .count = x->rank, .value = {.ints = x->dims}};
    return hr_functional_apply(stream, HR_FUNCTIONAL_FULL, 1, &x, 1, &shape, 1, out);
  }
  if (hook->record != see_record) {
    return copy_unseen(hook->below, stream, x, out);
  }
  hr_tape *tape = (hr_tape *)hook;
  bool was_paused = tape->is_paused;
  tape->is_paused = true;
  hr_status status = copy_unseen(hook->below, stream, x, out);
  tape->is_paused = was_paused;
  return status;
}

hr_status hr_stop_gradient(hr_stream *stream, const hr_tensor *x, hr_tensor *out) {
  hr_hook *top = hr_hook_set_top(stream, NULL);
  (void)hr_hook_set_top(stream, top);
  if (top == NULL) {
    hr__view_like(x, out);
    return HR_OK;
  }
  return copy_unseen(top, stream, x, out);
}

void hr_tape_destroy(hr_tape *tape) {
  if (tape == NULL) {
    return;
  }
  hr_hook_remove(tape->stream, &tape->hook);
  for (size_t i = 0; i < tape->records.count; ++i) {
    destroy_taped(tape, tape->records.data[i]);
  }
  hr_vector_fini(&tape->records);
  hr_table_fini(&tape->active);
  hr_table_fini(&tape->kept);
  hr_stream_release(tape->stream);
  hr_free(tape);
}
