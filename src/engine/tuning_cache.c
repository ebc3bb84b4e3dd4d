#include "engine/tuning_cache.h"

#include <stdatomic.h>
#include <string.h>

#include "base/allocator.h"
#include "base/context.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/table.h"
#include "base/thread.h"
#include "engine/disk_cache.h"

enum { CHOICES_MAX = 4096, ALGORITHM_MAX = 64, MISSES_MIN = 8, LISTED_MAX = 1 << 15 };
/* The version of keys and values: entries of another version are not found. */
static const uint64_t FORM = UINT64_C(0x31736563696f6863); /* "choices1" */

/* A context's. */
typedef struct tuning_cache {
  hr_mutex mutex;
  hr_table table; /* by the key's hash */
  hr_table named; /* by callers' hashes; at most CHOICES_MAX */
  hr_disk_cache disk;
  bool is_tried, is_there;
  hr_table on_disk; /* the entries of the folder, by hr__disk_cache_hash, if is_listed */
  int misses;       /* keys that were not on disk */
  bool is_listed;
} tuning_cache;

struct hr_tuning_entry {
  tuning_cache *owner;
  char *key;
  size_t length;
  bool is_open, is_claimed;
  char algorithm[ALGORITHM_MAX]; /* empty until is_known, and then the same to the end */
  atomic_bool is_known;
  hr_tuning_entry *next_same; /* chain of equal hashes */
};

static void init_cache(void *part) {
  tuning_cache *cache = part;
  hr_mutex_init(&cache->mutex);
}

static void forget(tuning_cache *cache);

static void fini_cache(void *part) {
  tuning_cache *cache = part;
  forget(cache);
  hr_mutex_fini(&cache->mutex);
}

static tuning_cache *own(void) {
  static const hr_context_part kind = {.bytes = sizeof(tuning_cache), .init = init_cache, .fini = fini_cache};
  return hr__context_part(hr__context(), HR_CONTEXT_TUNING, &kind);
}

/* New dims mostly have no entry, and opening a file that does not exist takes longer than the rest of the search: after
 * a few misses the folder's names are read once. Entries that other processes add later are not seen. */
static bool may_be_on_disk(tuning_cache *cache, const char *key, size_t length) {
  if (cache->misses == MISSES_MIN) {
    ++cache->misses;
    cache->is_listed = hr__disk_cache_list_tunings(&cache->disk, LISTED_MAX, &cache->on_disk);
  }
  return !cache->is_listed || hr_table_get(&cache->on_disk, hr__disk_cache_hash(&cache->disk, key, length)) != NULL;
}

static bool read_value(tuning_cache *cache, const char *key, size_t length, hr_text *out_value) {
  bool is_found =
      may_be_on_disk(cache, key, length) && hr__disk_cache_find_tuning(&cache->disk, key, length, out_value);
  cache->misses += !is_found && cache->misses < MISSES_MIN;
  return is_found;
}

/* A value is the name of the algorithm in a line, and a note for people. */
static void read_algorithm(const char *key, size_t length, hr_tuning_entry *tuning_entry) {
  hr_text value = {0};
  if (read_value(tuning_entry->owner, key, length, &value)) {
    size_t end = strcspn(hr_text_chars(&value), "\n");
    tuning_entry->is_open = end >= ALGORITHM_MAX;
    memcpy(tuning_entry->algorithm, hr_text_chars(&value), tuning_entry->is_open ? 0 : end);
    atomic_store(&tuning_entry->is_known, !tuning_entry->is_open);
  }
  hr_text_fini(&value);
}

static void destroy(hr_tuning_entry *tuning_entry) {
  hr_free(tuning_entry->key);
  hr_free(tuning_entry);
}

/* Under the lock. */
static hr_tuning_entry *add(tuning_cache *cache, uint64_t hash, const char *key, size_t length) {
  hr_tuning_entry *tuning_entry = cache->table.count < CHOICES_MAX ? hr_calloc(1, sizeof *tuning_entry) : NULL;
  if (tuning_entry == NULL) {
    return NULL;
  }
  *tuning_entry = (hr_tuning_entry){.owner = cache, .key = hr_calloc(1, length + 1), .length = length, .is_open = true};
  tuning_entry->next_same = hr_table_get(&cache->table, hash);
  if (tuning_entry->key == NULL || !hr_table_put(&cache->table, hash, tuning_entry)) {
    destroy(tuning_entry);
    return NULL;
  }
  memcpy(tuning_entry->key, key, length);
  read_algorithm(key, length, tuning_entry);
  return tuning_entry;
}

static bool open_disk(tuning_cache *cache) {
  if (!cache->is_tried) {
    hr_status status = hr_env_choice(HR_ENV_TUNING) != HR_ENV_TUNING_OFF
                           ? hr__disk_cache_open(FORM, &cache->disk)
                           : hr_status_make(HR_STATUS_FAILED_PRECONDITION, "HEADRACE_TUNING is off");
    cache->is_there = status == HR_OK;
    hr_log(HR_LOG_DEVICE, "choices by measurement: %s", hr_status_message(status));
    hr_status_ignore(status);
    cache->is_tried = true;
  }
  return cache->is_there;
}

