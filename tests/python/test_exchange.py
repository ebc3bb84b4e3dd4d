"""Tensors of the device and arrays of the host in the same memory."""

import gc
import threading
import time
import weakref

import numpy as np
import pytest
import torch
from support import DEVICE, DRIVER, assert_same

pytestmark = [pytest.mark.device_only, pytest.mark.skipif(DRIVER != "cpu", reason="its memory is not the host's")]
DTYPES = [torch.bool, torch.uint8, torch.int16, torch.int64]
DTYPES += [torch.float16, torch.bfloat16, torch.float32, torch.complex64]
FORMS = [
    lambda t: t,
    lambda t: t[1:, ::2],
    lambda t: t.transpose(0, 2),
    lambda t: t[:, :, :0],
    lambda t: t[0, 0, 0],
]


def synchronize():
    torch.headrace.synchronize()


def array_at(offset, count, dtype=np.float32):
    """`count` elements that begin `offset` bytes after a multiple of 64."""
    size = np.dtype(dtype).itemsize * count
    raw = np.zeros(size + 128, np.uint8)
    begin = -raw.ctypes.data % 64 + offset
    return raw[begin : begin + size].view(dtype)


# ---- a view of the device's memory


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_view_has_the_tensors_bytes(dtype):
    x = torch.arange(24).reshape(2, 3, 4).to(dtype)
    for form in FORMS:
        tensor = form(x.to(DEVICE))
        view = torch.headrace.host_view(tensor)
        assert view.device.type == "cpu" and view.stride() == tensor.stride()
        assert view.storage_offset() == tensor.storage_offset()
        assert_same(view, form(x))


def test_both_sides_see_each_others_writes():
    x = torch.arange(6.0, device=DEVICE)
    view = torch.headrace.host_view(x)
    x.mul_(2)
    x[1] = 50
    synchronize()
    assert view.tolist() == [0, 50, 4, 6, 8, 10]
    view[2] = -1
    assert (x + 1).tolist() == [1, 51, 0, 7, 9, 11]


def test_a_view_waits_for_what_was_recorded():
    x = torch.ones(1000, device=DEVICE)
    for _ in range(20):
        x = x * 1.5 - 0.5
    assert torch.headrace.host_view(x).eq(1).all()


def test_a_view_of_memory_without_contents_keeps_what_the_host_writes():
    x = torch.empty(8, device=DEVICE)
    torch.headrace.host_view(x).copy_(torch.arange(8.0))
    assert (x * 2).tolist() == [2.0 * i for i in range(8)]


def test_conjugates_and_negatives():
    x = torch.tensor([1 + 2j, 3 - 1j])
    assert torch.equal(torch.headrace.host_view(x.to(DEVICE).conj()).resolve_conj(), x.conj())
    assert torch.equal(torch.headrace.host_view(x.to(DEVICE).conj().imag).resolve_neg(), x.conj().imag)


def test_memory_outlives_either_side():
    x = torch.arange(1000.0, device=DEVICE)
    view = torch.headrace.host_view(x)
    del x
    gc.collect()
    torch.headrace.empty_cache()
    fresh = [torch.zeros(1000, device=DEVICE) for _ in range(8)]
    synchronize()
    assert torch.equal(view, torch.arange(1000.0)) and len(fresh) == 8
    y = torch.arange(4.0, device=DEVICE)
    old = torch.headrace.host_view(y)
    y.resize_(100_000).fill_(7)
    synchronize()
    assert old.tolist() == [0, 1, 2, 3]


def test_views_of_other_tensors_are_refused():
    with pytest.raises(TypeError, match="headrace"):
        torch.headrace.host_view(torch.ones(3))
    with pytest.raises(TypeError, match="strided"):
        torch.headrace.host_view(torch.eye(3).to_sparse().to(DEVICE))
    with pytest.raises(TypeError, match="Tensor"):
        torch.headrace.host_view([1, 2])


def test_a_failure_before_the_view_is_reported():
    table, index = torch.ones(4, device=DEVICE), torch.tensor([9], device=DEVICE)
    x = table[index]
    with pytest.raises(IndexError):
        torch.headrace.host_view(x)
    assert torch.headrace.host_view(table).tolist() == [1] * 4


# ---- an array's memory on the device


@pytest.mark.parametrize("offset", [0, 16, 32, 48])
def test_arrays_may_begin_at_any_16_bytes(offset):
    a, b = array_at(offset, 33 * 17), array_at(48 - offset, 17 * 40)
    a[:], b[:] = np.arange(a.size) % 13 - 6, np.arange(b.size) % 7 - 3
    x = torch.headrace.from_host(a).view(33, 17)
    w = torch.headrace.from_host(b).view(17, 40)
    for _ in range(4):  # interpreted, compiled, with cached weights
        assert_same((x @ w).relu() + x.sum(), torch.from_numpy(a.reshape(33, 17) @ b.reshape(17, 40)).relu() + a.sum())
    image = torch.headrace.from_host(a[: 8 * 64]).view(1, 8, 8, 8)
    kernel = torch.headrace.from_host(b[: 8 * 8 * 9]).view(8, 8, 3, 3)
    expected = torch.conv2d(torch.from_numpy(a[: 8 * 64]).view(1, 8, 8, 8), torch.from_numpy(b[:576]).view(8, 8, 3, 3))
    assert_same(torch.conv2d(image, kernel), expected)
    x.add_(1)
    synchronize()
    assert a[0] == -5


