/* Text: a string that grows, for printers, emitters and messages.
 *
 * Appending reports failure twice: by its result, and by a flag that stays set. So an emitter can append without checks
 * and call `hr_text_status` once at the end. After a failure further appends do nothing. A zeroed text is valid and
 * empty. Numbers are printed in the C locale. Threads: one at a time.
 */
#ifndef HEADRACE_BASE_TEXT_H_
#define HEADRACE_BASE_TEXT_H_

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "headrace/status.h"

typedef struct hr_text {
  char *data; /* terminated; NULL while nothing was appended */
  size_t length, capacity;
  bool failed; /* an append ran out of memory */
} hr_text;

bool hr_text_append(hr_text *text, const char *string);
/* Appends the strings in order. */
bool hr_text_append_all(hr_text *text, size_t count, const char *const strings[]);
bool hr_text_append_bytes(hr_text *text, const char *bytes, size_t count);
bool hr_text_char(hr_text *text, char character);
/* As "%lld", and some ten times faster. */
bool hr_text_int(hr_text *text, int64_t number);
bool hr_text_printf(hr_text *text, const char *format, ...) HR_PRINTF(2, 3);
bool hr_text_vprintf(hr_text *text, const char *format, va_list args) HR_PRINTF(2, 0);

/* vsnprintf and strtod with a decimal point, in every locale. */
int hr_text_format(char *out_text, size_t bytes, const char *format, va_list args) HR_PRINTF(3, 0);
double hr_text_number(const char *text, char **out_end);

/* The characters, terminated, borrowed until the next append; "" when empty. */
const char *hr_text_chars(const hr_text *text);
/* RESOURCE_EXHAUSTED if an append failed since the last clear, else OK. */
HR_MUST_USE hr_status hr_text_status(const hr_text *text);
/* Transfers the characters to the caller (free them with `hr_free`) and empties the text. NULL if memory is or was out.
 */
char *hr_text_take(hr_text *text);
/* Truncates the text to `length` characters; the failure flag stays. */
void hr_text_cut(hr_text *text, size_t length);
/* Empties the text and keeps its memory. */
void hr_text_clear(hr_text *text);
/* Frees the memory; the text is empty and usable afterwards. NULL is fine. */
void hr_text_fini(hr_text *text);

#endif /* HEADRACE_BASE_TEXT_H_ */
