#include "runtime/buffer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/cached_weights.h"
#include "runtime/handle_range.h"

enum { POOL_CHUNK = 65536, OWN_MAX = 128, OWN_REFILL = 16, CACHE_LINE = 64, AHEAD = 12 };

/* The free structs of one size of handles, with room for all that were made. Pointers beside the structs: these have
 * been used by another thread, and to read one for the address of the next would cost a cache miss each. */
typedef struct free_structs {
  HR_VECTOR(hr_buffer *) list;
  size_t made;
} free_structs;

/* The process's pool. Handles are addresses, and structs are never freed. */
static struct {
  hr_mutex mutex;
  bool has_key;
  pthread_key_t key;                          /* returns a thread's own structs when it ends */
  free_structs free[HR_HANDLE_SHIFT_MAX + 2]; /* structs with a handle; none in the last */
  char *chunk;                                /* structs without a handle so far */
  size_t chunk_left;
  hr_handle_range range;
  hr_mutex invalidate_mutex;
  atomic_uint_least64_t last_stamp;
  int forks; /* devices' tables that are locked for a fork */
} pool = {.mutex = HR_MUTEX_INITIALIZER, .invalidate_mutex = HR_MUTEX_INITIALIZER};

/* The free structs of a thread, which it takes and returns without the pool's lock; OWN_MAX at most. */
static _Thread_local struct {
  hr_buffer *free[HR_HANDLE_SHIFT_MAX + 1];
  int count;
  bool is_known; /* to pool.key */
} own HR__CONTEXT_TLS;

/* Creates a struct with a handle. The pool is locked. Chunks come from the system and are never freed. */
static hr_status make_struct(int shift, hr_buffer **out_buffer) {
  if (pool.chunk_left < sizeof(hr_buffer)) {
    void *fresh = mmap(NULL, POOL_CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) {
      return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "buffer: no host memory: %s", strerror(errno));
    }
    pool.chunk = fresh;
    pool.chunk_left = POOL_CHUNK;
  }
  free_structs *free = &pool.free[shift];
  if (!hr_vector_reserve(&free->list, free->made + 1)) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "buffer: no host memory for a list of buffers");
  }
  hr_buffer *buffer = (hr_buffer *)(void *)pool.chunk;
  HR_RETURN_IF_ERROR(hr__handle_take(&pool.range, shift, buffer, &buffer->handle));
  ++free->made;
  buffer->shift = shift;
  pool.chunk += sizeof *buffer;
  pool.chunk_left -= sizeof *buffer;
  *out_buffer = buffer;
  return HR_OK;
}

/* The first of `count` stamps that follow each other. */
static uint64_t take_stamps(size_t count) {
  return atomic_fetch_add_explicit(&pool.last_stamp, count, memory_order_relaxed) + 1;
}

void hr__buffer_restamp(hr_buffer *buffer) {
  if (atomic_load_explicit(&buffer->stamp, memory_order_relaxed) != 0) {
    atomic_store_explicit(&buffer->stamp, take_stamps(1), memory_order_relaxed);
  }
}

/* ---- forks ---- */

/* Each context's devices call it: the first one locks. fork.h lets one thread at a time fork. */
void hr__buffers_begin_fork(void) {
  if (pool.forks++ == 0) {
    hr_mutex_lock(&pool.mutex);
    hr_mutex_lock(&pool.invalidate_mutex);
  }
}

void hr__buffers_end_fork(void) {
  if (--pool.forks == 0) {
    hr_mutex_unlock(&pool.invalidate_mutex);
    hr_mutex_unlock(&pool.mutex);
  }
}

/* ---- free structs ---- */

static void push_own(hr_buffer *buffer) {
  buffer->next = own.free[buffer->shift];
  own.free[buffer->shift] = buffer;
}

static hr_buffer *pop_own(int shift) {
  hr_buffer *buffer = own.free[shift];
  if (buffer != NULL) {
    own.free[shift] = buffer->next;
  }
  return buffer;
}

/* The pool is locked, here and below. */
static void push_pool(hr_buffer *buffer) {
  free_structs *free = &pool.free[buffer->shift];
  free->list.data[free->list.count++] = buffer;
}

static hr_buffer *pop_pool(int shift) {
  free_structs *free = &pool.free[shift];
  return free->list.count > 0 ? hr_vector_pop(&free->list) : NULL;
}

