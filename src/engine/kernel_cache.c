#include "engine/kernel_cache.h"

#include <stdatomic.h>
#include <string.h>

#include "base/context.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/integer.h"
#include "base/interned.h"
#include "base/table.h"
#include "base/thread.h"
#include "engine/compile_queue.h"
#include "engine/device_code.h"
#include "interp/interp.h"

/* A kernel is compiled when the interpreter has spent a good part of the compile time on it, some 30 ms of a core. If
 * it has taken 6 ms, or has moved as many bytes as most kernels move in that time, it is likely to take as long again.
 * So the first steps of a network have the machine to themselves. */
enum { USES_MIN = 2, BYTES_MIN = 64 << 20, SPENT_NS = 6000000 };
enum { TIMED_BYTES = 64 << 10 }; /* smaller launches are not timed: the clock would dominate */
enum { LOAD_BYTES = 8 << 20 };   /* interpreted, they take milliseconds: code on disk is looked for at once */

/* A context's kernels. */
typedef struct kernel_cache {
  hr_mutex mutex;
  hr_table table; /* by hash */
} kernel_cache;

struct hr_cached_kernel {
  kernel_cache *owner;
  hr_device *device;        /* that it belongs to; NULL: the host's */
  const uint8_t *structure; /* of its key: interned, since few differ. NULL: it is private, not in the table */
  uint32_t structure_bytes, number_bytes;
  uint64_t hash;                     /* of the key */
  hr_cached_kernel *next_same;       /* chain of equal hashes */
  int reference_count;               /* guarded by the cache's lock */
  _Atomic int holder_count;          /* the references that count its memory */
  hr_host_kernel *host;              /* as it was made */
  _Atomic(hr_host_kernel *) current; /* launched: `host`, later the compiled code, which the compile queue sets once */
  atomic_int_least32_t uses;         /* until it is pushed */
  int32_t uses_wanted;
  atomic_int_least64_t spent_ns;
  atomic_bool is_postponed; /* `uses` and `spent_ns` have begun again, below 0 */
  uint8_t numbers[];        /* of its key */
};

static void init_cache(void *part) {
  kernel_cache *cache = part;
  hr_mutex_init(&cache->mutex);
}

/* All users of kernels have released them. */
static void fini_cache(void *part) {
  kernel_cache *cache = part;
  hr_table_fini(&cache->table);
  hr_mutex_fini(&cache->mutex);
}

static kernel_cache *own(void) {
  static const hr_context_part kind = {.bytes = sizeof(kernel_cache), .init = init_cache, .fini = fini_cache};
  return hr__context_part(hr__context(), HR_CONTEXT_KERNELS, &kind);
}

static bool has_key(const hr_cached_kernel *cached, const hr_kernel_key *key) {
  return cached->structure_bytes == key->structure_bytes && cached->number_bytes == key->count - key->structure_bytes &&
         memcmp(cached->numbers, key->data + key->structure_bytes, cached->number_bytes) == 0 &&
         memcmp(cached->structure, key->data, key->structure_bytes) == 0;
}

static hr_cached_kernel *find(const kernel_cache *cache, uint64_t hash, const hr_kernel_key *key,
                              const hr_device *device) {
  hr_cached_kernel *cached = hr_table_get(&cache->table, hash);
  while (cached != NULL && (cached->device != device || !has_key(cached, key))) {
    cached = cached->next_same;
  }
  return cached;
}

/* NULL: there is none. */
static hr_host_kernel *compiled_of(const hr_cached_kernel *cached) {
  hr_host_kernel *current = atomic_load_explicit(&cached->current, memory_order_acquire);
  return current != cached->host ? current : NULL;
}

static void destroy(hr_cached_kernel *cached) {
  hr_host_kernel *compiled = compiled_of(cached);
  if (compiled != NULL) {
    compiled->destroy(compiled);
  }
  if (cached->host != NULL) {
    cached->host->destroy(cached->host);
  }
  hr_interned_release(cached->structure);
  hr_free(cached);
}

/* The bytes that count for compiling. Windows read the same elements again and again: from the caches, but the
 * interpreter takes as long for each. */
