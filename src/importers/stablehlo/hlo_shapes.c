/* hlo_shapes.c: operations that move elements. */
#include "importers/stablehlo/hlo.h"

void hr__hlo_lower_reshape(hr__hlo *hlo) {
  hr__vhlo_type result = hr__hlo_result_type(hlo, 0);
  if (hr__hlo_expect(hlo, 1, 1, 0)) {
    hr__hlo_set(hlo, 0, hr__hlo_reshape(hlo, hr__hlo_input(hlo, 0), result.rank, result.dims));
  }
}

void hr__hlo_lower_transpose(hr__hlo *hlo) {
  int64_t axes[HR_RANK_MAX];
  int rank = hr__hlo_input_type(hlo, 0).rank;
  if (!hr__hlo_expect(hlo, 1, 1, 0)) {
    return;
  }
  int count = hr__hlo_axes(hlo, "permutation", rank, axes);
  if (count == rank) {
    hr__hlo_set(hlo, 0, hr__hlo_permute(hlo, hr__hlo_input(hlo, 0), rank, axes));
  } else if (count >= 0) {
    HR__HLO_WRONG(hlo, "%d dims, expected %d", count, rank);
  }
}

/* Operand dims in the order of the result's, then with dims of size 1 between them. */
void hr__hlo_lower_broadcast_in_dim(hr__hlo *hlo) {
  hr__vhlo_type x = hr__hlo_input_type(hlo, 0), result = hr__hlo_result_type(hlo, 0);
  int64_t places[HR_RANK_MAX], axes[HR_RANK_MAX], dims[HR_RANK_MAX];
  if (!hr__hlo_expect(hlo, 1, 1, 0)) {
    return;
  }
  int count = hr__hlo_axes(hlo, "broadcast_dimensions", result.rank, places);
  if (count != x.rank) {
    HR__HLO_WRONG(hlo, "%d dims, expected %d", count, x.rank);
    return;
  }
  int next = 0;
  for (int d = 0; d < result.rank; ++d) {
    dims[d] = 1;
    for (int i = 0; i < count; ++i) {
      if (places[i] == d) {
        axes[next++] = i, dims[d] = x.dims[i];
      }
    }
  }
  hr_value moved = hr__hlo_permute(hlo, hr__hlo_input(hlo, 0), x.rank, axes);
  moved = hr__hlo_reshape(hlo, moved, result.rank, dims);
  hr__hlo_set(hlo, 0, hr__hlo_broadcast(hlo, moved, result.rank, result.dims));
}
