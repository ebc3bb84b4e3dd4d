// agreement.h: ranks that communicate by NCCL compare their calls through torch's store, because NCCL compares nothing.
//
// A collective that the group runs for the first time is compared before it is enqueued: each rank writes what it is
// about to run, and reads what the others wrote. If that differs, the call fails on all ranks with the same error, and
// the group goes on. A call that was compared once costs a look into a table. Messages are compared by the second of
// the two ranks, because a sender may come long before its receiver; there an error breaks the group.
//
// If the call is new for some ranks alone, they wait in the store, and the others in NCCL. All then publish their
// recent calls, after about a second and less and less often, and compare them. A difference breaks the group.
//
//   the collectives of a job              one text, numbered within the group
//   a message between two ranks           one text, numbered between the two
//
// A call that a rank refuses is always compared.
//
// After kKnownCalls different calls, the same ones on all ranks, new ones are compared only if they take long.
//
// Threads: note and agree by that of the device's work, look and stop by any.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "transport.h"

namespace headrace {

class Agreement {
public:
  Agreement(c10::intrusive_ptr<c10d::Store> store, int rank, int size);
  Agreement(const Agreement &) = delete;

  // A transport that moves nothing: the steps of a job on it are noted. agree() compares them.
  Transport &notes() {
    return *notes_;
  }
  hr_status agree();
  // Compares the recent calls with those of ranks that wait, if any.
  hr_status look();
  // Ends agree() here, and look() on the other ranks, with the reason.
  void stop(const std::string &reason);
  bool is_broken() const {
    return is_broken_;
  }

private:
  class Notes;
  struct Call {
    const char *name;
    hr_dtype dtype;
    int op;                 // -1: none
    int64_t elements, root; // -1: none
    std::vector<int64_t> sizes;
  };
  struct Entry { // what one comparison compares
    int scope;   // kGroup, or from * size + to
    uint64_t number;
    std::vector<Call> calls;
  };
  struct Scope {
    uint64_t count = 0;
    std::unordered_set<uint64_t> known;
    std::string last_key;
  };
  static constexpr int kGroup = -1, kRefused = -2; // a scope, and an operation

  std::string text_of(const Entry &entry) const;
  static std::string text_of(const Call &call);
  static uint64_t hash_of(const Entry &entry);
  static std::string key_of(const Entry &entry, int rank);
  std::vector<int> ranks_of(int scope) const;
  static bool is_refused(const Entry &entry);
  bool begin(Entry &entry);
  void forget(const Entry &entry);
  hr_status agree_on_collectives(Entry entry);
  hr_status agree_on_message(Entry entry);
  hr_status await(const Entry &entry);
  hr_status compare(const Entry &entry);
  void end(const Entry &entry);
  std::string difference(int scope, int a, const std::string &of_a, int b, const std::string &of_b) const;
  std::string recent_text() const;
  std::string compare_recent(int rank, const std::string &theirs) const;
  hr_status fail(const std::string &reason);

  std::string get(const std::string &key);
  void set(const std::string &key, const std::string &value);

  c10::intrusive_ptr<c10d::Store> store_; // a connection of our own: torch's is locked while a program waits for a key
  const int rank_, size_;
  std::unique_ptr<Transport> notes_;
  Entry collectives_{kGroup, 0, {}}; // noted
  std::vector<Entry> messages_;
  int64_t timeout_ns_ = 0;
  std::map<int, Scope> scopes_;
  std::mutex mutex_; // guards what follows
  std::deque<Entry> recent_;
  std::string reason_;
  std::atomic<bool> is_broken_{false};
};

} // namespace headrace
