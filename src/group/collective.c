/* collective.c: collectives as rounds (segment.h).
 *
 * The first round carries a notice of the arguments beside the first data. All ranks compare all notices, so they agree
 * on a mismatch, and no rank begins a second round after one.
 *
 * all_reduce: a chunk of the elements has one slice for each rank. Round k brings the ranks' inputs of chunk k, without
 * their own slices, and the combined slices of chunk k - 1:
 *
 *   slot of rank r:   [inputs of chunk k | slice r of chunk k - 1, combined]
 *
 * Each rank reads its input and writes its output once; everything else stays in the cache. Small arrays go whole, in
 * one round, and each rank combines all of them. */
#include <stdio.h>
#include <string.h>

#include "base/integer.h"
#include "group/segment.h"

enum {
  SMALL_BYTES = 16 << 10,
  REFUSED = -2 /* an operation, in notices */
};

/* One collective on its way. */
typedef struct run {
  hr_group *group;
  const char *name;
  int64_t deadline_ns;
} run;

/* Addresses of nothing may be NULL. */
static void copy(void *to, const void *from, size_t bytes) {
  if (bytes > 0) {
    memcpy(to, from, bytes);
  }
}

/* ---- rounds ---- */

typedef struct arrival {
  hr_group_rank *rank;
  unsigned round;
} arrival;

static bool has_arrived(void *arg) {
  const arrival *a = arg;
  return (int)(atomic_load_explicit(&a->rank->posted, memory_order_acquire) - a->round) >= 0;
}

static unsigned next_round(const run *r) {
  return r->group->round + 1;
}

/* Posts the slot of the next round and waits for those of the others. */
static hr_status meet(const run *r) {
  hr_group *group = r->group;
  unsigned round = ++group->round;
  hr__group_note_processor(group);
  atomic_store(&group->header->ranks[group->rank].posted, round);
  for (int i = 0; i < group->size; ++i) {
    if (i != group->rank) {
      hr__group_ring_bell(group, i);
    }
  }
  for (int i = 0; i < group->size; ++i) {
    arrival a = {&group->header->ranks[i], round};
    if (!has_arrived(&a)) {
      hr__group_part_from(group, i);
      HR_RETURN_IF_ERROR(hr__group_wait(group, r->name, r->deadline_ns, i, has_arrived, &a));
      hr__group_note_processor(group);
    }
  }
  return HR_OK;
}

/* ---- notices ---- */

static const hr_group_notice *notice_of(const hr_group *group, int rank) {
  return &group->header->ranks[rank].notices[group->round & 1];
}

/* Announces the collective for the next round. */
static void announce(const run *r, const hr_group_call *call, int op, int64_t elements, int64_t stream_bytes) {
  hr_group_notice *notice = &r->group->header->ranks[r->group->rank].notices[next_round(r) & 1];
  memset(notice, 0, sizeof *notice);
  snprintf(notice->name, sizeof notice->name, "%s", call->name);
  notice->dtype = (int32_t)call->dtype;
  notice->op = op;
  notice->words[0] = call->words[0];
  notice->words[1] = call->words[1];
  notice->elements = elements;
  notice->stream_bytes = stream_bytes;
}

static void describe(char *out_text, size_t bytes, const hr_group_notice *notice) {
  if (notice->op == REFUSED) {
    snprintf(out_text, bytes, "%s with arguments that it refuses", notice->name);
    return;
  }
  int length = snprintf(out_text, bytes, "%s", notice->name);
  if (notice->elements >= 0) {
    length += snprintf(out_text + length, bytes - (size_t)length, " of %lld elements", (long long)notice->elements);
  }
  if (notice->dtype != HR_DTYPE_NONE) {
    length += snprintf(out_text + length, bytes - (size_t)length, " of %s", hr_dtype_name((hr_dtype)notice->dtype));
  }
  if (notice->op >= 0) {
    length += snprintf(out_text + length, bytes - (size_t)length, ", %s", hr_group_op_name((hr_group_op)notice->op));
  }
  snprintf(out_text + length, bytes - (size_t)length, " (%lld, %lld)", (long long)notice->words[0],
           (long long)notice->words[1]);
}

