/* Tables: one array of entries. A key's home slot comes from a multiplication, so that keys that differ in a few bits
 * (addresses, counters) spread. */
#include "base/table.h"

#include <assert.h>
#include <string.h>

#include "base/allocator.h"
#include "base/hash.h"

#define CAPACITY_MIN 16

static size_t home_slot(const hr_table *table, uint64_t key) {
  return (size_t)hr__hash_fold(key ^ HR_HASH_SEED, HR_HASH_MULTIPLIER) & (table->capacity - 1);
}

/* The slot that holds `key`, or the free slot where it would go. Needs a capacity. */
static size_t find_slot(const hr_table *table, uint64_t key) {
  size_t slot = home_slot(table, key);
  while (table->entries[slot].value != NULL && table->entries[slot].key != key) {
    slot = (slot + 1) & (table->capacity - 1);
  }
  return slot;
}

static bool grow(hr_table *table) {
  hr_table larger = {.count = table->count, .capacity = table->capacity > 0 ? table->capacity * 2 : CAPACITY_MIN};
  larger.entries = hr_calloc(larger.capacity, sizeof *larger.entries);
  if (larger.entries == NULL) {
    return false;
  }
  size_t cursor = 0;
  for (const hr_table_entry *entry; (entry = hr_table_next(table, &cursor)) != NULL;) {
    larger.entries[find_slot(&larger, entry->key)] = *entry;
  }
  hr_free(table->entries);
  *table = larger;
  return true;
}

void *hr_table_get(const hr_table *table, uint64_t key) {
  return table->count > 0 ? table->entries[find_slot(table, key)].value : NULL;
}

bool hr_table_put(hr_table *table, uint64_t key, void *value) {
  assert(value != NULL);
  if (table->capacity > 0) {
    hr_table_entry *entry = &table->entries[find_slot(table, key)];
    if (entry->value != NULL) {
      entry->value = value;
      return true;
    }
  }
  if (table->count + 1 > table->capacity - table->capacity / 4 && !grow(table)) {
    return false;
  }
  table->entries[find_slot(table, key)] = (hr_table_entry){.key = key, .value = value};
  ++table->count;
  return true;
}

void *hr_table_remove(hr_table *table, uint64_t key) {
  if (table->count == 0) {
    return NULL;
  }
  size_t mask = table->capacity - 1;
  size_t hole = find_slot(table, key);
  void *value = table->entries[hole].value;
  if (value == NULL) {
    return NULL;
  }
  /* An entry moves into the hole if its home slot is at or before the hole in probe order. */
  for (size_t slot = (hole + 1) & mask; table->entries[slot].value != NULL; slot = (slot + 1) & mask) {
    size_t home = home_slot(table, table->entries[slot].key);
    if (((slot - home) & mask) >= ((slot - hole) & mask)) {
      table->entries[hole] = table->entries[slot];
      hole = slot;
    }
  }
  table->entries[hole] = (hr_table_entry){0};
  --table->count;
  return value;
}

/* Pointers are read as bytes: the items have types of their own. */
static void *next_of(const void *item, size_t next_offset) {
  void *next;
  memcpy(&next, (const char *)item + next_offset, sizeof next);
  return next;
}

void hr_table_unlink(hr_table *table, uint64_t key, void *item, size_t next_offset) {
  void *before = hr_table_get(table, key), *next = next_of(item, next_offset);
  if (before == item && next == NULL) {
    (void)hr_table_remove(table, key);
    return;
  }
  if (before == item) { /* replacing a value can't fail */
    bool is_replaced = hr_table_put(table, key, next);
    (void)is_replaced;
    return;
  }
  while (next_of(before, next_offset) != item) {
    before = next_of(before, next_offset);
  }
  memcpy((char *)before + next_offset, &next, sizeof next);
}

const hr_table_entry *hr_table_next(const hr_table *table, size_t *cursor) {
  while (*cursor < table->capacity) {
    const hr_table_entry *entry = &table->entries[(*cursor)++];
    if (entry->value != NULL) {
      return entry;
    }
  }
  return NULL;
}

void hr_table_clear(hr_table *table) {
  if (table->capacity > 0) {
    memset(table->entries, 0, table->capacity * sizeof *table->entries);
  }
  table->count = 0;
}

void hr_table_fini(hr_table *table) {
  if (table != NULL) {
    hr_free(table->entries);
    *table = (hr_table){0};
  }
}
