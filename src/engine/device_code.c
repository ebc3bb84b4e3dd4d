#include "engine/device_code.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/context.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/table.h"
#include "base/thread.h"
#include "compiler/emit_device.h"
#include "engine/disk_cache.h"

enum { NAME_BYTES = 40, COMPILERS_MAX = 16 };
#define SHAPES_NAME "hr_shapes" /* of the functions of a text for many shapes */

typedef struct code_cache code_cache;

/* A text, and its functions. A text generated for one shape belongs to one kernel. A text for many shapes, or one that
 * a provider has written, belongs to all kernels with that text, with any words. */
typedef struct module {
  code_cache *owner;
  hr_device *device;
  char name[NAME_BYTES]; /* of its functions, without the number of the pass */
  int pass_count;
  hr_text text;     /* the functions, without the prelude; if not shared, until it is loaded */
  size_t passes_at; /* where the passes begin in the text, behind functions that follow from them */
  uint64_t hash;    /* of the passes, if it is shared */
  hr_text image;    /* until it is loaded */
  void *loaded;     /* the driver's; NULL before */
  void *functions[HR_HOST_KERNEL_PASS_MAX];
  bool is_shared;
  int users;           /* kernels; guarded by shared_mutex */
  struct module *next; /* shared ones with the same hash */
} module;

typedef struct device_code {
  hr_device_kernel kernel; /* first: launches point to it */
  hr_text title;
  module *module;
} device_code;

/* Texts without shapes, the number of programs that could have used them, and of kernels of the last program. */
typedef struct structure {
  uint64_t hash, epoch;
  int programs, kernels;
} structure;

enum { STRUCTURES = 4096, LITERAL_PROGRAMS = 2, LITERAL_KERNELS = 4 };

/* A context's. */
struct code_cache {
  hr_mutex load_mutex;   /* held while kernels are loaded: a thread that needs a kernel which another thread is loading
                          * waits */
  hr_mutex shared_mutex; /* guards the fields below */
  hr_table shared_modules;          /* by hash */
  structure structures[STRUCTURES]; /* by hash; a later one replaces an earlier one */
  uint64_t epoch;                   /* kernels of one program are created in one epoch */
  atomic_uint_least64_t prelude;    /* its hash; 0: not known yet */
};

static void init_cache(void *part) {
  code_cache *cache = part;
  hr_mutex_init(&cache->load_mutex);
  hr_mutex_init(&cache->shared_mutex);
  cache->epoch = 1;
}

static void fini_cache(void *part) {
  code_cache *cache = part;
  hr_table_fini(&cache->shared_modules);
  hr_mutex_fini(&cache->load_mutex);
  hr_mutex_fini(&cache->shared_mutex);
}

static code_cache *cache_of(const hr_device *device) {
  static const hr_context_part kind = {.bytes = sizeof(code_cache), .init = init_cache, .fini = fini_cache};
  return hr__context_part(device->context, HR_CONTEXT_DEVICE_CODE, &kind);
}

/* ---- modules ---- */

static module *create_module(hr_device *device, const char *name, int pass_count) {
  module *m = hr_calloc(1, sizeof *m);
  if (m != NULL) {
    m->owner = cache_of(device), m->device = device, m->pass_count = pass_count, m->users = 1;
    snprintf(m->name, sizeof m->name, "%s", name);
  }
  return m;
}

static void destroy_module(module *m) {
  if (m->loaded != NULL) {
    m->device->driver->unload(m->device->impl, m->loaded);
  }
  hr_text_fini(&m->text);
  hr_text_fini(&m->image);
  hr_free(m);
}

static void release_module(module *m) {
  if (m == NULL) {
    return;
  }
  code_cache *cache = m->owner;
  hr_mutex_lock(&cache->shared_mutex);
  bool is_last = --m->users == 0;
  if (is_last && m->is_shared) {
    hr_table_unlink(&cache->shared_modules, m->hash, m, offsetof(module, next));
  }
  hr_mutex_unlock(&cache->shared_mutex);
  if (is_last) {
    destroy_module(m);
  }
}

