/* graph_cut.c: a graph whose operations between those that wait are functions.
 *
 * A *cut* is control flow, a read, or a function whose dims depend on data. The operations between two cuts, a piece,
 * become an inner graph and a call of it, so that a session has an instance for each set of dims of a piece:
 *
 *   %0 = matmul(%x, %w)             function @0: matmul, relu of inputs x [n, 3] and constant w
 *   %1 = relu(%0)            ->     %0 = call(@0, %x)
 *   %2 = nonzero(%1)                %1 = nonzero(%0)
 *   ...                             ...
 *
 * Numbers that the host knows, and constants, are copied to each place that needs them. Dims of a piece's inputs have
 * symbols for their descriptions, which may be wrong: they serve to type the function alone (hr_graph, is_piece). In
 * place of a symbol's number, the function has the dim of an input of the whole graph. A piece that is not valid for
 * all sizes of its symbols, such as a sum of two values whose dims data decides, stays as it is.
 */
#include <stdio.h>

#include "base/text.h"
#include "graph/graph_node.h"

enum {
  FREE = -3, /* a place: copied to where it is used */
  MANY = -2, /* a use in several places */
  TOP = -1,
  PIECE_MIN = 2, /* operations */
  PIECES_MAX = 256,
  TEXTS_MAX = 128, /* different dims of a piece's inputs */
  DEPTH_MAX = 200  /* of numbers computed from numbers */
};

typedef struct cut {
  const hr_graph *from;
  hr_graph *to;
  hr_arena arena;
  int *places;        /* by node: a piece's number, TOP or FREE */
  int *uses;          /* by node that is free: the place that uses it; FREE: none */
  bool *is_live;      /* by value of a piece: used elsewhere */
  hr_value *top;      /* by value: the new one; 0: not there yet */
  int piece;          /* the current one */
  hr_graph *function; /* of the current piece */
  hr_value *inside;   /* by value: the one in `function` */
  int text_count;
  const char *texts[TEXTS_MAX];  /* of dims, whose symbol is cut_N */
  HR_VECTOR(hr_value) arguments; /* of `function` */
} cut;

static hr_status no_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory to cut it");
}

/* ---- places ---- */

static bool is_cut(const hr__node *node) {
  return hr__node_is_control(node) || node->kind == HR__NODE_READ || hr__node_is_unknown(node);
}

/* True for an operation whose only result the host computes. */
static bool is_known(const hr_graph *graph, const hr__node *node) {
  const hr__graph_value *value = hr__graph_value_of(graph, node->first);
  for (int p = 0; p < (value->varies ? HR__GRAPH_POINTS : 1); ++p) {
    const hr__fact *fact = &value->facts[p * value->stride];
    if (fact->is_set && fact->numbers == NULL) {
      return false;
    }
  }
  return node->kind == HR__NODE_CALL && node->result_count == 1;
}

static int place_of(const hr_graph *graph, const hr__node *node, int piece) {
  if (node->kind == HR__NODE_CONSTANT || node->kind == HR__NODE_NUMBER || node->kind == HR__NODE_SYMBOL ||
      node->kind == HR__NODE_SHAPE) {
    return FREE;
  }
  bool is_operation = node->kind == HR__NODE_CALL || node->kind == HR__NODE_HOST;
  if (!is_operation || is_cut(node)) {
    return TOP;
  }
  return is_known(graph, node) ? FREE : piece;
}

/* Numbers the pieces; returns their number, or 0 if the graph is better left as it is. */
static int find_places(cut *c) {
  int piece = 0, cuts = 0;
  for (size_t n = 0; n < c->from->nodes.count; ++n) {
    const hr__node *node = &c->from->nodes.data[n];
    if (node->kind == HR__NODE_GRADIENT) {
      return 0;
    }
    cuts += is_cut(node);
    piece += is_cut(node);
    c->places[n] = place_of(c->from, node, piece);
    c->uses[n] = FREE;
  }
  for (size_t s = 0; s < c->from->symbols.count; ++s) {
    cuts = strncmp(c->from->symbols.data[s], "cut_", 4) == 0 ? 0 : cuts;
  }
  return cuts > 0 && piece < PIECES_MAX ? piece + 1 : 0;
}

typedef struct use {
  cut *c;
  int place;
} use;

static void note_use(void *arg, const hr_value *value) {
  const use *u = arg;
  int node = hr__graph_value_of(u->c->from, *value)->node, place = u->c->places[node];
  if (place == FREE) {
    int *uses = &u->c->uses[node];
    *uses = *uses == FREE || *uses == u->place ? u->place : MANY;
  } else if (place >= 0 && place != u->place) {
    u->c->is_live[*value] = true;
  }
}

