/* general_instance.h: one instance for all dims of a structure.
 *
 * Most shapes of a text, or of a growing cache, come once or twice. Their programs need no memory of their own: an
 * instance of the structure's general plan (general_plan.h) gets the numbers of each new key, and only steps whose
 * numbers differ from the last key's are prepared again. A key that is met for the third time gets an instance of its
 * own, with all that pays for repeated programs; on a device beside the host, for the second time, or at once if
 * nearly all steps change with the dims. On a host those instances have a bound (cache.h). Once it is reached, a key
 * gets one after every 7 uses of the shared ones: keys of long cycles do without, and frequent ones come to have it.
 *
 * An instance that a queued run still holds is left alone; the key gets another one. Once a run is launched, a device
 * needs its code alone, and waits before it is unloaded. Threads: the stream's lock.
 */
#ifndef HEADRACE_ENGINE_GENERAL_INSTANCE_H_
#define HEADRACE_ENGINE_GENERAL_INSTANCE_H_

#include "compiler/numbers.h"
#include "engine/instance.h"

enum { HR_GENERAL_INSTANCES_MAX = 32 };

typedef struct hr_general_instance {
  hr_plan *model;        /* what the plan was copied from; a reference */
  hr_instance *instance; /* a reference; its plan is nobody else's */
  hr_numbers numbers;    /* of its schedule, and the counts of its checks */
  size_t *parts;         /* of the schedule's numbers */
  bool *is_changed;      /* of each part, and whether each step is done: scratch */
  int *like;             /* of each step: see hr_step_numbers */
  bool is_dear;          /* new numbers cost nearly as much as an instance: keys get their own */
  int64_t bytes;         /* that it counts in the total */
  uint64_t last_use;
} hr_general_instance;

typedef struct hr_general_instances {
  size_t count;
  uint64_t uses, uses_at_trim; /* so far, and at the last trim */
  atomic_int_least64_t *total; /* a count of bytes that others add to as well */
  uint64_t *sightings;         /* hashes of keys, and in the low bits how often each was met; NULL: none yet */
  hr_numbers spare;            /* memory for the next key's */
  hr_general_instance all[HR_GENERAL_INSTANCES_MAX];
} hr_general_instances;

void hr__general_instances_fini(hr_general_instances *instances);
/* Releases those that were not used since the last trim. */
void hr__general_instances_trim(hr_general_instances *instances);
/* The instance of a hashed key of a known structure, borrowed until the next call. NULL: the key needs an instance of
 * its own. has_room: there are few of those. */
hr_instance *hr__general_instance_find(hr_general_instances *instances, hr_key *key, hr_device *device, bool has_room);

#endif
