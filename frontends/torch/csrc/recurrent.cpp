// recurrent.cpp: layers of LSTM and GRU over whole sequences.
//
// torch's own layers on a device split a sequence: a product for each step's input, and in the gradients a product for
// each step's share in the weights. Here the inputs of all steps are one product, and so is the gradient of either
// weight. The steps of a layer are one operation of the core, in each direction. For gradients, states are stored in
// one tensor [T + 1, N, H], next to the first state, so that the gradient of the weights reads them directly.
//
// Packed sequences run in the padded form, if that is not much more work (packed.h). Steps behind the end of a sequence
// have gates that keep an LSTM's cell, and gradients of 0.
//
// Unusual cases (projections, autocast, transforms) go through torch's own layers. With create_graph=True or batches of
// gradients, the gradient is that of torch's cells.
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_thnn_fused_gru_cell.h>
#include <ATen/ops/_thnn_fused_lstm_cell.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <limits>

#include "composite.h"
#include "kernels.h"
#include "packed.h"
#include "registration.h"

namespace headrace {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The inputs of a layer: `gates` [T, N, G * H] are its inputs' part of the gates with all their biases; `c` is for an
// LSTM, `bias` the hidden one of a GRU; else undefined.
struct Layer {
  Tensor gates, h, c, weight, bias;
  bool reverse;

