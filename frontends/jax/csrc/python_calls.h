/* python_calls.h: callbacks of Python in programs, for the Python package, which loads this library with ctypes.
 *
 * A program has a callback as a custom call, whose name python_callback_create gives. A callback lives while its
 * creator, a program or pending work has a reference. Python frees its own part later, when it creates the next one
 * (headrace_jax_dead_callbacks): the last reference may be dropped where a lock of the stream is held, with which
 * Python must not run.
 *
 * Threads: any.
 */
#ifndef HEADRACE_JAX_PYTHON_CALLS_H_
#define HEADRACE_JAX_PYTHON_CALLS_H_

#include "plugin.h"

/* Runs a callback, whose outputs it writes. 0, or another number after headrace_jax_set_failure on the same thread. */
typedef int (*hrj_python_caller)(int64_t id, int input_count, void *const *inputs, int output_count,
                                 void *const *outputs);

/* Sets the function that runs all callbacks; NULL: they fail. */
HR_API void headrace_jax_set_caller(hrj_python_caller caller);
/* The message of the failure that the caller is about to return. */
HR_API void headrace_jax_set_failure(const char *message);
/* A new callback with one reference: its number, and the name of its custom calls. -1: no memory. */
HR_API int64_t headrace_jax_create_callback(char *out_name, size_t room);
/* Drops the creator's reference. */
HR_API void headrace_jax_release_callback(int64_t id);
/* Numbers of callbacks without a reference, each once; how many there are, at most `room`. */
HR_API int headrace_jax_dead_callbacks(int64_t *out_ids, int room);

/* The function of a custom call's name; NOT_FOUND if it is none of these. */
hr_status hrj_python_find(const char *name, hr_function_spec *out_spec);

/* The device that runs a call of this name alone, and the bytes of the results that it has for the others:
 *
 *   headrace_python:process:id@device:bytes:bytes */
typedef struct hrj_python_place {
  int device; /* -1: all devices run it */
  int result_count;
  size_t result_bytes[HR_FUNCTION_OPERANDS_MAX];
} hrj_python_place;
hr_status hrj_python_place_of(const char *name, hrj_python_place *out_place);

#endif
