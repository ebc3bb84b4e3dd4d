/* onnx_integer.h: sizes and places that are numbers, or integers that the host computes from symbols. */
#ifndef HEADRACE_IMPORTERS_ONNX_ONNX_INTEGER_H_
#define HEADRACE_IMPORTERS_ONNX_ONNX_INTEGER_H_

#include "importers/onnx/onnx_importer.h"

typedef struct hr__integer {
  int64_t number;
  hr_value value; /* 0: the number */
} hr__integer;

static inline hr__integer hr__integer_of(int64_t number) {
  return (hr__integer){number, 0};
}
/* The size of a dim. */
hr__integer hr__integer_dim(hr__onnx_node *node, hr_value x, int dim);
/* Element `index` of a value of one dim, or the value itself, if it has none. Fails if there is no such element. */
hr__integer hr__integer_element(hr__onnx_node *node, hr_value value, int index);

/* function: ADD, SUBTRACT, MULTIPLY, FLOOR_DIVIDE, MINIMUM, MAXIMUM. */
hr__integer hr__integer_apply(hr__onnx_node *node, hr_functional function, hr__integer a, hr__integer b);
#define INTEGER(node, NAME, a, b) hr__integer_apply(node, HR_FUNCTIONAL_##NAME, a, b)
/* `a` if x < 0, else b. */
hr__integer hr__integer_if_negative(hr__onnx_node *node, hr__integer x, hr__integer a, hr__integer b);

/* An attribute of integers. values and numbers: room for `count` elements, which live as long as the attribute. */
hr_graph_attribute hr__with_integers(const char *name, int count, const hr__integer *integers, int64_t *numbers,
                                     hr_value *values);
/* 0, 1, ... count - 1 along an axis of a value with `rank` dims. */
hr_value hr__integer_steps(hr__onnx_node *node, hr__integer count, hr_dtype dtype, int axis, int rank);
/* x with these dims. */
hr_value hr__integer_reshape(hr__onnx_node *node, hr_value x, int rank, const hr__integer *dims);
/* Elements begin, begin + step, ... of an axis, `count` of them. */
hr_value hr__integer_slice(hr__onnx_node *node, hr_value x, int axis, hr__integer begin, hr__integer count,
                           int64_t step);

#endif
