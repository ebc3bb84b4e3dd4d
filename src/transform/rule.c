/* rule.c: evaluates the expressions of gradients.def as records, while it reads them.
 *
 *   expression  { name = choice ; } choice
 *   choice      comparison [ ? choice : choice ]
 *   comparison  sum [ == != < <= > >= sum ]
 *   sum         product { + - product }
 *   product     factor { * / factor }
 *   factor      - factor | ( choice ) | number | name | row ( choice , ... )
 *
 * Names: g, y and x, numbered; n; and those that the text assigns. Element-wise rows compute in f32 or
 * f64 and are rounded when the gradient is added. Other rows get the record's attributes and the dims of the input.
 */
#include <ctype.h>

#include "base/context.h"
#include "base/text.h"
#include "transform/gradients.h"

enum { ARGUMENTS_MAX = 8, LOCALS_MAX = 6, NAMES_MAX = 1024 };
_Static_assert(NAMES_MAX >= 2 * HR_OP_COUNT, "the index of names is sparse");

/* A number, or a tensor with a reference. */
typedef hr_tensor value;

typedef struct name {
  const char *text;
  size_t length;
} name;

typedef struct rule {
  const hr__backward *b;
  const char *cursor, *end, *text;
  int input; /* whose gradient it is */
  int local_count;
  name names[LOCALS_MAX];
  value locals[LOCALS_MAX];
} rule;

/* Facts of all rows that every record of a tape and every rule needs: found once. */
typedef struct rule_index {
  struct {
    hr__letters rules[HR__RULES_MAX], all;
  } rows[HR_OP_COUNT];
  uint16_t names[NAMES_MAX]; /* rows from the hash of their names on; NONE: the end */
} rule_index;

static const rule_index *index_of_rules(void);
static hr_status evaluate_choice(rule *r, value *out);

static hr_status fail(const rule *r, const char *wanted) {
  return hr_status_make(HR_STATUS_INTERNAL, "%s: its gradient \"%s\" has no %s at \"%s\"", r->b->call.row->name,
                        r->text, wanted, r->cursor);
}

/* ---- characters ---- */

static char peek(rule *r) {
  while (r->cursor < r->end && *r->cursor == ' ') {
    ++r->cursor;
  }
  return r->cursor < r->end ? *r->cursor : '\0';
}

static bool take(rule *r, const char *token) {
  size_t length = strlen(token);
  if (peek(r) != *token || (size_t)(r->end - r->cursor) < length || memcmp(r->cursor, token, length) != 0) {
    return false;
  }
  r->cursor += length;
  return true;
}

static name take_name(rule *r) {
  name taken = {r->cursor, 0};
  if (isalpha((unsigned char)peek(r))) {
    taken.text = r->cursor;
    while (r->cursor < r->end && (isalnum((unsigned char)*r->cursor) || *r->cursor == '_')) {
      ++r->cursor, ++taken.length;
    }
  }
  return taken;
}

static bool is_name(name a, const char *b) {
  return strlen(b) == a.length && memcmp(a.text, b, a.length) == 0;
}

static uint32_t hash_of(name a) {
  uint32_t hash = 0;
  for (size_t i = 0; i < a.length; ++i) {
    hash = hash * 31 + (unsigned char)a.text[i];
  }
  return hash;
}

/* The number of a letter: 0 of "x" and "x0", 2 of "x2"; -1 if the name is another one. */
static int number_of(name a, char letter) {
  if (a.length == 0 || a.text[0] != letter) {
    return -1;
  }
  int number = 0;
  for (size_t i = 1; i < a.length; ++i) {
    if (!isdigit((unsigned char)a.text[i])) {
      return -1;
    }
    number = number * 10 + (a.text[i] - '0');
  }
  return number;
}

/* ---- dtypes ---- */

/* The real dtype in which the rule computes: f64 if the result of the record is. */
static hr_dtype real_dtype(const rule *r) {
  hr_dtype dtype = hr__taped_output(r->b, 0)->view.dtype;
  return dtype == HR_DTYPE_F64 || dtype == HR_DTYPE_C128 ? HR_DTYPE_F64 : HR_DTYPE_F32;
}

static bool any_complex(int count, const value *arguments) {
  for (int i = 0; i < count; ++i) {
    if (hr_dtype_is_complex(arguments[i].dtype)) {
      return true;
    }
  }
  return false;
}

