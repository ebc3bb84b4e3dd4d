/* lower_sequence.c: recurrent layers as their steps: for each, the product of the state before it with the weights, and
 * the cell (lower_cell.c).
 *
 *   lstm, at time t   hidden = matmul(h[t - 1], weight^T)            h[t], c[t], workspace[t] = lstm_cell(..)
 *   its gradient      dh = matmul(dgates[t + 1], weight) + dh[t]     dgates[t], dc = lstm_cell_backward(..)
 *
 * Backwards layers (reverse) walk the steps from the last to the first. This defines the operations; on the host a
 * provider (providers/recurrent) runs a whole layer of f32.
 */
#include "core/ops/lower.h"

/* A layer under lowering. */
typedef struct layer {
  hr_builder *b;
  int64_t steps;
  bool is_reverse;
  hr_operand weight;
} layer;

static int64_t time_of(const layer *l, int64_t step) {
  return l->is_reverse ? l->steps - 1 - step : step;
}

/* Step `time` of [T, N, ..]; absent stays absent. */
static hr_operand at_time(const layer *l, hr_operand x, int64_t time) {
  return hr_is_present(x) ? hr_view_remove(l->b, hr_view_slice(l->b, x, 0, time, 1, 1), 0) : x;
}

static hr_operand build_matrix(const layer *l, int64_t rows, int64_t columns, hr_dtype dtype) {
  return hr_build_temp(l->b, dtype, 2, (int64_t[2]){rows, columns});
}

static void emit_matmul(const layer *l, hr_operand out, hr_operand left, hr_operand right, hr_operand addend) {
  hr_emit_node(l->b, HR_OP_MATMUL, hr_is_present(addend) ? 3 : 2, (hr_operand[]){left, right, addend}, 1, &out, 0,
               NULL);
}

/* h * weight^T: the states' part of the gates. */
static hr_operand make_hidden(const layer *l, hr_operand h, int64_t batch) {
  hr_operand out = build_matrix(l, batch, l->weight.dims[0], l->weight.dtype);
  hr_operand transposed = hr_view_permute(l->b, l->weight, (int[2]){1, 0});
  emit_matmul(l, out, h, transposed, (hr_operand){0});
  return out;
}

/* The part of step `time`, or `room` if the results of all steps aren't wanted. */
static hr_operand at_time_or(const layer *l, hr_operand x, int64_t time, hr_operand room) {
  return hr_is_present(x) ? at_time(l, x, time) : room;
}

/* dgates * weight (+ addend): the gradient of the state before a step. */
static hr_operand make_gradient(const layer *l, hr_operand dgates, int64_t batch, hr_operand addend) {
  hr_operand out = build_matrix(l, batch, l->weight.dims[1], l->weight.dtype);
  emit_matmul(l, out, dgates, l->weight, addend);
  return out;
}

static hr_operand make_sum(const layer *l, hr_operand x, hr_operand y) {
  bool are_both = hr_is_present(x) && hr_is_present(y);
  return are_both ? hr_make2(l->b, HR_OP_ADD, x.dtype, x, y) : hr_is_present(x) ? x : y;
}

static void store(const layer *l, hr_operand out, hr_operand value) {
  if (hr_is_present(out)) {
    hr_emit1(l->b, HR_OP_COPY, out, hr_is_present(value) ? value : hr_build_f64(l->b, 0));
  }
}

typedef hr_status (*lower_fn)(hr_builder *b, const hr_node *node);

static hr_status emit_cell(const layer *l, hr_op op, lower_fn lower, int input_count, hr_operand *inputs,
                           int output_count, hr_operand *outputs) {
  hr_node node = {
      .op = op, .input_count = input_count, .inputs = inputs, .output_count = output_count, .outputs = outputs};
  return l->b->status == HR_OK ? lower(l->b, &node) : HR_OK;
}

hr_status hr__lower_lstm(hr_builder *b, const hr_node *node) {
  hr_operand gates = hr_node_input(node, 0), h = hr_node_input(node, 1), c = hr_node_input(node, 2);
  hr_operand states = hr_node_output(node, 0), cells = hr_node_output(node, 1), workspace = hr_node_output(node, 2);
  layer l = {.b = b, .steps = gates.dims[0], .is_reverse = node->ints[0] != 0, .weight = hr_node_input(node, 3)};
  int64_t batch = gates.dims[1], hidden = l.weight.dims[1];
  hr_operand cell = build_matrix(&l, batch, hidden, c.dtype), room = build_matrix(&l, batch, 4 * hidden, c.dtype);
  for (int64_t step = 0; step < l.steps && batch * hidden > 0; ++step) {
    int64_t time = time_of(&l, step);
    hr_operand after = at_time_or(&l, cells, time, cell);
    hr_operand inputs[3] = {at_time(&l, gates, time), make_hidden(&l, h, batch), c};
    hr_operand outputs[3] = {at_time(&l, states, time), after, at_time_or(&l, workspace, time, room)};
    HR_RETURN_IF_ERROR(emit_cell(&l, HR_OP_LSTM_CELL, hr__lower_lstm_cell, 3, inputs, 3, outputs));
    h = outputs[0], c = after;
  }
  store(&l, hr_node_output(node, 3), h);
  store(&l, hr_node_output(node, 4), c);
  return HR_OK;
}

