"""Arrays on the device and back: dtypes, strides, memory that is shared, deletion."""

import gc
import multiprocessing
import os

import headrace_jax
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

ON_CPU = os.environ.get("HEADRACE_DEVICE", "cpu") == "cpu"
NUMPY = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMPY += ["float16", "float32", "float64", "complex64", "complex128"]
STORED = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz"]
STORED += ["float8_e4m3", "float8_e3m4", "float8_e8m0fnu", "float4_e2m1fn", "int4", "uint4", "int2", "uint2"]
DTYPES = [np.dtype(name) for name in NUMPY] + [np.dtype(getattr(ml_dtypes, name)) for name in STORED]


def views(x):
    return [x, x.T, x[:, ::-1], x[..., :1], x[1:, 1:], x[:0], np.broadcast_to(x[:1], (5, 3, 4)), x[1, 2, 3]]


def test_the_device_is_listed():
    (device,) = jax.devices()[:1]
    assert (device.platform, str(device)) == ("headrace", "headrace:0")
    assert device.memory_stats()["bytes_limit"] > 0
    kinds = ["device", "pinned_host", "unpinned_host"][: 3 if ON_CPU else 1]
    assert [memory.kind for memory in device.addressable_memories()] == kinds
    assert device.default_memory().kind == "device"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_of_every_dtype_come_back(dtype):
    x = np.arange(24).reshape(2, 3, 4).astype(dtype)
    for view in map(np.asarray, views(x)):
        back = np.asarray(jax.device_put(view))
        assert back.dtype == view.dtype and back.shape == view.shape
        if "int2" in str(dtype) or "int4" in str(dtype):  # their bytes have bits without a meaning
            back, view = back.astype(np.int8), view.astype(np.int8)
        assert back.tobytes() == view.tobytes()


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
def test_other_bits_of_a_byte_have_no_meaning(name):
    bits = np.random.default_rng(0).integers(0, 256, (1000, 70), np.uint8)
    x = bits.view(getattr(ml_dtypes, name))
    for view in (x, x.T, x[::7, ::-1]):
        signs = jax.jit(lambda x: (jax.lax.sign(x), x.astype(np.int8)))(view)
        np.testing.assert_array_equal(np.asarray(signs[0]).astype(np.int8), np.sign(view.astype(np.int8)))
        np.testing.assert_array_equal(np.asarray(signs[1]), view.astype(np.int8))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_results_have_the_dtype_of_the_program(dtype):
    x = jax.device_put(np.zeros((2, 3), dtype))
    for y in (jax.jit(lambda x: (x[1:], x.T)), jax.jit(lambda x: (jnp.zeros_like(x), x[:0]))):
        assert [np.asarray(y).dtype for y in y(x)] == [np.dtype(dtype)] * 2


def test_large_strided_arrays_come_back():
    x = np.random.default_rng(0).normal(size=(300, 70, 11)).astype(np.float32)
    for axes in [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1)]:
        np.testing.assert_array_equal(np.asarray(jax.device_put(x.transpose(axes))), x.transpose(axes))


@pytest.mark.parametrize("count", [16, 10000, 1 << 20])
def test_programs_see_arguments_as_they_were_at_the_call(count):
    x = aligned(count)
    for donates in (False, True):
        x[:] = 3
        y = jax.jit(lambda x: x * 2, donate_argnums=(0,) if donates else ())(x)
        x[:] = 0
        np.testing.assert_array_equal(np.asarray(y), np.full(count, 6, np.float32))


def aligned(count, dtype=np.float32):
    raw = np.zeros(count * np.dtype(dtype).itemsize + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count * np.dtype(dtype).itemsize].view(dtype)


