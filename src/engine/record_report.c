#include "engine/record_report.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/log.h"
#include "base/thread.h"
#include "engine/machine.h"
#include "engine/records.h"

/* A context's. */
typedef struct report {
  hr_mutex mutex; /* guards the fields up to `is_done` */
  bool has_begun, is_done, has_trace;
  hr_profile *profile; /* NULL: none is requested */
  unsigned tables;
  int pid;
  /* of SIGINT */
  hr_thread thread;
  int read_end, write_end; /* of a pipe from the handler to the thread; -1: not open */
  struct sigaction before;
} report;

static void init_report(void *part) {
  report *r = part;
  hr_mutex_init(&r->mutex);
  r->read_end = r->write_end = -1;
}

/* ---- writing ---- */

static void print(void *arg, const char *text) {
  (void)arg;
  for (size_t left = strlen(text); left > 0;) {
    ssize_t written = write(STDERR_FILENO, text, left);
    if (written < 0 && errno != EINTR) {
      return;
    }
    left -= written > 0 ? (size_t)written : 0;
    text += written > 0 ? written : 0;
  }
}

static void warn(hr_status status) {
  if (status != HR_OK) {
    hr_log(HR_LOG_WARNING, "%s", hr_status_message(status));
    hr_status_free(status);
  }
}

/* Once; false if it has been written before, or nothing is requested. */
static bool write_report(report *r, bool waits) {
  hr_mutex_lock(&r->mutex);
  bool is_due = r->profile != NULL && !r->is_done && r->pid == (int)getpid();
  r->is_done |= is_due;
  if (is_due) {
    if (waits) {
      hr__records_drain_devices();
    }
    hr_status_ignore(hr_profile_stop(r->profile));
    if (r->has_trace) {
      warn(hr_profile_write_trace(r->profile, hr_env_text(HR_ENV_TRACE)));
    }
    if (r->tables != 0) {
      warn(hr_profile_tables(r->profile, r->tables, print, NULL));
    }
  }
  hr_mutex_unlock(&r->mutex);
  return is_due;
}

/* ---- SIGINT ---- */

/* Of the default context: a handler has no argument. May only call what is safe in a handler. */
static void on_interrupt(int number) {
  int error = errno;
  const report *r = atomic_load(&hr__context_first.parts[HR_CONTEXT_REPORT]);
  bool is_sent = r != NULL && r->pid == (int)getpid() && write(r->write_end, "", 1) == 1;
  if (!is_sent) { /* a forked child has no thread that waits */
    (void)signal(number, SIG_DFL);
    (void)raise(number);
  }
  errno = error;
}

/* Waits for the signal, or for the other end of the pipe to be closed. */
static void wait_for_interrupt(void *arg) {
  report *r = arg;
  char byte;
  ssize_t count;
  do {
    count = read(r->read_end, &byte, 1);
  } while (count < 0 && errno == EINTR);
  if (count == 1) {
    (void)write_report(r, false);
    (void)signal(SIGINT, SIG_DFL);
    (void)kill(getpid(), SIGINT);
  }
}

static void catch_interrupts(report *r) {
  int ends[2];
  struct sigaction now = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
  if (sigaction(SIGINT, NULL, &r->before) != 0 || r->before.sa_handler != SIG_DFL || pipe(ends) != 0) {
    return;
  }
  (void)fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  (void)fcntl(ends[1], F_SETFD, FD_CLOEXEC);
  r->read_end = ends[0];
  r->write_end = ends[1];
  warn(hr_thread_start("hr-report", wait_for_interrupt, r, &r->thread));
  if (r->thread.started) {
    (void)sigaction(SIGINT, &now, NULL);
  }
}

static void release_interrupts(report *r) {
  struct sigaction now;
  if (r->write_end < 0) {
    return;
  }
  if (sigaction(SIGINT, NULL, &now) == 0 && now.sa_handler == on_interrupt) {
    (void)sigaction(SIGINT, &r->before, NULL);
  }
  close(r->write_end);
  hr_thread_join(&r->thread);
  close(r->read_end);
  r->read_end = r->write_end = -1;
}

/* ---- beginning and end ---- */

static void stop_report(void *part) {
  report *r = part;
  if (r->pid == (int)getpid()) {
    release_interrupts(r);
    (void)write_report(r, true);
  }
}

static void fini_report(void *part) {
  report *r = part;
  hr_profile_release(r->profile);
  hr_mutex_fini(&r->mutex);
}

static report *own(hr_context *context) {
  static const hr_context_part kind = {
      .bytes = sizeof(report), .init = init_report, .stop = stop_report, .fini = fini_report};
  return hr__context_part(context, HR_CONTEXT_REPORT, &kind);
}

/* The tables that a list of words names; words that name none are a warning. */
static unsigned parse_tables(const char *list) {
  static const char *const words[] = {"ops", "copies", "fallbacks", "all"};
  static const unsigned bits[] = {HR_TABLE_OPERATIONS, HR_TABLE_COPIES, HR_TABLE_FALLBACKS, HR_TABLES_ALL};
  unsigned tables = 0;
  while (*list != '\0') {
    size_t length = strcspn(list, ",");
    bool is_known = length == 0;
    for (int i = 0; i < 4; ++i) {
      if (length == strlen(words[i]) && strncmp(list, words[i], length) == 0) {
        tables |= bits[i];
        is_known = true;
      }
    }
    if (!is_known) {
      hr_log_once("HEADRACE_PROFILE: \"%.*s\" is no table; there are ops, copies, fallbacks, all", (int)length, list);
    }
    list += length + (list[length] == ',');
  }
  return tables;
}

/* An error now rather than at the end. Creates the file. */
static bool can_write(const char *path) {
  FILE *file = path[0] != '\0' ? fopen(path, "a") : NULL;
  if (path[0] != '\0' && file == NULL) {
    hr_log_once("HEADRACE_TRACE: can't write \"%s\": %s; there will be no timeline", path, strerror(errno));
  }
  return file != NULL && fclose(file) == 0;
}

/* The report is locked. */
static void begin(report *r, const hr_device *device) {
  r->has_trace = can_write(hr_env_text(HR_ENV_TRACE));
  r->tables = parse_tables(hr_env_text(HR_ENV_PROFILE));
  r->pid = (int)getpid();
  if (!r->has_trace && r->tables == 0) {
    return;
  }
  if (r->has_trace && device->properties.is_host) {
    (void)hr__device_gbs(device); /* measured now: at exit, or in an interrupt's thread, loops may be running */
  }
  hr_status status = hr_profile_create(NULL, 0, 0, &r->profile);
  status = status == HR_OK ? hr_profile_start(r->profile) : status;
  warn(status);
  if (device->context == &hr__context_first) {
    catch_interrupts(r);
  }
  hr__contexts_stop_at_exit();
}

void hr__report_begin(const hr_device *device) {
  report *r = own(device->context);
  hr_mutex_lock(&r->mutex);
  if (!r->has_begun) {
    r->has_begun = true;
    hr_context *before = hr__context_enter(device->context);
    begin(r, device);
    (void)hr__context_enter(before);
  }
  hr_mutex_unlock(&r->mutex);
}

void hr_profile_report(void) {
  (void)write_report(own(hr__context()), true);
}
