/* Records of what ran: what they contain, and that programs and results are the same with them. */
#include "hr_test.h"

#include <pthread.h>

#include "engine/stream.h"
#include "headrace/profile.h"

enum { ROWS = 4, COLUMNS = 32, COUNT = ROWS * COLUMNS, KEPT_MAX = 256, TEXT_MAX = 160 };
static const int64_t dims[2] = {ROWS, COLUMNS}, strides[2] = {COLUMNS, 1};

typedef struct fixture {
  hr_device *device;
  hr_stream *stream;
  hr_profile *profile;
} fixture;

static void open_device(fixture *f, const char *name, size_t ring_bytes, unsigned flags) {
  HR_ASSERT_OK(hr_device_open(name, &f->device));
  HR_ASSERT_OK(hr_stream_create(f->device, &f->stream));
  hr_stream_set_mode(f->stream, HR_MODE_FUSE);
  HR_ASSERT_OK(hr_profile_create(f->device, ring_bytes, flags, &f->profile));
}

static void open_fixture(fixture *f, size_t ring_bytes, unsigned flags) {
  open_device(f, "cpu", ring_bytes, flags);
}

static void close_fixture(fixture *f) {
  hr_profile_release(f->profile);
  hr_stream_release(f->stream);
  hr_device_release(f->device);
}

static hr_view make(const fixture *f) {
  hr_view view = {.dtype = HR_DTYPE_F32, .rank = 2, .dims = dims, .strides = strides};
  HR_ASSERT_OK(hr_buffer_create(f->device, COUNT * sizeof(float), &view.buffer));
  return view;
}

static void record(const fixture *f, hr_op op, const hr_view *a, const hr_view *b, const hr_view *out) {
  hr_view inputs[2] = {*a, b != NULL ? *b : (hr_view){0}};
  HR_ASSERT_OK(hr_stream_record(f->stream, op, NULL, b != NULL ? 2 : 1, inputs, 1, out));
}

/* tanh(x) + x; the tanh is correlated with 7, the sum with 8. A negation of x is dropped. */
static hr_view run_chain(const fixture *f, const hr_view *x) {
  hr_view t = make(f), y = make(f), unused = make(f);
  hr_profile_correlate(7);
  record(f, HR_OP_TANH, x, NULL, &t);
  hr_profile_correlate(8);
  record(f, HR_OP_ADD, &t, x, &y);
  hr_profile_correlate(9);
  record(f, HR_OP_NEG, x, NULL, &unused);
  hr_profile_correlate(0);
  hr_buffer_release(t.buffer);
  hr_buffer_release(unused.buffer);
  return y;
}

static hr_view make_input(const fixture *f) {
  float values[COUNT];
  for (int i = 0; i < COUNT; ++i) {
    values[i] = (float)i * 0.01F;
  }
  hr_view x = make(f);
  HR_ASSERT_OK(hr_stream_write(f->stream, &x, values));
  return x;
}

static void read_back(const fixture *f, const hr_view *view, float *out) {
  HR_ASSERT_OK(hr_stream_read(f->stream, view, out));
}

/* Copies of records; texts and lists are valid during the call alone. */
typedef struct kept {
  hr_profile_record records[KEPT_MAX];
  char names[KEPT_MAX][TEXT_MAX], shapes[KEPT_MAX][TEXT_MAX], operations[KEPT_MAX][TEXT_MAX];
  int count;
} kept;

static void keep(void *arg, const hr_profile_record *record) {
  kept *k = arg;
  if (k->count < KEPT_MAX) {
    char *text = k->operations[k->count];
    size_t length = 0;
    snprintf(k->names[k->count], TEXT_MAX, "%s", record->name);
    snprintf(k->shapes[k->count], TEXT_MAX, "%s", record->shapes);
    for (int64_t i = 0; record->operations != NULL && i < record->operation_count && length < TEXT_MAX - 40; ++i) {
      unsigned long long correlation = record->correlations != NULL ? record->correlations[i] : 0;
      length += (size_t)snprintf(text + length, TEXT_MAX - length, "%s%llu:%s:%llu", i > 0 ? " " : "",
                                 (unsigned long long)record->operations[i], record->operation_names[i], correlation);
    }
    k->records[k->count++] = *record;
  }
}