@pytest.mark.cpu
@pytest.mark.parametrize("first", [True, False])
def test_state_is_updated_in_place_beside_donated_memory_of_numpy(first):
    count = 1 << 16
    lent = aligned(count)
    lent[:] = 3
    own = jax.block_until_ready(jnp.arange(count, dtype=jnp.float32) + 1)
    place = own.unsafe_buffer_pointer()
    step = jax.jit(lambda state: {name: x * 0.5 + 1 for name, x in state.items()}, donate_argnums=0)
    state = step({("a" if first else "z"): jax.device_put(lent), "m": own})
    lent_result = state["a" if first else "z"]
    assert state["m"].unsafe_buffer_pointer() == place
    assert lent_result.unsafe_buffer_pointer() != lent.ctypes.data
    lent[:] = 0
    np.testing.assert_array_equal(np.asarray(lent_result), np.full(count, 2.5, np.float32))
    np.testing.assert_array_equal(np.asarray(state["m"]), (np.arange(count, dtype=np.float32) + 1) * 0.5 + 1)


@pytest.mark.cpu
def test_aligned_memory_is_shared_both_ways():
    """In its own process: memory is copied once a program with callbacks has been compiled."""
    with multiprocessing.get_context("spawn").Pool(1, headrace_jax.initialize) as pool:
        pool.apply(check_shared_memory)


def check_shared_memory():
    x = aligned(1 << 16)
    x[:] = np.arange(1 << 16)
    on_device = jax.device_put(x)
    assert on_device.unsafe_buffer_pointer() == x.ctypes.data
    back = np.asarray(on_device)
    assert back.ctypes.data == x.ctypes.data
    assert not back.flags.writeable


def test_an_array_of_numpy_outlives_the_array_of_jax():
    on_device = jax.device_put(np.arange(1000.0))
    back = np.asarray(on_device)
    on_device.delete()
    del on_device
    gc.collect()
    np.testing.assert_array_equal(back, np.arange(1000.0))


def test_a_copy_does_not_see_later_writes():
    x = np.arange(10000, dtype=np.float32)
    copied = jnp.array(x)
    x[:] = 0
    np.testing.assert_array_equal(np.asarray(copied), np.arange(10000, dtype=np.float32))


def test_deleted_arrays_are_refused():
    x = jax.device_put(np.ones(3))
    x.delete()
    assert x.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(x)
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        jax.block_until_ready(x)


@pytest.mark.cpu
@pytest.mark.parametrize("kind", ["device", "pinned_host", "unpinned_host"])
def test_arrays_and_results_have_the_memory_that_is_asked_for(kind):
    device = jax.devices()[0]
    given, other = (jax.sharding.SingleDeviceSharding(device, memory_kind=k) for k in (kind, "pinned_host"))
    x = np.arange(300, dtype=np.float32)
    array = jax.device_put(x, given)
    assert array.sharding.memory_kind == kind
    for made, memory, expected in (
        (jax.device_put(array, other), "pinned_host", x),
        (jax.jit(lambda x: x * 2, out_shardings=other)(array), "pinned_host", x * 2),
        (jax.jit(lambda x: (x, x.T), out_shardings=given)(jax.device_put(x))[0], kind, x),
    ):
        assert made.sharding.memory_kind == memory
        assert made.addressable_shards[0].data.sharding.memory_kind == memory
        np.testing.assert_array_equal(np.asarray(made), expected)
    copied = jax.jit(lambda x: jax.device_put(x + 1, other))(array)  # in the program
    assert copied.sharding.memory_kind == "pinned_host"
    np.testing.assert_array_equal(np.asarray(copied), x + 1)
    compiled = jax.jit(lambda x: x + 1, out_shardings=given).lower(array).compile()
    assert compiled.output_shardings.memory_kind == kind


@pytest.mark.skipif(ON_CPU, reason="of other devices, which have one kind of memory")
@pytest.mark.parametrize("kind", ["pinned_host", "unpinned_host"])
def test_memory_that_a_device_lacks_is_an_error(kind):
    with pytest.raises(ValueError, match=kind):
        jax.device_put(np.ones(3), jax.sharding.SingleDeviceSharding(jax.devices()[0], memory_kind=kind))


def test_memory_is_counted():
    device = jax.devices()[0]
    before = device.memory_stats()["bytes_in_use"]
    x = jax.device_put(np.ones(1 << 18, np.float32)[1:])  # not aligned: a copy
    assert 0 <= device.memory_stats()["bytes_in_use"] - before - 4 * ((1 << 18) - 1) < 512  # devices round
    x.delete()
    assert device.memory_stats()["bytes_in_use"] == before
