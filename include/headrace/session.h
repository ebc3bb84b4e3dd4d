/* session.h: graphs at work. A session instantiates a graph for the dims of its inputs, and runs it on a stream.
 *
 *   hr_session_create(stream, graph, NULL, &session);
 *   hr_session_run(session, 1, &x, 1, &y);             x: const hr_tensor *, y: hr_tensor
 *   hr_session_release(session);
 *
 * An instance is a part (part.h): the records of the graph for one set of dims. Running it appends these records to the
 * stream, where they are fused with their neighbours, cached, and fail like all others. Nothing is waited for, unless
 * the graph reads what the device computes: the condition of a loop, or the dims of nonzero. Then inner graphs, and the
 * operations between two waits, have instances of their own. The session keeps the instances that were used last;
 * constants are shared by all of them.
 *
 * Threads: any number of threads may use a session at the same time. Their runs are appended to its stream one after
 * the other, in any order. Runs of a graph with variables wait for each other, and so do threads that need an instance
 * which is being made.
 */
#ifndef HEADRACE_SESSION_H_
#define HEADRACE_SESSION_H_

#include "headrace/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_session hr_session;

/* Sizes to which the dims of a symbol are rounded up. A run pads inputs behind their last slice by copies of it, and
 * cuts results, so that all sizes in between share an instance. The graph must keep the slices apart: each one of a
 * result follows from the same ones of the inputs, as with the images of a batch. Then results are those of the dims as
 * they are, but for the order in which products and convolutions of another size add. Empty dims, and those beyond the
 * largest size, are not rounded. */
typedef struct hr_session_bucket {
  const char *symbol;
  int count;
  const int64_t *sizes; /* positive, in ascending order */
} hr_session_bucket;

/* Zeroed: the defaults. */
typedef struct hr_session_options {
  int instances_max;     /* instances that are kept; 0: HR_SESSION_INSTANCES */
  bool keeps_operations; /* instantiates the graph as it is, without hr_graph_simplify */
  int64_t bytes_max;     /* host memory of the instances that are kept; 0: HR_SESSION_BYTES. One is always kept */
  int bucket_count;
  const hr_session_bucket *buckets; /* each symbol once */
  hr_dtype products;                /* NONE, or BF16 or F16: hr_graph_round_products */
  int threads; /* of the host that its runs use at most: hr_stream_begin_threads; 0: all of the process */
} hr_session_options;
enum { HR_SESSION_INSTANCES = 64, HR_SESSION_BYTES = 64 << 20 };

/* A session of a graph on a stream, which it retains. The graph is simplified (hr_graph_simplify), for which the stream
 * is waited for, and may be released. options: NULL: the defaults. The caller owns the session. INVALID_ARGUMENT names
 * the operation that does not keep the slices of a bucket's symbol apart. */
HR_API HR_MUST_USE hr_status hr_session_create(hr_stream *stream, const hr_graph *graph,
                                               const hr_session_options *options, hr_session **out_session);
/* Frees a session; NULL is fine. Runs that are pending on the stream are not concerned. */
HR_API void hr_session_release(hr_session *session);

/* The graph that is instantiated; borrowed. */
HR_API const hr_graph *hr_session_graph(const hr_session *session);

/* Makes the instance for these inputs, of which the types alone are used, and compiles it, so that a run with such dims
 * does neither. For that it runs on zeros, with the variables' values, and is waited for; results are dropped, and
 * variables stay. An instance that reads what the device computes does not run. Tapes and vmaps that are open do not
 * see these runs. Errors are those of hr_session_run. */
HR_API HR_MUST_USE hr_status hr_session_warm(hr_session *session, int input_count, const hr_tensor *const *inputs);

/* Appends the graph to the stream. inputs: tensors of the stream's device in the order of the graph; one that is not
 * row-major, or begins inside of its buffer, is copied. out_results: all outputs, in their order; the caller owns a
 * reference of each buffer (hr_tensor_release). Results are set only on success.
 *
 * INVALID_ARGUMENT names the input, its dims and those wanted, or two inputs whose dims of one symbol differ; failures
 * of operations have the name of their value in front. After a failure variables have the values from before. */
HR_API HR_MUST_USE hr_status hr_session_run(hr_session *session, int input_count, const hr_tensor *const *inputs,
                                            int result_count, hr_tensor *out_results);

/* The value of a variable of the graph; the caller owns a reference of its buffer, which the session shares: it must
 * not be written. NOT_FOUND if there is none. */
HR_API HR_MUST_USE hr_status hr_session_variable(hr_session *session, const char *name, hr_tensor *out_value);
/* Sets it to a copy of a tensor of the stream's device, of the variable's dtype and dims. */
HR_API HR_MUST_USE hr_status hr_session_set_variable(hr_session *session, const char *name, const hr_tensor *value);
/* The simplified graph with the current values of its variables as their initial ones, for which the stream is waited:
 * hr_package_write keeps what was trained. The caller owns one reference. */
HR_API HR_MUST_USE hr_status hr_session_snapshot(hr_session *session, hr_graph **out_graph);

typedef struct hr_session_stats {
  int64_t runs;
  int64_t instances;             /* that were made, as there was none */
  int64_t kept;                  /* instances now */
  int64_t records;               /* of the instance that was used last */
  int64_t constant_bytes_copied; /* of constants that the device does not share with the graph */
  int64_t waits;                 /* for numbers that decide dims, branches or iterations */
  int64_t hits;                  /* times that an instance was there, also of functions and of pieces between waits */
  int64_t waits_for_instances;   /* of these, it was there after a wait for another thread that made one */
  int64_t kept_bytes;            /* host memory of the instances now */
  int64_t padded;                /* runs whose inputs were padded */
} hr_session_stats;

/* The first `bytes` bytes of the counters. One that this library lacks is 0. */
HR_API void hr_session_stats_read(hr_session *session, size_t bytes, hr_session_stats *out_stats);

#ifdef __cplusplus
}
#endif

#endif
