/* disk_file.h: files as a whole: mapped to be read, and replaced by new ones.
 *
 * Messages have no path: callers put it in front. Threads: any; a replacement belongs to one.
 */
#ifndef HEADRACE_BASE_DISK_FILE_H_
#define HEADRACE_BASE_DISK_FILE_H_

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "headrace/status.h"

/* A failure of a call of the system, by errno. */
hr_status hr__disk_failure(const char *what);

/* Maps a regular file that is not empty, for this process alone: what it writes stays there. DATA_LOSS if it is empty,
 * UNAVAILABLE if it is no regular file. */
HR_MUST_USE hr_status hr__disk_map(const char *path, void **out_bytes, size_t *out_size);
/* Maps a file in the folder of another file, or below it. location: names with "/" between them. INVALID_ARGUMENT if a
 * name is "..", "." or empty; a name that is a link is not followed, and fails. */
HR_MUST_USE hr_status hr__disk_map_beside(const char *path, const char *location, void **out_bytes, size_t *out_size);
/* hr__disk_map, and true if nobody but this user and the system's may write the file. */
HR_MUST_USE hr_status hr__disk_map_owned(const char *path, void **out_bytes, size_t *out_size, bool *out_is_private);
void hr__disk_unmap(void *bytes, size_t size);
/* Copies the first `size` bytes of a file, or all if it is shorter, and returns their number; 0: it can't be read. */
size_t hr__disk_head(const char *path, void *out_bytes, size_t size);

/* A new file beside a target, which it replaces at the end. */
typedef struct hr__replacement {
  int descriptor; /* -1: none */
  char *target;   /* of malloc: a link stays, and its target is replaced */
  hr_text temporary;
} hr__replacement;

/* Creates the new file, with the mode that the target has or would get. Call hr__replacement_end in any case. */
HR_MUST_USE hr_status hr__replacement_begin(const char *path, hr__replacement *out);
/* Appends bytes; `replacement` is an hr__replacement. */
HR_MUST_USE hr_status hr__replacement_write(void *replacement, const void *bytes, size_t count);
/* Renames the file if the status is OK, else removes it. Returns the status, or the failure to do so. */
HR_MUST_USE hr_status hr__replacement_end(hr__replacement *replacement, hr_status status);

#endif
