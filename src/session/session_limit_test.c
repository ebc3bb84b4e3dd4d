/* The number of threads of a session's runs: loops and library calls are counted, not the process's threads. Some of
 * these, such as the one that compiles kernels, start and end at any time. */
#include "base/thread.h"
#include "headrace/array.h"
#include "session/session_test.h"

enum { ROWS = 2048, WIDTH = 256 };

static hr_tensor numbers_of(const int64_t *dims) {
  size_t count = (size_t)(dims[0] * dims[1]);
  float *elements = malloc(count * sizeof *elements);
  hr_tensor x = {0};
  for (size_t i = 0; i < count; ++i) {
    elements[i] = (float)(i * 2654435761u % 1009) / 1009.0f - 0.5f;
  }
  HR_ASSERT_OK(hr_array_from_host(stream, HR_DTYPE_F32, 2, dims, elements, &x));
  free(elements);
  return x;
}

/* Runs the session twice, so that kept weights are used, too; the caller frees the elements. */
static float *answer(hr_session *session, int64_t rows) {
  hr_tensor x = numbers_of((int64_t[]){rows, WIDTH}), w = numbers_of((int64_t[]){WIDTH, WIDTH}), y;
  const hr_tensor *inputs[2] = {&x, &w};
  float *elements = malloc((size_t)rows * WIDTH * sizeof *elements);
  for (int run = 0; run < 2; ++run) {
    HR_ASSERT_OK(hr_session_run(session, 2, inputs, 1, &y));
    HR_ASSERT_OK(hr_array_read(stream, &y, elements));
    hr_tensor_release(&y);
  }
  hr_tensor_release(&x);
  hr_tensor_release(&w);
  return elements;
}

HR_TEST(a_session_uses_at_most_its_threads_with_the_same_bits) {
  hr_graph *g = graph_of("graph 1\ninput %x f32[n, 256]\ninput %w f32[256, 256]\n%0 = matmul(%x, %w)\n"
                         "%1 = softmax(%0, axis=1)\n%2 = add(%1, %x)\n%3 = tanh(%2)\noutput y = %3\n");
  float *got[3];
  hr_thread_count_set(2);
  hr_session *sessions[3] = {NULL};
  for (int threads = 0; threads < 3; ++threads) {
    sessions[threads] = session_of(g, &(hr_session_options){.threads = threads});
  }
  const hr_tensor types[2] = {
      {.dtype = HR_DTYPE_F32, .rank = 2, .dims = {ROWS, WIDTH}, .strides = {WIDTH, 1}},
      {.dtype = HR_DTYPE_F32, .rank = 2, .dims = {WIDTH, WIDTH}, .strides = {WIDTH, 1}},
  };
  (void)hr_parallel_peak_take();
  HR_ASSERT_OK(hr_session_warm(sessions[1], 2, (const hr_tensor *[]){&types[0], &types[1]}));
  HR_ASSERT_EQ(hr_parallel_peak_take(), 1);
  got[1] = answer(sessions[1], ROWS);
  HR_ASSERT_EQ(hr_parallel_peak_take(), 1);
  got[2] = answer(sessions[2], ROWS);
  HR_ASSERT_EQ(hr_parallel_peak_take(), 2);
  got[0] = answer(sessions[0], ROWS);
  for (int threads = 0; threads < 2; ++threads) {
    HR_ASSERT(memcmp(got[threads], got[2], ROWS * WIDTH * sizeof *got[2]) == 0);
  }
  for (int threads = 0; threads < 3; ++threads) {
    free(got[threads]);
    hr_session_release(sessions[threads]);
  }
  hr_thread_count_set(0);
  hr_graph_release(g);
}

HR_TEST(wrong_numbers_of_threads_are_refused) {
  hr_graph *g = graph_of("graph 1\ninput %x f32[n]\noutput y = %x\n");
  open_stream();
  static const struct {
    int threads;
    const char *message;
  } wrong[] = {{-1, "session: threads is -1, expected 1 to 1024, or 0 for all"},
               {1025, "session: threads is 1025, expected 1 to 1024, or 0 for all"}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    hr_session *session = NULL;
    hr_status status = hr_session_create(stream, g, &(hr_session_options){.threads = wrong[i].threads}, &session);
    HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_INVALID_ARGUMENT);
    HR_ASSERT(strcmp(hr_status_message(status), wrong[i].message) == 0 && session == NULL);
    hr_status_free(status);
  }
  hr_status status = hr_stream_begin_threads(stream, 0);
  HR_ASSERT(strcmp(hr_status_message(status), "threads is 0, expected 1 to 1024") == 0);
  hr_status_free(status);
  hr_graph_release(g);
}
