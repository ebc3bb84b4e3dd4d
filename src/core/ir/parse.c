/* Reads the text form of programs; any text is safe input.
 *
 *   program   ["value form"] {buffer} {scalar} {node}                                    one a line; ; starts a comment
 *   buffer    "buffer" %N bytes ("live" | "dead") ["fresh"] ["made"] ["free"] ["layout" layout] ["versions" N]
 *             N counts from 0; layout: "(" bytes of an element "," channels "," inner ")"
 *   scalar    "scalar" $N dtype ["argument" N | "=" value]                               value: 1, 0.5, (re,im)
 *   node      ["loop"] [operand {, operand} "="] name ( [operand {, operand}] ) {attribute}
 *   operand   "_" | "$" N [dims] {bound} [fill]
 *             | "%" N ["." version] ":" dtype dims strides "+" offset {term} {bound} [fill]
 *             | "#" ":" dtype dims strides "+" offset {bound}
 *   dims      "[" ints "]"       strides   "{" ints "}"
 *   term      "@" input "*" stride "<" extent
 *   bound     "?" strides "+" offset "<" extent           fill      "!$" N
 *   attribute "ints(" ints ")" | "scalars(" $N {, $N} ")" | "reduce(" N ")" | "ordered(" N ")" | "store(" mode ")"
 *             | "origin(" N ")"                           default: the node's own number
 *             | "then(" name {"," (value | input)} ")"    an epilogue
 *             | "to(" output ")"                          the output that stores the value before the next epilogue
 *   value     = "^" [row]                                 the value so far, or the result of an earlier row of a chain
 *
 * References to buffers and scalars must be declared; hr_program_verify checks the rest.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/vector.h"
#include "core/ir/program.h"
#include "core/ops/op.h"

typedef HR_VECTOR(int64_t) int_vector;
typedef HR_VECTOR(hr_operand) operand_vector;
typedef HR_VECTOR(hr_index_term) term_vector;
typedef HR_VECTOR(hr_bound) bound_vector;

typedef struct parser {
  const char *cursor, *line_start;
  int line;
  hr_program *program;
  hr_status status;
  /* scratch of the current node */
  operand_vector outputs, inputs;
  int_vector ints;
  term_vector terms;
  bound_vector bounds;
  hr_epilogue epilogues[HR_CHAIN_ROWS_MAX];
  int output; /* of the value before the next epilogue; -1: none */
} parser;

/* ---- errors and characters ---- */

static bool fail(parser *p, const char *expected) {
  if (p->status == HR_OK) {
    char found = *p->cursor;
    const char *shown = found == '\0' ? "the end" : found == '\n' ? "the end of the line" : NULL;
    int column = (int)(p->cursor - p->line_start) + 1;
    if (shown != NULL) {
      p->status = hr_status_make(HR_STATUS_INVALID_ARGUMENT, "line %d, column %d: expected %s, found %s", p->line,
                                 column, expected, shown);
    } else {
      p->status = hr_status_make(HR_STATUS_INVALID_ARGUMENT, "line %d, column %d: expected %s, found '%c'", p->line,
                                 column, expected, isprint((unsigned char)found) ? found : '?');
    }
  }
  return false;
}

static bool fail_memory(parser *p) {
  if (p->status == HR_OK) {
    p->status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory to parse line %d", p->line);
  }
  return false;
}

static void skip_blanks(parser *p) {
  while (*p->cursor == ' ' || *p->cursor == '\t' || *p->cursor == '\r') {
    ++p->cursor;
  }
}

static bool take(parser *p, char character) {
  skip_blanks(p);
  if (*p->cursor != character) {
    return false;
  }
  ++p->cursor;
  return true;
}

static bool expect(parser *p, char character, const char *expected) {
  return take(p, character) || fail(p, expected);
}

static bool is_word_char(char character) {
  return isalnum((unsigned char)character) || character == '_';
}

