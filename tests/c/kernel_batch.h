/* kernel_batch.h: programs run by the interpreter, and with kernels as texts, give the same bits.
 *
 * The kernels of a batch of programs are emitted into one text, each once, which is compiled once. A test supplies the
 * compilation (batch_texts); a kernel without a text is interpreted.
 */
#ifndef HEADRACE_TESTS_KERNEL_BATCH_H_
#define HEADRACE_TESTS_KERNEL_BATCH_H_

#include "base/vector.h"
#include "compiler/emit_device.h"
#include "core/ir/kernel.h"
#include "engine/compiled_kernel.h"
#include "engine/host_compiler.h"
#include "hr_test.h"
#include "program_generator.h"
#include "program_runner.h"

typedef struct entry {
  hr_kernel_key key;
  char name[48];
  hr_emission emission; /* or the one of devices */
  hr_device_emission device_emission;
  int arg_count, scalar_count;
  hr_host_kernel *host;
} entry;

typedef struct batch batch;

typedef struct batch_algorithm {
  const char *name; /* NULL ends a list */
  hr__run_options options;
} batch_algorithm;

/* The texts that a kernel is compiled from. */
typedef struct batch_texts {
  hr_status (*write_prelude)(hr_text *text);
  bool (*emit)(batch *b, const hr_kernel *kernel, entry *e); /* to the batch's text; false: the kernel has none */
  void (*open)(batch *b, const char *path);                  /* the library; each entry's host kernel is made */
  void (*close)(batch *b);
  const char *const *flags;          /* (optional) additional ones for the compiler, ended by NULL */
  const batch_algorithm *algorithms; /* to run the kernels as the compiler makes them */
  /* (optional) Of a host kernel that is about to run. */
  void (*check_host)(const hr_kernel *kernel, const hr_host_kernel *host);
} batch_texts;

struct batch {
  const batch_texts *texts;
  HR_VECTOR(entry) entries;
  hr_text text;
  long kernels, emitted, launches, launches_compiled;
  bool shows;
  /* kernels of devices with these features: threads with four neighbours of a row each, warps in turns, rows prefetched
   * into a cache, tiles, threads with several groups of four */
  long quads, turns, prefetches, tiles, fours, words;
  long strips;     /* of hosts: that have tiles of a vector */
  long stages;     /* of hosts: loops over the elements of blocks */
  int block_bytes; /* of a device's block */
};

