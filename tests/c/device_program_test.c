/* device_program_test.c: random programs give the same bits interpreted and as device text.
 *
 * The text runs on the host (device_emulator.h). Every kernel has one. HEADRACE_TEST_PROGRAMS sets the number of
 * programs (default 100), HEADRACE_TEST_SEED the first seed. Skipped without a compiler.
 */
#include "device_emulator.h"
#include "kernel_batch.h"

/* ---- texts of devices ---- */

static hr_status write_prelude(hr_text *text) {
  return hr_emit_device_prelude(HR_DEVICE_TEXT_EMULATED, text);
}

static bool emit(batch *b, const hr_kernel *kernel, entry *e) {
  const hr_device_emission *emission = &e->device_emission;
  size_t before = b->text.length;
  HR_ASSERT_OK(hr_emit_device_functions(kernel, &b->text));
  HR_ASSERT_OK(hr_emit_device_kernel(kernel, e->name, b->block_bytes, (hr_device_shapes)(b->entries.count % 3),
                                     &b->text, &e->device_emission));
  const char *text = hr_text_chars(&b->text) + before;
  b->quads += strstr(text, "= hr_fold_quads_") != NULL || strstr(text, "is_four") != NULL;
  b->words += emission->word_count > 0;
  HR_ASSERT_NULL(strstr(text, "if (b + t < to) { ")); /* a warp that adds a tile's elements looks at none of them */
  b->turns += strstr(text, "int turn = 0") != NULL;
  b->prefetches += strstr(text, "hr_prefetch(&") != NULL;
  b->tiles += strstr(text, "[near][far]") != NULL;
  b->fours += strstr(text, " u * 256 + HR_THREAD") != NULL && strstr(text, "u < 1;") == NULL;
  for (int pass = 0; pass < emission->pass_count;
       ++pass) { /* without this bound a compiler may use too many registers */
    char head[96];
    snprintf(head, sizeof head, "HR_THREADS(%d) %s_%d(", emission->threads[pass], e->name, pass);
    HR_ASSERT_NOT_NULL(strstr(text, head));
  }
  return true;
}

static hr_dynlib library;

static void open_library(batch *b, const char *path) {
  HR_ASSERT_OK(hr_dynlib_open(path, &library));
  for (size_t i = 0; i < b->entries.count; ++i) {
    entry *e = &b->entries.data[i];
    HR_ASSERT_OK(hr__emulated_create(&library, e->name, &e->device_emission, e->arg_count, e->scalar_count, &e->host));
  }
}

static void close_library(batch *b) {
  (void)b;
  hr_dynlib_close(&library);
}

static const batch_algorithm algorithms[] = {{"compiled", {.cut = 0}}, {NULL}};
static const batch_texts texts = {.write_prelude = write_prelude,
                                  .emit = emit,
                                  .open = open_library,
                                  .close = close_library,
                                  .flags = hr__emulated_flags,
                                  .algorithms = algorithms};

/* ---- random programs ---- */

HR_TEST(texts_of_devices_have_the_bits_of_interpreted_kernels) {
  if (!hr__has_emulator()) {
    return;
  }
  batch b = {.texts = &texts};
  batch_check_random(&b);
  HR_ASSERT_EQ(b.emitted, b.kernels);
  HR_ASSERT_EQ(b.launches_compiled, b.launches);
  HR_ASSERT(b.words > b.kernels / 4);
  batch_fini(&b);
}

/* ---- reductions of several chunks ---- */

/* Contents: small numbers of both signs. */
static void fill(generated *g, const hr_dtype *dtypes) {
  uint32_t state = 1;
  allocate_buffers(g, dtypes);
  for (int b = 0; b < g->buffer_count; ++b) {
    for (size_t i = 0; i < g->bytes[b] / hr_dtype_size(dtypes[b]); ++i) {
      state = state * 1664525u + 1013904223u;
      double value = (double)(state >> 8) / (1 << 23) - 1;
      if (dtypes[b] == HR_DTYPE_F32) {
        ((float *)g->memory[b])[i] = (float)value;
      } else if (dtypes[b] == HR_DTYPE_F64) {
        ((double *)g->memory[b])[i] = value;
      } else if (dtypes[b] == HR_DTYPE_I64) {
        ((int64_t *)g->memory[b])[i] = (int64_t)(value * 10); /* indices, some of which lead nowhere */
      }
    }
  }
}

