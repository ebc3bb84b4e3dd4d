#include "engine/cache.h"

#include "base/allocator.h"
#include "engine/instantiate.h"

void hr__cache_init(hr_cache *cache, const hr_cache_limits *limits, atomic_int_least64_t *total) {
  *cache = (hr_cache){.limits = *limits, .total = total, .general = {.total = total}};
}

static void count_bytes(hr_cache *cache, int64_t bytes) {
  cache->bytes += (size_t)bytes;
  atomic_fetch_add_explicit(cache->total, bytes, memory_order_relaxed);
}

/* True if the entry is one of those that general_instance.h bounds. */
static bool is_copy(const hr_instance *instance) {
  return instance->plan->is_general && instance->plan->device_kind.properties.is_host;
}

/* Adds an entry to the counts, or removes it if `by` is -1. */
static void count_entry(hr_cache *cache, const hr_instance *instance, int by) {
  size_t bytes = instance->footprint;
  cache->count += (size_t)by;
  count_bytes(cache, by * (int64_t)bytes);
  cache->copies += is_copy(instance) ? (size_t)by : 0;
  cache->copy_bytes += is_copy(instance) ? (size_t)by * bytes : 0;
}

static hr_instance *first_copy(hr_instance *instance) {
  while (instance != NULL && !is_copy(instance)) {
    instance = instance->newer;
  }
  return instance;
}

static void unlink_use(hr_cache *cache, hr_instance *instance) {
  if (instance == cache->oldest_copy) {
    cache->oldest_copy = first_copy(instance->newer);
  }
  *(instance->newer != NULL ? &instance->newer->older : &cache->newest) = instance->older;
  *(instance->older != NULL ? &instance->older->newer : &cache->oldest) = instance->newer;
}

static void link_use(hr_cache *cache, hr_instance *instance) {
  instance->trims = cache->trims;
  instance->last_use = ++cache->uses;
  instance->newer = NULL;
  instance->older = cache->newest;
  *(cache->newest != NULL ? &cache->newest->newer : &cache->oldest) = instance;
  cache->newest = instance;
  if (cache->oldest_copy == NULL && is_copy(instance)) {
    cache->oldest_copy = instance;
  }
}

static void unlink_followed(hr_cache *cache, const hr_instance *instance) {
  for (hr_instance *each = cache->newest; each != NULL; each = each->older) {
    each->successor = each->successor != instance ? each->successor : NULL;
  }
}

static void drop(hr_cache *cache, hr_instance *instance) {
  hr_table_unlink(&cache->table, instance->plan->key.hash, instance, offsetof(hr_instance, next_same));
  unlink_use(cache, instance);
  unlink_followed(cache, instance);
  count_entry(cache, instance, -1);
  cache->once_bytes -= instance->is_repeated ? 0 : instance->footprint;
  hr__instance_release(instance);
}

/* ---- entries that were not found again ---- */

static void note_evicted(hr_cache *cache, uint64_t hash) {
  if (cache->evicted == NULL) {
    cache->evicted = hr_calloc(HR_CACHE_EVICTED, sizeof *cache->evicted);
  }
  if (cache->evicted != NULL) {
    cache->evicted[hash % HR_CACHE_EVICTED] = hash;
  }
}

static bool was_evicted(const hr_cache *cache, uint64_t hash) {
  return cache->evicted != NULL && cache->evicted[hash % HR_CACHE_EVICTED] == hash;
}

static void set_repeated(hr_cache *cache, hr_instance *instance) {
  cache->once_bytes -= instance->is_repeated ? 0 : instance->footprint;
  instance->is_repeated = true;
}

/* Evicts the least recently used of them beyond their bound, but not the new one. */
static void evict_once(hr_cache *cache, const hr_instance *new_one) {
  hr_instance *instance = cache->oldest;
  while (cache->once_bytes > cache->limits.once_bytes && instance != new_one) {
    hr_instance *newer = instance->newer;
    if (!instance->is_repeated) {
      note_evicted(cache, instance->plan->key.hash);
      drop(cache, instance);
    }
    instance = newer;
  }
}

/* ---- copies of general plans ---- */

