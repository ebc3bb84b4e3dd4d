// sample.cpp: random numbers beyond the uniform and the normal distribution, and histograms. All of them use Philox
// numbers of the generator, one offset for each operator. Rejection samplers use a key of 53 random bits for each
// element, and draw from the sequence of that key (core/math/special.h).
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/exponential.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>

#include "kernels.h"

namespace headrace {
namespace {

// The dtype in which numbers for a tensor are drawn.
ScalarType made_type(const Tensor &self) {
  return self.scalar_type() == ScalarType::Double || c10::isIntegralType(self.scalar_type(), true) ? ScalarType::Double
                                                                                                   : ScalarType::Float;
}

Tensor uniform_numbers(IntArrayRef sizes, ScalarType type, const OptionalGenerator &generator) {
  return headrace::uniform(new_tensor(sizes, type), 0, 1, generator);
}

// 53 random bits for each element, as a number in [0, 1).
Tensor keys(IntArrayRef sizes, const OptionalGenerator &generator) {
  return uniform_numbers(sizes, ScalarType::Double, generator);
}

void check_continuous(const char *name, const Tensor &self) {
  TORCH_CHECK(
      c10::isFloatingType(self.scalar_type()), name,
      " distribution is a continuous probability distribution. dtype must be a floating point but you specified ",
      self.scalar_type());
}

} // namespace

Tensor cauchy(const Tensor &self, double median, double sigma, const OptionalGenerator &generator) {
  TORCH_CHECK(sigma > 0.0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
  check_continuous("Cauchy", self);
  if (self.numel() == 0)
    return self;
  Tensor angle = (uniform_numbers(self.sizes(), made_type(self), generator) - 0.5) * 3.14159265358979323846;
  copy_on_device(angle.tan() * sigma + median, self);
  return self;
}

Tensor log_normal(const Tensor &self, double mean, double deviation, const OptionalGenerator &generator) {
  TORCH_CHECK(deviation > 0.0, "log_normal_ expects std > 0.0, but found std=", deviation);
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isFloatingType(self.scalar_type()), "\"log_normal_\" not implemented for '",
                              self.scalar_type(), "'");
  if (self.numel() == 0)
    return self;
  copy_on_device(headrace::normal(new_tensor(self.sizes(), made_type(self)), mean, deviation, generator).exp(), self);
  return self;
}

Tensor geometric(const Tensor &self, double p, const OptionalGenerator &generator) {
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex() && self.scalar_type() != ScalarType::Bool,
                              "\"geometric_\" not implemented for '", self.scalar_type(), "'");
  if (self.numel() == 0)
    return self;
  Tensor above = uniform_numbers(self.sizes(), ScalarType::Double, generator) * -1 + 1; // (0, 1]
  copy_on_device((above.log() / std::log1p(-p)).ceil().clamp_min(1), self);
  return self;
}

Tensor poisson(const Tensor &rate, const OptionalGenerator &generator) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isFloatingType(rate.scalar_type()), "\"poisson_cpu\" not implemented for '",
                              rate.scalar_type(), "'");
  Tensor numbers = pointwise(Result::fresh(), HR_OP_SAMPLE_POISSON, Rule::Same, to_type(rate, ScalarType::Double),
                             keys(rate.sizes(), generator));
  return to_type(numbers, rate.scalar_type());
}

Tensor binomial(const Tensor &count, const Tensor &p, const OptionalGenerator &generator) {
  const Operand both[] = {count, p};
  ScalarType type = promote(both, 2);
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isFloatingType(type), "\"binomial_cpu\" not implemented for '", type, "'");
  Tensor wide_count = to_type(count, ScalarType::Double), wide_p = to_type(p, ScalarType::Double);
  Tensor shape = wide_count + wide_p;
  Tensor numbers =
      pointwise(Result::fresh(), HR_OP_SAMPLE_BINOMIAL, Rule::Same, wide_count, wide_p, keys(shape.sizes(), generator));
  return to_type(numbers, type);
}

