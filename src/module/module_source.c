/* module_source.c: see module_source.h. */
#include "module/module_source.h"

#include <string.h>

#include "core/ir/dtype.h"

typedef struct scanner {
  const char *at, *end, *copied; /* what comes before `copied` is in the text */
  int line, depth;
  bool is_line_begin;
  hr__module_source *out;
  hr_status status;
} scanner;

/* The longest that matches comes first. */
static const struct {
  const char *words;
  hr_dtype dtype;
} types[] = {
    {"unsigned long long int", HR_DTYPE_U64},
    {"unsigned long long", HR_DTYPE_U64},
    {"unsigned long int", HR_DTYPE_U64},
    {"unsigned short int", HR_DTYPE_U16},
    {"long long int", HR_DTYPE_I64},
    {"long long", HR_DTYPE_I64},
    {"long int", HR_DTYPE_I64},
    {"short int", HR_DTYPE_I16},
#define TYPE(words, dtype) {words, HR_DTYPE_##dtype},
#include "core/ir/c_types.def"
#undef TYPE
};

const char *hr__module_type(hr_dtype dtype) {
  static const char *const names[HR_DTYPE_COUNT] = {
      [HR_DTYPE_BOOL] = "bool",    [HR_DTYPE_U8] = "uint8_t",    [HR_DTYPE_I8] = "int8_t",
      [HR_DTYPE_U16] = "uint16_t", [HR_DTYPE_I16] = "int16_t",   [HR_DTYPE_U32] = "uint32_t",
      [HR_DTYPE_I32] = "int32_t",  [HR_DTYPE_U64] = "uint64_t",  [HR_DTYPE_I64] = "int64_t",
      [HR_DTYPE_F16] = "half",     [HR_DTYPE_BF16] = "bfloat16", [HR_DTYPE_F32] = "float",
      [HR_DTYPE_F64] = "double",
  };
  return names[dtype];
}

/* ---- characters and words ---- */

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

static bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\v' || c == '\f';
}

static char peek(const scanner *s, int ahead) {
  return s->end - s->at > ahead ? s->at[ahead] : '\0';
}

static void step(scanner *s) {
  s->line += *s->at == '\n';
  s->is_line_begin = *s->at == '\n' || (s->is_line_begin && is_space(*s->at));
  ++s->at;
}

static size_t name_length(const scanner *s) {
  const char *at = s->at;
  while (at < s->end && (is_letter(*at) || (at > s->at && is_digit(*at)))) {
    ++at;
  }
  return (size_t)(at - s->at);
}

static bool fail(scanner *s, int line, const char *what, const char *found, size_t length) {
  if (s->status == HR_OK) {
    s->status = length > 0
                    ? hr_status_make(HR_STATUS_INVALID_ARGUMENT, "kernel source, line %d: expected %s, found '%.*s'",
                                     line, what, (int)(length < 60 ? length : 60), found)
                    : hr_status_make(HR_STATUS_INVALID_ARGUMENT, "kernel source, line %d: %s", line, what);
  }
  return false;
}

static bool expected(scanner *s, const char *what) {
  if (s->at == s->end) {
    return fail(s, s->line, what, "the end", 7);
  }
  size_t length = name_length(s);
  return fail(s, s->line, what, s->at, length > 0 ? length : 1);
}

/* ---- what is no code ---- */

/* Behind it and true, at a backslash that ends a line. */
static bool skip_continuation(scanner *s) {
  const char *at = s->at;
  if (at == s->end || *at != '\\') {
    return false;
  }
  do {
    ++at;
  } while (at < s->end && *at != '\n' && is_space(*at));
  if (at == s->end || *at != '\n') {
    return false;
  }
  s->at = at;
  step(s);
  return true;
}

/* To the end of the line and of those that continue it. */
static void skip_line(scanner *s) {
  while (s->at < s->end && *s->at != '\n') {
    if (!skip_continuation(s)) {
      step(s);
    }
  }
}

