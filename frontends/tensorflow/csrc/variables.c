/* variables.c: rules of variables, which TensorFlow owns: it decides when a value must be copied, and locks; and of
 * lists of tensors (variants), whose elements it walks. Tensors that its callbacks get are the callee's to delete. */
#include "lists.h"
#include "slots.h"

static const htf_kernel of_callbacks = {.row = &(const htf_row){.op = "variable or list"}};

/* TensorFlow calls this if a variable must be copied before it is updated. Both tensors are the callee's to delete:
 * while they live, the variable counts as shared, and each update would copy it again. */
void htf_copy_tensor(tf_context *context, tf_tensor *source, tf_tensor *target) {
  htf_node node;
  htf_node_init(&node, &of_callbacks, context);
  htf_write(&node, target, htf_value_of(&node, source));
  tf.DeleteTensor(source);
  tf.DeleteTensor(target);
  htf_node_fini(&node);
}

/* ---- lists ---- */

static void add_elements(tf_context *context, tf_tensor *x, tf_tensor *y, tf_tensor *out) {
  htf_node node;
  htf_node_init(&node, &of_callbacks, context);
  htf_write(&node, out, htf_call2(&node, HR_FUNCTIONAL_ADD, htf_value_of(&node, x), htf_value_of(&node, y)));
  tf.DeleteTensor(x);
  tf.DeleteTensor(y);
  tf.DeleteTensor(out);
  htf_node_fini(&node);
}

static void zero_elements(tf_context *context, tf_tensor *x, tf_tensor *out) {
  htf_node node;
  htf_node_init(&node, &of_callbacks, context);
  (void)x;
  htf_write(&node, out, htf_number_of(&node, hr_scalar_i64(0)));
  tf.DeleteTensor(x);
  tf.DeleteTensor(out);
  htf_node_fini(&node);
}

void htf_add_n(htf_node *node) {
  if (node->scope != NULL && htf_scope_is_list(node, 0)) {
    htf_list_add(node);
  } else if (htf_is_list(node, 0)) {
    tf.AddNVariant(node->context, add_elements, node->status);
    (void)htf_keep(node, htf_status_of(node->status));
  } else {
    htf_add_tensors(node);
  }
}

void htf_zeros_like(htf_node *node) {
  if (node->scope != NULL && htf_scope_is_list(node, 0)) {
    htf_list_zeros_like(node);
  } else if (htf_is_list(node, 0)) {
    tf.ZerosLikeVariant(node->context, zero_elements, node->status);
    (void)htf_keep(node, htf_status_of(node->status));
  } else {
    htf_fill_like(node, 0);
  }
}

/* ---- assignments ---- */

/* In a cluster only variables that it has read are assigned, so they have a tensor of these dims. */
void htf_assign_variable(htf_node *node) {
  if (node->scope != NULL) {
    htf_scope_assign(node, 0, htf_input(node, 1));
    return;
  }
  tf.AssignVariable(node->context, 0, 1, htf_flag(node, "validate_shape"), htf_copy_tensor, node->status);
  (void)htf_keep(node, htf_status_of(node->status));
}

/* ---- variables that an operation updates ---- */

htf_slots htf_open_slots(htf_node *node, int count, bool locks, bool is_sparse) {
  static const int inputs[HTF_SLOTS_MAX] = {0, 1, 2, 3};
  htf_slots opened = {.count = count};
  for (int i = 0; node->scope != NULL && i < count; ++i) {
    opened.values[i] = htf_scope_variable(node, i);
  }
  if (node->scope != NULL) {
    return opened;
  }
  tf.MaybeLockVariableInputMutexesInOrder(node->context, locks, is_sparse, inputs, (size_t)count, htf_copy_tensor,
                                          &opened.locks, node->status);
  (void)htf_keep(node, htf_status_of(node->status));
  for (int i = 0; i < count && !htf_has_failed(node); ++i) {
    tf.GetInputTensorFromVariable(node->context, i, locks, false, is_sparse, htf_copy_tensor, &opened.tensors[i],
                                  node->status);
    (void)htf_keep(node, htf_status_of(node->status));
    opened.values[i] = htf_has_failed(node) ? NULL : htf_value_of(node, opened.tensors[i]);
  }
  return opened;
}

void htf_close_slots(htf_slots *opened) {
  for (int i = 0; i < opened->count; ++i) {
    if (opened->tensors[i] != NULL) {
      tf.DeleteTensor(opened->tensors[i]);
    }
  }
  if (opened->locks != NULL) {
    tf.ReleaseVariableInputLockHolder(opened->locks);
  }
}

