// generator.cpp: the random generator of each device: a seed, and the number of random operations so far.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <c10/core/GeneratorImpl.h>

#include <array>
#include <mutex>

#include "device.h"

namespace headrace {
namespace {

// Generators may share one state (graphsafe_get_state). Its two numbers are changed under a generator's mutex.
struct RandomState : c10::intrusive_ptr_target {
  uint64_t seed = c10::default_rng_seed_val, offset = 0;
};

class Generator final : public c10::GeneratorImpl {
public:
  Generator(c10::DeviceIndex index, c10::intrusive_ptr<RandomState> state)
      : c10::GeneratorImpl({c10::DeviceType::PrivateUse1, index}, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        state_(std::move(state)) {}
  explicit Generator(c10::DeviceIndex index) : Generator(index, c10::make_intrusive<RandomState>()) {}

  void set_current_seed(uint64_t seed) override {
    state_->seed = seed, state_->offset = 0;
  }
  void set_offset(uint64_t offset) override {
    state_->offset = offset;
  }
  uint64_t get_offset() const override {
    return state_->offset;
  }
  uint64_t current_seed() const override {
    return state_->seed;
  }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom());
    return state_->seed;
  }

  void set_state(const c10::TensorImpl &state) override {
    at::detail::check_rng_state(state);
    TORCH_CHECK(state.numel() == 16, "RNG state is wrong size: ", state.numel(), " bytes, expected 16");
    const uint64_t *words = static_cast<const uint64_t *>(state.data());
    state_->seed = words[0], state_->offset = words[1];
  }

  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    Tensor state = at::empty({16}, at::TensorOptions(at::kCPU).dtype(at::kByte));
    uint64_t *words = reinterpret_cast<uint64_t *>(state.mutable_data_ptr<uint8_t>());
    words[0] = state_->seed, words[1] = state_->offset;
    return state.getIntrusivePtr();
  }

  // A generator that shares this one's state, and the way back: two generators go on together from then on.
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<Generator>(device().index(), state_);
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl> &other) override {
    const auto *generator = dynamic_cast<const Generator *>(other.get());
    TORCH_CHECK(generator != nullptr, "graphsafe_set_state: expected a generator of device ", device(),
                ", but got one of ", other ? other->device().str() : "none");
    state_ = generator->state_;
  }

  Philox next(int64_t count) {
    Philox first{static_cast<int64_t>(state_->seed), static_cast<int64_t>(state_->offset)};
    state_->offset += static_cast<uint64_t>(count);
    return first;
  }

private:
  Generator *clone_impl() const override {
    Generator *copy = new Generator(device().index());
    copy->state_->seed = state_->seed, copy->state_->offset = state_->offset;
    return copy;
  }
  c10::intrusive_ptr<RandomState> state_;
};

} // namespace

const at::Generator &default_generator(c10::DeviceIndex index) {
  static std::mutex *mutex = new std::mutex;
  static auto *generators = new std::array<at::Generator, kDevicesMax>;
  std::lock_guard<std::mutex> lock(*mutex);
  at::Generator &generator = (*generators)[index];
  if (C10_UNLIKELY(!generator.defined())) {
    generator = at::make_generator<Generator>(index);
    generator.seed();
  }
  return generator;
}

at::Generator new_generator(c10::DeviceIndex index) {
  return at::make_generator<Generator>(index);
}

Philox next_philox(const std::optional<at::Generator> &generator, int64_t count) {
  const at::Generator &used =
      generator.has_value() && generator->defined() ? *generator : default_generator(here_index());
  TORCH_CHECK(used.device().type() == c10::DeviceType::PrivateUse1, "Expected a '", here().str(),
              "' device type for generator but found '", used.device().str(), "'");
  if (Capture *capturing = capture(); C10_UNLIKELY(capturing != nullptr)) {
    TORCH_CHECK(used == default_generator(here_index()),
                "headrace: a graph that draws from a generator of its own can't be captured");
    capturing->ticket_count += count;
    return {0, capturing->ticket_count - count};
  }
  std::lock_guard<std::mutex> lock(used.unsafeGetGeneratorImpl()->mutex_);
  return static_cast<Generator *>(used.unsafeGetGeneratorImpl())->next(count);
}

} // namespace headrace