Tensor standard_gamma(const Tensor &alpha, const OptionalGenerator &generator) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isFloatingType(alpha.scalar_type()), "\"gamma_cpu\" not implemented for '",
                              alpha.scalar_type(), "'");
  Tensor numbers = pointwise(Result::fresh(), HR_OP_SAMPLE_GAMMA, Rule::Same, to_type(alpha, ScalarType::Double),
                             keys(alpha.sizes(), generator));
  double least = alpha.scalar_type() == ScalarType::Double ? std::numeric_limits<double>::min()
                                                           : std::numeric_limits<float>::min();
  return to_type(numbers.clamp_min(least), alpha.scalar_type());
}

Tensor dirichlet(const Tensor &alpha, const OptionalGenerator &generator) {
  Tensor gamma = headrace::standard_gamma(to_type(alpha, ScalarType::Double), generator);
  return to_type(gamma / gamma.sum(-1, true), alpha.scalar_type());
}

// Without replacement: the largest of p / q with exponential q. With replacement: uniform numbers in the cumulated sum.
Tensor multinomial(Result result, const Tensor &self, int64_t count, bool replacement,
                   const OptionalGenerator &generator) {
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(c10::isFloatingType(self.scalar_type()),
              "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(count > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(replacement || count <= self.size(-1),
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  TORCH_CHECK(result.is_fresh() || result.tensor().scalar_type() == ScalarType::Long,
              "multinomial expects Long tensor out, got: ",
              result.is_fresh() ? ScalarType::Long : result.tensor().scalar_type());
  Dims sizes(self.sizes().begin(), self.sizes().end());
  sizes.back() = count;
  if (self.numel() == 0)
    return result.give(new_tensor(sizes, ScalarType::Long));
  Tensor p = to_type(self, self.scalar_type() == ScalarType::Double ? ScalarType::Double : ScalarType::Float);
  Tensor is_bad = p.lt(0).logical_or(p.isfinite().logical_not()).any();
  TORCH_CHECK(!is_bad.item<bool>(), "probability tensor contains either `inf`, `nan` or element < 0");
  TORCH_CHECK(!p.sum(-1).le(0).any().item<bool>(), "invalid multinomial distribution (sum of probabilities <= 0)");
  if (!replacement || count == 1) {
    Tensor q = headrace::exponential(new_tensor(p.sizes(), p.scalar_type()), 1, generator);
    Tensor score = p / q;
    return result.give(count == 1 ? score.argmax(-1, true) : std::get<1>(score.topk(count)));
  }
  Tensor sums = to_type(p, ScalarType::Double).cumsum(-1);
  Tensor total = sums.narrow(-1, sums.size(-1) - 1, 1);
  Tensor where = uniform_numbers(sizes, ScalarType::Double, generator) * total;
  Tensor found = search_sorted(Result::fresh(), sums, where, false, true, std::nullopt, std::nullopt);
  return result.give(found.clamp_max(self.size(-1) - 1));
}

Tensor randperm(Result result, int64_t n, const OptionalGenerator &generator) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  ScalarType type = result.tensor().scalar_type();
  double most = type == ScalarType::Half       ? 2049
                : type == ScalarType::BFloat16 ? 257
                : type == ScalarType::Float    ? 16777217
                : c10::isIntegralType(type, false)
                    ? std::ldexp(1.0, static_cast<int>(8 * c10::elementSize(type)) - (c10::isSignedType(type) ? 1 : 0))
                    : 9007199254740993.0;
  TORCH_CHECK(static_cast<double>(n) <= most, "n is too large for result tensor type: '", result.tensor().toString(),
              "'");
  Tensor out = result.begin({n}, type);
  if (n == 0)
    return out;
  Tensor numbers = headrace::random(new_tensor({n}, ScalarType::Long), std::nullopt, std::nullopt, generator);
  copy_on_device(std::get<1>(numbers.sort()), out);
  return out;
}

// ---- histograms

