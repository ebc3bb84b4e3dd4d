"""Second names of functions: NumPy's older ones beside those of the array API standard."""

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
    "concatenate": "concat",
    "conjugate": "conj",
    "deg2rad": "radians",
    "fix": "trunc",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "mod": "remainder",
    "power": "pow",
    "rad2deg": "degrees",
    "right_shift": "bitwise_right_shift",
    "row_stack": "vstack",
    "transpose": "permute_dims",
    "true_divide": "divide",
}

__all__ = list(ALIASES)


def __getattr__(name):
    if name not in ALIASES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(hr, ALIASES[name])
