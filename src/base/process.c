/* posix_spawn with a time limit. The program is a process group of its own, so that killing it also kills its children.
 */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/allocator.h"
#include "base/thread.h"

/* True if an entry of the list sets the variable of `name=value`. */
static bool is_set(const char *const *list, const char *variable) {
  size_t length = strcspn(variable, "=") + 1;
  for (; list != NULL && *list != NULL; ++list) {
    if (strncmp(*list, variable, length) == 0) {
      return true;
    }
  }
  return false;
}

/* This process's environment, in which the list's entries win. One block, freed by hr_free; NULL if memory is out. */
static const char **merge_environment(const char *const *list) {
  size_t count = 0, at = 0;
  for (const char *const *more = list; more != NULL && *more != NULL; ++more) {
    ++count;
  }
  for (char **more = environ; *more != NULL; ++more) {
    ++count;
  }
  const char **merged = hr_calloc(count + 1, sizeof *merged);
  for (const char *const *more = list; merged != NULL && more != NULL && *more != NULL; ++more) {
    merged[at++] = *more;
  }
  for (char **more = environ; merged != NULL && *more != NULL && at < count; ++more) {
    if (!is_set(list, *more)) {
      merged[at++] = *more;
    }
  }
  return merged;
}

static hr_status spawn(const char *const *arguments, const char *const *environment, const char *output_path,
                       pid_t *out_pid) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none, defaults;
  if (posix_spawn_file_actions_init(&files) != 0) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory to start \"%s\"", arguments[0]);
  }
  if (posix_spawnattr_init(&attributes) != 0) {
    posix_spawn_file_actions_destroy(&files);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory to start \"%s\"", arguments[0]);
  }
  sigemptyset(&none);
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  sigaddset(&defaults, SIGCHLD);
  int error = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  error =
      error != 0 ? error : posix_spawn_file_actions_addopen(&files, 1, output_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  error = error != 0 ? error : posix_spawn_file_actions_adddup2(&files, 1, 2);
  error = error != 0 ? error : posix_spawnattr_setsigmask(&attributes, &none);
  error = error != 0 ? error : posix_spawnattr_setsigdefault(&attributes, &defaults);
  error = error != 0 ? error
                     : posix_spawnattr_setflags(&attributes,
                                                POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  error = error != 0 ? error
                     : posix_spawnp(out_pid, arguments[0], &files, &attributes, (char *const *)(uintptr_t)arguments,
                                    (char *const *)(uintptr_t)environment);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error == 0 ? HR_OK
                    : hr_status_make(HR_STATUS_NOT_FOUND, "\"%s\" can't be started: %s", arguments[0], strerror(error));
}

hr_status hr_process_run(const char *const *arguments, const char *const *environment, const char *output_path,
                         int64_t limit_ns, const atomic_bool *cancel) {
  pid_t pid, ended;
  int result = 0;
  const char **merged = merge_environment(environment);
  hr_status status = merged != NULL ? spawn(arguments, merged, output_path, &pid)
                                    : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory to start a program");
  hr_free(merged);
  if (status != HR_OK) {
    return status;
  }
  int64_t deadline = hr_clock_ns() + limit_ns;
  bool is_cancelled = false;
  while ((ended = waitpid(pid, &result, WNOHANG)) == 0 && hr_clock_ns() < deadline && !is_cancelled) {
    is_cancelled = cancel != NULL && atomic_load_explicit(cancel, memory_order_relaxed);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  if (ended == 0) {
    kill(-pid, SIGKILL);
    while (waitpid(pid, &result, 0) < 0 && errno == EINTR) {
    }
    return is_cancelled ? hr_status_make(HR_STATUS_CANCELLED, "\"%s\" was cancelled", arguments[0])
                        : hr_status_make(HR_STATUS_DEADLINE_EXCEEDED, "\"%s\" was killed after %.1f s", arguments[0],
                                         (double)limit_ns * 1e-9);
  }
  if (ended < 0) { /* the host program ignores SIGCHLD: the exit status is unknown, and the caller checks the output */
    return HR_OK;
  }
  if (WIFEXITED(result) && WEXITSTATUS(result) == 0) {
    return HR_OK;
  }
  return hr_status_make(HR_STATUS_INTERNAL, "\"%s\" ended with %s %d", arguments[0],
                        WIFEXITED(result) ? "exit status" : "signal",
                        WIFEXITED(result) ? WEXITSTATUS(result) : WTERMSIG(result));
}
