// kineto.cpp: the device's part of torch.profiler: kernels, copies and commits among torch's own events.
//
// torch's Kineto creates a session for each profile that asks for the device's activities. It starts a profile of the
// core (headrace/profile.h). torch numbers the operators; the number of the running one stands beside each operation
// that it records. A fused kernel is linked to the operator of the last operation in it and names the others, so that
// its time counts once. Arrows lead from that operator to the commit, and from there to the kernel. In Kineto an arrow
// begins or ends at an activity, which has one arrow alone; so short activities of their own are the ends.
//
// Compiled alone: torch's headers differ where USE_KINETO is defined. torch before 2.12 has no place for a device's
// profiler; there this file is empty, and profiles have the host's events alone.
#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>) && __has_include(<libkineto.h>)
#include <headrace/profile.h>
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <chrono>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "device.h"

namespace headrace {
namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;

constexpr size_t kRingBytes = size_t{64} << 20;
constexpr int kResource = 7; // the track of a device's kernels
// Of two names: torch drops an event whose only parent has its name.
const char *const kArrowStart = "headrace: arrow start", *const kArrowEnd = "headrace: arrow end";
// The operator of an arrow's end: none. With 0 torch counts the kernels of the operator around it to the end, too.
constexpr int32_t kNoOperator = INT32_MAX;

// The operators of this thread that run, outermost first; the innermost one's number is the core's.
std::vector<uint64_t> &running() {
  static thread_local std::vector<uint64_t> numbers;
  return numbers;
}

void correlate() {
  hr_profile_correlate(running().empty() ? 0 : running().back());
}

// From the core's clock to torch's, which is the time of day.
int64_t clock_offset() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() - hr_profile_clock_ns();
}

// Waits for all devices; the text of the first error, or none.
std::string error_of_waiting() {
  try {
    wait_for_all();
  } catch (const std::exception &error) {
    return error.what();
  }
  return "";
}

std::string joined(const hr_profile_record &record) {
  std::string names;
  for (int64_t i = 0; i < record.operation_count; ++i)
    names += (i > 0 ? ", " : "") + std::string(record.operation_names[i]);
  return names;
}

// The operator to which a record's time is counted; 0: none.
uint64_t owner_of(const hr_profile_record &record) {
  for (int64_t i = record.correlations != nullptr ? record.operation_count : 0; i > 0; --i)
    if (record.correlations[i - 1] != 0)
      return record.correlations[i - 1];
  return record.correlation;
}

bool is_launch(const hr_profile_record &record) {
  return record.kind == HR_PROFILE_KERNEL || record.kind == HR_PROFILE_LIBRARY;
}

// The type of a record's activity; ENUM_COUNT: a record that has none.
ActivityType type_of(const hr_profile_record &record) {
  switch (record.kind) {
    case HR_PROFILE_KERNEL:
    case HR_PROFILE_LIBRARY:
      return ActivityType::CONCURRENT_KERNEL;
    case HR_PROFILE_COPY_IN:
    case HR_PROFILE_COPY_OUT:
    case HR_PROFILE_COPY_BETWEEN:
      return ActivityType::GPU_MEMCPY;
    case HR_PROFILE_COMMIT:
      return ActivityType::PRIVATEUSE1_RUNTIME;
    default:
      return ActivityType::ENUM_COUNT;
  }
}

int32_t index_of(const char *device) {
  std::string name = device;
  size_t colon = name.find(':');
  return colon == std::string::npos ? 0 : static_cast<int32_t>(std::atoi(name.c_str() + colon + 1));
}

class Session final : public libkineto::IActivityProfilerSession {
public:
  // A profile of the host alone requests the runtime's activities, too; it must have no device events.
  explicit Session(const std::set<ActivityType> &types)
      : types_(types), is_on_(has(ActivityType::CONCURRENT_KERNEL) || has(ActivityType::GPU_MEMCPY)) {}
  ~Session() override {
    hr_profile_release(profile_);
  }

  void start() override {
    status_ = libkineto::TraceStatus::RECORDING;
    if (!is_on_)
      return;
    add_error(error_of_waiting()); // what was issued before doesn't belong to it
    hr_status status = hr_profile_create(nullptr, kRingBytes, 0, &profile_);
    status = status == nullptr ? hr_profile_start(profile_) : status;
    if (status != nullptr) {
      add_error(hr_status_message(status));
      hr_status_free(status);
    }
  }

  void stop() override {
    status_ = libkineto::TraceStatus::PROCESSING;
    if (profile_ == nullptr)
      return;
    add_error(error_of_waiting()); // pending work belongs to it
    hr_status_ignore(hr_profile_stop(profile_));
    running().clear();
    correlate();
  }

  std::vector<std::string> errors() override {
    return errors_;
  }

  void processTrace(libkineto::ActivityLogger &logger) override {
    processTrace(
        logger, [](int32_t) { return nullptr; }, 0, INT64_MAX);
  }

