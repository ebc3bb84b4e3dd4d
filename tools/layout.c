/* layout.c: see layout.h. */
#include "layout.h"

#include <math.h>

#include "base/allocator.h"

enum { GAP_X = 24, GAP_Y = 34, PLACE_WIDTH = 6, PLACES_MAX = 1 << 15, SWEEPS = 8 };

/* Neighbours of boxes in the next layer, or the one before: those of box b begin at first[b] in `all`. */
typedef struct neighbours {
  int *first, *all;
} neighbours;

typedef struct arrangement {
  layout *l;
  int layer_count;
  int *layer_first, *order; /* boxes by layer, from left to right; those of layer k begin at layer_first[k] */
  neighbours before, behind;
  int *middle;    /* by layer: the box in the middle */
  double *wanted; /* by box */
} arrangement;

/* ---- layers ---- */

static int most(int a, int b) {
  return a > b ? a : b;
}

/* The longest path from the top. Arrows are in the order of their targets, so that the layer of `from` is known. */
static void sink_from_top(layout *l) {
  for (size_t a = 0; a < l->arrows.count; ++a) {
    const layout_arrow *arrow = &l->arrows.data[a];
    l->boxes.data[arrow->to].layer = most(l->boxes.data[arrow->to].layer, l->boxes.data[arrow->from].layer + 1);
  }
}

/* A box's knowledge of the arrows behind it. */
typedef struct outlook {
  int arrows, layer; /* layer: of the nearest target */
} outlook;

/* From the bottom: a box moves to right above its first target, unless more arrows become longer than shorter. */
static bool pull_down(layout *l) {
  outlook *behind = hr_calloc(l->boxes.count + 1, sizeof *behind);
  size_t a = l->arrows.count;
  for (size_t b = l->boxes.count; behind != NULL && b-- > 0;) {
    size_t end = a;
    for (; a > 0 && l->arrows.data[a - 1].to == (int)b;) {
      --a;
    }
    if (behind[b].arrows > 0 && (int)(end - a) <= behind[b].arrows) {
      l->boxes.data[b].layer = behind[b].layer - 1;
    }
    for (size_t i = a; i < end; ++i) {
      outlook *from = &behind[l->arrows.data[i].from];
      bool is_nearer = from->arrows++ == 0 || l->boxes.data[b].layer < from->layer;
      from->layer = is_nearer ? l->boxes.data[b].layer : from->layer;
    }
  }
  bool fits = behind != NULL;
  hr_free(behind);
  return fits;
}

/* Places of long arrows in the layers between; the picture has only some of them, so that it stays small. */
static bool add_places(layout *l) {
  int total = 0;
  for (size_t a = 0; a < l->arrows.count; ++a) {
    layout_arrow *arrow = &l->arrows.data[a];
    int begin = l->boxes.data[arrow->from].layer + 1, end = l->boxes.data[arrow->to].layer;
    arrow->first = (int)l->boxes.count, arrow->count = 0;
    if (total + end - begin > PLACES_MAX) {
      continue;
    }
    total += end - begin;
    for (int layer = begin; layer < end; ++layer, ++arrow->count) {
      if (!hr_vector_push(&l->boxes, (layout_box){.width = PLACE_WIDTH, .layer = layer})) {
        return false;
      }
    }
  }
  return true;
}

/* ---- neighbours ---- */

/* Calls add(arg, from, to) for each two neighbours along an arrow. */
static void each_link(const layout *l, void (*add)(void *arg, int from, int to), void *arg) {
  for (size_t a = 0; a < l->arrows.count; ++a) {
    const layout_arrow *arrow = &l->arrows.data[a];
    int from = arrow->from;
    for (int i = 0; i < arrow->count; ++i) {
      add(arg, from, arrow->first + i);
      from = arrow->first + i;
    }
    add(arg, from, arrow->to);
  }
}

static void count_link(void *arg, int from, int to) {
  arrangement *r = arg;
  ++r->behind.first[from + 1];
  ++r->before.first[to + 1];
}

static void keep_link(void *arg, int from, int to) {
  arrangement *r = arg;
  r->behind.all[r->behind.first[from]++] = to;
  r->before.all[r->before.first[to]++] = from;
}

/* Sums of counts; after keep_link they have moved on by one box, and `first` moves back. */
static void sum_counts(int *first, size_t count) {
  for (size_t b = 0; b < count; ++b) {
    first[b + 1] += first[b];
  }
}
static void move_back(int *first, size_t count) {
  for (size_t b = count; b > 0; --b) {
    first[b] = first[b - 1];
  }
  first[0] = 0;
}

static bool find_neighbours(arrangement *r) {
  const layout *l = r->l;
  size_t boxes = l->boxes.count, links = boxes + l->arrows.count; /* a place has one link behind it */
  r->before = (neighbours){hr_calloc(boxes + 1, sizeof(int)), hr_calloc(links + 1, sizeof(int))};
  r->behind = (neighbours){hr_calloc(boxes + 1, sizeof(int)), hr_calloc(links + 1, sizeof(int))};
  if (r->before.first == NULL || r->before.all == NULL || r->behind.first == NULL || r->behind.all == NULL) {
    return false;
  }
  each_link(l, count_link, r);
  sum_counts(r->before.first, boxes);
  sum_counts(r->behind.first, boxes);
  each_link(l, keep_link, r);
  move_back(r->before.first, boxes);
  move_back(r->behind.first, boxes);
  return true;
}

/* ---- places in a layer ---- */

