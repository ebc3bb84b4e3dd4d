"""Ranges of torch's operators for NVTX where torch is built without CUDA."""

import contextlib
import functools
import warnings

import torch

from headrace._library import _C


@contextlib.contextmanager
def _synchronize_here():
    """torch.autograd.profiler.emit_nvtx waits for CUDA's devices at both ends."""
    before = torch.cuda.synchronize
    torch.cuda.synchronize = torch.headrace.synchronize
    try:
        yield
    finally:
        torch.cuda.synchronize = before


def register():
    """`emit_nvtx`: its ranges go where the core's own go."""
    if torch.version.cuda is not None or torch.version.hip is not None:
        return
    marks = torch.autograd.profiler.emit_nvtx
    enter, leave = marks.__enter__, marks.__exit__

    @functools.wraps(enter)
    def __enter__(self):
        if self.enabled and not self.entered and not _C.ranges_turn(True):
            warnings.warn(
                "emit_nvtx: no profiler takes the ranges. Start the program with one, such as nsys, or set "
                "NVTX_INJECTION64_PATH to its library (or INTEL_LIBITTNOTIFY64)",
                stacklevel=2,
            )
        with _synchronize_here():
            return enter(self)

    @functools.wraps(leave)
    def __exit__(self, *error):
        with _synchronize_here():
            result = leave(self, *error)
        if self.enabled:
            _C.ranges_turn(False)
        return result

    marks.__enter__, marks.__exit__ = __enter__, __exit__
