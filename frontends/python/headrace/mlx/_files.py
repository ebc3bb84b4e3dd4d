"""Files of arrays with MLX's names: npy, npz, safetensors and gguf."""

import io
import os

import headrace as _hr
from headrace import save, save_gguf, save_safetensors, savez, savez_compressed

__all__ = ["load", "save", "save_gguf", "save_safetensors", "savez", "savez_compressed"]


def load(file, /, format=None, return_metadata=False, *, stream=None):
    """The array or the dict of arrays of a file; with return_metadata the dict of metadata, too. The format is found
    from the contents."""
    if isinstance(file, io.TextIOBase):
        raise ValueError("load: the file is open for text, expected bytes")
    if not hasattr(file, "read") and not os.path.exists(file):
        raise RuntimeError(f"load: {os.fspath(file)} does not exist")
    return _hr.load(file, return_metadata=True) if return_metadata else _hr.load(file)
