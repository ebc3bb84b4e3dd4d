/* arguments.h: lists of inputs and attributes for hr_graph_add, written in place. */
#ifndef HEADRACE_IMPORTERS_ARGUMENTS_H_
#define HEADRACE_IMPORTERS_ARGUMENTS_H_

#include "headrace/graph.h"

/* hr_graph_add(graph, HR_FUNCTIONAL_MAX, IN(x), WITH(hr__with_int("axis", 1))) */
#define HR__COUNTED(type, ...)                                    \
  (int)(sizeof((type[]){__VA_ARGS__}) / sizeof(type)), (type[]) { \
    __VA_ARGS__                                                   \
  }
#define IN(...) HR__COUNTED(hr_value, __VA_ARGS__)
#define WITH(...) HR__COUNTED(hr_graph_attribute, __VA_ARGS__)

static inline hr_graph_attribute hr__with_int(const char *name, int64_t number) {
  return (hr_graph_attribute){.name = name, .value = {.kind = HR_ATTRIBUTE_INT, .value = {.integer = number}}};
}
static inline hr_graph_attribute hr__with_flag(const char *name, bool flag) {
  return (hr_graph_attribute){.name = name, .value = {.kind = HR_ATTRIBUTE_FLAG, .value = {.integer = flag}}};
}
static inline hr_graph_attribute hr__with_real(const char *name, double number) {
  return (hr_graph_attribute){.name = name,
                              .value = {.kind = HR_ATTRIBUTE_REAL, .value = {.number = hr_scalar_f64(number)}}};
}
static inline hr_graph_attribute hr__with_ints(const char *name, int count, const int64_t *numbers) {
  return (hr_graph_attribute){.name = name,
                              .value = {.kind = HR_ATTRIBUTE_INTS, .count = count, .value = {.ints = numbers}}};
}
static inline hr_graph_attribute hr__with_reals(const char *name, int count, const double *numbers) {
  return (hr_graph_attribute){.name = name,
                              .value = {.kind = HR_ATTRIBUTE_REALS, .count = count, .value = {.reals = numbers}}};
}
static inline hr_graph_attribute hr__with_dtype(const char *name, hr_dtype dtype) {
  return (hr_graph_attribute){.name = name, .value = {.kind = HR_ATTRIBUTE_DTYPE, .value = {.dtype = dtype}}};
}
static inline hr_graph_attribute hr__with_text(const char *name, const char *text) {
  return (hr_graph_attribute){.name = name, .value = {.kind = HR_ATTRIBUTE_TEXT, .value = {.text = text}}};
}
/* All integers of a value. */
static inline hr_graph_attribute hr__with_list(const char *name, hr_value list) {
  return (hr_graph_attribute){.name = name, .value = {.kind = HR_ATTRIBUTE_INTS}, .list = list};
}

#endif
