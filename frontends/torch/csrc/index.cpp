// index.cpp: concatenation, padding, gathers and scatters, fills made from the index, and random numbers.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/embedding_native.h>
#include <ATen/ops/nonzero.h>
#include <c10/core/DefaultDtype.h>

#include "kernels.h"
#include "versions.h"

namespace headrace {
namespace {

Tensor index_of(const Tensor &index, const char *name) {
  TORCH_CHECK(index.scalar_type() == ScalarType::Long || index.scalar_type() == ScalarType::Int, name,
              "(): Expected dtype int32/int64 for index");
  if (!is_on_device(index))
    fail_device(index);
  return to_type(index, ScalarType::Long);
}

// Fails if the result overlaps a tensor that is read at other positions than written.
void check_apart(const Result &result, const Tensor &read) {
  if (!result.is_fresh())
    at::assert_no_overlap(result.tensor(), read);
}

// The sizes of a tensor, at least one dim.
Dims at_least_1d(const Tensor &tensor) {
  return tensor.dim() == 0 ? Dims{1} : Dims(tensor.sizes().begin(), tensor.sizes().end());
}

// The tensor that an operation "written in place" starts from: self's values in the result's memory.
Tensor begin_from(Result result, const Tensor &self, const Inputs &inputs) {
  if (result.is_inplace()) {
    at::assert_no_internal_overlap(self);
    return self;
  }
  Tensor out = result.begin(self.sizes(), self.scalar_type(), inputs); // a new one in the default layout, as torch's
  if (!out.is_same(self))
    copy_on_device(self, out);
  return out;
}

} // namespace

// ---- index maps

Tensor cat(Result result, const at::ITensorListRef &tensors, int64_t dim) {
  auto list = tensors.materialize();
  TORCH_CHECK_VALUE(!list.empty(), "expected a non-empty list of Tensors");
  const Tensor *first = nullptr;
  ScalarType type = ScalarType::Undefined;
  bool channels_last = true;
  for (const Tensor &tensor : list) {
    if (!is_on_device(tensor))
      fail_device(tensor);
    type = type == ScalarType::Undefined ? tensor.scalar_type() : c10::promoteTypes(type, tensor.scalar_type());
    if (tensor.dim() == 1 && tensor.size(0) == 0)
      continue; // joins tensors of any rank, for compatibility
    TORCH_CHECK(tensor.dim() > 0, "zero-dimensional tensor (at position ", &tensor - &list[0].get(),
                ") cannot be concatenated");
    if (first == nullptr)
      first = &tensor;
    channels_last &= tensor.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
  }
  if (first == nullptr)
    return result.end(result.begin({0}, type));
  int64_t along = at::maybe_wrap_dim(dim, first->dim());
  Dims sizes(first->sizes().begin(), first->sizes().end());
  sizes[along] = 0;
  for (const Tensor &tensor : list) {
    if (tensor.dim() == 1 && tensor.size(0) == 0)
      continue;
    TORCH_CHECK(tensor.dim() == first->dim(), "Tensors must have same number of dimensions: got ", first->dim(),
                " and ", tensor.dim());
    for (int64_t i = 0; i < tensor.dim(); ++i) {
      TORCH_CHECK(i == along || tensor.size(i) == sizes[i], "Sizes of tensors must match except in dimension ", along,
                  ". Expected size ", sizes[i], " but got size ", tensor.size(i), " for tensor in the list.");
    }
    sizes[along] += tensor.size(along);
  }
  Tensor out =
      result.begin(sizes, type, {}, channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  for (const Tensor &tensor : list)
    check_apart(result, tensor);
  if (out.numel() == 0)
    return result.end(out);
  std::vector<Tensor> converted; // of those alone: a copy of a tensor that Python holds takes the interpreter's lock
  Record record(HR_OP_CAT);
  for (const Tensor &tensor : list) {
    if (tensor.numel() == 0)
      continue;
    bool is_typed = tensor.scalar_type() == type;
    record.in(is_typed ? tensor : converted.emplace_back(to_type(tensor, type)));
  }
  record.ints({along}).out(out).run();
  return result.end(out);
}

Tensor constant_pad(const Tensor &self, IntArrayRef pad, const Scalar &value) {
  int64_t rank = self.dim(), pairs = static_cast<int64_t>(pad.size()) / 2;
  TORCH_CHECK(pad.size() % 2 == 0, "Length of pad must be even but instead it equals ", pad.size());
  TORCH_CHECK(pairs <= rank,
              "Length of pad should be no more than twice the number of dimensions of the input. Pad length is ",
              pad.size(), "while the input has ", rank, "dimensions.");
  Dims sizes(self.sizes().begin(), self.sizes().end()), before(rank, 0), after(rank, 0);
  for (int64_t i = 0; i < pairs; ++i) {
    int64_t dim = rank - 1 - i;
    before[dim] = pad[2 * i], after[dim] = pad[2 * i + 1];
    sizes[dim] += before[dim] + after[dim];
    TORCH_CHECK(sizes[dim] >= 0, "The input size ", self.size(dim), ", plus negative padding ", before[dim], " and ",
                after[dim], " resulted in a negative output size, which is invalid. Check dimension ", dim,
                " of your input.");
    int64_t first = std::min<int64_t>(before[dim], 0), last = std::min<int64_t>(after[dim], 0);
    TORCH_CHECK(self.size(dim) + first + last >= 0, "negative padding ", first, " and ", last, " cuts more than the ",
                "input size ", self.size(dim), " of dimension ", dim);
  }
  if (std::none_of(pad.begin(), pad.end(), [](int64_t n) { return n > 0; })) { // nothing is filled
    Tensor part = self;
    for (int64_t dim = 0; dim < rank; ++dim)
      part = part.narrow(dim, -before[dim], sizes[dim]);
    return part.clone();
  }
  Tensor out = new_tensor(sizes, self.scalar_type(), self.suggest_memory_format());
  if (out.numel() == 0)
    return out;
  if (self.numel() == 0)
    return fill_with(out, value);
  check_converts(value, self.scalar_type());
  Record record(HR_OP_PAD);
  record.in(self).ints(before).ints(after).num(value).out(out).run();
  return out;
}

Tensor flip(const Tensor &self, IntArrayRef dims) {
  Tensor out = new_like(self);
  Dims strides(self.strides().begin(), self.strides().end());
  int64_t offset = 0;
  std::vector<bool> seen(self.dim(), false);
  for (int64_t dim : dims) {
    int64_t along = at::maybe_wrap_dim(dim, self.dim());
    TORCH_CHECK(self.dim() == 0 || !seen[along], "dim ", along, " appears multiple times in the list of dims");
    if (self.dim() == 0)
      continue;
    seen[along] = true;
    offset += (self.size(along) - 1) * strides[along];
    strides[along] = -strides[along];
  }
  if (out.numel() == 0)
    return out;
  Record record(HR_OP_COPY);
  record.in(self, self.sizes(), strides, offset).out(out).run();
  return out;
}

Tensor tri(Result result, const Tensor &self, int64_t diagonal, int64_t upper) {
  TORCH_CHECK(self.dim() >= 2, upper ? "triu" : "tril", ": input tensor must have at least 2 dimensions");
  Tensor out = result.begin(self.sizes(), self.scalar_type(), {self});
  if (out.numel() > 0) {
    Record record(HR_OP_TRI);
    record.in(self).ints({upper}).num(diagonal).out(out).run();
  }
  return result.end(out);
}

// ---- gathers

Tensor index_select(Result result, const Tensor &self, int64_t dim, const Tensor &index) {
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_select(): Index is supposed to be a vector");
  TORCH_CHECK(self.dim() > 0 || index.numel() == 1, "index_select(): Index to scalar can have only 1 value, got ",
              index.numel(), " value(s)");
  if (!is_on_device(self))
    fail_device(self);
  Tensor places = index_of(index, "index_select");
  Dims sizes(self.sizes().begin(), self.sizes().end());
  if (!sizes.empty())
    sizes[along] = index.numel();
  if (!result.is_fresh())
    at::assert_no_internal_overlap(result.tensor());
  Tensor out = result.begin(sizes, self.scalar_type());
  check_apart(result, self), check_apart(result, index);
  if (out.numel() == 0)
    return result.end(out);
  TORCH_CHECK_INDEX(self.numel() > 0, "index out of range in self");
  Dims self_sizes = at_least_1d(self), out_sizes = at_least_1d(out);
  Record record(HR_OP_INDEX_SELECT);
  record.in(self, self_sizes, self.dim() == 0 ? IntArrayRef{1} : self.strides());
  record.in(places, {places.numel()}, places.dim() == 0 ? IntArrayRef{1} : places.strides()).ints({along});
  record.out(out, out_sizes, out.dim() == 0 ? IntArrayRef{1} : out.strides()).run();
  return result.end(out);
}

static void check_gather(const char *name, const Tensor &self, int64_t dim, const Tensor &index, const Tensor *source) {
  TORCH_CHECK(index.scalar_type() == ScalarType::Long || index.scalar_type() == ScalarType::Int, name,
              "(): Expected dtype int32/int64 for index");
  auto rank = [](const Tensor &tensor) { return std::max<int64_t>(tensor.dim(), 1); };
  TORCH_CHECK(rank(self) == rank(index), "Index tensor must have the same number of dimensions as ",
              source == nullptr ? "input" : "self", " tensor");
  TORCH_CHECK(source == nullptr || rank(*source) == rank(index),
              "Index tensor must have the same number of dimensions as src tensor");
  for (int64_t i = 0; i < self.dim() && i < index.dim(); ++i) {
    TORCH_CHECK(i == dim || index.size(i) <= self.size(i), "Size does not match at dimension ", i, " expected index ",
                index.sizes(), " to be no larger than self ", self.sizes(), " apart from dimension ", dim);
    TORCH_CHECK(source == nullptr || source->dim() == 0 || index.size(i) <= source->size(i), "Expected index ",
                index.sizes(), " to be no larger than self ", self.sizes(), " apart from dimension ", dim,
                " and to be no larger size than src ", source == nullptr ? self.sizes() : source->sizes());
  }
}

Tensor gather(Result result, const Tensor &self, int64_t dim, const Tensor &index) {
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  if (!is_on_device(self))
    fail_device(self);
  if (index.numel() == 0)
    return result.end(result.begin(index.sizes(), self.scalar_type()));
  check_gather("gather", self, along, index, nullptr);
  Tensor places = index_of(index, "gather");
  Tensor out = result.begin(index.sizes(), self.scalar_type(), {index});
  check_apart(result, self);
  Record record(HR_OP_GATHER);
  record.in(self).in(places).ints({along}).out(out).run();
  return result.end(out);
}

// ---- scatters

int64_t scatter_mode(std::string_view reduce, bool include_self) {
  TORCH_CHECK_NOT_IMPLEMENTED(include_self, "headrace: scatter_reduce with include_self=False is not implemented");
  if (reduce == "add" || reduce == "sum")
    return 1;
  if (reduce == "multiply" || reduce == "prod")
    return 2;
  if (reduce == "amax")
    return 3;
  if (reduce == "amin")
    return 4;
  TORCH_CHECK_NOT_IMPLEMENTED(reduce != "mean", "headrace: scatter_reduce with reduce=\"mean\" is not implemented");
  TORCH_CHECK(false, "reduce argument must be either add or multiply, or sum, prod, mean, amax or amin, got ", reduce);
}

Tensor scatter(Result result, const Tensor &self, int64_t dim, const Tensor &index, const Operand &source, int64_t mode,
               bool is_index_error) {
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  bool is_number = source.tensor == nullptr;
  if (!is_on_device(self))
    fail_device(self);
  if (index.numel() > 0)
    check_gather("scatter", self, along, index, is_number ? nullptr : source.tensor);
  TORCH_CHECK(is_number || source.tensor->scalar_type() == self.scalar_type(),
              "scatter(): Expected self.dtype to be equal to src.dtype");
  Tensor places = index.numel() > 0 ? index_of(index, "scatter") : index;
  Tensor other = is_number ? Tensor() : *source.tensor;
  Tensor out = begin_from(result, self, {index, other}), target = out;
  if (index.numel() == 0)
    return result.end(out);
  if (mode == 0 && c10::isFloat8Type(self.scalar_type())) { // moved as bytes
    if (is_number) {
      Tensor number = new_tensor({}, self.scalar_type());
      Record(HR_OP_COPY).in(source.number).out(number).run();
      other = number.expand(index.sizes());
    }
    other = other.view(ScalarType::Byte);
    target = out.view(ScalarType::Byte);
  }
  Record record(HR_OP_SCATTER);
  record.in(places);
  if (other.defined())
    record.in(other);
  else
    record.in(source.number);
  record.ints({along, mode, is_index_error}).out(target).run();
  return result.end(out);
}

Tensor index_add(Result result, const Tensor &self, int64_t dim, const Tensor &index, const Tensor &source,
                 const Scalar &alpha) {
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_add_(): Index is supposed to be a vector, but got dim: ", index.dim());
  TORCH_CHECK(self.scalar_type() == source.scalar_type(), "index_add_(): self (", self.scalar_type(), ") and source (",
              source.scalar_type(), ") must have the same dtype");
  TORCH_CHECK(source.dim() == 0 || index.numel() == source.size(along), "index_add_(): Number of indices (",
              index.numel(), ") should be equal to source.size(dim): (", source.dim() == 0 ? 1 : source.size(along),
              "), for dim: ", along);
  if (!is_on_device(self))
    fail_device(self);
  Tensor places = index_of(index, "index_add");
  Tensor out = begin_from(result, self, {index, source});
  if (index.numel() > 0 && source.numel() > 0) {
    Record record(HR_OP_INDEX_ADD);
    record.in(places).in(source).ints({along}).num(alpha).out(out).run();
  }
  return result.end(out);
}

// ---- advanced indexing

namespace {

// A list of indices in the core's form: a mask of the indexed dims, the indices broadcast against each other, and the
// position of their dims in the result: that of the first indexed dim, or the front if the indexed dims are not
// adjacent.
struct Selection {
  int64_t mask = 0, position = 0;
  std::vector<Tensor> indices;
  at::DimVector broadcast;
  Dims sizes;

  Selection(const Tensor &self, const IndexList &list) {
    std::vector<Tensor> given; // by dim; undefined: not indexed
    for (std::optional<Tensor> entry : list) {
      if (!entry.has_value() || !entry->defined()) {
        given.emplace_back();
        continue;
      }
      Tensor index = *entry;
      ScalarType type = index.scalar_type();
      TORCH_CHECK_INDEX(type == ScalarType::Long || type == ScalarType::Int || type == ScalarType::Bool ||
                            type == ScalarType::Byte,
                        "tensors used as indices must be long, int, byte or bool tensors");
      if (index.device().is_cpu())
        index = index.to(here()); // torch allows indices and masks from the host
      if (type == ScalarType::Bool || type == ScalarType::Byte) {
        check_mask(self, index, given.size());
        Tensor places = at::nonzero(index);
        for (int64_t i = 0; i < index.dim(); ++i)
          given.push_back(places.select(1, i));
        continue;
      }
      given.push_back(to_type(index, ScalarType::Long));
    }
    TORCH_CHECK_INDEX(static_cast<int64_t>(given.size()) <= self.dim(), "too many indices for tensor of dimension ",
                      self.dim(), " (got ", given.size(), ")");
    given.resize(self.dim());
    int64_t first = -1, last = -1, count = 0;
    for (int64_t i = 0; i < self.dim(); ++i) {
      if (!given[i].defined())
        continue;
      broadcast = count == 0 ? at::DimVector(given[i].sizes()) : infer(given, i);
      first = count == 0 ? i : first;
      last = i;
      ++count;
      mask |= int64_t{1} << i;
    }
    position = count > 0 && last - first + 1 == count ? first : 0;
    for (int64_t i = 0, kept = 0; i <= self.dim(); ++i) {
      if (kept == position && sizes.size() == static_cast<size_t>(position) && count > 0 && !placed_) {
        sizes.append(broadcast.begin(), broadcast.end());
        placed_ = true;
      }
      if (i < self.dim() && !given[i].defined()) {
        sizes.push_back(self.size(i));
        ++kept;
      }
    }
    for (int64_t i = 0; i < self.dim(); ++i) {
      if (!given[i].defined())
        continue;
      TORCH_CHECK_INDEX(self.size(i) > 0 || given[i].numel() == 0, "index is out of bounds for dimension with size 0");
      indices.push_back(given[i]);
    }
  }

private:
  bool placed_ = false;

  at::DimVector infer(const std::vector<Tensor> &given, int64_t i) const {
    bool fits = at::are_expandable(broadcast, given[i].sizes());
    TORCH_CHECK_INDEX(fits, "shape mismatch: indexing tensors could not be broadcast together with shapes ", broadcast,
                      ", ", given[i].sizes());
    return at::infer_size_dimvector(broadcast, given[i].sizes());
  }

  static void check_mask(const Tensor &self, const Tensor &index, size_t at) {
    for (int64_t i = 0; i < index.dim(); ++i) {
      int64_t dim = static_cast<int64_t>(at) + i;
      TORCH_CHECK_INDEX(dim < self.dim() && index.size(i) == self.size(dim), "The shape of the mask ", index.sizes(),
                        " at index ", i, " does not match the shape of the indexed tensor ", self.sizes(), " at index ",
                        dim);
    }
  }
};

// One boolean mask over all of self with a single value: a selection that needs no positions.
bool is_masked_fill(const Tensor &self, const IndexList &list, const Tensor &values, bool accumulate) {
  if (accumulate || values.numel() != 1 || list.size() != 1)
    return false;
  std::optional<Tensor> mask = list.get(0);
  return mask.has_value() && mask->defined() && is_on_device(*mask) && mask->scalar_type() == ScalarType::Bool &&
         mask->sizes().equals(self.sizes().slice(0, mask->dim()));
}

} // namespace

Tensor index(Result result, const Tensor &self, const IndexList &list) {
  if (!is_on_device(self))
    fail_device(self);
  Selection selection(self, list);
  Tensor out = result.begin(selection.sizes, self.scalar_type(), {self});
  if (out.numel() == 0)
    return result.end(out);
  Record record(HR_OP_INDEX);
  record.in(self);
  for (const Tensor &one : selection.indices)
    record.in(one, selection.broadcast);
  record.ints({selection.mask, selection.position}).out(out).run();
  return result.end(out);
}

Tensor index_put(const Tensor &self, const IndexList &list, const Tensor &values, bool accumulate) {
  if (!is_on_device(self))
    fail_device(self);
  TORCH_CHECK(self.scalar_type() == values.scalar_type(),
              "Index put requires the source and destination dtypes match, got ", self.scalar_type(),
              " for the destination and ", values.scalar_type(), " for the source.");
  at::assert_no_internal_overlap(self);
  if (is_masked_fill(self, list, values, accumulate)) {
    Tensor mask = *list.get(0);
    while (mask.dim() < self.dim())
      mask = mask.unsqueeze(-1);
    return masked_fill(Result::inplace(self), self, mask, values.dim() == 0 ? values : values.reshape({}));
  }
  Selection selection(self, list);
  TORCH_CHECK(at::is_expandable_to(values.sizes(), selection.sizes), "shape mismatch: value tensor of shape ",
              values.sizes(), " cannot be broadcast to indexing result of shape ", IntArrayRef(selection.sizes));
  int64_t count = 1;
  for (int64_t size : selection.sizes)
    count *= size;
  if (count == 0)
    return self;
  Record record(HR_OP_INDEX_PUT);
  if (is_on_device(values))
    record.in(values, selection.sizes);
  else if (is_cpu_scalar(values))
    record.in(number_of(values));
  else
    fail_device(values);
  for (const Tensor &one : selection.indices)
    record.in(one, selection.broadcast);
  record.ints({selection.mask, selection.position, accumulate}).out(self).run();
  return self;
}

// One record for the usual case, in which torch makes a list of the indices, selects rows and shapes the result.
Tensor embedding(const Tensor &weight, const Tensor &indices, int64_t padding_index, bool scale_by_frequency,
                 bool sparse) {
  if (weight.dim() != 2 || weight.numel() == 0 || indices.numel() == 0 || !is_here(indices) ||
      indices.scalar_type() != ScalarType::Long || !indices.is_contiguous())
    return at::native::embedding_symint(weight, indices, padding_index, scale_by_frequency, sparse);
  int64_t count = indices.numel(), width = weight.size(1);
  Dims sizes(indices.sizes().begin(), indices.sizes().end());
  sizes.push_back(width);
  Tensor out = new_tensor(sizes, weight.scalar_type());
  Record record(HR_OP_INDEX_SELECT);
  record.in(weight).in(indices, {count}, {1}).ints({0}).out(out, {count, width}, {width, 1}).run();
  return out;
}

Tensor embedding_backward(const Tensor &grad, const Tensor &indices, int64_t count, int64_t padding_index,
                          bool scale_by_frequency) {
  Tensor places = index_of(indices, "embedding_backward");
  Tensor out = new_tensor({count, grad.size(-1)}, grad.scalar_type());
  if (out.numel() == 0)
    return out;
  if (indices.numel() == 0)
    return fill_with(out, 0);
  Record record(HR_OP_EMBEDDING_BACKWARD);
  record.in(grad).in(places).ints({padding_index, scale_by_frequency}).out(out).run();
  return out;
}

// ---- computed from the index

Tensor arange(Result result, ScalarType type, const Scalar &start, const Scalar &end, const Scalar &step) {
  bool integral = c10::isIntegralType(type, false);
  double first = start.toDouble(), last = end.toDouble();
  bool is_exact = type == ScalarType::Long; // since torch 2.14 fractions count, as for other dtypes
  if (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14)
    is_exact &= start.isIntegral(true) && end.isIntegral(true) && step.isIntegral(true);
  TORCH_CHECK(!kSince215 || std::isfinite(step.toDouble()), "step must be finite but got ", step.toDouble());
  double by = is_exact ? static_cast<double>(step.to<int64_t>()) : step.toDouble();
  TORCH_CHECK(step.toDouble() != 0, "step must be nonzero");
  TORCH_CHECK(!std::isnan(by), "step must be nonzero");
  TORCH_CHECK_VALUE(by != 0, "step must be nonzero");
  TORCH_CHECK(std::isfinite(first) && std::isfinite(last), "unsupported range: ", first, " -> ", last);
  TORCH_CHECK((by > 0 && last >= first) || (by < 0 && last <= first),
              "upper bound and lower bound inconsistent with step sign");
  int64_t count;
  if (is_exact) {
    int64_t a = start.to<int64_t>(), b = end.to<int64_t>(), s = step.to<int64_t>();
    count = (b - a + s - (s > 0 ? 1 : -1)) / s;
  } else {
    count = static_cast<int64_t>(std::ceil((last - first) / by));
  }
  bool fits = !result.is_fresh() && result.tensor().numel() == count && result.tensor().dim() == 1;
  Tensor out = fits ? result.tensor() : result.begin({count}, type);
  if (count == 0)
    return out;
  Record record(HR_OP_ARANGE);
  if (integral)
    record.num(start.to<int64_t>()).num(step.to<int64_t>());
  else
    record.num(first).num(by);
  record.out(out).run();
  return out;
}

Tensor eye(Result result, int64_t rows, int64_t columns) {
  TORCH_CHECK(rows >= 0, "n must be greater or equal to 0, got ", rows);
  TORCH_CHECK(columns >= 0, "m must be greater or equal to 0, got ", columns);
  Tensor out = result.begin({rows, columns}, result.tensor().scalar_type());
  if (out.numel() > 0) {
    Record record(HR_OP_EYE);
    record.out(out).run();
  }
  return out;
}

// ---- random numbers

namespace {

// The lowest and the largest finite number of a dtype; for integers, within int64's range.
std::pair<double, double> range_of(ScalarType type) {
  double largest = 0;
  switch (type) {
    case ScalarType::Half:
      largest = std::numeric_limits<c10::Half>::max();
      break;
    case ScalarType::BFloat16:
      largest = std::numeric_limits<c10::BFloat16>::max();
      break;
    case ScalarType::Float:
      largest = std::numeric_limits<float>::max();
      break;
    case ScalarType::Double:
      largest = std::numeric_limits<double>::max();
      break;
    default: {
      int bits = type == ScalarType::Bool ? 1 : static_cast<int>(8 * c10::elementSize(type));
      bool is_signed = type != ScalarType::Bool && c10::isSignedType(type);
      largest = std::ldexp(1.0, std::min(is_signed ? bits - 1 : bits, 63)) - 1;
      return {is_signed ? -std::ldexp(1.0, bits - 1) : 0, largest};
    }
  }
  return {-largest, largest};
}

void check_bound(const char *name, double value, ScalarType type) {
  auto [least, largest] = range_of(type);
  TORCH_CHECK(least <= value && value <= largest, name, " is out of bounds for ", type);
}

void check_real(const char *name, const Tensor &self) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isFloatingType(self.scalar_type()), "\"", name, "\" not implemented for '",
                              self.scalar_type(), "'");
}

} // namespace

