// nn.cpp: layers, losses, windows, interpolation, recurrent cells and attention. Each is one row of the core; this file
// handles shapes, memory formats and optional results as torch does.
#include <ATen/ExpandUtils.h>
#include <ATen/ops/scalar_tensor.h>
#include <c10/core/TensorImpl.h>

#include "infer.h"
#include "kernels.h"
#include "layers.h"

namespace headrace {
namespace {

// The type of parameters and saved statistics: f32 for narrow inputs if a parameter is f32, else the input's.
template <class... T> ScalarType parameter_type(const Tensor &input, const T &...parameters) {
  ScalarType wide = statistics_type(input);
  auto has = [wide](const OptionalTensor &parameter) { return present(parameter) && parameter->scalar_type() == wide; };
  return (has(parameters) || ...) ? wide : input.scalar_type();
}

// Parameters must have the input's dtype, or float32 for half-precision input.
template <class... T> void check_parameters(const Tensor &input, const T &...parameters) {
  auto check_one = [&input](const OptionalTensor &parameter) {
    TORCH_CHECK(!present(parameter) || parameter->scalar_type() == input.scalar_type() ||
                    parameter->scalar_type() == statistics_type(input),
                "mixed dtype: expect parameter to have scalar type of ", statistics_type(input), ", not ",
                parameter->scalar_type());
  };
  (check_one(parameters), ...);
}

// An output that a mask may omit.
Tensor wanted(bool want, const Tensor &like) {
  return want ? new_like(like) : Tensor();
}

struct Convolution {
  c10::SmallVector<int64_t, 12> ints;
  Convolution(int64_t rank, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, int64_t groups) {
    ints.push_back(rank);
    for (IntArrayRef values : {stride, padding, dilation}) {
      for (int64_t i = 0; i < rank; ++i)
        ints.push_back(values.size() == 1 ? values[0] : values[i]);
    }
    ints.push_back(groups);
  }
};

// torch computes a convolution in channels-last if either operand is channels-last.
at::MemoryFormat convolution_format(const Tensor &input, const Tensor &weight) {
  at::MemoryFormat format = format_of(input);
  return format != at::MemoryFormat::Contiguous ? format : format_of(weight);
}

Dims convolution_sizes(const Tensor &input, const Tensor &weight, const Convolution &shape, bool transposed,
                       IntArrayRef output_padding) {
  Dims sizes =
      inferred_sizes(transposed ? HR_OP_CONV_BACKWARD_DATA : HR_OP_CONV, shape.ints, {input.sizes(), weight.sizes()});
  int64_t rank = input.dim() - 2;
  for (int64_t i = 0; i < rank; ++i) {
    int64_t stride = shape.ints[1 + i], dilation = shape.ints[1 + 2 * rank + i];
    int64_t more = transposed ? output_padding[output_padding.size() == 1 ? 0 : i] : 0;
    TORCH_CHECK(more == 0 || more < stride || more < dilation,
                "output padding must be smaller than either stride or dilation, but got output padding ", more,
                ", stride ", stride, ", dilation ", dilation);
    sizes[i + 2] += more;
    TORCH_CHECK(sizes[i + 2] >= !transposed, "Calculated output size is too small: ", IntArrayRef(sizes));
  }
  return sizes;
}

// The rows to add at the end of each dim of a transposed convolution's input, so that it has the size of the plain
// convolution of the output: an output padding of a stride or more leaves rows that no input row contributes to.
Dims missing_rows(const Tensor &input, const Tensor &weight, IntArrayRef out_sizes, const Convolution &shape) {
  Dims rows = inferred_sizes(HR_OP_CONV, shape.ints, {out_sizes, weight.sizes()}), missing;
  for (int64_t i = 2; i < input.dim(); ++i)
    missing.push_back(std::max<int64_t>(rows[i] - input.size(i), 0));
  return missing;
}

bool any_nonzero(IntArrayRef values) {
  return std::any_of(values.begin(), values.end(), [](int64_t value) { return value != 0; });
}

Tensor extend(const Tensor &input, IntArrayRef missing) {
  if (!any_nonzero(missing))
    return input;
  Dims pad;
  for (size_t i = missing.size(); i-- > 0;) {
    pad.push_back(0);
    pad.push_back(missing[i]);
  }
  return constant_pad(input, pad, 0);
}

} // namespace

// ---- convolutions: a transposed one is the other's gradient, with the roles of its operands swapped

Tensor convolution(const Tensor &input, const Tensor &weight, const OptionalTensor &bias, IntArrayRef stride,
                   IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                   int64_t groups) {
  TORCH_CHECK(input.scalar_type() == weight.scalar_type(), "Input type (", input.scalar_type(), ") and weight type (",
              weight.scalar_type(), ") should be the same");
  TORCH_CHECK_NOT_IMPLEMENTED(input.scalar_type() != ScalarType::Bool, "convolutions are not implemented for 'Bool'");
  Convolution shape(input.dim() - 2, stride, padding, dilation, groups);
  Dims sizes = convolution_sizes(input, weight, shape, transposed, output_padding);
  Tensor out = new_tensor(sizes, input.scalar_type(), convolution_format(input, weight));
  if (out.numel() == 0)
    return out;
  Tensor image = transposed ? extend(input, missing_rows(input, weight, sizes, shape)) : input;
  Record record(transposed ? HR_OP_CONV_BACKWARD_DATA : HR_OP_CONV);
  record.in(image).in(weight).in(bias).ints(shape.ints).out(out).run();
  return out;
}

Tensor3 convolution_backward(const Tensor &grad, const Tensor &input, const Tensor &weight, IntArrayRef stride,
                             IntArrayRef padding, IntArrayRef dilation, bool transposed, int64_t groups,
                             std::array<bool, 3> mask) {
  Convolution shape(input.dim() - 2, stride, padding, dilation, groups);
  at::MemoryFormat format = convolution_format(input, weight);
  Tensor grad_input, grad_weight, grad_bias;
  bool empty = grad.numel() == 0 || input.numel() == 0;
  Dims missing = transposed ? missing_rows(input, weight, grad.sizes(), shape) : Dims(input.dim() - 2, 0);
  if (mask[0]) {
    Dims sizes(input.sizes().begin(), input.sizes().end());
    for (size_t i = 0; i < missing.size(); ++i)
      sizes[i + 2] += missing[i];
    grad_input = new_tensor(sizes, input.scalar_type(), format);
    if (empty)
      zeros_if_empty(grad_input);
    else
      Record(transposed ? HR_OP_CONV : HR_OP_CONV_BACKWARD_DATA)
          .in(grad)
          .in(weight)
          .absent()
          .ints(shape.ints)
          .out(grad_input)
          .run();
    for (size_t i = 0; i < missing.size(); ++i) {
      if (missing[i] > 0)
        grad_input = grad_input.narrow(static_cast<int64_t>(i) + 2, 0, input.size(static_cast<int64_t>(i) + 2));
    }
  }
  if (mask[1]) {
    grad_weight = new_like(weight);
    Tensor extended = transposed ? extend(input, missing) : input;
    const Tensor &image = transposed ? grad : input, &change = transposed ? extended : grad;
    if (empty)
      zeros_if_empty(grad_weight);
    else
      Record(HR_OP_CONV_BACKWARD_WEIGHT).in(image).in(change).ints(shape.ints).out(grad_weight).run();
  }
  if (mask[2]) {
    Dims dims{0};
    for (int64_t i = 2; i < grad.dim(); ++i)
      dims.push_back(i);
    grad_bias = sum(Result::fresh(), grad, OptionalIntArrayRef(IntArrayRef(dims)), false, std::nullopt);
  }
  return {grad_input, grad_weight, grad_bias};
}

// ---- normalisation

Tensor3 batch_norm(Result y_place, Result mean_place, Result invstd_place, const Tensor &input,
                   const OptionalTensor &weight, const OptionalTensor &bias, const OptionalTensor &running_mean,
                   const OptionalTensor &running_var, bool training, double momentum, double eps) {
  TORCH_CHECK(input.dim() >= 2, "batch_norm: input must have at least 2 dimensions, not ", input.dim());
  TORCH_CHECK(training || (present(running_mean) && present(running_var)),
              "Expected running_mean and running_var to be defined when training=False");
  check_parameters(input, weight, bias, running_mean, running_var);
  int64_t saved = training ? input.size(1) : 0;
  Tensor y = y_place.begin(input.sizes(), input.scalar_type(), {input}, format_of(input));
  ScalarType type = parameter_type(input, weight, bias, running_mean, running_var);
  Tensor mean = mean_place.exact_if(false).begin({saved}, type);
  Tensor invstd = invstd_place.exact_if(false).begin({saved}, type);
  if (input.numel() > 0) {
    Record record(HR_OP_BATCH_NORM);
    record.in(input)
        .in(weight)
        .in(bias)
        .in(running_mean)
        .in(running_var)
        .ints({training})
        .num(momentum)
        .num(eps)
        .out(y);
    if (training) {
      record.out(mean).out(invstd).out(running_mean.value_or(Tensor())).out(running_var.value_or(Tensor()));
    } else {
      record.no_out().no_out().no_out().no_out();
    }
    record.run();
  } else if (training) {
    fill_with(mean, std::nan(""));
    fill_with(invstd, std::nan(""));
  }
  return {y_place.end(y), mean_place.end(mean), invstd_place.end(invstd)};
}

Tensor3 batch_norm_backward(const Tensor &grad, const Tensor &input, const OptionalTensor &weight,
                            const OptionalTensor &running_mean, const OptionalTensor &running_var,
                            const OptionalTensor &mean, const OptionalTensor &invstd, bool training, double eps,
                            std::array<bool, 3> mask) {
  ScalarType type = present(weight) ? weight->scalar_type() : parameter_type(input, running_mean, mean);
  Tensor dx = mask[0] ? new_tensor(input.sizes(), input.scalar_type(), format_of(input)) : Tensor();
  Tensor dweight = mask[1] ? new_tensor({input.size(1)}, type) : Tensor();
  Tensor dbias = mask[2] ? new_tensor({input.size(1)}, type) : Tensor();
  if (input.numel() == 0)
    return {dx, zeros_if_empty(dweight), zeros_if_empty(dbias)};
  if (!mask[0] && !mask[1] && !mask[2])
    return {dx, dweight, dbias};
  Record record(HR_OP_BATCH_NORM_BACKWARD);
  record.in(grad).in(input).in(weight).in(running_mean).in(running_var);
  if (training)
    record.in(mean).in(invstd);
  else
    record.absent().absent();
  record.ints({training}).num(eps).out(dx).out(dweight).out(dbias).run();
  return {dx, dweight, dbias};
}

static void check_layer_norm(const Tensor &input, IntArrayRef shape, const OptionalTensor &weight,
                             const OptionalTensor &bias) {
  int64_t trailing = static_cast<int64_t>(shape.size()), lead = input.dim() - trailing;
  TORCH_CHECK(trailing >= 1,
              "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got ",
              "normalized_shape = ", shape);
  TORCH_CHECK(!present(weight) || weight->sizes().equals(shape),
              "Expected weight to be of same shape as normalized_shape, but got ", "weight of shape ", weight->sizes(),
              " and normalized_shape = ", shape);
  TORCH_CHECK(!present(bias) || bias->sizes().equals(shape),
              "Expected bias to be of same shape as normalized_shape, but got bias of ", "shape ", bias->sizes(),
              " and normalized_shape = ", shape);
  TORCH_CHECK(lead >= 0 && input.sizes().slice(lead).equals(shape), "Given normalized_shape=", shape,
              ", expected input with shape [*, ", shape, "], but got input of size", input.sizes());
  check_parameters(input, weight, bias);
}

// Undefined statistics are not computed.
static Tensor record_layer_norm(const Tensor &input, IntArrayRef shape, const OptionalTensor &weight,
                                const OptionalTensor &bias, double eps, const Tensor &mean, const Tensor &rstd) {
  Tensor y = new_tensor(input.sizes(), input.scalar_type());
  if (input.numel() > 0) {
    Record record(HR_OP_LAYER_NORM);
    record.in(input).in(weight).in(bias).ints({static_cast<int64_t>(shape.size())}).num(eps);
    record.out(y).out(mean).out(rstd).run();
  }
  return y;
}

Tensor layer_norm_alone(const Tensor &input, IntArrayRef shape, const OptionalTensor &weight,
                        const OptionalTensor &bias, double eps) {
  check_layer_norm(input, shape, weight, bias);
  return record_layer_norm(input, shape, weight, bias, eps, Tensor(), Tensor());
}

Tensor3 layer_norm(const Tensor &input, IntArrayRef shape, const OptionalTensor &weight, const OptionalTensor &bias,
                   double eps) {
  check_layer_norm(input, shape, weight, bias);
  Dims kept(input.sizes().begin(), input.sizes().end());
  for (int64_t i = input.dim() - static_cast<int64_t>(shape.size()); i < input.dim(); ++i)
    kept[i] = 1;
  ScalarType type = parameter_type(input, weight, bias);
  Tensor mean = new_tensor(kept, type), rstd = new_tensor(kept, type);
  Tensor y = record_layer_norm(input, shape, weight, bias, eps, mean, rstd);
  return {y, mean, rstd};
}

Tensor3 layer_norm_backward(const Tensor &grad, const Tensor &input, IntArrayRef shape, const Tensor &mean,
                            const Tensor &rstd, const OptionalTensor &weight, const OptionalTensor &,
                            std::array<bool, 3> mask) {
  ScalarType type = present(weight) ? weight->scalar_type() : input.scalar_type();
  Tensor dx = mask[0] ? new_tensor(input.sizes(), input.scalar_type()) : Tensor();
  Tensor dweight = mask[1] ? new_tensor(shape, type) : Tensor(), dbias = mask[2] ? new_tensor(shape, type) : Tensor();
  if (input.numel() == 0)
    return {dx, zeros_if_empty(dweight), zeros_if_empty(dbias)};
  if (!mask[0] && !mask[1] && !mask[2])
    return {dx, dweight, dbias};
  Record record(HR_OP_LAYER_NORM_BACKWARD);
  record.in(grad).in(input).in(mean).in(rstd).in(weight).ints({static_cast<int64_t>(shape.size())});
  record.out(dx).out(dweight).out(dbias).run();
  return {dx, dweight, dbias};
}

Tensor3 group_norm(const Tensor &input, const OptionalTensor &weight, const OptionalTensor &bias, int64_t n, int64_t c,
                   int64_t, int64_t groups, double eps) {
  TORCH_CHECK(groups > 0 && c % groups == 0,
              "Expected number of channels in input to be divisible by num_groups, but got input of shape ",
              input.sizes(), " and num_groups=", groups);
  check_parameters(input, weight, bias);
  Tensor y = new_tensor(input.sizes(), input.scalar_type(), format_of(input));
  ScalarType type = parameter_type(input, weight, bias);
  Tensor mean = new_tensor({n, groups}, type), rstd = new_tensor({n, groups}, type);
  if (input.numel() > 0) {
    Record record(HR_OP_GROUP_NORM);
    record.in(input).in(weight).in(bias).ints({groups}).num(eps).out(y).out(mean).out(rstd).run();
  }
  return {y, mean, rstd};
}

Tensor3 group_norm_backward(const Tensor &grad, const Tensor &input, const Tensor &mean, const Tensor &rstd,
                            const OptionalTensor &weight, int64_t, int64_t c, int64_t, int64_t groups,
                            std::array<bool, 3> mask) {
  ScalarType type = present(weight) ? weight->scalar_type() : input.scalar_type();
  Tensor dx = mask[0] ? new_tensor(input.sizes(), input.scalar_type(), format_of(input)) : Tensor();
  Tensor dweight = mask[1] ? new_tensor({c}, type) : Tensor(), dbias = mask[2] ? new_tensor({c}, type) : Tensor();
  if (input.numel() == 0)
    return {dx, zeros_if_empty(dweight), zeros_if_empty(dbias)};
  if (!mask[0] && !mask[1] && !mask[2])
    return {dx, dweight, dbias};
  Record record(HR_OP_GROUP_NORM_BACKWARD);
  record.in(grad).in(input).in(mean).in(rstd).in(weight).ints({groups}).out(dx).out(dweight).out(dbias).run();
  return {dx, dweight, dbias};
}

// ---- losses

static Tensor target_of(const Tensor &target) {
  TORCH_CHECK(target.scalar_type() == ScalarType::Long || target.scalar_type() == ScalarType::Byte,
              "expected scalar type Long or Byte but found ", target.scalar_type());
  return to_type(target, ScalarType::Long);
}

Tensor2 nll_loss(Result loss_place, Result total_place, const Tensor &self, const Tensor &target,
                 const OptionalTensor &weight, int64_t reduction, int64_t ignore_index) {
  TORCH_CHECK(self.dim() == 1 || self.dim() == 2 || self.dim() == 4,
              "input tensor should be 1D or 2D, or 4D for images, not ", self.dim(), "D");
  TORCH_CHECK(target.dim() == std::max<int64_t>(self.dim() - 1, 0) || (self.dim() == 1 && target.dim() <= 1),
              "0D or 1D target tensor expected, multi-target not supported");
  TORCH_CHECK(self.dim() == 1 || target.size(0) == self.size(0), "size mismatch (got input: ", self.sizes(),
              ", target: ", target.sizes(), ")");
  TORCH_CHECK(self.dim() < 4 || target.sizes().slice(1).equals(self.sizes().slice(2)),
              "size mismatch (got input: ", self.sizes(), " , target: ", target.sizes(), ")");
  int64_t classes = self.size(self.dim() == 1 ? 0 : 1);
  TORCH_CHECK(
      !present(weight) || (weight->dim() == 1 && weight->numel() == classes),
      "weight tensor should be defined either for all ", classes,
      " classes or no classes but got weight tensor of shape: ", present(weight) ? weight->sizes() : IntArrayRef());
  bool each = reduction == 0 && self.dim() > 1;
  Tensor loss = loss_place.begin(each ? target.sizes() : IntArrayRef(), self.scalar_type(), {self});
  Tensor total = total_place.begin({}, self.scalar_type());
  if (self.numel() == 0) {
    if (loss.numel() > 0)
      fill_with(loss, reduction == 1 ? std::nan("") : 0.0);
    fill_with(total, 0);
  } else {
    Record record(HR_OP_NLL_LOSS);
    record.in(self).in(target_of(target)).in(weight).ints({reduction}).num(ignore_index).out(loss).out(total).run();
  }
  return {loss_place.end(loss), total_place.end(total)};
}

Tensor nll_loss_backward(Result result, const Tensor &grad, const Tensor &self, const Tensor &target,
                         const OptionalTensor &weight, int64_t reduction, int64_t ignore_index,
                         const Tensor &total_weight) {
  Tensor out = result.begin(self.sizes(), self.scalar_type(), {grad, total_weight});
  if (out.numel() > 0) {
    Record record(HR_OP_NLL_LOSS_BACKWARD);
    record.in(grad)
        .in(target_of(target))
        .in(weight)
        .in(total_weight)
        .ints({reduction})
        .num(ignore_index)
        .out(out)
        .run();
  }
  return result.end(out);
}

// Records the parts common to a loss and its gradient: operands broadcast to their common sizes, binary cross entropy's
// weight (null: none), attributes.
static void record_loss(Record &record, IntArrayRef sizes, const Tensor &self, const Tensor &target,
                        const OptionalTensor *weight, int64_t reduction, std::optional<double> parameter,
                        const Tensor &out) {
  record.in(self, sizes).in(target, sizes);
  if (weight != nullptr)
    record.in(weight->value_or(Tensor()), sizes);
  record.ints({reduction});
  if (parameter.has_value())
    record.num(*parameter);
  record.out(out).run();
}

Tensor loss(Result result, hr_op op, const Tensor &self, const Tensor &target, const OptionalTensor &weight,
            int64_t reduction, std::optional<double> parameter) {
  TORCH_CHECK(op != HR_OP_HUBER_LOSS || *parameter > 0, "huber_loss does not support non-positive values for delta.");
  TORCH_CHECK(op != HR_OP_SMOOTH_L1_LOSS || *parameter >= 0,
              "smooth_l1_loss does not support negative values for beta.");
  const Operand both[] = {self, target};
  ScalarType type = op == HR_OP_HUBER_LOSS ? self.scalar_type() : promote(both, 2);
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isFloatingType(type), "this loss is not implemented for '", type, "'");
  TORCH_CHECK(op != HR_OP_BCE_LOSS || self.scalar_type() == target.scalar_type(), "Found dtype ", target.scalar_type(),
              " but expected ", self.scalar_type());
  at::DimVector sizes = at::infer_size_dimvector(self.sizes(), target.sizes());
  Tensor out = reduction == 0 && result.is_fresh()
                   ? new_pointwise(self, target, type)
                   : result.begin(reduction == 0 ? IntArrayRef(sizes) : IntArrayRef(), type, {self, target});
  if (out.numel() == 0)
    return result.end(out);
  if (self.numel() == 0 || target.numel() == 0)
    return result.end(fill_with(out, reduction == 1 ? std::nan("") : 0.0));
  Record record(op);
  record_loss(record, sizes, self, target, op == HR_OP_BCE_LOSS ? &weight : nullptr, reduction, parameter, out);
  return result.end(out);
}

