/* kernel_copy.c: a kernel form in memory of its own. */
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

hr_kernel *hr_kernel_copy(const hr_kernel *kernel, hr_arena *arena) {
  hr_kernel *copy = hr_arena_dup(arena, kernel, sizeof *kernel);
  hr_access *accesses = NULL;
  bool ok = copy != NULL && DUP(arena, copy->dims, kernel->dims, kernel->rank) &&
            DUP(arena, copy->args, kernel->args, kernel->arg_count) &&
            DUP(arena, copy->scalars, kernel->scalars, kernel->scalar_count) &&
            DUP(arena, copy->instrs, kernel->instrs, kernel->instr_count) &&
            DUP(arena, copy->registers, kernel->registers, kernel->register_count) &&
            DUP(arena, accesses, kernel->accesses, kernel->access_count);
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