/* Consumes `word` if it is the next whole word. */
static bool take_word(parser *p, const char *word) {
  skip_blanks(p);
  size_t length = strlen(word);
  if (strncmp(p->cursor, word, length) != 0 || is_word_char(p->cursor[length])) {
    return false;
  }
  p->cursor += length;
  return true;
}

/* Copies the next word; false, consuming nothing, if it is empty or does not fit. */
static bool take_any_word(parser *p, char *out_word, size_t bytes) {
  skip_blanks(p);
  size_t length = 0;
  while (is_word_char(p->cursor[length])) {
    ++length;
  }
  if (length == 0 || length >= bytes) {
    return false;
  }
  memcpy(out_word, p->cursor, length);
  out_word[length] = '\0';
  p->cursor += length;
  return true;
}

static bool parse_i64(parser *p, int64_t *out_value) {
  skip_blanks(p);
  const char *cursor = p->cursor;
  bool is_negative = *cursor == '-';
  cursor += is_negative;
  if (!isdigit((unsigned char)*cursor)) {
    return fail(p, "a whole number");
  }
  int64_t value = 0;
  for (; isdigit((unsigned char)*cursor); ++cursor) {
    int digit = *cursor - '0';
    if (__builtin_mul_overflow(value, 10, &value) || __builtin_sub_overflow(value, digit, &value)) {
      return fail(p, "a number of 64 bits");
    }
  }
  if (!is_negative && value == INT64_MIN) {
    return fail(p, "a number of 64 bits");
  }
  p->cursor = cursor;
  *out_value = is_negative ? value : -value;
  return true;
}

static bool parse_in(parser *p, int64_t min, int64_t max, const char *expected, int64_t *out_value) {
  skip_blanks(p);
  const char *start = p->cursor;
  if (!parse_i64(p, out_value)) {
    return false;
  }
  if (*out_value < min || *out_value > max) {
    p->cursor = start;
    return fail(p, expected);
  }
  return true;
}

static bool parse_u64(parser *p, uint64_t *out_value) {
  skip_blanks(p);
  const char *cursor = p->cursor;
  if (!isdigit((unsigned char)*cursor)) {
    return fail(p, "a whole number without a sign");
  }
  uint64_t value = 0;
  for (; isdigit((unsigned char)*cursor); ++cursor) {
    if (__builtin_mul_overflow(value, 10u, &value) ||
        __builtin_add_overflow(value, (unsigned)(*cursor - '0'), &value)) {
      return fail(p, "a number of 64 bits");
    }
  }
  p->cursor = cursor;
  *out_value = value;
  return true;
}

static bool parse_u32(parser *p, uint32_t *out_value) {
  int64_t value = 0;
  if (!parse_in(p, 0, UINT32_MAX, "a number of 32 bits", &value)) {
    return false;
  }
  *out_value = (uint32_t)value;
  return true;
}

/* A reference: the sign is consumed, a number below `count` follows. */
static bool parse_reference(parser *p, int count, const char *expected, uint32_t *out_index) {
  int64_t value = 0;
  if (!parse_in(p, 0, (int64_t)count - 1, expected, &value)) {
    return false;
  }
  *out_index = (uint32_t)value;
  return true;
}

static bool parse_f64(parser *p, double *out_value) {
  skip_blanks(p);
  char *end = NULL;
  double value = isspace((unsigned char)*p->cursor) ? 0 : hr_text_number(p->cursor, &end);
  if (end == NULL || end == p->cursor) {
    return fail(p, "a number");
  }
  p->cursor = end;
  *out_value = value;
  return true;
}

static bool parse_dtype(parser *p, hr_dtype *out_dtype) {
  char word[16];
  skip_blanks(p);
  const char *start = p->cursor;
  hr_dtype dtype = take_any_word(p, word, sizeof word) ? hr_dtype_parse(word) : HR_DTYPE_NONE;
  if (dtype == HR_DTYPE_NONE) {
    p->cursor = start;
    return fail(p, "a dtype");
  }
  *out_dtype = dtype;
  return true;
}