Tensor loss_backward(Result result, hr_op op, const Tensor &grad, const Tensor &self, const Tensor &target,
                     const OptionalTensor &weight, int64_t reduction, std::optional<double> parameter) {
  const Operand both[] = {self, target};
  at::DimVector sizes = at::infer_size_dimvector(self.sizes(), target.sizes());
  Tensor out = result.begin(sizes, promote(both, 2), {grad, self, target});
  if (out.numel() == 0)
    return result.end(out);
  Record record(op);
  if (reduction == 0)
    record.in(grad, sizes);
  else
    record.in(grad);
  record_loss(record, sizes, self, target, op == HR_OP_BCE_LOSS_BACKWARD ? &weight : nullptr, reduction, parameter,
              out);
  return result.end(out);
}

// ---- interpolation

Tensor upsample2d(Result result, hr_op op, const Tensor &self, IntArrayRef size, int64_t flag,
                  std::optional<double> scale_h, std::optional<double> scale_w) {
  TORCH_CHECK(size.size() == 2, "It is expected output_size equals to 2, but got size ", size.size());
  TORCH_CHECK(self.dim() == 4, "It is expected input_size equals to 4, but got size ", self.dim());
  TORCH_CHECK(self.size(1) > 0, "Non-empty 4D data tensor expected but got a tensor with sizes ", self.sizes());
  TORCH_CHECK(self.size(2) > 0 && self.size(3) > 0 && size[0] > 0 && size[1] > 0,
              "Input and output sizes should be greater than 0, but got input (H: ", self.size(2),
              ", W: ", self.size(3), ") output (H: ", size[0], ", W: ", size[1], ")");
  Tensor y = result.begin({self.size(0), self.size(1), size[0], size[1]}, self.scalar_type(), {self}, format_of(self));
  if (y.numel() > 0) {
    Record record(op);
    record.in(self).ints({flag}).num(scale_h.value_or(0)).num(scale_w.value_or(0)).out(y).run();
  }
  return result.end(y);
}

