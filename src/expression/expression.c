/* expression.c: nodes of expressions, their variables, messages. See expression_nodes.h and headrace/expression.h. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "expression/expression_nodes.h"

/* ---- functions ---- */

static const hr_expr_row rows[] = {
#define HR_FUNCTION(ID, name, arity, rule, ROW, da, db, dc) \
  {name, arity, HR_EXPR_RULE_##rule, HR_OP_##ROW, {da, db, dc}},
#define HR_DEFINED(name, arity, text)
#include "expression/functions.def"
#undef HR_FUNCTION
#undef HR_DEFINED
};

static const struct {
  const char *name;
  int arity;
  const char *text;
} defined[] = {
#define HR_FUNCTION(ID, name, arity, rule, ROW, da, db, dc)
#define HR_DEFINED(name, arity, text) {name, arity, text},
#include "expression/functions.def"
#undef HR_FUNCTION
#undef HR_DEFINED
};

const hr_expr_row *hr__expr_row(hr_expr_function function) {
  return &rows[function];
}

static bool has_name(const char *name, const char *wanted, size_t length) {
  return strlen(name) == length && memcmp(name, wanted, length) == 0;
}

hr_expr_function hr__expr_find_function(const char *name, size_t length, int *out_arity, const char **out_text) {
  *out_text = NULL;
  for (size_t i = 0; i < sizeof defined / sizeof *defined; ++i) {
    if (has_name(defined[i].name, name, length)) {
      *out_arity = defined[i].arity;
      *out_text = defined[i].text;
      return HR_EXPR_FUNCTION_COUNT;
    }
  }
  for (int f = 0; f < HR_EXPR_FUNCTION_COUNT; ++f) {
    if (has_name(rows[f].name, name, length)) {
      *out_arity = rows[f].arity;
      return (hr_expr_function)f;
    }
  }
  return HR_EXPR_FUNCTION_COUNT;
}

/* ---- messages ---- */

enum { SHOWN_BEFORE = 30, SHOWN_AFTER = 50 };

static bool is_continued(char byte) { /* inside a character of UTF-8 */
  return ((unsigned char)byte & 0xc0) == 0x80;
}

/* Part of the text around byte `at`; bytes that are not printable ASCII as \xNN. */
static void show_text(hr_text *out, const char *text, size_t at) {
  size_t from = at > SHOWN_BEFORE ? at - SHOWN_BEFORE : 0, length = strlen(text);
  size_t to = length - at > SHOWN_AFTER ? at + SHOWN_AFTER : length;
  hr_text_append(out, from > 0 ? "\"..." : "\"");
  for (size_t i = from; i < to; ++i) {
    unsigned char byte = (unsigned char)text[i];
    if (byte >= 32 && byte < 127) {
      hr_text_char(out, text[i]);
    } else if (byte == '\n' || byte == '\t') {
      hr_text_char(out, ' ');
    } else {
      hr_text_printf(out, "\\x%02x", byte);
    }
  }
  hr_text_append(out, to < length ? "...\"" : "\"");
}

hr_status hr__expr_error(hr_status_code code, const char *what, const char *text, int column, const char *format, ...) {
  hr_text message = {0};
  size_t at = 0;
  int passed = 1;
  for (; text[at] != '\0' && passed < column; ++at) {
    passed += !is_continued(text[at + 1]);
  }
  hr_text_printf(&message, "%s ", what);
  show_text(&message, text, at);
  hr_text_printf(&message, ", column %d: ", passed);
  va_list args;
  va_start(args, format);
  hr_text_vprintf(&message, format, args);
  va_end(args);
  hr_status status = hr_status_make(code, "%s", hr_text_chars(&message));
  hr_text_fini(&message);
  return status;
}

hr_status hr__expr_too_large(const hr_expression *e, const char *text) {
  if (e != NULL && e->nodes.count >= HR_EXPR_NODES_MAX) {
    return hr__expr_error(HR_STATUS_INVALID_ARGUMENT, "expression", text, 1, "expected at most %d operations",
                          (int)HR_EXPR_NODES_MAX);
  }
  return hr__expr_error(HR_STATUS_RESOURCE_EXHAUSTED, "expression", text, 1, "no host memory");
}

hr_status hr__expr_check_length(const char *text) {
  size_t length = strlen(text);
  return length <= HR_EXPR_TEXT_MAX
             ? HR_OK
             : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "expression: expected a text of at most %d bytes, found %zu",
                              (int)HR_EXPR_TEXT_MAX, length);
}

/* ---- nodes ---- */

static bool is_literal(const hr_expr_node *node) {
  return node->kind == HR_EXPR_WHOLE || node->kind == HR_EXPR_REAL;
}

/* Literals that convert without a change of type when they are folded: int, long, and floating ones without f. */
static bool is_foldable(const hr_expr_node *node) {
  return (node->kind == HR_EXPR_WHOLE && node->dtype == HR_DTYPE_I32) ||
         (node->kind == HR_EXPR_REAL && node->dtype == HR_DTYPE_F64);
}

