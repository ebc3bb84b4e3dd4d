// segment.cpp: reductions over runs of neighbours.
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "kernels.h"
#include "layers.h"

namespace headrace {
namespace {

// The segment of each element of the axis; the number of segments if it has none.
struct Segments {
  int64_t axis, count;
  Tensor starts, ends, lengths; // of each segment; lengths broadcast against the output
  Dims sizes, data_sizes;       // of the output, of data

  Segments(const Tensor &data, const OptionalTensor &given_lengths, const OptionalTensor &given_offsets, int64_t dim) {
    axis = at::maybe_wrap_dim(dim, data.dim());
    bool has_offsets = given_offsets.has_value() && given_offsets->defined();
    TORCH_CHECK(has_offsets || (given_lengths.has_value() && given_lengths->defined()),
                "segment_reduce(): Either lengths or offsets must be defined.");
    Tensor limits = to_type(has_offsets ? *given_offsets : *given_lengths, ScalarType::Long);
    TORCH_CHECK(limits.dim() == axis + 1, "segment_reduce(): Expected axis to be the last dimension of ",
                has_offsets ? "offsets" : "lengths", " but got ", axis, ".");
    count = limits.size(-1) - (has_offsets ? 1 : 0);
    if (has_offsets) {
      starts = limits.narrow(-1, 0, count), ends = limits.narrow(-1, 1, count);
      lengths = ends - starts;
    } else {
      ends = limits.cumsum(-1), lengths = limits;
      starts = ends - limits;
    }
    data_sizes = sizes = Dims(data.sizes().begin(), data.sizes().end());
    sizes[axis] = count;
    for (int64_t d = axis + 1; d < data.dim(); ++d)
      lengths = lengths.unsqueeze(-1);
  }

  // The lines of data form one list of rows.
  Tensor reduce(const Tensor &data, int64_t mode, const Scalar &start) const {
    int64_t lines = 1, columns = 1, size = data.size(axis);
    for (int64_t d = 0; d < axis; ++d)
      lines *= data.size(d);
    for (int64_t d = axis + 1; d < data.dim(); ++d)
      columns *= data.size(d);
    auto in_list = [&](const Tensor &places) {
      return lines == 1 ? places.reshape({-1})
                        : (places.reshape({lines, count}) + at::arange(lines, places.options()).unsqueeze(1) * size)
                              .reshape({-1});
    };
    return combine_segments(data.reshape({lines * size, columns}), in_list(starts), in_list(ends), mode, start)
        .reshape(sizes);
  }

  // The value of each element's segment.
  Tensor spread(const Tensor &values) const {
    Tensor ids = owners();
    Tensor all = fill_with(new_tensor(padded_sizes(), values.scalar_type()), 0);
    copy_on_device(values, all.narrow(axis, 0, count));
    return all.gather(axis, ids);
  }

private:
  // The segment of each element, in data's sizes: the number of segments that end at its position or before.
  Tensor owners() const {
    Dims marked = data_sizes;
    int64_t size = marked[axis]++;
    marked.resize(axis + 1);
    Tensor marks = at::zeros(marked, ends.options());
    marks = marks.scatter_add(axis, ends.clamp(0, size), at::ones_like(ends));
    Tensor owner = marks.narrow(axis, 0, size).cumsum(axis), places = at::arange(size, ends.options());
    if (size > 0 && count > 0)
      owner = at::where(places.lt(starts.narrow(-1, 0, 1)), Scalar(count), owner);
    for (int64_t d = axis + 1; d < static_cast<int64_t>(data_sizes.size()); ++d)
      owner = owner.unsqueeze(-1);
    return owner.expand(data_sizes);
  }

