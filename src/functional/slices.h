/* slices.h: slices of a tensor whose places are rows of an index tensor, with any order of dims. */
#ifndef HEADRACE_FUNCTIONAL_SLICES_H_
#define HEADRACE_FUNCTIONAL_SLICES_H_

#include "functional/scatter.h"

/* The dims of x, of the indices without the dim of components, and of a tensor of slices: dims of the indices and of
 * windows, mixed. A slice has `size` elements along each dim of x, which are a dim of windows unless the dim is
 * collapsed or a dim of the batch. */
typedef struct hr__slices {
  int rank, batch_rank, rank_all;
  int64_t dims[HR_RANK_MAX], size[HR_RANK_MAX];
  int component[HR_RANK_MAX];   /* of the index, by dims of x; -1: the slice begins at 0 */
  int batch[HR_RANK_MAX];       /* the dim of the indices that is this dim of x; -1: none */
  int place[HR_RANK_MAX];       /* the dim of slices that is this dim of x; -1: collapsed, or of the batch */
  int batch_place[HR_RANK_MAX]; /* the dim of slices that is this dim of the indices */
  const hr_tensor *indices;     /* i64, with the components behind all other dims */
} hr__slices;

/* True for a dim that slices have as a whole, so that it needs no index. */
static inline bool hr__slice_is_whole(const hr__slices *s, int d) {
  return s->batch[d] < 0 && s->size[d] == s->dims[d];
}
/* The indices along dim d of x, with the dims of the indices, and behind them one for each dim of x that has a place
 * and an index: that of dim d has the slice's elements. is_clamped: the slice is moved into x. */
const hr_tensor *hr__slice_places(hr__formula *f, const hr__slices *s, int d, bool is_clamped);
/* x's elements at the slices, each moved into x. */
const hr_tensor *hr__read_slices(hr__formula *f, const hr_tensor *x, const hr__slices *s);

#endif
