#include "engine/stream.h"
#include "headrace/tuning.h"

hr_status hr_stream_set_deterministic(hr_stream *stream, bool is_deterministic) {
  if (stream->is_capture || atomic_load(&stream->device->is_deterministic) == is_deterministic) {
    return HR_OK;
  }
  hr_mutex_lock(&stream->mutex);
  hr_status status = hr__stream_commit(stream, SIZE_MAX, HR_COMMIT_REQUEST, false);
  atomic_store(&stream->device->is_deterministic, is_deterministic);
  hr__cache_clear(&stream->cache);
  hr_mutex_unlock(&stream->mutex);
  return status;
}
