#include "engine/cache.h"

#include "base/allocator.h"
#include "engine/instantiate.h"

void hr__cache_init(hr_cache *cache, size_t count_max, size_t bytes_max, size_t once_bytes_max,
                    atomic_int_least64_t *total) {
  *cache = (hr_cache){.count_max = count_max,
                      .bytes_max = bytes_max,
                      .once_bytes_max = once_bytes_max,
                      .total = total,
                      .general = {.total = total}};
}

static void count_bytes(hr_cache *cache, int64_t bytes) {
  cache->bytes += (size_t)bytes;
  atomic_fetch_add_explicit(cache->total, bytes, memory_order_relaxed);
}

static void unlink_use(hr_cache *cache, hr_instance *instance) {
  *(instance->newer != NULL ? &instance->newer->older : &cache->newest) = instance->older;
  *(instance->older != NULL ? &instance->older->newer : &cache->oldest) = instance->newer;
}

static void link_use(hr_cache *cache, hr_instance *instance) {
  instance->trims = cache->trims;
  instance->newer = NULL;
  instance->older = cache->newest;
  *(cache->newest != NULL ? &cache->newest->newer : &cache->oldest) = instance;
  cache->newest = instance;
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
  --cache->count;
  count_bytes(cache, -(int64_t)instance->footprint);
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
  while (cache->once_bytes > cache->once_bytes_max && instance != new_one) {
    hr_instance *newer = instance->newer;
    if (!instance->is_repeated) {
      note_evicted(cache, instance->plan->key.hash);
      drop(cache, instance);
    }
    instance = newer;
  }
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
  hr__cache_fini(cache);
  hr__cache_init(cache, cache->count_max, cache->bytes_max, cache->once_bytes_max, cache->total);
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
  instance->trims = cache->trims;
  if (instance != cache->newest) {
    unlink_use(cache, instance);
    link_use(cache, instance);
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
  ++cache->count;
  count_bytes(cache, (int64_t)instance->footprint);
  cache->once_bytes += instance->footprint;
  if (was_evicted(cache, instance->plan->key.hash)) {
    set_repeated(cache, instance);
  }
  evict_once(cache, instance);
  while (cache->oldest != instance && (cache->count > cache->count_max || cache->bytes > cache->bytes_max)) {
    drop(cache, cache->oldest);
  }
  return HR_OK;
}
