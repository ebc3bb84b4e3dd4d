/* cuda_driver.c: the CUDA driver's table of functions. See cuda_internal.h for streams, contexts and errors,
 * cuda_copy.c for copies, cuda_graph.c for graphs.
 *
 * Each allocation is one of CUDA's; the caching allocator above reuses them. Work is asynchronous: launch, copy_in,
 * copy_within, fill and event_record return when the work is in the stream; flush, copy_out and event_wait report
 * errors of kernels.
 */
#include "drivers/cuda/cuda_driver.h"

#include <stdio.h>
#include <string.h>

#include "base/allocator.h"
#include "base/gpu_model.h"
#include "drivers/cuda/cuda_internal.h"
#include "drivers/cuda/nvrtc.h"

static int cuda_count(void) {
  int count;
  hr_status_ignore(hr__cuda_open(&count));
  return count;
}

static hr_status cuda_why_none(void) {
  int count;
  return hr__cuda_open(&count);
}

/* ---- opening and closing ---- */

hr_status hr__cuda_enter(hr__cuda_device *device) {
  return hr__cuda_status(hr__cuda()->cuCtxPushCurrent_v2(device->context), "cuCtxPushCurrent");
}

void hr__cuda_leave(void) {
  CUcontext context;
  (void)hr__cuda()->cuCtxPopCurrent_v2(&context);
}

void hr__cuda_wait(const hr__cuda_device *device) {
  hr__cuda_library *library = hr__cuda_opened();
  hr_mutex_lock(&library->openings_mutex);
  for (const hr__cuda_device *each = library->openings; each != NULL; each = each->next) {
    if (each->device == device->device) {
      (void)hr__cuda()->cuStreamSynchronize(each->stream);
    }
  }
  hr_mutex_unlock(&library->openings_mutex);
}

static void add_opening(hr__cuda_device *device) {
  hr__cuda_library *library = hr__cuda_opened();
  hr_mutex_lock(&library->openings_mutex);
  device->next = library->openings;
  library->openings = device;
  hr_mutex_unlock(&library->openings_mutex);
}

/* Of a device that was only partly opened, too: it is not among them. */
static void remove_opening(const hr__cuda_device *device) {
  hr__cuda_library *library = hr__cuda_opened();
  hr_mutex_lock(&library->openings_mutex);
  for (hr__cuda_device **at = &library->openings; *at != NULL; at = &(*at)->next) {
    if (*at == device) {
      *at = device->next;
      break;
    }
  }
  hr_mutex_unlock(&library->openings_mutex);
}

/* Two transfers a clock. Not known on drivers that lack the attributes. */
static double read_memory_rate(const hr__cuda_device *device) {
  int khz = 0, bits = 0;
  int code = hr__cuda()->cuDeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device->device);
  code |= hr__cuda()->cuDeviceGetAttribute(&bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device->device);
  return code == 0 ? 2.0 * khz * bits / 8 * 1e-6 : 0;
}

static hr_status read_attributes(hr__cuda_device *device) {
  int major, minor;
  HR_RETURN_IF_ERROR(hr__cuda_status(
      hr__cuda()->cuDeviceGetAttribute(&device->workers, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device->device),
      "number of multiprocessors"));
  HR_RETURN_IF_ERROR(hr__cuda_status(
      hr__cuda()->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device->device),
      "compute capability"));
  HR_RETURN_IF_ERROR(hr__cuda_status(
      hr__cuda()->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device->device),
      "compute capability"));
  HR_RETURN_IF_ERROR(
      hr__cuda_status(hr__cuda()->cuDeviceGetAttribute(
                          &device->block_bytes, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device->device),
                      "shared memory of a block"));
  device->architecture = major * 10 + minor;
  device->memory_gbs = read_memory_rate(device);
  HR_RETURN_IF_ERROR(
      hr__cuda_status(hr__cuda()->cuDeviceTotalMem_v2(&device->total_bytes, device->device), "cuDeviceTotalMem"));
  return hr__cuda_status(hr__cuda()->cuDeviceGetName(device->name, sizeof device->name, device->device),
                         "cuDeviceGetName");
}

