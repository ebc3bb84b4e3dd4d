/* progress.c: see progress.h. */
#include "progress.h"

#include <stdio.h>
#include <unistd.h>

enum { BAR_CELLS = 20 };

void show_progress(const char *what, double share) {
  if (isatty(STDERR_FILENO)) {
    int cells = share < 1 ? (int)(share * BAR_CELLS) : BAR_CELLS;
    fprintf(stderr, "\r  %s [%.*s%*s]", what, cells, "####################", BAR_CELLS - cells, "");
  }
}

void clear_progress(void) {
  if (isatty(STDERR_FILENO)) {
    fprintf(stderr, "\r\033[K");
  }
}
