/* graph_parse.c: reads the text form of graphs; any text is safe input.
 *
 *   graph     "graph 1" {line}                          one a line; ; starts a comment
 *   line      "input" label type
 *             | "constant" label type "=" (list | "#" N)         N: elements beside the text
 *             | label {"," label} "=" name "(" [argument {"," argument}] ")"
 *             | "output" name "=" operand
 *   label     "%" (word | text | N)                              N: the next number of a value without a name
 *   type      dtype "[" [dim {"," dim}] "]"                      dim: a size, or a word: a symbol
 *   argument  operand | word "=" attribute                       operands first
 *   operand   "_" | label | number | word                        _: absent; a word: the size of a symbol's dims
 *   attribute number | "true" | "false" | list | text | dtype | label | word
 *   list      "[" [(number | label | word) {"," ...}] "]"
 *   number    1 | 1.0 | 1u | true | (re, im) | inf | nan
 *   name      a function, or "shape" | "gradient" | "symbol" | "number"
 *
 * The comment behind an operation has the types of its results, which are inferred again.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "functional/functions.h"
#include "graph/graph_node.h"

enum { WORD_MAX = HR_GRAPH_NAME_MAX + 1, NUMBER_MAX = 64 };

typedef struct parser {
  const char *cursor, *end, *line_start;
  int line;
  const hr_graph_source *source;
  hr_graph *graph;
  hr_status status;
  HR_VECTOR(hr_value) labels, operands, elements; /* numbered values; of a line; of its attributes */
  HR_VECTOR(int64_t) ints;
  HR_VECTOR(double) reals;
  hr_value symbols[HR_GRAPH_SYMBOLS_MAX]; /* their values, or 0 */
  char word[WORD_MAX];
} parser;

/* ---- errors and characters ---- */