Tensor upsample2d_backward(Result result, hr_op op, const Tensor &grad, IntArrayRef input_size, int64_t flag,
                           std::optional<double> scale_h, std::optional<double> scale_w) {
  Tensor out = result.begin(input_size, grad.scalar_type(), {grad}, format_of(grad));
  if (out.numel() > 0) {
    Record record(op);
    record.in(grad).ints({flag}).num(scale_h.value_or(0)).num(scale_w.value_or(0)).out(out).run();
  }
  return result.end(out);
}

// ---- recurrent cells

Tensor3 lstm_cell(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &c,
                  const OptionalTensor &input_bias, const OptionalTensor &hidden_bias) {
  Tensor h = new_tensor(c.sizes(), c.scalar_type()), next = new_tensor(c.sizes(), c.scalar_type());
  Tensor workspace = new_tensor(input_gates.sizes(), input_gates.scalar_type());
  if (h.numel() > 0) {
    Record record(HR_OP_LSTM_CELL);
    record.in(input_gates).in(hidden_gates).in(c).in(input_bias).in(hidden_bias).out(h).out(next).out(workspace).run();
  }
  return {h, next, workspace};
}

Tensor3 lstm_cell_backward(const OptionalTensor &grad_h, const OptionalTensor &grad_c, const Tensor &c_before,
                           const Tensor &c_after, const Tensor &workspace, bool has_bias) {
  if (!present(grad_h) && !present(grad_c))
    return {};
  Tensor grad_gates = new_tensor(workspace.sizes(), workspace.scalar_type()), grad_before = new_like(c_before);
  if (grad_gates.numel() > 0) {
    Record record(HR_OP_LSTM_CELL_BACKWARD);
    record.in(grad_h).in(grad_c).in(c_before).in(c_after).in(workspace).out(grad_gates).out(grad_before).run();
  }
  Tensor grad_bias =
      has_bias ? sum(Result::fresh(), grad_gates, OptionalIntArrayRef(IntArrayRef{0}), false, std::nullopt) : Tensor();
  return {grad_gates, grad_before, grad_bias};
}

