/* random_program_test.c: random programs, run in all modes that must give the same bits:
 *
 *   strict         node by node, every buffer live
 *   detached       node by node, reading from a copy of memory: an operation reads all its inputs before it writes
 *   loop by loop   as the expansion gives them, each also compared with the reference evaluator
 *   fused          the whole program, with
 *                  - units at once, one by one, and in ranges from the last to the first
 *                  - other kernels, as for a target that keeps no rows
 *                  - products as separate steps, and longer rows for them
 *
 * A failing index check stops a program: writes of older operations are kept, and buffers from before the program
 * contain nothing newer.
 *
 * HEADRACE_TEST_PROGRAMS sets the number of programs (default 300), HEADRACE_TEST_SEED the first seed. A failure prints
 * the seed and the program.
 */
#include "hr_test.h"

#include "core/ir/build.h"
#include "program_generator.h"
#include "program_oracle.h"
#include "program_runner.h"

typedef struct op_case {
  uint64_t seed;
  generated g;
  void **strict;
  int stopped_at; /* the node whose index check failed; node_count: none */
} op_case;

static void fail_with_program(const op_case *t, const char *what, hr_status status) {
  hr_text text = {0};
  hr_status printed = hr_program_print(&t->g.program, &text);
  fprintf(stderr, "seed %llu: %s: %s\n%s\n", (unsigned long long)t->seed, what, hr_status_message(status),
          printed == HR_OK ? hr_text_chars(&text) : "");
  hr_status_free(printed);
  hr_status_free(status);
  HR_FAIL("seed %llu: %s", (unsigned long long)t->seed, what);
}

static void check_status(const op_case *t, const char *what, hr_status status) {
  if (status != HR_OK) {
    fail_with_program(t, what, status);
  }
}

/* True if an index check failed, which is not a failure of the test. */
static bool is_stopped(const op_case *t, const char *what, hr_status status) {
  bool is_range = hr_status_code_of(status) == HR_STATUS_OUT_OF_RANGE;
  check_status(t, what, is_range ? HR_OK : status);
  if (is_range) {
    hr_status_free(status);
  }
  return is_range;
}

/* ---- comparing ---- */

/* NaNs are one value: their sign and payload are free. */
static bool is_nan(hr_dtype dtype, const char *at) {
  uint16_t half;
  float single;
  double twice;
  switch (dtype) {
    case HR_DTYPE_F32:
      memcpy(&single, at, sizeof single);
      return isnan(single);
    case HR_DTYPE_F64:
      memcpy(&twice, at, sizeof twice);
      return isnan(twice);
    case HR_DTYPE_F16:
    case HR_DTYPE_BF16:
      memcpy(&half, at, sizeof half);
      return isnan(dtype == HR_DTYPE_F16 ? hr_f16_to_f32(half) : hr_bf16_to_f32(half));
    default:
      return false;
  }
}

static void compare_buffer(const op_case *t, const char *what, int b, const char *a, const char *e) {
  hr_dtype whole = t->g.dtypes[b], dtype = whole == HR_DTYPE_C64    ? HR_DTYPE_F32
                                           : whole == HR_DTYPE_C128 ? HR_DTYPE_F64
                                                                    : whole; /* part by part */
  size_t size = hr_dtype_size(dtype), bytes = t->g.bytes[b];
  if (memcmp(a, e, bytes) == 0) {
    return;
  }
  for (size_t at = 0; at + size <= bytes; at += size) {
    if (memcmp(a + at, e + at, size) != 0 && !(is_nan(dtype, a + at) && is_nan(dtype, e + at))) {
      uint64_t actual = 0, expected = 0;
      memcpy(&actual, a + at, size), memcpy(&expected, e + at, size);
      fprintf(stderr, "buffer %%%d, element %zu: 0x%llx, expected 0x%llx of %s\n", b, at / size,
              (unsigned long long)actual, (unsigned long long)expected, hr_dtype_name(dtype));
      fail_with_program(t, what, HR_OK);
    }
  }
}

/* True if a node from number `first` on writes to the buffer. */
static bool is_written_later(const hr_program *program, int b, int first) {
  for (int n = first; n < program->node_count; ++n) {
    for (int i = 0; i < program->nodes[n].output_count; ++i) {
      const hr_operand *out = &program->nodes[n].outputs[i];
      if (out->kind == HR_OPERAND_VALUE && out->index == (uint32_t)b) {
        return true;
      }
    }
  }
  return false;
}

static void compare(const op_case *t, const char *what, void **memory, bool with_dead) {
  const hr_program *program = &t->g.program;
  for (int b = 0; b < t->g.buffer_count; ++b) {
    const hr_program_buffer *buffer = &program->buffers[b];
    bool is_lost = buffer->is_fresh && !with_dead && is_written_later(program, b, t->stopped_at);
    if ((with_dead || !buffer->is_dead) && !is_lost) {
      compare_buffer(t, what, b, memory[b], t->strict[b]);
    }
  }
}

/* ---- modes ---- */