static void prefetch_struct(const hr_buffer *buffer) {
  for (size_t i = 0; i < sizeof *buffer; i += CACHE_LINE) {
    __builtin_prefetch((const char *)buffer + i, 1);
  }
}

/* Returns all structs of this thread to the pool. */
static void return_own(void *unused) {
  (void)unused;
  hr_mutex_lock(&pool.mutex);
  for (int shift = 0; shift <= HR_HANDLE_SHIFT_MAX; ++shift) {
    for (hr_buffer *buffer; (buffer = pop_own(shift)) != NULL;) {
      push_pool(buffer);
    }
  }
  hr_mutex_unlock(&pool.mutex);
  own.count = 0;
}

/* Has return_own called when this thread ends. The pool is locked. Without a key the thread keeps no structs. */
static void register_own(void) {
  pool.has_key = pool.has_key || pthread_key_create(&pool.key, return_own) == 0;
  own.is_known = pool.has_key && pthread_setspecific(pool.key, &own) == 0;
}

static hr_status take_from_pool(int shift, hr_buffer **out_buffer) {
  *out_buffer = pop_pool(shift);
  return *out_buffer != NULL ? HR_OK : make_struct(shift, out_buffer);
}

/* A free struct of the pool, or a new one. Further ones of the pool become the thread's. */
__attribute__((noinline)) static hr_status refill(int shift, hr_buffer **out_buffer) {
  hr_mutex_lock(&pool.mutex);
  if (!own.is_known) {
    register_own();
  }
  hr_status status = take_from_pool(shift, out_buffer);
  hr_buffer *buffer = NULL;
  for (int i = 0; own.is_known && status == HR_OK && i < OWN_REFILL && own.count < OWN_MAX; ++i, ++own.count) {
    if ((buffer = pop_pool(shift)) == NULL) {
      break;
    }
    push_own(buffer);
  }
  hr_mutex_unlock(&pool.mutex);
  return status;
}

static inline hr_status take_struct(size_t bytes, hr_buffer **out_buffer) {
  int shift = hr__handle_shift(bytes);
  if (shift <= HR_HANDLE_SHIFT_MAX && (*out_buffer = pop_own(shift)) != NULL) {
    --own.count;
    return HR_OK;
  }
  return refill(shift, out_buffer);
}

/* Returns a list of structs: with one lock those that are too many for this thread. */
static void return_structs(hr_buffer *list) {
  int room = own.is_known ? OWN_MAX - own.count : 0;
  for (; list != NULL && room > 0; --room) {
    hr_buffer *buffer = list;
    list = buffer->next;
    push_own(buffer);
    ++own.count;
  }
  if (list == NULL) {
    return;
  }
  hr_mutex_lock(&pool.mutex);
  while (list != NULL) {
    hr_buffer *buffer = list;
    list = buffer->next;
    push_pool(buffer);
  }
  hr_mutex_unlock(&pool.mutex);
}

static inline void init_buffer(hr_buffer *buffer, hr_device *device, size_t bytes, uint64_t stamp) {
  buffer->bytes = bytes;
  buffer->device = device;
  buffer->block = NULL;
  atomic_store_explicit(&buffer->weights.stamp, 0, memory_order_relaxed);
  buffer->range.stamp = 0;
  atomic_store_explicit(&buffer->address, NULL, memory_order_relaxed);
  atomic_store_explicit(&buffer->tag, 0, memory_order_relaxed);
  atomic_store_explicit(&buffer->writer, 0, memory_order_relaxed);
  atomic_store_explicit(&buffer->is_shared, false, memory_order_relaxed);
  atomic_store_explicit(&buffer->layout, 0, memory_order_relaxed);
  atomic_store_explicit(&buffer->capacity, 0, memory_order_relaxed);
  atomic_store_explicit(&buffer->growth, 0, memory_order_relaxed);
  buffer->is_constant = buffer->is_adopted = false;
  atomic_store_explicit(&buffer->is_donated, false, memory_order_relaxed);
  buffer->serial = stamp;
  atomic_store_explicit(&buffer->stamp, buffer->serial, memory_order_relaxed);
  atomic_store_explicit(&buffer->count, 1, memory_order_release);
}

