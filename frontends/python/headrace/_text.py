"""Arrays as text, as numpy prints them: repr(headrace.arange(3)) is repr(numpy.arange(3)).

Elements are read once; of arrays of more than 1,000 only the three first and last of each dim.
"""

import math

THRESHOLD, EDGE, WIDTH, PRECISION = 1000, 3, 75, 8
LONG = {"float64", "int64", "bool", "complex128"}  # dtypes that numpy leaves out
# Digits that always suffice, and dtypes whose text is that of a wider one.
DIGITS = {"float32": 9, "complex64": 9, "float16": 5, "bfloat16": 4}
# From here on numbers have an exponent; 1e8 for other dtypes.
LARGE = {"float32": 1e6, "float16": 1e3, "bfloat16": 1e2}


# ---- numbers


def _shortest(value, dtype):
    """The shortest digits that give the value back, as (sign, digits, exponent of the first digit)."""
    if value == 0:
        return math.copysign(1, value) < 0, "0", 0
    most = DIGITS.get(dtype, 17)
    text = f"{value:.16e}"
    if most < 17:
        for digits in range(most):
            text = f"{value:.{digits}e}"
            if _round(float(text), dtype) == value:
                break
    else:
        text = _exponent_form(repr(value))
    mantissa, _, exponent = text.partition("e")
    digits = mantissa.lstrip("-").replace(".", "").rstrip("0")
    return value < 0, digits or "0", int(exponent)


def _exponent_form(text):
    """repr of a float as d.ddde+x."""
    mantissa, _, exponent = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    first = len(whole) - 1 if whole.strip("0") else -(len(fraction) - len(fraction.lstrip("0"))) - 1
    return f"{digits[0]}.{digits[1:]}e{first + int(exponent or 0)}"


def _round(value, dtype):
    import struct

    if dtype == "bfloat16":
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        bits += 0x7FFF + (bits >> 16 & 1)
        return struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]
    code = "<e" if dtype == "float16" else "<f"
    try:
        return struct.unpack(code, struct.pack(code, value))[0]
    except OverflowError:
        return math.inf


class _Floats:
    """Formats a dtype's floats in columns."""

    def __init__(self, values, dtype, sign=False):
        self.dtype, self.sign = dtype, sign
        finite = [abs(value) for value in values if math.isfinite(value) and value != 0]
        high, low = max(finite, default=0), min(finite, default=0)
        self.exponent = bool(finite) and (high >= LARGE.get(dtype, 1e8) or low < 1e-4 or high / low > 1000)
        texts = [self._plain(value).partition("e") for value in values if math.isfinite(value)]
        parts = [text[0].partition(".") for text in texts]
        self.left = max((len(part[0]) for part in parts), default=0)
        self.right = max((len(part[2]) for part in parts), default=0)
        self.power = max((len(text[2]) - 1 for text in texts), default=0)
        special = [value for value in values if not math.isfinite(value)]
        if special:
            width = self.right + (2 + self.power if self.exponent else 0) + 1
            needed = max(3 + (value < 0 or (sign and value > 0)) for value in special)
            self.left = max(self.left, needed - width)
        self.width = self.left + 1 + self.right + (2 + self.power if self.exponent else 0)

    def _plain(self, value):
        """The shortest text, of at most 8 decimals; beyond them the exact value is rounded."""
        negative, digits, first = _shortest(value, self.dtype)
        sign = "-" if negative else "+" if self.sign else ""
        if self.exponent:
            if len(digits) > PRECISION + 1:
                text, _, power = f"{abs(value):.{PRECISION}e}".partition("e")
                return f"{sign}{text.rstrip('0')}e{power}"
            return f"{sign}{digits[0]}.{digits[1:]}e{first:+03d}"
        if len(digits) - 1 - first > PRECISION:
            return sign + f"{abs(value):.{PRECISION}f}".rstrip("0")
        if first < 0:
            return f"{sign}0.{'0' * (-first - 1)}{digits if value else ''}"
        digits = digits.ljust(first + 1, "0")
        return f"{sign}{digits[: first + 1]}.{digits[first + 1 :]}"

    def __call__(self, value):
        if not math.isfinite(value):
            text = "nan" if math.isnan(value) else "-inf" if value < 0 else "+inf" if self.sign else "inf"
            return text.rjust(self.width)
        if not self.exponent:
            left, _, right = self._plain(value).partition(".")
            return f"{left.rjust(self.left)}.{right.ljust(self.right)}"
        mantissa, _, power = f"{value:{'+' if self.sign else '-'}#.{self.right}e}".partition("e")
        left, _, right = mantissa.partition(".")
        return f"{left.rjust(self.left)}.{right}e{power[0]}{power[1:].rjust(self.power, '0')}"


