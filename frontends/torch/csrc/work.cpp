#include "work.h"

#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "device.h"

namespace headrace {

// torch's profilers show collectives by these names, as those of its own backends.
const char *DeviceWork::profiler_name(c10d::OpType type) {
  switch (type) {
    case c10d::OpType::ALLREDUCE:
      return "headrace:all_reduce";
    case c10d::OpType::REDUCE:
      return "headrace:reduce";
    case c10d::OpType::REDUCE_SCATTER:
    case c10d::OpType::_REDUCE_SCATTER_BASE:
      return "headrace:reduce_scatter";
    case c10d::OpType::BROADCAST:
      return "headrace:broadcast";
    case c10d::OpType::ALLGATHER:
    case c10d::OpType::_ALLGATHER_BASE:
    case c10d::OpType::ALLGATHER_COALESCED:
      return "headrace:all_gather";
    case c10d::OpType::GATHER:
      return "headrace:gather";
    case c10d::OpType::SCATTER:
      return "headrace:scatter";
    case c10d::OpType::ALLTOALL:
    case c10d::OpType::ALLTOALL_BASE:
      return "headrace:all_to_all";
    case c10d::OpType::BARRIER:
      return "headrace:barrier";
    case c10d::OpType::SEND:
      return "headrace:send";
    case c10d::OpType::RECV:
      return "headrace:recv";
    case c10d::OpType::RECVANYSOURCE:
      return "headrace:recvAnySource";
    default:
      return nullptr;
  }
}

bool DeviceWork::isCompleted() {
  backend_->flush();
  if (is_waited_for_)
    return true;
  commit_device(device_.index());
  std::unique_lock<std::mutex> lock(outcome_->mutex);
  return outcome_->is_ended;
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  backend_->flush();
  if (!is_waited_for_.exchange(true) && recordFunctionEndCallback_)
    recordFunctionEndCallback_();
  if (timeout != kNoTimeout) {
    commit_device(device_.index());
    std::unique_lock<std::mutex> lock(outcome_->mutex);
    bool is_ended = outcome_->ended.wait_for(lock, timeout, [this] { return outcome_->is_ended; });
    TORCH_CHECK(is_ended, "the collective has not ended within ", timeout.count(), " ms");
  }
  bool has_failed = false;
  {
    std::lock_guard<std::mutex> lock(outcome_->mutex);
    has_failed = outcome_->is_ended && !outcome_->error.empty();
  }
  if (waits_ || has_failed)
    wait_for_device(device_.index()); // reports the error, unless that was done
  std::lock_guard<std::mutex> lock(outcome_->mutex);
  TORCH_CHECK(!outcome_->is_ended || outcome_->error.empty(), outcome_->error);
  return true;
}

void DeviceWork::abort() {
  backend_->abort();
}

// Complete at once: what uses the outputs comes later in the stream.
c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::getFuture() {
  backend_->flush();
  std::lock_guard<std::mutex> lock(future_mutex_);
  if (future_ == nullptr) {
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                       std::vector<c10::Device>{device_});
    future_->markCompleted(c10::IValue(outputs_));
  }
  return future_;
}

// ---- DistributedDataParallel's times, by the host's clock

namespace {

class HostTimer final : public c10d::Timer {
public:
  explicit HostTimer(c10::Device) {}
  std::optional<int64_t> measureDifference(Event begin, Event end) override {
    int64_t from = getTimeRef(begin), to = getTimeRef(end);
    return from == c10d::kUnsetTime || to < from ? std::nullopt : std::optional<int64_t>(to - from);
  }
};

using c10d::RegistererTimerRegistry, c10d::TimerRegistry; // of the macro
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::DeviceType::PrivateUse1, HostTimer)

} // namespace

} // namespace headrace
