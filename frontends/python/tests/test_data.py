"""hr.data: orders and batches, threads and their end, exceptions."""

import collections
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import traceback

import numpy as np
import pytest

import headrace as hr
from headrace.data import ArrayDataset, DataLoader, Dataset, collate

WORKERS = pytest.mark.parametrize("workers", [0, 1, 3])


class Squares(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return {"x": np.full(3, index, np.float32), "y": index * index}


def data_threads():
    return [t for t in threading.enumerate() if t.name.startswith("headrace-data")]


@WORKERS
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("count", [0, 1, 4, 10, 12])
def test_batches_in_order(workers, drop_last, count):
    loader = DataLoader(Squares(count), 4, drop_last=drop_last, workers=workers)
    batches = list(loader)
    expected = [range(i, min(i + 4, count)) for i in range(0, count, 4) if not drop_last or i + 4 <= count]
    assert len(loader) == len(batches) == len(expected)
    for batch, numbers in zip(batches, expected):
        assert batch["y"].tolist() == [i * i for i in numbers] and batch["y"].dtype == hr.int64
        assert batch["x"].tolist() == [[i] * 3 for i in numbers] and batch["x"].dtype == hr.float32
    assert not data_threads()


@WORKERS
def test_shuffled_orders_follow_from_the_seed(workers):
    def epochs(seed):
        loader = DataLoader(np.arange(100), 7, shuffle=True, seed=seed, workers=workers)
        return [[int(x) for batch in loader for x in batch.tolist()] for _ in range(3)]

    first = epochs(5)
    assert first == epochs(5) != epochs(6)
    assert first[0] != first[1] and all(sorted(order) == list(range(100)) for order in first)
    plain = DataLoader(np.arange(100), 7, shuffle=True, seed=5)
    assert [[int(x) for batch in plain for x in batch.tolist()] for _ in range(3)] == first


@pytest.mark.parametrize("dtype", "bool uint8 int16 int64 float16 float32 complex64".split())
def test_arrays(dtype):
    values = np.arange(24).reshape(6, 2, 2).astype(dtype)
    labels = np.arange(6)
    for x, y in ((values, labels), (hr.array(values), hr.array(labels)), (values[::-1][::-1], hr.array(labels))):
        dataset = ArrayDataset(x, y)
        assert len(dataset) == 6 and dataset[-1][1] == 5
        for i, (a, b) in enumerate(DataLoader((x, y), 4)):
            np.testing.assert_array_equal(np.asarray(a), values[4 * i : 4 * i + 4])
            assert str(a.dtype) == dtype and b.tolist() == labels[4 * i : 4 * i + 4].tolist()
    values[0] = 0  # a batch is no view of the dataset
    batch = next(iter(DataLoader(values, 6)))
    values[:] = 1
    assert np.asarray(batch)[0].tolist() == np.zeros((2, 2)).tolist()


def test_wrong_arguments():
    with pytest.raises(ValueError, match="axis 0"):
        ArrayDataset(np.zeros(3), np.zeros(4))
    with pytest.raises(ValueError, match="axis 0"):
        ArrayDataset(np.zeros(()))
    with pytest.raises(ValueError, match="expected an array"):
        ArrayDataset()
    with pytest.raises(IndexError, match="example 3 of 3"):
        ArrayDataset(np.zeros(3))[3]
    for named in ({"batch_size": 0}, {"batch_size": 2.5}, {"workers": -1}, {"prefetch": 0}):
        with pytest.raises(ValueError, match=next(iter(named))):
            DataLoader([1, 2], **named)
    with pytest.raises(NotImplementedError, match="Dataset has no __len__"):
        list(DataLoader(Dataset()))


def test_collate():
    point = collections.namedtuple("point", "x y")
    found = collate([point(1, [2.5, "a"]), point(3, [4.5, "b"])])
    assert type(found) is point and found.x.tolist() == [1, 3] and found.y[0].dtype == hr.float32
    assert found.y[0].tolist() == [2.5, 4.5] and found.y[1] == ["a", "b"]
    assert collate([hr.ones(2), hr.zeros(2)]).tolist() == [[1, 1], [0, 0]]
    assert collate([np.float64(1), np.float64(2)]).dtype == hr.float64
    assert collate([True, False]).dtype == hr.bool and collate([None, None]) == [None, None]
    for examples in ([{"a": 1}, {"b": 1}], [(1,), (1, 2)], [np.zeros(2), np.zeros(3)], [hr.zeros(2), hr.zeros(3)]):
        with pytest.raises(ValueError):
            collate(examples)


@WORKERS
def test_own_collate_and_batch(workers):
    loader = DataLoader(np.arange(5), 2, collate_fn=lambda examples: [int(x) for x in examples], workers=workers)
    assert list(loader) == [[0, 1], [2, 3], [4]]


@WORKERS
def test_exceptions_arrive_with_their_traceback(workers):
    class Broken(Squares):
        def __getitem__(self, index):
            if index == 5:
                raise KeyError("example 5")
            return super().__getitem__(index)

    found = []
    with pytest.raises(KeyError, match="example 5") as info:
        for batch in DataLoader(Broken(20), 2, workers=workers):
            found.append(batch["y"].tolist())
    assert found == [[0, 1], [4, 9]]  # the batches before it
    assert any(frame.name == "__getitem__" for frame in traceback.extract_tb(info.value.__traceback__))
    assert not data_threads()


@pytest.mark.parametrize("leave", ["break", "drop", "close", "raise"])
def test_threads_end_with_the_loop(leave):
    loader = DataLoader(Squares(1000), 2, workers=3)
    if leave == "break":
        for _ in loader:
            break
    elif leave == "raise":
        with pytest.raises(RuntimeError):
            for _ in loader:
                raise RuntimeError
    else:
        iterator = iter(loader)
        next(iterator)
        assert data_threads()
        if leave == "close":
            iterator.close()
        del iterator
    gc.collect()
    assert not data_threads()


def test_threads_are_ahead_by_prefetch():
    read = []

    class Noted(Squares):
        def __getitem__(self, index):
            read.append(index)
            return index

    iterator = iter(DataLoader(Noted(100), 1, workers=2, prefetch=3))
    assert next(iterator).tolist() == [0]
    deadline = time.monotonic() + 10
    while len(read) < 7 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert sorted(read) == list(range(7))  # the first one, and 2 * 3
    iterator.close()


def test_threads_compute_with_arrays():
    class Computed(Squares):
        def __getitem__(self, index):
            return hr.tanh(hr.arange(100) * index).sum()

    expected = [x.item() for x in DataLoader(Computed(30), 1)]
    assert [x.item() for x in DataLoader(Computed(30), 1, workers=4)] == expected


def test_two_loops_at_once():
    loader = DataLoader(np.arange(6), 2, workers=2)
    pairs = [(a.tolist(), b.tolist()) for a, b in zip(loader, loader)]
    assert pairs == [([i, i + 1], [i, i + 1]) for i in (0, 2, 4)] and not data_threads()


def test_ctrl_c_ends_the_loop():
    code = """
import time, headrace as hr
class Slow(hr.data.Dataset):
    def __len__(self): return 10
    def __getitem__(self, index):
        time.sleep(0.5)
        return index
print("ready", flush=True)
try:
    for x in hr.data.DataLoader(Slow(), 10, workers=2): pass
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    program = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert program.stdout.readline() == "ready\n"
    time.sleep(0.3)
    os.kill(program.pid, signal.SIGINT)
    assert program.communicate(timeout=60)[0] == "interrupted\n" and program.returncode == 0


def test_training_from_a_loader():
    x = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    y = x @ np.array([1, -2, 0.5], np.float32)
    w = hr.zeros(3)
    step = hr.grad(lambda w, x, y: ((x @ w - y) ** 2).mean())
    for _ in range(20):
        for a, b in DataLoader((x, y), 20, shuffle=True, seed=1, workers=1):
            w = w - 0.1 * step(w, a, b)
    np.testing.assert_allclose(np.asarray(w), [1, -2, 0.5], atol=1e-3)
