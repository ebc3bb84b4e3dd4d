"""Storages of a GPU whose memory other processes use. The lender keeps them until the borrowers have released theirs.

A loan has a number, and a place in memory of both processes that holds the number until the borrower ends the loan.
"""

import itertools
import threading
from multiprocessing.util import Finalize

import torch

from headrace._library import _C

_CHUNK = 1024
_lock = threading.Lock()
_numbers = itertools.count(1)
_lent = []  # a storage and its place
_free = []  # places
_borrowed = []  # a place and its number


def lend(storage):
    """The place and the number of a new loan."""
    with _lock:
        _sweep()
        if not _free:
            _free.extend(torch.zeros(_CHUNK, dtype=torch.int64).share_memory_().split(1))
        place, number = _free.pop(), next(_numbers)
        place.fill_(number)
        _lent.append((storage, place))
        return place, number


def borrow(place, number):
    """Notes a loan of this process, which ends with its memory, or with the process."""
    with _lock:
        if not _borrowed:
            Finalize(None, _end_all, exitpriority=0)
        _borrowed[:] = [loan for loan in _borrowed if loan[0].item() == loan[1]]
        _borrowed.append((place, number))


def ipc_collect():
    """Releases memory that was sent to other processes and that they have released, as `torch.cuda.ipc_collect()` does.

    It also happens whenever a tensor is sent. On devices whose memory is the host's nothing has to be collected. Memory
    sent to a process that was killed stays until this process ends.
    """
    with _lock:
        _sweep()


def _sweep():
    lent = list(_lent)
    _lent.clear()
    for storage, place in lent:
        if place.item() == 0:
            _free.append(place)
        else:
            _lent.append((storage, place))


def _end_all():
    torch.headrace.synchronize()
    for place, number in _borrowed:
        _C.end_loan(place, number)
