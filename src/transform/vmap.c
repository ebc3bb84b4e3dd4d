/* vmap.c: records of one example become records of all examples.
 *
 *   record    y = mul(x, w), x an example of 32, w the same in all; y new
 *   becomes   Y [32, ..] = mul(X [32, ..], w), Y a buffer of 32 times the bytes of y
 *
 * A buffer that the mapped function writes becomes one of all examples; if the record does not write all of it, its
 * contents are copied before. Buffers of examples have no memory and are claimed (hook.h): whoever reads one gets the
 * vmap's failure, also after its end.
 *
 * The vmap has references of both buffers. Those that nobody else holds are released when there are twice as many as
 * remained the last time, so that intermediate results stay dead for the compiler.
 */
#include "transform/vmap.h"

#include "base/allocator.h"

enum { SWEEP_FIRST = 64, PITCH_ALIGNMENT = 16 };

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "vmap: no host memory for a record");
}

/* ---- buffers of examples ---- */

static void drop_mapped(hr__mapped *mapped) {
  hr_buffer_release(mapped->example);
  hr_buffer_release(mapped->all);
  hr_free(mapped);
}

/* Releases the buffers that only the vmap holds. */
static hr_status sweep(hr_vmap *vmap) {
  hr_table kept = {0};
  size_t cursor = 0;
  const hr_table_entry *entry;
  for (cursor = 0; (entry = hr_table_next(&vmap->mapped, &cursor)) != NULL;) {
    hr__mapped *mapped = entry->value;
    if (!hr_buffer_is_unique(vmap->stream, mapped->example) && !hr_table_put(&kept, entry->key, mapped)) {
      hr_table_fini(&kept);
      return no_memory();
    }
  }
  for (cursor = 0; (entry = hr_table_next(&vmap->mapped, &cursor)) != NULL;) {
    if (hr_table_get(&kept, entry->key) == NULL) {
      drop_mapped(entry->value);
    }
  }
  hr_table_fini(&vmap->mapped);
  vmap->mapped = kept;
  vmap->sweep_at = 2 * kept.count > SWEEP_FIRST ? 2 * kept.count : SWEEP_FIRST;
  return HR_OK;
}

/* `mapped` with references of its own; replaces what the example's buffer was before. */
static hr_status add_mapped(hr_vmap *vmap, const hr__mapped *mapped) {
  uint64_t serial = hr_buffer_serial(mapped->example);
  hr__mapped *before = hr_table_get(&vmap->mapped, serial), *added = hr_malloc(sizeof *added);
  if (added == NULL || !hr_table_put(&vmap->mapped, serial, added)) {
    hr_free(added);
    return no_memory();
  }
  *added = *mapped;
  hr_buffer_retain(added->example);
  hr_buffer_retain(added->all);
  if (before != NULL) {
    drop_mapped(before);
  } else {
    hr_hook_claim_buffer(added->example, vmap->failure);
  }
  return HR_OK;
}

static hr__mapped *find_mapped(const hr_vmap *vmap, const hr_buffer *buffer) {
  return buffer != NULL ? hr_table_get(&vmap->mapped, hr_buffer_serial(buffer)) : NULL;
}

/* A buffer for examples of `pitch` bytes. */
static hr_status create_all(const hr_vmap *vmap, int64_t pitch, hr_buffer **out_buffer) {
  int64_t bytes;
  if (__builtin_mul_overflow(vmap->size, pitch, &bytes)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "vmap: %lld examples of %lld bytes exceed the address space",
                          (long long)vmap->size, (long long)pitch);
  }
  return hr_buffer_create(hr_stream_device(vmap->stream), (size_t)bytes, out_buffer);
}

/* Copies the bytes that all examples have, as elements of a dtype, so that tapes below see the values. */
static hr_status copy_examples(const hr_vmap *vmap, const hr__mapped *from, bool is_same, const hr__mapped *to,
                               hr_dtype dtype) {
  int64_t size = (int64_t)hr_dtype_size(dtype), count = (int64_t)hr_buffer_bytes(to->example) / size;
  const int64_t dims[2] = {vmap->size, count};
  const int64_t source_strides[2] = {is_same ? 0 : from->pitch / size, 1}, target_strides[2] = {to->pitch / size, 1};
  const hr_view source = {from->all, NULL, dtype, 2, from->base / size, dims, source_strides};
  const hr_view target = {to->all, NULL, dtype, 2, 0, dims, target_strides};
  const hr_hook_record record = {HR_OP_COPY, NULL, 1, 1, &source, &target, false};
  return vmap->size > 0 && count > 0 ? hr_hook_pass(&vmap->hook, vmap->stream, &record) : HR_OK;
}