static void hash_passes(module *m) {
  m->hash = hr_hash_bytes(HR_HASH_SEED, m->text.data + m->passes_at, m->text.length - m->passes_at);
}

/* True if the passes of the module are these. */
static bool has_passes(const module *m, const char *passes, size_t length) {
  return m->text.length - m->passes_at == length && memcmp(m->text.data + m->passes_at, passes, length) == 0;
}

/* The shared module with the passes of this one, whose hash is set, or NULL. The list is locked. */
static module *find_shared(const code_cache *cache, const module *m) {
  module *same = hr_table_get(&cache->shared_modules, m->hash);
  while (same != NULL &&
         (same->device != m->device || !has_passes(same, m->text.data + m->passes_at, m->text.length - m->passes_at))) {
    same = same->next;
  }
  return same;
}

/* A reference to it. */
static module *acquire_shared(const module *m) {
  hr_mutex_lock(&m->owner->shared_mutex);
  module *same = find_shared(m->owner, m);
  if (same != NULL) {
    ++same->users;
  }
  hr_mutex_unlock(&m->owner->shared_mutex);
  return same;
}

/* Adds a module to the shared ones, or replaces it by one that has its passes. */
static module *share(module *m) {
  code_cache *cache = m->owner;
  hr_mutex_lock(&cache->shared_mutex);
  module *same = find_shared(cache, m);
  if (same == NULL) {
    m->next = hr_table_get(&cache->shared_modules, m->hash);
    m->is_shared = hr_table_put(&cache->shared_modules, m->hash, m); /* without memory it is not shared */
  } else {
    ++same->users;
  }
  hr_mutex_unlock(&cache->shared_mutex);
  if (same != NULL) {
    destroy_module(m);
  }
  return same != NULL ? same : m;
}

/* ---- kernels ---- */

static void destroy(hr_host_kernel *kernel) {
  device_code *code = (device_code *)kernel;
  release_module(code->module);
  hr_text_fini(&code->title);
  hr_free(code);
}

static hr_status create(const char *title, hr_device *device, const char *name, int pass_count,
                        device_code **out_code) {
  device_code *code = hr_calloc(1, sizeof *code);
  if (code == NULL || !hr_text_append(&code->title, title) ||
      (code->module = create_module(device, name, pass_count)) == NULL) {
    if (code != NULL) {
      destroy(&code->kernel.base);
    }
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for kernel %s", title);
  }
  code->kernel.base.name = hr_text_chars(&code->title);
  code->kernel.base.pass_count = pass_count;
  code->kernel.base.passes = code->kernel.passes;
  code->kernel.base.destroy = destroy;
  *out_code = code;
  return HR_OK;
}

static void set_grids(hr_device_kernel *kernel, const int64_t *blocks, const int *threads) {
  for (int pass = 0; pass < kernel->base.pass_count; ++pass) {
    kernel->blocks[pass] = blocks[pass];
    kernel->threads[pass] = threads[pass];
    kernel->passes[pass] = (hr_host_pass){.units = blocks[pass] * threads[pass], .grain = 1};
  }
}

static void set_numbers(hr_device_kernel *kernel, const hr_device_emission *emission) {
  kernel->base.pass_count = emission->pass_count;
  kernel->base.workspace_bytes = emission->workspace_bytes;
  kernel->word_count = emission->word_count;
  set_grids(kernel, emission->blocks, emission->threads);
  memcpy(kernel->shared, emission->shared, sizeof emission->shared);
  memcpy(kernel->words, emission->words, sizeof emission->words);
}