static bool skip_comment(scanner *s) {
  int line = s->line;
  bool is_line_begin = s->is_line_begin;
  step(s);
  step(s);
  while (s->at < s->end && !(*s->at == '*' && peek(s, 1) == '/')) {
    step(s);
  }
  if (s->at == s->end) {
    return fail(s, line, "the comment does not end", NULL, 0);
  }
  s->at += 2;
  s->is_line_begin = is_line_begin;
  return true;
}

/* Skips spaces and comments. */
static bool skip(scanner *s) {
  for (;;) {
    if (s->at < s->end && is_space(*s->at)) {
      step(s);
    } else if (peek(s, 0) == '/' && peek(s, 1) == '/') {
      skip_line(s);
    } else if (peek(s, 0) == '/' && peek(s, 1) == '*') {
      if (!skip_comment(s)) {
        return false;
      }
    } else {
      return true;
    }
  }
}

static bool skip_quoted(scanner *s) {
  const char quote = *s->at;
  int line = s->line;
  for (step(s); s->at < s->end && *s->at != quote && *s->at != '\n'; step(s)) {
    if (*s->at == '\\' && s->end - s->at > 1) {
      step(s);
    }
  }
  if (s->at == s->end || *s->at != quote) {
    return fail(s, line, "the quotation does not end", NULL, 0);
  }
  step(s);
  return true;
}

/* Skips what may be between a preprocessor's `#` and its word. */
static bool skip_blanks(scanner *s) {
  for (;;) {
    if (peek(s, 0) == '/' && peek(s, 1) == '*') {
      if (!skip_comment(s)) {
        return false;
      }
    } else if (s->at < s->end && *s->at != '\n' && is_space(*s->at)) {
      step(s);
    } else if (!skip_continuation(s)) {
      return true;
    }
  }
}

/* Takes a preprocessor's word, whose letters may be on several lines; true if it reads a file. */
static bool take_include(scanner *s) {
  static const char *const words[] = {"include", "include_next", "import", "embed"};
  char word[16] = "";
  for (size_t length = 0; length + 1 < sizeof word && s->at < s->end;) {
    if (is_letter(*s->at)) {
      word[length++] = *s->at;
      step(s);
    } else if (!skip_continuation(s)) {
      break;
    }
  }
  for (size_t w = 0; w < sizeof words / sizeof *words; ++w) {
    if (strcmp(word, words[w]) == 0) {
      return true;
    }
  }
  return false;
}

static bool is_directive(const scanner *s) {
  return s->is_line_begin && (*s->at == '#' || (*s->at == '%' && peek(s, 1) == ':'));
}

/* A preprocessor's line with its continuations. */
static bool skip_directive(scanner *s) {
  int line = s->line;
  s->at += *s->at == '#' ? 1 : 2;
  if (!skip_blanks(s)) {
    return false;
  }
  if (take_include(s)) {
    return fail(s, line, "kernels include no files; they have the functions of math.h without", NULL, 0);
  }
  skip_line(s);
  return true;
}

/* ---- heads of kernels ---- */

static bool take_word(scanner *s, const char *word) {
  if (!skip(s)) {
    return false;
  }
  size_t length = strlen(word);
  bool is = name_length(s) == length && memcmp(s->at, word, length) == 0;
  s->at += is ? length : 0;
  return is;
}

static bool take_char(scanner *s, char c) {
  bool is = skip(s) && s->at < s->end && *s->at == c;
  s->at += is;
  return is;
}

static bool take_words(scanner *s, const char *words) {
  const scanner before = *s;
  while (*words != '\0') {
    char word[16];
    size_t length = strcspn(words, " ");
    memcpy(word, words, length);
    word[length] = '\0';
    if (!take_word(s, word)) {
      hr_status failure = s->status;
      *s = before;
      s->status = failure;
      return false;
    }
    words += length + (words[length] == ' ');
  }
  return true;
}

