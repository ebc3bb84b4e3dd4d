/* expression_parse.c: text to nodes. Any text is safe input: it is read once, and nesting is bounded.
 *
 *   text       [assignment {";" assignment}] [";"]
 *   assignment [type] name ("=" | "+=" | "-=" | "*=" | "/=") value
 *   value      binary ["?" value ":" value]
 *   binary     unary {operator unary}                      by precedence
 *   unary      ("-" | "+" | "!" | "~") unary | "(" type ")" unary | "(" value ")" | name ["(" value {"," value} ")"]
 *              | number
 *   signature  type name {"," type name} "->" type name {"," type name}
 */
#include <math.h>
#include <string.h>

#include "expression/expression_words.h"

enum { DEPTH_MAX = 200, ARGUMENTS_MAX = 3 };

static const char *const type_names = "a type (float, double, half, bfloat16, bool, int, long, ..., or T)";

/* ---- values ---- */

static bool fail_count(hr_expr_parser *p, const char *name, size_t length, int wanted, int found) {
  if (p->status == HR_OK) {
    p->status = hr__expr_error(HR_STATUS_INVALID_ARGUMENT, p->what, p->text, hr__expr_column(p, name),
                               "expected %d operand%s of %.*s, found %d", wanted, wanted == 1 ? "" : "s", (int)length,
                               name, found);
  }
  return false;
}

static int parse_value(hr_expr_parser *p);
static int parse_unary(hr_expr_parser *p);
static int parse_deeper(hr_expr_parser *p);

static bool enter(hr_expr_parser *p) {
  if (++p->depth > DEPTH_MAX) {
    return hr__expr_fail_at(p, p->cursor, "at most 200 levels of nesting", "", 0);
  }
  return true;
}

/* index(d) and size(d): d is a literal. */
static int parse_position(hr_expr_parser *p, const char *name, size_t length) {
  bool is_negative = hr__expr_take(p, "-");
  hr__expr_skip_spaces(p);
  const char *start = p->cursor;
  int64_t dim = 0;
  while (hr__expr_is_digit(*p->cursor) && dim < HR_RANK_MAX) {
    dim = dim * 10 + (*p->cursor++ - '0');
  }
  if (p->cursor == start || dim >= HR_RANK_MAX + is_negative) {
    hr__expr_fail_at(p, start, "the number of a dim, from -16 to 15", "", 0);
    return -1;
  }
  if (!hr__expr_take(p, ")")) {
    hr__expr_expected(p, "')'");
    return -1;
  }
  hr_expr_node node = {.kind = hr__expr_is_word(name, length, "size") ? HR_EXPR_SIZE : HR_EXPR_INDEX_D,
                       .operands = {-1, -1, -1},
                       .number = is_negative ? -dim : dim,
                       .column = hr__expr_node_column(p, name)};
  return hr__expr_add(p->e, &node);
}

static hr_status parse_rule(hr_expression *e, const char *text, const int values[5], int column, int depth,
                            int *out_node);

static int parse_call(hr_expr_parser *p, const char *name, size_t length) {
  int arity = 0, operands[ARGUMENTS_MAX + 2] = {-1, -1, -1, -1, -1}, count = 0;
  const char *definition;
  if (hr__expr_is_word(name, length, "index") || hr__expr_is_word(name, length, "size")) {
    return parse_position(p, name, length);
  }
  hr_expr_function function = hr__expr_find_function(name, length, &arity, &definition);
  if (function == HR_EXPR_FUNCTION_COUNT && definition == NULL) {
    hr__expr_fail_at(p, name, "a known function", name, length);
    return -1;
  }
  do {
    int operand = parse_value(p);
    if (operand < 0) {
      return -1;
    }
    operands[count < ARGUMENTS_MAX ? count : ARGUMENTS_MAX - 1] = operand;
    ++count;
  } while (hr__expr_take(p, ","));
  if (!hr__expr_take(p, ")")) {
    hr__expr_expected(p, "')', ',' or an operator");
    return -1;
  }
  if (count != arity) {
    fail_count(p, name, length, arity, count);
    return -1;
  }
  if (definition == NULL) {
    return hr__expr_apply(p->e, function, operands, hr__expr_node_column(p, name));
  }
  int node = -1;
  hr_status status = parse_rule(p->e, definition, operands, hr__expr_node_column(p, name), p->depth, &node);
  if (p->status == HR_OK) {
    p->status = status;
  }
  return node;
}