/* Writes the passes. */
static hr_status write_text(device_code *code, const hr_kernel *kernel, hr_device_shapes shapes) {
  hr_device_emission emission;
  module *m = code->module;
  hr_text_clear(&m->text);
  HR_RETURN_IF_ERROR(
      hr_emit_device_kernel(kernel, m->name, m->device->properties.block_bytes, shapes, &m->text, &emission));
  m->pass_count = emission.pass_count;
  set_numbers(&code->kernel, &emission);
  return HR_OK;
}

/* Puts functions before the passes. */
static hr_status add_functions(module *m, const hr_text *functions) {
  hr_text text = {0};
  hr_text_append_bytes(&text, hr_text_chars(functions), functions->length);
  hr_text_append_bytes(&text, hr_text_chars(&m->text), m->text.length);
  hr_text_fini(&m->text);
  m->text = text, m->passes_at = functions->length;
  return hr_text_status(&text);
}

/* Shares the module of passes whose hash is set. Only new ones need the functions. */
static hr_status share_passes(device_code *code, const hr_kernel *kernel) {
  module *m = code->module, *same = acquire_shared(m);
  hr_text functions = {0};
  if (same != NULL) {
    destroy_module(m);
    code->module = same;
    return HR_OK;
  }
  hr_status status = hr_emit_device_functions(kernel, &functions);
  status = status != HR_OK ? status : add_functions(m, &functions);
  hr_text_fini(&functions);
  if (status == HR_OK) {
    code->module = share(m);
  }
  return status;
}

/* True if the same text is needed in one program after the other: shapes change, and each text with literal shapes
 * would be compiled. Also if a program has many kernels with it, such as the steps of a recurrent layer, which differ
 * in their offsets, or if other kernels have its code already. */
static bool is_for_many_shapes(module *m) {
  code_cache *cache = m->owner;
  hash_passes(m);
  hr_mutex_lock(&cache->shared_mutex);
  structure *s = &cache->structures[m->hash % STRUCTURES];
  if (s->hash != m->hash) {
    *s = (structure){.hash = m->hash};
  }
  bool is_first = s->epoch != cache->epoch;
  s->programs += is_first;
  s->kernels = is_first ? 1 : s->kernels + 1;
  s->epoch = cache->epoch;
  bool is = s->programs > LITERAL_PROGRAMS || s->kernels > LITERAL_KERNELS || find_shared(cache, m) != NULL;
  hr_mutex_unlock(&cache->shared_mutex);
  return is;
}

/* The hash of the prelude, which never changes. */
static hr_status hash_prelude(code_cache *cache, uint64_t *out_hash) {
  *out_hash = atomic_load(&cache->prelude);
  if (*out_hash != 0) {
    return HR_OK;
  }
  hr_text text = {0};
  hr_status status = hr_emit_device_prelude(HR_DEVICE_TEXT_CUDA, &text);
  if (status == HR_OK) {
    *out_hash = hr_hash_bytes(HR_HASH_SEED, text.data, text.length);
    atomic_store(&cache->prelude, *out_hash);
  }
  hr_text_fini(&text);
  return status;
}

/* Opens the cache of a device's compiler: compiler and prelude determine the code of a text. */
static bool open_cache(hr_device *device, hr_disk_cache *out_cache) {
  hr_text text = {0};
  uint64_t hash;
  hr_status status = device->driver->compiler(device->impl, &text);
  status = status != HR_OK ? status : hash_prelude(cache_of(device), &hash);
  if (status == HR_OK) {
    status = hr__disk_cache_open(hr_hash_bytes(hash, text.data, text.length), out_cache);
  }
  if (status != HR_OK) {
    hr_log(HR_LOG_DEVICE, "%s", hr_status_message(status));
  }
  bool is_open = status == HR_OK;
  hr_status_free(status);
  hr_text_fini(&text);
  return is_open;
}

