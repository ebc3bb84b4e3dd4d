/* general_instance.h: one instance for all dims of a structure.
 *
 * Most shapes of a text, or of a growing cache, come once or twice. Their programs need no memory of their own: an
 * instance of the structure's general plan (general_plan.h) gets the numbers of each new key, and only steps whose
 * numbers differ from the last key's are prepared again. A key that is met for the third time gets an instance of its
 * own, with all that pays for repeated programs; on a device beside the host, for the second time, or at once if
 * nearly all steps change with the dims. On a host those instances have a bound (cache.h). Once it is reached, a key
 * gets one after 7 uses of the shared ones, if the last use is at most half as long ago as that of the instance which
 * makes room. So the keys of a cycle beyond the bound do not evict each other, and frequent keys come to have one.
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
  hr_plan *model;             /* what the plan was copied from; a reference */
  hr_instance *instance;      /* a reference; its plan is nobody else's */
  uint64_t serial;            /* of the general plan */
  hr_numbers values;          /* of its polynomials */
  hr_number_places places;    /* of the plan's numbers that are such values */
  hr_number_terms estimates;  /* the costs of steps that vary: hr_general_numbers */
  bool *is_counted;           /* each step: hr__plan_find_counted */
  bool *is_changed;           /* of each part, whether each step is done, and each value new: scratch */
  bool *varies;               /* each step, and the declined nodes: some of their numbers are such values */
  hr_step_summary *summaries; /* of each step .. */
  bool has_summaries;         /* .. if they are known */
  bool *may_be_weights;       /* each step: hr__weights_find_candidates */
  int *like, *same;           /* of each step: see hr_step_numbers */
  bool is_dear;               /* new numbers cost nearly as much as an instance: keys get their own */
  int64_t bytes;              /* that it counts in the total */
  uint64_t last_use;
} hr_general_instance;

/* A key's upper bits, the low ones of which count how often it was met, and its last use by the cache's clock. */
typedef struct hr_sighting {
  uint32_t name, last_use;
} hr_sighting;

typedef struct hr_general_instances {
  size_t count;
  uint64_t uses, uses_at_trim; /* so far, and at the last trim */
  atomic_int_least64_t *total; /* a count of bytes that others add to as well */
  hr_sighting *sightings;      /* of keys, by hash; NULL: none yet */
  hr_general_numbers spare;    /* memory for the next key's */
  hr_general_instance all[HR_GENERAL_INSTANCES_MAX];
} hr_general_instances;

void hr__general_instances_fini(hr_general_instances *instances);
/* Releases those that were not used since the last trim. */
void hr__general_instances_trim(hr_general_instances *instances);
/* The instance of a hashed key of a known structure, borrowed until the next call. NULL: the key needs an instance of
 * its own. A key that was used at most `reach` programs ago may get one; UINT32_MAX: there are few of those. */
hr_instance *hr__general_instance_find(hr_general_instances *instances, hr_key *key, hr_device *device, uint32_t now,
                                       uint32_t reach);

#endif
