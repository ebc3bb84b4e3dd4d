/* Arenas: a singly linked list of chunks, filled from the front of the last one. */
#include "base/arena.h"

#include <string.h>

#include "base/allocator.h"

struct hr_arena_chunk {
  hr_arena_chunk *next;
  size_t bytes; /* after the header */
};

/* The header is padded to whole alignment units, so that the bytes after it are aligned. */
#define CHUNK_HEADER ((sizeof(hr_arena_chunk) + HR_ARENA_ALIGNMENT - 1) & ~(HR_ARENA_ALIGNMENT - 1))

static void enter_chunk(hr_arena *arena, hr_arena_chunk *chunk) {
  arena->last = chunk;
  arena->cursor = (char *)chunk + CHUNK_HEADER;
  arena->end = arena->cursor + chunk->bytes;
}

static void free_chunks(hr_arena *arena, hr_arena_chunk *chunk) {
  while (chunk != NULL) {
    hr_arena_chunk *next = chunk->next;
    arena->bytes_allocated -= chunk->bytes;
    hr_free(chunk);
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
  size_t rounded = (bytes + HR_ARENA_ALIGNMENT - 1) & ~(HR_ARENA_ALIGNMENT - 1);
  if (chunk_bytes < rounded) {
    chunk_bytes = rounded;
  }
  hr_arena_chunk *chunk = hr_malloc(CHUNK_HEADER + chunk_bytes);
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
