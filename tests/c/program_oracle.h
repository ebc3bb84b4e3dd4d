/* program_oracle.h: one loop node by the interpreter and by the reference evaluator, on the same contents.
 *
 * Rows that are EXACT give the same bits. The others stay within what their class of accuracy promises; sums and
 * products within the rounding errors that their order can make. NaN and infinities are never excused, unless numbers
 * inside a sum or product can overflow; the sign of zero is where it hangs on the order or on what large terms leave.
 * Complex numbers are run, not compared: the reference computes them in double, by C's rules for infinities.
 */
#ifndef HEADRACE_TESTS_PROGRAM_ORACLE_H_
#define HEADRACE_TESTS_PROGRAM_ORACLE_H_

#include "core/ir/program.h"

/* `program` has one node, a loop or a CHECK_INDEX. Runs it on `memory` with the interpreter; INTERNAL says where the
 * reference gives something else, OUT_OF_RANGE that the check failed for both. */
HR_MUST_USE hr_status hr__run_checked(const hr_program *program, void **memory, const hr_scalar *arguments);

#endif
