/* graph_parse_value.c: labels, operands, inputs and constants in a graph's text. */
#include <math.h>

#include "functional/functions.h"
#include "graph/graph_parse.h"

/* ---- labels and operands ---- */

/* A label of a value that exists. */
bool hr__parse_reference(hr__parser *p, hr_value *out) {
  int64_t number = 0;
  if (!hr__lex_expect(p, '%', "'%'")) {
    return false;
  }
  if (hr__lex_peek(p) >= '0' && hr__lex_peek(p) <= '9') {
    if (!hr__lex_i64(p, &number) || number < 0 || (size_t)number >= p->labels.count) {
      return hr__lex_fail(p, "the number of an earlier value before this");
    }
    *out = p->labels.data[number];
    return true;
  }
  if (hr__lex_peek(p) == '"' ? !hr__lex_quoted(p) : !hr__lex_word(p)) {
    return hr__lex_fail(p, "a name");
  }
  *out = hr_graph_find(p->graph, p->word);
  return *out != 0 || hr__lex_fail_with(p, hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                                                          "no earlier value has the name \"%.64s\"", p->word));
}

/* The value of the symbol in p->word. */
static bool find_symbol(hr__parser *p, hr_value *out) {
  int symbol = hr__graph_add_symbol(p->graph, p->word);
  if (symbol < 0) {
    return hr__lex_check(p);
  }
  if (p->symbols[symbol] == 0) {
    p->symbols[symbol] = hr_graph_symbol(p->graph, p->word);
  }
  *out = p->symbols[symbol];
  return hr__lex_check(p);
}

bool hr__parse_operand(hr__parser *p, hr_value *out) {
  hr_scalar number;
  hr__lex_skip(p);
  if (hr__lex_peek(p) == '%') {
    return hr__parse_reference(p, out);
  }
  if (hr__lex_is_number(p)) {
    if (!hr__lex_scalar(p, &number)) {
      return false;
    }
    *out = hr_graph_number(p->graph, number);
    return hr__lex_check(p);
  }
  if (!hr__lex_word(p)) {
    return hr__lex_fail(p, "a value");
  }
  *out = 0;
  return strcmp(p->word, "_") == 0 || find_symbol(p, out);
}

bool hr__parse_push_operand(hr__parser *p) {
  hr_value value = 0;
  return hr__parse_operand(p, &value) && (hr_vector_push(&p->operands, value) || hr__lex_fail_memory(p));
}

/* A label that is defined: its name is in p->word, "" for a numbered one. */
bool hr__parse_definition(hr__parser *p) {
  int64_t number = 0;
  if (!hr__lex_expect(p, '%', "'%'")) {
    return false;
  }
  if (hr__lex_peek(p) >= '0' && hr__lex_peek(p) <= '9') {
    p->word[0] = '\0';
    return hr__lex_i64(p, &number) &&
           (number == (int64_t)p->labels.count || hr__lex_fail(p, "the next number before this"));
  }
  return hr__lex_peek(p) == '"' ? hr__lex_quoted(p) : hr__lex_word(p) || hr__lex_fail(p, "a name");
}

bool hr__parse_define(hr__parser *p, const char *name, hr_value value) {
  if (name[0] != '\0') {
    hr_graph_name(p->graph, value, name);
    return hr__lex_check(p);
  }
  return hr_vector_push(&p->labels, value) || hr__lex_fail_memory(p);
}

/* ---- inputs and constants ---- */

typedef struct names {
  char text[HR_RANK_MAX][HR__LEX_WORD_MAX];
} names;

static bool parse_dim(hr__parser *p, int d, hr_type *type, names *symbols) {
  hr__lex_skip(p);
  type->symbols[d] = NULL;
  if (hr__lex_peek(p) >= '0' && hr__lex_peek(p) <= '9') {
    return hr__lex_i64(p, &type->dims[d]);
  }
  if (!hr__lex_word(p)) {
    return hr__lex_fail(p, "a size, or a symbol of at most 1023 characters");
  }
  strcpy(symbols->text[d], p->word);
  type->dims[d] = -1, type->symbols[d] = symbols->text[d];
  return true;
}

static bool parse_type(hr__parser *p, hr_type *type, names *symbols) {
  *type = (hr_type){0};
  if (!hr__lex_word(p) || (type->dtype = hr_dtype_parse(p->word)) == HR_DTYPE_NONE) {
    return hr__lex_fail(p, "a dtype");
  }
  if (!hr__lex_expect(p, '[', "'['")) {
    return false;
  }
  while (!hr__lex_take(p, ']')) {
    if (type->rank == HR_RANK_MAX || (type->rank > 0 && !hr__lex_take(p, ','))) {
      return hr__lex_fail(p, "',' or ']' after at most 16 dims");
    }
    if (!parse_dim(p, type->rank, type, symbols)) {
      return false;
    }
    ++type->rank;
  }
  return true;
}

