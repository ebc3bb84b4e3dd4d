/* group.h: processes of one machine that exchange data through shared memory. Frontends implement collective operations
 * with it, inside hr_stream_call.
 *
 * A group has `size` ranks, one process each. All ranks call the same collectives in the same order. A collective
 * compares the ranks' arguments first: if they differ, or a rank refuses its own, it fails on all ranks, and the group
 * remains usable. After any
 * other failure (a rank that ended, that left, or that came too late) the group is broken: all its calls fail at once,
 * on each rank.
 *
 * Memory: all data addresses are those of the host. A segment of shared memory, private to the user, is mapped by each
 * rank; data passes through it in pieces, so its size does not depend on the data's.
 *
 * Threads: one collective at a time. Sending, receiving and hr_group_break are safe beside it, from any thread. In a
 * forked child a group can only be released.
 */
#ifndef HEADRACE_GROUP_H_
#define HEADRACE_GROUP_H_

#include <stdbool.h>

#include "headrace/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hr_group hr_group;
enum { HR_GROUP_SIZE_MAX = 256 };

/* Creates the segment, as rank 0. The caller makes the name, of letters, digits and dashes, unique. ALREADY_EXISTS if
 * it is taken, RESOURCE_EXHAUSTED if there is not enough shared memory. The caller owns one reference. */
HR_API HR_MUST_USE hr_status hr_group_create(const char *name, int size, hr_group **out_group);
/* Maps the segment of that name, as another rank. NOT_FOUND if there is none on this machine. */
HR_API HR_MUST_USE hr_status hr_group_join(const char *name, int rank, int size, hr_group **out_group);
/* Removes the name, when all ranks have joined or given up. Memory is freed with its last rank. */
HR_API void hr_group_hide(hr_group *group);
/* Removes segments whose names begin with `prefix` but not with `own`, if they are older than HR_GROUP_STALE_S and no
 * rank of theirs is alive: processes that were killed before hr_group_hide leave them. `own` is the begin of the names
 * that this process creates. Linux; elsewhere nothing is removed. */
HR_API void hr_group_sweep(const char *prefix, const char *own);
enum { HR_GROUP_STALE_S = 60 };
/* Adds a reference; NULL is fine. */
HR_API void hr_group_retain(hr_group *group);
/* Drops a reference; NULL is fine. With the last one the rank leaves, after the messages that it has sent were received
 * or HR_GROUP_LINGER_MS are over. A collective of the others that needs it then fails. */
HR_API void hr_group_release(hr_group *group);
enum { HR_GROUP_LINGER_MS = 5000 };
/* Makes all calls of all ranks fail, those that wait included. Keeps the first reason. */
HR_API void hr_group_break(hr_group *group, const char *reason);

typedef enum hr_group_op {
  HR_GROUP_SUM = 0,
  HR_GROUP_PRODUCT,
  HR_GROUP_MIN, /* NaN wins, as in hr_op */
  HR_GROUP_MAX,
  HR_GROUP_AND, /* of bits; integers and bool */
  HR_GROUP_OR,
  HR_GROUP_XOR,
  HR_GROUP_AVERAGE, /* the sum divided by `count` of inputs; floating point */
  HR_GROUP_OP_COUNT
} hr_group_op;
HR_API const char *hr_group_op_name(hr_group_op op);
/* UNIMPLEMENTED if values of the dtype can't be combined by the operation. Complex: sums and averages. Sums of bool are
 * "or", products "and". */
HR_API HR_MUST_USE hr_status hr_group_check_op(hr_group_op op, hr_dtype dtype);
/* Combines `count` arrays of `elements` elements in their order. f16 and bf16 are combined in f32 and rounded once.
 * `output` may be one of the inputs. The operation fits the dtype. */
HR_API void hr_group_combine(hr_group_op op, hr_dtype dtype, int count, const void *const *inputs, void *output,
                             int64_t elements);

/* The arguments that all collectives have. */
typedef struct hr_group_call {
  const char *name;   /* of the collective, for messages; at most 31 characters are kept. Compared between ranks */
  int64_t timeout_ns; /* from its begin */
  hr_dtype dtype;     /* compared between ranks; NONE for bytes */
  int64_t words[2];   /* other numbers that must be equal, such as the root */
} hr_group_call;

/* Combines the ranks' inputs in the order of ranks. `output`, which may be the input, gets the result; NULL: this rank
 * needs none. */
HR_API HR_MUST_USE hr_status hr_group_all_reduce(hr_group *group, const hr_group_call *call, hr_group_op op,
                                                 int64_t elements, const void *input, void *output);
/* The same, of one array for each rank: inputs[r] is this rank's part of the result that rank r gets. */
HR_API HR_MUST_USE hr_status hr_group_reduce_scatter(hr_group *group, const hr_group_call *call, hr_group_op op,
                                                     int64_t elements, const void *const *inputs, void *output);

/* Takes part in place of a collective whose arguments this rank refuses, so that later ones of the ranks still meet:
 * the others' call fails. INVALID_ARGUMENT on all ranks, unless all refuse. */
HR_API HR_MUST_USE hr_status hr_group_refuse(hr_group *group, const hr_group_call *call);

/* The data between this rank and another one, or itself. */
typedef struct hr_group_block {
  const void *from;
  int64_t send_bytes;
  void *to;
  int64_t receive_bytes;
} hr_group_block;
/* Sends blocks[r] to each rank r, and receives from it. The bytes must be those that the other rank expects. If
 * `is_shared`, all blocks with bytes are the same one, which is written once. Inputs and outputs may overlap only in
 * the block of this rank. */
HR_API HR_MUST_USE hr_status hr_group_exchange(hr_group *group, const hr_group_call *call, bool is_shared,
                                               const hr_group_block *blocks);

/* Sends a message; never waits for the receiver: what does not fit is copied. Messages from one rank to another with
 * the same tag arrive in their order. */
HR_API HR_MUST_USE hr_status hr_group_send(hr_group *group, const hr_group_call *call, int to, int tag,
                                           const void *data, int64_t bytes);
/* Receives a message with that tag, from rank `from`, or from any if it is negative. INVALID_ARGUMENT, with the message
 * lost, if it has another dtype or size. *out_from, unless NULL, is the sender. */
HR_API HR_MUST_USE hr_status hr_group_receive(hr_group *group, const hr_group_call *call, int from, int tag, void *data,
                                              int64_t bytes, int *out_from);

#ifdef __cplusplus
}
#endif

#endif
