/* adjoint.c: sums of gradients, buffer by buffer.
 *
 *   first gradient of a whole buffer     becomes the adjoint, if it has the buffer's layout; else it is copied
 *   first gradient of a part             zeros, and a copy
 *   later ones                           added: to a new adjoint if whole, else in place
 *   a view that shows elements twice     dims of stride 0 are summed before; overlapping windows add by index, in order
 */
#include "transform/adjoint.h"

#include "base/allocator.h"

/* ---- views ---- */

/* The view of an operand on its adjoint, in which each element occurs once: dims of stride 0 have size 1. */
static void target_of(const hr__operand *at, hr_buffer *buffer, hr_tensor *target) {
  const hr_view *view = &at->view;
  *target = (hr_tensor){.buffer = buffer, .dtype = view->dtype, .rank = view->rank, .offset = view->offset};
  for (int d = 0; d < view->rank; ++d) {
    target->dims[d] = view->strides[d] == 0 && view->dims[d] > 1 ? 1 : view->dims[d];
    target->strides[d] = view->strides[d];
  }
}

static int64_t magnitude(int64_t stride) {
  return stride < 0 ? -stride : stride;
}

/* True if it is certain that no two elements have one place: each stride reaches beyond the smaller ones. *out_reach:
 * the distance of the first and the last place. */
static bool is_injective(const hr_tensor *x, int64_t *out_reach) {
  uint32_t seen = 0;
  *out_reach = 0;
  for (int k = 0; k < x->rank; ++k) {
    int next = -1;
    for (int d = 0; d < x->rank; ++d) {
      bool is_open = x->dims[d] > 1 && (seen >> d & 1u) == 0;
      if (is_open && (next < 0 || magnitude(x->strides[d]) < magnitude(x->strides[next]))) {
        next = d;
      }
    }
    if (next < 0) {
      break;
    }
    if (magnitude(x->strides[next]) <= *out_reach) {
      return false;
    }
    seen |= 1u << next;
    *out_reach += (x->dims[next] - 1) * magnitude(x->strides[next]);
  }
  return true;
}

/* True if the view has each element of a buffer of so many bytes once. */
static bool is_whole(const hr_tensor *x, size_t bytes) {
  int64_t count = hr_tensor_count(x), reach;
  bool is_upward = x->offset == 0;
  for (int d = 0; d < x->rank; ++d) {
    is_upward = is_upward && (x->dims[d] <= 1 || x->strides[d] > 0);
  }
  return is_upward && (size_t)count * hr_dtype_size(x->dtype) == bytes && is_injective(x, &reach) &&
         (count == 0 || reach + 1 == count);
}

/* True if x can stand for the whole buffer that the target shows. */
static bool has_layout_of(const hr_tensor *x, const hr_tensor *target) {
  bool has = x->dtype == target->dtype && x->rank == target->rank && x->offset == 0;
  for (int d = 0; has && d < x->rank; ++d) {
    has = x->dims[d] == target->dims[d] && (x->dims[d] <= 1 || x->strides[d] == target->strides[d]);
  }
  return has;
}

/* ---- a gradient with the dims and the kind of dtype of its target ---- */

/* d with one dim for each of `rank`; dims that the target repeats (stride 0) have their size. */
static void spread(const hr__operand *at, const hr_tensor *d, int rank, hr_tensor *out, uint32_t *out_mask) {
  hr__copy_tensor(d, out);
  out->rank = rank, *out_mask = 0;
  for (int i = 0; i < rank; ++i) {
    int from = i - (rank - d->rank), to = i - (rank - at->view.rank);
    int64_t have = from >= 0 ? d->dims[from] : 1, want = to >= 0 ? at->view.dims[to] : 1;
    bool is_repeated = to >= 0 && want > 1 && at->view.strides[to] == 0;
    out->dims[i] = have == 1 && is_repeated ? want : have;
    out->strides[i] = have == 1 ? 0 : d->strides[from];
    if (out->dims[i] != 1 && (want == 1 || is_repeated)) {
      *out_mask |= 1u << i;
    }
  }
}

