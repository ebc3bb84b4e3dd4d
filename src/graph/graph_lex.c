/* graph_lex.c: characters, words and numbers of a graph's text, and errors at a place of it. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "graph/graph_parse.h"

/* ---- errors and characters ---- */

bool hr__lex_fail(hr__parser *p, const char *expected) {
  if (p->status == HR_OK) {
    char found[32] = "the end";
    if (p->cursor < p->end) {
      snprintf(found, sizeof found, *p->cursor == '\n' ? "the end of the line" : "'%c'",
               isprint((unsigned char)*p->cursor) ? *p->cursor : '?');
    }
    p->status = hr_status_make(HR_STATUS_INVALID_ARGUMENT, "line %d, column %d: expected %s, found %s", p->line,
                               (int)(p->cursor - p->line_start) + 1, expected, found);
  }
  return false;
}

bool hr__lex_fail_with(hr__parser *p, hr_status failure) {
  if (p->status == HR_OK) {
    p->status = hr_status_annotate(failure, "line %d", p->line);
  } else {
    hr_status_free(failure);
  }
  return false;
}

bool hr__lex_fail_memory(hr__parser *p) {
  return hr__lex_fail_with(p, hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a graph's text"));
}

/* False, with the graph's failure, if it has one. */
bool hr__lex_check(hr__parser *p) {
  hr_status failure = hr_graph_status(p->graph);
  return failure == HR_OK || hr__lex_fail_with(p, failure);
}

char hr__lex_peek(const hr__parser *p) {
  return p->cursor < p->end ? *p->cursor : '\0';
}

void hr__lex_skip(hr__parser *p) {
  while (hr__lex_peek(p) == ' ' || hr__lex_peek(p) == '\t' || hr__lex_peek(p) == '\r') {
    ++p->cursor;
  }
}

bool hr__lex_take(hr__parser *p, char character) {
  hr__lex_skip(p);
  if (p->cursor == p->end || *p->cursor != character) {
    return false;
  }
  ++p->cursor;
  return true;
}

bool hr__lex_expect(hr__parser *p, char character, const char *expected) {
  return hr__lex_take(p, character) || hr__lex_fail(p, expected);
}

static bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Copies the next word to p->word; false, consuming nothing, if it is empty or too long. */
bool hr__lex_word(hr__parser *p) {
  hr__lex_skip(p);
  size_t length = 0;
  while (p->cursor + length < p->end && is_word_char(p->cursor[length])) {
    ++length;
  }
  if (length == 0 || length >= HR__LEX_WORD_MAX || isdigit((unsigned char)*p->cursor)) {
    return false;
  }
  memcpy(p->word, p->cursor, length);
  p->word[length] = '\0';
  p->cursor += length;
  return true;
}

/* Consumes the word if it is the next one. */
bool hr__lex_this(hr__parser *p, const char *word) {
  const char *start = p->cursor;
  if (hr__lex_word(p) && strcmp(p->word, word) == 0) {
    return true;
  }
  p->cursor = start;
  return false;
}

/* "...": to p->word. */
bool hr__lex_quoted(hr__parser *p) {
  size_t length = 0;
  if (!hr__lex_expect(p, '"', "'\"'")) {
    return false;
  }
  while (p->cursor < p->end && *p->cursor != '"') {
    p->cursor += *p->cursor == '\\';
    if (p->cursor == p->end || length == HR_GRAPH_NAME_MAX || (unsigned char)*p->cursor < ' ') {
      return hr__lex_fail(p, "at most 1023 characters and '\"'");
    }
    p->word[length++] = *p->cursor++;
  }
  p->word[length] = '\0';
  return hr__lex_expect(p, '"', "'\"'");
}

bool hr__lex_attribute_name(hr__parser *p) {
  const char *start = p->cursor;
  if (hr__lex_word(p) && hr__lex_take(p, '=')) {
    return true;
  }
  p->cursor = start;
  return false;
}

/* ---- numbers ---- */

/* The characters of a number, in `token`. */
bool hr__lex_token(hr__parser *p, char *token) {
  hr__lex_skip(p);
  size_t length = 0;
  while (p->cursor + length < p->end && length < HR__LEX_NUMBER_MAX - 1) {
    char c = p->cursor[length], before = length > 0 ? p->cursor[length - 1] : '\0';
    bool is_sign = (c == '-' || c == '+') && (length == 0 || before == 'e' || before == 'E');
    if (!is_word_char(c) && c != '.' && !is_sign) {
      break;
    }
    token[length++] = c;
  }
  token[length] = '\0';
  p->cursor += length;
  return length > 0 || hr__lex_fail(p, "a number");
}

static bool parse_integer(const char *token, int64_t *out) {
  bool is_negative = *token == '-';
  token += is_negative;
  int64_t value = 0;
  if (*token == '\0') {
    return false;
  }
  for (; *token != '\0'; ++token) {
    if (*token < '0' || *token > '9' || __builtin_mul_overflow(value, 10, &value) ||
        __builtin_sub_overflow(value, *token - '0', &value)) {
      return false;
    }
  }
  if (!is_negative && value == INT64_MIN) {
    return false;
  }
  *out = is_negative ? value : -value;
  return true;
}

bool hr__lex_real(const char *token, double *out) {
  const char *digits = token + (*token == '-' || *token == '+');
  bool is_named = strcmp(digits, "inf") == 0 || strcmp(digits, "nan") == 0;
  if (!is_named && *digits != '.' && (*digits < '0' || *digits > '9')) {
    return false;
  }
  char *end = NULL;
  *out = is_named ? (*digits == 'n'  ? (double)NAN
                     : *token == '-' ? -(double)INFINITY
                                     : (double)INFINITY)
                  : hr_text_number(token, &end);
  return is_named || (*end == '\0' && strpbrk(token, "xX") == NULL);
}

static bool parse_unsigned(const char *token, uint64_t *out) {
  size_t length = strlen(token);
  if (length < 2 || token[length - 1] != 'u') {
    return false;
  }
  *out = 0;
  for (size_t i = 0; i + 1 < length; ++i) {
    if (token[i] < '0' || token[i] > '9' || __builtin_mul_overflow(*out, 10u, out) ||
        __builtin_add_overflow(*out, (uint64_t)(token[i] - '0'), out)) {
      return false;
    }
  }
  return true;
}

bool hr__lex_f64(hr__parser *p, double *out) {
  char token[HR__LEX_NUMBER_MAX];
  return hr__lex_token(p, token) && (hr__lex_real(token, out) || hr__lex_fail(p, "a number before this"));
}

bool hr__lex_scalar(hr__parser *p, hr_scalar *out) {
  char token[HR__LEX_NUMBER_MAX];
  int64_t integer = 0;
  uint64_t natural = 0;
  double real = 0, imaginary = 0;
  if (hr__lex_take(p, '(')) {
    bool is_right = hr__lex_f64(p, &real) && hr__lex_expect(p, ',', "','") && hr__lex_f64(p, &imaginary) &&
                    hr__lex_expect(p, ')', "')'");
    *out = hr_scalar_c128(real, imaginary);
    return is_right;
  }
  if (!hr__lex_token(p, token)) {
    return false;
  }
  if (strcmp(token, "true") == 0 || strcmp(token, "false") == 0) {
    *out = hr_scalar_bool(*token == 't');
  } else if (parse_integer(token, &integer)) {
    *out = hr_scalar_i64(integer);
  } else if (parse_unsigned(token, &natural)) {
    *out = hr_scalar_u64(natural);
  } else if (hr__lex_real(token, &real)) {
    *out = hr_scalar_f64(real);
  } else {
    return hr__lex_fail(p, "a number before this");
  }
  return true;
}

bool hr__lex_i64(hr__parser *p, int64_t *out) {
  char token[HR__LEX_NUMBER_MAX];
  return hr__lex_token(p, token) &&
         (parse_integer(token, out) || hr__lex_fail(p, "a whole number of 64 bits before this"));
}

bool hr__lex_is_number(const hr__parser *p) {
  char c = hr__lex_peek(p);
  size_t left = (size_t)(p->end - p->cursor);
  static const char *const words[] = {"true", "false", "inf", "nan"};
  for (int i = 0; i < 4; ++i) {
    size_t length = strlen(words[i]);
    if (left >= length && memcmp(p->cursor, words[i], length) == 0 &&
        (left == length || !is_word_char(p->cursor[length]))) {
      return true;
    }
  }
  return (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '(';
}