/* ---- operands ---- */

/* Comma-separated numbers up to `close`, into the scratch vector. */
static bool parse_ints(parser *p, char close) {
  hr_vector_clear(&p->ints);
  if (take(p, close)) {
    return true;
  }
  do {
    int64_t value = 0;
    if (!parse_i64(p, &value)) {
      return false;
    }
    if (!hr_vector_push(&p->ints, value)) {
      return fail_memory(p);
    }
  } while (take(p, ','));
  return expect(p, close, close == ')' ? "',' or ')'" : close == ']' ? "',' or ']'" : "',' or '}'");
}

static const int64_t *own_ints(parser *p) {
  int64_t *own =
      hr_arena_dup(&p->program->arena, p->ints.count > 0 ? p->ints.data : NULL, p->ints.count * sizeof *p->ints.data);
  if (own == NULL) {
    fail_memory(p);
  }
  return own;
}

static bool parse_dims(parser *p, hr_operand *x) {
  if (!parse_ints(p, ']')) {
    return false;
  }
  if (p->ints.count > HR_RANK_MAX) {
    return fail(p, "at most 16 dims");
  }
  for (size_t d = 0; d < p->ints.count; ++d) {
    if (p->ints.data[d] < 0) {
      return fail(p, "dims of 0 or more");
    }
  }
  x->rank = (int16_t)p->ints.count;
  x->dims = own_ints(p);
  return x->dims != NULL;
}

static bool parse_strides(parser *p, int rank, const int64_t **out_strides) {
  if (!expect(p, '{', "'{'") || !parse_ints(p, '}')) {
    return false;
  }
  if (p->ints.count != (size_t)rank) {
    return fail(p, "as many strides as dims");
  }
  *out_strides = own_ints(p);
  return *out_strides != NULL;
}

static bool parse_terms(parser *p, hr_operand *x) {
  hr_vector_clear(&p->terms);
  while (take(p, '@')) {
    int64_t input = 0;
    hr_index_term term = {0};
    if (!parse_in(p, 0, INT32_MAX, "the number of an input", &input) || !expect(p, '*', "'*'") ||
        !parse_i64(p, &term.stride) || !expect(p, '<', "'<'") || !parse_i64(p, &term.extent)) {
      return false;
    }
    term.input = (int)input;
    if (!hr_vector_push(&p->terms, term)) {
      return fail_memory(p);
    }
  }
  if (p->terms.count > INT16_MAX) {
    return fail(p, "fewer index terms");
  }
  x->term_count = (int16_t)p->terms.count;
  x->terms = x->term_count > 0 ? hr_arena_dup(&p->program->arena, p->terms.data, p->terms.count * sizeof(hr_index_term))
                               : NULL;
  return x->term_count == 0 || x->terms != NULL || fail_memory(p);
}

/* The strides of a scalar's bounds precede its dims: their number gives its rank if it has no dims. */
static bool parse_bounds(parser *p, hr_operand *x) {
  hr_vector_clear(&p->bounds);
  while (take(p, '?')) {
    hr_bound bound = {0};
    if (!expect(p, '{', "'{'") || !parse_ints(p, '}')) {
      return false;
    }
    if (x->kind == HR_OPERAND_SCALAR && x->dims == NULL && p->ints.count <= HR_RANK_MAX && p->bounds.count == 0) {
      x->rank = (int16_t)p->ints.count;
    }
    if (p->ints.count != (size_t)x->rank) {
      return fail(p, "as many strides as dims");
    }
    bound.strides = own_ints(p);
    if (bound.strides == NULL || !expect(p, '+', "'+'") || !parse_i64(p, &bound.offset) || !expect(p, '<', "'<'") ||
        !parse_i64(p, &bound.extent)) {
      return false;
    }
    if (!hr_vector_push(&p->bounds, bound)) {
      return fail_memory(p);
    }
  }
  if (p->bounds.count > INT16_MAX) {
    return fail(p, "fewer bounds");
  }
  x->bound_count = (int16_t)p->bounds.count;
  x->bounds =
      x->bound_count > 0 ? hr_arena_dup(&p->program->arena, p->bounds.data, p->bounds.count * sizeof(hr_bound)) : NULL;
  return x->bound_count == 0 || x->bounds != NULL || fail_memory(p);
}

