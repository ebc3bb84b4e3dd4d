/* variables.c: rules of variables, which TensorFlow owns: it decides when a value must be copied, and locks. */
#include "node.h"

static const htf_kernel of_variables = {.row = &(const htf_row){.op = "variable"}};

/* TensorFlow calls this if a variable must be copied before it is updated. */
static void copy_tensor(tf_context *context, tf_tensor *source, tf_tensor *target) {
  htf_node node;
  htf_node_init(&node, &of_variables, context);
  htf_write(&node, target, htf_value_of(&node, source));
  htf_node_fini(&node);
}

/* ---- assignments ---- */

void htf_assign_variable(htf_node *node) {
  tf.AssignVariable(node->context, 0, 1, htf_flag(node, "validate_shape"), copy_tensor, node->status);
  (void)htf_keep(node, htf_status_of(node->status));
}

/* ---- variables that an operation updates ---- */

enum { SLOTS_MAX = 3 };

/* The variables that an operation updates: its first inputs. */
typedef struct slots {
  tf_locks *locks;
  int count;
  tf_tensor *tensors[SLOTS_MAX];
  htf_value values[SLOTS_MAX];
} slots;

static slots open_slots(htf_node *node, int count, bool locks) {
  static const int inputs[SLOTS_MAX] = {0, 1, 2};
  slots opened = {.count = count};
  tf.MaybeLockVariableInputMutexesInOrder(node->context, locks, false, inputs, (size_t)count, copy_tensor,
                                          &opened.locks, node->status);
  (void)htf_keep(node, htf_status_of(node->status));
  for (int i = 0; i < count && !htf_has_failed(node); ++i) {
    tf.GetInputTensorFromVariable(node->context, i, locks, false, false, copy_tensor, &opened.tensors[i], node->status);
    (void)htf_keep(node, htf_status_of(node->status));
    opened.values[i] = htf_has_failed(node) ? NULL : htf_value_of(node, opened.tensors[i]);
  }
  return opened;
}

static void close_slots(slots *opened) {
  for (int i = 0; i < opened->count; ++i) {
    if (opened->tensors[i] != NULL) {
      tf.DeleteTensor(opened->tensors[i]);
    }
  }
  if (opened->locks != NULL) {
    tf.ReleaseVariableInputLockHolder(opened->locks);
  }
}

/* InvalidArgumentError unless all slots and the gradient have the same dims. */
static void check_dims(htf_node *node, const slots *opened, htf_value gradient) {
  for (int i = 0; i <= opened->count && !htf_has_failed(node); ++i) {
    htf_value other = i < opened->count ? opened->values[i] : gradient;
    bool is_same = other->rank == opened->values[0]->rank;
    for (int d = 0; is_same && d < other->rank; ++d) {
      is_same = other->dims[d] == opened->values[0]->dims[d];
    }
    if (!is_same) {
      htf_fail(node, HR_STATUS_INVALID_ARGUMENT, "%s: input %d has other dims than the variable", node->kernel->row->op,
               i);
    }
  }
}

static void set_slot(htf_node *node, const slots *opened, int slot, htf_value value) {
  if (!htf_has_failed(node)) {
    htf_write(node, opened->tensors[slot], value);
  }
}

/* Fails with the code of TensorFlow's own kernels if a variable has no value; locks have another one. */
static void check_value(htf_node *node) {
  tf_tensor *tensor = NULL;
  tf.GetInputTensorFromVariable(node->context, 0, false, false, false, copy_tensor, &tensor, node->status);
  (void)htf_keep(node, htf_status_of(node->status));
  if (tensor != NULL) {
    tf.DeleteTensor(tensor);
  }
}

/* TF_AssignUpdateVariable ends the process if the variable has no value. */
static void update(htf_node *node, hr_op op) {
  check_value(node);
  if (htf_has_failed(node)) {
    return;
  }
  slots opened = open_slots(node, 1, true);
  htf_value value = htf_input(node, 1);
  check_dims(node, &opened, value);
  if (!htf_has_failed(node) && hr_tensor_count(value) > 0) {
    const hr_view views[2] = {hr_tensor_view(opened.values[0]), hr_tensor_view(value)};
    (void)htf_keep(node, hr_stream_record(node->device->stream, op, NULL, 2, views, 1, &views[0]));
  }
  close_slots(&opened);
}

void htf_assign_add_variable(htf_node *node) {
  update(node, HR_OP_ADD);
}

void htf_assign_sub_variable(htf_node *node) {
  update(node, HR_OP_SUB);
}

/* ---- steps of optimizers ---- */

static htf_value add(htf_node *node, htf_value x, htf_value y) {
  return htf_call2(node, HR_FUNCTIONAL_ADD, x, y);
}