static kept kept_records;

static kept *read_records(const fixture *f) {
  memset(&kept_records, 0, sizeof kept_records);
  HR_ASSERT_OK(hr_profile_read(f->profile, sizeof(hr_profile_record), keep, &kept_records));
  return &kept_records;
}

/* The index of the first record of a kind; fails without one. */
static int find(const kept *k, hr_profile_kind kind) {
  for (int i = 0; i < k->count; ++i) {
    if (k->records[i].kind == kind) {
      return i;
    }
  }
  HR_FAIL("no record of kind %d among %d", (int)kind, k->count);
}

static int count_kind(const kept *k, hr_profile_kind kind) {
  int count = 0;
  for (int i = 0; i < k->count; ++i) {
    count += k->records[i].kind == kind;
  }
  return count;
}

static kept *profile_one_chain(fixture *f, unsigned flags) {
  float values[COUNT];
  open_fixture(f, 0, flags);
  HR_ASSERT_OK(hr_profile_start(f->profile));
  hr_view x = make_input(f), y = run_chain(f, &x);
  read_back(f, &y, values);
  HR_ASSERT_OK(hr_profile_stop(f->profile));
  hr_buffer_release(x.buffer);
  hr_buffer_release(y.buffer);
  return read_records(f);
}

HR_TEST(a_kernel_is_recorded_with_its_operations_shapes_and_bytes) {
  fixture f;
  kept *k = profile_one_chain(&f, 0);
  HR_ASSERT_EQ(count_kind(k, HR_PROFILE_KERNEL), 1);
  int i = find(k, HR_PROFILE_KERNEL);
  const hr_profile_record *kernel = &k->records[i];
  HR_ASSERT_STR_EQ(k->operations[i], "0:tanh:7 1:add:8");
  HR_ASSERT_STR_EQ(k->shapes[i], "f32[4,32] -> f32[4,32]");
  HR_ASSERT_EQ(kernel->bytes_read, COUNT * sizeof(float));
  HR_ASSERT_EQ(kernel->bytes_written, COUNT * sizeof(float));
  HR_ASSERT_EQ(kernel->bytes_saved, COUNT * sizeof(float)); /* the result of tanh */
  HR_ASSERT(kernel->tier == HR_PROFILE_TIER_INTERPRETED || kernel->tier == HR_PROFILE_TIER_COMPILED);
  HR_ASSERT(k->names[i][0] != '\0' && kernel->begin_ns > 0 && kernel->end_ns >= kernel->begin_ns);
  const hr_profile_record *run = &k->records[find(k, HR_PROFILE_RUN)];
  HR_ASSERT(run->begin_ns <= kernel->begin_ns && run->end_ns >= kernel->end_ns);
  HR_ASSERT(run->run == kernel->run && run->program == kernel->program && run->program != 0);
  HR_ASSERT_EQ(run->operation_count, 3);
  close_fixture(&f);
}

HR_TEST(commits_copies_compilations_allocations_and_dropped_operations_are_recorded) {
  fixture f;
  kept *k = profile_one_chain(&f, 0);
  int commit = find(k, HR_PROFILE_COMMIT), run = find(k, HR_PROFILE_RUN);
  HR_ASSERT_CONTAINS(k->names[commit], "a value is needed");
  HR_ASSERT_EQ(k->records[commit].run, k->records[run].run);
  HR_ASSERT_EQ(k->records[commit].operation_count, 3);
  HR_ASSERT_STR_EQ(k->operations[find(k, HR_PROFILE_DROPPED)], "2:neg:9");
  int in = find(k, HR_PROFILE_COPY_IN), out = find(k, HR_PROFILE_COPY_OUT);
  HR_ASSERT_STR_EQ(k->shapes[in], "f32[4,32]");
  HR_ASSERT_EQ(k->records[in].elements, COUNT);
  HR_ASSERT_EQ(k->records[out].bytes_read, COUNT * sizeof(float));
  HR_ASSERT_EQ(k->records[find(k, HR_PROFILE_COMPILE)].program, k->records[run].program);
  HR_ASSERT_EQ(k->records[find(k, HR_PROFILE_ALLOCATION)].bytes_written, COUNT * sizeof(float));
  HR_ASSERT_EQ(count_kind(k, HR_PROFILE_ALLOCATION), 2); /* x and y; the others never get memory */
  HR_ASSERT_EQ(count_kind(k, HR_PROFILE_OPERATION), 0);
  close_fixture(&f);
}

