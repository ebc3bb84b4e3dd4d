#include "base/interned.h"

#include <stdatomic.h>
#include <string.h>

#include "base/allocator.h"
#include "base/context.h"
#include "base/hash.h"
#include "base/table.h"
#include "base/thread.h"

typedef struct interned interned;
struct interned {
  interned *next_same;         /* chain of equal hashes */
  uint32_t count;              /* of bytes */
  _Atomic uint32_t references; /* changed while the list is locked */
  char bytes[];
};

_Static_assert(sizeof(interned) % 16 == 0, "bytes are aligned");

/* The process's. */
typedef struct blocks {
  hr_mutex mutex;
  hr_table table; /* by hash */
  size_t count;
} blocks;

static void init_blocks(void *part) {
  hr_mutex_init(&((blocks *)part)->mutex);
}

static blocks *own(void) {
  static const hr_context_part kind = {.bytes = sizeof(blocks), .init = init_blocks};
  return hr__context_part(&hr__context_first, HR_CONTEXT_INTERNED, &kind);
}

static interned *block_of(const void *bytes) {
  return (interned *)((char *)bytes - offsetof(interned, bytes));
}

/* The list is locked: only readers are beside this. */
static uint32_t change_references(interned *block, int change) {
  uint32_t references = atomic_load_explicit(&block->references, memory_order_relaxed) + (uint32_t)change;
  atomic_store_explicit(&block->references, references, memory_order_relaxed);
  return references;
}

/* The list is locked. */
static interned *find(const blocks *all, uint64_t hash, const void *bytes, size_t count) {
  interned *block = hr_table_get(&all->table, hash);
  while (block != NULL && !(block->count == count && memcmp(block->bytes, bytes, count) == 0)) {
    block = block->next_same;
  }
  return block;
}

/* The list is locked. */
static interned *add(blocks *all, uint64_t hash, const void *bytes, size_t count) {
  interned *block = count <= UINT32_MAX ? hr_malloc(sizeof *block + count) : NULL;
  if (block == NULL) {
    return NULL;
  }
  *block = (interned){.next_same = hr_table_get(&all->table, hash), .count = (uint32_t)count};
  memcpy(block->bytes, bytes, count);
  if (!hr_table_put(&all->table, hash, block)) {
    hr_free(block);
    return NULL;
  }
  ++all->count;
  return block;
}

const void *hr_interned_acquire(const void *bytes, size_t count) {
  blocks *all = own();
  uint64_t hash = hr_hash_bytes(HR_HASH_SEED, bytes, count);
  hr_mutex_lock(&all->mutex);
  interned *block = find(all, hash, bytes, count);
  block = block != NULL ? block : add(all, hash, bytes, count);
  if (block != NULL) {
    change_references(block, 1);
  }
  hr_mutex_unlock(&all->mutex);
  return block != NULL ? block->bytes : NULL;
}

void hr_interned_retain(const void *bytes) {
  blocks *all = own();
  hr_mutex_lock(&all->mutex);
  change_references(block_of(bytes), 1);
  hr_mutex_unlock(&all->mutex);
}

void hr_interned_release(const void *bytes) {
  if (bytes == NULL) {
    return;
  }
  blocks *all = own();
  interned *block = block_of(bytes);
  hr_mutex_lock(&all->mutex);
  bool is_last = change_references(block, -1) == 0;
  if (is_last) {
    uint64_t hash = hr_hash_bytes(HR_HASH_SEED, block->bytes, block->count);
    hr_table_unlink(&all->table, hash, block, offsetof(interned, next_same));
    if (--all->count == 0) {
      hr_table_fini(&all->table);
    }
  }
  hr_mutex_unlock(&all->mutex);
  if (is_last) {
    hr_free(block);
  }
}

size_t hr_interned_share(const void *bytes) {
  const interned *block = block_of(bytes);
  return (sizeof *block + block->count) / atomic_load_explicit(&block->references, memory_order_relaxed);
}

size_t hr_interned_count(void) {
  blocks *all = own();
  hr_mutex_lock(&all->mutex);
  size_t count = all->count;
  hr_mutex_unlock(&all->mutex);
  return count;
}
