/* The log calls `write` on a buffer on the stack: it allocates nothing, and lines of several threads don't mix. Text
 * that does not fit (sources, programs) goes through `vdprintf` under the same lock. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/hash.h"
#include "base/text.h"

enum { ONCE_MAX = 32 };

/* The log's state in a context, except its level. */
typedef struct log_state {
  pthread_mutex_t mutex;
  int file;
  uint64_t once[ONCE_MAX]; /* hashes of warnings that are printed once */
  int once_count;
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

static void begin_fork(void *part) {
  pthread_mutex_lock(&((log_state *)part)->mutex);
}

static void end_fork(void *part, bool is_child) {
  (void)is_child;
  pthread_mutex_unlock(&((log_state *)part)->mutex);
}

static log_state *own(void) {
  static const hr_context_part kind = {
      .bytes = sizeof(log_state), .init = init_log, .fini = fini_log, .begin_fork = begin_fork, .end_fork = end_fork};
  return hr__context_part(hr__context(), HR_CONTEXT_LOG, &kind);
}

/* Opens HEADRACE_LOG. If that fails, the log stays on standard error. */
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
  /* Called before locking, because reading the environment may print a warning. */
  int level = (int)hr_env_int(HR_ENV_DEBUG);
  log_state *log = own();
  pthread_mutex_lock(&log->mutex);
  open_file(log);
  log->once_count = 0;
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
  int length = hr_text_format(line + start, sizeof line - start - 1, format, args);
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

/* True at the first call for a line; false later, or if the table of lines is full. */
static bool is_first(const char *line) {
  uint64_t hash = hr_hash_bytes(HR_HASH_SEED, line, strlen(line));
  log_state *log = own();
  pthread_mutex_lock(&log->mutex);
  bool found = log->once_count == ONCE_MAX;
  for (int i = 0; i < log->once_count && !found; ++i) {
    found = log->once[i] == hash;
  }
  if (!found) {
    log->once[log->once_count++] = hash;
  }
  pthread_mutex_unlock(&log->mutex);
  return !found;
}

void hr_log_once(const char *format, ...) {
  char line[1024];
  va_list args;
  va_start(args, format);
  hr_text_format(line, sizeof line, format, args);
  va_end(args);
  if (hr_log_is_on(HR_LOG_WARNING) && is_first(line)) {
    hr_log(HR_LOG_WARNING, "%s", line);
  }
}
