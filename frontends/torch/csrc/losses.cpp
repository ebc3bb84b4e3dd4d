// losses.cpp: losses that are not a single row of the core: margins between classes, and connectionist temporal
// classification (CTC), whose recursions over time need a few records for each step.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "layers.h"

namespace headrace {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity(); // the logarithm of 0

// Reduces the loss of each row: 0 none, 1 mean, 2 sum.
Tensor reduced(const Tensor &loss, int64_t reduction) {
  return reduction == 0 ? loss : reduction == 1 ? loss.mean() : loss.sum();
}

// The gradient of each row's loss, [N, 1], from the result's gradient.
Tensor spread(const Tensor &grad, int64_t rows, int64_t reduction) {
  if (reduction == 0)
    return grad.reshape({rows, 1});
  Tensor each = grad.reshape({1, 1});
  return reduction == 1 ? each / rows : each;
}

Tensor as_rows(const Tensor &x) {
  return x.dim() == 2 ? x : x.reshape({1, x.numel()});
}

// ---- one class against the others

struct Margins {
  Tensor gap;    // [N, C]: margin - x[target] + x, at least 0, and 0 at the target
  Tensor target; // [N, 1]
  Tensor weight; // of each row's target [N, 1], or undefined
  Margins(const Tensor &self, const Tensor &targets, const Scalar &p, const Scalar &margin,
          const OptionalTensor &weights) {
    TORCH_CHECK(p.toDouble() == 1 || p.toDouble() == 2, "multi_margin_loss: Invalid p, expected 1 or 2 but got ", p);
    TORCH_CHECK(self.dim() <= 2 && self.numel() > 0,
                "Expected non-empty vector or matrix with optional 0-dim batch size, but got: ", self.sizes());
    Tensor x = as_rows(self);
    TORCH_CHECK(targets.dim() <= 1 && targets.numel() == x.size(0), "inconsistent target size, expected ", x.size(0),
                " but got ", targets.sizes());
    TORCH_CHECK(!present(weights) || weights->numel() == x.size(1), "inconsistent weight size, expected ", x.size(1),
                " but got ", present(weights) ? weights->sizes() : IntArrayRef());
    target = targets.reshape({x.size(0), 1});
    gap = (x - x.gather(1, target)).add_(margin).clamp_min_(0).scatter_(1, target, Scalar(0));
    if (present(weights))
      weight = weights->index_select(0, target.reshape(-1)).unsqueeze(1);
  }
};

} // namespace

Tensor multi_margin_loss(Result result, const Tensor &self, const Tensor &target, const Scalar &p, const Scalar &margin,
                         const OptionalTensor &weight, int64_t reduction) {
  if (self.numel() == 0 && self.dim() == 2 && self.size(1) > 0) // no rows: torch's result is undefined
    return give(result, reduction == 0 ? at::zeros({0}, self.options()) : at::zeros({}, self.options()));
  Margins m(self, target, p, margin, weight);
  Tensor each = p.toDouble() == 2 ? m.gap * m.gap : m.gap;
  if (m.weight.defined())
    each = each * m.weight;
  Tensor rows = each.sum(1) / m.gap.size(1);
  return give(result, reduction == 0 && self.dim() < 2 ? rows.reshape(target.sizes()) : reduced(rows, reduction));
}

Tensor multi_margin_loss_backward(Result result, const Tensor &grad, const Tensor &self, const Tensor &target,
                                  const Scalar &p, const Scalar &margin, const OptionalTensor &weight,
                                  int64_t reduction) {
  if (self.numel() == 0)
    return give(result, at::zeros(self.sizes(), self.options()));
  Margins m(self, target, p, margin, weight);
  Tensor slope = p.toDouble() == 2 ? m.gap * 2 : (m.gap > 0).to(self.scalar_type());
  slope = slope * (spread(grad, m.gap.size(0), reduction) / m.gap.size(1));
  if (m.weight.defined())
    slope = slope * m.weight;
  Tensor dx = slope.scatter_add(1, m.target, slope.sum(1, true).neg_());
  return give(result, dx.reshape(self.sizes()));
}

// ---- several classes against the others: a row of targets ends before its first negative number

