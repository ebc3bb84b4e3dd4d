/* packed_schedule.h: a compiled schedule that is kept and seldom read, without its kernel forms.
 *
 *   schedule                                     packed
 *   nodes, buffers, scalars                      numbers of a byte or two (core/ir/packed_program.h)
 *   kernel form, 1 KB a step                     a reference to the prepared kernel, whose key has the form
 *   kinds of steps, places                       numbers of a byte or two
 *   buffers of kernels                           the arguments of the steps, which runs read
 *
 * A program that repeats reads none of it: only another stream that meets the key, and a general plan that is learned
 * from it (plan.c), unpack it. The estimates of kernels are made again. Threads: immutable.
 */
#ifndef HEADRACE_ENGINE_PACKED_SCHEDULE_H_
#define HEADRACE_ENGINE_PACKED_SCHEDULE_H_

#include "compiler/compile.h"
#include "core/ir/packed_program.h"
#include "engine/cached_kernel.h"
#include "engine/index_source.h"
#include "engine/step_args.h"

typedef struct hr_packed_schedule {
  hr_packed_program *program, *declined;
  int kernel_count;
  hr_cached_kernel **kernels; /* of the steps that are kernels, in order; references */
  uint8_t *bytes;
  size_t footprint;
} hr_packed_schedule;

/* A schedule in memory of its own, with the sources of its checks' indices. */
typedef struct hr_unpacked_schedule {
  hr_schedule schedule;
  hr_index_source *indices; /* of each step */
} hr_unpacked_schedule;

/* Packs a compact schedule. `kernels`: of each step, NULL if it is none. False when memory is out, or if the nodes are
 * not in the order of the steps. */
HR_MUST_USE bool hr__packed_schedule_make(const hr_schedule *schedule, const hr_index_source *indices,
                                          hr_cached_kernel *const *kernels, hr_packed_schedule *out_packed);
void hr__packed_schedule_fini(hr_packed_schedule *packed);
/* The schedule that was packed. `rest`: what hr_schedule_drop_lists has left of it. `args`: those of its steps, from
 * the first one on. NULL when memory is out. */
hr_unpacked_schedule *hr__packed_schedule_unpack(const hr_packed_schedule *packed, const hr_schedule *rest,
                                                 const hr_step_args *args);
void hr__unpacked_schedule_destroy(hr_unpacked_schedule *unpacked); /* NULL: nothing */

#endif
