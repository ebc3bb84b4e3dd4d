/* process.h: another program, run to its end: the system's compiler. */
#ifndef HEADRACE_BASE_PROCESS_H_
#define HEADRACE_BASE_PROCESS_H_

#include <stdatomic.h>
#include <stdint.h>

#include "headrace/status.h"

/* Runs arguments[0] (looked up in PATH where it has no slash; the list ends with NULL) with nothing to read and its
 * output in the file `output_path`, without a shell, and waits. Its environment is this process's with `environment`
 * ("NAME=value", ended by NULL; or NULL) in front. NOT_FOUND when it can't be started, DEADLINE_EXCEEDED when it was
 * killed after `limit_ns`, with all that it had started, CANCELLED when that was because `cancel` (or NULL) became
 * true, INTERNAL when it ends with anything but 0. */
HR_MUST_USE hr_status hr_process_run(const char *const *arguments, const char *const *environment,
                                     const char *output_path, int64_t limit_ns, const atomic_bool *cancel);

#endif /* HEADRACE_BASE_PROCESS_H_ */
