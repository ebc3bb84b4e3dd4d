/* select.c: one value of a line (the k-th, the median, the most frequent), running extremes, and places in ordered
 * lines. */
#include <string.h>

#include "base/integer.h"
#include "core/math/convert.h"
#include "providers/host/host.h"
#include "providers/host/order.h"

/* True if the largest key is NaN's, which only floating point numbers have. */
static bool is_nan(hr_dtype dtype, const hr__order *order, uint64_t key) {
  uint64_t largest = order->key_bits == 64 ? UINT64_MAX : (UINT64_C(1) << order->key_bits) - 1;
  return hr_dtype_is_real(dtype) && key == largest;
}

bool hr__line_supports(const hr_node *node) {
  const hr_operand *x = &node->inputs[0];
  int64_t count = hr__operand_dim(x, 0);
  bool is_inside = node->op != HR_OP_KTH || node->ints[0] != 0 || (node->ints[1] >= 0 && node->ints[1] < count);
  return hr__order_supports(x->dtype, count) && count > 0 && is_inside;
}

size_t hr__line_scratch(const hr_node *node, int workers) {
  (void)workers;
  const hr_operand *x = &node->inputs[0];
  return 2 * hr__order_bytes(x->dtype, hr__operand_dim(x, 0));
}

static hr__order fill_line(const hr__library_call *call, int64_t line, void *scratch) {
  const hr__tensor *x = &call->inputs[0];
  int64_t count = hr__dim(x, 0);
  hr__order order = hr__order_make(x->dtype, count, scratch, (char *)scratch + hr__order_bytes(x->dtype, count));
  hr__order_fill(&order, x->dtype, hr__item(x, line, count), false, 0, count);
  return order;
}

static void put_one(const hr__library_call *call, int64_t line, int64_t place) {
  const hr__tensor *x = &call->inputs[0];
  size_t size = hr_dtype_size(x->dtype);
  if (call->outputs[0].data != NULL) {
    memcpy(hr__item(&call->outputs[0], line, 1), hr__item(x, line * hr__dim(x, 0) + place, 1), size);
  }
  if (call->outputs[1].data != NULL) {
    ((int64_t *)call->outputs[1].data)[line] = place;
  }
}

/* ---- the k-th, medians ---- */

enum { KTH, MEDIAN, NAN_MEDIAN, LONG_LINE = 8192 };

/* The rank of the wanted value among `count` with this many NaN, which are the largest. */
static int64_t rank_of(const hr__library_call *call, int64_t count, int64_t nans) {
  int64_t kind = call->node->ints[0];
  if (kind == KTH) {
    return call->node->ints[1];
  }
  if (kind == MEDIAN && nans > 0) {
    return count - nans;
  }
  return nans < count ? (count - nans - 1) / 2 : 0;
}

/* The whole line in order, and the wanted value's rank. */
static hr__order fill_all(const hr__library_call *call, int64_t line, void *scratch, int64_t *out_rank) {
  hr__order order = fill_line(call, line, scratch);
  int64_t nans = 0;
  for (int64_t i = 0; call->node->ints[0] != KTH && i < order.count; ++i) {
    nans += is_nan(call->inputs[0].dtype, &order, hr__order_key(&order, i));
  }
  *out_rank = rank_of(call, order.count, nans);
  return order;
}

/* Of a long line only the values that begin with the wanted one's bits, and its rank among them. */
static hr__order fill_near(const hr__library_call *call, int64_t line, void *scratch, int64_t *out_rank) {
  const hr__tensor *x = &call->inputs[0];
  int64_t count = hr__dim(x, 0), nans;
  uint32_t counts[1 << HR__ORDER_BIN_BITS];
  hr__order order = hr__order_make(x->dtype, count, scratch, (char *)scratch + hr__order_bytes(x->dtype, count));
  hr__order_count(x->dtype, hr__item(x, line, count), count, counts, &nans);
  int64_t rank = rank_of(call, count, nans);
  uint64_t bin = 0;
  for (; rank >= counts[bin]; ++bin) {
    rank -= counts[bin];
  }
  hr__order_fill_bin(&order, x->dtype, hr__item(x, line, count), bin);
  *out_rank = rank;
  return order;
}

