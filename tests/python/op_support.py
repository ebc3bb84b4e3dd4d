"""Helpers of the operators' tests: numbers in every layout, and `check`, which calls a function on torch's CPU device
and on the device under test with the same inputs in the same layout, and differentiates both with the same random
gradients.
"""

import math

import torch
from support import DEVICE, assert_same, assert_summed

FLOATS = [torch.float32, torch.float64]
HALVES = [torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4), (0,), (3, 0, 2), (1030,), (65, 33)]

# Layouts of a tensor in memory. Each function returns a tensor equal to its contiguous argument.
LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1) if x.dim() > 1 else x,
    "strided": lambda x: torch.stack([x, torch.zeros_like(x)], -1)[..., 0],
    "offset": lambda x: torch.cat([torch.zeros_like(x[:1]), x])[1:] if x.dim() > 0 else x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x,
}


def numbers(shape, dtype=torch.float32, seed=0, low=-3.0, high=3.0):
    """Random numbers of a dtype: floats between low and high, integers too, booleans."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    values = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    if not dtype.is_floating_point:
        values = values.round()
        return values.abs().to(dtype) if dtype == torch.uint8 else values.to(dtype)
    return values.to(dtype)


def specials(dtype=torch.float32):
    """NaN, infinities, both zeros and numbers around the interesting places of the usual functions."""
    values = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1e-8, -1e-8, 20.0, -20.0]
    values += [88.0, -88.0, 100.0, -100.0, 1e10, -1e10, 3e38, -3e38, 1e-30, 6.0, 3.0, -3.0]
    return torch.tensor(values, dtype=dtype)


def lay(tensor, layout, where):
    return LAYOUTS[layout](tensor.to(where))


def flatten(result):
    return [t for t in (result if isinstance(result, tuple | list) else [result]) if t is not None]


def check(function, *inputs, layout="contiguous", grad=True, compare=assert_same, **bounds):
    """Compares function(*inputs) on both devices, and its gradients for the float inputs."""
    results = []
    for where in (torch.device("cpu"), DEVICE):
        moved = []
        for value in inputs:
            if isinstance(value, torch.Tensor):
                value = lay(value, layout, where).detach()
                value.requires_grad_(grad and value.is_floating_point())
            moved.append(value)
        outputs = flatten(function(*moved))
        gradients = []
        if grad:
            pairs = [
                (output, numbers(output.shape, output.dtype, 99 + index, -1.0, 1.0).to(where))
                for index, output in enumerate(outputs)
                if output.requires_grad
            ]
            wanted = [value for value in moved if isinstance(value, torch.Tensor) and value.requires_grad]
            if pairs and wanted:
                made, weights = zip(*pairs)
                gradients = torch.autograd.grad(made, wanted, weights, allow_unused=True)
        results.append((outputs, gradients))
    (expected, expected_gradients), (actual, actual_gradients) = results
    assert len(actual) == len(expected)
    for index, (a, e) in enumerate(zip(actual, expected)):
        compare(a, e, f"output {index}", **bounds)
    for index, (a, e) in enumerate(zip(actual_gradients, expected_gradients)):
        assert (a is None) == (e is None), f"gradient {index}"
        if e is not None:
            compare(a, e, f"gradient {index}", **bounds)


def check_summed(function, *inputs, **options):
    check(function, *inputs, compare=assert_summed, **options)