  bool is_lstm() const {
    return c.defined();
  }
  int64_t steps() const {
    return gates.size(0);
  }
  int64_t batch() const {
    return gates.size(1);
  }
  int64_t hidden() const {
    return weight.size(1);
  }
  int64_t width() const { // of all gates
    return weight.size(0);
  }
  int64_t time(int64_t step) const { // of the step that runs after `step` others
    return reverse ? steps() - 1 - step : step;
  }
};

// ---- forward

// A layer's results, and the data for its gradient. `states` has a slot more than there are steps.
struct Made {
  Tensor outputs, last_h, last_c;
  Tensor states, cells, workspace;
};

void add_wanted_out(Record &record, const Tensor &tensor) {
  if (tensor.defined())
    record.out(tensor);
  else
    record.no_out();
}

// Steps in a row, as a range of time. A device without a library for layers runs a program of each of their steps, so a
// longer layer is several operations, committed one by one.
struct Range {
  int64_t time, count;
};
constexpr int64_t kStepsMax = 4096;

Range range_of(const Layer &layer, int64_t begin, int64_t end) { // steps that run after `begin` others
  return {layer.reverse ? layer.steps() - end : begin, end - begin};
}

Tensor part(const Tensor &tensor, Range range) {
  return !tensor.defined() || tensor.size(0) == range.count ? tensor : tensor.narrow(0, range.time, range.count);
}

void commit_long(const Layer &layer) {
  if (layer.steps() > kStepsMax && capture() == nullptr)
    check(hr_stream_commit(stream()));
}

// Steps after the state h and the cell c.
void run_steps(const Layer &layer, const Made &made, Range range, const Tensor &h, const Tensor &c) {
  Tensor gates = part(layer.gates, range), outputs = part(made.outputs, range); // a record refers to its tensors
  Tensor cells = part(made.cells, range), workspace = part(made.workspace, range);
  Record record(layer.is_lstm() ? HR_OP_LSTM : HR_OP_GRU);
  record.in(gates).in(h);
  if (layer.is_lstm())
    record.in(c).in(layer.weight);
  else
    record.in(layer.weight).in(layer.bias);
  record.ints({layer.reverse}).out(outputs);
  if (layer.is_lstm())
    add_wanted_out(record, cells);
  add_wanted_out(record, workspace);
  record.out(made.last_h);
  if (layer.is_lstm())
    record.out(made.last_c);
  record.run();
}

// With a gradient the outputs are a copy of the states, because a caller may change them.
Made forward(const Layer &layer, bool keeps) {
  int64_t steps = layer.steps(), n = layer.batch(), hidden = layer.hidden();
  ScalarType type = layer.h.scalar_type();
  Made made;
  Tensor states = new_tensor({keeps ? steps + 1 : steps, n, hidden}, type);
  made.outputs = keeps ? states.narrow(0, layer.reverse ? 0 : 1, steps) : states;
  made.last_h = new_tensor({n, hidden}, type);
  made.last_c = layer.is_lstm() ? new_tensor({n, hidden}, type) : Tensor();
  if (keeps) {
    made.states = states;
    made.cells = layer.is_lstm() ? new_tensor({steps, n, hidden}, type) : Tensor();
    made.workspace = new_tensor({steps, n, layer.is_lstm() ? 4 * hidden : 5 * hidden}, type);
    copy_on_device(layer.h, states.select(0, layer.reverse ? steps : 0));
  }
  for (int64_t begin = 0; begin < steps; begin += kStepsMax) {
    Range range = range_of(layer, begin, std::min(begin + kStepsMax, steps));
    run_steps(layer, made, range, begin == 0 ? layer.h : made.last_h, begin == 0 ? layer.c : made.last_c);
    commit_long(layer);
  }
  if (keeps)
    made.outputs = made.outputs.clone();
  return made;
}

variable_list results_of(const Layer &layer, const Made &made) {
  if (!layer.is_lstm())
    return {made.outputs, made.last_h};
  return {made.outputs, made.last_h, made.last_c};
}

// ---- gradients

struct Gradients {
  Tensor gates, hidden; // [T, N, G * H]: of the inputs' part and of the states' part, equal for an LSTM
  Tensor h, c;          // of the first state
};

// The gradients of steps: `by_h` and `by_c` are those of the results after them. The new ones may be undefined.
void differentiate_steps(const Layer &layer, const Made &made, Range range, const variable_list &by,
                         const Gradients &grads, const Tensor &new_h, const Tensor &new_c) {
  int64_t before = layer.reverse ? range.time + range.count : range.time - 1; // time of the step before these
  bool is_first = before < 0 || before == layer.steps();
  Tensor first = is_first || !layer.is_lstm() ? layer.c : made.cells.select(0, before);
  Tensor by_states = part(by[0], range), cells = part(made.cells, range), workspace = part(made.workspace, range);
  Tensor gates = part(grads.gates, range), hidden = part(grads.hidden, range);
  Record record(layer.is_lstm() ? HR_OP_LSTM_BACKWARD : HR_OP_GRU_BACKWARD);
  record.in(by_states).in(by[1]);
  if (layer.is_lstm())
    record.in(by[2]).in(first).in(cells);
  record.in(workspace).in(layer.weight).ints({layer.reverse}).out(gates);
  if (!layer.is_lstm())
    record.out(hidden);
  add_wanted_out(record, new_h);
  if (layer.is_lstm())
    add_wanted_out(record, new_c);
  record.run();
}

// `needs_first`: of the first state and the first cell.
Gradients gradients_of(const Layer &layer, const Made &made, variable_list by, std::array<bool, 2> needs_first) {
  int64_t steps = layer.steps(), n = layer.batch(), hidden = layer.hidden();
  ScalarType type = layer.weight.scalar_type();
  bool is_long = steps > kStepsMax;
  Gradients grads;
  grads.gates = new_tensor({steps, n, layer.width()}, type);
  grads.hidden = layer.is_lstm() ? grads.gates : new_tensor(grads.gates.sizes(), type);
  grads.h = needs_first[0] || is_long ? new_tensor({n, hidden}, type) : Tensor();
  grads.c = layer.is_lstm() && (needs_first[1] || is_long) ? new_tensor({n, hidden}, type) : Tensor();
  for (int64_t end = steps; end > 0; end -= std::min(end, kStepsMax)) {
    Range range = range_of(layer, std::max<int64_t>(end - kStepsMax, 0), end);
    differentiate_steps(layer, made, range, by, grads, grads.h, grads.c);
    by = {by[0], grads.h, grads.c};
    commit_long(layer);
  }
  return grads;
}

// [G * H, H]: the gates' gradients times the states before them, over all steps at once.
Tensor weight_gradient(const Layer &layer, const Made &made, const Tensor &hidden) {
  int64_t rows = layer.steps() * layer.batch(), width = layer.width();
  Tensor out = new_tensor({width, layer.hidden()}, layer.weight.scalar_type());
  Record record(HR_OP_MATMUL);
  record.in(hidden, {width, rows}, {1, width});
  record.in(made.states, {rows, layer.hidden()}, {layer.hidden(), 1},
            layer.reverse ? layer.batch() * layer.hidden() : 0);
  record.out(out).run();
  return out;
}

// The layer again, built of torch's cells, whose gradients can be recorded.
variable_list recorded_gradients(const Layer &layer, const variable_list &by) {
  Tensor h = layer.h, c = layer.c, zeros = layer.bias.defined() ? at::zeros_like(layer.bias) : Tensor();
  std::vector<Tensor> outputs(static_cast<size_t>(layer.steps()));
  at::AutoGradMode recorded(true);
  for (int64_t step = 0; step < layer.steps(); ++step) {
    int64_t time = layer.time(step);
    Tensor gates = layer.gates.select(0, time), hidden = h.matmul(layer.weight.t());
    if (layer.is_lstm())
      std::tie(h, c, std::ignore) = at::_thnn_fused_lstm_cell(gates, hidden, c);
    else
      h = std::get<0>(at::_thnn_fused_gru_cell(gates, hidden, h, zeros, layer.bias));
    outputs[static_cast<size_t>(time)] = h;
  }
  variable_list inputs = {layer.gates, layer.h, layer.c, layer.weight, layer.bias}, leaves, roots, grads;
  const Tensor made[3] = {at::stack(outputs), h, c};
  for (size_t i = 0; i < by.size(); ++i)
    if (by[i].defined())
      roots.push_back(made[i]), grads.push_back(by[i]);
  for (const Tensor &input : inputs)
    if (input.defined() && input.requires_grad())
      leaves.push_back(input);
  variable_list found = torch::autograd::grad(roots, leaves, grads, true, true, true), all;
  size_t at = 0;
  for (const Tensor &input : inputs)
    all.push_back(input.defined() && input.requires_grad() ? found[at++] : Tensor());
  return all;
}

struct Sequence : torch::autograd::Function<Sequence> {
  static variable_list forward(AutogradContext *context, const Tensor &gates, const Tensor &h, const OptionalTensor &c,
                               const Tensor &weight, const OptionalTensor &bias, bool reverse) {
    Layer layer{gates, h, c.value_or(Tensor()), weight, bias.value_or(Tensor()), reverse};
    Made made = headrace::forward(layer, true);
    context->save_for_backward({gates, h, layer.c, weight, layer.bias, made.states, made.cells, made.workspace});
    context->saved_data["reverse"] = reverse;
    context->set_materialize_grads(false);
    return results_of(layer, made);
  }

