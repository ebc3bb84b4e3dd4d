#include "work.h"

#include "device.h"

namespace headrace {

bool DeviceWork::isCompleted() {
  backend_->flush();
  std::unique_lock<std::mutex> lock(outcome_->mutex);
  return outcome_->is_ended;
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  backend_->flush();
  if (timeout != kNoTimeout) {
    check(hr_stream_commit(stream_of(device_.index())));
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
    check(hr_stream_synchronize(stream_of(device_.index()))); // reports the error, unless that was done
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

} // namespace headrace
