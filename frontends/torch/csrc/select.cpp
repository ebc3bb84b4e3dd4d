// select.cpp: operators that find positions: by mask, by value, by count. If the number of results depends on data, it
// is read (which commits) before the result is created.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/div.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "kernels.h"

namespace headrace {
namespace {

at::TensorOptions longs(const Tensor &like) {
  return like.options().dtype(ScalarType::Long);
}

void check_long(const char *name, const Tensor &index) {
  TORCH_CHECK(index.scalar_type() == ScalarType::Long, name, "(): Expected a long tensor for index, but got ",
              index.scalar_type());
}

// The row-major positions where a flat mask is true, in `count` elements; unused ones stay -1. A device beside the host
// has loops for it: a running sum and a scatter.
Tensor places_of(const Tensor &mask, int64_t count) {
  if (count == 0)
    return new_tensor({0}, ScalarType::Long);
  if (mask.numel() > 0 && !device_runs_beside.load(std::memory_order_relaxed)) {
    Tensor places = new_tensor({count}, ScalarType::Long);
    Record(HR_OP_PLACES).in(mask).out(places).run();
    return places;
  }
  Tensor out = fill_with(new_tensor({count + 1}, ScalarType::Long), -1); // the last element collects unwanted ones
  if (mask.numel() == 0)
    return out.narrow(0, 0, count);
  Tensor turn = mask.to(ScalarType::Long).cumsum(0) - 1;
  Tensor target = at::where(mask.logical_and(turn.lt(count)), turn, Scalar(count));
  out.scatter_(0, target, at::arange(mask.numel(), longs(mask)));
  return out.narrow(0, 0, count);
}

int64_t number_of_true(const Tensor &mask) {
  return mask.numel() == 0 ? 0 : mask.sum().item<int64_t>();
}

// [count, rank]: the coordinates of row-major positions; -1 gives `fill`.
Tensor coordinates(const Tensor &places, IntArrayRef sizes, int64_t fill) {
  int64_t count = places.numel(), rank = static_cast<int64_t>(sizes.size());
  Tensor out = new_tensor({rank, count}, ScalarType::Long);
  Tensor rest = places;
  Tensor is_none = places.lt(0);
  for (int64_t d = rank; d-- > 0;) {
    int64_t size = std::max<int64_t>(sizes[d], 1);
    copy_on_device(at::where(is_none, Scalar(fill), rest.remainder(size)), out.select(0, d));
    rest = rest.floor_divide(size);
  }
  return out.t();
}

} // namespace

Tensor nonzero(const Tensor &self) {
  Tensor mask = self.ne(0).reshape({-1});
  return coordinates(places_of(mask, number_of_true(mask)), self.sizes(), -1);
}

Tensor nonzero_out(const Tensor &self, const Tensor &out) {
  TORCH_CHECK(out.scalar_type() == ScalarType::Long,
              "nonzero: Expected out tensor to have scalar type Long but got scalar type", out.scalar_type());
  TORCH_CHECK(is_here(out), "Expected object of device type ", here().type(), " but got ", out.device());
  return Result::out(out).give(headrace::nonzero(self));
}

Tensor nonzero_static(Result result, const Tensor &self, int64_t size, int64_t fill) {
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  Tensor mask = self.ne(0).reshape({-1});
  return result.give(coordinates(places_of(mask, size), self.sizes(), fill));
}

Tensor masked_select(Result result, const Tensor &self, const Tensor &mask) {
  TORCH_CHECK(mask.scalar_type() == ScalarType::Bool, "masked_select: expected BoolTensor for mask");
  TORCH_CHECK(result.is_fresh() || self.scalar_type() == result.tensor().scalar_type(),
              "masked_select(): self and result must have the same scalar type");
  if (!result.is_fresh()) {
    at::assert_no_internal_overlap(result.tensor());
    at::assert_no_overlap(result.tensor(), self);
    at::assert_no_overlap(result.tensor(), mask);
  }
  at::DimVector sizes = at::infer_size_dimvector(self.sizes(), mask.sizes());
  Tensor flat_mask = mask.expand(sizes).reshape({-1});
  Tensor places = places_of(flat_mask, number_of_true(flat_mask));
  return result.give(self.expand(sizes).reshape({-1}).index_select(0, places));
}

Tensor masked_scatter(const Tensor &self, const Tensor &mask, const Tensor &source) {
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter: expected self and source to have same dtypes but got ", self.scalar_type(), " and ",
              source.scalar_type());
  TORCH_CHECK(mask.scalar_type() == ScalarType::Bool,
              "masked_scatter_ only supports boolean masks, but got mask with dtype ", mask.scalar_type());
  at::assert_no_internal_overlap(self);
  TORCH_CHECK(at::is_expandable_to(mask.sizes(), self.sizes()),
              "The expanded size of the mask must match the tensor's");
  if (self.numel() == 0)
    return self;
  Tensor wide = mask.expand(self.sizes()).reshape({-1}), from = source.reshape({-1});
  if (from.numel() < self.numel()) {
    TORCH_CHECK(number_of_true(wide) <= from.numel(), "Number of elements of source < number of ones in mask");
    if (from.numel() == 0)
      return self;
  }
  Tensor turn = (wide.to(ScalarType::Long).cumsum(0) - 1).clamp(0, from.numel() - 1);
  Tensor values = from.index_select(0, turn).view(self.sizes());
  return pointwise(Result::inplace(self), HR_OP_WHERE, Rule::Where, mask, values, self);
}