hr_status hr_buffer_create(hr_device *device, size_t bytes, hr_buffer **out_buffer) {
  HR_RETURN_IF_ERROR(take_struct(bytes, out_buffer));
  init_buffer(*out_buffer, device, bytes, take_stamps(1));
  return HR_OK;
}

/* As malloc aligns: kernels read vectors at any address of a whole element. */
enum { HR__ADOPTED_ALIGNMENT = 16 };

static hr_status adopt_for_kernels(hr_device *device, size_t bytes, void *address, void (*release)(void *arg),
                                   void *arg, hr_buffer **out_buffer) {
  HR_RETURN_IF_ERROR(hr__buffer_adopt(device, bytes, address, release, arg, out_buffer));
  if (hr__device_runs_later(device)) { /* earlier work in the device's own queue may write to the memory */
    uint64_t ticket = hr__lane_begin_use(&device->lanes[0], true, (*out_buffer)->block);
    hr__lane_end_use(&device->lanes[0], ticket);
  }
  return HR_OK;
}

static hr_status refuse_address(const hr_device *device, size_t bytes, const void *address, int alignment) {
  return hr_status_make(HR_STATUS_FAILED_PRECONDITION,
                        "%s: %zu bytes of memory at %p can't be a buffer: expected some bytes at an address aligned "
                        "to %d",
                        device->name, bytes, address, alignment);
}

hr_status hr_buffer_adopt(hr_device *device, size_t bytes, void *address, void (*release)(void *arg), void *arg,
                          hr_buffer **out_buffer) {
  return bytes > 0 && (uintptr_t)address % HR__ADOPTED_ALIGNMENT == 0
             ? adopt_for_kernels(device, bytes, address, release, arg, out_buffer)
             : refuse_address(device, bytes, address, HR__ADOPTED_ALIGNMENT);
}

hr_status hr_buffer_adopt_elements(hr_device *device, hr_dtype dtype, int64_t count, void *address,
                                   void (*release)(void *arg), void *arg, hr_buffer **out_buffer) {
#if defined(__x86_64__) && !defined(HR_SANITIZED) /* sanitizers report such reads */
  const size_t alignment = 1;
#else
  const size_t alignment = hr_dtype_size(dtype);
#endif
  size_t bytes = (size_t)count * hr_dtype_size(dtype);
  return bytes > 0 && (uintptr_t)address % alignment == 0
             ? adopt_for_kernels(device, bytes, address, release, arg, out_buffer)
             : refuse_address(device, bytes, address, (int)alignment);
}

hr_status hr__buffer_adopt(hr_device *device, size_t bytes, void *address, void (*release)(void *arg), void *arg,
                           hr_buffer **out_buffer) {
  hr_buffer *buffer;
  HR_RETURN_IF_ERROR(hr_buffer_create(device, bytes, &buffer));
  buffer->block = hr__block_adopt(bytes, address, release, arg);
  if (buffer->block == NULL) {
    hr_buffer_release(buffer);
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for a buffer");
  }
  buffer->is_adopted = true;
  atomic_store_explicit(&buffer->address, address, memory_order_release);
  atomic_store_explicit(&buffer->stamp, 0, memory_order_relaxed); /* the memory's owner may write to it */
  *out_buffer = buffer;
  return HR_OK;
}

void hr_buffer_set_constant(hr_buffer *buffer) {
  buffer->is_constant = true;
  atomic_store_explicit(&buffer->stamp, take_stamps(1), memory_order_relaxed);
}

void hr_buffer_donate(hr_buffer *buffer) {
  bool is_own = !buffer->is_adopted && buffer->device->properties.is_host;
  atomic_store_explicit(&buffer->is_donated, is_own, memory_order_relaxed);
}

void hr_buffer_retain(hr_buffer *buffer) {
  if (buffer != NULL) {
    hr__buffer_retain(buffer);
  }
}

/* Drops references. True if these were the last ones: the struct is empty then and returns to the pool. */
static bool let_go(hr_buffer *buffer, int64_t reference) {
  if (atomic_fetch_sub_explicit(&buffer->count, reference, memory_order_acq_rel) != reference) {
    return false;
  }
  hr_caching_allocator_free(&buffer->device->allocator, buffer->block);
  if (hr__buffer_is_invalid(buffer)) {
    hr__buffer_heal(buffer);
  }
  hr__buffer_written(buffer);
  hr__cached_weights_note(&buffer->weights, buffer->device->context, 0);
  return true;
}