/* The parts that need the device to be current. */
static hr_status make_queue(hr__cuda_device *device) {
  HR_RETURN_IF_ERROR(hr__cuda_enter(device));
  hr_status status =
      hr__cuda_status(hr__cuda()->cuStreamCreate(&device->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  if (status == HR_OK) {
    status = hr__cuda_staging_init(&device->in);
  }
  if (status == HR_OK) {
    status = hr__cuda_staging_init(&device->out);
  }
  hr__cuda_leave();
  return status;
}

static hr_status open_device(hr__cuda_device *device, int ordinal) {
  HR_RETURN_IF_ERROR(hr__cuda_status(hr__cuda()->cuDeviceGet(&device->device, ordinal), "cuDeviceGet"));
  HR_RETURN_IF_ERROR(read_attributes(device));
  HR_RETURN_IF_ERROR(hr__cuda_status(hr__cuda()->cuDevicePrimaryCtxRetain(&device->context, device->device),
                                     "cuDevicePrimaryCtxRetain"));
  return make_queue(device);
}

/* Also closes a device that was only partly opened. */
static void cuda_close(void *impl) {
  hr__cuda_device *device = impl;
  remove_opening(device);
  hr_status entered = device->context != NULL ? hr__cuda_enter(device) : HR_OK;
  if (device->context != NULL && entered == HR_OK) {
    if (device->stream != NULL) {
      (void)hr__cuda()->cuStreamSynchronize(device->stream); /* staging may be in use */
      (void)hr__cuda()->cuStreamDestroy_v2(device->stream);
    }
    if (device->capture_stream != NULL) {
      (void)hr__cuda()->cuStreamDestroy_v2(device->capture_stream);
    }
    hr__cuda_staging_fini(&device->in);
    hr__cuda_staging_fini(&device->out);
    hr__cuda_leave();
  }
  hr_status_ignore(entered);
  if (device->context != NULL) {
    (void)hr__cuda()->cuDevicePrimaryCtxRelease_v2(device->device);
  }
  hr_mutex_fini(&device->in.mutex);
  hr_mutex_fini(&device->out.mutex);
  hr_free(device);
}

static hr_status cuda_open(int ordinal, void **out_impl) {
  int count;
  HR_RETURN_IF_ERROR(hr__cuda_open(&count));
  hr__cuda_device *device = hr_calloc(1, sizeof *device);
  if (device == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "cuda: no host memory");
  }
  hr_mutex_init(&device->in.mutex);
  hr_mutex_init(&device->out.mutex);
  hr_status status = open_device(device, ordinal);
  if (status != HR_OK) {
    cuda_close(device);
    return status;
  }
  add_opening(device);
  *out_impl = device;
  return HR_OK;
}

static void cuda_properties(void *impl, hr_device_properties *out_properties) {
  const hr__cuda_device *device = impl;
  *out_properties = (hr_device_properties){.workers = device->workers,
                                           .block_bytes = device->block_bytes,
                                           .memory_gbs = device->memory_gbs,
                                           .is_host = false,
                                           .has_contents = hr__gpu_model() == NULL,
                                           .lanes = 2};
  snprintf(out_properties->description, sizeof out_properties->description, "%.60s, %lld GiB, compute capability %d.%d",
           device->name, (long long)(device->total_bytes >> 30), device->architecture / 10, device->architecture % 10);
}

/* ---- memory ---- */

static void cuda_memory_info(void *impl, int64_t *out_free_bytes, int64_t *out_total_bytes) {
  hr__cuda_device *device = impl;
  size_t free_bytes = 0, total_bytes = device->total_bytes;
  hr_status entered = hr__cuda_enter(device);
  if (entered == HR_OK) {
    if (hr__cuda()->cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS) {
      free_bytes = 0, total_bytes = device->total_bytes;
    }
    hr__cuda_leave();
  }
  hr_status_ignore(entered);
  *out_free_bytes = (int64_t)free_bytes;
  *out_total_bytes = (int64_t)total_bytes;
}

static hr_status cuda_allocate(void *impl, size_t bytes, void **out_address) {
  hr__cuda_device *device = impl;
  void *address = NULL;
  if (bytes > device->total_bytes) { /* CUDA rejects sizes near the end of the range */
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "cuda: %zu bytes requested, the device has %zu", bytes,
                          device->total_bytes);
  }
  HR_RETURN_IF_ERROR(hr__cuda_enter(device));
  int code = hr__cuda()->cuMemAlloc_v2(&address, bytes);
  hr__cuda_leave();
  if (code != CUDA_SUCCESS) {
    return hr_status_annotate(hr__cuda_status(code, "cuMemAlloc"), "%zu bytes requested", bytes);
  }
  *out_address = address;
  return HR_OK;
}

