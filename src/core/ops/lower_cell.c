/* Lowerings of recurrent cells, in the arithmetic of torch's fused cells: one chain of loops over [N, H].
 *
 * The gates' products with the weights are inputs ([N, G * H], one block of H columns for each gate); the rest is
 * element-wise. float16 and bfloat16 cells compute in f32 and round their outputs once.
 *
 *   LSTM, gates i f g o   c' = f * c + i * g       h = o * tanh(c')
 *   GRU,  gates r z n     n = tanh(xn + r * hn)    h' = n + z * (h - n)
 */
#include "core/ops/lower.h"

/* State of a cell's lowering: `hidden` is H; temporaries have `dtype` and the dims of `like` [N, H]. */
typedef struct cell {
  hr_builder *b;
  hr_operand like;
  hr_dtype dtype;
  int64_t hidden;
} cell;

static cell cell_of(hr_builder *b, hr_operand like) {
  return (cell){.b = b, .like = like, .dtype = hr__wide(like.dtype), .hidden = like.dims[like.rank - 1]};
}

/* Block `gate` of the last dim. */
static hr_operand gate_of(const cell *c, hr_operand gates, int gate) {
  return hr_is_present(gates) ? hr_view_slice(c->b, gates, gates.rank - 1, gate * c->hidden, c->hidden, 1) : gates;
}

static hr_operand apply(const cell *c, hr_op op, int count, const hr_operand *inputs) {
  hr_operand out = hr_build_temp_like(c->b, c->like, c->dtype);
  hr_emit(c->b, op, out, count, inputs);
  return out;
}
static hr_operand apply1(const cell *c, hr_op op, hr_operand x) {
  return apply(c, op, 1, &x);
}
static hr_operand apply2(const cell *c, hr_op op, hr_operand x, hr_operand y) {
  return apply(c, op, 2, (hr_operand[]){x, y});
}

/* x + y where y may be absent. */
static hr_operand add_optional(const cell *c, hr_operand x, hr_operand y) {
  return hr_is_present(y) ? apply2(c, HR_OP_ADD, x, y) : x;
}

static void store(const cell *c, hr_operand out, hr_operand value) {
  if (hr_is_present(out)) {
    hr_emit1(c->b, HR_OP_COPY, out, value);
  }
}

/* The result of `op`, also stored to `out` (which may be absent). The returned value is not rounded to out's dtype. */
static hr_operand apply_to(const cell *c, hr_operand out, hr_op op, int count, const hr_operand *inputs) {
  if (hr_is_present(out) && out.dtype == c->dtype) {
    hr_emit(c->b, op, out, count, inputs);
    return out;
  }
  hr_operand value = apply(c, op, count, inputs);
  store(c, out, value);
  return value;
}

/* Gate before its activation: input part + hidden part + both biases, in this order. */
static hr_operand gate_sum(const cell *c, const hr_node *node, int gate) {
  hr_operand sum =
      apply2(c, HR_OP_ADD, gate_of(c, hr_node_input(node, 0), gate), gate_of(c, hr_node_input(node, 1), gate));
  sum = add_optional(c, sum, gate_of(c, hr_node_input(node, 3), gate));
  return add_optional(c, sum, gate_of(c, hr_node_input(node, 4), gate));
}

hr_status hr__lower_lstm_cell(hr_builder *b, const hr_node *node) {
  hr_operand before = hr_node_input(node, 2), workspace = hr_node_output(node, 2);
  cell c = cell_of(b, before);
  hr_operand gate[4];
  for (int g = 0; g < 4; ++g) {
    hr_operand sum = gate_sum(&c, node, g);
    gate[g] = apply_to(&c, gate_of(&c, workspace, g), g == 2 ? HR_OP_TANH : HR_OP_SIGMOID, 1, &sum);
  }
  hr_operand inputs[4] = {before, gate[2], gate[1], gate[0]};
  hr_operand after = apply_to(&c, hr_node_output(node, 1), HR_OP_SCALE_ADD, 4, inputs);
  hr_emit2(b, HR_OP_MUL, hr_node_output(node, 0), gate[3], apply1(&c, HR_OP_TANH, after));
  return HR_OK;
}

