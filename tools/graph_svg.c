/* graph_svg.c: a graph as a picture: a box an operation, with its attributes, constants and the type of its result.
 *
 *        ( x  f32[n, 20] )
 *               |
 *      +-----------------+
 *      | matmul          |
 *      | w f32[20, 3]    |
 *      | -> f32[n, 3]    |
 *      +-----------------+
 */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "graph/graph_node.h"
#include "graph_svg.h"
#include "layout.h"
#include "svg.h"

enum { MARGIN = 24, ROW = 15, PADDING = 8, ROWS_MAX = 6, CHARS_MAX = 60, WIDTH_MIN = 90, BOXES_MAX = 20000 };
static const double char_width = 7.0; /* of 11 px monospace, if bold */

/* The rows of a box: its name, then what it needs. */
typedef struct card {
  int count;
  char rows[ROWS_MAX][CHARS_MAX + 4];
  const char *fill, *stroke;
} card;

typedef struct drawing {
  const hr_graph *graph;
  hr_text *text;
  layout layout;
  HR_VECTOR(card) cards; /* by box */
  int *boxes;            /* by node: its box; -1: it has none */
} drawing;

/* ---- rows ---- */

/* The next row, cut where it is too long. */
static void add_row(card *c, const char *chars) {
  size_t length = strlen(chars);
  if (c->count == ROWS_MAX || length == 0) {
    return;
  }
  snprintf(c->rows[c->count++], sizeof c->rows[0], length > CHARS_MAX ? "%.*s..." : "%.*s", CHARS_MAX, chars);
}

static void add_typed_row(const drawing *d, card *c, const char *name, hr_value value) {
  hr_text row = {0};
  hr_text_append(&row, name);
  hr_text_char(&row, ' ');
  hr__graph_print_type(d->graph, value, &row);
  add_row(c, hr_text_chars(&row));
  hr_text_fini(&row);
}

/* Constants have no boxes: they are rows of the operations that read them. */
typedef struct constant_rows {
  const drawing *d;
  card *c;
} constant_rows;

static void add_constant(void *arg, const hr_value *value) {
  const constant_rows *r = arg;
  const hr__node *node = hr__graph_node_of(r->d->graph, *value);
  if (node->kind == HR__NODE_CONSTANT) {
    const char *name = hr_graph_value_name(r->d->graph, *value);
    add_typed_row(r->d, r->c, name != NULL ? name : "constant", *value);
  }
}

static const char *title_of(const hr__node *node) {
  static const char *const titles[] = {
      [HR__NODE_SHAPE] = "shape", [HR__NODE_GRADIENT] = "gradient", [HR__NODE_READ] = "read", [HR__NODE_INNER] = "call",
      [HR__NODE_IF] = "if",       [HR__NODE_WHILE] = "while",       [HR__NODE_FOR] = "for",   [HR__NODE_SCAN] = "scan",
      [HR__NODE_VMAP] = "vmap"};
  return node->kind == HR__NODE_CALL ? hr_functional_name(node->function) : titles[node->kind];
}

/* Colours by the kind of work: control flow, products and convolutions, changes of shape, all others. */
static void colour(card *c, const hr__node *node) {
  static const char *const heavy[] = {"matmul", "conv", "attention", "einsum", "linear", "lstm", "gru", "rnn"};
  static const char *const views[] = {"reshape",   "transpose", "slice",  "concat", "squeeze", "expand", "shape",
                                      "broadcast", "take",      "gather", "pad",    "split",   "astype", "stack"};
  const char *title = title_of(node);
  bool has_inner = hr__node_is_control(node);
  c->fill = has_inner ? "#e8e0f4" : "#dcf2dc", c->stroke = has_inner ? "#7a5aa6" : "#3b8f3b";
  for (size_t i = 0; i < sizeof heavy / sizeof *heavy; ++i) {
    if (strstr(title, heavy[i]) != NULL) {
      c->fill = "#d6e6fa", c->stroke = "#2f6db5";
    }
  }
  for (size_t i = 0; i < sizeof views / sizeof *views; ++i) {
    if (strstr(title, views[i]) != NULL) {
      c->fill = "#f0f0ea", c->stroke = "#8a8a7c";
    }
  }
}

static void fill_operation(const drawing *d, const hr__node *node, card *c) {
  hr_text attributes = {0};
  constant_rows rows = {d, c};
  add_row(c, title_of(node));
  if (node->kind == HR__NODE_CALL && hr__graph_print_attributes(d->graph, node, &attributes)) {
    add_row(c, hr_text_chars(&attributes));
  }
  hr_text_fini(&attributes);
  hr__node_each_input(node, add_constant, &rows);
  c->count -= c->count == ROWS_MAX;
  add_typed_row(d, c, "->", node->first);
  colour(c, node);
}

/* ---- boxes and arrows ---- */

static bool add_box(drawing *d, const card *c) {
  size_t longest = 0;
  for (int i = 0; i < c->count; ++i) {
    longest = strlen(c->rows[i]) > longest ? strlen(c->rows[i]) : longest;
  }
  int width = (int)((double)longest * char_width) + 2 * PADDING;
  const layout_box box = {.width = width < WIDTH_MIN ? WIDTH_MIN : width, .height = c->count * ROW + PADDING};
  return hr_vector_push(&d->layout.boxes, box) && hr_vector_push(&d->cards, *c);
}

static void add_arrow(void *arg, const hr_value *value) {
  drawing *d = arg;
  int from = d->boxes[hr__graph_value_of(d->graph, *value)->node], to = (int)d->layout.boxes.count - 1;
  for (size_t a = d->layout.arrows.count; from >= 0 && a-- > 0 && d->layout.arrows.data[a].to == to;) {
    from = d->layout.arrows.data[a].from == from ? -1 : from; /* there is one already */
  }
  if (from >= 0 && !hr_vector_push(&d->layout.arrows, (layout_arrow){.from = from, .to = to})) {
    d->text->failed = true;
  }
}

