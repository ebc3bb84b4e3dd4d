/* Growing strings. The capacity counts the terminator and doubles. */
#include "base/text.h"

#include <locale.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocator.h"

/* Makes room for `extra` characters and the terminator. */
static bool make_room(hr_text *text, size_t extra) {
  if (text->failed) {
    return false;
  }
  if (extra < text->capacity - text->length) {
    return true;
  }
  if (extra > SIZE_MAX / 4 || text->length > SIZE_MAX / 4) {
    text->failed = true;
    return false;
  }
  size_t capacity = text->capacity > 0 ? text->capacity * 2 : 64;
  if (capacity < text->length + extra + 1) {
    capacity = text->length + extra + 1;
  }
  char *data = hr_realloc(text->data, capacity);
  if (data == NULL) {
    text->failed = true;
    return false;
  }
  text->data = data;
  text->capacity = capacity;
  text->data[text->length] = '\0';
  return true;
}

bool hr_text_append_bytes(hr_text *text, const char *bytes, size_t count) {
  if (!make_room(text, count)) {
    return false;
  }
  if (count > 0) {
    memcpy(text->data + text->length, bytes, count);
  }
  text->length += count;
  text->data[text->length] = '\0';
  return true;
}

bool hr_text_append(hr_text *text, const char *string) {
  return hr_text_append_bytes(text, string, strlen(string));
}

bool hr_text_append_all(hr_text *text, size_t count, const char *const strings[]) {
  for (size_t i = 0; i < count; ++i) {
    hr_text_append(text, strings[i]);
  }
  return !text->failed;
}

bool hr_text_char(hr_text *text, char character) {
  return hr_text_append_bytes(text, &character, 1);
}

/* A number by its sign and magnitude. */
static bool append_number(hr_text *text, bool is_negative, uint64_t rest) {
  char digits[24];
  size_t at = sizeof digits;
  do {
    digits[--at] = (char)('0' + rest % 10);
    rest /= 10;
  } while (rest > 0);
  if (is_negative) {
    digits[--at] = '-';
  }
  return hr_text_append_bytes(text, digits + at, sizeof digits - at);
}

