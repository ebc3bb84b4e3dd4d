/* emit_program_test.c: random programs give the same bits interpreted and compiled.
 *
 * Programs of a batch are emitted into one text and compiled once; kernels that cannot be emitted are interpreted.
 * Skipped without a compiler.
 *
 * - HEADRACE_TEST_PROGRAMS: number of programs (default 100)
 * - HEADRACE_TEST_SEED: the first seed
 * - HEADRACE_TEST_SHOW=1: prints the kernels that are not emitted
 */
#include "interp/interp.h"
#include "kernel_batch.h"

/* ---- texts of the host ---- */

static long count_stages(const char *text) {
  long count = 0;
  for (; (text = strstr(text, "for (int64_t k = 0;")) != NULL; ++text) {
    ++count;
  }
  return count;
}

static bool emit(batch *b, const hr_kernel *kernel, entry *e) {
  size_t before = b->text.length;
  hr_status status = hr_emit_kernel(kernel, NULL, e->name, &b->text, &e->emission);
  if (hr_status_code_of(status) == HR_STATUS_UNIMPLEMENTED) {
    if (b->shows) {
      fprintf(stderr, "%s\n", hr_status_message(status));
    }
    hr_status_free(status);
    return false;
  }
  HR_ASSERT_OK(status);
  b->strips += strstr(hr_text_chars(&b->text) + before, "HR_STRIP") != NULL;
  b->stages += count_stages(hr_text_chars(&b->text) + before);
  return true;
}

static hr_library *library;

static void open_library(batch *b, const char *path) {
  HR_ASSERT_OK(hr__library_open(path, &library));
  for (size_t i = 0; i < b->entries.count; ++i) {
    entry *e = &b->entries.data[i];
    HR_ASSERT_OK(hr__compiled_kernel_create(library, e->name, &e->emission, e->name, 0, &e->host));
  }
}

static void close_library(batch *b) {
  (void)b;
  hr__library_release(library);
}

/* Checks the memory that executables reserve. */
static void check_workspace(const hr_kernel *kernel, const hr_host_kernel *host) {
  hr_host_kernel *interpreted;
  HR_ASSERT_OK(hr_interp_create(kernel, &interpreted));
  HR_ASSERT(host->workspace_bytes <= interpreted->workspace_bytes);
  interpreted->destroy(interpreted);
}

static const batch_algorithm algorithms[] = {{"compiled", {.cut = 0}},
                                             {"compiled, unit by unit", {.cut = 1}},
                                             {"compiled, from the end", {.cut = 3, .is_reversed = true}},
                                             {NULL}};
static const batch_texts texts = {.write_prelude = hr_emit_prelude,
                                  .emit = emit,
                                  .open = open_library,
                                  .close = close_library,
                                  .algorithms = algorithms,
                                  .check_host = check_workspace};

/* ---- random programs ---- */

HR_TEST(compiled_programs_have_the_bits_of_interpreted_ones) {
  if (!hr__has_compiler()) {
    return;
  }
  batch b = {.texts = &texts, .shows = getenv("HEADRACE_TEST_SHOW") != NULL};
  batch_check_random(&b);
  printf("%ld of %ld kernels emitted, %ld of %ld launches compiled\n", b.emitted, b.kernels, b.launches_compiled,
         b.launches);
  batch_fini(&b);
}

/* ---- windows over planes whose channels are neighbours ---- */

typedef struct pool {
  int64_t batch, height, width, channels, kernel, stride, padding, dilation;
  bool ceil;
  const char *dtype;
} pool;

static int64_t pooled(const pool *p, int64_t size) {
  int64_t room = size + 2 * p->padding - p->dilation * (p->kernel - 1) - 1;
  int64_t count = (room + (p->ceil ? p->stride - 1 : 0)) / p->stride + 1;
  return (count - 1) * p->stride >= size + p->padding ? count - 1 : count;
}

