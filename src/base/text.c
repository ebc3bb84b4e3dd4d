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

bool hr_text_int(hr_text *text, int64_t number) {
  char digits[24];
  size_t at = sizeof digits;
  uint64_t rest = number < 0 ? 0 - (uint64_t)number : (uint64_t)number;
  do {
    digits[--at] = (char)('0' + rest % 10);
    rest /= 10;
  } while (rest > 0);
  if (number < 0) {
    digits[--at] = '-';
  }
  return hr_text_append_bytes(text, digits + at, sizeof digits - at);
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

bool hr_text_vprintf(hr_text *text, const char *format, va_list args) {
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
