/* repeat_stream_test.c: programs whose cells repeat give the same bits with copied cells and with compiled ones.
 *
 * Two contexts run each program, in several sizes, twice: compiled and then from the cache. In one of them each cell is
 * compiled. HEADRACE_TEST_PROGRAMS sets the number of programs (default 40), HEADRACE_TEST_SEED the first seed,
 * HEADRACE_TEST_DEVICE the device (default "cpu").
 */
#include "cell_programs.h"

#include "base/context.h"
#include "program_stream.h"

typedef struct world {
  hr_context *context;
  hr__side side;
} world;

static world open_world(const char *repeats) {
  world w = {0};
  setenv("HEADRACE_REPEATS", repeats, 1);
  HR_ASSERT_OK(hr__context_create(&w.context));
  hr_context *before = hr__context_enter(w.context);
  const char *device = getenv("HEADRACE_TEST_DEVICE");
  HR_ASSERT_OK(hr_device_open(device != NULL ? device : "cpu", &w.side.device));
  HR_ASSERT_OK(hr_stream_create(w.side.device, &w.side.stream));
  hr_stream_set_mode(w.side.stream, HR_MODE_FUSE);
  (void)hr__context_enter(before);
  unsetenv("HEADRACE_REPEATS");
  return w;
}

static void close_world(world *w) {
  hr_stream_release(w->side.stream);
  hr_device_release(w->side.device);
  hr__context_destroy(w->context);
}

/* Records the program, and gives up its dead buffers before it runs. Returns what the others contain. */
static void **run(world *w, const generated *g) {
  void **results = calloc((size_t)g->buffer_count + 1, sizeof *results);
  w->side.buffers = calloc((size_t)g->buffer_count + 1, sizeof *w->side.buffers);
  for (int b = 0; b < g->buffer_count; ++b) {
    int64_t dims[1], strides[1];
    HR_ASSERT_OK(hr_buffer_create(w->side.device, g->bytes[b], &w->side.buffers[b]));
    hr_view bytes = hr__side_bytes(&w->side, g, b, dims, strides);
    HR_ASSERT_OK(g->program.buffers[b].is_fresh ? HR_OK : hr_stream_write(w->side.stream, &bytes, g->memory[b]));
  }
  HR_ASSERT_OK(hr__side_record(&w->side, g));
  for (int b = 0; b < g->buffer_count; ++b) {
    if (g->program.buffers[b].is_dead) {
      hr_buffer_release(w->side.buffers[b]);
      w->side.buffers[b] = NULL;
    }
  }
  HR_ASSERT_OK(hr_stream_synchronize(w->side.stream));
  for (int b = 0; b < g->buffer_count; ++b) {
    int64_t dims[1], strides[1];
    if (w->side.buffers[b] != NULL) {
      hr_view bytes = hr__side_bytes(&w->side, g, b, dims, strides);
      results[b] = malloc(g->bytes[b]);
      HR_ASSERT_OK(hr_stream_read(w->side.stream, &bytes, results[b]));
    }
  }
  hr__side_drop(&w->side, g);
  return results;
}

static void compare(world *copied, world *compiled, const generated *g, uint64_t seed, int rows) {
  void **a = run(copied, g), **b = run(compiled, g);
  for (int i = 0; i < g->buffer_count; ++i) {
    if (a[i] != NULL && memcmp(a[i], b[i], g->bytes[i]) != 0) {
      HR_FAIL("seed %llu, %d rows: buffer %%%d differs", (unsigned long long)seed, rows, i);
    }
    free(a[i]);
    free(b[i]);
  }
  free(a);
  free(b);
}

static void check_rows(world *copied, world *compiled, uint64_t seed, int rows) {
  program_case *p = make_case(seed, rows);
  hr_text text = {0};
  generated g = {0};
  print_program(&p->m, &text);
  HR_ASSERT_OK(hr_program_parse(hr_text_chars(&text), &g.program));
  g.buffer_count = g.program.buffer_count;
  g.memory = make_memory(&p->m, seed);
  g.arguments = make_arguments(&p->m);
  g.bytes = calloc((size_t)g.buffer_count + 1, sizeof *g.bytes);
  for (int b = 0; b < g.buffer_count; ++b) {
    g.bytes[b] = g.program.buffers[b].bytes;
  }
  for (int times = 0; times < 2; ++times) {
    compare(copied, compiled, &g, seed, rows);
  }
  free_memory(&p->m, g.memory);
  free(g.arguments);
  free(g.bytes);
  hr_program_fini(&g.program);
  hr_text_fini(&text);
  hr_text_fini(&p->m.lines);
  free(p);
}

HR_TEST(copied_cells_give_the_same_bits) {
  static const int rows[] = {3, 6, 4, 5, 8, 7, 9};
  long count = hr__setting("HEADRACE_TEST_PROGRAMS", 40), seed = hr__setting("HEADRACE_TEST_SEED", 1);
  world copied = open_world("on"), compiled = open_world("off");
  for (long i = 0; i < count; ++i) {
    for (size_t k = 0; k < sizeof rows / sizeof *rows; ++k) {
      check_rows(&copied, &compiled, (uint64_t)(seed + i), rows[k]);
    }
  }
  close_world(&copied);
  close_world(&compiled);
}