/* The dtype of an element-wise row's result; NONE: inferred. */
static hr_dtype result_dtype(const rule *r, const hr_op_row *row, int count, const value *arguments) {
  hr_dtype real = real_dtype(r);
  switch (row->rule) {
    case HR_RULE_SAME:
    case HR_RULE_CAST:
      return any_complex(count, arguments) || !row->has_real ? hr__dtype_complex(real) : real;
    case HR_RULE_WHERE:
      return any_complex(count - 1, arguments + 1) ? hr__dtype_complex(real) : real;
    case HR_RULE_PART:
      return real;
    default:
      return HR_DTYPE_NONE;
  }
}

/* ---- rows ---- */

static bool is_number(const value *v) {
  return v->number.dtype != HR_DTYPE_NONE;
}

/* A row of numbers alone computes in the default dtype: the first one becomes a tensor. */
static hr_status make_tensor(const rule *r, value *v) {
  const hr_tensor number = *v, *inputs[1] = {&number};
  hr_dtype dtype = hr_dtype_is_complex(v->dtype) ? hr__dtype_complex(real_dtype(r)) : real_dtype(r);
  return hr__record_new(&r->b->call, HR_OP_COPY, NULL, 1, inputs, dtype, 0, NULL, v);
}

static hr_status apply_pointwise(rule *r, hr_op op, int count, value *arguments, value *out) {
  const hr_op_row *row = hr_op_table(op);
  const hr_tensor *inputs[ARGUMENTS_MAX];
  bool all_numbers = true;
  if (count != row->arity) {
    return fail(r, "other number of arguments");
  }
  for (int i = 0; i < count; ++i) {
    inputs[i] = &arguments[i];
    all_numbers = all_numbers && is_number(&arguments[i]);
  }
  if (all_numbers) {
    HR_RETURN_IF_ERROR(make_tensor(r, &arguments[0]));
  }
  return hr__record_one(&r->b->call, op, NULL, count, inputs, result_dtype(r, row, count, arguments), out);
}

/* Another row, with the attributes of the record, and the dims of the input if it lets the caller choose. */
static hr_status apply_other(rule *r, hr_op op, int count, const value *arguments, value *out) {
  const hr__operand *like = hr__taped_input(r->b, r->input);
  const hr_tensor *inputs[ARGUMENTS_MAX];
  hr_tensor *outputs[1] = {out};
  for (int i = 0; i < count; ++i) {
    inputs[i] = &arguments[i];
  }
  *out = (hr_tensor){.rank = hr_op_table(op)->family == HR_FAMILY_REDUCE ? 0 : like->view.rank};
  for (int d = 0; d < out->rank; ++d) {
    out->dims[d] = like->view.dims[d];
  }
  return hr__record_row(&r->b->call, op, &r->b->record->attrs, count, inputs, 1, outputs);
}

static hr_status sum_over(rule *r, const value *x, uint32_t mask, value *out) {
  const int64_t ints[1] = {mask};
  const hr_attrs attrs = {.int_count = 1, .ints = ints};
  const hr_tensor *inputs[1] = {x};
  return hr__record_one(&r->b->call, HR_OP_SUM, &attrs, 1, inputs, HR_DTYPE_NONE, out);
}

static hr_status conjugate(rule *r, value *x, value *out) {
  if (!hr_dtype_is_complex(x->dtype)) {
    hr__copy_tensor(x, out);
    hr_buffer_retain(out->buffer);
    return HR_OK;
  }
  const hr_tensor *inputs[1] = {x};
  return hr__record_one(&r->b->call, HR_OP_CONJ, NULL, 1, inputs, HR_DTYPE_NONE, out);
}

/* Functions that are no rows. False: it is none. */
static bool apply_word(rule *r, name word, int count, value *arguments, hr_status *status, value *out) {
  value *x = &arguments[0];
  if (count != 1) {
    return false;
  }
  if (is_name(word, "conj") || (is_name(word, "real") && !hr_dtype_is_complex(x->dtype))) {
    *status = conjugate(r, x, out);
  } else if (is_name(word, "adjoint")) { /* of matrices */
    hr__move_dim(x, x->rank - 1, x->rank - 2);
    *status = conjugate(r, x, out);
  } else if (is_name(word, "sum_over")) { /* the mask of the record */
    *status = sum_over(r, x, (uint32_t)r->b->record->attrs.ints[0], out);
  } else if (is_name(word, "sum_along")) { /* the dim of the record */
    *status = sum_over(r, x, 1u << r->b->record->attrs.ints[0], out);
  } else if (is_name(word, "sum_channels")) { /* [N, C, ..] to [C] */
    uint32_t mask = ((1u << x->rank) - 1) & ~2u;
    *status = sum_over(r, x, mask, out);
    if (*status == HR_OK) {
      hr__drop_dims(out, mask);
    }
  } else {
    return false;
  }
  return true;
}

