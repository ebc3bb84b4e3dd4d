// graph.cpp: FX graphs of torch.compile as graphs of the stream.
//
// A *program* is one FX graph. It has a *variant* for each geometry of its inputs seen so far: an hr_part, the required
// form of its inputs, and the description of its outputs. The Python module captures a variant by running the FX graph
// on placeholders while this thread's stream() is a capture. graph_run then creates the outputs' tensors, without
// memory, and appends the variant to the stream.
//
//   capture_begin .. FX graph .. headrace::graph_end      a new variant
//   headrace::graph_run(program, inputs)                                 outputs, or [None] when no variant fits
//   graph_run_directly                                                   the same, from function.cpp
//
// A run may pass numbers: captured scalars that bind_numbers named take their values.
//
// Each run of a random operation uses one offset of the generator's sequence. During a capture it gets a ticket, and
// the scalars that hold it become arguments of the graph.
//
// Threads: a program has a lock; a capture belongs to its thread.
#include <ATen/ops/as_strided.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "composite.h"
#include "device.h"
#include "node.h"
#include "record.h"
#include "registration.h"

namespace headrace {

std::atomic<int> capture_count{0};

namespace {

thread_local std::unique_ptr<Capture> this_capture;
std::atomic<Capture *> shared_capture{nullptr}; // that of a thread, if autograd's threads join it
std::atomic<int64_t> runs{0}, captures{0};

// The required form of an input.
struct Input {
  bool from_host; // a tensor of the host, copied to the device in each run
  bool is_used;   // by an operation
  c10::Device device;
  ScalarType type;
  int64_t offset;
  Dims sizes, strides;