// ---- by position

Tensor take(Result result, const Tensor &self, const Tensor &index) {
  check_long("take", index);
  if (!result.is_fresh()) {
    TORCH_CHECK(result.tensor().scalar_type() == self.scalar_type(),
                "take(): self and out expected to have the same dtype, but got self.dtype = ", self.scalar_type(),
                " and out.dtype = ", result.tensor().scalar_type());
    at::assert_no_internal_overlap(result.tensor());
    at::assert_no_overlap(result.tensor(), self);
    at::assert_no_overlap(result.tensor(), index);
  }
  TORCH_CHECK_INDEX(self.numel() > 0 || index.numel() == 0, "take(): tried to take from an empty tensor");
  IndexList list;
  list.push_back(index);
  return result.give(headrace::index(Result::fresh(), self.reshape({-1}), list));
}

Tensor put(const Tensor &self, const Tensor &places, const Tensor &source, bool accumulate) {
  check_long("put_", places);
  TORCH_CHECK(places.numel() == source.numel(),
              "put_(): Expected source and index to have the same number of elements, but got source.numel() = ",
              source.numel(), ", index.numel() = ", places.numel());
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "put_(): self and source expected to have the same dtype, but got self.dtype = ", self.scalar_type(),
              " and source.dtype = ", source.scalar_type());
  at::assert_no_internal_overlap(self);
  at::assert_no_overlap(self, places);
  at::assert_no_overlap(self, source);
  TORCH_CHECK_INDEX(self.numel() > 0 || places.numel() == 0, "put_(): cannot put elements into an empty tensor");
  if (places.numel() == 0)
    return self;
  IndexList list;
  list.push_back(places.reshape({-1}));
  Tensor flat = self.is_contiguous() ? self.view({-1}) : self.clone(at::MemoryFormat::Contiguous).view({-1});
  headrace::index_put(flat, list, source.reshape({-1}), accumulate);
  if (!self.is_contiguous())
    copy_on_device(flat.view(self.sizes()), self);
  return self;
}

// The index broadcast to the source's shape, for scatter.
static Tensor spread_index(const Tensor &index, int64_t along, IntArrayRef sizes) {
  if (!is_on_device(index))
    fail_device(index);
  Dims strides(sizes.size(), 0);
  if (index.dim() > 0 && !sizes.empty())
    strides[along] = index.stride(0);
  return new_view_of(index, sizes, strides, index.storage_offset(), index.scalar_type());
}

