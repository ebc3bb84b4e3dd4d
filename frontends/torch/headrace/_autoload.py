"""The `torch.backends` entry point: runs at the end of `import torch`.

It must be quick, and must never make that import fail.
"""

import os
import sys
import warnings


def drives_a_gpu(torch):
    """True if this torch is a build for CUDA or ROCm on a machine with such a GPU. The driver is not called: that
    takes long and would leave a context."""
    version = torch.version
    if version.cuda is None and getattr(version, "hip", None) is None:
        return False
    if os.environ.get("CUDA_VISIBLE_DEVICES", "all") in ("", "-1"):
        return False
    return any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")))


def _autoload():
    import torch

    if drives_a_gpu(torch):
        return  # a second accelerator confuses torch.accelerator there: `import headrace.torch` loads it explicitly
    if "headrace.torch" in sys.modules:
        return  # it is being imported, and imports torch
    try:
        import headrace.torch  # noqa: F401
    except Exception as error:  # in any case, torch itself must work
        warnings.warn(
            f"headrace: the device could not be loaded and is not available: {error}", RuntimeWarning, stacklevel=2
        )