static void release_all(size_t count, hr_buffer *const *buffers, int64_t reference) {
  hr_buffer *free = NULL;
  for (size_t i = 0; i < count; ++i) {
    hr_buffer *buffer = buffers[i];
    if (i + AHEAD < count && buffers[i + AHEAD] != NULL) {
      prefetch_struct(buffers[i + AHEAD]);
    }
    if (buffer != NULL && let_go(buffer, reference)) {
      buffer->next = free;
      free = buffer;
    }
  }
  return_structs(free);
}

void hr__buffers_release(size_t count, hr_buffer *const *buffers) {
  release_all(count, buffers, 1);
}

void hr__buffers_send(size_t count, hr_buffer *const *buffers) {
  for (size_t i = 0; i < count; ++i) {
    if (buffers[i] != NULL) {
      atomic_fetch_add_explicit(&buffers[i]->count, HR__BUFFER_ON_ITS_WAY, memory_order_relaxed);
    }
  }
}

void hr__buffers_arrive(size_t count, hr_buffer *const *buffers) {
  release_all(count, buffers, HR__BUFFER_ON_ITS_WAY + 1);
}

void hr_buffer_release(hr_buffer *buffer) {
  hr__buffers_release(1, &buffer);
}

hr_device *hr_buffer_device(const hr_buffer *buffer) {
  return buffer->device;
}

uint64_t hr_buffer_serial(const hr_buffer *buffer) {
  return buffer->serial;
}

size_t hr_buffer_bytes(const hr_buffer *buffer) {
  return buffer->bytes;
}

void *hr_buffer_handle(const hr_buffer *buffer) {
  return buffer->handle;
}