  static variable_list backward(AutogradContext *context, const variable_list &by) {
    variable_list saved = context->get_saved_variables();
    Layer layer{saved[0], saved[1], saved[2], saved[3], saved[4], context->saved_data["reverse"].toBool()};
    Made made;
    made.states = saved[5], made.cells = saved[6], made.workspace = saved[7];
    variable_list result(6);
    if (std::none_of(by.begin(), by.end(), [](const Tensor &grad) { return grad.defined(); }))
      return result;
    OnDevice on(layer.weight);
    bool is_batch = std::any_of(by.begin(), by.end(), [](const Tensor &x) { return x.defined() && !is_unwrapped(x); });
    if (at::GradMode::is_enabled() || is_batch) {
      variable_list found = recorded_gradients(layer, by);
      std::copy(found.begin(), found.end(), result.begin());
      return result;
    }
    size_t weight = layer.is_lstm() ? 3 : 2; // its position among the tensors present
    Gradients grads =
        gradients_of(layer, made, by, {context->needs_input_grad(1), layer.is_lstm() && context->needs_input_grad(2)});
    result[0] = grads.gates, result[1] = grads.h, result[2] = grads.c;
    if (context->needs_input_grad(weight))
      result[3] = weight_gradient(layer, made, grads.hidden);
    if (layer.bias.defined() && context->needs_input_grad(weight + 1))
      result[4] = grads.hidden.sum(IntArrayRef({0, 1}));
    return result;
  }
};

// ---- networks

struct Network {
  Tensor input, h, c; // c is undefined for a GRU
  TensorList params;
  bool has_biases;
  int64_t layers;
  double dropout;
  bool train, bidirectional, batch_first;
  const Packing *packing = nullptr; // of packed sequences, whose input is [rows, inputs]

