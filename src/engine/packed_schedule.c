/* packed_schedule.c: writer and reader name the same numbers in the same order:
 *
 *   program    1 if it has rounds, its declined nodes
 *   buffers    kind, offset, bytes beyond the buffer's, first and last group of each place
 *   steps      kind, like, nodes; of checks the source of indices
 */
#include "engine/packed_schedule.h"

#include <string.h>

#include "base/allocator.h"
#include "base/host_kernel.h"
#include "base/varint.h"
#include "core/ir/traffic.h"

/* ---- writing ---- */

#define PUT(number) (at = hr_varint_put(at, (int64_t)(number)))

/* An upper bound of the numbers. */
static size_t count_numbers(const hr_schedule *schedule) {
  enum { HEAD = 2, PLACE = 5, STEP = 3 + 6 };
  return HEAD + (size_t)schedule->program.buffer_count * PLACE + (size_t)schedule->step_count * STEP;
}

static uint8_t *put_places(uint8_t *at, const hr_schedule *schedule) {
  for (int b = 0; b < schedule->program.buffer_count; ++b) {
    const hr_place *place = &schedule->places[b];
    PUT(place->kind), PUT(place->offset >> HR_PLACE_ALIGNMENT_BITS);
    PUT((int64_t)place->bytes - (int64_t)schedule->program.buffers[b].bytes), PUT(place->first), PUT(place->last);
  }
  return at;
}

static uint8_t *put_index(uint8_t *at, const hr_index_source *index) {
  PUT(index->kind), PUT(index->dtype), PUT(index->buffer), PUT(index->start), PUT(index->step), PUT(index->count);
  return at;
}

static uint8_t *put_steps(uint8_t *at, const hr_schedule *schedule, const hr_index_source *indices) {
  for (int i = 0; i < schedule->step_count; ++i) {
    const hr_step *step = &schedule->steps[i];
    PUT(step->kind), PUT(step->like), PUT(step->node_count);
    at = step->kind == HR_STEP_CHECK ? put_index(at, &indices[i]) : at;
  }
  return at;
}

/* In a block of their size; NULL when memory is out. */
static uint8_t *put_numbers(const hr_schedule *schedule, const hr_index_source *indices, size_t *out_bytes) {
  uint8_t *most = hr_malloc(count_numbers(schedule) * HR_VARINT_BYTES_MAX), *at = most;
  if (most == NULL) {
    return NULL;
  }
  PUT(schedule->program.has_rounds), PUT(schedule->declined_count);
  at = put_steps(put_places(at, schedule), schedule, indices);
  *out_bytes = (size_t)(at - most);
  uint8_t *bytes = hr_malloc(*out_bytes);
  if (bytes != NULL) {
    memcpy(bytes, most, *out_bytes);
  }
  hr_free(most);
  return bytes;
}

static hr_packed_program *pack_declined(const hr_schedule *schedule) {
  hr_program nodes = {.node_count = schedule->declined_count, .nodes = (hr_node *)schedule->declined};
  return hr_program_pack(&nodes, NULL);
}

static size_t count_kernels(const hr_schedule *schedule) {
  size_t count = 0;
  for (int i = 0; i < schedule->step_count; ++i) {
    count += schedule->steps[i].kind == HR_STEP_KERNEL;
  }
  return count;
}

static bool retain_kernels(hr_packed_schedule *packed, const hr_schedule *schedule, hr_cached_kernel *const *kernels) {
  packed->kernels = hr_malloc((count_kernels(schedule) + 1) * sizeof *packed->kernels);
  for (int i = 0; packed->kernels != NULL && i < schedule->step_count; ++i) {
    if (schedule->steps[i].kind == HR_STEP_KERNEL) {
      packed->kernels[packed->kernel_count++] = kernels[i];
    }
  }
  hr__kernels_retain(packed->kernel_count, packed->kernels);
  return packed->kernels != NULL;
}

/* True if the program's nodes are those of the steps, in order. */
static bool has_nodes_in_order(const hr_schedule *schedule) {
  const hr_node *next = schedule->program.nodes;
  bool are = true;
  for (int i = 0; are && i < schedule->step_count; ++i) {
    const hr_step *step = &schedule->steps[i];
    are = step->kind == HR_STEP_KERNEL || step->node == next;
    next += step->kind != HR_STEP_KERNEL;
  }
  return are && next == schedule->program.nodes + schedule->program.node_count;
}

bool hr__packed_schedule_make(const hr_schedule *schedule, const hr_index_source *indices,
                              hr_cached_kernel *const *kernels, hr_packed_schedule *out_packed) {
  hr_packed_schedule packed = {0};
  size_t bytes = 0;
  if (!has_nodes_in_order(schedule)) {
    return false;
  }
  packed.program = hr_program_pack(&schedule->program, NULL);
  packed.declined = pack_declined(schedule);
  packed.bytes = put_numbers(schedule, indices, &bytes);
  if (packed.program == NULL || packed.declined == NULL || packed.bytes == NULL ||
      !retain_kernels(&packed, schedule, kernels)) {
    hr__packed_schedule_fini(&packed);
    return false;
  }
  packed.footprint = 2 * sizeof *packed.program + packed.program->byte_count + packed.declined->byte_count + bytes +
                     (size_t)packed.kernel_count * sizeof *packed.kernels;
  *out_packed = packed;
  return true;
}

void hr__packed_schedule_fini(hr_packed_schedule *packed) {
  for (int i = 0; i < packed->kernel_count; ++i) {
    hr__kernel_release(packed->kernels[i]);
  }
  hr_free(packed->kernels);
  hr_free(packed->program);
  hr_free(packed->declined);
  hr_free(packed->bytes);
  *packed = (hr_packed_schedule){0};
}

/* ---- reading ---- */

