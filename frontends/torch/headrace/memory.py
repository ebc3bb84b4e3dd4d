"""torch.headrace: memory."""

from headrace._library import _C


def memory_stats(device=None):
    """A dict of a device's memory in bytes: allocated, reserved, their peaks, limit, free, total, what its compiled
    programs take of the host's memory; and allocation counts."""
    return _C.memory_stats(device)


def memory_allocated(device=None):
    """Bytes bound to live tensors and to temporaries of cached programs."""
    return memory_stats(device)["allocated_bytes"]


def max_memory_allocated(device=None):
    """The peak of `memory_allocated` since the last `reset_peak_memory_stats`."""
    return memory_stats(device)["allocated_bytes_peak"]


def memory_reserved(device=None):
    """Bytes that the allocator holds: allocated and cached."""
    return memory_stats(device)["reserved_bytes"]


def max_memory_reserved(device=None):
    """The peak of `memory_reserved` since the last `reset_peak_memory_stats`."""
    return memory_stats(device)["reserved_bytes_peak"]


def reset_peak_memory_stats(device=None):
    """Sets the peaks to the current values."""
    _C.reset_peak_memory(device)


def mem_get_info(device=None):
    """Free and total bytes of a device."""
    values = memory_stats(device)
    return values["device_free_bytes"], values["device_total_bytes"]


def empty_cache():
    """Frees the compiled programs that did not run since the last call, and returns cached memory to the driver."""
    _C.trim_memory()


def set_memory_limit(size, device=None):
    """Limits the bytes that a device reserves; 0 removes the limit."""
    _C.limit_memory(device, int(size))


def set_per_process_memory_fraction(fraction, device=None):
    """Limits a device's reserved memory to a fraction (0 to 1) of its total memory."""
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must be between 0 and 1, not {fraction}")
    set_memory_limit(max(1, int(mem_get_info(device)[1] * fraction)), device)