static bool fail(parser *p, const char *expected) {
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

static bool fail_with(parser *p, hr_status failure) {
  if (p->status == HR_OK) {
    p->status = hr_status_annotate(failure, "line %d", p->line);
  } else {
    hr_status_free(failure);
  }
  return false;
}

static bool fail_memory(parser *p) {
  return fail_with(p, hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a graph's text"));
}

/* False, with the graph's failure, if it has one. */
static bool check_graph(parser *p) {
  hr_status failure = hr_graph_status(p->graph);
  return failure == HR_OK || fail_with(p, failure);
}

static char peek(const parser *p) {
  return p->cursor < p->end ? *p->cursor : '\0';
}

static void skip_blanks(parser *p) {
  while (peek(p) == ' ' || peek(p) == '\t' || peek(p) == '\r') {
    ++p->cursor;
  }
}

static bool take(parser *p, char character) {
  skip_blanks(p);
  if (p->cursor == p->end || *p->cursor != character) {
    return false;
  }
  ++p->cursor;
  return true;
}

static bool expect(parser *p, char character, const char *expected) {
  return take(p, character) || fail(p, expected);
}

static bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Copies the next word to p->word; false, consuming nothing, if it is empty or too long. */
static bool take_word(parser *p) {
  skip_blanks(p);
  size_t length = 0;
  while (p->cursor + length < p->end && is_word_char(p->cursor[length])) {
    ++length;
  }
  if (length == 0 || length >= WORD_MAX || isdigit((unsigned char)*p->cursor)) {
    return false;
  }
  memcpy(p->word, p->cursor, length);
  p->word[length] = '\0';
  p->cursor += length;
  return true;
}

/* Consumes the word if it is the next one. */
static bool take_this(parser *p, const char *word) {
  const char *start = p->cursor;
  if (take_word(p) && strcmp(p->word, word) == 0) {
    return true;
  }
  p->cursor = start;
  return false;
}

/* "...": to p->word. */
static bool parse_quoted(parser *p) {
  size_t length = 0;
  if (!expect(p, '"', "'\"'")) {
    return false;
  }
  while (p->cursor < p->end && *p->cursor != '"') {
    p->cursor += *p->cursor == '\\';
    if (p->cursor == p->end || length == HR_GRAPH_NAME_MAX || (unsigned char)*p->cursor < ' ') {
      return fail(p, "at most 1023 characters and '\"'");
    }
    p->word[length++] = *p->cursor++;
  }
  p->word[length] = '\0';
  return expect(p, '"', "'\"'");
}

/* ---- numbers ---- */

/* The characters of a number, in `token`. */
static bool parse_token(parser *p, char *token) {
  skip_blanks(p);
  size_t length = 0;
  while (p->cursor + length < p->end && length < NUMBER_MAX - 1) {
    char c = p->cursor[length], before = length > 0 ? p->cursor[length - 1] : '\0';
    bool is_sign = (c == '-' || c == '+') && (length == 0 || before == 'e' || before == 'E');
    if (!is_word_char(c) && c != '.' && !is_sign) {
      break;
    }
    token[length++] = c;
  }
  token[length] = '\0';
  p->cursor += length;
  return length > 0 || fail(p, "a number");
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

static bool parse_real(const char *token, double *out) {
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

static bool parse_f64(parser *p, double *out) {
  char token[NUMBER_MAX];
  return parse_token(p, token) && (parse_real(token, out) || fail(p, "a number before this"));
}

static bool parse_scalar(parser *p, hr_scalar *out) {
  char token[NUMBER_MAX];
  int64_t integer = 0;
  uint64_t natural = 0;
  double real = 0, imaginary = 0;
  if (take(p, '(')) {
    bool is_right = parse_f64(p, &real) && expect(p, ',', "','") && parse_f64(p, &imaginary) && expect(p, ')', "')'");
    *out = hr_scalar_c128(real, imaginary);
    return is_right;
  }
  if (!parse_token(p, token)) {
    return false;
  }
  if (strcmp(token, "true") == 0 || strcmp(token, "false") == 0) {
    *out = hr_scalar_bool(*token == 't');
  } else if (parse_integer(token, &integer)) {
    *out = hr_scalar_i64(integer);
  } else if (parse_unsigned(token, &natural)) {
    *out = hr_scalar_u64(natural);
  } else if (parse_real(token, &real)) {
    *out = hr_scalar_f64(real);
  } else {
    return fail(p, "a number before this");
  }
  return true;
}

static bool parse_i64(parser *p, int64_t *out) {
  char token[NUMBER_MAX];
  return parse_token(p, token) && (parse_integer(token, out) || fail(p, "a whole number of 64 bits before this"));
}

/* ---- labels and operands ---- */

/* A label of a value that exists. */
static bool parse_reference(parser *p, hr_value *out) {
  int64_t number = 0;
  if (!expect(p, '%', "'%'")) {
    return false;
  }
  if (peek(p) >= '0' && peek(p) <= '9') {
    if (!parse_i64(p, &number) || number < 0 || (size_t)number >= p->labels.count) {
      return fail(p, "the number of an earlier value before this");
    }
    *out = p->labels.data[number];
    return true;
  }
  if (peek(p) == '"' ? !parse_quoted(p) : !take_word(p)) {
    return fail(p, "a name");
  }
  *out = hr_graph_find(p->graph, p->word);
  return *out != 0 ||
         fail_with(p, hr_status_make(HR_STATUS_INVALID_ARGUMENT, "no earlier value has the name \"%.64s\"", p->word));
}

/* The value of the symbol in p->word. */
static bool find_symbol(parser *p, hr_value *out) {
  int symbol = hr__graph_add_symbol(p->graph, p->word);
  if (symbol < 0) {
    return check_graph(p);
  }
  if (p->symbols[symbol] == 0) {
    p->symbols[symbol] = hr_graph_symbol(p->graph, p->word);
  }
  *out = p->symbols[symbol];
  return check_graph(p);
}

static bool is_number_start(const parser *p) {
  char c = peek(p);
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

static bool parse_operand(parser *p, hr_value *out) {
  hr_scalar number;
  skip_blanks(p);
  if (peek(p) == '%') {
    return parse_reference(p, out);
  }
  if (is_number_start(p)) {
    if (!parse_scalar(p, &number)) {
      return false;
    }
    *out = hr_graph_number(p->graph, number);
    return check_graph(p);
  }
  if (!take_word(p)) {
    return fail(p, "a value");
  }
  *out = 0;
  return strcmp(p->word, "_") == 0 || find_symbol(p, out);
}

/* A label that is defined: its name is in p->word, "" for a numbered one. */
static bool parse_definition(parser *p) {
  int64_t number = 0;
  if (!expect(p, '%', "'%'")) {
    return false;
  }
  if (peek(p) >= '0' && peek(p) <= '9') {
    p->word[0] = '\0';
    return parse_i64(p, &number) && (number == (int64_t)p->labels.count || fail(p, "the next number before this"));
  }
  return peek(p) == '"' ? parse_quoted(p) : take_word(p) || fail(p, "a name");
}

static bool define(parser *p, const char *name, hr_value value) {
  if (name[0] != '\0') {
    hr_graph_name(p->graph, value, name);
    return check_graph(p);
  }
  return hr_vector_push(&p->labels, value) || fail_memory(p);
}

/* ---- inputs and constants ---- */

typedef struct names {
  char text[HR_RANK_MAX][WORD_MAX];
} names;

static bool parse_dim(parser *p, int d, hr_type *type, names *symbols) {
  skip_blanks(p);
  type->symbols[d] = NULL;
  if (peek(p) >= '0' && peek(p) <= '9') {
    return parse_i64(p, &type->dims[d]);
  }
  if (!take_word(p)) {
    return fail(p, "a size, or a symbol of at most 1023 characters");
  }
  strcpy(symbols->text[d], p->word);
  type->dims[d] = -1, type->symbols[d] = symbols->text[d];
  return true;
}

static bool parse_type(parser *p, hr_type *type, names *symbols) {
  *type = (hr_type){0};
  if (!take_word(p) || (type->dtype = hr_dtype_parse(p->word)) == HR_DTYPE_NONE) {
    return fail(p, "a dtype");
  }
  if (!expect(p, '[', "'['")) {
    return false;
  }
  while (!take(p, ']')) {
    if (type->rank == HR_RANK_MAX || (type->rank > 0 && !take(p, ','))) {
      return fail(p, "',' or ']' after at most 16 dims");
    }
    if (!parse_dim(p, type->rank, type, symbols)) {
      return false;
    }
    ++type->rank;
  }
  return true;
}

static bool parse_input(parser *p) {
  char name[WORD_MAX];
  hr_type type;
  names symbols;
  if (!parse_definition(p)) {
    return false;
  }
  if (p->word[0] == '\0') {
    return fail(p, "a name of the input before this");
  }
  strcpy(name, p->word);
  if (!parse_type(p, &type, &symbols)) {
    return false;
  }
  hr_graph_input(p->graph, name, &type);
  return check_graph(p);
}

static size_t count_elements(const hr_type *type) {
  int64_t count = 0;
  for (int d = 0; d < type->rank; ++d) {
    if (type->dims[d] < 0) {
      return SIZE_MAX;
    }
  }
  return hr__count_elements(type->rank, type->dims, &count) ? (size_t)count : SIZE_MAX;
}

enum { INLINE_MAX = 64, ELEMENT_MAX = 8 };

static bool parse_whole_element(parser *p, hr_dtype dtype, char *to) {
  int64_t integer = 0, stored = 0;
  if (!parse_i64(p, &integer)) {
    return false;
  }
  hr__integers_store(dtype, 1, &integer, to);
  hr__integers_load(dtype, 1, to, &stored);
  if (stored != integer || (dtype == HR_DTYPE_BOOL && integer != 0 && integer != 1)) {
    return fail_with(p, hr_status_make(HR_STATUS_INVALID_ARGUMENT, "constant: %lld is no %s", (long long)integer,
                                       hr_dtype_name(dtype)));
  }
  return true;
}

static bool parse_element(parser *p, hr_dtype dtype, char *to) {
  double real = 0;
  char token[NUMBER_MAX];
  if (hr__is_host_dtype(dtype)) {
    return parse_whole_element(p, dtype, to);
  }
  if (!parse_token(p, token) || !(parse_real(token, &real) || fail(p, "a number before this"))) {
    return false;
  }
  float single = (float)real;
  bool is_named = strstr(token, "inf") != NULL;
  if (!is_named && (isinf(real) || (dtype == HR_DTYPE_F32 && isinf(single)))) {
    return fail_with(
        p, hr_status_make(HR_STATUS_INVALID_ARGUMENT, "constant: %s is too large for %s", token, hr_dtype_name(dtype)));
  }
  memcpy(to, dtype == HR_DTYPE_F32 ? (const void *)&single : (const void *)&real, hr_dtype_size(dtype));
  return true;
}

static bool parse_elements(parser *p, const hr_type *type, hr_value *out) {
  char elements[INLINE_MAX * ELEMENT_MAX];
  size_t count = count_elements(type), size = hr_dtype_size(type->dtype);
  if (count > INLINE_MAX ||
      (!hr__is_host_dtype(type->dtype) && type->dtype != HR_DTYPE_F32 && type->dtype != HR_DTYPE_F64)) {
    return fail(p, "at most 64 integers, f32 or f64 in a list");
  }
  for (size_t i = 0; i < count; ++i) {
    if ((i > 0 && !expect(p, ',', "','")) || !parse_element(p, type->dtype, elements + i * size)) {
      return false;
    }
  }
  *out = expect(p, ']', "']'") ? hr_graph_constant(p->graph, type, elements) : 0;
  return p->status == HR_OK && check_graph(p);
}

static bool matches(const hr_type *type, const hr_graph_elements *data) {
  bool is_same = type->dtype == data->dtype && type->rank == data->rank;
  for (int d = 0; is_same && d < type->rank; ++d) {
    is_same = type->dims[d] == data->dims[d];
  }
  return is_same;
}

static bool parse_data(parser *p, const hr_type *type, hr_value *out) {
  int64_t index = 0;
  const hr_graph_source *source = p->source;
  if (!parse_i64(p, &index)) {
    return false;
  }
  if (source == NULL || index < 0 || index >= source->data_count || !matches(type, &source->data[index])) {
    return fail(p, "the number of elements that there are, of this type, before this");
  }
  if (source->release == NULL) {
    *out = hr_graph_constant(p->graph, type, source->data[index].address);
  } else {
    source->retain(source->arg);
    *out = hr_graph_constant_adopt(p->graph, type, source->data[index].address, source->release, source->arg);
  }
  return check_graph(p);
}

static bool parse_constant(parser *p) {
  char name[WORD_MAX];
  hr_type type;
  names symbols;
  hr_value value = 0;
  if (!parse_definition(p)) {
    return false;
  }
  strcpy(name, p->word);
  if (!parse_type(p, &type, &symbols) || !expect(p, '=', "'='")) {
    return false;
  }
  bool is_right = take(p, '#')   ? parse_data(p, &type, &value)
                  : take(p, '[') ? parse_elements(p, &type, &value)
                                 : fail(p, "'[' or '#'");
  return is_right && define(p, name, value);
}

/* ---- attributes ---- */

/* A value in an attribute: none is absent there. */
static bool parse_computed(parser *p, hr_value *out) {
  return parse_operand(p, out) && (*out != 0 || fail(p, "a number or a value before this"));
}

/* Marks the element at the end of `ints` as a value. */
static bool push_element(parser *p, int64_t number, hr_value value) {
  return (hr_vector_push(&p->ints, number) && hr_vector_push(&p->elements, value)) || fail_memory(p);
}

static bool parse_ints(parser *p) {
  while (!take(p, ']')) {
    int64_t number = 0;
    hr_value value = 0;
    if (p->ints.count > 0 && !expect(p, ',', "',' or ']'")) {
      return false;
    }
    skip_blanks(p);
    bool is_number = is_number_start(p);
    if (!(is_number ? parse_i64(p, &number) : parse_computed(p, &value)) || !push_element(p, number, value)) {
      return false;
    }
  }
  return true;
}

static bool parse_reals(parser *p) {
  while (!take(p, ']')) {
    double real = 0;
    if ((p->reals.count > 0 && !expect(p, ',', "',' or ']'")) || !parse_f64(p, &real)) {
      return false;
    }
    if (!hr_vector_push(&p->reals, real)) {
      return fail_memory(p);
    }
  }
  return true;
}

/* An attribute of a line with its text and values. Vectors move while the line is read: places in them are set at its
 * end. */
typedef struct read_attribute {
  hr_graph_attribute attribute;
  char text[WORD_MAX];
  int64_t ints[HR_RANK_MAX];
  double reals[HR_RANK_MAX];
  hr_value values[HR_RANK_MAX];
} read_attribute;

static bool set_ints(parser *p, read_attribute *to) {
  hr_vector_clear(&p->ints);
  hr_vector_clear(&p->elements);
  if (!parse_ints(p)) {
    return false;
  }
  if (p->ints.count > HR_RANK_MAX) {
    return fail(p, "at most 16 integers before this");
  }
  memcpy(to->ints, p->ints.data, p->ints.count * sizeof *to->ints);
  memcpy(to->values, p->elements.data, p->elements.count * sizeof *to->values);
  to->attribute.value.count = (int)p->ints.count, to->attribute.value.value.ints = to->ints;
  for (size_t i = 0; i < p->ints.count; ++i) {
    to->attribute.values = to->values[i] != 0 ? to->values : to->attribute.values;
  }
  return true;
}

static bool set_reals(parser *p, read_attribute *to) {
  hr_vector_clear(&p->reals);
  if (!expect(p, '[', "'['") || !parse_reals(p)) {
    return false;
  }
  if (p->reals.count > HR_RANK_MAX) {
    return fail(p, "at most 16 numbers before this");
  }
  memcpy(to->reals, p->reals.data, p->reals.count * sizeof *to->reals);
  to->attribute.value.count = (int)p->reals.count, to->attribute.value.value.reals = to->reals;
  return true;
}

/* An INT or REAL: a number or a value. */
static bool set_number(parser *p, read_attribute *to) {
  hr_attribute *value = &to->attribute.value;
  skip_blanks(p);
  if (!is_number_start(p)) {
    to->attribute.values = to->values;
    value->value.number = hr_scalar_i64(0);
    return parse_computed(p, &to->values[0]);
  }
  return value->kind == HR_ATTRIBUTE_INT ? parse_i64(p, &value->value.integer) : parse_scalar(p, &value->value.number);
}

static bool set_dtype(parser *p, hr_attribute *value) {
  value->value.dtype = take_word(p) ? hr_dtype_parse(p->word) : HR_DTYPE_NONE;
  return value->value.dtype != HR_DTYPE_NONE || fail(p, "a dtype before this");
}

static bool parse_value(parser *p, read_attribute *to) {
  hr_attribute *value = &to->attribute.value;
  switch (value->kind) {
    case HR_ATTRIBUTE_INT:
    case HR_ATTRIBUTE_REAL:
      return set_number(p, to);
    case HR_ATTRIBUTE_FLAG:
      value->value.integer = take_this(p, "true");
      return value->value.integer != 0 || take_this(p, "false") || fail(p, "true or false");
    case HR_ATTRIBUTE_INTS:
      return take(p, '[') ? set_ints(p, to) : parse_computed(p, &to->attribute.list);
    case HR_ATTRIBUTE_REALS:
      return set_reals(p, to);
    case HR_ATTRIBUTE_DTYPE:
      return set_dtype(p, value);
    default:
      if (!parse_quoted(p)) {
        return false;
      }
      strcpy(to->text, p->word);
      value->value.text = to->text;
      return true;
  }
}

/* The attribute whose name is in p->word. */
static bool parse_attribute(parser *p, const hr__function_row *row, read_attribute *to) {
  *to = (read_attribute){0};
  for (int i = 0; row->attributes[i].name != NULL; ++i) {
    if (strcmp(row->attributes[i].name, p->word) == 0) {
      to->attribute.name = row->attributes[i].name;
      to->attribute.value.kind = row->attributes[i].kind;
    }
  }
  return to->attribute.name != NULL ? parse_value(p, to) : fail(p, "an attribute of the function before this");
}

/* ---- operations ---- */

/* True if "word =" follows; the word is then in p->word. */
static bool take_attribute_name(parser *p) {
  const char *start = p->cursor;
  if (take_word(p) && take(p, '=')) {
    return true;
  }
  p->cursor = start;
  return false;
}

static bool push_operand(parser *p) {
  hr_value value = 0;
  return parse_operand(p, &value) && (hr_vector_push(&p->operands, value) || fail_memory(p));
}

static bool add_call(parser *p, hr_functional function, int count, const read_attribute *all, hr_value *out) {
  hr_graph_attribute attributes[HR__GRAPH_ATTRIBUTES_MAX];
  for (int i = 0; i < count; ++i) {
    attributes[i] = all[i].attribute;
  }
  *out = hr_graph_add(p->graph, function, (int)p->operands.count, p->operands.data, count, attributes);
  return check_graph(p);
}

/* The arguments of a function, up to its parenthesis. */
static bool parse_arguments(parser *p, hr_functional function, read_attribute *attributes, hr_value *out) {
  const hr__function_row *row = hr__function_row_of(function);
  int count = 0;
  for (bool is_first = true; !take(p, ')'); is_first = false) {
    if (!is_first && !expect(p, ',', "',' or ')'")) {
      return false;
    }
    if (take_attribute_name(p)) {
      if (count == HR__GRAPH_ATTRIBUTES_MAX) {
        return fail(p, "fewer attributes before this");
      }
      if (!parse_attribute(p, row, &attributes[count++])) {
        return false;
      }
    } else if (count > 0 || !push_operand(p)) {
      return fail(p, "an attribute");
    }
  }
  return p->operands.count <= HR__GRAPH_OPERANDS_MAX ? add_call(p, function, count, attributes, out)
                                                     : fail(p, "fewer inputs before this");
}

static bool parse_call(parser *p, hr_functional function, hr_value *out) {
  read_attribute *attributes = hr_malloc(HR__GRAPH_ATTRIBUTES_MAX * sizeof *attributes);
  bool is_right = attributes != NULL ? parse_arguments(p, function, attributes, out) : fail_memory(p);
  hr_free(attributes);
  return is_right;
}

static bool parse_gradient(parser *p, hr_value *out) {
  hr_value seed = 0;
  for (bool is_first = true; !take(p, ')'); is_first = false) {
    if ((!is_first && !expect(p, ',', "',' or ')'")) || seed != 0) {
      return fail(p, "')'");
    }
    if (take_attribute_name(p)) {
      if (strcmp(p->word, "seed") != 0 || !parse_reference(p, &seed)) {
        return fail(p, "seed=");
      }
    } else if (!push_operand(p)) {
      return false;
    }
  }
  if (p->operands.count < 2 || p->operands.count > HR__GRAPH_OPERANDS_MAX) {
    return fail(p, "a value and values by which it is differentiated before this");
  }
  *out = hr_graph_gradient(p->graph, p->operands.data[0], seed, (int)p->operands.count - 1, p->operands.data + 1);
  return check_graph(p);
}

static bool parse_number(parser *p, hr_value *out) {
  hr_scalar number;
  if (!parse_scalar(p, &number)) {
    return false;
  }
  *out = hr_graph_number(p->graph, number);
  return expect(p, ')', "')'") && check_graph(p);
}

/* The operation whose name is in p->word. */
static bool parse_operation(parser *p, hr_value *out) {
  hr_functional function = hr_functional_find(p->word);
  hr_value x = 0;
  bool is_shape = strcmp(p->word, "shape") == 0, is_symbol = strcmp(p->word, "symbol") == 0;
  bool is_number = strcmp(p->word, "number") == 0, is_gradient = strcmp(p->word, "gradient") == 0;
  if (function == HR_FUNCTIONAL_NONE && !is_shape && !is_symbol && !is_number && !is_gradient) {
    return fail_with(p, hr_status_make(HR_STATUS_INVALID_ARGUMENT, "there is no function \"%.64s\"", p->word));
  }
  if (!expect(p, '(', "'('")) {
    return false;
  }
  hr_vector_clear(&p->operands);
  if (function != HR_FUNCTIONAL_NONE) {
    return parse_call(p, function, out);
  }
  if (is_gradient || is_number) {
    return is_gradient ? parse_gradient(p, out) : parse_number(p, out);
  }
  if (is_symbol) {
    if (!take_word(p)) {
      return fail(p, "a symbol");
    }
    *out = hr_graph_symbol(p->graph, p->word);
  } else {
    *out = parse_operand(p, &x) ? hr_graph_shape(p->graph, x) : 0;
  }
  return p->status == HR_OK && check_graph(p) && expect(p, ')', "')'");
}

/* Labels are read twice: their values are known at the end of the line. */
static bool parse_results(parser *p) {
  const char *start = p->cursor;
  hr_value first = 0;
  int count = 0;
  size_t labels = p->labels.count;
  do {
    bool is_right = parse_definition(p) && (p->word[0] != '\0' || hr_vector_push(&p->labels, 0) || fail_memory(p));
    if (!is_right) {
      return false;
    }
    ++count;
  } while (take(p, ','));
  p->labels.count = labels;
  if (!expect(p, '=', "'='") || !(take_word(p) || fail(p, "a function")) || !parse_operation(p, &first)) {
    return false;
  }
  if (count > hr_graph_result_count(p->graph, first)) {
    return fail_with(p, hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%d results, expected %d", count,
                                       hr_graph_result_count(p->graph, first)));
  }
  const char *end = p->cursor;
  p->cursor = start;
  for (int i = 0; i < count; ++i) {
    if (!parse_definition(p) || !define(p, p->word, first + i)) {
      return false;
    }
    (void)take(p, ',');
  }
  p->cursor = end;
  return true;
}

static bool parse_output(parser *p) {
  char name[WORD_MAX];
  hr_value value = 0;
  skip_blanks(p);
  if (!(peek(p) == '"' ? parse_quoted(p) : take_word(p) || fail(p, "the name of an output"))) {
    return false;
  }
  strcpy(name, p->word);
  if (!expect(p, '=', "'='") || !parse_operand(p, &value)) {
    return false;
  }
  hr_graph_output(p->graph, name, value);
  return check_graph(p);
}

/* ---- lines ---- */

/* The rest of a line, which holds nothing but a comment. */
static bool end_line(parser *p) {
  skip_blanks(p);
  if (peek(p) == ';') {
    while (p->cursor < p->end && *p->cursor != '\n') {
      ++p->cursor;
    }
  }
  if (p->cursor < p->end && *p->cursor != '\n') {
    return fail(p, "the end of the line");
  }
  p->cursor += p->cursor < p->end;
  ++p->line, p->line_start = p->cursor;
  return true;
}

static bool parse_line(parser *p) {
  skip_blanks(p);
  if (peek(p) == '%') {
    return parse_results(p);
  }
  if (peek(p) == '\n' || peek(p) == ';' || p->cursor == p->end) {
    return true;
  }
  if (!take_word(p)) {
    return fail(p, "input, constant, output or a value");
  }
  return strcmp(p->word, "input") == 0      ? parse_input(p)
         : strcmp(p->word, "constant") == 0 ? parse_constant(p)
         : strcmp(p->word, "output") == 0   ? parse_output(p)
                                            : fail(p, "input, constant, output or a value before this");
}

static bool parse_header(parser *p) {
  int64_t version = 0;
  if (!take_this(p, "graph")) {
    return fail(p, "\"graph 1\"");
  }
  if (!parse_i64(p, &version)) {
    return false;
  }
  return version == 1 || fail_with(p, hr_status_make(HR_STATUS_UNIMPLEMENTED, "the text has version %lld, expected 1",
                                                     (long long)version));
}

hr_status hr_graph_parse(const char *text, size_t length, const hr_graph_source *source, hr_graph **out_graph) {
  parser *p = hr_calloc(1, sizeof *p);
  if (p == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "graph: no host memory for its text");
  }
  p->cursor = p->line_start = text, p->end = text + length, p->line = 1, p->source = source;
  p->status = hr_graph_create(&p->graph);
  bool is_right = p->status == HR_OK && parse_header(p) && end_line(p);
  while (is_right && p->cursor < p->end) {
    is_right = parse_line(p) && end_line(p);
  }
  hr_status status = p->status;
  if (status == HR_OK) {
    *out_graph = p->graph;
  } else {
    hr_graph_release(p->graph);
  }
  hr_vector_fini(&p->labels);
  hr_vector_fini(&p->operands);
  hr_vector_fini(&p->elements);
  hr_vector_fini(&p->ints);
  hr_vector_fini(&p->reals);
  hr_free(p);
  return status;
}
