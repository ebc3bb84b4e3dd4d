/* vmap_custom.c: functions with a gradient of their own, for all examples.
 *
 * Tapes above a vmap see the function of one example; tapes below it see one function of all: its gradient is that of
 * an example, in another vmap. The gradient by an input that is the same in all examples is the sum over them.
 */
#include <string.h>

#include "base/allocator.h"
#include "transform/vmap.h"

/* A function of all examples. All outputs are mapped. */
typedef struct batched {
  hr__custom *custom; /* of one example; a user */
  int64_t size;
  bool is_mapped[]; /* of each input */
} batched;

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "vmap: no host memory for a function with a gradient of its own");
}

static void release_batched(void *arg) {
  batched *b = arg;
  hr__custom_release(b->custom);
  hr_free(b);
}

/* ---- the gradient and the product ---- */

static hr_status sum_examples(hr_stream *stream, hr_tensor *x) {
  const int64_t axis = 0;
  const hr_attribute axes = {.kind = HR_ATTRIBUTE_INTS, .count = 1, .value = {.ints = &axis}};
  const hr_tensor *inputs[1] = {x};
  hr_tensor sum;
  HR_RETURN_IF_ERROR(hr_functional_apply(stream, HR_FUNCTIONAL_SUM, 1, inputs, 1, &axes, 1, &sum));
  hr_tensor_release(x);
  *x = sum;
  return HR_OK;
}

static hr_status join_gradient(const hr_custom_call *call, hr_vmap *vmap, int i, const hr_tensor *gradient) {
  const batched *b = call->arg;
  if (gradient->buffer == NULL) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(hr_vmap_join(vmap, gradient, 0, &call->gradients[i]));
  return b->is_mapped[i] ? HR_OK : sum_examples(call->stream, &call->gradients[i]);
}

/* An example of x, or x itself; an absent one stays so. */
static hr_status split(hr_vmap *vmap, const hr_tensor *x, bool is_mapped, hr_tensor *out) {
  if (is_mapped && x->buffer != NULL) {
    return hr_vmap_split(vmap, x, 0, out);
  }
  *out = *x;
  hr_buffer_retain(out->buffer);
  return HR_OK;
}

/* The tensors of a call for one example. `given`: its cotangents or tangents. */
static hr_status find_examples(const hr_custom_call *call, hr_vmap *vmap, hr_tensor *inputs, hr_tensor *outputs,
                               hr_tensor *given) {
  const batched *b = call->arg;
  for (int i = 0; i < call->input_count; ++i) {
    HR_RETURN_IF_ERROR(split(vmap, &call->inputs[i], b->is_mapped[i], &inputs[i]));
    if (call->tangents != NULL) {
      HR_RETURN_IF_ERROR(split(vmap, &call->tangents[i], b->is_mapped[i], &given[i]));
    }
  }
  for (int i = 0; i < call->output_count; ++i) {
    HR_RETURN_IF_ERROR(split(vmap, &call->outputs[i], true, &outputs[i]));
    if (call->tangents == NULL) {
      HR_RETURN_IF_ERROR(split(vmap, &call->cotangents[i], true, &given[i]));
    }
  }
  return HR_OK;
}

static hr_status find_gradients(const hr_custom_call *call, hr_vmap *vmap, hr_custom_call *one) {
  HR_RETURN_IF_ERROR(hr__custom_spec(((const batched *)call->arg)->custom)->gradient(one));
  for (int i = 0; i < call->input_count; ++i) {
    HR_RETURN_IF_ERROR(join_gradient(call, vmap, i, &one->gradients[i]));
  }
  return HR_OK;
}

static hr_status find_products(const hr_custom_call *call, hr_vmap *vmap, hr_custom_call *one) {
  HR_RETURN_IF_ERROR(hr__custom_spec(((const batched *)call->arg)->custom)->product(one));
  for (int o = 0; o < call->output_count; ++o) {
    if (one->products[o].buffer != NULL) {
      HR_RETURN_IF_ERROR(hr_vmap_join(vmap, &one->products[o], 0, &call->products[o]));
    }
  }
  return HR_OK;
}

typedef hr_status (*finder)(const hr_custom_call *call, hr_vmap *vmap, hr_custom_call *one);

/* room: inputs, outputs, what is given, what is found. */
static hr_status call_in(const hr_custom_call *call, hr_vmap *vmap, finder find, hr_tensor *room) {
  bool is_product = call->tangents != NULL;
  hr_tensor *outputs = room + call->input_count, *given = outputs + call->output_count;
  hr_tensor *found = given + (is_product ? call->input_count : call->output_count);
  HR_RETURN_IF_ERROR(find_examples(call, vmap, room, outputs, given));
  hr_custom_call one = *call;
  one.arg = hr__custom_spec(((const batched *)call->arg)->custom)->arg;
  one.inputs = room, one.outputs = outputs;
  if (is_product) {
    one.tangents = given, one.products = found;
  } else {
    one.cotangents = given, one.gradients = found;
  }
  return find(call, vmap, &one);
}

