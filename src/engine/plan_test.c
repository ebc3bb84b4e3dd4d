/* A program is compiled once for all streams, threads and devices of a kind; each stream has an instance of its own. */
#include "hr_test.h"

#include "base/allocator.h"
#include "base/thread.h"
#include "engine/stream.h"

enum { COUNT = 64 };
#include "vectors.h"

typedef struct user {
  hr_device *device;
  hr_stream *stream;
  hr_buffer *x, *y;
  double by;
  hr_status status;
} user;

static void open_user(user *u, const char *device) {
  float ones[COUNT];
  for (int i = 0; i < COUNT; ++i) {
    ones[i] = 1;
  }
  HR_ASSERT_OK(hr_device_open(device, &u->device));
  HR_ASSERT_OK(hr_stream_create(u->device, &u->stream));
  hr_stream_set_mode(u->stream, HR_MODE_FUSE);
  HR_ASSERT_OK(hr_buffer_create(u->device, sizeof ones, &u->x));
  HR_ASSERT_OK(hr_buffer_create(u->device, sizeof ones, &u->y));
  hr_view x = view_of(u->x), y = view_of(u->y);
  HR_ASSERT_OK(hr_stream_write(u->stream, &x, ones));
  HR_ASSERT_OK(hr_stream_write(u->stream, &y, ones));
  u->by = 3;
}

static void close_user(user *u) {
  hr_buffer_release(u->x);
  hr_buffer_release(u->y);
  hr_stream_release(u->stream);
  hr_device_release(u->device);
}

/* y = x * by + y, as the last element of it. */
static hr_status run(user *u, float *out_value) {
  float values[COUNT] = {0};
  hr_scalar by = hr_scalar_f64(u->by);
  hr_view inputs[2] = {view_of(u->x), {.scalar = &by, .dtype = by.dtype}}, output = view_of(u->y);
  hr_buffer *t;
  HR_RETURN_IF_ERROR(hr_buffer_create(u->device, COUNT * sizeof(float), &t));
  hr_view between = view_of(t), sum[2] = {between, output};
  hr_status status = hr_stream_record(u->stream, HR_OP_MUL, NULL, 2, inputs, 1, &between);
  status = status == HR_OK ? hr_stream_record(u->stream, HR_OP_ADD, NULL, 2, sum, 1, &output) : status;
  hr_buffer_release(t);
  status = status == HR_OK ? hr_stream_read(u->stream, &output, values) : status;
  *out_value = values[COUNT - 1];
  return status;
}

static int64_t compiles_of(const user *u) {
  hr_stats stats;
  hr_stream_stats(u->stream, &stats);
  HR_ASSERT_EQ(stats.compiles + stats.cache_hits, stats.commits);
  return stats.compiles;
}

HR_TEST(two_streams_share_a_compilation_and_have_an_instance_each) {
  user a = {0}, b = {0};
  float value;
  open_user(&a, "cpu");
  open_user(&b, "cpu");
  b.by = 5;
  HR_ASSERT_OK(run(&a, &value));
  HR_ASSERT_NEAR(value, 4, 0);
  HR_ASSERT_OK(run(&b, &value));
  HR_ASSERT_NEAR(value, 6, 0);
  HR_ASSERT_EQ(compiles_of(&a), 1);
  HR_ASSERT_EQ(compiles_of(&b), 0);
  const hr_instance *first = a.stream->cache.newest, *second = b.stream->cache.newest;
  HR_ASSERT(first != second && first->plan->is_settled && second->plan->is_settled);
  HR_ASSERT_EQ(first->plan->footprint, second->plan->footprint);
  close_user(&a); /* the plan stays as long as one of them */
  HR_ASSERT_OK(run(&b, &value));
  HR_ASSERT_NEAR(value, 11, 0);
  HR_ASSERT_EQ(compiles_of(&b), 0);
  close_user(&b);
}

