// distributed.cpp: the backend `headrace` of torch.distributed.
//
// A collective is a call in the stream's work (hr_stream_call): it gets the addresses of its tensors when the work
// before has run, and the host goes on recording. Its error is the stream's, and appears at the next wait for the
// stream. torch's Work objects therefore wait for nothing, except those of a barrier and of a receive from any rank.
//
//   c10d operator -> Backend -> Job: tensors, and steps on their addresses -> hr_stream_call -> Transport
//
// Between startCoalescing and endCoalescing steps are collected into one job. Sends never wait for their receivers, and
// a receive is issued when its Work is waited for or another collective comes: a program may receive first and then
// send, on all ranks.
//
// torch's binding of c10d needs pybind11 of one CPython. This library is for all of them, so Python passes a store and
// gets a backend through a temporary process group, by name (headrace/distributed.py).
#include <ATen/ops/ones.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <mutex>

#include "awaited.h"
#include "device.h"
#include "distributed.h"
#include "work.h"

namespace headrace {
namespace {

using c10d::OpType;
using Milliseconds = std::chrono::milliseconds;

// ---- arguments

hr_group_op op_of(const c10d::ReduceOp &op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return HR_GROUP_SUM;
    case c10d::ReduceOp::AVG:
      return HR_GROUP_AVERAGE;
    case c10d::ReduceOp::PRODUCT:
      return HR_GROUP_PRODUCT;
    case c10d::ReduceOp::MIN:
      return HR_GROUP_MIN;
    case c10d::ReduceOp::MAX:
      return HR_GROUP_MAX;
    case c10d::ReduceOp::BAND:
      return HR_GROUP_AND;
    case c10d::ReduceOp::BOR:
      return HR_GROUP_OR;
    case c10d::ReduceOp::BXOR:
      return HR_GROUP_XOR;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(false, "the backend \"headrace\" has no reduction with a factor (PREMUL_SUM): "
                                         "multiply the tensor before");
  }
}

int64_t bytes_of(const Tensor &tensor) {
  return static_cast<int64_t>(tensor.nbytes());
}

void check_dtypes(const char *name, const Tensor &a, const Tensor &b) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), name, ": tensors of ", a.scalar_type(), " and ", b.scalar_type());
}

void check_equal(const char *name, const Tensor &a, const Tensor &b, int64_t count = 1) {
  check_dtypes(name, a, b);
  TORCH_CHECK(a.numel() * count == b.numel(), name, ": a tensor of ", b.numel(), " elements; expected ", count, " x ",
              a.numel());
}

// ---- the backend

class Backend final : public LateBackend {
public:
  Backend(std::shared_ptr<Transport> transport, int rank, int size, Milliseconds timeout)
      : LateBackend(rank, size), transport_(std::move(transport)), timeout_(timeout) {}
  ~Backend() override = default;

