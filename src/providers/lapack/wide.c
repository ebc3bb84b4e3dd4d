/* wide.c: small matrices of f32 and c64, computed in double precision.
 *
 * Their results are then right except for the last rounding. This matters if derivatives of factors and of exponentials
 * amplify the errors of single precision. The cost is small: for matrices that stay in L1, calls and copies take most
 * of the time.
 */
#include "core/ops/op.h"
#include "providers/lapack/lapack.h"

enum { SMALL = 32 }; /* rows and columns at most */

static hr_dtype wide_of(hr_dtype dtype) {
  return dtype == HR_DTYPE_F32 ? HR_DTYPE_F64 : dtype == HR_DTYPE_C64 ? HR_DTYPE_C128 : HR_DTYPE_NONE;
}

static bool is_narrow(const hr__tensor *x) {
  return x->data != NULL && wide_of(x->dtype) != HR_DTYPE_NONE;
}

/* Parts of complex ones count. */
static int64_t numbers_of(const hr__tensor *x) {
  return x->count * (hr_dtype_is_complex(x->dtype) ? 2 : 1);
}

static hr__tensor *operand(hr__library_call *call, int i) {
  int inputs = call->node->input_count;
  return i < inputs ? &call->inputs[i] : &call->outputs[i - inputs];
}

bool hr__lapack_is_widened(const hr__library_call *call) {
  const hr__tensor *first = &call->inputs[0];
  bool is_small = is_narrow(first);
  for (int i = 0; i < call->node->input_count; ++i) {
    const hr__tensor *x = &call->inputs[i]; /* those of lower rank are vectors beside the matrices */
    is_small &= x->data == NULL || x->rank < first->rank || (hr__dim(x, 0) <= SMALL && hr__dim(x, 1) <= SMALL);
  }
  return is_small;
}

hr_status hr__lapack_widened(const hr__library_call *call, int64_t items, int64_t item_ns, hr__items_fn fn) {
  hr__library_call wide = *call;
  int inputs = call->node->input_count, count = inputs + call->node->output_count;
  size_t bytes = 0;
  for (int i = 0; i < count; ++i) {
    bytes += is_narrow(operand(&wide, i)) ? (size_t)numbers_of(operand(&wide, i)) * sizeof(double) : 0;
  }
  hr__work work;
  HR_RETURN_IF_ERROR(hr__work_begin(&work, bytes));
  float *narrow[2 * HR__LIBRARY_OPERANDS] = {NULL};
  for (int i = 0; i < count; ++i) {
    hr__tensor *x = operand(&wide, i);
    if (!is_narrow(x)) {
      continue;
    }
    int64_t numbers = numbers_of(x);
    narrow[i] = x->data;
    x->data = hr__work_take(&work, (size_t)numbers * sizeof(double));
    x->dtype = wide_of(x->dtype);
    for (int64_t k = 0; i < inputs && k < numbers; ++k) {
      ((double *)x->data)[k] = (double)narrow[i][k];
    }
  }
  hr_status status = hr__library_spread(&wide, items, item_ns, fn);
  for (int i = inputs; i < count && status == HR_OK; ++i) {
    const hr__tensor *x = operand(&wide, i);
    for (int64_t k = 0; narrow[i] != NULL && k < numbers_of(x); ++k) {
      narrow[i][k] = (float)((const double *)x->data)[k];
    }
  }
  hr__work_end(&work);
  return status;
}
