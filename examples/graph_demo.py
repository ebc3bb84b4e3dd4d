"""Takes the demonstration's network from torch to a file, and answers and trains from the file without torch.

1. torch writes the network as an ONNX model, which becomes a package (.hrpkg).
2. A session of the package answers for all images; torch's CPU device does the same.
3. Weights become variables of the graph, which trains for some epochs by its gradients; torch's SGD sees the same
   batches.

Both sides start from the same weights. The images are scikit-learn's digits, or those of --data. Writes demo-graph.png.
"""

import argparse
import copy
import statistics
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import headrace as hr
import numpy as np
import torch
import torch.nn.functional as F
from datasets import DataError, Images, load
from demo import batches
from demo_output import Progress, positive, save
from networks import ConvNet


@dataclass
class Side:
    name: str
    answers: np.ndarray | None = None
    answer_seconds: float = 0.0  # of all images
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # of a training step
    accuracy: float = 0.0


def main() -> int:
    arguments = parse()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    try:
        import onnx  # noqa: F401  (torch writes models by it)

        data = load(arguments.data)
    except (DataError, ImportError) as error:
        print(f"demo-graph: {error}", file=sys.stderr)
        return 2
    torch.manual_seed(arguments.seed)
    model = ConvNet(in_channels=data.train.shape[1], dim=data.train.shape[2], dropout=0.0).eval()
    folder = Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = write_files(model, data, folder)

    torch_side, graph_side = Side("torch cpu"), Side("headrace graph")
    images = torch.cat([data.train, data.test])
    answer(torch_side, lambda x: model(torch.from_numpy(x)).numpy(), images.numpy())
    session = hr.Session(folder / "cnn.hrpkg")
    answer(graph_side, lambda x: np.asarray(session(images=x)["scores"]), images.numpy())

    steps = max(1, arguments.epochs * len(data.train) // arguments.batch)
    train_torch(torch_side, model, data, steps, arguments)
    train_graph(graph_side, path, data, steps, arguments)
    print()
    print_table(torch_side, graph_side)
    if arguments.output:
        print(f"\nwrote {draw(torch_side, graph_side, data, arguments.output)}")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--data", metavar="FOLDER", help="MNIST (idx) or CIFAR-10 (Python) files; without it, scikit-learn's digits")
    add("--folder", default="build/graph-demo", help="of the model's files (default %(default)s)")
    add("--epochs", type=positive, default=1, help="passes over the training images (default %(default)s)")
    add("--batch", type=positive, default=16, help="images a step (default %(default)s)")
    add("--lr", type=float, default=0.1, help="SGD's learning rate (default %(default)s)")
    add("--seed", type=int, default=0, help="of weights and batches (default %(default)s)")
    add("--threads", type=positive, help="torch's threads (default: all cores; HEADRACE_THREADS sets the other side's)")
    add("--output", default="demo-graph.png", metavar="FILE", help="the picture; '' for none (default %(default)s)")
    return parser.parse_args()


def write_files(model: ConvNet, data: Images, folder: Path) -> Path:
    """cnn.onnx, whose path is the result, and cnn.hrpkg."""
    path = folder / "cnn.onnx"
    names = {"input_names": ["images"], "output_names": ["scores"]}
    names["dynamic_axes"] = {"images": {0: "n"}, "scores": {0: "n"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that this exporter is not the newest, which needs more packages
        torch.onnx.export(model, (data.test[:1],), str(path), dynamo=False, **names)
    graph = hr.open_model(path)
    graph.simplify().save(folder / "cnn.hrpkg", notes={"source": path.name})
    size = (folder / "cnn.hrpkg").stat().st_size
    print(f"files     {path}, {folder / 'cnn.hrpkg'}: {graph.operations} operations, {size:,} bytes")
    return path


# ---- answers


def answer(side: Side, run, images: np.ndarray, batch: int = 512, repeats: int = 5) -> None:
    """The scores of all images; the median time of them, after a first time that is not counted."""
    parts = [np.ascontiguousarray(images[i : i + batch]) for i in range(0, len(images), batch)]
    seconds = []
    with torch.no_grad():
        for _ in range(repeats + 1):
            begin = time.perf_counter()
            side.answers = np.concatenate([run(part) for part in parts])
            seconds.append(time.perf_counter() - begin)
    side.answer_seconds = statistics.median(seconds[1:])


# ---- training


def train(side: Side, step, data: Images, steps: int, arguments) -> None:
    """Calls step(images, classes), which gives the loss, for each batch."""
    progress = Progress(side.name.split()[0], steps)
    for index in batches(len(data.train), arguments.batch, steps, arguments.seed):
        images, classes = data.train[index], data.train_classes[index]
        begin = time.perf_counter()
        side.losses.append(step(images, classes))
        side.seconds.append(time.perf_counter() - begin)
        progress.show(len(side.losses), side.losses[-1], 1e3 * statistics.median(side.seconds))


def train_torch(side: Side, start: ConvNet, data: Images, steps: int, arguments) -> None:
    model = copy.deepcopy(start).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr)

    def step(images, classes) -> float:
        optimizer.zero_grad()
        loss = F.nll_loss(model(images), classes)
        loss.backward()
        optimizer.step()
        return loss.item()

    train(side, step, data, steps, arguments)
    with torch.no_grad():
        side.accuracy = (model.eval()(data.test).argmax(1) == data.test_classes).float().mean().item()


def training_graph(path: Path, rate: float) -> hr.Graph:
    """The model with its loss; a run of it is a step of SGD."""
    graph = hr.open_model(path, variables=True)
    classes = graph.input("classes", "int64", ["n"])
    scores = hr.take_along_axis(graph.outputs["scores"], classes[:, None], axis=1)
    loss = -hr.mean(scores)
    weights = list(graph.variables.values())
    for weight, gradient in zip(weights, graph.gradient(loss, weights)):
        graph.assign(weight, weight - rate * gradient)
    graph.output("loss", loss)
    return graph


def train_graph(side: Side, path: Path, data: Images, steps: int, arguments) -> None:
    graph = training_graph(path, arguments.lr)
    session = hr.Session(graph)

    def step(images, classes) -> float:
        return float(session(images=images.numpy(), classes=classes.numpy())["loss"])

    train(side, step, data, steps, arguments)
    trained = hr.Session(hr.open_model(path, variables=True))  # of the scores alone: it assigns nothing
    for name in graph.variables:
        trained.set_variable(name, session.variable(name))
    guesses = np.asarray(trained(images=data.test.numpy())["scores"]).argmax(1)
    side.accuracy = float((guesses == data.test_classes.numpy()).mean())


# ---- results


def print_table(torch_side: Side, graph_side: Side) -> None:
    rows = [
        ("all images", lambda s: f"{1e3 * s.answer_seconds:.1f} ms"),
        ("training step, median", lambda s: f"{1e3 * statistics.median(s.seconds[1:] or s.seconds):.1f} ms"),
        ("first step", lambda s: f"{1e3 * s.seconds[0]:.1f} ms"),
        ("first loss", lambda s: f"{s.losses[0]:.6f}"),
        ("last loss", lambda s: f"{s.losses[-1]:.6f}"),
        ("test accuracy", lambda s: f"{100 * s.accuracy:.2f} %"),
    ]
    sides = (torch_side, graph_side)
    print(f"{'':28}" + "".join(f"{side.name:>16}" for side in sides))
    for title, text in rows:
        print(f"{title:28}" + "".join(f"{text(side):>16}" for side in sides))
    difference = np.abs(graph_side.answers - torch_side.answers)
    print(f"\nscores differ by {difference.max():.1e} at most, of a deviation of {torch_side.answers.std():.2f}")


def draw(torch_side: Side, graph_side: Side, data: Images, path: str) -> str:
    """Left the losses, right the times of all answers and of a step."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), width_ratios=(3, 2), layout="constrained")
    colors = {torch_side.name: "#8a8f98", graph_side.name: "#1f77b4"}
    for side, style in ((torch_side, "-"), (graph_side, "--")):
        label = f"{side.name}: {100 * side.accuracy:.1f} % of the test right"
        left.plot(range(1, len(side.losses) + 1), side.losses, style, color=colors[side.name], lw=1.6, label=label)
    left.set(xlabel="step", ylabel="loss", title=f"{data.name}: same weights, same batches")
    left.legend(frameon=False)
    for offset, side in ((-0.2, torch_side), (0.2, graph_side)):
        times = [1e3 * side.answer_seconds, 1e3 * statistics.median(side.seconds[1:] or side.seconds)]
        bars = right.bar([offset, 1 + offset], times, color=colors[side.name], width=0.38, label=side.name)
        right.bar_label(bars, [f"{t:.3g}" for t in times], padding=3)
    right.set_xticks([0, 1], ["answers for all images", "training step"])
    right.set(ylabel="milliseconds, median", title="from the file")
    right.legend(frameon=False)
    right.margins(y=0.15)
    return save(figure, path)


if __name__ == "__main__":
    sys.exit(main())