static void find_uses(cut *c) {
  use u = {c, TOP};
  for (size_t i = 0; i < c->from->outputs.count; ++i) {
    note_use(&u, &c->from->outputs.data[i].value);
  }
  for (size_t i = 0; i < c->from->assigned.count; ++i) {
    if (c->from->assigned.data[i] != 0) {
      note_use(&u, &c->from->assigned.data[i]);
    }
  }
  for (size_t n = c->from->nodes.count; n-- > 0;) {
    u.place = c->places[n] == FREE ? c->uses[n] : c->places[n];
    if (u.place != FREE) {
      hr__node_each_input(&c->from->nodes.data[n], note_use, &u);
    }
  }
}

/* ---- copies ---- */

typedef struct need {
  cut *c;
  hr_status status;
  int depth;
  bool is_inside;
} need;

static void need_value(void *arg, const hr_value *value);

/* Copies a node to the new graph, or into the function. */
static hr_status copy(need *n, const hr__node *node) {
  cut *c = n->c;
  hr_value first = 0, *map = n->is_inside ? c->inside : c->top;
  need inputs = {c, HR_OK, n->depth + 1, n->is_inside};
  if (n->depth > DEPTH_MAX) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "graph: numbers are computed in more than %d steps", DEPTH_MAX);
  }
  hr__node_each_input(node, need_value, &inputs);
  HR_RETURN_IF_ERROR(inputs.status);
  HR_RETURN_IF_ERROR(hr__node_copy(c->from, n->is_inside ? c->function : c->to, map, &c->arena, node, &first));
  for (int i = 0; i < node->result_count; ++i) {
    map[node->first + i] = first + i;
  }
  return HR_OK;
}

/* A symbol for dims with this description: each "?" is one of its own. */
static hr_status symbol_of(cut *c, const char *text, const char **out_symbol) {
  int i = 0;
  char name[24];
  while (i < c->text_count && (strcmp(text, "?") == 0 || strcmp(c->texts[i], text) != 0)) {
    ++i;
  }
  if (i == TEXTS_MAX) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "graph: more than %d different dims", TEXTS_MAX);
  }
  c->texts[i] = text, c->text_count = i == c->text_count ? i + 1 : c->text_count;
  snprintf(name, sizeof name, "cut_%d", i);
  *out_symbol = hr_arena_strdup(&c->arena, name);
  return *out_symbol != NULL ? HR_OK : no_memory();
}

/* An input of the function for a value of the graph. */
static hr_status add_input(cut *c, hr_value value) {
  hr_type type;
  char name[24];
  HR_RETURN_IF_ERROR(hr_graph_type(c->from, value, &type));
  for (int d = 0; d < type.rank; ++d) {
    if (type.symbols[d] != NULL && !hr__is_word(type.symbols[d])) {
      HR_RETURN_IF_ERROR(symbol_of(c, type.symbols[d], &type.symbols[d]));
    }
  }
  snprintf(name, sizeof name, "%%%d", (int)value);
  hr_value input = hr_graph_input(c->function, name, &type);
  bool is_read = hr__graph_node_of(c->from, value)->kind == HR__NODE_READ;
  c->inside[value] = is_read ? hr_graph_read(c->function, input) : input;
  HR_RETURN_IF_ERROR(hr_graph_status(c->function));
  return hr_vector_push(&c->arguments, value) ? HR_OK : no_memory();
}

/* An input of the graph that has the symbol among its dims, and which; 0: there is none. */
static hr_value find_dim(const hr_graph *graph, int symbol, int64_t *out_dim) {
  for (size_t i = 0; i < graph->inputs.count; ++i) {
    const hr__node *node = hr__graph_node_of(graph, graph->inputs.data[i]);
    for (int d = 0; d < node->rank; ++d) {
      if (node->dims[d] == -1 - (int64_t)symbol) {
        *out_dim = d;
        return node->first;
      }
    }
  }
  return 0;
}

