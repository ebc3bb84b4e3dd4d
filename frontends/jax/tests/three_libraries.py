"""PyTorch, arrays and JAX in one process hand values round by DLPack: the program of a test in test_dlpack.py.

    python three_libraries.py SITE_PACKAGES        of an environment that has torch and the package headrace
"""

import gc
import site
import sys

import jax
import jax.numpy as jnp
import numpy as np

site.addsitedir(sys.argv[1])  # behind this environment's own packages
import headrace as hr  # noqa: E402
import headrace_jax  # noqa: E402
import torch  # noqa: E402

DTYPES = ["float32", "int32", "bfloat16", "float16", "uint8", "complex64"]


def numbers(x):
    x = x.cpu() if isinstance(x, torch.Tensor) else x
    wide = x.dtype in (torch.bfloat16, jnp.bfloat16)
    return np.asarray(x.float() if isinstance(x, torch.Tensor) else x.astype(np.float32)) if wide else np.asarray(x)


def hand_round(dtype, shape):
    """Each library adds a value to itself, while the work of the one before is pending."""
    expected = (np.arange(int(np.prod(shape))) % 3).reshape(shape)
    here = jax.jit(lambda x: x + x)(jnp.asarray(expected, dtype))
    there = torch.from_dlpack(here).to("headrace")
    there = there + there
    here = jnp.from_dlpack(there)
    array = hr.from_dlpack(here + here)
    array = array + array
    for found, factor in (
        (there, 4),
        (here, 4),
        (torch.from_dlpack(array), 16),
        (jnp.from_dlpack(array), 16),
        (torch.from_dlpack(hr.from_dlpack(there)), 4),
    ):
        assert found.shape == shape
        np.testing.assert_array_equal(numbers(found), expected * factor)


def steps(count):
    x, add = torch.ones(64, 64, device="headrace"), jax.jit(lambda x: x + 1)
    for _ in range(count):
        array = hr.from_dlpack(add(jnp.from_dlpack(x + 1))) + 1
        x = torch.from_dlpack(array).to("headrace")
    assert x.eq(1 + 3 * count).all().item()


def owners_end_first():
    tensor, array = torch.full((1 << 20,), 5.0, device="headrace"), jnp.full((1 << 20,), 6.0)
    x, y = jnp.from_dlpack(tensor), torch.from_dlpack(array)
    del tensor, array
    gc.collect()
    torch.zeros(1 << 20, device="headrace").sum().item()
    jnp.zeros(1 << 20).block_until_ready()
    assert (x == 5).all() and y.eq(6).all()


headrace_jax.initialize()
for of in DTYPES:
    for dims in ((3, 4), (5,), (2, 3, 4), (), (0, 2)):
        hand_round(of, dims)
steps(50)
owners_end_first()
with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
    print(len({line.split()[-1] for line in maps if "libheadrace.so" in line}), "core")