Tensor index_copy(Result result, const Tensor &self, int64_t dim, const Tensor &index, const Tensor &source) {
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK_INDEX(index.dim() < 2, "index_copy_(): Index should have dimension 1 or 0 (got ", index.dim(), ")");
  TORCH_CHECK_INDEX(!(source.dim() == 0 && index.numel() != 1),
                    "index_copy_(): When source is scalar, index should have one element (got ", index.numel(), ")");
  TORCH_CHECK_INDEX(!(source.dim() != self.dim() && source.dim() != 0 && self.dim() != 0),
                    "index_copy_(): When source and destination are not scalars, their dimensionality must match. "
                    "Source dimensionality (",
                    source.dim(), "), destination dimensionality (", self.dim(), ")");
  TORCH_CHECK(index.scalar_type() == ScalarType::Long, "index_copy_(): Expected a long tensor for index, but got ",
              index.scalar_type());
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "index_copy_(): self and source expected to have the same dtype, but got (self) ", self.scalar_type(),
              " and (source) ", source.scalar_type());
  Dims expected(self.sizes().begin(), self.sizes().end()), given(source.sizes().begin(), source.sizes().end());
  if (!expected.empty())
    expected.erase(expected.begin() + along);
  if (!given.empty())
    given.erase(given.begin() + std::min<int64_t>(along, source.dim() - 1));
  TORCH_CHECK(IntArrayRef(expected).equals(given),
              "index_copy_(): Source/destination tensor must have same slice shapes. Destination slice shape: ",
              IntArrayRef(expected), " at dimension ", along, " and source slice shape: ", IntArrayRef(given),
              " at dimension 0.");
  TORCH_CHECK_INDEX(source.dim() == 0 || index.numel() == source.size(along), "index_copy_(): Number of indices (",
                    index.numel(), ") should be equal to source.size(dim) (",
                    source.dim() == 0 ? 1 : source.size(along), ")");
  Tensor out = result.is_inplace() ? self : self.clone(at::MemoryFormat::Contiguous);
  at::assert_no_internal_overlap(out);
  if (index.numel() > 0 && source.numel() > 0) {
    Tensor whole = out.dim() == 0 ? out.view({1}) : out,
           from = source.dim() == 0 && whole.dim() == 1 ? source.view({1}) : source;
    headrace::scatter(Result::inplace(whole), whole, along, spread_index(index, along, from.sizes()), Operand(from), 0,
                      true);
  }
  return result.is_inplace() ? self : result.give(out);
}

Tensor index_fill(const Tensor &self, int64_t dim, const Tensor &index, const Scalar &value) {
  TORCH_CHECK_INDEX(index.scalar_type() == ScalarType::Long || index.scalar_type() == ScalarType::Int,
                    "index_fill_(): Expected dtype int64 for index.");
  TORCH_CHECK(index.dim() <= 1, "Index has to be a vector/scalar");
  TORCH_CHECK(self.is_complex() || !value.isComplex(),
              "index_fill_(): Converting complex Scalar to non-complex type is not supported");
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  at::assert_no_internal_overlap(self);
  check_converts(value, self.scalar_type());
  if (index.numel() == 0 || self.numel() == 0)
    return self;
  Tensor whole = self.dim() == 0 ? self.view({1}) : self;
  Dims sizes(whole.sizes().begin(), whole.sizes().end());
  sizes[along] = index.numel();
  int64_t size = whole.size(along);
  Tensor places = at::where(index.lt(0).logical_and_(index.ge(-size)), index + size, index); // an error keeps its value
  headrace::scatter(Result::inplace(whole), whole, along, spread_index(places, along, sizes), Operand(value), 0, true);
  return self;
}

