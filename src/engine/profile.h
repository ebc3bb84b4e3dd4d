/* profile.h: logs steps and their times. */
#ifndef HEADRACE_ENGINE_PROFILE_H_
#define HEADRACE_ENGINE_PROFILE_H_

#include "engine/instance.h"

/* The name of the function that a node calls, or of its row. Lives as long as the context. */
const char *hr__node_name(const hr_node *node);
/* Appends the step's line: its operations or function, sizes, provider. */
void hr__step_describe(const hr_instance *instance, const hr_exec_step *step, hr_text *text);
void hr__profile_log_schedule(const hr_instance *instance);
/* The time of the batch that begins with step `first`, among its steps by the bytes that they move. */
void hr__profile_share(const hr_instance *instance, int first, int64_t ns, int64_t *out_step_ns);
/* A line of HR_LOG_KERNEL, with shares of the machine's peak if the device computes, and `places` at its end. */
void hr__profile_log_step(const hr_instance *instance, int number, int64_t ns, bool has_contents, const char *places);

#endif