static int parse_constant(hr_expr_parser *p, const char *name, size_t length) {
  int column = hr__expr_node_column(p, name);
  if (hr__expr_is_word(name, length, "i")) {
    hr_expr_node node = {.kind = HR_EXPR_INDEX, .operands = {-1, -1, -1}, .column = column};
    return hr__expr_add(p->e, &node);
  }
  if (hr__expr_is_word(name, length, "true") || hr__expr_is_word(name, length, "false")) {
    return hr__expr_whole(p->e, hr__expr_is_word(name, length, "true"), HR_DTYPE_I32, column);
  }
  double value = hr__expr_is_word(name, length, "INFINITY") ? (double)INFINITY
                 : hr__expr_is_word(name, length, "NAN")    ? (double)NAN
                 : hr__expr_is_word(name, length, "M_PI")   ? 3.14159265358979323846
                                                            : 2.71828182845904523536;
  return hr__expr_real(p->e, value, HR_DTYPE_F64, column);
}

static bool is_constant(const char *name, size_t length) {
  return hr__expr_is_word(name, length, "i") || hr__expr_is_word(name, length, "true") ||
         hr__expr_is_word(name, length, "false") || hr__expr_is_word(name, length, "INFINITY") ||
         hr__expr_is_word(name, length, "NAN") || hr__expr_is_word(name, length, "M_PI") ||
         hr__expr_is_word(name, length, "M_E");
}

static int parse_name(hr_expr_parser *p) {
  size_t length = hr__expr_name_length(p);
  const char *name = p->cursor;
  p->cursor += length;
  if (hr__expr_take(p, "(")) {
    return parse_call(p, name, length);
  }
  if (p->values != NULL && length == 1) {
    const char *place = strchr("abcyg", *name);
    return place != NULL ? p->values[place - "abcyg"] : -1;
  }
  const hr_expr_variable *variable = p->values == NULL ? hr__expr_find_variable(p->e, name, length) : NULL;
  if (variable != NULL && variable->node >= 0) {
    return variable->node;
  }
  if (variable != NULL) {
    hr__expr_fail_at(p, name, "a variable that has a value", name, length);
    return -1;
  }
  if (is_constant(name, length)) {
    return parse_constant(p, name, length);
  }
  hr__expr_fail_at(p, name, "a name of the signature or an assigned one", name, length);
  return -1;
}

/* After "(": a cast, or a value in parentheses. */
static int parse_parenthesis(hr_expr_parser *p) {
  hr_dtype dtype;
  const char *start = p->cursor - 1;
  size_t length = hr__expr_name_length(p);
  bool is_variable = p->values == NULL && hr__expr_find_variable(p->e, p->cursor, length) != NULL;
  bool is_cast = !is_variable && hr__expr_take_type(p, &dtype);
  if (is_cast && !hr__expr_take(p, ")")) {
    hr__expr_expected(p, "')' after the type of a cast");
    return -1;
  }
  if (is_cast) {
    int operand = parse_deeper(p);
    return operand < 0 ? -1 : hr__expr_cast(p->e, operand, dtype, hr__expr_node_column(p, start));
  }
  int node = parse_value(p);
  if (node >= 0 && !hr__expr_take(p, ")")) {
    hr__expr_expected(p, "')' or an operator");
    return -1;
  }
  return node;
}

static int parse_deeper(hr_expr_parser *p) {
  int node = enter(p) ? parse_unary(p) : -1;
  --p->depth;
  return node;
}

