#include "engine/compile_queue.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/allocator.h"
#include "base/context.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/thread.h"
#include "compiler/emit.h"
#include "engine/compiled_kernel.h"
#include "engine/disk_cache.h"
#include "engine/host_compiler.h"
#include "engine/record_note.h"

enum { BATCH_MAX = 24, FAILURES_MAX = 3, LOWER_PRIORITY = 10, GATHER_NS = 3000000 };

/* The thread's own state: the compiler, and the cache of its results. */
typedef struct compiler_state {
  bool is_open, is_tried, is_gcc;
  hr_disk_cache disk;
  hr_host_compiler compiler;
  int rank;         /* of the compiler among the available ones */
  bool has_worked;  /* it has made a library */
  bool is_unusable; /* it makes nothing: the next one is tried */
  hr_status why;    /* the failure of the first unusable compiler */
} compiler_state;

/* A context's. */
typedef struct compile_queue {
  hr_mutex mutex;
  hr_cond wake, done;
  bool is_busy, stop, is_closed;
  bool is_at_work; /* the thread has taken kernels, and is not waiting for the compiler */
  hr_thread thread;
  HR_VECTOR(hr_cached_kernel *) pending, loads;
  hr_cached_kernel *batch[BATCH_MAX]; /* those of the pending ones that the thread is processing */
  int taken;                          /* their number */
  int failures;
  hr_jit_counts counts;
  compiler_state cache;
} compile_queue;

static void init_queue(void *part);
static void stop_queue(void *part);
static void fini_queue(void *part);
static void begin_fork(void *part);
static void end_fork(void *part, bool is_child);

/* The current context's queue; the thread runs in that of its own queue. */
static compile_queue *own(void) {
  static const hr_context_part kind = {.bytes = sizeof(compile_queue),
                                       .init = init_queue,
                                       .stop = stop_queue,
                                       .fini = fini_queue,
                                       .begin_fork = begin_fork,
                                       .end_fork = end_fork};
  return hr__context_part(hr__context(), HR_CONTEXT_COMPILE_QUEUE, &kind);
}

/* A kernel of a batch. */
typedef struct job {
  hr_cached_kernel *cached;
  char name[48];    /* in a library, of its text alone */
  char symbol[104]; /* the same function's name for people */
  hr_text text;     /* the kernel's own, which names it KERNEL */
  hr_emission emission;
  bool is_done, is_twin; /* a twin has the text of an earlier job */
} job;

#define KERNEL "hr_kernel"

static void count(int64_t *counter, int64_t by) {
  compile_queue *queue = own();
  hr_mutex_lock(&queue->mutex);
  *counter += by;
  hr_mutex_unlock(&queue->mutex);
}

/* While the thread is at work, a fork waits for it: it may hold locks of the kernels' cache or of the linker. */
static void set_at_work(bool is_at_work) {
  compile_queue *queue = own();
  hr_mutex_lock(&queue->mutex);
  queue->is_at_work = is_at_work;
  hr_cond_broadcast(&queue->done);
  hr_mutex_unlock(&queue->mutex);
}

/* ---- emitting ---- */

/* Debuggers and profilers show the operations of the first kernel that had the text. */
static void name_for_people(job *j, uint64_t hash) {
  size_t length = (size_t)snprintf(j->symbol, sizeof j->symbol - 10, "hr_%s", hr__kernel_host(j->cached)->name);
  length = length < sizeof j->symbol - 10 ? length : sizeof j->symbol - 11;
  for (size_t i = 0; i < length; ++i) {
    j->symbol[i] = isalnum((unsigned char)j->symbol[i]) ? j->symbol[i] : '_';
  }
  snprintf(j->symbol + length, sizeof j->symbol - length, "_%08x", (unsigned)(hash & 0xffffffff));
}