Tensor index_fill_tensor(const Tensor &self, int64_t dim, const Tensor &index, const Tensor &value) {
  TORCH_CHECK(value.dim() == 0, "index_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  return headrace::index_fill(self, dim, index, value.item());
}

// ---- scatters that reduce

static Scalar identity_of(std::string_view reduce, ScalarType type) {
  bool is_max = reduce == "amax", is_min = reduce == "amin";
  if (!is_max && !is_min)
    return reduce == "prod" || reduce == "multiply" ? 1 : 0;
  if (c10::isFloatingType(type))
    return is_max ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  if (type == ScalarType::Bool)
    return is_min;
  int bits = static_cast<int>(8 * c10::elementSize(type));
  bool is_signed = c10::isSignedType(type);
  int64_t most = bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
  return is_max ? (is_signed ? -most - 1 : 0) : most;
}

// Without include_self the targets start from the identity; a mean divides by the number of elements combined.
Tensor scatter_reduce(Result result, const Tensor &self, int64_t dim, const Tensor &index, const Tensor &source,
                      std::string_view reduce, bool include_self) {
  bool is_mean = reduce == "mean";
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex() || (reduce != "amax" && reduce != "amin") || index.numel() == 0,
                              "\"scatter_gather_tensor_cpu_reduce_amax\" not implemented for '", self.scalar_type(),
                              "'");
  if (include_self && !is_mean)
    return headrace::scatter(result, self, dim, index, Operand(source), scatter_mode(reduce, true));
  int64_t mode = scatter_mode(is_mean ? "sum" : reduce, true);
  TORCH_CHECK(!(is_mean && self.scalar_type() == ScalarType::Bool),
              "scatter(): mean reduction is not supported for boolean tensors");
  Tensor out = result.is_inplace() ? self : self.clone(at::MemoryFormat::Contiguous);
  if (index.numel() > 0) {
    if (!include_self)
      headrace::scatter(Result::inplace(out), out, dim, index, Operand(identity_of(reduce, self.scalar_type())), 0);
    headrace::scatter(Result::inplace(out), out, dim, index, Operand(source), mode);
    if (is_mean) {
      Tensor count = fill_with(new_tensor(self.sizes(), self.scalar_type()), include_self ? 1 : 0);
      Tensor ones = fill_with(new_tensor(index.sizes(), self.scalar_type()), 1);
      headrace::scatter(Result::inplace(count), count, dim, index, Operand(ones), 1);
      count = at::where(count.eq(0), Scalar(1), count).to(self.scalar_type());
      bool is_real = c10::isFloatingType(self.scalar_type()) || self.is_complex();
      Tensor quotient = is_real ? out / count : at::div(out, count, "floor");
      copy_on_device(quotient, out);
    }
  }
  return result.is_inplace() ? self : result.give(out);
}

Tensor index_reduce(Result result, const Tensor &self, int64_t dim, const Tensor &index, const Tensor &source,
                    std::string_view reduce, bool include_self) {
  int64_t along = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK(reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin",
              "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got ", reduce, ".");
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_reduce_(): Index is supposed to be a vector, but got dim: ", index.dim());
  TORCH_CHECK(index.scalar_type() == ScalarType::Long || index.scalar_type() == ScalarType::Int,
              "index_reduce_(): Expected dtype int32/int64 for index");
  bool is_order = reduce == "amax" || reduce == "amin";
  TORCH_CHECK_NOT_IMPLEMENTED(!is_order || !self.is_complex() || (index.numel() == 0 && self.dim() > 1),
                              "\"index_func_\" not implemented for '", self.scalar_type(), "'");
  TORCH_CHECK(self.scalar_type() == source.scalar_type(), "index_reduce_(): self (", self.scalar_type(),
              ") and source (", source.scalar_type(), ") must have the same scalar type");
  TORCH_CHECK(source.dim() == 0 || index.numel() == source.size(along), "index_reduce_(): Number of indices (",
              index.numel(), ") should be equal to source.size(dim): (", source.dim() == 0 ? 1 : source.size(along),
              "), for dim: ", along);
  Tensor out = result.is_inplace() ? self : self.clone(at::MemoryFormat::Contiguous);
  Tensor whole = out.dim() == 0 ? out.view({1}) : out, from = source.dim() == 0 ? source.view({1}) : source;
  if (index.numel() > 0 && from.numel() > 0)
    headrace::scatter_reduce(Result::inplace(whole), whole, along, spread_index(index, along, from.sizes()), from,
                             reduce, include_self);
  return result.is_inplace() ? self : result.give(out);
}

// ---- by value

static void check_isin(ScalarType type) {
  TORCH_CHECK(!c10::isComplexType(type) && type != ScalarType::Bool,
              "Unsupported input type encountered for isin(): ", type);
}

