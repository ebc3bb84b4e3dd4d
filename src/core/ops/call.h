/* call.h: the integers of HR_OP_CALL. */
#ifndef HEADRACE_CORE_OPS_CALL_H_
#define HEADRACE_CORE_OPS_CALL_H_

enum { HR__CALL_NUMBER, HR__CALL_UPDATED, HR__CALL_EFFECTS, HR__CALL_SIZE, HR__CALL_GROUP = HR__CALL_SIZE + 3 };
enum { HR__CALL_INTS = HR__CALL_GROUP + 3 };

/* EFFECTS: a kernel of a module has none. A function runs even if nobody needs its outputs: where it stands, for any
 * time (ENDLESS) or a short one, or LATE, where the first result is used (headrace/function.h). */
typedef enum hr_call_effects {
  HR_CALL_KERNEL = 0,
  HR_CALL_ENDLESS = 1,
  HR_CALL_LATE = 2,
  HR_CALL_SHORT = 3
} hr_call_effects;

#endif