Tensor uniform(const Tensor &self, double from, double to, const OptionalGenerator &generator) {
  if (self.is_complex()) {
    headrace::uniform(headrace::view_as_real(self), from, to, generator);
    return self;
  }
  check_real("uniform_", self);
  check_bound("from", from, self.scalar_type());
  check_bound("to", to, self.scalar_type());
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from, " > to=", to);
  if (self.numel() == 0)
    return self;
  at::assert_no_internal_overlap(self);
  Record record(HR_OP_UNIFORM);
  record.num(from).num(to).philox(next_philox(generator)).out(self).run();
  return self;
}

Tensor normal(const Tensor &self, double mean, double deviation, const OptionalGenerator &generator) {
  TORCH_CHECK(deviation >= 0, "normal expects std >= 0.0, but found std ", deviation);
  if (self.numel() == 0)
    return self;
  if (self.is_complex()) { // the real and the imaginary part have half of the variance each
    headrace::normal(headrace::view_as_real(self), mean, deviation / std::sqrt(2.0), generator);
    return self;
  }
  check_real("normal_", self);
  at::assert_no_internal_overlap(self);
  Record record(HR_OP_NORMAL);
  record.absent().absent().num(mean).num(deviation).philox(next_philox(generator)).out(self).run();
  return self;
}