Tensor isin(Result result, const Tensor &elements, const Tensor &among, bool invert) {
  check_isin(elements.scalar_type()), check_isin(among.scalar_type());
  bool is_one = among.numel() == 1 && among.dim() > 0 && among.dim() <= elements.dim(); // as the end of a sequence
  Tensor found;
  if (elements.numel() == 0 || among.numel() == 0)
    found = fill_with(new_tensor(elements.sizes(), ScalarType::Bool), false);
  else if (is_one)
    found = pointwise_row_major(Result::fresh(), elements.sizes(), ScalarType::Bool, HR_OP_EQ, Rule::Compare, elements,
                                among);
  else
    found = elements.unsqueeze(-1).eq(among.reshape({-1})).any(-1);
  return result.give(invert ? found.logical_not() : found);
}

Tensor isin(Result result, const Tensor &elements, const Scalar &among, bool invert) {
  Tensor found = elements.eq(among);
  return result.give(invert ? found.logical_not() : found);
}

Tensor isin(Result result, const Scalar &element, const Tensor &among, bool invert) {
  Tensor found = among.numel() == 0 ? fill_with(new_tensor({}, ScalarType::Bool), false) : among.eq(element).any();
  return result.give(invert ? found.logical_not() : found);
}

// ---- by count

// The occurrences of each number below `bins`. Parts of a long list are counted separately and in parallel: integer
// sums are independent of order.
static Tensor count_numbers(const Tensor &list, int64_t bins) {
  constexpr int64_t kParts = 16, kNumbersOfBin = 8; // fewer are not worth another table
  int64_t parts = std::clamp<int64_t>(list.numel() / (kNumbersOfBin * bins), 1, kParts), length = list.numel() / parts;
  auto ones = [](IntArrayRef sizes) { return fill_with(new_tensor(sizes, ScalarType::Long), 1); };
  Tensor counts = fill_with(new_tensor({parts, bins}, ScalarType::Long), 0);
  counts.scatter_add_(1, list.narrow(0, 0, parts * length).reshape({parts, length}), ones({parts, length}));
  Tensor out = counts.sum(0), rest = list.narrow(0, parts * length, list.numel() - parts * length);
  return rest.numel() > 0 ? out.index_add_(0, rest, ones(rest.sizes())) : out;
}

Tensor bincount(const Tensor &self, const OptionalTensor &weights, int64_t least) {
  TORCH_CHECK(least >= 0, "minlength should be >= 0");
  TORCH_CHECK(c10::isIntegralType(self.scalar_type(), false), "\"bincount_cpu\" not implemented for '",
              self.scalar_type(), "'");
  bool has_weights = weights.has_value() && weights->defined();
  if (self.dim() == 1 && self.numel() == 0)
    return fill_with(new_tensor({least}, ScalarType::Long), 0);
  TORCH_CHECK(self.dim() == 1, "bincount only supports 1-d non-negative integral inputs.");
  Tensor smallest = self.min(), largest = self.max(); // both in one pass
  TORCH_CHECK(smallest.item<int64_t>() >= 0, "bincount only supports 1-d non-negative integral inputs.");
  TORCH_CHECK(!has_weights || (weights->dim() == 1 && weights->numel() == self.numel()),
              "weights should be 1-d and have the same length as input");
  int64_t count = std::max(largest.item<int64_t>() + 1, least);
  ScalarType type = !has_weights                                  ? ScalarType::Long
                    : weights->scalar_type() == ScalarType::Float ? ScalarType::Float
                                                                  : ScalarType::Double;
  Tensor number = to_type(self, ScalarType::Long);
  if (has_weights)
    return fill_with(new_tensor({count}, type), 0).index_add_(0, number, to_type(*weights, type));
  return count_numbers(number, count);
}

Tensor repeat_interleave(const Tensor &repeats, std::optional<int64_t> size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(repeats.scalar_type() == ScalarType::Long || repeats.scalar_type() == ScalarType::Int,
              "repeats has to be Long or Int tensor");
  if (repeats.numel() == 0)
    return new_tensor(repeats.sizes(), repeats.scalar_type());
  Tensor ends = to_type(repeats, ScalarType::Long).cumsum(0);
  TORCH_CHECK(repeats.min().item<int64_t>() >= 0, "repeats can not be negative");
  int64_t total = size.has_value() ? *size : ends.select(0, -1).item<int64_t>();
  TORCH_CHECK(!size.has_value() || ends.select(0, -1).item<int64_t>() == total,
              "allocated size does not match required size");
  // the number of segments that end before each position
  Tensor ended = fill_with(new_tensor({total + 1}, ScalarType::Long), 0);
  ended.index_add_(0, ends, fill_with(new_tensor(ends.sizes(), ScalarType::Long), 1));
  return to_type(ended.cumsum(0).narrow(0, 0, total), repeats.scalar_type());
}

