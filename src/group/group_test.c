#include "headrace/group.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "hr_test.h"

enum { RANKS = 3, BIG = 300001 };
static const int64_t SECOND = 1000000000;

/* ---- ranks: as threads of this process, which join the same segment ---- */

typedef struct rank {
  hr_group *group;
  int rank, size;
  void (*body)(struct rank *self);
  const char *name, *failure; /* of the test */
  hr_thread thread;
} rank;

#define EXPECT(self, condition)                  \
  do {                                           \
    if (!(condition)) {                          \
      (self)->failure = "not true: " #condition; \
      return;                                    \
    }                                            \
  } while (0)

static hr_group_call call_of(const char *name, hr_dtype dtype) {
  return (hr_group_call){.name = name, .timeout_ns = 20 * SECOND, .dtype = dtype};
}

static void run_rank(void *arg) {
  rank *self = arg;
  self->body(self);
}

static void run_ranks(int size, void (*body)(rank *)) {
  rank ranks[RANKS] = {0};
  char name[64];
  snprintf(name, sizeof name, "headrace-test-%d-%d", (int)getpid(), rand());
  HR_ASSERT_OK(hr_group_create(name, size, &ranks[0].group));
  for (int i = 1; i < size; ++i) {
    HR_ASSERT_OK(hr_group_join(name, i, size, &ranks[i].group));
  }
  hr_group_hide(ranks[0].group);
  for (int i = 0; i < size; ++i) {
    ranks[i].rank = i, ranks[i].size = size, ranks[i].body = body;
    HR_ASSERT_OK(hr_thread_start("rank", run_rank, &ranks[i], &ranks[i].thread));
  }
  for (int i = 0; i < size; ++i) {
    hr_thread_join(&ranks[i].thread);
    hr_group_release(ranks[i].group);
  }
  for (int i = 0; i < size; ++i) {
    if (ranks[i].failure != NULL) {
      hr_test_fail(__FILE__, __LINE__, "rank %d: %s", i, ranks[i].failure);
    }
  }
}

static bool fails_with(hr_status status, hr_status_code code) {
  bool does = hr_status_code_of(status) == code;
  hr_status_ignore(status);
  return does;
}

/* ---- collectives ---- */

static void reduce_many(rank *self) {
  float *data = malloc(BIG * sizeof *data);
  const hr_group_call call = call_of("all_reduce", HR_DTYPE_F32);
  static const int64_t counts[] = {0, 1, 17, 5000, BIG};
  for (int k = 0; k < 5; ++k) {
    for (int64_t i = 0; i < counts[k]; ++i) {
      data[i] = (float)(i % 1000 * (self->rank + 1));
    }
    EXPECT(self, hr_group_all_reduce(self->group, &call, HR_GROUP_SUM, counts[k], data, data) == HR_OK);
    for (int64_t i = 0; i < counts[k]; ++i) {
      EXPECT(self, data[i] == (float)(i % 1000 * self->size * (self->size + 1) / 2));
    }
  }
  free(data);
}

HR_TEST(all_reduce_sums_small_and_large_arrays) {
  run_ranks(1, reduce_many);
  run_ranks(2, reduce_many);
  run_ranks(RANKS, reduce_many);
}

#ifdef __linux__
/* All ranks begin on one processor, and may use all or that one alone. */
static void reduce_from_one_processor(rank *self, bool may_move) {
  cpu_set_t all, first, after;
  EXPECT(self, sched_getaffinity(0, sizeof all, &all) == 0);
  CPU_ZERO(&first);
  for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&first) == 0; ++i) {
    if (CPU_ISSET(i, &all)) {
      CPU_SET(i, &first);
    }
  }
  EXPECT(self, sched_setaffinity(0, sizeof first, &first) == 0);
  if (may_move) {
    EXPECT(self, sched_setaffinity(0, sizeof all, &all) == 0);
  }
  reduce_many(self);
  EXPECT(self, sched_getaffinity(0, sizeof after, &after) == 0);
  EXPECT(self, CPU_EQUAL(&after, may_move ? &all : &first));
}

static void reduce_and_move(rank *self) {
  reduce_from_one_processor(self, true);
}

static void reduce_and_stay(rank *self) {
  reduce_from_one_processor(self, false);
}