static bool are_equal(const hr_group_notice *a, const hr_group_notice *b) {
  return strcmp(a->name, b->name) == 0 && a->dtype == b->dtype && a->op == b->op && a->words[0] == b->words[0] &&
         a->words[1] == b->words[1] && a->elements == b->elements;
}

static hr_status compare_notices(const hr_group *group) {
  const hr_group_notice *first = notice_of(group, 0);
  for (int i = 1; i < group->size; ++i) {
    const hr_group_notice *other = notice_of(group, i);
    if (!are_equal(first, other)) {
      char mine[HR_GROUP_TEXT / 2], its[HR_GROUP_TEXT / 2];
      describe(mine, sizeof mine, first);
      describe(its, sizeof its, other);
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                            "the ranks' collectives differ: rank 0 runs %s, rank %d runs %s", mine, i, its);
    }
  }
  return HR_OK;
}

/* ---- begin and end ---- */

static hr_status begin_run(hr_group *group, const hr_group_call *call, run *out_run) {
  *out_run = (run){group, call->name, hr__group_deadline(call)};
  return hr__group_failure(group);
}

static hr_status end_run(const run *r, hr_status status) {
  hr_thread_move_end(&r->group->places);
  return status;
}

hr_status hr_group_refuse(hr_group *group, const hr_group_call *call) {
  run r;
  HR_RETURN_IF_ERROR(begin_run(group, call, &r));
  announce(&r, call, REFUSED, -1, 0);
  hr_status status = meet(&r);
  return end_run(&r, status != HR_OK ? status : compare_notices(group));
}

/* This rank's reason is its error. */
static hr_status refuse_because(hr_group *group, const hr_group_call *call, hr_status reason) {
  hr_status_ignore(hr_group_refuse(group, call));
  return reason;
}

/* ---- reductions ---- */

typedef struct reduction {
  run run;
  hr_group_op op;
  hr_dtype dtype;
  size_t size;      /* of an element */
  int64_t elements; /* of a whole array */
  int64_t chunk;    /* elements of a chunk */
  const char *input;
  char *output;
} reduction;

/* The second half of a slot has the combined slices. */
static char *result_in(const hr_group *group, int rank, unsigned round) {
  return hr__group_slot(group, rank, round) + group->header->slot_bytes / 2;
}

/* Elements [*out_begin, *out_end) of a chunk's `count` are rank's. Slices begin at multiples of 16 elements. */
static void slice_of(const hr_group *group, int64_t count, int rank, int64_t *out_begin, int64_t *out_end) {
  int64_t each = hr_round_up(hr_divide_up(count, group->size), 16);
  *out_begin = hr_min(each * rank, count);
  *out_end = hr_min(each * (rank + 1), count);
}

static int64_t count_in_chunk(const reduction *red, int64_t chunk) {
  return hr_min(red->chunk, red->elements - chunk * red->chunk);
}

static void bring_inputs(const reduction *red, int64_t chunk) {
  const hr_group *group = red->run.group;
  char *slot = hr__group_slot(group, group->rank, next_round(&red->run));
  const char *from = red->input + (size_t)(chunk * red->chunk) * red->size;
  int64_t begin, end, count = count_in_chunk(red, chunk);
  slice_of(group, count, group->rank, &begin, &end);
  hr__group_fill(group, slot, from, (size_t)begin * red->size);
  hr__group_fill(group, slot + (size_t)end * red->size, from + (size_t)end * red->size,
                 (size_t)(count - end) * red->size);
}