/* Sums over dims that the target does not have, or has once. The result has a reference. */
static hr_status fold(const hr__function_call *call, const hr__operand *at, const hr_tensor *d, hr_tensor *out) {
  int rank = d->rank > at->view.rank ? d->rank : at->view.rank;
  hr_tensor wide;
  uint32_t mask;
  spread(at, d, rank, &wide, &mask);
  if (mask == 0) {
    hr_buffer_retain(wide.buffer);
    hr__copy_tensor(&wide, out);
  } else {
    const int64_t ints[1] = {mask};
    const hr_attrs attrs = {.int_count = 1, .ints = ints};
    const hr_tensor *inputs[1] = {&wide};
    HR_RETURN_IF_ERROR(hr__record_one(call, HR_OP_SUM, &attrs, 1, inputs, HR_DTYPE_NONE, out));
  }
  uint32_t leading = (1u << (rank - at->view.rank)) - 1;
  hr__drop_dims(out, leading);
  return HR_OK;
}

/* The gradient of a real number is the real part. Takes d's reference. */
static hr_status make_real(const hr__function_call *call, hr_dtype dtype, hr_tensor *d) {
  if (hr_dtype_is_complex(dtype) || !hr_dtype_is_complex(d->dtype)) {
    return HR_OK;
  }
  hr_tensor real;
  const hr_tensor *inputs[1] = {d};
  hr_status status = hr__record_one(call, HR_OP_REAL, NULL, 1, inputs, HR_DTYPE_NONE, &real);
  hr_tensor_release(d);
  if (status == HR_OK) {
    hr__copy_tensor(&real, d);
  }
  return status;
}

/* ---- adjoints ---- */

static hr__adjoint *find(const hr__adjoints *adjoints, const hr__operand *at) {
  return hr_table_get(&adjoints->table, at->serial);
}

bool hr__adjoint_exists(const hr__adjoints *adjoints, const hr__operand *at) {
  return at->serial != 0 && find(adjoints, at) != NULL;
}

/* Takes the buffer's reference. */
static hr_status put(hr__adjoints *adjoints, const hr__operand *at, hr_buffer *buffer, bool is_shared) {
  hr__adjoint *adjoint = hr_malloc(sizeof *adjoint);
  if (adjoint == NULL || !hr_table_put(&adjoints->table, at->serial, adjoint)) {
    hr_free(adjoint);
    hr_buffer_release(buffer);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "tape: no host memory for a gradient");
  }
  *adjoint = (hr__adjoint){buffer, is_shared};
  return HR_OK;
}

static void drop(hr__adjoints *adjoints, const hr__operand *at) {
  hr__adjoint *adjoint = hr_table_remove(&adjoints->table, at->serial);
  if (adjoint != NULL) {
    hr_buffer_release(adjoint->buffer);
    hr_free(adjoint);
  }
}

void hr__adjoints_fini(hr__adjoints *adjoints) {
  size_t cursor = 0;
  for (const hr_table_entry *entry; (entry = hr_table_next(&adjoints->table, &cursor)) != NULL;) {
    hr__adjoint *adjoint = entry->value;
    hr_buffer_release(adjoint->buffer);
    hr_free(adjoint);
  }
  hr_table_fini(&adjoints->table);
}

/* ---- records ---- */

static hr_status copy_to(const hr__function_call *call, const hr_tensor *x, hr_tensor *to) {
  return hr__write_row(call, HR_OP_COPY, NULL, 1, &x, to);
}

static hr_status add_to(const hr__function_call *call, const hr_tensor *d, const hr_tensor *old, hr_tensor *to) {
  const hr_tensor *inputs[2] = {old, d};
  return hr__write_row(call, HR_OP_ADD, NULL, 2, inputs, to);
}

/* The elements of a whole buffer, as they are stored. */
static hr_tensor flat_of(const hr__operand *at, hr_buffer *buffer) {
  return (hr_tensor){.buffer = buffer,
                     .dtype = at->view.dtype,
                     .rank = 1,
                     .dims = {(int64_t)(at->bytes / hr_dtype_size(at->view.dtype))},
                     .strides = {1}};
}

