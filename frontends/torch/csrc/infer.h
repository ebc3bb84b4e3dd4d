// infer.h: sizes of results by the core's inference (hr_op_infer), for kernels that create their outputs.
#pragma once

#include "record.h"

namespace headrace {

// The sizes of the operation's first output for inputs with these sizes. Raises the core's message if the inputs' sizes
// are incompatible.
inline Dims inferred_sizes(hr_op op, IntArrayRef ints, std::initializer_list<IntArrayRef> inputs) {
  hr_tensor_type types[4] = {}, output = {};
  int count = 0;
  for (IntArrayRef sizes : inputs) {
    hr_tensor_type &type = types[count++];
    type.dtype = HR_DTYPE_F32;
    type.rank = static_cast<int>(std::min<size_t>(sizes.size(), HR_RANK_MAX));
    std::copy_n(sizes.begin(), type.rank, type.dims);
  }
  hr_attrs attrs{static_cast<int>(ints.size()), 0, ints.data(), nullptr};
  check(hr_op_infer(op, &attrs, count, types, 1, &output));
  return Dims(output.dims, output.dims + output.rank);
}

} // namespace headrace