static double value_of(const hr_expr_node *node) {
  return node->kind == HR_EXPR_REAL ? node->real : (double)node->number;
}

static int compare(hr_expr_function function, double a, double b) {
  switch (function) {
    case HR_EXPR_EQ:
      return a == b;
    case HR_EXPR_NE:
      return a != b;
    case HR_EXPR_LT:
      return a < b;
    case HR_EXPR_LE:
      return a <= b;
    case HR_EXPR_GT:
      return a > b;
    default:
      return a >= b;
  }
}

/* The result of +, -, *, / in double; false for other functions. */
static bool calculate(hr_expr_function function, double a, double b, double *out_value) {
  switch (function) {
    case HR_EXPR_ADD:
      *out_value = a + b;
      return true;
    case HR_EXPR_SUB:
      *out_value = a - b;
      return true;
    case HR_EXPR_MUL:
      *out_value = a * b;
      return true;
    case HR_EXPR_DIV:
      *out_value = a / b;
      return true;
    case HR_EXPR_NEG:
      *out_value = -a;
      return true;
    default:
      return false;
  }
}

/* The number of a literal that equals the function of literals, or -1. */
static int fold(hr_expression *e, hr_expr_function function, const int *operands, int column) {
  hr_expr_node a = e->nodes.data[operands[0]];
  hr_expr_node b = rows[function].arity > 1 ? e->nodes.data[operands[1]] : a;
  if (function == HR_EXPR_SELECT && is_foldable(&a)) {
    return operands[value_of(&a) != 0 ? 1 : 2];
  }
  if (rows[function].arity > 2 || !is_foldable(&a) || !is_foldable(&b)) {
    return -1;
  }
  if (rows[function].rule == HR_EXPR_RULE_COMPARE) {
    return hr__expr_whole(e, compare(function, value_of(&a), value_of(&b)), HR_DTYPE_I32, column);
  }
  double value;
  bool is_whole = a.kind == HR_EXPR_WHOLE && b.kind == HR_EXPR_WHOLE;
  if (!calculate(function, value_of(&a), value_of(&b), &value) || (is_whole && function == HR_EXPR_DIV)) {
    return -1;
  }
  if (!is_whole) {
    return hr__expr_real(e, value, HR_DTYPE_F64, column);
  }
  return fabs(value) <= INT32_MAX ? hr__expr_whole(e, (int64_t)value, HR_DTYPE_I32, column) : -1;
}

static bool is_same(const hr_expr_node *a, const hr_expr_node *b) {
  return a->kind == b->kind && a->function == b->function && a->dtype == b->dtype && a->number == b->number &&
         memcmp(&a->real, &b->real, sizeof a->real) == 0 && memcmp(a->operands, b->operands, sizeof a->operands) == 0;
}

int hr__expr_add(hr_expression *e, const hr_expr_node *node) {
  for (size_t i = 0; i < e->nodes.count; ++i) {
    if (is_same(&e->nodes.data[i], node)) {
      return (int)i;
    }
  }
  if (e->nodes.count >= HR_EXPR_NODES_MAX || !hr_vector_push(&e->nodes, *node)) {
    return -1;
  }
  return (int)e->nodes.count - 1;
}

int hr__expr_whole(hr_expression *e, int64_t number, hr_dtype dtype, int column) {
  hr_expr_node node = {
      .kind = HR_EXPR_WHOLE, .dtype = dtype, .operands = {-1, -1, -1}, .number = number, .column = column};
  return hr__expr_add(e, &node);
}

int hr__expr_real(hr_expression *e, double real, hr_dtype dtype, int column) {
  hr_expr_node node = {.kind = HR_EXPR_REAL, .dtype = dtype, .operands = {-1, -1, -1}, .real = real, .column = column};
  return hr__expr_add(e, &node);
}

int hr__expr_cast(hr_expression *e, int operand, hr_dtype dtype, int column) {
  if (operand < 0) {
    return -1;
  }
  const hr_expr_node *from = &e->nodes.data[operand];
  if (from->kind == HR_EXPR_CAST && from->dtype == dtype) {
    return operand;
  }
  hr_expr_node node = {.kind = HR_EXPR_CAST, .dtype = dtype, .operands = {operand, -1, -1}, .column = column};
  return hr__expr_add(e, &node);
}

int hr__expr_apply(hr_expression *e, hr_expr_function function, const int *operands, int column) {
  hr_expr_node node = {.kind = HR_EXPR_APPLY, .function = function, .operands = {-1, -1, -1}, .column = column};
  for (int i = 0; i < rows[function].arity; ++i) {
    if (operands[i] < 0) {
      return -1;
    }
    node.operands[i] = operands[i];
  }
  int folded = fold(e, function, operands, column);
  if (folded >= 0) {
    return folded;
  }
  const hr_expr_node *last = &e->nodes.data[node.operands[rows[function].arity - 1]];
  if (function == HR_EXPR_POW && is_literal(last) && (value_of(last) == 2 || value_of(last) == 0.5)) {
    node.function = value_of(last) == 2 ? HR_EXPR_SQUARE : HR_EXPR_SQRT;
    node.operands[1] = -1;
  }
  return hr__expr_add(e, &node);
}