namespace {

struct Labels {
  Tensor x, index;             // [N, C]; index is 0 after the end
  Tensor is_listed, is_target; // by position in the list; by class
  Labels(const Tensor &self, const Tensor &targets) {
    TORCH_CHECK(self.dim() <= 2 && (self.numel() > 0 || (self.dim() == 2 && self.size(1) > 0)),
                "Expected non-empty vector or matrix with optional 0-dim batch size, but got: ", self.sizes());
    TORCH_CHECK(targets.numel() == self.numel() && targets.dim() <= 2, "inconsistent target size: ", targets.sizes(),
                " for input of size: ", self.sizes());
    x = as_rows(self);
    Tensor target = as_rows(targets);
    is_listed = (target < 0).cumsum(1) == 0;
    index = at::where(is_listed, target, 0);
    is_target = scatter(Result::fresh(), at::zeros(x.sizes(), x.options()), 1, index, is_listed.to(x.scalar_type()), 3);
  }
  // [N, listed, class]: 1 - x[listed] + x[class] if the class is not a target, else -infinity or NaN. Only numbers
  // above 0 contribute to the loss. It has three operations, so that each sum recomputes it instead of storing it.
  Tensor differences() const {
    constexpr double never = -std::numeric_limits<double>::infinity();
    Tensor listed = at::where(is_listed, 1 - x.gather(1, index), never);
    Tensor others = at::where(is_target == 0, x, never);
    return listed.unsqueeze(2) + others.unsqueeze(1);
  }
};

} // namespace

Tensor2 multilabel_margin_loss(Result result, Result target_place, const Tensor &self, const Tensor &target,
                               int64_t reduction) {
  Labels labels(self, target);
  Tensor difference = labels.differences();
  Tensor gap = at::where(difference > 0, difference, 0);
  Tensor rows = gap.sum(at::IntArrayRef{1, 2}) / std::max<int64_t>(labels.x.size(1), 1);
  bool single = self.dim() < 2;
  Tensor loss = reduction == 0
                    ? (single ? rows.reshape({}) : rows)
                    : reduced(rows, rows.numel() == 0 ? 2 : reduction); // undefined in torch without elements
  return {give(result, loss), give(target_place, labels.is_target.reshape(target.sizes()))};
}

Tensor multilabel_margin_loss_backward(Result result, const Tensor &grad, const Tensor &self, const Tensor &target,
                                       int64_t reduction, const Tensor &) {
  Labels labels(self, target);
  if (self.numel() == 0)
    return give(result, at::zeros(self.sizes(), self.options()));
  Tensor exceeds = (labels.differences() > 0).to(self.scalar_type());
  Tensor scale = spread(grad, labels.x.size(0), reduction) / labels.x.size(1);
  Tensor dx = (exceeds.sum(1) * scale).scatter_add(1, labels.index, exceeds.sum(2).mul_(scale).neg_());
  return give(result, dx.reshape(self.sizes()));
}

// ---- CTC: the probability of all alignments of a target with a sequence
//
// States are the target's labels with blanks between and around them, 2 S + 1 of them. With log probabilities lp,
// alpha[t, s] is that of all prefixes that end in state s at time t:
//
//   alpha[t, s] = lp[t, s] + log sum of exp alpha[t - 1, s], alpha[t - 1, s - 1], alpha[t - 1, s - 2] (if allowed)
//
// The three neighbours are one strided view of the previous row, which has two states of probability 0 in front. beta
// runs backwards. Sequences of a batch have different lengths: states and times past them are computed and not used.

namespace {

struct Alignment {
  int64_t times, batch, states, label_count;
  Tensor log_probs;                  // [T, N, C]
  Tensor label;                      // [N, L], the class of each state
  Tensor skips;                      // [N, L, 3]: 0 if the transition is allowed, else log(0)
  Tensor emission;                   // [T, N, L]
  Tensor input_length, state_length; // [N], on the device

