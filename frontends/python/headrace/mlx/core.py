"""mlx.core, on Headrace's arrays. docs/mlx.md describes the differences.

Importing this module sets MLX's rules for the process: integers of Python are int32, `x += y` changes x, and arrays
have MLX's methods.
"""

from headrace import _arrays
from headrace import finfo, iinfo, isdtype
from headrace._arrays import Array as array
from headrace._arrays import bfloat16, complex64, float16, float32, float64, int8, int16, int32, int64
from headrace._arrays import bool as bool_
from headrace._arrays import dtype as Dtype
from headrace._arrays import uint8, uint16, uint32, uint64
from headrace.exporting import FunctionExporter, export_function, exporter, import_function
from headrace.mlx import _class, distributed, fast, fft, linalg, random
from headrace.mlx._class import ArrayAt
from headrace.mlx._devices import *  # noqa: F403
from headrace.mlx._dtypes import (
    DtypeCategory,
    can_cast,
    complexfloating,
    floating,
    generic,
    inexact,
    integer,
    issubdtype,
    number,
    result_type,
    signedinteger,
    unsignedinteger,
)
from headrace.mlx._files import load, save, save_gguf, save_safetensors, savez, savez_compressed
from headrace.mlx._operations import *  # noqa: F403
from headrace.mlx._products import *  # noqa: F403
from headrace.mlx._quantized import *  # noqa: F403
from headrace.mlx._shapes import *  # noqa: F403
from headrace.mlx._text import PrintOptions, get_printoptions, printoptions, set_printoptions
from headrace.mlx._transforms import *  # noqa: F403

__version__ = "0.32.4"
pi, e, inf, nan = 3.141592653589793, 2.718281828459045, float("inf"), float("nan")
euler_gamma, newaxis = 0.5772156649015329, None


def asarray(a, dtype=None, *, copy=None, stream=None):
    """An array of numbers, lists, arrays or another library's array, whose memory is shared if it can be. copy: True
    always, False never."""
    if copy is False and (isinstance(a, (array, list, tuple, bool, int, float, complex))):
        raise ValueError("asarray: copy=False of an object that must be copied")
    return _arrays.asarray(a, dtype, copy)


def from_dlpack(x, /, *, copy=None):
    """An array on the memory of another library's tensor; float64 becomes float32, complex128 complex64."""
    try:
        y = _arrays.from_dlpack(x, copy=copy)
    except BufferError as error:
        raise ValueError(str(error)) from None
    narrow = {"float64": float32, "complex128": complex64}.get(y.dtype.name)
    return y if narrow is None else y.astype(narrow)


matrix_norm = linalg.norm
_class.install()
