#include "runtime/cached_weights.h"

#include <stdatomic.h>
#include <string.h>

#include "base/allocator.h"
#include "base/context.h"
#include "base/hash.h"
#include "base/refcount.h"
#include "base/table.h"
#include "base/thread.h"
#include "runtime/device.h"

enum { ALIGNMENT = 64, SEEN = 1024 };

/* State of a context. */
typedef struct cached_weights_lists {
  hr_mutex mutex;
  hr_table lists; /* of published entries, by stamp */
  int64_t published_bytes;
  uint64_t seen[SEEN]; /* keys of entries that were requested, each at its own place; later ones replace earlier ones */
  atomic_uint_least64_t serials;
} cached_weights_lists;

struct hr_cached_weights {
  hr_refcount refcount;
  cached_weights_lists *owner;
  hr_cached_weights *next;      /* published, of the same stamp */
  uint64_t stamp, serial, hash; /* of the recipe */
  hr_device *device;            /* whose memory `block` is; NULL: `data` is the host's */
  hr_block *block;
  void *data;
  size_t bytes;
  size_t word_count;
  uint64_t recipe[];
};

static void init_lists(void *part) {
  cached_weights_lists *all = part;
  hr_mutex_init(&all->mutex);
}

static void fini_lists(void *part);

static cached_weights_lists *lists_of(hr_context *context) {
  static const hr_context_part kind = {.bytes = sizeof(cached_weights_lists), .init = init_lists, .fini = fini_lists};
  return hr__context_part(context, HR_CONTEXT_DERIVED, &kind);
}

static bool has_recipe(const hr_cached_weights *cached_weights, const uint64_t *recipe, size_t word_count) {
  return cached_weights->word_count == word_count &&
         memcmp(cached_weights->recipe, recipe, word_count * sizeof *recipe) == 0;
}

/* Locked. A list of several entries is searched by hash. */
static hr_cached_weights *find(const cached_weights_lists *all, uint64_t stamp, const uint64_t *recipe,
                               size_t word_count) {
  hr_cached_weights *cached_weights = hr_table_get(&all->lists, stamp);
  if (cached_weights == NULL || has_recipe(cached_weights, recipe, word_count)) {
    return cached_weights;
  }
  cached_weights = cached_weights->next;
  uint64_t hash = cached_weights != NULL ? hr_hash_words(HR_HASH_SEED, recipe, word_count) : 0;
  while (cached_weights != NULL && !(cached_weights->hash == hash && has_recipe(cached_weights, recipe, word_count))) {
    cached_weights = cached_weights->next;
  }
  return cached_weights;
}

hr_cached_weights *hr__cached_weights_find(uint64_t stamp, const uint64_t *recipe, size_t word_count) {
  cached_weights_lists *all = lists_of(hr__context());
  hr_mutex_lock(&all->mutex);
  hr_cached_weights *cached_weights = find(all, stamp, recipe, word_count);
  if (cached_weights != NULL) {
    hr_refcount_retain(&cached_weights->refcount);
  }
  hr_mutex_unlock(&all->mutex);
  return cached_weights;
}

/* Allocates the entry's memory; false if none is left. */
static bool allocate(hr_cached_weights *cached_weights) {
  if (cached_weights->device == NULL) {
    cached_weights->data = hr_aligned_malloc(cached_weights->bytes, ALIGNMENT);
    return cached_weights->data != NULL;
  }
  hr_status status =
      hr_caching_allocator_alloc(&cached_weights->device->allocator, cached_weights->bytes, &cached_weights->block);
  cached_weights->data = status == HR_OK ? cached_weights->block->address : NULL;
  hr_status_ignore(status);
  return cached_weights->data != NULL;
}

static void destroy(hr_cached_weights *cached_weights) {
  if (cached_weights->device == NULL) {
    hr_aligned_free(cached_weights->data);
  } else {
    hr_caching_allocator_free(&cached_weights->device->allocator, cached_weights->block);
  }
  hr_free(cached_weights);
}

hr_cached_weights *hr__cached_weights_create(hr_device *device, uint64_t stamp, const uint64_t *recipe,
                                             size_t word_count, size_t bytes) {
  hr_cached_weights *cached_weights = hr_malloc(sizeof *cached_weights + word_count * sizeof *recipe);
  if (cached_weights == NULL) {
    return NULL;
  }
  cached_weights_lists *all = lists_of(device != NULL ? device->context : hr__context());
  *cached_weights = (hr_cached_weights){.owner = all,
                                        .stamp = stamp,
                                        .serial = atomic_fetch_add_explicit(&all->serials, 1, memory_order_relaxed) + 1,
                                        .hash = hr_hash_words(HR_HASH_SEED, recipe, word_count),
                                        .device = device,
                                        .bytes = bytes,
                                        .word_count = word_count};
  hr_refcount_init(&cached_weights->refcount);
  memcpy(cached_weights->recipe, recipe, word_count * sizeof *recipe);
  if (!allocate(cached_weights)) {
    hr_free(cached_weights);
    return NULL;
  }
  return cached_weights;
}

