// packed.cpp: packed sequences, to and from the padded form.
//
// torch's own functions copy a slice for each step or each length, so that each set of lengths is another program.
// Here rows are gathered at places that the host computes from the lengths.
#include "packed.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_pack_padded_sequence_backward_native.h>
#include <ATen/ops/_pack_padded_sequence_native.h>
#include <ATen/ops/_pad_packed_sequence_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/pad_sequence_native.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <numeric>

#include "registration.h"

namespace headrace {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor host_list(const std::vector<int64_t> &values) {
  Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

IntArrayRef numbers_in(const Tensor &host) {
  return {host.const_data_ptr<int64_t>(), static_cast<size_t>(host.numel())};
}

// [parts, 1], made on the host in the type of `like`, which keeps wide integers.
Tensor fill_numbers(const std::vector<Scalar> &fill, const Tensor &like) {
  Tensor numbers = at::empty({static_cast<int64_t>(fill.size()), 1}, like.options().device(at::kCPU));
  for (size_t part = 0; part < fill.size(); ++part)
    numbers.select(0, static_cast<int64_t>(part)).fill_(fill[part]);
  return numbers.to(like.device());
}

Tensor gather_rows(const Tensor &x, const RowMap &map, const std::vector<Scalar> &fill) {
  OnDevice on(x);
  IntArrayRef from = numbers_in(map.from);
  int64_t count = map.from.numel(), parts = static_cast<int64_t>(fill.size());
  bool is_whole = std::all_of(from.begin(), from.end(), [](int64_t place) { return place >= 0; });
  Tensor rows = x.index_select(0, (is_whole ? map.from : map.from.clamp_min(0)).to(x.device()));
  if (is_whole)
    return rows;
  Tensor has = map.from.ge(0).to(x.device()).view({count, 1, 1});
  return at::where(has, rows.view({count, parts, -1}), fill_numbers(fill, x)).view(rows.sizes());
}

struct TakeRows : torch::autograd::Function<TakeRows> {
  static Tensor forward(AutogradContext *context, const Tensor &x, const Tensor &from, const Tensor &back,
                        const std::vector<Scalar> &fill) {
    context->saved_data["from"] = from, context->saved_data["back"] = back;
    return gather_rows(x, {from, back}, fill);
  }

  static variable_list backward(AutogradContext *context, const variable_list &by) {
    RowMap map{context->saved_data["from"].toTensor(), context->saved_data["back"].toTensor()};
    return {take_rows(by[0], map.inverse(), {0}), Tensor(), Tensor(), Tensor()};
  }
};

bool is_host_list(const Tensor &tensor) {
  return tensor.device().is_cpu() && tensor.scalar_type() == at::kLong && tensor.dim() == 1 && tensor.numel() > 0;
}

bool is_our_own(c10::DispatchKeySet keys, const Tensor &tensor) {
  c10::DispatchKey next = (keys & c10::after_ADInplaceOrView_keyset).highestPriorityTypeId();
  return next == c10::DispatchKey::PrivateUse1 && capture() == nullptr && is_on_device(tensor) && tensor.numel() > 0 &&
         !torch::autograd::isFwGradDefined(tensor);
}

} // namespace

Tensor take_rows(const Tensor &x, const RowMap &map, const std::vector<Scalar> &fill) {
  bool records = at::GradMode::is_enabled() && torch::autograd::compute_requires_grad(x);
  return records ? TakeRows::apply(x, map.from, map.back, fill) : gather_rows(x, map, fill);
}

// ---- lengths

Packing::Packing(std::vector<int64_t> sizes) : sizes_(std::move(sizes)), begins_(sizes_.size() + 1, 0) {
  std::partial_sum(sizes_.begin(), sizes_.end(), begins_.begin() + 1);
  lengths_.resize(static_cast<size_t>(sizes_[0]));
  for (int64_t size : sizes_)
    for (int64_t sequence = 0; sequence < size; ++sequence)
      ++lengths_[static_cast<size_t>(sequence)];
}

std::optional<Packing> Packing::of(c10::DispatchKeySet keys, const Tensor &data, const Tensor &batch_sizes) {
  if (!is_our_own(keys, data) || data.dim() == 0 || !is_host_list(batch_sizes))
    return std::nullopt;
  Tensor dense = batch_sizes.contiguous();
  IntArrayRef sizes = numbers_in(dense);
  bool falls = std::is_sorted(sizes.rbegin(), sizes.rend()) && sizes.back() > 0;
  if (!falls || std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) != data.size(0))
    return std::nullopt;
  return Packing(sizes.vec());
}

std::optional<Packing> Packing::of_lengths(const Tensor &lengths) {
  if (!is_host_list(lengths))
    return std::nullopt;
  Tensor dense = lengths.contiguous();
  IntArrayRef values = numbers_in(dense);
  if (!std::is_sorted(values.rbegin(), values.rend()) || values.back() <= 0)
    return std::nullopt;
  std::vector<int64_t> sizes(static_cast<size_t>(values[0]));
  size_t left = values.size();
  for (size_t step = 0; step < sizes.size(); ++step) {
    while (values[left - 1] <= static_cast<int64_t>(step))
      --left;
    sizes[step] = static_cast<int64_t>(left);
  }
  return Packing(std::move(sizes));
}

Tensor Packing::batch_sizes() const {
  return host_list(sizes_);
}
Tensor Packing::lengths() const {
  return host_list(lengths_);
}