bool hr_text_int(hr_text *text, int64_t number) {
  return append_number(text, number < 0, number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}

/* ---- formats: emitters use a handful of conversions, and would spend most of their time in the C library ---- */

/* A conversion without flags, width and precision. */
typedef enum conversion {
  OTHER = 0, /* the C library's */
  PERCENT,
  CHAR,
  STRING,
  INT,
  LONG,
  LONG_LONG,
  UNSIGNED,
  UNSIGNED_LONG,
  UNSIGNED_LONG_LONG,
  SIZE
} conversion;

/* `*format` is behind the percent sign, and moves behind the conversion. */
static conversion read_conversion(const char **format) {
  const char *at = *format;
  bool is_size = *at == 'z';
  int longs = 0;
  while (longs < 2 && at[longs] == 'l') {
    ++longs;
  }
  at += is_size ? 1 : longs;
  *format = at + 1;
  if (is_size) {
    return *at == 'u' ? SIZE : OTHER;
  }
  switch (*at) {
    case 'd':
      return INT + longs;
    case 'u':
      return UNSIGNED + longs;
    case 's':
      return longs == 0 ? STRING : OTHER;
    case 'c':
      return longs == 0 ? CHAR : OTHER;
    case '%':
      return longs == 0 ? PERCENT : OTHER;
    default:
      return OTHER;
  }
}

static bool append_argument(hr_text *text, conversion is, va_list *args) {
  char character = '%';
  const char *string;
  switch (is) {
    case STRING:
      string = va_arg(*args, const char *);
      return hr_text_append(text, string != NULL ? string : "(null)");
    case INT:
      return hr_text_int(text, va_arg(*args, int));
    case LONG:
      return hr_text_int(text, va_arg(*args, long));
    case LONG_LONG:
      return hr_text_int(text, va_arg(*args, long long));
    case UNSIGNED:
      return append_number(text, false, va_arg(*args, unsigned));
    case UNSIGNED_LONG:
      return append_number(text, false, va_arg(*args, unsigned long));
    case UNSIGNED_LONG_LONG:
      return append_number(text, false, va_arg(*args, unsigned long long));
    case SIZE:
      return append_number(text, false, va_arg(*args, size_t));
    case CHAR:
      character = (char)va_arg(*args, int);
      return hr_text_append_bytes(text, &character, 1);
    default:
      return hr_text_append_bytes(text, &character, 1);
  }
}

/* *out_is_plain: all conversions were known. If not, the text has what came before. */
static bool append_plain(hr_text *text, const char *format, va_list *args, bool *out_is_plain) {
  bool ok = true;
  *out_is_plain = true;
  for (const char *percent; ok && (percent = strchr(format, '%')) != NULL;) {
    ok = hr_text_append_bytes(text, format, (size_t)(percent - format));
    format = percent + 1;
    conversion is = read_conversion(&format);
    *out_is_plain = is != OTHER;
    if (is == OTHER) {
      return false;
    }
    ok = ok && append_argument(text, is, args);
  }
  return ok && hr_text_append(text, format);
}

/* The C library keeps one object for "C": this neither allocates nor fails. */
static locale_t enter_c_locale(void) {
  locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  return c != (locale_t)0 ? uselocale(c) : uselocale((locale_t)0);
}

int hr_text_format(char *out_text, size_t bytes, const char *format, va_list args) {
  locale_t before = enter_c_locale();
  int length = vsnprintf(out_text, bytes, format, args);
  uselocale(before);
  return length;
}

double hr_text_number(const char *text, char **out_end) {
  locale_t before = enter_c_locale();
  double value = strtod(text, out_end);
  uselocale(before);
  return value;
}

/* Formats by the C library. */
HR_PRINTF(2, 0) static bool library_vprintf(hr_text *text, const char *format, va_list args) {
  va_list copy;
  va_copy(copy, args);
  size_t room = text->capacity - text->length;
  int length = hr_text_format(room > 0 ? text->data + text->length : NULL, room, format, copy);
  va_end(copy);
  bool fits = length >= 0 && (size_t)length < room;
  text->failed |= length < 0;
  if (length < 0 || !make_room(text, (size_t)length)) {
    hr_text_cut(text, text->length); /* without what has just been formatted */
    return false;
  }
  if (!fits) {
    hr_text_format(text->data + text->length, (size_t)length + 1, format, args);
  }
  text->length += (size_t)length;
  return true;
}

/* Texts are whole or unchanged: what was appended before a failure is cut off. */
bool hr_text_vprintf(hr_text *text, const char *format, va_list args) {
  size_t length = text->length;
  bool is_plain;
  va_list copy;
  va_copy(copy, args);
  bool ok = append_plain(text, format, &copy, &is_plain);
  va_end(copy);
  if (!ok) {
    hr_text_cut(text, length);
  }
  return is_plain ? ok : library_vprintf(text, format, args);
}

bool hr_text_printf(hr_text *text, const char *format, ...) {
  va_list args;
  va_start(args, format);
  bool appended = hr_text_vprintf(text, format, args);
  va_end(args);
  return appended;
}

const char *hr_text_chars(const hr_text *text) {
  return text->data != NULL ? text->data : "";
}

hr_status hr_text_status(const hr_text *text) {
  return text->failed
             ? hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "text: out of memory after %zu characters", text->length)
             : NULL;
}

char *hr_text_take(hr_text *text) {
  char *data = NULL;
  if (make_room(text, 0)) {
    data = text->data;
    *text = (hr_text){0};
  }
  return data;
}

void hr_text_cut(hr_text *text, size_t length) {
  text->length = length;
  if (text->data != NULL) {
    text->data[length] = '\0';
  }
}

void hr_text_clear(hr_text *text) {
  hr_text_cut(text, 0);
  text->failed = false;
}

void hr_text_fini(hr_text *text) {
  if (text != NULL) {
    hr_free(text->data);
    *text = (hr_text){0};
  }
}