Tensor2 gru_cell(const Tensor &input_gates, const Tensor &hidden_gates, const Tensor &h,
                 const OptionalTensor &input_bias, const OptionalTensor &hidden_bias) {
  Tensor next = new_tensor(h.sizes(), h.scalar_type());
  Tensor workspace = new_tensor({h.size(0), h.size(1) * 5}, h.scalar_type());
  if (next.numel() > 0) {
    Record record(HR_OP_GRU_CELL);
    record.in(input_gates).in(hidden_gates).in(h).in(input_bias).in(hidden_bias).out(next).out(workspace).run();
  }
  return {next, workspace};
}

Tensor5 gru_cell_backward(const Tensor &grad_h, const Tensor &workspace, bool has_bias) {
  int64_t n = workspace.size(0), hidden = workspace.size(1) / 5;
  Tensor grad_input = new_tensor({n, 3 * hidden}, workspace.scalar_type()),
         grad_hidden = new_tensor({n, 3 * hidden}, workspace.scalar_type());
  Tensor grad_before = new_like(grad_h), input_bias, hidden_bias;
  if (grad_input.numel() > 0) {
    Record record(HR_OP_GRU_CELL_BACKWARD);
    record.in(grad_h).in(workspace).out(grad_input).out(grad_hidden).out(grad_before).run();
  }
  if (has_bias) {
    input_bias = sum(Result::fresh(), grad_input, OptionalIntArrayRef(IntArrayRef{0}), false, std::nullopt);
    hidden_bias = sum(Result::fresh(), grad_hidden, OptionalIntArrayRef(IntArrayRef{0}), false, std::nullopt);
  }
  return {grad_input, grad_hidden, grad_before, input_bias, hidden_bias};
}

