/* Buffers with a layout of the compiler's: every reader sees the elements that it would see in the default layout. */
#include <stdlib.h>

#include "layout_fixture.h"

#include "core/ir/program.h"

enum { IMAGES = 3, CHANNELS = 6, HEIGHT = 4, WIDTH = 5, INNER = HEIGHT * WIDTH, COUNT = IMAGES * CHANNELS * INNER };
static const int64_t dims[4] = {IMAGES, CHANNELS, HEIGHT, WIDTH};
static const int64_t strides[4] = {CHANNELS * INNER, INNER, WIDTH, 1};
static const int64_t flat_dims[1] = {COUNT}, flat_strides[1] = {1};

static hr_view images(hr_buffer *buffer) {
  return (hr_view){.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 4, .dims = dims, .strides = strides};
}

static hr_view flat(hr_buffer *buffer) {
  return (hr_view){.buffer = buffer, .dtype = HR_DTYPE_F32, .rank = 1, .dims = flat_dims, .strides = flat_strides};
}

static hr_buffer *make_empty(const fixture *f) {
  hr_buffer *buffer;
  HR_ASSERT_OK(hr_buffer_create(f->device, COUNT * sizeof(float), &buffer));
  return buffer;
}

/* Element i is i + `first`; the memory holds them channels-last. */
static hr_buffer *make(const fixture *f, float first) {
  float values[COUNT];
  hr_buffer *buffer = make_empty(f);
  for (int i = 0; i < COUNT; ++i) {
    int inner = i % INNER, channel = i / INNER % CHANNELS, image = i / INNER / CHANNELS;
    values[(image * INNER + inner) * CHANNELS + channel] = (float)i + first;
  }
  hr_view view = flat(buffer);
  HR_ASSERT_OK(hr_stream_write(f->stream, &view, values));
  HR_ASSERT_OK(hr_stream_synchronize(f->stream));
  atomic_store(&buffer->layout, hr_layout_pack(&(hr_buffer_layout){sizeof(float), CHANNELS, INNER}));
  return buffer;
}

static bool is_laid_out(const hr_buffer *buffer) {
  return hr__buffer_layout(buffer) != 0;
}

/* Elements are first + i * step. */
static void check_ramp(const fixture *f, hr_buffer *buffer, float first, float step) {
  float values[COUNT];
  hr_view view = flat(buffer);
  HR_ASSERT_OK(hr_stream_read(f->stream, &view, values));
  for (int i = 0; i < COUNT; ++i) {
    HR_ASSERT_NEAR(values[i], first + (float)i * step, 0);
  }
}

static hr_status unary(const fixture *f, hr_op op, hr_view input, hr_view output) {
  return hr_stream_record(f->stream, op, NULL, 1, &input, 1, &output);
}

static hr_status add_number(const fixture *f, hr_view input, double number, hr_view output) {
  hr_scalar scalar = hr_scalar_f64(number);
  hr_view inputs[2] = {input, {.scalar = &scalar, .dtype = scalar.dtype}};
  return hr_stream_record(f->stream, HR_OP_ADD, NULL, 2, inputs, 1, &output);
}

static int64_t count_undone(const fixture *f) {
  hr_stats stats;
  hr_stream_stats(f->stream, &stats);
  return stats.layouts_undone;
}

HR_TEST(words_hold_layouts) {
  const hr_buffer_layout given = {8, 64, 112 * 112}, large = {2, INT64_C(1) << 40, 4};
  hr_buffer_layout back = hr_layout_unpack(hr_layout_pack(&given));
  HR_ASSERT_EQ(back.element_bytes, 8);
  HR_ASSERT_EQ(back.channels, 64);
  HR_ASSERT_EQ(back.inner, 112 * 112);
  HR_ASSERT_EQ(hr_layout_pack(&large), 0);
  HR_ASSERT_EQ(hr_layout_pack(&(hr_buffer_layout){16, 4, 4}), 0);
}

HR_TEST(a_read_sees_the_order_of_the_views_and_converts_once) {
  fixture f = open_fixture();
  hr_buffer *x = make(&f, 0);
  check_ramp(&f, x, 0, 1);
  HR_ASSERT(!is_laid_out(x));
  check_ramp(&f, x, 0, 1);
  HR_ASSERT_EQ(count_undone(&f), 1);
  hr_buffer_release(x);
  close_fixture(&f);
}

HR_TEST(an_address_is_of_plain_memory) {
  fixture f = open_fixture();
  hr_buffer *x = make(&f, 3);
  void *address;
  HR_ASSERT_OK(hr_stream_address(f.stream, x, &address));
  HR_ASSERT(address == hr__buffer_address(x) && !is_laid_out(x));
  for (int i = 0; i < COUNT; ++i) {
    HR_ASSERT_NEAR(((float *)address)[i], (float)i + 3, 0);
  }
  hr_buffer_release(x);
  close_fixture(&f);
}

