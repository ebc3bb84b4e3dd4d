/* hlo_pools.c: reduce_window and select_and_scatter as max pools and their gradients.
 *
 * Planes are the dims along which windows have more than one element; they become the last dims, as views. A pool and
 * its gradient have the same function for the places of largest elements, so that a simplified graph has it once.
 *
 * Of equal elements the first one is selected. In a window with NaN this is the first NaN; StableHLO's select compares
 * elements in an order that implementations define, and a NaN is neither larger nor smaller.
 */
#include "base/text.h"
#include "importers/stablehlo/hlo_windows.h"

enum { PLANE_MAX = 3, LEAD_MAX = 2 };

typedef struct pool {
  int rank, plane;            /* dims, and those of the planes */
  int64_t order[HR_RANK_MAX]; /* of x's dims: those in front of planes, then planes */
  int64_t dims[PLANE_MAX], size[PLANE_MAX], stride[PLANE_MAX], before[PLANE_MAX], after[PLANE_MAX];
  int64_t dilation[PLANE_MAX];
  bool is_ceil;
} pool;

static bool is_alone(const hr__hlo_windows *w, int d) {
  return w->size[d] == 1 && w->stride[d] == 1 && w->before[d] == 0 && w->after[d] == 0;
}

/* True if each window has an element of x. */
static bool is_inside(const hr__hlo_windows *w, int d) {
  bool is_padded = w->before[d] != 0 || w->after[d] != 0;
  return w->distance[d] == 1 && w->before[d] >= 0 && w->before[d] < w->size[d] && w->after[d] >= 0 &&
         w->after[d] < w->size[d] && (!is_padded || w->dilation[d] == 1);
}

/* Chooses the dims of planes; false: they are too few or too many. */
static bool choose_plane(const hr__hlo_windows *w, bool *is_plane, pool *p) {
  *p = (pool){.rank = w->rank};
  for (int d = 0; d < w->rank; ++d) {
    is_plane[d] = !is_alone(w, d);
    p->plane += is_plane[d];
    if (is_plane[d] && !is_inside(w, d)) {
      return false;
    }
  }
  for (int d = w->rank - 1; d >= 0 && p->plane > 0 && w->rank - p->plane > LEAD_MAX; --d) {
    p->plane += !is_plane[d];
    is_plane[d] = true;
  }
  return p->plane > 0 && p->plane <= PLANE_MAX && p->plane < w->rank;
}

static int64_t count_of(int64_t size, int64_t window, int64_t stride, int64_t dilation) {
  int64_t room = size - (window - 1) * dilation - 1;
  return room < 0 ? 0 : room / stride + 1;
}

/* The number of windows of the function with as much padding behind as in front, the last one whole or not. */
static int64_t even_count(const pool *p, int i, bool is_ceil) {
  int64_t own = p->before[i] + p->dims[i], size = own + p->before[i], extent = (p->size[i] - 1) * p->dilation[i] + 1;
  int64_t count = count_of(size, p->size[i], p->stride[i], p->dilation[i]);
  bool has_more = size >= extent && (size - extent) % p->stride[i] > 0 && count * p->stride[i] < own;
  return count + (is_ceil && has_more);
}

/* As much padding behind as in front, if windows are the same: elements outside of x count for nothing, and a row reads
 * x itself. */
static bool make_even(pool *p) {
  for (int is_ceil = 0; is_ceil < 2; ++is_ceil) {
    bool is_same = true;
    for (int i = 0; i < p->plane; ++i) {
      int64_t size = p->before[i] + p->dims[i] + p->after[i];
      int64_t count = count_of(size, p->size[i], p->stride[i], p->dilation[i]);
      is_same = is_same && even_count(p, i, is_ceil != 0) == count;
    }
    if (is_same) {
      p->is_ceil = is_ceil != 0;
      return true;
    }
  }
  return false;
}