/* Ties, zeros of both signs, infinities and NaN; the same pool always gets the same contents. */
static void fill(generated *g, const hr_dtype *dtypes) {
  static const float picks[] = {-INFINITY, -INFINITY, NAN, -0.0f, 0.0f, 1.0f, -1.0f, 2.5f, -3.0f, 0.5f, INFINITY, 7.0f};
  uint32_t state = 1;
  allocate_buffers(g, dtypes);
  for (int b = 0; b < g->buffer_count; ++b) {
    for (size_t i = 0; i < g->bytes[b] / hr_dtype_size(dtypes[b]); ++i) {
      state = state * 1664525u + 1013904223u;
      float value = picks[(state >> 8) % (i / 512 % 2 == 0 ? 12 : 2)]; /* traces of nothing but -infinity, too */
      switch (dtypes[b]) {
        case HR_DTYPE_F32:
          ((float *)g->memory[b])[i] = value;
          break;
        case HR_DTYPE_F64:
          ((double *)g->memory[b])[i] = (double)value;
          break;
        case HR_DTYPE_BF16:
          ((uint16_t *)g->memory[b])[i] = hr_f32_to_bf16(value);
          break;
        case HR_DTYPE_F16: /* nothing that needs no rounding alone */
          ((uint16_t *)g->memory[b])[i] = hr_f32_to_f16(value * (1 + (float)(i % 97) * 0.01f));
          break;
        default:
          break;
      }
    }
  }
}

/* relu, pool with indices, average: x, y and the indices are [batch, channels, height, width], channels-last. */
static void make_pool(const pool *p, generated *g) {
  hr_text text = {0};
  char x[160], y[160], index[160];
  int64_t oh = pooled(p, p->height), ow = pooled(p, p->width), c = p->channels;
  hr_dtype dtype = strcmp(p->dtype, "f64") == 0    ? HR_DTYPE_F64
                   : strcmp(p->dtype, "bf16") == 0 ? HR_DTYPE_BF16
                                                   : HR_DTYPE_F32;
  long long in = p->batch * p->height * p->width * c, out = p->batch * oh * ow * c,
            size = (long long)hr_dtype_size(dtype);
  snprintf(x, sizeof x, "%s[%lld,%lld,%lld,%lld]{%lld,1,%lld,%lld}+0", p->dtype, (long long)p->batch, (long long)c,
           (long long)p->height, (long long)p->width, (long long)(p->height * p->width * c), (long long)(p->width * c),
           (long long)c);
  snprintf(y, sizeof y, "[%lld,%lld,%lld,%lld]{%lld,1,%lld,%lld}+0", (long long)p->batch, (long long)c, (long long)oh,
           (long long)ow, (long long)(oh * ow * c), (long long)(ow * c), (long long)c);
  snprintf(index, sizeof index, "%lld,%lld,%lld,%lld,%lld,%lld,%lld,%lld", (long long)p->kernel, (long long)p->kernel,
           (long long)p->stride, (long long)p->stride, (long long)p->padding, (long long)p->padding,
           (long long)p->dilation, (long long)p->dilation);
  hr_text_printf(
      &text,
      "buffer %%0 %lld live\nbuffer %%1 %lld dead fresh\nbuffer %%2 %lld live fresh\nbuffer %%3 %lld live fresh\n"
      "buffer %%4 %lld live fresh\nbuffer %%5 %lld live fresh\n"
      "%%1:%s = relu(%%0:%s)\n"
      "%%2:%s%s, %%3:i64%s = max_pool(%%1:%s) ints(%s)\n"
      "%%4:%s%s, _ = max_pool(%%0:%s) ints(%s)\n"
      "%%5:%s%s = avg_pool(%%0:%s) ints(%s,0,3)\n",
      in * size, in * size, out * size, out * 8, out * size, out * size, x, x, p->dtype, y, y, x, index, p->dtype, y, x,
      index, p->dtype, y, x, index);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &g->program));
  hr_text_fini(&text);
  fill(g, (hr_dtype[]){dtype, dtype, dtype, HR_DTYPE_I64, dtype, dtype});
}

/* The backward pass of non-overlapping windows, a threshold and the sum over all but the channels, in the compiler's
 * layout: tiles of kernel x kernel over rows of the plane, reduced in chunks that begin and end inside of tiles. */