static int parse_prefixed(hr_expr_parser *p, hr_expr_function function, const char *start) {
  int operand = parse_deeper(p);
  return operand < 0 || function == HR_EXPR_FUNCTION_COUNT
             ? operand
             : hr__expr_apply(p->e, function, &operand, hr__expr_node_column(p, start));
}

static int parse_operand(hr_expr_parser *p) {
  hr__expr_skip_spaces(p);
  const char *start = p->cursor;
  char c = *start;
  if (strncmp(start, "--", 2) == 0 || strncmp(start, "++", 2) == 0) {
    hr__expr_fail_at(p, start, "no ++ or --: variables are assigned with =", "", 0);
    return -1;
  }
  if (c == '-' || c == '+' || c == '!' || c == '~') {
    ++p->cursor;
    return parse_prefixed(p,
                          c == '-'   ? HR_EXPR_NEG
                          : c == '!' ? HR_EXPR_NOT
                          : c == '~' ? HR_EXPR_BIT_NOT
                                     : HR_EXPR_FUNCTION_COUNT,
                          start);
  }
  if (c == '(') {
    ++p->cursor;
    return parse_parenthesis(p);
  }
  if (hr__expr_is_digit(c) || (c == '.' && hr__expr_is_digit(start[1]))) {
    return hr__expr_parse_number(p);
  }
  if (hr__expr_is_letter(c)) {
    return parse_name(p);
  }
  hr__expr_expected(p, "an operand");
  return -1;
}

static int parse_unary(hr_expr_parser *p) {
  int node = parse_operand(p);
  hr__expr_check_node(p, node);
  return node;
}

static const struct {
  const char *token;
  int precedence;
  hr_expr_function function;
} operators[] = {/* longer tokens first */
                 {"<<", 8, HR_EXPR_SHIFT_LEFT}, {">>", 8, HR_EXPR_SHIFT_RIGHT}, {"<=", 7, HR_EXPR_LE},
                 {">=", 7, HR_EXPR_GE},         {"==", 6, HR_EXPR_EQ},          {"!=", 6, HR_EXPR_NE},
                 {"&&", 2, HR_EXPR_AND},        {"||", 1, HR_EXPR_OR},          {"<", 7, HR_EXPR_LT},
                 {">", 7, HR_EXPR_GT},          {"&", 5, HR_EXPR_BIT_AND},      {"^", 4, HR_EXPR_BIT_XOR},
                 {"|", 3, HR_EXPR_BIT_OR},      {"+", 9, HR_EXPR_ADD},          {"-", 9, HR_EXPR_SUB},
                 {"*", 10, HR_EXPR_MUL},        {"/", 10, HR_EXPR_DIV},         {"%", 10, HR_EXPR_MOD}};

/* The operator at the cursor, as an index of `operators`; -1 if there is none. */
static int peek_operator(hr_expr_parser *p) {
  hr__expr_skip_spaces(p);
  for (size_t i = 0; i < sizeof operators / sizeof *operators; ++i) {
    if (strncmp(p->cursor, operators[i].token, strlen(operators[i].token)) == 0) {
      return (int)i;
    }
  }
  return -1;
}

/* Operators of at least this precedence, from the left. */
static int parse_binary(hr_expr_parser *p, int least) {
  int left = parse_unary(p);
  for (int at = peek_operator(p); left >= 0 && at >= 0 && operators[at].precedence >= least; at = peek_operator(p)) {
    const char *start = p->cursor;
    p->cursor += strlen(operators[at].token);
    int operands[2] = {left, parse_binary(p, operators[at].precedence + 1)};
    left =
        operands[1] < 0 ? -1 : hr__expr_apply(p->e, operators[at].function, operands, hr__expr_node_column(p, start));
    if (operands[1] >= 0) {
      hr__expr_check_node(p, left);
    }
  }
  return left;
}

