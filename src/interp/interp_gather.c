/* interp_gather.c: kernels that only copy runs of memory from indexed positions: rows of an embedding, index_select,
 * x[rows]. For each run, walking blocks costs as much as copying 200 elements, so these have a loop of their own.
 *
 *     r0:i64 = load a1:i64+0{1,0}   r1:f32 = load a0:f32+0{0,1} [r0*64<1000]   store a2:f32+0{64,1}, r1
 */
#include <string.h>

#include "base/integer.h"
#include "interp/interp_plan.h"

enum { RUN_BYTES_MIN = 64, UNIT_BYTES = 16384 };

typedef struct side { /* an address, in elements: offset, and a step for each outer dim */
  int arg;
  int64_t offset, strides[HR_RANK_MAX];
} side;

typedef struct gather { /* its name follows */
  hr_host_kernel base;
  hr_host_pass pass;
  hr_dtype index_dtype;
  side index, from, to;
  int64_t term_stride, term_extent;
  int rank; /* of the outer dims: one run for each of their elements */
  int64_t dims[HR_RANK_MAX], runs, runs_per_unit;
  size_t size, run_bytes;
} gather;

/* True for these three instructions in the only meaningful order. */
static bool has_form(const hr_kernel *k) {
  if (k->instr_count != 3 || k->phase_count > 1 || k->reduce_mask != 0 || k->ordered_mask != 0) {
    return false;
  }
  const hr_instr *index = &k->instrs[0], *load = &k->instrs[1], *store = &k->instrs[2];
  bool is_copy = index->kind == HR_INSTR_LOAD && load->kind == HR_INSTR_LOAD && store->kind == HR_INSTR_STORE &&
                 store->mode == HR_STORE_SET && store->sources[0].kind == HR_SOURCE_REGISTER &&
                 store->sources[0].index == load->dst;
  if (!is_copy) {
    return false;
  }
  const hr_access *at = &k->accesses[index->access], *from = &k->accesses[load->access];
  const hr_access *to = &k->accesses[store->access];
  return at->term_count == 0 && at->bound_count == 0 && (at->dtype == HR_DTYPE_I64 || at->dtype == HR_DTYPE_I32) &&
         from->term_count == 1 && from->bound_count == 0 && from->terms[0].reg == index->dst && to->term_count == 0 &&
         to->bound_count == 0 && from->dtype == to->dtype;
}

static side side_of(const hr_access *access, int rank) {
  side s = {.arg = access->arg, .offset = access->offset};
  memcpy(s.strides, access->strides, (size_t)rank * sizeof *s.strides);
  return s;
}

/* The number of last dims that are dense on both sides and do not affect the index; *out_run is their element count. */
static int dense_dims(const hr_kernel *k, int64_t *out_run) {
  const int64_t *at = k->accesses[k->instrs[0].access].strides, *from = k->accesses[k->instrs[1].access].strides;
  const int64_t *to = k->accesses[k->instrs[2].access].strides;
  int count = 0;
  *out_run = 1;
  for (int d = k->rank - 1; d >= 0; --d, ++count) {
    if (k->dims[d] > 1 && (at[d] != 0 || from[d] != *out_run || to[d] != *out_run)) {
      break;
    }
    *out_run *= k->dims[d];
  }
  return count;
}

bool hr__gather_fits(const hr_kernel *kernel) {
  int64_t run = 0;
  if (!has_form(kernel)) {
    return false;
  }
  (void)dense_dims(kernel, &run);
  return run * (int64_t)hr_dtype_size(kernel->accesses[kernel->instrs[1].access].dtype) >= RUN_BYTES_MIN;
}

/* An index out of range, whose check may come later, reads a row at the end. */
static int64_t index_at(const gather *g, const hr_host_call *call, int64_t at) {
  const void *memory = call->args[g->index.arg];
  int64_t index = g->index_dtype == HR_DTYPE_I64 ? ((const int64_t *)memory)[at] : ((const int32_t *)memory)[at];
  index = index < 0 ? index + g->term_extent : index;
  int64_t last = g->term_extent > 0 ? g->term_extent - 1 : index;
  return index < 0 ? 0 : index > last ? last : index;
}

