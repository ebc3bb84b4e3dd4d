/* gather.h: tensors of several devices at one place, for the collectives of programs over several devices.
 *
 * All devices of a group call the function of a gather in the same order. It waits for the others, copies the tensors
 * of all, and waits again, so that none changes before. GPUs copy through their links, if they have some (links.h),
 * else tensors are copied to the host and back.
 */
#ifndef HEADRACE_JAX_GATHER_H_
#define HEADRACE_JAX_GATHER_H_

#include "links.h"
#include "plugin.h"

typedef struct hrj_meetings hrj_meetings;

/* The meetings of a program's devices; NULL: no memory. The caller owns one reference. */
hrj_meetings *hrj_meetings_create(void);
void hrj_meetings_release(hrj_meetings *meetings);
/* The function of device `device` that gathers `bytes` bytes of each of these devices. `links`: NULL, or theirs. */
hr_status hrj_gather(hrj_meetings *meetings, hrj_links *links, int device, int count, const int *devices, size_t bytes,
                     hr_function_spec *out_spec);
/* A call of device `root` alone, as the function of device `device`: the others get its results, of so many bytes each,
 * and wait for them if there are any. All devices call it in the order of their gathers. Takes over the inner spec. */
hr_status hrj_once(hrj_meetings *meetings, int device, int device_count, int root, int result_count,
                   const size_t *result_bytes, const hr_function_spec *inner, hr_function_spec *out_spec);
/* Ends all waits with a failure: a device will not come. */
void hrj_meetings_break(hrj_meetings *meetings);
/* Breaks them if the work of a stream fails that was recorded until now; commits it. */
hr_status hrj_meetings_watch(hrj_meetings *meetings, hr_stream *stream);
/* Lets devices meet again, if none waits any more. */
void hrj_meetings_mend(hrj_meetings *meetings);
bool hrj_meetings_are_broken(hrj_meetings *meetings);

#endif
