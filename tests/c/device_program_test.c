/* device_program_test.c: random programs, interpreted and as the text of devices: the same bits.
 *
 * The text runs on the host (device_emulator.h). Every kernel has one. HEADRACE_TEST_PROGRAMS sets the number of programs (default
 * 100), HEADRACE_TEST_SEED the first seed. Without a compiler there is nothing to test.
 */
#include "hr_test.h"

#include "core/kernel.h"
#include "device_emulator.h"
#include "engine/host_compiler.h"
#include "interp/interp.h"
#include "program_generator.h"
#include "program_runner.h"

enum { BATCH = 25 };

typedef struct entry {
  hr_kernel_key key;
  char name[48];
  hr_device_emission emission;
  int arg_count, scalar_count;
  hr_host_kernel *host;
} entry;

typedef struct batch {
  HR_VECTOR(entry) entries;
  hr_text text;
  long kernels, emitted, launches, launches_compiled;
  long quads;      /* kernels whose threads have four neighbours of a row each */
  int block_bytes; /* of a block's own memory */
} batch;

static entry *find(batch *b, const hr_kernel *kernel) {
  hr_kernel_key key = {0};
  HR_ASSERT(hr_kernel_make_key(kernel, &key));
  entry *found = NULL;
  for (size_t i = 0; i < b->entries.count && found == NULL; ++i) {
    entry *at = &b->entries.data[i];
    bool same = at->key.count == key.count && memcmp(at->key.data, key.data, key.count * sizeof *key.data) == 0;
    found = same ? at : NULL;
  }
  hr_vector_fini(&key);
  return found;
}

static void add_kernel(batch *b, const hr_kernel *kernel) {
  ++b->kernels;
  if (find(b, kernel) != NULL) {
    ++b->emitted;
    return;
  }
  entry e = {.host = NULL};
  snprintf(e.name, sizeof e.name, "k%zu", b->entries.count);
  e.arg_count = kernel->arg_count, e.scalar_count = kernel->scalar_count;
  size_t before = b->text.length;
  HR_ASSERT_OK(hr_emit_device_kernel(kernel, e.name, b->block_bytes, &b->text, &e.emission));
  b->quads += strstr(hr_text_chars(&b->text) + before, "= hr_fold_quads_") != NULL ||
              strstr(hr_text_chars(&b->text) + before, "is_four") != NULL;
  for (int pass = 0; pass < e.emission.pass_count;
       ++pass) { /* a compiler that does not know it may take too many registers */
    char head[96];
    snprintf(head, sizeof head, "HR_THREADS(%d) %s_%d(", e.emission.threads[pass], e.name, pass);
    HR_ASSERT_NOT_NULL(strstr(hr_text_chars(&b->text), head));
  }
  HR_ASSERT(hr_kernel_make_key(kernel, &e.key));
  HR_ASSERT(hr_vector_push(&b->entries, e));
  ++b->emitted;
}

static void emit_program(batch *b, const hr_program *program, hr_target target) {
  hr_schedule schedule;
  HR_ASSERT_OK(hr_compile(program, &target, &schedule));
  for (int s = 0; s < schedule.step_count; ++s) {
    if (schedule.steps[s].kind == HR_STEP_KERNEL) {
      add_kernel(b, schedule.steps[s].kernel);
    }
  }
  hr_schedule_fini(&schedule);
}

static const hr_host_kernel *host_of(void *ctx, const hr_kernel *kernel) {
  batch *b = ctx;
  entry *found = find(b, kernel);
  ++b->launches;
  if (found == NULL) {
    return NULL;
  }
  ++b->launches_compiled;
  return found->host;
}

static void check_way(batch *b, const generated *g, uint64_t seed, const char *what, hr__way way) {
  way.host = host_of, way.host_ctx = b;
  HR_ASSERT(hr__runs_alike(g, seed, what, way));
}

static void compile(batch *b, hr_text *path, hr_dynlib *out_library) {
  HR_ASSERT_OK(hr_text_status(&b->text));
  HR_ASSERT_OK(hr__host_compile(b->text.data, b->text.length, NULL, path));
  HR_ASSERT_OK(hr_dynlib_open(hr_text_chars(path), out_library));
  hr__host_compiler_remove(hr_text_chars(path));
  for (size_t i = 0; i < b->entries.count; ++i) {
    entry *e = &b->entries.data[i];
    HR_ASSERT_OK(hr__emulated_create(out_library, e->name, &e->emission, e->arg_count, e->scalar_count, &e->host));
  }
}

