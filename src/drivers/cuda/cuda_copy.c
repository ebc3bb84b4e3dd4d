/* cuda_copy.c: copies between host and device, and between devices, and fills.
 *
 * For a copy from or to memory that is not pinned, CUDA blocks and stages the bytes; ours go through pinned slots
 * instead.
 *
 *   in    Bytes of all copies are appended to the slots, and the caller goes on. A slot is reused when the event
 *         after its last copy has completed: small copies wait for nothing.
 *   out   Chunk i goes through slot i % HR_CUDA_SLOTS; the device fills some while the host empties another.
 *
 * Several threads of the host copy a large chunk together. A result's memory is often new, and its first touch, page by
 * page, takes longer than the copy.
 */
#include <string.h>

#include "base/integer.h"
#include "drivers/cuda/cuda_internal.h"

enum { ALIGNMENT = 64, SEED_ROWS = 4096 };

static size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

hr_status hr__cuda_staging_init(hr__cuda_staging *staging) {
  void *memory = NULL;
  size_t bytes = (size_t)HR_CUDA_SLOTS * HR_CUDA_SLOT_BYTES;
  HR_RETURN_IF_ERROR(
      hr__cuda_status(hr__cuda()->cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE), "pinned memory"));
  staging->memory = memory;
  for (int i = 0; i < HR_CUDA_SLOTS; ++i) {
    HR_RETURN_IF_ERROR(
        hr__cuda_status(hr__cuda()->cuEventCreate(&staging->copied[i], CU_EVENT_DISABLE_TIMING), "cuEventCreate"));
  }
  return HR_OK;
}

void hr__cuda_staging_fini(hr__cuda_staging *staging) {
  for (int i = 0; i < HR_CUDA_SLOTS; ++i) {
    if (staging->copied[i] != NULL) {
      (void)hr__cuda()->cuEventDestroy_v2(staging->copied[i]);
    }
  }
  if (staging->memory != NULL) {
    (void)hr__cuda()->cuMemFreeHost(staging->memory);
  }
}

/* ---- in ---- */

/* Makes the slot after a full one current. */
static hr_status next_slot(hr__cuda_staging *staging) {
  int next = (staging->slot + 1) % HR_CUDA_SLOTS;
  HR_RETURN_IF_ERROR(hr__cuda_status(hr__cuda()->cuEventSynchronize(staging->copied[next]), "wait for a copy in"));
  staging->slot = next;
  staging->used = 0;
  return HR_OK;
}

/* Copies as much as fits into the current slot. */
static hr_status copy_in_some(hr__cuda_device *device, char *to, const char *host, size_t bytes, size_t *out_copied) {
  hr__cuda_staging *in = &device->in;
  if (in->used == HR_CUDA_SLOT_BYTES) {
    HR_RETURN_IF_ERROR(next_slot(in));
  }
  size_t count = smaller(bytes, HR_CUDA_SLOT_BYTES - in->used);
  char *staged = in->memory + (size_t)in->slot * HR_CUDA_SLOT_BYTES + in->used;
  hr_parallel_copy(staged, host, count);
  HR_RETURN_IF_ERROR(hr__cuda_status(hr__cuda()->cuMemcpyHtoDAsync_v2(to, staged, count, device->stream), "copy in"));
  in->used += hr_align_up(count, ALIGNMENT);
  *out_copied = count;
  return in->used < HR_CUDA_SLOT_BYTES
             ? HR_OK
             : hr__cuda_status(hr__cuda()->cuEventRecord(in->copied[in->slot], device->stream), "cuEventRecord");
}

hr_status hr__cuda_copy_in(hr__cuda_device *device, void *to, const void *host, size_t bytes) {
  hr_status status = HR_OK;
  hr_mutex_lock(&device->in.mutex);
  for (size_t done = 0, count = 0; done < bytes && status == HR_OK; done += count) {
    status = copy_in_some(device, (char *)to + done, (const char *)host + done, bytes - done, &count);
  }
  hr_mutex_unlock(&device->in.mutex);
  return status;
}

/* ---- out ---- */

typedef struct out_copy {
  char *host;
  const char *from;
  size_t bytes;
} out_copy;

static size_t chunk_bytes(const out_copy *copy, size_t chunk) {
  return smaller(copy->bytes - chunk * HR_CUDA_SLOT_BYTES, HR_CUDA_SLOT_BYTES);
}

/* Queues the copy of a chunk into its slot. */
static hr_status request_chunk(hr__cuda_device *device, const out_copy *copy, size_t chunk) {
  hr__cuda_staging *out = &device->out;
  size_t slot = chunk % HR_CUDA_SLOTS;
  HR_RETURN_IF_ERROR(hr__cuda_status(hr__cuda()->cuMemcpyDtoHAsync_v2(out->memory + slot * HR_CUDA_SLOT_BYTES,
                                                                      copy->from + chunk * HR_CUDA_SLOT_BYTES,
                                                                      chunk_bytes(copy, chunk), device->stream),
                                     "copy out"));
  return hr__cuda_status(hr__cuda()->cuEventRecord(out->copied[slot], device->stream), "cuEventRecord");
}

static hr_status collect_chunk(hr__cuda_device *device, const out_copy *copy, size_t chunk) {
  hr__cuda_staging *out = &device->out;
  size_t slot = chunk % HR_CUDA_SLOTS;
  HR_RETURN_IF_ERROR(hr__cuda_status(hr__cuda()->cuEventSynchronize(out->copied[slot]), "wait for a copy out"));
  hr_parallel_copy(copy->host + chunk * HR_CUDA_SLOT_BYTES, out->memory + slot * HR_CUDA_SLOT_BYTES,
                   chunk_bytes(copy, chunk));
  return HR_OK;
}