  const std::string getBackendName() const override {
    return "headrace";
  }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return c10::make_intrusive<Options>("headrace", timeout_);
  }
  void setTimeout(Milliseconds timeout) override {
    timeout_ = timeout;
  }
  bool supportsCoalescing() const override {
    return true;
  }
  bool supportsSplitting() const override {
    return true;
  }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override {
    return sequence_;
  }
  c10d::ErrorType getError() override {
    return c10d::ErrorType::SUCCESS;
  }
  const char *transport_name() const {
    return transport_->name();
  }

  // ---- reductions

  c10::intrusive_ptr<c10d::Work> allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override {
    return collect(OpType::ALLREDUCE, tensors, [&](Job &job) {
      for (const Tensor &tensor : tensors)
        reduce_into(job, call_of("all_reduce", tensor, options), options.reduceOp, tensor, true);
    });
  }
  c10::intrusive_ptr<c10d::Work> allreduce_coalesced(Tensors &tensors,
                                                     const c10d::AllreduceCoalescedOptions &options) override {
    return allreduce(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> reduce(Tensors &tensors, const c10d::ReduceOptions &options) override {
    return collect(OpType::REDUCE, tensors, [&](Job &job) {
      for (const Tensor &tensor : tensors) {
        hr_group_call call = call_of("reduce", tensor, options);
        set_root(call, options.rootRank);
        reduce_into(job, call, options.reduceOp, tensor, options.rootRank == getRank());
      }
    });
  }
  c10::intrusive_ptr<c10d::Work> reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                                const c10d::ReduceScatterOptions &options) override {
    return collect(OpType::REDUCE_SCATTER, outputs, [&](Job &job) {
      for (size_t i = 0; i < outputs.size(); ++i)
        reduce_parts(job, options, inputs.at(i), outputs[i]);
    });
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(Tensor &output, Tensor &input,
                                                      const c10d::ReduceScatterOptions &options) override {
    return collect(OpType::_REDUCE_SCATTER_BASE, {output},
                   [&](Job &job) { reduce_parts(job, options, parts_of("reduce_scatter", input, output), output); });
  }
  c10::intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                                 const c10d::ReduceScatterOptions &options) override {
    return collect(OpType::COALESCED, outputs, [&](Job &job) {
      for (size_t i = 0; i < outputs.size(); ++i)
        reduce_parts(job, options, parts_of("reduce_scatter", inputs.at(i), outputs[i]), outputs[i]);
    });
  }

  // ---- exchanges

  c10::intrusive_ptr<c10d::Work> broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override {
    return collect(OpType::BROADCAST, tensors, [&](Job &job) {
      for (const Tensor &tensor : tensors) {
        hr_group_call call = call_of("broadcast", tensor, options);
        set_root(call, options.rootRank);
        bool is_root = options.rootRank == getRank();
        Exchange exchange(getSize());
        int in = is_root ? job.read(tensor) : -1;
        for (int r = 0; is_root && r < getSize(); ++r)
          if (r != getRank())
            exchange.send(r, in, bytes_of(tensor));
        if (!is_root)
          exchange.receive(static_cast<int>(options.rootRank), job.write(tensor), bytes_of(tensor));
        add(job, call, Blocks::Shared, std::move(exchange));
      }
    });
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                                           const c10d::AllgatherOptions &options) override {
    return collect(OpType::ALLGATHER, flatten(outputs), [&](Job &job) {
      for (size_t i = 0; i < inputs.size(); ++i)
        gather_into(job, call_of("all_gather", inputs[i], options), inputs[i], outputs.at(i));
    });
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(Tensor &output, Tensor &input,
                                                 const c10d::AllgatherOptions &options) override {
    return collect(OpType::_ALLGATHER_BASE, {output}, [&](Job &job) { gather_flat(job, options, input, output); });
  }
  c10::intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                                 const c10d::AllgatherOptions &options) override {
    return collect(OpType::COALESCED, outputs, [&](Job &job) {
      for (size_t i = 0; i < inputs.size(); ++i)
        gather_flat(job, options, inputs[i], outputs.at(i));
    });
  }
  c10::intrusive_ptr<c10d::Work> allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                                     const c10d::AllgatherOptions &options) override {
    return collect(OpType::ALLGATHER_COALESCED, flatten(outputs), [&](Job &job) {
      for (size_t i = 0; i < inputs.size(); ++i) {
        Tensors parts;
        for (const Tensors &of_rank : outputs)
          parts.push_back(of_rank.at(i));
        gather_into(job, call_of("all_gather", inputs[i], options), inputs[i], parts);
      }
    });
  }
  c10::intrusive_ptr<c10d::Work> gather(std::vector<Tensors> &outputs, Tensors &inputs,
                                        const c10d::GatherOptions &options) override {
    return collect(OpType::GATHER, flatten(outputs), [&](Job &job) {
      for (size_t i = 0; i < inputs.size(); ++i) {
        hr_group_call call = call_of("gather", inputs[i], options);
        set_root(call, options.rootRank);
        Exchange exchange(getSize());
        exchange.send(static_cast<int>(options.rootRank), job.read(inputs[i]), bytes_of(inputs[i]));
        if (options.rootRank == getRank())
          receive_parts(job, call.name, exchange, inputs[i], outputs.at(i));
        add(job, call, Blocks::Any, std::move(exchange));
      }
    });
  }
  c10::intrusive_ptr<c10d::Work> scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                         const c10d::ScatterOptions &options) override {
    return collect(OpType::SCATTER, outputs, [&](Job &job) {
      for (size_t i = 0; i < outputs.size(); ++i) {
        hr_group_call call = call_of("scatter", outputs[i], options);
        set_root(call, options.rootRank);
        Exchange exchange(getSize());
        if (options.rootRank == getRank())
          send_parts(job, call.name, exchange, inputs.at(i), &outputs[i]);
        exchange.receive(static_cast<int>(options.rootRank), job.write(outputs[i]), bytes_of(outputs[i]));
        add(job, call, Blocks::Equal, std::move(exchange));
      }
    });
  }
  c10::intrusive_ptr<c10d::Work> alltoall(Tensors &outputs, Tensors &inputs,
                                          const c10d::AllToAllOptions &options) override {
    return collect(OpType::ALLTOALL, outputs, [&](Job &job) {
      hr_group_call call = call_of("all_to_all", inputs.at(0), options);
      Exchange exchange(getSize());
      send_parts(job, call.name, exchange, inputs, nullptr);
      check_count(call.name, "outputs", outputs);
      for (int r = 0; r < getSize(); ++r) {
        check_dtypes(call.name, outputs[r], inputs[0]);
        exchange.receive(r, job.write(outputs[r]), bytes_of(outputs[r]));
      }
      add(job, call, Blocks::Any, std::move(exchange));
    });
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(Tensor &output, Tensor &input, std::vector<int64_t> &output_splits,
                                               std::vector<int64_t> &input_splits,
                                               const c10d::AllToAllOptions &options) override {
    return collect(OpType::ALLTOALL_BASE, {output}, [&](Job &job) {
      hr_group_call call = call_of("all_to_all_single", input, options);
      check_dtypes(call.name, output, input);
      std::vector<int64_t> in = split_bytes(input, input_splits), out = split_bytes(output, output_splits);
      int from = job.read(input), to = job.write(output);
      Exchange exchange(getSize());
      for (int64_t r = 0, at = 0, to_at = 0; r < getSize(); at += in[r], to_at += out[r], ++r) {
        exchange.send(static_cast<int>(r), from, in[r], at);
        exchange.receive(static_cast<int>(r), to, out[r], to_at);
      }
      add(job, call, Blocks::Any, std::move(exchange));
    });
  }
  c10::intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions &options) override {
    bool is_alone = !is_coalescing();
    return collect(
        OpType::BARRIER, {},
        [&](Job &job) {
          if (int index = transport_->device_index(); index >= 0) { // NCCL has no barrier
            c10::Device device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index));
            Tensor one = at::ones({1}, at::TensorOptions().device(device));
            reduce_into(job, call_of("all_reduce", one, options), c10d::ReduceOp::SUM, one, true);
            return;
          }
          hr_group_call call = call_of("barrier", Tensor(), options);
          add(job, call, Blocks::Shared, Exchange(getSize()));
        },
        is_alone);
  }

  // ---- messages

  c10::intrusive_ptr<c10d::Work> send(Tensors &tensors, int to, int tag) override {
    return collect(
        OpType::SEND, tensors,
        [&](Job &job) {
          for (const Tensor &tensor : tensors) {
            hr_group_call call = call_with("send", dtype_of(tensor.scalar_type()), timeout_);
            int from = job.read(tensor);
            job.add(
                [=, bytes = bytes_of(tensor)](Transport &transport, const Addresses &addresses, Outcome &) {
                  return transport.send(call, to, tag, addresses.in[from], bytes);
                },
                true);
          }
        },
        false, Order::Ahead);
  }
  c10::intrusive_ptr<c10d::Work> recv(Tensors &tensors, int from, int tag) override {
    return receive(OpType::RECV, tensors, from, tag);
  }
  c10::intrusive_ptr<c10d::Work> recvAnysource(Tensors &tensors, int tag) override {
    return receive(OpType::RECVANYSOURCE, tensors, -1, tag);
  }

  // ---- coalescing

  // A block that was left by an exception is dropped.
  void startCoalescing() override {
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    cancel_coalescing(false);
    coalesced_ = std::make_unique<Job>();
    coalesced_outputs_.clear();
    coalesced_error_ = nullptr;
  }
  void cancel_coalescing(bool has_collectives) {
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    coalesced_.reset();
    coalesces_collectives_ = coalesces_collectives_ || has_collectives;
    refuse_coalesced();
  }
  c10::intrusive_ptr<c10d::Work> endCoalescing() override {
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    TORCH_CHECK(coalesced_ != nullptr, "endCoalescing without startCoalescing");
    std::unique_ptr<Job> job = std::move(coalesced_);
    if (std::exception_ptr error = std::move(coalesced_error_)) {
      refuse_coalesced();
      std::rethrow_exception(error);
    }
    coalesces_collectives_ = false;
    flush();
    auto work = make_work(OpType::COALESCED, *job, std::move(coalesced_outputs_), false);
    if (job->is_empty())
      job->outcome()->end("");
    else
      job->issue(transport_);
    return work;
  }

  // ---- groups

  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
                                          const c10::intrusive_ptr<Options> &options) override;

  void flush() override {
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    std::vector<Job> jobs = std::move(receives_);
    receives_.clear();
    for (Job &job : jobs)
      job.issue(transport_);
  }
  void shutdown() override {
    flush();
    commit_awaited();
  }
  void abort() override {
    transport_->stop("a rank has aborted its process group");
  }

