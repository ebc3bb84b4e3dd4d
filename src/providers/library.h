/* library.h: helpers shared by the providers of library rows on the host: a table of rows, operands with addresses, and
 * work that is spread over lines or matrices.
 *
 * A provider is a table of `hr__library_row`. Operands are dense and row-major. The items of an operation (lines to
 * sort, matrices to factor) are independent and have equal cost; each worker has its own scratch.
 */
#ifndef HEADRACE_PROVIDERS_LIBRARY_H_
#define HEADRACE_PROVIDERS_LIBRARY_H_

#include "base/thread.h"
#include "core/ir/dtype.h"
#include "providers/provider.h"

enum { HR__LIBRARY_OPERANDS = 8, HR__LIBRARY_SCALARS = 2 };

typedef struct hr__tensor {
  void *data; /* NULL: absent */
  hr_dtype dtype;
  int rank;
  const int64_t *dims;
  int64_t count;
} hr__tensor;

/* One run. */
typedef struct hr__library_call {
  const hr_node *node;
  hr__tensor inputs[HR__LIBRARY_OPERANDS], outputs[HR__LIBRARY_OPERANDS];
  hr_scalar scalars[HR__LIBRARY_SCALARS];
  const void *plan;
  void *scratch; /* of the first worker; the others' are scratch_bytes apart */
  size_t scratch_bytes;
  int workers;
} hr__library_call;

typedef struct hr__library_row {
  hr_op op;
  bool (*supports)(const hr_node *node);               /* checks dtypes and sizes; the row's own check has passed */
  size_t (*scratch)(const hr_node *node, int workers); /* (optional) bytes for one worker, 64-byte aligned; else none */
  hr_status (*run)(const hr__library_call *call);
  /* (optional) Data for run that depends on the node alone, as call->plan: tables. One block, freed by hr_free. */
  hr_status (*plan)(const hr_node *node, void **out_plan);
} hr__library_row;

/* Processes items [begin, end); `scratch` is the worker's. A failure (ABORTED: the data does not allow it) becomes the
 * run's. */
typedef hr_status (*hr__items_fn)(const hr__library_call *call, int64_t begin, int64_t end, void *scratch);

/* Spreads items over the workers; `item_ns` is about the time of one. Returns the failure of the earliest items. */
HR_MUST_USE hr_status hr__library_spread(const hr__library_call *call, int64_t items, int64_t item_ns, hr__items_fn fn);

/* Of the last dims: the size of dim -1 - `from_last`, and the number of items in the dims in front of the last `inner`.
 */
static inline int64_t hr__dim(const hr__tensor *tensor, int from_last) {
  return tensor->dims[tensor->rank - 1 - from_last];
}
static inline int64_t hr__operand_dim(const hr_operand *operand, int from_last) {
  return operand->dims[operand->rank - 1 - from_last];
}
static inline int64_t hr__items(const hr__tensor *tensor, int inner) {
  int64_t count = 1;
  for (int d = 0; d < tensor->rank - inner; ++d) {
    count *= tensor->dims[d];
  }
  return count;
}
/* The address of item `i`, of `count` elements each; NULL if the tensor is absent. */
static inline void *hr__item(const hr__tensor *tensor, int64_t i, int64_t count) {
  return tensor->data == NULL ? NULL : (char *)tensor->data + i * count * (int64_t)hr_dtype_size(tensor->dtype);
}

/* The members of a provider, given its table (ended by a row of HR_OP_NONE). */
const hr__library_row *hr__library_find(const hr__library_row *rows, hr_op op);
HR_MUST_USE hr_status hr__library_prepare(const hr__library_row *rows, const hr_node *node, hr_prepared **out_prepared,
                                          size_t *out_workspace_bytes);
bool hr__library_needs_team(const hr_prepared *prepared);
HR_MUST_USE hr_status hr__library_run(hr_prepared *prepared, void *const *args, void *workspace, void *queue);
void hr__library_free(hr_prepared *prepared);

#endif
