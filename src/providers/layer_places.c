/* layer_places.c: see layer_places.h. */
#include "providers/layer_places.h"

enum { OPERANDS = 12 };

typedef struct form {
  hr_op op;
  int input_count, output_count;
  hr__role roles[OPERANDS]; /* of the inputs, then the outputs */
} form;

static const form forms[] = {
    {HR_OP_LSTM, 4, 5, {GATES, H0, C0, WEIGHT, STATES, CELLS, WORKSPACE, LAST_H, LAST_C}},
    {HR_OP_LSTM_BACKWARD, 7, 3, {BY_STATES, BY_LAST_H, BY_LAST_C, C0, CELLS, WORKSPACE, WEIGHT, DGATES, DH0, DC0}},
    {HR_OP_GRU, 4, 3, {GATES, H0, WEIGHT, BIAS, STATES, WORKSPACE, LAST_H}},
    {HR_OP_GRU_BACKWARD, 4, 3, {BY_STATES, BY_LAST_H, WORKSPACE, WEIGHT, DGATES, DHIDDEN, DH0}},
};

static const form *form_of(hr_op op) {
  for (size_t i = 0; i < sizeof forms / sizeof *forms; ++i) {
    if (forms[i].op == op) {
      return &forms[i];
    }
  }
  return NULL;
}

bool hr__is_layer(hr_op op) {
  return form_of(op) != NULL;
}

static bool has_any_columns(hr__role role) {
  return role == WEIGHT || role == BY_STATES || role == BY_LAST_H || role == BY_LAST_C;
}

/* Strides of [T, N, columns], [N, columns] or [columns]; false for an operand that isn't supported. */
static bool find_place(const hr_operand *x, hr__role role, int arg, hr__place *out) {
  int rank = x->rank;
  *out = (hr__place){.arg = -1};
  if (x->kind != HR_OPERAND_VALUE) {
    return x->kind == HR_OPERAND_NONE;
  }
  *out = (hr__place){.arg = arg, .offset = x->offset};
  out->column = x->dims[rank - 1] == 1 ? 1 : x->strides[rank - 1];
  out->row = rank > 1 ? x->strides[rank - 2] : 0;
  out->time = rank > 2 ? x->strides[rank - 3] : 0;
  return x->dtype == HR_DTYPE_F32 && (out->column == 1 || has_any_columns(role));
}

bool hr__find_layer_places(const hr_node *node, hr__place places[HR__ROLES]) {
  const form *f = form_of(node->op);
  for (int r = 0; r < HR__ROLES; ++r) {
    places[r] = (hr__place){.arg = -1};
  }
  bool is = f != NULL;
  for (int i = 0; is && i < node->input_count; ++i) {
    is = find_place(&node->inputs[i], f->roles[i], i, &places[f->roles[i]]);
  }
  for (int i = 0; is && i < node->output_count; ++i) {
    hr__role role = f->roles[f->input_count + i];
    is = find_place(&node->outputs[i], role, node->input_count + i, &places[role]);
  }
  return is;
}
