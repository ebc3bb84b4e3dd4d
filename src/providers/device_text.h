/* device_text.h: what providers share that write kernels as texts in a device's dialect (`write` in provider.h). Their
 * kernels take f32, bf16 and f16, and have definitions in front that say which. */
#ifndef HEADRACE_PROVIDERS_DEVICE_TEXT_H_
#define HEADRACE_PROVIDERS_DEVICE_TEXT_H_

#include "providers/provider.h"

/* Whether it is f32, bf16 or f16; and how the texts number them: 0, 1, 2. */
bool hr__device_text_has_dtype(hr_dtype dtype);
int hr__device_text_dtype(hr_dtype dtype);

/* NULL where the operand is absent. */
const hr_operand *hr__present(const hr_operand *x);
/* Whether the rows, along the last dim, can be read and written 16 bytes at a time. */
bool hr__device_text_has_vectors(const hr_operand *x);

/* A number that the text is compiled with. */
typedef struct hr__device_definition {
  const char *name;
  int64_t value;
} hr__device_definition;

/* "#define NAME VALUE", a line each. */
void hr__device_text_define(hr_text *text, size_t count, const hr__device_definition definitions[]);

/* The end of `write`: hands the source over, or frees its text and gives the failure of an append to it. */
HR_MUST_USE hr_status hr__device_text_finish(hr_device_source *source, hr_device_source *out_source);

#endif
