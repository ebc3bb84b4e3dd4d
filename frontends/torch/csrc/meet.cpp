// meet.cpp: how the ranks of a process group find each other, through torch's store.
//
// The first rank makes a segment of shared memory with a name that no other has, and puts the name into the store. If
// all ranks find it, they are on one machine.
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>

#include "agreement.h"
#include "device.h"
#include "distributed.h"
#include "extension.h"

namespace headrace {
namespace {

using Milliseconds = std::chrono::milliseconds;

void set(c10d::Store &store, const std::string &key, const std::string &value) {
  store.set(key, std::vector<uint8_t>(value.begin(), value.end()));
}

std::string get(c10d::Store &store, const std::string &key) {
  std::vector<uint8_t> value = store.get(key);
  return {value.begin(), value.end()};
}

std::string names_of_user() {
  return "headrace-" + std::to_string(getuid()) + "-";
}

std::string names_of_process() {
  return names_of_user() + std::to_string(getpid()) + "-";
}

// Unique among all machines: a rank that finds a segment of this name shares memory with the one that made it.
std::string segment_name() {
  std::random_device random;
  std::string name = names_of_process();
  for (int i = 0; i < 32; ++i)
    name += "0123456789abcdef"[random() % 16];
  return name;
}

// A group that lacks a rank is of no use to the others: its name goes, too.
void give_up(hr_group *group) {
  hr_group_hide(group);
  hr_group_release(group);
}

} // namespace

hr_group *meet_on_machine(c10d::Store &store, int rank, int size) {
  std::string name = rank == 0 ? segment_name() : get(store, "segment");
  hr_group *made = nullptr;
  hr_status status = HR_OK;
  if (rank == 0) {
    hr_group_sweep(names_of_user().c_str(), names_of_process().c_str());
    status = hr_group_create(name.c_str(), size, &made);
  } else if (!name.empty()) {
    status = hr_group_join(name.c_str(), rank, size, &made);
  }
  hr_status_ignore(status);
  std::unique_ptr<hr_group, decltype(&give_up)> group(made, give_up); // the store may throw
  if (rank != 0) {
    set(store, "joined/" + std::to_string(rank), group != nullptr ? "1" : "0");
    return get(store, "verdict") == "1" ? group.release() : nullptr;
  }
  bool is_whole = group != nullptr;
  set(store, "segment", is_whole ? name : "");
  for (int r = 1; r < size; ++r)
    is_whole = (get(store, "joined/" + std::to_string(r)) == "1") && is_whole;
  if (group != nullptr)
    hr_group_hide(group.get());
  set(store, "verdict", is_whole ? "1" : "0");
  return is_whole ? group.release() : nullptr;
}

namespace {

// Takes this rank's status; true if it is OK on all ranks. Else *out_reason is the first rank's reason.
bool agree(c10d::Store &store, const std::string &key, int rank, int size, hr_status status, std::string *out_reason) {
  set(store, key + std::to_string(rank), status == HR_OK ? "" : hr_status_message(status));
  hr_status_ignore(status);
  for (int r = 0; r < size; ++r) {
    std::string reason = get(store, key + std::to_string(r));
    if (!reason.empty()) {
      *out_reason = "rank " + std::to_string(r) + ": " + reason;
      return false;
    }
  }
  return true;
}

// The current device. A program that has selected none yet gets that of its rank on this machine.
c10::DeviceIndex nccl_device() {
  const char *local = std::getenv("LOCAL_RANK");
  int index = local != nullptr ? std::atoi(local) : 0;
  if (here_index() == 0 && index > 0 && index < count_devices())
    choose_index(static_cast<c10::DeviceIndex>(index));
  return here_index();
}

hr_status look_at_others(void *agreement) {
  return static_cast<Agreement *>(agreement)->look();
}

} // namespace

std::shared_ptr<Transport> meet_by_nccl(c10d::Store &store, int rank, int size, std::string *out_reason) {
  if (!agree(store, "nccl/found/", rank, size, hr_nccl_check(), out_reason))
    return nullptr;
  hr_nccl_id id;
  std::vector<uint8_t> bytes;
  hr_status status = HR_OK;
  if (rank == 0) {
    status = hr_nccl_make_id(&id);
    bytes.assign(id.bytes, id.bytes + sizeof id.bytes);
    store.set("nccl/id", bytes);
  } else {
    bytes = store.get("nccl/id");
    std::copy(bytes.begin(), bytes.end(), id.bytes);
  }
  hr_nccl *nccl = nullptr;
  c10::DeviceIndex index = nccl_device();
  status = status != HR_OK ? status : hr_nccl_create(device_of(index), &id, rank, size, nullptr, &nccl);
  auto agreement = size > 1 ? std::make_unique<Agreement>(store.clone(), rank, size) : nullptr;
  hr_nccl_look look = agreement != nullptr ? look_at_others : nullptr;
  status = status != HR_OK ? status : hr_nccl_watch(nccl, stream_of(index), look, agreement.get());
  if (agree(store, "nccl/joined/", rank, size, status, out_reason))
    return nccl_transport(nccl, index, std::move(agreement));
  hr_nccl_release(nccl);
  return nullptr;
}

// ---- Python

namespace {

// The temporary process group gets its backend of the device; True, or False if its ranks share no memory.
PyObject *meet_by_memory(PyObject *, PyObject *arguments) {
  return answer([&] {
    const char *name = nullptr;
    long long milliseconds = 0;
    parse(arguments, "sL", &name, &milliseconds);
    bool has_met = false;
    {
      Unlocked unlocked;
      auto process_group = c10d::resolve_process_group(name);
      int rank = process_group->getRank(), size = process_group->getSize();
      if (hr_group *group = meet_on_machine(*process_group->getStore(), rank, size)) {
        process_group->setBackend(c10::DeviceType::PrivateUse1, c10d::ProcessGroup::BackendType::CUSTOM,
                                  new_backend(shared_memory_transport(group), rank, size, Milliseconds(milliseconds)));
        has_met = true;
      }
    }
    return PyBool_FromLong(has_met);
  });
}

// The same by NCCL, if the devices are CUDA's, or if it must; then a failure is an error. Devices of other kinds are
// not opened: a mesh selects them later.
PyObject *meet_by_nccl_alone(PyObject *, PyObject *arguments) {
  return answer([&] {
    const char *name = nullptr;
    long long milliseconds = 0;
    int must = 0;
    parse(arguments, "sLp", &name, &milliseconds, &must);
    bool has_met = false;
    if (must != 0 || are_of("cuda")) {
      Unlocked unlocked;
      auto process_group = c10d::resolve_process_group(name);
      int rank = process_group->getRank(), size = process_group->getSize();
      std::string reason;
      if (std::shared_ptr<Transport> nccl = meet_by_nccl(*process_group->getStore(), rank, size, &reason)) {
        process_group->setBackend(c10::DeviceType::PrivateUse1, c10d::ProcessGroup::BackendType::CUSTOM,
                                  new_backend(std::move(nccl), rank, size, Milliseconds(milliseconds)));
        has_met = true;
      }
      TORCH_CHECK(has_met || must == 0, "HEADRACE_TRANSPORT=nccl: ", reason);
    }
    return PyBool_FromLong(has_met);
  });
}

// The same, over the group's backend of the CPU.
PyObject *meet_by_network(PyObject *, PyObject *arguments) {
  return answer([&] {
    const char *name = nullptr;
    long long milliseconds = 0;
    parse(arguments, "sL", &name, &milliseconds);
    auto process_group = c10d::resolve_process_group(name);
    process_group->setBackend(c10::DeviceType::PrivateUse1, c10d::ProcessGroup::BackendType::CUSTOM,
                              new_backend(network_transport(process_group->getBackend(c10::DeviceType::CPU)),
                                          process_group->getRank(), process_group->getSize(),
                                          Milliseconds(milliseconds)));
    Py_RETURN_NONE;
  });
}

c10::intrusive_ptr<c10d::Backend> backend_named(const char *name) {
  return c10d::resolve_process_group(name)->getBackend(c10::DeviceType::PrivateUse1);
}

PyObject *cancel_group_coalescing(PyObject *, PyObject *arguments) {
  return answer([&] {
    const char *name = nullptr;
    int has_collectives = 0;
    parse(arguments, "sp", &name, &has_collectives);
    return PyBool_FromLong(cancel_coalescing(*backend_named(name), has_collectives != 0));
  });
}

PyObject *transport_of(PyObject *, PyObject *arguments) {
  return answer([&] {
    const char *name = nullptr;
    parse(arguments, "s", &name);
    const char *transport = transport_name(*backend_named(name));
    TORCH_CHECK(transport != nullptr, "the group \"", name, "\" has no backend \"headrace\"");
    return PyUnicode_FromString(transport);
  });
}

} // namespace

PyMethodDef distributed_functions[] = {
    {"meet_by_memory", meet_by_memory, METH_VARARGS,
     "Gives a process group a backend over shared memory; False if its ranks are not on one machine."},
    {"meet_by_nccl", meet_by_nccl_alone, METH_VARARGS,
     "Gives a process group a backend over NCCL; False if its ranks can't, and need not."},
    {"meet_by_network", meet_by_network, METH_VARARGS, "Gives a process group a backend over its backend of the CPU."},
    {"cancel_coalescing", cancel_group_coalescing, METH_VARARGS, "Drops what a group has coalesced."},
    {"transport_of", transport_of, METH_VARARGS, "How a group's ranks communicate: nccl, shared memory, or network."},
    {nullptr, nullptr, 0, nullptr}};

} // namespace headrace