  bool fits(const Tensor &tensor) const {
    const c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
    return tensor.defined() && impl->device() == device && tensor.scalar_type() == type &&
           impl->storage_offset() == offset && impl->sizes().equals(sizes) && impl->strides().equals(strides) &&
           !impl->is_conj() && !impl->is_neg();
  }
};

// An input itself, a view of an input, an earlier output again, or a view of a new storage.
struct Output {
  enum Kind { Same, View, Again, Fresh } kind;
  size_t index; // of the input, of the output, or of the storage
  ScalarType type;
  int64_t offset;
  Dims sizes, strides;
};

// A graph and the description of its results' tensors.
struct Piece {
  hr_part *graph = nullptr;
  std::vector<Output> outputs;
  std::vector<size_t> result_bytes;     // storages of outputs first, then buffers kept for the backward pass
  std::vector<int64_t> tickets;         // of each pair of arguments, seed and offset
  std::vector<Capture::Number> numbers; // of the arguments behind those
  Piece() = default;
  Piece(const Piece &) = delete;
  ~Piece() {
    hr_part_release(graph);
  }
};

// Parameters: inputs, tangents (the gradients of `differentiable` outputs), and results of the forward pass.
struct Backward {
  Piece piece; // its outputs are the gradients of `wanted` inputs
  std::vector<Input> tangents;
  std::vector<size_t> differentiable, wanted;
  std::vector<size_t> read_inputs;  // inputs that the graph reads
  std::vector<size_t> kept;         // results of the forward pass
  std::vector<size_t> kept_outputs; // the first output in each of the storages among them
  int64_t ticket_count = 0;         // drawn by the backward pass itself
};

struct Variant {
  Piece forward;
  std::vector<Input> inputs;
  std::vector<size_t> written; // inputs
  std::vector<size_t> bumped;  // of these, those whose version torch bumps: not a batch norm's statistics
  int64_t ticket_count = 0;
  c10::Device device = here();
  std::unique_ptr<Backward> backward;
};

constexpr size_t kVariantsMax = 32; // of a program

struct Program {
  std::atomic<bool> is_mixed{false}; // its results are not all tensors of the device
  std::mutex mutex;
  std::vector<std::shared_ptr<Variant>> variants; // the last used first
};

Program &program_of(int64_t handle) {
  return *reinterpret_cast<Program *>(handle);
}

// ---- capturing

} // namespace

void capture_begin() {
  TORCH_CHECK(!this_capture, "headrace: a graph is being captured already");
  stream();                    // opens the device
  commit_device(here_index()); // constants have their memory now
  auto capture = std::make_unique<Capture>();
  check(hr_capture_create(device(), &capture->stream));
  this_capture = std::move(capture);
  ++capture_count;
}

// From here on the thread records the backward pass of its capture.
void capture_backward() {
  TORCH_CHECK(this_capture && this_capture->forward == nullptr, "headrace: no forward pass is being captured");
  hr_stream *second = nullptr;
  check(hr_capture_create(device(), &second));
  this_capture->forward = std::exchange(this_capture->stream, second);
  this_capture->forward_randoms = std::exchange(this_capture->randoms, {});
  this_capture->forward_ticket_count = this_capture->ticket_count;
}

static bool is_second(bool of_forward) {
  TORCH_CHECK(this_capture, "headrace: no graph is being captured");
  return of_forward && this_capture->forward != nullptr;
}

std::vector<hr_scalar> captured_scalars(bool of_forward) {
  hr_stream *stream = is_second(of_forward) ? this_capture->forward : this_capture->stream;
  std::vector<hr_scalar> scalars;
  for (int64_t i = 0; i < hr_capture_scalar_count(stream); ++i)
    scalars.push_back(hr_capture_scalar(stream, i));
  return scalars;
}

void bind_numbers(bool of_forward, std::vector<Capture::Number> numbers) {
  (is_second(of_forward) ? this_capture->forward_numbers : this_capture->numbers) = std::move(numbers);
}

void capture_end() {
  if (!this_capture)
    return;
  this_capture.reset();
  --capture_count;
}

// Autograd's threads, which run a backward pass, belong to the thread that captures.
void shared_capture_begin() {
  capture_begin();
  Capture *none = nullptr;
  if (!shared_capture.compare_exchange_strong(none, this_capture.get())) {
    capture_end();
    TORCH_CHECK(false, "headrace: another thread is capturing a graph");
  }
}

std::unique_ptr<Capture> shared_capture_end() {
  TORCH_CHECK(this_capture && shared_capture.load() == this_capture.get(),
              "headrace: a graph's capture must end in the thread in which it began");
  shared_capture.store(nullptr);
  --capture_count;
  return std::move(this_capture);
}

namespace {

hr_buffer *own_buffer_of(const Tensor &tensor) {
  int64_t offset_bytes;
  bool retained;
  hr_buffer *buffer = buffer_of(tensor, &offset_bytes, &retained);
  if (retained)
    hr_buffer_release(buffer);
  TORCH_CHECK(!retained, "headrace: the storage of a tensor of a graph is not its own");
  return buffer;
}

Input describe_input(const Tensor &tensor, bool from_host) {
  return {from_host,
          true,
          from_host ? c10::Device(c10::kCPU) : tensor.device(),
          tensor.scalar_type(),
          tensor.storage_offset(),
          Dims(tensor.sizes().begin(), tensor.sizes().end()),
          Dims(tensor.strides().begin(), tensor.strides().end())};
}

// Describes the outputs; new storages go to `storages`.
std::vector<Output> describe_outputs(TensorList outputs, TensorList placeholders,
                                     std::vector<c10::StorageImpl *> &storages) {
  std::vector<Output> described;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const Tensor &tensor = outputs[o];
    TORCH_CHECK(is_on_device(tensor), "headrace: a graph gives a tensor of ", tensor.device());
    TORCH_CHECK(!tensor.is_conj() && !tensor.is_neg(), "headrace: a graph gives a lazily conjugated tensor");
    Output output{Output::Fresh,
                  0,
                  tensor.scalar_type(),
                  tensor.storage_offset(),
                  Dims(tensor.sizes().begin(), tensor.sizes().end()),
                  Dims(tensor.strides().begin(), tensor.strides().end())};
    const auto same = [&](const Tensor &other) { return other.is_same(tensor); };
    const auto shares = [&](const Tensor &other) {
      return other.storage().unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl();
    };
    auto earlier = std::find_if(outputs.begin(), outputs.begin() + o, same);
    auto input = std::find_if(placeholders.begin(), placeholders.end(), shares);
    if (earlier != outputs.begin() + o) {
      output.kind = Output::Again;
      output.index = static_cast<size_t>(earlier - outputs.begin());
    } else if (input != placeholders.end()) {
      TORCH_CHECK(input->scalar_type() == output.type, "headrace: a graph gives an input as another dtype");
      output.kind = input->is_same(tensor) ? Output::Same : Output::View;
      output.index = static_cast<size_t>(input - placeholders.begin());
    } else {
      c10::StorageImpl *storage = tensor.storage().unsafeGetStorageImpl();
      output.index = static_cast<size_t>(std::find(storages.begin(), storages.end(), storage) - storages.begin());
      if (output.index == storages.size())
        storages.push_back(storage);
    }
    described.push_back(std::move(output));
  }
  return described;
}

std::vector<hr_buffer *> buffers_of(TensorList tensors) {
  std::vector<hr_buffer *> buffers;
  for (const Tensor &tensor : tensors)
    buffers.push_back(own_buffer_of(tensor));
  return buffers;
}

std::vector<hr_buffer *> buffers_of(const std::vector<c10::StorageImpl *> &storages) {
  std::vector<hr_buffer *> buffers;
  for (c10::StorageImpl *storage : storages) {
    TORCH_CHECK(is_ours(storage->data_ptr()), "headrace: the storage of a result is not its own");
    buffers.push_back(static_cast<hr_buffer *>(storage->data_ptr().get_context()));
  }
  return buffers;
}

// Turns a capture's records into a piece's graph.
void take_graph(hr_stream *capture, const std::vector<Capture::Random> &randoms,
                const std::vector<Capture::Number> &numbers, const std::vector<hr_buffer *> &params,
                const std::vector<hr_buffer *> &results, Piece &piece) {
  std::vector<int64_t> arguments;
  for (const Capture::Random &random : randoms) {
    arguments.insert(arguments.end(), {random.scalar, random.scalar + 1});
    piece.tickets.push_back(random.ticket);
  }
  for (const Capture::Number &number : numbers)
    arguments.push_back(number.scalar);
  piece.numbers = numbers;
  for (hr_buffer *result : results)
    piece.result_bytes.push_back(hr_buffer_bytes(result));
  hr_part_spec spec{static_cast<int>(params.size()),
                    static_cast<int>(results.size()),
                    static_cast<int>(arguments.size()),
                    params.data(),
                    results.data(),
                    arguments.data()};
  check(hr_part_create(capture, &spec, &piece.graph));
}

// The buffers that the forward pass must keep: those that both captures use, except parameters and constants.
std::vector<hr_buffer *> find_kept(const std::vector<hr_buffer *> &params) {
  std::vector<hr_buffer *> kept;
  for (int64_t i = 0; i < hr_capture_buffer_count(this_capture->stream); ++i) {
    hr_buffer *buffer = hr_capture_buffer(this_capture->stream, i);
    bool is_param = std::find(params.begin(), params.end(), buffer) != params.end();
    if (!is_param && !hr_buffer_has_memory(buffer) && hr_capture_uses(this_capture->forward, buffer))
      kept.push_back(buffer);
  }
  return kept;
}

// Describes the inputs and the forward graph's use of them.
void describe_inputs(at::IntArrayRef from_host, TensorList placeholders, Variant &variant) {
  for (size_t i = 0; i < placeholders.size(); ++i) {
    bool is_host = std::find(from_host.begin(), from_host.end(), static_cast<int64_t>(i)) != from_host.end();
    int use = hr_part_param_use(variant.forward.graph, static_cast<int>(i));
    variant.inputs.push_back(describe_input(placeholders[i], is_host));
    variant.inputs.back().is_used = use != 0;
    if ((use & HR_PART_WRITES) != 0) {
      TORCH_CHECK(!is_host, "headrace: a graph writes to a tensor of the host");
      variant.written.push_back(i);
      if (placeholders[i]._version() > 0)
        variant.bumped.push_back(i);
    }
  }
}

int64_t add_variant(int64_t program, std::shared_ptr<Variant> variant) {
  ++captures;
  std::lock_guard<std::mutex> lock(program_of(program).mutex);
  auto &variants = program_of(program).variants;
  if (variants.size() == kVariantsMax)
    variants.pop_back(); // the least recently used one
  variants.insert(variants.begin(), std::move(variant));
  return static_cast<int64_t>(variants.size());
}

// A new variant of all records that this thread has captured; returns the program's number of variants.
int64_t graph_end(int64_t program, at::IntArrayRef from_host, TensorList placeholders, TensorList outputs) {
  TORCH_CHECK(this_capture && this_capture->forward == nullptr, "headrace: no graph is being captured");
  auto variant = std::make_shared<Variant>();
  std::vector<c10::StorageImpl *> storages;
  variant->forward.outputs = describe_outputs(outputs, placeholders, storages);
  take_graph(this_capture->stream, this_capture->randoms, this_capture->numbers, buffers_of(placeholders),
             buffers_of(storages), variant->forward);
  variant->ticket_count = this_capture->ticket_count;
  describe_inputs(from_host, placeholders, *variant);
  return add_variant(program, std::move(variant));
}

// The same with a backward pass. `tangents` are placeholders of the gradients of outputs[differentiable], `gradients`
// those of placeholders[wanted]. Rejects cases that torch's autograd would track through views.
int64_t graph_end_backward(int64_t program, at::IntArrayRef from_host, TensorList placeholders, TensorList outputs,
                           at::IntArrayRef differentiable, TensorList tangents, at::IntArrayRef wanted,
                           TensorList gradients) {
  TORCH_CHECK(this_capture && this_capture->forward != nullptr, "headrace: no backward pass is being captured");
  auto variant = std::make_shared<Variant>();
  auto backward = std::make_unique<Backward>();
  std::vector<c10::StorageImpl *> storages, gradient_storages;
  variant->forward.outputs = describe_outputs(outputs, placeholders, storages);
  for (const Output &output : variant->forward.outputs)
    TORCH_CHECK(output.kind == Output::Fresh, "not differentiable here: an output is an input or another output");
  TORCH_CHECK(storages.size() == outputs.size(), "not differentiable here: two outputs share memory");

  std::vector<Tensor> sources(placeholders.begin(), placeholders.end());
  sources.insert(sources.end(), tangents.begin(), tangents.end());
  backward->piece.outputs = describe_outputs(gradients, sources, gradient_storages);
  for (Output &gradient : backward->piece.outputs) {
    if (gradient.kind == Output::Same || gradient.kind == Output::View) {
      TORCH_CHECK(gradient.index >= placeholders.size(), "not differentiable here: a gradient is an input");
      gradient.index -= placeholders.size();
    }
  }
  std::vector<hr_buffer *> params = buffers_of(sources), results = buffers_of(storages), kept = find_kept(params);
  size_t input_count = placeholders.size(), own_count = params.size();
  for (hr_buffer *buffer : kept) {
    auto place = std::find(results.begin(), results.end(), buffer);
    backward->kept.push_back(static_cast<size_t>(place - results.begin()));
    if (place == results.end())
      results.push_back(buffer);
    else
      backward->kept_outputs.push_back(backward->kept.back());
  }
  params.insert(params.end(), kept.begin(), kept.end());
  take_graph(this_capture->stream, this_capture->randoms, this_capture->numbers, params, buffers_of(gradient_storages),
             backward->piece);
  params.resize(input_count);
  take_graph(this_capture->forward, this_capture->forward_randoms, this_capture->forward_numbers, params, results,
             variant->forward);
  describe_inputs(from_host, placeholders, *variant);

  for (size_t i = 0; i < own_count + kept.size(); ++i) {
    int use = hr_part_param_use(backward->piece.graph, static_cast<int>(i));
    TORCH_CHECK((use & HR_PART_WRITES) == 0, "not differentiable here: the backward pass writes what it was given");
    if (i < input_count && use != 0) {
      TORCH_CHECK(!variant->inputs[i].from_host,
                  "not differentiable here: the backward pass reads a tensor of the host");
      backward->read_inputs.push_back(i);
    }
  }
  for (size_t i : variant->written)
    TORCH_CHECK(!placeholders[i].requires_grad(),
                "not differentiable here: an input that requires gradients is written");
  for (const Tensor &tangent : tangents)
    backward->tangents.push_back(describe_input(tangent, false));
  backward->differentiable.assign(differentiable.begin(), differentiable.end());
  backward->wanted.assign(wanted.begin(), wanted.end());
  variant->ticket_count = this_capture->forward_ticket_count;
  backward->ticket_count = this_capture->ticket_count - variant->ticket_count;
  variant->backward = std::move(backward);
  return add_variant(program, std::move(variant));
}

// ---- running

std::shared_ptr<Variant> find_variant(Program &program, TensorList inputs) {
  std::lock_guard<std::mutex> lock(program.mutex);
  for (size_t v = 0; v < program.variants.size(); ++v) {
    const std::vector<Input> &wanted = program.variants[v]->inputs;
    size_t i = 0;
    while (i < wanted.size() && i < inputs.size() && wanted[i].fits(inputs[i]))
      ++i;
    if (i == inputs.size() && i == wanted.size()) {
      std::rotate(program.variants.begin(), program.variants.begin() + static_cast<ptrdiff_t>(v),
                  program.variants.begin() + static_cast<ptrdiff_t>(v) + 1);
      return program.variants.front();
    }
  }
  return nullptr;
}

// The buffers of a run's inputs. It keeps tensors that were copied to the device alive.
struct Bound {
  c10::SmallVector<hr_buffer *, 32> params;
  std::vector<Tensor> copies;

