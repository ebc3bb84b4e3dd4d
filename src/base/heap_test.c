/* The core's heap: sizes, reuse, pages that go back, threads and forks. */
#include "base/heap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/allocator.h"
#include "hr_test.h"

static hr_heap *make_heap(void) {
  hr_heap *heap = calloc(1, sizeof *heap);
  HR_ASSERT_NOT_NULL(heap);
  hr__heap_init(heap);
  hr__heap_reserve(heap);
  HR_ASSERT(atomic_load(&heap->base) != 0);
  return heap;
}

static bool is_in_range(hr_heap *heap, const void *block) {
  return ((uintptr_t)block - atomic_load(&heap->base)) / HR_HEAP_CHUNK < heap->end;
}

/* Each byte of a block is a function of its number. */
static void fill(unsigned char *block, size_t bytes, size_t number) {
  memset(block, (int)(number * 7 % 251), bytes);
}

static void expect(const unsigned char *block, size_t bytes, size_t number) {
  for (size_t i = 0; i < bytes; ++i) {
    HR_ASSERT_EQ(block[i], number * 7 % 251);
  }
}

HR_TEST(blocks_of_all_sizes_are_aligned_and_disjoint) {
  hr_heap *heap = make_heap();
  enum { STEP = 13, COUNT = (HR_HEAP_BLOCK_MAX + 3000) / STEP };
  static unsigned char *blocks[COUNT];
  for (size_t i = 0; i < COUNT; ++i) {
    blocks[i] = hr__heap_alloc(heap, i * STEP);
    HR_ASSERT_EQ((uintptr_t)blocks[i] % 16, 0);
    HR_ASSERT_EQ(is_in_range(heap, blocks[i]), i * STEP <= HR_HEAP_BLOCK_MAX);
    fill(blocks[i], i * STEP, i);
  }
  HR_ASSERT_EQ(hr__heap_live(heap), COUNT);
  for (size_t i = 0; i < COUNT; ++i) {
    expect(blocks[i], i * STEP, i);
    hr__heap_free(heap, blocks[i]);
  }
  HR_ASSERT_EQ(hr__heap_live(heap), 0);
  free(heap);
}

HR_TEST(blocks_take_at_most_a_quarter_more_than_asked) {
  hr_heap *heap = make_heap();
  enum { BLOCKS = 2000 };
  static void *blocks[BLOCKS];
  for (size_t bytes = 64; bytes <= HR_HEAP_BLOCK_MAX / 16; bytes += 177) {
    size_t before = hr__heap_bytes(heap);
    for (int i = 0; i < BLOCKS; ++i) {
      blocks[i] = hr__heap_alloc(heap, bytes);
    }
    size_t most = BLOCKS * (bytes + bytes / 4 + 16) + (size_t)2 * HR_HEAP_CHUNK;
    HR_ASSERT(hr__heap_bytes(heap) - before <= most + most / 16); /* and an end of each chunk */
    for (int i = 0; i < BLOCKS; ++i) {
      hr__heap_free(heap, blocks[i]);
    }
    hr__heap_trim(heap);
  }
  free(heap);
}

HR_TEST(resized_blocks_keep_their_bytes) {
  hr_heap *heap = make_heap();
  static const size_t sizes[] = {1, 16, 17, 100, 90, 4000, 70000, 300000, 65536, 50, 64000, 0, 65537, 12};
  unsigned char *block = hr__heap_realloc(heap, NULL, 8);
  size_t before = 8;
  fill(block, before, 5);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    block = hr__heap_realloc(heap, block, sizes[i]);
    expect(block, sizes[i] < before ? sizes[i] : before, 5);
    fill(block, sizes[i], 5);
    before = sizes[i];
    HR_ASSERT_EQ(hr__heap_live(heap), 1);
  }
  hr__heap_free(heap, block);
  HR_ASSERT_EQ(hr__heap_live(heap), 0);
  free(heap);
}

HR_TEST(freed_blocks_are_used_again) {
  hr_heap *heap = make_heap();
  void *kept = hr__heap_alloc(heap, 100);
  size_t bytes = hr__heap_bytes(heap);
  for (int i = 0; i < 100000; ++i) {
    hr__heap_free(heap, hr__heap_alloc(heap, 100));
  }
  HR_ASSERT_EQ(hr__heap_bytes(heap), bytes);
  hr__heap_free(heap, kept);
  free(heap);
}

static size_t resident_pages(const unsigned char *address, size_t bytes) {
  static unsigned char pages[1 << 16];
  size_t page = (size_t)sysconf(_SC_PAGESIZE), count = bytes / page, resident = 0;
  HR_ASSERT(count <= sizeof pages);
#if defined(__APPLE__)
  HR_ASSERT_EQ(mincore((void *)(uintptr_t)address, bytes, (char *)pages), 0);
#else
  HR_ASSERT_EQ(mincore((void *)(uintptr_t)address, bytes, pages), 0);
#endif
  for (size_t i = 0; i < count; ++i) {
    resident += pages[i] & 1;
  }
  return resident;
}

