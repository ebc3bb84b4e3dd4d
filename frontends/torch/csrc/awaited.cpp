#include "awaited.h"

#include <torch/csrc/autograd/graph_task.h>

#include <thread>
#include <utility>

namespace headrace {
namespace {

// A host that records nothing for so long has paused.
constexpr std::chrono::milliseconds kPause{100};

// The last collective that was recorded.
struct Awaited {
  std::mutex mutex;
  Condition noted;
  hr_stream *stream = nullptr;      // nullptr: there is none that others need to know of
  std::shared_ptr<Outcome> outcome; // nullptr: it has begun
  int pass = -1;                    // autograd's number
  bool has_thread = false;
};

Awaited &awaited() {
  static auto *one = new Awaited;
  return *one;
}

void watch() {
  Awaited &last = awaited();
  std::unique_lock<std::mutex> lock(last.mutex);
  for (;;) {
    last.noted.wait(lock, [&] { return last.outcome != nullptr; });
    lock.unlock();
    std::this_thread::sleep_for(kPause);
    lock.lock();
    if (last.outcome == nullptr || last.outcome->has_begun) {
      last.outcome.reset();
      continue;
    }
    hr_stream *stream = last.stream;
    lock.unlock();
    hr_stream_hint(stream, HR_HINT_PAUSED);
    lock.lock();
  }
}

} // namespace

void hint_due() {
  Awaited &last = awaited();
  hr_stream *stream = nullptr;
  {
    std::lock_guard<std::mutex> lock(last.mutex);
    int pass = torch::autograd::get_current_graph_task_id();
    if (last.outcome != nullptr && last.pass != pass)
      stream = last.stream;
    last.pass = pass;
  }
  if (stream != nullptr)
    hr_stream_hint(stream, HR_HINT_DUE);
}

void note_awaited(hr_stream *stream, std::shared_ptr<Outcome> outcome) {
  hr_stream_hint(stream, HR_HINT_AWAITED);
  Awaited &last = awaited();
  std::lock_guard<std::mutex> lock(last.mutex);
  last.stream = stream;
  last.outcome = std::move(outcome);
  if (!last.has_thread)
    std::thread(watch).detach();
  last.has_thread = true;
  last.noted.notify_all();
}

void commit_awaited() {
  Awaited &last = awaited();
  hr_stream *stream = nullptr;
  {
    std::lock_guard<std::mutex> lock(last.mutex);
    stream = last.stream;
  }
  if (stream != nullptr)
    hr_stream_hint(stream, HR_HINT_DUE);
}

void end_awaited_of_others(hr_stream *stream) {
  Awaited &last = awaited();
  hr_stream *other = nullptr;
  {
    std::lock_guard<std::mutex> lock(last.mutex);
    if (last.stream != stream)
      other = std::exchange(last.stream, nullptr);
    if (other != nullptr)
      last.outcome.reset();
  }
  if (other != nullptr)
    check(hr_stream_synchronize(other));
}

} // namespace headrace
