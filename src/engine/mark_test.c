/* Marks: reached after the work before them, without a wait. */
#include "hr_test.h"

#include <unistd.h>

#include "headrace/mark.h"

static void record_fill(hr_stream *stream, hr_buffer *buffer) {
  const int64_t dims[] = {64}, strides[] = {1};
  const hr_scalar one = hr_scalar_f64(1.0);
  const hr_view in = {.scalar = &one, .dtype = HR_DTYPE_F32};
  const hr_view out = {.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 1, .dims = dims, .strides = strides};
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_COPY, &(hr_attrs){0}, 1, &in, 1, &out));
}

static void wait_for(const hr_mark *mark) {
  for (int i = 0; i < 20000 && !hr_mark_is_reached(mark); ++i) {
    usleep(1000);
  }
  HR_ASSERT(hr_mark_is_reached(mark));
}

HR_TEST(marks_are_reached_in_order_without_a_wait) {
  hr_device *device;
  hr_stream *stream;
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_stream_create(device, &stream));
  HR_ASSERT_OK(hr_buffer_create(device, 256, &buffer));
  hr_mark *marks[3];
  for (int i = 0; i < 3; ++i) {
    record_fill(stream, buffer);
    HR_ASSERT_OK(hr_mark_create(stream, &marks[i]));
  }
  wait_for(marks[2]);
  HR_ASSERT(hr_mark_is_reached(marks[0]) && hr_mark_is_reached(marks[1]));
  HR_ASSERT(0 < hr_mark_ns(marks[0]) && hr_mark_ns(marks[0]) <= hr_mark_ns(marks[1]));
  HR_ASSERT(hr_mark_ns(marks[1]) <= hr_mark_ns(marks[2]));
  HR_ASSERT(hr_mark_is_last(marks[2], stream) && !hr_mark_is_last(marks[1], stream));
  record_fill(stream, buffer);
  HR_ASSERT(!hr_mark_is_last(marks[2], stream));
  for (int i = 0; i < 3; ++i) {
    hr_mark_release(marks[i]);
  }
  hr_mark *last;
  HR_ASSERT_OK(hr_mark_try_create(stream, &last));
  HR_ASSERT(last != NULL);
  hr_mark_release(last); /* before it is reached: the queue has its own reference */
  hr_mark_release(NULL);
  hr_buffer_release(buffer);
  hr_stream_release(stream);
  hr_device_release(device);
}