static bool parse_map(parser *p, hr_operand *x) {
  hr_dtype dtype;
  if (!expect(p, ':', "':'") || !parse_dtype(p, &dtype)) {
    return false;
  }
  x->dtype = dtype;
  return expect(p, '[', "'['") && parse_dims(p, x) && parse_strides(p, x->rank, &x->strides) && expect(p, '+', "'+'") &&
         parse_i64(p, &x->offset);
}

static bool parse_operand(parser *p, hr_operand *x) {
  *x = (hr_operand){.kind = HR_OPERAND_NONE, .fill = HR_NO_SCALAR};
  if (take(p, '_')) {
    return true;
  }
  if (take(p, '$')) {
    x->kind = HR_OPERAND_SCALAR;
    if (!parse_reference(p, p->program->scalar_count, "a declared scalar", &x->index)) {
      return false;
    }
    x->dtype = p->program->scalars[x->index].dtype;
    if (take(p, '[') && !parse_dims(p, x)) {
      return false;
    }
  } else if (take(p, '%')) {
    x->kind = HR_OPERAND_VALUE;
    if (!parse_reference(p, p->program->buffer_count, "a declared buffer", &x->index) ||
        (take(p, '.') && !parse_u32(p, &x->version)) || !parse_map(p, x)) {
      return false;
    }
  } else if (take(p, '#')) {
    x->kind = HR_OPERAND_INDEX;
    if (!parse_map(p, x)) {
      return false;
    }
  } else {
    return fail(p, "an operand");
  }
  if (!parse_terms(p, x) || !parse_bounds(p, x)) {
    return false;
  }
  if (take(p, '!')) {
    return expect(p, '$', "'$'") && parse_reference(p, p->program->scalar_count, "a declared scalar", &x->fill);
  }
  return true;
}

static bool parse_operands(parser *p, operand_vector *operands) {
  do {
    hr_operand operand;
    if (!parse_operand(p, &operand)) {
      return false;
    }
    if (!hr_vector_push(operands, operand)) {
      return fail_memory(p);
    }
  } while (take(p, ','));
  return true;
}

/* Scalars have no map in the text: gives them zero strides over the domain, or over dims of their own. */
static bool complete_scalars(parser *p, const hr_node *node, operand_vector *operands) {
  static const int64_t zeros[HR_RANK_MAX];
  const hr_operand *domain = node->is_loop && node->output_count > 0 ? &p->outputs.data[0] : NULL;
  for (size_t i = 0; i < operands->count; ++i) {
    hr_operand *x = &operands->data[i];
    if (x->kind != HR_OPERAND_SCALAR) {
      continue;
    }
    if (domain != NULL && domain->kind != HR_OPERAND_SCALAR && x->dims == NULL) {
      if (x->bound_count > 0 && x->rank != domain->rank) {
        return fail(p, "bounds with as many strides as the domain has dims");
      }
      x->rank = domain->rank, x->dims = domain->dims;
    }
    x->dims = x->dims != NULL ? x->dims : zeros;
    x->strides = zeros;
  }
  return true;
}

/* ---- lines ---- */

