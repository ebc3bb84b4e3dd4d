// kernels_nn.h: functions called by further rows of map.def: interpolation, samples, windows as columns, bags of
// embeddings, layers of transformers. As in kernels.h, names are ours and arguments are those of the ATen schema that a
// row passes on.
#pragma once

#include "kernels.h"

namespace headrace {

// ---- resample.cpp: kinds are 0 nearest, 1 nearest exact, 2 linear, 3 cubic, and antialiased 4 linear, 5 cubic, 6
// Lanczos
using Scales = std::initializer_list<std::optional<double>>; // one for each dim of the plane
Tensor resample(Result result, int64_t kind, const Tensor &self, IntArrayRef size, bool aligns_corners,
                const Scales &scales);
Tensor resample_backward(Result result, int64_t kind, const Tensor &grad, IntArrayRef input_size, bool aligns_corners,
                         const Scales &scales);
Tensor upsample_nearest_exact(Result result, const Tensor &self, IntArrayRef size, std::optional<double> scale_h,
                              std::optional<double> scale_w);
Tensor upsample_bilinear(Result result, const Tensor &self, IntArrayRef size, bool aligns_corners,
                         std::optional<double> scale_h, std::optional<double> scale_w);
Tensor grid_sample(const Tensor &input, const Tensor &grid, int64_t n, int64_t mode, int64_t padding,
                   bool aligns_corners);
Tensor2 grid_sample_backward(const Tensor &grad, const Tensor &input, const Tensor &grid, int64_t n, int64_t mode,
                             int64_t padding, bool aligns_corners, std::array<bool, 2> mask);
Tensor im2col(Result result, const Tensor &self, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
              IntArrayRef stride);
Tensor col2im(Result result, const Tensor &self, IntArrayRef size, IntArrayRef kernel, IntArrayRef dilation,
              IntArrayRef padding, IntArrayRef stride);

// ---- embedding.cpp: modes are 0 sum, 1 mean, 2 max; results are the bags, the bag of each index, their sizes, the
// indices of maxima
Tensor4 embedding_bag(const Tensor &weight, const Tensor &indices, const Tensor &offsets, int64_t mode,
                      const OptionalTensor &per_sample_weights, bool include_last_offset, int64_t padding_index);
Tensor embedding_bag_backward(const Tensor &grad, const Tensor &indices, const Tensor &bags, const Tensor &sizes,
                              const Tensor &best, int64_t rows, bool by_frequency, int64_t mode,
                              const OptionalTensor &per_sample_weights, int64_t padding_index);
Tensor embedding_bag_sparse_backward(const Tensor &grad, const Tensor &indices, const Tensor &bags, const Tensor &sizes,
                                     const Tensor &best, int64_t rows, bool by_frequency, int64_t mode, bool sparse,
                                     const OptionalTensor &per_sample_weights, int64_t padding_index);
Tensor embedding_bag_factors_backward(const Tensor &grad, const Tensor &weight, const Tensor &indices,
                                      const Tensor &bags, int64_t mode, int64_t padding_index);

// ---- transformer.cpp
Tensor3 split_heads(const Tensor &qkv, const Tensor &bias, int64_t heads);
Tensor2 multi_head_attention(const Tensor &query, const Tensor &key, const Tensor &value, int64_t dim, int64_t heads,
                             const Tensor &qkv_weight, const Tensor &qkv_bias, const Tensor &out_weight,
                             const Tensor &out_bias, const OptionalTensor &mask, bool want_weights, bool average,
                             std::optional<int64_t> mask_type);
Tensor encoder_layer(const Tensor &src, int64_t dim, int64_t heads, const Tensor &qkv_weight, const Tensor &qkv_bias,
                     const Tensor &out_weight, const Tensor &out_bias, bool use_gelu, bool norm_first, double eps,
                     const Tensor &norm_weight_1, const Tensor &norm_bias_1, const Tensor &norm_weight_2,
                     const Tensor &norm_bias_2, const Tensor &weight_1, const Tensor &bias_1, const Tensor &weight_2,
                     const Tensor &bias_2, const OptionalTensor &mask, std::optional<int64_t> mask_type);
Tensor2 batch_norm_statistics(const Tensor &input, const OptionalTensor &running_mean,
                              const OptionalTensor &running_var, double momentum);
Tensor4 batch_norm_with_update(Result y, Result mean, Result invstd, Result scratch, const Tensor &input,
                               const OptionalTensor &weight, const OptionalTensor &bias, const Tensor &running_mean,
                               const Tensor &running_var, double momentum, double eps);
Tensor named_convolution(Result result, const Tensor &input, const Tensor &weight, const OptionalTensor &bias,
                         IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
                         IntArrayRef output_padding);
Tensor3 named_convolution_backward(const Tensor &grad, const Tensor &input, const Tensor &weight, IntArrayRef stride,
                                   IntArrayRef padding, std::array<bool, 3> mask);
Tensor channel_shuffle(const Tensor &self, int64_t groups);
Tensor pixel_shuffle(const Tensor &self, int64_t factor);
Tensor pixel_unshuffle(const Tensor &self, int64_t factor);
void fused_adagrad(TensorList params, TensorList grads, TensorList sums, TensorList steps, const Operand &lr,
                   double lr_decay, double weight_decay, double eps, bool maximize, const OptionalTensor &grad_scale,
                   const OptionalTensor &found_inf);

// ---- sync_batch_norm.cpp
Tensor2 batch_norm_stats(const Tensor &input, double eps);
Tensor batch_norm_elements(Result result, const Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias,
                           const Tensor &mean, const Tensor &invstd);
Tensor2 batch_norm_gather(const Tensor &mean, const Tensor &invstd, const OptionalTensor &running_mean,
                          const OptionalTensor &running_var, double momentum, double eps, const Tensor &counts);
Tensor2 batch_norm_gather_equal(const Tensor &mean, const Tensor &invstd, const OptionalTensor &running_mean,
                                const OptionalTensor &running_var, double momentum, double eps, int64_t count);
Tensor4 batch_norm_backward_sums(const Tensor &grad, const Tensor &input, const Tensor &mean, const Tensor &invstd,
                                 const OptionalTensor &weight, bool wants_input, bool wants_weight, bool wants_bias);
Tensor batch_norm_backward_elements(const Tensor &grad, const Tensor &input, const Tensor &mean, const Tensor &invstd,
                                    const OptionalTensor &weight, const Tensor &sum, const Tensor &moment,
                                    const Tensor &counts);

// ---- pointwise.cpp: operations that torch has only for some kinds of numbers
enum class Kinds {
  Bits,  // integers and booleans
  Whole, // integers
  Real   // all but complex numbers
};
void check_kinds(Kinds kinds, const Operand *operands, int count); // throws, also without elements
template <class... T> Tensor pointwise_of(Kinds kinds, Result result, hr_op op, const T &...operands) {
  const Operand array[] = {Operand(operands)...};
  check_kinds(kinds, array, sizeof...(T));
  return pointwise_record(result, op, Rule::Same, array, sizeof...(T));
}
Tensor ldexp(Result result, const Tensor &self, const Tensor &other);
Tensor threshold(Result result, const Tensor &self, const Scalar &threshold, const Scalar &value);

} // namespace headrace
