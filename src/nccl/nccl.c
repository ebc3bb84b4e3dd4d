/* nccl.c: a communicator of NCCL on a device's queue. See headrace/nccl.h.
 *
 * bool and complex values, which NCCL has not, are combined as other types:
 *
 *   bool      sum, maximum, or -> the maximum of u8        complex   sum, average -> those of twice as many floats
 *             product, minimum, and -> the minimum of u8 */
#include <stdatomic.h>
#include <stdio.h>

#include "base/allocator.h"
#include "base/integer.h"
#include "base/refcount.h"
#include "base/thread.h"
#include "core/ir/dtype.h"
#include "headrace/mark.h"
#include "nccl/nccl_api.h"
#include "nccl/nccl_watch.h"
#include "runtime/device.h"
#include "runtime/lane.h"

enum { REASON_BYTES = 400 };
#define LOOK_NS INT64_C(1000000000) /* between looks at ranks that have not joined */

struct hr_nccl {
  hr_refcount refcount;
  hr_device *device;
  nccl_comm comm;
  void *queue; /* of calls */
  int rank, size;
  hr_stream *stream; /* gets the failure of a late call; NULL: nothing is watched */
  hr_nccl_look look;
  void *look_arg;
  hr__nccl_watch watch;
  atomic_int broken; /* 1: about to be, 2: `reason` is there */
  char reason[REASON_BYTES];
};

hr_status hr_nccl_check(void) {
  return hr__nccl_open();
}

hr_status hr_nccl_make_id(hr_nccl_id *out_id) {
  HR_RETURN_IF_ERROR(hr__nccl_open());
  return hr__nccl_status(hr__nccl()->GetUniqueId(out_id), "a name of a communicator");
}

/* ---- begin and end ---- */

/* A rank that waits for the others, on a thread of its own: NCCL has no end for that. Its caller and the thread have a
 * reference each. */
typedef struct joining {
  hr_refcount refcount;
  hr_device *device;
  hr_nccl_id id;
  int rank, size;
  hr_mutex mutex; /* guards what follows */
  hr_cond changed;
  hr_thread thread;
  bool is_done, is_left; /* is_left: the caller waits no longer */
  nccl_comm comm;
  hr_status status;
} joining;

static void release_joining(joining *j) {
  if (hr_refcount_release(&j->refcount)) {
    hr_cond_fini(&j->changed);
    hr_mutex_fini(&j->mutex);
    hr_device_release(j->device);
    hr_free(j);
  }
}

static hr_status call_init(joining *j, nccl_comm *out_comm) {
  HR_RETURN_IF_ERROR(hr__device_enter(j->device));
  int result = hr__nccl()->CommInitRank(out_comm, j->size, j->id, j->rank);
  hr__device_leave(j->device);
  return hr__nccl_status(result, "joining a communicator");
}

static void join_apart(void *arg) {
  joining *j = arg;
  nccl_comm comm = NULL;
  hr_status status = call_init(j, &comm);
  hr_mutex_lock(&j->mutex);
  bool is_left = j->is_left;
  j->comm = comm, j->status = status, j->is_done = true;
  hr_cond_signal(&j->changed);
  hr_mutex_unlock(&j->mutex);
  if (is_left) {
    if (status == HR_OK) {
      hr__nccl()->CommAbort(comm);
    }
    hr_status_ignore(status);
    hr_thread_leave(&j->thread);
  }
  release_joining(j);
}

/* Waits for the end of the join, which is locked; a failure if it takes too long or another rank has failed. */
static hr_status wait_for(joining *j, const hr_nccl_wait *wait) {
  int64_t end = hr_clock_ns() + wait->timeout_ns;
  hr_status status = HR_OK;
  while (!j->is_done && status == HR_OK) {
    int64_t now = hr_clock_ns();
    if (now >= end) {
      return hr_status_make(HR_STATUS_UNAVAILABLE,
                            "NCCL: joining a communicator as rank %d of %d has not ended within %lld ms: another rank "
                            "has not come",
                            j->rank, j->size, (long long)(wait->timeout_ns / 1000000));
    }
    bool is_slow = !hr_cond_wait_until(&j->changed, &j->mutex, hr_min(now + LOOK_NS, end));
    if (is_slow && wait->look != NULL) {
      hr_mutex_unlock(&j->mutex);
      status = wait->look(wait->arg);
      hr_mutex_lock(&j->mutex);
    }
  }
  return status;
}

