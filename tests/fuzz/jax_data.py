"""Inputs of the programs of jax_fuzz.py, and their literals for the scripts that reproduce a difference."""

import math

import jax.numpy as jnp
import numpy as np

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
SPECIALS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 1e-6, 88.0, -104.0]
SPECIALS += [255.5, 32768.0, -65504.0, 1e10, -3e38, 2147483648.0, -9.3e18]
LITERAL_MAX = 300  # elements


def floats(dtype, shape, random, kind):
    if kind == "special":
        chosen = random.choice(np.array(SPECIALS), shape)
        usual = random.standard_normal(shape) * 3
        chosen = np.where(random.random(shape) < 0.5, chosen, usual)
    elif kind == "unit":
        chosen = random.random(shape) * 1.5 + 0.25
    else:
        chosen = np.round(random.standard_normal(shape) * 2, 3)
    with np.errstate(all="ignore"):
        return np.asarray(chosen).astype(jnp.dtype(dtype))


def integers(dtype, shape, random, kind):
    limits = np.iinfo(dtype)
    low, high = (limits.min, limits.max) if kind == "special" else (max(limits.min, -5), 7)
    usual = random.integers(low, high, shape, dtype, endpoint=True)
    if kind != "special":
        return np.asarray(usual, dtype)
    ends = [limits.min, limits.max, 0, 1, limits.max - 1, limits.min + 1, 7, limits.bits, limits.bits - 1]
    ends = np.array(ends, dtype)
    return np.where(random.random(shape) < 0.6, random.choice(ends, shape), usual)


def data(dtype, shape, seed, kind):
    """An array from a seed. Kinds: "small", "unit" (floats from 0.25 to 1.75), "special" (NaN, infinities, limits),
    "index:low:high"."""
    random = np.random.default_rng(seed)
    if kind.startswith("index"):
        low, high = map(int, kind.split(":")[1:])
        return np.asarray(random.integers(low, high, shape), dtype)
    if dtype == "bool":
        return np.asarray(random.random(shape) < 0.5)
    if dtype in COMPLEX:
        part = "float32" if dtype == "complex64" else "float64"
        parts = [floats(part, shape, random, kind) for _ in range(2)]
        made = np.empty(shape, dtype)
        made.real, made.imag = parts
        return made
    return floats(dtype, shape, random, kind) if dtype in FLOATS else integers(dtype, shape, random, kind)


def literal(array):
    """An expression of the array, with the names of `PRELUDE`."""
    name = f"jnp.{array.dtype.name}" if array.dtype.name != "bool" else "bool"
    if array.size > LITERAL_MAX:
        flat = f'np.frombuffer(bytes.fromhex("{array.tobytes().hex()}"), {name})'
    elif array.dtype.name in COMPLEX:
        pairs = [f"complex({z.real!r}, {z.imag!r})" for z in array.reshape(-1).tolist()]
        flat = f"np.array([{', '.join(pairs)}], {name})"
    else:
        values = array.astype(np.float64) if array.dtype.name in FLOATS else array
        flat = f"np.array({values.reshape(-1).tolist()}, {name})"
    return flat if array.ndim == 1 else f"{flat}.reshape({array.shape})"