static bool take_type(scanner *s, hr_dtype *out_dtype) {
  for (size_t i = 0; i < sizeof types / sizeof *types; ++i) {
    if (take_words(s, types[i].words)) {
      *out_dtype = types[i].dtype;
      return true;
    }
  }
  return expected(s, "a type (float, double, half, bfloat16, bool, char, short, int, long, unsigned, int8_t, ...)");
}

static bool take_name(scanner *s, char name[HR__MODULE_NAME_BYTES]) {
  if (!skip(s)) {
    return false;
  }
  size_t length = name_length(s);
  if (length == 0) {
    return expected(s, "a name");
  }
  if (length >= HR__MODULE_NAME_BYTES) {
    return fail(s, s->line, "a name of less than 64 characters", s->at, length);
  }
  memcpy(name, s->at, length);
  name[length] = '\0';
  s->at += length;
  return true;
}

static bool is_known(const hr__module_head *head, const char *name) {
  bool is = strcmp(name, "i") == 0;
  for (int p = 0; p < head->parameter_count; ++p) {
    is |= strcmp(head->parameters[p].name, name) == 0;
  }
  return is;
}

/* in float *x, or float l */
static bool parse_parameter(scanner *s, hr__module_head *head) {
  hr__module_parameter p = {.kind = HR_PARAMETER_NUMBER};
  p.kind = take_word(s, "inout") ? HR_PARAMETER_INOUT
           : take_word(s, "in")  ? HR_PARAMETER_IN
           : take_word(s, "out") ? HR_PARAMETER_OUT
                                 : HR_PARAMETER_NUMBER;
  (void)take_word(s, "const");
  if (!take_type(s, &p.dtype)) {
    return false;
  }
  (void)take_word(s, "const");
  bool is_pointer = take_char(s, '*');
  (void)(is_pointer && (take_word(s, "restrict") || take_word(s, "__restrict__")));
  if (!take_name(s, p.name)) {
    return false;
  }
  if (is_pointer != (p.kind != HR_PARAMETER_NUMBER)) {
    return fail(s, s->line, is_pointer ? "in, out or inout in front of a pointer" : "a pointer after in, out or inout",
                p.name, strlen(p.name));
  }
  if (is_known(head, p.name)) {
    return fail(s, s->line, "a name of its own (i is the number of the thread)", p.name, strlen(p.name));
  }
  if (head->parameter_count == HR_MODULE_PARAMETERS_MAX) {
    return fail(s, s->line, "at most 48 parameters", p.name, strlen(p.name));
  }
  head->parameters[head->parameter_count++] = p;
  return true;
}

static bool parse_parameters(scanner *s, hr__module_head *head) {
  if (!take_char(s, '(')) {
    return expected(s, "'('");
  }
  do {
    if (!parse_parameter(s, head)) {
      return false;
    }
  } while (take_char(s, ','));
  if (!take_char(s, ')')) {
    return expected(s, "',' or ')'");
  }
  if (!skip(s) || peek(s, 0) != '{') {
    return expected(s, "'{'");
  }
  for (int p = 0; p < head->parameter_count; ++p) {
    if (head->parameters[p].kind == HR_PARAMETER_OUT || head->parameters[p].kind == HR_PARAMETER_INOUT) {
      return true;
    }
  }
  return fail(s, s->line, "an operand declared out or inout in kernel", head->name, strlen(head->name));
}