static void make_backward(const pool *p, generated *g) {
  hr_text text = {0};
  char tiles[128], plane[96], pooled_strides[96];
  long long k = p->kernel, oh = p->height / k, ow = p->width / k, c = p->channels, n = p->batch;
  long long in = n * p->height * p->width * c, out = n * oh * ow * c;
  snprintf(tiles, sizeof tiles, "[%lld,%lld,%lld,%lld,%lld,%lld]", n, oh, k, ow, k, c);
  snprintf(plane, sizeof plane, "{%lld,%lld,%lld,%lld,%lld,1}+0", oh * k * ow * k * c, k * ow * k * c, ow * k * c,
           k * c, c);
  snprintf(pooled_strides, sizeof pooled_strides, "{%lld,%lld,0,%lld,0,1}+0", oh * ow * c, ow * c, c);
  hr_text_printf(
      &text,
      "buffer %%0 %lld live\nbuffer %%1 %lld live\nbuffer %%2 %lld live\nbuffer %%3 %lld dead fresh\n"
      "buffer %%4 %lld dead fresh\nbuffer %%5 %lld live fresh\nbuffer %%6 %lld live fresh\nscalar $0 f64 = 0\n"
      "loop %%3:bool%s%s = eq(#:i64%s{0,%lld,%lld,%lld,1,0}+0, %%0:i64%s%s)\n"
      "loop %%4:f32%s%s = where(%%3:bool%s%s, %%1:f32%s%s, $0)\n"
      "loop %%5:f32%s%s = threshold_backward(%%4:f32%s%s, %%2:f32%s%s, $0)\n"
      "loop %%6:f32%s{0,0,0,0,0,1}+0 = sum(%%5:f32%s%s) reduce(31)\n",
      out * 8, out * 4, in * 4, in, in * 4, in * 4, c * 4, tiles, plane, tiles, k * ow * k, ow * k, k, tiles,
      pooled_strides, tiles, plane, tiles, plane, tiles, pooled_strides, tiles, plane, tiles, plane, tiles, plane,
      tiles, tiles, plane);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &g->program));
  hr_text_fini(&text);
  fill(g,
       (hr_dtype[]){HR_DTYPE_I64, HR_DTYPE_F32, HR_DTYPE_F32, HR_DTYPE_BOOL, HR_DTYPE_F32, HR_DTYPE_F32, HR_DTYPE_F32});
  for (long long i = 0; i < out; ++i) { /* a place in each window, sometimes none */
    long long at = i / c, row = at / ow % oh, column = at % ow, choice = i * 7 % (k * k + 1);
    ((int64_t *)g->memory[0])[i] = choice == k * k ? -1 : (row * k + choice / k) * ow * k + column * k + choice % k;
    ((float *)g->memory[1])[i] = (float)(i % 1001 - 500) / 64.0f;
  }
}

/* The backward pass of a pool, then of silu, whose gradient is a small part of the kernel if windows are large. */
static void make_smooth_backward(const pool *p, generated *g) {
  hr_text text = {0};
  char x[128], kinds[64];
  long long c = p->channels, n = p->batch, h = p->height, w = p->width, k = p->kernel, count = n * h * w * c;
  snprintf(x, sizeof x, "[%lld,%lld,%lld,%lld]{%lld,1,%lld,%lld}+0", n, c, h, w, h * w * c, w * c, c);
  snprintf(kinds, sizeof kinds, "%lld,%lld,1,1,%lld,%lld,1,1", k, k, (long long)p->padding, (long long)p->padding);
  hr_text_printf(&text,
                 "buffer %%0 %lld live\nbuffer %%1 %lld live fresh\nbuffer %%2 %lld live fresh\n"
                 "buffer %%3 %lld dead fresh\nbuffer %%4 %lld live fresh\n"
                 "%%1:f32%s, %%2:i64%s = max_pool(%%0:f32%s) ints(%s)\n"
                 "%%3:f32%s = max_pool_backward(%%1:f32%s, %%2:i64%s) ints(%s)\n"
                 "%%4:f32%s = silu_backward(%%3:f32%s, %%0:f32%s)\n",
                 count * 4, count * 4, count * 8, count * 4, count * 4, x, x, x, kinds, x, x, x, kinds, x, x, x);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &g->program));
  hr_text_fini(&text);
  fill(g, (hr_dtype[]){HR_DTYPE_F32, HR_DTYPE_F32, HR_DTYPE_I64, HR_DTYPE_F32, HR_DTYPE_F32});
}