/* ---- expressions ---- */

hr_expression *hr__expr_create(const char *text) {
  hr_expression *e = hr_calloc(1, sizeof *e);
  size_t bytes = strlen(text) + 1;
  if (e == NULL || (e->text = hr_malloc(bytes)) == NULL) {
    hr_free(e);
    return NULL;
  }
  memcpy(e->text, text, bytes);
  hr_refcount_init(&e->refcount);
  return e;
}

#define COPY_VECTOR(to, from)                                                                                         \
  (hr_vector_reserve((to), (from)->count + 1) &&                                                                      \
   (memcpy((to)->data, (from)->data == NULL ? (void *)(to)->data : (from)->data, (from)->count * sizeof *(to)->data), \
    (to)->count = (from)->count, true))

hr_expression *hr__expr_copy(const hr_expression *from) {
  hr_expression *e = hr__expr_create(from->text);
  if (e != NULL && COPY_VECTOR(&e->nodes, &from->nodes) && COPY_VECTOR(&e->inputs, &from->inputs) &&
      COPY_VECTOR(&e->outputs, &from->outputs) && COPY_VECTOR(&e->temporaries, &from->temporaries)) {
    return e;
  }
  hr_expression_release(e);
  return NULL;
}

void hr_expression_retain(hr_expression *expression) {
  if (expression != NULL) {
    hr_refcount_retain(&expression->refcount);
  }
}

void hr_expression_release(hr_expression *expression) {
  if (expression == NULL || !hr_refcount_release(&expression->refcount)) {
    return;
  }
  hr_vector_fini(&expression->nodes);
  hr_vector_fini(&expression->inputs);
  hr_vector_fini(&expression->outputs);
  hr_vector_fini(&expression->temporaries);
  hr_free(expression->used);
  hr_free(expression->text);
  hr_free(expression);
}

static hr_status find_used(hr_expression *e) {
  e->used = hr_calloc(e->nodes.count + 1, sizeof *e->used);
  if (e->used == NULL) {
    return hr__expr_too_large(e, e->text);
  }
  for (size_t o = 0; o < e->outputs.count; ++o) {
    if (e->outputs.data[o].node >= 0) {
      e->used[e->outputs.data[o].node] = true;
    }
  }
  for (size_t n = e->nodes.count; n-- > 0;) {
    for (int i = 0; e->used[n] && i < HR_EXPR_OPERANDS_MAX; ++i) {
      if (e->nodes.data[n].operands[i] >= 0) {
        e->used[e->nodes.data[n].operands[i]] = true;
      }
    }
  }
  return HR_OK;
}

hr_status hr__expr_finish(hr_expression *e, hr_status status, hr_expression **out_expression) {
  if (status == HR_OK) {
    status = find_used(e);
  }
  if (status != HR_OK) {
    hr_expression_release(e);
    return status;
  }
  *out_expression = e;
  return HR_OK;
}

hr_status hr_expression_parse(const char *text, const char *signature, hr_expression **out_expression) {
  if (text == NULL || signature == NULL || out_expression == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "hr_expression_parse: NULL argument");
  }
  HR_RETURN_IF_ERROR(hr__expr_check_length(text));
  HR_RETURN_IF_ERROR(hr__expr_check_length(signature));
  hr_expression *e = hr__expr_create(text);
  if (e == NULL) {
    return hr__expr_too_large(NULL, text);
  }
  hr_status status = hr__expr_parse_signature(e, signature);
  if (status == HR_OK) {
    status = hr__expr_parse_text(e, text);
  }
  for (size_t o = 0; status == HR_OK && o < e->outputs.count; ++o) {
    if (e->outputs.data[o].node < 0) {
      status = hr__expr_error(HR_STATUS_INVALID_ARGUMENT, "expression", text, INT_MAX,
                              "expected an assignment to the "
                              "output %s, found the end",
                              e->outputs.data[o].name);
    }
  }
  return hr__expr_finish(e, status, out_expression);
}

/* ---- what it has ---- */

int hr_expression_input_count(const hr_expression *expression) {
  return (int)expression->inputs.count;
}

int hr_expression_output_count(const hr_expression *expression) {
  return (int)expression->outputs.count;
}

hr_expression_variable hr_expression_input(const hr_expression *expression, int index) {
  const hr_expr_variable *v = &expression->inputs.data[index];
  return (hr_expression_variable){v->name, v->dtype, expression->used[v->node]};
}

hr_expression_variable hr_expression_output(const hr_expression *expression, int index) {
  const hr_expr_variable *v = &expression->outputs.data[index];
  return (hr_expression_variable){v->name, v->dtype, v->node >= 0};
}

bool hr_expression_has_index(const hr_expression *expression) {
  for (size_t n = 0; n < expression->nodes.count; ++n) {
    hr_expr_kind kind = expression->nodes.data[n].kind;
    if (expression->used[n] && (kind == HR_EXPR_INDEX || kind == HR_EXPR_INDEX_D || kind == HR_EXPR_SIZE)) {
      return true;
    }
  }
  return false;
}
