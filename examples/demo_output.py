"""Parts of the demonstrations that need no framework: the progress bar, the table and the picture of runs."""

import argparse
import statistics
import sys
import time
from dataclasses import dataclass, field


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a positive number, not {text}")
    return value


# ---- the progress bar


class Progress:
    """A bar that redraws itself in a terminal, and about ten lines anywhere else."""

    def __init__(self, name: str, total: int, stream=sys.stdout):
        self.name, self.total, self.stream = name, total, stream
        self.started = time.perf_counter()
        self.last_drawn = 0.0
        self.alive = stream.isatty()

    def show(self, done: int, loss: float, milliseconds: float) -> None:
        now = time.perf_counter()
        left = (now - self.started) / done * (self.total - done)
        text = f"{done:4}/{self.total} steps  loss {loss:6.4f}  {milliseconds:7.1f} ms/step  {left:4.0f} s left"
        if not self.alive:
            if done == self.total or done * 10 // self.total > (done - 1) * 10 // self.total:
                print(f"{self.name:9} {text}", file=self.stream, flush=True)
        elif done == self.total or now - self.last_drawn > 0.1:
            full = done * 24 // self.total
            bar = "█" * full + "░" * (24 - full)
            self.stream.write(f"\r{self.name:9} {bar} {text}\x1b[K" + ("\n" if done == self.total else ""))
            self.stream.flush()
            self.last_drawn = now


# ---- results


@dataclass
class Run:
    """The training of a network on one device: the loss and the time of each step."""

    name: str
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    accuracy: float = 0.0  # share of the test images that is right

    @property
    def median(self) -> float:
        """Milliseconds a step, without the first step if there are others."""
        return 1e3 * statistics.median(self.seconds[1:] or self.seconds)


ROWS = [
    ("median step", lambda run: f"{run.median:.1f} ms"),
    ("first step", lambda run: f"{1e3 * run.seconds[0]:.1f} ms"),
    ("all steps", lambda run: f"{sum(run.seconds):.1f} s"),
    ("first loss", lambda run: f"{run.losses[0]:.5f}"),
    ("last loss (mean of 10)", lambda run: f"{statistics.fmean(run.losses[-10:]):.5f}"),
    ("test accuracy", lambda run: f"{100 * run.accuracy:.2f} %"),
]


def print_table(runs: list[Run], more=()) -> None:
    """A column for each run, and how fast the others are beside the first. `more` are rows (title, text of a run)."""
    print(f"{'':28}" + "".join(f"{run.name:>16}" for run in runs))
    for title, text in (*ROWS, *more):
        print(f"{title:28}" + "".join(f"{text(run):>16}" for run in runs))
    for run in runs[1:]:
        print(f"\n{run.name}: {runs[0].median / run.median:.2f} times as fast as {runs[0].name}")


# ---- the picture


def draw(runs: list[Run], title: str, path: str) -> str:
    """Left the losses, right the time of a step."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), width_ratios=(3, 2), layout="constrained")
    colors = ["#8a8f98", "#1f77b4", "#2ca02c", "#d62728"]
    for run, color in zip(runs, colors):
        label = f"{run.name}: {100 * run.accuracy:.1f} % of the test right"
        left.plot(range(1, len(run.losses) + 1), run.losses, color=color, lw=1.4, alpha=0.85, label=label)
    left.set(xlabel="step", ylabel="loss", title=f"{title}: same weights, same batches")
    left.set_ylim(0, 1.05 * max(max(run.losses) for run in runs))
    left.legend(frameon=False)
    bars = right.bar([run.name for run in runs], [run.median for run in runs], color=colors[: len(runs)], width=0.55)
    right.bar_label(bars, [f"{run.median:.3g} ms" for run in runs], padding=3)
    ratio = f": {runs[0].median / runs[1].median:.2f} times as fast" if len(runs) > 1 else ""
    right.set(ylabel="milliseconds a step, median", title=f"training step{ratio}")
    right.margins(y=0.15)
    return save(figure, path)


def save(figure, path: str) -> str:
    """Writes a figure without the frames above and right of its axes."""
    import matplotlib.pyplot as plt

    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path
