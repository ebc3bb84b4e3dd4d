/* function_table.c: see function_table.h. */
#include "runtime/function_table.h"

#include <string.h>

#include "base/allocator.h"
#include "base/context.h"
#include "base/hash.h"
#include "base/table.h"
#include "base/thread.h"
#include "base/vector.h"

/* A context's. */
typedef struct function_table {
  hr_mutex mutex;
  HR_VECTOR(const hr_function *) functions; /* by number - 1 */
  HR_VECTOR(char *) names;                  /* of closures, by -number - 1 */
  hr_table numbers;                         /* of a name's hash: the place of its pointer in `names`, from 1 */
} function_table;

static void init_table(void *part) {
  function_table *table = part;
  hr_mutex_init(&table->mutex);
}

static void fini_table(void *part) {
  function_table *table = part;
  for (size_t i = 0; i < table->names.count; ++i) {
    hr_free(table->names.data[i]);
  }
  hr_vector_fini(&table->names);
  hr_table_fini(&table->numbers);
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

/* ---- names of closures ---- */

/* 0: memory is short. */
static size_t add_name(function_table *table, uint64_t hash, const char *name) {
  size_t bytes = strlen(name) + 1;
  char *copy = hr_malloc(bytes);
  if (copy == NULL || !hr_vector_push(&table->names, memcpy(copy, name, bytes))) {
    hr_free(copy);
    return 0;
  }
  if (!hr_table_put(&table->numbers, hash, (void *)(uintptr_t)table->names.count)) {
    --table->names.count;
    hr_free(copy);
    return 0;
  }
  return table->names.count;
}

hr_status hr__closure_number(const char *name, int64_t *out_number) {
  *out_number = 0;
  if (name == NULL || name[0] == '\0') {
    return HR_OK;
  }
  function_table *table = own();
  uint64_t hash = hr_hash_bytes(HR_HASH_SEED, name, strlen(name));
  hr_mutex_lock(&table->mutex);
  size_t place = (size_t)(uintptr_t)hr_table_get(&table->numbers, hash);
  bool is_new = place == 0 && table->names.count < HR_FUNCTION_NAMES_MAX;
  place = is_new ? add_name(table, hash, name) : place;
  bool is_same = place != 0 && strcmp(table->names.data[place - 1], name) == 0; /* not another name of this hash */
  hr_mutex_unlock(&table->mutex);
  *out_number = is_same ? -(int64_t)place : 0;
  return place == 0 && is_new ? hr_status_make(HR_STATUS_RESOURCE_EXHAUSTED, "no host memory for function %s", name)
                              : HR_OK;
}

const char *hr__function_name(int64_t number) {
  if (number > 0) {
    const hr_function *function = hr__function_find(number);
    return function != NULL ? function->name : NULL;
  }
  function_table *table = own();
  hr_mutex_lock(&table->mutex);
  bool is_known = number < 0 && (uint64_t)-number <= table->names.count;
  const char *name = is_known ? table->names.data[-number - 1] : NULL;
  hr_mutex_unlock(&table->mutex);
  return name;
}
