/* kernel_copy.c: a kernel form in memory of its own. */
#include <string.h>

#include "core/ir/kernel.h"

/* Sets *copy to a copy of `count` elements in the arena. */
#define DUP(arena, copy, source, count) \
  (((copy) = hr_arena_dup((arena), (count) > 0 ? (source) : NULL, (size_t)(count) * sizeof *(source))) != NULL)

static bool copy_access(hr_arena *arena, hr_access *access, int rank) {
  hr_bound *bounds = NULL;
  bool ok = DUP(arena, access->strides, access->strides, rank) &&
            DUP(arena, access->terms, access->terms, access->term_count) &&
            DUP(arena, bounds, access->bounds, access->bound_count);
  for (int i = 0; ok && i < access->bound_count; ++i) {
    ok = DUP(arena, bounds[i].strides, bounds[i].strides, rank);
  }
  access->bounds = bounds;
  return ok;
}

/* Sets both arrays of the copy. */
static bool copy_instrs(hr_arena *arena, const hr_kernel *kernel, const hr_kernel *like, hr_kernel *copy) {
  size_t instrs = (size_t)kernel->instr_count * sizeof *kernel->instrs;
  size_t registers = (size_t)kernel->register_count * sizeof *kernel->registers;
  if (like != NULL && like->instr_count == kernel->instr_count && like->register_count == kernel->register_count &&
      memcmp(like->instrs, kernel->instrs, instrs) == 0 && memcmp(like->registers, kernel->registers, registers) == 0) {
    copy->instrs = like->instrs;
    copy->registers = like->registers;
    return true;
  }
  return DUP(arena, copy->instrs, kernel->instrs, kernel->instr_count) &&
         DUP(arena, copy->registers, kernel->registers, kernel->register_count);
}

hr_kernel *hr_kernel_copy(const hr_kernel *kernel, const hr_kernel *like, hr_arena *arena) {
  hr_kernel *copy = hr_arena_dup(arena, kernel, sizeof *kernel);
  hr_access *accesses = NULL;
  bool ok = copy != NULL && DUP(arena, copy->dims, kernel->dims, kernel->rank) &&
            DUP(arena, copy->args, kernel->args, kernel->arg_count) &&
            DUP(arena, copy->scalars, kernel->scalars, kernel->scalar_count) &&
            copy_instrs(arena, kernel, like, copy) && DUP(arena, accesses, kernel->accesses, kernel->access_count);
  for (int i = 0; ok && i < kernel->access_count; ++i) {
    ok = copy_access(arena, &accesses[i], kernel->rank);
  }
  if (ok) {
    copy->accesses = accesses;
    copy->name = kernel->name != NULL ? hr_arena_strdup(arena, kernel->name) : NULL;
    ok = kernel->name == NULL || copy->name != NULL;
  }
  return ok ? copy : NULL;
}