/* On the null device, which has events. */
HR_TEST(events_give_the_times_of_kernels) {
  fixture f;
  int timed = 0;
  open_device(&f, "null", 0, 0);
  hr_view x = make_input(&f);
  HR_ASSERT_OK(hr_profile_start(f.profile));
  for (int i = 0; i < 3; ++i) {
    hr_view y = run_chain(&f, &x);
    HR_ASSERT_OK(hr_stream_synchronize(f.stream));
    hr_buffer_release(y.buffer);
  }
  HR_ASSERT_OK(hr_profile_stop(f.profile));
  hr_buffer_release(x.buffer);
  const kept *k = read_records(&f);
  HR_ASSERT_EQ(count_kind(k, HR_PROFILE_KERNEL), 3);
  for (int i = 0; i < k->count; ++i) {
    const hr_profile_record *kernel = &k->records[i];
    for (int j = 0; kernel->kind == HR_PROFILE_KERNEL && j < k->count; ++j) {
      const hr_profile_record *run = &k->records[j];
      if (run->kind == HR_PROFILE_RUN && run->run == kernel->run) {
        HR_ASSERT(kernel->begin_ns >= run->begin_ns && kernel->end_ns >= kernel->begin_ns);
        HR_ASSERT(kernel->end_ns <= run->end_ns);
        ++timed;
      }
    }
  }
  HR_ASSERT_EQ(timed, 3);
  close_fixture(&f);
}

HR_TEST(with_the_flag_each_operation_has_a_record) {
  fixture f;
  kept *k = profile_one_chain(&f, HR_PROFILE_OPERATIONS);
  HR_ASSERT_EQ(count_kind(k, HR_PROFILE_OPERATION), 3);
  int i = find(k, HR_PROFILE_OPERATION);
  HR_ASSERT_STR_EQ(k->operations[i], "0:tanh:7");
  HR_ASSERT(k->records[i].begin_ns > 0 && k->records[i].begin_ns <= k->records[find(k, HR_PROFILE_KERNEL)].begin_ns);
  close_fixture(&f);
}

HR_TEST(programs_and_results_are_the_same_with_records) {
  fixture f;
  float plain[COUNT], profiled[COUNT];
  open_fixture(&f, 0, HR_PROFILE_OPERATIONS);
  hr_view x = make_input(&f), y = run_chain(&f, &x);
  read_back(&f, &y, plain);
  HR_ASSERT_EQ(read_records(&f)->count, 0);
  int64_t compiles = f.stream->stats.compiles;
  HR_ASSERT_OK(hr_profile_start(f.profile));
  hr_view z = run_chain(&f, &x);
  read_back(&f, &z, profiled);
  HR_ASSERT_BYTES_EQ(profiled, plain, sizeof plain);
  HR_ASSERT_EQ(f.stream->stats.compiles, compiles);
  kept *k = read_records(&f);
  HR_ASSERT_EQ(count_kind(k, HR_PROFILE_COMPILE), 0);
  HR_ASSERT_STR_EQ(k->operations[find(k, HR_PROFILE_KERNEL)], "3:tanh:7 4:add:8"); /* numbers go on */
  hr_buffer_release(x.buffer);
  hr_buffer_release(y.buffer);
  hr_buffer_release(z.buffer);
  close_fixture(&f);
}

static void append(void *arg, const char *text) {
  snprintf(arg, 4096, "%s", text);
}

