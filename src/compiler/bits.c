/* bits.c: moves numbers as integers of the same size if nothing is computed with them.
 *
 *   before   r0:f32 = load a0:f16+0{-64,1}      after   r0:i32 = load a0:i16+0{-64,1}
 *            store a1:f16+0{64,1}, r0                   store a1:i16+0{64,1}, r0
 *
 * Copies, slices and concatenations of formats without a class of their own (f16, for example) would otherwise convert
 * each number twice and lose NaN payloads.
 */
#include "compiler/passes.h"

/* The integer dtype of the same size, for a format that is computed with in another class; NONE for the others. */
static hr_dtype integers_of(hr_dtype dtype) {
  bool is_converted =
      dtype == HR_DTYPE_F16 || dtype == HR_DTYPE_BF16 || dtype == HR_DTYPE_C32 || hr_dtype_is_float8(dtype);
  size_t size = hr_dtype_size(dtype);
  return !is_converted ? HR_DTYPE_NONE : size == 1 ? HR_DTYPE_I8 : size == 2 ? HR_DTYPE_I16 : HR_DTYPE_I32;
}

/* True if the loaded value, or 0 out of bounds, is only stored in the same format. */
static bool is_only_moved(const hr_instr *instrs, int count, const hr_access *accesses, const hr_instr *load) {
  hr_dtype dtype = accesses[load->access].dtype;
  bool is = accesses[load->access].fill < 0, is_stored = false;
  for (int k = 0; is && k < count; ++k) {
    bool shares = &instrs[k] != load && instrs[k].access == load->access;
    if (hr_instr_reads(&instrs[k], load->dst)) {
      is = instrs[k].kind == HR_INSTR_STORE && instrs[k].mode == HR_STORE_SET &&
           accesses[instrs[k].access].dtype == dtype;
      is_stored = true;
    }
    is &= !shares;
  }
  return is && is_stored;
}

void hr_move_bits(hr_instr *instrs, int count, hr_access *accesses, hr_register *registers) {
  for (int k = 0; k < count; ++k) {
    hr_instr *load = &instrs[k];
    hr_dtype to = load->kind == HR_INSTR_LOAD ? integers_of(accesses[load->access].dtype) : HR_DTYPE_NONE;
    if (to == HR_DTYPE_NONE || !is_only_moved(instrs, count, accesses, load)) {
      continue;
    }
    hr_class cls = hr_dtype_class(to);
    registers[load->dst].cls = load->cls = cls;
    accesses[load->access].dtype = to;
    for (int j = 0; j < count; ++j) {
      if (hr_instr_reads(&instrs[j], load->dst)) {
        instrs[j].cls = cls;
        accesses[instrs[j].access].dtype = to;
      }
    }
  }
}
