/* version.h: the version of Headrace that a program is compiled with, and the one that it runs with.
 *
 * The numbers below are the only ones: CMake and the Python package read them here. Before 1.0 a minor version may
 * change the interface; the library's SOVERSION changes with it.
 */
#ifndef HEADRACE_VERSION_H_
#define HEADRACE_VERSION_H_

#include "headrace/status.h"

HR_EXTERN_C_BEGIN

#define HR_VERSION_MAJOR 0
#define HR_VERSION_MINOR 1
#define HR_VERSION_PATCH 0

/* A version as one number, for comparisons: 0.1.0 is 100. */
#define HR_VERSION_NUMBER(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
/* The version of these headers. */
#define HR_VERSION HR_VERSION_NUMBER(HR_VERSION_MAJOR, HR_VERSION_MINOR, HR_VERSION_PATCH)

/* The version of the library that runs, as text: "0.1.0". */
HR_API const char *hr_version(void);
/* The same as a number, to be compared with HR_VERSION_NUMBER or HR_VERSION. */
HR_API int hr_version_number(void);

HR_EXTERN_C_END

#endif /* HEADRACE_VERSION_H_ */