class _Complex:
    def __init__(self, values, dtype):
        part = {"complex64": "float32"}.get(dtype, "float64")
        self.real = _Floats([value.real for value in values], part)
        self.imag = _Floats([value.imag for value in values], part, sign=True)

    def __call__(self, value):
        imag = self.imag(value.imag)
        trimmed = imag.rstrip()
        return self.real(value.real) + trimmed + "j" + " " * (len(imag) - len(trimmed))


class _Texts:
    """Numbers whose text is str's, in one column."""

    def __init__(self, values, dtype):
        self.width = max((len(str(value)) for value in values), default=0)
        if dtype == "bool" and len(values) > 0:
            self.width = 5

    def __call__(self, value):
        return str(value).rjust(self.width)


def _formatter(values, dtype):
    if dtype.startswith("complex"):
        return _Complex(values, dtype)
    kind = _Floats if dtype.startswith(("float", "bfloat")) else _Texts
    return kind(values, dtype)


# ---- arrays


def _leaves(nested, rank):
    if rank == 0:
        return [nested]
    return [leaf for entry in nested for leaf in _leaves(entry, rank - 1)]


def _edges(x):
    """The first and last elements of each dim that has more than both together."""
    import headrace

    for axis, size in enumerate(x.shape):
        if size > 2 * EDGE:
            whole = (slice(None),) * axis
            x = headrace.concat([x[(*whole, slice(None, EDGE))], x[(*whole, slice(-EDGE, None))]], axis=axis)
    return x


def _extend(text, line, word, width, indent):
    if len(line) + len(word) > width and len(line) > len(indent):
        return text + line.rstrip() + "\n", indent + word
    return text, line + word


def _lines(nested, shape, form, indent, width, separator, is_short):
    """The text of nested lists; shape: the array's."""
    if not shape:
        return form(nested)
    is_cut = is_short and shape[0] > 2 * EDGE
    first = nested[:EDGE] if is_cut else nested[:-1]
    last = nested[EDGE:] if is_cut else nested[-1:]
    inner, narrower = indent + " ", width - 1
    if len(shape) > 1:
        gap = separator.rstrip() + "\n" * (len(shape) - 1) + inner
        parts = [_lines(entry, shape[1:], form, inner, narrower, separator, is_short) for entry in (*first, *last)]
        if is_cut:
            parts.insert(EDGE, "...")
        return "[" + gap.join(parts) + "]"
    text, line, room = "", inner, width - max(len(separator.rstrip()), 1)
    for entry in first:
        text, line = _extend(text, line, form(entry), room, inner)
        line += separator
    if is_cut:
        text, line = _extend(text, line, "...", room, inner)
        line += separator
    for entry in last[:-1]:
        text, line = _extend(text, line, form(entry), room, inner)
        line += separator
    text, line = _extend(text, line, form(last[-1]), room, inner)
    return "[" + (text + line)[len(inner) :] + "]"


def _body(x, indent, separator, width):
    is_short = x.size > THRESHOLD
    nested = (_edges(x) if is_short else x).tolist()
    form = _formatter(_leaves(nested, x.ndim), x.dtype.name) if x.ndim or x.dtype.name != "bool" else str
    return _lines(nested, x.shape, form, indent, width, separator, is_short)


def repr_of(x):
    dtype = x.dtype.name
    if x.size == 0:
        shape = "" if x.shape == (0,) else f", shape={x.shape}"
        return f"array([]{shape}, dtype={dtype})"
    body = _body(x, " " * 6, ", ", WIDTH - 1)
    extra = "" if dtype in LONG else f"dtype={dtype}"
    if x.size > THRESHOLD:
        extra = f"shape={x.shape}" + (", " + extra if extra else "")
    if not extra:
        return f"array({body})"
    start = f"array({body},"
    last = len(start) - (start.rfind("\n") + 1)
    return start + ("\n      " if last + len(extra) + 2 > WIDTH else " ") + extra + ")"


def text_of(x):
    if x.size == 0:
        return "[]"
    if x.ndim > 0:
        return _body(x, "", " ", WIDTH)
    value, dtype = x.item(), x.dtype.name
    if dtype not in DIGITS or dtype.startswith("complex") or not math.isfinite(value):
        return str(value)
    negative, digits, first = _shortest(value, dtype)
    return str(float(f"{'-' * negative}{digits[0]}.{digits[1:] or '0'}e{first}"))
