#include "engine/choices.h"

#include <stdatomic.h>
#include <string.h>

#include "base/allocator.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/table.h"
#include "base/thread.h"
#include "engine/disk_cache.h"

enum { CHOICES_MAX = 4096, WAY_MAX = 64 };
/* Of the form of keys and values: what was written in another form is not found. */
static const uint64_t FORM = UINT64_C(0x31736563696f6863); /* "choices1" */

struct hr_choice {
  char *key;
  size_t length;
  bool is_open, is_claimed;
  char way[WAY_MAX]; /* empty until is_known, and then the same to the end */
  atomic_bool is_known;
  hr_choice *next_same; /* equal hashes hang off each other */
};

static hr_mutex mutex = HR_MUTEX_INITIALIZER;
static hr_table table; /* by the key's hash */
static hr_disk_cache disk;
static bool is_tried, is_there;

/* A value is the name of the way in a line, and what people may want to know. */
static void read_way(const char *key, size_t length, hr_choice *choice) {
  hr_text value = {0};
  if (hr__disk_cache_find_choice(&disk, key, length, &value)) {
    size_t end = strcspn(hr_text_chars(&value), "\n");
    choice->is_open = end >= WAY_MAX;
    memcpy(choice->way, hr_text_chars(&value), choice->is_open ? 0 : end);
    atomic_store(&choice->is_known, !choice->is_open);
  }
  hr_text_fini(&value);
}

static void destroy(hr_choice *choice) {
  hr_free(choice->key);
  hr_free(choice);
}

/* Under the lock. */
static hr_choice *add(uint64_t hash, const char *key, size_t length) {
  hr_choice *choice = table.count < CHOICES_MAX ? hr_calloc(1, sizeof *choice) : NULL;
  if (choice == NULL) {
    return NULL;
  }
  *choice = (hr_choice){.key = hr_calloc(1, length + 1), .length = length, .is_open = true};
  choice->next_same = hr_table_get(&table, hash);
  if (choice->key == NULL || !hr_table_put(&table, hash, choice)) {
    destroy(choice);
    return NULL;
  }
  memcpy(choice->key, key, length);
  read_way(key, length, choice);
  return choice;
}

static bool open_disk(void) {
  if (!is_tried) {
    hr_status status = hr_env_choice(HR_ENV_CHOICES) != HR_ENV_CHOICES_OFF
                           ? hr__disk_cache_open(FORM, &disk)
                           : hr_status_make(HR_STATUS_FAILED_PRECONDITION, "HEADRACE_CHOICES is off");
    is_there = status == NULL;
    hr_log(HR_LOG_DEVICE, "choices by measurement: %s", hr_status_message(status));
    hr_status_ignore(status);
    is_tried = true;
  }
  return is_there;
}

hr_choice *hr__choice_find(const char *key, size_t length) {
  uint64_t hash = hr_hash_bytes(HR_HASH_SEED, key, length);
  hr_mutex_lock(&mutex);
  hr_choice *choice = hr_table_get(&table, hash);
  while (choice != NULL && (choice->length != length || memcmp(choice->key, key, length) != 0)) {
    choice = choice->next_same;
  }
  if (choice == NULL && open_disk()) {
    choice = add(hash, key, length);
  }
  hr_mutex_unlock(&mutex);
  return choice;
}

const char *hr__choice_key(const hr_choice *choice) {
  return choice->key;
}

const char *hr__choice_way(const hr_choice *choice) {
  return atomic_load(&choice->is_known) ? choice->way : "";
}

/* Under the lock. */
static bool may_be_measured(const hr_choice *choice) {
  return choice->is_open && hr_env_choice(HR_ENV_CHOICES) == HR_ENV_CHOICES_MEASURE;
}

bool hr__choice_is_open(hr_choice *choice) {
  hr_mutex_lock(&mutex);
  bool is_open = may_be_measured(choice);
  hr_mutex_unlock(&mutex);
  return is_open;
}

bool hr__choice_claim(hr_choice *choice) {
  hr_mutex_lock(&mutex);
  bool is_free = may_be_measured(choice) && !choice->is_claimed;
  choice->is_claimed |= is_free;
  hr_mutex_unlock(&mutex);
  return is_free;
}

void hr__choice_unclaim(hr_choice *choice) {
  hr_mutex_lock(&mutex);
  choice->is_claimed = false;
  hr_mutex_unlock(&mutex);
}

void hr__choice_close(hr_choice *choice, const char *way, const char *note) {
  hr_text value = {0};
  hr_mutex_lock(&mutex);
  if (choice->is_open && hr_text_printf(&value, "%s\n%s", way, note)) {
    hr_status_ignore(hr__disk_cache_add_choice(&disk, choice->key, choice->length, value.data, value.length));
  }
  choice->is_open = false;
  hr_mutex_unlock(&mutex);
  hr_text_fini(&value);
}

void hr__choice_settle(hr_choice *choice, const char *way, const char *note) {
  hr_mutex_lock(&mutex);
  bool is_first = choice->is_open && strlen(way) < WAY_MAX;
  if (is_first) {
    memcpy(choice->way, way, strlen(way));
    atomic_store(&choice->is_known, true);
  }
  hr_mutex_unlock(&mutex);
  if (is_first) {
    hr__choice_close(choice, way, note);
  }
}

void hr__choice_leave(hr_choice *choice) {
  hr_mutex_lock(&mutex);
  choice->is_open = false;
  hr_mutex_unlock(&mutex);
}

void hr__choices_forget(void) {
  size_t cursor = 0;
  hr_mutex_lock(&mutex);
  for (const hr_table_entry *entry; (entry = hr_table_next(&table, &cursor)) != NULL;) {
    for (hr_choice *choice = entry->value, *next; choice != NULL; choice = next) {
      next = choice->next_same;
      destroy(choice);
    }
  }
  hr_table_fini(&table);
  if (is_there) {
    hr__disk_cache_fini(&disk);
  }
  is_tried = is_there = false;
  hr_mutex_unlock(&mutex);
}