/* The dtype of a copy: that of a view if its elements fill the example, else bytes. */
static hr_dtype copied_dtype(const hr__mapped *from, hr_dtype dtype) {
  int64_t size = (int64_t)hr_dtype_size(dtype);
  bool divides =
      (int64_t)hr_buffer_bytes(from->example) % size == 0 && from->base % size == 0 && from->pitch % size == 0;
  return divides ? dtype : HR_DTYPE_U8;
}

/* Gives a buffer memory of its own for all examples, in place of `before` (NULL: it was the same in all). */
static hr_status make_own(hr_vmap *vmap, hr_buffer *example, const hr__mapped *before, bool keeps_contents,
                          hr_dtype dtype) {
  int64_t bytes = (int64_t)hr_buffer_bytes(example), size = (int64_t)hr_dtype_size(dtype);
  hr__mapped own = {.example = example, .pitch = bytes}, same = {.example = example, .all = example};
  if (bytes % size != 0 || bytes == 0) {
    own.pitch = (bytes / PITCH_ALIGNMENT + 1) * PITCH_ALIGNMENT;
  }
  HR_RETURN_IF_ERROR(create_all(vmap, own.pitch, &own.all));
  const hr__mapped *from = before != NULL ? before : &same;
  hr_status status =
      keeps_contents ? copy_examples(vmap, from, before == NULL, &own, copied_dtype(from, dtype)) : HR_OK;
  status = status == HR_OK ? add_mapped(vmap, &own) : status;
  hr_buffer_release(own.all);
  return status;
}

/* ---- operands ---- */

static bool is_aligned(const hr__mapped *mapped, hr_dtype dtype) {
  int64_t size = (int64_t)hr_dtype_size(dtype);
  return mapped->base % size == 0 && mapped->pitch % size == 0;
}

static void find_operand(const hr_vmap *vmap, const hr_view *view, hr__operand_of_all *out) {
  const hr__mapped *mapped = find_mapped(vmap, view->buffer);
  *out = (hr__operand_of_all){.view = *view, .is_mapped = mapped != NULL};
  if (mapped != NULL) {
    int64_t size = (int64_t)hr_dtype_size(view->dtype);
    out->view.buffer = mapped->all;
    out->view.offset += mapped->base / size;
    out->stride = mapped->pitch / size;
  }
}

/* Elements of the view's dtype must have whole distances. */
static hr_status prepare_input(hr_vmap *vmap, const hr_view *view) {
  const hr__mapped *mapped = find_mapped(vmap, view->buffer);
  return mapped == NULL || is_aligned(mapped, view->dtype) ? HR_OK
                                                           : make_own(vmap, view->buffer, mapped, true, view->dtype);
}

/* True if the view is the whole buffer. */
static bool is_whole(const hr_view *view) {
  int64_t stride = 1;
  for (int d = view->rank - 1; d >= 0; --d) {
    if (view->dims[d] != 1 && view->strides[d] != stride) {
      return false;
    }
    stride *= view->dims[d];
  }
  return view->offset == 0 && (size_t)stride * hr_dtype_size(view->dtype) == hr_buffer_bytes(view->buffer);
}

static bool has_contents(const hr_vmap *vmap, const hr_buffer *buffer) {
  return hr_buffer_has_memory(buffer) || hr_table_get(&vmap->written, hr_buffer_serial(buffer)) != NULL;
}

static bool reads(const hr_hook_record *record, const hr_buffer *buffer) {
  for (int i = 0; i < record->input_count; ++i) {
    if (record->inputs[i].buffer == buffer) {
      return true;
    }
  }
  return false;
}

/* True if the record needs or leaves elements that the buffer has. */
static bool keeps_contents(const hr_vmap *vmap, const hr_hook_record *record, const hr_view *output,
                           const hr__mapped *mapped) {
  bool is_overwritten = is_whole(output) && (hr_op_table(record->op)->traits & HR_TRAIT_UPDATES) == 0;
  return (!is_overwritten || reads(record, output->buffer)) && (mapped != NULL || has_contents(vmap, output->buffer));
}

static hr_status prepare_output(hr_vmap *vmap, const hr_hook_record *record, int i) {
  const hr_view *view = &record->outputs[i];
  if (view->buffer == NULL) {
    return HR_OK;
  }
  const hr__mapped *mapped = find_mapped(vmap, view->buffer);
  if (mapped == NULL && hr_buffer_serial(view->buffer) <= vmap->first) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                          "vmap: %s writes values that differ between examples to a tensor that is not mapped",
                          hr_op_table(record->op)->name);
  }
  bool is_ready = mapped != NULL && !mapped->is_shared && is_aligned(mapped, view->dtype);
  bool keeps = !is_ready && keeps_contents(vmap, record, view, mapped);
  return is_ready ? HR_OK : make_own(vmap, view->buffer, mapped, keeps, view->dtype);
}