static bool parse_layout(parser *p, hr_program_buffer *buffer) {
  int64_t size = 0, channels = 0, inner = 0;
  if (!expect(p, '(', "'('") || !parse_in(p, 1, 8, "bytes of an element", &size) || !expect(p, ',', "','") ||
      !parse_in(p, 1, INT32_MAX, "a number of channels", &channels) || !expect(p, ',', "','") ||
      !parse_in(p, 1, INT64_MAX, "a number of elements of each channel", &inner) || !expect(p, ')', "')'")) {
    return false;
  }
  buffer->layout = hr_layout_pack(&(hr_buffer_layout){(size_t)size, channels, inner});
  return buffer->layout != 0 || fail(p, "a layout that fits into a word");
}

static bool parse_buffer(parser *p) {
  int64_t number = 0, bytes = 0;
  if (!expect(p, '%', "'%'") ||
      !parse_in(p, p->program->buffer_count, p->program->buffer_count, "the next buffer's number", &number) ||
      !parse_in(p, 0, INT64_MAX, "a number of bytes", &bytes)) {
    return false;
  }
  bool is_dead = take_word(p, "dead");
  if (!is_dead && !take_word(p, "live")) {
    return fail(p, "'live' or 'dead'");
  }
  bool is_fresh = take_word(p, "fresh");
  if (hr_program_add_buffer(p->program, (size_t)bytes, is_dead, is_fresh) == UINT32_MAX) {
    return fail_memory(p);
  }
  if (!take_word(p, "made")) {
    if (p->program->bound_count != p->program->buffer_count - 1) {
      return fail(p, "'made', as the buffer before");
    }
    ++p->program->bound_count;
  }
  p->program->buffers[p->program->buffer_count - 1].is_free |= is_fresh && take_word(p, "free");
  if (take_word(p, "layout") && !parse_layout(p, &p->program->buffers[p->program->buffer_count - 1])) {
    return false;
  }
  return !take_word(p, "versions") || parse_u32(p, &p->program->buffers[p->program->buffer_count - 1].versions);
}

static bool parse_value(parser *p, hr_scalar *scalar) {
  switch (scalar->dtype) {
    case HR_DTYPE_BOOL:
      return parse_in(p, 0, 1, "0 or 1", &scalar->value.i);
    case HR_DTYPE_I64:
      return parse_i64(p, &scalar->value.i);
    case HR_DTYPE_U64:
      return parse_u64(p, &scalar->value.u);
    case HR_DTYPE_F64:
      return parse_f64(p, &scalar->value.f[0]);
    default:
      return expect(p, '(', "'('") && parse_f64(p, &scalar->value.f[0]) && expect(p, ',', "','") &&
             parse_f64(p, &scalar->value.f[1]) && expect(p, ')', "')'");
  }
}

static bool parse_scalar(parser *p) {
  int64_t number = 0;
  hr_scalar value = {.dtype = HR_DTYPE_NONE, .value.f = {0, 0}};
  if (!expect(p, '$', "'$'") ||
      !parse_in(p, p->program->scalar_count, p->program->scalar_count, "the next scalar's number", &number) ||
      !parse_dtype(p, &value.dtype)) {
    return false;
  }
  if (value.dtype != HR_DTYPE_BOOL && value.dtype != HR_DTYPE_I64 && value.dtype != HR_DTYPE_U64 &&
      value.dtype != HR_DTYPE_F64 && value.dtype != HR_DTYPE_C128) {
    return fail(p, "a scalar of bool, i64, u64, f64 or c128");
  }
  if (take(p, '=')) {
    if (!parse_value(p, &value)) {
      return false;
    }
    return hr_program_add_constant(p->program, value) != UINT32_MAX || fail_memory(p);
  }
  /* argument numbers continue from the last one */
  hr_program *program = p->program;
  uint32_t argument = (uint32_t)0;
  for (int i = 0; i < program->scalar_count; ++i) {
    argument = program->scalars[i].is_constant ? argument : program->scalars[i].argument + 1;
  }
  if (take_word(p, "argument")) {
    int64_t given = 0;
    if (!parse_in(p, 0, 1 << 20, "the number of an argument", &given)) {
      return false;
    }
    argument = (uint32_t)given;
  }
  int count = program->argument_count;
  uint32_t index = hr_program_add_argument(program, value.dtype);
  if (index == UINT32_MAX) {
    return fail_memory(p);
  }
  program->scalars[index].argument = argument;
  program->argument_count = (int)argument + 1 > count ? (int)argument + 1 : count;
  return true;
}