static int parse_choice(hr_expr_parser *p) {
  int condition = parse_binary(p, 1);
  const char *start = p->cursor;
  if (condition < 0 || !hr__expr_take(p, "?")) {
    return condition;
  }
  int first = parse_value(p);
  if (first >= 0 && !hr__expr_take(p, ":")) {
    hr__expr_expected(p, "':' or an operator");
  }
  int operands[3] = {condition, first, p->status == HR_OK ? parse_value(p) : -1};
  return operands[2] < 0 ? -1 : hr__expr_apply(p->e, HR_EXPR_SELECT, operands, hr__expr_node_column(p, start));
}

static int parse_value(hr_expr_parser *p) {
  int node = enter(p) ? parse_choice(p) : -1;
  --p->depth;
  hr__expr_check_node(p, node);
  return node;
}

/* ---- statements ---- */

static bool name_variable(hr_expr_parser *p, hr_expr_variable *out_variable, bool is_new) {
  size_t length = hr__expr_name_length(p);
  const char *name = p->cursor;
  if (length == 0) {
    return hr__expr_expected(p, "a name");
  }
  if (length >= HR_EXPR_NAME_MAX) {
    return hr__expr_fail_at(p, name, "a name of at most 63 characters", "", 0);
  }
  if (hr__expr_is_type(name, length)) {
    return hr__expr_fail_at(p, name, "a name that is no type", name, length);
  }
  if (is_new && hr__expr_find_variable(p->e, name, length) != NULL) {
    return hr__expr_fail_at(p, name, "a new name", name, length);
  }
  memset(out_variable, 0, sizeof *out_variable);
  memcpy(out_variable->name, name, length);
  out_variable->node = -1;
  p->cursor += length;
  return true;
}

/* The variable that an assignment is to; a new temporary if the name is new. */
static hr_expr_variable *find_target(hr_expr_parser *p) {
  hr_dtype dtype = HR_DTYPE_NONE;
  bool has_type = hr__expr_take_type(p, &dtype);
  hr__expr_skip_spaces(p);
  const char *name = p->cursor;
  hr_expr_variable made;
  if (!name_variable(p, &made, has_type)) {
    return NULL;
  }
  size_t length = strlen(made.name);
  if (hr__expr_find_in(p->e->inputs.data, p->e->inputs.count, name, length) != NULL) {
    hr__expr_fail_at(p, name, "an output or a temporary, not an input", name, length);
    return NULL;
  }
  hr_expr_variable *found = hr__expr_find_variable(p->e, name, length);
  if (found != NULL) {
    return found;
  }
  made.has_type = has_type;
  made.dtype = dtype;
  if (!hr_vector_push(&p->e->temporaries, made)) {
    p->status = hr__expr_too_large(p->e, p->text);
    return NULL;
  }
  return &p->e->temporaries.data[p->e->temporaries.count - 1];
}

/* "=" or an operator with it; COUNT stands for "=". */
static bool take_assignment(hr_expr_parser *p, hr_expr_function *out_function) {
  static const struct {
    const char *token;
    hr_expr_function function;
  } tokens[] = {{"+=", HR_EXPR_ADD},
                {"-=", HR_EXPR_SUB},
                {"*=", HR_EXPR_MUL},
                {"/=", HR_EXPR_DIV},
                {"=", HR_EXPR_FUNCTION_COUNT}};
  hr__expr_skip_spaces(p);
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens && strncmp(p->cursor, "==", 2) != 0; ++i) {
    if (hr__expr_take(p, tokens[i].token)) {
      *out_function = tokens[i].function;
      return true;
    }
  }
  return hr__expr_expected(p, "'='");
}