/* Emits the text of a kernel alone: it is the key in the disk cache, and names the kernel's functions. */
static hr_status emit(job *j) {
  compiler_state *cache = &own()->cache;
  hr_arena arena = {0};
  const hr_kernel *kernel = hr__kernel_form(j->cached, &arena);
  hr_emit_target target = {.is_gcc = cache->is_gcc};
  hr_status status = kernel != NULL ? hr_emit_kernel(kernel, &target, KERNEL, &j->text, &j->emission)
                                    : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory to emit a kernel");
  if (status == HR_OK && j->emission.workspace_bytes > hr__kernel_host(j->cached)->workspace_bytes) {
    status = hr_status_make(HR_STATUS_UNIMPLEMENTED, "kernel %s: code needs %zu bytes of workspace, %zu are reserved",
                            hr__kernel_host(j->cached)->name, j->emission.workspace_bytes,
                            hr__kernel_host(j->cached)->workspace_bytes);
  }
  uint64_t a = hr_hash_bytes(HR_HASH_SEED, j->text.data, j->text.length);
  uint64_t b = hr_hash_bytes(a ^ HR_HASH_MULTIPLIER, j->text.data, j->text.length);
  snprintf(j->name, sizeof j->name, "hr_%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
  name_for_people(j, a);
  hr_arena_fini(&arena);
  return status;
}

static void give_up(job *j, hr_status status) {
  compile_queue *queue = own();
  hr_log(HR_LOG_SCHEDULE, "kernel %s stays interpreted: %s", hr__kernel_host(j->cached)->name,
         hr_status_message(status));
  hr_status_free(status);
  j->is_done = true;
  count(&queue->counts.unable, 1);
}

/* ---- loading ---- */

static hr_status publish(job *j, hr_library *library) {
  const hr_host_kernel *interpreted = hr__kernel_host(j->cached);
  hr_host_kernel *compiled;
  HR_RETURN_IF_ERROR(
      hr__compiled_kernel_create(library, j->name, &j->emission, interpreted->name, interpreted->bytes, &compiled));
  hr__kernel_publish(j->cached, compiled);
  j->is_done = true;
  return HR_OK;
}

/* True if the disk cache has the kernel, which is then published. */
static bool load(job *j) {
  compiler_state *cache = &own()->cache;
  int file = -1;
  hr_library *library = NULL;
  bool found = cache->is_open && hr__disk_cache_find(&cache->disk, j->text.data, j->text.length, &file);
  if (found) {
    hr_status status = hr__library_open_file(file, &library);
    status = status != HR_OK ? status : publish(j, library);
    found = status == HR_OK;
    hr_status_ignore(status);
    hr__library_release(library);
    close(file);
  }
  return found;
}

/* Copies a new library and its kernels to the disk cache; failures are ignored. */
static void keep(job *jobs, int job_count, const hr_text *text, int file) {
  compiler_state *cache = &own()->cache;
  hr_text kept = {0};
  hr_status status = hr__disk_cache_add_library(&cache->disk, text->data, text->length, file, &kept);
  for (int i = 0; i < job_count && status == HR_OK; ++i) {
    if (!jobs[i].is_done && !jobs[i].is_twin) {
      status = hr__disk_cache_add_kernel(&cache->disk, jobs[i].text.data, jobs[i].text.length, hr_text_chars(&kept));
    }
  }
  hr_status_ignore(status);
  hr_text_fini(&kept);
  hr__disk_cache_trim(&cache->disk);
}

/* ---- compiling ---- */

static bool same_text(const hr_text *a, const hr_text *b) {
  return a->length == b->length && memcmp(a->data, b->data, a->length) == 0;
}

/* Finds the jobs that have the text of an earlier one; returns the number of different texts. */
static int find_twins(job *jobs, int job_count) {
  int texts = 0;
  for (int i = 0; i < job_count; ++i) {
    jobs[i].is_twin = false;
    for (int k = 0; k < i && !jobs[i].is_done; ++k) {
      jobs[i].is_twin |= !jobs[k].is_done && same_text(&jobs[k].text, &jobs[i].text);
    }
    texts += !jobs[i].is_done && !jobs[i].is_twin;
  }
  return texts;
}

/* A function has two names. The weak one is found by the text; profilers prefer the other. */
static hr_status make_text(const job *jobs, int job_count, hr_text *out_text) {
  HR_RETURN_IF_ERROR(hr_emit_prelude(out_text));
  for (int i = 0; i < job_count; ++i) {
    if (jobs[i].is_done || jobs[i].is_twin) {
      continue;
    }
    for (int pass = 0; pass < jobs[i].emission.pass_count; ++pass) {
      hr_text_printf(out_text, "#define " KERNEL "_%d %s_%d\n", pass, jobs[i].symbol, pass);
    }
    hr_text_append_bytes(out_text, jobs[i].text.data, jobs[i].text.length);
    for (int pass = 0; pass < jobs[i].emission.pass_count; ++pass) {
      hr_text_printf(out_text,
                     "#undef " KERNEL "_%d\nextern __typeof__(%s_%d) %s_%d "
                     "__attribute__((weak, alias(\"%s_%d\"), visibility(\"default\")));\n",
                     pass, jobs[i].symbol, pass, jobs[i].name, pass, jobs[i].symbol, pass);
    }
  }
  return hr_text_status(out_text);
}

/* Takes the stored file's library in place of one whose file will be removed: profilers read names from the file. */
static void exchange_for_kept(const job *jobs, int job_count, hr_library **library) {
  const compiler_state *cache = &own()->cache;
  hr_library *kept = NULL;
  int file = -1, first = 0;
  while (first < job_count && (jobs[first].is_done || jobs[first].is_twin)) {
    ++first;
  }
  if (first < job_count && hr__disk_cache_find(&cache->disk, jobs[first].text.data, jobs[first].text.length, &file)) {
    hr_status_ignore(hr__library_open_file(file, &kept));
    close(file);
  }
  if (kept != NULL) {
    hr__library_release(*library);
    *library = kept;
  }
}

/* Loads the library that was compiled for jobs, stores it and publishes their kernels. */
static hr_status adopt(job *jobs, int job_count, const hr_text *text, const char *path, int *out_made) {
  compiler_state *cache = &own()->cache;
  hr_library *library = NULL;
  int file = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) {
    return hr_status_make(HR_STATUS_NOT_FOUND, "\"%s\": %s", path, strerror(errno));
  }
  hr_status status = hr__library_open_file(file, &library);
  if (status == HR_OK && cache->is_open) {
    keep(jobs, job_count, text, file);
    exchange_for_kept(jobs, job_count, &library);
  }
  close(file);
  for (int i = 0; i < job_count && status == HR_OK; ++i) {
    if (!jobs[i].is_done) {
      status = publish(&jobs[i], library);
      *out_made += status == HR_OK;
    }
  }
  hr__library_release(library); /* its kernels hold it */
  return status;
}

