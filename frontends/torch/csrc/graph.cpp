// graph.cpp: FX graphs of torch.compile as graphs of the stream.
//
// A *program* is one FX graph; it has a *variant* for each geometry of its inputs that was met: an hr_graph, what its
// inputs have to look like, and what its outputs are made of. The Python module captures a variant by running the FX
// graph on placeholders while this thread's stream() is a capture; graph_run then makes the outputs' tensors, without
// memory, and appends the variant to the stream.
//
//   headrace_torch_capture_begin .. FX graph .. headrace::graph_end      a new variant
//   headrace::graph_run(program, inputs)                                 outputs, or [None] when no variant fits
//
// Each run of a random operation takes a place in the generator's sequence. During a capture it takes a ticket, and
// the scalars that hold it become arguments of the graph.
//
// Threads: a program has a lock; a capture belongs to its thread.
#include <ATen/ops/as_strided.h>
#include <c10/core/StorageImpl.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "headrace/graph.h"
#include "record.h"
#include "runtime.h"

namespace headrace {

std::atomic<int> capture_count{0};

namespace {

thread_local std::unique_ptr<Capture> this_capture;
std::atomic<int64_t> runs{0}, captures{0};

// What an input has to look like.
struct Input {
  bool from_host; // a tensor of the host, copied to the device in each run
  bool is_used;   // by an operation
  ScalarType type;
  int64_t offset;
  Dims sizes, strides;

  bool fits(const Tensor &tensor) const {
    const c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
    return tensor.defined() && impl->is_cpu() == from_host && tensor.scalar_type() == type &&
           impl->storage_offset() == offset && impl->sizes().equals(sizes) && impl->strides().equals(strides) &&
           !impl->is_conj() && !impl->is_neg();
  }
};

// An input itself, a view of an input, or a view of a new storage.
struct Output {
  enum Kind { Same, View, Fresh } kind;
  size_t index; // of the input, or of the storage
  ScalarType type;
  int64_t offset;
  Dims sizes, strides;
};

struct Variant {
  hr_graph *graph = nullptr;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<size_t> storage_bytes; // of the results
  std::vector<size_t> written;       // inputs
  std::vector<int64_t> tickets;      // of each pair of arguments, seed and offset
  int64_t ticket_count = 0;
  Variant() = default;
  Variant(const Variant &) = delete;
  ~Variant() {
    hr_graph_release(graph);
  }
};

struct Program {
  std::mutex mutex;
  std::vector<std::shared_ptr<Variant>> variants; // the last used first
};

Program &program_of(int64_t handle) {
  return *reinterpret_cast<Program *>(handle);
}

// ---- capturing

void begin_capture() {
  TORCH_CHECK(!this_capture, "headrace: a graph is being captured already");
  check(hr_stream_commit(stream())); // constants have their memory now
  auto capture = std::make_unique<Capture>();
  check(hr_capture_create(device(), &capture->stream));
  this_capture = std::move(capture);
  ++capture_count;
}

void end_capture() {
  if (!this_capture)
    return;
  hr_stream_release(this_capture->stream);
  this_capture.reset();
  --capture_count;
}

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
          tensor.scalar_type(),
          tensor.storage_offset(),
          Dims(tensor.sizes().begin(), tensor.sizes().end()),
          Dims(tensor.strides().begin(), tensor.strides().end())};
}

