/* package.h: packages in the commands: their graph, described and run. */
#ifndef HEADRACE_TOOLS_PACKAGE_H_
#define HEADRACE_TOOLS_PACKAGE_H_

#include <stdbool.h>

/* True if the file is a package, by its first bytes. */
bool is_package(const char *path);
/* `headrace run` of a package. */
int run_package(int argc, char **argv);

#endif
