/* wide_images.c: see wide_images.h. The numbers of a convolution's node: spatial dims, then steps, padding and
 * dilations of each, groups. */
#include "providers/wide_images.h"

#include "core/ir/dtype.h"

hr__images hr__images_of(const hr_operand *x) {
  return (hr__images){.offset = x->offset,
                      .image_stride = x->strides[0],
                      .channel_stride = x->strides[1],
                      .row_stride = x->strides[2],
                      .column_stride = x->strides[3],
                      .channels = x->dims[1],
                      .height = x->dims[2],
                      .width = x->dims[3]};
}

hr__windows hr__windows_of(const hr_node *node) {
  const hr_operand *w = &node->inputs[1];
  const int64_t *padding = node->ints + 3;
  bool is_gradient = node->op == HR_OP_CONV_BACKWARD_DATA;
  hr__windows windows = {.offset = w->offset,
                         .out_stride = w->strides[is_gradient ? 1 : 0],
                         .in_stride = w->strides[is_gradient ? 0 : 1],
                         .row_stride = w->strides[2],
                         .column_stride = w->strides[3]};
  for (int d = 0; d < 2; ++d) {
    windows.kernel[d] = w->dims[2 + d];
    windows.padding[d] = is_gradient ? windows.kernel[d] - 1 - padding[d] : padding[d];
  }
  if (is_gradient) {
    windows.offset += (windows.kernel[0] - 1) * windows.row_stride + (windows.kernel[1] - 1) * windows.column_stride;
    windows.row_stride = -windows.row_stride, windows.column_stride = -windows.column_stride;
  }
  return windows;
}

static bool is_taken(const hr_operand *x) {
  bool is = x->kind == HR_OPERAND_VALUE && x->dtype == HR_DTYPE_F32 && x->rank == 4;
  for (int d = 0; is && d < x->rank; ++d) {
    is = x->dims[d] > 0;
  }
  return is;
}

bool hr__images_are_supported(const hr_node *node) {
  const int64_t *ints = node->ints;
  return node->int_count >= 8 && ints[0] == 2 && ints[5] == 1 && ints[6] == 1 && ints[7] == 1 &&
         is_taken(&node->inputs[0]) && is_taken(&node->inputs[1]) && is_taken(&node->outputs[0]);
}

bool hr__scale_find(const hr_node *node, int *out_arg) {
  *out_arg = -1;
  if (node->epilogue_count == 0) {
    return true;
  }
  const hr_epilogue *epilogue = &node->epilogues[0];
  if (node->epilogue_count > 1 || epilogue->op != HR_OP_MUL) {
    return false;
  }
  int number = epilogue->inputs[epilogue->inputs[0] == HR_EPILOGUE_VALUE];
  bool is_number =
      number >= 0 && node->inputs[number].kind == HR_OPERAND_SCALAR && node->inputs[number].dtype != HR_DTYPE_C128;
  *out_arg = is_number ? number : -1;
  return is_number;
}

float hr__scale_of(void *const *args, int arg) {
  return arg < 0 ? 1 : hr_scalar_as_f32(args[arg]);
}

bool hr__windows_are_supported(const hr_node *node) {
  return (node->op == HR_OP_CONV || node->op == HR_OP_CONV_BACKWARD_DATA) && hr__images_are_supported(node) &&
         node->ints[1] == 1 && node->ints[2] == 1;
}
