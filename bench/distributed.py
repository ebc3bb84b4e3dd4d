#!/usr/bin/env python3
"""Times the backend of torch.distributed between two processes of this machine, in turns with gloo on tensors of the
host, and a step of DistributedDataParallel with two ranks of one thread against one process of two threads.

Minima of all rounds, in milliseconds. The last line is the number of commits of a step, and of its buckets.

    python bench/distributed.py
"""

import argparse
import os
import socket
import subprocess
import sys
import time

SIZES = {"4 B": 1, "1 MB": 1 << 18, "16.8 MB": 4_200_000, "102 MB": 25_600_000}


def best(call, calls: int) -> float:
    times = []
    for _ in range(calls):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return min(times) * 1e3


def time_collectives(rounds: int) -> dict:
    import torch
    import torch.distributed as dist

    found: dict[str, list[float]] = {}
    for title, count in SIZES.items():
        x, y = torch.ones(count, device="headrace"), torch.ones(count)

        def ours(x=x):
            dist.all_reduce(x, op=dist.ReduceOp.AVG)
            torch.headrace.synchronize()

        def gloo(y=y):
            dist.all_reduce(y)
            y.mul_(0.5)

        ours(), gloo()
        times = [float("inf")] * 2
        for _ in range(rounds):
            for i, call in enumerate((ours, gloo)):
                dist.barrier()
                times[i] = min(times[i], best(call, 200 if count == 1 else 4))
        found[title] = times
    return found


def time_step(batch: int, rounds: int, is_parallel: bool) -> tuple[float, int, int]:
    """Milliseconds of a step, its commits, and the buckets of gradients."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 200),
        nn.ReLU(),
        nn.Linear(200, 10),
    ).to("headrace")
    if is_parallel:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters())
    images = torch.randn(batch, 1, 28, 28).to("headrace")
    labels = torch.randint(10, (batch,)).to("headrace")

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    for _ in range(8):
        step()
    before = torch.headrace.stats()["commits"]
    step()
    commits = torch.headrace.stats()["commits"] - before
    buckets = 0
    if is_parallel:
        sizes = model._get_ddp_logging_data().get("rebuilt_bucket_sizes", "")
        buckets = sizes.count(",") + 1 if sizes else 0
    return best(step, 10 * rounds), commits, buckets


def run_rank(arguments) -> None:
    import torch.distributed as dist

    dist.init_process_group()
    times = time_collectives(arguments.rounds)
    milliseconds, commits, buckets = time_step(arguments.batch // 2, arguments.rounds, True)
    if dist.get_rank() == 0:
        print("| all_reduce of | headrace, ms | gloo, ms |\n|---|---|---|")
        for title, (ours, gloo) in times.items():
            print(f"| {title} | {ours:.3f} | {gloo:.3f} |")
        print(f"\nDDP, 2 ranks x 1 thread, batch {arguments.batch}: {milliseconds:.1f} ms a step")
        print(f"{commits} commits a step, {buckets} buckets")
    dist.destroy_process_group()


def start(arguments, rank: int, size: int, port: int) -> subprocess.Popen:
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in variables.items()}}
    environment["HEADRACE_THREADS"] = str(2 // size)
    command = [sys.executable, __file__, f"--batch={arguments.batch}", f"--rounds={arguments.rounds}"]
    return subprocess.Popen([*command, "--as-rank"], env=environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often the ways take turns (default %(default)s)")
    parser.add_argument("--batch", type=int, default=512, help="images of a step, of all ranks (default %(default)s)")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.as_rank:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        for size in (2, 1):
            ranks = [start(arguments, rank, size, port) for rank in range(size)]
            if codes := [rank.wait() for rank in ranks if rank.wait()]:
                sys.exit(f"a rank has failed: {codes}")
    elif os.environ["WORLD_SIZE"] == "1":
        print(f"1 process x 2 threads: {time_step(arguments.batch, arguments.rounds, False)[0]:.1f} ms a step")
    else:
        run_rank(arguments)


if __name__ == "__main__":
    main()
