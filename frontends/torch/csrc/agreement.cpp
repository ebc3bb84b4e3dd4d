// agreement.cpp: see agreement.h.
#include "agreement.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <sstream>
#include <string_view>
#include <thread>

namespace headrace {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds, std::chrono::milliseconds;

constexpr size_t kRecent = 256, kKnownCalls = 4096, kKnownMessages = 64;

hr_status unavailable(const std::string &text) {
  return hr_status_make(HR_STATUS_UNAVAILABLE, "%s", text.c_str());
}

template <class Body> hr_status guarded(Body &&body) {
  try {
    return body();
  } catch (const c10::Error &error) {
    return unavailable(std::string("comparing the ranks' calls: ") + error.what_without_backtrace());
  } catch (const std::exception &error) {
    return unavailable(std::string("comparing the ranks' calls: ") + error.what());
  }
}

bool has_root(std::string_view name) {
  return name == "reduce" || name == "broadcast" || name == "gather" || name == "scatter" || name == "reduce_scatter";
}

} // namespace

// ---- notes

class Agreement::Notes final : public Transport {
public:
  explicit Notes(Agreement &owner) : owner_(owner) {}
  hr_status all_reduce(const hr_group_call &call, hr_group_op op, int64_t elements, const void *, void *) override {
    return note(call, op, elements, {});
  }
  hr_status reduce_scatter(const hr_group_call &call, hr_group_op op, int64_t elements,
                           const std::vector<const void *> &, void *) override {
    return note(call, op, elements, {});
  }
  hr_status exchange(const hr_group_call &call, Blocks kind, const std::vector<hr_group_block> &blocks) override {
    std::vector<int64_t> sizes;
    if (kind != Blocks::Any)
      for (int r = 0; r < owner_.size_; ++r)
        sizes.push_back(r == owner_.rank_ ? longest(blocks, &hr_group_block::send_bytes) : blocks[r].receive_bytes);
    if (kind == Blocks::Equal)
      sizes = {std::max(longest(blocks, &hr_group_block::send_bytes), longest(blocks, &hr_group_block::receive_bytes))};
    else if (std::equal(sizes.begin() + !sizes.empty(), sizes.end(), sizes.begin()))
      sizes.resize(std::min<size_t>(sizes.size(), 1));
    HR_RETURN_IF_ERROR(note(call, -1, -1, std::move(sizes)));
    for (int r = 0; kind == Blocks::Any && r < owner_.size_; ++r)
      if (r != owner_.rank_) {
        note_message(owner_.rank_, r, call, blocks[r].send_bytes);
        note_message(r, owner_.rank_, call, blocks[r].receive_bytes);
      }
    return HR_OK;
  }
  hr_status refuse(const hr_group_call &call) override {
    return note(call, kRefused, -1, {});
  }
  hr_status send(const hr_group_call &call, int to, int, const void *, int64_t bytes) override {
    note_message(owner_.rank_, to, call, bytes);
    return HR_OK;
  }
  hr_status receive(const hr_group_call &call, int from, int, void *, int64_t bytes, int *) override {
    if (from >= 0) // else the transport refuses it
      note_message(from, owner_.rank_, call, bytes);
    return HR_OK;
  }
  void stop(const std::string &) override {}
  const char *name() const override {
    return "notes";
  }

private:
  static int64_t longest(const std::vector<hr_group_block> &blocks, int64_t hr_group_block::*bytes) {
    int64_t most = 0;
    for (const hr_group_block &block : blocks)
      most = std::max(most, block.*bytes);
    return most;
  }
  hr_status note(const hr_group_call &call, int op, int64_t elements, std::vector<int64_t> sizes) {
    owner_.timeout_ns_ = call.timeout_ns;
    owner_.collectives_.calls.push_back(
        {call.name, call.dtype, op, elements, has_root(call.name) ? call.words[0] : -1, std::move(sizes)});
    return HR_OK;
  }
  void note_message(int from, int to, const hr_group_call &call, int64_t bytes) {
    owner_.timeout_ns_ = call.timeout_ns;
    owner_.messages_.push_back({from * owner_.size_ + to, 0, {{"message", call.dtype, -1, -1, -1, {bytes}}}});
  }
  Agreement &owner_;
};