HR_TEST(programs_follow_and_hand_on) {
  fixture f = open_fixture();
  hr_buffer *x = make(&f, 0), *y = make_empty(&f), *z = make_empty(&f);
  HR_ASSERT_OK(add_number(&f, images(x), 5, images(y)));
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  HR_ASSERT(is_laid_out(x) && is_laid_out(y));
  HR_ASSERT_OK(add_number(&f, images(y), 1, images(z)));
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  HR_ASSERT(is_laid_out(z));
  HR_ASSERT_EQ(count_undone(&f), 0);
  check_ramp(&f, z, 6, 1);
  check_ramp(&f, y, 5, 1);
  check_ramp(&f, x, 0, 1);
  hr_buffer_release(x);
  hr_buffer_release(y);
  hr_buffer_release(z);
  close_fixture(&f);
}

HR_TEST(other_modes_hand_nothing_on) {
  fixture f = open_fixture();
  for (int mode = HR_MODE_EAGER; mode <= HR_MODE_STRICT; ++mode) {
    hr_buffer *x = make(&f, 0), *y = make_empty(&f);
    hr_stream_set_mode(f.stream, (hr_mode)mode);
    HR_ASSERT_OK(add_number(&f, images(x), 5, images(y)));
    HR_ASSERT(is_laid_out(x) && !is_laid_out(y));
    check_ramp(&f, y, 5, 1);
    hr_stream_set_mode(f.stream, HR_MODE_FUSE);
    hr_buffer_release(x);
    hr_buffer_release(y);
  }
  close_fixture(&f);
}

/* Slices, reversed dims, permutations: into a buffer with the default layout, once from memory with a layout and once
 * without. */
HR_TEST(views_see_the_same_elements) {
  static const struct {
    int64_t offset, dims[4], strides[4];
  } views[] = {
      {0, {IMAGES, CHANNELS, HEIGHT, WIDTH}, {CHANNELS * INNER, INNER, WIDTH, 1}},
      {CHANNELS * INNER + 2 * INNER, {2, 3, HEIGHT, WIDTH}, {CHANNELS * INNER, INNER, WIDTH, 1}},
      {WIDTH + 1, {IMAGES, CHANNELS, 2, 3}, {CHANNELS * INNER, INNER, 2 * WIDTH, 1}},
      {COUNT - 1, {IMAGES, CHANNELS, HEIGHT, WIDTH}, {-CHANNELS * INNER, -INNER, -WIDTH, -1}},
      {0, {WIDTH, HEIGHT, CHANNELS, IMAGES}, {1, WIDTH, INNER, CHANNELS * INNER}},
      {7, {4, 1, 5, 1}, {0, 0, 2, 0}},
      {3, {1, 1, 1, COUNT - 3}, {0, 0, 0, 1}},         /* from channel to channel: needs the default layout */
      {0, {1, IMAGES, 2, COUNT / 6}, {0, 120, 60, 1}}, /* three channels in one */
  };
  for (size_t v = 0; v < sizeof views / sizeof *views; ++v) {
    fixture f = open_fixture();
    hr_buffer *x = make(&f, 0), *y = make_empty(&f);
    int64_t count = 1, dense[4];
    for (int d = 3; d >= 0; --d) {
      dense[d] = count;
      count *= views[v].dims[d];
    }
    hr_view input = {.buffer = x,
                     .dtype = HR_DTYPE_F32,
                     .rank = 4,
                     .offset = views[v].offset,
                     .dims = views[v].dims,
                     .strides = views[v].strides};
    hr_view output = {.buffer = y, .dtype = HR_DTYPE_F32, .rank = 4, .dims = views[v].dims, .strides = dense};
    HR_ASSERT_OK(unary(&f, HR_OP_COPY, input, output));
    float values[COUNT];
    HR_ASSERT_OK(hr_stream_read(f.stream, &output, values));
    for (int64_t i = 0; i < count; ++i) {
      int64_t at = views[v].offset;
      for (int d = 0; d < 4; ++d) {
        at += i / dense[d] % views[v].dims[d] * views[v].strides[d];
      }
      HR_ASSERT_NEAR(values[i], (double)at, 0);
    }
    check_ramp(&f, x, 0, 1);
    hr_buffer_release(x);
    hr_buffer_release(y);
    close_fixture(&f);
  }
}

