"""The PyTorch device `headrace`: importing this module registers its name; afterwards it is also `torch.headrace`.

    x = torch.randn(3, device="headrace")
    model = model.to("headrace")
    torch.headrace.stats()["commits"]

HEADRACE_DEVICE selects the devices: all of a driver ("cpu", which has one, or "cuda"), or one of them ("cuda:1").
Operations are recorded in streams, deferred, and run in order when a value is needed.

Registering changes nothing else in torch. The first use of the device does (headrace._start).
"""

# ruff: noqa: E402, F401, I001
import os
import sys

from headrace._library import _C  # before torch: its error names the package that brings it
import torch

# ---- the device

from headrace.devices import (
    _exchange_device,
    _is_in_bad_fork,
    _lazy_init,
    _maybe_exchange_device,
    commit,
    current_device,
    device,
    device_count,
    device_of,
    get_amp_supported_dtype,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_initialized,
    set_device,
    synchronize,
)

# ---- streams and events

from headrace.streams import Event, Stream, current_stream, default_stream, set_stream, stream

# ---- graphs

from headrace import graphs
from headrace.graphs import (
    Graph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)

# ---- the profiler

from headrace import profiler

# ---- several processes

from headrace import distributed

# ---- random numbers

from headrace.randoms import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)

# ---- counters, modes, fallback

from headrace.counters import (
    fallbacks,
    get_fallback,
    get_mode,
    reset_stats,
    set_fallback,
    set_mode,
    stats,
)

# ---- memory

from headrace import memory
from headrace.memory import (
    current_allocated_memory,
    driver_allocated_memory,
    empty_cache,
    get_per_process_memory_fraction,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    recommended_max_memory,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_reserved,
    reset_peak_memory_stats,
    set_memory_limit,
    set_per_process_memory_fraction,
)

# ---- memory of the host and of the device

from headrace.exchange import from_dlpack, from_host, host_view
from headrace.loans import ipc_collect

# ---- kernels of expressions

from headrace.elementwise import elementwise

# ---- kernels in C

from headrace.custom_kernel import compile_kernel

compile_shader = compile_kernel  # torch.mps's name

# ---- smaller dtypes

from headrace.precision import suggest_autocast

# ---- packages around torch

import headrace.integrations as integrations

# ---- registration


def __getattr__(name):
    if name == "_initialized":  # torch's checkpointing checks this before it saves the random state
        return _C.is_open()
    if name == "default_generators":
        return tuple(_C.default_generator(index) for index in range(_C.device_count()))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _register():
    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "headrace"):
        raise ImportError(f"headrace: another device ({name}) is registered already; torch has room for one")
    if name == "privateuseone":
        torch.utils.rename_privateuse1_backend("headrace")
    torch._register_device_module("headrace", sys.modules[__name__])
    torch.utils.generate_methods_for_privateuse1_backend(
        for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
    )
    if chosen := os.environ.get("HEADRACE_DEVICE"):
        _C.name_devices(chosen)
    if fallback := os.environ.get("HEADRACE_FALLBACK"):
        set_fallback(fallback)
    distributed._register()
    integrations.register()


_register()
