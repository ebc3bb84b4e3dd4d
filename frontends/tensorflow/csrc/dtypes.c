/* dtypes.c: dtypes and statuses of both sides. */
#include "plugin.h"

static const hr_dtype dtypes[TF_DTYPE_COUNT] = {
    [TF_FLOAT] = HR_DTYPE_F32,
    [TF_DOUBLE] = HR_DTYPE_F64,
    [TF_INT32] = HR_DTYPE_I32,
    [TF_UINT8] = HR_DTYPE_U8,
    [TF_INT16] = HR_DTYPE_I16,
    [TF_INT8] = HR_DTYPE_I8,
    [TF_COMPLEX64] = HR_DTYPE_C64,
    [TF_INT64] = HR_DTYPE_I64,
    [TF_BOOL] = HR_DTYPE_BOOL,
    [TF_BFLOAT16] = HR_DTYPE_BF16,
    [TF_UINT16] = HR_DTYPE_U16,
    [TF_COMPLEX128] = HR_DTYPE_C128,
    [TF_HALF] = HR_DTYPE_F16,
    [TF_UINT32] = HR_DTYPE_U32,
    [TF_UINT64] = HR_DTYPE_U64,
    [TF_FLOAT8_E5M2] = HR_DTYPE_F8E5M2,
    [TF_FLOAT8_E4M3FN] = HR_DTYPE_F8E4M3FN,
};

hr_dtype htf_dtype_of(int dtype) {
  return dtype >= 0 && dtype < TF_DTYPE_COUNT ? dtypes[dtype] : HR_DTYPE_NONE;
}

int htf_dtype_from(hr_dtype dtype) {
  int found = 0;
  while (found < TF_DTYPE_COUNT && (dtypes[found] != dtype || dtype == HR_DTYPE_NONE)) {
    ++found;
  }
  return found;
}

/* The codes are the same numbers. */
bool htf_fails(hr_status status, tf_status *out_status) {
  if (status == HR_OK) {
    return false;
  }
  tf.SetStatus(out_status, (int)hr_status_code_of(status), hr_status_message(status));
  hr_status_free(status);
  return true;
}

hr_status htf_status_of(const tf_status *status) {
  int code = tf.GetCode(status);
  return code == 0 ? HR_OK : hr_status_make((hr_status_code)code, "%s", tf.Message(status));
}
