#undef _FORTIFY_SOURCE /* if on by default: it rejects longjmp to another stack */
#include "device_emulator.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#include "base/allocator.h"

/* The compiler's built-in longjmp switches faster than the C library's, and the address sanitizer's own one looks
 * through the whole stack at each switch, which takes minutes. A function has one of the built-in two, and
 * its callers keep nothing in registers. */
#if defined(__SANITIZE_ADDRESS__) || defined(__x86_64__)
#if defined(__clang__)
#define SWITCHES __attribute__((noinline, no_sanitize("address")))
#else
#define SWITCHES __attribute__((noipa, no_sanitize("address")))
#endif
typedef void *stack_place[5];
#define NOTE_PLACE(place) __builtin_setjmp(place)
SWITCHES static _Noreturn void go_to(void **place) {
  __builtin_longjmp(place, 1);
}
#else
#define SWITCHES
typedef jmp_buf stack_place;
#define NOTE_PLACE(place) _setjmp(place)
#define go_to(place) _longjmp(place, 1)
#endif

const char *const hr__emulated_flags[] = {"-O1", NULL};

enum { THREADS_MAX = 1024, STACK_BYTES = 64 << 10, WARP = 32, WORDS_MAX = 512 };

/* A thread of a block: its own stack, entered by setcontext once and by longjmp from then on, which makes no system
 * call. */
typedef struct fiber {
  ucontext_t entry;
  stack_place place;
  char *stack;
  bool has_begun, is_done, waits_for_all;
  int64_t barriers; /* number of the block's barriers that it has reached */
} fiber;

/* One block at a time. */
static struct {
  fiber fibers[THREADS_MAX];
  stack_place scheduler;
  int count, current;
  void (*function)(const void *call);
  const void *call;
} block;

SWITCHES static void wait_in(int all) {
  fiber *mine = &block.fibers[block.current];
  mine->barriers += all;
  mine->waits_for_all = all != 0;
  if (NOTE_PLACE(mine->place) == 0) {
    go_to(block.scheduler);
  }
}

SWITCHES static void run_fiber(void) {
  block.function(block.call);
  block.fibers[block.current].is_done = true;
  go_to(block.scheduler);
}

/* Runs a fiber until it waits or ends. */
SWITCHES static void resume(fiber *f) {
  if (NOTE_PLACE(block.scheduler) != 0) {
    return;
  }
  if (f->has_begun) {
    go_to(f->place);
  }
  f->has_begun = true;
  setcontext(&f->entry);
}

static void begin_block(void) {
  for (int i = 0; i < block.count; ++i) {
    fiber *f = &block.fibers[i];
    f->stack = f->stack != NULL ? f->stack : hr_malloc(STACK_BYTES);
    f->has_begun = f->is_done = f->waits_for_all = false, f->barriers = 0;
    getcontext(&f->entry);
    f->entry.uc_stack.ss_sp = f->stack;
    f->entry.uc_stack.ss_size = STACK_BYTES;
    f->entry.uc_link = NULL;
    makecontext(&f->entry, run_fiber, 0);
  }
}

/* The barrier that all unfinished threads of the block have reached; INT64_MAX: all have finished. */
static int64_t last_barrier_of_all(void) {
  int64_t last = INT64_MAX;
  for (int i = 0; i < block.count; ++i) {
    const fiber *f = &block.fibers[i];
    last = !f->is_done && f->barriers < last ? f->barriers : last;
  }
  return last;
}

static void run_block(const hr__emulated *kernel, int pass, int64_t number, const void *call) {
  block.count = kernel->emission.threads[pass];
  block.function = kernel->functions[pass];
  block.call = call;
  begin_block();
  for (int64_t last = 0; last != INT64_MAX; last = last_barrier_of_all()) {
    for (int i = 0; i < block.count; ++i) {
      fiber *f = &block.fibers[i];
      if (!f->is_done && (!f->waits_for_all || f->barriers <= last)) {
        block.current = i;
        *kernel->block = number, *kernel->thread = i;
        resume(f);
      }
    }
  }
}