/* Notes a request; true if there was one before. */
static bool note_request(uint64_t stamp, const uint64_t *recipe, size_t word_count) {
  cached_weights_lists *all = lists_of(hr__context());
  uint64_t key = hr_hash_mix(hr_hash_words(HR_HASH_SEED, recipe, word_count), stamp);
  uint64_t *place = &all->seen[key % SEEN];
  hr_mutex_lock(&all->mutex);
  bool is_seen = *place == key;
  *place = key;
  hr_mutex_unlock(&all->mutex);
  return is_seen;
}

hr_cached_weights *hr__cached_weights_get(uint64_t stamp, const uint64_t *recipe, size_t word_count, size_t bytes,
                                          bool *out_is_new) {
  *out_is_new = false;
  if (stamp == 0) {
    return NULL;
  }
  hr_cached_weights *cached_weights = hr__cached_weights_find(stamp, recipe, word_count);
  if (cached_weights == NULL && note_request(stamp, recipe, word_count)) {
    cached_weights = hr__cached_weights_create(NULL, stamp, recipe, word_count, bytes);
    *out_is_new = cached_weights != NULL;
  }
  return cached_weights;
}

void hr__cached_weights_publish(hr_cached_weights *cached_weights) {
  cached_weights_lists *all = cached_weights->owner;
  hr_mutex_lock(&all->mutex);
  if (find(all, cached_weights->stamp, cached_weights->recipe, cached_weights->word_count) == NULL) {
    cached_weights->next = hr_table_get(&all->lists, cached_weights->stamp);
    if (hr_table_put(&all->lists, cached_weights->stamp, cached_weights)) {
      hr_refcount_retain(&cached_weights->refcount);
      all->published_bytes += (int64_t)cached_weights->bytes;
    } else {
      cached_weights->next = NULL;
    }
  }
  hr_mutex_unlock(&all->mutex);
}

void hr__cached_weights_release(hr_cached_weights *cached_weights) {
  if (cached_weights != NULL && hr_refcount_release(&cached_weights->refcount)) {
    destroy(cached_weights);
  }
}

uint64_t hr__cached_weights_serial(const hr_cached_weights *cached_weights) {
  return cached_weights->serial;
}

void *hr__cached_weights_data(const hr_cached_weights *cached_weights) {
  return cached_weights->data;
}

void hr__cached_weights_use(hr_cached_weights *cached_weights, const hr_lane *lane, uint64_t ticket, bool writes,
                            hr_tickets *tickets) {
  if (cached_weights->block != NULL) {
    hr__lane_use(lane, ticket, writes, &cached_weights->block->uses, tickets);
  }
}

/* Locked. Drops the list's references. */
static void release_list(cached_weights_lists *all, hr_cached_weights *list) {
  while (list != NULL) {
    hr_cached_weights *next = list->next;
    all->published_bytes -= (int64_t)list->bytes;
    hr__cached_weights_release(list);
    list = next;
  }
}

void hr__cached_weights_forget(hr_context *context, uint64_t stamp) {
  cached_weights_lists *all = lists_of(context);
  hr_mutex_lock(&all->mutex);
  release_list(all, hr_table_remove(&all->lists, stamp));
  hr_mutex_unlock(&all->mutex);
}

static void forget_all(cached_weights_lists *all) {
  hr_mutex_lock(&all->mutex);
  size_t cursor = 0;
  for (const hr_table_entry *entry; (entry = hr_table_next(&all->lists, &cursor)) != NULL;) {
    release_list(all, entry->value);
  }
  hr_table_fini(&all->lists);
  hr_mutex_unlock(&all->mutex);
}

void hr__cached_weights_forget_all(void) {
  forget_all(lists_of(hr__context()));
}

static void fini_lists(void *part) {
  cached_weights_lists *all = part;
  forget_all(all);
  hr_mutex_fini(&all->mutex);
}

int64_t hr__cached_weights_bytes(void) {
  cached_weights_lists *all = lists_of(hr__context());
  hr_mutex_lock(&all->mutex);
  int64_t bytes = all->published_bytes;
  hr_mutex_unlock(&all->mutex);
  return bytes;
}
