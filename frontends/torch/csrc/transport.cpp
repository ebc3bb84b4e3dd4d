#include "transport.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <numeric>

#include "agreement.h"
#include "record.h"

namespace headrace {

// ---- in use

namespace {

std::mutex &in_use_mutex() {
  static std::mutex *mutex = new std::mutex;
  return *mutex;
}

std::vector<Transport *> &in_use() {
  static auto *transports = new std::vector<Transport *>;
  return *transports;
}

} // namespace

InUse::InUse(Transport *transport) : transport_(transport) {
  std::lock_guard<std::mutex> lock(in_use_mutex());
  in_use().push_back(transport);
}

InUse::~InUse() {
  std::lock_guard<std::mutex> lock(in_use_mutex());
  in_use().erase(std::find(in_use().begin(), in_use().end(), transport_));
}

void stop_transports_in_use(const std::string &reason) {
  std::lock_guard<std::mutex> lock(in_use_mutex());
  for (Transport *transport : in_use())
    transport->stop(reason);
}

namespace {

// ---- shared memory

class SharedMemory final : public Transport {
public:
  explicit SharedMemory(hr_group *group) : group_(group) {}
  ~SharedMemory() override {
    hr_group_release(group_);
  }
  hr_status all_reduce(const hr_group_call &call, hr_group_op op, int64_t elements, const void *input,
                       void *output) override {
    return hr_group_all_reduce(group_, &call, op, elements, input, output);
  }
  hr_status reduce_scatter(const hr_group_call &call, hr_group_op op, int64_t elements,
                           const std::vector<const void *> &inputs, void *output) override {
    return hr_group_reduce_scatter(group_, &call, op, elements, inputs.data(), output);
  }
  hr_status exchange(const hr_group_call &call, Blocks kind, const std::vector<hr_group_block> &blocks) override {
    return hr_group_exchange(group_, &call, kind == Blocks::Shared, blocks.data());
  }
  hr_status refuse(const hr_group_call &call) override {
    return hr_group_refuse(group_, &call);
  }
  hr_status send(const hr_group_call &call, int to, int tag, const void *data, int64_t bytes) override {
    return hr_group_send(group_, &call, to, tag, data, bytes);
  }
  hr_status receive(const hr_group_call &call, int from, int tag, void *data, int64_t bytes, int *out_from) override {
    return hr_group_receive(group_, &call, from, tag, data, bytes, out_from);
  }
  void stop(const std::string &reason) override {
    hr_group_break(group_, reason.c_str());
  }
  bool is_shared_memory() const override {
    return true;
  }
  const char *name() const override {
    return "shared memory";
  }

private:
  hr_group *group_;
};

// ---- NCCL

// Enqueues on the device, and waits for nothing but the other ranks' calls, if they are new.
class Nccl final : public Transport {
public:
  Nccl(hr_nccl *nccl, int device_index, std::unique_ptr<Agreement> agreement)
      : nccl_(nccl), device_index_(device_index), agreement_(std::move(agreement)) {}
  ~Nccl() override {
    hr_nccl_release(nccl_);
  }
  hr_status all_reduce(const hr_group_call &call, hr_group_op op, int64_t elements, const void *input,
                       void *output) override {
    hr_nccl_expect(nccl_, &call);
    bool is_for_all = std::strcmp(call.name, "all_reduce") == 0; // else words[0] is the rank that gets the result
    int root = is_for_all ? -1 : static_cast<int>(call.words[0]);
    return hr_nccl_reduce(nccl_, call.name, op, call.dtype, elements, root, input, output);
  }
  hr_status reduce_scatter(const hr_group_call &call, hr_group_op op, int64_t elements,
                           const std::vector<const void *> &inputs, void *output) override {
    hr_nccl_expect(nccl_, &call);
    return hr_nccl_reduce_scatter(nccl_, call.name, op, call.dtype, elements, inputs.data(), output);
  }
  hr_status exchange(const hr_group_call &call, Blocks, const std::vector<hr_group_block> &blocks) override {
    hr_nccl_expect(nccl_, &call);
    return hr_nccl_exchange(nccl_, call.name, blocks.data());
  }
  hr_status refuse(const hr_group_call &) override {
    return HR_OK; // the comparison before has found it
  }
  hr_status send(const hr_group_call &call, int to, int, const void *data, int64_t bytes) override {
    hr_nccl_expect(nccl_, &call);
    return hr_nccl_send(nccl_, to, data, bytes);
  }
  hr_status receive(const hr_group_call &call, int from, int, void *data, int64_t bytes, int *out_from) override {
    if (from < 0)
      return hr_status_make(HR_STATUS_UNIMPLEMENTED, "%s: NCCL receives from a rank that is named", call.name);
    *out_from = from;
    hr_nccl_expect(nccl_, &call);
    return hr_nccl_receive(nccl_, from, data, bytes);
  }
  Transport *notes() override {
    return agreement_ != nullptr ? &agreement_->notes() : nullptr;
  }
  hr_status agree() override {
    hr_status status = agreement_->agree();
    if (agreement_->is_broken())
      hr_nccl_break(nccl_, hr_status_message(status));
    return status;
  }
  hr_status begin() override {
    return hr_nccl_begin_calls(nccl_);
  }
  hr_status end(hr_status status) override {
    return hr_nccl_end_calls(nccl_, status);
  }
  hr_status check_op(hr_group_op op, hr_dtype dtype) const override {
    return hr_nccl_check_op(op, dtype);
  }
  int device_index() const override {
    return device_index_;
  }
  void stop(const std::string &reason) override {
    if (agreement_ != nullptr)
      agreement_->stop(reason);
    hr_nccl_break(nccl_, reason.c_str());
  }
  const char *name() const override {
    return "nccl";
  }

private:
  hr_nccl *nccl_;
  int device_index_;
  std::unique_ptr<Agreement> agreement_; // used by the communicator's thread
};

// ---- the network

std::chrono::milliseconds milliseconds_of(const hr_group_call &call) {
  return std::chrono::milliseconds(std::max<int64_t>(call.timeout_ns / 1000000, 1));
}

at::Tensor bytes_at(void *address, int64_t bytes) {
  return at::from_blob(address, {bytes}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
}

bool is_reduced_by_gloo(hr_dtype dtype) {
  return dtype == HR_DTYPE_F32 || dtype == HR_DTYPE_F64 || dtype == HR_DTYPE_F16 || dtype == HR_DTYPE_I32 ||
         dtype == HR_DTYPE_I64;
}

std::optional<c10d::ReduceOp::RedOpType> reduced_op(hr_group_op op) {
  switch (op) {
    case HR_GROUP_SUM:
    case HR_GROUP_AVERAGE:
      return c10d::ReduceOp::SUM;
    case HR_GROUP_PRODUCT:
      return c10d::ReduceOp::PRODUCT;
    default:
      return std::nullopt;
  }
}

// Sums, averages and products of the common types go to gloo, in the tensor's own memory. Everything else is an
// exchange of bytes, and combined here.
class Network final : public Transport {
public:
  explicit Network(c10::intrusive_ptr<c10d::Backend> backend) : backend_(std::move(backend)) {}

  hr_status all_reduce(const hr_group_call &call, hr_group_op op, int64_t elements, const void *input,
                       void *output) override {
    return guarded(call, [&]() -> hr_status {
      HR_RETURN_IF_ERROR(compare(call, op, elements, {}));
      auto bytes = static_cast<int64_t>(hr_dtype_size(call.dtype)) * elements;
      at::Tensor unused;
      if (output == nullptr) {
        unused = at::empty({bytes}, at::kByte);
        output = unused.data_ptr();
      }
      if (output != input && bytes > 0)
        std::memcpy(output, input, bytes);
      std::optional<c10d::ReduceOp::RedOpType> reduce = reduced_op(op);
      bool averages_half = op == HR_GROUP_AVERAGE && call.dtype == HR_DTYPE_F16; // its sum may overflow
      if (!reduce || !is_reduced_by_gloo(call.dtype) || averages_half)
        return reduce_here(call, op, elements, output);
      return reduce_by_gloo(call, *reduce, elements, output, op == HR_GROUP_AVERAGE);
    });
  }

  hr_status reduce_scatter(const hr_group_call &call, hr_group_op op, int64_t elements,
                           const std::vector<const void *> &inputs, void *output) override {
    return guarded(call, [&]() -> hr_status {
      HR_RETURN_IF_ERROR(compare(call, op, elements, {}));
      return combine_parts(call, op, elements, inputs, output);
    });
  }

  hr_status exchange(const hr_group_call &call, Blocks, const std::vector<hr_group_block> &blocks) override {
    return guarded(call, [&]() -> hr_status {
      HR_RETURN_IF_ERROR(compare(call, -1, -1, blocks));
      return move(call, blocks);
    });
  }

  hr_status refuse(const hr_group_call &call) override {
    return guarded(call, [&]() -> hr_status { return compare(call, kRefused, -1, {}); });
  }

  hr_status send(const hr_group_call &call, int to, int tag, const void *data, int64_t bytes) override {
    return guarded(call, [&]() -> hr_status {
      at::Tensor copy = at::empty({bytes}, at::kByte);
      if (bytes > 0)
        std::memcpy(copy.data_ptr(), data, bytes);
      sent_.erase(std::remove_if(sent_.begin(), sent_.end(), [](const auto &one) { return one->isCompleted(); }),
                  sent_.end());
      for (const at::Tensor &part : {numbers({call.dtype, bytes}), copy})
        if (std::vector<at::Tensor> list{part}; part.numel() > 0)
          sent_.push_back(backend_->send(list, to, tag)); // holds it
      return HR_OK;
    });
  }

  hr_status receive(const hr_group_call &call, int from, int tag, void *data, int64_t bytes, int *out_from) override {
    return guarded(call, [&]() -> hr_status {
      at::Tensor head = numbers({0, 0});
      int sender = receive_part(call, from, tag, head);
      auto dtype = static_cast<hr_dtype>(head[0].item<int64_t>());
      int64_t sent = head[1].item<int64_t>();
      bool is_expected = dtype == call.dtype && sent == bytes;
      if (sent > 0)
        receive_part(call, sender, tag, is_expected ? bytes_at(data, bytes) : at::empty({sent}, at::kByte));
      if (!is_expected)
        return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                              "%s: rank %d has sent %lld bytes of %s; %lld bytes of %s expected", call.name, sender,
                              static_cast<long long>(sent), hr_dtype_name(dtype), static_cast<long long>(bytes),
                              hr_dtype_name(call.dtype));
      *out_from = sender;
      return HR_OK;
    });
  }

  void stop(const std::string &) override {
    backend_->abort();
  }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &store,
                                          const std::vector<int> &ranks) override {
    return backend_->split(store, ranks, backend_->getBackendOptions());
  }
  const char *name() const override {
    return "network";
  }

private:
  template <class Body> hr_status guarded(const hr_group_call &call, Body &&body) {
    try {
      return body();
    } catch (const c10::Error &error) {
      return hr_status_make(HR_STATUS_UNAVAILABLE, "%s: %s", call.name, error.what_without_backtrace());
    } catch (const std::exception &error) {
      return hr_status_make(HR_STATUS_UNAVAILABLE, "%s: %s", call.name, error.what());
    }
  }

