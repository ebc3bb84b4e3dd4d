/* vendor.h: a vendor's library, which the process opens once, at the first call that needs it.
 *
 * The result is stored in a part of the default context (context.h), because a library's own state belongs to the
 * process too.
 */
#ifndef HEADRACE_BASE_VENDOR_H_
#define HEADRACE_BASE_VENDOR_H_

#include <stdbool.h>

#include "base/thread.h"

/* The head of such a part. */
typedef struct hr_vendor {
  hr_mutex mutex;
  bool was_opened;
  hr_status_code code; /* of the first attempt, with its message */
  char reason[600];
} hr_vendor;

void hr__vendor_init(hr_vendor *vendor);
/* Calls `open` for the first time; every later call gives the first one's result. */
HR_MUST_USE hr_status hr__vendor_open(hr_vendor *vendor, hr_status (*open)(void));
/* As if it had been opened, or, with false, never: for tests. */
void hr__vendor_set(hr_vendor *vendor, bool is_open);

#endif /* HEADRACE_BASE_VENDOR_H_ */