HR_TEST(a_plan_lists_the_buffers_that_it_writes) {
  user a = {0};
  float value;
  open_user(&a, "cpu");
  HR_ASSERT_OK(run(&a, &value)); /* reads x and y, writes a value between and y */
  const hr_plan *plan = a.stream->cache.newest->plan;
  uint32_t written = 0;
  for (uint32_t i = 0; i < plan->key.buffer_count; ++i) {
    written += hr__plan_writes(plan, i);
  }
  HR_ASSERT(!hr__plan_writes(plan, (uint32_t)plan->key.buffer_count));
  HR_ASSERT(written > 0 && written < plan->key.buffer_count);
  HR_ASSERT_EQ(hr__plan_write_count(plan), written);
  for (size_t i = 0; i < written; ++i) {
    hr_plan_write write = hr__plan_write(plan, i);
    HR_ASSERT(hr__plan_writes(plan, write.local) && (i == 0 || hr__plan_write(plan, i - 1).local < write.local));
    HR_ASSERT(write.last_step >= 0 && write.last_step < a.stream->cache.newest->step_count);
  }
  close_user(&a);
}

HR_TEST(a_plan_goes_with_its_last_instance) {
  for (int i = 0; i < 2; ++i) {
    user a = {0};
    float value;
    open_user(&a, "cpu");
    HR_ASSERT_OK(run(&a, &value));
    HR_ASSERT_EQ(compiles_of(&a), 1);
    close_user(&a);
  }
}

HR_TEST(devices_of_another_kind_have_plans_of_their_own) {
  user a = {0}, b = {0};
  float value;
  open_user(&a, "cpu");
  open_user(&b, "null");
  HR_ASSERT_OK(run(&a, &value));
  HR_ASSERT_OK(run(&b, &value));
  HR_ASSERT_EQ(compiles_of(&a) + compiles_of(&b), 2);
  HR_ASSERT(a.stream->cache.newest->plan != b.stream->cache.newest->plan);
  close_user(&a);
  close_user(&b);
}

enum { THREADS = 4, ROUNDS = 50 };

static void run_often(void *arg) {
  user *u = arg;
  float value;
  for (int i = 0; i < ROUNDS && u->status == HR_OK; ++i) {
    u->status = run(u, &value);
    hr__cache_clear(&u->stream->cache); /* the plan comes and goes */
  }
}

HR_TEST(threads_share_plans) {
  static user users[THREADS];
  hr_thread threads[THREADS];
  for (int i = 0; i < THREADS; ++i) {
    users[i] = (user){0};
    open_user(&users[i], "cpu");
  }
  for (int i = 0; i < THREADS; ++i) {
    HR_ASSERT_OK(hr_thread_start("user", run_often, &users[i], &threads[i]));
  }
  for (int i = 0; i < THREADS; ++i) {
    float value;
    hr_thread_join(&threads[i]);
    HR_ASSERT_OK(users[i].status);
    HR_ASSERT_OK(run(&users[i], &value));
    HR_ASSERT_NEAR(value, 1 + 3 * (ROUNDS + 1), 0);
    close_user(&users[i]);
  }
}

/* y = op(x, x) of the first `count` elements, read; true if that was a copy of another plan. */
static bool runs_copy(user *u, hr_op op, int64_t count) {
  float values[COUNT];
  hr_stats before, after;
  const int64_t one = 1;
  hr_view views[3] = {view_of(u->x), view_of(u->x), view_of(u->y)};
  for (int i = 0; i < 3; ++i) {
    views[i].rank = 1, views[i].dims = &count, views[i].strides = &one;
  }
  hr_stream_stats(u->stream, &before);
  HR_ASSERT_OK(hr_stream_record(u->stream, op, NULL, 2, views, 1, &views[2]));
  HR_ASSERT_OK(hr_stream_read(u->stream, &views[2], values));
  hr_stream_stats(u->stream, &after);
  HR_ASSERT_EQ(after.compiles - before.compiles, 1);
  return after.general_plans > before.general_plans;
}

HR_TEST(plans_are_learned_from_once_a_second_one_has_the_same_structure) {
  user a = {0};
  open_user(&a, "cpu");
  HR_ASSERT(!runs_copy(&a, HR_OP_MUL, 10)); /* waits */
  HR_ASSERT(!runs_copy(&a, HR_OP_MUL, 14));
  HR_ASSERT(!runs_copy(&a, HR_OP_MUL, 22));
  HR_ASSERT(runs_copy(&a, HR_OP_MUL, 18));
  HR_ASSERT(!runs_copy(&a, HR_OP_SUB, 10)); /* another structure of these lengths */
  HR_ASSERT(!runs_copy(&a, HR_OP_SUB, 14));
  HR_ASSERT(!runs_copy(&a, HR_OP_SUB, 22));
  HR_ASSERT(runs_copy(&a, HR_OP_SUB, 18));
  close_user(&a);
}

