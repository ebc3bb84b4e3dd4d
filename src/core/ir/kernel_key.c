/* kernel_key.c: the kernel form as bytes, so that equal kernels are found and prepared once.
 *
 *   structure    rank, masks, counts, arguments, accesses without numbers, instructions, registers
 *   numbers      dims, offsets, strides, extents
 *
 * The key leaves out everything that does not change the computation: names, the bound buffers and scalars, estimates.
 * Most values are small (varint.h). A cache holds many keys, few of which differ in structure.
 */
#include "base/varint.h"
#include "core/ir/kernel.h"

/* The place is no member of the key: bytes may be those of any object, so that each would be stored and loaded again.
 */
#define PUT(number) (at = hr_varint_put(at, (int64_t)(number)))

static uint8_t *put_access(uint8_t *at, const hr_access *access) {
  PUT(access->arg), PUT(access->dtype), PUT(access->term_count), PUT(access->bound_count), PUT(access->fill);
  for (int t = 0; t < access->term_count; ++t) {
    PUT(access->terms[t].reg);
  }
  return at;
}

static uint8_t *put_access_numbers(uint8_t *at, const hr_access *access, int rank) {
  PUT(access->offset);
  for (int d = 0; d < rank; ++d) {
    PUT(access->strides[d]);
  }
  for (int t = 0; t < access->term_count; ++t) {
    PUT(access->terms[t].stride), PUT(access->terms[t].extent);
  }
  for (int b = 0; b < access->bound_count; ++b) {
    const hr_bound *bound = &access->bounds[b];
    PUT(bound->offset), PUT(bound->extent);
    for (int d = 0; d < rank; ++d) {
      PUT(bound->strides[d]);
    }
  }
  return at;
}

static uint8_t *put_instr(uint8_t *at, const hr_instr *instr) {
  PUT(instr->kind), PUT(instr->level), PUT(instr->phase), PUT(instr->op), PUT(instr->cls);
  PUT(instr->to), PUT(instr->dst), PUT(instr->access), PUT(instr->mode), PUT(instr->source_count);
  for (int s = 0; s < instr->source_count; ++s) {
    PUT(instr->sources[s].kind), PUT(instr->sources[s].index);
  }
  return at;
}

static size_t count_numbers(const hr_kernel *kernel) {
  enum { HEAD = 11, ARG = 2, ACCESS = 6, TERM = 3, BOUND = 2, INSTR = 10, SOURCE = 2, REGISTER = 4 };
  const size_t rank = (size_t)kernel->rank;
  size_t count = HEAD + rank + (size_t)kernel->arg_count * ARG + (size_t)kernel->register_count * REGISTER;
  for (int a = 0; a < kernel->access_count; ++a) {
    const hr_access *access = &kernel->accesses[a];
    count += ACCESS + rank + (size_t)access->term_count * TERM + (size_t)access->bound_count * (BOUND + rank);
  }
  for (int i = 0; i < kernel->instr_count; ++i) {
    count += INSTR + (size_t)kernel->instrs[i].source_count * SOURCE;
  }
  return count;
}

bool hr_kernel_make_key(const hr_kernel *kernel, hr_kernel_key *out_key) {
  hr_vector_clear(out_key);
  if (!hr_vector_reserve(out_key, count_numbers(kernel) * HR_VARINT_BYTES_MAX)) {
    return false;
  }
  uint8_t *at = out_key->data;
  PUT(kernel->rank), PUT(kernel->reduce_mask), PUT(kernel->ordered_mask), PUT(kernel->order), PUT(kernel->phase_count);
  PUT(kernel->arg_count), PUT(kernel->scalar_count), PUT(kernel->access_count), PUT(kernel->instr_count);
  PUT(kernel->register_count), PUT(kernel->is_repeated);
  for (int a = 0; a < kernel->arg_count; ++a) {
    PUT(kernel->args[a].is_read), PUT(kernel->args[a].is_written);
  }
  for (int a = 0; a < kernel->access_count; ++a) {
    at = put_access(at, &kernel->accesses[a]);
  }
  for (int i = 0; i < kernel->instr_count; ++i) {
    at = put_instr(at, &kernel->instrs[i]);
  }
  for (int r = 0; r < kernel->register_count; ++r) {
    const hr_register *reg = &kernel->registers[r];
    PUT(reg->cls), PUT(reg->level), PUT(reg->phase), PUT(reg->last_phase);
  }
  out_key->structure_bytes = (size_t)(at - out_key->data);
  for (int d = 0; d < kernel->rank; ++d) {
    PUT(kernel->dims[d]);
  }
  for (int a = 0; a < kernel->access_count; ++a) {
    at = put_access_numbers(at, &kernel->accesses[a], kernel->rank);
  }
  out_key->count = (size_t)(at - out_key->data);
  return true;
}

/* ---- and back ---- */

typedef struct reader {
  const uint8_t *byte; /* of the structure */
  const uint8_t *numbers;
  hr_arena *arena;
  bool failed;
} reader;

static int64_t next(reader *r) {
  return hr_varint_next(&r->byte);
}

