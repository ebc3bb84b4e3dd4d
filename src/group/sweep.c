/* sweep.c: removes segments that killed processes have left.
 *
 * The name of a segment exists while ranks meet. A segment in use is locked by its ranks (segment.c), but a process
 * sees none of its own locks, and closing any file drops all that it has of it. So this process's own segments are
 * never opened: the caller names them. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "group/segment.h"

#ifdef __linux__

static bool begins_with(const char *name, const char *begin) {
  return strncmp(name, begin, strlen(begin)) == 0;
}

/* A file of another user, or none, is never opened: it may block. */
static bool is_old(int folder, const char *name) {
  struct stat found;
  return fstatat(folder, name, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(found.st_mode) &&
         found.st_uid == geteuid() && time(NULL) - found.st_mtime > HR_GROUP_STALE_S;
}

static bool is_locked(int folder, const char *name) {
  int file = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) {
    return true;
  }
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET}; /* of all ranks */
  bool is = fcntl(file, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
  close(file);
  return is;
}

void hr_group_sweep(const char *prefix, const char *own) {
  DIR *list = opendir("/dev/shm");
  if (list == NULL) {
    return;
  }
  int folder = dirfd(list);
  for (const struct dirent *entry; (entry = readdir(list)) != NULL;) {
    const char *name = entry->d_name;
    if (begins_with(name, prefix) && !begins_with(name, own) && is_old(folder, name) && !is_locked(folder, name)) {
      unlinkat(folder, name, 0);
    }
  }
  closedir(list);
}

#else

void hr_group_sweep(const char *prefix, const char *own) {
  (void)prefix, (void)own; /* shared memory can't be listed */
}

#endif
