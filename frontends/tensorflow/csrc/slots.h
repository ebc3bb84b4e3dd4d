/* slots.h: the variables that an operation updates, its first inputs, while they are locked. */
#ifndef HEADRACE_TENSORFLOW_SLOTS_H_
#define HEADRACE_TENSORFLOW_SLOTS_H_

#include "node.h"

enum { HTF_SLOTS_MAX = 4 };

typedef struct htf_slots {
  tf_locks *locks;
  int count;
  tf_tensor *tensors[HTF_SLOTS_MAX];
  htf_value values[HTF_SLOTS_MAX];
} htf_slots;

/* Sparse updates write elements in place, so readers of the variable get copies from then on. */
htf_slots htf_open_slots(htf_node *node, int count, bool locks, bool is_sparse);
void htf_close_slots(htf_slots *opened);
/* InvalidArgumentError unless all slots and the gradient have the same dims. */
void htf_check_slots(htf_node *node, const htf_slots *opened, htf_value gradient);
void htf_set_slot(htf_node *node, const htf_slots *opened, int slot, htf_value value);

#endif