static int64_t moved_bytes(const hr_kernel *kernel) {
  enum { AGAIN_MIN = 4 };
  int64_t elements = 1, reads = 0;
  for (int d = 0; d < kernel->rank; ++d) {
    elements *= kernel->dims[d];
  }
  for (int k = 0; k < kernel->instr_count; ++k) {
    const hr_instr *instr = &kernel->instrs[k];
    if (instr->kind == HR_INSTR_LOAD && instr->level == HR_LEVEL_ELEMENT) {
      reads += elements * (int64_t)hr_dtype_size(kernel->accesses[instr->access].dtype);
    }
  }
  int64_t bytes = kernel->bytes > 0 ? kernel->bytes : 1;
  return reads / AGAIN_MIN > bytes ? reads : bytes;
}

/* `last`: one of the same structure, or NULL. */
static hr_status make_host(hr_cached_kernel *cached, const hr_kernel *kernel, const hr_cached_kernel *last) {
  return cached->device == NULL ? hr_interp_create_like(kernel, last != NULL ? last->host : NULL, &cached->host)
         : hr__kernel_is_private(cached)
             ? hr__device_kernel_create_general(kernel, cached->device, &cached->host)
             : hr__device_kernel_create(kernel, cached->device, cached->hash, &cached->host);
}

/* Makes what runs first; destroys the kernel if it fails. */
static hr_status begin(hr_cached_kernel *cached, const hr_kernel *kernel, const hr_cached_kernel *last) {
  hr_status status = make_host(cached, kernel, last);
  if (status != HR_OK) {
    destroy(cached);
    return status;
  }
  atomic_init(&cached->current, cached->host);
  atomic_init(&cached->uses, 0);
  atomic_init(&cached->spent_ns, 0);
  return HR_OK;
}

/* An entry with a copy of the key; NULL: there is no memory. */
static hr_cached_kernel *make_entry(kernel_cache *cache, const hr_kernel_key *key, hr_device *device, uint64_t hash) {
  size_t numbers = key->count - key->structure_bytes;
  const void *structure = hr_interned_acquire(key->data, key->structure_bytes);
  hr_cached_kernel *cached = structure != NULL ? hr_calloc(1, sizeof *cached + numbers) : NULL;
  if (cached == NULL) {
    hr_interned_release(structure);
    return NULL;
  }
  cached->owner = cache;
  cached->device = device;
  cached->structure = structure;
  cached->structure_bytes = (uint32_t)key->structure_bytes, cached->number_bytes = (uint32_t)numbers;
  cached->hash = hash;
  cached->reference_count = 1;
  memcpy(cached->numbers, key->data + key->structure_bytes, numbers);
  return cached;
}

/* The cache is not locked: several threads may create kernels. */
static hr_status create(kernel_cache *cache, const hr_kernel *kernel, hr_device *device, const hr_kernel_key *key,
                        uint64_t hash, hr_cached_kernel **out_cached) {
  hr_cached_kernel *cached = make_entry(cache, key, device, hash);
  if (cached == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for kernel %s", kernel->name);
  }
  HR_RETURN_IF_ERROR(begin(cached, kernel, NULL));
  int64_t uses = BYTES_MIN / moved_bytes(kernel) + 1;
  cached->uses_wanted = device != NULL ? 0 : uses > USES_MIN ? (int32_t)uses : USES_MIN; /* 0: never recompiled */
  *out_cached = cached;
  return HR_OK;
}

/* The device that kernels belong to; NULL: the host's, which depend on none. */
static hr_device *owner_of(hr_device *device) {
  return device->driver->dialect != HR_DIALECT_HOST ? device : NULL;
}

hr_status hr__kernel_create_private(const hr_kernel *kernel, hr_device *device, const hr_cached_kernel *last,
                                    hr_cached_kernel **out_cached) {
  hr_cached_kernel *cached = hr_calloc(1, sizeof *cached);
  if (cached == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for kernel %s", kernel->name);
  }
  cached->owner = own();
  cached->device = owner_of(device);
  cached->reference_count = 1;
  HR_RETURN_IF_ERROR(begin(cached, kernel, last)); /* `uses_wanted` is 0: it is never recompiled */
  *out_cached = cached;
  return HR_OK;
}

static int count_references(const hr_cached_kernel *cached) {
  hr_mutex_lock(&cached->owner->mutex);
  int count = cached->reference_count;
  hr_mutex_unlock(&cached->owner->mutex);
  return count;
}

bool hr__kernel_renumber(hr_cached_kernel *cached, const hr_kernel *kernel, int own_references) {
  return hr__kernel_is_private(cached) && count_references(cached) <= own_references &&
         (cached->device != NULL ? hr__device_kernel_renumber(cached->host, kernel)
                                 : hr_interp_renumber(cached->host, kernel));
}

