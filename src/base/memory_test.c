/* The host allocator and the types built on it: arena, vector, table, text. */
#include "base/allocator.h"
#include "base/arena.h"
#include "base/hash.h"
#include "base/refcount.h"
#include "base/table.h"
#include "base/text.h"
#include "base/vector.h"
#include "headrace/memory.h"
#include "hr_test.h"

#include <stdio.h>

static hr_status out_of_memory(void) {
  return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "out of memory");
}

HR_TEST(lists_of_all_lengths_are_copied_and_nothing_behind_them) {
  enum { MOST = 10 };
  int64_t from[MOST], to[MOST + 1];
  for (size_t count = 0; count <= MOST; ++count) {
    for (size_t i = 0; i <= MOST; ++i) {
      to[i] = -1;
      from[i % MOST] = (int64_t)(i % MOST) + 100;
    }
    hr_words_copy(to, from, count);
    for (size_t i = 0; i <= MOST; ++i) {
      HR_ASSERT_EQ(to[i], i < count ? from[i] : -1);
    }
  }
}

HR_TEST(allocator_counts_and_fails_on_request) {
  int64_t live = hr__allocator_live();
  hr__allocator_fail_after(2);
  void *first = hr_malloc(0);
  void *second = hr_calloc(3, 8);
  void *third = hr_malloc(1);
  HR_ASSERT_NOT_NULL(first);
  HR_ASSERT_NOT_NULL(second);
  HR_ASSERT_NULL(third);
  HR_ASSERT_NULL(hr_realloc(first, 100));
  HR_ASSERT_EQ(hr__allocator_failures(), 2);
  hr__allocator_fail_after(-1);
  hr_arena_forget();
  HR_ASSERT_EQ(hr__allocator_live(), live + 2);
  first = hr_realloc(first, 100);
  hr_free(first);
  hr_free(second);
  hr_free(NULL);
  hr_arena_forget();
  HR_ASSERT_EQ(hr__allocator_live(), live);
  volatile size_t huge = SIZE_MAX;
  HR_ASSERT_NULL(hr_calloc(huge, 2));
  HR_ASSERT_NULL(hr_aligned_malloc(huge, 64));
}

HR_TEST(a_trim_gives_free_memory_back) {
  enum { BLOCKS = 100, BYTES = 4096 };
  void *blocks[BLOCKS];
  hr_host_memory_trim();
  size_t before = hr_heap_bytes();
  for (int i = 0; i < BLOCKS; ++i) {
    blocks[i] = hr_malloc(BYTES);
    HR_ASSERT_NOT_NULL(blocks[i]);
  }
  size_t full = hr_heap_bytes();
  for (int i = 0; i < BLOCKS; ++i) {
    hr_free(blocks[i]);
  }
  HR_ASSERT(full == before || hr_heap_bytes() > before); /* the first: blocks are the C library's */
  hr_host_memory_trim();
  HR_ASSERT_EQ(hr_heap_bytes(), before);
}

static int foreign_blocks;

static void *foreign_alloc(void *ctx, size_t bytes) {
  ++*(int *)ctx;
  return malloc(bytes);
}

static void *foreign_realloc(void *ctx, void *block, size_t bytes) {
  *(int *)ctx += block == NULL;
  return realloc(block, bytes);
}

static void foreign_free(void *ctx, void *block) {
  --*(int *)ctx;
  free(block);
}

HR_TEST(allocator_can_be_replaced) {
  hr_allocator foreign = {foreign_alloc, foreign_realloc, foreign_free, &foreign_blocks};
  hr__allocator_set(&foreign);
  void *block = hr_realloc(NULL, 5);
  int during = foreign_blocks;
  hr_free(block);
  hr__allocator_set(NULL);
  HR_ASSERT_EQ(during, 1);
  HR_ASSERT_EQ(foreign_blocks, 0);
}

HR_TEST(aligned_blocks_are_aligned) {
  for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
    char *block = hr_aligned_malloc(100, alignment);
    HR_ASSERT_EQ((uintptr_t)block % alignment, 0);
    memset(block, 1, 100);
    hr_aligned_free(block);
  }
  hr_aligned_free(NULL);
}

