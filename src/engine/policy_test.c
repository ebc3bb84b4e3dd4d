/* The decisions of the policy as a table: state and event, decision. */
#include "hr_test.h"

#include "engine/policy.h"

enum { MAX = 100, FIRST = 32 };
#define NEVER SIZE_MAX
#define ALL SIZE_MAX

/* A host device never commits early. */
static const hr_policy host = {
    .records_max = MAX, .bytes_max = 1000, .first_ops = NEVER, .next_ops = NEVER, .large_bytes = 500};
static const hr_policy beside = {
    .records_max = MAX, .bytes_max = 1000, .first_ops = FIRST, .next_ops = FIRST, .large_bytes = 500};
static const hr_policy later = {
    .records_max = MAX, .bytes_max = 1000, .first_ops = FIRST, .next_ops = 2 * FIRST, .large_bytes = 500};
static const hr_policy awaiting = {.records_max = MAX,
                                   .bytes_max = 1000,
                                   .first_ops = NEVER,
                                   .next_ops = NEVER,
                                   .awaited = {.hash = 7, .record_count = 10, .times = 8, .wanted = 8}};
static const hr_policy begun = {.records_max = MAX,
                                .bytes_max = 1000,
                                .first_ops = NEVER,
                                .next_ops = NEVER,
                                .awaited = {.hash = 7, .record_count = 10, .times = 8, .wanted = 8, .is_begun = true}};

static const hr_policy calling = {
    .records_max = MAX, .bytes_max = 1000, .first_ops = NEVER, .next_ops = NEVER, .calls = 1};
static const hr_policy outer = {
    .records_max = MAX, .bytes_max = 1000, .first_ops = FIRST, .next_ops = FIRST, .calls = 1};
static const hr_policy called = {.records_max = MAX,
                                 .bytes_max = 1000,
                                 .first_ops = NEVER,
                                 .next_ops = NEVER,
                                 .call_records = 10,
                                 .call_bytes = 100};
static const hr_policy awaited = {
    .records_max = MAX, .bytes_max = 1000, .first_ops = NEVER, .next_ops = NEVER, .awaited_end = 20, .paused_at = 30};

#define KEEP \
  { .action = HR_KEEP }
#define BEGIN \
  { .action = HR_BEGIN }