  static at::Tensor numbers(std::initializer_list<int64_t> values) {
    at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
    std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<int64_t>());
    return tensor;
  }

  // A message is its dtype and bytes, and then the bytes, if any. Returns the sender.
  int receive_part(const hr_group_call &call, int from, int tag, const at::Tensor &part) {
    std::vector<at::Tensor> list{part};
    auto work = from < 0 ? backend_->recvAnysource(list, tag) : backend_->recv(list, from, tag);
    work->wait(milliseconds_of(call));
    return from < 0 ? work->sourceRank() : from;
  }

  static constexpr int kRefused = -2; // an operation

  // What must be equal on all ranks.
  struct Head {
    Head() = default;
    Head(const hr_group_call &call, int op, int64_t elements)
        : numbers{call.dtype, op, call.words[0], call.words[1], elements} {
      std::snprintf(name, sizeof name, "%s", call.name);
    }
    std::string text() const {
      std::string text = name;
      if (numbers[1] == kRefused)
        return text + " with arguments that it refuses";
      if (numbers[4] >= 0)
        text += " of " + std::to_string(numbers[4]) + " elements";
      if (numbers[0] != HR_DTYPE_NONE)
        text += std::string(" of ") + hr_dtype_name(static_cast<hr_dtype>(numbers[0]));
      if (numbers[1] >= 0)
        text += std::string(", ") + hr_group_op_name(static_cast<hr_group_op>(numbers[1]));
      return text + " (" + std::to_string(numbers[2]) + ", " + std::to_string(numbers[3]) + ")";
    }
    char name[32] = {};
    int64_t numbers[5] = {};
  };