/* cuMemFree waits for the device in practice, but no documentation guarantees it. */
static void cuda_free(void *impl, void *address, size_t bytes) {
  hr__cuda_device *device = impl;
  (void)bytes;
  hr_status entered = hr__cuda_enter(device);
  if (entered == HR_OK) {
    hr__cuda_wait(device);
    (void)hr__cuda()->cuMemFree_v2(address);
    hr__cuda_leave();
  }
  hr_status_ignore(entered);
}

static hr_status name_memory(void *address, unsigned char *out_name, int64_t *out_offset) {
  void *base;
  size_t bytes;
  hr__cuda_shared shared;
  HR_RETURN_IF_ERROR(
      hr__cuda_status(hr__cuda()->cuMemGetAddressRange_v2(&base, &bytes, address), "cuMemGetAddressRange"));
  HR_RETURN_IF_ERROR(hr__cuda_status(hr__cuda()->cuIpcGetMemHandle(&shared, base), "cuIpcGetMemHandle"));
  memcpy(out_name, shared.name, sizeof shared.name);
  *out_offset = (char *)address - (char *)base;
  return HR_OK;
}

static hr_status cuda_share(void *impl, void *address, unsigned char *out_name, int64_t *out_offset) {
  HR_RETURN_IF_ERROR(hr__cuda_enter(impl));
  hr_status status = name_memory(address, out_name, out_offset);
  hr__cuda_leave();
  return status;
}

static hr_status cuda_open_shared(void *impl, const unsigned char *name, void **out_base) {
  hr__cuda_shared shared;
  memcpy(shared.name, name, sizeof shared.name);
  HR_RETURN_IF_ERROR(hr__cuda_enter(impl));
  int code = hr__cuda()->cuIpcOpenMemHandle_v2(out_base, shared, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  hr__cuda_leave();
  return hr__cuda_status(code, "cuIpcOpenMemHandle");
}

static void cuda_close_shared(void *impl, void *base) {
  hr__cuda_device *device = impl;
  hr_status entered = hr__cuda_enter(device);
  if (entered == HR_OK) {
    hr__cuda_wait(device); /* it may still be used */
    (void)hr__cuda()->cuIpcCloseMemHandle(base);
    hr__cuda_leave();
  }
  hr_status_ignore(entered);
}

static hr_status cuda_copy_in(void *impl, void *to, const void *host, size_t bytes) {
  HR_RETURN_IF_ERROR(hr__cuda_enter(impl));
  hr_status status = hr__cuda_copy_in(impl, to, host, bytes);
  hr__cuda_leave();
  return status;
}

static hr_status cuda_copy_out(void *impl, void *host, const void *from, size_t bytes) {
  HR_RETURN_IF_ERROR(hr__cuda_enter(impl));
  hr_status status = hr__cuda_copy_out(impl, host, from, bytes);
  hr__cuda_leave();
  return status;
}

static hr_status cuda_copy_within(void *impl, void *to, const void *from, size_t bytes) {
  hr__cuda_device *device = impl;
  if (bytes == 0) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(hr__cuda_enter(device));
  int code = hr__cuda()->cuMemcpyDtoDAsync_v2(to, from, bytes, device->stream);
  hr__cuda_leave();
  return hr__cuda_status(code, "copy within the device");
}

static hr_status cuda_copy_peer(void *impl, void *to, void *from_impl, const void *from, size_t bytes) {
  if (bytes == 0) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(hr__cuda_enter(impl));
  hr_status status = hr__cuda_copy_peer(impl, to, from_impl, from, bytes);
  hr__cuda_leave();
  return status;
}

static hr_status cuda_fill(void *impl, void *to, const void *pattern, size_t pattern_bytes, size_t count) {
  HR_RETURN_IF_ERROR(hr__cuda_enter(impl));
  hr_status status = hr__cuda_fill(impl, to, pattern, pattern_bytes, count);
  hr__cuda_leave();
  return status;
}

/* ---- kernels ---- */

/* Shared memory above 48 KB has to be enabled, and so have large clusters. */
enum { SHARED_BYTES_FREE = 48 << 10, SCALAR_WORDS = sizeof(hr_scalar) / 8 };
_Static_assert(sizeof(hr_scalar) == 24 && sizeof(void *) == 8, "kernels read their parameters as 8-byte words");

hr_status hr__cuda_pack(const hr_device_kernel *kernel, const hr_host_call *call, uint64_t *words, size_t *out_bytes) {
  size_t args = (size_t)kernel->arg_count, scalars = (size_t)kernel->scalar_count;
  size_t own = (size_t)kernel->word_count, count = 1 + args + scalars * SCALAR_WORDS + own;
  if (count > HR_CUDA_WORDS_MAX) {
    return hr_status_make(HR_STATUS_UNIMPLEMENTED, "cuda: kernel \"%s\" has %zu bytes of parameters, at most %d fit",
                          kernel->base.name, count * 8, HR_CUDA_WORDS_MAX * 8);
  }
  memcpy(words, &call->workspace, sizeof *words);
  if (args > 0) {
    memcpy(words + 1, call->args, args * sizeof *words);
  }
  if (scalars > 0) {
    memcpy(words + 1 + args, call->scalars, scalars * sizeof *call->scalars);
  }
  memcpy(words + count - own, kernel->words, own * sizeof *words);
  *out_bytes = count * sizeof *words;
  return HR_OK;
}

/* Once for each function. Enabled functions are remembered until a module is unloaded: a later module's functions may
 * get its addresses. */
static int allow(hr__cuda_device *device, CUfunction function, int shared, bool has_large_clusters) {
  uint64_t unloads = atomic_load(&hr__cuda_opened()->unloads);
  hr__cuda_allowed *allowed = &device->allowed[((uintptr_t)function >> 4) % HR_CUDA_ALLOWED];
  if (allowed->function == function && allowed->unloads == unloads && allowed->shared >= shared) {
    return CUDA_SUCCESS;
  }
  int code = hr__cuda()->cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared);
  if (code == CUDA_SUCCESS && has_large_clusters) {
    code = hr__cuda()->cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
  }
  if (code == CUDA_SUCCESS) {
    *allowed = (hr__cuda_allowed){.function = function, .unloads = unloads, .shared = shared};
  }
  return code;
}

