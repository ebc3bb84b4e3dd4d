// sparse.h: helpers for both kinds of sparse tensors. See sparse.cpp and compressed.cpp.
#pragma once

#include "kernels.h"

namespace headrace {

// self with rows of values added at positions in its first dim, in order.
Tensor add_at(const Tensor &self, const Tensor &places, const Tensor &values);
// Half precision is widened to f32.
Tensor wide(const Tensor &tensor);
// The product of a matrix, its elements by row and column, and a dense one; `count` rows.
Tensor rows_times(const Tensor &rows, const Tensor &columns, const Tensor &values, const Tensor &dense, int64_t count);
// beta self + alpha product; with a beta of 0 self is not read.
Tensor scaled_sum(const Tensor &self, const Tensor &product, const Scalar &beta, const Scalar &alpha);

} // namespace headrace
