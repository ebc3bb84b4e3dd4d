/* version.c: see headrace/version.h. */
#include "headrace/version.h"

#define HR__TEXT(number) #number
#define HR__VERSION_TEXT(major, minor, patch) HR__TEXT(major) "." HR__TEXT(minor) "." HR__TEXT(patch)

const char *hr_version(void) {
  return HR__VERSION_TEXT(HR_VERSION_MAJOR, HR_VERSION_MINOR, HR_VERSION_PATCH);
}

int hr_version_number(void) {
  return HR_VERSION;
}