static hr_status launch_pass(hr__cuda_device *device, const hr_device_kernel *kernel, int pass, uint64_t *words,
                             size_t bytes) {
  int64_t blocks = kernel->blocks[pass];
  int threads = kernel->threads[pass], shared = kernel->shared[pass], code = CUDA_SUCCESS;
  if (blocks <= 0) {
    return HR_OK;
  }
  if (blocks > INT32_MAX || threads < 1) {
    return hr_status_make(HR_STATUS_INTERNAL, "cuda: kernel \"%s\", pass %d: %lld blocks of %d threads",
                          kernel->base.name, pass, (long long)blocks, threads);
  }
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, words, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  CUstream stream = device->capture != NULL ? device->capture_stream : device->stream;
  if (shared > SHARED_BYTES_FREE || kernel->has_large_clusters) {
    int allowed = shared > SHARED_BYTES_FREE ? shared : SHARED_BYTES_FREE;
    code = allow(device, kernel->functions[pass], allowed, kernel->has_large_clusters);
  }
  if (kernel->begins_early) {
    HR_RETURN_IF_ERROR(hr__cuda_capture_early(device));
  }
  if (code == CUDA_SUCCESS) {
    code = hr__cuda()->cuLaunchKernel(kernel->functions[pass], (unsigned)blocks, 1, 1, (unsigned)threads, 1, 1,
                                      (unsigned)shared, stream, NULL, extra);
  }
  if (code != CUDA_SUCCESS) {
    return hr_status_annotate(hr__cuda_status(code, "launch"), "kernel \"%s\", pass %d, %lld blocks of %d threads",
                              kernel->base.name, pass, (long long)blocks, threads);
  }
  return hr__cuda_capture_pass(device);
}

hr_status hr__cuda_launch_kernel(hr__cuda_device *device, const hr_host_launch *launch) {
  const hr_device_kernel *kernel = (const hr_device_kernel *)launch->kernel;
  uint64_t words[HR_CUDA_WORDS_MAX];
  size_t bytes = 0;
  HR_RETURN_IF_ERROR(hr__cuda_pack(kernel, &launch->call, words, &bytes));
  for (int pass = 0; pass < kernel->base.pass_count; ++pass) {
    HR_RETURN_IF_ERROR(launch_pass(device, kernel, pass, words, bytes));
  }
  return HR_OK;
}

