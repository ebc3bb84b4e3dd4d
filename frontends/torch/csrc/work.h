// work.h: the Work of a collective, which torch's callers hold.
//
// Its error is the stream's. wait() therefore returns at once, except for a barrier and a receive from any rank.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>

#include "job.h"

namespace headrace {

class LateBackend : public c10d::Backend {
public:
  using c10d::Backend::Backend;
  // Issues the receives that nobody has waited for yet.
  virtual void flush() = 0;
};

class DeviceWork final : public c10d::Work {
public:
  DeviceWork(c10d::OpType type, c10::intrusive_ptr<LateBackend> backend, const Job &job, Tensors outputs, bool waits)
      : Work(-1, type, profiler_name(type)), backend_(std::move(backend)), outcome_(job.outcome()),
        outputs_(std::move(outputs)), device_(job.device()), waits_(waits) {}

  bool isCompleted() override; // also begins what is pending: callers poll
  bool isSuccess() const override {
    std::lock_guard<std::mutex> lock(outcome_->mutex);
    return outcome_->is_ended && outcome_->error.empty();
  }
  std::exception_ptr exception() const override {
    std::lock_guard<std::mutex> lock(outcome_->mutex);
    return outcome_->error.empty() ? nullptr : std::make_exception_ptr(std::runtime_error(outcome_->error));
  }
  int sourceRank() const override {
    return outcome_->source;
  }
  Tensors result() override {
    return outputs_;
  }
  void synchronize() override {
    wait(kNoTimeout);
  }
  void blockCurrentStream() override {
    wait(kNoTimeout);
  }
  // A collective that has been waited for is complete for its caller: what uses the outputs comes later in the stream.
  bool wait(std::chrono::milliseconds timeout) override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  static const char *profiler_name(c10d::OpType type); // nullptr for several calls
  static const char *name_of(c10d::OpType type) {
    const char *name = profiler_name(type);
    return name != nullptr ? name + sizeof "headrace:" - 1 : "coalesced calls";
  }

private:
  c10::intrusive_ptr<LateBackend> backend_;
  std::shared_ptr<Outcome> outcome_;
  Tensors outputs_;
  c10::Device device_;
  bool waits_;
  std::atomic<bool> is_waited_for_{false};
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

} // namespace headrace
