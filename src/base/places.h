/* places.h: finds the packages that belong to this library, without Python.
 *
 * Wheels install libraries in folders that no loader searches: beside this library, in the site-packages of the Python
 * that loaded it, and below that Python's prefix. The roots of a search, in order, without duplicates:
 *
 *   the folder of this library (or of the program that it is linked into), and its prefix
 *   each site-packages from which a library is loaded in this process (torch's, this one's), and its prefix
 *   site-packages below the prefixes found so far, and below those of the program's name (a virtual
 *   environment's interpreter), VIRTUAL_ENV and CONDA_PREFIX
 *
 * Threads: any.
 */
#ifndef HEADRACE_BASE_PLACES_H_
#define HEADRACE_BASE_PLACES_H_

#include "base/dynlib.h"
#include "base/env.h"
#include "base/text.h"

/* Appends the roots, separated by colons. */
void hr_places_list(hr_text *out_roots);

/* Appends the path of the first file or folder that matches one of `patterns` (NULL-terminated; shell patterns below a
 * root), or with `all` every one of them, separated by colons. True if there is one. Earlier patterns win. */
bool hr_places_find(const char *const *patterns, bool all, hr_text *out_paths);

/* A library that is opened at run time: the variable that may name its file, patterns below the roots, and names for
 * the loader. */
typedef struct hr_place {
  hr_env_id given;
  const char *patterns[4], *names[4];
} hr_place;

extern const hr_place hr_place_onednn, hr_place_lapack;

/* Opens the first that exists of: the file that the variable names, a match of a pattern, a name that the loader finds.
 * Appends the path opened to `out_path` (may be NULL). NOT_FOUND with the loader's message. */
HR_MUST_USE hr_status hr_places_open(const hr_place *place, hr_text *out_path, hr_dynlib *out_library);

/* Opens one of CUDA's libraries: the first of `names` that is in the folders of HEADRACE_CUDA_LIBS, else in NVIDIA's
 * wheels, else where the loader finds it. */
HR_MUST_USE hr_status hr_places_open_cuda(const char *const *names, hr_dynlib *out_library);

#endif /* HEADRACE_BASE_PLACES_H_ */