/* The row of a name; NONE: there is none. */
static hr_op find_row(name word) {
  const rule_index *index = index_of_rules();
  for (uint32_t at = hash_of(word);; ++at) {
    hr_op op = (hr_op)index->names[at % NAMES_MAX];
    if (op == HR_OP_NONE || is_name(word, hr_op_table(op)->name)) {
      return op;
    }
  }
}

static hr_status apply(rule *r, name word, int count, value *arguments, value *out) {
  hr_status status = HR_OK;
  if (apply_word(r, word, count, arguments, &status, out)) {
    return status;
  }
  hr_op op = find_row(word);
  if (op == HR_OP_NONE) {
    return fail(r, "row of that name before");
  }
  return hr_op_table(op)->family == HR_FAMILY_POINTWISE ? apply_pointwise(r, op, count, arguments, out)
                                                        : apply_other(r, op, count, arguments, out);
}

static void release_all(int count, value *values) {
  for (int i = 0; i < count; ++i) {
    hr_tensor_release(&values[i]);
  }
}

/* Releases the operands; the result replaces the first one. */
static hr_status apply_operator(rule *r, hr_op op, int count, value *operands) {
  value result;
  hr_status status = apply_pointwise(r, op, count, operands, &result);
  release_all(count, operands);
  if (status == HR_OK) {
    hr__copy_tensor(&result, &operands[0]);
  }
  return status;
}

/* ---- letters ---- */

const hr_tensor *hr__value(const hr__operand *operand, hr_tensor *number) {
  if (operand == NULL) {
    return NULL;
  }
  if (operand->view.scalar != NULL) {
    *number = hr_tensor_number(operand->number);
    return number;
  }
  return operand->kept != NULL ? &operand->kept->tensor : NULL;
}

/* The number of elements of x for each of y. */
static hr_tensor elements_of(const rule *r) {
  int64_t x = hr__view_count(&hr__taped_input(r->b, 0)->view), y = hr__view_count(&hr__taped_output(r->b, 0)->view);
  return hr_tensor_number(hr_scalar_f64(y > 0 ? (double)(x / y) : 0));
}

static const hr_tensor *find_letter(const rule *r, name word, hr_tensor *number) {
  for (int i = 0; i < r->local_count; ++i) {
    if (r->names[i].length == word.length && memcmp(r->names[i].text, word.text, word.length) == 0) {
      return &r->locals[i];
    }
  }
  if (is_name(word, "n")) {
    *number = elements_of(r);
    return number;
  }
  if (number_of(word, 'g') >= 0) {
    return hr__g(r->b, number_of(word, 'g'));
  }
  if (number_of(word, 'x') >= 0) {
    return hr__value(hr__taped_input(r->b, number_of(word, 'x')), number);
  }
  return number_of(word, 'y') >= 0 ? hr__value(hr__taped_output(r->b, number_of(word, 'y')), number) : NULL;
}

/* ---- the grammar ---- */

static hr_status evaluate_call(rule *r, name word, value *out) {
  value arguments[ARGUMENTS_MAX];
  int count = 0;
  hr_status status = HR_OK;
  do {
    status = count < ARGUMENTS_MAX ? evaluate_choice(r, &arguments[count]) : fail(r, "place for an argument");
    count += status == HR_OK;
  } while (status == HR_OK && take(r, ","));
  if (status == HR_OK && !take(r, ")")) {
    status = fail(r, ")");
  }
  status = status == HR_OK ? apply(r, word, count, arguments, out) : status;
  release_all(count, arguments);
  return status;
}

static hr_status evaluate_number(rule *r, value *out) {
  char *end;
  double number = hr_text_number(r->cursor, &end);
  r->cursor = end;
  *out = hr_tensor_number(hr_scalar_f64(number));
  return HR_OK;
}

static hr_status evaluate_name(rule *r, value *out) {
  name word = take_name(r);
  if (word.length == 0) {
    return fail(r, "operand");
  }
  if (take(r, "(")) {
    return evaluate_call(r, word, out);
  }
  hr_tensor number;
  const hr_tensor *letter = find_letter(r, word, &number);
  if (letter == NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: its gradient \"%s\" reads %.*s, which the record lacks",
                          r->b->call.row->name, r->text, (int)word.length, word.text);
  }
  hr__copy_tensor(letter, out);
  hr_buffer_retain(out->buffer);
  return HR_OK;
}

