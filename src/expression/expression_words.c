/* expression_words.c: see expression_words.h. */
#include <string.h>

#include "base/text.h"
#include "expression/expression_words.h"

/* ---- characters and errors ---- */

void hr__expr_skip_spaces(hr_expr_parser *p) {
  while (hr__expr_is_space(*p->cursor)) {
    ++p->cursor;
  }
}

int hr__expr_column(const hr_expr_parser *p, const char *place) {
  int column = 1;
  for (const char *c = p->text; c < place; ++c) {
    column += ((unsigned char)c[1] & 0xc0) != 0x80;
  }
  return column;
}

/* Columns of nodes: a long text is not counted from its start for each of them. */
int hr__expr_node_column(const hr_expr_parser *p, const char *place) {
  return p->forced_column != 0 ? p->forced_column : hr__expr_column(p, place);
}

/* The character at the cursor, for a message. */
static void describe_found(const hr_expr_parser *p, char out_found[16]) {
  unsigned char found = (unsigned char)*p->cursor;
  if (found == '\0') {
    strcpy(out_found, "the end");
  } else {
    const char hex[] = "0123456789abcdef";
    const char printable[] = {'\'', (char)found, '\'', '\0'};
    const char other[] = {'b', 'y', 't', 'e', ' ', '0', 'x', hex[found >> 4], hex[found & 15], '\0'};
    strcpy(out_found, found >= 32 && found < 127 ? printable : other);
  }
}

/* "expected WANTED, found NAME"; without a name, of length 0, "expected WANTED". */
bool hr__expr_fail_at(hr_expr_parser *p, const char *place, const char *wanted, const char *name, size_t length) {
  int shown = (int)(length < HR_EXPR_NAME_MAX ? length : HR_EXPR_NAME_MAX);
  if (p->status == HR_OK) {
    p->status = hr__expr_error(HR_STATUS_INVALID_ARGUMENT, p->what, p->text, hr__expr_column(p, place),
                               "expected %s%s%.*s", wanted, length > 0 ? ", found " : "", shown, name);
  }
  return false;
}

bool hr__expr_expected(hr_expr_parser *p, const char *wanted) {
  if (p->status == HR_OK) {
    char found[16];
    describe_found(p, found);
    p->status = hr__expr_error(HR_STATUS_INVALID_ARGUMENT, p->what, p->text, hr__expr_column(p, p->cursor),
                               "expected %s, found %s", wanted, found);
  }
  return false;
}

bool hr__expr_check_node(hr_expr_parser *p, int node) {
  if (node < 0 && p->status == HR_OK) {
    p->status = hr__expr_too_large(p->e, p->text);
  }
  return node >= 0;
}

/* ---- words ---- */

bool hr__expr_take(hr_expr_parser *p, const char *token) {
  hr__expr_skip_spaces(p);
  size_t length = strlen(token);
  if (strncmp(p->cursor, token, length) != 0) {
    return false;
  }
  p->cursor += length;
  return true;
}

/* The length of the name at the cursor; 0 if there is none. */
size_t hr__expr_name_length(hr_expr_parser *p) {
  hr__expr_skip_spaces(p);
  size_t length = 0;
  while (hr__expr_is_letter(p->cursor[length]) || (length > 0 && hr__expr_is_digit(p->cursor[length]))) {
    ++length;
  }
  return length;
}

bool hr__expr_is_word(const char *name, size_t length, const char *word) {
  return strlen(word) == length && memcmp(name, word, length) == 0;
}

static const struct {
  const char *words;
  hr_dtype dtype;
} types[] = {
    {"T", HR_DTYPE_NONE},
#define TYPE(words, dtype) {words, HR_DTYPE_##dtype},
#include "core/ir/c_types.def"
#undef TYPE
};

/* Length of `words` at the cursor, where each space stands for one or more; 0 if they are not there. */
static size_t words_length(const char *cursor, const char *words) {
  const char *c = cursor;
  for (; *words != '\0'; ++words) {
    if (*words != ' ') {
      if (*c++ != *words) {
        return 0;
      }
    } else if (!hr__expr_is_space(*c)) {
      return 0;
    } else {
      while (hr__expr_is_space(*c)) {
        ++c;
      }
    }
  }
  return hr__expr_is_letter(*c) || hr__expr_is_digit(*c) ? 0 : (size_t)(c - cursor);
}

/* Reads the type at the cursor: the longest that matches. */
bool hr__expr_take_type(hr_expr_parser *p, hr_dtype *out_dtype) {
  hr__expr_skip_spaces(p);
  size_t longest = 0;
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
    size_t length = words_length(p->cursor, types[i].words);
    if (length > longest) {
      longest = length;
      *out_dtype = types[i].dtype;
    }
  }
  p->cursor += longest;
  return longest > 0;
}

bool hr__expr_is_type(const char *name, size_t length) {
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
    if (hr__expr_is_word(name, length, types[i].words)) {
      return true;
    }
  }
  return hr__expr_is_word(name, length, "signed");
}