/* With the names of the kernels. */
static void record_compile(const job *jobs, int job_count, int64_t begin, int64_t end) {
  hr_text names = {0};
  int kernels = 0;
  for (int i = 0; hr__records_are_on() && i < job_count; ++i) {
    if (!jobs[i].is_done) {
      hr_text_printf(&names, "%s%s", kernels++ > 0 ? ", " : "", hr__kernel_host(jobs[i].cached)->name);
    }
  }
  if (kernels > 0) {
    hr__records_add(NULL, &(const hr_note){.kind = HR_PROFILE_KERNEL_COMPILE,
                                           .begin = begin,
                                           .end = end,
                                           .count = kernels,
                                           .text = hr_text_chars(&names)});
  }
  hr_text_fini(&names);
}

static hr_status compile(job *jobs, int job_count) {
  compile_queue *queue = own();
  compiler_state *cache = &queue->cache;
  hr_text text = {0}, path = {0};
  int made = 0, texts = find_twins(jobs, job_count);
  hr_status status = make_text(jobs, job_count, &text);
  int64_t begin = hr_clock_ns();
  if (status == HR_OK && hr_log_is_on(HR_LOG_SOURCE)) {
    hr_log(HR_LOG_SOURCE, "%s", hr_text_chars(&text));
  }
  if (status == HR_OK) {
    set_at_work(false);
    status = hr__host_compile(&cache->compiler, text.data, text.length, NULL, &path);
    set_at_work(true);
  }
  int64_t ns = hr_clock_ns() - begin;
  record_compile(jobs, job_count, begin, begin + ns);
  if (status == HR_OK) {
    status = adopt(jobs, job_count, &text, hr_text_chars(&path), &made);
    cache->has_worked |= status == HR_OK;
    hr__host_compiler_remove(hr_text_chars(&path));
  }
  hr_log(HR_LOG_SCHEDULE, "compiled %d texts for %d kernels in %.1f ms%s%s", texts, made, (double)ns * 1e-6,
         status != HR_OK ? ": " : "", status != HR_OK ? hr_status_message(status) : "");
  count(&queue->counts.compiled, made);
  count(&queue->counts.compile_ns, ns);
  hr_text_fini(&text);
  hr_text_fini(&path);
  return status;
}

