/* Buffers that lie in shared memory (headrace/share.h). One process plays both sides: it maps the file twice. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hr_test.h"

#include "headrace/share.h"
#include "runtime/device.h"

enum { COUNT = 1000, BYTES = COUNT * 4 };

typedef struct fixture {
  hr_device *device;
  hr_stream *stream;
} fixture;

static fixture open_fixture(void) {
  fixture f;
  HR_ASSERT_OK(hr_device_open("cpu", &f.device));
  HR_ASSERT_OK(hr_stream_create(f.device, &f.stream));
  return f;
}

static void close_fixture(fixture *f) {
  hr_stream_release(f->stream);
  hr_device_release(f->device);
}

static const int64_t dims[] = {COUNT}, strides[] = {1};

static hr_view view_of(hr_buffer *buffer) {
  return (hr_view){.buffer = buffer, .dtype = HR_DTYPE_I32, .rank = 1, .dims = dims, .strides = strides};
}

static void write_ramp(const fixture *f, hr_buffer *buffer, int first) {
  int32_t values[COUNT];
  for (int i = 0; i < COUNT; ++i) {
    values[i] = first + i;
  }
  hr_view view = view_of(buffer);
  HR_ASSERT_OK(hr_stream_write(f->stream, &view, values));
  HR_ASSERT_OK(hr_stream_synchronize(f->stream));
}

static void check_ramp(const fixture *f, hr_buffer *buffer, int first) {
  int32_t values[COUNT];
  hr_view view = view_of(buffer);
  HR_ASSERT_OK(hr_stream_read(f->stream, &view, values));
  for (int i = 0; i < COUNT; ++i) {
    HR_ASSERT_EQ(values[i], first + i);
  }
}

static hr_buffer *make_ramp(const fixture *f, int first) {
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_buffer_create(f->device, BYTES, &buffer));
  write_ramp(f, buffer, first);
  return buffer;
}

static void count_release(void *arg) {
  ++*(int *)arg;
}

HR_TEST(both_have_the_same_memory_until_the_last_releases_it) {
  fixture f = open_fixture();
  hr_buffer *mine = make_ramp(&f, 5), *yours;
  hr_shared shared;
  int file = -1, releases = 0;
  HR_ASSERT_OK(hr_stream_share(f.stream, mine, &shared, &file));
  HR_ASSERT(shared.bytes == BYTES && shared.offset == 0 && file >= 0);
  HR_ASSERT_OK(hr_buffer_open(f.device, &shared, dup(file), count_release, &releases, &yours));
  check_ramp(&f, yours, 5);
  write_ramp(&f, yours, 70);
  check_ramp(&f, mine, 70);
  write_ramp(&f, mine, 800);
  check_ramp(&f, yours, 800);
  hr_buffer_release(mine);
  check_ramp(&f, yours, 800);
  HR_ASSERT_EQ(releases, 0);
  hr_buffer_release(yours);
  HR_ASSERT_EQ(releases, 1);
  close_fixture(&f);
}

HR_TEST(what_is_pending_is_in_the_file) {
  fixture f = open_fixture();
  hr_buffer *mine = make_ramp(&f, 5), *yours;
  hr_view view = view_of(mine);
  HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_ADD, NULL, 2, (hr_view[]){view, view}, 1, &view));
  hr_shared shared;
  int file;
  HR_ASSERT_OK(hr_stream_share(f.stream, mine, &shared, &file));
  HR_ASSERT_OK(hr_buffer_open(f.device, &shared, dup(file), NULL, NULL, &yours));
  int32_t values[COUNT];
  view = view_of(yours);
  HR_ASSERT_OK(hr_stream_read(f.stream, &view, values));
  HR_ASSERT(values[0] == 10 && values[COUNT - 1] == 2 * (COUNT + 4));
  hr_buffer_release(mine);
  hr_buffer_release(yours);
  close_fixture(&f);
}

HR_TEST(sharing_again_gives_the_same_file_also_by_the_receiver) {
  fixture f = open_fixture();
  hr_buffer *mine = make_ramp(&f, 5), *yours;
  hr_shared shared;
  int file, again, theirs;
  HR_ASSERT_OK(hr_stream_share(f.stream, mine, &shared, &file));
  HR_ASSERT_OK(hr_stream_share(f.stream, mine, &shared, &again));
  HR_ASSERT_EQ(again, file);
  HR_ASSERT_OK(hr_buffer_open(f.device, &shared, dup(file), NULL, NULL, &yours));
  HR_ASSERT_OK(hr_stream_share(f.stream, yours, &shared, &theirs));
  HR_ASSERT(theirs != file && shared.bytes == BYTES);
  write_ramp(&f, yours, 9);
  check_ramp(&f, mine, 9);
  hr_buffer_release(mine);
  hr_buffer_release(yours);
  close_fixture(&f);
}

HR_TEST(an_address_that_was_given_out_stays_readable) {
  fixture f = open_fixture();
  hr_buffer *mine = make_ramp(&f, 5);
  void *address, *moved;
  hr_shared shared;
  int file;
  HR_ASSERT_OK(hr_stream_address(f.stream, mine, &address));
  HR_ASSERT_OK(hr_stream_share(f.stream, mine, &shared, &file));
  HR_ASSERT_OK(hr_stream_address(f.stream, mine, &moved));
  write_ramp(&f, mine, 60);
  HR_ASSERT(moved != address && ((int32_t *)address)[0] == 5 && ((int32_t *)moved)[0] == 60);
  hr_buffer_release(mine);
  close_fixture(&f);
}

static fixture opened; /* of share_and_open */

