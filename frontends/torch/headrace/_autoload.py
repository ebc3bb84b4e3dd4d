"""The `torch.backends` entry point: runs at the end of `import torch`.

It must be quick, and must never make that import fail.
"""

import sys
import warnings


def _autoload():
    import torch

    if torch.version.cuda is not None or getattr(torch.version, "hip", None) is not None:
        return  # a second accelerator confuses torch.accelerator there: `import headrace.torch` loads it explicitly
    if "headrace.torch" in sys.modules:
        return  # it is being imported, and imports torch
    try:
        import headrace.torch  # noqa: F401
    except Exception as error:  # in any case, torch itself must work
        warnings.warn(
            f"headrace: the device could not be loaded and is not available: {error}", RuntimeWarning, stacklevel=2
        )