  bool bind(const Variant &variant, TensorList inputs) {
    params.resize(inputs.size(), nullptr);
    for (size_t i = 0; i < inputs.size(); ++i) {
      int64_t offset_bytes;
      bool retained;
      if (C10_UNLIKELY(!variant.inputs[i].is_used))
        continue;
      if (C10_UNLIKELY(variant.inputs[i].from_host))
        copies.push_back(inputs[i].to(variant.device));
      params[i] = buffer_of(variant.inputs[i].from_host ? copies.back() : inputs[i], &offset_bytes, &retained);
      if (C10_UNLIKELY(retained)) {
        hr_buffer_release(params[i]); // the tensor's storage holds a reference
        if (offset_bytes != 0)
          return false;
      }
    }
    return variant.written.empty() || !shares_written(variant);
  }

  // Each placeholder had its own storage: an input that an operation writes must not overlap another input.
  bool shares_written(const Variant &variant) const {
    c10::SmallVector<hr_buffer *, 32> sorted(params.begin(), params.end());
    std::sort(sorted.begin(), sorted.end());
    for (size_t i : variant.written) {
      auto range = std::equal_range(sorted.begin(), sorted.end(), params[i]);
      if (range.second - range.first > 1)
        return true;
    }
    return false;
  }
};

using Buffers = c10::SmallVector<hr_buffer *, 32>;

// Tensors of a piece's outputs and the buffers of their storages, which are its first results.
std::vector<Tensor> make_outputs(const Piece &piece, TensorList sources, Buffers &results) {
  std::vector<Tensor> outputs;
  std::vector<const Tensor *> first(piece.result_bytes.size(), nullptr); // in each storage
  outputs.reserve(piece.outputs.size());
  results.resize(piece.result_bytes.size(), nullptr);
  for (const Output &output : piece.outputs) {
    if (output.kind == Output::Same) {
      outputs.push_back(sources[output.index]);
    } else if (output.kind == Output::Again) {
      outputs.push_back(outputs[output.index]);
    } else if (output.kind == Output::View) {
      outputs.push_back(at::as_strided(sources[output.index], output.sizes, output.strides, output.offset));
    } else if (first[output.index] == nullptr) {
      size_t bytes = piece.result_bytes[output.index];
      outputs.push_back(
          new_tensor_in(allocate(bytes), bytes, output.sizes, output.strides, output.offset, output.type));
      first[output.index] = &outputs.back();
      results[output.index] =
          static_cast<hr_buffer *>(outputs.back().storage().unsafeGetStorageImpl()->data_ptr().get_context());
    } else {
      outputs.push_back(new_view_of(*first[output.index], output.sizes, output.strides, output.offset, output.type));
    }
  }
  return outputs;
}

// The scalars of a piece: tickets below `before` were drawn by the forward pass from `earlier` on, the others are drawn
// now. `given` are the numbers of the run.
std::vector<hr_scalar> numbers_of(const Piece &piece, Philox earlier, int64_t before, Philox now,
                                  c10::ArrayRef<double> given) {
  std::vector<hr_scalar> numbers;
  for (int64_t ticket : piece.tickets) {
    numbers.push_back(hr_scalar_i64(ticket < before ? earlier.seed : now.seed));
    numbers.push_back(hr_scalar_i64(ticket < before ? earlier.offset + ticket : now.offset + ticket - before));
  }
  for (const Capture::Number &number : piece.numbers) {
    TORCH_CHECK(number.which < given.size(), "headrace: a graph was given ", given.size(), " numbers");
    numbers.push_back(hr_scalar_f64(number.is_negated ? -given[number.which] : given[number.which]));
  }
  return numbers;
}

Philox draw(int64_t count) {
  TORCH_CHECK(count == 0 || capture() == nullptr, "headrace: a graph inside a graph draws random numbers");
  return count > 0 ? next_philox(std::nullopt, count) : Philox{0, 0};
}

// The data for the backward pass of one run. Tensors are saved as in torch's own nodes, so that changing one in place
// in between is an error. Values that are not visible elsewhere are kept as buffers.
struct GraphBackward final : torch::autograd::Node {
  std::shared_ptr<Variant> variant;
  std::vector<torch::autograd::SavedVariable> inputs, outputs;
  Buffers kept; // a reference of each
  Philox place{0, 0};
  std::vector<double> numbers; // of the run
  bool released = false;