static void run(const hr_host_kernel *base, int pass, const hr_host_call *call, int64_t begin, int64_t end) {
  const hr__emulated *kernel = (const hr__emulated *)base;
  uint64_t words[WORDS_MAX];
  size_t at = 1;
  memcpy(words, &call->workspace, sizeof call->workspace);
  for (int i = 0; i < kernel->arg_count; ++i) {
    memcpy(&words[at++], &call->args[i], sizeof call->args[i]);
  }
  if (kernel->scalar_count > 0) {
    memcpy(&words[at], call->scalars, (size_t)kernel->scalar_count * sizeof *call->scalars);
    at += (size_t)kernel->scalar_count * sizeof *call->scalars / sizeof *words;
  }
  memcpy(&words[at], kernel->words, (size_t)kernel->word_count * sizeof *words);
  *kernel->wait = wait_in;
  for (int64_t b = 0; begin < end && b < kernel->emission.blocks[pass]; ++b) {
    run_block(kernel, pass, b, words);
  }
}

static void destroy(hr_host_kernel *kernel) {
  hr_free(kernel);
}

hr_status hr__emulated_create(const hr_dynlib *library, const char *name, const hr_device_emission *emission,
                              int arg_count, int scalar_count, hr_host_kernel **out_kernel) {
  if (1 + arg_count + scalar_count * 3 + HR_DEVICE_WORDS_MAX > WORDS_MAX) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "%d arguments", arg_count);
  }
  hr__emulated *kernel = hr_calloc(1, sizeof *kernel);
  if (kernel == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for %s", name);
  }
  kernel->base = (hr_host_kernel){.name = name,
                                  .pass_count = emission->pass_count,
                                  .passes = kernel->passes,
                                  .workspace_bytes = emission->workspace_bytes,
                                  .run = run,
                                  .destroy = destroy};
  kernel->emission = *emission;
  kernel->arg_count = arg_count, kernel->scalar_count = scalar_count;
  kernel->word_count = emission->word_count;
  memcpy(kernel->words, emission->words, sizeof emission->words);
  void *address = NULL;
  hr_status status = HR_OK;
  for (int pass = 0; status == HR_OK && pass < emission->pass_count; ++pass) {
    char function[96];
    snprintf(function, sizeof function, "%s_%d", name, pass);
    kernel->passes[pass] = (hr_host_pass){1, 1};
    status = hr_dynlib_symbol(library, function, &address);
    memcpy(&kernel->functions[pass], &address, sizeof address);
  }
  if (status == HR_OK) {
    status = hr_dynlib_symbol(library, "hr_block", (void **)&kernel->block);
  }
  if (status == HR_OK) {
    status = hr_dynlib_symbol(library, "hr_thread", (void **)&kernel->thread);
  }
  if (status == HR_OK) {
    status = hr_dynlib_symbol(library, "hr_wait", (void **)&kernel->wait);
  }
  *out_kernel = &kernel->base;
  if (status != HR_OK) {
    destroy(&kernel->base);
  }
  return status;
}

hr_status hr__emulated_create_written(const hr_dynlib *library, const hr_device_source *source, int arg_count,
                                      int scalar_count, hr_host_kernel **out_kernel) {
  hr_device_emission emission = {.pass_count = source->pass_count, .workspace_bytes = source->workspace_bytes};
  memcpy(emission.blocks, source->blocks, sizeof emission.blocks);
  memcpy(emission.threads, source->threads, sizeof emission.threads);
  HR_RETURN_IF_ERROR(hr__emulated_create(library, source->name, &emission, arg_count, scalar_count, out_kernel));
  hr__emulated *kernel = (hr__emulated *)*out_kernel;
  kernel->word_count = source->word_count;
  memcpy(kernel->words, source->words, sizeof kernel->words);
  return HR_OK;
}