/* ---- records ---- */

static bool concerns(const hr_vmap *vmap, const hr_hook_record *record) {
  for (int i = 0; i < record->input_count; ++i) {
    if (find_mapped(vmap, record->inputs[i].buffer) != NULL) {
      return true;
    }
  }
  for (int i = 0; i < record->output_count; ++i) {
    if (find_mapped(vmap, record->outputs[i].buffer) != NULL) {
      return true;
    }
  }
  return false;
}

static hr_status record_same(hr_vmap *vmap, const hr_hook_record *record) {
  for (int i = 0; i < record->output_count; ++i) {
    const hr_buffer *buffer = record->outputs[i].buffer;
    uint64_t serial = buffer != NULL ? hr_buffer_serial(buffer) : 0;
    if (serial > vmap->first && !hr_table_put(&vmap->written, serial, vmap)) {
      return no_memory();
    }
  }
  return hr_hook_pass(&vmap->hook, vmap->stream, record);
}

/* Everything that replaces buffers. Outputs first: an input of the same buffer is then read in its new place. */
static hr_status prepare(hr_vmap *vmap, const hr_hook_record *record) {
  for (int i = 0; i < record->output_count; ++i) {
    HR_RETURN_IF_ERROR(prepare_output(vmap, record, i));
  }
  for (int i = 0; i < record->input_count; ++i) {
    HR_RETURN_IF_ERROR(prepare_input(vmap, &record->inputs[i]));
  }
  return HR_OK;
}

static hr_status record_examples(hr_vmap *vmap, const hr_hook_record *record) {
  static const hr_attrs none;
  enum { FEW = 8 };
  size_t inputs = (size_t)record->input_count, count = inputs + (size_t)record->output_count;
  HR_RETURN_IF_ERROR(prepare(vmap, record));
  hr__operand_of_all few[FEW], *operands = count <= FEW ? few : hr_malloc(count * sizeof *operands);
  if (operands == NULL) {
    return no_memory();
  }
  for (size_t i = 0; i < count; ++i) {
    find_operand(vmap, i < inputs ? &record->inputs[i] : &record->outputs[i - inputs], &operands[i]);
  }
  const hr__record_of_all all = {.vmap = vmap,
                                 .op = record->op,
                                 .attrs = record->attrs != NULL ? record->attrs : &none,
                                 .input_count = record->input_count,
                                 .output_count = record->output_count,
                                 .inputs = operands,
                                 .outputs = operands + inputs};
  hr_status status = hr__vmap_record(&all);
  if (operands != few) {
    hr_free(operands);
  }
  return status;
}

static hr_status see_record(hr_hook *hook, hr_stream *stream, const hr_hook_record *record) {
  hr_vmap *vmap = (hr_vmap *)hook;
  (void)stream;
  HR_RETURN_IF_ERROR(hr_op_check(record->op, record->attrs, record->input_count, record->inputs, record->output_count,
                                 record->outputs));
  if (!concerns(vmap, record)) {
    return record_same(vmap, record);
  }
  HR_RETURN_IF_ERROR(vmap->mapped.count >= vmap->sweep_at ? sweep(vmap) : HR_OK);
  return record_examples(vmap, record);
}

/* ---- begin and end ---- */

bool hr__vmap_concerns(const hr_hook *hook, const hr_hook_record *record) {
  return hook->record == see_record && concerns((const hr_vmap *)hook, record);
}

hr_status hr__vmap_map_outputs(hr_vmap *vmap, const hr_hook_record *record) {
  for (int i = 0; i < record->output_count; ++i) {
    const hr_view *output = &record->outputs[i];
    if (find_mapped(vmap, output->buffer) == NULL) {
      HR_RETURN_IF_ERROR(make_own(vmap, output->buffer, NULL, true, output->dtype));
    }
  }
  return HR_OK;
}

/* The serial number of a new buffer: later ones are larger. */
static hr_status newest_serial(hr_stream *stream, uint64_t *out_serial) {
  hr_buffer *buffer;
  HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(stream), 1, &buffer));
  *out_serial = hr_buffer_serial(buffer);
  hr_buffer_release(buffer);
  return HR_OK;
}

