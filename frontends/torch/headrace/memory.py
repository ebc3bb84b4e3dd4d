"""torch.headrace: memory."""

import gc
import math
import pickle
import sys

import torch

from headrace._library import _C


def memory_stats(device=None):
    """A dict of a device's memory. Headrace's own names: bytes allocated, reserved, their peaks, the limit, free and
    total bytes, what compiled programs take of the host's memory, counts of allocations. Beside them torch's names,
    such as "allocated_bytes.all.peak" (torch.accelerator.memory_stats): blocks of up to 32 KB are the small pool."""
    return _C.memory_stats(device) | _C.torch_memory_stats(device)


def memory_stats_as_nested_dict(device=None):
    """torch's statistics as nested dicts: ["allocated_bytes"]["all"]["peak"]."""
    nested = {}
    for name, value in _C.torch_memory_stats(device).items():
        *path, last = name.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


def memory_allocated(device=None):
    """Bytes bound to live tensors and to temporaries of cached programs."""
    return _C.memory_stats(device)["allocated_bytes"]


def max_memory_allocated(device=None):
    """The peak of `memory_allocated` since the last `reset_peak_memory_stats`."""
    return _C.memory_stats(device)["allocated_bytes_peak"]


def memory_reserved(device=None):
    """Bytes that the allocator holds: allocated and cached."""
    return _C.memory_stats(device)["reserved_bytes"]


def max_memory_reserved(device=None):
    """The peak of `memory_reserved` since the last `reset_peak_memory_stats`."""
    return _C.memory_stats(device)["reserved_bytes_peak"]


def current_allocated_memory():
    """`memory_allocated` of the current device, as torch.mps names it."""
    return memory_allocated()


def driver_allocated_memory():
    """Bytes that the driver has given to the current device's allocator: `memory_reserved`."""
    return memory_reserved()


def recommended_max_memory():
    """Bytes that the current device may reserve: its limit, or its total memory if there is none."""
    values = _C.memory_stats(None)
    return values["limit_bytes"] or values["device_total_bytes"]


def reset_peak_memory_stats(device=None):
    """Sets the peaks to the current values."""
    _C.reset_peak_memory(device)


def reset_max_memory_allocated(device=None):
    """`reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def reset_max_memory_reserved(device=None):
    """`reset_peak_memory_stats`."""
    reset_peak_memory_stats(device)


def reset_accumulated_memory_stats(device=None):
    """Sets the sums ("...allocated", "...freed") and the counts of retries and failures to 0."""
    _C.reset_memory_totals(device)


def mem_get_info(device=None):
    """Free and total bytes of a device."""
    values = _C.memory_stats(device)
    return values["device_free_bytes"], values["device_total_bytes"]


def empty_cache():
    """Frees the compiled programs that did not run since the last call, and returns cached memory to the driver."""
    _C.trim_memory()


# ---- limits


def set_memory_limit(size, device=None):
    """Limits the bytes that a device reserves; 0 removes the limit."""
    if isinstance(size, bool) or not isinstance(size, (int, float)):
        raise TypeError(f"size must be a number of bytes, not {size!r}")
    if not 0 <= size < 2**63:
        raise ValueError(f"size must be a number of bytes, 0 or more, not {size}")
    _C.limit_memory(device, int(size))


def set_per_process_memory_fraction(fraction, device=None):
    """Limits a device's reserved memory to a fraction of its total memory, up to 1; 0 removes the limit."""
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
        raise TypeError(f"fraction must be a number between 0 and 1, not {fraction!r}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction must be between 0 and 1, not {fraction}")
    total = mem_get_info(device)[1]
    set_memory_limit(max(1, math.floor(total * fraction)) if fraction > 0 else 0, device)


def get_per_process_memory_fraction(device=None):
    """The limit as a fraction of the device's total memory; 1.0 without a limit."""
    values = _C.memory_stats(device)
    return min(1.0, (values["limit_bytes"] or values["device_total_bytes"]) / values["device_total_bytes"])


# ---- who has the memory


def memory_snapshot(device=None):
    """The segments that a device has from its driver, and their blocks, as torch.cuda.memory_snapshot lists them. While
    a history is kept, a block in use has the Python stack that created its tensor."""
    index, segments = _C.device_index(device), {}
    _, places, stacks = _C.memory_history(index)
    for start, total, address, size, requested, is_small in _C.memory_blocks(index):
        segment = segments.setdefault(start, _segment(index, start, total, is_small))
        used, place = requested > 0, places.get(address)
        segment["allocated_size"] += size if used else 0
        segment["active_size"] += size if used else 0
        segment["requested_size"] += requested
        frames = [] if place is None else stacks[place]
        segment["blocks"].append(_block(address, size, requested, frames))
    for segment in segments.values():
        last = segment["blocks"][-1]  # its end may be too short for another block
        end = last["address"] + last["size"]
        if rest := segment["address"] + segment["total_size"] - end:
            segment["blocks"].append(_block(end, rest, 0, []))
    return sorted(segments.values(), key=lambda segment: segment["address"])


def _block(address, size, requested, frames):
    state = "active_allocated" if requested > 0 else "inactive"
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}


