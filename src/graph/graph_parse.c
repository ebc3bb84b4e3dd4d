/* graph_parse.c: reads the text form of graphs; any text is safe input.
 *
 *   graph     "graph" (1 | 2) {function} {line}         one a line; ; starts a comment
 *   function  "function" "@" N "{" {line} "}"           N: the next one; "}" is a line
 *   line      "input" label type
 *             | "constant" label type "=" (list | "#" N)         N: elements beside the text
 *             | label {"," label} "=" name "(" [argument {"," argument}] ")"
 *             | label {"," label} "=" control
 *             | "variable" label type "=" (list | "#" N)
 *             | "assign" label "=" operand
 *             | "output" name "=" operand
 *   label     "%" (word | text | N)                              N: the next number of a value without a name
 *   type      dtype "[" [dim {"," dim}] "]"                      dim: a size, or a word: a symbol
 *   argument  operand | word "=" attribute                       operands first
 *   operand   "_" | label | number | word                        _: absent; a word: the size of a symbol's dims
 *   attribute number | "true" | "false" | list | text | dtype | label | word
 *   list      "[" [(number | label | word) {"," ...}] "]"
 *   number    1 | 1.0 | 1u | true | (re, im) | inf | nan
 *   name      a function, or "shape" | "read" | "gradient" | "symbol" | "number"
 *   control   ("call" | "if" | "while" | "for" | "scan") "(" inner {"," inner} {"," argument} ")"
 *   inner     "@" N                                              of an earlier function: then, otherwise; body,
 * condition
 *
 * The comment behind an operation has the types of its results, which are inferred again.
 */
#include "graph/graph_parse.h"

#include "functional/functions.h"

/* ---- operations ---- */

static bool parse_gradient(hr__parser *p, hr_value *out) {
  hr_value seed = 0;
  for (bool is_first = true; !hr__lex_take(p, ')'); is_first = false) {
    if ((!is_first && !hr__lex_expect(p, ',', "',' or ')'")) || seed != 0) {
      return hr__lex_fail(p, "')'");
    }
    if (hr__lex_attribute_name(p)) {
      if (strcmp(p->word, "seed") != 0 || !hr__parse_reference(p, &seed)) {
        return hr__lex_fail(p, "seed=");
      }
    } else if (!hr__parse_push_operand(p)) {
      return false;
    }
  }
  if (p->operands.count < 2 || p->operands.count > HR__GRAPH_OPERANDS_MAX) {
    return hr__lex_fail(p, "a value and values by which it is differentiated before this");
  }
  *out = hr_graph_gradient(p->graph, p->operands.data[0], seed, (int)p->operands.count - 1, p->operands.data + 1);
  return hr__lex_check(p);
}

static bool parse_number(hr__parser *p, hr_value *out) {
  hr_scalar number;
  if (!hr__lex_scalar(p, &number)) {
    return false;
  }
  *out = hr_graph_number(p->graph, number);
  return hr__lex_expect(p, ')', "')'") && hr__lex_check(p);
}

static bool parse_symbol(hr__parser *p, hr_value *out) {
  if (!hr__lex_word(p)) {
    return hr__lex_fail(p, "a symbol");
  }
  *out = hr_graph_symbol(p->graph, p->word);
  return hr__lex_check(p) && hr__lex_expect(p, ')', "')'");
}

/* shape(%x), read(%x) */
static bool parse_one(hr__parser *p, hr_value (*add)(hr_graph *graph, hr_value x), hr_value *out) {
  hr_value x = 0;
  if (!hr__parse_operand(p, &x)) {
    return false;
  }
  *out = add(p->graph, x);
  return hr__lex_check(p) && hr__lex_expect(p, ')', "')'");
}

/* The kind of node that a name has which is no function. */
static hr__node_kind find_kind(const char *name) {
  static const struct {
    const char *name;
    hr__node_kind kind;
  } all[] = {{"shape", HR__NODE_SHAPE}, {"read", HR__NODE_READ},   {"symbol", HR__NODE_SYMBOL},
             {"call", HR__NODE_INNER},  {"if", HR__NODE_IF},       {"gradient", HR__NODE_GRADIENT},
             {"for", HR__NODE_FOR},     {"while", HR__NODE_WHILE}, {"number", HR__NODE_NUMBER},
             {"scan", HR__NODE_SCAN},   {"vmap", HR__NODE_VMAP},   {"host", HR__NODE_HOST}};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    if (strcmp(name, all[i].name) == 0) {
      return all[i].kind;
    }
  }
  return HR__NODE_CALL;
}

/* The operation whose name is in p->word. */
static bool parse_operation(hr__parser *p, hr_value *out) {
  hr_functional function = hr_functional_find(p->word);
  hr__node_kind kind = find_kind(p->word);
  if (kind == HR__NODE_HOST) {
    return hr__lex_fail_with(p, hr_status_make(HR_STATUS_UNIMPLEMENTED, "a function of the host can't be read"));
  }
  if (function == HR_FUNCTIONAL_NONE && kind == HR__NODE_CALL) {
    return hr__lex_fail_with(p, hr_status_make(HR_STATUS_INVALID_ARGUMENT, "there is no function \"%.64s\"", p->word));
  }
  if (!hr__lex_expect(p, '(', "'('")) {
    return false;
  }
  hr_vector_clear(&p->operands);
  if (function != HR_FUNCTIONAL_NONE) {
    return hr__parse_call(p, function, out);
  }
  switch (kind) {
    case HR__NODE_SHAPE:
      return parse_one(p, hr_graph_shape, out);
    case HR__NODE_READ:
      return parse_one(p, hr_graph_read, out);
    case HR__NODE_SYMBOL:
      return parse_symbol(p, out);
    case HR__NODE_GRADIENT:
      return parse_gradient(p, out);
    case HR__NODE_NUMBER:
      return parse_number(p, out);
    default:
      return hr__parse_control(p, kind, out);
  }
}

