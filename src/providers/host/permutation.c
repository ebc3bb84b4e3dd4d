/* permutation.c: the permutation of rows that results from the row exchanges of an LU factorisation. */
#include "providers/host/host.h"

bool hr__permutation_supports(const hr_node *node) {
  return hr__operand_dim(&node->inputs[0], 0) <= hr__operand_dim(&node->outputs[0], 0);
}

static hr_status permute(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  int64_t pivots = hr__dim(&call->inputs[0], 0), rows = hr__dim(&call->outputs[0], 0);
  for (int64_t item = begin; item < end; ++item) {
    const int32_t *pivot = hr__item(&call->inputs[0], item, pivots);
    int64_t *row = hr__item(&call->outputs[0], item, rows);
    for (int64_t i = 0; i < rows; ++i) {
      row[i] = i;
    }
    for (int64_t i = 0; i < pivots; ++i) {
      int64_t other = (int64_t)pivot[i] - 1;
      if (other < 0 || other >= rows) {
        return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "lu_unpack: pivot %d of a matrix of %lld rows", pivot[i],
                              (long long)rows);
      }
      int64_t swap = row[i];
      row[i] = row[other];
      row[other] = swap;
    }
  }
  return HR_OK;
}

hr_status hr__permutation_run(const hr__library_call *call) {
  const hr__tensor *out = &call->outputs[0];
  return hr__library_spread(call, hr__items(out, 1), hr__dim(out, 0) * 3, permute);
}