static bool has_room_for_copies(const hr_cache *cache) {
  return cache->copies <= HR_CACHE_COPIES_MIN || cache->copy_bytes <= cache->limits.copy_bytes;
}

/* Evicts the least recently used of them beyond their bound, but not the new entry. */
static void evict_copies(hr_cache *cache, const hr_instance *new_one) {
  while (!has_room_for_copies(cache) && cache->oldest_copy != new_one) {
    drop(cache, cache->oldest_copy);
    cache->is_full_of_copies = true;
  }
}

/* True until copies evict each other. The one that was evicted leaves some bytes, but no room for the next. */
static bool may_have_more_copies(hr_cache *cache) {
  if (cache->copies < HR_CACHE_COPIES_MIN || cache->copy_bytes <= cache->limits.copy_bytes / 4 * 3) {
    cache->is_full_of_copies = false;
  }
  return !cache->is_full_of_copies;
}

hr_instance *hr__cache_find_general(hr_cache *cache, hr_key *key, hr_device *device) {
  uint32_t now = ++cache->uses;
  uint32_t reach = may_have_more_copies(cache) ? UINT32_MAX : (now - cache->oldest_copy->last_use) / 2;
  return hr__general_instance_find(&cache->general, key, device, now, reach);
}

void hr__cache_fini(hr_cache *cache) {
  while (cache->oldest != NULL) {
    drop(cache, cache->oldest);
  }
  hr_table_fini(&cache->table);
  hr_free(cache->evicted);
  cache->evicted = NULL;
  hr__general_instances_fini(&cache->general);
}

void hr__cache_clear(hr_cache *cache) {
  uint32_t trims = cache->trims;
  const hr_cache_limits limits = cache->limits;
  hr__cache_fini(cache);
  hr__cache_init(cache, &limits, cache->total);
  cache->trims = trims;
}

void hr__cache_trim(hr_cache *cache) {
  while (cache->oldest != NULL && (cache->trims == 0 || cache->oldest->trims < cache->trims)) {
    drop(cache, cache->oldest);
  }
  hr__general_instances_trim(&cache->general);
  ++cache->trims;
}

hr_instance *hr__cache_find_expected(const hr_cache *cache, const hr_key *key) {
  hr_instance *expected = cache->newest != NULL ? cache->newest->successor : NULL;
  return expected != NULL && hr__plan_fits(expected->plan, key) ? expected : NULL;
}

static hr_instance *find_by_hash(const hr_cache *cache, hr_key *key) {
  hr_instance *instance = hr_table_get(&cache->table, hr__key_hash(key));
  while (instance != NULL && !hr__plan_fits(instance->plan, key)) {
    instance = instance->next_same;
  }
  return instance;
}

void hr__cache_use(hr_cache *cache, hr_instance *instance) {
  cache->newest->successor = instance;
  set_repeated(cache, instance);
  if (instance != cache->newest) {
    unlink_use(cache, instance);
    link_use(cache, instance);
  } else {
    instance->trims = cache->trims;
    instance->last_use = ++cache->uses;
  }
}

hr_instance *hr__cache_find(hr_cache *cache, hr_key *key) {
  hr_instance *instance = hr__cache_find_expected(cache, key);
  instance = instance != NULL ? instance : find_by_hash(cache, key);
  if (instance != NULL) {
    hr__cache_use(cache, instance);
  }
  return instance;
}

hr_status hr__cache_add(hr_cache *cache, hr_instance *instance) {
  instance->next_same = hr_table_get(&cache->table, instance->plan->key.hash);
  if (!hr_table_put(&cache->table, instance->plan->key.hash, instance)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for entry %zu of a program cache",
                          cache->count);
  }
  if (cache->newest != NULL) {
    cache->newest->successor = instance;
  }
  link_use(cache, instance);
  count_entry(cache, instance, 1);
  cache->once_bytes += instance->footprint;
  if (was_evicted(cache, instance->plan->key.hash)) {
    set_repeated(cache, instance);
  }
  evict_once(cache, instance);
  evict_copies(cache, instance);
  while (cache->oldest != instance && (cache->count > cache->limits.count || cache->bytes > cache->limits.bytes)) {
    drop(cache, cache->oldest);
  }
  return HR_OK;
}
