"""Scikit-learn's digits as arrays of NumPy, and the batches of a training, for demonstrations of any framework."""

from dataclasses import dataclass

import numpy as np


@dataclass
class Images:
    """Float images (count, height, width, channels), normalised by the training set, and their classes."""

    train: np.ndarray
    train_classes: np.ndarray
    test: np.ndarray
    test_classes: np.ndarray


def bilinear(inputs: int, outputs: int) -> np.ndarray:
    """The matrix that enlarges one dim: each output is between the two inputs whose centers are nearest."""
    place = ((np.arange(outputs) + 0.5) * inputs / outputs - 0.5).clip(0, inputs - 1)
    return np.maximum(0, 1 - np.abs(place[:, None] - np.arange(inputs))).astype(np.float32)


def load_digits() -> Images:
    """1,797 real images of 8x8, enlarged to 28x28 and normalised; a fifth of them is kept for the test."""
    from sklearn.datasets import load_digits as digits

    data = digits()
    small, larger = data.images.astype(np.float32) / 16, bilinear(8, 28)
    images = (larger @ small @ larger.T)[..., None]
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[: len(order) * 4 // 5], order[len(order) * 4 // 5 :]
    images = (images - images[train].mean()) / images[train].std()
    classes = data.target.astype(np.int32)
    return Images(images[train], classes[train], images[test], classes[test])


def batches(count: int, batch: int, steps: int, seed: int):
    """Indices of each step's images: shuffled passes one after the other, cut into batches of one size."""
    random = np.random.default_rng(seed)
    waiting = np.empty(0, np.int64)
    for _ in range(steps):
        while len(waiting) < batch:
            waiting = np.concatenate([waiting, random.permutation(count)])
        yield waiting[:batch]
        waiting = waiting[batch:]