static int64_t next_number(reader *r) {
  return hr_varint_next(&r->numbers);
}

static void *array(reader *r, size_t count, size_t size) {
  void *memory = hr_arena_calloc(r->arena, count + 1, size);
  r->failed |= memory == NULL;
  return memory;
}

static int64_t *read_numbers(reader *r, int count) {
  int64_t *numbers = array(r, (size_t)count, sizeof *numbers);
  for (int i = 0; i < count; ++i) {
    int64_t number = next_number(r);
    if (numbers != NULL) {
      numbers[i] = number;
    }
  }
  return numbers;
}

static void read_access(reader *r, int rank, hr_access *out_access) {
  hr_access access = {.arg = (int)next(r)};
  access.dtype = (hr_dtype)next(r);
  access.term_count = (int)next(r);
  access.bound_count = (int)next(r);
  access.fill = (int)next(r);
  access.offset = next_number(r);
  access.strides = read_numbers(r, rank);
  hr_kernel_term *terms = array(r, (size_t)access.term_count, sizeof *terms);
  hr_bound *bounds = array(r, (size_t)access.bound_count, sizeof *bounds);
  if (r->failed) {
    return;
  }
  for (int t = 0; t < access.term_count; ++t) {
    terms[t].reg = (int)next(r);
    terms[t].stride = next_number(r);
    terms[t].extent = next_number(r);
  }
  for (int b = 0; b < access.bound_count; ++b) {
    bounds[b].offset = next_number(r);
    bounds[b].extent = next_number(r);
    bounds[b].strides = read_numbers(r, rank);
  }
  access.terms = terms, access.bounds = bounds;
  *out_access = access;
}

static void read_instr(reader *r, hr_instr *out_instr) {
  out_instr->kind = (hr_instr_kind)next(r);
  out_instr->level = (hr_level)next(r);
  out_instr->phase = (int)next(r);
  out_instr->op = (hr_op)next(r);
  out_instr->cls = (hr_class)next(r);
  out_instr->to = (hr_dtype)next(r);
  out_instr->dst = (int)next(r);
  out_instr->access = (int)next(r);
  out_instr->mode = (hr_store_mode)next(r);
  out_instr->source_count = (int)next(r);
  for (int s = 0; s < out_instr->source_count; ++s) {
    out_instr->sources[s].kind = (hr_source_kind)next(r);
    out_instr->sources[s].index = (int)next(r);
  }
}

/* Reads the arrays, after the counts are known. */
static void read_arrays(reader *r, hr_kernel *kernel) {
  kernel->dims = read_numbers(r, kernel->rank);
  hr_kernel_arg *args = array(r, (size_t)kernel->arg_count, sizeof *args);
  uint32_t *scalars = array(r, (size_t)kernel->scalar_count, sizeof *scalars);
  hr_access *accesses = array(r, (size_t)kernel->access_count, sizeof *accesses);
  hr_instr *instrs = array(r, (size_t)kernel->instr_count, sizeof *instrs);
  hr_register *registers = array(r, (size_t)kernel->register_count, sizeof *registers);
  for (int a = 0; a < kernel->arg_count && !r->failed; ++a) {
    args[a].buffer = (uint32_t)a;
    args[a].is_read = next(r) != 0;
    args[a].is_written = next(r) != 0;
  }
  for (int s = 0; s < kernel->scalar_count && !r->failed; ++s) {
    scalars[s] = (uint32_t)s;
  }
  for (int a = 0; a < kernel->access_count && !r->failed; ++a) {
    read_access(r, kernel->rank, &accesses[a]);
  }
  for (int i = 0; i < kernel->instr_count && !r->failed; ++i) {
    read_instr(r, &instrs[i]);
  }
  for (int i = 0; i < kernel->register_count && !r->failed; ++i) {
    registers[i].cls = (hr_class)next(r);
    registers[i].level = (hr_level)next(r);
    registers[i].phase = (int)next(r);
    registers[i].last_phase = (int)next(r);
  }
  kernel->args = args, kernel->scalars = scalars, kernel->accesses = accesses;
  kernel->instrs = instrs, kernel->registers = registers;
}

hr_kernel *hr_kernel_from_key(const uint8_t *structure, const uint8_t *numbers, hr_arena *arena) {
  reader r = {.byte = structure, .numbers = numbers, .arena = arena};
  hr_kernel *kernel = HR_ARENA_NEW(arena, hr_kernel);
  if (kernel == NULL) {
    return NULL;
  }
  kernel->name = "";
  kernel->rank = (int)next(&r);
  kernel->reduce_mask = (uint32_t)next(&r);
  kernel->ordered_mask = (uint32_t)next(&r);
  kernel->order = (hr_reduce_order)next(&r);
  kernel->phase_count = (int)next(&r);
  kernel->arg_count = (int)next(&r);
  kernel->scalar_count = (int)next(&r);
  kernel->access_count = (int)next(&r);
  kernel->instr_count = (int)next(&r);
  kernel->register_count = (int)next(&r);
  kernel->is_repeated = next(&r) != 0;
  read_arrays(&r, kernel);
  return r.failed ? NULL : kernel;
}