HR_TEST(arena_blocks_are_aligned_and_disjoint) {
  hr_arena arena;
  hr_arena_init(&arena, 0);
  unsigned char *blocks[200];
  for (size_t i = 0; i < 200; ++i) {
    blocks[i] = hr_arena_alloc(&arena, i * 7);
    HR_ASSERT_NOT_NULL(blocks[i]);
    HR_ASSERT_EQ((uintptr_t)blocks[i] % HR_ARENA_ALIGNMENT, 0);
    memset(blocks[i], (int)i, i * 7);
  }
  for (size_t i = 0; i < 200; ++i) {
    for (size_t k = 0; k < i * 7; ++k) {
      HR_ASSERT_EQ(blocks[i][k], i);
    }
  }
  HR_ASSERT_NOT_NULL(hr_arena_alloc(&arena, 3 * HR_ARENA_CHUNK_MAX));
  HR_ASSERT_NULL(hr_arena_alloc(&arena, SIZE_MAX));
  HR_ASSERT_NULL(hr_arena_calloc(&arena, SIZE_MAX, 3));
  HR_ASSERT_STR_EQ(hr_arena_strdup(&arena, "text"), "text");
  hr_arena_fini(&arena);
  hr_arena_fini(NULL);
}

HR_TEST(arena_chunks_have_sizes_that_are_kept) {
  hr_arena arena = {0};
  HR_ASSERT_NOT_NULL(hr_arena_alloc(&arena, HR_ARENA_CHUNK_MIN + 1));
  HR_ASSERT_EQ(arena.bytes_allocated, 2 * HR_ARENA_CHUNK_MIN);
  hr_arena_fini(&arena);
}

HR_TEST(arena_reset_keeps_the_first_chunk) {
  hr_arena arena = {0};
  hr_arena_init(&arena, 10000);
  void *first = hr_arena_alloc(&arena, 9000);
  HR_ASSERT_NOT_NULL(hr_arena_alloc(&arena, 9000));
  hr_arena_forget();
  HR_ASSERT_EQ(hr__allocator_live(), 2);
  hr_arena_reset(&arena);
  hr_arena_forget();
  HR_ASSERT_EQ(hr__allocator_live(), 1);
  HR_ASSERT(hr_arena_alloc(&arena, 9000) == first);
  hr_arena_fini(&arena);
  hr_arena_reset(&arena);
  hr_arena_forget();
  HR_ASSERT_EQ(hr__allocator_live(), 0);
}

static hr_status fill_arena(void) {
  hr_arena arena = {0};
  bool filled = true;
  for (int i = 0; filled && i < 5; ++i) {
    filled = hr_arena_dup(&arena, "abc", 4) != NULL && hr_arena_alloc(&arena, 5000) != NULL;
  }
  hr_arena_fini(&arena);
  return filled ? HR_OK : out_of_memory();
}

HR_TEST(arena_survives_lack_of_memory) {
  HR_TEST_OOM(fill_arena);
}

typedef struct point {
  int x, y;
} point;

HR_TEST(vector_grows_and_keeps_its_elements) {
  HR_VECTOR(point) points = {0};
  for (int i = 0; i < 1000; ++i) {
    HR_ASSERT(hr_vector_push(&points, (point){i, -i}));
  }
  HR_ASSERT_EQ(points.count, 1000);
  HR_ASSERT_EQ(points.data[999].y, -999);
  HR_ASSERT_EQ(hr_vector_last(&points).x, 999);
  HR_ASSERT_EQ(hr_vector_pop(&points).x, 999);
  HR_ASSERT_EQ(points.count, 999);
  hr_vector_clear(&points);
  HR_ASSERT(points.count == 0 && points.capacity >= 1000);
  HR_ASSERT(!hr_vector_reserve(&points, SIZE_MAX / 2));
  hr_vector_fini(&points);
  HR_ASSERT(points.data == NULL && points.capacity == 0);
}

static hr_status fill_vector(void) {
  HR_VECTOR(int64_t) numbers = {0};
  bool pushed = true;
  for (int i = 0; pushed && i < 100; ++i) {
    pushed = hr_vector_push(&numbers, i);
  }
  hr_vector_fini(&numbers);
  return pushed ? HR_OK : out_of_memory();
}