HR_TEST(a_full_ring_drops_the_oldest_records_into_the_tables) {
  enum { RUNS = 200 };
  fixture f;
  float values[COUNT];
  char text[4096];
  hr_profile_counts counts;
  open_fixture(&f, 4096, 0);
  hr_view x = make_input(&f);
  HR_ASSERT_OK(hr_profile_start(f.profile));
  for (int i = 0; i < RUNS; ++i) {
    hr_view y = run_chain(&f, &x);
    read_back(&f, &y, values);
    hr_buffer_release(y.buffer);
  }
  HR_ASSERT_OK(hr_profile_stop(f.profile));
  hr_profile_counts_read(f.profile, sizeof counts, &counts);
  HR_ASSERT(counts.records > 0 && counts.records < 100 && counts.summed >= 5 * RUNS && counts.lost == 0);
  kept *k = read_records(&f);
  HR_ASSERT_EQ(k->count, counts.records);
  for (int i = 1; i < k->count; ++i) { /* the newest are there */
    HR_ASSERT(k->records[i].end_ns >= k->records[0].begin_ns);
  }
  HR_ASSERT_OK(hr_profile_tables(f.profile, HR_TABLES_ALL, append, text));
  HR_ASSERT_CONTAINS(text, "200 launches");
  HR_ASSERT_CONTAINS(text, "600 recorded operations in 200 commits, 200 of them never needed");
  HR_ASSERT_CONTAINS(text, "f32[4,32] -> f32[4,32]");
  HR_ASSERT_CONTAINS(text, "copies: 200 in");
  HR_ASSERT_CONTAINS(text, "fallbacks to the host: 0 in");
  HR_ASSERT_OK(hr_profile_drain(f.profile, sizeof(hr_profile_record), keep, &kept_records));
  HR_ASSERT_EQ(read_records(&f)->count, 0);
  HR_ASSERT_OK(hr_profile_tables(f.profile, HR_TABLE_OPERATIONS, append, text));
  HR_ASSERT_CONTAINS(text, "200 launches"); /* none twice */
  hr_profile_clear(f.profile);
  hr_profile_counts_read(f.profile, sizeof counts, &counts);
  HR_ASSERT_EQ(counts.records + counts.summed + counts.lost, 0);
  hr_buffer_release(x.buffer);
  close_fixture(&f);
}

static hr_view run_long(const fixture *f, const hr_view *x, int count) {
  hr_view y = make(f);
  record(f, HR_OP_TANH, x, NULL, &y);
  for (int i = 1; i < count; ++i) {
    record(f, HR_OP_ADD, &y, x, &y);
  }
  return y;
}

HR_TEST(a_run_that_is_larger_than_the_ring_is_counted_as_lost) {
  fixture f;
  float values[COUNT];
  hr_profile_counts counts;
  open_fixture(&f, 4096, 0);
  hr_view x = make_input(&f);
  HR_ASSERT_OK(hr_profile_start(f.profile));
  hr_profile_correlate(1);
  hr_view y = run_long(&f, &x, 600);
  hr_profile_correlate(0);
  read_back(&f, &y, values);
  HR_ASSERT_OK(hr_profile_stop(f.profile));
  hr_profile_counts_read(f.profile, sizeof counts, &counts);
  HR_ASSERT_EQ(counts.lost, 1);
  hr_buffer_release(x.buffer);
  hr_buffer_release(y.buffer);
  close_fixture(&f);
}

