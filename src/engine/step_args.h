/* step_args.h: the arguments of all steps of a program, step after step.
 *
 * Those of a kernel and of a check are buffers; those of a library may also be scalars, or absent. As numbers these are
 * small, so that mostly 16 bits suffice.
 */
#ifndef HEADRACE_ENGINE_STEP_ARGS_H_
#define HEADRACE_ENGINE_STEP_ARGS_H_

#include "base/narrow.h"

enum { HR_ABSENT_ARG = 0 };
static inline uint32_t hr__arg_of_buffer(uint32_t buffer) {
  return 2 * buffer + 1;
}
static inline uint32_t hr__arg_of_scalar(uint32_t scalar) {
  return 2 * scalar + 2;
}
static inline bool hr__arg_is_buffer(uint32_t arg) {
  return (arg & 1) != 0;
}
static inline uint32_t hr__arg_buffer(uint32_t arg) {
  return arg >> 1;
}
static inline uint32_t hr__arg_scalar(uint32_t arg) {
  return (arg >> 1) - 1;
}

/* Both lists, and a place in each. `scalars`: those that kernels read as numbers. */
typedef struct hr_step_args {
  const hr_narrow *args, *scalars;
  size_t arg_first, scalar_first;
} hr_step_args;

#endif
