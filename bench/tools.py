#!/usr/bin/env python3
"""Trains two networks under each tool, and writes a page of what the tools show: build/tools/index.html.

The networks are the Softshrink MLP of examples/networks.py and one of ResNet-18's shape on small images. Each tool
gets a process of its own, whose kernels are compiled before the part that is shown. docs/tools.md describes the tools.

    python bench/tools.py
    python bench/tools.py --networks mlp --seconds 0.5 --out folder
"""

import argparse
import html
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import samples
import timeline

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "examples"))
TITLES = {"mlp": "Softshrink MLP, batch 64, Adam", "resnet18": "network of ResNet-18's shape, batch 4 of 64x64, Adam"}
HEAD = (
    "<!doctype html><meta charset=utf-8><title>Headrace under its tools</title><style>"
    "body{font:15px/1.4 sans-serif;max-width:1100px;margin:2em auto;padding:0 1em}"
    "pre{font-size:12px;overflow:auto;background:#f6f6f6;padding:.6em}svg{width:100%;border:1px solid #ddd}"
    "</style><h1>Headrace under its tools</h1>"
)

# ---- in the processes: what trains


def resnet18():
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inputs, outputs, stride):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
            self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
            self.shortcut = nn.Identity()
            if stride != 1 or inputs != outputs:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )

        def forward(self, x):
            y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
            return torch.relu(y + self.shortcut(x))

    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    for inputs, outputs, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def make_step(name):
    """A function that trains one step and reads the loss."""
    import headrace.torch  # noqa: F401  (torch finds it by itself, except where torch also drives CUDA)
    import networks
    import torch

    torch.manual_seed(0)
    if name == "resnet18":
        model, batch = resnet18(), (torch.randn(4, 3, 64, 64), torch.randint(10, (4,)))
        step, optimizers = networks.supervised_step(networks.cross_entropy), networks.one_optimizer
    else:
        case = networks.CASES[name]
        model, batch = case.build(), case.batch(64)
        step, optimizers = case.step, case.optimizers
    model = model.to("headrace")
    made = optimizers(model, torch.optim.Adam)
    batch = tuple(tensor.to("headrace") for tensor in batch)
    return lambda: step(model, made, batch)[0].item()


def run_for(step, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        step()


def train(names, seconds):
    for name in names.split(","):
        run_for(make_step(name), seconds)


def torch_profile(name, seconds):
    from torch.profiler import ProfilerActivity, profile

    step = make_step(name)
    run_for(step, seconds)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as found:
        for _ in range(3):
            step()
    print(found.key_averages().table(sort_by="self_privateuse1_time_total", row_limit=12, max_name_column_width=60))


def softshrink_tables(name, seconds):
    """Tables of a step of the MLP's last layers, with Softshrink as plain code and as an element-wise kernel."""
    import headrace.torch  # noqa: F401
    import torch

    del name
    text = "y = x > l ? x - l : (x < -l ? x + l : 0)"
    kernel = torch.headrace.elementwise(text, "float x, float l -> float y")
    x, weight = torch.randn(64, 256, device="headrace"), torch.randn(256, 256, device="headrace")

    def plain(x, l):
        return torch.where(x > l, x - l, torch.where(x < -l, x + l, 0.0))

    for title, softshrink in (("before: torch.where", plain), ("after: torch.headrace.elementwise", kernel)):
        run_for(lambda f=softshrink: f(x @ weight, 0.5).sum().item(), seconds / 2)
        with torch.headrace.profiler.profile():
            for _ in range(10):
                softshrink(x @ weight, 0.5).sum().item()
        print(f"{title}\n{torch.headrace.profiler.tables()}")


# ---- around them: a process for each tool


def child(what, name, seconds, **environment):
    """The output of a process that runs one of the functions above."""
    command = [sys.executable, str(HERE / "tools.py"), f"--{what}", name, "--seconds", str(seconds)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=os.environ | environment
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-600:]}")
    return done.stdout + "\n".join(line for line in done.stderr.splitlines() if not line.startswith("USDT:"))