static htf_value subtract(htf_node *node, htf_value x, htf_value y) {
  return htf_call2(node, HR_FUNCTIONAL_SUBTRACT, x, y);
}

static htf_value multiply(htf_node *node, htf_value x, htf_value y) {
  return htf_call2(node, HR_FUNCTIONAL_MULTIPLY, x, y);
}

static htf_value divide(htf_node *node, htf_value x, htf_value y) {
  return htf_call2(node, HR_FUNCTIONAL_DIVIDE, x, y);
}

static htf_value one_minus(htf_node *node, htf_value x) {
  return subtract(node, htf_number(node, 1), x);
}

/* var -= delta * alpha */
void htf_apply_gradient_descent(htf_node *node) {
  slots opened = open_slots(node, 1, htf_flag(node, "use_locking"));
  htf_value rate = htf_input(node, 1), gradient = htf_input(node, 2);
  check_dims(node, &opened, gradient);
  if (!htf_has_failed(node)) {
    set_slot(node, &opened, 0, subtract(node, opened.values[0], multiply(node, gradient, rate)));
  }
  close_slots(&opened);
}

/* accum = accum * momentum + grad; var -= accum * lr, with nesterov var -= grad * lr + accum * momentum * lr */
void htf_apply_momentum(htf_node *node) {
  slots opened = open_slots(node, 2, htf_flag(node, "use_locking"));
  htf_value rate = htf_input(node, 2), gradient = htf_input(node, 3), momentum = htf_input(node, 4);
  check_dims(node, &opened, gradient);
  if (!htf_has_failed(node)) {
    htf_value accumulated = add(node, multiply(node, opened.values[1], momentum), gradient);
    htf_value step = multiply(node, accumulated, rate);
    if (htf_flag(node, "use_nesterov")) {
      step = add(node, multiply(node, gradient, rate), multiply(node, multiply(node, accumulated, momentum), rate));
    }
    set_slot(node, &opened, 1, accumulated);
    set_slot(node, &opened, 0, subtract(node, opened.values[0], step));
  }
  close_slots(&opened);
}

/* accum = accum * momentum - grad * lr; var += accum, with nesterov var += accum * momentum - grad * lr */
void htf_apply_keras_momentum(htf_node *node) {
  slots opened = open_slots(node, 2, htf_flag(node, "use_locking"));
  htf_value rate = htf_input(node, 2), gradient = htf_input(node, 3), momentum = htf_input(node, 4);
  check_dims(node, &opened, gradient);
  if (!htf_has_failed(node)) {
    htf_value scaled = multiply(node, gradient, rate);
    htf_value accumulated = subtract(node, multiply(node, opened.values[1], momentum), scaled);
    htf_value step = accumulated;
    if (htf_flag(node, "use_nesterov")) {
      step = subtract(node, multiply(node, accumulated, momentum), scaled);
    }
    set_slot(node, &opened, 1, accumulated);
    set_slot(node, &opened, 0, add(node, opened.values[0], step));
  }
  close_slots(&opened);
}

/* Inputs: var, m, v, beta1_power, beta2_power, lr, beta1, beta2, epsilon, grad. */
void htf_apply_adam(htf_node *node) {
  slots opened = open_slots(node, 3, htf_flag(node, "use_locking"));
  htf_value inputs[7];
  for (int i = 0; i < 7; ++i) {
    inputs[i] = htf_input(node, 3 + i);
  }
  htf_value beta1 = inputs[3], beta2 = inputs[4], epsilon = inputs[5], gradient = inputs[6];
  check_dims(node, &opened, gradient);
  if (!htf_has_failed(node)) {
    htf_value root = htf_call1(node, HR_FUNCTIONAL_SQRT, one_minus(node, inputs[1]));
    htf_value alpha = divide(node, multiply(node, inputs[2], root), one_minus(node, inputs[0]));
    htf_value mean =
        add(node, opened.values[1], multiply(node, subtract(node, gradient, opened.values[1]), one_minus(node, beta1)));
    htf_value square = htf_call1(node, HR_FUNCTIONAL_SQUARE, gradient);
    htf_value variance =
        add(node, opened.values[2], multiply(node, subtract(node, square, opened.values[2]), one_minus(node, beta2)));
    htf_value numerator = mean;
    if (htf_flag(node, "use_nesterov")) {
      numerator = add(node, multiply(node, gradient, one_minus(node, beta1)), multiply(node, beta1, mean));
    }
    htf_value size = add(node, htf_call1(node, HR_FUNCTIONAL_SQRT, variance), epsilon);
    set_slot(node, &opened, 1, mean);
    set_slot(node, &opened, 2, variance);
    set_slot(node, &opened, 0, subtract(node, opened.values[0], divide(node, multiply(node, numerator, alpha), size)));
  }
  close_slots(&opened);
}
