/* device_text.h: helpers for providers that write kernels as texts in a device's dialect (`write` in provider.h). Their
 * kernels support f32, bf16 and f16, selected by definitions in front of the text. */
#ifndef HEADRACE_PROVIDERS_DEVICE_TEXT_H_
#define HEADRACE_PROVIDERS_DEVICE_TEXT_H_

#include "providers/provider.h"

/* True for f32, bf16 and f16; and their numbers in the texts: 0, 1, 2. */
bool hr__device_text_has_dtype(hr_dtype dtype);
int hr__device_text_dtype(hr_dtype dtype);

/* NULL if the operand is absent. */
const hr_operand *hr__present(const hr_operand *x);
/* True if the rows, along the last dim, can be read and written 16 bytes at a time. */
bool hr__device_text_has_vectors(const hr_operand *x);

/* A number that is a constant of the text. */
typedef struct hr__device_definition {
  const char *name;
  int64_t value;
} hr__device_definition;

/* "#define NAME VALUE", a line each. */
void hr__device_text_define(hr_text *text, size_t count, const hr__device_definition definitions[]);

/* The end of `write`: returns the source, or frees its text and returns the failure of an append to it. */
HR_MUST_USE hr_status hr__device_text_finish(hr_device_source *source, hr_device_source *out_source);

#endif
