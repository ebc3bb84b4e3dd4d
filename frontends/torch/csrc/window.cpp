// window.cpp: pooling over planes of one to three dims, its inverses, and padding with border elements. Shapes, memory
// formats and torch's messages are here; windows are rows of the core.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "layers.h"

namespace headrace {
namespace {

int64_t at(IntArrayRef values, int64_t i) {
  return values.size() == 1 ? values[0] : values[i];
}

// Checks an input of a batch or of one sample, with a non-empty plane of n dims.
void check_planes(const char *name, const Tensor &input, int64_t n) {
  TORCH_CHECK(input.dim() == n + 1 || input.dim() == n + 2, name, "(): Expected ", n + 1, "D or ", n + 2,
              "D tensor, but got: ", input.sizes());
  for (int64_t i = input.dim() - n - 1; i < input.dim(); ++i) {
    TORCH_CHECK(input.size(i) > 0, name, "(): Expected ", n + 1, "D or ", n + 2,
                "D (batch mode) tensor with optional 0 dim batch size for input, but got: ", input.sizes());
  }
  TORCH_CHECK_NOT_IMPLEMENTED(input.scalar_type() != ScalarType::Bool, name, " is not implemented for 'Bool'");
}

Dims sizes_with_plane(const Tensor &input, IntArrayRef plane) {
  Dims sizes(input.sizes().begin(), input.sizes().end());
  std::copy(plane.begin(), plane.end(), sizes.end() - static_cast<ptrdiff_t>(plane.size()));
  return sizes;
}

// The memory format, which torch's kernels keep for planes of two dims, and mostly not for three.
at::MemoryFormat plane_format(const Tensor &input, int64_t n) {
  return n == 2 ? format_of(input) : at::MemoryFormat::Contiguous;
}

struct Pool {
  int64_t n;        // dims of the plane
  int64_t ints[12]; // kernel, stride, padding, dilation, n of each
  Pool(int64_t plane, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation) : n(plane) {
    for (IntArrayRef values : {kernel, stride.empty() ? kernel : stride, padding, dilation}) {
      TORCH_CHECK(values.size() == 1 || static_cast<int64_t>(values.size()) == n,
                  "pool: kernel, stride, padding and dilation must either be a single int, or a tuple of ", n, " ints");
    }
    for (int64_t i = 0; i < n; ++i) {
      int64_t extent = at(kernel, i), step = stride.empty() ? extent : at(stride, i), pad = at(padding, i);
      int64_t spread = at(dilation, i);
      ints[i] = extent, ints[n + i] = step, ints[2 * n + i] = pad, ints[3 * n + i] = spread;
      TORCH_CHECK(extent > 0 && step > 0 && spread > 0,
                  "pool: kernel, stride and dilation should be greater than zero");
      TORCH_CHECK(pad >= 0 && pad <= ((extent - 1) * spread + 1) / 2,
                  "pad should be at most half of effective kernel size, but got pad=", pad, ", kernel_size=", extent,
                  " and dilation=", spread);
    }
  }
  IntArrayRef values() const {
    return {ints, static_cast<size_t>(4 * n)};
  }
  bool overlaps() const {
    bool overlap = false;
    for (int64_t i = 0; i < n; ++i)
      overlap |= (ints[i] - 1) * ints[3 * n + i] >= ints[n + i];
    return overlap;
  }
  Dims sizes(const Tensor &input, bool ceil_mode) const {
    check_planes("pool", input, n);
    Dims sizes(input.sizes().begin(), input.sizes().end());
    for (int64_t i = 0; i < n; ++i) {
      int64_t &size = sizes[sizes.size() - n + i];
      int64_t kernel = ints[i], stride = ints[n + i], padding = ints[2 * n + i], dilation = ints[3 * n + i], in = size;
      int64_t room = in + 2 * padding - dilation * (kernel - 1) - 1 + (ceil_mode ? stride - 1 : 0);
      size = (room >= 0 ? room / stride : -1) + 1;
      if (ceil_mode && (size - 1) * stride >= in + padding)
        --size;
      TORCH_CHECK(size >= 1, "Given input size: ", input.sizes(), ". Calculated output size: ", IntArrayRef(sizes),
                  ". Output size is too small");
    }
    return sizes;
  }
};

constexpr int64_t kNoDilation[1] = {1};

} // namespace

// ---- values at positions in a plane: several at one position are added, or the last one stays

namespace {

enum Scatter { kSet = 0, kAdd = 1 };

Tensor planes_of(const Tensor &values, const Tensor &indices, int64_t n, IntArrayRef sizes, Scatter mode,
                 at::MemoryFormat format) {
  TORCH_CHECK(values.sizes().equals(indices.sizes()), "Expected shape of indices to be: ", values.sizes(),
              " but got: ", indices.sizes());
  Tensor planes = at::zeros(sizes, values.options()), flat = planes.flatten(planes.dim() - n);
  if (values.numel() > 0)
    scatter(Result::inplace(flat), flat, flat.dim() - 1, indices.flatten(values.dim() - n),
            values.flatten(values.dim() - n), mode);
  return format == at::MemoryFormat::Contiguous ? planes : planes.contiguous(format);
}

} // namespace

// ---- pools

Tensor2 max_pool(Result y_place, Result index_place, int64_t n, const Tensor &self, IntArrayRef kernel,
                 IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  Pool pool(n, kernel, stride, padding, dilation);
  Dims sizes = pool.sizes(self, ceil_mode);
  Tensor y = y_place.begin(sizes, self.scalar_type(), {self}, format_of(self));
  Tensor indices = index_place.begin(sizes, ScalarType::Long, {}, format_of(self));
  if (y.numel() > 0) {
    Record record(HR_OP_MAX_POOL);
    record.in(self).ints(pool.values()).out(y).out(indices).run();
  }
  return {y_place.end(y), index_place.end(indices)};
}

Tensor max_pool_backward(Result result, int64_t n, const Tensor &grad, const Tensor &self, IntArrayRef kernel,
                         IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, const Tensor &indices) {
  Pool pool(n, kernel, stride, padding, dilation);
  // Eight or more windows reach an element of three dims: the host visits each window once instead of testing them all.
  bool is_wide = grad.scalar_type() == ScalarType::Float || grad.scalar_type() == ScalarType::Double;
  if (n == 3 && is_wide && pool.overlaps() && !device_runs_beside.load(std::memory_order_relaxed))
    return give(result, planes_of(grad, indices, n, self.sizes(), kAdd, format_of(self)));
  Tensor out = result.begin(self.sizes(), self.scalar_type(), {grad}, format_of(self));
  if (grad.numel() == 0)
    return result.end(zeros_if_empty(out));
  Record record(HR_OP_MAX_POOL_BACKWARD);
  record.in(grad).in(indices).ints(pool.values()).out(out).run();
  return result.end(out);
}

Tensor avg_pool(Result result, int64_t n, const Tensor &self, IntArrayRef kernel, IntArrayRef stride,
                IntArrayRef padding, bool ceil_mode, bool count_padding, std::optional<int64_t> divisor) {
  TORCH_CHECK(!divisor.has_value() || *divisor != 0, "divisor must be not zero");
  Pool pool(n, kernel, stride, padding, kNoDilation);
  Tensor y = result.begin(pool.sizes(self, ceil_mode), self.scalar_type(), {self}, plane_format(self, n));
  if (y.numel() > 0) {
    Record record(HR_OP_AVG_POOL);
    record.in(self).ints(pool.values()).ints({count_padding, divisor.value_or(0)}).out(y).run();
  }
  return result.end(y);
}

Tensor avg_pool_backward(Result result, int64_t n, const Tensor &grad, const Tensor &self, IntArrayRef kernel,
                         IntArrayRef stride, IntArrayRef padding, bool count_padding, std::optional<int64_t> divisor) {
  TORCH_CHECK(!divisor.has_value() || *divisor != 0, "divisor must be not zero");
  Pool pool(n, kernel, stride, padding, kNoDilation);
  Tensor out = result.begin(self.sizes(), self.scalar_type(), {grad}, plane_format(self, n));
  if (grad.numel() == 0)
    return result.end(zeros_if_empty(out));
  Record record(HR_OP_AVG_POOL_BACKWARD);
  record.in(grad).ints(pool.values()).ints({count_padding, divisor.value_or(0)}).out(out).run();
  return result.end(out);
}

// ---- adaptive pools

static Dims adaptive_sizes(const char *name, int64_t n, const Tensor &self, IntArrayRef size) {
  TORCH_CHECK(static_cast<int64_t>(size.size()) == n, name, ": output_size must be ", n);
  TORCH_CHECK(self.dim() == n + 1 || self.dim() == n + 2, name, "(): Expected ", n + 1, "D or ", n + 2,
              "D tensor, but got ", self.sizes());
  for (int64_t i = self.dim() - n; i < self.dim(); ++i) {
    TORCH_CHECK(self.size(i) > 0, name, "(): Expected input to have non-zero size for non-batch dimensions, ",
                "but input has sizes ", self.sizes());
  }
  for (int64_t extent : size)
    TORCH_CHECK(extent >= 0, name, ": elements of output_size must be greater than or equal to 0 but received ", size);
  return sizes_with_plane(self, size);
}

Tensor adaptive_avg_pool(Result result, int64_t n, const Tensor &self, IntArrayRef size) {
  Dims sizes = adaptive_sizes("adaptive_avg_pool", n, self, size);
  Tensor y = result.begin(sizes, self.scalar_type(), {self}, plane_format(self, n));
  if (y.numel() > 0) {
    Record record(HR_OP_ADAPTIVE_AVG_POOL);
    record.in(self).ints({n}).out(y).run();
  }
  return result.end(y);
}

Tensor adaptive_avg_pool_backward(Result result, int64_t n, const Tensor &grad, const Tensor &self) {
  TORCH_CHECK(grad.dim() == self.dim(), "adaptive_avg_pool_backward(): Expected gradient of ", self.dim(),
              " dimensions, but got ", grad.sizes());
  Tensor out = result.begin(self.sizes(), self.scalar_type(), {grad}, plane_format(self, n));
  if (grad.numel() == 0)
    return result.end(zeros_if_empty(out));
  Record record(HR_OP_ADAPTIVE_AVG_POOL_BACKWARD);
  record.in(grad).ints({n}).out(out).run();
  return result.end(out);
}

Tensor2 adaptive_max_pool(Result y_place, Result index_place, int64_t n, const Tensor &self, IntArrayRef size) {
  Dims sizes = adaptive_sizes("adaptive_max_pool", n, self, size);
  Tensor y = y_place.begin(sizes, self.scalar_type(), {self}, plane_format(self, n));
  Tensor indices = index_place.begin(sizes, ScalarType::Long, {}, plane_format(self, n));
  if (y.numel() > 0) {
    Record record(HR_OP_ADAPTIVE_MAX_POOL);
    record.in(self).ints({n}).out(y).out(indices).run();
  }
  return {y_place.end(y), index_place.end(indices)};
}

// ---- to and from positions in a plane

Tensor pick_backward(Result result, int64_t n, const Tensor &grad, const Tensor &self, const Tensor &indices,
                     bool keeps_format) {
  at::MemoryFormat format = keeps_format ? plane_format(self, n) : at::MemoryFormat::Contiguous;
  return give(result, planes_of(grad, indices, n, self.sizes(), kAdd, format));
}

Tensor max_unpool(Result result, int64_t n, const Tensor &self, const Tensor &indices, IntArrayRef size,
                  IntArrayRef stride, IntArrayRef padding) {
  TORCH_CHECK(indices.scalar_type() == ScalarType::Long,
              "elements in indices should be type int64 but got: ", indices.scalar_type());
  TORCH_CHECK(static_cast<int64_t>(size.size()) == n, "There should be exactly ", n,
              " elements in output_size, but got ", size.size(), " elements.");
  TORCH_CHECK(n == 2 || (stride.size() == 3 && padding.size() == 3), "stride and padding need 3 elements each");
  for (int64_t step : stride)
    TORCH_CHECK(step > 0, "strides should be greater than zero, but got stride: ", stride);
  check_planes("max_unpool", self, n);
  at::MemoryFormat format = plane_format(self, n);
  return give(result, planes_of(self, indices, n, sizes_with_plane(self, size), kSet, format));
}

// ---- fractional max pools: windows of one size, whose starts are chosen by a random number for each plane and dim

namespace {

// The starts of the windows along one dim: [N, C, out]
Tensor starts_of(const Tensor &sample, int64_t in, int64_t out, int64_t kernel) {
  Tensor last = at::arange(out, sample.options().dtype(at::kLong));
  if (out == 1)
    return (last + (in - kernel)).expand({sample.size(0), sample.size(1), 1});
  Tensor ratio = at::full({}, static_cast<double>(in - kernel), sample.options()) / static_cast<double>(out - 1);
  Tensor shift = sample.unsqueeze(2);
  Tensor starts = ((last + shift) * ratio).to(at::kLong) - (shift * ratio).to(at::kLong);
  starts.select(2, out - 1).fill_(in - kernel);
  return starts;
}

} // namespace

Tensor2 fractional_max_pool(Result y_place, Result index_place, int64_t n, const Tensor &self, IntArrayRef kernel,
                            IntArrayRef size, const Tensor &samples) {
  check_planes("fractional_max_pool", self, n);
  TORCH_CHECK(static_cast<int64_t>(kernel.size()) == n && static_cast<int64_t>(size.size()) == n,
              "fractional_max_pool: kernel_size and output_size must either be a single int or a tuple of ", n);
  Tensor x = self.dim() == n + 1 ? self.unsqueeze(0) : self;
  int64_t batch = x.size(0), channels = x.size(1), count = 1, window = 1;
  TORCH_CHECK(samples.dim() == 3 && samples.size(0) >= batch && samples.size(1) == channels && samples.size(2) == n,
              "Expect _random_samples of ", batch, " x ", channels, " x ", n, ", but got ", samples.sizes());
  TORCH_CHECK(samples.scalar_type() == self.scalar_type(), "Expect _random_samples to have the same dtype as input");
  // The position of element k of window o is start[o] + k in each dim: [N, C, O1, .., On, K1, .., Kn], flattened.
  Tensor place;
  for (int64_t i = 0; i < n; ++i) {
    int64_t in = x.size(i + 2);
    TORCH_CHECK(size[i] > 0 && kernel[i] > 0 && size[i] + kernel[i] - 1 <= in, "fractional_max_pool: pool size (",
                kernel[i], ") too large relative to input size (", in, ")");
    int64_t sample = n == 2 ? n - 1 - i : i; // torch's order: the last dim first in two dims, the first in three
    Tensor starts = starts_of(samples.narrow(0, 0, batch).select(2, sample), in, size[i], kernel[i]);
    Dims outer(2 * n + 2, 1), inner(2 * n, 1);
    outer[0] = batch, outer[1] = channels, outer[2 + i] = size[i], inner[n + i] = kernel[i];
    Tensor along = starts.reshape(outer) + at::arange(kernel[i], starts.options()).reshape(inner);
    place = place.defined() ? place * in + along : along;
    count *= size[i], window *= kernel[i];
  }
  place = place.reshape({batch, channels, count, window});
  Tensor picked = x.flatten(2).gather(2, place.flatten(2)).reshape(place.sizes());
  Tensor2 best = extreme_dim(Result::fresh(), Result::fresh(), HR_OP_AMAX, HR_OP_ARGMAX, picked, 3, true);
  Dims sizes = sizes_with_plane(self, size);
  return {give(y_place, std::get<0>(best).reshape(sizes)),
          give(index_place, place.gather(3, std::get<1>(best)).reshape(sizes))};
}

// ---- padding with reflections or repetitions; negative padding crops the padded result

namespace {

struct Borders {
  Dims ints;                    // kind, before, after
  Dims sizes, whole_sizes, cut; // of the result; before cutting; elements cut in front of each dim
  Borders(bool repeats, int64_t n, IntArrayRef input, IntArrayRef pad) {
    int64_t rank = static_cast<int64_t>(input.size());
    TORCH_CHECK(static_cast<int64_t>(pad.size()) == 2 * n, "padding size is expected to be ", 2 * n,
                ", but got: ", pad.size());
    TORCH_CHECK(rank == n + 1 || rank == n + 2, "Expected ", n + 1, "D or ", n + 2, "D (batch mode) tensor with ",
                "possibly 0 batch size and other non-zero dimensions for input, but got: ", input);
    ints.assign(2 * rank + 1, 0);
    ints[0] = repeats;
    sizes.assign(input.begin(), input.end()), whole_sizes = sizes, cut.assign(rank, 0);
    for (int64_t d = rank - n - 1; d < rank; ++d)
      TORCH_CHECK(input[d] > 0, "Expected ", n + 1, "D or ", n + 2, "D (batch mode) tensor with possibly 0 batch size ",
                  "and other non-zero dimensions for input, but got: ", input);
    for (int64_t i = 0; i < n; ++i) {
      int64_t d = rank - 1 - i, before = pad[2 * i], after = pad[2 * i + 1];
      TORCH_CHECK(repeats || (before < input[d] && after < input[d]),
                  "Argument #4: Padding size should be less than the ",
                  "corresponding input dimension, but got: padding (", before, ", ", after, ") at dimension ", d,
                  " of input ", input);
      sizes[d] += before + after;
      TORCH_CHECK(sizes[d] >= 1, "input (", input, ") is too small: calculated output size ", sizes[d],
                  " of dimension ", d);
      cut[d] = std::max<int64_t>(-before, 0);
      ints[1 + d] = std::max<int64_t>(before, 0), ints[1 + rank + d] = std::max<int64_t>(after, 0);
      whole_sizes[d] += ints[1 + d] + ints[1 + rank + d];
    }
  }
  bool cuts() const {
    return sizes != whole_sizes;
  }
  Tensor part_of(const Tensor &whole) const {
    Tensor part = whole;
    for (int64_t d = 0; d < whole.dim(); ++d)
      part = part.narrow(d, cut[d], sizes[d]);
    return part;
  }
};

} // namespace

Tensor pad_border(Result result, bool repeats, int64_t n, const Tensor &self, IntArrayRef pad) {
  Borders borders(repeats, n, self.sizes(), pad);
  at::MemoryFormat format = n == 1 ? at::MemoryFormat::Contiguous : format_of(self);
  Tensor out = result.begin(borders.sizes, self.scalar_type(), {self}, format);
  if (out.numel() > 0) {
    Tensor whole = borders.cuts() ? new_tensor(borders.whole_sizes, self.scalar_type()) : out;
    Record record(HR_OP_PAD_BORDER);
    record.in(self).ints(borders.ints).out(whole).run();
    if (borders.cuts())
      copy_on_device(borders.part_of(whole), out);
  }
  return result.end(out);
}

Tensor pad_border_backward(Result result, bool repeats, int64_t n, const Tensor &grad, const Tensor &self,
                           IntArrayRef pad) {
  Borders borders(repeats, n, self.sizes(), pad);
  TORCH_CHECK(grad.sizes().equals(borders.sizes), "grad_output has sizes ", grad.sizes(), ", expected ",
              IntArrayRef(borders.sizes));
  at::MemoryFormat format = n == 1 ? at::MemoryFormat::Contiguous : format_of(self);
  Tensor out = result.begin(self.sizes(), self.scalar_type(), {grad}, format);
  if (out.numel() > 0) {
    Tensor whole = grad;
    if (borders.cuts()) {
      whole = fill_with(new_tensor(borders.whole_sizes, grad.scalar_type()), 0);
      copy_on_device(grad, borders.part_of(whole));
    }
    Record record(HR_OP_PAD_BORDER_BACKWARD);
    record.in(whole).ints(borders.ints).out(out).run();
  }
  return result.end(out);
}

} // namespace headrace
