/* graph_instance.h: a graph for one set of dims.
 *
 * An instance is made on a capture, whose parameters are the graph's inputs, then its variables, and whose results are
 * its outputs, then the values of its variables after a run. A result that is no buffer of its own there, such as a
 * view of an input or of a constant, is copied. Results of inner graphs, and values of variables, may be parameters.
 *
 * A graph that reads what the device computes, or whose loops are too long for a part, has a *live* instance: a run
 * evaluates it on the stream, and its inner graphs have instances of their own.
 */
#ifndef HEADRACE_SESSION_GRAPH_INSTANCE_H_
#define HEADRACE_SESSION_GRAPH_INSTANCE_H_

#include "graph/graph_evaluate.h"
#include "headrace/part.h"
#include "headrace/session.h"

typedef struct hr__graph_instance {
  struct hr__graph_instance *next; /* used before this one */
  const hr_graph *graph;           /* the session's, or an inner one of it */
  hr_part *part;                   /* NULL: live */
  int64_t *key;                    /* the numbers of its symbols, then those of inputs that it was made for */
  size_t key_count;
  hr_tensor *results; /* types */
  size_t *bytes;      /* of the results' buffers */
  int *params;        /* by result: the parameter that it is, or -1 */
} hr__graph_instance;

struct hr_session {
  hr_stream *stream;
  hr_graph *graph;
  hr_tensor **constants; /* by value: those of the graph, then those of its inner graphs; a variable's initial value */
  hr_tensor *variables;  /* their values */
  hr__graph_instance *first; /* used last */
  int instances_max;
  hr_session_stats stats;
};

static inline size_t hr__tensor_bytes(const hr_tensor *x) {
  return (size_t)hr_tensor_count(x) * hr_dtype_size(x->dtype);
}
/* The same view, with a reference of its own. */
static inline void hr__tensor_share(const hr_tensor *x, hr_tensor *out) {
  *out = *x;
  hr_buffer_retain(out->buffer);
}
/* The constants of a graph of the session; see hr__runner. */
const hr_tensor *hr__session_constants(void *session, const hr_graph *graph);
/* The instance of a graph of the session for these parameters, which is made if there is none. It is valid until the
 * next call. facts: NULL, or of inputs, whose numbers the instance may depend on; sets NULL if these are too many. */
HR_MUST_USE hr_status hr__session_instance(hr_session *session, const hr_graph *graph, const hr_tensor *const *params,
                                           const hr__fact *const *facts, hr__graph_instance **out_instance);
/* Appends an instance that is not live to the stream. out_results: with references of the caller's. */
HR_MUST_USE hr_status hr__graph_instance_run(hr_session *session, const hr__graph_instance *of,
                                             const hr_tensor *const *params, hr_tensor *out_results);
void hr__graph_instance_free(hr__graph_instance *instance);

#endif