  int64_t directions() const {
    return bidirectional ? 2 : 1;
  }
  size_t params_each() const {
    return has_biases ? 4 : 2;
  }
  int64_t gates() const {
    return c.defined() ? 4 : 3;
  }
};

bool is_like(const Tensor &tensor, const Tensor &input, IntArrayRef sizes) {
  return is_on_device(tensor) && tensor.scalar_type() == input.scalar_type() && tensor.sizes() == sizes &&
         !torch::autograd::isFwGradDefined(tensor);
}

bool has_plain_params(const Network &net) {
  int64_t hidden = net.h.size(2), width = net.gates() * hidden;
  for (size_t i = 0; i < net.params.size(); ++i) {
    bool is_first = i / net.params_each() < static_cast<size_t>(net.directions());
    int64_t inputs = i % net.params_each() == 1 ? hidden : is_first ? net.input.size(-1) : hidden * net.directions();
    Dims sizes = i % net.params_each() < 2 ? Dims{width, inputs} : Dims{width};
    if (!is_like(net.params[i], net.input, sizes))
      return false;
  }
  return true;
}

bool is_plain(c10::DispatchKeySet keys, const Network &net) {
  c10::DispatchKey next = (keys & c10::after_ADInplaceOrView_keyset).highestPriorityTypeId();
  const Tensor &input = net.input, &h = net.h;
  if (next != c10::DispatchKey::PrivateUse1 || at::autocast::is_autocast_enabled(at::kPrivateUse1) ||
      input.dim() != (net.packing != nullptr ? 2 : 3) || h.dim() != 3 || !input.is_floating_point() || net.layers < 1 ||
      net.params.size() != static_cast<size_t>(net.layers * net.directions()) * net.params_each())
    return false;
  int64_t batch = net.packing != nullptr ? net.packing->batch() : input.size(net.batch_first ? 0 : 1);
  Dims sizes = {net.layers * net.directions(), batch, h.size(2)};
  return input.numel() > 0 && h.numel() > 0 && is_like(input, input, input.sizes()) && is_like(h, input, sizes) &&
         (!net.c.defined() || is_like(net.c, input, sizes)) && has_plain_params(net);
}

OptionalTensor if_any(const Tensor &tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

variable_list run_all_steps(const Layer &layer) {
  if (at::GradMode::is_enabled() &&
      torch::autograd::compute_requires_grad(layer.gates, layer.h, layer.c, layer.weight, layer.bias))
    return Sequence::apply(layer.gates, layer.h, if_any(layer.c), layer.weight, if_any(layer.bias), layer.reverse);
  return results_of(layer, forward(layer, false));
}

// In the padded form each sequence begins with its first step, in both directions. Behind its end i = 0, f = 1 and
// o = 0, so that an LSTM's last cell is that of its last step.
variable_list run_packed(const Packing &packing, Layer layer) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  static const std::vector<Scalar> kept = {-infinity, infinity, 0, -infinity}, any = {0};
  int64_t steps = packing.steps(), batch = packing.batch(), hidden = layer.hidden();
  RowMap map = packing.to_padded(steps, false, layer.reverse);
  Tensor gates = take_rows(layer.gates, map, layer.is_lstm() ? kept : any);
  Layer padded{gates.view({steps, batch, layer.width()}), layer.h, layer.c, layer.weight, layer.bias, false};
  variable_list made = run_all_steps(padded);
  made[0] = take_rows(made[0].reshape({steps * batch, hidden}), map.inverse(), {0});
  made[1] = layer.reverse ? made[0].narrow(0, 0, batch) : take_rows(made[0], packing.to_last(), {0});
  return made;
}

// One direction of one layer. Both biases of an LSTM are added once, because only their sum is used.
variable_list run_layer(const Network &net, const Tensor &x, int64_t index, bool reverse) {
  TensorList params = net.params.slice(static_cast<size_t>(index) * net.params_each(), net.params_each());
  Tensor input_bias = net.has_biases ? params[2] : Tensor(), hidden_bias = net.has_biases ? params[3] : Tensor();
  Tensor h = net.h.select(0, index).contiguous();
  Tensor c = net.c.defined() ? net.c.select(0, index).contiguous() : Tensor();
  if (net.has_biases && c.defined())
    input_bias = input_bias + hidden_bias, hidden_bias = Tensor();
  Layer layer{at::linear(x, params[0], input_bias).contiguous(), h, c, params[1], hidden_bias, reverse};
  return net.packing != nullptr ? run_packed(*net.packing, layer) : run_all_steps(layer);
}

Tensor3 run_network(const Network &net) {
  OnDevice on(net.input);
  std::vector<Tensor> last_h, last_c;
  Tensor x = (net.batch_first ? net.input.transpose(0, 1) : net.input).contiguous();
  for (int64_t layer = 0; layer < net.layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < net.directions(); ++direction) {
      variable_list made = run_layer(net, x, layer * net.directions() + direction, direction == 1);
      outputs.push_back(made[0]), last_h.push_back(made[1]);
      if (net.c.defined())
        last_c.push_back(made[2]);
    }
    x = outputs.size() == 1 ? outputs[0] : at::cat(outputs, -1);
    if (net.dropout != 0 && net.train && layer + 1 < net.layers)
      x = at::dropout(x, net.dropout, true);
  }
  return {net.batch_first ? x.transpose(0, 1) : x, at::stack(last_h), net.c.defined() ? at::stack(last_c) : Tensor()};
}