static void close_queue(const char *reason) {
  compile_queue *queue = own();
  hr_mutex_lock(&queue->mutex);
  queue->is_closed = true;
  hr_mutex_unlock(&queue->mutex);
  hr_log_once("kernels stay interpreted, which takes several times as long: %s; HEADRACE_JIT=off silences this",
              reason);
}

/* Keeps the compiler's failure, if it is the first unusable one; consumes it. */
static void blame(hr_status status) {
  compiler_state *cache = &own()->cache;
  if (cache->why == NULL) {
    cache->why = hr_status_annotate(status,
                                    "\"%s\" does not work (HEADRACE_CC names another compiler, `pip install "
                                    "headrace[compiler]` brings one)",
                                    cache->compiler.path);
  } else {
    hr_status_ignore(status);
  }
}

/* Gives up a compiler that hangs or fails repeatedly; after one that makes nothing at all, the next one is tried. */
static void note_failure(hr_status status) {
  compile_queue *queue = own();
  compiler_state *cache = &queue->cache;
  hr_status_code code = hr_status_code_of(status);
  if (code == HR_STATUS_CANCELLED || cache->is_unusable) {
    return;
  }
  if (code == HR_STATUS_INTERNAL && !cache->has_worked) {
    hr_status tuning = hr__host_compiler_try(&cache->compiler);
    cache->is_unusable = tuning != HR_OK && hr_status_code_of(tuning) != HR_STATUS_CANCELLED;
    if (cache->is_unusable) {
      blame(tuning);
      return;
    }
    hr_status_ignore(tuning);
    cache->has_worked = true;
  }
  hr_mutex_lock(&queue->mutex);
  queue->failures += code == HR_STATUS_INTERNAL ? 1 : FAILURES_MAX;
  bool closes = !queue->is_closed && queue->failures >= FAILURES_MAX;
  hr_mutex_unlock(&queue->mutex);
  if (closes) {
    close_queue(hr_status_message(status));
  }
}

static bool is_closed(void) {
  compile_queue *queue = own();
  hr_mutex_lock(&queue->mutex);
  bool closed = queue->is_closed || queue->stop;
  hr_mutex_unlock(&queue->mutex);
  return closed;
}

static void compile_all(job *jobs, int job_count) {
  compiler_state *cache = &own()->cache;
  int open = 0;
  for (int i = 0; i < job_count; ++i) {
    open += !jobs[i].is_done;
  }
  if (open == 0 || is_closed() || cache->is_unusable) {
    return;
  }
  hr_status status = compile(jobs, job_count);
  if (hr_status_code_of(status) == HR_STATUS_INTERNAL && open > 1) { /* one of them may be the cause */
    note_failure(status);
    compile_all(jobs, job_count / 2);
    compile_all(jobs + job_count / 2, job_count - job_count / 2);
  } else if (status != HR_OK) {
    note_failure(status);
  }
  hr_status_free(status);
}

