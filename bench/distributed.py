#!/usr/bin/env python3
"""Times the backend of torch.distributed between two processes of this machine, in turns with gloo on tensors of the
host, and steps of DistributedDataParallel: a small network with two ranks of one thread against one process of two
threads, and ResNet-50 with a batch of 2 a rank against the same without DistributedDataParallel, on all ranks at once.

Minima of all rounds, in milliseconds, with the number of commits of a step, and of its buckets.

    python bench/distributed.py
    HEADRACE_TRANSPORT=network python bench/distributed.py --only collectives
"""

import argparse
import os
import pathlib
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


def consecutive(call, calls: int) -> list[float]:
    """The times of calls that follow each other, so that what one leaves to the next is counted."""
    times, begin = [], time.perf_counter()
    for _ in range(calls):
        call()
        end = time.perf_counter()
        times.append((end - begin) * 1e3)
        begin = end
    return times


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


def small_network():
    from torch import nn

    return nn.Sequential(
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
    )


def resnet50():
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "examples"))
    from networks import ResNet

    return ResNet()


def buckets_of(model) -> int:
    sizes = model._get_ddp_logging_data().get("rebuilt_bucket_sizes", "")
    return sizes.count(",") + 1 if sizes else 0


class Training:
    """Steps on one batch."""

    def __init__(self, model, shape, classes: int, is_parallel: bool, **options):
        import torch

        torch.manual_seed(0)
        self.model = model.to("headrace")
        if is_parallel:
            self.model = torch.nn.parallel.DistributedDataParallel(self.model, **options)
        self.optimizer = torch.optim.Adam(model.parameters())
        self.images = torch.randn(shape).to("headrace")
        self.labels = torch.randint(classes, shape[:1]).to("headrace")

    def step(self):
        import torch

        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.model(self.images), self.labels)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def commits(self) -> int:
        import torch

        before = torch.headrace.stats()["commits"]
        self.step()
        return torch.headrace.stats()["commits"] - before


def time_small(batch: int, rounds: int, is_parallel: bool) -> None:
    training = Training(small_network(), (batch, 1, 28, 28), 10, is_parallel)
    for _ in range(8):
        training.step()
    commits = training.commits()
    milliseconds = best(training.step, 10 * rounds)
    if not is_parallel:
        print(f"1 process x 2 threads: {milliseconds:.1f} ms a step")
    elif os.environ["RANK"] == "0":
        print(f"\nDDP, 2 ranks x 1 thread, {batch} images a rank: {milliseconds:.1f} ms a step")
        print(f"{commits} commits a step, {buckets_of(training.model)} buckets")


def slowest_ranks(times: list[float]) -> list[float]:
    """Of each step, the time of the rank that took longest."""
    import torch.distributed as dist

    of_ranks = [None] * dist.get_world_size()
    dist.all_gather_object(of_ranks, times)
    return [max(step) for step in zip(*of_ranks)]


def time_resnet(rounds: int) -> None:
    """The ranks do the same at the same time: steps without an exchange of gradients, with one that copies them into
    buckets and back (torch's default), and with gradients that are views of the buckets. Ranks that exchange wait for
    the slowest one, so its time counts for all ways."""
    import torch.distributed as dist

    ways = ({"is_parallel": False}, {"is_parallel": True}, {"is_parallel": True, "gradient_as_bucket_view": True})
    trainings = [Training(resnet50(), (2, 3, 224, 224), 1000, **way) for way in ways]
    for training in trainings * 4:
        training.step()
    commits, times = trainings[1].commits(), [[] for _ in ways]
    for _ in range(3 * rounds):
        for training, found in zip(trainings, times):
            training.step()  # the others have changed what the caches hold
            dist.barrier()
            found.extend(consecutive(training.step, 3))
    alone, copied, viewed = (sorted(slowest_ranks(found)) for found in times)
    if dist.get_rank() == 0:
        print(f"\nResNet-50, 2 images a rank: {alone[0]:.1f} ms a step (median {alone[len(alone) // 2]:.1f})")
        for title, found in (("DDP", copied), ("gradient_as_bucket_view=True", viewed)):
            more = [found[k] - alone[k] for k in (0, len(alone) // 2)]
            print(f"with {title}: {more[0]:.1f} ms more (medians: {more[1]:.1f})")
        print(f"{commits} commits a step, {buckets_of(trainings[1].model)} buckets")


def run_rank(arguments) -> None:
    import headrace.torch  # noqa: F401  (torch finds it by itself, except where torch also drives CUDA)

    if os.environ["WORLD_SIZE"] == "1":
        time_small(arguments.batch, arguments.rounds, False)
    else:
        run_one_of_two(arguments)


def run_one_of_two(arguments) -> None:
    import torch.distributed as dist

    dist.init_process_group()
    if arguments.only in (None, "collectives"):
        times = time_collectives(arguments.rounds)
        if dist.get_rank() == 0:
            from headrace.distributed import transport

            print(f"| all_reduce of | headrace, {transport()}, ms | gloo, ms |\n|---|---|---|")
            for title, (ours, gloo) in times.items():
                print(f"| {title} | {ours:.3f} | {gloo:.3f} |")
    if arguments.only in (None, "small"):
        time_small(arguments.batch // 2, arguments.rounds, True)
    if arguments.only in (None, "resnet"):
        time_resnet(arguments.rounds)
    dist.destroy_process_group()


def start(arguments, rank: int, size: int, port: int) -> subprocess.Popen:
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in variables.items()}}
    environment["HEADRACE_THREADS"] = str(2 // size)
    command = [sys.executable, __file__, "--as-rank", f"--batch={arguments.batch}", f"--rounds={arguments.rounds}"]
    return subprocess.Popen(command + ([f"--only={arguments.only}"] if arguments.only else []), env=environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="how often the ways take turns (default %(default)s)")
    parser.add_argument("--batch", type=int, default=512, help="images of a step, of all ranks (default %(default)s)")
    parser.add_argument("--only", choices=["collectives", "small", "resnet"], help="a part")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.as_rank:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        for size in (2, 1) if arguments.only in (None, "small") else (2,):
            ranks = [start(arguments, rank, size, port) for rank in range(size)]
            if codes := [rank.wait() for rank in ranks if rank.wait()]:
                sys.exit(f"a rank has failed: {codes}")
    else:
        run_rank(arguments)


if __name__ == "__main__":
    main()
