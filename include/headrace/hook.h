/* hook.h: functions that see the records of a stream.
 *
 * A hook gets each record of its stream, also those of in-place operations and of hr_stream_write to buffers in use,
 * in place of the stream. It passes the record on with hr_hook_pass, and may record other operations before and after
 * it. Hooks of a stream form a stack: what one passes goes to the hook that was added before it, and then to the
 * stream. A tape (transform.h) is a hook. So is the recorder of a graph (graph.h), which also gets functions.
 *
 * A stream with hooks rejects what is not a record: parts (hr_part_run), and functions with outputs (hr_stream_call).
 * Sessions then record the operations of their graph one by one.
 *
 * Threads: while a stream has hooks, it belongs to one thread at a time. Hooks are called with no lock held.
 */
#ifndef HEADRACE_HOOK_H_
#define HEADRACE_HOOK_H_

#include "headrace/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_hook hr_hook;

/* The arguments of hr_stream_record. The views are the caller's, and nothing has been checked. */
typedef struct hr_hook_record {
  hr_op op;
  const hr_attrs *attrs; /* may be NULL */
  int input_count, output_count;
  const hr_view *inputs, *outputs;
  bool is_new; /* of hr_stream_record_new: the output is new, and has the inferred type */
} hr_hook_record;

/* The arguments of hr_functional_apply (functional.h), which has checked them. */
typedef struct hr_hook_function {
  int function; /* an hr_functional */
  int input_count, attribute_count, result_count;
  const struct hr_tensor *const *inputs;
  const struct hr_attribute *attributes;
  struct hr_tensor *results;
} hr_hook_function;

/* The owner's memory; it stays where it is until the hook is removed. */
struct hr_hook {
  hr_status (*record)(hr_hook *hook, hr_stream *stream, const hr_hook_record *record);
  hr_hook *below; /* the stream's: which gets what this one passes; NULL: the stream itself */
  /* (optional) gets each function, too, before it is recorded: the uppermost hook that has this member. It records the
   * function by hr_functional_apply with this member set to NULL meanwhile. */
  hr_status (*apply)(hr_hook *hook, hr_stream *stream, const hr_hook_function *function);
};

/* Adds a hook above the others of the stream. Sets hook->below. */
HR_API void hr_hook_add(hr_stream *stream, hr_hook *hook);
/* Removes a hook, wherever in the stack it is; one that is not there is fine. */
HR_API void hr_hook_remove(hr_stream *stream, hr_hook *hook);
/* Lets records enter the stack at this hook, which is in it, and returns the former top. A hook that records other
 * operations in place of one sets itself as the top, and the former one afterwards: hooks above have seen the one. */
HR_API hr_hook *hr_hook_set_top(hr_stream *stream, hr_hook *hook);
/* True if the stream has hooks. */
HR_API bool hr_hook_is_open(const hr_stream *stream);
/* The uppermost hook that gets functions; NULL: there is none. */
HR_API hr_hook *hr_hook_of_functions(const hr_stream *stream);
/* Passes a record on to the hook below, or records it. */
HR_API HR_MUST_USE hr_status hr_hook_pass(const hr_hook *hook, hr_stream *stream, const hr_hook_record *record);
/* Marks a buffer whose contents a hook keeps elsewhere. From now on the stream refuses to read it and to use it in
 * records that no hook replaces, with a copy of this failure, until it is written as a whole or released. Records that
 * are pending still run. */
HR_API void hr_hook_claim_buffer(hr_buffer *buffer, hr_status failure);

#ifdef __cplusplus
}
#endif

#endif
