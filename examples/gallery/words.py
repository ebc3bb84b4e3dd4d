"""The documentation of this repository as characters."""

import functools
import string
from pathlib import Path

import torch
from torch import Tensor

FOLDER = Path(__file__).resolve().parent.parent.parent / "docs"
LETTERS = string.ascii_lowercase + " .,:'-()\n"
VOCABULARY = len(LETTERS)


def encode(text: str) -> Tensor:
    """Lower case; characters outside of the alphabet are dropped, and runs of spaces and line ends are one space."""
    text = " ".join("".join(letter for letter in text.lower() if letter in LETTERS).split())
    return torch.tensor([LETTERS.index(letter) for letter in text])


def decode(tokens: Tensor) -> str:
    return "".join(LETTERS[token] for token in tokens.tolist())


@functools.cache
def corpus() -> Tensor:
    files = ("architecture.md", "decisions.md", "performance.md", "watching.md")
    return encode("\n".join((FOLDER / name).read_text(encoding="utf-8") for name in files))


def draw_lines(generator: torch.Generator, count: int, length: int) -> Tensor:
    """`count` pieces of `length` characters."""
    text = corpus()
    begin = torch.randint(len(text) - length, (count, 1), generator=generator)
    return text[begin + torch.arange(length)]
