/* expression_words.h: characters, words, numbers and variables of expressions, for the parser. */
#ifndef HEADRACE_EXPRESSION_WORDS_H_
#define HEADRACE_EXPRESSION_WORDS_H_

#include "expression/expression_nodes.h"

typedef struct hr_expr_parser {
  hr_expression *e;
  const char *what, *text, *cursor;
  int depth;
  int forced_column; /* of the nodes of a rule; 0: the text's own */
  const int *values; /* of a, b, c, y, g in a rule; or NULL */
  hr_status status;
} hr_expr_parser;

static inline bool hr__expr_is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
static inline bool hr__expr_is_digit(char c) {
  return c >= '0' && c <= '9';
}
static inline bool hr__expr_is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
void hr__expr_skip_spaces(hr_expr_parser *p);

/* ---- errors: they set the parser's status, unless it has one, and give false ---- */

/* The column of a place in the text, and the one that nodes get. */
int hr__expr_column(const hr_expr_parser *p, const char *place);
int hr__expr_node_column(const hr_expr_parser *p, const char *place);
/* "expected WANTED, found NAME"; without a name, of length 0, "expected WANTED". */
bool hr__expr_fail_at(hr_expr_parser *p, const char *place, const char *wanted, const char *name, size_t length);
/* "expected WANTED, found" the character at the cursor. */
bool hr__expr_expected(hr_expr_parser *p, const char *wanted);
/* False for -1, which is an expression that is too large if the parser has no status. */
bool hr__expr_check_node(hr_expr_parser *p, int node);

/* ---- words ---- */

/* Skips spaces, and the token if it is there. */
bool hr__expr_take(hr_expr_parser *p, const char *token);
/* The length of the name at the cursor; 0 if there is none. */
size_t hr__expr_name_length(hr_expr_parser *p);
bool hr__expr_is_word(const char *name, size_t length, const char *word);
/* Reads the type at the cursor: the longest that matches. */
bool hr__expr_take_type(hr_expr_parser *p, hr_dtype *out_dtype);
bool hr__expr_is_type(const char *name, size_t length);

/* The variable with this name, or NULL. */
hr_expr_variable *hr__expr_find_in(hr_expr_variable *data, size_t count, const char *name, size_t length);
hr_expr_variable *hr__expr_find_variable(hr_expression *e, const char *name, size_t length);

/* Reads the number at the cursor, which is at a digit or a point; its node, or -1. */
int hr__expr_parse_number(hr_expr_parser *p);

#endif