Tensor3 lstm(c10::DispatchKeySet keys, const Tensor &input, TensorList hx, TensorList params, bool has_biases,
             int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  if (hx.size() == 2) {
    Network net{input, hx[0], hx[1], params, has_biases, layers, dropout, train, bidirectional, batch_first};
    if (hx[1].defined() && is_plain(keys, net))
      return run_network(net);
  }
  return at::native::lstm(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
}

// True if the rows behind the ends of sequences take less time than the records of torch's own layers. These take about
// 50 us a step with its gradient. A few rows take as long as one.
bool is_worth_padding(const Network &net) {
  constexpr int64_t few = 4, multiplies_of_records = 1 << 19;
  const Packing &packing = *net.packing;
  int64_t hidden = net.h.size(2), padded = packing.steps() * packing.batch(), behind = padded - packing.rows();
  return packing.batch() <= few || behind <= packing.rows() ||
         behind * net.gates() * hidden * hidden <= packing.steps() * multiplies_of_records;
}

Tensor3 packed_lstm(c10::DispatchKeySet keys, const Tensor &data, const Tensor &batch_sizes, TensorList hx,
                    TensorList params, bool has_biases, int64_t layers, double dropout, bool train,
                    bool bidirectional) {
  std::optional<Packing> packing = Packing::of(keys, data, batch_sizes);
  if (packing.has_value() && hx.size() == 2) {
    Network net{data, hx[0], hx[1], params, has_biases, layers, dropout, train, bidirectional, false, &*packing};
    if (hx[1].defined() && is_plain(keys, net) && is_worth_padding(net))
      return run_network(net);
  }
  return at::native::lstm(data, batch_sizes, hx, params, has_biases, layers, dropout, train, bidirectional);
}

Tensor2 packed_gru(c10::DispatchKeySet keys, const Tensor &data, const Tensor &batch_sizes, const Tensor &h,
                   TensorList params, bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  std::optional<Packing> packing = Packing::of(keys, data, batch_sizes);
  if (packing.has_value()) {
    Network net{data, h, Tensor(), params, has_biases, layers, dropout, train, bidirectional, false, &*packing};
    if (is_plain(keys, net) && is_worth_padding(net)) {
      Tensor3 made = run_network(net);
      return {std::get<0>(made), std::get<1>(made)};
    }
  }
  return at::native::gru(data, batch_sizes, h, params, has_biases, layers, dropout, train, bidirectional);
}

Tensor2 gru(c10::DispatchKeySet keys, const Tensor &input, const Tensor &h, TensorList params, bool has_biases,
            int64_t layers, double dropout, bool train, bool bidirectional, bool batch_first) {
  Network net{input, h, Tensor(), params, has_biases, layers, dropout, train, bidirectional, batch_first};
  if (!is_plain(keys, net))
    return at::native::gru(input, h, params, has_biases, layers, dropout, train, bidirectional, batch_first);
  Tensor3 made = run_network(net);
  return {std::get<0>(made), std::get<1>(made)};
}

HEADRACE_KERNELS(aten, PrivateUse1, m) {
  m.impl("lstm.input", TORCH_FN(lstm));
  m.impl("gru.input", TORCH_FN(gru));
  m.impl("lstm.data", TORCH_FN(packed_lstm));
  m.impl("gru.data", TORCH_FN(packed_gru));
}
HEADRACE_KERNELS(aten, AutogradPrivateUse1, m) {
  m.impl("lstm.input", TORCH_FN(lstm));
  m.impl("gru.input", TORCH_FN(gru));
  m.impl("lstm.data", TORCH_FN(packed_lstm));
  m.impl("gru.data", TORCH_FN(packed_gru));
}

} // namespace
} // namespace headrace