/* The head in C, with its lines. */
static void write_head(scanner *s, const hr__module_head *head, int lines) {
  hr_text *text = &s->out->text;
  hr_text_printf(text, "HR_VMATH_FN void hr__k_%s(", head->name);
  for (int p = 0; p < head->parameter_count; ++p) {
    const hr__module_parameter *x = &head->parameters[p];
    bool is_constant = x->kind == HR_PARAMETER_IN || x->kind == HR_PARAMETER_NUMBER;
    hr_text_printf(text, "%s%s%s%s, ", is_constant ? "const " : "", hr__module_type(x->dtype),
                   x->kind == HR_PARAMETER_NUMBER ? " " : " *restrict ", x->name);
  }
  hr_text_append(text, "const int64_t i, const int64_t hr__x, const int64_t hr__y, const int64_t hr__z, "
                       "const int64_t *hr__size)");
  for (int line = 0; line < lines; ++line) {
    hr_text_char(text, '\n');
  }
  s->copied = s->at;
}

static bool parse_kernel(scanner *s) {
  hr__module_head head = {.parameter_count = 0};
  int line = s->line;
  hr_text_append_bytes(&s->out->text, s->copied, (size_t)(s->at - s->copied));
  s->at += 6; /* kernel */
  if (!take_word(s, "void")) {
    return expected(s, "void");
  }
  if (!take_name(s, head.name) || !parse_parameters(s, &head)) {
    return false;
  }
  for (size_t k = 0; k < s->out->heads.count; ++k) {
    if (strcmp(s->out->heads.data[k].name, head.name) == 0) {
      return fail(s, line, "a new name of a kernel", head.name, strlen(head.name));
    }
  }
  write_head(s, &head, s->line - line);
  return hr_vector_push(&s->out->heads, head) ||
         (s->status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a kernel"), false);
}

/* ---- the source ---- */

/* The next token, at any depth. */
static bool scan_token(scanner *s) {
  char c = *s->at;
  if (is_directive(s)) {
    return skip_directive(s);
  }
  if (c == '"' || c == '\'') {
    return skip_quoted(s);
  }
  size_t length = name_length(s);
  if (length == 6 && memcmp(s->at, "kernel", 6) == 0 && s->depth == 0) {
    return parse_kernel(s);
  }
  if (length > 0 || is_digit(c)) {
    s->is_line_begin = false;
    while (s->at < s->end && (is_letter(*s->at) || is_digit(*s->at))) { /* with a number's letters */
      ++s->at;
    }
    return true;
  }
  s->depth += (c == '{') - (c == '}');
  step(s);
  return s->depth >= 0 || fail(s, s->line, "'}' without '{'", NULL, 0);
}

static bool scan(scanner *s) {
  while (skip(s) && s->at < s->end) {
    if (!scan_token(s)) {
      return false;
    }
  }
  if (s->status == HR_OK && s->depth > 0) {
    return fail(s, s->line, "'}', found the end: a '{' is not closed", NULL, 0);
  }
  if (s->status == HR_OK && s->out->heads.count == 0) {
    return fail(s, s->line, "a kernel (`kernel void name(in float *x, out float *y) { ... }`), found the end", NULL, 0);
  }
  hr_text_append_bytes(&s->out->text, s->copied, (size_t)(s->end - s->copied));
  hr_text_char(&s->out->text, '\n');
  return s->status == HR_OK;
}

hr_status hr__module_parse(const char *source, size_t length, hr__module_source *out_source) {
  *out_source = (hr__module_source){0};
  if (length > HR_MODULE_SOURCE_MAX) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "kernel source of %zu characters: at most %d", length,
                          HR_MODULE_SOURCE_MAX);
  }
  const char *zero = memchr(source, '\0', length);
  scanner s = {
      .at = source, .end = source + length, .copied = source, .line = 1, .is_line_begin = true, .out = out_source};
  if (zero != NULL) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "kernel source: character %zu is 0", (size_t)(zero - source));
  }
  hr_status status = scan(&s) ? hr_text_status(&out_source->text) : s.status;
  if (status != HR_OK) {
    hr__module_source_fini(out_source);
  }
  return status;
}

void hr__module_source_fini(hr__module_source *source) {
  hr_vector_fini(&source->heads);
  hr_text_fini(&source->text);
}
