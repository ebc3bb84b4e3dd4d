/* nccl.h: processes with a GPU each, which exchange data through NVIDIA's NCCL. Frontends implement collective
 * operations with it, inside hr_stream_call or in a function on the device (function.h). Ranks may also be threads of
 * one process.
 *
 * The library is libnccl.so.2, opened at run time: HEADRACE_NCCL, else NVIDIA's wheel (torch depends on it), else where
 * the loader finds it. Functions enqueue on the device's own queue, in order with its other work, and do not wait for
 * it. All ranks call the same collectives in the same order with the same sizes: NCCL compares nothing, and waits
 * forever otherwise. Callers compare their calls before, and hr_nccl_watch finds those that do not end.
 *
 * Sums are made in NCCL's order, which is the same on all ranks. Its minimum and maximum leave NaN undefined.
 *
 * Memory: all addresses are the device's. Threads: that of the device's work; hr_nccl_break from any.
 */
#ifndef HEADRACE_NCCL_H_
#define HEADRACE_NCCL_H_

#include "headrace/group.h"
#include "headrace/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_nccl hr_nccl;
typedef struct hr_nccl_id {
  char bytes[128];
} hr_nccl_id;

/* UNAVAILABLE, with the reason, if there is no such library. */
HR_API HR_MUST_USE hr_status hr_nccl_check(void);
/* The name of a new communicator, which one rank makes and all ranks get. */
HR_API HR_MUST_USE hr_status hr_nccl_make_id(hr_nccl_id *out_id);
/* A look at the other ranks. Its failure is that of the join or call that waits for them. */
typedef hr_status (*hr_nccl_look)(void *arg);
/* How a rank waits for the others to join. */
typedef struct hr_nccl_wait {
  int64_t timeout_ns;
  hr_nccl_look look; /* (optional) called once a second, on the waiting thread */
  void *arg;
} hr_nccl_wait;
/* Joins a communicator as one of its ranks, with a device that no other rank has. Waits for all ranks; `wait` NULL: ten
 * minutes. UNAVAILABLE after that time: NCCL may then wait for the others on a thread that is left to it. The caller
 * owns one reference; the device is retained. */
HR_API HR_MUST_USE hr_status hr_nccl_create(hr_device *device, const hr_nccl_id *id, int rank, int size,
                                            const hr_nccl_wait *wait, hr_nccl **out_nccl);
/* Calls are enqueued on this one of the device's queues from now on, instead of the device's own. A function that is
 * called with a queue (function.h) sets it. */
HR_API void hr_nccl_set_queue(hr_nccl *nccl, void *queue);
/* Adds a reference; NULL is fine. */
HR_API void hr_nccl_retain(hr_nccl *nccl);
/* Drops a reference; NULL is fine. */
HR_API void hr_nccl_release(hr_nccl *nccl);
/* Aborts what is enqueued, and makes all later calls fail. Keeps the first reason. */
HR_API void hr_nccl_break(hr_nccl *nccl, const char *reason);

/* From now on a thread watches the calls that are expected. One that has not ended within its timeout breaks the
 * communicator, and is a failure of the stream with the call's name (hr_stream_fail): its next wait ends. The stream is
 * that of the calls, and outlives the communicator.
 *
 * `look`, unless NULL, is called on that thread while a call takes longer than a second: after 1, 2, 4 ... seconds, at
 * most 16 apart. It compares the call with those of the other ranks.
 *
 * FAILED_PRECONDITION: it is watched already. */
HR_API HR_MUST_USE hr_status hr_nccl_watch(hr_nccl *nccl, hr_stream *stream, hr_nccl_look look, void *arg);
/* Names the call that begins next, inside a pair of begin_calls and end_calls, and its time; the first one of a pair
 * counts. */
HR_API void hr_nccl_expect(hr_nccl *nccl, const hr_group_call *call);

/* UNIMPLEMENTED if NCCL can't combine values of the dtype so: bits, 16-bit integers, products of complex numbers. */
HR_API HR_MUST_USE hr_status hr_nccl_check_op(hr_group_op op, hr_dtype dtype);

/* The calls between the two begin together, so that a message may come before the one that it waits for. Pairs don't
 * nest. end_calls takes the failure of the calls, or OK, and returns it or its own. */
HR_API HR_MUST_USE hr_status hr_nccl_begin_calls(hr_nccl *nccl);
HR_API HR_MUST_USE hr_status hr_nccl_end_calls(hr_nccl *nccl, hr_status status);

/* Combines the ranks' inputs. Rank `root`, or all with a negative root, gets the result; `output` may be the input. */
HR_API HR_MUST_USE hr_status hr_nccl_reduce(hr_nccl *nccl, const char *name, hr_group_op op, hr_dtype dtype,
                                            int64_t elements, int root, const void *input, void *output);
/* The same, of one array for each rank: inputs[r] is this rank's part of the result that rank r gets. */
HR_API HR_MUST_USE hr_status hr_nccl_reduce_scatter(hr_nccl *nccl, const char *name, hr_group_op op, hr_dtype dtype,
                                                    int64_t elements, const void *const *inputs, void *output);
/* Sends blocks[r] to each rank r, and receives from it, as hr_group_exchange. */
HR_API HR_MUST_USE hr_status hr_nccl_exchange(hr_nccl *nccl, const char *name, const hr_group_block *blocks);
/* Messages between two ranks arrive in their order. */
HR_API HR_MUST_USE hr_status hr_nccl_send(hr_nccl *nccl, int to, const void *data, int64_t bytes);
HR_API HR_MUST_USE hr_status hr_nccl_receive(hr_nccl *nccl, int from, void *data, int64_t bytes);

#ifdef __cplusplus
}
#endif

#endif