HR_TEST(ranks_of_one_processor_part_if_they_can) {
  run_ranks(2, reduce_and_move);
  run_ranks(RANKS, reduce_and_move);
  run_ranks(RANKS, reduce_and_stay);
}
#endif

static void reduce_to_one(rank *self) {
  const int32_t in[2] = {self->rank, 7};
  int32_t out[2] = {-1, -1};
  hr_group_call call = call_of("reduce", HR_DTYPE_I32);
  call.words[0] = 1;
  bool is_root = self->rank == 1;
  EXPECT(self, hr_group_all_reduce(self->group, &call, HR_GROUP_MAX, 2, in, is_root ? out : NULL) == HR_OK);
  EXPECT(self, out[0] == (is_root ? self->size - 1 : -1) && out[1] == (is_root ? 7 : -1));
}

HR_TEST(a_rank_without_an_output_only_takes_part) {
  run_ranks(RANKS, reduce_to_one);
}

static void scatter_sums(rank *self) {
  enum { EACH = 70000 };
  double *in = malloc(RANKS * EACH * sizeof *in), *out = malloc(EACH * sizeof *out);
  const void *parts[RANKS];
  for (int r = 0; r < self->size; ++r) {
    parts[r] = in + r * EACH;
    for (int i = 0; i < EACH; ++i) {
      in[r * EACH + i] = i + 1000.0 * r + self->rank;
    }
  }
  const hr_group_call call = call_of("reduce_scatter", HR_DTYPE_F64);
  EXPECT(self, hr_group_reduce_scatter(self->group, &call, HR_GROUP_AVERAGE, EACH, parts, out) == HR_OK);
  for (int i = 0; i < EACH; ++i) {
    EXPECT(self, out[i] == i + 1000.0 * self->rank + (self->size - 1) / 2.0);
  }
  free(in);
  free(out);
}

HR_TEST(reduce_scatter_averages_the_parts) {
  run_ranks(2, scatter_sums);
  run_ranks(RANKS, scatter_sums);
}

/* Rank r sends r + 10 * s bytes of value 16 * r + s to rank s, some more than a slot. */
static int64_t bytes_between(int from, int to) {
  return from == 1 && to == 0 ? 2000003 : from + 10 * to;
}

static void exchange_all(rank *self) {
  hr_group_block blocks[RANKS];
  for (int i = 0; i < self->size; ++i) {
    int64_t out = bytes_between(self->rank, i), in = bytes_between(i, self->rank);
    char *from = malloc((size_t)out + 1), *to = malloc((size_t)in + 1);
    memset(from, 16 * self->rank + i, (size_t)out);
    memset(to, 255, (size_t)in + 1);
    blocks[i] = (hr_group_block){from, out, to, in};
  }
  const hr_group_call call = call_of("all_to_all", HR_DTYPE_U8);
  EXPECT(self, hr_group_exchange(self->group, &call, false, blocks) == HR_OK);
  for (int i = 0; i < self->size; ++i) {
    const unsigned char *to = blocks[i].to;
    for (int64_t k = 0; k < blocks[i].receive_bytes; ++k) {
      EXPECT(self, to[k] == 16 * i + self->rank);
    }
    EXPECT(self, to[blocks[i].receive_bytes] == 255);
    free((void *)blocks[i].from);
    free(blocks[i].to);
  }
}

static void gather_all(rank *self) {
  enum { EACH = 600000 };
  char *from = malloc(EACH), *to = malloc((size_t)RANKS * EACH);
  memset(from, self->rank + 1, EACH);
  hr_group_block blocks[RANKS];
  for (int i = 0; i < self->size; ++i) {
    blocks[i] = (hr_group_block){from, EACH, to + i * EACH, EACH};
  }
  const hr_group_call call = call_of("all_gather", HR_DTYPE_U8);
  EXPECT(self, hr_group_exchange(self->group, &call, true, blocks) == HR_OK);
  for (int i = 0; i < self->size * EACH; ++i) {
    EXPECT(self, to[i] == i / EACH + 1);
  }
  free(from);
  free(to);
}

HR_TEST(exchanges_move_blocks_of_all_sizes) {
  run_ranks(2, exchange_all);
  run_ranks(RANKS, exchange_all);
  run_ranks(RANKS, gather_all);
}

/* ---- arithmetic ---- */

