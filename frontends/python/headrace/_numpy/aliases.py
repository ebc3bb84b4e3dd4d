"""Second names of functions and dtypes: NumPy's older ones beside those of the array API standard."""

import headrace as hr

ALIASES = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "around": "round",
    "asanyarray": "asarray",
    "bitwise_not": "bitwise_invert",
    "bool_": "bool",
    "byte": "int8",
    "cdouble": "complex128",
    "concatenate": "concat",
    "conjugate": "conj",
    "csingle": "complex64",
    "deg2rad": "radians",
    "double": "float64",
    "fix": "trunc",
    "half": "float16",
    "int_": "int64",
    "intc": "int32",
    "intp": "int64",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "long": "int64",
    "longlong": "int64",
    "mod": "remainder",
    "power": "pow",
    "rad2deg": "degrees",
    "right_shift": "bitwise_right_shift",
    "row_stack": "vstack",
    "short": "int16",
    "single": "float32",
    "transpose": "permute_dims",
    "true_divide": "divide",
    "ubyte": "uint8",
    "uint": "uint64",
    "uintc": "uint32",
    "uintp": "uint64",
    "ulong": "uint64",
    "ulonglong": "uint64",
    "ushort": "uint16",
}

__all__ = list(ALIASES)


def __getattr__(name):
    if name not in ALIASES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(hr, ALIASES[name])
