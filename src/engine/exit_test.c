/* A process may end while its device still works: the libraries that do the work stay loaded until it is done.
 *
 * Each child opens the device for itself, submits products and convolutions, and leaves by exit() without waiting. The
 * parent opens nothing, so that it may fork.
 */
#include "hr_test.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/env.h"
#include "engine/stream.h"

enum { CHILDREN = 50, COMMITS = 6 };

/* Without a library there is less to go wrong, and plain loops are slow: then one child with one commit will do. */
static bool has_library(void) {
  return hr_env_text(HR_ENV_ONEDNN)[0] != 0;
}

static const int64_t matrix_dims[2] = {384, 384}, matrix_strides[2] = {384, 1};
static const int64_t image_dims[4] = {8, 16, 32, 32}, image_strides[4] = {16 * 32 * 32, 32 * 32, 32, 1};
static const int64_t weight_dims[4] = {16, 16, 3, 3}, weight_strides[4] = {16 * 9, 9, 3, 1};

typedef struct work {
  hr_device *device;
  hr_stream *stream;
} work;

static hr_status make(const work *w, int rank, const int64_t *dims, const int64_t *strides, hr_view *out_view) {
  *out_view = (hr_view){.dtype = HR_DTYPE_F32, .rank = rank, .dims = dims, .strides = strides};
  return hr_buffer_create(w->device, (size_t)(dims[0] * strides[0]) * sizeof(float), &out_view->buffer);
}

static hr_status make_ones(const work *w, int rank, const int64_t *dims, const int64_t *strides, hr_view *out_view) {
  hr_scalar one = hr_scalar_f64(1);
  hr_view number = {.scalar = &one, .dtype = one.dtype};
  HR_RETURN_IF_ERROR(make(w, rank, dims, strides, out_view));
  return hr_stream_record(w->stream, HR_OP_COPY, NULL, 1, &number, 1, out_view);
}

/* One trace: a product and a convolution, whose results live until they have been made. */
static hr_status record_once(const work *w, const hr_view *matrix, const hr_view *image, const hr_view *weight) {
  static const int64_t conv[] = {2, 1, 1, 1, 1, 1, 1, 1};
  hr_attrs attrs = {.int_count = sizeof conv / sizeof *conv, .ints = conv};
  hr_view product, filtered, factors[3] = {*matrix, *matrix, {0}}, inputs[3] = {*image, *weight, {0}};
  HR_RETURN_IF_ERROR(make(w, 2, matrix_dims, matrix_strides, &product));
  HR_RETURN_IF_ERROR(make(w, 4, image_dims, image_strides, &filtered));
  HR_RETURN_IF_ERROR(hr_stream_record(w->stream, HR_OP_MATMUL, NULL, 3, factors, 1, &product));
  HR_RETURN_IF_ERROR(hr_stream_record(w->stream, HR_OP_CONV, &attrs, 3, inputs, 1, &filtered));
  HR_RETURN_IF_ERROR(hr_stream_commit(w->stream));
  hr_buffer_release(product.buffer);
  hr_buffer_release(filtered.buffer);
  return HR_OK;
}

/* The device and its stream are never released. */
static hr_status leave_work_in_flight(void) {
  static work w;
  static hr_view matrix, image, weight;
  HR_RETURN_IF_ERROR(hr_device_open("cpu", &w.device));
  HR_RETURN_IF_ERROR(hr_stream_create(w.device, &w.stream));
  hr_stream_set_mode(w.stream, HR_MODE_FUSE);
  HR_RETURN_IF_ERROR(make_ones(&w, 2, matrix_dims, matrix_strides, &matrix));
  HR_RETURN_IF_ERROR(make_ones(&w, 4, image_dims, image_strides, &image));
  HR_RETURN_IF_ERROR(make_ones(&w, 4, weight_dims, weight_strides, &weight));
  for (int i = 0; i < (has_library() ? COMMITS : 1); ++i) {
    HR_RETURN_IF_ERROR(record_once(&w, &matrix, &image, &weight));
  }
  hr_buffer_release(matrix.buffer);
  hr_buffer_release(image.buffer);
  hr_buffer_release(weight.buffer);
  return HR_OK;
}

static void linger(void) {
  usleep(10000);
}

/* Forks. The child runs `fn`, and `delay` microseconds later exits with 0, or 1 on an error. Handlers of exit run in
 * reverse order: after all libraries have torn themselves down the child lingers, so that work still running then is
 * seen. Returns the result of waitpid. */
static int run_child(hr_status (*fn)(void), unsigned delay) {
  pid_t child = fork();
  HR_ASSERT(child >= 0);
  if (child == 0) {
    atexit(linger);
    hr_status status = fn();
    if (status != HR_OK) {
      fprintf(stderr, "child: %s\n", hr_status_message(status));
    }
    usleep(delay);
    exit(status != HR_OK);
  }
  int outcome = -1;
  HR_ASSERT(waitpid(child, &outcome, 0) == child);
  return outcome;
}

HR_TEST(a_process_may_exit_with_work_in_flight) {
  for (unsigned i = 0; i < (has_library() ? CHILDREN : 1); ++i) {
    HR_ASSERT_EQ(run_child(leave_work_in_flight, i * 20), 0);
  }
}

/* A child of a process that works has no thread to wait for. */
static hr_status fork_with_work_in_flight(void) {
  HR_RETURN_IF_ERROR(leave_work_in_flight());
  pid_t child = fork();
  if (child == 0) {
    exit(0);
  }
  int outcome = -1;
  if (child < 0 || waitpid(child, &outcome, 0) != child || outcome != 0) {
    return hr_status_make(HR_STATUS_INTERNAL, "the child's child ended with %d", outcome);
  }
  return HR_OK;
}

HR_TEST(a_forked_child_of_a_process_that_works_may_exit) {
#ifdef __SANITIZE_ADDRESS__
  HR_SKIP("the work that ended with its thread leaves its memory behind, which counts as a leak");
#endif
  HR_ASSERT_EQ(run_child(fork_with_work_in_flight, 0), 0);
}