HR_TEST(other_element_sizes_want_it_plain) {
  fixture f = open_fixture();
  static const int64_t halves[1] = {2 * COUNT};
  hr_buffer *x = make(&f, 0), *y = make_empty(&f);
  hr_view input = {.buffer = x, .dtype = HR_DTYPE_I16, .rank = 1, .dims = halves, .strides = flat_strides},
          output = input;
  output.buffer = y;
  HR_ASSERT_OK(unary(&f, HR_OP_COPY, input, output));
  check_ramp(&f, y, 0, 1);
  HR_ASSERT(!is_laid_out(x));
  HR_ASSERT_EQ(count_undone(&f), 1);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(&f);
}

/* Twice: the second time the program that was refused comes from the cache. */
HR_TEST(rejected_layouts_become_the_default_and_stay_so) {
  fixture f = open_fixture();
  for (int i = 0; i < 2; ++i) {
    hr_buffer *x = make(&f, 0), *y = make_empty(&f), *z = make_empty(&f);
    HR_ASSERT_OK(add_number(&f, flat(x), 2, flat(y)));
    HR_ASSERT_OK(hr_stream_commit(f.stream));
    HR_ASSERT(!is_laid_out(x) && !is_laid_out(y));
    HR_ASSERT_OK(add_number(&f, images(x), 4, images(z)));
    check_ramp(&f, y, 2, 1);
    check_ramp(&f, z, 4, 1);
    HR_ASSERT_EQ(count_undone(&f), i + 1);
    hr_buffer_release(x);
    hr_buffer_release(y);
    hr_buffer_release(z);
  }
  hr_stats stats;
  hr_stream_stats(f.stream, &stats);
  HR_ASSERT_EQ(stats.compiles, 4); /* refused, the copy, the default layout, and the other view */
  close_fixture(&f);
}

HR_TEST(writes_in_place_keep_the_layout) {
  fixture f = open_fixture();
  static const int64_t part_dims[4] = {IMAGES, 2, HEIGHT, 2};
  hr_buffer *x = make(&f, 0);
  hr_view part = {
      .buffer = x, .dtype = HR_DTYPE_F32, .rank = 4, .offset = INNER + 1, .dims = part_dims, .strides = strides};
  HR_ASSERT_OK(add_number(&f, images(x), 1, images(x)));
  HR_ASSERT_OK(add_number(&f, part, 1000, part));
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  HR_ASSERT(is_laid_out(x));
  float values[COUNT];
  hr_view all = flat(x);
  HR_ASSERT_OK(hr_stream_read(f.stream, &all, values));
  for (int i = 0; i < COUNT; ++i) {
    int channel = i / INNER % CHANNELS, column = i % WIDTH;
    bool in_part = channel >= 1 && channel <= 2 && column >= 1 && column <= 2;
    HR_ASSERT_NEAR(values[i], i + 1 + (in_part ? 1000 : 0), 0);
  }
  hr_buffer_release(x);
  close_fixture(&f);
}

HR_TEST(a_write_from_the_host_lands_in_its_place) {
  fixture f = open_fixture();
  static const int64_t one_dims[4] = {1, 1, HEIGHT, WIDTH};
  hr_buffer *x = make(&f, 0);
  float values[COUNT];
  for (int i = 0; i < INNER; ++i) {
    values[i] = -1 - (float)i;
  }
  hr_view one = {
      .buffer = x, .dtype = HR_DTYPE_F32, .rank = 4, .offset = 8 * INNER, .dims = one_dims, .strides = strides};
  HR_ASSERT_OK(hr_stream_write(f.stream, &one, values));
  hr_view all = flat(x);
  HR_ASSERT_OK(hr_stream_read(f.stream, &all, values));
  for (int i = 0; i < COUNT; ++i) {
    HR_ASSERT_NEAR(values[i], i / INNER == 8 ? -1 - i % INNER : i, 0);
  }
  hr_buffer_release(x);
  close_fixture(&f);
}

HR_TEST(dying_inputs_are_followed_or_made_plain) {
  for (int is_flat = 0; is_flat < 2; ++is_flat) {
    fixture f = open_fixture();
    hr_buffer *x = make(&f, 0), *y = make_empty(&f);
    HR_ASSERT_OK(is_flat ? add_number(&f, flat(x), 9, flat(y)) : add_number(&f, images(x), 9, images(y)));
    hr_buffer_release(x);
    check_ramp(&f, y, 9, 1);
    hr_buffer_release(y);
    close_fixture(&f);
  }
}