  // Gathers what must be equal on all ranks, and the bytes of each pair; an error of one is the error of all.
  hr_status compare(const hr_group_call &call, int op, int64_t elements, const std::vector<hr_group_block> &blocks) {
    int64_t size = backend_->getSize(), fixed = sizeof(Head) / sizeof(int64_t);
    at::Tensor mine = at::empty({fixed + 2 * size}, at::kLong), all = at::empty({size * (fixed + 2 * size)}, at::kLong);
    auto *row = mine.mutable_data_ptr<int64_t>();
    const Head head(call, op, elements);
    std::memcpy(row, &head, sizeof head);
    for (int64_t i = 0; i < size; ++i) {
      row[fixed + i] = blocks.empty() ? 0 : blocks[i].send_bytes;
      row[fixed + size + i] = blocks.empty() ? 0 : blocks[i].receive_bytes;
    }
    c10d::AllgatherOptions options;
    options.timeout = milliseconds_of(call);
    backend_->_allgather_base(all, mine, options)->wait(options.timeout);
    const auto *rows = all.const_data_ptr<int64_t>();
    auto rows_of = [&](int64_t rank) { return rows + rank * (fixed + 2 * size); };
    auto at = [&](int64_t rank, int64_t i) { return rows_of(rank)[i]; };
    for (int64_t a = 1; a < size; ++a)
      if (std::memcmp(rows_of(a), rows_of(0), sizeof head) != 0)
        return differ(rows_of(0), a, rows_of(a));
    for (int64_t a = 0; a < size; ++a)
      for (int64_t b = 0; b < size; ++b)
        if (a != b && at(a, fixed + b) != at(b, fixed + size + a))
          return hr_status_make(HR_STATUS_INVALID_ARGUMENT,
                                "%s: rank %d sends %lld bytes to rank %d, which expects %lld", call.name,
                                static_cast<int>(a), static_cast<long long>(at(a, fixed + b)), static_cast<int>(b),
                                static_cast<long long>(at(b, fixed + size + a)));
    return HR_OK;
  }

