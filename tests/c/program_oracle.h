/* program_oracle.h: one loop node by the interpreter and by the reference evaluator, on the same contents.
 *
 * - EXACT rows give the same bits. Others stay within the bound of their class of accuracy; sums and products within
 *   the rounding errors of any order.
 * - NaN and infinities must agree, unless numbers inside a sum or product can overflow.
 * - The sign of zero must agree, unless it depends on the order or on the rest of large terms.
 * - Complex numbers are run, not compared: the reference computes them in double, by C's rules for infinities.
 */
#ifndef HEADRACE_TESTS_PROGRAM_ORACLE_H_
#define HEADRACE_TESTS_PROGRAM_ORACLE_H_

#include "core/ir/program.h"

/* `program` has one node, a loop or a CHECK_INDEX. Runs it on `memory` with the interpreter. INTERNAL describes a
 * difference from the reference; OUT_OF_RANGE: the check failed for both. */
HR_MUST_USE hr_status hr__run_checked(const hr_program *program, void **memory, const hr_scalar *arguments);

#endif
