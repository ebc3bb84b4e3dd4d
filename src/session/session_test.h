/* session_test.h: sessions for tests. */
#ifndef HEADRACE_SESSION_TEST_H_
#define HEADRACE_SESSION_TEST_H_

#include "graph/graph_test.h"
#include "headrace/session.h"

static inline hr_session_stats stats_of(hr_session *session) {
  hr_session_stats stats;
  hr_session_stats_read(session, sizeof stats, &stats);
  return stats;
}

/* On the test's stream, which is opened. */
static inline hr_session *session_of(const hr_graph *graph, const hr_session_options *options) {
  hr_session *session = NULL;
  open_stream();
  HR_ASSERT_OK(hr_session_create(stream, graph, options, &session));
  return session;
}

#endif
