/* file_limits.c: see file_limits.h. */
#include "file_limits.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

enum { LIMIT_KIB = 64 << 10, LIMIT_SECONDS = 1 };

static volatile int64_t number_now; /* of the file that is read */
static long first_kib;

static long peak_kib(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

/* Also a file that never ends is named. */
static void expired(int signal) {
  (void)signal;
  char text[96];
  int length =
      snprintf(text, sizeof text, "file %lld takes more than %d s of CPU time\n", (long long)number_now, LIMIT_SECONDS);
  (void)!write(STDERR_FILENO, text, (size_t)length);
  abort();
}

static void set_timer(long seconds) {
  const struct itimerval timer = {.it_value = {.tv_sec = seconds}};
  setitimer(ITIMER_PROF, &timer, NULL);
}

void file_limits_begin(void) {
  FILE *peak = fopen("/proc/self/clear_refs", "w"); /* 5: the most becomes what there is now */
  if (peak != NULL) {
    fputs("5", peak);
    fclose(peak);
  }
  first_kib = peak_kib();
  signal(SIGPROF, expired);
}

void file_limits_start(int64_t number) {
  number_now = number;
  set_timer(LIMIT_SECONDS);
}

void file_limits_check(size_t bytes) {
#if !defined(HR_SANITIZED)
  long most = LIMIT_KIB + (long)(2 * bytes >> 10), taken = peak_kib() - first_kib;
  if (taken > most) {
    fprintf(stderr, "file %lld: the process has %ld KiB more than before the first file; expected at most %ld\n",
            (long long)number_now, taken, most);
    abort();
  }
#else
  (void)bytes;
#endif
}

void file_limits_end(void) {
  set_timer(0);
  signal(SIGPROF, SIG_DFL);
}
