"""The text of arrays as MLX prints it: six digits, at most six entries of a dim."""

import contextlib

import headrace as _hr

EDGE = 3  # entries of a long dim that are shown at each end
DIGITS = 6


class PrintOptions:
    """Digits of floating numbers; None: as few as needed, at most six."""

    def __init__(self, precision=None):
        self.precision = precision

    def __repr__(self):
        return f"PrintOptions(precision={self.precision})"


_options = PrintOptions()


def set_printoptions(precision=None):
    """The number of digits behind the point from now on."""
    if precision is not None and precision < 0:
        raise ValueError(f"set_printoptions: precision is {precision}, expected 0 or more")
    _options.precision = precision


def get_printoptions():
    """A copy of the options."""
    return PrintOptions(_options.precision)


@contextlib.contextmanager
def printoptions(precision=None):
    """The number of digits behind the point inside the context."""
    before = _options.precision
    set_printoptions(precision)
    try:
        yield get_printoptions()
    finally:
        _options.precision = before


def _real(value):
    if isinstance(value, (bool, int)):
        return str(value)
    return f"{value:.{DIGITS}g}" if _options.precision is None else f"{value:.{_options.precision}f}"


def _element(value):
    if not isinstance(value, complex):
        return _real(value)
    imag = _real(value.imag)
    return f"{_real(value.real)}{'' if imag[0] == '-' else '+'}{imag}j"


def _shortened(x):
    for axis, size in enumerate(x.shape):
        if size > 2 * EDGE:
            whole = (slice(None),) * axis
            x = _hr.concat([x[(*whole, slice(None, EDGE))], x[(*whole, slice(-EDGE, None))]], axis=axis)
    return x


def _lines(nested, shape, indent):
    if not shape:
        return _element(nested)
    parts = [_lines(entry, shape[1:], indent + 1) for entry in nested]
    if shape[0] > 2 * EDGE:
        parts.insert(EDGE, "...")
    gap = ",\n" + " " * indent if len(shape) > 1 else ", "
    return "[" + gap.join(parts) + "]"


def text_of(x):
    """array([1, 2, 3], dtype=int32)"""
    return f"array({_lines(_shortened(x).tolist(), x.shape, 7)}, dtype={x.dtype.name})"


def format_of(x, spec):
    """A number's format for an array without dims; others have str's alone."""
    if x.ndim == 0 and spec:
        return format(x.item(), spec)
    if spec:
        raise TypeError(f"unsupported format {spec!r} of an array of shape {x.shape}")
    return text_of(x)