static bool add_node(drawing *d, size_t n) {
  const hr__node *node = &d->graph->nodes.data[n];
  card c = {.count = 0, .fill = "#fdf3d8", .stroke = "#c98a1b"};
  d->boxes[n] = -1;
  if (node->kind == HR__NODE_CONSTANT || node->kind == HR__NODE_NUMBER || node->kind == HR__NODE_SYMBOL) {
    return true;
  }
  if (node->kind == HR__NODE_INPUT || node->kind == HR__NODE_VARIABLE) {
    add_typed_row(d, &c, hr_graph_value_name(d->graph, node->first), node->first);
  } else {
    fill_operation(d, node, &c);
  }
  d->boxes[n] = (int)d->layout.boxes.count;
  bool fits = add_box(d, &c);
  if (fits) {
    hr__node_each_input(node, add_arrow, d);
  }
  return fits && !d->text->failed;
}

static bool add_output(drawing *d, int i) {
  card c = {.count = 0, .fill = "#f6dcdc", .stroke = "#b04a4a"};
  hr_value value = hr_graph_output_value(d->graph, i);
  add_typed_row(d, &c, hr_graph_output_name(d->graph, i), value);
  bool fits = add_box(d, &c);
  if (fits) {
    add_arrow(d, &value);
  }
  return fits && !d->text->failed;
}

static bool add_boxes(drawing *d) {
  d->boxes = hr_calloc(d->graph->nodes.count + 1, sizeof *d->boxes);
  bool fits = d->boxes != NULL;
  for (size_t n = 0; fits && n < d->graph->nodes.count; ++n) {
    fits = add_node(d, n);
  }
  for (int i = 0; fits && i < hr_graph_output_count(d->graph); ++i) {
    fits = add_output(d, i);
  }
  return fits;
}

/* ---- SVG ---- */

/* A vertical curve to the next place of an arrow. */
static void put_curve(hr_text *text, double from_y, double x, double y, double from_x) {
  double middle = (from_y + y) / 2;
  hr_text_printf(text, " C%.1f %.1f %.1f %.1f %.1f %.1f", from_x, middle, x, middle, x, y);
}

static void draw_arrow(const drawing *d, const layout_arrow *arrow) {
  const layout_box *from = &d->layout.boxes.data[arrow->from], *to = &d->layout.boxes.data[arrow->to];
  double x = from->x + MARGIN, y = from->y + from->height + MARGIN;
  hr_text_printf(d->text, "<path d=\"M%.1f %.1f", x, y);
  for (int i = 0; i < arrow->count; ++i) {
    const layout_box *place = &d->layout.boxes.data[arrow->first + i];
    put_curve(d->text, y, place->x + MARGIN, place->y + MARGIN, x);
    x = place->x + MARGIN, y = place->y + MARGIN;
  }
  put_curve(d->text, y, to->x + MARGIN, to->y + MARGIN - 5, x);
  hr_text_append(d->text, "\"/>\n");
}

static void draw_box(const drawing *d, size_t b) {
  const layout_box *box = &d->layout.boxes.data[b];
  const card *c = &d->cards.data[b];
  double left = box->x - box->width / 2.0 + MARGIN, top = box->y + MARGIN;
  hr_text_printf(d->text,
                 "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"%d\" fill=\"%s\" stroke=\"%s\"/>\n", left,
                 top, box->width, box->height, c->count > 1 ? 4 : box->height / 2, c->fill, c->stroke);
  for (int i = 0; i < c->count; ++i) {
    hr_text_printf(d->text, "<text x=\"%.1f\" y=\"%.1f\"%s>", left + PADDING, top + (i + 1) * ROW,
                   i == 0 ? " font-weight=\"bold\"" : "");
    svg_put_escaped(d->text, c->rows[i], sizeof c->rows[i]);
    hr_text_append(d->text, "</text>\n");
  }
}

static void draw(const drawing *d) {
  int width = (int)d->layout.width + 2 * MARGIN, height = (int)d->layout.height + 2 * MARGIN;
  hr_text_printf(d->text,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"monospace\" "
                 "font-size=\"11\">\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n"
                 "<defs><marker id=\"tip\" viewBox=\"0 0 6 6\" refX=\"1\" refY=\"3\" markerWidth=\"6\" "
                 "markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0 L6 3 L0 6 z\" fill=\"#888888\"/></marker></defs>\n"
                 "<g fill=\"none\" stroke=\"#888888\" marker-end=\"url(#tip)\">\n",
                 width, height, width, height);
  for (size_t a = 0; a < d->layout.arrows.count; ++a) {
    draw_arrow(d, &d->layout.arrows.data[a]);
  }
  hr_text_append(d->text, "</g>\n");
  for (size_t b = 0; b < d->cards.count; ++b) {
    draw_box(d, b);
  }
  hr_text_append(d->text, "</svg>\n");
}

hr_status graph_svg(const hr_graph *graph, hr_text *out) {
  drawing d = {.graph = graph, .text = out};
  int boxes = hr_graph_operation_count(graph) + hr_graph_input_count(graph) + hr_graph_output_count(graph);
  if (boxes > BOXES_MAX) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "a picture of %d operations, inputs and outputs; at most %d fit",
                          boxes, BOXES_MAX);
  }
  hr_status status = add_boxes(&d) ? layout_arrange(&d.layout)
                                   : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %d boxes", boxes);
  if (status == HR_OK) {
    draw(&d);
    status = hr_text_status(out);
  }
  layout_fini(&d.layout);
  hr_vector_fini(&d.cards);
  hr_free(d.boxes);
  return status;
}