static bool parse_attribute_scalars(parser *p, hr_node *node) {
  do {
    uint32_t index = 0;
    if (!expect(p, '$', "'$'") || !parse_reference(p, p->program->scalar_count, "a declared scalar", &index)) {
      return false;
    }
    if (node->scalar_count > 0 && index != node->scalar_base + (uint32_t)node->scalar_count) {
      return fail(p, "scalars that follow each other");
    }
    node->scalar_base = node->scalar_count == 0 ? index : node->scalar_base;
    ++node->scalar_count;
  } while (take(p, ','));
  return true;
}

static bool parse_store_mode(parser *p, hr_node *node) {
  static const char *const modes[] = {"set", "add", "mul", "max", "min"};
  for (int mode = HR_STORE_SET; mode <= HR_STORE_MIN; ++mode) {
    if (take_word(p, modes[mode])) {
      node->store_mode = (hr_store_mode)mode;
      return true;
    }
  }
  return fail(p, "a store mode");
}

/* An operation's name. */
static bool parse_op(parser *p, hr_op *out_op) {
  char name[64];
  skip_blanks(p);
  const char *start = p->cursor;
  *out_op = take_any_word(p, name, sizeof name) ? hr_op_parse(name) : HR_OP_NONE;
  if (*out_op == HR_OP_NONE) {
    p->cursor = start;
    return fail(p, "an operation");
  }
  return true;
}

static bool parse_epilogue(parser *p, hr_node *node) {
  if (node->epilogue_count == (node->is_loop ? HR_CHAIN_ROWS_MAX - 1 : HR_EPILOGUES_MAX)) {
    return fail(p, node->is_loop ? "at most 15 epilogues" : "at most 8 epilogues");
  }
  hr_epilogue *epilogue = &p->epilogues[node->epilogue_count];
  *epilogue = (hr_epilogue){.op = HR_OP_NONE, .output = p->output, .origin = HR_NO_ORIGIN};
  p->output = -1;
  if (!expect(p, '(', "'('") || !parse_op(p, &epilogue->op)) {
    return false;
  }
  for (int count = 0; take(p, ','); ++count) {
    int64_t input = HR_EPILOGUE_VALUE;
    if (count == HR_EPILOGUE_ARITY_MAX) {
      return fail(p, "at most 4 operands of an epilogue");
    }
    bool is_value = take(p, '^');
    bool has_number = !is_value || isdigit((unsigned char)*p->cursor);
    if (has_number && !parse_in(p, 0, INT32_MAX - 2, "'^' or the number of an input", &input)) {
      return false;
    }
    input = is_value && has_number ? HR_EPILOGUE_ROW(input) : input;
    epilogue->inputs[count] = (int)input;
  }
  ++node->epilogue_count;
  node->epilogues = p->epilogues;
  return expect(p, ')', "',' or ')'");
}

static bool parse_output(parser *p) {
  int64_t output = 0;
  bool ok = expect(p, '(', "'('") && parse_in(p, 0, INT32_MAX, "the number of an output", &output);
  p->output = (int)output;
  return ok && expect(p, ')', "')'");
}

