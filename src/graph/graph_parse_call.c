/* graph_parse_call.c: calls of functions in a graph's text, with their attributes. */
#include "functional/functions.h"
#include "graph/graph_parse.h"

/* ---- attributes ---- */

/* A value in an attribute: none is absent there. */
static bool parse_computed(hr__parser *p, hr_value *out) {
  return hr__parse_operand(p, out) && (*out != 0 || hr__lex_fail(p, "a number or a value before this"));
}

/* Marks the element at the end of `ints` as a value. */
static bool push_element(hr__parser *p, int64_t number, hr_value value) {
  return (hr_vector_push(&p->ints, number) && hr_vector_push(&p->elements, value)) || hr__lex_fail_memory(p);
}

static bool parse_ints(hr__parser *p) {
  while (!hr__lex_take(p, ']')) {
    int64_t number = 0;
    hr_value value = 0;
    if (p->ints.count > 0 && !hr__lex_expect(p, ',', "',' or ']'")) {
      return false;
    }
    hr__lex_skip(p);
    bool is_number = hr__lex_is_number(p);
    if (!(is_number ? hr__lex_i64(p, &number) : parse_computed(p, &value)) || !push_element(p, number, value)) {
      return false;
    }
  }
  return true;
}

static bool parse_reals(hr__parser *p) {
  while (!hr__lex_take(p, ']')) {
    double real = 0;
    if ((p->reals.count > 0 && !hr__lex_expect(p, ',', "',' or ']'")) || !hr__lex_f64(p, &real)) {
      return false;
    }
    if (!hr_vector_push(&p->reals, real)) {
      return hr__lex_fail_memory(p);
    }
  }
  return true;
}

/* An attribute of a line with its text and values. Vectors move while the line is read: places in them are set at its
 * end. */
typedef struct read_attribute {
  hr_graph_attribute attribute;
  char text[HR__LEX_WORD_MAX];
  int64_t ints[HR_RANK_MAX];
  double reals[HR_RANK_MAX];
  hr_value values[HR_RANK_MAX];
} read_attribute;

static bool set_ints(hr__parser *p, read_attribute *to) {
  hr_vector_clear(&p->ints);
  hr_vector_clear(&p->elements);
  if (!parse_ints(p)) {
    return false;
  }
  if (p->ints.count > HR_RANK_MAX) {
    return hr__lex_fail(p, "at most 16 integers before this");
  }
  if (p->ints.count > 0) { /* else the lists may be NULL */
    memcpy(to->ints, p->ints.data, p->ints.count * sizeof *to->ints);
    memcpy(to->values, p->elements.data, p->elements.count * sizeof *to->values);
  }
  to->attribute.value.count = (int)p->ints.count, to->attribute.value.value.ints = to->ints;
  for (size_t i = 0; i < p->ints.count; ++i) {
    to->attribute.values = to->values[i] != 0 ? to->values : to->attribute.values;
  }
  return true;
}

static bool set_reals(hr__parser *p, read_attribute *to) {
  hr_vector_clear(&p->reals);
  if (!hr__lex_expect(p, '[', "'['") || !parse_reals(p)) {
    return false;
  }
  if (p->reals.count > HR_RANK_MAX) {
    return hr__lex_fail(p, "at most 16 numbers before this");
  }
  if (p->reals.count > 0) { /* else the list may be NULL */
    memcpy(to->reals, p->reals.data, p->reals.count * sizeof *to->reals);
  }
  to->attribute.value.count = (int)p->reals.count, to->attribute.value.value.reals = to->reals;
  return true;
}

/* An INT or REAL: a number or a value. */
static bool set_number(hr__parser *p, read_attribute *to) {
  hr_attribute *value = &to->attribute.value;
  hr__lex_skip(p);
  if (!hr__lex_is_number(p)) {
    to->attribute.values = to->values;
    value->value.number = hr_scalar_i64(0);
    return parse_computed(p, &to->values[0]);
  }
  return value->kind == HR_ATTRIBUTE_INT ? hr__lex_i64(p, &value->value.integer)
                                         : hr__lex_scalar(p, &value->value.number);
}

