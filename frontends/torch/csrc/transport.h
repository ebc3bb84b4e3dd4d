// transport.h: how the ranks of a process group of torch.distributed reach each other: by NCCL between GPUs
// (headrace/nccl.h), through shared memory on one machine (headrace/group.h), or through another backend of torch,
// which is gloo (headrace/distributed.py chooses).
//
// All addresses are the host's, but NCCL's, which are the device's. A transport is used by one thread at a time, that
// of the device's work; stop() is safe from any.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "headrace/nccl.h"

namespace headrace {

// The blocks of an exchange.
enum class Blocks {
  Shared, // a rank's blocks are the same one; all ranks know its size
  Equal,  // all have the same size
  Any
};

class Transport {
public:
  virtual ~Transport() = default;
  virtual hr_status all_reduce(const hr_group_call &call, hr_group_op op, int64_t elements, const void *input,
                               void *output) = 0;
  virtual hr_status reduce_scatter(const hr_group_call &call, hr_group_op op, int64_t elements,
                                   const std::vector<const void *> &inputs, void *output) = 0;
  virtual hr_status exchange(const hr_group_call &call, Blocks kind, const std::vector<hr_group_block> &blocks) = 0;
  // Takes part in place of a collective that this rank refuses, as hr_group_refuse.
  virtual hr_status refuse(const hr_group_call &call) = 0;
  virtual hr_status send(const hr_group_call &call, int to, int tag, const void *data, int64_t bytes) = 0;
  virtual hr_status receive(const hr_group_call &call, int from, int tag, void *data, int64_t bytes, int *out_from) = 0;
  // A transport that compares no arguments in its calls does so before a job: the job's steps run on notes(), which
  // move nothing, and agree() is OK if they are those of the other ranks. Else notes() is nullptr.
  virtual Transport *notes() {
    return nullptr;
  }
  virtual hr_status agree() {
    return HR_OK;
  }
  // Around the steps of one job, which may begin together. `end` takes their failure, or OK, and returns it or its own.
  virtual hr_status begin() {
    return HR_OK;
  }
  virtual hr_status end(hr_status status) {
    return status;
  }
  virtual hr_status check_op(hr_group_op op, hr_dtype dtype) const {
    return hr_group_check_op(op, dtype);
  }
  // The only device whose tensors the transport takes, in the device's memory; -1: any, in the host's memory.
  virtual int device_index() const {
    return -1;
  }
  virtual bool is_shared_memory() const {
    return false;
  }
  // Makes everything that waits, here and later, fail with the reason.
  virtual void stop(const std::string &reason) = 0;
  // Of a group of some of the ranks; nullptr if they need no other transport than shared memory.
  virtual c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store> &store,
                                                  const std::vector<int> &ranks) {
    return nullptr;
  }
  virtual const char *name() const = 0;
};

class Agreement;

// They own a reference of their argument. `agreement` is nullptr for a rank alone.
std::shared_ptr<Transport> nccl_transport(hr_nccl *nccl, int device_index, std::unique_ptr<Agreement> agreement);
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