/* Starts the thread, which has a reference, and waits for it or leaves it. */
static hr_status join_with(joining *j, const hr_nccl_wait *wait, nccl_comm *out_comm) {
  hr_mutex_lock(&j->mutex);
  hr_refcount_retain(&j->refcount);
  hr_status status = hr_thread_start("hr-nccl-join", join_apart, j, &j->thread);
  if (status != HR_OK) {
    hr_mutex_unlock(&j->mutex);
    release_joining(j);
    return status;
  }
  status = wait_for(j, wait);
  bool is_done = j->is_done;
  j->is_left = !is_done;
  hr_mutex_unlock(&j->mutex);
  if (is_done) {
    hr_thread_join(&j->thread);
    hr_status_ignore(status);
    status = j->status;
    *out_comm = j->comm;
  }
  return status;
}

static hr_status join(hr_nccl *nccl, const hr_nccl_id *id, const hr_nccl_wait *wait) {
  static const hr_nccl_wait usual = {.timeout_ns = 600 * LOOK_NS};
  joining *j = hr_calloc(1, sizeof *j);
  if (j == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "NCCL: out of host memory");
  }
  hr_refcount_init(&j->refcount);
  hr_mutex_init(&j->mutex);
  hr_cond_init(&j->changed);
  hr_device_retain(nccl->device);
  j->device = nccl->device, j->id = *id, j->rank = nccl->rank, j->size = nccl->size;
  hr_status status = join_with(j, wait != NULL ? wait : &usual, &nccl->comm);
  release_joining(j);
  return status;
}

hr_status hr_nccl_create(hr_device *device, const hr_nccl_id *id, int rank, int size, const hr_nccl_wait *wait,
                         hr_nccl **out_nccl) {
  HR_RETURN_IF_ERROR(hr__nccl_open());
  if (size < 1 || size > HR_GROUP_SIZE_MAX || rank < 0 || rank >= size) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "NCCL: rank %d of %d; expected a size from 1 to %d", rank, size,
                          HR_GROUP_SIZE_MAX);
  }
  hr_nccl *nccl = hr_calloc(1, sizeof *nccl);
  if (nccl == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "NCCL: out of host memory");
  }
  hr_refcount_init(&nccl->refcount);
  nccl->device = device;
  nccl->queue = hr_device_queue(device);
  nccl->rank = rank;
  nccl->size = size;
  hr_status status = join(nccl, id, wait);
  if (status != HR_OK) {
    hr_free(nccl);
    return status;
  }
  hr__nccl_watch_init(&nccl->watch, device);
  hr_device_retain(device);
  *out_nccl = nccl;
  return HR_OK;
}

void hr_nccl_set_queue(hr_nccl *nccl, void *queue) {
  nccl->queue = queue;
}

void hr_nccl_retain(hr_nccl *nccl) {
  if (nccl != NULL) {
    hr_refcount_retain(&nccl->refcount);
  }
}

void hr_nccl_release(hr_nccl *nccl) {
  if (nccl == NULL || !hr_refcount_release(&nccl->refcount)) {
    return;
  }
  hr__nccl_watch_fini(&nccl->watch);
  if (atomic_load(&nccl->broken) == 0) { /* an aborted communicator is gone */
    hr_status status = hr__device_enter(nccl->device);
    if (status == HR_OK) {
      hr__nccl()->CommDestroy(nccl->comm);
      hr__device_leave(nccl->device);
    }
    hr_status_ignore(status);
  }
  hr_device_release(nccl->device);
  hr_free(nccl);
}

void hr_nccl_break(hr_nccl *nccl, const char *reason) {
  int none = 0;
  if (atomic_compare_exchange_strong(&nccl->broken, &none, 1)) {
    snprintf(nccl->reason, sizeof nccl->reason, "%s", reason);
    atomic_store(&nccl->broken, 2);
    hr__nccl()->CommAbort(nccl->comm);
  }
}

/* First the error, then the end of the wait. */
static void fail_call(hr_nccl *nccl, const char *reason) {
  hr_stream_fail(nccl->stream, hr_status_make(HR_STATUS_UNAVAILABLE, "%s", reason));
  hr_nccl_break(nccl, reason);
}