// ---- attention

static double attention_scale(const Tensor &query, std::optional<double> scale) {
  return scale.has_value() ? *scale : 1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(query.size(-1), 1)));
}

// The position in the random sequence is passed to the gradient in two numbers on the host, which are read without a
// wait.
static Tensor host_number(int64_t value) {
  return at::scalar_tensor(value, at::TensorOptions(at::kCPU).dtype(at::kLong));
}

// If the heads of a query are adjacent in memory, as after a projection, those of the result are too, as in torch's
// kernels: merging the heads is then a view.
static Tensor attention_output(const Tensor &query, int64_t width) {
  int64_t b = query.size(0), h = query.size(1), l = query.size(2);
  if (query.stride(1) < query.stride(2) && h > 1 && l > 1)
    return new_tensor({b, h, l, width}, {l * h * width, width, h * width, 1}, query.scalar_type());
  return new_tensor({b, h, l, width}, query.scalar_type());
}

// An undefined logsumexp is not computed. Dropout draws from `place`.
static Tensor record_attention(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &mask,
                               double dropout_p, Philox place, bool causal, std::optional<double> scale,
                               const Tensor &logsumexp) {
  Tensor out = attention_output(query, value.size(3));
  if (out.numel() == 0)
    return out;
  Record record(HR_OP_ATTENTION);
  record.in(query).in(key).in(value);
  if (present(mask))
    record.in(*mask, {query.size(0), query.size(1), query.size(2), key.size(2)});
  else
    record.absent();
  record.ints({causal}).num(attention_scale(query, scale));
  if (dropout_p > 0)
    record.num(dropout_p).philox(place);
  record.out(out).out(logsumexp).run();
  return out;
}