static hr_status fill_zero(const hr__function_call *call, hr_tensor *to) {
  const hr_tensor zero = hr_tensor_number(hr_scalar_i64(0));
  return copy_to(call, &zero, to);
}

/* The places of a dim's elements, [size, 1, ..] with one dim for each from this one on. */
static hr_status make_places(const hr__function_call *call, const hr_tensor *target, int dim, int64_t first,
                             hr_tensor *out) {
  const hr_scalar scalars[2] = {hr_scalar_i64(first), hr_scalar_i64(target->strides[dim])};
  const hr_attrs attrs = {.scalar_count = 2, .scalars = scalars};
  HR_RETURN_IF_ERROR(hr__record_new(call, HR_OP_ARANGE, &attrs, 0, NULL, HR_DTYPE_I64, 1, &target->dims[dim], out));
  out->rank = target->rank - dim;
  for (int d = 1; d < out->rank; ++d) {
    out->dims[d] = 1, out->strides[d] = 0;
  }
  return HR_OK;
}

/* index += places; takes both references. */
static hr_status add_places(const hr__function_call *call, hr_tensor *places, hr_tensor *index) {
  hr_tensor sum;
  const hr_tensor *inputs[2] = {places, index};
  hr_status status = hr__record_one(call, HR_OP_ADD, NULL, 2, inputs, HR_DTYPE_I64, &sum);
  hr_tensor_release(places);
  hr_tensor_release(index);
  if (status == HR_OK) {
    hr__copy_tensor(&sum, index);
  }
  return status;
}

/* The places of the target's elements in its buffer. It has a dim of more than one element. */
static hr_status make_index(const hr__function_call *call, const hr_tensor *target, hr_tensor *out) {
  *out = (hr_tensor){0};
  for (int d = target->rank - 1; d >= 0; --d) {
    hr_tensor places;
    if (target->dims[d] == 1) {
      continue;
    }
    bool is_first = out->buffer == NULL;
    hr_status status = make_places(call, target, d, is_first ? target->offset : 0, &places);
    if (status == HR_OK && is_first) {
      hr__copy_tensor(&places, out);
    } else if (status == HR_OK) {
      status = add_places(call, &places, out);
    }
    if (status != HR_OK) {
      hr_tensor_release(out);
      return status;
    }
  }
  return HR_OK;
}

/* Adds to elements that the target shows several times, in their order: by index. */
static hr_status add_by_index(const hr__function_call *call, const hr__operand *at, const hr_tensor *target,
                              const hr_tensor *d) {
  static const int64_t ints[3] = {1, 0, 1}; /* dim 0, at position 0, accumulated */
  const hr_attrs attrs = {.int_count = 3, .ints = ints};
  hr_tensor index, values, flat = flat_of(at, target->buffer);
  const hr_tensor *inputs[2] = {&values, &index};
  HR_RETURN_IF_ERROR(make_index(call, target, &index));
  hr__copy_tensor(d, &values);
  hr__drop_dims(&values, (1u << (values.rank - index.rank)) - 1);
  hr_status status = hr__write_row(call, HR_OP_INDEX_PUT, &attrs, 2, inputs, &flat);
  hr_tensor_release(&index);
  return status;
}

/* ---- adding ---- */

static hr_status store_first(hr__adjoints *adjoints, const hr__function_call *call, const hr__operand *at,
                             const hr_tensor *d) {
  hr_tensor target;
  hr_buffer *buffer;
  int64_t reach;
  target_of(at, NULL, &target);
  bool whole = is_whole(&target, at->bytes);
  if (whole && has_layout_of(d, &target) && hr_buffer_bytes(d->buffer) == at->bytes) {
    hr_buffer_retain(d->buffer);
    return put(adjoints, at, d->buffer, true);
  }
  HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(call->stream), at->bytes, &buffer));
  HR_RETURN_IF_ERROR(put(adjoints, at, buffer, false));
  target.buffer = buffer;
  if (whole) {
    return copy_to(call, d, &target);
  }
  hr_tensor flat = flat_of(at, buffer);
  HR_RETURN_IF_ERROR(fill_zero(call, &flat));
  return is_injective(&target, &reach) ? copy_to(call, d, &target) : add_by_index(call, at, &target, d);
}

