/* run_description.h: an instance's launches in words and numbers, for profiles.
 *
 * Made at the first profiled run of an instance and kept with it, so that a record of a run is a reference and times.
 * Records keep their own references: an instance may be gone when its records are read. Immutable once made.
 */
#ifndef HEADRACE_ENGINE_RUN_DESCRIPTION_H_
#define HEADRACE_ENGINE_RUN_DESCRIPTION_H_

#include "base/arena.h"
#include "base/refcount.h"
#include "engine/instance.h"

typedef struct hr_launch_description {
  hr_step_kind kind;
  int step, step_count;                 /* the first of the instance's steps in the launch, and their number */
  const char *name, *shapes, *provider; /* `provider`: NULL for kernels; `shapes`: "f32[4,8] f32[8] -> f32[4,8]" */
  int64_t bytes_read, bytes_written, flops;
  int64_t bytes_saved;        /* of results that this launch computes and that never get memory */
  int operation_count;        /* recorded operations in it */
  const uint32_t *operations; /* their numbers in the program, ascending */
} hr_launch_description;

/* Appends the names of the places of a launch's operations, "  <- jit(f)/dot_general, jit(f)/tanh", if they have some.
 * `step`: the launch's first; marks: of the first operations. */
void hr__run_name_places(const hr_instance *instance, int step, size_t mark_count, const hr_operation_mark *marks,
                         hr_text *text);

struct hr_run_description {
  hr_refcount refcount;
  hr_arena arena; /* of everything below */
  uint64_t program;
  int record_count;
  const char *const *record_names; /* of each recorded operation; they live as long as the context */
  int launch_count;
  hr_launch_description *launches; /* in the order of the steps */
  int dropped_count;               /* recorded operations that no step computes, because nobody needs their results */
  const uint32_t *dropped;
};

/* The instance's description, made now if it has none; borrowed. NULL: host memory is short. On the thread that runs
 * the device's jobs. */
hr_run_description *hr__run_describe(const hr_instance *instance);
/* Drops the instance's description, when its plan or its steps change. */
void hr__run_description_forget(hr_instance *instance);
void hr__run_description_release(hr_run_description *description); /* NULL: nothing */

#endif
