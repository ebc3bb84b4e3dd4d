/* links.c: communicators of NCCL, one for each device of a list.
 *
 * NCCL waits forever for a device that has not enqueued its part. So each communicator is watched: a gather fails
 * within seconds of a failure of another device's, and after GATHER_NS if nobody knows why. So does the first one, in
 * which the devices join. Links that have failed stay so. */
#include "links.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "headrace/nccl.h"

enum { FAILURE_BYTES = 400 };
/* Earlier work of the slowest device is a part of the time. */
#define GATHER_NS (INT64_C(600) * 1000000000)

struct hrj_links {
  int count;
  pjrt_device *devices[HR_STABLEHLO_DEVICES_MAX];
  hr_nccl_id id;
  hr_nccl *ranks[HR_STABLEHLO_DEVICES_MAX]; /* each is its device's; NULL: it has not joined */
  pthread_mutex_t lock;                     /* guards the failure */
  char failure[FAILURE_BYTES];              /* of the first device that could not enqueue its part; empty: none */
  hrj_links *next;
};

static hr_status create(pjrt_client *client, int count, pjrt_device *const *devices, hrj_links **out_links) {
  hrj_links *links = calloc(1, sizeof *links);
  if (links == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, HRJ_PLATFORM ": no host memory for links of devices");
  }
  links->count = count;
  memcpy(links->devices, devices, (size_t)count * sizeof(pjrt_device *));
  hr_status status = hr_nccl_make_id(&links->id);
  if (status != HR_OK) {
    free(links);
    return status;
  }
  pthread_mutex_init(&links->lock, NULL);
  links->next = client->links, client->links = links;
  *out_links = links;
  return HR_OK;
}

hr_status hrj_links_find(pjrt_client *client, int count, pjrt_device *const *devices, hrj_links **out_links) {
  *out_links = NULL;
  if (devices[0]->is_host) {
    return HR_OK;
  }
  hr_status status = hr_nccl_check();
  if (status != HR_OK) {
    hr_status_ignore(status); /* then tensors take the way through the host's memory */
    return HR_OK;
  }
  pthread_mutex_lock(&client->linking);
  hrj_links *links = client->links;
  while (links != NULL &&
         (links->count != count || memcmp(links->devices, devices, (size_t)count * sizeof(pjrt_device *)) != 0)) {
    links = links->next;
  }
  status = links == NULL ? create(client, count, devices, &links) : HR_OK;
  pthread_mutex_unlock(&client->linking);
  *out_links = links;
  return status;
}

/* ---- failures ---- */

static void note_failure(hrj_links *links, int place, hr_status status) {
  pthread_mutex_lock(&links->lock);
  if (links->failure[0] == 0) {
    snprintf(links->failure, sizeof links->failure, "%s, device %d of %d of a gather, has failed: %s",
             links->devices[place]->name, place, links->count, hr_status_message(status));
  }
  pthread_mutex_unlock(&links->lock);
}

/* Before a gather, and on the thread that watches one that takes long. */
static hr_status look_at_others(void *arg) {
  hrj_links *links = arg;
  pthread_mutex_lock(&links->lock);
  hr_status status = links->failure[0] != 0 ? hr_status_make(HR_STATUS_UNAVAILABLE, "%s", links->failure) : HR_OK;
  pthread_mutex_unlock(&links->lock);
  return status;
}

/* ---- gathers ---- */

static hr_status join(hrj_links *links, int place) {
  hr_nccl **rank = &links->ranks[place];
  const hr_nccl_wait wait = {.timeout_ns = GATHER_NS, .look = look_at_others, .arg = links};
  HR_RETURN_IF_ERROR(hr_nccl_create(links->devices[place]->device, &links->id, place, links->count, &wait, rank));
  hr_status status = hr_nccl_watch(*rank, links->devices[place]->stream, look_at_others, links);
  if (status != HR_OK) {
    hr_nccl_release(*rank);
    *rank = NULL;
  }
  return status;
}

static hr_status exchange(const hrj_links *links, int place, size_t bytes, const hr_function_call *call) {
  hr_group_block blocks[HR_STABLEHLO_DEVICES_MAX] = {{0}}, flags[HR_STABLEHLO_DEVICES_MAX] = {{0}};
  for (int r = 0; r < links->count; ++r) {
    blocks[r] = (hr_group_block){.from = call->inputs[0],
                                 .send_bytes = (int64_t)bytes,
                                 .to = (char *)call->outputs[0] + (size_t)r * bytes,
                                 .receive_bytes = (int64_t)bytes};
  }
  flags[place] = (hr_group_block){.from = call->inputs[1], .send_bytes = 1, .to = call->outputs[1], .receive_bytes = 1};
  hr_status status = hr_nccl_exchange(links->ranks[place], "gather", blocks);
  return status == HR_OK ? hr_nccl_exchange(links->ranks[place], "gather", flags) : status;
}

static hr_status gather(hrj_links *links, int place, size_t bytes, const hr_function_call *call) {
  const hr_group_call named = {.name = "gather", .timeout_ns = GATHER_NS};
  hr_nccl *const *rank = &links->ranks[place];
  HR_RETURN_IF_ERROR(look_at_others(links));
  if (*rank == NULL) {
    HR_RETURN_IF_ERROR(join(links, place));
  }
  hr_nccl_set_queue(*rank, call->queue);
  HR_RETURN_IF_ERROR(hr_nccl_begin_calls(*rank));
  hr_nccl_expect(*rank, &named);
  return hr_nccl_end_calls(*rank, exchange(links, place, bytes, call));
}

hr_status hrj_links_gather(hrj_links *links, int place, size_t bytes, const hr_function_call *call) {
  hr_status status = gather(links, place, bytes, call);
  if (status != HR_OK) {
    note_failure(links, place, status);
  }
  return status;
}

void hrj_links_release(pjrt_client *client) {
  while (client->links != NULL) {
    hrj_links *links = client->links;
    client->links = links->next;
    for (int r = 0; r < links->count; ++r) {
      hr_nccl_release(links->ranks[r]);
    }
    pthread_mutex_destroy(&links->lock);
    free(links);
  }
}
