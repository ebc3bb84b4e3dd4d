"""torch.headrace: streams and events.

Each stream records and compiles its own work, and reports its own errors. Work on a tensor runs in the order in which
the program recorded it, in whatever streams that was."""

import torch

from headrace._library import _C


class Stream(torch.Stream):
    """A stream of work: operations that run in order. A device has 32 beside its default one, which are given out in
    turn. A tensor may be used in any stream without a wait. `wait_stream` and `wait_event` make later work of this
    stream follow other work all the same, and commit that work. The work of these streams overlaps with that
    of the default one, unless both use the same tensors."""

    def __new__(cls, device=None, priority=0, **names):
        if names:
            return super().__new__(cls, priority=priority, **names)
        return super().__new__(cls, torch.device("headrace", _C.device_index(device)), priority=priority)


class _EventType(type):
    def __instancecheck__(cls, event):
        return isinstance(event, torch.Event) and event.device.type == "headrace"


class Event(torch.Event, metaclass=_EventType):
    """A mark in a stream. With enable_timing, recording commits pending work, without waiting for it, and
    `elapsed_time` returns the milliseconds between two events that are done."""

    def __new__(cls, enable_timing=False, blocking=False, interprocess=False):
        # A torch.Event("headrace"), which is all that an event is: torch's own functions accept no subclasses.
        return torch.Event("headrace", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


def current_stream(device=None):
    """This thread's current stream of the device, in which its operations are recorded."""
    index = _C.device_index(device)
    return _stream_of(index, _C.current_stream(index))


def default_stream(device=None):
    """The device's default stream."""
    return _stream_of(_C.device_index(device), 0)


def _stream_of(index, number):
    return Stream(stream_id=number, device_index=index, device_type=torch._C._autograd.DeviceType.PrivateUse1.value)


def set_stream(stream):
    """Makes a stream this thread's current one, and its device too."""
    _C.set_current_stream(stream.device, stream.stream_id)
    _C.exchange_device(stream.device)


class stream:  # noqa: N801
    """Context manager that makes a stream the current one."""

    def __init__(self, stream):
        self._stream, self._before, self._device = stream, None, -1

    def __enter__(self):
        if self._stream is not None:
            self._before, self._device = current_stream(self._stream.device), _C.current_device()
            set_stream(self._stream)

    def __exit__(self, *error):
        if self._stream is not None:
            set_stream(self._before)
            _C.exchange_device(self._device)
