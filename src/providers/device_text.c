/* device_text.c: see device_text.h. */
#include "providers/device_text.h"

#include "core/ir/dtype.h"

enum { VECTOR_BYTES = 16 };

bool hr__device_text_has_dtype(hr_dtype dtype) {
  return dtype == HR_DTYPE_F32 || dtype == HR_DTYPE_BF16 || dtype == HR_DTYPE_F16;
}

int hr__device_text_dtype(hr_dtype dtype) {
  return dtype == HR_DTYPE_BF16 ? 1 : dtype == HR_DTYPE_F16 ? 2 : 0;
}

const hr_operand *hr__present(const hr_operand *x) {
  return x->kind != HR_OPERAND_NONE ? x : NULL;
}

bool hr__device_text_has_vectors(const hr_operand *x) {
  int64_t vector = VECTOR_BYTES / (int64_t)hr_dtype_size(x->dtype), last = x->rank - 1;
  bool has = x->dims[last] % vector == 0 && x->offset % vector == 0 && x->strides[last] == 1;
  for (int d = 0; has && d < last; ++d) {
    has = x->dims[d] == 1 || x->strides[d] % vector == 0;
  }
  return has;
}

void hr__device_text_define(hr_text *text, size_t count, const hr__device_definition definitions[]) {
  for (size_t i = 0; i < count; ++i) {
    hr_text_printf(text, "#define %s %lld\n", definitions[i].name, (long long)definitions[i].value);
  }
}

hr_status hr__device_text_finish(hr_device_source *source, hr_device_source *out_source) {
  hr_status status = hr_text_status(&source->text);
  if (status != HR_OK) {
    hr_text_fini(&source->text);
    return status;
  }
  *out_source = *source;
  return HR_OK;
}