/* Before a write in place. */
static hr_status make_own(const hr__function_call *call, const hr__operand *at, hr__adjoint *adjoint) {
  if (!adjoint->is_shared) {
    return HR_OK;
  }
  hr_tensor old = flat_of(at, adjoint->buffer), own = old;
  HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(call->stream), at->bytes, &own.buffer));
  hr_status status = copy_to(call, &old, &own);
  if (status != HR_OK) {
    hr_buffer_release(own.buffer);
    return status;
  }
  hr_buffer_release(adjoint->buffer);
  *adjoint = (hr__adjoint){own.buffer, false};
  return HR_OK;
}

static hr_status add_later(const hr__function_call *call, const hr__operand *at, hr__adjoint *adjoint,
                           const hr_tensor *d) {
  hr_tensor target, sum;
  int64_t reach;
  target_of(at, adjoint->buffer, &target);
  if (is_whole(&target, at->bytes)) {
    hr__copy_tensor(&target, &sum);
    HR_RETURN_IF_ERROR(hr_buffer_create(hr_stream_device(call->stream), at->bytes, &sum.buffer));
    hr_status status = add_to(call, d, &target, &sum);
    if (status != HR_OK) {
      hr_buffer_release(sum.buffer);
      return status;
    }
    hr_buffer_release(adjoint->buffer);
    *adjoint = (hr__adjoint){sum.buffer, false};
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(make_own(call, at, adjoint));
  target.buffer = adjoint->buffer;
  return is_injective(&target, &reach) ? add_to(call, d, &target, &target) : add_by_index(call, at, &target, d);
}

hr_status hr__adjoint_add(hr__adjoints *adjoints, const hr__function_call *call, const hr__operand *at,
                          const hr_tensor *d) {
  hr_tensor folded;
  HR_RETURN_IF_ERROR(fold(call, at, d, &folded));
  HR_RETURN_IF_ERROR(make_real(call, at->view.dtype, &folded));
  hr__adjoint *adjoint = find(adjoints, at);
  hr_status status = adjoint == NULL ? store_first(adjoints, call, at, &folded) : add_later(call, at, adjoint, &folded);
  hr_tensor_release(&folded);
  return status;
}

/* ---- reading ---- */

static hr_status read_whole_or_copy(const hr__function_call *call, const hr__operand *at, hr__adjoint *adjoint,
                                    bool *out_is_whole, hr_tensor *out) {
  hr_tensor view;
  target_of(at, adjoint->buffer, &view);
  *out_is_whole = is_whole(&view, at->bytes);
  for (int d = 0; d < view.rank; ++d) {
    view.dims[d] = at->view.dims[d];
  }
  if (*out_is_whole) {
    hr_buffer_retain(view.buffer);
    adjoint->is_shared = true;
    hr__copy_tensor(&view, out);
    return HR_OK;
  }
  const hr_tensor *inputs[1] = {&view};
  return hr__record_new(call, HR_OP_COPY, NULL, 1, inputs, view.dtype, view.rank, view.dims, out);
}

hr_status hr__adjoint_read(hr__adjoints *adjoints, const hr__function_call *call, const hr__operand *at,
                           hr_tensor *out) {
  bool whole;
  hr__adjoint *adjoint = find(adjoints, at);
  *out = (hr_tensor){0};
  return adjoint == NULL ? HR_OK : read_whole_or_copy(call, at, adjoint, &whole, out);
}

hr_status hr__adjoint_take(hr__adjoints *adjoints, const hr__function_call *call, const hr__operand *at,
                           hr_tensor *out) {
  bool whole;
  hr__adjoint *adjoint = find(adjoints, at);
  *out = (hr_tensor){0};
  if (adjoint == NULL) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(read_whole_or_copy(call, at, adjoint, &whole, out));
  if (whole) {
    drop(adjoints, at);
    return HR_OK;
  }
  hr_status status = make_own(call, at, adjoint);
  if (status == HR_OK) {
    hr_tensor target;
    target_of(at, adjoint->buffer, &target);
    status = fill_zero(call, &target);
  }
  if (status != HR_OK) {
    hr_tensor_release(out);
  }
  return status;
}