static hr_status evaluate_factor(rule *r, value *out) {
  char first = peek(r);
  if (take(r, "-")) {
    if (isdigit((unsigned char)peek(r))) {
      HR_RETURN_IF_ERROR(evaluate_number(r, out));
      out->number.value.f[0] = -out->number.value.f[0];
      return HR_OK;
    }
    HR_RETURN_IF_ERROR(evaluate_factor(r, out));
    return apply_operator(r, HR_OP_NEG, 1, out);
  }
  if (take(r, "(")) {
    HR_RETURN_IF_ERROR(evaluate_choice(r, out));
    if (!take(r, ")")) {
      hr_tensor_release(out);
      return fail(r, ")");
    }
    return HR_OK;
  }
  return isdigit((unsigned char)first) ? evaluate_number(r, out) : evaluate_name(r, out);
}

typedef hr_status (*part)(rule *r, value *out);
typedef struct operator_row {
  const char *token;
  hr_op op;
} operator_row;

/* Parts joined by operators of one level, from the left. at_most: operators. */
static hr_status evaluate_level(rule *r, part next, const operator_row *operators, int at_most, value *out) {
  value both[2];
  HR_RETURN_IF_ERROR(next(r, &both[0]));
  for (int done = 0; done < at_most; ++done) {
    const operator_row *found = operators;
    while (found->token != NULL && !take(r, found->token)) {
      ++found;
    }
    if (found->token == NULL) {
      break;
    }
    hr_status status = next(r, &both[1]);
    if (status != HR_OK) {
      hr_tensor_release(&both[0]);
      return status;
    }
    HR_RETURN_IF_ERROR(apply_operator(r, found->op, 2, both));
  }
  hr__copy_tensor(&both[0], out);
  return HR_OK;
}

static hr_status evaluate_product(rule *r, value *out) {
  static const operator_row operators[] = {{"*", HR_OP_MUL}, {"/", HR_OP_DIV}, {NULL, HR_OP_NONE}};
  return evaluate_level(r, evaluate_factor, operators, 64, out);
}

static hr_status evaluate_sum(rule *r, value *out) {
  static const operator_row operators[] = {{"+", HR_OP_ADD}, {"-", HR_OP_SUB}, {NULL, HR_OP_NONE}};
  return evaluate_level(r, evaluate_product, operators, 64, out);
}

static hr_status evaluate_comparison(rule *r, value *out) {
  static const operator_row operators[] = {{"==", HR_OP_EQ}, {"!=", HR_OP_NE}, {"<=", HR_OP_LE},  {">=", HR_OP_GE},
                                           {"<", HR_OP_LT},  {">", HR_OP_GT},  {NULL, HR_OP_NONE}};
  return evaluate_level(r, evaluate_sum, operators, 1, out);
}

static hr_status evaluate_choice(rule *r, value *out) {
  value three[3];
  HR_RETURN_IF_ERROR(evaluate_comparison(r, &three[0]));
  if (!take(r, "?")) {
    hr__copy_tensor(&three[0], out);
    return HR_OK;
  }
  int count = 1;
  hr_status status = evaluate_choice(r, &three[1]);
  count += status == HR_OK;
  if (status == HR_OK && !take(r, ":")) {
    status = fail(r, ":");
  }
  if (status == HR_OK) {
    status = evaluate_choice(r, &three[2]);
    count += status == HR_OK;
  }
  if (status != HR_OK) {
    release_all(count, three);
    return status;
  }
  HR_RETURN_IF_ERROR(apply_operator(r, HR_OP_WHERE, 3, three));
  hr__copy_tensor(&three[0], out);
  return HR_OK;
}

/* name = choice ; */
static hr_status evaluate_assignments(rule *r) {
  for (;;) {
    const char *begin = r->cursor;
    name word = take_name(r);
    bool is_assignment = word.length > 0 && peek(r) == '=' && r->cursor + 1 < r->end && r->cursor[1] != '=';
    if (!is_assignment) {
      r->cursor = begin;
      return HR_OK;
    }
    take(r, "=");
    if (r->local_count == LOCALS_MAX) {
      return fail(r, "place for a name");
    }
    HR_RETURN_IF_ERROR(evaluate_choice(r, &r->locals[r->local_count]));
    r->names[r->local_count++] = word;
    if (!take(r, ";")) {
      return fail(r, ";");
    }
  }
}

