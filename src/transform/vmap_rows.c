/* vmap_rows.c: rules of rows whose operands need more than a leading dim. */
#include "transform/vmap_record.h"

/* ---- products ---- */

/* The examples of rows or columns as one matrix: [N, 1, K] as [N, K], and [N, K, 1] as [K, N]. */
static void fold_line(const hr__record_of_all *r, const hr__operand_of_all *x, bool is_rows, hr__lifted *out) {
  int examples = is_rows ? 0 : 1, line = is_rows ? 1 : 0;
  out->view = x->view;
  out->view.dims = out->dims, out->view.strides = out->strides;
  out->dims[examples] = r->vmap->size, out->strides[examples] = x->stride;
  out->dims[line] = x->view.dims[line], out->strides[line] = x->view.strides[line];
}

/* A matrix that is the same in all times vectors, or vectors times such a matrix: one product. */
static bool is_line_product(const hr__record_of_all *r, bool *out_is_rows) {
  const hr__operand_of_all *a = &r->inputs[0], *b = &r->inputs[1], *out = &r->outputs[0];
  bool has_bias = r->input_count > 2 && r->inputs[2].view.buffer != NULL;
  *out_is_rows = a->is_mapped;
  return !has_bias && a->view.rank == 2 && b->view.rank == 2 && a->is_mapped != b->is_mapped &&
         out->view.dims[a->is_mapped ? 0 : 1] == 1;
}

hr_status hr__vmap_matmul(const hr__record_of_all *r, bool *out_is_done) {
  (void)out_is_done;
  hr__lifted lifted[4];
  hr_view views[4];
  int count = r->input_count, rank = r->outputs[0].view.rank;
  bool is_rows;
  if (is_line_product(r, &is_rows)) {
    fold_line(r, &r->inputs[is_rows ? 0 : 1], is_rows, &lifted[0]);
    fold_line(r, &r->outputs[0], is_rows, &lifted[1]);
    views[is_rows ? 0 : 1] = lifted[0].view, views[is_rows ? 1 : 0] = r->inputs[is_rows ? 1 : 0].view;
    for (int i = 2; i < count; ++i) {
      views[i] = r->inputs[i].view;
    }
    views[count] = lifted[1].view;
    return hr__pass_all(r, r->attrs, views);
  }
  bool is_either_mapped = r->inputs[0].is_mapped || r->inputs[1].is_mapped;
  for (int i = 0; i <= count; ++i) {
    const hr__operand_of_all *x = i < count ? &r->inputs[i] : &r->outputs[0];
    bool is_lifted = x->is_mapped || (i == 0 && !is_either_mapped);
    if (is_lifted) {
      hr__lift(r, x, rank, &lifted[i]);
    }
    views[i] = is_lifted ? lifted[i].view : x->view;
  }
  return hr__pass_all(r, r->attrs, views);
}