static int64_t next(const uint8_t **at) {
  return hr_varint_next(at);
}

static bool read_places(const uint8_t **at, hr_schedule *out) {
  hr_place *places = HR_ARENA_ARRAY(&out->program.arena, hr_place, (size_t)out->program.buffer_count + 1);
  for (int b = 0; places != NULL && b < out->program.buffer_count; ++b) {
    places[b].kind = (hr_place_kind)next(at);
    places[b].offset = (size_t)next(at) << HR_PLACE_ALIGNMENT_BITS;
    places[b].bytes = (size_t)((int64_t)out->program.buffers[b].bytes + next(at));
    places[b].first = (int)next(at);
    places[b].last = (int)next(at);
  }
  out->places = places;
  return places != NULL;
}

/* The kernel's form, bound to the next arguments of the steps. NULL when memory is out. */
static hr_kernel *read_kernel(hr_step_args *rest, const hr_cached_kernel *cached, hr_schedule *out) {
  hr_kernel *kernel = hr__kernel_form(cached, &out->forms);
  if (kernel == NULL) {
    return NULL;
  }
  hr_kernel_arg *args = (hr_kernel_arg *)kernel->args;
  for (int i = 0; i < kernel->arg_count; ++i) {
    args[i].buffer = hr__arg_buffer(hr_narrow_at(rest->args, rest->arg_first++));
  }
  for (int i = 0; i < kernel->scalar_count; ++i) {
    ((uint32_t *)kernel->scalars)[i] = hr_narrow_at(rest->scalars, rest->scalar_first++);
  }
  kernel->name = hr_arena_strdup(&out->forms, hr__kernel_host(cached)->name);
  hr_kernel_count_traffic(&out->program, kernel, args);
  return kernel->name != NULL ? kernel : NULL;
}

static hr_index_source read_index(const uint8_t **at) {
  hr_index_source index = {.kind = (hr_index_source_kind)next(at)};
  index.dtype = (hr_dtype)next(at);
  index.buffer = (uint32_t)next(at);
  index.start = (uint32_t)next(at);
  index.step = (uint32_t)next(at);
  index.count = next(at);
  return index;
}

static bool read_steps(const uint8_t **at, hr_cached_kernel *const *kernels, hr_step_args args,
                       hr_unpacked_schedule *out) {
  hr_schedule *schedule = &out->schedule;
  hr_step *steps = HR_ARENA_ARRAY(&schedule->program.arena, hr_step, (size_t)schedule->step_count + 1);
  out->indices = hr_calloc((size_t)schedule->step_count + 1, sizeof *out->indices);
  bool ok = steps != NULL && out->indices != NULL;
  for (int i = 0, node = 0; ok && i < schedule->step_count; ++i) {
    steps[i].kind = (hr_step_kind)next(at);
    steps[i].like = (int)next(at);
    steps[i].node_count = (int)next(at);
    if (steps[i].kind == HR_STEP_KERNEL) {
      steps[i].kernel = read_kernel(&args, *kernels++, schedule);
      ok = steps[i].kernel != NULL;
      continue;
    }
    const hr_node *own = steps[i].node = &schedule->program.nodes[node++];
    bool is_check = steps[i].kind == HR_STEP_CHECK;
    args.arg_first += is_check ? 1 : (size_t)(own->input_count + own->output_count + own->scalar_count);
    if (is_check) {
      out->indices[i] = read_index(at);
    }
  }
  schedule->steps = steps;
  return ok;
}

static bool read_declined(const hr_packed_schedule *packed, int count, hr_schedule *out) {
  hr_program nodes;
  hr_status status = hr_program_unpack(packed->declined, &nodes);
  hr_node *declined = status == HR_OK ? HR_ARENA_ARRAY(&out->forms, hr_node, (size_t)count + 1) : NULL;
  bool ok = declined != NULL;
  for (int i = 0; ok && i < count; ++i) {
    ok = hr_node_copy(&out->forms, &nodes.nodes[i], &declined[i]);
  }
  out->declined = declined;
  out->declined_count = count;
  if (status == HR_OK) {
    hr_program_fini(&nodes);
  }
  hr_status_ignore(status);
  return ok;
}

static bool unpack(const hr_packed_schedule *packed, const hr_step_args *args, hr_unpacked_schedule *out) {
  hr_schedule *schedule = &out->schedule;
  const uint8_t *at = packed->bytes;
  hr_status status = hr_program_unpack(packed->program, &schedule->program);
  if (status != HR_OK) {
    hr_status_ignore(status);
    return false;
  }
  schedule->origins = hr_arena_dup(&schedule->program.arena, schedule->origins, schedule->origin_bytes);
  schedule->program.has_rounds = next(&at) != 0;
  int declined = (int)next(&at);
  return schedule->origins != NULL && read_declined(packed, declined, schedule) && read_places(&at, schedule) &&
         read_steps(&at, packed->kernels, *args, out);
}

hr_unpacked_schedule *hr__packed_schedule_unpack(const hr_packed_schedule *packed, const hr_schedule *rest,
                                                 const hr_step_args *args) {
  hr_unpacked_schedule *out = hr_calloc(1, sizeof *out);
  if (out == NULL) {
    return NULL;
  }
  out->schedule = *rest;
  hr_program_init(&out->schedule.program);
  hr_arena_init(&out->schedule.forms, 0);
  if (!unpack(packed, args, out)) {
    hr__unpacked_schedule_destroy(out);
    return NULL;
  }
  return out;
}

void hr__unpacked_schedule_destroy(hr_unpacked_schedule *unpacked) {
  if (unpacked != NULL) {
    hr_schedule_fini(&unpacked->schedule);
    hr_free(unpacked->indices);
    hr_free(unpacked);
  }
}
