/* explain.h: the explanation of a program: steps in order, the values between them, and the memory of each value.
 *
 * Made by running the program once, from the instances that the stream compiled: one in mode fuse, one for each
 * operation in the other modes. Buffers of all instances share one numbering: the file's numbers, then buffers that
 * lowerings made.
 */
#ifndef HEADRACE_TOOLS_EXPLAIN_H_
#define HEADRACE_TOOLS_EXPLAIN_H_

#include "engine/instance.h"
#include "replay.h"

enum { SHAPE_CHARS = 64, NO_STEP = -1 };

typedef enum home { HOME_BEFORE, HOME_KEPT, HOME_ARENA } home;

typedef struct buffer_info {
  char shape[SHAPE_CHARS]; /* "f32 64x16", or "" if unknown */
  bool is_channels_last;   /* for a library */
  home home;               /* separate memory, from before or kept after the run; or a place in the arena */
  size_t arena_offset;
  int64_t bytes;
} buffer_info;

typedef enum step_kind { KIND_LIBRARY, KIND_LOOP, KIND_COPY, KIND_CHECK, KIND_COUNT } step_kind;

typedef struct port { /* a buffer that a step reads or writes */
  int buffer;
  int64_t bytes;
  int other; /* of a read: the step that wrote it, or NO_STEP; of a write: the last step that reads it, or NO_STEP */
} port;

typedef struct step_info {
  step_kind kind;
  const hr_exec_step *step;
  const hr_step_cost *cost;
  const hr_instance *instance;
  char *label;      /* by compiler/describe.h */
  char *operations; /* the recorded operations in it: "relu, mse_loss, adam (part)" */
  char *places;     /* of these in the frontend's program: "jit(f)/dot_general f.py:3, jit(f)/tanh f.py:4", or "" */
  int loop_count;   /* loops that were fused */
  int first_read, read_count, first_write, write_count; /* in ports */
  int vanished_count;
  int64_t vanished_bytes;
  bool is_compiled;
  double us; /* median, or 0 */
} step_info;

typedef struct explanation {
  const replay *replay;
  int repeat; /* timed runs; 0: none */
  int record_count;
  double total_us; /* of the steps */
  HR_VECTOR(step_info) steps;
  HR_VECTOR(port) ports;
  HR_VECTOR(buffer_info) buffers;
  int64_t bytes_read, bytes_written, vanished_bytes, arena_bytes, library_flops;
  int counts[KIND_COUNT], vanished_count;
} explanation;

extern const char *const kind_names[KIND_COUNT];

/* "12.3 KB": decimal units. */
void explain_bytes(int64_t bytes, hr_text *text);
/* One step in detail, as lines of text. */
void explain_step(const explanation *e, int step, hr_text *text);
/* The whole program as text, or as a picture. */
void explain_text(const explanation *e, hr_text *text);
void explain_svg(const explanation *e, hr_text *text);

#endif
