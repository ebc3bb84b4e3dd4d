/* Origins of a graph's operations in profiles: of the session's own graph, and of copies that it makes. */
#include "headrace/profile.h"
#include "session/session_test.h"

static void close_stream(void) {
  hr_stream_release(stream);
  hr_device_release(device);
  stream = NULL;
}

/* sin(x * 2) with origins 5 and 6, and a loop of 3 additions with origin 7. */
static hr_graph *make_graph(void) {
  hr_graph *body = new_graph();
  hr_value i = input_of(body, "i", HR_DTYPE_I64, ""), c = input_of(body, "c", HR_DTYPE_F32, "4");
  (void)i;
  hr_graph_origin(body, 7);
  hr_graph_output(body, "c", ADD(body, ADD, VALUES(c, c), 0, NULL));
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "4");
  hr_graph_origin(g, 5);
  hr_value y = ADD(g, MULTIPLY, VALUES(x, hr_graph_number(g, hr_scalar_f64(2))), 0, NULL);
  hr_graph_origin(g, 6);
  y = ADD(g, SIN, VALUES(y), 0, NULL);
  hr_graph_origin(g, 0);
  const hr_type count_type = {.dtype = HR_DTYPE_I64};
  hr_value count = hr_graph_constant(g, &count_type, &(int64_t){3});
  y = hr_graph_for(g, count, body, 1, 1, &y);
  hr_graph_output(g, "y", y);
  hr_graph_release(body);
  return g;
}

typedef struct counts {
  int by_correlation[1100], others;
} counts;

static void count_record(void *arg, const hr_profile_record *record) {
  counts *c = arg;
  for (int64_t i = 0; record->kind == HR_PROFILE_KERNEL && i < record->operation_count; ++i) {
    uint64_t correlation = record->correlations != NULL ? record->correlations[i] : 0;
    if (correlation < 1100) {
      ++c->by_correlation[correlation];
    } else {
      ++c->others;
    }
  }
}

static void run_once(hr_session *session) {
  static const float numbers[4] = {1, 2, 3, 4};
  hr_tensor x = tensor_of(HR_DTYPE_F32, DIMS(4), numbers), y = {0};
  const hr_tensor *inputs[1] = {&x};
  float got[4];
  HR_ASSERT_OK(hr_session_run(session, 1, inputs, 1, &y));
  read(&y, got);
  hr_tensor_release(&x);
  hr_tensor_release(&y);
}

/* Runs the session twice in a profile, the second time with a correlation, and counts the operations of kernels. */
static counts profile_of(hr_session *session) {
  counts c = {0};
  hr_profile *profile;
  HR_ASSERT_OK(hr_profile_create(device, 0, 0, &profile));
  HR_ASSERT_OK(hr_profile_start(profile));
  run_once(session);
  hr_profile_correlate(1000);
  run_once(session);
  hr_profile_correlate(0);
  HR_ASSERT_OK(hr_profile_stop(profile));
  HR_ASSERT_OK(hr_profile_read(profile, sizeof(hr_profile_record), count_record, &c));
  hr_profile_release(profile);
  return c;
}

HR_TEST(operations_have_the_origin_of_their_node) {
  hr_graph *g = make_graph();
  hr_session *session = session_of(g, NULL);
  run_once(session);
  counts c = profile_of(session);
  HR_ASSERT_EQ(c.by_correlation[1005], 1);
  HR_ASSERT_EQ(c.by_correlation[1006], 1);
  HR_ASSERT_EQ(c.by_correlation[1007], 3);
  HR_ASSERT_EQ(c.by_correlation[5] + c.by_correlation[6] + c.by_correlation[7], 0); /* no run was named */
  HR_ASSERT_EQ(c.others, 0);
  hr_session_release(session);
  hr_graph_release(g);
  close_stream();
}

HR_TEST(graphs_without_origins_have_the_number_of_the_run) {
  hr_graph *g = new_graph();
  hr_value x = input_of(g, "x", HR_DTYPE_F32, "4");
  hr_graph_output(g, "y", ADD(g, SIN, VALUES(x), 0, NULL));
  hr_session *session = session_of(g, NULL);
  counts c = profile_of(session);
  HR_ASSERT(c.by_correlation[1000] >= 1); /* also the copy of x */
  HR_ASSERT_EQ(c.others, 0);
  hr_session_release(session);
  hr_graph_release(g);
  close_stream();
}
