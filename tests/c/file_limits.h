/* file_limits.h: bounds on one file of a fuzzing test: a second of CPU time, and 64 MiB and twice the file of memory.
 * A file that exceeds one ends the process with its number.
 *
 *   file_limits_begin();
 *   for (int64_t i = 0; i < count; ++i) {
 *     file_limits_start(i);
 *     read(bytes, size);
 *     file_limits_check(size);
 *   }
 *   file_limits_end();
 *
 * Memory is the process's resident pages at their most, less those at the begin, so that leaks count, too. Sanitizers
 * keep freed blocks, so that they bound the time alone.
 */
#ifndef HEADRACE_TESTS_FILE_LIMITS_H_
#define HEADRACE_TESTS_FILE_LIMITS_H_

#include <stddef.h>
#include <stdint.h>

void file_limits_begin(void);
/* The next file's number, which is its seed. */
void file_limits_start(int64_t number);
void file_limits_check(size_t bytes);
void file_limits_end(void);

#endif