private:
  // Indexes the ranks: torch checks no root of the default group.
  void set_root(hr_group_call &call, int64_t root) const {
    TORCH_CHECK_VALUE(root >= 0 && root < getSize(), call.name, ": root ", root, " of a group of ", getSize());
    call.words[0] = root;
  }
  enum class Order { Normal, Ahead, Late };

  static hr_group_call call_with(const char *name, hr_dtype dtype, Milliseconds timeout) {
    return {name, std::chrono::nanoseconds(timeout).count(), dtype, {0, 0}};
  }
  template <class Options> hr_group_call call_of(const char *name, const Tensor &tensor, const Options &options) {
    Milliseconds timeout = options.timeout == c10d::kUnsetTimeout ? timeout_ : options.timeout;
    return call_with(name, tensor.defined() ? dtype_of(tensor.scalar_type()) : HR_DTYPE_NONE, timeout);
  }
  void check_count(const char *name, const char *what, const Tensors &tensors) {
    TORCH_CHECK(static_cast<int>(tensors.size()) == getSize(), name, ": ", tensors.size(), " ", what, " for ",
                getSize(), " ranks");
  }
  static Tensors flatten(const std::vector<Tensors> &lists) {
    Tensors all;
    for (const Tensors &list : lists)
      all.insert(all.end(), list.begin(), list.end());
    return all;
  }
  bool is_coalescing() {
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    return coalesced_ != nullptr;
  }

  void add(Job &job, const hr_group_call &call, Blocks kind, Exchange exchange) {
    job.add([=, exchange = std::move(exchange)](Transport &transport, const Addresses &addresses, Outcome &) {
      return transport.exchange(call, kind, exchange.blocks(addresses));
    });
  }

  void reduce_into(Job &job, const hr_group_call &call, const c10d::ReduceOp &reduce, const Tensor &tensor,
                   bool has_output) {
    hr_group_op op = op_of(reduce);
    check(transport_->check_op(op, call.dtype));
    int in = job.read(tensor), out = has_output ? job.write(tensor) : -1;
    job.add([=, count = tensor.numel()](Transport &transport, const Addresses &addresses, Outcome &) {
      return transport.all_reduce(call, op, count, addresses.in[in], out < 0 ? nullptr : addresses.out[out]);
    });
  }

  // Views of the ranks' parts of a tensor.
  Tensors parts_of(const char *name, const Tensor &whole, const Tensor &part) {
    check_equal(name, part, whole, getSize());
    Tensors parts;
    Tensor flat = whole.contiguous().view(-1);
    for (int r = 0; r < getSize(); ++r)
      parts.push_back(flat.narrow(0, r * part.numel(), part.numel()));
    return parts;
  }

  // Parts of different sizes: one reduction to each rank.
  void reduce_each(Job &job, hr_group_call call, hr_group_op op, const Tensors &inputs, const std::vector<int> &in,
                   int out) {
    for (int r = 0; r < getSize(); ++r) {
      call.words[0] = r;
      job.add([=, from = in[r], count = inputs[r].numel(),
               is_mine = r == getRank()](Transport &transport, const Addresses &addresses, Outcome &) {
        return transport.all_reduce(call, op, count, addresses.in[from], is_mine ? addresses.out[out] : nullptr);
      });
    }
  }

  void reduce_parts(Job &job, const c10d::ReduceScatterOptions &options, const Tensors &inputs, const Tensor &output) {
    hr_group_call call = call_of("reduce_scatter", output, options);
    hr_group_op op = op_of(options.reduceOp);
    check(transport_->check_op(op, call.dtype));
    check_count(call.name, "inputs", inputs);
    std::vector<int> in;
    bool are_equal = true;
    for (const Tensor &input : inputs) {
      check_dtypes(call.name, output, input);
      are_equal = are_equal && input.numel() == output.numel();
      in.push_back(job.read(input));
    }
    check_equal(call.name, output, inputs[getRank()]);
    int out = job.write(output);
    if (!are_equal) {
      reduce_each(job, call, op, inputs, in, out);
      return;
    }
    job.add([=, count = output.numel()](Transport &transport, const Addresses &addresses, Outcome &) {
      std::vector<const void *> parts;
      for (int i : in)
        parts.push_back(addresses.in[i]);
      return transport.reduce_scatter(call, op, count, parts, addresses.out[out]);
    });
  }

  void receive_parts(Job &job, const char *name, Exchange &exchange, const Tensor &input, const Tensors &outputs) {
    check_count(name, "outputs", outputs);
    check_equal(name, input, outputs[getRank()]);
    for (int r = 0; r < getSize(); ++r) { // the others' may have other sizes: the transport compares
      check_dtypes(name, input, outputs[r]);
      exchange.receive(r, job.write(outputs[r]), bytes_of(outputs[r]));
    }
  }
  void send_parts(Job &job, const char *name, Exchange &exchange, const Tensors &inputs, const Tensor *like) {
    check_count(name, "inputs", inputs);
    for (int r = 0; r < getSize(); ++r) {
      if (like != nullptr)
        check_equal(name, *like, inputs[r]);
      check_dtypes(name, inputs[r], inputs[0]);
      exchange.send(r, job.read(inputs[r]), bytes_of(inputs[r]));
    }
  }
  void gather_into(Job &job, const hr_group_call &call, const Tensor &input, const Tensors &outputs) {
    Exchange exchange(getSize());
    int in = job.read(input);
    for (int r = 0; r < getSize(); ++r)
      exchange.send(r, in, bytes_of(input));
    receive_parts(job, call.name, exchange, input, outputs);
    add(job, call, Blocks::Shared, std::move(exchange));
  }
  void gather_flat(Job &job, const c10d::AllgatherOptions &options, const Tensor &input, const Tensor &output) {
    hr_group_call call = call_of("all_gather", input, options);
    check_equal(call.name, input, output, getSize());
    Exchange exchange(getSize());
    int in = job.read(input), out = job.write(output);
    for (int r = 0; r < getSize(); ++r) {
      exchange.send(r, in, bytes_of(input));
      exchange.receive(r, out, bytes_of(input), r * bytes_of(input));
    }
    add(job, call, Blocks::Shared, std::move(exchange));
  }
  std::vector<int64_t> split_bytes(const Tensor &tensor, const std::vector<int64_t> &splits) {
    int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1, sum = 0;
    if (splits.empty()) {
      TORCH_CHECK(rows % getSize() == 0, "all_to_all_single: ", rows, " rows are not divisible by ", getSize(),
                  " ranks");
      return std::vector<int64_t>(getSize(), bytes_of(tensor) / getSize());
    }
    std::vector<int64_t> bytes;
    for (int64_t split : splits) {
      bytes.push_back(rows == 0 ? 0 : split * (bytes_of(tensor) / rows));
      sum += split;
    }
    TORCH_CHECK(static_cast<int>(splits.size()) == getSize() && sum == rows, "all_to_all_single: splits ", splits,
                " of ", rows, " rows for ", getSize(), " ranks");
    return bytes;
  }

  c10::intrusive_ptr<c10d::Work> receive(OpType type, Tensors &tensors, int from, int tag) {
    return collect(
        type, tensors,
        [&](Job &job) {
          for (const Tensor &tensor : tensors) {
            hr_group_call call = call_with("recv", dtype_of(tensor.scalar_type()), timeout_);
            int to = job.write(tensor);
            job.add([=, bytes = bytes_of(tensor)](Transport &transport, const Addresses &addresses, Outcome &outcome) {
              return transport.receive(call, from, tag, addresses.out[to], bytes, &outcome.source);
            });
          }
        },
        from < 0, Order::Late);
  }

  c10::intrusive_ptr<c10d::Work> make_work(OpType type, const Job &job, Tensors outputs, bool waits) {
    return c10::make_intrusive<DeviceWork>(type, c10::intrusive_ptr<Backend>::unsafe_reclaim_from_nonowning(this), job,
                                           std::move(outputs), waits);
  }

  // The other ranks may make the call that this one refuses, and must get an error.
  void refuse(OpType type) noexcept {
    try {
      flush();
      Job(call_with(DeviceWork::name_of(type), HR_DTYPE_NONE, timeout_), *transport_).issue(transport_);
    } catch (...) { // the group is broken: the refusal is what counts
    }
  }
  void refuse_coalesced() noexcept {
    if (std::exchange(coalesces_collectives_, false))
      refuse(OpType::COALESCED);
  }

  // Runs one collective: fills a job of its own and issues it, or adds to the coalesced one. There an error waits for
  // the end of the block: torch would leave its own state of coalescing behind, and skip later collectives.
  template <class Fill>
  c10::intrusive_ptr<c10d::Work> collect(OpType type, const Tensors &outputs, Fill &&fill, bool waits = false,
                                         Order order = Order::Normal) {
    std::lock_guard<std::recursive_mutex> lock(mutex_);
    c10::NoGradGuard no_grad;
    ++sequence_;
    if (coalesced_ != nullptr) {
      coalesces_collectives_ = coalesces_collectives_ || order == Order::Normal;
      try {
        fill(*coalesced_);
      } catch (...) {
        if (coalesced_error_ == nullptr)
          coalesced_error_ = std::current_exception();
      }
      coalesced_outputs_.insert(coalesced_outputs_.end(), outputs.begin(), outputs.end());
      return make_work(type, *coalesced_, outputs, false);
    }
    Job job;
    try {
      OnDevice on(outputs);
      fill(job);
      job.check_device(*transport_);
    } catch (...) {
      if (order == Order::Normal)
        refuse(type);
      throw;
    }
    auto work = make_work(type, job, outputs, waits);
    if (order == Order::Late) {
      receives_.push_back(std::move(job));
      return work;
    }
    if (order == Order::Normal)
      flush();
    job.issue(transport_);
    return work;
  }

  std::shared_ptr<Transport> transport_;
  Milliseconds timeout_;
  std::recursive_mutex mutex_;
  uint64_t sequence_ = 0;
  std::unique_ptr<Job> coalesced_;
  Tensors coalesced_outputs_;
  std::exception_ptr coalesced_error_;
  bool coalesces_collectives_ = false; // not only messages
  std::vector<Job> receives_;
};