static bool parse_attribute(parser *p, hr_node *node) {
  if (take_word(p, "then")) {
    return parse_epilogue(p, node);
  }
  if (take_word(p, "to")) {
    return parse_output(p);
  }
  if (take_word(p, "ints")) {
    if (!expect(p, '(', "'('") || !parse_ints(p, ')')) {
      return false;
    }
    node->int_count = (int)p->ints.count;
    node->ints = own_ints(p);
    return node->ints != NULL;
  }
  if (take_word(p, "scalars")) {
    node->scalar_count = 0;
    return expect(p, '(', "'('") && parse_attribute_scalars(p, node) && expect(p, ')', "',' or ')'");
  }
  uint32_t *number = take_word(p, "reduce")    ? &node->reduce_mask
                     : take_word(p, "ordered") ? &node->ordered_mask
                     : take_word(p, "origin")  ? &node->origin
                                               : NULL;
  if (number != NULL) {
    return expect(p, '(', "'('") && parse_u32(p, number) && expect(p, ')', "')'");
  }
  if (take_word(p, "store")) {
    return expect(p, '(', "'('") && parse_store_mode(p, node) && expect(p, ')', "')'");
  }
  return fail(p, "an attribute");
}

static bool is_line_end(parser *p) {
  skip_blanks(p);
  return *p->cursor == '\n' || *p->cursor == '\0' || *p->cursor == ';';
}

static bool starts_operand(parser *p) {
  skip_blanks(p);
  return strchr("%$#_", *p->cursor) != NULL && *p->cursor != '\0';
}

static bool parse_node(parser *p) {
  hr_node node = {.op = HR_OP_NONE, .origin = (uint32_t)p->program->node_count};
  hr_vector_clear(&p->outputs);
  hr_vector_clear(&p->inputs);
  p->output = -1;
  node.is_loop = take_word(p, "loop");
  if (starts_operand(p) && (!parse_operands(p, &p->outputs) || !expect(p, '=', "',' or '='"))) {
    return false;
  }
  if (!parse_op(p, &node.op) || !expect(p, '(', "'('") || (starts_operand(p) && !parse_operands(p, &p->inputs)) ||
      !expect(p, ')', "',' or ')'")) {
    return false;
  }
  while (!is_line_end(p)) {
    if (!parse_attribute(p, &node)) {
      return false;
    }
  }
  node.input_count = (int)p->inputs.count, node.output_count = (int)p->outputs.count;
  if (!complete_scalars(p, &node, &p->outputs) || !complete_scalars(p, &node, &p->inputs)) {
    return false;
  }
  node.inputs = p->inputs.data, node.outputs = p->outputs.data;
  return hr_program_append(p->program, &node) || fail_memory(p);
}

static bool parse_line(parser *p) {
  if (is_line_end(p)) {
    return true;
  }
  if (take_word(p, "value")) {
    p->program->is_value_form = true;
    return take_word(p, "form") || fail(p, "'form'");
  }
  if (take_word(p, "buffer")) {
    return parse_buffer(p);
  }
  return take_word(p, "scalar") ? parse_scalar(p) : parse_node(p);
}

static bool parse_lines(parser *p) {
  while (true) {
    if (!parse_line(p)) {
      return false;
    }
    if (!is_line_end(p)) {
      return fail(p, "the end of the line");
    }
    while (*p->cursor != '\n' && *p->cursor != '\0') {
      ++p->cursor; /* a comment */
    }
    if (*p->cursor == '\0') {
      return true;
    }
    p->line_start = ++p->cursor;
    ++p->line;
  }
}

hr_status hr_program_parse(const char *text, hr_program *out_program) {
  hr_program program;
  hr_program_init(&program);
  parser p = {.cursor = text, .line_start = text, .line = 1, .program = &program};
  bool ok = parse_lines(&p);
  hr_vector_fini(&p.outputs);
  hr_vector_fini(&p.inputs);
  hr_vector_fini(&p.ints);
  hr_vector_fini(&p.terms);
  hr_vector_fini(&p.bounds);
  if (!ok) {
    hr_program_fini(&program);
    return p.status;
  }
  *out_program = program;
  return HR_OK;
}
