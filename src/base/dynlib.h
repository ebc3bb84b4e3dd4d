/* Dynamic libraries: vendor code is searched for at run time, so one binary runs with and without it. */
#ifndef HEADRACE_BASE_DYNLIB_H_
#define HEADRACE_BASE_DYNLIB_H_

#include <stddef.h>

#include "headrace/status.h"

/* An open library. Zeroed: none. */
typedef struct hr_dynlib {
  void *handle;
} hr_dynlib;

/* Opens `path` (or a soname, which the loader searches) with all symbols resolved and private to this handle. NOT_FOUND
 * with the loader's message on failure. */
HR_MUST_USE hr_status hr_dynlib_open(const char *path, hr_dynlib *out_library);

/* Opens the library behind a descriptor. The caller owns the descriptor and may close it afterwards. The bytes read
 * through it are the bytes loaded, even if the file's name changes. If the file can't be mapped for execution (a noexec
 * mount), a copy in memory is used. */
HR_MUST_USE hr_status hr_dynlib_open_file(int file, hr_dynlib *out_library);

/* Opens the first of `names` (NULL-terminated file names) that is in one of `folders` (separated by colons; "" for
 * none), else the first one that the loader finds. Fails with the first error met: NOT_FOUND, with the loader's
 * message. */
HR_MUST_USE hr_status hr_dynlib_find(const char *folders, const char *const *names, hr_dynlib *out_library);

/* The address of `name`, or NOT_FOUND. */
HR_MUST_USE hr_status hr_dynlib_symbol(const hr_dynlib *library, const char *name, void **out_address);

/* The addresses of `count` names, in order. NOT_FOUND names the first missing one; `out_addresses` is then unspecified.
 */
HR_MUST_USE hr_status hr_dynlib_symbols(const hr_dynlib *library, size_t count, const char *const *names,
                                        void **out_addresses);

/* Unmaps the pages of the code of the library that has this address. The kernel maps those that are used again, from
 * the file. For libraries whose initialisers touch much more than is called later. */
void hr_dynlib_trim(const void *address);

/* Closes the library and invalidates its addresses. NULL and a zeroed library are fine. */
void hr_dynlib_close(hr_dynlib *library);

#endif /* HEADRACE_BASE_DYNLIB_H_ */
