// job.h: one call in the stream's work that runs a collective: tensors, and steps on their addresses.
//
// A reduction in place that a backward pass issues becomes a step of the program of its neighbours
// (hr_function_record): the program of a training step stays whole, gradients are written where they are sent from, and
// the optimizer reads them from there. Everything else is a call of its own (hr_stream_call), which begins at once.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "condition.h"
#include "headrace/function.h"
#include "record.h"
#include "transport.h"

namespace headrace {

using Tensors = std::vector<Tensor>;

struct Addresses {
  std::vector<const void *> in;
  std::vector<void *> out;
};
struct Outcome; // of a job
using Step = std::function<hr_status(Transport &, const Addresses &, Outcome &)>;

// The end of a job, or its error; shared with its Works.
struct Outcome {
  std::mutex mutex;
  Condition ended;
  std::atomic<bool> has_begun{false};
  bool is_ended = false;
  std::string error; // empty: none
  int source = -1;   // of a message from any rank

  void end(std::string why) {
    std::lock_guard<std::mutex> lock(mutex);
    is_ended = true;
    error = std::move(why);
    ended.notify_all();
  }
};

// Tensors are contiguous ones, or contiguous copies. An empty tensor has no address.
class Job {
public:
  Job() = default;
  // In place of a call that this rank refuses: the other ranks' call fails, and this one's error is the refusal.
  Job(const hr_group_call &call, const Transport &transport);
  int read(const Tensor &tensor) {
    note_device(tensor);
    in_.push_back(tensor.resolve_conj().resolve_neg().contiguous());
    return static_cast<int>(in_.size()) - 1;
  }
  int write(const Tensor &tensor) {
    note_device(tensor);
    bool is_plain = tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
    out_.push_back(is_plain ? tensor : new_tensor(tensor.sizes(), tensor.scalar_type()));
    if (!is_plain)
      copies_.emplace_back(tensor, out_.back());
    return static_cast<int>(out_.size()) - 1;
  }
  void add(Step step, bool is_early = false) {
    steps_.insert(is_early ? steps_.begin() + early_count_++ : steps_.end(), std::move(step));
  }
  void note_device(const Tensor &tensor) {
    TORCH_CHECK(tensor.defined() && is_on_device(tensor) && tensor.layout() == at::kStrided,
                "the backend \"headrace\" works on strided tensors of the device headrace, not on ",
                tensor.defined() ? tensor.toString() : "an undefined tensor", tensor.defined() ? " of " : "",
                tensor.defined() ? tensor.device().str() : "");
    index_ = tensor.device().index();
  }
  void check_device(const Transport &transport) const;
  bool is_empty() const {
    return steps_.empty();
  }
  const std::shared_ptr<Outcome> &outcome() const {
    return outcome_;
  }
  c10::Device device() const {
    return {c10::DeviceType::PrivateUse1, index_ >= 0 ? index_ : here_index()};
  }
  void issue(std::shared_ptr<Transport> transport);

private:
  struct Running {
    std::shared_ptr<Transport> transport;
    std::shared_ptr<Outcome> outcome;
    std::vector<Step> steps;
    std::vector<int> in_places, out_places; // in the call's buffers; -1: empty
    std::vector<int64_t> in_offsets, out_offsets;
    bool is_refusal = false, has_run = false;
  };
  static hr_status run(void *arg, int input_count, void *const *inputs, int output_count, void *const *outputs);
  static hr_status run_step(const hr_function_call *call);
  static hr_status compare(Running &running, const Addresses &addresses);
  static hr_status run_steps(Running &running, const Addresses &addresses);
  static void release(void *arg);
  bool can_be_step(const Transport &transport) const;
  void record(std::unique_ptr<Running> running);
  void call(std::unique_ptr<Running> running);
  void run_staged(std::unique_ptr<Running> running);

  Tensors in_, out_;
  std::vector<std::pair<Tensor, Tensor>> copies_; // what a temporary is copied to
  std::vector<Step> steps_;
  int early_count_ = 0;
  bool is_refusal_ = false;
  c10::DeviceIndex index_ = -1;
  std::shared_ptr<Outcome> outcome_ = std::make_shared<Outcome>();
};

// An exchange whose blocks are positions in a job's tensors.
class Exchange {
public:
  explicit Exchange(int size) : sides_(size) {}
  void send(int to, int input, int64_t bytes, int64_t at = 0) {
    sides_[to].input = input;
    sides_[to].send_bytes = bytes, sides_[to].from_at = at;
  }
  void receive(int from, int output, int64_t bytes, int64_t at = 0) {
    sides_[from].output = output;
    sides_[from].receive_bytes = bytes, sides_[from].to_at = at;
  }
  std::vector<hr_group_block> blocks(const Addresses &addresses) const {
    std::vector<hr_group_block> blocks;
    for (const Side &side : sides_)
      blocks.push_back({at(side.input < 0 ? nullptr : addresses.in[side.input], side.from_at), side.send_bytes,
                        const_cast<char *>(at(side.output < 0 ? nullptr : addresses.out[side.output], side.to_at)),
                        side.receive_bytes});
    return blocks;
  }

private:
  struct Side {
    int input = -1, output = -1;
    int64_t send_bytes = 0, receive_bytes = 0, from_at = 0, to_at = 0;
  };
  static const char *at(const void *base, int64_t offset) {
    return base == nullptr ? nullptr : static_cast<const char *>(base) + offset;
  }
  std::vector<Side> sides_;
};

} // namespace headrace