Tensor normal_like(Result result, const Operand &mean, const Operand &deviation, const OptionalGenerator &generator) {
  const Tensor *first = mean.tensor != nullptr ? mean.tensor : deviation.tensor;
  check_real("normal", *first);
  TORCH_CHECK(deviation.tensor != nullptr || deviation.number.value.f[0] >= 0,
              "normal expects std >= 0.0, but found std ", deviation.number.value.f[0]);
  at::DimVector sizes(first->sizes());
  if (mean.tensor != nullptr && deviation.tensor != nullptr)
    sizes = at::infer_size_dimvector(sizes, deviation.tensor->sizes());
  bool has_both = mean.tensor != nullptr && deviation.tensor != nullptr;
  TORCH_CHECK(result.is_fresh() || has_both || result.tensor().sizes().equals(sizes), "The size of the output ",
              result.is_fresh() ? IntArrayRef() : result.tensor().sizes(), " must match the size of the input ", sizes);
  Tensor out = result.begin(sizes, first->scalar_type(), {*first});
  if (out.numel() == 0)
    return result.end(out);
  Record record(HR_OP_NORMAL);
  for (const Operand *operand : {&mean, &deviation}) {
    if (operand->tensor != nullptr)
      record.in(*operand->tensor, sizes);
    else
      record.absent();
  }
  record.num(mean.tensor != nullptr ? 0.0 : mean.number.value.f[0])
      .num(deviation.tensor != nullptr ? 1.0 : deviation.number.value.f[0]);
  record.philox(next_philox(generator)).out(out).run();
  return result.end(out);
}

