#include "engine/prefix.h"

/* True if the first `count` records can have their memory; otherwise *status becomes the failure. */
static bool can_run(hr_stream *stream, size_t count, hr_status *status) {
  hr_trace_lengths all = hr__trace_shorten(&stream->pending, count);
  hr_status failure = hr__stream_probe_pending(stream);
  hr__trace_lengthen(&stream->pending, &all);
  if (failure != HR_OK) {
    hr_status_free(*status);
    *status = failure;
  }
  return failure == HR_OK;
}

/* The number of records that can have their memory, less than `count`. */
static size_t find_length(hr_stream *stream, size_t count, hr_status *status) {
  size_t can = 0;
  while (count - can > 1) {
    size_t middle = can + (count - can) / 2;
    bool middle_can = can_run(stream, middle, status);
    can = middle_can ? middle : can;
    count = middle_can ? count : middle;
  }
  return can;
}

/* Runs the first `count` records, and returns the number of buffers dropped with them; 0: they have failed after
 * all. */
static size_t run_first(hr_stream *stream, size_t count) {
  hr_trace_lengths all = hr__trace_shorten(&stream->pending, count);
  size_t buffer_count = stream->pending.buffers.count;
  hr_status status = hr__stream_run_pending(stream, true);
  hr__trace_lengthen(&stream->pending, &all);
  bool has_run = status == HR_OK;
  hr_status_ignore(status);
  return has_run ? buffer_count : 0;
}

hr_status hr__stream_run_prefix(hr_stream *stream, hr_status status) {
  size_t gone = 0, count = stream->pending.records.count;
  while (hr_status_code_of(status) == HR_STATUS_RESOURCE_EXHAUSTED && gone == 0 && count > 1) {
    count = find_length(stream, count, &status);
    gone = count > 0 ? run_first(stream, count) : 0; /* 0: another stream was quicker */
  }
  hr_queue_drain(&stream->lane->queue); /* after the failure is set, nothing runs until it is reported */
  hr__stream_abandon(stream, gone, status);
  return status;
}
