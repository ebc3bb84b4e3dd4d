#include "job.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>

#include "awaited.h"
#include "device.h"
#include "headrace/mark.h"

namespace headrace {

Job::Job(const hr_group_call &call, const Transport &transport)
    : is_refusal_(true), index_(static_cast<c10::DeviceIndex>(transport.device_index())) {
  add([call](Transport &it, const Addresses &, Outcome &) { return it.refuse(call); });
}

// With the other ranks, if the transport does not.
hr_status Job::compare(Running &running, const Addresses &addresses) {
  Transport *notes = running.transport->notes();
  if (notes == nullptr)
    return HR_OK;
  for (const Step &step : running.steps)
    HR_RETURN_IF_ERROR(step(*notes, addresses, *running.outcome));
  return running.transport->agree();
}

hr_status Job::run_steps(Running &running, const Addresses &addresses) {
  running.has_run = true;
  running.outcome->has_begun = true;
  hr_status status = HR_OK;
  {
    InUse in_use(running.transport.get());
    if (status = compare(running, addresses); status == HR_OK)
      status = running.transport->begin();
    if (status == HR_OK) {
      for (const Step &step : running.steps)
        if (status = step(*running.transport, addresses, *running.outcome); status != HR_OK)
          break;
      status = running.transport->end(status);
    }
  }
  if (running.is_refusal && hr_status_code_of(status) == HR_STATUS_INVALID_ARGUMENT) {
    hr_status_free(status);
    status = HR_OK;
  }
  running.outcome->end(status == HR_OK ? "" : hr_status_message(status));
  return status;
}

hr_status Job::run(void *arg, int, void *const *inputs, int, void *const *outputs) {
  auto &running = *static_cast<Running *>(arg);
  Addresses addresses;
  for (size_t i = 0; i < running.in_places.size(); ++i)
    addresses.in.push_back(running.in_places[i] < 0
                               ? nullptr
                               : static_cast<const char *>(inputs[running.in_places[i]]) + running.in_offsets[i]);
  for (size_t i = 0; i < running.out_places.size(); ++i)
    addresses.out.push_back(running.out_places[i] < 0
                                ? nullptr
                                : static_cast<char *>(outputs[running.out_places[i]]) + running.out_offsets[i]);
  return run_steps(running, addresses);
}

hr_status Job::run_step(const hr_function_call *call) {
  Addresses addresses;
  addresses.in.assign(call->outputs, call->outputs + call->output_count);
  addresses.out.assign(call->outputs, call->outputs + call->output_count);
  return run_steps(*static_cast<Running *>(call->arg), addresses);
}

// A job that was dropped, because earlier work of this rank failed, can never be made up for: the other ranks must
// know.
void Job::release(void *arg) {
  std::unique_ptr<Running> running(static_cast<Running *>(arg));
  if (!running->has_run) {
    running->transport->stop("a rank has dropped a collective, because earlier work of its device failed");
    running->outcome->has_begun = true; // nobody waits for it any more
    running->outcome->end("dropped, because earlier work of the device failed");
  }
}

namespace {

struct CallBuffers {
  ~CallBuffers() {
    for (hr_buffer *buffer : retained)
      hr_buffer_release(buffer);
  }
  void add(const Tensor &tensor, std::vector<int> &places, std::vector<int64_t> &offsets) {
    if (tensor.numel() == 0) {
      places.push_back(-1);
      offsets.push_back(0);
      return;
    }
    int64_t offset = 0;
    bool is_retained = false;
    hr_buffer *buffer = buffer_of(tensor, &offset, &is_retained);
    if (is_retained)
      retained.push_back(buffer);
    places.push_back(static_cast<int>(buffers.size()));
    offsets.push_back(offset + tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize()));
    buffers.push_back(buffer);
  }
  std::vector<hr_buffer *> buffers, retained;
};

} // namespace