/* Texts of kernels don't have the prelude: it belongs to the identity. */
static void open_cache(uint64_t identity) {
  compiler_state *cache = &own()->cache;
  hr_text prelude = {0};
  hr_status status = hr_emit_prelude(&prelude);
  if (status == HR_OK) {
    identity = hr_hash_bytes(identity, prelude.data, prelude.length);
    status = hr__disk_cache_open(identity, &cache->disk);
  }
  hr_text_fini(&prelude);
  cache->is_open = status == HR_OK;
  if (status != HR_OK) {
    hr_log(HR_LOG_DEVICE, "%s", hr_status_message(status));
    hr_status_free(status);
  }
}

static void close_cache(void) {
  compiler_state *cache = &own()->cache;
  if (cache->is_open) {
    hr__disk_cache_fini(&cache->disk);
  }
  cache->is_open = cache->is_tried = cache->is_unusable = cache->has_worked = false;
}

/* Selects the first compiler from `rank` on that can be identified, and opens the cache of its results. None: the queue
 * closes. */
static void choose_compiler(void) {
  compiler_state *cache = &own()->cache;
  uint64_t identity;
  for (bool is_found = false; !is_found; cache->rank += !is_found) {
    hr_status status = hr__host_compiler_find(cache->rank, &cache->compiler);
    if (status != HR_OK) {
      close_queue(hr_status_message(cache->why != NULL ? cache->why : status));
      hr_status_ignore(status);
      break;
    }
    status = hr__host_compiler_identity(&cache->compiler, &identity, &cache->is_gcc, NULL);
    is_found = status == HR_OK;
    if (is_found) {
      open_cache(identity);
    } else {
      blame(status);
    }
  }
  cache->is_tried = true;
}

static hr_status emit_and_load(job *j) {
  compile_queue *queue = own();
  if (!queue->cache.is_tried) {
    choose_compiler();
  }
  hr_text_clear(&j->text);
  int64_t begin = hr__records_are_on() ? hr_clock_ns() : 0;
  HR_RETURN_IF_ERROR(emit(j));
  if (load(j)) {
    count(&queue->counts.loaded, 1);
    if (begin != 0) {
      hr__records_add(NULL, &(const hr_note){.kind = HR_PROFILE_KERNEL_LOAD,
                                             .begin = begin,
                                             .end = hr_clock_ns(),
                                             .count = 1,
                                             .text = hr__kernel_host(j->cached)->name});
    }
  }
  return HR_OK;
}

/* Reductions of short rows are straight code, which takes compilers up to 30 us a byte: a second instead of the usual
 * 30 ms. Their kernels are interpreted until that is paid for, too. */
static bool is_postponed(const job *j) {
  enum { LONG_TEXT = 24 << 10, BYTES_A_TIME = 1 << 10 };
  return j->text.length > LONG_TEXT && hr__kernel_postpone(j->cached, (int)(j->text.length / BYTES_A_TIME));
}

/* Emits and loads; the rest is compiled, or postponed. False when the compiler turned out to make nothing, and the next
 * is to be tried. */
static bool run_jobs(job *jobs, int job_count) {
  for (int i = 0; i < job_count && !is_closed(); ++i) {
    hr_status status = jobs[i].is_done ? HR_OK : emit_and_load(&jobs[i]);
    if (status != HR_OK) {
      give_up(&jobs[i], status);
    }
    jobs[i].is_done = jobs[i].is_done || is_postponed(&jobs[i]);
  }
  compile_all(jobs, job_count);
  return !own()->cache.is_unusable;
}

static void run_batch(hr_cached_kernel **kernels, int kernel_count) {
  compile_queue *queue = own();
  compiler_state *cache = &queue->cache;
  job *jobs = hr_calloc((size_t)kernel_count, sizeof *jobs);
  for (int i = 0; i < kernel_count && jobs != NULL; ++i) {
    jobs[i].cached = kernels[i];
    jobs[i].is_done = !hr__kernel_is_wanted(kernels[i]) || hr__kernel_has_code(kernels[i]) || is_closed();
  }
  while (jobs != NULL && !run_jobs(jobs, kernel_count)) {
    close_cache();
    ++cache->rank;
  }
  for (int i = 0; i < kernel_count; ++i) {
    if (jobs != NULL) {
      count(&queue->counts.unable, !jobs[i].is_done);
      hr_text_fini(&jobs[i].text);
    }
    hr__kernel_release(kernels[i]);
  }
  hr_free(jobs);
}