// ---- groups

c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store> &store,
                                                 const std::vector<int> &ranks,
                                                 const c10::intrusive_ptr<Options> &options) {
  auto own = std::find(ranks.begin(), ranks.end(), getRank());
  if (own == ranks.end())
    return nullptr;
  int rank = static_cast<int>(own - ranks.begin()), size = static_cast<int>(ranks.size());
  Milliseconds timeout = options != nullptr ? options->timeout : timeout_;
  if (auto network = transport_->split(store, ranks))
    return c10::make_intrusive<Backend>(network_transport(network), rank, size, timeout);
  std::string prefix = "headrace";
  for (int r : ranks)
    prefix += "-" + std::to_string(r);
  auto prefixed = c10::make_intrusive<c10d::PrefixStore>(prefix, store);
  if (transport_->device_index() >= 0) {
    std::string reason;
    std::shared_ptr<Transport> nccl = meet_by_nccl(*prefixed, rank, size, &reason);
    TORCH_CHECK(nccl != nullptr, "split_group: ", reason);
    return c10::make_intrusive<Backend>(std::move(nccl), rank, size, timeout);
  }
  hr_group *group = meet_on_machine(*prefixed, rank, size);
  TORCH_CHECK(group != nullptr, "split_group: the ranks have found no shared memory");
  return c10::make_intrusive<Backend>(shared_memory_transport(group), rank, size, timeout);
}

} // namespace

c10::intrusive_ptr<c10d::Backend> new_backend(std::shared_ptr<Transport> transport, int rank, int size,
                                              Milliseconds timeout) {
  return c10::make_intrusive<Backend>(std::move(transport), rank, size, timeout);
}

bool cancel_coalescing(c10d::Backend &backend, bool has_collectives) {
  auto *ours = dynamic_cast<Backend *>(&backend);
  if (ours != nullptr)
    ours->cancel_coalescing(has_collectives);
  return ours != nullptr;
}

const char *transport_name(c10d::Backend &backend) {
  auto *ours = dynamic_cast<Backend *>(&backend);
  return ours != nullptr ? ours->transport_name() : nullptr;
}

} // namespace headrace
