/* sort.c: lines in order, and their largest or smallest values (order.h).
 *
 * Many lines are divided among the workers. One long line is cut into a run for each worker. The runs are merged in
 * pairs, and each merge is divided by places of its result. Elements are never equal, so the result does not depend on
 * the cuts.
 */
#include <string.h>

#include "providers/host/host.h"
#include "providers/host/order.h"

static const int64_t LONG_LINE = 1 << 16;

bool hr__sort_supports(const hr_node *node) {
  const hr_operand *x = &node->inputs[0];
  int64_t count = hr__operand_dim(x, 0);
  bool picks_too_many = node->op == HR_OP_TOPK &&
                        ((node->outputs[0].kind == HR_OPERAND_VALUE && hr__operand_dim(&node->outputs[0], 0) > count) ||
                         (node->output_count > 1 && node->outputs[1].kind == HR_OPERAND_VALUE &&
                          hr__operand_dim(&node->outputs[1], 0) > count));
  return !picks_too_many && hr__order_supports(x->dtype, count);
}

/* out[i] = line[place of element i], out_places[i] = the place itself, for i in [begin, end). */
static void put(const hr__order *order, hr_dtype dtype, const void *line, void *out, int64_t *out_places, int64_t begin,
                int64_t end) {
#define PUT(type)                                                       \
  for (int64_t i = begin; i < end; ++i) {                               \
    ((type *)out)[i] = ((const type *)line)[hr__order_place(order, i)]; \
  }
  if (out != NULL) {
    switch (hr_dtype_size(dtype)) {
      case 1:
        PUT(uint8_t)
        break;
      case 2:
        PUT(uint16_t)
        break;
      case 4:
        PUT(uint32_t)
        break;
      default:
        PUT(uint64_t)
        break;
    }
  }
#undef PUT
  for (int64_t i = begin; out_places != NULL && i < end; ++i) {
    out_places[i] = hr__order_place(order, i);
  }
}

/* ---- many lines ---- */

static hr_status sort_lines(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  const hr__tensor *x = &call->inputs[0];
  int64_t count = hr__dim(x, 0);
  for (int64_t line = begin; line < end; ++line) {
    hr__order order = hr__order_make(x->dtype, count, scratch, (char *)scratch + hr__order_bytes(x->dtype, count));
    const void *from = hr__item(x, line, count);
    hr__order_fill(&order, x->dtype, from, call->node->ints[0] != 0, 0, count);
    hr__order_sort(&order);
    put(&order, x->dtype, from, hr__item(&call->outputs[0], line, count), hr__item(&call->outputs[1], line, count), 0,
        count);
  }
  return HR_OK;
}

/* ---- long lines, each by all workers ---- */

static bool is_long(int64_t count, int64_t lines, int workers) {
  return count >= LONG_LINE && lines < workers;
}

typedef struct long_line {
  const hr__library_call *call;
  hr__order order;
  const void *from;
  void *out;
  int64_t *out_places;
  int64_t runs, width; /* sorted runs, and the number of shares that each consists of by now */
} long_line;

static int64_t share_start(const long_line *l, int64_t share) {
  share = share < l->runs ? share : l->runs;
  return l->order.count * share / l->runs;
}

static void sort_runs(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  long_line *l = arg;
  size_t size = l->order.is_packed ? sizeof(uint64_t) : sizeof(hr__pair);
  for (int64_t run = begin; run < end; ++run) {
    int64_t first = share_start(l, run), last = share_start(l, run + 1);
    hr__order_fill(&l->order, l->call->inputs[0].dtype, l->from, l->call->node->ints[0] != 0, first, last);
    if (hr__order_sort_range(&l->order, first, last)) {
      memcpy((char *)l->order.elements + (size_t)first * size, (char *)l->order.other + (size_t)first * size,
             (size_t)(last - first) * size);
    }
  }
}

