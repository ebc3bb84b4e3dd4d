"""The gallery's table, its pictures, and docs/gallery.md."""

import contextlib
import platform
import struct
import time
import wave
import zlib
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy
import torch

from . import compare
from .compare import COMPARED, LOSS_BOUND, OUTPUT_BOUND, Run

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS, FOLDER = ROOT / "docs", str(ROOT / "build" / "gallery")
BOUNDS = (
    f"Losses: the largest relative difference in the first {COMPARED} steps; the bound is {LOSS_BOUND:g}. Outputs: the "
    f"largest difference relative to the largest output, for the same trained weights; the bound is {OUTPUT_BOUND:g}. "
    "Integers (tokens, kept boxes) are equal."
)


@dataclass
class Row:
    name: str
    network: object
    parameters: int
    cpu: Run
    device: Run
    loss_difference: float = 0.0
    output_difference: float = 0.0
    caption: str = ""

    @property
    def is_right(self) -> bool:
        """False also if a difference is NaN."""
        is_near = self.loss_difference <= LOSS_BOUND and self.output_difference <= OUTPUT_BOUND
        return is_near and self.device.fallbacks == 0

    def cells(self) -> list[str]:
        cpu, device = self.cpu, self.device
        final = [sum(run.losses[-10:]) / len(run.losses[-10:]) for run in (cpu, device)]
        return [
            self.network.TITLE,
            f"{self.parameters:,}",
            str(len(cpu.losses)),
            f"{final[0]:.4g}",
            f"{final[1]:.4g}",
            f"{self.loss_difference:.0e}",
            f"{self.output_difference:.0e}",
            f"{cpu.step_ms:.3g}",
            f"{device.step_ms:.3g}",
            f"{cpu.step_ms / device.step_ms:.2f}x",
            f"{cpu.infer_ms:.3g}",
            f"{device.infer_ms:.3g}",
            f"{cpu.infer_ms / device.infer_ms:.2f}x",
            str(device.fallbacks),
        ]


HEADINGS = ["network", "parameters", "steps", "loss: cpu", "headrace", "difference: losses", "outputs"] + [
    "training step, ms: cpu",
    "headrace",
    "speed-up",
    "inference, ms: cpu",
    "headrace",
    "speed-up",
    "fallbacks",
]


def table(rows: list[Row]) -> str:
    """In Markdown, with columns that line up."""
    lines = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    texts = []
    for line in (lines[0], rule, *lines[1:]):
        cells = [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))]
        texts.append("| " + " | ".join(cells) + " |")
    return "\n".join(texts)


@torch.no_grad()
def fill(figure, row: Row) -> None:
    row.caption = row.network.draw(figure, row.device.model, row.device.device)
    figure.suptitle(row.network.TITLE, fontsize=9, fontweight="bold")
    figure.supxlabel(row.caption, fontsize=6.5)


def write_picture(row: Row, folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    figure = plt.figure(figsize=(4, 3.6), layout="constrained")
    fill(figure, row)
    figure.savefig(Path(folder) / f"{row.name}.png", dpi=150)
    plt.close(figure)
    if hasattr(row.network, "sound"):
        with torch.no_grad():
            write_sound(Path(folder) / f"{row.name}.wav", *row.network.sound(row.device.model, row.device.device))


def write_sound(path: Path, samples: torch.Tensor, samples_a_second: int) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(samples_a_second)
        file.writeframes((samples.clamp(-1, 1) * 32000).to(torch.int16).numpy().tobytes())


def write_sheet(rows: list[Row], folder: str) -> Path:
    """All pictures on one sheet of three columns."""
    lines = -(-len(rows) // 3)
    figure = plt.figure(figsize=(12, 3.5 * lines), layout="constrained")
    parts = figure.subfigures(lines, 3, squeeze=False).flat
    for part, row in zip(parts, rows):
        fill(part, row)
    path = Path(folder) / "gallery.png"
    figure.set_dpi(96)
    figure.canvas.draw()
    write_palette_png(path, torch.from_numpy(numpy.asarray(figure.canvas.buffer_rgba())[..., :3].copy()))
    plt.close(figure)
    return path


def write_palette_png(path: Path, pixels: torch.Tensor) -> None:
    """Pixels (height, width, 3) in six levels of each colour: a quarter of the bytes."""
    height, width, _ = pixels.shape
    levels = (pixels.int() + 25) // 51
    index = (levels * torch.tensor([36, 6, 1])).sum(-1).to(torch.uint8)
    lines = torch.cat((torch.zeros(height, 1, dtype=torch.uint8), index), dim=1)  # a line begins with its filter: none
    palette = bytes(51 * (i // step % 6) for i in range(216) for step in (36, 6, 1))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"PLTE", palette) + chunk(b"IDAT", zlib.compress(lines.numpy().tobytes(), 9))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b""))


def write_page(rows: list[Row]) -> None:
    write_sheet(rows, str(DOCS))
    captions = "\n".join(f"- **{row.network.TITLE}** (`{row.name}.py`): {row.caption}." for row in rows)
    page = PAGE.format(machine=machine(), table=table(rows), bounds=BOUNDS, captions=captions)
    DOCS.joinpath("gallery.md").write_text(page, encoding="utf-8")


def machine() -> str:
    """A description of the processor and the software on it."""
    model = platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    threads = torch.get_num_threads()
    times = f"{threads} threads" if compare.clock is time.perf_counter else "CPU time of one thread"
    return f"{model}, {times} on both sides, torch {torch.__version__}, Python {platform.python_version()}"


PAGE = """# Gallery

`make gallery` trains well-known networks on torch's CPU device and on Headrace, from the same weights and with the same
batches, and compares the results. `make gallery GALLERY="--only vit,llama"` runs a selection. Nothing leaves the
device: everything runs with `HEADRACE_FALLBACK=error`. Each network is a small file of `examples/gallery`.
`tests/python/test_gallery.py` compares losses and every gradient of small forms of them.

![Outputs of the trained networks](gallery.png)

{captions}

## Figures

{machine}.

{table}

{bounds}
The loss of the table is the mean of the last ten steps. By then the runs may have drifted apart, as two runs of torch
with different numbers of threads do. A training step is the copy of the batch, forward, backward, Adam and reading the
loss; the table shows the median of the second half of all steps.

This page and its picture are written by `make gallery GALLERY=--report`, on a busy machine with `--cpu-time`.
"""
