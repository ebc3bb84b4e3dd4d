/* buffer.h: reference-counted bytes of a device, whose memory is allocated late.
 *
 * Structs are pooled by the size of their handle's slot, which they keep permanently. Each thread keeps some free ones
 * of its own, so that most buffers are created and released without a lock. The pool is never destroyed, because a
 * framework may drop its last tensors from any thread while the process ends.
 *
 * A buffer without memory is *fresh*: it has no contents. A buffer is *invalid* if the work that would have written it
 * failed: using it reports that failure again.
 */
#ifndef HEADRACE_RUNTIME_BUFFER_H_
#define HEADRACE_RUNTIME_BUFFER_H_

#include <stdatomic.h>

#include "runtime/cached_weights.h"
#include "runtime/device.h"
#include "runtime/host_range.h"

/* An in-flight reference counts this much in addition to 1, so that deciding whether a buffer is dead does not depend
 * on the device's progress. */
#define HR__BUFFER_ON_ITS_WAY (INT64_C(1) << 32)

struct hr_buffer {
  atomic_int_least64_t count; /* references; the high bits count the in-flight ones */
  int32_t shift;              /* of the handle's slot */
  atomic_uchar growth;        /* hr_growth_state: the engine's note of how the buffer was made */
  size_t bytes;
  uint64_t serial; /* no other buffer of the process has it */
  hr_device *device;
  void *handle;
  _Atomic(void *) address; /* NULL: fresh */
  hr_block *block;
  /* The buffer's place in a pending trace: stream << 32 | number. Only a hint: the trace's list confirms it. */
  atomic_uint_least64_t tag;
  /* Notes of engine/stream_order.h, while the device has several streams: the stream of the last pending write and its
   * epoch, stream << 32 | epoch, and true if several streams may have pending reads. */
  atomic_uint_least64_t writer;
  atomic_bool is_shared;
  /* Layout of the contents, as a word that the engine keeps for the compiler; 0: as views describe. Changes under the
   * device's order_mutex. */
  atomic_uint_least64_t layout;
  /* Identifies the contents: no other buffer and no other time has the same number. 0: the address was given out. */
  atomic_uint_least64_t stamp;
  /* Notes of other modules, which alone read and write them. */
  hr_weights_note weights;
  hr_host_range range;
  _Atomic(hr_status) invalidate; /* changed under a lock of buffer.c */
  /* Bytes of the memory if they are more than `bytes`, else 0: room for the rows of a later `cat` (engine/growth.h).
   * Changes with the address. */
  atomic_size_t capacity;
  atomic_bool is_claimed;   /* invalid for later uses only: runs may use the buffer (hr_hook_claim_buffer) */
  bool is_constant;         /* hr_buffer_set_constant */
  bool is_adopted;          /* hr_buffer_adopt: the memory is somebody else's */
  atomic_bool is_donated;   /* hr_buffer_donate */
  atomic_bool is_undefined; /* was invalid, and nothing has been written since, even if a write was announced */
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

/* Reference count, excluding in-flight work. */
static inline int64_t hr__buffer_holders(hr_buffer *buffer) {
  int64_t count = atomic_load_explicit(&buffer->count, memory_order_acquire);
  return __builtin_expect(count < HR__BUFFER_ON_ITS_WAY, 1)
             ? count
             : count % HR__BUFFER_ON_ITS_WAY - count / HR__BUFFER_ON_ITS_WAY;
}

/* Adds a reference; the caller has one already. */
static inline void hr__buffer_retain(hr_buffer *buffer) {
  atomic_fetch_add_explicit(&buffer->count, 1, memory_order_relaxed);
}

/* hr_buffer_adopt for any device: the memory is the host's, and no kernel of the device may use it. */
HR_MUST_USE hr_status hr__buffer_adopt(hr_device *device, size_t bytes, void *address, void (*release)(void *arg),
                                       void *arg, hr_buffer **out_buffer);
/* hr_buffer_release for each of `count` buffers. */
void hr__buffers_release(size_t count, hr_buffer *const *buffers);
/* Turns the caller's references of buffers that are not NULL into references of in-flight work. */
void hr__buffers_send(size_t count, hr_buffer *const *buffers);
void hr__buffers_arrive(size_t count, hr_buffer *const *buffers);

/* The buffer gets new contents. */
void hr__buffer_restamp(hr_buffer *buffer);

/* Allocates the buffer's memory unless it has some. */
HR_MUST_USE hr_status hr__buffer_bind(hr_buffer *buffer);
/* The same with memory of `capacity` bytes, if the buffer has none. */
HR_MUST_USE hr_status hr__buffer_bind_room(hr_buffer *buffer, size_t capacity);
/* Frees the memory of a buffer that nothing has used since it was bound. */
void hr__buffer_unbind(hr_buffer *buffer);

/* Two buffers of one device and size exchange their memory and layout; both have new contents. */
void hr__buffers_exchange(hr_buffer *a, hr_buffer *b);
/* Moves the memory of one buffer to another of its device, which has none; false if it has some by now. */
bool hr__buffer_take(hr_buffer *to, hr_buffer *from);

/* Marks a valid buffer as invalid, with a copy of `status`. */
void hr__buffer_invalidate(hr_buffer *buffer, hr_status status);
/* The same for uses from now on; work that is pending may use the buffer. */
void hr__buffer_claim(hr_buffer *buffer, hr_status status);
/* A copy of the status that made the buffer invalid, or OK. */
HR_MUST_USE hr_status hr__buffer_failure(const hr_buffer *buffer);
/* Announces that the whole buffer will be written. Until then its contents are undefined; if the write fails, it is
 * invalid again. */
void hr__buffer_heal(hr_buffer *buffer);

/* Lock the pool for a fork, and unlock it in both processes. */
void hr__buffers_begin_fork(void);
void hr__buffers_end_fork(void);

#endif