static entry *batch_find(batch *b, const hr_kernel *kernel) {
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

static void batch_add_kernel(batch *b, const hr_kernel *kernel) {
  ++b->kernels;
  if (batch_find(b, kernel) != NULL) {
    ++b->emitted;
    return;
  }
  entry e = {.arg_count = kernel->arg_count, .scalar_count = kernel->scalar_count};
  snprintf(e.name, sizeof e.name, "k%zu", b->entries.count);
  if (b->texts->emit(b, kernel, &e)) {
    HR_ASSERT(hr_kernel_make_key(kernel, &e.key));
    HR_ASSERT(hr_vector_push(&b->entries, e));
    ++b->emitted;
  }
}

static void batch_add_program(batch *b, const hr_program *program, hr_target target) {
  hr_schedule schedule;
  HR_ASSERT_OK(hr_compile(program, &target, &schedule));
  for (int s = 0; s < schedule.step_count; ++s) {
    if (schedule.steps[s].kind == HR_STEP_KERNEL) {
      batch_add_kernel(b, schedule.steps[s].kernel);
    }
  }
  hr_schedule_fini(&schedule);
}

static const hr_host_kernel *batch_host(void *ctx, const hr_kernel *kernel) {
  batch *b = ctx;
  entry *found = batch_find(b, kernel);
  ++b->launches;
  if (found == NULL) {
    return NULL;
  }
  ++b->launches_compiled;
  if (b->texts->check_host != NULL) {
    b->texts->check_host(kernel, found->host);
  }
  return found->host;
}

static void batch_compile(batch *b) {
  hr_text path = {0};
  HR_ASSERT_OK(hr_text_status(&b->text));
  HR_ASSERT_OK(hr__host_compile(NULL, b->text.data, b->text.length, b->texts->flags, &path));
  b->texts->open(b, hr_text_chars(&path));
  hr__host_compiler_remove(hr_text_chars(&path));
  hr_text_fini(&path);
}

static void batch_run(batch *b, const generated *g, uint64_t seed, const batch_algorithm *at) {
  hr__run_options options = at->options;
  options.host = batch_host, options.host_ctx = b;
  HR_ASSERT(hr__runs_alike(g, seed, at->name, options));
}

/* Runs `count` programs with the interpreter and with other kernels; then frees them. */
static void batch_check(batch *b, uint64_t first, int count, generated *programs) {
  static const batch_algorithm other = {"compiled, other kernels", {.resident_row_bytes = 64, .recompute_bytes = 1}};
  HR_ASSERT_OK(b->texts->write_prelude(&b->text));
  for (int i = 0; i < count; ++i) {
    batch_add_program(b, &programs[i].program, (hr_target){0});
    batch_add_program(b, &programs[i].program,
                      (hr_target){.resident_row_bytes = other.options.resident_row_bytes,
                                  .recompute_bytes = other.options.recompute_bytes});
  }
  batch_compile(b);
  for (int i = 0; i < count; ++i) {
    for (const batch_algorithm *at = b->texts->algorithms; at->name != NULL; ++at) {
      batch_run(b, &programs[i], first + (uint64_t)i, at);
    }
    batch_run(b, &programs[i], first + (uint64_t)i, &other);
    hr__generated_fini(&programs[i]);
  }
  for (size_t i = 0; i < b->entries.count; ++i) {
    b->entries.data[i].host->destroy(b->entries.data[i].host);
    hr_vector_fini(&b->entries.data[i].key);
  }
  b->texts->close(b);
  hr_vector_clear(&b->entries);
  hr_text_clear(&b->text);
}

static void batch_fini(batch *b) {
  hr_vector_fini(&b->entries);
  hr_text_fini(&b->text);
}

/* Random programs, 25 at a time: HEADRACE_TEST_PROGRAMS, or 100, from HEADRACE_TEST_SEED on, or 1. */
static void batch_check_random(batch *b) {
  enum { BATCH = 25 };
  long count = hr__setting("HEADRACE_TEST_PROGRAMS", hr_test_count(100)), first = hr__setting("HEADRACE_TEST_SEED", 1);
  for (long done = 0; done < count; done += BATCH) {
    int some = (int)(count - done < BATCH ? count - done : BATCH);
    generated programs[BATCH];
    for (int i = 0; i < some; ++i) {
      uint64_t seed = (uint64_t)(first + done + i);
      HR_ASSERT_OK(hr__generate_program(seed, 4 + (int)(seed % 13), &programs[i]));
    }
    batch_check(b, (uint64_t)(first + done), some, programs);
  }
}

/* Memory for the buffers of a parsed program, filled with zeros; `dtypes`: of their contents. */
static void allocate_buffers(generated *g, const hr_dtype *dtypes) {
  g->buffer_count = g->program.buffer_count;
  g->bytes = calloc((size_t)g->buffer_count, sizeof *g->bytes);
  g->memory = calloc((size_t)g->buffer_count, sizeof *g->memory);
  g->dtypes = calloc((size_t)g->buffer_count, sizeof *g->dtypes);
  g->arguments = calloc(1, sizeof *g->arguments);
  for (int b = 0; b < g->buffer_count; ++b) {
    g->bytes[b] = g->program.buffers[b].bytes;
    g->memory[b] = calloc(g->bytes[b] + 1, 1);
    g->dtypes[b] = dtypes[b];
  }
}

#endif