/* Combines this rank's slice, into the output and into the slot of the next round. */
static void combine_slice(const reduction *red, int64_t chunk) {
  const hr_group *group = red->run.group;
  int64_t begin, end;
  slice_of(group, count_in_chunk(red, chunk), group->rank, &begin, &end);
  const void *inputs[HR_GROUP_SIZE_MAX];
  size_t at = (size_t)(chunk * red->chunk + begin) * red->size;
  for (int i = 0; i < group->size; ++i) {
    inputs[i] = i == group->rank ? red->input + at : hr__group_slot(group, i, group->round) + (size_t)begin * red->size;
  }
  char *result = result_in(group, group->rank, next_round(&red->run));
  char *to = red->output != NULL ? red->output + at : result;
  hr_group_combine(red->op, red->dtype, group->size, inputs, to, end - begin);
  if (to != result) {
    hr__group_fill(group, result, to, (size_t)(end - begin) * red->size);
  }
}

static void take_results(const reduction *red, int64_t chunk) {
  const hr_group *group = red->run.group;
  for (int i = 0; red->output != NULL && i < group->size; ++i) {
    int64_t begin, end;
    slice_of(group, count_in_chunk(red, chunk), i, &begin, &end);
    if (i != group->rank) {
      copy(red->output + (size_t)(chunk * red->chunk + begin) * red->size, result_in(group, i, group->round),
           (size_t)(end - begin) * red->size);
    }
  }
}

static hr_status reduce_chunk(const reduction *red, int64_t k) {
  bool is_whole = count_in_chunk(red, k) == red->chunk;
  if (is_whole) {
    hr__group_begin_chunk(red->run.group);
  }
  bring_inputs(red, k);
  HR_RETURN_IF_ERROR(meet(&red->run));
  if (k == 0) {
    HR_RETURN_IF_ERROR(compare_notices(red->run.group));
  } else {
    take_results(red, k - 1);
  }
  combine_slice(red, k);
  if (is_whole) {
    hr__group_end_chunk(red->run.group, k == 0);
  }
  return HR_OK;
}

static hr_status reduce_in_chunks(const reduction *red) {
  int64_t chunks = hr_divide_up(red->elements, red->chunk);
  for (int64_t k = 0; k < chunks; ++k) {
    HR_RETURN_IF_ERROR(reduce_chunk(red, k));
  }
  HR_RETURN_IF_ERROR(meet(&red->run));
  take_results(red, chunks - 1);
  return HR_OK;
}

/* Every rank combines everything: one round. */
static hr_status reduce_whole(const reduction *red) {
  hr_group *group = red->run.group;
  copy(hr__group_slot(group, group->rank, next_round(&red->run)), red->input, (size_t)red->elements * red->size);
  HR_RETURN_IF_ERROR(meet(&red->run));
  HR_RETURN_IF_ERROR(compare_notices(group));
  const void *inputs[HR_GROUP_SIZE_MAX];
  for (int i = 0; i < group->size; ++i) {
    inputs[i] = hr__group_slot(group, i, group->round);
  }
  if (red->output != NULL) {
    hr_group_combine(red->op, red->dtype, group->size, inputs, red->output, red->elements);
  }
  return HR_OK;
}

static reduction reduction_of(const hr_group_call *call, hr_group_op op, int64_t elements, void *output) {
  return (reduction){
      .op = op, .dtype = call->dtype, .size = hr_dtype_size(call->dtype), .elements = elements, .output = output};
}

hr_status hr_group_all_reduce(hr_group *group, const hr_group_call *call, hr_group_op op, int64_t elements,
                              const void *input, void *output) {
  hr_status status = hr_group_check_op(op, call->dtype);
  if (status != HR_OK) {
    return refuse_because(group, call, status);
  }
  reduction red = reduction_of(call, op, elements, output);
  red.input = input;
  HR_RETURN_IF_ERROR(begin_run(group, call, &red.run));
  red.chunk = group->header->slot_bytes / 2 / (int64_t)red.size;
  announce(&red.run, call, op, elements, 0);
  bool is_small = (size_t)elements * red.size <= SMALL_BYTES;
  return end_run(&red.run, is_small ? reduce_whole(&red) : reduce_in_chunks(&red));
}

