"""Tensors of the device between processes, through torch.multiprocessing: they arrive on the device, in the same memory.

The storage is sent, as torch does for the CPU and for CUDA. Memory of the host moves into a file that both processes
map. On a GPU the receiver opens the sender's memory by its name; the sender keeps it until the receiver has released
it. A process sees the other's writes after that one has waited (`torch.headrace.synchronize()`). A device that can't
share memory sends a copy.
"""

import os
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd, ForkingPickler

import torch
from torch.multiprocessing import reductions

import headrace.torch  # noqa: F401 (registers the name if the receiver's torch has not)
from headrace import loans
from headrace._library import _C


def _bytes_of(storage):
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _keep(thing):
    """The child opens what it gets when it starts, later than the pickler ends."""
    popen = get_spawning_popen()
    if popen is not None:
        popen.__dict__.setdefault("_headrace_shared", []).append(thing)


def _reduce(storage):
    if storage.device.type != "headrace":
        return reductions.reduce_storage(storage)
    if storage.nbytes() == 0:
        return _rebuild, (None, str(storage.device))
    try:
        description, offset, file = _C.share(_bytes_of(storage))
    except NotImplementedError:
        return _reduce_copy(storage)
    _keep(storage)
    handle = DupFd(file) if file >= 0 else None
    place, number = loans.lend(storage) if file < 0 else (None, 0)
    return _open, (description, offset, storage.nbytes(), handle, str(storage.device), place, number)


def _open(description, offset, nbytes, handle, device, place, number):
    file = -1 if handle is None else handle.detach()
    try:
        found = _C.open_shared(description, offset, nbytes, file, torch.device(device), place, number)
    except BaseException:
        if file >= 0:
            os.close(file)
        raise
    if place is not None:
        loans.borrow(place, number)
    return found.untyped_storage()


def _reduce_copy(storage):
    shared = torch.UntypedStorage._new_shared(storage.nbytes())
    _bytes_of(shared).copy_(_bytes_of(storage))
    _keep(shared)
    return _rebuild, (shared, str(storage.device))


def _rebuild(shared, device):
    if shared is None:
        return torch.UntypedStorage(0, device=device)
    return _bytes_of(shared).to(device).untyped_storage()


def register():
    ForkingPickler.register(torch.UntypedStorage, _reduce)