/* Share number `share` of the line, in the merge that contains it. */
static void merge_shares(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  long_line *l = arg;
  for (int64_t share = begin; share < end; ++share) {
    int64_t run = share / (2 * l->width) * 2 * l->width;
    int64_t a = share_start(l, run), b = share_start(l, run + l->width), c = share_start(l, run + 2 * l->width);
    hr__order_merge(&l->order, a, b, c, share_start(l, share) - a, share_start(l, share + 1) - a);
  }
}

static void put_shares(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  long_line *l = arg;
  put(&l->order, l->call->inputs[0].dtype, l->from, l->out, l->out_places, share_start(l, begin), share_start(l, end));
}

static void sort_long_line(long_line *l) {
  hr_parallel_for(l->runs, 1, sort_runs, l);
  for (l->width = 1; l->width < l->runs; l->width *= 2) {
    hr_parallel_for(l->runs, 1, merge_shares, l);
    void *swap = l->order.elements;
    l->order.elements = l->order.other;
    l->order.other = swap;
  }
  hr_parallel_for(l->runs, 1, put_shares, l);
}

size_t hr__sort_scratch(const hr_node *node, int workers) {
  const hr_operand *x = &node->inputs[0];
  int64_t count = hr__operand_dim(x, 0), lines = 1;
  for (int d = 0; d < x->rank - 1; ++d) {
    lines *= x->dims[d];
  }
  size_t bytes = 2 * hr__order_bytes(x->dtype, count);
  return is_long(count, lines, workers) ? bytes / (size_t)workers + 64 : bytes;
}

hr_status hr__sort_run(const hr__library_call *call) {
  const hr__tensor *x = &call->inputs[0];
  int64_t count = hr__dim(x, 0), lines = hr__items(x, 1);
  if (!is_long(count, lines, call->workers)) {
    return hr__library_spread(call, lines, count * 10, sort_lines);
  }
  for (int64_t line = 0; line < lines; ++line) {
    long_line l = {.call = call, .runs = call->workers};
    l.order = hr__order_make(x->dtype, count, call->scratch, (char *)call->scratch + hr__order_bytes(x->dtype, count));
    l.from = hr__item(x, line, count);
    l.out = hr__item(&call->outputs[0], line, count);
    l.out_places = hr__item(&call->outputs[1], line, count);
    sort_long_line(&l);
  }
  return HR_OK;
}

/* ---- top k ---- */

static int64_t topk_room(int64_t count, int64_t wanted) {
  int64_t room = hr__order_least_room(wanted);
  return wanted < count || room > count ? room : count;
}

static hr_status topk_lines(const hr__library_call *call, int64_t begin, int64_t end, void *scratch) {
  const hr__tensor *x = &call->inputs[0],
                   *sized = call->outputs[0].data != NULL ? &call->outputs[0] : &call->outputs[1];
  int64_t count = hr__dim(x, 0), wanted = hr__dim(sized, 0), room = topk_room(count, wanted);
  for (int64_t line = begin; line < end; ++line) {
    hr__order order = hr__order_make(x->dtype, count, scratch, (char *)scratch + hr__order_bytes(x->dtype, room));
    const void *from = hr__item(x, line, count);
    if (wanted < count) {
      hr__order_fill_least(&order, x->dtype, from, call->node->ints[0] != 0, wanted);
    } else {
      hr__order_fill(&order, x->dtype, from, call->node->ints[0] != 0, 0, count);
    }
    hr__order_sort(&order);
    put(&order, x->dtype, from, hr__item(&call->outputs[0], line, wanted), hr__item(&call->outputs[1], line, wanted), 0,
        wanted);
  }
  return HR_OK;
}

size_t hr__topk_scratch(const hr_node *node, int workers) {
  (void)workers;
  const hr_operand *x = &node->inputs[0], *sized = &node->outputs[0];
  sized = sized->kind == HR_OPERAND_VALUE ? sized : &node->outputs[1];
  return 2 * hr__order_bytes(x->dtype, topk_room(hr__operand_dim(x, 0), hr__operand_dim(sized, 0)));
}

hr_status hr__topk_run(const hr__library_call *call) {
  const hr__tensor *x = &call->inputs[0];
  return hr__library_spread(call, hr__items(x, 1), hr__dim(x, 0) * 2, topk_lines);
}
