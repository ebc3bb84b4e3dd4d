// device.h: the devices behind torch's `headrace`, for the files that connect them to torch: allocator.cpp, guard.cpp,
// hooks.cpp, generator.cpp, host_memory.cpp, module.cpp. Kernels need only record.h.
//
// Each device has a default stream, and a pool of others for the programs that make some. Each is opened on first use
// and never closed: tensors may die after every static object. Threads: any.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <functional>
#include <string>

#include "record.h"

namespace headrace {

constexpr int kDevicesMax = 64;
constexpr int kStreamsMax = 33; // of a device: the default one, whose id is 0, and the pool

// Sets the driver, or one device of it; fails once a device is open.
void set_device_name(const std::string &name);
int count_devices();                    // 0 if there is none: opening one then raises the reason
bool are_of(const std::string &driver); // the devices; opens none
bool is_open();                         // any of them
bool is_open(c10::DeviceIndex index);
bool is_forked(); // this process is a fork of one that had opened a device: nothing works here

hr_stream *stream_of(c10::DeviceIndex index);      // the default one; opens the device
hr_device *device_of(c10::DeviceIndex index);      // likewise
bool has_host_memory(c10::DeviceIndex index);      // likewise; all devices are of one kind
c10::DeviceIndex index_of(c10::DeviceIndex index); // checked; -1 is the current one
c10::DeviceIndex
exchange_index(c10::DeviceIndex index); // makes it the current one, returns the previous one; -1 changes nothing
void choose_index(c10::DeviceIndex index) noexcept; // without a check; out of range changes nothing
c10::Device owner_of(const hr_buffer *buffer);
void for_each_stream(const std::function<void(hr_stream *)> &body); // of the open devices
void wait_for_all();                                                // for these streams; throws the first error
void set_mode(hr_mode mode);                                        // of all streams, including those opened later

// Streams beside the default one. Ids come from torch, where users can invent them.
hr_stream *stream_of(c10::DeviceIndex index, c10::StreamId id);      // opens it
hr_stream *open_stream_of(c10::DeviceIndex index, c10::StreamId id); // nullptr: it has no work, as nothing opened it
bool has_other_streams();                                            // any device, ever
c10::StreamId next_stream_id(c10::DeviceIndex index);                // the pool's, in turn
c10::StreamId current_stream_id(c10::DeviceIndex index);             // of this thread
c10::StreamId exchange_stream_id(c10::DeviceIndex index, c10::StreamId id);                 // returns the previous one
void for_each_stream(c10::DeviceIndex index, const std::function<void(hr_stream *)> &body); // of a device that is open
void commit_device(c10::DeviceIndex index);                                                 // all its streams
void wait_for_device(c10::DeviceIndex index);                                               // for all; the first error

void explain_faults(); // fault.cpp: from now on, dereferencing a handle prints a message; once

// torch.use_deterministic_algorithms: streams choose their algorithms without the tuning cache. Checked when tensors
// are created.
void set_deterministic(bool is_deterministic);
bool is_deterministic();

// Runs at the first use of the device (start.cpp): registers the kernels and lets the Python package prepare torch.
void start();
bool is_started();

c10::DeviceAllocator *device_allocator();                       // allocator.cpp
Tensor adopt(const Tensor &host, c10::DeviceIndex index);       // exchange.cpp: a tensor in the host tensor's memory
void release_storage(void *storage);                            // exchange.cpp: the deleter of a c10::Storage
c10::Allocator *pinned_allocator();                             // host_memory.cpp
bool is_pinned(const void *pointer);                            // host_memory.cpp
const at::Generator &default_generator(c10::DeviceIndex index); // generator.cpp
at::Generator new_generator(c10::DeviceIndex index);            // generator.cpp

} // namespace headrace