Tensor triangle_indices(int64_t rows, int64_t columns, int64_t offset, bool upper, std::optional<ScalarType> dtype,
                        std::optional<at::Layout> layout) {
  TORCH_CHECK(rows >= 0, "row must be non-negative, got", rows);
  TORCH_CHECK(columns >= 0, "col must be non-negative, got", columns);
  TORCH_CHECK(!layout.has_value() || *layout == at::kStrided, "only support layout=torch.strided, got", *layout);
  Tensor row = at::arange(rows, at::TensorOptions(here()).dtype(ScalarType::Long)).unsqueeze(1);
  Tensor column = at::arange(columns, at::TensorOptions(here()).dtype(ScalarType::Long)).unsqueeze(0);
  Tensor inside = upper ? (column - row).ge(offset) : (column - row).le(offset);
  return to_type(headrace::nonzero(inside).t().contiguous(), dtype.value_or(ScalarType::Long));
}

// ---- rearrangements

Tensor roll(const Tensor &self, IntArrayRef shifts, IntArrayRef dims) {
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  if (dims.empty() && shifts.size() == 1)
    return headrace::roll(self.contiguous().view({-1}), shifts, IntArrayRef{0}).view(self.sizes());
  TORCH_CHECK(shifts.size() == dims.size(), "shifts and dimensions must align. shifts: ", shifts.size(),
              ", dims:", dims.size());
  if (self.numel() == 0)
    return self.clone();
  Tensor out = self;
  for (size_t i = 0; i < dims.size(); ++i) {
    int64_t along = at::maybe_wrap_dim(dims[i], self.dim(), false), size = self.dim() == 0 ? 1 : self.size(along);
    int64_t start = size == 0 ? 0 : ((size - shifts[i]) % size + size) % size;
    if (start != 0)
      out = at::cat({out.narrow(along, start, size - start), out.narrow(along, 0, start)}, along);
  }
  return out.is_same(self) ? self.clone(at::MemoryFormat::Contiguous) : out;
}

Tensor unfold_backward(const Tensor &grad, IntArrayRef sizes, int64_t dim, int64_t size, int64_t step) {
  Tensor out = fill_with(new_tensor(sizes, grad.scalar_type()), 0);
  int64_t along = at::maybe_wrap_dim(dim, out.dim());
  if (grad.numel() == 0)
    return out;
  Tensor whole = out.dim() == 0 ? out.view({1}) : out;
  int64_t count = grad.dim() == whole.dim() ? 1 : grad.size(along);
  for (int64_t k = size - 1; k >= 0;
       --k) { // windows overlap, but the k-th elements of all windows do not; the first window first
    Tensor part = whole.slice(along, k, k + (count - 1) * step + 1, step), from = grad.select(-1, k);
    pointwise(Result::inplace(part), HR_OP_ADD, Rule::Same, part, from.view(part.sizes()));
  }
  return out;
}

// ---- evenly spaced

