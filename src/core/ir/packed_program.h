/* packed_program.h: a program as bytes, a tenth of its size: for programs that are kept and seldom read.
 *
 *   %4:f32[64,16]{16,1}+0 = ..   88 bytes an operand, 16 a dim   ->   one or two bytes for most numbers
 *
 * Everything is packed but the free room of lists. Programs that differ from another one in a few numbers can be packed
 * as these differences. Threads: a packed program is immutable.
 */
#ifndef HEADRACE_CORE_PACKED_PROGRAM_H_
#define HEADRACE_CORE_PACKED_PROGRAM_H_

#include "core/ir/program.h"

typedef struct hr_packed_program {
  const hr_program *base; /* NULL: all numbers are here; else those that differ */
  size_t byte_count;
  uint8_t bytes[];
} hr_packed_program;

/* One block, which the caller frees; NULL when memory is out. `base`: a program of the same structure, which stays
 * valid and unchanged as long as the packed one, or NULL. */
hr_packed_program *hr_program_pack(const hr_program *program, const hr_program *base);
/* The program that was packed, in memory of its own. RESOURCE_EXHAUSTED. */
HR_MUST_USE hr_status hr_program_unpack(const hr_packed_program *packed, hr_program *out_program);

#endif
