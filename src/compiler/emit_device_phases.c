/* Rewrites kernels for forms that keep values: a load serves all later phases, and reductions become phases of their
 * own.
 *
 * The kernel's registers and accesses stay; its instructions are copied.
 */
#include <string.h>

#include "compiler/emit_device_internal.h"

/* A copy of the kernel, to be changed; NULL: out of memory. */
static hr_kernel *copy_kernel(device *d, hr_instr **out_instrs, hr_register **out_registers) {
  const hr_kernel *kernel = d->e->kernel;
  hr_kernel *copy = HR_ARENA_ARRAY(&d->e->arena, hr_kernel, 1);
  hr_instr *instrs = HR_ARENA_ARRAY(&d->e->arena, hr_instr, (size_t)kernel->instr_count + 1);
  hr_register *registers = HR_ARENA_ARRAY(&d->e->arena, hr_register, (size_t)kernel->register_count + 1);
  if (copy == NULL || instrs == NULL || registers == NULL) {
    d->e->text->failed = true;
    return NULL;
  }
  memcpy(instrs, kernel->instrs, (size_t)kernel->instr_count * sizeof *instrs);
  memcpy(registers, kernel->registers, (size_t)kernel->register_count * sizeof *registers);
  *copy = *kernel;
  copy->instrs = *out_instrs = instrs, copy->registers = *out_registers = registers;
  return copy;
}

/* Finds the phases in which registers are computed, and read last. */
static void find_phases(const hr_kernel *kernel, hr_register *registers) {
  for (int r = 0; r < kernel->register_count; ++r) {
    registers[r].phase = registers[r].last_phase = 0;
    for (int k = 0; k < kernel->instr_count; ++k) {
      const hr_instr *instr = &kernel->instrs[k];
      registers[r].phase = instr->dst == r ? instr->phase : registers[r].phase;
      if (hr__device_reads(kernel, instr, r) && instr->phase > registers[r].last_phase) {
        registers[r].last_phase = instr->phase;
      }
    }
  }
}

bool hr__device_is_same_row(const hr_kernel *kernel, const hr_instr *x, const hr_instr *y) {
  if (x->kind != HR_INSTR_LOAD || y->kind != HR_INSTR_LOAD || x->level != HR_LEVEL_ELEMENT ||
      y->level != HR_LEVEL_ELEMENT || x->phase == y->phase) {
    return false;
  }
  const hr_access *a = &kernel->accesses[x->access], *b = &kernel->accesses[y->access];
  return a->bound_count == 0 && hr_kernel_same_elements(kernel, a, b) && !kernel->args[a->arg].is_written;
}

static bool is_index(const hr_kernel *kernel, int reg) {
  for (int a = 0; a < kernel->access_count; ++a) {
    for (int t = 0; t < kernel->accesses[a].term_count; ++t) {
      if (kernel->accesses[a].terms[t].reg == reg) {
        return true;
      }
    }
  }
  return false;
}

/* The register that holds the result of load `at` since an earlier phase; -1: none. */
static int find_earlier(const hr_kernel *kernel, int at) {
  for (int k = 0; k < at && !is_index(kernel, kernel->instrs[at].dst); ++k) {
    if (hr__device_is_same_row(kernel, &kernel->instrs[at], &kernel->instrs[k])) {
      return kernel->instrs[k].dst;
    }
  }
  return -1;
}

static void replace_register(hr_instr *instr, int reg, int by) {
  for (int s = 0; s < instr->source_count; ++s) {
    if (instr->sources[s].kind == HR_SOURCE_REGISTER && instr->sources[s].index == reg) {
      instr->sources[s].index = by;
    }
  }
}

void hr__device_merge_loads(device *d) {
  hr_instr *instrs;
  hr_register *registers;
  hr_kernel *copy = copy_kernel(d, &instrs, &registers);
  for (int k = 0; copy != NULL && k < copy->instr_count;) {
    int earlier = find_earlier(copy, k), reg = instrs[k].dst;
    if (earlier < 0) {
      ++k;
      continue;
    }
    --copy->instr_count;
    memmove(&instrs[k], &instrs[k + 1], (size_t)(copy->instr_count - k) * sizeof *instrs);
    for (int j = k; j < copy->instr_count; ++j) {
      replace_register(&instrs[j], reg, earlier);
    }
  }
  if (copy != NULL) {
    find_phases(copy, registers);
    d->e->kernel = copy;
  }
}

void hr__device_part_phases(device *d) {
  hr_instr *instrs;
  hr_register *registers;
  hr_kernel *copy = copy_kernel(d, &instrs, &registers);
  for (int k = 0; copy != NULL && k < copy->instr_count; ++k) {
    instrs[k].phase = 2 * instrs[k].phase + hr__device_is_reduction(&instrs[k]);
  }
  if (copy != NULL) {
    copy->phase_count *= 2;
    find_phases(copy, registers);
    d->e->kernel = copy;
  }
}