HR_TEST(bad_calls_are_errors) {
  fixture f;
  hr_profile *more[9] = {0};
  open_fixture(&f, 0, 0);
  HR_ASSERT_STATUS(hr_profile_create(f.device, 0, 64, &more[0]), HR_STATUS_INVALID_ARGUMENT);
  HR_ASSERT_STATUS(hr_profile_stop(f.profile), HR_STATUS_FAILED_PRECONDITION);
  HR_ASSERT_OK(hr_profile_start(f.profile));
  HR_ASSERT_STATUS(hr_profile_start(f.profile), HR_STATUS_FAILED_PRECONDITION);
  for (int i = 0; i < 8; ++i) {
    HR_ASSERT_OK(hr_profile_create(NULL, 4096, 0, &more[i]));
    if (i < 7) {
      HR_ASSERT_OK(hr_profile_start(more[i]));
    } else {
      HR_ASSERT_STATUS(hr_profile_start(more[i]), HR_STATUS_RESOURCE_EXHAUSTED);
    }
  }
  HR_ASSERT(hr_profile_is_on(f.device));
  for (int i = 0; i < 8; ++i) {
    hr_profile_release(more[i]);
  }
  HR_ASSERT_OK(hr_profile_stop(f.profile));
  HR_ASSERT(!hr_profile_is_on(f.device));
  close_fixture(&f);
}

static void keep_kind(void *arg, const hr_profile_record *record) {
  *(int *)arg = (int)record->kind; /* nothing behind it may be read */
}

HR_TEST(an_old_reader_gets_the_fields_that_it_knows) {
  fixture f;
  int kind = -1;
  (void)profile_one_chain(&f, 0);
  HR_ASSERT_OK(hr_profile_read(f.profile, sizeof(hr_profile_kind), keep_kind, &kind));
  HR_ASSERT(kind >= 0);
  close_fixture(&f);
}

HR_TEST(fallbacks_are_recorded) {
  fixture f;
  char text[4096];
  open_fixture(&f, 0, 0);
  hr_profile_note_fallback(f.device, "aten::sort", 10, 20, 64); /* not started: nothing */
  HR_ASSERT_OK(hr_profile_start(f.profile));
  hr_profile_note_fallback(f.device, "aten::sort", 1000, 3000, 64);
  HR_ASSERT_OK(hr_profile_stop(f.profile));
  kept *k = read_records(&f);
  HR_ASSERT_EQ(k->count, 1);
  HR_ASSERT_STR_EQ(k->names[0], "aten::sort");
  HR_ASSERT_EQ(k->records[0].end_ns - k->records[0].begin_ns, 2000);
  HR_ASSERT_OK(hr_profile_tables(f.profile, HR_TABLE_FALLBACKS, append, text));
  HR_ASSERT_CONTAINS(text, "fallbacks to the host: 1 in 0.002 ms");
  close_fixture(&f);
}

static void *start_and_read(void *arg) {
  const fixture *f = arg;
  hr_profile *profile;
  char text[4096];
  hr_status_ignore(hr_profile_create(f->device, 8192, HR_PROFILE_OPERATIONS, &profile));
  for (int i = 0; i < 200; ++i) {
    int kind;
    hr_status_ignore(hr_profile_start(profile));
    hr_status_ignore(hr_profile_read(f->profile, sizeof(hr_profile_kind), keep_kind, &kind));
    hr_status_ignore(hr_profile_tables(profile, HR_TABLES_ALL, append, text));
    hr_status_ignore(hr_profile_stop(profile));
  }
  hr_profile_release(profile);
  return NULL;
}

HR_TEST(profiles_start_stop_and_are_read_beside_running_work) {
  fixture f;
  float first[COUNT], values[COUNT];
  pthread_t threads[2];
  open_fixture(&f, 8192, 0);
  hr_view x = make_input(&f), y = run_chain(&f, &x);
  read_back(&f, &y, first);
  hr_buffer_release(y.buffer);
  HR_ASSERT_OK(hr_profile_start(f.profile));
  for (int t = 0; t < 2; ++t) {
    HR_ASSERT_EQ(pthread_create(&threads[t], NULL, start_and_read, &f), 0);
  }
  for (int i = 0; i < 300; ++i) {
    y = run_chain(&f, &x);
    read_back(&f, &y, values);
    HR_ASSERT_BYTES_EQ(values, first, sizeof first);
    hr_buffer_release(y.buffer);
  }
  for (int t = 0; t < 2; ++t) {
    pthread_join(threads[t], NULL);
  }
  hr_buffer_release(x.buffer);
  close_fixture(&f);
}