static bool sort_into_layers(arrangement *r) {
  const layout *l = r->l;
  for (size_t b = 0; b < l->boxes.count; ++b) {
    r->layer_count = most(r->layer_count, l->boxes.data[b].layer + 1);
  }
  r->layer_first = hr_calloc((size_t)r->layer_count + 2, sizeof(int));
  r->order = hr_calloc(l->boxes.count + 1, sizeof(int));
  r->middle = hr_calloc((size_t)r->layer_count + 1, sizeof(int));
  r->wanted = hr_calloc(l->boxes.count + 1, sizeof(double));
  if (r->layer_first == NULL || r->order == NULL || r->middle == NULL || r->wanted == NULL) {
    return false;
  }
  for (size_t b = 0; b < l->boxes.count; ++b) {
    ++r->layer_first[l->boxes.data[b].layer + 1];
  }
  sum_counts(r->layer_first, (size_t)r->layer_count);
  for (size_t b = 0; b < l->boxes.count; ++b) {
    r->order[r->layer_first[l->boxes.data[b].layer]++] = (int)b;
  }
  move_back(r->layer_first, (size_t)r->layer_count);
  return true;
}

static double mean_place(const arrangement *r, const neighbours *n, int box) {
  double sum = 0;
  int count = n->first[box + 1] - n->first[box];
  for (int i = 0; i < count; ++i) {
    sum += r->l->boxes.data[n->all[n->first[box] + i]].x;
  }
  return count > 0 ? sum / count : r->l->boxes.data[box].x;
}

/* Insertion sort: a layer is nearly in order, and equal places keep theirs. */
static void sort_layer(const arrangement *r, int *order, int count) {
  for (int i = 1; i < count; ++i) {
    int box = order[i], k = i;
    for (; k > 0 && r->wanted[order[k - 1]] > r->wanted[box]; --k) {
      order[k] = order[k - 1];
    }
    order[k] = box;
  }
}

/* Boxes of a layer as near to the mean of their neighbours as their widths allow, on both sides of the one in the
 * middle. */
static void place_layer(arrangement *r, int layer, const neighbours *n) {
  int *order = r->order + r->layer_first[layer], count = r->layer_first[layer + 1] - r->layer_first[layer], middle = 0;
  for (int i = 0; i < count; ++i) {
    r->wanted[order[i]] = order[i] == r->middle[layer] ? 0 : mean_place(r, n, order[i]);
  }
  sort_layer(r, order, count);
  for (int i = 0; i < count; ++i) {
    middle = order[i] == r->middle[layer] ? i : middle;
  }
  layout_box *boxes = r->l->boxes.data;
  boxes[order[middle]].x = 0;
  for (int i = middle + 1; i < count; ++i) {
    layout_box *box = &boxes[order[i]], *left = &boxes[order[i - 1]];
    box->x = fmax(r->wanted[order[i]], left->x + (left->width + box->width) / 2.0 + GAP_X);
  }
  for (int i = middle - 1; i >= 0; --i) {
    layout_box *box = &boxes[order[i]], *right = &boxes[order[i + 1]];
    box->x = fmin(r->wanted[order[i]], right->x - (right->width + box->width) / 2.0 - GAP_X);
  }
}

/* A longest path, from its end: a box of each layer, which stands in the middle. */
static void find_middle(arrangement *r, int box_count) {
  int box = r->layer_count > 0 ? r->order[r->layer_first[r->layer_count - 1]] : 0;
  for (int k = r->layer_count - 1; k >= 0; --k) {
    r->middle[k] = box;
    const int *before = r->before.all + r->before.first[box];
    int count = r->before.first[box + 1] - r->before.first[box], next = count > 0 ? before[0] : -1;
    for (int i = 0; i < count && next >= box_count; ++i) { /* a place of an arrow, if there is no box */
      next = before[i];
    }
    box = next;
  }
}

static void place_boxes(arrangement *r) {
  for (int sweep = 0; sweep < SWEEPS; ++sweep) {
    for (int k = 0; k < r->layer_count; ++k) {
      place_layer(r, k, &r->before);
    }
    for (int k = r->layer_count - 1; k >= 0 && sweep + 1 < SWEEPS; --k) {
      place_layer(r, k, &r->behind);
    }
  }
}

/* Heights of layers, and a picture that begins at 0. */
static void finish_places(arrangement *r) {
  double left = 0, right = 0, y = 0;
  for (int k = 0; k < r->layer_count; ++k) {
    int height = 0;
    for (int i = r->layer_first[k]; i < r->layer_first[k + 1]; ++i) {
      layout_box *box = &r->l->boxes.data[r->order[i]];
      box->y = y;
      height = most(height, box->height);
      left = box->x - box->width / 2.0 < left || (k == 0 && i == 0) ? box->x - box->width / 2.0 : left;
      right = box->x + box->width / 2.0 > right || (k == 0 && i == 0) ? box->x + box->width / 2.0 : right;
    }
    y += height + GAP_Y;
  }
  for (size_t b = 0; b < r->l->boxes.count; ++b) {
    r->l->boxes.data[b].x -= left;
  }
  r->l->width = right - left, r->l->height = y > 0 ? y - GAP_Y : 0;
}

hr_status layout_arrange(layout *l) {
  arrangement r = {.l = l};
  int box_count = (int)l->boxes.count;
  sink_from_top(l);
  bool fits = pull_down(l) && add_places(l) && find_neighbours(&r) && sort_into_layers(&r);
  if (fits) {
    find_middle(&r, box_count);
    place_boxes(&r);
    finish_places(&r);
  }
  hr_free(r.before.first), hr_free(r.before.all), hr_free(r.behind.first), hr_free(r.behind.all);
  hr_free(r.layer_first), hr_free(r.order), hr_free(r.middle), hr_free(r.wanted);
  return fits ? HR_OK
              : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a picture of %zu boxes", l->boxes.count);
}

void layout_fini(layout *l) {
  hr_vector_fini(&l->boxes);
  hr_vector_fini(&l->arrows);
}
