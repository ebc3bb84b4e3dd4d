/* The log writes with `write` from a buffer on the stack: no allocation, and lines of several threads don't mix.
 * Text that does not fit (sources, programs) goes through `vdprintf` under the same lock. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"

atomic_int hr__log_level = INT_MAX;

static pthread_mutex_t log_mutex = PTHREAD_MUTEX_INITIALIZER;
static int log_file = STDERR_FILENO;

/* Opens HEADRACE_LOG; what can't be opened leaves the log on standard error. */
static void open_file(void) {
  const char *path = hr_env_text(HR_ENV_LOG);
  if (log_file != STDERR_FILENO) {
    close(log_file);
    log_file = STDERR_FILENO;
  }
  if (path[0] == '\0') {
    return;
  }
  int opened = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (opened < 0) {
    dprintf(STDERR_FILENO, "headrace: HEADRACE_LOG: can't open \"%s\": %s\n", path, strerror(errno));
    return;
  }
  log_file = opened;
}

void hr__log_reload(void) {
  /* Before the lock: reading the environment may print a warning. */
  int level = (int)hr_env_int(HR_ENV_DEBUG);
  pthread_mutex_lock(&log_mutex);
  open_file();
  atomic_store(&hr__log_level, level);
  pthread_mutex_unlock(&log_mutex);
}

bool hr__log_is_on(int level) {
  if (atomic_load(&hr__log_level) == INT_MAX) {
    hr__log_reload();
  }
  return level <= atomic_load(&hr__log_level);
}

static void write_all(const char *bytes, size_t count) {
  while (count > 0) {
    ssize_t written = write(log_file, bytes, count);
    if (written < 0 && errno != EINTR) {
      return;
    }
    if (written > 0) {
      bytes += written;
      count -= (size_t)written;
    }
  }
}

void hr__log_write(int level, const char *format, ...) {
  char line[1024];
  const char *prefix = level == HR_LOG_WARNING ? "headrace: warning: " : "headrace: ";
  size_t start = strlen(prefix);
  memcpy(line, prefix, start);
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int length = vsnprintf(line + start, sizeof line - start - 1, format, args);
  pthread_mutex_lock(&log_mutex);
  if (length >= 0 && (size_t)length < sizeof line - start - 1) {
    line[start + (size_t)length] = '\n';
    write_all(line, start + (size_t)length + 1);
  } else if (length >= 0) {
    write_all(prefix, start);
    vdprintf(log_file, format, again);
    write_all("\n", 1);
  }
  pthread_mutex_unlock(&log_mutex);
  va_end(again);
  va_end(args);
}
