/* explain_svg.c: an explanation as a picture.
 *
 *   before and after          steps, in order                 temporaries
 *   weight 64x32  8.2 KB -->  +--------------------------+
 *                             | 0 matmul ...             |--%3 4.1 KB--.
 *                             +--------------------------+             |
 *                             | 1 relu, mse_loss ...     |<------------'
 *   loss  4 B            <--  +--------------------------+
 *
 * A line is the life of a value: from the step that makes it to the last one that reads it.
 *
 * Everything is laid out in rows of one font of known width, so that nothing overlaps. The height of a box in rows is
 * the maximum of its text and the values on either side. Lines right of the boxes use lanes, short ones near the boxes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocator.h"
#include "explain.h"
#include "svg.h"

enum {
  MARGIN = 20,
  ROW = 15, /* pixels a row of text */
  SIDE = 250,
  BOX_X = MARGIN + SIDE,
  BOX_WIDTH = 600,
  LANES_X = BOX_X + BOX_WIDTH + 240, /* between box and lanes: names of values */
  RIGHT_CHARS = 34,
  LANE = 9,
  GAP = 8,
  PORTS_MAX = 6, /* values drawn on a side of a box; the rest is one line of text */
  SIDE_CHARS = 34,
  TITLE_CHARS = 54, /* of 12 px monospace, 7.3 px each; beside the time */
  LABEL_CHARS = 78, /* of 11 px, 6.65 px each */
  HEAD = 150
};

static const char *const fills[KIND_COUNT] = {
    [KIND_LIBRARY] = "#d6e6fa", [KIND_LOOP] = "#dcf2dc", [KIND_COPY] = "#fdebc8", [KIND_CHECK] = "#f6dcdc"};
static const char *const strokes[KIND_COUNT] = {
    [KIND_LIBRARY] = "#2f6db5", [KIND_LOOP] = "#3b8f3b", [KIND_COPY] = "#c98a1b", [KIND_CHECK] = "#b04a4a"};
static const char *const line_colours[] = {"#4c78a8", "#b5651d", "#54855a", "#8e5ea2", "#a83f39", "#4f8f8f", "#7a6a53"};
enum { LINE_COLOURS = sizeof line_colours / sizeof *line_colours };

typedef struct box {
  int y, height, title_rows;
} box;

typedef struct life { /* of a temporary: a line in the right margin */
  int port;           /* the write */
  int first, last;    /* steps */
  int lane;
} life;

typedef struct picture {
  const explanation *e;
  hr_text *text;
  box *boxes;
  HR_VECTOR(life) lives;
  int *port_y; /* of each port that is drawn on the right, else 0 */
  int lane_count, width, height;
  double most; /* time, or bytes, of the largest step */
} picture;

/* ---- text ---- */

void svg_put_escaped(hr_text *text, const char *chars, size_t count) {
  for (size_t i = 0; i < count && chars[i] != '\0'; ++i) {
    const char *entity = chars[i] == '&' ? "&amp;" : chars[i] == '<' ? "&lt;" : chars[i] == '>' ? "&gt;" : NULL;
    unsigned char c = (unsigned char)chars[i];
    if (entity != NULL) {
      hr_text_append(text, entity);
    } else {
      hr_text_char(text, c < ' ' && c != '\n' ? ' ' : (char)c);
    }
  }
}

/* Text at a position, cut to `most` characters; `attributes` are the element's. */
static void put_text(const picture *p, int x, int y, const char *attributes, const char *chars, size_t most) {
  size_t length = strlen(chars);
  hr_text_printf(p->text, "<text x=\"%d\" y=\"%d\" %s>", x, y, attributes);
  svg_put_escaped(p->text, chars, length > most ? most - 1 : length);
  hr_text_append(p->text, length > most ? "&#8230;</text>\n" : "</text>\n");
}

/* The number of characters of `chars` that fit into a row of `most`: cut after a comma, if there is one. */
static size_t row_length(const char *chars, size_t most) {
  size_t length = strlen(chars), cut = most;
  if (length <= most) {
    return length;
  }
  while (cut > 1 && chars[cut - 1] != ' ') {
    --cut;
  }
  return cut > 1 ? cut : most;
}

/* A kernel is named after its recorded operations, a library call after its computation. */
static const char *title_of(const step_info *info) {
  bool has_operations = info->operations != NULL && info->operations[0] != '\0';
  return info->kind == KIND_LIBRARY || !has_operations ? info->label : info->operations;
}

