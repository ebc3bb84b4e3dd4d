"""Functions for the lines of a fuzz program: `data` makes a tensor from a seed, `grad` differentiates a function.

A program is a list of Python lines over variables v0, v1, ... The same lines run on torch's CPU device and on the
device under test: `environment(device)` returns the names that they may use.
"""

import math

import torch

DTYPES = {
    "bool": torch.bool,
    "uint8": torch.uint8,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
    "complex64": torch.complex64,
    "complex128": torch.complex128,
}
SPECIALS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 1e-8, 20.0, -88.0, 100.0, 1e10]


def on_host(dtype, shape, seed, kind):
    """The tensor of `data`, on torch's CPU device."""
    generator = torch.Generator().manual_seed(seed)
    dtype = DTYPES[dtype]
    if kind.startswith("index"):  # index:low:high
        low, high = map(int, kind.split(":")[1:])
        return torch.randint(low, high, shape, generator=generator).to(dtype)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        limits = torch.iinfo(dtype)
        low, high = (limits.min + (limits.min < 0), limits.max) if kind == "wide" else (max(limits.min, -5), 6)
        return torch.randint(low, high, shape, generator=generator).to(dtype)
    parts = []
    for _ in range(2 if dtype.is_complex else 1):
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        if kind == "special":
            picked = torch.tensor(SPECIALS, dtype=torch.float64)[
                torch.randint(0, len(SPECIALS), shape, generator=generator)
            ]
            values = torch.where(torch.rand(shape, generator=generator) < 0.4, picked, values)
        elif kind == "wide":
            values = values * 10.0 ** torch.randint(-4, 5, shape, generator=generator)
        elif kind == "whole":
            values = (values * 3).round()
        elif kind == "unit":
            values = values.sigmoid()
        parts.append(values)
    return (torch.complex(*parts) if dtype.is_complex else parts[0]).to(dtype)


def grad(function, *inputs):
    """The gradients of function(*inputs) for its inputs, of ones: one tensor for a single input."""
    inputs = [value.detach().clone().requires_grad_() for value in inputs]
    result = function(*inputs)
    made = torch.autograd.grad(result, inputs, torch.ones_like(result))
    return made[0] if len(made) == 1 else made


def environment(device):
    """The names that a program's lines see when they run on the device."""

    def data(dtype, shape, seed, kind="normal"):
        return on_host(dtype, shape, seed, kind).to(device)

    names = {"torch": torch, "F": torch.nn.functional, "inf": math.inf, "nan": math.nan, "data": data, "grad": grad}
    return names | {"d": device, "read": lambda *_: None}