HR_TEST(pages_of_empty_chunks_go_back) {
  hr_heap *heap = make_heap();
  enum { CHUNKS = 4 * HR_HEAP_KEPT_MAX, PER_CHUNK = 16, BYTES = HR_HEAP_CHUNK / PER_CHUNK };
  static unsigned char *blocks[CHUNKS * PER_CHUNK];
  for (size_t i = 0; i < CHUNKS * PER_CHUNK; ++i) {
    blocks[i] = hr__heap_alloc(heap, BYTES);
    fill(blocks[i], BYTES, i);
  }
  unsigned char *first = blocks[0];
  for (size_t i = 1; i < CHUNKS * PER_CHUNK; ++i) {
    HR_ASSERT(blocks[i] == first + i * BYTES);
    hr__heap_free(heap, blocks[i]);
  }
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  HR_ASSERT(resident_pages(first, (size_t)CHUNKS * HR_HEAP_CHUNK) <= (HR_HEAP_KEPT_MAX + 2) * HR_HEAP_CHUNK / page);
  HR_ASSERT(hr__heap_bytes(heap) <= (HR_HEAP_KEPT_MAX + 2) * (size_t)HR_HEAP_CHUNK);
  hr__heap_trim(heap);
  HR_ASSERT_EQ(hr__heap_bytes(heap), HR_HEAP_CHUNK);
  HR_ASSERT(resident_pages(first, (size_t)CHUNKS * HR_HEAP_CHUNK) <= HR_HEAP_CHUNK / page);
  expect(first, BYTES, 0);
  hr__heap_free(heap, first);
  hr__heap_trim(heap);
  HR_ASSERT_EQ(hr__heap_bytes(heap), 0);
  free(heap);
}

/* ---- threads ---- */

enum { THREADS = 4, SLOTS = 200, TURNS = 20000 };

typedef struct user {
  hr_heap *heap;
  size_t seed;
  unsigned char *blocks[SLOTS];
  size_t bytes[SLOTS];
} user;

static void use(void *arg) {
  user *u = arg;
  size_t state = u->seed;
  for (int turn = 0; turn < TURNS; ++turn) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    size_t slot = (state >> 33) % SLOTS, bytes = 1 + (state >> 43) % ((state >> 40) % 8 == 0 ? 70000 : 700);
    if (u->blocks[slot] != NULL) {
      HR_ASSERT_EQ(u->blocks[slot][u->bytes[slot] - 1], (u->seed + slot) % 251);
      hr__heap_free(u->heap, u->blocks[slot]);
    }
    u->blocks[slot] = hr__heap_alloc(u->heap, bytes);
    memset(u->blocks[slot], (int)((u->seed + slot) % 251), bytes);
    u->bytes[slot] = bytes;
  }
}

HR_TEST(threads_share_it_and_free_blocks_of_each_other) {
  hr_heap *heap = make_heap();
  static user users[THREADS];
  hr_thread threads[THREADS] = {0};
  for (size_t i = 0; i < THREADS; ++i) {
    users[i] = (user){.heap = heap, .seed = i + 1};
    HR_ASSERT_OK(hr_thread_start("heap", use, &users[i], &threads[i]));
  }
  for (int i = 0; i < THREADS; ++i) {
    hr_thread_join(&threads[i]);
  }
  for (int i = 0; i < THREADS; ++i) {
    for (size_t slot = 0; slot < SLOTS; ++slot) {
      if (users[i].blocks[slot] != NULL) {
        expect(users[i].blocks[slot], 0, 0);
        hr__heap_free(heap, users[i].blocks[slot]);
      }
    }
  }
  HR_ASSERT_EQ(hr__heap_live(heap), 0);
  free(heap);
}

/* ---- forks ---- */

/* The process's heap, whose locks other threads hold now and then. */
static void allocate_until(void *arg) {
  while (!atomic_load((atomic_bool *)arg)) {
    hr_free(hr_malloc(100));
  }
}

HR_TEST(a_child_of_fork_allocates) {
  atomic_bool ends = false;
  hr_thread thread = {0};
  HR_ASSERT_OK(hr_thread_start("heap", allocate_until, &ends, &thread));
  for (int i = 0; i < 50; ++i) {
    pid_t child = fork();
    if (child == 0) {
      alarm(20);
      for (int k = 0; k < 100; ++k) {
        hr_free(hr_malloc(100));
      }
      _exit(0);
    }
    int status = -1;
    HR_ASSERT_EQ(waitpid(child, &status, 0), child);
    HR_ASSERT_EQ(status, 0);
  }
  atomic_store(&ends, true);
  hr_thread_join(&thread);
}

HR_TEST(a_limit_of_addresses_is_left_to_others) {
  const struct rlimit limit = {.rlim_cur = (rlim_t)240 << 30, .rlim_max = (rlim_t)240 << 30};
  pid_t child = fork();
  if (child == 0) {
    hr_heap *heap = calloc(1, sizeof *heap);
    hr__heap_init(heap);
    int status = setrlimit(RLIMIT_AS, &limit);
    hr__heap_reserve(heap);
    size_t bytes = heap->end * HR_HEAP_CHUNK;
    _exit(status == 0 && bytes > limit.rlim_cur / 32 && bytes <= limit.rlim_cur / 16 ? 0 : 1);
  }
  int status = 0;
  HR_ASSERT_EQ(waitpid(child, &status, 0), child);
  HR_ASSERT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

HR_TEST(without_a_range_blocks_are_the_c_librarys) {
  hr_heap heap;
  hr__heap_init(&heap);
  void *block = hr__heap_realloc(&heap, hr__heap_alloc(&heap, 10), 100);
  HR_ASSERT_EQ(hr__heap_live(&heap), 1);
  hr__heap_free(&heap, block);
  HR_ASSERT_EQ(hr__heap_live(&heap), 0);
  hr__heap_trim(&heap);
  HR_ASSERT_EQ(hr__heap_bytes(&heap), 0);
}