  void processTrace(libkineto::ActivityLogger &logger, libkineto::getLinkedActivityCallback linked, int64_t begin,
                    int64_t end) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(begin, end, "headrace");
    if (profile_ == nullptr)
      return;
    Target target{logger, linked, clock_offset()};
    read([&](const hr_profile_record &record) { // a commit may be recorded after its kernels
      if (record.kind == HR_PROFILE_COMMIT && has(ActivityType::PRIVATEUSE1_RUNTIME))
        commits_[{record.stream, record.run}] = {record.begin_ns, record.end_ns, static_cast<int32_t>(record.thread),
                                                 operator_of(record, target)};
    });
    read([&](const hr_profile_record &record) { add(record, target); });
    report_lost();
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return std::make_unique<libkineto::DeviceInfo>(libkineto::DeviceInfo{0, 5000001, "headrace", "headrace"});
  }

  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    return {libkineto::ResourceInfo{kResource, kResource, 0, "kernels and copies"}};
  }

  // None without activities: a span of the device would stand in traces of the host.
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return buffer_ == nullptr || buffer_->activities.empty() ? nullptr : std::move(buffer_);
  }

  void pushCorrelationId(uint64_t number) override {
    if (is_on_) {
      running().push_back(number);
      correlate();
    }
  }

  void popCorrelationId() override {
    if (is_on_ && !running().empty()) {
      running().pop_back();
      correlate();
    }
  }

private:
  struct Target {
    libkineto::ActivityLogger &logger;
    libkineto::getLinkedActivityCallback &linked;
    int64_t offset; // from the core's clock
  };
  struct Commit {
    int64_t begin, end; // of what has no arrows yet
    int32_t thread;
    const libkineto::ITraceActivity *linked; // the operator that commits, or NULL
  };

  std::set<ActivityType> types_; // that the profile requests
  bool is_on_;
  hr_profile *profile_ = nullptr;
  std::map<std::pair<uint64_t, uint64_t>, Commit> commits_; // by stream and run
  uint32_t arrows_ = 0;
  std::vector<std::string> errors_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;

  bool has(ActivityType type) const {
    return types_.count(type) != 0;
  }

  static const libkineto::ITraceActivity *operator_of(const hr_profile_record &record, const Target &target) {
    uint64_t owner = owner_of(record);
    return owner != 0 ? target.linked(static_cast<int32_t>(owner)) : nullptr;
  }

  void add_error(const std::string &text) {
    if (!text.empty())
      errors_.push_back(text);
  }

  void report_lost() {
    hr_profile_counts counts;
    hr_profile_counts_read(profile_, sizeof counts, &counts);
    if (counts.summed + counts.lost > 0)
      add_error("headrace: " + std::to_string(counts.summed + counts.lost) +
                " records did not fit and are missing; profile fewer steps");
  }

  template <class Body> void read(Body &&body) {
    auto call = [](void *arg, const hr_profile_record *record) { (*static_cast<Body *>(arg))(*record); };
    hr_status status = hr_profile_read(profile_, sizeof(hr_profile_record), call, &body);
    if (status != nullptr) {
      add_error(hr_status_message(status));
      hr_status_free(status);
    }
  }

  static void set_arrow(GenericTraceActivity &activity, uint32_t number, bool is_start) {
    activity.flow.id = number;
    activity.flow.type = libkineto::kLinkAsyncCpuGpu;
    activity.flow.start = is_start;
  }

  struct End { // of an arrow, on a thread of the host
    const char *kernel;
    int64_t begin;
    int32_t thread;
    const libkineto::ITraceActivity *linked; // the operator there, or NULL
  };

  void add_end(libkineto::ActivityLogger &logger, const End &end, uint32_t arrow, bool is_start) {
    const char *name = is_start ? kArrowStart : kArrowEnd;
    buffer_->emplace_activity(buffer_->span, ActivityType::PRIVATEUSE1_RUNTIME, name);
    GenericTraceActivity &activity = *buffer_->activities.back();
    activity.startTime = end.begin;
    activity.endTime = end.begin + (is_start ? 1 : 2);
    activity.id = kNoOperator;
    activity.linked = end.linked;
    activity.device = libkineto::processId();
    activity.resource = activity.threadId = end.thread;
    activity.addMetadataQuoted("kernel", end.kernel);
    set_arrow(activity, arrow, is_start);
    logger.handleGenericActivity(activity);
  }

  // From the operator to the commit, and from there to the kernel, the activity.
  void add_arrows(GenericTraceActivity &activity, const hr_profile_record &record, const Target &target) {
    auto found = commits_.find({record.stream, record.run});
    if (found == commits_.end())
      return;
    Commit &commit = found->second;
    End at{record.name, commit.begin + target.offset, commit.thread, commit.linked};
    if (const libkineto::ITraceActivity *linked = activity.linked) {
      End from{record.name, linked->timestamp(), static_cast<int32_t>(linked->resourceId()), linked};
      add_end(target.logger, from, ++arrows_, true);
      add_end(target.logger, at, arrows_, false);
    }
    add_end(target.logger, at, ++arrows_, true);
    set_arrow(activity, arrows_, false);
    commit.begin += commit.begin + 2 < commit.end ? 2 : 0; // the next ones' are beside these
  }

  void add(const hr_profile_record &record, const Target &target) {
    ActivityType type = type_of(record);
    if (!has(type))
      return;
    GenericTraceActivity &activity = new_activity(record, type);
    activity.startTime = record.begin_ns + target.offset;
    activity.endTime = record.end_ns + target.offset;
    activity.id = static_cast<int32_t>(owner_of(record));
    activity.linked = operator_of(record, target);
    if (type != ActivityType::PRIVATEUSE1_RUNTIME) {
      activity.device = index_of(record.device);
      activity.resource = kResource;
      ++buffer_->gpuOpCount;
    } else {
      activity.device = libkineto::processId();
      activity.resource = activity.threadId = static_cast<int32_t>(record.thread);
    }
    if (is_launch(record))
      add_arrows(activity, record, target);
    describe(activity, record);
    target.logger.handleGenericActivity(activity);
  }

  GenericTraceActivity &new_activity(const hr_profile_record &record, ActivityType type) {
    std::string name = record.kind == HR_PROFILE_COPY_IN        ? "Memcpy HtoD"
                       : record.kind == HR_PROFILE_COPY_OUT     ? "Memcpy DtoH"
                       : record.kind == HR_PROFILE_COPY_BETWEEN ? "Memcpy DtoD"
                                                                : record.name;
    buffer_->emplace_activity(buffer_->span, type, name);
    return *buffer_->activities.back();
  }

  static void describe(GenericTraceActivity &activity, const hr_profile_record &record) {
    static const char *const tiers[] = {"", "interpreted", "compiled", "library"};
    int64_t bytes = record.bytes_read + record.bytes_written, ns = record.end_ns - record.begin_ns;
    activity.addMetadata("bytes", bytes);
    if (ns > 0 && bytes > 0)
      activity.addMetadata("GB/s", static_cast<double>(bytes) / static_cast<double>(ns));
    if (record.shapes[0] != '\0')
      activity.addMetadataQuoted("shapes", record.shapes);
    if (record.kind == HR_PROFILE_COMMIT)
      activity.addMetadata("operations", record.operation_count);
    if (!is_launch(record))
      return;
    if (record.bandwidth_share > 0)
      activity.addMetadata("% of bandwidth", 100 * record.bandwidth_share);
    activity.addMetadata("flop", record.flops);
    activity.addMetadata("bytes kept out of memory", record.bytes_saved);
    activity.addMetadataQuoted("tier", tiers[record.tier]);
    if (record.operations != nullptr)
      activity.addMetadataQuoted("operations", joined(record));
  }
};

