"""Tensors of the device between processes, through torch.multiprocessing: they arrive on the device.

The storage is sent, as torch does for the host: its bytes go into shared memory, and the receiver copies them to its
device. Tensors of one message that share a storage still share one on arrival. Sender and receiver each have their
own copy: a later change in one process is not visible in the other.
"""

from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler

import torch
from torch.multiprocessing import reductions

import headrace.torch  # noqa: F401 (registers the name if the receiver's torch has not)


def _bytes_of(storage):
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _reduce(storage):
    if storage.device.type != "headrace":
        return reductions.reduce_storage(storage)
    if storage.nbytes() == 0:
        return _rebuild, (None, str(storage.device))
    shared = torch.UntypedStorage._new_shared(storage.nbytes())
    _bytes_of(shared).copy_(_bytes_of(storage))
    popen = get_spawning_popen()
    if popen is not None:  # the child opens the shared memory when it starts, later than the pickler ends
        popen.__dict__.setdefault("_headrace_shared", []).append(shared)
    return _rebuild, (shared, str(storage.device))


def _rebuild(shared, device):
    if shared is None:
        return torch.UntypedStorage(0, device=device)
    return _bytes_of(shared).to(device).untyped_storage()


def register():
    ForkingPickler.register(torch.UntypedStorage, _reduce)