/* The start of run number `run` on each side. */
static void enter(const gather *g, int64_t run, int64_t *out_place, int64_t *at, int64_t *from, int64_t *to) {
  *at = g->index.offset, *from = g->from.offset, *to = g->to.offset;
  for (int d = g->rank - 1; d >= 0; --d) {
    out_place[d] = run % g->dims[d];
    run /= g->dims[d];
    *at += out_place[d] * g->index.strides[d];
    *from += out_place[d] * g->from.strides[d];
    *to += out_place[d] * g->to.strides[d];
  }
}

static void run_units(const hr_host_kernel *kernel, int pass, const hr_host_call *call, int64_t begin, int64_t end) {
  (void)pass;
  const gather *g = (const gather *)kernel;
  const char *source = call->args[g->from.arg];
  char *target = call->args[g->to.arg];
  int64_t run = begin * g->runs_per_unit, last = end * g->runs_per_unit, place[HR_RANK_MAX], at, from, to;
  last = last < g->runs ? last : g->runs;
  enter(g, run, place, &at, &from, &to);
  for (; run < last; ++run) {
    int64_t start = from + index_at(g, call, at) * g->term_stride;
    memcpy(target + to * (int64_t)g->size, source + start * (int64_t)g->size, g->run_bytes);
    for (int d = g->rank - 1; d >= 0; --d) {
      at += g->index.strides[d], from += g->from.strides[d], to += g->to.strides[d];
      if (++place[d] < g->dims[d]) {
        break;
      }
      at -= g->dims[d] * g->index.strides[d];
      from -= g->dims[d] * g->from.strides[d];
      to -= g->dims[d] * g->to.strides[d];
      place[d] = 0;
    }
  }
}

static void destroy(hr_host_kernel *kernel) {
  hr_free(kernel);
}

/* Fills all but the name, from a kernel that fits. */
static void fill(gather *g, const hr_kernel *kernel) {
  const hr_access *index = &kernel->accesses[kernel->instrs[0].access];
  const hr_access *from = &kernel->accesses[kernel->instrs[1].access];
  const hr_access *to = &kernel->accesses[kernel->instrs[2].access];
  int64_t run = 0;
  g->rank = kernel->rank - dense_dims(kernel, &run);
  g->index = side_of(index, g->rank), g->from = side_of(from, g->rank), g->to = side_of(to, g->rank);
  g->index_dtype = index->dtype;
  g->term_stride = from->terms[0].stride, g->term_extent = from->terms[0].extent;
  memcpy(g->dims, kernel->dims, (size_t)g->rank * sizeof *g->dims);
  g->size = hr_dtype_size(from->dtype);
  g->run_bytes = (size_t)run * g->size;
  g->runs = 1;
  for (int d = 0; d < g->rank; ++d) {
    g->runs *= g->dims[d];
  }
  g->runs_per_unit = UNIT_BYTES / (int64_t)g->run_bytes + 1;
  g->pass = (hr_host_pass){hr_divide_up(g->runs, g->runs_per_unit), 8};
  g->base.bytes = kernel->bytes;
}

hr_status hr__gather_create(const hr_kernel *kernel, hr_host_kernel **out_host_kernel) {
  size_t bytes = 0;
  const char *name = NULL;
  gather *g = hr__named_calloc(sizeof *g, kernel->name, &name, &bytes);
  if (g == NULL) {
    return hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no memory for a kernel that gathers");
  }
  g->base = (hr_host_kernel){
      .name = name, .pass_count = 1, .passes = &g->pass, .footprint = bytes, .run = run_units, .destroy = destroy};
  fill(g, kernel);
  *out_host_kernel = &g->base;
  return HR_OK;
}

bool hr__gather_renumber(hr_host_kernel *host_kernel, const hr_kernel *kernel) {
  bool can = host_kernel->run == run_units && hr__gather_fits(kernel);
  if (can) {
    fill((gather *)host_kernel, kernel);
  }
  return can;
}