hr_status hr__lower_lstm_backward(hr_builder *b, const hr_node *node) {
  hr_operand by_states = hr_node_input(node, 0), dh = hr_node_input(node, 1), dc = hr_node_input(node, 2);
  hr_operand first = hr_node_input(node, 3), cells = hr_node_input(node, 4), workspace = hr_node_input(node, 5);
  hr_operand dgates = hr_node_output(node, 0);
  layer l = {.b = b, .steps = dgates.dims[0], .is_reverse = node->ints[0] != 0, .weight = hr_node_input(node, 6)};
  int64_t batch = dgates.dims[1], hidden = l.weight.dims[1];
  for (int64_t step = l.steps - 1; step >= 0 && batch * hidden > 0; --step) {
    int64_t time = time_of(&l, step);
    hr_operand by_state = at_time(&l, by_states, time);
    if (step == l.steps - 1) {
      dh = make_sum(&l, by_state, dh);
    } else {
      dh = make_gradient(&l, at_time(&l, dgates, time_of(&l, step + 1)), batch, by_state);
    }
    hr_operand before = step > 0 ? at_time(&l, cells, time_of(&l, step - 1)) : first;
    hr_operand inputs[5] = {dh, dc, before, at_time(&l, cells, time), at_time(&l, workspace, time)};
    hr_operand outputs[2] = {at_time(&l, dgates, time), build_matrix(&l, batch, hidden, first.dtype)};
    HR_RETURN_IF_ERROR(emit_cell(&l, HR_OP_LSTM_CELL_BACKWARD, hr__lower_lstm_cell_backward, 5, inputs, 2, outputs));
    dc = outputs[1];
  }
  if (l.steps > 0 && batch * hidden > 0 && hr_is_present(hr_node_output(node, 1))) {
    dh = make_gradient(&l, at_time(&l, dgates, time_of(&l, 0)), batch, (hr_operand){0});
  }
  store(&l, hr_node_output(node, 1), dh);
  store(&l, hr_node_output(node, 2), dc);
  return HR_OK;
}

hr_status hr__lower_gru(hr_builder *b, const hr_node *node) {
  hr_operand gates = hr_node_input(node, 0), h = hr_node_input(node, 1), bias = hr_node_input(node, 3);
  hr_operand states = hr_node_output(node, 0), workspace = hr_node_output(node, 1);
  layer l = {.b = b, .steps = gates.dims[0], .is_reverse = node->ints[0] != 0, .weight = hr_node_input(node, 2)};
  int64_t batch = gates.dims[1], hidden = l.weight.dims[1];
  hr_operand room = build_matrix(&l, batch, 5 * hidden, h.dtype);
  for (int64_t step = 0; step < l.steps && batch * hidden > 0; ++step) {
    int64_t time = time_of(&l, step);
    hr_operand inputs[5] = {at_time(&l, gates, time), make_hidden(&l, h, batch), h, {0}, bias};
    hr_operand outputs[2] = {at_time(&l, states, time), at_time_or(&l, workspace, time, room)};
    HR_RETURN_IF_ERROR(emit_cell(&l, HR_OP_GRU_CELL, hr__lower_gru_cell, 5, inputs, 2, outputs));
    h = outputs[0];
  }
  store(&l, hr_node_output(node, 2), h);
  return HR_OK;
}

hr_status hr__lower_gru_backward(hr_builder *b, const hr_node *node) {
  hr_operand by_states = hr_node_input(node, 0), dh = hr_node_input(node, 1), workspace = hr_node_input(node, 2);
  hr_operand dinput = hr_node_output(node, 0), dhidden = hr_node_output(node, 1);
  layer l = {.b = b, .steps = dinput.dims[0], .is_reverse = node->ints[0] != 0, .weight = hr_node_input(node, 3)};
  int64_t batch = dinput.dims[1], hidden = l.weight.dims[1];
  for (int64_t step = l.steps - 1; step >= 0 && batch * hidden > 0; --step) {
    int64_t time = time_of(&l, step);
    hr_operand total = make_sum(&l, at_time(&l, by_states, time), dh);
    if (!hr_is_present(total)) {
      total = build_matrix(&l, batch, hidden, workspace.dtype);
      store(&l, total, (hr_operand){0});
    }
    hr_operand through = build_matrix(&l, batch, hidden, workspace.dtype);
    hr_operand inputs[2] = {total, at_time(&l, workspace, time)};
    hr_operand outputs[3] = {at_time(&l, dinput, time), at_time(&l, dhidden, time), through};
    HR_RETURN_IF_ERROR(emit_cell(&l, HR_OP_GRU_CELL_BACKWARD, hr__lower_gru_cell_backward, 2, inputs, 3, outputs));
    if (step > 0 || hr_is_present(hr_node_output(node, 2))) {
      dh = make_gradient(&l, outputs[1], batch, through);
    }
  }
  store(&l, hr_node_output(node, 2), dh);
  return HR_OK;
}