  ~GraphBackward() override {
    drop();
  }
  std::string name() const override {
    return "HeadraceGraphBackward";
  }
  void drop() {
    for (hr_buffer *buffer : kept)
      release_buffer(buffer);
    kept.clear();
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto *list : {&inputs, &outputs})
      for (torch::autograd::SavedVariable &saved : *list)
        saved.reset_data();
    drop();
    released = true;
  }

  // The gradient of an output in the captured form: zeros if there is none, a copy if its strides differ. A batch of
  // gradients (vmap) is refused by the copy.
  Tensor tangent(const Input &wanted, const Tensor &given) const {
    if (given.defined() && is_unwrapped(given) && wanted.fits(given))
      return given;
    Tensor made = new_tensor(wanted.sizes, wanted.strides, wanted.type);
    return given.defined() ? made.copy_(given) : fill_with(made, 0);
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list &&given) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const Backward &backward = *variant->backward;
    TORCH_CHECK(!at::GradMode::is_enabled(),
                "torch.compile with the headrace backend does not support double backward (create_graph=True)");
    TORCH_CHECK(!released, torch::autograd::ERR_BACKWARD_TWICE);
    OnDevice on(variant->device);
    std::vector<Tensor> held, tangents;
    Buffers params(variant->inputs.size(), nullptr), results;
    for (torch::autograd::SavedVariable &saved : outputs)
      saved.unpack(getptr());
    for (size_t i = 0; i < inputs.size(); ++i) {
      held.push_back(inputs[i].unpack(getptr()));
      params[backward.read_inputs[i]] = own_buffer_of(held.back());
    }
    for (size_t i = 0; i < given.size(); ++i) {
      tangents.push_back(tangent(backward.tangents[i], given[i]));
      params.push_back(own_buffer_of(tangents.back()));
    }
    params.append(kept.begin(), kept.end());
    std::vector<Tensor> gradients = make_outputs(backward.piece, tangents, results);
    Philox now = draw(backward.ticket_count);
    std::vector<hr_scalar> scalars = numbers_of(backward.piece, place, variant->ticket_count, now, numbers);
    check(hr_part_run(headrace::stream(), backward.piece.graph, params.data(), results.data(), scalars.data()));
    runs.fetch_add(1, std::memory_order_relaxed);
    // No early submit here: the caller holds the gradients of outputs, which then had to be stored. The end of the pass
    // commits it.
    return gradients;
  }
};