Tensor bernoulli(const Tensor &self, const Operand &p, const OptionalGenerator &generator) {
  TORCH_CHECK(p.tensor != nullptr || (p.number.value.f[0] >= 0 && p.number.value.f[0] <= 1),
              "bernoulli_ expects p to be in [0, 1], but got p=", p.number.value.f[0]);
  if (p.tensor != nullptr)
    check_real("bernoulli_", *p.tensor);
  if (self.numel() == 0)
    return self;
  at::assert_no_internal_overlap(self);
  Record record(HR_OP_BERNOULLI);
  bool on_device = p.tensor != nullptr && is_on_device(*p.tensor);
  if (on_device)
    record.in(*p.tensor, self.sizes());
  else if (p.tensor != nullptr)
    record.in(p.tensor->to(here()), self.sizes());
  else
    record.absent();
  record.num(p.tensor == nullptr ? p.number.value.f[0] : 0.0).philox(next_philox(generator)).out(self).run();
  return self;
}

Tensor bernoulli_like(Result result, const Tensor &p, const OptionalGenerator &generator) {
  ScalarType type = result.is_fresh() ? p.scalar_type() : result.tensor().scalar_type();
  Tensor out = result.begin(p.sizes(), type, {p});
  bernoulli(out, Operand(p), generator);
  return result.end(out);
}