static bool pool_of(const hr__hlo_windows *w, hr_dtype dtype, pool *p) {
  bool is_plane[HR_RANK_MAX];
  bool is_float = dtype == HR_DTYPE_F32 || dtype == HR_DTYPE_F64 || dtype == HR_DTYPE_F16 || dtype == HR_DTYPE_BF16;
  if (!is_float || !hr__hlo_windows_have_row(w) || !choose_plane(w, is_plane, p)) {
    return false;
  }
  int lead = 0, plane = 0;
  for (int d = 0; d < w->rank; ++d) {
    if (!is_plane[d]) {
      p->order[lead++] = d;
      continue;
    }
    p->dims[plane] = w->dims[d], p->size[plane] = w->size[d], p->stride[plane] = w->stride[d];
    p->before[plane] = w->before[d], p->after[plane] = w->after[d], p->dilation[plane] = w->dilation[d];
    p->order[w->rank - p->plane + plane] = d;
    ++plane;
  }
  return make_even(p);
}

static hr_value planes_last(hr__hlo *hlo, const pool *p, hr_value x) {
  return hr__hlo_permute(hlo, x, p->rank, p->order);
}

static hr_value planes_back(hr__hlo *hlo, const pool *p, hr_value x) {
  int64_t order[HR_RANK_MAX];
  for (int d = 0; d < p->rank; ++d) {
    order[p->order[d]] = d;
  }
  return hr__hlo_permute(hlo, x, p->rank, order);
}

/* Largest elements, and, with the next number, their places in the plane. */
static hr_value places_of(hr__hlo *hlo, const pool *p, hr_value x) {
  int n = p->plane;
  return ADD(hlo, MAX_POOL_PLACES, IN(planes_last(hlo, p, x)),
             WITH(hr__with_ints("window", n, p->size), hr__with_ints("stride", n, p->stride),
                  hr__with_ints("padding", n, p->before), hr__with_ints("dilation", n, p->dilation),
                  hr__with_flag("ceil", p->is_ceil)));
}

hr_value hr__hlo_max_pool(hr__hlo *hlo, const hr__hlo_windows *w, hr_value x) {
  pool p;
  return pool_of(w, hr__hlo_input_type(hlo, 0).dtype, &p) ? planes_back(hlo, &p, places_of(hlo, &p, x)) : 0;
}

/* True if select keeps the first of equal elements and scatter adds to zeros. */
static bool is_gradient(hr__hlo *hlo) {
  const hr__vhlo_region *region = &hlo->op->regions[0];
  const hr__vhlo_op *end = hr__hlo_return_op(region);
  unsigned sides = 0;
  hr_text text = {0};
  bool is_first = end != NULL && end->operand_count == 1 && region->argument_count == 2 &&
                  hr__hlo_spell(hlo, region, end->operands[0], 1, &text, &sides) &&
                  strcmp(hr_text_chars(&text), "ge(a0,a1)") == 0;
  hr_text_fini(&text);
  return is_first && hr__hlo_combiner_of(hlo, &hlo->op->regions[1], 0) == HR__HLO_ADD && hr__hlo_is_zero(hlo, 2);
}

/* True if the source has an element for each window. */
static bool has_windows(const hr__hlo *hlo, const hr__hlo_windows *w) {
  hr__vhlo_type source = hr__hlo_input_type(hlo, 1);
  bool is_same = source.rank == w->rank;
  for (int d = 0; d < w->rank && is_same; ++d) {
    int64_t size = w->before[d] + w->dims[d] + w->after[d];
    is_same = source.dims[d] == count_of(size, w->size[d], w->stride[d], w->dilation[d]);
  }
  return is_same;
}

hr_value hr__hlo_max_pool_gradient(hr__hlo *hlo, const hr__hlo_windows *w) {
  pool p;
  if (hr__hlo_input_type(hlo, 0).dtype != hr__hlo_input_type(hlo, 1).dtype || !has_windows(hlo, w) ||
      !pool_of(w, hr__hlo_input_type(hlo, 0).dtype, &p) || !is_gradient(hlo)) {
    return 0;
  }
  int n = p.plane;
  hr_value places = places_of(hlo, &p, hr__hlo_input(hlo, 0)) + 1;
  hr_value gradient = ADD(hlo, MAX_POOL_GRADIENT, IN(planes_last(hlo, &p, hr__hlo_input(hlo, 1)), places),
                          WITH(hr__with_ints("shape", n, p.dims), hr__with_ints("window", n, p.size),
                               hr__with_ints("stride", n, p.stride), hr__with_ints("padding", n, p.before),
                               hr__with_ints("dilation", n, p.dilation)));
  return planes_back(hlo, &p, gradient);
}
