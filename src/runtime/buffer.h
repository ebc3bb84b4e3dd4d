/* buffer.h: counted bytes of a device that get their memory late.
 *
 * Structs are pooled by the size of their handle's slot, which they keep for ever: creating and releasing a buffer
 * costs two short locks. Nothing of the pool is ever destroyed, because a framework may drop its last tensors from any
 * thread while the process ends.
 *
 * A buffer without memory is *fresh*: it has no contents. A buffer whose contents were never made because the work that
 * would have made them failed is *invalid*: using it reports that failure again.
 */
#ifndef HEADRACE_RUNTIME_BUFFER_H_
#define HEADRACE_RUNTIME_BUFFER_H_

#include <stdatomic.h>

#include "runtime/device.h"

/* A reference of work that is on its way counts this much in addition: whether a buffer is dead must not depend on how
 * far the device has got. */
#define HR__BUFFER_ON_ITS_WAY (INT64_C(1) << 32)

struct hr_buffer {
  atomic_int_least64_t count; /* references, and above them those of work that is on its way */
  int32_t shift;              /* of the handle's slot */
  size_t bytes;
  hr_device *device;
  void *handle;
  _Atomic(void *) address; /* NULL: fresh */
  hr_block *block;
  /* Which buffer of a pending trace this is: stream << 32 | number. Only a hint: the trace's list confirms it. */
  atomic_uint_least64_t tag;
  /* How the contents lie: a word that the engine keeps for the compiler; 0: as views say. Changes under the device's
   * shared_mutex. */
  atomic_uint_least64_t layout;
  /* Which contents it has: a number that no other buffer and no other time shares. 0: somebody has its address. */
  atomic_uint_least64_t stamp;
  uint64_t source; /* the contents that something kept was made of (cached_weights.h); 0: none. The device's jobs look
                      at it, in order */
  /* Integers that the host wrote, while `stamp` is `noted` (engine/index_source.h): their dtype, the smallest and the
   * largest. */
  uint64_t noted;
  int32_t noted_dtype;
  int64_t least, most;
  _Atomic(hr_status) invalidate; /* changed under a lock of buffer.c */
  atomic_bool is_undefined; /* was invalid, and nothing has been written since, whether or not somebody promised to */
  struct hr_buffer *next;   /* in the pool */
};

static inline void *hr__buffer_address(const hr_buffer *buffer) {
  return atomic_load_explicit(&((hr_buffer *)buffer)->address, memory_order_acquire);
}

static inline uint64_t hr__buffer_layout(const hr_buffer *buffer) {
  return atomic_load_explicit(&((hr_buffer *)buffer)->layout, memory_order_acquire);
}

static inline bool hr__buffer_is_invalid(const hr_buffer *buffer) {
  return __builtin_expect(atomic_load_explicit(&((hr_buffer *)buffer)->invalidate, memory_order_relaxed) != NULL, 0);
}

static inline bool hr__buffer_is_undefined(const hr_buffer *buffer) {
  return __builtin_expect(atomic_load_explicit(&((hr_buffer *)buffer)->is_undefined, memory_order_relaxed), 0);
}

/* The buffer has contents now. */
static inline void hr__buffer_written(hr_buffer *buffer) {
  if (hr__buffer_is_undefined(buffer)) {
    atomic_store_explicit(&buffer->is_undefined, false, memory_order_relaxed);
  }
}

/* References, without those of work that is on its way. */
static inline int64_t hr__buffer_holders(hr_buffer *buffer) {
  int64_t count = atomic_load_explicit(&buffer->count, memory_order_acquire);
  return __builtin_expect(count < HR__BUFFER_ON_ITS_WAY, 1)
             ? count
             : count % HR__BUFFER_ON_ITS_WAY - count / HR__BUFFER_ON_ITS_WAY;
}

/* One more reference by someone who holds one. */
static inline void hr__buffer_retain(hr_buffer *buffer) {
  atomic_fetch_add_explicit(&buffer->count, 1, memory_order_relaxed);
}

/* hr_buffer_create for `count` sizes at once. On failure there is none. */
HR_MUST_USE hr_status hr__buffers_create(hr_device *device, size_t count, const size_t *bytes, hr_buffer **out_buffers);
/* hr_buffer_release for each of `count` buffers, none of which is NULL. */
void hr__buffers_release(size_t count, hr_buffer *const *buffers);
/* The references that the caller holds become those of work that is on its way, and end. */
void hr__buffers_send(size_t count, hr_buffer *const *buffers);
void hr__buffers_arrive(size_t count, hr_buffer *const *buffers);

/* The buffer gets new contents. */
void hr__buffer_restamp(hr_buffer *buffer);

/* Libraries may keep what they make of the contents `stamp` (0: of nothing), and nothing older. */
void hr__buffer_keep(hr_buffer *buffer, uint64_t stamp);

/* Gives the buffer memory unless it has some. */
HR_MUST_USE hr_status hr__buffer_bind(hr_buffer *buffer);
/* Takes memory back from a buffer that nobody has used since it was bound. */
void hr__buffer_unbind(hr_buffer *buffer);

/* Two buffers of one device and size exchange their memory, and how it lies; both have new contents. */
void hr__buffers_exchange(hr_buffer *a, hr_buffer *b);

/* Invalidates a buffer that isn't yet, with a copy of `status`. */
void hr__buffer_invalidate(hr_buffer *buffer, hr_status status);
/* A copy of what the buffer is invalid with, or OK. */
HR_MUST_USE hr_status hr__buffer_failure(const hr_buffer *buffer);
/* The buffer is about to be written from end to end. Until it is, it stays undefined: if the write fails, it is invalid
 * again. */
void hr__buffer_heal(hr_buffer *buffer);

#endif
