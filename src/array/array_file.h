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

typedef struct hr_file_entry hr_file_entry;

/* An array of a file. */
struct hr_file_entry {
  char *name; /* owned */
  hr_dtype dtype;
  int rank;
  int64_t dims[HR_RANK_MAX];
  uint64_t bytes;         /* of its elements */
  uint64_t begin, packed; /* the bytes of the file that stand for `whole` ones: the elements follow `head` of these */
  uint64_t head, whole;
  bool is_fortran; /* column-major */
  bool is_swapped; /* big-endian */
  /* Writes the whole bytes; NULL: the file has them. */
  hr_status (*decode)(const hr_file *file, const hr_file_entry *entry, char *out_bytes);
  bool has_checksum;
  uint32_t checksum; /* of the whole bytes */
  unsigned type;     /* of a gguf tensor */
  int part;          /* of a quantised one, whose parts have the same bytes in the file */
};

struct hr_file {
  hr_refcount references; /* the caller's, and one for each array on the mapping */
  const char *bytes;
  size_t size;
  bool is_mapped;
  char *name;
  hr_file_format format;
  int count, room;
  hr_file_entry *entries;
  int value_count, value_room;
  hr_file_value *values; /* each with one block for the key, and one for strings or numbers */
};

/* Text that is read once, from `at` to `end`. The second function passes the next character that is no space, if it is
 * this one. */
typedef struct hr__cursor {
  const char *at, *end;
} hr__cursor;

void hr__cursor_skip_space(hr__cursor *c);
bool hr__cursor_next_is(hr__cursor *c, char character);

/* A failure of memory. */
hr_status hr__file_no_memory(size_t bytes);

/* Adds an entry, whose name is copied. */
HR_MUST_USE hr_status hr__file_add(hr_file *file, const char *name, const hr_file_entry *entry);
/* Adds a value with room for `count` strings, whose characters and terminating zeros need `bytes`, or so many bytes of
 * numbers. The caller fills them. */
HR_MUST_USE hr_status hr__file_add_value(hr_file *file, const char *key, hr_file_value_kind kind, int64_t count,
                                         size_t bytes, hr_file_value **out_value);
HR_MUST_USE hr_status hr__file_add_string(hr_file *file, const char *key, const char *chars, size_t length);
/* Sorts the names, and gives one that is there twice, or NULL. */
const char *hr__file_repeated_name(int count, const char **names);
/* Checks that no two entries and no two values have the same name. */
HR_MUST_USE hr_status hr__file_check_names(const hr_file *file);
/* The entries by their place in the file, as an array that the caller frees with hr_free. */
HR_MUST_USE hr_status hr__file_sort(const hr_file *file, const hr_file_entry ***out_entries);
/* Checks that no byte of the file belongs to two entries. */
HR_MUST_USE hr_status hr__file_check_overlap(const hr_file *file);
/* Checks whole bytes against the checksum, if the entry has one. */
HR_MUST_USE hr_status hr__file_check_bytes(const hr_file_entry *entry, const char *bytes);
/* Sets bytes, packed and whole from dtype and dims; DATA_LOSS if they are too many. */
HR_MUST_USE hr_status hr__file_measure(hr_file_entry *entry);
bool hr__is_utf8(const char *text, size_t length);

/* The readers. The npy one reads an array that stands at [begin, end) of the bytes. */
HR_MUST_USE hr_status hr__npy_read(const char *bytes, uint64_t begin, uint64_t end, hr_file_entry *out_entry);
HR_MUST_USE hr_status hr__safetensors_read(hr_file *file);
HR_MUST_USE hr_status hr__npz_read(hr_file *file);
HR_MUST_USE hr_status hr__gguf_read(hr_file *file);
/* The bytes of an npy file up to its elements, by the first HR__NPY_HEAD of them; 0 if they are none of an npy file. */
enum { HR__NPY_HEAD = 12 };
size_t hr__npy_header_size(const char *head);

/* ---- for the writers ---- */

typedef struct hr__writer {
  hr_stream *stream;
  const hr_file_contents *contents;
  hr_status (*write)(void *arg, const void *bytes, size_t count);
  void *arg;
  uint64_t at; /* bytes written */
} hr__writer;

HR_MUST_USE hr_status hr__write(hr__writer *to, const void *bytes, size_t count);
HR_MUST_USE hr_status hr__write_text(hr__writer *to, const hr_text *text);
/* Waits for an array and copies its elements to a new block, which the caller frees with hr_free. */
HR_MUST_USE hr_status hr__writer_read(hr__writer *to, const hr_tensor *x, size_t *out_bytes, char **out_elements);
HR_MUST_USE hr_status hr__write_array(hr__writer *to, const hr_tensor *x);
HR_MUST_USE hr_status hr__npz_write(hr__writer *to);
HR_MUST_USE hr_status hr__gguf_write(hr__writer *to);

/* The headers of files to be written. */
HR_MUST_USE hr_status hr__npy_header(const hr_tensor *x, hr_text *out_text);
/* `order`: the order in which the arrays follow. */
HR_MUST_USE hr_status hr__safetensors_header(const hr_file_contents *contents, int *out_order, hr_text *out_text);

#endif
