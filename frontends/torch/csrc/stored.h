// stored.h: tensors for functions that read and write memory themselves: kernels in C, extensions in C++.
#pragma once

#include "record.h"

namespace headrace {

// A tensor whose elements in memory are its values: the tensor itself, or a copy if it is lazily negated or conjugated,
// or has bools of any byte.
Tensor as_stored(const Tensor &tensor);

} // namespace headrace