/* Retains the buffer unless its last reference is gone. */
static bool retain_living(hr_buffer *buffer) {
  int_least64_t count = atomic_load_explicit(&buffer->count, memory_order_relaxed);
  while (count > 0) {
    if (atomic_compare_exchange_weak_explicit(&buffer->count, &count, count + 1, memory_order_acquire,
                                              memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

hr_buffer *hr_buffer_from_handle(const void *address, size_t *out_offset_bytes) {
  void *begin = NULL;
  hr_buffer *buffer = hr__handle_owner(&pool.range, address, &begin);
  if (buffer == NULL || !retain_living(buffer)) {
    return NULL;
  }
  size_t offset = (size_t)((const char *)address - (const char *)begin);
  if (offset > buffer->bytes) {
    hr_buffer_release(buffer);
    return NULL;
  }
  *out_offset_bytes = offset;
  return buffer;
}

/* Locks nothing. */
bool hr_handle_describe(const void *address, size_t bytes, char *out_text) {
  void *begin = NULL;
  hr_buffer *buffer = hr__handle_owner(&pool.range, address, &begin);
  if (buffer == NULL) {
    bool is_within = hr__handle_is_within(&pool.range, address);
    snprintf(out_text, bytes, "%s", is_within ? "no buffer" : "");
    return is_within;
  }
  size_t offset = (size_t)((const char *)address - (const char *)begin), size = buffer->bytes;
  if (atomic_load_explicit(&buffer->count, memory_order_acquire) <= 0) {
    snprintf(out_text, bytes, "byte %zu of a buffer that was released, which had %zu bytes", offset, size);
  } else {
    snprintf(out_text, bytes, "byte %zu of a buffer of %zu bytes of device %s, whose handle is %p", offset, size,
             buffer->device->name, begin);
  }
  return true;
}

hr_status hr__buffer_bind(hr_buffer *buffer) {
  return hr__buffer_bind_room(buffer, 0);
}

hr_status hr__buffer_bind_room(hr_buffer *buffer, size_t capacity) {
  if (hr__buffer_address(buffer) != NULL) {
    return HR_OK;
  }
  hr_device *device = buffer->device;
  hr_status status = HR_OK;
  hr_mutex_lock(&device->bind_mutex);
  if (hr__buffer_address(buffer) == NULL) {
    size_t bytes = capacity > buffer->bytes ? capacity : buffer->bytes;
    status = hr_caching_allocator_alloc(&device->allocator, bytes, &buffer->block);
    if (status == HR_OK) {
      atomic_store_explicit(&buffer->capacity, capacity, memory_order_relaxed);
      atomic_store_explicit(&buffer->address, buffer->block->address, memory_order_release);
      if (__builtin_expect(atomic_load_explicit(&device->is_observed, memory_order_relaxed), 0)) {
        hr_caching_allocator_note_owner(&device->allocator, buffer->block, buffer->handle);
      }
    }
  }
  hr_mutex_unlock(&device->bind_mutex);
  return status;
}

void hr__buffer_unbind(hr_buffer *buffer) {
  hr_device *device = buffer->device;
  hr_mutex_lock(&device->bind_mutex);
  hr_caching_allocator_free(&device->allocator, buffer->block);
  buffer->block = NULL;
  atomic_store_explicit(&buffer->capacity, 0, memory_order_relaxed);
  atomic_store_explicit(&buffer->address, NULL, memory_order_release);
  hr_mutex_unlock(&device->bind_mutex);
}

bool hr__buffer_take(hr_buffer *to, hr_buffer *from) {
  hr_device *device = to->device;
  hr_mutex_lock(&device->bind_mutex);
  bool is_free = hr__buffer_address(to) == NULL;
  if (is_free) {
    to->block = from->block;
    atomic_store_explicit(&to->capacity, atomic_load_explicit(&from->capacity, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&to->address, hr__buffer_address(from), memory_order_release);
    from->block = NULL;
    atomic_store_explicit(&from->capacity, 0, memory_order_relaxed);
    atomic_store_explicit(&from->address, NULL, memory_order_release);
  }
  hr_mutex_unlock(&device->bind_mutex);
  return is_free;
}

/* The address is exchanged first: a reader that sees the new layout also sees the memory that it describes. */
void hr__buffers_exchange(hr_buffer *a, hr_buffer *b) {
  hr_device *device = a->device;
  hr_mutex_lock(&device->bind_mutex);
  hr_block *block = a->block;
  void *address = hr__buffer_address(a);
  uint64_t layout = hr__buffer_layout(a);
  size_t capacity = atomic_load_explicit(&a->capacity, memory_order_relaxed);
  a->block = b->block;
  atomic_store_explicit(&a->capacity, atomic_load_explicit(&b->capacity, memory_order_relaxed), memory_order_relaxed);
  atomic_store_explicit(&b->capacity, capacity, memory_order_relaxed);
  atomic_store_explicit(&a->address, hr__buffer_address(b), memory_order_release);
  atomic_store_explicit(&a->layout, hr__buffer_layout(b), memory_order_release);
  b->block = block;
  atomic_store_explicit(&b->address, address, memory_order_release);
  atomic_store_explicit(&b->layout, layout, memory_order_release);
  hr_mutex_unlock(&device->bind_mutex);
  hr__buffer_restamp(a);
  hr__buffer_restamp(b);
}

void hr__buffer_invalidate(hr_buffer *buffer, hr_status status) {
  hr_mutex_lock(&pool.invalidate_mutex);
  if (atomic_load_explicit(&buffer->invalidate, memory_order_relaxed) == NULL) {
    atomic_store_explicit(&buffer->invalidate, hr_status_clone(status), memory_order_release);
    atomic_store_explicit(&buffer->is_undefined, true, memory_order_relaxed);
  }
  hr_mutex_unlock(&pool.invalidate_mutex);
}

void hr__buffer_claim(hr_buffer *buffer, hr_status status) {
  atomic_store_explicit(&buffer->is_claimed, true, memory_order_release);
  hr__buffer_invalidate(buffer, status);
}

hr_status hr__buffer_failure(const hr_buffer *buffer) {
  hr_mutex_lock(&pool.invalidate_mutex);
  hr_status status = hr_status_clone(atomic_load_explicit(&((hr_buffer *)buffer)->invalidate, memory_order_acquire));
  hr_mutex_unlock(&pool.invalidate_mutex);
  return status;
}

void hr__buffer_heal(hr_buffer *buffer) {
  hr_mutex_lock(&pool.invalidate_mutex);
  hr_status status = atomic_exchange_explicit(&buffer->invalidate, NULL, memory_order_acq_rel);
  atomic_store_explicit(&buffer->is_claimed, false, memory_order_relaxed);
  hr_mutex_unlock(&pool.invalidate_mutex);
  hr_status_free(status);
}
