/* graph_instance.h: a graph for one set of dims, and the instances of a session.
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

#include "base/thread.h"
#include "graph/graph_evaluate.h"
#include "headrace/part.h"
#include "headrace/session.h"

typedef struct hr__graph_instance {
  hr_refcount refcount;                     /* the session's, and one for each run that uses it */
  struct hr__graph_instance *newer, *older; /* in the session's list, by last use */
  struct hr__graph_instance *same;          /* with the same hash */
  uint64_t hash;
  const hr_graph *graph; /* the session's, or an inner one of it */
  hr_part *part;         /* NULL: live */
  int64_t *key;          /* the numbers of its symbols, then those of inputs that it was made for */
  size_t key_count;
  size_t host_bytes;  /* that it needs */
  hr_tensor *results; /* types */
  size_t *bytes;      /* of the results' buffers */
  int *params;        /* by result: the parameter that it is, or -1 */
  bool *uses;         /* by parameter: some record uses it */
  bool may_not_end;   /* the part has loops whose conditions read the inputs: it is not run on zeros */
} hr__graph_instance;

/* The instances of a session. Threads: any; one makes an instance at a time, and those that find theirs do not wait. */
typedef struct hr__instance_cache {
  hr_mutex mutex;  /* of everything but `making` */
  hr_mutex making; /* of the thread that makes an instance */
  hr_table table;  /* by hash */
  hr__graph_instance *newest, *oldest;
  int count, count_max;
  int64_t bytes, bytes_max;
} hr__instance_cache;

/* Sizes of a symbol (hr_session_bucket), and the axes of inputs and outputs that have it; -1: none. */
typedef struct hr__session_bucket {
  int symbol, count;
  int64_t *sizes;
  int *inputs, *outputs;
} hr__session_bucket;

struct hr_session {
  hr_stream *stream;
  hr_graph *whole;       /* what it was made of, simplified */
  hr_graph *graph;       /* the same with functions between waits */
  hr_tensor **constants; /* by value: those of the graph, then those of its inner graphs; a variable's initial value */
  hr_table constant_table; /* buffers of `constants` by serial */
  hr_mutex running;        /* of a run that changes variables, and of those who set them */
  hr_tensor *variables;    /* their values; changed with instances.mutex, too */
  hr__instance_cache instances;
  hr_session_stats stats; /* with instances.mutex */
  int threads;            /* that runs use at most; 0: all of the process */
  int bucket_count;
  hr__session_bucket *buckets;
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
/* The instance of a graph of the session for these parameters, which is made if there is none, with a reference of the
 * caller's. facts: NULL, or of inputs, whose numbers the instance may depend on; sets NULL if these are too many. */
HR_MUST_USE hr_status hr__session_instance(hr_session *session, const hr_graph *graph, const hr_tensor *const *params,
                                           const hr__fact *const *facts, hr__graph_instance **out_instance);
void hr__instance_cache_init(hr__instance_cache *cache);
void hr__instance_cache_fini(hr__instance_cache *cache);

/* Makes an instance; the caller has its only reference. */
HR_MUST_USE hr_status hr__graph_instance_make(hr_session *session, const hr_graph *graph,
                                              const hr_tensor *const *params, const hr__fact *const *facts,
                                              hr__graph_instance **out_instance);
/* Appends an instance that is not live to a stream. out_results: with references of the caller's. */
HR_MUST_USE hr_status hr__graph_instance_run(hr_stream *stream, const hr__graph_instance *of,
                                             const hr_tensor *const *params, hr_tensor *out_results);
void hr__graph_instance_release(hr__graph_instance *instance);

/* Buckets of a session: sets them, frees them, and runs with inputs that are padded to them by `run`. */
HR_MUST_USE hr_status hr__session_buckets_set(hr_session *session, const hr_session_options *options);
void hr__session_buckets_free(hr_session *session);
/* Copies types of inputs, without buffers, with dims that are rounded up. */
HR_MUST_USE hr_status hr__session_round(const hr_session *session, const hr_tensor *const *inputs,
                                        hr_tensor *out_types);
HR_MUST_USE hr_status hr__session_run_padded(hr_session *session, const hr_tensor *const *inputs,
                                             hr_status (*run)(hr_session *session, const hr_tensor *const *inputs,
                                                              hr_tensor *out_results),
                                             hr_tensor *out_results);

#endif
