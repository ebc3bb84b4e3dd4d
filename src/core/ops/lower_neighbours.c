/* lower_neighbours.c: a few neighbours become an element-wise sum of gathers, whose positions are a table's plus a
 * distance. Many become a reduction over a dim of their own. For short runs all sums of 1, 2, .. neighbours from each
 * element on are computed first: then each result is one gather.
 */
#include "core/ops/lower_neighbours.h"

enum { FEW = 8, SHORT = 4 };

/* Row k of a table of [count, n] over dim `dim`. */
static hr_operand spread_row(hr_builder *b, hr_operand table, int64_t k, int rank, int dim) {
  return hr_is_present(table) ? hr__along(b, hr_view_remove(b, hr_view_slice(b, table, 0, k, 1, 1), 0), rank, dim)
                              : table;
}

/* The k-th of all. */
static hr_operand make_neighbour(hr_builder *b, hr_operand x, const hr__neighbours *s, int64_t k, int dim) {
  hr_operand from = hr_view_slice(b, x, dim, k, x.dims[dim] - s->count + 1, 1);
  hr_operand runs = hr__view_neighbours(b, from, dim, s->is_there.dims[1], 1);
  return hr__make_picked(b, hr_is_present(runs) ? hr_view_remove(b, runs, dim + 1) : runs,
                         hr__along(b, s->first, x.rank, dim));
}

static hr_operand make_sum_of_few(hr_builder *b, hr_operand x, const hr__neighbours *s, int dim, hr_dtype dtype) {
  hr_operand zero = hr_build_f64(b, 0), sum = zero;
  for (int64_t k = 0; k < s->count; ++k) {
    hr_operand is_there = spread_row(b, s->is_there, k, x.rank, dim);
    hr_operand part = hr_make3(b, HR_OP_WHERE, dtype, is_there, make_neighbour(b, x, s, k, dim), zero);
    sum = hr_is_present(s->weight)
              ? hr_make3(b, HR_OP_ADD_SCALED, dtype, sum, part, spread_row(b, s->weight, k, x.rank, dim))
              : hr_make2(b, HR_OP_ADD, dtype, sum, part);
  }
  return sum;
}

/* A table of [count, n] as [n, count] over dims `dim` and `dim` + 1 of `rank`. */
static hr_operand spread_runs(hr_builder *b, hr_operand table, int rank, int dim) {
  if (!hr_is_present(table)) {
    return table;
  }
  hr_operand runs = hr_view_permute(b, table, (int[]){1, 0});
  return hr__ones_before(b, hr__ones_after(b, runs, rank - dim - 2), dim);
}

static hr_operand make_sum_of_many(hr_builder *b, hr_operand x, const hr__neighbours *s, int dim, hr_dtype dtype) {
  hr_operand runs = hr__view_neighbours(b, x, dim, s->is_there.dims[1], s->count);
  int rank = x.rank + 1;
  hr_operand is_there = spread_runs(b, s->is_there, rank, dim), zero = hr_build_f64(b, 0);
  hr_operand picked = hr__make_picked(b, runs, hr__along(b, s->first, rank, dim));
  hr_operand part = hr_make3(b, HR_OP_WHERE, dtype, is_there, picked, zero);
  if (hr_is_present(s->weight)) {
    part = hr_make2(b, HR_OP_MUL, dtype, part, spread_runs(b, s->weight, rank, dim));
  }
  hr_operand sum = hr_make_reduce(b, HR_OP_SUM, dtype, part, 2u << dim);
  return hr_is_present(sum) ? hr_view_remove(b, sum, dim + 1) : sum;
}

hr_operand hr__make_sum_of_neighbours(hr_builder *b, hr_operand x, const hr__neighbours *s, int dim, hr_dtype dtype) {
  if (!hr_is_present(x) || !hr_is_present(s->first) || !hr_is_present(s->is_there)) {
    return (hr_operand){0};
  }
  return s->count <= FEW ? make_sum_of_few(b, x, s, dim, dtype) : make_sum_of_many(b, x, s, dim, dtype);
}

/* ---- runs ---- */