static float combine_two(hr_group_op op, float a, float b) {
  const void *inputs[2] = {&a, &b};
  float out;
  hr_group_combine(op, HR_DTYPE_F32, 2, inputs, &out, 1);
  return out;
}

HR_TEST(combine_has_the_operations) {
  HR_ASSERT_EQ(combine_two(HR_GROUP_SUM, 3, 4), 7);
  HR_ASSERT_EQ(combine_two(HR_GROUP_PRODUCT, 3, 4), 12);
  HR_ASSERT_EQ(combine_two(HR_GROUP_MIN, 3, 4), 3);
  HR_ASSERT_EQ(combine_two(HR_GROUP_MAX, 3, 4), 4);
  HR_ASSERT_EQ(combine_two(HR_GROUP_AVERAGE, 3, 4), 3.5f);
  HR_ASSERT(isnan(combine_two(HR_GROUP_MIN, NAN, 4)) && isnan(combine_two(HR_GROUP_MAX, 4, NAN)));
  HR_ASSERT_STATUS(hr_group_check_op(HR_GROUP_XOR, HR_DTYPE_F32), HR_STATUS_UNIMPLEMENTED);
  HR_ASSERT_STATUS(hr_group_check_op(HR_GROUP_AVERAGE, HR_DTYPE_I32), HR_STATUS_UNIMPLEMENTED);
  HR_ASSERT_STATUS(hr_group_check_op(HR_GROUP_MAX, HR_DTYPE_C64), HR_STATUS_UNIMPLEMENTED);
  HR_ASSERT_STATUS(hr_group_check_op(HR_GROUP_SUM, HR_DTYPE_F8E5M2), HR_STATUS_UNIMPLEMENTED);
  HR_ASSERT_OK(hr_group_check_op(HR_GROUP_SUM, HR_DTYPE_C64));
}

HR_TEST(combine_rounds_half_precision_once_and_keeps_bools) {
  const uint16_t one = 0x3c00, tiny = 0x1000 /* 2^-11 */; /* 1 + 2^-11 rounds back to 1, 1 + 2^-10 does not */
  const void *halves[3] = {&one, &tiny, &tiny};
  uint16_t sum;
  hr_group_combine(HR_GROUP_SUM, HR_DTYPE_F16, 3, halves, &sum, 1);
  HR_ASSERT_EQ(sum, 0x3c01);
  const uint8_t a[4] = {0, 0, 1, 1}, b[4] = {0, 1, 0, 1};
  const void *bools[2] = {a, b};
  uint8_t out[4];
  hr_group_combine(HR_GROUP_SUM, HR_DTYPE_BOOL, 2, bools, out, 4);
  HR_ASSERT(out[0] == 0 && out[1] == 1 && out[2] == 1 && out[3] == 1);
  hr_group_combine(HR_GROUP_PRODUCT, HR_DTYPE_BOOL, 2, bools, out, 4);
  HR_ASSERT(out[0] == 0 && out[1] == 0 && out[2] == 0 && out[3] == 1);
}

/* ---- failures ---- */

static void differ_then_agree(rank *self) {
  float data[4] = {1, 1, 1, 1};
  hr_group_call call = call_of("all_reduce", self->rank == 1 ? HR_DTYPE_I32 : HR_DTYPE_F32);
  EXPECT(self,
         fails_with(hr_group_all_reduce(self->group, &call, HR_GROUP_SUM, 4, data, data), HR_STATUS_INVALID_ARGUMENT));
  call.dtype = HR_DTYPE_F32;
  int64_t elements = self->rank == 1 ? 3 : 4;
  EXPECT(self, fails_with(hr_group_all_reduce(self->group, &call, HR_GROUP_SUM, elements, data, data),
                          HR_STATUS_INVALID_ARGUMENT));
  hr_group_block blocks[RANKS];
  float in[4];
  for (int i = 0; i < self->size; ++i) {
    blocks[i] = (hr_group_block){data, self->rank == 2 ? 8 : 16, in, self->rank == i ? 0 : 16};
  }
  EXPECT(self, fails_with(hr_group_exchange(self->group, &call, true, blocks), HR_STATUS_INVALID_ARGUMENT));
  EXPECT(self, hr_group_all_reduce(self->group, &call, HR_GROUP_SUM, 4, data, data) == HR_OK);
  EXPECT(self, data[0] == (float)self->size);
}

