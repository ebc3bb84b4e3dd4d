/* Caches that grow by `cat`, on a stream: memory, counters, and what readers see. */
#include <stdlib.h>
#include <string.h>

#include "layout_fixture.h"

#include "engine/growth.h"

enum { HEADS = 3, WIDTH = 8, ROWS_MAX = 256 };

/* A cache of [outer, rows, WIDTH], whose element [o, r, i] is o * 1000 + r + i / 16. */
typedef struct cache {
  hr_buffer *buffer;
  int64_t outer, rows;
} cache;

static float element(int64_t outer, int64_t row, int64_t i) {
  return (float)(outer * 1000 + row) + (float)i / 16;
}

/* A view of [outer, rows, WIDTH] in a buffer of as many. */
typedef struct rows_view {
  int64_t dims[3], strides[3];
  hr_view view;
} rows_view;

static hr_view view_of(rows_view *v, hr_buffer *buffer, int64_t outer, int64_t rows) {
  *v = (rows_view){.dims = {outer, rows, WIDTH}, .strides = {rows * WIDTH, WIDTH, 1}};
  return (hr_view){.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 3, .dims = v->dims, .strides = v->strides};
}

static hr_buffer *make_rows(const fixture *f, int64_t outer, int64_t first, int64_t rows) {
  float *values = malloc((size_t)(outer * rows) * WIDTH * sizeof *values);
  for (int64_t i = 0; i < outer * rows * WIDTH; ++i) {
    values[i] = element(i / WIDTH / rows, first + i / WIDTH % rows, i % WIDTH);
  }
  hr_buffer *buffer;
  rows_view v;
  HR_ASSERT_OK(hr_buffer_create(f->device, (size_t)(outer * rows) * WIDTH * sizeof *values, &buffer));
  hr_view view = view_of(&v, buffer, outer, rows);
  HR_ASSERT_OK(hr_stream_write(f->stream, &view, values));
  HR_ASSERT_OK(hr_stream_synchronize(f->stream));
  free(values);
  return buffer;
}

static cache make_cache(const fixture *f, int64_t outer, int64_t rows) {
  return (cache){make_rows(f, outer, 0, rows), outer, rows};
}

static void check(const fixture *f, const cache *c) {
  float *values = malloc((size_t)(c->outer * c->rows) * WIDTH * sizeof *values);
  rows_view v;
  hr_view view = view_of(&v, c->buffer, c->outer, c->rows);
  HR_ASSERT_OK(hr_stream_read(f->stream, &view, values));
  for (int64_t i = 0; i < c->outer * c->rows * WIDTH; ++i) {
    HR_ASSERT_NEAR(values[i], element(i / WIDTH / c->rows, i / WIDTH % c->rows, i % WIDTH), 0);
  }
  free(values);
}

/* The cache with `rows` more. The old one is the caller's. */
static cache record_cat(const fixture *f, const cache *old, int64_t rows) {
  cache made = {NULL, old->outer, old->rows + rows};
  rows_view v[3];
  hr_buffer *row = make_rows(f, old->outer, old->rows, rows);
  HR_ASSERT_OK(hr_buffer_create(f->device, (size_t)(made.outer * made.rows) * WIDTH * sizeof(float), &made.buffer));
  hr_view inputs[2] = {view_of(&v[0], old->buffer, old->outer, old->rows), view_of(&v[1], row, old->outer, rows)};
  hr_view output = view_of(&v[2], made.buffer, made.outer, made.rows);
  HR_ASSERT_OK(hr_stream_record(f->stream, HR_OP_CAT, &(hr_attrs){.int_count = 1, .ints = (int64_t[]){1}}, 2, inputs, 1,
                                &output));
  hr_buffer_release(row);
  return made;
}

static void grow(const fixture *f, cache *c, int64_t rows) {
  cache made = record_cat(f, c, rows);
  hr_buffer_release(c->buffer);
  *c = made;
  HR_ASSERT_OK(hr_stream_commit(f->stream));
}

static hr_stats stats_of(const fixture *f) {
  hr_stats stats;
  hr_stream_stats(f->stream, &stats);
  return stats;
}

