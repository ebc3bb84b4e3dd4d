"""DLPack: arrays with other libraries, without a copy."""

import gc
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES += ["float16", "float32", "float64", "complex64", "complex128"]


def made(dtype, shape):
    """An array that a program has made."""
    x = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    return x, jax.jit(lambda x: jnp.where(x == x, x, x))(x)


@pytest.mark.cpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 4)], ids=str)
def test_numpy_reads_arrays_in_place(dtype, shape):
    expected, x = made(dtype, shape)
    got = np.from_dlpack(x)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)
    if got.size:
        assert got.ctypes.data == x.unsafe_buffer_pointer()
    x.delete()
    del x
    gc.collect()
    np.testing.assert_array_equal(got, expected)


@pytest.mark.cpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_of_numpy_is_used_in_place(dtype):
    x = np.arange(12).reshape(3, 4).astype(dtype)
    got = jnp.from_dlpack(x)
    assert got.devices() == {jax.devices()[0]} and got.unsafe_buffer_pointer() == x.ctypes.data
    np.testing.assert_array_equal(np.asarray(jax.jit(lambda x: x.T)(got)), x.T)


def test_copies_are_made_if_they_are_wanted():
    x = np.arange(4, dtype=np.float32)
    got = jnp.asarray(jnp.from_dlpack(x), copy=True)
    jax.block_until_ready(got)
    x[:] = 0
    np.testing.assert_array_equal(np.asarray(got), [0, 1, 2, 3])
    assert np.from_dlpack(got, copy=True).ctypes.data != got.unsafe_buffer_pointer()


def test_capsules_that_nobody_consumes_are_freed():
    from headrace_jax import _dlpack

    _, x = made(np.float32, (8,))
    gc.collect()
    before = len(_dlpack._exported)
    capsules = [x.__dlpack__() for _ in range(5)]
    assert len(_dlpack._exported) == before + 5
    assert x.__dlpack_device__() == (1, 0)
    del capsules
    gc.collect()
    assert len(_dlpack._exported) == before
    with pytest.raises(BufferError, match="type 2"):
        x.__dlpack__(dl_device=(2, 0))


def test_arrays_of_pytorch():
    torch = pytest.importorskip("torch")
    expected, x = made(np.float32, (2, 3))
    tensor = torch.from_dlpack(x)
    np.testing.assert_array_equal(tensor.numpy(), expected)
    assert tensor.data_ptr() == x.unsafe_buffer_pointer()
    back = jnp.from_dlpack(torch.arange(6, dtype=torch.bfloat16))
    np.testing.assert_array_equal(np.asarray(back, np.float32), np.arange(6))
    half = made(jnp.bfloat16, (4,))[1]
    assert torch.from_dlpack(half).dtype == torch.bfloat16


@pytest.mark.cpu
def test_pytorch_arrays_and_jax_share_a_process():
    """Of another environment, because this one has neither."""
    packages = os.environ.get("HEADRACE_PACKAGES", "")
    is_of_this_python = "python{}.{}".format(*sys.version_info) in packages
    if not is_of_this_python or not pathlib.Path(packages, "headrace").exists():
        pytest.skip("HEADRACE_PACKAGES names no site-packages of this Python with headrace and torch")
    program = pathlib.Path(__file__).with_name("three_libraries.py")
    done = subprocess.run([sys.executable, program, packages], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "1 core\n"), done.stderr[-3000:]


@pytest.mark.cpu
@pytest.mark.parametrize("copy", [None, True, False])
def test_numpy_arrays_are_imported_and_copied(copy):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    y = jnp.from_dlpack(x, copy=copy)
    assert y.devices() == set(jax.devices())
    x[0, 0] = 9
    assert (float(y[0, 0]) == 9) == (copy is not True)


@pytest.mark.cpu
def test_other_orders_of_dims_are_shared_and_strides_copied():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (x.T, x[::-1], x[:, ::2]):
        np.testing.assert_array_equal(np.asarray(jax.dlpack.from_dlpack(view)), view)
    shared = jax.dlpack.from_dlpack(x.T, copy=False)
    x[1, 2] = 9
    np.testing.assert_array_equal(np.asarray(shared), x.T)
    np.testing.assert_array_equal(np.from_dlpack(shared), x.T)
    with pytest.raises(Exception, match="layout|stride|copy"):
        jax.dlpack.from_dlpack(x[:, ::2], copy=False)
