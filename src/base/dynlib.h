/* Dynamic libraries: vendor code that is looked for at run time, so that one binary runs with and without it. */
#ifndef HEADRACE_BASE_DYNLIB_H_
#define HEADRACE_BASE_DYNLIB_H_

#include <stddef.h>

#include "headrace/status.h"

/* An open library. Zeroed: none. */
typedef struct hr_dynlib {
  void *handle;
} hr_dynlib;

/* Opens `path` (or a soname, which the loader searches) with all symbols resolved and private to this handle.
 * NOT_FOUND with the loader's words when it can't. */
HR_MUST_USE hr_status hr_dynlib_open(const char *path, hr_dynlib *out_library);

/* Opens the library behind a descriptor, which is the caller's and can be closed afterwards: what was read through it
 * is what is loaded, whatever happens to the name of the file. If the file can't be mapped for execution (a mount with
 * noexec), a copy in memory is. */
HR_MUST_USE hr_status hr_dynlib_open_file(int file, hr_dynlib *out_library);

/* Opens the first of `names` (NULL-terminated file names) that lies in one of `folders` (separated by colons; "" for
 * none), else the first one that the loader finds by itself. The error is the first one met: NOT_FOUND, with the
 * loader's words. */
HR_MUST_USE hr_status hr_dynlib_find(const char *folders, const char *const *names, hr_dynlib *out_library);

/* The address of `name`, or NOT_FOUND. */
HR_MUST_USE hr_status hr_dynlib_symbol(const hr_dynlib *library, const char *name, void **out_address);

/* The addresses of `count` names, in order; NOT_FOUND names the first one that is missing, and then `out_addresses`
 * is unspecified. */
HR_MUST_USE hr_status hr_dynlib_symbols(const hr_dynlib *library, size_t count, const char *const *names,
                                        void **out_addresses);

/* Closes the library; its addresses end. NULL and a zeroed library are fine. */
void hr_dynlib_close(hr_dynlib *library);

#endif /* HEADRACE_BASE_DYNLIB_H_ */
