/* replay.h: a recorded program, run again on a stream.
 *
 * The file is what HEADRACE_DUMP writes: a program in stream form, and the scalars of one run as comments in front of
 * it. Each repetition makes the fresh buffers anew, records everything and lets go of what dies in the program, so that
 * the stream compiles what it compiled when the file was written. Buffers that had contents get random ones (integers:
 * zeros).
 */
#ifndef HEADRACE_TOOLS_REPLAY_H_
#define HEADRACE_TOOLS_REPLAY_H_

#include "core/ir/program.h"

typedef struct replay {
  const char *path, *device_name;
  int mode; /* -1: the stream's own */
  hr_program program;
  hr_scalar *arguments; /* of the run */
  hr_device *device;
  hr_stream *stream;
  hr_buffer **buffers;  /* by number in the program; NULL: let go of, or not made yet */
  const void **handles; /* what `buffers` held when the latest repetition began: names, not to be followed */
} replay;

/* Reads the file and opens a stream; path, device_name and mode are set. replay_close also after a failure. */
HR_MUST_USE hr_status replay_open(replay *r);
/* One repetition; what is live and fresh is kept until the next one. */
HR_MUST_USE hr_status replay_once(replay *r, int64_t *out_ns);
void replay_close(replay *r);

/* The dtype in which a buffer is first used. */
hr_dtype replay_buffer_dtype(const hr_program *program, uint32_t buffer);

/* An option that `run` and `explain` share, at argv[*at]: --device NAME, --mode MODE, or the file. False: it is none of
 * them. */
bool replay_option(replay *r, int argc, char **argv, int *at);

#endif
