"""accelerate chooses the device, trains with fp16 and on several processes, counts memory for device_map="auto", and
saves the states of the device's generators.

`Accelerator(cpu=True)` and ACCELERATE_TORCH_DEVICE choose as before.
"""

import functools
import inspect
import os
from pathlib import Path

import torch

from headrace._library import _C
from headrace.integrations import add_device, chosen_by_default, load_generators, save_generators

_BACKEND = "cpu:gloo,headrace:headrace"


def _choose_device(state):
    choose = state.default_device.fget

    @functools.wraps(choose)
    def default_device(self):
        device = choose(self)
        return torch.device("headrace") if device.type == "cpu" and chosen_by_default() else device

    state.default_device = property(default_device)


def _join_processes(state, types):
    """With several processes accelerate has a type for each device. Those of XPU have no code that needs the device."""
    prepare, take = state._prepare_backend, state.set_device

    @functools.wraps(prepare)
    def _prepare_backend(self, cpu=False, sagemaker_dp=False, backend=None):
        found, kind = prepare(self, cpu, sagemaker_dp, backend)
        is_alone = kind == types.NO and not cpu and int(os.environ.get("LOCAL_RANK", -1)) != -1
        is_ours = self.device is None or self.device.type == "headrace"
        return (backend or _BACKEND, types.MULTI_XPU) if is_alone and is_ours and chosen_by_default() else (found, kind)

    @functools.wraps(take)
    def set_device(self):
        is_open = self.device is None or self.device == torch.device("headrace")
        if is_open and self.distributed_type == types.MULTI_XPU and chosen_by_default():
            self.device = torch.device("headrace", self.local_process_index % torch.headrace.device_count())
            torch.headrace.set_device(self.device)
        take(self)

    state._prepare_backend, state.set_device = _prepare_backend, set_device


def _keep_generators(checkpointing):
    save, load = checkpointing.save_accelerator_state, checkpointing.load_accelerator_state

    def file_of(folder, process):
        return Path(folder, f"random_states_headrace_{process}.pt")

    @functools.wraps(save)
    def save_accelerator_state(output_dir, *arguments, **names):
        out = save(output_dir, *arguments, **names)
        save_generators(file_of(output_dir, _process_of(save, output_dir, arguments, names)))
        return out

    @functools.wraps(load)
    def load_accelerator_state(input_dir, *arguments, **names):
        out = load(input_dir, *arguments, **names)
        load_generators(file_of(input_dir, _process_of(load, input_dir, arguments, names)))
        return out

    checkpointing.save_accelerator_state = save_accelerator_state
    checkpointing.load_accelerator_state = load_accelerator_state


def _process_of(function, folder, arguments, names):
    return inspect.signature(function).bind(folder, *arguments, **names).arguments["process_index"]


def _count_memory(modeling):
    count, bytes_of = modeling.get_max_memory, modeling.convert_file_size_to_int

    @functools.wraps(count)
    def get_max_memory(max_memory=None):
        if not chosen_by_default():
            return count(max_memory)
        devices = range(torch.headrace.device_count())
        if max_memory is None:
            sizes = {index: torch.headrace.mem_get_info(index)[0] for index in devices}
            shared = all(_C.has_host_memory(torch.device("headrace", index)) for index in devices)  # its bytes must not be counted twice
            return sizes if shared else sizes | count()
        known = sorted(key for key in max_memory if key in devices)
        sizes = {key: max_memory[key] for key in known}
        sizes = {key: bytes_of(size) if isinstance(size, str) else size for key, size in sizes.items()}
        return sizes | count({key: value for key, value in max_memory.items() if key not in sizes})

    modeling.get_max_memory = get_max_memory


def _make_scaler(modeling):
    make = modeling.get_grad_scaler

    @functools.wraps(make)
    def get_grad_scaler(distributed_type=None, **names):
        if getattr(distributed_type, "name", "NO") in ("NO", "MULTI_XPU") and chosen_by_default():
            return torch.amp.GradScaler("headrace", **names)
        return make(distributed_type, **names)

    modeling.get_grad_scaler = get_grad_scaler


def _empty_cache(memory):
    clear = memory.clear_device_cache

    @functools.wraps(clear)
    def clear_device_cache(garbage_collection=False):
        clear(garbage_collection)
        if torch.headrace.is_initialized():
            torch.headrace.empty_cache()

    memory.clear_device_cache = clear_device_cache


def register(module):
    if module.__name__ == "accelerate.state":
        _choose_device(module.PartialState)
        _join_processes(module.PartialState, module.DistributedType)
    elif module.__name__ == "accelerate.accelerator":
        add_device(module.Accelerator.__init__, beside="mps")  # those with fp16
    elif module.__name__ == "accelerate.checkpointing":
        _keep_generators(module)
    elif module.__name__ == "accelerate.utils.memory":
        _empty_cache(module)
    else:
        _count_memory(module)
        _make_scaler(module)
