/* function.h: functions of the host as operations of a stream.
 *
 * A call of a function is recorded like an operation: it waits for nothing and makes no commit of its own. It becomes a
 * step of the program of its neighbours, which gives its operands memory. The function runs when the step does, on the
 * thread that runs the stream's work: after what was recorded before, ahead of what is recorded later. It runs even if
 * nobody needs its outputs. Functions of two streams may run at the same time.
 *
 * On a device whose memory is the host's the function computes. On others it gets addresses of the device and the
 * device's queue. It submits work to the queue, and need not wait for it. With is_on_host it computes there, too: the
 * call waits for the device, and copies the operands to the host and back.
 *
 * (hr_stream_call of mark.h commits before each call, and passes whole buffers.)
 */
#ifndef HEADRACE_FUNCTION_H_
#define HEADRACE_FUNCTION_H_

#include "headrace/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HR_FUNCTION_OPERANDS_MAX = 48, HR_FUNCTION_NAMES_MAX = 4096 };

/* The arguments of a function, valid until it returns. */
typedef struct hr_function_call {
  void *arg;
  void *queue; /* a CUstream for CUDA, whose context is current; NULL: operands are in the host's memory */
  int input_count, output_count;
  /* On the device, or on the host: dense, row-major elements, whatever the strides of the views. An input shares no
   * memory with an output. Of an operand without elements: any. */
  void *const *inputs, *const *outputs;
} hr_function_call;

/* The status is that of the work. The function must not use a stream of the device, and must not need a lock that a
 * recording thread may hold. It may retain and release buffers. */
typedef hr_status (*hr_function_run)(const hr_function_call *call);

typedef struct hr_function_spec {
  const char *name; /* of the steps in profiles and messages; copied. NULL, and names beyond HR_FUNCTION_NAMES_MAX:
                     * "call". Calls of different names are different programs, of different arguments are not. */
  hr_function_run run;
  void *arg;
  void (*release)(void *arg); /* (optional) called once, after the last run or if there is none; on any thread */
  int updated_count;          /* so many outputs, the first ones, have contents, which the function may use */
  bool is_late;               /* it may run later: it waits for others, such as other processes. Late calls keep their
                               * order. All run before the first later record that uses an operand of one of them, may
                               * fail, or calls a function that is not late, and at the end of the program at last. */
  bool is_short;              /* a run takes some 100 us at most: a thread that waits for it may run it, and cannot be
                               * interrupted meanwhile. Not for late ones. */
  bool is_on_host;            /* operands are in the host's memory on every device: copies, if the device has its own */
} hr_function_spec;

/* Records a call of a function. In a capture (part.h) the function is called in each run of the part.
 *
 * An output that is not updated has undefined contents before the call, and is written whole. Outputs must not overlap.
 * Failures are those of a kernel: the next wait reports them, with the name in front, later work is dropped until then,
 * and the outputs are invalid.
 *
 * INVALID_ARGUMENT names the operand, the actual and the expected value. The spec's `arg` is released in this case,
 * too. */
HR_API HR_MUST_USE hr_status hr_function_record(hr_stream *stream, const hr_function_spec *spec, int input_count,
                                                const hr_view *inputs, int output_count, const hr_view *outputs);

#ifdef __cplusplus
}
#endif

#endif
