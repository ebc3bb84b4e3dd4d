/* replay.h: a recorded program, run again on a stream.
 *
 * The file is written by HEADRACE_DUMP: a program in stream form, preceded by the scalars of one run as comments. Each
 * repetition creates the fresh buffers anew, records everything and releases the buffers that die in the program. So
 * the stream compiles the same program as when the file was written. Buffers that had contents get random ones
 * (integers: zeros).
 */
#ifndef HEADRACE_TOOLS_REPLAY_H_
#define HEADRACE_TOOLS_REPLAY_H_

#include "core/ir/program.h"

typedef struct replay {
  const char *path, *device_name;
  int mode; /* -1: the stream's own */
  hr_program program;
  hr_scalar *arguments; /* of the run */
  char **places;        /* of each operation in the frontend's program; NULL: it has no name */
  hr_device *device;
  hr_stream *stream;
  hr_buffer **buffers; /* by number in the program; NULL: released, or not created yet */
  const void *
      *handles; /* the values of `buffers` when the latest repetition began: for comparison, not to be dereferenced */
} replay;

/* Reads the file and opens a stream; path, device_name and mode are set. Call replay_close also after a failure. */
HR_MUST_USE hr_status replay_open(replay *r);
/* One repetition; live and fresh buffers are kept until the next one. */
HR_MUST_USE hr_status replay_once(replay *r, int64_t *out_ns);
/* Records the program once; nothing runs yet. */
HR_MUST_USE hr_status replay_record(replay *r);
void replay_close(replay *r);

/* The dtype in which a buffer is first used. */
hr_dtype replay_buffer_dtype(const hr_program *program, uint32_t buffer);

/* Parses an option that `run` and `explain` share, at argv[*at]: --device NAME, --mode MODE, or the file. False if it
 * is none of them. */
bool replay_option(replay *r, int argc, char **argv, int *at);

#endif
