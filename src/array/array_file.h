/* array_file.h: an open file of arrays, for the readers of its formats.
 *
 * A reader adds entries and texts. It reads only within the file's bytes, and adds an entry only if its elements are
 * within them, too. Its messages name field and value; the file's name is put in front of them later.
 */
#ifndef HEADRACE_ARRAY_ARRAY_FILE_H_
#define HEADRACE_ARRAY_ARRAY_FILE_H_

#include <stdint.h>

#include "base/refcount.h"
#include "base/text.h"
#include "headrace/file.h"

/* An array of a file. */
typedef struct hr_file_entry {
  char *name; /* owned */
  hr_dtype dtype;
  int rank;
  int64_t dims[HR_RANK_MAX];
  uint64_t begin, bytes; /* its elements in the file */
  bool is_fortran;       /* column-major */
  bool is_swapped;       /* big-endian */
} hr_file_entry;

struct hr_file {
  hr_refcount references; /* the caller's, and one for each array on the mapping */
  const char *bytes;
  size_t size;
  bool is_mapped;
  char *name;
  hr_file_format format;
  int count, room;
  hr_file_entry *entries;
  int text_count, text_room;
  hr_file_text *texts; /* owned strings */
};

/* Text that is read once, from `at` to `end`. The second function passes the next character that is no space, if it is
 * this one. */
typedef struct hr__cursor {
  const char *at, *end;
} hr__cursor;

void hr__cursor_skip_space(hr__cursor *c);
bool hr__cursor_next_is(hr__cursor *c, char character);

/* A failure of a call of the system, by errno; and one of memory. */
hr_status hr__file_failure(const char *what);
hr_status hr__file_no_memory(size_t bytes);

/* Adds an entry, whose name is copied. */
HR_MUST_USE hr_status hr__file_add(hr_file *file, const char *name, const hr_file_entry *entry);
HR_MUST_USE hr_status hr__file_add_text(hr_file *file, const char *key, const char *value);
/* Checks that no two entries have the same name. */
HR_MUST_USE hr_status hr__file_check_names(const hr_file *file);
/* Sets entry->bytes from dtype and dims; DATA_LOSS if they are too many. */
HR_MUST_USE hr_status hr__file_measure(hr_file_entry *entry);
bool hr__is_utf8(const char *text, size_t length);

/* The readers. The npy one reads an array that stands at [begin, end) of the bytes. */
HR_MUST_USE hr_status hr__npy_read(const char *bytes, uint64_t begin, uint64_t end, hr_file_entry *out_entry);
HR_MUST_USE hr_status hr__safetensors_read(hr_file *file);

/* The headers of files to be written. */
HR_MUST_USE hr_status hr__npy_header(const hr_tensor *x, hr_text *out_text);
/* `order`: the order in which the arrays follow. */
HR_MUST_USE hr_status hr__safetensors_header(int count, const char *const *names, const hr_tensor *const *arrays,
                                             int text_count, const hr_file_text *texts, int *out_order,
                                             hr_text *out_text);

#endif
