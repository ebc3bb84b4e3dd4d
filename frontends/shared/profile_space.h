/* profile_space.h: an XSpace (xspace.h) of a profile of the core, for the profilers of JAX and TensorFlow.
 *
 * Each device has a plane, whose lines are kernels and library calls, programs, compilers, and copies. Events have the
 * bytes, operations and rates of their records; the frontend adds its own statistics.
 *
 * Threads: one at a time.
 */
#ifndef HEADRACE_SHARED_PROFILE_SPACE_H_
#define HEADRACE_SHARED_PROFILE_SPACE_H_

#include "headrace/profile.h"
#include "xspace.h"

enum { XSPACE_LIST_MAX = 1024 };

/* A list of different texts, cut at its room. */
typedef struct xspace_list {
  size_t size;
  char text[XSPACE_LIST_MAX];
} xspace_list;

/* Adds a text that is not there yet; NULL and "" are none. */
void xspace_list_add(xspace_list *list, const char *text);

typedef struct profile_space {
  const char *platform;      /* of the names of planes, and of warnings */
  int64_t begin_ns, wall_ns; /* of the start, by the clock of records and by the wall clock */
  /* Appends the frontend's statistics of a record; NULL: it has none. */
  void (*add_stats)(void *arg, const hr_profile_record *record, xspace_bytes *stats);
  void *arg;
  xspace_bytes data; /* the message */
  xspace_plane *planes;
  int plane_count;
} profile_space;

/* Sets both times to now. */
void profile_space_start(profile_space *space);
/* Writes the records of a stopped profile into `data`. */
HR_MUST_USE hr_status profile_space_write(profile_space *space, hr_profile *profile);
void profile_space_fini(profile_space *space);

#endif
