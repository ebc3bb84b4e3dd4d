/* links_test.c: gathers between GPUs that another one fails to join, on a stub of NCCL (tests/stubs/nccl.c) and the
 * stand-in of the CUDA driver. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../csrc/links.h"
#include "cuda_stand_in.h"
#include "hr_test.h"
#include "nccl_counts.h"

enum { COUNT = 8, BYTES = COUNT * sizeof(float) };

typedef hr__nccl_counts counts;

static counts *stub(void) {
  setenv("HEADRACE_NCCL", HR_TEST_NCCL, 1); /* before the first use of the core, which reads it then */
  void *library = dlopen(HR_TEST_NCCL, RTLD_NOW), *found = library != NULL ? dlsym(library, "ncclStubCounts") : NULL;
  HR_ASSERT(found != NULL);
  memset(found, 0, sizeof(counts));
  return found;
}

typedef struct world {
  pjrt_client client;
  pjrt_device devices[2];
  pjrt_device *list[2];
  hr_device *device;
  hrj_links *links;
} world;

static void begin(world *w) {
  memset(w, 0, sizeof *w);
  pthread_mutex_init(&w->client.linking, NULL);
  HR_ASSERT_OK(hr_device_open("cuda", &w->device));
  for (int i = 0; i < 2; ++i) {
    pjrt_device *device = &w->devices[i];
    device->client = &w->client, device->number = i, device->device = w->device;
    snprintf(device->name, sizeof device->name, "headrace:%d", i);
    HR_ASSERT_OK(hr_stream_create(w->device, &device->stream));
    w->list[i] = device;
  }
  HR_ASSERT_OK(hrj_links_find(&w->client, 2, w->list, &w->links));
  HR_ASSERT(w->links != NULL);
}

static void end(world *w) {
  hrj_links_release(&w->client);
  for (int i = 0; i < 2; ++i) {
    hr_stream_release(w->devices[i].stream);
  }
  hr_device_release(w->device);
  pthread_mutex_destroy(&w->client.linking);
}

static hr_status gather(world *w, int place) {
  static float in[COUNT], out[2 * COUNT];
  static char flag, flags;
  void *inputs[] = {in, &flag}, *outputs[] = {out, &flags};
  const hr_function_call call = {
      .queue = hr_device_queue(w->device), .input_count = 2, .inputs = inputs, .output_count = 2, .outputs = outputs};
  return hrj_links_gather(w->links, place, BYTES, &call);
}

static void sleep_ms(long ms) {
  nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static void check(counts *c) {
  world w;
  begin(&w);
  HR_ASSERT_OK(gather(&w, 0));
  HR_ASSERT_OK(gather(&w, 1));
  HR_ASSERT_EQ(c->communicators, 2);
  fake_is_busy = true; /* the first device waits for the second one, which fails */
  HR_ASSERT_OK(gather(&w, 0));
  c->next_error = 3;
  HR_ASSERT_ERROR(gather(&w, 1), HR_STATUS_UNAVAILABLE, "earlier work: an error of the stub");
  c->next_error = 0;
  hr_status status = HR_OK;
  for (int i = 0; i < 1000 && status == HR_OK; ++i) {
    sleep_ms(20);
    status = hr_stream_synchronize(w.devices[0].stream);
  }
  HR_ASSERT_ERROR(status, HR_STATUS_UNAVAILABLE,
                  "headrace:1, device 1 of 2 of a gather, has failed: NCCL: earlier work");
  for (int i = 0; i < 500 && c->aborts == 0; ++i) {
    sleep_ms(20);
  }
  HR_ASSERT(c->aborts > 0);
  HR_ASSERT_ERROR(gather(&w, 0), HR_STATUS_UNAVAILABLE, "headrace:1, device 1 of 2 of a gather, has failed");
  fake_is_busy = false;
  end(&w);
  HR_ASSERT_EQ(c->communicators, 0);
}

HR_TEST(a_gather_fails_with_the_device_that_does_not_join) {
  hr_context *context, *before;
  counts *c = stub();
  HR_ASSERT_OK(hr__context_create(&context));
  before = hr__context_enter(context);
  hr__cuda_replace(&fake, 1);
  check(c);
  hr__context_enter(before);
  hr__context_destroy(context);
  hr__cuda_replace(NULL, 0);
}
