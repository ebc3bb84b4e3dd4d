/* Environment variables, typed, from the one table in env.def.
 *
 * All are read together at a context's first getter (context.h); later changes of the environment have no effect. A
 * value that doesn't parse gives the default and one warning that names it. Texts live until `hr__env_reload`. Threads:
 * getters are safe from any thread. Reloading is for tests, while no other thread reads.
 */
#ifndef HEADRACE_BASE_ENV_H_
#define HEADRACE_BASE_ENV_H_

#include <stdint.h>

#include "base/text.h"

#define HR_ENV_CHOICE(name, choices, value, doc) HR_ENV_##name,
#define HR_ENV_INT(name, min, max, value, doc) HR_ENV_##name,
#define HR_ENV_BYTES(name, value, doc) HR_ENV_##name,
#define HR_ENV_LIMIT(name, value, doc) HR_ENV_##name,
#define HR_ENV_TEXT(name, value, doc) HR_ENV_##name,
typedef enum hr_env_id {
#include "base/env.def"
  HR_ENV_COUNT
} hr_env_id;
#undef HR_ENV_CHOICE
#undef HR_ENV_INT
#undef HR_ENV_BYTES
#undef HR_ENV_LIMIT
#undef HR_ENV_TEXT

/* Values of the choices. */
enum { HR_ENV_MODE_FUSE, HR_ENV_MODE_EAGER, HR_ENV_MODE_STRICT };
enum { HR_ENV_JIT_AUTO, HR_ENV_JIT_OFF, HR_ENV_JIT_WAIT };
enum { HR_ENV_FALLBACK_ERROR, HR_ENV_FALLBACK_WARN, HR_ENV_FALLBACK_ALLOW };

enum { HR_ENV_TUNING_MEASURE, HR_ENV_TUNING_READ, HR_ENV_TUNING_OFF };
enum { HR_ENV_TF32_CONV, HR_ENV_TF32_ALL, HR_ENV_TF32_OFF };
enum { HR_ENV_SPLIT_PRODUCTS_ON, HR_ENV_SPLIT_PRODUCTS_OFF };
enum { HR_ENV_GRAPHS_ON, HR_ENV_GRAPHS_OFF };
enum { HR_ENV_GENERAL_PLANS_ON, HR_ENV_GENERAL_PLANS_OFF };
enum { HR_ENV_REPEATS_ON, HR_ENV_REPEATS_OFF };
enum { HR_ENV_LOOPS_ON, HR_ENV_LOOPS_OFF };
enum { HR_ENV_LAYOUTS_ALL, HR_ENV_LAYOUTS_INSIDE };
enum { HR_ENV_GUARDS_OFF, HR_ENV_GUARDS_ON };

/* An INT or BYTES variable. */
int64_t hr_env_int(hr_env_id id);
/* A CHOICE variable: the index of the chosen word. */
int hr_env_choice(hr_env_id id);
/* A TEXT variable; "" if it is empty, never NULL. */
const char *hr_env_text(hr_env_id id);
/* A LIMIT variable in bytes, of a device that has `total` bytes. */
int64_t hr_env_limit(hr_env_id id, int64_t total);

/* A system variable, such as PATH; "" if it is not set. */
const char *hr_env_system(const char *name);

/* Appends a readable table: name, value in use, default, accepted values, documentation. */
void hr_env_describe(hr_text *text);

/* Reads the environment again, for the current context. */
void hr__env_reload(void);

#endif /* HEADRACE_BASE_ENV_H_ */