HR_TEST(different_arguments_fail_on_all_ranks_and_break_nothing) {
  run_ranks(RANKS, differ_then_agree);
}

/* Of small and of large arrays: the last rank's operation is none of floats. */
static void refuse_reductions(rank *self) {
  bool is_refusing = self->rank == self->size - 1;
  hr_group_op op = is_refusing ? HR_GROUP_AND : HR_GROUP_SUM;
  const hr_group_call call = call_of("all_reduce", HR_DTYPE_F32), scatter = call_of("reduce_scatter", HR_DTYPE_F32);
  float *data = calloc(BIG, sizeof *data);
  const void *parts[RANKS] = {data, data, data};
  static const int64_t counts[] = {0, 3, BIG};
  for (int k = 0; k < 3; ++k) {
    hr_status status = hr_group_all_reduce(self->group, &call, op, counts[k], data, data);
    bool names_it = strstr(hr_status_message(status), "runs all_reduce with arguments that it refuses") != NULL;
    EXPECT(self, names_it == !is_refusing);
    EXPECT(self, fails_with(status, is_refusing ? HR_STATUS_UNIMPLEMENTED : HR_STATUS_INVALID_ARGUMENT));
    status = hr_group_reduce_scatter(self->group, &scatter, op, counts[k], parts, data);
    EXPECT(self, fails_with(status, is_refusing ? HR_STATUS_UNIMPLEMENTED : HR_STATUS_INVALID_ARGUMENT));
  }
  free(data);
}

static void refuse_then_agree(rank *self) {
  refuse_reductions(self);
  float data[4] = {1, 1, 1, 1}, in[4];
  const hr_group_call gather = call_of("all_gather", HR_DTYPE_F32), reduce = call_of("all_reduce", HR_DTYPE_F32);
  hr_group_block blocks[RANKS];
  for (int i = 0; i < self->size; ++i) {
    blocks[i] = (hr_group_block){data, 16, in, self->rank == 1 && i == 1 ? 8 : 16};
  }
  EXPECT(self, fails_with(hr_group_exchange(self->group, &gather, true, blocks), HR_STATUS_INVALID_ARGUMENT));
  blocks[1].receive_bytes = 16;
  if (self->rank == 0) {
    EXPECT(self, fails_with(hr_group_refuse(self->group, &gather), HR_STATUS_INVALID_ARGUMENT));
  } else {
    EXPECT(self, fails_with(hr_group_exchange(self->group, &gather, true, blocks), HR_STATUS_INVALID_ARGUMENT));
  }
  EXPECT(self, hr_group_refuse(self->group, &gather) == HR_OK); /* all refuse */
  EXPECT(self, hr_group_all_reduce(self->group, &reduce, HR_GROUP_SUM, 4, data, data) == HR_OK);
  EXPECT(self, data[3] == (float)self->size);
}

HR_TEST(a_refused_call_fails_on_all_ranks_and_breaks_nothing) {
  run_ranks(2, refuse_then_agree);
  run_ranks(RANKS, refuse_then_agree);
}

static void let_one_wait(rank *self) {
  float data = 1;
  hr_group_call call = call_of("all_reduce", HR_DTYPE_F32);
  call.timeout_ns = SECOND / 10;
  if (self->rank == 0) {
    usleep(300000);
  }
  hr_status status = hr_group_all_reduce(self->group, &call, HR_GROUP_SUM, 1, &data, &data);
  EXPECT(self, fails_with(status, self->rank == 0 ? HR_STATUS_UNAVAILABLE : HR_STATUS_DEADLINE_EXCEEDED));
  EXPECT(self,
         fails_with(hr_group_all_reduce(self->group, &call, HR_GROUP_SUM, 1, &data, &data), HR_STATUS_UNAVAILABLE));
}

HR_TEST(a_timeout_breaks_the_group_for_all) {
  run_ranks(2, let_one_wait);
}

static void break_one(rank *self) {
  float data = 1;
  const hr_group_call call = call_of("all_reduce", HR_DTYPE_F32);
  if (self->rank == 0) {
    usleep(50000);
    hr_group_break(self->group, "the user has stopped it");
  }
  hr_status status = hr_group_all_reduce(self->group, &call, HR_GROUP_SUM, 1, &data, &data);
  EXPECT(self, strstr(hr_status_message(status), "the user has stopped it") != NULL);
  EXPECT(self, fails_with(status, HR_STATUS_UNAVAILABLE));
}