hr_status hr_vmap_begin(hr_stream *stream, int64_t size, hr_vmap **out_vmap) {
  uint64_t first;
  if (size < 0) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "vmap: %lld examples, expected at least 0", (long long)size);
  }
  HR_RETURN_IF_ERROR(newest_serial(stream, &first));
  hr_vmap *vmap = hr_calloc(1, sizeof *vmap);
  if (vmap == NULL) {
    return no_memory();
  }
  hr_stream_retain(stream);
  *vmap = (hr_vmap){.hook.record = see_record, .stream = stream, .size = size, .first = first, .sweep_at = SWEEP_FIRST};
  vmap->failure = hr_status_make(
      HR_STATUS_INVALID_ARGUMENT,
      "vmap: a value that differs between examples can't be read, nor used after the mapped function has returned");
  hr_hook_add(stream, &vmap->hook);
  *out_vmap = vmap;
  return HR_OK;
}

void hr_vmap_end(hr_vmap *vmap) {
  if (vmap == NULL) {
    return;
  }
  hr_hook_remove(vmap->stream, &vmap->hook);
  size_t cursor = 0;
  const hr_table_entry *entry;
  while ((entry = hr_table_next(&vmap->mapped, &cursor)) != NULL) {
    drop_mapped(entry->value);
  }
  hr_table_fini(&vmap->mapped);
  hr_table_fini(&vmap->written);
  hr_status_free(vmap->failure);
  hr_stream_release(vmap->stream);
  hr_free(vmap);
}

/* ---- examples in and out ---- */

static hr_status check_axis(const char *what, int axis, int rank) {
  return axis >= 0 && axis < rank
             ? HR_OK
             : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "vmap: %s %d, expected 0 to %d", what, axis, rank - 1);
}

/* The bytes between the first and behind the last element, and the element (0, 0, ...) from the first. */
static void measure(const hr_tensor *x, int64_t *out_bytes, int64_t *out_origin) {
  int64_t low = 0, high = 0, size = (int64_t)hr_dtype_size(x->dtype);
  bool is_empty = false;
  for (int d = 0; d < x->rank; ++d) {
    int64_t reach = (x->dims[d] - 1) * x->strides[d];
    is_empty |= x->dims[d] == 0;
    low += reach < 0 ? reach : 0;
    high += reach > 0 ? reach : 0;
  }
  *out_bytes = is_empty ? 0 : (high - low + 1) * size;
  *out_origin = is_empty ? 0 : -low;
}

hr_status hr_vmap_split(hr_vmap *vmap, const hr_tensor *x, int axis, hr_tensor *out) {
  HR_RETURN_IF_ERROR(check_axis("axis", axis, x->rank));
  if (x->dims[axis] != vmap->size || x->buffer == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "vmap: axis %d has size %lld, expected %lld%s", axis,
                          (long long)x->dims[axis], (long long)vmap->size,
                          x->buffer == NULL ? ", and a tensor with a buffer" : "");
  }
  hr_tensor example = *x;
  int64_t size = (int64_t)hr_dtype_size(x->dtype), bytes;
  example.rank = x->rank - 1;
  for (int d = axis; d < example.rank; ++d) {
    example.dims[d] = x->dims[d + 1], example.strides[d] = x->strides[d + 1];
  }
  measure(&example, &bytes, &example.offset);
  HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(vmap->stream), (size_t)bytes, &example.buffer));
  const hr__mapped mapped = {.example = example.buffer,
                             .all = x->buffer,
                             .base = (x->offset - example.offset) * size,
                             .pitch = x->strides[axis] * size,
                             .is_shared = true};
  hr_status status = add_mapped(vmap, &mapped);
  if (status != HR_OK) {
    hr_buffer_release(example.buffer);
    return status;
  }
  *out = example;
  return HR_OK;
}

bool hr_vmap_is_example(const hr_vmap *vmap, const hr_tensor *tensor) {
  return find_mapped(vmap, tensor->buffer) != NULL;
}

hr_status hr_vmap_join(hr_vmap *vmap, const hr_tensor *example, int axis, hr_tensor *out) {
  HR_RETURN_IF_ERROR(check_axis("axis", axis, example->rank + 1));
  if (example->rank == HR_RANK_MAX || example->buffer == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "vmap: an example of %d dims%s, expected at most %d",
                          example->rank, example->buffer == NULL ? " without a buffer" : "", HR_RANK_MAX - 1);
  }
  hr_view view = hr_tensor_view(example);
  hr__operand_of_all operand;
  find_operand(vmap, &view, &operand);
  hr_tensor all = *example;
  all.buffer = operand.view.buffer, all.offset = operand.view.offset, all.rank = example->rank + 1;
  for (int d = example->rank; d > axis; --d) {
    all.dims[d] = example->dims[d - 1], all.strides[d] = example->strides[d - 1];
  }
  all.dims[axis] = vmap->size, all.strides[axis] = operand.stride;
  hr_buffer_retain(all.buffer);
  *out = all;
  return HR_OK;
}