HR_TEST(structures_of_the_same_lengths_wait_apart) {
  user a = {0};
  const int64_t counts[] = {10, 14, 22};
  open_user(&a, "cpu");
  for (int i = 0; i < 3; ++i) {
    HR_ASSERT(!runs_copy(&a, HR_OP_MAXIMUM, counts[i]));
    HR_ASSERT(!runs_copy(&a, HR_OP_MINIMUM, counts[i]));
  }
  HR_ASSERT(runs_copy(&a, HR_OP_MAXIMUM, 18));
  HR_ASSERT(runs_copy(&a, HR_OP_MINIMUM, 18));
  HR_ASSERT(!runs_copy(&a, HR_OP_DIV, 10)); /* waits, by its structure alone */
  hr__cache_clear(&a.stream->cache);
  for (int i = 0; i < 3; ++i) {
    HR_ASSERT(!runs_copy(&a, HR_OP_DIV, counts[i] + 1));
  }
  close_user(&a);
}

HR_TEST(a_plan_that_ends_while_it_waits_is_forgotten) {
  user a = {0};
  open_user(&a, "null");
  HR_ASSERT(!runs_copy(&a, HR_OP_MUL, 10));
  hr__cache_clear(&a.stream->cache);
  HR_ASSERT(!runs_copy(&a, HR_OP_MUL, 12)); /* waits in its place */
  HR_ASSERT(!runs_copy(&a, HR_OP_MUL, 14));
  HR_ASSERT(!runs_copy(&a, HR_OP_MUL, 22));
  HR_ASSERT(runs_copy(&a, HR_OP_MUL, 18));
  close_user(&a);
}

/* ---- packed schedules ---- */

/* Words and numbers of a schedule. */
typedef struct split {
  hr_words structure;
  hr_numbers numbers;
} split;

static split split_of(const hr_schedule *schedule) {
  split s = {0};
  HR_ASSERT(hr_schedule_split(schedule, &s.structure, &s.numbers));
  return s;
}

static void split_fini(split *s) {
  hr_vector_fini(&s->structure);
  hr_vector_fini(&s->numbers);
}

static void expect_equal(const hr_schedule *a, const hr_schedule *b) {
  split x = split_of(a), y = split_of(b);
  HR_ASSERT_EQ(x.structure.count, y.structure.count);
  HR_ASSERT_EQ(x.numbers.count, y.numbers.count);
  HR_ASSERT(memcmp(x.structure.data, y.structure.data, x.structure.count * sizeof *x.structure.data) == 0);
  HR_ASSERT(memcmp(x.numbers.data, y.numbers.data, x.numbers.count * sizeof *x.numbers.data) == 0);
  split_fini(&x), split_fini(&y);
}

/* The kernels, the sizes and the traffic of a settled plan come back as they were compiled. */
HR_TEST(a_settled_plan_is_unpacked_as_it_was_compiled) {
  user u = {0};
  float value;
  hr_program program;
  hr_schedule compiled;
  uint64_t *words;
  const hr_target target = {.resident_row_bytes = 1 << 18, .hoist_bytes = 1 << 15};
  open_user(&u, "cpu");
  HR_ASSERT_OK(run(&u, &value));
  const hr_plan *plan = u.stream->cache.newest->plan;
  HR_ASSERT(plan->is_settled && plan->compiled.kernel_count == 1);
  hr_unpacked_schedule *unpacked = hr__packed_schedule_unpack(
      &plan->compiled, &plan->schedule, &(hr_step_args){.args = plan->args, .scalars = plan->scalars});
  HR_ASSERT_NOT_NULL(unpacked);
  HR_ASSERT_OK(hr__plan_decode_key(plan, &program, &words));
  HR_ASSERT_OK(hr_compile(&program, &target, &compiled));
  HR_ASSERT_OK(hr_schedule_compact(&compiled));
  expect_equal(&unpacked->schedule, &compiled);
  const hr_kernel *a = unpacked->schedule.steps[0].kernel, *b = compiled.steps[0].kernel;
  HR_ASSERT(a->bytes == b->bytes && a->flops == b->flops && strcmp(a->name, b->name) == 0);
  hr__unpacked_schedule_destroy(unpacked);
  hr_schedule_fini(&compiled);
  hr_program_fini(&program);
  hr_free(words);
  close_user(&u);
}