/* Labels are read twice: their values are known at the end of the line. */
static bool parse_results(hr__parser *p) {
  const char *start = p->cursor;
  hr_value first = 0;
  int count = 0;
  size_t labels = p->labels.count;
  do {
    bool is_right =
        hr__parse_definition(p) && (p->word[0] != '\0' || hr_vector_push(&p->labels, 0) || hr__lex_fail_memory(p));
    if (!is_right) {
      return false;
    }
    ++count;
  } while (hr__lex_take(p, ','));
  p->labels.count = labels;
  if (!hr__lex_expect(p, '=', "'='") || !(hr__lex_word(p) || hr__lex_fail(p, "a function")) ||
      !parse_operation(p, &first)) {
    return false;
  }
  if (count > hr_graph_result_count(p->graph, first)) {
    return hr__lex_fail_with(p, hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%d results, expected %d", count,
                                               hr_graph_result_count(p->graph, first)));
  }
  const char *end = p->cursor;
  p->cursor = start;
  for (int i = 0; i < count; ++i) {
    if (!hr__parse_definition(p) || !hr__parse_define(p, p->word, first + i)) {
      return false;
    }
    (void)hr__lex_take(p, ',');
  }
  p->cursor = end;
  return true;
}

static bool parse_output(hr__parser *p) {
  char name[HR__LEX_WORD_MAX];
  hr_value value = 0;
  hr__lex_skip(p);
  if (!(hr__lex_peek(p) == '"' ? hr__lex_quoted(p) : hr__lex_word(p) || hr__lex_fail(p, "the name of an output"))) {
    return false;
  }
  strcpy(name, p->word);
  if (!hr__lex_expect(p, '=', "'='") || !hr__parse_operand(p, &value)) {
    return false;
  }
  hr_graph_output(p->graph, name, value);
  return hr__lex_check(p);
}

/* ---- lines ---- */

/* The rest of a line, which holds nothing but a comment. */
static bool end_line(hr__parser *p) {
  hr__lex_skip(p);
  if (hr__lex_peek(p) == ';') {
    while (p->cursor < p->end && *p->cursor != '\n') {
      ++p->cursor;
    }
  }
  if (p->cursor < p->end && *p->cursor != '\n') {
    return hr__lex_fail(p, "the end of the line");
  }
  p->cursor += p->cursor < p->end;
  ++p->line, p->line_start = p->cursor;
  return true;
}

static bool parse_line(hr__parser *p) {
  hr__lex_skip(p);
  if (hr__lex_peek(p) == '%') {
    return parse_results(p);
  }
  if (hr__lex_peek(p) == '\n' || hr__lex_peek(p) == ';' || p->cursor == p->end) {
    return true;
  }
  if (hr__lex_take(p, '}')) {
    return hr__parse_end(p);
  }
  static const struct {
    const char *word;
    bool (*parse)(hr__parser *p);
  } lines[] = {{"input", hr__parse_input},   {"constant", hr__parse_constant}, {"output", parse_output},
               {"assign", hr__parse_assign}, {"variable", hr__parse_variable}, {"function", hr__parse_function}};
  if (!hr__lex_word(p)) {
    return hr__lex_fail(p, "input, constant, output or a value");
  }
  for (size_t i = 0; i < sizeof lines / sizeof *lines; ++i) {
    if (strcmp(p->word, lines[i].word) == 0) {
      return lines[i].parse(p);
    }
  }
  return hr__lex_fail(p, "input, constant, output or a value before this");
}

static bool parse_header(hr__parser *p) {
  int64_t version = 0;
  if (!hr__lex_this(p, "graph")) {
    return hr__lex_fail(p, "\"graph 1\"");
  }
  if (!hr__lex_i64(p, &version)) {
    return false;
  }
  return version == 1 || version == 2 ||
         hr__lex_fail_with(p, hr_status_make(HR_STATUS_UNIMPLEMENTED, "the text has version %lld, expected 1 or 2",
                                             (long long)version));
}

/* All lines; the graph is then in p->graph. */
static bool parse_text(hr__parser *p) {
  bool is_right = parse_header(p) && end_line(p);
  while (is_right && p->cursor < p->end) {
    is_right = parse_line(p) && end_line(p);
  }
  return is_right && (p->whole == NULL || hr__lex_fail(p, "'}' of the function"));
}

static void free_parser(hr__parser *p) {
  for (size_t i = 0; i < p->functions.count; ++i) {
    hr_graph_release(p->functions.data[i]);
  }
  hr_graph_release(p->whole);
  hr_graph_release(p->graph);
  hr_vector_fini(&p->functions);
  hr_vector_fini(&p->labels);
  hr_vector_fini(&p->operands);
  hr_vector_fini(&p->elements);
  hr_vector_fini(&p->ints);
  hr_vector_fini(&p->reals);
  hr_free(p);
}

hr_status hr_graph_parse(const char *text, size_t length, const hr_graph_source *source, hr_graph **out_graph) {
  hr__parser *p = hr_calloc(1, sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory for its text");
  }
  p->cursor = p->line_start = text, p->end = text + length, p->line = 1, p->source = source;
  p->status = hr_graph_create(&p->graph);
  if (p->status == HR_OK && parse_text(p)) {
    *out_graph = p->graph;
    p->graph = NULL;
  }
  hr_status status = p->status;
  free_parser(p);
  return status;
}