/* Finds code on disk: with these shapes, or else that of the text with words. *out_is_words: it is the latter. */
static void find_image(module *m, const hr_text *words, bool *out_is_words) {
  hr_disk_cache cache;
  *out_is_words = false;
  if (open_cache(m->device, &cache)) {
    *out_is_words = !hr__disk_cache_find_image(&cache, m->text.data, m->text.length, &m->image) &&
                    hr__disk_cache_find_image(&cache, words->data, words->length, &m->image);
    hr__disk_cache_fini(&cache);
  }
}

/* Writes the text with literal shapes over the one with words, which *words gets. */
static hr_status write_literal_text(device_code *code, const hr_kernel *kernel, uint64_t hash, hr_text *words) {
  module *m = code->module;
  *words = m->text;
  m->text = (hr_text){0}, m->passes_at = 0;
  snprintf(m->name, sizeof m->name, "hr_%016llx", (unsigned long long)hash);
  return write_text(code, kernel, HR_DEVICE_SHAPES_LITERAL);
}

static hr_status write_fitting_text(device_code *code, const hr_kernel *kernel, uint64_t hash) {
  module *m = code->module;
  HR_RETURN_IF_ERROR(write_text(code, kernel, HR_DEVICE_SHAPES_WORDS));
  if (is_for_many_shapes(m)) {
    return share_passes(code, kernel);
  }
  hr_device_kernel of_words = code->kernel;
  hr_text words = {0}, functions = {0};
  bool is_words = false;
  hr_status status = hr_emit_device_functions(kernel, &functions);
  status = status != HR_OK ? status : add_functions(m, &functions);
  status = status != HR_OK ? status : write_literal_text(code, kernel, hash, &words);
  status = status != HR_OK ? status : add_functions(m, &functions);
  if (status == HR_OK) {
    find_image(m, &words, &is_words);
  }
  if (is_words) { /* back to the text with words */
    hr_text_fini(&m->text);
    m->text = words, m->pass_count = of_words.base.pass_count;
    snprintf(m->name, sizeof m->name, SHAPES_NAME);
    code->kernel = of_words;
    code->module = share(m);
  } else {
    hr_text_fini(&words);
  }
  hr_text_fini(&functions);
  return status;
}

/* A kernel of the form, without its text. */
static hr_status create_of(const hr_kernel *kernel, hr_device *device, device_code **out_code) {
  HR_RETURN_IF_ERROR(create(kernel->name, device, SHAPES_NAME, 0, out_code));
  hr_device_kernel *made = &(*out_code)->kernel;
  made->arg_count = kernel->arg_count;
  made->scalar_count = kernel->scalar_count;
  made->base.bytes = kernel->bytes;
  made->begins_early = true;
  return HR_OK;
}

/* The kernel, if its text could be written. */
static hr_status finish(device_code *code, const hr_kernel *kernel, hr_status written, hr_host_kernel **out_kernel) {
  if (written != HR_OK) {
    destroy(&code->kernel.base);
    return hr_status_annotate(written, "%s", kernel->name);
  }
  *out_kernel = &code->kernel.base;
  return HR_OK;
}

hr_status hr__device_kernel_create(const hr_kernel *kernel, hr_device *device, uint64_t hash,
                                   hr_host_kernel **out_kernel) {
  device_code *code = NULL;
  HR_RETURN_IF_ERROR(create_of(kernel, device, &code));
  return finish(code, kernel, write_fitting_text(code, kernel, hash), out_kernel);
}

hr_status hr__device_kernel_create_general(const hr_kernel *kernel, hr_device *device, hr_host_kernel **out_kernel) {
  device_code *code = NULL;
  HR_RETURN_IF_ERROR(create_of(kernel, device, &code));
  hr_status status = write_text(code, kernel, HR_DEVICE_SHAPES_WORDS);
  if (status == HR_OK) {
    hash_passes(code->module);
    status = share_passes(code, kernel);
  }
  return finish(code, kernel, status, out_kernel);
}

