// sparse.h: what both kinds of sparse tensors are computed with. See sparse.cpp and compressed.cpp.
#pragma once

#include "kernels.h"

namespace headrace {

// self, with rows of values added at places in its first dim, in their order.
Tensor add_at(const Tensor &self, const Tensor &places, const Tensor &values);
// Half precision as f32.
Tensor wide(const Tensor &tensor);
// The product of a matrix, its elements by row and column, and a dense one; `count` rows.
Tensor rows_times(const Tensor &rows, const Tensor &columns, const Tensor &values, const Tensor &dense, int64_t count);
// beta self + alpha product; a beta of 0 does not look at self.
Tensor scaled_sum(const Tensor &self, const Tensor &product, const Scalar &beta, const Scalar &alpha);

} // namespace headrace