static bool look_at_slow(void *arg) {
  hr_nccl *nccl = arg;
  hr_status status = nccl->look != NULL ? nccl->look(nccl->look_arg) : HR_OK;
  if (status == HR_OK) {
    return true;
  }
  fail_call(nccl, hr_status_message(status));
  hr_status_free(status);
  return false;
}

static void fail_late(void *arg, const hr__nccl_call *call) {
  hr_nccl *nccl = arg;
  char reason[REASON_BYTES];
  snprintf(reason, sizeof reason,
           "%s, call %llu of the group, has not ended on rank %d of %d within %lld ms: another rank is late or has "
           "ended, or its arguments differ",
           call->name, (unsigned long long)call->number, nccl->rank, nccl->size,
           (long long)(call->timeout_ns / 1000000));
  fail_call(nccl, reason);
}

hr_status hr_nccl_watch(hr_nccl *nccl, hr_stream *stream, hr_nccl_look look, void *arg) {
  if (nccl->stream != NULL) {
    return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "NCCL: the communicator is watched already");
  }
  nccl->stream = stream;
  nccl->look = look;
  nccl->look_arg = arg;
  return hr__nccl_watch_start(&nccl->watch, look_at_slow, fail_late, nccl);
}

void hr_nccl_expect(hr_nccl *nccl, const hr_group_call *call) {
  hr__nccl_watch_expect(&nccl->watch, call);
}

/* An earlier failure of the communicator, which NCCL finds in the background. */
static hr_status failure_of(hr_nccl *nccl) {
  int broken = atomic_load(&nccl->broken), error = NCCL_SUCCESS;
  if (broken != 0) {
    return hr_status_make(HR_STATUS_UNAVAILABLE, "the group is broken%s%s", broken == 2 ? ": " : "",
                          broken == 2 ? nccl->reason : "");
  }
  HR_RETURN_IF_ERROR(hr__nccl_status(hr__nccl()->CommGetAsyncError(nccl->comm, &error), "its errors"));
  return hr__nccl_status(error, "earlier work");
}

hr_status hr_nccl_begin_calls(hr_nccl *nccl) {
  HR_RETURN_IF_ERROR(failure_of(nccl));
  return hr__nccl_status(hr__nccl()->GroupStart(), "beginning calls");
}

hr_status hr_nccl_end_calls(hr_nccl *nccl, hr_status status) {
  hr_status own = hr__nccl_status(hr__nccl()->GroupEnd(), "calls");
  if (status == HR_OK) {
    status = own;
  } else {
    hr_status_ignore(own);
  }
  hr__nccl_watch_enqueued(&nccl->watch, hr__lane_opening(nccl->device, nccl->queue), status);
  return status;
}

/* ---- reductions ---- */

/* How NCCL sees values. */
typedef struct values {
  int type, op, each; /* elements of NCCL for one */
} values;

static int type_of(hr_dtype dtype) {
  switch (dtype) {
    case HR_DTYPE_I8:
      return NCCL_I8;
    case HR_DTYPE_BOOL:
    case HR_DTYPE_U8:
      return NCCL_U8;
    case HR_DTYPE_I32:
      return NCCL_I32;
    case HR_DTYPE_U32:
      return NCCL_U32;
    case HR_DTYPE_I64:
      return NCCL_I64;
    case HR_DTYPE_U64:
      return NCCL_U64;
    case HR_DTYPE_F16:
      return NCCL_F16;
    case HR_DTYPE_F32:
    case HR_DTYPE_C64:
      return NCCL_F32;
    case HR_DTYPE_F64:
    case HR_DTYPE_C128:
      return NCCL_F64;
    case HR_DTYPE_BF16:
      return NCCL_BF16;
    default:
      return -1;
  }
}

static int op_of(hr_group_op op, hr_dtype dtype) {
  bool is_bool = dtype == HR_DTYPE_BOOL;
  switch (op) {
    case HR_GROUP_SUM:
      return is_bool ? NCCL_MAX : NCCL_SUM;
    case HR_GROUP_PRODUCT:
      return is_bool ? NCCL_MIN : NCCL_PRODUCT;
    case HR_GROUP_MIN:
      return NCCL_MIN;
    case HR_GROUP_MAX:
      return NCCL_MAX;
    case HR_GROUP_AND:
      return is_bool ? NCCL_MIN : -1;
    case HR_GROUP_OR:
      return is_bool ? NCCL_MAX : -1;
    case HR_GROUP_AVERAGE:
      return NCCL_AVERAGE;
    default:
      return -1;
  }
}