RowMap Packing::to_padded(int64_t steps, bool by_sequence, bool reverse) const {
  std::vector<int64_t> from(static_cast<size_t>(steps * batch()), -1), back(static_cast<size_t>(rows()));
  for (size_t step = 0; step < sizes_.size(); ++step)
    for (int64_t sequence = 0; sequence < sizes_[step]; ++sequence) {
      int64_t own = static_cast<int64_t>(step), row = begins_[step] + sequence;
      int64_t time = reverse ? lengths_[static_cast<size_t>(sequence)] - 1 - own : own;
      int64_t place = by_sequence ? sequence * steps + time : time * batch() + sequence;
      from[static_cast<size_t>(place)] = row, back[static_cast<size_t>(row)] = place;
    }
  return {host_list(from), host_list(back)};
}

RowMap Packing::to_last() const {
  std::vector<int64_t> from(lengths_.size()), back(static_cast<size_t>(rows()), -1);
  for (size_t sequence = 0; sequence < lengths_.size(); ++sequence) {
    int64_t own = static_cast<int64_t>(sequence), row = begins_[static_cast<size_t>(lengths_[sequence]) - 1] + own;
    from[sequence] = row, back[static_cast<size_t>(row)] = own;
  }
  return {host_list(from), host_list(back)};
}

// ---- torch's functions

namespace {

// x [steps, batch, ..], or [batch, steps, ..] by sequence, as one list of rows.
Tensor rows_of_steps(const Tensor &x) {
  Dims sizes = {x.size(0) * x.size(1)};
  sizes.append(x.sizes().begin() + 2, x.sizes().end());
  return x.reshape(sizes);
}

Tensor steps_of_rows(const Tensor &rows, int64_t first, int64_t second) {
  Dims sizes = {first, second};
  sizes.append(rows.sizes().begin() + 1, rows.sizes().end());
  return rows.view(sizes);
}

Tensor2 pack_padded(c10::DispatchKeySet keys, const Tensor &input, const Tensor &lengths, bool by_sequence) {
  if (is_our_own(keys, input) && input.dim() >= 2) {
    std::optional<Packing> packing = Packing::of_lengths(lengths);
    int64_t steps = input.size(by_sequence ? 1 : 0), batch = input.size(by_sequence ? 0 : 1);
    if (packing.has_value() && packing->batch() == batch && packing->steps() <= steps) {
      RowMap map = packing->to_padded(steps, by_sequence, false).inverse();
      return {gather_rows(rows_of_steps(input), map, {0}), packing->batch_sizes()};
    }
  }
  return at::native::_pack_padded_sequence(input, lengths, by_sequence);
}

Tensor pack_padded_backward(c10::DispatchKeySet keys, const Tensor &grad, c10::SymIntArrayRef input_sizes,
                            const Tensor &batch_sizes, bool by_sequence) {
  std::optional<Packing> packing = Packing::of(keys, grad, batch_sizes);
  if (!packing.has_value())
    return at::native::_pack_padded_sequence_backward_symint(grad, input_sizes, batch_sizes, by_sequence);
  int64_t first = input_sizes[0].expect_int(), second = input_sizes[1].expect_int();
  RowMap map = packing->to_padded(by_sequence ? second : first, by_sequence, false);
  return steps_of_rows(take_rows(grad, map, {0}), first, second);
}

Tensor2 pad_packed(c10::DispatchKeySet keys, const Tensor &data, const Tensor &batch_sizes, bool by_sequence,
                   const Scalar &padding, int64_t total) {
  std::optional<Packing> packing;
  if (!padding.isComplex())
    packing = Packing::of(keys, data, batch_sizes);
  if (!packing.has_value() || (total > 0 && total < packing->steps()))
    return at::native::_pad_packed_sequence(data, batch_sizes, by_sequence, padding, total);
  check_converts(padding, data.scalar_type());
  int64_t steps = std::max(total, packing->steps());
  Tensor rows = take_rows(data, packing->to_padded(steps, by_sequence, false), {padding});
  int64_t batch = packing->batch();
  return {by_sequence ? steps_of_rows(rows, batch, steps) : steps_of_rows(rows, steps, batch), packing->lengths()};
}

// Lengths are dims of these copies, so they are a program of their own.
Tensor pad_sequences(TensorList sequences, bool by_sequence, double padding, c10::string_view side) {
  Tensor padded = at::native::pad_sequence(sequences, by_sequence, padding, side);
  if (capture() == nullptr && is_on_device(padded))
    check(hr_stream_commit(stream()));
  return padded;
}

HEADRACE_KERNELS(aten, PrivateUse1, m) {
  m.impl("_pack_padded_sequence", TORCH_FN(pack_padded));
  m.impl("_pack_padded_sequence_backward", TORCH_FN(pack_padded_backward));
  m.impl("_pad_packed_sequence", TORCH_FN(pad_packed));
  m.impl("pad_sequence", TORCH_FN(pad_sequences));
}
HEADRACE_KERNELS(aten, AutogradPrivateUse1, m) { // the others' gradients are those of their parts
  m.impl("_pack_padded_sequence_backward", TORCH_FN(pack_padded_backward));
  m.impl("_pad_packed_sequence", TORCH_FN(pad_packed));
  m.impl("pad_sequence", TORCH_FN(pad_sequences));
}

} // namespace
} // namespace headrace