/* Sums of 1, 2, .. width neighbours of x from each element of dim `at` on: [.., n * width, ..], without those that
 * would end outside. A 0 follows them, for elements with an empty sum. */
static hr_operand make_running_sums(hr_builder *b, hr_operand x, int at, const hr__runs *r, hr_dtype dtype) {
  int64_t dims[HR_RANK_MAX], count = x.dims[at];
  for (int d = 0; d < x.rank; ++d) {
    dims[d] = d == at ? count * r->width + r->has_gaps : x.dims[d];
  }
  hr_operand sums = hr_build_temp(b, dtype, x.rank, dims), before = x;
  for (int64_t k = 0; k < r->width && hr_is_present(sums); ++k) {
    hr_operand own = hr_view_slice(b, sums, at, k, count - k, r->width);
    if (k == 0) {
      hr_emit1(b, HR_OP_COPY, own, x);
    } else {
      hr_emit2(b, HR_OP_ADD, own, hr_view_slice(b, before, at, 0, count - k, 1),
               hr_view_slice(b, x, at, k, count - k, 1));
    }
    before = own;
  }
  if (r->has_gaps && hr_is_present(sums)) {
    hr_emit1(b, HR_OP_COPY, hr_view_slice(b, sums, at, count * r->width, 1, 1), hr_build_f64(b, 0));
  }
  return sums;
}

/* Short runs: begin and end select one of the few sums. */
static hr_operand pick_sums(hr_builder *b, hr_operand x, int at, const hr__runs *r, hr_dtype dtype) {
  hr_operand sums = make_running_sums(b, x, at, r, dtype), none = hr_build_i64(b, x.dims[at] * r->width);
  hr_operand before = hr_make2(b, HR_OP_SUB, HR_DTYPE_I64, r->size, hr_build_i64(b, 1));
  hr_operand place = hr_make3(b, HR_OP_ADD_SCALED, HR_DTYPE_I64, before, r->start, hr_build_i64(b, r->width));
  if (r->has_gaps) {
    hr_operand is_reached = hr_make2(b, HR_OP_GT, HR_DTYPE_BOOL, r->size, hr_build_i64(b, 0));
    place = hr_make3(b, HR_OP_WHERE, HR_DTYPE_I64, is_reached, place, none);
  }
  hr_operand view = hr_is_present(place) ? hr__view_neighbours(b, sums, at, place.dims[0], 1) : place;
  if (!hr_is_present(view)) {
    return (hr_operand){0};
  }
  return hr__make_picked(b, hr_view_remove(b, view, at + 1), hr__along(b, place, x.rank, at));
}

static hr_operand make_long_sums(hr_builder *b, hr_operand x, int at, const hr__runs *r, hr_dtype dtype) {
  hr__neighbours run = {.count = r->width};
  run.first = hr_make2(b, HR_OP_MINIMUM, HR_DTYPE_I64, r->start, hr_build_i64(b, x.dims[at] - r->width));
  hr_operand row = hr_build_index(b, 2, (int64_t[]){r->width, r->start.dims[0]}, 0, (int64_t[]){1, 0});
  hr_operand place = hr_make2(b, HR_OP_SUB, HR_DTYPE_I64, run.first, r->start);
  place = hr_make2(b, HR_OP_ADD, HR_DTYPE_I64, row, place);
  run.is_there =
      hr_make2(b, HR_OP_LOGICAL_AND, HR_DTYPE_BOOL, hr_make2(b, HR_OP_GE, HR_DTYPE_BOOL, place, hr_build_i64(b, 0)),
               hr_make2(b, HR_OP_LT, HR_DTYPE_BOOL, place, r->size));
  return hr__make_sum_of_neighbours(b, x, &run, at, dtype);
}

hr_operand hr__make_sum_of_runs(hr_builder *b, hr_operand x, int at, const hr__runs *r, hr_dtype dtype) {
  if (!hr_is_present(x) || !hr_is_present(r->start) || !hr_is_present(r->size)) {
    return (hr_operand){0};
  }
  return r->width <= SHORT ? pick_sums(b, x, at, r, dtype) : make_long_sums(b, x, at, r, dtype);
}