/* Runs `count` programs both ways; they are gone afterwards. */
static void check_programs(batch *b, uint64_t first, int count, generated *programs) {
  hr_text path = {0};
  hr_dynlib library = {0};
  HR_ASSERT_OK(hr_emit_device_prelude(HR_DEVICE_TEXT_EMULATED, &b->text));
  for (int i = 0; i < count; ++i) {
    emit_program(b, &programs[i].program, (hr_target){0});
    emit_program(b, &programs[i].program, (hr_target){.resident_row_bytes = 64, .recompute_bytes = 1});
  }
  compile(b, &path, &library);
  for (int i = 0; i < count; ++i) {
    uint64_t seed = first + (uint64_t)i;
    check_way(b, &programs[i], seed, "compiled", (hr__way){.cut = 0});
    check_way(b, &programs[i], seed, "compiled, other kernels",
              (hr__way){.resident_row_bytes = 64, .recompute_bytes = 1});
    hr__generated_fini(&programs[i]);
  }
  for (size_t i = 0; i < b->entries.count; ++i) {
    b->entries.data[i].host->destroy(b->entries.data[i].host);
    hr_vector_fini(&b->entries.data[i].key);
  }
  hr_dynlib_close(&library);
  hr_vector_clear(&b->entries);
  hr_text_clear(&b->text);
  hr_text_fini(&path);
}

static void check_batch(batch *b, uint64_t first, int count) {
  generated *programs = calloc((size_t)count, sizeof *programs);
  for (int i = 0; i < count; ++i) {
    uint64_t seed = first + (uint64_t)i;
    HR_ASSERT_OK(hr__generate_program(seed, 4 + (int)(seed % 13), &programs[i]));
  }
  check_programs(b, first, count, programs);
  free(programs);
}

HR_TEST(texts_of_devices_have_the_bits_of_interpreted_kernels) {
  if (!hr__has_compiler()) {
    return;
  }
  long count = hr__setting("HEADRACE_TEST_PROGRAMS", 100), first = hr__setting("HEADRACE_TEST_SEED", 1);
  batch b = {0};
  for (long k = 0; k < count; k += BATCH) {
    check_batch(&b, (uint64_t)(first + k), (int)(count - k < BATCH ? count - k : BATCH));
  }
  HR_ASSERT_EQ(b.emitted, b.kernels);
  HR_ASSERT_EQ(b.launches_compiled, b.launches);
  hr_vector_fini(&b.entries);
  hr_text_fini(&b.text);
}

/* ---- reductions of several chunks ---- */

/* Contents: small numbers of both signs. */
static void fill(generated *g, const hr_dtype *dtypes) {
  uint32_t state = 1;
  g->buffer_count = g->program.buffer_count;
  g->bytes = calloc((size_t)g->buffer_count, sizeof *g->bytes);
  g->memory = calloc((size_t)g->buffer_count, sizeof *g->memory);
  g->dtypes = calloc((size_t)g->buffer_count, sizeof *g->dtypes);
  g->arguments = calloc(1, sizeof *g->arguments);
  for (int b = 0; b < g->buffer_count; ++b) {
    g->bytes[b] = g->program.buffers[b].bytes;
    g->memory[b] = calloc(g->bytes[b] + 1, 1);
    g->dtypes[b] = dtypes[b];
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

/* x - mean(x) and its square's sum over `mask` of [a, b]: three phases, of which two reduce and the last stores. */
static void make_centred(generated *g, const char *dtype, int a, int b, int mask, hr_dtype type) {
  hr_text text = {0};
  char all[64], row[64];
  long long size = (long long)hr_dtype_size(type), rows = mask == 1 ? b : a;
  snprintf(all, sizeof all, "%s[%d,%d]{%d,1}+0", dtype, a, b, b);
  snprintf(row, sizeof row, "%s[%d,%d]{%d,%d}+0", dtype, a, b, mask == 1 ? 0 : 1, mask == 1 ? 1 : 0);
  hr_text_printf(&text,
                 "buffer %%0 %lld live\nbuffer %%1 %lld live fresh\nbuffer %%2 %lld live fresh\n"
                 "buffer %%3 %lld dead fresh\nbuffer %%4 %lld live fresh\n"
                 "loop %%1:%s = sum(%%0:%s) reduce(%d)\n"
                 "loop %%2:%s = sub(%%0:%s, %%1:%s)\n"
                 "loop %%3:%s = mul(%%2:%s, %%2:%s)\n"
                 "loop %%4:%s = sum(%%3:%s) reduce(%d)\n",
                 a * b * size, rows * size, a * b * size, a * b * size, rows * size, row, all, mask, all, all, row, all,
                 all, all, row, all, mask);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &g->program));
  hr_text_fini(&text);
  fill(g, (hr_dtype[]){type, type, type, type, type});
}

