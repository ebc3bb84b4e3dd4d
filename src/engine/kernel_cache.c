#include "engine/kernel_cache.h"

#include <string.h>

#include "base/hash.h"
#include "base/table.h"
#include "base/thread.h"
#include "interp/interp.h"

struct hr_cached_kernel {
  hr_kernel_key key;
  uint64_t hash;
  int reference_count; /* guarded by the cache's lock */
  hr_host_kernel *host;
  hr_cached_kernel *next_same; /* equal hashes hang off each other */
};

static hr_mutex mutex = HR_MUTEX_INITIALIZER;
static hr_table table; /* by hash */

static hr_cached_kernel *find(uint64_t hash, const hr_kernel_key *key) {
  hr_cached_kernel *cached = hr_table_get(&table, hash);
  while (cached != NULL && (cached->key.count != key->count ||
                            memcmp(cached->key.data, key->data, key->count * sizeof *key->data) != 0)) {
    cached = cached->next_same;
  }
  return cached;
}

static void destroy(hr_cached_kernel *cached) {
  if (cached->host != NULL) {
    cached->host->destroy(cached->host);
  }
  hr_vector_fini(&cached->key);
  hr_free(cached);
}

/* Takes over the key, also when it fails. */
static hr_status create(const hr_kernel *kernel, hr_kernel_key *key, uint64_t hash, hr_cached_kernel **out_cached) {
  hr_cached_kernel *cached = hr_calloc(1, sizeof *cached);
  if (cached == NULL) {
    hr_vector_fini(key);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for kernel %s", kernel->name);
  }
  *cached = (hr_cached_kernel){.key = *key, .hash = hash, .reference_count = 1};
  hr_status status = hr_interp_create(kernel, &cached->host);
  cached->next_same = hr_table_get(&table, hash);
  if (status == NULL && !hr_table_put(&table, hash, cached)) {
    status = hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory to keep kernel %s", kernel->name);
  }
  if (status != NULL) {
    destroy(cached);
    return status;
  }
  *out_cached = cached;
  return HR_OK;
}

hr_status hr__kernel_acquire(const hr_kernel *kernel, hr_cached_kernel **out_cached) {
  hr_kernel_key key = {0};
  if (!hr_kernel_make_key(kernel, &key)) {
    hr_vector_fini(&key);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for the key of kernel %s", kernel->name);
  }
  uint64_t hash = hr_hash_words(HR_HASH_SEED, key.data, key.count);
  hr_status status = HR_OK;
  hr_mutex_lock(&mutex);
  hr_cached_kernel *cached = find(hash, &key);
  if (cached != NULL) {
    ++cached->reference_count;
    *out_cached = cached;
    hr_vector_fini(&key);
  } else {
    status = create(kernel, &key, hash, out_cached);
  }
  hr_mutex_unlock(&mutex);
  return status;
}

/* Takes a kernel out of the chain of its hash. Replacing an entry needs no memory. */
static void unlink_kernel(hr_cached_kernel *cached) {
  hr_cached_kernel *first = hr_table_get(&table, cached->hash);
  if (first == cached && cached->next_same == NULL) {
    (void)hr_table_remove(&table, cached->hash);
  } else if (first == cached) {
    (void)hr_table_put(&table, cached->hash, cached->next_same);
  } else {
    while (first->next_same != cached) {
      first = first->next_same;
    }
    first->next_same = cached->next_same;
  }
  if (table.count == 0) {
    hr_table_fini(&table);
  }
}

void hr__kernel_release(hr_cached_kernel *cached) {
  if (cached == NULL) {
    return;
  }
  hr_mutex_lock(&mutex);
  bool is_last = --cached->reference_count == 0;
  if (is_last) {
    unlink_kernel(cached);
  }
  hr_mutex_unlock(&mutex);
  if (is_last) {
    destroy(cached);
  }
}

const hr_host_kernel *hr__kernel_host(const hr_cached_kernel *cached) {
  return cached->host;
}

size_t hr__kernel_cache_count(void) {
  hr_mutex_lock(&mutex);
  size_t count = 0, cursor = 0;
  for (const hr_table_entry *entry; (entry = hr_table_next(&table, &cursor)) != NULL;) {
    for (const hr_cached_kernel *cached = entry->value; cached != NULL; cached = cached->next_same) {
      ++count;
    }
  }
  hr_mutex_unlock(&mutex);
  return count;
}