// What an output is made of; new storages go to `storages`.
Output describe_output(const Tensor &tensor, TensorList placeholders, std::vector<c10::StorageImpl *> &storages) {
  TORCH_CHECK(is_on_device(tensor), "headrace: a graph gives a tensor of ", tensor.device());
  TORCH_CHECK(!tensor.is_conj() && !tensor.is_neg(), "headrace: a graph gives a lazily conjugated tensor");
  Output output{Output::Fresh,
                0,
                tensor.scalar_type(),
                tensor.storage_offset(),
                Dims(tensor.sizes().begin(), tensor.sizes().end()),
                Dims(tensor.strides().begin(), tensor.strides().end())};
  c10::StorageImpl *storage = tensor.storage().unsafeGetStorageImpl();
  for (size_t i = 0; i < placeholders.size(); ++i) {
    if (placeholders[i].storage().unsafeGetStorageImpl() != storage)
      continue;
    TORCH_CHECK(placeholders[i].scalar_type() == output.type, "headrace: a graph gives an input as another dtype");
    output.kind = placeholders[i].is_same(tensor) ? Output::Same : Output::View;
    output.index = i;
    return output;
  }
  output.index = static_cast<size_t>(std::find(storages.begin(), storages.end(), storage) - storages.begin());
  if (output.index == storages.size())
    storages.push_back(storage);
  return output;
}

// The variant of everything that this thread has captured.
std::shared_ptr<Variant> make_variant(at::IntArrayRef from_host, TensorList placeholders, TensorList outputs) {
  auto variant = std::make_shared<Variant>();
  std::vector<hr_buffer *> params, results;
  std::vector<c10::StorageImpl *> storages;
  for (size_t i = 0; i < placeholders.size(); ++i) {
    bool is_host = std::find(from_host.begin(), from_host.end(), static_cast<int64_t>(i)) != from_host.end();
    variant->inputs.push_back(describe_input(placeholders[i], is_host));
    params.push_back(own_buffer_of(placeholders[i]));
  }
  for (const Tensor &output : outputs)
    variant->outputs.push_back(describe_output(output, placeholders, storages));
  for (c10::StorageImpl *storage : storages) {
    TORCH_CHECK(storage->data_ptr().get_deleter() == &release_buffer,
                "headrace: the storage of a result is not its own");
    results.push_back(static_cast<hr_buffer *>(storage->data_ptr().get_context()));
    variant->storage_bytes.push_back(storage->nbytes());
  }
  std::vector<int64_t> arguments;
  for (const Capture::Random &random : this_capture->randoms) {
    arguments.insert(arguments.end(), {random.scalar, random.scalar + 1});
    variant->tickets.push_back(random.ticket);
  }
  variant->ticket_count = this_capture->ticket_count;
  hr_graph_spec spec{static_cast<int>(params.size()),
                     static_cast<int>(results.size()),
                     static_cast<int>(arguments.size()),
                     params.data(),
                     results.data(),
                     arguments.data()};
  check(hr_graph_create(this_capture->stream, &spec, &variant->graph));
  for (size_t i = 0; i < params.size(); ++i) {
    int use = hr_graph_param_use(variant->graph, static_cast<int>(i));
    variant->inputs[i].is_used = use != 0;
    if ((use & HR_GRAPH_WRITES) != 0) {
      TORCH_CHECK(!variant->inputs[i].from_host, "headrace: a graph writes to a tensor of the host");
      variant->written.push_back(i);
    }
  }
  return variant;
}

int64_t graph_end(int64_t program, at::IntArrayRef from_host, TensorList placeholders, TensorList outputs) {
  TORCH_CHECK(this_capture, "headrace: no graph is being captured");
  std::shared_ptr<Variant> variant = make_variant(from_host, placeholders, outputs);
  ++captures;
  std::lock_guard<std::mutex> lock(program_of(program).mutex);
  auto &variants = program_of(program).variants;
  variants.insert(variants.begin(), std::move(variant));
  return static_cast<int64_t>(variants.size());
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

// The buffers of a run's inputs. Tensors that were copied to the device live as long as this.
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
        copies.push_back(inputs[i].to(kDevice));
      params[i] = buffer_of(variant.inputs[i].from_host ? copies.back() : inputs[i], &offset_bytes, &retained);
      if (C10_UNLIKELY(retained)) {
        hr_buffer_release(params[i]); // the tensor's storage has a reference
        if (offset_bytes != 0)
          return false;
      }
    }
    return variant.written.empty() || !shares_written(variant);
  }

  // The placeholders were storages of their own: an operation that writes one input must not meet it in another.
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

