/* step_costs.h: the costs of a plan's steps in some bytes each: plans that are kept have them for profiles alone.
 * Threads: immutable. */
#ifndef HEADRACE_ENGINE_STEP_COSTS_H_
#define HEADRACE_ENGINE_STEP_COSTS_H_

#include <stdint.h>

#include "compiler/describe.h"

/* One block, which the caller frees, of *out_bytes; NULL when memory is out. */
uint8_t *hr__step_costs_pack(int count, const hr_step_cost *costs, size_t *out_bytes);
/* The costs that were packed, which the caller frees; NULL when memory is out. */
hr_step_cost *hr__step_costs_unpack(int count, const uint8_t *packed);

#endif