// Makes the run's outputs require gradients.
void connect(const std::shared_ptr<Variant> &variant, TensorList inputs, std::vector<Tensor> &outputs,
             const Buffers &results, Philox place, c10::ArrayRef<double> numbers) {
  const Backward &backward = *variant->backward;
  NodePointer pointer = make_node<GraphBackward>();
  auto *node = static_cast<GraphBackward *>(pointer.get());
  torch::autograd::edge_list edges;
  for (size_t i : backward.wanted)
    edges.push_back(torch::autograd::impl::gradient_edge(inputs[i]));
  node->set_next_edges(std::move(edges));
  node->variant = variant;
  node->place = place;
  node->numbers = numbers.vec();
  for (size_t i : backward.differentiable)
    torch::autograd::set_history(outputs[i], pointer);
  for (size_t i : backward.read_inputs)
    node->inputs.emplace_back(inputs[i], /*is_output=*/false);
  for (size_t i : backward.kept_outputs)
    node->outputs.emplace_back(outputs[i], /*is_output=*/outputs[i].requires_grad());
  for (size_t i : backward.kept) {
    hr_buffer_retain(results[i]);
    node->kept.push_back(results[i]);
  }
}

// Results without a tensor: one reference each, until the run is over.
struct Hidden {
  Buffers buffers;
  ~Hidden() {
    for (hr_buffer *buffer : buffers)
      hr_buffer_release(buffer);
  }
  void make(const Piece &piece, Buffers &results) {
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i] != nullptr)
        continue;
      check(hr_buffer_create(device(), piece.result_bytes[i], &results[i]));
      buffers.push_back(results[i]);
    }
  }
};

