/* links.h: GPUs of a client that exchange tensors through NCCL, without the host's memory.
 *
 * The programs of a client share the links of each list of devices, because joining takes 100 ms and more. Devices use
 * links in one order, that of the client's launches.
 *
 * Threads: hrj_links_find any; hrj_links_gather that of the device's work.
 */
#ifndef HEADRACE_JAX_LINKS_H_
#define HEADRACE_JAX_LINKS_H_

#include "plugin.h"

typedef struct hrj_links hrj_links;

/* The links of these devices, which the client owns; NULL: their memory is the host's, or there is no NCCL. */
hr_status hrj_links_find(pjrt_client *client, int count, pjrt_device *const *devices, hrj_links **out_links);
/* Enqueues a gather of the call's first input, of `bytes` bytes on each device, into the first output, in the order of
 * the devices. The second operands, of one byte each, order effects. All devices call it; the first time they wait for
 * each other to join. If one of them fails, the others' streams fail within seconds, with its name. */
hr_status hrj_links_gather(hrj_links *links, int place, size_t bytes, const hr_function_call *call);
/* Ends all links of a client. */
void hrj_links_release(pjrt_client *client);

#endif