static hr_status values_of(hr_group_op op, hr_dtype dtype, values *out_values) {
  HR_RETURN_IF_ERROR(hr_group_check_op(op, dtype));
  *out_values = (values){type_of(dtype), op_of(op, dtype), hr_dtype_is_complex(dtype) ? 2 : 1};
  if (out_values->type < 0 || out_values->op < 0) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "NCCL has no %s of %s", hr_group_op_name(op), hr_dtype_name(dtype));
  }
  return HR_OK;
}

hr_status hr_nccl_check_op(hr_group_op op, hr_dtype dtype) {
  values v;
  return values_of(op, dtype, &v);
}

hr_status hr_nccl_reduce(hr_nccl *nccl, const char *name, hr_group_op op, hr_dtype dtype, int64_t elements, int root,
                         const void *input, void *output) {
  values v;
  HR_RETURN_IF_ERROR(failure_of(nccl));
  HR_RETURN_IF_ERROR(values_of(op, dtype, &v));
  size_t count = (size_t)(elements * v.each);
  void *queue = nccl->queue;
  if (root < 0) {
    return hr__nccl_status(hr__nccl()->AllReduce(input, output, count, v.type, v.op, nccl->comm, queue), name);
  }
  return hr__nccl_status(hr__nccl()->Reduce(input, output, count, v.type, v.op, root, nccl->comm, queue), name);
}

/* ncclReduceScatter wants one array, and all ranks must make the same calls: so each part is reduced by itself. */
hr_status hr_nccl_reduce_scatter(hr_nccl *nccl, const char *name, hr_group_op op, hr_dtype dtype, int64_t elements,
                                 const void *const *inputs, void *output) {
  for (int r = 0; r < nccl->size; ++r) {
    HR_RETURN_IF_ERROR(hr_nccl_reduce(nccl, name, op, dtype, elements, r, inputs[r], r == nccl->rank ? output : NULL));
  }
  return HR_OK;
}

/* ---- exchanges ---- */

hr_status hr_nccl_send(hr_nccl *nccl, int to, const void *data, int64_t bytes) {
  HR_RETURN_IF_ERROR(failure_of(nccl));
  if (bytes == 0) {
    return HR_OK;
  }
  return hr__nccl_status(hr__nccl()->Send(data, (size_t)bytes, NCCL_U8, to, nccl->comm, nccl->queue), "send");
}

hr_status hr_nccl_receive(hr_nccl *nccl, int from, void *data, int64_t bytes) {
  HR_RETURN_IF_ERROR(failure_of(nccl));
  if (bytes == 0) {
    return HR_OK;
  }
  return hr__nccl_status(hr__nccl()->Recv(data, (size_t)bytes, NCCL_U8, from, nccl->comm, nccl->queue), "receive");
}

static hr_status copy_own(const hr_nccl *nccl, const char *name, const hr_group_block *block) {
  const hr_device *device = nccl->device;
  if (block->send_bytes != block->receive_bytes) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: rank %d sends %lld bytes to itself and expects %lld", name,
                          nccl->rank, (long long)block->send_bytes, (long long)block->receive_bytes);
  }
  if (block->send_bytes == 0 || block->from == block->to) {
    return HR_OK;
  }
  void *opening = hr__lane_opening(nccl->device, nccl->queue);
  return opening != NULL ? device->driver->copy_within(opening, block->to, block->from, (size_t)block->send_bytes)
                         : hr_status_make(HR_STATUS_INTERNAL, "%s: a queue that is none of the device's", name);
}

hr_status hr_nccl_exchange(hr_nccl *nccl, const char *name, const hr_group_block *blocks) {
  HR_RETURN_IF_ERROR(copy_own(nccl, name, &blocks[nccl->rank]));
  for (int r = 0; r < nccl->size; ++r) {
    if (r != nccl->rank) {
      HR_RETURN_IF_ERROR(hr_nccl_send(nccl, r, blocks[r].from, blocks[r].send_bytes));
      HR_RETURN_IF_ERROR(hr_nccl_receive(nccl, r, blocks[r].to, blocks[r].receive_bytes));
    }
  }
  return HR_OK;
}