/* After two cats the result has room. */
static cache make_roomy(const fixture *f, int64_t outer) {
  cache c = make_cache(f, outer, 4);
  int64_t grown = stats_of(f).caches_grown;
  grow(f, &c, 1);
  HR_ASSERT_EQ(stats_of(f).caches_grown, grown);
  grow(f, &c, 1);
  HR_ASSERT_EQ(stats_of(f).caches_grown, grown + 1);
  return c;
}

/* Such a program writes nothing: it must end, although nothing of it needs the result's memory. */
HR_TEST(cats_without_new_rows_copy) {
  for (int64_t outer = 1; outer <= HEADS; outer += HEADS - 1) {
    fixture f = open_fixture();
    cache c = make_roomy(&f, outer);
    hr_stats before = stats_of(&f);
    for (int i = 0; i < 4; ++i) {
      grow(&f, &c, 0);
      check(&f, &c);
    }
    HR_ASSERT_EQ(stats_of(&f).caches_extended, before.caches_extended);
    HR_ASSERT_EQ(stats_of(&f).caches_grown, before.caches_grown);
    grow(&f, &c, 1);
    check(&f, &c);
    hr_buffer_release(c.buffer);
    close_fixture(&f);
  }
}

HR_TEST(rows_are_written_into_the_old_memory) {
  for (int64_t outer = 1; outer <= HEADS; outer += HEADS - 1) {
    fixture f = open_fixture();
    cache c = make_roomy(&f, outer);
    void *address = hr__buffer_address(c.buffer);
    HR_ASSERT_EQ(hr_buffer_bytes(c.buffer), (size_t)(outer * 6) * WIDTH * sizeof(float));
    HR_ASSERT_EQ(hr__buffer_layout(c.buffer) != 0, outer > 1);
    for (int i = 0; i < 20; ++i) {
      grow(&f, &c, outer > 1 ? 1 : 1 + i % 3);
      HR_ASSERT(hr__buffer_address(c.buffer) == address);
    }
    HR_ASSERT_EQ(stats_of(&f).caches_extended, 20);
    check(&f, &c);
    HR_ASSERT_EQ(stats_of(&f).layouts_undone, outer > 1);
    HR_ASSERT_EQ(hr__buffer_layout(c.buffer), 0);
    hr_buffer_release(c.buffer);
    close_fixture(&f);
  }
}

/* Libraries run products over several queries otherwise if rows have a pitch. */
HR_TEST(several_rows_at_once_are_copied_from_a_pitch) {
  fixture f = open_fixture();
  cache c = make_roomy(&f, HEADS);
  grow(&f, &c, 2);
  HR_ASSERT_EQ(stats_of(&f).caches_extended, 0);
  HR_ASSERT_EQ(hr__buffer_layout(c.buffer), 0);
  grow(&f, &c, 1);
  grow(&f, &c, 1);
  HR_ASSERT_EQ(stats_of(&f).caches_grown, 2);
  HR_ASSERT_EQ(stats_of(&f).caches_extended, 1);
  check(&f, &c);
  hr_buffer_release(c.buffer);
  close_fixture(&f);
}

HR_TEST(full_rooms_double) {
  for (int64_t outer = 1; outer <= HEADS; outer += HEADS - 1) {
    fixture f = open_fixture();
    cache c = make_roomy(&f, outer);
    while (c.rows < ROWS_MAX) {
      grow(&f, &c, 1);
    }
    hr_stats stats = stats_of(&f);
    HR_ASSERT_EQ(stats.caches_grown, 2); /* to 128 rows and 384 */
    HR_ASSERT_EQ(stats.caches_extended + stats.caches_grown, ROWS_MAX - 5);
    check(&f, &c);
    hr_buffer_release(c.buffer);
    close_fixture(&f);
  }
}

HR_TEST(a_cache_that_is_held_stays) {
  fixture f = open_fixture();
  cache c = make_roomy(&f, HEADS), made = record_cat(&f, &c, 1);
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  HR_ASSERT_EQ(stats_of(&f).caches_extended, 0);
  check(&f, &c);
  check(&f, &made);
  hr_buffer_release(c.buffer);
  hr_buffer_release(made.buffer);
  close_fixture(&f);
}

