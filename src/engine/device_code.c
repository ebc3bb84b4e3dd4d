#include "engine/device_code.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/thread.h"
#include "compiler/emit_device.h"
#include "engine/disk_cache.h"

enum { NAME_BYTES = 40, COMPILERS_MAX = 16 };

typedef struct device_code {
  hr_device_kernel kernel; /* first: launches point to it */
  hr_device *device;
  char name[NAME_BYTES]; /* of its functions, without the number of the pass */
  hr_text title;
  hr_text text;   /* until it is loaded: the prelude and the kernel */
  size_t prelude; /* bytes of it */
  hr_text image;  /* until it is loaded */
  void *module;
} device_code;

/* Held while kernels are loaded: whoever needs one that another thread is loading waits. */
static hr_mutex load_mutex = HR_MUTEX_INITIALIZER;

static void destroy(hr_host_kernel *kernel) {
  device_code *code = (device_code *)kernel;
  if (code->module != NULL) {
    code->device->driver->unload(code->device->impl, code->module);
  }
  hr_text_fini(&code->text);
  hr_text_fini(&code->image);
  hr_text_fini(&code->title);
  hr_free(code);
}

static hr_status write_text(device_code *code, const hr_kernel *kernel) {
  hr_device_emission emission;
  HR_RETURN_IF_ERROR(hr_emit_device_prelude(HR_DEVICE_TEXT_CUDA, &code->text));
  code->prelude = code->text.length;
  HR_RETURN_IF_ERROR(hr_emit_device_kernel(kernel, code->name, &code->text, &emission));
  hr_device_kernel *made = &code->kernel;
  made->base.pass_count = emission.pass_count;
  made->base.workspace_bytes = emission.workspace_bytes;
  for (int pass = 0; pass < emission.pass_count; pass++) {
    made->blocks[pass] = emission.blocks[pass];
    made->threads[pass] = emission.threads[pass];
    made->base.units[pass] = emission.blocks[pass] * emission.threads[pass];
    made->base.grain[pass] = 1;
  }
  return HR_OK;
}

hr_status hr__device_kernel_create(const hr_kernel *kernel, hr_device *device, uint64_t hash,
                                   hr_host_kernel **out_kernel) {
  device_code *code = hr_calloc(1, sizeof *code);
  if (code == NULL || !hr_text_append(&code->title, kernel->name)) {
    hr_free(code);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for kernel %s", kernel->name);
  }
  code->device = device;
  code->kernel.arg_count = kernel->arg_count;
  code->kernel.scalar_count = kernel->scalar_count;
  code->kernel.base = (hr_host_kernel){.name = hr_text_chars(&code->title), .bytes = kernel->bytes, .destroy = destroy};
  snprintf(code->name, sizeof code->name, "hr_%016llx", (unsigned long long)hash);
  hr_status status = write_text(code, kernel);
  if (status != NULL) {
    destroy(&code->kernel.base);
    return hr_status_annotate(status, "%s", kernel->name);
  }
  *out_kernel = &code->kernel.base;
  return HR_OK;
}

/* ---- loading ---- */

typedef struct work {
  const hr_disk_cache *cache; /* NULL: none */
  int count;
  device_code **codes;
  atomic_int next, compiled;
  hr_mutex mutex; /* guards the first failure */
  hr_status failure;
} work;

/* Texts of kernels don't have the prelude: it belongs to the identity of the cache. */
static hr_status find_or_compile(work *w, device_code *code) {
  hr_device *device = code->device;
  const char *text = hr_text_chars(&code->text), *own = text + code->prelude;
  size_t own_length = code->text.length - code->prelude;
  if (w->cache != NULL && hr__disk_cache_find_image(w->cache, own, own_length, &code->image)) {
    return HR_OK;
  }
  atomic_fetch_add(&w->compiled, 1);
  HR_RETURN_IF_ERROR(device->driver->compile(device->impl, text, code->text.length, &code->image));
  if (w->cache != NULL) {
    hr_status_ignore(
        hr__disk_cache_add_image(w->cache, own, own_length, hr_text_chars(&code->image), code->image.length));
  }
  return HR_OK;
}