HR_TEST(vector_survives_lack_of_memory) {
  HR_TEST_OOM(fill_vector);
}

HR_TEST(table_unlinks_items_of_chains) {
  typedef struct item {
    int number;
    struct item *next;
  } item;
  enum { KEY = 7 };
  item items[3] = {{0, &items[1]}, {1, &items[2]}, {2, NULL}}, other = {3, NULL};
  hr_table table = {0};
  HR_ASSERT(hr_table_put(&table, KEY, &items[0]) && hr_table_put(&table, KEY + 1, &other));
  hr_table_unlink(&table, KEY, &items[1], offsetof(item, next)); /* in the middle, the first, the only one */
  HR_ASSERT(hr_table_get(&table, KEY) == &items[0] && items[0].next == &items[2] && items[2].next == NULL);
  hr_table_unlink(&table, KEY, &items[0], offsetof(item, next));
  HR_ASSERT(hr_table_get(&table, KEY) == &items[2]);
  hr_table_unlink(&table, KEY, &items[2], offsetof(item, next));
  HR_ASSERT(hr_table_get(&table, KEY) == NULL);
  HR_ASSERT(hr_table_get(&table, KEY + 1) == &other);
  hr_table_fini(&table);
}

HR_TEST(table_agrees_with_an_array) {
  enum { KEYS = 512 };
  static char places[KEYS];
  bool present[KEYS] = {false};
  hr_table table = {0};
  uint64_t random = HR_HASH_SEED;
  for (int step = 0; step < 20000; ++step) {
    random = hr_hash_mix(random, (uint64_t)step);
    size_t i = random % KEYS;
    uint64_t key = i << 20; /* keys that share their low bits */
    if (random >> 63) {
      HR_ASSERT(hr_table_put(&table, key, &places[i]));
      present[i] = true;
    } else {
      HR_ASSERT(hr_table_remove(&table, key) == (present[i] ? &places[i] : NULL));
      present[i] = false;
    }
  }
  size_t expected = 0, seen = 0, cursor = 0;
  for (size_t i = 0; i < KEYS; ++i) {
    expected += present[i];
    HR_ASSERT(hr_table_get(&table, i << 20) == (present[i] ? &places[i] : NULL));
  }
  for (const hr_table_entry *entry; (entry = hr_table_next(&table, &cursor)) != NULL; ++seen) {
    HR_ASSERT(entry->value == &places[entry->key >> 20]);
  }
  HR_ASSERT_EQ(seen, expected);
  HR_ASSERT_EQ(table.count, expected);
  hr_table_clear(&table);
  HR_ASSERT_NULL(hr_table_get(&table, 0));
  hr_table_fini(&table);
}

static hr_status fill_table(void) {
  hr_table table = {0};
  bool put = true;
  for (uint64_t i = 0; put && i < 100; ++i) {
    put = hr_table_put(&table, i, &table);
  }
  hr_table_fini(&table);
  return put ? HR_OK : out_of_memory();
}

HR_TEST(table_survives_lack_of_memory) {
  HR_TEST_OOM(fill_table);
}

HR_TEST(hash_depends_on_order_length_and_every_bit) {
  uint64_t words[5] = {1, 2, 3, 0, 0}, swapped[2] = {2, 1};
  HR_ASSERT(hr_hash_words(HR_HASH_SEED, words, 2) != hr_hash_words(HR_HASH_SEED, swapped, 2));
  HR_ASSERT(hr_hash_words(HR_HASH_SEED, words, 3) != hr_hash_words(HR_HASH_SEED, words, 4));
  HR_ASSERT(hr_hash_words(HR_HASH_SEED, words, 4) != hr_hash_words(HR_HASH_SEED, words, 5));
  HR_ASSERT(hr_hash_bytes(HR_HASH_SEED, "abc\0", 3) != hr_hash_bytes(HR_HASH_SEED, "abc\0", 4));
  int flipped = 0;
  for (int bit = 0; bit < 64; ++bit) {
    uint64_t difference = hr_hash_mix(HR_HASH_SEED, 7) ^ hr_hash_mix(HR_HASH_SEED, 7 ^ UINT64_C(1) << bit);
    HR_ASSERT(difference != 0);
    flipped += __builtin_popcountll(difference);
  }
  HR_ASSERT(flipped > 64 * 24 && flipped < 64 * 40);
}