def _segment(index, address, total, is_small):
    return {
        "device": index,
        "address": address,
        "total_size": total,
        "stream": 0,
        "segment_type": "small" if is_small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "allocated_size": 0,
        "active_size": 0,
        "requested_size": 0,
        "frames": [],
        "blocks": [],
    }


def _record_memory_history(
    enabled="all",
    context="all",
    stacks="python",
    max_entries=sys.maxsize,
    device=None,
    clear_history=False,
):
    """Keeps a history of the memory of all open devices, as torch.cuda.memory._record_memory_history does: "all" keeps
    events too, "state" only the stacks of live blocks, None ends it. `context=None`: without stacks."""
    if enabled not in (None, "state", "all"):
        raise ValueError(f'enabled must be None, "state" or "all", not {enabled!r}')
    if context not in (None, "state", "alloc", "all"):
        raise ValueError(f'context must be None, "state", "alloc" or "all", not {context!r}')
    most = min(int(max_entries), 2**63 - 1)
    _C.keep_memory_history(enabled is not None, enabled == "all", context is not None, most, bool(clear_history))


_EVENTS = {
    0: ("alloc",),
    2: ("free_requested", "free_completed"),
    3: ("segment_alloc",),
    4: ("segment_free",),
    5: ("oom",),
}  # by the numbers of hr_memory_action


def _trace(index):
    events, _, stacks = _C.memory_history(index)
    for action, address, size, time_us, place in events:
        frames = [] if place is None else stacks[place]
        for name in _EVENTS[action]:
            event = {"action": name, "addr": address, "size": size, "stream": 0, "time_us": time_us, "frames": frames}
            yield event | {"device_free": 0} if name == "oom" else event


def _snapshot(device=None):
    """Segments and the history of all devices, in the format of https://pytorch.org/memory_viz."""
    opened = range(_C.device_count()) if device is None else [_C.device_index(device)]
    opened = [index for index in opened if _C.is_open(index)]
    traces = [list(_trace(index)) if index in opened else [] for index in range(_C.device_count())]
    segments = [segment for index in opened for segment in memory_snapshot(index)]
    return {"segments": segments, "device_traces": traces, "allocator_settings": {}, "external_annotations": []}


def _dump_snapshot(filename="dump_snapshot.pickle"):
    """Writes `_snapshot()` to a file for https://pytorch.org/memory_viz."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)


def memory_summary(device=None, abbreviated=False):
    """A table of a device's memory, and of the largest tensors that Python programs hold. `abbreviated`: without small
    and large blocks apart."""
    index = _C.device_index(device)
    own, values = _C.memory_stats(index), _C.torch_memory_stats(index)
    limit = _text_of(own["limit_bytes"]) if own["limit_bytes"] else "none"
    lines = [
        f"headrace:{index}, {_C.describe_device(index)['name']}: memory",
        f"limit {limit}; of the device {_text_of(own['device_total_bytes'])}, "
        f"{_text_of(own['device_free_bytes'])} free",
        f"compiled programs {_text_of(own['program_bytes'])} of the host; "
        f"{values['num_ooms']} requests without memory, {values['num_alloc_retries']} after returning cached memory",
        "",
        f"{'':28}{'now':>12}{'peak':>12}{'allocated':>12}{'freed':>12}",
    ]
    rows = [
        ("bytes in use", "allocated_bytes", True),
        ("  requested", "requested_bytes", True),
        ("bytes reserved", "reserved_bytes", True),
        ("blocks in use", "allocation", False),
        ("segments", "segment", False),
    ]
    for title, name, is_bytes in rows:
        pools = ("all",) if abbreviated else ("all", "small_pool", "large_pool")
        for pool in pools:
            shown = title if pool == "all" else f"    {pool.removesuffix('_pool')}"
            numbers = (values[f"{name}.{pool}.{metric}"] for metric in ("current", "peak", "allocated", "freed"))
            lines.append(f"{shown:28}" + "".join(f"{_text_of(n) if is_bytes else n:>12}" for n in numbers))
    return "\n".join(lines + _list_tensors(index)) + "\n"


def _text_of(count):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024


def _list_tensors(index, most=8):
    """The largest tensors of a device that the garbage collector finds, one for each storage, equal ones together."""
    sizes, seen, where = {}, set(), torch.device("headrace", index)
    for thing in gc.get_objects():
        if not issubclass(type(thing), torch.Tensor):
            continue
        try:
            storage = thing.untyped_storage() if thing.device == where else None
        except (NotImplementedError, RuntimeError):  # sparse, functorch's, without a storage
            continue
        is_fake = storage is not None and storage.device.type == "meta"  # torch.compile's stand-ins
        if storage is not None and not is_fake and storage._cdata not in seen:
            seen.add(storage._cdata)
            kind = (storage.nbytes(), str(thing.dtype).removeprefix("torch."), tuple(thing.shape))
            sizes[kind] = sizes.get(kind, 0) + 1
    if not sizes:
        return []
    total = sum(size * count for (size, _, _), count in sizes.items())
    lines = ["", f"the largest tensors, of {_text_of(total)} that Python holds:"]
    for (size, dtype, shape), count in sorted(sizes.items(), key=lambda item: -item[0][0] * item[1])[:most]:
        times = f"{count} x " if count > 1 else ""
        lines.append(f"{_text_of(size * count):>12}  {times}{dtype} {list(shape)}")
    return lines