Tensor attention_alone(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &mask,
                       bool causal, std::optional<double> scale) {
  return record_attention(query, key, value, mask, 0, {}, causal, scale, Tensor());
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>
attention(const Tensor &query, const Tensor &key, const Tensor &value, const OptionalTensor &mask, double dropout_p,
          bool causal, std::optional<double> scale) {
  TORCH_CHECK(dropout_p >= 0 && dropout_p <= 1, "dropout probability has to be between 0 and 1, but got ", dropout_p);
  int64_t b = query.size(0), h = query.size(1), l = query.size(2), s = key.size(2);
  Tensor logsumexp = new_tensor({b, h, l}, statistics_type(query));
  Philox place = dropout_p > 0 ? next_philox(std::nullopt) : Philox{0, 0};
  Tensor out = record_attention(query, key, value, mask, dropout_p, place, causal, scale, logsumexp);
  return {out, logsumexp, Tensor(), Tensor(), l, s, host_number(place.seed), host_number(place.offset), Tensor()};
}

Tensor4 attention_backward(const Tensor &grad, const Tensor &query, const Tensor &key, const Tensor &value,
                           const Tensor &mask, std::array<bool, 4> want, const Tensor &out, const Tensor &logsumexp,
                           double dropout_p, bool causal, const Tensor &philox_seed, const Tensor &philox_offset,
                           std::optional<double> scale) {
  Tensor dquery = wanted(want[0], query), dkey = wanted(want[1], key), dvalue = wanted(want[2], value);
  Tensor dmask = want[3] && mask.defined() ? new_like(mask) : Tensor();
  if (query.numel() == 0 || key.numel() == 0) {
    for (const Tensor &tensor : {dquery, dkey, dvalue, dmask})
      zeros_if_empty(tensor);
    return {dquery, dkey, dvalue, dmask};
  }
  Dims scores{query.size(0), query.size(1), query.size(2), key.size(2)};
  Record record(HR_OP_ATTENTION_BACKWARD);
  record.in(grad).in(query).in(key).in(value);
  if (mask.defined())
    record.in(mask, scores);
  else
    record.absent();
  record.in(out).in(logsumexp).ints({causal}).num(attention_scale(query, scale));
  if (dropout_p > 0)
    record.num(dropout_p).philox({number_of(philox_seed).value.i, number_of(philox_offset).value.i});
  record.out(dquery).out(dkey).out(dvalue);
  bool broadcast = dmask.defined() && !dmask.sizes().equals(scores);
  Tensor whole = broadcast ? new_tensor(scores, mask.scalar_type()) : dmask;
  record.out(whole).run();
  if (broadcast)
    dmask = at::sum_to(whole, mask.sizes());
  return {dquery, dkey, dvalue, dmask};
}

} // namespace headrace