/* x - sum(x) and its square's sum over `mask` of [a, b]: three phases, of which two reduce and the last stores. A store
 * of x in place before them has to wait until the second has read it. */
static void make_centred_of(generated *g, bool is_stored, const char *dtype, int a, int b, int mask, hr_dtype type) {
  hr_text text = {0};
  char all[64], row[64], stored[160] = "";
  long long size = (long long)hr_dtype_size(type), rows = mask == 1 ? b : a;
  snprintf(all, sizeof all, "%s[%d,%d]{%d,1}+0", dtype, a, b, b);
  snprintf(row, sizeof row, "%s[%d,%d]{%d,%d}+0", dtype, a, b, mask == 1 ? 0 : 1, mask == 1 ? 1 : 0);
  if (is_stored) {
    snprintf(stored, sizeof stored, "loop %%0:%s = copy(%%0:%s)\n", all, all);
  }
  hr_text_printf(&text,
                 "buffer %%0 %lld live\nbuffer %%1 %lld live fresh\nbuffer %%2 %lld live fresh\n"
                 "buffer %%3 %lld dead fresh\nbuffer %%4 %lld live fresh\n"
                 "%s"
                 "loop %%1:%s = sum(%%0:%s) reduce(%d)\n"
                 "loop %%2:%s = sub(%%0:%s, %%1:%s)\n"
                 "loop %%3:%s = mul(%%2:%s, %%2:%s)\n"
                 "loop %%4:%s = sum(%%3:%s) reduce(%d)\n",
                 a * b * size, rows * size, a * b * size, a * b * size, rows * size, stored, row, all, mask, all, all,
                 row, all, all, all, row, all, mask);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &g->program));
  hr_text_fini(&text);
  fill(g, (hr_dtype[]){type, type, type, type, type});
}

static void make_centred(generated *g, const char *dtype, int a, int b, int mask, hr_dtype type) {
  make_centred_of(g, false, dtype, a, b, mask, type);
}

/* Sums down columns, whose elements and whose results are scaled by a number for each column. */
static void make_scaled(generated *g, int a, int b) {
  hr_text text = {0};
  char all[64], row[64];
  snprintf(all, sizeof all, "f32[%d,%d]{%d,1}+0", a, b, b);
  snprintf(row, sizeof row, "f32[%d,%d]{0,1}+0", 1, b);
  hr_text_printf(&text,
                 "buffer %%0 %d live\nbuffer %%1 %d live\nbuffer %%2 %d live fresh\nbuffer %%3 %d dead fresh\n"
                 "buffer %%4 %d live fresh\n"
                 "loop %%2:%s = mul(%%0:%s, %%1:f32[%d,%d]{0,1}+0)\n"
                 "loop %%3:%s = sum(%%2:%s) reduce(1)\n"
                 "loop %%4:%s = mul(%%3:%s, %%1:%s)\n",
                 4 * a * b, 4 * b, 4 * a * b, 4 * b, 4 * b, all, all, a, b, row, all, row, row, row);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &g->program));
  hr_text_fini(&text);
  fill(g, (hr_dtype[]){HR_DTYPE_F32, HR_DTYPE_F32, HR_DTYPE_F32, HR_DTYPE_F32, HR_DTYPE_F32});
}

/* The index of the largest element in each of b columns, as numbered by %1. */
static void make_best(generated *g, int a, int b) {
  hr_text text = {0};
  hr_text_printf(&text,
                 "buffer %%0 %d live\nbuffer %%1 %d live\nbuffer %%2 %d live fresh\n"
                 "%%2:i64[1,%d]{0,1}+0 = argmax(%%0:f32[%d,%d]{%d,1}+0, %%1:i64[%d,%d]{1,0}+0) ints(1)\n",
                 4 * a * b, 8 * a, 8 * b, b, a, b, b, a, b);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &g->program));
  hr_text_fini(&text);
  fill(g, (hr_dtype[]){HR_DTYPE_F32, HR_DTYPE_I64, HR_DTYPE_I64});
  for (int i = 0; i < a; ++i) {
    ((int64_t *)g->memory[1])[i] = i;
  }
}