class Profiler final : public libkineto::IActivityProfiler {
public:
  const std::string &name() const override {
    return name_;
  }
  const std::set<ActivityType> &availableActivities() const override {
    return types_;
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType> &types,
                                                                 const libkineto::Config &) override {
    return std::make_unique<Session>(types);
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType> &types,
                                                                 const libkineto::Config &config) override {
    return configure(types, config);
  }

private:
  std::string name_ = "headrace";
  std::set<ActivityType> types_{ActivityType::GPU_MEMCPY, ActivityType::CONCURRENT_KERNEL,
                                ActivityType::PRIVATEUSE1_RUNTIME};
};

// torch.autograd.profiler.profile(use_device="headrace"): times around each operator, which runs at once and is waited
// for.
struct Stubs final : torch::profiler::impl::ProfilerStubs {
  void record(c10::DeviceIndex *device, torch::profiler::impl::ProfilerVoidEventStub *event,
              int64_t *cpu_ns) const override {
    (void)error_of_waiting(); // a failure is raised by the next use of the device
    int64_t now = hr_profile_clock_ns();
    if (device != nullptr)
      *device = here().index();
    if (cpu_ns != nullptr)
      *cpu_ns = now;
    *event = std::make_shared<int64_t>(now);
  }
  float elapsed(const torch::profiler::impl::ProfilerVoidEventStub *begin,
                const torch::profiler::impl::ProfilerVoidEventStub *end) const override {
    int64_t ns = *static_cast<int64_t *>(end->get()) - *static_cast<int64_t *>(begin->get());
    return static_cast<float>(static_cast<double>(ns) * 1e-3);
  }
  void mark(const char *) const override {}
  void rangePush(const char *) const override {}
  void rangePop() const override {}
  bool enabled() const override {
    return true;
  }
  void onEachDevice(std::function<void(int)> body) const override {
    body(here().index());
  }
  void synchronize() const override {
    (void)error_of_waiting();
  }
};

REGISTER_PRIVATEUSE1_PROFILER(Profiler);

Stubs stubs;
const bool is_registered = (torch::profiler::impl::registerPrivateUse1Methods(&stubs), true);

} // namespace
} // namespace headrace
#endif
