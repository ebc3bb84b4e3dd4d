/* broadcasts.c: functions with as many results as inputs or slices, which are views. */
#include "functional/functions.h"

/* Releases the first results of a call that fails. */
static hr_status give_up(const hr__function_call *c, int count, hr_status status) {
  for (int i = 0; i < count; ++i) {
    hr_tensor_release(&c->output[i]);
  }
  return status;
}

/* The dims to which all inputs can be broadcast, if they can be. */
static int common_dims(const hr__function_call *c, int64_t *dims) {
  int rank = 0;
  for (int i = 0; i < c->input_count; ++i) {
    rank = c->inputs[i]->rank > rank ? c->inputs[i]->rank : rank;
  }
  for (int d = 0; d < rank; ++d) {
    dims[d] = 1;
    for (int i = 0; i < c->input_count; ++i) {
      int at = d - (rank - c->inputs[i]->rank);
      dims[d] = at >= 0 && c->inputs[i]->dims[at] != 1 ? c->inputs[i]->dims[at] : dims[d];
    }
  }
  return rank;
}

hr_status hr__emit_broadcast_arrays(const hr__function_call *c) {
  int64_t dims[HR_RANK_MAX];
  int rank = common_dims(c, dims);
  for (int i = 0; i < c->input_count; ++i) {
    hr_tensor ignored; /* inputs of results that are left out have to fit, too */
    hr_tensor *out = i < c->output_count ? &c->output[i] : &ignored;
    hr_status status = hr__broadcast(c, c->inputs[i], rank, dims, out);
    if (status != HR_OK) {
      return give_up(c, i < c->output_count ? i : c->output_count, status);
    }
    if (out == &ignored) {
      hr_tensor_release(&ignored);
    }
  }
  return HR_OK;
}

/* The dim of the grid along which input i changes: the first two are swapped for "xy". */
static int grid_dim(const hr__function_call *c, int i, int is_ij) {
  return is_ij == 0 && i < 2 && c->input_count > 1 ? 1 - i : i;
}

hr_status hr__emit_meshgrid(const hr__function_call *c) {
  static const char *const words[] = {"xy", "ij"};
  int64_t dims[HR_RANK_MAX];
  int is_ij, rank = c->input_count;
  HR_RETURN_IF_ERROR(hr__word_attribute(c, 0, 2, words, &is_ij));
  if (rank > HR_RANK_MAX) {
    return HR__CALL_FAIL(c, "%d inputs, expected at most %d", rank, HR_RANK_MAX);
  }
  for (int i = 0; i < rank; ++i) {
    const hr_tensor *x = c->inputs[i];
    if (x->rank > 1) {
      return HR__CALL_FAIL(c, "input %d has %d dims, expected at most 1", i, x->rank);
    }
    dims[grid_dim(c, i, is_ij)] = x->rank == 1 ? x->dims[0] : 1;
  }
  for (int i = 0; i < c->output_count; ++i) {
    const hr_tensor *x = c->inputs[i];
    hr_tensor *out = &c->output[i];
    hr__view_like(x, out);
    out->rank = rank;
    for (int d = 0; d < rank; ++d) {
      out->dims[d] = dims[d];
      out->strides[d] = d == grid_dim(c, i, is_ij) && x->rank == 1 ? x->strides[0] : 0;
    }
  }
  return HR_OK;
}

hr_status hr__emit_unstack(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  int axis;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, 0), x->rank, &axis));
  for (int i = 0; i < c->output_count; ++i) {
    hr_tensor *out = &c->output[i];
    hr__view_like(x, out);
    out->offset += i * x->strides[axis];
    hr__drop_dims(out, 1u << axis);
  }
  return HR_OK;
}

/* ---- parts ---- */

enum { AXIS, SECTIONS, INDICES };

hr_status hr__count_parts(const hr__function_call *c, int *out_count) {
  const hr_attribute *indices = hr__given_attribute(c, INDICES);
  int64_t sections = hr__int_attribute(c, SECTIONS);
  if ((indices != NULL) == (hr__given_attribute(c, SECTIONS) != NULL)) {
    return HR__CALL_FAIL(c, "%s, expected one of both",
                         indices != NULL ? "sections and indices" : "neither sections nor indices");
  }
  if (indices == NULL && (sections < 1 || sections > INT32_MAX)) {
    return HR__CALL_FAIL(c, "%lld sections, expected 1 to %d", (long long)sections, INT32_MAX);
  }
  *out_count = indices == NULL ? (int)sections : indices->count < INT32_MAX ? indices->count + 1 : INT32_MAX;
  return HR_OK;
}

/* The begin of part `i` of `count`; that of part `count` is the end. */
static int64_t part_begin(const hr__function_call *c, int64_t size, int i, int64_t count) {
  const hr_attribute *indices = hr__given_attribute(c, INDICES);
  if (indices == NULL) {
    return i * (size / count) + (i < size % count ? i : size % count);
  }
  if (i == 0 || i > indices->count) {
    return i == 0 ? 0 : size;
  }
  int64_t at = indices->value.ints[i - 1];
  at += at < 0 ? size : 0;
  return at < 0 ? 0 : at < size ? at : size;
}

hr_status hr__emit_array_split(const hr__function_call *c) {
  const hr_tensor *x = c->inputs[0];
  int axis, count;
  HR_RETURN_IF_ERROR(hr__check_axis(c, hr__int_attribute(c, AXIS), x->rank, &axis));
  HR_RETURN_IF_ERROR(hr__count_parts(c, &count));
  for (int i = 0; i < c->output_count; ++i) {
    int64_t begin = part_begin(c, x->dims[axis], i, count), end = part_begin(c, x->dims[axis], i + 1, count);
    hr_tensor *out = &c->output[i];
    hr__view_like(x, out);
    out->offset += end > begin ? begin * x->strides[axis] : 0;
    out->dims[axis] = end > begin ? end - begin : 0;
  }
  return HR_OK;
}