  static hr_status differ(const int64_t *first, int64_t rank, const int64_t *other) {
    Head mine, its;
    std::memcpy(&mine, first, sizeof mine);
    std::memcpy(&its, other, sizeof its);
    return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "the ranks' collectives differ: rank 0 runs %s, rank %d runs %s",
                          mine.text().c_str(), static_cast<int>(rank), its.text().c_str());
  }

  // All pairs' bytes, through one buffer each way. A rank's byte for itself is there because gloo does nothing for
  // empty tensors.
  hr_status move(const hr_group_call &call, const std::vector<hr_group_block> &blocks) {
    std::vector<int64_t> out_bytes, in_bytes;
    int own = backend_->getRank();
    for (size_t i = 0; i < blocks.size(); ++i) {
      out_bytes.push_back(static_cast<int>(i) == own ? 1 : blocks[i].send_bytes);
      in_bytes.push_back(static_cast<int>(i) == own ? 1 : blocks[i].receive_bytes);
    }
    at::Tensor out = at::empty({std::accumulate(out_bytes.begin(), out_bytes.end(), int64_t{0})}, at::kByte);
    at::Tensor in = at::empty({std::accumulate(in_bytes.begin(), in_bytes.end(), int64_t{0})}, at::kByte);
    auto *out_at = out.mutable_data_ptr<uint8_t>();
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (out_bytes[i] > 0 && static_cast<int>(i) != own)
        std::memcpy(out_at, blocks[i].from, out_bytes[i]);
      out_at += out_bytes[i];
    }
    c10d::AllToAllOptions options;
    options.timeout = milliseconds_of(call);
    std::vector<int64_t> in_splits = in_bytes, out_splits = out_bytes; // gloo moves them away
    backend_->alltoall_base(in, out, in_splits, out_splits, options)->wait(options.timeout);
    const auto *in_at = in.const_data_ptr<uint8_t>();
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (in_bytes[i] > 0 && static_cast<int>(i) != own)
        std::memcpy(blocks[i].to, in_at, in_bytes[i]);
      in_at += in_bytes[i];
    }
    if (const hr_group_block &self = blocks[own]; self.receive_bytes > 0 && self.to != self.from)
      std::memmove(self.to, self.from, self.receive_bytes);
    return HR_OK;
  }

  hr_status reduce_by_gloo(const hr_group_call &call, c10d::ReduceOp::RedOpType op, int64_t elements, void *data,
                           bool averages) {
    if (elements == 0)
      return HR_OK;
    auto options_of_data = at::TensorOptions().dtype(scalar_type_of(call.dtype)).device(at::kCPU);
    std::vector<at::Tensor> list{at::from_blob(data, {elements}, options_of_data)};
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    options.timeout = milliseconds_of(call);
    backend_->allreduce(list, options)->wait(options.timeout);
    if (averages)
      list[0].div_(backend_->getSize());
    return HR_OK;
  }

  // Each rank combines one slice of everyone's, and then sends it to all.
  hr_status reduce_here(const hr_group_call &call, hr_group_op op, int64_t elements, void *data) {
    int64_t size = backend_->getSize(), own = backend_->getRank(), each = (elements + size - 1) / size;
    auto width = static_cast<int64_t>(hr_dtype_size(call.dtype));
    auto begin = [&](int64_t rank) { return std::min(rank * each, elements); };
    auto bytes = [&](int64_t rank) { return (begin(rank + 1) - begin(rank)) * width; };
    auto *base = static_cast<char *>(data);
    at::Tensor parts = at::empty({size, std::max<int64_t>(bytes(own), 1)}, at::kByte);
    std::vector<hr_group_block> slices(size), results(size);
    std::vector<const void *> inputs(size);
    char *mine = base + begin(own) * width;
    for (int64_t i = 0; i < size; ++i) {
      char *part = static_cast<char *>(parts.mutable_data_ptr()) + i * parts.size(1);
      inputs[i] = i == own ? mine : part;
      slices[i] = {base + begin(i) * width, bytes(i), i == own ? mine : part, bytes(own)};
      results[i] = {mine, bytes(own), base + begin(i) * width, bytes(i)};
    }
    HR_RETURN_IF_ERROR(move(call, slices));
    hr_group_combine(op, call.dtype, static_cast<int>(size), inputs.data(), mine, bytes(own) / width);
    return move(call, results);
  }

  hr_status combine_parts(const hr_group_call &call, hr_group_op op, int64_t elements,
                          const std::vector<const void *> &inputs, void *output) {
    int64_t size = backend_->getSize(), own = backend_->getRank();
    auto bytes = static_cast<int64_t>(hr_dtype_size(call.dtype)) * elements;
    at::Tensor parts = at::empty({size, std::max<int64_t>(bytes, 1)}, at::kByte);
    std::vector<hr_group_block> blocks(size);
    std::vector<const void *> received(size);
    for (int64_t i = 0; i < size; ++i) {
      char *part = static_cast<char *>(parts.mutable_data_ptr()) + i * parts.size(1);
      blocks[i] = {inputs[i], bytes, part, bytes};
      received[i] = i == own ? inputs[i] : part;
    }
    HR_RETURN_IF_ERROR(move(call, blocks));
    hr_group_combine(op, call.dtype, static_cast<int>(size), received.data(), output, elements);
    return HR_OK;
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::vector<c10::intrusive_ptr<c10d::Work>> sent_; // their copies are in use
};

} // namespace

std::shared_ptr<Transport> nccl_transport(hr_nccl *nccl, int device_index, std::unique_ptr<Agreement> agreement) {
  return std::make_shared<Nccl>(nccl, device_index, std::move(agreement));
}

std::shared_ptr<Transport> shared_memory_transport(hr_group *group) {
  return std::make_shared<SharedMemory>(group);
}

std::shared_ptr<Transport> network_transport(c10::intrusive_ptr<c10d::Backend> backend) {
  return std::make_shared<Network>(std::move(backend));
}

} // namespace headrace
