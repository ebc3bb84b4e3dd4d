"""Devices, streams and memory counters with MLX's names.

`cpu` is Headrace's "cpu", `gpu` its "cuda", if there is one. Each device has one stream: further streams are names for
it.
"""

import os
import platform
import threading

from headrace import _arrays


class DeviceType:
    """mx.cpu or mx.gpu."""

    def __init__(self, name, value):
        self.name, self.value = name, value

    def __repr__(self):
        return f"DeviceType.{self.name}"

    def __eq__(self, other):
        if isinstance(other, Device):
            return other == self
        return self is other if isinstance(other, DeviceType) else NotImplemented

    def __hash__(self):
        return hash(self.name)

    def __reduce__(self):
        return self.name


cpu, gpu = DeviceType("cpu", 0), DeviceType("gpu", 1)
DeviceType.cpu, DeviceType.gpu = cpu, gpu


class Device:
    """A device: its type and number."""

    def __init__(self, type, index=0):
        self.type, self.index = type.type if isinstance(type, Device) else type, index

    def __repr__(self):
        return f"Device({self.type.name}, {self.index})"

    def __eq__(self, other):
        if isinstance(other, DeviceType):
            other = Device(other)
        if not isinstance(other, Device):
            return NotImplemented
        return self.type is other.type and self.index == other.index

    def __hash__(self):
        return hash((self.type.name, self.index))


class Stream:
    """A name for a device's stream, for the thread that made it; index -1: for all threads."""

    def __init__(self, device, index, thread=None):
        self.device, self.index, self.thread = device, index, thread

    def __repr__(self):
        return f"Stream({self.device}, {self.index})"

    def __eq__(self, other):
        return isinstance(other, Stream) and (self.device, self.index) == (other.device, other.index)

    def __hash__(self):
        return hash((self.device, self.index))


class ThreadLocalStream(Stream):
    """A stream that each thread has."""


class _State:
    def __init__(self):
        self.streams = 2
        self.lock = threading.Lock()
        self.limits = {"cache": 1 << 62, "memory": 1 << 62, "wired": 0}
        self.allocations = None  # at the last reset of the peak


_state = _State()


def _gpu_count():
    return 1 if _arrays.device().startswith("cuda") else 0


def is_available(device):
    """True if there is such a device."""
    return Device(device).type is cpu or _gpu_count() > 0


def device_count(device):
    """The number of devices of a type."""
    return 1 if Device(device).type is cpu else _gpu_count()


def _checked(device):
    device = device if isinstance(device, Device) else Device(device)
    if not is_available(device):
        raise ValueError(f"{device} is not available")
    return device


def _processor():
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        return names[0] if names else platform.processor()
    except OSError:
        return platform.processor() or platform.machine()


def device_info(d=None):
    """Name and architecture of a device."""
    device = _checked(default_device() if d is None else d)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if device.type is cpu:
        return {"device_name": _processor(), "architecture": platform.machine(), "memory_size": pages}
    return {"device_name": _arrays.device(), "architecture": "cuda"}


def default_device():
    """The device of new arrays."""
    name, _, index = _arrays.device().partition(":")
    return Device(gpu if name == "cuda" else cpu, int(index or 0))


def set_default_device(device):
    """Selects the device of new arrays."""
    device = _checked(device)
    _arrays.device("cpu" if device.type is cpu else f"cuda:{device.index}")


def default_stream(device):
    """The device's stream."""
    return Stream(_checked(device), 0 if Device(device).type is cpu else 1)


def set_default_stream(stream):
    """Selects the stream's device."""
    set_default_device(stream.device)


def _new_stream(kind, device, thread):
    with _state.lock:
        _state.streams += 1
        return kind(_checked(device), _state.streams - 1, thread)


def new_stream(device):
    """A new name for the device's stream, for this thread."""
    return _new_stream(Stream, device, threading.get_ident())


def new_thread_unsafe_stream(device):
    """A new name for the device's stream, for all threads."""
    return _new_stream(Stream, device, None)


def new_thread_local_stream(device):
    """A new name for the device's stream, for all threads."""
    return _new_stream(ThreadLocalStream, device, None)


class StreamContext:
    """`with mx.stream(s)`: the default device is that of s."""

    def __init__(self, s):
        self.stream = s if isinstance(s, Stream) else default_stream(s)

    def __enter__(self):
        if self.stream.thread not in (None, threading.get_ident()):
            raise RuntimeError(f"{self.stream} belongs to the thread that made it")
        self.before = default_device()
        set_default_device(self.stream.device)
        return self.stream

    def __exit__(self, *exception):
        set_default_device(self.before)


def stream(s):
    """A context in which the device of a stream or device is the default."""
    return StreamContext(s)


def synchronize(stream=None):
    """Waits for all work."""
    _arrays.eval()


def clear_streams():
    """Nothing: streams are names."""


# ---- memory


def get_active_memory():
    """Bytes of live arrays, after all pending work. Programs' temporaries are not counted."""
    _arrays.eval()
    memory = _arrays._memory()
    return memory["active"] - memory["temporary"]


def get_peak_memory():
    """The most bytes since the last reset."""
    memory = _arrays._memory()
    return 0 if memory["allocations"] == _state.allocations else memory["peak"]


def reset_peak_memory():
    """The peak is counted from now on."""
    _state.allocations = _arrays._memory("reset_peak")["allocations"]


def get_cache_memory():
    """Bytes that are kept for later arrays."""
    memory = _arrays._memory("trim" if _state.limits["cache"] == 0 else "")
    return memory["reserved"] - memory["active"]


def clear_cache():
    """Returns memory that no array uses."""
    _arrays._memory("trim")


def _set_limit(name, limit):
    before, _state.limits[name] = _state.limits[name], limit
    return before


def set_cache_limit(limit):
    """The limit before. Memory is kept in any case; with limit 0, get_cache_memory returns it before it counts."""
    return _set_limit("cache", limit)


def set_memory_limit(limit):
    """The limit before. Nothing else: MLX's limit is a hint. HEADRACE_MEMORY_LIMIT is a real one."""
    return _set_limit("memory", limit)


def get_memory_limit():
    """The limit of set_memory_limit."""
    return _state.limits["memory"]


def set_wired_limit(limit):
    """The limit before. Nothing else."""
    return _set_limit("wired", limit)


def get_array_buffer_size(*args):
    """Bytes of the arrays in these trees."""
    from headrace.utils import tree_flatten

    arrays = {id(x): x.nbytes for _, x in tree_flatten(list(args)) if isinstance(x, _arrays.Array)}
    return sum(arrays.values())


class metal:
    """Apple's GPUs, of which there are none."""

    @staticmethod
    def is_available():
        """False"""
        return False

    device_info = staticmethod(device_info)
    get_active_memory, get_peak_memory = staticmethod(get_active_memory), staticmethod(get_peak_memory)
    get_cache_memory, reset_peak_memory = staticmethod(get_cache_memory), staticmethod(reset_peak_memory)
    clear_cache, set_cache_limit = staticmethod(clear_cache), staticmethod(set_cache_limit)
    set_memory_limit, set_wired_limit = staticmethod(set_memory_limit), staticmethod(set_wired_limit)


class cuda:
    """CUDA's GPUs."""

    @staticmethod
    def is_available():
        """True if the default device is one."""
        return _gpu_count() > 0