/* The largest element's number in each of b columns, by what %1 says. */
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
  static const int shapes[][3] = {{3, 9000, 2},  {70, 4097, 2}, {9000, 3, 1},   {70, 33, 1},    {4500, 65, 1},
                                  {8192, 32, 1}, {513, 40, 1},  {20000, 33, 1}, {262400, 3, 1}, {1300, 4, 1}};
  enum { SHAPES = sizeof shapes / sizeof *shapes };
  if (!hr__has_compiler()) {
    return;
  }
  batch b = {0};
  generated *programs = calloc(2 * SHAPES + 2, sizeof *programs);
  for (int i = 0; i < SHAPES; ++i) {
    make_centred(&programs[2 * i], "f32", shapes[i][0], shapes[i][1], shapes[i][2], HR_DTYPE_F32);
    make_centred(&programs[2 * i + 1], "f64", shapes[i][0], shapes[i][1], shapes[i][2], HR_DTYPE_F64);
  }
  make_best(&programs[2 * SHAPES], 20000, 40);
  make_best(&programs[2 * SHAPES + 1], 700, 3);
  check_programs(&b, 0, 2 * SHAPES + 2, programs);
  HR_ASSERT_EQ(b.emitted, b.kernels);
  HR_ASSERT(b.quads >= 2 * 3); /* columns that are fours */
  free(programs);
  hr_vector_fini(&b.entries);
  hr_text_fini(&b.text);
}

/* Rows that threads keep, whole and with a rest, and those that are too long for it; the last two are not of fours. */
HR_TEST(rows_of_neighbours_have_the_bits_of_interpreted_kernels) {
  static const int shapes[][2] = {{5, 36},   {5, 100},  {5, 132}, {7, 768}, {3, 1024},
                                  {3, 1028}, {3, 4096}, {5, 766}, {5, 33}};
  enum { SHAPES = sizeof shapes / sizeof *shapes };
  if (!hr__has_compiler()) {
    return;
  }
  batch b = {0};
  generated *programs = calloc(2 * SHAPES, sizeof *programs);
  for (int i = 0; i < SHAPES; ++i) {
    make_centred(&programs[2 * i], "f32", shapes[i][0], shapes[i][1], 2, HR_DTYPE_F32);
    make_centred(&programs[2 * i + 1], "f64", shapes[i][0], shapes[i][1], 2, HR_DTYPE_F64);
  }
  check_programs(&b, 0, 2 * SHAPES, programs);
  HR_ASSERT_EQ(b.emitted, b.kernels);
  HR_ASSERT(b.quads >= 2 * (SHAPES - 2));
  free(programs);
  hr_vector_fini(&b.entries);
  hr_text_fini(&b.text);
}

/* So many rows that each has a block, in whose memory the row stays, or for which it is too small. */
HR_TEST(long_rows_of_a_block_have_the_bits_of_interpreted_kernels) {
  if (!hr__has_compiler()) {
    return;
  }
  for (int i = 0; i < 4; ++i) {
    bool is_small = i % 2 != 0;
    int columns = i < 2 ? 12290 : 12292;
    batch b = {.block_bytes = is_small ? 4 * 12290 - 1 : 64 << 10};
    generated program;
    make_centred(&program, "f32", 512, columns, 2, HR_DTYPE_F32);
    check_programs(&b, 0, 1, &program);
    HR_ASSERT_EQ(b.emitted, b.kernels);
    HR_ASSERT_EQ(b.quads > 0, i >= 2);
    HR_ASSERT_EQ(b.entries.data[0].emission.shared[0], is_small ? 0 : 4 * 12292);
    hr_vector_fini(&b.entries);
    hr_text_fini(&b.text);
  }
}

/* ---- scatters of many elements ---- */

/* x * x goes to rows of %1 that %2 chooses: a number for each of `a` elements, or for each row and element. */
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
  enum { MODES = sizeof modes / sizeof *modes, PROGRAMS = 2 * MODES + 2 };
  if (!hr__has_compiler()) {
    return;
  }
  batch b = {0};
  generated *programs = calloc(PROGRAMS, sizeof *programs);
  for (int i = 0; i < MODES; ++i) {
    make_scatter(&programs[2 * i], 300, 5, false, modes[i]);
    make_scatter(&programs[2 * i + 1], 500, 3, true, modes[i]);
  }
  make_scatter(&programs[2 * MODES], 256, 1, false, "add");
  make_scatter(&programs[2 * MODES + 1], 255, 700, true, "add");
  check_programs(&b, 0, PROGRAMS, programs);
  HR_ASSERT_EQ(b.emitted, b.kernels);
  HR_ASSERT_EQ(b.launches_compiled, b.launches);
  free(programs);
  hr_vector_fini(&b.entries);
  hr_text_fini(&b.text);
}