/* A symbol's number in the function: symbols of the function itself may have other numbers. */
static hr_status add_dim(need *n, const hr__node *symbol) {
  cut *c = n->c;
  int64_t dim = 0;
  const hr_type scalar = {.dtype = HR_DTYPE_I64};
  const hr_value input = find_dim(c->from, symbol->symbol, &dim);
  if (input == 0) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "graph: no input has a dim \"%s\"",
                          c->from->symbols.data[symbol->symbol]);
  }
  need_value(n, &input);
  HR_RETURN_IF_ERROR(n->status);
  const hr_value inputs[2] = {hr_graph_shape(c->function, c->inside[input]),
                              hr_graph_constant(c->function, &scalar, &dim)};
  c->inside[symbol->first] = hr_graph_add(c->function, HR_FUNCTIONAL_TAKE, 2, inputs, 0, NULL);
  return hr_graph_status(c->function);
}

static void need_value(void *arg, const hr_value *value) {
  need *n = arg;
  cut *c = n->c;
  if (n->status != HR_OK || (n->is_inside ? c->inside : c->top)[*value] != 0) {
    return;
  }
  const hr__node *node = hr__graph_node_of(c->from, *value);
  bool is_free = c->places[hr__graph_value_of(c->from, *value)->node] == FREE;
  if (n->is_inside && node->kind == HR__NODE_SYMBOL) {
    n->status = add_dim(n, node);
    return;
  }
  n->status = is_free ? copy(n, node) : n->is_inside ? add_input(c, *value) : no_memory();
}

/* The value in the new graph. */
static hr_status top_value(cut *c, hr_value value, hr_value *out) {
  need n = {c, HR_OK, 0, false};
  need_value(&n, &value);
  *out = c->top[value];
  return n.status;
}

static hr_status name_value(const cut *c, hr_graph *graph, hr_value old, hr_value value) {
  const char *name = hr_graph_value_name(c->from, old);
  if (name != NULL && hr_graph_value_name(graph, value) == NULL) {
    hr_graph_name(graph, value, name);
  }
  return hr_graph_status(graph);
}

static hr_status copy_to_top(cut *c, const hr__node *node) {
  need n = {c, HR_OK, 0, false};
  HR_RETURN_IF_ERROR(copy(&n, node));
  for (int i = 0; i < node->result_count; ++i) {
    HR_RETURN_IF_ERROR(name_value(c, c->to, node->first + i, c->top[node->first + i]));
  }
  return HR_OK;
}

/* ---- pieces ---- */

/* The piece's nodes as a function. */
static hr_status write_function(cut *c) {
  need n = {c, HR_OK, 0, true};
  for (size_t i = 0; i < c->from->nodes.count; ++i) {
    const hr__node *node = &c->from->nodes.data[i];
    if (c->places[i] != c->piece) {
      continue;
    }
    HR_RETURN_IF_ERROR(copy(&n, node));
    for (int r = 0; r < node->result_count; ++r) {
      char name[24];
      hr_value value = node->first + r;
      HR_RETURN_IF_ERROR(name_value(c, c->function, value, c->inside[value]));
      if (c->is_live[value]) {
        snprintf(name, sizeof name, "%%%d", (int)value);
        hr_graph_output(c->function, name, c->inside[value]);
      }
    }
  }
  return hr_graph_status(c->function);
}

static hr_status call_function(cut *c) {
  size_t count = c->arguments.count;
  hr_value *arguments = HR_ARENA_ARRAY(&c->arena, hr_value, count + 1), result;
  if (arguments == NULL) {
    return no_memory();
  }
  for (size_t i = 0; i < count; ++i) {
    HR_RETURN_IF_ERROR(top_value(c, c->arguments.data[i], &arguments[i]));
  }
  result = hr_graph_call(c->to, c->function, (int)count, arguments);
  HR_RETURN_IF_ERROR(hr_graph_status(c->to));
  for (size_t i = 0; i < c->from->nodes.count; ++i) {
    const hr__node *node = &c->from->nodes.data[i];
    for (int r = 0; c->places[i] == c->piece && r < node->result_count; ++r) {
      if (c->is_live[node->first + r]) {
        c->top[node->first + r] = result++;
        HR_RETURN_IF_ERROR(name_value(c, c->to, node->first + r, c->top[node->first + r]));
      }
    }
  }
  return HR_OK;
}

/* Makes the function of the current piece; sets false if it is not valid for all dims of its inputs. */
static hr_status make_function(cut *c, bool *out_is_made) {
  c->text_count = 0;
  hr_vector_clear(&c->arguments);
  memset(c->inside, 0, c->from->values.count * sizeof *c->inside);
  HR_RETURN_IF_ERROR(hr_graph_create(&c->function));
  c->function->is_piece = true;
  hr_status status = write_function(c);
  bool is_valid = status == HR_OK && c->function->outputs.count > 0;
  if (hr_status_code_of(status) != HR_STATUS_RESOURCE_EXHAUSTED) {
    hr_status_free(status);
    status = HR_OK;
  }
  status = status == HR_OK && is_valid ? call_function(c) : status;
  hr_graph_release(c->function);
  c->function = NULL;
  *out_is_made = is_valid;
  return status;
}