static hr_status kth_lines(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  bool is_long = hr__dim(&call->inputs[0], 0) >= LONG_LINE;
  for (int64_t line = begin; line < end; ++line) {
    int64_t rank, at = 0;
    hr__order order = is_long ? fill_near(call, line, scratch, &rank) : fill_all(call, line, scratch, &rank);
    hr__order_select(&order, rank + 1);
    for (int64_t i = 1; i < order.count; ++i) { /* of equal keys the later place is the larger */
      at = hr__order_key(&order, i) >= hr__order_key(&order, at) ? i : at;
    }
    put_one(call, line, hr__order_place(&order, at));
  }
  return HR_OK;
}

hr_status hr__kth_run(const hr__library_call *call) {
  const hr__tensor *x = &call->inputs[0];
  return hr__library_spread(call, hr__items(x, 1), hr__dim(x, 0) * 6, kth_lines);
}

/* ---- the most frequent ---- */

static hr_status mode_lines(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  for (int64_t line = begin; line < end; ++line) {
    hr__order order = fill_line(call, line, scratch);
    int64_t best = 0, most = 0, run = 0;
    bool real = hr_dtype_is_real(call->inputs[0].dtype);
    hr__order_sort(&order);
    for (int64_t i = 0; i < order.count; ++i) {
      uint64_t key = hr__order_key(&order, i);
      bool goes_on = i > 0 && key == hr__order_key(&order, i - 1) &&
                     !(real && is_nan(call->inputs[0].dtype, &order, key)); /* NaN does not equal NaN here */
      run = goes_on ? run + 1 : 1;
      if (run > most || (run == most && goes_on && best == i - 1)) {
        most = run;
        best = i;
      }
    }
    put_one(call, line, hr__order_place(&order, best));
  }
  return HR_OK;
}

hr_status hr__mode_run(const hr__library_call *call) {
  const hr__tensor *x = &call->inputs[0];
  return hr__library_spread(call, hr__items(x, 1), hr__dim(x, 0) * 10, mode_lines);
}

/* ---- running extremes: a NaN stays ---- */

#define TYPES(X) X(BOOL) X(U8) X(I8) X(U16) X(I16) X(U32) X(I32) X(U64) X(I64) X(F16) X(BF16) X(F32) X(F64)

/* A line's extremes so far and their places (or NULL): of equal ones the last, and the last NaN once there is one. */
#define DEFINE(D)                                                                                           \
  static inline __attribute__((always_inline)) void running_##D(                                            \
      const HR__MEMORY_##D *x, int64_t count, const bool is_max, HR__MEMORY_##D *values, int64_t *places) { \
    HR__MEMORY_##D kept = x[0];                                                                             \
    HR__TYPE_##D best = HR__LOAD_##D(kept);                                                                 \
    int64_t place = 0;                                                                                      \
    for (int64_t i = 0; i < count; ++i) {                                                                   \
      const HR__TYPE_##D next = HR__LOAD_##D(x[i]);                                                         \
      if ((next != next) | ((best == best) & (is_max ? next >= best : next <= best))) {                     \
        best = next, kept = x[i], place = i;                                                                \
      }                                                                                                     \
      if (values != NULL) {                                                                                 \
        values[i] = kept;                                                                                   \
      }                                                                                                     \
      if (places != NULL) {                                                                                 \
        places[i] = place;                                                                                  \
      }                                                                                                     \
    }                                                                                                       \
  }                                                                                                         \
  static void cumulate_##D(const void *x, int64_t count, bool is_max, void *values, int64_t *places) {      \
    if (is_max) {                                                                                           \
      running_##D(x, count, true, values, places);                                                          \
    } else {                                                                                                \
      running_##D(x, count, false, values, places);                                                         \
    }                                                                                                       \
  }
TYPES(DEFINE)

