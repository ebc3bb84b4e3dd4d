/* graph_parse_control.c: functions, control flow and variables in a graph's text. */
#include "functional/functions.h"
#include "graph/graph_parse.h"

/* ---- functions ---- */

/* "@" and the number of a function. */
static bool parse_function_number(hr__parser *p, int64_t *out) {
  return hr__lex_expect(p, '@', "'@'") && hr__lex_i64(p, out);
}

/* Labels and symbols belong to each function alone. */
static void begin_lines(hr__parser *p, hr_graph *graph) {
  p->graph = graph;
  hr_vector_clear(&p->labels);
  memset(p->symbols, 0, sizeof p->symbols);
}

bool hr__parse_function(hr__parser *p) {
  int64_t number = 0;
  hr_graph *graph = NULL;
  if (p->whole != NULL || p->graph->values.count > 1) {
    return hr__lex_fail(p, "functions in front of all other lines before this");
  }
  if (!parse_function_number(p, &number)) {
    return false;
  }
  if (number != (int64_t)p->functions.count) {
    return hr__lex_fail(p, "the next number of a function before this");
  }
  if (!hr__lex_expect(p, '{', "'{'")) {
    return false;
  }
  if (!hr_vector_reserve(&p->functions, p->functions.count + 1)) {
    return hr__lex_fail_memory(p);
  }
  hr_status status = hr_graph_create(&graph);
  if (status != HR_OK) {
    return hr__lex_fail_with(p, status);
  }
  p->whole = p->graph;
  begin_lines(p, graph);
  return true;
}

bool hr__parse_end(hr__parser *p) {
  if (p->whole == NULL) {
    return hr__lex_fail(p, "a function before this");
  }
  p->inner_values += p->graph->inner_values;
  p->extra_results += hr__graph_extra_results(p->graph);
  p->functions.data[p->functions.count++] = p->graph;
  begin_lines(p, p->whole);
  p->whole = NULL;
  if (p->inner_values > HR_GRAPH_INNER_MAX || p->extra_results > HR_GRAPH_RESULTS_MAX) {
    return hr__lex_fail_with(p, hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                                               "functions use more than %d values of functions in all, or have more "
                                               "than %d results beyond the first of each operation",
                                               HR_GRAPH_INNER_MAX, HR_GRAPH_RESULTS_MAX));
  }
  return true;
}

/* ---- control flow ---- */

static bool parse_inner(hr__parser *p, hr_graph **out) {
  int64_t number = 0;
  if (!parse_function_number(p, &number)) {
    return false;
  }
  if (number < 0 || number >= (int64_t)p->functions.count) {
    return hr__lex_fail(p, "the number of an earlier function before this");
  }
  *out = p->functions.data[number];
  return true;
}

/* "[0, _]", to p->ints: -1 for "_". */
static bool parse_axes(hr__parser *p, size_t *out_count) {
  size_t before = p->ints.count;
  if (!hr__lex_expect(p, '[', "'['")) {
    return false;
  }
  while (!hr__lex_take(p, ']')) {
    int64_t axis = -1;
    if (p->ints.count > before && !hr__lex_expect(p, ',', "',' or ']'")) {
      return false;
    }
    if (!hr__lex_take(p, '_') && (!hr__lex_i64(p, &axis) || axis < 0 || axis >= HR_RANK_MAX)) {
      return hr__lex_fail(p, "an axis or _ before this");
    }
    if (!hr_vector_push(&p->ints, axis)) {
      return hr__lex_fail_memory(p);
    }
  }
  *out_count = p->ints.count - before;
  return true;
}

/* The axes of arguments and results of a vmap, behind "in", in the arena of the graph. */
static bool parse_all_axes(hr__parser *p, hr__node *like) {
  size_t count = 0, results = 0;
  hr_vector_clear(&p->ints);
  if (like->axes != NULL || strcmp(p->word, "in") != 0 || !parse_axes(p, &count)) {
    return hr__lex_fail(p, "in=[..], out=[..] before this");
  }
  if (!hr__lex_expect(p, ',', "','") || !hr__lex_attribute_name(p) || strcmp(p->word, "out") != 0) {
    return hr__lex_fail(p, "out=[..]");
  }
  if (!parse_axes(p, &results)) {
    return false;
  }
  if (count != p->operands.count || results != like->inner[0]->outputs.count) {
    return hr__lex_fail(p, "an axis or _ for each argument and each output before this");
  }
  int *axes = HR_ARENA_ARRAY(&p->graph->arena, int, count + results);
  for (size_t i = 0; axes != NULL && i < count + results; ++i) {
    axes[i] = (int)p->ints.data[i];
  }
  like->axes = axes;
  return axes != NULL || hr__lex_fail_memory(p);
}

/* "carried=1", "sequences=1" */
static bool parse_count(hr__parser *p, hr__node *like) {
  int64_t number = 0;
  bool is_loop = hr__node_is_loop(like);
  bool is_carried = strcmp(p->word, "carried") == 0 && is_loop;
  if (!is_carried && (strcmp(p->word, "sequences") != 0 || like->kind != HR__NODE_SCAN)) {
    return hr__lex_fail(p, is_loop ? "carried= or sequences= before this" : "an operand before this");
  }
  if (!hr__lex_i64(p, &number)) {
    return false;
  }
  if (number < 0 || number > HR__GRAPH_OPERANDS_MAX) {
    return hr__lex_fail(p, "a number of arguments before this");
  }
  *(is_carried ? &like->carried_count : &like->sequence_count) = (int)number;
  return true;
}

bool hr__parse_control(hr__parser *p, hr__node_kind kind, hr_value *out) {
  hr__node like = {.kind = kind};
  int inner_count = kind == HR__NODE_IF || kind == HR__NODE_WHILE ? 2 : 1;
  for (int i = 0; i < inner_count; ++i) {
    if ((i > 0 && !hr__lex_expect(p, ',', "','")) || !parse_inner(p, &like.inner[i])) {
      return false;
    }
  }
  while (!hr__lex_take(p, ')')) {
    if (!hr__lex_expect(p, ',', "',' or ')'")) {
      return false;
    }
    bool is_named = hr__lex_attribute_name(p), is_vmap = kind == HR__NODE_VMAP;
    if (!(!is_named ? hr__parse_push_operand(p) : is_vmap ? parse_all_axes(p, &like) : parse_count(p, &like))) {
      return false;
    }
  }
  like.input_count = (int)p->operands.count;
  if (kind == HR__NODE_VMAP && like.axes == NULL) {
    return hr__lex_fail(p, "in=[..], out=[..] before this");
  }
  if (p->operands.count < (size_t)hr__node_first_argument(&like) || p->operands.count > HR__GRAPH_OPERANDS_MAX) {
    return hr__lex_fail(p, "a condition or a count, and fewer arguments before this");
  }
  *out = hr__graph_add_control(p->graph, &like, like.inner, p->operands.data);
  return hr__lex_check(p);
}

/* ---- variables ---- */

bool hr__parse_assign(hr__parser *p) {
  hr_value variable = 0, value = 0;
  hr__lex_skip(p);
  if (!hr__parse_reference(p, &variable) || !hr__lex_expect(p, '=', "'='") || !hr__parse_operand(p, &value)) {
    return false;
  }
  hr_graph_assign(p->graph, variable, value);
  return hr__lex_check(p);
}