/* ---- variables ---- */

hr_expr_variable *hr__expr_find_in(hr_expr_variable *data, size_t count, const char *name, size_t length) {
  for (size_t i = 0; i < count; ++i) {
    if (hr__expr_is_word(name, length, data[i].name)) {
      return &data[i];
    }
  }
  return NULL;
}

hr_expr_variable *hr__expr_find_variable(hr_expression *e, const char *name, size_t length) {
  hr_expr_variable *found = hr__expr_find_in(e->inputs.data, e->inputs.count, name, length);
  found = found != NULL ? found : hr__expr_find_in(e->outputs.data, e->outputs.count, name, length);
  return found != NULL ? found : hr__expr_find_in(e->temporaries.data, e->temporaries.count, name, length);
}

/* ---- numbers ---- */

static bool take_suffix(hr_expr_parser *p, const char *lower, const char *upper) {
  bool is_there = strncmp(p->cursor, lower, strlen(lower)) == 0 || strncmp(p->cursor, upper, strlen(upper)) == 0;
  p->cursor += is_there ? strlen(lower) : 0;
  return is_there;
}

/* An integer literal of C: decimal or hexadecimal, with the suffixes u, l and ul. */
static int parse_whole(hr_expr_parser *p, const char *start) {
  bool is_hex = start[0] == '0' && (start[1] == 'x' || start[1] == 'X');
  const char *digits = is_hex ? start + 2 : start;
  uint64_t value = 0;
  const char *c = digits;
  for (;; ++c) {
    int digit = hr__expr_is_digit(*c)              ? *c - '0'
                : is_hex && *c >= 'a' && *c <= 'f' ? *c - 'a' + 10
                : is_hex && *c >= 'A' && *c <= 'F' ? *c - 'A' + 10
                                                   : -1;
    if (digit < 0) {
      break;
    }
    if (value > (INT64_MAX - (uint64_t)digit) / (is_hex ? 16 : 10)) {
      hr__expr_fail_at(p, start, "an integer below 2^63", "", 0);
      return -1;
    }
    value = value * (is_hex ? 16 : 10) + (uint64_t)digit;
  }
  p->cursor = c;
  if (c == digits || (!is_hex && c - digits > 1 && *digits == '0')) {
    hr__expr_fail_at(p, start, "a decimal number without leading zeros, or a hexadecimal one", "", 0);
    return -1;
  }
  bool is_unsigned = take_suffix(p, "u", "U"), is_long = take_suffix(p, "l", "L");
  is_long = is_long || value > (is_unsigned ? UINT32_MAX : (uint64_t)INT32_MAX);
  hr_dtype dtype = is_unsigned ? (is_long ? HR_DTYPE_U64 : HR_DTYPE_U32) : is_long ? HR_DTYPE_I64 : HR_DTYPE_I32;
  return hr__expr_whole(p->e, (int64_t)value, dtype, hr__expr_node_column(p, start));
}

static int parse_real(hr_expr_parser *p, const char *start, const char *end) {
  char digits[HR_EXPR_NAME_MAX];
  if ((size_t)(end - start) >= sizeof digits) {
    hr__expr_fail_at(p, start, "a number of at most 63 characters", "", 0);
    return -1;
  }
  memcpy(digits, start, (size_t)(end - start));
  digits[end - start] = '\0';
  double value = hr_text_number(digits, NULL);
  p->cursor = end;
  bool is_float = take_suffix(p, "f", "F");
  return hr__expr_real(p->e, is_float ? (double)(float)value : value, is_float ? HR_DTYPE_F32 : HR_DTYPE_F64,
                       hr__expr_node_column(p, start));
}

int hr__expr_parse_number(hr_expr_parser *p) {
  const char *start = p->cursor, *c = start;
  while (hr__expr_is_digit(*c)) {
    ++c;
  }
  bool is_hex = c == start + 1 && *start == '0' && (*c == 'x' || *c == 'X');
  bool is_real = !is_hex && (*c == '.' || *c == 'e' || *c == 'E');
  if (is_real && *c == '.') {
    for (++c; hr__expr_is_digit(*c); ++c) {
    }
  }
  if (is_real && (*c == 'e' || *c == 'E')) {
    const char *power = c + 1 + (c[1] == '-' || c[1] == '+');
    if (!hr__expr_is_digit(*power)) {
      hr__expr_fail_at(p, start, "digits after the exponent's e", "", 0);
      return -1;
    }
    for (c = power; hr__expr_is_digit(*c); ++c) {
    }
  }
  int node = is_real ? parse_real(p, start, c) : parse_whole(p, start);
  if (node >= 0 && (hr__expr_is_letter(*p->cursor) || hr__expr_is_digit(*p->cursor) || *p->cursor == '.')) {
    hr__expr_expected(p, "the end of the number");
    return -1;
  }
  return node;
}