static hr_status cuda_launch(void *impl, int count, const hr_host_launch *launches) {
  hr__cuda_device *device = impl;
  HR_RETURN_IF_ERROR(hr__cuda_enter(device));
  hr_status status = device->capture != NULL ? hr__cuda_capture_launch(device, count, launches) : HR_OK;
  for (int i = 0; device->capture == NULL && i < count && status == HR_OK; ++i) {
    status = hr__cuda_launch_kernel(device, &launches[i]);
  }
  hr__cuda_leave();
  return status;
}

static hr_status cuda_compiler(void *impl, hr_text *out_name) {
  const hr__cuda_device *device = impl;
  return hr__nvrtc_name(device->architecture, out_name);
}

static hr_status cuda_compile(void *impl, const char *text, size_t length, hr_text *out_image) {
  const hr__cuda_device *device = impl;
  return hr__nvrtc_compile(device->architecture, text, length, out_image);
}

static hr_status find_functions(CUmodule module, int count, const char *const *names, void **out_functions) {
  for (int i = 0; i < count; ++i) {
    CUfunction function = NULL;
    int code = hr__cuda()->cuModuleGetFunction(&function, module, names[i]);
    if (code != CUDA_SUCCESS) {
      return hr_status_annotate(hr__cuda_status(code, "cuModuleGetFunction"), "function \"%s\"", names[i]);
    }
    out_functions[i] = function;
  }
  return HR_OK;
}

static hr_status cuda_load(void *impl, const void *image, size_t bytes, int count, const char *const *names,
                           void **out_module, void **out_functions) {
  CUmodule module = NULL;
  if (bytes == 0) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "cuda: an image of no bytes");
  }
  HR_RETURN_IF_ERROR(hr__cuda_enter(impl));
  hr_status status = hr__cuda_status(hr__cuda()->cuModuleLoadData(&module, image), "cuModuleLoadData");
  if (status == HR_OK) {
    status = find_functions(module, count, names, out_functions);
    if (status != HR_OK) {
      (void)hr__cuda()->cuModuleUnload(module);
    }
  }
  hr__cuda_leave();
  if (status == HR_OK) {
    *out_module = module;
  }
  return status;
}

/* Work that uses the module may still be in flight. */
static void cuda_unload(void *impl, void *module) {
  hr__cuda_device *device = impl;
  hr_status entered = module != NULL ? hr__cuda_enter(device) : HR_OK;
  if (module != NULL && entered == HR_OK) {
    atomic_fetch_add(&hr__cuda_opened()->unloads, 1);
    hr__cuda_wait(device);
    (void)hr__cuda()->cuModuleUnload(module);
    hr__cuda_leave();
  }
  hr_status_ignore(entered);
}

static void *cuda_native(void *impl) {
  const hr__cuda_device *device = impl;
  return device->stream;
}

static hr_status cuda_enter(void *impl) {
  return hr__cuda_enter(impl);
}

static void cuda_leave(void *impl) {
  (void)impl;
  hr__cuda_leave();
}

/* A model of a GPU runs nothing. */
static hr_status cuda_call(void *impl, hr_host_fn fn, void *arg) {
  if (hr__gpu_model() != NULL) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(hr__cuda_enter(impl));
  hr_status status = fn(arg);
  hr__cuda_leave();
  return status;
}

static hr_status cuda_flush(void *impl) {
  hr__cuda_device *device = impl;
  HR_RETURN_IF_ERROR(hr__cuda_enter(device));
  int code = hr__cuda()->cuStreamSynchronize(device->stream);
  hr__cuda_leave();
  return hr__cuda_status(code, "waiting for the device");
}

/* ---- events ---- */

typedef struct cuda_event {
  CUevent event;
  atomic_bool was_recorded;
} cuda_event;

static hr_status cuda_event_create(void *impl, void **out_event) {
  cuda_event *event = hr_calloc(1, sizeof *event);
  if (event == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "cuda: no host memory for an event");
  }
  hr_status status = hr__cuda_enter(impl);
  if (status == HR_OK) {
    status = hr__cuda_status(hr__cuda()->cuEventCreate(&event->event, CU_EVENT_DEFAULT), "cuEventCreate");
    hr__cuda_leave();
  }
  if (status != HR_OK) {
    hr_free(event);
    return status;
  }
  *out_event = event;
  return HR_OK;
}