hr_status hr__cuda_copy_out(hr__cuda_device *device, void *host, const void *from, size_t bytes) {
  enum { AHEAD = HR_CUDA_SLOTS - 1 };
  const out_copy copy = {host, from, bytes};
  size_t chunks = bytes / HR_CUDA_SLOT_BYTES + (bytes % HR_CUDA_SLOT_BYTES > 0);
  hr_status status = HR_OK;
  hr_mutex_lock(&device->out.mutex);
  for (size_t i = 0; i < chunks + AHEAD && status == HR_OK; ++i) {
    if (i < chunks) {
      status = request_chunk(device, &copy, i);
    }
    if (i >= AHEAD && i - AHEAD < chunks && status == HR_OK) {
      status = collect_chunk(device, &copy, i - AHEAD);
    }
  }
  hr_mutex_unlock(&device->out.mutex);
  return status;
}

/* ---- between devices ---- */

/* Enables access to each other's memory if the machine supports it; otherwise CUDA copies through the host. */
static void reach(hr__cuda_device *device, const hr__cuda_device *peer) {
  uint64_t bit = UINT64_C(1) << (peer->device & 63);
  int can = 0;
  if ((atomic_fetch_or(&device->peers, bit) & bit) == 0 &&
      hr__cuda()->cuDeviceCanAccessPeer(&can, device->device, peer->device) == CUDA_SUCCESS && can != 0) {
    (void)hr__cuda()->cuCtxEnablePeerAccess(peer->context,
                                            0); /* other code in the process may have enabled it already */
  }
}

hr_status hr__cuda_copy_peer(hr__cuda_device *device, void *to, const hr__cuda_device *source, const void *from,
                             size_t bytes) {
  reach(device, source);
  HR_RETURN_IF_ERROR(
      hr__cuda_status(hr__cuda()->cuMemcpyPeerAsync(to, device->context, from, source->context, bytes, device->stream),
                      "copy from another device"));
  return hr__cuda_status(hr__cuda()->cuStreamSynchronize(device->stream), "wait for a copy from another device");
}

/* ---- fills ---- */

/* The length of the shortest pattern whose repetition gives the same bytes. */
static size_t period_of(const char *pattern, size_t bytes) {
  while (bytes > 1 && memcmp(pattern, pattern + bytes / 2, bytes / 2) == 0) {
    bytes /= 2;
  }
  return bytes;
}

/* The widest value that CUDA can write at every multiple of `period` after this address. */
static size_t unit_of(const void *to, size_t period) {
  size_t all = (size_t)to | period | 4;
  return all & (~all + 1);
}

/* Writes `count` values of 1, 2 or 4 bytes, aligned to themselves. */
static int set_values(hr__cuda_device *device, void *to, const void *value, size_t unit, size_t count) {
  unsigned char byte;
  unsigned short half;
  unsigned word;
  switch (unit) {
    case 1:
      memcpy(&byte, value, sizeof byte);
      return hr__cuda()->cuMemsetD8Async(to, byte, count, device->stream);
    case 2:
      memcpy(&half, value, sizeof half);
      return hr__cuda()->cuMemsetD16Async(to, half, count, device->stream);
    default:
      memcpy(&word, value, sizeof word);
      return hr__cuda()->cuMemsetD32Async(to, word, count, device->stream);
  }
}

/* Writes one such value in each of `rows` rows that are `pitch` bytes apart. */
static int set_column(hr__cuda_device *device, void *to, size_t pitch, const void *value, size_t unit, size_t rows) {
  unsigned char byte;
  unsigned short half;
  unsigned word;
  switch (unit) {
    case 1:
      memcpy(&byte, value, sizeof byte);
      return hr__cuda()->cuMemsetD2D8Async(to, pitch, byte, 1, rows, device->stream);
    case 2:
      memcpy(&half, value, sizeof half);
      return hr__cuda()->cuMemsetD2D16Async(to, pitch, half, 1, rows, device->stream);
    default:
      memcpy(&word, value, sizeof word);
      return hr__cuda()->cuMemsetD2D32Async(to, pitch, word, 1, rows, device->stream);
  }
}

/* A pattern wider than CUDA's fill values: writes the first rows column by column, then doubles the filled part until
 * the range is full. */
static int fill_wide(hr__cuda_device *device, char *to, const char *pattern, size_t period, size_t unit, size_t bytes) {
  size_t rows = smaller(bytes / period, SEED_ROWS);
  for (size_t at = 0; at < period; at += unit) {
    int code = set_column(device, to + at, period, pattern + at, unit, rows);
    if (code != CUDA_SUCCESS) {
      return code;
    }
  }
  for (size_t done = rows * period, count; done < bytes; done += count) {
    count = smaller(done, bytes - done);
    int code = hr__cuda()->cuMemcpyDtoDAsync_v2(to + done, to, count, device->stream);
    if (code != CUDA_SUCCESS) {
      return code;
    }
  }
  return CUDA_SUCCESS;
}

hr_status hr__cuda_fill(hr__cuda_device *device, void *to, const void *pattern, size_t pattern_bytes, size_t count) {
  size_t bytes = pattern_bytes * count;
  if (bytes == 0) {
    return HR_OK;
  }
  size_t period = period_of(pattern, pattern_bytes), unit = unit_of(to, period);
  int code = period == unit ? set_values(device, to, pattern, unit, bytes / unit)
                            : fill_wide(device, to, pattern, period, unit, bytes);
  return hr__cuda_status(code, "fill");
}