Agreement::Agreement(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
    : store_(std::move(store)), rank_(rank), size_(size), notes_(std::make_unique<Notes>(*this)) {}

// ---- texts and keys

std::string Agreement::text_of(const Call &call) {
  if (call.op == kRefused)
    return std::string(call.name) + " with arguments that it refuses";
  std::ostringstream text;
  text << call.name;
  if (call.elements >= 0)
    text << " of " << call.elements << " elements";
  if (call.dtype != HR_DTYPE_NONE)
    text << " of " << hr_dtype_name(call.dtype);
  if (call.op >= 0)
    text << ", " << hr_group_op_name(static_cast<hr_group_op>(call.op));
  if (call.root >= 0)
    text << ", root " << call.root;
  for (size_t i = 0; i < call.sizes.size(); ++i)
    text << (i == 0 ? ", bytes " : " ") << call.sizes[i];
  return text.str();
}

std::string Agreement::text_of(const Entry &entry) const {
  std::string text;
  for (const Call &call : entry.calls)
    text += (text.empty() ? "" : "; ") + text_of(call);
  return text;
}

uint64_t Agreement::hash_of(const Entry &entry) {
  uint64_t hash = 0;
  auto mix = [&](uint64_t word) { hash = (hash ^ word) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29; };
  for (const Call &call : entry.calls) {
    mix(std::hash<std::string_view>()(call.name));
    for (int64_t word : {int64_t{call.dtype}, int64_t{call.op}, call.elements, call.root})
      mix(static_cast<uint64_t>(word));
    for (int64_t size : call.sizes)
      mix(static_cast<uint64_t>(size));
    mix(call.sizes.size());
  }
  return hash;
}

std::string Agreement::key_of(const Entry &entry, int rank) {
  return "calls/" + std::to_string(entry.scope) + "/" + std::to_string(entry.number) + "/" + std::to_string(rank);
}

std::vector<int> Agreement::ranks_of(int scope) const {
  if (scope != kGroup)
    return {scope / size_, scope % size_};
  std::vector<int> ranks;
  for (int r = 0; r < size_; ++r)
    ranks.push_back(r);
  return ranks;
}

std::string Agreement::get(const std::string &key) {
  std::vector<uint8_t> value = store_->get(key);
  return {value.begin(), value.end()};
}

void Agreement::set(const std::string &key, const std::string &value) {
  store_->set(key, std::vector<uint8_t>(value.begin(), value.end()));
}

// ---- comparing before a call

bool Agreement::is_refused(const Entry &entry) {
  return entry.calls[0].op == kRefused;
}

// Numbers the entry; true if it is new.
bool Agreement::begin(Entry &entry) {
  Scope &scope = scopes_[entry.scope];
  entry.number = ++scope.count;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    recent_.push_back(entry);
    if (recent_.size() > kRecent)
      recent_.pop_front();
  }
  return scope.known.size() < (entry.scope == kGroup ? kKnownCalls : kKnownMessages) &&
         scope.known.count(hash_of(entry)) == 0;
}

// The call has failed on all ranks, and was not made.
void Agreement::forget(const Entry &entry) {
  std::lock_guard<std::mutex> lock(mutex_);
  recent_.erase(
      std::remove_if(recent_.begin(), recent_.end(),
                     [&](const Entry &one) { return one.scope == entry.scope && one.number == entry.number; }),
      recent_.end());
}

// Removes what the comparison before has written: the ranks have come to this one, and have read it.
void Agreement::end(const Entry &entry) {
  Scope &scope = scopes_[entry.scope];
  if (!scope.last_key.empty())
    store_->deleteKey(scope.last_key);
  scope.last_key = key_of(entry, rank_);
}

std::string Agreement::difference(int scope, int a, const std::string &of_a, int b, const std::string &of_b) const {
  if (scope == kGroup)
    return "the ranks' collectives differ: rank " + std::to_string(a) + " runs " + of_a + ", rank " +
           std::to_string(b) + " runs " + of_b;
  int from = scope / size_, to = scope % size_;
  return "the ranks' messages differ: rank " + std::to_string(from) + " sends a " + (from == a ? of_a : of_b) +
         ", and rank " + std::to_string(to) + " expects a " + (to == a ? of_a : of_b);
}

hr_status Agreement::compare(const Entry &entry) {
  std::vector<int> ranks = ranks_of(entry.scope);
  int first = ranks[0];
  std::string expected = first == rank_ ? text_of(entry) : get(key_of(entry, first));
  for (int r : ranks) {
    std::string text = r == rank_ ? text_of(entry) : get(key_of(entry, r));
    if (text != expected)
      return hr_status_make(HR_STATUS_INVALID_ARGUMENT, "%s",
                            difference(entry.scope, first, expected, r, text).c_str());
  }
  return HR_OK;
}

