/* vmap_fold.c: rows with a dim that counts images, samples or heads: the examples are folded into it.
 *
 *   conv of x [2, 3, 9, 9] and w, 32 examples   becomes   conv of X [64, 3, 9, 9] and w
 *
 * It is dim 0, or dim 1 behind the steps of a recurrent layer. An operand whose examples are not evenly spaced with
 * this dim is copied: an input before the record, an output behind it.
 */
#include "transform/vmap_record.h"

enum { OPERANDS_MAX = 12 };

/* An operand as the row gets it. */
typedef struct folded {
  hr__lifted lifted;
  int at;               /* the dim of the examples before they were folded */
  hr_buffer *temporary; /* NULL, or the copy that the view is of */
} folded;

/* ---- operands that fit ---- */

/* A mask of [B, H, L, S], broadcast. */
static bool is_mask_ready(const hr__operand_of_all *x, int64_t size) {
  bool is_whole = x->view.rank == 4 && x->view.dims[0] == size;
  return x->is_mapped ? is_whole : x->view.rank < 4 || x->view.dims[0] == 1;
}

static bool fits(const hr__record_of_all *r, const hr__operand_of_all *x, char letter) {
  if (hr__is_absent(x)) {
    return x->view.scalar == NULL;
  }
  switch (letter) {
    case 's':
      return !x->is_mapped;
    case 'f':
      return x->view.rank > 0;
    case 't':
      return x->view.rank > 1;
    case 'm':
      return is_mask_ready(x, r->inputs[0].view.dims[0]);
    default:
      return letter == 'l';
  }
}

static bool fit(const hr__record_of_all *r, int count, const hr__operand_of_all *operands, const char *letters) {
  for (int i = 0; i < count; ++i) {
    if (letters[i] == '\0' || !fits(r, &operands[i], letters[i])) {
      return false;
    }
  }
  return true;
}

/* ---- folding ---- */

bool hr__is_even(const hr__record_of_all *r, const hr__operand_of_all *x, int at) {
  return r->vmap->size <= 1 || x->view.dims[at] == 1 || x->stride == x->view.dims[at] * x->view.strides[at];
}

/* The examples as dim `at`. */
static void lift_at(const hr__record_of_all *r, const hr__operand_of_all *x, int at, hr__lifted *out) {
  hr__lift(r, x, x->view.rank, out);
  hr__move_examples(out, at);
}

/* The view of all examples with dims `at` and the next one as one, which are evenly spaced. */
static void join_dims(hr__lifted *x, int at) {
  int64_t stride = x->dims[at + 1] == 1 ? x->strides[at] : x->strides[at + 1];
  x->dims[at + 1] *= x->dims[at], x->strides[at + 1] = stride;
  for (int d = at; d < x->view.rank - 1; ++d) {
    x->dims[d] = x->dims[d + 1], x->strides[d] = x->strides[d + 1];
  }
  --x->view.rank;
}

/* Row-major memory for the view's elements. */
static hr_status create_temporary(const hr__record_of_all *r, hr__lifted *x, hr_buffer **out_buffer) {
  int64_t count = 1;
  for (int d = x->view.rank - 1; d >= 0; --d) {
    x->strides[d] = count;
    count *= x->dims[d];
  }
  x->view.offset = 0;
  HR_RETURN_IF_ERROR(
      hr_buffer_create(hr_stream_device(r->vmap->stream), (size_t)count * hr_dtype_size(x->view.dtype), out_buffer));
  x->view.buffer = *out_buffer;
  return HR_OK;
}

static hr_status copy_input(const hr__record_of_all *r, const hr__operand_of_all *x, const folded *to) {
  hr__lifted from;
  lift_at(r, x, to->at, &from);
  return hr__pass(r, HR_OP_COPY, NULL, 1, &from.view, 1, &to->lifted.view);
}

static hr_status fold(const hr__record_of_all *r, const hr__operand_of_all *x, bool is_input, folded *out) {
  lift_at(r, x, out->at, &out->lifted);
  if (!hr__is_even(r, x, out->at)) {
    HR_RETURN_IF_ERROR(create_temporary(r, &out->lifted, &out->temporary));
    HR_RETURN_IF_ERROR(is_input ? copy_input(r, x, out) : HR_OK);
  }
  join_dims(&out->lifted, out->at);
  return HR_OK;
}

/* The elements of an output that was written elsewhere. */
static hr_status copy_output(const hr__record_of_all *r, const hr__operand_of_all *x, const folded *from) {
  hr__lifted to, source;
  lift_at(r, x, from->at, &to);
  lift_at(r, x, from->at, &source);
  int64_t stride = 1;
  for (int d = source.view.rank - 1; d >= 0; --d) {
    source.strides[d] = stride;
    stride *= source.dims[d];
  }
  source.view.buffer = from->temporary, source.view.offset = 0;
  return hr__pass(r, HR_OP_COPY, NULL, 1, &source.view, 1, &to.view);
}

static hr_status prepare(const hr__record_of_all *r, const hr__operand_of_all *x, char letter, bool is_input,
                         folded *out, hr_view *view) {
  *view = x->view;
  bool is_folded = letter == 'f' || letter == 't' || (letter == 'm' && x->is_mapped);
  out->at = letter == 't' ? 1 : 0;
  if (hr__is_absent(x) || (letter != 'l' && !is_folded)) {
    return HR_OK;
  }
  if (is_folded) {
    HR_RETURN_IF_ERROR(fold(r, x, is_input, out));
  } else {
    hr__lift(r, x, x->view.rank, &out->lifted);
  }
  *view = out->lifted.view;
  return HR_OK;
}

static hr_status record_on(const hr__record_of_all *r, const char *inputs, const char *outputs, folded *operands) {
  hr_view views[OPERANDS_MAX];
  for (int i = 0; i < r->input_count; ++i) {
    HR_RETURN_IF_ERROR(prepare(r, &r->inputs[i], inputs[i], true, &operands[i], &views[i]));
  }
  folded *results = operands + r->input_count;
  for (int i = 0; i < r->output_count; ++i) {
    HR_RETURN_IF_ERROR(prepare(r, &r->outputs[i], outputs[i], false, &results[i], &views[r->input_count + i]));
  }
  HR_RETURN_IF_ERROR(hr__pass_all(r, r->attrs, views));
  for (int i = 0; i < r->output_count; ++i) {
    HR_RETURN_IF_ERROR(results[i].temporary != NULL ? copy_output(r, &r->outputs[i], &results[i]) : HR_OK);
  }
  return HR_OK;
}

/* Numbers of random rows count elements from the first one of a record. */
static bool is_random(const hr__record_of_all *r) {
  return (r->op == HR_OP_ATTENTION || r->op == HR_OP_ATTENTION_BACKWARD) && r->attrs->scalar_count > 3;
}

hr_status hr__record_folded(const hr__record_of_all *r, const char *inputs, const char *outputs, bool *out_is_done) {
  folded operands[OPERANDS_MAX] = {0};
  int count = r->input_count + r->output_count;
  *out_is_done = count <= OPERANDS_MAX && !is_random(r) && fit(r, r->input_count, r->inputs, inputs) &&
                 fit(r, r->output_count, r->outputs, outputs);
  if (!*out_is_done) {
    return HR_OK;
  }
  hr_status status = record_on(r, inputs, outputs, operands);
  for (int i = 0; i < count; ++i) {
    hr_buffer_release(operands[i].temporary);
  }
  return status;
}