namespace {

ScalarType wide_type(ScalarType type) {
  return c10::isComplexType(type) ? ScalarType::ComplexDouble : ScalarType::Double;
}

// As in torch, the ends of a line are rounded to its type first.
Scalar line_end(const Scalar &end, ScalarType type) {
  if (type == ScalarType::Half)
    return static_cast<double>(end.to<c10::Half>());
  if (type == ScalarType::BFloat16)
    return static_cast<double>(end.to<c10::BFloat16>());
  return c10::isIntegralType(type, false) ? Scalar(end.to<int64_t>()) : end;
}

// first + step * i in the first half, last - step * (steps - 1 - i) in the other; 16-bit types round the product, too
Tensor line(const Scalar &start, const Scalar &end, int64_t steps, ScalarType type) {
  Tensor place = new_tensor({steps}, ScalarType::Double);
  Record(HR_OP_ARANGE).num(0.0).num(1.0).out(place).run();
  Tensor is_first = pointwise(Result::fresh(), HR_OP_LT, Rule::Compare, place, Scalar(steps / 2));
  Tensor left =
      pointwise(Result::fresh(), HR_OP_ADD_SCALED, Rule::Same, static_cast<double>(steps - 1), place, fixed(-1));
  Tensor before = to_type(place, type), behind = to_type(left, type);
  auto from = [&](const Scalar &base, const Tensor &count, const Scalar &by) {
    if (c10::isReducedFloatingType(type))
      return pointwise(Result::fresh(), HR_OP_ADD, Rule::Same,
                       pointwise(Result::fresh(), HR_OP_MUL, Rule::Same, count, by), base);
    return pointwise(Result::fresh(), HR_OP_ADD_SCALED, Rule::Same, base, count, fixed(by));
  };
  auto between = [&](auto first, auto last) {
    Scalar by((last - first) / static_cast<decltype(first)>(steps - 1));
    return pointwise(Result::fresh(), HR_OP_WHERE, Rule::Where, is_first, from(Scalar(first), before, by),
                     from(Scalar(last), behind, -by));
  };
  if (c10::isComplexType(type))
    return between(start.to<c10::complex<double>>(), end.to<c10::complex<double>>());
  if (type == ScalarType::Half)
    return between(start.to<c10::Half>(), end.to<c10::Half>());
  if (type == ScalarType::BFloat16)
    return between(start.to<c10::BFloat16>(), end.to<c10::BFloat16>());
  return between(start.toDouble(), end.toDouble());
}

Tensor line_result(const Result &result, int64_t steps) {
  TORCH_CHECK(steps >= 0, "number of steps must be non-negative");
  const Tensor &given = result.tensor();
  return given.numel() == steps && given.dim() == 1 ? given : result.begin({steps}, given.scalar_type());
}

} // namespace

Tensor linspace(Result result, const Scalar &start, const Scalar &end, int64_t steps) {
  Tensor out = line_result(result, steps);
  ScalarType type = out.scalar_type();
  if (steps == 1)
    fill_with(out, start);
  bool is_narrow = type == ScalarType::Half || type == ScalarType::BFloat16; // each of its operations rounds as well
  if (steps > 1)
    copy_on_device(line(line_end(start, type), line_end(end, type), steps, is_narrow ? type : wide_type(type)), out);
  return out;
}

Tensor logspace(Result result, const Scalar &start, const Scalar &end, int64_t steps, double base) {
  Tensor out = line_result(result, steps);
  ScalarType type = out.scalar_type();
  if (steps == 0)
    return out;
  if (steps == 1)
    return fill_with(out, std::pow(Scalar(base).toDouble(), start.toDouble()));
  Tensor exponents = line(line_end(start, type), line_end(end, type), steps, wide_type(type));
  copy_on_device(pointwise(Result::fresh(), HR_OP_POW, Rule::Number, fixed(base), exponents), out);
  return out;
}

Tensor range(Result result, const Scalar &start, const Scalar &end, const Scalar &step) {
  double first = start.toDouble(), last = end.toDouble(), by = step.toDouble();
  TORCH_CHECK(by > 0 || by < 0, "step must be nonzero");
  TORCH_CHECK(std::isfinite(first) && std::isfinite(last), "unsupported range: ", first, " -> ", last);
  TORCH_CHECK((by > 0 && last >= first) || (by < 0 && last <= first),
              "upper bound and larger bound inconsistent with step sign");
  int64_t count = static_cast<int64_t>((last - first) / by + 1);
  Tensor out = result.tensor().numel() == count && result.tensor().dim() == 1
                   ? result.tensor()
                   : result.begin({count}, result.tensor().scalar_type());
  Record record(HR_OP_ARANGE);
  if (c10::isIntegralType(out.scalar_type(), false))
    record.num(start.to<int64_t>()).num(step.to<int64_t>());
  else
    record.num(first).num(by);
  record.out(out).run();
  return out;
}

} // namespace headrace