// Waits until all ranks have written what they run. Polls: a wait would hold the connection, which look() needs too.
hr_status Agreement::await(const Entry &entry) {
  std::vector<std::string> keys;
  for (int r = 0; r < size_; ++r)
    keys.push_back(key_of(entry, r));
  auto begin = Clock::now();
  auto next_look = milliseconds(500);
  while (!store_->check(keys)) {
    auto age = std::chrono::duration_cast<microseconds>(Clock::now() - begin);
    if (is_broken_ || age > next_look) {
      next_look += std::min(next_look, milliseconds(16000));
      HR_RETURN_IF_ERROR(look());
    }
    if (age > std::chrono::nanoseconds(timeout_ns_))
      for (int r = 0; r < size_; ++r)
        if (!store_->check({keys[r]}))
          return fail("rank " + std::to_string(rank_) + " has waited for rank " + std::to_string(r) +
                      " longer than the timeout of " + std::to_string(timeout_ns_ / 1000000) + " ms, before its " +
                      text_of(entry));
    std::this_thread::sleep_for(std::clamp(age / 16, microseconds(20), microseconds(100000)));
  }
  return HR_OK;
}

// All ranks must come here: an error is that of each, and the call is not made.
hr_status Agreement::agree_on_collectives(Entry entry) {
  bool is_new = begin(entry);
  if (!is_new && !is_refused(entry))
    return HR_OK;
  hr_status status = guarded([&]() -> hr_status {
    set(key_of(entry, rank_), text_of(entry));
    HR_RETURN_IF_ERROR(await(entry));
    end(entry);
    return compare(entry);
  });
  if (status == HR_OK && !is_refused(entry))
    scopes_[kGroup].known.insert(hash_of(entry));
  else if (status != HR_OK && !is_broken_)
    forget(entry);
  return status;
}

// Waits for nobody, since a message may be sent before its receiver comes: the second of the two compares.
hr_status Agreement::agree_on_message(Entry entry) {
  if (!begin(entry))
    return HR_OK;
  return guarded([&]() -> hr_status {
    int from = entry.scope / size_, to = entry.scope % size_;
    set(key_of(entry, rank_), text_of(entry));
    scopes_[entry.scope].known.insert(hash_of(entry));
    if (!store_->check({key_of(entry, rank_ == from ? to : from)}))
      return HR_OK;
    hr_status status = compare(entry);
    if (status == HR_OK)
      return HR_OK;
    std::string reason = hr_status_message(status);
    hr_status_free(status);
    return fail(reason);
  });
}

hr_status Agreement::agree() {
  Entry collectives = std::move(collectives_);
  std::vector<Entry> messages = std::move(messages_);
  collectives_ = {kGroup, 0, {}};
  messages_.clear();
  if (is_broken_)
    return look();
  if (!collectives.calls.empty())
    HR_RETURN_IF_ERROR(agree_on_collectives(std::move(collectives)));
  for (Entry &message : messages)
    HR_RETURN_IF_ERROR(agree_on_message(std::move(message)));
  return HR_OK;
}

// ---- comparing calls that wait

// One line for each recent call: scope, number, text.
std::string Agreement::recent_text() const {
  std::string text;
  for (const Entry &entry : recent_)
    text += std::to_string(entry.scope) + " " + std::to_string(entry.number) + " " + text_of(entry) + "\n";
  return text;
}

// The first difference, or nothing.
std::string Agreement::compare_recent(int rank, const std::string &theirs) const {
  std::istringstream lines(theirs);
  int scope = 0;
  uint64_t number = 0;
  std::string text;
  while (lines >> scope >> number && lines.get() == ' ' && std::getline(lines, text))
    for (const Entry &entry : recent_)
      if (entry.scope == scope && entry.number == number && text_of(entry) != text) {
        std::string own = text_of(entry);
        return rank_ < rank ? difference(scope, rank_, own, rank, text) : difference(scope, rank, text, rank_, own);
      }
  return "";
}

// The first reason of all ranks is that of each.
hr_status Agreement::fail(const std::string &reason) {
  std::string first = reason;
  hr_status_ignore(guarded([&]() -> hr_status {
    first = store_->compareSet("broken", std::string(), reason);
    return HR_OK;
  }));
  std::lock_guard<std::mutex> lock(mutex_);
  if (!is_broken_)
    reason_ = first;
  is_broken_ = true;
  return unavailable(reason_);
}

hr_status Agreement::look() {
  return guarded([&]() -> hr_status {
    std::string own, different;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (is_broken_)
        return unavailable(reason_);
      own = recent_text();
    }
    if (store_->check({"broken"}))
      return fail(get("broken"));
    set("recent/" + std::to_string(rank_), own);
    for (int r = 0; r < size_ && different.empty(); ++r) {
      std::string key = "recent/" + std::to_string(r);
      if (r == rank_ || !store_->check({key}))
        continue;
      std::string theirs = get(key);
      std::lock_guard<std::mutex> lock(mutex_);
      different = compare_recent(r, theirs);
    }
    return different.empty() ? HR_OK : fail(different);
  });
}

void Agreement::stop(const std::string &reason) {
  if (!is_broken_)
    hr_status_ignore(fail(reason));
}

} // namespace headrace
