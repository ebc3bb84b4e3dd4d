/* layout_fixture.h: a stream on the CPU whose programs may choose the layouts of buffers that live on. */
#ifndef HEADRACE_TESTS_LAYOUT_FIXTURE_H_
#define HEADRACE_TESTS_LAYOUT_FIXTURE_H_

#include "hr_test.h"

#include "engine/stream.h"

typedef struct fixture {
  hr_device *device;
  hr_stream *stream;
} fixture;

static fixture open_fixture(void) {
  fixture f;
  HR_ASSERT_OK(hr_device_open("cpu", &f.device));
  HR_ASSERT_OK(hr_stream_create(f.device, &f.stream));
  hr_stream_set_mode(f.stream, HR_MODE_FUSE);
  f.stream->frees_live = true;
  return f;
}

static void close_fixture(fixture *f) {
  hr_stream_release(f->stream);
  hr_device_memory_limit(f->device, 0);
  hr_device_release(f->device);
}

#endif