def test_weights_that_the_host_changes_are_read_again():
    """Libraries keep what they derive from weights; these may change between two calls."""
    w = np.ones((64, 64), np.float32)
    device_w, x = torch.headrace.from_host(w), torch.ones(32, 64, device=DEVICE)
    y = torch.ones(64, 64, device=DEVICE)
    view = torch.headrace.host_view(y)
    for i in range(1, 8):
        w[:] = i
        view.fill_(i)
        assert torch.nn.functional.linear(x, device_w)[0, 0].item() == 64 * i
        assert torch.nn.functional.linear(x, y)[0, 0].item() == 64 * i
        y.add_(1)  # the device's write
        assert torch.nn.functional.linear(x, y)[0, 0].item() == 64 * (i + 1)


def test_indices_that_the_host_changes_are_checked_again():
    index = np.array([0, 1, 2])
    table, where = torch.arange(4.0, device=DEVICE), torch.headrace.from_host(index)
    assert table[where].tolist() == [0, 1, 2]
    index[1] = 3
    assert table[where].tolist() == [0, 3, 2]
    index[1] = 7
    with pytest.raises(IndexError):
        table[where].tolist()


def test_the_array_lives_as_long_as_the_tensor():
    class Array(np.ndarray):
        pass

    a = np.arange(100, dtype=np.float32).view(Array)
    alive = weakref.ref(a)
    x = torch.headrace.from_host(a)
    y = x * 2
    del a, x
    gc.collect()
    assert y.tolist() == [2.0 * i for i in range(100)]
    synchronize()
    gc.collect()
    assert alive() is None


def test_other_arrays_and_tensors():
    whole = torch.arange(12.0).view(3, 4)
    part = torch.headrace.from_host(whole[1:, ::2])  # its storage begins where `whole` does
    assert_same(part, whole[1:, ::2])
    part.zero_()
    synchronize()
    assert whole[1:, ::2].eq(0).all() and whole[0].tolist() == [0, 1, 2, 3]
    assert torch.headrace.from_host(np.zeros((0, 3))).shape == (0, 3)
    assert torch.headrace.from_host(np.array(3)).item() == 3

    class Exporter:
        def __dlpack__(self, **names):
            return torch.arange(3).__dlpack__(**names)

        def __dlpack_device__(self):
            return torch.arange(3).__dlpack_device__()

    assert torch.headrace.from_host(Exporter(), DEVICE).tolist() == [0, 1, 2]


def test_bad_arrays_are_refused():
    frozen = np.ones(3)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        torch.headrace.from_host(frozen)
    with pytest.raises(ValueError, match="aligned to 4 bytes, not to 16"):
        torch.headrace.from_host(array_at(4, 8))
    with pytest.raises(ValueError, match="negative"):
        torch.headrace.from_host(np.ones(4)[::-1])
    with pytest.raises(ValueError, match="gradient"):
        torch.headrace.from_host(torch.ones(3, requires_grad=True))
    with pytest.raises(TypeError, match="list"):
        torch.headrace.from_host([1, 2])
    with pytest.raises(TypeError, match="strided tensor of the CPU"):
        torch.headrace.from_host(torch.ones(3, device=DEVICE))
    with pytest.raises(TypeError):
        torch.headrace.from_host(np.array(["text"]))


# ---- DLPack


def test_dlpack_both_ways():
    x = torch.arange(6.0, device=DEVICE).view(2, 3)
    a = np.from_dlpack(x.t())
    assert a.shape == (3, 2) and a.tolist() == x.t().tolist()
    x += 1
    synchronize()
    assert a[0].tolist() == [1, 4]
    assert np.from_dlpack(x, copy=True).ctypes.data != a.ctypes.data
    again = torch.headrace.from_host(torch.from_dlpack(x))
    again.zero_()
    synchronize()
    assert a.sum() == 0
    for bad, text in ((x.clone().requires_grad_(), "gradient"), (x.to(torch.complex64).conj(), "conjugate")):
        with pytest.raises(BufferError, match=text):
            np.from_dlpack(bad)


def test_a_capsule_is_consumed_once():
    capsule = torch.ones(3, device=DEVICE).__dlpack__()
    assert torch.utils.dlpack.from_dlpack(capsule).tolist() == [1] * 3
    with pytest.raises(RuntimeError):
        torch.utils.dlpack.from_dlpack(capsule)


# ---- threads and time


def test_threads_exchange_arrays():
    failures = []

    def work(seed):
        a = np.full(1000, seed, np.float32)
        for i in range(20):
            x = torch.headrace.from_host(a)
            found = torch.headrace.host_view(x * 2 + i)
            if not found.eq(2 * seed + i).all():
                failures.append((seed, i))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures and not any(thread.is_alive() for thread in threads)


def test_large_tensors_are_not_copied():
    x = torch.ones(25_000_000, device=DEVICE)
    synchronize()
    begin = time.perf_counter()
    for _ in range(100):
        torch.headrace.from_host(torch.headrace.host_view(x))
    assert time.perf_counter() - begin < 0.2  # a copy of 100 MB takes some 20 ms


# ---- DLPack, by the array's kind


def test_from_dlpack_takes_arrays_of_the_host(device):
    array = array_at(0, 8)
    taken = torch.headrace.from_dlpack(array)
    taken.add_(2)
    synchronize()
    assert array.tolist() == [2.0] * 8


def test_from_dlpack_refuses_other_devices(device):
    class OnGpu:
        def __init__(self, kind, index):
            self.where = kind, index

        def __dlpack_device__(self):
            return self.where

    for kind, index in ((2, 0), (2, 99), (4, 0)):
        with pytest.raises(ValueError, match=f"kind {kind}, device {index}, is none of this device's"):
            torch.headrace.from_dlpack(OnGpu(kind, index))
    with pytest.raises(TypeError, match="expected an object with __dlpack__"):
        torch.headrace.from_dlpack([1, 2])