bool hr__kernel_is_private(const hr_cached_kernel *cached) {
  return cached->structure == NULL;
}

void hr__kernel_retain(hr_cached_kernel *cached) {
  hr_mutex_lock(&cached->owner->mutex);
  ++cached->reference_count;
  hr_mutex_unlock(&cached->owner->mutex);
}

void hr__kernels_retain(int count, hr_cached_kernel *const *kernels) {
  kernel_cache *cache = own();
  hr_mutex_lock(&cache->mutex);
  for (int i = 0; i < count; ++i) {
    ++kernels[i]->reference_count;
  }
  hr_mutex_unlock(&cache->mutex);
}

/* Pushes a kernel to the compile queue; called once for each. */
static void push(hr_cached_kernel *cached) {
  hr__kernel_retain(cached);
  hr__compile_queue_push(cached);
}

/* Pushes a new kernel, before its first use, if it is to be compiled at once or may be on disk. */
static void push_new(hr_cached_kernel *cached, const hr_kernel *kernel) {
  int jit = hr_env_choice(HR_ENV_JIT);
  if (jit == HR_ENV_JIT_WAIT) {
    atomic_store_explicit(&cached->uses, cached->uses_wanted, memory_order_relaxed);
    push(cached);
  } else if (jit == HR_ENV_JIT_AUTO && moved_bytes(kernel) >= LOAD_BYTES) {
    hr__kernel_retain(cached);
    hr__compile_queue_push_load(cached);
  }
}

static hr_cached_kernel *find_and_retain(const kernel_cache *cache, uint64_t hash, const hr_kernel_key *key,
                                         const hr_device *device) {
  hr_cached_kernel *cached = find(cache, hash, key, device);
  if (cached != NULL) {
    ++cached->reference_count;
  }
  return cached;
}

/* Adds a kernel, or destroys it for one like it that another thread has added meanwhile. */
static hr_status add(kernel_cache *cache, hr_cached_kernel *made, const hr_kernel_key *key,
                     hr_cached_kernel **out_cached) {
  hr_mutex_lock(&cache->mutex);
  *out_cached = find_and_retain(cache, made->hash, key, made->device);
  bool is_kept = *out_cached == NULL;
  if (is_kept) {
    made->next_same = hr_table_get(&cache->table, made->hash);
    is_kept = hr_table_put(&cache->table, made->hash, made);
    *out_cached = is_kept ? made : NULL;
  }
  hr_mutex_unlock(&cache->mutex);
  if (is_kept) {
    return HR_OK;
  }
  hr_status status = *out_cached != NULL ? HR_OK
                                         : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED,
                                                          "no host memory to keep kernel %s", made->host->name);
  destroy(made);
  return status;
}

hr_status hr__kernel_acquire(const hr_kernel *kernel, hr_device *device, hr_cached_kernel **out_cached) {
  hr_kernel_key key = {0};
  device = owner_of(device);
  if (!hr_kernel_make_key(kernel, &key)) {
    hr_vector_fini(&key);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for the key of kernel %s", kernel->name);
  }
  uint64_t hash = hr_hash_bytes(HR_HASH_SEED, key.data, key.count);
  kernel_cache *cache = own();
  hr_mutex_lock(&cache->mutex);
  *out_cached = find_and_retain(cache, hash, &key, device);
  hr_mutex_unlock(&cache->mutex);
  if (*out_cached != NULL) {
    hr_vector_fini(&key);
    return HR_OK;
  }
  hr_cached_kernel *made = NULL;
  hr_status status = create(cache, kernel, device, &key, hash, &made);
  status = status == HR_OK ? add(cache, made, &key, out_cached) : status;
  hr_vector_fini(&key);
  HR_RETURN_IF_ERROR(status);
  if (*out_cached == made && device == NULL) {
    push_new(made, kernel);
  }
  return HR_OK;
}

static void unlink_kernel(hr_cached_kernel *cached) {
  hr_table *table = &cached->owner->table;
  hr_table_unlink(table, cached->hash, cached, offsetof(hr_cached_kernel, next_same));
  if (table->count == 0) {
    hr_table_fini(table);
  }
}

void hr__kernel_release(hr_cached_kernel *cached) {
  if (cached == NULL) {
    return;
  }
  kernel_cache *cache = cached->owner;
  hr_mutex_lock(&cache->mutex);
  bool is_last = --cached->reference_count == 0;
  if (is_last && !hr__kernel_is_private(cached)) {
    unlink_kernel(cached);
  }
  hr_mutex_unlock(&cache->mutex);
  if (is_last) {
    destroy(cached);
  }
}

