/* graph_parse.h: the reader of a graph's text; graph_parse.c has the grammar.
 *
 * Functions return false after a failure, which is kept with its place in the text; from then on they do nothing that
 * matters. Any text is safe.
 */
#ifndef HEADRACE_GRAPH_GRAPH_PARSE_H_
#define HEADRACE_GRAPH_GRAPH_PARSE_H_

#include "graph/graph_node.h"

enum { HR__LEX_WORD_MAX = HR_GRAPH_NAME_MAX + 1, HR__LEX_NUMBER_MAX = 64 };

typedef struct hr__parser {
  const char *cursor, *end, *line_start;
  int line;
  const hr_graph_source *source;
  hr_graph *graph;                 /* of the current lines */
  hr_graph *whole;                 /* NULL outside of functions, else the graph around them */
  HR_VECTOR(hr_graph *) functions; /* with references */
  int64_t inner_values;            /* of functions: bounded, as those of a graph are */
  int64_t extra_results;           /* of functions, also */
  hr_status status;
  HR_VECTOR(hr_value) labels, operands, elements; /* numbered values; of a line; of its attributes */
  HR_VECTOR(int64_t) ints;
  HR_VECTOR(double) reals;
  hr_value symbols[HR_GRAPH_SYMBOLS_MAX]; /* their values, or 0 */
  char word[HR__LEX_WORD_MAX];
} hr__parser;

/* ---- errors ---- */

/* Each keeps the first failure, and returns false. */
bool hr__lex_fail(hr__parser *p, const char *expected);
bool hr__lex_fail_with(hr__parser *p, hr_status failure);
bool hr__lex_fail_memory(hr__parser *p);
/* False, with the graph's failure, if it has one. */
bool hr__lex_check(hr__parser *p);

/* ---- characters and words ---- */

/* The next character; 0 at the end. */
char hr__lex_peek(const hr__parser *p);
void hr__lex_skip(hr__parser *p);
/* Consumes the character, behind blanks, if it is the next one. hr__lex_expect fails if it is not. */
bool hr__lex_take(hr__parser *p, char character);
bool hr__lex_expect(hr__parser *p, char character, const char *expected);
/* Copies the next word to p->word; false, consuming nothing, if it is empty or too long. */
bool hr__lex_word(hr__parser *p);
/* Consumes the word if it is the next one. */
bool hr__lex_this(hr__parser *p, const char *word);
/* "...": to p->word. */
bool hr__lex_quoted(hr__parser *p);
/* True if "word =" follows; the word is then in p->word. */
bool hr__lex_attribute_name(hr__parser *p);

/* ---- numbers ---- */

/* The characters of a number, in `token`. */
bool hr__lex_token(hr__parser *p, char *token);
bool hr__lex_real(const char *token, double *out);
bool hr__lex_f64(hr__parser *p, double *out);
bool hr__lex_scalar(hr__parser *p, hr_scalar *out);
bool hr__lex_i64(hr__parser *p, int64_t *out);
/* True if the next characters begin a number. */
bool hr__lex_is_number(const hr__parser *p);

/* ---- values ---- */

/* A label of a value that exists. */
bool hr__parse_reference(hr__parser *p, hr_value *out);
/* A label, number, symbol or "_", which is 0. */
bool hr__parse_operand(hr__parser *p, hr_value *out);
/* An operand, to p->operands. */
bool hr__parse_push_operand(hr__parser *p);
/* A label that is defined: its name is in p->word, "" for a numbered one. */
bool hr__parse_definition(hr__parser *p);
bool hr__parse_define(hr__parser *p, const char *name, hr_value value);
/* Lines, behind their first word. */
bool hr__parse_input(hr__parser *p);
bool hr__parse_constant(hr__parser *p);
bool hr__parse_variable(hr__parser *p);
bool hr__parse_assign(hr__parser *p);
bool hr__parse_function(hr__parser *p);
/* "}": the rest of the text belongs to the graph. */
bool hr__parse_end(hr__parser *p);
/* The arguments of a function, behind "(". */
bool hr__parse_call(hr__parser *p, hr_functional function, hr_value *out);
/* Control flow by its kind, behind "(". */
bool hr__parse_control(hr__parser *p, hr__node_kind kind, hr_value *out);

#endif
