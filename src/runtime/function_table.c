/* function_table.c: see function_table.h. */
#include "runtime/function_table.h"

#include "base/context.h"
#include "base/thread.h"
#include "base/vector.h"

/* A context's. */
typedef struct function_table {
  hr_mutex mutex;
  HR_VECTOR(const hr_function *) functions; /* by number - 1 */
} function_table;

static void init_table(void *part) {
  function_table *table = part;
  hr_mutex_init(&table->mutex);
}

static void fini_table(void *part) {
  function_table *table = part;
  hr_vector_fini(&table->functions);
  hr_mutex_fini(&table->mutex);
}

static function_table *own(void) {
  static const hr_context_part kind = {.bytes = sizeof(function_table), .init = init_table, .fini = fini_table};
  return hr__context_part(hr__context(), HR_CONTEXT_FUNCTIONS, &kind);
}

hr_status hr__function_add(hr_function *function) {
  function_table *table = own();
  hr_mutex_lock(&table->mutex);
  bool ok = hr_vector_push(&table->functions, function);
  function->number = ok ? (int64_t)table->functions.count : 0;
  hr_mutex_unlock(&table->mutex);
  return ok ? HR_OK : hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for kernel %s", function->name);
}

const hr_function *hr__function_find(int64_t number) {
  function_table *table = own();
  hr_mutex_lock(&table->mutex);
  const hr_function *function =
      number > 0 && (uint64_t)number <= table->functions.count ? table->functions.data[number - 1] : NULL;
  hr_mutex_unlock(&table->mutex);
  return function;
}