Tensor histc(Result result, const Tensor &self, int64_t bins, const Scalar &min, const Scalar &max) {
  TORCH_CHECK(bins > 0, "bins must be > 0, but got ", bins, " for dimension 0");
  ScalarType type = self.scalar_type();
  bool is_whole = c10::isIntegralType(type, /*includeBool=*/false); // as torch's CUDA device
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isFloatingType(type) || is_whole, "\"histogram_cpu\" not implemented for '", type,
                              "'");
  Tensor flat = to_type(self.reshape({-1}), made_type(self));
  double least = min.toDouble(), most = max.toDouble();
  if (is_whole)
    least = std::trunc(least), most = std::trunc(most);
  if (least == most && flat.numel() > 0) {
    least = flat.min().item<double>(), most = flat.max().item<double>();
  }
  if (least == most)
    least -= 1, most += 1;
  TORCH_CHECK(std::isfinite(least) && std::isfinite(most), "range of [", least, ", ", most, "] is not finite");
  TORCH_CHECK(least < most, "max must be larger than min");
  Tensor counts = fill_with(new_tensor({bins + 1}, made_type(self)), 0); // the last one counts the numbers outside
  if (flat.numel() > 0) {
    Tensor inside = flat.ge(least).logical_and(flat.le(most));
    Tensor place =
        ((flat - least) * static_cast<double>(bins) / (most - least)).floor().clamp(0, static_cast<double>(bins - 1));
    Tensor target = at::where(inside, place, Scalar(static_cast<double>(bins))).to(ScalarType::Long);
    counts.index_add_(0, target, fill_with(new_tensor(flat.sizes(), made_type(self)), 1));
  }
  return result.give(to_type(counts.narrow(0, 0, bins), type));
}

namespace {

// The outer edges of the bins of each column.
std::pair<std::vector<double>, std::vector<double>> outer_edges(const Tensor &points,
                                                                at::OptionalArrayRef<double> range) {
  int64_t columns = points.size(1);
  std::vector<double> least(columns, 0), most(columns, 1);
  if (range.has_value()) {
    TORCH_CHECK(static_cast<int64_t>(range->size()) == 2 * columns, "torch.histogramdd: for a ", columns,
                "-dimensional histogram range should have ", 2 * columns, " elements, but got ", range->size());
  }
  for (int64_t i = 0; i < columns; ++i) {
    if (range.has_value()) {
      least[i] = (*range)[2 * i], most[i] = (*range)[2 * i + 1];
    } else if (points.numel() > 0) {
      least[i] = points.select(1, i).min().item<double>(), most[i] = points.select(1, i).max().item<double>();
    }
    TORCH_CHECK(std::isfinite(least[i]) && std::isfinite(most[i]), "torch.histogramdd: dimension ", i, "'s range [",
                least[i], ", ", most[i], "] is not finite");
    TORCH_CHECK(least[i] <= most[i], "torch.histogramdd: min should not exceed max, but got min ", least[i], " max ",
                most[i], " for dimension ", i);
    if (least[i] == most[i])
      least[i] -= 0.5, most[i] += 0.5;
  }
  return {least, most};
}

std::vector<Tensor> edges_of(const Tensor &points, IntArrayRef bins, at::OptionalArrayRef<double> range) {
  TORCH_CHECK(static_cast<int64_t>(bins.size()) == points.size(1),
              "torch.histogramdd(): The size of bins must be equal to the innermost dimension of the input.");
  auto [least, most] = outer_edges(points, range);
  std::vector<Tensor> edges;
  for (size_t i = 0; i < bins.size(); ++i) {
    TORCH_CHECK(bins[i] > 0, "torch.histogramdd(): bins must be > 0, but got ", bins[i], " for dimension ", i);
    edges.push_back(at::linspace(least[i], most[i], bins[i] + 1, points.options()));
  }
  return edges;
}

// The weight between the edges; the last bin includes its upper edge.
Tensor counted(const Tensor &points, const std::vector<Tensor> &edges, const OptionalTensor &weight, bool density) {
  bool has_weight = weight.has_value() && weight->defined();
  ScalarType type = points.scalar_type();
  Dims sizes;
  int64_t total = 1;
  for (const Tensor &edge : edges) {
    sizes.push_back(edge.numel() - 1);
    total *= edge.numel() - 1;
  }
  Tensor counts = fill_with(new_tensor({total + 1}, type), 0); // the last one counts the numbers outside
  int64_t rows = points.size(0);
  if (rows > 0 && total > 0) {
    Tensor target = fill_with(new_tensor({rows}, ScalarType::Long), 0),
           inside = fill_with(new_tensor({rows}, ScalarType::Bool), true);
    for (size_t i = 0; i < edges.size(); ++i) {
      Tensor x = points.select(1, static_cast<int64_t>(i)).contiguous(), edge = edges[i].contiguous();
      int64_t bins = edge.numel() - 1;
      Tensor place = search_sorted(Result::fresh(), edge, x, false, true, std::nullopt, std::nullopt) - 1;
      inside = inside.logical_and(x.ge(edge.select(0, 0))).logical_and(x.le(edge.select(0, bins)));
      target = target * bins + place.clamp(0, bins - 1);
    }
    Tensor each = has_weight ? to_type(weight->reshape({-1}), type) : fill_with(new_tensor({rows}, type), 1);
    counts.index_add_(0, at::where(inside, target, Scalar(total)), each);
  }
  Tensor hist = counts.narrow(0, 0, total).view(sizes).contiguous();
  if (density) {
    hist = hist / hist.sum();
    for (size_t i = 0; i < edges.size(); ++i) {
      Dims shape(edges.size(), 1);
      shape[i] = sizes[i];
      hist = hist / (edges[i].narrow(0, 1, sizes[i]) - edges[i].narrow(0, 0, sizes[i])).view(shape);
    }
  }
  return hist;
}

void check_histogram(const Tensor &points, const OptionalTensor &weight) {
  TORCH_CHECK_NOT_IMPLEMENTED(points.scalar_type() == ScalarType::Float || points.scalar_type() == ScalarType::Double,
                              "\"histogram_cpu\" not implemented for '", points.scalar_type(), "'");
  TORCH_CHECK(points.dim() >= 2, "torch.histogramdd: input tensor should have at least 2 dimensions, but got ",
              points.dim());
  if (weight.has_value() && weight->defined()) {
    TORCH_CHECK(weight->scalar_type() == points.scalar_type(),
                "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same "
                "dtype, but got input ",
                points.scalar_type(), ", and weight ", weight->scalar_type());
    TORCH_CHECK(weight->sizes().equals(points.sizes().slice(0, points.dim() - 1)),
                "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor "
                "excluding its innermost dimension, but got input with shape ",
                points.sizes(), " and weight with shape ", weight->sizes());
  }
}

Tensor rows_of(const Tensor &points) {
  return points.reshape({-1, points.size(-1)});
}

} // namespace

