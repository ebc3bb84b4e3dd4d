/* commands.h: the commands of `headrace`. They receive the arguments after the command's name and return the exit
 * status. */
#ifndef HEADRACE_TOOLS_COMMANDS_H_
#define HEADRACE_TOOLS_COMMANDS_H_

#include <stdbool.h>

#include "headrace/status.h"

int headrace_run(int argc, char **argv);
int headrace_convert(int argc, char **argv);
int headrace_inspect(int argc, char **argv);
int headrace_bench(int argc, char **argv);
int headrace_explain(int argc, char **argv);
int headrace_devices(int argc, char **argv);
int headrace_ops(int argc, char **argv);
int headrace_env(int argc, char **argv);
int headrace_doctor(int argc, char **argv);

/* Prints a failure and consumes it; returns 1, or 0 for OK. */
int headrace_fail(hr_status status);

/* Print what is wrong with the arguments of the command `name`, and where its help is; return the exit status, 2.
 * `expected` says what is missing, as "a file". */
int headrace_bad_argument(const char *name, const char *argument);
int headrace_missing(const char *name, const char *expected);

#endif