std::vector<Tensor> make_outputs(const Variant &variant, TensorList inputs,
                                 c10::SmallVectorImpl<hr_buffer *> &results) {
  std::vector<Tensor> outputs;
  c10::SmallVector<const Tensor *, 16> first(variant.storage_bytes.size(), nullptr);
  outputs.reserve(variant.outputs.size());
  results.resize(variant.storage_bytes.size());
  for (const Output &output : variant.outputs) {
    if (output.kind == Output::Same) {
      outputs.push_back(inputs[output.index]);
    } else if (output.kind == Output::View) {
      outputs.push_back(at::as_strided(inputs[output.index], output.sizes, output.strides, output.offset));
    } else if (first[output.index] == nullptr) {
      outputs.push_back(new_tensor_in(allocate(variant.storage_bytes[output.index]),
                                      variant.storage_bytes[output.index], output.sizes, output.strides, output.offset,
                                      output.type));
      first[output.index] = &outputs.back();
      results[output.index] =
          static_cast<hr_buffer *>(outputs.back().storage().unsafeGetStorageImpl()->data_ptr().get_context());
    } else {
      outputs.push_back(new_view_of(*first[output.index], output.sizes, output.strides, output.offset, output.type));
    }
  }
  return outputs;
}

void draw_numbers(const Variant &variant, std::vector<hr_scalar> &arguments) {
  if (variant.ticket_count == 0)
    return;
  Philox first = next_philox(std::nullopt, variant.ticket_count);
  for (int64_t ticket : variant.tickets) {
    arguments.push_back(hr_scalar_i64(first.seed));
    arguments.push_back(hr_scalar_i64(first.offset + ticket));
  }
}

std::vector<Tensor> graph_run(int64_t program, TensorList inputs) {
  std::shared_ptr<Variant> variant = find_variant(program_of(program), inputs);
  Bound bound;
  if (C10_UNLIKELY(variant == nullptr || !bound.bind(*variant, inputs)))
    return {Tensor()};
  c10::SmallVector<hr_buffer *, 32> results;
  std::vector<Tensor> outputs = make_outputs(*variant, inputs, results);
  std::vector<hr_scalar> arguments;
  draw_numbers(*variant, arguments);
  check(hr_graph_run(stream(), variant->graph, bound.params.data(), results.data(), arguments.data()));
  for (size_t i : variant->written)
    if (!inputs[i].is_inference())
      inputs[i].unsafeGetTensorImpl()->bump_version();
  runs.fetch_add(1, std::memory_order_relaxed);
  return outputs;
}

TORCH_LIBRARY(headrace, m) {
  m.def("graph_run(int program, Tensor[] inputs) -> Tensor[]", &graph_run);
  m.def("graph_end(int program, int[] from_host, Tensor[] placeholders, Tensor[] outputs) -> int", &graph_end);
}

} // namespace

Capture *current_capture() {
  return this_capture.get();
}

} // namespace headrace

using namespace headrace;

extern "C" {

HR_API int64_t headrace_torch_program_create(void) {
  return reinterpret_cast<int64_t>(new Program);
}
HR_API void headrace_torch_program_release(int64_t program) {
  delete &program_of(program);
}
HR_API int headrace_torch_capture_begin(void) {
  return guarded([] { begin_capture(); });
}
// Ends this thread's capture, if there is one; what graph_end has not taken is dropped.
HR_API void headrace_torch_capture_end(void) {
  end_capture();
}
HR_API void headrace_torch_graph_counts(int64_t *out_captures, int64_t *out_runs) {
  *out_captures = captures.load();
  *out_runs = runs.load();
}
HR_API void headrace_torch_reset_graph_counts(void) {
  captures.store(0);
  runs.store(0);
}

} // extern "C"