static bool set_dtype(hr__parser *p, hr_attribute *value) {
  value->value.dtype = hr__lex_word(p) ? hr_dtype_parse(p->word) : HR_DTYPE_NONE;
  return value->value.dtype != HR_DTYPE_NONE || hr__lex_fail(p, "a dtype before this");
}

static bool parse_value(hr__parser *p, read_attribute *to) {
  hr_attribute *value = &to->attribute.value;
  switch (value->kind) {
    case HR_ATTRIBUTE_INT:
    case HR_ATTRIBUTE_REAL:
      return set_number(p, to);
    case HR_ATTRIBUTE_FLAG:
      value->value.integer = hr__lex_this(p, "true");
      return value->value.integer != 0 || hr__lex_this(p, "false") || hr__lex_fail(p, "true or false");
    case HR_ATTRIBUTE_INTS:
      return hr__lex_take(p, '[') ? set_ints(p, to) : parse_computed(p, &to->attribute.list);
    case HR_ATTRIBUTE_REALS:
      return set_reals(p, to);
    case HR_ATTRIBUTE_DTYPE:
      return set_dtype(p, value);
    default:
      if (!hr__lex_quoted(p)) {
        return false;
      }
      strcpy(to->text, p->word);
      value->value.text = to->text;
      return true;
  }
}

/* The attribute whose name is in p->word. */
static bool parse_attribute(hr__parser *p, const hr__function_row *row, read_attribute *to) {
  *to = (read_attribute){0};
  for (int i = 0; row->attributes[i].name != NULL; ++i) {
    if (strcmp(row->attributes[i].name, p->word) == 0) {
      to->attribute.name = row->attributes[i].name;
      to->attribute.value.kind = row->attributes[i].kind;
    }
  }
  return to->attribute.name != NULL ? parse_value(p, to) : hr__lex_fail(p, "an attribute of the function before this");
}

/* ---- operations ---- */

static bool add_call(hr__parser *p, hr_functional function, int count, const read_attribute *all, hr_value *out) {
  hr_graph_attribute attributes[HR__GRAPH_ATTRIBUTES_MAX];
  for (int i = 0; i < count; ++i) {
    attributes[i] = all[i].attribute;
  }
  *out = hr_graph_add(p->graph, function, (int)p->operands.count, p->operands.data, count, attributes);
  return hr__lex_check(p);
}

/* The arguments of a function, up to its parenthesis. */
static bool parse_arguments(hr__parser *p, hr_functional function, read_attribute *attributes, hr_value *out) {
  const hr__function_row *row = hr__function_row_of(function);
  int count = 0;
  for (bool is_first = true; !hr__lex_take(p, ')'); is_first = false) {
    if (!is_first && !hr__lex_expect(p, ',', "',' or ')'")) {
      return false;
    }
    if (hr__lex_attribute_name(p)) {
      if (count == HR__GRAPH_ATTRIBUTES_MAX) {
        return hr__lex_fail(p, "fewer attributes before this");
      }
      if (!parse_attribute(p, row, &attributes[count++])) {
        return false;
      }
    } else if (count > 0 || !hr__parse_push_operand(p)) {
      return hr__lex_fail(p, "an attribute");
    }
  }
  return p->operands.count <= HR__GRAPH_OPERANDS_MAX ? add_call(p, function, count, attributes, out)
                                                     : hr__lex_fail(p, "fewer inputs before this");
}

bool hr__parse_call(hr__parser *p, hr_functional function, hr_value *out) {
  read_attribute *attributes = hr_malloc(HR__GRAPH_ATTRIBUTES_MAX * sizeof *attributes);
  bool is_right = attributes != NULL ? parse_arguments(p, function, attributes, out) : hr__lex_fail_memory(p);
  hr_free(attributes);
  return is_right;
}