static void run_load(hr_cached_kernel *cached) {
  job j = {.cached = cached};
  if (hr__kernel_is_wanted(cached) && !hr__kernel_has_code(cached) && !is_closed()) {
    hr_status_ignore(emit_and_load(&j));
  }
  hr_text_fini(&j.text);
  hr__kernel_release(cached);
}

/* ---- the thread ---- */

/* Unlocks while it loads the oldest one. */
static void take_load(compile_queue *queue) {
  hr_cached_kernel *cached = queue->loads.data[0];
  memmove(queue->loads.data, queue->loads.data + 1, --queue->loads.count * sizeof *queue->loads.data);
  queue->is_at_work = true;
  hr_mutex_unlock(&queue->mutex);
  run_load(cached);
  hr_mutex_lock(&queue->mutex);
  queue->is_at_work = false;
  hr_cond_broadcast(&queue->done);
}

/* Unlocks while it processes the oldest ones. */
static void take_batch(compile_queue *queue) {
  int taken = queue->taken = queue->pending.count < BATCH_MAX ? (int)queue->pending.count : BATCH_MAX;
  memcpy(queue->batch, queue->pending.data, (size_t)taken * sizeof *queue->batch);
  queue->pending.count -= (size_t)taken;
  memmove(queue->pending.data, queue->pending.data + taken, queue->pending.count * sizeof *queue->pending.data);
  queue->is_at_work = true;
  hr_mutex_unlock(&queue->mutex);
  run_batch(queue->batch, taken);
  hr_mutex_lock(&queue->mutex);
  queue->is_at_work = false;
  queue->taken = 0;
  hr_cond_broadcast(&queue->done);
}

/* Gives way to the program, for this thread and its child processes. On one core that would keep the program at the
 * interpreter's speed: the compiler would get a tenth of the time, or next to none from a program of high priority. */
static void lower_priority(void) {
  if (hr_core_count() > 1) {
    (void)!setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + LOWER_PRIORITY);
  }
}

static void run_thread(void *arg) {
  compile_queue *queue = own();
  (void)arg;
  lower_priority();
  hr_mutex_lock(&queue->mutex);
  while (!queue->stop) {
    if (queue->loads.count > 0) {
      take_load(queue);
      continue;
    }
    if (queue->pending.count == 0) {
      queue->is_busy = false;
      hr_cond_broadcast(&queue->done);
      hr_cond_wait(&queue->wake, &queue->mutex);
      continue;
    }
    queue->is_busy = true;
    int64_t until = hr_clock_ns() + GATHER_NS; /* the commit that pushed one may push more */
    while (!queue->stop && queue->pending.count < BATCH_MAX && queue->loads.count == 0 &&
           hr_cond_wait_until(&queue->wake, &queue->mutex, until)) {
    }
    if (queue->loads.count > 0) {
      continue;
    }
    take_batch(queue);
  }
  hr_mutex_unlock(&queue->mutex);
}

/* The context or the process ends: kills the compiler, and joins the thread before its data is freed. */
static void stop_queue(void *part) {
  compile_queue *queue = part;
  hr_mutex_lock(&queue->mutex);
  queue->stop = true;
  atomic_store(hr__host_compiler_cancel(), true);
  hr_cond_broadcast(&queue->wake);
  hr_mutex_unlock(&queue->mutex);
  hr_thread_join(&queue->thread);
}

static void init_queue(void *part) {
  compile_queue *queue = part;
  (void)hr__host_compiler_cancel(); /* exists as long as the thread */
  hr_mutex_init(&queue->mutex);
  hr_cond_init(&queue->wake);
  hr_cond_init(&queue->done);
}

