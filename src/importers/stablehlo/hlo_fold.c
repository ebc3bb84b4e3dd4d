/* hlo_fold.c: elements along dims combined by any function of pairs, which is taken as associative, in their order.
 *
 * Along an axis neighbours become one, again and again: log2(n) steps over whole tensors. Windows have the elements of
 * spans of 1, 2, 4, ... elements, which are combined once for all windows.
 */
#include <math.h>

#include "functional/windows.h"
#include "importers/stablehlo/hlo.h"

static bool combine_by_region(hr__hlo *hlo, const hr__hlo_folder *folder, const hr_value *x, const hr_value *y,
                              hr_value *out) {
  return hr__hlo_combine_all(hlo, folder->region, folder->count, x, y, out);
}

hr__hlo_folder hr__hlo_folder_of(const hr__vhlo_region *region, int count) {
  return (hr__hlo_folder){.combine = combine_by_region, .region = region, .count = count};
}

hr_value hr__hlo_part(hr__hlo *hlo, hr_value x, int rank, const int64_t *dims, int axis, int64_t begin, int64_t count,
                      int64_t step) {
  int64_t begins[HR_RANK_MAX] = {0}, counts[HR_RANK_MAX], steps[HR_RANK_MAX];
  if (begin == 0 && step == 1 && count == dims[axis]) {
    return x;
  }
  for (int d = 0; d < rank; ++d) {
    counts[d] = dims[d], steps[d] = 1;
  }
  begins[axis] = begin, counts[axis] = count, steps[axis] = step;
  return ADD(hlo, SLICE, IN(x),
             WITH(hr__with_ints("begin", rank, begins), hr__with_ints("count", rank, counts),
                  hr__with_ints("step", rank, steps)));
}

/* ---- along an axis ---- */

static void parts(hr__hlo *hlo, int operands, const hr_value *x, int rank, const int64_t *dims, int axis, int64_t begin,
                  int64_t count, int64_t step, hr_value *out) {
  for (int i = 0; i < operands; ++i) {
    out[i] = hr__hlo_part(hlo, x[i], rank, dims, axis, begin, count, step);
  }
}

/* An element that has no neighbour comes last, in front of those of earlier steps. */
void hr__hlo_fold(hr__hlo *hlo, const hr__hlo_folder *folder, hr_value *values, int rank, int64_t *dims, int axis) {
  hr_value rest[HR__HLO_OPERANDS_MAX], first[HR__HLO_OPERANDS_MAX], second[HR__HLO_OPERANDS_MAX];
  bool has_rest = false;
  while (dims[axis] > 1 && !hr__hlo_failed(hlo)) {
    int64_t half = dims[axis] / 2;
    if (dims[axis] % 2 != 0) {
      parts(hlo, folder->count, values, rank, dims, axis, dims[axis] - 1, 1, 1, has_rest ? first : rest);
      if (has_rest && !folder->combine(hlo, folder, first, rest, rest)) {
        return;
      }
      has_rest = true;
    }
    parts(hlo, folder->count, values, rank, dims, axis, 0, half, 2, first);
    parts(hlo, folder->count, values, rank, dims, axis, 1, half, 2, second);
    if (!folder->combine(hlo, folder, first, second, values)) {
      return;
    }
    dims[axis] = half;
  }
  if (has_rest) {
    folder->combine(hlo, folder, values, rest, values);
  }
}

/* ---- windows ---- */

typedef struct windows {
  const hr__hlo_folder *folder;
  int rank, axis;
  int64_t count, stride, dilation; /* windows */
  bool has_any;
  hr_value *out; /* elements of windows that are combined */
} windows;

/* The elements `at` of all windows, of tensors with these dims, are combined with those before. */
static bool take_elements(hr__hlo *hlo, windows *w, const hr_value *x, const int64_t *dims, int64_t at) {
  hr_value next[HR__HLO_OPERANDS_MAX];
  int count = w->folder->count;
  parts(hlo, count, x, w->rank, dims, w->axis, at * w->dilation, w->count, w->stride, w->has_any ? next : w->out);
  bool is_first = !w->has_any;
  w->has_any = true;
  return is_first || w->folder->combine(hlo, w->folder, w->out, next, w->out);
}

