// transport.h: how the ranks of a process group of torch.distributed reach each other: through shared memory on one
// machine (headrace/group.h), or through another backend of torch, which is gloo (distributed.cpp chooses).
//
// All addresses are the host's. A transport is used by one thread at a time, that of the device's work; stop() is safe
// from any.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "headrace/group.h"

namespace headrace {

class Transport {
public:
  virtual ~Transport() = default;
  virtual hr_status all_reduce(const hr_group_call &call, hr_group_op op, int64_t elements, const void *input,
                               void *output) = 0;
  virtual hr_status reduce_scatter(const hr_group_call &call, hr_group_op op, int64_t elements,
                                   const std::vector<const void *> &inputs, void *output) = 0;
  virtual hr_status exchange(const hr_group_call &call, bool is_shared, const std::vector<hr_group_block> &blocks) = 0;
  virtual hr_status send(const hr_group_call &call, int to, int tag, const void *data, int64_t bytes) = 0;
  virtual hr_status receive(const hr_group_call &call, int from, int tag, void *data, int64_t bytes, int *out_from) = 0;
  // Makes everything that waits, here and later, fail with the reason.
  virtual void stop(const std::string &reason) = 0;
  // Of a group of some of the ranks; nullptr if they need no other transport than shared memory.
  virtual c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &store,
                                                  const std::vector<int> &ranks) {
    return nullptr;
  }
  virtual const char *name() const = 0;
};

// Owns a reference of the group.
std::shared_ptr<Transport> shared_memory_transport(hr_group *group);
std::shared_ptr<Transport> network_transport(c10::intrusive_ptr<c10d::Backend> backend);

// While it lives, a transport is in use: Ctrl-C then stops it (interrupt.cpp), because a call that has begun is not
// interrupted by the core.
class InUse {
public:
  explicit InUse(Transport *transport);
  InUse(const InUse &) = delete;
  ~InUse();

private:
  Transport *transport_;
};
void stop_transports_in_use(const std::string &reason);

} // namespace headrace
