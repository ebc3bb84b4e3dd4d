/* Code that a library generates once: a thread begins with it when a record will need it. */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hr_test.h"

#include "base/cpu.h"
#include "base/thread.h"
#include "engine/algorithms.h"
#include "engine/stream.h"
#include "headrace/part.h"
#include "providers/onednn/dnnl_api.h"

static bool is_open(const char *name) {
  const hr_provider *const *p = hr__algorithms_providers(HR_DIALECT_HOST);
  while (*p != NULL && strcmp((*p)->name, name) != 0) {
    ++p;
  }
  return *p != NULL;
}

static bool has_sgemm(void) {
  return atomic_load(&hr__dnnl_opened()->has_sgemm);
}

/* Records [rows, side] * [side, side], without running it. `strides`: the right factor's. */
static void record_strided(hr_stream *stream, int64_t rows, int64_t side, hr_dtype dtype, const int64_t *strides) {
  const int64_t dims[2][2] = {{rows, side}, {side, side}}, dense[] = {side, 1};
  hr_buffer *buffers[3];
  hr_view views[3];
  for (int i = 0; i < 3; ++i) {
    const int64_t *of = dims[i == 1];
    HR_ASSERT_OK(hr_buffer_create(hr_stream_device(stream), (size_t)(of[0] * of[1]) * 8, &buffers[i]));
    views[i] = (hr_view){.buffer = buffers[i], .dtype = dtype, .rank = 2, .dims = of, .strides = dense};
  }
  views[1].strides = strides;
  HR_ASSERT_OK(hr_stream_record(stream, HR_OP_MATMUL, NULL, 2, views, 1, &views[2]));
  for (int i = 0; i < 3; ++i) {
    hr_buffer_release(buffers[i]);
  }
}

static void record_product(hr_stream *stream, int64_t rows, int64_t side, hr_dtype dtype) {
  record_strided(stream, rows, side, dtype, (const int64_t[]){side, 1});
}

/* In a child, on one thread: a stream whose device has just opened the libraries. */
static hr_stream *open_on_one_thread(void) {
  alarm(20);
  hr_thread_count_set(1);
  hr_device *device;
  hr_stream *stream;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_stream_create(device, &stream));
  hr_stream_open_libraries(stream);
  return stream;
}

static void expect_success(pid_t child) {
  int result = 0;
  HR_ASSERT(waitpid(child, &result, 0) == child);
  HR_ASSERT_EQ(result, 0);
}

/* In a child, since the first call counts. */
HR_TEST(products_by_loops_of_our_own_generate_no_sgemm) {
  if (!hr_cpu_has(HR_CPU_AVX512F)) { /* else products of some size run by loops of our own */
    HR_SKIP("no AVX-512");
  }
  pid_t child = fork();
  if (child == 0) {
    hr_stream *stream = open_on_one_thread();
    record_product(stream, 8, 64, HR_DTYPE_F32);
    HR_ASSERT_OK(hr_stream_synchronize(stream));
    bool is_early = has_sgemm();
    record_product(stream, 8, 8, HR_DTYPE_F32);
    HR_ASSERT_OK(hr_stream_synchronize(stream));
    _exit(!is_early && has_sgemm() == is_open("sgemm") ? 0 : 1);
  }
  expect_success(child);
}

HR_TEST(one_thread_opens_libraries_at_once) {
  pid_t child = fork();
  if (child == 0) {
    (void)open_on_one_thread();
    bool is_loaded = hr__dnnl()->version != NULL;
    _exit(is_loaded == is_open("onednn") ? 0 : 1);
  }
  expect_success(child);
}

/* Loops of our own run them for up to 384 rows, but more rows may follow. */
HR_TEST(products_on_dense_columns_let_a_thread_generate_sgemm) {
  hr_device *device;
  hr_stream *stream;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_capture_create(device, &stream));
  hr_stream_open_libraries(stream);
  if (is_open("sgemm") && hr_core_count() > 1) {
    record_strided(stream, 16, 128, HR_DTYPE_F32, (const int64_t[]){1, 128});
    HR_ASSERT(atomic_load(&stream->is_expected));
    hr_libraries_wait();
  }
  hr_stream_release(stream);
  hr_device_release(device);
}

HR_TEST(a_recorded_product_of_rows_lets_a_thread_generate_sgemm) {
#ifdef __SANITIZE_THREAD__
  HR_SKIP("the sanitizer lets no child of a process with threads start its own");
#endif
  hr_device *device;
  hr_stream *stream;
  HR_ASSERT_OK(hr_device_open("cpu", &device));
  HR_ASSERT_OK(hr_capture_create(device, &stream));
  hr_stream_open_libraries(stream);
  if (!is_open("sgemm") || hr_core_count() == 1) {
    hr_stream_release(stream);
    hr_device_release(device);
    HR_SKIP("no oneDNN, or no second core");
  }
  record_product(stream, 1, 8, HR_DTYPE_F32); /* gemv's */
  record_product(stream, 8, 8, HR_DTYPE_F64);
  if (hr_cpu_has(HR_CPU_AVX512F)) {
    record_product(stream, 8, 64, HR_DTYPE_F32);
  }
  HR_ASSERT(!atomic_load(&stream->is_expected));
  record_product(stream, 8, 8, HR_DTYPE_F32);
  HR_ASSERT(atomic_load(&stream->is_expected));
  pid_t child = fork(); /* while the thread generates */
  if (child == 0) {
    alarm(20);
    hr__dnnl_generate_sgemm();
    _exit(has_sgemm() ? 0 : 1);
  }
  expect_success(child);
  hr_libraries_wait();
  HR_ASSERT(has_sgemm());
  hr_stream_release(stream);
  hr_device_release(device);
}
