// resample.cpp: interpolation dim by dim, samples of planes at the positions of a tensor, and planes as columns of
// windows.
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <cmath>

#include "kernels_nn.h"
#include "layers.h"

namespace headrace {
namespace {

enum Kind { kNearest = 0, kNearestExact, kLinear, kCubic, kLinearAA, kCubicAA, kLanczosAA };

// The resampling of one dim from `in` to `out` elements, or its inverse.
struct Pass {
  int64_t kind, dim, in, out, taps;
  bool aligns;
  double scale; // 0: from the sizes
  Pass(int64_t kind_, int64_t dim_, int64_t in_, int64_t out_, bool aligns_, std::optional<double> scale_)
      : kind(kind_), dim(dim_), in(in_), out(out_), taps(0), aligns(aligns_),
        scale(scale_.has_value() && *scale_ > 0 ? *scale_ : 0) {
    if (kind >= kLinearAA)
      taps = static_cast<int64_t>(std::ceil(radius() * std::max(ratio(), 1.0))) * 2 + 1;
  }
  double radius() const {
    constexpr double radii[] = {0.5, 0.5, 1, 2, 1, 2, 3};
    return radii[kind];
  }
  // Elements of `in` per element of `out`.
  double ratio() const {
    if (aligns)
      return out > 1 ? static_cast<double>(in - 1) / (out - 1) : 0;
    return scale > 0 ? 1 / scale : static_cast<double>(in) / out;
  }
  // The largest number of elements of `out` that tap one of `in`: those closer than the radius, and one more if
  // rounding decides at the edge. Linear ones before the first element also tap the second, with a weight of 0. Returns
  // 0 if too many elements beyond the end tap the last one.
  int64_t shares() const {
    double step = ratio(), n = static_cast<double>(out), m = static_cast<double>(in);
    double width = 2 * radius() * (kind >= kLinearAA ? std::max(step, 1.0) : 1), most = width / step;
    if (kind == kLinear && !aligns)
      most = std::max(most, 2.5 / step - 0.5);
    int exponent = 0;
    bool is_exact = !aligns && kind <= kCubic && std::frexp(step, &exponent) == 0.5;
    double count = is_exact ? std::ceil(most) : std::floor(most * (1 + 1e-6) + n * std::ldexp(1.0, -21)) + 1;
    if (!aligns && step * n > m * (1 + 1e-6))
      count = n;
    count = std::min(count, n); // a step of 0 gives infinity
    return out < (int64_t{1} << 22) && count * m <= 2 * (width * n + m) ? static_cast<int64_t>(count) : 0;
  }
  bool is_identity() const {
    return in == out && (kind == kNearest || kind == kLinear || aligns || scale == 0);
  }
  // The number of copies of each element if nearest neighbours are only copies, else 0. Powers of two are exact.
  int64_t copies() const {
    int64_t each = out / in;
    bool is_exact = out % in == 0 && (each & (each - 1)) == 0 && (scale == 0 || scale == static_cast<double>(each));
    return kind <= kNearestExact && is_exact && out < (int64_t{1} << 23) ? each : 0;
  }
  void record(const Tensor &from, const Tensor &to) const {
    Record(HR_OP_RESAMPLE).in(from).ints({dim, kind, aligns, taps}).num(scale).out(to).run();
  }
  void record_backward(const Tensor &from, const Tensor &to) const {
    Record(HR_OP_RESAMPLE_BACKWARD).in(from).ints({dim, kind, aligns, taps, shares()}).num(scale).out(to).run();
  }
};

std::vector<Pass> passes_of(int64_t kind, IntArrayRef in, IntArrayRef size, bool aligns, const Scales &scales) {
  int64_t n = static_cast<int64_t>(scales.size());
  TORCH_CHECK(static_cast<int64_t>(size.size()) == n, "It is expected output_size equals to ", n, ", but got size ",
              size.size());
  TORCH_CHECK(static_cast<int64_t>(in.size()) == n + 2, "It is expected input_size equals to ", n + 2,
              ", but got size ", in.size());
  std::vector<Pass> passes;
  for (int64_t i = 0; i < n; ++i) {
    TORCH_CHECK(in[i + 2] > 0 && size[i] > 0, "Input and output sizes should be greater than 0, but got input ", in,
                " and output ", size);
    passes.emplace_back(kind, i + 2, in[i + 2], size[i], aligns, scales.begin()[i]);
  }
  return passes;
}

bool shrinks_more(const Pass &a, const Pass &b) {
  return a.out * b.in < b.out * a.in;
}

bool goes_first(const Pass &a, const Pass &b) {
  return shrinks_more(a, b) || (!shrinks_more(b, a) && (a.out < a.in ? a.dim < b.dim : a.dim > b.dim));
}

// True if the result repeats each element a fixed number of times along each dim: one copy.
bool are_copies(const std::vector<Pass> &passes) {
  return std::all_of(passes.begin(), passes.end(), [](const Pass &pass) { return pass.copies() > 0; });
}

// Starts from the last dim, so that the numbers of earlier dims stay.
void repeat(const std::vector<Pass> &passes, const Tensor &from, const Tensor &to) {
  Tensor elements = from, places = to;
  for (auto pass = passes.rbegin(); pass != passes.rend(); ++pass) {
    elements = elements.unsqueeze(pass->dim + 1);
    places = places.unflatten(pass->dim, {pass->in, pass->copies()});
  }
  copy_on_device(elements.expand(places.sizes()), places);
}

// The type between passes: wide enough to avoid rounding twice, except for bytes, which torch rounds after each dim.
ScalarType between(ScalarType type) {
  return type == ScalarType::Half || type == ScalarType::BFloat16 ? ScalarType::Float : type;
}

} // namespace

// Dims that shrink most go first, so that later ones have less work. Of equal ones the first dim goes first if they
// shrink, because whole rows are combined, and the last one if they grow.
Tensor resample(Result result, int64_t kind, const Tensor &self, IntArrayRef size, bool aligns, const Scales &scales) {
  std::vector<Pass> passes = passes_of(kind, self.sizes(), size, aligns, scales);
  TORCH_CHECK(self.size(1) > 0, "Non-empty data tensor expected but got a tensor with sizes ", self.sizes());
  Dims sizes(self.sizes().begin(), self.sizes().end());
  std::copy(size.begin(), size.end(), sizes.begin() + 2);
  Tensor y = result.begin(sizes, self.scalar_type(), {self}, format_of(self));
  if (y.numel() == 0)
    return result.end(y);
  bool is_bytes = self.scalar_type() == ScalarType::Byte; // torch skips a dim that keeps its size, for any scale
  auto is_idle = [&](const Pass &p) { return p.is_identity() || (is_bytes && kind > kNearestExact && p.in == p.out); };
  passes.erase(std::remove_if(passes.begin(), passes.end(), is_idle), passes.end());
  if (are_copies(passes)) {
    repeat(passes, self, y);
    return result.end(y);
  }
  if (is_bytes)
    std::reverse(passes.begin(), passes.end());
  else
    std::sort(passes.begin(), passes.end(), goes_first);
  Tensor x = self;
  for (size_t i = 0; i < passes.size(); ++i) {
    Dims next(x.sizes().begin(), x.sizes().end());
    next[passes[i].dim] = passes[i].out;
    Tensor to = i + 1 == passes.size()
                    ? y
                    : new_tensor(next, kind > kNearestExact ? between(self.scalar_type()) : self.scalar_type(),
                                 format_of(self));
    passes[i].record(x, to);
    x = to;
  }
  return result.end(y);
}

Tensor resample_backward(Result result, int64_t kind, const Tensor &grad, IntArrayRef input_size, bool aligns,
                         const Scales &scales) {
  TORCH_CHECK(grad.dim() == static_cast<int64_t>(input_size.size()) && grad.dim() > 2,
              "Expected grad_output to be a tensor of ", input_size.size(), " dimensions, but got ", grad.sizes());
  std::vector<Pass> passes = passes_of(kind, input_size, grad.sizes().slice(2), aligns, scales);
  Tensor dx = result.begin(input_size, grad.scalar_type(), {grad}, format_of(grad));
  if (dx.numel() == 0)
    return result.end(dx);
  std::stable_sort(passes.begin(), passes.end(), [](const Pass &a, const Pass &b) { return shrinks_more(b, a); });
  passes.erase(std::remove_if(passes.begin(), passes.end(), [](const Pass &p) { return p.is_identity(); }),
               passes.end());
  Tensor g = grad;
  if (passes.empty())
    copy_on_device(g, dx);
  for (size_t i = 0; i < passes.size(); ++i) {
    Dims next(g.sizes().begin(), g.sizes().end());
    next[passes[i].dim] = passes[i].in;
    Tensor to = i + 1 == passes.size() ? dx : new_tensor(next, between(grad.scalar_type()), format_of(grad));
    passes[i].record_backward(g, to);
    g = to;
  }
  return result.end(dx);
}

Tensor upsample_nearest_exact(Result result, const Tensor &self, IntArrayRef size, std::optional<double> scale_h,
                              std::optional<double> scale_w) {
  bool is_image = self.dim() == 4 && size.size() == 2 && self.numel() > 0 && size[0] > 0 && size[1] > 0;
  if (is_image && are_copies(passes_of(kNearestExact, self.sizes(), size, false, {scale_h, scale_w})))
    return resample(result, kNearestExact, self, size, false, {scale_h, scale_w});
  return upsample2d(result, HR_OP_UPSAMPLE_NEAREST2D, self, size, 1, scale_h, scale_w);
}

// On a device beside the host, float planes use one operation for both dims, which hides the distance of neighbours. On
// the host that would read four of them per element; dim by dim it reads two, then whole rows.
Tensor upsample_bilinear(Result result, const Tensor &self, IntArrayRef size, bool aligns,
                         std::optional<double> scale_h, std::optional<double> scale_w) {
  if (self.scalar_type() == ScalarType::Byte || !device_runs_beside.load(std::memory_order_relaxed))
    return resample(result, kLinear, self, size, aligns, {scale_h, scale_w});
  return upsample2d(result, HR_OP_UPSAMPLE_BILINEAR2D, self, size, aligns, scale_h, scale_w);
}

// ---- samples at positions

namespace {

void check_grid(const Tensor &input, const Tensor &grid, int64_t n, int64_t mode, int64_t padding) {
  TORCH_CHECK(input.dim() == n + 2 && grid.dim() == n + 2, "grid_sampler(): expected ", n + 2,
              "D input and grid with same number of dimensions, but got input with sizes ", input.sizes(),
              " and grid with sizes ", grid.sizes());
  TORCH_CHECK(input.size(0) == grid.size(0),
              "grid_sampler(): expected grid and input to have same batch size, but got ", "input with sizes ",
              input.sizes(), " and grid with sizes ", grid.sizes());
  TORCH_CHECK(grid.size(-1) == n, "grid_sampler(): expected grid to have size ", n, " in last dimension, but got ",
              "grid with sizes ", grid.sizes());
  TORCH_CHECK(input.scalar_type() == grid.scalar_type(), "grid_sampler(): expected input and grid to have same dtype, ",
              "but input has ", input.scalar_type(), " and grid has ", grid.scalar_type());
  TORCH_CHECK(mode >= 0 && mode <= (n == 2 ? 2 : 1) && padding >= 0 && padding <= 2,
              "grid_sampler(): bicubic interpolation only supports 4D input");
  for (int64_t d = 2; d < n + 2; ++d)
    TORCH_CHECK(input.size(d) > 0,
                "grid_sampler(): expected input to have non-empty spatial dimensions, but input has ", "sizes ",
                input.sizes(), " with dimension ", d, " being empty");
}

} // namespace

Tensor grid_sample(const Tensor &input, const Tensor &grid, int64_t n, int64_t mode, int64_t padding, bool aligns) {
  check_grid(input, grid, n, mode, padding);
  Dims sizes{input.size(0), input.size(1)};
  for (int64_t d = 0; d < n; ++d)
    sizes.push_back(grid.size(d + 1));
  Tensor y = new_tensor(sizes, input.scalar_type());
  if (y.numel() > 0)
    Record(HR_OP_GRID_SAMPLE).in(input).in(grid).ints({mode, padding, aligns}).out(y).run();
  return y;
}

Tensor2 grid_sample_backward(const Tensor &grad, const Tensor &input, const Tensor &grid, int64_t n, int64_t mode,
                             int64_t padding, bool aligns, std::array<bool, 2> mask) {
  check_grid(input, grid, n, mode, padding);
  Tensor dx = mask[0] ? new_tensor(input.sizes(), input.scalar_type()) : Tensor();
  Tensor dgrid = mask[1] ? new_tensor(grid.sizes(), grid.scalar_type()) : Tensor();
  if (grad.numel() == 0)
    return {zeros_if_empty(dx), zeros_if_empty(dgrid)};
  if (mask[0] || mask[1]) {
    Record record(HR_OP_GRID_SAMPLE_BACKWARD);
    record.in(grad).in(input).in(grid).ints({mode, padding, aligns}).out(dx).out(dgrid).run();
  }
  return {dx, dgrid};
}

// ---- columns of windows: [N, C * KH * KW, OH * OW]

namespace {

struct Columns {
  Dims sizes; // [N, C, KH, KW, OH, OW]
  c10::SmallVector<int64_t, 8> ints;
  Columns(IntArrayRef planes, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding, IntArrayRef stride) {
    for (IntArrayRef values : {kernel, dilation, padding, stride})
      TORCH_CHECK(values.size() == 2, "It is expected kernel_size, dilation, padding and stride have 2 elements each");
    for (IntArrayRef values : {kernel, stride, padding, dilation})
      ints.append(values.begin(), values.end());
    sizes.append({planes[0], planes[1], kernel[0], kernel[1]});
    for (int i = 0; i < 2; ++i) {
      TORCH_CHECK(kernel[i] > 0 && dilation[i] > 0 && stride[i] > 0 && padding[i] >= 0,
                  "kernel size, dilation and stride should be greater than zero, and padding not negative, but got ",
                  kernel, ", ", dilation, ", ", stride, " and ", padding);
      int64_t room = planes[2 + i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1;
      TORCH_CHECK(room >= 0, "Given input with spatial size (", planes[2], ", ", planes[3], "), kernel_size=", kernel,
                  ", dilation=", dilation, ", padding=", padding,
                  ", calculated shape of the array of sliding blocks is ",
                  "too small: its components must be at least one.");
      sizes.push_back(room / stride[i] + 1);
    }
  }
  Dims flat() const {
    return {sizes[0], sizes[1] * sizes[2] * sizes[3], sizes[4] * sizes[5]};
  }
};

} // namespace

Tensor im2col(Result result, const Tensor &self, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
              IntArrayRef stride) {
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4,
              "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and ",
              "non-zero dimensions for input, but got: ", self.sizes());
  for (int64_t d = self.dim() - 3; d < self.dim(); ++d)
    TORCH_CHECK(self.size(d) > 0, "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and ",
                "non-zero dimensions for input, but got: ", self.sizes());
  Tensor x = self.dim() == 3 ? self.unsqueeze(0) : self;
  Columns columns(x.sizes(), kernel, dilation, padding, stride);
  Tensor y = new_tensor(columns.sizes, self.scalar_type());
  if (y.numel() > 0)
    Record(HR_OP_IM2COL).in(x).ints(columns.ints).out(y).run();
  Tensor flat = y.view(columns.flat());
  return give(result, self.dim() == 3 ? flat.squeeze(0) : flat);
}

Tensor col2im(Result result, const Tensor &self, IntArrayRef size, IntArrayRef kernel, IntArrayRef dilation,
              IntArrayRef padding, IntArrayRef stride) {
  TORCH_CHECK(self.dim() == 2 || self.dim() == 3,
              "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch ",
              "size and non-zero dimensions for input, but got: ", self.sizes());
  TORCH_CHECK(size.size() == 2 && kernel.size() == 2, "It is expected output_size and kernel_size equals to 2");
  Tensor y = self.dim() == 2 ? self.unsqueeze(0) : self;
  int64_t window = kernel[0] * kernel[1];
  TORCH_CHECK(window > 0 && y.size(1) > 0 && y.size(1) % window == 0, "Expected size of input's dimension 1 to be ",
              "divisible by the product of kernel_size, but got input.size(1)=", y.size(1),
              " and kernel_size=", kernel);
  const int64_t planes[] = {y.size(0), y.size(1) / window, size[0], size[1]};
  Columns columns(planes, kernel, dilation, padding, stride);
  TORCH_CHECK(y.size(2) == columns.flat()[2], "Given output_size=", size, ", kernel_size=", kernel,
              ", dilation=", dilation, ", padding=", padding, ", stride=", stride,
              ", expected size of input's dimension 2 to match ",
              "the calculated number of sliding blocks, but got input.size(2)=", y.size(2), " and ", columns.flat()[2]);
  Tensor x = new_tensor(planes, self.scalar_type());
  if (x.numel() > 0)
    Record(HR_OP_COL2IM).in(y.reshape(columns.sizes)).ints(columns.ints).out(x).run();
  return give(result, self.dim() == 2 ? x.squeeze(0) : x);
}

} // namespace headrace