HR_TEST(breaking_the_group_ends_waits) {
  run_ranks(2, break_one);
}

/* A child joins, takes part once, and is killed: the parent notices long before its timeout. */
HR_TEST(a_rank_that_is_killed_is_noticed) {
  char name[64];
  snprintf(name, sizeof name, "headrace-test-%d-killed", (int)getpid());
  hr_group *group;
  HR_ASSERT_OK(hr_group_create(name, 2, &group));
  const hr_group_call call = call_of("all_reduce", HR_DTYPE_I64);
  int64_t data = 1;
  pid_t child = fork();
  if (child == 0) {
    hr_group *own;
    bool is_fine = hr_group_join(name, 1, 2, &own) == HR_OK &&
                   hr_group_all_reduce(own, &call, HR_GROUP_SUM, 1, &data, &data) == HR_OK;
    kill(getpid(), is_fine ? SIGKILL : SIGTERM);
  }
  HR_ASSERT_OK(hr_group_all_reduce(group, &call, HR_GROUP_SUM, 1, &data, &data));
  HR_ASSERT_EQ(data, 2);
  int64_t begin = hr_clock_ns();
  hr_status status = hr_group_all_reduce(group, &call, HR_GROUP_SUM, 1, &data, &data);
  HR_ASSERT(strstr(hr_status_message(status), "rank 1 has ended") != NULL);
  HR_ASSERT(fails_with(status, HR_STATUS_UNAVAILABLE));
  HR_ASSERT(hr_clock_ns() - begin < 10 * SECOND);
  int how = 0;
  HR_ASSERT_EQ(waitpid(child, &how, 0), child);
  HR_ASSERT_EQ(WTERMSIG(how), SIGKILL);
  hr_group_hide(group);
  hr_group_release(group);
}

static void leave_early(rank *self) {
  float data = 1;
  const hr_group_call call = call_of("all_reduce", HR_DTYPE_F32);
  if (self->rank == 1) {
    hr_group_release(self->group);
    self->group = NULL;
    return;
  }
  hr_status status = hr_group_all_reduce(self->group, &call, HR_GROUP_SUM, 1, &data, &data);
  EXPECT(self, strstr(hr_status_message(status), "rank 1 has left") != NULL);
  EXPECT(self, fails_with(status, HR_STATUS_UNAVAILABLE));
}

HR_TEST(a_rank_that_left_is_named) {
  run_ranks(2, leave_early);
}

HR_TEST(joining_needs_the_name_and_the_size) {
  char name[64];
  snprintf(name, sizeof name, "headrace-test-%d-size", (int)getpid());
  hr_group *group, *other;
  HR_ASSERT_STATUS(hr_group_join(name, 1, 2, &other), HR_STATUS_NOT_FOUND);
  HR_ASSERT_OK(hr_group_create(name, 2, &group));
  HR_ASSERT_STATUS(hr_group_create(name, 2, &other), HR_STATUS_ALREADY_EXISTS);
  HR_ASSERT_STATUS(hr_group_join(name, 1, 3, &other), HR_STATUS_FAILED_PRECONDITION);
  HR_ASSERT_STATUS(hr_group_join(name, 2, 2, &other), HR_STATUS_INVALID_ARGUMENT);
  hr_group_hide(group);
  HR_ASSERT_STATUS(hr_group_join(name, 1, 2, &other), HR_STATUS_NOT_FOUND);
  hr_group_release(group);
}

#ifdef __linux__
static bool exists(const char *name) {
  struct stat found;
  char path[128];
  snprintf(path, sizeof path, "/dev/shm/%s", name);
  return stat(path, &found) == 0;
}

static void make_old(const char *name) {
  char path[128];
  snprintf(path, sizeof path, "/dev/shm/%s", name);
  const struct timespec old[2] = {{.tv_sec = time(NULL) - HR_GROUP_STALE_S - 10},
                                  {.tv_sec = time(NULL) - HR_GROUP_STALE_S - 10}};
  HR_ASSERT_EQ(utimensat(AT_FDCWD, path, old, 0), 0);
}