static int count_rows(const char *chars, size_t most) {
  int rows = 0;
  for (; *chars != '\0' && rows < 3; ++rows) {
    chars += row_length(chars, most);
  }
  return rows;
}

/* ---- positions of values ---- */

/* A row of text beside a box: a value, or the number of further values. */
typedef struct side_row {
  int port; /* -1: the rest */
  bool is_write, is_both;
  int more;
  int64_t more_bytes;
} side_row;

enum { SIDE_ROWS_MAX = 2 * (PORTS_MAX + 1) };

static bool is_written_too(const explanation *e, const step_info *info, int buffer) {
  for (int i = 0; i < info->write_count; ++i) {
    if (e->ports.data[info->first_write + i].buffer == buffer) {
      return true;
    }
  }
  return false;
}

static bool is_read_before(const explanation *e, const step_info *info, int buffer) {
  for (int i = 0; i < info->read_count; ++i) {
    const port *p = &e->ports.data[info->first_read + i];
    if (p->buffer == buffer && p->other == NO_STEP) {
      return true;
    }
  }
  return false;
}

/* Left: reads of values from before the program, and writes of values that outlive it; values that are both have one
 * row. Right: reads of earlier steps' results, and writes that a later step reads. */
static bool is_shown(const explanation *e, const step_info *info, const port *p, bool is_write, bool is_left) {
  if (!is_left) {
    return p->other != NO_STEP;
  }
  return is_write ? e->buffers.data[p->buffer].home != HOME_ARENA && !is_read_before(e, info, p->buffer)
                  : p->other == NO_STEP;
}

static int collect_rows(const explanation *e, const step_info *info, bool is_left, side_row *rows) {
  int count = 0;
  for (int is_write = 0; is_write < 2; ++is_write) {
    int shown = 0;
    for (int i = 0; i < (is_write ? info->write_count : info->read_count); ++i) {
      int at = (is_write ? info->first_write : info->first_read) + i;
      const port *p = &e->ports.data[at];
      if (!is_shown(e, info, p, is_write, is_left)) {
        continue;
      }
      if (shown++ < PORTS_MAX) {
        bool is_both = is_left && !is_write && is_written_too(e, info, p->buffer);
        rows[count++] = (side_row){.port = at, .is_write = is_write, .is_both = is_both};
        continue;
      }
      if (shown == PORTS_MAX + 1) {
        rows[count++] = (side_row){.port = -1, .is_write = is_write};
      }
      ++rows[count - 1].more;
      rows[count - 1].more_bytes += p->bytes;
    }
  }
  return count;
}

static double weight_of(const explanation *e, const step_info *info) {
  return e->repeat > 0 ? info->us : (double)(info->cost->bytes_read + info->cost->bytes_written);
}

static bool place_boxes(picture *p) {
  const explanation *e = p->e;
  int y = MARGIN + HEAD;
  p->boxes = hr_calloc(e->steps.count + 1, sizeof *p->boxes);
  p->port_y = hr_calloc(e->ports.count + 1, sizeof *p->port_y);
  if (p->boxes == NULL || p->port_y == NULL) {
    return false;
  }
  for (size_t s = 0; s < e->steps.count; ++s) {
    const step_info *info = &e->steps.data[s];
    box *b = &p->boxes[s];
    side_row side[SIDE_ROWS_MAX];
    int left = collect_rows(e, info, true, side), right = collect_rows(e, info, false, side);
    b->title_rows = count_rows(title_of(info), TITLE_CHARS);
    int rows = b->title_rows + (info->kind == KIND_LIBRARY ? 1 : 2);
    rows = rows > left ? rows : left;
    rows = rows > right ? rows : right;
    b->y = y;
    b->height = rows * ROW + 12;
    y += b->height + GAP;
    p->most = weight_of(e, info) > p->most ? weight_of(e, info) : p->most;
  }
  p->height = y + MARGIN;
  return true;
}

/* ---- lanes ---- */

static bool lanes_meet(const life *a, const life *b) {
  return a->lane == b->lane && a->first <= b->last && b->first <= a->last;
}

static void choose_lane(picture *p, size_t at) {
  life *l = &p->lives.data[at];
  for (bool is_free = false; !is_free; l->lane += !is_free) {
    is_free = true;
    for (size_t i = 0; i < at && is_free; ++i) {
      is_free = !lanes_meet(&p->lives.data[i], l);
    }
  }
  p->lane_count = l->lane + 1 > p->lane_count ? l->lane + 1 : p->lane_count;
}