  Alignment(const Tensor &probs, const Tensor &targets, IntArrayRef input_lengths, IntArrayRef target_lengths,
            int64_t blank);
  Tensor padded() const { // rows of states after two of probability 0
    return at::full({times, batch, states + 2}, kNothing, log_probs.options());
  }
  Tensor neighbours(const Tensor &row) const { // [N, L + 2] as [N, L, 3]
    return row.as_strided({batch, states, 3}, {row.stride(0), 1, 1}, row.storage_offset());
  }
};

Tensor lengths_on_device(IntArrayRef lengths) {
  Tensor host = at::empty({static_cast<int64_t>(lengths.size())}, at::TensorOptions(at::kCPU).dtype(at::kLong));
  std::copy(lengths.begin(), lengths.end(), host.mutable_data_ptr<int64_t>());
  return host.to(here());
}

Alignment::Alignment(const Tensor &probs, const Tensor &targets, IntArrayRef input_lengths, IntArrayRef target_lengths,
                     int64_t blank) {
  TORCH_CHECK(probs.dim() == 3, "ctc_loss: expected log_probs of 3 dimensions, but got ", probs.dim());
  TORCH_CHECK(targets.scalar_type() == ScalarType::Long || targets.scalar_type() == ScalarType::Int,
              "ctc_loss: targets must be Int or Long, not ", targets.scalar_type());
  times = probs.size(0), batch = probs.size(1), label_count = probs.size(2);
  TORCH_CHECK(blank >= 0 && blank < label_count, "blank must be in label range");
  TORCH_CHECK(static_cast<int64_t>(input_lengths.size()) == batch, "input_lengths must be of size batch_size");
  TORCH_CHECK(static_cast<int64_t>(target_lengths.size()) == batch, "target_lengths must be of size batch_size");
  int64_t longest = 0, all = 0;
  c10::SmallVector<int64_t, 32> starts, widths;
  for (int64_t i = 0; i < batch; ++i) {
    TORCH_CHECK(input_lengths[i] >= 0 && input_lengths[i] <= times, "Expected input_lengths to have value at most ",
                times, ", but got value ", input_lengths[i]);
    TORCH_CHECK(target_lengths[i] >= 0, "Expected target_lengths to have value at least 0, but got value ",
                target_lengths[i]);
    starts.push_back(targets.dim() == 1 ? all : 0);
    widths.push_back(2 * target_lengths[i] + 1);
    all += target_lengths[i], longest = std::max(longest, target_lengths[i]);
  }
  TORCH_CHECK(targets.dim() == 1 ? targets.size(0) == all
                                 : targets.dim() == 2 && targets.size(0) == batch && targets.size(1) >= longest,
              "Expected targets of ", all, " labels, or of ", batch, " rows of at least ", longest, ", but got ",
              targets.sizes());
  log_probs = probs, states = 2 * longest + 1;
  input_length = lengths_on_device(input_lengths), state_length = lengths_on_device(widths);
  at::TensorOptions integers = probs.options().dtype(at::kLong);
  label = at::full({batch, states}, blank, integers);
  skips = at::full({batch, states, 3}, 0.0, probs.options());
  if (longest > 0) {
    Tensor place = at::arange(longest, integers);
    Tensor rows = targets.to(at::kLong);
    if (targets.dim() == 2) {
      rows = rows.narrow(1, 0, longest);
    } else {
      Tensor at = (place + lengths_on_device(starts).unsqueeze(1)).clamp_max_(all - 1);
      rows = rows.index_select(0, at.reshape(-1)).reshape({batch, longest});
    }
    Tensor used = place < state_length.div(2, "floor").unsqueeze(1);
    label.slice(1, 1, states, 2).copy_(at::where(used, rows, blank));
  }
  // From a label to the next one, past the blank between them, unless they are the same.
  skips.select(2, 0).fill_(kNothing);
  if (states > 3) {
    Tensor differs = label.slice(1, 3, states, 2) != label.slice(1, 1, states - 2, 2);
    skips.select(2, 0).slice(1, 3, states, 2).masked_fill_(differs, 0);
  }
  emission = probs.gather(2, label.unsqueeze(0).expand({times, batch, states}));
}

} // namespace

std::vector<int64_t> lengths_of(const Tensor &lengths) {
  TORCH_CHECK(c10::isIntegralType(lengths.scalar_type(), false), "lengths must be integral");
  Tensor host = lengths.to(at::kCPU, at::kLong).contiguous();
  const int64_t *first = host.const_data_ptr<int64_t>();
  return {first, first + host.numel()};
}