/* A chunk of all parts but the own one, side by side. */
static void bring_parts(const reduction *red, const void *const *inputs, int64_t at, int64_t count) {
  const hr_group *group = red->run.group;
  char *slot = hr__group_slot(group, group->rank, next_round(&red->run));
  for (int i = 0; i < group->size; ++i) {
    if (i != group->rank) {
      hr__group_fill(group, slot + (size_t)(i * red->chunk) * red->size,
                     (const char *)inputs[i] + (size_t)at * red->size, (size_t)count * red->size);
    }
  }
}

static void combine_part(const reduction *red, const void *const *inputs, int64_t at, int64_t count) {
  const hr_group *group = red->run.group;
  const void *parts[HR_GROUP_SIZE_MAX];
  for (int i = 0; i < group->size; ++i) {
    parts[i] = i == group->rank
                   ? (const char *)inputs[i] + (size_t)at * red->size
                   : hr__group_slot(group, i, group->round) + (size_t)(group->rank * red->chunk) * red->size;
  }
  hr_group_combine(red->op, red->dtype, group->size, parts, red->output + (size_t)at * red->size, count);
}

static hr_status reduce_parts(const reduction *red, const void *const *inputs) {
  int64_t at = 0;
  do {
    int64_t count = hr_min(red->chunk, red->elements - at);
    bring_parts(red, inputs, at, count);
    HR_RETURN_IF_ERROR(meet(&red->run));
    if (at == 0) {
      HR_RETURN_IF_ERROR(compare_notices(red->run.group));
    }
    combine_part(red, inputs, at, count);
    at += red->chunk;
  } while (at < red->elements);
  return HR_OK;
}

hr_status hr_group_reduce_scatter(hr_group *group, const hr_group_call *call, hr_group_op op, int64_t elements,
                                  const void *const *inputs, void *output) {
  hr_status status = hr_group_check_op(op, call->dtype);
  if (status != HR_OK) {
    return refuse_because(group, call, status);
  }
  reduction red = reduction_of(call, op, elements, output);
  HR_RETURN_IF_ERROR(begin_run(group, call, &red.run));
  red.chunk = group->header->slot_bytes / group->size / (int64_t)red.size;
  announce(&red.run, call, op, elements, 0);
  return end_run(&red.run, reduce_parts(&red, inputs));
}

/* ---- exchanges ----
 *
 * A rank's blocks, one after another, are its stream. Each round brings one slot of every stream. */

static int64_t fill_table(const hr_group *group, unsigned round, bool is_shared, const hr_group_block *blocks) {
  hr_group_row *table = hr__group_table(group, group->rank, round);
  int64_t end = 0;
  for (int i = 0; i < group->size; ++i) {
    bool is_own = i == group->rank;
    table[i] =
        (hr_group_row){is_shared ? 0 : end, is_own ? 0 : blocks[i].send_bytes, is_own ? 0 : blocks[i].receive_bytes};
    end = is_shared ? hr_max(end, table[i].bytes) : end + table[i].bytes;
  }
  return end;
}

/* The part of [begin, begin + bytes) in the window [at, at + room), relative to both. */
static int64_t overlap(int64_t begin, int64_t bytes, int64_t at, int64_t room, int64_t *out_in_block,
                       int64_t *out_in_window) {
  int64_t from = hr_max(begin, at), to = hr_min(begin + bytes, at + room);
  *out_in_block = from - begin;
  *out_in_window = from - at;
  return hr_max(to - from, 0);
}