#define COMMIT(records, why, ...) \
  { .action = HR_COMMIT, .count = records, .reason = HR_COMMIT_##why, __VA_ARGS__ }
#define RECORDED(n, b) \
  { .kind = HR_EVENT_RECORDED, .records = n, .bytes = b }

static const struct {
  const char *what;
  const hr_policy *policy;
  hr_event event;
  hr_decision decision;
} rows[] = {
    /* limits */
    {"below the limits", &host, RECORDED(MAX - 1, 999), KEEP},
    {"as many records as may be pending", &host, RECORDED(MAX, 0), COMMIT(HR_CUT, LIMIT)},
    {"as many bytes as may be pending", &host, RECORDED(1, 1000), COMMIT(HR_CUT, LIMIT)},
    {"beside the host limits are the same", &beside, RECORDED(MAX, 0), COMMIT(HR_CUT, LIMIT)},
    {"below the limits beside the host", &beside, RECORDED(FIRST, 0), KEEP},
    /* modes */
    {"eager mode", &host, {HR_EVENT_RECORDED, HR_MODE_EAGER, 1}, COMMIT(ALL, MODE)},
    {"strict mode waits", &host, {HR_EVENT_RECORDED, HR_MODE_STRICT, 1}, COMMIT(ALL, MODE, .runs_here = true)},
    {"the mode changes", &host, {.kind = HR_EVENT_MODE, .records = 3}, COMMIT(ALL, MODE)},
    /* large operations */
    {"in front of a large operation on the host",
     &host,
     {.kind = HR_EVENT_RECORD, .records = 90, .stands_alone = true},
     KEEP},
    {"beside it, much is pending",
     &beside,
     {.kind = HR_EVENT_RECORD, .records = FIRST, .stands_alone = true},
     COMMIT(ALL, LIMIT, .is_early = true)},
    {"little is pending", &beside, {.kind = HR_EVENT_RECORD, .records = FIRST - 1, .stands_alone = true}, KEEP},
    {"the second time it takes twice as much",
     &later,
     {.kind = HR_EVENT_RECORD, .records = 2 * FIRST - 1, .stands_alone = true},
     KEEP},
    {"twice as much",
     &later,
     {.kind = HR_EVENT_RECORD, .records = 2 * FIRST, .stands_alone = true},
     COMMIT(ALL, LIMIT, .is_early = true)},
    {"in front of any other", &beside, {.kind = HR_EVENT_RECORD, .records = 90}, KEEP},
    {"in eager mode nothing is early",
     &beside,
     {.kind = HR_EVENT_RECORD, .mode = HR_MODE_EAGER, .records = 90, .stands_alone = true},
     KEEP},
    /* parts */
    {"a part that nobody has waited for", &host, {.kind = HR_EVENT_PART_APPENDED, .records = 10}, KEEP},
    {"a part that was often waited for", &awaiting, {.kind = HR_EVENT_PART_APPENDED, .records = 10}, BEGIN},
    {"another number of records", &awaiting, {.kind = HR_EVENT_PART_APPENDED, .records = 11}, KEEP},
    {"it has been begun", &begun, {.kind = HR_EVENT_PART_APPENDED, .records = 10}, KEEP},
    {"not in eager mode", &awaiting, {HR_EVENT_PART_APPENDED, HR_MODE_EAGER, 10}, KEEP},
    {"a part of as many records as the limit",
     &called,
     {.kind = HR_EVENT_PART_APPENDED, .records = MAX + 10},
     COMMIT(ALL, LIMIT)},
    {"a part that reaches it with others", &called, {.kind = HR_EVENT_PART_APPENDED, .records = MAX + 9}, KEEP},
    {"a part with as many bytes as the limit",
     &called,
     {.kind = HR_EVENT_PART_APPENDED, .records = 20, .bytes = 1100},
     COMMIT(ALL, LIMIT)},
    {"a part inside of a call", &calling, {.kind = HR_EVENT_PART_APPENDED, .records = MAX, .bytes = 2000}, KEEP},
    /* calls */
    {"a call has not ended", &calling, RECORDED(MAX, 2000), KEEP},
    {"nor another one", &calling, {.kind = HR_EVENT_CALL_ENDS, .records = MAX, .bytes = 2000}, KEEP},
    {"a call has ended", &host, {.kind = HR_EVENT_CALL_ENDS, .records = 10, .bytes = 999}, KEEP},
    {"a call that alone exceeds the limit",
     &called,
     {.kind = HR_EVENT_CALL_ENDS, .records = 10, .bytes = 1100},
     COMMIT(ALL, LIMIT)},
    {"a call of as many records as the limit",
     &called,
     {.kind = HR_EVENT_CALL_ENDS, .records = MAX + 10},
     COMMIT(ALL, LIMIT)},
    {"a call that exceeds it with others",
     &called,
     {.kind = HR_EVENT_CALL_ENDS, .records = 10, .bytes = 1099},
     COMMIT(HR_CUT, LIMIT)},
    {"a call that was often waited for", &awaiting, {.kind = HR_EVENT_CALL_ENDS, .records = 10}, BEGIN},
    {"a short call beside the host", &beside, {.kind = HR_EVENT_CALL_ENDS, .records = FIRST - 1}, KEEP},
    {"a long one", &later, {.kind = HR_EVENT_CALL_ENDS, .records = FIRST}, COMMIT(ALL, LIMIT, .runs_here = true)},
    {"a long one inside of another", &outer, {.kind = HR_EVENT_CALL_ENDS, .records = FIRST}, KEEP},
    {"a call in eager mode", &host, {HR_EVENT_CALL_ENDS, HR_MODE_EAGER, 10}, COMMIT(ALL, MODE)},
    {"a part is left on the host", &host, {.kind = HR_EVENT_PART_LEFT, .records = 90}, KEEP},
    {"the first part since a wait",
     &beside,
     {.kind = HR_EVENT_PART_LEFT, .records = 3},
     COMMIT(3, LIMIT, .runs_here = true, .is_early = true)},
    {"the second one", &later, {.kind = HR_EVENT_PART_LEFT, .records = 2 * FIRST - 1}, KEEP},
    {"a large result waits for its readers",
     &beside,
     {.kind = HR_EVENT_PART_LEFT, .records = 9, .tail_records = 2, .tail_bytes = 500},
     COMMIT(7, LIMIT, .runs_here = true, .is_early = true)},
    {"a smaller one does not",
     &beside,
     {.kind = HR_EVENT_PART_LEFT, .records = 9, .tail_records = 2, .tail_bytes = 499},
     COMMIT(9, LIMIT, .runs_here = true, .is_early = true)},
    {"nor where there is nothing else",
     &beside,
     {.kind = HR_EVENT_PART_LEFT, .records = 2, .tail_records = 2, .tail_bytes = 500},
     COMMIT(2, LIMIT, .runs_here = true, .is_early = true)},
    /* hints, requests, waits */
    {"a pass begins on the host", &host, {.kind = HR_EVENT_PASS_BEGINS, .records = 50}, KEEP},
    {"a pass begins beside it", &beside, {.kind = HR_EVENT_PASS_BEGINS, .records = 50}, COMMIT(ALL, REQUEST)},
    {"a function that others wait for is due",
     &awaited,
     {.kind = HR_EVENT_DUE, .records = 6, .operations = 25},
     COMMIT(ALL, REQUEST)},
    {"the host reads a buffer",
     &awaited,
     {.kind = HR_EVENT_READ, .records = 6, .operations = 25},
     COMMIT(ALL, READ, .runs_here = true, .defers_copies = true)},
    {"it waits for everything",
     &awaited,
     {.kind = HR_EVENT_WAIT, .records = 6, .operations = 25},
     COMMIT(ALL, READ, .runs_here = true)},
    {"it reads in eager mode",
     &awaited,
     {.kind = HR_EVENT_READ, .mode = HR_MODE_EAGER, .records = 6, .operations = 25},
     COMMIT(ALL, READ, .runs_here = true)},
    {"it reads, and nobody waits",
     &awaited,
     {.kind = HR_EVENT_READ, .records = 5, .operations = 25},
     COMMIT(ALL, READ, .runs_here = true)},
    {"it has been committed", &awaited, {.kind = HR_EVENT_DUE, .records = 5, .operations = 25}, KEEP},
    {"nobody waits", &host, {.kind = HR_EVENT_DUE, .records = 25, .operations = 25}, KEEP},
    {"the host has paused", &awaited, {.kind = HR_EVENT_PAUSED, .records = 11, .operations = 30}, COMMIT(ALL, REQUEST)},
    {"it has recorded since", &awaited, {.kind = HR_EVENT_PAUSED, .records = 12, .operations = 31}, KEEP},
    {"it has paused, and nobody waits", &awaited, {.kind = HR_EVENT_PAUSED, .records = 10, .operations = 30}, KEEP},
    {"a request", &host, {.kind = HR_EVENT_REQUEST, .records = 5}, COMMIT(ALL, REQUEST)},
    {"memory is short", &host, {.kind = HR_EVENT_MEMORY, .records = 5}, COMMIT(ALL, LIMIT, .runs_here = true)},
    {"a wait", &host, {.kind = HR_EVENT_WAIT, .records = 5}, COMMIT(ALL, READ, .runs_here = true)},
};

static bool are_same(const hr_decision *a, const hr_decision *b) {
  return a->action == b->action &&
         (a->action != HR_COMMIT || (a->count == b->count && a->reason == b->reason && a->runs_here == b->runs_here &&
                                     a->is_early == b->is_early));
}

HR_TEST(decisions_are_as_in_the_table) {
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    hr_decision decision = hr__policy_decide(rows[i].policy, &rows[i].event);
    if (!are_same(&decision, &rows[i].decision)) {
      fprintf(stderr, "row \"%s\": action %d, count %zu, reason %d, runs here %d, early %d\n", rows[i].what,
              (int)decision.action, decision.count, (int)decision.reason, decision.runs_here, decision.is_early);
    }
    HR_ASSERT(are_same(&decision, &rows[i].decision));
  }
}