HR_TEST(pools_over_few_channels_have_the_bits_of_interpreted_ones) {
  static const pool pools[] = {{3, 8, 8, 1, 2, 2, 0, 1, false, "f32"},    {2, 28, 28, 20, 2, 2, 0, 1, false, "f32"},
                               {3, 7, 9, 50, 2, 2, 0, 1, false, "f32"},   {2, 9, 9, 64, 3, 2, 1, 1, false, "f32"},
                               {2, 9, 11, 37, 3, 2, 1, 1, true, "f32"},   {2, 8, 8, 20, 3, 1, 1, 1, false, "f32"},
                               {1, 12, 10, 18, 2, 3, 0, 2, false, "f32"}, {2, 8, 8, 20, 2, 2, 1, 1, true, "bf16"},
                               {2, 9, 9, 23, 3, 2, 1, 1, true, "f64"},    {1, 6, 6, 300, 2, 2, 0, 1, false, "f32"},
                               {2, 6, 6, 20, 6, 1, 3, 1, false, "f32"}};
  static const pool smooth[] = {{2, 6, 6, 64, 5, 1, 2, 1, false, "f32"}, {1, 7, 5, 23, 5, 1, 2, 1, false, "f32"}};
  static const pool tiled[] = {{7, 28, 28, 20, 2, 2, 0, 1, false, "f32"},
                               {3, 12, 6, 50, 2, 2, 0, 1, false, "f32"},
                               {9, 24, 24, 17, 3, 3, 0, 1, false, "f32"},
                               {5, 32, 32, 64, 4, 4, 0, 1, false, "f32"},
                               {2, 8, 8, 600, 2, 2, 0, 1, false, "f32"}};
  enum { POOLS = sizeof pools / sizeof *pools, TILED = sizeof tiled / sizeof *tiled };
  enum { SMOOTH = sizeof smooth / sizeof *smooth, ALL = POOLS + TILED + SMOOTH };
  if (!hr__has_compiler()) {
    return;
  }
  batch b = {.texts = &texts, .shows = getenv("HEADRACE_TEST_SHOW") != NULL};
  generated *programs = calloc(ALL, sizeof *programs);
  for (int i = 0; i < POOLS; ++i) {
    make_pool(&pools[i], &programs[i]);
  }
  for (int i = 0; i < TILED; ++i) {
    make_backward(&tiled[i], &programs[POOLS + i]);
  }
  for (int i = 0; i < SMOOTH; ++i) {
    make_smooth_backward(&smooth[i], &programs[POOLS + TILED + i]);
  }
  batch_check(&b, 0, ALL, programs);
  HR_ASSERT_EQ(b.emitted, b.kernels);
  free(programs);
  batch_fini(&b);
}

/* ---- short rows, which go abreast ---- */

typedef struct short_rows {
  int outer, rows, columns;
  bool is_turned; /* rows are adjacent */
} short_rows;

/* The logarithm of softmax, in place; the largest element, its index, and the sum of squares; one number per row is
 * read and written. */
