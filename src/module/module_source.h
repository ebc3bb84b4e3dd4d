/* module_source.h: the kernels in a source: their names and parameters, and the source as C that a compiler accepts.
 *
 *   source   kernel void f(in float *x,        C   HR_VMATH_FN void hr__k_f(const float *restrict x,
 *                          out float *y) {                                  float *restrict y, <the thread>) {
 *
 * Lines keep their numbers, all else its text. Only the heads of kernels are parsed; the compiler checks the rest.
 */
#ifndef HEADRACE_MODULE_SOURCE_H_
#define HEADRACE_MODULE_SOURCE_H_

#include "base/text.h"
#include "base/vector.h"
#include "headrace/module.h"

enum { HR__MODULE_NAME_BYTES = 64 };

typedef struct hr__module_parameter {
  char name[HR__MODULE_NAME_BYTES];
  hr_parameter_kind kind;
  hr_dtype dtype;
} hr__module_parameter;

typedef struct hr__module_head {
  char name[HR__MODULE_NAME_BYTES];
  int parameter_count;
  hr__module_parameter parameters[HR_MODULE_PARAMETERS_MAX];
} hr__module_head;

typedef struct hr__module_source {
  HR_VECTOR(hr__module_head) heads;
  hr_text text; /* C */
} hr__module_source;

/* INVALID_ARGUMENT names the line and what was expected. */
HR_MUST_USE hr_status hr__module_parse(const char *source, size_t length, hr__module_source *out_source);
void hr__module_source_fini(hr__module_source *source);

/* The name of a type in the texts: "float", "int8_t", "half". */
const char *hr__module_type(hr_dtype dtype);

#endif