HR_TEST(text_prints_numbers) {
  hr_text text = {0};
  static const int64_t numbers[] = {0, 7, -1, 100, INT64_MAX, INT64_MIN};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i) {
    char wanted[32];
    snprintf(wanted, sizeof wanted, "%lld", (long long)numbers[i]);
    hr_text_clear(&text);
    HR_ASSERT(hr_text_int(&text, numbers[i]));
    HR_ASSERT_STR_EQ(hr_text_chars(&text), wanted);
  }
  hr_text_fini(&text);
}

HR_TEST(text_prints_as_the_c_library) {
  hr_text text = {0};
  char wanted[256];
  snprintf(wanted, sizeof wanted, "%d|%u|%ld|%lu|%lld|%llu|%zu|%s|%c|%%", INT32_MIN, UINT32_MAX, -5L, 6UL, -7LL,
           (unsigned long long)UINT64_MAX, SIZE_MAX, "word", 'x');
  HR_ASSERT(hr_text_printf(&text, "%d|%u|%ld|%lu|%lld|%llu|%zu|%s|%c|%%", INT32_MIN, UINT32_MAX, -5L, 6UL, -7LL,
                           (unsigned long long)UINT64_MAX, SIZE_MAX, "word", 'x'));
  HR_ASSERT_STR_EQ(hr_text_chars(&text), wanted);
  hr_text_clear(&text);
  snprintf(wanted, sizeof wanted, "%s %04x %5.2f %-3d|", "a", 10, 2.5, 7); /* the C library's own */
  HR_ASSERT(hr_text_printf(&text, "%s %04x %5.2f %-3d|", "a", 10, 2.5, 7));
  HR_ASSERT_STR_EQ(hr_text_chars(&text), wanted);
  HR_ASSERT(hr_text_printf(&text, "no conversion") && text.length == strlen(wanted) + 13);
  hr_text_fini(&text);
}

HR_TEST(text_appends_and_hands_over) {
  hr_text text = {0};
  HR_ASSERT_STR_EQ(hr_text_chars(&text), "");
  hr_text_append(&text, "a");
  hr_text_char(&text, '=');
  for (int i = 0; i < 100; ++i) {
    hr_text_printf(&text, "%d,", i);
  }
  HR_ASSERT_EQ(text.length, 2 + 10 * 2 + 90 * 3);
  HR_ASSERT_CONTAINS(hr_text_chars(&text), "a=0,1,2,");
  HR_ASSERT_CONTAINS(hr_text_chars(&text), "98,99,");
  HR_ASSERT_OK(hr_text_status(&text));
  char *taken = hr_text_take(&text);
  HR_ASSERT_EQ(strlen(taken), 292);
  HR_ASSERT_STR_EQ(hr_text_chars(&text), "");
  hr_free(taken);
  HR_ASSERT(hr_text_append_all(&text, 3, (const char *const[]){"ag", "", "ain"}));
  HR_ASSERT_STR_EQ(hr_text_chars(&text), "again");
  hr_text_clear(&text);
  HR_ASSERT_STR_EQ(hr_text_chars(&text), "");
  hr_text_fini(&text);
  taken = hr_text_take(&text);
  HR_ASSERT_STR_EQ(taken, "");
  hr_free(taken);
}

static hr_status fill_text(void) {
  hr_text text = {0};
  for (int i = 0; i < 100; ++i) {
    hr_text_printf(&text, "%d,", i);
  }
  hr_status status = hr_text_status(&text);
  hr_text_fini(&text);
  return status;
}

HR_TEST(text_survives_lack_of_memory) {
  HR_TEST_OOM(fill_text);
}

HR_TEST(refcount_tells_the_last_owner) {
  hr_refcount count;
  hr_refcount_init(&count);
  HR_ASSERT(hr_refcount_is_one(&count));
  hr_refcount_retain(&count);
  HR_ASSERT(!hr_refcount_release(&count));
  HR_ASSERT(hr_refcount_release(&count));
}
