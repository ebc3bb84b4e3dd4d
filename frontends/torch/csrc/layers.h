// layers.h: helpers of the layers' kernels: optional tensors, memory formats, empty results.
#pragma once

#include "kernels.h"

namespace headrace {

inline bool present(const OptionalTensor &tensor) {
  return tensor.has_value() && tensor->defined();
}

// Statistics of half-precision input are stored in float32.
inline ScalarType statistics_type(const Tensor &input) {
  ScalarType type = input.scalar_type();
  return type == ScalarType::Half || type == ScalarType::BFloat16 ? ScalarType::Float : type;
}

inline at::MemoryFormat format_of(const Tensor &tensor) {
  return tensor.dim() >= 4 ? tensor.suggest_memory_format() : at::MemoryFormat::Contiguous;
}

inline Tensor zeros_if_empty(const Tensor &tensor) {
  if (tensor.defined() && tensor.numel() > 0)
    fill_with(tensor, 0);
  return tensor;
}

// Returns a finished value; a user's out= gets a copy.
inline Tensor give(Result result, const Tensor &value) {
  if (result.is_fresh())
    return value;
  Tensor out = result.begin(value.sizes(), value.scalar_type());
  copy_on_device(value, out);
  return result.end(out);
}

// Combines rows [begin, end) of x, or of the rows listed by the index, times their factors, for each segment (scatter's
// modes). Rows with the index `skipped` are ignored.
Tensor combine_segments(const Tensor &x, const Tensor &begin, const Tensor &end, int64_t mode, const Scalar &start,
                        const Tensor &index = {}, const Tensor &factor = {}, int64_t skipped = -1);

} // namespace headrace