  Dims padded_sizes() const {
    Dims wide = sizes;
    wide[axis] += 1;
    return wide;
  }
};

Scalar start_of(std::string_view reduce, const std::optional<Scalar> &initial) {
  if (initial.has_value())
    return *initial;
  double infinity = std::numeric_limits<double>::infinity();
  return reduce == "max" ? Scalar(-infinity) : reduce == "min" ? Scalar(infinity) : reduce == "prod" ? 1 : 0;
}

int64_t mode_of(std::string_view reduce) {
  TORCH_CHECK(reduce == "sum" || reduce == "mean" || reduce == "prod" || reduce == "max" || reduce == "min",
              "reduce argument must be one of: sum, mean, max, min, prod, got ", reduce);
  return reduce == "max" ? 3 : reduce == "min" ? 4 : reduce == "prod" ? 2 : 1;
}

} // namespace

Tensor combine_segments(const Tensor &x, const Tensor &begin, const Tensor &end, int64_t mode, const Scalar &start,
                        const Tensor &index, const Tensor &factor, int64_t skipped) {
  Tensor out = new_tensor({begin.size(0), x.size(1)}, x.scalar_type());
  if (out.numel() == 0)
    return out;
  Record record(HR_OP_SEGMENTS);
  record.in(x.contiguous()).in(begin.contiguous()).in(end.contiguous()).in(index).in(factor);
  record.ints({mode, skipped}).num(start).out(out).run();
  return out;
}

Tensor segment_reduce(const Tensor &data, std::string_view reduce, const OptionalTensor &lengths,
                      const OptionalTensor &indices, const OptionalTensor &offsets, int64_t dim, bool unsafe,
                      const std::optional<Scalar> &initial) {
  TORCH_CHECK(!indices.has_value() || !indices->defined(),
              "segment_reduce(): indices based reduction is not supported yet.");
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isFloatingType(data.scalar_type()), "\"_segment_reduce_cpu\" not implemented for '",
                              data.scalar_type(), "'");
  Segments segments(data, lengths, offsets, dim);
  if (!unsafe && lengths.has_value() && lengths->defined() && lengths->numel() > 0) {
    TORCH_CHECK(lengths->min().item<int64_t>() >= 0, "lengths contains negative value!");
    TORCH_CHECK(
        lengths->sum(-1).eq(data.size(segments.axis)).all().item<bool>(),
        "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe.");
  }
  Tensor out = segments.reduce(data, mode_of(reduce), start_of(reduce, initial));
  if (reduce == "mean") {
    Tensor count = to_type(segments.lengths, data.scalar_type());
    Tensor empty = initial.has_value() ? out : fill_with(new_like(out), std::nan(""));
    out = at::where(segments.lengths.eq(0), empty, out / count);
  }
  return out.contiguous();
}

Tensor segment_reduce_backward(const Tensor &grad, const Tensor &output, const Tensor &data, std::string_view reduce,
                               const OptionalTensor &lengths, const OptionalTensor &offsets, int64_t dim,
                               const std::optional<Scalar> &initial) {
  Segments segments(data, lengths, offsets, dim);
  Tensor g = segments.spread(grad);
  if (reduce == "sum")
    return g;
  if (reduce == "mean") {
    Tensor count = segments.spread(to_type(segments.lengths.expand(segments.sizes), data.scalar_type()));
    return at::where(count.eq(0), Scalar(0.0), g / count).to(data.scalar_type()); // 0: in no segment
  }
  if (reduce == "prod") { // of all other elements: zeros and NaN among them decide first
    ScalarType type = data.scalar_type();
    Tensor zero = data.eq(0), nan = data.isnan();
    Tensor plain = at::where(zero.logical_or(nan), Scalar(1.0), data).to(type);
    Tensor rest = segments.spread(segments.reduce(plain, 2, start_of(reduce, initial))) / plain;
    Tensor zeros = segments.spread(segments.reduce(zero.to(type), 1, 0)) - zero.to(type);
    Tensor nans = segments.spread(segments.reduce(nan.to(type), 1, 0)) - nan.to(type);
    Tensor others = at::where(nans.gt(0), Scalar(std::nan("")), at::where(zeros.gt(0), Scalar(0.0), rest));
    return (g * others).to(type);
  }
  Tensor best = segments.spread(output);
  Tensor hits = data.eq(best).logical_or(best.isnan().logical_and(data.isnan())).to(data.scalar_type());
  Tensor count = segments.spread(segments.reduce(hits, 1, 0));
  return at::where(hits.eq(0), Scalar(0.0), g * hits / count).to(data.scalar_type());
}

} // namespace headrace