static bool place_lives(picture *p) {
  const explanation *e = p->e;
  for (int s = 0; s < (int)e->steps.count; ++s) {
    const step_info *info = &e->steps.data[s];
    for (int i = 0; i < info->write_count; ++i) {
      int at = info->first_write + i;
      if (e->ports.data[at].other != NO_STEP &&
          !hr_vector_push(&p->lives, (life){.port = at, .first = s, .last = e->ports.data[at].other})) {
        return false;
      }
    }
  }
  for (size_t i = 1; i < p->lives.count; ++i) { /* short lives first */
    life l = p->lives.data[i];
    size_t at = i;
    for (; at > 0 && p->lives.data[at - 1].last - p->lives.data[at - 1].first > l.last - l.first; --at) {
      p->lives.data[at] = p->lives.data[at - 1];
    }
    p->lives.data[at] = l;
  }
  for (size_t i = 0; i < p->lives.count; ++i) {
    choose_lane(p, i);
  }
  p->width = LANES_X + (p->lane_count + 1) * LANE + MARGIN;
  return true;
}

/* ---- drawing ---- */

static void put_head(const picture *p) {
  const explanation *e = p->e;
  hr_text line = {0};
  hr_text_printf(
      p->text,
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
      "font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"12\" xml:space=\"preserve\">\n"
      "<style>.s{font-size:11px;fill:#444}.g{font-size:11px;fill:#777}.r{text-anchor:end}.b{font-weight:bold}"
      ".l{fill:none}</style>\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      p->width, p->height, p->width, p->height);
  const char *name = strrchr(e->replay->path, '/');
  hr_text_printf(&line, "%s on %s: %d operations became %zu steps", name != NULL ? name + 1 : e->replay->path,
                 e->replay->device_name, e->record_count, e->steps.count);
  put_text(p, MARGIN, MARGIN + 16, "class=\"b\" font-size=\"18\"", hr_text_chars(&line), 100);
  hr_text_clear(&line);
  hr_text_append(&line, "A run reads ");
  explain_bytes(e->bytes_read, &line);
  hr_text_append(&line, " and writes ");
  explain_bytes(e->bytes_written, &line);
  hr_text_printf(&line, "; libraries compute %.3g GFLOP. %d temporaries, ", (double)e->library_flops * 1e-9,
                 e->vanished_count);
  explain_bytes(e->vanished_bytes, &line);
  hr_text_append(&line, ", never get memory; the others share ");
  explain_bytes(e->arena_bytes, &line);
  hr_text_append(&line, ".");
  put_text(p, MARGIN, MARGIN + 40, "class=\"s\"", hr_text_chars(&line), 200);
  hr_text_clear(&line);
  put_text(p, MARGIN, MARGIN + 57, "class=\"s\"",
           "Time runs down. Left of a step: values from before, and values that stay. Right: temporaries, with lines "
           "from the step that makes one to its readers.",
           200);
  put_text(p, MARGIN, MARGIN + 74, "class=\"s\"",
           "Bold: recorded operations; (part): other steps do the rest. Below: the kernel and its dims; those in "
           "brackets are reduced.",
           200);
  if (e->repeat > 0) {
    hr_text_printf(&line, "Times are medians of %d runs, %.1f us in all; the bar in a box is its share of the longest.",
                   e->repeat, e->total_us);
  } else {
    hr_text_append(&line, "The bar in a box is its share of the bytes of the largest step.");
  }
  put_text(p, MARGIN, MARGIN + 91, "class=\"s\"", hr_text_chars(&line), 200);
  hr_text_fini(&line);
}

static void put_legend(const picture *p) {
  for (int kind = 0, x = MARGIN; kind < KIND_COUNT; ++kind) {
    hr_text label = {0};
    hr_text_printf(&label, "%d %s%s", p->e->counts[kind], kind == KIND_LIBRARY ? "library call" : kind_names[kind],
                   p->e->counts[kind] == 1 ? "" : "s");
    if (kind == KIND_COPY && p->e->counts[kind] != 1) {
      hr_text_clear(&label);
      hr_text_printf(&label, "%d copies", p->e->counts[kind]);
    }
    hr_text_printf(p->text, "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" fill=\"%s\" stroke=\"%s\"/>\n", x,
                   MARGIN + 109, fills[kind], strokes[kind]);
    put_text(p, x + 20, MARGIN + 120, "", hr_text_chars(&label), 40);
    x += 20 + (int)label.length * 8 + 24;
    hr_text_fini(&label);
  }
}

static void put_arrow(const picture *p, int x, int y, bool points_right, const char *colour) {
  int back = points_right ? -6 : 6;
  hr_text_printf(p->text, "<path d=\"M%d %d l%d -3.5 v7 z\" fill=\"%s\"/>\n", x, y, back, colour);
}

static void name_row(const explanation *e, const side_row *row, bool is_left, hr_text *name) {
  if (row->port < 0) {
    hr_text_printf(name, "%d more %s, ", row->more, row->is_write ? "written" : "read");
    explain_bytes(row->more_bytes, name);
    return;
  }
  const port *p = &e->ports.data[row->port];
  if (!is_left && !row->is_write) {
    hr_text_printf(name, "%%%d of step %d", p->buffer, p->other);
    return;
  }
  hr_text_printf(name, "%%%d %s  ", p->buffer, e->buffers.data[p->buffer].shape);
  explain_bytes(p->bytes, name);
}

static void put_left(const picture *p, int step) {
  side_row rows[SIDE_ROWS_MAX];
  int count = collect_rows(p->e, &p->e->steps.data[step], true, rows), y = p->boxes[step].y + 6 + ROW - 4;
  for (int i = 0; i < count; ++i, y += ROW) {
    hr_text name = {0};
    name_row(p->e, &rows[i], true, &name);
    put_text(p, BOX_X - 18, y, rows[i].port < 0 ? "class=\"g r\"" : "class=\"s r\"", hr_text_chars(&name), SIDE_CHARS);
    hr_text_printf(p->text, "<path d=\"M%d %d h14\" stroke=\"#777\"/>\n", BOX_X - 15, y - 4);
    if (rows[i].is_write || rows[i].is_both) {
      put_arrow(p, BOX_X - 15, y - 4, false, "#777");
    }
    if (!rows[i].is_write) {
      put_arrow(p, BOX_X, y - 4, true, "#777");
    }
    hr_text_fini(&name);
  }
}

/* Names of temporaries; their lines are drawn later. */
static void put_right(picture *p, int step) {
  side_row rows[SIDE_ROWS_MAX];
  int count = collect_rows(p->e, &p->e->steps.data[step], false, rows), y = p->boxes[step].y + 6 + ROW - 4;
  for (int i = 0; i < count; ++i, y += ROW) {
    bool is_new = rows[i].is_write && rows[i].port >= 0;
    hr_text name = {0};
    name_row(p->e, &rows[i], false, &name);
    put_text(p, BOX_X + BOX_WIDTH + 12, y - 1, is_new ? "class=\"s\"" : "class=\"g\"", hr_text_chars(&name),
             RIGHT_CHARS);
    if (rows[i].port >= 0) {
      p->port_y[rows[i].port] = y + 2;
    }
    hr_text_fini(&name);
  }
}

static void put_numbers(const picture *p, const step_info *info, int y) {
  const hr_step_cost *cost = info->cost;
  hr_text line = {0};
  hr_text_append(&line, "reads ");
  explain_bytes(cost->bytes_read, &line);
  hr_text_append(&line, ", writes ");
  explain_bytes(cost->bytes_written, &line);
  if (info->kind == KIND_LIBRARY && cost->flops > 0) {
    hr_text_printf(&line, ", %.*f %cFLOP", 1, (double)cost->flops * (cost->flops < 1000000000 ? 1e-6 : 1e-9),
                   cost->flops < 1000000000 ? 'M' : 'G');
  }
  if (info->vanished_count > 0) {
    hr_text_printf(&line, "; %d temporar%s in registers, ", info->vanished_count,
                   info->vanished_count == 1 ? "y" : "ies");
    explain_bytes(info->vanished_bytes, &line);
  }
  put_text(p, BOX_X + 48, y, "class=\"g\"", hr_text_chars(&line), LABEL_CHARS);
  hr_text_fini(&line);
}

static void put_time(const picture *p, const step_info *info, int y) {
  if (p->e->repeat == 0) {
    return;
  }
  hr_text line = {0};
  hr_text_printf(&line, "%.1f us %4.1f %%", info->us, 100 * info->us / (p->e->total_us > 0 ? p->e->total_us : 1));
  put_text(p, BOX_X + BOX_WIDTH - 10, y, "class=\"r\"", hr_text_chars(&line), 24);
  hr_text_fini(&line);
}

static void put_box(picture *p, int step) {
  const step_info *info = &p->e->steps.data[step];
  const box *b = &p->boxes[step];
  int y = b->y + 6 + ROW - 4;
  int bar = p->most > 0 ? (int)(weight_of(p->e, info) / p->most * (BOX_WIDTH - 2)) : 0;
  hr_text tip = {0};
  char number[16];
  explain_step(p->e, step, &tip);
  hr_text_append(p->text, "<g><title>");
  svg_put_escaped(p->text, hr_text_chars(&tip), tip.length);
  hr_text_printf(p->text,
                 "</title>\n<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"4\" fill=\"%s\" stroke=\"%s\"/>\n"
                 "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"4\" fill=\"%s\"/>\n",
                 BOX_X, b->y, BOX_WIDTH, b->height, fills[info->kind], strokes[info->kind], BOX_X + 1,
                 b->y + b->height - 5, bar, strokes[info->kind]);
  snprintf(number, sizeof number, "%d", step);
  put_text(p, BOX_X + 38, y, "class=\"r\" fill=\"#777\"", number, sizeof number);
  put_time(p, info, y);
  const char *title = title_of(info);
  for (int row = 0; row < b->title_rows; ++row, y += ROW) {
    size_t length = row_length(title, TITLE_CHARS);
    bool is_cut = row + 1 == b->title_rows && title[length] != '\0';
    hr_text line = {0};
    hr_text_append_bytes(&line, title, length);
    hr_text_append(&line, is_cut ? "..." : "");
    put_text(p, BOX_X + 48, y, "class=\"b\"", hr_text_chars(&line), TITLE_CHARS + 3);
    hr_text_fini(&line);
    title += length;
  }
  if (info->kind != KIND_LIBRARY) {
    put_text(p, BOX_X + 48, y, "class=\"s\"", info->label, LABEL_CHARS);
    y += ROW;
  }
  put_numbers(p, info, y);
  hr_text_append(p->text, "</g>\n");
  hr_text_fini(&tip);
}

/* A line from the box that makes a value down its lane, with an arrow into each box that reads it. */
static void put_life(const picture *p, const life *l, int number) {
  const explanation *e = p->e;
  const char *colour = line_colours[number % LINE_COLOURS];
  int x = LANES_X + (l->lane + 1) * LANE, from = p->port_y[l->port], to = from, edge = BOX_X + BOX_WIDTH;
  if (from == 0) {
    return;
  }
  hr_text arrows = {0};
  for (int s = l->first + 1; s <= l->last; ++s) {
    const step_info *info = &e->steps.data[s];
    for (int i = 0; i < info->read_count + info->write_count; ++i) {
      int at = info->first_read + i;
      bool reaches = i < info->read_count ? e->ports.data[at].other == l->first : s == l->last; /* or writes a part */
      if (reaches && e->ports.data[at].buffer == e->ports.data[l->port].buffer && p->port_y[at] != 0) {
        to = p->port_y[at];
        hr_text_printf(&arrows, "M%d %d H%d ", x, to, edge + 2);
      }
    }
  }
  hr_text_printf(p->text, "<path class=\"l\" stroke=\"%s\" d=\"M%d %d H%d V%d %s\"/>\n", colour, edge, from, x, to,
                 hr_text_chars(&arrows));
  for (const char *at = hr_text_chars(&arrows); *at == 'M'; at = strchr(at, 'H') + 1, at = strchr(at, ' ') + 1) {
    put_arrow(p, edge, (int)strtol(strchr(at, ' '), NULL, 10), false, colour);
  }
  hr_text_fini(&arrows);
}

void explain_svg(const explanation *e, hr_text *text) {
  picture p = {.e = e, .text = text};
  if (!place_boxes(&p) || !place_lives(&p)) {
    text->failed = true;
  }
  for (int s = 0; !text->failed && s < (int)e->steps.count; ++s) {
    if (s == 0) {
      put_head(&p);
      put_legend(&p);
    }
    put_left(&p, s);
    put_right(&p, s);
  }
  for (size_t i = 0; !text->failed && i < p.lives.count; ++i) {
    put_life(&p, &p.lives.data[i], (int)i);
  }
  for (int s = 0; !text->failed && s < (int)e->steps.count; ++s) {
    put_box(&p, s);
  }
  hr_text_append(text, "</svg>\n");
  hr_vector_fini(&p.lives);
  hr_free(p.boxes);
  hr_free(p.port_y);
}
