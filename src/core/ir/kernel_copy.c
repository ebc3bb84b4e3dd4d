/* kernel_copy.c: a kernel form in memory of its own, one block. */
#include <string.h>

#include "core/ir/kernel.h"

static size_t bytes_of_instrs(const hr_kernel *kernel) {
  return (size_t)kernel->instr_count * sizeof *kernel->instrs;
}

static size_t bytes_of_registers(const hr_kernel *kernel) {
  return (size_t)kernel->register_count * sizeof *kernel->registers;
}

static bool has_code_of(const hr_kernel *kernel, const hr_kernel *like) {
  return like != NULL && like->instr_count == kernel->instr_count && like->register_count == kernel->register_count &&
         (like->instrs == kernel->instrs || memcmp(like->instrs, kernel->instrs, bytes_of_instrs(kernel)) == 0) &&
         (like->registers == kernel->registers ||
          memcmp(like->registers, kernel->registers, bytes_of_registers(kernel)) == 0);
}

static size_t bytes_of_access(const hr_access *access, size_t list) {
  return list + hr_part_bytes((size_t)access->term_count * sizeof *access->terms) +
         (size_t)access->bound_count * (sizeof *access->bounds + list);
}

static size_t bytes_of_copy(const hr_kernel *kernel, bool has_code) {
  size_t list = (size_t)kernel->rank * sizeof *kernel->dims;
  size_t bytes = sizeof *kernel + list + hr_part_bytes((size_t)kernel->arg_count * sizeof *kernel->args) +
                 hr_part_bytes((size_t)kernel->scalar_count * sizeof *kernel->scalars) +
                 (size_t)kernel->access_count * sizeof *kernel->accesses +
                 (kernel->name != NULL ? hr_part_bytes(strlen(kernel->name) + 1) : 0);
  for (int i = 0; i < kernel->access_count; ++i) {
    bytes += bytes_of_access(&kernel->accesses[i], list);
  }
  return bytes + (has_code ? hr_part_bytes(bytes_of_instrs(kernel)) + hr_part_bytes(bytes_of_registers(kernel)) : 0);
}

size_t hr_kernel_copy_bytes(const hr_kernel *kernel, const hr_kernel *like) {
  return bytes_of_copy(kernel, !has_code_of(kernel, like));
}

static void copy_access(hr_access *access, size_t rank, char **at) {
  access->strides = hr_part_put_words(at, access->strides, rank);
  access->terms = hr_part_put(at, access->terms, (size_t)access->term_count * sizeof *access->terms);
  hr_bound *bounds = hr_part_put(at, access->bounds, (size_t)access->bound_count * sizeof *access->bounds);
  for (int i = 0; i < access->bound_count; ++i) {
    bounds[i].strides = hr_part_put_words(at, bounds[i].strides, rank);
  }
  access->bounds = bounds;
}

hr_kernel *hr_kernel_copy(const hr_kernel *kernel, const hr_kernel *like, hr_arena *arena) {
  bool has_code = !has_code_of(kernel, like);
  const size_t rank = (size_t)kernel->rank;
  char *at = hr_arena_alloc(arena, bytes_of_copy(kernel, has_code));
  if (at == NULL) {
    return NULL;
  }
  hr_kernel *copy = hr_part_put(&at, kernel, sizeof *kernel);
  copy->dims = hr_part_put_words(&at, kernel->dims, rank);
  copy->args = hr_part_put(&at, kernel->args, (size_t)kernel->arg_count * sizeof *kernel->args);
  copy->scalars = hr_part_put(&at, kernel->scalars, (size_t)kernel->scalar_count * sizeof *kernel->scalars);
  copy->instrs = has_code ? hr_part_put(&at, kernel->instrs, bytes_of_instrs(kernel)) : like->instrs;
  copy->registers = has_code ? hr_part_put(&at, kernel->registers, bytes_of_registers(kernel)) : like->registers;
  hr_access *accesses = hr_part_put(&at, kernel->accesses, (size_t)kernel->access_count * sizeof *kernel->accesses);
  for (int i = 0; i < kernel->access_count; ++i) {
    copy_access(&accesses[i], rank, &at);
  }
  copy->accesses = accesses;
  copy->name = kernel->name != NULL ? hr_part_put(&at, kernel->name, strlen(kernel->name) + 1) : NULL;
  return copy;
}
