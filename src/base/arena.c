/* Arenas: a singly linked list of chunks, filled from the front of the last one.
 *
 * Most arenas are working memory of one compilation. Their chunks have a few sizes and are kept for the next one:
 * fresh pages from the system would take a good part of a small program's compilation.
 */
#include "base/arena.h"

#include <string.h>

#include "base/allocator.h"
#include "base/context.h"
#include "base/thread.h"

enum { KEPT_SIZES = 7, KEPT_BYTES_MAX = 8 << 20 }; /* sizes: 4 KB, doubled up to HR_ARENA_CHUNK_MAX */
_Static_assert(HR_ARENA_CHUNK_MIN << (KEPT_SIZES - 1) == HR_ARENA_CHUNK_MAX, "a list for each size");

struct hr_arena_chunk {
  hr_arena_chunk *next;
  size_t bytes; /* after the header */
};

/* ---- chunks that are kept ---- */

/* The process's. */
typedef struct kept_chunks {
  hr_mutex mutex;
  size_t bytes;
  hr_arena_chunk *lists[KEPT_SIZES];
} kept_chunks;

static void init_kept(void *part) {
  hr_mutex_init(&((kept_chunks *)part)->mutex);
}

static kept_chunks *kept(void) {
  static const hr_context_part kind = {.bytes = sizeof(kept_chunks), .init = init_kept};
  return hr__context_part(&hr__context_first, HR_CONTEXT_ARENAS, &kind);
}

/* The list of a size; -1: such chunks are not kept. */
static int list_of(size_t bytes) {
  for (int i = 0; i < KEPT_SIZES; ++i) {
    if (bytes == HR_ARENA_CHUNK_MIN << i) {
      return i;
    }
  }
  return -1;
}

static hr_arena_chunk *take_kept(size_t bytes) {
  int list = list_of(bytes);
  if (list < 0) {
    return NULL;
  }
  kept_chunks *own = kept();
  hr_mutex_lock(&own->mutex);
  hr_arena_chunk *chunk = own->lists[list];
  if (chunk != NULL) {
    own->lists[list] = chunk->next;
    own->bytes -= bytes;
  }
  hr_mutex_unlock(&own->mutex);
  return chunk;
}

/* False: there are enough. */
static bool keep(hr_arena_chunk *chunk) {
  int list = list_of(chunk->bytes);
  if (list < 0) {
    return false;
  }
  kept_chunks *own = kept();
  hr_mutex_lock(&own->mutex);
  bool is_kept = own->bytes + chunk->bytes <= KEPT_BYTES_MAX;
  if (is_kept) {
    chunk->next = own->lists[list];
    own->lists[list] = chunk;
    own->bytes += chunk->bytes;
  }
  hr_mutex_unlock(&own->mutex);
  return is_kept;
}

void hr_arena_forget(void) {
  kept_chunks *own = kept();
  hr_mutex_lock(&own->mutex);
  for (int i = 0; i < KEPT_SIZES; ++i) {
    for (hr_arena_chunk *chunk = own->lists[i], *next; chunk != NULL; chunk = next) {
      next = chunk->next;
      hr_free(chunk);
    }
    own->lists[i] = NULL;
  }
  own->bytes = 0;
  hr_mutex_unlock(&own->mutex);
}

/* ---- arenas ---- */

/* The header is padded to whole alignment units, so that the bytes after it are aligned. */
#define CHUNK_HEADER hr_align_up(sizeof(hr_arena_chunk), HR_ARENA_ALIGNMENT)

static void enter_chunk(hr_arena *arena, hr_arena_chunk *chunk) {
  arena->last = chunk;
  arena->cursor = (char *)chunk + CHUNK_HEADER;
  arena->end = arena->cursor + chunk->bytes;
}

static void free_chunks(hr_arena *arena, hr_arena_chunk *chunk) {
  while (chunk != NULL) {
    hr_arena_chunk *next = chunk->next;
    arena->bytes_allocated -= chunk->bytes;
    if (!keep(chunk)) {
      hr_free(chunk);
    }
    chunk = next;
  }
}

void hr_arena_init(hr_arena *arena, size_t first_bytes) {
  *arena = (hr_arena){.chunk_bytes = first_bytes};
}

void hr_arena_fini(hr_arena *arena) {
  if (arena != NULL) {
    free_chunks(arena, arena->first);
    *arena = (hr_arena){0};
  }
}

void hr_arena_reset(hr_arena *arena) {
  if (arena->first != NULL) {
    free_chunks(arena, arena->first->next);
    arena->first->next = NULL;
    enter_chunk(arena, arena->first);
  }
}

void *hr__arena_alloc_slow(hr_arena *arena, size_t bytes) {
  size_t chunk_bytes = arena->chunk_bytes > 0 ? arena->chunk_bytes : HR_ARENA_CHUNK_MIN;
  if (bytes > SIZE_MAX / 2 || chunk_bytes > SIZE_MAX / 2) {
    return NULL;
  }
  size_t rounded = hr_align_up(bytes, HR_ARENA_ALIGNMENT);
  while (chunk_bytes < rounded && chunk_bytes < HR_ARENA_CHUNK_MAX && list_of(chunk_bytes) >= 0) {
    chunk_bytes *= 2; /* stays a size that is kept */
  }
  if (chunk_bytes < rounded) {
    chunk_bytes = rounded;
  }
  hr_arena_chunk *chunk = take_kept(chunk_bytes);
  chunk = chunk != NULL ? chunk : hr_malloc(CHUNK_HEADER + chunk_bytes);
  if (chunk == NULL) {
    return NULL;
  }
  *chunk = (hr_arena_chunk){.bytes = chunk_bytes};
  if (arena->last != NULL) {
    arena->last->next = chunk;
  } else {
    arena->first = chunk;
  }
  enter_chunk(arena, chunk);
  arena->bytes_allocated += chunk_bytes;
  arena->chunk_bytes = chunk_bytes < HR_ARENA_CHUNK_MAX / 2 ? chunk_bytes * 2 : HR_ARENA_CHUNK_MAX;
  arena->cursor += rounded;
  return (char *)chunk + CHUNK_HEADER;
}

void *hr_arena_calloc(hr_arena *arena, size_t count, size_t size) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(count, size, &bytes)) {
    return NULL;
  }
  void *block = hr_arena_alloc(arena, bytes);
  if (block != NULL) {
    memset(block, 0, bytes);
  }
  return block;
}

void *hr_arena_dup(hr_arena *arena, const void *source, size_t bytes) {
  void *block = hr_arena_alloc(arena, bytes);
  if (block != NULL && bytes > 0) {
    memcpy(block, source, bytes);
  }
  return block;
}

char *hr_arena_strdup(hr_arena *arena, const char *source) {
  return hr_arena_dup(arena, source, strlen(source) + 1);
}