HR_TEST(two_cats_of_one_cache) {
  for (int64_t outer = 1; outer <= HEADS; outer += HEADS - 1) {
    fixture f = open_fixture();
    cache c = make_roomy(&f, outer), a = record_cat(&f, &c, 2), b = record_cat(&f, &c, 1);
    hr_buffer_release(c.buffer);
    HR_ASSERT_OK(hr_stream_commit(f.stream));
    HR_ASSERT_EQ(stats_of(&f).caches_extended, 1);
    HR_ASSERT(hr__buffer_address(a.buffer) != hr__buffer_address(b.buffer));
    check(&f, &a);
    check(&f, &b);
    hr_buffer_release(a.buffer);
    hr_buffer_release(b.buffer);
    close_fixture(&f);
  }
}

/* The second of two cats needs more than the room: neither program may write behind it. */
HR_TEST(one_of_two_cats_does_not_fit) {
  for (int64_t outer = 1; outer <= HEADS; outer += HEADS - 1) {
    fixture f = open_fixture();
    cache c = make_roomy(&f, outer);
    while (c.rows < 110) {
      grow(&f, &c, outer > 1 ? 1 : 6);
    }
    cache a = record_cat(&f, &c, 1), b = record_cat(&f, &c, 40);
    int64_t extended = stats_of(&f).caches_extended;
    hr_buffer_release(c.buffer);
    HR_ASSERT_OK(hr_stream_commit(f.stream));
    HR_ASSERT_EQ(stats_of(&f).caches_extended, extended);
    check(&f, &a);
    check(&f, &b);
    hr_buffer_release(a.buffer);
    hr_buffer_release(b.buffer);
    close_fixture(&f);
  }
}

HR_TEST(other_modes_grow_nothing) {
  for (int mode = HR_MODE_EAGER; mode <= HR_MODE_STRICT; ++mode) {
    fixture f = open_fixture();
    cache c = make_roomy(&f, HEADS);
    hr_stream_set_mode(f.stream, (hr_mode)mode);
    for (int i = 0; i < 3; ++i) {
      grow(&f, &c, 1);
      HR_ASSERT_EQ(hr__buffer_layout(c.buffer), 0);
    }
    HR_ASSERT_EQ(stats_of(&f).caches_extended, 0);
    HR_ASSERT_EQ(stats_of(&f).caches_grown, 1);
    check(&f, &c);
    hr_buffer_release(c.buffer);
    close_fixture(&f);
  }
}

HR_TEST(an_address_settles_a_cache_with_a_pitch) {
  for (int64_t outer = 1; outer <= HEADS; outer += HEADS - 1) {
    fixture f = open_fixture();
    cache c = make_roomy(&f, outer);
    void *address;
    HR_ASSERT_OK(hr_stream_address(f.stream, c.buffer, &address));
    for (int64_t i = 0; i < outer * c.rows * WIDTH; ++i) {
      HR_ASSERT_NEAR(((float *)address)[i], element(i / WIDTH / c.rows, i / WIDTH % c.rows, i % WIDTH), 0);
    }
    grow(&f, &c, 1);
    grow(&f, &c, 1);
    HR_ASSERT_EQ(stats_of(&f).caches_extended, outer > 1 ? 0 : 2);
    HR_ASSERT_EQ(stats_of(&f).caches_grown, 1);
    check(&f, &c);
    hr_buffer_release(c.buffer);
    close_fixture(&f);
  }
}

/* An index out of range, in the program of the cat or before it, makes the result invalid and nothing else. */
HR_TEST(a_failure_makes_the_result_invalid) {
  fixture f = open_fixture();
  static const int64_t one[1] = {1}, unit[1] = {1};
  cache c = make_roomy(&f, HEADS), other = make_roomy(&f, 1);
  hr_buffer *index, *y;
  const int64_t wrong = 1 << 20;
  HR_ASSERT_OK(hr_buffer_create(f.device, sizeof wrong, &index));
  HR_ASSERT_OK(hr_buffer_create(f.device, sizeof(float), &y));
  hr_view at = {.buffer = index, .dtype = HR_DTYPE_I64, .rank = 1, .dims = one, .strides = unit};
  HR_ASSERT_OK(hr_stream_write(f.stream, &at, &wrong));
  cache made = record_cat(&f, &c, 1), kept = record_cat(&f, &other, 1);
  hr_buffer_release(c.buffer);
  rows_view v;
  hr_view table = view_of(&v, made.buffer, 1, 1);
  table.rank = 1, table.dims = (int64_t[]){WIDTH}, table.strides = unit;
  hr_view inputs[2] = {table, at},
          output = {.buffer = y, .dtype = HR_DTYPE_F32, .rank = 1, .dims = one, .strides = unit};
  HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_INDEX_SELECT, &(hr_attrs){.int_count = 1, .ints = (int64_t[]){0}}, 2,
                                inputs, 1, &output));
  hr_status status = hr_stream_synchronize(f.stream);
  HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_OUT_OF_RANGE);
  hr_status_free(status);
  check(&f, &other);
  hr_buffer_release(made.buffer);
  hr_buffer_release(kept.buffer);
  hr_buffer_release(other.buffer);
  hr_buffer_release(index);
  hr_buffer_release(y);
  close_fixture(&f);
}

