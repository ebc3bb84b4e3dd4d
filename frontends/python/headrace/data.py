"""hr.data: datasets and batches of them for training. docs/arrays.md describes it.

    loader = hr.data.DataLoader((images, labels), batch_size=64, shuffle=True, seed=0)
    for epoch in range(10):
        for x, y in loader: ...

Examples are numbers, NumPy's arrays, arrays, or tuples, lists and dicts of them.
"""

import collections
import threading

__all__ = ["ArrayDataset", "DataLoader", "Dataset", "collate"]


class Dataset:
    """Examples by number: a class with `__getitem__(index)` and `__len__()`. Lists do as well.

    Its method `batch(indices)`, if it has one, returns a whole batch at once, and is used if the loader has no collate
    of its own."""

    def __getitem__(self, index):
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def __len__(self):
        raise NotImplementedError(f"{type(self).__name__} has no __len__")


class ArrayDataset(Dataset):
    """Slices along axis 0 of arrays with the same number of them, each a tuple; of one array, the slices themselves.

    Arrays may be NumPy's, whose memory is not copied."""

    def __init__(self, *arrays):
        if not arrays:
            raise ValueError("ArrayDataset: expected an array")
        sizes = [x.shape[0] if x.shape else 0 for x in arrays]
        if any(not x.shape for x in arrays) or len(set(sizes)) > 1:
            raise ValueError(f"ArrayDataset: arrays of {[tuple(x.shape) for x in arrays]}: axis 0 differs")
        self.arrays = arrays

    def __len__(self):
        return self.arrays[0].shape[0]

    def __getitem__(self, index):
        if not -len(self) <= index < len(self):
            raise IndexError(f"ArrayDataset: example {index} of {len(self)}")
        found = tuple(x[index] for x in self.arrays)
        return found if len(found) > 1 else found[0]

    def batch(self, indices):
        """The examples of a list of numbers, each array as one."""
        import headrace as hr

        found = tuple(hr.asarray(x[indices]) for x in self.arrays)
        return found if len(found) > 1 else found[0]


def collate(examples):
    """One batch of a list of examples: arrays and numbers get a new axis 0, tuples, lists and dicts are entered, and
    other objects, such as strings, become a list."""
    import headrace as hr

    first = examples[0]
    if isinstance(first, dict):
        if any(not isinstance(x, dict) or x.keys() != first.keys() for x in examples):
            raise ValueError("collate: dicts of a batch have different keys")
        return {key: collate([x[key] for x in examples]) for key in first}
    if isinstance(first, (tuple, list)):
        if any(not isinstance(x, (tuple, list)) or len(x) != len(first) for x in examples):
            raise ValueError("collate: tuples of a batch have different lengths")
        entries = [collate(list(column)) for column in zip(*examples)]
        return type(first)(*entries) if hasattr(first, "_fields") else type(first)(entries)
    if isinstance(first, hr.Array):
        return hr.stack(examples)
    if hasattr(first, "__array_interface__"):
        return _collate_host(examples)
    return hr.array(examples) if isinstance(first, (bool, int, float, complex)) else list(examples)


def _collate_host(examples):
    """NumPy's arrays and numbers, joined by NumPy: one copy to the device for a batch."""
    import numpy

    import headrace as hr

    shapes = {numpy.shape(x) for x in examples}
    if len(shapes) > 1:
        raise ValueError(f"collate: arrays of a batch have shapes {sorted(shapes)}")
    return hr.asarray(numpy.stack(examples))