// The second result, log alpha, is for the gradient: [N, T, L + 2].
Tensor2 ctc_loss(const Tensor &log_probs, const Tensor &targets, IntArrayRef input_lengths, IntArrayRef target_lengths,
                 int64_t blank, bool) {
  Alignment a(log_probs, targets, input_lengths, target_lengths, blank);
  Tensor alpha = a.padded();
  if (a.times > 0 && a.batch > 0) {
    int64_t starts = std::min<int64_t>(a.states, 2);
    alpha[0].narrow(1, 2, starts).copy_(a.emission[0].narrow(1, 0, starts));
    for (int64_t t = 1; t < a.times; ++t)
      alpha[t]
          .narrow(1, 2, a.states)
          .copy_(at::logsumexp(a.neighbours(alpha[t - 1]) + a.skips, IntArrayRef{2}).add_(a.emission[t]));
  }
  if (a.batch == 0)
    return {at::zeros({0}, log_probs.options()), alpha.transpose(0, 1)};
  Tensor loss;
  if (a.times == 0) {
    loss = at::full({a.batch}, -kNothing, log_probs.options());
  } else {
    // The last two states of each sequence: its last blank, and the label before it (or the padding if there is none).
    Tensor time = (a.input_length - 1).clamp_min_(0).reshape({1, a.batch, 1}).expand({1, a.batch, a.states + 2});
    Tensor last = alpha.gather(0, time)[0];
    Tensor ends = a.state_length.unsqueeze(1) + at::arange(2, a.state_length.options());
    loss = at::logsumexp(last.gather(1, ends), IntArrayRef{1}).neg_();
    loss = at::where(a.input_length == 0, -kNothing, loss);
  }
  Tensor nothing_to_say = a.input_length.eq(0).logical_and(a.state_length == 1);
  return {loss.masked_fill(nothing_to_say, 0), alpha.transpose(0, 1)};
}

Tensor ctc_loss_backward(const Tensor &grad, const Tensor &log_probs, const Tensor &targets, IntArrayRef input_lengths,
                         IntArrayRef target_lengths, const Tensor &loss, const Tensor &log_alpha, int64_t blank,
                         bool zero_infinity) {
  Alignment a(log_probs, targets, input_lengths, target_lengths, blank);
  if (log_probs.numel() == 0)
    return at::zeros(log_probs.sizes(), log_probs.options());
  // beta[t, s] is the probability of all suffixes from state s at time t; here the padding follows the states. A
  // sequence starts at its own last time, in its last two states.
  Tensor beta = a.padded(), state = at::arange(a.states, a.log_probs.options().dtype(at::kLong));
  Tensor width = a.state_length.unsqueeze(1);
  Tensor is_last = (state < width).logical_and(state >= width - 2);
  Tensor forward = at::full({a.batch, a.states + 2, 3}, kNothing, log_probs.options()); // of a state, from itself
  forward.narrow(1, 0, a.states).narrow(2, 0, 2).fill_(0);
  if (a.states > 2)
    forward.narrow(1, 0, a.states - 2).select(2, 2).copy_(a.skips.narrow(1, 2, a.states - 2).select(2, 0));
  forward = forward.narrow(1, 0, a.states);
  for (int64_t t = a.times - 1; t >= 0; --t) {
    Tensor begins = is_last.logical_and((a.input_length == t + 1).unsqueeze(1));
    Tensor here = t + 1 < a.times ? at::logsumexp(a.neighbours(beta[t + 1]) + forward, IntArrayRef{2})
                                  : a.padded()[0].narrow(1, 0, a.states);
    beta[t].narrow(1, 0, a.states).copy_(at::where(begins, 0.0, here).add_(a.emission[t]));
  }
  beta = beta.narrow(2, 0, a.states);
  // The share of a class at a time: exp(alpha + beta - lp) over its states, normalised to 1 by the loss.
  Tensor alpha = log_alpha.transpose(0, 1).narrow(2, 2, a.states);
  Tensor share = (alpha + beta - a.emission + loss.unsqueeze(1)).exp_();
  share = at::where((alpha + beta) == kNothing, 0.0, share);
  Tensor dx = log_probs.exp().scatter_add_(2, a.label.unsqueeze(0).expand({a.times, a.batch, a.states}), share.neg_());
  dx = dx * grad.unsqueeze(1);
  Tensor time = at::arange(a.times, a.log_probs.options().dtype(at::kLong)).unsqueeze(1);
  dx = dx.masked_fill((time >= a.input_length).unsqueeze(2), 0);
  return dx.masked_fill((loss == -kNothing).unsqueeze(1), zero_infinity ? 0.0 : std::nan(""));
}

} // namespace headrace