def shorten(text, rows=20):
    """Long tables end after some rows. Rows begin with their number of runs."""
    out, count = [], 0
    for line in text.splitlines():
        count = count + 1 if line.lstrip()[:1].isdigit() else 0
        if count <= rows:
            out.append(line)
        elif count == rows + 1:
            out.append("     ...")
    return "\n".join(out)


def pre(text):
    return f"<pre>{html.escape(text.strip())}</pre>"


def profiler_part(name, out, seconds):
    del out
    look = "Rows are operators and kernels, the longest time on the device first. A kernel counts for one operator."
    return look, pre(child("profile", name, seconds))


def timeline_part(name, out, seconds):
    file = out / f"{name}.json"
    child("train", name, seconds, HEADRACE_TRACE=str(file))
    svg = timeline.picture(json.loads(file.read_text(encoding="utf-8")))
    (out / f"{name}.svg").write_text(svg, encoding="utf-8")
    look = (
        "One step: a commit on the host, and its kernels. Gaps in the row of the device are time that no kernel uses. "
        f"The whole timeline is {file.name}, for ui.perfetto.dev."
    )
    return look, svg


def perf_part(name, out, seconds):
    look = "Names that begin with hr_ are compiled kernels, those of jit_ are oneDNN's; libheadrace.so has the rest."
    if not samples.is_permitted():
        return look, "<p>perf is not installed here, or may not sample processes: this part is missing.</p>"
    file = out / f"{name}.perf"
    command = [sys.executable, str(HERE / "tools.py"), "--train", name, "--seconds", str(2 * seconds)]
    samples.record(command, file, {})
    text = subprocess.run(
        ["perf", "report", "-i", str(file), "--stdio", "--sort", "dso,sym", "--percent-limit", "0.7"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    total, unnamed = samples.total(samples.count(file))
    head = f"{total} samples in generated code, {100 * (1 - unnamed / max(total, 1)):.2f} % of them with a name\n\n"
    return look, pre(head + "\n".join(lines[:30]))


def tables_part(name, out, seconds):
    del out
    look = (
        "Operations: a row a kernel or library call, the longest total first. Copies: a row a direction. Fallbacks: "
        "operators that ran on the host; a network that trains well has none."
    )
    return look, pre(shorten(child("train", name, seconds, HEADRACE_PROFILE="all")))


def softshrink_part(name, out, seconds):
    del out
    look = "Both ways fuse into one kernel. Plain code makes a tensor of its constant 0.0: the launch named copy."
    return look, pre(child("softshrink", name, seconds))


PARTS = (
    ("torch.profiler", profiler_part),
    ("timeline", timeline_part),
    ("perf", perf_part),
    ("tables at the end", tables_part),
)


def build_page(names, out, seconds):
    stages = [(f"{title}: {TITLES.get(name, name)}", part, name) for name in names for title, part in PARTS]
    stages.append(("a custom Softshrink, before and after", softshrink_part, "mlp"))
    page = [HEAD]
    for i, (title, part, name) in enumerate(stages, 1):
        begin = time.monotonic()
        look, body = part(name, out, seconds)
        page.append(f"<h2>{html.escape(title)}</h2><p>{html.escape(look)}</p>{body}")
        print(f"{i}/{len(stages)} {title}: {time.monotonic() - begin:.1f} s", flush=True)
    (out / "index.html").write_text("\n".join(page) + "\n", encoding="utf-8")
    print(out / "index.html")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="mlp,resnet18", help="with commas between (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=2, help="of training before each part (default %(default)s)")
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "tools", help="folder of the page")
    for what in ("train", "profile", "softshrink"):
        parser.add_argument(f"--{what}", help=argparse.SUPPRESS)  # one process
    arguments = parser.parse_args()
    for what, run in (("train", train), ("profile", torch_profile), ("softshrink", softshrink_tables)):
        if getattr(arguments, what):
            run(getattr(arguments, what), arguments.seconds)
            return
    arguments.out.mkdir(parents=True, exist_ok=True)
    build_page(arguments.networks.split(","), arguments.out, arguments.seconds)


if __name__ == "__main__":
    main()