static void cuda_event_destroy(void *impl, void *event) {
  cuda_event *self = event;
  hr_status entered = self != NULL ? hr__cuda_enter(impl) : HR_OK;
  if (self != NULL && entered == HR_OK) {
    (void)hr__cuda()->cuEventDestroy_v2(self->event);
    hr__cuda_leave();
  }
  hr_status_ignore(entered);
  hr_free(self);
}

static hr_status cuda_event_record(void *impl, void *event) {
  hr__cuda_device *device = impl;
  cuda_event *self = event;
  HR_RETURN_IF_ERROR(hr__cuda_enter(device));
  int code = hr__cuda()->cuEventRecord(self->event, device->stream);
  hr__cuda_leave();
  if (code == CUDA_SUCCESS) {
    atomic_store_explicit(&self->was_recorded, true, memory_order_relaxed);
  }
  return hr__cuda_status(code, "cuEventRecord");
}

static hr_status cuda_event_wait(void *impl, void *event) {
  cuda_event *self = event;
  if (!self->was_recorded) {
    return HR_OK;
  }
  HR_RETURN_IF_ERROR(hr__cuda_enter(impl));
  int code = hr__cuda()->cuEventSynchronize(self->event);
  hr__cuda_leave();
  return hr__cuda_status(code, "cuEventSynchronize");
}

static hr_status cuda_event_follow(void *impl, void *event) {
  hr__cuda_device *device = impl;
  HR_RETURN_IF_ERROR(hr__cuda_enter(device));
  int code = hr__cuda()->cuStreamWaitEvent(device->stream, ((cuda_event *)event)->event, 0);
  hr__cuda_leave();
  return hr__cuda_status(code, "cuStreamWaitEvent");
}

static bool cuda_event_is_done(void *impl, void *event) {
  hr_status entered = hr__cuda_enter(impl);
  int code = CUDA_SUCCESS;
  if (entered == HR_OK) {
    code = hr__cuda()->cuEventQuery(((cuda_event *)event)->event);
    hr__cuda_leave();
  }
  hr_status_ignore(entered);
  return code != CUDA_ERROR_NOT_READY;
}

/* CUDA has an event's time only after it completed: waits for both. */
static hr_status cuda_event_elapsed(void *impl, void *begin, void *end, int64_t *out_ns) {
  cuda_event *from = begin, *to = end;
  float milliseconds = 0;
  if (!from->was_recorded || !to->was_recorded) {
    return hr_status_make(HR_STATUS_FAILED_PRECONDITION, "cuda: elapsed time of an event that was never recorded");
  }
  HR_RETURN_IF_ERROR(cuda_event_wait(impl, begin));
  HR_RETURN_IF_ERROR(cuda_event_wait(impl, end));
  HR_RETURN_IF_ERROR(hr__cuda_enter(impl));
  int code = hr__cuda()->cuEventElapsedTime(&milliseconds, from->event, to->event);
  hr__cuda_leave();
  *out_ns = code == CUDA_SUCCESS ? (int64_t)((double)milliseconds * 1e6) : *out_ns;
  return hr__cuda_status(code, "cuEventElapsedTime");
}

const hr_driver hr_cuda_driver = {
    .name = "cuda",
    .dialect = HR_DIALECT_CUDA,
    .count = cuda_count,
    .why_none = cuda_why_none,
    .open = cuda_open,
    .close = cuda_close,
    .properties = cuda_properties,
    .memory_info = cuda_memory_info,
    .allocate = cuda_allocate,
    .free = cuda_free,
    .share = cuda_share,
    .open_shared = cuda_open_shared,
    .close_shared = cuda_close_shared,
    .copy_in = cuda_copy_in,
    .copy_out = cuda_copy_out,
    .copy_within = cuda_copy_within,
    .copy_peer = cuda_copy_peer,
    .fill = cuda_fill,
    .launch = cuda_launch,
    .compiler = cuda_compiler,
    .compile = cuda_compile,
    .load = cuda_load,
    .unload = cuda_unload,
    .native = cuda_native,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .call = cuda_call,
    .capture_begin = hr__cuda_capture_begin,
    .capture_end = hr__cuda_capture_end,
    .graph_update = hr__cuda_graph_update,
    .graph_launch = hr__cuda_graph_launch,
    .graph_destroy = hr__cuda_graph_destroy,
    .flush = cuda_flush,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_wait = cuda_event_wait,
    .event_follow = cuda_event_follow,
    .event_is_done = cuda_event_is_done,
    .event_elapsed = cuda_event_elapsed,
};