bool hr__device_kernel_renumber(hr_host_kernel *kernel, const hr_kernel *form) {
  device_code *code = (device_code *)kernel;
  const module *m = code->module;
  hr_text text = {0};
  hr_device_emission emission;
  if (!m->is_shared || code->kernel.arg_count != form->arg_count || code->kernel.scalar_count != form->scalar_count) {
    return false;
  }
  hr_status status =
      hr_emit_device_kernel(form, m->name, m->device->properties.block_bytes, HR_DEVICE_SHAPES_WORDS, &text, &emission);
  bool is_same = status == HR_OK && has_passes(m, text.data, text.length);
  if (is_same) {
    set_numbers(&code->kernel, &emission);
    code->kernel.base.bytes = form->bytes;
  }
  hr_status_ignore(status);
  hr_text_fini(&text);
  return is_same;
}

hr_status hr__device_kernel_create_written(const hr_device_source *source, hr_device *device, const char *title,
                                           int arg_count, int scalar_count, hr_host_kernel **out_kernel) {
  device_code *code = NULL;
  HR_RETURN_IF_ERROR(create(title, device, source->name, source->pass_count, &code));
  hr_device_kernel *made = &code->kernel;
  module *m = code->module;
  hr_text_append_bytes(&m->text, source->text.data, source->text.length);
  hr_status status = hr_text_status(&m->text);
  if (status != HR_OK) {
    destroy(&made->base);
    return hr_status_annotate(status, "%s", title);
  }
  made->base.workspace_bytes = source->workspace_bytes;
  made->begins_early = source->begins_early, made->has_large_clusters = source->has_large_clusters;
  made->arg_count = arg_count, made->scalar_count = scalar_count, made->word_count = source->word_count;
  set_grids(made, source->blocks, source->threads);
  memcpy(made->shared, source->shared, sizeof made->shared);
  memcpy(made->words, source->words, sizeof made->words);
  hash_passes(m);
  code->module = share(m);
  *out_kernel = &made->base;
  return HR_OK;
}

/* ---- loading ---- */

typedef struct work {
  const hr_disk_cache *cache; /* NULL: none */
  int count;
  module **modules;
  atomic_int next, compiled;
  hr_mutex mutex; /* guards the first failure */
  hr_status failure;
} work;

static hr_status compile(module *m) {
  hr_text text = {0};
  hr_status status = hr_emit_device_prelude(HR_DEVICE_TEXT_CUDA, &text);
  hr_text_append_bytes(&text, m->text.data, m->text.length);
  status = status == HR_OK ? hr_text_status(&text) : status;
  if (status == HR_OK) {
    status = m->device->driver->compile(m->device->impl, text.data, text.length, &m->image);
  }
  hr_text_fini(&text);
  return status;
}

/* The prelude belongs to the identity of the cache. */
static bool has_image(const work *w, module *m) {
  return m->image.length > 0 ||
         (w->cache != NULL && hr__disk_cache_find_image(w->cache, m->text.data, m->text.length, &m->image));
}

static hr_status compile_and_keep(work *w, module *m) {
  const hr_text *text = &m->text;
  atomic_fetch_add(&w->compiled, 1);
  HR_RETURN_IF_ERROR(compile(m));
  if (w->cache != NULL) {
    hr_status_ignore(
        hr__disk_cache_add_image(w->cache, text->data, text->length, hr_text_chars(&m->image), m->image.length));
  }
  return HR_OK;
}

static void compile_some(void *arg) {
  work *w = arg;
  for (int i; (i = atomic_fetch_add(&w->next, 1)) < w->count;) {
    hr_status status = compile_and_keep(w, w->modules[i]);
    if (status == HR_OK) {
      continue;
    }
    status = hr_status_annotate(status, "%s", w->modules[i]->name);
    hr_mutex_lock(&w->mutex);
    if (w->failure == NULL) {
      w->failure = status;
      status = HR_OK;
    }
    hr_mutex_unlock(&w->mutex);
    hr_status_free(status);
  }
}