/* A process that creates a segment, or joins one, and then waits for its end. */
static pid_t start_rank(const char *name, int number) {
  int ready[2];
  HR_ASSERT_EQ(pipe(ready), 0);
  pid_t child = fork();
  if (child == 0) {
    hr_group *group;
    hr_status status = number == 0 ? hr_group_create(name, 2, &group) : hr_group_join(name, number, 2, &group);
    char is_fine = status == HR_OK;
    if (write(ready[1], &is_fine, 1) == 1) {
      for (;;) {
        pause();
      }
    }
    _exit(1);
  }
  char is_fine = 0;
  HR_ASSERT_EQ(read(ready[0], &is_fine, 1), 1);
  HR_ASSERT(is_fine);
  close(ready[0]);
  close(ready[1]);
  return child;
}

static void kill_rank(pid_t child) {
  int how = 0;
  kill(child, SIGKILL);
  HR_ASSERT_EQ(waitpid(child, &how, 0), child);
}

HR_TEST(segments_of_killed_processes_are_swept) {
  char prefix[64], own[80], killed[96], joined[96], young[96], mine[96];
  snprintf(prefix, sizeof prefix, "headrace-test-%d-", (int)getpid());
  snprintf(own, sizeof own, "%sown-", prefix);
  snprintf(killed, sizeof killed, "%skilled", prefix);
  snprintf(joined, sizeof joined, "%sjoined", prefix);
  snprintf(young, sizeof young, "%syoung", prefix);
  snprintf(mine, sizeof mine, "%smine", own);
  pid_t first = start_rank(killed, 0), second = start_rank(joined, 0), third = start_rank(joined, 1);
  pid_t fourth = start_rank(young, 0);
  hr_group *group;
  HR_ASSERT_OK(hr_group_create(mine, 2, &group));
  make_old(killed);
  make_old(joined);
  make_old(mine);
  hr_group_sweep(prefix, own);
  HR_ASSERT(exists(killed) && exists(joined) && exists(mine)); /* all are in use */
  kill_rank(first);
  kill_rank(second);
  kill_rank(fourth);
  hr_group_sweep(prefix, own);
  HR_ASSERT(!exists(killed));
  HR_ASSERT(exists(joined) && exists(mine)); /* one rank lives */
  HR_ASSERT(exists(young));
  kill_rank(third);
  make_old(young);
  hr_group_sweep(prefix, own);
  HR_ASSERT(!exists(joined) && !exists(young) && exists(mine));
  hr_group_hide(group);
  hr_group_release(group);
}
#endif

/* ---- messages ---- */

/* Both send first, more than a ring holds; tags arrive in another order than sent. */
static void send_both_ways(rank *self) {
  enum { LARGE = 3000001 };
  char *large = malloc(LARGE), *got = malloc(LARGE);
  memset(large, 'a' + self->rank, LARGE);
  const int other = 1 - self->rank;
  const hr_group_call send = call_of("send", HR_DTYPE_U8), receive = call_of("recv", HR_DTYPE_U8);
  char small = (char)self->rank, first = 0;
  int from = -1;
  EXPECT(self, hr_group_send(self->group, &send, other, 7, large, LARGE) == HR_OK);
  EXPECT(self, hr_group_send(self->group, &send, other, 8, &small, 1) == HR_OK);
  EXPECT(self, hr_group_send(self->group, &send, other, 9, NULL, 0) == HR_OK);
  EXPECT(self, hr_group_receive(self->group, &receive, -1, 8, &first, 1, &from) == HR_OK);
  EXPECT(self, from == other && first == (char)other);
  EXPECT(self, hr_group_receive(self->group, &receive, other, 7, got, LARGE, NULL) == HR_OK);
  EXPECT(self, got[0] == 'a' + other && got[LARGE - 1] == 'a' + other);
  EXPECT(self, hr_group_receive(self->group, &receive, other, 9, NULL, 0, NULL) == HR_OK);
  EXPECT(self, hr_group_send(self->group, &send, other, 1, &small, 1) == HR_OK);
  EXPECT(self, fails_with(hr_group_receive(self->group, &receive, other, 1, got, 2, NULL), HR_STATUS_INVALID_ARGUMENT));
  free(large);
  free(got);
}

HR_TEST(messages_pass_in_both_directions) {
  run_ranks(2, send_both_ways);
}