static hr_status share_and_open(void) {
  fixture *f = &opened;
  hr_buffer *mine = NULL, *yours = NULL;
  hr_shared shared;
  int file;
  HR_RETURN_IF_ERROR(hr_buffer_create(f->device, BYTES, &mine));
  hr_status status = hr_stream_share(f->stream, mine, &shared, &file);
  if (status == HR_OK) {
    int copy = dup(file);
    status = hr_buffer_open(f->device, &shared, copy, NULL, NULL, &yours);
    if (status != HR_OK) {
      HR_ASSERT_EQ(close(copy), 0); /* still the caller's */
    }
  }
  hr_buffer_release(mine);
  hr_buffer_release(yours);
  return status;
}

HR_TEST(each_allocation_may_fail) {
  opened = open_fixture();
  HR_TEST_OOM(share_and_open);
  close_fixture(&opened);
}

HR_TEST(what_fits_no_memory_is_refused) {
  fixture f = open_fixture();
  hr_buffer *mine = make_ramp(&f, 5), *empty, *none = NULL;
  hr_shared shared;
  int file, releases = 0;
  HR_ASSERT_OK(hr_buffer_create(f.device, 0, &empty));
  HR_ASSERT_ERROR(hr_stream_share(f.stream, empty, &shared, &file), HR_STATUS_INVALID_ARGUMENT, "empty");
  HR_ASSERT_OK(hr_stream_share(f.stream, mine, &shared, &file));
  const struct {
    int64_t bytes, offset;
    int file;
    const char *message;
  } wrong[] = {
      {BYTES, 0, -1, "expected some bytes at 0 and a file"},
      {0, 0, file, "of 0 bytes"},
      {-4, 0, file, "of -4 bytes"},
      {BYTES, 8, file, "at 8"},
      {BYTES + 1, 0, file, "expected a file of at least 4001"},
      {INT64_MAX, 0, file, "expected a file of at least"},
      {BYTES, 0, 9999, "the file"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    hr_shared bad = {.bytes = wrong[i].bytes, .offset = wrong[i].offset};
    HR_ASSERT_ERROR(hr_buffer_open(f.device, &bad, wrong[i].file, count_release, &releases, &none),
                    HR_STATUS_INVALID_ARGUMENT, wrong[i].message);
  }
  HR_ASSERT(releases == 0 && none == NULL);
  check_ramp(&f, mine, 5);
  hr_buffer_release(mine);
  hr_buffer_release(empty);
  close_fixture(&f);
}

HR_TEST(a_driver_without_names_says_so) {
  fixture f;
  HR_ASSERT_OK(hr_device_open("null", &f.device));
  f.device->properties.is_host = false;
  HR_ASSERT_OK(hr_stream_create(f.device, &f.stream));
  hr_buffer *mine, *none = NULL;
  hr_shared shared = {.bytes = BYTES};
  int file;
  HR_ASSERT_OK(hr_buffer_create(f.device, BYTES, &mine));
  HR_ASSERT_ERROR(hr_stream_share(f.stream, mine, &shared, &file), HR_STATUS_UNIMPLEMENTED, "can't share memory");
  HR_ASSERT_ERROR(hr_buffer_open(f.device, &shared, -1, NULL, NULL, &none), HR_STATUS_UNIMPLEMENTED,
                  "can't share memory");
  hr_buffer_release(mine);
  close_fixture(&f);
}
