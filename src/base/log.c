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

/* A context's, beside its level. */
typedef struct log_state {
  pthread_mutex_t mutex;
  int file;
} log_state;

static void init_log(void *part) {
  log_state *log = part;
  pthread_mutex_init(&log->mutex, NULL);
  log->file = STDERR_FILENO;
}

static void close_file(log_state *log) {
  if (log->file != STDERR_FILENO) {
    close(log->file);
    log->file = STDERR_FILENO;
  }
}

static void fini_log(void *part) {
  log_state *log = part;
  close_file(log);
  pthread_mutex_destroy(&log->mutex);
}

static log_state *own(void) {
  static const hr_context_part kind = {.bytes = sizeof(log_state), .init = init_log, .fini = fini_log};
  return hr__context_part(hr__context(), HR_CONTEXT_LOG, &kind);
}

/* Opens HEADRACE_LOG; what can't be opened leaves the log on standard error. */
static void open_file(log_state *log) {
  const char *path = hr_env_text(HR_ENV_LOG);
  close_file(log);
  if (path[0] == '\0') {
    return;
  }
  int opened = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (opened < 0) {
    dprintf(STDERR_FILENO, "headrace: HEADRACE_LOG: can't open \"%s\": %s\n", path, strerror(errno));
    return;
  }
  log->file = opened;
}

void hr__log_reload(void) {
  /* Before the lock: reading the environment may print a warning. */
  int level = (int)hr_env_int(HR_ENV_DEBUG);
  log_state *log = own();
  pthread_mutex_lock(&log->mutex);
  open_file(log);
  atomic_store(&hr__context()->log_level, level);
  pthread_mutex_unlock(&log->mutex);
}

bool hr__log_is_on(int level) {
  if (atomic_load(&hr__context()->log_level) == INT_MAX) {
    hr__log_reload();
  }
  return level <= atomic_load(&hr__context()->log_level);
}

static void write_all(int file, const char *bytes, size_t count) {
  while (count > 0) {
    ssize_t written = write(file, bytes, count);
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
  log_state *log = own();
  pthread_mutex_lock(&log->mutex);
  if (length >= 0 && (size_t)length < sizeof line - start - 1) {
    line[start + (size_t)length] = '\n';
    write_all(log->file, line, start + (size_t)length + 1);
  } else if (length >= 0) {
    write_all(log->file, prefix, start);
    vdprintf(log->file, format, again);
    write_all(log->file, "\n", 1);
  }
  pthread_mutex_unlock(&log->mutex);
  va_end(again);
  va_end(args);
}