/* Compiles on as many threads as there are cores, this one among them. */
static hr_status compile_all(work *w) {
  hr_thread threads[COMPILERS_MAX] = {0};
  int more = hr_core_count() < w->count ? hr_core_count() : w->count;
  more = (more < COMPILERS_MAX ? more : COMPILERS_MAX) - 1;
  for (int i = 0; i < more; ++i) {
    hr_status_ignore(hr_thread_start("headrace-compile", compile_some, w, &threads[i]));
  }
  compile_some(w);
  for (int i = 0; i < more; ++i) {
    hr_thread_join(&threads[i]);
  }
  return w->failure;
}

static hr_status load(module *m) {
  char names[HR_HOST_KERNEL_PASS_MAX][NAME_BYTES + 8];
  const char *pointers[HR_HOST_KERNEL_PASS_MAX];
  for (int pass = 0; pass < m->pass_count; ++pass) {
    snprintf(names[pass], sizeof names[pass], "%s_%d", m->name, pass);
    pointers[pass] = names[pass];
  }
  HR_RETURN_IF_ERROR(m->device->driver->load(m->device->impl, hr_text_chars(&m->image), m->image.length, m->pass_count,
                                             pointers, &m->loaded, m->functions));
  hr_text_fini(&m->image);
  if (!m->is_shared) {
    hr_text_fini(&m->text);
  }
  return HR_OK;
}

/* The modules that are not loaded, each once. */
static int find_missing(const hr_host_kernel *const *kernels, int count, module **missing) {
  int found = 0;
  for (int i = 0; i < count; ++i) {
    module *m = ((const device_code *)kernels[i])->module;
    bool is_known = m->loaded != NULL;
    for (int j = 0; j < found; ++j) {
      is_known |= missing[j] == m;
    }
    if (!is_known) {
      missing[found++] = m;
    }
  }
  return found;
}

static hr_status load_missing(hr_device *device, int count, module **missing) {
  work w = {.modules = missing, .mutex = HR_MUTEX_INITIALIZER};
  int64_t begin = hr_clock_ns();
  hr_disk_cache cache;
  w.cache = open_cache(device, &cache) ? &cache : NULL;
  for (int i = 0; i < count; ++i) { /* those to compile come first */
    module *m = missing[i];
    if (!has_image(&w, m)) {
      missing[i] = missing[w.count];
      missing[w.count++] = m;
    }
  }
  hr_status status = w.count > 0 ? compile_all(&w) : HR_OK;
  if (w.cache != NULL) {
    if (w.compiled > 0) {
      hr__disk_cache_trim(&cache);
    }
    hr__disk_cache_fini(&cache);
  }
  for (int i = 0; status == HR_OK && i < count; ++i) {
    status = load(missing[i]);
  }
  hr_log(HR_LOG_SCHEDULE, "compiled %d and loaded %d kernels in %.1f ms", (int)w.compiled, count,
         (double)(hr_clock_ns() - begin) * 1e-6);
  return status;
}

hr_status hr__device_kernels_load(hr_device *device, int count, const hr_host_kernel *const *kernels) {
  module **missing = hr_calloc((size_t)count + 1, sizeof(module *));
  if (missing == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory to load %d kernels", count);
  }
  code_cache *cache = cache_of(device);
  hr_mutex_lock(&cache->shared_mutex);
  ++cache->epoch;
  hr_mutex_unlock(&cache->shared_mutex);
  hr_mutex_lock(&cache->load_mutex);
  int missing_count = find_missing(kernels, count, missing);
  hr_status status = missing_count > 0 ? load_missing(device, missing_count, missing) : HR_OK;
  for (int i = 0; status == HR_OK && i < count; ++i) {
    device_code *code = (device_code *)kernels[i];
    memcpy(code->kernel.functions, code->module->functions, sizeof code->kernel.functions);
  }
  hr_mutex_unlock(&cache->load_mutex);
  hr_free(missing);
  return status;
}