/* An index out of range ends everything until it is reported; older contents are not lost with it. */
HR_TEST(a_failure_before_the_conversion_does_no_harm) {
  fixture f = open_fixture();
  static const int64_t one[1] = {1}, unit[1] = {1};
  hr_buffer *x = make(&f, 0), *index, *y = make_empty(&f), *z = make_empty(&f);
  const int64_t wrong = COUNT + 5;
  HR_ASSERT_OK(hr_buffer_create(f.device, sizeof wrong, &index));
  hr_view at = {.buffer = index, .dtype = HR_DTYPE_I64, .rank = 1, .dims = one, .strides = unit};
  HR_ASSERT_OK(hr_stream_write(f.stream, &at, &wrong));
  hr_view inputs[2] = {flat(x), at},
          output = {.buffer = y, .dtype = HR_DTYPE_F32, .rank = 1, .dims = one, .strides = unit};
  HR_ASSERT_OK(hr_stream_record(f.stream, HR_OP_INDEX_SELECT, &(hr_attrs){.int_count = 1, .ints = (int64_t[]){0}}, 2,
                                inputs, 1, &output));
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  HR_ASSERT_OK(add_number(&f, flat(x), 1, flat(z)));
  hr_status status = hr_stream_synchronize(f.stream);
  HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_OUT_OF_RANGE);
  hr_status_free(status);
  check_ramp(&f, x, 0, 1);
  hr_buffer_release(x);
  hr_buffer_release(index);
  hr_buffer_release(y);
  hr_buffer_release(z);
  close_fixture(&f);
}

/* Likewise if the failure is still unknown when the bytes are read. */
HR_TEST(a_conversion_runs_although_a_failure_is_unreported) {
  fixture f = open_fixture();
  hr_buffer *x = make(&f, 0);
  hr__stream_set_error(f.stream, hr_status_make(HR_STATUS_INTERNAL, "something"));
  void *address;
  hr_status status = hr_stream_address(f.stream, x, &address);
  HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_INTERNAL);
  hr_status_free(status);
  check_ramp(&f, x, 0, 1);
  hr_buffer_release(x);
  close_fixture(&f);
}

HR_TEST(invalid_buffers_heal_in_their_layout) {
  fixture f = open_fixture();
  hr_buffer *x = make(&f, 0), *y = make(&f, 7);
  hr_status lost = hr_status_make(HR_STATUS_INTERNAL, "lost");
  hr__buffer_invalidate(x, lost);
  hr_status_free(lost);
  HR_ASSERT_OK(add_number(&f, images(y), 1, images(x)));
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  HR_ASSERT(is_laid_out(x));
  check_ramp(&f, x, 8, 1);
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(&f);
}

HR_TEST(without_memory_for_a_copy_the_host_permutes) {
  fixture f = open_fixture();
  hr_buffer *x = make(&f, 0), *taken[8192];
  int count = 0;
  hr_memory_stats memory;
  hr_device_memory_stats(f.device, &memory);
  hr_device_memory_limit(f.device, memory.reserved_bytes > 0 ? memory.reserved_bytes : 1);
  hr_status status = HR_OK;
  while (status == HR_OK && count < 8192) { /* uses up all reserved memory */
    void *address;
    taken[count] = make_empty(&f);
    status = hr_stream_address(f.stream, taken[count], &address);
    ++count;
  }
  HR_ASSERT_EQ(hr_status_code_of(status), HR_STATUS_RESOURCE_EXHAUSTED);
  hr_status_free(status);
  void *before = hr__buffer_address(x);
  check_ramp(&f, x, 0, 1);
  HR_ASSERT(hr__buffer_address(x) == before && !is_laid_out(x));
  while (count > 0) {
    hr_buffer_release(taken[--count]);
  }
  hr_buffer_release(x);
  close_fixture(&f);
}

HR_TEST(several_streams_share_a_buffer) {
  fixture f = open_fixture(), g = open_fixture();
  hr_buffer *x = make(&f, 0), *y = make_empty(&f), *z = make_empty(&f);
  HR_ASSERT_OK(add_number(&g, images(x), 1, images(y)));
  HR_ASSERT_OK(add_number(&f, flat(x), 2, flat(z)));
  HR_ASSERT_OK(hr_stream_commit(f.stream));
  check_ramp(&g, y, 1, 1);
  check_ramp(&g, x, 0, 1);
  check_ramp(&f, z, 2, 1);
  hr_buffer_release(x);
  hr_buffer_release(y);
  hr_buffer_release(z);
  close_fixture(&g);
  close_fixture(&f);
}

HR_TEST(a_copy_to_another_device_takes_plain_bytes) {
  fixture f = open_fixture(), g = open_fixture();
  hr_buffer *x = make(&f, 4), *y = make_empty(&g);
  hr_view from = flat(x), to = flat(y);
  HR_ASSERT_OK(hr_stream_write_from(g.stream, &to, f.stream, &from));
  check_ramp(&g, y, 4, 1);
  HR_ASSERT(!is_laid_out(x));
  hr_buffer_release(x);
  hr_buffer_release(y);
  close_fixture(&g);
  close_fixture(&f);
}
