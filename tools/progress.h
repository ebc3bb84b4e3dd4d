/* progress.h: a bar on a terminal's standard error, of the share of long work that is done. */
#ifndef HEADRACE_TOOLS_PROGRESS_H_
#define HEADRACE_TOOLS_PROGRESS_H_

/* Draws or redraws it. Nothing if standard error is no terminal. */
void show_progress(const char *what, double share);
void clear_progress(void);

#endif