/* Of one chunk, of few, of many, of more than a chunk of them; whole tiles and parts of tiles. */
HR_TEST(reductions_of_many_elements_have_the_bits_of_interpreted_kernels) {
  static const int shapes[][3] = {{3, 9000, 2},   {70, 4097, 2}, {9000, 3, 1}, {70, 33, 1},
                                  {4500, 65, 1},  {8192, 32, 1}, {513, 40, 1}, {20000, 33, 1},
                                  {262400, 3, 1}, {1300, 4, 1},  {64, 256, 1}, {100, 36, 1}};
  enum { SHAPES = sizeof shapes / sizeof *shapes };
  if (!hr__has_emulator()) {
    return;
  }
  batch b = {.texts = &texts};
  generated *programs = calloc(2 * SHAPES + 5, sizeof *programs);
  for (int i = 0; i < SHAPES; ++i) {
    make_centred(&programs[2 * i], "f32", shapes[i][0], shapes[i][1], shapes[i][2], HR_DTYPE_F32);
    make_centred(&programs[2 * i + 1], "f64", shapes[i][0], shapes[i][1], shapes[i][2], HR_DTYPE_F64);
  }
  make_best(&programs[2 * SHAPES], 20000, 40);
  make_best(&programs[2 * SHAPES + 1], 700, 3);
  make_scaled(&programs[2 * SHAPES + 2], 64, 256);
  make_scaled(&programs[2 * SHAPES + 3], 70, 35);
  make_best(&programs[2 * SHAPES + 4], 80, 40);
  batch_check(&b, 0, 2 * SHAPES + 5, programs);
  HR_ASSERT_EQ(b.emitted, b.kernels);
  HR_ASSERT(b.quads >= 2 * 3); /* columns that are fours */
  free(programs);
  batch_fini(&b);
}

/* Rows that threads keep, whole and with a rest, and those that are too long for it; the last two are not of fours. */
HR_TEST(rows_of_neighbours_have_the_bits_of_interpreted_kernels) {
  static const int shapes[][2] = {{5, 36},   {5, 100},  {5, 132}, {7, 768}, {3, 1024},
                                  {3, 1028}, {3, 4096}, {5, 766}, {5, 33}};
  enum { SHAPES = sizeof shapes / sizeof *shapes };
  if (!hr__has_emulator()) {
    return;
  }
  batch b = {.texts = &texts};
  generated *programs = calloc(2 * SHAPES, sizeof *programs);
  for (int i = 0; i < SHAPES; ++i) {
    make_centred(&programs[2 * i], "f32", shapes[i][0], shapes[i][1], 2, HR_DTYPE_F32);
    make_centred(&programs[2 * i + 1], "f64", shapes[i][0], shapes[i][1], 2, HR_DTYPE_F64);
  }
  batch_check(&b, 0, 2 * SHAPES, programs);
  HR_ASSERT_EQ(b.emitted, b.kernels);
  HR_ASSERT(b.quads >= 2 * (SHAPES - 2));
  free(programs);
  batch_fini(&b);
}

HR_TEST(rows_that_are_stored_where_they_lie_wait_for_their_readers) {
  static const int columns[] = {33, 64, 320, 1024, 1028, 4096};
  enum { COUNT = sizeof columns / sizeof *columns };
  if (!hr__has_emulator()) {
    return;
  }
  batch b = {.texts = &texts};
  generated *programs = calloc(COUNT, sizeof *programs);
  for (int i = 0; i < COUNT; ++i) {
    make_centred_of(&programs[i], true, "f32", 5, columns[i], 2, HR_DTYPE_F32);
  }
  batch_check(&b, 0, COUNT, programs);
  HR_ASSERT_EQ(b.emitted, b.kernels);
  free(programs);
  batch_fini(&b);
}