/* A text may have another form for complex numbers, after a bar. */
static void choose_form(rule *r) {
  const char *bar = strchr(r->text, '|');
  bool is_complex = hr_dtype_is_complex(hr__taped_output(r->b, 0)->view.dtype);
  r->cursor = bar != NULL && is_complex ? bar + 1 : r->text;
  r->end = bar != NULL && !is_complex ? bar : r->text + strlen(r->text);
}

hr_status hr__evaluate(const hr__backward *b, const char *text, int i, hr_tensor *out) {
  rule r = {.b = b, .text = text, .input = i};
  choose_form(&r);
  hr_status status = evaluate_assignments(&r);
  status = status == HR_OK ? evaluate_choice(&r, out) : status;
  if (status == HR_OK && peek(&r) != '\0') {
    hr_tensor_release(out);
    status = fail(&r, "end");
  }
  release_all(r.local_count, r.locals);
  return status;
}

/* ---- the letters of a text ---- */

static void add_letters(const char *text, hr__letters *letters) {
  rule r = {.cursor = text, .end = text + strlen(text), .text = text};
  while (peek(&r) != '\0') {
    name word = take_name(&r);
    if (word.length == 0) {
      ++r.cursor;
      continue;
    }
    int x = number_of(word, 'x'), y = number_of(word, 'y'), g = number_of(word, 'g');
    letters->inputs |= x >= 0 ? UINT64_C(1) << x : is_name(word, "indices") ? ~UINT64_C(1) : 0;
    letters->outputs |= y >= 0 ? UINT64_C(1) << y : 0;
    letters->before |= is_name(word, "before");
    letters->gradients |= g >= 0 ? UINT64_C(1) << g : 0;
  }
}

static void merge_letters(hr__letters *into, const hr__letters *letters) {
  into->inputs |= letters->inputs;
  into->outputs |= letters->outputs;
  into->gradients |= letters->gradients;
  into->before |= letters->before;
}

static void add_name(rule_index *index, hr_op op) {
  const char *text = hr_op_table(op)->name;
  uint32_t at = hash_of((name){text, strlen(text)});
  while (index->names[at % NAMES_MAX] != HR_OP_NONE) {
    ++at;
  }
  index->names[at % NAMES_MAX] = (uint16_t)op;
}

static void init_index(void *memory) {
  rule_index *index = memory;
  for (int op = HR_OP_NONE + 1; op < HR_OP_COUNT; ++op) {
    const hr__gradient *row = hr__gradient_of((hr_op)op);
    for (int i = 0; i < HR__RULES_MAX && row->rules[i] != NULL; ++i) {
      add_letters(row->rules[i], &index->rows[op].rules[i]);
      merge_letters(&index->rows[op].all, &index->rows[op].rules[i]);
    }
    add_name(index, (hr_op)op);
  }
}

static const rule_index *index_of_rules(void) {
  static const hr_context_part kind = {.bytes = sizeof(rule_index), .init = init_index};
  return hr__context_part(&hr__context_first, HR_CONTEXT_LETTERS, &kind);
}

hr__letters hr__row_letters(hr_op op) {
  return (unsigned)op < HR_OP_COUNT ? index_of_rules()->rows[op].all : (hr__letters){0};
}

hr__letters hr__gradient_letters(const hr__taped *record) {
  hr__letters letters = {0};
  if ((hr_op_table(record->op)->traits & HR_TRAIT_UPDATES) != 0) {
    /* A scatter that sets or adds reads its index alone. */
    bool is_linear = record->op == HR_OP_SCATTER && record->attrs.ints[1] <= 1;
    return is_linear ? (hr__letters){.inputs = 1} : hr__row_letters(record->op);
  }
  bool is_row = hr__gradient_of(record->op)->kind == HR__GRADIENT_ROW;
  const hr__letters *rules = index_of_rules()->rows[record->op].rules;
  for (int i = 0; i < record->input_count && (is_row || i < HR__RULES_MAX); ++i) {
    if (record->inputs[i].is_active) {
      merge_letters(&letters, &rules[is_row ? 0 : i]);
    }
  }
  return letters;
}

bool hr__has_rule(hr_op op, int input) {
  const hr__gradient *row = hr__gradient_of(op);
  hr__letters targets = {0};
  switch (row->kind) {
    case HR__GRADIENT_TEXT:
      return input < HR__RULES_MAX && row->rules[input] != NULL && *row->rules[input] != '?';
    case HR__GRADIENT_ROW:
      add_letters(row->targets, &targets);
      return hr__has_letter(targets.inputs, input);
    default:
      return row->kind != HR__GRADIENT_LOOPS;
  }
}