/* Spans of twice as many elements; in place. */
static bool double_spans(hr__hlo *hlo, const windows *w, hr_value *x, int64_t *dims, int64_t span) {
  hr_value first[HR__HLO_OPERANDS_MAX], second[HR__HLO_OPERANDS_MAX];
  int64_t distance = span * w->dilation, count = dims[w->axis] - distance;
  parts(hlo, w->folder->count, x, w->rank, dims, w->axis, 0, count, 1, first);
  parts(hlo, w->folder->count, x, w->rank, dims, w->axis, distance, count, 1, second);
  dims[w->axis] = count;
  return w->folder->combine(hlo, w->folder, first, second, x);
}

void hr__hlo_fold_windows(hr__hlo *hlo, const hr__hlo_folder *folder, hr_value *values, int rank, int64_t *dims,
                          int axis, int64_t size, int64_t stride, int64_t dilation) {
  enum { FEW = 4 }; /* elements of windows of which each is read */
  hr_value out[HR__HLO_OPERANDS_MAX];
  int64_t room = dims[axis] - 1 - (size - 1) * dilation;
  windows w = {.folder = folder, .rank = rank, .axis = axis, .stride = stride, .dilation = dilation, .out = out};
  w.count = room / stride + 1;
  bool is_fine = room >= 0 && !hr__hlo_failed(hlo), has_spans = size > FEW * stride;
  if (has_spans) {
    for (int64_t span = 1, at = 0; span <= size && is_fine; span *= 2) {
      bool is_used = (size & span) != 0;
      is_fine = !is_used || take_elements(hlo, &w, values, dims, at);
      at += is_used ? span : 0;
      is_fine = is_fine && (span > size / 2 || double_spans(hlo, &w, values, dims, span));
    }
  } else {
    for (int64_t at = 0; at < size && is_fine; ++at) {
      is_fine = take_elements(hlo, &w, values, dims, at);
    }
  }
  for (int i = 0; i < folder->count && is_fine; ++i) {
    values[i] = out[i];
  }
  dims[axis] = w.count;
}

/* ---- values to begin with ---- */

bool hr__hlo_is_identity(hr__hlo_combiner combiner, hr_dtype dtype, const hr_scalar *number) {
  if (combiner == HR__HLO_MAX || combiner == HR__HLO_MIN) {
    hr_scalar least = hr__extreme(dtype, combiner == HR__HLO_MIN);
    return least.dtype == number->dtype && memcmp(&least.value, &number->value, sizeof least.value.i) == 0;
  }
  bool is_float = number->dtype == HR_DTYPE_F64 || number->dtype == HR_DTYPE_C128;
  if (combiner == HR__HLO_SECOND || (number->dtype == HR_DTYPE_C128 && number->value.f[1] != 0)) {
    return false;
  }
  if (combiner == HR__HLO_ADD && is_float) { /* 0 + -0 is 0 */
    return number->value.f[0] == 0 && signbit(number->value.f[0]) &&
           (number->dtype == HR_DTYPE_F64 || signbit(number->value.f[1]));
  }
  bool is_one = combiner == HR__HLO_MULTIPLY || combiner == HR__HLO_AND;
  return is_float ? number->value.f[0] == is_one : number->value.i == is_one;
}

hr_value hr__hlo_begin_with(hr__hlo *hlo, hr__hlo_combiner combiner, int index, hr_dtype dtype, hr_value x) {
  hr_scalar number;
  bool is_known = hr__hlo_number_of(hlo, hlo->op->operands[index], &number);
  return is_known && hr__hlo_is_identity(combiner, dtype, &number)
             ? x
             : hr__hlo_combine(hlo, combiner, hr__hlo_input(hlo, index), x);
}
