/* target.c: runs a model so that the cache of kernels has what it needs. */
#include "target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cpu.h"
#include "base/gpu_model.h"
#include "drivers/cuda/cuda_api.h"
#include "drivers/cuda/cuda_driver.h"
#include "headrace/profile.h"
#include "headrace/session.h"

enum { RUNS = 40, NS_PER_S = 1000000000, RUN_SECONDS = 5, WAIT_SECONDS = 120, TICK_NS = 20000000 };

static bool is_level(const char *target) {
  return target[0] == 'v' && target[1] >= '2' && target[1] <= '4' && target[2] == '\0';
}

/* "sm_90", or "sm_90:114" with a number of multiprocessors. */
static bool read_gpu(const char *target, hr_gpu_model *out_model) {
  char end = 0;
  int processors = 0, count = sscanf(target, "sm_%3d%c", &out_model->architecture, &end);
  if (count == 2 && end == ':') {
    count = 1 + 2 * (sscanf(strchr(target, ':'), ":%6d%c", &processors, &end) != 1 || processors < 1);
  }
  out_model->processors = processors;
  return count == 1 && out_model->architecture >= 10;
}

static bool is_gpu(const char *target) {
  return strncmp(target, "sm_", 3) == 0;
}

hr_status begin_target(const char *target) {
  hr_gpu_model model;
  if (read_gpu(target, &model)) {
    return HR_OK;
  }
  if (!is_level(target)) {
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                          "target \"%s\": expected v2, v3, v4, or sm_90, sm_90:114 and the like", target);
  }
  setenv("HEADRACE_CPU", target, 1);
  int level = hr_cpu_level();
  return level == target[1] - '0'
             ? HR_OK
             : hr_status_make(HR_STATUS_FAILED_PRECONDITION, "target %s: this machine makes kernels for at most v%d",
                              target, level);
}

/* True if the first GPU of this machine is one of the model's kind. */
static bool has_gpu(const hr_gpu_model *model) {
  char wanted[64];
  void *impl = NULL;
  hr_device_properties found = {.workers = 0};
  hr_status status = hr_cuda_driver.open(0, &impl);
  if (status == HR_OK) {
    hr_cuda_driver.properties(impl, &found);
    hr_cuda_driver.close(impl);
  }
  hr_status_ignore(status);
  snprintf(wanted, sizeof wanted, "compute capability %d.%d", model->architecture / 10, model->architecture % 10);
  return strstr(found.description, wanted) != NULL && (model->processors == 0 || model->processors == found.workers);
}

typedef struct maker {
  hr_device *device;
  hr_stream *stream;
  hr_session *session;
  model_tensors tensors;
} maker;

static hr_status run_once(maker *m) {
  HR_RETURN_IF_ERROR(hr_session_run(m->session, m->tensors.input_count, m->tensors.places, m->tensors.result_count,
                                    m->tensors.results));
  hr_status status = hr_stream_synchronize(m->stream);
  release_results(&m->tensors);
  return status;
}

/* Waits for compilers in the background. */
static void wait_for_kernels(const maker *m) {
  const struct timespec tick = {0, TICK_NS};
  int64_t end = hr_profile_clock_ns() + (int64_t)WAIT_SECONDS * NS_PER_S;
  for (hr_stats stats = {.jit_waiting = 1}; stats.jit_waiting > 0 && hr_profile_clock_ns() < end;) {
    nanosleep(&tick, NULL);
    hr_stream_stats(m->stream, &stats);
  }
}

static hr_status run_often(maker *m) {
  int64_t end = hr_profile_clock_ns() + (int64_t)RUN_SECONDS * NS_PER_S;
  for (int i = 0; i < RUNS && (i < 3 || hr_profile_clock_ns() < end); ++i) {
    HR_RETURN_IF_ERROR(run_once(m));
  }
  wait_for_kernels(m);
  return run_once(m);
}

/* Such a GPU of this machine, which also tunes, or else a model of one. Its numbers decide about tiles of kernels. */
static hr_status open_gpu(const char *target, hr_device **out_device) {
  hr_gpu_model model;
  (void)read_gpu(target, &model);
  if (!has_gpu(&model)) {
    HR_RETURN_IF_ERROR(hr__gpu_model_set(model.architecture, model.processors));
    hr__cuda_replace(NULL, 0);
    fprintf(stderr, "headrace convert: no such GPU here: kernels are compiled for sm_%d with %d multiprocessors\n",
            hr__gpu_model()->architecture, hr__gpu_model()->processors);
  }
  return hr_device_open("cuda:0", out_device);
}

static hr_status make(maker *m, const hr_graph *graph, const char *target, const named_values *sizes) {
  HR_RETURN_IF_ERROR(is_gpu(target) ? open_gpu(target, &m->device) : hr_device_open("cpu", &m->device));
  HR_RETURN_IF_ERROR(hr_stream_create(m->device, &m->stream));
  HR_RETURN_IF_ERROR(hr_session_create(m->stream, graph, NULL, &m->session));
  HR_RETURN_IF_ERROR(allocate_tensors(graph, &m->tensors));
  for (int i = 0; i < m->tensors.input_count; ++i) {
    HR_RETURN_IF_ERROR(make_input(m->stream, graph, hr_graph_input_value(graph, i), sizes, &m->tensors.inputs[i]));
  }
  return run_often(m);
}

hr_status make_kernels(const hr_graph *graph, const char *target, const named_values *sizes, int64_t *out_since_ns) {
  maker m = {.device = NULL};
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  *out_since_ns = (int64_t)(now.tv_sec - 1) * NS_PER_S; /* clocks of files are coarse */
  hr_status status = make(&m, graph, target, sizes);
  free_tensors(&m.tensors);
  hr_session_release(m.session);
  hr_stream_release(m.stream);
  hr_device_release(m.device);
  return status;
}