void htf_check_slots(htf_node *node, const htf_slots *opened, htf_value gradient) {
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

void htf_set_slot(htf_node *node, const htf_slots *opened, int slot, htf_value value) {
  if (node->scope != NULL) {
    htf_scope_assign(node, slot, value);
  } else if (!htf_has_failed(node)) {
    htf_write(node, opened->tensors[slot], value);
  }
}

/* Only with the locks: another thread's update may hold the variable's tensor, and a look at it copies it then. */
static void update(htf_node *node, hr_op op) {
  htf_slots opened = htf_open_slots(node, 1, true, false);
  htf_value value = htf_input(node, 1);
  htf_check_slots(node, &opened, value);
  if (node->scope != NULL) {
    htf_scope_assign(node, 0, htf_call2(node, node->function, opened.values[0], value));
  } else if (!htf_has_failed(node) && hr_tensor_count(value) > 0) {
    const hr_view views[2] = {hr_tensor_view(opened.values[0]), hr_tensor_view(value)};
    (void)htf_keep(node, hr_stream_record(node->stream, op, NULL, 2, views, 1, &views[0]));
  }
  htf_close_slots(&opened);
}

void htf_assign_add_variable(htf_node *node) {
  update(node, HR_OP_ADD);
}

void htf_assign_sub_variable(htf_node *node) {
  update(node, HR_OP_SUB);
}

/* ---- some rows of a variable ---- */

/* The operands of a sparse update: rows [n, ..] of the variable, an index for each of their elements. */
typedef struct rows {
  int64_t dims[HR_RANK_MAX];
  int rank;
  htf_value indices, updates;
} rows;

/* Updates have the dims of the indices and of a row, or none. */
static bool fits(htf_value variable, htf_value indices, htf_value updates) {
  bool is_fit = updates->rank == indices->rank + variable->rank - 1;
  for (int d = 0; is_fit && d < updates->rank; ++d) {
    int64_t want = d < indices->rank ? indices->dims[d] : variable->dims[d - indices->rank + 1];
    is_fit = updates->dims[d] == want;
  }
  return is_fit || updates->rank == 0;
}

/* Both as tensors of the same dims; strides of 0 repeat an index in its row, and a number everywhere. */
static rows read_rows(htf_node *node, htf_value variable) {
  static const int64_t none[HR_RANK_MAX];
  htf_value indices = htf_input(node, 1), updates = htf_input(node, 2);
  rows r = {.rank = variable->rank, .indices = indices, .updates = updates};
  if (!htf_has_failed(node) && (variable->rank < 1 || !fits(variable, indices, updates))) {
    htf_fail(node, HR_STATUS_INVALID_ARGUMENT,
             "%s: updates must have the dims of the indices and of a row of the variable, or none; they have %d dims",
             node->kernel->row->op, updates->rank);
  }
  if (htf_has_failed(node)) {
    return r;
  }
  int64_t strides[HR_RANK_MAX] = {1};
  r.dims[0] = hr_tensor_count(indices);
  for (int d = 1; d < r.rank; ++d) {
    r.dims[d] = variable->dims[d];
  }
  htf_value wide = htf_cast(node, indices, HR_DTYPE_I64);
  r.indices = htf_view(node, wide, r.rank, r.dims, strides, wide->offset);
  r.updates = updates->rank == 0 ? htf_view(node, updates, r.rank, r.dims, none, updates->offset)
                                 : htf_reshape(node, updates, r.rank, r.dims);
  return r;
}

enum { SCATTER_SET = 0, SCATTER_ADD, SCATTER_MULTIPLY, SCATTER_MAX, SCATTER_MIN };

/* The tensor that a scatter writes: the variable's own, or in a cluster that gives it other values a copy of the last
 * one. */
static htf_value target_of(htf_node *node, const htf_slots *opened) {
  if (node->scope == NULL || (htf_scope_uses(node, 0) & HTF_UPDATES) == 0) {
    return opened->values[0];
  }
  htf_value copy = htf_copy_value(node, opened->values[0]);
  if (!htf_has_failed(node)) {
    htf_scope_assign(node, 0, copy);
  }
  return htf_has_failed(node) ? copy : htf_scope_variable(node, 0);
}

/* In place: the row of op.h writes the variable. An index out of range is an error of the work, which a wait reports.
 */
static void scatter(htf_node *node, int mode, bool is_negative) {
  htf_slots opened = htf_open_slots(node, 1, true, true);
  if (!htf_has_failed(node)) {
    rows r = read_rows(node, opened.values[0]);
    const int64_t ints[3] = {0, mode, 0};
    htf_value updates = is_negative ? htf_call1(node, HR_FUNCTIONAL_NEGATIVE, r.updates) : r.updates;
    if (!htf_has_failed(node) && hr_tensor_count(r.updates) > 0) {
      htf_record(node, HR_OP_SCATTER, 3, ints, INPUTS(r.indices, updates), target_of(node, &opened));
    }
  }
  htf_close_slots(&opened);
}

void htf_scatter_update(htf_node *node) {
  scatter(node, SCATTER_SET, false);
}

void htf_scatter_add(htf_node *node) {
  scatter(node, SCATTER_ADD, false);
}

void htf_scatter_sub(htf_node *node) {
  scatter(node, SCATTER_ADD, true);
}

void htf_scatter_mul(htf_node *node) {
  scatter(node, SCATTER_MULTIPLY, false);
}

void htf_scatter_max(htf_node *node) {
  scatter(node, SCATTER_MAX, false);
}

void htf_scatter_min(htf_node *node) {
  scatter(node, SCATTER_MIN, false);
}

/* An index out of range gives 0, as in GatherV2. */
void htf_resource_gather(htf_node *node) {
  htf_slots opened = htf_open_slots(node, 1, true, true);
  htf_value indices = htf_input(node, 1);
  if (!htf_has_failed(node) && (htf_integer(node, "batch_dims") != 0 || opened.values[0]->rank < 1)) {
    htf_fail(node, HR_STATUS_UNIMPLEMENTED,
             "ResourceGather: batch_dims %lld of a variable of %d dims are not supported",
             (long long)htf_integer(node, "batch_dims"), opened.values[0]->rank);
  }
  if (!htf_has_failed(node)) {
    htf_output(node, 0,
               htf_call(node, HR_FUNCTIONAL_TAKE, INPUTS(opened.values[0], indices),
                        ATTRIBUTES(htf_attr_int(0), htf_attr_text("drop"))));
  }
  htf_close_slots(&opened);
}
