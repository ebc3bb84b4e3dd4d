// distributed.h: the backend of torch.distributed (distributed.cpp), and how its ranks meet (meet.cpp).
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>

#include "transport.h"

namespace headrace {

c10::intrusive_ptr<c10d::Backend> new_backend(std::shared_ptr<Transport> transport, int rank, int size,
                                              std::chrono::milliseconds timeout);
// Drops what is coalesced; false for a backend of another kind. `has_collectives`: also those that torch has collected.
bool cancel_coalescing(c10d::Backend &backend, bool has_collectives);
const char *transport_name(c10d::Backend &backend); // nullptr for a backend of another kind

// A group that all ranks have joined, or nullptr on all ranks.
hr_group *meet_on_machine(c10d::Store &store, int rank, int size);
// A transport by NCCL from each rank's device, or nullptr on all ranks; `out_reason` is why.
std::shared_ptr<Transport> meet_by_nccl(c10d::Store &store, int rank, int size, std::string *out_reason);

} // namespace headrace