/* There is memory for the result, but not for its room. */
HR_TEST(short_memory_gives_no_room) {
  fixture f = open_fixture();
  cache c = make_cache(&f, HEADS, 3000);
  grow(&f, &c, 1);
  hr_memory_stats memory;
  hr_device_memory_stats(f.device, &memory);
  hr_device_memory_limit(f.device,
                         memory.reserved_bytes + (int64_t)(c.rows * HEADS * WIDTH) * (int64_t)sizeof(float) / 2);
  grow(&f, &c, 1);
  HR_ASSERT_EQ(stats_of(&f).caches_grown, 0);
  hr_device_memory_limit(f.device, 0);
  grow(&f, &c, 1);
  grow(&f, &c, 1);
  HR_ASSERT_EQ(stats_of(&f).caches_grown, 1);
  check(&f, &c);
  hr_buffer_release(c.buffer);
  close_fixture(&f);
}

HR_TEST(without_memory_for_a_copy_the_host_moves_the_rows) {
  fixture f = open_fixture();
  cache c = make_roomy(&f, HEADS);
  hr_buffer *taken[8192];
  int count = 0;
  hr_memory_stats memory;
  hr_device_memory_stats(f.device, &memory);
  hr_device_memory_limit(f.device, memory.reserved_bytes > 0 ? memory.reserved_bytes : 1);
  hr_status status = HR_OK;
  while (status == HR_OK && count < 8192) { /* uses up all reserved memory */
    void *address;
    HR_ASSERT_OK(hr_buffer_create(f.device, hr_buffer_bytes(c.buffer), &taken[count]));
    status = hr_stream_address(f.stream, taken[count], &address);
    ++count;
  }
  hr_status_free(status);
  void *before = hr__buffer_address(c.buffer);
  check(&f, &c);
  HR_ASSERT(hr__buffer_address(c.buffer) == before && hr__buffer_layout(c.buffer) == 0);
  while (count > 0) {
    hr_buffer_release(taken[--count]);
  }
  hr_buffer_release(c.buffer);
  close_fixture(&f);
}

HR_TEST(lengths_have_one_program) {
  fixture f = open_fixture();
  cache c = make_roomy(&f, HEADS);
  while (c.rows < 200) {
    grow(&f, &c, 1);
  }
  hr_stats stats = stats_of(&f);
  HR_ASSERT(stats.compiles - stats.general_plans < 24);
  check(&f, &c);
  hr_buffer_release(c.buffer);
  close_fixture(&f);
}

/* Rooms are rounded up: caches that begin with other lengths have the same pitch, and no programs of their own. */
HR_TEST(first_lengths_share_programs) {
  fixture f = open_fixture();
  size_t capacity = 0;
  for (int64_t first = 4; first <= 16; first += 6) {
    cache c = make_cache(&f, HEADS, first);
    grow(&f, &c, 1);
    grow(&f, &c, 1);
    hr_stats before = stats_of(&f);
    while (c.rows < 40) {
      grow(&f, &c, 1);
    }
    hr_stats after = stats_of(&f);
    HR_ASSERT(first == 4 || after.compiles - after.general_plans == before.compiles - before.general_plans);
    HR_ASSERT(first == 4 || capacity == c.buffer->capacity);
    capacity = c.buffer->capacity;
    check(&f, &c);
    hr_buffer_release(c.buffer);
  }
  close_fixture(&f);
}