/* Runs node n reading from a copy of memory, and compares it with how it ran in place. */
static void check_detached(const op_case *t, int n, void **before, bool should_stop) {
  const hr_program *program = &t->g.program;
  int count = program->buffer_count;
  hr_program detached;
  check_status(t, "detached node", hr__detached_node(program, n, &detached));
  void **memory = hr__memory_copy(program, before), **all = calloc(2 * (size_t)count, sizeof *all);
  memcpy(all, memory, (size_t)count * sizeof *all);
  memcpy(all + count, before, (size_t)count * sizeof *all);
  bool stops = is_stopped(t, "detached run", hr__run_interpreted(&detached, all, t->g.arguments, (hr__run_options){0}));
  free(all);
  if (stops != should_stop) {
    fail_with_program(t, "detached, the node gives another status", HR_OK);
  }
  if (!stops) {
    compare(t, "a node reads what it has written", memory, true);
  }
  hr__memory_free(program, memory);
  hr_program_fini(&detached);
}

static bool overlaps_itself(const hr_node *node) {
  for (int i = 0; i < node->input_count; ++i) {
    for (int j = 0; j < node->output_count; ++j) {
      if (node->inputs[i].kind == HR_OPERAND_VALUE && node->outputs[j].kind == HR_OPERAND_VALUE &&
          node->inputs[i].index == node->outputs[j].index) {
        return true;
      }
    }
  }
  return false;
}

static void run_strict(op_case *t) {
  const hr_program *program = &t->g.program;
  t->strict = hr__memory_copy(program, t->g.memory);
  t->stopped_at = program->node_count;
  for (int n = 0; n < t->stopped_at; ++n) {
    hr_program single;
    bool is_watched = overlaps_itself(&program->nodes[n]);
    void **before = is_watched ? hr__memory_copy(program, t->strict) : NULL;
    check_status(t, "single node", hr__single_node(program, n, &single));
    if (is_stopped(t, "strict run", hr__run_interpreted(&single, t->strict, t->g.arguments, (hr__run_options){0}))) {
      t->stopped_at = n;
    }
    hr_program_fini(&single);
    if (is_watched) {
      check_detached(t, n, before, t->stopped_at == n);
      hr__memory_free(program, before);
    }
  }
}

static void check_loops(const op_case *t) {
  hr_program expanded;
  check_status(t, "expansion", hr_expand(&t->g.program, NULL, NULL, &expanded));
  void **given = calloc((size_t)expanded.buffer_count + 1, sizeof *given);
  for (int b = 0; b < expanded.buffer_count; ++b) {
    size_t bytes = expanded.buffers[b].bytes;
    given[b] = hr__exact_alloc(bytes);
    memset(given[b], 0x7f, bytes);
    if (b < t->g.buffer_count) {
      memcpy(given[b], t->g.memory[b], bytes);
    }
  }
  bool stops = false;
  for (int n = 0; n < expanded.node_count && !stops; ++n) {
    hr_program single;
    check_status(t, "single loop", hr__single_node(&expanded, n, &single));
    hr_status status = hr__run_checked(&single, given, t->g.arguments);
    status = hr_status_annotate(status, "loop %d of node %u", n, expanded.nodes[n].origin);
    stops = is_stopped(t, "the reference differs", status);
    hr_program_fini(&single);
    if (stops && (int)expanded.nodes[n].origin != t->stopped_at) {
      fail_with_program(
          t, "another check fails loop by loop",
          hr_status_make(HR_STATUS_INTERNAL, "of node %u, strict of node %d", expanded.nodes[n].origin, t->stopped_at));
    }
  }
  compare(t, "loop by loop differs from strict", given, true);
  hr__memory_free(&expanded, given);
  hr_program_fini(&expanded);
}

static void check_fused(const op_case *t, const char *what, hr__run_options algorithm) {
  const hr_program *program = &t->g.program;
  void **memory = hr__memory_copy(program, t->g.memory);
  hr_status status = hr__run_interpreted(program, memory, t->g.arguments, algorithm);
  if (is_stopped(t, "fused run", status) != (t->stopped_at < program->node_count)) {
    fail_with_program(t, "fused, another status than strict", HR_OK);
  }
  compare(t, what, memory, false);
  hr__memory_free(program, memory);
}

static int64_t grown; /* buffers with longer rows, of all programs */

static void check_seed(uint64_t seed) {
  op_case t = {.seed = seed};
  HR_ASSERT_OK(hr__generate_program(seed, 4 + (int)(seed % 13), &t.g));
  run_strict(&t);
  check_loops(&t);
  check_fused(&t, "fused differs from strict", (hr__run_options){.cut = 0});
  check_fused(&t, "one unit at a time gives other bits", (hr__run_options){.cut = 1});
  check_fused(&t, "units in another order give other bits", (hr__run_options){.cut = 3, .is_reversed = true});
  check_fused(&t, "rows that don't stay resident give other bits", (hr__run_options){.resident_row_bytes = 64});
  check_fused(&t, "values computed again give other bits", (hr__run_options){.recompute_bytes = 1});
  check_fused(&t, "large values computed again give other bits", (hr__run_options){.recompute_bytes = 64 << seed % 10});
  check_fused(&t, "values computed again beside long rows give other bits",
              (hr__run_options){.resident_row_bytes = 64, .recompute_bytes = 1});
  check_fused(&t, "longer rows give other bits", (hr__run_options){.row_alignment = 4, .grown = &grown});
  hr__memory_free(&t.g.program, t.strict);
  hr__generated_fini(&t.g);
}

HR_TEST(programs_give_the_same_bits_in_every_mode) {
  long count = hr__setting("HEADRACE_TEST_PROGRAMS", hr_test_count(300)), first = hr__setting("HEADRACE_TEST_SEED", 1);
  for (long k = 0; k < count; ++k) {
    check_seed((uint64_t)(first + k));
  }
  HR_ASSERT(count < 300 || grown > 0);
}
