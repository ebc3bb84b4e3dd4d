/* Log: one level, HEADRACE_DEBUG.
 *
 *   0  warnings about the configuration, always on
 *   1  devices          2  each kernel with time and bandwidth    3  the schedule    4  kernel forms
 *   5  IR after each pass    6  verify each pass
 *
 * A line goes to standard error, or to the file that HEADRACE_LOG names, in one write. A disabled call costs one load.
 * The level belongs to the current context. Bad input from a user, a model file or a framework is reported by a status,
 * never here. Threads: safe from any.
 */
#ifndef HEADRACE_BASE_LOG_H_
#define HEADRACE_BASE_LOG_H_

#include <stdatomic.h>
#include <stdbool.h>

#include "base/context.h"
#include "headrace/status.h"

enum {
  HR_LOG_WARNING = 0,
  HR_LOG_DEVICE = 1,
  HR_LOG_KERNEL = 2,
  HR_LOG_SCHEDULE = 3,
  HR_LOG_SOURCE = 4,
  HR_LOG_PROGRAM = 5,
  HR_LOG_VERIFY = 6
};

void hr__log_write(int level, const char *format, ...) HR_PRINTF(2, 3);
bool hr__log_is_on(int level);

/* True if `hr_log(level, ...)` prints. Use it to skip preparing the text. */
#define hr_log_is_on(level)                                                                                 \
  (__builtin_expect((level) <= atomic_load_explicit(&hr__context()->log_level, memory_order_relaxed), 0) && \
   hr__log_is_on(level))

/* Prints one line (no newline in the format). */
#define hr_log(level, ...)                 \
  do {                                     \
    if (hr_log_is_on(level)) {             \
      hr__log_write((level), __VA_ARGS__); \
    }                                      \
  } while (0)

/* Prints a warning once for each process and text, for conditions that recur. */
void hr_log_once(const char *format, ...) HR_PRINTF(1, 2);

/* Reads the level and the file from the environment again, and forgets the printed warnings. For tests; no other thread
 * may log meanwhile. */
void hr__log_reload(void);

#endif /* HEADRACE_BASE_LOG_H_ */
