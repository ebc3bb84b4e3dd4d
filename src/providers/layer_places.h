/* layer_places.h: the operands of recurrent layers and their gradients (LSTM, GRU), for the providers that run them. */
#ifndef HEADRACE_PROVIDERS_LAYER_PLACES_H_
#define HEADRACE_PROVIDERS_LAYER_PLACES_H_

#include "core/ir/program.h"

typedef enum hr__role {
  GATES,     /* [T, N, G * H] */
  H0,        /* [N, H] */
  C0,        /* [N, H] */
  WEIGHT,    /* [G * H, H] */
  BIAS,      /* [3 * H] */
  STATES,    /* [T, N, H] */
  CELLS,     /* [T, N, H] */
  WORKSPACE, /* [T, N, 4 * H] or [T, N, 5 * H] */
  LAST_H,
  LAST_C,
  BY_STATES, /* gradients: [T, N, H] */
  BY_LAST_H,
  BY_LAST_C,
  DGATES,  /* [T, N, G * H] */
  DHIDDEN, /* of a GRU */
  DH0,
  DC0,
  HR__ROLES
} hr__role;

/* An operand: its place among the arguments, and its strides, in elements. */
typedef struct hr__place {
  int arg; /* -1: absent */
  int64_t offset, time, row, column;
} hr__place;

bool hr__is_layer(hr_op op);
/* False: the node is no layer, or one with operands that are not f32 with dense columns (the weights and the gradients
 * of results may have any strides). */
bool hr__find_layer_places(const hr_node *node, hr__place places[HR__ROLES]);

#endif