static void compile_some(void *arg) {
  work *w = arg;
  for (int i; (i = atomic_fetch_add(&w->next, 1)) < w->count;) {
    device_code *code = w->codes[i];
    hr_status status = find_or_compile(w, code);
    if (status == NULL) {
      continue;
    }
    status = hr_status_annotate(status, "%s", code->kernel.base.name);
    hr_mutex_lock(&w->mutex);
    if (w->failure == NULL) {
      w->failure = status;
      status = NULL;
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
  for (int i = 0; i < more; i++) {
    hr_status_ignore(hr_thread_start("headrace-compile", compile_some, w, &threads[i]));
  }
  compile_some(w);
  for (int i = 0; i < more; i++) {
    hr_thread_join(&threads[i]);
  }
  return w->failure;
}

static hr_status load(device_code *code) {
  char names[HR_HOST_KERNEL_PASS_MAX][NAME_BYTES + 8];
  const char *pointers[HR_HOST_KERNEL_PASS_MAX];
  for (int pass = 0; pass < code->kernel.base.pass_count; pass++) {
    snprintf(names[pass], sizeof names[pass], "%s_%d", code->name, pass);
    pointers[pass] = names[pass];
  }
  hr_status status =
      code->device->driver->load(code->device->impl, hr_text_chars(&code->image), code->image.length,
                                 code->kernel.base.pass_count, pointers, &code->module, code->kernel.functions);
  if (status != NULL) {
    return hr_status_annotate(status, "%s", code->kernel.base.name);
  }
  hr_text_fini(&code->image);
  hr_text_fini(&code->text);
  return HR_OK;
}

/* The cache of a device's compiler: what that is, and the prelude, decide what a text becomes. */
static bool open_cache(hr_device *device, hr_disk_cache *out_cache) {
  hr_text text = {0};
  hr_status status = device->driver->compiler(device->impl, &text);
  status = status != NULL ? status : hr_emit_device_prelude(HR_DEVICE_TEXT_CUDA, &text);
  if (status == NULL) {
    status = hr__disk_cache_open(hr_hash_bytes(HR_HASH_SEED, text.data, text.length), out_cache);
  }
  if (status != NULL) {
    hr_log(HR_LOG_DEVICE, "%s", hr_status_message(status));
  }
  bool is_open = status == NULL;
  hr_status_free(status);
  hr_text_fini(&text);
  return is_open;
}

static hr_status load_missing(hr_device *device, const hr_host_kernel *const *kernels, int count,
                              device_code **missing) {
  work w = {.codes = missing, .mutex = HR_MUTEX_INITIALIZER};
  for (int i = 0; i < count; i++) {
    device_code *code = (device_code *)kernels[i];
    bool is_known = code->module != NULL;
    for (int j = 0; j < w.count; j++) {
      is_known |= missing[j] == code;
    }
    if (!is_known) {
      missing[w.count++] = code;
    }
  }
  if (w.count == 0) {
    return HR_OK;
  }
  int64_t begin = hr_clock_ns();
  hr_disk_cache cache;
  w.cache = open_cache(device, &cache) ? &cache : NULL;
  hr_status status = compile_all(&w);
  if (w.cache != NULL) {
    if (w.compiled > 0) {
      hr__disk_cache_trim(&cache);
    }
    hr__disk_cache_fini(&cache);
  }
  for (int i = 0; status == NULL && i < w.count; i++) {
    status = load(missing[i]);
  }
  hr_log(HR_LOG_SCHEDULE, "compiled %d and loaded %d kernels in %.1f ms", (int)w.compiled, w.count,
         (double)(hr_clock_ns() - begin) * 1e-6);
  return status;
}

hr_status hr__device_kernels_load(hr_device *device, int count, const hr_host_kernel *const *kernels) {
  device_code **missing = hr_calloc((size_t)count + 1, sizeof(device_code *));
  if (missing == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory to load %d kernels", count);
  }
  hr_mutex_lock(&load_mutex);
  hr_status status = load_missing(device, kernels, count, missing);
  hr_mutex_unlock(&load_mutex);
  hr_free(missing);
  return status;
}
