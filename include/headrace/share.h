/* share.h: a buffer's memory in another process of this machine, without a copy.
 *
 * The sender describes the buffer (hr_stream_share) and passes the description on, with the file if there is one. The
 * receiver opens it as a buffer of its own device (hr_buffer_open). Both then have the same memory:
 *
 *   memory of the host   a file; it lives until the last of the two has released its buffer
 *   CUDA                 a name of the driver; the sender keeps its buffer until the receiver has released its own
 *
 * A process sees what another one wrote after that one has waited for it (hr_stream_synchronize). The other's reads and
 * writes are ordered by nothing else.
 *
 * Threads: any, but no other thread records work on a buffer while it is being described.
 */
#ifndef HEADRACE_SHARE_H_
#define HEADRACE_SHARE_H_

#include "headrace/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HR_SHARED_NAME_BYTES = 64 };

/* Plain bytes, valid in the processes of this machine. */
typedef struct hr_shared {
  int64_t bytes;                            /* of the buffer, > 0 */
  int64_t offset;                           /* of the buffer in what the name stands for */
  unsigned char name[HR_SHARED_NAME_BYTES]; /* of a driver; zeros if there is a file */
} hr_shared;

/* Commits, waits, and describes the buffer. Memory of the host moves into a file first, *out_file, which the buffer
 * owns and closes; addresses that were given out before show the former memory from then on. For a driver's name
 * *out_file is -1.
 *
 * INVALID_ARGUMENT: the buffer is empty. UNIMPLEMENTED: the driver can't share memory. RESOURCE_EXHAUSTED: there is no
 * memory or no file left; the buffer is as before. */
HR_API HR_MUST_USE hr_status hr_stream_share(hr_stream *stream, hr_buffer *buffer, hr_shared *out_shared,
                                             int *out_file);

/* A buffer in the memory that another process has described; `file` is the receiver's descriptor of the same file, or
 * -1. On success the buffer owns it. release(arg), unless NULL, is called once when the memory is no longer mapped,
 * from any thread; never if this call fails. The device's statistics and limit do not count the memory.
 *
 * INVALID_ARGUMENT: a description that fits no memory. UNIMPLEMENTED: as above. */
HR_API HR_MUST_USE hr_status hr_buffer_open(hr_device *device, const hr_shared *shared, int file,
                                            void (*release)(void *arg), void *arg, hr_buffer **out_buffer);

#ifdef __cplusplus
}
#endif

#endif
