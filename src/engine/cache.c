#include "engine/cache.h"

void hr__cache_init(hr_cache *cache, size_t count_max, size_t bytes_max) {
  *cache = (hr_cache){.count_max = count_max, .bytes_max = bytes_max};
}

static void unlink_use(hr_cache *cache, hr_executable *executable) {
  *(executable->newer != NULL ? &executable->newer->older : &cache->newest) = executable->older;
  *(executable->older != NULL ? &executable->older->newer : &cache->oldest) = executable->newer;
}

static void link_use(hr_cache *cache, hr_executable *executable) {
  executable->newer = NULL;
  executable->older = cache->newest;
  *(cache->newest != NULL ? &cache->newest->newer : &cache->oldest) = executable;
  cache->newest = executable;
}

/* Takes an executable out of the chain of its hash. Nothing can fail: the slot is there, or its entry goes. */
static void unlink_hash(hr_cache *cache, hr_executable *executable) {
  uint64_t hash = executable->key.hash;
  hr_executable *first = hr_table_get(&cache->table, hash);
  if (first != executable) {
    while (first->next_same != executable) {
      first = first->next_same;
    }
    first->next_same = executable->next_same;
  } else if (executable->next_same == NULL) {
    hr_table_remove(&cache->table, hash);
  } else {
    bool replaced = hr_table_put(&cache->table, hash, executable->next_same);
    (void)replaced;
  }
}

static void unlink_followed(hr_cache *cache, const hr_executable *executable) {
  for (hr_executable *each = cache->newest; each != NULL; each = each->older) {
    each->follower = each->follower != executable ? each->follower : NULL;
  }
}

static void drop(hr_cache *cache, hr_executable *executable) {
  unlink_hash(cache, executable);
  unlink_use(cache, executable);
  unlink_followed(cache, executable);
  cache->count--;
  cache->bytes -= executable->footprint;
  hr__executable_release(executable);
}

void hr__cache_fini(hr_cache *cache) {
  while (cache->oldest != NULL) {
    drop(cache, cache->oldest);
  }
  hr_table_fini(&cache->table);
}

hr_executable *hr__cache_find_expected(const hr_cache *cache, const hr_key *key) {
  hr_executable *expected = cache->newest != NULL ? cache->newest->follower : NULL;
  return expected != NULL && hr__executable_fits(expected, key) ? expected : NULL;
}

static hr_executable *find_by_hash(const hr_cache *cache, hr_key *key) {
  hr_executable *executable = hr_table_get(&cache->table, hr__key_hash(key));
  while (executable != NULL && !hr__executable_fits(executable, key)) {
    executable = executable->next_same;
  }
  return executable;
}

hr_executable *hr__cache_find(hr_cache *cache, hr_key *key) {
  hr_executable *executable = hr__cache_find_expected(cache, key);
  executable = executable != NULL ? executable : find_by_hash(cache, key);
  if (executable == NULL) {
    return NULL;
  }
  cache->newest->follower = executable;
  if (executable != cache->newest) {
    unlink_use(cache, executable);
    link_use(cache, executable);
  }
  return executable;
}

hr_status hr__cache_add(hr_cache *cache, hr_executable *executable) {
  executable->next_same = hr_table_get(&cache->table, executable->key.hash);
  if (!hr_table_put(&cache->table, executable->key.hash, executable)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for entry %zu of a program cache",
                          cache->count);
  }
  if (cache->newest != NULL) {
    cache->newest->follower = executable;
  }
  link_use(cache, executable);
  cache->count++;
  cache->bytes += executable->footprint;
  while (cache->oldest != executable && (cache->count > cache->count_max || cache->bytes > cache->bytes_max)) {
    drop(cache, cache->oldest);
  }
  return HR_OK;
}