class _Threads:
    """Threads that compute batches, which are given out in order. Each may run ahead by a bounded number of batches.

    They hold no reference to the iterator that owns this object, so that they end if it is dropped."""

    def __init__(self, make, numbers, workers, ahead):
        self.make = make
        self.numbers = collections.deque(numbers)
        self.count = len(self.numbers)
        self.lock = threading.Condition()
        self.done = {}  # batches, or exceptions, by number
        self.given = 0
        self.ahead = ahead
        self.is_ended = False
        self.threads = [
            threading.Thread(target=self.work, name=f"headrace-data-{i}", daemon=True) for i in range(workers)
        ]
        for thread in self.threads:
            thread.start()

    def work(self):
        while (task := self.next_task()) is not None:
            number, indices = task
            try:
                result = (self.make(indices), None)
            except BaseException as error:  # all of them are the consumer's
                result = (None, error)
            with self.lock:
                self.done[number] = result
                self.lock.notify_all()
            del result, task

    def next_task(self):
        with self.lock:
            while not self.is_ended and self.numbers:
                number = self.count - len(self.numbers)
                if number < self.given + self.ahead:
                    return number, self.numbers.popleft()
                self.lock.wait()
        return None

    def take(self):
        """The next batch; raises what the worker raised."""
        with self.lock:
            while self.given not in self.done:
                self.lock.wait()  # Ctrl-C ends it
            batch, error = self.done.pop(self.given)
            self.given += 1
            self.lock.notify_all()
        if error is not None:
            try:
                raise error  # its traceback begins in the worker
            finally:
                del error  # which refers to this frame
        return batch

    def end(self):
        with self.lock:
            self.is_ended = True
            self.done.clear()
            self.lock.notify_all()
        for thread in self.threads:
            thread.join()


class DataLoader:
    """Batches of a dataset; each `for` loop is one epoch.

    dataset: an object with `__getitem__` and `__len__`, an array, or a tuple of arrays (ArrayDataset).
    batch_size: examples of a batch; the last one has the rest, or is left out with drop_last.
    shuffle: a new order in each epoch. seed: an integer that all orders follow from; None: another in each program.
    workers: threads that compute batches while the consumer works; 0: the consumer computes them.
    prefetch: batches that each thread may be ahead.
    collate_fn: makes a batch of a list of examples; by default `collate`, or the dataset's `batch(indices)`.

    Order and contents do not depend on workers, if the dataset's examples do not depend on the order in which they are
    read. An exception of a thread is raised at the loop, with its traceback. The threads end with the loop, also by
    `break`, an exception and Ctrl-C.
    """

    def __init__(
        self, dataset, batch_size=1, shuffle=False, seed=None, drop_last=False, workers=0, prefetch=2, collate_fn=None
    ):
        import random

        import headrace as hr

        if isinstance(dataset, tuple):
            dataset = ArrayDataset(*dataset)
        elif isinstance(dataset, hr.Array) or hasattr(dataset, "__array_interface__"):
            dataset = ArrayDataset(dataset)
        for name, value, least in (("batch_size", batch_size, 1), ("workers", workers, 0), ("prefetch", prefetch, 1)):
            if not isinstance(value, int) or value < least:
                raise ValueError(f"DataLoader: {name} is {value!r}, expected an integer of at least {least}")
        self.dataset, self.batch_size, self.shuffle, self.drop_last = dataset, batch_size, shuffle, drop_last
        self.workers, self.prefetch, self.collate_fn = workers, prefetch, collate_fn
        self.random = random.Random(seed)

    def __len__(self):
        """The number of batches."""
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self):
        order = list(range(len(self.dataset)))
        if self.shuffle:
            self.random.shuffle(order)
        starts = [i * self.batch_size for i in range(len(self))]
        return self._run([order[i : i + self.batch_size] for i in starts])

    def _make(self, indices):
        if self.collate_fn is None and hasattr(self.dataset, "batch"):
            return self.dataset.batch(indices)
        return (self.collate_fn or collate)([self.dataset[i] for i in indices])

    def _make_in_thread(self, indices):
        """The batch, computed: the consumer's thread has other work."""
        import headrace as hr

        batch = self._make(indices)
        hr.eval([x for _, x in hr.utils.tree_flatten(batch) if isinstance(x, hr.Array)])
        return batch

    def _run(self, batches):
        if self.workers == 0 or not batches:
            yield from map(self._make, batches)
            return
        threads = _Threads(self._make_in_thread, batches, self.workers, self.workers * self.prefetch)
        try:
            for _ in batches:
                yield threads.take()
        finally:
            threads.end()