// Sets the outputs; false if no variant fits the inputs. `run_graph` appends the records to the stream.
bool run_program(Program &program, TensorList inputs, c10::ArrayRef<double> given, std::vector<Tensor> &outputs,
                 RunGraph run_graph) {
  std::shared_ptr<Variant> variant = find_variant(program, inputs);
  Bound bound;
  if (C10_UNLIKELY(variant == nullptr))
    return false;
  OnDevice on(variant->device);
  if (C10_UNLIKELY(!bound.bind(*variant, inputs)))
    return false;
  Buffers results;
  Hidden hidden;
  outputs = make_outputs(variant->forward, inputs, results);
  hidden.make(variant->forward, results);
  Philox place = draw(variant->ticket_count);
  std::vector<hr_scalar> numbers = numbers_of(variant->forward, place, 0, place, given);
  check(run_graph(headrace::stream(), variant->forward.graph, bound.params.data(), results.data(), numbers.data()));
  for (size_t i : variant->bumped)
    if (!inputs[i].is_inference())
      inputs[i].unsafeGetTensorImpl()->bump_version();
  if (variant->backward != nullptr && at::GradMode::is_enabled())
    connect(variant, inputs, outputs, results, place, given);
  runs.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// Returns the outputs; one undefined tensor if no variant fits the inputs.
std::vector<Tensor> graph_run(int64_t program, TensorList inputs, c10::ArrayRef<double> numbers) {
  std::vector<Tensor> outputs;
  if (!run_program(program_of(program), inputs, numbers, outputs, run_and_submit_early))
    outputs = {Tensor()};
  return outputs;
}

HEADRACE_OPERATORS(headrace, m) {
  m.def("graph_run(int program, Tensor[] inputs, float[] numbers=[]) -> Tensor[]", &graph_run);
  m.def("graph_end(int program, int[] from_host, Tensor[] placeholders, Tensor[] outputs) -> int", &graph_end);
  m.def("graph_end_backward(int program, int[] from_host, Tensor[] placeholders, Tensor[] outputs, "
        "int[] differentiable, Tensor[] tangents, int[] wanted, Tensor[] gradients) -> int",
        &graph_end_backward);
}

} // namespace

