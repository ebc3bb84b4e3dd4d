/* build_internal.h: functions shared by build.c and view_build.c. */
#ifndef HEADRACE_CORE_BUILD_INTERNAL_H_
#define HEADRACE_CORE_BUILD_INTERNAL_H_

#include "core/ir/build.h"

#define HR__NO_OPERAND ((hr_operand){.kind = HR_OPERAND_NONE, .fill = HR_NO_SCALAR})

/* Records the builder's first error and returns an absent operand. */
hr_operand hr__build_fail(hr_builder *b, const char *format, ...) HR_PRINTF(2, 3); /* INTERNAL */
hr_operand hr__build_fail_dims(hr_builder *b, const char *what, int rank_from, const int64_t *from, int rank_to,
                               const int64_t *to); /* "what [2,3] to [4]" */
hr_operand hr__build_no_memory(hr_builder *b);

#endif