static void make_short_rows(const short_rows *s, generated *g) {
  hr_text text = {0};
  char x[96], row[64];
  int count = s->outer * s->rows * s->columns, rows = s->outer * s->rows;
  snprintf(x, sizeof x, "[%d,%d,%d]{%d,%d,%d}+0", s->outer, s->rows, s->columns, s->rows * s->columns,
           s->is_turned ? 1 : s->columns, s->is_turned ? s->rows : 1);
  snprintf(row, sizeof row, "[%d,%d,1]{%d,1,1}+0", s->outer, s->rows, s->rows);
  hr_text_printf(&text,
                 "buffer %%0 %d live\nbuffer %%1 %d live fresh\nbuffer %%2 %d live fresh\nbuffer %%3 %d live fresh\n"
                 "buffer %%4 %d live\nbuffer %%5 %d dead fresh\n"
                 "%%1:f32%s = amax(%%0:f32%s) ints(4)\n"
                 "%%2:i64%s = argmax(%%0:f32%s, _) ints(4)\n"
                 "%%3:f32%s = norm(%%0:f32%s) ints(4, 3)\n"
                 "%%4:f32%s = add(%%4:f32%s, %%3:f32%s)\n"
                 "%%5:f32%s = mul(%%0:f32%s, %%4:f32%s)\n"
                 "%%0:f32%s = log_softmax(%%5:f32%s) ints(2)\n",
                 count * 4, rows * 4, rows * 8, rows * 4, rows * 4, count * 4, row, x, row, x, row, x, row, row, row, x,
                 x, row, x, x);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &g->program));
  hr_text_fini(&text);
  fill(g, (hr_dtype[]){HR_DTYPE_F32, HR_DTYPE_F32, HR_DTYPE_I64, HR_DTYPE_F32, HR_DTYPE_F32, HR_DTYPE_F32});
  for (int i = 0; i < count; i += 1 + i % 5) { /* some rows without NaN */
    ((float *)g->memory[0])[i] = (float)(i % 17 - 8) * 0.25f;
  }
}

HR_TEST(short_rows_have_the_bits_of_interpreted_ones) {
  static const short_rows all[] = {{1, 1, 33, false},   {3, 5, 64, false},   {1, 16, 100, false}, {2, 33, 127, false},
                                   {1, 50, 256, false}, {1, 20, 257, false}, {2, 40, 64, true},   {1, 37, 200, true}};
  enum { COUNT = sizeof all / sizeof *all };
  if (!hr__has_compiler()) {
    return;
  }
  batch b = {.texts = &texts, .shows = getenv("HEADRACE_TEST_SHOW") != NULL};
  generated *programs = calloc(COUNT, sizeof *programs);
  for (int i = 0; i < COUNT; ++i) {
    make_short_rows(&all[i], &programs[i]);
  }
  batch_check(&b, 0, COUNT, programs);
  HR_ASSERT_EQ(b.emitted, b.kernels);
  free(programs);
  batch_fini(&b);
}

/* ---- which element of a column is best ---- */

/* The index of the largest, and the smallest among all given indices: over the rows of [outer, rows, columns]. */
static void make_choices(const int *dims, hr_dtype dtype, generated *g) {
  hr_text text = {0};
  char x[64], place[64], column[64];
  int columns = dims[0] * dims[2], count = columns * dims[1], bytes = (int)hr_dtype_size(dtype);
  const char *name = hr_dtype_name(dtype);
  snprintf(x, sizeof x, "[%d,%d,%d]{%d,%d,1}+0", dims[0], dims[1], dims[2], dims[1] * dims[2], dims[2]);
  snprintf(place, sizeof place, "[%d,%d,%d]{0,1,0}+0", dims[0], dims[1], dims[2]);
  snprintf(column, sizeof column, "[%d,1,%d]{%d,%d,1}+0", dims[0], dims[2], dims[2], dims[2]);
  hr_text_printf(&text,
                 "buffer %%0 %d live\nbuffer %%1 %d live\nbuffer %%2 %d live fresh\nbuffer %%3 %d live fresh\n"
                 "%%2:i64%s = argmax(%%0:%s%s, _) ints(2)\n"
                 "%%3:i64%s = argmin(%%0:%s%s, %%1:i64%s) ints(2)\n",
                 count * bytes, dims[1] * 8, columns * 8, columns * 8, column, name, x, column, name, x, place);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &g->program));
  hr_text_fini(&text);
  fill(g, (hr_dtype[]){dtype, HR_DTYPE_I64, HR_DTYPE_I64, HR_DTYPE_I64});
  for (int i = 0; i < count && dtype == HR_DTYPE_F32; ++i) { /* many that are equal, few NaN */
    ((float *)g->memory[0])[i] = i % 1999 == 7 ? NAN : (float)(i * 31 % 23 - 8);
  }
  for (int i = 0; i < dims[1]; ++i) { /* the smallest place is not the first */
    ((int64_t *)g->memory[1])[i] = (i * 7 + 3) % (2 * dims[1]);
  }
}