static void cumulate(const hr__library_call *call, int64_t line, bool is_max) {
  const hr__tensor *x = &call->inputs[0];
  int64_t count = hr__dim(x, 0);
  void *from = hr__item(x, line, count), *values = hr__item(&call->outputs[0], line, count),
       *places = hr__item(&call->outputs[1], line, count);
  switch (x->dtype) {
#define CUMULATE(D)                                    \
  case HR_DTYPE_##D:                                   \
    cumulate_##D(from, count, is_max, values, places); \
    break;
    TYPES(CUMULATE)
    default:
      break;
  }
}

static hr_status cummax_lines(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  for (int64_t line = begin; line < end; ++line) {
    cumulate(call, line, call->node->op == HR_OP_CUMMAX);
  }
  return HR_OK;
}

hr_status hr__cummax_run(const hr__library_call *call) {
  const hr__tensor *x = &call->inputs[0];
  return hr__library_spread(call, hr__items(x, 1), hr__dim(x, 0) * 5, cummax_lines);
}

hr_status hr__cummin_run(const hr__library_call *call) {
  return hr__cummax_run(call);
}

/* ---- places in ordered lines ---- */

bool hr__search_supports(const hr_node *node) {
  hr_dtype dtype = node->outputs[0].dtype;
  return hr__order_supports(node->inputs[0].dtype, 0) && (dtype == HR_DTYPE_I64 || dtype == HR_DTYPE_I32);
}

enum { SEARCH_BLOCK = 1024 }; /* values that one thread looks up at a time */

/* Keys order NaN after everything, as boundaries do. A boundary with an index outside of the line is an error of the
 * third input. */
static hr_status search_block(const hr__library_call *call, int64_t line, int64_t begin, int64_t end) {
  const hr__tensor *bounds = &call->inputs[0], *x = &call->inputs[1], *out = &call->outputs[0];
  int64_t count = hr__dim(bounds, 0), values = hr__dim(x, 0), found[SEARCH_BLOCK];
  size_t size = hr_dtype_size(bounds->dtype);
  const char *base = hr__item(bounds, line, count), *value = hr__item(x, line, values);
  const int64_t *places = hr__item(&call->inputs[2], line, count);
  bool behind = call->node->ints[0] != 0;
  if (places == NULL) {
    hr__order_search_all(bounds->dtype, base, count, value + (size_t)begin * size, end - begin, behind, found);
  }
  for (int64_t i = begin; i < end && places != NULL; ++i) {
    uint64_t key = hr__order_key_of(x->dtype, value + (size_t)i * size);
    found[i - begin] = hr__order_search(bounds->dtype, base, places, count, key, behind);
    if (found[i - begin] < 0) {
      return hr_status_make(HR_STATUS_OUT_OF_RANGE, "torch.searchsorted(): sorter index out of range");
    }
  }
  for (int64_t i = begin; i < end; ++i) {
    if (out->dtype == HR_DTYPE_I64) {
      ((int64_t *)out->data)[line * values + i] = found[i - begin];
    } else {
      ((int32_t *)out->data)[line * values + i] = (int32_t)found[i - begin];
    }
  }
  return HR_OK;
}

static int64_t search_blocks(const hr__tensor *x) { /* of a line */
  return hr_divide_up(hr__dim(x, 0), SEARCH_BLOCK);
}

static hr_status search_all(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  (void)scratch;
  const hr__tensor *x = &call->inputs[1];
  int64_t blocks = search_blocks(x), values = hr__dim(x, 0);
  for (int64_t item = begin; item < end; ++item) {
    int64_t first = item % blocks * SEARCH_BLOCK;
    int64_t last = first + SEARCH_BLOCK < values ? first + SEARCH_BLOCK : values;
    HR_RETURN_IF_ERROR(search_block(call, item / blocks, first, last));
  }
  return HR_OK;
}

hr_status hr__search_run(const hr__library_call *call) {
  const hr__tensor *x = &call->inputs[1];
  int64_t each = hr__dim(x, 0) < SEARCH_BLOCK ? hr__dim(x, 0) : SEARCH_BLOCK;
  return hr__library_spread(call, hr__items(x, 1) * search_blocks(x), each * 10, search_all);
}
