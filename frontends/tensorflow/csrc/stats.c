/* stats.c: what headrace_tensorflow calls from Python. */
#include "cluster.h"
#include "plugin.h"

static htf_device *_Atomic devices[HTF_DEVICES_MAX];

void htf_device_list(int ordinal, htf_device *device) {
  if (ordinal >= 0 && ordinal < HTF_DEVICES_MAX) {
    atomic_store(&devices[ordinal], device);
  }
}

htf_device *htf_device_at(int ordinal) {
  return ordinal >= 0 && ordinal < HTF_DEVICES_MAX ? atomic_load(&devices[ordinal]) : NULL;
}

htf_device *htf_device_of(const hr_buffer *buffer) {
  for (int i = 0; i < HTF_DEVICES_MAX; ++i) {
    htf_device *device = htf_device_at(i);
    if (device != NULL && device->device == hr_buffer_device(buffer)) {
      return device;
    }
  }
  return NULL;
}

/* The counters of a device's stream; false if TensorFlow has not created the device. */
HTF_EXPORT bool headrace_tensorflow_stats(int ordinal, size_t bytes, hr_stats *out_stats) {
  htf_device *device = htf_device_at(ordinal);
  if (device != NULL) {
    hr_stream_stats_read(device->stream, bytes, out_stats);
  }
  return device != NULL;
}

/* Those of its memory. */
HTF_EXPORT bool headrace_tensorflow_memory_stats(int ordinal, size_t bytes, hr_memory_stats *out_stats) {
  htf_device *device = htf_device_at(ordinal);
  if (device != NULL) {
    hr_device_memory_stats_read(device->device, bytes, out_stats);
  }
  return device != NULL;
}

/* The largest number of bytes so far becomes that of now. */
HTF_EXPORT bool headrace_tensorflow_reset_peak(int ordinal) {
  htf_device *device = htf_device_at(ordinal);
  if (device != NULL) {
    hr_device_memory_reset_peak(device->device);
  }
  return device != NULL;
}

/* Sets the counters to 0. */
HTF_EXPORT bool headrace_tensorflow_reset_stats(int ordinal) {
  htf_device *device = htf_device_at(ordinal);
  if (device != NULL) {
    hr_stream_reset_stats(device->stream);
  }
  return device != NULL;
}

/* Counters of clusters, of all devices: clusters of optimized graphs, nodes in them, captures, runs. */
HTF_EXPORT void headrace_tensorflow_cluster_stats(int64_t out_counts[4]) {
  out_counts[0] = atomic_load(&htf_clusters.clusters), out_counts[1] = atomic_load(&htf_clusters.nodes);
  out_counts[2] = atomic_load(&htf_clusters.captures), out_counts[3] = atomic_load(&htf_clusters.runs);
}