HR_TEST(choices_of_columns_have_the_bits_of_interpreted_ones) {
  static const int dims[][3] = {{3, 700, 40}, {1, 33, 300}, {2, 5, 1024}, {4, 1, 64}, {2, 1030, 17}};
  static const hr_dtype dtypes[] = {HR_DTYPE_F32, HR_DTYPE_F64, HR_DTYPE_I64, HR_DTYPE_U8};
  enum { SHAPES = sizeof dims / sizeof *dims, COUNT = SHAPES * sizeof dtypes / sizeof *dtypes };
  if (!hr__has_compiler()) {
    return;
  }
  batch b = {.texts = &texts, .shows = getenv("HEADRACE_TEST_SHOW") != NULL};
  generated *programs = calloc(COUNT, sizeof *programs);
  for (int i = 0; i < COUNT; ++i) {
    make_choices(dims[i % SHAPES], dtypes[i / SHAPES], &programs[i]);
  }
  batch_check(&b, 0, COUNT, programs);
  HR_ASSERT_EQ(b.emitted, b.kernels);
  free(programs);
  batch_fini(&b);
}

/* ---- strips of halves ---- */

/* Two roundings between operations, a row's value for all its elements, a scalar, and a wider result: over [a, b]. */
static void make_strips(int a, int b, generated *g) {
  hr_text text = {0};
  char all[64], row[64];
  snprintf(all, sizeof all, "[%d,%d]{%d,1}+0", a, b, b);
  snprintf(row, sizeof row, "[%d,%d]{1,0}+0", a, b);
  hr_text_printf(&text,
                 "buffer %%0 %d live\nbuffer %%1 %d live\nbuffer %%2 %d dead fresh\nbuffer %%3 %d live fresh\n"
                 "buffer %%4 %d live fresh\nscalar $0 f64 = 0.3\n"
                 "loop %%2:f16%s = mul(%%0:f16%s, $0)\n"
                 "loop %%3:f16%s = add(%%2:f16%s, %%1:f16%s)\n"
                 "loop %%4:f32%s = sub(%%3:f16%s, %%2:f16%s)\n",
                 a * b * 2, a * 2, a * b * 2, a * b * 2, a * b * 4, all, all, all, all, row, all, all, all);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &g->program));
  hr_text_fini(&text);
  fill(g, (hr_dtype[]){HR_DTYPE_F16, HR_DTYPE_F16, HR_DTYPE_F16, HR_DTYPE_F16, HR_DTYPE_F32});
}

HR_TEST(strips_of_halves_have_the_bits_of_interpreted_ones) {
  static const int dims[][2] = {{3, 16}, {40, 64}, {7, 1024}, {1, 5000}, {5, 33}, {64, 8}};
  enum { COUNT = sizeof dims / sizeof *dims };
  if (!hr__has_compiler()) {
    return;
  }
  batch b = {.texts = &texts, .shows = getenv("HEADRACE_TEST_SHOW") != NULL};
  generated *programs = calloc(COUNT, sizeof *programs);
  for (int i = 0; i < COUNT; ++i) {
    make_strips(dims[i][0], dims[i][1], &programs[i]);
  }
  batch_check(&b, 0, COUNT, programs);
  HR_ASSERT_EQ(b.emitted, b.kernels);
  HR_ASSERT_EQ(b.strips, 3); /* a row of the others is no number of vectors */
  free(programs);
  batch_fini(&b);
}

/* ---- divisions ---- */

/* Loops over dense vectors: `T` in the rows stands for their type. The first `live` of the buffers outlive the program.
 */