/* The softmax of each of a rows of b, or its logarithm's gradient: exponentials, and rows of two inputs. */
static void make_softmax(generated *g, bool is_gradient, const char *dtype, int a, int b, hr_dtype type) {
  static const char *const softmax = "loop %%1:%s = amax(%%0:%s) reduce(2)\nloop %%3:%s = sub(%%0:%s, %%1:%s)\n"
                                     "loop %%3:%s = exp(%%3:%s)\nloop %%2:%s = sum(%%3:%s) reduce(2)\n"
                                     "loop %%4:%s = div(%%3:%s, %%2:%s)\n";
  static const char *const gradient = "loop %%5:%s = exp(%%0:%s)\nloop %%1:%s = sum(%%6:%s) reduce(2)\n"
                                      "loop %%3:%s = mul(%%5:%s, %%1:%s)\nloop %%4:%s = sub(%%6:%s, %%3:%s)\n";
  hr_text text = {0};
  char all[64], row[64];
  long long size = (long long)hr_dtype_size(type), bytes = a * b * size;
  snprintf(all, sizeof all, "%s[%d,%d]{%d,1}+0", dtype, a, b, b);
  snprintf(row, sizeof row, "%s[%d,%d]{1,0}+0", dtype, a, b);
  hr_text_printf(&text,
                 "buffer %%0 %lld live\nbuffer %%1 %lld dead fresh\nbuffer %%2 %lld dead fresh\n"
                 "buffer %%3 %lld dead fresh\nbuffer %%4 %lld live fresh\nbuffer %%5 %lld dead fresh\n"
                 "buffer %%6 %lld live\n",
                 bytes, a * size, a * size, bytes, bytes, bytes, bytes);
  if (is_gradient) {
    hr_text_printf(&text, gradient, all, all, row, all, all, all, row, all, all, all);
  } else {
    hr_text_printf(&text, softmax, row, all, all, all, row, all, all, row, all, all, all, row);
  }
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &g->program));
  hr_text_fini(&text);
  fill(g, (hr_dtype[]){type, type, type, type, type, type, type});
}

/* Rows of a block whose warps run in turns: whole and partial, of one chunk and of several, with fewer elements per
 * thread for more values. */
HR_TEST(rows_of_which_warps_take_turns_have_the_bits_of_interpreted_kernels) {
  static const int shapes[][2] = {{64, 1025}, {64, 2048}, {70, 4096}, {64, 4100}, {64, 9001}, {65, 16384}};
  enum { SHAPES = sizeof shapes / sizeof *shapes, KINDS = 5 };
  if (!hr__has_emulator()) {
    return;
  }
  batch b = {.texts = &texts};
  generated *programs = calloc(KINDS * SHAPES, sizeof *programs);
  for (int i = 0; i < SHAPES; ++i) {
    make_centred(&programs[KINDS * i], "f32", shapes[i][0], shapes[i][1], 2, HR_DTYPE_F32);
    make_centred_of(&programs[KINDS * i + 1], true, "f32", shapes[i][0], shapes[i][1], 2, HR_DTYPE_F32);
    make_softmax(&programs[KINDS * i + 2], false, "f32", shapes[i][0], shapes[i][1], HR_DTYPE_F32);
    make_softmax(&programs[KINDS * i + 3], true, "f32", shapes[i][0], shapes[i][1], HR_DTYPE_F32);
    make_centred(&programs[KINDS * i + 4], "f64", shapes[i][0], shapes[i][1], 2, HR_DTYPE_F64);
  }
  batch_check(&b, 0, KINDS * SHAPES, programs);
  HR_ASSERT_EQ(b.emitted, b.kernels);
  HR_ASSERT(b.turns >= 4 * SHAPES);
  HR_ASSERT_EQ(b.prefetches, b.turns);
  free(programs);
  batch_fini(&b);
}