const hr_host_kernel *hr__kernel_host(const hr_cached_kernel *cached) {
  return cached->host;
}

const hr_host_kernel *hr__kernel_use(hr_cached_kernel *cached) {
  if (atomic_load_explicit(&cached->uses, memory_order_relaxed) < cached->uses_wanted &&
      atomic_fetch_add_explicit(&cached->uses, 1, memory_order_relaxed) == cached->uses_wanted - 1 &&
      hr_env_choice(HR_ENV_JIT) != HR_ENV_JIT_OFF) {
    push(cached);
  }
  return atomic_load_explicit(&cached->current, memory_order_acquire);
}

void hr__kernel_hold(hr_cached_kernel *cached, int change) {
  atomic_fetch_add_explicit(&cached->holder_count, change, memory_order_relaxed);
}

/* Blocks are shared by more and more kernels: their shares are those of now. */
size_t hr__kernel_footprint(hr_cached_kernel *cached) {
  const hr_host_kernel *host = cached->host;
  size_t bytes = sizeof *cached + cached->number_bytes + host->footprint;
  bytes += cached->structure != NULL ? hr_interned_share(cached->structure) : 0;
  for (int i = 0; i < HR_HOST_KERNEL_INTERNED_MAX; ++i) {
    bytes += host->interned[i] != NULL ? hr_interned_share(host->interned[i]) : 0;
  }
  int holders = atomic_load_explicit(&cached->holder_count, memory_order_relaxed);
  return bytes / (size_t)(holders > 1 ? holders : 1);
}

bool hr__kernel_is_timed(const hr_cached_kernel *cached) {
  return cached->host->bytes >= TIMED_BYTES &&
         atomic_load_explicit(&cached->uses, memory_order_relaxed) < cached->uses_wanted;
}

void hr__kernel_spend(hr_cached_kernel *cached, int64_t ns) {
  int64_t spent = atomic_fetch_add_explicit(&cached->spent_ns, ns, memory_order_relaxed) + ns;
  bool may_be_first = !atomic_load_explicit(&cached->is_postponed, memory_order_relaxed) &&
                      atomic_load_explicit(&cached->uses, memory_order_relaxed) < USES_MIN;
  if (spent >= SPENT_NS && !may_be_first &&
      atomic_exchange_explicit(&cached->uses, cached->uses_wanted, memory_order_relaxed) < cached->uses_wanted &&
      hr_env_choice(HR_ENV_JIT) != HR_ENV_JIT_OFF) {
    push(cached);
  }
}

bool hr__kernel_postpone(hr_cached_kernel *cached, int times) {
  bool is_first = hr_env_choice(HR_ENV_JIT) == HR_ENV_JIT_AUTO &&
                  !atomic_exchange_explicit(&cached->is_postponed, true, memory_order_relaxed);
  if (is_first) {
    int64_t before = INT64_C(1) * cached->uses_wanted * (1 - times);
    atomic_store_explicit(&cached->spent_ns, INT64_C(1) * SPENT_NS * (1 - times), memory_order_relaxed);
    atomic_store_explicit(&cached->uses, (int32_t)hr_max(before, INT32_MIN), memory_order_relaxed);
  }
  return is_first;
}

hr_kernel *hr__kernel_form(const hr_cached_kernel *cached, hr_arena *arena) {
  return hr_kernel_from_key(cached->structure, cached->numbers, arena);
}

bool hr__kernel_has_code(const hr_cached_kernel *cached) {
  return compiled_of(cached) != NULL;
}

void hr__kernel_publish(hr_cached_kernel *cached, hr_host_kernel *compiled) {
  atomic_store_explicit(&cached->uses, cached->uses_wanted, memory_order_relaxed); /* it is not pushed again */
  atomic_store_explicit(&cached->current, compiled, memory_order_release);
}

bool hr__kernel_is_wanted(const hr_cached_kernel *cached) {
  return count_references(cached) > 1;
}

size_t hr__kernel_cache_count(void) {
  kernel_cache *cache = own();
  hr_mutex_lock(&cache->mutex);
  size_t count = 0, cursor = 0;
  for (const hr_table_entry *entry; (entry = hr_table_next(&cache->table, &cursor)) != NULL;) {
    for (const hr_cached_kernel *cached = entry->value; cached != NULL; cached = cached->next_same) {
      ++count;
    }
  }
  hr_mutex_unlock(&cache->mutex);
  return count;
}