bool hr__parse_input(hr__parser *p) {
  char name[HR__LEX_WORD_MAX];
  hr_type type;
  names symbols;
  if (!hr__parse_definition(p)) {
    return false;
  }
  if (p->word[0] == '\0') {
    return hr__lex_fail(p, "a name of the input before this");
  }
  strcpy(name, p->word);
  if (!parse_type(p, &type, &symbols)) {
    return false;
  }
  hr_graph_input(p->graph, name, &type);
  return hr__lex_check(p);
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

static bool parse_whole_element(hr__parser *p, hr_dtype dtype, char *to) {
  int64_t integer = 0, stored = 0;
  if (!hr__lex_i64(p, &integer)) {
    return false;
  }
  hr__integers_store(dtype, 1, &integer, to);
  hr__integers_load(dtype, 1, to, &stored);
  if (stored != integer || (dtype == HR_DTYPE_BOOL && integer != 0 && integer != 1)) {
    return hr__lex_fail_with(p, hr_status_make(HR_STATUS_INVALID_ARGUMENT, "constant: %lld is no %s",
                                               (long long)integer, hr_dtype_name(dtype)));
  }
  return true;
}

static bool parse_element(hr__parser *p, hr_dtype dtype, char *to) {
  double real = 0;
  char token[HR__LEX_NUMBER_MAX];
  if (hr__is_host_dtype(dtype)) {
    return parse_whole_element(p, dtype, to);
  }
  if (!hr__lex_token(p, token) || !(hr__lex_real(token, &real) || hr__lex_fail(p, "a number before this"))) {
    return false;
  }
  float single = (float)real;
  bool is_named = strstr(token, "inf") != NULL;
  if (!is_named && (isinf(real) || (dtype == HR_DTYPE_F32 && isinf(single)))) {
    return hr__lex_fail_with(
        p, hr_status_make(HR_STATUS_INVALID_ARGUMENT, "constant: %s is too large for %s", token, hr_dtype_name(dtype)));
  }
  memcpy(to, dtype == HR_DTYPE_F32 ? (const void *)&single : (const void *)&real, hr_dtype_size(dtype));
  return true;
}

static bool parse_elements(hr__parser *p, const char *variable, const hr_type *type, hr_value *out) {
  char elements[INLINE_MAX * ELEMENT_MAX];
  size_t count = count_elements(type), size = hr_dtype_size(type->dtype);
  if (count > INLINE_MAX ||
      (!hr__is_host_dtype(type->dtype) && type->dtype != HR_DTYPE_F32 && type->dtype != HR_DTYPE_F64)) {
    return hr__lex_fail(p, "at most 64 integers, f32 or f64 in a list");
  }
  for (size_t i = 0; i < count; ++i) {
    if ((i > 0 && !hr__lex_expect(p, ',', "','")) || !parse_element(p, type->dtype, elements + i * size)) {
      return false;
    }
  }
  if (!hr__lex_expect(p, ']', "']'")) {
    return false;
  }
  *out = variable != NULL ? hr_graph_variable(p->graph, variable, type, elements)
                          : hr_graph_constant(p->graph, type, elements);
  return p->status == HR_OK && hr__lex_check(p);
}

static bool matches(const hr_type *type, const hr_graph_elements *data) {
  bool is_same = type->dtype == data->dtype && type->rank == data->rank;
  for (int d = 0; is_same && d < type->rank; ++d) {
    is_same = type->dims[d] == data->dims[d];
  }
  return is_same;
}

static bool parse_data(hr__parser *p, const char *variable, const hr_type *type, hr_value *out) {
  int64_t index = 0;
  const hr_graph_source *source = p->source;
  if (!hr__lex_i64(p, &index)) {
    return false;
  }
  if (source == NULL || index < 0 || index >= source->data_count || !matches(type, &source->data[index])) {
    return hr__lex_fail(p, "the number of elements that there are, of this type, before this");
  }
  const void *address = source->data[index].address;
  if (source->release == NULL) {
    *out = variable != NULL ? hr_graph_variable(p->graph, variable, type, address)
                            : hr_graph_constant(p->graph, type, address);
    return hr__lex_check(p);
  }
  source->retain(source->arg);
  *out = variable != NULL ? hr__graph_adopt_variable(p->graph, variable, type, address, source->release, source->arg)
                          : hr_graph_constant_adopt(p->graph, type, address, source->release, source->arg);
  return hr__lex_check(p);
}

/* The type and the elements, behind the label in p->word. variable: NULL, or a name. */
static bool parse_source(hr__parser *p, const char *variable, hr_value *out) {
  hr_type type;
  names symbols;
  if (!parse_type(p, &type, &symbols) || !hr__lex_expect(p, '=', "'='")) {
    return false;
  }
  return hr__lex_take(p, '#')   ? parse_data(p, variable, &type, out)
         : hr__lex_take(p, '[') ? parse_elements(p, variable, &type, out)
                                : hr__lex_fail(p, "'[' or '#'");
}

bool hr__parse_constant(hr__parser *p) {
  char name[HR__LEX_WORD_MAX];
  hr_value value = 0;
  if (!hr__parse_definition(p)) {
    return false;
  }
  strcpy(name, p->word);
  return parse_source(p, NULL, &value) && hr__parse_define(p, name, value);
}

bool hr__parse_variable(hr__parser *p) {
  char name[HR__LEX_WORD_MAX];
  hr_value value = 0;
  if (!hr__parse_definition(p)) {
    return false;
  }
  if (p->word[0] == '\0') {
    return hr__lex_fail(p, "a name of the variable before this");
  }
  strcpy(name, p->word);
  return parse_source(p, name, &value);
}
