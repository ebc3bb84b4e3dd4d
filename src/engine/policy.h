/* policy.h: decides when pending records are committed to the device. No other file decides it.
 *
 *   event                                decision
 *   a record is about to be appended     fuse mode: commit all early before a large operation, if much is pending
 *   records have been appended           strict, eager: commit all
 *                                        fuse: commit up to the cut while the list is at its limit
 *   a part's records have been appended  commit all if the part is at the limit by itself; begin all early if they
 *                                        are a program that the host often waits for
 *   the caller has left a part           commit early, without the part's large last result
 *   a call ends (a hint)                 the limit's rules for parts and records; commit all if the device works
 *                                        beside the host and much is pending; begin all early as after a part
 *   a pass begins (a hint)               commit all if the device works beside the host
 *   functions are due (a hint)           commit all if others wait for a pending function
 *   the host may have paused (a hint)    the same, if nothing was recorded since the last such hint
 *   the mode becomes eager or strict     commit all
 *   a request; memory is short; a wait   commit all
 *   the host reads a buffer              commit all; copies of what functions wrote may stay (deferred_copies.h) if
 * others wait for a pending function
 *
 * Everything else is kept. hr__policy_decide is a pure function of the policy's state, of the pending records and of
 * the event. The stream carries the decision out (stream.c, commit.c) and reports it to hr__policy_committed and
 * hr__policy_waited, which alone change the state. Frontends send hints and have no rules of their own.
 *
 * An early commit gives a device beside the host work while the host continues to record. The next one needs a list
 * twice as long: by then the device has more to do, and longer programs fuse better. A host device gets none, because
 * it would occupy the recording core.
 *
 * Threads: the stream's lock.
 */
#ifndef HEADRACE_ENGINE_POLICY_H_
#define HEADRACE_ENGINE_POLICY_H_

#include <stddef.h>
#include <stdint.h>

#include "headrace/stream.h"

typedef enum hr_commit_reason { HR_COMMIT_READ, HR_COMMIT_LIMIT, HR_COMMIT_REQUEST, HR_COMMIT_MODE } hr_commit_reason;

/* The last program that the host has waited for as a whole. */
typedef struct hr_awaited {
  uint64_t hash; /* of its key; 0: no wait yet */
  size_t record_count;
  int times, wanted; /* waits for it in a row; the number after which it is begun early */
  bool is_begun;     /* early, and nothing has been committed since */
} hr_awaited;

typedef struct hr_policy {
  size_t records_max; /* limits of pending records */
  int64_t bytes_max;
  size_t first_ops,
      next_ops;        /* pending records for an early commit: the first since a wait, the next; SIZE_MAX: none */
  size_t large_bytes;  /* a result of this size waits for its readers, so that it may be fused away */
  int64_t awaited_end; /* the operations up to the last function that others wait for; 0: it has been committed */
  int64_t paused_at;   /* the operations recorded up to the last hint of a pause */
  int calls;           /* begun ones; and what was pending before the first of them */
  size_t call_records;
  int64_t call_bytes;
  hr_awaited awaited;
} hr_policy;

typedef enum hr_event_kind {
  HR_EVENT_RECORD,        /* a record will be appended; stands_alone */
  HR_EVENT_RECORDED,      /* records have been appended */
  HR_EVENT_PART_APPENDED, /* those of a part have been appended */
  HR_EVENT_PART_LEFT,     /* and the caller has released the results that it does not need; tail_records, tail_bytes */
  HR_EVENT_PASS_BEGINS,   /* HR_HINT_PASS_BEGINS */
  HR_EVENT_DUE,           /* HR_HINT_DUE */
  HR_EVENT_PAUSED,        /* HR_HINT_PAUSED */
  HR_EVENT_CALL_ENDS,     /* HR_HINT_CALL_ENDS */
  HR_EVENT_MODE,          /* the mode becomes one in which every operation runs at once */
  HR_EVENT_REQUEST,       /* hr_stream_commit */
  HR_EVENT_MEMORY,        /* a write of the host needs memory that pending records may free */
  HR_EVENT_WAIT,          /* the host needs all results */
  HR_EVENT_READ           /* the host needs a buffer's contents */
} hr_event_kind;

typedef struct hr_event {
  hr_event_kind kind;
  hr_mode mode;   /* of the stream */
  size_t records; /* pending ones, and the bytes of their results */
  int64_t bytes;
  int64_t operations;  /* recorded so far, with the pending ones */
  bool stands_alone;   /* the record is large, and fused with nothing */
  size_t tail_records; /* from the part's last large operation on; it makes tail_bytes */
  size_t tail_bytes;
} hr_event;

typedef enum hr_action { HR_KEEP, HR_COMMIT, HR_BEGIN } hr_action;

enum { HR_CUT = 0 }; /* for `count`: up to the cut that the records' contents choose (hr__trace_cut) */

typedef struct hr_decision {
  hr_action action;
  size_t count;            /* COMMIT: records, all of them if there are fewer; HR_CUT */
  hr_commit_reason reason; /* COMMIT */
  bool runs_here;          /* COMMIT: the caller has time to run them if the device is idle */
  bool is_early;           /* COMMIT */
  bool defers_copies;      /* COMMIT */
} hr_decision;

hr_decision hr__policy_decide(const hr_policy *policy, const hr_event *event);

/* True if hr__policy_decide keeps everything at HR_EVENT_RECORDED; the common case, inline. */
static inline bool hr__policy_keeps(const hr_policy *policy, hr_mode mode, size_t records, int64_t bytes) {
  return mode == HR_MODE_FUSE && ((records < policy->records_max && bytes < policy->bytes_max) || policy->calls > 0);
}
/* True if it keeps everything at HR_EVENT_RECORD. */
static inline bool hr__policy_keeps_before(const hr_policy *policy, size_t records) {
  return records < policy->next_ops;
}
/* True if so many records may be the program that the host often waits for, which has not been begun. */
static inline bool hr__policy_is_awaited(const hr_policy *policy, size_t records) {
  const hr_awaited *awaited = &policy->awaited;
  return awaited->times > 0 && awaited->times == awaited->wanted && !awaited->is_begun &&
         awaited->record_count == records;
}
/* True if it keeps everything at HR_EVENT_PART_APPENDED and HR_EVENT_RECORDED. */
static inline bool hr__policy_keeps_part(const hr_policy *policy, hr_mode mode, size_t records, int64_t bytes) {
  return hr__policy_keeps(policy, mode, records, bytes) && !hr__policy_is_awaited(policy, records);
}

/* A decision to commit early has been carried out. */
void hr__policy_committed_early(hr_policy *policy);
/* A program has been committed: the hash of its key, and its records. will_wait: the host waits for it now; can_begin:
 * it could have been begun early. */
void hr__policy_committed(hr_policy *policy, uint64_t hash, size_t records, bool will_wait, bool can_begin);
/* The pending program has been begun early. */
void hr__policy_begun(hr_policy *policy);
/* Others wait for the last of the operations recorded so far. */
void hr__policy_awaits(hr_policy *policy, int64_t operations);
/* The host may have paused, and the decision about that has been carried out. */
void hr__policy_paused(hr_policy *policy, int64_t operations);
/* A call or part begins or ends, while so many records are pending, with so many bytes of results. */
void hr__policy_call_begins(hr_policy *policy, size_t records, int64_t bytes);
void hr__policy_call_ends(hr_policy *policy);
/* The host has committed everything in order to wait. */
void hr__policy_waited(hr_policy *policy);

#endif