static hr_status call_one(const hr_custom_call *call, finder find) {
  size_t count = 2 * ((size_t)call->input_count + (size_t)call->output_count);
  hr_tensor *room = hr_calloc(count + 1, sizeof *room);
  hr_vmap *vmap = NULL;
  hr_status status =
      room != NULL ? hr_vmap_begin(call->stream, ((const batched *)call->arg)->size, &vmap) : no_memory();
  status = status == HR_OK ? call_in(call, vmap, find, room) : status;
  hr_vmap_end(vmap);
  for (size_t i = 0; room != NULL && i < count; ++i) {
    hr_tensor_release(&room[i]);
  }
  hr_free(room);
  return status;
}

static hr_status batched_gradient(const hr_custom_call *call) {
  return call_one(call, find_gradients);
}

static hr_status batched_product(const hr_custom_call *call) {
  return call_one(call, find_products);
}

/* ---- the record ---- */

static hr_status create_batched(const hr_vmap *vmap, hr__custom *custom, const hr_tensor *inputs, int count,
                                hr__custom **out_custom) {
  batched *b = hr_malloc(sizeof *b + (size_t)count * sizeof *b->is_mapped);
  if (b == NULL) {
    return no_memory();
  }
  b->custom = custom, b->size = vmap->size;
  hr__custom_retain(custom);
  for (int i = 0; i < count; ++i) {
    b->is_mapped[i] = hr_vmap_is_example(vmap, &inputs[i]);
  }
  const hr_custom_spec *one = hr__custom_spec(custom);
  const hr_custom_spec spec = {one->name, batched_gradient, b, release_batched,
                               one->product != NULL ? batched_product : NULL};
  return hr__custom_create(&spec, out_custom);
}

static void tensor_of(const hr_view *view, hr_tensor *out) {
  *out = (hr_tensor){.buffer = view->buffer, .dtype = view->dtype, .rank = view->rank, .offset = view->offset};
  for (int d = 0; d < view->rank; ++d) {
    out->dims[d] = view->dims[d], out->strides[d] = view->strides[d];
  }
}

/* All examples of an operand; one that is the same in all stays as it is. */
static hr_status join_operand(hr_vmap *vmap, const hr_view *view, hr_tensor *out) {
  hr_tensor x;
  tensor_of(view, &x);
  if (hr_vmap_is_example(vmap, &x)) {
    return hr_vmap_join(vmap, &x, 0, out);
  }
  *out = x;
  hr_buffer_retain(out->buffer);
  return HR_OK;
}

static hr_status keep_joined(hr_vmap *vmap, const void *thread, hr__custom *custom, const hr_hook_record *record,
                             hr_tensor *joined, hr_view *views) {
  int inputs = record->input_count, count = inputs + record->output_count;
  hr__custom *all;
  for (int i = 0; i < inputs; ++i) {
    tensor_of(&record->inputs[i], &joined[i]);
  }
  hr_status status = create_batched(vmap, custom, joined, inputs, &all);
  memset(joined, 0, (size_t)inputs * sizeof *joined);
  HR_RETURN_IF_ERROR(status);
  for (int i = 0; i < count && status == HR_OK; ++i) {
    status = join_operand(vmap, i < inputs ? &record->inputs[i] : &record->outputs[i - inputs], &joined[i]);
    views[i] = hr_tensor_view(&joined[i]);
  }
  const hr_hook_record lifted = {record->op, NULL, inputs, record->output_count, views, views + inputs, false};
  status = status == HR_OK ? hr__custom_keep(vmap->hook.below, thread, all, &lifted) : status;
  hr__custom_release(all);
  return status;
}

hr_status hr__vmap_keep_custom(hr_hook *hook, const void *thread, hr__custom *custom, const hr_hook_record *record) {
  hr_vmap *vmap = (hr_vmap *)hook;
  size_t count = (size_t)record->input_count + (size_t)record->output_count;
  HR_RETURN_IF_ERROR(hr__vmap_map_outputs(vmap, record));
  hr_tensor *joined = hr_calloc(count + 1, sizeof *joined);
  hr_view *views = hr_malloc((count + 1) * sizeof *views);
  hr_status status =
      joined != NULL && views != NULL ? keep_joined(vmap, thread, custom, record, joined, views) : no_memory();
  for (size_t i = 0; joined != NULL && i < count; ++i) {
    hr_tensor_release(&joined[i]);
  }
  hr_free(views);
  hr_free(joined);
  return status;
}
