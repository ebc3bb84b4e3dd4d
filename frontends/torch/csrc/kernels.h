// kernels.h: the functions called by rows of map.def. Names are ours; arguments are those of the ATen schema that a row
// passes on. A function with a Result serves the functional, in-place and out= form.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/List.h>
#include <c10/core/Storage.h>

#include <string_view>
#include <tuple>

#include "record.h"

namespace headrace {

using Tensor2 = std::tuple<Tensor, Tensor>;
using Tensor3 = std::tuple<Tensor, Tensor, Tensor>;
using Tensor4 = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using Tensor5 = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
using OptionalGenerator = std::optional<at::Generator>;
using IndexList = c10::List<std::optional<Tensor>>;

// ---- pointwise.cpp
Tensor add(Result result, const Tensor &self, const Tensor &other, const Scalar &alpha);
Tensor sub(Result result, const Tensor &self, const Tensor &other, const Scalar &alpha);
Tensor div_mode(Result result, const Tensor &self, const Tensor &other, std::optional<std::string_view> mode);
Tensor addcdiv(Result result, const Tensor &self, const Tensor &tensor1, const Tensor &tensor2, const Scalar &value);
Tensor pow_scalar(Result result, const Tensor &self, const Scalar &exponent);
Tensor pow_of_number(Result result, const Scalar &self, const Tensor &exponent);
Tensor neg(Result result, const Tensor &self);
Tensor abs(Result result, const Tensor &self);
Tensor relu(Result result, const Tensor &self);
Tensor hardtanh(Result result, const Tensor &self, const Scalar &min, const Scalar &max);
Tensor lerp(Result result, const Tensor &self, const Tensor &end, const Operand &weight);
Tensor isnan(Result result, const Tensor &self);
Tensor sgn(Result result, const Tensor &self);
Tensor bitwise_not(Result result, const Tensor &self);
Tensor gelu(Result result, const Tensor &self, std::string_view approximate);
Tensor gelu_backward(Result result, const Tensor &grad, const Tensor &self, std::string_view approximate);
Tensor softshrink(Result result, const Tensor &self, const Scalar &lambda);
Tensor sigmoid_backward(Result result, const Tensor &grad, const Tensor &output);
Tensor tanh_backward(Result result, const Tensor &grad, const Tensor &output);
Tensor elu_backward(Result result, const Tensor &grad, const Scalar &alpha, const Scalar &scale,
                    const Scalar &input_scale, bool is_result, const Tensor &x);
Tensor clamp(Result result, const Tensor &self, const std::optional<Scalar> &min, const std::optional<Scalar> &max);
Tensor clamp(Result result, const Tensor &self, const OptionalTensor &min, const OptionalTensor &max);
Tensor where(Result result, const Tensor &condition, const Tensor &self, const Tensor &other);
Tensor masked_fill(Result result, const Tensor &self, const Tensor &mask, const Scalar &value);
Tensor masked_fill(Result result, const Tensor &self, const Tensor &mask, const Tensor &value);
Tensor fill_tensor(const Tensor &self, const Tensor &value);

// ---- foreach.cpp
std::vector<Tensor> foreach_add(ListResult result, TensorList self, TensorList other, const Scalar &alpha);
std::vector<Tensor> foreach_add(ListResult result, TensorList self, const Tensor &other, const Scalar &alpha);
std::vector<Tensor> foreach_sub(ListResult result, TensorList self, TensorList other, const Scalar &alpha);
std::vector<Tensor> foreach_pow(ListResult result, TensorList self, const Scalar &exponent);
std::vector<Tensor> foreach_norm(TensorList self, const Scalar &ord, std::optional<ScalarType> dtype);
std::vector<Scalar> numbers_of(const Tensor &cpu_numbers);
void foreach_zero(TensorList self);
void foreach_copy(TensorList self, TensorList from);
void amp_unscale(TensorList scaled_grads, const Tensor &found_inf, const Tensor &inv_scale);
Tensor amp_update_scale(const Tensor &scale, const Tensor &growth_tracker, const Tensor &found_inf, double growth,
                        double backoff, int64_t interval);
void fused_adam(bool decoupled, TensorList params, TensorList grads, TensorList means, TensorList squares,
                TensorList max_squares, TensorList steps, const Operand &lr, double beta1, double beta2,
                double weight_decay, double eps, bool amsgrad, bool maximize, const OptionalTensor &grad_scale,
                const OptionalTensor &found_inf);
void fused_sgd(TensorList params, TensorList grads, TensorList momenta, double weight_decay, double momentum,
               const Operand &lr, double dampening, bool nesterov, bool maximize, bool is_first,
               const OptionalTensor &grad_scale, const OptionalTensor &found_inf);

// ---- reduce.cpp: reductions and products
Tensor sum(Result result, const Tensor &self, OptionalIntArrayRef dims, bool keepdim, std::optional<ScalarType> dtype);
Tensor mean(Result result, const Tensor &self, OptionalIntArrayRef dims, bool keepdim, std::optional<ScalarType> dtype);
Tensor prod(Result result, const Tensor &self, OptionalIntArrayRef dims, bool keepdim, std::optional<ScalarType> dtype);
Tensor extreme(Result result, hr_op op, const Tensor &self, OptionalIntArrayRef dims, bool keepdim);
Tensor2 extreme_dim(Result values, Result indices, hr_op op, hr_op arg_op, const Tensor &self, int64_t dim,
                    bool keepdim);
Tensor2 aminmax(Result min, Result max, const Tensor &self, std::optional<int64_t> dim, bool keepdim);
Tensor arg_extreme(Result result, hr_op op, const Tensor &self, std::optional<int64_t> dim, bool keepdim);
Tensor truth(Result result, hr_op op, const Tensor &self, OptionalIntArrayRef dims, bool keepdim);
Tensor variance(Result result, const Tensor &self, OptionalIntArrayRef dims, const std::optional<Scalar> &correction,
                bool keepdim, bool root);
Tensor2 variance_mean(const Tensor &self, OptionalIntArrayRef dims, const std::optional<Scalar> &correction,
                      bool keepdim, bool root);
Tensor norm(Result result, const Tensor &self, const std::optional<Scalar> &p, OptionalIntArrayRef dims, bool keepdim,
            std::optional<ScalarType> dtype);
Tensor logsumexp(Result result, const Tensor &self, IntArrayRef dims, bool keepdim);
ScalarType scan_type(const Result &result, const Tensor &self, std::optional<ScalarType> dtype); // of a running sum
Tensor cumsum(Result result, const Tensor &self, int64_t dim, std::optional<ScalarType> dtype);
bool equal(const Tensor &self, const Tensor &other);
Tensor matmul(Result result, int64_t rank, const Tensor &a, const Tensor &b);
Tensor addmm(Result result, int64_t rank, const Tensor &self, const Tensor &a, const Tensor &b, const Scalar &beta,
             const Scalar &alpha);
Tensor scaled_mm(Result result, const Tensor &a, const Tensor &b, const Tensor &scale_a, const Tensor &scale_b,
                 const OptionalTensor &bias, std::optional<ScalarType> type);
Tensor scaled_mm(Result result, const Tensor &a, const Tensor &b, const at::ITensorListRef &scales_a,
                 IntArrayRef recipe_a, IntArrayRef swizzle_a, const at::ITensorListRef &scales_b, IntArrayRef recipe_b,
                 IntArrayRef swizzle_b, const OptionalTensor &bias, std::optional<ScalarType> type);
Tensor addmv(Result result, const Tensor &self, const Tensor &matrix, const Tensor &vector, const Scalar &beta,
             const Scalar &alpha);
Tensor dot(const Tensor &a, const Tensor &b);
Tensor softmax(Result result, hr_op op, const Tensor &self, int64_t dim, bool half_to_float);
Tensor softmax_backward(Result result, hr_op op, const Tensor &grad, const Tensor &output, int64_t dim,
                        ScalarType input_type);

// ---- order.cpp: sorting and selection
Tensor2 sort(Result values, Result indices, const Tensor &self, int64_t dim, bool descending);
Tensor2 topk(Result values, Result indices, const Tensor &self, int64_t k, int64_t dim, bool largest);
Tensor2 kthvalue(Result values, Result indices, const Tensor &self, int64_t k, int64_t dim, bool keepdim);
Tensor2 median_dim(Result values, Result indices, const Tensor &self, int64_t dim, bool keepdim, bool ignores_nan);
Tensor median(const Tensor &self, bool ignores_nan);
Tensor2 mode_dim(Result values, Result indices, const Tensor &self, int64_t dim, bool keepdim);
void cumulate(hr_op op, const Tensor &self, const Tensor &values, const Tensor &indices, int64_t dim);
Tensor search_sorted(Result result, const Tensor &boundaries, const Tensor &self, bool out_int32, bool right,
                     std::optional<std::string_view> side, const OptionalTensor &sorter);
Tensor search_sorted(Result result, const Tensor &boundaries, const Scalar &self, bool out_int32, bool right,
                     std::optional<std::string_view> side, const OptionalTensor &sorter);
Tensor2 unique_values(const Tensor &self, bool return_inverse);
Tensor3 unique_values(const Tensor &self, bool consecutive, bool return_inverse, bool return_counts);
Tensor3 unique_rows(const Tensor &self, int64_t dim, bool consecutive, bool return_inverse, bool return_counts);
Tensor3 unique_consecutive(const Tensor &self, bool return_inverse, bool return_counts, std::optional<int64_t> dim);

// ---- fft.cpp
Tensor fft_c2c(Result result, const Tensor &self, IntArrayRef dims, int64_t normalization, bool forward);
Tensor fft_r2c(Result result, const Tensor &self, IntArrayRef dims, int64_t normalization, bool onesided);
Tensor fft_c2r(Result result, const Tensor &self, IntArrayRef dims, int64_t normalization, int64_t last_size);

// ---- linalg.cpp
void cholesky_ex(Result factor, Result info, const Tensor &a, bool upper, bool check_errors);
Tensor cholesky(Result result, const Tensor &a, bool upper);
Tensor cholesky_inverse(Result result, const Tensor &factor, bool upper);
Tensor cholesky_solve(const Tensor &b, const Tensor &factor, bool upper);
void inv_ex(Result inverse, Result info, const Tensor &a, bool check_errors);
void det(Result result, Result lu, Result pivots, const Tensor &a);
void slogdet(Result sign, Result logarithm, Result lu, Result pivots, const Tensor &a);
void solve_ex(Result result, Result lu, Result pivots, Result info, const Tensor &a, const Tensor &b, bool left,
              bool check_errors);
void lu_factor_ex(Result lu, Result pivots, Result info, const Tensor &a, bool pivot, bool check_errors);
void lu(Result p, Result l, Result u, const Tensor &a, bool pivot);
void lu_solve(Result result, const Tensor &lu, const Tensor &pivots, const Tensor &b, bool left, bool adjoint);
void lu_unpack(Result p, Result l, Result u, const Tensor &lu, const Tensor &pivots, bool unpack_data,
               bool unpack_pivots);
void qr(Result q, Result r, const Tensor &a, std::string_view mode);
Tensor2 geqrf(Result a_out, Result tau, const Tensor &a);
Tensor householder_product(Result result, const Tensor &a, const Tensor &tau);
Tensor ormqr(Result result, const Tensor &a, const Tensor &tau, const Tensor &c, bool left, bool transpose);
void svd(Result u, Result s, Result vh, const Tensor &a, bool full, bool has_vectors,
         std::optional<std::string_view> driver);
void eigh(Result values, Result vectors, const Tensor &a, std::string_view uplo, bool has_vectors);
Tensor2 eig(Result values, Result vectors, const Tensor &a);
Tensor eigvals(Result values, const Tensor &a);
void lstsq(Result solution, Result residuals, Result rank, Result singular_values, const Tensor &a, const Tensor &b,
           std::optional<double> rcond, std::optional<std::string_view> driver);
void ldl_factor_ex(Result ld, Result pivots, Result info, const Tensor &a, bool hermitian, bool check_errors);
void ldl_solve(Result result, const Tensor &ld, const Tensor &pivots, const Tensor &b, bool hermitian);
Tensor solve_triangular(Result result, const Tensor &a, const Tensor &b, bool upper, bool left, bool unit);
void triangular_solve(Result x, Result a_copy, const Tensor &b, const Tensor &a, bool upper, bool transpose, bool unit);
Tensor matrix_exp(const Tensor &a);
void cross(Result result, const Tensor &a, const Tensor &b, int64_t dim);
Tensor addr(Result result, const Tensor &self, const Tensor &vec1, const Tensor &vec2, const Scalar &beta,
            const Scalar &alpha);
Tensor addbmm(Result result, const Tensor &self, const Tensor &batch1, const Tensor &batch2, const Scalar &beta,
              const Scalar &alpha);
Tensor vdot(const Tensor &a, const Tensor &b);

// ---- index.cpp: index maps, scatters, fills, random numbers
Tensor cat(Result result, const at::ITensorListRef &tensors, int64_t dim);
Tensor constant_pad(const Tensor &self, IntArrayRef pad, const Scalar &value);
Tensor flip(const Tensor &self, IntArrayRef dims);
Tensor tri(Result result, const Tensor &self, int64_t diagonal, int64_t upper);
Tensor index_select(Result result, const Tensor &self, int64_t dim, const Tensor &index);
Tensor gather(Result result, const Tensor &self, int64_t dim, const Tensor &index);
int64_t scatter_mode(std::string_view reduce, bool include_self);
Tensor scatter(Result result, const Tensor &self, int64_t dim, const Tensor &index, const Operand &source, int64_t mode,
               bool is_index_error = false);
Tensor index(Result result, const Tensor &self, const IndexList &indices);
Tensor index_put(const Tensor &self, const IndexList &indices, const Tensor &values, bool accumulate);
Tensor index_add(Result result, const Tensor &self, int64_t dim, const Tensor &index, const Tensor &source,
                 const Scalar &alpha);
Tensor embedding(const Tensor &weight, const Tensor &indices, int64_t padding_index, bool scale_by_frequency,
                 bool sparse);
Tensor embedding_backward(const Tensor &grad, const Tensor &indices, int64_t count, int64_t padding_index,
                          bool scale_by_frequency);
Tensor arange(Result result, ScalarType type, const Scalar &start, const Scalar &end, const Scalar &step);
Tensor eye(Result result, int64_t rows, int64_t columns);
Tensor uniform(const Tensor &self, double from, double to, const OptionalGenerator &generator);
Tensor normal(const Tensor &self, double mean, double deviation, const OptionalGenerator &generator);
Tensor normal_like(Result result, const Operand &mean, const Operand &deviation, const OptionalGenerator &generator);
Tensor bernoulli(const Tensor &self, const Operand &p, const OptionalGenerator &generator);
Tensor bernoulli_like(Result result, const Tensor &p, const OptionalGenerator &generator);
Tensor exponential(const Tensor &self, double lambda, const OptionalGenerator &generator);
Tensor random(const Tensor &self, std::optional<int64_t> from, std::optional<int64_t> to,
              const OptionalGenerator &generator);
Tensor2 dropout(const Tensor &self, double p, std::optional<bool> train);
Tensor dropout_backward(const Tensor &grad, const Tensor &mask, double scale);

// ---- special.cpp
double largest_of(ScalarType type); // the largest number of a floating point type, or of a complex number's parts
Tensor angle(Result result, const Tensor &self);
Tensor complex_of(Result result, hr_op op, const Tensor &a, const Tensor &b);
Tensor round_decimals(Result result, const Tensor &self, int64_t decimals);
Tensor nextafter(Result result, const Tensor &self, const Tensor &other);
Tensor heaviside(Result result, const Tensor &self, const Tensor &values);
Tensor nan_to_num(Result result, const Tensor &self, std::optional<double> nan, std::optional<double> most,
                  std::optional<double> least);
Tensor logit(Result result, const Tensor &self, std::optional<double> eps);
Tensor logit_backward(Result result, const Tensor &grad, const Tensor &self, std::optional<double> eps);
Tensor2 frexp(Result mantissa, Result exponent, const Tensor &self);
Tensor polygamma(Result result, int64_t n, const Tensor &self);
Tensor mvlgamma(Result result, const Tensor &self, int64_t p);
Tensor narrow_copy(Result result, const Tensor &self, int64_t dim, int64_t start, int64_t length);
Tensor efficient_zeros(IntArrayRef size, std::optional<ScalarType> dtype, std::optional<at::Device> device);

// ---- compressed.cpp: sparse tensors, except the kernels registered there
Tensor coo_to_csr(Result result, const Tensor &rows, int64_t count, bool out_int32);
Tensor csr_to_coo(Result result, const Tensor &starts, const Tensor &columns, bool out_int32, bool transpose);
void validate_compressed(bool is_rows, const Tensor &starts, const Tensor &columns, int64_t compressed_dim, int64_t dim,
                         int64_t count);

// ---- scan.cpp
Tensor cumprod(Result result, const Tensor &self, int64_t dim, std::optional<ScalarType> dtype);
Tensor logcumsumexp(Result result, const Tensor &self, int64_t dim);
Tensor trace(const Tensor &self);
Tensor nansum(Result result, const Tensor &self, OptionalIntArrayRef dims, bool keepdim,
              std::optional<ScalarType> dtype);
Tensor count_nonzero(const Tensor &self, IntArrayRef dims);
Tensor cdist_forward(const Tensor &a, const Tensor &b, double p);
Tensor cdist_backward(const Tensor &grad, const Tensor &a, const Tensor &b, double p, const Tensor &distance);
Tensor pdist_forward(const Tensor &self, double p);
Tensor pdist_backward(const Tensor &grad, const Tensor &self, double p, const Tensor &distance);

// ---- select.cpp
Tensor nonzero(const Tensor &self);
Tensor nonzero_out(const Tensor &self, const Tensor &out);
Tensor nonzero_static(Result result, const Tensor &self, int64_t size, int64_t fill);
Tensor masked_select(Result result, const Tensor &self, const Tensor &mask);
Tensor masked_scatter(const Tensor &self, const Tensor &mask, const Tensor &source);
Tensor take(Result result, const Tensor &self, const Tensor &index);
Tensor put(const Tensor &self, const Tensor &places, const Tensor &source, bool accumulate);
Tensor index_copy(Result result, const Tensor &self, int64_t dim, const Tensor &index, const Tensor &source);
Tensor index_fill(const Tensor &self, int64_t dim, const Tensor &index, const Scalar &value);
Tensor index_fill_tensor(const Tensor &self, int64_t dim, const Tensor &index, const Tensor &value);
Tensor scatter_reduce(Result result, const Tensor &self, int64_t dim, const Tensor &index, const Tensor &source,
                      std::string_view reduce, bool include_self);
Tensor index_reduce(Result result, const Tensor &self, int64_t dim, const Tensor &index, const Tensor &source,
                    std::string_view reduce, bool include_self);
Tensor isin(Result result, const Tensor &elements, const Tensor &among, bool invert);
Tensor isin(Result result, const Tensor &elements, const Scalar &among, bool invert);
Tensor isin(Result result, const Scalar &element, const Tensor &among, bool invert);
Tensor bincount(const Tensor &self, const OptionalTensor &weights, int64_t least);
Tensor repeat_interleave(const Tensor &repeats, std::optional<int64_t> size);
Tensor triangle_indices(int64_t rows, int64_t columns, int64_t offset, bool upper, std::optional<ScalarType> dtype,
                        std::optional<at::Layout> layout);
Tensor roll(const Tensor &self, IntArrayRef shifts, IntArrayRef dims);
Tensor unfold_backward(const Tensor &grad, IntArrayRef sizes, int64_t dim, int64_t size, int64_t step);
Tensor linspace(Result result, const Scalar &start, const Scalar &end, int64_t steps);
Tensor logspace(Result result, const Scalar &start, const Scalar &end, int64_t steps, double base);
Tensor range(Result result, const Scalar &start, const Scalar &end, const Scalar &step);

// ---- sample.cpp
Tensor cauchy(const Tensor &self, double median, double sigma, const OptionalGenerator &generator);
Tensor log_normal(const Tensor &self, double mean, double deviation, const OptionalGenerator &generator);
Tensor geometric(const Tensor &self, double p, const OptionalGenerator &generator);
Tensor poisson(const Tensor &rate, const OptionalGenerator &generator);
Tensor binomial(const Tensor &count, const Tensor &p, const OptionalGenerator &generator);
Tensor standard_gamma(const Tensor &alpha, const OptionalGenerator &generator);
Tensor dirichlet(const Tensor &alpha, const OptionalGenerator &generator);
Tensor multinomial(Result result, const Tensor &self, int64_t count, bool replacement,
                   const OptionalGenerator &generator);
Tensor randperm(Result result, int64_t n, const OptionalGenerator &generator);
Tensor histc(Result result, const Tensor &self, int64_t bins, const Scalar &min, const Scalar &max);
std::vector<Tensor> histogramdd_edges(const Tensor &self, IntArrayRef bins, at::OptionalArrayRef<double> range,
                                      const OptionalTensor &weight);
Tensor histogramdd(const Tensor &self, IntArrayRef bins, at::OptionalArrayRef<double> range,
                   const OptionalTensor &weight, bool density);
Tensor histogramdd(const Tensor &self, TensorList bins, const OptionalTensor &weight, bool density);
Tensor2 histogram(Result hist, Result edges, const Tensor &self, int64_t bins, at::OptionalArrayRef<double> range,
                  const OptionalTensor &weight, bool density);
Tensor2 histogram(Result hist, Result edges, const Tensor &self, const Tensor &bins, const OptionalTensor &weight,
                  bool density);

// ---- segment.cpp
Tensor segment_reduce(const Tensor &data, std::string_view reduce, const OptionalTensor &lengths,
                      const OptionalTensor &indices, const OptionalTensor &offsets, int64_t dim, bool unsafe,
                      const std::optional<Scalar> &initial);
Tensor segment_reduce_backward(const Tensor &grad, const Tensor &output, const Tensor &data, std::string_view reduce,
                               const OptionalTensor &lengths, const OptionalTensor &offsets, int64_t dim,
                               const std::optional<Scalar> &initial);
// ---- jagged.cpp
Tensor jagged_to_padded(const Tensor &values, TensorList offsets, IntArrayRef max_lengths, double padding);
Tensor padded_to_jagged(const Tensor &dense, TensorList offsets, std::optional<int64_t> total);

// ---- quantize.cpp
Tensor int_mm(Result result, const Tensor &self, const Tensor &mat2);
Tensor2 fake_quantize(const Tensor &self, double scale, int64_t zero_point, int64_t low, int64_t high);
Tensor2 fake_quantize(const Tensor &self, const Tensor &scale, const Tensor &zero_point, const Tensor &enabled,
                      int64_t low, int64_t high);
Tensor2 fake_quantize_channels(const Tensor &self, const Tensor &scale, const Tensor &zero_point, int64_t axis,
                               int64_t low, int64_t high);
Tensor learned_quantize(const Tensor &self, const Tensor &scale, const Tensor &zero_point, int64_t low, int64_t high);
Tensor3 learned_quantize_backward(const Tensor &grad, const Tensor &self, const Tensor &scale, const Tensor &zero_point,
                                  int64_t low, int64_t high, double factor);
Tensor learned_quantize_channels(const Tensor &self, const Tensor &scale, const Tensor &zero_point, int64_t axis,
                                 int64_t low, int64_t high);
Tensor3 learned_quantize_channels_backward(const Tensor &grad, const Tensor &self, const Tensor &scale,
                                           const Tensor &zero_point, int64_t axis, int64_t low, int64_t high,
                                           double factor);
/* state: smallest and largest number so far, scale, zero point. They are updated. */
Tensor2 observe_and_fake_quantize(const Tensor &self, const Tensor &observer_on, const Tensor &fake_quant_on,
                                  TensorList state, double averaging, int64_t low, int64_t high, int64_t axis,
                                  bool by_rows, bool is_symmetric);

Tensor hash_tensor(Result result, const Tensor &self, IntArrayRef dims, bool keepdim, int64_t mode);

// ---- nn.cpp: layers, losses, windows, cells, attention
Tensor convolution(const Tensor &input, const Tensor &weight, const OptionalTensor &bias, IntArrayRef stride,
                   IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                   int64_t groups);
Tensor3 convolution_backward(const Tensor &grad, const Tensor &input, const Tensor &weight, IntArrayRef stride,
                             IntArrayRef padding, IntArrayRef dilation, bool transposed, int64_t groups,
                             std::array<bool, 3> mask);
Tensor3 batch_norm(Result y, Result mean, Result invstd, const Tensor &input, const OptionalTensor &weight,
                   const OptionalTensor &bias, const OptionalTensor &running_mean, const OptionalTensor &running_var,
                   bool training, double momentum, double eps);
Tensor3 batch_norm_backward(const Tensor &grad, const Tensor &input, const OptionalTensor &weight,
                            const OptionalTensor &running_mean, const OptionalTensor &running_var,
                            const OptionalTensor &mean, const OptionalTensor &invstd, bool training, double eps,
                            std::array<bool, 3> mask);
Tensor layer_norm_alone(const Tensor &input, IntArrayRef shape, const OptionalTensor &weight,
                        const OptionalTensor &bias, double eps); // without statistics
Tensor3 layer_norm(const Tensor &input, IntArrayRef shape, const OptionalTensor &weight, const OptionalTensor &bias,
                   double eps);
Tensor3 layer_norm_backward(const Tensor &grad, const Tensor &input, IntArrayRef shape, const Tensor &mean,
                            const Tensor &rstd, const OptionalTensor &weight, const OptionalTensor &bias,
                            std::array<bool, 3> mask);
Tensor3 group_norm(const Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias, int64_t n, int64_t c,
                   int64_t hw, int64_t groups, double eps);
Tensor3 group_norm_backward(const Tensor &grad, const Tensor &input, const Tensor &mean, const Tensor &rstd,
                            const OptionalTensor &weight, int64_t n, int64_t c, int64_t hw, int64_t groups,
                            std::array<bool, 3> mask);
Tensor2 nll_loss(Result loss, Result total_weight, const Tensor &self, const Tensor &target,
                 const OptionalTensor &weight, int64_t reduction, int64_t ignore_index);
Tensor nll_loss_backward(Result result, const Tensor &grad, const Tensor &self, const Tensor &target,
                         const OptionalTensor &weight, int64_t reduction, int64_t ignore_index,
                         const Tensor &total_weight);
Tensor loss(Result result, hr_op op, const Tensor &self, const Tensor &target, const OptionalTensor &weight,
            int64_t reduction, std::optional<double> parameter = std::nullopt);
Tensor loss_backward(Result result, hr_op op, const Tensor &grad, const Tensor &self, const Tensor &target,
                     const OptionalTensor &weight, int64_t reduction, std::optional<double> parameter = std::nullopt);
Tensor upsample2d(Result result, hr_op op, const Tensor &self, IntArrayRef size, int64_t flag,
                  std::optional<double> scale_h, std::optional<double> scale_w);
Tensor upsample2d_backward(Result result, hr_op op, const Tensor &grad, IntArrayRef input_size, int64_t flag,
                           std::optional<double> scale_h, std::optional<double> scale_w);
Tensor3 lstm_cell(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &c,
                  const OptionalTensor &input_bias, const OptionalTensor &hidden_bias);
Tensor3 lstm_cell_backward(const OptionalTensor &grad_h, const OptionalTensor &grad_c, const Tensor &c_before,
                           const Tensor &c_after, const Tensor &workspace, bool has_bias);
Tensor2 gru_cell(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &h,
                 const OptionalTensor &input_bias, const OptionalTensor &hidden_bias);
Tensor5 gru_cell_backward(const Tensor &grad_h, const Tensor &workspace, bool has_bias);
std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>
attention(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &mask, double dropout_p,
          bool causal, std::optional<double> scale);
// Without the values that a gradient needs.
Tensor attention_alone(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &mask,
                       bool causal, std::optional<double> scale);
Tensor4 attention_backward(const Tensor &grad, const Tensor &query, const Tensor &key, const Tensor &value,
                           const Tensor &mask, std::array<bool, 4> wanted, const Tensor &out, const Tensor &logsumexp,
                           double dropout_p, bool causal, const Tensor &philox_seed, const Tensor &philox_offset,
                           std::optional<double> scale);

// ---- activation.cpp
Tensor2 log_sigmoid(Result result, Result buffer, const Tensor &self);
Tensor log_sigmoid_backward(Result result, const Tensor &grad, const Tensor &self);
Tensor glu(Result result, const Tensor &self, int64_t dim);
Tensor glu_backward(Result result, const Tensor &grad, const Tensor &self, int64_t dim);
Tensor glu_jvp(const Tensor &y, const Tensor &x, const Tensor &dx, int64_t dim);
Tensor glu_backward_jvp(const Tensor &grad_x, const Tensor &g, const Tensor &x, const Tensor &dg, const Tensor &dx,
                        int64_t dim);
Tensor2 prelu_backward(const Tensor &grad, const Tensor &self, const Tensor &weight);
Tensor rrelu(Result result, const Tensor &self, const Tensor &noise, const Scalar &lower, const Scalar &upper,
             bool training, const OptionalGenerator &generator);
Tensor masked_softmax(const Tensor &self, const Tensor &mask, std::optional<int64_t> dim,
                      std::optional<int64_t> mask_type);
Tensor masked_softmax_backward(const Tensor &grad, const Tensor &output, const Tensor &mask,
                               std::optional<int64_t> dim);
Tensor2 weight_norm(const Tensor &v, const Tensor &g, int64_t dim);
Tensor2 weight_norm_backward(const Tensor &grad, const Tensor &v, const Tensor &g, const Tensor &length, int64_t dim);
Tensor renorm(Result result, const Tensor &self, const Scalar &p, int64_t dim, const Scalar &most);
Tensor embedding_renorm(const Tensor &self, const Tensor &indices, double most, double p);

// ---- losses.cpp: margins and CTC
Tensor multi_margin_loss(Result result, const Tensor &self, const Tensor &target, const Scalar &p, const Scalar &margin,
                         const OptionalTensor &weight, int64_t reduction);
Tensor multi_margin_loss_backward(Result result, const Tensor &grad, const Tensor &self, const Tensor &target,
                                  const Scalar &p, const Scalar &margin, const OptionalTensor &weight,
                                  int64_t reduction);
Tensor2 multilabel_margin_loss(Result result, Result is_target, const Tensor &self, const Tensor &target,
                               int64_t reduction);
Tensor multilabel_margin_loss_backward(Result result, const Tensor &grad, const Tensor &self, const Tensor &target,
                                       int64_t reduction, const Tensor &is_target);
std::vector<int64_t> lengths_of(const Tensor &lengths); // on the host
Tensor2 ctc_loss(const Tensor &log_probs, const Tensor &targets, IntArrayRef input_lengths, IntArrayRef target_lengths,
                 int64_t blank, bool zero_infinity);
Tensor ctc_loss_backward(const Tensor &grad, const Tensor &log_probs, const Tensor &targets, IntArrayRef input_lengths,
                         IntArrayRef target_lengths, const Tensor &loss, const Tensor &log_alpha, int64_t blank,
                         bool zero_infinity);

// ---- window.cpp: n is the number of dims of the plane
Tensor2 max_pool(Result y, Result indices, int64_t n, const Tensor &self, IntArrayRef kernel, IntArrayRef stride,
                 IntArrayRef padding, IntArrayRef dilation, bool ceil_mode);
Tensor max_pool_backward(Result result, int64_t n, const Tensor &grad, const Tensor &self, IntArrayRef kernel,
                         IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, const Tensor &indices);
Tensor avg_pool(Result result, int64_t n, const Tensor &self, IntArrayRef kernel, IntArrayRef stride,
                IntArrayRef padding, bool ceil_mode, bool count_padding, std::optional<int64_t> divisor);
Tensor avg_pool_backward(Result result, int64_t n, const Tensor &grad, const Tensor &self, IntArrayRef kernel,
                         IntArrayRef stride, IntArrayRef padding, bool count_padding, std::optional<int64_t> divisor);
Tensor adaptive_avg_pool(Result result, int64_t n, const Tensor &self, IntArrayRef size);
Tensor adaptive_avg_pool_backward(Result result, int64_t n, const Tensor &grad, const Tensor &self);
Tensor2 adaptive_max_pool(Result y, Result indices, int64_t n, const Tensor &self, IntArrayRef size);
Tensor pick_backward(Result result, int64_t n, const Tensor &grad, const Tensor &self, const Tensor &indices,
                     bool keeps_format);
Tensor max_unpool(Result result, int64_t n, const Tensor &self, const Tensor &indices, IntArrayRef size,
                  IntArrayRef stride, IntArrayRef padding);
Tensor2 fractional_max_pool(Result y, Result indices, int64_t n, const Tensor &self, IntArrayRef kernel,
                            IntArrayRef size, const Tensor &samples);
Tensor pad_border(Result result, bool repeats, int64_t n, const Tensor &self, IntArrayRef pad);
Tensor pad_border_backward(Result result, bool repeats, int64_t n, const Tensor &grad, const Tensor &self,
                           IntArrayRef pad);

// ---- tensor.cpp: memory and metadata
Tensor empty_tensor(IntArrayRef size, std::optional<ScalarType> dtype, std::optional<at::Layout> layout,
                    std::optional<at::Device> device, std::optional<bool> pin_memory,
                    std::optional<at::MemoryFormat> format);
Tensor empty_strided_tensor(IntArrayRef size, IntArrayRef stride, std::optional<ScalarType> dtype,
                            std::optional<at::Layout> layout, std::optional<at::Device> device,
                            std::optional<bool> pin_memory);
Tensor as_strided(const Tensor &self, IntArrayRef size, IntArrayRef stride, std::optional<int64_t> storage_offset);
Tensor view(const Tensor &self, IntArrayRef size);
Tensor view_transpose(const Tensor &self, int64_t dim0, int64_t dim1);
Tensor view_select(const Tensor &self, int64_t dim, int64_t index);
Tensor view_slice(const Tensor &self, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end,
                  int64_t step);
Tensor view_unsqueeze(const Tensor &self, int64_t dim);
Tensor view_expand(const Tensor &self, IntArrayRef size);
Tensor view_reshape(const Tensor &self, IntArrayRef size); // undefined: the strides allow none
std::vector<Tensor> view_split(const Tensor &self, int64_t split_size, int64_t dim);
Tensor view_dtype(const Tensor &self, ScalarType dtype);
Tensor reshape_alias(const Tensor &self, IntArrayRef size, IntArrayRef stride);
Tensor unfold(const Tensor &self, int64_t dim, int64_t size, int64_t step);
Tensor view_as_real(const Tensor &self);
Tensor view_as_complex(const Tensor &self);
const Tensor &resize(const Tensor &self, IntArrayRef size, std::optional<at::MemoryFormat> format);
void resize_storage(c10::StorageImpl *storage, size_t bytes);
Tensor set_nothing(const Tensor &self);
Tensor set_tensor(const Tensor &self, const Tensor &source);
Tensor set_storage(const Tensor &self, const c10::Storage &source);
Tensor set_storage_strided(const Tensor &self, const c10::Storage &source, int64_t offset, IntArrayRef size,
                           IntArrayRef stride);
bool is_set_to(const Tensor &self, const Tensor &other);
Tensor copy_from(const Tensor &self, const Tensor &to);
Tensor copy_from_and_resize(const Tensor &self, const Tensor &to);
Scalar local_scalar(const Tensor &self);
void record_stream(const Tensor &self);

} // namespace headrace
