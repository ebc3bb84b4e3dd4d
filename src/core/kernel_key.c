/* kernel_key.c: a kernel form as words, so that equal kernels are found and made once.
 *
 * What tells two programs' kernels apart without changing what they compute is left out: names, which of the program's
 * buffers and scalars are bound, estimates.
 */
#include "core/kernel.h"

#define PUSH(word) hr_vector_push(out_key, (uint64_t)(word))

static bool push_access(hr_kernel_key *out_key, const hr_access *access, int rank) {
  bool ok = PUSH(access->arg) && PUSH(access->dtype) && PUSH(access->offset) && PUSH(access->term_count) &&
            PUSH(access->bound_count) && PUSH(access->fill);
  for (int d = 0; d < rank; ++d) {
    ok = ok && PUSH(access->strides[d]);
  }
  for (int t = 0; t < access->term_count; ++t) {
    const hr_kernel_term *term = &access->terms[t];
    ok = ok && PUSH(term->reg) && PUSH(term->stride) && PUSH(term->extent);
  }
  for (int b = 0; b < access->bound_count; ++b) {
    const hr_bound *bound = &access->bounds[b];
    ok = ok && PUSH(bound->offset) && PUSH(bound->extent);
    for (int d = 0; d < rank; ++d) {
      ok = ok && PUSH(bound->strides[d]);
    }
  }
  return ok;
}

static bool push_instr(hr_kernel_key *out_key, const hr_instr *instr) {
  bool ok = PUSH(instr->kind) && PUSH(instr->level) && PUSH(instr->phase) && PUSH(instr->op) && PUSH(instr->cls) &&
            PUSH(instr->to) && PUSH(instr->dst) && PUSH(instr->access) && PUSH(instr->mode) &&
            PUSH(instr->source_count);
  for (int s = 0; s < instr->source_count; ++s) {
    ok = ok && PUSH(instr->sources[s].kind) && PUSH(instr->sources[s].index);
  }
  return ok;
}

bool hr_kernel_make_key(const hr_kernel *kernel, hr_kernel_key *out_key) {
  hr_vector_clear(out_key);
  bool ok = PUSH(kernel->rank) && PUSH(kernel->reduce_mask) && PUSH(kernel->ordered_mask) && PUSH(kernel->order) &&
            PUSH(kernel->phase_count) && PUSH(kernel->arg_count) && PUSH(kernel->scalar_count) &&
            PUSH(kernel->access_count) && PUSH(kernel->instr_count) && PUSH(kernel->register_count);
  for (int d = 0; d < kernel->rank; ++d) {
    ok = ok && PUSH(kernel->dims[d]);
  }
  for (int a = 0; a < kernel->arg_count; ++a) {
    ok = ok && PUSH(kernel->args[a].is_read) && PUSH(kernel->args[a].is_written);
  }
  for (int a = 0; a < kernel->access_count; ++a) {
    ok = ok && push_access(out_key, &kernel->accesses[a], kernel->rank);
  }
  for (int i = 0; i < kernel->instr_count; ++i) {
    ok = ok && push_instr(out_key, &kernel->instrs[i]);
  }
  for (int r = 0; r < kernel->register_count; ++r) {
    const hr_register *reg = &kernel->registers[r];
    ok = ok && PUSH(reg->cls) && PUSH(reg->level) && PUSH(reg->phase) && PUSH(reg->last_phase);
  }
  return ok;
}
