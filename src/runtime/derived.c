#include "runtime/derived.h"

#include <stdatomic.h>
#include <string.h>

#include "base/allocator.h"
#include "base/context.h"
#include "base/hash.h"
#include "base/refcount.h"
#include "base/table.h"
#include "base/thread.h"
#include "runtime/device.h"

enum { ALIGNMENT = 64 };

/* A context's. */
typedef struct derived_lists {
  hr_mutex mutex;
  hr_table lists; /* of published entries, by stamp */
  int64_t published_bytes;
  atomic_uint_least64_t serials;
} derived_lists;

struct hr_derived {
  hr_refcount refcount;
  derived_lists *owner;
  hr_derived *next;             /* published, of the same stamp */
  uint64_t stamp, serial, hash; /* of the recipe */
  hr_device *device;            /* whose memory `block` is; NULL: `data` is the host's */
  hr_block *block;
  void *data;
  size_t bytes;
  size_t word_count;
  uint64_t recipe[];
};

static void init_lists(void *part) {
  derived_lists *all = part;
  hr_mutex_init(&all->mutex);
}

static void fini_lists(void *part);

static derived_lists *lists_of(hr_context *context) {
  static const hr_context_part kind = {.bytes = sizeof(derived_lists), .init = init_lists, .fini = fini_lists};
  return hr__context_part(context, HR_CONTEXT_DERIVED, &kind);
}

static bool has_recipe(const hr_derived *derived, const uint64_t *recipe, size_t word_count) {
  return derived->word_count == word_count && memcmp(derived->recipe, recipe, word_count * sizeof *recipe) == 0;
}

/* Locked. A list of several is searched by hashes. */
static hr_derived *find(const derived_lists *all, uint64_t stamp, const uint64_t *recipe, size_t word_count) {
  hr_derived *derived = hr_table_get(&all->lists, stamp);
  if (derived == NULL || has_recipe(derived, recipe, word_count)) {
    return derived;
  }
  derived = derived->next;
  uint64_t hash = derived != NULL ? hr_hash_words(HR_HASH_SEED, recipe, word_count) : 0;
  while (derived != NULL && !(derived->hash == hash && has_recipe(derived, recipe, word_count))) {
    derived = derived->next;
  }
  return derived;
}

hr_derived *hr__derived_find(uint64_t stamp, const uint64_t *recipe, size_t word_count) {
  derived_lists *all = lists_of(hr__context());
  hr_mutex_lock(&all->mutex);
  hr_derived *derived = find(all, stamp, recipe, word_count);
  if (derived != NULL) {
    hr_refcount_retain(&derived->refcount);
  }
  hr_mutex_unlock(&all->mutex);
  return derived;
}

/* Memory for it; false when there is none. */
static bool allocate(hr_derived *derived) {
  if (derived->device == NULL) {
    derived->data = hr_aligned_malloc(derived->bytes, ALIGNMENT);
    return derived->data != NULL;
  }
  hr_status status = hr_caching_allocator_alloc(&derived->device->allocator, derived->bytes, &derived->block);
  derived->data = status == NULL ? derived->block->address : NULL;
  hr_status_ignore(status);
  return derived->data != NULL;
}

static void destroy(hr_derived *derived) {
  if (derived->device == NULL) {
    hr_aligned_free(derived->data);
  } else {
    hr_caching_allocator_free(&derived->device->allocator, derived->block);
  }
  hr_free(derived);
}

hr_derived *hr__derived_create(hr_device *device, uint64_t stamp, const uint64_t *recipe, size_t word_count,
                               size_t bytes) {
  hr_derived *derived = hr_malloc(sizeof *derived + word_count * sizeof *recipe);
  if (derived == NULL) {
    return NULL;
  }
  derived_lists *all = lists_of(device != NULL ? device->context : hr__context());
  *derived = (hr_derived){.owner = all,
                          .stamp = stamp,
                          .serial = atomic_fetch_add_explicit(&all->serials, 1, memory_order_relaxed) + 1,
                          .hash = hr_hash_words(HR_HASH_SEED, recipe, word_count),
                          .device = device,
                          .bytes = bytes,
                          .word_count = word_count};
  hr_refcount_init(&derived->refcount);
  memcpy(derived->recipe, recipe, word_count * sizeof *recipe);
  if (!allocate(derived)) {
    hr_free(derived);
    return NULL;
  }
  return derived;
}

hr_derived *hr__derived_get(uint64_t stamp, uint64_t *seen_stamp, const uint64_t *recipe, size_t word_count,
                            size_t bytes, bool *out_is_new) {
  *out_is_new = false;
  if (stamp == 0) {
    return NULL;
  }
  bool is_seen = stamp == *seen_stamp;
  *seen_stamp = stamp;
  hr_derived *derived = hr__derived_find(stamp, recipe, word_count);
  if (derived == NULL && is_seen) {
    derived = hr__derived_create(NULL, stamp, recipe, word_count, bytes);
    *out_is_new = derived != NULL;
  }
  return derived;
}

void hr__derived_publish(hr_derived *derived) {
  derived_lists *all = derived->owner;
  hr_mutex_lock(&all->mutex);
  if (find(all, derived->stamp, derived->recipe, derived->word_count) == NULL) {
    derived->next = hr_table_get(&all->lists, derived->stamp);
    if (hr_table_put(&all->lists, derived->stamp, derived)) {
      hr_refcount_retain(&derived->refcount);
      all->published_bytes += (int64_t)derived->bytes;
    } else {
      derived->next = NULL;
    }
  }
  hr_mutex_unlock(&all->mutex);
}

void hr__derived_release(hr_derived *derived) {
  if (derived != NULL && hr_refcount_release(&derived->refcount)) {
    destroy(derived);
  }
}

uint64_t hr__derived_serial(const hr_derived *derived) {
  return derived->serial;
}

void *hr__derived_data(const hr_derived *derived) {
  return derived->data;
}

/* Locked: the list's references go. */
static void release_list(derived_lists *all, hr_derived *list) {
  while (list != NULL) {
    hr_derived *next = list->next;
    all->published_bytes -= (int64_t)list->bytes;
    hr__derived_release(list);
    list = next;
  }
}

void hr__derived_forget(hr_context *context, uint64_t stamp) {
  derived_lists *all = lists_of(context);
  hr_mutex_lock(&all->mutex);
  release_list(all, hr_table_remove(&all->lists, stamp));
  hr_mutex_unlock(&all->mutex);
}

static void forget_all(derived_lists *all) {
  hr_mutex_lock(&all->mutex);
  size_t cursor = 0;
  for (const hr_table_entry *entry; (entry = hr_table_next(&all->lists, &cursor)) != NULL;) {
    release_list(all, entry->value);
  }
  hr_table_fini(&all->lists);
  hr_mutex_unlock(&all->mutex);
}

void hr__derived_forget_all(void) {
  forget_all(lists_of(hr__context()));
}

static void fini_lists(void *part) {
  derived_lists *all = part;
  forget_all(all);
  hr_mutex_fini(&all->mutex);
}

int64_t hr__derived_bytes(void) {
  derived_lists *all = lists_of(hr__context());
  hr_mutex_lock(&all->mutex);
  int64_t bytes = all->published_bytes;
  hr_mutex_unlock(&all->mutex);
  return bytes;
}
