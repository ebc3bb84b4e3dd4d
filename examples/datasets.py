"""Images for the demonstration: scikit-learn's digits, or MNIST and CIFAR-10 files in a folder that the user names.

`load(None)` returns the digits, `load(folder)` the format that the folder contains. Nothing is downloaded.
A file that is missing, truncated or of another kind raises DataError, with the expected and the actual contents.
"""

import gzip
import io
import pickle
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F

IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
CIFAR_FILES = (*(f"data_batch_{index}" for index in range(1, 6)), "test_batch")


class DataError(Exception):
    """A folder or file with unexpected contents."""


@dataclass
class Images:
    """Float images (count, channels, height, width), normalised by the training set, and their classes."""

    name: str
    train: torch.Tensor
    train_classes: torch.Tensor
    test: torch.Tensor
    test_classes: torch.Tensor
    epochs: int  # after which the demonstration's network is good,
    rate: float  # with this learning rate of Adam


def normalise(name, train, train_classes, test, test_classes, epochs, rate=1e-4) -> Images:
    """From images between 0 and 1 to mean 0 and deviation 1 for each channel, both taken from the training images."""
    mean, deviation = train.mean((0, 2, 3), keepdim=True), train.std((0, 2, 3), keepdim=True)
    train, test = (train - mean) / deviation, (test - mean) / deviation
    return Images(name, train, train_classes, test, test_classes, epochs, rate)


# ---- scikit-learn's digits


def load_digits() -> Images:
    """1,797 real images of 8x8, enlarged to 28x28; a fifth of them is kept for the test."""
    from sklearn.datasets import load_digits as digits

    data = digits()
    images = torch.from_numpy(data.images).float()[:, None] / 16
    images = F.interpolate(images, size=(28, 28), mode="bilinear", align_corners=False)
    classes = torch.from_numpy(data.target).long()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, test = order[: len(order) * 4 // 5], order[len(order) * 4 // 5 :]
    parts = images[train], classes[train], images[test], classes[test]
    return normalise("scikit-learn's digits", *parts, epochs=32, rate=3e-4)


# ---- MNIST: the idx format


def find(folder: Path, name: str) -> Path | None:
    for base in (folder, folder / "MNIST" / "raw", folder / "raw", folder / "cifar-10-batches-py"):
        for path in (base / name, base / f"{name}.gz", base / name.replace("-idx", ".idx")):
            if path.is_file():
                return path
    return None


def read_idx(path: Path, dims: int) -> numpy.ndarray:
    """An idx file of bytes: 0, 0, type 8, number of dims, each dim as a big-endian 32-bit number, then the bytes."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    header = 4 + 4 * dims
    if len(data) < header or data[:4] != bytes((0, 0, 8, dims)):
        raise DataError(
            f"{path}: not an idx file of bytes with {dims} dimension(s): "
            f"expected it to start with {bytes((0, 0, 8, dims)).hex(' ')}, found {data[:4].hex(' ') or 'nothing'}"
        )
    shape = struct.unpack(f">{dims}I", data[4:header])
    expected = header + int(numpy.prod(shape, dtype=numpy.int64))
    if len(data) != expected:
        named = " x ".join(map(str, shape))
        raise DataError(f"{path}: {named} bytes and a header are {expected} bytes, but the file has {len(data)}")
    return numpy.frombuffer(data, numpy.uint8, offset=header).reshape(shape)


def load_idx(folder: Path) -> Images:
    arrays = []
    for name in IDX_FILES:
        path = find(folder, name)
        if path is None:
            raise DataError(f"{folder}: {name} (or {name}.gz) is missing; MNIST has the files {', '.join(IDX_FILES)}")
        arrays.append(read_idx(path, 3 if "idx3" in name else 1))
    for images, classes, name in ((arrays[0], arrays[1], "train"), (arrays[2], arrays[3], "t10k")):
        if len(images) != len(classes) or len(images) == 0:
            raise DataError(f"{folder}: {name} has {len(images)} images and {len(classes)} labels")
        if images.shape[1:] != (28, 28):
            raise DataError(f"{folder}: {name} images are {images.shape[1]}x{images.shape[2]}, expected 28x28")
        if classes.max() > 9:
            raise DataError(f"{folder}: {name} has label {classes.max()}, expected 0 to 9")
    images = [torch.from_numpy(a.copy()).float()[:, None] / 255 for a in arrays[::2]]
    classes = [torch.from_numpy(a.copy()).long() for a in arrays[1::2]]
    return normalise("MNIST", images[0], classes[0], images[1], classes[1], epochs=3)


# ---- CIFAR-10: pickled batches


class ArrayUnpickler(pickle.Unpickler):
    """Unpickles numpy arrays, bytes, strings, lists and dictionaries: a data file needs no other types."""

    ALLOWED = {"_reconstruct", "ndarray", "dtype", "encode", "_frombuffer"}
    MODULES = ("numpy", "_codecs")

    def find_class(self, module, name):
        if name in self.ALLOWED and module.partition(".")[0] in self.MODULES:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"a batch of images has no use for {module}.{name}")


def read_cifar_batch(path: Path) -> tuple[numpy.ndarray, numpy.ndarray]:
    try:
        batch = ArrayUnpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except Exception as error:  # a broken pickle raises nearly anything
        raise DataError(f"{path}: not a pickled CIFAR-10 batch: {error}") from error
    if not isinstance(batch, dict) or b"data" not in batch or b"labels" not in batch:
        found = f"the keys {list(batch)}" if isinstance(batch, dict) else type(batch).__name__
        raise DataError(f"{path}: expected a dictionary with data and labels, found {found}")
    data, labels = numpy.asarray(batch[b"data"]), numpy.asarray(batch[b"labels"])
    if data.dtype != numpy.uint8 or data.ndim != 2 or data.shape[1] != 3072:
        raise DataError(f"{path}: expected data of bytes with shape (count, 3072), found {data.dtype} {data.shape}")
    fits = labels.shape == (len(data),) and labels.dtype.kind in "iu"
    if not fits or (len(labels) and not 0 <= labels.min() <= labels.max() <= 9):
        raise DataError(f"{path}: expected {len(data)} labels from 0 to 9")
    return data.reshape(-1, 3, 32, 32), labels


def load_cifar(folder: Path) -> Images:
    batches = []
    for name in CIFAR_FILES:
        path = find(folder, name)
        if path is None:
            raise DataError(f"{folder}: {name} is missing; CIFAR-10 has the files {', '.join(CIFAR_FILES)}")
        batches.append(read_cifar_batch(path))
    images = [numpy.concatenate([b[0] for b in part]) for part in (batches[:-1], batches[-1:])]
    classes = [numpy.concatenate([b[1] for b in part]) for part in (batches[:-1], batches[-1:])]
    images = [torch.from_numpy(a).float() / 255 for a in images]
    classes = [torch.from_numpy(a).long() for a in classes]
    return normalise("CIFAR-10", images[0], classes[0], images[1], classes[1], epochs=10)


def load(folder: str | None) -> Images:
    if folder is None:
        return load_digits()
    path = Path(folder)
    if not path.is_dir():
        raise DataError(f"{path}: no such folder")
    if any(find(path, name) for name in IDX_FILES):
        return load_idx(path)
    if any(find(path, name) for name in CIFAR_FILES):
        return load_cifar(path)
    raise DataError(
        f"{path}: neither MNIST nor CIFAR-10. MNIST has the files {', '.join(IDX_FILES)} (each also as .gz); "
        f"CIFAR-10, its Python version, has {', '.join(CIFAR_FILES)}"
    )
