/* Table: a map from 64-bit keys to pointers, open addressing with linear probing.
 *
 * Any key is allowed; a value is never NULL. The table owns neither. A zeroed table is valid and empty.
 * At most three quarters full; removal shifts entries back, so there are no tombstones. Threads: one at a time.
 */
#ifndef HEADRACE_BASE_TABLE_H_
#define HEADRACE_BASE_TABLE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct hr_table_entry {
  uint64_t key;
  void *value; /* NULL: a free slot */
} hr_table_entry;

typedef struct hr_table {
  hr_table_entry *entries;
  size_t count;
  size_t capacity; /* 0 or a power of two */
} hr_table;

/* The value of `key`, or NULL. */
void *hr_table_get(const hr_table *table, uint64_t key);
/* Sets or replaces; false when memory is out, and then nothing has changed. */
bool hr_table_put(hr_table *table, uint64_t key, void *value);
/* Removes the entry and returns its value, or NULL. */
void *hr_table_remove(hr_table *table, uint64_t key);
/* Removes an item from the chain of items with one key, whose first is the value. `next_offset`: of the pointer to the
 * next item, in an item. Needs no memory. The item must be there. */
void hr_table_unlink(hr_table *table, uint64_t key, void *item, size_t next_offset);
/* Walks all entries in no particular order: start with `*cursor` 0; NULL at the end. The table must not change
 * meanwhile. */
const hr_table_entry *hr_table_next(const hr_table *table, size_t *cursor);
/* Empties the table and keeps its memory. */
void hr_table_clear(hr_table *table);
/* Frees the memory; the table is empty and usable afterwards. NULL is fine. */
void hr_table_fini(hr_table *table);

#endif /* HEADRACE_BASE_TABLE_H_ */