hr_status run_and_submit_early(hr_stream *stream, const hr_part *graph, hr_buffer *const *params,
                               hr_buffer *const *results, const hr_scalar *arguments) {
  hr_status status = hr_part_run(stream, graph, params, results, arguments);
  if (status == nullptr)
    hr_part_submit_early(stream, graph);
  return status;
}

bool graph_run_directly(int64_t program, TensorList inputs, std::vector<Tensor> &outputs, RunGraph run_graph) {
  return !program_of(program).is_mixed.load(std::memory_order_relaxed) &&
         run_program(program_of(program), inputs, {}, outputs, run_graph);
}

Capture *current_capture() {
  if (this_capture)
    return this_capture.get();
  Capture *shared = shared_capture.load();
  return shared != nullptr && torch::autograd::get_current_graph_task_id() >= 0 ? shared : nullptr;
}

Capture::~Capture() {
  hr_stream_release(forward);
  hr_stream_release(stream);
}

int64_t program_create() {
  return reinterpret_cast<int64_t>(new Program);
}

void program_release(int64_t program) {
  delete &program_of(program);
}

void program_mix(int64_t program) {
  program_of(program).is_mixed.store(true);
}

GraphCounts graph_counts() {
  return {captures.load(), runs.load()};
}

void reset_graph_counts() {
  captures.store(0);
  runs.store(0);
}

} // namespace headrace
