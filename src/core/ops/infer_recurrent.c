/* infer_recurrent.c: rules of recurrent cells and layers (infer.h). */
#include "core/ops/infer.h"

typedef hr__checked checked;

/* ---- cells ---- */

/* `view` is [N, count * H] for like = [N, H]. */
static hr_status want_gates(const checked *c, const char *what, const hr_view *view, const hr_view *like,
                            int64_t count) {
  int64_t dims[2] = {like->dims[0], count * like->dims[1]};
  return hr__want_dims(c, what, view, 2, dims);
}

static hr_status give_gates(const checked *c, int i, const char *what, hr_dtype dtype, const hr_view *like,
                            int64_t count) {
  return hr__give(c, i, what, dtype, 2, (int64_t[2]){like->dims[0], count * like->dims[1]});
}

hr_status hr__infer_lstm_cell(const checked *c) {
  const hr_view *before = hr__checked_input(c, 2);
  HR_RETURN_IF_ERROR(hr__want_rank(c, "c", before, 2, 2));
  HR_RETURN_IF_ERROR(want_gates(c, "the input gates", hr__checked_input(c, 0), before, 4));
  HR_RETURN_IF_ERROR(want_gates(c, "the hidden gates", hr__checked_input(c, 1), before, 4));
  HR_RETURN_IF_ERROR(hr__want_vector(c, "the input bias", hr__checked_input(c, 3), 4 * before->dims[1]));
  HR_RETURN_IF_ERROR(hr__want_vector(c, "the hidden bias", hr__checked_input(c, 4), 4 * before->dims[1]));
  HR_RETURN_IF_ERROR(hr__give_like(c, 0, "h", before->dtype, before));
  HR_RETURN_IF_ERROR(hr__give_like(c, 1, "the new c", before->dtype, before));
  return give_gates(c, 2, "the workspace", before->dtype, before, 4);
}

hr_status hr__infer_lstm_cell_backward(const checked *c) {
  const hr_view *before = hr__checked_input(c, 2);
  HR_RETURN_IF_ERROR(hr__want_rank(c, "c", before, 2, 2));
  HR_RETURN_IF_ERROR(hr__want_like(c, "dh", hr__checked_input(c, 0), before));
  HR_RETURN_IF_ERROR(hr__want_like(c, "dc", hr__checked_input(c, 1), before));
  HR_RETURN_IF_ERROR(hr__want_like(c, "the new c", hr__checked_input(c, 3), before));
  HR_RETURN_IF_ERROR(want_gates(c, "the workspace", hr__checked_input(c, 4), before, 4));
  HR_RETURN_IF_ERROR(give_gates(c, 0, "dgates", before->dtype, before, 4));
  return hr__give_like(c, 1, "the gradient of c", before->dtype, before);
}

hr_status hr__infer_gru_cell(const checked *c) {
  const hr_view *before = hr__checked_input(c, 2);
  HR_RETURN_IF_ERROR(hr__want_rank(c, "h", before, 2, 2));
  HR_RETURN_IF_ERROR(want_gates(c, "the input gates", hr__checked_input(c, 0), before, 3));
  HR_RETURN_IF_ERROR(want_gates(c, "the hidden gates", hr__checked_input(c, 1), before, 3));
  HR_RETURN_IF_ERROR(hr__want_vector(c, "the input bias", hr__checked_input(c, 3), 3 * before->dims[1]));
  HR_RETURN_IF_ERROR(hr__want_vector(c, "the hidden bias", hr__checked_input(c, 4), 3 * before->dims[1]));
  HR_RETURN_IF_ERROR(hr__give_like(c, 0, "the new h", before->dtype, before));
  return give_gates(c, 1, "the workspace", before->dtype, before, 5);
}

