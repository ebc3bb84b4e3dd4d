/* api.c: the table itself, and the functions of the plug-in as a whole.
 *
 * Entries without a function fail with UNIMPLEMENTED and their name, so that the process goes on: clients accept that
 * of all functions that are optional.
 */
#include <pthread.h>
#include <string.h>

#include "plugin.h"

#define DONE(name, args)
#define NONE(name)                                                                                      \
  static pjrt_error *absent_##name(pjrt_args *args) {                                                   \
    (void)args;                                                                                         \
    return hrj_error_make(HR_STATUS_UNIMPLEMENTED, HRJ_PLATFORM ": PJRT_" #name " is not implemented"); \
  }
#include "entries.def"
#undef DONE
#undef NONE

static pjrt_table table = {.struct_size = sizeof table,
                           .version = {.struct_size = sizeof table.version, .major = PJRT_MAJOR, .minor = PJRT_MINOR},
                           .entries = {
#define DONE(name, args) [PJRT_ENTRY_##name] = (pjrt_function)hrj_##name,
#define NONE(name) [PJRT_ENTRY_##name] = (pjrt_function)absent_##name,
#include "entries.def"
#undef DONE
#undef NONE
                           }};

/* The symbol by which clients find a plug-in. The table lives as long as the process. */
HR_API const pjrt_table *GetPjrtApi(void);
const pjrt_table *GetPjrtApi(void) {
  table.extensions = hrj_extensions();
  return &table;
}

pjrt_error *hrj_Plugin_Initialize(pjrt_args *args) {
  (void)args;
  return NULL;
}

/* The versions of StableHLO's portable format that the core reads; clients write no newer one. */
static const int64_t newest_program[] = {1, 17, 0}, oldest_program[] = {0, 9, 0};

#define ATTRIBUTE(text, of, field, number, size)                                                     \
  {                                                                                                  \
    .struct_size = sizeof(pjrt_named_value), .name = text, .name_size = sizeof text - 1, .kind = of, \
    .value.field = number, .value_size = size                                                        \
  }
static const pjrt_named_value attributes[] = {
    ATTRIBUTE("xla_version", PJRT_VALUE_INT64, integer, 2, 1),
    ATTRIBUTE("stablehlo_current_version", PJRT_VALUE_INT64_LIST, integers, newest_program, 3),
    ATTRIBUTE("stablehlo_minimum_version", PJRT_VALUE_INT64_LIST, integers, oldest_program, 3),
};

pjrt_error *hrj_Plugin_Attributes(pjrt_args_attributes *args) {
  args->list = attributes, args->count = ARRAY_SIZE(attributes);
  return NULL;
}