/* So many rows that each has a block, in whose memory the row stays, or for which it is too small. */
HR_TEST(long_rows_of_a_block_have_the_bits_of_interpreted_kernels) {
  if (!hr__has_emulator()) {
    return;
  }
  for (int i = 0; i < 4; ++i) {
    bool is_small = i % 2 != 0;
    if (!hr_test_takes(i)) {
      continue;
    }
    int columns = i < 2 ? 16386 : 16388;
    batch b = {.texts = &texts, .block_bytes = is_small ? 4 * 16386 - 1 : 80 << 10};
    generated program;
    make_centred(&program, "f32", 512, columns, 2, HR_DTYPE_F32);
    batch_check(&b, 0, 1, &program);
    HR_ASSERT_EQ(b.emitted, b.kernels);
    HR_ASSERT_EQ(b.quads > 0, i >= 2);
    HR_ASSERT_EQ(b.entries.data[0].device_emission.shared[0], is_small ? 0 : 4 * 16388);
    batch_fini(&b);
  }
}

/* x and its transpose, also between two other dims: y[i, j, k] = x[i, k, j] * s + z[i, j, k]. */
static void make_across(generated *g, const char *dtype, int a, int b, int c, hr_dtype type) {
  hr_text text = {0};
  long long size = (long long)hr_dtype_size(type), bytes = (long long)a * b * c * size;
  hr_text_printf(&text,
                 "buffer %%0 %lld live\nbuffer %%1 %lld live\nbuffer %%2 %lld dead fresh\nbuffer %%3 %lld live fresh\n"
                 "loop %%2:%s[%d,%d,%d]{%d,%d,1}+0 = mul(%%0:%s[%d,%d,%d]{%d,1,%d}+0, %%0:%s[%d,%d,%d]{%d,1,%d}+0)\n"
                 "loop %%3:%s[%d,%d,%d]{%d,%d,1}+0 = add(%%2:%s[%d,%d,%d]{%d,%d,1}+0, %%1:%s[%d,%d,%d]{%d,%d,1}+0)\n",
                 bytes, bytes, bytes, bytes, dtype, a, b, c, b * c, c, dtype, a, b, c, b * c, b, dtype, a, b, c, b * c,
                 b, dtype, a, b, c, b * c, c, dtype, a, b, c, b * c, c, dtype, a, b, c, b * c, c);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &g->program));
  hr_text_fini(&text);
  fill(g, (hr_dtype[]){type, type, type, type});
}

HR_TEST(elements_across_memory_have_the_bits_of_interpreted_kernels) {
  static const int shapes[][3] = {{1, 128, 128}, {3, 70, 130}, {2, 33, 1000}, {5, 1000, 16}, {1, 2048, 2080}};
  enum { SHAPES = sizeof shapes / sizeof *shapes };
  if (!hr__has_emulator()) {
    return;
  }
  batch b = {.texts = &texts};
  generated *programs = calloc(2 * SHAPES, sizeof *programs);
  for (int i = 0; i < SHAPES; ++i) {
    make_across(&programs[2 * i], "f32", shapes[i][0], shapes[i][1], shapes[i][2], HR_DTYPE_F32);
    make_across(&programs[2 * i + 1], "f64", shapes[i][0], shapes[i][1], shapes[i][2], HR_DTYPE_F64);
  }
  batch_check(&b, 0, 2 * SHAPES, programs);
  HR_ASSERT_EQ(b.emitted, b.kernels);
  HR_ASSERT_EQ(b.tiles, 2 * SHAPES);
  free(programs);
  batch_fini(&b);
}

/* Element counts such that a thread has two groups of four, the last of them partial; chunk counts such that each warp
 * has several. */
