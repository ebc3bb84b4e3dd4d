/* dump.h: writes programs as files that `headrace run` replays. */
#ifndef HEADRACE_ENGINE_DUMP_H_
#define HEADRACE_ENGINE_DUMP_H_

#include "core/ir/program.h"
#include "engine/trace.h"

/* Writes a recorded program to HEADRACE_DUMP/<hash>.hr: its text, and before it, as comments, the device and the run's
 * scalars:
 *   ; device cpu
 *   ; argument 0 f64 0.001
 * Does nothing if the variable is empty. A file that can't be written is a warning. */
void hr__dump_program(const hr_program *program, uint64_t hash, const char *device, const hr_scalar *arguments);
/* Adds the places of the operations that have names to the file of a program, behind it:
 *   ; place 7 jit(f)/add f.py:3 */
void hr__dump_places(uint64_t hash, size_t count, const hr_operation_mark *marks);
/* True if HEADRACE_DUMP is set. */
bool hr__dump_is_on(void);
/* Prints a program to the log at HR_LOG_PROGRAM. */
void hr__dump_log(const hr_program *program);

#endif