hr_status hr__infer_gru_cell_backward(const checked *c) {
  const hr_view *dh = hr__checked_input(c, 0);
  HR_RETURN_IF_ERROR(hr__want_rank(c, "dh", dh, 2, 2));
  HR_RETURN_IF_ERROR(want_gates(c, "the workspace", hr__checked_input(c, 1), dh, 5));
  HR_RETURN_IF_ERROR(give_gates(c, 0, "the gradient of the input gates", dh->dtype, dh, 3));
  HR_RETURN_IF_ERROR(give_gates(c, 1, "the gradient of the hidden gates", dh->dtype, dh, 3));
  return hr__give_like(c, 2, "the gradient of h", dh->dtype, dh);
}

/* ---- layers ---- */

/* The dims of a layer: `steps` and `batch` are those of `view` [T, N, ..]. */
typedef struct layer {
  const checked *c;
  int64_t steps, batch, hidden;
} layer;

static hr_status want_layer(const checked *c, const char *what, const hr_view *view, int64_t hidden, layer *out) {
  HR_RETURN_IF_ERROR(hr__want_rank(c, what, view, 3, 3));
  *out = (layer){.c = c, .steps = view->dims[0], .batch = view->dims[1], .hidden = hidden};
  return HR_OK;
}

/* Absent, or [T, N, count * H]. */
static hr_status want_steps(const layer *l, const char *what, const hr_view *view, int64_t count) {
  return hr__want_dims(l->c, what, view, 3, (int64_t[3]){l->steps, l->batch, count * l->hidden});
}
static hr_status give_steps(const layer *l, int i, const char *what, hr_dtype dtype, int64_t count) {
  return hr__give(l->c, i, what, dtype, 3, (int64_t[3]){l->steps, l->batch, count * l->hidden});
}

/* Absent, or [N, H]. */
static hr_status want_state(const layer *l, const char *what, const hr_view *view) {
  return hr__want_dims(l->c, what, view, 2, (int64_t[2]){l->batch, l->hidden});
}
static hr_status give_state(const layer *l, int i, const char *what, hr_dtype dtype) {
  return hr__give(l->c, i, what, dtype, 2, (int64_t[2]){l->batch, l->hidden});
}

static hr_status want_weight(const layer *l, const hr_view *weight, int64_t gates) {
  return hr__want_dims(l->c, "the weight", weight, 2, (int64_t[2]){gates * l->hidden, l->hidden});
}

/* H, by a state or a weight. */
static hr_status read_hidden(const checked *c, const char *what, int input, int64_t *out_hidden) {
  const hr_view *view = hr__checked_input(c, input);
  HR_RETURN_IF_ERROR(hr__want_rank(c, what, view, 2, 2));
  *out_hidden = view->dims[1];
  return HR_OK;
}

hr_status hr__infer_lstm(const checked *c) {
  layer l;
  int64_t hidden;
  hr_dtype dtype = hr__dtype_of(hr__checked_input(c, 1));
  HR_RETURN_IF_ERROR(read_hidden(c, "h", 1, &hidden));
  HR_RETURN_IF_ERROR(want_layer(c, "the input gates", hr__checked_input(c, 0), hidden, &l));
  HR_RETURN_IF_ERROR(want_steps(&l, "the input gates", hr__checked_input(c, 0), 4));
  HR_RETURN_IF_ERROR(want_state(&l, "h", hr__checked_input(c, 1)));
  HR_RETURN_IF_ERROR(want_state(&l, "c", hr__checked_input(c, 2)));
  HR_RETURN_IF_ERROR(want_weight(&l, hr__checked_input(c, 3), 4));
  HR_RETURN_IF_ERROR(give_steps(&l, 0, "h of all steps", dtype, 1));
  HR_RETURN_IF_ERROR(give_steps(&l, 1, "c of all steps", dtype, 1));
  HR_RETURN_IF_ERROR(give_steps(&l, 2, "the workspace", dtype, 4));
  HR_RETURN_IF_ERROR(give_state(&l, 3, "the last h", dtype));
  return give_state(&l, 4, "the last c", dtype);
}

