#include "engine/policy.h"

/* Waits in a row before a program is begun early; if the host goes on recording then, twice as many are needed the next
 * time. */
enum { TIMES_BEFORE = 8, TIMES_MOST = 1 << 20 };

/* ---- decisions ---- */

static const hr_decision keep = {.action = HR_KEEP};

static hr_decision commit(size_t count, hr_commit_reason reason) {
  return (hr_decision){.action = HR_COMMIT, .count = count, .reason = reason};
}

static hr_decision commit_early(size_t count, bool runs_here) {
  return (hr_decision){
      .action = HR_COMMIT, .count = count, .reason = HR_COMMIT_LIMIT, .runs_here = runs_here, .is_early = true};
}

static hr_decision before_record(const hr_policy *policy, const hr_event *event) {
  bool is_early = event->mode == HR_MODE_FUSE && event->stands_alone && event->records >= policy->next_ops;
  return is_early ? commit_early(SIZE_MAX, false) : keep;
}

static hr_decision after_record(const hr_policy *policy, const hr_event *event) {
  if (event->mode != HR_MODE_FUSE) {
    hr_decision decision = commit(SIZE_MAX, HR_COMMIT_MODE);
    decision.runs_here = event->mode == HR_MODE_STRICT;
    return decision;
  }
  bool is_full = event->records >= policy->records_max || event->bytes >= policy->bytes_max;
  return is_full && policy->calls == 0 ? commit(HR_CUT, HR_COMMIT_LIMIT) : keep;
}

/* A part or call that exceeds a limit by itself is not cut: its end is as good a place in each iteration of a loop. */
static bool exceeds_alone(const hr_policy *policy, const hr_event *event) {
  bool is_full = event->records >= policy->call_records + policy->records_max ||
                 event->bytes - policy->call_bytes >= policy->bytes_max;
  return is_full && event->mode == HR_MODE_FUSE && policy->calls == 0;
}

static hr_decision begin_awaited(const hr_policy *policy, const hr_event *event) {
  bool begins = event->mode == HR_MODE_FUSE && policy->calls == 0 && hr__policy_is_awaited(policy, event->records);
  return begins ? (hr_decision){.action = HR_BEGIN} : keep;
}

static hr_decision after_part(const hr_policy *policy, const hr_event *event) {
  return exceeds_alone(policy, event) ? commit(SIZE_MAX, HR_COMMIT_LIMIT) : begin_awaited(policy, event);
}

/* A device beside the host begins a long call while the caller prepares its results. */
static hr_decision call_ends(const hr_policy *policy, const hr_event *event) {
  if (exceeds_alone(policy, event)) {
    return commit(SIZE_MAX, HR_COMMIT_LIMIT);
  }
  hr_decision decision = after_record(policy, event);
  if (decision.action == HR_KEEP && policy->calls == 0 && event->records >= policy->first_ops) {
    decision = commit(SIZE_MAX, HR_COMMIT_LIMIT);
    decision.runs_here = true;
  }
  return decision.action == HR_KEEP ? begin_awaited(policy, event) : decision;
}

/* Commits early for the first part since a wait, or for a long list: the device may be idle. */
static hr_decision part_left(const hr_policy *policy, const hr_event *event) {
  bool waits_for_readers = event->tail_bytes >= policy->large_bytes && event->tail_records < event->records;
  bool is_first = policy->next_ops == policy->first_ops;
  bool is_early =
      event->mode == HR_MODE_FUSE && policy->first_ops != SIZE_MAX && (is_first || event->records >= policy->next_ops);
  return is_early ? commit_early(event->records - (waits_for_readers ? event->tail_records : 0), true) : keep;
}

/* Gives the device work while the host records the next pass. At other places programs would be cut differently from
 * step to step. */
static hr_decision pass_begins(const hr_policy *policy) {
  return policy->first_ops != SIZE_MAX ? commit(SIZE_MAX, HR_COMMIT_REQUEST) : keep;
}

