"""The demonstration: its data formats, its complaints, and a short run."""

import gzip
import pickle
import struct
import subprocess
import sys

import datasets
import numpy
import pytest
import torch
from support import DEVICE, ROOT

DEMO = ROOT / "examples" / "demo.py"


def write_idx(path, array, compress=False):
    data = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(data) if compress else data)


def write_mnist(folder, count=40, compress=False):
    random = numpy.random.default_rng(0)
    for prefix in ("train", "t10k"):
        suffix = ".gz" if compress else ""
        images = random.integers(0, 256, (count, 28, 28), dtype=numpy.uint8)
        write_idx(folder / f"{prefix}-images-idx3-ubyte{suffix}", images, compress)
        labels = (numpy.arange(count) % 10).astype(numpy.uint8)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte{suffix}", labels, compress)
    return images


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("below", ["", "MNIST/raw"])
def test_mnist_files(tmp_path, compress, below):
    folder = tmp_path / below
    folder.mkdir(parents=True, exist_ok=True)
    last = write_mnist(folder, compress=compress)
    data = datasets.load(tmp_path)
    assert data.name == "MNIST"
    assert data.train.shape == data.test.shape == (40, 1, 28, 28)
    assert data.test_classes.tolist() == [i % 10 for i in range(40)]
    assert abs(data.train.mean().item()) < 1e-4
    order = data.test.flatten().argsort(stable=True)
    assert torch.equal(torch.from_numpy(last).flatten()[order].sort().values, torch.from_numpy(last).flatten()[order])


def test_cifar_files(tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    random = numpy.random.default_rng(0)
    for name in datasets.CIFAR_FILES:
        data = random.integers(0, 256, (20, 3072), dtype=numpy.uint8)
        (folder / name).write_bytes(pickle.dumps({b"data": data, b"labels": [i % 10 for i in range(20)]}, protocol=2))
    data = datasets.load(tmp_path)
    assert data.name == "CIFAR-10"
    assert data.train.shape == (100, 3, 32, 32)
    assert data.test.shape == (20, 3, 32, 32)


def broken(kind, folder):
    """Damages a folder in one way; returns the name that the message must contain."""
    if kind == "no folder":
        return "no such folder", folder / "nothing"
    if kind == "empty":
        return "train-images-idx3-ubyte.*data_batch_1", folder
    if kind == "code in a pickle":
        for name in datasets.CIFAR_FILES:
            (folder / name).write_bytes(pickle.dumps(print))
        return "data_batch_1: not a pickled CIFAR-10 batch.*print", folder
    if kind == "another pickle":
        for name in datasets.CIFAR_FILES:
            (folder / name).write_bytes(pickle.dumps({b"pixels": 1}))
        return "expected a dictionary with data and labels", folder
    if kind == "no test batch":
        for name in datasets.CIFAR_FILES[:-1]:
            batch = {b"data": numpy.zeros((2, 3072), numpy.uint8), b"labels": [0, 1]}
            (folder / name).write_bytes(pickle.dumps(batch))
        return "test_batch is missing", folder
    write_mnist(folder)
    images = folder / "train-images-idx3-ubyte"
    if kind == "missing":
        images.unlink()
        return "train-images-idx3-ubyte .* is missing", folder
    if kind == "cut short":
        images.write_bytes(images.read_bytes()[:-1])
        return "40 x 28 x 28 bytes and a header are 31376 bytes, but the file has 31375", folder
    if kind == "not idx":
        images.write_bytes(b"<html>")
        return "expected it to start with 00 00 08 03, found 3c 68 74 6d", folder
    if kind == "not gzip":
        images.unlink()
        (folder / "train-images-idx3-ubyte.gz").write_bytes(b"<html>")
        return "cannot be read", folder
    if kind == "counts":
        write_idx(folder / "train-labels-idx1-ubyte", numpy.zeros(39, numpy.uint8))
        return "40 images and 39 labels", folder
    write_idx(folder / "train-labels-idx1-ubyte", numpy.full(40, 10, numpy.uint8))
    return "label 10, expected 0 to 9", folder


KINDS = (
    ["no folder", "empty", "missing", "cut short", "not idx", "not gzip", "counts", "labels"]
    + ["code in a pickle", "another pickle", "no test batch"]
)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_wrong_is_named(kind, tmp_path):
    message, folder = broken(kind, tmp_path)
    with pytest.raises(datasets.DataError, match=message):
        datasets.load(folder)


def run(*arguments):
    command = [sys.executable, str(DEMO), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_short_run(tmp_path):
    write_mnist(tmp_path)
    picture = tmp_path / "out.png"
    done = run("--data", tmp_path, "--epochs", 6, "--batch", 20, "--device", f"cpu,{DEVICE}", "--output", picture)
    assert done.returncode == 0, done.stderr
    for text in ("median step", "test accuracy", "times as fast", "12 steps"):
        assert text in done.stdout
    assert "\r" not in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    if DEVICE.type == "headrace":
        assert "cache hits" in done.stdout


def test_complaints_are_one_line(tmp_path):
    for arguments, text in (
        (["--data", tmp_path, "--device", "cpu"], "neither MNIST nor CIFAR-10"),
        (["--device", "cpu,nowhere"], "the device `nowhere` does not work"),
    ):
        done = run(*arguments)
        assert done.returncode == 2
        assert text in done.stderr
        assert "Traceback" not in done.stderr