// True in a backward pass for a job that updates one tensor, and does nothing else.
bool Job::can_be_step(const Transport &transport) const {
  return torch::autograd::get_current_graph_task_id() >= 0 && transport.is_shared_memory() && capture() == nullptr &&
         !has_other_streams() && hr_stream_mode(stream()) == HR_MODE_FUSE && in_.size() == 1 && out_.size() == 1 &&
         in_[0].is_same(out_[0]) && out_[0].numel() > 0 && copies_.empty();
}

void Job::record(std::unique_ptr<Running> running) {
  const Tensor &tensor = out_[0];
  CallBuffers buffers;
  std::vector<int> places;
  std::vector<int64_t> offsets;
  buffers.add(tensor, places, offsets);
  hr_view view{};
  view.buffer = buffers.buffers[0];
  view.dtype = dtype_of(tensor.scalar_type());
  view.rank = static_cast<int>(tensor.dim());
  view.offset = offsets[0] / static_cast<int64_t>(tensor.itemsize());
  view.dims = tensor.sizes().data();
  view.strides = tensor.strides().data();
  hint_due();
  hr_function_spec spec{"all_reduce", &run_step, running.release(), &release, 1, true};
  check(hr_function_record(stream(), &spec, 0, nullptr, 1, &view));
  note_awaited(stream(), outcome_);
}

void Job::call(std::unique_ptr<Running> running) {
  if (has_other_streams())
    end_awaited_of_others(stream());
  CallBuffers in, out;
  for (const Tensor &tensor : in_)
    in.add(tensor, running->in_places, running->in_offsets);
  for (const Tensor &tensor : out_) {
    out.add(tensor, running->out_places, running->out_offsets);
    if (tensor.numel() > 0 && tensor.nbytes() < tensor.storage().nbytes())
      in.buffers.push_back(out.buffers.back()); // a part is written: the rest must be valid, and stay
  }
  hr_status status = hr_stream_call(stream(), &run, running.get(), &release, static_cast<int>(in.buffers.size()),
                                    in.buffers.data(), static_cast<int>(out.buffers.size()), out.buffers.data());
  if (status != HR_OK)
    outcome_->end(hr_status_message(status));
  else
    running.release();
  check(status);
}

// On a device whose memory is its own, the steps work on copies, and the host waits.
void Job::run_staged(std::unique_ptr<Running> running) {
  Tensors in, out;
  Addresses addresses;
  for (const Tensor &tensor : in_) {
    in.push_back(tensor.cpu());
    addresses.in.push_back(in.back().const_data_ptr());
  }
  for (const Tensor &tensor : out_) {
    out.push_back(at::empty(tensor.sizes(), tensor.options().device(at::kCPU)));
    addresses.out.push_back(out.back().data_ptr());
  }
  check(run_steps(*running, addresses));
  for (size_t i = 0; i < out.size(); ++i)
    out_[i].copy_(out[i]);
}

void Job::check_device(const Transport &transport) const {
  int only = transport.device_index();
  c10::Device place = device();
  TORCH_CHECK(only < 0 || only == place.index(), "the process group has found device ", only, ", not ", place.index(),
              ": call set_device before init_process_group");
}

void Job::issue(std::shared_ptr<Transport> transport) {
  c10::NoGradGuard no_grad;
  c10::Device place = device();
  OnDevice on(place);
  int only = transport->device_index();
  check_device(*transport);
  auto running = std::make_unique<Running>();
  running->transport = std::move(transport);
  running->outcome = outcome_;
  running->steps = std::move(steps_);
  running->is_refusal = is_refusal_;
  bool is_in_place = only >= 0 || has_host_memory(place.index());
  if (is_in_place && can_be_step(*running->transport))
    record(std::move(running));
  else if (is_in_place)
    call(std::move(running));
  else
    run_staged(std::move(running));
  for (auto &[target, temporary] : copies_)
    target.copy_(temporary);
}

} // namespace headrace
