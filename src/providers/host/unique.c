/* unique.c: the distinct rows of a matrix: sorted, or without consecutive duplicates only.
 *
 * Rows of one element are sorted by their keys (order.h), longer ones by merging, compared element by element. NaN
 * differs from everything, itself included.
 */
#include <string.h>

#include "core/ops/op.h"
#include "providers/host/host.h"
#include "providers/host/order.h"

typedef struct rows {
  hr_dtype dtype;
  int64_t count, width;
  size_t size;
  const char *data;
} rows;

bool hr__unique_supports(const hr_node *node) {
  return hr__order_supports(node->inputs[0].dtype, hr__operand_dim(&node->inputs[0], 1));
}

size_t hr__unique_scratch(const hr_node *node, int workers) {
  (void)workers;
  int64_t count = hr__operand_dim(&node->inputs[0], 1);
  return 2 * hr__order_bytes(node->inputs[0].dtype, count) + 2 * (size_t)count * sizeof(int64_t);
}

static uint64_t key_at(const rows *r, int64_t row, int64_t column) {
  return hr__order_key_of(r->dtype, r->data + (size_t)(row * r->width + column) * r->size);
}

static int compare(const rows *r, int64_t a, int64_t b) {
  for (int64_t i = 0; i < r->width; ++i) {
    uint64_t left = key_at(r, a, i), right = key_at(r, b, i);
    if (left != right) {
      return left < right ? -1 : 1;
    }
  }
  return 0;
}

static uint64_t largest_key(const rows *r) {
  return r->size == 8 ? UINT64_MAX : (UINT64_C(1) << (8 * r->size)) - 1;
}

static bool has_nan(const rows *r, int64_t row) {
  uint64_t nan = largest_key(r);
  for (int64_t i = 0; hr_dtype_is_real(r->dtype) && i < r->width; ++i) {
    if (key_at(r, row, i) == nan) {
      return true;
    }
  }
  return false;
}

/* Row numbers in the order of their rows; equal rows stay in order. */
static int64_t *merge_sort(const rows *r, int64_t *order, int64_t *other) {
  for (int64_t i = 0; i < r->count; ++i) {
    order[i] = i;
  }
  for (int64_t width = 1; width < r->count; width *= 2) {
    for (int64_t start = 0; start < r->count; start += 2 * width) {
      int64_t i = start, middle = start + width < r->count ? start + width : r->count;
      int64_t j = middle, end = start + 2 * width < r->count ? start + 2 * width : r->count;
      for (int64_t at = start; at < end; ++at) {
        bool takes_left = j >= end || (i < middle && compare(r, order[i], order[j]) <= 0);
        other[at] = takes_left ? order[i++] : order[j++];
      }
    }
    int64_t *swap = order;
    order = other;
    other = swap;
  }
  return order;
}

/* Rows of one number. out_differs[i]: number i of the order differs from the number before. */
static int64_t *sort_numbers(const rows *r, int64_t *order, bool *out_differs, void *scratch) {
  hr__order sorted = hr__order_make(r->dtype, r->count, scratch, (char *)scratch + hr__order_bytes(r->dtype, r->count));
  hr__order_fill(&sorted, r->dtype, r->data, false, 0, r->count);
  hr__order_sort(&sorted);
  bool is_real = hr_dtype_is_real(r->dtype);
  for (int64_t i = 0; i < r->count; ++i) {
    uint64_t key = hr__order_key(&sorted, i);
    order[i] = hr__order_place(&sorted, i);
    out_differs[i] = i == 0 || key != hr__order_key(&sorted, i - 1) || (is_real && key == largest_key(r));
  }
  return order;
}

/* Rows in an order (NULL: their own): marks rows that differ from the row before. */
static void compare_all(const rows *r, const int64_t *order, bool *out_differs) {
  for (int64_t i = 0, before = 0; i < r->count; ++i) {
    int64_t row = order != NULL ? order[i] : i;
    out_differs[i] = i == 0 || compare(r, before, row) != 0 || has_nan(r, row);
    before = row;
  }
}

hr_status hr__unique_run(const hr__library_call *call) {
  const hr__tensor *x = &call->inputs[0];
  rows r = {.dtype = x->dtype,
            .count = hr__dim(x, 1),
            .width = hr__dim(x, 0),
            .size = hr_dtype_size(x->dtype),
            .data = x->data};
  int64_t *numbers = call->scratch, *other = numbers + r.count, *order = NULL, unique = 0;
  int64_t *first = call->outputs[0].data, *inverse = call->outputs[1].data, *counts = call->outputs[2].data;
  bool is_sorted = call->node->ints[0] == 0, *differs = (bool *)(other + r.count);
  if (is_sorted && r.width == 1) {
    differs = (bool *)other;
    order = sort_numbers(&r, numbers, differs, other + r.count);
  } else if (r.width == 1) {
    hr__order_differ(r.dtype, r.data, r.count, differs);
  } else {
    order = is_sorted ? merge_sort(&r, numbers, other) : NULL;
    compare_all(&r, order, differs);
  }
  if (counts != NULL) {
    memset(counts, 0, (size_t)r.count * sizeof *counts);
  }
  for (int64_t i = 0; i < r.count; ++i) {
    int64_t row = order != NULL ? order[i] : i;
    first[unique] = row; /* overwritten later if the row is a duplicate: no branch depends on data */
    unique += differs[i];
    if (counts != NULL) {
      ++counts[unique - 1];
    }
    if (inverse != NULL) {
      inverse[row] = unique - 1;
    }
  }
  memset(first + unique, 0, (size_t)(r.count - unique) * sizeof *first);
  ((int64_t *)call->outputs[3].data)[0] = unique;
  return HR_OK;
}