Tensor exponential(const Tensor &self, double lambda, const OptionalGenerator &generator) {
  TORCH_CHECK(c10::isFloatingType(self.scalar_type()),
              "Exponential distribution is a continuous probability distribution. dtype must be a floating point but ",
              "you specified ", self.scalar_type());
  TORCH_CHECK(lambda > 0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
  if (self.numel() == 0)
    return self;
  at::assert_no_internal_overlap(self);
  Record record(HR_OP_EXPONENTIAL);
  record.num(lambda).philox(next_philox(generator)).out(self).run();
  return self;
}

// The upper bound of random_() without bounds: the largest number, plus one if that fits.
static int64_t random_limit(ScalarType type) {
  switch (type) {
    case ScalarType::Bool:
      return 2;
    case ScalarType::Byte:
      return 1 << 8;
    case ScalarType::Char:
      return 1 << 7;
    case ScalarType::Short:
      return 1 << 15;
    case ScalarType::UInt16:
      return 1 << 16;
    case ScalarType::Int:
      return int64_t{1} << 31;
    case ScalarType::UInt32:
      return int64_t{1} << 32;
    case ScalarType::Half:
      return (1 << 11) + 1;
    case ScalarType::BFloat16:
      return (1 << 8) + 1;
    case ScalarType::Float:
      return (1 << 24) + 1;
    case ScalarType::Double:
      return (int64_t{1} << 53) + 1;
    default:
      return std::numeric_limits<int64_t>::max();
  }
}

Tensor random(const Tensor &self, std::optional<int64_t> from, std::optional<int64_t> to,
              const OptionalGenerator &generator) {
  int64_t first = from.value_or(0), limit = to.value_or(random_limit(self.scalar_type()));
  if (to.has_value()) {
    check_bound("from", static_cast<double>(first), self.scalar_type());
    check_bound("to - 1", static_cast<double>(limit) - 1, self.scalar_type());
  }
  TORCH_CHECK(first < limit, "random_ expects 'from' to be less than 'to', but got from=", first, " >= to=", limit);
  if (self.numel() == 0)
    return self;
  at::assert_no_internal_overlap(self);
  Record record(HR_OP_RANDOM_INT);
  record.num(first).num(limit).philox(next_philox(generator)).out(self).run();
  return self;
}

Tensor2 dropout(const Tensor &self, double p, std::optional<bool> train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  TORCH_CHECK(c10::isFloatingType(self.scalar_type()), "native_dropout: expected a floating point tensor, not ",
              self.scalar_type());
  Tensor out = new_like(self), mask = new_like(self, ScalarType::Bool);
  if (out.numel() == 0)
    return {out, mask};
  if (!train.value_or(true)) {
    copy_on_device(self, out);
    fill_with(mask, true);
    return {out, mask};
  }
  Record record(HR_OP_DROPOUT);
  record.in(self).num(p).philox(next_philox(std::nullopt)).out(out).out(mask).run();
  return {out, mask};
}

Tensor dropout_backward(const Tensor &grad, const Tensor &mask, double scale) {
  TORCH_CHECK(mask.scalar_type() == ScalarType::Bool, "Mask should be Bool Scalar Type", mask.scalar_type());
  bool is_whole = c10::isIntegralType(grad.scalar_type(), true);
  Tensor factor = new_like(mask, is_whole ? c10::get_default_dtype_as_scalartype() : grad.scalar_type());
  if (factor.numel() > 0) {
    Record record(HR_OP_MUL);
    record.in(mask).in(hr_scalar_f64(std::isfinite(scale) ? scale : 0)).out(factor).run();
  }
  return pointwise(Result::fresh(), HR_OP_MUL, Rule::Same, grad, factor);
}

} // namespace headrace
