/* HEADRACE_THREADS=1 applies everywhere: neither our team nor a library's has a thread besides the running one. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/thread.h"
#include "headrace/stream.h"
#include "hr_test.h"

enum { N = HR_TEST_SHARE == 1 ? 512 : 256 };
static const int64_t dims[2] = {N, N}, strides[2] = {N, 1};

/* Counts the threads of this process other than the caller and our named non-team threads. */
static int count_others(void) {
  int count = -1; /* the caller */
  DIR *tasks = opendir("/proc/self/task");
  for (const struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
    FILE *file = task->d_name[0] != '.' ? fopen(path, "r") : NULL;
    if (file != NULL) {
      bool is_known = fgets(name, sizeof name, file) != NULL && strncmp(name, "headrace-run", 12) == 0;
      count += !is_known;
      fclose(file);
    }
  }
  if (tasks != NULL) {
    closedir(tasks);
  }
  return count;
}

static hr_view view_of(hr_buffer *buffer) {
  return (hr_view){.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides};
}

HR_TEST(a_product_and_a_long_loop_run_on_one_thread) {
  hr_device *device;
  hr_stream *stream;
  hr_buffer *x, *y;
  if (count_others() < 0) {
    HR_SKIP("no /proc");
  }
  setenv("HEADRACE_THREADS", "1", 1);
  setenv("HEADRACE_JIT", "off", 1);
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_stream_create(device, &stream));
  HR_ASSERT_OK(hr_buffer_create(device, N * N * sizeof(float), &x));
  HR_ASSERT_OK(hr_buffer_create(device, N * N * sizeof(float), &y));
  float *values = calloc(N * N, sizeof *values);
  values[1] = 2, values[N + 1] = 3;
  hr_view a = view_of(x), b = view_of(y);
  HR_ASSERT_OK(hr_stream_write(stream, &a, values));
  for (int i = 0; i < 4; ++i) {
    hr_view inputs[3] = {a, a, {.dtype = HR_DTYPE_F32}};
    HR_ASSERT_OK(hr_stream_record(stream, HR_OP_MATMUL, NULL, 2, inputs, 1, &b));
    HR_ASSERT_OK(hr_stream_record(stream, HR_OP_TANH, NULL, 1, &a, 1, &a));
    HR_ASSERT_OK(hr_stream_write(stream, &a, values));
    HR_ASSERT_OK(hr_stream_read(stream, &b, values));
    HR_ASSERT_EQ(values[1], 6);
    values[1] = 2, values[N + 1] = 3;
    HR_ASSERT_OK(hr_stream_write(stream, &a, values));
  }
  HR_ASSERT_EQ(hr_thread_count(), 1);
  HR_ASSERT_EQ(count_others(), 0);
  free(values);
  hr_buffer_release(x);
  hr_buffer_release(y);
  hr_stream_release(stream);
  hr_device_release(device);
}