static hr_status write_piece(cut *c) {
  int count = 0;
  bool is_made = false;
  for (size_t i = 0; i < c->from->nodes.count; ++i) {
    count += c->places[i] == c->piece;
  }
  HR_RETURN_IF_ERROR(count >= PIECE_MIN ? make_function(c, &is_made) : HR_OK);
  for (size_t i = 0; !is_made && i < c->from->nodes.count; ++i) {
    HR_RETURN_IF_ERROR(c->places[i] == c->piece ? copy_to_top(c, &c->from->nodes.data[i]) : HR_OK);
  }
  return HR_OK;
}

/* ---- the whole ---- */

/* Inputs and variables, in their order. */
static hr_status write_sources(cut *c) {
  for (size_t s = 0; s < c->from->symbols.count; ++s) {
    if (hr__graph_add_symbol(c->to, c->from->symbols.data[s]) < 0) {
      return hr_graph_status(c->to);
    }
  }
  for (size_t i = 0; i < c->from->nodes.count; ++i) {
    const hr__node *node = &c->from->nodes.data[i];
    if (node->kind == HR__NODE_INPUT || node->kind == HR__NODE_VARIABLE) {
      HR_RETURN_IF_ERROR(copy_to_top(c, node));
    }
  }
  return HR_OK;
}

static hr_status write_results(cut *c) {
  hr_value value = 0;
  for (size_t i = 0; i < c->from->outputs.count; ++i) {
    HR_RETURN_IF_ERROR(top_value(c, c->from->outputs.data[i].value, &value));
    hr_graph_output(c->to, c->from->outputs.data[i].name, value);
  }
  for (size_t i = 0; i < c->from->assigned.count; ++i) {
    if (c->from->assigned.data[i] != 0) {
      HR_RETURN_IF_ERROR(top_value(c, c->from->assigned.data[i], &value));
      hr_graph_assign(c->to, c->top[c->from->variables.data[i]], value);
    }
  }
  return hr_graph_status(c->to);
}

static hr_status write_all(cut *c, int pieces) {
  size_t node = 0, count = c->from->nodes.count;
  HR_RETURN_IF_ERROR(write_sources(c));
  for (c->piece = 0; c->piece < pieces; ++c->piece) {
    HR_RETURN_IF_ERROR(write_piece(c));
    while (node < count && !is_cut(&c->from->nodes.data[node])) {
      ++node;
    }
    HR_RETURN_IF_ERROR(node < count ? copy_to_top(c, &c->from->nodes.data[node++]) : HR_OK);
  }
  return write_results(c);
}

static bool allocate(cut *c) {
  size_t nodes = c->from->nodes.count + 1, values = c->from->values.count;
  c->places = hr_calloc(nodes, sizeof *c->places);
  c->uses = hr_calloc(nodes, sizeof *c->uses);
  c->is_live = hr_calloc(values, sizeof *c->is_live);
  c->top = hr_calloc(values, sizeof *c->top);
  c->inside = hr_calloc(values, sizeof *c->inside);
  return c->places != NULL && c->uses != NULL && c->is_live != NULL && c->top != NULL && c->inside != NULL;
}

static void free_cut(cut *c) {
  hr_free(c->places);
  hr_free(c->uses);
  hr_free(c->is_live);
  hr_free(c->top);
  hr_free(c->inside);
  hr_vector_fini(&c->arguments);
  hr_arena_fini(&c->arena);
  hr_graph_release(c->to);
}

hr_status hr__graph_cut(hr_graph *graph, hr_graph **out_graph) {
  cut c = {.from = graph};
  hr_status status = allocate(&c) ? HR_OK : no_memory();
  int pieces = status == HR_OK ? find_places(&c) : 0;
  if (pieces == 0) {
    free_cut(&c);
    hr_graph_retain(graph);
    *out_graph = graph;
    return status;
  }
  find_uses(&c);
  status = hr_graph_create(&c.to);
  status = status == HR_OK ? write_all(&c, pieces) : status;
  if (status == HR_OK) {
    *out_graph = c.to;
    c.to = NULL;
  }
  free_cut(&c);
  return status;
}
