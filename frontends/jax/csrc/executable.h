/* executable.h: a compiled program, as executable.c makes it and execute.c runs it. */
#ifndef HEADRACE_JAX_EXECUTABLE_H_
#define HEADRACE_JAX_EXECUTABLE_H_

#include "gather.h"
#include "plugin.h"

/* Immutable after the compile, but for is_deleted, waits and profiled. */
struct pjrt_executable {
  atomic_int references;
  atomic_bool is_deleted;
  atomic_bool waits;    /* runs read what the device computes; until the first run is done, they may */
  atomic_uint profiled; /* the last profile that has calls of it (profiler.c) */
  uint32_t number;      /* of all programs of the process, from 1 on */
  pjrt_device *device;  /* the first */
  int device_count;
  pjrt_device **devices;  /* by partition */
  hr_session **sessions;  /* of each; NULL: a program that does nothing (HEADRACE_JAX_NOP) */
  hrj_meetings *meetings; /* NULL: there is one device */
  hr_stablehlo_main main; /* what a call passes and gets: tokens, too, which are bool[0] */
  int graph_input_count, graph_output_count;
  bool has_callbacks;
  bool has_effects;   /* the graph has one more output: it is there when all functions with effects have run */
  hr_tensor *outputs; /* of main, without buffers */
  pjrt_type *types;
  int64_t *dims; /* of all outputs, one after another */
  size_t *ranks;
  const char **kinds; /* of the memories of inputs, then of outputs */
  size_t *kind_sizes;
  const pjrt_memory_layout **input_layouts, **output_layouts;
  int donated_count;
  int *donated; /* numbers of inputs of main */
  int64_t input_bytes, output_bytes, donated_bytes;
  char fingerprint[24];
  char *code, *options; /* of the compile */
  size_t code_size, options_size;
  pjrt_named_value costs[3];
  unsigned char *assignment; /* DeviceAssignmentProto */
  size_t assignment_size;
  pjrt_logical_id *logical_ids;
  char **input_shardings, **output_shardings; /* OpSharding of each, of a program over several devices */
  size_t *input_sharding_sizes, *output_sharding_sizes;
};

/* Sets the shardings of a program over several devices. */
hr_status hrj_list_shardings(pjrt_executable *executable);
/* Compiles a program for a client's devices. */
pjrt_error *hrj_compile(pjrt_client *client, const char *code, size_t code_size, const char *options,
                        size_t options_size, pjrt_executable **out_executable);
/* Drops a reference; NULL is fine. */
void hrj_executable_release(pjrt_executable *executable);

#endif