static bool parse_assignment(hr_expr_parser *p) {
  hr_expr_function function = HR_EXPR_FUNCTION_COUNT; /* none */
  hr__expr_skip_spaces(p);
  const char *start = p->cursor;
  hr_expr_variable *target = find_target(p);
  if (target == NULL || !take_assignment(p, &function)) {
    return false;
  }
  if (function != HR_EXPR_FUNCTION_COUNT && target->node < 0) {
    return hr__expr_fail_at(p, start, "a variable that has a value", target->name, strlen(target->name));
  }
  int operands[2] = {target->node, parse_value(p)}, column = hr__expr_column(p, start);
  int node = operands[1];
  if (node >= 0 && function != HR_EXPR_FUNCTION_COUNT) {
    node = hr__expr_apply(p->e, function, operands, column);
  }
  if (node >= 0 && target->has_type) {
    node = hr__expr_cast(p->e, node, target->dtype, column);
  }
  target->node = node;
  return hr__expr_check_node(p, node);
}

hr_status hr__expr_parse_text(hr_expression *e, const char *text) {
  hr_expr_parser p = {.e = e, .what = "expression", .text = text, .cursor = text};
  do {
    if (!parse_assignment(&p)) {
      return p.status;
    }
    hr__expr_skip_spaces(&p);
    if (*p.cursor != '\0' && *p.cursor != ';') {
      hr__expr_expected(&p, "';' or an operator");
      return p.status;
    }
    while (hr__expr_take(&p, ";")) {
    }
    hr__expr_skip_spaces(&p);
  } while (*p.cursor != '\0');
  return p.status;
}

static hr_status parse_rule(hr_expression *e, const char *text, const int values[5], int column, int depth,
                            int *out_node) {
  hr_expr_parser p = {.e = e,
                      .what = "expression",
                      .text = text,
                      .cursor = text,
                      .depth = depth,
                      .forced_column = column,
                      .values = values};
  *out_node = parse_value(&p);
  return p.status;
}

hr_status hr__expr_parse_rule(hr_expression *e, const char *text, const int values[5], int column, int *out_node) {
  return parse_rule(e, text, values, column, 0, out_node);
}

/* ---- signatures ---- */

static bool parse_variable(hr_expr_parser *p, bool is_input) {
  hr_expr_variable made;
  hr_dtype dtype;
  if (!hr__expr_take_type(p, &dtype)) {
    return hr__expr_expected(p, type_names);
  }
  if (!name_variable(p, &made, true)) {
    return false;
  }
  made.has_type = true;
  made.dtype = dtype;
  size_t count = is_input ? p->e->inputs.count : p->e->outputs.count;
  if (count == (is_input ? (size_t)HR_EXPRESSION_INPUTS_MAX : (size_t)HR_EXPRESSION_OUTPUTS_MAX)) {
    return hr__expr_fail_at(p, p->cursor, is_input ? "at most 32 inputs" : "at most 32 outputs", "", 0);
  }
  if (is_input) {
    hr_expr_node node = {
        .kind = HR_EXPR_INPUT, .dtype = dtype, .operands = {-1, -1, -1}, .number = (int64_t)count, .column = 1};
    made.node = hr__expr_add(p->e, &node);
    return hr__expr_check_node(p, made.node) && (hr_vector_push(&p->e->inputs, made) || hr__expr_check_node(p, -1));
  }
  return hr_vector_push(&p->e->outputs, made) || hr__expr_check_node(p, -1);
}

hr_status hr__expr_parse_signature(hr_expression *e, const char *signature) {
  hr_expr_parser p = {.e = e, .what = "signature", .text = signature, .cursor = signature};
  do {
    if (!parse_variable(&p, true)) {
      return p.status;
    }
  } while (hr__expr_take(&p, ","));
  if (!hr__expr_take(&p, "->")) {
    hr__expr_expected(&p, "',' or '->'");
    return p.status;
  }
  do {
    if (!parse_variable(&p, false)) {
      return p.status;
    }
  } while (hr__expr_take(&p, ","));
  hr__expr_skip_spaces(&p);
  if (*p.cursor != '\0') {
    hr__expr_expected(&p, "',' or the end");
  }
  return p.status;
}