HR_TEST(large_kernels_have_the_bits_of_interpreted_kernels) {
  enum { COUNT = (1 << 24) + 4 * 300 };
  if (!hr__has_emulator()) {
    return;
  }
  batch b = {.texts = &texts};
  generated programs[2];
  memset(programs, 0, sizeof programs);
  hr_text text = {0};
  hr_text_printf(&text,
                 "buffer %%0 %d live\nbuffer %%1 %d live fresh\nloop %%1:f32[%d]{1}+0 = mul(%%0:f32[%d]{1}+0, "
                 "%%0:f32[%d]{1}+0)\n",
                 4 * COUNT, 4 * COUNT, COUNT, COUNT, COUNT);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &programs[0].program));
  hr_text_fini(&text);
  hr_text_printf(&text,
                 "buffer %%0 %d live\nbuffer %%1 4 live fresh\nloop %%1:f32[%d]{0}+0 = sum(%%0:f32[%d]{1}+0) "
                 "reduce(1)\n",
                 4 * COUNT, COUNT, COUNT);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &programs[1].program));
  hr_text_fini(&text);
  fill(&programs[0], (hr_dtype[]){HR_DTYPE_F32, HR_DTYPE_F32});
  fill(&programs[1], (hr_dtype[]){HR_DTYPE_F32, HR_DTYPE_F32});
  batch_check(&b, 0, 2, programs);
  HR_ASSERT_EQ(b.emitted, b.kernels);
  HR_ASSERT_EQ(b.fours, 1);
  HR_ASSERT_EQ(b.quads, 1);
  batch_fini(&b);
}

/* An exponential without an angle, and a number that is an integer in between: compilers turn that into truncation,
 * which makes -0 of -0.3. */
HR_TEST(programs_that_have_differed_have_the_same_bits) {
  static const uint64_t seeds[] = {518, 60117};
  if (!hr__has_emulator()) {
    return;
  }
  for (size_t i = 0; i < sizeof seeds / sizeof *seeds; ++i) {
    batch b = {.texts = &texts};
    generated program;
    HR_ASSERT_OK(hr__generate_program(seeds[i], 4 + (int)(seeds[i] % 13), &program));
    batch_check(&b, seeds[i], 1, &program);
    batch_fini(&b);
  }
}

/* ---- scatters of many elements ---- */

/* x * x is scattered to the rows of %1 that %2 selects: an index for each of `a` elements, or for each row and element.
 */
static void make_scatter(generated *g, int a, int b, bool is_each, const char *mode) {
  hr_text text = {0};
  int count = a * b;
  hr_text_printf(&text,
                 "buffer %%0 %d live\nbuffer %%1 %d live\nbuffer %%2 %d live\nbuffer %%3 %d dead fresh\n"
                 "loop %%3:f32[%d,%d]{%d,1}+0 = mul(%%0:f32[%d,%d]{%d,1}+0, %%0:f32[%d,%d]{%d,1}+0)\n"
                 "loop %%1:f32[%d,%d]{0,1}+0@1*%d<7 = copy(%%3:f32[%d,%d]{%d,1}+0, %%2:i64[%d,%d]{%d,%d}+0) "
                 "ordered(1) store(%s)\n",
                 4 * count, 4 * 7 * b, 8 * count, 4 * count, a, b, b, a, b, b, a, b, b, a, b, b, a, b, b, a, b,
                 is_each ? b : 1, is_each, mode);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &g->program));
  hr_text_fini(&text);
  fill(g, (hr_dtype[]){HR_DTYPE_F32, HR_DTYPE_F32, HR_DTYPE_I64, HR_DTYPE_F32});
}

HR_TEST(scatters_of_many_elements_keep_their_order) {
  static const char *const modes[] = {"set", "add", "mul", "max"};
  enum { MODES = sizeof modes / sizeof *modes, PROGRAMS = 2 * MODES + 4 };
  if (!hr__has_emulator()) {
    return;
  }
  batch b = {.texts = &texts};
  generated *programs = calloc(PROGRAMS, sizeof *programs);
  for (int i = 0; i < MODES; ++i) {
    make_scatter(&programs[2 * i], 300, 5, false, modes[i]);
    make_scatter(&programs[2 * i + 1], 500, 3, true, modes[i]);
  }
  make_scatter(&programs[2 * MODES], 256, 1, false, "add");
  make_scatter(&programs[2 * MODES + 1], 255, 700, true, "add");
  make_scatter(&programs[2 * MODES + 2], 64, 1, false, "add");
  make_scatter(&programs[2 * MODES + 3], 33, 20, true, "add");
  batch_check(&b, 0, PROGRAMS, programs);
  HR_ASSERT_EQ(b.emitted, b.kernels);
  HR_ASSERT_EQ(b.launches_compiled, b.launches);
  free(programs);
  batch_fini(&b);
}
