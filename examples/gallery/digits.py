"""scikit-learn's handwritten digits: 1,797 images of 8 x 8 between 0 and 1, and their classes."""

import functools

import torch
from sklearn.datasets import load_digits
from torch import Tensor

TEST = 297  # the last ones, not used for training


@functools.cache
def digits() -> tuple[Tensor, Tensor]:
    data = load_digits()
    order = torch.randperm(len(data.images), generator=torch.Generator().manual_seed(0))  # each part has all writers
    images = torch.tensor(data.images / 16, dtype=torch.float32).unsqueeze(1)
    return images[order], torch.tensor(data.target)[order]


def draw_batch(generator: torch.Generator, count: int) -> tuple[Tensor, Tensor]:
    """`count` training images and their classes."""
    images, classes = digits()
    index = torch.randint(len(images) - TEST, (count,), generator=generator)
    return images[index], classes[index]


def test_images() -> tuple[Tensor, Tensor]:
    images, classes = digits()
    return images[-TEST:], classes[-TEST:]


def sheet(images: Tensor, columns: int) -> Tensor:
    """Images (count, 1, height, width) side by side in rows of `columns`, as one picture (height, width)."""
    count, _, height, width = images.shape
    rows = count // columns
    return images.reshape(rows, columns, height, width).transpose(1, 2).reshape(rows * height, columns * width).cpu()