/* True if others wait for a pending function. */
static bool is_awaited(const hr_policy *policy, const hr_event *event) {
  return policy->awaited_end > event->operations - (int64_t)event->records;
}

static hr_decision is_due(const hr_policy *policy, const hr_event *event) {
  return is_awaited(policy, event) ? commit(SIZE_MAX, HR_COMMIT_REQUEST) : keep;
}

static hr_decision wait_for_all(void) {
  hr_decision decision = commit(SIZE_MAX, HR_COMMIT_READ);
  decision.runs_here = true;
  return decision;
}

/* Averages that a step of training copies to its gradients die before the next step reads them. */
static hr_decision wait_for_one(const hr_policy *policy, const hr_event *event) {
  hr_decision decision = wait_for_all();
  decision.defers_copies = event->mode == HR_MODE_FUSE && is_awaited(policy, event);
  return decision;
}

static hr_decision make_room(void) {
  hr_decision decision = commit(SIZE_MAX, HR_COMMIT_LIMIT);
  decision.runs_here = true;
  return decision;
}

hr_decision hr__policy_decide(const hr_policy *policy, const hr_event *event) {
  if (event->records == 0) {
    return keep;
  }
  switch (event->kind) {
    case HR_EVENT_RECORD:
      return before_record(policy, event);
    case HR_EVENT_RECORDED:
      return after_record(policy, event);
    case HR_EVENT_PART_APPENDED:
      return after_part(policy, event);
    case HR_EVENT_PART_LEFT:
      return part_left(policy, event);
    case HR_EVENT_PASS_BEGINS:
      return pass_begins(policy);
    case HR_EVENT_DUE:
      return is_due(policy, event);
    case HR_EVENT_PAUSED:
      return event->operations == policy->paused_at ? is_due(policy, event) : keep;
    case HR_EVENT_CALL_ENDS:
      return call_ends(policy, event);
    case HR_EVENT_MODE:
      return commit(SIZE_MAX, HR_COMMIT_MODE);
    case HR_EVENT_REQUEST:
      return commit(SIZE_MAX, HR_COMMIT_REQUEST);
    case HR_EVENT_MEMORY:
      return make_room();
    case HR_EVENT_WAIT:
      return wait_for_all();
    case HR_EVENT_READ:
      return wait_for_one(policy, event);
  }
  return keep;
}

/* ---- state ---- */

void hr__policy_committed_early(hr_policy *policy) {
  policy->next_ops = policy->next_ops < SIZE_MAX / 2 ? 2 * policy->next_ops : SIZE_MAX;
}

void hr__policy_committed(hr_policy *policy, uint64_t hash, size_t records, bool will_wait, bool can_begin) {
  hr_awaited *awaited = &policy->awaited;
  bool is_same = will_wait && !awaited->is_begun && hash == awaited->hash && can_begin;
  int wanted = awaited->wanted > 0 ? awaited->wanted : TIMES_BEFORE;
  awaited->wanted = awaited->is_begun && wanted < TIMES_MOST ? 2 * wanted : wanted;
  awaited->times = is_same ? awaited->times + (awaited->times < wanted) : 0;
  awaited->hash = will_wait ? hash : 0;
  awaited->record_count = records;
  awaited->is_begun = false;
}

void hr__policy_begun(hr_policy *policy) {
  policy->awaited.is_begun = true;
}

void hr__policy_awaits(hr_policy *policy, int64_t operations) {
  policy->awaited_end = operations;
}

void hr__policy_paused(hr_policy *policy, int64_t operations) {
  policy->paused_at = operations;
}

void hr__policy_call_begins(hr_policy *policy, size_t records, int64_t bytes) {
  if (policy->calls++ == 0) {
    policy->call_records = records;
    policy->call_bytes = bytes;
  }
}

void hr__policy_call_ends(hr_policy *policy) {
  policy->calls -= policy->calls > 0;
}

void hr__policy_waited(hr_policy *policy) {
  policy->next_ops = policy->first_ops;
  policy->awaited_end = 0;
  policy->awaited.is_begun = false;
}