static void fini_queue(void *part) {
  compile_queue *queue = part;
  for (size_t i = 0; i < queue->pending.count; ++i) {
    hr__kernel_release(queue->pending.data[i]);
  }
  for (size_t i = 0; i < queue->loads.count; ++i) {
    hr__kernel_release(queue->loads.data[i]);
  }
  hr_vector_fini(&queue->pending);
  hr_vector_fini(&queue->loads);
  close_cache();
  hr_status_ignore(queue->cache.why);
  hr_cond_fini(&queue->wake);
  hr_cond_fini(&queue->done);
  hr_mutex_fini(&queue->mutex);
}

/* ---- forks ---- */

static void begin_fork(void *part) {
  compile_queue *queue = part;
  hr_mutex_lock(&queue->mutex);
  while (queue->is_at_work) {
    hr_cond_wait(&queue->done, &queue->mutex);
  }
}

/* The parent's compiler goes on for the parent: a child compiles the kernels again. Without memory for their places
 * they stay interpreted. */
static void take_back(compile_queue *queue) {
  for (int i = 0; i < queue->taken; ++i) {
    if (!hr_vector_push(&queue->pending, queue->batch[i])) {
      hr__kernel_release(queue->batch[i]);
    }
  }
  queue->taken = 0;
}

static void end_fork(void *part, bool is_child) {
  compile_queue *queue = part;
  if (is_child) {
    queue->thread = (hr_thread){0};
    queue->is_busy = false;
    hr_cond_init(&queue->wake);
    hr_cond_init(&queue->done);
    take_back(queue);
  }
  hr_mutex_unlock(&queue->mutex);
}

/* ---- those who use it ---- */

static bool start_thread(compile_queue *queue) {
  if (queue->thread.started) {
    return true;
  }
  hr__contexts_stop_at_exit();
  hr_status status = hr_thread_start("headrace-cc", run_thread, NULL, &queue->thread);
  bool ok = status == HR_OK;
  hr_status_ignore(status);
  return ok;
}

static void push(hr_cached_kernel *cached, bool is_load) {
  compile_queue *queue = own();
  hr_mutex_lock(&queue->mutex);
  bool taken = !queue->is_closed && !queue->stop && start_thread(queue) &&
               (is_load ? hr_vector_push(&queue->loads, cached) : hr_vector_push(&queue->pending, cached));
  if (taken) {
    queue->is_busy = true;
    hr_cond_broadcast(&queue->wake);
  }
  hr_mutex_unlock(&queue->mutex);
  if (!taken) {
    hr__kernel_release(cached);
  }
}

void hr__compile_queue_push(hr_cached_kernel *cached) {
  push(cached, false);
}

void hr__compile_queue_push_load(hr_cached_kernel *cached) {
  push(cached, true);
}

void hr__compile_queue_wait(void) {
  compile_queue *queue = own();
  hr_mutex_lock(&queue->mutex);
  if (!queue->thread.started && queue->pending.count + queue->loads.count > 0 && !queue->stop) { /* a forked child */
    queue->is_busy = start_thread(queue);
  }
  while (queue->is_busy && !queue->stop) {
    hr_cond_wait(&queue->done, &queue->mutex);
  }
  hr_mutex_unlock(&queue->mutex);
}

void hr__compile_queue_reset(void) {
  compile_queue *queue = own();
  compiler_state *cache = &queue->cache;
  hr__compile_queue_wait();
  hr_mutex_lock(&queue->mutex);
  queue->failures = 0;
  queue->is_closed = false;
  close_cache();
  cache->rank = 0;
  hr_status_ignore(cache->why);
  cache->why = HR_OK;
  hr_mutex_unlock(&queue->mutex);
}

void hr__jit_counts(hr_jit_counts *out_counts) {
  compile_queue *queue = own();
  hr_mutex_lock(&queue->mutex);
  *out_counts = queue->counts;
  out_counts->waiting = (int64_t)queue->pending.count + queue->taken;
  hr_mutex_unlock(&queue->mutex);
}