static void make_vectors(int n, hr_dtype dtype, int live, int buffers, int rows, const char *const *row, generated *g) {
  static const double scalars[] = {0.9, 0.1, 0.999, 0.001, 0.19, 1e-3, 0.002, 1e-8};
  hr_text text = {0};
  hr_dtype dtypes[16];
  HR_ASSERT(buffers <= 16);
  for (int b = 0; b < buffers; ++b) {
    hr_text_printf(&text, "buffer %%%d %d %s\n", b, n * (int)hr_dtype_size(dtype), b < live ? "live" : "dead fresh");
    dtypes[b] = dtype;
  }
  for (size_t i = 0; i < sizeof scalars / sizeof *scalars; ++i) {
    hr_text_printf(&text, "scalar $%d f64 = %g\n", (int)i, scalars[i]);
  }
  for (int i = 0; i < rows; ++i) {
    hr_text_append(&text, "loop ");
    for (const char *at = row[i]; *at != '\0'; ++at) {
      if (*at == 'T') {
        hr_text_printf(&text, ":%s[%d]{1}+0", dtype == HR_DTYPE_F32 ? "f32" : "f64", n);
      } else {
        hr_text_printf(&text, "%c", *at);
      }
    }
    hr_text_append(&text, "\n");
  }
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &g->program));
  hr_text_fini(&text);
  fill(g, dtypes);
}

/* A step of Adam with corrections that divide: averages and parameters in place, 3 divisions and a root. */
static void make_adam(int n, hr_dtype dtype, generated *g) {
  static const char *const rows[] = {"%4T = mul(%1T, $0)",     "%5T = mul(%0T, $1)",  "%1T = add(%4T, %5T)",
                                     "%6T = mul(%2T, $2)",     "%7T = mul(%0T, $3)",  "%8T = mul(%7T, %0T)",
                                     "%2T = add(%6T, %8T)",    "%9T = div(%1T, $4)",  "%10T = mul(%9T, $5)",
                                     "%11T = div(%2T, $6)",    "%12T = sqrt(%11T)",   "%13T = add(%12T, $7)",
                                     "%14T = div(%10T, %13T)", "%3T = sub(%3T, %14T)"};
  make_vectors(n, dtype, 4, 15, sizeof rows / sizeof *rows, rows, g);
}

HR_TEST(divisions_are_in_the_loop_that_reads_memory) {
  static const int lengths[] = {5000, 1024, 7};
  enum { LENGTHS = sizeof lengths / sizeof *lengths, COUNT = 2 * LENGTHS };
  if (!hr__has_compiler()) {
    return;
  }
  batch b = {.texts = &texts, .shows = getenv("HEADRACE_TEST_SHOW") != NULL};
  generated *programs = calloc(COUNT, sizeof *programs);
  for (int i = 0; i < COUNT; ++i) {
    make_adam(lengths[i % LENGTHS], i < LENGTHS ? HR_DTYPE_F32 : HR_DTYPE_F64, &programs[i]);
  }
  batch_check(&b, 0, COUNT, programs);
  HR_ASSERT_EQ(b.emitted, b.kernels);
  HR_ASSERT_EQ(b.stages, COUNT);
  free(programs);
  batch_fini(&b);
}

/* Sines and remainders have a short form, whose loop tests operands that another loop has stored. */
HR_TEST(operations_with_short_forms_have_quotients_and_roots_as_operands) {
  static const char *const all[][3] = {{"%3T = div(%0T, %1T)", "%2T = sin(%3T)", NULL},
                                       {"%3T = sqrt(%0T)", "%2T = cos(%3T)", NULL},
                                       {"%3T = reciprocal(%0T)", "%4T = rsqrt(%3T)", "%2T = tan(%4T)"},
                                       {"%3T = div(%0T, %1T)", "%2T = remainder(%3T, %1T)", NULL},
                                       {"%3T = sin(%0T)", "%4T = div(%3T, %1T)", "%2T = cos(%4T)"}};
  enum { COUNT = sizeof all / sizeof *all };
  if (!hr__has_compiler()) {
    return;
  }
  batch b = {.texts = &texts, .shows = getenv("HEADRACE_TEST_SHOW") != NULL};
  generated *programs = calloc(COUNT, sizeof *programs);
  for (int i = 0; i < COUNT; ++i) {
    make_vectors(3000, HR_DTYPE_F32, 3, 5, all[i][2] != NULL ? 3 : 2, all[i], &programs[i]);
  }
  batch_check(&b, 0, COUNT, programs);
  HR_ASSERT_EQ(b.emitted, b.kernels);
  free(programs);
  batch_fini(&b);
}
