/* package.h: graphs in files (.hrpkg).
 *
 * A package is one file with a graph as text, and its constants at multiples of 64 bytes. Opening it maps the file and
 * checks the header, the table, the index of the constants and the text; constants stay in the mapping, which lives as
 * long as the graphs that use it. hr_package_verify checks the constants, too. docs/graphs.md has the format.
 *
 * Files of unknown origin are safe to open: nothing of a file is executed, unless the user trusts it
 * (hr_package_trust), and all places and sizes are checked against
 * the file before they are used. Damaged files fail with DATA_LOSS, and a message that names the file, the field and
 * its value. Files of a later version are UNIMPLEMENTED.
 *
 * A package is replaced by renaming another file. A program that shortens it in place ends the processes that have
 * mapped it with SIGBUS, as with every mapping.
 *
 * Threads: a package belongs to one thread at a time; its graphs don't.
 */
#ifndef HEADRACE_PACKAGE_H_
#define HEADRACE_PACKAGE_H_

#include "headrace/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_package hr_package;

enum { HR_PACKAGE_VERSION = 1 };

/* A line about the package: UTF-8 without line ends; the key is not empty and has no "=". */
typedef struct hr_package_note {
  const char *key, *value;
} hr_package_note;

/* Writes a graph, and notes about it, as a package: beside the target under another name, and renamed at the end, so
 * that a failure leaves the target as it was. INVALID_ARGUMENT: a note is wrong, or the target exists and is no regular
 * file. */
HR_API HR_MUST_USE hr_status hr_package_write(const hr_graph *graph, const char *path, int note_count,
                                              const hr_package_note *notes);

/* Zeroed: the defaults. */
typedef struct hr_package_options {
  int note_count;
  const hr_package_note *notes;
  bool has_kernels;         /* with files of the user's cache of kernels (kernel_cache.h): see hr_package_trust */
  int64_t kernels_since_ns; /* those that were used since this time of the system's clock; 0: all */
  int text_version_max;     /* INVALID_ARGUMENT if the text of the graph needs a later version; 0: any */
  void (*progress)(void *arg, int64_t done, int64_t all); /* NULL, or told how many bytes are hashed and written */
  void *progress_arg;
} hr_package_options;
HR_API HR_MUST_USE hr_status hr_package_write_with(const hr_graph *graph, const char *path,
                                                   const hr_package_options *options);

/* Opens a package; the caller owns it. NOT_FOUND, PERMISSION_DENIED or UNAVAILABLE if the system can't open or map the
 * file. */
HR_API HR_MUST_USE hr_status hr_package_open(const char *path, hr_package **out_package);
/* The same for bytes in memory, which are copied; `name` stands for the path in messages. */
HR_API HR_MUST_USE hr_status hr_package_open_bytes(const char *name, const void *bytes, size_t size,
                                                   hr_package **out_package);
/* Closes a package; NULL is fine. Its graphs stay valid. */
HR_API void hr_package_close(hr_package *package);

/* Reads the graph. The caller owns one reference. Its constants are in the package's memory. */
HR_API HR_MUST_USE hr_status hr_package_graph(hr_package *package, hr_graph **out_graph);
/* Compares all constants with their hashes. */
HR_API HR_MUST_USE hr_status hr_package_verify(const hr_package *package);

/* Adds the kernels and tuning results of a package to the user's cache, so that the first runs use them; sets their
 * number. They are native code: this runs what the file's author wrote. Nothing else reads them. PERMISSION_DENIED if
 * others could write the file when it was opened, DATA_LOSS if they are damaged; FAILED_PRECONDITION if there is no
 * cache. */
HR_API HR_MUST_USE hr_status hr_package_trust(hr_package *package, int *out_count);
/* The bytes of the kernels and tuning results; 0: there are none. */
HR_API int64_t hr_package_kernel_bytes(const hr_package *package);

/* The number of notes, and one of them, which lives as long as the package. */
HR_API int hr_package_note_count(const hr_package *package);
HR_API hr_package_note hr_package_note_at(const hr_package *package, int index);
/* The bytes of the file, and of its text. */
HR_API int64_t hr_package_bytes(const hr_package *package);
HR_API int64_t hr_package_text_bytes(const hr_package *package);
/* True if the bytes are those of a package's first 8. */
HR_API bool hr_package_is_one(const void *bytes, size_t size);
/* The same for the first bytes of a file; false if it can't be read. */
HR_API bool hr_package_is_file(const char *path);

#ifdef __cplusplus
}
#endif

#endif