static void write_stream(const run *r, bool is_shared, const hr_group_block *blocks, int64_t at) {
  const hr_group *group = r->group;
  const hr_group_row *table = hr__group_table(group, group->rank, group->round + 1);
  char *slot = hr__group_slot(group, group->rank, next_round(r));
  for (int i = 0; i < group->size; ++i) {
    int64_t in_block, in_slot;
    int64_t bytes = overlap(table[i].offset, table[i].bytes, at, group->header->slot_bytes, &in_block, &in_slot);
    if (bytes > 0) {
      hr__group_fill(group, slot + in_slot, (const char *)blocks[i].from + in_block, (size_t)bytes);
      if (is_shared) {
        return;
      }
    }
  }
}

static void read_streams(const run *r, const hr_group_row *sources, const hr_group_block *blocks, int64_t at) {
  const hr_group *group = r->group;
  for (int n = 1; n < group->size; ++n) { /* each rank begins with its neighbour */
    int i = (group->rank + n) % group->size;
    int64_t in_block, in_slot;
    int64_t bytes = overlap(sources[i].offset, sources[i].bytes, at, group->header->slot_bytes, &in_block, &in_slot);
    if (bytes > 0) {
      copy((char *)blocks[i].to + in_block, hr__group_slot(group, i, group->round) + in_slot, (size_t)bytes);
    }
  }
}

/* Every rank checks all pairs, so that all agree. */
static hr_status compare_tables(const hr_group *group, hr_group_row *out_sources) {
  for (int from = 0; from < group->size; ++from) {
    const hr_group_row *table = hr__group_table(group, from, group->round);
    for (int to = 0; to < group->size; ++to) {
      int64_t expected = hr__group_table(group, to, group->round)[from].expected;
      if (table[to].bytes != expected) {
        return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s: rank %d sends %lld bytes to rank %d, which expects %lld",
                              notice_of(group, 0)->name, from, (long long)table[to].bytes, to, (long long)expected);
      }
    }
    out_sources[from] = table[group->rank];
  }
  return HR_OK;
}

static int64_t longest_stream(const hr_group *group) {
  int64_t most = 0;
  for (int i = 0; i < group->size; ++i) {
    most = hr_max(most, notice_of(group, i)->stream_bytes);
  }
  return most;
}

static hr_status exchange(const run *r, bool is_shared, const hr_group_block *blocks) {
  hr_group *group = r->group;
  const hr_group_block *own = &blocks[group->rank];
  hr_group_row sources[HR_GROUP_SIZE_MAX];
  write_stream(r, is_shared, blocks, 0);
  HR_RETURN_IF_ERROR(meet(r));
  HR_RETURN_IF_ERROR(compare_notices(group));
  HR_RETURN_IF_ERROR(compare_tables(group, sources));
  if (own->receive_bytes > 0 && own->to != own->from) {
    memmove(own->to, own->from, (size_t)own->receive_bytes);
  }
  int64_t most = longest_stream(group);
  for (int64_t at = 0;;) {
    read_streams(r, sources, blocks, at);
    at += group->header->slot_bytes;
    if (at >= most) {
      return HR_OK;
    }
    copy(hr__group_table(group, group->rank, next_round(r)), hr__group_table(group, group->rank, group->round),
         (size_t)group->size * sizeof(hr_group_row));
    write_stream(r, is_shared, blocks, at);
    HR_RETURN_IF_ERROR(meet(r));
  }
}

hr_status hr_group_exchange(hr_group *group, const hr_group_call *call, bool is_shared, const hr_group_block *blocks) {
  run r;
  HR_RETURN_IF_ERROR(begin_run(group, call, &r));
  const hr_group_block *own = &blocks[group->rank];
  if (own->send_bytes != own->receive_bytes && own->receive_bytes != 0) {
    return refuse_because(group, call,
                          hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                                         "%s: rank %d sends %lld bytes to itself and expects %lld", call->name,
                                         group->rank, (long long)own->send_bytes, (long long)own->receive_bytes));
  }
  announce(&r, call, -1, -1, fill_table(group, next_round(&r), is_shared, blocks));
  return end_run(&r, exchange(&r, is_shared, blocks));
}
