/* Arena: memory of one program or one trace of a stream, freed at once.
 *
 * Allocation bumps a cursor in the current chunk; chunks come from the host allocator and double in size up to
 * HR_ARENA_CHUNK_MAX. There is no way to free a single block. A zeroed arena is valid and empty. A few MB of chunks
 * are kept for the process's next arenas.
 *
 * Threads: one at a time.
 */
#ifndef HEADRACE_BASE_ARENA_H_
#define HEADRACE_BASE_ARENA_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/integer.h"

#define HR_ARENA_ALIGNMENT ((size_t)16)
#define HR_ARENA_CHUNK_MIN ((size_t)4096)
#define HR_ARENA_CHUNK_MAX ((size_t)1 << 18)

typedef struct hr_arena_chunk hr_arena_chunk;

typedef struct hr_arena {
  char *cursor;           /* next free byte, aligned */
  char *end;              /* end of the current chunk */
  hr_arena_chunk *first;  /* kept by reset; the others hang off it */
  hr_arena_chunk *last;   /* the current one */
  size_t chunk_bytes;     /* size of the next chunk; 0: HR_ARENA_CHUNK_MIN */
  size_t bytes_allocated; /* sum of all chunks */
} hr_arena;

/* An empty arena whose first chunk holds at least `first_bytes` (0: the default). Allocates nothing yet. */
void hr_arena_init(hr_arena *arena, size_t first_bytes);
/* Frees everything; the arena is empty and usable afterwards. NULL and zeroed arenas are fine. */
void hr_arena_fini(hr_arena *arena);
/* Ends all blocks but keeps the first chunk, so that a loop of the same size allocates nothing. */
void hr_arena_reset(hr_arena *arena);

/* The bytes of its blocks, and of what was left of earlier chunks. */
static inline size_t hr_arena_bytes_used(const hr_arena *arena) {
  return arena->bytes_allocated - (size_t)(arena->end - arena->cursor);
}

/* Frees the chunks that are kept. */
void hr_arena_forget(void);

void *hr__arena_alloc_slow(hr_arena *arena, size_t bytes);

/* An uninitialised block aligned to 16, or NULL when memory is out. 0 bytes give a valid pointer that must not be read.
 */
static inline void *hr_arena_alloc(hr_arena *arena, size_t bytes) {
  size_t rounded = hr_align_up(bytes, HR_ARENA_ALIGNMENT);
  if (__builtin_expect(rounded >= bytes && rounded <= (size_t)(arena->end - arena->cursor) && arena->cursor != NULL,
                       1)) {
    void *block = arena->cursor;
    arena->cursor += rounded;
    return block;
  }
  return hr__arena_alloc_slow(arena, bytes);
}

/* Gives back the end of the latest block from `end` on. */
static inline void hr_arena_shrink(hr_arena *arena, char *end) {
  arena->cursor = end + (-(uintptr_t)end & (HR_ARENA_ALIGNMENT - 1));
}

/* ---- one block for many small parts, each aligned to 8 ---- */

static inline size_t hr_part_bytes(size_t bytes) {
  return hr_align_up(bytes, 8);
}

/* Copies a part to *at, which then is the place of the next one. `source` may be NULL if `bytes` is 0. */
static inline void *hr_part_put(char **at, const void *source, size_t bytes) {
  void *part = *at;
  if (bytes > 0) {
    memcpy(part, source, bytes);
    *at += hr_part_bytes(bytes);
  }
  return part;
}

/* Copies a list of dims or strides: mostly a few, for which a call takes longer than the copy. */
static inline void hr_words_copy(int64_t *to, const int64_t *from, size_t count) {
  enum { FEW = 4 };
  if (count > FEW) {
    memcpy(to, from, count * sizeof *to);
    return;
  }
  if ((count & 4) != 0) {
    memcpy(to, from, 4 * sizeof *to);
  }
  if ((count & 2) != 0) {
    memcpy(to, from, 2 * sizeof *to);
  }
  if ((count & 1) != 0) {
    to[count - 1] = from[count - 1];
  }
}

/* hr_part_put of words. */
static inline int64_t *hr_part_put_words(char **at, const int64_t *source, size_t count) {
  int64_t *part = (int64_t *)(void *)*at;
  hr_words_copy(part, source, count);
  *at += count * sizeof *part;
  return part;
}

/* A zeroed array, or NULL, also when the product overflows. */
void *hr_arena_calloc(hr_arena *arena, size_t count, size_t size);
/* A copy of `bytes` bytes, or NULL. `source` may be NULL if `bytes` is 0. */
void *hr_arena_dup(hr_arena *arena, const void *source, size_t bytes);
/* The same for a list of dims or strides. */
static inline int64_t *hr_arena_dup_words(hr_arena *arena, const int64_t *source, int count) {
  int64_t *block = hr_arena_alloc(arena, (size_t)count * sizeof *block);
  if (block != NULL) {
    hr_words_copy(block, source, (size_t)count);
  }
  return block;
}
/* A copy of a C string, or NULL. */
char *hr_arena_strdup(hr_arena *arena, const char *source);

#define HR_ARENA_NEW(arena, type) ((type *)hr_arena_calloc((arena), 1, sizeof(type)))
#define HR_ARENA_ARRAY(arena, type, count) ((type *)hr_arena_calloc((arena), (count), sizeof(type)))

#endif /* HEADRACE_BASE_ARENA_H_ */