hr_tuning_entry *hr__tuning_entry_find(const char *key, size_t length) {
  uint64_t hash = hr_hash_bytes(HR_HASH_SEED, key, length);
  tuning_cache *cache = own();
  hr_mutex_lock(&cache->mutex);
  hr_tuning_entry *tuning_entry = hr_table_get(&cache->table, hash);
  while (tuning_entry != NULL && (tuning_entry->length != length || memcmp(tuning_entry->key, key, length) != 0)) {
    tuning_entry = tuning_entry->next_same;
  }
  if (tuning_entry == NULL && open_disk(cache)) {
    tuning_entry = add(cache, hash, key, length);
  }
  hr_mutex_unlock(&cache->mutex);
  return tuning_entry;
}

hr_tuning_entry *hr__tuning_entry_find_named(uint64_t hash) {
  tuning_cache *cache = own();
  hr_mutex_lock(&cache->mutex);
  hr_tuning_entry *tuning_entry = hr_table_get(&cache->named, hash);
  hr_mutex_unlock(&cache->mutex);
  return tuning_entry;
}

void hr__tuning_entry_name(hr_tuning_entry *tuning_entry, uint64_t hash) {
  tuning_cache *cache = own();
  hr_mutex_lock(&cache->mutex);
  if (tuning_entry != NULL && cache->named.count < CHOICES_MAX) {
    (void)!hr_table_put(&cache->named, hash, tuning_entry); /* without memory the key is made again */
  }
  hr_mutex_unlock(&cache->mutex);
}

const char *hr__tuning_entry_key(const hr_tuning_entry *tuning_entry) {
  return tuning_entry->key;
}

const char *hr__tuning_entry_algorithm(const hr_tuning_entry *tuning_entry) {
  return atomic_load(&tuning_entry->is_known) ? tuning_entry->algorithm : "";
}

/* Under the lock. */
static bool may_be_measured(const hr_tuning_entry *tuning_entry) {
  return tuning_entry->is_open && hr_env_choice(HR_ENV_TUNING) == HR_ENV_TUNING_MEASURE;
}

bool hr__tuning_entry_is_open(hr_tuning_entry *tuning_entry) {
  hr_mutex_lock(&tuning_entry->owner->mutex);
  bool is_open = may_be_measured(tuning_entry);
  hr_mutex_unlock(&tuning_entry->owner->mutex);
  return is_open;
}

bool hr__tuning_entry_claim(hr_tuning_entry *tuning_entry) {
  hr_mutex_lock(&tuning_entry->owner->mutex);
  bool is_free = may_be_measured(tuning_entry) && !tuning_entry->is_claimed;
  tuning_entry->is_claimed |= is_free;
  hr_mutex_unlock(&tuning_entry->owner->mutex);
  return is_free;
}

void hr__tuning_entry_unclaim(hr_tuning_entry *tuning_entry) {
  hr_mutex_lock(&tuning_entry->owner->mutex);
  tuning_entry->is_claimed = false;
  hr_mutex_unlock(&tuning_entry->owner->mutex);
}

void hr__tuning_entry_close(hr_tuning_entry *tuning_entry, const char *algorithm, const char *note) {
  hr_text value = {0};
  hr_mutex_lock(&tuning_entry->owner->mutex);
  if (tuning_entry->is_open && hr_text_printf(&value, "%s\n%s", algorithm, note)) {
    hr_status_ignore(hr__disk_cache_add_tuning(&tuning_entry->owner->disk, tuning_entry->key, tuning_entry->length,
                                               value.data, value.length));
  }
  tuning_entry->is_open = false;
  hr_mutex_unlock(&tuning_entry->owner->mutex);
  hr_text_fini(&value);
}

void hr__tuning_entry_settle(hr_tuning_entry *tuning_entry, const char *algorithm, const char *note) {
  hr_mutex_lock(&tuning_entry->owner->mutex);
  bool is_first = tuning_entry->is_open && strlen(algorithm) < ALGORITHM_MAX;
  if (is_first) {
    memcpy(tuning_entry->algorithm, algorithm, strlen(algorithm));
    atomic_store(&tuning_entry->is_known, true);
  }
  hr_mutex_unlock(&tuning_entry->owner->mutex);
  if (is_first) {
    hr__tuning_entry_close(tuning_entry, algorithm, note);
  }
}

void hr__tuning_entry_leave(hr_tuning_entry *tuning_entry) {
  hr_mutex_lock(&tuning_entry->owner->mutex);
  tuning_entry->is_open = false;
  hr_mutex_unlock(&tuning_entry->owner->mutex);
}

static void forget(tuning_cache *cache) {
  size_t cursor = 0;
  hr_mutex_lock(&cache->mutex);
  for (const hr_table_entry *entry; (entry = hr_table_next(&cache->table, &cursor)) != NULL;) {
    for (hr_tuning_entry *tuning_entry = entry->value, *next; tuning_entry != NULL; tuning_entry = next) {
      next = tuning_entry->next_same;
      destroy(tuning_entry);
    }
  }
  hr_table_fini(&cache->table);
  hr_table_fini(&cache->named);
  hr_table_fini(&cache->on_disk);
  cache->misses = 0;
  cache->is_listed = false;
  if (cache->is_there) {
    hr__disk_cache_fini(&cache->disk);
  }
  cache->is_tried = cache->is_there = false;
  hr_mutex_unlock(&cache->mutex);
}

void hr__tuning_cache_forget(void) {
  forget(own());
}
