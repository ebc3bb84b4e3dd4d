"""torch.headrace.profiler: records of what runs, with the functions of torch.mps.profiler.

    with torch.headrace.profiler.profile():
        train_one_step()
    print(torch.headrace.profiler.tables())
    torch.headrace.profiler.export("step.json")  # open it in ui.perfetto.dev
"""

import contextlib
import os

import torch

from headrace._library import _C
from headrace.counters import get_mode, set_mode

__all__ = ["start", "stop", "profile", "export", "tables"]

_MODES = ("interval", "event")
_mode_before = None  # what stop() restores after wait_until_completed


def _has_points(mode):
    words = [word.strip() for word in mode.split(",")]
    if not words or any(word not in _MODES for word in words):
        raise ValueError(f'mode is {mode!r}, expected "interval", "event" or "interval,event"')
    return "event" in words


def start(mode="interval", wait_until_completed=False):
    """Starts recording what runs on all devices, after waiting for what was issued before.

    `mode`: "interval" records runs, kernels, copies and commits with begin and end. "event", alone or after a comma,
    adds a point in time for each operation when it is issued. `wait_until_completed`: each operation runs at once and
    is waited for (mode "strict"), which shows times of single operations instead of those of the program as it is.
    RuntimeError if the profiler is started already.
    """
    global _mode_before
    has_points = _has_points(mode)
    _C.profiler_start(has_points)
    if wait_until_completed:
        _mode_before = get_mode()
        set_mode("strict")


def stop():
    """Waits for all devices and stops recording. The records stay until the next start. RuntimeError if the
    profiler is not started; errors of the pending work are raised, too."""
    global _mode_before
    before, _mode_before = _mode_before, None
    try:
        _C.profiler_stop()
    finally:
        if before is not None:
            set_mode(before)


@contextlib.contextmanager
def profile(mode="interval", wait_until_completed=False):
    """Context manager that starts the profiler and stops it at the end, also after an exception."""
    start(mode, wait_until_completed)
    try:
        yield
    finally:
        stop()


def export(path):
    """Writes what was recorded as a timeline for ui.perfetto.dev: in Perfetto's format if the name ends in .pftrace,
    else in the JSON format of Chrome's trace viewer. Before stop() this waits for all devices."""
    _C.profiler_export(os.fspath(path))


def tables():
    """Three tables as text, sorted by total time: kernels and library calls with runs, mean and total time, bytes and
    share; copies by direction, single numbers apart; operations that ran on the host."""
    return _C.profiler_tables()