hr_status hr__infer_lstm_backward(const checked *c) {
  layer l;
  int64_t hidden;
  hr_dtype dtype = hr__dtype_of(hr__checked_input(c, 3));
  HR_RETURN_IF_ERROR(read_hidden(c, "c before", 3, &hidden));
  HR_RETURN_IF_ERROR(want_layer(c, "the workspace", hr__checked_input(c, 5), hidden, &l));
  HR_RETURN_IF_ERROR(want_steps(&l, "the workspace", hr__checked_input(c, 5), 4));
  HR_RETURN_IF_ERROR(want_steps(&l, "dh", hr__checked_input(c, 0), 1));
  HR_RETURN_IF_ERROR(want_state(&l, "the gradient of the last h", hr__checked_input(c, 1)));
  HR_RETURN_IF_ERROR(want_state(&l, "the gradient of the last c", hr__checked_input(c, 2)));
  HR_RETURN_IF_ERROR(want_state(&l, "c before", hr__checked_input(c, 3)));
  HR_RETURN_IF_ERROR(want_steps(&l, "c", hr__checked_input(c, 4), 1));
  HR_RETURN_IF_ERROR(want_weight(&l, hr__checked_input(c, 6), 4));
  HR_RETURN_IF_ERROR(give_steps(&l, 0, "dgates", dtype, 4));
  HR_RETURN_IF_ERROR(give_state(&l, 1, "the gradient of h before", dtype));
  return give_state(&l, 2, "the gradient of c before", dtype);
}

hr_status hr__infer_gru(const checked *c) {
  layer l;
  int64_t hidden;
  hr_dtype dtype = hr__dtype_of(hr__checked_input(c, 1));
  HR_RETURN_IF_ERROR(read_hidden(c, "h", 1, &hidden));
  HR_RETURN_IF_ERROR(want_layer(c, "the input gates", hr__checked_input(c, 0), hidden, &l));
  HR_RETURN_IF_ERROR(want_steps(&l, "the input gates", hr__checked_input(c, 0), 3));
  HR_RETURN_IF_ERROR(want_state(&l, "h", hr__checked_input(c, 1)));
  HR_RETURN_IF_ERROR(want_weight(&l, hr__checked_input(c, 2), 3));
  HR_RETURN_IF_ERROR(hr__want_vector(c, "the hidden bias", hr__checked_input(c, 3), 3 * hidden));
  HR_RETURN_IF_ERROR(give_steps(&l, 0, "h of all steps", dtype, 1));
  HR_RETURN_IF_ERROR(give_steps(&l, 1, "the workspace", dtype, 5));
  return give_state(&l, 2, "the last h", dtype);
}

hr_status hr__infer_gru_backward(const checked *c) {
  layer l;
  int64_t hidden;
  hr_dtype dtype = hr__dtype_of(hr__checked_input(c, 2));
  HR_RETURN_IF_ERROR(read_hidden(c, "the weight", 3, &hidden));
  HR_RETURN_IF_ERROR(want_layer(c, "the workspace", hr__checked_input(c, 2), hidden, &l));
  HR_RETURN_IF_ERROR(want_steps(&l, "the workspace", hr__checked_input(c, 2), 5));
  HR_RETURN_IF_ERROR(want_weight(&l, hr__checked_input(c, 3), 3));
  HR_RETURN_IF_ERROR(want_steps(&l, "dh", hr__checked_input(c, 0), 1));
  HR_RETURN_IF_ERROR(want_state(&l, "the gradient of the last h", hr__checked_input(c, 1)));
  HR_RETURN_IF_ERROR(give_steps(&l, 0, "the gradient of the input gates", dtype, 3));
  HR_RETURN_IF_ERROR(give_steps(&l, 1, "the gradient of the hidden gates", dtype, 3));
  return give_state(&l, 2, "the gradient of h before", dtype);
}