HR_TEST(nothing_pending_is_nothing_to_do) {
  const hr_policy *policies[] = {&host, &beside, &later, &awaiting, &begun};
  for (int kind = HR_EVENT_RECORD; kind <= HR_EVENT_WAIT; ++kind) {
    for (int i = 0; i < 5; ++i) {
      const hr_event event = {.kind = (hr_event_kind)kind, .mode = HR_MODE_STRICT, .stands_alone = true};
      HR_ASSERT_EQ(hr__policy_decide(policies[i], &event).action, HR_KEEP);
    }
  }
}

/* The short cuts of the hot paths never disagree with the function. */
HR_TEST(short_cuts_agree_with_the_decision) {
  const hr_policy *policies[] = {&host, &beside, &later, &awaiting, &begun};
  for (size_t i = 0; i < 5; ++i) {
    for (size_t records = 1; records <= MAX + 1; ++records) {
      for (int mode = HR_MODE_FUSE; mode <= HR_MODE_STRICT; ++mode) {
        hr_event event = {
            .mode = (hr_mode)mode, .records = records, .bytes = (int64_t)records * 11, .stands_alone = true};
        event.kind = HR_EVENT_RECORDED;
        HR_ASSERT_EQ(hr__policy_keeps(policies[i], event.mode, records, event.bytes),
                     hr__policy_decide(policies[i], &event).action == HR_KEEP);
        event.kind = HR_EVENT_RECORD;
        HR_ASSERT(!hr__policy_keeps_before(policies[i], records) ||
                  hr__policy_decide(policies[i], &event).action == HR_KEEP);
        event.kind = HR_EVENT_PART_APPENDED;
        HR_ASSERT(!hr__policy_keeps_part(policies[i], event.mode, records, event.bytes) ||
                  hr__policy_decide(policies[i], &event).action == HR_KEEP);
      }
    }
  }
}

