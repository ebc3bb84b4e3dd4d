/* hlo_products.c: dot_general: matrix products over any dims. */
#include "importers/stablehlo/hlo.h"

/* The dims of an operand: batch, then free, then contracted ones, or the last two the other way round. */
typedef struct side {
  hr_value value;
  int rank, batch_count, free_count, contract_count;
  int64_t batch[HR_RANK_MAX], free[HR_RANK_MAX], contract[HR_RANK_MAX];
  hr__vhlo_type type;
} side;

static bool read_side(hr__hlo *hlo, int index, const char *batch, const char *contract, side *out) {
  uint32_t used = 0;
  *out = (side){.value = hr__hlo_input(hlo, index), .type = hr__hlo_input_type(hlo, index)};
  out->rank = out->type.rank;
  out->batch_count = hr__hlo_axes(hlo, batch, out->rank, out->batch);
  out->contract_count = hr__hlo_axes(hlo, contract, out->rank, out->contract);
  if (out->batch_count < 0 || out->contract_count < 0) {
    return false;
  }
  for (int i = 0; i < out->batch_count; ++i) {
    used |= 1u << out->batch[i];
  }
  for (int i = 0; i < out->contract_count; ++i) {
    if ((used >> out->contract[i] & 1) != 0) {
      HR__HLO_WRONG(hlo, "dim %lld is batched and contracted", (long long)out->contract[i]);
      return false;
    }
    used |= 1u << out->contract[i];
  }
  for (int d = 0; d < out->rank; ++d) {
    if ((used >> d & 1) == 0) {
      out->free[out->free_count++] = d;
    }
  }
  return true;
}

static int64_t product(const side *s, int count, const int64_t *axes) {
  int64_t size = 1;
  for (int i = 0; i < count; ++i) {
    size *= s->type.dims[axes[i]];
  }
  return size;
}

/* A stack of matrices. */
static hr_value matrices(hr__hlo *hlo, const side *s, bool contracts_last, hr_dtype dtype) {
  int64_t axes[HR_RANK_MAX], dims[HR_RANK_MAX + 2];
  int count = 0, rank = s->batch_count;
  for (int i = 0; i < s->batch_count; ++i) {
    dims[i] = s->type.dims[s->batch[i]], axes[count++] = s->batch[i];
  }
  for (int part = 0; part < 2; ++part) {
    bool contracts = (part == 1) == contracts_last;
    int size = contracts ? s->contract_count : s->free_count;
    const int64_t *from = contracts ? s->contract : s->free;
    for (int i = 0; i < size; ++i) {
      axes[count++] = from[i];
    }
    dims[rank++] = product(s, size, from);
  }
  hr_value x = hr__hlo_cast(hlo, s->value, dtype);
  return hr__hlo_reshape(hlo, hr__hlo_permute(hlo, x, s->rank, axes), rank, dims);
}

void hr__hlo_lower_dot_general(hr__hlo *hlo) {
  side x, y;
  hr__vhlo_type result = hr__hlo_result_type(hlo, 0);
  if (!hr__hlo_expect(hlo, 2, 1, 0) ||
      !read_side(hlo, 0, "lhs_batching_dimensions", "lhs_contracting_dimensions", &x) ||
      !read_side(hlo, 1, "rhs_batching_dimensions", "rhs_contracting_dimensions", &y)) {
    return;
  }
  if (x.batch_count > HR_RANK_MAX - 2 || result.rank != x.batch_count + x.free_count + y.free_count) {
    HR__HLO_WRONG(hlo, "%d dims, expected %d", result.rank, x.batch_count + x.free_count + y.free_count);
    return;
  }
  hr_value a = matrices(hlo, &x, true, result.dtype), b = matrices(hlo, &y, false, result.dtype);
  hr__hlo_set(hlo, 0, hr__hlo_reshape(hlo, CALL(hlo, MATMUL, a, b), result.rank, result.dims));
}
