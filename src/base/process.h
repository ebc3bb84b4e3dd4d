/* process.h: runs another program to its end, such as the system's compiler. */
#ifndef HEADRACE_BASE_PROCESS_H_
#define HEADRACE_BASE_PROCESS_H_

#include <stdatomic.h>
#include <stdint.h>

#include "headrace/status.h"

/* Runs a program without a shell and waits for it. arguments[0] is searched in PATH if it has no slash; the list ends
 * with NULL. Its input is empty and its output goes to the file `output_path`. Its environment is this process's,
 * overridden by `environment` ("NAME=value", ended by NULL; may be NULL). NOT_FOUND if it can't be started,
 * DEADLINE_EXCEEDED if it and its children were killed after `limit_ns`, CANCELLED if they were killed because `cancel`
 * (may be NULL) became true, INTERNAL if its exit status is not 0. */
HR_MUST_USE hr_status hr_process_run(const char *const *arguments, const char *const *environment,
                                     const char *output_path, int64_t limit_ns, const atomic_bool *cancel);

#endif /* HEADRACE_BASE_PROCESS_H_ */