HR_TEST(early_commits_become_rarer_until_the_host_waits) {
  hr_policy policy = beside;
  for (size_t next = 2 * FIRST; next <= 64 * FIRST; next *= 2) {
    hr__policy_committed_early(&policy);
    HR_ASSERT_EQ(policy.next_ops, next);
  }
  hr__policy_waited(&policy);
  HR_ASSERT_EQ(policy.next_ops, FIRST);
  policy = host;
  hr__policy_committed_early(&policy);
  HR_ASSERT(policy.next_ops == NEVER);
}

HR_TEST(a_program_is_begun_early_after_eight_waits_in_a_row) {
  hr_policy policy = host;
  const hr_event event = {.kind = HR_EVENT_PART_APPENDED, .records = 10};
  for (int i = 0; i <= 8; ++i) { /* the first one is remembered, the others count */
    HR_ASSERT_EQ(hr__policy_decide(&policy, &event).action, HR_KEEP);
    hr__policy_committed(&policy, 7, 10, true, i > 0);
  }
  HR_ASSERT_EQ(hr__policy_decide(&policy, &event).action, HR_BEGIN);
  hr__policy_begun(&policy);
  HR_ASSERT_EQ(hr__policy_decide(&policy, &event).action, HR_KEEP);
  hr__policy_committed(&policy, 8, 10, true, true); /* the host has recorded on: twice as many are needed */
  HR_ASSERT_EQ(policy.awaited.wanted, 16);
  HR_ASSERT_EQ(hr__policy_decide(&policy, &event).action, HR_KEEP);
}