std::vector<Tensor> histogramdd_edges(const Tensor &self, IntArrayRef bins, at::OptionalArrayRef<double> range,
                                      const OptionalTensor &weight) {
  check_histogram(self, weight);
  return edges_of(rows_of(self), bins, range);
}

Tensor histogramdd(const Tensor &self, IntArrayRef bins, at::OptionalArrayRef<double> range,
                   const OptionalTensor &weight, bool density) {
  check_histogram(self, weight);
  return counted(rows_of(self), edges_of(rows_of(self), bins, range), weight, density);
}

Tensor histogramdd(const Tensor &self, TensorList bins, const OptionalTensor &weight, bool density) {
  check_histogram(self, weight);
  return counted(rows_of(self), {bins.begin(), bins.end()}, weight, density);
}

Tensor2 histogram(Result hist, Result edges, const Tensor &self, int64_t bins, at::OptionalArrayRef<double> range,
                  const OptionalTensor &weight, bool density) {
  Tensor points = self.reshape({-1, 1});
  check_histogram(points, weight.has_value() && weight->defined() ? OptionalTensor(weight->reshape({-1})) : weight);
  TORCH_CHECK(bins > 0, "torch.histogram(): bins must be > 0, but got ", bins);
  std::vector<Tensor> made = edges_of(points, bins, range);
  return {hist.give(counted(points, made, weight, density)), edges.give(made[0])};
}

Tensor2 histogram(Result hist, Result edges, const Tensor &self, const Tensor &bins, const OptionalTensor &weight,
                  bool density) {
  Tensor points = self.reshape({-1, 1});
  check_histogram(points, weight.has_value() && weight->defined() ? OptionalTensor(weight->reshape({-1})) : weight);
  TORCH_CHECK(bins.dim() == 1 && bins.numel() > 0, "torch.histogram(): bins tensor should have one dimension, but got ",
              bins.dim());
  TORCH_CHECK(bins.scalar_type() == self.scalar_type(),
              "torch.histogram(): input tensor and bins tensors should have the same dtype");
  return {hist.give(counted(points, {bins}, weight, density)), edges.give(bins, bins)};
}

} // namespace headrace