hr_status hr__lower_lstm_cell_backward(hr_builder *b, const hr_node *node) {
  hr_operand dh = hr_node_input(node, 0), dc = hr_node_input(node, 1), before = hr_node_input(node, 2);
  hr_operand after = hr_node_input(node, 3), workspace = hr_node_input(node, 4), dgates = hr_node_output(node, 0);
  cell c = cell_of(b, before);
  hr_operand i = gate_of(&c, workspace, 0), f = gate_of(&c, workspace, 1);
  hr_operand g = gate_of(&c, workspace, 2), o = gate_of(&c, workspace, 3);
  hr_operand total = hr_is_present(dc) ? dc : hr_build_f64(b, 0); /* gradient of the new cell state */
  if (hr_is_present(dh)) {
    hr_operand t = apply1(&c, HR_OP_TANH, after);
    hr_emit2(b, HR_OP_SIGMOID_BACKWARD, gate_of(&c, dgates, 3), apply2(&c, HR_OP_MUL, dh, t), o);
    total = apply2(&c, HR_OP_TANH_BACKWARD, apply2(&c, HR_OP_MUL, dh, o), t);
    total = add_optional(&c, total, dc);
  } else {
    hr_emit1(b, HR_OP_COPY, gate_of(&c, dgates, 3), hr_build_f64(b, 0));
  }
  hr_emit2(b, HR_OP_SIGMOID_BACKWARD, gate_of(&c, dgates, 0), apply2(&c, HR_OP_MUL, total, g), i);
  hr_emit2(b, HR_OP_SIGMOID_BACKWARD, gate_of(&c, dgates, 1), apply2(&c, HR_OP_MUL, total, before), f);
  hr_emit2(b, HR_OP_TANH_BACKWARD, gate_of(&c, dgates, 2), apply2(&c, HR_OP_MUL, total, i), g);
  if (hr_is_present(hr_node_output(node, 1))) {
    hr_emit2(b, HR_OP_MUL, hr_node_output(node, 1), total, f);
  }
  return HR_OK;
}

hr_status hr__lower_gru_cell(hr_builder *b, const hr_node *node) {
  hr_operand h = hr_node_input(node, 2), workspace = hr_node_output(node, 1);
  cell c = cell_of(b, h);
  hr_operand gate[2]; /* r, z */
  for (int g = 0; g < 2; ++g) {
    hr_operand sum = gate_sum(&c, node, g);
    gate[g] = apply_to(&c, gate_of(&c, workspace, g), HR_OP_SIGMOID, 1, &sum);
  }
  hr_operand hidden = gate_of(&c, hr_node_input(node, 1), 2), input = gate_of(&c, hr_node_input(node, 0), 2);
  hidden = add_optional(&c, hidden, gate_of(&c, hr_node_input(node, 4), 2));
  input = add_optional(&c, input, gate_of(&c, hr_node_input(node, 3), 2));
  hr_operand sum = apply2(&c, HR_OP_ADD, input, apply2(&c, HR_OP_MUL, gate[0], hidden));
  hr_operand n = apply_to(&c, gate_of(&c, workspace, 2), HR_OP_TANH, 1, &sum);
  store(&c, gate_of(&c, workspace, 3), h);
  store(&c, gate_of(&c, workspace, 4), hidden);
  hr_operand moved = apply2(&c, HR_OP_MUL, gate[1], apply2(&c, HR_OP_SUB, h, n));
  hr_emit2(b, HR_OP_ADD, hr_node_output(node, 0), n, moved);
  return HR_OK;
}

hr_status hr__lower_gru_cell_backward(hr_builder *b, const hr_node *node) {
  hr_operand dh = hr_node_input(node, 0), workspace = hr_node_input(node, 1);
  hr_operand dinput = hr_node_output(node, 0), dhidden = hr_node_output(node, 1);
  cell c = cell_of(b, dh);
  hr_operand r = gate_of(&c, workspace, 0), z = gate_of(&c, workspace, 1), n = gate_of(&c, workspace, 2);
  hr_operand h = gate_of(&c, workspace, 3), hidden = gate_of(&c, workspace, 4);
  hr_operand dz = apply2(&c, HR_OP_MUL, dh, apply2(&c, HR_OP_SUB, h, n));
  dz = apply_to(&c, gate_of(&c, dinput, 1), HR_OP_SIGMOID_BACKWARD, 2, (hr_operand[]){dz, z});
  hr_operand dn = apply2(&c, HR_OP_MUL, dh, apply2(&c, HR_OP_SUB, hr_build_f64(b, 1), z));
  dn = apply_to(&c, gate_of(&c, dinput, 2), HR_OP_TANH_BACKWARD, 2, (hr_operand[]){dn, n});
  hr_operand dr = apply2(&c, HR_OP_MUL, dn, hidden);
  dr = apply_to(&c, gate_of(&c, dinput, 0), HR_OP_SIGMOID_BACKWARD, 2, (hr_operand[]){dr, r});
  store(&c, gate_of(&c, dhidden, 0), dr);
  store(&c, gate_of(&c, dhidden, 1), dz);
  hr_emit2(b, HR_OP_MUL, gate_of(&c, dhidden, 2), dn, r);
  if (hr_is_present(hr_node_output(node, 2))) {
    hr_emit2(b, HR_OP_MUL, hr_node_output(node, 2), dh, z);
  }
  return HR_OK;
}
